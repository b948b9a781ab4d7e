"""Peers: the table, the rows they are given, the adapter with small scripts in their place, the environments."""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType, ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, load_npz

from longtail import Dataset, Split
from longtail.core.errors import DataError, SettingError
from longtail.core.values import labels_from_rows
from longtail.data.augment.gandalf import Gandalf
from longtail.experiments.compare.peers import install
from longtail.experiments.compare.peers.rows import write_rows
from longtail.experiments.compare.peers.run import PeerFailed, PeerRun, parsed_settings, run_peer
from longtail.experiments.compare.peers.table import PEERS, SCRIPTS, Environment, Peer, named_peer
from tests.conftest import dataset

WANTED = "pecos parabel bonsai plt ovr fasttext bm25 tfidf-knn minilm-zero-shot minilm-fine-tuned libmultilabel".split()
ROOT = Path(__file__).parent.parent


# the table


def test_the_table_is_whole() -> None:
    assert list(PEERS) == WANTED
    for name, peer in PEERS.items():
        assert peer.name == name and peer.what
        compile(peer.path.read_text(encoding="utf-8"), peer.script, "exec")
        assert all(re.fullmatch(r"[a-z0-9-]+(\[[a-z]+\])?==[0-9][0-9a-z.]*", one) for one in peer.requirements), peer.requirements
        assert {"numpy", "scipy"} <= {install.project(one) for one in peer.requirements}
        assert peer.environment.imports
    scripts = {path.name for path in SCRIPTS.glob("*.py")}
    assert scripts - {"work_folder.py"} == {peer.script for peer in PEERS.values()}  # none that nobody runs


def test_environments_of_one_name_are_one_and_torch_is_the_pinned_one() -> None:
    environments = {peer.environment for peer in PEERS.values()}
    assert len(environments) == len({environment.name for environment in environments})
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    for environment in environments:
        # what is not pinned comes by the constraints: with either, no other torch
        asked = [*environment.requirements, *install.constraints_for(environment).splitlines()]
        assert [one for one in asked if install.project(one) == "torch"] == [torch]


def test_scripts_know_nothing_of_longtail() -> None:
    for path in SCRIPTS.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        outer = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
        outer |= {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
        roots = {name.split(".")[0] for name in outer}
        assert roots <= {*sys.stdlib_module_names, "numpy", "scipy", "work_folder"}, path.name  # a peer is imported where it is run
        inner = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not any(name.split(".")[0] == "longtail" for name in inner | outer)


def test_an_unknown_peer_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="Did you mean 'bonsai'"):
        named_peer("bonzai")


# what scripts share


@pytest.fixture(scope="module")
def shared() -> ModuleType:
    """work_folder.py, which is no part of the package."""
    spec = spec_from_file_location("work_folder_of_peers", SCRIPTS / "work_folder.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@given(st.lists(st.lists(st.integers(0, 5), min_size=7, max_size=7), min_size=1, max_size=4), st.integers(1, 9))
def test_best_of_matrix(shared: ModuleType, scores: list[list[int]], k: int) -> None:
    ids, values = shared.best_of_matrix(csr_matrix(scores, dtype=np.float32), k)
    for row, (found, held) in zip(scores, zip(ids.tolist(), values.tolist(), strict=True), strict=True):
        best = sorted((label for label in range(7) if row[label]), key=lambda label: (-row[label], label))[:k]
        filled = k - len(best)
        assert found == best + [-1] * filled
        assert held == [row[label] for label in best] + [-np.inf] * filled


def test_best_of_lists_sorts_and_cuts(shared: ModuleType) -> None:
    ids, scores = shared.best_of_lists([[(4, 0.5), (2, 0.75), (7, 0.25)], []], 2, 2)
    assert ids.tolist() == [[2, 4], [-1, -1]]
    assert scores.tolist() == [[0.75, 0.5], [-np.inf, -np.inf]]


def test_neighbours_vote_with_their_similarity(shared: ModuleType) -> None:
    labels = labels_from_rows([[0], [1, 2], [2], [3]], 4)
    near = np.array([[0, 1, 2], [3, 0, -1]], np.int32)
    similar = np.array([[0.5, 0.375, 0.25], [0.0, 0.5, -np.inf]], np.float32)
    ids, scores = shared.votes_of(near, similar, labels, 3)
    assert ids.tolist() == [[2, 0, 1], [0, -1, -1]]  # 0.375 + 0.25; a similarity of 0 is no vote
    assert scores[0].tolist() == [0.625, 0.5, 0.375]


# rows


def test_rows_are_written_once_and_the_same_for_all(shop: Dataset, tmp_path: Path) -> None:
    folder = write_rows(shop.train, shop, tmp_path)
    written = (folder / "train_features.npz").stat().st_mtime_ns
    assert write_rows(shop.train, shop, tmp_path) == folder
    assert (folder / "train_features.npz").stat().st_mtime_ns == written
    assert write_rows(shop.train.rows(np.arange(4)), shop, tmp_path) != folder


def test_features_are_tf_idf_of_training_words(shop: Dataset, tmp_path: Path) -> None:
    folder = write_rows(shop.train, shop, tmp_path)
    seen, asked = load_npz(folder / "train_features.npz"), load_npz(folder / "test_features.npz")
    assert np.sqrt(seen.multiply(seen).sum(axis=1)).A1.tolist() == pytest.approx([1] * 5)
    assert np.diff(seen.indptr).tolist() == [3] * 5  # two words and their bigram
    # "green" (in one of five) and "pear" (in one) but no "green pear"; "apple" (in three) and "press"; "water" is not known
    rare, common = np.log(6 / 2) + 1, np.log(6 / 4) + 1
    assert sorted(asked[0].data.tolist()) == pytest.approx([np.sqrt(0.5)] * 2)
    length = np.hypot(rare, common)
    assert sorted(asked[1].data.tolist()) == pytest.approx([common / length, rare / length])
    assert asked[2].nnz == 0


def test_soft_targets_become_one_and_texts_stay_on_their_line(tmp_path: Path) -> None:
    data = dataset([("red\nshoe", [0, 1]), ("  blue\u2028shoe ", [1]), ("", [0])], [("a\tred", [0])], ["shoe", "hat\r\n"])
    soft = replace(data.train, labels=csr_matrix([[0.25, 1], [0, 0.5], [1, 0]], dtype=np.float32))
    folder = write_rows(soft, data, tmp_path)
    assert load_npz(folder / "train_labels.npz").toarray().tolist() == [[1, 1], [0, 1], [1, 0]]
    assert soft.labels.data.tolist() == [0.25, 1, 0.5, 1]  # a copy was changed
    assert (folder / "train.txt").read_bytes() == b"red shoe\nblue shoe\n\n"
    assert (folder / "labels.txt").read_bytes() == b"shoe\nhat\n"


def without_texts(data: Dataset) -> Dataset:
    train = Split(None, data.train.labels, features=csr_matrix(np.arange(1, 11).reshape(5, 2), dtype=np.float32))
    test = Split(None, data.test.labels, features=csr_matrix([[3, 4], [0, 0], [0, 2]], dtype=np.float32))
    return replace(data, train=train, test=test)


def test_features_of_the_source_stand_in_for_texts(shop: Dataset, tmp_path: Path) -> None:
    data = without_texts(shop)
    folder = write_rows(data.train, data, tmp_path)
    assert load_npz(folder / "test_features.npz").toarray() == pytest.approx(np.array([[0.6, 0.8], [0, 0], [0, 1]]))
    assert not (folder / "train.txt").exists() and (folder / "labels.txt").exists()


def test_rows_that_cannot_be_written(shop: Dataset, tmp_path: Path) -> None:
    bare = replace(shop, train=Split(None, shop.train.labels), test=Split(None, shop.test.labels))
    with pytest.raises(DataError, match="neither texts nor features"):
        write_rows(bare.train, bare, tmp_path)
    with pytest.raises(DataError, match="have 2 labels, shop has 4"):
        write_rows(replace(shop.train, labels=shop.train.labels[:, :2]), shop, tmp_path)
    with pytest.raises(DataError, match="0 test rows"):
        write_rows(shop.train, replace(shop, test=shop.test.rows(np.empty(0, np.int64))), tmp_path)
    assert list(tmp_path.iterdir()) == []


# the adapter


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Environment], Path]:
    """Makes environments that look ready and whose Python is the one of the tests."""
    folder = tmp_path / "environments"
    monkeypatch.setenv("LONGTAIL_PEERS", str(folder))

    def make(environment: Environment) -> Path:
        python = folder / environment.name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        (folder / environment.name / "ready").write_text("\n".join(environment.requirements))
        return python

    return make


Fake = Callable[..., PeerRun]


@pytest.fixture
def fake(tmp_path: Path, shop: Dataset, monkeypatch: pytest.MonkeyPatch, environments: Callable[[Environment], Path]) -> Fake:
    """Runs lines of Python as the script of a peer called "fake", on the shop."""
    environment = Environment("fake", ("fake==1.0",), ("fake",))
    environments(environment)
    start = f"import json, sys\nimport numpy as np\nfrom pathlib import Path\nsys.path.insert(0, {str(SCRIPTS)!r})\n"
    start += "rows, out = map(Path, sys.argv[1:])\nsettings = json.loads((out / 'settings.json').read_text())\n"

    def run(script: str, **arguments: object) -> PeerRun:
        path = tmp_path / "script.py"
        path.write_text(start + script)
        monkeypatch.setitem(PEERS, "fake", Peer("fake", "a test", environment, str(path), "features", "", {"power": 1}))
        return run_peer("fake", shop.train, shop, **{"k": 2, "seed": 3, "folder": tmp_path / "work", **arguments})  # type: ignore[arg-type]

    return run


RESULT = "costs = {'train_seconds': 1.5, 'predict_seconds': 0.5, 'megabytes': 2, 'peak_megabytes': 9}\n"
RESULT += "(out / 'result.json').write_text(json.dumps(costs))\n"
FOUND = "ids, scores = [[2, 0], [3, -1], [1, 2]], [[2, 1], [2, 1], [2, 1]]\n"
FOUND += "np.savez(out / 'found.npz', ids=np.array(ids, np.int32), scores=np.array(scores, np.float32))\n"


def test_round_trip(fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "of longtail's Python")
    threads = "import os\nassert os.environ['OMP_NUM_THREADS'] == '2' and 'PYTHONPATH' not in os.environ\n"
    told = "assert settings == {'power': 5, 'kind': '', 'k': 2, 'seed': 3, 'threads': 2}, settings\n"
    there = "assert sorted(path.name for path in rows.iterdir()) == ['labels.txt', 'test.txt', 'test_features.npz', 'train.txt', "
    there += "'train_features.npz', 'train_labels.npz']\n"
    run = fake(threads + told + there + RESULT + FOUND, settings=["power=5"], threads=2)
    assert run.found.ids.tolist() == [[2, 0], [3, -1], [1, 2]]
    assert run.found.scores[1].tolist() == [2, -np.inf]
    assert (run.train_seconds, run.predict_seconds, run.megabytes, run.peak_megabytes) == (1.5, 0.5, 2, 9)
    told_lines = capsys.readouterr().err.splitlines()
    assert told_lines == [
        "fake: training on 5 rows with 4 labels",
        "fake: trained in 1.5 s, predicted in 0.5 s, model of 2 MB",
    ]


def test_a_run_does_not_see_what_an_earlier_one_left(fake: Fake) -> None:
    fake(RESULT + FOUND)
    with pytest.raises(DataError, match=r"result\.json.*FileNotFound"):
        fake("pass")


def test_a_peer_that_is_not_installed(shop: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_PEERS", str(tmp_path / "nothing"))
    with pytest.raises(SettingError, match="pecos is not installed. Type: make peers .*scripts/peers pecos"):
        run_peer("pecos", shop.train, shop, 5, 0, tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_an_environment_of_other_pins_is_not_ready(tmp_path: Path, environments: Callable[[Environment], Path]) -> None:
    environment = PEERS["bonsai"].environment
    python = environments(environment)
    assert install.python_of(environment) == python
    assert install.python_of(replace(environment, requirements=("omikuji==0.5.3",))) is None


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "print('begun')\nsys.stderr.write('a warning\\n')\nraise MemoryError('no room for the tree')",
            "MemoryError: no room for the tree",
        ),
        ("sys.exit(3)", "exit code 3, without a word"),
        ("import os\nos.kill(os.getpid(), 9)", "ended by SIGKILL, most often because memory ran out"),
        ("import os\nos.abort()", "ended by SIGABRT"),
    ],
)
def test_a_peer_that_fails_says_why_and_keeps_its_log(fake: Fake, tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(PeerFailed) as failed:
        fake(script)
    assert str(failed.value).startswith(f"The peer fake failed: {message} ") and "\n" not in str(failed.value)
    log = Path(str(failed.value).rpartition("log: ")[2].removesuffix(")"))
    assert log.is_file() and log.is_relative_to(tmp_path / "work")
    if "begun" in script:
        assert "a warning" in log.read_text() and (log.parent / "output.log").read_text() == "begun\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (FOUND, r"result\.json: FileNotFoundError"),
        (FOUND + "(out / 'result.json').write_text('{}')", "KeyError.*wanted the numbers train_seconds"),
        (FOUND + "(out / 'result.json').write_text('[1')", "JSONDecodeError"),
        (FOUND + RESULT.replace("1.5", "-1"), "none below 0"),
        (FOUND + RESULT.replace("1.5", "float('nan')"), "none below 0"),
        (RESULT, r"found\.npz does not exist"),
        (RESULT + "(out / 'found.npz').write_text('nothing')", "not an .npz file"),
        (RESULT + FOUND.replace("[2, 0], ", "").replace("[2, 1], ", "", 1), "2 rows came from fake; wanted one for each of 3"),
        (RESULT + FOUND.replace("[2, 0]", "[4, 0]"), "label 4 came from fake; wanted ids below 4"),
        (RESULT + FOUND.replace("[2, 0]", "[0, 0]"), "twice in one row"),
        (RESULT + FOUND.replace("[2, 1]", "[1, 2]", 1), "row 0 has a score above the one before it"),
        (RESULT + FOUND.replace("[2, 1]", "[np.nan, 2]", 1), "not numbers"),
    ],
)
def test_malformed_output(fake: Fake, script: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fake(script)


def test_an_interrupt_ends_the_peer_and_what_it_started(fake: Fake, tmp_path: Path) -> None:
    marks = tmp_path / "pids"
    script = f"import os, subprocess, time\nchild = subprocess.Popen(['sleep', '60'])\nPath({str(marks)!r} + '.new').write_text"
    script += f"(f'{{os.getpid()}} {{child.pid}}')\nos.rename({str(marks)!r} + '.new', {str(marks)!r})\ntime.sleep(60)"

    def interrupt(_: int, __: FrameType | None) -> None:
        if marks.exists():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            fake(script)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    wait_until(lambda: not any(map(runs, marks.read_text().split())))


def test_a_peer_ends_with_the_process_that_called_it(tmp_path: Path) -> None:
    mark, out = tmp_path / "pid", tmp_path / "out"
    out.mkdir()
    (out / "settings.json").write_text('{"k": 1, "seed": 0, "threads": 1}')
    script = tmp_path / "script.py"
    script.write_text(
        f"import os, sys, time\nsys.path.insert(0, {str(SCRIPTS)!r})\nfrom work_folder import Work\nWork.from_arguments()\n"
        f"open({str(mark)!r} + '.new', 'w').write(str(os.getpid()))\nos.rename({str(mark)!r} + '.new', {str(mark)!r})\ntime.sleep(60)"
    )
    caller = f"import subprocess, sys\nsubprocess.run([sys.executable, {str(script)!r}, 'rows', {str(out)!r}], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-c", caller])
    wait_until(mark.exists)
    assert runs(mark.read_text())
    process.kill()
    process.wait()
    wait_until(lambda: not runs(mark.read_text()))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(pid: str) -> bool:
    """Whether a process is there and not only waiting to be counted as dead."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def test_settings_of_a_peer() -> None:
    tuned = named_peer("minilm-fine-tuned")
    assert parsed_settings(tuned, []) == dict(tuned.settings)
    assert parsed_settings(tuned, ["max_steps=20", "learning_rate=1e-4"]) == {**tuned.settings, "max_steps": 20, "learning_rate": 1e-4}
    assert tuned.settings["max_steps"] != 20
    with pytest.raises(SettingError, match="Did you mean 'max_steps'"):
        parsed_settings(tuned, ["max_step=20"])
    with pytest.raises(SettingError, match="max_steps came as 'few'; wanted a value such as 1000"):
        parsed_settings(tuned, ["max_steps=few"])
    with pytest.raises(SettingError, match="'max_steps' came behind minilm-fine-tuned"):
        parsed_settings(tuned, ["max_steps"])


@pytest.mark.parametrize(("name", "lacking"), [("bm25", "texts"), ("minilm-zero-shot", "texts")])
def test_a_peer_that_reads_texts_needs_them(
    name: str, lacking: str, shop: Dataset, tmp_path: Path, environments: Callable[[Environment], Path]
) -> None:
    environments(PEERS[name].environment)
    data = without_texts(shop)
    with pytest.raises(DataError, match=f"shop has no {lacking}, which {name} reads"):
        run_peer(name, data.train, data, 5, 0, tmp_path / "work")


def test_only_some_peers_need_label_texts(shop: Dataset, tmp_path: Path, environments: Callable[[Environment], Path]) -> None:
    nameless = replace(shop, label_texts=None)
    for name in ("minilm-zero-shot", "tfidf-knn"):
        environments(PEERS[name].environment)
    with pytest.raises(DataError, match="no label texts"):
        run_peer("minilm-zero-shot", shop.train, nameless, 5, 0, tmp_path / "work")
    assert len(run_peer("tfidf-knn", shop.train, nameless, 2, 0, tmp_path / "work").found) == 3


# peers that the tests' own Python can run


def test_nearest_rows_by_tf_idf(shop: Dataset, tmp_path: Path, environments: Callable[[Environment], Path]) -> None:
    environments(PEERS["tfidf-knn"].environment)
    data = replace(shop, test=replace(shop.test, filter=np.array([[0, 0]], np.int32)))
    run = run_peer("tfidf-knn", data.train, data, 2, 0, tmp_path / "work", ["neighbours=1"])
    # "green pear" is as near to "green apple" as to "pear juice", the earlier counts; "apple press" to "juice press"; "water" to none
    assert run.found.ids.tolist() == [[0, 2, -1], [0, 1, 3], [-1, -1, -1]]  # a place more, for the filter
    assert run.megabytes > 0 and run.peak_megabytes > 20
    assert not list((tmp_path / "work").glob("*/scratch"))


def test_augmented_rows_reach_a_peer(tmp_path: Path, environments: Callable[[Environment], Path]) -> None:
    environments(PEERS["tfidf-knn"].environment)
    data = dataset([("red shoe", [0, 1]), ("blue hat", [2])], [("boots", [1])], ["sandals", "boots", "cap"])
    plain = run_peer("tfidf-knn", data.train, data, 3, 0, tmp_path)
    assert plain.found.ids.tolist() == [[-1, -1, -1]]  # nobody said boots
    made = Gandalf().augment(data.train, data.label_texts).split
    assert run_peer("tfidf-knn", made, data, 3, 0, tmp_path).found.ids.tolist() == [[0, 1, -1]]  # the label's row did


@pytest.mark.parametrize("name", ["plt", "ovr"])
def test_napkinxc_learns_what_texts_spell_out(name: str, tmp_path: Path, environments: Callable[[Environment], Path]) -> None:
    environments(PEERS[name].environment)
    words = [f"word{number}" for number in range(12)]
    train = [(f"{one} {other}", [left, right]) for left, one in enumerate(words) for right, other in enumerate(words) if left < right]
    data = dataset(train, [(words[5], [5]), (words[0], [0])], words)
    run = run_peer(name, data.train, data, 1, 0, tmp_path, threads=1)
    assert run.found.ids.tolist() == [[5], [0]]
    assert run.megabytes > 0


# environments


def fake_venv(pip: str, imports: str = "exit 0") -> Callable[..., None]:
    """In place of venv.create: an environment whose Python answers pip and imports with lines of shell."""

    def create(folder: Path, **_: object) -> None:
        python = folder / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(f'#!/bin/sh\nif [ "$1" = -m ]; then {pip}; else {imports}; fi\n')
        python.chmod(0o755)

    return create


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGTAIL_PEERS", str(tmp_path / "peers"))
    return tmp_path / "peers"


def test_install_tells_what_is_ready(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    heard = folder.parent / "heard"
    monkeypatch.setattr(install.venv, "create", fake_venv(f'echo "$@" >>"{heard}"; cat "$PIP_CONSTRAINT" >>"{heard}"; exit 0'))
    assert install.main(["bonsai", "parabel"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "Installing bonsai, parabel: omikuji==0.5.2, numpy==1.26.4, scipy==1.13.1 ..."  # one environment for both
    assert out.splitlines()[-1] == f"Ready: bonsai, parabel (in {folder})"
    asked = heard.read_text().splitlines()
    assert asked[0] == "-m pip install --quiet omikuji==0.5.2 numpy==1.26.4 scipy==1.13.1"
    assert "torch==2.13.0" in asked and not any(line.startswith(("numpy==", "scipy==", "#")) for line in asked)
    assert install.main(["bonsai"]) == 0  # ready already
    assert capsys.readouterr().out == f"Ready: bonsai (in {folder})\n"


@pytest.mark.parametrize(
    ("create", "reason"),
    [
        (
            fake_venv("echo 'ERROR: No matching distribution found for it' >&2; echo 'ERROR: more' >&2; exit 1"),
            "No matching distribution found for it",
        ),
        (fake_venv("exit 0", "echo 'ImportError: GLIBC_2.99 not found' >&2; exit 1"), "ImportError: GLIBC_2.99 not found"),
        (fake_venv("exit 7"), "no reason given"),
    ],
)
def test_one_that_cannot_be_installed_is_named_and_the_others_go_on(
    create: Callable[..., None], reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def some(folder: Path, **_: object) -> None:
        (create if folder.name == "omikuji" else fake_venv("exit 0"))(folder)

    monkeypatch.setattr(install.venv, "create", some)
    assert install.main(["parabel", "bm25"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert f"Not installed: parabel: {reason}" in out
    assert out[-1] == f"Ready: bm25 (in {folder})"
    assert install.main(["parabel"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"Ready: none (in {folder})"


def test_install_of_an_unknown_peer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install.main(["pecoss"]) == 2
    assert "Did you mean 'pecos'" in capsys.readouterr().err
    assert not folder.exists()
