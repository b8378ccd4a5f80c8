"""`inspector open` without a screen: what it lists, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    assert len(printed.out.splitlines()) == 12
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
    assert "The request has no reply." in complaint("open", file(json.dumps(ask)), "--no-model")
    assert "needs a terminal" in complaint("open", file(json.dumps(ask)), "--model", "pocket")
    assert "needs a terminal" in complaint("open", file(json.dumps(CHAT)))


def test_a_request_that_the_model_can_not_take_does_not_stop_the_others(
    events: Events, tmp_path: Path
) -> None:
    path = tmp_path / "two.jsonl"
    long = {"prompt": "a dog " * 2000, "max_tokens": 2}
    bodies = (long, {"prompt": [1]}, {"prompt": "Once", "max_tokens": 2})
    path.write_text("\n".join(map(json.dumps, bodies)))
    first, second, third = events("open", str(path), "--check", "--jsonl", "--model", "pocket")
    assert "context" in first["error"]
    assert "must be one text" in second["error"]
    assert third["error"] is None
    assert third["notes"] == ["The recording has no reply: what the engine generates is all there is."]
