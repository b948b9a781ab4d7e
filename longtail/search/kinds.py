"""The kinds of index, by name."""

from __future__ import annotations

from longtail.errors import UnknownName
from longtail.search.approximate import Graph
from longtail.search.exact import Exact
from longtail.search.labels import Index
from longtail.search.quantised import Bits, Bytes

KINDS: dict[str, type[Index]] = {kind.kind: kind for kind in (Exact, Bytes, Bits, Graph)}


def kind_of(name: str) -> type[Index]:
    """The index of that name."""
    if name not in KINDS:
        raise UnknownName("kind of index", name, KINDS)
    return KINDS[name]
