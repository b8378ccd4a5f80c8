"""A run that goes ahead of its sampler tells what single steps tell, whether the device's guess was right or wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from engine.breakpoints import Breakpoints
from engine.cache.kinds import Snapshot
from engine.errors import LoadError, StepError
from engine.grammar_settings import Grammar
from engine.model.forward import PipelinedForward, Runner
from engine.protocol import Step
from engine.session import run as run_module
from engine.session.run import BreakpointEvaluator, guesses, run
from engine.session.session import Session
from engine.settings import ORDERS, Settings
from engine.task import never
from tests.engine.cache.test_kinds import INNER, WithState, with_caches
from tests.engine.inside.looking import loaded as family_of
from tests.engine.session.test_run import PROMPT, begun, plain
from tests.engine.session.test_walks import KINDS, bound
from tests.engine.sessions import Breaks
from tests.engine.sessions import begun as opened
from tests.families import FAMILIES
from tests.zoo import Zoo

ONE_BY_ONE = {"rotating", "sliding beside global", "sliding, window of 32"}
"""Kinds whose window is soon full: from then on nothing can be taken back for free."""


class Guesses:
    """The device's guesses, some of them made wrong, and what became of them.

    Args:
        wrong: From the position of a guessed token to whether another one is guessed.
    """

    def __init__(self, wrong: Callable[[int], bool]) -> None:
        self._wrong = wrong
        self.begun = 0
        """Forwards that were begun for a guess."""
        self.taken_back = 0

    @contextmanager
    def made(self) -> Iterator[Guesses]:
        """What runs guess in this block."""
        back, guess = PipelinedForward._take_back, PipelinedForward.most_probable

        def guess_or_wrong(pipeline: PipelinedForward, row: mx.array) -> mx.array:
            self.begun += 1
            return (guess(pipeline, row) + int(self._wrong(pipeline._runner.kv.offset))) % row.size

        def take_back(pipeline: PipelinedForward, offset: int) -> None:
            self.taken_back += 1
            back(pipeline, offset)

        with (
            patch.object(run_module, "guesses", lambda session: True),
            patch.object(PipelinedForward, "_take_back", take_back),
            patch.object(PipelinedForward, "most_probable", guess_or_wrong),
        ):
            yield self


def held(session: Session) -> list[np.ndarray]:
    """The columns and states that the caches hold, without what stands behind their ends."""
    if session.kv.without_snapshots() is not None:
        return []
    return [array for each in session.kv.snapshot(0) for array in _arrays(each)]


def _arrays(saved: Snapshot) -> Iterator[np.ndarray]:
    for one in (*saved.copies, *saved.references):
        if one is not None:
            whole = np.array(one.astype(mx.float32))
            yield whole if saved.ring is None else whole[..., : saved.ring[0], :]


def assert_as_steps(session: Session, expected: Session, ran: Sequence[Step], steps: Sequence[Step]) -> None:
    """The records are equal, and so are tree, cache, readings and what is kept."""
    assert [plain(step) for step in ran] == [plain(step) for step in steps]
    assert session.node == expected.node
    assert session.kv.offset == expected.kv.offset == session.tree[session.node].depth
    assert (
        session.kv.reading() == expected.kv.reading()
    )  # without what a run that is closed keeps of a token under way
    assert session.kept_logits.nodes == expected.kept_logits.nodes
    assert all(np.array_equal(one, other) for one, other in zip(held(session), held(expected), strict=True))


WRONG: dict[str, Callable[[int], bool]] = {
    "right": lambda position: False,
    "every third wrong": lambda position: position % 3 == 0,
    "all wrong": lambda position: True,
}


@pytest.mark.wide(2)
@pytest.mark.parametrize("temp", [0.0, 0.8])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_tells_what_steps_tell_whatever_was_guessed(
    zoo: Zoo, kind: str, wrong: str, temp: float
) -> None:
    own = {"temp": temp, "top_p": 0.95, "seed": 3, "max_tokens": 24}
    by_run, by_steps = begun(zoo, kind, **own), begun(zoo, kind, **own)
    with Guesses(WRONG[wrong]).made() as guesses:
        ran = list(run(by_run, never))
    assert_as_steps(by_run, by_steps, ran, [by_steps.step() for _ in ran])
    name, options, tolerance = KINDS[kind]
    assert by_run.verify().largest_difference < bound(zoo.load(name, **options), tolerance)
    assert len(ran) == 24 or ran[-1].id in by_run.tokens.eos_ids
    if kind not in ONE_BY_ONE:
        assert (
            guesses.begun >= len(ran) - 3
        )  # the first has no row to guess from; a cache is quantized in one step
    if wrong == "all wrong" and temp == 0:
        assert guesses.taken_back == guesses.begun
    elif wrong == "right" and temp == 0:
        assert guesses.taken_back <= 1


@pytest.mark.wide(2)
@pytest.mark.parametrize("guessed", ["half of it wrong", "nothing"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_goes_ahead_as_it_steps(
    tmp_path_factory: pytest.TempPathFactory, family: str, guessed: str
) -> None:
    try:
        loaded = family_of(tmp_path_factory.getbasetemp() / "guessed", family)
    except LoadError:
        pytest.skip("mlx_lm runs it on Metal alone")
    bias = ((3, 0.5),) if guessed == "nothing" else ()
    own = Settings(temp=0.8, top_p=0.95, seed=3, max_tokens=12, logit_bias=bias)
    by_run, by_steps = opened(loaded, [5, 77, 300], own), opened(loaded, [5, 77, 300], own)
    with Guesses(lambda position: position % 2 == 0).made():
        ran = list(run(by_run, never))
    assert_as_steps(by_run, by_steps, ran, [by_steps.step() for _ in ran])


@pytest.mark.wide(2)
@pytest.mark.parametrize("temp", [0.0, 0.8])
@pytest.mark.parametrize("inner", INNER)
def test_a_cache_made_of_caches_goes_ahead_as_it_steps(zoo: Zoo, inner: str, temp: float) -> None:
    loaded = with_caches(zoo.load("llama"), lambda: WithState(INNER[inner]()))
    own = Settings(temp=temp, max_tokens=12)
    by_run, by_steps = opened(loaded, PROMPT, own), opened(loaded, PROMPT, own)
    ran = list(run(by_run, never))
    assert_as_steps(by_run, by_steps, ran, [by_steps.step() for _ in ran])
    assert by_run.verify().largest_difference < 1e-4


BREAKS_OFF = ("closed", "cancelled", "breakpoint", "max tokens")


@given(
    kind=st.sampled_from(["plain float32", "plain bfloat16", "quantized from 12", "recurrent", "hybrid", "rotating"]),
    temp=st.sampled_from([0.0, 0.7, 1.0]),
    top=st.sampled_from([{}, {"top_k": 5}, {"top_p": 0.9, "min_p": 0.05}]),
    order=st.sampled_from(sorted(ORDERS)),
    wrong=st.sets(st.integers(len(PROMPT), len(PROMPT) + 12)),
    cut=st.integers(1, 10),
    end=st.sampled_from(BREAKS_OFF),
    seed=st.integers(0, 2**64 - 1),
)  # fmt: skip
@budget(deadline=None, max_examples=8)
def test_a_run_may_end_anywhere_and_go_on_as_steps(
    zoo: Zoo, kind: str, temp: float, top: dict[str, float], order: str, wrong: set[int], cut: int, end: str, seed: int
) -> None:  # fmt: skip
    most = cut if end == "max tokens" else 100
    own = {"temp": temp, "seed": seed, "max_tokens": most, "sampler_order": order, **top}
    by_run, by_steps = begun(zoo, kind, **own), begun(zoo, kind, **own)
    points = Breakpoints(tokens=cut) if end == "breakpoint" else Breakpoints()
    ran: list[Step] = []
    with Guesses(wrong.__contains__).made():
        steps = run(
            by_run, lambda: end == "cancelled" and len(ran) >= cut, BreakpointEvaluator(by_run, [points])
        )
        for step in islice(steps, cut if end == "closed" else None):
            ran.append(step)  # noqa: PERF402 - the run asks how many there are
        steps.close()  # type: ignore[attr-defined]  # a generator
    assert len(ran) - cut in (0, int(end == "cancelled")) or ran[-1].id in by_run.tokens.eos_ids
    assert_as_steps(by_run, by_steps, ran, [by_steps.step() for _ in ran])
    assert plain(by_run.step()) == plain(by_steps.step())


@pytest.mark.parametrize("said", ["out of memory", None])
@pytest.mark.parametrize("kind", ["plain float32", "hybrid"])
def test_a_forward_that_fails_ahead_fails_at_its_own_step(zoo: Zoo, kind: str, said: str | None) -> None:
    by_run, by_steps = begun(zoo, kind, temp=0.8, seed=3), begun(zoo, kind, temp=0.8, seed=3)
    told: list[list[Step]] = []
    for session, steps in ((by_run, run(by_run, never)), (by_steps, iter(by_steps.step, None))):
        whole, told = session.interventions, [*told, []]
        broken = Breaks(session.runner.model, 4, said)
        with patch.object(whole, "computes", [broken]):
            session.make_current(session.node)
            with pytest.raises((RuntimeError, StepError), match=said or "not numbers"):
                told[-1].extend(steps)
        session.make_current(session.node)
    ran, expected = told
    assert [plain(step) for step in ran] == [plain(step) for step in expected]
    assert len(ran) == 4
    assert len(by_run.tree) == len(by_steps.tree)
    assert by_run.step().id == by_steps.step().id
    assert by_run.verify().largest_difference < 1e-4


@pytest.mark.parametrize("temp", [0.0, 0.8])
@pytest.mark.parametrize("kind", ["plain float32", "plain bfloat16", "rotating", "recurrent"])
def test_rows_stay_what_they_were(zoo: Zoo, kind: str, temp: float) -> None:
    """On a CPU they are arrays of MLX, which writes what it can in place and gives memory out again."""
    on_host, rows = Runner.on_host, []

    def watched(runner: Runner, array: mx.array) -> np.ndarray:
        row = on_host(runner, array)
        rows.append((row, row.tobytes()))
        return row

    with patch.object(Runner, "on_host", watched), Guesses(WRONG["every third wrong"]).made():
        session = begun(zoo, kind, temp=temp, seed=3, max_tokens=40)
        for _ in range(8):
            session.step()
        list(run(session, never))
        session.move(session.tree[session.tree[session.node].parent].parent)
        session.choose(7)
    mx.clear_cache()
    assert len(rows) > 20
    assert all(row.tobytes() == was for row, was in rows)


def test_a_family_that_reads_its_arrays_while_it_computes_is_stepped(tmp_path: Path) -> None:
    """dbrx chooses experts in Python: a graph that is built before its token is known has those of another token."""
    own = Settings(max_tokens=6, logit_bias=((3, 0.5),))
    by_run, by_steps = (opened(family_of(tmp_path, "dbrx"), [5, 77, 300], own) for _ in range(2))
    ran = list(run(by_run, never))
    assert_as_steps(by_run, by_steps, ran, [by_steps.step() for _ in ran])
    assert not by_run.can_pipeline


def test_what_changed_since_the_guess_is_decided_by_the_sampler(zoo: Zoo) -> None:
    by_run, by_steps = (begun(zoo, "plain float32", temp=0.9, seed=3, max_tokens=12) for _ in range(2))
    ran, steps = [], []
    for step in run(by_run, never):
        ran.append(step)
        if len(ran) == 4:
            by_run.settings = Settings(temp=0.0, max_tokens=12)
    for _ in ran:
        steps.append(by_steps.step())
        if len(steps) == 4:
            by_steps.settings = Settings(temp=0.0, max_tokens=12)
    assert_as_steps(by_run, by_steps, ran, steps)


# ---- when a token is guessed ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "own",
    [
        {"temp": 0.8},
        {"logit_bias": ((3, 1.0),)},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": 0.1},
        {"min_tokens": 4},
        {"grammar": Grammar("regex", "a+")},
    ],
    ids=lambda own: next(iter(own)),
)
def test_only_what_is_most_probable_is_guessed(zoo: Zoo, own: dict[str, object]) -> None:
    plain_session, other = (Session(zoo.load("llama"), Settings(**each)) for each in ({}, own))  # type: ignore[arg-type]
    assert guesses(plain_session)
    assert not guesses(other)
