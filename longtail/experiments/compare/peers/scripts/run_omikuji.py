# mypy: disable-error-code="import-not-found"
"""Parabel and Bonsai by omikuji, with the settings that its manual gives for each.

It draws its random numbers by itself: seeds do not reach it.
"""

from __future__ import annotations

from pathlib import Path

from scipy.sparse import csr_matrix
from work_folder import Work, best_of_lists, folder_megabytes


def write_rows(path: Path, features: csr_matrix, labels: csr_matrix) -> None:
    """The text format of the XC repository, which omikuji trains from."""
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {labels.shape[1]}\n")
        for row in range(features.shape[0]):
            part = slice(features.indptr[row], features.indptr[row + 1])
            ids = ",".join(map(str, labels.indices[labels.indptr[row] : labels.indptr[row + 1]]))
            words = " ".join(f"{word}:{value:.6g}" for word, value in zip(features.indices[part], features.data[part], strict=True))
            file.write(f"{ids} {words}\n")


def main(work: Work) -> None:
    import omikuji

    rows = work.scratch / "train.txt"
    write_rows(rows, work.matrix("train_features"), work.matrix("train_labels"))
    settings = omikuji.Model.default_hyper_param()  # those of Parabel
    if work.settings["kind"] == "bonsai":
        settings.cluster_balanced = False  # unbalanced clusters, wide and shallow
        settings.cluster_k = 100
        settings.max_depth = 3
    with work.training():
        model = omikuji.Model.train_on_data(str(rows), settings, work.threads)
    model.init_prediction_thread_pool(work.threads)
    test = work.matrix("test_features")
    spans = [slice(start, end) for start, end in zip(test.indptr, test.indptr[1:], strict=False)]
    asked = [list(zip(test.indices[span].tolist(), test.data[span].tolist(), strict=True)) for span in spans]
    with work.predicting():
        answers = [model.predict(pairs, top_k=work.k) for pairs in asked]
    found = best_of_lists(answers, len(answers), work.k)
    model.save(str(work.scratch / "model"))
    work.finish(found, folder_megabytes(work.scratch / "model"))


if __name__ == "__main__":
    main(Work.from_arguments())
