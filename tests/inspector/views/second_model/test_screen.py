"""The second model on the screen: what is asked for, what is shown, and what the keys do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.color import ColorSystem

from engine import protocol
from engine.protocol import (
    Candidate,
    CaptureFacts,
    CloseLockstep,
    ExplainSecond,
    Failure,
    FollowSecond,
    LensRead,
    LockstepClosed,
    LockstepMemory,
    LockstepOpened,
    LockstepRead,
    LockstepSpan,
    Measuring,
    OpenLockstep,
    PartWays,
    ReadLens,
    ReadLockstep,
    Received,
    Restored,
    Step,
    Take,
    WayPart,
    WaysParted,
)
from engine.recording import save_as
from engine.settings import LoadSettings, Settings
from inspector.main.dialogs.model import Offer
from inspector.scales import size
from inspector.state.inside import Answers
from inspector.state.second_model import SecondModelSoFar
from inspector.views.compare import CompareView
from inspector.views.interventions import SwitchOff
from inspector.views.lens import Lens
from inspector.views.second_model import COLORINGS, SecondModelDialog, SecondModelView, span_words, ways_words
from inspector.widgets.fields import SafeInput
from tests.engine.logits.recording import Recording
from tests.inspector import fakes
from tests.inspector.explanations import explained
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


async def opened(rig: Rig) -> SecondModelView:
    """On the screen with a second model, before anything was read."""
    await rig.ready()
    await rig.press("h")
    screen = rig.app.top
    assert isinstance(screen, SecondModelView)
    screen.open_second(OpenLockstep(rig.app.controller.setup.load, 4))
    await rig.push([SECOND])
    await rig.end("OpenLockstep")
    await rig.pilot.pause()
    assert isinstance(rig.app.top, SecondModelView)
    return rig.app.top


async def test_without_a_second_model_it_says_how_to_get_one(rig: Rig) -> None:
    await rig.ready()
    await rig.press("h")
    text = " ".join(rig.screen_text().replace("│", " ").split())
    assert "No second model is open. With one, both models read this text" in text
    assert "⏎ opens one: this model in 8 or 4 bits" in text
    assert "⏎ open a second model" in text
    await rig.press("n")
    assert rig.screen_text().count("No second model is open") == 2
    assert rig.engine.sent == []
    await rig.press("4")
    assert rig.engine.sent == []  # the digits are the tabs'


async def chosen(rig: Rig, typed: str = "", downs: int = 0) -> SecondModelDialog:
    """In the dialog, once it has listed the models, with something typed and a row highlighted."""
    await rig.ready()
    await rig.press("h", "enter")
    dialog = rig.app.top
    assert isinstance(dialog, SecondModelDialog)
    await rig.until(lambda: dialog._read)
    dialog.query_one("#model-name", SafeInput).value = typed
    await rig.pilot.pause()
    await rig.press(*["down"] * downs)
    return dialog


@pytest.mark.wide(1)
@pytest.mark.parametrize(("downs", "bits"), [(0, 8), (1, 4)])
async def test_this_model_in_fewer_bits_is_chosen_in_a_dialog(
    rig: Rig, models: Path, downs: int, bits: int
) -> None:
    await chosen(rig, downs=downs)
    text = rig.screen_text()
    for shown in ("this model in 8 bits", "this model in 4 bits", "this model with an adapter …", "pocket"):
        assert shown in text
    needed = int(fakes.facts().parameters * (bits / 8 + 2 * 2 / 64))
    assert f"about {size(needed)} beside the" in text
    before = rig.timeline.tip, len(rig.timeline.items)
    await rig.press("enter")
    assert rig.engine.sent == [OpenLockstep(rig.app.controller.setup.load, bits)]
    assert isinstance(rig.app.top, SecondModelView)
    assert (rig.timeline.tip, len(rig.timeline.items)) == before


async def test_loading_tells_memory_and_progress_and_can_be_stopped(rig: Rig, models: Path) -> None:
    await chosen(rig)
    await rig.press("enter")
    await rig.push([LockstepMemory(400 * 2**20, 70 * 2**20, 2**30)])
    await rig.push([Measuring("OpenLockstep", 3, 74, "weights w")])
    text = f"{rig.answer_words()} {rig.screen_text()}"
    for shown in (
        "The second model is loading; your session stays as it is.",
        "It takes about 70 MiB beside 400 MiB; 1 GiB were free. H stops it.",
        "weights w 3/74",
        "H stop",
    ):
        assert shown in text
    command = rig.engine.last(OpenLockstep)
    await rig.press("H")
    assert rig.engine.cancelled(command)
    await rig.end("OpenLockstep", cancelled=True)
    assert "Loading was stopped: no second model is open." in rig.screen_text()
    assert "⏎ chooses another one." in rig.screen_text()
    await rig.press("H")
    assert "No second model is open: h opens one" in rig.screen_text()


@pytest.mark.parametrize("within", [True, False], ids=["in the view", "outside"])
async def test_the_first_line_names_it_and_one_key_closes_it(rig: Rig, within: bool) -> None:
    view = await opened(rig)
    assert "second model B: pocket [b]4-bit" in rig.screen_text().splitlines()[0]
    assert "4 h" not in rig.screen_text()  # no notice lies over the answer
    if not within:
        await rig.press("escape")
        assert "second model B: pocket [b]4-bit" in rig.screen_text().splitlines()[0]
    await rig.do("close_second")
    assert rig.engine.sent[-1] == CloseLockstep()
    await rig.push([LockstepClosed(SECOND.title)])
    await rig.end("CloseLockstep")
    assert view.unopened
    assert "pocket [b]4-bit" not in rig.screen_text().splitlines()[0]
    assert "Closed the second model, pocket [b]4-bit" in rig.screen_text()
    rig.app.controller.client.receive(fakes.facts())  # the same model, loaded again
    assert rig.engine.sent[-1] == CloseLockstep()


async def test_a_failure_is_said_in_the_screen_with_what_to_do(rig: Rig, models: Path) -> None:
    await chosen(rig, "no-such-model")
    await rig.press("enter")
    assert rig.engine.sent == [OpenLockstep(replace(rig.app.controller.setup.load, model="no-such-model"))]
    await rig.push([Failure("OpenLockstep", "No [b]model.", "Give a directory.")])
    await rig.end("OpenLockstep")
    text = rig.screen_text()
    assert "No [b]model." in text
    assert "Give a directory. ⏎ chooses another one." in text


async def test_an_adapter_is_told_by_its_directory(rig: Rig, models: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    dialog = await chosen(rig)
    await rig.press("down", "down", "enter")
    assert rig.app.top is dialog
    assert "Type the adapter's directory" in rig.screen_text()
    dialog.query_one("#model-name", SafeInput).value = str(tmp_path)
    await rig.pilot.pause()
    assert isinstance(dialog.picked, Offer)
    await rig.press("enter")
    load = rig.app.controller.setup.load
    assert rig.engine.sent == [OpenLockstep(replace(load, adapter_path=str(tmp_path)))]


async def test_the_tokens_that_differ_most_are_listed_and_gone_to(rig: Rig) -> None:
    await opened(rig)
    await rig.push([read(rig, {4: 0.75, 6: 0.25, 7: 0.5}, flips=(4,))])
    await rig.end("ReadLockstep")
    line = next(line for line in rig.screen_text().splitlines() if "differ most (g)" in line)
    assert [part.split()[0] for part in line.split(": ")[1].split("  ")] == ["prompt", "3", "2"]
    assert "1.08≠" in line
    for slot in (4, 7, 6, 4):
        await rig.press("g")
        assert rig.timeline.slot == slot
    screen = rig.app.top
    assert isinstance(screen, SecondModelView)
    left = screen.query_one("#second-model-largest").region.x
    await rig.pilot.click("#second-model-largest", offset=(line.index("  3 ") + 2 - left, 0))
    await rig.until(lambda: rig.timeline.slot == 7)


@pytest.mark.wide(1)
@pytest.mark.parametrize(("key", "second"), [("i", False), ("I", True)])
async def test_a_key_leads_inside_either_model_and_another_to_the_other_one(
    rig: Rig, key: str, second: bool
) -> None:
    await opened(rig)
    await rig.push([read(rig, {4: 0.75})])
    await rig.end("ReadLockstep")
    await rig.press("g", key)
    await rig.until(lambda: isinstance(rig.app.top, Lens))
    asked = rig.engine.last(ReadLens)
    assert isinstance(asked, ReadLens)
    assert (asked.node, asked.second) == (rig.timeline.items[3].node, second)
    assert ("B pocket [b]4-bit · " if second else "A pocket · ") in rig.screen_text()
    if second:
        assert {2, 3} <= set(asked.followed)  # of B's candidates
    await rig.push([Failure("ReadLens", "No.", "Go back.")])
    await rig.end("ReadLens")
    await rig.press("j")
    other = rig.engine.last(ReadLens)
    assert isinstance(other, ReadLens)
    assert other.second is not second
    assert ("A pocket · " if second else "B pocket [b]4-bit · ") in rig.screen_text()
    await rig.push([Failure("ReadLens", "No.", "Go back.")])
    await rig.end("ReadLens")
    await rig.do("interventions")
    await rig.until(lambda: isinstance(rig.app.top, SwitchOff))
    assert "A pocket · " in rig.screen_text()  # what is changed is changed in the session's
    await rig.press("j")
    assert "only to the session's model" in rig.screen_text()


async def test_why_is_told_of_either_model_with_the_same_draw(rig: Rig) -> None:
    await opened(rig)
    await rig.push([read(rig)])
    await rig.end("ReadLockstep")
    await rig.press("Y")
    await rig.until(lambda: rig.app.top is rig.app.main)
    asked = rig.engine.last(ExplainSecond)
    assert isinstance(asked, ExplainSecond)
    assert asked.node == rig.timeline.before
    assert "B pocket [b]4-bit" in rig.screen_text()
    assert "The second model runs." in rig.screen_text()
    now = rig.timeline.distribution
    assert now is not None
    other = next(each for each in now.candidates if each.id != now.picked)
    theirs = replace(now, picked=other.id)
    told = replace(explained(theirs), node=asked.node, model=SECOND.title)
    await rig.push([Received(told, rig.engine.id(asked))])
    await rig.end("ExplainSecond")
    text = " ".join(rig.screen_text().replace("│", " ").split())
    assert "With the same settings and the same draw A takes" in text
    assert "B pocket [b]4-bit · Why" in text
    await rig.press("j")
    assert "A pocket · Why" in rig.screen_text()
    await rig.press("h", "y")
    await rig.until(lambda: rig.app.top is rig.app.main)
    assert "A pocket · Why" in rig.screen_text()  # it was open, and stays


async def test_a_model_with_other_tokens_has_no_inside_along_these(rig: Rig) -> None:
    await opened(rig)
    await rig.push([replace(SECOND, aligned="bytes")])
    for key in ("Y", "I"):
        await rig.press(key)
        assert isinstance(rig.app.top, SecondModelView)
        assert "B has other tokens" in rig.screen_text()


async def test_without_a_second_model_the_keys_of_either_say_so(rig: Rig) -> None:
    await rig.ready()
    await rig.press("2", "j")
    assert "No second model is open: 4 h opens one" in rig.status
    await rig.press("I", "j")
    assert "No second model is open: 4 h opens one" in rig.screen_text()


async def test_the_path_is_read_and_shown_with_both_tables(rig: Rig) -> None:
    await opened(rig)
    asked = rig.engine.last(ReadLockstep)
    assert isinstance(asked, ReadLockstep)
    assert asked.node == rig.timeline.tip
    await rig.push([read(rig, {4: 0.75, 6: 0.25}, flips=(4, 6))])
    await rig.end("ReadLockstep")
    text = rig.screen_text()
    for shown in (
        "B pocket [b]4-bit",
        "1.08≠",
        "0.36≠",
        "KL(A||B), bits from  0.01  0.05  0.2  0.5  1.5 ",
        "bits · same top token in ",
        "␣cat",
        "[/b]",
        "75.00 %",
        "in B",
        "in A",
        "entropy 2.50 bits",
    ):
        assert shown in text, shown
    assert rig.engine.names.count("ReadLockstep") == 1
    await rig.press("g")
    assert rig.timeline.slot == 4
    assert "KL 1.0820 bits" in rig.screen_text()
    await rig.press(".")
    assert rig.timeline.slot == 6
    await rig.press(".")
    assert "At no later token do the top tokens differ" in rig.screen_text()
    await rig.press(",")
    assert rig.timeline.slot == 4
    await rig.press("m")
    assert "change of logprob" in rig.screen_text()
    assert "−0.8≠" in rig.screen_text()
    await rig.press("m")
    assert "+2≠" in rig.screen_text()
    await rig.press("home")
    assert "There is nothing before the first token." in rig.screen_text()


async def test_a_step_with_either_and_both_diverging(rig: Rig) -> None:
    await opened(rig)
    await rig.push([read(rig)])
    await rig.end("ReadLockstep")
    await rig.press("space")
    assert rig.engine.names[-1] == "TakeStep"
    await rig.push(rig.session.steps(1))
    await rig.end("TakeStep")
    await rig.pilot.pause()
    again = rig.engine.last(ReadLockstep)
    assert isinstance(again, ReadLockstep)
    assert again.node == rig.timeline.tip
    await rig.push([read(rig)])
    await rig.end("ReadLockstep")
    await rig.press("n")
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
    assert "They diverge after 2 tokens; no 3 words in a row match after that, within 3 tokens" in text
    await rig.press("w")
    assert "␣cat" in rig.screen_text()
    await rig.press("w", "escape")  # a step back
    assert "␣cat" in rig.screen_text()
    assert isinstance(rig.app.top, SecondModelView)


async def test_both_continuations_become_branches_that_are_compared(rig: Rig) -> None:
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
    assert "Both continue in the same way" in rig.screen_text()
    await rig.push([ways])
    await rig.end("PartWays")
    assert "make both branches" in rig.screen_text()
    rig.engine.sent.clear()
    await rig.press("enter")
    assert rig.engine.sent == [Take(fork, ways.other_ids), Take(fork, ways.ids)]
    assert rig.app.top is rig.app.main
    await rig.push(other)
    await rig.end("Take")
    assert rig.app.top is rig.app.main
    await rig.push(mine)
    await rig.end("Take")
    await rig.until(lambda: isinstance(rig.app.top, CompareView))
    screen = rig.app.top
    assert isinstance(screen, CompareView)
    assert screen.comparison is not None
    shared = screen.comparison.shared
    assert [item.id for item in screen.comparison.left[shared:]] == [one.id]
    assert [item.id for item in screen.comparison.right[shared:]] == [step.id for step in other[1:]]


async def test_models_with_other_tokens_have_no_common_branches(rig: Rig) -> None:
    await rig.ready()
    await rig.press("h")
    screen = rig.app.top
    assert isinstance(screen, SecondModelView)
    screen.open_second(OpenLockstep(rig.app.controller.setup.load, 4))
    await rig.push([replace(SECOND, aligned="bytes")])
    await rig.end("OpenLockstep")
    await rig.press("w")
    await rig.push([WaysParted(rig.timeline.tip, 40, (1,), (2,), (WayPart("a", "b", False),), 0, 0, 5.0)])
    rig.engine.sent.clear()
    await rig.press("enter")
    assert "its continuation can't be a branch of A's tree" in rig.screen_text()
    assert not rig.engine.sent


@pytest.mark.screen(size=(40, 12))
async def test_it_fits_small_terminals(rig: Rig) -> None:
    await opened(rig)
    await rig.push([read(rig, {4: 0.75})])
    await rig.end("ReadLockstep")
    text = rig.screen_text()
    assert "␣cat" in text
    assert "girl named" in text
    assert "KL 0.1803" in text
    assert re.search(r"others +\d", text)  # a word never touches its number


async def test_a_reading_that_was_left_begins_again(rig: Rig) -> None:
    await opened(rig)
    assert rig.engine.names.count("ReadLockstep") == 1
    await rig.press("escape")
    await rig.end("ReadLockstep", cancelled=True)
    await rig.press("h")
    assert rig.engine.names.count("ReadLockstep") == 2


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
    from inspector.views.second_model import SecondModelAtStart

    await rig.ready()
    SecondModelAtStart(rig.app.main, OpenLockstep(rig.app.controller.setup.load, 4))
    for _ in range(2):
        rig.app.controller.client.receive(fakes.facts())
    first, second = (each for each in rig.engine.sent if isinstance(each, OpenLockstep))
    assert first == second
    assert len({each.id for each in rig.engine.all if isinstance(each.command, OpenLockstep)}) == 2


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
    found = tmp_path / "second_model.trace.zst"
    save_as(found, recorded.entries, "test")
    return found


@pytest.mark.slow
async def test_a_recorded_second_model_is_shown_without_a_model(replay: Rig, recorded: Recording) -> None:
    kept = [entry.value for entry in recorded.entries]
    read = [each for each in kept if isinstance(each, LockstepRead)]
    ways = next(each for each in kept if isinstance(each, WaysParted))
    await replay.until(lambda: replay.app.playback.player is not None and replay.app.playback.player.at_end)
    await replay.press("h")
    assert isinstance(replay.app.top, SecondModelView)
    text = replay.screen_text()
    assert "Second model · recorded · A pocket · B pocket, 4-bit, group 64" in text
    assert read[-1].ahead is not None
    assert span_words(read[-1].ahead) in text
    await replay.press("left")
    assert span_words(read[2].spans[-1]) in replay.screen_text()
    await replay.press("right", "w")
    assert f"continues for {len(ways.ids)}" in replay.screen_text()
    await replay.press("n")
    assert "Comparing needs a live model: esc, then G" in replay.screen_text()
    await replay.press(
        "w", *["backspace"] * 3
    )  # the continuations, what was read before them, the last step's reading
    await replay.until(lambda: read[2].node not in replay.timeline.of(SecondModelSoFar).ahead, 20)
    assert read[1].node in replay.timeline.of(SecondModelSoFar).ahead
    assert not replay.engine.sent
    assert not replay.engine.asked


# ---- pure -------------------------------------------------------------------------------------


def test_what_is_told_again_replaces_borders_that_are_none_any_more() -> None:
    state = SecondModelSoFar()
    state.apply(replace(SECOND, aligned="bytes"))
    state.apply(LockstepRead(3, 0, (span(1, 0, 0.1), span(2, 1, 0.1), span(3, 2, 0.1)), 3, 3, 1, 1))
    state.apply(LockstepRead(4, 1, (span(4, 1, 0.1, tokens=3),), 4, 4, 1, 1))
    assert sorted(state.spans) == [1, 4]
    state.apply(fakes.facts())
    assert (state.opened, state.spans) == (None, {})


def test_what_was_read_stays_for_exports_once_it_is_closed() -> None:
    state, step = SecondModelSoFar(), fakes.session(1).timeline().steps[0]
    restored = Restored(1, 1, (), step.next, step.kv, step.memory, 1.0)
    for closed in (LockstepClosed(SECOND.title), restored):
        state.apply(SECOND)
        state.apply(LockstepRead(1, 0, (span(1, 0, 0.1),), 1, 1, 1, 1))
        state.apply(closed)
        assert (state.opened, state.described, sorted(state.spans)) == (None, SECOND, [1])


def test_what_no_engine_told_is_not_shown() -> None:
    good = LockstepRead(1, 0, (span(1, 0, float("inf")),), 1, 1, 1, 1)
    assert SecondModelSoFar.sound(replace(good, spans=(span(1, 0, None), span(2, 1, 0.5))))
    for change in ({"kl_nats": -1.0}, {"kl_nats": float("nan")}, {"logprob": 800.0}, {"entropy_bits": 1e300}):
        assert not SecondModelSoFar.sound(replace(good, spans=(replace(span(1, 0, 0.5), **change),)))


def test_figures_in_words() -> None:
    assert span_words(span(1, 1, 0.5, False)) == (
        "KL 0.7213 bits · rank 1 → 3 · ≠ different top tokens · ␣x logprob −1.00 → −1.50"
    )
    assert span_words(span(1, 0, None)) == "There is nothing before the first token."
    ways = WaysParted(1, 40, (1,), (1,), (), None, 0, 1.0)
    assert ways_words(ways) == "Both continue in the same way for 1 token"
    again = ways_words(replace(ways, parted=0, meetings=2))
    assert "at the first token; 2 matches of 3 words or more after that" in again


async def test_the_legend_follows_the_theme(rig: Rig) -> None:
    grounds = []
    rig.app.console._color_system = ColorSystem.TRUECOLOR
    panel = (await opened(rig)).query_one("#second-model-text")
    for theme in ("textual-dark", "textual-light"):
        rig.app.theme = theme
        await rig.pilot.pause()
        title = panel._border_title
        assert title is not None
        grounds.append([str(span.style) for span in title.spans])
    assert len(grounds[0]) == len(COLORINGS[0].steps)
    assert grounds[0] != grounds[1]


def test_the_measures_have_steps_and_numbers() -> None:
    kl, logprob, rank = COLORINGS
    assert [kl.step(span(1, 1, value)) for value in (0.0, 0.01, 0.2, 1.5)] == [0, 1, 3, 5]
    assert (kl.written(span(1, 1, 0.001)), kl.written(span(1, 1, float("inf")))) == ("", "∞")
    assert logprob.written(span(1, 1, 0.75)) == "−0.8"
    assert rank.written(span(1, 1, 0.75)) == "+2"
    assert (kl.step(None), kl.written(None)) == (0, "")


async def test_a_recorded_look_is_of_the_model_that_it_names_and_no_evidence_of_the_sessions(
    rig: Rig,
) -> None:
    await opened(rig)
    await rig.push([read(rig)])
    await rig.end("ReadLockstep")
    node = rig.timeline.before
    facts = CaptureFacts((), 1.0, 1.0, "llama", model=SECOND.title)
    await rig.push([LensRead(node, (), (), facts)])  # nobody asked for it
    assert not rig.timeline.of(Answers).found(LensRead)
    await rig.push([LensRead(node, (), (), replace(facts, model=""))])
    assert [each.node for each in rig.timeline.of(Answers).found(LensRead)] == [node]
    lens = rig.app.main.view_at("inspector.views.lens:Lens")
    assert isinstance(lens, Lens)
    for looking, model in ((False, ""), (True, SECOND.title)):
        rig.timeline.of(SecondModelSoFar).looking = looking
        found = lens.answers.get(node)
        assert found is not None
        assert found.facts.model == model


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (100, 30), (80, 24), (60, 20)])
async def test_the_texts_in_the_frames_are_whole(rig: Rig, size: tuple[int, int]) -> None:
    screen = await opened(rig)
    await rig.push([read(rig)])
    await rig.end("ReadLockstep")
    await rig.pilot.pause()
    lines = [line[screen.area.x :] for line in rig.screen_text().splitlines()]
    frames = [line for line in lines if set("╭╰") & set(line)]
    assert frames
    assert not any("…" in line for line in frames), frames
