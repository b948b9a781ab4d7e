"""Limits of settings, stated with their types and checked whenever settings are made.

A dataclass of settings derives from `Settings` and annotates its fields: `dim: Positive = 300`, `dropout: Dropout = 0.5`,
`pooling: Literal["mean", "cls"] = "mean"`. Contradictions between several settings go into `check`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

from longtail.core.errors import SettingError, did_you_mean

OWN_NAME = re.compile(r"[\w.]+:\w+")  # of a class or function of the user's own: package.module:Name


@dataclass(frozen=True)
class Range:
    """A number between two bounds; `such_as` is a good value to name in the message."""

    least: float = float("-inf")
    most: float = float("inf")
    above: bool = False  # the least itself is too little
    below: bool = False  # the most itself is too much
    such_as: float | None = None

    def allows(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        try:
            number = float(value)
        except OverflowError:
            return False
        enough = number > self.least if self.above else number >= self.least
        return enough and (number < self.most if self.below else number <= self.most) and isfinite(number)

    @property
    def wanted(self) -> str:
        start = f"more than {_shown(self.least)}" if self.above else f"{_shown(self.least)} or more"
        if isfinite(self.most):
            start = f"a number from {_shown(self.least)} to {'below ' if self.below else ''}{_shown(self.most)}"
        return start if self.such_as is None else f"{start}, such as {_shown(self.such_as)}"


@dataclass(frozen=True)
class OneOf:
    """One of these names; with `takes_own` also the place of a class or function of the user's own, 'package.module:Name'."""

    names: Mapping[str, object] | Collection[object]
    takes_own: bool = False

    __hash__ = object.__hash__  # a registry is a dict, which has no hash of its own

    def allows(self, value: object) -> bool:
        if self.takes_own and isinstance(value, str) and OWN_NAME.fullmatch(value):
            return True
        return any(value is name or (type(value) is type(name) and value == name) for name in self.names)

    @property
    def wanted(self) -> str:
        own = ", or 'package.module:Name' of your own" if self.takes_own else ""
        return f"one of {', '.join(map(str, self.names))}{own}"


@dataclass(frozen=True)
class Described:
    """Words for messages in place of those for the type, such as "a file of word vectors" where the type is a str."""

    wanted: str


Positive = Annotated[int, Range(least=1)]
NonNegative = Annotated[int, Range(least=0)]
Rate = Annotated[float, Range(least=0, above=True, such_as=0.001)]
Share = Annotated[float, Range(least=0, most=1)]
ShareBelowOne = Annotated[float, Range(least=0, most=1, below=True)]
Dropout = ShareBelowOne


class Settings:
    """Base of every dataclass of settings."""

    def __post_init__(self) -> None:
        cls: type = type(self)
        for name, hint in _limited(cls).items():
            value = getattr(self, name)
            wanted = refusal(hint, value)
            if wanted is not None:
                raise SettingError(refused(name, value, wanted, hint))
        self.check()

    def check(self) -> None:
        """Raise where several settings contradict each other."""


def refused(name: str, value: object, wanted: str, hint: object) -> str:
    """The message about a setting that cannot be: what came, what was wanted, and the known name that is spelled most like it.

    >>> refused("by", "taill", "one of random, tail", Literal["random", "tail"])
    "by came as 'taill'; wanted one of random, tail. Did you mean 'tail'?"
    """
    names = [str(name) for name in _names(hint)]
    typed = [one for one in (value if isinstance(value, tuple | list) else (value,)) if isinstance(one, str) and one not in names]
    return f"{name} came as {value!r}; wanted {wanted}.{did_you_mean(typed[0], names) if typed else ''}"


def refusal(hint: object, value: object) -> str | None:
    """Words for what was wanted in place of a value that breaks the limits in a type hint; None where it keeps to them.

    The limits of `Positive | None` and of each element of `tuple[Positive, ...]` are those of `Positive`. Types without limits allow
    everything.

    >>> refusal(Positive | None, None), refusal(tuple[Positive, ...], (4, 0)), refusal(Positive, 2.5)
    (None, '1 or more', 'a whole number')
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if parts[0] is int and (isinstance(value, bool) or not isinstance(value, Integral)):
            return "a whole number"
        limits = [one for one in parts[1:] if isinstance(one, Range | OneOf)]
        return refusal(parts[0], value) or next((limit.wanted for limit in limits if not limit.allows(value)), None)
    if origin is Literal:
        return None if OneOf(parts).allows(value) else OneOf(parts).wanted
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return "a list"
        return next((wanted for one in value if (wanted := refusal(parts[0], one)) is not None), None)
    if origin in (Union, UnionType):
        if value is None and NoneType in parts:
            return None
        refusals = [refusal(kind, value) for kind in parts if kind is not NoneType]
        return None if None in refusals else ", or ".join(filter(None, refusals))
    return None


def _names(hint: object) -> Iterator[object]:
    """The names that a value of this type may have."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif isinstance(hint, OneOf):
        yield from hint.names
    else:
        for inner in get_args(hint):
            yield from _names(inner)


@cache
def _limited(cls: type) -> dict[str, object]:
    """The type hints of a dataclass that hold limits, by field."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: hint for name, hint in hints.items() if _is_limited(hint)}


def _is_limited(hint: object) -> bool:
    return get_origin(hint) is Literal or isinstance(hint, Range | OneOf) or any(map(_is_limited, get_args(hint)))


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
