"""`inspector inside`: its flags, tables and JSON lines, on the bundled model."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine.inspection.inside import lens
from engine.protocol import (
    AttentionLayer,
    AttentionRead,
    CaptureFacts,
    Check,
    ExpertLayer,
    ExpertsRead,
    Failure,
    StateArray,
    floats,
)
from inspector.cli import main as cli
from inspector.cli.arguments import request_from
from inspector.cli.flags import parsed
from inspector.cli.subcommands.inside import inside_parser
from inspector.cli.writers.inside import writer
from tests.inspector.cli.scripted import Events

PROMPT = ("--ignore-chat-template", "-p", "Once upon a time, there was a little girl named")


@pytest.fixture
def events(events: Events) -> Events:
    return partial(events, "inside", "--jsonl", *PROMPT)


def test_every_head_has_a_weight_for_each_token_and_the_lens_ends_at_the_distribution(
    events: Events,
) -> None:
    lines = events("--positions", "2", "--steps", "1")
    kinds = [line["event"] for line in lines]
    assert kinds[-3:] == ["attention", "lens", "contributions"]
    prompt, step = (next(line for line in lines if line["event"] == kind) for kind in ("prompt", "step"))
    looked, seen = lines[-3], lines[-2]
    assert looked["node"] == seen["node"] == step["node"]
    assert all(check["passed"] for check in looked["checks"] + seen["checks"])
    for layer in looked["layers"]:
        for row in layer["heads"]:
            assert len(row) == len(prompt["tokens"]) + 1
            assert math.isclose(sum(row), 1, abs_tol=1e-5)
    assert [column["node"] for column in seen["columns"]] == [prompt["tokens"][-1]["node"], step["node"]]
    first = seen["columns"][0]["cells"][-1]["top"][0]
    best = max(step["candidates"], key=lambda candidate: candidate["prob"])
    assert first["id"] == best["id"]
    assert math.isclose(first["prob"], best["prob"], rel_tol=1e-5)


def test_one_view_at_another_token(events: Events) -> None:
    lines = events("--show", "lens", "--at", "3", "--positions", "9")
    assert lines[-1]["event"] == "lens"
    assert len(lines[-1]["columns"]) == 4, "the path has no more up to there"


def test_the_parts_of_a_difference_sum_to_it(events: Events) -> None:
    lines = events("--show", "contributions", "--dtype", "float32")
    prompt, made = next(line for line in lines if line["event"] == "prompt"), lines[-1]
    one, other = made["tokens"]
    ranks = sorted((one["rank"], other["rank"]))
    assert made["node"] == prompt["tokens"][-1]["node"]
    assert ranks[0] == 1
    assert all(check["passed"] for check in made["checks"])
    total = sum(part["value"] for part in made["parts"])
    assert math.isclose(total, made["total"])
    assert math.isclose(total, one["logit"] - other["logit"], abs_tol=1e-3)
    for part in made["parts"]:
        assert math.isclose(part["value"], part["logits"][0] - part["logits"][1])
        if part["kind"] == "attention":
            heads = [sum(column) for column in zip(*part["heads"], part["rest"], strict=True)]
            assert len(part["heads"]) == 4
            assert all(map(lambda a, b: math.isclose(a, b, abs_tol=1e-4), heads, part["logits"]))


def test_tokens_are_given_by_text_or_id(events: Events) -> None:
    def asked(*argv: str) -> list[tuple[int, str]]:
        made = events("--show", "contributions", *argv)[-1]
        return [(token["id"], token["text"]) for token in made["tokens"]]

    (one, text), _ = asked()
    rare = asked("--token", " sat", "--alone")
    assert rare[0][1] == " sat"
    assert asked("--token", str(rare[0][0]), "--against", text.strip()) == [*rare, (one, text)]
    assert asked("--against", text)[1] == (one, text), "the one taken is compared with the best other one"


@pytest.mark.slow
def test_gradients_have_a_share_for_each_token_and_what_is_missing(
    events: Events, capsys: pytest.CaptureFixture[str]
) -> None:
    line = events(
        "--show", "gradients", "--dtype", "float32", "--baseline", " the", "--gradient-steps", "16"
    )[-1]
    assert (line["event"], line["method"], line["baseline_text"]) == ("gradients", "integrated", " the")
    assert line["tried"][0]["steps"] == 16
    assert len(line["tokens"]) == 2
    assert sum(share["logits"] for share in line["shares"]) == pytest.approx(line["total"])
    assert line["total"] == pytest.approx(line["reached"], abs=0.05 * max(1.0, abs(line["reached"])))
    assert cli.main(["inside", *PROMPT, "--show", "gradients", "--method", "input", "--alone"]) == 0
    out = capsys.readouterr().out
    assert "gradient x input" in out
    assert "A share says how fast the logit rises" in out


def test_in_the_prompt_it_is_the_token_that_came_next(events: Events) -> None:
    lines = events("--show", "contributions", "--at", "2")
    prompt = next(line for line in lines if line["event"] == "prompt")
    assert lines[-1]["tokens"][0]["id"] == prompt["tokens"][3]["id"]
    assert len(lines[-1]["tokens"]) == 2


def test_the_tables_name_layers_and_heads_as_a_person_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inside", *PROMPT, "--positions", "2"]) == 0
    out = capsys.readouterr().out
    assert "L1 h1 " in out
    assert "L8 h4 " in out
    assert "embed" in out
    assert out.count("checked: forward 0, session ") == 3
    assert "L8 attention" in out
    assert "sums to" in out


def test_a_view_whose_check_failed_is_not_shown() -> None:
    layer = AttentionLayer(0, "fused", 1, floats([0.5, 0.5], (1, 2)), 2)
    facts = CaptureFacts((Check("attention", 0.3, 1e-5, "layer 0"),), 2.0, 1.0, "odd\x1b[31m")
    read = AttentionRead(2, 2, (layer,), 1, (), facts)
    for flags in (("--jsonl",), ()):
        out = io.StringIO()
        made = writer(request_from(parsed(inside_parser(), [*PROMPT, *flags])), out, None)
        made.nodes = [1, 2]
        if not flags:
            made._labels = {1: "a", 2: "b"}  # type: ignore[attr-defined]
        made.take(read, "")
        assert "0.5" not in out.getvalue()
        assert "50" not in out.getvalue()
        assert "\x1b" not in out.getvalue()
        assert "attention" in out.getvalue()


@pytest.mark.parametrize("flags", [("--jsonl",), ()])
def test_a_view_that_is_not_shown_is_the_exit_status_and_a_line(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lens, "relative_error", lambda row, truth: 1.0)
    assert cli.main(["inside", *PROMPT, *flags]) == 3
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == (
        "inspector: error: Not shown: Logit lens, as its check failed. "
        "If rounding is the cause, --dtype float32 shows it."
    )
    assert "L8 attention" in out or "contributions" in out, "the views after it are written"


@pytest.mark.slow
def test_units_are_swept_and_switched_off_together(events: Events) -> None:
    swept = events("--show", "interventions")[-1]
    assert swept["event"] == "sweep"
    assert all(check["passed"] for check in swept["checks"])
    assert len(swept["units"]) == 8 * 7
    alone = next(unit for unit in swept["units"] if unit["label"] == "L7 h2")
    tried = events("--off", "L7 h2")[-1]
    assert tried["event"] == "intervened"
    assert tried["interventions"] == [{"kind": "head", "layer": 6, "head": 1, "scale": 0.0}]
    assert tried["kl_bits"] == pytest.approx(alone["kl_bits"], abs=1e-4)
    first = min(tried["candidates"], key=lambda each: each["rank_after"])
    assert first["id"] == alone["top"]["id"]
    several = events("--off", "L7 h2, L3 mlp x0.5,L1", "--scope", "context")[-1]
    assert [each["kind"] for each in several["interventions"]] == ["head", "mlp", "layer"]
    assert several["scope"] == "context"
    assert several["tokens_run"] > tried["tokens_run"]


def test_tables_of_the_sweep_and_of_what_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inside", *PROMPT, "--show", "interventions", "--off", "L1 MLP"]) == 0
    out = capsys.readouterr().out
    assert "the strongest of 56 units" in out
    assert sum(line.startswith("  L") for line in out.splitlines()) == 12 + 1
    assert "L1 MLP off, this token: KL " in out
    assert "L1 h1" not in out, "attention is shown where it is asked for"


def test_the_shares_of_a_score_sum_to_it(events: Events) -> None:
    made = events("--show", "scores", "--head", "L5 h2", "--dtype", "float32")[-1]
    assert (made["event"], made["layer"], made["head"]) == ("scores", 4, 1)
    assert all(check["passed"] for check in made["checks"])
    for place in range(len(made["keys"])):
        for side in ("in_key", "in_query"):
            summed = sum(writer[side][place] for writer in made["writers"])
            assert math.isclose(summed, made["scores"][place], abs_tol=1e-4)
    assert {len(pair["scores"]) for pair in made["pairs"]} == {len(made["keys"])}


def test_a_table_says_why_a_head_looks_at_a_token_rather_than_at_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["inside", *PROMPT, "--show", "scores", "--head", "L5 h2", "--key", "3", "--versus", "-2"]
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert "Why it looks there" in out
    assert "L5 h2 looks at" in out
    assert "than at" in out
    assert "query x key" in out


def test_modules_experts_and_positions_are_shown(events: Events, capsys: pytest.CaptureFixture[str]) -> None:
    lines = events("--show", "modules,experts,positions", "--at", "3")
    made, chosen, *tried = lines[-8:]
    assert (made["event"], chosen["event"], {each["event"] for each in tried}) == (
        "modules",
        "experts",
        {"position"},
    )
    assert made["parameters"] == next(line for line in lines if line["event"] == "model")["parameters"]
    assert chosen["refused"] == "This model has neither experts nor recurrent layers."
    assert "its modules instead" in chosen["hint"]
    assert [(each["change"], each["offset"]) for each in tried] == [
        ("token", -3), ("token", -1), ("token", 1), ("token", 100), ("path", 100), ("mask", 0),
    ]  # fmt: skip
    assert all(check["passed"] for each in tried for check in each["checks"])
    prompt = next(line for line in lines if line["event"] == "prompt")
    assert tried[-1]["later"] == len(prompt["tokens"]) - 4, "what comes after it in the prompt"
    assert tried[3]["kl_bits"] > tried[4]["kl_bits"], "with RoPE distances count alone"
    assert cli.main(["inside", *PROMPT, "--show", "modules,experts,positions"]) == 0
    out = capsys.readouterr().out
    assert "│ │   queries" in out
    assert "blocks.N.attn.hook_q" in out
    assert (
        "Not shown: This model has neither experts nor recurrent layers. Look at its modules instead" in out
    )
    assert "What if it is given position 0, not " in out
    assert "What if no causal mask: it sees no later token? Position " in out


def test_experts_and_states_are_a_line_each_and_a_refused_position_is_one() -> None:
    facts = CaptureFacts((Check("forward", 0.0, 0.0),), 2.0, 1.0, "odd")
    layer = ExpertLayer(1, "mlp", 8, (4, 1), (0.75, 0.25), 1e-7)
    state = StateArray(2, (1, 4, 16), "float32", 256, 2.0, 1.0, None)
    read = ExpertsRead(2, (layer,), (state,), ("The weights of \x1b are not known.",), facts)
    failed = replace(read, facts=replace(facts, checks=(Check("experts", 1.0, 1e-5),)))
    refused = Failure("TryPosition", "no\x1b[31m positions", "Press tab.")
    for flags in (("--jsonl",), ()):
        out = io.StringIO()
        made = writer(request_from(parsed(inside_parser(), [*PROMPT, *flags])), out, None)
        made.take(read, "")
        assert made.refused(refused)
        assert made.refused(replace(refused, command="ReadExperts"))
        assert not made.refused(replace(refused, command="ReadExperts", expected=False))
        assert not made.refused(replace(refused, command="ReadLens"))
        said = out.getvalue()
        assert "\x1b" not in said
        assert "positions" in said
        if not flags:
            assert "L2    experts 5 (0.75), 2 (0.25)" in said
            assert "norm 1 to 2, was empty" in said
            assert "Not shown: no" in said
        made.take(failed, "")
        assert "0.75" not in out.getvalue()[len(said) :]
        assert made.known.failed == ["Experts and states"]


@pytest.mark.slow
def test_heads_are_scored_over_random_tokens_and_over_the_path(events: Events) -> None:
    over, path = events("--show", "heads", "--texts", "20,2")[-2:]
    assert (over["event"], over["texts"]) == ("heads", {"length": 20, "count": 2, "seed": 0})
    assert (path["event"], path["texts"]) == ("heads", None)
    assert len(over["heads"]) == len(path["heads"]) == 8 * 4
    named = {(each["layer"], each["head"]): each["names"] for each in over["heads"] if each["names"]}
    assert named[3, 3] == ["previous-token"]
    assert all(names == ["previous-token"] for names in named.values())
    again = events("--show", "heads", "--texts", "20,2,0")[-2]
    assert again["heads"] == over["heads"]


def test_a_table_of_heads_names_them_and_says_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inside", *PROMPT, "--show", "heads", "--texts", "20,2"]) == 0
    out = capsys.readouterr().out
    assert "over 2 texts of 20 random tokens, each repeated once (seed 0)" in out
    assert "Previous-token heads: L4 h4 (9" in out
    assert "No induction head in this model: at most" in out


@pytest.mark.slow
def test_another_text_is_put_in_with_tokens_and_an_alignment_of_ones_own(events: Events) -> None:
    flags = ("--source", "Once there was a big dog", "--dtype", "float32")
    found = events(*flags)[-1]
    assert found["event"] == "patching"
    assert all(check["passed"] for check in found["checks"])
    assert not found["aligned"]
    assert found["columns"][-1]["shares"][-1] == pytest.approx(1.0, abs=1e-3)
    chosen = events(*flags, "--token", str(found["other"]), "--against", str(found["token"]))[-1]
    assert (chosen["token"], chosen["other"]) == (found["other"], found["token"])
    last = found["columns"][-1]
    facing = f"0:0,{last['position']}:{last['source_position']}"
    own = events(*flags, "--facing", facing)[-1]
    assert own["aligned"]
    assert [each["position"] for each in own["columns"]][-1] == last["position"]
    assert len(own["columns"]) <= 2


def test_a_file_of_pairs_is_patched_without_a_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pairs.jsonl"
    lines = [{"text": "The dog ran", "source": "The cat sat"}, {"text": "same", "source": "same"}]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    assert cli.main(["inside", "--patch-pairs", str(path), "--part", "mlp"]) == 0
    out = capsys.readouterr().out
    assert "1 of 2 pairs" in out
    assert "left out: pair 2: Both paths have the same tokens." in out
    assert cli.main(["inside", "--patch-pairs", str(path), "--jsonl"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["event"] == "pairs"
    assert [bool(each["failure"]) for each in last["pairs"]] == [False, True]


@pytest.mark.slow
def test_a_sweep_can_be_of_the_whole_context(events: Events) -> None:
    token, context = (
        events("--show", "interventions", "--scope", scope)[-1] for scope in ("token", "context")
    )
    assert (token["scope"], context["scope"]) == ("token", "context")
    assert len(token["units"]) == len(context["units"])
    assert token["units"] != context["units"]
