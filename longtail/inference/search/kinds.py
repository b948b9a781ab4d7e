"""Kinds of index, by name. A new kind is a class with the interface of `Index` and a word here."""

from __future__ import annotations

from longtail.core.errors import UnknownName
from longtail.inference.search.approximate import Graph
from longtail.inference.search.exact import Exact
from longtail.inference.search.labels import Index
from longtail.inference.search.quantised import Bits, Bytes

KINDS: dict[str, type[Index]] = {kind.kind: kind for kind in (Exact, Bytes, Bits, Graph)}


def kind_of(name: str) -> type[Index]:
    """The index class of that name."""
    if name not in KINDS:
        raise UnknownName("kind of index", name, KINDS)
    return KINDS[name]
