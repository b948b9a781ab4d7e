"""Cross-entropies over many labels in chunks, with gradients written by hand: no rows x labels matrix is ever kept.

Autograd would keep the scores, their sigmoid and the targets, each rows x labels, until the backward pass. The gradient of binary
cross-entropy in a score is sigmoid(score) - target, so scores, loss and both products with it can be had chunk by chunk in one go. That of
softmax cross-entropy is share x sum of targets - target, where the share needs the sum over all labels: where these do not fit a chunk,
scores are computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from longtail.core.kernels.cross_entropy import all_wrong, log_sums, to_shares
from longtail.core.kernels.machine import has_bfloat16_units
from longtail.models.bits import numbers_of
from longtail.models.label_rows import LabelRows
from longtail.models.top_k import best_places

CHUNK_NUMBERS = 1 << 25  # scores that exist at a time: 64 MB in bfloat16


def matrix_type(device: torch.device) -> torch.dtype:
    """The precision of products of large matrices: bfloat16 where the hardware has units for it.

    On a CPU with such units a product is more than twice as fast, and the rounding is far below the noise of the batches.
    """
    if device.type == "cuda" or (device.type == "cpu" and has_bfloat16_units()):
        return torch.bfloat16
    return torch.float32


def precision(device: torch.device) -> AbstractContextManager[object]:
    """Products in bfloat16 where the hardware has units for it; sums, norms and what is learnt stay in float32."""
    kind = matrix_type(device)
    return nullcontext() if kind is torch.float32 else torch.autocast(device.type, dtype=kind)


def all_labels_bce(
    text: Tensor,
    vectors: Tensor,
    bias: Tensor | None,
    targets: LabelRows,
    row_weights: Tensor,
    max_scores: int = CHUNK_NUMBERS,
    best: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy summed over all labels, averaged over rows.

    Args:
        text: (b, dim).
        vectors: (m, dim), of every label that is scored.
        bias: (m,) or None.
        targets: places in `vectors` and their relevance, row by row; what is not named is wrong.
        row_weights: (b,): how much a row counts.
        max_scores: scores that exist at a time; the chunk of labels follows from it.
        best: (b, n) int64 on a CPU, to be filled with the labels of each row that score highest, right ones before others; all labels
            are scored at a time then.
    """
    max_scores = max_scores if best is None else len(text) * len(vectors)
    return _AllLabels.loss(text, vectors, bias, targets, row_weights, max_scores, best, False)


def all_labels_softmax(
    text: Tensor, vectors: Tensor, bias: Tensor | None, targets: LabelRows, row_weights: Tensor, max_scores: int = CHUNK_NUMBERS
) -> Tensor:
    """Softmax cross-entropy summed over the right labels of a row, averaged over rows: sum_p y_p (log sum_l e^s_l - s_p).

    Arguments as those of `all_labels_bce`.
    """
    return _AllLabels.loss(text, vectors, bias, targets, row_weights, max_scores, None, True)


ALL_LABELS: dict[str, Callable[..., Tensor]] = {"bce": all_labels_bce, "softmax": all_labels_softmax}


class _AllLabels(torch.autograd.Function):
    @classmethod
    def loss(
        cls,
        text: Tensor,
        vectors: Tensor,
        bias: Tensor | None,
        targets: LabelRows,
        row_weights: Tensor,
        max_scores: int,
        best: Tensor | None,
        softmax: bool,
    ) -> Tensor:
        pairs = (targets.ids, targets.row_of_each(), targets.relevance)
        found: Tensor = cls.apply(text, vectors, bias, *pairs, row_weights, max_scores, best, softmax)
        return found

    @staticmethod
    def forward(
        ctx: Any,
        text: Tensor,
        vectors: Tensor,
        bias: Tensor | None,
        labels: Tensor,  # (n,) of each right pair
        rows: Tensor,  # (n,)
        relevance: Tensor,  # (n,)
        row_weights: Tensor,
        max_scores: int,
        best: Tensor | None,
        softmax: bool,
    ) -> Tensor:
        n_rows, n_labels = len(text), len(vectors)
        kind = matrix_type(text.device)
        small = text.to(kind)
        scale = row_weights / n_rows
        text_gradient = torch.zeros(text.shape, dtype=torch.float32, device=text.device)
        vector_gradient = torch.empty(vectors.shape, dtype=torch.float32, device=text.device)
        bias_gradient = None if bias is None else torch.empty(bias.shape, dtype=torch.float32, device=text.device)
        loss = torch.zeros((), device=text.device)
        chunk = max(1, min(n_labels, max_scores // n_rows))
        one_chunk = chunk >= n_labels
        if not one_chunk:
            labels, order = torch.sort(labels)
            rows, relevance = rows[order], relevance[order]
            bounds = torch.searchsorted(labels, torch.arange(0, n_labels + chunk, chunk, device=text.device)).tolist()
        sums = None  # (b,): the logarithm of what each row's shares are parts of
        wanted = torch.zeros(n_rows, device=text.device).index_add_(0, rows, relevance) if softmax else None  # (b,)
        if wanted is not None and not one_chunk:
            of_chunks = [
                _log_sums(small @ vectors[start : start + chunk].to(kind).T, None if bias is None else bias[start : start + chunk])
                for start in range(0, n_labels, chunk)
            ]
            sums = torch.stack(of_chunks).logsumexp(dim=0)
        for number, start in enumerate(range(0, n_labels, chunk)):
            part = vectors[start : start + chunk].to(kind)  # (c, dim)
            scores = small @ part.T  # (b, c)
            right = slice(None) if one_chunk else slice(bounds[number], bounds[number + 1])
            where = (rows[right], labels[right] - start)
            value, shift = relevance[right], None if bias is None else bias[start : start + chunk]
            if wanted is not None:
                sums = _log_sums(scores, shift) if sums is None else sums
                loss -= ((scores[where].float() + (0 if shift is None else shift[where[1]])) * value * row_weights[where[0]]).sum()
                error = _shares(scores, shift, sums, wanted * scale)
                # a row names a label once, so no pair is met twice
                error.index_put_(where, (error[where].float() - value * scale[where[0]]).to(kind))
            elif text.device.type == "cpu":
                if best is not None:
                    best.copy_(_best(scores, shift, where, best.shape[1]))
                loss += _swept(scores, shift, where, value, row_weights)
                error = scores
            else:
                if shift is not None:
                    scores += shift.to(kind)
                picked = scores[where].float()
                cost = functional.softplus(scores.float())
                error = scores.sigmoid_()
                loss += (cost.sum(dim=1) * row_weights).sum() - (picked * value * row_weights[where[0]]).sum()
                error.index_put_(where, error[where] - value.to(kind))  # a row names a label once, so no pair is met twice
                error *= scale.to(kind)[:, None]
            text_gradient += error @ part
            vector_gradient[start : start + chunk] = error.T @ small
            if bias_gradient is not None:
                bias_gradient[start : start + chunk] = error.sum(dim=0, dtype=torch.float32)
        if wanted is not None and sums is not None:
            loss += (wanted * sums * row_weights).sum()
        ctx.save_for_backward(text_gradient, vector_gradient, bias_gradient)
        ctx.types = text.dtype, vectors.dtype
        return loss / n_rows

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        (scale,) = above
        text_gradient, vector_gradient, bias_gradient = ctx.saved_tensors
        return (
            (text_gradient * scale).to(ctx.types[0]),
            vector_gradient.mul_(scale).to(ctx.types[1]),
            None if bias_gradient is None else bias_gradient * scale,
            *[None] * 7,
        )


def _swept(scores: Tensor, shift: Tensor | None, where: tuple[Tensor, Tensor], value: Tensor, row_weights: Tensor) -> Tensor:
    """On a CPU: the loss, summed over rows; scores become the gradient of its mean over rows in them. One pass instead of seven."""
    added = _as_numbers(shift, scores.shape[1])
    scale = row_weights / len(scores)
    picked = scores[where].float() + torch.from_numpy(added)[where[1]]
    wrong = torch.from_numpy(all_wrong(numbers_of(scores), added, scale.numpy()))
    # a row names a label once, so no pair is met twice
    scores.index_put_(where, (scores[where].float() - value * scale[where[0]]).to(scores.dtype))
    return (wrong.float() * row_weights).sum() - (picked * value * row_weights[where[0]]).sum()


def _log_sums(scores: Tensor, shift: Tensor | None) -> Tensor:
    """(b,): the logarithm of the sum of e^score over the labels of a chunk."""
    if scores.device.type == "cpu":
        return torch.from_numpy(log_sums(numbers_of(scores), _as_numbers(shift, scores.shape[1])))
    return (scores.float() if shift is None else scores.float() + shift).logsumexp(dim=1)


def _shares(scores: Tensor, shift: Tensor | None, sums: Tensor, factors: Tensor) -> Tensor:
    """(b, c): the share of each label times the row's factor; on a CPU in the place of the scores."""
    if scores.device.type == "cpu":
        to_shares(numbers_of(scores), _as_numbers(shift, scores.shape[1]), sums.numpy(), factors.float().numpy())
        return scores
    found = scores.float() if shift is None else scores.float() + shift
    return found.sub_(sums[:, None]).exp_().mul_(factors[:, None]).to(scores.dtype)


def _as_numbers(shift: Tensor | None, n: int) -> NDArray[np.float32]:
    """(n,): what is added to scores, for kernels that always add."""
    found: NDArray[np.float32] = (torch.zeros(n) if shift is None else shift.detach().float()).numpy()
    return found


def _best(scores: Tensor, shift: Tensor | None, where: tuple[Tensor, Tensor], k: int) -> Tensor:
    """(b, k): the places with the highest scores, right ones before others."""
    found = scores.clone() if shift is None else scores + shift.to(scores.dtype)
    found.index_put_(where, torch.full_like(found[where], torch.inf))
    return best_places(found, k)[0]
