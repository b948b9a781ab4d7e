"""XMC: fit, predict, save, load. Joins the parts, computes nothing. Training is imported by `fit` alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from longtail.core.values import Dataset, Split, Texts
from longtail.data.augment.rows import Augmentation
from longtail.inference.trained_model import TrainedModel
from longtail.storage.model_folder import load_model
from longtail.storage.open_model import OpenModel

if TYPE_CHECKING:
    from longtail.recipes.fit import Fitted
    from longtail.recipes.recipe import Recipe


class XMC(OpenModel):
    """A classifier of short texts, by a recipe.

    Args:
        recipe: the recipe, from `read_recipe`; `XMC.from_recipe` takes a name. None for a model that is loaded, which brings its own.
        augment: an augmentation: its name, with settings after a colon, such as "gandalf:delta=0.2"; "adaptive" to choose on validation
            rows; an object such as `Gandalf()`; or None for the recipe's own, if any.
        seed: seed of everything random.
        device: "cpu" or "cuda"; a GPU where there is one if not given.

    >>> model = XMC.from_recipe("default", augment="gandalf").fit(data)  # doctest: +SKIP
    >>> model.predict(["mario kart double dash"], k=5).texts  # doctest: +SKIP
    """

    def __init__(
        self, recipe: Recipe | None, augment: str | Augmentation | None = None, *, seed: int = 0, device: str | None = None
    ) -> None:
        super().__init__(device)
        self.augment, self.seed = augment, seed
        self._recipe = recipe
        self._checkpoint: Path | None = None  # of the training that made the model, until it is saved

    @classmethod
    def from_recipe(
        cls,
        source: str | Path,
        settings: Iterable[str] = (),
        *,
        augment: str | Augmentation | None = None,
        seed: int = 0,
        device: str | None = None,
    ) -> XMC:
        """Make a classifier by the name of a recipe or its TOML file.

        Args:
            source: name of a recipe, such as "default", or a TOML file.
            settings: `key=value` settings on top of it, such as "epochs=5".
            augment: an augmentation, see `XMC`.
            seed: seed of everything random.
            device: "cpu" or "cuda"; a GPU where there is one if not given.
        """
        from longtail.recipes.read import read_recipe

        return cls(read_recipe(source, settings), augment, seed=seed, device=device)

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> XMC:
        """Open a model that was saved.

        Args:
            folder: the model folder.
            device: "cpu" or "cuda"; a GPU where there is one if not given.
        """
        model = cls(None, device=device)
        trained = load_model(Path(folder), model.device)
        model.augment, model.seed = trained.about.get("augmentation"), trained.about.get("seed", 0)
        model._open_folder(trained, Path(folder))
        return model

    @property
    def recipe(self) -> Recipe:
        """The recipe that the model is trained by. That of a loaded model is read when it is asked for: answering needs none."""
        if self._recipe is None:
            from longtail.recipes.read import recipe_of_members

            self._recipe = recipe_of_members([(member.name, member.tables) for member in self._trained().members], "model.json")
        return self._recipe

    def fit(
        self,
        train: Dataset | Split,
        label_texts: Texts | Sequence[str] | None = None,
        *,
        checkpoint: str | Path | None = None,
        minutes: float = 5.0,
        cache: str | Path | None = None,
    ) -> XMC:
        """Train on the training rows; the test rows of a data set are not used.

        Args:
            train: a data set, or its training rows.
            label_texts: the text of every label, where `train` is a split.
            checkpoint: a folder to keep checkpoints in, every `minutes` and at Ctrl-C. Where it holds one of the same recipe, data and
                seed, training goes on from there and ends with the same numbers; it is removed when the model is saved.
            minutes: minutes between checkpoints.
            cache: a folder to keep token rows in; another run on the same texts reads them from there.
        """
        from longtail.recipes.fit import FitOptions, fit_recipe

        began = time.monotonic()
        data = train if isinstance(train, Dataset) else _as_data(train, label_texts)
        place, rows = (None if folder is None else Path(folder) for folder in (checkpoint, cache))
        fitted = fit_recipe(self.recipe, data, FitOptions(self.seed, self.device, self.augment, place, minutes, rows))
        trained = self._finished(data, fitted, fitted.seconds_before + time.monotonic() - began)
        self._open(trained, None if data.train.texts is None else (data.train.texts, data.train.labels))
        self._checkpoint = place
        return self

    def _finished(self, data: Dataset, fitted: Fitted, seconds: float) -> TrainedModel:
        members = fitted.members
        augment = self.recipe.augment if self.augment is None else self.augment
        about = {
            "data": data.name,
            "recipe": self.recipe.name,
            "augmentation": augment if isinstance(augment, str) else "none" if augment is None else repr(augment),
            "training rows": len(data.train),
            "rows trained on": fitted.n_rows,
            "labels": data.n_labels,
            "tokens": members[0].tokenizer.n_tokens,
            "networks": fitted.n_networks,
            "seed": self.seed,
            "device": self.device.type,
            "threads": torch.get_num_threads() if self.device.type == "cpu" else 0,
            "seconds": round(seconds, 1),
        }
        return TrainedModel(members, data.label_texts, data.label_counts().astype(np.int64), fitted.graph, about, fitted.history)

    def save(self, folder: str | Path, *, rows: bool = False) -> None:
        """Write a model folder, which `XMC.load` and `longtail predict` open, and drop the checkpoint of its training.

        Args:
            folder: the folder to write.
            rows: keep training texts with the model, where they are less than 50 MB, so that explanations can show some.
        """
        super().save(folder, rows=rows)
        if self._checkpoint is not None:
            from longtail.training.checkpoint import drop_checkpoint

            drop_checkpoint(self._checkpoint)
            self._checkpoint = None

    def __repr__(self) -> str:
        if self.trained is None:
            return f"XMC({self.recipe.name!r}, not trained)"
        about = self.trained.about
        rows = f"{about['labels']:,} labels, trained on {about['rows trained on']:,} rows in {about['seconds']:,.0f} s"
        return f"XMC({self.trained.members[0].name!r}, {rows})"


def load(folder: str | Path, *, device: str | None = None) -> XMC:
    """Open a model that was saved, ready to predict.

    Args:
        folder: the model folder.
        device: "cpu" or "cuda"; a GPU where there is one if not given.
    """
    return XMC.load(folder, device=device)


def _as_data(train: Split, label_texts: Texts | Sequence[str] | None) -> Dataset:
    texts = None if label_texts is None else Texts.of(label_texts)
    return Dataset(name="data", train=train, test=train.rows(np.arange(0)), label_texts=texts)
