"""Bonsai by omikuji before and after Gandalf: python examples/omikuji_on_gandalf.py DATA

Run by the Python that has longtail, it makes an environment for omikuji, exports the rows and calls itself there.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

PACKAGES = ["omikuji==0.5.2", "numpy==1.26.4", "scipy==1.13.1", "scikit-learn"]


def train_and_predict(folder: Path, out: Path) -> None:
    """In omikuji's environment: the settings that its manual gives for Bonsai."""
    import omikuji
    from exported import K, read_folder, write_found

    features, labels, test = read_folder(folder)
    with tempfile.TemporaryDirectory() as scratch:
        rows = Path(scratch, "train.txt")
        with open(rows, "w", encoding="ascii") as file:
            file.write(f"{features.shape[0]} {features.shape[1]} {labels.shape[1]}\n")
            for row in range(features.shape[0]):
                ids = ",".join(map(str, labels.indices[labels.indptr[row] : labels.indptr[row + 1]]))
                part = slice(features.indptr[row], features.indptr[row + 1])
                words = " ".join(f"{word}:{value:.6g}" for word, value in zip(features.indices[part], features.data[part]))  # noqa: B905
                file.write(f"{ids} {words}\n")
        settings = omikuji.Model.default_hyper_param()
        settings.cluster_balanced = False  # Bonsai: unbalanced clusters, wide and shallow
        settings.cluster_k = 100
        settings.max_depth = 3
        model = omikuji.Model.train_on_data(str(rows), settings)
    ids, scores = [], []
    for row in range(test.shape[0]):
        part = slice(test.indptr[row], test.indptr[row + 1])
        found = model.predict(list(zip(test.indices[part].tolist(), test.data[part].tolist())), top_k=K)  # noqa: B905
        ids.append([label for label, _ in found])
        scores.append([score for _, score in found])
    write_found(out, ids, scores)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        train_and_predict(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        from side_by_side import compare

        compare(__file__, "omikuji", PACKAGES)
