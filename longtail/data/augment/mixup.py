"""MixUp, Manifold MixUp and Label-MixUp: convex combinations of vectors and of their targets.

They act on vectors, so a trainer calls them as hooks: `draw` says who is mixed with whom and by how much, as a function of
seed and step only, and the returned value mixes arrays of NumPy or torch and csr targets. Rows that bring features, such as
tf-idf, can also be mixed beforehand with `augment`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, issparse
from scipy.special import betaincinv

from longtail.core.checks import Positive, Range, Settings, ShareBelowOne
from longtail.core.errors import DataError, SettingError
from longtail.core.values import Ints, LabelGraph, Split, Texts
from longtail.data.augment.draws import uniforms
from longtail.data.augment.labelmix import pick_labels
from longtail.data.augment.rows import Augmented, check_labels, with_made_rows
from longtail.data.augment.targets import label_targets

SHARE, PARTNER, LAYER = 2, 3, 4  # draws, apart from those of the other augmentations
Alpha = Annotated[float, Range(least=0, above=True, such_as=0.2)]


@dataclass(frozen=True, eq=False)
class Mix:
    """Who is mixed with whom: share * own + (1 - share) * partner."""

    partner: NDArray[np.int64]  # (n,): places in the batch
    share: NDArray[np.float64]  # (n,) in [0, 1]

    def vectors(self, own: Any, others: Any = None) -> Any:
        """Mix rows of a NumPy array, a csr matrix or a torch tensor; `others` is where partners stand, the batch itself by default."""
        others = own if others is None else others
        if issparse(own):
            return csr_matrix(diags(self.share) @ own + diags(1 - self.share) @ others[self.partner], dtype=own.dtype)
        if isinstance(own, np.ndarray):
            share = self.share.astype(own.dtype).reshape(-1, *[1] * (own.ndim - 1))
            return share * own + (1 - share) * others[self.partner]
        share = own.new_tensor(self.share).reshape(-1, *[1] * (own.ndim - 1))  # torch, which is not imported here
        return share * own + (1 - share) * others[self.partner]

    def targets(self, own: csr_matrix, others: csr_matrix | None = None) -> csr_matrix:
        """Mix targets in the same shares; a share of 0 leaves nothing behind."""
        mixed: csr_matrix = self.vectors(own, others)
        mixed.eliminate_zeros()
        mixed.sort_indices()
        np.minimum(mixed.data, 1.0, out=mixed.data)  # rounding may pass 1
        return mixed


@dataclass(frozen=True)
class MixUp(Settings):
    """Each row of a batch with another one, at the input: Zhang et al. 2018.

    Args:
        alpha: shares come from Beta(alpha, alpha); small ones leave rows nearly alone.
        each_row: a share for every row instead of one for the batch.

    >>> mix = MixUp(alpha=0.2).draw(3, seed=0, step=5)
    >>> mix.vectors(np.eye(3)).sum(axis=1).tolist()
    [1.0, 1.0, 1.0]
    """

    changes: ClassVar[bool] = True

    alpha: Alpha = 0.2
    each_row: bool = False

    def draw(self, n_rows: int, seed: int, step: int) -> Mix:
        """Who is mixed with whom in this step."""
        places = np.arange(n_rows)
        shares = _shares(self.alpha, uniforms(seed, step, places if self.each_row else np.zeros(n_rows, np.int64), SHARE))
        return Mix(np.argsort(uniforms(seed, step, places, PARTNER), kind="stable"), shares)

    def augment(self, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """All training rows, and behind them as many mixed ones. Texts cannot be mixed and are left out."""
        return self._made(train, train, 0, seed)

    def for_epoch(self, epoch: int, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """Mixed rows only, as many as `train` has."""
        return self._made(train, train.rows(np.arange(0)), epoch, seed)

    def _made(self, train: Split, originals: Split, epoch: int, seed: int) -> Augmented:
        features = _features(train, "MixUp")
        rows = np.arange(len(train), dtype=np.int32)
        mix = replace(self, each_row=True).draw(len(train), seed, epoch)
        made = Split(None, mix.targets(train.labels), features=mix.vectors(features))
        return with_made_rows(originals, rows[: len(originals)], made, rows, "mixup")


@dataclass(frozen=True)
class ManifoldMixUp(Settings):
    """MixUp of hidden vectors: in each step at one layer out of the first `layers`, drawn at random (Verma et al. 2019).

    The trainer asks `layer` where, and mixes what enters that layer (0 is the input) and the targets by `draw`.

    Args:
        alpha: shares come from Beta(alpha, alpha).
        layers: layers to draw from.

    >>> mixup = ManifoldMixUp(alpha=2.0, layers=3)
    >>> sorted({mixup.layer(seed=0, step=step) for step in range(20)})
    [0, 1, 2]
    """

    alpha: Alpha = 2.0
    layers: Positive = 2

    def layer(self, seed: int, step: int) -> int:
        """Where to mix in this step."""
        return int(uniforms(seed, step, np.zeros(1, np.int64), LAYER)[0] * self.layers)

    def draw(self, n_rows: int, seed: int, step: int) -> Mix:
        """Who is mixed with whom in this step."""
        return MixUp(self.alpha).draw(n_rows, seed, step)


@dataclass(frozen=True)
class LabelMixUp(Settings):
    """Each row's vector with the vector of one of its labels' texts, targets in the same shares.

    Args:
        alpha: shares come from Beta(alpha, alpha).
        soft: the label's targets are those of its Gandalf row, from a graph; without it, its own label only.
        delta: for soft targets.
    """

    changes: ClassVar[bool] = True

    alpha: Alpha = 0.2
    soft: bool = False
    delta: ShareBelowOne = 0.1

    def draw(self, labels: csr_matrix, seed: int, epoch: int, rows: Ints | None = None) -> Mix:
        """The label of each row as its partner, a place among all label vectors; a row without labels keeps a share of 1.

        Args:
            labels: of the batch.
            rows: where its rows stand in the training split, so that a row draws the same in any batch.
        """
        rows = np.arange(labels.shape[0], dtype=np.int32) if rows is None else rows
        chosen = pick_labels(labels, np.ones(labels.shape[1]), uniforms(seed, epoch, rows, PARTNER))
        shares = np.where(chosen < 0, 1.0, _shares(self.alpha, uniforms(seed, epoch, rows, SHARE)))
        return Mix(np.maximum(chosen, 0).astype(np.int64), shares)

    def targets(self, mix: Mix, labels: csr_matrix, graph: LabelGraph | None = None) -> csr_matrix:
        """The targets of a batch: its own, and those of the labels mixed in."""
        if self.soft and graph is None:
            raise SettingError("LabelMixUp(soft=True) takes the targets of labels from a graph; give one, or set soft=False.")
        given = label_targets("cooccurrence", graph if self.soft else None, mix.partner, int(labels.shape[1]), self.delta)
        return replace_partner(mix).targets(labels, given)

    def augment(
        self,
        train: Split,
        label_texts: Texts | None,
        graph: LabelGraph | None = None,
        seed: int = 0,
        label_features: csr_matrix | None = None,
    ) -> Augmented:
        """All training rows, and behind them one mixed row for each that has labels. Texts cannot be mixed and are left out."""
        return self._made(train, graph, label_features, 0, seed, alone=False)

    def for_epoch(
        self,
        epoch: int,
        train: Split,
        label_texts: Texts | None,
        graph: LabelGraph | None = None,
        seed: int = 0,
        label_features: csr_matrix | None = None,
    ) -> Augmented:
        """Rows without labels as they are, then a mixed row for each other: as many rows as `train` has."""
        return self._made(train, graph, label_features, epoch, seed, alone=True)

    def _made(
        self, train: Split, graph: LabelGraph | None, label_features: csr_matrix | None, epoch: int, seed: int, alone: bool
    ) -> Augmented:
        features = _features(train, "LabelMixUp")
        if label_features is None:
            raise DataError("LabelMixUp mixes features of rows and labels; give label_features, as wide as those of the rows.")
        check_labels(train, None, graph)
        labelled = np.diff(train.labels.indptr) > 0
        rows = np.flatnonzero(labelled).astype(np.int32)
        labels = train.labels[rows]
        mix = self.draw(labels, seed, epoch, rows)
        made = Split(None, self.targets(mix, labels, graph), features=mix.vectors(features[rows], label_features))
        kept = np.flatnonzero(~labelled).astype(np.int32) if alone else np.arange(len(train), dtype=np.int32)
        return with_made_rows(train.rows(kept), kept, made, rows, "labelmixup")


def replace_partner(mix: Mix) -> Mix:
    """The same shares with the partner of row i at place i."""
    return replace(mix, partner=np.arange(len(mix.partner)))


def _shares(alpha: float, draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers in [0, 1) to draws from Beta(alpha, alpha)."""
    shares: NDArray[np.float64] = betaincinv(alpha, alpha, draws)
    return shares


def _features(train: Split, who: str) -> csr_matrix:
    if train.features is None:
        raise SettingError(
            f"{who} mixes vectors, and these rows have texts only. Call its draw() from the training loop, or give features."
        )
    return train.features
