"""Write TOML: what `tomllib` reads back as the same tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(tables: Mapping[str, object]) -> str:
    """The tables of a recipe as a TOML file holds them; a list of tables becomes [[stages]], [[members]], [[members.stages]].

    >>> print(toml_text({"stages": [{"epochs": 3}], "labels": {"parts": ["text"]}, "about": "a \\"b\\""}), end="")
    about = "a \\"b\\""
    <BLANKLINE>
    [labels]
    parts = ["text"]
    <BLANKLINE>
    [[stages]]
    epochs = 3
    """
    return "\n".join(_blocks("", tables, ()))


def _blocks(header: str, table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    """A table under its header, then the tables inside it, then its lists of tables."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lists = {key: value for key, value in table.items() if isinstance(value, list | tuple) and _is_list_of_tables(value)}
    lines = [f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if key not in inner and key not in lists]
    if header or lines:
        yield header + "".join(lines)
    for key, value in inner.items():
        yield from _blocks(f"[{_dotted(*path, key)}]\n", value, (*path, key))
    for key, tables in lists.items():
        for one in tables:
            yield from _blocks(f"[[{_dotted(*path, key)}]]\n", one, (*path, key))


def _is_list_of_tables(value: list[object] | tuple[object, ...]) -> bool:
    return bool(value) and all(isinstance(one, Mapping) for one in value)


def _dotted(*keys: str) -> str:
    return ".".join(map(_key, keys))


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's, but for this one


def _value(value: object) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)} = {_value(one)}' for key, one in value.items())}}}"
    raise TypeError(f"{value!r} came as a value of TOML; wanted a text, a number, true or false, a list or a table.")
