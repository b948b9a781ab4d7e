"""A stage of a recipe: one run of the loop, with what it learns and what it leaves alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite, log2

from longtail.core.errors import SettingError
from longtail.core.registry import LOSSES
from longtail.training.loop import Pace
from longtail.training.schedules import SCHEDULES

TASKS = ("labels", "clusters", "both", "classifiers", "unified")
SCORES = ("all", "pool", "shortlist", "picked")
CLUSTER_BY = ("nothing", "features", "vectors", "texts")
FROZEN = ("table", "encoder")
FRESH = ("encoder",)
BATCHES = ("random", "clustered", "growing")
REDUCTIONS = ("one", "some")


@dataclass(frozen=True)
class Stage:
    """Settings of a stage.

    Args:
        task: "labels"; "clusters" of them, a surrogate that is quick to learn; or "both" together (InceptionXML). With a second set of
            label vectors, the table `classifiers` of a recipe: these alone ("classifiers"), or both sets in one pass ("unified", UniDEC).
        score: which labels a row is scored against: "all"; a "pool" that the batch shares; the row's own "shortlist", made when the
            stage begins; or labels "picked" for the batch, as the table `contrast` of a recipe says.
        loss: of the labels that are scored; see `longtail list losses`. A "pool" takes bce or softmax, a "shortlist" bce.
        classifier_loss: of the classifiers in the task "unified"; several are added up.
        classifier_score: which classifiers a row is scored against in the task "unified": those "picked", or "all", by the loss bce alone.
        parts: of the label vectors, where a stage learns fewer of them than the recipe has.
        cluster_by: when the stage begins, cluster labels anew by the tf-idf "features" of their rows, by the learnt "vectors" of
            their rows, or by the learnt vectors of their own "texts".
        least_steps: more epochs are run where these are fewer steps than this. Papers count epochs of data sets with a thousand batches;
            a small one needs as many steps.
        encoder_rate: learning rate of the encoder and its token vectors, where it is not that of the rest; its heads learn at twice that.
        momentum: learn label vectors by stochastic gradient descent with so much momentum instead of Adam (Renee).
        freeze: "table": token vectors stay as they are; "encoder": the encoder does.
        fresh: "encoder": the encoder's layers start anew; where clusters were learnt, their encoder is kept for them.
        detached_epochs: of "both", in which labels do not move the encoder.
        n_random: labels drawn at random for a batch, besides shortlists or the pool.
        n_hard: labels of a pool that score highest for any row of the batch and are right for none.
        add_missed: score right labels that a shortlist lacks.
        weight_decay: share of the learning rate by which vectors shrink in each step that touches them.
        glas: weight of the GLaS regulariser, which pulls products of label vectors towards how often labels occur together.
    """

    task: str = "labels"
    score: str = "all"
    loss: str = "bce"
    classifier_loss: tuple[str, ...] = ("bce",)
    classifier_score: str = "picked"
    parts: tuple[str, ...] | None = None
    cluster_by: str = "nothing"
    epochs: int = 10
    least_steps: int = 0
    batch_size: int = 256
    learning_rate: float = 1e-3
    encoder_rate: float | None = None
    momentum: float = 0.0
    schedule: str = "onecycle"
    freeze: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    detached_epochs: int = 0
    n_random: int = 0
    n_hard: int = 0
    add_missed: bool = True
    glas: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for key, value, known in (
            ("task", self.task, TASKS),
            ("score", self.score, SCORES),
            ("cluster_by", self.cluster_by, CLUSTER_BY),
            ("schedule", self.schedule, SCHEDULES),
            ("loss", self.loss, LOSSES),
            *(("classifier_loss", value, LOSSES) for value in self.classifier_loss),
            ("classifier_score", self.classifier_score, ("picked", "all")),
            *(("freeze", value, FROZEN) for value in self.freeze),
            *(("fresh", value, FRESH) for value in self.fresh),
        ):
            if value not in known:
                raise SettingError(f"{key} came as {value!r}; wanted one of {', '.join(known)}.")
        for key, number in (("epochs", self.epochs), ("batch_size", self.batch_size)):
            if number < 1:
                raise SettingError(f"{key} came as {number}; wanted 1 or more.")
        for key, number in (("detached_epochs", self.detached_epochs), ("n_random", self.n_random)):
            if number < 0:
                raise SettingError(f"{key} came as {number}; wanted 0 or more.")
        for key, rate in (("learning_rate", self.learning_rate), ("encoder_rate", self.encoder_rate)):
            if rate is not None and not (rate > 0 and isfinite(rate)):
                raise SettingError(f"{key} came as {rate}; wanted more than 0, such as 0.001.")
        if self.classifier_score == "all" and self.classifier_loss != ("bce",):
            raise SettingError(f"classifier_loss came as {list(self.classifier_loss)}; all classifiers are scored by bce alone.")
        if not 0 <= self.momentum < 1:
            raise SettingError(f"momentum came as {self.momentum}; wanted a number from 0 to below 1, such as 0.9.")

    def pace(self, n_rows: int) -> Pace:
        """For so many rows.

        >>> Stage(epochs=2, least_steps=50, batch_size=10).pace(n_rows=100).epochs
        5
        """
        enough = ceil(self.least_steps / max(1, ceil(n_rows / self.batch_size)))
        return Pace(max(self.epochs, enough), self.batch_size, self.learning_rate, self.schedule)


@dataclass(frozen=True)
class Contrast:
    """Which labels are picked for a batch, and how texts and labels are set against each other (pick-some-labels, UniDEC).

    Args:
        temperature: cosines are divided by it.
        positives: right labels drawn for a row; 0 takes all of them.
        hard: labels drawn for a row that are near it and wrong, of `hard` x `refresh` nearest.
        most: labels of a batch at most: right ones first, then those that were drawn for most rows.
        reduction: "some": every right label that a batch holds counts as right, for whichever row it was drawn. "one": the one that
            was drawn for the row, and its other right labels take no part.
        batches: "random"; "clustered": rows near each other come in a batch; "growing": in clusters of ever more rows (NGAME).
        refresh: epochs after which batches and near labels are found anew.
        symmetric: rows are also the answers and labels the questions, each direction counting half.
        share: of the labels' loss in the task "unified"; the rest is that of the classifiers.
    """

    temperature: float = 0.05
    positives: int = 3
    hard: int = 0
    most: int = 3000
    reduction: str = "some"
    batches: str = "random"
    refresh: int = 5
    symmetric: bool = True
    share: float = 0.5

    def __post_init__(self) -> None:
        for key, value, known in (("batches", self.batches, BATCHES), ("reduction", self.reduction, REDUCTIONS)):
            if value not in known:
                raise SettingError(f"{key} came as {value!r}; wanted one of {', '.join(known)}.")
        for key, number, least in (
            ("positives", self.positives, 0),
            ("hard", self.hard, 0),
            ("most", self.most, 1),
            ("refresh", self.refresh, 1),
        ):
            if number < least:
                raise SettingError(f"{key} came as {number}; wanted {least} or more.")
        if not (self.temperature > 0 and isfinite(self.temperature)):
            raise SettingError(f"temperature came as {self.temperature}; wanted more than 0, such as 0.05.")
        if not 0 <= self.share <= 1:
            raise SettingError(f"share came as {self.share}; wanted a share from 0 to 1.")

    @property
    def looks_again(self) -> bool:
        """Whether anything of it depends on what the network has learnt so far."""
        return self.hard > 0 or self.batches != "random"

    def rows_together(self, epoch: int, epochs: int, batch_size: int) -> int:
        """Rows of a cluster in this epoch: those of a cluster stay in one batch.

        >>> growing = Contrast(batches="growing", refresh=1)
        >>> [growing.rows_together(epoch, 10, 256) for epoch in (0, 1, 2, 4, 9)]
        [1, 4, 16, 256, 256]
        """
        if self.batches == "growing":  # doubled step by step in the first half of the epochs
            done = min(1.0, epoch // self.refresh * self.refresh / max(1, epochs // 2 - 1))
            return 1 << int(log2(batch_size) * done)
        return batch_size if self.batches == "clustered" and epoch >= self.refresh else 1


@dataclass(frozen=True)
class ClusterSettings:
    """Balanced clusters of labels, and what is done with them.

    Args:
        labels_each: about so many labels a cluster; the number of clusters is the power of 2 that comes nearest.
        most: clusters at most.
        parts: of the vectors of clusters; the same as those of labels where not given.
        smooth: add the centroids of a label's neighbours in the graph to its own before clustering (ECLARE).
        head: labels with more training rows are clustered apart; None clusters all together.
        beam: clusters a row, in training and in prediction.
        game: pass so large a share of the scores of clusters, and in prediction of labels too, to their neighbours in the graph (GAME);
            0 for none, 1 for G p as ECLARE's paper has it.
    """

    labels_each: int = 4
    most: int = 1 << 17
    parts: tuple[str, ...] | None = None
    smooth: bool = False
    head: int | None = None
    beam: int = 50
    game: float = 0.0

    def __post_init__(self) -> None:
        for key, value in (("labels_each", self.labels_each), ("most", self.most), ("beam", self.beam)):
            if value < 1:
                raise SettingError(f"{key} came as {value}; wanted 1 or more.")

        if not 0 <= self.game <= 1:
            raise SettingError(f"game came as {self.game}; wanted a share from 0 to 1.")

    def n_clusters(self, n_labels: int) -> int:
        """
        >>> ClusterSettings().n_clusters(131_073), ClusterSettings(labels_each=1).n_clusters(3)
        (32768, 2)
        """
        if n_labels < 2 * self.labels_each:
            smaller = "type clusters.labels_each=1, or " if n_labels > 1 else ""
            raise SettingError(f"{n_labels} labels are too few for clusters of {self.labels_each}; {smaller}use the recipe default.")
        nearest = round(log2(n_labels / self.labels_each))
        return min(self.most, 1 << min(nearest, n_labels.bit_length() - 1))  # no more clusters than labels
