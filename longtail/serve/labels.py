"""The labels of a served model: one by one, by letters of their text, and in the label graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.core.values import Texts
from longtail.data.frequency import GROUPS, frequency_groups
from longtail.data.graph.search import neighbourhood
from longtail.serve.limits import Refused

if TYPE_CHECKING:
    from longtail.inference.trained_model import TrainedModel


class TextSearch:
    """Labels by letters of their text, from a label on; capitals A to Z count as small ones.

    >>> search = TextSearch(Texts.of(["Red apple", "pear", "apple juice"]))
    >>> search.find("APPLE", after=-1, max_labels=5), search.find("apple", after=0, max_labels=5), search.find("rp", after=-1, max_labels=5)
    ([0, 2], [2], [])
    """

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        capital = (texts.buffer >= ord("A")) & (texts.buffer <= ord("Z"))
        self._letters = (texts.buffer + capital.astype(np.uint8) * np.uint8(32)).tobytes()

    def find(self, letters: str, after: int, max_labels: int) -> list[int]:
        """The first labels behind `after` whose text holds these letters."""
        wanted = bytes(byte + 32 if ord("A") <= byte <= ord("Z") else byte for byte in letters.encode(errors="replace"))
        offsets = self.texts.offsets
        found: list[int] = []
        start = int(offsets[min(after + 1, len(self.texts))])
        while len(found) < max_labels:
            place = self._letters.find(wanted, start)
            if place < 0:
                break
            label = int(np.searchsorted(offsets, place, side="right")) - 1
            if place + len(wanted) <= offsets[label + 1]:  # not across the border of two texts
                found.append(label)
                start = int(offsets[label + 1])
            else:
                start = place + 1
        return found


class LabelBrowser:
    """Requests about the labels of a model, answered as JSON holds it. Labels that were removed are not shown."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._search: TextSearch | None = None  # of the texts of the last request

    def describe(self, stored: TrainedModel, label: int) -> dict[str, Any]:
        """A label with its text, its frequency group and the number of its training rows."""
        count = stored.label_counts[label]
        group = GROUPS[int(frequency_groups(stored.label_counts[label : label + 1])[0])]
        text = str(label) if stored.label_texts is None else stored.label_texts[label]
        return {"id": label, "text": text, "group": group, "training_rows": int(count)}

    def check(self, stored: TrainedModel, label: int) -> None:
        """Refuse a label that the model does not have, or no longer."""
        n_labels = len(stored.label_counts)
        if not 0 <= label < n_labels:
            raise Refused(404, f"No label {label}; the model {self._model_name} has 0 to {n_labels - 1}.")
        if label in stored.removed:
            raise Refused(404, f"Label {label} was removed from the model {self._model_name}.")

    def find(self, stored: TrainedModel, letters: str, after: int, max_labels: int) -> dict[str, Any]:
        """Labels with these letters in their text behind label `after`, and the `after` of the next page."""
        removed = set(stored.removed.tolist())
        wanted = max_labels + 1 + len(removed)
        if not letters:
            found = list(range(after + 1, min(after + 1 + wanted, len(stored.label_counts))))
        elif stored.label_texts is None:
            raise Refused(422, f"The labels of the model {self._model_name} have no texts to search in.")
        else:
            search = self._search
            if search is None or search.texts is not stored.label_texts:
                search = self._search = TextSearch(stored.label_texts)
            found = search.find(letters, after, wanted)
        found = [label for label in found if label not in removed]
        shown = found[:max_labels]
        return {"labels": [self.describe(stored, label) for label in shown], "next": shown[-1] if len(found) > max_labels else None}

    def neighbourhood(self, stored: TrainedModel, label: int, max_labels: int) -> dict[str, Any]:
        """The label graph around a label."""
        self.check(stored, label)
        if stored.graph is None:
            raise Refused(404, f"The model {self._model_name} was trained without a label graph.")
        found = neighbourhood(stored.graph, label, max_labels, set(stored.removed.tolist()))
        nodes = [{**self.describe(stored, one), "distance": far} for one, far in zip(found.labels, found.distances, strict=True)]
        edges = [{"source": source, "target": target, "weight": round(weight, 6)} for source, target, weight in found.edges]
        return {"kind": stored.graph.kind, "nodes": nodes, "edges": edges}
