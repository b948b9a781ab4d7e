"""Settings that several objectives share: contrastive learning, clusters of labels."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Annotated, Literal

from longtail.core.checks import NonNegative, Positive, Range, Settings, Share
from longtail.core.errors import SettingError


@dataclass(frozen=True)
class Contrast(Settings):
    """Contrastive learning: which labels of a batch are scored, and how texts and labels are set against each other (UniDEC).

    Args:
        temperature: divides cosines.
        positives: right labels that are drawn for a row; 0 takes all of them.
        max_labels: labels of a batch at most: right ones first, then the hard negatives of most rows.
        reduction: "some" (pick-some-labels): every right label that the batch holds is a positive, for whichever row it was drawn.
            "one" (pick-one-label): the label that was drawn for the row is; its other right labels take no part.
        symmetric: labels are queries for rows too, and each direction has half of the loss.
        share: share of the labels' loss in the objective "joint"; the rest is the classifiers'.
    """

    temperature: Annotated[float, Range(least=0, above=True, such_as=0.05)] = 0.05
    positives: NonNegative = 3
    max_labels: Positive = 3000
    reduction: Literal["one", "some"] = "some"
    symmetric: bool = True
    share: Share = 0.5

    @property
    def picks_one(self) -> bool:
        """Whether a row has one positive, and its other right labels take no part."""
        return self.reduction == "one"


@dataclass(frozen=True)
class ClusterSettings(Settings):
    """Balanced clusters of labels, and how they are searched.

    Args:
        labels_each: labels of a cluster, about; the number of clusters is the nearest power of 2.
        max_clusters: clusters at most.
        parts: parts of the vectors of clusters; those of the labels where not given.
        smooth: adds the centroids of a label's neighbours in the graph to its own before clustering (ECLARE).
        head: labels with more training rows are clustered apart; None clusters all together.
        beam: clusters of a row, in training and in prediction.
        game: share of a score that comes from neighbours in the graph, of clusters and, in prediction, of labels (GAME); 0 for none, 1 for
            G p as in the paper of ECLARE.
    """

    labels_each: Positive = 4
    max_clusters: Positive = 1 << 17
    parts: tuple[str, ...] | None = None
    smooth: bool = False
    head: int | None = None
    beam: Positive = 50
    game: Share = 0.0

    def n_clusters(self, n_labels: int) -> int:
        """
        >>> ClusterSettings().n_clusters(131_073), ClusterSettings(labels_each=1).n_clusters(3)
        (32768, 2)
        """
        if n_labels < 2 * self.labels_each:
            smaller = "type clusters.labels_each=1, or " if n_labels > 1 else ""
            raise SettingError(f"{n_labels} labels are too few for clusters of {self.labels_each}; {smaller}use the recipe default.")
        nearest = round(log2(n_labels / self.labels_each))
        return min(self.max_clusters, 1 << min(nearest, n_labels.bit_length() - 1))  # no more clusters than labels
