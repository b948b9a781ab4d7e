# mypy: disable-error-code="import-not-found"
"""The nearest training rows by tf-idf cosine vote for their labels."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from work_folder import Work, array_megabytes, best_of_matrix, votes_of

PRODUCTS_AT_ONCE = 1 << 25  # similarities held at a time


def main(work: Work) -> None:
    features, labels, test = (work.matrix(name) for name in ("train_features", "train_labels", "test_features"))
    with work.training():
        by_word = csr_matrix(features.T)
    step = max(1, PRODUCTS_AT_ONCE // features.shape[0])
    parts = []
    with work.predicting():
        for start in range(0, test.shape[0], step):
            near, similarities = best_of_matrix(test[start : start + step] @ by_word, work.settings["neighbours"])
            parts.append(votes_of(near, similarities, labels, work.k))
    ids, scores = zip(*parts, strict=True)
    work.finish((np.concatenate(ids), np.concatenate(scores)), array_megabytes(by_word, labels))


if __name__ == "__main__":
    main(Work.from_arguments())
