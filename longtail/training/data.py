"""The data that networks are trained on: token rows, label texts, label graph, and the rows of every stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.values import Floats, LabelGraph, Split, Texts
from longtail.data.augment.rows import Augmentation, Augmented
from longtail.tokens.cache import cached_rows
from longtail.tokens.rows import TokenRows
from longtail.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class StageData:
    """The rows of a stage, as its augmentation makes them. Stages with the same augmentation share one."""

    train: Split  # training rows; with features in place of texts where token rows are mixed
    augmentation: Augmentation | None
    augmented: Augmented  # rows of all epochs, or the training rows where the augmentation gives new ones each epoch

    @property
    def changes(self) -> bool:
        """Whether every epoch has rows of its own."""
        return self.augmentation is not None and self.augmentation.changes


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Everything that the networks of an ensemble member are trained on."""

    tokenizer: Tokenizer
    label_texts: Texts | None
    label_rows: TokenRows | None  # tokens of label texts, in reading order
    label_tokens: csr_matrix | None  # (n_labels, n_tokens): the same, with equal tokens added up
    graph: LabelGraph | None  # for label vectors, smoothing and GAME
    start_vectors: tuple[Floats, NDArray[np.bool_]] | None  # pretrained token vectors, and which tokens have one
    stages: tuple[StageData, ...]
    seed: int  # of augmentations
    cache: Path | None = None  # folder of token rows

    @property
    def labels(self) -> csr_matrix:
        """(n_rows, n_labels) of the training rows, without augmentation."""
        return self.stages[0].train.labels

    @property
    def n_labels(self) -> int:
        return int(self.labels.shape[1])

    def all_tokens(self, stage: StageData) -> TokenRows:
        """Tokens of the rows of all epochs; from the cache, where they were tokenised before."""
        split = stage.augmented.split
        return self.tokens_of(split) if split.texts is None else cached_rows(self.tokenizer, split.texts, self.cache)

    def tokens_of(self, split: Split) -> TokenRows:
        """Tokens of texts; for rows that an augmentation mixed, which have no text, the token weights that it mixed."""
        if split.texts is not None:
            return self.tokenizer(split.texts)
        assert split.features is not None
        return TokenRows.from_csr(split.features)
