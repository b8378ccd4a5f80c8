"""Words taken apart as they are shown: pieces in words, columns of two tokenizers, the text around a token."""

from __future__ import annotations

from msgspec.structs import replace

from engine.protocol import Segmentation, TakenApart, WordApart
from engine.tokenizers.tracer import TokenizerTracer, on_disk
from inspector.state.inside import KEPT, Answers
from inspector.state.merges import (
    around,
    columns,
    faced,
    final,
    labels,
    rung,
    rungs,
    token_labels,
)
from tests.engine.tokenizers.kinds import KINDS, texts, tokenizer
from tests.inspector import fakes

POCKET = on_disk("pocket", "")


def test_a_piece_that_is_no_whole_character_is_told_by_its_bytes() -> None:
    assert labels((b" ", b"\xe6", b"\x97", b"\xa5", b"\x1b[1m")) == ["␣", "‹E6›", "‹97›", "日", "␛[1m"]


def test_each_rung_of_a_bpe_has_one_piece_less_and_names_the_new_one() -> None:
    (word,) = POCKET.trace("unhappiness").words
    assert rungs(word) == len(word.ranks) + 1
    assert rung(word, 0).of == ""
    for place in range(1, rungs(word)):
        before, now = rung(word, place - 1), rung(word, place)
        assert now.new is not None
        assert now.pieces[now.new] == b"".join(before.pieces[now.new : now.new + 2])
        assert len(now.pieces) == len(before.pieces) - 1
        assert now.value == word.ranks[place - 1]
    assert rung(word, final(word)).pieces == word.pieces()


def test_a_unigram_has_its_ways_and_a_wordpiece_its_steps() -> None:
    (word,) = TokenizerTracer(tokenizer("unigram")).trace("attention").words
    assert (rungs(word), final(word)) == (4, 0)
    assert rung(word, 0).pieces == word.pieces()
    best, second = rung(word, 0), rung(word, 1)
    assert second.value < best.value < 0
    assert best.of.startswith("−"), "a true minus"
    letters, steps = tuple(bytes([each]) for each in b"unhappy"), (Segmentation(None, (2, 1, 4)),)
    word = WordApart(0, 7, letters, (), (), steps, (0, 1, 2), (2, 3, 7))
    assert [rung(word, place).pieces for place in range(rungs(word))] == [
        (b"un", b"happy"), (b"un", b"h", b"appy"), (b"un", b"h", b"appy"),
    ]  # fmt: skip


def test_columns_have_all_tokens_of_both_and_common_borders() -> None:
    apart = {kind: TokenizerTracer(tokenizer(kind)) for kind in KINDS}
    for first in KINDS:
        for second in ("pocket", "unigram"):
            for text in (*texts(6, seed=9), "日本 ab", ""):
                sides = apart[first].trace(text), apart[second].trace(text)
                made = columns(*sides)
                for side, taken in enumerate(sides):
                    shown = [label for column in made for label in (column.first, column.second)[side]]
                    assert shown == [label for word in taken.words for label in token_labels(word)]
                for above, below in faced(made, 60):
                    assert above.count("│") >= 1
                    assert above.endswith("│")
                    assert below.endswith("│")


def test_the_text_around_a_token_ends_at_special_tokens_and_begins_with_a_word() -> None:
    session = fakes.Session()
    session.load(), session.open(), session.steps(12)
    items = session.timeline().items
    found = around(items, 6)
    assert found is not None
    assert found.text[found.begin : found.end] == items[6].text
    assert around([], 0) is None
    assert around(items, 10_000) == around(items, len(items) - 1)
    near = around(items, 8, before=2, after=1)
    assert near is not None
    assert near.text == "".join(item.text for item in items[6:10])
    marked = [*items[:5], replace(items[5], special=True), *items[6:]]
    inside = around(marked, 8)
    assert inside is not None
    assert (inside.first, around(marked, 5).text) == (6, items[5].text)  # type: ignore[union-attr]
    before = around(marked, 2)
    assert before is not None
    assert list(before.tokens) == items[before.first : 5]
    for after in (0, 1, 3):
        cut = around(items, 6, after=after)
        assert cut is not None
        assert list(cut.tokens) == items[cut.first : 7 + after]


def test_a_tokens_slots_are_those_that_have_characters_of_its_word() -> None:
    session = fakes.Session()
    session.load(), session.open(), session.steps(4)
    items = session.timeline().items
    found = around(items, 1)
    assert found is not None
    taken = POCKET.trace(found.text, found.begin, found.end)
    assert [items[slot].text for slot in found.own(taken.words[0])] == [" upon"]


def test_a_recorded_ladder_that_leads_nowhere_is_not_shown() -> None:
    taken = POCKET.trace("unhappiness", node=4)
    seen = Answers()
    seen.apply(taken)
    assert seen.found(TakenApart) == [taken]
    seen.apply(replace(taken, name="other"))
    seen.apply(replace(taken, node=None))
    assert seen.found(TakenApart) == [taken]
    assert Answers.sound(taken)
    (word,) = taken.words
    for wrong in (
        replace(word, borders=(99, *word.borders[1:])),
        replace(word, ranks=()),
        replace(word, ends=()),
        replace(word, borders=(1,) * len(word.borders)),
        replace(word, ways=(Segmentation(0.5, (2, 3)),)),
    ):
        assert not Answers.sound(replace(taken, words=(wrong,)))
    for place in range(KEPT + 6):
        seen.apply(replace(taken, node=place))
    assert len(seen.found(TakenApart)) == KEPT
    assert isinstance(taken, TakenApart)
