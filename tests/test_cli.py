"""The command line, run as a user runs it: in its own process, on real files."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "140"}
    command = [sys.executable, "-m", "longtail.cli", *map(str, arguments)]
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


def test_usage_errors_exit_with_2() -> None:
    assert run("check").returncode == 2
    assert run("nonsense").returncode == 2
    assert run("check", "x", "--nonsense").returncode == 2
