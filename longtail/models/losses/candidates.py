"""Scores, targets and loss of a shortlist per row, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numba import get_num_threads
from torch import Tensor
from torch.nn import functional

from longtail.core.kernels.shortlists import WIDTH, label_gradients, merged, shortlist_errors
from longtail.models.bits import numbers_of
from longtail.models.label_rows import LabelRows
from longtail.models.losses.all_labels import matrix_type
from longtail.tokens.ragged import distinct_ids

NOTHING = -1  # an empty place of a shortlist
PAIR_COST = 5  # how much longer a CPU takes over one pair than over one of the pairs of a large matrix product


@dataclass(frozen=True)
class Candidates:
    """A shortlist per row, sorted by label."""

    labels: Tensor  # (m,) every label that any row names, once each
    places: Tensor  # (b, n): place in `labels`
    targets: Tensor  # (b, n): relevance
    counted: Tensor  # (b, n): false where a place is empty or a repeat


def with_targets(shortlist: Tensor, targets: LabelRows, n_labels: int) -> Candidates:
    """Look up which of the candidates are right, and add the right labels that the shortlist lacks.

    Args:
        shortlist: (b, n) label ids, -1 for an empty place.
        targets: the right labels of each row, sorted, and their relevance.
    """
    if shortlist.device.type != "cpu":
        return with_targets_anywhere(shortlist, targets, n_labels)
    arrays = (tensor.numpy() for tensor in (shortlist, targets.ids, targets.relevance, targets.offsets))
    labels, places, relevance, counts = map(torch.from_numpy, merged(*arrays, n_labels, get_num_threads()))
    return Candidates(labels, places, relevance, torch.arange(places.shape[1]) < counts[:, None])


def with_targets_anywhere(shortlist: Tensor, targets: LabelRows, n_labels: int) -> Candidates:
    """The same by torch alone."""
    rows = targets.row_of_each()
    shortlist = torch.sort(torch.cat([shortlist, padded(targets)], dim=1), dim=1).values
    counted = shortlist != NOTHING
    counted[:, 1:] &= shortlist[:, 1:] != shortlist[:, :-1]
    right = rows * n_labels + targets.ids  # (t,) sorted: rows in order, labels sorted within
    asked = torch.arange(len(shortlist), device=shortlist.device)[:, None] * n_labels + shortlist
    relevance = torch.zeros(shortlist.shape, dtype=torch.float32, device=shortlist.device)
    if len(right):
        place = torch.searchsorted(right, asked).clamp_(max=len(right) - 1)
        relevance = torch.where((right[place] == asked) & counted, targets.relevance[place], relevance)
    if shortlist.numel():  # an empty place stands for a label that is named anyway: what nobody names must not be updated
        shortlist = torch.where(shortlist == NOTHING, shortlist.amax().clamp(min=0), shortlist)
    labels, places = distinct_ids(shortlist, n_labels)
    return Candidates(labels, places, relevance, counted)


def padded(rows: LabelRows) -> Tensor:
    """(b, longest row): ragged ids with -1 in empty places."""
    lengths = rows.offsets[1:] - rows.offsets[:-1]
    longest = int(lengths.max()) if len(lengths) else 0
    found = torch.full((len(lengths), longest), NOTHING, dtype=torch.int64, device=rows.ids.device)
    row = rows.row_of_each()
    found[row, torch.arange(len(rows.ids), device=row.device) - rows.offsets[row]] = rows.ids
    return found


def scores_of(text: Tensor, vectors: Tensor, bias: Tensor | None, places: Tensor) -> Tensor:
    """(b, n) scores of each row's own candidates.

    All rows are scored against all labels of the batch and the wanted scores picked: far more products than needed, but one
    large matrix product runs so much faster than gathered ones that it is the quicker way on a GPU, and on a CPU where labels
    are few.
    """
    kind = matrix_type(text.device)
    scores = (text.to(kind) @ vectors.to(kind).T).float()
    found = torch.gather(scores, 1, places)
    return found if bias is None else found + bias[places]


def pairs_are_quicker(candidates: Candidates, device: torch.device) -> bool:
    """Whether `shortlist_bce` takes less time than `scores_of` and what autograd makes of it."""
    n_rows, n_candidates = candidates.places.shape
    return device.type == "cpu" and PAIR_COST * n_candidates < len(candidates.labels) and n_rows > 0


def shortlist_bce(text: Tensor, vectors: Tensor, bias: Tensor | None, candidates: Candidates, row_weights: Tensor) -> Tensor:
    """Binary cross-entropy summed over each row's own candidates, averaged over rows; on a CPU, with candidates from `with_targets`.

    Args:
        text: (b, dim).
        vectors: (m, dim) of `candidates.labels`.
        bias: (m,) or None.
        row_weights: (b,): how much a row counts.
    """
    found: Tensor = _ShortlistBCE.apply(text, vectors, bias, candidates, row_weights)
    return found


class _ShortlistBCE(torch.autograd.Function):
    """Pair by pair on a CPU, with the gradient written by hand as in `all_labels`."""

    @staticmethod
    def forward(ctx: Any, text: Tensor, vectors: Tensor, bias: Tensor | None, candidates: Candidates, row_weights: Tensor) -> Tensor:
        dim = text.shape[1]
        small = _filled_up(vectors, matrix_type(text.device))
        wide = _filled_up(text, torch.float32).numpy()
        places, counts = candidates.places.numpy(), candidates.counted.sum(dim=1).numpy()
        loss, text_gradient, errors = shortlist_errors(
            wide,
            numbers_of(small),
            (torch.zeros(len(vectors)) if bias is None else bias.detach().float()).numpy(),
            places,
            candidates.targets.numpy(),
            counts,
            (row_weights / len(text)).numpy(),
        )
        vector_gradient, bias_gradient = label_gradients(wide, places, errors, counts, len(vectors), dim)
        ctx.save_for_backward(*map(torch.from_numpy, (text_gradient[:, :dim], vector_gradient, bias_gradient)))
        ctx.types, ctx.has_bias = (text.dtype, vectors.dtype), bias is not None
        return torch.tensor(loss.sum(), dtype=torch.float32)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *above: Any) -> Any:
        (scale,) = above
        text_gradient, vector_gradient, bias_gradient = ctx.saved_tensors
        return (
            (text_gradient * scale).to(ctx.types[0]),
            vector_gradient.mul_(scale).to(ctx.types[1]),
            bias_gradient * scale if ctx.has_bias else None,
            None,
            None,
        )


def _filled_up(rows: Tensor, kind: torch.dtype) -> Tensor:
    """(n, dim) with zeros behind, up to the width of the kernels."""
    return functional.pad(rows.detach().to(kind), (0, -rows.shape[1] % WIDTH)).contiguous()
