"""The XC repository's sparse text layouts, with .npz label matrices and older names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, load_npz, save_npz

from longtail.core.errors import DataError
from longtail.core.kernels.sparse_text import scan_sparse_text, sparse_scratch
from longtail.core.values import Dataset, Offsets, Split, Texts
from longtail.data.faults import Faults, one_line
from longtail.data.files import Block, blocks, existing, first_line, in_order, shorten
from longtail.data.filters import read_filters, write_filters
from longtail.data.formats.base import Format, ReadOptions
from longtail.data.growing import GrowingRows, Scratch
from longtail.data.lines import read_lines, write_lines
from longtail.data.matrices import check_range, tidy, tidy_labels

LABELS = {"train": ("trn_X_Y.txt", "trn_X_Y.npz", "Y.trn.npz"), "test": ("tst_X_Y.txt", "tst_X_Y.npz", "Y.tst.npz")}
TEXTS = {"train": ("trn_X.txt",), "test": ("tst_X.txt",)}
FEATURES = {"train": ("trn_X_Xf.txt", "trn_X_Xf.npz"), "test": ("tst_X_Xf.txt", "tst_X_Xf.npz")}
LABEL_TEXTS = ("Y.txt",)
LABEL_FEATURES = ("Yf.txt", "lbl_X_Xf.txt", "Yf.npz", "lbl_X_Xf.npz")
SINGLE_FILE = {"train": ("train.txt",), "test": ("test.txt",)}


class XCSparse(Format):
    """Folder of `id:value` lines: labels, texts and features each in a file of their own, or all in train.txt."""

    title = "the XC sparse layout (trn_X_Y.txt)"
    uses = frozenset({"encoding"})

    def recognises(self, path: Path) -> bool:
        return path.is_dir() and (existing(path, *LABELS["train"]) is not None or _single(path, "train") is not None)

    def read(self, path: Path, options: ReadOptions) -> Dataset:
        notes: list[str] = []
        label_file = existing(path, *LABEL_TEXTS)
        label_texts = read_lines(label_file, options.encoding) if label_file else None
        read = _read_single if _single(path, "train") else _read_parts
        train, test = (read(path, split, options, notes) for split in ("train", "test"))
        n_labels = len(label_texts) if label_texts is not None else max(int(train.labels.shape[1]), int(test.labels.shape[1]))
        for split in (train, test):
            source = existing(path, *LABELS["train" if split is train else "test"], *SINGLE_FILE["train" if split is train else "test"])
            hint = f"{LABEL_TEXTS[0]} has {n_labels:,} lines." if label_texts is not None else ""
            if split.labels.shape[1] > n_labels and not (split.labels.indices >= n_labels).any():
                raise DataError(f"{source}: {split.labels.shape[1]:,} columns came; wanted at most {n_labels:,}. {hint}")
            check_range(source or path, split.labels, n_labels, hint, first_line=2)
            split.labels.resize(len(split), n_labels)
        feature_file = existing(path, *LABEL_FEATURES)
        label_features = read_matrix(feature_file) if feature_file else None
        if label_features is not None and label_features.shape[0] != n_labels:
            raise DataError(f"{feature_file}: {label_features.shape[0]:,} rows came; wanted one for each of {n_labels:,} labels.")
        train, test = read_filters(path, train, test)
        return Dataset(path.resolve().name, train, test, label_texts, None, label_features, tuple(notes))

    def write(self, data: Dataset, folder: Path) -> list[str]:
        lost: list[str] = []
        for split, key in ((data.train, "train"), (data.test, "test")):
            if key == "test" and not len(split):
                continue
            write_matrix(folder / LABELS[key][0], split.labels)
            if split.texts is not None:
                lost += write_lines(folder / TEXTS[key][0], split.texts)
            if split.features is not None:
                write_matrix(folder / FEATURES[key][0], split.features)
        if data.label_texts is not None:
            lost += write_lines(folder / LABEL_TEXTS[0], data.label_texts)
        if data.label_features is not None:
            write_matrix(folder / LABEL_FEATURES[0], data.label_features)
        if data.train.uids is not None or data.label_uids is not None:
            lost.append("uids are left out: the XC sparse layout numbers its rows.")
        write_filters(folder, data)
        return lost


def _single(folder: Path, split: str) -> Path | None:
    """train.txt or test.txt, where it is the old single-file layout: a header of three numbers."""
    path = existing(folder, *SINGLE_FILE[split])
    if path is None:
        return None
    header = first_line(path).split()
    return path if len(header) == 3 and all(map(_is_size, header)) else None


def _is_size(part: str) -> bool:
    # str.isdigit alone takes digits such as '²', and int() refuses thousands of digits
    return part.isascii() and part.isdigit() and len(part) <= 10 and int(part) < 2**31


def _read_single(folder: Path, split: str, options: ReadOptions, notes: list[str]) -> Split:
    path = _single(folder, split)
    if path is None:
        return Split(None, csr_matrix((0, 0), dtype=np.float32))
    features, labels = _read_text_matrix(path, labels_first=True)
    return Split(None, tidy_labels(labels, path.name, notes), features=tidy(features)[0])


def _read_parts(folder: Path, split: str, options: ReadOptions, notes: list[str]) -> Split:
    label_file = existing(folder, *LABELS[split])
    text_file = existing(folder, *TEXTS[split])
    feature_file = existing(folder, *FEATURES[split])
    if label_file is None:
        return Split(Texts.of([]), csr_matrix((0, 0), dtype=np.float32))
    labels = tidy_labels(read_matrix(label_file), label_file.name, notes)
    texts = read_lines(text_file, options.encoding) if text_file else None
    features = tidy(read_matrix(feature_file))[0] if feature_file else None
    for path, n_rows in ((text_file, texts is not None and len(texts)), (feature_file, features is not None and features.shape[0])):
        if path is not None and n_rows != labels.shape[0]:
            raise DataError(f"{path}: {n_rows or 0:,} rows came; wanted {labels.shape[0]:,}, as {label_file.name} has.")
    return Split(texts, labels, features=features)


def read_matrix(path: Path) -> csr_matrix:
    """A matrix from sparse text or .npz, as float32 csr."""
    return _read_npz(path) if path.suffix == ".npz" else _read_text_matrix(path, labels_first=False)[0]


def _read_npz(path: Path) -> csr_matrix:
    try:
        with open(path, "rb") as file:
            loaded = load_npz(file)
        if hasattr(loaded, "check_format"):
            loaded.check_format(full_check=True)  # before the change to csr, which trusts the ids
        if loaded.dtype.kind not in "biuf":
            raise ValueError(f"its values are {loaded.dtype}")
        with np.errstate(over="ignore"):  # what does not fit a float32 is counted below
            matrix = csr_matrix(loaded).astype(np.float32)
    except Exception as error:  # damaged bytes make zipfile, zlib, numpy and scipy raise many kinds
        raise DataError(f"{path}: not a sparse matrix ({one_line(error)}); wanted a file written by scipy.sparse.save_npz.") from error
    if not np.isfinite(matrix.data).all():
        raise DataError(f"{path}: {np.count_nonzero(~np.isfinite(matrix.data)):,} values are not finite.")
    return matrix


def _read_text_matrix(path: Path, labels_first: bool) -> tuple[csr_matrix, csr_matrix]:
    """(pairs, labels) of a sparse text file; `labels` has no columns where labels do not stand first."""
    wanted = "rows features labels" if labels_first else "rows columns"
    header = first_line(path).split()
    if len(header) != len(wanted.split()) or not all(map(_is_size, header)):
        raise DataError(f"{path}:1: {shorten(' '.join(header))!r} came; wanted the header {wanted!r}.")
    n_rows, n_columns, n_labels = map(int, [*header, "0"][:3])
    faults = Faults(path)
    pairs, labels = GrowingRows(), GrowingRows()
    form = "l1,l2 id:value ..." if labels_first else "id:value pairs"
    scratch = Scratch(sparse_scratch)

    def scan(block: Block) -> tuple[Block, Any]:
        with scratch.lend(len(block.bytes)) as buffers:
            return block, scan_sparse_text(block.array, labels_first, *buffers)

    for block, parsed in in_order(blocks(path, skip_lines=1), scan):
        ids, values, ends, label_ids, label_ends, n_faults, line, start, stop = parsed
        if n_faults:
            came = shorten(block.bytes[start:stop].decode(errors="replace"))
            faults.add("form", block.line + line, f"{came!r} came; wanted {form}.", n_faults)
        _check_columns(faults, block, ids, ends, n_columns, "id")
        _check_columns(faults, block, label_ids, label_ends, n_labels, "label")
        pairs.add(ids, values, ends, block.share)
        labels.add(label_ids, np.ones(len(label_ids), np.float32), label_ends, block.share)
    faults.check()
    matrix, label_matrix = pairs.done(n_columns), labels.done(n_labels)
    if matrix.shape[0] != n_rows:
        raise DataError(f"{path}: {matrix.shape[0]:,} lines came after the header; wanted {n_rows:,}, as the header says.")
    return matrix, label_matrix


def _check_columns(faults: Faults, block: Block, ids: NDArray[np.int32], ends: Offsets, n_columns: int, what: str) -> None:
    if not len(ids) or ids.max() < n_columns:
        return
    outside = np.flatnonzero(ids >= n_columns)
    lines = np.unique(np.searchsorted(ends, outside, side="right") - 1)
    faults.add(what, block.line + int(lines[0]), f"{what} {ids[outside[0]]} is outside 0..{n_columns - 1}, the header's range.", len(lines))


def write_matrix(path: Path, matrix: csr_matrix) -> None:
    """Sparse text where the name ends in .txt, .npz otherwise."""
    if path.suffix == ".npz":
        save_npz(path, matrix)
        return
    ids, values, ends = matrix.indices, matrix.data, matrix.indptr
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{matrix.shape[0]} {matrix.shape[1]}\n")
        for row in range(matrix.shape[0]):
            part = slice(ends[row], ends[row + 1])
            file.write(" ".join(f"{column}:{value!s}" for column, value in zip(ids[part], values[part], strict=True)) + "\n")
