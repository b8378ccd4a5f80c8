"""The logit lens on the screen: questions, table, cursor, a followed token, measures, sizes, a real model."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.style import Style

from engine.protocol import (
    CaptureFacts,
    Check,
    Failure,
    LensCell,
    LensColumn,
    LensRead,
    LensToken,
    Prefill,
    ReadLens,
)
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.display import truncate_middle
from inspector.views.lens import (
    CELL,
    LABEL,
    MEASURES,
    Lens,
    _grid,
    is_rough,
    layout,
    place,
    share,
    table,
)
from tests.inspector.rig import Rig, idle

LAYERS = 4
FACTS = CaptureFacts(
    (Check("forward", 0.0, 0.0), Check("lens", 0.0, 1e-5, "the last layer")), 9.0, 3.0, "llama"
)


def cell(layer: int, followed: tuple[int, ...], leads_from: int) -> LensCell:
    """`[odd]` leads until the final token ` end` does; every followed token has 10 % more with each layer."""
    led = layer >= leads_from
    top = (LensToken(7, " end", 0.9), LensToken(8, "[odd]", 0.004))
    return LensCell(
        top if led else (LensToken(8, "[odd]", 0.5), LensToken(7, " end", 0.25)),
        5.0 - layer, 1 if led else 2000 - layer,
        tuple(0.1 * layer for _ in followed), tuple(50 - layer for _ in followed),
    )  # fmt: skip


def answer(rig: Rig, leads_from: int = 3, facts: CaptureFacts = FACTS) -> LensRead:
    """To the last question."""
    asked = rig.engine.last(ReadLens)
    assert isinstance(asked, ReadLens)
    items = rig.timeline.items[: rig.timeline.slot][-6:]
    columns = tuple(
        LensColumn(item.node, tuple(cell(layer, asked.followed, leads_from) for layer in range(LAYERS + 1)))
        for item in items
    )
    return LensRead(asked.node, columns, asked.followed, facts)


async def opened(rig: Rig, **how: object) -> Lens:
    await rig.ready()
    await rig.press("I")
    assert isinstance(rig.app.top, Lens)
    await rig.push([answer(rig, **how)])  # type: ignore[arg-type]
    await rig.end("ReadLens")
    return rig.app.top


def row(rig: Rig, label: str) -> str:
    """The line of a layer."""
    return next(line for line in rig.answer_text().splitlines() if line.strip("│ ").startswith(label))


@pytest.mark.screen(size=(98, 40))
async def test_layers_stand_upwards_with_their_token_probability_and_mark(rig: Rig) -> None:
    await opened(rig)
    assert rig.engine.names == ["ReadLens"]
    lines = rig.answer_text().splitlines()
    places = [
        next(n for n, line in enumerate(lines) if f" {name}" in line) for name in ("4  ", "3  ", "~   1")
    ]
    assert places == sorted(places)
    assert "~ embed" in rig.screen_text()
    assert "▸␣end" in row(rig, "3").replace(" ␣", "␣")
    assert "▸" not in row(rig, "4")
    assert "90 %" in row(rig, "4")
    assert "[odd]" in row(rig, "~   1")
    assert "50 %" in row(rig, "~   1")
    assert "stays on top from layer 3 of 4 on" in rig.screen_text()
    assert "rough" in rig.screen_text()


@pytest.mark.screen(size=(98, 40))
async def test_the_cursor_goes_through_the_layers_and_shows_the_whole_list(rig: Rig) -> None:
    screen = await opened(rig)
    assert "After layer 4: “␣end” has rank 1, entropy 1.00 bits" in rig.screen_text()
    await rig.press("down", "down")
    text = rig.screen_text()
    assert "After layer 2" in text
    assert "1,998, entropy 3.00 bits" in text
    assert "50.00 %" in text
    await rig.press(*["down"] * 9)
    assert "At the embedding" in rig.screen_text()
    await rig.press("pageup")
    assert screen._layer == LAYERS
    assert rig.engine.names == ["ReadLens"]


async def test_a_followed_token_has_its_probability_and_rank_beside_each_layer(rig: Rig) -> None:
    screen = await opened(rig)
    asked = rig.engine.last(ReadLens)
    assert isinstance(asked, ReadLens)
    assert asked.followed[0] == rig.timeline.taken
    first = rig.screen_text()
    assert "30 % #47" in row(rig, "3")
    await rig.press("t")
    assert screen._followed == asked.followed[1]
    assert first != rig.screen_text()
    assert "follows" in rig.screen_text()
    assert rig.engine.names == ["ReadLens"], "the answer has all that t goes through"
    await rig.press(*["t"] * (len(asked.followed) - 1))
    assert screen._followed == asked.followed[0]


async def test_the_name_of_a_followed_token_is_not_cut_where_it_has_room(rig: Rig) -> None:
    view = (await opened(rig)).view
    columns = (LensColumn(1, tuple(cell(layer, (7,), 3) for layer in range(LAYERS + 1))),)
    for name, head in (
        ("␣end", "follows “␣end”"),
        ("␣little", "follows “␣little”"),
        ("␣grandmother", "“␣grandmother”"),
    ):
        rows = table(view, columns, ["a"], MEASURES[0], 0, 0, name, 56, 9)
        text = "".join(segment.text for segment in rows[0])
        assert text.endswith(head.ljust(17)), text


async def test_a_candidate_that_was_highlighted_is_followed(rig: Rig) -> None:
    await rig.ready()
    await rig.press("down", "down")
    highlighted = rig.app.main.candidate
    assert highlighted is not None
    await rig.press("I")
    asked = rig.engine.last(ReadLens)
    assert isinstance(asked, ReadLens)
    assert highlighted.id in asked.followed


@pytest.mark.screen(size=(240, 40))
async def test_a_token_that_the_answer_lacks_is_asked_for(rig: Rig) -> None:
    screen = await opened(rig)
    screen._followed = 999
    screen.changed()
    await rig.pilot.pause()
    assert rig.engine.names == ["ReadLens", "ReadLens"]
    asked = rig.engine.last(ReadLens)
    assert isinstance(asked, ReadLens)
    assert asked.followed[0] == 999
    await rig.push([answer(rig)])
    await rig.end("ReadLens")
    assert "token 999" in rig.screen_text()
    assert rig.engine.names == ["ReadLens", "ReadLens"]


async def test_m_goes_through_the_measures(rig: Rig) -> None:
    await opened(rig)
    await rig.press("m")
    assert "#1" in row(rig, "4")
    assert "#1k+" in row(rig, "~   1")
    assert "colour: rank of the final token" in rig.screen_text()
    await rig.press("m")
    assert " 4.0" in row(rig, "~   1")
    await rig.press("m")
    assert "50 %" in row(rig, "~   1")


async def test_walking_asks_about_another_token(rig: Rig) -> None:
    await opened(rig)
    await rig.press("left")
    asked = rig.engine.last(ReadLens)
    assert isinstance(asked, ReadLens)
    assert asked.node == rig.timeline.before
    assert rig.engine.names == ["ReadLens", "ReadLens"]
    await rig.push([answer(rig)])
    await rig.end("ReadLens")
    await rig.press("right")
    assert rig.engine.names == ["ReadLens", "ReadLens"], "what is known is not asked again"


async def test_beside_the_text_it_says_in_sentences_what_a_cell_is_where_they_fit_under_the_list(
    rig: Rig,
) -> None:
    await opened(rig)
    asked = answer(rig)
    top = tuple(LensToken(place, f" t{place}", 0.1) for place in range(10))
    columns = tuple(
        replace(column, cells=tuple(replace(each, top=top) for each in column.cells))
        for column in asked.columns
    )
    await rig.press("left")
    await rig.push([replace(answer(rig), columns=columns)])
    await rig.end("ReadLens")
    assert "10 ␣t9" in rig.said()
    assert "so their tokens are hints at most." in rig.said()


async def test_a_failed_check_takes_the_table_away_and_a_failure_says_so(rig: Rig) -> None:
    await opened(rig, facts=replace(FACTS, checks=(Check("lens", 0.5, 1e-5, "the last layer"),)))
    text = rig.said()
    assert "“lens = logits” failed for the architecture llama" in text
    assert "[odd]" not in text
    await rig.press("left")
    await rig.push([Failure("ReadLens", "There is no such token.", "Begin with a prompt.")])
    await rig.end("ReadLens")
    assert "There is no such token." in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize(("size", "columns"), [((240, 40), 6), ((120, 40), 2), ((80, 24), 4), ((40, 12), 1)])
async def test_every_size_has_the_last_columns_and_the_followed_token(rig: Rig, size, columns) -> None:
    await opened(rig)
    assert row(rig, "4").count("90 %") == columns
    assert "follows" in rig.screen_text()
    await rig.press(*["down"] * LAYERS)
    assert "~ embed" in rig.screen_text()


def test_numbers_take_four_cells_at_most():
    shares = [0.0, 1e-9, 0.0049, 0.005, 0.5, 0.994, 0.996, 0.9999999, 1.0]
    assert [share(value) for value in shares] == [
        "<1 %", "<1 %", "<1 %", "<1 %", "50 %", "99 %", ">99%", ">99%", "100%",
    ]  # fmt: skip
    assert [place(rank) for rank in (1, 999, 1000, 99_999, 151_936)] == ["#1", "#999", "#1k+", "#1k+", "#1k+"]
    made = [cell(layer, (), 3) for layer in range(LAYERS + 1)]
    assert all(len(measure.number(one)) <= 4 for measure in MEASURES for one in made)
    assert [MEASURES[1].step(one) for one in made] == [0, 0, 0, 5, 5]


def test_the_width_is_divided_and_half_of_the_layers_are_rough():
    for width in range(20, 300):
        columns, cells, side = layout(width, 12)
        assert columns >= 1
        if columns > 1:
            assert cells >= CELL
            assert LABEL + columns * cells + side <= width
    assert [is_rough(layer, 9) for layer in range(9)] == [True] * 4 + [False] * 5


@pytest.mark.slow
async def test_a_real_model_is_read() -> None:
    app = InspectorApp(
        LoadSettings(), Settings(), Prefill("Once upon a time, there was a little girl named", False)
    )
    async with app.run_test(size=(120, 36)) as pilot:
        await idle(pilot)
        await pilot.press("3", "I")
        await idle(pilot)
        screen = app.top
        assert isinstance(screen, Lens)
        found = screen.answer
        assert found is not None
        assert found.facts.failed is None
        best = app.controller.timeline.candidates[0]
        assert found.columns[-1].cells[-1].top[0].id == best.id
        shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "Verified, largest " in shown
        assert "␣Lily" in shown


def test_wide_tokens_that_begin_alike_stay_apart():
    assert truncate_middle("␣understand", 8) == "␣und…and"
    assert truncate_middle("␣understood", 8) == "␣und…ood"
    assert truncate_middle("狐狸狐狸狐狸", 8) == "狐狸…狸"
    assert truncate_middle("␣the", 8) == "␣the"
    assert all(cell_len(truncate_middle("␣understanding狐", cells)) <= cells for cells in range(20))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_the_lens_of_a_deep_model_says_which_layers_are_shown(rig: Rig, size, monkeypatch) -> None:
    monkeypatch.setattr("tests.inspector.views.lens.test_screen.LAYERS", 94)

    await opened(rig, leads_from=60)
    found = re.search(r"Shown: layers (\d+) to (\d+) of 94", rig.screen_text())
    assert found is not None
    first, last = map(int, found.groups())
    drawn = {
        int(name) for line in rig.answer_text().splitlines() for name in re.findall(r"^[│ ~]+(\d+) ", line)
    }
    assert set(range(first, last + 1)) <= drawn
    await rig.press(*["down"] * 94)
    assert re.search(r"Shown: layers 1 to \d+ of 94", rig.screen_text())


def test_the_list_of_a_cell_has_room_for_its_tokens_where_there_is_some():
    top = tuple(
        LensToken(place, f" treat{end}", 0.1) for place, end in enumerate(("ments", "ment", "", "ies", "y"))
    )
    on = SimpleNamespace(rich_style=Style())
    wide = ["".join(part.text for part in row) for row in _grid(on, top, 100, 2)]
    assert " 1 ␣treatments 10 %" in wide[0]
    assert " 2 ␣treatment  10 %" in wide[0]
    tight = "".join(part.text for row in _grid(on, top, 90, 1) for part in row)
    assert tight.count("%") == 5, "all of them come first"
    assert "␣tre…ents" in tight
