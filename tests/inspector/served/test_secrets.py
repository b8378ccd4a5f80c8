"""Keys are in no recording, wherever a request or a reply has them; what belongs to the prompt stays."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.served.secrets import LEAST, MASK, PLACEHOLDERS, Secrets
from tests.inspector.served.recorded import read, reply, request

KEY = "sk-live/Tr0ub4dor&3+never=stored"
WRITTEN = (
    KEY,
    quote(KEY),
    quote(KEY, safe=""),
    quote_plus(KEY),
    quote(KEY, safe="").lower(),
    json.dumps(KEY),
    "Tr0ub4dor",
)


def recorded(tmp_path: Path, asked: bytes, answered: bytes = b"") -> str:
    """The text of the recording of one exchange."""
    made = read(
        tmp_path / "r.jsonl", [("asked", asked), ("answered", answered), ("answered", b""), ("over", b"")]
    )
    assert made.complaints == []
    assert len(made.exchanges()) == 1
    assert made.path.stat().st_mode & 0o777 == 0o600
    return made.path.read_text(encoding="utf-8")


def nowhere(text: str) -> None:
    """The key is not in a text, however written."""
    for form in WRITTEN:
        assert form not in text
        assert form not in text.replace("\\/", "/").replace("\\\\", "\\")


@pytest.mark.parametrize(
    "header",
    [
        f"Authorization: Bearer {KEY}", f"authorization:   bearer {KEY}  ", f"Authorization: {KEY}",
        f"X-Api-Key: {KEY}",
        f"Proxy-Authorization: Basic {base64.b64encode(f'user:{KEY}'.encode()).decode()}", f"api-key: {KEY}",
        f"X-Goog-Api-Key: {KEY}", f"Cookie: a=b; session={KEY}", f"X-Some-Token: {KEY}", f"X-My-Secret: {KEY}",
        f"X-Password: {KEY}", f"Ocp-Apim-Subscription-Key: {KEY}", f"CF-Access-Client-Secret: {KEY}",
    ],
)  # fmt: skip
def test_keys_in_headers_are_masked_wherever_they_come_again(header: str, tmp_path: Path) -> None:
    error = {
        "error": {
            "message": f"Wrong key: {KEY}, {quote(KEY, safe='')} {quote_plus(KEY)}",
            KEY: [KEY, f"Bearer {KEY}"],
        }
    }
    body = json.dumps(error).replace("/", "\\/").encode()
    asked = request(
        json.dumps({"messages": [{"content": f"my key is {KEY}"}]}).encode(), f"/v1/{quote(KEY)}?a=1", header
    )
    text = recorded(
        tmp_path, asked, reply(body, f"Content-Length: {len(body)}", f"X-Request-Id: {KEY}", status="401 No")
    )
    nowhere(text)
    assert text.count(MASK) >= 7
    assert "keys were masked in it" in text
    assert "Wrong key: " in text


@pytest.mark.parametrize("kind", ["text/event-stream", "text/plain"])
def test_keys_in_streams_and_texts_are_masked(kind: str, tmp_path: Path) -> None:
    body = f'data: {{"error": "{quote(KEY, safe="")} {KEY}"}}\n\ndata: not {KEY}\n\n: {KEY}\n\n'.encode()
    text = recorded(tmp_path, request(b"{}", "/", f"Authorization: Bearer {KEY}"), reply(body, kind=kind))
    nowhere(text)
    assert text.count(MASK) >= 2


@pytest.mark.parametrize(
    "query",
    [
        "key={}",
        "a=1&api_key={}&b=2",
        "api%5Fkey={}",
        "access_token={}",
        "X-Amz-Signature={}",
        "SIG={}",
        "apiKey={}",
    ],
)
def test_keys_in_the_path_are_masked(query: str, tmp_path: Path) -> None:
    body = json.dumps({"error": f"no such key {KEY}"}).encode()
    asked = request(b"{}", "/v1/models?limit=5&" + query.format(quote(KEY, safe="")))
    text = recorded(tmp_path, asked, reply(body, f"Content-Length: {len(body)}"))
    nowhere(text)
    assert "/v1/models?limit=5&" in text


def test_keys_that_a_server_gives_are_masked(tmp_path: Path) -> None:
    """And the pieces of an answer that it calls tokens are not."""
    values = (
        {"client_secret": {"value": KEY}},
        {"access_token": KEY, "api_key": KEY},
        {"token": {"text": " a"}},
    )
    body = b"".join(b"data: %s\n\n" % json.dumps(value).encode() for value in values)
    text = recorded(tmp_path, request(), reply(body, kind="text/event-stream"))
    nowhere(text)
    assert '{"token":{"text":" a"}}' in text


def test_users_in_urls_are_left_out(tmp_path: Path) -> None:
    text = recorded(tmp_path, request(b"{}", f"http://user:{quote(KEY, safe='')}@here/v1"))
    nowhere(text)
    assert '"path":"http://here/v1"' in text


@pytest.mark.parametrize(
    "body",
    [
        {"api_key": KEY}, {"apiKey": KEY}, {"authorization": f"Bearer {KEY}"}, {"access_token": KEY}, {"password": KEY},
        {"extra_headers": {"X": KEY}}, {"headers": {"Authorization": f"Bearer {KEY}"}}, {"secret": {"a": [KEY]}},
        {"tools": [{"type": "mcp", "server_url": f"https://u:{KEY}@h/sse?key={quote(KEY)}", "authorization": KEY}]},
        {"tools": [{"type": "mcp", "headers": {"Authorization": f"Bearer {KEY}", "X-Other": KEY}}]},
        {"mcp_servers": [{"type": "url", "url": "https://h", "authorization_token": KEY}]},
    ],
)  # fmt: skip
def test_keys_in_the_fields_for_them_are_masked(body: dict[str, Any], tmp_path: Path) -> None:
    asked = request(json.dumps({"model": "m", **body}).encode())
    echo = json.dumps({"tools": str(body), "also": f"-{KEY}-"}).encode()
    text = recorded(tmp_path, asked, reply(echo, f"Content-Length: {len(echo)}"))
    nowhere(text)
    assert '"model":"m"' in text


@pytest.mark.parametrize("end", ["", "}", "]"])
def test_keys_in_a_body_that_is_no_json_are_masked(end: str, tmp_path: Path) -> None:
    for body in (f'{{"a": 1, "api_key": "{KEY}", ', f"a=1&api_key={quote(KEY)}&b=2", f"password: '{KEY}'\n"):
        (directory := tmp_path / str(len(body))).mkdir()
        text = recorded(directory, request((body + end + "{").encode()))
        nowhere(text)
        assert MASK in text


def test_what_belongs_to_the_prompt_stays(tmp_path: Path) -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "enter",
            "parameters": {"properties": {"password": {"type": "string"}, "api_key": {"default": "none"}}},
        },
    }
    body = {
        "messages": [{"role": "user", "content": "password: swordfish, key=open", "token": "kept"}],
        "tools": [tool], "max_tokens": 5, "eos_token": "</s>", "prompt_cache_key": "mine",
        "stop_token_ids": [1], "add_special_token": True,
    }  # fmt: skip
    asked = request(json.dumps(body).encode(), "/v1?limit=3", "Authorization: Bearer dummy", "X-Api-Key: x")
    made = read(tmp_path / "r.jsonl", [("asked", asked), ("over", b"")])
    (found,) = made.exchanges()
    assert (found.body, found.path, found.note) == (body, "/v1?limit=3", "")


def test_headers_are_recorded_by_a_list(tmp_path: Path) -> None:
    lines = ["X-Unknown: a", "Accept: text/plain", "User-Agent: me", "X-Forwarded-For: 1.2.3.4"]
    answered = reply(
        b"1", "Content-Length: 1", "Set-Cookie: id=abcdefgh; Path=/", "Server: s", "X-Odd: abcdefgh"
    )
    made = read(
        tmp_path / "r.jsonl", [("asked", request(b"{}", "/", *lines)), ("answered", answered), ("over", b"")]
    )
    (found,) = made.exchanges()
    assert [name for name, _ in found.headers] == [
        "Host",
        "Content-Type",
        "Accept",
        "User-Agent",
        "Content-Length",
    ]
    assert found.reply is not None
    assert [name for name, _ in found.reply.headers] == ["Content-Type", "Content-Length", "Server"]


@given(st.text(min_size=LEAST, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_any_secret_is_masked_in_any_form(key: str, before: str, after: str) -> None:
    key = key.strip().strip("\"'")
    secrets = Secrets()
    secrets.learn_headers([("Authorization", f"Bearer {key}")])
    if len(key) < LEAST or key.lower() in PLACEHOLDERS:
        return
    for form in (key, *([quote(key, safe=""), quote_plus(key)] if key.isascii() else [])):
        found = secrets.value({"a": [before + form + after]})
        assert form not in found["a"][0].replace(MASK, "\0")
