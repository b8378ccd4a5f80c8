"""A generation as JSON lines: its events, their values, and the text in them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine import protocol
from inspector.cli.driver import Outcome
from tests.inspector import fakes
from tests.inspector.cli.scripted import Run, script, with_texts
from tests.inspector.cold import cold_start

STEP_KEYS = {
    *("index", "position", "id", "text", "logprob", "prob", "rank", "entropy_bits", "surprisal_bits", "draw"),
    *("candidates", "kv", "ms"),
}
CANDIDATE_KEYS = {"id", "text", "logprob", "prob", "sampler_prob", "rank", "cut_by"}


def test_events_come_in_order_with_the_promised_keys() -> None:
    run = Run(script())
    assert run.go() == Outcome(0)
    kinds = [event["event"] for event in run.events]
    assert list(dict.fromkeys(kinds)) == ["model", "prefill", "first_token", "prompt", "step", "end"]
    assert kinds.count("step") == 5
    found = {event["event"]: event for event in run.events}
    assert found["model"]["name"] == "pocket"
    assert found["model"]["seed"] == 7
    assert "a note" in found["model"]["notes"]
    assert {"done", "total", "ms", "kv"} <= found["prefill"].keys()
    assert {"id", "text", "logprob", "rank", "entropy_bits"} <= found["prompt"]["tokens"][1].keys()
    assert found["step"].keys() >= STEP_KEYS
    assert found["step"]["candidates"][0].keys() >= CANDIDATE_KEYS
    assert {"offset", "used_bytes", "allocated_bytes"} <= found["step"]["kv"].keys()
    assert found["step"]["ms"].keys() >= {"total", "forward", "sample", "inspect"}


def test_values_are_those_of_the_records() -> None:
    answers = script()
    run = Run(answers)
    run.go()
    step = answers[protocol.Run][0]
    assert isinstance(step, protocol.Step)
    event = next(event for event in run.events if event["event"] == "step")
    assert (event["id"], event["text"], event["raw"]) == (step.id, step.text, step.raw.hex())
    assert event["entropy_bits"] == step.choice.entropy_bits
    assert event["candidates"][0]["logprob"] == step.choice.candidates[0].logprob
    assert event["kv"]["used_bytes"] == step.kv.used_bytes
    assert event["stages"] == [
        {"name": stage.name, "kept": stage.kept, "removed_mass": stage.removed_mass}
        for stage in step.choice.stages
    ]


def test_the_end_sums_up() -> None:
    answers = script(steps=5)
    steps = [record for record in answers[protocol.Run] if isinstance(record, protocol.Step)]
    totals = [100.0, 1.0, 2.0, 3.0, 4.0]
    answers[protocol.Run] = [
        *(replace(step, ms=replace(step.ms, total=total)) for step, total in zip(steps, totals, strict=True)),
        answers[protocol.Run][-1],
    ]
    run = Run(answers)
    run.go()
    end = run.events[-1]
    assert (end["finish_reason"], end["finish_detail"], end["steps"]) == ("length", "5 tokens", 5)
    assert end["text"] == "".join(step.text for step in steps)
    assert (end["tpot_ms"], end["tpot_p50_ms"], end["tpot_p95_ms"]) == (22.0, 3.0, 100.0)
    assert end["generation_tps"] == pytest.approx(1000 / 22)
    prefilled = next(each for each in answers[protocol.Prefill] if isinstance(each, protocol.Prefilled))
    assert (end["ttft_ms"], end["prompt_tps"]) == (prefilled.ttft_ms, prefilled.prompt_tps)
    assert end["peak_bytes"] == steps[-1].memory.peak_bytes
    assert end["seed"] == 7
    assert end["pipelined"] is False


def test_a_cold_start_is_marked_and_in_no_rate() -> None:
    answers = {kind: cold_start(told) for kind, told in script(steps=5).items()}
    run = Run(answers)
    run.go()
    prompt = next(event for event in run.events if event["event"] == "prompt")
    assert (prompt["cold"], prompt["prompt_tps"]) == (True, None)
    assert prompt["prompt_logprobs_ms"] == prompt["echo_ms"]
    steps = [event["ms"] for event in run.events if event["event"] == "step"]
    assert [ms["cold"] for ms in steps] == [True, False, False, False, False]
    end = run.events[-1]
    assert (end["cold"], end["cold_step_ms"], end["prompt_tps"], end["steps"]) == (True, 900.0, None, 5)
    assert end["tpot_p95_ms"] == max(ms["total"] for ms in steps[1:])
    assert end["generation_tps"] == pytest.approx(4000 / sum(ms["total"] for ms in steps[1:]))


def test_lines_are_strict_json_in_ascii() -> None:
    answers = script()
    first = answers[protocol.Run][0]
    assert isinstance(first, protocol.Step)
    barred = replace(first.choice.candidates[0], logprob=-math.inf, text="\x1b[31m\u202e狐\ud83d")
    choice = replace(first.choice, candidates=(barred,), entropy_bits=math.nan)
    answers[protocol.Run] = [replace(first, choice=choice, logprob=-math.inf), *answers[protocol.Run][1:]]
    run = Run(answers)
    run.go()
    assert run.out.getvalue().isascii()
    assert "\x1b" not in run.out.getvalue()
    event = next(event for event in run.events if event["event"] == "step")
    assert event["logprob"] is None
    assert event["entropy_bits"] is None
    assert event["candidates"][0]["logprob"] is None
    assert event["candidates"][0]["text"] == "\x1b[31m\u202e狐\ud83d"


def test_the_end_of_sequence_is_not_text() -> None:
    answers = script(steps=3, reason="eos", detail="<|im_end|>")
    last = answers[protocol.Run][2]
    assert isinstance(last, protocol.Step)
    answers[protocol.Run] = [*answers[protocol.Run][:2], replace(last, id=fakes.EOS, text="<|im_end|>", special=True),
                             answers[protocol.Run][-1]]  # fmt: skip
    run = Run(answers)
    run.go()
    assert run.events[-1]["text"] == " there was"
    assert run.events[-1]["finish_reason"] == "eos"
    assert run.events[-2]["text"] == "<|im_end|>"


def test_the_text_is_cut_before_a_stop_string_that_spans_tokens() -> None:
    answers = with_texts(script(steps=4, reason="stop", detail="the end"), ["Well, th", "e e", "nd. An", "d"])
    for jsonl in (True, False):
        run = Run(answers, jsonl=jsonl, stop=("the end",))
        run.go()
        text = run.events[-1]["text"] if jsonl else run.out.getvalue().rstrip("\n")
        assert text == "Well, "
