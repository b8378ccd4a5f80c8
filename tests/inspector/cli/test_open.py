"""`inspector open` without a screen: what it lists, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.settings import LoadSettings, Settings
from inspector.cli.main import main
from tests.inspector.cli.scripted import Complaint, Events
from tests.inspector.served.test_replies import CHAT

SERVED = Path(__file__).parents[1] / "served" / "served.har"


def test_the_requests_of_a_recording_are_listed(events: Events, capsys: pytest.CaptureFixture[str]) -> None:
    listed = events("open", str(SERVED), "--jsonl")
    assert [each["number"] for each in listed] == [2, 3, 5, 7, 9, 13, 18, 24, 26, 33, 36, 41]
    assert listed[0]["asked"] == "Once upon a time"
    assert main(["open", str(SERVED)]) == 0
    printed = capsys.readouterr()
    head, *rows = printed.out.splitlines()
    assert head.split() == ["number", "time", "kind", "reply", "asked"]
    assert len(rows) == 12
    assert "inspector open FILE 41" in printed.err


def test_what_can_not_be_opened_is_refused_with_what_to_do(complaint: Complaint, tmp_path: Path) -> None:
    def file(content: str | bytes) -> str:
        path = tmp_path / "it.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    assert "There is no request 4." in complaint("open", str(SERVED), "4")
    assert "There is no file" in complaint("open", str(tmp_path / "none"))
    assert "is a directory" in complaint("open", str(tmp_path)).lower()
    for content in ("", "{", "[]", "3", '{"a": 1}', b"\xff\xfe", "[" * 100_000, "data: x\n"):
        assert "has no request for text and no reply" in complaint(
            "open", file(content)
        ) or "logprobs" in complaint("open", file(content), "--no-model", "-o", str(tmp_path / "x.trace"))
    ask = {"messages": [{"role": "user", "content": "Hi"}], "model": "gpt-x"}
    said = complaint("open", file(json.dumps(ask)), "--check")
    assert (
        said
        == "The request asks for 'gpt-x', which isn't on the disk. Give the model that answered with --model."
    )
    assert "The request names no model." in complaint("open", file('{"prompt": "Once"}'), "--check")
    assert "The request has no reply." in complaint("open", file(json.dumps(ask)), "--no-model")
    assert "needs a terminal" in complaint("open", file(json.dumps(ask)), "--model", "pocket")
    assert "needs a terminal" in complaint("open", file(json.dumps(CHAT)))


@pytest.mark.parametrize("flags", [[], ["--no-save"]])
@pytest.mark.parametrize("argv", [["open", "REQUEST", "--model", "pocket"], ["--model", "pocket"]])
def test_the_screen_keeps_the_session_unless_it_is_not_to(
    argv: list[str], flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = tmp_path / "request.json"
    request.write_text('{"prompt": "Once", "seed": 3}')
    opened: list[dict[str, Any]] = []

    def note(load: LoadSettings, settings: Settings, **given: Any) -> int:
        opened.append({"load": load, **given})
        return 0

    monkeypatch.setattr("inspector.cli.screen.check_terminal", lambda *_, **__: None)
    monkeypatch.setattr("inspector.cli.screen.run_app", note)
    assert main([str(request) if each == "REQUEST" else each for each in argv] + flags) == 0
    (given,) = opened
    assert given["load"].model == "pocket"
    assert (given["save"] is None) == bool(flags)


def test_a_request_that_the_model_can_not_take_does_not_stop_the_others(
    events: Events, tmp_path: Path
) -> None:
    path = tmp_path / "two.jsonl"
    long = {"prompt": "a dog " * 2000, "max_tokens": 2}
    bodies = (long, {"prompt": ["a", "b"]}, {"prompt": "Once", "max_tokens": 2, "logit_bias": {"99999": 1}})
    path.write_text("\n".join(map(json.dumps, bodies)))
    first, second, third = events("open", str(path), "--check", "--jsonl", "--model", "pocket")
    assert "context" in first["error"]
    assert "must be one text" in second["error"]
    assert third["error"] is None
    assert third["notes"] == [
        "logit_bias: the model has no tokens with these ids: 99999.",
        "The recording has no reply: what the engine generates is all there is.",
    ]


GREEDY = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 12}
"""The bundled model continues it so: `, there was a little girl named Lily. She loved to`."""
END = "<|endoftext|>"


@pytest.mark.parametrize(
    ("request_has", "choice", "count", "texts", "first"),
    [
        ({"stop": ["girl"]}, {"text": ", there was a little "}, 6, ", there was a little girl", None),
        ({"stop": ["girl"]}, {"text": ", there was a little "}, None, ", there was a little girl", None),
        ({"stop": ["x"]}, {"text": ", there was"}, 3, ", there was", None),
        ({}, {"text": ""}, 1, END, 0),
        ({}, {"text": ""}, None, END, 0),
        ({}, {"text": ", there was"}, 4, f", there was{END}", 3),
        ({}, {"text": ", there was"}, None, f", there was{END}", 3),
        ({}, {"text": ", there was", "finish_reason": "length"}, 3, ", there was", None),
        ({}, {"text": ", there was", "stop_reason": " a"}, 4, ", there was", None),
        ({"prompt": "Tom was sad. The end"}, {"text": "."}, 2, f".{END}", None),
        ({"prompt": "Tom was sad. The end"}, {"text": "."}, 1, f".{END}", None),
        ({"prompt": "Tom was sad. The end"}, {"text": "."}, None, f".{END}", None),
        ({}, {"text": "", "finish_reason": "length"}, 0, "", None),
    ],
)  # fmt: skip
def test_no_token_is_compared_that_was_not_served(
    events: Events, tmp_path: Path, request_has: dict[str, Any], choice: dict[str, Any], count: int | None, texts: str,
    first: int | None,
) -> None:  # fmt: skip
    """Where a reply ends its count of tokens and its finish reason say; mlx_lm's generator may continue there."""
    usage = {} if count is None else {"usage": {"prompt_tokens": 4, "completion_tokens": count}}
    answer = {"choices": [{"finish_reason": "stop", **choice}], **usage}
    path = tmp_path / "it.json"
    path.write_text(json.dumps({"request": {**GREEDY, **request_has}, "response": answer}))
    (found,) = events("open", str(path), "--check", "--jsonl", "--model", "pocket")
    assert "".join(each["text"] for each in found["tokens"]) == texts
    assert found["first"] == first


def test_half_a_character_in_a_reply_ends_nothing(events: Events, tmp_path: Path) -> None:
    path = tmp_path / "half.json"
    request = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 12}
    choice = {"text": ", \ud83d", "finish_reason": "length"}
    path.write_text(json.dumps({"request": request, "response": {"choices": [choice]}}))
    (found,) = events("open", str(path), "--check", "--jsonl", "--model", "pocket")
    assert (found["error"], found["same_text"]) == (None, True)
    assert found["tokens"][-1]["text"] == "�"
    path.write_text(json.dumps({"response": "\ud800", "logprobs": [{"token": "\ud800", "logprob": -1}]}))
    assert main(["open", str(path), "--no-model", "-o", str(tmp_path / "half.trace")]) == 0
