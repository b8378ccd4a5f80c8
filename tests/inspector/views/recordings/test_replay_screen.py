"""Replay on the screen: no model, the same panels, and a word for each key that would need one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import TextArea

from engine import protocol
from engine.protocol import (
    AheadLine,
    Beam,
    BeamOpened,
    BeamStep,
    Deleted,
    Ended,
    Explained,
    Failure,
    Loading,
    LookedAhead,
    Marked,
    ModelFacts,
    Moved,
    Restored,
    Step,
)
from engine.recording import Entry, load, save_as
from engine.settings import BeamSettings, LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.keys import with_keys
from inspector.main.dialogs.help import HelpDialog
from inspector.main.key_table import OPENING
from inspector.session.playback import Opening
from inspector.session.replay_backend import REFUSED
from inspector.state.second_model import SecondModelSoFar
from inspector.views.beams import BeamsView
from tests.inspector.fakes import PROMPT, Session
from tests.inspector.replays import USED, replayed, trace
from tests.inspector.rig import FakeEngine, Rig, run
from tests.system import without_mlx


@pytest.fixture
def path(tmp_path: Path) -> Path:
    trace(tmp_path / "a.trace")
    return tmp_path / "a.trace"


async def test_everything_is_on_show_and_nothing_was_started(replay: Rig) -> None:
    text = replay.screen_text()
    assert "● RECORDED step 5" in text
    assert replay.timeline.steps[2].text.strip() in text
    assert replay.timeline.steps[2].origin == "chosen"
    assert "T 0.7" in text
    assert not replay.engine.started
    assert replay.engine.sent == []
    assert "at its end" in replay.status


def test_the_same_session_looks_the_same_live_and_recorded(path):
    session = trace(path, caption="")
    live, recorded = [], []

    def panels(rig: Rig) -> list[str]:
        return rig.screen_text().splitlines()[1:-2]

    async def lived(rig: Rig) -> None:
        await rig.push(record for record in session.records if not isinstance(record, Settings | Marked))
        await rig.until(lambda: "Once upon" in rig.screen_text())  # the text takes the place of the opening
        live.extend(panels(rig))

    async def shown(rig: Rig) -> None:
        recorded.extend(panels(rig))

    run(lived, settings=USED)
    replayed(shown, path)
    assert recorded == live


async def test_walking_and_captions(replay: Rig) -> None:
    assert "Look [here]" not in replay.screen_text()
    await replay.press("home", "right")
    assert replay.screen_text().count("Look [here]␛") == 1
    assert replay.status == "Step 2. End returns to the last token"
    await replay.press("right")
    assert "Look [here]" not in replay.screen_text()


async def test_space_and_back_go_through_it_step_by_step(replay: Rig) -> None:
    await replay.press("backspace", "backspace")
    await replay.until(lambda: len(replay.timeline.steps) == 3)
    assert "Recorded, 11 of 13" in replay.status
    await replay.press("space")
    await replay.until(lambda: len(replay.timeline.steps) == 4)


def test_it_plays_pauses_and_changes_its_speed(path):
    trace(path, seconds=10)  # it has not come to its end when it is looked at

    async def test(rig: Rig) -> None:
        await rig.press("r")
        assert rig.app.playback.player.playing
        await rig.until(lambda: "Playing ×1" in rig.status)
        await rig.press("space")
        assert not rig.app.playback.player.playing
        shown = rig.app.playback.player.position
        for _ in range(10):
            rig.app._tick()
        assert rig.app.playback.player.position == shown
        await rig.press("plus", "plus", "plus", "plus")
        assert "as fast as possible" in rig.status
        await rig.press("r")
        await rig.until(lambda: rig.app.playback.player.at_end)

    replayed(test, path)


async def test_escape_pauses(replay: Rig) -> None:
    await replay.press("r", "escape")
    assert not replay.app.playback.player.playing


@pytest.mark.recorded(settled=False, play=True, speed=float("inf"))
async def test_it_can_begin_to_play_at_once(replay: Rig) -> None:
    await replay.until(lambda: replay.app.playback.player and replay.app.playback.player.at_end)


async def test_a_key_that_needs_a_model_says_so(replay: Rig) -> None:
    async def refused(action: str) -> None:
        replay.app.main.answer()
        assert replay.status != with_keys(REFUSED)
        await replay.do(action)
        assert replay.status == with_keys(REFUSED)
        assert replay.app.top is replay.app.main
        assert replay.engine.sent == []

    await replay.through(
        (
            "prompt", "sampling", "own_text", "breakpoints", "skip", "reroll", "verify", "look_ahead", "take_ahead",
            "beams", "race", "profile", "compare_kv", "recall",
        ),
        refused,
    )  # fmt: skip


def test_beams_and_look_ahead_open_where_they_were_recorded(path):
    entries = load(path).entries
    step = next(entry.value for entry in entries if isinstance(entry.value, Step))
    line = AheadLine(step.id, (1, 2), " a b", -2.0, False)
    beam = Beam(900, 6, 0, 0, 5, " x", -1.0, -1.0, -1.0, 1)
    ahead = LookedAhead(6, (line,), 2, True, 5.0)
    told = [BeamOpened(6, 1, 1.0, False, 5), BeamStep(1, (beam,), (), (), beam, 1, 1.0, False), ahead]
    save_as(path, [*entries, *(Entry(value, 9.0) for value in told)], "test 1")

    async def test(rig: Rig) -> None:
        await rig.press("B")
        assert isinstance(rig.app.top, BeamsView)
        await rig.press("escape", "l")
        assert rig.status == "Look-ahead on, as far as it was recorded. l hides it"
        await rig.press("L")
        assert rig.status == with_keys(REFUSED)

    replayed(test, path)


async def test_a_key_before_a_recording_is_open_does_nothing(rig: Rig, path) -> None:
    await rig.ready(3)
    rig.app.controller.client.request(protocol.Verify())  # the recording waits for its end
    sent = list(rig.engine.sent)
    rig.app.playback.open(Opening(path))
    keys = ("space", "r", "enter", "backspace", "plus", "p", "s", "G")
    actions = ("open", "reroll", "beams", "race", "profile", "look_ahead", "save_as")
    for way in (*keys, *actions):
        rig.app.main.answer()
        await (rig.press(way) if way in keys else rig.do(way))
        assert rig.status == OPENING, way
        assert rig.app.top is rig.app.main, way
        assert rig.engine.sent == sent, way
    await rig.press("question_mark")
    assert isinstance(rig.app.top, HelpDialog)
    await rig.press("escape")
    await rig.end("Verify", cancelled=True)
    while rig.app.playback.player is None or not rig.app.playback.player.settled:
        await rig.pilot.pause(0.01)
    await rig.press("4")
    assert "tree" in rig.app.main.shown


def test_from_the_first_key_on_a_replay_is_a_replay(path):
    app = InspectorApp(LoadSettings(), Settings(), engine=FakeEngine(), trace=Opening(path))
    assert app.controller.opening

    async def test(rig: Rig) -> None:
        assert not rig.app.controller.opening

    replayed(test, path)


async def test_choosing_goes_where_it_was_gone_and_refuses_other_ways(replay: Rig) -> None:
    first = replay.timeline.steps[2].node
    await replay.press("home", "right", "right", "left_square_bracket")
    assert len(replay.timeline.steps) == 6
    assert replay.timeline.steps[2].node != first
    taken = replay.timeline.steps[2]
    replay.app.controller.navigation.choose(replay.timeline.tree.nodes[first].id)
    await replay.until(lambda: replay.timeline.steps[2].node == first)
    assert replay.timeline.next == replay.timeline.steps[-1].next
    other = next(
        c.id for c in taken.choice.candidates if c.id not in (taken.id, replay.timeline.tree.nodes[first].id)
    )
    replay.app.controller.navigation.choose(other)
    await replay.until(lambda: "not taken" in replay.status)


async def test_the_tree_goes_to_branches_and_comparing_works(replay: Rig) -> None:
    await replay.press("4", "up", "enter", "escape")
    await replay.do("compare")
    assert replay.app.top is not replay.app.main
    await replay.press("escape")


async def test_searching_finds_what_was_recorded(replay: Rig) -> None:
    asked = protocol.FindTokens(replay.timeline.before, "#" + str(replay.timeline.next.candidates[0].id))
    told = []
    replay.app.controller.client.listen(told.append)
    replay.app.controller.client.backend.send(protocol.Sent(asked, 99))

    def answers() -> list[object]:
        return [record for record in told if type(record).__name__ == "TokensFound"]

    await replay.until(answers)
    (found,) = answers()
    assert [each.id for each in found.matches] == [replay.timeline.next.candidates[0].id]


def test_a_recorded_explanation_is_told_again(path):
    session = trace(path)
    last = next(r for r in reversed(session.records) if isinstance(r, Step))
    count = len(last.next.candidates)
    explained = Explained(last.node, (0.0,) * count, (), ((),) * count, last.next, True)
    lame = Explained(
        last.parent, (0.0,), (), (), last.choice, True
    )  # no engine makes one without all its values
    entries = load(path).entries
    save_as(path, [*entries, Entry(explained, 9.0), Entry(lame, 9.0)], "test 1")

    async def test(rig: Rig) -> None:
        await rig.press("w")
        await rig.until(lambda: rig.timeline.last_explanation is not None)
        assert rig.timeline.last_explanation.explained == explained
        await rig.press("left")
        await rig.until(lambda: "not recorded here" in rig.screen_text())

    replayed(test, path)


async def test_measuring_and_beams_are_refused_without_a_model(replay: Rig) -> None:
    for command in (protocol.SearchBeams(BeamSettings()), protocol.Verify(), protocol.Profile()):
        replay.app.controller.client.do(command)
    await replay.until(lambda: not replay.app.controller.client.outstanding)
    assert replay.engine.sent == []


def test_deletions_and_other_models_are_shown_as_they_happened(path):
    session = trace(path)
    forked = [r for r in session.records if isinstance(r, Step)]
    entries = [
        *load(path).entries,
        Entry(Moved(**_moved(forked[1])), 8.0),
        Entry(Deleted(forked[2].node), 9.0),
    ]
    save_as(path, entries, "test 1")

    async def test(rig: Rig) -> None:
        assert forked[2].node not in rig.timeline.tree.branches
        assert forked[2].node in rig.timeline.tree.nodes

    replayed(test, path)


def _moved(step: Step) -> dict[str, object]:
    return {
        "node": step.node,
        "kept": 1,
        "restored": 0,
        "recomputed": 0,
        "ms": 1.0,
        "next": step.next,
        "kv": step.kv,
    }


# ---- going live -------------------------------------------------------------------------------


def restored(rig: Rig) -> Restored:
    steps = rig.timeline.steps
    last = steps[-1]
    return Restored(
        last.node, last.position + 1, tuple(s.logprob for s in steps), last.next, last.kv, last.memory, 5.0
    )


async def go(rig: Rig, *, fingerprint: str = "ab", **changes: object) -> None:
    """Press G and have the model loaded."""
    await rig.press("G")
    facts = next(r for r in Session().load(fingerprint=fingerprint, **changes) if isinstance(r, ModelFacts))
    await rig.push([Loading("weights", 1, 2, "x"), facts, Ended("Load")])


def test_going_live_builds_the_tree_and_steps_on(path, state):
    async def test(rig: Rig) -> None:
        await rig.press("G")
        assert rig.engine.started
        assert rig.engine.sent == [protocol.Load(LoadSettings("pocket", dtype="bfloat16"))]  # as recorded
        assert "RETURNING" in rig.screen_text()
        assert rig.timeline.steps[2].text.strip() in rig.screen_text()
        await rig.press("home", "left")  # what was recorded can be looked at meanwhile
        assert not rig.timeline.following
        await rig.press("end")
        facts = next(r for r in Session().load(fingerprint="ab") if isinstance(r, ModelFacts))
        await rig.push([Loading("weights", 1, 2, "x"), facts, Ended("Load")])
        assert rig.engine.names == ["Load", "Configure", "Restore"]
        assert rig.engine.sent[1] == protocol.Configure(USED)
        assert rig.engine.sent[2].node == rig.timeline.tip
        assert len(rig.engine.sent[2].nodes) == len(PROMPT) + 9
        tip, good = rig.timeline.tip, restored(rig)
        rig.timeline.of(SecondModelSoFar).opened = protocol.LockstepOpened(facts, "B", "ids")
        before = protocol.Resampled(rig.timeline.prompts.prefilled.next)  # of the session that the engine had
        await rig.push([before, Ended("Configure")])
        assert rig.timeline.tip == tip
        await rig.push([good, Ended("Restore")])
        assert "to the last bit" in rig.status
        assert "● DECODE step 5" in rig.screen_text()
        assert rig.app.playback.player is None
        assert rig.timeline.of(SecondModelSoFar).opened is None, "the engine was started without it"
        await rig.press("p")
        assert rig.app.screen.query_one("#prompt-text", TextArea).text == "".join(PROMPT)
        await rig.press("escape", "space")
        assert rig.engine.names[-1] == "TakeStep"
        await rig.do("bookmark")

    replayed(test, path, save=state)
    (own,) = state.iterdir()
    values = [entry.value for entry in load(own, torn_ok=True).entries]
    before = [entry.value for entry in load(path).entries]
    assert values[: len(before)] == before
    assert isinstance(values[-1], Marked)
    assert any(isinstance(value, Restored) for value in values)


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        ({"quantization": "4-bit, group 64, affine", "dtype": "float32"}, "file"),
        ({"stored": "4-bit, group 64, affine", "dtype": "float32"}, "dequantized"),
        ({"stored": "bfloat16", "dtype": "float32"}, "float32"),
    ],
)
async def test_weights_go_live_in_the_form_that_they_had(
    replay: Rig, recorded: dict[str, Any], asked: str
) -> None:
    """Else `auto` would unpack here what was packed there, and the numbers would differ in their last bits."""
    timeline = replay.app.controller.client.timeline
    timeline.facts = replace(timeline.facts, **recorded)
    await replay.press("G")
    assert [each for each in replay.engine.sent if isinstance(each, protocol.Load)] == [
        protocol.Load(LoadSettings("pocket", dtype=asked))
    ]


@pytest.mark.parametrize("loaded", [False, True])
async def test_a_recording_that_goes_back_meanwhile_is_not_gone_on_with(replay: Rig, loaded: bool) -> None:
    """A lesson's card does so: what the engine was asked is about another place of the recording."""
    player = replay.app.playback.player
    assert player is not None
    good = restored(replay)
    await replay.press("G")
    if loaded:
        facts = next(r for r in Session().load(fingerprint="ab") if isinstance(r, ModelFacts))
        await replay.push([Loading("weights", 1, 2, "x"), facts, Ended("Load")])
    player.go(0)
    assert not replay.app.playback.replay.under_way
    assert replay.app.controller.client.backend is not replay.engine
    await replay.until(lambda: "went back" in replay.screen_text())
    await replay.push([Ended("Restore"), good] if loaded else [Ended("Load", cancelled=True)])
    assert replay.app.playback.player is player
    assert replay.timeline.recorded


def test_a_recording_that_is_followed_is_not_continued_live(tmp_path: Path) -> None:
    """Another program writes to its file."""

    async def test(rig: Rig) -> None:
        await rig.press("G")
        assert "only follows the session" in rig.status
        assert rig.engine.sent == []

    trace(tmp_path / "a.trace")
    replayed(test, tmp_path / "a.trace", follow=True)


async def test_a_difference_is_told(replay: Rig) -> None:
    await go(replay)
    good = restored(replay)

    off = replace(good, logprobs=tuple(each - 0.25 for each in good.logprobs))
    await replay.push([Ended("Configure"), off, Ended("Restore")])
    assert "it differs" in replay.status
    assert "0.25" in replay.status


async def test_another_model_is_refused_with_both_names_and_compared_when_asked_again(replay: Rig) -> None:
    await go(replay, fingerprint="cd", name="other")
    assert "other is not the recorded pocket" in replay.status
    assert replay.app.playback.player is not None
    assert replay.engine.names == ["Load"]
    await replay.press("v")
    assert replay.status == with_keys(REFUSED)
    await replay.press("G")
    assert replay.engine.names == ["Load", "Configure", "Restore"]
    await replay.push([Ended("Configure"), restored(replay), Ended("Restore")])
    assert replay.app.playback.player is None


async def test_a_model_with_another_vocabulary_is_refused_for_good(replay: Rig) -> None:
    await go(replay, fingerprint="cd", vocabulary=99)
    await replay.press("G")
    assert replay.engine.names == ["Load"]
    assert "Restore" not in replay.engine.names


async def test_a_model_that_isnt_there_leaves_the_recording_and_another_place_can_be_named(
    replay: Rig,
) -> None:
    await replay.press("G")
    await replay.push(
        [Loading("import", 0, 0, "mlx"), Failure("Load", "No such directory.", "Check it."), Ended("Load")]
    )
    assert "No such directory" in replay.status
    assert replay.timeline.steps[2].text.strip() in replay.screen_text()
    assert "● RECORDED" in replay.screen_text()
    await replay.do("open")
    replay.app.top.query_one("#model-name").value = "elsewhere"
    await replay.press("enter")
    assert replay.engine.sent[-1] == protocol.Load(LoadSettings("elsewhere"))


async def test_going_live_can_be_stopped(replay: Rig) -> None:
    await replay.press("G", "escape")
    assert replay.engine.cancelled(replay.engine.sent[0])
    await replay.push([Ended("Load", cancelled=True)])
    assert "Stopped" in replay.status
    assert "● RECORDED" in replay.screen_text()


def test_going_live_in_the_middle_takes_only_what_is_on_show(path, state):
    async def test(rig: Rig) -> None:
        await rig.press(*["backspace"] * 4)
        await rig.until(lambda: rig.app.playback.player.settled)
        await go(rig)
        assert len(rig.engine.sent[2].nodes) == len(rig.timeline.tree.nodes)
        await rig.push([Ended("Configure"), restored(rig), Ended("Restore")])

    replayed(test, path, save=state)
    (own,) = state.iterdir()
    assert sum(isinstance(e.value, Step) for e in load(own, torn_ok=True).entries) == 6


def test_entries_that_contradict_each_other_end_the_recording_there(path):
    lost = BeamStep(1, (Beam(900, 800, 0, 0, 5, " x", -1.0, -1.0, -1.0, 1),), (), (), None, 1, 1.0, False)
    opened = BeamOpened(6, 1, 1.0, False, 5)
    entries = load(path).entries
    save_as(path, [*entries, Entry(opened, 9.0), Entry(lost, 9.0), *entries], "test 1")

    async def test(rig: Rig) -> None:
        assert "names node 800, which no beam before it reached" in rig.status
        assert "Cut off" in rig.status
        assert len(rig.timeline.steps) == 5
        await rig.press("left", "right", "t", "t")

    replayed(test, path)


# ---- resuming ---------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("given", "model", "adapter"),
    [
        ({}, "pocket", "own"),
        ({"model": "other"}, "other", None),
        ({"model": "other", "adapter_path": "new"}, "other", "new"),
        ({"model": "pocket"}, "pocket", "own"),
        ({"kept_kv_mib": 0}, "pocket", "own"),
    ],
)
def test_an_adapter_stays_with_its_model(path, given, model, adapter):
    entries = load(path).entries
    save_as(path, [Entry(LoadSettings("pocket", adapter_path="own")), *entries[1:]], "test 1")

    async def test(rig: Rig) -> None:
        while not rig.engine.sent:
            await rig.pilot.pause(0.01)
        asked = rig.engine.last(protocol.Load).settings
        assert (asked.model, asked.adapter_path) == (model, adapter)
        assert asked.kept_kv_mib == given.get("kept_kv_mib", LoadSettings().kept_kv_mib)

    replayed(test, path, live=True, load=given)


@pytest.mark.parametrize("given", [False, True])
def test_a_recording_alone_never_has_a_models_own_code_run(path, given):
    entries = load(path).entries
    recorded = LoadSettings("some/model", trust_remote_code=True, ranks=8, hostfile="hosts.json")
    save_as(path, [Entry(recorded), *entries[1:]], "test 1")

    async def test(rig: Rig) -> None:
        if not given:
            await rig.press("G")
        while not rig.engine.sent:
            await rig.pilot.pause(0.01)
        load = rig.engine.last(protocol.Load).settings
        assert (load.model, load.trust_remote_code) == ("some/model", given)
        assert (load.ranks, load.hostfile) == (1, "")

    replayed(test, path, live=given, load={"trust_remote_code": True} if given else {})


def test_resuming_goes_live_by_itself_and_appends_to_the_file(state):
    state.mkdir()
    trace(state / "20260101-000000-x.trace")
    before = load(state / "20260101-000000-x.trace").entries
    path = state / "20260101-000000-x.trace"
    from engine.recording import Journal

    path.unlink()
    journal = Journal.create(path, "test 1")
    for entry in before:
        journal.write(entry)
    journal.close()
    with path.open("ab") as file:
        file.write(b"\x64\0\0\0\0\0\0\0half")  # a frame of 100 bytes would follow

    async def test(rig: Rig) -> None:
        await rig.until(lambda: rig.engine.sent)
        assert rig.engine.sent == [protocol.Load(LoadSettings("pocket", kv_bits=8))]
        assert "incomplete" in next(iter(rig.app._notifications)).message
        facts = next(r for r in Session().load(fingerprint="ab") if isinstance(r, ModelFacts))
        await rig.push([facts, Ended("Load")])
        await rig.push([Ended("Configure"), restored(rig), Ended("Restore")])
        await rig.do("bookmark")

    replayed(test, path, save=state, live=True, load={"kv_bits": 8})
    assert [p.name for p in state.iterdir()] == [path.name]
    values = [entry.value for entry in load(path, torn_ok=True).entries]
    assert values[: len(before)] == [entry.value for entry in before]
    assert isinstance(values[-1], Marked)


def test_a_damaged_session_is_shown_but_not_gone_on_with(path):
    data = bytearray(path.read_bytes())
    place = data.rindex(b"\xa4Step")
    data[place : place + 5] = b"\xa4Stop"
    path.write_bytes(data)

    async def test(rig: Rig) -> None:
        assert "Cut off: Entry" in rig.status
        assert rig.engine.sent == []

    replayed(test, path, live=True)


# ---- without MLX ------------------------------------------------------------------------------

SHOWN = """
import asyncio
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from tests.inspector.story import STORY
from inspector.session.playback import Opening
async def main():
    app = InspectorApp(LoadSettings(), Settings(), trace=Opening(STORY, play=True, speed=float("inf")))
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(200):
            await pilot.pause(0.05)
            if app.playback.player and app.playback.player.at_end:
                break
        await pilot.press("home", "right", "w", "w", "t", "t", "c", "escape", "left_square_bracket", "m")
        await pilot.press("question_mark", "escape", "B", "escape")
        await pilot.press("home", "space", "space", "backspace", "end")
        print(len(app.controller.timeline.tree.nodes), "RECORDED" in app.export_screenshot())
        assert not asked
        await pilot.press("G")
        for _ in range(600):
            await pilot.pause(0.05)
            if "MLX" in app.main.status.answer:
                break
        print(app.main.status.answer)
asyncio.run(main())
asked.clear()  # of what was to be gone on with
"""


def test_a_recording_is_replayed_where_there_is_no_mlx():
    first, second = without_mlx(SHOWN, also=("numpy",))
    nodes, drawn = first.split()
    assert int(nodes) > 100
    assert drawn == "True"
    assert "MLX can't be started" in second


@pytest.mark.parametrize("live", [False, True])
def test_escape_leaves_the_rest_of_a_recording_unread(path, monkeypatch, live):
    taken, pace = 0.0, 0.005  # so that a frame reads two entries

    def clock() -> float:
        nonlocal taken
        taken += pace
        return taken

    async def test(rig: Rig) -> None:
        nonlocal pace
        player = rig.app.playback.player
        player._clock = clock
        while len(rig.timeline.steps) < 2:
            await rig.pilot.pause(0.01)
        pace = 10.0  # and then one at most, however busy the machine is
        assert "Esc stops it" in rig.app.controller.transport.describe()
        await rig.press("escape")
        while not player.settled:
            await rig.pilot.pause(0.01)
        await rig.pilot.pause()
        assert "The rest was not read" in rig.status
        assert 0 < len(player.file.entries) < 15
        assert rig.engine.sent == []

    monkeypatch.setattr("inspector.session.player.READ_SECONDS", 0.0)
    monkeypatch.setattr("inspector.session.player.SHOW_SECONDS", 1.0)

    async def slow(rig: Rig) -> None:
        monkeypatch.setattr("inspector.session.player.READ_SECONDS", 0.008)
        await test(rig)

    replayed(slow, path, settled=False, live=live)
