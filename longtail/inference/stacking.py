"""WEIGH: what heads of a network and recipes beside each other count, by what they reach on validation rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.core.values import Dataset
from longtail.data.matrices import pairs_to_csr
from longtail.evaluation.evaluate import evaluate, propensity_constants
from longtail.evaluation.metrics import inverse_propensity
from longtail.evaluation.predictions import most_filtered
from longtail.inference.calibration import fitted
from longtail.inference.ensemble import NAMED, Member, evidence, named_by, predict, retrieve
from longtail.inference.scorer import Scorer
from longtail.inference.stacking_weights import Reals, fitted_weights
from longtail.models.ragged import RaggedRows
from longtail.tokens.tokenizer import Tokenizer

BETAS = tuple(round(0.1 * step, 1) for step in range(11))
WEIGHED_BY = ("P@1", "P@5", "PSP@1", "PSP@5")
LEAST_SHARE = 0.03  # of the spread of the sum of all heads: a head below it is left out
CALIBRATED = 10  # labels of a validation row that the chances of one network are fitted to
Bools = NDArray[np.bool_]


def validation_metrics(members: list[Member], held_out: Dataset, device: torch.device, ks: tuple[int, ...]) -> dict[str, float]:
    """Metrics on validation rows, which are the test rows of `held_out`."""
    assert held_out.test.texts is not None
    extra = 0 if held_out.test.filter is None else most_filtered(held_out.test.filter, len(held_out.test))
    found = predict(members, held_out.test.texts, min(held_out.n_labels, 10 + extra), device)
    return evaluate(found, held_out, resamples=0, ks=ks).metrics


def with_tower_weights(scorer: Scorer, tokenizer: Tokenizer, held_out: Dataset, device: torch.device) -> Scorer:
    """With the share of the classifier that is best on validation rows, and the curve from scores to chances that fits them."""
    reached = {}
    for beta in BETAS:
        metrics = validation_metrics([Member(tokenizer, [replace(scorer, beta=beta)])], held_out, device, (1, 5))
        reached[beta] = sum(metrics[name] for name in (WEIGHED_BY if len(scorer.towers) > 1 else ("P@1", "P@5")))
    scorer = replace(scorer, beta=max(reached, key=lambda beta: reached[beta]))
    if not scorer.chances or len(scorer.towers) == 1 or scorer.way != "all":
        return scorer
    assert held_out.test.texts is not None
    tokens = tokenizer(held_out.test.texts)
    rows = RaggedRows(tokens.ids, tokens.weights, tokens.offsets, device)
    ids, scores = (part.cpu().numpy() for part in scorer.scored(rows, min(CALIBRATED, held_out.n_labels)))
    right, counted = _right(held_out, ids)
    slope, offset = fitted(scores[counted].astype(np.float64), right[counted])
    return replace(scorer, slope=slope, offset=offset)


def with_stacking_weights(members: list[Member], held_out: Dataset, device: torch.device) -> list[Member]:
    """With the weights of all heads of all voices under which right labels of validation rows stand before wrong ones, the rarer the
    more, and the curve from the sum to chances."""
    assert held_out.test.texts is not None
    texts, k = held_out.test.texts, min(NAMED, held_out.n_labels)
    retrieved = [retrieve(member, texts, k, device) for member in members]
    ids = named_by(retrieved)
    by_voice: list[list[Reals]] = []
    for member, own in zip(members, retrieved, strict=True):
        if len(member.scorers[0].towers) == 1:
            by_voice.append([evidence(own, ids).double().numpy()])
            continue
        alone = [replace(member, scorers=[replace(scorer, beta=beta) for scorer in member.scorers]) for beta in (0.0, 1.0)]
        by_voice.append([evidence(retrieve(tower, texts, 1, device), ids).double().numpy() / 2 for tower in alone])  # its share is then 2
    scores = np.stack([tower for own in by_voice for tower in own], axis=2)
    right, counted = _right(held_out, ids.numpy())
    weights = _fitted(scores, right, counted, np.sqrt(_inverse_propensity(held_out))[ids.clamp(min=0).numpy()])
    slope, offset = fitted((scores @ weights)[counted], right[counted])
    made = []
    for member, own_weights in zip(members, np.split(slope * weights, np.cumsum([len(own) for own in by_voice])[:-1]), strict=True):
        scorers = member.scorers
        if len(own_weights) == 2 and own_weights.any():
            scorers = [replace(scorer, beta=float(own_weights[1] / own_weights.sum())) for scorer in scorers]
        made.append(replace(member, scorers=scorers, weight=float(own_weights.mean())))
    made[0] = replace(made[0], offset=offset)
    return made


def _fitted(scores: Reals, right: Bools, counted: Bools, worth: Reals) -> Reals:
    """Weights of the heads; 0 for those that hardly count, which then need not be asked."""
    weights = fitted_weights(scores, right, counted, worth)
    counts = weights * scores[counted].std(axis=0)
    kept = counts >= LEAST_SHARE * counts.sum()
    if not kept.all():
        weights = np.zeros_like(weights)
        weights[kept] = fitted_weights(scores[..., kept], right, counted, worth)
    return weights


def _right(held_out: Dataset, ids: NDArray[np.int64]) -> tuple[Bools, Bools]:
    """Which of the labels (n, m) named for validation rows are right, and which are either right or wrong: filtered ones are neither."""
    pairs = np.repeat(np.arange(len(ids)), ids.shape[1]), np.maximum(ids, 0).ravel()
    counted = ids >= 0
    right = np.asarray(held_out.test.labels[pairs]).reshape(ids.shape) > 0
    if held_out.test.filter is not None:
        counted &= np.asarray(pairs_to_csr(held_out.test.filter, held_out.test.labels.shape)[pairs]).reshape(ids.shape) == 0
    return right & counted, counted


def _inverse_propensity(held_out: Dataset) -> Reals:
    counts = np.bincount(held_out.train.labels.indices, minlength=held_out.n_labels)
    return inverse_propensity(counts, len(held_out.train), *propensity_constants(held_out.name))
