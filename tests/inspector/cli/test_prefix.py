"""`inspector prefix`: breakages made on purpose, each found at its token with its cause."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import pocket
from engine.model.load import load_tokenizer
from engine.protocol import ChatOptions
from engine.protocol.tokens import Piece
from engine.settings import LoadSettings
from inspector.cli.main import main
from inspector.state.prefixes import SentPrompt, parting_of

TEMPLATE = """
{%- if tools %}<|im_start|>system
Tools: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content and loop.last %}<think>
{{ message.reasoning_content }}
</think>
{% endif %}{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SYSTEM = {"role": "system", "content": "You are kind, and you know the town. Today is 2026-11-27, 12:00."}
ASKED = {"role": "user", "content": "Tell me a story about a dog."}
SAID = {"role": "assistant", "content": "Once upon a time, there was a dog."}
MORE = {"role": "user", "content": "And then?"}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("weather", "clock")]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The bundled tokenizer, with a template that leaves earlier thinking out."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(pocket.directory()) / name, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def found(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """What the command finds of two bodies."""

    def run(one: dict[str, Any], other: dict[str, Any], answer: Any = None, *flags: str) -> dict[str, Any]:
        for name, body in (("a", one), ("b", other)):
            (tmp_path / f"{name}.json").write_text(json.dumps(body))
        paths = [str(tmp_path / f"{name}.json") for name in "ab"]
        if answer is not None:
            (tmp_path / "answer").write_text(answer if isinstance(answer, str) else json.dumps(answer))
            flags = (*flags, "--answer", str(tmp_path / "answer"))
        assert main(["prefix", *paths, "--model", str(model), "--json", *flags]) == 0
        event: dict[str, Any] = json.loads(capsys.readouterr().out)
        return event

    return run


def body(*messages: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def changed(message: dict[str, str], old: str, new: str) -> dict[str, str]:
    assert old in message["content"]
    return {**message, "content": message["content"].replace(old, new)}


@pytest.mark.parametrize(
    ("one", "other", "cause", "message", "ends"),
    [
        (body(SYSTEM, ASKED), body(changed(SYSTEM, "12:00", "12:01"), ASKED, SAID, MORE), "date or time", 0, "12:0"),
        (body(SYSTEM, ASKED), body(changed(SYSTEM, "11-27", "11-28"), ASKED), "date or time", 0, "2026-11-2"),
        (body(ASKED, tools=TOOLS), body(ASKED, tools=TOOLS[::-1]), "order of tools", None, '"name": "'),
        (body(ASKED, changed(SAID, "dog.", "dog. \n"), MORE), body(ASKED, SAID, MORE), "white space", 1, "a dog."),
        (body(SYSTEM, ASKED), body(changed(SYSTEM, "kind", "rude"), ASKED), "other text", 0, "You are"),
    ],
    ids=["time", "date", "tools", "white space", "text"],
)  # fmt: skip
def test_a_break_is_found_with_its_cause(
    found: Any, one: dict[str, Any], other: dict[str, Any], cause: str, message: int | None, ends: str
) -> None:
    event = found(one, other)
    assert (event["cause"], event["message"]) == (cause, message)
    assert event["before"].endswith(ends)
    assert event["first"] != event["second"]
    assert event["shared"] > 3
    assert event["lost"] > 0
    assert event["anew"] > 0


END = "<|im_end|>\n"


def test_thinking_that_was_generated_is_left_out_of_the_next_request(found: Any) -> None:
    """The cache holds what the model wrote; the template gives earlier thinking no place."""
    two = body(ASKED, {**SAID, "reasoning_content": "They want a dog."}, MORE)
    event = found(body(ASKED), two, f"<think>\nThey want a dog.\n</think>\n{SAID['content']}{END}")
    assert (event["cause"], event["message"]) == ("thinking", None)
    assert event["before"].endswith("assistant\n")
    assert event["first"].startswith("<think>")
    assert event["second"].startswith("Once upon")


def test_an_answer_as_text_and_as_its_tokens(found: Any) -> None:
    two = body(ASKED, SAID, MORE)
    event = found(body(ASKED), two, SAID["content"] + END)
    assert (event["cause"], event["lost"]) == (None, 0)
    tokens = load_tokenizer(LoadSettings())
    ids = tokens.encode(SAID["content"] + END, bare=True)
    assert found(body(ASKED), two, ids) == event
    dog = ids.index(tokens.encode(" dog", bare=True)[0])
    apart = [*tokens.encode(" d", bare=True), *tokens.encode("og", bare=True)]
    event = found(body(ASKED), two, [*ids[:dog], *apart, *ids[dog + 1 :]])
    assert (event["cause"], event["lost"]) == ("encoded anew", len(ids) - dog + 1)
    assert event["before"].endswith("there was a")


def test_the_time_is_measured(found: Any, model: Path) -> None:
    shutil.copy(pocket.directory() / "model.safetensors", model)
    one, two = body(SYSTEM, ASKED), body(changed(SYSTEM, "12:00", "12:01"), ASKED, SAID, MORE)
    plain = found(one, two)
    event = found(one, two, None, "--measure")
    assert {name: event[name] for name in plain} == plain
    assert (
        event["ran"] == event["anew"] + 1
    )  # the last token that both have runs again, for the logits after it
    assert event["ms"] > event["lost_ms"] > 0
    assert event["lost_ms"] == pytest.approx(event["ms"] * event["lost"] / event["ran"])


def test_a_conversation_that_goes_on_breaks_nothing(found: Any) -> None:
    event = found(body(SYSTEM, ASKED), body(SYSTEM, ASKED, SAID, MORE))
    assert (event["cause"], event["lost"], event["message"]) == (None, 0, None)
    assert event["anew"] > 10


def test_the_table(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text(json.dumps(body(SYSTEM, {"role": "user", "content": "\x1b[2J a"})))
    (tmp_path / "b.json").write_text(json.dumps([SYSTEM, {"role": "user", "content": "\x1b[2J b"}]))
    assert main(["prefix", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--model", str(model)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "cause    other text: the text differs" in out
    assert "request  message 2 (user) differs in B" in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not valid JSON"),
        ("[]", "has an empty list of messages"),
        ('{"prompt": "x"}', "has no list of messages"),
    ],
)
def test_what_is_no_request_is_refused(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text(text)
    assert main(["prefix", str(tmp_path / "a.json"), "-"]) == 2
    assert told in capsys.readouterr().err
    (tmp_path / "a.json").write_text(json.dumps(body(ASKED, SAID)))
    assert main(["prefix", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 2
    assert (
        "a.json ends with an answer, so it is not a request. Leave the answer out" in capsys.readouterr().err
    )
    (tmp_path / "a.json").write_text(json.dumps(body(ASKED)))
    for answer, why in (("", "The answer is empty."), ("[99999999]", "Token id 99999999 is outside")):
        (tmp_path / "answer").write_text(answer)
        given = [str(tmp_path / "a.json")] * 2 + ["--answer", str(tmp_path / "answer")]
        assert main(["prefix", *given]) == 2
        assert why in capsys.readouterr().err
    assert main(["prefix", "-", "-"]) == 2
    assert "Standard input can be read only once." in capsys.readouterr().err


# ---- pieces -------------------------------------------------------------------------------------


def request(*texts: str) -> SentPrompt:
    """A prompt of tokens, whose ids are those of their texts."""
    pieces = [Piece(sum(map(ord, text)) + 1000 * len(text), text, text.encode(), False) for text in texts]
    return SentPrompt((), ChatOptions(), pieces)


def test_text_that_is_encoded_anew() -> None:
    parting = parting_of(request("It", " r", "ains", " now"), request("It", " rains", " now", "!"))
    assert (parting.shared, parting.lost, parting.anew, parting.cause) == (1, 3, 3, "encoded anew")


@given(st.lists(st.sampled_from(["a", "b", " ", "12:", "00", "<think>", "x y"]), max_size=12),
       st.lists(st.sampled_from(["a", "b", " ", "12:", "00", "<think>", "x y"]), max_size=12))  # fmt: skip
def test_the_counts_add_up(one: list[str], other: list[str]) -> None:
    parting = parting_of(request(*one), request(*other))
    assert parting.shared + parting.lost == len(one)
    assert parting.shared + parting.anew == len(other)
    assert one[: parting.shared] == other[: parting.shared]
    assert parting.before == "".join(one[: parting.shared])
    if parting.lost and parting.anew:
        assert one[parting.shared] != other[parting.shared]
        assert parting.cause is not None
    else:
        assert parting.cause is None
