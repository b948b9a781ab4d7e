"""Any data set that longtail reads, written in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longtail.core import registry
from longtail.core.errors import DataError, UnknownName
from longtail.core.values import Dataset
from longtail.data.files import check_free, new_folder
from longtail.data.formats.base import Format
from longtail.data.read import read


def convert(source: str | Path, target: str | Path, to: str = "xc", **options: Any) -> list[str]:
    """Read `source` and write it into the new folder `target`, which appears whole or not at all.

    Args:
        source: anything that longtail.read takes.
        target: a folder that does not exist yet, or is empty.
        to: xc, sparse, parquet, pecos or fasttext.
        **options: those of longtail.read.

    Returns:
        One line for each thing that the new format cannot hold.
    """
    writer(to)  # an unknown name is answered before the reading
    check_free(Path(target))
    return write(read(source, **options), target, to)


def write(data: Dataset, target: str | Path, to: str = "xc") -> list[str]:
    """Write a data set into the new folder `target`; returns one line for each thing that the format cannot hold."""
    form = writer(to)
    with new_folder(Path(target)) as folder:
        lost = form.write(data, folder)
        found = next((other for other in map(_form, registry.FORMATS) if other.recognises(folder)), None)
        if not isinstance(found, type(form)):
            taken = f"would be taken for {found.title}" if found is not None else "would not be recognised"
            raise DataError(f"{data.name}: its first lines written as {to} {taken}. Choose another format.")
    return lost


def writer(name: str) -> Format:
    """The format of this name, where it can be written."""
    writers = writable()
    if name not in writers:
        raise UnknownName("format to write", name, writers)
    return writers[name]()


def _form(name: str) -> Format:
    form: Format = registry.load("formats", name)()
    return form


def writable() -> dict[str, type[Format]]:
    """Name -> class of the formats that can be written.

    >>> list(writable())
    ['xc', 'sparse', 'parquet', 'pecos', 'fasttext']
    """
    formats: dict[str, type[Format]] = {name: registry.load("formats", name) for name in registry.FORMATS}
    return {name: form for name, form in formats.items() if form.write is not Format.write}
