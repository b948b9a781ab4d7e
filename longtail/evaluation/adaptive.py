"""Adaptive choice of Gandalf's form for a data set, in seconds by the nearest training rows, or by a model of one's own."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from longtail.core.values import Dataset, Predictions, Split, Texts
from longtail.data.augment.choose import Choice, FitPredict, choose
from longtail.data.augment.rows import Augmented
from longtail.evaluation.baseline import nearest_text
from longtail.evaluation.evaluate import evaluate

PLACES = 100


def adaptive(data: Dataset, fit_predict: FitPredict | None = None, seed: int = 0) -> Choice:
    """Try no label rows, plain, calibrated, and calibrated and marked ones on validation rows; the test split is not used.

    The result has the `name` of the best, its `augmentation` (None for no label rows), and what every candidate `reached`.

    Args:
        data: the data set, of which the training rows are split.
        fit_predict: trains on rows and predicts for texts; where not given, the labels of the nearest rows are predicted.
        seed: seed of the validation split and of the augmentations.
    """
    return choose(data, fit_predict or nearest_rows, _metrics, seed=seed)


def nearest_rows(rows: Augmented, label_texts: Texts, texts: Texts) -> Predictions:
    """Labels of the nearest rows, originals and made ones alike, without any training."""
    n_labels = int(rows.split.labels.shape[1])
    asked = Split(texts, csr_matrix((len(texts), n_labels), dtype=np.float32))
    return nearest_text(Dataset("validation", rows.split, asked, label_texts), by="inputs", k=min(PLACES, n_labels))


def _metrics(found: Predictions, data: Dataset) -> dict[str, float]:
    return evaluate(found, data, resamples=0).metrics
