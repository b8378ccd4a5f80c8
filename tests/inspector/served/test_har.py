"""HAR files: what is opened of them is what the same exchange as JSON opens as; broken ones are told in one line.

`mitmdump.har` was written by mitmdump 11.0.2: two streams that broke off, with a key in a header.
"""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.errors import PromptError
from inspector.cli.main import main
from inspector.served.listing import outcome
from inspector.served.opening import OpenedRequest, ServedFile, exchanges_of, opened_request
from inspector.served.replies import Exchange, ServedReply, read_reply
from tests.inspector.served.test_replies import CHAT, COMPLETION, LLAMA, OLLAMA, SGLANG, TGI, VLLM

SAMPLE = Path(__file__).with_name("mitmdump.har")
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "seed": 3}
SAID = {"choices": [{"message": {"content": "Well é"}, "finish_reason": "stop"}]}
PARTS = [
    {"choices": [{"delta": {"content": text}, "finish_reason": end}]}
    for text, end in (("a é", None), ("猫", "stop"))
]
EVENTS = [f"data: {json.dumps(each, ensure_ascii=False)}" for each in PARTS]
STREAM = "".join(f"{each}\n\n" for each in (": keepalive 1/2", *EVENTS, "data: [DONE]"))
SSE = "text/event-stream"


def entry(
    body: Any = ASK, reply: Any = SAID, status: Any = 200, kind: str = "application/json"
) -> dict[str, Any]:
    """An exchange; texts stay as they are, other values become JSON."""
    asked, answered = (each if isinstance(each, str) else json.dumps(each) for each in (body, reply))
    return {
        "request": {"method": "POST", "postData": {"mimeType": "application/json", "text": asked}},
        "response": {"status": status, "content": {"mimeType": kind, "text": answered}},
    }


def coded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def har(*entries: Any) -> str:
    return json.dumps({"log": {"version": "1.2", "entries": list(entries)}})


class Files:
    """Opens files by their content."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "it"

    def path(self, content: str | bytes) -> str:
        self._path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(self._path)

    def open(self, content: str | bytes) -> list[Exchange]:
        return exchanges_of(self.path(content))

    def reply(self, each: Any) -> ServedReply:
        (exchange,) = self.open(har(each))
        assert exchange.reply is not None
        return read_reply(exchange.reply)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def session_of(exchange: Exchange) -> OpenedRequest:
    return replace(opened_request(ServedFile("", ()), exchange), exchange=None)


# ---- what is opened -------------------------------------------------------------------------------


def test_the_sample_of_mitmdump(files: Files) -> None:
    exchanges = exchanges_of(str(SAMPLE))
    entries = json.loads(SAMPLE.read_text("utf-8"))["log"]["entries"]
    assert [each.at for each in exchanges] == [1795892659.809289, 1795892661.338197]
    for number, (found, each) in enumerate(zip(exchanges, entries, strict=True), 1):
        (asked,) = files.open(each["request"]["postData"]["text"])
        (answered,) = files.open(each["response"]["content"]["text"])
        assert (found.number, found.body) == (number, asked.body)
        assert asked.body["messages"] == [{"role": "user", "content": f"hi {number}"}]
        assert found.reply is not None
        assert answered.reply is not None
        reply = read_reply(found.reply)
        assert reply == read_reply(answered.reply)
        assert reply.text == "tok0 étok1 étok2 étok3 étok4 é"
        assert reply.cut
    assert "real-key" not in repr(exchanges)


texts = st.text(max_size=12)
asked = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.fixed_dictionaries({"role": st.just("user"), "content": texts}), min_size=1, max_size=3
        )
    },
    optional={
        "temperature": st.floats(0, 2),
        "seed": st.integers(0, 9),
        "stop": texts,
        "wobble": st.none() | texts,
    },
) | st.fixed_dictionaries({"prompt": st.text(min_size=1, max_size=12)}, optional={"top_k": st.integers(1, 9)})
answers = st.sampled_from([CHAT, COMPLETION, VLLM, LLAMA, SGLANG, TGI, OLLAMA]) | st.builds(
    lambda text: {"choices": [{"message": {"content": text}}]}, texts
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked, answers, st.booleans(), st.sampled_from([None, 1]))
def test_json_and_har_open_as_equal_sessions(
    files: Files, body: Any, reply: Any, in_base64: bool, indent: int | None
) -> None:
    """JSON with characters as they are or escaped, bodies as text or in base64."""
    each = entry(json.dumps(body, ensure_ascii=not in_base64), json.dumps(reply, ensure_ascii=in_base64))
    if in_base64:
        for part in (each["request"]["postData"], each["response"]["content"]):
            part |= {"encoding": "base64", "text": coded(part["text"])}
    (plain,) = files.open(json.dumps({"request": body, "response": reply}))
    (found,) = files.open(json.dumps({"log": {"entries": [each]}}, indent=indent))
    assert session_of(found) == session_of(plain)


@pytest.mark.parametrize(
    "content",
    [
        {"mimeType": SSE, "text": STREAM},
        {"mimeType": f"{SSE}; charset=utf-8", "text": STREAM},
        {"mimeType": SSE, "text": STREAM.replace("\n", "\r\n")},
        {"mimeType": SSE, "text": STREAM.encode().decode("latin-1")},  # as mitmproxy 11 writes it
        {"mimeType": SSE, "text": coded(STREAM), "encoding": "base64"},
        {"text": STREAM},
    ],
)
def test_a_stream(files: Files, content: Any) -> None:
    reply = files.reply({**entry(), "response": {"status": 200, "content": content}})
    assert (reply.text, reply.finish, reply.cut, reply.form) == ("a é猫", "stop", False, "OpenAI chat")


def test_a_stream_of_json_lines(files: Files) -> None:
    parts = [{"message": {"content": "a"}}, {"message": {"content": "b"}, "done_reason": "stop"}]
    lines = "\n".join(map(json.dumps, parts))
    reply = files.reply(entry(reply=lines, kind="application/x-ndjson"))
    assert (reply.form, reply.text, reply.cut) == ("ollama", "ab", False)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (STREAM[: STREAM.index("猫")], "a é"),
        ("".join(f"{each}\n\n" for each in EVENTS[:1]), "a é"),
        (": keepalive 1/2\n\n", ""),
        (json.dumps(SAID)[:-9], ""),
    ],
)
@pytest.mark.parametrize("in_base64", [False, True])
def test_a_reply_that_broke_off(files: Files, reply: str, text: str, in_base64: bool) -> None:
    each = entry(reply=coded(reply) if in_base64 else reply)
    if in_base64:
        each["response"]["content"]["encoding"] = "base64"
    found = files.reply(each)
    assert (found.text, found.cut) == (text, True)


def test_base64_that_broke_off(files: Files) -> None:
    content = {"text": coded(STREAM)[:-10] + "=", "encoding": "base64"}
    found = files.reply({**entry(), "response": {"status": 200, "content": content}})
    assert (found.text, found.cut) == ("a é猫", True)


def test_what_the_server_refused(files: Files) -> None:
    assert (
        files.reply(entry(reply={"error": {"message": "no such model"}}, status=404)).error
        == "404 no such model"
    )
    assert files.reply(entry(reply="<h1>Bad gateway</h1>", status=502)).error == "502 <h1>Bad gateway</h1>"
    assert files.reply(entry(reply="", status=401)).error == "401"


def test_other_entries_are_left_out_and_numbers_stay(files: Files) -> None:
    others = [
        {"request": {"method": "GET"}},
        entry({"input": "embed this"}),
        entry("not JSON"),
        {"request": {"method": "POST"}},
        {"request": {"method": "OPTIONS", "postData": {"text": json.dumps(ASK)}}},
        {"request": {"method": "POST", "postData": {"params": [], "text": None}}},
    ]
    assert [each.number for each in files.open(har(*others, entry(), others[0], entry()))] == [7, 9]


def test_nothing_but_bodies_and_times_is_kept_of_a_message(files: Files) -> None:
    secret = {"name": "x-api-key", "value": "sk-secret"}
    each = entry()
    for part in (each["request"], each["response"]):
        part |= {"headers": [secret], "cookies": [secret], "queryString": [secret], "_note": "sk-secret"}
    each["request"]["url"] = "http://user:sk-secret@127.0.0.1/v1/chat/completions?key=sk-secret"
    found = files.open(har({**each, "serverIPAddress": "sk-secret", "comment": "sk-secret"}))
    assert "secret" not in repr(found)
    assert "secret" not in repr(opened_request(ServedFile("", tuple(found)), found[0]))


@pytest.mark.parametrize(
    "time", [None, 3, "", "soon", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00", []]
)
def test_a_time_that_is_none(files: Files, time: Any) -> None:
    (found,) = files.open(har({**entry(), "startedDateTime": time}))
    assert found.at == 0


COMMAND = "mitmdump --mode reverse:URL --set hardump=FILE"


class Answers(BaseHTTPRequestHandler):
    """A server that streams, as one without a charset does, to whoever asks."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", SSE)
        self.end_headers()
        self.wfile.write(STREAM.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.skipif(shutil.which("mitmdump") is None, reason="mitmproxy is not installed")
def test_the_command_of_the_page_writes_a_file_that_opens(tmp_path: Path) -> None:
    assert COMMAND in Path("inspector/help/parts/servers.md").read_text("utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server, file = HTTPServer(("127.0.0.1", 0), Answers), tmp_path / "it.har"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    words = shlex.split(COMMAND.replace("URL", url).replace("FILE", str(file)))
    proxy = subprocess.Popen([*words, "--listen-host", "127.0.0.1", "--listen-port", str(port)],
                             stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert proxy.stdout is not None
        assert any("listening at" in line for line in proxy.stdout)
        body, headers = json.dumps(ASK).encode(), {"Authorization": "Bearer sk-secret"}
        with urlopen(Request(f"http://127.0.0.1:{port}/v1?key=sk-secret", body, headers)) as answer:
            assert answer.read() == STREAM.encode()
        assert not file.exists()
    finally:
        proxy.send_signal(signal.SIGINT)
        proxy.communicate(timeout=60)
        server.shutdown()
        server.server_close()
    (found,) = exchanges_of(str(file))
    assert found.body == ASK
    assert found.reply is not None
    assert (read_reply(found.reply).text, read_reply(found.reply).cut) == ("a é猫", False)
    assert "sk-secret" in file.read_text("utf-8")
    assert "sk-secret" not in repr(found)


# ---- broken files ---------------------------------------------------------------------------------

WHOLE = har(entry())
NOT_ONE = "has no request for text among its"
BROKEN: dict[str, tuple[str | bytes, str]] = {
    "cut": (WHOLE[:-40], "is not valid JSON (line 1, column"),
    "cut at once": ('{"log": {"entr', "is not valid JSON (line 1, column"),
    "log is a list": ('{"log": []}', "it is a HAR file without a list of entries."),
    "no entries": ('{"log": {}}', "it is a HAR file without a list of entries."),
    "entries is a number": ('{"log": {"entries": 3}}', "it is a HAR file without a list of entries."),
    "entry is a number": (har(entry(), 3), "it, entry 2 has no request."),
    "no request": (har(entry(), {}), "it, entry 2 has no request."),
    "request is a text": (har({"request": "POST"}), "it, entry 1: request must be an object."),
    "postData is a list": (
        har({"request": {"method": "POST", "postData": []}}), "it, entry 1: postData must be an object.",
    ),
    "body is a number": (
        har({"request": {"method": "POST", "postData": {"text": 3}}}),
        "it, entry 1: the request's body can't be read: its text is none.",
    ),
    "body is no base64": (
        har({"request": {"method": "POST", "postData": {"text": "{}é=", "encoding": "base64"}}}),
        "it, entry 1: the request's body can't be read: it is not valid base64.",
    ),
    "no body": (har({"request": {"method": "POST"}}), f"{NOT_ONE} 1 entry, 1 of them POST."),
    "body is no JSON": (har(entry("{")), f"{NOT_ONE} 1 entry, 1 of them POST."),
    "body is deep": (har(entry('{"messages":' + "[" * 10**5)), f"{NOT_ONE} 1 entry, 1 of them POST."),
    "body has a long number": (har(entry("9" * 5000)), f"{NOT_ONE} 1 entry, 1 of them POST."),
    "GET alone": (har({"request": {"method": "GET"}}), f"{NOT_ONE} 1 entry, 0 of them POST."),
    "none": (har(), f"{NOT_ONE} 0 entries, 0 of them POST."),
    "many": (har(*[{"request": {"method": "GET"}}] * 10**5), f"{NOT_ONE} 100,000 entries, 0 of them POST."),
    "deep": ('{"log": {"entries": ' + "[" * 10**6, "is not valid JSON (it is nested too deeply)."),
    "response is a list": (har({**entry(), "response": []}), "it, entry 1: response must be an object."),
    "content is a text": (
        har({**entry(), "response": {"status": 200, "content": "x"}}), "it, entry 1: content must be an object.",
    ),
    "Latin-1": (WHOLE.replace("log", "l\xf6g").encode("latin-1"), "has no request for text and no reply."),
    "no response": (har({**entry(), "response": None}), "The request has no reply."),
    "never answered": (har({**entry(), "response": {"status": 0, "content": {}}}), "The request has no reply."),
    "no content": (har({**entry(), "response": {"status": 200}}), "The request has no reply."),
    "status is a text": (har(entry(status="200")), "Its reply can't be read: its status is no number."),
    "status is NaN": (har(entry(status=float("nan"))), "Its reply can't be read: its status is no number."),
    "reply is compressed": (
        har({**entry(), "response": {"status": 200, "content": {"text": "H4sA", "encoding": "base64"}}}),
        "Its reply can't be read: its 3 characters are neither JSON nor a stream.",
    ),
    "reply is no base64": (
        har({**entry(), "response": {"status": 200, "content": {"text": "%%%%", "encoding": "base64"}}}),
        "Its reply can't be read: it is not valid base64.",
    ),
    "reply is a list": (
        har({**entry(), "response": {"status": 200, "content": {"text": [1]}}}),
        "Its reply can't be read: its text is none.",
    ),
    "stream is cut in an event": (har(entry(reply=STREAM[: STREAM.index("猫")])), "The reply has no logprobs"),
    "claims gigabytes": (
        har({**entry(), "response": {"status": 200, "bodySize": 2**60, "content": {"size": 2**60, "text": "{}"}}}),
        "The reply has no logprobs",
    ),
    "half a surrogate pair": (har(entry({"prompt": "a\ud800"}, '{"choices": "\udce9"}')), "The reply has no logprobs"),
    "NaN in the body": (har(entry('{"prompt": "a", "temperature": NaN}')), "The reply has no logprobs"),
}  # fmt: skip
"""Files, and what is said where their first reply is opened without a model."""


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_told_in_one_line(
    name: str,
    files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content, words = BROKEN[name]
    monkeypatch.chdir(tmp_path)
    files.path(content)
    assert main(["open", "it", "--no-model", "-o", "made.trace"]) == 2
    said = capsys.readouterr().err.removesuffix("\n")
    assert words in said
    assert "\n" not in said
    assert said.rindex(". ") + 2 < len(said), "it says what to do"


def test_a_reply_that_can_not_be_read_is_told_where_its_request_is_opened(files: Files) -> None:
    (found,) = files.open(BROKEN["reply is no base64"][0])
    opened = opened_request(ServedFile("", ()), found)
    assert (opened.reply, outcome(found)) == (None, "unreadable")
    assert opened.request.notes[-1] == "Its reply can't be read: it is not valid base64."


def test_a_file_with_a_byte_order_mark(files: Files) -> None:
    assert len(files.open(WHOLE.encode("utf-8-sig"))) == 1


def test_a_log_that_is_no_har_file_stays_what_it_was(files: Files) -> None:
    lines = [{"log": "started", "stream": "stdout"}, ASK]
    assert [each.body for each in files.open("\n".join(map(json.dumps, lines)))] == [ASK]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from([
        "POST", "base64", json.dumps(ASK), json.dumps(SAID), STREAM, coded(STREAM), SSE]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["log", "entries", "request",
        "response", "postData", "content", "text", "encoding", "status", "method", "mimeType", "startedDateTime"]),
        inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(values, max_size=3), values, values, values)
def test_any_values_are_read_or_refused(
    files: Files, others: Any, request: Any, response: Any, content: Any
) -> None:
    for each in (
        {"request": request, "response": response},
        {**entry(), "response": response},
        {**entry(), "response": {"status": 200, "content": content}},
    ):
        for entries in ([each], [*others, each]):
            with suppress(PromptError):
                for found in files.open(har(*entries)):
                    outcome(found)
                    opened_request(ServedFile("", ()), found)
