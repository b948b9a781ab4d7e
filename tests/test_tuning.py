"""Searching settings: spaces as typed, trials on validation rows alone, studies that go on, and recipes that hold what was found."""

from __future__ import annotations

import fcntl
import math
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from longtail import XMC, Dataset
from longtail.cli.main import app
from longtail.core.errors import DataError, LongtailError, MissingExtra, SettingError, UnknownName
from longtail.core.registry import recipes
from longtail.data.augment.choose import validation_split
from longtail.evaluation.evaluate import evaluate
from longtail.experiments.tuning.search import Search
from longtail.experiments.tuning.space import Choices, Interval, default_space, drawn, read_space
from longtail.experiments.tuning.toml import toml_text
from longtail.experiments.tuning.tune import tune
from longtail.recipes.read import read_recipe
from tests.spelled import spelled_out, write_table
from tests.tensors import same_numbers as same_numbers

QUICK = ("dim=16", "batch_size=96", "epochs=1", "ensemble=1", "tokens.kind=words", "hard_negatives=0", "random_negatives=8")
RATES = ["learning_rate=1e-3..1e-1 log"]
Reached = Callable[[dict[str, str], str], float]


@pytest.fixture
def data() -> Dataset:
    return spelled_out()


def by_rate(settings: dict[str, str], augmentation: str) -> float:
    """Largest, 90, at a rate of 0.01; 40 for the recipe as it is."""
    return 90 - 10 * abs(math.log10(float(settings["learning_rate"])) + 2) if settings else 40.0


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Callable[[Reached], list[tuple[str, ...]]]:
    """Let trials reach what a function says instead of training; the list that comes back holds the settings of each."""

    def install(reached: Reached) -> list[tuple[str, ...]]:
        begun: list[tuple[str, ...]] = []

        def metrics(search: Search, settings: tuple[str, ...], augmentation: str, checkpoint: Path) -> dict[str, float]:
            begun.append((*settings, augmentation))
            return {search.by: reached(dict(word.split("=") for word in settings), augmentation)}

        monkeypatch.setattr(Search, "_metrics", metrics)
        return begun

    return install


# ---- spaces


def test_a_space_is_read_as_it_is_typed() -> None:
    typed = [
        "learning_rate=1e-3..1e-2 log",
        "epochs = 5 .. 20",
        "clusters.game=0..0.5",
        "encoder.dropout=0.0, 0.2,0.5",
        "vectors=../a,none",
    ]
    assert read_space(typed) == (
        Interval("learning_rate", 0.001, 0.01, log=True),
        Interval("epochs", 5, 20),
        Interval("clusters.game", 0.0, 0.5),
        Choices("encoder.dropout", ("0.0", "0.2", "0.5")),
        Choices("vectors", ("../a", "none")),
    )
    assert read_space(map(str, read_space(typed))) == read_space(typed)  # what a study keeps


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("dropout", "'dropout' came as a setting to search; wanted KEY=LOW..HIGH, KEY=LOW..HIGH log, or KEY=A,B,C."),
        ("=1..2", "'=1..2' came as a setting to search; wanted KEY"),
        ("epochs=", "'epochs=' came as a setting to search; wanted KEY"),
        ("epochs=5", "One that stays as it is needs no --space."),
        ("epochs=5..20 linear", "'epochs=5..20 linear' came as a setting to search"),
        ("epochs=20..5", "goes from 20 to 5; wanted the lower end first"),
        ("epochs=5..5", "goes from 5 to 5"),
        ("epochs=five..9", "'five' came as an end of 'epochs=five..9'; wanted a number."),
        ("dropout=0..nan", "'nan' came as an end"),
        ("dropout=0..inf", "'inf' came as an end"),
        ("dropout=0..0.5 log", "begins at 0; wanted more than 0"),
        ("dropout=0.1,,0.2", "wanted several values, each once: dropout=A,B,C."),
        ("dropout=0.1,0.1", "wanted several values, each once"),
    ],
)
def test_a_space_that_cannot_be_is_told_in_one_line(typed: str, told: str) -> None:
    with pytest.raises(SettingError, match=re.escape(told)) as raised:
        read_space([typed])
    assert "\n" not in str(raised.value)


def test_a_key_is_searched_once() -> None:
    with pytest.raises(SettingError, match="epochs is searched twice"):
        read_space(["epochs=5..20", "epochs=1,2"])


class Highest:
    """A chooser that takes the highest number and the last choice."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        return high

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return high

    def suggest_categorical(self, name: str, choices: Sequence[str]) -> str:
        return choices[-1]


def test_settings_of_an_augmentation_are_drawn_with_it_alone() -> None:
    space = read_space(["epochs=5..20", "gandalf.delta=0.0..0.1234567", "labelmix.probability=0.1,0.2", "learning_rate=1..2.00049"])
    settings = ("epochs=20", "learning_rate=2.0")  # three digits
    assert drawn(space, ["none"], Highest()) == (settings, "none")
    assert drawn(space, ["labelmix", "gandalf:mark=x"], Highest()) == (settings, "gandalf:mark=x,delta=0.123")
    assert drawn(space, ["gandalf", "labelmix"], Highest()) == (settings, "labelmix:probability=0.2")


def test_the_default_space_holds_what_matters_in_a_recipe() -> None:
    def space(recipe: str, *settings: str, augment: Sequence[str] = ("none",), rows: int = 1000) -> list[str]:
        return [str(one) for one in default_space(read_recipe(recipe, settings), settings, augment, rows)]

    rates = ["learning_rate=0.002..0.032 log", "epochs=5..20 log", "encoder.dropout=0.0..0.4"]
    assert space("default") == rates
    assert space("default", augment=["none", "gandalf", "labelmix"]) == [*rates, "gandalf.delta=0.0..0.3", "labelmix.probability=0.1..0.8"]
    assert space("default", augment=["gandalf:delta=0.2"]) == rates  # which says it
    assert space("default", "epochs=3", "stages.0.learning_rate=0.1", "encoder.dropout=0") == []
    astec = ["stages.1.learning_rate=0.0005..0.008 log", "stages.0.learning_rate=0.00125..0.02 log", "encoder.dropout=0.0..0.8"]
    assert space("astec", rows=1000) == [*astec[:2], "stages.1.min_steps=1500..6000 log", astec[2]]  # 15 epochs are 60 steps
    assert space("astec", rows=100_000) == [*astec[:2], "stages.1.epochs=7..30 log", astec[2]]
    assert space("astec", "epochs=3", "learning_rate=0.1") == [astec[2]]
    assert space("unidec")[2:] == ["epochs=10..40 log", "encoder.dropout=0.0..0.4", "contrast.temperature=0.0167..0.15 log"]


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_takes_its_default_space(name: str) -> None:
    for rows in (100, 10_000_000):
        space = default_space(read_recipe(name), (), ["none"], rows)
        assert 2 <= len(space) <= 7
        for end in (0, -1):
            read_recipe(name, [f"{one.key}={one.extremes[end]}" for one in space])


# ---- trials


class Poisoned:
    """Test rows that must not be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"test rows were asked for {name}")

    def __len__(self) -> int:
        raise AssertionError("test rows were counted")


def test_the_best_trial_comes_out_again_by_hand_and_test_rows_are_not_looked_at(data: Dataset, tmp_path: Path) -> None:
    blind = replace(data, test=Poisoned())  # type: ignore[arg-type]
    settings, space = (*QUICK, "learning_rate=0.03", "epochs=2"), ["learning_rate=0.005,1e30", "gandalf.delta=0.0,0.2"]
    found = tune(
        "default",
        blind,
        space,
        folder=tmp_path / "study",
        settings=settings,
        augment=["none", "gandalf"],
        by="nDCG@5",
        trials=6,
        device="cpu",
    )
    assert len(found.trials) == 6 and found.trials[0].settings == () and found.trials[0].augmentation == "none"
    assert found.settings != () and found.value > (found.trials[0].value or 0)  # whose rate is too high
    assert any(re.search("the loss is (nan|inf)", one.error) for one in found.trials), found.trials  # and the search went on
    found.save(tmp_path / "tuned.toml")
    split = validation_split(data, 0.1, seed=0)
    taught = {text for text in split.train.texts or ()} | {text for text in split.test.texts or ()}
    assert taught == set(data.train.texts or ()) and len(split.test) == 22
    model = XMC.from_recipe(tmp_path / "tuned.toml", augment=found.augmentation, device="cpu").fit(split)
    by_hand = evaluate(model.predict_test(split), split, resamples=0).metrics
    assert by_hand["nDCG@5"] == found.value == max(one.value for one in found.trials if one.value is not None)
    assert by_hand == next(one.metrics for one in found.trials if one.value == found.value)
    assert "22 validation rows" in (tmp_path / "tuned.toml").read_text() and "22 validation rows" in str(found)


def test_the_search_goes_where_it_is_good(data: Dataset, tmp_path: Path, trials: Any, capsys: pytest.CaptureFixture[str]) -> None:
    begun = trials(by_rate)
    found = tune("default", data, [*RATES, "epochs=5..20"], folder=tmp_path, trials=30)
    assert len(begun) == 30 and begun[0] == ("none",)
    values = [one.value for one in found.trials]
    assert values[0] == 40.0 and found.value == max(value for value in values if value) > 88
    late, early = (np.mean([value for value in part if value]) for part in (values[20:], values[1:11]))
    assert late > early
    assert list(found.importance) == ["learning_rate", "epochs"] and found.importance["learning_rate"] > 0.7
    assert f"learning_rate={found.recipe.stages[0].learning_rate}" in found.settings
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "Searching learning_rate=0.001..0.1 log, epochs=5..20; 22 of the training rows judge."
    assert re.fullmatch(r"trial 1 of 30: P@1 40.00, best 40.00 \(trial 1\), 0 s, about 0 s left; the recipe as it is", told[1])
    assert len(told) == 31


def test_a_study_goes_on_where_it_was_and_ends_the_same(data: Dataset, tmp_path: Path, trials: Any) -> None:
    def run(folder: str, wanted: int) -> list[tuple[tuple[str, ...], float | None]]:
        found = tune("default", data, [*RATES, "epochs=5..20"], folder=tmp_path / folder, trials=wanted)
        return [(one.settings, one.value) for one in found.trials]

    trials(by_rate)
    whole = run("whole", 16)
    begun = trials(by_rate)
    assert run("parts", 3) == whole[:3] and len(begun) == 3
    assert run("parts", 3) == whole[:3] and run("parts", 2) == whole[:3] and len(begun) == 3

    def stopped(settings: dict[str, str], augmentation: str) -> float:
        raise KeyboardInterrupt

    trials(stopped)
    with pytest.raises(KeyboardInterrupt):
        run("parts", 16)
    journal = tmp_path / "parts" / "trials.log"
    with open(journal, "a") as file:  # as kill -9 may leave it: a trial under way, half a line, Optuna's lock
        file.write('{"op_code":4,"worker_id":"gone","study_id":0,"datetime_start":"2030-01-01T00:00:00.000000"}\n{"op_code":8,"work')
    (tmp_path / "parts" / "trials.log.lock").symlink_to(journal)
    begun = trials(by_rate)
    assert run("parts", 16) == whole and len(begun) == 13
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["study.json", "trials.log"]


def test_a_failing_trial_is_told_and_the_search_goes_on(data: Dataset, tmp_path: Path, trials: Any, capsys: Any) -> None:
    errors = iter([SettingError("The loss is nan."), MemoryError(), RuntimeError("CUDA out of memory.\nTried 3 GiB")])

    def reached(settings: dict[str, str], augmentation: str) -> float:
        if settings and (error := next(errors, None)):
            raise error
        return 50.0

    begun = trials(reached)
    found = tune("default", data, RATES, folder=tmp_path / "some", trials=6)
    assert len(begun) == 6 and [one.value for one in found.trials] == [50.0, None, None, None, 50.0, 50.0]
    told = capsys.readouterr().err.splitlines()
    assert told[2].startswith("trial 2 of 6 failed (1 so far), learning_rate=") and told[2].endswith(": The loss is nan.")
    assert told[3].endswith(": MemoryError: no more memory") and told[4].endswith(": RuntimeError: CUDA out of memory.")
    assert "6 trials, 3 of them failed. None was better than the recipe as it is" in str(found)
    assert tune("default", data, RATES, folder=tmp_path / "some", trials=6).trials == found.trials  # not run again

    def fails(settings: dict[str, str], augmentation: str) -> float:
        raise MemoryError

    trials(fails)
    with pytest.raises(SettingError, match="All 3 trials failed; the last: MemoryError"):
        tune("default", data, RATES, folder=tmp_path / "all", trials=3)

    def broken(settings: dict[str, str], augmentation: str) -> float:
        raise DataError("The data set has no texts.")

    trials(broken)
    with pytest.raises(DataError, match="no texts"):  # other settings would not help
        tune("default", data, RATES, folder=tmp_path / "broken", trials=3)


def test_what_came_before_is_not_trained_again(data: Dataset, tmp_path: Path, trials: Any) -> None:
    begun = trials(lambda settings, augmentation: 10.0)
    found = tune("default", data, ["epochs=1,2"], folder=tmp_path, trials=8)
    assert len(found.trials) == 8 and sorted(begun) == [("epochs=1", "none"), ("epochs=2", "none"), ("none",)]


def test_no_trial_begins_after_the_minutes(data: Dataset, tmp_path: Path, trials: Any) -> None:
    begun = trials(by_rate)
    for _ in range(2):
        assert len(tune("default", data, RATES, folder=tmp_path, trials=5, minutes=1e-9).trials) == 1
    assert len(begun) == 1
    with pytest.raises(SettingError, match="minutes came as 0"):
        tune("default", data, RATES, folder=tmp_path, minutes=0)


# ---- what is refused


def test_another_data_set_recipe_or_space_in_the_same_folder_is_refused(data: Dataset, tmp_path: Path, trials: Any) -> None:
    begun = trials(by_rate)
    how: dict[str, Any] = dict(folder=tmp_path, trials=1, settings=["dim=16"])

    def told(of: Dataset = data, space: Sequence[str] = RATES, recipe: str = "default", **more: Any) -> str:
        with pytest.raises(SettingError) as raised:
            tune(recipe, of, space, **{**how, **more})
        assert "\n" not in str(raised.value)
        return str(raised.value)

    tune("default", data, RATES, **how)
    wanted = "; wanted the same as there, or another folder."
    assert told(replace(data, train=data.train.rows(np.arange(1, 200)))) == f"{tmp_path} holds a study with another data set{wanted}"
    assert told(recipe="astec").endswith(f"another recipe or settings{wanted}")
    assert told(settings=["dim=32"]).endswith(f"another recipe or settings{wanted}")
    assert told(space=["learning_rate=1e-3..2e-1 log"]).endswith(f"another space{wanted}")
    assert told(augment=["none", "gandalf"]).endswith(f"another choice of augmentations{wanted}")
    assert told(by="P@5").endswith(f"another metric{wanted}")
    assert told(share=0.2).endswith(f"another data set{wanted}")
    assert len(begun) == 1
    tune("default", replace(data, test=data.test.rows(np.arange(3))), RATES, **how)  # test rows have no part in it
    with open(tmp_path / "trials.log") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "is being searched by another process" in told()
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(DataError, match="study.json is damaged. Delete"):
        tune("default", data, RATES, **how)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    assert "is not an empty folder" in told(folder=tmp_path / "other")


@pytest.mark.parametrize(
    ("space", "more", "told"),
    [
        (["learning_rat=1..2"], {}, "Did you mean 'learning_rate'?"),
        (["dropout=0.0,0.2"], {}, "dropout is a setting of 2 tables; type encoder.dropout or labels.dropout."),
        (["encoder.dropout=0.5..1.5"], {}, "dropout came as 1.5"),
        (["epochs=0.5..2"], {}, "stages.0.epochs came as 0.5; wanted a whole number."),
        (["epochs=0..5"], {}, "epochs came as 0; wanted 1 or more."),
        (["encoder.kind=bag,bagg"], {}, "Did you mean 'bag'?"),
        (["gandalf.delta=0.0..0.3"], {}, "gandalf is not among the augmentations none; type --augment gandalf."),
        (["gandalf.delt=0.0..0.3"], {"augment": ["gandalf"]}, "Did you mean 'delta'?"),
        (["gandalf.delta=0.0..0.3"], {"augment": ["gandalf:delta=0.1"]}, "delta was given twice"),
        ([], {"settings": ["epochs=1", "learning_rate=0.1", "encoder.dropout=0"]}, "Nothing is left to search"),
        (RATES, {"augment": ["gandolf"]}, "Did you mean 'gandalf'?"),
        (RATES, {"augment": ["none", "none"]}, "augmentations that each come once"),
        (RATES, {"trials": 0}, "wanted at least one trial"),
        (RATES, {"by": "P@"}, "No metric called 'P@'."),
        (RATES, {"by": "Q@1"}, "No metric called 'Q@1'."),
        (RATES, {"share": 1.5}, "leaves nothing on one side"),
    ],
)
def test_what_cannot_work_is_told_before_the_first_trial(
    space: list[str], more: dict[str, Any], told: str, data: Dataset, tmp_path: Path, trials: Any
) -> None:
    begun = trials(by_rate)
    with pytest.raises(LongtailError, match=re.escape(told)) as raised:
        tune("default", data, space, folder=tmp_path / "study", **more)
    assert "\n" not in str(raised.value) and begun == [] and not (tmp_path / "study").exists()


def test_any_place_can_be_searched_by(data: Dataset, tmp_path: Path, trials: Any) -> None:
    trials(by_rate)
    for by in ("P@10", "R@10", "macroF1@5", "coverage@3"):
        assert tune("default", data, RATES, folder=tmp_path / by, by=by, trials=1).by == by


def test_without_optuna_the_extra_is_named(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'longtail[tune]'")):
        tune("default", data, RATES, folder=tmp_path / "study")
    assert not (tmp_path / "study").exists()


# ---- the recipe file and the command


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_is_written_as_it_was_read(name: str) -> None:
    tables = read_recipe(name, ["epochs=3", "learning_rate=1e-05", 'vectors=\x7fé"\\\t/x.vec']).tables
    assert tomllib.loads(toml_text(tables)) == tables


def test_members_are_written_with_their_tables() -> None:
    members = [{"base": "dpr", "encoder": {"dim": 3}, "stages": [{"epochs": 1}, {"epochs": 2}]}, {"base": "astec"}]
    tables = {"stages": [{"epochs": 3}], "members": members, "labels": {"parts": ["text"], "block": {}}, "mixed": [1, {"a b": [True]}]}
    text = toml_text(tables)
    assert tomllib.loads(text) == tables
    assert [line for line in text.splitlines() if line.startswith("[")] == [
        *("[labels]", "[labels.block]", "[[stages]]", "[[members]]", "[members.encoder]", "[[members.stages]]", "[[members.stages]]"),
        "[[members]]",
    ]
    assert 'mixed = [1, {"a b" = [true]}]' in text.splitlines()
    with pytest.raises(TypeError, match="None came as a value of TOML"):
        toml_text({"patience": None})


TOML_TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
TOML_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TOML_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TOML_TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TOML_TEXTS, TOML_VALUES, max_size=4))
def test_any_tables_are_read_back(tables: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(tables)) == tables


def test_the_command_writes_a_recipe_and_says_what_to_type(data: Dataset, tmp_path: Path, trials: Any, monkeypatch: Any) -> None:
    begun = trials(lambda settings, augmentation: by_rate(settings, augmentation) + 5 * (augmentation != "none"))
    monkeypatch.chdir(tmp_path)
    assert data.label_texts is not None
    write_table(Path("rows.csv"), data.train, data.label_texts)

    def run(*more: str) -> Any:
        common = ["tune", "default", "rows.csv", "dim=16", "--labels", "labels", "--separator", "|", "--space", RATES[0]]
        return CliRunner().invoke(app, [*common, "--augment", "none,gandalf:delta=0.2,mark=x", *more])

    done = run("--trials", "6", "--test-share", "0.2")
    assert done.exit_code == 0, done.output
    assert len(begun) == 6 and "as it is" in done.output
    best = max(
        (one for one in begun if len(one) > 1),
        key=lambda one: by_rate({"learning_rate": one[0].split("=")[1]}, "") + 5 * (one[1] != "none"),
    )
    assert best[1] == "gandalf:delta=0.2,mark=x"
    next_line = f"Wrote tuned.toml. Next: longtail train tuned.toml rows.csv --augment {best[1]} --test-share 0.2 --seed 0 --out model"
    assert next_line in done.output.splitlines()
    written = read_recipe("tuned.toml")
    assert f"learning_rate={written.stages[0].learning_rate}" == best[0] and written.encoder.dim == 16
    assert run("--trials", "6", "--test-share", "0.2").exit_code == 0 and len(begun) == 6
    assert isinstance(run("--out", "tuned.txt").exception, SettingError)
    assert isinstance(run("--by", "P@one").exception, UnknownName)
