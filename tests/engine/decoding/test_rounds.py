"""Rounds of speculation: the text is that of plain steps, whatever the draft and the cache, and the cache is right."""

from __future__ import annotations

import time
from collections.abc import Generator
from itertools import islice
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step, speculative_generate_step
from msgspec.structs import replace

from engine.decoding.speculation import DraftPaths, LookupDraft, ModelDraft, Round
from engine.errors import Cancelled, StepError
from engine.grammar_settings import Grammar
from engine.model.forward import Runner
from engine.protocol import DraftRound, Record, Step
from engine.settings import Settings, SpeculationSettings
from engine.task import never
from tests.engine.decoding.prophet import PROMPT, Prophet, plain, rounds
from tests.engine.session.test_walks import KINDS
from tests.engine.sessions import begun
from tests.zoo import Zoo

EXACT = {name: kind for name, kind in KINDS.items() if "16" not in name and "file's type" not in name}
"""In types of 16 bits the two largest of a random model's logits may be nearer to each other than rounding."""
QUICK = ("plain float32", "quantized 8 bits", "rotating", "sliding beside global", "hybrid")
SETTINGS = Settings(temp=1.0, seed=3, top_p=0.95, repetition_penalty=1.1, max_tokens=1000)


def drafted(found: list[DraftRound], fate: str) -> int:
    return sum(each.fate == fate for one in found for each in one.drafts)


CASES = [
    pytest.param(kind, temp, marks=() if kind in QUICK and temp else pytest.mark.slow)
    for kind in EXACT
    for temp in (0.0, 1.0)
]


@pytest.mark.wide(3)
@pytest.mark.parametrize(("kind", "temp"), CASES)
def test_the_text_is_that_of_plain_steps(zoo: Zoo, kind: str, temp: float) -> None:
    name, options, tolerance = EXACT[kind]
    loaded, settings = zoo.load(name, **options), replace(SETTINGS, temp=temp)
    expected = plain(loaded, settings, 24)
    ids = [step.id for step in expected]
    session = begun(loaded, PROMPT, settings)
    steps, found = rounds(session, Prophet([*PROMPT, *ids]), 24)
    assert [step.id for step in steps] == ids
    for ours, theirs in zip(steps, expected, strict=True):
        assert (ours.index, ours.position, ours.text, ours.origin, ours.kv.offset) == (
            theirs.index, theirs.position, theirs.text, theirs.origin, theirs.kv.offset,
        )  # fmt: skip
        assert ours.kv.used_bytes == theirs.kv.used_bytes
        assert ours.logprob == pytest.approx(theirs.logprob, abs=10 * tolerance)
    assert drafted(found, "accepted")
    assert drafted(found, "refused")
    assert drafted(found, "unseen")
    assert sum(each.taken for each in found) == len(steps) == 24
    taken = iter(steps)
    for one in found:
        judged = 1 + sum(each.fate == "accepted" for each in one.drafts)
        for each in (step.ms for step in islice(taken, one.taken)):
            if one.note:  # verified in a copy: each token taken is a step of its own
                assert each.shared == 0
                continue
            assert each.shared == (judged if one.drafts else 0)
            drafting = each.total - each.forward - each.sample - each.inspect
            assert drafting == pytest.approx(one.draft_ms / judged, abs=1e-6)
            assert 0 < judged * each.forward <= one.verify_ms
    assert session.verify().largest_difference <= 10 * tolerance
    after = session.step()
    session.move(after.parent)  # and its cache goes on as any other
    assert session.step().id == after.id


@pytest.mark.parametrize(
    ("kind", "trims"),
    [
        ("plain float32", True),
        ("quantized 8 bits", False),
        ("rotating", False),
        ("sliding beside global", True),
        ("recurrent", False),
        ("hybrid", False),
    ],
)
def test_which_caches_are_trimmed(zoo: Zoo, kind: str, trims: bool) -> None:
    name, options, _ = KINDS[kind]
    session = begun(zoo.load(name, **options), PROMPT, SETTINGS)
    settings = SpeculationSettings(num_draft_tokens=3)
    assert Round(session, LookupDraft(), DraftPaths(session), settings).trims == trims
    if kind == "sliding beside global":  # no more once its window of 32 would be full
        for _ in range(21):
            session.step()
        assert not Round(session, LookupDraft(), DraftPaths(session), settings).trims


def test_what_can_not_be_taken_back_is_refused_with_what_to_do(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SpeculationSettings()
    uncached = begun(zoo.load("llama", no_kv_cache=True), PROMPT, SETTINGS)
    with pytest.raises(StepError, match="Open the model without --no-kv-cache"):
        Round(uncached, Prophet([]), DraftPaths(uncached), settings)
    session = begun(zoo.load("mamba2"), PROMPT, SETTINGS)
    ids = [step.id for step in plain(zoo.load("mamba2"), SETTINGS, 4)]

    def shared(runner: Any) -> Any:
        copied = runner.fresh()
        copied.kv.caches = runner.kv.caches
        return copied

    monkeypatch.setattr(Runner, "copy", shared)
    with pytest.raises(StepError, match=r"ArraysCache.* can neither be trimmed nor copied"):
        rounds(session, Prophet([*PROMPT, *ids], 0.0), 4)
    assert session.step().id == ids[0]


def test_a_rotating_cache_that_has_wrapped_is_right_where_mlx_lm_is_wrong(zoo: Zoo) -> None:
    loaded, tokens = zoo.load("gpt-oss"), 48
    prompt = mx.array(PROMPT)
    expected = [
        int(token) for token, _ in islice(generate_step(prompt, loaded.model, max_tokens=tokens), tokens)
    ]
    draft_model = zoo.load("llama").model
    theirs = [
        int(token)
        for token, _, _ in speculative_generate_step(prompt, loaded.model, draft_model, max_tokens=tokens)
    ]
    session = begun(loaded, PROMPT, Settings(max_tokens=1000))
    ours, found = rounds(session, Prophet([*PROMPT, *expected]), tokens)
    assert [step.id for step in ours] == expected[: len(ours)]
    assert len(ours) == tokens
    assert drafted(found, "refused")
    assert theirs != expected
    assert theirs[:20] == expected[:20]  # before its window of 32 is full


def test_a_stop_or_a_breakpoint_inside_a_round_ends_it_there(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    ids = [step.id for step in plain(loaded, SETTINGS, 12)]
    session = begun(loaded, PROMPT, SETTINGS)
    steps, found = rounds(session, Prophet([*PROMPT, *ids], 0.0), 2)
    assert [step.id for step in steps] == ids[:2]
    assert [each.fate for each in found[0].drafts] == ["accepted", "unseen", "unseen"]
    assert found[0].instead is None
    assert session.kv.offset == len(PROMPT) + 2
    assert session.step().id == ids[2]


def test_no_token_is_drafted_behind_the_end(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    settings = replace(SETTINGS, max_tokens=6)
    ids = [step.id for step in plain(loaded, settings, 6)]
    _, found = rounds(begun(loaded, PROMPT, settings), Prophet([*PROMPT, *ids], 0.0), 6)
    assert [len(each.drafts) for each in found] == [3, 1]
    first = begun(loaded, PROMPT, settings).next.picked
    forced = (
        replace(settings, logit_bias=((loaded.tokens.eos_ids[0], 1e6),)) if loaded.tokens.eos_ids else None
    )
    if forced is not None:
        session = begun(loaded, PROMPT, forced)
        assert session.next.picked in loaded.tokens.eos_ids != first
        assert rounds(session, Prophet([]), 1)[1][0].drafts == ()


def untold(step: Step) -> Generator[Record, None, bool]:
    yield step
    return False


def test_a_round_in_stages_lets_the_person_go_elsewhere_in_between(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    ids = [step.id for step in plain(loaded, SETTINGS, 12)]
    for leave in (None, "proposed", "verified"):
        session = begun(loaded, PROMPT, SETTINGS)
        taken: list[Step] = []
        settings = SpeculationSettings()
        one = Round(session, Prophet([*PROMPT, *ids], 0.0), DraftPaths(session), settings, paused=True)
        for stage in ("proposed", "verified", "taken"):
            *steps, told = one.run(never, untold, stage=True)
            taken += [step for step in steps if isinstance(step, Step)]
            assert isinstance(told, DraftRound)
            assert told.stage == stage
            assert session.kv.offset == len(PROMPT) + len(taken)
            assert {each.fate for each in told.drafts} == {"drafted" if stage == "proposed" else "accepted"}
            if leave == stage:
                session.step()
                break
        assert one.over
        assert [step.id for step in taken] == ([] if leave else ids[:4])
        session.move(session.tree.nodes(session.node)[len(PROMPT) - 1])
        assert [session.step().id for _ in range(6)] == ids[:6]


def test_the_text_of_the_token_taken_instead_ends_a_character_once_it_is_taken(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    ids = [step.id for step in plain(loaded, SETTINGS, 4)]
    session = begun(loaded, PROMPT, SETTINGS)
    one = Round(
        session, Prophet([*PROMPT, *ids], 1.0), DraftPaths(session), SpeculationSettings(), paused=True
    )
    for stage in ("proposed", "verified", "taken"):
        list(one.run(never, untold, stage=True))
        session.pending[one._end] = b"\xe2\x82"
        if (instead := one.record().instead) is not None:
            pending = b"\xe2\x82" if stage == "taken" else b""
            assert instead.text == session.tokens.text(instead.id, pending)[0]
    assert instead is not None
    assert session.tokens.text(instead.id, b"\xe2\x82") != session.tokens.text(instead.id, b"")


def test_a_cancelled_draft_leaves_the_session_where_it_was(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    session = begun(loaded, PROMPT, SETTINGS)
    draft = ModelDraft(loaded, session.tokens.vocabulary)
    one = Round(session, draft, DraftPaths(session), SpeculationSettings())
    with pytest.raises(Cancelled):
        list(one.run(lambda: True, untold))
    assert session.kv.offset == len(PROMPT)
    assert rounds(session, draft, 4)[0][0].id == plain(loaded, SETTINGS, 1)[0].id


def test_a_verification_that_fails_leaves_a_cache_that_goes_on(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = zoo.load("llama")
    ids = [step.id for step in plain(loaded, SETTINGS, 4)]
    session = begun(loaded, PROMPT, SETTINGS)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(session.runner, "compute", fails)
        with pytest.raises(RuntimeError):
            rounds(session, Prophet([*PROMPT, *ids], 0.0), 4)
    session.runner.compute = loaded.model
    assert [step.id for step in rounds(session, Prophet([*PROMPT, *ids], 0.0), 4)[0]] == ids


@pytest.mark.slow  # a grammar is tried in a process of its own
def test_a_grammar_holds_for_drafts_too(zoo: Zoo) -> None:
    pytest.importorskip("llguidance")
    loaded = zoo.load("pocket")
    prompt = loaded.tokens.encode("Once upon a time there was a")
    settings = replace(SETTINGS, grammar=Grammar("regex", "( [a-z]+){2,9}"), repetition_penalty=0.0)
    expected = [step.id for step in plain(loaded, settings, 10, prompt)]
    session = begun(loaded, prompt, settings)
    steps, found = rounds(session, ModelDraft(loaded, session.tokens.vocabulary), len(expected))
    assert [step.id for step in steps] == expected
    assert drafted(found, "refused") == 0


@pytest.mark.parametrize(
    ("count", "attempts", "least"), [(10, 3, 0.7), pytest.param(60, 5, 0.95, marks=pytest.mark.slow)]
)
def test_the_cost_told_is_that_of_an_outside_stopwatch(
    zoo: Zoo, count: int, attempts: int, least: float
) -> None:
    loaded = zoo.load("pocket")
    prompt = loaded.tokens.encode("Once upon a time there was a big dog. The big dog")
    session = begun(loaded, prompt, replace(SETTINGS, repetition_penalty=0.0))
    paths, settings, shares = DraftPaths(session), SpeculationSettings(), list[float]()
    for _ in range(attempts):
        told, begun_at = 0.0, time.perf_counter()
        for _ in range(count):
            *_, one = Round(session, LookupDraft(), paths, settings).run(never, untold)
            assert isinstance(one, DraftRound)
            told += one.ms + one.rates_ms + one.stalled_ms
        shares.append(told / ((time.perf_counter() - begun_at) * 1000))
    assert least <= max(shares) <= 1  # between two parts of it another program may have the machine
