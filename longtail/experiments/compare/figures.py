"""Tables and figures of the papers that show other things than metrics: bins, curves, clusters, components, predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Ints
from longtail.evaluation.metrics import find_matches, lost_information, precision_at
from longtail.experiments.compare.cells import Row
from longtail.experiments.compare.grids import Entry, Grid
from longtail.experiments.compare.plans import Plan
from longtail.recipes.data import DataSource
from longtail.recipes.read import read_recipe
from longtail.training.trainer import Trainer

SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)  # of a training, at which curves are shown
CURVES = ("P@1", "PSP@1")
N_TEXTS = 5  # whose predictions are shown
K = 5
RIGHT = "*"


BIN_COLUMNS = {"bin", "labels", "points_per_label"}  # of a frequency bin; the others are lengths of parts


def bins_grid(rows: Sequence[Row], data: Dataset) -> Grid:
    """The part of each label frequency in P@5: five bins of equal training volume, frequent labels first."""
    first = rows[0].cells[0].bins
    metric = next(name for name in first[0] if name.startswith("P@"))
    headings = [f"{one['labels']:,.0f} labels, {one['points_per_label']:.1f} rows each" for one in first]
    lines = []
    for row in rows:
        means = np.mean([[one[metric] for one in cell.bins] for cell in row.cells], axis=0)
        whole = Entry(f"{row.mean(metric):.2f}")
        lines.append((*_names(row.plan), whole, *(Entry(f"{value:.2f}") for value in means)))
    return Grid(
        f"{data.name}: contribution of each label frequency to {metric}", ("system", "rows added", metric, *headings), tuple(lines), 2
    )


def curves_grid(rows: Sequence[Row], data: Dataset) -> Grid:
    """Metrics of validation rows during training."""
    lines = []
    for row in rows:
        for metric in CURVES:
            curves = [[entry[metric] for entry in cell.history if metric in entry] for cell in row.cells]
            if not all(curves):
                raise DataError(f"{row.plan.called} was trained without validation rows, so there is no curve; type validation=0.1.")
            means = [np.mean([values[max(0, round(share * len(values)) - 1)] for values in curves]) for share in SHARES]
            lines.append((*_names(row.plan), Entry(metric), *(Entry(f"{value:.2f}") for value in means)))
    headings = [f"{share:.0%}" for share in SHARES]
    return Grid(f"{data.name}: validation rows after a share of the epochs", ("system", "rows added", "metric", *headings), tuple(lines), 3)


def components_grid(rows: Sequence[Row], data: Dataset) -> Grid:
    """Mean length of each part of the label vectors, as it enters them, by label frequency."""
    lines = []
    for row in rows:
        if not all(cell.components for cell in row.cells):
            raise DataError(f"{row.plan.called} has label vectors of one part, so there is nothing to compare.")
        first = row.cells[0].components
        for part in [name for name in first[0] if name not in BIN_COLUMNS]:
            means = np.mean([[one[part] for one in cell.components] for cell in row.cells], axis=0)
            lines.append((*_names(row.plan), Entry(part), *(Entry(f"{value:.3f}") for value in means)))
    headings = [f"{one['points_per_label']:.1f} rows a label" for one in rows[0].cells[0].components]
    return Grid(f"{data.name}: length of the parts of label vectors", ("system", "rows added", "part", *headings), tuple(lines), 3)


def clusters_grid(plans: Sequence[Plan], data: Dataset, seed: int = 0) -> Grid:
    """The mutual information between labels and rows that is lost when labels are merged into clusters; less is better."""
    found: list[tuple[str, int, Ints]] = []
    for plan in plans:
        recipe = read_recipe(plan.system, plan.settings)
        training = DataSource(data, recipe, plan.augmentation, seed).training_data(recipe)
        clusters = Trainer(recipe.plan, training, torch.device("cpu"), seed).clustered("features")
        found.append((plan.called, clusters.n_clusters, clusters.of_label))
    n_drawn = max(n for _, n, _ in found)
    found.append(("at random", n_drawn, np.random.default_rng(seed).permutation(data.n_labels).astype(np.int32) % n_drawn))
    lines = []
    for name, n_clusters, assigned in found:
        lost, share = lost_information(assigned, data.train.labels)
        lines.append((Entry(name), Entry(f"{n_clusters:,}"), Entry(f"{lost:.3f}"), Entry(f"{share:.1%}")))
    return Grid(f"{data.name}: information lost by clusters", ("clusters of", "clusters", "nats lost", "share lost"), tuple(lines))


def predictions_grid(rows: Sequence[Row], data: Dataset) -> Grid:
    """The best labels of a few test texts side by side: texts for which the systems differ most."""
    texts, labels = data.test.texts, data.label_texts
    if texts is None or labels is None:
        raise DataError(f"{data.name} has no texts of test rows or labels to show.")
    found = [row.cells[0].predictions() for row in rows]
    right = [find_matches(one, data.test.labels) for one in found]
    precision = np.array([precision_at(K, one) for one in right])  # (systems, rows)
    order = np.argsort(-precision.std(axis=0), kind="stable")[:N_TEXTS]
    lines = []
    for text in order:
        for place, row in enumerate(rows):
            true = set(data.test.labels[text].indices.tolist())
            named = [f"{labels[label]}{RIGHT * (label in true)}" for label in found[place].ids[text, :K] if label >= 0]
            first = texts[int(text)] if place == 0 else ""
            lines.append((Entry(first), *_names(row.plan), Entry("; ".join(named))))
    title = f"{data.name}: predictions for test texts on which systems differ most; {RIGHT} right"
    return Grid(title, ("text", "system", "rows added", f"best {K}"), tuple(lines), 4)


def _names(plan: Plan) -> tuple[Entry, Entry]:
    return Entry(plan.called), Entry(plan.augmentation)
