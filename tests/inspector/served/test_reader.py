"""What is read of the bytes that passed: framings, cuts anywhere, what ends too early, and what is no HTTP."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.served import bodies
from inspector.served.copies import What
from inspector.served.exchange import Exchange
from tests.inspector.served.recorded import chunked, cut, read, reply, request

Passed = list[tuple[What, bytes]]
VALUE = {"text": 'né 🙂 "\\', "list": [1, 2.5, None, {"deep": []}]}
BODY = json.dumps(VALUE, ensure_ascii=False).encode()
EVENTS: list[Any] = [
    ": keepalive 1/2",
    {"choices": [{"text": "é\n\n🙂"}]},
    "two\nlines",
    {"usage": {"prompt_tokens": 3}},
    "[DONE]",
]
STREAM = (
    b": keepalive 1/2\n\n"
    + b"data: " + json.dumps(EVENTS[1], ensure_ascii=False).encode() + b"\r\n\r\n"
    + b"event: name\nid: 7\ndata: two\ndata: lines\n\n"
    + b'data:{"usage":{"prompt_tokens":3}}\n\ndata: [DONE]\n\n'
)  # fmt: skip
PLACES = st.lists(st.integers(0, 10**6), max_size=30)
SSE = "text/event-stream"


def framed(framing: str, body: bytes, kind: str, places: list[int]) -> bytes:
    """A reply, its end told in one of the ways there are."""
    match framing:
        case "length":
            return reply(body, f"Content-Length: {len(body)}", kind=kind)
        case "chunked":
            return reply(chunked(body, places), "Transfer-Encoding: chunked", kind=kind)
        case "gzip":
            body = gzip.compress(body)
            return reply(
                chunked(body, places), "transfer-encoding: chunked", "content-encoding: gzip", kind=kind
            )
        case "deflate":
            body = zlib.compress(body)
            return reply(body, f"Content-Length: {len(body)}", "Content-Encoding: deflate", kind=kind)
        case _:
            return reply(body, kind=kind).replace(b"HTTP/1.1", b"HTTP/1.0")


def passed(asked: bytes, answered: bytes, asked_at: list[int], answered_at: list[int]) -> Passed:
    """A request and its reply in pieces, and the ends of both."""
    return [
        *(("asked", piece) for piece in cut(asked, asked_at)),
        *(("answered", piece) for piece in cut(answered, answered_at)),
        ("answered", b""),
        ("over", b""),
    ]


def exchanges(*given: Passed) -> list[Exchange]:
    """What is read of them."""
    with TemporaryDirectory() as directory:
        return read(Path(directory) / "r.jsonl", [each for part in given for each in part]).exchanges()


@given(
    st.sampled_from(["length", "chunked", "gzip", "deflate", "end"]), st.booleans(), PLACES, PLACES, PLACES
)
def test_bodies_are_read_in_every_framing_and_wherever_they_are_cut(
    framing: str, streamed: bool, chunks: list[int], asked_at: list[int], answered_at: list[int]
) -> None:
    answered = framed(framing, STREAM if streamed else BODY, SSE if streamed else "application/json", chunks)
    asked = request(BODY)
    if len(chunks) % 2:
        head = b"POST /v1 HTTP/1.1\r\nhost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
        asked = head + chunked(BODY, chunks)
    (found,) = exchanges(passed(asked, answered, asked_at, answered_at))
    assert (found.method, found.body, found.note) == ("POST", VALUE, "")
    assert found.reply is not None
    assert (found.reply.status, found.reply.cut, found.reply.note) == (200, False, "")
    if streamed:
        assert [event for _, event in found.reply.events] == EVENTS
        times = [ms for ms, _ in found.reply.events]
        assert times == sorted(times)
        assert found.reply.first_ms <= times[0]
        assert times[-1] <= found.reply.last_ms
    else:
        assert found.reply.body == VALUE


def test_times_count_from_the_end_of_the_request(tmp_path: Path) -> None:
    asked, answered = request(), reply(STREAM, kind=SSE)
    found = read(
        tmp_path / "r.jsonl",
        [("asked", asked[:-1]), ("asked", asked[-1:]), ("answered", answered[:-50]), ("answered", answered[-50:]),
         ("answered", b""), ("over", b"")],
    ).exchanges()[0].reply  # fmt: skip
    assert found is not None
    assert (found.first_ms, found.last_ms) == (1.0, 3.0)
    assert [ms for ms, _ in found.events] == [1.0, 1.0, 1.0, 2.0, 2.0]


def test_requests_of_one_connection_get_their_own_replies() -> None:
    """One after another, and sent ahead: also one without a body, one that waits to be allowed to send its own."""
    head = request(b"", "/v1/models", method="HEAD")
    expects = request(BODY, "/c", "Expect: 100-continue")
    asked = [
        request(b'{"n":1}', "/a"),
        head,
        expects,
        request(b'{"n":4}', "/d"),
        request(b"", "/e", method="GET"),
    ]
    go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    answered = [
        framed("length", b"1", "application/json", []),
        reply(b"", "Content-Length: 999"),
        go_on + framed("chunked", b"3", "application/json", [1]),
        reply(b"", status="204 No Content"),
        reply(b"", 'ETag: "x"', "Content-Length: 7", status="304 Not Modified"),
    ]
    ahead: Passed = [("asked", b"".join(asked)), ("answered", b"".join(answered)), ("over", b"")]
    turns: Passed = []
    for one, other in zip(asked, answered, strict=True):
        turns += [("asked", one), ("answered", other)]
    for together in (ahead, [*turns, ("over", b"")]):
        found = exchanges(together)
        assert [each.path for each in found] == ["/a", "/v1/models", "/c", "/d", "/e"]
        replies = [each.reply for each in found]
        assert [each and (each.status, each.body, each.cut) for each in replies] == [
            (200, 1, False), (200, "", False), (200, 3, False), (204, "", False), (304, "", False),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("answered", "when_closed", "when_reset"),
    [
        (framed("length", BODY, "application/json", [])[:-1], True, True),
        (framed("chunked", STREAM, SSE, [9])[:-5], False, False),  # [DONE] came
        (framed("chunked", STREAM[:-16], SSE, [9])[:-30], True, True),
        (framed("chunked", STREAM[:-16], SSE, [9]), False, False),  # without [DONE], as other servers end
        (framed("end", STREAM[:-16], SSE, []), True, True),
        (framed("end", STREAM[:-2], SSE, []), False, False),  # [DONE] without its line's end
        (framed("end", STREAM, SSE, []), False, False),
        (framed("end", BODY[:-1], "application/json", []), True, True),
        (framed("end", b"plain", "text/plain", []), False, True),
        (framed("end", b"Not Found", "application/json", []), False, True),  # as mlx_lm.server says
        (framed("end", STREAM, SSE, [])[:80], True, True),
        (framed("end", STREAM, SSE, [])[:30], None, None),  # in its head
        (b"", None, None),
    ],
)
def test_a_reply_that_breaks_off_is_cut(
    answered: bytes, when_closed: bool | None, when_reset: bool | None
) -> None:
    begun: Passed = [("asked", request()), *[("answered", answered)] * bool(answered)]  # type: ignore[list-item]
    for end, is_cut in ([("answered", b""), ("over", b"")], when_closed), ([("over", b"")], when_reset):
        (found,) = exchanges(begun, end)  # type: ignore[arg-type]
        assert (found.reply and found.reply.cut) is is_cut


def test_an_answer_to_half_a_request_is_recorded_with_it() -> None:
    asked = request(b"x" * 1000)
    refusal = reply(b'{"error":1}', "Content-Length: 11", status="413 Too Large")
    (found,) = exchanges(
        [("asked", asked[:-900]), ("answered", refusal), ("asked", asked[-900:]), ("over", b"")]
    )
    assert found.body == "x" * 100
    assert found.note == "answered before the request was complete"
    assert found.reply is not None
    assert (found.reply.status, found.reply.body) == (413, {"error": 1})


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9, b"GET /\r\n\r\n", b"\0" * 600_000],
)
def test_what_is_no_http_is_said_once_and_others_are_read(garbage: bytes, tmp_path: Path) -> None:
    made = read(
        tmp_path / "r.jsonl", [("asked", garbage), ("asked", garbage), ("answered", b"!"), ("over", b"")]
    )
    (complaint,) = made.complaints
    assert complaint.startswith(
        "Connection 1 continues, but is no longer recorded. It is not readable as HTTP/1"
    )
    assert made.exchanges() == []


PIECES = st.sampled_from(
    [request(BODY), request(b""), reply(BODY), reply(STREAM, kind=SSE), b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n",
     framed("chunked", STREAM, SSE, [5]), b"Content-Length: -1\r\n", b"GET /\r\n\r\n", b"5\r\nhello", b"\xff\0"]
) | st.binary(min_size=1, max_size=20)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(["asked", "answered"]), PIECES), max_size=12))
def test_anything_may_pass(pieces: Passed) -> None:
    """What can't be read is no fault of the program, and each exchange has both of its lines at most once."""
    with TemporaryDirectory() as directory:
        made = read(Path(directory) / "r.jsonl", [*pieces, ("over", b"")])
        assert all("It is not readable as HTTP/1" in each for each in made.complaints)
        lines = [json.loads(line) for line in made.path.read_bytes().splitlines()[1:]]
    counted = Counter((line["event"], line["exchange"]) for line in lines)
    assert set(counted.values()) <= {1}


def test_websockets_pass_and_are_not_read(tmp_path: Path) -> None:
    asked = b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    switched = (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi"
    )
    made = read(
        tmp_path / "r.jsonl",
        [("asked", asked), ("answered", switched), ("asked", b"\x81\x80"), ("over", b"")],
    )
    assert len(made.complaints) == 1
    assert [each.reply for each in made.exchanges()] == [None]


@pytest.mark.parametrize(
    ("lines", "body", "note"),
    [
        (["Content-Encoding: br"], b"\x8b\x01", "2 bytes of br, which are not recorded"),
        (["Content-Encoding: gzip"], b"no gzip", "7 bytes of gzip, which are not recorded"),
        (["Content-Type: audio/wav"], b"RIFF\xff\xff", "6 bytes of audio/wav, which are not recorded"),
        (
            ["Content-Type: multipart/form-data"],
            b"--x",
            "3 bytes of multipart/form-data, which are not recorded",
        ),
    ],
)
def test_what_is_no_text_is_counted(lines: list[str], body: bytes, note: str) -> None:
    head = "\r\n".join(
        ["POST / HTTP/1.1", "Host: h", *lines, f"Content-Length: {len(body)}", "", ""]
    ).encode()
    answered = (
        "\r\n".join(["HTTP/1.1 200 OK", *lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
    )
    (found,) = exchanges([("asked", head + body), ("answered", answered), ("over", b"")])
    assert found.reply is not None
    assert (found.body, found.note, found.reply.body, found.reply.note) == (None, note, None, note)


def test_hostile_json_is_a_text() -> None:
    for text in (
        "[" * 100_000,
        '{"a":' * 5000 + "1" + "}" * 5000,
        "[" * 400 + "]" * 400,
        "9" * 6000,
        '{"a"',
        "\ud800",
    ):
        body = text.encode(errors="surrogatepass")
        (found,) = exchanges(passed(request(body), framed("length", body, "application/json", []), [], []))
        assert found.reply is not None
        assert found.note or found.body in (text, *([json.loads(text)] if len(text) == 800 else []))


@pytest.mark.wide(2)
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_body_beyond_the_bound_is_recorded_as_its_beginning(
    zipped: bool, streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb of zeros, too."""
    monkeypatch.setattr(bodies, "MOST", most := 2**18)
    line = b'data: {"a": "' + b"0" * 1000 + b'"}\n\n' if streamed else b"0" * 2**10
    body = line * (50 * 2**10)
    sent = gzip.compress(body, 1) if zipped else body
    head = [f"Content-Length: {len(sent)}", *["Content-Encoding: gzip"] * zipped]
    answered = reply(sent, *head, kind=SSE if streamed else "text/plain")
    made = read(tmp_path / "r.jsonl", [("asked", request()), *(("answered", answered[place:place + 2**16]) for place in
        range(0, len(answered), 2**16)), ("over", b"")])  # fmt: skip
    (found,) = made.exchanges()
    assert found.reply is not None
    assert found.reply.note == f"recorded are the first {most:,} of {len(sent):,} bytes"
    assert found.reply.cut is False
    if streamed:
        whole = [event for _, event in found.reply.events if event == {"a": "0" * 1000}]
        assert len(whole) == most // len(line)
    else:
        assert found.reply.body == "0" * most
