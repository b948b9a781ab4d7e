"""The trainer: a recipe's stages, one after the other, from token rows to a trained network."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

from longtail.data.graph.cooccurrence import symmetric_cooccurrence
from longtail.inference.search.clusters import GAME_NEIGHBOURS, ClusterIndex, Neighbours, member_table
from longtail.models.encoders.base import Encoder
from longtail.models.network import Network
from longtail.models.table import Table
from longtail.training.checkpoint import Checkpoints, Saved, random_state, set_random_state
from longtail.training.clustering import LabelClustering
from longtail.training.data import StageData, TrainingData
from longtail.training.loop import BEGINNING, Callbacks, Decision, EpochRows, Pace, Position, train
from longtail.training.negatives.base import ROWS_AT_ONCE, Negatives, StageView
from longtail.training.negatives.clusters import Clusters
from longtail.training.negatives.in_batch import InBatch
from longtail.training.objectives.base import Objective, ObjectiveInputs
from longtail.training.objectives.glas import WithGlas
from longtail.training.optimizer import Adam
from longtail.training.plan import TrainingPlan
from longtail.training.rows import RowSource
from longtail.training.stage import Stage
from longtail.training.towers import TowerBuilder

PROJECTIONS_FASTER = 2  # times the rate of a pretrained encoder, for its projections, which begin at random (UniDEC)
SAMPLE, ALIKE = 256, 0.99  # label texts that are compared after a stage, and the mean cosine above which they are all the same


class RunCallbacks(Callbacks, Protocol):
    """Callbacks of a whole run: they are called at stages too, and what they know goes into checkpoints."""

    def on_stage_begin(self, number: int, stage: Stage, pace: Pace) -> None: ...

    def on_run_end(self) -> Decision: ...

    def best_weights(self) -> dict[str, Tensor] | None:
        """Weights of the best epoch of the stage that ended, where they are better than the last ones."""

    def state(self, position: Position) -> Saved: ...

    def load(self, saved: Saved) -> None: ...


class Trainer:
    """One network in training. A checkpoint holds everything of it, so that a resumed run ends with the same numbers."""

    def __init__(self, plan: TrainingPlan, data: TrainingData, device: torch.device, seed: int) -> None:
        self.plan, self.data, self.device, self.seed = plan, data, device, seed
        torch.manual_seed(seed)
        dim = plan.encoder.dim
        table = Table(data.tokenizer.n_tokens, dim, scale=(2 / dim) ** 0.5)
        encoder = plan.encoder.build()
        _start_table(table, encoder, data)
        self.network = Network(table, encoder, int(plan.encoder.output_dim), plan.dim).to(device)
        self.rows = RowSource(self.network, data, device)
        self.towers = TowerBuilder(plan, data, self.network, self.rows)
        self.clusters: Clusters | None = None
        self.number = 0  # of the current stage
        self.negatives: Negatives = InBatch().build()
        self.objective: Objective | None = None
        self.optimizer: Adam | None = None

    @property
    def stage(self) -> Stage:
        """The current stage; the last one when all are done."""
        return self.plan.stages[min(self.number, len(self.plan.stages) - 1)]

    @property
    def stage_data(self) -> StageData:
        return self.data.stages[min(self.number, len(self.plan.stages) - 1)]

    @property
    def pace(self) -> Pace:
        """Epochs, batch size and learning rate of the current stage."""
        return self.stage.pace(len(self.stage_data.augmented))

    def run(self, callbacks: RunCallbacks, checkpoints: Checkpoints | None = None) -> None:
        """Train all stages, or those that are left where a run is resumed."""
        saved = None if checkpoints is None else checkpoints.load()
        if saved is not None:
            callbacks.load(saved)
        resumed = 0 if saved is None else int(saved.notes["stage"])

        def decide(decision: Decision, position: Position) -> None:
            if Decision.SAVE in decision and checkpoints is not None:
                checkpoints.save(self._state(callbacks, position))
            if Decision.INTERRUPT in decision:
                raise KeyboardInterrupt

        for number in range(len(self.plan.stages)):
            self.number = number
            if number < resumed:
                self._shape(saved)  # encoder and towers as the stage left them, without training
                continue
            position = self._begin(saved)
            saved = None
            assert self.objective is not None and self.optimizer is not None
            callbacks.on_stage_begin(self.number, self.stage, self.pace)
            seed = self.seed * 101 + self.number
            train(self.network, self.objective, self.optimizer, self._epoch, self.pace, seed, callbacks, decide, position)
            if (best := callbacks.best_weights()) is not None:
                self.network.load_state_dict(best)
            self.network.eval()
            _warn_if_alike(self.network, self.data.n_labels, self.number, callbacks)
        if saved is not None:  # the run was stopped behind its last stage
            self._load(saved)
        self.number = len(self.plan.stages)
        self.network.eval()
        decide(callbacks.on_run_end(), BEGINNING)

    # ---- a stage

    def _begin(self, saved: Saved | None) -> Position:
        """Set up the current stage: as a checkpoint has it, or anew."""
        is_new = self._shape(saved)
        if saved is None:
            for name in is_new:
                self.towers.start(name, self.clusters)
        else:
            self.network.load_state_dict(saved.group("network"))
        self._freeze()
        objective = self.stage.objective
        self.negatives = (self.plan.negatives if objective.uses_negatives else InBatch()).build()
        self.objective = self._objective()
        self.optimizer = _optimizer(self.network, self.stage)
        if saved is None:
            torch.manual_seed(self.seed * 7919 + self.number)
            return BEGINNING
        self.negatives.load(saved.group("negatives"), self.device)
        self.objective.load({name: tensor.to(self.device) for name, tensor in saved.group("objective").items()})
        self.optimizer.load(saved.group("optimizer"))
        set_random_state(saved.group("random"))
        return Position(int(saved.notes["epoch"]), int(saved.notes["step"]))

    def _shape(self, saved: Saved | None) -> list[str]:
        """Clusters, encoder and towers of the current stage; the names of towers that are new."""
        stage, network = self.stage, self.network
        by = stage.objective.makes_clusters_by
        if saved is not None:
            self.clusters = saved.clusters
        elif by is not None:
            self.clusters = self.clustered(by)
        if "encoder" in stage.fresh:
            if "clusters" in network.towers:  # clusters keep the encoder they were learnt with
                network.cluster_encoder = deepcopy(network.encoder).requires_grad_(False)
            network.encoder = self.plan.encoder.build().to(self.device)
        made = []
        for name in stage.objective.towers:
            if self.towers.is_new(name, stage):
                self.towers.put(name, stage, self.clusters)
                made.append(name)
        return made

    def _freeze(self) -> None:
        encoder, table, frozen = self.network.encoder, self.network.table.weight, self.stage.freeze
        table_is_frozen = bool(frozen) or encoder.frozen
        table.requires_grad_(not table_is_frozen)
        encoder.requires_grad_("encoder" not in frozen)
        for name in self.network.towers:
            tower = self.network.tower(name)
            tower.summed = None
            if table_is_frozen:
                tower.sum_once(table)

    def _objective(self) -> Objective:
        stage = self.stage
        inputs = ObjectiveInputs(self.network, self.data.labels, self.plan.contrast, self.plan.clusters, self.clusters, self.device)
        objective = stage.objective.build(inputs)
        if not stage.glas_weight or not stage.objective.learns_labels:
            return objective
        return WithGlas(objective, symmetric_cooccurrence(self.data.labels, delta=0.0).weights, stage.glas_weight)

    # ---- rows of an epoch

    def _epoch(self, epoch: int) -> EpochRows:
        """The rows of an epoch, with the hard negatives and groups that are found for them."""
        stage, data = self.stage, self.stage_data
        self.negatives.refresh(self._view(), epoch)
        targets = stage.objective.target_names
        if data.changes:
            rows = self.rows.made(data, self.number, epoch, targets, self.clusters)
        else:
            rows = self.rows.static(data, targets, self.clusters)
        groups = self.negatives.groups
        if groups is not None and rows.source is not None:  # rows made anew are in the group of the row that they were made from
            groups = groups[rows.source]
        return replace(rows, candidates=self.negatives.for_batch, groups=groups)

    def _view(self) -> StageView:
        def static_rows() -> EpochRows:
            return self.rows.static(self.stage_data, ("labels",), None)

        return StageView(self.network, self.pace, self.data.n_labels, self.seed, static_rows, self.cluster_index, self.centroids)

    # ---- clusters and centroids

    def clustered(self, by: str) -> Clusters:
        """Labels in clusters by "features", "vectors" or "texts", with the token vectors as they are now."""
        return LabelClustering(self.plan.clusters, self.data, self.stage_data, self.network.table, self.seed).clusters(by)

    @torch.no_grad()
    def centroids(self) -> Tensor:
        """(n_labels, dim): the mean embedding of each label's training rows, of unit length (Astec)."""
        rows = self.rows.static(self.stage_data, ("labels",), None)
        places = torch.arange(len(rows), device=self.device).split(ROWS_AT_ONCE)
        encoded = torch.cat([self.network.encode(rows.tokens.take(part), context=rows.context(part)) for part in places])
        labels = csr_matrix(self.stage_data.augmented.split.labels.T)
        sums = np.asarray(labels @ functional.normalize(encoded, dim=1).cpu().numpy())
        return functional.normalize(torch.from_numpy(sums.astype(np.float32)), dim=1).to(self.device)

    @torch.no_grad()
    def cluster_index(self) -> ClusterIndex:
        """From embeddings of texts to labels, by clusters as they are learnt now."""
        assert self.clusters is not None
        settings, graph = self.plan.clusters, None
        vectors, bias = self.network.all_label_vectors("clusters")
        members = member_table(self.clusters.members.labels, self.clusters.members.offsets, self.device)
        if settings.game:
            assert self.data.graph is not None
            weights = self.clusters.meta_graph(self.data.graph.weights)
            graph = Neighbours.of(weights, GAME_NEIGHBOURS, self.device, settings.game)
        return ClusterIndex(vectors, bias, members, graph, settings.beam)

    # ---- checkpoints

    def _state(self, callbacks: RunCallbacks, position: Position) -> Saved:
        """Everything that a resumed run needs."""
        groups = {"network": self.network.state_dict(), "random": random_state()}
        if self.number < len(self.plan.stages):  # a network that is done is not trained any more
            assert self.optimizer is not None and self.objective is not None
            groups |= {"optimizer": self.optimizer.state(), "objective": self.objective.state(), "negatives": self.negatives.state()}
        if self.clusters is not None:
            groups["clusters"] = {"of_label": torch.from_numpy(self.clusters.of_label)}
        known = callbacks.state(position)
        tensors = {f"{group}/{name}": tensor for group, own in groups.items() for name, tensor in own.items()}
        notes = {**known.notes, "stage": self.number, "epoch": position.epoch, "step": position.step}
        return Saved(tensors | known.tensors, notes)

    def _load(self, saved: Saved) -> None:
        """A network whose training had ended."""
        self.network.load_state_dict(saved.group("network"))
        self.number = len(self.plan.stages) - 1
        self._freeze()
        set_random_state(saved.group("random"))


def _optimizer(network: Network, stage: Stage) -> Adam:
    """Adam over what the stage trains; parameters of other towers are left alone."""
    left_alone = (*(f"towers.{name}." for name in network.towers if name not in stage.objective.towers), "cluster_encoder.")
    trained = [
        (name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad and not name.startswith(left_alone)
    ]
    factors, momenta = {}, {}
    for name, _ in trained:
        if stage.encoder_rate is not None and not name.startswith("towers."):
            faster = PROJECTIONS_FASTER if name.startswith("encoder.projections.") else 1
            factors[name] = stage.encoder_rate / stage.learning_rate * faster
        elif stage.momentum and name.startswith("towers."):
            momenta[name] = stage.momentum
    return Adam(trained, factors, momenta)


@torch.no_grad()
def _warn_if_alike(network: Network, n_labels: int, stage: int, callbacks: Callbacks) -> None:
    """An encoder that gives all texts the same vector has learnt nothing, and nothing that is built on it can."""
    if "labels" not in network.towers or network.tower("labels").sequences is None:
        return
    some = torch.linspace(0, n_labels - 1, SAMPLE, device=network.table.weight.device).long().unique()
    vectors = functional.normalize(network.label_vectors("labels", some)[0].float(), dim=1)
    cosine = float(vectors.mean(dim=0).square().sum())
    if len(some) > 1 and cosine > ALIKE:
        alike = f"After stage {stage + 1} all label texts have nearly the same vector (mean cosine {cosine:.3f})"
        callbacks.log(f"{alike}: nothing was learnt. Try loss=semi-hard, or a smaller learning_rate.")


def _start_table(table: Table, encoder: Encoder, data: TrainingData) -> None:
    """Start token vectors at pretrained ones, where there are some: those of the encoder, or those of a file."""
    own = encoder.take_token_vectors(len(table.weight))
    if own is not None:
        with torch.no_grad():
            table.weight[0].zero_()
            table.weight[1:] = own
        return
    if data.start_vectors is None:
        return
    vectors, found = data.start_vectors
    width = min(vectors.shape[1], table.weight.shape[1])
    scaled = vectors[found][:, :width] * (float(table.weight.detach().std()) / max(float(vectors[found].std()), 1e-9))
    with torch.no_grad():
        table.weight[torch.from_numpy(np.flatnonzero(found)), :width] = torch.from_numpy(scaled)
