"""The report of compared runs: numbers as in the cells, wins counted by hand, texts that are no markup, a page that loads nothing."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from longtail import Dataset
from longtail.cli.main import app
from longtail.core.errors import DataError, LongtailError, MissingExtra, SettingError
from longtail.core.values import Predictions
from longtail.data.graph.cooccurrence import cooccurrence
from longtail.evaluation.evaluate import evaluate
from longtail.evaluation.predictions import write_predictions
from longtail.experiments.compare.cells import Cell, read_cells
from longtail.experiments.report.drawing import _covered
from longtail.experiments.report.hits import RowHits, read_hits
from longtail.experiments.report.neighbourhoods import best_and_plain, chosen_labels, neighbourhoods
from longtail.experiments.report.queries import chosen_texts, embedded, wins
from longtail.experiments.report.rows import metrics_of, rows_of
from longtail.experiments.report.small_multiples import bin_values, curves_of, frequency_bins, loss_curves, validation_curves
from longtail.experiments.report.table import results_table
from longtail.experiments.report.write import write_report
from tests.conftest import dataset

pytest.importorskip("matplotlib")

SCRIPT = "<script>alert(1)</script> $x$"
VOID = {"meta", "link", "input", "br", "img"}
EPOCH = {"member": 0, "stage": 0, "epoch": 0, "loss": 4.0, "seconds": 2.0}


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Labels 0 and 1 share two rows, 1 and 2 one; label 3 stands alone."""
    train = [("a b", [0, 1]), ("a b", [0, 1]), ("b c", [1, 2]), ("d", [3])]
    test = [(f"{SCRIPT} a", [0, 1]), ("b", [1]), ("c", [1, 2]), ("d", [3])]
    return dataset(train, test, [SCRIPT, "b", "c </script>", "d"], name="tiny")


# which labels each system finds for the four test rows
FOUND = {
    ("plain", "none"): [[0, 2], [0, 2], [0, 3], [3, 0]],  # 1, 0, 0, 1 right
    ("plain", "gandalf"): [[0, 1], [1, 2], [0, 3], [0, 1]],  # 2, 1, 0, 0 right
    ("other", "none"): [[2, 3], [0, 2], [0, 2], [3, -1]],  # 0, 0, 1, 1 right
}


def predictions(rows: Sequence[Sequence[int]]) -> Predictions:
    ids = np.full((len(rows), 10), -1, np.int32)
    ids[:, :2] = rows
    return Predictions(ids, np.where(ids < 0, -np.inf, -np.arange(10)).astype(np.float32))


def keep(
    folder: Path, data: Dataset, system: str = "plain", augmentation: str = "none", seed: int = 0, found: Any = None, **more: Any
) -> Cell:
    """Evaluate these predictions and keep them as a cell."""
    answered = predictions(FOUND[system, augmentation] if found is None else found)
    result = evaluate(answered, data, resamples=0)
    facts: dict[str, Any] = dict(data=data.name, system=system, variant="", augmentation=augmentation, settings=(), seed=seed)
    facts |= dict(machine="2 CPU threads", version="0.1.0", metrics=result.metrics, bins=result.bins, train_seconds=10.0 + seed)
    facts |= dict(predict_milliseconds=0.25, megabytes=3.0, peak_megabytes=0.0, history=[])
    path = folder / f"{system}-{augmentation}-{seed}-{len(list(folder.glob('*.json'))) if folder.exists() else 0:04}.json"
    cell = Cell(**(facts | more), path=path)
    folder.mkdir(exist_ok=True)
    write_predictions(path.with_suffix(".npz"), answered)
    path.write_text(json.dumps({key: value for key, value in asdict(cell).items() if key != "path"}))
    return cell


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, data: Dataset) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for system, augmentation in FOUND:
        keep(folder, data, system, augmentation, history=[EPOCH, {**EPOCH, "epoch": 1, "loss": 3.0, "P@1": 50.0}])
    return folder


@pytest.fixture(scope="module")
def answers(kept: Path, data: Dataset) -> list[RowHits]:
    """plain, plain with gandalf, other."""
    (rows,) = rows_of(read_cells(kept)).values()
    found = {(one.row.system, one.row.augmentation): one for one in read_hits(rows, data)}
    return [found[key] for key in FOUND]


class Reader(HTMLParser):
    """Elements that open and close as they should, ids once, and everything that would be loaded."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.scripts: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attributes}
        self.ids += [named["id"]] if "id" in named else []
        for name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            if name in named:
                (self.links if named[name].startswith("#") else self.loaded).append(named[name])
        self.loaded += re.findall(r"url\((?!#)[^)]*\)", " ".join(named.values()))
        assert not any(name.startswith("on") for name in named)
        if tag == "script":
            self.scripts.append(named.get("type", ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


# ---- rows


def test_seeds_of_one_training_make_one_row(tmp_path: Path, data: Dataset) -> None:
    cells = [keep(tmp_path, data, "plain", "gandalf", seed=1), keep(tmp_path, data, "plain", "gandalf", found=FOUND["plain", "none"])]
    cells += [keep(tmp_path, data), cells[0], keep(tmp_path, data, "other", variant="another one"), keep(tmp_path, data, "other")]
    rows = rows_of(cells)["tiny"]
    shown = [(row.name, [cell.seed for cell in row.cells]) for row in rows]
    assert shown == [("plain", [0]), ("plain, gandalf", [0, 1]), ("another one", [0]), ("other", [0])]  # and one that came twice is one
    both = rows[1]
    assert both.values("P@1") == [50.0, 50.0] and both.values("P@3") == pytest.approx([100 * 2 / 12, 100 * 3 / 12])
    assert both.mean("P@3") == pytest.approx(100 * 2.5 / 12)
    assert both.deviation("P@3") == pytest.approx((100 / 12) / 2**0.5)
    assert both.cost("train_seconds") == 10.5 and np.isnan(both.cost("peak_megabytes"))


def test_names_tell_what_differs(tmp_path: Path, data: Dataset) -> None:
    cells = [keep(tmp_path, data), keep(tmp_path, data, settings=("epochs=5",)), keep(tmp_path, data, "other")]
    assert [row.name for row in rows_of(cells)["tiny"]] == ["plain · as it is", "plain · epochs=5", "other"]
    cells = [keep(tmp_path, data), keep(tmp_path, data, machine="NVIDIA H200", version="0.2.0")]
    assert [row.name for row in rows_of(cells)["tiny"]] == ["plain · 2 CPU threads · version 0.1.0", "plain · NVIDIA H200 · version 0.2.0"]


# ---- table and pictures


def test_the_table_has_the_numbers_of_the_cells(tmp_path: Path, data: Dataset) -> None:
    cells = [keep(tmp_path, data, *key) for key in FOUND] + [keep(tmp_path, data, seed=1, found=FOUND["other", "none"])]
    rows = rows_of(cells)["tiny"]
    table = results_table(rows, "all")
    assert re.findall(r'<button type="button">(.*?)</button>', table)[:5] == ["system", "augmentation", "seeds", "P@1", "P@3"]
    lines = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line) for line in table.splitlines() if line.startswith("<tr>")]
    assert [line[:3] for line in lines] == [["plain", "none", "2"], ["plain", "gandalf", "1"], ["other", "none", "1"]]
    metrics = metrics_of(rows)
    for row, line in zip(rows, lines, strict=True):
        for place, metric in enumerate(metrics):
            mean = float(np.mean([cell.metrics[metric] for cell in row.cells]))
            assert re.sub("<.*?>", "", line[3 + place]).split(" ±")[0] == f"{mean:.2f}"
            best = max(other.mean(metric) for other in rows)
            assert ("<strong>" in line[3 + place]) == (mean == best)
    assert "±" in lines[0][3] and "±" not in lines[1][3]
    assert lines[0][3 + len(metrics) :] == ["10.5", "0.25", "3.0"]  # peak memory is not known
    marked = results_table(rows, "all", frozenset({(1, "P@3")}))
    assert marked.count("≈") == (rows[1].mean("P@3") < max(row.mean("P@3") for row in rows))


def test_a_metric_that_a_row_lacks_is_a_dash(tmp_path: Path, data: Dataset) -> None:
    cells = [keep(tmp_path, data), keep(tmp_path, data, "other", metrics={"P@1": 12.5, "PSP@5": 2.0})]
    lines = [line for line in results_table(rows_of(cells)["tiny"], "all").splitlines() if line.startswith("<tr>")]
    assert "12.50" in lines[1] and "–" in lines[1] and "–" not in lines[0] and "nan" not in lines[1]
    write_report(cells, tmp_path / "page.html")


def test_bins_are_means_over_seeds(tmp_path: Path, data: Dataset) -> None:
    first, second = keep(tmp_path, data), keep(tmp_path, data, seed=1, found=FOUND["other", "none"])
    (row,) = rows_of([first, second])["tiny"]
    expected = [(one["P@5"] + other["P@5"]) / 2 for one, other in zip(first.bins, second.bins, strict=True)]
    assert bin_values(row) == pytest.approx(expected) and bin_values(row).sum() == pytest.approx(row.mean("P@5"))
    (bare,) = rows_of([replace(first, bins=[])])["tiny"]
    assert frequency_bins([bare]) is None


def test_curves_part_at_stages_and_add_up_seconds(tmp_path: Path, data: Dataset) -> None:
    history = [EPOCH, {**EPOCH, "epoch": 1, "loss": 3.0, "P@1": 10.0}, {**EPOCH, "stage": 1, "loss": 9.0, "P@1": 20.0}]
    (row,) = rows_of([keep(tmp_path, data, history=[*history, {**EPOCH, "member": 1}])])["tiny"]
    assert [(curve.epochs, curve.values) for curve in curves_of(row, "loss")] == [([1, 2], [4, 3]), ([3], [9])]
    assert [(curve.seconds, curve.values) for curve in curves_of(row, "P@1")] == [([4], [10]), ([6], [20])]
    (without,) = rows_of([keep(tmp_path, data, "other")])["tiny"]
    assert loss_curves([without]) is None and validation_curves([without]) is None
    drawn = loss_curves([row, without])
    assert drawn is not None and drawn.alternative == "Training loss by epoch. plain: from 4 to 9."


def test_covered_area() -> None:
    taken = np.array([[0.0, 0, 2, 2], [1, 1, 3, 3]])
    assert _covered(np.array([1.0, 1, 2, 2]), taken) == 2 and _covered(np.array([3.0, 0, 4, 1]), taken) == 0


# ---- wins, losses, labels


def test_wins_and_losses_by_hand(answers: list[RowHits]) -> None:
    plain, gandalf, other = answers
    assert [list(one.n_right) for one in answers] == [[1, 0, 0, 1], [2, 1, 0, 0], [0, 0, 1, 1]]
    assert wins(gandalf, plain) == (2, 1, 1) and wins(plain, gandalf) == (1, 1, 2)
    assert wins(plain, other) == (1, 2, 1) and wins(other, other) == (0, 4, 0)


def test_what_the_script_is_given(answers: list[RowHits], data: Dataset) -> None:
    held = json.loads(embedded(answers, data))
    assert held["names"] == ["plain", "plain, gandalf", "other"] and held["rows"] == 4
    assert held["wins"][1][0] == [2, 1, 1]
    labels = held["labels"]
    first, last = held["texts"][0], held["texts"][3]
    assert first["text"] == f"{SCRIPT} a" and [labels[place] for place in first["true"]] == [SCRIPT, "b"]
    assert [labels[place] for place in first["found"][0][:2]] == [SCRIPT, "c </script>"] and first["right"] == [[0], [0, 1], []]
    assert last["found"][2][1:] == [-1] * 4 and last["more"] == 0
    assert held["groups"] == ["tail"] * 4


def test_texts_are_chosen_by_difference_both_ways(answers: list[RowHits]) -> None:
    plain, gandalf, _ = answers
    many = 400
    right = np.zeros((many, 5), bool)
    right[:3] = True  # where the first is five better
    better = replace(plain, ids=np.zeros((many, 5), np.int32), right=right)
    right = np.zeros((many, 5), bool)
    right[3:5, :2] = True
    worse = replace(gandalf, ids=np.zeros((many, 5), np.int32), right=right)
    chosen = chosen_texts([better, worse], 40)
    assert len(chosen) == 40 and set(range(5)) <= set(chosen.tolist()) and (np.diff(chosen) > 0).all()
    assert (chosen_texts([better, worse], 40) == chosen).all() and (chosen_texts([better, worse], 40, seed=1) != chosen).any()
    assert len(chosen_texts([better, worse], 1000)) == many


def test_embedded_texts_stay_small(answers: list[RowHits], data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = len(embedded(answers, data))
    monkeypatch.setattr("longtail.experiments.report.queries.MAX_LETTERS", whole - 1)
    assert len(embedded(answers, data)) < whole and len(json.loads(embedded(answers, data))["texts"]) == 3


def test_labels_are_those_that_were_won_and_lost(answers: list[RowHits], data: Dataset) -> None:
    plain, gandalf, other = answers
    assert best_and_plain([plain, gandalf]) == (gandalf, plain) and best_and_plain([plain, other]) == (plain, other)
    assert best_and_plain([plain]) == (plain, None)
    graph = cooccurrence(data.train.labels)
    chosen = chosen_labels(gandalf, plain, graph)
    # label 1 is found twice more, label 3 once less but has no neighbours
    assert list(chosen) == [1] and chosen[1] == "3 test texts have this label; plain, gandalf finds it twice, plain never."
    (one,) = neighbourhoods([plain, gandalf], data)
    assert [(other.label, other.common_rows) for other in one.neighbours] == [(0, 2), (2, 1)] and one.training_rows == 3
    assert len(neighbourhoods([plain], data)) == 3  # nothing to compare with: labels from the most to the least frequent


# ---- the page


@pytest.fixture(scope="module")
def written(kept: Path, data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a page with its pictures."""
    folder = tmp_path_factory.mktemp("written")
    pictures = write_report(read_cells(kept), folder / "page.html", data, folder / "png")
    assert {path.name for path in pictures} == {path.name for path in (folder / "png").iterdir()}
    return folder


@pytest.fixture
def page(written: Path) -> str:
    return (written / "page.html").read_text(encoding="utf-8")


def test_pictures_are_written_too(written: Path) -> None:
    pictures = list((written / "png").iterdir())
    assert {path.stem for path in pictures} == {"trade-off", "costs", "frequency-bins", "training-loss", "validation", "label-1"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_the_page_is_whole_and_loads_nothing(page: str) -> None:
    read = Reader(page)
    assert len(read.ids) == len(set(read.ids))
    assert read.loaded == ["data:,"]
    assert {link[1:] for link in read.links} <= set(read.ids)
    assert "default-src 'none'" in page
    assert not re.search(r"@import|https?://(?!www\.w3\.org/)", page)
    assert page.count('role="img"') == 2 * 6 and page.count("<figure>") == 6  # wide and narrow; five pictures and one label
    for name in ("Results", "Frequent and rare labels", "Accuracy and time", "Labels by frequency", "Training", "Validation"):
        assert f">{name}</h2>" in page
    assert len(page) < 400_000


def test_texts_are_no_markup(page: str) -> None:
    assert Reader(page).scripts == ["application/json", ""]  # what the page holds, and its own script
    assert "<script>alert" not in page and "alert(1)" in page
    (held,) = re.findall(r'id="content">(.*?)</script>', page, re.DOTALL)
    assert json.loads(held)["labels"][0] == SCRIPT


def test_colours_come_from_the_page(page: str) -> None:
    (figure, *_) = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert "var(--colour-0)" in figure and "currentColor" in figure and "#1d2126" not in figure
    assert "<style" not in figure and "DejaVu" not in figure


def test_without_data_and_with_several_data_sets(kept: Path, data: Dataset, tmp_path: Path) -> None:
    cells = [*read_cells(kept), keep(tmp_path / "more", replace(data, name="more <b>"))]
    assert write_report(cells, tmp_path / "page.html") == []
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    read = Reader(page)
    assert len(read.ids) == len(set(read.ids)) and {"1-results", "2-results", "data-0", "data-1"} <= set(read.ids)
    assert "more &lt;b&gt;" in page and "queries" not in read.ids and "labels" not in read.ids


def test_the_same_cells_make_the_same_page(kept: Path, data: Dataset, page: str, tmp_path: Path) -> None:
    write_report(read_cells(kept), tmp_path / "page.html", data)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


# ---- what does not fit


def test_bad_input_is_one_line(kept: Path, data: Dataset, tmp_path: Path) -> None:
    cells = read_cells(kept)
    out = tmp_path / "page.html"
    other = replace(cells[0], data="shop")
    shorter, swapped = (replace(data, test=data.test.rows(np.array(places))) for places in ([0, 1], [3, 0, 1, 2]))
    tries: list[tuple[type[LongtailError], str, list[Cell], Path, Dataset | None]] = [
        (SettingError, "No cells came", [], out, None),
        (SettingError, r"page.txt is to be written; wanted a name that ends in .html", cells, tmp_path / "page.txt", None),
        (DataError, "The cells are of 2 data sets, .*; with --data wanted those of one", [*cells, other], out, data),
        (
            DataError,
            "The cells are of tiny and the data is shop; wanted the data set that was compared on",
            cells,
            out,
            replace(data, name="shop"),
        ),
        (DataError, "4 rows of predictions came; tiny has 2 test rows", cells, out, shorter),
        (DataError, r"P@1 of .* is \d+.00 on these test rows of tiny and \d+.00 in its cell", cells, out, swapped),
    ]
    for error, message, given, path, of in tries:
        with pytest.raises(error, match=message) as raised:
            write_report(given, path, of)
        assert "\n" not in str(raised.value)
    assert not out.exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty holds no cells"):
        read_cells(tmp_path / "empty")


def test_without_matplotlib(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"The report needs an extra: pip install 'longtail\[plot\]'"):
        write_report(read_cells(kept), tmp_path / "page.html")


def test_the_command(kept: Path, tmp_path: Path) -> None:
    table = tmp_path / "tiny.csv"
    table.write_text("text,labels\na b,a|b\nb,b\n")
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", str(kept), "--out", str(out), "--png", str(tmp_path / "png")])
    assert done.exit_code == 0, done.output
    assert out.exists() and len(list((tmp_path / "png").iterdir())) == 5
    wrong = CliRunner().invoke(app, ["report", str(kept), "--data", str(table), "--test-share", "0.5", "--out", str(out)])
    assert isinstance(wrong.exception, DataError) and "rows of predictions came; tiny has 1 test rows" in str(wrong.exception)


# ---- in a real browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_in_a_browser(browser: Any, written: Path) -> None:
    opened = browser.new_page(viewport={"width": 390, "height": 800})
    opened.set_default_timeout(5000)
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text))
    opened.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else faults.append(request.url))
    opened.goto((written / "page.html").as_uri())
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    # sorted by keyboard: best first, then worst first
    button = opened.get_by_role("button", name="P@3", exact=True)
    values = "[...document.querySelectorAll('.results tbody tr')].map(row => Number(row.cells[3].dataset.value))"
    for falling in (True, False):
        button.focus()
        opened.keyboard.press("Enter")
        came = opened.evaluate(values)
        assert came == sorted(came, reverse=falling) and len(set(came)) > 1
    # two rows side by side
    assert opened.locator("#counts").inner_text().split("\n")[0] == "2 plain, gandalf better (50.0 %)"
    assert opened.locator("#texts > li").count() == 3
    opened.get_by_role("button", name="Swap").click()
    assert opened.locator("#counts").inner_text().split("\n")[0] == "1 plain better (25.0 %)"
    opened.get_by_label("Show").select_option("all")
    assert opened.locator("#texts > li").count() == 4
    opened.get_by_label("Find in texts and labels").fill("ALERT(1)</SCRIPT> $X$ A")
    assert opened.locator("#texts > li h3").all_inner_texts() == [f"{SCRIPT} a"]
    assert opened.locator("#texts script").count() == 0
    names = opened.evaluate(
        "[...document.querySelectorAll('button, input, select')].map(e => e.textContent.trim() || (e.labels && e.labels[0]?.textContent))"
    )
    assert all(names) and faults == []
