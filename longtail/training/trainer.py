"""The course of a recipe: its stages, one after the other, from token rows to a trained network."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.core.errors import DataError
from longtail.core.progress import progress
from longtail.core.values import Floats, LabelGraph, Split, Texts
from longtail.data.augment.rows import Augmentation, Augmented
from longtail.data.graph.cooccurrence import symmetric_cooccurrence
from longtail.inference.search.clusters import GAME_NEIGHBOURS, ClusterIndex, Neighbours, member_table, mine_hard_negatives, nearest_labels
from longtail.models.encoders.base import Encoder, EncoderSettings
from longtail.models.label_rows import LabelRows
from longtail.models.label_vectors.vectors import LabelTower, LabelVectors
from longtail.models.losses.all_labels import ALL_LABELS, precision
from longtail.models.network import Network
from longtail.models.table import Table, weighted_sum
from longtail.tokens.cache import cached_rows
from longtail.tokens.ragged import with_sorted_ids
from longtail.tokens.rows import TokenRows
from longtail.tokens.tokenizer import Tokenizer
from longtail.training.checkpoint import Saved, random_state, set_random_state
from longtail.training.contrast import Picked
from longtail.training.loop import Callbacks, Pace, Position, Rows, train
from longtail.training.negatives.clusters import Clusters, cluster_labels, label_centroids, smooth
from longtail.training.objectives import EveryLabel, GraphPenalised, Objective, SharedPool, Shortlisted, Synchronised
from longtail.training.optimizer import Adam
from longtail.training.stages import ClusterSettings, Contrast, Stage

ROWS_AT_ONCE = 2048
READ_AT_ONCE = 512  # texts, by an encoder that does not learn
HEADS_FASTER = 2  # times the rate of a pretrained encoder, for its heads, which begin at random (UniDEC)
LOOKED_AT, ALIKE = 256, 0.99  # label texts that are looked at after a stage, and the mean cosine above which they are all the same


@dataclass(frozen=True)
class TrainingData:
    """What a course works on: the same for every member of an ensemble."""

    train: Split
    label_texts: Texts | None
    tokenizer: Tokenizer
    label_rows: TokenRows | None  # of label texts, in reading order
    label_tokens: csr_matrix | None  # (n_labels, n_tokens): the same, with equal tokens added up
    graph: LabelGraph | None  # for label vectors, smoothing and GAME
    start_vectors: tuple[Floats, NDArray[np.bool_]] | None  # pretrained token vectors, and which tokens have one
    augmentation: Augmentation | None
    augmented: Augmented  # rows of all epochs, or of the first where the augmentation gives new ones each time
    seed: int  # of augmentations
    cache: Path | None = None  # folder of token rows

    @property
    def n_labels(self) -> int:
        return int(self.train.labels.shape[1])

    def tokens_of_all(self) -> TokenRows:
        """Of the rows of all epochs; from the cache, where they were cut into tokens before."""
        split = self.augmented.split
        return self.tokens_of(split) if split.texts is None else cached_rows(self.tokenizer, split.texts, self.cache)

    def tokens_of(self, split: Split) -> TokenRows:
        """Of the texts; of rows that an augmentation mixed, which have no text, the token weights that it mixed."""
        if split.texts is not None:
            return self.tokenizer(split.texts)
        assert split.features is not None
        return TokenRows.from_csr(split.features)


@dataclass(frozen=True)
class Parts:
    """What a course is put together from; `recipe` makes it of a file."""

    encoder: EncoderSettings
    labels: LabelVectors
    classifiers: LabelVectors  # a second set of label vectors, for stages that learn one
    contrast: Contrast
    clusters: ClusterSettings
    shortlist: str  # where shortlists come from: "clusters" or "nearest" label centroids
    keep: int  # labels of a "nearest" shortlist
    stages: tuple[Stage, ...]

    @property
    def dim(self) -> int:
        """What texts and labels have in common: sums of token vectors are as long as these are."""
        sums_tokens = self.labels.sums_tokens or any(stage.parts and {"text", "graph"} & set(stage.parts) for stage in self.stages)
        return self.encoder.dim if sums_tokens else self.encoder.output_dim


class Trainer:
    """One network on its way. Everything that a resumed run needs is in `state`."""

    def __init__(self, parts: Parts, training_data: TrainingData, device: torch.device, seed: int) -> None:
        self.parts, self.training_data, self.device, self.seed = parts, training_data, device, seed
        torch.manual_seed(seed)
        dim = parts.encoder.dim
        table = Table(training_data.tokenizer.n_tokens, dim, scale=(2 / dim) ** 0.5)
        encoder = parts.encoder.build()
        self._start_table(table, encoder)
        self.network = Network(table, encoder, parts.encoder.output_dim, parts.dim).to(device)
        self.clusters: Clusters | None = None
        self.shortlist: Tensor | None = None
        self.row_clusters: Tensor | None = None  # (n_rows,): rows that come in one batch
        self.looked: int | None = None  # the epoch of the stage in which near labels and rows were last looked for
        self.optimizer: Adam | None = None
        self.objective: Objective | None = None
        self.stage = 0
        self._static: Rows | None = None
        self._static_features: csr_matrix | None = None

    def run(self, callbacks: Callbacks, saved: Saved | None = None) -> None:
        """All stages, or what is left of them."""
        start = Position()
        if saved is not None:
            start = self._restore(saved)
        while self.stage < len(self.parts.stages):
            stage = self.parts.stages[self.stage]
            if saved is None:
                self._begin(stage)
            self.objective = self._objective(stage)
            if saved is not None:
                self.objective.load({name: tensor.to(self.device) for name, tensor in saved.group("objective").items()})
            if saved is None:
                self.optimizer = self._optimizer(stage)
                torch.manual_seed(self.seed * 7919 + self.stage)
            assert self.optimizer is not None
            train(
                self.network,
                self.objective,
                self.optimizer,
                self._rows_of(stage),
                self.pace,
                self.seed * 101 + self.stage,
                callbacks,
                start,
            )
            saved, start = None, Position()
            self.network.eval()
            self._tell_if_alike(callbacks)
            self.stage += 1
        self.network.eval()

    @torch.no_grad()
    def _tell_if_alike(self, callbacks: Callbacks) -> None:
        """An encoder that gives all texts the same vector has learnt nothing, and nothing that is built on it can."""
        if "labels" not in self.network.towers or self.network.tower("labels").sequences is None:
            return
        some = torch.linspace(0, self.training_data.n_labels - 1, LOOKED_AT, device=self.device).long().unique()
        vectors = torch.nn.functional.normalize(self.network.label_vectors("labels", some)[0].float(), dim=1)
        cosine = float(vectors.mean(dim=0).square().sum())
        if len(some) > 1 and cosine > ALIKE:
            alike = f"After stage {self.stage + 1} all label texts have nearly the same vector (mean cosine {cosine:.3f})"
            callbacks.told(f"{alike}: nothing was learnt. Try loss=semi-hard, or a smaller learning_rate.")

    @property
    def pace(self) -> Pace:
        """Of the stage that is on."""
        return self.parts.stages[self.stage].pace(len(self.training_data.augmented))

    # ---- beginning a stage

    def _start_table(self, table: Table, encoder: Encoder) -> None:
        """At pretrained token vectors, where there are some: those the encoder was trained with, or those of a file."""
        pretrained = encoder.take_token_vectors(len(table.weight))
        if pretrained is not None:
            with torch.no_grad():
                table.weight[0].zero_()
                table.weight[1:] = pretrained
            return
        if self.training_data.start_vectors is None:
            return
        vectors, found = self.training_data.start_vectors
        width = min(vectors.shape[1], table.weight.shape[1])
        scaled = vectors[found][:, :width] * (float(table.weight.detach().std()) / max(float(vectors[found].std()), 1e-9))
        with torch.no_grad():
            table.weight[torch.from_numpy(np.flatnonzero(found)), :width] = torch.from_numpy(scaled)

    def _begin(self, stage: Stage) -> None:
        """Clusters, label sides, a fresh encoder, a frozen table, shortlists: what the stage stands on."""
        network = self.network
        if stage.cluster_by != "nothing":
            self.clusters = self.clustered(stage.cluster_by)
        if "encoder" in stage.fresh:
            self._part_encoders()
            network.encoder = self.parts.encoder.build().to(self.device)
        for task in self._tasks(stage):
            if self._is_built(task, stage):
                old = network.towers[task] if task in network.towers else None
                tower = self._side(task, stage)
                if isinstance(old, LabelTower) and not stage.fresh and len(old.blocks) == len(tower.blocks):
                    tower.blocks.load_state_dict(old.blocks.state_dict())
                self._start_free(tower, task)
                network.towers[task] = tower
        self._freeze(stage)
        self.shortlist = self._shortlists() if stage.score == "shortlist" and stage.task in ("labels", "classifiers") else None
        self.row_clusters, self.looked = None, None

    def _is_built(self, task: str, stage: Stage) -> bool:
        """Whether the stage begins with a side of its own for the task, or goes on with what the one before it learnt."""
        if task not in self.network.towers or stage.fresh or (task == "clusters" and stage.cluster_by != "nothing"):
            return True
        return self.network.tower(task).settings != self._vectors(task, stage)

    def _part_encoders(self) -> None:
        """Clusters keep the encoder they were learnt with."""
        if "clusters" in self.network.towers:
            self.network.cluster_encoder = deepcopy(self.network.encoder).requires_grad_(False)

    @staticmethod
    def _tasks(stage: Stage) -> tuple[str, ...]:
        return {"both": ("labels", "clusters"), "unified": ("labels", "classifiers")}.get(stage.task, (stage.task,))

    def _side(self, task: str, stage: Stage) -> LabelTower:
        settings, n = self._vectors(task, stage), self.training_data.n_labels
        texts, graph = self.training_data.label_tokens, None if self.training_data.graph is None else self.training_data.graph.weights
        if task == "clusters":
            assert self.clusters is not None
            n = self.clusters.n_clusters
            texts = None if texts is None or not settings.needs_text else self.clusters.meta_text(texts)
            graph = None if graph is None or not settings.needs_graph else self.clusters.meta_graph(graph)
        sequences = None
        if "encoded" in settings.parts and self.training_data.label_rows is not None:
            sequences = self._label_rows
        return settings.build(n, self.network.dim, settings.text_rows(texts, graph), self.device, sequences).to(self.device)

    def _vectors(self, task: str, stage: Stage) -> LabelVectors:
        if task == "classifiers":
            return self.parts.classifiers
        parts = stage.parts
        if task == "clusters" and self.parts.clusters.parts is not None:
            parts = self.parts.clusters.parts
        settings = self.parts.labels if parts is None else replace(self.parts.labels, parts=parts)
        if task == "clusters" and parts == ("free",):
            settings = replace(settings, start="random", bias=True)
        return settings

    def _start_free(self, tower: LabelTower, task: str) -> None:
        start = tower.settings.start
        if tower.free is None or start == "random":
            return
        texts, graph = self.training_data.label_tokens, None if self.training_data.graph is None else self.training_data.graph.weights
        if texts is None:
            raise DataError("The labels have no texts, which free vectors of this recipe start from; type labels.start=random.")
        if start == "encoded":
            vectors = self._encoded_labels()
            if graph is not None:
                vectors = torch.nn.functional.normalize(torch.from_numpy(np.asarray(graph @ vectors.cpu().numpy())).to(self.device), dim=1)
            assert tower.free is not None
            with torch.no_grad():
                tower.free.weight.copy_(vectors)
            return
        if task == "clusters":
            assert self.clusters is not None
            texts = self.clusters.meta_text(texts)
            graph = None if graph is None else self.clusters.meta_graph(graph)
        tower.start_free_at(csr_matrix(graph @ texts) if start == "graph" and graph is not None else texts, self.network.table.weight)

    @torch.no_grad()
    def _encoded_labels(self) -> Tensor:
        """(n_labels, dim), of unit length: what the encoder makes of label texts."""
        self.network.eval()
        rows = self._label_rows
        places = torch.arange(len(rows), device=self.device).split(ROWS_AT_ONCE)
        return torch.cat([self.network.encode(rows.take(part), unit=True).float() for part in places])

    def _freeze(self, stage: Stage) -> None:
        encoder = self.network.encoder
        frozen_table = "table" in stage.freeze or "encoder" in stage.freeze or encoder.frozen
        table = self.network.table.weight
        table.requires_grad_(not frozen_table)
        encoder.requires_grad_("encoder" not in stage.freeze)
        for tower in self.network.towers.values():
            assert isinstance(tower, LabelTower)
            tower.summed = None
            if frozen_table:
                tower.sum_once(table)

    def _trained(self, stage: Stage) -> list[tuple[str, torch.nn.Parameter]]:
        left_alone = {f"towers.{task}." for task in self.network.towers if task not in self._tasks(stage)} | {"cluster_encoder."}
        return [
            (name, parameter)
            for name, parameter in self.network.named_parameters()
            if parameter.requires_grad and not name.startswith(tuple(left_alone))
        ]

    def _optimizer(self, stage: Stage) -> Adam:
        trained = self._trained(stage)
        factors, momenta = {}, {}
        for name, _ in trained:
            if stage.encoder_rate is not None and not name.startswith("towers."):
                is_head = name.startswith("encoder.projections.")
                factors[name] = stage.encoder_rate / stage.learning_rate * (HEADS_FASTER if is_head else 1)
            elif stage.momentum and name.startswith("towers."):
                momenta[name] = stage.momentum
        return Adam(trained, stage.weight_decay, factors, momenta)

    # ---- clusters and shortlists

    def clustered(self, by: str) -> Clusters:
        """Labels in clusters by what `Stage.cluster_by` names."""
        settings, training_data = self.parts.clusters, self.training_data
        n_clusters = settings.n_clusters(training_data.n_labels)
        labels = training_data.augmented.split.labels
        graph = training_data.graph if settings.smooth else None
        vectors: Any
        if by == "texts":
            assert training_data.label_tokens is not None
            vectors = self._sums(training_data.label_tokens).cpu().numpy()
        elif by == "features":
            vectors = label_centroids(self._features(), labels)
            vectors = vectors if graph is None else smooth(vectors, graph)
        else:
            vectors = np.asarray(csr_matrix(labels.T) @ self._sums(self._features()).cpu().numpy())
            vectors = vectors if graph is None else np.asarray(graph.weights @ vectors)
        counts = np.bincount(training_data.train.labels.indices, minlength=training_data.n_labels)
        head = None if settings.head is None else counts > settings.head
        return cluster_labels(vectors.astype(np.float32), n_clusters, head=head, seed=self.seed)

    def _sums(self, rows: csr_matrix) -> Tensor:
        """(n, dim): summed token vectors."""
        on_device = TokenRows.from_csr(with_sorted_ids(rows)).to(self.device)
        places = torch.arange(len(on_device), device=self.device).split(ROWS_AT_ONCE)
        with torch.no_grad():
            return torch.cat([weighted_sum(on_device.take(part), self.network.table.weight) for part in places])

    def _features(self) -> csr_matrix:
        if self._static_features is None:
            self._static_features = self.training_data.tokens_of_all().to_csr()
        return self._static_features

    @torch.no_grad()
    def _shortlists(self) -> Tensor:
        """(n_rows, n) labels of each training row, as the shortlister gives them before the stage begins."""
        self.network.eval()
        rows = self._static_rows(("labels",))
        places = torch.arange(len(rows), device=self.device).split(ROWS_AT_ONCE)
        if self.parts.shortlist == "nearest":
            centroids = self.centroids()
            found = [nearest_labels(self.network.encode(rows.tokens.take(part)), centroids, self.parts.keep)[0] for part in places]
        else:
            index = self.cluster_index()
            found = [index.search(self.network.encode(rows.tokens.take(part), "clusters"))[0] for part in places]
        return torch.cat(found).int()

    @torch.no_grad()
    def centroids(self) -> Tensor:
        """(n_labels, dim): where each label's training rows lie, of unit length (Astec)."""
        rows = self._static_rows(("labels",))
        places = torch.arange(len(rows), device=self.device).split(ROWS_AT_ONCE)
        encoded = torch.cat([self.network.encode(rows.tokens.take(part)) for part in places])
        sums = np.asarray(
            csr_matrix(self.training_data.augmented.split.labels.T) @ torch.nn.functional.normalize(encoded, dim=1).cpu().numpy()
        )
        return torch.nn.functional.normalize(torch.from_numpy(sums.astype(np.float32)), dim=1).to(self.device)

    @torch.no_grad()
    def cluster_index(self) -> ClusterIndex:
        """From vectors of texts to labels, by clusters as they are now."""
        assert self.clusters is not None
        settings, graph = self.parts.clusters, None
        vectors, bias = self.network.all_label_vectors("clusters")
        members = member_table(self.clusters.members.labels, self.clusters.members.offsets, self.device)
        if settings.game:
            assert self.training_data.graph is not None
            weights = self.clusters.meta_graph(self.training_data.graph.weights)
            graph = Neighbours.of(weights, GAME_NEIGHBOURS, self.device, settings.game)
        return ClusterIndex(vectors, bias, members, graph, settings.beam)

    # ---- rows and objective

    def _rows_of(self, stage: Stage) -> Callable[[int], Rows]:
        training_data = self.training_data
        tasks = tuple(dict.fromkeys("clusters" if task == "clusters" else "labels" for task in self._tasks(stage)))
        looks_again = stage.score == "picked" and self.parts.contrast.looks_again

        def of_epoch(epoch: int) -> Rows:
            if looks_again and epoch % self.parts.contrast.refresh == 0 and self.looked != epoch:
                self._mine(epoch)
            if training_data.augmentation is None or not training_data.augmentation.changes:
                return self._static_rows(tasks)
            made = training_data.augmentation.for_epoch(
                epoch, training_data.train, training_data.label_texts, seed=training_data.seed + self.stage
            )
            return self._rows(made, self._read(self.training_data.tokens_of(made.split), "training texts"), tasks)

        return of_epoch

    def _static_rows(self, tasks: tuple[str, ...]) -> Rows:
        if (
            self._static is None
            or set(self._static.targets) != set(tasks)
            or self._static.shortlist is not self.shortlist
            or self._static.clusters is not self.row_clusters
            or "clusters" in tasks
        ):
            self._static = self._rows(self.training_data.augmented, self._all_rows, tasks)
        return self._static

    @cached_property
    def _all_rows(self) -> TokenRows:
        return self._read(self.training_data.tokens_of_all(), "training texts")

    @cached_property
    def _label_rows(self) -> TokenRows:
        assert self.training_data.label_rows is not None
        return self._read(self.training_data.label_rows, "label texts")

    @torch.no_grad()
    def _read(self, tokens: TokenRows, what: str) -> TokenRows:
        """Token rows on the device; where the encoder does not learn, what it makes of them, so that no step has to."""
        rows = tokens.to(self.device)
        encoder = self.network.encoder
        if not encoder.frozen:
            return rows
        self.network.eval()
        found = torch.empty(len(rows), encoder.hidden_dim, dtype=torch.float16, device=self.device)  # as fine as what the layers compute in
        in_order = torch.argsort(rows.offsets.diff(), stable=True)  # texts of like length together
        with progress(f"Reading {what}", len(rows), "texts") as advance, precision(self.device):
            for part in in_order.split(READ_AT_ONCE):
                found[part] = encoder(rows.take(part), self.network.table.weight).half()
                advance(len(part))
        return TokenRows.already_encoded(found, tokens.n_tokens)

    def _rows(self, made: Augmented, tokens: TokenRows, tasks: tuple[str, ...]) -> Rows:
        targets = {}
        for task in tasks:
            labels = made.split.labels
            if task == "clusters":
                assert self.clusters is not None
                labels = self.clusters.meta_targets(labels)
            targets[task] = LabelRows.of(labels, self.device)
        shortlist, clusters = self.shortlist, self.row_clusters
        if made is not self.training_data.augmented:
            # rows made anew each epoch, in an order of their own, share what was found for the row that they were made from
            source = torch.from_numpy(made.source.astype(np.int64)).to(self.device)
            shortlist, clusters = (None if found is None else found[source] for found in (shortlist, clusters))
        weights = torch.from_numpy(made.row_weights).to(self.device)
        return Rows(tokens, targets, weights, shortlist, clusters)

    @torch.no_grad()
    def _mine(self, epoch: int) -> None:
        """With the network as it is now, find the labels that are near each row and wrong, and the rows that belong into one batch."""
        contrast, pace = self.parts.contrast, self.pace
        self.network.eval()
        rows = self._static_rows(("labels",))
        places = torch.arange(len(rows), device=self.device).split(ROWS_AT_ONCE)
        texts = torch.cat([self.network.encode(rows.tokens.take(part), unit=True).float() for part in places])
        together = contrast.rows_together(epoch, pace.epochs, pace.batch_size)
        if together > 1 and len(rows) > together:
            n_clusters = 1 << max(1, round(log2(len(rows) / together)))
            found = cluster_labels(texts.cpu().numpy(), n_clusters, seed=self.seed + epoch).of_label
            self.row_clusters = torch.from_numpy(found.astype(np.int64)).to(self.device)
        if contrast.hard:
            labels, _ = self.network.all_label_vectors("labels")
            wanted = min(contrast.hard * contrast.refresh, self.training_data.n_labels)
            self.shortlist = torch.cat(
                [mine_hard_negatives(texts[part], labels, rows.targets["labels"].take(part), wanted) for part in places]
            )
        self.looked = epoch

    def _objective(self, stage: Stage) -> Objective:
        objective = self._scored(stage)
        if not stage.glas or stage.task == "clusters":
            return objective
        return GraphPenalised(objective, symmetric_cooccurrence(self.training_data.train.labels, delta=0.0).weights, stage.glas)

    def _scored(self, stage: Stage) -> Objective:
        n_labels = self.training_data.n_labels
        if stage.task == "clusters":
            return EveryLabel("clusters")
        if stage.task == "both":
            assert self.clusters is not None
            members = member_table(self.clusters.members.labels, self.clusters.members.offsets, self.device)
            return Synchronised(members, n_labels, self.parts.clusters.beam, stage.detached_epochs)
        if stage.score == "shortlist":
            return Shortlisted(n_labels, stage.n_random, stage.task)
        if stage.score == "pool":
            return SharedPool(n_labels, stage.n_hard, stage.n_random, stage.task, loss=stage.loss)
        if stage.task == "unified":
            losses = {"labels": (stage.loss,), "classifiers": stage.classifier_loss}
            shares = {"labels": self.parts.contrast.share, "classifiers": 1 - self.parts.contrast.share}
            return Picked(n_labels, self.parts.contrast, losses, shares, stage.score == "all", stage.classifier_score == "all")
        has_temperature = stage.loss != "bce" and self.network.tower(stage.task).settings.unit
        if stage.score == "picked" or stage.loss not in ALL_LABELS or has_temperature:
            return Picked(n_labels, self.parts.contrast, {stage.task: (stage.loss,)}, {stage.task: 1.0}, every_label=stage.score == "all")
        return EveryLabel(stage.task, loss=stage.loss)

    # ---- checkpoints

    def state(self) -> dict[str, Tensor]:
        """Everything by name, for `save_checkpoint`."""
        found = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        found |= {f"random/{name}": tensor for name, tensor in random_state().items()}
        if self.stage < len(self.parts.stages):  # a network that is done is not trained any more
            assert self.optimizer is not None and self.objective is not None
            found |= {f"optimizer/{name}": tensor for name, tensor in self.optimizer.state().items()}
            found |= {f"objective/{name}": tensor for name, tensor in self.objective.state().items()}
        if self.clusters is not None:
            found["course/clusters"] = torch.from_numpy(self.clusters.of_label)
        for name, tensor in (("shortlist", self.shortlist), ("row_clusters", self.row_clusters)):
            if tensor is not None:
                found[f"course/{name}"] = tensor
        if self.looked is not None:
            found["course/looked"] = torch.tensor(self.looked)
        return found

    def _restore(self, saved: Saved) -> Position:
        """Build the network of the stage that was stopped, without training, and fill it."""
        self.stage = int(saved.notes["stage"])
        stages = self.parts.stages[: self.stage + 1]
        kept = saved.group("course")
        if "clusters" in kept:
            self.clusters = Clusters(kept["clusters"].numpy())
        for stage in stages:
            if "encoder" in stage.fresh:
                self._part_encoders()
            for task in self._tasks(stage):
                if self._is_built(task, stage):
                    self.network.towers[task] = self._side(task, stage)
        self.network.load_state_dict(saved.group("network"))
        self._freeze(stages[-1])
        self.shortlist, self.row_clusters = (kept[name].to(self.device) if name in kept else None for name in ("shortlist", "row_clusters"))
        self.looked = int(kept["looked"]) if "looked" in kept else None
        if self.stage < len(self.parts.stages):
            self.optimizer = self._optimizer(stages[-1])
            self.optimizer.load(saved.group("optimizer"))
        set_random_state(saved.group("random"))
        return Position(int(saved.notes["epoch"]), int(saved.notes["step"]))
