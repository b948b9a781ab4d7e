"""A trained model taken apart: metrics of each of its parts alone, and the lengths of the parts of its label vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from longtail.core.values import Dataset
from longtail.data.frequency import equal_volume_bins
from longtail.estimator import XMC
from longtail.evaluation.evaluate import evaluate
from longtail.evaluation.predictions import most_filtered
from longtail.experiments.compare.cells import KEPT_PLACES
from longtail.inference.ensemble import Member, predict
from longtail.inference.label_parts import tower_parts_of

N_BINS = 5
MAX_MEASURED_LABELS = 1 << 16  # whose vectors are taken apart


def ablation_metrics(model: XMC, data: Dataset) -> dict[str, dict[str, float]]:
    """Metrics of each part that can predict alone: members of the ensemble, towers of label vectors, all labels in place of clusters."""
    assert model.trained is not None and data.test.texts is not None
    members = model.trained.members
    ablations: dict[str, list[Member]] = {}
    if len(members) > 1:
        for place, member in enumerate(members):
            ablations[member.name if member.name not in ablations else f"{member.name} ({place + 1})"] = [member]
    first = members[0].scorers
    if len(first[0].towers) == 2:
        for beta, tower in enumerate(first[0].towers):
            ablations[tower.name] = [replace(members[0], scorers=[scorer.with_beta(float(beta)) for scorer in first])]
    if not first[0].retrieval.scores_all_labels:
        ablations["all labels"] = [replace(members[0], scorers=[scorer.by("all") for scorer in first])]
    extra = 0 if data.test.filter is None else most_filtered(data.test.filter, len(data.test))
    k = min(data.n_labels, KEPT_PLACES + extra)
    predictions = {name: predict(members, data.test.texts, k, model.device) for name, members in ablations.items()}
    return {name: evaluate(found, data, resamples=0).metrics for name, found in predictions.items()}


def part_lengths(model: XMC, data: Dataset) -> list[dict[str, float]]:
    """Mean length of each part of the label vectors as it enters them (attention x length, ECLARE's figure 9), by bin of label frequency.

    Empty where label vectors have one part.
    """
    assert model.trained is not None
    counts = np.bincount(data.train.labels.indices, minlength=data.n_labels)
    bins = equal_volume_bins(counts, N_BINS)
    measured = np.unique(np.linspace(0, data.n_labels - 1, min(data.n_labels, MAX_MEASURED_LABELS)).astype(np.int64))
    for tower in tower_parts_of(model.trained, 0):
        if len(tower.part_names) < 2:
            continue
        table = []
        for number in range(N_BINS):
            labels = measured[bins[measured] == number]
            if not len(labels):
                continue
            parts = tower.contributions(tower.parts_of_labels(torch.from_numpy(labels).to(model.device)))
            lengths = {name: float(part.norm(dim=1).mean()) for name, part in zip(tower.part_names, parts, strict=True)}
            table.append({"bin": number + 1, "labels": len(labels), "points_per_label": float(counts[labels].mean()), **lengths})
        return table
    return []
