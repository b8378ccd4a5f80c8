"""Finding a text in what is there: across tokens and forks, on the path and in all branches, and back on escape."""

from __future__ import annotations

import pytest

from engine import protocol
from engine.protocol import Deleted
from inspector.views.find import PLACES, FindDialog, TextSearchDialog, excerpt, search
from inspector.widgets.fields import Choice, SafeInput
from tests.inspector.fakes import HOSTILE, PROMPT, TORN, Session, token_id
from tests.inspector.rig import Rig
from tests.inspector.views.marks.test_marks import forked


def taken(story, prompt=PROMPT) -> Session:
    made = Session(story=story)
    made.load()
    made.open(prompt)
    made.steps(len(story))
    return made


def found(made: Session, typed: str, everywhere: bool = False) -> list[str]:
    """The tokens of each place, joined with bars."""
    timeline = made.timeline()
    return [excerpt(timeline, place)[1] for place in search(timeline, typed, everywhere)[0]]


def test_a_text_is_found_across_tokens_and_its_case_matters_where_it_has_capitals():
    made = taken((" The", " the", " re", "st", "the"))
    assert found(made, "the") == [" The", " the", "the"]
    assert found(made, "The") == [" The"]
    assert found(made, "the re") == [" the re"]
    assert found(made, "rest") == [" rest"]
    assert found(made, "upon␣a") == [" upon a"]
    assert found(made, "nowhere") == []
    assert found(made, "") == []


def test_places_do_not_overlap_and_a_newline_is_typed_as_it_is_shown():
    made = taken(("aaaa", "\n", "b"))
    assert found(made, "aa") == ["aaaa", "aaaa"]
    assert found(made, "↵b") == ["↵b"]
    assert found(made, r"\nb") == ["↵b"]


def test_ids_and_bytes_are_found_token_by_token():
    made = taken(TORN)
    assert found(made, f"#{token_id(' cost')}") == [" cost"]
    assert found(made, "0x f0 9f") == [" "], "the space that it finished"


def test_letters_that_grow_when_they_are_lowered_move_no_place():
    made = taken(("İİİ", " x", "yz"))
    assert found(made, "xy") == [" xyz"]


def test_other_branches_are_searched_on_request_and_each_place_is_found_once():
    made, nodes = forked()
    timeline = made.timeline()
    assert search(timeline, "a little", everywhere=False)[1] == 0
    everywhere, _ = search(timeline, "a little", everywhere=True)
    left = [place for place in everywhere if not place.on_path]
    assert [(place.first, place.last) for place in left] == [(nodes[2], nodes[3])]
    assert search(timeline, "upon a", everywhere=True)[1] == 1, "above the fork"
    across = search(timeline, "was a", everywhere=True)[0]
    assert (nodes[1], nodes[2]) in [(place.first, place.last) for place in across], "over the fork"
    timeline.apply(Deleted(nodes[2]))
    assert search(timeline, "a little", everywhere=True)[1] == 0


def test_of_many_places_the_first_are_shown_and_all_are_counted():
    timeline = taken(("x",) * (PLACES + 20)).timeline()
    places, total = search(timeline, "x", everywhere=False)
    assert (len(places), total) == (PLACES, PLACES + 20)


def test_hostile_texts_are_printable():
    made = taken(HOSTILE)
    timeline = made.timeline()
    for item in timeline.items:
        for place in search(timeline, f"#{item.id}", everywhere=True)[0]:
            assert all(text.isprintable() for text in excerpt(timeline, place))


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_the_text_shows_each_place_and_escape_goes_back(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready(steps=6)
    await rig.press("left", "left", "ctrl+f", *"on")
    assert isinstance(rig.app.top, TextSearchDialog)
    assert rig.timeline.slot == 0
    await rig.press("down")
    assert rig.timeline.slot == 1
    assert "2 of 2" in rig.screen_text()
    await rig.press("escape")
    assert rig.timeline.slot == len(rig.timeline.items) - 2
    await rig.press("ctrl+f")
    assert rig.app.top.query_one("#text-query", SafeInput).value == "on"
    await rig.press("enter")
    assert rig.app.top is rig.app.main
    assert rig.timeline.slot == 0
    await rig.press("ctrl+f", "enter")
    assert rig.timeline.slot == 1, "from there the next one comes first"
    assert rig.engine.sent == []


async def test_escape_follows_the_tip_again(rig: Rig) -> None:
    await rig.ready(steps=3)
    await rig.press("ctrl+f", *"on", "escape")
    assert rig.timeline.following


async def test_a_place_on_another_branch_is_gone_to(rig: Rig) -> None:
    made, nodes = forked()
    rig.session = made
    await rig.push(made.records)
    rig.engine.sent.clear()
    await rig.press("ctrl+f", "a", "space", *"little")
    assert "does not occur on this path. ctrl+f searches all branches." in rig.screen_text()
    await rig.press("enter")
    assert isinstance(rig.app.top, TextSearchDialog), "there is nothing to go to"
    await rig.press("ctrl+f")
    assert rig.app.top.query_one(Choice).chosen == 1
    assert rig.app.top.picks.count == 1
    await rig.press("enter")
    assert rig.engine.sent == [protocol.MoveTo(nodes[3])]
    await rig.push([made.move(nodes[3])])
    await rig.end("MoveTo")
    assert rig.timeline.selected is not None
    assert rig.timeline.selected.node == nodes[2]


async def test_from_the_vocabulary_the_same_is_looked_for_in_the_text(rig: Rig) -> None:
    await rig.ready(steps=6)
    await rig.press("slash", *"time")
    assert isinstance(rig.app.top, FindDialog)
    await rig.press("ctrl+f")
    assert isinstance(rig.app.top, TextSearchDialog)
    assert rig.timeline.slot == 3
