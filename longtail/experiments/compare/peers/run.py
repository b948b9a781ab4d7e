"""Run a peer in its own environment: rows go out as files, predictions come back."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longtail.core.errors import DataError, LongtailError, SettingError, UnknownName
from longtail.core.values import Dataset, Predictions, Split
from longtail.data.files import shorten
from longtail.evaluation.predictions import most_filtered, read_predictions
from longtail.experiments.compare.peers.install import python_of
from longtail.experiments.compare.peers.rows import write_rows
from longtail.experiments.compare.peers.table import Peer, Setting, named_peer

COSTS = ("train_seconds", "predict_seconds", "megabytes", "peak_megabytes")
# what sets the threads of libraries that take no such argument
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
# nothing from outside the environment, nothing written next to the scripts, and threads that wait asleep: where others use the same
# cores, waiting in a loop made training MiniLM by two threads nine times slower than by one
ENVIRONMENT = {"PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", "OMP_WAIT_POLICY": "PASSIVE"}
SETTINGS, FOUND, RESULT, OUTPUT_LOG, ERROR_LOG = "settings.json", "found.npz", "result.json", "output.log", "errors.log"


class PeerFailed(LongtailError):
    """A peer's own code failed; its log says more than the one line."""


@dataclass(frozen=True, eq=False)
class PeerRun:
    """Predictions of a peer, and their costs."""

    found: Predictions  # of the test rows, before the filter
    train_seconds: float
    predict_seconds: float  # of all test rows
    megabytes: float  # of the model, on disk or in memory
    peak_megabytes: float  # of the peer's process


def check_ready(name: str) -> Path:
    """The Python of a peer whose environment is made; otherwise what to type."""
    python = python_of(named_peer(name).environment)
    if python is None:
        raise SettingError(f"The peer {name} is not installed. Type: make peers   (or only this one: scripts/peers {name})")
    return python


def run_peer(
    name: str, train: Split, data: Dataset, k: int, seed: int, folder: Path, settings: Iterable[str] = (), threads: int | None = None
) -> PeerRun:
    """Train a peer on `train` and let it predict for the test rows of `data`.

    Args:
        train: training rows, augmented ones among them if wanted; every target above 0 counts as 1.
        k: places that are left in every row when the test filter's pairs are taken out; so many more are asked for.
        folder: the rows are written below it once for all peers, each run and its logs in a folder of its own.
        settings: of the peer, as in `max_steps=20`.
        threads: for the peers that let it be chosen; None takes all cores.
    """
    peer = named_peer(name)
    python = check_ready(name)
    run_settings: dict[str, Setting] = parsed_settings(peer, settings)
    lacking = [what for what, there in _texts_there(train, data).items() if not there and peer.needs in (what, "label texts")]
    if lacking:
        raise DataError(f"{data.name} has no {lacking[0]}, which {name} reads.")
    rows = write_rows(train, data, folder)
    places = min(data.n_labels, k + most_filtered(data.test.filter, len(data.test)))
    run_settings |= {"kind": peer.kind, "k": places, "seed": seed, "threads": threads or os.cpu_count() or 1}
    out = folder / f"{name}-{seed}-{rows.name.removeprefix('rows-')}"
    shutil.rmtree(out, ignore_errors=True)  # of a run that was stopped
    out.mkdir(parents=True)
    (out / SETTINGS).write_text(json.dumps(run_settings), encoding="utf-8")
    sys.stderr.write(f"{name}: training on {len(train):,} rows with {data.n_labels:,} labels\n")
    _call(peer, python, rows, out, int(run_settings["threads"]))
    run = _read_run(peer, out, len(data.test), data.n_labels)
    sys.stderr.write(
        f"{name}: trained in {run.train_seconds:.1f} s, predicted in {run.predict_seconds:.1f} s, model of {run.megabytes:,.0f} MB\n"
    )
    return run


def parsed_settings(peer: Peer, typed: Iterable[str]) -> dict[str, Setting]:
    """The peer's settings with those that were typed in place of its defaults.

    >>> parsed_settings(named_peer("bm25"), ["neighbours=5"])
    {'neighbours': 5}
    """
    settings = dict(peer.settings)
    for word in typed:
        key, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f"{word!r} came behind {peer.name}; wanted settings such as max_steps=20.")
        if key not in settings:
            raise UnknownName(f"setting of {peer.name}", key, settings)
        kind = type(settings[key])
        try:
            settings[key] = kind(value)
        except ValueError:
            raise SettingError(f"{key} came as {value!r}; wanted a value such as {settings[key]}.") from None
    return settings


def _texts_there(train: Split, data: Dataset) -> dict[str, bool]:
    return {"texts": train.texts is not None and data.test.texts is not None, "label texts": data.label_texts is not None}


def _call(peer: Peer, python: Path, rows: Path, out: Path, threads: int) -> None:
    """Run the script to its end; an interrupt ends it too, with all it started."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment = {**kept, **dict.fromkeys(THREAD_VARIABLES, str(threads)), **ENVIRONMENT}
    command = [python, peer.path, rows.absolute(), out.absolute()]
    with open(out / OUTPUT_LOG, "wb") as output, open(out / ERROR_LOG, "wb") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if code:
        raise PeerFailed(f"The peer {peer.name} failed: {_last_words(out / ERROR_LOG, code)}   (log: {out / ERROR_LOG})")


def _last_words(log: Path, code: int) -> str:
    """The last line of an error log, or how the process ended."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if code < 0:
        ended = f"ended by {signal.Signals(-code).name}"
        return f"{ended}, most often because memory ran out" if code == -signal.SIGKILL else ended
    return shorten(lines[-1], 300) if lines else f"exit code {code}, without a word"


def _read_run(peer: Peer, out: Path, n_rows: int, n_labels: int) -> PeerRun:
    """Read the predictions and costs that the script wrote; refuse those that cannot be."""
    try:
        costs = json.loads((out / RESULT).read_text(encoding="utf-8"))
        values = [float(costs[name]) for name in COSTS]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{out / RESULT}: {error!r}; wanted the numbers {', '.join(COSTS)} from {peer.name}.") from None
    if not all(math.isfinite(value) and value >= 0 for value in values):
        raise DataError(f"{out / RESULT}: {values} came from {peer.name}; wanted {', '.join(COSTS)}, none below 0.")
    found = read_predictions(out / FOUND)
    if len(found) != n_rows:
        raise DataError(f"{out / FOUND}: {len(found):,} rows came from {peer.name}; wanted one for each of {n_rows:,} test rows.")
    if found.ids.size and int(found.ids.max()) >= n_labels:
        raise DataError(f"{out / FOUND}: label {int(found.ids.max())} came from {peer.name}; wanted ids below {n_labels:,}.")
    if np.isnan(found.scores).any():
        raise DataError(f"{out / FOUND}: {peer.name} gave scores that are not numbers.")
    ordered = np.sort(found.ids, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise DataError(f"{out / FOUND}: {peer.name} gave a label twice in one row; wanted each once.")
    return PeerRun(found, *values)
