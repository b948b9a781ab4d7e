"""Two data sets from a Debian package index: packages that are needed together, and packages that a package needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags

from longtail.core.errors import SettingError, UnknownName
from longtail.core.values import Dataset
from longtail.data.sources.building import Item, build
from longtail.data.sources.packages import Package, read_packages

TASKS = {"related": False, "depends": True}  # whether the labels of a package are what it asks for itself
TEST_SHARE = 0.3
COMMON_SHARE = 0.01  # a package that more than this share of all packages ask for (libc6, python3) says nothing about them
COMMON_FLOOR = 100  # ... where there are too few packages to speak of shares
LARGEST_ASK = 60  # a package that asks for more is a collection; what it holds need not be related
LEAST_COSINE = 0.2
MAX_LABELS = 10


def debian(
    task: str = "related",
    index: Path | None = None,
    seed: int = 0,
    *,
    with_name: bool = True,
    max_labels: int = MAX_LABELS,
    test_share: float = TEST_SHARE,
) -> Dataset:
    """A data set of Debian packages.

    `related`: a package -> the packages that others ask for together with it, as shops relate goods by common baskets.
    `depends`: a package -> the packages it depends on, recommends or suggests; all packages of one source are on one
    side of the split. Both leave out links within one source package and links to what nearly everything needs.

    Args:
        task: "related" or "depends".
        index: a Packages file, plain, .gz or .xz; this machine's own apt index where not given.
        seed: of the split.
        with_name: for `related`, whether the text is "name: description" or the description alone.
        max_labels: for `related`, labels of a package at most; packages that share a description, and so a row, share their labels.
        test_share: share of packages (`related`) or source packages (`depends`) in the test split.
    """
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)
    depends = TASKS[task]
    if depends and (not with_name or max_labels != MAX_LABELS):
        raise SettingError("The task 'depends' always has names and all labels; with_name and max_labels are for 'related'.")
    if max_labels < 1:
        raise SettingError(f"max_labels came as {max_labels}; wanted 1 or more.")
    packages = read_packages(index)
    asked = asked_for(packages)
    targets = asked if depends else related(asked, packages, max_labels)
    ends, ids = targets.indptr.tolist(), targets.indices.tolist()
    items = (
        Item(
            uid=package.name,
            text=f"{package.name}: {package.description}" if with_name else package.description,
            targets=tuple(packages[target].name for target in ids[ends[row] : ends[row + 1]]),
            group=package.source if depends else "",
        )
        for row, package in enumerate(packages)
    )
    name = "LF-DebianTitles" if depends else "LF-DebianRelatedTitles"
    return build(name, items, seed=seed, test_share=test_share, notes=(f"{len(packages):,} packages read.",))


def asked_for(packages: list[Package]) -> csr_matrix:
    """(n, n) ones where a row's package asks for a column's, of another source, that is not common to everything.

    Of alternatives the first that exists counts. A virtual package stands for its provider where it has just one.
    """
    place = {package.name: row for row, package in enumerate(packages)}
    providers: dict[str, set[int]] = {}
    for row, package in enumerate(packages):
        for name in package.provides:
            providers.setdefault(name, set()).add(row)
    only = {name: next(iter(rows)) for name, rows in providers.items() if len(rows) == 1}
    known = only | place
    rows, columns = [], []
    for row, package in enumerate(packages):
        for alternatives in package.asks:
            target = next((known[name] for name in alternatives if name in known), row)
            if packages[target].source != package.source:
                rows.append(row)
                columns.append(target)
    links = csr_matrix((np.ones(len(rows), np.float64), (rows, columns)), shape=(len(packages), len(packages)))
    links.sum_duplicates()
    links.data[:] = 1
    common = max(COMMON_FLOOR, COMMON_SHARE * len(packages))
    return _scaled(links, columns=_column_counts(links) <= common)


def related(asked: csr_matrix, packages: list[Package], max_labels: int) -> csr_matrix:
    """For each package at most `max_labels` others of other sources that are asked for together with it, by cosine.

    The cosine of two packages is |packages that ask for both| / sqrt(|ask for one| |ask for the other|).
    """
    asked = _scaled(asked, rows=np.diff(asked.indptr) <= LARGEST_ASK)
    together = csr_matrix(asked.T @ asked).tocoo()
    first, second = together.row, together.col
    size = _column_counts(asked)
    _, source = np.unique(np.array([package.source for package in packages], dtype=object), return_inverse=True)
    cosine = together.data / np.sqrt(size[first] * size[second])
    # the margin keeps a cosine of exactly 0.2 in, whatever way the division rounds
    kept = (source[first] != source[second]) & (cosine >= LEAST_COSINE - 1e-9)
    first, second, cosine = first[kept], second[kept], cosine[kept]
    order = np.lexsort((second, -cosine.round(9), first))  # ties by name, for the packages are sorted
    first, second = first[order], second[order]
    starts = np.searchsorted(first, first, side="left")
    best = np.arange(len(first)) - starts < max_labels
    return csr_matrix((np.ones(int(best.sum()), np.float64), (first[best], second[best])), shape=asked.shape)


def _column_counts(matrix: csr_matrix) -> NDArray[np.float64]:
    return np.bincount(matrix.indices, minlength=int(matrix.shape[1])).astype(np.float64)  # all values are 1


def _scaled(matrix: csr_matrix, rows: NDArray[np.bool_] | None = None, columns: NDArray[np.bool_] | None = None) -> csr_matrix:
    """The matrix with the rows and columns that are not chosen emptied."""
    if rows is not None:
        matrix = csr_matrix(diags(rows.astype(np.float64)) @ matrix)
    if columns is not None:
        matrix = csr_matrix(matrix @ diags(columns.astype(np.float64)))
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix
