"""Settings, as they are typed, `delta=0.2`, or as a TOML table holds them, made into the dataclass that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from longtail.core.checks import Described, OneOf, refused
from longtail.core.errors import SettingError, UnknownName

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
NONE = "none"  # stands for None in TOML, which has no null, and in settings as they are typed
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", NoneType: NONE}


def build(cls: type[T], typed: Iterable[str], name: str) -> T:
    """cls(**settings) from `key=value` words, or what is wrong with them. `name` is how messages call the class.

    >>> from longtail.data.augment.gandalf import Gandalf
    >>> made = build(Gandalf, ["delta=0.2", "mark=xxlabelxx"], "gandalf")
    >>> made.delta, made.mark
    (0.2, 'xxlabelxx')
    """
    hints = types_of(cls)
    settings: dict[str, object] = {}
    for word in typed:
        key, equals, text = word.partition("=")
        if not equals:
            raise SettingError(f"{word!r} came behind {name}; wanted settings such as {next(iter(hints))}=VALUE.")
        _check_known(key, hints, name)
        if key in settings:
            raise SettingError(f"{key} was given twice; wanted it once.")
        settings[key] = fit(hints[key], parsed(hints[key], text), key)
    return _made(cls, settings, name)


def from_table(cls: type[T], table: Mapping[str, object], name: str) -> T:
    """cls(**table) from a table as a TOML file holds it, or what is wrong with it. `name` is how messages call the table; "" for the top.

    >>> from longtail.data.augment.gandalf import Gandalf
    >>> from_table(Gandalf, {"delta": 0.2}, "gandalf").delta
    0.2
    """
    if not isinstance(table, Mapping):
        raise SettingError(f"{name} came as {table!r}; wanted a table of settings.")
    hints = types_of(cls)
    settings = {}
    for key, value in table.items():
        _check_known(key, hints, name)
        settings[key] = fit(hints[key], value, f"{name}.{key}" if name else key)
    return _made(cls, settings, name)


def _check_known(key: str, hints: Mapping[str, object], name: str) -> None:
    if key not in hints:
        raise UnknownName(f"setting of {name}", key, hints)


def _made(cls: type[T], settings: Mapping[str, object], name: str) -> T:
    """cls(**settings) where none is missing that it needs."""
    for field in fields(cls):
        if field.name not in settings and field.default is MISSING and field.default_factory is MISSING:
            raise SettingError(f"{name} needs {field.name}=VALUE: {in_words(types_of(cls)[field.name])}.")
    return cls(**settings)


def types_of(cls: type[DataclassInstance]) -> dict[str, object]:
    """The type hint of each field of a dataclass, with the limits that stand in it."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def parsed(hint: object, text: str) -> object:
    """The value that a typed text means for a setting of this type; the text itself where it means none."""
    kinds = _kinds(hint)
    if NoneType in kinds and _is_none(text.lower()):
        return None
    for kind in kinds:
        if kind is str or text in get_args(kind):  # of a Literal
            return text
        if kind is bool and text.lower() in TRUTHS:
            return TRUTHS[text.lower()]
        if get_origin(kind) is tuple:
            return [parsed(get_args(kind)[0], one) for one in text.split(",")]
        if kind is int or kind is float:
            try:
                return int(text) if kind is int else float(text)
            except ValueError:
                continue
    return text


def fit(hint: object, value: object, where: str) -> object:
    """The value as the type wants it: lists become tuples, whole numbers may stand for others; anything else is refused.

    Limits in the hint are left to the class, which checks them however it is made.
    """
    for kind in _kinds(hint):
        if kind is NoneType and _is_none(value):
            return None
        if get_origin(kind) is tuple and isinstance(value, list | tuple):
            return tuple(fit(get_args(kind)[0], one, where) for one in value)
        if get_origin(kind) is Literal and OneOf(get_args(kind)).allows(value):
            return value
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if type(value) is kind if kind in WORDS else isinstance(kind, type) and isinstance(value, kind):
            return value
    raise SettingError(refused(where, value, in_words(hint), hint))


def in_words(hint: object) -> str:
    """Words for what a setting of this type may be.

    >>> in_words(int | None), in_words(tuple[str, ...]), in_words(Literal["up", "down"])
    ('a whole number, or none', 'a list of texts', 'one of up, down')
    """
    if get_origin(hint) is Annotated:
        inner, *limits = get_args(hint)
        return next((limit.wanted for limit in limits if isinstance(limit, Described)), in_words(inner))
    if get_origin(hint) in (Union, UnionType):
        return ", or ".join(filter(None, map(in_words, get_args(hint))))
    if get_origin(hint) is tuple:
        return f"a list of {in_words(get_args(hint)[0]).removeprefix('a ')}s"
    return OneOf(get_args(hint)).wanted if get_origin(hint) is Literal else WORDS.get(hint, "") if isinstance(hint, type) else ""


def _is_none(value: object) -> bool:
    return value is None or value == NONE


def _kinds(hint: object) -> list[object]:
    """The plain types that a hint allows, without their limits."""
    if get_origin(hint) is Annotated:
        return _kinds(get_args(hint)[0])
    return [kind for one in get_args(hint) for kind in _kinds(one)] if get_origin(hint) in (Union, UnionType) else [hint]
