"""The server: the real application in this process, and once as a process of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import longtail
from longtail.core.errors import DataError, MissingExtra, SettingError
from longtail.core.values import LabelGraph, Predictions, Texts
from longtail.data.graph.search import neighbourhood
from longtail.inference.explain import Explanation, Part, Row, Step, Token
from longtail.serve.app import create_app
from longtail.serve.batching import Batcher, PredictRequest
from longtail.serve.labels import TextSearch
from longtail.serve.limits import Keys, Limits, Refused, check_texts
from longtail.serve.models import Models, named_folders
from longtail.serve.run import serve
from tests.spelled import trained

ROOT = Path(__file__).parent.parent
LABELS = ["apple", "apple juice", "Pear", "pear juice", "press"]
KEY = "a key of more than sixteen letters"
SECRET = "zanzibar quokka"  # a text that must not be in any log


class Fake:
    """Answers with the labels in their order, scores 0.9, 0.8, ...; holds still while `gate` is shut, and tells what it was asked."""

    def __init__(self) -> None:
        weights = csr_matrix(np.array([[1, 0.5, 0, 0.1, 0], [0.5, 1, 0.3, 0, 0], [0, 0.3, 1, 0, 0], [0.1, 0, 0, 1, 0], [0, 0, 0, 0, 1]]))
        counts = np.array([200, 50, 3, 1, 0])
        graph = LabelGraph(weights.astype(np.float32), counts, "cooccurrence")
        about = {"recipe": "default", "augmentation": "gandalf", "metrics": {"P@1": 50.0}}
        self.trained = SimpleNamespace(
            label_texts=Texts.of(LABELS),
            label_counts=counts,
            graph=graph,
            about=about,
            history=[{"loss": 2.0}],
            removed=np.zeros(0, np.int64),
        )
        self.gate = threading.Event()
        self.gate.set()
        self.calls: list[tuple[list[str], int]] = []

    def predict(self, texts: list[str], k: int) -> Predictions:
        self.gate.wait(10)
        self.calls.append((list(texts), k))
        if "break" in texts:
            raise RuntimeError(f"no answer to {texts}")
        k = min(k, len(self.trained.label_counts))
        ids = np.tile(np.arange(k, dtype=np.int32), (len(texts), 1))
        return Predictions(ids, (0.9 - 0.1 * ids).astype(np.float32), self.trained.label_texts)

    def add_labels(self, texts: list[str]) -> list[int]:
        before, old = len(self.trained.label_counts), self.trained
        texts_now = Texts.of([*old.label_texts, *texts])
        counts = np.concatenate([old.label_counts, np.zeros(len(texts), int)])
        self.trained = SimpleNamespace(**{**vars(old), "label_texts": texts_now, "label_counts": counts})
        return list(range(before, before + len(texts)))

    def remove_labels(self, ids: list[int]) -> None:
        self.trained = SimpleNamespace(**{**vars(self.trained), "removed": np.union1d(self.trained.removed, ids).astype(np.int64)})

    def explain(self, text: str, label: int) -> Explanation:
        name = self.trained.label_texts[label]
        parts = (Part("text", 0.6, 1.5), Part("free", 0.4, -0.5))
        tokens = (Token("red", 0.9, False), Token("apple", 0.4, True))
        return Explanation(
            text,
            label,
            name,
            0.9,
            1,
            0.8,
            -0.2,
            parts,
            tokens,
            -0.5,
            (Row("a red apple", 0.83),),
            (Step(2, "Pear", 1.0), Step(0, "apple", 0.3)),
        )


def fakes(names: str = "one", **limits: Any) -> tuple[Models, dict[str, Fake]]:
    made: dict[str, Fake] = {name: Fake() for name in names.split()}
    models = Models({name: Path(name) for name in made}, Limits(**limits), load=lambda folder: made[folder.name])
    for fake in made.values():
        fake.calls.clear()
    return models, made


@asynccontextmanager
async def serving(models: Models, keys: Keys | None = None, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(models, keys)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://longtail", headers=headers) as client,
    ):
        yield client


def asked(models: Models, what: Callable[[httpx.AsyncClient], Awaitable[Any]], keys: Keys | None = None, **headers: str) -> Any:
    """What a coroutine that asks the server returns."""

    async def run() -> Any:
        async with serving(models, keys, **headers) as client:
            return await what(client)

    return asyncio.run(run())


def problem(answer: httpx.Response, status: int) -> str:
    """The one sentence of an answer of 4xx or 5xx."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    sentence = str(answer.json()["error"])
    assert "\n" not in sentence and sentence.endswith(".")
    return sentence


# ---- predictions


def test_one_text_and_many() -> None:
    models, made = fakes()

    async def ask(client: httpx.AsyncClient) -> None:
        one = (await client.post("/predict", json={"text": "red apple", "k": 2})).json()
        assert one == {
            "model": "one",
            "predictions": [
                {
                    "labels": [
                        {"id": 0, "text": "apple", "score": 0.9, "group": "head"},
                        {"id": 1, "text": "apple juice", "score": 0.8, "group": "torso"},
                    ]
                }
            ],
        }
        many = (await client.post("/predict", json={"texts": ["a", "b", "c"]})).json()["predictions"]
        assert [len(row["labels"]) for row in many] == [5, 5, 5]
        assert [label["group"] for label in many[0]["labels"]] == ["head", "torso", "tail", "tail", "unseen"]

    asked(models, ask)
    assert made["one"].calls == [(["red apple"], 2), (["a", "b", "c"], 5)]


def test_filters_leave_as_many_as_wanted() -> None:
    models, made = fakes()

    async def ids(client: httpx.AsyncClient, **question: Any) -> list[int]:
        answer = await client.post("/predict", json={"text": "x", **question})
        return [label["id"] for label in answer.json()["predictions"][0]["labels"]]

    async def ask(client: httpx.AsyncClient) -> None:
        assert await ids(client, k=2, leave_out=[0, 2]) == [1, 3]
        assert await ids(client, k=5, minimum_score=0.65) == [0, 1, 2]
        assert await ids(client, k=1, prefix="p") == [3]
        assert await ids(client, k=5, prefix="Pe", leave_out=[2]) == []

    asked(models, ask)
    assert [k for _, k in made["one"].calls] == [4, 5, 5, 5]  # more are predicted than are shown


def test_the_model_of_a_folder_answers_as_it_does_in_python(tmp_path: Path) -> None:
    model = trained("default")
    model.save(tmp_path / "model")
    text = model.trained.label_texts[3]  # type: ignore[union-attr,index]
    found = model.predict([text], 4)

    async def ask(client: httpx.AsyncClient) -> Any:
        return (await client.post("/predict", json={"text": text, "k": 4})).json()["predictions"][0]["labels"]

    labels = asked(Models({"real": tmp_path / "model"}), ask)
    assert [label["id"] for label in labels] == found.ids[0].tolist() and labels[0]["text"] == text
    np.testing.assert_allclose([label["score"] for label in labels], found.scores[0], atol=1e-5)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"text": ""}, 422, "The text is empty"),
        ({"text": " \n "}, 422, "The text is empty"),
        ({"texts": ["a", ""]}, 422, "Text 1 is empty"),
        ({"texts": []}, 422, "0 texts came; wanted 1 to 1,000"),
        ({"texts": ["a"] * 1001}, 422, "1,001 texts came"),
        ({"text": "a" * 8193}, 422, "8,193 characters; wanted at most 8,192"),
        ({"text": "a\0b"}, 422, "control characters"),
        ({"text": "a\x1bb"}, 422, "control characters"),
        ({"text": "a", "texts": ["a"]}, 422, "Both text and texts"),
        ({}, 422, "Neither text nor texts"),
        ({"text": "a", "k": 0}, 422, "k came as 0; wanted greater than or equal to 1"),
        ({"text": "a", "k": 10**9}, 422, "k came as 1000000000; wanted 1 to 1,000"),
        ({"text": "a", "k": "5"}, 422, "k came as something else; wanted a valid integer"),
        ({"text": "a", "k": 1.5}, 422, "k came as 1.5; wanted a valid integer"),
        ({"text": "a", "k": None}, 422, "k came as"),
        ({"text": "a", "k": True}, 422, "k came as"),
        ({"text": 7}, 422, "text came as 7; wanted a valid string"),
        ({"texts": "abc"}, 422, "texts came as something else; wanted a valid array"),
        ({"texts": ["a", 7]}, 422, "texts.1 came as 7; wanted a valid string"),
        ({"text": "a", "leave_out": [5]}, 404, "leave_out has label 5; the model has 0 to 4"),
        ({"text": "a", "leave_out": [-1]}, 404, "leave_out has label -1"),
        ({"text": "a", "leave_out": [10**30]}, 404, "leave_out"),
        ({"text": "a", "minimum_score": 2}, 422, "minimum_score came as 2"),
        ({"text": "a", "model": "two"}, 404, "No model called 'two'. Known: one."),
        ({"text": "a", "kk": 3}, 422, "'kk', which is not known; wanted text, texts, k"),
        (["a"], 422, "The body came as something else; wanted an object"),
        (b"{", 400, "The body is not JSON"),
        (b"", 400, "The body is not JSON"),
        (b'{"text": "\xff"}', 400, "The body is not JSON"),
        (b'{"text": "\\ud800"}', 400, "The body is not JSON"),
        (b'{"text": "a", "minimum_score": NaN}', 422, "minimum_score"),
        (b'{"text": "a", "k": 1' + b"0" * 5000 + b"}", 400, "The body is not JSON"),
        (b"[" * 100_000, 400, "The body is not JSON"),
        (json.dumps({"text": "a" * (1 << 20)}).encode(), 413, "longer than 1,048,576 bytes"),
    ],
)
def test_what_cannot_be_answered_is_told_in_one_sentence(body: Any, status: int, words: str) -> None:
    models, made = fakes()

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await client.post("/predict", content=content, headers={"Content-Type": "application/json"})

    assert words in problem(asked(models, ask), status)
    assert made["one"].calls == []


def test_too_many_labels_in_all() -> None:
    models, _ = fakes(answers=12)

    async def ask(client: httpx.AsyncClient) -> str:
        assert (await client.post("/predict", json={"texts": ["a", "b", "c"], "k": 4})).status_code == 200
        return problem(await client.post("/predict", json={"texts": ["a", "b", "c"], "k": 5}), 422)

    assert asked(models, ask) == "3 texts with 5 labels each came; wanted at most 12 labels in all, so fewer texts."


def test_a_body_without_a_length_is_cut_off_too() -> None:
    models, _ = fakes(body_bytes=1000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 300

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/predict", content=endless(), headers={"Content-Type": "application/json"})

    assert "longer than 1,000 bytes" in problem(asked(models, ask), 413)
    assert sent == 4


def test_other_addresses_methods_and_types() -> None:
    models, _ = fakes()

    async def ask(client: httpx.AsyncClient) -> None:
        assert "nothing here" in problem(await client.get("/nothing"), 404)
        wrong = await client.put("/labels")
        assert "PUT is not possible here; wanted GET, POST." in problem(wrong, 405)
        assert wrong.headers["allow"] == "GET, POST"
        assert "application/json" in problem(await client.post("/predict", content=b"text=a"), 415)
        plain = await client.post("/predict", content=b'{"text": "a"}', headers={"Content-Type": "text/plain"})
        assert "application/json" in problem(plain, 415)
        elsewhere = await client.post("/models/one/reload", headers={"Sec-Fetch-Site": "cross-site"})
        assert "Another site's page" in problem(elsewhere, 403)

    asked(models, ask)


# ---- batches


def test_requests_that_wait_are_answered_by_one_call() -> None:
    models, made = fakes()
    fake = made["one"]

    async def ask(client: httpx.AsyncClient) -> list[Any]:
        fake.gate.clear()
        first = asyncio.create_task(client.post("/predict", json={"text": "first"}))
        await until(lambda: models["one"].batcher.waiting == 0 and first_is_taken(models))  # type: ignore[union-attr]
        others = [asyncio.create_task(client.post("/predict", json={"text": f"text {place}"})) for place in range(20)]
        await until(lambda: models["one"].batcher.waiting == 20)  # type: ignore[union-attr]
        fake.gate.set()
        return [answer.json() for answer in await asyncio.gather(first, *others)]

    answers = asked(models, ask)
    assert fake.calls == [(["first"], 5), ([f"text {place}" for place in range(20)], 5)]
    assert all(len(answer["predictions"]) == 1 for answer in answers)


def first_is_taken(models: Models) -> bool:
    return len(models["one"].batcher._thread._threads) == 1  # type: ignore[union-attr]


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not come true within five seconds")


class Recorder:
    """Answers a batch with the texts of each request; keeps the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, requests: list[PredictRequest]) -> list[bytes | Exception]:
        self.gate.wait(10)
        self.batches.append([text for request in requests for text in request.texts])
        return [" ".join(request.texts).encode() for request in requests]


def test_a_batch_holds_no_more_texts_than_it_may() -> None:
    answer = Recorder()

    async def run() -> list[bytes]:
        batcher = Batcher(answer, "x", max_waiting=100, batch_texts=4, wait_ms=2)
        batcher.start()
        answer.gate.clear()
        asks = [asyncio.create_task(batcher.ask(PredictRequest(["first"], 1)))]
        await until(lambda: batcher.waiting == 0 and bool(batcher._thread._threads))
        sizes = [3, 2, 2, 9, 1]
        asks += [asyncio.create_task(batcher.ask(PredictRequest([f"{place}"] * size, 1))) for place, size in enumerate(sizes)]
        await until(lambda: batcher.waiting == sum(sizes))
        answer.gate.set()
        found = await asyncio.gather(*asks)
        await batcher.drain()
        return found

    assert asyncio.run(run()) == [b"first", b"0 0 0", b"1 1", b"2 2", b" ".join([b"3"] * 9), b"4"]
    assert [len(batch) for batch in answer.batches] == [1, 3, 4, 9, 1]


def test_only_where_there_was_company_is_it_waited_for() -> None:
    """A lone caller is answered at once even with an endless wait; after a batch of two the next waits for a second."""
    answer = Recorder()

    async def run() -> None:
        batcher = Batcher(answer, "x", max_waiting=100, batch_texts=64, wait_ms=60_000)
        batcher.start()
        for place in range(3):
            await asyncio.wait_for(batcher.ask(PredictRequest([f"alone {place}"], 1)), 5)
        await asyncio.gather(*(batcher.ask(PredictRequest([f"pair {place}"], 1)) for place in range(2)))
        waits = asyncio.create_task(batcher.ask(PredictRequest(["one"], 1)))
        await asyncio.sleep(0.05)
        assert not waits.done()
        await asyncio.wait_for(asyncio.gather(waits, batcher.ask(PredictRequest(["two"], 1))), 5)
        left = asyncio.create_task(batcher.ask(PredictRequest(["left"], 1)))
        await asyncio.sleep(0.02)
        await batcher.drain()  # waits for nobody
        assert await left == b"left"

    asyncio.run(run())
    assert answer.batches == [["alone 0"], ["alone 1"], ["alone 2"], ["pair 0", "pair 1"], ["one", "two"], ["left"]]


def test_a_full_queue_refuses_and_recovers() -> None:
    models, made = fakes(waiting_texts=3, texts=3)

    async def ask(client: httpx.AsyncClient) -> None:
        made["one"].gate.clear()
        batcher = models["one"].batcher
        assert batcher is not None
        running = [asyncio.create_task(client.post("/predict", json={"text": "first"}))]
        await until(lambda: first_is_taken(models) and batcher.waiting == 0)
        running.append(asyncio.create_task(client.post("/predict", json={"texts": ["a", "b"]})))
        await until(lambda: batcher.waiting == 2)
        refused = await client.post("/predict", json={"texts": ["c", "d"]})
        assert problem(refused, 429) == "2 texts are waiting already; try again in a second."
        assert refused.headers["retry-after"] == "1"
        running.append(asyncio.create_task(client.post("/predict", json={"text": "fits"})))
        await until(lambda: batcher.waiting == 3)
        made["one"].gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*running)] == [200, 200, 200]
        assert (await client.post("/predict", json={"texts": ["c", "d"]})).status_code == 200

    asked(models, ask)


def test_what_takes_too_long_is_given_up_and_not_asked_any_more() -> None:
    models, made = fakes(seconds=0.1)

    async def ask(client: httpx.AsyncClient) -> None:
        made["one"].gate.clear()
        first = asyncio.create_task(client.post("/predict", json={"text": "first"}))
        await until(lambda: first_is_taken(models))
        late = await client.post("/predict", json={"text": "late"})
        assert "No answer within 0.1 seconds" in problem(late, 503) and late.headers["retry-after"] == "1"
        problem(await first, 503)
        made["one"].gate.set()
        assert (await client.post("/predict", json={"text": "after"})).status_code == 200

    asked(models, ask)
    assert [texts for texts, _ in made["one"].calls] == [["first"], ["after"]]


def test_one_that_breaks_the_model_does_not_break_the_others(caplog: pytest.LogCaptureFixture) -> None:
    models, made = fakes()
    texts = ["first", "a", "break", "b"]

    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        made["one"].gate.clear()
        first = asyncio.create_task(client.post("/predict", json={"text": "first"}))
        await until(lambda: first_is_taken(models))
        others = [asyncio.create_task(client.post("/predict", json={"text": text})) for text in texts[1:]]
        await until(lambda: models["one"].batcher.waiting == 3)  # type: ignore[union-attr]
        made["one"].gate.set()
        return await asyncio.gather(first, *others)

    answers = asked(models, ask)
    assert [answer.status_code for answer in answers] == [200, 200, 500, 200]
    assert problem(answers[2], 500) == "Something broke inside the server; its log says where."
    (record,) = caplog.records
    assert record.getMessage().startswith("RuntimeError at ") and "test_serve.py" in record.getMessage() and "no answer" not in caplog.text


def test_requests_with_another_k_are_answered_by_a_call_of_their_own() -> None:
    fake = Fake()
    models = Models({"one": Path("one")}, load=lambda _: fake)
    fake.calls.clear()
    answers = models["one"].answer([PredictRequest(["a"], 2), PredictRequest(["b"], 1), PredictRequest(["c"], 2)])
    assert fake.calls == [(["a", "c"], 2), (["b"], 1)]
    assert [len(json.loads(answer)["predictions"][0]["labels"]) for answer in answers] == [2, 1, 2]  # type: ignore[arg-type]


def test_too_many_requests_at_once() -> None:
    models, made = fakes(requests=2)

    async def ask(client: httpx.AsyncClient) -> None:
        made["one"].gate.clear()
        running = [asyncio.create_task(client.post("/predict", json={"text": "a"})) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert "2 requests are being answered already" in problem(await client.get("/healthz"), 503)
        made["one"].gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*running)] == [200, 200]
        assert (await client.get("/healthz")).status_code == 200

    asked(models, ask)


# ---- labels, graph, reasons


def test_labels_are_found_by_letters_a_page_at_a_time() -> None:
    models, made = fakes()

    async def ids(client: httpx.AsyncClient, **question: Any) -> tuple[list[int], int | None]:
        found = (await client.get("/labels", params=question)).json()
        return [label["id"] for label in found["labels"]], found["next"]

    async def ask(client: httpx.AsyncClient) -> None:
        assert await ids(client) == ([0, 1, 2, 3, 4], None)
        assert await ids(client, size=2) == ([0, 1], 1)
        assert await ids(client, size=2, after=3) == ([4], None)
        assert await ids(client, query="PEAR") == ([2, 3], None)
        assert await ids(client, query="p", size=3) == ([0, 1, 2], 2)
        assert await ids(client, query="p", size=2, after=2) == ([3, 4], None)
        assert await ids(client, query="nothing") == ([], None)
        first = (await client.get("/labels", params={"size": 1})).json()["labels"][0]
        assert first == {"id": 0, "text": "apple", "group": "head", "training_rows": 200}
        assert "size came as" in problem(await client.get("/labels", params={"size": 0}), 422)
        assert "after came as" in problem(await client.get("/labels", params={"after": "x"}), 422)
        made["one"].trained.removed = np.array([1])
        assert await ids(client, query="apple") == ([0], None)
        assert await ids(client, size=1) == ([0], 0)
        assert await ids(client, size=1, after=0) == ([2], 2)

    asked(models, ask)


@given(
    st.lists(st.text("abAB é", max_size=6), max_size=12), st.text("abAB é", min_size=1, max_size=3), st.integers(-1, 12), st.integers(1, 5)
)
def test_label_search_is_what_a_loop_finds(texts: list[str], letters: str, after: int, max_labels: int) -> None:
    small = [text.translate({ord("A"): "a", ord("B"): "b"}) for text in texts]
    wanted = letters.translate({ord("A"): "a", ord("B"): "b"})
    assert (
        TextSearch(Texts.of(texts)).find(letters, after, max_labels)
        == [place for place, text in enumerate(small) if place > after and wanted in text][:max_labels]
    )


def test_the_graph_around_a_label() -> None:
    models, _ = fakes()

    async def ask(client: httpx.AsyncClient) -> None:
        found = (await client.get("/graph/0", params={"nodes": 3})).json()
        assert [(node["id"], node["distance"]) for node in found["nodes"]] == [(0, 0), (1, 1), (2, 2)]  # 0.5 x 0.3 beats 0.1
        assert {(edge["source"], edge["target"]) for edge in found["edges"]} == {(0, 1), (1, 0), (1, 2), (2, 1)}
        assert len((await client.get("/graph/0")).json()["nodes"]) == 4
        assert [node["id"] for node in (await client.get("/graph/4")).json()["nodes"]] == [4]
        assert "No label 5" in problem(await client.get("/graph/5"), 404)
        assert "label came as something else" in problem(await client.get("/graph/apple"), 422)
        models["one"].model.trained.graph = None
        assert "trained without a label graph" in problem(await client.get("/graph/0"), 404)

    asked(models, ask)


def test_a_label_that_the_graph_does_not_know_stands_alone() -> None:
    graph = Fake().trained.graph
    assert neighbourhood(graph, 7, 10).labels == [7]
    assert neighbourhood(graph, 0, 10, leave_out={1}).labels == [0, 3]


def test_reasons() -> None:
    models, _ = fakes()

    async def ask(client: httpx.AsyncClient) -> None:
        why = (await client.get("/explain", params={"text": "x", "label": 2})).json()
        assert why["label_text"] == "Pear" and why["parts"][0] == {"name": "text", "share": 0.6, "brings": 1.5}
        assert "text is missing" in problem(await client.get("/explain", params={"label": 2}), 422)
        assert "empty" in problem(await client.get("/explain", params={"text": "", "label": 2}), 422)
        assert "No label 9" in problem(await client.get("/explain", params={"text": "x", "label": 9}), 404)

    asked(models, ask)


def test_labels_come_and_go_and_stay_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    trained("default").save(folder)
    models = Models({"real": folder}, Limits(reload_seconds=0.02))

    async def ask(client: httpx.AsyncClient) -> int:
        for body, words in (({"texts": []}, "0 texts"), ({"texts": ["a", " "]}, "Text 1 is empty"), ({}, "texts is missing")):
            assert words in problem(await client.post("/labels", json=body), 422)
        added = await client.post("/labels", json={"texts": ["nesh ment"]})
        assert added.status_code == 201, added.text
        (label,) = added.json()["ids"]
        assert label == 24
        found = (await client.get("/labels", params={"query": "nesh ment"})).json()["labels"]
        assert found == [{"id": 24, "text": "nesh ment", "group": "unseen", "training_rows": 0}]
        assert "nesh ment" in problem(await client.post("/labels", json={"texts": ["nesh ment"]}), 422)
        await asyncio.sleep(0.1)
        assert models["real"].version == 1  # its own change is no newer version
        assert (await client.delete("/labels/3")).json() == {"model": "real", "removed": 3}
        assert "was removed" in problem(await client.delete("/labels/3"), 404)
        assert "No label 999" in problem(await client.delete("/labels/999"), 404)
        return int(label)

    label = asked(models, ask)
    opened = longtail.load(folder)
    assert opened.trained is not None and opened.trained.label_texts is not None
    assert opened.trained.label_texts[label] == "nesh ment" and opened.trained.removed.tolist() == [3]


# ---- models and versions


def test_several_models_in_one_server() -> None:
    models, made = fakes("one two")

    async def ask(client: httpx.AsyncClient) -> None:
        for name in ("one", "two", "one"):
            assert (await client.post("/predict", json={"text": "x", "model": name})).json()["model"] == name
        assert [model["name"] for model in (await client.get("/models")).json()["models"]] == ["one", "two"]
        card = (await client.get("/models/two")).json()
        assert card["metrics"] == {"P@1": 50.0} and card["history"] == [{"loss": 2.0}] and card["about"]["recipe"] == "default"
        assert "No model called 'three'. Known: one, two." in problem(await client.get("/models/three"), 404)

    asked(models, ask)
    assert len(made["one"].calls) == 2 and len(made["two"].calls) == 1


def test_names_of_models() -> None:
    assert named_folders(Path("a/b"), ["c=d/e"]) == {"b": Path("a/b"), "c": Path("d/e")}
    assert named_folders(Path("x=a/b")) == {"x": Path("a/b")}
    for others in (["b=c"], ["c"], ["=c"], ["c="]):
        with pytest.raises(SettingError):
            named_folders(Path("a/b"), others)
    with pytest.raises(SettingError, match="No model came"):
        Models({})


def test_a_newer_version_takes_over_without_a_lost_request(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = trained("default")
    model.save(folder)
    models = Models({"real": folder}, Limits(reload_seconds=0.02))
    statuses: list[int] = []

    async def ask(client: httpx.AsyncClient) -> None:
        going_on = True

        async def keep_asking() -> None:
            while going_on:
                statuses.append((await client.post("/predict", json={"text": "nex nesh"})).status_code)

        askers = [asyncio.create_task(keep_asking()) for _ in range(8)]
        for version in range(2, 5):
            await asyncio.to_thread(replace_folder, model, folder)
            await until(lambda: models["real"].version == version)  # noqa: B023
        assert (await client.post("/models/real/reload")).json()["version"] == 5
        (folder / "weights.safetensors").unlink()  # the file is mapped; cutting it short in place would take the model's memory away
        assert "The version before goes on: " in problem(await client.post("/models/real/reload"), 409)
        assert (await client.post("/predict", json={"text": "nex nesh"})).status_code == 200
        going_on = False
        await asyncio.gather(*askers)
        counted = (await client.get("/metrics")).text
        assert 'longtail_reloads_total{model="real",result="done"} 4.0' in counted
        assert 'longtail_reloads_total{model="real",result="failed"} 1.0' in counted

    asked(models, ask)
    assert len(statuses) > 20 and set(statuses) == {200}


def replace_folder(model: longtail.XMC, folder: Path) -> None:
    fresh = folder.with_name("fresh")
    model.save(fresh)
    old = folder.with_name("old")
    folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old)


# ---- keys, metrics, logs


def test_keys() -> None:
    models, _ = fakes()
    question = {"json": {"text": "x"}}

    async def ask(client: httpx.AsyncClient) -> None:
        refused = await client.post("/predict", **question)  # type: ignore[arg-type]
        assert "No key came" in problem(refused, 401) and refused.headers["www-authenticate"] == "Bearer"
        for headers in ({"Authorization": "Bearer wrong"}, {"X-API-Key": KEY[:-1]}, {"Authorization": f"Basic {KEY}"}):
            problem(await client.post("/predict", **question, headers=headers), 401)  # type: ignore[arg-type]
        for headers in ({"Authorization": f"Bearer {KEY}"}, {"X-API-Key": KEY}):
            assert (await client.post("/predict", **question, headers=headers)).status_code == 200  # type: ignore[arg-type]
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            assert (await client.get(path)).status_code == 200
        for path in ("/metrics", "/models", "/labels", "/nothing"):
            assert (await client.get(path)).status_code == 401
        schema = (await client.get("/openapi.json")).json()
        assert schema["paths"]["/predict"]["post"]["security"] and schema["paths"]["/healthz"]["get"]["security"] == []

    asked(models, ask, Keys(["another key of sixteen letters", KEY]))


def test_key_files(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# of the shop\n\n  {KEY} \n")
    assert Keys.read(path).know(KEY.encode()) and not Keys.read(path).know(b"# of the shop")
    for content, words in (("# none\n", "holds no key"), ("\nshort\n", ":2: the key is shorter"), (b"\xff", "not in utf-8")):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(DataError, match=words):
            Keys.read(path)


def test_limits_that_cannot_work() -> None:
    with pytest.raises(SettingError, match="seconds came as 0"):
        Limits(seconds=0)
    with pytest.raises(SettingError, match="wanted a queue as long as a request"):
        Limits(waiting_texts=5)
    with pytest.raises(Refused, match="at most 3"):
        check_texts(["abcd"], Limits(text_characters=3))


def test_everything_is_counted() -> None:
    models, _ = fakes()

    async def ask(client: httpx.AsyncClient) -> str:
        for _ in range(3):
            await client.post("/predict", json={"texts": ["a", "b"]})
        await client.post("/predict", json={})
        await client.get("/somewhere/else")
        return (await client.get("/metrics")).text

    text = asked(models, ask)
    for line in (
        'longtail_requests_total{method="POST",path="/predict",status="200"} 3.0',
        'longtail_requests_total{method="POST",path="/predict",status="422"} 1.0',
        'longtail_requests_total{method="GET",path="other",status="404"} 1.0',
        'longtail_texts_total{model="one"} 6.0',
        'longtail_batch_texts_count{model="one"} 3.0',
        'longtail_request_seconds_count{path="/predict"} 4.0',
        'longtail_labels{model="one"} 5.0',
        "process_resident_memory_bytes",
    ):
        assert line in text, line


def test_no_text_is_logged(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the client's own lines
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    models, made = fakes()
    made["one"].explain = lambda text, label: 1 / 0  # type: ignore[method-assign,assignment]

    async def ask(client: httpx.AsyncClient) -> None:
        await client.post("/predict", json={"text": SECRET})
        await client.post("/predict", json={"text": SECRET, "k": 0})
        await client.post("/predict", json={"texts": [SECRET, "break"]})
        await client.get("/labels", params={"query": SECRET})
        assert (await client.get("/explain", params={"text": SECRET, "label": 1})).status_code == 500

    asked(models, ask)
    written = capfd.readouterr()
    assert "ZeroDivisionError at " in caplog.text and "RuntimeError at " in caplog.text
    for told in (caplog.text, written.out, written.err):
        assert "quokka" not in told and "zanzibar" not in told


def test_shutting_down_answers_what_waits() -> None:
    models, made = fakes()

    async def run() -> tuple[list[int], str]:
        app = create_app(models)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://longtail") as client:
            async with app.router.lifespan_context(app):
                made["one"].gate.clear()
                asks = [asyncio.create_task(client.post("/predict", json={"text": f"{place}"})) for place in range(10)]
                await until(lambda: first_is_taken(models))
                asyncio.get_running_loop().call_later(0.05, made["one"].gate.set)
            late = await client.post("/predict", json={"text": "late"})
            problem(await client.get("/readyz"), 503)
            return [answer.status_code for answer in await asyncio.gather(*asks)], problem(late, 503)

    assert asyncio.run(run()) == ([200] * 10, "The server is shutting down.")


# ---- a real process


@contextmanager
def process(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`longtail serve` as a process, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "import sys; from pathlib import Path; from longtail.serve.run import serve; "
    code += "serve(Path(sys.argv[2]), sys.argv[3:], port=int(sys.argv[1]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, "-c", code, str(port), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        for _ in range(600):
            if started.poll() is not None:
                break
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield started, f"http://127.0.0.1:{port}"
    finally:
        started.kill()
        started.communicate()


def test_a_real_server_answers_reloads_and_ends_well(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    trained("default").save(folder)

    async def many(address: str, server: subprocess.Popen[str]) -> list[int | str]:
        async with httpx.AsyncClient(base_url=address, timeout=30) as client:

            async def one(place: int) -> int | str:
                try:
                    return (await client.post("/predict", json={"text": f"{SECRET} {place}"})).status_code
                except httpx.TransportError as error:
                    return type(error).__name__

            first = await asyncio.gather(*(one(place) for place in range(50)))
            assert (await client.post("/models/model/reload")).json()["version"] == 2
            last = [asyncio.create_task(one(place)) for place in range(50)]
            await asyncio.sleep(0.05)
            server.send_signal(signal.SIGTERM)
            return [*first, *await asyncio.gather(*last)]

    with process(folder, f"other={folder}") as (server, address):
        statuses = asyncio.run(many(address, server))
        out, err = server.communicate(timeout=30)
    assert statuses[:50] == [200] * 50
    # those that had come in were answered; whoever came later met a closed door, not half an answer
    assert set(statuses[50:]) <= {200, "ConnectError", "ReadError", "RemoteProtocolError"} and 200 in statuses[50:]
    assert server.returncode in (0, -signal.SIGTERM)
    assert "Serving model, other at " in err and "quokka" not in out + err and "Traceback" not in err


def test_a_folder_that_is_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a model folder"):
        Models({"none": tmp_path})


def test_what_serve_is_told_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="--port is 70000"):
        serve(tmp_path, port=70000)
    with pytest.raises(DataError, match="holds no key"):
        (tmp_path / "keys").touch()
        serve(tmp_path, keys=tmp_path / "keys")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match=r"longtail\[serve\]"):
        serve(tmp_path)


# ---- the OpenAPI page


def test_the_openapi_page_tells_limits_and_examples() -> None:
    models, _ = fakes(k=77, text_characters=99)

    async def ask(client: httpx.AsyncClient) -> Any:
        return (await client.get("/openapi.json")).json()

    schema = asked(models, ask)
    body = schema["components"]["schemas"]["PredictBody"]
    assert body["properties"]["k"]["maximum"] == 77 and body["properties"]["text"]["anyOf"][0]["maxLength"] == 99
    assert body["examples"][0]["text"]
    paths = {"/predict", "/labels", "/labels/{label}", "/explain", "/graph/{label}", "/models", "/models/{name}"}
    assert paths | {"/models/{name}/reload", "/healthz", "/readyz", "/metrics"} == set(schema["paths"])
    for methods in schema["paths"].values():
        for route in methods.values():
            for status, answer in route["responses"].items():
                if int(status) >= 400:
                    assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
