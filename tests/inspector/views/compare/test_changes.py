"""Two branches of the same tokens, made differently: what changed is said first, in the numbers of the records."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.protocol import Candidate, HoldInterventions, Intervention, InterventionsHeld, Prefill, Step
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.display import quoted, token_label
from inspector.documents.compare import (
    RIGHT,
    compare,
    lead,
    least_kl_bits,
    lines,
    own_conditions,
    summary,
)
from inspector.scales import percent
from inspector.state.session_tree import SessionTree
from inspector.views.compare import CompareView
from tests.inspector.fakes import Session, session
from tests.inspector.rig import Rig
from tests.inspector.views.sampler.test_what_if_real import until

OFF = Intervention("head", 2, 1)


def held_records(made: Session, steps: Sequence[Step], held: bool = True) -> None:
    """The same tokens as some steps once more, in a branch under an intervention."""
    made.choose(steps[0].parent, steps[0].id)
    if held:
        made._out(InterventionsHeld(made.node, steps[0].node, (OFF,), 3.0))
    for step in steps[1:]:
        made.step(step.id, "intervened" if held else None)


def twins(steps: int = 8, fork: int = 3, held: bool = True, more: int = 0) -> tuple[SessionTree, int, int]:
    """A tree with two branches of the same tokens, and where they end: the model's own first."""
    made = session(steps)
    own = made.timeline().steps
    held_records(made, own[fork:], held)
    made.steps(more)
    timeline = made.timeline()
    return timeline.tree, own[-1].node, timeline.tip


def written(step: Step) -> str:
    return quoted(token_label(step.text, step.raw))


def test_the_lead_says_what_was_made_differently_and_where_it_shows_most() -> None:
    tree, own, other = twins()
    comparison = compare(tree.path(own), tree.path(other))
    assert (comparison.shared, comparison.same) == (8, 5)
    found = comparison.changes
    pairs = list(zip(tree.path(own)[8:], tree.path(other)[8:], strict=True))
    assert [each.prob for each in found] == [right.prob - left.prob for left, right in pairs]
    assert [each.bits for each in found] == pytest.approx(
        [math.log2(left.prob / right.prob) for left, right in pairs]
    )
    most = max(pairs, key=lambda pair: abs(pair[1].prob - pair[0].prob))
    said = lead(comparison, tree)
    assert said.startswith(
        f"The other: L3 h2 off. Same 5 tokens, but their probabilities differ, that of {written(most[0])} most, at "
        f"step {most[0].index + 1}: {percent(most[0].prob)} → {percent(most[1].prob)}. "
    )
    assert said.endswith("g goes there.")
    assert summary(comparison) == "the same 5 tokens"
    rules = [line.words for line in lines(comparison) if hasattr(line, "words")]
    assert rules == ["the same 5 tokens in two branches, after 8 shared tokens"]


@pytest.mark.parametrize("own", [1, 2])
def test_one_or_two_tokens_are_the_same_too(own: int) -> None:
    tree, left, right = twins(fork=8 - own)
    comparison = compare(tree.path(left), tree.path(right))
    assert comparison.same == own
    said = lead(comparison, tree)
    if own == 1:  # its own distribution is the one before it, which both have in common
        assert said == ("The other: L3 h2 off. Same token; their probabilities are the same, too.")


def test_where_one_goes_on_or_they_diverge_the_lead_says_so() -> None:
    tree, own, other = twins(more=3)
    comparison = compare(tree.path(own), tree.path(other))
    assert "Same 5 tokens, then the other continues, but" in lead(comparison, tree)
    assert [line.words for line in lines(comparison) if hasattr(line, "words")][1:] == ["this path ends here"]
    swapped = compare(tree.path(other), tree.path(own))
    said = lead(swapped, tree)
    assert said.startswith("This path: L3 h2 off. Same 5 tokens, then this path continues")


def test_where_all_is_the_same_it_says_exactly_that() -> None:
    tree, own, other = twins(held=False)
    path = tree.path(other)
    same = [
        replace(each, prob=mine.prob, logprob=mine.logprob, surprisal_bits=mine.surprisal_bits)
        if isinstance(each, Step) and isinstance(mine, Step)
        else each
        for each, mine in zip(path, tree.path(own), strict=True)
    ]
    comparison = compare(tree.path(own), same)
    said = lead(comparison, tree)
    assert said == "Same 5 tokens, made in the same way, with the same probabilities: nothing differs."


def test_branches_that_diverge_by_a_token_have_no_lead() -> None:
    made = session(6)
    step = made.timeline().steps[2]
    old = made.node
    made.choose(step.parent, next(each.id for each in step.choice.candidates if each.id != step.id))
    timeline = made.timeline()
    comparison = compare(timeline.tree.path(old), timeline.tree.path(timeline.tip))
    assert comparison.same == 0
    assert lead(comparison, timeline.tree) == ""


def test_settings_that_differ_between_the_sides_are_named() -> None:
    tree, own, other = twins(held=False)
    for temp, end in ((0.5, own), (1.5, other)):
        for item in tree.path(end)[8:]:
            tree.settings[item.node] = Settings(temp=temp)
    comparison = compare(tree.path(own), tree.path(other))
    assert own_conditions(tree, comparison) == ("temperature 0.5", "temperature 1.5")


# ---- the least divergence ---------------------------------------------------------------------


def listing(step: Step, probs: Sequence[float], ids: Sequence[int]) -> Step:
    """A step whose candidates are some of a distribution."""
    listed = tuple(
        Candidate(id, "x", b"x", False, math.log(probs[id]), probs[id], 1, probs[id], None) for id in ids
    )
    rest = math.fsum(prob for id, prob in enumerate(probs) if id not in ids)
    return replace(step, choice=replace(step.choice, candidates=listed, others_prob=rest))


MASSES = st.lists(st.floats(0.01, 1.0), min_size=8, max_size=8)
LISTED = st.sets(st.integers(0, 7), min_size=1)


@given(MASSES, MASSES, LISTED, LISTED)
def test_it_is_never_more_than_the_whole_divergence(
    left: list[float], right: list[float], one: set[int], other: set[int]
) -> None:
    p, q = ([each / sum(masses) for each in masses] for masses in (left, right))
    step = session(1).timeline().steps[0]
    found = least_kl_bits(listing(step, p, sorted(one)), listing(step, q, sorted(other)))
    whole = sum(a * math.log2(a / b) for a, b in zip(p, q, strict=True))
    assert 0.0 <= found <= whole + 1e-9


@given(MASSES, MASSES)
def test_with_all_candidates_it_is_the_divergence(left: list[float], right: list[float]) -> None:
    p, q = ([each / sum(masses) for each in masses] for masses in (left, right))
    step = session(1).timeline().steps[0]
    found = least_kl_bits(listing(step, p, range(8)), listing(step, q, range(8)))
    assert found == pytest.approx(sum(a * math.log2(a / b) for a, b in zip(p, q, strict=True)), abs=1e-9)


# ---- on the screen ----------------------------------------------------------------------------


async def held(rig: Rig, steps: int = 24) -> list[Step]:
    """Two branches of the same tokens on the screen that compares; returns the model's own."""
    await rig.ready(steps=steps)
    own = list(rig.timeline.steps)
    began = len(rig.session.records)
    held_records(rig.session, own[3:])
    await rig.push(rig.session.records[began:])
    await rig.do("compare")
    return own


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(220, 40), (120, 40), (80, 22), (60, 34), (60, 18)])
async def test_every_size_leads_with_what_changed_and_marks_the_largest(
    rig: Rig, size: tuple[int, int]
) -> None:
    await held(rig)
    screen = rig.app.top
    assert isinstance(screen, CompareView)
    said = " ".join(str(screen.lead.render()).split())
    assert said.startswith("This path: L3 h2 off. Same 21 tokens, but their probabilities")
    assert screen.lead.size.height < 5
    most = screen.comparison.largest[0]
    if size[0] < 100 or size[1] < 38:  # texts come first where both have no room
        await rig.press("v")
    await rig.press("g")
    assert screen.table.cursor == most.place
    shown = rig.screen_text().split("\n")
    assert sum("◆" in line for line in shown) == 1
    line = next(line for line in shown if "◆" in line)
    number = f"{100 * most.prob:+.2f}".replace("-", "−")
    assert percent(most.left.prob) in line
    assert percent(most.right.prob) in line
    assert number in line
    if size[0] >= 200:  # beside the text half of that
        assert f"{most.bits:+.2f}".replace("-", "−") in line
        assert f"{most.kl_bits:.2f}" in line
    assert f"{percent(most.left.prob)} → {percent(most.right.prob)}" in str(
        screen.screen.query_one("#status").render()
    )
    await rig.press("g")
    assert screen.table.cursor == screen.comparison.largest[1].place


async def test_without_such_tokens_the_key_says_so(rig: Rig) -> None:
    await rig.ready(steps=8)
    step = rig.timeline.steps[3]
    id = next(each.id for each in step.choice.candidates if each.id != step.id)
    await rig.push(rig.session.choose(step.parent, id))
    await rig.do("compare")
    await rig.press("g")
    screen = rig.app.top
    assert isinstance(screen, CompareView)
    assert not screen.lead.display
    assert "Δp" not in rig.screen_text()
    assert "no tokens that both have" in str(screen.screen.query_one("#status").render())


@pytest.mark.slow
async def test_a_head_off_in_the_real_engine_leads_with_that() -> None:
    app = InspectorApp(LoadSettings(), Settings(temp=0.0, max_tokens=12), Prefill("Once upon a time", False))
    async with app.run_test(size=(120, 40)) as pilot:
        timeline = lambda: app.controller.timeline  # noqa: E731
        client = app.controller.client
        idle = lambda: not client.outstanding  # noqa: E731
        await until(lambda: timeline().prompts.prefilled and idle())
        await pilot.press("r")
        await until(lambda: len(timeline().steps) == 12 and idle())
        own = list(timeline().steps)
        client.do(HoldInterventions(own[2].node, (Intervention("attention", 4),)))
        await until(lambda: timeline().under and idle())
        for step in own[3:]:
            app.controller.navigation.choose(step.id)
            await until(lambda step=step: timeline().items[-1].id == step.id and idle())
        await pilot.press("4", "c")
        await pilot.pause()
        screen = app.top
        assert isinstance(screen, CompareView)
        assert screen.comparison is not None
        assert screen.comparison.same == 10
        mine = timeline().steps[2:]
        assert [step.id for step in mine] == [step.id for step in own[2:]]
        # the current path is on the left: the changed one
        worst = max(range(10), key=lambda n: abs(own[2:][n].prob - mine[n].prob))
        assert mine[worst].prob != own[2:][worst].prob
        said = str(screen.lead.render())
        assert "This path: L5 attention off. Same 10 tokens, but" in " ".join(said.split())
        assert f"{percent(mine[worst].prob)} → {percent(own[2:][worst].prob)}" in said
        await pilot.press("g")
        assert screen.table.pair is not None
        assert screen.table.pair.right == own[2:][worst].position
        assert screen.table.side == RIGHT
    assert app.closed_in_time
