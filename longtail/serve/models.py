"""All models of a server by their names, and the threads for all that is not prediction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from longtail.core.errors import LongtailError, SettingError, UnknownName
from longtail.serve.limits import Limits, Refused
from longtail.serve.metrics import Metrics
from longtail.serve.served_model import Loader, ServedModel

if TYPE_CHECKING:
    from longtail.estimator import XMC

T = TypeVar("T")


class Models:
    """The models of a server; the first answers where a request names none."""

    def __init__(self, folders: Mapping[str, Path], limits: Limits | None = None, *, load: Loader | None = None) -> None:
        if not folders:
            raise SettingError("No model came; wanted one folder or more.")
        self.limits, self.metrics = limits or Limits(), Metrics()
        self._named = {name: ServedModel(name, folder, load or _load, self.limits, self.metrics) for name, folder in folders.items()}
        self._first = next(iter(self._named.values()))
        self._background: ThreadPoolExecutor | None = None
        self._loading: ThreadPoolExecutor | None = None
        self._watch: asyncio.Task[None] | None = None
        self._n_in_background = 0  # requests

    def __getitem__(self, name: str | None) -> ServedModel:
        if name is None:
            return self._first
        served = self._named.get(name)
        if served is None:
            raise Refused(404, str(UnknownName("model", name, self._named)))
        return served

    def all(self) -> list[ServedModel]:
        return list(self._named.values())

    def start(self) -> None:
        self._background = ThreadPoolExecutor(1, thread_name_prefix="longtail-background")
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
        for pool in (self._background, self._loading):
            if pool is not None:
                pool.shutdown()

    @property
    def ready(self) -> bool:
        return all(served.batcher is not None and served.batcher.alive for served in self.all())

    async def in_background(self, work: Callable[..., T], *arguments: Any) -> T:
        """Requests about labels, graph and reasons, one at a time while predictions go on; a bounded number of them waits."""
        assert self._background is not None
        if self._n_in_background >= self.limits.waiting_questions:
            raise Refused(429, f"{self._n_in_background} such questions are waiting already; try again in a second.", {"Retry-After": "1"})
        self._n_in_background += 1
        running = asyncio.get_running_loop().run_in_executor(self._background, partial(work, *arguments))
        running.add_done_callback(self._background_done)  # not when the asker gives up, as the work goes on
        return await asyncio.shield(running)

    def _background_done(self, running: asyncio.Future[Any]) -> None:
        self._n_in_background -= 1
        if not running.cancelled():
            running.exception()  # whoever still waited has it already

    async def add_labels(self, served: ServedModel, texts: list[str]) -> list[int]:
        assert self._loading is not None
        return await served.add_labels(self._loading, texts)

    async def remove_label(self, served: ServedModel, label: int) -> None:
        assert self._loading is not None
        await served.remove_label(self._loading, label)

    async def reload(self, name: str) -> ServedModel:
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
                except Exception:  # reload itself logs it; the folder may be whole at the next look
                    continue

    def metrics_text(self) -> bytes:
        for served in self.all():
            self.metrics.state(served.name, served.batcher.waiting if served.batcher else 0, served.n_labels)
        return self.metrics.text()


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


def _load(folder: Path) -> XMC:
    from longtail.estimator import load

    return load(folder)
