"""Rows that were recorded late stand after the step that they belong to, each once."""

from __future__ import annotations

from itertools import pairwise

from engine.protocol import LogitsRow, ModelFacts, ModelVocabulary, Prefilled, PromptOpened, Step
from engine.recording import Entry, placed
from tests.inspector import fakes

VOCABULARY = ModelVocabulary(1, b"", (), ())


def row(node: int, of: bytes = b"") -> LogitsRow:
    return LogitsRow(node, 1, "float32", of)


def timed(values: list[object]) -> list[Entry]:
    return [Entry(value, float(place)) for place, value in enumerate(values)]  # type: ignore[arg-type]


def session() -> list[object]:
    fake = fakes.Session()
    fake.load()
    fake.open()
    fake.steps(3)
    return list(fake.records)


def test_each_row_follows_what_brings_its_node_and_the_vocabulary_its_model() -> None:
    given = session()
    steps = [value for value in given if isinstance(value, Step)]
    end = next(value for value in given if isinstance(value, Prefilled)).next.node
    second = row(steps[0].node, b"again")
    late = [VOCABULARY, row(steps[2].node), row(end), row(steps[0].node), second, VOCABULARY]
    found = placed(timed([*given, *late]))
    assert [
        entry.value for entry in found if not isinstance(entry.value, LogitsRow | ModelVocabulary)
    ] == given
    assert sum(isinstance(entry.value, ModelVocabulary) for entry in found) == 1
    for before, entry in pairwise(found):
        match entry.value:
            case ModelVocabulary():
                assert isinstance(before.value, ModelFacts)
            case LogitsRow(node=node, packed=packed):
                assert packed == b""
                assert isinstance(before.value, Step | Prefilled)
                assert before.value.next.node == node
    assert sum(isinstance(entry.value, LogitsRow) for entry in found) == 3
    assert [entry.at for entry in found] == sorted(entry.at for entry in found)
    assert placed(found) == found


def test_the_same_numbers_in_another_tree_are_other_nodes() -> None:
    one, other = session(), session()
    node = next(value.node for value in one if isinstance(value, Step))
    found = [entry.value for entry in placed(timed([*one, row(node, b"1"), *other, row(node, b"2")]))]
    assert [found[found.index(row(node, of)) - 1] for of in (b"1", b"2")] == [
        next(value for value in values if isinstance(value, Step)) for values in (one, other)
    ]
    second = next(
        place
        for place, value in enumerate(found)
        if isinstance(value, PromptOpened) and place > len(one) // 2
    )
    assert found.index(row(node, b"1")) < second < found.index(row(node, b"2"))


def test_a_row_of_an_unknown_node_stays_where_it_was() -> None:
    given = session()
    values = [*given[:-1], row(77), given[-1]]
    assert [entry.value for entry in placed(timed(values))] == values
