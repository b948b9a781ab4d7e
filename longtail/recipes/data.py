"""Training data of a recipe: tokens, label texts, label graph and augmented rows; made once for members that share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError, SettingError, UnknownName
from longtail.core.registry import load
from longtail.core.settings import build
from longtail.core.values import Dataset, Floats, LabelGraph, Split, Texts
from longtail.data.augment.choose import no_augmentation
from longtail.data.augment.mixup import LabelMixUp, ManifoldMixUp, MixUp
from longtail.data.augment.rows import CHOSEN, NO_AUGMENTATION, Augmentation, Augmented
from longtail.data.graph.normalise import NORMALISERS
from longtail.evaluation.adaptive import adaptive
from longtail.recipes.recipe import Recipe
from longtail.tokens.rows import TokenRows
from longtail.tokens.tokenizer import Tokenizer
from longtail.tokens.word_vectors import pretrained_vectors
from longtail.training.data import StageData, TrainingData


@dataclass(eq=False)
class Parts:
    """Tokenizer, label texts and graph that recipes with the same settings for them share."""

    tokenizer: Tokenizer
    label_rows: TokenRows | None
    label_tokens: csr_matrix | None
    graph: LabelGraph | None
    start_vectors: tuple[Floats, NDArray[np.bool_]] | None
    stages: list[tuple[str | Augmentation | None, StageData]] = field(default_factory=list)  # by augmentation


@dataclass
class DataSource:
    """Makes the training data of every member of a recipe.

    Args:
        augment: the augmentation of members and stages that name none; that of `recipe` where None.
    """

    data: Dataset
    recipe: Recipe
    augment: str | Augmentation | None
    seed: int

    def __post_init__(self) -> None:
        self._made: list[tuple[Recipe, Parts]] = []
        self._chosen: dict[str, Augmentation | None] = {}

    def training_data(self, recipe: Recipe) -> TrainingData:
        """Rows, tokens and graph that a member is trained on."""
        parts = self._parts(recipe)
        own = None if recipe is self.recipe else recipe.augment  # what is typed for a run is for the recipe, not for members with their own
        default = next((one for one in (own, self.augment, self.recipe.augment) if one is not None), None)
        stages = tuple(self._stage(parts, default if stage.augment is None else stage.augment) for stage in recipe.stages)
        return TrainingData(
            parts.tokenizer,
            self.data.label_texts,
            parts.label_rows,
            parts.label_tokens,
            parts.graph,
            parts.start_vectors,
            stages,
            self.seed,
        )

    def _parts(self, recipe: Recipe) -> Parts:
        for other, parts in self._made:
            if (other.tokens, other.graph, other.vectors) == (recipe.tokens, recipe.graph, recipe.vectors):
                return parts
        train, label_texts = self.data.train, self.data.label_texts
        assert train.texts is not None
        tokenizer = recipe.tokens.fit(Texts.join([train.texts] if label_texts is None else [train.texts, label_texts]))
        label_rows = None if label_texts is None else tokenizer(label_texts)
        start = None if recipe.vectors is None else pretrained_vectors(tokenizer, recipe.vectors)
        if start is not None and not start[1].any():
            raise DataError(
                f"{recipe.vectors} has a vector for none of the {tokenizer.n_tokens - 1:,} tokens; wanted vectors of their words."
            )
        label_tokens = None if label_rows is None else label_rows.to_csr()
        made = Parts(tokenizer, label_rows, label_tokens, label_graph(train.labels, recipe.graph, self.seed), start)
        self._made.append((recipe, made))
        return made

    def _stage(self, parts: Parts, augment: str | Augmentation | None) -> StageData:
        augment = None if augment == NO_AUGMENTATION else augment
        for other, made in parts.stages:
            if other is augment or other == augment:
                return made
        found = self._rows(parts, self._augmentation(augment))
        parts.stages.append((augment, found))
        return found

    def _rows(self, parts: Parts, augmentation: Augmentation | None) -> StageData:
        train = self.data.train
        if isinstance(augmentation, (MixUp, LabelMixUp)):
            assert train.texts is not None
            train = replace(train, texts=None, features=parts.tokenizer(train.texts).to_csr())
        if isinstance(augmentation, LabelMixUp):
            augmentation = _WithLabelFeatures(augmentation, parts.label_tokens)
        if augmentation is None or augmentation.changes:  # rows of an epoch are made when it begins
            return StageData(train, augmentation, no_augmentation(train))
        return StageData(train, augmentation, augmentation.augment(train, self.data.label_texts, seed=self.seed))

    def _augmentation(self, augment: str | Augmentation | None) -> Augmentation | None:
        """The augmentation of that name; "adaptive" is chosen now, once."""
        if augment is None or not isinstance(augment, str):
            return augment
        made = named_augmentation(augment)
        if made is not None:
            return made
        if augment not in self._chosen:
            self._chosen[augment] = adaptive(self.data, seed=self.seed).augmentation
        return self._chosen[augment]


def named_augmentation(typed: str) -> Augmentation | None:
    """The augmentation that `name:key=value,key=value` names; None for "none", and for "adaptive", which is chosen on the data."""
    name, *settings = typed.replace(",", " ").replace(":", " ", 1).split() or [""]
    if name in (NO_AUGMENTATION, CHOSEN):
        if settings:
            raise SettingError(f"{name} takes no settings; {settings[0]} came.")
        return None
    made: Augmentation = build(load("augmentations", name), settings, name)
    if isinstance(made, ManifoldMixUp):
        raise SettingError(
            "manifold-mixup mixes hidden vectors and is a hook for loops of your own; wanted one that makes rows, such as mixup."
        )
    return made


def check_augmentations(recipe: Recipe) -> None:
    """Raise where the recipe or one of its stages names an augmentation that is not there, before anything is trained."""
    for augment in (recipe.augment, *(stage.augment for stage in recipe.stages)):
        if augment is not None:
            named_augmentation(augment)


def label_graph(labels: csr_matrix, settings: Mapping[str, Any] | None, seed: int) -> LabelGraph | None:
    """The label graph of a recipe's [graph] table; None where it has none."""
    if settings is None:
        return None
    given = dict(settings)
    function = load("graphs", given.pop("kind"))
    taken = signature(function).parameters
    if "seed" in taken:
        given["seed"] = seed
    if "normalise" in taken:
        normalised: LabelGraph = function(labels, **given)
        return normalised
    manner = given.pop("normalise", "square-root")
    if manner not in NORMALISERS:
        raise UnknownName("normalisation of a graph", manner, NORMALISERS)
    graph: LabelGraph = function(labels, **given)
    return replace(graph, weights=NORMALISERS[manner](graph.weights))


@dataclass(frozen=True)
class _WithLabelFeatures:
    """Label-MixUp as the trainer calls augmentations, with the features of labels bound to it."""

    changes: ClassVar[bool] = True

    mixup: LabelMixUp
    label_features: csr_matrix

    def augment(self, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        return self.mixup.augment(train, label_texts, graph, seed, self.label_features)

    def for_epoch(self, epoch: int, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        return self.mixup.for_epoch(epoch, train, label_texts, graph, seed, self.label_features)
