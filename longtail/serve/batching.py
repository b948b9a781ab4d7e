"""Requests that come at the same time are answered by one call of the model; a bounded number of them waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from longtail.serve.limits import Refused


@dataclass(eq=False, slots=True)
class Question:
    """The texts of one request, and what is wanted of them."""

    texts: list[str]
    k: int
    minimum_score: float = 0.0
    leave_out: frozenset[int] = frozenset()
    prefix: str | None = None
    looked_at: int = 0  # labels a text, of which filters leave k or fewer
    reply: asyncio.Future[bytes] = field(init=False)


class Batcher:
    """One thread that answers, and the questions that wait for it.

    While a batch is being answered others wait, and all that waited are the next batch. Only where the last batch held
    several questions is the first of the next kept waiting a moment, for those that are on their way; so a lone caller
    never waits.
    """

    def __init__(
        self,
        answer: Callable[[list[Question]], Sequence[bytes | Exception]],
        name: str,
        most_waiting: int,
        batch_texts: int,
        wait_ms: float,
    ) -> None:
        self._answer, self._name = answer, name
        self._most_waiting, self._batch_texts, self._wait_s = most_waiting, batch_texts, wait_ms / 1000
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"longtail-{name}")
        self._queue: deque[Question] = deque()
        self._came, self._company = asyncio.Event(), asyncio.Event()
        self._enough = 1  # texts for which it does not wait any longer
        self._closing = False
        self._work: asyncio.Task[None] | None = None
        self.waiting = 0  # texts

    def start(self) -> None:
        self._work = asyncio.get_running_loop().create_task(self._run())

    async def ask(self, question: Question) -> bytes:
        """Its answer, or why there is none."""
        if self._closing:
            raise Refused(503, "The server is shutting down.", {"Retry-After": "5"})
        if self.waiting + len(question.texts) > self._most_waiting:
            raise Refused(429, f"{self.waiting:,} texts are waiting already; try again in a second.", {"Retry-After": "1"})
        question.reply = asyncio.get_running_loop().create_future()
        self._queue.append(question)
        self.waiting += len(question.texts)
        self._came.set()
        if self.waiting >= self._enough:
            self._company.set()
        return await question.reply

    @property
    def alive(self) -> bool:
        return self._work is not None and not self._work.done() and not self._closing

    async def drain(self) -> None:
        """Answer everything that waits, take nothing more."""
        self._closing = True
        self._came.set()
        self._company.set()
        if self._work is not None:
            await self._work
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue or not self._closing:
            await self._came.wait()
            if self.waiting < self._enough and not self._closing:
                self._company.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._wait_s):
                        await self._company.wait()
            if batch := self._take():
                answers = await loop.run_in_executor(self._thread, self._safely, batch)
                for question, answer in zip(batch, answers, strict=True):
                    _reply(question, answer)
            if not self._queue and not self._closing:
                self._came.clear()

    def _take(self) -> list[Question]:
        """Questions in the order they came, up to the size of a batch; those given up meanwhile are left out."""
        batch: list[Question] = []
        n_texts = 0
        while self._queue and (not batch or n_texts + len(self._queue[0].texts) <= self._batch_texts):
            question = self._queue.popleft()
            self.waiting -= len(question.texts)
            if not question.reply.done():
                batch.append(question)
                n_texts += len(question.texts)
        if batch:
            self._enough = max(1, min(n_texts, self._batch_texts))
        return batch

    def _safely(self, batch: list[Question]) -> Sequence[bytes | Exception]:
        try:
            return self._answer(batch)
        except Exception as error:
            return [error] * len(batch)


def _reply(question: Question, answer: Any) -> None:
    if question.reply.done():
        return
    if isinstance(answer, Exception):
        question.reply.set_exception(answer)
    else:
        question.reply.set_result(answer)
