"""Settings as they are typed, `delta=0.2`, made into the dataclass that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from longtail.core.errors import SettingError, UnknownName
from longtail.data.vectors import read_vectors

T = TypeVar("T")
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
WANTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Mapping: "a file of word vectors"}


def build(cls: type[T], typed: Iterable[str], name: str) -> T:
    """cls(**settings) from `key=value` words, or what is wrong with them. `name` is how messages call the class.

    >>> from longtail.data.augment.gandalf import Gandalf
    >>> made = build(Gandalf, ["delta=0.2", "mark=xxlabelxx"], "gandalf")
    >>> made.delta, made.mark
    (0.2, 'xxlabelxx')
    """
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    kinds = {key: _kinds(kind) for key, kind in get_type_hints(cls).items() if key in known}
    settings: dict[str, Any] = {}
    for word in typed:
        key, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f"{word!r} came behind {name}; wanted settings such as {next(iter(known))}=VALUE.")
        if key not in known:
            raise UnknownName(f"setting of {name}", key, known)
        if key in settings:
            raise SettingError(f"{key} was given twice; wanted it once.")
        settings[key] = _parsed(kinds[key], key, value)
    for key, field in known.items():
        if key not in settings and field.default is MISSING and field.default_factory is MISSING:
            raise SettingError(f"{name} needs {key}=VALUE: {_wanted(kinds[key])}.")
    return cls(**settings)


def _kinds(kind: Any) -> list[Any]:
    """The types that a setting may have and that can be typed; an array, for instance, cannot."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    plain = (get_origin(one) or one for one in kinds)
    return [
        one if origin is Literal else origin for one, origin in zip(kinds, plain, strict=True) if origin in (*WANTED, Literal, NoneType)
    ]


def _parsed(kinds: list[Any], key: str, value: str) -> Any:
    if NoneType in kinds and value.lower() == "none":
        return None
    for kind in kinds:
        if kind is bool and value.lower() in TRUTHS:
            return TRUTHS[value.lower()]
        if kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        if kind is str:
            return value
        if get_origin(kind) is Literal and value in get_args(kind):
            return value
        if kind is Mapping:
            return read_vectors(value)
    raise SettingError(f"{key} came as {value!r}; wanted {_wanted(kinds)}.")


def _wanted(kinds: list[Any]) -> str:
    """What may be typed, in words."""
    told = [" or ".join(get_args(kind)) if get_origin(kind) is Literal else WANTED.get(kind, "none") for kind in kinds]
    return ", or ".join(told)


def from_table(cls: type[T], table: Mapping[str, Any], name: str) -> T:
    """cls(**table) from a table as a TOML file holds it, or what is wrong with it. `name` is how messages call the table.

    >>> from longtail.data.augment.gandalf import Gandalf
    >>> from_table(Gandalf, {"delta": 0.2}, "gandalf").delta
    0.2
    """
    if not isinstance(table, Mapping):
        raise SettingError(f"{name} came as {table!r}; wanted a table of settings.")
    hints = get_type_hints(cls)
    known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    made = {}
    for key, value in table.items():
        if key not in known:
            raise UnknownName(f"setting of {name}", key, known)
        made[key] = _fitting(hints[key], value, f"{name}.{key}")
    return cls(**made)


def _fitting(hint: Any, value: Any, where: str) -> Any:
    """The value as the hint wants it: lists become tuples, whole numbers may stand for others; anything else is refused."""
    for kind in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if kind is NoneType and value in (None, "none"):
            return None
        if get_origin(kind) is tuple and isinstance(value, (list, tuple)):
            inner = get_args(kind)[0]
            return tuple(_fitting(inner, one, where) for one in value)
        if get_origin(kind) is Literal and value in get_args(kind):
            return value
        if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if kind in (bool, int, str) and type(value) is kind:
            return value
    raise SettingError(f"{where} came as {value!r}; wanted {_in_words(hint)}.")


def _in_words(hint: Any) -> str:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    told = []
    for kind in kinds:
        if get_origin(kind) is tuple:
            told.append(f"a list of {WANTED[get_args(kind)[0]].removeprefix('a ')}s")
        elif get_origin(kind) is Literal:
            told.append(" or ".join(map(str, get_args(kind))))
        else:
            told.append(WANTED.get(kind, "none"))
    return ", or ".join(told)
