"""A graph as one .npz file, without pickle."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.values import LabelGraph
from longtail.data.files import new_file

NAMES = ("ends", "ids", "weights", "counts", "kind", "settings")


def save_graph(graph: LabelGraph, path: str | Path) -> None:
    """Write a graph to one `.npz` file; an earlier file of that name stays until all is written.

    Args:
        graph: the graph.
        path: the file to write.
    """
    with new_file(Path(path)) as unfinished, open(unfinished, "wb") as file:
        np.savez(
            file,
            ends=graph.weights.indptr.astype(np.int64, copy=False),
            ids=graph.weights.indices,
            weights=graph.weights.data,
            counts=graph.counts,
            kind=np.array(graph.kind),
            settings=np.array(json.dumps(graph.settings)),
        )


def load_graph(path: str | Path) -> LabelGraph:
    """Read a graph that `save_graph` wrote.

    Args:
        path: the file to read.
    """
    path = Path(path)
    try:
        with open(path, "rb") as stream:
            file = np.load(stream, allow_pickle=False)
            missing = [name for name in NAMES if name not in getattr(file, "files", ())]
            if missing:
                raise DataError(f"{path} holds no {missing[0]!r}; wanted a graph that longtail wrote.")
            ends, ids, weights, counts = (file[name] for name in NAMES[:4])
            kind, settings = str(file["kind"]), json.loads(str(file["settings"]))
    # the last is what zipfile raises for a way of compressing that it does not know
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"cannot be read as a graph ({error})"
        raise DataError(f"{path}: {reason}.") from error
    n_labels = len(counts)
    whole = (
        all(array.ndim == 1 for array in (ends, ids, weights, counts))
        and len(ends) == n_labels + 1
        and ends[0] == 0
        and ends[-1] == len(ids) == len(weights)
        and bool((np.diff(ends) >= 0).all())
        and (not len(ids) or 0 <= int(ids.min()) <= int(ids.max()) < n_labels)
        and isinstance(settings, dict)
    )
    if not whole:
        raise DataError(f"{path}: its parts do not fit together. Make the graph again.")
    matrix = csr_matrix((weights.astype(np.float32, copy=False), ids, ends), shape=(n_labels, n_labels))
    return LabelGraph(matrix, counts, kind, settings)
