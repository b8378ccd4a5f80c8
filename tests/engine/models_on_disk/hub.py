"""A hub of one's own on this machine, which can cut connections, lie and be slow."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40


@dataclass
class FakeHub:
    """What the hub has, how it behaves, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    large: frozenset[str] = frozenset({"model.safetensors"})
    """Files that are named by their SHA-256."""
    stated: dict[str, int] = field(default_factory=dict)
    """Sizes that its list states instead of the true ones."""
    hashes: dict[str, str] = field(default_factory=dict)
    """Hashes that it states instead of the true ones."""
    wrong: dict[str, bytes] = field(default_factory=dict)
    """Contents that it sends instead of the true ones."""
    tags: dict[str, str] = field(default_factory=dict)
    """ETags that it sends instead of the true ones."""
    cuts: list[int] = field(default_factory=list)
    """After how many bytes the next connections for the large file are cut."""
    endless: bool = False
    """True for a large file that is sent without a stated length, and never ends."""
    ranges: bool = True
    missing: frozenset[str] = frozenset()
    """Files that its list has and it has not."""
    answer: object = None
    """What it lists, instead of its files; None for these."""
    status: int = 200
    error: str = ""
    elsewhere: str = ""
    """Where large files are redirected to, an address; empty for nowhere."""
    hold: threading.Event | None = None
    """Where there is one, large files stop after half of what is sent until it is set."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Path, range and authorization of each request."""
    address: str = ""

    def environ(self, cache: object, **more: str) -> dict[str, str]:
        """The environment of a program that uses it."""
        return {
            "HF_ENDPOINT": self.address,
            "HF_HUB_CACHE": str(cache),
            "HF_TOKEN_PATH": "/nowhere",
            "HF_HUB_OFFLINE": "",
            **more,
        }

    def listed(self) -> dict[str, object]:
        """The answer that lists its files."""
        return {
            "id": "some/tiny",
            "sha": COMMIT,
            "siblings": [self._sibling(name, content) for name, content in self.files.items()],
        }

    def tree(self) -> list[dict[str, object]]:
        """The answer that lists them once more, as huggingface_hub asks for it before it downloads."""
        return [
            {"type": "file", "path": name, "size": len(content), "oid": self.tag(name)}
            for name, content in self.files.items()
        ]

    def tag(self, name: str) -> str:
        """The hash by which a file is named: SHA-256 of a large one, else that of git."""
        content = self.files[name]
        if name in self.large:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def _sibling(self, name: str, content: bytes) -> dict[str, object]:
        size, tag = self.stated.get(name, len(content)), self.hashes.get(name, self.tag(name))
        listed = {"rfilename": name, "size": size, "blobId": "0" * 40 if name in self.large else tag}
        large = {"sha256": tag, "size": size, "pointerSize": 134}
        return {**listed, "lfs": large} if name in self.large else listed


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *args: object) -> None:
        """Nothing is written."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        wanted = self.headers.get("Range", "")
        if self.command == "GET":
            hub.asked.append((path, wanted, self.headers.get("Authorization", "")))
        if hub.status != 200:
            self._answer(hub.status, b"", {"X-Error-Code": hub.error})
        elif path.endswith(f"/tree/{COMMIT}"):
            self._answer(200, json.dumps(hub.tree()).encode(), {})
        elif path.startswith("/api/models/"):
            self._answer(200, json.dumps(hub.listed() if hub.answer is None else hub.answer).encode(), {})
        else:
            self._file(path.split(f"/resolve/{COMMIT}/")[-1], wanted)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _file(self, name: str, wanted: str) -> None:
        hub = self.hub
        if hub.elsewhere and name in hub.large:
            size = str(len(hub.files[name]))
            linked = {"X-Linked-Etag": f'"{hub.tag(name)}"', "X-Linked-Size": size, "X-Repo-Commit": COMMIT}
            self._answer(302, b"", {"Location": f"{hub.elsewhere}{self.path}", **linked})
            return
        if name in hub.missing:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        content, begin = hub.wrong.get(name, hub.files[name]), 0
        if wanted and hub.ranges:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if self.command == "HEAD" or name not in hub.large or not hub.endless:
            self.send_header("Content-Length", str(len(content) - begin))
        self.send_header("ETag", f'"{hub.tags.get(name, hub.tag(name))}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self._send(name, content[begin:])

    def _send(self, name: str, content: bytes) -> None:
        hub = self.hub
        if name in hub.large and hub.cuts:
            self.wfile.write(content[: hub.cuts.pop(0)])
            self.wfile.flush()
            self.close_connection = True
            return
        if name in hub.large and hub.hold is not None:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            hub.hold.wait(60)
            content = content[len(content) // 2 :]
        try:
            self.wfile.write(content)
            while name in hub.large and hub.endless:
                self.wfile.write(content)
        except ConnectionError:  # whoever asked was ended
            self.close_connection = True


@contextmanager
def serving(hub: FakeHub, host: str = "127.0.0.1") -> Iterator[FakeHub]:
    """The hub at an address of this machine."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer((host, 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a process that asked was ended
    hub.address = f"http://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        if hub.hold is not None:
            hub.hold.set()
        server.shutdown()
        server.server_close()
