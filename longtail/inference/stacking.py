"""Stacking: weights of towers and of an ensemble's members, chosen by what they reach on validation rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.core.values import Dataset, Texts
from longtail.data.matrices import pairs_to_csr
from longtail.evaluation.evaluate import evaluate, propensity_constants
from longtail.evaluation.metrics import inverse_propensity
from longtail.evaluation.predictions import most_filtered
from longtail.inference.calibration import fit_platt
from longtail.inference.ensemble import MIN_CANDIDATES, Member, candidates_of, evidence, predict, retrieve
from longtail.inference.retrieval import Retrieved
from longtail.inference.scorer import Scorer
from longtail.inference.stacking_weights import Reals, fit_stacking_weights
from longtail.tokens.tokenizer import Tokenizer

BETAS = tuple(round(0.1 * step, 1) for step in range(11))
TOWERS_BY, FUSED_BY = ("P@1", "P@5", "PSP@1", "PSP@5"), ("P@1", "P@5")  # metrics whose sum chooses beta
MIN_SHARE = 0.03  # of the spread of the weighted sum: a tower below it gets the weight 0
CALIBRATED_LABELS = 10  # of a validation row, that the probabilities of one network are fitted to
Bools = NDArray[np.bool_]


def validation_metrics(members: Sequence[Member], held_out: Dataset, device: torch.device, ks: tuple[int, ...]) -> dict[str, float]:
    """Metrics on validation rows, which are the test rows of `held_out`."""
    assert held_out.test.texts is not None
    extra = 0 if held_out.test.filter is None else most_filtered(held_out.test.filter, len(held_out.test))
    found = predict(members, held_out.test.texts, min(held_out.n_labels, 10 + extra), device)
    return evaluate(found, held_out, resamples=0, ks=ks).metrics


def with_tower_weights(scorer: Scorer, tokenizer: Tokenizer, held_out: Dataset, device: torch.device) -> Scorer:
    """The scorer with the beta that is best on validation rows; scores of two towers are calibrated to be log-odds again."""
    chosen_by = TOWERS_BY if len(scorer.towers) > 1 else FUSED_BY
    reached = {}
    for beta in BETAS:
        metrics = validation_metrics([Member(tokenizer, [scorer.with_beta(beta)])], held_out, device, (1, 5))
        reached[beta] = sum(metrics[name] for name in chosen_by)
    scorer = scorer.with_beta(max(reached, key=lambda beta: reached[beta]))
    if scorer.gives_cosines or len(scorer.towers) == 1 or not scorer.retrieval.scores_all_labels:
        return scorer
    assert held_out.test.texts is not None
    tokens = tokenizer(held_out.test.texts).to(device)
    ids, scores = (part.cpu().numpy() for part in scorer.top_scores(tokens, min(CALIBRATED_LABELS, held_out.n_labels)))
    right, counted = _right(held_out, ids)
    slope, offset = fit_platt(scores[counted].astype(np.float64), right[counted])
    return replace(scorer, slope=slope, offset=offset)


def with_stacking_weights(members: Sequence[Member], held_out: Dataset, device: torch.device) -> list[Member]:
    """The members with stacking weights: under these, right labels of validation rows come before wrong ones, the rarer the more.

    Each tower of each member has a weight of its own. The weighted sum is calibrated to be the log-odds of a label.
    """
    assert held_out.test.texts is not None
    texts, k = held_out.test.texts, min(MIN_CANDIDATES, held_out.n_labels)
    retrieved = [retrieve(member, texts, k, device) for member in members]
    ids = candidates_of(retrieved)
    scores = [_scores_by_tower(member, own, ids, texts, device) for member, own in zip(members, retrieved, strict=True)]
    together = np.concatenate(scores, axis=2)
    right, counted = _right(held_out, ids.numpy())
    worth = np.sqrt(_inverse_propensity(held_out))[ids.clamp(min=0).numpy()]
    weights = _without_idle(together, right, counted, worth)
    slope, offset = fit_platt((together @ weights)[counted], right[counted])
    ends = np.cumsum([own.shape[2] for own in scores])
    weighted = [_weighted(member, own) for member, own in zip(members, np.split(slope * weights, ends[:-1]), strict=True)]
    weighted[0] = replace(weighted[0], offset=offset)
    return weighted


def _scores_by_tower(member: Member, retrieved: Sequence[Retrieved], ids: Tensor, texts: Texts, device: torch.device) -> Reals:
    """(n, m, towers): the evidence of each tower of a member for the labels `ids`, (n, m)."""
    if len(member.scorers[0].towers) == 1:
        return evidence(retrieved, ids).double().numpy()[..., None]
    towers = [replace(member, scorers=[scorer.with_beta(beta) for scorer in member.scorers]) for beta in (0.0, 1.0)]
    # a tower that stands alone has the share 2
    scores: Reals = np.stack([evidence(retrieve(tower, texts, 1, device), ids).double().numpy() / 2 for tower in towers], axis=2)
    return scores


def _without_idle(scores: Reals, right: Bools, counted: Bools, worth: Reals) -> Reals:
    """Stacking weights of the towers; 0 for those that hardly count, which then need not be asked."""
    weights = fit_stacking_weights(scores, right, counted, worth)
    spread = weights * scores[counted].std(axis=0)
    kept = spread >= MIN_SHARE * spread.sum()
    if not kept.all():
        weights = np.zeros_like(weights)
        weights[kept] = fit_stacking_weights(scores[..., kept], right, counted, worth)
    return weights


def _weighted(member: Member, weights: Reals) -> Member:
    """The member with the weights of its towers, (towers,)."""
    scorers = member.scorers
    if len(weights) == 2 and weights.any():
        scorers = [scorer.with_beta(float(weights[1] / weights.sum())) for scorer in scorers]
    return replace(member, scorers=scorers, weight=float(weights.mean()))


def _right(held_out: Dataset, ids: NDArray[np.int64]) -> tuple[Bools, Bools]:
    """Which of the labels (n, m) found for validation rows are right, and which are either right or wrong: filtered ones are neither."""
    pairs = np.repeat(np.arange(len(ids)), ids.shape[1]), np.maximum(ids, 0).ravel()
    counted = ids >= 0
    right = np.asarray(held_out.test.labels[pairs]).reshape(ids.shape) > 0
    if held_out.test.filter is not None:
        counted &= np.asarray(pairs_to_csr(held_out.test.filter, held_out.test.labels.shape)[pairs]).reshape(ids.shape) == 0
    return right & counted, counted


def _inverse_propensity(held_out: Dataset) -> Reals:
    counts = np.bincount(held_out.train.labels.indices, minlength=held_out.n_labels)
    return inverse_propensity(counts, len(held_out.train), *propensity_constants(held_out.name))
