"""Reading speed and memory, compared with a plain Python loop.

python benchmarks/read.py                       # generated data: 500,000 JSON lines, 2.25 M sparse rows
python benchmarks/read.py --folder DATA         # the JSON lines of a data set in the XC raw layout instead
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
from side_by_side import contend, measure, table

SPARSE_ROWS, SPARSE_PAIRS, SPARSE_LABELS = 2_248_619, 50_000_000, 1_305_265  # the shape of LF-AmazonTitles-1.3M


def plain_json(path: Path) -> object:
    texts, ids, relevance, ends = [], [], [], [0]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            texts.append(row["title"])
            ids.extend(row["target_ind"])
            relevance.extend(row["target_rel"])
            ends.append(len(ids))
    return texts, np.array(ids, np.int32), np.array(relevance, np.float32), np.array(ends)


def plain_sparse(path: Path) -> object:
    ids, values, ends = [], [], [0]
    with open(path, encoding="ascii") as file:
        next(file)
        for line in file:
            for pair in line.split():
                label, value = pair.split(":")
                ids.append(int(label))
                values.append(float(value))
            ends.append(len(ids))
    return np.array(ids, np.int32), np.array(values, np.float32), np.array(ends)


def unpack_json(path: Path) -> object:
    """The floor: the gzip stream unpacked into one buffer, nothing made of it."""
    buffer = bytearray(1 << 20)
    with gzip.open(path, "rb") as file:
        while file.readinto(buffer):
            pass
    return ()


def longtail_json(path: Path) -> object:
    from longtail.data.formats.json_rows import read_json_rows

    return read_json_rows(path, ["title", "uid"])


def longtail_sparse(path: Path) -> object:
    from longtail.data.formats.sparse import read_matrix

    return read_matrix(path)


CONTENDERS = {
    "plain_json": plain_json,
    "plain_sparse": plain_sparse,
    "unpack_json": unpack_json,
    "longtail_json": longtail_json,
    "longtail_sparse": longtail_sparse,
}


def result_bytes(result: object) -> int:
    from scipy.sparse import csr_matrix

    if isinstance(result, csr_matrix):
        return int(result.data.nbytes + result.indices.nbytes + result.indptr.nbytes)
    if isinstance(result, tuple):
        return sum(part.nbytes if isinstance(part, np.ndarray) else sum(57 + len(text) for text in part) for part in result)
    strings = sum(texts.buffer.nbytes + texts.offsets.nbytes for texts in result.strings)  # type: ignore[attr-defined]
    return int(strings) + result_bytes(result.labels)  # type: ignore[attr-defined]


def make_json(path: Path, rows: int = 500_000) -> None:
    random = np.random.default_rng(0)
    words = [f"word{number}" for number in range(20_000)]
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=4) as file:
        for row in range(rows):
            title = " ".join(words[place] for place in random.zipf(1.3, 9) % len(words))
            ids = random.integers(0, 25_000, random.integers(1, 5)).tolist()
            line = {"uid": f"trn{row}", "title": title, "content": "", "target_ind": ids, "target_rel": [1.0] * len(ids)}
            file.write(json.dumps(line) + "\n")


def make_sparse(path: Path) -> None:
    random = np.random.default_rng(0)
    pairs = [f"{label}:1.0" for label in range(SPARSE_LABELS)]
    sizes = random.multinomial(SPARSE_PAIRS, random.dirichlet(np.full(SPARSE_ROWS, 0.7)))
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{SPARSE_ROWS} {SPARSE_LABELS}\n")
        for size in sizes.tolist():
            file.write(" ".join([pairs[label] for label in random.integers(0, SPARSE_LABELS, size).tolist()]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="a data set in the XC raw layout, for its JSON lines")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        if options.contender.startswith("longtail"):  # compiled and cached before the clock runs
            with tempfile.TemporaryDirectory() as folder:
                small = Path(folder) / "small.txt"
                small.write_text("1 1\n0:1\n" if "sparse" in options.contender else '{"title": "é"}\n')
                CONTENDERS[options.contender](small)
        contend(lambda: CONTENDERS[options.contender](options.path), result_bytes)
        return
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "trn.json.gz"
        if options.folder:
            lines = next(options.folder.glob("trn.json*"))
        else:
            make_json(lines)
        sparse = Path(folder) / "trn_X_Y.txt"
        make_sparse(sparse)
        for title, path, kind in (
            (f"JSON lines, gzipped: {lines.stat().st_size / 1e6:.0f} MB", lines, "json"),
            (f"Sparse labels: {SPARSE_ROWS:,} rows, {SPARSE_PAIRS:,} pairs, {sparse.stat().st_size / 1e6:.0f} MB", sparse, "sparse"),
        ):
            rows = {
                f"plain loop ({'json' if kind == 'json' else 'split'})": measure(__file__, f"plain_{kind}", "--path", str(path), times=2),
                "longtail": measure(__file__, f"longtail_{kind}", "--path", str(path), times=3),
            }
            if kind == "json":
                rows["unpacking the gzip alone"] = measure(__file__, "unpack_json", "--path", str(path), times=3)
            table(title, rows, "longtail")


if __name__ == "__main__":
    main()
