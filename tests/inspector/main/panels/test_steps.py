"""The table of steps and the strip under it."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.geometry import Size

from inspector.main.panels import steps
from inspector.main.panels.header import question_rows
from inspector.main.panels.steps import METRIC_OF, StepsPanel, StepsTable, StepStrip, fitting
from inspector.main.tool import SlotSelected
from inspector.widgets.canvas import Row
from inspector.widgets.charts import EIGHTHS
from inspector.widgets.inks import Inked
from tests.inspector.fakes import HOSTILE, PROMPT, Session, long_timeline, next_step, session
from tests.inspector.panels_app import find, heard, lines, on_screen, screen, shown, style_at


@on_screen
async def test_a_row_tells_what_a_step_was_and_cost() -> None:
    timeline = session(4).timeline()
    step = timeline.steps[2]
    async with shown(StepsPanel(), (100, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        heads = ["#", "token", "p", "bits", "entropy", "rank", "ms", "KV", "probability"]
        assert lines(pilot)[1].split()[1:-1] == heads
        words = lines(pilot)[4].replace("│", " ").split()
        assert words[:2] == ["3", "␣a"]
        assert f"{step.surprisal_bits:.2f}" in words
        assert words[-3:-1] == ["64", "KiB"]
        assert set(words[-1]) <= set(EIGHTHS)  # the probability as a bar


@on_screen
async def test_the_row_that_all_panels_show_is_marked() -> None:
    timeline = session(9).timeline()
    async with shown(StepsPanel()) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert [line.split()[2] for line in lines(pilot) if "▶" in line] == ["9"]
        timeline.select(len(PROMPT) + 1)
        panel.show(timeline)
        await pilot.pause()
        marked = [line for line in lines(pilot) if "▶" in line]
        assert len(marked) == 1
        assert "2 ␣was" in marked[0]
        timeline.select(1)
        panel.show(timeline)
        await pilot.pause()
        assert "▶" not in screen(pilot)


@on_screen
async def test_a_click_on_a_row_or_a_column_selects_its_slot() -> None:
    async with shown(StepsPanel(), (60, 20)) as (panel, pilot):
        panel.show(session(9).timeline())
        await pilot.pause()
        await pilot.click(offset=find(pilot, "␣little"))
        strip = panel.query_one(StepStrip)
        await pilot.click(strip, offset=(12 + 6, 0))
        assert [message.slot for message in heard(pilot, SlotSelected)] == [8, len(PROMPT) + 6]


@on_screen
async def test_it_follows_the_tip_and_scrolls_to_what_is_selected() -> None:
    made = session(60)
    timeline = made.timeline()
    async with shown(StepsPanel(), (60, 14)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert "▶" in screen(pilot)
        for _ in range(5):
            timeline.apply(made.step())
            panel.show(timeline)
        await pilot.pause()
        assert any("▶" in line and " 65 " in line for line in lines(pilot))
        timeline.select(len(PROMPT) + 2)
        panel.show(timeline)
        await pilot.pause()
        assert any("▶" in line and " 3 " in line for line in lines(pilot))


@on_screen
async def test_another_branch_replaces_the_rows() -> None:
    made = session(9)
    timeline = made.timeline()
    async with shown(StepsPanel()) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        node = timeline.items[7].node
        other = next(c for c in made.tips[node].candidates if c.id != made.tips[node].picked)
        for record in made.choose(node, other.id):
            timeline.apply(record)
        panel.show(timeline)
        await pilot.pause()
        assert [line.split()[2:4] for line in lines(pilot) if "▶" in line] == [
            ["4", f"␣{other.text.strip()}"]
        ]
        assert "␣named" not in screen(pilot)


@pytest.mark.parametrize(
    ("width", "metric"), [(100, "rank"), (56, "surprisal"), (56, "entropy"), (40, "rank"), (24, "off")]
)
def test_columns_give_way_but_not_the_one_of_the_metric(width: int, metric: str) -> None:
    kept = fitting(width, metric)
    assert metric == "off" or metric in map(METRIC_OF.get, kept)
    assert width < 60 or len(kept) == 6


@pytest.mark.parametrize("width", [24, 40, 60, 120])
@on_screen
async def test_no_row_is_wider_than_the_panel(width: int) -> None:
    made = Session(HOSTILE)
    made.load()
    made.open()
    made.steps(15)
    async with shown(StepsPanel(), (width, 20)) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        assert all(cell_len(line) <= width for line in lines(pilot))
        assert not set("\x1b\x9b\x00\u202e\u200b") & set(screen(pilot))


@on_screen
async def test_the_strip_draws_the_metric_and_is_gone_when_it_is_off() -> None:
    async with shown(StepsPanel()) as (panel, pilot):
        panel.show(session(9).timeline())
        for name in ("rank", "entropy", "probability"):
            panel.metric = name
            await pilot.pause()
            assert any(line.lstrip("│ ").startswith(name) for line in lines(pilot))
        panel.metric = "off"
        await pilot.pause()
        assert not panel.query_one(StepStrip).display


@on_screen
async def test_the_metric_gives_heat_to_its_column() -> None:
    made = session(9)
    node = made.timeline().items[-1].node
    made.choose(node, made.tips[node].candidates[-1].id)
    timeline = made.timeline()
    bits = f"{timeline.steps[-1].surprisal_bits:.2f}"
    async with shown(StepsPanel()) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        hot = style_at(pilot, bits).bgcolor
        panel.metric = "rank"
        await pilot.pause()
        assert style_at(pilot, bits).bgcolor != hot


@on_screen
async def test_the_frame_sums_up() -> None:
    timeline = session(9).timeline()
    mean = sum(step.surprisal_bits for step in timeline.steps) / 9
    async with shown(StepsPanel()) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert f"{mean:.2f} bits/token · perplexity {2**mean:.2f}" in lines(pilot)[-1]


@on_screen
async def test_without_steps_it_says_what_to_press() -> None:
    async with shown(StepsPanel()) as (panel, pilot):
        panel.show(session(0).timeline())
        await pilot.pause()
        assert "space" in screen(pilot)


@on_screen
async def test_what_stands_there_without_steps_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each of its lines, in each of the paints of a start."""
    written: list[int] = []

    def counted(on: Inked, width: int) -> list[Row]:
        written.append(width)
        return question_rows(on, width)

    monkeypatch.setattr(steps, "question_rows", counted)
    async with shown(StepsPanel(), (100, 30)) as (panel, pilot):
        panel.show(session(0).timeline())
        await pilot.pause()
        for _ in range(3):
            panel.query_one(StepsTable).refresh()
            await pilot.pause()
        assert "what could come here?" in screen(pilot)
        assert len(written) == 1


@on_screen
async def test_many_steps_cost_no_more_rows_than_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = long_timeline(5000)
    pattern = timeline.steps[:40]
    made: list[int] = []
    row = StepsTable._row
    monkeypatch.setattr(StepsTable, "_row", lambda self, t, n, w: made.append(n) or row(self, t, n, w))
    async with shown(StepsPanel(), (60, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert len(set(made)) <= 40
        made.clear()
        for number in range(5):
            timeline.apply(next_step(timeline, pattern[number]))
            panel.show(timeline)
            await pilot.pause()
        assert len(made) <= 5 * 3


@on_screen
async def test_rows_of_another_width_are_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a scroll bar comes or goes nobody is told of another size: kept rows would stand beside narrower ones."""
    async with shown(StepsPanel(), (60, 20)) as (panel, pilot):
        panel.show(session(4).timeline())
        await pilot.pause()
        assert "KiB" in lines(pilot)[2]
        table = panel.query_one(StepsTable)
        narrow = Size(table.scrollable_size.width - 2, table.scrollable_size.height)
        monkeypatch.setattr(StepsTable, "scrollable_size", narrow)
        table._strips.discard(3)
        table.refresh_line(4)
        for _ in range(2):
            await pilot.pause()
            rows = lines(pilot)[2:6]
        assert len({row.index("KiB") for row in rows}) == 1, "\n".join(rows)
