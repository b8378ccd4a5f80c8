"""Tables of actions: what is refused, what the line of keys has, and that each key in it is pressed by a click."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
from textual.content import Content
from textual.keys import _character_to_key
from textual.style import Style

from inspector import keys
from inspector.keys import KEYS, go_to, key_for, names_of, shown, textual_name, with_keys
from inspector.widgets.actions import (
    Action,
    ActionTable,
    fitting,
    hints_of,
    key_event,
    line,
    note,
    refuse_doubles,
    section,
)


@contextmanager
def own_keys(own: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """A person's own keys, for as long as they are in use."""
    keys.use(own)
    try:
        yield
    finally:
        keys.use({})


def action(id: str, names: str, **more: object) -> Action:
    return Action(id, keys=names, run=lambda own: None, **more)  # type: ignore[arg-type]


def pressed_in(content: Content) -> list[tuple[str, str]]:
    """The texts that a click presses something in, each with what that is."""
    return [
        (content.plain[span.start : span.end], span.style.meta["press"])
        for span in content.spans
        if isinstance(span.style, Style) and "press" in span.style.meta
    ]


# ---- names of keys ----------------------------------------------------------------------------


def test_keys_are_named_as_textual_names_them() -> None:
    for sign in map(chr, range(33, 127)):
        assert textual_name(sign) == _character_to_key(sign)
        assert shown(textual_name(sign)) == sign
    assert [textual_name(each) for each in ("esc", "⏎", "pgdn", "ctrl+s", "shift+↑", "ctrl++", "ä")] == [
        "escape", "enter", "pagedown", "ctrl+s", "shift+up", "ctrl+plus", "ä",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "character"),
    [("n", "n"), ("N", "N"), ("space", " "), ("escape", None), ("enter", None), ("left_square_bracket", "["),
     ("plus", "+"), ("ctrl+s", None), ("shift+tab", None), ("question_mark", "?"), ("up", None), ("f1", None)],
)  # fmt: skip
def test_a_key_that_is_clicked_is_as_the_keyboard_sends_it(name: str, character: str | None) -> None:
    event = key_event(name)
    assert (event.key, event.character) == (name, character)


def test_every_key_of_the_program_has_a_name_that_is_read_back() -> None:
    for id in KEYS:
        for name in names_of(id):
            assert textual_name(shown(name)) == name or name in ("backspace", "delete"), id


def test_the_key_that_opens_the_help_leaves_it_whichever_it_is() -> None:
    assert names_of("help.close") == ("question_mark",)
    with own_keys({"help": ("f2",)}):
        assert names_of("help.close") == ("f2",)


def test_a_sentence_names_the_key_that_holds() -> None:
    assert with_keys("{step} steps, {race.again} begins anew") == "space steps, n begins anew"
    with own_keys({"step": ("n",), "race.again": ("f5", "ctrl+n")}):
        assert with_keys("{step} steps, {race.again} begins anew") == "n steps, f5 begins anew"
        assert key_for("step") == "n"
    assert with_keys('{"type": "object"}') == '{"type": "object"}'


def test_a_sentence_names_the_tab_of_a_key_that_holds_in_another() -> None:
    """The one that is open, whichever was when the sentence was made before."""
    for tab, named in (("1", "5 z"), ("5", "z"), ("", "5 z"), ("5", "z")):
        go_to(tab)
        assert (key_for("race"), with_keys("{race} begins")) == (named, f"{named} begins")


def test_arrows_enter_and_escape_keep_their_meaning_beside_an_own_key() -> None:
    """Sentences everywhere say so."""
    with own_keys({"above": ("i",), "step": ("n",)}):
        assert names_of("above") == ("i", "up")
        assert names_of("step") == ("n",)


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "message"),
    [(action("b", "q n"), "a and b both claim the key n in “Here”"), (action("a", "q"), "both claim the id a"),
     (action("race.leave", "@race m z"), "race and race.leave both claim the key z"),
     (Action("no.such", run=lambda own: None), "no.such has no key")],
)  # fmt: skip
def test_a_key_or_an_id_that_is_taken_is_refused(second: Action, message: str) -> None:
    first = Action("race", run=lambda own: None) if "race" in second.id else action("a", "n m")
    with pytest.raises(ValueError, match=message):
        refuse_doubles("in “Here”", ((each.id, each) for each in (first, second)))


def test_notes_claim_nothing() -> None:
    actions = (action("a", "up"), note("up", "Scroll."), note("up", "Again."))
    refuse_doubles("in “Here”", ((each.id, each) for each in actions))


# ---- the line of keys -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [("n", "n"), ("n N", "n N"), ("space", "space"), ("left right", "←→"), ("[ ]", "[ ]"), ("up down [ ]", "↑↓ [ ]"),
     ("- +", "-+"), ("tab", "⇥"), ("pageup pagedown", "pgup pgdn"), ("shift+up shift+down", "shift+↑↓"),
     ("space right", "space →"), ("1 2 3 4 5", "1-5"), ("1 2", "1-2"), ("ctrl+s", "ctrl+s"), ("enter", "⏎")],
)  # fmt: skip
def test_neighbours_with_one_word_share_it(names: str, expected: str) -> None:
    """And each of their keys is pressed by a click on it."""
    actions = [action(f"a{place}", name, hint="word") for place, name in enumerate(names.split())]
    [hint] = hints_of([[([], each) for each in actions]])
    assert hint.keys == expected
    clicked = [name for _, name in pressed_in(line([hint], 40))]
    assert set(clicked) <= {name for each in actions for name in each.names}
    assert len(clicked) >= min(2, len(actions))


def test_the_word_of_a_single_key_is_pressed_too_and_of_several_none() -> None:
    one, two = action("a", "n", hint="next"), action("b", "m", hint="more")
    [first] = hints_of([[([], one)]])
    assert pressed_in(line([first], 40)) == [("n", "n"), (" next", "n")]
    [both_of] = hints_of([[([], one), ([], Action("b", keys="m", hint="next"))]])
    assert pressed_in(line([both_of], 40)) == [("n", "n"), ("m", "m")]
    assert [hint.keys for hint in hints_of([[([], one), ([], two)]])] == ["n", "m"]


def test_the_least_worthy_goes_first_where_there_is_no_room() -> None:
    actions = [action("a", "a", hint="one", worth=3), action("b", "b", hint="two", worth=1),
               action("c", "c", hint="three", worth=2)]  # fmt: skip
    hints = hints_of([[([], each) for each in actions]])
    assert str(line(hints, 80)) == "a one  b two  c three"
    assert str(line(hints, 20)) == "a one  c three"
    assert [hint.word for hint in fitting(hints, 6)] == ["one"]
    assert fitting(hints, 0) == []


def test_what_holds_for_a_while_takes_the_place_of_what_is_below() -> None:
    above, below = [action("step", "s", hint="pause", place=1)], [
        action("step", "s", hint="step", place=1), action("run", "r", hint="run", place=2)]  # fmt: skip
    assert (
        str(line(hints_of([[([], each) for each in level] for level in (above, below)]), 80))
        == "s pause  r run"
    )


def test_a_word_may_change_and_an_action_without_one_is_left_out() -> None:
    running = [action("go", "g", hint=lambda own: "stop" if own else "", worth=1)]
    assert hints_of([[(False, each) for each in running]]) == []
    assert str(line(hints_of([[(True, each) for each in running]]), 80)) == "g stop"


# ---- the help ---------------------------------------------------------------------------------


def test_neighbours_with_one_sentence_share_a_row() -> None:
    table = ActionTable(
        "In a place",
        (
            action("less", "left -", help="Fewer, or more."),
            action("more", "right +", help="Fewer, or more."),
            *(action(f"page{number}", str(number), help="Show a page.") for number in (1, 2, 3)),
            note("up down", "Scroll."),
            action("hidden", "h", help="Told of elsewhere.", listed=False),
            action("odd", "o", help="`{step}` does it, too.", written="`o`, or a letter"),
        ),
        "What it is.",
    )
    assert list(section(table)) == [
        "", "## In a place", "", "What it is.", "| key | what it does |", "|---|---|",
        "| `←` `→` `-` `+` | Fewer, or more. |", "| `1` to `3` | Show a page. |", "| `↑` `↓` | Scroll. |",
        "| `o`, or a letter | `space` does it, too. |",
    ]  # fmt: skip
