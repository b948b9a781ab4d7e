"""Ways to put the weights of a graph on a common scale."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

ROUNDS = 1000  # of the power iteration, at most
CLOSE = 1e-10
TELEPORT = 0.01  # share of a step that goes anywhere, so that one stationary distribution exists


def square_root(weights: csr_matrix) -> csr_matrix:
    """A^-1/2 W B^-1/2 with A and B the sums of rows and columns: favours edges of rare labels (ECLARE)."""
    rows, columns = _sums(weights)
    return _scaled(weights, 1 / np.sqrt(_no_zero(rows)), 1 / np.sqrt(_no_zero(columns)))


def diagonal(weights: csr_matrix) -> csr_matrix:
    """Each row divided by its own label's weight, which becomes 1: how LabelMix uses the walk graph.

    A row without its own label stays as it is.
    """
    return _scaled(weights, 1 / _no_zero(weights.diagonal().astype(np.float64)), np.ones(weights.shape[0]))


def perron(weights: csr_matrix) -> csr_matrix:
    """(Φ^1/2 P Φ^-1/2 + Φ^-1/2 P' Φ^1/2) / 2, symmetric: ECLARE's variant PN, after Chung (2005).

    P are the rows, each divided by its sum; Φ is the Perron vector of P: where a walk along P is found in the long run. A graph
    in several pieces has no single one, so a hundredth of every step goes to a label at random while Φ is computed.
    """
    rows, _ = _sums(weights)
    steps = _scaled(weights, 1 / _no_zero(rows), np.ones(len(rows)))
    root = np.sqrt(perron_vector(steps))
    half = _scaled(steps, root, 1 / _no_zero(root))
    return csr_matrix((half + half.T) / 2, dtype=np.float32)


def perron_vector(steps: csr_matrix) -> NDArray[np.float64]:
    """The stationary distribution of a walk whose steps are the rows, with a little teleportation; sums to 1."""
    n_labels = steps.shape[0]
    if not n_labels:
        return np.zeros(0)
    backwards = csr_matrix(steps.T, dtype=np.float64)
    found = np.full(n_labels, 1 / n_labels)
    for _ in range(ROUNDS):
        moved = (1 - TELEPORT) * (backwards @ found)
        moved += (1 - moved.sum()) / n_labels
        change = np.abs(moved - found).sum()
        found = moved
        if change < CLOSE:
            break
    return found


def _sums(weights: csr_matrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of rows and of columns."""
    values = weights.data.astype(np.float64)
    owners = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    rows, columns = np.bincount(owners, values, weights.shape[0]), np.bincount(weights.indices, values, weights.shape[1])
    return rows.astype(np.float64, copy=False), columns.astype(np.float64, copy=False)


def _scaled(weights: csr_matrix, rows: NDArray[np.float64], columns: NDArray[np.float64]) -> csr_matrix:
    """Each weight times its row's and its column's factor."""
    values = np.repeat(rows, np.diff(weights.indptr))
    values *= columns[weights.indices]
    values *= weights.data
    return csr_matrix((values.astype(np.float32), weights.indices, weights.indptr), shape=weights.shape)


def _no_zero(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Factors of empty rows and columns do not matter; 1 keeps them from being infinite."""
    return np.where(values > 0, values, 1.0)


def _unchanged(weights: csr_matrix) -> csr_matrix:
    return weights


NORMALISERS: dict[str, Callable[[csr_matrix], csr_matrix]] = {
    "square-root": square_root,
    "perron": perron,
    "diagonal": diagonal,
    "none": _unchanged,
}
