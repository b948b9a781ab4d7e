"""Reading of any known data set on disk. The format is recognised, not asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from longtail.core import registry
from longtail.core.errors import DataError, SettingError
from longtail.core.values import Dataset
from longtail.data.formats.base import Format, ReadOptions


def read(
    path: str | Path,
    *,
    text: str | None = None,
    labels: str | None = None,
    separator: str | None = None,
    label_texts: str | Path | None = None,
    fields: tuple[str, ...] = ("title",),
    encoding: str = "utf-8",
    test_share: float = 0.0,
    seed: int = 0,
) -> Dataset:
    """Read a data set: a folder in one of the XC repository's layouts, PECOS, fastText, or a table.

    Args:
        path: a folder, or one table (CSV, TSV, JSON lines, Parquet).
        text: column of the texts, in a table; guessed from common names where not given.
        labels: column of the labels, in a table; guessed likewise.
        separator: separator of labels in one cell of a table; guessed where not given.
        label_texts: a file with the text of each label, where the table names labels by id.
        fields: fields of XC raw lines that make up the text; ("title", "content") for full text.
        encoding: encoding of text files.
        test_share: share of the rows to hold out where the source has no test split.
        seed: seed of that split.

    Raises:
        DataError: naming file, line, what came and what was wanted; all faults of a kind are counted.
    """
    path = Path(path)
    options = ReadOptions(text, labels, separator, None if label_texts is None else str(label_texts), tuple(fields), encoding)
    form = recognise(path)
    form.check_options(options)
    data = form.read(path, options)
    return hold_out(data, test_share, seed) if test_share else data


def recognise(path: Path) -> Format:
    """The format of what stands at `path`."""
    if not path.exists():
        raise DataError(f"{path} does not exist. Wanted a folder or a table of a data set.")
    for name in registry.FORMATS:
        form: Format = registry.load("formats", name)()
        if form.recognises(path):
            return form
    held = ", ".join(sorted(entry.name for entry in path.iterdir())[:6]) if path.is_dir() else path.name
    known = "; ".join(what for _, what in registry.FORMATS.values())
    raise DataError(f"{path} is not a data set longtail knows (found: {held or 'nothing'}). It reads: {known}.")


def hold_out(data: Dataset, share: float, seed: int = 0) -> Dataset:
    """Move a random share of the training rows to the test split of a data set that has none."""
    if not 0 < share < 1:
        raise SettingError(f"test_share came as {share}; wanted a share between 0 and 1, such as 0.2.")
    if len(data.test):
        raise SettingError(f"{data.name} has {len(data.test):,} test rows already; test_share is for data without a test split.")
    order = np.random.default_rng(seed).permutation(len(data.train))
    n_test = round(len(order) * share)
    return replace(data, train=data.train.rows(np.sort(order[n_test:])), test=data.train.rows(np.sort(order[:n_test])))
