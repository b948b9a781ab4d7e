"""Twins, and the estimate fitted to them: by hand, against naive versions, and on data whose probabilities are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, identity

from longtail import Dataset, Split, Texts
from longtail.core.errors import SettingError
from longtail.core.values import labels_from_rows
from longtail.data.augment import estimate as module
from longtail.data.augment.estimate import MIN_PAIRS, Estimate, estimate, pairs_of
from longtail.data.augment.gandalf import LABEL_MARK, Gandalf
from longtail.data.augment.targets import label_targets
from longtail.data.graph.cooccurrence import cooccurrence
from longtail.data.synth import Shape, synth
from longtail.data.twins import carries, find_twins

Met = Callable[[int, int], float]

# (G_ij, G_jj) of the made pairs, all above the threshold of 0.1
COUNTS = [(together, count) for count in range(1, 9) for together in range(1, count + 1)]
EACH = 40  # labels with each of them


def split_of(rows: list[list[int]], n_labels: int, texts: list[str] | None = None) -> Split:
    return Split(Texts.of(texts or [f"row {place}" for place in range(len(rows))]), labels_from_rows(rows, n_labels))


def with_twins(right: Met, counts: list[tuple[int, int]] = COUNTS, each: int = EACH, own: bool = False) -> tuple[Split, Texts]:
    """Labels j = 0, 1, ... that met their one companion in (c, n); of `each` twins the share right(c, n) carries the companion.

    Companions, the labels behind, have no twin. With `own` the twins carry their own label too.
    """
    n = len(counts) * each
    rows: list[list[int]] = []
    texts: list[str] = []
    for label in range(n):
        together, count = counts[label // each]
        rows += [[label, n + label]] * together + [[label]] * (count - together)
        texts += [f"input {label}"] * count
        carried = label % each < round(right(together, count) * each)
        rows.append([label] * own + [n + label] * carried)
        texts.append(f"label {label}")
    return split_of(rows, 2 * n, texts), Texts.of(f"label {label}" for label in range(2 * n))


def fitted(train: Split, label_texts: Texts | None, delta: float = 0.1) -> Estimate:
    return estimate(train, label_texts, cooccurrence(train.labels, delta))


def at(found: Estimate, together: float, count: float) -> float:
    return float(found.probability(np.array([together]), np.array([count]))[0])


# --- twins


def test_twins_by_hand() -> None:
    texts = Texts.of(["pear", "apple", "", "apple", "Apple ", "café"])
    assert find_twins(texts, Texts.of(["apple", "Apple", "café", "", "pear"])).tolist() == [1, -1, 5, -1, 0]  # first; exact; empty is none
    assert find_twins(texts, Texts.of([])).tolist() == []
    assert find_twins(Texts.of([]), Texts.of(["apple"])).tolist() == [-1]
    assert find_twins(None, Texts.of(["apple", "pear"])).tolist() == [-1, -1]
    assert find_twins(texts, None).tolist() == []


@given(st.lists(st.text("ab", max_size=2), max_size=12), st.lists(st.text("ab", max_size=2), max_size=12))
def test_twins_are_those_of_a_plain_search(texts: list[str], label_texts: list[str]) -> None:
    wanted = [texts.index(text) if text and text in texts else -1 for text in label_texts]
    assert find_twins(Texts.of(texts), Texts.of(label_texts)).tolist() == wanted


def test_carries_by_hand() -> None:
    labels = labels_from_rows([[0, 3], [], [1]], 4)
    rows, asked = np.array([0, 0, 0, 1, 2, 2, -1, 2], np.int32), np.array([0, 1, 3, 0, 1, 3, 3, 0], np.int32)
    assert carries(labels, rows, asked).tolist() == [True, False, True, False, True, False, False, False]
    assert carries(labels_from_rows([[], []], 4), np.array([0, 1], np.int32), np.array([0, 3], np.int32)).tolist() == [False, False]
    assert carries(labels, rows[:0], asked[:0]).tolist() == []


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=8), st.data())
def test_carries_is_membership(rows: list[set[int]], data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.tuples(st.integers(0, len(rows) - 1), st.integers(0, 5)), max_size=20))
    pairs = np.array(asked, np.int32).reshape(-1, 2)
    found = carries(labels_from_rows([sorted(row) for row in rows], 6), pairs[:, 0], pairs[:, 1])
    assert found.tolist() == [label in rows[row] for row, label in asked]


def test_row_times_labels_may_pass_32_bits() -> None:
    n = 100_000  # 1e5 rows x 1e5 labels
    labels = csr_matrix(identity(n, np.float32))
    places = np.array([0, n // 2, n - 1], np.int32)
    assert carries(labels, places, places).all() and not carries(labels, places, places[::-1])[[0, 2]].any()


# --- the counts behind a graph


def test_pairs_by_hand(shop: Dataset) -> None:
    labels, others, together = pairs_of(cooccurrence(shop.train.labels, 0.4), np.arange(4, dtype=np.int32))  # 1/3 is left out
    found = list(zip(labels.tolist(), others.tolist(), together.tolist(), strict=True))
    assert found == [(0, 1, 2), (1, 0, 2), (1, 3, 2), (2, 0, 1), (3, 0, 1), (3, 1, 2)]


@given(st.lists(st.sets(st.integers(0, 4)), max_size=30))
def test_pairs_are_whole_counts(rows: list[set[int]]) -> None:
    labels, others, together = pairs_of(cooccurrence(labels_from_rows([sorted(row) for row in rows], 5), 0.0), np.arange(5, dtype=np.int32))
    wanted = {(j, i): sum(j in row and i in row for row in rows) for j in range(5) for i in range(5) if i != j}
    found = {(j, i): c for j, i, c in zip(labels.tolist(), others.tolist(), together.tolist(), strict=True)}
    assert found == {pair: c for pair, c in wanted.items() if c}


# --- fitted to twins


@pytest.mark.parametrize("share", [0.5, 0.25, 0.9])
def test_one_probability_for_all_counts_is_found(share: float) -> None:
    found = fitted(*with_twins(lambda together, count: share))
    assert found.source == "twins" and found.n_pairs == len(COUNTS) * EACH and found.precision == pytest.approx(share)
    for together, count in COUNTS:
        assert at(found, together, count) == pytest.approx(share, abs=0.01)


def test_probabilities_that_depend_on_the_counts_are_found() -> None:
    def true(together: int, count: int) -> float:
        return float(1 / (1 + np.exp(1.5 - 2.0 * np.log(together) + 0.8 * np.log(count) - 0.5 * together / count)))

    found = fitted(*with_twins(true))
    for together, count in COUNTS:
        assert at(found, together, count) == pytest.approx(true(together, count), abs=0.03)  # each share is of 40 twins
        assert at(found, together + 1, count + 1) > at(found, together, count)  # more rows that say so
        if together < count:
            assert at(found, together + 1, count) > at(found, together, count)  # a larger share of them
            assert at(found, together, count) < at(found, together, count - 1)


def test_twins_that_carry_their_own_label_are_not_their_own_evidence() -> None:
    """Each twin makes the pair (c + 1, n + 1) or (c, n + 1); without itself it is (c, n), and right in 1 of 4."""
    found = fitted(*with_twins(lambda together, count: 0.25, own=True), delta=0.0)
    assert found.source == "twins" and found.n_pairs == len(COUNTS) * EACH and found.precision == 0.25
    for together, count in COUNTS:
        assert at(found, together, count) == pytest.approx(0.25, abs=0.01)


def test_a_pair_that_only_the_twin_itself_makes_teaches_nothing() -> None:
    n = 2 * MIN_PAIRS
    rows = [[label, n + label] for label in range(n)]  # every row is the twin of one of its labels
    texts = [f"label {label}" for label in range(n)]
    found = fitted(split_of(rows, 2 * n, texts), Texts.of(f"label {label}" for label in range(2 * n)))
    assert (found.source, found.n_pairs) == ("rows left out", 0)


def test_siblings_leave_own_labels_only() -> None:
    train, label_texts = with_twins(lambda together, count: 0.0)
    assert fitted(train, label_texts).precision == 0
    n_labels = len(label_texts)
    made = Gandalf(targets="calibrated", include="Z").augment(train, label_texts)
    assert (made.split.labels != identity(n_labels, np.float32, format="csr")).nnz == 0
    assert Gandalf(include="Z").augment(train, label_texts).split.labels.nnz > n_labels  # the plain form does not see it


def test_fewer_pairs_are_fitted_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    train, label_texts = with_twins(lambda together, count: 0.25)
    monkeypatch.setattr(module, "MAX_PAIRS", 500)
    found = fitted(train, label_texts)
    assert found.n_pairs == len(COUNTS) * EACH and found.precision == 0.25  # of all pairs
    assert at(found, 2, 4) == pytest.approx(0.25, abs=0.06)  # of 500


# --- fitted to rows left out


def left_out(n_always: int, n_once: int) -> Split:
    """Labels with two rows each: some share both with a companion, some one."""
    n = n_always + n_once
    rows = [row for label in range(n) for row in ([label, n + label], [label, n + label] if label < n_always else [label])]
    return split_of(rows, 2 * n)


def test_rows_left_out_by_hand() -> None:
    """A label that met its companion twice of two leaves (1, 1) and a right answer, and so does the companion: 2 x 15. One that
    met it once leaves (1, 1) and a wrong one, in one of two rows: 60 / 2; its companion has no other row."""
    found = fitted(left_out(15, 60), None)
    assert (found.source, found.n_pairs, found.precision) == ("rows left out", 90, 0.5)
    assert at(found, 1, 1) == pytest.approx(0.5, abs=1e-3)  # the plain conditional says 1
    assert at(fitted(left_out(5, 60), None), 1, 1) == pytest.approx(0.25, abs=2e-3)
    assert at(fitted(left_out(45, 60), None), 1, 1) == pytest.approx(0.75, abs=2e-3)


@pytest.mark.parametrize("n_pairs", [MIN_PAIRS - 1, MIN_PAIRS])
def test_too_few_twins_are_left_alone(n_pairs: int) -> None:
    train, label_texts = with_twins(lambda together, count: 1.0, [(1, 2)], n_pairs)
    found = fitted(train, label_texts)
    if n_pairs == MIN_PAIRS:
        assert (found.source, found.n_pairs, found.precision) == ("twins", MIN_PAIRS, 1.0)
        assert at(found, 1, 2) > 0.95
    else:  # (1, 2) leaves (1, 1), wrong; the companions met theirs in one row of two, the twin being the other: the same
        assert (found.source, found.n_pairs, found.precision) == ("rows left out", 2 * n_pairs, 0.0)
        assert at(found, 1, 1) < 0.05


@pytest.mark.parametrize("delta", [0.1, 0.25])
def test_rows_left_out_agree_with_the_next_row(delta: float) -> None:
    """Companions met with a probability from Beta(1, 3): after c of n rows the next has it with (c + 1) / (n + 4).

    Where a threshold hides pairs, those just above it must not look better than they are.
    """
    random = np.random.default_rng(5)
    n_labels, n_companions = 6000, 60
    rows = [[n_labels + companion] for companion in range(n_companions)] * 200  # so that no label is frequent among a companion's
    for label in range(n_labels):
        companion, chance = n_labels + label % n_companions, random.beta(1, 3)
        rows += [[label, companion] if random.random() < chance else [label] for _ in range(random.integers(2, 12))]
    found = fitted(split_of(rows, n_labels + n_companions), None, delta)
    for together, count in [(1, 1), (1, 2), (2, 2), (1, 3), (2, 4), (3, 4), (2, 7), (4, 7), (1, 9), (3, 9), (6, 9)]:
        if together / count > delta:  # what is logistic in the counts comes close to that, not nearer
            assert at(found, together, count) == pytest.approx((together + 1) / (count + 4), abs=0.075), (together, count)


# --- nothing to learn from


def test_without_pairs_the_plain_conditional_stays() -> None:
    cases: list[list[list[int]]] = [[], [[]], [[0], [1], [0]], [[0, 1]]]  # the last: both met in their one row
    for rows in cases:
        train = split_of(rows, 2)
        found = fitted(train, Texts.of(["a", "b"]))
        assert (found.source, found.n_pairs, found.precision) == ("rows left out", 0, 0.0)
        assert at(found, 1, 1) == 1.0
        plain, made = (Gandalf(targets=targets).augment(train, Texts.of(["a", "b"])) for targets in ("cooccurrence", "calibrated"))
        assert (plain.split.labels != made.split.labels).nnz == 0
        assert made.notes == ("Targets are plain conditionals: there were no pairs to fit to.",)


@pytest.mark.parametrize("n_labels", [0, 1])
def test_one_label_or_none(n_labels: int) -> None:
    for rows in ([], [[0]] * 3 if n_labels else [[]] * 3):
        made = Gandalf(targets="calibrated").augment(split_of(rows, n_labels), Texts.of(["a"] * n_labels))
        assert made.split.labels.shape == (len(rows) + n_labels, n_labels)
        assert made.split.labels[len(rows) :].toarray().tolist() == [[1.0]] * n_labels


def test_labels_without_text_but_with_features() -> None:
    train = left_out(15, 60)
    features = csr_matrix(identity(150, np.float32))
    made = Gandalf(targets="calibrated").augment(
        Split(None, train.labels, features=csr_matrix(np.ones((150, 150), np.float32))), None, label_features=features
    )
    assert made.notes == ("Targets fitted to 90 pairs of rows left out, 50% of them right.",)


def test_large_counts_and_weights_stay_finite() -> None:
    counts = np.array([1.0, 1e3, 2.0**31])
    weights = fitted(left_out(5, 5), None).weights
    for value, wanted in ((900.0, 1.0), (-900.0, 0.0)):  # exp would overflow
        assert Estimate(np.full(len(weights), value), "twins", 1, 0.5).probability(counts, counts).tolist() == [wanted] * 3
    halves = Estimate(np.zeros(len(weights)), "twins", 1, 0.5)
    assert halves.probability(np.ones(2, np.float32), np.ones(2, np.float32)).dtype == np.float64
    assert halves.probability(np.ones(0), np.ones(0)).tolist() == []


# --- calibrated targets


@settings(max_examples=25)
@given(
    st.lists(st.sets(st.integers(0, 5)), max_size=25),
    st.lists(st.sampled_from("abcdefgh"), min_size=25, max_size=25),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([1, 200]),
)
def test_calibrated_targets(rows: list[set[int]], texts: list[str], delta: float, least: int) -> None:
    train = split_of([sorted(row) for row in rows], 6, texts[: len(rows)] or None)
    label_texts = Texts.of("abcdef")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIN_PAIRS", least)  # with 1, fitted to whatever twins there are
        found = fitted(train, label_texts, delta)
        made = Gandalf(targets="calibrated", include="Z", delta=delta).augment(train, label_texts)
        again = Gandalf(targets="calibrated", include="Z", delta=delta).augment(train, label_texts)
    targets = made.split.labels
    assert targets.shape == (6, 6) and targets.dtype == np.float32 and made.notes == again.notes
    assert (targets != again.split.labels).nnz == 0
    binary = np.array([[label in row for label in range(6)] for row in rows]).reshape(-1, 6).astype(float)
    together = binary.T @ binary  # row j, column i
    count = np.repeat(np.diag(together), 6)
    values = found.probability(np.maximum(together.ravel(), 1), np.maximum(count, 1)).reshape(6, 6)
    held = (together.ravel() > delta * count).reshape(6, 6) & (values > delta)
    wanted = np.where(np.eye(6) > 0, 1.0, np.where(held, values, 0.0))
    np.testing.assert_allclose(targets.toarray(), wanted, atol=1e-6)
    assert targets.nnz == np.count_nonzero(wanted) and (targets.data > delta).all() and (targets.data <= 1).all()


def test_the_note_tells_what_targets_rest_on() -> None:
    train, label_texts = with_twins(lambda together, count: 0.25)
    made = Gandalf(targets="calibrated", mark=LABEL_MARK).augment(train, label_texts)
    assert made.notes == (f"Targets fitted to {len(COUNTS) * EACH:,} pairs of twins, 25% of them right.",)
    assert made.split.texts is not None and made.split.texts[len(train)] == f"{LABEL_MARK} label 0"


def test_the_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingError, match="shrink counts label pairs and has no meaning for targets='calibrated'; leave it at 0"):
        Gandalf(targets="calibrated", shrink=3.0)
    train = split_of([[0, 1], [0]], 2)
    graph = cooccurrence(train.labels, 0.1)
    with pytest.raises(SettingError, match="targets='calibrated' came with a graph of kind 'walk'; wanted 'cooccurrence'"):
        Gandalf(targets="calibrated").augment(train, Texts.of(["a", "b"]), replace(graph, kind="walk"))
    with pytest.raises(SettingError, match="targets='calibrated' came without an estimate; make one: longtail.data.augment.estimate"):
        label_targets("calibrated", graph, np.arange(2), 2)


def test_some_labels_stand_for_all_where_pairs_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    data = synth(Shape(3000, 10, 900, 4.0))
    graph = cooccurrence(data.train.labels)
    whole = estimate(data.train, data.label_texts, graph)
    monkeypatch.setattr("longtail.data.augment.estimate.MAX_HELD", graph.weights.nnz // 3)
    part = estimate(data.train, data.label_texts, graph)
    assert part.source == whole.source == "twins"
    assert part.n_pairs < whole.n_pairs / 2
    together, counts = np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 6.0])
    np.testing.assert_allclose(part.probability(together, counts), whole.probability(together, counts), atol=0.12)
