"""Requests that come at the same time are answered by one call of the model; a bounded number of them waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from longtail.serve.limits import Refused


@dataclass(eq=False, slots=True)
class PredictRequest:
    """The texts of one request, and which of their labels are wanted."""

    texts: list[str]
    k: int
    minimum_score: float = 0.0
    leave_out: frozenset[int] = frozenset()
    prefix: str | None = None
    n_candidates: int = 0  # labels of a text that are predicted, of which filters leave k or fewer; 0 for k
    reply: asyncio.Future[bytes] = field(init=False)


class Batcher:
    """One thread that predicts, and the requests that wait for it.

    While a batch is being predicted others wait, and all that waited are the next batch. Only where the last batch held
    several requests is the first of the next kept waiting a moment, for those that are on their way; so a lone caller
    never waits.
    """

    def __init__(
        self,
        answer: Callable[[list[PredictRequest]], Sequence[bytes | Exception]],
        name: str,
        max_waiting: int,
        batch_texts: int,
        wait_ms: float,
    ) -> None:
        self._answer, self._name = answer, name
        self._max_waiting, self._batch_texts, self._wait_s = max_waiting, batch_texts, wait_ms / 1000
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"longtail-{name}")
        self._queue: deque[PredictRequest] = deque()
        self._came, self._enough_came = asyncio.Event(), asyncio.Event()
        self._enough = 1  # texts for which it does not wait any longer
        self._closing = False
        self._work: asyncio.Task[None] | None = None
        self.waiting = 0  # texts

    def start(self) -> None:
        self._work = asyncio.get_running_loop().create_task(self._run())

    async def ask(self, request: PredictRequest) -> bytes:
        """Its answer, or why there is none."""
        if self._closing:
            raise Refused(503, "The server is shutting down.", {"Retry-After": "5"})
        if self.waiting + len(request.texts) > self._max_waiting:
            raise Refused(429, f"{self.waiting:,} texts are waiting already; try again in a second.", {"Retry-After": "1"})
        request.reply = asyncio.get_running_loop().create_future()
        self._queue.append(request)
        self.waiting += len(request.texts)
        self._came.set()
        if self.waiting >= self._enough:
            self._enough_came.set()
        return await request.reply

    @property
    def alive(self) -> bool:
        return self._work is not None and not self._work.done() and not self._closing

    async def drain(self) -> None:
        """Answer everything that waits, take nothing more."""
        self._closing = True
        self._came.set()
        self._enough_came.set()
        if self._work is not None:
            await self._work
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue or not self._closing:
            await self._came.wait()
            if self.waiting < self._enough and not self._closing:
                self._enough_came.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._wait_s):
                        await self._enough_came.wait()
            if batch := self._take():
                answers = await loop.run_in_executor(self._thread, self._safely, batch)
                for request, answer in zip(batch, answers, strict=True):
                    _reply(request, answer)
            if not self._queue and not self._closing:
                self._came.clear()

    def _take(self) -> list[PredictRequest]:
        """Requests in the order they came, up to the size of a batch; those given up meanwhile are left out."""
        batch: list[PredictRequest] = []
        n_texts = 0
        while self._queue and (not batch or n_texts + len(self._queue[0].texts) <= self._batch_texts):
            request = self._queue.popleft()
            self.waiting -= len(request.texts)
            if not request.reply.done():
                batch.append(request)
                n_texts += len(request.texts)
        if batch:
            self._enough = max(1, min(n_texts, self._batch_texts))
        return batch

    def _safely(self, batch: list[PredictRequest]) -> Sequence[bytes | Exception]:
        try:
            return self._answer(batch)
        except Exception as error:
            return [error] * len(batch)


def _reply(request: PredictRequest, answer: bytes | Exception) -> None:
    if request.reply.done():
        return
    if isinstance(answer, Exception):
        request.reply.set_exception(answer)
    else:
        request.reply.set_result(answer)
