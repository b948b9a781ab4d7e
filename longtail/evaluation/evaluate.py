"""Evaluation of predictions against the test labels: all metrics, overall and by label frequency, as a table that prints."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError, SettingError
from longtail.core.kernels.resample import weighted_sums
from longtail.core.values import Dataset, Predictions, Split
from longtail.data.augment.rows import MADE_UID
from longtail.data.files import new_file
from longtail.data.frequency import GROUPS, equal_volume_bins, frequency_groups
from longtail.evaluation import metrics
from longtail.evaluation.metrics import Matches, Reals
from longtail.evaluation.predictions import drop_filtered, most_filtered

KS = (1, 3, 5)
RECALL_KS = (5, 10, 100)
N_BINS = 5  # the papers' five bins of equal training volume
RESAMPLES = 1000
AT_ONCE = 16  # resamples in one pass over the rows: 9 MB of counts at 135,000 rows

# Propensity constants by what the data set's name contains, first match first (XC repository; Jain et al. 2016)
CONSTANTS = (("amazon", 0.6, 2.6), ("wikiseealso", 0.55, 1.5), ("wiki", 0.5, 0.4))
OTHER_CONSTANTS = (0.55, 1.5)


def propensity_constants(name: str) -> tuple[float, float]:
    """A and B for a data set of this name.

    >>> propensity_constants("LF-AmazonTitles-131K"), propensity_constants("LF-WikiSeeAlsoTitles-320K"), propensity_constants("mine")
    ((0.6, 2.6), (0.55, 1.5), (0.55, 1.5))
    """
    plain = name.lower().replace("-", "").replace("_", "")
    return next(((a, b) for part, a, b in CONSTANTS if part in plain), OTHER_CONSTANTS)


@dataclass(frozen=True)
class RowScores:
    """A metric that is sum(gained) / sum(possible) over rows; a plain mean has possible = 1 in every row."""

    gained: Reals
    possible: Reals

    @property
    def percent(self) -> float:
        possible = float(self.possible.sum())
        return 100 * float(self.gained.sum()) / possible if possible else 0.0


@dataclass(frozen=True)
class Evaluation:
    """All metrics in percent, with the counts and constants that they rest on. `print` shows tables.

    Args:
        metrics: percent by name, such as "P@1".
        intervals: both ends of the 95 % interval by name, by bootstrap over rows; not for metrics that count labels.
        about: data set, numbers of rows and labels, propensity constants, resamples and seed.
        bins: what the labels of each bin of equal training volume add to P@k, the most frequent labels first.
        rows: the values of each row, for paired tests.
        notes: what to know before trusting the numbers, one line each.
    """

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # 95 %, by bootstrap over rows; not for metrics that count labels
    about: dict[str, str | int | float]
    bins: list[dict[str, float]]  # of equal training volume, the most frequent labels first
    rows: dict[str, RowScores] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        from longtail.evaluation.tables import evaluation_table, to_text

        return to_text(evaluation_table(self))

    def to_json(self) -> str:
        """Return one flat JSON object: the metrics by name, then what they rest on."""
        intervals = {name: list(interval) for name, interval in self.intervals.items()}
        held = {**self.metrics, **self.about, "intervals": intervals, "bins": self.bins, "notes": list(self.notes)}
        return json.dumps(held, indent=1) + "\n"

    def to_csv(self) -> str:
        """Return CSV: metric, percent, and both ends of its interval."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["metric", "percent", "low", "high"])
        for name, value in self.metrics.items():
            writer.writerow([name, repr(value), *map(repr, self.intervals.get(name, ()))])
        return text.getvalue()

    def save(self, path: str | Path) -> None:
        """Write CSV where the name ends in .csv, JSON otherwise.

        Args:
            path: the file to write.
        """
        path = Path(path)
        with new_file(path) as unfinished:
            unfinished.write_text(self.to_csv() if path.suffix == ".csv" else self.to_json(), encoding="utf-8")


def evaluate(
    found: Predictions,
    data: Dataset,
    *,
    a: float | None = None,
    b: float | None = None,
    filtered: bool = True,
    ks: Sequence[int] = KS,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation:
    """Compute all metrics of predictions for the test rows of a data set.

    Args:
        found: predictions of k + (most filtered per row) labels, so that k are left after the filter.
        data: the data set whose test rows they are for.
        a: propensity constant A; the one known for the data set's name where not given.
        b: propensity constant B, likewise.
        filtered: remove the pairs of the test filter from the predictions first.
        ks: the places at which to measure.
        resamples: bootstrap resamples for the intervals; 0 for none.
        seed: seed of the resamples.
    """
    check_fits(found, data)
    ks = _checked_ks(ks)
    notes: list[str] = []
    pairs = data.test.filter if filtered else None
    if pairs is not None:
        needed = max(ks) + most_filtered(pairs, len(data.test))
        if found.k < needed:
            notes.append(f"Predictions have {found.k} places; with the filter, {needed} make sure that {max(ks)} are left in every row.")
        found = drop_filtered(found, pairs)
    known = propensity_constants(data.name)
    a, b = known[0] if a is None else a, known[1] if b is None else b
    train = original_rows(data, notes)
    counts = np.bincount(train.labels.indices, minlength=data.n_labels)
    matches = metrics.find_matches(found, data.test.labels)
    rows = row_scores(matches, metrics.inverse_propensity(counts, len(train), a, b), ks)
    values = {name: scores.percent for name, scores in rows.items()}
    for k in ks:
        values[f"coverage@{k}"] = 100 * metrics.coverage_at(k, matches)
    values |= _macro_f1(max(ks), matches, counts)
    values |= _zero_shot(ks, found, data.test.labels, counts)
    about: dict[str, str | int | float] = {
        "data": data.name,
        "test_rows": len(data.test),
        "rows_without_labels": int((matches.n_true == 0).sum()),
        "labels": data.n_labels,
        "train_rows": len(train),
        "filtered_pairs": 0 if pairs is None else len(pairs),
        "A": a,
        "B": b,
        "resamples": resamples,
        "seed": seed,
    }
    intervals = bootstrap(rows, resamples, seed) if resamples and len(data.test) else {}
    return Evaluation(values, intervals, about, _bins(max(ks), matches, counts), rows, tuple(notes))


def check_fits(found: Predictions, data: Dataset) -> None:
    """Raise where the predictions cannot be those of the test rows."""
    if not len(data.test):
        raise DataError(f"{data.name} has no test rows to evaluate on. Read it with test_share, e.g. 0.2, or add a test split.")
    if len(found) != len(data.test):
        wanted = f"{data.name} has {len(data.test):,} test rows, and wants one row for each, in order"
        raise DataError(f"{len(found):,} rows of predictions came; {wanted}.")
    if found.ids.size and int(found.ids.max()) >= data.n_labels:
        row = int(np.flatnonzero((found.ids >= data.n_labels).any(axis=1))[0])
        raise DataError(f"Row {row} of the predictions names label {found.ids[row].max()}; {data.name} has labels 0..{data.n_labels - 1}.")


def original_rows(data: Dataset, notes: list[str]) -> Split:
    """The training rows without those that an augmentation made, as their uids tell: made rows say nothing about how often a label
    was observed, which is what propensities and frequency bins rest on."""
    uids = data.train.uids
    if uids is None:
        return data.train
    colons = np.flatnonzero(uids.buffer == ord(":"))
    places = np.unique(np.searchsorted(uids.offsets, colons, side="right") - 1)  # few or none in most data sets
    made = np.zeros(len(uids), bool)
    made[places] = [MADE_UID.fullmatch(uid) is not None for uid in uids.take(places).encoded()]
    if not made.any():
        return data.train
    if made.all():
        raise DataError(
            f"All {len(made):,} training rows of {data.name} were made by augmentation, so it has no label counts of its own. "
            "Evaluate on the data set that they were made from."
        )
    notes.append(f"{made.sum():,} of {len(made):,} training rows were made by augmentation; label counts leave them out.")
    return data.train.rows(np.flatnonzero(~made))


def _checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    if not ks or any(k < 1 for k in ks):
        raise SettingError(f"ks came as {list(ks)}; wanted places from 1, such as 1,3,5.")
    return tuple(sorted(set(ks)))


def row_scores(matches: Matches, weights: Reals, ks: Sequence[int]) -> dict[str, RowScores]:
    """Every metric that has a value per row."""
    ones = np.ones(len(matches))
    gains = metrics.find_gains(matches, weights, max(ks))
    rows = {f"P@{k}": RowScores(metrics.precision_at(k, matches), ones) for k in ks}
    rows |= {f"nDCG@{k}": RowScores(metrics.ndcg_at(k, matches), ones) for k in ks}
    rows |= {f"PSP@{k}": RowScores(*metrics.ps_precision_at(k, gains)) for k in ks}
    rows |= {f"PSnDCG@{k}": RowScores(*metrics.ps_ndcg_at(k, gains)) for k in ks}
    width = matches.ids.shape[1]
    recall_ks = sorted({k for k in (*ks, *RECALL_KS) if k <= max(width, max(ks))})
    rows |= {f"R@{k}": RowScores(metrics.recall_at(k, matches), ones) for k in recall_ks}
    return rows | {f"hits@{k}": RowScores(metrics.hits_at(k, matches), ones) for k in ks}


def _macro_f1(k: int, matches: Matches, counts: NDArray[np.int64]) -> dict[str, float]:
    """Mean F1 over the labels that are true or predicted somewhere: of all, and of each frequency group."""
    f1 = metrics.f1_by_label_at(k, matches)
    defined = ~np.isnan(f1)
    group = frequency_groups(counts)
    values = {f"macroF1@{k}": 100 * float(f1[defined].mean()) if defined.any() else 0.0}
    for number, name in enumerate(GROUPS):
        part = defined & (group == number)
        if part.any():
            values[f"macroF1@{k} {name}"] = 100 * float(f1[part].mean())
    return values


def _zero_shot(ks: Sequence[int], found: Predictions, truth: csr_matrix, counts: NDArray[np.int64]) -> dict[str, float]:
    """P and R of the labels that no training row has, where test rows carry some: over the rows that do, against all labels."""
    unseen = truth.multiply(counts == 0).tocsr()
    unseen.eliminate_zeros()
    rows = np.flatnonzero(np.diff(unseen.indptr))
    if not len(rows):
        return {}
    matches = metrics.find_matches(Predictions(found.ids[rows], found.scores[rows]), unseen[rows])
    values = {f"unseen P@{k}": 100 * float(metrics.precision_at(k, matches).mean()) for k in ks}
    return values | {f"unseen R@{max(ks)}": 100 * float(metrics.recall_at(max(ks), matches).mean())}


def _bins(k: int, matches: Matches, counts: NDArray[np.int64]) -> list[dict[str, float]]:
    bins = equal_volume_bins(counts, N_BINS)
    added = np.zeros(N_BINS)
    contribution = metrics.contribution_at(k, matches, bins)
    added[: len(contribution)] = contribution
    table = []
    for number in range(N_BINS):
        inside = counts[bins == number]
        mean = float(inside.mean()) if len(inside) else 0.0
        table.append({"bin": number + 1, "labels": len(inside), "points_per_label": mean, f"P@{k}": 100 * float(added[number])})
    return table


def bootstrap(rows: dict[str, RowScores], resamples: int, seed: int) -> dict[str, tuple[float, float]]:
    """The 95 % percentile interval of each metric when rows are drawn anew with replacement."""
    columns = [row.gained for row in rows.values()]
    possible_at = {}  # the column of each distinct `possible`; plain means share theirs
    for row in rows.values():
        if id(row.possible) not in possible_at:
            possible_at[id(row.possible)] = len(columns)
            columns.append(row.possible)
    sums = _resampled(np.column_stack(columns), resamples, seed)
    possible = sums[:, [possible_at[id(row.possible)] for row in rows.values()]]
    low, high = 100 * np.percentile(sums[:, : len(rows)] / np.maximum(possible, 1e-300), [2.5, 97.5], axis=0)
    return {name: (float(low[place]), float(high[place])) for place, name in enumerate(rows)}


def _resampled(values: Reals, resamples: int, seed: int) -> Reals:
    """Column sums over each resample of the rows: (resamples, columns)."""
    n = len(values)
    random = np.random.default_rng(seed)
    sums = []
    for start in range(0, resamples, AT_ONCE):
        times = np.empty((n, min(AT_ONCE, resamples - start)), np.int32)  # how often each row was drawn
        for resample in range(times.shape[1]):
            times[:, resample] = np.bincount(random.integers(0, n, n, dtype=np.int32), minlength=n)
        sums.append(weighted_sums(times, values))
    return np.concatenate(sums)


@dataclass(frozen=True)
class Difference:
    """One metric of two sets of predictions: second minus first."""

    name: str
    first: float
    second: float
    low: float  # of the 95 % interval of the difference
    high: float
    p_value: float  # of the paired test that both come from the same predictor


def compare(first: Evaluation, second: Evaluation, resamples: int = RESAMPLES, flips: int = 2000, seed: int = 0) -> list[Difference]:
    """Compare two evaluations of the same test rows: bootstrap interval and sign-flip randomisation test of each difference.

    Swapping the two predictors in a row flips the sign of that row's difference. The p-value is the share of random flips whose difference
    is at least as large as the one seen; the smallest possible one is 1 / (flips + 1).

    Args:
        first: metrics of one set of predictions.
        second: metrics of another, over the same test rows.
        resamples: bootstrap resamples for the intervals.
        flips: random flips of the test.
        seed: seed of both.
    """
    names = [name for name in first.rows if name in second.rows]
    gain = np.column_stack([second.rows[name].gained - first.rows[name].gained for name in names])
    possible = np.array([max(float(first.rows[name].possible.sum()), 1e-300) for name in names])
    p_values = flip_test(gain, flips, seed)
    if len(gain):
        low, high = 100 * np.percentile(_resampled(gain, resamples, seed) / possible, [2.5, 97.5], axis=0)
    else:
        low = high = np.zeros(len(names))
    return [
        Difference(name, first.metrics[name], second.metrics[name], float(low[i]), float(high[i]), float(p_values[i]))
        for i, name in enumerate(names)
    ]


def flip_test(gain: Reals, flips: int = 2000, seed: int = 0) -> Reals:
    """For each column of differences between two predictors, one a test row: the chance of a sum as large if they were the same."""
    differ = gain[(gain != 0).any(axis=1)]  # a row where both agree changes nothing
    seen = gain.sum(axis=0)
    random = np.random.default_rng(seed)
    as_large = np.zeros(gain.shape[1])
    for start in range(0, flips, AT_ONCE):
        signs = random.integers(0, 2, (len(differ), min(AT_ONCE, flips - start)), dtype=np.int32) * 2 - 1
        as_large += (np.abs(weighted_sums(signs, differ)) >= np.abs(seen) - 1e-9).sum(axis=0)
    chances: Reals = (as_large + 1) / (flips + 1)
    return chances
