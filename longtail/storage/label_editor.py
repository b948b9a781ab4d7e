"""Label editor: adds labels to a trained model and removes some, without training, and keeps both in the model's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from longtail.inference.new_labels import NewLabelMaker, check_ids, check_texts, with_labels, without_labels
from longtail.inference.trained_model import TrainedModel
from longtail.storage.label_log import Entry, append, entries, replayed


class LabelEditor:
    """Changes the labels of a model as it was trained or last saved as a whole."""

    def __init__(self, model: TrainedModel) -> None:
        self._maker, self._n_entries = NewLabelMaker(model), 0

    def replay(self, model: TrainedModel, folder: Path) -> TrainedModel:
        """The model after all changes that its folder keeps."""
        log = entries(folder)
        self._n_entries = len(log)
        return replayed(model, self._maker, log)

    def add(self, model: TrainedModel, texts: Sequence[str]) -> TrainedModel:
        """The model with new labels behind those it has; they are on disk when this returns."""
        new = check_texts(model, texts)
        grown = with_labels(model, new, self._maker.make(new))
        self._keep(model, {"add": list(new)})
        return grown

    def remove(self, model: TrainedModel, ids: Sequence[int]) -> TrainedModel:
        """The model that never predicts these labels; ids of all others stay as they are."""
        gone = check_ids(model, ids)
        left = without_labels(model, gone)
        self._keep(model, {"remove": gone.tolist()})
        return left

    def _keep(self, model: TrainedModel, entry: Entry) -> None:
        """Write an entry into the log of the folder, where the model has one."""
        if model.folder is not None:
            append(model.folder, self._n_entries + 1, entry)
            self._n_entries += 1
