"""Bodies of HTTP messages as they are recorded: decoded, within a bound, as JSON, text or events."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from inspector.served.exchange import event_text, json_of
from inspector.served.secrets import Secrets

MOST = 8 * 2**20
"""Bytes of a body that are recorded, and of the events of a stream: 5,000 tokens with 11 top logprobs each."""
DONE = "[DONE]"
_PLAIN, _ZIPPED = ("", "identity"), ("gzip", "x-gzip", "deflate")


class Body:
    """The beginning of a body, as it arrives.

    Args:
        headers: Of its message, names in small letters.
    """

    def __init__(self, headers: dict[str, str]) -> None:
        self.kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        self.size = 0
        """Bytes that arrived, as they were encoded."""
        self.full = False
        """True if more came than is recorded."""
        self._encoding = headers.get("content-encoding", "").strip().lower()
        self._zipped = zlib.decompressobj(wbits=47) if self._encoding in _ZIPPED else None
        self.unread = self._encoding not in (*_PLAIN, *_ZIPPED) or self.kind.startswith("multipart/")
        """True if nothing of it can be recorded."""
        self._kept = 0
        self._blocks: list[bytes] = []

    def add(self, data: bytes) -> bytes:
        """Take in the next bytes; returns what is recorded of them, decoded."""
        self.size += len(data)
        if self.unread or self.full:
            return b""
        room = MOST - self._kept
        if self._zipped is not None:
            try:
                decoded = self._zipped.decompress(data, room + 1)
            except zlib.error:
                self.unread = True
                return b""
        else:
            decoded = data[: room + 1]
        self.full = len(decoded) > room
        self._kept += len(decoded[:room])
        return decoded[:room]

    def keep(self, data: bytes) -> None:
        """Take in the next bytes of a body that is no stream."""
        if decoded := self.add(data):
            self._blocks.append(decoded)

    def text(self) -> str | None:
        """The text of what was kept; None where it is none."""
        if self.unread:
            return None
        raw = b"".join(self._blocks)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            return raw[: error.start].decode() if self.full and error.start > len(raw) - 4 else None

    def note(self, text: str | None, secrets: int) -> str:
        """What of it isn't recorded.

        Args:
            text: Of it.
            secrets: How many were masked in it.
        """
        if text is None:
            return (
                f"{self.size:,} bytes of {self._encoding or self.kind or 'no text'}, which are not recorded"
            )
        parts = [f"recorded are the first {MOST:,} of {self.size:,} bytes"] * self.full
        parts += ["keys were masked in it"] * bool(secrets)
        return "; ".join(parts)


class Events:
    """The server-sent events of a stream, each written as soon as it is whole.

    Comments, `: keepalive`, are kept as texts; names and ids of events are left out.

    Args:
        secrets: Masked in them.
    """

    def __init__(self, secrets: Secrets) -> None:
        self.written: list[str] = []
        self.done = False
        """True if `[DONE]` came."""
        self.usage: Any = None
        """What the last event with a `usage` says of it."""
        self.masked = 0
        """How often a secret was masked in them."""
        self._secrets = secrets
        self._line = bytearray()
        self._data: list[str] = []

    def add(self, data: bytes, ms: float) -> None:
        """Take in the next bytes.

        Args:
            data: Of the stream.
            ms: When they came, as the recording counts.
        """
        for line in self._lines(data):
            if not line:
                self._event(ms)
            elif line.startswith(":"):
                self._write(ms, line)
            elif line.startswith("data:"):
                self._data.append(line[5:].removeprefix(" "))

    def end(self, ms: float) -> None:
        """Take in that the stream has ended: an event that nothing ended is kept, too."""
        if self._line:
            self.add(b"\n", ms)
        self._event(ms)

    def _lines(self, data: bytes) -> Iterator[str]:
        first, *others = data.split(b"\n")
        self._line += first
        for other in others:
            yield self._line.removesuffix(b"\r").decode(errors="replace")
            self._line = bytearray(other)

    def _event(self, ms: float) -> None:
        if not self._data:
            return
        text = "\n".join(self._data)
        self._data = []
        self.done = self.done or text == DONE
        try:
            value = json_of(text)
        except ValueError:
            value = text
        if isinstance(value, dict) and isinstance(value.get("usage"), dict):
            self.usage = value["usage"]
        self._write(ms, value)

    def _write(self, ms: float, value: Any) -> None:
        before = self._secrets.masked
        try:
            self.written.append(event_text(ms, self._secrets.reply(value)))
        except RecursionError:
            self.written.append(event_text(ms, "(nested too deep)"))
        self.masked += self._secrets.masked - before
