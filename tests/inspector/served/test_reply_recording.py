"""A reply without its model: a recording that replays, in which nothing that isn't known looks measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from engine.errors import PromptError
from engine.protocol import ModelFacts, Prefilled, PromptOpened, Step
from engine.recording import load as load_trace
from engine.recording import save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.cli.main import main
from inspector.scales import METRIC
from inspector.served.opening import exchanges_of
from inspector.served.replies import Exchange, Reply
from inspector.served.reply_recording import recording_of
from inspector.session.playback import Opening, checked
from tests.inspector.served.test_replies import (
    CHAT,
    COMPLETION,
    LLAMA,
    LLAMA_PROBS,
    OLLAMA,
    SGLANG,
    TGI,
    VLLM,
)
from tests.inspector.views.sampler.test_what_if_real import until

OTHERS = (COMPLETION, VLLM, LLAMA, LLAMA_PROBS, SGLANG, TGI, OLLAMA)
SERVED = Path(__file__).with_name("served.har")
ASK = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Well?"}]}


def exchange(body: Any, asked: Any = None) -> Exchange:
    return Exchange(1, 0.0, asked, Reply(200, False, body, ()))


def steps_of(body: Any, asked: Any = None) -> list[Step]:
    return [each.value for each in recording_of(exchange(body, asked)) if isinstance(each.value, Step)]


@pytest.mark.parametrize("body", [CHAT, *OTHERS])
@pytest.mark.parametrize("asked", [None, ASK])
def test_every_form_is_written_and_read_again(body: Any, asked: Any, tmp_path: Path) -> None:
    file = tmp_path / "reply.json"
    file.write_text(json.dumps(body if asked is None else {"request": asked, "response": body}))
    trace = tmp_path / "reply.trace"
    assert main(["open", str(file), "--no-model", "-o", str(trace)]) == 0
    read = [each.value for each in load_trace(trace).entries]
    assert sum(isinstance(each, Step) for each in read) == len(steps_of(body, asked))
    opened = next(each for each in read if isinstance(each, PromptOpened))
    assert len(opened.messages) == (2 if asked else 0)
    facts = next(each for each in read if isinstance(each, ModelFacts))
    assert not facts.ran
    first = next(each for each in read if isinstance(each, Prefilled))
    assert first.next.listed


def test_a_recording_has_the_name_of_the_model_that_was_asked_for() -> None:
    for asked, name in (({**ASK, "model": "gpt-x"}, "gpt-x"), (ASK, "a reply of "), (None, "a reply of ")):
        facts = next(
            each.value for each in recording_of(exchange(CHAT, asked)) if isinstance(each.value, ModelFacts)
        )
        assert facts.name.startswith(name)


def test_what_a_reply_says_is_what_is_shown() -> None:
    first, second, third, _ = steps_of(CHAT)
    assert (first.text, first.logprob, first.rank) == ("H", -0.5, 1)
    assert [(each.raw, each.rank) for each in first.choice.candidates] == [(b"H", 1), (b"h", 2)]
    assert first.choice.others_prob == pytest.approx(1 - math.exp(-0.5) - math.exp(-1.5))
    assert (second.text, second.pending, third.text) == ("", b"\xc3", "é")
    assert math.isnan(third.logprob)
    values = {name: metric.value(third) for name, metric in METRIC.items()}
    assert (values["probability"], values["surprisal"], values["entropy"]) == (None, None, None)
    assert METRIC["entropy"].value(first) is None
    assert METRIC["surprisal"].value(first) == pytest.approx(0.5 / math.log(2))


def test_a_token_beyond_its_list_has_no_rank() -> None:
    top = [{"token": "a", "logprob": -0.1, "bytes": [97]}]
    named = {"content": [{"token": "b", "logprob": -3.0, "bytes": [98], "top_logprobs": top}]}
    (step,) = steps_of({"choices": [{"message": {"content": "b"}, "logprobs": named}]})
    assert step.rank == 0
    assert METRIC["rank"].value(step) is None
    assert [each.raw for each in step.choice.candidates] == [b"a", b"b"]


def test_wrongly_named_tokens_are_repaired_and_told() -> None:
    faulty = next(each for each in exchanges_of(str(SERVED)) if each.number == 33)
    assert faulty.reply is not None
    content = faulty.reply.body["choices"][0]
    entries = [each.value for each in recording_of(faulty)]
    made = "".join(each.text for each in entries if isinstance(each, Step))
    assert made == content["message"]["content"]
    facts = next(each for each in entries if isinstance(each, ModelFacts))
    assert any("names 23 of 24 tokens wrongly" in note for note in facts.notes)
    other = {**faulty.reply.body, "choices": [{**content, "message": {"content": "Quite another text ÿ"}}]}
    notes = next(
        each.value for each in recording_of(exchange(other)) if isinstance(each.value, ModelFacts)
    ).notes
    assert any("tokens wrongly" in note or "don't spell its text" in note for note in notes)


def test_half_a_surrogate_pair_is_a_replacement_character() -> None:
    top = [{"token": "x\udce9", "logprob": -0.5}, {"token": "x", "logprob": -1.0}]
    named = {"content": [{"token": "x", "logprob": -1.0, "top_logprobs": top}]}
    body = {"choices": [{"message": {"content": "x\udce9"}, "logprobs": named}]}
    (step,) = steps_of(body, {"messages": [{"role": "user", "content": "a\ud800"}]})
    assert step.raw == "x�".encode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"choices": [{"message": {"content": "x"}}]}, "no logprobs"),
        ({"error": "no"}, "The server refused it: no."),
        ({}, "no logprobs"),
    ],
)
def test_a_reply_that_names_nothing_is_refused(body: Any, words: str) -> None:
    with pytest.raises(PromptError, match=words) as error:
        recording_of(exchange(body))
    assert "--model" in error.value.hint


HOSTILE = {"choices": [{"message": {"content": "\x1b[31mred\u202e[/b]"}, "logprobs": {"content": [
    {"token": text, "logprob": -1.0, "bytes": list(text.encode()), "top_logprobs": []}
    for text in ("\x1b[31m", "red", "\u202e", "[/b]")
]}}]}  # fmt: skip
WIDE, NARROW = (120, 40), (80, 24)
OPENED = [(CHAT, WIDE), (CHAT, NARROW), (HOSTILE, WIDE), (HOSTILE, NARROW),
          *((each, (WIDE, NARROW)[n % 2]) for n, each in enumerate(OTHERS))]  # fmt: skip


@pytest.mark.wide(1)
@pytest.mark.parametrize(("body", "size"), OPENED)
async def test_the_screen_says_what_is_not_known(body: Any, size: tuple[int, int], tmp_path: Path) -> None:
    trace = tmp_path / "reply.trace"
    save_as(trace, recording_of(exchange(body)), "test")
    app, count = InspectorApp(LoadSettings(), Settings(), trace=Opening(checked(trace))), len(steps_of(body))
    async with app.run_test(size=size) as pilot:
        await until(lambda: len(app.controller.timeline.steps) == count)
        for keys in ((), ("left",), ("2", "w"), ("5", "t"), ("k",), ("1", "t"), ("m",), ("m",), ("m",)):
            await pilot.press(*keys)
            await pilot.pause()
            text = shown(app)
            for wrong in (
                "nan",
                "NaN",
                "0.00 ms",
                " 0 B",
                "greedy",
                "0 layers",
                "tok/s",
                "∞",
                "\x1b",
                "\u202e",
            ):
                assert wrong not in text, (keys, wrong, text)
        await pilot.press("end", "G")
        await pilot.pause()
        assert "has no model to continue with" in shown(app)
    assert app.closed_in_time


def shown(app: InspectorApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())
