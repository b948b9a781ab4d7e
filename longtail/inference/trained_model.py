"""Trained model: the members, labels and graph that answer, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtail.core.values import LabelGraph, Offsets, Texts
from longtail.inference.ensemble import Ensemble, Member
from longtail.inference.scorer import Scorer
from longtail.inference.search.all_labels import AllLabels
from longtail.inference.search.labels import Index
from longtail.tokens.tokenizer import Tokenizer

# the place of a network in the model, and a tower's name -> weights of that tower, as it was trained; None where nobody has kept them
TowerWeights = Callable[[int, str], Mapping[str, Tensor] | None]


@dataclass(frozen=True)
class TrainedModel:
    """A trained model. Changes make a new one, so that whoever answers with the old one goes on undisturbed.

    Args:
        label_counts: (n_labels,) training rows of each label.
        about: data, counts, seeds, seconds: the table of the model card.
        history: loss, validation and seconds of every epoch.
        folder: where it is saved.
        index: of the concatenated label vectors of all networks, where these are concatenated.
        tower_weights: reads what label vectors were made of, for explanations and new labels; predictions do not need it.
    """

    members: list[Member]
    label_texts: Texts | None
    label_counts: Offsets
    graph: LabelGraph | None
    about: dict[str, Any]
    history: list[dict[str, Any]]
    folder: Path | None = None
    index: Index | None = None
    tower_weights: TowerWeights | None = None

    @cached_property
    def ensemble(self) -> Ensemble:
        return Ensemble(self.members, self.index)

    def ensemble_by(self, by: str) -> Ensemble:
        """The ensemble with another retrieval in all networks: "all", "clusters" or "fused"."""
        if all(scorer.retrieval.name == by for scorer in self.scorers):
            return self.ensemble
        return Ensemble([replace(member, scorers=[scorer.by(by) for scorer in member.scorers]) for member in self.members], self.index)

    @property
    def scorers(self) -> list[Scorer]:
        """The networks of all members."""
        return [scorer for member in self.members for scorer in member.scorers]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the first member."""
        return self.members[0].tokenizer

    @property
    def all_labels(self) -> AllLabels | None:
        """Search of all labels, concatenated where there are several networks; None where labels are found in another way."""
        if self.ensemble.concatenated is not None:
            return self.ensemble.concatenated.all_labels
        first = self.scorers[0]
        return first.all_labels if len(self.scorers) == 1 and first.retrieval.scores_all_labels else None

    @property
    def removed(self) -> Offsets:
        """Ids of labels that are never named."""
        mask = self.scorers[0].removed
        return np.zeros(0, np.int64) if mask is None else torch.nonzero(mask).flatten().cpu().numpy()

    def without(self, labels: Offsets) -> TrainedModel:
        """The model that never names these labels again; all others keep their ids."""
        gone = torch.from_numpy(labels).to(self.scorers[0].vectors.device)
        members = [replace(member, scorers=[scorer.without(gone) for scorer in member.scorers]) for member in self.members]
        return replace(self, members=members)

    def without_zero_weight_members(self) -> TrainedModel:
        """The model without members of weight 0. The first stays in any case: the model is called by its name."""
        kept = [place for place, member in enumerate(self.members) if place == 0 or member.weight > 0]
        if len(kept) in (1, len(self.members)):  # the weight of a member alone is not used: its probabilities would not be the sum's
            return self
        first = replace(self.members[0], offset=sum(member.offset for member in self.members))
        members = [first, *(replace(self.members[place], offset=0.0) for place in kept[1:])]
        about = {**self.about, "networks": sum(len(member.scorers) for member in members)}
        return replace(self, members=members, about=about)
