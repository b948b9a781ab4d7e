"""Wins and losses of any two rows, text by text: counts over all test rows, and a few hundred texts to read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import cycle, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.core.values import Dataset, Texts
from longtail.data.files import shorten
from longtail.data.frequency import GROUPS, frequency_groups
from longtail.experiments.report.hits import RowHits

MAX_TEXTS = 360
RANDOM_SHARE = 0.25  # of the texts; the others are those where two rows differ most
MAX_LETTERS = 1_500_000  # of all that is embedded, so that a page of many systems stays readable by a phone
MAX_TRUE = 8  # right labels that are written out of a text
TEXT_LETTERS, LABEL_LETTERS = 300, 80


def wins(first: RowHits, second: RowHits) -> tuple[int, int, int]:
    """Test texts where the first has more right labels among its five, as many, and fewer."""
    difference = first.n_right - second.n_right
    return int((difference > 0).sum()), int((difference == 0).sum()), int((difference < 0).sum())


def chosen_texts(answers: Sequence[RowHits], max_texts: int, seed: int = 0) -> NDArray[np.int64]:
    """Test rows to show: for one pair after the other the largest difference that is not chosen yet, then random rows; in order."""
    n_rows = len(answers[0].ids)
    if n_rows <= max_texts:
        return np.arange(n_rows)
    random = np.random.default_rng(seed)
    hits = np.stack([one.n_right for one in answers])  # (n_answers, n_rows)
    ranked = []
    for first, second in permutations(range(len(answers)), 2):
        difference = hits[first] - hits[second]
        shuffled = random.permutation(n_rows)  # of equal differences any
        order = shuffled[np.argsort(-difference[shuffled], kind="stable")][:max_texts]
        ranked.append(iter(order[difference[order] > 0]))
    chosen: dict[int, None] = {}
    exhausted = 0
    for order in cycle(ranked):
        row = next((int(row) for row in order if int(row) not in chosen), None)
        exhausted = exhausted + 1 if row is None else 0
        if row is not None:
            chosen[row] = None
        if len(chosen) >= round((1 - RANDOM_SHARE) * max_texts) or exhausted == len(ranked):
            break
    rest = random.permutation(np.setdiff1d(np.arange(n_rows), list(chosen)))
    return np.sort(np.concatenate([np.array(list(chosen), np.int64), rest[: max_texts - len(chosen)]]))


def embedded(answers: Sequence[RowHits], data: Dataset, seed: int = 0) -> str:
    """Data for the page's script, as JSON: names, counts of every pair, texts with their right labels and the five of every row."""
    n_texts = MAX_TEXTS
    while True:
        content = json.dumps(_content(answers, data, chosen_texts(answers, n_texts, seed)), ensure_ascii=False, separators=(",", ":"))
        if len(content) <= MAX_LETTERS or n_texts == 1:
            return content
        n_texts = max(1, min(n_texts - 1, int(n_texts * MAX_LETTERS / len(content))))


def _content(answers: Sequence[RowHits], data: Dataset, rows: NDArray[np.int64]) -> dict[str, Any]:
    """A label is written once, with the first letter of its frequency group, and named by its place in that list."""
    groups = frequency_groups(data.label_counts())
    places: dict[int, int] = {}  # label -> its place

    def place(label: int) -> int:
        return places.setdefault(int(label), len(places))

    texts = []
    for row in rows:
        truth = answers[0].truth[row].indices
        texts.append(
            {
                "text": text_of(data.test.texts, int(row), "Row", TEXT_LETTERS),
                "true": [place(label) for label in truth[:MAX_TRUE]],
                "more": max(0, len(truth) - MAX_TRUE),
                # an empty place is -1, as in predictions
                "found": [[place(label) if label >= 0 else -1 for label in one.ids[row]] for one in answers],
                "right": [[int(place) for place in np.flatnonzero(one.right[row])] for one in answers],
            }
        )
    return {
        "names": [one.row.name for one in answers],
        "rows": len(answers[0].ids),
        "wins": [[wins(first, second) for second in answers] for first in answers],
        "texts": texts,
        "labels": [text_of(data.label_texts, label, "Label", LABEL_LETTERS) for label in places],
        "groups": [GROUPS[groups[label]] for label in places],
    }


def text_of(texts: Texts | None, place: int, kind: str, max_letters: int) -> str:
    """A text, shortened, or its number where there are no texts."""
    return f"{kind} {place}" if texts is None else shorten(texts[place], max_letters)
