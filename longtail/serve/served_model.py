"""One model of a server: what it predicts, how labels come and go, and how a newer version takes over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from longtail.core.memory import give_back_memory
from longtail.core.values import Texts
from longtail.data.frequency import GROUPS, frequency_groups
from longtail.serve.batching import Batcher, PredictRequest
from longtail.serve.labels import LabelBrowser
from longtail.serve.limits import Limits
from longtail.serve.metrics import Metrics

if TYPE_CHECKING:
    from longtail.estimator import XMC
    from longtail.inference.trained_model import TrainedModel

T = TypeVar("T")
Loader = Callable[[Path], "XMC"]  # of a model folder
# predicted before a version takes over, so that its first request pays for no compiling: one text alone, and many, which other loops encode
WARMING_TEXTS = (["warm"], ["warm"] * 64)
LOG = logging.getLogger("longtail.serve")


class ServedModel:
    """A model under its name. Predictions are made in one thread; labels come and go, and newer versions are loaded, in another.

    Both at once is safe: a model replaces what it has stored as a whole, and the id of a label never becomes another's.
    """

    def __init__(self, name: str, folder: Path, load: Loader, limits: Limits, metrics: Metrics) -> None:
        self.name, self.folder, self._load, self._metrics = name, folder, load, metrics
        self._stamp = _stamp(folder)
        self._failed_stamp: tuple[int, ...] | None = None
        self.model = self._load_warm()
        self.version = 1
        self.loaded_at = _now()
        self._changing: asyncio.Lock | None = None
        self._browser = LabelBrowser(name)
        self._limits = limits
        self.batcher: Batcher | None = None

    def start(self) -> None:
        """Begin to answer, in the running loop."""
        limits = self._limits
        self._changing = asyncio.Lock()
        self.batcher = Batcher(self.answer, self.name, limits.waiting_texts, limits.batch_texts, limits.wait_ms)
        self.batcher.start()

    @property
    def trained(self) -> TrainedModel:
        return _trained(self.model)

    @property
    def n_labels(self) -> int:
        return len(self.trained.label_counts)

    # ---- predictions

    async def ask(self, request: PredictRequest) -> bytes:
        assert self.batcher is not None
        return await self.batcher.ask(request)

    def answer(self, requests: list[PredictRequest]) -> Sequence[bytes | Exception]:
        """An answer to each, by one call of the model for all that want the same number of labels.

        Calls with one k are never answered by another: the labels that a scorer passes on and an ensemble adds up depend on k, and no
        answer shall depend on who else asked.
        """
        by_k: dict[int, list[int]] = {}
        for place, request in enumerate(requests):
            by_k.setdefault(request.n_candidates or request.k, []).append(place)
        answers: list[bytes | Exception] = [b""] * len(requests)
        for k, places in by_k.items():
            for place, answer in zip(places, self._predict([requests[place] for place in places], k), strict=True):
                answers[place] = answer
        return answers

    def _predict(self, requests: list[PredictRequest], k: int) -> Sequence[bytes | Exception]:
        model = self.model  # the same for the whole batch, whatever takes over meanwhile
        texts = [text for request in requests for text in request.texts]
        began = time.perf_counter()
        try:
            found = model.predict(texts, k)
        except Exception as error:
            if len(requests) == 1:
                return [error]
            return [answer for request in requests for answer in self._predict([request], k)]  # who it was that made it fail
        self._metrics.batch(self.name, len(texts), time.perf_counter() - began)
        # (n, k); of empty places anything. Read after the prediction: it may hold labels that were added meanwhile
        groups = frequency_groups(_trained(model).label_counts[found.ids]).tolist()
        ids, scores = found.ids.tolist(), found.scores.tolist()
        answers, start = [], 0
        for request in requests:
            rows = range(start, start + len(request.texts))
            start = rows.stop
            predictions = [{"labels": _filtered(request, ids[row], scores[row], groups[row], found.label_texts)} for row in rows]
            answers.append(orjson.dumps({"model": self.name, "predictions": predictions}))
        return answers

    # ---- labels

    def find_labels(self, letters: str, after: int, max_labels: int) -> dict[str, Any]:
        return self._browser.find(self.trained, letters, after, max_labels)

    def neighbourhood(self, label: int, max_labels: int) -> dict[str, Any]:
        return self._browser.neighbourhood(self.trained, label, max_labels)

    def explain(self, text: str, label: int) -> dict[str, Any]:
        self._browser.check(self.trained, label)
        return self.model.explain(text, label).as_dict()

    async def add_labels(self, loading: ThreadPoolExecutor, texts: list[str]) -> list[int]:
        """Ids of the new labels; they are in the folder before this returns."""
        return await self._change(loading, lambda: self.model.add_labels(texts))

    async def remove_label(self, loading: ThreadPoolExecutor, label: int) -> None:
        self._browser.check(self.trained, label)
        await self._change(loading, lambda: self.model.remove_labels([label]))

    async def _change(self, loading: ThreadPoolExecutor, change: Callable[[], T]) -> T:
        assert self._changing is not None
        async with self._changing:  # a version that is being loaded would not know of it
            made = await asyncio.get_running_loop().run_in_executor(loading, change)
            self._stamp = _stamp(self.folder)  # the folder is not newer than the model
            return made

    # ---- versions

    async def reload(self, loading: ThreadPoolExecutor, *, only_newer: bool = False) -> bool:
        """Load the folder anew and let it take over; whoever waits is answered by the new one.

        Where that fails the old version goes on, and the exception says why.
        """
        assert self._changing is not None
        async with self._changing:
            stamp = _stamp(self.folder)
            if only_newer and (stamp is None or stamp == self._stamp):
                return False
            try:
                model = await asyncio.get_running_loop().run_in_executor(loading, self._load_warm)
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

    def _load_warm(self) -> XMC:
        model = self._load(self.folder)
        for texts in WARMING_TEXTS:
            model.predict(texts, 1)
        return model

    # ---- descriptions

    def summary(self) -> dict[str, Any]:
        """The model in a few words, as /models lists it."""
        about = self.trained.about
        return {
            "name": self.name,
            "version": self.version,
            "loaded_at": self.loaded_at,
            "labels": self.n_labels,
            "recipe": str(about.get("recipe", "")),
            "augmentation": str(about.get("augmentation", "")),
            "has_graph": self.trained.graph is not None,
        }

    def card(self) -> dict[str, Any]:
        """The summary, how the model was trained, its metrics on test rows, and every epoch of its training."""
        about = dict(self.trained.about)
        metrics = about.pop("metrics", {})
        return {**self.summary(), "about": about, "metrics": metrics, "history": self.trained.history}


def _trained(model: XMC) -> TrainedModel:
    assert model.trained is not None  # a model that was loaded is trained
    return model.trained


def _filtered(request: PredictRequest, ids: list[int], scores: list[float], groups: list[int], texts: Texts | None) -> list[dict[str, Any]]:
    """The labels of one text that pass the filters, best first."""
    shown: list[dict[str, Any]] = []
    for label, score, group in zip(ids, scores, groups, strict=True):
        if len(shown) == request.k or label < 0 or score < request.minimum_score:
            break
        if label in request.leave_out:
            continue
        text = str(label) if texts is None else texts[label]
        if request.prefix is not None and not text.startswith(request.prefix):
            continue
        shown.append({"id": label, "text": text, "score": round(score, 6), "group": GROUPS[group]})
    return shown


def _stamp(folder: Path) -> tuple[int, ...] | None:
    """A value that changes when a folder is replaced, or when another process adds labels to it; None while there is none."""
    try:
        model = (folder / "model.json").stat()
    except OSError:
        return None
    log = folder / "labels"
    return model.st_ino, model.st_mtime_ns, model.st_size, log.stat().st_mtime_ns if log.is_dir() else 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
