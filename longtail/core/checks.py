"""What a setting may hold, stated beside its type and checked whenever one is made.

A dataclass of settings derives from `Settings` and annotates its fields: `dim: Positive = 300`, `dropout: Dropout = 0.5`,
`pooling: Literal["mean", "cls"] = "mean"`. Contradictions between several settings go into `check`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from longtail.core.errors import SettingError


@dataclass(frozen=True)
class Range:
    """A number between two bounds; `such_as` is a good value to name in the message."""

    least: float = float("-inf")
    most: float = float("inf")
    above: bool = False  # the least itself is too little
    below: bool = False  # the most itself is too much
    such_as: float | None = None

    def allows(self, value: Any) -> bool:
        enough = value > self.least if self.above else value >= self.least
        return bool(enough and (value < self.most if self.below else value <= self.most) and isfinite(value))

    @property
    def wanted(self) -> str:
        start = f"more than {self.least:g}" if self.above else f"{self.least:g} or more"
        if isfinite(self.most):
            start = f"a number from {self.least:g} to {'below ' if self.below else ''}{self.most:g}"
        return start if self.such_as is None else f"{start}, such as {self.such_as:g}"


@dataclass(frozen=True)
class OneOf:
    """One of these names."""

    names: Mapping[str, Any] | Collection[str]

    __hash__ = object.__hash__  # a registry is a dict, which has no hash of its own

    def allows(self, value: Any) -> bool:
        return value in self.names

    @property
    def wanted(self) -> str:
        return f"one of {', '.join(map(str, self.names))}"


Positive = Annotated[int, Range(least=1)]
NonNegative = Annotated[int, Range(least=0)]
Rate = Annotated[float, Range(least=0, above=True, such_as=0.001)]
Share = Annotated[float, Range(least=0, most=1)]
Dropout = Annotated[float, Range(least=0, most=1, below=True)]


class Settings:
    """Base of every dataclass of settings."""

    def __post_init__(self) -> None:
        for name, limits in _limits(type(self)).items():
            value = getattr(self, name)
            for one in value if isinstance(value, tuple) else (value,):
                for limit in limits:
                    if one is not None and not limit.allows(one):
                        raise SettingError(f"{name} came as {value!r}; wanted {limit.wanted}.")
        self.check()

    def check(self) -> None:
        """Raise where several settings contradict each other."""


@cache
def _limits(cls: type) -> dict[str, list[Range | OneOf]]:
    """The limits that stand in the annotations of a dataclass, by field."""
    found = {name: _of_hint(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
    return {name: limits for name, limits in found.items() if limits}


def _of_hint(hint: Any) -> list[Range | OneOf]:
    """Limits anywhere inside of a hint: those of `Positive | None` and of `tuple[Positive, ...]` are those of `Positive`."""
    origin = get_origin(hint)
    if origin is Annotated:
        return [limit for limit in hint.__metadata__ if isinstance(limit, Range | OneOf)] + _of_hint(get_args(hint)[0])
    if origin is Literal:
        return [OneOf(get_args(hint))]
    if origin in (Union, UnionType, tuple):
        return [limit for inner in get_args(hint) for limit in _of_hint(inner)]
    return []
