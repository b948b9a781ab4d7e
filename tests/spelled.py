"""Texts that spell out their labels: small data whose right answers are plain to see, and recipes small enough to learn it at once."""

from __future__ import annotations

import sys
from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from longtail import XMC, Dataset, Split, Texts
from longtail.cli.main import main
from longtail.core.values import Predictions, labels_from_rows
from longtail.evaluation.metrics import find_matches, precision_at

N_LABELS = 24
QUICK = ("batch_size=16", "learning_rate=0.01", "min_steps=0", "encoder.dropout=0")
# a transformer of random weights and its own vocabulary in place of the pretrained one
TINY = (
    "tokens.kind=wordpiece",
    "encoder.model=none",
    "hidden=32",
    "layers=1",
    "encoder.attention_heads=2",
    "batch_size=32",
    "learning_rate=0.003",
)
# what keeps a recipe the system it is and lets it learn two hundred rows in a second or two
SMALL: dict[str, tuple[str, ...]] = {
    "default": (*QUICK, "labels.dropout=0", "word_dropout=0", "dim=64", "epochs=6", "ensemble=1", "members=[]", "validation=0"),
    "quick": (*QUICK, "labels.dropout=0", "word_dropout=0", "dim=64", "epochs=6"),
    "default-all": (*QUICK, "labels.dropout=0", "dim=64", "epochs=6", "ensemble=1"),
    "astec": (*QUICK, "dim=64", "stages.0.epochs=3", "stages.1.epochs=15", "stages.1.learning_rate=0.03"),
    "decaf": (*QUICK, "labels.dropout=0", "dim=64", "epochs=8", "stages.2.epochs=12"),
    "eclare": (*QUICK, "labels.dropout=0", "dim=64", "epochs=3", "stages.2.epochs=15"),
    "inceptionxml": (*QUICK, "dim=80", "epochs=14", "detached_epochs=1"),
    "inceptionxml-lf": (*QUICK, "labels.dropout=0", "dim=80", "epochs=5"),
    "frozen": (*TINY[:-1], "epochs=30", "min_steps=0", "adapter=256", "depths=2", "learning_rate=0.003", "refresh=5"),
    "dpr": (*TINY, "epochs=4"),
    "ance": (*TINY, "epochs=4", "refresh=2"),
    "siamesexml": ("dim=32", "batch_size=32", "stages.0.epochs=6", "stages.1.epochs=2", "refresh=2"),
    "ngame": (*TINY, "stages.0.epochs=4", "stages.1.epochs=2", "refresh=2"),
    "renee": (*TINY, "stages.0.epochs=4", "stages.1.epochs=8", "encoder_rate=0.003", "stages.1.learning_rate=0.03", "refresh=2"),
    "dexml": (*TINY, "epochs=4"),
    "depsl": (*TINY, "epochs=4", "projection=32", "encoder_rate=0.003", "refresh=2"),
    "unidec": (*TINY, "epochs=4", "projection=32", "encoder_rate=0.003", "refresh=2", "learning_rate=0.03"),
}


def of_member(place: int, settings: tuple[str, ...]) -> tuple[str, ...]:
    """Settings typed for one of a recipe's [[members]]."""
    return tuple(f"members.{place}.{word}" for word in settings)


SMALL["best-cpu"] = (*SMALL["default"][:-2], "validation=0.2", *of_member(2, SMALL["frozen"]))
SMALL["best"] = (
    *TINY,
    "validation=0.2",
    "epochs=8",
    "encoder_rate=0.003",
    "learning_rate=0.03",
    *of_member(0, SMALL["dpr"]),
    *of_member(1, SMALL["siamesexml"]),
    *(word for place in (2, 3, 4) for word in of_member(place, SMALL["default-all"])),
)


def label_names(n_labels: int) -> list[str]:
    """Two words each, which no other label has."""
    words = ["".join(parts) for parts in product("bdfgklmnprst", "aeiou", ("lk", "nt", "rv", "sh", "x"))]
    words = [words[place] for place in np.random.default_rng(1).permutation(len(words))]
    return [f"{one} {other}" for one, other in zip(words[:n_labels], words[n_labels : 2 * n_labels], strict=True)]


def spelled_out(n_labels: int = N_LABELS, test_share: float = 0.2, name: str = "spelled") -> Dataset:
    """Each text is the words of two labels, the one with the lower id first; pairs of test rows are never met in training."""
    labels = label_names(n_labels)
    pairs = list(combinations(range(n_labels), 2))
    order = np.random.default_rng(0).permutation(len(pairs))
    n_test = round(test_share * len(pairs))

    def split(places: NDArray[np.int64]) -> Split:
        chosen = [pairs[place] for place in places]
        return Split(Texts.of([f"{labels[one]} {labels[other]}" for one, other in chosen]), labels_from_rows(chosen, n_labels))

    return Dataset(name, split(np.sort(order[n_test:])), split(np.sort(order[:n_test])), Texts.of(labels))


def small_model(recipe: str, *settings: str, augment: str | None = None, seed: int = 0) -> XMC:
    """Not trained yet."""
    return XMC.from_recipe(recipe, (*SMALL[recipe], *settings), augment=augment, seed=seed, device="cpu")


@cache
def trained(recipe: str) -> XMC:
    """A small model of `spelled_out()`, for tests that only look at it."""
    return small_model(recipe).fit(spelled_out())


def share_found(found: Predictions, data: Dataset) -> float:
    """P@2 of the test rows."""
    return float(precision_at(2, find_matches(found, data.test.labels)).mean())


def write_table(path: Path, split: Split, labels: Texts) -> Path:
    """A CSV table with a text and a labels column."""
    assert split.texts is not None
    with open(path, "w", encoding="utf-8") as file:
        file.write("text,labels\n")
        for row, text in enumerate(split.texts):
            file.write(f"{text},{'|'.join(labels[label] for label in split.labels[row].indices)}\n")
    return path


class Command:
    """The command line inside this process, which need not import torch anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def run(self, *arguments: str | Path) -> tuple[str, str]:
        """What a command that ends well writes to stdout and stderr."""
        code, out, err = self._run(*arguments)
        assert code == 0, err
        return out, err

    def fails(self, *arguments: str | Path) -> str:
        """The one line of a command that fails as it should, with exit code 2."""
        code, out, err = self._run(*arguments)
        assert code == 2, err
        assert out == ""
        assert err.startswith("longtail: ") and err.count("\n") == 1, err
        return err.strip()

    def _run(self, *arguments: str | Path) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["longtail", *map(str, arguments)])
        self._monkeypatch.setenv("COLUMNS", "140")
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = self._capsys.readouterr()
        return int(stop.value.code or 0), out, err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)
