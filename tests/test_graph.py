"""Graphs as files, a label's neighbours, numbers about a graph, the plot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from longtail import Dataset, Texts
from longtail.core.errors import DataError, SettingError
from longtail.data.graph.cooccurrence import cooccurrence
from longtail.data.graph.inspect import GraphStats, find_label, graph_stats, nearest_texts, neighbours
from longtail.data.graph.plot import save_neighbours
from longtail.data.graph.store import load_graph, save_graph
from longtail.data.graph.walks import walk
from tests import naive_graph
from tests.conftest import dataset


def test_saved_and_loaded(shop: Dataset, tmp_path: Path) -> None:
    for graph in (cooccurrence(shop.train.labels), walk(shop.train.labels, seed=5)):
        save_graph(graph, tmp_path / "deep" / "graph.npz")
        again = load_graph(tmp_path / "deep" / "graph.npz")
        assert np.array_equal(again.weights.toarray(), graph.weights.toarray())
        assert again.counts.tolist() == graph.counts.tolist()
        assert (again.kind, again.settings) == (graph.kind, graph.settings)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["graph.npz"]


def test_damaged_files_are_named(shop: Dataset, tmp_path: Path) -> None:
    whole = tmp_path / "graph.npz"
    save_graph(cooccurrence(shop.train.labels), whole)
    damaged = tmp_path / "damaged.npz"
    for content in (b"", b"no zip at all", whole.read_bytes()[:-40], whole.read_bytes()[:200] + b"?" * 20 + whole.read_bytes()[220:]):
        damaged.write_bytes(content)
        with pytest.raises(DataError, match="damaged.npz"):
            load_graph(damaged)
    with pytest.raises(DataError, match="No such file"):
        load_graph(tmp_path / "nowhere.npz")
    np.savez(damaged, ids=np.arange(3))
    with pytest.raises(DataError, match="holds no 'ends'"):
        load_graph(damaged)
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(DataError, match="holds no 'ends'"):
        load_graph(tmp_path / "one.npy")


@pytest.mark.parametrize(
    "wrong",
    [
        {"ids": np.array([0, 9])},
        {"ends": np.array([0, 2, 1])},
        {"ends": np.array([0, 2])},
        {"settings": np.array("[]")},
        {"counts": np.ones((2, 2))},
    ],
)
def test_parts_that_do_not_fit_are_found(wrong: dict[str, np.ndarray], tmp_path: Path) -> None:
    right = {"ends": np.array([0, 1, 2]), "ids": np.array([0, 1]), "weights": np.ones(2), "counts": np.ones(2)}
    np.savez(tmp_path / "graph.npz", **{**right, "kind": np.array("walk"), "settings": np.array("{}"), **wrong})
    with pytest.raises(DataError, match="do not fit together"):
        load_graph(tmp_path / "graph.npz")


def test_an_error_leaves_the_earlier_file(shop: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    graph = cooccurrence(shop.train.labels)
    save_graph(graph, path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save_graph(replace(graph, settings={"delta": object()}), path)  # type: ignore[dict-item]
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_neighbours_by_hand(shop: Dataset) -> None:
    found = neighbours(cooccurrence(shop.train.labels), shop, "juice")
    assert [(n.label, n.text, n.weight, n.common_rows, n.source) for n in found] == [
        (1, "juice", 1.0, 4, "itself"),
        (0, "apple", 0.5, 2, "direct"),
        (3, "press", 0.5, 2, "direct"),
    ]


def test_a_walk_reaches_labels_without_common_rows() -> None:
    data = dataset([("a", [0, 1]), ("b", [1, 2])], [], ["one", "two", "three"])
    sources = {n.text: (n.common_rows, n.source) for n in neighbours(walk(data.train.labels), data, 0)}
    assert sources == {"one": (1, "itself"), "two": (1, "direct"), "three": (0, "walk")}


def test_labels_are_found_by_text_or_id(shop: Dataset) -> None:
    assert [find_label(shop, given) for given in ("pear", 2, "2")] == [2, 2, 2]
    numbers = dataset([("a", [0])], [], ["7", "1984"])
    assert find_label(numbers, "1984") == 1
    with pytest.raises(SettingError, match=r"^No label of shop is called 'Jucie'. Nearest: 'juice'.$"):
        find_label(shop, "Jucie")
    with pytest.raises(SettingError, match=r"^No label of shop is called '漢'.$"):
        find_label(shop, "漢")
    with pytest.raises(SettingError, match="Label 4 is outside 0..3"):
        find_label(shop, 4)
    with pytest.raises(SettingError, match="Label -1 is outside"):
        find_label(shop, -1)
    twice = dataset([("a", [0])], [], ["same", "same"])
    with pytest.raises(SettingError, match="2 labels of tiny are called 'same': 0, 1. Give the id instead."):
        find_label(twice, "same")
    with pytest.raises(SettingError, match="have no texts"):
        find_label(replace(shop, label_texts=None), "pear")


def test_nearest_texts_share_letters() -> None:
    texts = Texts.of(["Gandalf the Grey", "", "Saruman", "gandalf", "ab", "Café Gandalf"])
    assert nearest_texts(texts, "gandlaf")[0] == "gandalf"
    assert nearest_texts(texts, "GANDALF THE GRAY")[0] == "Gandalf the Grey"
    assert nearest_texts(texts, "xyz") == [] and nearest_texts(texts, "g") == []
    assert nearest_texts(Texts.of(["ab", "cd"]), "bc") == [], "bc stands across two texts only"


def test_stats_by_hand(shop: Dataset) -> None:
    # apple: juice, pear, press; juice: apple, press; pear: apple; press: apple, juice
    assert graph_stats(cooccurrence(shop.train.labels), shop.train.labels) == GraphStats(
        labels=4, edges=12, self_loops=4, degree_mean=2.0, degree_median=2.0, degree_max=3, isolated=0,
        on_one_row=4, on_no_row=0,
    )  # fmt: skip


def test_stats_count_common_rows_of_every_edge() -> None:
    rows = [[0, 1], [1, 2], [0, 1, 3], [4]]
    data = dataset([(str(place), row) for place, row in enumerate(rows)], [], list("abcdef"))
    graph = walk(data.train.labels, length=200)
    stats = graph_stats(graph, data.train.labels)
    edges = [(a, b) for a, b in zip(*graph.weights.nonzero(), strict=True) if a != b]
    shared = [naive_graph.shared(rows, int(a), int(b)) for a, b in edges]
    assert (stats.on_one_row, stats.on_no_row) == (shared.count(1), shared.count(0)) and shared.count(0) > 0
    assert (stats.isolated, stats.self_loops) == (2, 6)


def test_a_graph_of_other_data_is_refused(shop: Dataset) -> None:
    other = dataset([("a", [0])], [], ["one"])
    graph = cooccurrence(other.train.labels)
    for ask in (lambda: graph_stats(graph, shop.train.labels), lambda: neighbours(graph, shop, 0)):
        with pytest.raises(DataError, match="The graph has 1 labels and the data 4"):
            ask()


def test_empty_stats() -> None:
    empty = dataset([], [], [])
    assert graph_stats(cooccurrence(empty.train.labels), empty.train.labels).edges == 0


def test_plot(shop: Dataset, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lonely = dataset([("a", [0, 1]), ("b", [2])], [], ["costs $5 and $6", "two", "alone"])
    for data in (shop, lonely):
        save_neighbours(tmp_path / "bars.png", walk(data.train.labels), data, [0, data.label_texts[2]])  # type: ignore[index]
        assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SettingError, match="No label to draw"):
        save_neighbours(tmp_path / "bars.png", walk(shop.train.labels), shop, [])
