"""Has a model downloaded from a hub into its cache, by a process of its own that is ended at once where that is wanted.

What came stays, and another download goes on from there. The loaded model is not touched, and nothing is written to the
terminal.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from engine.errors import Cancelled, LoadError
from engine.models_on_disk.places import hub_cache

PATTERNS = (
    "*.json", "model*.safetensors", "*.py", "tokenizer.model", "*.tiktoken", "tiktoken.model", "*.txt", "*.jsonl",
    "*.jinja",
)  # fmt: skip
"""The files that mlx_lm downloads (`DEFAULT_ALLOW_PATTERNS`, which a test holds this against)."""
ENDPOINT = "https://huggingface.co"
RATE_SECONDS = 5.0
"""Over which the rate is taken."""
_SCRIPT = Path(__file__).with_name("hub_process.py")
_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_POLL = 0.1
_MESSAGES = {
    "login": ("The hub asks for a login to read {spec}.", "Run `hf auth login`, then try again."),
    "none": (
        "The hub has no model {spec}, or not for you.",
        "Check the name; `hf auth login` for a private one.",
    ),
    "network": (
        "{spec} can't be downloaded now: {why}.",
        "Check the network; the part that arrived is kept.",
    ),
    "wrong": ("{spec} was not downloaded: {why}.", "Try again, or choose another model."),
    "disk": (
        "{spec} can't be kept: {why}.",
        "Make room in the hub's cache, or set HF_HUB_CACHE to another place.",
    ),
    "ended": (
        "{spec} was not downloaded: the process that did it was ended.",
        "Try again; the part that arrived is kept.",
    ),
    "busy": ("{spec} was not downloaded: {why}.", "Wait for that one."),
}


class DownloadProgress(Struct, frozen=True):
    """How far a download is."""

    done: int
    """Bytes that are there, those of an earlier download among them."""
    total: int
    rate: float | None = None
    """Bytes a second lately; None where that isn't known yet."""

    @property
    def seconds_left(self) -> float | None:
        """At that rate."""
        return (self.total - self.done) / self.rate if self.rate else None


def is_hub_id(name: str) -> bool:
    """True if a name can be a hub's: owner/name, or one name."""
    return bool(_ID.fullmatch(name)) and "--" not in name and ".." not in name


def download(
    spec: str,
    tell: Callable[[DownloadProgress], None],
    stopped: Callable[[], bool],
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Download what is missing of a model.

    Args:
        spec: Its hub id.
        tell: Called as it goes on.
        stopped: Polled ten times a second: whether to end; what came stays.
        environ: Says which hub, which cache and whose token, as huggingface_hub reads it.

    Returns:
        The directory of the model, whole.

    Raises:
        LoadError: It can't be downloaded; the message says why, the hint what to do.
        Cancelled: `stopped` returned True.
    """
    if not is_hub_id(spec):
        raise LoadError(f"{spec} is not a hub id.", "A hub id has the form owner/name.")
    if environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise LoadError(f"{spec} can't be downloaded: HF_HUB_OFFLINE is set.", "Unset it to download.")
    given = {
        "path": sys.path, "spec": spec, "patterns": PATTERNS, "cache": str(hub_cache(environ)),
        "endpoint": environ.get("HF_ENDPOINT") or ENDPOINT, "token": _token(environ),
    }  # fmt: skip
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C of the terminal is answered here
        )
    except OSError as error:
        raise LoadError(f"No process can be started: {error.strerror}.", "Close other programs.") from error
    with process:
        try:
            last = _followed(process, given, tell, stopped)
        finally:
            process.kill()
    if "path" in last:
        return Path(last["path"])
    message, hint = _MESSAGES[last.get("error", "ended")]
    why = str(last.get("message", "")).rstrip(".")
    raise LoadError(message.format(spec=spec, why=why), hint)


def _followed(
    process: subprocess.Popen[bytes],
    given: Mapping[str, Any],
    tell: Callable[[DownloadProgress], None],
    stopped: Callable[[], bool],
) -> dict[str, Any]:
    """Take in what the process writes, up to its end; returns the last of it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(given).encode() + b"\n")
    process.stdin.flush()
    rates, last = deque[tuple[float, int]](), dict[str, Any]()
    descriptor, held = process.stdout.fileno(), b""
    with selectors.DefaultSelector() as ready:
        ready.register(descriptor, selectors.EVENT_READ)
        while True:
            if stopped():
                raise Cancelled
            if not ready.select(_POLL):
                continue
            if not (block := os.read(descriptor, 2**16)):
                return last
            *lines, held = (held + block).split(b"\n")
            for line in lines:
                last = json.loads(line)
                if "done" in last:
                    tell(_progress(last["done"], last["total"], rates))


def _progress(done: int, total: int, rates: deque[tuple[float, int]]) -> DownloadProgress:
    now = time.monotonic()
    rates.append((now, done))
    while now - rates[0][0] > RATE_SECONDS:
        rates.popleft()
    begun, before = rates[0]
    return DownloadProgress(done, total, (done - before) / (now - begun) if now - begun >= 0.5 else None)


def _token(environ: Mapping[str, str]) -> str:
    """The person's token, where huggingface_hub keeps it; empty for none."""
    if token := environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN"):
        return token.strip()
    place = environ.get("HF_TOKEN_PATH")
    path = (
        Path(place)
        if place
        else hub_cache({**environ, "HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": ""}).parent / "token"
    )
    try:
        return path.expanduser().read_text(encoding="utf-8")[:4096].strip()
    except (OSError, ValueError):
        return ""
