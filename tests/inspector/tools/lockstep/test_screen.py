"""Two models in lockstep on the screen: what is asked for, what is shown, and what the keys do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine import protocol
from engine.protocol import (
    Candidate,
    Failure,
    FollowSecond,
    LockstepOpened,
    LockstepRead,
    LockstepSpan,
    Measuring,
    OpenLockstep,
    PartWays,
    ReadLockstep,
    Step,
    Take,
    WayPart,
    WaysParted,
)
from engine.settings import LoadSettings, Settings
from engine.trace import save_as
from inspector.state.lockstep import LockstepSoFar
from inspector.tools.compare.screen import CompareScreen
from inspector.tools.lockstep.screen import COLOURINGS, LockstepScreen, span_words, ways_words
from tests.engine.logits.recording import Recording
from tests.inspector import fakes
from tests.inspector.rig import Rig

SECOND = LockstepOpened(fakes.facts(), "pocket [b]4-bit", "ids")


def candidate(id: int, text: str, prob: float, rank: int) -> Candidate:
    return Candidate(id, text, text.encode(), False, -1.0, prob, rank, prob, None)


def span(
    node: int, position: int, kl: float | None, same: bool | None = True, tokens: int = 1
) -> LockstepSpan:
    scored = tokens if kl is not None else 0
    logprob = -1.0 if scored else None
    return LockstepSpan(
        node, position, tokens, 1, " x", b" x", logprob, logprob and logprob - (kl or 0), scored, scored, 1.5, 2.5,
        kl, 1 if scored else None, 3 if scored else None, same if scored else None,
        (candidate(1, " cat", 0.5, 1), candidate(2, "[/b]", 0.25, 2)),
        (candidate(2, "[/b]", 0.75, 1), candidate(3, " dog", 0.125, 2)),
    )  # fmt: skip


def read(rig: Rig, kls: dict[int, float] | None = None, flips: tuple[int, ...] = ()) -> LockstepRead:
    """The whole path, read."""
    items = rig.timeline.items
    spans = tuple(
        span(item.node, slot, (kls or {}).get(slot, 0.001) if slot else None, slot not in flips)
        for slot, item in enumerate(items)
    )
    ahead = replace(span(items[-1].node, len(items), 0.125), tokens=0, logprob=None, other_logprob=None)
    return LockstepRead(items[-1].node, 0, spans, len(items), len(items), 1.0, 2.0, ahead, 2)


async def opened(rig: Rig) -> LockstepScreen:
    """On the screen with a second model, before anything was read."""
    await rig.ready()
    await rig.press("h", "4")
    await rig.push([SECOND])
    await rig.end("OpenLockstep")
    await rig.pilot.pause()
    assert isinstance(rig.app.screen, LockstepScreen)
    return rig.app.screen


async def test_without_a_second_model_it_says_how_to_get_one(rig: Rig) -> None:
    await rig.ready()
    await rig.press("h")
    assert "There is no second model to compare with." in rig.screen_text()
    await rig.press("b")
    assert "There is no second model yet" in rig.screen_text()
    assert rig.engine.sent == []
    await rig.press("8")
    command = rig.engine.last(OpenLockstep)
    assert isinstance(command, OpenLockstep)
    assert (command.bits, command.against) == (8, rig.app.controller.setup.load)
    await rig.push([Measuring("OpenLockstep", 3, 74, "weights w")])
    assert "weights w 3/74" in rig.screen_text()
    await rig.push([Failure("OpenLockstep", "No [b]room.", "Close something.")])
    await rig.end("OpenLockstep")
    assert "No [b]room. Close something." in rig.screen_text()


async def test_the_path_is_read_and_shown_with_both_tables(rig: Rig) -> None:
    await opened(rig)
    asked = rig.engine.last(ReadLockstep)
    assert isinstance(asked, ReadLockstep)
    assert asked.node == rig.timeline.tip
    await rig.push([read(rig, {4: 0.75, 6: 0.25}, flips=(4, 6))])
    await rig.end("ReadLockstep")
    text = rig.screen_text()
    for shown in (
        "Q pocket [b]4-bit",
        "1.08≠",
        "0.36≠",
        "KL(P||Q), bits from  0.01  0.05  0.2  0.5  1.5 ",
        "bits · same top",
        "␣cat",
        "[/b]",
        "75.00 %",
        "in Q",
        "in P",
        "entropy 2.50 bits",
    ):
        assert shown in text, shown
    assert rig.engine.names.count("ReadLockstep") == 1
    await rig.press("g")
    assert rig.timeline.slot == 4
    assert "KL 1.0820 bits" in rig.screen_text()
    await rig.press("n")
    assert rig.timeline.slot == 6
    await rig.press("n")
    assert "No further token has another top token" in rig.screen_text()
    await rig.press("N")
    assert rig.timeline.slot == 4
    await rig.press("m")
    assert "change of logprob" in rig.screen_text()
    assert "−0.8≠" in rig.screen_text()
    await rig.press("m")
    assert "+2≠" in rig.screen_text()
    await rig.press("home")
    assert "Nothing is before the first token." in rig.screen_text()


async def test_following_either_and_each_its_own_way(rig: Rig) -> None:
    await opened(rig)
    await rig.push([read(rig)])
    await rig.end("ReadLockstep")
    await rig.press("space")
    assert rig.engine.names[-1] == "Step"
    await rig.push(rig.session.steps(1))
    await rig.end("Step")
    await rig.pilot.pause()
    again = rig.engine.last(ReadLockstep)
    assert isinstance(again, ReadLockstep)
    assert again.node == rig.timeline.tip
    await rig.push([read(rig)])
    await rig.end("ReadLockstep")
    await rig.press("b")
    assert rig.engine.sent[-1] == FollowSecond(rig.timeline.tip)
    await rig.end("FollowSecond")
    await rig.press("w")
    assert rig.engine.sent[-1] == PartWays(rig.timeline.tip)
    parts = (WayPart(" a day", " a day", True), WayPart(" of [b]sun", " at sea", False))
    await rig.push([WaysParted(rig.timeline.tip, 40, (1, 2, 3), (1, 2), parts, 2, 0, 5.0)])
    await rig.end("PartWays")
    text = rig.screen_text()
    assert "of [b]sun" in text
    assert "at sea" in text
    assert "They part after 2 tokens and don't meet again within 3" in text
    await rig.press("w")
    assert "␣cat" in rig.screen_text()


async def test_both_ways_become_branches_that_are_compared(rig: Rig) -> None:
    await opened(rig)
    await rig.push([read(rig)])
    await rig.end("ReadLockstep")
    fork = rig.timeline.tip
    await rig.press("enter")
    assert "Press w first" in rig.screen_text()
    await rig.press("w")
    other = [rig.session.step() for _ in range(3)]
    choice = other[1].choice
    mine = rig.session.choose(other[0].node, next(c.id for c in choice.candidates if c.id != other[1].id))
    one, same = mine[-1], other[0].id
    assert isinstance(one, Step)
    parts = (WayPart(" a", " a", True), WayPart(" b", " c d", False))
    ways = WaysParted(fork, 40, (same, one.id), tuple(step.id for step in other), parts, 1, 0, 5.0)
    await rig.push([replace(ways, parted=None)])
    await rig.press("enter")
    assert "Both go the same way" in rig.screen_text()
    await rig.push([ways])
    await rig.end("PartWays")
    assert "branches, compared" in rig.screen_text()
    rig.engine.sent.clear()
    await rig.press("enter")
    assert rig.engine.sent == [Take(fork, ways.other_ids), Take(fork, ways.ids)]
    assert rig.app.screen is rig.app.main
    await rig.push(other)
    await rig.end("Take")
    assert rig.app.screen is rig.app.main
    await rig.push(mine)
    await rig.end("Take")
    await rig.until(lambda: isinstance(rig.app.screen, CompareScreen))
    screen = rig.app.screen
    assert isinstance(screen, CompareScreen)
    assert screen.comparison is not None
    shared = screen.comparison.shared
    assert [item.id for item in screen.comparison.left[shared:]] == [one.id]
    assert [item.id for item in screen.comparison.right[shared:]] == [step.id for step in other[1:]]


async def test_models_with_other_tokens_have_no_common_branches(rig: Rig) -> None:
    await rig.ready()
    await rig.press("h", "4")
    await rig.push([replace(SECOND, aligned="bytes")])
    await rig.end("OpenLockstep")
    await rig.press("w")
    await rig.push([WaysParted(rig.timeline.tip, 40, (1,), (2,), (WayPart("a", "b", False),), 0, 0, 5.0)])
    rig.engine.sent.clear()
    await rig.press("enter")
    assert "its way is no branch of the first one's tree" in rig.screen_text()
    assert not rig.engine.sent


@pytest.mark.screen(size=(40, 12))
async def test_it_fits_small_terminals(rig: Rig) -> None:
    await opened(rig)
    await rig.push([read(rig, {4: 0.75})])
    await rig.end("ReadLockstep")
    text = rig.screen_text()
    assert "␣cat" in text
    assert "girl  named" in text
    assert "KL 0.1803" in text


async def test_what_failed_is_not_asked_for_again_and_again(rig: Rig) -> None:
    screen = await opened(rig)
    await rig.push([Failure("ReadLockstep", "It can't.", "Go back.")])
    await rig.end("ReadLockstep")
    screen.changed()
    await rig.pilot.pause()
    assert "It can't. Go back." in rig.screen_text()
    assert rig.engine.names.count("ReadLockstep") == 1


async def test_a_second_model_asked_for_twice_is_two_commands(rig: Rig) -> None:
    """The engine refuses an id that has not ended: a model loaded again while the second one is on its way."""
    from inspector.tools.lockstep.tool import LockstepControl

    await rig.ready()
    LockstepControl(rig.app.controller, OpenLockstep(rig.app.controller.setup.load, 4))
    for _ in range(2):
        rig.app.controller.client.receive(fakes.facts())
    first, second = (each for each in rig.engine.sent if isinstance(each, OpenLockstep))
    assert first == second
    assert first.id != second.id


# ---- recorded -------------------------------------------------------------------------------------


@pytest.fixture
def recorded() -> Recording:
    """Three steps with a second model, each of them read, and both ways from the last."""
    recording = Recording(LoadSettings())
    recording.do(protocol.Configure(Settings(temp=0)))
    recording.do(protocol.Prefill("Once upon a time", chat=False))
    recording.do(protocol.OpenLockstep(LoadSettings(), bits=4))
    for _ in range(3):
        recording.do(protocol.TakeStep())
        recording.do(protocol.ReadLockstep(recording.steps[-1].node))
    recording.do(protocol.PartWays(recording.steps[-1].node, tokens=3))
    return recording


@pytest.fixture
def path(recorded: Recording, tmp_path: Path) -> Path:
    found = tmp_path / "lockstep.jsonl.gz"
    save_as(found, recorded.entries, "test")
    return found


async def test_a_recorded_lockstep_is_shown_without_a_model(replay: Rig, recorded: Recording) -> None:
    kept = [entry.value for entry in recorded.entries]
    read = [each for each in kept if isinstance(each, LockstepRead)]
    ways = next(each for each in kept if isinstance(each, WaysParted))
    await replay.until(lambda: replay.app.playback.player is not None and replay.app.playback.player.at_end)
    await replay.press("h")
    assert isinstance(replay.app.screen, LockstepScreen)
    text = replay.screen_text()
    assert "recorded · P pocket · Q pocket, 4-bit, group 64" in text
    assert read[-1].ahead is not None
    assert span_words(read[-1].ahead) in text
    await replay.press("left")
    assert span_words(read[2].spans[-1]) in replay.screen_text()
    await replay.press("right", "w")
    assert f"its own way, {len(ways.ids)} tokens" in replay.screen_text()
    await replay.press("b")
    assert "Comparing needs a live model: esc, then G" in replay.screen_text()
    await replay.press(
        "w", *["backspace"] * 3
    )  # the ways, what was read before them, the last step's reading
    await replay.until(lambda: read[2].node not in replay.timeline.of(LockstepSoFar).ahead, 20)
    assert read[1].node in replay.timeline.of(LockstepSoFar).ahead
    assert not replay.engine.sent
    assert not replay.engine.asked


# ---- pure -------------------------------------------------------------------------------------


def test_what_is_told_again_replaces_borders_that_are_none_any_more() -> None:
    state = LockstepSoFar()
    state.apply(replace(SECOND, aligned="bytes"))
    state.apply(LockstepRead(3, 0, (span(1, 0, 0.1), span(2, 1, 0.1), span(3, 2, 0.1)), 3, 3, 1, 1))
    state.apply(LockstepRead(4, 1, (span(4, 1, 0.1, tokens=3),), 4, 4, 1, 1))
    assert sorted(state.spans) == [1, 4]
    state.apply(fakes.facts())
    assert (state.opened, state.spans) == (None, {})


def test_what_no_engine_told_is_not_shown() -> None:
    good = LockstepRead(1, 0, (span(1, 0, float("inf")),), 1, 1, 1, 1)
    assert LockstepSoFar.sound(replace(good, spans=(span(1, 0, None), span(2, 1, 0.5))))
    for change in ({"kl_nats": -1.0}, {"kl_nats": float("nan")}, {"logprob": 800.0}, {"entropy_bits": 1e300}):
        assert not LockstepSoFar.sound(replace(good, spans=(replace(span(1, 0, 0.5), **change),)))


def test_figures_in_words() -> None:
    assert span_words(span(1, 1, 0.5, False)) == (
        "KL 0.7213 bits · rank 1 → 3 · ≠ another top token · ␣x logprob -1.00 → -1.50"
    )
    assert span_words(span(1, 0, None)) == "Nothing is before the first token."
    ways = WaysParted(1, 40, (1,), (1,), (), None, 0, 1.0)
    assert ways_words(ways) == "Both go the same way for 1 tokens"
    assert "at the first token and meet again 2 times" in ways_words(replace(ways, parted=0, meetings=2))


def test_the_measures_have_steps_and_numbers() -> None:
    kl, logprob, rank = COLOURINGS
    assert [kl.step(span(1, 1, value)) for value in (0.0, 0.01, 0.2, 1.5)] == [0, 1, 3, 5]
    assert (kl.written(span(1, 1, 0.001)), kl.written(span(1, 1, float("inf")))) == ("", "∞")
    assert logprob.written(span(1, 1, 0.75)) == "−0.8"
    assert rank.written(span(1, 1, 0.75)) == "+2"
    assert kl.size(None) == -1
