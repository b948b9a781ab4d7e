"""Label vectors for other programs, as .npy or Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from longtail.core.errors import MissingExtra
from longtail.inference.scorer import Scorer
from longtail.inference.trained_model import TrainedModel
from longtail.models.network import VectorsAndBias
from longtail.storage.export.files import file_name

VECTORS, BIAS, TABLE = "label-vectors", "label-bias", "labels"


def label_vectors(scorer: Scorer) -> VectorsAndBias:
    """(n_labels, dim) and (n_labels,), zeros and -inf for labels that were removed."""
    vectors = scorer.vectors.float().cpu()
    bias = None if scorer.bias is None else scorer.bias.float().cpu() * scorer.bias_share
    if scorer.removed is not None:
        gone = scorer.removed.cpu()
        vectors = vectors.masked_fill(gone[:, None], 0.0)
        bias = torch.zeros(len(vectors)) if bias is None else bias
        bias = bias.masked_fill(gone, -torch.inf)
    return vectors, bias


def export_npy(model: TrainedModel, folder: Path) -> None:
    """label-vectors.npy and label-bias.npy, row i of label i; -1 and so on behind the name for further networks."""
    for place, scorer in enumerate(model.scorers):
        vectors, bias = label_vectors(scorer)
        np.save(folder / file_name(VECTORS, place, "npy"), vectors.numpy())
        if bias is not None:
            np.save(folder / file_name(BIAS, place, "npy"), bias.numpy())


def export_parquet(model: TrainedModel, folder: Path) -> None:
    """labels.parquet with id, text, vector and bias; labels that were removed are left out."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("Writing Parquet", "parquet") from error
    kept = np.setdiff1d(np.arange(len(model.label_counts)), model.removed)
    texts = None if model.label_texts is None else list(model.label_texts.take(kept))
    for place, scorer in enumerate(model.scorers):
        vectors, bias = label_vectors(scorer)
        flat = pyarrow.array(vectors.numpy()[kept].ravel())
        columns = {"id": pyarrow.array(kept), "text": pyarrow.nulls(len(kept), pyarrow.string()) if texts is None else pyarrow.array(texts)}
        columns["vector"] = pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        if bias is not None:
            columns["bias"] = pyarrow.array(bias.numpy()[kept])
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / file_name(TABLE, place, "parquet"))
