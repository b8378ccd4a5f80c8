"""`inspector show`: its flags, tables and JSON lines, on the bundled model."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from engine.inside import lens
from engine.protocol import (
    ActivationsPatched,
    AttentionLayer,
    AttentionRead,
    AttributionRead,
    CaptureFacts,
    Check,
    ExpertLayer,
    ExpertsRead,
    Failure,
    GradientsRead,
    HeadsScored,
    HeadsSwept,
    Intervened,
    Intervention,
    LensRead,
    ModelFacts,
    ModelModules,
    PairsPatched,
    PositionTried,
    PromptOpened,
    RepeatedTexts,
    ScoreRead,
    StateArray,
    Step,
    floats,
)
from inspector.cli import main as cli
from inspector.cli.arguments import request_from
from inspector.cli.flags import parsed
from inspector.cli.subcommands.show import show_parser
from inspector.cli.writers.generation import writer
from inspector.cli.writers.inside import Known, refused
from inspector.documents.attention import names_of
from tests.inspector.cli.scripted import Events, Kind, as_record, of_kind

PROMPT = ("--ignore-chat-template", "-p", "Once upon a time, there was a little girl named")


@pytest.fixture
def events(events: Events) -> Events:
    return partial(events, "show", "--jsonl", *PROMPT)


Asked = Callable[..., Any]
"""Runs the command with more flags; returns the last record of a kind that it wrote, as `one` does."""


@pytest.fixture
def one(events: Events) -> Asked:
    def ask(kind: type[Kind], *argv: str) -> Kind:
        return of_kind(events(*argv), kind)[-1]

    return ask


def passed(*views: Any) -> bool:
    """Whether all checks of some views passed, and each has some."""
    return all(view.facts.checks and view.facts.failed is None for view in views)


def test_every_head_has_a_weight_for_each_token_and_the_lens_ends_at_the_distribution(
    events: Events,
) -> None:
    lines = events("--positions", "2", "--steps", "1")
    kinds = [line["event"] for line in lines]
    assert kinds[-3:] == ["AttentionRead", "LensRead", "AttributionRead"]
    [prompt], [step] = of_kind(lines, PromptOpened), of_kind(lines, Step)
    looked, seen = as_record(lines[-3], AttentionRead), as_record(lines[-2], LensRead)
    assert looked.node == seen.node == step.node
    assert passed(looked, seen)
    for layer in looked.layers:
        for row in (layer.over(head, looked.tokens) for head in range(layer.heads)):
            assert len(row) == len(prompt.tokens) + 1
            assert math.isclose(sum(row), 1, abs_tol=1e-5)
    assert [column.node for column in seen.columns] == [prompt.tokens[-1].node, step.node]
    first = seen.columns[0].cells[-1].top[0]
    best = max(step.choice.candidates, key=lambda candidate: candidate.prob)
    assert first.id == best.id
    assert math.isclose(first.prob, best.prob, rel_tol=1e-5)


def test_one_view_at_another_token(one: Asked) -> None:
    read = one(LensRead, "lens", "--at", "p5", "--positions", "9")
    assert len(read.columns) == 4, "the path has no more up to there"


def test_the_parts_of_a_difference_sum_to_it(events: Events) -> None:
    lines = events("contributions", "--dtype", "float32")
    [prompt], made = of_kind(lines, PromptOpened), as_record(lines[-1], AttributionRead)
    one, other = made.tokens
    assert made.node == prompt.tokens[-1].node
    assert min(one.rank, other.rank) == 1
    assert passed(made)
    assert math.isclose(made.total, one.logit - other.logit, abs_tol=1e-3)
    for part in made.parts:
        if part.kind == "attention":
            own = [part.head(head) for head in range(4)]
            heads = [sum(column) for column in zip(*own, part.rest, strict=True)]
            assert all(map(lambda a, b: math.isclose(a, b, abs_tol=1e-4), heads, part.logits))


def test_tokens_are_given_by_text_or_id(one: Asked) -> None:
    def asked(*argv: str) -> list[tuple[int, str]]:
        made = one(AttributionRead, "contributions", "--seed", "7", *argv)
        return [(token.id, token.text) for token in made.tokens]

    (first, text), _ = asked()
    rare = asked("--token", " sat", "--alone")
    assert rare[0][1] == " sat"
    assert asked("--token", str(rare[0][0]), "--against", text.strip()) == [*rare, (first, text)]
    assert asked("--against", text)[1] == (first, text), "the one taken is compared with the best other one"


@pytest.mark.slow
def test_gradients_have_a_share_for_each_token_and_what_is_missing(
    one: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "gradients", "--dtype", "float32", "--baseline", " the", "--gradient-steps", "16"
    read = one(GradientsRead, *flags)
    assert (read.method, read.baseline_text) == ("integrated", " the")
    assert read.tried[0][0] == 16
    assert len(read.tokens) == 2
    assert sum(read.shares.row()) == pytest.approx(read.total)
    assert read.total == pytest.approx(read.reached, abs=0.05 * max(1.0, abs(read.reached)))
    assert cli.main(["show", *PROMPT, "gradients", "--method", "input", "--alone"]) == 0
    out = capsys.readouterr().out
    assert "gradient × input" in out
    assert "how fast the logit rises" in out


def test_in_the_prompt_it_is_the_token_that_came_next(events: Events) -> None:
    lines = events("contributions", "--at", "p4")
    [prompt], [read] = of_kind(lines, PromptOpened), of_kind(lines, AttributionRead)
    assert read.tokens[0].id == prompt.tokens[3].id
    assert len(read.tokens) == 2


def test_the_tables_name_layers_and_heads_as_a_person_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", *PROMPT, "--positions", "2"]) == 0
    out = capsys.readouterr().out
    assert "L1 h1 " in out
    assert "L8 h4 " in out
    assert "embed" in out
    assert out.count("Verified, largest ") == 3
    assert "L8 attention" in out
    assert "sums to" in out
    assert re.search(r"\(p\d\)", out), "a token has the number that --at and --key take"
    assert "switch it off. " in " ".join(out.split()), "a terminal has no keys"


def test_a_view_beside_a_change_says_that_it_is_of_the_unchanged_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["show", *PROMPT, "lens", "--off", "L8 h4"]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line[:1].isalpha()]
    assert titles == ["Changed", "Lens: of the unchanged model"]


def test_a_view_whose_check_failed_is_not_shown() -> None:
    layer = AttentionLayer(0, "fused", 1, floats([0.5, 0.5], (1, 2)), 2)
    facts = CaptureFacts((Check("attention", 0.3, 1e-5, "layer 0"),), 2.0, 1.0, "odd\x1b[31m")
    read = AttentionRead(2, 2, (layer,), 1, (), facts)
    for flags in (("--jsonl",), ()):
        out, known = io.StringIO(), Known()
        known.nodes, known.labels = [1, 2], {1: "a", 2: "b"}
        made = writer(request_from(parsed(show_parser(), [*PROMPT, *flags])), known, out=out)
        made.take(read, "")
        assert known.failed == ["Attention"]
        assert "0.5" not in out.getvalue()
        assert "50" not in out.getvalue()
        assert "\x1b" not in out.getvalue()
        assert "attention" in out.getvalue()
        if flags:
            event = json.loads(out.getvalue())
            assert (event["event"], event["view"]) == ("CheckFailed", "AttentionRead")
            assert convert(event["facts"], CaptureFacts) == facts


@pytest.mark.parametrize("flags", [("--jsonl",), ()])
def test_a_view_that_is_not_shown_is_the_exit_status_and_a_line(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = lens.residual_streams
    monkeypatch.setattr(lens, "residual_streams", lambda taken: streams(taken)[:-1])
    assert cli.main(["show", *PROMPT, *flags]) == 3
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == (
        "inspector: error: Not shown: Lens, as its check failed. "
        "If rounding is the cause, --dtype float32 shows it."
    )
    assert "L8 attention" in out or "AttributionRead" in out, "the views after it are written"


@pytest.mark.slow
def test_units_are_swept_and_switched_off_together(one: Asked) -> None:
    swept = one(HeadsSwept, "switch-off")
    assert passed(swept)
    assert len(swept.units) == 8 * 7
    alone = next(unit for unit in swept.units if unit.intervention.label == "L7 h2")
    tried = one(Intervened, "--off", "L7 h2")
    assert tried.interventions == (Intervention("head", 6, 1, 0.0),)
    assert tried.kl_bits == pytest.approx(alone.kl_bits, abs=1e-4)
    first = min(tried.candidates, key=lambda each: each.after.rank)
    assert first.after.id == alone.top
    several = one(Intervened, "--off", "L7 h2, L3 mlp x0.5,L1", "--scope", "context")
    assert [each.kind for each in several.interventions] == ["head", "mlp", "layer"]
    assert several.scope == "context"
    assert several.tokens_run > tried.tokens_run


def test_tables_of_the_sweep_and_of_what_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", *PROMPT, "switch-off", "--off", "L1 MLP"]) == 0
    out = capsys.readouterr().out
    assert "the largest 12 of 56." in " ".join(out.split())
    assert sum(bool(re.match(r"  L\d.* %$", line)) for line in out.splitlines()) == 12
    assert "  L1 MLP off.\n  This token. KL " in out
    assert "L1 h1" not in out, "attention is shown where it is asked for"


def test_a_layer_that_the_model_lacks_is_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["show", *PROMPT, "switch-off", "--off", "L99"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "inspector: error: There is no L99: this model has 8 layers. Choose L1 to L8.\n",
    )


def test_the_shares_of_a_score_sum_to_it(one: Asked) -> None:
    made = one(ScoreRead, "scores", "--head", "L5 h2", "--dtype", "float32")
    assert (made.layer, made.head) == (4, 1)
    assert passed(made)
    for side in (made.by_key, made.by_query):
        rows = [side.row(place) for place in range(len(made.writers))]
        for column, score in zip(zip(*rows, strict=True), made.scores.row(), strict=True):
            assert math.isclose(sum(column), score, abs_tol=1e-4)
    assert made.pair_scores.shape == (len(made.pairs), len(made.keys))


def test_a_table_says_why_a_head_looks_at_a_token_rather_than_at_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["show", *PROMPT, "scores", "--head", "L5 h2", "--key", "p4", "--versus", "p-2"]
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert "Why a head looks there" in out
    assert "L5 h2 looks at" in out
    assert "than at" in out
    assert "Query × key" in out


def test_modules_experts_and_positions_are_shown(events: Events, capsys: pytest.CaptureFixture[str]) -> None:
    lines = events("map,experts,positions", "--at", "p5")
    made, refused = as_record(lines[-8], ModelModules), as_record(lines[-7], Failure)
    tried = of_kind(lines[-6:], PositionTried)
    assert made.parameters == of_kind(lines, ModelFacts)[0].parameters
    assert refused.command == "ReadExperts"
    assert refused.message == "This model has neither experts nor recurrent layers."
    assert "its modules instead" in refused.hint
    assert [(each.change, each.offset) for each in tried] == [
        ("token", -3), ("token", -1), ("token", 1), ("token", 100), ("path", 100), ("mask", 0),
    ]  # fmt: skip
    assert passed(*tried)
    [prompt] = of_kind(lines, PromptOpened)
    assert tried[-1].later == len(prompt.tokens) - 4, "what comes after it in the prompt"
    assert tried[3].kl_bits > tried[4].kl_bits, "with RoPE distances count alone"
    assert cli.main(["show", *PROMPT, "map,experts,positions"]) == 0
    out = capsys.readouterr().out
    assert "│ │   queries" in out
    assert "blocks.N.attn.hook_q" in out
    assert (
        "Not shown: This model has neither experts nor recurrent layers. Look at its modules instead"
        in " ".join(out.split())
    )
    assert "What if its position is 0, not " in out
    assert "What if no causal mask: it sees no later token? Position " in out


def test_experts_and_states_are_a_line_each_and_a_refused_position_is_one() -> None:
    facts = CaptureFacts((Check("forward", 0.0, 0.0),), 2.0, 1.0, "odd")
    layer = ExpertLayer(1, "mlp", 8, (4, 1), (0.75, 0.25), 1e-7)
    state = StateArray(2, (1, 4, 16), "float32", 256, 2.0, 1.0, None)
    read = ExpertsRead(2, (layer,), (state,), ("The weights of \x1b are not known.",), facts)
    failed = replace(read, facts=replace(facts, checks=(Check("experts", 1.0, 1e-5),)))
    failure = Failure("TryPosition", "no\x1b[31m positions", "Press tab.")
    for flags in (("--jsonl",), ()):
        out, known = io.StringIO(), Known()
        made = writer(request_from(parsed(show_parser(), [*PROMPT, *flags])), known, out=out)
        made.take(read, "")
        for each in (failure, replace(failure, command="ReadExperts")):
            assert refused(each)
            made.take(each, "")
        assert not refused(replace(failure, command="ReadExperts", expected=False))
        assert not refused(replace(failure, command="ReadLens"))
        said = out.getvalue()
        assert "\x1b" not in said
        assert "positions" in said
        if not flags:
            assert "L2     5 (0.75), 2 (0.25)" in said
            assert "256 B  1 → 2  was empty" in said
            assert "Not shown: no" in said
        made.take(failed, "")
        assert "0.75" not in out.getvalue()[len(said) :]
        assert known.failed == ["Experts and states"]


@pytest.mark.slow
def test_heads_are_scored_over_random_tokens_and_over_the_path(events: Events) -> None:
    over, path = of_kind(events("heads", "--texts", "20,2"), HeadsScored)
    assert over.texts == RepeatedTexts(20, 2, 0)
    assert path.texts is None
    assert len(over.heads) == len(path.heads) == 8 * 4
    named = {(each.layer, each.head): names_of(each) for each in over.heads if names_of(each)}
    assert named[3, 3] == ("previous-token",)
    assert set(named.values()) == {("previous-token",)}
    again, _ = of_kind(events("heads", "--texts", "20,2,0"), HeadsScored)
    assert again.heads == over.heads


def test_a_table_of_heads_names_them_and_says_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", *PROMPT, "heads", "--texts", "20,2"]) == 0
    out = capsys.readouterr().out
    assert "Over 2 texts of 20 random tokens, each repeated once (seed 0)" in out
    assert "Previous-token heads: L4 h4 (9" in out
    assert "No induction head in this model: at most" in out


@pytest.mark.slow
def test_another_text_is_put_in_with_tokens_and_an_alignment_of_ones_own(one: Asked) -> None:
    flags = ("--source", "Once there was a big dog", "--dtype", "float32")
    found = one(ActivationsPatched, *flags)
    assert passed(found)
    assert not found.aligned
    last = found.columns[-1]
    assert found.share(found.layers[-1], last.position) == pytest.approx(1.0, abs=1e-3)
    chosen = one(ActivationsPatched, *flags, "--token", str(found.other), "--against", str(found.token))
    assert (chosen.token, chosen.other) == (found.other, found.token)
    own = one(ActivationsPatched, *flags, "--facing", f"1:1,{last.position + 1}:{last.source_position + 1}")
    assert own.aligned
    assert own.columns[-1].position == last.position
    assert len(own.columns) <= 2


def test_a_file_of_pairs_is_patched_without_a_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pairs.jsonl"
    lines = [{"text": "The dog ran", "source": "The cat sat"}, {"text": "same", "source": "same"}]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    assert cli.main(["show", "--patch-pairs", str(path), "--part", "mlp"]) == 0
    out = capsys.readouterr().out
    assert "1 of 2 pairs" in out
    assert "Both paths have the same tokens." in out
    assert cli.main(["show", "--patch-pairs", str(path), "--jsonl"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [bool(each.failure) for each in as_record(last, PairsPatched).pairs] == [False, True]


@pytest.mark.slow
def test_a_sweep_can_be_of_the_whole_context(one: Asked) -> None:
    token, context = (one(HeadsSwept, "switch-off", "--scope", scope) for scope in ("token", "context"))
    assert (token.scope, context.scope) == ("token", "context")
    assert len(token.units) == len(context.units)
    assert token.units != context.units


def test_a_table_is_no_wider_than_the_terminal_and_whole_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = ["show", *PROMPT, "heads,lens", "--texts", "4,1", "--positions", "8"]
    assert cli.main(asked) == 0
    piped = capsys.readouterr().out
    assert "share of its attention" in piped
    assert max(map(len, piped.splitlines())) > 150
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(asked) == 0
    shown = capsys.readouterr().out
    assert "its share" in shown
    assert "5 earlier positions left out" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_without_steps_the_most_probable_token_is_explained_and_a_map_needs_no_prompt(
    one: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one(AttributionRead, "contributions").tokens[0].rank == 1
    assert one(AttributionRead, "contributions", "--at", "1").tokens[0].rank == 1
    capsys.readouterr()
    assert cli.main(["show", "map"]) == 0
    printed = capsys.readouterr()
    assert "layers 1 to 8" in printed.out
    assert "sampling    greedy" in printed.err


def test_a_view_that_is_refused_takes_no_other_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    quantized = ("--kv-bits", "4", "--quantized-kv-start", "0")
    assert cli.main(["show", *PROMPT, "gradients,map", *quantized]) == 2
    printed = capsys.readouterr()
    assert "Gradients\n  Not shown: The KV cache is quantized" in printed.out
    assert "layers 1 to 8" in printed.out
    assert printed.err.endswith("error: Not shown: Gradients, for the reason in its place.\n")
    assert cli.main(["show", *PROMPT, "gradients", *quantized]) == 2
    assert "error: The KV cache is quantized" in capsys.readouterr().err
