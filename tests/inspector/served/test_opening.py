"""Files of requests and replies: lines of a batch, streams as lines or in a list, and how they are encoded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inspector.served.listing import asked, outcome
from inspector.served.opening import exchanges_of
from inspector.served.replies import Exchange, ServedReply, read_reply
from tests.inspector.served.test_har import ASK, WHOLE
from tests.inspector.served.test_replies import CHAT

OLLAMA = (
    {"model": "m", "message": {"role": "assistant", "content": "a"}, "done": False},
    {"model": "m", "message": {"role": "assistant", "content": "b"}, "done": False},
    {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 2},
)
CHUNKS = (
    {"id": "c", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]},
    {"id": "c", "choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}]},
    {"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
)


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """Opens a file of some content, or of some values as lines."""

    def opened(*content: Any) -> list[Exchange]:
        path = tmp_path / "it"
        texts = [each if isinstance(each, bytes | str) else json.dumps(each) for each in content]
        path.write_bytes(b"\n".join(each if isinstance(each, bytes) else each.encode() for each in texts))
        return exchanges_of(str(path))

    return opened


def reply_of(exchange: Exchange) -> ServedReply:
    assert exchange.reply is not None
    return read_reply(exchange.reply)


def test_lines_of_a_batch_have_their_status_and_their_error(opened: Any) -> None:
    found = opened(
        {"custom_id": "r1", "error": None, "response": {"status_code": 200, "body": CHAT}},
        {"custom_id": "r2", "response": {"status_code": 400, "body": {"error": {"message": "long"}}}, "error": None},
        {"custom_id": "r3", "response": None, "error": {"message": "expired"}},
        {"custom_id": "r4", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once"}},
    )  # fmt: skip
    assert [reply_of(each).error for each in found[:3]] == ["", "400 long", "expired"]
    assert reply_of(found[0]).text == "Hé!"
    assert [outcome(each) for each in found] == ["4 tokens", "400", "refused", "no reply"]
    assert found[3].body == {"prompt": "Once"}


@pytest.mark.parametrize("parts", [OLLAMA, CHUNKS], ids=["ollama", "OpenAI"])
def test_the_parts_of_a_stream_are_one_reply(opened: Any, parts: Any) -> None:
    for found in (opened(*parts), opened(list(parts)), opened("", *parts, "")):
        (one,) = found
        assert (reply_of(one).text, reply_of(one).finish, reply_of(one).cut) == ("ab", "stop", False)
        assert reply_of(one).completion_tokens == 2
    (one,) = opened({"request": ASK, "response": list(parts)})
    assert (one.body, reply_of(one).text) == (ASK, "ab")
    assert [reply_of(each).text for each in opened(*OLLAMA, *CHUNKS, *OLLAMA)] == ["ab"] * 3
    assert reply_of(opened(*parts[:1], *parts[:1])[0]).cut


def test_whole_replies_stay_apart(opened: Any) -> None:
    one = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}
    for found in (opened(one, one), opened([one, one])):
        assert [reply_of(each).text for each in found] == ["a", "a"]
    assert len(opened(OLLAMA[0], {"request": ASK, "response": one}, one)) == 3


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"prompt": "Once\n upon"}, ("Once upon", "completion")),
        ({"messages": []}, ("", "chat")),
        ({"messages": [{"role": "system", "content": "Be kind."}]}, ("", "chat")),
        (
            {
                "messages": [
                    {"role": "user", "content": "First?"},
                    {"role": "user", "content": "Second?"},
                    {"role": "assistant", "content": "Yes."},
                ]
            },
            ("Second?", "chat"),
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, "?", {"text": "b"}]}]},
            ("a b", "chat"),
        ),
    ],
)
def test_a_request_is_listed_by_the_last_words_of_its_user(opened: Any, body: Any, told: Any) -> None:
    (found,) = opened(body)
    assert asked(found) == told


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_makes_no_difference(opened: Any, encoding: str) -> None:
    (found,) = opened(WHOLE.encode(encoding))
    assert found.body == ASK
    har = json.loads(WHOLE)
    response = har["log"]["entries"][0]["response"]
    response["content"] = {"mimeType": "application/json", "text": "\ufeff" + json.dumps(CHAT)}
    (found,) = opened(har)
    assert reply_of(found).text == "Hé!"
