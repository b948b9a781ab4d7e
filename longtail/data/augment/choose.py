"""Choice of the augmentation that helps on this data, "none" included, by validation rows held out of the training rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError, SettingError
from longtail.core.values import Dataset, Predictions, Split, Texts
from longtail.data.augment.gandalf import LABEL_MARK, Gandalf
from longtail.data.augment.rows import Augmentation, Augmented
from longtail.data.filters import apply_protocol, own_pairs

# trains on the rows it is given and predicts for the texts: (rows, label texts, texts to predict for) -> predictions
FitPredict = Callable[[Augmented, Texts, Texts], Predictions]
# evaluates predictions for the validation rows (the test split of the data set it is given): metrics by name
Measure = Callable[[Predictions, Dataset], dict[str, float]]

VALIDATION_SHARE = 0.15
ROWLESS = 0.05  # of the labels: where fewer are no training row's text, the text of a row to come is taken to be no label
CRITERIA = ("P@1", "PSP@1", "PSP@5", "coverage@5")
CANDIDATES: dict[str, Augmentation | None] = {
    "none": None,
    "plain": Gandalf(),
    "calibrated": Gandalf(targets="calibrated"),
    "calibrated, marked": Gandalf(targets="calibrated", mark=LABEL_MARK),
}


@dataclass(frozen=True)
class Choice:
    """The candidate chosen and what every candidate reached on the validation rows."""

    name: str
    augmentation: Augmentation | None
    reached: dict[str, dict[str, float]]  # candidate -> metric -> percent


def choose(
    data: Dataset,
    fit_predict: FitPredict,
    measure: Measure,
    candidates: Mapping[str, Augmentation | None] | None = None,
    criteria: Sequence[str] = CRITERIA,
    seed: int = 0,
) -> Choice:
    """Train on a part of the training rows with each candidate and measure on the rest; the test split is never read.

    The best is the candidate whose worst ratio to the best value of each criterion is largest: it gives up least anywhere,
    so that a gain on the tail cannot buy a loss in the first place.

    Args:
        data: the data set, of which the training rows are split.
        fit_predict: trains on the rows it is given and predicts for texts: (rows, label texts, texts) -> predictions.
        measure: metrics by name of predictions for the validation rows: (predictions, data set) -> metrics.
        candidates: augmentations by name, None for no augmentation; the forms of Gandalf where not given.
        criteria: names of the metrics that decide.
        seed: seed of the split and of the augmentations.
    """
    candidates = CANDIDATES if candidates is None else candidates
    if not candidates:
        raise SettingError("No candidates came; wanted at least one augmentation, or None for none.")
    if not criteria:
        raise SettingError(f"No criteria came; wanted names of metrics such as {', '.join(CRITERIA)}.")
    split = validation_split(data, VALIDATION_SHARE, seed)
    if split.label_texts is None or split.test.texts is None:
        raise DataError(f"{data.name} has no texts of inputs or labels; augmentation works on them.")
    reached: dict[str, dict[str, float]] = {}
    for name, candidate in candidates.items():
        rows = no_augmentation(split.train) if candidate is None else candidate.augment(split.train, split.label_texts, seed=seed)
        reached[name] = measure(fit_predict(rows, split.label_texts, split.test.texts), split)
        for criterion in criteria:
            if not np.isfinite(reached[name].get(criterion, np.nan)):
                raise SettingError(f"measure gave no {criterion!r} for candidate {name!r}; wanted a number for each of the criteria.")
    best = {criterion: max(values[criterion] for values in reached.values()) for criterion in criteria}

    def worst_ratio(name: str) -> float:
        return min(reached[name][criterion] / best[criterion] if best[criterion] else 1.0 for criterion in criteria)

    chosen = max(reached, key=worst_ratio)  # of equals the first, the simpler
    return Choice(chosen, candidates[chosen], reached)


def validation_split(data: Dataset, share: float, seed: int = 0, *, enough: int | None = None) -> Dataset:
    """Split training rows into training and validation rows, under the XC protocol, with the test rows left out.

    Validation rows are to be what test rows are. Where nearly all labels are training rows, rows to come are no labels, and so the labels
    that validation rows are themselves leave the training rows, as if they had never been known. Otherwise the protocol alone takes
    out what training rows tell of a validation row from the label's side; there it would leave next to nothing to ask for.
    A model that is kept after its validation lacks these labels; so there at most `enough` rows, where given, are held out.

    Labels that lose all their training rows to the split are taken out of the validation rows, and rows without a label with them, as long
    as any are left. Test rows of public data sets have trained labels only; a validation with labels that no row is left to learn from
    favours whatever makes up rows for them, and chooses it where it does not help on test rows.

    Args:
        data: the data set.
        share: share of the training rows to hold out; they become the test rows of the data set that is returned.
        seed: decides which rows.
        enough: the most rows to hold out where nearly all labels are training rows.
    """
    order = np.random.default_rng(seed).permutation(len(data.train))
    n_validation = round(len(order) * share)
    if not 0 < n_validation < len(order):
        raise DataError(
            f"{data.name} has {len(data.train):,} training rows; {share:.0%} of them for validation leaves nothing on one side."
        )
    own = _rows_that_are_labels(data)
    if own is not None and enough is not None:
        n_validation = min(n_validation, enough)
    held = np.sort(order[:n_validation])
    train, validation = data.train.rows(np.sort(order[n_validation:])), data.train.rows(held)
    if own is not None:
        train = _without(train, own[np.isin(own[:, 0], held), 1])
    parted = apply_protocol(replace(data, train=replace(train, filter=None), test=replace(validation, filter=None)))
    trained = np.bincount(parted.train.labels.indices, minlength=data.n_labels) > 0
    labels = csr_matrix(parted.test.labels.multiply(trained[None]))
    labels.eliminate_zeros()
    asked = np.flatnonzero(np.diff(labels.indptr))
    return replace(parted, test=replace(parted.test, labels=labels).rows(asked)) if len(asked) else parted


def _rows_that_are_labels(data: Dataset) -> NDArray[np.int32] | None:
    """Pairs of a training row and the label whose text it has, where nearly all labels have such a row; None elsewhere."""
    if data.label_texts is None or data.train.texts is None:
        return None
    own = own_pairs(data.train.texts, data.label_texts)
    return own if len(np.unique(own[:, 1])) >= (1 - ROWLESS) * data.n_labels else None


def _without(train: Split, labels: NDArray[np.int32]) -> Split:
    """The rows without these labels; rows that had no other are left out."""
    stays = np.ones(train.labels.shape[1], np.float32)
    stays[labels] = 0
    left = csr_matrix(train.labels.multiply(stays[None]))
    left.eliminate_zeros()
    emptied = (np.diff(train.labels.indptr) > 0) & (np.diff(left.indptr) == 0)
    return replace(train, labels=left).rows(np.flatnonzero(~emptied))


def no_augmentation(train: Split) -> Augmented:
    """The training rows as they are, in the form that augmentations return."""
    rows = np.arange(len(train), dtype=np.int32)
    return Augmented(train, len(train), np.ones(len(train), np.float32), rows, "none")
