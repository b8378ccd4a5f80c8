"""`inspector serve` in a real browser: keys, clicks, what is refused, what it asks for, and a class that watches."""

from __future__ import annotations

import base64
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.inspector.test_starts import Terminal
from tests.inspector.tools.export.browser import Browser, installed
from tests.system import alive, children

pytest.importorskip("textual_serve")
pytestmark = pytest.mark.skipif(installed() is None, reason="needs Chromium or Chrome")

KEEP_TERMINAL = """Object.defineProperty(Object.prototype, "terminal", {configurable: true, set(value) {
  if (value && value.buffer) window.kept = value;
  Object.defineProperty(this, "terminal", {value, writable: true, configurable: true, enumerable: true}); }});"""
"""Keeps the page's terminal, which the script has for itself: what it holds is what is painted."""
SCREEN = """window.kept ? [...Array(kept.rows).keys()].map((row) =>
  kept.buffer.active.getLine(kept.buffer.active.viewportY + row).translateToString(true)).join("\\n") : "" """
CELL = """(() => { const box = document.querySelector(".xterm-screen").getBoundingClientRect();
  return [box.x + (%d + .5) * box.width / kept.cols, box.y + (%d + .5) * box.height / kept.rows]; })()"""
"""The middle of a cell, by column and row."""
OPEN_SOCKET = """new Promise((done) => { const socket = new WebSocket("%s");
  socket.onopen = () => done("open"); socket.onerror = () => done("refused"); })"""
OPEN_FRAME = """new Promise((done) => { const frame = document.createElement("iframe"); frame.src = "%s";
  frame.onload = () => done(String(frame.contentDocument)); document.body.append(frame); })"""
KEYS = {"Backspace": 8, "Enter": 13, "Escape": 27, "End": 35, "ArrowLeft": 37, "Delete": 46}
SECONDS = 120.0


class Page:
    """A visitor's page."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_TERMINAL)

    def open(self, address: str) -> None:
        self.browser.open(address)

    @property
    def screen(self) -> str:
        return str(self.browser.value(SCREEN))

    @property
    def words(self) -> str:
        """What the page itself says."""
        return str(self.browser.value("document.body.innerText"))

    def until(self, words: str, where: Callable[[], str] | None = None) -> str:
        """Wait until something is on the screen; returns all that is."""
        end = time.monotonic() + SECONDS
        while not re.search(words, seen := (where or (lambda: self.screen))()):
            assert time.monotonic() < end, f"{words} never came:\n{seen}"
            time.sleep(0.02)
        return seen

    def click(self, words: str) -> None:
        """Click the first cell of some words."""
        rows = self.screen.splitlines()
        row, column = next((n, line.index(words)) for n, line in enumerate(rows) if words in line)
        x, y = self.browser.value(CELL % (column, row))
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press a key; the terminal goes by the numbers that keys without a character have."""
        if key not in KEYS:
            self.browser.press(key)
            return
        for kind in ("keyDown", "keyUp"):
            code = KEYS[key]
            self.browser.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def leave(self) -> None:
        """Leave whatever keys before opened, until a key of the main screen is answered."""
        end = time.monotonic() + SECONDS
        while not re.search("Colour (by|off)", seen := self.screen):
            assert time.monotonic() < end, seen
            self.press("Escape")
            time.sleep(0.5)
            self.press("m")
            time.sleep(0.5)

    @property
    def hosts(self) -> set[str]:
        """Whom the page asked for something, its own server among them."""
        sockets = [event["url"] for event in self.browser.seen("Network.webSocketCreated")]
        asked = [url for url in (*self.browser.requests, *sockets) if not url.startswith(("data:", "about:"))]
        return {re.sub(r"^\w+://([^/]+)/.*", r"\1", url) for url in asked}

    def save(self, name: str) -> None:
        """Keep a picture, where whoever runs the tests asked for some."""
        if folder := os.environ.get("INSPECTOR_TEST_PICTURES"):
            Path(folder, name).write_bytes(base64.b64decode(self.browser.picture()))


class Served:
    """A running `inspector serve`."""

    def __init__(self, *flags: str) -> None:
        command = [sys.executable, "-m", "inspector", "serve", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], SECONDS)[0], "no address came"
        return self.process.stdout.readline().strip()

    def end(self) -> tuple[int, str]:
        """End it as ctrl+c does; returns the status and what it said."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, said

    def programs(self) -> list[int]:
        """Processes that it has begun."""
        return children(self.process.pid)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    begun: list[Served] = []

    def begin(*flags: str) -> Served:
        begun.append(Served(*flags))
        return begun[-1]

    yield begin
    for each in begun:
        with suppress(ProcessLookupError):
            each.process.kill()
        each.process.communicate()


@pytest.mark.slow
def test_steps_by_key_and_by_click(serve, tmp_path: Path) -> None:
    served = serve("--temp", "0", "--prompt", "Once upon a time", "--no-save")
    with Browser(tmp_path / "profile", dark=True, size=(1200, 820)) as browser:
        page = Page(browser)
        page.open(served.address)
        page.until("DECODE step 0")
        page.until("Space or")
        assert "token" not in browser.value("location.href")
        page.press(" ")
        page.until("DECODE step 1")
        page.press(" ")
        page.until("DECODE step 2")
        page.save("serve-steps.png")
        page.click("Once")
        page.until("Looking at prompt token")
        page.press("End")
        page.until("Space or")
        page.click(" 1 Once")
        page.until("Looking at step 1")
        programs = served.programs()
        page.press("q")
        page.until("The program has ended.", lambda: page.words)
        page.save("serve-ended.png")
        assert page.hosts == {served.address.split("/")[2]}
        complaints = [text for text in browser.complaints if "WebGL" not in text]
        assert complaints == []
        assert browser.value("document.fonts.check('16px \"Roboto Mono\"')")
        page.open(served.address)
        assert "DECODE" in page.until("DECODE step 0")  # its cookie admits this browser again
        assert browser.value("location.href").endswith("/")
    with Browser(tmp_path / "another", dark=True) as browser:
        page = Page(browser)
        page.open(served.address)
        assert "This address was used already." in page.words
        page.save("serve-refused.png")
        page.open(served.address.partition("?")[0])
        assert "No token came with this request." in page.words
    programs += served.programs()
    code, said = served.end()
    assert code == 0
    assert "Each visitor is a process" in said
    assert not any(map(alive, programs))


@pytest.mark.slow
def test_a_page_of_another_site_reaches_nothing(serve, tmp_path: Path) -> None:
    """One that is open in the very browser that was admitted."""
    served = serve("--no-save")
    root = served.address.partition("?")[0]
    with Browser(tmp_path / "profile") as browser:
        page = Page(browser)
        page.open(served.address)
        page.until("DECODE")
        evil = tmp_path / "evil.html"
        evil.write_text("<title>evil</title>", encoding="utf-8")
        page.open(evil.as_uri())
        assert browser.value(OPEN_SOCKET % f"{root.replace('http', 'ws')}ws") == "refused"
        fetch = f"fetch('{root}', {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
        assert browser.value(fetch) == "refused"
        assert browser.value(OPEN_FRAME % root) == "null"
    assert served.end()[0] == 0


@pytest.mark.slow
def test_a_long_paste_is_refused_in_words_and_the_session_goes_on(serve, tmp_path: Path) -> None:
    served = serve("--no-save")
    with Browser(tmp_path / "profile", size=(1200, 820)) as browser:
        page = Page(browser)
        page.open(served.address)
        page.until("Space or")
        browser.value("kept.paste('x'.repeat(20000000))")
        page.until("Not pasted", lambda: page.words)
        page.save("serve-paste.png")
        page.press(" ")
        page.until("DECODE step 1")
    assert served.end()[0] == 0


@pytest.mark.slow
def test_a_class_sees_a_step_within_a_second_and_changes_nothing(serve, tmp_path: Path) -> None:
    presenter = Terminal([sys.executable, "-m", "inspector", "--temp", "0", "--prompt", "Once upon a time"])
    try:
        presenter.until("Space or")
        presenter.press(b" ")
        presenter.until("step 1")
        served = serve("--watch", "--sessions", "3")
        [session] = (tmp_path / "state").rglob("*.jsonl")
        with (
            Browser(tmp_path / "one", dark=True, size=(1200, 820)) as first,
            Browser(tmp_path / "two", size=(900, 600)) as second,
        ):
            pages = [Page(first), Page(second)]
            for page in pages:  # one address for all of them
                page.open(served.address)
                page.until("RECORDED step 1")
                page.until("Following a session as it goes")
            presenter.press(b" ")
            began = time.monotonic()
            for page in pages:
                page.until("RECORDED step 2")
            took = time.monotonic() - began
            print(f"a step took {took:.2f} s to both watchers, as far as the page was looked at")
            assert took < 10  # on a machine that others use
            pages[0].save("serve-watch.png")
            before = session.read_bytes()
            for key in (*"prRdbaxosGEJSKVN*", "Enter", "Delete"):
                pages[0].press(key)
            pages[0].leave()
            pages[0].press("Backspace")
            pages[0].until("behind")
            pages[0].save("serve-watch-behind.png")
            assert session.read_bytes() == before
            presenter.press(b" ")
            presenter.until("step 3")
            pages[1].until("RECORDED step 3")
            pages[0].until("(One change|changes) behind")
            pages[0].press("End")
            pages[0].until("RECORDED step 3")
            presenter.press(b"q")
            presenter.leave()
            pages[1].until("The session ended: its program has left")
            pages[1].save("serve-watch-ended.png")
        assert served.end()[0] == 0
    finally:
        presenter.close()
