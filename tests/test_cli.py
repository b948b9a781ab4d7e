"""The command line, run as a user runs it: in its own process, on real files."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from longtail import __version__, load_graph
from longtail.cli.main import app
from longtail.cli.options import DataOptions

ROOT = Path(__file__).parent.parent


def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "140"}
    command = [sys.executable, "-m", "longtail.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


def fails(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Run something that must fail with exit code 2 and one line; returns the line."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("longtail: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.strip()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "shop.csv"
    rows = [("red apple", "fruit|red"), ("green apple", "fruit"), ("red car", "red|toy"), ("toy train", "toy"), ("pear", "fruit")] * 4
    path.write_text("text,labels\n" + "".join(f"{text} {number},{labels}\n" for number, (text, labels) in enumerate(rows)))
    return path


def test_from_a_table_to_its_metrics(table: Path, tmp_path: Path) -> None:
    split = ("--test-share", "0.25")
    told = run("check", table, *split)
    assert told.returncode == 0, told.stderr
    assert "15 train, 5 test" in told.stdout
    done = run("baseline", table, "--out", tmp_path / "found.npz", *split)
    assert done.returncode == 0, done.stderr
    assert "Next: longtail evaluate" in done.stdout
    done = run("evaluate", tmp_path / "found.npz", table, "--out", tmp_path / "metrics.json", "--against", tmp_path / "found.npz", *split)
    assert done.returncode == 0, done.stderr
    assert "5 test rows" in done.stdout and "Paired comparison" in done.stdout
    assert json.loads((tmp_path / "metrics.json").read_text())["P@1"] > 50


def test_check_as_json_with_plot(xc_folder: Path, tmp_path: Path) -> None:
    done = run("check", xc_folder, "--json", "--plot", tmp_path / "zipf.png")
    assert json.loads(done.stdout)["train_rows"] == 2
    assert (tmp_path / "zipf.png").stat().st_size > 1000


def test_check_writes_filters_by_the_protocol(tmp_path: Path) -> None:
    folder = tmp_path / "leaky"
    folder.mkdir()
    for name, rows in {"trn": [("a", [1])], "tst": [("b", [0])], "lbl": [("a", []), ("b", [])]}.items():
        with gzip.open(folder / f"{name}.json.gz", "wt") as file:
            file.writelines(json.dumps({"title": text, "target_ind": ids}) + "\n" for text, ids in rows)
    told = run("check", folder)
    assert "1 reciprocal and 1 own-text test pairs are not filtered" in told.stdout
    done = run("check", folder, "--write-filters", tmp_path / "clean")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "clean" / "filter_labels_test.txt").read_text() == "0 0\n0 1\n"
    assert (tmp_path / "clean" / "filter_labels_train.txt").read_text() == "0 0\n"
    assert "reciprocal" not in run("check", tmp_path / "clean").stdout


def test_convert_there_and_back(xc_folder: Path, tmp_path: Path) -> None:
    assert run("data", "convert", xc_folder, tmp_path / "sparse", "--to", "sparse").returncode == 0
    assert run("data", "convert", tmp_path / "sparse", tmp_path / "back", "--to", "xc").returncode == 0
    first, second = (run("check", folder, "--json") for folder in (xc_folder, tmp_path / "back"))
    assert {**json.loads(first.stdout), "name": ""} == {**json.loads(second.stdout), "name": ""}


def test_synth_and_list(tmp_path: Path) -> None:
    sizes = ("--train", "60", "--test", "20", "--labels", "15", "--labels-per-point", "2")
    assert run("data", "synth", *sizes, "--out", tmp_path / "made").returncode == 0
    assert json.loads(run("check", tmp_path / "made", "--json").stdout)["train_pairs"] == 120
    assert "parquet" in run("list", "formats").stdout


def test_bad_input_is_one_line(xc_folder: Path, table: Path, tmp_path: Path) -> None:
    assert "does not exist" in fails("check", tmp_path / "nowhere")
    assert "is not a data set longtail knows" in fails("check", tmp_path)
    assert "already exists" in fails("data", "convert", xc_folder, xc_folder)
    assert "Did you mean 'parquet'" in fails("data", "convert", xc_folder, tmp_path / "new", "--to", "parket")
    assert not (tmp_path / "new").exists()
    assert "wanted places such as 1,3,5" in fails("evaluate", tmp_path / "x.npz", xc_folder, "-k", "one")
    assert "wanted a share between 0 and 1" in fails("check", table, "--test-share", "2")
    assert "has no use for the option 'separator'" in fails("check", xc_folder, "--separator", ";")
    assert "Did you mean 'formats'" in fails("list", "format")


def test_a_fault_names_file_and_line(xc_folder: Path) -> None:
    with gzip.open(xc_folder / "trn.json.gz", "at") as file:
        file.write('{"title": "x", "target_ind": [7]}\n')
        file.write('{"title": "y", "target_ind": [9]}\n')
    line = fails("check", xc_folder)
    assert "trn.json.gz:3: label 7 is outside 0..1." in line
    assert "(2 lines with this fault)" in line


def test_the_package_runs_as_the_command_does() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "longtail.cli", "--version"], capture_output=True, text=True, env=environment)
    assert done.stdout == f"longtail {__version__}\n" and done.stderr == ""


def test_commands_that_read_data_share_its_options() -> None:
    """Each has all options of DataOptions, last, with the same flags, defaults and help."""

    def described(parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [(one.name, tuple(one.opts), one.default, getattr(one, "help", None)) for one in parameters]

    def parameters(*names: str) -> list[Any]:
        command: Any = get_command(app)
        for name in names:
            command = command.commands[name]
        return list(command.params)

    shared = described(parameters("check")[-8:])
    assert [(flags, default) for _, flags, default, _ in shared] == [
        (("--text",), None),
        (("--labels",), None),
        (("--separator",), None),
        (("--label-texts",), None),
        (("--fields",), "title"),
        (("--encoding",), "utf-8"),
        (("--test-share",), 0.0),
        (("--seed",), 0),
    ]
    assert [name for name, *_ in shared] == [field.name for field in fields(DataOptions)]
    for command in ("graph", "augment", "baseline", "train", "evaluate", "compare", "report", "tune"):
        assert described(parameters(command)[-8:]) == shared, command
    assert described(parameters("data", "convert")[-8:]) == shared


def test_usage_errors_exit_with_2() -> None:
    assert run("check").returncode == 2
    assert run("nonsense").returncode == 2
    assert run("check", "x", "--nonsense").returncode == 2


def test_a_graph_is_made_looked_at_and_kept(table: Path, tmp_path: Path) -> None:
    told = run("graph", table)
    assert told.returncode == 0, told.stderr
    # fruit stands in 12 rows, red in 8, toy in 8; fruit and red meet in 4, red and toy in 4
    assert "3, 0 isolated" in told.stdout and "7, 4 of them to other labels" in told.stdout
    assert "mean 1.33, median 1, at most 2" in told.stdout and "0 (0.0% of the weights to other labels)" in told.stdout
    assert told.stdout.endswith("Made 7 weights of 3 labels. To keep them: --out graph.npz\n")
    told = run("graph", table, "--label", "fruit")
    assert re.findall(r"│ +([\d.]+) │ +(\d+) │ ([a-z ]+?) +│ +\d │ (\w+)", told.stdout) == [
        ("1.0000", "12", "itself", "fruit"),
        ("0.3333", "4", "the same rows", "red"),
    ]
    done = run("graph", table, "--kind", "walk", "--length", "50", "--out", tmp_path / "walk.npz", "--plot", tmp_path / "bars.png")
    assert done.returncode == 0, done.stderr
    assert f"Next: longtail augment {table} --method gandalf --graph {tmp_path / 'walk.npz'} --out NEW targets=walk" in done.stdout
    assert "isolated" not in done.stdout and "Wrote" in done.stderr
    graph = load_graph(tmp_path / "walk.npz")
    assert (graph.kind, graph.settings["length"], graph.settings["seed"]) == ("walk", 50, 0)
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "kind", "settings"),
    [
        ((), "cooccurrence", {"delta": 0.1, "top": -1}),
        (("--kind", "symmetric", "--delta", "0.3", "--top", "2"), "symmetric", {"delta": 0.3, "top": 2}),
        (("--kind", "ppr", "--restart", "0.5"), "pagerank", {"restart": 0.5, "top": 10}),
        (("--kind", "walk", "--head", "4", "--seed", "7"), "walk", {"head": 4, "seed": 7, "length": 400, "restart": 0.8}),
        (("--order", "2", "--top", "2"), "second-order", {"of": "cooccurrence", "top": -1, "second_order_top": 2}),
    ],
)
def test_graph_options_reach_the_graph(
    options: tuple[str, ...], kind: str, settings: dict[str, object], table: Path, tmp_path: Path
) -> None:
    done = run("graph", table, *options, "--out", tmp_path / "graph.npz")
    assert done.returncode == 0, done.stderr
    graph = load_graph(tmp_path / "graph.npz")
    assert graph.kind == kind
    assert settings.items() <= graph.settings.items()


def test_augmented_rows_are_written_and_evaluated_apart(xc_folder: Path, tmp_path: Path) -> None:
    done = run("augment", xc_folder, "--out", tmp_path / "more")
    assert done.returncode == 0, done.stderr
    # "apple" has two rows, one of them with "pear"; "pear" has one, with "apple"
    assert "2 training rows with 3 pairs, 2 label rows with 4 pairs." in done.stdout
    assert f"longtail evaluate PREDICTIONS {xc_folder}\n" in done.stdout
    with gzip.open(tmp_path / "more" / "trn.json.gz", "rt") as file:
        last = [json.loads(line) for line in file][2:]
    assert [(row["uid"], row["title"], row["target_ind"], row["target_rel"]) for row in last] == [
        ("label:0", "apple", [0, 1], [1.0, 0.5]),
        ("label:1", "pear", [0, 1], [1.0, 1.0]),
    ]
    assert run("baseline", xc_folder, "--out", tmp_path / "found.npz").returncode == 0
    plain, more = (run("evaluate", tmp_path / "found.npz", folder, "-k", "1") for folder in (xc_folder, tmp_path / "more"))
    assert "2 of 4 training rows were made by augmentation; label counts leave them out." in more.stdout
    assert "augmentation" not in plain.stdout
    assert [line for line in plain.stdout.splitlines() if "PSP" in line] == [line for line in more.stdout.splitlines() if "PSP" in line]


def test_augment_takes_settings_a_graph_and_a_format(xc_folder: Path, tmp_path: Path) -> None:
    assert run("graph", xc_folder, "--delta", "0", "--out", tmp_path / "graph.npz").returncode == 0
    settings = ("--graph", tmp_path / "graph.npz", "--to", "pecos", "--binary", "delta=0.5", "include=Z", "weight=2")
    done = run("augment", xc_folder, "--out", tmp_path / "pecos", *settings)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pecos" / "train.txt").read_text() == "0\tapple\n0,1\tpear\n"
    assert "Row weights are left out" in done.stderr
    done = run("augment", xc_folder, "--method", "labelmix", "--to", "fasttext", "--out", tmp_path / "mixed", "probability=1", "soft=no")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mixed" / "train.txt").read_text().splitlines()[2] == "__label__0 red apple apple"


def test_augment_and_graph_say_what_cannot_be(xc_folder: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "more")
    assert "Did you mean 'gandalf'" in fails("augment", xc_folder, *out, "--method", "gandolf")
    assert "No setting of gandalf called 'dleta'. Did you mean 'delta'" in fails("augment", xc_folder, *out, "dleta=0.2")
    assert "synonyms needs probability=VALUE" in fails("augment", xc_folder, *out, "--method", "synonyms")
    assert "is a hook that a trainer calls" in fails("augment", xc_folder, *out, "--method", "manifold-mixup")
    assert "MixUp mixes vectors" in fails("augment", xc_folder, *out, "--method", "mixup")
    assert "already exists" in fails("augment", xc_folder, "--out", xc_folder)
    assert "No such file" in fails("augment", xc_folder, *out, "--graph", tmp_path / "nowhere.npz")
    assert not (tmp_path / "more").exists()
    assert "'ppr' has no use for --delta. It takes: --top, --restart." in fails("graph", xc_folder, "--kind", "ppr", "--delta", "0.1")
    assert "Did you mean 'walk'" in fails("graph", xc_folder, "--kind", "walks")
    assert "No label of LF-TinyTitles is called 'pera'. Nearest: 'pear'" in fails("graph", xc_folder, "--label", "pera")
    assert "delta came as 3.0" in fails("graph", xc_folder, "--delta", "3")


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "longtail.cli.main", "data", "synth", "--like", "LF-AmazonTitles-1.3M", "--out", str(tmp_path / "big")]

    def hears_interrupts() -> None:  # a shell makes deaf to them what it starts in the background, and all that this starts
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=hears_interrupts) as running:
        while not any(tmp_path.iterdir()):  # the unfinished folder: work has begun
            assert running.poll() is None
            time.sleep(0.05)
        told = None
        while told is None:  # as a person would: Python drops an interrupt that falls into a callback of the compiler
            running.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                _, told = running.communicate(timeout=3)
    assert running.returncode == 130
    assert "interrupted; nothing half-written was left behind" in told
    assert not any(tmp_path.iterdir())
