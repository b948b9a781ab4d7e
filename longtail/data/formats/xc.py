"""The XC repository's raw text layout: trn.json[.gz], tst.json[.gz], lbl.json[.gz] and filter files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Split, Texts
from longtail.data.files import existing
from longtail.data.filters import read_filters, write_filters
from longtail.data.formats.base import Format, ReadOptions
from longtail.data.formats.json_rows import read_json_rows
from longtail.data.json_lines import write_gzipped
from longtail.data.matrices import check_range, tidy_labels


class XCRaw(Format):
    """Folder of JSON lines with uid, title, content, target_ind, target_rel."""

    title = "the XC raw layout (trn.json)"
    uses = frozenset({"fields", "encoding"})

    def recognises(self, path: Path) -> bool:
        return path.is_dir() and _folder(path) is not None

    def read(self, path: Path, options: ReadOptions) -> Dataset:
        folder = _folder(path)
        assert folder is not None
        train_file = existing(folder, "trn.json")
        assert train_file is not None
        test_file, label_file = existing(folder, "tst.json"), existing(folder, "lbl.json")
        label_texts = label_uids = None
        n_labels = 0
        if label_file:
            label_texts, label_uids, _ = _rows(label_file, options)
            n_labels = len(label_texts)
        notes: list[str] = []
        train = _split(train_file, options, n_labels, label_file, notes)
        if not label_file:
            n_labels = int(train.labels.shape[1])
        if test_file:
            test = _split(test_file, options, n_labels, label_file, notes)
            n_labels = max(n_labels, int(test.labels.shape[1]))
            train.labels.resize(len(train), n_labels)
        else:
            test = Split(Texts.of([]), csr_matrix((0, n_labels), dtype=np.float32))
        train, test = read_filters(path, *read_filters(folder, train, test))
        return Dataset(path.resolve().name, train, test, label_texts, label_uids, notes=tuple(notes))

    def write(self, data: Dataset, folder: Path) -> list[str]:
        _write_rows(folder / "trn.json.gz", data.train, "trn")
        if len(data.test):
            _write_rows(folder / "tst.json.gz", data.test, "tst")
        lost = []
        if data.label_texts is None:
            lost.append("lbl.json is left out: the labels have no texts.")
        else:
            write_gzipped(folder / "lbl.json.gz", data.label_texts, data.label_uids, "lbl")
        if data.train.features is not None or data.label_features is not None:
            lost.append("Features are left out: the XC raw layout holds texts only.")
        write_filters(folder, data)
        return lost


def _folder(path: Path) -> Path | None:
    """The folder itself or its raw/ subfolder, where trn.json is."""
    return next((folder for folder in (path, path / "raw") if existing(folder, "trn.json")), None)


def _rows(path: Path, options: ReadOptions) -> tuple[Texts, Texts | None, csr_matrix]:
    rows = read_json_rows(path, [*options.fields, "uid"], options.encoding)
    *parts, uids = rows.strings
    texts = parts[0] if len(parts) == 1 else Texts.of(" ".join(filter(None, fields)) for fields in zip(*parts, strict=True))
    return texts, uids if int(uids.offsets[-1]) else None, rows.labels


def _split(path: Path, options: ReadOptions, n_labels: int, label_file: Path | None, notes: list[str]) -> Split:
    texts, uids, labels = _rows(path, options)
    if label_file:
        check_range(path, labels, n_labels, f"Label ids count the lines of {label_file.name} from 0.")
        labels.resize(labels.shape[0], n_labels)
    return Split(texts, tidy_labels(labels, path.name, notes), uids=uids)


def _write_rows(path: Path, split: Split, prefix: str) -> None:
    if split.texts is None:
        raise DataError("This data set has features but no texts; the XC raw layout needs texts. Convert it to 'sparse'.")
    write_gzipped(path, split.texts, split.uids, prefix, split.labels)
