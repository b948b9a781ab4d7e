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
from longtail.inference.ensemble import NAMED, Voice, evidence, hear, named_by, predict
from longtail.inference.scorer import Ranker
from longtail.inference.stacking_weights import Reals, fitted_weights
from longtail.models.ragged import RaggedRows
from longtail.tokens.tokenizer import Tokenizer

BETAS = tuple(round(0.1 * step, 1) for step in range(11))
WEIGHED_BY = ("P@1", "P@5", "PSP@1", "PSP@5")
LEAST_SHARE = 0.03  # of the spread of the sum of all heads: a head below it is left out
CALIBRATED = 10  # labels of a validation row that the chances of one network are fitted to
Bools = NDArray[np.bool_]


def judged(voices: list[Voice], held_out: Dataset, device: torch.device, ks: tuple[int, ...]) -> dict[str, float]:
    """Metrics on validation rows, which are the test rows of `held_out`."""
    assert held_out.test.texts is not None
    extra = 0 if held_out.test.filter is None else most_filtered(held_out.test.filter, len(held_out.test))
    found = predict(voices, held_out.test.texts, min(held_out.n_labels, 10 + extra), device)
    return evaluate(found, held_out, resamples=0, ks=ks).metrics


def weighed_heads(ranker: Ranker, tokenizer: Tokenizer, held_out: Dataset, device: torch.device) -> Ranker:
    """With the share of the classifier that is best on validation rows, and the curve from scores to chances that fits them."""
    reached = {}
    for beta in BETAS:
        metrics = judged([Voice(tokenizer, [replace(ranker, beta=beta)])], held_out, device, (1, 5))
        reached[beta] = sum(metrics[name] for name in (WEIGHED_BY if len(ranker.heads) > 1 else ("P@1", "P@5")))
    ranker = replace(ranker, beta=max(reached, key=lambda beta: reached[beta]))
    if not ranker.chances or len(ranker.heads) == 1 or ranker.way != "all":
        return ranker
    assert held_out.test.texts is not None
    tokens = tokenizer(held_out.test.texts)
    rows = RaggedRows(tokens.ids, tokens.weights, tokens.offsets, device)
    ids, scores = (part.cpu().numpy() for part in ranker.scored(rows, min(CALIBRATED, held_out.n_labels)))
    right, counted = _right(held_out, ids)
    slope, offset = fitted(scores[counted].astype(np.float64), right[counted])
    return replace(ranker, slope=slope, offset=offset)


def weighed(voices: list[Voice], held_out: Dataset, device: torch.device) -> list[Voice]:
    """With the weights of all heads of all voices under which right labels of validation rows stand before wrong ones, the rarer the
    more, and the curve from the sum to chances."""
    assert held_out.test.texts is not None
    texts, k = held_out.test.texts, min(NAMED, held_out.n_labels)
    heard = [hear(voice, texts, k, device) for voice in voices]
    ids = named_by(heard)
    by_voice: list[list[Reals]] = []
    for voice, own in zip(voices, heard, strict=True):
        if len(voice.rankers[0].heads) == 1:
            by_voice.append([evidence(own, ids).double().numpy()])
            continue
        alone = [replace(voice, rankers=[replace(ranker, beta=beta) for ranker in voice.rankers]) for beta in (0.0, 1.0)]
        by_voice.append([evidence(hear(head, texts, 1, device), ids).double().numpy() / 2 for head in alone])  # its share is then 2
    scores = np.stack([head for own in by_voice for head in own], axis=2)
    right, counted = _right(held_out, ids.numpy())
    weights = _fitted(scores, right, counted, np.sqrt(_inverse_propensity(held_out))[ids.clamp(min=0).numpy()])
    slope, offset = fitted((scores @ weights)[counted], right[counted])
    made = []
    for voice, own_weights in zip(voices, np.split(slope * weights, np.cumsum([len(own) for own in by_voice])[:-1]), strict=True):
        rankers = voice.rankers
        if len(own_weights) == 2 and own_weights.any():
            rankers = [replace(ranker, beta=float(own_weights[1] / own_weights.sum())) for ranker in rankers]
        made.append(replace(voice, rankers=rankers, weight=float(own_weights.mean())))
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
