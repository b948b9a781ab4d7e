"""XMC: fit, predict, save, load. Joins the parts, computes nothing."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError, SettingError, UnknownName
from longtail.core.memory import freed_memory_kept
from longtail.core.registry import load as load_name
from longtail.core.settings import build
from longtail.core.values import Dataset, LabelGraph, Predictions, Split, Texts
from longtail.data.augment.choose import no_augmentation, validation_split
from longtail.data.augment.mixup import LabelMixUp, ManifoldMixUp, MixUp
from longtail.data.augment.rows import Augmentation, Augmented
from longtail.data.graph.normalise import NORMALISERS
from longtail.evaluation.adaptive import adaptive
from longtail.evaluation.predictions import most_filtered
from longtail.inference.ensemble import Member
from longtail.inference.explain import Explanation, TrainingRows, explain
from longtail.inference.label_parts import TowerParts, tower_parts_of
from longtail.inference.new_labels import NewLabelMaker, check_ids, check_texts, with_labels, without_labels
from longtail.inference.scorer import Scorer
from longtail.inference.stacking import validation_metrics, with_stacking_weights, with_tower_weights
from longtail.inference.trained_model import TrainedModel
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.recipes.recipe import Recipe, make_recipe, read_recipe
from longtail.storage.label_log import append, entries, replayed
from longtail.storage.model_folder import load_model, load_rows, save_model
from longtail.tokens.word_vectors import pretrained_vectors
from longtail.training.checkpoint import Saved, drop_checkpoint, load_checkpoint
from longtail.training.monitor import TrainingMonitor, device_for
from longtail.training.scorers import scorer_of
from longtail.training.trainer import Trainer, TrainingData

MEASURED = ("P@1", "PSP@1")
LEAST_TO_WEIGH = 32  # validation rows: of fewer one cannot learn what recipes beside each other count
ENOUGH_TO_WEIGH = 1000  # of those that take labels from the training rows with them
MOST_ROW_BYTES = 50_000_000  # of training texts and their labels that are kept beside a model


class XMC:
    """A classifier of short texts, by a recipe.

    Args:
        recipe: the recipe, from `read_recipe`; `XMC.from_recipe` takes a name.
        augment: an augmentation: its name, with settings after a colon, such as "gandalf:delta=0.2"; "adaptive" to choose on validation
            rows; an object such as `Gandalf()`; or None.
        seed: seed of everything random.
        device: "cpu" or "cuda"; a GPU where there is one if not given.

    >>> from longtail.data.synth import synth  # doctest: +SKIP
    >>> model = XMC.from_recipe("default", augment="gandalf").fit(data)  # doctest: +SKIP
    >>> model.predict(["mario kart double dash"], k=5).texts  # doctest: +SKIP
    """

    def __init__(self, recipe: Recipe, augment: str | Augmentation | None = None, *, seed: int = 0, device: str | None = None) -> None:
        self.recipe, self.augment, self.seed = recipe, augment, seed
        self.device = device_for(device)
        self.stored: TrainedModel | None = None
        self._maker: NewLabelMaker | None = None  # of new labels, from what was trained or last saved as a whole
        self._heads: tuple[TrainedModel, list[list[TowerParts]]] | None = None  # label vectors in parts, once they were asked for
        self._rows: TrainingRows | None = None  # where they are at hand
        self._checkpoint: Path | None = None  # of the training that made it, until it is saved
        self._n_entries = 0  # of the log of labels in the model's folder
        self._changing = Lock()  # labels, by one thread at a time

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
        return cls(read_recipe(source, settings), augment, seed=seed, device=device)

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> XMC:
        """Open a model that was saved.

        Args:
            folder: the model folder.
            device: "cpu" or "cuda"; a GPU where there is one if not given.
        """
        on = device_for(device)
        stored = load_model(Path(folder), on)
        model = cls(_recipe_of(stored), stored.about.get("augmentation"), seed=stored.about.get("seed", 0), device=str(on))
        log = entries(Path(folder))
        model._maker, model._n_entries = NewLabelMaker(stored), len(log)
        model.stored = replayed(stored, model._maker, log)
        return model

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
        began = time.monotonic()
        data = train if isinstance(train, Dataset) else _as_data(train, label_texts)
        main = _with_enough_rows(self.recipe, len(data.train))
        recipes = (main, *main.beside)
        for recipe in recipes:
            _check_data(data, recipe)
        held_out = None
        if main.validation:
            held_out = validation_split(data, main.validation, self.seed, enough=ENOUGH_TO_WEIGH)
        place = None if checkpoint is None else Path(checkpoint)
        members: list[Member] = []
        history: list[dict[str, Any]] = []
        n_before, seconds_before = 0, 0.0
        augmentation = self.augmentation(held_out or data)
        made: list[tuple[Recipe, TrainingData]] = []
        for recipe in recipes:
            alike = [known for other, known in made if _reads_alike(recipe, other)]
            training_data = alike[0] if alike else self.training_data(held_out or data, recipe, augmentation)
            training_data = replace(training_data, cache=None if cache is None else Path(cache))
            made.append((recipe, training_data))
            mark = self._fingerprint(training_data, recipe)
            scorers: list[Scorer] = []
            for member in range(recipe.ensemble):
                member_place = None if place is None else place / f"{n_before + member}"
                trainer = Trainer(recipe.parts, training_data, self.device, self.seed * 1000 + member)
                validate = None if held_out is None else self._validation(trainer, held_out, recipe)
                title = recipe.name if recipe.ensemble == 1 else f"{recipe.name} {member + 1} of {recipe.ensemble}"
                notes = {"mark": mark, "member": member}
                with freed_memory_kept(), TrainingMonitor(trainer, title, validate, main.patience, member_place, minutes, notes) as monitor:
                    own = None if member_place is None else _own_checkpoint(member_place, mark)
                    if own is not None:
                        monitor.resume(own.notes, own.group("best"))
                    trainer.run(monitor, own)
                    monitor.finished(last=recipe is recipes[-1] and member + 1 == recipe.ensemble)
                history += [{"member": n_before + member, **entry} for entry in monitor.history]
                seconds_before += monitor.seconds_before
                scorer = _scorer(trainer, recipe)
                if held_out is not None and scorer.beta is not None:
                    scorer = with_tower_weights(scorer, training_data.tokenizer, held_out, self.device)
                scorers.append(scorer)
            members.append(Member(training_data.tokenizer, scorers, **_kept_of(recipe)))
            if training_data.tokenizer.n_cut and not alike:  # which was told of these tokens already
                longer = f"are longer than {recipe.tokens.max_tokens} tokens, and what is behind them was cut off"
                sys.stderr.write(f"{recipe.name}: {training_data.tokenizer.n_cut:,} texts {longer}; tokens.max_tokens= takes more.\n")
            n_before += recipe.ensemble
        if held_out is not None and len(members) > 1:
            members = with_stacking_weights(members, held_out, self.device)
        elif self.recipe.beside:
            few = f"fewer than {LEAST_TO_WEIGH} validation rows cannot weigh the recipes beside it; validation= holds out more"
            sys.stderr.write(f"{main.name} was trained alone: {few}.\n")
        self.stored = self._finished(main, data, made[0][1], members, history, seconds_before + time.monotonic() - began)
        self._maker, self._n_entries = NewLabelMaker(self.stored), 0
        self._rows = None if data.train.texts is None else (data.train.texts, data.train.labels)
        self._checkpoint = place
        return self

    def predict(self, texts: Sequence[str] | Texts, k: int = 5, *, by: str | None = None) -> Predictions:
        """Predict the k best labels of each text, with scores in [0, 1].

        Args:
            texts: a list of texts.
            k: labels per text.
            by: another way to find labels than the recipe's: "all", "clusters" or "fused".
        """
        stored = self._trained()
        ensemble = stored.ensemble if by is None else stored.ensemble_by(by)
        if k < 1:
            raise SettingError(f"k came as {k}; wanted 1 or more.")
        if isinstance(texts, str):
            raise SettingError("One text came where a list of texts was wanted; type predict([text]).")
        k = min(k, len(stored.label_counts))
        found = ensemble.predict(Texts.of(texts), k, self.device)
        return replace(found, label_texts=stored.label_texts)

    def predict_test(self, data: Dataset, k: int = 100) -> Predictions:
        """Predict for the test rows, with enough labels that the filter leaves all that metrics need.

        Args:
            data: the data set; its labels must be those the model was trained on.
            k: labels per row, at least.
        """
        if data.test.texts is None:
            raise DataError(f"{data.name} has no texts of test rows to predict for.")
        self._check_labels(data)
        extra = 0 if data.test.filter is None else most_filtered(data.test.filter, len(data.test))
        return self.predict(data.test.texts, min(data.n_labels, max(k, 10 + extra)))

    def _check_labels(self, data: Dataset) -> None:
        """Whether label ids mean the same in the model and in the data set."""
        stored = self._trained()
        n_labels, known = len(stored.label_counts), stored.label_texts
        if n_labels != data.n_labels:
            raise DataError(f"The model has {n_labels:,} labels, {data.name} has {data.n_labels:,}; wanted the labels it was trained on.")
        if known is not None and data.label_texts is not None and known != data.label_texts:
            label = next(place for place in range(n_labels) if known[place] != data.label_texts[place])
            told = f"Label {label} of the model is {known[label]!r}, of {data.name} {data.label_texts[label]!r}"
            raise DataError(f"{told}; wanted the labels it was trained on, in their order.")

    def note_metrics(self, metrics: Mapping[str, float]) -> None:
        """Write metrics of test rows into the model card.

        Args:
            metrics: percent by name, as `evaluate` returns them.
        """
        kept = {name: value for name, value in metrics.items() if name.split("@")[0] in ("P", "PSP", "nDCG", "R", "coverage")}
        self._trained().about["metrics"] = kept

    def __repr__(self) -> str:
        if self.stored is None:
            return f"XMC({self.recipe.name!r}, not trained)"
        about = self.stored.about
        told = f"{about['labels']:,} labels, trained on {about['rows trained on']:,} rows in {about['seconds']:,.0f} s"
        return f"XMC({self.recipe.name!r}, {told})"

    def save(self, folder: str | Path, *, rows: bool = False) -> None:
        """Write a model folder; `XMC.load` and `longtail predict` read it.

        Args:
            folder: the folder to write.
            rows: keep training texts with the model, where they are less than 50 MB, so that explanations can show some.
        """
        with self._changing:
            kept = self._training_rows() if rows else None
            if kept is not None and len(kept[0].buffer) + 4 * kept[1].nnz > MOST_ROW_BYTES:
                kept = None
            saved = save_model(Path(folder), self._trained().without_zero_weight_members(), kept)
            if self._checkpoint is not None:
                drop_checkpoint(self._checkpoint)
                self._checkpoint = None
            self.stored = saved
            self._maker, self._n_entries = NewLabelMaker(self.stored), 0

    def add_labels(self, texts: Sequence[str]) -> list[int]:
        """Add new labels by their texts, without training; returns their ids, which follow those of the known labels.

        A model that was loaded or saved keeps them in its folder: when this returns they are on disk.

        Args:
            texts: one text per new label.
        """
        with self._changing:
            stored = self._trained()
            new = check_texts(stored, texts)
            assert self._maker is not None
            grown = with_labels(stored, new, self._maker.make(new))
            self._note({"add": list(new)})
            self.stored = grown
            return list(range(len(stored.label_counts), len(grown.label_counts)))

    def remove_labels(self, ids: Sequence[int]) -> None:
        """Never predict these labels again; ids of all others stay as they are. Kept in the model's folder as by `add_labels`.

        Args:
            ids: ids of labels.
        """
        with self._changing:
            stored = self._trained()
            gone = check_ids(stored, ids)
            left = without_labels(stored, gone)
            self._note({"remove": gone.tolist()})
            self.stored = left

    def explain(self, text: str, label: int | str | None = None) -> Explanation:
        """Explain why a label is predicted for a text.

        Args:
            text: the text.
            label: id or text of a label; the label that is predicted first if not given.
        """
        stored = self._trained()
        if self._heads is None or self._heads[0] is not stored:
            self._heads = stored, [tower_parts_of(stored, place) for place in range(len(stored.scorers))]
        return explain(stored, self._heads[1], text, label, self._training_rows(), self.device)

    def _training_rows(self) -> TrainingRows | None:
        """Training texts and their labels: those trained on, or those that the model's folder keeps."""
        stored = self._trained()
        if self._rows is None and stored.folder is not None:
            self._rows = load_rows(stored.folder, len(stored.label_counts))
        return self._rows

    def _note(self, entry: dict[str, Any]) -> None:
        """In the log of the folder, where the model has one."""
        folder = self._trained().folder
        if folder is not None:
            append(folder, self._n_entries + 1, entry)
            self._n_entries += 1

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

    def _trained(self) -> TrainedModel:
        if self.stored is None:
            raise SettingError("This model is not trained yet; call fit, or XMC.load a folder.")
        return self.stored

    # ---- what training stands on

    def training_data(self, data: Dataset, recipe: Recipe, augmentation: Augmentation | None) -> TrainingData:
        """Rows, tokens and graph that a recipe is trained on."""
        train = data.train
        assert train.texts is not None
        known = [train.texts] if data.label_texts is None else [train.texts, data.label_texts]
        tokenizer = recipe.tokens.fit(Texts.join(known))
        label_rows = None if data.label_texts is None else tokenizer(data.label_texts)
        label_tokens = None if label_rows is None else label_rows.to_csr()
        if isinstance(augmentation, (MixUp, LabelMixUp)):
            train = replace(train, texts=None, features=tokenizer(train.texts).to_csr())
        if isinstance(augmentation, LabelMixUp):
            augmentation = _WithLabelFeatures(augmentation, label_tokens)
        if augmentation is None or augmentation.changes:  # rows of an epoch are made when it begins
            rows = no_augmentation(train)
        else:
            rows = augmentation.augment(train, data.label_texts, seed=self.seed)
        start = None if recipe.vectors is None else pretrained_vectors(tokenizer, recipe.vectors)
        if start is not None and not start[1].any():
            raise DataError(
                f"{recipe.vectors} has a vector for none of the {tokenizer.n_tokens - 1:,} tokens; wanted vectors of their words."
            )
        graph = self._graph(train.labels, recipe)
        return TrainingData(train, data.label_texts, tokenizer, label_rows, label_tokens, graph, start, augmentation, rows, self.seed)

    def _graph(self, labels: csr_matrix, recipe: Recipe) -> LabelGraph | None:
        if recipe.graph is None:
            return None
        settings = dict(recipe.graph)
        kind = settings.pop("kind")
        if kind == "walk":
            return load_name("graphs", kind)(labels, seed=self.seed, **settings)  # type: ignore[no-any-return]
        manner = settings.pop("normalise", "square-root")
        if manner not in NORMALISERS:
            raise UnknownName("normalisation of a graph", manner, NORMALISERS)
        graph: LabelGraph = load_name("graphs", kind)(labels, **settings)
        return replace(graph, weights=NORMALISERS[manner](graph.weights))

    def augmentation(self, data: Dataset) -> Augmentation | None:
        """The one that was asked for; "adaptive" chooses one now."""
        if self.augment is None or self.augment == "none":
            return None
        if not isinstance(self.augment, str):
            return self.augment
        made = named_augmentation(self.augment)
        return adaptive(data, seed=self.seed).augmentation if made is None else made

    def _validation(self, trainer: Trainer, held_out: Dataset, recipe: Recipe) -> Any:
        def validate() -> dict[str, float]:
            member = Member(trainer.training_data.tokenizer, [_scorer(trainer, recipe)])
            return {name: value for name, value in validation_metrics([member], held_out, self.device, (1,)).items() if name in MEASURED}

        return validate

    # ---- what stays of it

    def _fingerprint(self, training_data: TrainingData, recipe: Recipe) -> str:
        """Of recipe, data, augmentation and seed: a checkpoint goes on only where all are the same."""
        digest = hashlib.sha256(repr((recipe.tables, repr(self.augment), self.seed, self.device.type)).encode())
        train = training_data.train
        for matrix in (train.labels, train.features, training_data.label_tokens):
            if matrix is not None:
                for array in (matrix.indptr, matrix.indices, matrix.data):
                    digest.update(np.ascontiguousarray(array).tobytes())
        if train.texts is not None:
            digest.update(train.texts.offsets.tobytes())
            digest.update(train.texts.buffer.tobytes())
        return digest.hexdigest()

    def _finished(
        self,
        recipe: Recipe,
        data: Dataset,
        training_data: TrainingData,
        members: list[Member],
        history: list[dict[str, Any]],
        seconds: float,
    ) -> TrainedModel:
        counts = np.bincount(data.train.labels.indices, minlength=data.n_labels).astype(np.int64)
        about = {
            "data": data.name,
            "recipe": recipe.name,
            "augmentation": self.augment if isinstance(self.augment, str) else "none" if self.augment is None else repr(self.augment),
            "training rows": len(data.train),
            "rows trained on": len(training_data.augmented),
            "labels": data.n_labels,
            "tokens": members[0].tokenizer.n_tokens,
            "networks": sum(len(member.scorers) for member in members),
            "seed": self.seed,
            "device": self.device.type,
            "threads": torch.get_num_threads() if self.device.type == "cpu" else 0,
            "seconds": round(seconds, 1),
        }
        return TrainedModel(members, data.label_texts, counts, training_data.graph, about, history)


def _scorer(trainer: Trainer, recipe: Recipe) -> Scorer:
    towers = tuple(tower for tower in recipe.predict.towers if tower in trainer.network.towers)  # a stage may not have come to the second
    return scorer_of(trainer, recipe.predict.by, towers or ("labels",), recipe.predict.unit)


def _kept_of(recipe: Recipe) -> dict[str, Any]:
    """What a member keeps of the recipe that it was trained by."""
    parts = [stage.parts for stage in recipe.stages if stage.task in ("labels", "both", "unified")][-1:]
    labels: LabelVectors = recipe.labels if not parts or parts[0] is None else replace(recipe.labels, parts=parts[0])
    vectors = {"labels": labels, "classifiers": recipe.classifiers}
    return {
        "name": recipe.name,
        "about": recipe.about,
        "encoder": recipe.encoder,
        "label_vectors": {tower: vectors[tower] for tower in ("labels", *recipe.predict.towers)},
        "tables": recipe.tables,
    }


def _recipe_of(model: TrainedModel) -> Recipe:
    """The recipe of a model that was loaded."""
    made = [make_recipe(member.tables, member.name, "model.json") for member in model.members]
    return replace(made[0], beside=tuple(made[1:]))


def named_augmentation(typed: str) -> Augmentation | None:
    """What `name:key=value,key=value` stands for; None for "none", and for "adaptive", which is chosen when the data is there."""
    name, *settings = typed.replace(",", " ").replace(":", " ", 1).split() or [""]
    if name in ("none", "adaptive"):
        if settings:
            raise SettingError(f"{name} takes no settings; {settings[0]} came.")
        return None
    made: Augmentation = build(load_name("augmentations", name), settings, name)
    if isinstance(made, ManifoldMixUp):
        raise SettingError(
            "manifold-mixup mixes hidden vectors and is a hook for loops of your own; wanted one that makes rows, such as mixup."
        )
    return made


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


def _reads_alike(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes see the same tokens and the same graph of the same data."""
    return (one.tokens, one.graph, one.vectors) == (other.tokens, other.graph, other.vectors)


def _with_enough_rows(recipe: Recipe, n_rows: int) -> Recipe:
    """The recipe; alone where validation rows are too few to weigh those beside it."""
    n_validation = round(n_rows * recipe.validation)
    if not recipe.beside or n_validation >= LEAST_TO_WEIGH:
        return recipe
    has_use = recipe.patience or len(recipe.predict.towers) > 1
    return replace(recipe, beside=(), validation=recipe.validation if has_use else 0.0)


def _check_data(data: Dataset, recipe: Recipe) -> None:
    """What a recipe cannot be trained without."""
    if data.train.texts is None:
        raise DataError(f"{data.name} has no texts of training rows; a recipe reads texts.")
    if not len(data.train):
        raise DataError(f"{data.name} has no training rows; wanted at least one.")
    if data.label_texts is None:
        parts = [recipe.classifiers.parts, recipe.clusters.parts, *(stage.parts for stage in recipe.stages)]
        by_texts = any(stage.cluster_by == "texts" for stage in recipe.stages)
        if recipe.labels.needs_text or by_texts or any(part is not None and set(part) != {"free"} for part in parts):
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


def _own_checkpoint(place: Path, mark: str) -> Saved | None:
    """The checkpoint in this folder, if it is of the same run."""
    saved = load_checkpoint(place)
    if saved is not None and saved.notes.get("mark") != mark:
        raise SettingError(
            f"The checkpoint {place} is of another recipe, data set or seed. Delete it to begin anew, or keep it and choose another place."
        )
    return saved


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
