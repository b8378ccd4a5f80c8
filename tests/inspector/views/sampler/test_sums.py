"""Each column of a table of shares sums to 100 % with its others, whichever token was taken and whatever has room."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine import protocol
from engine.protocol import Distribution, Step
from engine.settings import Settings
from inspector.documents.sampler import FINAL, MODEL, NOW, columns
from inspector.export.documents import data
from inspector.export.lesson_page import of_token
from inspector.export.recording import Recording, line
from inspector.main.panels.candidates import rows_of
from inspector.main.panels.candidates import shown as shown_by_panel
from inspector.state.candidates import of_prompt, with_own
from inspector.state.timeline import StageExplanation, Timeline
from inspector.views.sampler import SamplerPanel
from mlx_inspector import Session, open
from tests.inspector.panels_app import lines, on_screen, shown

SETTINGS = st.builds(
    Settings,
    temp=st.sampled_from((0.0, 0.3, 1.0, 1.7)),
    top_p=st.sampled_from((1.0, 0.9)),
    top_k=st.sampled_from((0, 3, 40)),
    min_p=st.sampled_from((0.0, 0.05)),
    xtc_probability=st.sampled_from((0.0, 1.0)),
    candidates=st.sampled_from((1, 5, 20, 30)),
    seed=st.just(7),
)
FAR = " zebra", " cat", " the"
"""Tokens that somebody takes where the model expects others."""


@pytest.fixture(scope="module")
def taken() -> Iterator[Session]:
    """A text of sampled tokens, with some that were typed."""
    with open("pocket", prompt="Once upon a time", temp=1.0, top_p=1.0, seed=7) as s:
        s.run(12).wait()
        for text in FAR:
            s.take(text)
            s.run(3).wait()
        yield s


def ask(session: Session, step: Step, settings: Settings, also: tuple[int, ...]) -> protocol.Explained:
    asked = protocol.Explain(step.parent, settings, step.choice.reroll, also)
    explained: protocol.Explained = session._line.do(asked).answer(protocol.Explained)
    return explained


@hypothesis_settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 20), used=SETTINGS, tried=SETTINGS)
def test_every_column_sums_to_one(taken: Session, place: int, used: Settings, tried: Settings) -> None:
    step = [each.record for each in taken.steps][place % len(taken.steps)]
    now = ask(taken, step, used, ()).next
    step = replace(
        step,
        choice=now,
        sampler_prob=next(c.sampler_prob for c in ask(taken, step, used, (step.id,)).next.candidates
                           if c.id == step.id),
    )  # fmt: skip
    for settings in (used, tried):
        trial = settings != used
        explained = ask(taken, step, settings, (step.id, now.picked))
        own = with_own(now, step)
        listed = with_own(explained.next, step, tried=True) if trial else own
        assert step.id in [each.id for each in listed.candidates]
        table = {each.name: each for each in columns(listed, explained, settings, own if trial else None)}
        for column in table.values():
            if column.beyond is not None:
                assert math.fsum(column.shares) + column.beyond == pytest.approx(1, abs=1e-5), column.name
        if trial and used.temp == 1 and not now.stages:
            model, present = table[MODEL], table[NOW]
            assert present.cells == model.cells
            assert present.beyond == pytest.approx(model.beyond, abs=1e-5)
        assert table[FINAL].beyond is not None


def whole(distribution: Distribution) -> tuple[float, float]:
    drawn = (0.0 if math.isnan(each.sampler_prob) else each.sampler_prob for each in distribution.candidates)
    return (
        math.fsum(each.prob for each in distribution.candidates) + distribution.others_prob,
        math.fsum(drawn) + distribution.others_sampler_prob,
    )


def test_the_candidates_of_a_token_that_was_typed_have_it_among_them_once(taken: Session) -> None:
    timeline = taken._line.timeline
    recording = line(Recording(timeline))
    words, lists = (page := data(recording))["words"], page["tokens"]["candidates"]
    far = 0
    for place, item in enumerate(recording.items):
        timeline.select(place)
        rows = rows_of(timeline)
        if not rows:
            continue
        assert [each.id for each in rows].count(item.id) == 1
        if isinstance(item, Step):
            far += all(each.id != item.id for each in item.choice.candidates)
            of = shown_by_panel(timeline)
            assert of is not None
            assert whole(of) == pytest.approx((1, 1), abs=1e-5)
        else:
            candidates, mass = of_prompt(item)
            assert math.fsum(each.prob for each in candidates) + mass == pytest.approx(1, abs=1e-5)
        ids, probs, drawn, cuts, others, mass, _, *more = lists[place]
        assert [words[each][0] for each in ids].count(item.id) == 1
        assert sum(probs) + mass == pytest.approx(1e6, rel=1e-3)
        if isinstance(item, Step):
            drawn = drawn or [
                each for each, cut in zip(probs, cuts or "." * len(probs), strict=True) if cut == "."
            ]
            assert sum(drawn) + (more or [mass])[0] == pytest.approx(1e6, rel=1e-3)
        assert others + len(ids) == 4096
        section = of_token(item, 4096, False)
        rows_shown = [[("".join(cell.itertext())) for cell in row] for row in section.iter("tr")][1:]
        assert _percents(row[3] for row in rows_shown) == pytest.approx(100, abs=0.2)
        if isinstance(item, Step):
            assert _percents(row[4] for row in rows_shown) == pytest.approx(100, abs=0.2)
    assert far >= 2


def _percents(cells: Iterator[str]) -> float:
    found = (re.fullmatch(r"[<>]?([\d.]+) %", cell) for cell in cells)
    return sum(float(each[1]) for each in found if each)


@pytest.mark.parametrize("height", [8, 11, 16, 24, 40])
def test_rows_that_have_no_room_are_counted_among_the_others(taken: Session, height: int) -> None:
    timeline = taken._line.timeline
    place = next(i for i, each in enumerate(timeline.items) if isinstance(each, Step))

    @on_screen
    async def test() -> None:
        async with shown(SamplerPanel(), (74, height)) as (panel, pilot):
            of, item = _explained(taken, timeline, place)
            panel.show(timeline, of.settings, None)
            await pilot.pause()
            rows = [row for row in lines(pilot) if re.search(r"\d\.\d\d +[<\d]", row) or " others " in row]
            shares = [re.findall(r"[<>]?\d+\.\d\d|(?<= )0(?= |│)", row.split("others")[-1]) for row in rows]
            assert sum(float(each[-1].strip("<>")) for each in shares) == pytest.approx(100, abs=0.3)
            (counted,) = re.findall(r"([\d,]+) others", " ".join(rows))
            assert int(counted.replace(",", "")) == 4096 - (len(rows) - 1)
            assert item.id

    test()


def _explained(session: Session, timeline: Timeline, place: int) -> tuple[StageExplanation, Step]:
    timeline.select(place)
    item = timeline.items[place]
    assert isinstance(item, Step)
    used = timeline.tree.settings[item.node]
    timeline.last_explanation = StageExplanation(item.choice, used, ask(session, item, used, (item.id,)))
    return timeline.last_explanation, item
