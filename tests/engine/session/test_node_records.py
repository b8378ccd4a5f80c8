"""Stops, and nodes that have no step yet."""

from __future__ import annotations

import mlx_lm
import pytest

from engine import pocket, protocol
from engine.breakpoints import Breakpoints
from engine.errors import Cancelled, StepError
from engine.model.load import Loaded
from engine.protocol import BeamEnded, Moved, Step
from engine.session.node_records import stop_reached
from engine.session.run import BreakpointEvaluator, run
from engine.session.session import Session
from engine.settings import BeamSettings, LoadSettings, Settings
from engine.task import never
from engine.tree import TokenTree
from tests.engine.sessions import begun, go_back
from tests.engine.unthreaded import Unthreaded, kinds
from tests.zoo import Zoo


def told(zoo: Zoo, text: str = "Once upon a time", **settings: object) -> Session:
    return begun(zoo.load("pocket"), text, Settings(**settings), echo=None)  # type: ignore[arg-type]


def typed(session: Session, text: str) -> list[str | None]:
    """The reasons after each token of a text."""
    found = []
    for token in session.tokens.encode(text, bare=True):
        session.choose(token)
        stop = stop_reached(session, session.node)
        found.append(f"{stop.reason}:{stop.detail}" if stop else None)
    return found


def test_end_of_sequence_ends_and_one_can_go_on(zoo: Zoo) -> None:
    session = told(zoo)
    session.choose(2)
    stop = stop_reached(session, session.node)
    assert (stop.reason, stop.detail) == ("eos", "<|im_end|>")
    assert session.step().index == 1


@pytest.mark.wide(1)
@pytest.mark.parametrize("stop", ["loved", "oved to pl", " cat sat", "t.\n\nTh", "é"])
def test_a_stop_string_ends_on_the_token_that_completes_it(zoo: Zoo, stop: str) -> None:
    session = told(zoo, stop=(stop,), max_tokens=1000)
    text = " and she loved to play. The cat sat.\n\nThen a café"
    reasons = typed(session, text)
    ids = session.tokens.encode(text, bare=True)
    complete = [stop in session.tokens.join(ids[: place + 1]) for place in range(len(ids))]
    assert reasons.index(f"stop:{stop}") == complete.index(True)
    assert reasons.count(f"stop:{stop}") == 1


def test_a_stop_string_in_the_prompt_does_not_count(zoo: Zoo) -> None:
    session = told(zoo, "Once upon a time", stop=("time, there",), max_tokens=1000)
    assert typed(session, ", there was") == [None] * 3


def test_max_tokens_end_a_run_and_one_that_goes_on_after_as_many_more(zoo: Zoo) -> None:
    session = told(zoo, max_tokens=3, min_tokens=100)
    ends = []
    for by_hand in (0, 0, 2, 0, 1):
        for _ in range(by_hand):
            session.step()
        ends.append(list(run(session, never))[-1].index + 1)
    assert ends == [3, 6, 11, 14, 18]


def test_steps_by_hand_reach_max_tokens_once(zoo: Zoo) -> None:
    session = told(zoo, max_tokens=3)
    reasons = [stop_reached(session, session.step().node) for _ in range(6)]
    assert [stop.detail if stop else None for stop in reasons] == [None, None, "3 tokens", None, None, None]


@pytest.mark.parametrize(("points", "ends"), [
    (Breakpoints(tokens=5), 5), (Breakpoints(tokens=2), 2), (Breakpoints(entropy_above=30), 3),
    (Breakpoints(tokens=5, entropy_above=30, all_of=True), 3),
])  # fmt: skip
def test_a_run_of_more_tokens_than_max_tokens_takes_all_of_them(
    zoo: Zoo, points: Breakpoints, ends: int
) -> None:
    """Where other conditions must hold, too, max tokens still ends it: else nothing might."""
    session = told(zoo, max_tokens=3, min_tokens=100)
    assert len(list(run(session, never, BreakpointEvaluator(session, [points])))) == ends


def test_min_tokens_bar_end_of_sequence_and_say_so(zoo: Zoo) -> None:
    session = told(zoo, "The end.", min_tokens=5, candidates=4096, temp=1.0, seed=1)
    for _ in range(5):
        barred = [each for each in session.next.candidates if each.id in session.tokens.eos_ids]
        assert [each.cut_by for each in barred] == ["min-tokens"] * 2
        assert [each.sampler_prob for each in barred] == [0, 0]
        session.step()
    assert {each.cut_by for each in session.next.candidates} == {None}


def test_the_context_window_ends_a_run(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket"), [300] * 505, Settings(max_tokens=1000, min_tokens=1000, candidates=1))
    steps = list(run(session, never))
    assert steps[-1].kv.offset == 512
    stop = stop_reached(session, session.node)
    assert (stop.reason, stop.detail) == ("length", "context window of 512 tokens")
    assert session.step().kv.offset == 513  # positions are computed: one can go on


def test_learned_positions_end_for_good(zoo: Zoo) -> None:
    session = begun(zoo.load("gpt2"), [300] * 255, Settings(max_tokens=1000, candidates=1))
    assert session.facts.hard_window
    session.step()
    with pytest.raises(StepError, match="context window of 256 tokens is full"):
        session.step()
    assert go_back(session, 3).kv.offset == 253


def test_an_extra_eos_token_ends_where_mlx_lm_ends(zoo: Zoo) -> None:
    session = Session(zoo.load("pocket", dtype="file", extra_eos_token=(".",)), Settings(max_tokens=60))
    ids = session.tokens.encode("Once upon a time")
    list(session.prefill("", ids, echo=False))
    ran = list(run(session, never))
    stop = stop_reached(session, ran[-1].node)
    assert (stop.reason, stop.detail) == ("eos", ".")
    model, tokenizer = mlx_lm.load(str(pocket.directory()))
    tokenizer.add_eos_token(".")
    theirs = [each.token for each in mlx_lm.stream_generate(model, tokenizer, ids, max_tokens=60)]
    assert [step.id for step in ran] == theirs
    assert session.facts.eos_ids == tuple(sorted(tokenizer.eos_token_ids))


# ---- nodes without a step ----------------------------------------------------------------------


def searched(loaded: Loaded) -> tuple[Session, BeamEnded]:
    from engine.decoding.beam import search

    session = begun(loaded, [1, 402, 411, 263, 931], Settings(temp=0, candidates=5), echo=None)
    end = list(search(session, BeamSettings(width=3, max_tokens=6)))[-1]
    assert isinstance(end, BeamEnded)
    return session, end


@pytest.mark.parametrize("name", ["llama", "mamba2", "gpt-oss"])
def test_going_to_a_beam_steps_its_tokens(zoo: Zoo, name: str) -> None:
    session, end = searched(zoo.load(name))
    wanted = end.ranking[1]
    moved, *steps = session.move_and_step(wanted.node)
    assert isinstance(moved, Moved)
    assert all(isinstance(step, Step) for step in steps)
    told = [step for step in steps if isinstance(step, Step)]
    assert tuple(step.id for step in told) == wanted.ids
    assert {step.origin for step in told} == {"beam"}
    assert sum(step.logprob for step in told) == pytest.approx(wanted.logprob, abs=1e-4)
    assert session.node == wanted.node
    assert session.verify().largest_difference < 1e-4


def test_a_second_visit_is_a_move(zoo: Zoo) -> None:
    session, end = searched(zoo.load("llama"))
    list(session.move_and_step(end.ranking[1].node))
    list(session.move_and_step(end.ranking[0].node))
    (again,) = session.move_and_step(end.ranking[1].node)
    assert again.recomputed == 0
    assert again.restored_bytes > 0
    assert again.kv.kept_bytes > 0
    assert again.kv.kept_budget == 256 * 2**20


def test_it_can_be_broken_off_at_any_step(zoo: Zoo) -> None:
    session, end = searched(zoo.load("llama"))
    going = session.move_and_step(end.ranking[0].node, lambda: session.tree[session.node].depth >= 7)
    _, _, last = (next(going) for _ in range(3))
    with pytest.raises(Cancelled):
        next(going)
    assert isinstance(last, Step)
    assert session.node == last.node


def test_untold_are_the_last_nodes_of_a_path() -> None:
    tree = TokenTree()
    prompt = tree.add_prompt(0, [5, 6])[-1]
    first = tree.add(prompt, 7, "sampled")
    tree[first].has_step = True
    beam = tree.add(tree.add(first, 8, "beam"), 9, "beam")
    assert tree.without_step(prompt) == []
    assert tree.without_step(first) == []
    assert [tree[each].token for each in tree.without_step(beam)] == [8, 9]


def test_tokens_are_taken_by_id(zoo: Zoo) -> None:
    engine = Unthreaded(LoadSettings(), prompt="Once upon a time")
    (prompt,) = engine.of(protocol.Prefilled)
    node = prompt.tokens[-1].node
    engine.do(protocol.TakeStep(), protocol.Take(node, (44, 45, 46)))
    steps = engine.of(Step)
    assert [step.id for step in steps[1:]] == [44, 45, 46]
    assert {step.origin for step in steps[1:]} == {"chosen"}
    came = engine.do(protocol.Take(node, (44, 10**9)))
    assert kinds(came) == ["Failure", "Ended"]
    assert "outside the model's vocabulary" in came[0].message  # type: ignore[union-attr]
