"""From cluster scores to shortlists: GAME by hand and against dense products, beams, members, nearest centroids."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.inference.search import clusters as search
from longtail.inference.search.clusters import (
    NOTHING,
    ClusterIndex,
    Neighbours,
    added_up,
    beam,
    best,
    labels_of,
    member_table,
    nearest_labels,
)
from tests.tensors import same_numbers as same_numbers

CPU = torch.device("cpu")


def named(ids: Tensor, scores: Tensor) -> list[dict[int, float]]:
    """id -> score of each row; ids come once, and empty places have score 0."""
    rows = []
    for row, values in zip(ids.tolist(), scores.tolist(), strict=True):
        found = {key: value for key, value in zip(row, values, strict=True) if key != NOTHING}
        assert len(found) == sum(key != NOTHING for key in row)
        assert all(value == 0 for key, value in zip(row, values, strict=True) if key == NOTHING)
        rows.append(found)
    return rows


def logits(*chances: float) -> Tensor:
    return torch.tensor(chances).logit()


# ---- members


def test_member_table() -> None:
    found = member_table(np.array([5, 2, 9, 7], np.int32), np.array([0, 1, 1, 4]), CPU)
    assert found.tolist() == [[5, -1, -1], [-1, -1, -1], [2, 9, 7]] and found.dtype == torch.int64
    assert member_table(np.zeros(0, np.int32), np.array([0, 0]), CPU).tolist() == [[-1]]


def test_labels_of_clusters() -> None:
    members = torch.tensor([[3, -1], [0, 4], [1, 2]])
    labels, chances = labels_of(torch.tensor([[2, 0], [1, NOTHING]]), torch.tensor([[0.5, 0.25], [1.0, 0.0]]), members)
    assert labels.tolist() == [[1, 2, 3, -1], [0, 4, -1, -1]]
    assert chances.tolist() == [[0.5, 0.5, 0.25, 0.25], [1.0, 1.0, 0.0, 0.0]]


# ---- adding up and choosing


def test_added_up_by_hand() -> None:
    ids = torch.tensor([[4, NOTHING, 2, 4, 2], [NOTHING] * 5, [0, 1, 2, 3, 4]])
    scores = torch.tensor([[0.25, 9.0, 0.5, 1.0, 0.125], [1.0] * 5, [0.0, 1.0, 0.0, 2.0, 0.0]])
    assert named(*added_up(ids, scores)) == [{4: 1.25, 2: 0.625}, {}, {0: 0.0, 1: 1.0, 2: 0.0, 3: 2.0, 4: 0.0}]
    assert added_up(ids[:, :0], scores[:, :0])[0].shape == (3, 0)


@given(st.lists(st.tuples(st.integers(NOTHING, 4), st.integers(0, 8)), min_size=1, max_size=12))
@settings(max_examples=40)
def test_added_up_against_a_loop(pairs: list[tuple[int, int]]) -> None:
    ids, scores = torch.tensor([[key for key, _ in pairs]]), torch.tensor([[value / 8 for _, value in pairs]])
    wanted = {key: sum(value / 8 for other, value in pairs if other == key) for key, _ in pairs if key != NOTHING}
    found, values = added_up(ids, scores)
    assert named(found, values) == [wanted]
    kept = [key for key in found[0].tolist() if key != NOTHING]
    assert kept == sorted(kept)


def test_added_up_keeps_small_beside_large() -> None:
    ids = torch.tensor([[0, 1, 1, 2]])
    (found,) = named(*added_up(ids, torch.tensor([[1000.0, 1e-6, 1e-6, 1000.0]])))
    assert found == pytest.approx({0: 1000.0, 1: 2e-6, 2: 1000.0}, rel=1e-4)


def test_best() -> None:
    ids, scores = (
        torch.tensor([[3, NOTHING, 5, 7], [1, NOTHING, NOTHING, 2]]),
        torch.tensor([[0.25, 9.0, 0.0, 0.5], [0.125, 7.0, 7.0, 0.0]]),
    )
    found, values = best(ids, scores, 3)
    assert (found.tolist(), values.tolist()) == ([[7, 3, 5], [1, 2, -1]], [[0.5, 0.25, 0.0], [0.125, 0.0, 0.0]])
    assert best(ids, scores, 9)[0].tolist() == [[7, 3, 5, -1], [1, 2, -1, -1]]


# ---- GAME

# what l receives from m stands in row l, column m
GRAPH = csr_matrix([[0.5, 0.0, 0.0], [0.5, 1.0, 0.25], [0.0, 0.0, 0.75]])


def test_game_by_hand() -> None:
    graph, scores = Neighbours.of(GRAPH, 3, CPU), torch.stack([logits(0.8, 0.5, 0.2), logits(0.1, 0.2, 0.6)])
    (first, second) = named(*beam(scores, 3, graph))
    assert first == pytest.approx({0: 0.4, 1: 0.4 + 0.5 + 0.05, 2: 0.15})
    assert second == pytest.approx({0: 0.05, 1: 0.05 + 0.2 + 0.15, 2: 0.45})
    ids, chances = beam(scores, 2, graph)
    # only the two best pass anything on: 0 and 1 of the first row, 2 and 1 of the second
    assert ids.tolist() == [[1, 0], [2, 1]]
    assert chances.tolist() == [pytest.approx([0.9, 0.4]), pytest.approx([0.45, 0.35])]


def test_game_brings_in_a_cluster_from_outside_the_beam() -> None:
    graph = Neighbours.of(csr_matrix([[0.4, 0.0, 0.0], [0.0, 0.0, 0.0], [0.6, 1.0, 0.0]]), 3, CPU)
    ids, chances = beam(logits(0.9, 0.5, 0.1)[None], 2, graph)
    assert ids.tolist() == [[2, 0]] and chances[0].tolist() == pytest.approx([0.54 + 0.5, 0.36])


def test_a_share_of_received_scores() -> None:
    ids, chances = torch.tensor([[0, 2]]), torch.tensor([[0.8, 0.4]])
    (found,) = named(*Neighbours.of(GRAPH, 3, CPU, share=0.25).spread(ids, chances))
    # a quarter of (0.4, 0.4 + 0.1, 0.3) and three quarters of (0.8, 0, 0.4)
    assert found == pytest.approx({0: 0.7, 1: 0.125, 2: 0.375})


def test_beam_without_a_graph() -> None:
    ids, chances = beam(torch.stack([logits(0.1, 0.7, 0.3), logits(0.9, 0.2, 0.5)]), 2, None)
    assert ids.tolist() == [[1, 2], [0, 2]] and chances.tolist() == [pytest.approx([0.7, 0.3]), pytest.approx([0.9, 0.5])]
    assert beam(logits(0.1, 0.7, 0.3)[None], 9, None)[0].tolist() == [[1, 2, 0]]
    assert beam(torch.randn(2, 5).bfloat16(), 3, None)[1].dtype == torch.float32


def strongest(graph: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """The n largest of each column; the rest are 0."""
    kept = np.zeros_like(graph)
    for column in range(graph.shape[1]):
        rows = np.argsort(-graph[:, column], kind="stable")[:n]
        kept[rows, column] = graph[rows, column]
    return kept


@pytest.mark.parametrize("n", [1, 3, 12, 20])
def test_spread_against_a_dense_product(n: int) -> None:
    random = np.random.default_rng(n)
    dense = random.random((12, 12), np.float32) * (random.random((12, 12)) < 0.4)
    graph = Neighbours.of(csr_matrix(dense), n, CPU)
    assert graph.ids.shape == graph.weights.shape == (12, n)
    ids = np.array([[1, 5, 9, 11], [0, NOTHING, 3, NOTHING], [NOTHING] * 4, [2, 2, 4, 4]])  # repeats count twice
    scores = random.random(ids.shape).astype(np.float32)
    kept = strongest(dense, n)
    found, values = graph.spread(torch.from_numpy(ids), torch.from_numpy(scores))
    assert found.shape == (4, 4 * n)
    for row, got in enumerate(named(found, values)):
        p = np.zeros(12)
        real = ids[row] != NOTHING
        np.add.at(p, ids[row][real], scores[row][real])
        reached = np.flatnonzero((kept[:, ids[row][real]] > 0).any(axis=1))
        assert sorted(got) == reached.tolist()
        assert [got[label] for label in sorted(got)] == pytest.approx((kept @ p)[reached], rel=1e-5)


def test_from_a_text_to_its_shortlist() -> None:
    text, vectors, bias = torch.tensor([[1.0], [-1.0]]), torch.tensor([[2.0], [0.0], [-2.0]]), torch.tensor([0.0, 1.0, 0.0])
    members = torch.tensor([[4, 0], [1, -1], [2, 3]])
    labels, chances = ClusterIndex(vectors, bias, members, None, 2).search(text)
    assert labels.tolist() == [[4, 0, 1, -1], [2, 3, 1, -1]]  # scores 2, 1, -2 and -2, 1, 2
    high, low = torch.tensor([2.0, 1.0]).sigmoid().tolist()
    assert chances.tolist() == [pytest.approx([high, high, low, low])] * 2
    # with the graph of above: 0 keeps half and 2 three quarters of their chances, 1 gets the rest of both and its own
    labels, chances = ClusterIndex(vectors, bias, members, Neighbours.of(GRAPH, 3, CPU), 2).search(text)
    assert labels.tolist() == [[1, -1, 4, 0], [1, -1, 2, 3]]
    assert chances[:, [0, 2]].tolist() == [pytest.approx([low + high / 2, high / 2]), pytest.approx([low + high / 4, 0.75 * high])]


# ---- nearest centroids


def test_nearest_labels_against_all_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "matrix_type", lambda device: torch.float32)
    monkeypatch.setattr(search, "SCORES_AT_ONCE", 30)  # rows in pieces of 3
    text, centroids = torch.randn(7, 4) * 5, torch.nn.functional.normalize(torch.randn(10, 4), dim=1)
    ids, cosines = nearest_labels(text, centroids, 4)
    wanted = torch.nn.functional.cosine_similarity(text[:, None], centroids[None], dim=2)
    assert ids.tolist() == wanted.argsort(dim=1, descending=True)[:, :4].tolist()
    assert torch.allclose(cosines, torch.gather(wanted, 1, ids), atol=1e-6)
    assert nearest_labels(text, centroids, 99)[0].shape == (7, 10)


def test_nearest_labels_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "matrix_type", lambda device: torch.bfloat16)
    ids, cosines = nearest_labels(torch.tensor([[2.0, 0.1], [0.0, 0.0]]), torch.eye(2), 1)
    assert ids[0].tolist() == [0] and cosines.dtype == torch.float32
    assert cosines.flatten().tolist() == pytest.approx([0.99875, 0.0], abs=0.01)
