"""A document of blocks fits a panel by what it declares, and is the same in a terminal, on a page and as CSV."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from inspector.blocks.blocks import (
    GAP,
    Bar,
    Beside,
    Column,
    Dot,
    Drawn,
    Facts,
    Rows,
    Strip,
    Table,
    TableRow,
    Text,
    number,
    sentence,
)
from inspector.blocks.page import elements, written
from inspector.blocks.paint import Painter, PlainInks, plain_lines

COLUMNS = (
    Column("name"), number("logits", short="log"), Column(cells=(10, 999), ends=(("lowers",), ("raises",))),
    number("seldom", 1),
)  # fmt: skip
ROWS = [TableRow((Text(f"part {n}", short=f"p{n}"), f"{n}.00", Bar(n - 4.0), f"{n}")) for n in range(9)]


def drawn(*blocks: object, width: int = 60, height: int = 30) -> list[str]:
    rows = Painter(PlainInks()).draw(blocks, width, height)  # type: ignore[arg-type]
    return ["".join(part.text for part in row).rstrip() for row in rows]


def test_columns_shorten_and_leave_by_priority() -> None:
    table = Table(COLUMNS, ROWS)
    assert drawn(table, width=44)[0].split() == ["name", "logits", "lowers", "◂│▸", "raises", "seldom"]
    assert drawn(table, width=33)[0].split() == ["name", "log", "◂│▸", "seldom"]
    assert drawn(table, width=26)[0].split()[:2] == ["name", "log"]
    assert "seldom" not in drawn(table, width=26)[0]
    assert drawn(table, width=22)[1].split()[0] == "p0"
    assert all(len(line) <= width for width in (44, 33, 26, 22) for line in drawn(table, width=width))


def test_a_low_panel_keeps_the_selected_row_and_what_has_priority() -> None:
    table = Table(COLUMNS, ROWS, at=7, foot=TableRow(("= sum", "36.00")), least=3)
    lines = drawn(sentence("above", priority=4), GAP, table, GAP, sentence("below", priority=1), height=6)
    assert lines[0] == "above"
    assert lines[1].split()[:3] == ["7-9", "of", "9"]
    assert any(line.startswith("▶ part 7") for line in lines)
    assert lines[-1].startswith("= sum")
    assert "below" not in lines
    assert len(drawn(table, height=4)) == 4
    assert len(drawn(GAP, table, GAP, sentence("below"), height=30)) == 14


def test_rows_without_room_are_in_the_last_row() -> None:
    def rest(seen: Collection[int]) -> TableRow | None:
        return TableRow((f"{len(ROWS) - len(seen)} others",), "muted") if len(seen) < len(ROWS) else None

    table = Table(COLUMNS, ROWS, rest=rest, keep=(8, 0, 4, *(n for n in range(9) if n % 4)))
    lines = drawn(table, height=5)
    assert [line.split()[:2] for line in lines[1:]] == [
        ["part", "0"], ["part", "4"], ["part", "8"], ["6", "others"],
    ]  # fmt: skip
    assert len(drawn(table, height=10)) == 10
    assert not any("others" in line for line in drawn(table, height=10))


def test_a_sentence_takes_the_first_form_that_fits() -> None:
    block = sentence("a long sentence about it", ("short", "\n", "in two lines"), "short")
    assert drawn(block, width=24) == ["a long sentence about it"]
    assert drawn(block, width=12) == ["short"]
    assert drawn(sentence("one   two", ("one", "\n", Text("two"))), width=6) == ["one", "two"]
    assert drawn(sentence("words that are wrapped", lines=2), width=12) == ["words that", "are wrapped"]


def test_documents_stand_beside_each_other_if_there_is_room() -> None:
    block = Beside((sentence("main"),), (sentence("side"),), 30, (8, 20))
    assert drawn(block, width=40) == ["main" + " " * 20 + "side"]
    assert drawn(block, width=20) == ["main", "side"]
    assert (
        drawn(Beside((sentence("main"),), (), 30, (8, 20), (sentence("brief"),)), width=20, height=40)[0]
        == "brief"
    )


@pytest.mark.parametrize(("height", "lines"), [(20, 12), (6, 4)])
def test_what_is_drawn_by_hand_has_the_lines_that_are_left(height: int, lines: int) -> None:
    block = Drawn(lambda painter, width, height: [[]] * height, (4, 12))
    assert len(drawn(block, Facts((("note", "words"),)), height=height)) == lines + 2


def test_of_a_large_table_only_the_rows_in_sight_are_made() -> None:
    made = []

    def row(of: int) -> TableRow:
        made.append(of)
        return TableRow((f"{of}", Strip(lambda: [0.5]), Bar(1.0)))

    columns = Column("n", cells=(5, 5)), Column(cells=(3, 3)), Column(cells=(4, 9), top=1.0)
    lines = drawn(Table(columns, Rows(range(10_000), row), at=5000), height=11)
    assert lines[6].startswith("▶ 5000")
    assert len(set(made)) < 20


def test_a_terminal_has_all_columns_and_words_instead_of_dots() -> None:
    columns = Column("name"), Column("band", cells=(8, 20)), number("a name that is long", 1)
    rows = [TableRow(("x", Dot(1.0, 0.0, 2.0, "0 to 2"), "3"))]
    head, line = plain_lines([Table(columns, rows)], width=10)
    assert head.split() == ["name", "band", "a", "name", "that", "is", "long"]
    assert line.split() == ["x", "0", "to", "2", "3"]


def test_texts_are_cut_before_columns_go_and_a_column_that_fits_comes_back() -> None:
    columns = Column("name", least=4), Column("words", priority=3, least=8), number("share", 2)
    table = Table(columns, [TableRow((Text("abcdef", gutter="- "), "twelve cells", "10 %"))])
    assert drawn(table, width=30)[1] == "- abcdef  twelve cells   10 %"
    assert drawn(table, width=22)[1] == "- ab…  twelve …   10 %"
    assert drawn(table, width=20)[1] == "- abcdef  twelve ce…"
    assert drawn(table, width=12)[1] == "- ab…   10 %"
    assert [*plain_lines([table], width=10)][1] == "- abcdef  twelve cells   10 %"
    assert [*plain_lines([table], width=12, fit=True)][1] == "- ab…   10 %"
    (page,) = map(written, elements([table], tables="plain"))
    assert '<table class="plain">' in page
    assert "<td>abcdef</td>" in page


def test_foreign_text_stays_text_on_a_page() -> None:
    table = Table(
        (Column("token"), number("logits"), Column(cells=(4, 9))),
        [TableRow(("=1+2", "−1.00", Bar(-1.0))), TableRow(("<b>", "2.00", Bar(2.0)))],
        foot=TableRow(("= sum", "1.00"), "strong"),
    )
    (made,) = elements([table, sentence("It says <so>.")])
    page = written(made)
    assert "&lt;b&gt;" in page
    assert "It says &lt;so&gt;." in page
    assert page.count('class="minus"') == 1
    assert '<tr class="taken"><td>= sum</td>' in page
    assert [*elements([sentence("alone")])] == []


def test_what_stands_under_a_table_of_a_page_is_sentences() -> None:
    table = Table((Column("token"),), [TableRow(("x",))])
    (made,) = elements([table, sentence("“x” 3 %, rank 1"), sentence("Direct effects only.")])
    assert "“x” 3 %, rank 1. Direct effects only.</p>" in written(made)
