"""A grammar on the screen: asked for, tried as it is typed, shown, left by a choice made twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from textual.widgets import Button

from engine import protocol
from engine.grammar_settings import Grammar
from engine.protocol import Ended, ExpectedBeginning, Failure, GrammarExpected, GrammarReading
from engine.settings import Settings
from inspector import scales
from inspector.documents.grammar import EXAMPLES, sentences, warning
from inspector.views.grammar_dialog import GrammarDialog
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import Choice, SafeTextArea
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig

DIGITS = Grammar("regex", "[0-9]+")
OPEN = GrammarReading(12, 0.0002, "open", b"")
EXPECTED = (ExpectedBeginning("a digit", 10, 0.00015), ExpectedBeginning("“-”", 2, 0.00005))
SIZES = [(120, 40), (80, 24), (40, 12)]


def remark(rig: Rig) -> tuple[str, bool]:
    found = rig.app.top.query_one("#grammar-remark", Remark)
    return str(found.render()), found.has_class("-wrong")


async def asked(rig: Rig) -> protocol.ReadGrammar:
    """The trial that comes once nothing is typed for a while."""
    before = len(rig.engine.asked)
    await rig.until(
        lambda: any(isinstance(each, protocol.ReadGrammar) for each in rig.engine.asked[before - 1 :])
    )
    question = rig.engine.asked[-1]
    assert isinstance(question, protocol.ReadGrammar)
    return question


def configured(rig: Rig) -> Grammar | None:
    last = rig.engine.last(protocol.Configure)
    assert isinstance(last, protocol.Configure)
    return last.settings.grammar


async def in_force(rig: Rig, grammar: Grammar | None) -> None:
    """The engine took the settings that were sent last."""
    await rig.push([Ended("Configure")])
    assert rig.app.controller.queries.in_force.grammar == grammar


async def typed(rig: Rig, text: str, steps: int = 0) -> None:
    await rig.ready(steps)
    await rig.press("J")
    rig.app.top.query_one("#grammar-text", SafeTextArea).load_text(text)
    await rig.pilot.pause()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
async def test_what_is_typed_is_tried_and_applied(rig: Rig, size: tuple[int, int]) -> None:
    await typed(rig, "[0-9]+")
    question = await asked(rig)
    assert (question.grammar, question.node) == (DIGITS, rig.timeline.before)
    await rig.push([GrammarExpected(question.node, OPEN, EXPECTED), Ended("ReadGrammar")])
    told, wrong = remark(rig)
    assert told == ("Valid. Allowed next: a digit, “-” (the model gives them 0.02 %).")
    assert not wrong
    await rig.press("ctrl+s")
    assert rig.app.top is rig.app.main
    assert configured(rig) == DIGITS
    await in_force(rig, DIGITS)
    assert "regex [0-9]+" in rig.status or size[0] < 80


async def test_what_is_wrong_is_said_and_not_applied(rig: Rig) -> None:
    await typed(rig, "[0-9")
    await asked(rig)
    why = "The grammar can't be used: column 1: unclosed character class."
    await rig.push([Failure("ReadGrammar", why, "Change it, or remove it."), Ended("ReadGrammar")])
    assert remark(rig) == (f"{why} Change it, or remove it.", True)
    assert rig.app.top.query_one("#apply", Button).disabled
    await rig.press("ctrl+s")
    assert isinstance(rig.app.top, GrammarDialog)
    await rig.press("escape")
    assert rig.app.controller.setup.settings.grammar is None


async def test_the_examples_fill_the_fields(rig: Rig) -> None:
    await typed(rig, "")
    assert rig.app.top.query_one("#apply", Button).disabled
    for name, kind, text in EXAMPLES:
        rig.app.top.query_one("#grammar-example", Choice).focus()
        await rig.press("right")
        dialog = rig.app.top
        assert isinstance(dialog, GrammarDialog)
        assert (dialog.typed.kind, dialog.typed.text) == (kind, text), name


async def test_it_begins_where_the_person_looks_and_is_taken_off_and_both_are_undone(rig: Rig) -> None:
    await typed(rig, "[0-9]+", steps=6)
    here = replace(DIGITS, begin=len(rig.timeline.items))
    dialog = rig.app.top
    assert isinstance(dialog, GrammarDialog)
    assert dialog.typed == here  # the six tokens before it need not match
    dialog.query_one("#grammar-begin", Choice).focus()
    await rig.press("left")
    assert dialog.typed == DIGITS
    await rig.press("right", "ctrl+s")
    assert configured(rig) == here
    await in_force(rig, here)
    await rig.press("J", "ctrl+d")
    assert configured(rig) is None
    assert "The grammar is off" in rig.status
    await in_force(rig, None)
    await rig.press("u")
    assert configured(rig) == here
    assert "the grammar is regex [0-9]+ now" in rig.status


def constrained(rig: Rig, reading: GrammarReading) -> protocol.Resampled:
    """The token to come under a grammar, which cuts the second candidate."""
    following = rig.timeline.next
    assert following is not None
    first, second, *rest = following.candidates
    cut = replace(second, cut_by="grammar", sampler_prob=0.0)
    return protocol.Resampled(replace(following, candidates=(first, cut, *rest), grammar=reading))


async def held(rig: Rig, reading: GrammarReading = OPEN) -> None:
    """A grammar holds, and is read so at the token to come."""
    rig.session = Session(seed=1)  # the sampler picked the first candidate
    await rig.ready()
    rig.app.controller.setup.configure(Settings(grammar=DIGITS))
    await in_force(rig, DIGITS)
    await rig.push([constrained(rig, reading)])


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES[:2])
async def test_the_panel_shows_what_is_expected_and_warns(rig: Rig, size: tuple[int, int]) -> None:
    await held(rig)
    await rig.press("tab")
    question = await asked(rig)
    assert (question.node, question.grammar) == (rig.timeline.before, DIGITS)
    await rig.push([GrammarExpected(question.node, OPEN, EXPECTED), Ended("ReadGrammar")])
    text = rig.screen_text()
    assert "The grammar works against the model" in text
    assert "0.02 %" in text
    assert "a digit" in text
    assert "regex [0-9]+" in text
    count = len(rig.engine.asked)
    await rig.press("down", "up")
    assert len(rig.engine.asked) == count  # asked once


async def test_a_forbidden_candidate_is_refused_and_taken_by_the_same_key_again(rig: Rig) -> None:
    await held(rig)
    rows = rig.timeline.candidates
    await rig.press("down", "enter")
    chosen = rig.engine.last(protocol.Choose)
    assert isinstance(chosen, protocol.Choose)
    assert chosen.token == rows[2].id  # what the grammar cuts comes after what it allows
    await rig.end("Choose")
    rig.engine.sent.clear()
    await rig.press(*["down"] * len(rows), "enter")
    assert rig.status.startswith("The grammar forbids")
    assert "Choose" not in rig.engine.names
    await rig.press("up", "down", "enter")
    last = rig.engine.last(protocol.Choose)
    assert isinstance(last, protocol.Choose)
    assert last.leave_grammar


async def test_a_token_that_the_engine_refuses_is_taken_when_it_is_chosen_again(rig: Rig) -> None:
    await held(rig)
    navigation = rig.app.controller.navigation
    for leave in (False, True):
        navigation.choose(4000)
        last = rig.engine.last(protocol.Choose)
        assert isinstance(last, protocol.Choose)
        assert last.leave_grammar == leave
        await rig.push([Failure("Choose", "The grammar forbids it.", ""), Ended("Choose")])


async def test_a_text_outside_is_marked(rig: Rig) -> None:
    await held(rig, GrammarReading(4096, 1.0, "left"))
    assert "outside the grammar" in rig.screen_text()


@pytest.mark.parametrize(
    ("reading", "told"),
    [
        (OPEN, "works against the model: what it allows has 0.02 % of"),
        (GrammarReading(3, 0.9, "open", b'"name"'), 'Forced: every valid text continues with “"name"”.'),
        (
            GrammarReading(1, 0.9, "accepting"),
            "It allows 1 token; the model gives it 90.00 %. The text may end here",
        ),
        (GrammarReading(2, 0.5, "complete"), "it must end here"),
        (GrammarReading(9, 1.0, "left"), "from there on nothing is forbidden"),
        (GrammarReading(9, 1.0, "ended"), "nothing is forbidden any more"),
        (GrammarReading(3, 0.9, "open", b"\x1b[31m"), "␛[31m"),
    ],
)
def test_every_state_has_its_sentence(reading: GrammarReading, told: str) -> None:
    assert told in " ".join(sentences(reading))
    assert bool(warning(reading)) == (reading is OPEN)


def test_small_masses_keep_a_figure() -> None:
    assert [scales.share(mass) for mass in (0.5, 0.0004, 0.00002, 1e-9, 0.0)] == [
        "50.00 %", "0.04 %", "0.002 %", "<0.0001 %", "0 %",
    ]  # fmt: skip
