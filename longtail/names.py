"""Short name -> class, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from longtail.errors import UnknownName

# name -> (where it lives, what it is); formats stand in the order in which they are tried on a path
FORMATS = {
    "xc": ("longtail.data.formats.xc:XCRaw", "XC repository raw text: trn.json.gz, tst.json.gz, lbl.json.gz"),
    "sparse": ("longtail.data.formats.sparse:XCSparse", "XC repository sparse text: trn_X_Y.txt, trn_X.txt, Y.txt, .npz"),
    "parquet": ("longtail.data.formats.parquet:ParquetTable", "Parquet with a text and a labels column"),
    "pecos": ("longtail.data.formats.pecos:Pecos", "PECOS text2text: ids<TAB>text lines and labels.txt"),
    "fasttext": ("longtail.data.formats.fasttext:FastText", "fastText: __label__ lines"),
    "table": ("longtail.data.formats.table:Table", "CSV, TSV or JSON lines with a text and a labels column"),
}

KINDS = {"formats": FORMATS}


def load(kind: str, name: str) -> Any:
    """The class registered under `name`.

    >>> load("formats", "xc").__name__
    'XCRaw'
    """
    table = KINDS[kind]
    if name not in table:
        raise UnknownName(kind.removesuffix("s"), name, table)
    module, _, attribute = table[name][0].partition(":")
    return getattr(import_module(module), attribute)


def describe_names(kind: str) -> list[tuple[str, str]]:
    """Each name of a kind with one line of what it is."""
    return [(name, what) for name, (_, what) in KINDS[kind].items()]
