"""The page of the server in a real browser, without a screen."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from longtail.serve.app import create_app
from longtail.serve.limits import Keys
from longtail.serve.models import Models
from tests.test_serve import KEY, LABELS, fakes

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@contextmanager
def server(models: Models, keys: Keys | None = None) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = uvicorn.Server(uvicorn.Config(create_app(models, keys), port=port, log_level="warning", access_log=False))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test where it logs an error or asks another host."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    page = context.new_page()
    page.set_default_timeout(5000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" and "401" not in line.text else None)
    page.on("request", lambda request: None if request.url.startswith(("http://127.0.0.1", "data:")) else problems.append(request.url))
    yield page
    context.close()
    assert problems == []


def found(page: Any, column: int = 0) -> list[str]:
    return list(page.locator(".column").nth(column).locator(".name").all_inner_texts())


def test_labels_appear_as_one_types(page: Any) -> None:
    models, made = fakes()
    with server(models) as address:
        page.goto(address)
        page.get_by_label("Text", exact=True).press_sequentially("red apple", delay=20)
        page.get_by_text("apple juice", exact=True).wait_for()
        assert found(page) == ["apple", "apple juice", "Pear", "pear juice", "press"]
        assert page.locator(".badge").all_inner_texts() == ["head", "torso", "tail", "tail", "unseen"]
        widths = [box.bounding_box()["width"] for box in page.locator(".bar > span").all()]
        assert widths == sorted(widths, reverse=True) and widths[0] / widths[4] == pytest.approx(9 / 5, rel=0.02)
        page.get_by_label("Labels", exact=True).last.fill("2")
        playwright.expect(page.locator(".name")).to_have_count(2)
        page.get_by_label("Minimum score").fill("0.85")
        playwright.expect(page.locator(".name")).to_have_count(1)
        page.get_by_label("Text", exact=True).fill("")
        page.get_by_text("Labels appear here as you type.").wait_for()
    typed = [texts[0] for texts, _ in made["one"].calls]
    assert typed[0] == "red apple" or len(typed) < 12  # not a request a letter
    assert typed[-1] == "red apple"


def test_what_is_typed_before_the_models_are_known_is_asked_once(page: Any) -> None:
    """A second answer to the same text would close what was opened meanwhile."""
    models, made = fakes()
    with server(models) as address:
        page.route("**/models", lambda route: (time.sleep(0.05), route.continue_()))
        page.goto(address, wait_until="commit")
        page.locator("#text").fill("x")
        playwright.expect(page.locator(".name")).to_have_count(5)
        page.wait_for_timeout(400)
    assert made["one"].calls == [(["x"], 5)]


def test_the_last_answer_wins(page: Any) -> None:
    """The answer to the first question comes after that to the second, and is not shown."""
    models, _ = fakes()
    with server(models) as address:
        page.goto(address)
        page.get_by_text("Labels appear here as you type.").wait_for()
        page.evaluate(
            """() => {
                const real = window.fetch;
                window.fetch = async (path, how) => {
                    const answer = await real(path, how);
                    if (how.body && how.body.includes('"slow"')) await new Promise((done) => setTimeout(done, 700));
                    return answer;
                };
            }"""
        )
        page.get_by_label("Labels", exact=True).last.fill("3")
        page.get_by_label("Text", exact=True).fill("slow")
        page.wait_for_timeout(300)
        page.get_by_label("Labels", exact=True).last.fill("1")
        page.get_by_label("Text", exact=True).fill("fast")
        playwright.expect(page.locator(".name")).to_have_count(1)
        page.wait_for_timeout(800)
        assert found(page) == ["apple"]


def test_reasons_and_neighbours_by_keyboard_alone(page: Any) -> None:
    models, _ = fakes()
    with server(models) as address:
        page.goto(address)
        page.keyboard.type("x")  # the text has the focus
        page.get_by_role("button", name="Why apple", exact=True).focus()
        page.keyboard.press("Enter")
        page.get_by_text("a red apple").wait_for()
        assert page.get_by_text("+1.50").is_visible() and page.get_by_text("Pear →(0.30) apple").is_visible()
        page.get_by_role("button", name="Neighbours of apple", exact=True).focus()
        page.keyboard.press("Enter")
        graph = page.get_by_role("group", name="Labels near apple", exact=True)
        graph.wait_for()
        assert graph.locator("circle").count() == 4 and graph.locator("line").count() == 6
        assert not page.get_by_text("a red apple").is_visible()
        page.get_by_role("button", name="Pear, tail").focus()
        page.keyboard.press("Enter")
        page.get_by_role("group", name="Labels near Pear").wait_for()


def test_two_models_side_by_side_and_their_cards(page: Any) -> None:
    models, made = fakes("plain gandalf")
    history = [{"member": 0, "epoch": epoch, "loss": 3.0 / (epoch + 1), "P@1": 40.0 + epoch} for epoch in range(6)]
    for fake in made.values():
        fake.trained.history = history
    with server(models) as address:
        page.goto(address)
        page.get_by_label("Text", exact=True).fill("x")
        playwright.expect(page.locator(".name")).to_have_count(10)
        left, right = (page.locator(".column").nth(place).bounding_box() for place in range(2))
        assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
        page.get_by_role("tab", name="Labels").focus()
        page.keyboard.press("ArrowRight")
        page.get_by_role("region", name="Model gandalf").wait_for()
        assert page.get_by_role("img").count() == 4 and page.get_by_text("Loss of every epoch").count() == 2
        assert page.locator("#labels").is_hidden()


def test_it_fits_a_phone_in_light_and_dark(page: Any) -> None:
    models, _ = fakes("plain gandalf")
    backgrounds = set()
    with server(models) as address:
        page.set_viewport_size({"width": 380, "height": 800})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.goto(address)
            page.get_by_label("Text", exact=True).fill("x " * 200)
            playwright.expect(page.locator(".name")).to_have_count(10)
            page.get_by_role("button", name="Neighbours of apple", exact=True).first.click()
            page.locator("svg").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 380
            backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            page.get_by_role("tab", name="Models").click()
            page.locator(".card").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 380
    assert len(backgrounds) == 2


def test_everything_one_can_use_has_a_name(page: Any) -> None:
    models, made = fakes("one two three")
    with server(models) as address:
        page.goto(address)
        page.get_by_label("Text", exact=True).fill("x")
        playwright.expect(page.locator(".name")).to_have_count(10)
        page.get_by_label("Model 2").select_option("three")
        playwright.expect(page.locator(".column").nth(1)).to_have_attribute("aria-label", "Model three")
        for control in page.locator("button, input, textarea, select").all():
            name = control.evaluate(
                "e => e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].textContent) || e.textContent"
            )
            assert name.strip(), control.evaluate("e => e.outerHTML")
        announced = page.locator("[aria-live=polite]")
        playwright.expect(announced).to_have_text(f"one: {', '.join(LABELS)}. three: {', '.join(LABELS)}")
    assert made["three"].calls


def test_errors_and_keys_are_told(page: Any) -> None:
    models, _ = fakes()
    with server(models, Keys([KEY])) as address:
        page.goto(address)
        page.get_by_text("No key came").wait_for()
        page.get_by_label("This server wants a key").fill(KEY)
        page.get_by_role("button", name="Use it").click()
        page.get_by_label("Text", exact=True).fill("x")
        page.get_by_text("apple juice", exact=True).wait_for()
        assert page.locator("#key-form").is_hidden()


def test_label_texts_are_no_markup(page: Any) -> None:
    from longtail.core.values import Texts

    models, made = fakes()
    made["one"].trained.label_texts = Texts.of(["<img src=x onerror=alert(1)>", "<b>b</b>", "c", "d", "e"])
    with server(models) as address:
        page.goto(address)
        page.get_by_label("Text", exact=True).fill("x")
        page.get_by_text("<b>b</b>", exact=True).wait_for()
        assert page.locator("#columns img, #columns b").count() == 0
