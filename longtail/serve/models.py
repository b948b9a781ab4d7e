"""The models of a server by their names: what they answer, how labels come and go, and how a newer version takes over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson

from longtail.core.errors import LongtailError, SettingError, UnknownName
from longtail.core.memory import give_back_memory
from longtail.evaluation.frequency import GROUPS, frequency_groups
from longtail.serve.batching import Batcher, Question
from longtail.serve.labels import TextSearch, neighbourhood
from longtail.serve.limits import Limits, Refused
from longtail.serve.metrics import Metrics

T = TypeVar("T")
Loader = Callable[[Path], Any]  # of a model folder
# predicted before a version takes over, so that its first request pays for no compiling: one text alone, and many, which other loops read
WARMING_TEXTS = (["warm"], ["warm"] * 64)
LOG = logging.getLogger("longtail.serve")


class Served:
    """One model under its name. Predictions are made in one thread; labels come and go, and newer versions are loaded, in another.

    Both at once is safe: a model replaces what it has stored as a whole, and the id of a label never becomes another's.
    """

    def __init__(self, name: str, folder: Path, load: Loader, limits: Limits, metrics: Metrics) -> None:
        self.name, self.folder, self._load, self._metrics = name, folder, load, metrics
        self._stamp = _stamp(folder)
        self._failed_stamp: object = None
        self.model = self._ready(folder)
        self.version = 1
        self.loaded_at = _now()
        self._changing: asyncio.Lock | None = None
        self._search: TextSearch | None = None
        self._limits = limits
        self.batcher: Batcher | None = None

    def start(self) -> None:
        """Begin to answer, in the running loop."""
        limits = self._limits
        self._changing = asyncio.Lock()
        self.batcher = Batcher(self.answer, self.name, limits.waiting_texts, limits.batch_texts, limits.wait_ms)
        self.batcher.start()

    @property
    def n_labels(self) -> int:
        return len(self.model.stored.label_counts)

    # ---- answers

    async def ask(self, question: Question) -> bytes:
        assert self.batcher is not None
        return await self.batcher.ask(question)

    def answer(self, questions: list[Question]) -> Sequence[bytes | Exception]:
        """An answer to each, by one call of the model for all that want the same number of labels.

        Calls with one k are never answered by another: what a ranker passes on and an ensemble adds up depends on k, and no
        answer shall depend on who else asked.
        """
        by_k: dict[int, list[int]] = {}
        for place, question in enumerate(questions):
            by_k.setdefault(question.looked_at or question.k, []).append(place)
        answers: list[bytes | Exception] = [b""] * len(questions)
        for k, places in by_k.items():
            for place, found in zip(places, self._predicted([questions[place] for place in places], k), strict=True):
                answers[place] = found
        return answers

    def _predicted(self, questions: list[Question], k: int) -> Sequence[bytes | Exception]:
        model = self.model  # the same for the whole batch, whatever takes over meanwhile
        texts = [text for question in questions for text in question.texts]
        began = time.perf_counter()
        try:
            found = model.predict(texts, k)
        except Exception as error:
            if len(questions) == 1:
                return [error]
            return [answer for question in questions for answer in self._predicted([question], k)]  # who it was that made it fail
        self._metrics.batch(self.name, len(texts), time.perf_counter() - began)
        groups = frequency_groups(model.stored.label_counts[found.ids]).tolist()  # (n, k); of empty places anything
        ids, scores = found.ids.tolist(), found.scores.tolist()
        answers, start = [], 0
        for question in questions:
            rows = range(start, start + len(question.texts))
            start = rows.stop
            predictions = [{"labels": _shown(question, ids[row], scores[row], groups[row], found.label_texts)} for row in rows]
            answers.append(orjson.dumps({"model": self.name, "predictions": predictions}))
        return answers

    # ---- labels

    def label(self, label: int) -> dict[str, Any]:
        stored = self.model.stored
        texts, count = stored.label_texts, int(stored.label_counts[label])
        group = GROUPS[int(frequency_groups(stored.label_counts[label : label + 1])[0])]
        return {"id": label, "text": str(label) if texts is None else texts[label], "group": group, "training_rows": count}

    def check_label(self, label: int) -> None:
        if not 0 <= label < self.n_labels:
            raise Refused(404, f"No label {label}; the model {self.name} has 0 to {self.n_labels - 1}.")
        if label in self._removed():
            raise Refused(404, f"Label {label} was removed from the model {self.name}.")

    def _removed(self) -> set[int]:
        return set(self.model.stored.removed.tolist())

    def find_labels(self, letters: str, after: int, most: int) -> dict[str, Any]:
        """Labels with these letters in their text behind label `after`, and what to ask for the next ones."""
        texts, removed = self.model.stored.label_texts, self._removed()
        enough = most + 1 + len(removed)
        if not letters:
            found = list(range(after + 1, min(after + 1 + enough, self.n_labels)))
        elif texts is None:
            raise Refused(422, f"The labels of the model {self.name} have no texts to search in.")
        else:
            search = self._search
            if search is None or search.texts is not texts:
                search = self._search = TextSearch(texts)
            found = search.find(letters, after, enough)
        found = [label for label in found if label not in removed]
        shown = found[:most]
        return {"labels": [self.label(label) for label in shown], "next": shown[-1] if len(found) > most else None}

    def around(self, label: int, most: int) -> dict[str, Any]:
        """The label graph around one label."""
        self.check_label(label)
        graph = self.model.stored.graph
        if graph is None:
            raise Refused(404, f"The model {self.name} was trained without a label graph.")
        found = neighbourhood(graph, label, most, self._removed())
        nodes = [{**self.label(one), "distance": distance} for one, distance in zip(found.labels, found.distances, strict=True)]
        edges = [{"source": source, "target": target, "weight": round(weight, 6)} for source, target, weight in found.edges]
        return {"kind": graph.kind, "nodes": nodes, "edges": edges}

    def explain(self, text: str, label: int) -> Any:
        self.check_label(label)
        if not hasattr(self.model, "explain"):
            raise Refused(501, "This version of longtail cannot explain predictions.")
        return asdict(self.model.explain(text, label))

    async def add_labels(self, loading: ThreadPoolExecutor, texts: list[str]) -> list[int]:
        """Ids of the new labels; they are in the folder before this returns."""
        if not hasattr(self.model, "add_labels"):
            raise Refused(501, "This version of longtail cannot add labels to a trained model.")
        return [int(label) for label in await self._changed(loading, lambda: self.model.add_labels(texts))]

    async def remove_label(self, loading: ThreadPoolExecutor, label: int) -> None:
        self.check_label(label)
        if not hasattr(self.model, "remove_labels"):
            raise Refused(501, "This version of longtail cannot remove labels from a trained model.")
        await self._changed(loading, lambda: self.model.remove_labels([label]))

    async def _changed(self, loading: ThreadPoolExecutor, change: Callable[[], T]) -> T:
        assert self._changing is not None
        async with self._changing:  # a version that is being loaded would not know of it
            made = await asyncio.get_running_loop().run_in_executor(loading, change)
            self._stamp = _stamp(self.folder)  # the folder is not newer than the model
            return made

    # ---- versions

    async def reload(self, loading: ThreadPoolExecutor, *, only_newer: bool = False) -> bool:
        """Load the folder anew and let it take over; whoever waits is answered by the new one.

        Where that fails the old version goes on, and what is raised tells why.
        """
        assert self._changing is not None
        async with self._changing:
            stamp = _stamp(self.folder)
            if only_newer and (stamp is None or stamp == self._stamp):
                return False
            try:
                model = await asyncio.get_running_loop().run_in_executor(loading, self._ready, self.folder)
            except Exception as error:
                self._metrics.reload(self.name, "failed")
                if stamp != self._failed_stamp:
                    LOG.warning("%s: the folder could not be loaded (%s); the version before goes on", self.name, type(error).__name__)
                self._failed_stamp = stamp
                raise
            self.model, self._stamp = model, stamp
            self.version, self.loaded_at = self.version + 1, _now()
            del model
            await asyncio.get_running_loop().run_in_executor(loading, give_back_memory)
            self._metrics.reload(self.name, "done")
            LOG.info("%s: version %d took over", self.name, self.version)
            return True

    def _ready(self, folder: Path) -> Any:
        model = self._load(folder)
        for texts in WARMING_TEXTS:
            model.predict(texts, 1)
        return model

    # ---- what is told about it

    def summary(self) -> dict[str, Any]:
        about = self.model.stored.about
        return {
            "name": self.name,
            "version": self.version,
            "loaded_at": self.loaded_at,
            "labels": self.n_labels,
            "recipe": str(about.get("recipe", "")),
            "augmentation": str(about.get("augmentation", "")),
            "has_graph": self.model.stored.graph is not None,
            "explains": hasattr(self.model, "explain"),
            "adds_labels": hasattr(self.model, "add_labels"),
        }

    def card(self) -> dict[str, Any]:
        about = dict(self.model.stored.about)
        metrics = about.pop("metrics", {})
        return {**self.summary(), "about": about, "metrics": metrics, "history": self.model.stored.history}


class Models:
    """All models of a server; the first answers where a request names none."""

    def __init__(self, folders: Mapping[str, Path], limits: Limits | None = None, *, load: Loader | None = None) -> None:
        if not folders:
            raise SettingError("No model came; wanted one folder or more.")
        self.limits, self.metrics = limits or Limits(), Metrics()
        self._named = {name: Served(name, folder, load or _load, self.limits, self.metrics) for name, folder in folders.items()}
        self._first = next(iter(self._named.values()))
        self._side: ThreadPoolExecutor | None = None
        self._loading: ThreadPoolExecutor | None = None
        self._watch: asyncio.Task[None] | None = None
        self._asked_aside = 0

    def __getitem__(self, name: str | None) -> Served:
        if name is None:
            return self._first
        served = self._named.get(name)
        if served is None:
            raise Refused(404, str(UnknownName("model", name, self._named)))
        return served

    def all(self) -> list[Served]:
        return list(self._named.values())

    def start(self) -> None:
        self._side = ThreadPoolExecutor(1, thread_name_prefix="longtail-side")
        self._loading = ThreadPoolExecutor(1, thread_name_prefix="longtail-loading")
        for served in self.all():
            served.start()
        if self.limits.reload_seconds:
            self._watch = asyncio.get_running_loop().create_task(self._watch_folders())

    async def stop(self) -> None:
        """Answer what waits, then end all threads."""
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.gather(*(served.batcher.drain() for served in self.all() if served.batcher is not None))
        for pool in (self._side, self._loading):
            if pool is not None:
                pool.shutdown()

    @property
    def ready(self) -> bool:
        return all(served.batcher is not None and served.batcher.alive for served in self.all())

    async def aside(self, work: Callable[..., T], *arguments: Any) -> T:
        """Questions about labels, graph and reasons, one at a time beside the predictions; a bounded number of them waits."""
        assert self._side is not None
        if self._asked_aside >= self.limits.waiting_questions:
            raise Refused(429, f"{self._asked_aside} such questions are waiting already; try again in a second.", {"Retry-After": "1"})
        self._asked_aside += 1
        running = asyncio.get_running_loop().run_in_executor(self._side, partial(work, *arguments))
        running.add_done_callback(self._answered_aside)  # not when the asker gives up, as the work goes on
        return await asyncio.shield(running)

    def _answered_aside(self, running: asyncio.Future[Any]) -> None:
        self._asked_aside -= 1
        if not running.cancelled():
            running.exception()  # it was told to whoever still waited

    async def add_labels(self, served: Served, texts: list[str]) -> list[int]:
        assert self._loading is not None
        return await served.add_labels(self._loading, texts)

    async def remove_label(self, served: Served, label: int) -> None:
        assert self._loading is not None
        await served.remove_label(self._loading, label)

    async def reload(self, name: str) -> Served:
        assert self._loading is not None
        served = self[name]
        try:
            await served.reload(self._loading)
        except (LongtailError, OSError) as error:
            raise Refused(409, f"The version before goes on: {error}") from error
        return served

    async def _watch_folders(self) -> None:
        assert self._loading is not None
        while True:
            await asyncio.sleep(self.limits.reload_seconds)
            for served in self.all():
                try:
                    await served.reload(self._loading, only_newer=True)
                except Exception:  # told by reload itself; the folder may be whole at the next look
                    continue

    def metrics_text(self) -> bytes:
        for served in self.all():
            self.metrics.state(served.name, served.batcher.waiting if served.batcher else 0, served.n_labels)
        return self.metrics.text()


def _shown(question: Question, ids: list[int], scores: list[float], groups: list[int], texts: Any) -> list[dict[str, Any]]:
    """The labels of one text that pass the filters, best first."""
    shown: list[dict[str, Any]] = []
    for label, score, group in zip(ids, scores, groups, strict=True):
        if len(shown) == question.k or label < 0 or score < question.minimum_score:
            break
        if label in question.leave_out:
            continue
        text = str(label) if texts is None else texts[label]
        if question.prefix is not None and not text.startswith(question.prefix):
            continue
        shown.append({"id": label, "text": text, "score": round(score, 6), "group": GROUPS[group]})
    return shown


def named_folders(model: Path, others: Sequence[str] = ()) -> dict[str, Path]:
    """The first model by the name of its folder, others as they were typed: NAME=FOLDER.

    >>> named_folders(Path("runs/plain"), ["gandalf=runs/with"])
    {'plain': PosixPath('runs/plain'), 'gandalf': PosixPath('runs/with')}
    """
    typed_name, equals, folder = str(model).partition("=")
    folders = {typed_name: Path(folder)} if equals and not model.exists() else {model.resolve().name: model}
    for typed in others:
        name, equals, folder = typed.partition("=")
        if not equals or not name or not folder:
            raise SettingError(f"{typed!r} came as another model; wanted NAME=FOLDER.")
        if name in folders:
            raise SettingError(f"Two models are called {name!r}; wanted a name each.")
        folders[name] = Path(folder)
    return folders


def _load(folder: Path) -> Any:
    from longtail.estimator import load

    return load(folder)


def _stamp(folder: Path) -> tuple[int, ...] | None:
    """What changes when a folder is replaced, or when another process adds labels to it; None while there is none."""
    try:
        model = (folder / "model.json").stat()
    except OSError:
        return None
    log = folder / "labels"
    return model.st_ino, model.st_mtime_ns, model.st_size, log.stat().st_mtime_ns if log.is_dir() else 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
