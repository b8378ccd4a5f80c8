"""Exchanges with a server, read from copies of the bytes that passed: HTTP/1 by h11, a connection at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import h11

from engine.frozen import frozen, slotted
from inspector.served.bodies import Body, Events
from inspector.served.copies import Copies, Copy
from inspector.served.exchange import Exchange, Reply, json_of, reply_line, request_line
from inspector.served.recording import Part, RecordingFiles
from inspector.served.secrets import Secrets

LONGEST_HEAD = 2**18
"""Bytes of a message's head at most; of a longer one nothing more is read on its connection."""
STREAM = "text/event-stream"


@slotted
class OpenRequest:
    """A request that is being read, or waits for its reply."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: Body
    began: float
    """Seconds, of the clock of the copies."""
    ended: float
    """When its last byte came so far."""
    number: int = 0
    """Of its exchange; 0 until it is written."""
    path: str = ""
    """As it is recorded."""
    part: Part | None = None
    """The file that has it."""


@slotted
class OpenReply:
    """A reply that is being read."""

    status: int
    headers: list[tuple[str, str]]
    body: Body
    events: Events | None
    """Where it is a stream."""
    began: float
    framed: bool
    """True if its end is told by more than the end of the connection."""


@frozen
class Told:
    """An exchange that is over, in short."""

    number: int
    method: str
    path: str
    status: int
    """0 where nothing was answered."""
    ms: float
    cut: bool
    usage: Mapping[str, Any]


class Conversation:
    """Reads one connection.

    Args:
        recording: Receives the exchanges.
        secrets: Of the recording.
        tell: Gets each exchange when it is over.
    """

    def __init__(self, recording: RecordingFiles, secrets: Secrets, tell: Callable[[Told], None]) -> None:
        self._recording, self._secrets, self._tell = recording, secrets, tell
        self._asking, self._answering = _connection(h11.SERVER), _connection(h11.CLIENT)
        self._request: OpenRequest | None = None
        """That is being read."""
        self._waiting: deque[OpenRequest] = deque()
        """Those that were read, and not answered: more than one where a client doesn't wait."""
        self._reply: OpenReply | None = None

    # ---- requests ---------------------------------------------------------------------------

    def asked(self, at: float, data: bytes) -> None:
        """Take in what the client sent.

        Raises:
            h11.RemoteProtocolError: It is no HTTP.
        """
        self._asking.receive_data(data)
        while (event := self._asking.next_event()) is not h11.NEED_DATA:
            match event:
                case h11.Request():
                    headers = _pairs(event)
                    self._request = OpenRequest(
                        event.method.decode(), event.target.decode("latin-1"), headers, Body(_by_name(headers)), at, at
                    )  # fmt: skip
                    self._secrets.learn_headers(headers)
                case h11.Data() if self._request is not None:
                    self._request.body.keep(bytes(event.data))
                    self._request.ended = at
                case h11.EndOfMessage() if self._request is not None:
                    request, self._request = self._request, None
                    request.ended = at
                    if not request.number:  # else it was answered before it was whole
                        self._write_request(request)
                        self._waiting.append(request)
                    self._asking = _fresh(self._asking)
                case _:
                    return

    def _write_request(self, request: OpenRequest, note: str = "") -> None:
        secrets, body = self._secrets, request.body
        request.path = secrets.path(request.target)
        before, text = secrets.masked, body.text()
        value: Any = text
        if text is not None:
            try:
                value = secrets.request(json_of(text)) if text else ""
            except (ValueError, RecursionError):
                value = secrets.no_json(text)
        note = "; ".join(filter(None, (note, body.note(text, secrets.masked - before))))
        request.number, request.part = self._recording.begin()
        wall = time.time() - time.monotonic() + request.began
        exchange = Exchange(request.number, wall, request.method, request.path, value, None,
                            secrets.headers(request.headers), note)  # fmt: skip
        try:
            line = request_line(exchange)
        except RecursionError:
            line = request_line(replace(exchange, body=secrets.no_json(text or "")))
        self._recording.write(line, request.part)

    # ---- replies ----------------------------------------------------------------------------

    def answered(self, at: float, data: bytes) -> None:
        """Take in what the server sent, nothing where it sends no more.

        Raises:
            h11.RemoteProtocolError: It is no HTTP, or answers nothing.
        """
        if data and self._reply is None:
            self._expect()
        try:
            self._answering.receive_data(data)
            self._read_reply(at)
        except h11.RemoteProtocolError:
            if data:
                raise
            self._end_reply(at, cut=True)

    def _expect(self) -> None:
        """Have the next reply read as one to the next request: whether it has a body depends on that."""
        if self._answering.our_state is not h11.IDLE or not (request := self._next):
            return
        self._answering.send(h11.Request(method=request.method, target="/", headers=[("Host", "-")]))
        self._answering.send(h11.EndOfMessage())

    @property
    def _next(self) -> OpenRequest | None:
        """The request that the next reply is for."""
        if self._waiting:
            return self._waiting[0]
        return self._request if self._request is not None and not self._request.number else None

    def _read_reply(self, at: float) -> None:
        while (event := self._answering.next_event()) is not h11.NEED_DATA:
            match event:
                case h11.Response():
                    headers = _pairs(event)
                    named = _by_name(headers)
                    self._secrets.learn_headers(pair for pair in headers if pair[0].lower() == "set-cookie")
                    body = Body(named)
                    events = Events(self._secrets) if body.kind == STREAM else None
                    framed = not {"content-length", "transfer-encoding"}.isdisjoint(named)
                    self._reply = OpenReply(event.status_code, headers, body, events, at, framed)
                case h11.Data() if self._reply is not None:
                    self._take_in(self._reply, bytes(event.data), at)
                case h11.EndOfMessage() if self._reply is not None:
                    self._end_reply(at, cut=False)
                    self._answering = _fresh(self._answering)
                    self._expect()
                case h11.InformationalResponse():
                    continue
                case _:
                    return

    def _take_in(self, reply: OpenReply, data: bytes, at: float) -> None:
        if reply.events is None:
            reply.body.keep(data)
        elif decoded := reply.body.add(data):
            reply.events.add(decoded, self._ms(at))

    def _ms(self, at: float) -> float:
        asked = self._next
        return max(0.0, (at - asked.ended) * 1000) if asked is not None else 0.0

    def _end_reply(self, at: float, cut: bool, why: str = "") -> None:
        reply, request = self._reply, self._next
        self._reply = None
        if reply is None or request is None:
            return
        if not request.number:
            self._write_request(request, "answered before the request was complete")
        if self._waiting:
            self._waiting.popleft()
        before = self._secrets.masked
        value, usage, text = self._content(reply, at)
        masked = reply.events.masked if reply.events else self._secrets.masked - before
        cut = (cut and not (reply.events and reply.events.done)) or self._unfinished(reply, value, text)
        note = "; ".join(filter(None, (why, reply.body.note(text, masked))))
        headers = self._secrets.headers(reply.headers)
        first, last = (max(0.0, (when - request.ended) * 1000) for when in (reply.began, at))
        done = Reply(reply.status, first, last, cut, value, (), headers, note)
        try:
            line = reply_line(request.number, done, reply.events.written if reply.events else ())
        except RecursionError:
            line = reply_line(request.number, replace(done, body=self._secrets.no_json(text or "")))
        self._recording.write(line, request.part)
        self._recording.end(request.part)
        self._tell(Told(request.number, request.method, request.path, reply.status, last, cut, usage or {}))

    def _content(self, reply: OpenReply, at: float) -> tuple[Any, Any, str | None]:
        """A reply's body, what it says of usage, and its text: empty for a stream."""
        if reply.events is not None:
            reply.events.end(self._ms(at))
            return None, reply.events.usage, None if reply.body.unread else ""
        text = reply.body.text()
        if not text:
            return text, None, text
        try:
            value = json_of(text)
            masked = self._secrets.reply(value)
        except (ValueError, RecursionError):
            return self._secrets.no_json(text), None, text
        usage = value.get("usage") if isinstance(value, dict) else None
        return masked, usage if isinstance(usage, dict) else None, text

    def _unfinished(self, reply: OpenReply, value: Any, text: str | None) -> bool:
        """Tell from what a reply holds that it broke off, where the end of the connection alone ended it."""
        if reply.framed or reply.body.full or text is None:
            return False
        if reply.events is not None:
            return not reply.events.done
        begun = text.lstrip().startswith(("{", "["))  # an error may be a text all the same
        return begun and reply.body.kind == "application/json" and isinstance(value, str)

    # ---- its end ----------------------------------------------------------------------------

    def break_off(self, at: float, why: str = "") -> None:
        """Take in that one side went away, or that no more can be read: what was being answered is cut.

        Args:
            at: When.
            why: What is noted of it.
        """
        self._end_reply(at, cut=True, why=why)
        while self._waiting:
            request = self._waiting.popleft()
            self._recording.end(request.part)
            ms = (at - request.ended) * 1000
            self._tell(Told(request.number, request.method, request.path, 0, ms, True, {}))


class Reader:
    """Reads all connections.

    Args:
        recording: Receives the exchanges.
        tell: Gets each exchange when it is over.
        complain: Gets a sentence on what can't be read.
    """

    def __init__(
        self, recording: RecordingFiles, tell: Callable[[Told], None], complain: Callable[[str], None]
    ) -> None:
        self._recording, self._tell, self._complain = recording, tell, complain
        self._secrets = Secrets()
        self._open: dict[int, Conversation] = {}
        self._unread: set[int] = set()
        self._said: set[str] = set()
        self.given_up = 0
        """Connections that are recorded to a part, or not at all."""

    def run(self, copies: Copies) -> None:
        """Read copies until no more come, then write what was being answered."""
        while (copy := copies.take()) is not None:
            self._take(copy)
        for conversation in self._open.values():
            conversation.break_off(time.monotonic())

    def _take(self, copy: Copy) -> None:
        if copy.connection in self._unread:
            if copy.what == "over":
                self._unread.discard(copy.connection)
            return
        conversation = self._open.get(copy.connection)
        if conversation is None:
            conversation = self._open[copy.connection] = Conversation(
                self._recording, self._secrets, self._tell
            )
        try:
            self._hand(conversation, copy)
        except h11.RemoteProtocolError as error:
            self._give_up(copy, conversation, "HTTP", f"It is not readable as HTTP/1 ({error}).")
        except Exception as error:  # whatever it is: the other connections go on
            self._give_up(
                copy, conversation, "fault", f"A fault of the program: {type(error).__name__}: {error}."
            )

    def _hand(self, conversation: Conversation, copy: Copy) -> None:
        match copy.what:
            case "asked":
                conversation.asked(copy.at, copy.data)
            case "answered":
                conversation.answered(copy.at, copy.data)
            case "lost":
                self._give_up(copy, conversation, "lost", "The recorder could not keep up.")
            case _:
                conversation.break_off(copy.at)
                del self._open[copy.connection]

    def _give_up(self, copy: Copy, conversation: Conversation, kind: str, why: str) -> None:
        """Read no more of a connection; what is said is said once of each kind."""
        self._unread.add(copy.connection)
        del self._open[copy.connection]
        conversation.break_off(copy.at, "the rest could not be read")
        self.given_up += 1
        if kind not in self._said:
            self._said.add(kind)
            self._complain(f"Connection {copy.connection} continues, but is no longer recorded. {why}")


def _connection(role: type[h11.SERVER] | type[h11.CLIENT]) -> h11.Connection:
    return h11.Connection(role, max_incomplete_event_size=LONGEST_HEAD)


def _fresh(connection: h11.Connection) -> h11.Connection:
    """What reads the next message: h11's own next cycle waits for both sides of a connection, and we have one."""
    made = _connection(connection.our_role)
    if rest := connection.trailing_data[0]:
        made.receive_data(rest)
    return made


def _pairs(head: h11.Request | h11.Response) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers.raw_items()]


def _by_name(headers: list[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}
