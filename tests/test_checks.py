"""Limits of settings: what stands in a type hint is what a setting may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest

from longtail.core.checks import Dropout, NonNegative, OneOf, Positive, Range, Rate, Settings, Share, refusal
from longtail.core.errors import SettingError, UnknownName, did_you_mean
from longtail.core.registry import KINDS, load
from longtail.core.settings import build, fit, from_table, in_words, parsed

COLOURS = {"red": 1, "green": 2}


@dataclass(frozen=True)
class Paint(Settings):
    """Every kind of limit once."""

    layers: Positive = 1
    thinner: NonNegative = 0
    speed: Rate = 0.5
    share: Share = 1.0
    dropout: Dropout = 0.0
    widths: tuple[Positive, ...] = (4, 8)
    size: Annotated[int, Range(least=2, most=1_000_000)] = 2
    depth: Positive | None = None
    colour: Annotated[str, OneOf(COLOURS)] = "red"
    gloss: Literal["matt", "silk"] = "matt"
    coats: tuple[Literal["first", "second"], ...] = ()
    order: Positive | Literal["free"] = 1
    name: str = ""

    def check(self) -> None:
        if self.thinner > self.layers:
            raise SettingError(f"thinner came as {self.thinner} with {self.layers} layers; wanted no more than layers.")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers came as 0; wanted 1 or more."),
        ({"layers": 2.5}, "layers came as 2.5; wanted a whole number."),
        ({"layers": True}, "layers came as True; wanted a whole number."),
        ({"layers": "2"}, "layers came as '2'; wanted a whole number."),
        ({"layers": None}, "layers came as None; wanted a whole number."),
        ({"thinner": -1}, "thinner came as -1; wanted 0 or more."),
        ({"thinner": 2}, "thinner came as 2 with 1 layers; wanted no more than layers."),
        ({"speed": 0.0}, "speed came as 0.0; wanted more than 0, such as 0.001."),
        ({"speed": float("inf")}, "speed came as inf; wanted more than 0, such as 0.001."),
        ({"speed": float("nan")}, "speed came as nan; wanted more than 0, such as 0.001."),
        ({"speed": "fast"}, "speed came as 'fast'; wanted more than 0, such as 0.001."),
        ({"share": 1.01}, "share came as 1.01; wanted a number from 0 to 1."),
        ({"dropout": 1.0}, "dropout came as 1.0; wanted a number from 0 to below 1."),
        ({"widths": (4, 0)}, "widths came as (4, 0); wanted 1 or more."),
        ({"widths": 4}, "widths came as 4; wanted a list."),
        ({"size": 1}, "size came as 1; wanted a number from 2 to 1,000,000."),
        ({"size": 10**400}, f"size came as {10**400!r}; wanted a number from 2 to 1,000,000."),
        ({"depth": 0}, "depth came as 0; wanted 1 or more."),
        ({"colour": "reed"}, "colour came as 'reed'; wanted one of red, green. Did you mean 'red'?"),
        ({"colour": 1}, "colour came as 1; wanted one of red, green."),
        ({"colour": ["red"]}, "colour came as ['red']; wanted one of red, green."),
        ({"gloss": "slik"}, "gloss came as 'slik'; wanted one of matt, silk. Did you mean 'silk'?"),
        ({"coats": ("first", "scond")}, "coats came as ('first', 'scond'); wanted one of first, second. Did you mean 'second'?"),
        ({"order": 0}, "order came as 0; wanted 1 or more, or one of free."),
        ({"order": "fre"}, "order came as 'fre'; wanted a whole number, or one of free. Did you mean 'free'?"),
    ],
)
def test_a_value_outside_its_limits_is_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        Paint(**settings)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_values_inside_their_limits_are_taken_as_they_came() -> None:
    made = Paint(layers=np.int64(3), speed=2, share=0, depth=7, widths=(1,), size=1_000_000, coats=("second", "first"), order="free")
    assert made.layers == 3 and made.speed == 2 and made.depth == 7 and made.order == "free"
    assert Paint(depth=None, widths=()) == Paint(widths=())
    assert Paint(dropout=np.float32(0.25)).dropout == 0.25  # type: ignore[arg-type]


def test_limits_are_inherited_with_the_fields() -> None:
    @dataclass(frozen=True)
    class Varnish(Paint):
        shine: Share = 0.5

    with pytest.raises(SettingError, match="layers came as 0"):
        Varnish(layers=0)
    with pytest.raises(SettingError, match="shine came as 2"):
        Varnish(shine=2)


def test_bounds_that_are_included_and_those_that_are_not() -> None:
    closed, half_open, opened = Range(0, 1), Range(0, 1, below=True), Range(0, 1, above=True, below=True)
    assert [closed.allows(number) for number in (-0.1, 0, 1, 1.1)] == [False, True, True, False]
    assert [half_open.allows(number) for number in (0, 0.999, 1)] == [True, True, False]
    assert [opened.allows(number) for number in (0, 0.5, 1)] == [False, True, False]
    assert not Range().allows("a") and not Range().allows(None) and not Range().allows(float("inf"))


def test_types_without_limits_allow_everything() -> None:
    for hint in (int, str, float | None, dict[str, int], object):
        assert refusal(hint, 3) is None
    assert refusal(Positive | float, -2.5) is None  # one that fits is enough


def test_a_place_of_ones_own_instead_of_a_name() -> None:
    limit = OneOf(COLOURS, takes_own=True)
    assert limit.allows("red") and limit.allows("my.shop:Mauve") and not limit.allows("mauve") and not limit.allows("my shop:mauve")
    assert limit.wanted == "one of red, green, or 'package.module:Name' of your own"
    assert not OneOf(COLOURS).allows("my.shop:Mauve")


def test_the_nearest_name() -> None:
    assert did_you_mean("gals", ["glas", "walk"]) == " Did you mean 'glas'?"
    assert did_you_mean("xyz", ["glas", "walk"]) == ""


# ---- one way from a value to a type, for words and for tables


def test_words_and_tables_make_the_same() -> None:
    typed = ["layers=3", "speed=1e-2", "widths=1,2", "depth=none", "gloss=silk", "coats=first,second", "name=none"]
    table = {"layers": 3, "speed": 0.01, "widths": [1, 2], "depth": "none", "gloss": "silk", "coats": ["first", "second"], "name": "none"}
    wanted = Paint(layers=3, speed=0.01, widths=(1, 2), gloss="silk", coats=("first", "second"), name="none")
    assert from_table(Paint, table, "paint") == build(Paint, typed, "paint") == wanted


@pytest.mark.parametrize(
    ("typed", "value", "message"),
    [
        ("layers=many", "many", "layers came as 'many'; wanted a whole number."),
        ("layers=2.5", 2.5, None),
        ("speed=fast", "fast", "speed came as 'fast'; wanted a number."),
        ("gloss=slik", "slik", "gloss came as 'slik'; wanted one of matt, silk. Did you mean 'silk'?"),
        ("order=fre", "fre", "order came as 'fre'; wanted a whole number, or one of free. Did you mean 'free'?"),
        ("layers=0", 0, "layers came as 0; wanted 1 or more."),
        ("colour=reed", "reed", "colour came as 'reed'; wanted one of red, green. Did you mean 'red'?"),
    ],
)
def test_what_cannot_be_is_said_in_the_same_words(typed: str, value: object, message: str | None) -> None:
    key = typed.partition("=")[0]
    with pytest.raises(SettingError) as by_word:
        build(Paint, [typed], "paint")
    with pytest.raises(SettingError) as by_table:
        from_table(Paint, {key: value}, "paint")
    if message is None:  # a number in a table, a text that is no whole number on the command line
        assert str(by_word.value) == "layers came as '2.5'; wanted a whole number."
        assert str(by_table.value) == "paint.layers came as 2.5; wanted a whole number."
    else:
        assert str(by_word.value) == message and str(by_table.value).removeprefix("paint.") == message


def test_a_table_without_a_setting_that_it_needs() -> None:
    @dataclass(frozen=True)
    class Needy(Settings):
        needed: Positive
        also: str = ""

    assert from_table(Needy, {"needed": 2}, "needy") == build(Needy, ["needed=2"], "needy")
    for make in (lambda: from_table(Needy, {}, "needy"), lambda: build(Needy, [], "needy")):
        with pytest.raises(SettingError, match="^needy needs needed=VALUE: a whole number.$"):
            make()
    with pytest.raises(UnknownName, match="No setting of needy called 'neded'. Did you mean 'needed'[?] Known: also, needed."):
        from_table(Needy, {"neded": 2}, "needy")


def test_types_in_words() -> None:
    assert in_words(Positive | None) == "a whole number, or none"
    assert in_words(tuple[float, ...]) == "a list of numbers"
    assert in_words(bool) == "true or false"
    assert in_words(float | np.ndarray) == "a number"  # what cannot be typed is not offered


def test_texts_are_read_by_the_type_that_is_wanted() -> None:
    assert parsed(int | str, "3") == 3 and parsed(str, "3") == "3" and parsed(float, "3") == 3.0
    assert parsed(bool, "YES") is True and parsed(bool, "0") is False and parsed(bool | None, "None") is None
    assert parsed(tuple[int, ...], "1,2") == [1, 2]
    assert fit(tuple[float, ...], [1, 2.5], "x") == (1.0, 2.5)
    assert fit(Range, Range(1), "x") == Range(1)  # what is made already
    with pytest.raises(SettingError, match="^x came as True; wanted a whole number[.]$"):
        fit(int, True, "x")


# ---- parts of one's own


OWN = "For one of your own write 'package.module:Name'."


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"formats"}))
def test_every_kind_but_formats_takes_a_part_of_ones_own(kind: str) -> None:
    assert load(kind, "tests.test_checks:Paint") is Paint
    with pytest.raises(UnknownName) as caught:
        load(kind, "nothing-like-it")
    assert str(caught.value).endswith(OWN)


def test_formats_are_recognised_and_not_named() -> None:
    for name in ("tests.test_checks:Paint", "parket"):
        with pytest.raises(UnknownName) as caught:
            load("formats", name)
        assert OWN not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("no.such.module:Paint", "No module named 'no'"),
        ("tests.test_checks:Pant", "module 'tests.test_checks' has no attribute 'Pant'"),
    ],
)
def test_a_place_where_nothing_is(place: str, reason: str) -> None:
    with pytest.raises(SettingError) as caught:
        load("encoders", place)
    assert str(caught.value) == f"'{place}' came for one of the encoders: {reason}. Wanted 'package.module:Name' to import."
