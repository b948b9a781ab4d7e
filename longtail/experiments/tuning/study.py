"""A study on disk: study.json says what is searched, trials.log (Optuna's journal) holds every trial."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from longtail.core.errors import DataError, MissingExtra, SettingError
from longtail.data.files import new_folder
from longtail.experiments.tuning.results import Trial

if TYPE_CHECKING:
    from optuna import Study

ENOUGH = 10  # trials, before importances are estimated
FACTS = {
    "data": "data set",
    "recipe": "recipe or settings",
    "augment": "choice of augmentations",
    "space": "space",
    "by": "metric",
    "share": "share of validation rows",
    "seed": "seed",
}


@contextmanager
def open_study(folder: Path, facts: Mapping[str, Any]) -> Iterator[Study]:
    """The study in this folder, new or as it was left; one process at a time."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise MissingExtra("Searching settings", "tune") from error
    if not (folder / "study.json").exists():
        with new_folder(folder) as unfinished:
            (unfinished / "study.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    _check_facts(folder, facts)
    journal = folder / "trials.log"
    with open(journal, "ab+") as handle, _quiet(optuna.logging):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingError(f"{folder} is being searched by another process; wait for it, or choose another folder.") from None
        _mend(handle.fileno(), journal)
        try:
            storage = JournalStorage(JournalFileBackend(str(journal)))
            study = optuna.create_study(storage=storage, study_name="tune", direction="maximize", load_if_exists=True)
        except (ValueError, KeyError) as error:
            raise DataError(f"{journal} is damaged ({error}). Delete {folder} to begin anew.") from error
        for one in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):  # of a process that was killed
            close_trial(study, one.number, one.user_attrs.get("trial", {}).get("value"))
        yield study


def close_trial(study: Study, number: int, value: float | None) -> None:
    """End a trial, with its value or, for None, as one that failed or was stopped."""
    from optuna.trial import TrialState

    study.tell(number, value, state=TrialState.FAIL if value is None else TrialState.COMPLETE)


def ended_trials(study: Study) -> list[Trial]:
    """Trials that came to a value or failed; not those that were stopped."""
    kept = [one.user_attrs["trial"] for one in study.get_trials(deepcopy=False) if "trial" in one.user_attrs]
    return [Trial(**{**one, "settings": tuple(one["settings"])}) for one in kept]


def importances(study: Study) -> dict[str, float]:
    """Importance of each hyperparameter for being among the better trials (PED-ANOVA, which needs no scikit-learn)."""
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    # without the first, which has no settings
    reached = [one for one in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)) if one.params]
    if len(reached) < ENOUGH or len({one.value for one in reached}) == 1:
        return {}
    copy = optuna.create_study(direction="maximize")
    copy.add_trials(reached)
    always = [key for key in reached[0].params if all(key in one.params for one in reached)]  # few trials had the others
    return get_param_importances(copy, evaluator=PedAnovaImportanceEvaluator(), params=always)


@contextmanager
def _quiet(logging: ModuleType) -> Iterator[None]:
    """Without Optuna's own lines between ours."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _mend(handle: int, journal: Path) -> None:
    """Take away the remains of a killed process: half a line, and Optuna's lock, which nobody else can hold now."""
    (journal.with_name(journal.name + ".lock")).unlink(missing_ok=True)
    written = journal.read_bytes()
    os.truncate(handle, written.rfind(b"\n") + 1)


def _check_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    try:
        known = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        differing = [name for key, name in FACTS.items() if known[key] != facts[key]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / 'study.json'} is damaged. Delete {folder} to begin anew.") from error
    if differing:
        raise SettingError(f"{folder} holds a study with another {differing[0]}; wanted the same as there, or another folder.")
