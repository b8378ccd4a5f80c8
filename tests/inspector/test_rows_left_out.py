"""What a table has no room for is counted in its last row, so that its columns still sum to the whole."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from xml.etree.ElementTree import Element

import pytest

from engine import protocol
from engine.protocol import Intervene, Intervention, Record
from inspector.blocks.paint import plain_lines
from inspector.documents import gradients, interventions, positions, scores
from inspector.documents.exports import EXPORTS
from inspector.documents.scores import by_weight, compared_to
from inspector.export.documents import evidence
from inspector.export.recording import line, snapshot
from inspector.version import program
from mlx_inspector import Session, open

HEADS = ("In the key", "In the query", "Query × key")
NUMBER = re.compile(r"[−+-]?\d+\.\d+(?= ?%|$)|[−+-]\d+\.\d+")


@pytest.fixture(scope="module")
def looked() -> Iterator[Session]:
    """A session that was looked into at one step."""
    with open(
        "pocket", prompt="Once upon a time there was a little girl. She had a dog.", temp=0.8, seed=7
    ) as s:
        s.run(14).wait()
        s.at(13).scores(4, 2)
        s.at(13).gradients(integrated=False)
        yield s


def answer(session: Session, command: protocol.Command, kind: type[Record]) -> Record:
    found: Record = session._line.do(command).answer(kind)
    return found


def tables(session: Session, heading: str) -> list[list[list[str]]]:
    """The tables under a heading of the exported page, row by row."""
    own = session._line
    recording = line(snapshot(own.timeline, own.settings, own.load, program()))
    recording.parts = EXPORTS
    section = next(
        each
        for article in evidence(recording)
        for each in article.iter("section")
        if heading in "".join(next(each.iter("h4")).itertext())
    )
    return [[_cells(row) for row in table.iter("tr")] for table in section.iter("table")]


def _cells(row: Element) -> list[str]:
    return ["".join(cell.itertext()) for cell in row]


def total(cells: Iterable[str]) -> float:
    """The sum of numbers as they are written."""
    found = (NUMBER.search(cell) for cell in cells)
    return math.fsum(float(each[0].replace("−", "-")) for each in found if each)


def test_the_writers_that_have_no_row_are_summed_on_the_page_and_in_the_terminal(looked: Session) -> None:
    read = looked.at(13).scores(4, 2)
    key = by_weight(read.record)[0]
    whole = compared_to(read.record, read.record.scores.row(), key, None)
    in_key, in_query, pairs = tables(looked, "looks there")
    for table in (in_key, in_query, pairs):
        assert table[-1][0].endswith(" others")
        assert total(row[1] for row in table[1:]) == pytest.approx(whole, abs=0.1)
    lines = [*plain_lines(scores.document(read.record, looked.at(13)._path()))]
    begins = [next(n for n, line in enumerate(lines) if line.startswith(head)) for head in HEADS]
    for first, last in pairwise([*begins, len(lines)]):
        assert "others" in " ".join(lines[first:last])
        assert total(lines[first + 1 : last]) == pytest.approx(whole, abs=0.1)


def test_the_tokens_that_have_no_row_are_summed_on_the_page_and_in_the_terminal(looked: Session) -> None:
    read = looked.at(13).gradients(integrated=False)
    (table,) = tables(looked, "Tokens behind")
    assert table[-1][0] == f"{len(read.shares) - 12} others"
    assert total(row[3] for row in table[1:]) == pytest.approx(read.record.total, abs=0.1)
    assert total(row[2] for row in table[1:]) == pytest.approx(
        100 * math.fsum(each.share for each in read.shares), abs=1
    )
    lines = plain_lines(gradients.document(read.record, looked.at(13)._path()))
    rows = [each for each in lines if "%" in each][:13]
    assert rows[-1].startswith(table[-1][0])
    assert total(row.split("%")[1].strip() for row in rows) == pytest.approx(read.record.total, abs=0.1)


def percents(row: str) -> list[float]:
    return [float(each) for each in re.findall(r"([\d.]+) %", row)]


def test_candidates_with_parts_off_or_at_another_place_sum_to_a_hundred(looked: Session) -> None:
    node = looked.at(13).node
    tried = answer(looked, Intervene(node, (Intervention("head", 4, 2),)), protocol.Intervened)
    assert isinstance(tried, protocol.Intervened)
    (table,) = tables(looked, "L5 h3 off")
    moved = looked.at(13).moved(5).record
    shown = (
        [" ".join(row) for row in table[1:]],
        [each for each in plain_lines(interventions.candidates(tried)) if "%" in each],
        [each for each in plain_lines(positions.document(moved)) if "%" in each],
    )
    for rows in shown:
        assert rows[-1].startswith("others")
        for place in (0, 1):
            assert math.fsum(percents(row)[place] for row in rows) == pytest.approx(100, abs=0.15)
