"""Searched towers: the sets of label vectors that a text is compared with, and how their scores are added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class SearchedTower:
    """One set of label vectors that is searched, and how it enters the score of a label.

    Args:
        name: "labels" or "classifiers".
        scale: factor of cosines, which texts and labels of length 1 give; 0 takes products of the vectors as they are.
        share: factor of this tower's scores in the sum over all towers.
    """

    name: str
    scale: float = 0.0
    share: float = 1.0

    def search_vector(self, projected: Tensor) -> Tensor:
        """(b, dim): projections of texts, (b, dim), such that their products with label vectors are this tower's part of the scores."""
        if self.scale > 0:
            # explanations take the length as given: then the score is linear in the tokens
            projected = projected / projected.detach().norm(dim=1, keepdim=True).clamp(min=1e-12)
        factor = self.share * (self.scale or 1.0)
        return projected if factor == 1.0 else projected * factor


def search_vectors(towers: Sequence[SearchedTower], project: Callable[[str], Tensor]) -> Tensor:
    """(b, dim of all towers): the vectors that texts are searched with, concatenated so that one product adds up the towers' scores.

    Args:
        project: the name of a tower -> (b, dim) projections of the texts for it.
    """
    parts = [tower.search_vector(project(tower.name)) for tower in towers]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def with_shares(towers: tuple[SearchedTower, ...], beta: float) -> tuple[SearchedTower, ...]:
    """Two towers of which the second has this share of the sum; both together count twice, so that at 0.5 scores are added as they are."""
    first, second = towers
    return replace(first, share=2 * (1 - beta)), replace(second, share=2 * beta)
