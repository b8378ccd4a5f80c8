"""The nodes that entries name: each must be one that an entry before it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engine.errors import RecordingError
from engine.protocol import (
    Moved,
    Prefilled,
    PromptOpened,
    PromptReadings,
    PromptToken,
    Step,
)
from engine.recording import Entry, load, save_as
from engine.recording.nodes import KnownNodes, Misfit
from tests.inspector import fake_beams, fakes

SESSION = fakes.session(4)
RECORDS: list[Any] = [*SESSION.records, SESSION.move(SESSION.node - 1)]
PLACES = {
    kind: next(n for n, each in enumerate(RECORDS) if type(each) is kind) for kind in {*map(type, RECORDS)}
}
BEAMS: list[Any] = fake_beams.search(RECORDS[-1].node)


def token(**changes: Any) -> Callable[[Any], Any]:
    """Changes the last token of a prompt's record."""
    return lambda record: replace(record, tokens=(*record.tokens[:-1], replace(record.tokens[-1], **changes)))


def step(**changes: Any) -> Callable[[Any], Any]:
    """Changes the first live beam of a step."""
    return lambda record: replace(record, live=(replace(record.live[0], **changes), *record.live[1:]))


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (Step, lambda it: replace(it, parent=77), "stands on node 77, which no entry before it has"),
        (Step, lambda it: replace(it, node=it.parent), "has node 5 after node 5, where it can't be"),
        (Step, lambda it: replace(it, node=3), "has node 3 after node 5, where it can't be"),
        (Moved, lambda it: replace(it, node=77), "moves to node 77, which no entry before it has"),
        (PromptOpened, lambda it: replace(it, parent=1), "has a prompt after node 1, which no entry before it has"),
        (PromptOpened, lambda it: replace(it, parent=-1), "has a prompt after node -1"),
        (PromptOpened, token(position=9), "has the prompt's tokens out of order, at node 5"),
        (PromptOpened, token(node=2), "has node 2 after node 4, where it can't be"),
        (Prefilled, token(node=77), "has a token that is not in the prompt, at node 77"),
        (Prefilled, token(position=9), "has a token that is not in the prompt, at node 5"),
        (PromptReadings, token(node=77), "has a prompt's token that no entry before it has, at node 77"),
    ],
)  # fmt: skip
def test_a_record_that_names_an_unknown_node_is_refused_with_its_entry(
    tmp_path: Path, kind: type, change: Callable[[Any], Any], words: str
) -> None:
    records, place = list(RECORDS), PLACES[kind]
    records[place] = change(records[place])
    save_as(tmp_path / "a.trace", map(Entry, records), "test 1")
    with pytest.raises(RecordingError) as refused:
        load(tmp_path / "a.trace")
    assert refused.value.message.startswith(f"Entry {place + 2} of {tmp_path / 'a.trace'} {words}")
    assert refused.value.entry == place + 2


def checked(records: list[Any]) -> str:
    """What is wrong with the last of some records, after a session; empty if nothing is."""
    known = KnownNodes()
    for record in [*RECORDS, *records[:-1]]:
        known.check(record)
    try:
        known.check(records[-1])
    except Misfit as error:
        return str(error)
    return ""


START = BEAMS[0].node


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (BEAMS, ""),
        ([replace(BEAMS[0], node=77)], "begins beams at node 77, which no entry before it has"),
        (BEAMS[1:2], "is of a beam search that no entry before it begins"),
        ([BEAMS[0], BEAMS[2]], "doesn't fit the entries before it of its beam search"),
        ([*BEAMS, BEAMS[-1]], "doesn't fit the entries before it of its beam search"),
        ([BEAMS[0], step(parent=77)(BEAMS[1])], "names node 77, which no beam before it reached"),
        ([BEAMS[0], step(node=START)(BEAMS[1])], f"has node {START} after node {START}"),
        ([*BEAMS[:2], step(node=99, id=11, parent=START)(BEAMS[2])], "has two nodes of one token"),
        ([*BEAMS[:2], replace(BEAMS[2], pruned=(replace(BEAMS[2].pruned[0], node=77),))], "names node 77"),
        ([*BEAMS[:4], replace(BEAMS[4], finished=(replace(BEAMS[4].finished[0], ids=()),))], "has a hypothesis that"),
        ([*BEAMS[:4], replace(BEAMS[4], finished=(replace(BEAMS[4].finished[0], ids=(7, 8)),))], "has a hypothesis"),
        ([*BEAMS[:-1], replace(BEAMS[-1], greedy=replace(BEAMS[-1].greedy, node=77))], "names node 77"),
        ([BEAMS[0], RECORDS[PLACES[PromptOpened]], BEAMS[1]], "is of a beam search that no entry before it begins"),
    ],
)  # fmt: skip
def test_a_beam_search_names_nodes_that_it_reached(records: list[Any], words: str) -> None:
    assert checked(records).startswith(words)
    assert bool(checked(records)) == bool(words)


class Counted(dict[int, int]):
    """The parents of nodes, and how often one was asked for."""

    asked = 0

    def __getitem__(self, node: int) -> int:
        self.asked += 1
        return super().__getitem__(node)


def test_many_prompts_at_the_end_of_a_long_path_take_linear_time() -> None:
    known, size = KnownNodes(), 2000
    tokens = tuple(PromptToken(place + 1, place, 0, "", b"", False) for place in range(size))
    known.check(PromptOpened("", False, tokens, False))
    known._parents = parents = Counted(known._parents)
    for place in range(size):
        one = PromptToken(size + place + 1, size + place, 0, "", b"", False)
        known.check(PromptOpened("", False, (one,), False, parent=size + place, new_tree=False))
    assert parents.asked <= 4 * size
