"""An open model: predicts, explains, and takes labels in and out. Training is not needed for any of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from longtail.core.errors import DataError, SettingError
from longtail.core.values import Dataset, Predictions, Texts
from longtail.evaluation.predictions import most_filtered
from longtail.inference.explain import Explanation, TrainingRows, explain
from longtail.inference.label_parts import TowerParts, tower_parts_of
from longtail.inference.trained_model import TrainedModel
from longtail.models.device import device_for
from longtail.storage.label_editor import LabelEditor
from longtail.storage.model_folder import load_rows, save_model

CARD_METRICS = ("P", "PSP", "nDCG", "R", "coverage")  # that a model card shows
MAX_ROW_BYTES = 50_000_000  # of training texts and their labels that are kept in a model folder


class OpenModel:
    """A trained model, or one that is not trained yet, on a device."""

    def __init__(self, device: str | None) -> None:
        self.device = device_for(device)
        self.trained: TrainedModel | None = None
        self._editor: LabelEditor | None = None
        self._parts: tuple[TrainedModel, list[list[TowerParts]]] | None = None  # of label vectors, once an explanation was asked for
        self._rows: TrainingRows | None = None  # where they are at hand
        self._changing = Lock()  # labels, by one thread at a time

    def _open(self, trained: TrainedModel, rows: TrainingRows | None = None) -> None:
        """Answer with this model from here on."""
        self.trained, self._editor, self._rows = trained, LabelEditor(trained), rows

    def _open_folder(self, trained: TrainedModel, folder: Path) -> None:
        """Answer with the model of this folder, and with the labels that were added or removed since it was written."""
        self._open(trained)
        assert self._editor is not None
        self.trained = self._editor.replay(trained, folder)

    def predict(self, texts: Sequence[str] | Texts, k: int = 5, *, by: str | None = None) -> Predictions:
        """Predict the k best labels of each text, with scores in [0, 1].

        Args:
            texts: one or many texts, in a list.
            k: labels per text.
            by: another way to find labels than the recipe's: "all", "clusters" or "fused".
        """
        trained = self._trained()
        ensemble = trained.ensemble if by is None else trained.ensemble_by(by)
        if k < 1:
            raise SettingError(f"k came as {k}; wanted 1 or more.")
        if isinstance(texts, str):
            raise SettingError("One text came where a list of texts was wanted; type predict([text]).")
        found = ensemble.predict(Texts.of(texts), min(k, len(trained.label_counts)), self.device)
        return replace(found, label_texts=trained.label_texts)

    def predict_test(self, data: Dataset, k: int = 100) -> Predictions:
        """Predict for the test rows, with enough labels that the filter leaves all that metrics need.

        Args:
            data: the data set; its labels must be those the model was trained on.
            k: labels per row, at least.
        """
        if data.test.texts is None:
            raise DataError(f"{data.name} has no texts of test rows to predict for.")
        _check_labels(self._trained(), data)
        extra = 0 if data.test.filter is None else most_filtered(data.test.filter, len(data.test))
        return self.predict(data.test.texts, min(data.n_labels, max(k, 10 + extra)))

    def explain(self, text: str, label: int | str | None = None) -> Explanation:
        """Explain why a label is predicted for a text.

        Args:
            text: the text.
            label: id or text of a label; the label that is predicted first if not given.
        """
        trained = self._trained()
        if self._parts is None or self._parts[0] is not trained:
            self._parts = trained, [tower_parts_of(trained, place) for place in range(len(trained.scorers))]
        return explain(trained, self._parts[1], text, label, self._training_rows(), self.device)

    def save(self, folder: str | Path, *, rows: bool = False) -> None:
        """Write a model folder; `XMC.load` and `longtail predict` read it.

        Args:
            folder: the folder to write.
            rows: keep training texts with the model, where they are less than 50 MB, so that explanations can show some.
        """
        with self._changing:
            kept = self._training_rows() if rows else None
            if kept is not None and len(kept[0].buffer) + 4 * kept[1].nnz > MAX_ROW_BYTES:
                kept = None
            saved = save_model(Path(folder), self._trained().without_zero_weight_members(), kept)
            self._open(saved, self._rows)

    def add_labels(self, texts: Sequence[str]) -> list[int]:
        """Add new labels by their texts, without training; returns their ids, which follow those of the known labels.

        A model that was loaded or saved keeps them in its folder: when this returns they are on disk.

        Args:
            texts: one text per new label.
        """
        with self._changing:
            trained = self._trained()
            assert self._editor is not None
            self.trained = grown = self._editor.add(trained, texts)
            return list(range(len(trained.label_counts), len(grown.label_counts)))

    def remove_labels(self, ids: Sequence[int]) -> None:
        """Never predict these labels again; ids of all others stay as they are. Kept in the model's folder as by `add_labels`.

        Args:
            ids: ids of labels.
        """
        with self._changing:
            trained = self._trained()
            assert self._editor is not None
            self.trained = self._editor.remove(trained, ids)

    def note_metrics(self, metrics: Mapping[str, float]) -> None:
        """Write metrics of test rows into the model card.

        Args:
            metrics: percent by name, as `evaluate` returns them.
        """
        kept = {name: value for name, value in metrics.items() if name.split("@")[0] in CARD_METRICS}
        self._trained().about["metrics"] = kept

    @property
    def name(self) -> str:
        """Recipe and augmentation, such as "default, gandalf"."""
        about = self._trained().about
        return f"{about['recipe']}, {about['augmentation']}"

    @property
    def megabytes(self) -> float:
        """Size of what prediction keeps in memory, in MB."""
        return sum(scorer.n_bytes for scorer in self._trained().scorers) / 1e6

    @property
    def seconds(self) -> float:
        """Seconds that training took, with those before it was stopped and resumed."""
        return float(self._trained().about["seconds"])

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, seconds and, with validation rows, metrics of every epoch."""
        return self._trained().history

    def _training_rows(self) -> TrainingRows | None:
        """Training texts and their labels: those trained on, or those that the model's folder keeps."""
        trained = self._trained()
        if self._rows is None and trained.folder is not None:
            self._rows = load_rows(trained.folder, len(trained.label_counts))
        return self._rows

    def _trained(self) -> TrainedModel:
        if self.trained is None:
            raise SettingError("This model is not trained yet; call fit, or XMC.load a folder.")
        return self.trained


def _check_labels(trained: TrainedModel, data: Dataset) -> None:
    """Raise where label ids do not mean the same in the model and in the data set."""
    n_labels, known = len(trained.label_counts), trained.label_texts
    if n_labels != data.n_labels:
        raise DataError(f"The model has {n_labels:,} labels, {data.name} has {data.n_labels:,}; wanted the labels it was trained on.")
    if known is not None and data.label_texts is not None and known != data.label_texts:
        label = next(place for place in range(n_labels) if known[place] != data.label_texts[place])
        both = f"Label {label} of the model is {known[label]!r}, of {data.name} {data.label_texts[label]!r}"
        raise DataError(f"{both}; wanted the labels it was trained on, in their order.")
