"""What is read off weights, and how they are drawn."""

from __future__ import annotations

import pytest

from engine.protocol import AttentionLayer, Floats
from inspector.blocks.paint import Painter, PlainInks
from inspector.blocks.shades import GLYPHS, Shades, stretches
from inspector.documents.attention import (
    MAX,
    MEAN,
    ORDERS,
    Head,
    columns,
    entropy_bits,
    maps,
    most_focused,
    ranked,
    sink_of,
    weights_of,
)
from inspector.documents.triangle import Triangle
from inspector.scales import step_of
from inspector.widgets.canvas import PageView
from tests.inspector.fakes import session
from tests.inspector.panels_app import on_screen, shown
from tests.inspector.views.attention.heads import on, read, scores, triangle


def test_a_stretch_has_the_largest_of_its_weights_and_a_short_path_cells_of_its_own() -> None:
    assert stretches([0.1, 0.5, 0.2, 0.2], 2) == [0.5, 0.2]
    assert stretches([0.1, 0.9], 5) == [0.1, 0.1, 0.9, 0.9]
    assert stretches([0.3], 3) == [0.3, 0.3, 0.3]
    assert max(stretches([0.0] * 999 + [1.0], 7)) == 1.0


def test_mean_and_maximum_of_the_heads() -> None:
    layer = read(5, 4, lambda layer, head: on(head, 4, 0.7)).layers[0]
    assert columns(layer) == (0, 1, MEAN, MAX)
    assert weights_of(layer, 0, 4) == pytest.approx([0.7, 0.1, 0.1, 0.1])
    assert weights_of(layer, MEAN, 4) == pytest.approx([0.4, 0.4, 0.1, 0.1])
    assert weights_of(layer, MAX, 4) == pytest.approx([0.7, 0.7, 0.1, 0.1])


def test_sinks_of_a_head_their_mean_and_maximum() -> None:
    layer = read(5, 4, lambda layer, head: on(0, 4), sinks=(0.2, 0.6)).layers[0]
    assert [sink_of(layer, head) for head in (0, 1, MEAN, MAX)] == pytest.approx([0.2, 0.6, 0.4, 0.6])
    assert sink_of(read(5, 4, lambda layer, head: on(0, 4)).layers[0], 0) == 0.0


def test_maps_that_do_not_all_fit_say_which_are_shown() -> None:
    made = read(5, 4, lambda layer, head: on(head, 4), layers=9)
    rows = Painter(PlainInks()).draw([*maps(made, Head(0, 1))], 40, 9)
    lines = ["".join(part.text for part in row) for row in rows]
    assert lines[4:6] == ["L1   █:::   ▐:█::   ▌▓▓::    ██::   ", "Shown: layers 1 to 4 of 9"]
    rows = Painter(PlainInks()).draw([*maps(made, Head(8, MAX))], 16, 9)
    lines = ["".join(part.text for part in row) for row in rows]
    assert lines[0].split() == ["avg", "max"]
    assert lines[1] == "L9   ▓▓:▐██:▌", "the last column is framed, too"


def test_a_file_may_say_anything() -> None:
    broken = AttentionLayer(0, "fused", 2, Floats((2, 3), b"\xff" * 24), 3, (0.1,))
    assert weights_of(broken, 0, 3) == (0.0, 0.0, 0.0)
    assert weights_of(broken, MEAN, 3) == (0.0, 0.0, 0.0)
    assert weights_of(AttentionLayer(0, "fused", 2, Floats((2, 3), b""), 3), 1, 3) == (0.0, 0.0, 0.0)
    assert sink_of(broken, 1) == 0.0


def test_it_begins_with_the_head_that_rests_on_one_token_furthest_back() -> None:
    places = {(0, 0): 0, (0, 1): 7, (1, 0): 3, (1, 1): 5, (2, 0): 0, (2, 1): 8}
    answer = read(9, 9, lambda layer, head: on(places[layer, head], 9))
    assert most_focused(answer) == Head(1, 0), "the first token doesn't count"
    faint = read(9, 9, lambda layer, head: on(4, 9, 0.3 if (layer, head) == (2, 0) else 0.2))
    assert most_focused(faint) == Head(2, 0)
    assert most_focused(read(9, 1, lambda layer, head: [1.0])) is not None
    assert most_focused(read(9, 0, lambda layer, head: [], layers=0)) is None


def test_orders() -> None:
    heads = scores(9, 9).heads
    best = [ranked(heads, order)[0] for order in (1, 2, 3, 4, 5)]
    assert [(head.layer, head.head) for head in best] == [(1, 0), (2, 1), (2, 0), (0, 1), (0, 0)]
    assert ORDERS[2].score(scores(9, 9, repeats=0).heads[0]) is None
    assert entropy_bits([0.25, 0.25], 0.5) == 1.5


@on_screen
async def test_steps_are_those_of_the_text_and_glyphs_carry_them_without_colours() -> None:
    assert [step_of(share) for share in (0.0, 0.019, 0.02, 0.06, 0.2, 0.4, 0.7)] == [0, 0, 1, 2, 3, 4, 5]
    async with shown(PageView(), colours=False) as (view, _):
        shades = Shades(view)
        (strip,) = shades.strip([0.0, 0.03, 0.06, 0.2, 0.4, 0.7], 8)
        assert strip.text == f"{GLYPHS}  "
        legend = "".join(part.text for part in shades.legend(60))
        assert legend == "% of a head's attention, from · : 2 ░ 5 ▒ 15 ▓ 35 █ 65"
        assert shades.whole(None, 2).text == "  "
    async with shown(PageView()) as (view, _):
        shades = Shades(view)
        strips = shades.strip([0.0, 0.9, 0.9], 2)
        assert [part.text for part in strips] == ["▌", "▌"]
        assert strips[0].style.color != strips[0].style.bgcolor
        assert strips[1].style.bgcolor is None, "the path ends there"
        assert [shades.halves(*pair).text for pair in ((None, None), (0.1, None), (None, 0.1), (0.1, 0.1))] == [
            " ", "▀", "▄", "▀",
        ]  # fmt: skip


def texts(drawn: Triangle, width: int, height: int) -> list[str]:
    """What it draws, without colours."""
    return ["".join(part.text for part in row).rstrip() for row in drawn.rows(width, height)]


@on_screen
async def test_the_causal_mask_is_seen_in_the_triangle() -> None:
    items = session(6).timeline().items
    count = len(items)
    async with shown(PageView(), colours=False) as (view, _):
        drawn = Triangle(triangle(1, 0, 0, count), items, count - 1, Painter(view))
        _, *rows = texts(drawn, 76, 30)
        assert drawn.fits
        for place, row in enumerate(rows[:count]):
            cells = row[16:]
            assert len(cells) == 2 * (place + 1), "nothing beyond the token itself"
            assert cells.index("█") == 2 * max(0, place - 1), "the token before"
        assert "▸" in rows[count - 1]
        assert "hidden by the causal mask" in " ".join(rows)


@on_screen
async def test_a_window_hides_what_is_long_past() -> None:
    items = session(6).timeline().items
    count = len(items)
    async with shown(PageView(), colours=False) as (view, _):
        drawn = Triangle(triangle(1, 0, 0, count, window=3), items, count - 1, Painter(view))
        rows = texts(drawn, 76, 30)
        assert rows[count][16:].lstrip() == "··██··"
        assert "or by a window" in " ".join(rows)


@on_screen
async def test_a_large_triangle_is_scrolled_to_the_token_or_squeezed() -> None:
    items = session(17).timeline().items * 10
    count = len(items)
    async with shown(PageView()) as (view, _):
        whole = triangle(1, 0, 0, count)
        drawn = Triangle(whole, items, count - 1, Painter(view))
        rows = texts(drawn, 56, 14)
        assert not drawn.fits
        assert any(row.strip().startswith(f"{count}▸") for row in rows)
        assert any("3▸" in row for row in texts(Triangle(whole, items, 2, Painter(view)), 56, 14))
        rows = texts(Triangle(whole, items, count - 1, Painter(view), squeezed=True), 56, 14)
        assert rows[1].split()[0] == "1"
        assert any(row.strip().startswith(f"{count}▸") for row in rows)
        assert any("× " in row for row in rows)
