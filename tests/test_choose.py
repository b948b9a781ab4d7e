"""The choice of an augmentation on validation rows: what is split off, what is seen of it, and which candidate wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Dataset, Predictions, Split, Texts
from longtail.core.errors import DataError, SettingError
from longtail.core.values import labels_from_rows
from longtail.data.augment.choose import CANDIDATES, CRITERIA, VALIDATION_SHARE, Choice, choose, no_augmentation, validation_split
from longtail.data.augment.gandalf import Gandalf
from longtail.data.augment.rows import Augmented

Table = dict[str, dict[str, float]]

TRIED = Gandalf(delta=0.2)


class Poisoned:
    """A test split that nobody may look at."""

    def __getattribute__(self, name: str) -> object:
        raise AssertionError(f"the test split was asked for {name}")

    def __len__(self) -> int:
        raise AssertionError("the test split was asked for its length")


def poison() -> Split:
    return cast(Split, Poisoned())


def pages(n: int = 40, n_rowless: int = 10) -> Dataset:
    """n rows, each named like a label and carrying the next two, and some labels that are no row; the test split is poisoned."""
    names = [f"page {place}" for place in range(n)]
    rows = [sorted({(place + 1) % n, (place + 2) % n}) for place in range(n)]
    train = Split(Texts.of(names), labels_from_rows(rows, n + n_rowless))
    return Dataset("pages", train, poison(), Texts.of([*names, *(f"label {place}" for place in range(n_rowless))]))


def pairs(split: Split) -> set[tuple[str, int]]:
    assert split.texts is not None
    rows, labels = split.labels.nonzero()
    return {(split.texts[row], int(label)) for row, label in zip(rows, labels, strict=True)}


# --- the split


@given(st.integers(2, 60), st.floats(0.0, 1.0), st.integers(0, 5))
def test_every_training_row_is_on_one_side(n: int, share: float, seed: int) -> None:
    data = pages(max(n, 3))
    n = len(data.train)
    if not 0 < round(n * share) < n:
        with pytest.raises(DataError, match=f"pages has {n} training rows; .*% of them for validation leaves nothing on one side"):
            validation_split(data, share, seed)
        return
    made = validation_split(data, share, seed)
    assert len(made.train) == n - round(n * share) and made.n_labels == data.n_labels and made.label_texts is data.label_texts
    assert 0 < len(made.test) <= round(n * share)
    texts = [*(made.train.texts or []), *(made.test.texts or [])]
    assert set(texts) <= set(data.train.texts or []) and len(set(texts)) == len(texts)
    for split in (made.train, made.test):
        places = [int(text.split()[1]) for text in split.texts or []]
        assert places == sorted(places)  # rows keep their order
    assert pairs(made.train) <= pairs(data.train) and pairs(made.test) <= pairs(data.train)
    again = validation_split(data, share, seed)
    assert list(again.test.texts or []) == list(made.test.texts or []) and pairs(again.test) == pairs(made.test)


def test_another_seed_parts_other_rows() -> None:
    first, second = (validation_split(pages(), 0.5, seed).test.texts for seed in (0, 1))
    assert first != second


def test_the_protocol_holds_between_both_parts() -> None:
    """Ten couples that carry each other: where a couple is parted, the answer could be read off the training row."""
    n = 20
    names = [f"page {place}" for place in range(n)]
    rows = [sorted({place, place ^ 1}) for place in range(n)]  # the own label and the other of the couple
    split = Split(Texts.of(names), labels_from_rows(rows, n + 2))
    data = Dataset("couples", split, poison(), Texts.of([*names, "label 0", "label 1"]))
    made = validation_split(data, 0.5, seed=3)
    training = [names.index(text) for text in made.train.texts or []]
    parted = [place for place in range(n) if place not in training and place ^ 1 in training]
    assert 0 < len(parted) < n - len(training)  # both kinds are there
    # the other of a parted couple is filtered; a couple that was held out as a whole left no row that has its labels
    validation = [names.index(text) for text in made.test.texts or []]
    assert validation == parted and pairs(made.test) == {(names[place], place) for place in parted}
    wanted = sorted([(row, place) for row, place in enumerate(validation)] + [(row, place ^ 1) for row, place in enumerate(validation)])
    assert made.test.filter is not None and list(map(tuple, made.test.filter.tolist())) == wanted
    assert made.train.filter is not None and made.train.filter.tolist() == [[row, place] for row, place in enumerate(training)]


@pytest.mark.parametrize(("n_rowless", "known"), [(0, True), (2, True), (3, False)])
def test_rows_to_come_are_no_labels_where_labels_are_rows(n_rowless: int, known: bool) -> None:
    """Forty pages and labels without one of their own: where these are one in twenty or more, rows to come may be among them."""
    data = pages(n_rowless=n_rowless)
    made = validation_split(data, 0.2, seed=1)
    held = set(np.random.default_rng(1).permutation(40)[:8].tolist())
    named = {label for _, label in pairs(made.train)}
    assert bool(held & named) != known
    asked = {(text, label) for text, label in pairs(data.train) if int(text.split()[1]) in held and label in named}
    assert pairs(made.test) == asked  # no page carries one that carries it, so the protocol takes nothing
    kept = pairs(data.train) - {(text, label) for text, label in pairs(data.train) if int(text.split()[1]) in held}
    assert pairs(made.train) == ({(text, label) for text, label in kept if label not in held} if known else kept)
    assert made.train.texts is not None and len(made.train) == len({text for text, _ in pairs(made.train)})


@pytest.mark.parametrize(("n_rowless", "n_held"), [(0, 3), (3, 8)])
def test_no_more_is_held_out_than_is_enough_where_it_takes_labels_along(n_rowless: int, n_held: int) -> None:
    data = pages(n_rowless=n_rowless)
    made, same = validation_split(data, 0.2, seed=1, enough=3), validation_split(data, n_held / 40, seed=1)
    assert pairs(made.test) == pairs(same.test) and pairs(made.train) == pairs(same.train)


def test_a_pair_that_both_sides_carry_is_asked_for_where_labels_are_rows() -> None:
    """Rows in rings of four, each of which carries the three others: the protocol would take all of them, or all but one."""
    n = 40
    names = [f"page {place}" for place in range(n)]
    rows = [[place - place % 4 + other for other in range(4) if other != place % 4] for place in range(n)]
    data = Dataset("rings", Split(Texts.of(names), labels_from_rows(rows, n)), poison(), Texts.of(names))
    made = validation_split(data, 0.1, seed=1)
    training = {names.index(text) for text in made.train.texts or []}
    held = set(range(n)) - training
    assert len(made.test) == len(held) == 4
    for split, places in ((made.test, held), (made.train, training)):
        assert pairs(split) == {(names[row], label) for row in places for label in rows[row] if label not in held}


def test_labels_that_lose_all_their_rows_are_not_asked_for() -> None:
    """Ten rows with one common label and one of their own each: of a validation row nothing but the common one can be known."""
    names = [f"page {place}" for place in range(10)]
    data = Dataset("own", Split(Texts.of(names), labels_from_rows([[place, 10] for place in range(10)], 11)), poison(), None)
    made = validation_split(data, 0.3)
    assert len(made.test) == 3 and pairs(made.test) == {(text, 10) for text in made.test.texts or []}
    alone = replace(data, train=Split(Texts.of(names), labels_from_rows([[place] for place in range(10)], 11)))
    assert len(pairs(validation_split(alone, 0.3).test)) == 3  # there is nothing else to ask for


# --- the choice


def chosen(table: Table, criteria: Sequence[str] = ("P@1", "PSP@5"), tried: Gandalf | None = TRIED) -> Choice:
    """The choice where candidate after candidate reaches what the table says."""
    values = iter(table.values())
    candidates = {name: None if name == "none" else tried for name in table}
    return choose(pages(10), empty_predictions, lambda found, data: next(values), candidates, criteria)


def empty_predictions(rows: Augmented, label_texts: Texts, texts: Texts) -> Predictions:
    return Predictions(np.full((len(texts), 1), -1, np.int32), np.full((len(texts), 1), -np.inf, np.float32))


def test_the_largest_worst_ratio_wins() -> None:
    table = {
        "none": {"P@1": 40.0, "PSP@5": 10.0},  # 10/20
        "bold": {"P@1": 30.0, "PSP@5": 20.0},  # 30/40
        "even": {"P@1": 36.0, "PSP@5": 17.0},  # 17/20: gives up least anywhere, first in nothing
    }
    made = chosen(table)
    assert (made.name, made.augmentation, made.reached) == ("even", TRIED, table)
    assert chosen(table, ["P@1"]).name == "none"
    assert chosen(table, ["PSP@5"]).name == "bold"


def test_none_where_all_else_hurts() -> None:
    made = chosen({"none": {"P@1": 40.0, "PSP@5": 20.0}, "plain": {"P@1": 39.9, "PSP@5": 20.0}, "other": {"P@1": 40.0, "PSP@5": 1.0}})
    assert (made.name, made.augmentation) == ("none", None)


def test_of_equals_the_first() -> None:
    same = {"P@1": 40.0, "PSP@5": 20.0}
    assert chosen({"b": same, "a": same, "none": same}).name == "b"
    assert chosen({"a": {"P@1": 20.0, "PSP@5": 20.0}, "b": {"P@1": 40.0, "PSP@5": 10.0}}).name == "a"  # both half


def test_a_criterion_that_nobody_meets_decides_nothing() -> None:
    nothing = {"P@1": 0.0, "PSP@5": 0.0}
    assert chosen({"none": nothing, "plain": nothing}).name == "none"
    assert chosen({"none": {"P@1": 0.0, "PSP@5": 1.0}, "plain": {"P@1": 0.0, "PSP@5": 2.0}}).name == "plain"


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5))
def test_the_choice_is_that_of_a_plain_search(values: list[tuple[int, int, int]]) -> None:
    names = ["a", "b", "c"]
    best = [max(row[place] for row in values) for place in range(3)]
    worst = [min(row[place] / best[place] if best[place] else 1.0 for place in range(3)) for row in values]
    table = {str(number): {name: float(value) for name, value in zip(names, row, strict=True)} for number, row in enumerate(values)}
    assert chosen(table, names, None).name == str(worst.index(max(worst)))


def test_augmented_rows_never_reach_validation() -> None:
    data = pages()
    split = validation_split(data, VALIDATION_SHARE, seed=4)
    seen: list[Augmented] = []

    def fit_predict(rows: Augmented, label_texts: Texts, texts: Texts) -> Predictions:
        seen.append(rows)
        assert label_texts == data.label_texts and texts == split.test.texts
        assert rows.split.texts is not None and split.train.texts is not None
        assert rows.split.texts[: rows.n_original] == split.train.texts  # no validation row among them
        return empty_predictions(rows, label_texts, texts)

    def measure(found: Predictions, asked: Dataset) -> dict[str, float]:
        assert len(found) == len(asked.test) == len(split.test)
        assert asked.test.texts == split.test.texts and pairs(asked.test) == pairs(split.test)
        assert set(asked.test.labels.data.tolist()) == {1.0}  # no soft targets
        assert len(asked.train) == len(split.train)  # propensities rest on real rows
        return dict.fromkeys(CRITERIA, 1.0)

    made = choose(data, fit_predict, measure, seed=4)
    assert made.name == "none" and list(made.reached) == list(CANDIDATES)
    assert [rows.n_made for rows in seen] == [0, 50, 50, 50] and [rows.kind for rows in seen] == ["none", "label", "label", "label"]


def test_no_augmentation_is_the_rows_themselves(shop: Dataset) -> None:
    made = no_augmentation(shop.train)
    assert made.split is shop.train and (made.n_original, made.n_made) == (5, 0)
    assert made.row_weights.tolist() == [1.0] * 5 and made.source.tolist() == [0, 1, 2, 3, 4]


def vote(rows: Augmented, label_texts: Texts, texts: Texts) -> Predictions:
    """Words of a text vote for words of a label, by the share in which they stood together."""
    assert rows.split.texts is not None
    words = sorted({word for text in [*rows.split.texts, *label_texts] for word in text.split()})
    inputs, labels, asked = (
        np.array([np.isin(words, text.split()) for text in part], float) for part in (rows.split.texts, label_texts, texts)
    )
    votes = inputs.T @ rows.split.labels @ labels
    scores = asked @ (votes / np.maximum(votes.sum(axis=1, keepdims=True), 1)) @ labels.T
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    return Predictions(ids.astype(np.int32), np.take_along_axis(scores, ids, axis=1).astype(np.float32))


def measure(found: Predictions, data: Dataset) -> dict[str, float]:
    values: dict[str, float] = longtail.evaluate(found, data, resamples=0).metrics
    return values


@pytest.mark.parametrize("seed", [0, 1])
def test_siblings_are_told_from_right_companions(seed: int) -> None:
    """The parts of a car meet on its page and never on their own. Number words of cars with one page are in label texts alone."""
    parts = {"car": ["door", "wheel", "motor"], "door": ["handle", "window"], "wheel": ["tyre", "rim"], "motor": ["piston", "valve"]}
    pages = [(page, car) for car in range(60) for page in parts] + [("car", car) for car in range(60, 100)]
    data = longtail.from_lists(
        [f"{page} {car}" for page, car in pages], [[f"{part} {car}" for part in parts[page]] for page, car in pages], name="cars"
    )
    candidates = {name: CANDIDATES[name] for name in ("none", "plain", "calibrated")}
    made = choose(replace(data, test=poison()), vote, measure, candidates, seed=seed)
    none, plain, calibrated = (made.reached[name] for name in candidates)
    assert plain["P@1"] < none["P@1"] < calibrated["P@1"]  # doors become wheels; what is new is found
    assert none["coverage@5"] < plain["coverage@5"]
    assert (made.name, made.augmentation) == ("calibrated", Gandalf(targets="calibrated"))


# --- errors


def test_errors_say_what_was_wanted(shop: Dataset) -> None:
    with pytest.raises(SettingError, match="^No candidates came; wanted at least one augmentation, or None for none.$"):
        choose(pages(), empty_predictions, measure, {})
    with pytest.raises(SettingError, match="^No criteria came; wanted names of metrics such as P@1, PSP@1, PSP@5, coverage@5.$"):
        choose(pages(), empty_predictions, measure, criteria=[])
    for came in ({"P@1": 1.0}, {"P@1": 1.0, "PSP@5": float("nan")}):
        with pytest.raises(SettingError, match="^measure gave no 'PSP@5' for candidate 'none'; wanted a number for each of the criteria.$"):
            chosen({"none": came})
    for split in (Split(None, shop.train.labels), shop.train.rows(np.arange(0)), shop.train.rows(np.arange(1))):
        with pytest.raises(
            DataError, match="^shop has (no texts of inputs or labels; augmentation works on them|[01] training rows; 15% of.*).$"
        ):
            choose(replace(shop, train=split, test=poison()), empty_predictions, measure)
    with pytest.raises(DataError, match="^shop has no texts of inputs or labels; augmentation works on them.$"):
        choose(replace(shop, label_texts=None, test=poison()), empty_predictions, measure)
