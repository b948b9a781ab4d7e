"""Fit a recipe: train the networks of every member of its ensemble, and learn stacking weights on validation rows."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from longtail.core.errors import DataError
from longtail.core.memory import freed_memory_kept
from longtail.core.values import Dataset, LabelGraph
from longtail.data.augment.choose import validation_split
from longtail.data.augment.rows import Augmentation
from longtail.inference.ensemble import Member
from longtail.inference.scorer import Scorer
from longtail.inference.stacking import validation_metrics, with_stacking_weights, with_tower_weights
from longtail.recipes.data import DataSource, check_augmentations
from longtail.recipes.recipe import Recipe
from longtail.training.checkpoint import Checkpoints
from longtail.training.data import TrainingData
from longtail.training.monitor import TrainingMonitor
from longtail.training.scorers import scorer_of
from longtail.training.trainer import Trainer

SHOWN = ("P@1", "PSP@1")  # of validation, after an epoch
MIN_TO_STACK = 32  # validation rows: of fewer one cannot learn stacking weights
ENOUGH_TO_STACK = 1000  # of those that take labels from the training rows with them


@dataclass(frozen=True)
class FitOptions:
    """How a recipe is fitted.

    Args:
        augment: the augmentation of all members that name none of their own.
        checkpoint: a folder with a checkpoint for each network; None for none.
        minutes: between checkpoints.
        cache: a folder to keep token rows in.
    """

    seed: int
    device: torch.device
    augment: str | Augmentation | None = None
    checkpoint: Path | None = None
    minutes: float = 5.0
    cache: Path | None = None


@dataclass
class Fitted:
    """The members of an ensemble as they are trained, and what was seen on the way."""

    members: list[Member] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)  # of every epoch of every network
    graph: LabelGraph | None = None  # of the first member
    n_rows: int = 0  # that the first member was trained on, made ones among them, in the stage that has most
    seconds_before: float = 0.0  # that networks were trained before the run was stopped and resumed
    n_networks: int = 0


def fit_recipe(recipe: Recipe, data: Dataset, options: FitOptions) -> Fitted:
    """Train all members of a recipe on the training rows of a data set; its test rows are not looked at."""
    main = with_enough_rows(recipe, len(data.train))
    for one in main.all_members:
        check_data(data, one)
        check_augmentations(one)
    held_out = None
    if main.validation:
        held_out = validation_split(data, main.validation, options.seed, enough=ENOUGH_TO_STACK)
    source = DataSource(held_out or data, main, options.augment, options.seed)
    fitted = Fitted()
    warned: set[int] = set()
    for one in main.all_members:
        training = replace(source.training_data(one), cache=options.cache)
        member = _fit_member(one, training, main, held_out, options, fitted)
        fitted.members.append(member)
        n_cut = member.tokenizer.n_cut
        if n_cut and id(member.tokenizer) not in warned:
            longer = f"are longer than {one.tokens.max_tokens} tokens, and what is behind them was cut off"
            sys.stderr.write(f"{one.name}: {n_cut:,} texts {longer}; tokens.max_tokens= takes more.\n")
        warned.add(id(member.tokenizer))
        if len(fitted.members) == 1:
            fitted.graph, fitted.n_rows = training.graph, max(len(stage.augmented) for stage in training.stages)
    if held_out is not None and len(fitted.members) > 1:
        fitted.members = with_stacking_weights(fitted.members, held_out, options.device)
    elif recipe.members:
        few = f"fewer than {MIN_TO_STACK} validation rows are too few for stacking weights of its other members"
        sys.stderr.write(f"{main.name} was trained alone: {few}; validation= holds out more.\n")
    return fitted


def _fit_member(
    recipe: Recipe, training: TrainingData, main: Recipe, held_out: Dataset | None, options: FitOptions, fitted: Fitted
) -> Member:
    """Train the networks of one member, which differ by their seed."""
    mark = fingerprint(recipe, training, options)
    scorers = []
    for number in range(recipe.ensemble):
        trainer = Trainer(recipe.plan, training, options.device, options.seed * 1000 + number)
        monitor = TrainingMonitor(
            title=recipe.name if recipe.ensemble == 1 else f"{recipe.name} {number + 1} of {recipe.ensemble}",
            network=trainer.network,
            n_stages=len(recipe.stages),
            validate=None if held_out is None else _validation(trainer, recipe, held_out, options.device),
            patience=main.patience,
            minutes=None if options.checkpoint is None else options.minutes,
            is_last=recipe is main.all_members[-1] and number + 1 == recipe.ensemble,
        )
        checkpoints = None
        if options.checkpoint is not None:
            checkpoints = Checkpoints(options.checkpoint / f"{fitted.n_networks}", mark)
        with freed_memory_kept(), monitor:
            trainer.run(monitor, checkpoints)
        fitted.history += [{"member": fitted.n_networks, **entry} for entry in monitor.history]
        fitted.seconds_before += monitor.seconds_before
        fitted.n_networks += 1
        scorer = _scorer(trainer, recipe)
        if held_out is not None and scorer.beta is not None:
            scorer = with_tower_weights(scorer, training.tokenizer, held_out, options.device)
        scorers.append(scorer)
    return member_of(recipe, training, scorers)


def member_of(recipe: Recipe, training: TrainingData, scorers: list[Scorer]) -> Member:
    """A member of an ensemble, with what a model folder keeps of its recipe."""
    label_vectors = {tower: recipe.label_vectors(tower) for tower in ("labels", "classifiers")}
    return Member(
        training.tokenizer,
        scorers,
        name=recipe.name,
        about=recipe.about,
        encoder=recipe.encoder,
        label_vectors=label_vectors,
        tables=recipe.tables,
    )


def _scorer(trainer: Trainer, recipe: Recipe) -> Scorer:
    towers = tuple(tower for tower in recipe.predict.towers if tower in trainer.network.towers)  # a stage may not have come to the second
    return scorer_of(trainer, recipe.predict.by, towers or ("labels",), recipe.predict.unit)


def _validation(trainer: Trainer, recipe: Recipe, held_out: Dataset, device: torch.device) -> Callable[[], dict[str, float]]:
    def validate() -> dict[str, float]:
        member = Member(trainer.data.tokenizer, [_scorer(trainer, recipe)])
        return {name: value for name, value in validation_metrics([member], held_out, device, (1,)).items() if name in SHOWN}

    return validate


def fingerprint(recipe: Recipe, training: TrainingData, options: FitOptions) -> str:
    """A hash of recipe, data, augmentation and seed: a run is resumed only where all are the same."""
    digest = hashlib.sha256(repr((recipe.tables, repr(options.augment), options.seed, options.device.type)).encode())
    train = training.stages[0].train
    for matrix in (train.labels, train.features, training.label_tokens):
        if matrix is not None:
            for array in (matrix.indptr, matrix.indices, matrix.data):
                digest.update(np.ascontiguousarray(array).tobytes())
    if train.texts is not None:
        digest.update(train.texts.offsets.tobytes())
        digest.update(train.texts.buffer.tobytes())
    return digest.hexdigest()


def with_enough_rows(recipe: Recipe, n_rows: int) -> Recipe:
    """The recipe; without its other members where validation rows are too few for stacking weights."""
    n_validation = round(n_rows * recipe.validation)
    if not recipe.members or n_validation >= MIN_TO_STACK:
        return recipe
    has_use = recipe.patience or len(recipe.predict.towers) > 1
    return replace(recipe, members=(), validation=recipe.validation if has_use else 0.0)


def check_data(data: Dataset, recipe: Recipe) -> None:
    """Raise where the data set lacks what the recipe is made for."""
    if data.train.texts is None:
        raise DataError(f"{data.name} has no texts of training rows; a recipe encodes texts.")
    if not len(data.train):
        raise DataError(f"{data.name} has no training rows; wanted at least one.")
    if data.label_texts is None:
        if recipe.needs_label_texts:
            raise DataError(
                f"{data.name} has no label texts, which the recipe {recipe.name} is made for; astec and inceptionxml need none."
            )
    elif len(data.label_texts) != data.n_labels:
        raise DataError(f"There are {len(data.label_texts):,} label texts for {data.n_labels:,} labels; wanted one each.")
    n_validation = round(len(data.train) * recipe.validation)
    if recipe.validation and not 0 < n_validation < len(data.train):
        raise DataError(
            f"{data.name} has {len(data.train):,} training rows, of which validation={recipe.validation:g} leaves {n_validation:,} for "
            "validation; type another share, such as validation=0.2, or validation=0."
        )
