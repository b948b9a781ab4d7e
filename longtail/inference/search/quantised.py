"""Quantised search: a scan of small codes finds candidates, whose scores are then computed from the whole vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from longtail.core.kernels.search import encode_bytes, encode_texts, scan_bits, scan_bytes
from longtail.core.progress import progress
from longtail.inference.search.labels import Floats, Found, Labels

LABELS_AT_ONCE = 1 << 14  # encoded, so that building needs little memory
WORD = 64  # bits


def _mapped(folder: Path, name: str, kind: str, labels: Labels, *shape: int) -> NDArray[Any]:
    """An array in a file of its own, one row a label, to be filled."""
    return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", kind, (len(labels), *shape))


def _read(folder: Path, name: str, kind: str, *shape: int) -> NDArray[Any]:
    """An array as it lies on disk."""
    array = np.load(folder / f"{name}.npy", mmap_mode="r")
    if array.dtype != kind or array.shape != shape:
        raise ValueError(f"{name}.npy holds {array.dtype} {array.shape}, not {kind} {shape}")
    return np.asarray(array)  # kernels know plain arrays faster than mapped ones


@final
@dataclass(frozen=True, eq=False)
class Bytes:
    """A byte for each dimension, and a scale for each label: a quarter of the size, and products near enough to tell which labels to score.

    With v ~ s c in whole numbers c and x ~ u y likewise, a product differs from s u c y by no more than |x| |v - s c| + |s c| |x - u y|. No
    dimension of v - s c is above s / 2 and none of x - u y above u / 2, so with c up to 127 and y up to Y = max |x| / u it is at most
    s |x| sqrt(dim) (1/2 + 127 sqrt(dim) / 2 Y): the labels found are the best of all, always.
    """

    kind: ClassVar[str] = "int8"
    efforts: ClassVar[tuple[int, ...]] = (1,)

    labels: Labels
    codes: NDArray[np.int8]  # (n, dim)
    scales: Floats  # (n,)

    @classmethod
    def of(cls, labels: Labels) -> Bytes:
        """In memory."""
        codes, scales = np.empty(labels.vectors.shape, np.int8), np.empty(len(labels), np.float32)
        encode_bytes(labels.vectors, codes, scales)
        return cls(labels, codes, scales)

    @classmethod
    def build(cls, labels: Labels, texts: Floats, folder: Path, seed: int) -> None:
        codes, scales = _mapped(folder, "codes", "int8", labels, labels.dim), _mapped(folder, "scales", "float32", labels)
        with progress("Encoding labels in bytes", len(labels), "labels") as advance:
            for start in range(0, len(labels), LABELS_AT_ONCE):
                part = labels.vectors[start : start + LABELS_AT_ONCE]
                encode_bytes(part, codes[start : start + len(part)], scales[start : start + len(part)])
                advance(len(part))

    @classmethod
    def open(cls, labels: Labels, folder: Path, effort: int) -> Bytes:
        n, dim = labels.vectors.shape
        return cls(labels, _read(folder, "codes", "int8", n, dim), _read(folder, "scales", "float32", n))

    def search(self, texts: Floats, k: int) -> Found:
        texts, dim = self.labels.checked(texts, k), self.labels.dim
        n_best = min(k, len(self.labels))
        # a text in two bytes, as its products with bytes are summed in 31 bits
        max_code = min(32767, (2**31 - 1) // (127 * dim))
        small, units, lengths = encode_texts(texts, max_code)
        share = dim**0.5 * (0.5 + 127 * dim**0.5 / (2 * max_code)) + 127 * dim**1.5 * 2.0**-22  # the last of sums in float32
        reaches = lengths * np.float32(share)

        def scan(rows: slice, part: slice) -> NDArray[np.int32]:
            bias = self.labels.bias[part] if len(self.labels.bias) else self.labels.bias
            own = self.codes[part], self.scales[part], bias, self.labels.vectors[part]
            found: NDArray[np.int32] = scan_bytes(*own, texts[rows], small[rows], units[rows], reaches[rows], n_best)
            return found

        return self.labels.found_by(scan, texts, k)


@final
@dataclass(frozen=True, eq=False)
class Bits:
    """A bit for each dimension: its side of the middle of all labels, after a random rotation that makes all directions alike.

    With the means m of texts and u of labels, x v = (x - m)(v - u) + m (v - u) + what is the same for all labels. The share of bits in
    which x - m and v - u differ tells the angle between them; their lengths, and m (v - u) with the label's bias, are kept in float32.
    """

    kind: ClassVar[str] = "binary"
    efforts: ClassVar[tuple[int, ...]] = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)

    labels: Labels
    codes: NDArray[np.uint64]  # (n, words)
    lengths: Floats  # (n,)
    offsets: Floats  # (n,)
    turn: Floats  # (dim, dim)
    middle: Floats  # (dim,) of texts
    effort: int  # candidates for each label that is wanted

    @classmethod
    def build(cls, labels: Labels, texts: Floats, folder: Path, seed: int) -> None:
        dim, random = labels.dim, np.random.default_rng(seed)
        turn = np.linalg.qr(random.standard_normal((dim, dim)))[0].astype(np.float32)
        middle = texts.mean(axis=0) if len(texts) else np.zeros(dim, np.float32)
        np.save(folder / "turn.npy", turn)
        np.save(folder / "middle.npy", middle)
        codes = _mapped(folder, "codes", "uint64", labels, _words(dim))
        lengths, offsets = _mapped(folder, "lengths", "float32", labels), _mapped(folder, "offsets", "float32", labels)
        parts = [slice(start, start + LABELS_AT_ONCE) for start in range(0, len(labels), LABELS_AT_ONCE)]
        with progress("Encoding labels in bits", 2 * len(labels), "labels") as advance:
            total = np.zeros(dim)
            for part in parts:
                total += labels.vectors[part].sum(axis=0, dtype=np.float64)
                advance(len(labels.vectors[part]))
            centre = (total / len(labels)).astype(np.float32)
            for part in parts:
                centred = labels.vectors[part] - centre
                codes[part] = _packed(centred @ turn)
                lengths[part] = np.linalg.norm(centred, axis=1)
                offsets[part] = centred @ middle + (labels.bias[part] if len(labels.bias) else 0)
                advance(len(centred))

    @classmethod
    def open(cls, labels: Labels, folder: Path, effort: int) -> Bits:
        n, dim = labels.vectors.shape
        return cls(
            labels,
            _read(folder, "codes", "uint64", n, _words(dim)),
            _read(folder, "lengths", "float32", n),
            _read(folder, "offsets", "float32", n),
            _read(folder, "turn", "float32", dim, dim),
            _read(folder, "middle", "float32", dim),
            effort,
        )

    def search(self, texts: Floats, k: int) -> Found:
        texts = self.labels.checked(texts, k)
        n_candidates = min(k * self.effort, len(self.labels))
        centred = texts - self.middle
        codes = _packed(centred @ self.turn)
        angles = np.cos(np.linspace(0, np.pi, self.labels.dim + 1)).astype(np.float32)
        tables = np.linalg.norm(centred, axis=1)[:, None] * angles  # (b, dim + 1)

        def scan(rows: slice, part: slice) -> NDArray[np.int32]:
            own = self.codes[part], self.lengths[part], self.offsets[part]
            found: NDArray[np.int32] = scan_bits(*own, codes[rows], tables[rows], n_candidates)
            return found

        return self.labels.found_by(scan, texts, k)


def _words(dim: int) -> int:
    return -(-dim // WORD)


def _packed(vectors: NDArray[Any]) -> NDArray[np.uint64]:
    """(b, words): which dimensions are above 0, a bit each; the bits behind the last dimension are 0."""
    packed = np.zeros((len(vectors), _words(vectors.shape[1]) * 8), np.uint8)
    bits = np.packbits(vectors > 0, axis=1)
    packed[:, : bits.shape[1]] = bits
    return packed.view(np.uint64)
