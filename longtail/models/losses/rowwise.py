"""One function per loss: (scores, targets, counted) -> a value per row.

`scores` is (b, m), divided by a temperature already where one is used. `targets` is (b, m) in [0, 1]: a positive is a target above 0, and
a mean over positives weighs each by its share of the row's relevance. `counted` is (b, m), false where a place is empty or a repeat: such a
place takes no part; None counts all. But for `bce`, a row without a positive costs 0 and moves nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from longtail.core.errors import SettingError


def bce(scores: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    """Binary cross-entropy, summed over a row's candidates: softplus(s) - s y."""
    scores = _filled(scores, counted, 0.0)
    each = functional.softplus(scores) - scores * targets  # (b, m)
    return _filled(each, counted, 0.0).sum(dim=1)


def sup_con(scores: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    """Softmax cross-entropy with every positive right: - mean_p log(e^s_p / sum_l e^s_l).

    The sum runs over all places, so positives of one row compete with each other (Khosla et al. 2020, Supervised Contrastive Learning).
    """
    log_chance = functional.log_softmax(_filled(scores, counted, _lowest(scores)), dim=1)  # (b, m)
    return -(_shares(targets, counted) * log_chance).sum(dim=1)


def softmax(scores: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    """Softmax cross-entropy of every positive, added up: - sum_p y_p log(e^s_p / sum_l e^s_l).

    What `sup_con` is a mean of: here a row counts by how many positives it has, as it does in `bce`.
    """
    log_chance = functional.log_softmax(_filled(scores, counted, _lowest(scores)), dim=1)  # (b, m)
    return -(_filled(targets, counted, 0.0) * log_chance).sum(dim=1)


def info_nce(scores: Tensor, targets: Tensor, counted: Tensor | None = None, *, generator: torch.Generator | None = None) -> Tensor:
    """One positive against everything else: - log(e^s_p / sum_l e^s_l), p drawn from the row's positives.

    van den Oord et al. 2018, Representation Learning with Contrastive Predictive Coding; for retrieval Karpukhin et al. 2020, Dense Passage
    Retrieval for Open-Domain Question Answering. The positives that were not drawn stay in the sum, as negatives.
    """
    return sup_con(scores, pick_one(_filled(targets, counted, 0.0), generator), counted)


def pick_one(targets: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(b, m): 1 at one positive of each row, drawn in proportion to relevance; a row without a positive stays empty."""
    # a race: the time to an event of rate r is -log(u) / r, and the first to come is each with probability r / sum r
    uniform = torch.rand(targets.shape, generator=generator, dtype=targets.dtype, device=targets.device)
    speed = targets / -uniform.clamp_(min=torch.finfo(targets.dtype).tiny).log_()  # (b, m) 0 where there is no positive
    first = speed.topk(min(1, speed.shape[1]), dim=1).indices
    return torch.zeros_like(targets).scatter_(1, first, 1.0) * (targets > 0)


def decoupled_softmax(scores: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    """Each positive competes with the negatives alone: - mean_p log(e^s_p / (e^s_p + sum_n e^s_n)), n a negative.

    Gupta et al. 2024, Dual-Encoders for Extreme Multi-Label Classification (DEXML).
    """
    against = scores.masked_fill(~_negatives(targets, counted), _lowest(scores)).logsumexp(dim=1, keepdim=True)  # (b, 1)
    return (_shares(targets, counted) * functional.softplus(against - _filled(scores, counted, 0.0))).sum(dim=1)


def triplet(
    scores: Tensor,
    targets: Tensor,
    counted: Tensor | None = None,
    *,
    margin: float = 0.3,
    negatives: int = 10,
    temperature: float | None = 0.1,
) -> Tensor:
    """A positive leads the hardest negatives by a margin: mean_p sum_n w_n max(0, margin + s_n - s_p), with w = softmax(s_n / temperature).

    Dahiya et al. 2023, NGAME: Negative Mining-aware Mini-batching for Extreme Classification. The weights are taken as given: no gradient
    runs through them.

    Args:
        scores: cosines.
        negatives: how many of a row's negatives, those with the highest scores.
        temperature: of the weights; None weighs these negatives alike.
    """
    if negatives < 1:
        raise SettingError(f"negatives={negatives} leaves nothing to learn from; give negatives=1 or more.")
    hardest, there = _hardest(scores, targets, counted, negatives)  # (b, k) each
    logits = torch.zeros_like(hardest) if temperature is None else hardest.detach() / temperature
    weights = logits.masked_fill(~there, _lowest(logits)).softmax(dim=1)
    # only as many places as the longest row has positives: (b, m, k) would be nearly all waste
    shares = _shares(targets, counted)
    longest = int((shares > 0).sum(dim=1).max()) if shares.numel() else 0
    shares, places = shares.topk(longest, dim=1)  # (b, p) each
    positives = _filled(scores, counted, 0.0).gather(1, places)
    behind = functional.relu(margin + hardest[:, None, :] - positives[:, :, None])  # (b, p, k)
    return (shares * (behind * weights[:, None, :]).sum(dim=2)).sum(dim=1)


def semi_hard(scores: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    """`triplet` over the hardest of those negatives that stand behind the row's first positive.

    Where nearly all right labels stand behind wrong ones, as they do when texts and labels share few words, the cheapest way to make the
    hardest negatives less hard is to give every text the same vector. Negatives that lead already are what drives it; without them the
    encoder sorts first what it can tell apart (Schroff et al. 2015, FaceNet).
    """
    right = scores.detach().masked_fill(_filled(targets, counted, 0.0) <= 0, _lowest(scores))
    first = right.topk(min(1, right.shape[1]), dim=1).values  # (b, 1)
    fair = (targets > 0) | (scores.detach() < first)
    return triplet(scores, targets, fair if counted is None else fair & counted)


def probabilistic_contrastive(scores: Tensor, targets: Tensor, counted: Tensor | None = None, *, c: float = 0.9, d: float = 1.5) -> Tensor:
    """A label is right with chance c e^(d (cos - 1)): mean_p (d (1 - s_p) - log c) - log(1 - c e^(d (s_n - 1))), n the hardest negative.

    Dahiya et al. 2021, SiameseXML: Siamese Networks meet Extreme Classifiers with 100M Labels.

    Args:
        scores: cosines; what rounding put above 1 counts as 1.
        c: chance at cosine 1, between 0 and 1.
        d: how fast the chance falls with the cosine.
    """
    if not 0 < c < 1:
        raise SettingError(f"c={c} is no chance that both a right and a wrong label may have; give one between 0 and 1, such as c=0.9.")
    shares = _shares(targets, counted)
    scores = _filled(scores, counted, 0.0).clamp(max=1.0)
    right = (shares * (d * (1 - scores) - math.log(c))).sum(dim=1)
    hardest, _ = _hardest(scores, targets, counted, 1)  # (b, 1), so low where there is none that its term is 0
    wrong = -torch.log1p(-c * torch.exp(d * (hardest - 1))).sum(dim=1)
    return right + wrong * (shares > 0).any(dim=1)


def soft_top_k(
    scores: Tensor, targets: Tensor, counted: Tensor | None = None, *, k: int = 5, alpha: float = 2.0, steps: int = 32
) -> Tensor:
    """Positives among the k best: - mean_p log sigmoid(alpha (s_p - t)), with t such that sum_l sigmoid(alpha (s_l - t)) = k.

    Gupta et al. 2024, Dual-Encoders for Extreme Multi-Label Classification (DEXML). A row of at most k places has all of them
    among the k best and costs 0.

    Args:
        k: how many places there are among the best.
        alpha: how sharp their edge is.
        steps: bisections in the search for t.
    """
    if k < 1:
        raise SettingError(f"k={k} leaves no place for a positive; give k=1 or more.")
    scores = _filled(scores, counted, 0.0)
    if scores.shape[1] <= k:
        return (scores * 0.0).sum(dim=1)
    sizes = torch.full_like(scores[:, :1], scores.shape[1]) if counted is None else counted.sum(dim=1, keepdim=True).to(scores.dtype)
    threshold = _soft_threshold(scores, counted, sizes, k, alpha, steps)  # (b, 1)
    log_chance = functional.logsigmoid(alpha * (scores - threshold)).masked_fill(sizes <= k, 0.0)  # (b, m)
    return -(_shares(targets, counted) * log_chance).sum(dim=1)


def _lowest(scores: Tensor) -> float:
    """Stands for the score of a place that takes no part. Not -inf: a row of nothing else would become NaN."""
    return torch.finfo(scores.dtype).min


def _filled(values: Tensor, counted: Tensor | None, value: float) -> Tensor:
    """The value where a place is not counted."""
    return values if counted is None else values.masked_fill(~counted, value)


def _shares(targets: Tensor, counted: Tensor | None) -> Tensor:
    """(b, m): each positive's share of its row's relevance; 0 elsewhere."""
    relevance = _filled(targets, counted, 0.0)
    total = relevance.sum(dim=1, keepdim=True)
    return relevance / total.masked_fill(total == 0, 1.0)


def _negatives(targets: Tensor, counted: Tensor | None) -> Tensor:
    """(b, m): true at the counted places that are not right."""
    return targets <= 0 if counted is None else (targets <= 0) & counted


def _hardest(scores: Tensor, targets: Tensor, counted: Tensor | None, n: int) -> tuple[Tensor, Tensor]:
    """(b, k) highest scores of negatives, and (b, k) false where a row has no more of them; k is n, or m where that is less.

    Where there is none, the score is the lowest there is.
    """
    negative = _negatives(targets, counted)
    found = scores.masked_fill(~negative, _lowest(scores)).topk(min(n, scores.shape[1]), dim=1).values
    there = torch.arange(found.shape[1], device=found.device) < negative.sum(dim=1, keepdim=True)
    return found, there


def _soft_threshold(scores: Tensor, counted: Tensor | None, sizes: Tensor, k: int, alpha: float, steps: int) -> Tensor:
    """(b, 1): t with sum_l sigmoid(alpha (s_l - t)) = k in every row of more than k places, differentiable; anything finite in other rows.

    Args:
        scores: (b, m), finite also where they are not counted.
        sizes: (b, 1) counted places of each row.
    """
    with torch.no_grad():
        rest = _filled(scores, counted, _lowest(scores))
        best, places = rest.topk(k + 1, dim=1)
        # at `low` the k + 1 best make up k by themselves; at `high` all but the k - 1 best make up 1 at the most
        low = best[:, k:] - math.log(k) / alpha
        high = best[:, k - 1 : k] + (sizes - k).log() / alpha
        best, rest = best[:, :k], rest.scatter(1, places[:, :k], _lowest(scores))
        for _ in range(steps):
            middle = (low + high) / 2
            # sum > k, where what the others have exceeds what the k best lack. As logarithms: between scores that lie far apart the sum is
            # k in all digits, and t would stop anywhere
            had = functional.logsigmoid(alpha * (rest - middle)).logsumexp(dim=1, keepdim=True)
            lacked = functional.logsigmoid(alpha * (middle - best)).logsumexp(dim=1, keepdim=True)
            low, high = torch.where(had > lacked, middle, low), torch.where(had > lacked, high, middle)
        threshold = ((low + high) / 2).masked_fill(sizes <= k, 0.0)
        # implicit function theorem: dt/ds_l = g_l / sum g, with g the slope of the sigmoid at s_l
        distance = alpha * (scores - threshold)
        log_slope = functional.logsigmoid(distance) + functional.logsigmoid(-distance)
        pull = _filled(log_slope, counted, _lowest(scores)).softmax(dim=1)  # (b, m)
    return threshold + (pull * (scores - scores.detach())).sum(dim=1, keepdim=True)  # adds 0, and the gradient
