# mypy: disable-error-code="import-not-found"
"""LibMultiLabel's linear tree with its defaults. It takes as many threads as the machine has cores."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from work_folder import Work, array_megabytes, best_of_matrix

SCORES_AT_ONCE = 1 << 25  # it gives a score for every label


def main(work: Work) -> None:
    from libmultilabel import linear

    features, labels, test = (work.matrix(name) for name in ("train_features", "train_labels", "test_features"))
    np.random.seed(work.seed)  # where it draws its seeds from
    with work.training():
        model = linear.train_tree(labels, features, f"-m {work.threads}", verbose=False)
    step = max(1, SCORES_AT_ONCE // labels.shape[1])
    parts = []
    with work.predicting():
        for start in range(0, test.shape[0], step):
            # labels that the beam did not reach have score 0
            parts.append(best_of_matrix(csr_matrix(linear.predict_values(model, test[start : start + step])), work.k))
    ids, scores = zip(*parts, strict=True)
    work.finish((np.concatenate(ids), np.concatenate(scores)), array_megabytes(csr_matrix(model.flat_model.weights)))


if __name__ == "__main__":
    main(Work.from_arguments())
