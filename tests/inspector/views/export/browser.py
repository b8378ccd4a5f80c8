"""A real browser, driven through a pipe with its own protocol: no package is needed beside Chromium itself."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
)  # fmt: skip
_TYPED = {"Enter": "\r", "Space": " "}
"""Keys that press the focused button, which a browser does for their characters."""
SECONDS = 30.0
"""For an answer; a browser takes its time to start where others use the machine."""


def installed() -> str | None:
    """The browser's program, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser without a window.

    Args:
        profile: A directory for its files.
        size: Of the window in pixels.
    """

    def __init__(self, profile: Path, size: tuple[int, int] = (1280, 900)) -> None:
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._buffer = b""
        program = installed()
        assert program is not None
        self._process, self._out, self._in = _started(program, profile, size)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        scheme = [{"name": "prefers-color-scheme", "value": "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in (self._out, self._in):
            os.close(descriptor)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def open(self, url: str) -> None:
        """Load a page, to its end."""
        self._load("about:blank")  # an address that differs in its fragment alone would load nothing
        self._load(url)

    def _load(self, url: str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + SECONDS
        while not self.seen("Page.loadEventFired"):
            self._read(end)

    def seen(self, method: str) -> list[dict[str, Any]]:
        """The events of a kind since the page was opened."""
        return [event["params"] for event in self.events if event["method"] == method]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page asked for, its own among them."""
        return [event["request"]["url"] for event in self.seen("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """Errors of scripts, and what the browser logged, such as what a policy forbade."""
        thrown = [str(event["exceptionDetails"]) for event in self.seen("Runtime.exceptionThrown")]
        return thrown + [event["entry"]["text"] for event in self.seen("Log.entryAdded")]

    def value(self, script: str) -> Any:
        """What an expression is worth in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def becomes(self, script: str, expected: Any) -> None:
        """Wait until an expression is worth this: what follows a `toggle` event follows it later than the click."""
        end = time.monotonic() + SECONDS
        while (found := self.value(script)) != expected:
            assert time.monotonic() < end, f"{script} is {found!r}, not {expected!r}"
            time.sleep(0.01)

    def click(self, selector: str) -> None:
        """Click the middle of the first element of a kind, as a mouse does."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point(self, selector: str) -> None:
        """Move the mouse over the first element of a kind."""
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _middle(self, selector: str) -> tuple[float, float]:
        found = self.value(f"""(() => {{ const found = document.querySelector({json.dumps(selector)});
            found.scrollIntoView({{block: "center"}}); const box = found.getClientRects()[0];
            return [box.x + box.width / 2, box.y + box.height / 2]; }})()""")
        return found[0], found[1]

    def press(self, key: str) -> None:
        """Press a key by its name."""
        typed = _TYPED.get(key, key)
        text = {"text": typed} if len(typed) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the page's protocol."""
        return self._call(method, self._session, **parameters)

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while (answer := self._read(end)).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def _read(self, end: float) -> dict[str, Any]:
        """The next message; one that is an event is kept."""
        while b"\0" not in self._buffer:
            ready = select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]
            piece = os.read(self._in, 2**16) if ready else b""
            if not piece:
                raise TimeoutError("the browser doesn't answer")
            self._buffer += piece
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self.events.append(message)
        return message


def _started(program: str, profile: Path, size: tuple[int, int]) -> tuple[subprocess.Popen[bytes], int, int]:
    """The process, and the ends of the pipes to and from it: it reads descriptor 3 and writes 4."""
    to_read, out = os.pipe()
    back, to_write = os.pipe()

    def place() -> None:
        os.dup2(to_read, 10)
        os.dup2(to_write, 11)
        os.dup2(10, 3)
        os.dup2(11, 4)
        os.set_inheritable(3, True)
        os.set_inheritable(4, True)

    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", "about:blank"],
        preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read)
    os.close(to_write)
    return process, out, back
