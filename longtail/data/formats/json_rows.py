"""JSON lines to columns: a fast pass in a kernel, and Python's json for every line the kernel finds odd."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import SettingError
from longtail.core.kernels.json_lines import json_scratch, scan_json_lines
from longtail.core.values import Bytes, Offsets, Texts
from longtail.data.faults import Faults
from longtail.data.files import Block, blocks, in_order, shorten
from longtail.data.growing import GrowingRows, GrowingTexts, Scratch

IDS, RELEVANCE = "target_ind", "target_rel"
_Arrays = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64]]
LARGEST = 3.40282356e38  # decimals up to here round to a finite float32


@dataclass(frozen=True)
class JsonRows:
    """The lines of one file: the asked string fields, and the labels with as many columns as the largest id needs."""

    strings: list[Texts]
    labels: csr_matrix


@dataclass
class _Parsed:
    strings: list[Texts]
    ids: NDArray[np.int32]
    relevance: NDArray[np.float32]
    ends: Offsets
    faults: list[tuple[str, int, str]]  # kind, line, message
    share: float


def read_json_rows(path: Path, fields: Sequence[str], encoding: str = "utf-8") -> JsonRows:
    """Read `fields` (the first is required) and the labels of every line."""
    for name in fields:
        if json.dumps(name, ensure_ascii=False) != f'"{name}"':
            raise SettingError(f"field {name!r} holds a quote, a backslash or a control character; longtail reads fields without them.")
    names = [name.encode() for name in (*fields, IDS, RELEVANCE)]
    name_bytes = np.frombuffer(b"".join(names), np.uint8)
    name_ends = np.cumsum([0, *map(len, names)])
    faults = Faults(path)
    strings = [GrowingTexts() for _ in fields]
    labels = GrowingRows()
    scratch = Scratch(partial(json_scratch, len(fields)))
    for parsed in in_order(blocks(path, encoding), lambda block: _parse(block, fields, name_bytes, name_ends, scratch)):
        for kind, line, message in parsed.faults:
            faults.add(kind, line, message)
        for column, part in zip(strings, parsed.strings, strict=True):
            column.add(part, parsed.share)
        labels.add(parsed.ids, parsed.relevance, parsed.ends, parsed.share)
    faults.check()
    return JsonRows([column.done() for column in strings], labels.done())


def _parse(block: Block, fields: Sequence[str], names: Bytes, name_ends: NDArray[np.int64], scratch: Scratch[_Arrays]) -> _Parsed:
    faults: list[tuple[str, int, str]] = []
    data = block.array
    for _ in range(2):  # the second time without odd lines
        with scratch.lend(len(data)) as buffers:
            string_ends, ends, odd = scan_json_lines(data, names, name_ends, *buffers)
            if odd.any():
                data = np.frombuffer(_rewrite_odd_lines(block, odd, fields, faults), np.uint8)
                continue
            texts = [Texts(part[: end[-1]].copy(), end) for part, end in zip(buffers[0], string_ends, strict=True)]
            ids, relevance = (part[: ends[-1]].copy() for part in buffers[2:])
            break
    wrong = (ids != np.floor(ids)) | (ids < 0) | (ids > np.iinfo(np.int32).max) | ~(np.abs(relevance) <= LARGEST)
    if wrong.any():
        for place in np.flatnonzero(wrong).tolist():
            line = int(np.searchsorted(ends, place, side="right")) - 1
            came = f"label {ids[place]:g} with relevance {relevance[place]:g}"
            faults.append(("label", block.line + line, f"{came}; wanted a whole number from 0 and a finite relevance."))
        ids, relevance = np.where(wrong, 0, ids), np.where(wrong, 0, relevance)
    return _Parsed(texts, ids.astype(np.int32), relevance.astype(np.float32), ends, faults, block.share)


def _rewrite_odd_lines(block: Block, odd: NDArray[np.bool_], fields: Sequence[str], faults: list[tuple[str, int, str]]) -> bytes:
    """The block with each odd line replaced by plain JSON of what Python's json reads there."""
    lines = block.bytes.split(b"\n")
    for place in np.flatnonzero(odd).tolist():
        try:
            row = _plain_row(lines[place], fields)
        except ValueError as fault:
            faults.append((type(fault).__name__ + str(fault)[:12], block.line + place, str(fault)))
            row = {fields[0]: ""}
        lines[place] = json.dumps(row, ensure_ascii=False).encode()
    return b"\n".join(lines)


def _plain_row(line: bytes, fields: Sequence[str]) -> dict[str, object]:
    shown = shorten(line.decode(errors="replace"))
    try:
        row = json.loads(line.decode())  # of bytes, json would guess an encoding from zero bytes
    except (ValueError, RecursionError) as error:
        detail = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise ValueError(f"not JSON ({detail}): {shown!r}; wanted one object a line.") from error
    if not isinstance(row, dict):
        raise ValueError(f"a JSON {type(row).__name__} came: {shown!r}; wanted an object.")
    plain: dict[str, object] = {}
    for field in fields:
        value = row.get(field, "" if field != fields[0] else None)
        if not isinstance(value, str):
            came = "missing" if field not in row else shorten(repr(value))
            has = shorten(", ".join(map(repr, row)) or "none", 200)
            raise ValueError(f"field {field!r} is {came}; wanted a text. Fields of the line: {has}.")
        plain[field] = Texts.of([value])[0]
    ids = row.get(IDS, [])
    relevance = row.get(RELEVANCE)
    if relevance is None:
        relevance = [1.0] * len(ids) if isinstance(ids, list) else []
    for name, values in ((IDS, ids), (RELEVANCE, relevance)):
        if not isinstance(values, list) or not all(map(_is_number, values)):
            raise ValueError(f"field {name!r} is {shorten(repr(values))}; wanted a list of finite numbers.")
    if len(ids) != len(relevance):
        raise ValueError(f"{len(ids)} entries in {IDS} but {len(relevance)} in {RELEVANCE}; wanted as many.")
    for value in ids:
        if value != int(value) or not 0 <= value < 2**31:
            raise ValueError(f"label {value!r} in {IDS}; wanted a whole number from 0.")
    plain[IDS] = [int(value) for value in ids]
    plain[RELEVANCE] = [float(value) for value in relevance]
    return plain


def _is_number(value: object) -> bool:
    # a whole number too large for a double is as far out of reach as infinity
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
