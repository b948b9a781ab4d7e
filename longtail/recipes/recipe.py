"""A recipe: the settings of every part of a system, and whether they fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from longtail.core.checks import Settings
from longtail.core.errors import SettingError
from longtail.models.encoders.base import EncoderSettings
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.tokens.tokenizer import TokenSettings
from longtail.training.negatives.base import NegativeSettings
from longtail.training.plan import TrainingPlan
from longtail.training.settings import ClusterSettings, Contrast
from longtail.training.stage import Stage


@dataclass(frozen=True)
class Needs:
    """Requirements of a way to find labels."""

    takes_two_towers: bool = False
    clusters: bool = False
    centroids: bool = False


RETRIEVALS = {"all": Needs(takes_two_towers=True), "clusters": Needs(clusters=True), "fused": Needs(centroids=True)}


@dataclass(frozen=True)
class PredictSettings(Settings):
    """How labels are found.

    Args:
        by: score "all" labels; those of the best "clusters"; or "fused" with the nearest label centroids.
        towers: which label vectors are searched: "labels", "classifiers", or both side by side. The weight of the second is chosen on
            validation rows, where there are some; otherwise both count the same.
        unit: cosines decide, also where training used products (UniDEC).
    """

    by: Literal["all", "clusters", "fused"] = "all"
    towers: tuple[Literal["labels", "classifiers"], ...] = ("labels",)
    unit: bool = False

    def check(self) -> None:
        if not self.towers or len(set(self.towers)) < len(self.towers):
            raise SettingError(f"predict.towers came as {list(self.towers)}; wanted labels, classifiers or both, each once.")


@dataclass(frozen=True)
class Recipe:
    """A system, put together from parts.

    Args:
        name: name of the recipe: that of its file.
        about: one line of what it is.
        tokens: the table [tokens].
        encoder: the table [encoder].
        labels: the table [labels]: what label vectors are made of.
        classifiers: the table [classifiers]: a second tower of label vectors.
        contrast: the table [contrast].
        negatives: the table [negatives]: where hard negatives come from.
        graph: the table [graph]: kind and settings of the label graph; None for none.
        clusters: the table [clusters].
        predict: the table [predict].
        stages: the tables [[stages]], in their order.
        ensemble: networks that are trained with different seeds and whose scores are averaged.
        validation: share of the training rows that is held out, for stacking weights, calibration and early stopping.
        patience: epochs without a better validation after which a stage of labels ends; 0 trains all epochs.
        vectors: pretrained token vectors to start from: a word2vec or GloVe file, or "wordllama".
        augment: the augmentation of the training rows; that of the run where None.
        members: other members of the ensemble, each a recipe of its own. Their scores are added up with stacking weights, which are
            learned on validation rows.
        tables: as a TOML file holds them, to be saved with a model.
    """

    name: str
    about: str
    tokens: TokenSettings
    encoder: EncoderSettings
    labels: LabelVectors
    classifiers: LabelVectors
    contrast: Contrast
    negatives: NegativeSettings
    graph: Mapping[str, Any] | None
    clusters: ClusterSettings
    predict: PredictSettings
    stages: tuple[Stage, ...]
    ensemble: int = 1
    validation: float = 0.0
    patience: int = 0
    vectors: str | None = None
    augment: str | None = None
    members: tuple[Recipe, ...] = ()
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def plan(self) -> TrainingPlan:
        """The plan that each network is trained by."""
        return TrainingPlan(self.encoder, self.labels, self.classifiers, self.contrast, self.negatives, self.clusters, self.stages)

    @property
    def all_members(self) -> tuple[Recipe, ...]:
        """This recipe, then the others."""
        return (self, *self.members)

    @property
    def towers(self) -> set[str]:
        """Names of all towers that any stage trains."""
        return {tower for stage in self.stages for tower in stage.objective.towers}

    @property
    def needs_graph(self) -> bool:
        """Whether any part is made of the label graph."""
        parts = [self.labels.parts, self.clusters.parts or (), *(stage.parts or () for stage in self.stages)]
        return self.labels.needs_graph or self.clusters.smooth or self.clusters.game > 0 or any("graph" in part for part in parts)

    @property
    def needs_label_texts(self) -> bool:
        """Whether any part is made of label texts."""
        parts = [self.classifiers.parts, self.clusters.parts, *(stage.parts for stage in self.stages)]
        by_texts = any(stage.objective.needs_label_texts for stage in self.stages)
        return self.labels.needs_text or by_texts or any(replace(self.labels, parts=part).needs_text for part in parts if part is not None)

    def label_vectors(self, tower: str) -> LabelVectors:
        """The settings of a tower's label vectors, as the last stage that trains it has them."""
        if tower == "classifiers":
            return self.classifiers
        parts = [stage.parts for stage in self.stages if tower in stage.objective.towers][-1:]
        return self.labels if not parts or parts[0] is None else replace(self.labels, parts=parts[0])

    def check(self, where: str) -> None:
        """Raise where settings of several tables contradict each other."""
        for check in CHECKS:
            problem = check(self)
            if problem is not None:
                raise SettingError(f"{where}: {problem}.")


# ---- what may contradict each other


def _stages_have_what_they_need(recipe: Recipe) -> str | None:
    has_clusters = is_learnt = False
    for place, stage in enumerate(recipe.stages):
        objective = stage.objective
        has_clusters |= objective.makes_clusters_by is not None
        if objective.searches_clusters and not has_clusters:
            return f'stages.{place} learns clusters, but no stage up to it makes them; wanted cluster_by = "features"'
        if objective.needs_shortlists and not recipe.negatives.gives_shortlists:
            return f'stages.{place} scores shortlists, and [negatives] gives none; wanted kind = "clusters" or "nearest-centroids"'
        if objective.needs_shortlists and recipe.negatives.searches_clusters and not is_learnt:
            return f"stages.{place} takes shortlists from clusters, but no stage before it learns them"
        if "classifiers" in objective.towers and "classifiers" not in recipe.tables:
            return f"stages.{place} learns classifiers, and there is no [classifiers] table to say what they are made of"
        is_learnt |= "clusters" in objective.towers
    if not recipe.stages[-1].objective.learns_labels:
        return 'the last stage learns clusters; wanted one that learns labels, such as objective = "all-labels"'
    return None


def _graph_is_there(recipe: Recipe) -> str | None:
    if recipe.needs_graph and recipe.graph is None:
        return "label vectors, clusters.smooth or clusters.game need a graph, and there is no [graph] table"
    return None


def _prediction_is_possible(recipe: Recipe) -> str | None:
    predict = recipe.predict
    if "classifiers" in predict.towers and "classifiers" not in recipe.towers:
        return 'predict.towers names classifiers, but no stage learns them; wanted one with tower = "classifiers", or objective = "joint"'
    needs = RETRIEVALS[predict.by]
    if len(predict.towers) > 1 and not needs.takes_two_towers:
        return f'predict.by = "{predict.by}" searches one set of label vectors; wanted predict.by = "all" for two towers'
    if needs.clusters and "clusters" not in recipe.towers:
        return f'predict.by = "{predict.by}", but no stage learns clusters'
    if needs.centroids and not recipe.negatives.has_centroids:
        return f'predict.by = "{predict.by}" searches label centroids; wanted negatives.kind = "nearest-centroids" with it'
    return None


def _top_is_sound(recipe: Recipe) -> str | None:
    if recipe.ensemble < 1:
        return f"ensemble came as {recipe.ensemble}; wanted 1 or more"
    if not 0 <= recipe.validation < 1:
        return f"validation came as {recipe.validation}; wanted a share from 0 to below 1"
    if recipe.patience < 0:
        return f"patience came as {recipe.patience}; wanted 0 or more"
    if recipe.patience and not recipe.validation:
        return "patience ends a stage by its validation rows, and there are none; wanted validation = 0.1 or so with it"
    if recipe.tables.get("members") and not recipe.validation:
        return "members are stacked with weights from validation rows, and there are none; wanted validation = 0.05 or so, or members = []"
    return None


def _tokens_fit_the_encoder(recipe: Recipe) -> str | None:
    if recipe.tokens.has_bigrams and recipe.encoder.reads_order:
        return "the encoder reads words in their order, where bigrams have no place; wanted ngrams = 1"
    return None


def _something_learns(recipe: Recipe) -> str | None:
    labels = recipe.labels
    nothing_else = labels.is_encoded and len(labels.parts) == 1 and not labels.bias and len(recipe.stages) == 1
    if nothing_else and not recipe.encoder.learns:
        return "the encoder is frozen, and nothing behind it learns; wanted encoder.adapter = 1024 or so, or labels with free vectors"
    return None


CHECKS: tuple[Callable[[Recipe], str | None], ...] = (
    _stages_have_what_they_need,
    _graph_is_there,
    _prediction_is_possible,
    _top_is_sound,
    _tokens_fit_the_encoder,
    _something_learns,
)
