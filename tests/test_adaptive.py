"""The choice that needs no training, on data whose right answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import longtail
from longtail import Dataset, LongtailError, adaptive
from longtail.data.augment.choose import CANDIDATES
from longtail.data.synth import Shape, synth
from tests.conftest import dataset


@pytest.fixture(scope="module")
def catalogue() -> Dataset:
    return synth(Shape(3000, 300, 900, 4.0))


def test_related_products_want_label_rows(catalogue: Dataset) -> None:
    choice = adaptive(catalogue)
    assert choice.name != "none" and set(choice.reached) == set(CANDIDATES)
    assert choice.reached[choice.name]["PSP@5"] > choice.reached["none"]["PSP@5"]


def test_siblings_are_not_taught() -> None:
    # things of one kind meet under their kind; each has two parts of its own, which no other row tells
    kinds = [(f"kind{k}", [f"thing{k} {i}" for i in range(6)]) for k in range(40)]
    all_things = [thing for _, things in kinds for thing in things]
    labels = [*all_things, *(f"part {thing} {p}" for thing in all_things for p in range(2))]
    place = {label: number for number, label in enumerate(labels)}
    train = [(name, [place[thing] for thing in things]) for name, things in kinds]
    train += [(thing, [place[f"part {thing} {p}"] for p in range(2)]) for thing in all_things]
    choice = adaptive(dataset(train, [], labels))
    assert choice.name != "plain"


def test_never_looks_at_the_test_split(catalogue: Dataset) -> None:
    poisoned = replace(catalogue, test=catalogue.test.rows(np.arange(3)))
    assert adaptive(poisoned).reached == adaptive(catalogue).reached


def test_the_same_seed_gives_the_same_choice(catalogue: Dataset) -> None:
    assert adaptive(catalogue, seed=2).reached == adaptive(catalogue, seed=2).reached


def test_without_texts(catalogue: Dataset) -> None:
    with pytest.raises(LongtailError):
        longtail.adaptive(replace(catalogue, label_texts=None))
