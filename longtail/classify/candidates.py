"""Scores and targets of a shortlist per row, on the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longtail.classify.fused import matrix_type
from longtail.encode.batch import TokenBatch, distinct_ids, row_of_each

NOTHING = -1  # an empty place of a shortlist


@dataclass(frozen=True)
class Candidates:
    """A shortlist per row, sorted by label."""

    labels: Tensor  # (m,) every label that any row names, once each
    places: Tensor  # (b, n): place in `labels`
    targets: Tensor  # (b, n): relevance
    counted: Tensor  # (b, n): false where a place is empty or a repeat


def with_targets(shortlist: Tensor, targets: TokenBatch, n_labels: int, add_missed: bool = True) -> Candidates:
    """Look up which of the candidates are right.

    Args:
        shortlist: (b, n) label ids, -1 for an empty place.
        targets: the right labels of each row, sorted, and their relevance.
        add_missed: put right labels that the shortlist lacks beside it; without this they are not learnt from.
    """
    rows = row_of_each(targets)
    if add_missed:
        shortlist = torch.cat([shortlist, padded(targets)], dim=1)
    shortlist = torch.sort(shortlist, dim=1).values
    counted = shortlist != NOTHING
    counted[:, 1:] &= shortlist[:, 1:] != shortlist[:, :-1]
    right = rows * n_labels + targets.ids  # (t,) sorted: rows in order, labels sorted within
    asked = torch.arange(len(shortlist), device=shortlist.device)[:, None] * n_labels + shortlist
    relevance = torch.zeros(shortlist.shape, dtype=torch.float32, device=shortlist.device)
    if len(right):
        place = torch.searchsorted(right, asked).clamp_(max=len(right) - 1)
        relevance = torch.where((right[place] == asked) & counted, targets.weights[place], relevance)
    if shortlist.numel():  # an empty place stands for a label that is named anyway: what nobody names must not be updated
        shortlist = torch.where(shortlist == NOTHING, shortlist.amax().clamp(min=0), shortlist)
    labels, places = distinct_ids(shortlist, n_labels)
    return Candidates(labels, places, relevance, counted)


def padded(rows: TokenBatch) -> Tensor:
    """(b, longest row): ragged ids with -1 in empty places."""
    lengths = rows.offsets[1:] - rows.offsets[:-1]
    longest = int(lengths.max()) if len(lengths) else 0
    found = torch.full((len(lengths), longest), NOTHING, dtype=torch.int64, device=rows.ids.device)
    row = row_of_each(rows)
    found[row, torch.arange(len(rows.ids), device=row.device) - rows.offsets[row]] = rows.ids
    return found


def scores_of(text: Tensor, vectors: Tensor, bias: Tensor | None, places: Tensor) -> Tensor:
    """(b, n) scores of each row's own candidates.

    All rows are scored against all labels of the batch and the wanted scores picked: far more products than needed, but one
    large matrix product runs so much faster than gathered ones that it is the quicker way, on CPUs and GPUs alike.
    """
    kind = matrix_type(text.device)
    scores = (text.to(kind) @ vectors.to(kind).T).float()
    found = torch.gather(scores, 1, places)
    return found if bias is None else found + bias[places]
