"""Rows that an augmentation made never enter the label counts of an evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from longtail import Dataset, Gandalf, LongtailError, Predictions, Texts, evaluate, read
from longtail.core import registry
from longtail.data.augment.rows import Augmentation, to_dataset
from longtail.data.convert import write
from longtail.evaluation.evaluate import original_rows

ALL_RIGHT = Predictions(np.array([[2, 0], [0, 3], [1, 2]], np.int32), np.ones((3, 2), np.float32))
VECTORS = {"apple": [1.0, 0.0], "pear": [1.0, 0.1]}


@pytest.mark.parametrize("name", registry.AUGMENTATIONS)
def test_rows_of_every_augmentation_are_known_by_their_uids(name: str, shop: Dataset) -> None:
    way = registry.load("augmentations", name)
    needed: dict[str, Any] = {"probability": 1.0, "vectors": VECTORS} if name == "synonyms" else {}
    made_by = way(**needed)
    if not isinstance(made_by, Augmentation):
        return
    features = csr_matrix(np.ones((5, 2), np.float32))
    data = replace(shop, train=replace(shop.train, features=features), label_features=csr_matrix(np.ones((4, 2), np.float32)))
    more = {"label_features": data.label_features} if "mixup" in name and name != "mixup" else {}
    made = made_by.augment(data.train, data.label_texts, None, seed=3, **more)
    assert made.n_made > 0
    notes: list[str] = []
    left = original_rows(to_dataset(made, data), notes)
    assert left.labels.toarray().tolist() == shop.train.labels.toarray().tolist()
    assert notes == [f"{made.n_made} of {len(made)} training rows were made by augmentation; label counts leave them out."]


def test_an_evaluation_on_augmented_data_gives_the_numbers_of_the_original(shop: Dataset, tmp_path: Path) -> None:
    write(to_dataset(Gandalf().augment(shop.train, shop.label_texts), shop), tmp_path / "more", "xc")
    plain, augmented = evaluate(ALL_RIGHT, shop), evaluate(ALL_RIGHT, read(tmp_path / "more"))
    assert augmented.metrics == plain.metrics
    assert augmented.bins == plain.bins
    assert augmented.about["train_rows"] == 5
    assert (plain.notes, augmented.notes) == ((), ("4 of 9 training rows were made by augmentation; label counts leave them out.",))


def test_uids_of_their_own_are_left_alone(shop: Dataset) -> None:
    for uids in (["label:", "label:x", "libc6:17", "17", "xlabel:1"], ["a:1", "b:2", "label 3", ":", "label:1:2"]):
        notes: list[str] = []
        data = replace(shop, train=replace(shop.train, uids=Texts.of(uids)))
        assert original_rows(data, notes) is data.train and not notes


def test_made_rows_alone_have_no_counts(shop: Dataset) -> None:
    alone = to_dataset(Gandalf(include="Z").augment(shop.train, shop.label_texts), shop)
    with pytest.raises(LongtailError, match=r"All 4 training rows of shop\+label were made by augmentation"):
        evaluate(ALL_RIGHT, alone)
