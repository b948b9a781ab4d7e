"""The pool of labels that a batch shares: which wrong labels are the hardest, by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longtail.training.objectives import pool as module
from longtail.training.objectives.base import Batch
from longtail.training.objectives.pool import PoolLoss
from tests.tensors import ragged, right_labels

N_LABELS = 6
# scores of label l for the two rows are (l, 0) and (0, 5 - l): each row likes another end
VECTORS = torch.tensor([[float(label), 5.0 - label] for label in range(N_LABELS)])


def network(calls: list[str]) -> Any:
    def all_label_vectors(task: str) -> tuple[torch.Tensor, None]:
        calls.append(task)
        return VECTORS, None

    return SimpleNamespace(
        eval=lambda: None,
        train=lambda: None,
        table=SimpleNamespace(weight=torch.zeros(1, 1)),
        tower=lambda task: SimpleNamespace(settings=SimpleNamespace(unit=False)),
        all_label_vectors=all_label_vectors,
        encode=lambda tokens, task, unit, context: torch.eye(2),
    )


def batch(*right: int) -> Batch:
    targets = right_labels([(label, 1.0) for label in right], [])
    return Batch(ragged(), {"labels": targets}, torch.ones(2), 0, lambda: None)


def test_the_hardest_score_highest_for_any_row_and_are_right_for_none() -> None:
    pool = PoolLoss(N_LABELS, hard_negatives=2, random_negatives=0)
    # highest of a label: max(l, 5 - l) = 5 4 3 3 4 5; labels 0 and 5 come first, and where 5 is right, 0 and one of 1 and 4
    assert sorted(pool._hardest(network([]), batch()).tolist()) == [0, 5]
    found = pool._hardest(network([]), batch(5)).tolist()
    assert found[0] == 0 and found[1] in (1, 4)


def test_label_vectors_are_looked_up_anew_now_and_then() -> None:
    calls: list[str] = []
    pool, net = PoolLoss(N_LABELS, hard_negatives=1, random_negatives=0, refresh=3), network(calls)
    for _ in range(7):
        pool._hardest(net, batch())
    assert len(calls) == 3  # before steps 1, 4 and 7
    again = PoolLoss(N_LABELS, hard_negatives=1, random_negatives=0, refresh=3)
    again.load(pool.state())
    again._hardest(net, batch())
    assert len(calls) == 3 and again.state()["age"] == 2  # a resumed run goes on with the same vectors


def test_of_many_labels_a_part_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HARD_AMONG", 3)
    torch.manual_seed(0)
    pool = PoolLoss(N_LABELS, hard_negatives=3, random_negatives=0)
    windows = {tuple(sorted(pool._hardest(network([]), batch(0, 5)).tolist())) for _ in range(50)}
    assert windows == {(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (0, 4, 5), (0, 1, 5)}  # each label in half of them


SHAPES = """
import longtail.models.network, torch
def held(): return int(open("/proc/self/statm").read().split()[1]) * 4096
few = torch.randn(256, 256).bfloat16()
for n in range(300):
    many = torch.randn(1000 + n, 256).bfloat16()
    scores = few @ many.T
    scores @ many, scores.T @ few
    if n == 20: before = held()
print(held() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="memory is read from /proc")
def test_products_of_ever_new_shapes_are_not_kept() -> None:
    """Each pool has its own size; torch would keep a program of over a megabyte for each product, some 400 MB here."""
    done = subprocess.run([sys.executable, "-c", SHAPES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150_000_000
