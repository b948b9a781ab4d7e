"""EXPORT: a model for other programs, in one of the `FORMATS`. A new format is a file here and a line of that dict.

Text vectors and label vectors of one network fit together: their products and the label's bias are its scores.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from longtail.core.errors import UnknownName
from longtail.data.files import new_folder
from longtail.inference.trained_model import TrainedModel
from longtail.storage.export.onnx import export_onnx
from longtail.storage.export.sentence_transformers import export_sentence_transformers
from longtail.storage.export.vectors import export_npy, export_parquet

FORMATS: dict[str, Callable[[TrainedModel, Path], None]] = {
    "onnx": export_onnx,
    "npy": export_npy,
    "parquet": export_parquet,
    "sentence-transformers": export_sentence_transformers,
}


def export(model: TrainedModel, to: str, folder: str | Path) -> list[str]:
    """Write a folder in one of the `FORMATS`; it appears when it is whole. The names of its files are returned."""
    if to not in FORMATS:
        raise UnknownName("export format", to, FORMATS)
    with new_folder(Path(folder)) as fresh:
        FORMATS[to](model, fresh)
        return sorted(path.relative_to(fresh).as_posix() for path in fresh.rglob("*") if path.is_file())
