"""A Debian package index (a Packages file, or what apt knows) -> packages."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from longtail.core.errors import DataError
from longtail.core.progress import progress
from longtail.data.faults import Faults
from longtail.data.files import shorten

LINKS = ("Pre-Depends", "Depends", "Recommends", "Suggests")
WANTED = frozenset(("Package", "Source", "Description", "Description-en", "Provides", *LINKS))
INSTEAD = "or make a set without one: longtail data synth --like LF-AmazonTitles-131K --out DIR"
UNREAD = (".lz4", ".bz2", ".zst")
REPORT_EVERY = 20_000  # lines

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9+.\-]*")  # of "libc6:any (>= 2.34) [amd64]", only "libc6"


@dataclass(frozen=True)
class Package:
    """A package and what it asks for: one tuple of alternatives for each clause, versions and architectures left out."""

    name: str
    source: str
    description: str
    provides: tuple[str, ...]
    asks: tuple[tuple[str, ...], ...]


def read_packages(index: Path | None = None) -> list[Package]:
    """The packages of a Packages file (plain, .gz or .xz), or of this machine's apt; sorted by name, each name once."""
    where, data = (Path("apt-cache dumpavail"), _ask_apt()) if index is None else (index, _read(index))
    found: dict[str, Package] = {}
    faults = Faults(where)
    for line, fields in _stanzas(where, data, faults):
        if "Package" not in fields:
            faults.add("nameless", line, f"a stanza without a Package field came, with {', '.join(fields) or 'no known field'}.")
            continue
        package = _package(fields)
        if package.description:
            found.setdefault(package.name, package)  # an index lists a package again for another version of it
    faults.check()
    if not found:
        raise DataError(f"{where}: no package came. Fetch apt's index as root: apt-get update; {INSTEAD}.")
    return [found[name] for name in sorted(found)]


def _ask_apt() -> bytes:
    command = shutil.which("apt-cache")
    if command is None:
        raise DataError(f"apt-cache is not installed here. Name a Packages file of a Debian mirror as index, {INSTEAD}.")
    done = subprocess.run([command, "dumpavail"], capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise DataError(f"apt-cache dumpavail failed ({said[-1] if said else done.returncode}). As root type: apt-get update; {INSTEAD}.")
    return done.stdout


def _read(path: Path) -> bytes:
    if path.suffix in UNREAD:
        wanted = "a Packages file, plain, .gz or .xz, or no index to ask this machine's apt"
        raise DataError(f"{path}: {path.suffix} is not read here; wanted {wanted}.")
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)
    try:
        return unpack(path.read_bytes())
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"{path}: {said}. Wanted a Packages file, plain, .gz or .xz.") from error


def _stanzas(where: Path, data: bytes, faults: Faults) -> Iterator[tuple[int, dict[str, str]]]:
    """(line of its beginning, its wanted fields) of each stanza."""
    fields: dict[str, str] = {}
    began, last = 1, ""
    text = data.decode(errors="replace")
    with progress(f"Reading {where.name}", len(text), "bytes") as advance:
        unreported = 0
        for number, line in enumerate(text.split("\n"), start=1):
            unreported += len(line) + 1
            if number % REPORT_EVERY == 0:
                advance(unreported)
                unreported = 0
            if not line.strip():
                if last:
                    yield began, fields
                fields, began, last = {}, number + 1, ""
            elif line[0] in " \t":
                if last in LINKS or last == "Provides":  # the long lines of a description are not wanted
                    fields[last] += " " + line.strip()
                elif not last:
                    faults.add("form", number, f"{shorten(line)!r} came at the beginning of a stanza; wanted 'Field: value'.")
            else:
                last, colon, value = line.partition(":")
                if not colon or not last or " " in last:
                    faults.add("form", number, f"{shorten(line)!r} came; wanted 'Field: value'.")
                elif last in WANTED:
                    fields[last] = value.strip()
        if last:
            yield began, fields


def _package(fields: dict[str, str]) -> Package:
    name = fields["Package"]
    source = NAME.match(fields.get("Source", name))
    return Package(
        name=name,
        source=source.group() if source else name,
        description=fields.get("Description") or fields.get("Description-en", ""),
        provides=tuple(_names(fields.get("Provides", ""), ",")),
        asks=tuple(_names(clause, "|") for key in LINKS for clause in fields.get(key, "").split(",") if clause.strip()),
    )


def _names(field: str, separator: str) -> tuple[str, ...]:
    """
    >>> _names("libc6 (>= 2.34) | libc6.1:any [alpha]", "|")
    ('libc6', 'libc6.1')
    """
    found = (NAME.match(part.strip()) for part in field.split(separator))
    return tuple(match.group() for match in found if match)
