"""The model's own numbers and those under interventions stand under the same words wherever they are shown."""

from __future__ import annotations

import re

import pytest

from engine.protocol import Intervene, Intervention
from inspector.blocks.paint import plain_lines
from inspector.documents.exports import EXPORTS
from inspector.documents.interventions import SWITCHED_PART, candidates, changed_to
from inspector.documents.parts import Exported
from inspector.export.documents import FORMATS
from inspector.export.recording import Recording, line
from inspector.state.inside import sides
from tests.inspector.fakes import session as session_of
from tests.inspector.rig import Rig
from tests.inspector.views.interventions.test_screen import opened
from tests.inspector.views.interventions.units import STRONGEST, effect
from tests.inspector.views.steering.sweeps import UP

HALF = Intervention("head", 1, 0, 0.5)
STEERED = Intervention("direction", 1, None, 2.0, UP)


@pytest.mark.parametrize(
    ("unit", "words"),
    [(STRONGEST, ("model", "off")), (HALF, ("model", "scaled")), (STEERED, ("model", "steered"))],
)
def test_the_models_own_numbers_come_first_under_a_word_for_them(
    unit: Intervention, words: tuple[str, str]
) -> None:
    assert sides((unit,)) == words
    session = session_of(3)
    read = effect(Intervene(session.timeline().tip, (unit,)))
    session.records.append(read)
    recording = line(Recording(session.timeline(), parts=EXPORTS))
    (exhibit,) = SWITCHED_PART.exhibits(Exported(recording.timeline, recording.items, {}))  # type: ignore[misc]
    rows = [["".join(cell.itertext()) for cell in row] for made in exhibit.make() for row in made.iter("tr")]
    assert rows[0][1:3] == list(words)
    assert rows[1][1:3] == ["80.00 %", "12.50 %"]
    report = FORMATS["md"](recording)
    assert re.search(rf"\| candidate \| {words[0]} \| {words[1]} \| Δ logit \|", report)
    assert re.search(r"80\.00 % \| 12\.50 %", report)
    _, _, head, first, *_ = plain_lines(candidates(read))
    assert re.search(rf" {words[0]} +{words[1]} +Δ logit +rank +rank then", head)
    assert re.search(r"80\.00 % +12\.50 % +[−+.0-9]+ +1 +3", first)


def test_the_arrow_at_a_probability_is_that_of_the_probability() -> None:
    assert [changed_to(0.2194, after) for after in (0.1769, 0.25, 0.21941)] == [
        "17.69 %↓",
        "25.00 %↑",
        "21.94 % ",
    ]


async def test_the_screen_has_them_in_the_same_order(rig: Rig) -> None:
    await opened(rig)
    text = rig.screen_text()
    assert re.search(r"model +off +Δ logit +rank", text)
    assert re.search(r"80\.00 %.* 12\.50 %", text)
