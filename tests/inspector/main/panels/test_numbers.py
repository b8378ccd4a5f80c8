"""Header, KV cache and time: the numbers of the records, at any width."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from itertools import takewhile

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from textual.pilot import Pilot

from engine.protocol import KVGroup, KVReading, Step, StepTimes
from engine.settings import Settings
from engine.timing import tpot
from inspector import scales
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel, kv_facts, reading_of, slope
from inspector.main.panels.steps import StepFigures
from inspector.main.panels.timing import TimingPanel
from inspector.state.timeline import Timeline
from inspector.widgets.charts import HEIGHTS
from tests.inspector.cold import cold_start
from tests.inspector.fakes import PROMPT, Session, long_timeline, session
from tests.inspector.panels_app import PanelApp, lines, on_screen, screen, shown

WARM = Settings(temp=0.8, top_p=0.95, seed=7)


async def header(timeline: Timeline, width: int = 120, settings: Settings = WARM) -> str:
    """The header line at a width."""
    async with shown(HeaderLine(), (width, 3)) as (panel, pilot):
        panel.show(timeline, settings)
        await pilot.pause()
        return lines(pilot)[0]


@on_screen
async def test_the_header_tells_model_phase_context_and_sampling() -> None:
    line = await header(session(17).timeline())
    assert "pocket llama · 8 layers · 7.34 M bf16" in line
    assert "● DECODE step 17" in line
    assert "22/512" in line
    assert "T 0.8  top-p 0.95  seed 7" in line
    assert "top-k" not in line


@pytest.mark.parametrize(("width", "words"), [(120, 4), (80, 4), (40, 2)])
@on_screen
async def test_a_narrow_header_keeps_phase_and_context(width: int, words: int) -> None:
    line = await header(session(17).timeline(), width)
    assert cell_len(line) <= width
    assert "● DECODE step 17" in line
    assert "22/512" in line
    assert line.count("│") >= words - 1


@on_screen
async def test_greedy_names_no_filter() -> None:
    line = await header(session(3).timeline(), settings=Settings(top_p=0.5, top_k=3, seed=9))
    assert "greedy" in line
    assert "top" not in line
    assert "seed" not in line


@on_screen
async def test_the_phases_of_a_start() -> None:
    made = Session()
    assert "● LOADING" in await header(made.timeline())
    made.records = made.load()[:1]
    line = await header(made.timeline())
    assert "● LOADING weights" in line
    assert "66%" in line
    made.load()
    assert "p writes a prompt" in await header(made.timeline())
    opened = made.begin()
    made.chunk(opened, 3)
    line = await header(made.timeline())
    assert "● PREFILL 3/5" in line
    assert "█" in line
    made.prefilled(opened)
    timeline = made.timeline()
    assert "● DECODE step 0" in await header(timeline)
    timeline.running = True
    assert "● RUN step 0" in await header(timeline)


@on_screen
async def test_a_failed_load_says_what_is_wrong() -> None:
    made = Session()
    made.fail("There is no directory [/x].", "Give a path.")
    assert "● FAILED There is no directory [/x]." in await header(made.timeline())


@on_screen
async def test_looking_back_says_where() -> None:
    timeline = session(17).timeline()
    timeline.select(len(PROMPT) + 3)
    assert "step 17 · at step 4" in await header(timeline)
    timeline.select(1)
    assert "at prompt token 2" in await header(timeline)


@on_screen
async def test_a_model_without_a_window_has_no_bar() -> None:
    made = Session()
    made.load(context_window=None)
    made.open()
    assert "context 5 │" in await header(made.timeline())


# ---- KV cache -------------------------------------------------------------------------------


@on_screen
async def test_the_cache_in_tokens_bytes_and_share_of_the_window() -> None:
    async with shown(KVPanel(), (60, 10)) as (panel, pilot):
        panel.show(session(11).timeline())
        await pilot.pause()
        text = screen(pilot)
        assert "KV cache · 16 of 512 tokens" in text
        assert "128 KiB used" in text
        assert "2 MiB allocated  6.25 % full" in text
        assert "8 KiB a token" in text
        assert "8 layers" in text


@on_screen
async def test_a_size_that_has_no_room_is_left_out_and_none_is_cut() -> None:
    for width in range(40, 60):
        async with shown(KVPanel(), (width, 6)) as (panel, pilot):
            panel.show(session(11).timeline())
            await pilot.pause()
            first = next(line for line in lines(pilot) if "used" in line)
            assert first.strip("│ ").endswith(("allocated", "full", "a token")), first


@on_screen
async def test_the_axis_of_the_chart_tells_its_slope() -> None:
    made = Session()
    made.load(), made.open()
    async with shown(KVPanel(), (60, 10)) as (panel, pilot):
        for steps in (0, 2, 30):
            made.steps(steps)
            timeline = made.timeline()
            panel.show(timeline)
            await pilot.pause()
            axis = next(line for line in lines(pilot) if "+8 KiB a token" in line)
            assert axis.split()[1] == "1"
            assert str(len(timeline.items)) in axis.split()
            assert screen(pilot).count("a token") == 1
        last = timeline.items[-1]
        timeline.items[-1] = replace(last, kv=replace(last.kv, used_bytes=last.kv.used_bytes + 4096))
        assert slope(timeline) == 12 * 1024
        timeline.select(1)
        assert slope(timeline) == 8 * 1024


def chart(pilot: Pilot[None]) -> list[str]:
    """The chart of the growth: the line of what is allocated, and those of what is used."""
    rows = [line[2:-2].rstrip() for line in lines(pilot)]
    at = next(n for n, row in enumerate(rows) if row.startswith(("┌ ", "┌╌")))
    return [rows[at], *takewhile(lambda row: row and not row.strip(HEIGHTS), rows[at + 1 :])]


def heights(rows: Sequence[str], columns: int) -> list[int]:
    """Eighths of a line that each column of a chart fills."""
    return [sum(HEIGHTS.index(row.ljust(columns)[n]) for row in rows) for n in range(columns)]


@on_screen
async def test_the_first_tokens_fill_the_chart_and_each_step_rises_above_the_one_before() -> None:
    made = Session()
    made.load(), made.open()
    async with shown(KVPanel(), (60, 8)) as (panel, pilot):
        for steps in range(1, 5):
            made.step()
            panel.show(made.timeline())
            await pilot.pause()
            allocated, *used = chart(pilot)
            held = len(PROMPT) + steps
            assert allocated == "┌ 2 MiB ".ljust(4 * held, "╌")
            columns = heights(used, 4 * held)
            assert max(columns) == columns[-1] == 8 * len(used)
            assert columns[-4 * steps :: 4] == sorted(set(columns[-4 * steps :: 4]))
            assert "█" in used[0]
            assert "░" not in screen(pilot)


@on_screen
async def test_a_block_that_is_added_is_a_mark_with_its_size_over_the_token_that_needed_it() -> None:
    async with shown(KVPanel(), (304, 8)) as (panel, pilot):
        panel.show(long_timeline(295))
        await pilot.pause()
        allocated, *used = chart(pilot)
        assert allocated == "┌ 2 MiB ".ljust(256, "╌") + "┌ 4 MiB ".ljust(44, "╌")
        columns = heights(used, 300)
        assert columns == sorted(columns)
        assert "4 MiB allocated  58.59 % full" in screen(pilot)


@on_screen
async def test_a_ring_that_is_full_and_a_cache_that_became_smaller_are_drawn_as_they_are() -> None:
    made = session(6)
    timeline = made.timeline()
    sizes = ((100, 128), (120, 128), (128, 128), (128, 128), (32, 64), (40, 64))
    for slot, (used, allocated) in zip(timeline.step_slots, sizes, strict=True):
        step = timeline.items[slot]
        assert isinstance(step, Step)
        timeline.items[slot] = replace(
            step, kv=replace(step.kv, used_bytes=used << 10, allocated_bytes=allocated << 10)
        )
    for node, reading in timeline.prompts.kv.items():
        timeline.prompts.kv[node] = replace(reading, used_bytes=64 << 10, allocated_bytes=128 << 10)
    async with shown(KVPanel(), (60, 8)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        allocated, *used = chart(pilot)
        assert allocated == "┌ 128 KiB ".ljust(36, "╌") + "┌ 64 KiB"
        steps = heights(used, 44)[-24::4]
        assert steps == [round(size / 128 * 8 * len(used)) for size, _ in sizes]


@on_screen
async def test_an_earlier_token_shows_the_cache_as_it_was() -> None:
    made = Session()
    made.load()
    made.open(chunk=3)
    made.steps(6)
    timeline = made.timeline()
    timeline.select(len(PROMPT) + 1)
    found = reading_of(timeline, timeline.slot)
    assert found is not None
    assert found.offset == len(PROMPT) + 2
    timeline.select(1)
    found = reading_of(timeline, timeline.slot)
    assert found is not None
    assert found.offset == 3


@on_screen
async def test_kinds_that_read_differently_have_a_line_each() -> None:
    timeline = session(3).timeline()
    groups = (
        KVGroup("rotating", tuple(range(6)), 4, 128, 6000, 8192),
        KVGroup("plain", (6,), 8, None, 1000, 2048),
        KVGroup("recurrent", (7,), 0, None, 512, 512),
    )
    timeline.kv = KVReading(8, 7512, 10752, groups)
    async with shown(KVPanel(), (60, 12)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        text = screen(pilot)
        assert "rotating  6 layers × 4 of 128 tokens  5.86 KiB / 8 KiB" in text
        assert "plain     1 layer × 8 tokens " in text
        assert "one state" in next(line for line in lines(pilot) if "recurrent" in line)
    async with shown(KVPanel(), (60, 6)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert "rotating 35.2 KiB · plain 1000 B · recurrent 512 B" in screen(pilot)


@pytest.mark.parametrize(("height", "used_lines"), [(4, 1), (5, 2), (6, 2), (7, 2), (8, 3), (9, 4)])
@on_screen
async def test_a_plain_cache_alone_leaves_its_line_to_the_chart(height: int, used_lines: int) -> None:
    async with shown(KVPanel(), (60, height)) as (panel, pilot):
        panel.show(session(11).timeline())
        await pilot.pause()
        rows = [line[2:-2].rstrip() for line in lines(pilot)[2:-1]]
        drawn = [row for row in rows if row and not row.strip(HEIGHTS)]
        assert len(drawn) == used_lines
        assert max(heights(drawn, 56)) == 8 * used_lines
        assert "8 layers" not in screen(pilot)


@pytest.mark.parametrize(("height", "used_lines"), [(3, 0), (4, 1), (5, 1), (6, 2)])
@on_screen
async def test_the_bill_and_what_is_kept_leave_the_chart_its_lines(height: int, used_lines: int) -> None:
    made = session(12)
    made.records.append(replace(made.move(made.timeline().items[9].node), recomputed=40, note="a note " * 9))
    timeline = made.timeline()
    assert timeline.kv is not None
    timeline.kv = replace(timeline.kv, kept_bytes=4096, kept_budget=1 << 20)
    async with shown(KVPanel(), (60, height)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        text = screen(pilot)
        rows = [line[2:-2].rstrip() for line in lines(pilot)[2:-1]]
        assert sum(bool(row) and not row.strip(HEIGHTS) for row in rows) == used_lines
        assert "used" in text
        assert ("moved  kept 10 · recomputed 40" in text) == (height > 4)


@on_screen
async def test_in_depth_no_sentence_is_cut_in_the_middle() -> None:
    timeline = session(3).timeline()
    rings = tuple(range(93))
    groups = (
        KVGroup("rotating", rings, 128, 128, 19 << 20, 256 << 20),
        KVGroup("plain", (93,), 8, None, 1000, 2048),
    )
    timeline.kv = KVReading(8, 93 * (19 << 20) + 1000, 93 * (256 << 20) + 2048, groups)
    for height in range(17, 36):
        async with shown(KVPanel(), (60, height)) as (panel, pilot):
            panel.show(timeline)
            await pilot.pause()
            text = screen(pilot)
            assert "…" not in text
            assert "19 MiB of 256 MiB × 93 = 1.73 GiB" in text
            assert "128 of 128 tokens  layers 1-93" in text
            told = " ".join(" ".join(line.strip("│ ") for line in lines(pilot)).split())
            for _, sentence in kv_facts(timeline, timeline.kv):
                words = sentence.split()
                assert (" ".join(words) in told) == (" ".join(words[:4]) in told), (height, sentence)
            assert "a token 8 KiB, read off the arrays" in told or height < 18


# ---- one row ------------------------------------------------------------------------------------


async def one_row(panel: KVPanel | TimingPanel, timeline: Timeline, width: int = 80) -> str:
    """What a panel without a frame says on one row."""
    panel.add_class("-line")
    async with shown(panel, (width, 3)) as (_, pilot):
        panel.styles.height = 1
        panel.show(timeline)
        await pilot.pause()
        assert panel.size == (width - 2, 1)
        assert not "".join(lines(pilot)[1:])
        return lines(pilot)[0][1:]


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (
            120,
            r"KV cache  128 KiB used of 2 MiB allocated  \+8 KiB a token  16 tokens  6.25 % full  [▁-█]{32}",
        ),
        (80, r"KV cache  128 KiB used of 2 MiB allocated  \+8 KiB a token  16 tokens  [▁-█]{8}"),
        (60, r"KV cache  128 KiB used of 2 MiB allocated  \+8 KiB a token"),
        (50, r"KV cache  128 KiB used of 2 MiB  \+8 KiB a token"),
        (40, r"KV cache  128 KiB used of 2 MiB"),
    ],
)
@on_screen
async def test_the_cache_on_one_row(width: int, said: str) -> None:
    assert re.fullmatch(said, await one_row(KVPanel(), session(11).timeline(), width))


@on_screen
async def test_the_cache_on_one_row_is_that_of_the_token_that_is_looked_at() -> None:
    timeline = session(11).timeline()
    timeline.select(8)
    assert "KV cache  72 KiB used of 2 MiB allocated  +8 KiB a token  9 tokens" in await one_row(
        KVPanel(), timeline
    )


@on_screen
async def test_the_growth_on_one_row_rises_with_each_step() -> None:
    made = Session()
    made.load(), made.open()
    for _ in range(3):
        made.step()
        row = await one_row(KVPanel(), made.timeline(), 100)
        columns = [HEIGHTS.index(character) for character in re.findall(r"[▁-█]+$", row)[0]]
        assert columns == sorted(columns)
        assert columns[-1] == 8
        assert columns[-5] < 8


@on_screen
async def test_a_cache_that_became_smaller_tells_no_growth() -> None:
    timeline = session(2).timeline()
    last = timeline.items[-1]
    assert isinstance(last, Step)
    timeline.items[-1] = replace(last, kv=replace(last.kv, used_bytes=1024))
    assert timeline.kv is not None
    timeline.kv = replace(timeline.kv, used_bytes=1024)
    row = await one_row(KVPanel(), timeline)
    assert row.startswith("KV cache  1 KiB used of 2 MiB allocated  7 tokens  0.05 % full")
    assert "a token" not in row
    timeline.kv = replace(timeline.kv, offset=1)
    assert "  1 token  " in await one_row(KVPanel(), timeline)


@on_screen
async def test_no_cache_and_no_token_on_one_row() -> None:
    made = Session()
    made.load()
    assert await one_row(KVPanel(), made.timeline()) == "KV cache  no tokens yet"
    assert await one_row(TimingPanel(), made.timeline()) == "Time  no step yet"
    made.open()
    timeline = made.timeline()
    timeline.kv = KVReading(0, 0, 0, (), passed_tokens=9, passed_bytes=72 << 10)
    assert await one_row(KVPanel(), timeline) == "KV cache  off · last step: 9 tokens run, 72 KiB dropped"


@on_screen
async def test_a_row_that_is_to_be_predicted_tells_so_with_its_name() -> None:
    timeline = session(3).timeline()
    timeline.concealed = frozenset({"panel"})
    assert (await one_row(KVPanel(), timeline)).strip() == "KV cache · hidden until you predict"
    assert (await one_row(TimingPanel(), timeline)).strip() == "Time · hidden until you predict"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@on_screen
async def test_the_time_on_one_row(width: int) -> None:
    timeline = session(12).timeline()
    row = await one_row(TimingPanel(), timeline, width)
    step = timeline.step
    assert step is not None
    of_steps = tpot([item.ms.total for item in timeline.steps])
    prefilled = timeline.prompts.prefilled
    assert of_steps is not None
    assert prefilled is not None
    parts = [
        f"Time  step 12: {scales.milliseconds(step.ms.total)}",
        f"mean {scales.rate(of_steps.tps)}",
        f"first token {scales.milliseconds(prefilled.ttft_ms)}",
    ]
    fit = {40: 2, 60: 2, 80: 3, 120: 3}[width]
    assert row.startswith("  ".join(parts[:fit]))
    assert ("█" in row) == (width > 60)
    assert width <= 60 or row.endswith(f"≤ {scales.ms(max(item.ms.total for item in timeline.steps))} ms")
    timeline.select(len(PROMPT) + 3)
    assert (await one_row(TimingPanel(), timeline, width)).startswith("Time  step 4: ")
    timeline.select(1)
    assert (await one_row(TimingPanel(), timeline, 80)).startswith(f"Time  {parts[1]}  {parts[2]}  prompt ")


@on_screen
async def test_a_prefill_and_a_cold_start_on_one_row() -> None:
    made = Session()
    made.load()
    made.chunk(made.begin(), 3)
    assert re.match(
        r"Time  prefill [\d.]+ ms for 3 of 5 tokens  prompt [\d.]+ tok/s",
        await one_row(TimingPanel(), made.timeline()),
    )
    made = session(1)
    timeline = Timeline()
    for record in cold_start(made.records):
        timeline.apply(record)
    assert (await one_row(TimingPanel(), timeline)).startswith(
        "Time  step 1: 900 ms (with warm-up)  first token"
    )


@pytest.mark.parametrize(("panel", "rows"), [(KVPanel, 2), (KVPanel, 3), (TimingPanel, 2), (TimingPanel, 3)])
@on_screen
async def test_more_rows_without_a_frame_draw_below_the_first(
    panel: type[KVPanel | TimingPanel], rows: int
) -> None:
    made = panel(classes="-line")
    async with shown(made, (80, rows)) as (_, pilot):
        made.show(session(11).timeline())
        await pilot.pause()
        first, *rest = lines(pilot)
        assert first[1:].startswith(made.NAME)
        assert not re.search("[▁-█]", first[1:])
        assert all(line[1:].strip() for line in rest)
        assert len(rest) == rows - 1


@on_screen
async def test_the_focus_and_a_spotlight_are_seen_at_the_edge_of_a_row() -> None:
    class Styled(PanelApp):
        CSS = (resources.files("inspector") / "inspector.tcss").read_text("utf-8") + "#panel { height: 1; }"

    made = KVPanel(classes="panel -line")
    app = Styled(made, True, "textual-dark")
    async with app.run_test(size=(80, 3)) as pilot:
        made.show(session(11).timeline())
        await pilot.pause()
        assert lines(pilot)[0].startswith("▌KV cache")
        app.set_focus(None)
        await pilot.pause()
        assert lines(pilot)[0].startswith(" KV cache")
        made.add_class("-spot")
        await pilot.pause()
        assert lines(pilot)[0].startswith("▌KV cache")
        assert made.size == (78, 1)


@on_screen
async def test_the_bill_of_a_move() -> None:
    made = session(12)
    made.records.append(
        replace(made.move(made.timeline().items[9].node), restored=3, recomputed=40, note="a [note]")
    )
    async with shown(KVPanel(), (80, 10)) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        assert "moved  kept 10 · restored 3 · recomputed 40 · 4.2 ms · a [note]" in screen(pilot)
        made.step()
        panel.show(made.timeline())
        await pilot.pause()
        assert "moved" not in screen(pilot)


@on_screen
async def test_the_chart_rises_from_zero_to_the_tip() -> None:
    async with shown(KVPanel(), (60, 10)) as (panel, pilot):
        panel.show(long_timeline(400))
        await pilot.pause()
        row = next(line for line in reversed(lines(pilot)) if "█" in line and "used" not in line)
        assert row.rstrip("│ ")[-1] == "█"


# ---- time -----------------------------------------------------------------------------------


@on_screen
async def test_first_token_then_tokens_and_throughput() -> None:
    timeline = session(20).timeline()
    times = tpot([step.ms.total for step in timeline.steps])
    assert times is not None
    async with shown(TimingPanel(), (70, 12)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        text = screen(pilot)
        assert "first token 45.5 ms" in text
        assert f"each token {times.mean:.1f} ms  p50 {times.p50:.1f}  p95 {times.p95:.1f}" in text
        assert f"generation {times.tps:.0f} tok/s" in text
        assert "prompt 133 tok/s" in text
        assert "─ Time · prompt probabilities took 1.5 ms extra ─" in text
        assert "memory 16 MiB · peak 21.9 MiB" in text


def cold(made: Session) -> Session:
    """The same, as the first work of a model after its loading."""
    made.records = cold_start(made.records)
    return made


@on_screen
@pytest.mark.parametrize("size", [(70, 12), (60, 12), (60, 24)])
async def test_a_cold_start_is_marked_and_in_no_rate(size: tuple[int, int]) -> None:
    timeline = cold(session(20)).timeline()
    times = tpot([step.ms.total for step in timeline.steps[1:]])
    assert times is not None
    async with shown(TimingPanel(), size) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        text = screen(pilot)
        assert f"first token 45.5 ms  (with warm-up)  each token {times.mean:.1f} ms" in text
        assert f"p95 {times.p95:.1f}" in text
        assert f"generation {times.tps:.0f} tok/s" in text


@on_screen
@pytest.mark.parametrize(
    ("width", "said"),
    [(76, "45.5 ms  (with warm-up)  then 900 ms  (with warm-up)"), (60, "then 900 ms  (both with warm-up)")],
)
async def test_a_cold_start_alone_has_no_rate_at_all(width: int, said: str) -> None:
    timeline = cold(session(1)).timeline()
    async with shown(TimingPanel(), (width, 12)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert said in screen(pilot)
        assert "tok/s" not in screen(pilot)


@on_screen
async def test_a_cold_prefill_before_any_step_is_drawn_in_a_narrow_panel_too() -> None:
    async with shown(TimingPanel(), (24, 12)) as (panel, pilot):
        panel.show(cold(session(0)).timeline())
        await pilot.pause()
        assert "first token 45.5 ms" in screen(pilot)


@on_screen
async def test_what_a_move_cost_is_never_cut() -> None:
    made = session(8)
    made.records.append(
        replace(made.move(made.timeline().items[9].node), restored=1, restored_bytes=8192, ms=43.25)
    )
    timeline = made.timeline()
    for width, said in (
        (70, "moved  kept 10 · restored 1 (8 KiB) · recomputed 0 · 43.2 ms"),
        (58, "moved  kept 10 · restored 1 · recomputed 0 · 43.2 ms"),
    ):
        async with shown(KVPanel(), (width, 12)) as (panel, pilot):
            panel.show(timeline)
            await pilot.pause()
            assert said in screen(pilot)


@on_screen
async def test_a_first_prefill_under_way_has_the_rate_of_the_chunks_after_the_first() -> None:
    made = Session()
    made.load()
    opened = made.begin(PROMPT * 2)
    made.chunk(opened, 3)
    cold(made)
    async with shown(TimingPanel(), (70, 12)) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        assert "prompt" not in screen(pilot)
        made.chunk(opened, 6)
        panel.show(made.timeline())
        await pilot.pause()
        assert "prefill 922 ms for 6 of 10 tokens" in screen(pilot)
        assert "prompt 133 tok/s" in screen(pilot)


@on_screen
async def test_the_split_is_of_the_selected_step() -> None:
    timeline = session(20).timeline()
    async with shown(TimingPanel(), (70, 12)) as (panel, pilot):
        for slot in (len(PROMPT) + 2, len(PROMPT) + 9):
            timeline.select(slot)
            panel.show(timeline)
            await pilot.pause()
            step = timeline.step
            assert step is not None
            assert f"forward {step.ms.forward:.1f} ╍ sample {step.ms.sample:.2f}" in screen(pilot)
        timeline.select(1)
        panel.show(timeline)
        await pilot.pause()
        assert "forward" not in screen(pilot)


@on_screen
async def test_the_readings_of_a_pipelined_step_are_no_part_of_it() -> None:
    made = session(3)
    timeline = made.timeline()
    last = timeline.items[-1]
    assert isinstance(last, Step)
    timeline.items[-1] = replace(last, ms=StepTimes(10.3, 10.0, 0.25, 0.26, pipelined=True))
    timeline.select(None)
    async with shown(TimingPanel(), (70, 12)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        text = screen(pilot)
        assert "━ forward 10.0 ╍ sample 0.25 ┄ other 0.05 + inspect 0.26 meanwhile" in text
        bar = next(line for line in lines(pilot) if "━━" in line)
        assert "┅" not in bar


@on_screen
async def test_the_parts_of_a_step_add_up() -> None:
    parts = {StepTimes(10.0, 7.0, 1.0, 1.5): "0.50", StepTimes(1.0, 1.1, 0.0, 0.0): "0.00"}
    async with shown(TimingPanel(), (70, 12)) as (panel, pilot):
        for ms, other in parts.items():
            made = session(3)
            step = made.records[-1]
            assert isinstance(step, Step)
            made.records[-1] = replace(step, ms=ms)
            panel.show(made.timeline())
            await pilot.pause()
            assert f"┄ other {other}" in screen(pilot)


@on_screen
async def test_a_prefill_under_way_shows_what_it_took_so_far() -> None:
    made = Session()
    made.load()
    made.chunk(made.begin(), 3)
    async with shown(TimingPanel(), (70, 12)) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        assert "prefill 22.5 ms for 3 of 5 tokens" in screen(pilot)
        assert "prompt 133 tok/s" in screen(pilot)


def test_series_follow_the_path() -> None:
    made = session(10)
    timeline = made.timeline()
    figures = StepFigures()
    figures.update(timeline)
    sum_of_bits = sum(step.surprisal_bits for step in timeline.steps)
    assert (figures.bits, figures.known) == (pytest.approx(sum_of_bits), 10)
    timeline.apply(made.step())
    timeline.apply(made.move(timeline.items[8].node))
    timeline.apply(made.step())
    figures.update(timeline)
    of = [step.surprisal_bits for step in timeline.steps]
    assert (figures.bits, figures.known) == (pytest.approx(sum(of)), len(of))
    assert figures.ms == [step.ms.total for step in timeline.steps]
    assert figures.tpot() == pytest.approx(tpot([step.ms.total for step in timeline.steps]))


@pytest.mark.parametrize("panel", [KVPanel, TimingPanel])
@pytest.mark.parametrize(("width", "height"), [(120, 20), (60, 8), (60, 6), (40, 5), (24, 3)])
@on_screen
async def test_no_row_is_lost_or_too_wide(
    panel: type[KVPanel] | type[TimingPanel], width: int, height: int
) -> None:
    async with shown(panel(), (width, height)) as (made, pilot):
        made.show(session(30).timeline())
        await pilot.pause()
        assert len(made.draw(width - 4, height - 2)) <= height - 2
        assert all(cell_len(line) <= width for line in lines(pilot))


@pytest.mark.parametrize("panel", [KVPanel, TimingPanel])
@on_screen
async def test_an_empty_panel_says_why(panel: type[KVPanel] | type[TimingPanel]) -> None:
    made = Session()
    made.load()
    async with shown(panel(), (60, 8)) as (widget, pilot):
        widget.show(made.timeline())
        await pilot.pause()
        assert "There is no prompt yet." in screen(pilot)
        assert "Press p to write one." in screen(pilot)


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark"])
@on_screen
async def test_panels_draw_in_every_kind_of_theme(theme: str) -> None:
    for panel in (KVPanel(), TimingPanel()):
        async with shown(panel, (60, 10), theme=theme) as (widget, pilot):
            widget.show(session(20).timeline())
            await pilot.pause()
            assert "token" in screen(pilot)


@on_screen
async def test_a_narrow_split_leaves_out_the_last_parts_and_never_half_a_number() -> None:
    async with shown(TimingPanel(), (44, 12)) as (panel, pilot):
        panel.show(session(20).timeline())
        await pilot.pause()
        row = next(line for line in lines(pilot) if "forward" in line)
        assert "…" not in row
        assert "other" not in row
