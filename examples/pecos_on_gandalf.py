"""PECOS XR-Linear before and after Gandalf: python examples/pecos_on_gandalf.py DATA

Run by the Python that has longtail, it makes an environment for PECOS, exports the rows and calls itself there.
"""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = ["libpecos==1.2.8", "numpy==1.26.4", "scipy==1.13.1", "scikit-learn", "torch==2.13.0"]


def train_and_predict(folder: Path, out: Path) -> None:
    """In PECOS' environment: XR-Linear with its defaults on a tree of label centroids."""
    from exported import K, read_folder, write_found
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    features, labels, test = read_folder(folder)
    tree = Indexer.gen(LabelEmbeddingFactory.create(labels, features))
    found = XLinearModel.train(features, labels, C=tree).predict(test, only_topk=K)
    rows = [slice(start, end) for start, end in zip(found.indptr, found.indptr[1:])]  # noqa: B905
    write_found(out, [found.indices[row] for row in rows], [found.data[row] for row in rows])


if __name__ == "__main__":
    if len(sys.argv) == 3:
        train_and_predict(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        from side_by_side import compare

        compare(__file__, "pecos", PACKAGES)
