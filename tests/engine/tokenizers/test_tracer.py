"""Traces of tokenizers: the library's own tokens, merges as a naive loop makes them, and what is refused."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from math import isclose
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from engine.errors import Cancelled, EngineError, LoadError, PromptError
from engine.protocol import TakenApart
from engine.tokenizers.tracer import MOST_CHARACTERS, TokenizerTracer, on_disk, opened
from tests.engine.tokenizers import kinds
from tests.engine.tokenizers.kinds import KINDS, sentencepiece, texts, tokenizer


def ids(taken: TakenApart) -> list[int]:
    return [id for word in taken.words for id in word.ids]


def holds(made: Tokenizer, text: str) -> None:
    """See that all of a text is told: its tokens, their ends, and pieces that spell what the model sees."""
    taken = TokenizerTracer(made).trace(text)
    cut = made.encode(text, add_special_tokens=False)
    assert ids(taken) == cut.ids, text
    assert [end for word in taken.words for end in word.ends] == [end for _, end in cut.offsets], text
    assert taken.tokens == len(cut.ids)
    for word in taken.words:
        assert b"".join(word.pieces()) == b"".join(word.symbols)
        assert len(word.borders) == len(word.ranks)


# ---- the library's own tokens -------------------------------------------------------------------


@pytest.mark.wide(2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_are_the_tokenizers_own(kind: str) -> None:
    made = tokenizer(kind)
    tracer = TokenizerTracer(made)
    for text in texts(150):
        assert ids(tracer.trace(text)) == made.encode(text, add_special_tokens=False).ids, text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_of_two_thousand_texts_are_the_tokenizers_own(kind: str) -> None:
    made = tokenizer(kind)
    tracer = TokenizerTracer(made)
    for text in texts(2000, seed=1):
        assert ids(tracer.trace(text)) == made.encode(text, add_special_tokens=False).ids, text


@pytest.mark.wide(2)
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_spell_the_words_and_each_token_has_its_end(kind: str) -> None:
    for text in texts(20, seed=2):
        holds(tokenizer(kind), text)


@pytest.mark.parametrize(
    "model",
    [
        {"byte_fallback": False, "fuse_unk": False},
        {"byte_fallback": False},
        {"ignore_merges": True},
        {"byte_fallback": False, "unk_token": None},
    ],
)
def test_unknown_characters_and_ignored_merges_are_as_in_the_library(model: dict[str, object]) -> None:
    made = sentencepiece(**model)
    for text in ("日本 unhappy 日", "x日本y", "😀", *texts(20, seed=3)):
        holds(made, text)


@pytest.mark.parametrize("falls_back", [True, False])
def test_unknown_characters_of_a_unigram_are_as_in_the_library(falls_back: bool) -> None:
    """Beside each other they are one token, or the tokens of their bytes."""
    vocab = [("<unk>", 0.0), ("a", -1.0), ("b", -2.0), ("ab", -2.5)]
    vocab += [(f"<0x{byte:02X}>", -9.0) for byte in "é".encode()]
    made = Tokenizer(models.Unigram(vocab, 0, falls_back))
    for text in ("xa", "xya", "axyb", "abx", "xaxb", "éa", "éxa", "xy", "bé"):
        assert ids(TokenizerTracer(made).trace(text)) == made.encode(text).ids, text
    without = Tokenizer(models.Unigram(vocab, None, False))
    assert TokenizerTracer(without).trace("ab").words[0].ids == (3,)
    with pytest.raises(PromptError, match="can't cut this text"):
        TokenizerTracer(without).trace("xa")


def test_prefixes_and_suffixes_of_subwords_are_as_in_the_library() -> None:
    vocab = {"a": 0, "b": 1, "##a": 2, "##b": 3, "ab": 4, "##ab": 5, "aab": 6, "<unk>": 7}
    merges = [("a", "##b"), ("##a", "##b"), ("a", "##ab")]
    prefixed = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", continuing_subword_prefix="##")
    )
    vocab = {"a": 0, "b": 1, "a</w>": 2, "b</w>": 3, "ab</w>": 4, "aab</w>": 5}
    suffixed = Tokenizer(
        models.BPE(vocab=vocab, merges=[("a", "b</w>"), ("a", "ab</w>")], end_of_word_suffix="</w>")
    )
    for made in (prefixed, suffixed):
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        for text in ("ab", "aab", "bab aab a b", "abab", "xab"):
            holds(made, text)
    (word,) = TokenizerTracer(suffixed).trace("aab").words
    assert word.pieces(0) == (b"a", b"a", b"b")
    assert word.pieces() == (b"aab",)


def test_a_pair_that_is_listed_twice_has_its_last_rank() -> None:
    made = Tokenizer(
        models.BPE(
            vocab={"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}, merges=[("a", "b"), ("b", "c"), ("a", "b")]
        )
    )
    holds(made, "abc")
    assert TokenizerTracer(made).trace("abc").words[0].pieces() == (b"a", b"bc")


def test_merges_in_both_spellings_are_the_same() -> None:
    file = json.loads(tokenizer("byte-level").to_str())
    assert all(isinstance(merge, list) for merge in file["model"]["merges"])
    file["model"]["merges"] = [" ".join(merge) for merge in file["model"]["merges"]]
    spelt = Tokenizer.from_str(json.dumps(file))
    words, same = (
        TokenizerTracer(each).trace("unhappiness").words for each in (spelt, tokenizer("byte-level"))
    )
    assert words == same


def test_truncation_and_padding_leave_nothing_out_and_stay() -> None:
    made = Tokenizer.from_str(tokenizer("byte-level").to_str())
    made.enable_truncation(2)
    made.enable_padding(length=8)
    made.post_processor = processors.ByteLevel(trim_offsets=True)
    assert (
        TokenizerTracer(made).trace("the attention of a head").words
        == TokenizerTracer(tokenizer("byte-level")).trace("the attention of a head").words
    )
    assert TokenizerTracer(made).trace("the attention").words[1].begin == 3, "its space is the word's"
    assert (made.truncation["max_length"], made.padding["length"]) == (2, 8)


# ---- ladders -------------------------------------------------------------------------------------


def naive(merges: dict[tuple[str, str], int], word: str) -> list[tuple[int, list[str]]]:
    """Merge the leftmost pair of the lowest rank, until there is none."""
    parts, ladder = [*word], []
    while pairs := [(merges[pair], place) for place, pair in enumerate(pairwise(parts)) if pair in merges]:
        rank, place = min(pairs)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        ladder.append((rank, [*parts]))
    return ladder


@pytest.mark.parametrize("kind", ["pocket", "byte-level"])
def test_a_ladder_is_that_of_a_naive_loop(kind: str) -> None:
    file = json.loads(tokenizer(kind).to_str())
    merges = {(left, right): rank for rank, (left, right) in enumerate(file["model"]["merges"])}
    tracer = TokenizerTracer(tokenizer(kind))
    for word in ("unhappiness", "attention", "aaaaaaa", "keys", "headheadhead"):
        (found,) = tracer.trace(word).words
        ladder = naive(merges, word)
        assert [*found.ranks] == [rank for rank, _ in ladder]
        for place, (_, parts) in enumerate(ladder, 1):
            assert [piece.decode() for piece in found.pieces(place)] == parts
        assert found.pieces(0) == tuple(bytes([byte]) for byte in word.encode())


def test_a_file_without_a_pre_tokenizer_is_cut_into_words_where_nothing_is_merged_across() -> None:
    words = TokenizerTracer(tokenizer("sentencepiece")).trace("the attention of  heads").words
    assert [b"".join(word.symbols) for word in words] == [b" the", b" attention", b" of", b"  heads"]
    assert [(word.begin, word.end) for word in words] == [(0, 3), (3, 13), (13, 16), (16, 23)]


@pytest.mark.parametrize("spelling", [{}, {"continuing_subword_prefix": "#"}, {"end_of_word_suffix": "#"}])
def test_a_text_without_a_pre_tokenizer_is_cut_as_by_the_library(spelling: dict[str, str]) -> None:
    """With a prefix or a suffix the place in the text decides which token a character is."""
    chars = "ab "
    spelled = [*chars, *(f"#{char}" for char in chars), *(f"{char}#" for char in chars), "ab", "ab#", "a#b"]
    made = Tokenizer(models.BPE({text: id for id, text in enumerate(spelled)}, [], **spelling))
    for text in ("ab ab", "a b", " a", "b "):
        assert ids(TokenizerTracer(made).trace(text)) == made.encode(text).ids


def test_a_text_of_one_word_without_end_is_taken() -> None:
    vocab = {"a": 0, "b": 1, "aa": 2, "aab": 3, "aaaa": 4}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[("a", "a"), ("aa", "b"), ("aa", "aa")]))
    for text in ("a" * 20_001, "aab" * 7_000, "ab" * 10_000):
        (word,) = TokenizerTracer(made).trace(text).words
        assert [*word.ids] == made.encode(text).ids


def test_a_unigrams_ways_are_the_best_of_all() -> None:
    file = json.loads(tokenizer("unigram").to_str())
    scores = dict(map(tuple, file["model"]["vocab"]))
    (word,) = TokenizerTracer(tokenizer("unigram")).trace("attention").words
    text = "▁attention"
    every = []
    for size in range(len(text)):
        for inner in combinations(range(1, len(text)), size):
            pieces = [text[begin:end] for begin, end in pairwise((0, *inner, len(text)))]
            if all(piece in scores for piece in pieces):
                every.append((sum(scores[piece] for piece in pieces), [len(piece) for piece in pieces]))
    best = sorted(every, reverse=True)
    assert len(word.ways) == 4
    for way, (score, lengths) in zip(word.ways, best, strict=False):
        assert isclose(way.score or 0.0, score)
        assert [*way.lengths] == lengths
    assert word.joined(word.ways[0].lengths) == word.pieces()


def test_a_wordpiece_takes_the_longest_from_the_left() -> None:
    made = Tokenizer(
        models.WordPiece(vocab={"un": 0, "u": 1, "##happy": 2, "##h": 3, "[UNK]": 4}, unk_token="[UNK]")
    )
    taken = TokenizerTracer(made).trace("unhappy")
    assert (taken.algorithm, taken.words[0].pieces(), taken.words[0].ids) == (
        "wordpiece",
        (b"un", b"happy"),
        (0, 2),
    )
    assert [way.lengths for way in taken.words[0].ways] == [(2, 5)]
    assert TokenizerTracer(made).trace("unhappyx").words[0].ids == (4,) == (taken.unknown,)


def test_a_wordpiece_knows_no_word_of_more_characters_than_its_file_says() -> None:
    made = Tokenizer(
        models.WordPiece({"a": 0, "##a": 1, "[U]": 2}, unk_token="[U]", max_input_chars_per_word=5)
    )
    for length, ids in ((5, (0, 1, 1, 1, 1)), (6, (2,))):
        assert (
            TokenizerTracer(made).trace("a" * length).words[0].ids
            == ids
            == tuple(made.encode("a" * length).ids)
        )


def test_a_word_that_takes_too_long_is_refused() -> None:
    """Four million pieces are tried at most: here each of 2,000 characters may begin one of as many lengths."""
    vocab = {"a" * 2000: 0, "##a": 1, "[U]": 2}
    made = Tokenizer(models.WordPiece(vocab, unk_token="[U]", max_input_chars_per_word=5000))
    assert TokenizerTracer(made).trace("a" * 2000).words[0].ids == (0,)
    with pytest.raises(PromptError, match="A word of 2,001 characters takes too long"):
        TokenizerTracer(made).trace("a" * 2001)


def test_words_are_left_out_beside_the_characters_that_are_asked_for() -> None:
    tracer = TokenizerTracer(tokenizer("pocket"))
    taken = tracer.trace("Once upon a time", 5, 9, node=7)
    assert [b"".join(word.symbols) for word in taken.words] == [b" upon"]
    assert (taken.node, taken.tokens, taken.characters) == (7, 4, 16)


def test_a_word_that_begins_with_the_lowest_byte_is_no_added_token() -> None:
    made = tokenizer("suffixed")
    taken = TokenizerTracer(made).trace("a\0 \0b")
    assert ids(taken) == made.encode("a\0 \0b", add_special_tokens=False).ids
    assert [word.symbols for word in taken.words] == [(b"a", b"\0"), (b"\0", b"b")]


# ---- what is refused -----------------------------------------------------------------------------


def test_what_can_not_be_taken_apart_is_refused_with_the_reason() -> None:
    looked_up = Tokenizer(models.WordLevel(vocab={"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    with pytest.raises(LoadError, match="looks whole words up"):
        TokenizerTracer(looked_up)
    with pytest.raises(LoadError, match="at random"):
        TokenizerTracer(Tokenizer(models.BPE(vocab={"a": 0}, merges=[], dropout=0.1)))
    tracer = TokenizerTracer(tokenizer("pocket"))
    with pytest.raises(PromptError, match="characters"):
        tracer.trace("a" * (MOST_CHARACTERS + 1))
    with pytest.raises(PromptError, match="not valid Unicode at character 1"):
        tracer.trace("a\ud800")
    with pytest.raises(Cancelled):
        tracer.trace("a b", stopped=lambda: True)
    assert tracer.trace("").words == ()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"model": {}}', b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_tokenizer_is_refused_in_words(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    with pytest.raises(EngineError):
        opened(file, "x")


def test_a_model_that_is_not_on_the_disk_is_refused() -> None:
    with pytest.raises(LoadError, match="isn't on this disk"):
        on_disk("owner/name", "")
    assert on_disk("pocket", "").trace("a").algorithm == "bpe"
    assert len(kinds.lines()) > 100
