"""A tokenizer trained on a text: at each size it is the one that the library trains to that size."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from engine.errors import PromptError
from engine.merges.trained import BYTES, LONGEST, MOST, TrainedTokenizer
from tests.engine.merges.kinds import lines

TEXT = "\n".join(line[:400] for line in lines())


def trained(size: int) -> Tokenizer:
    """What the library trains to one size."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(
        TEXT.splitlines(keepends=True),
        trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            max_token_length=LONGEST,
            show_progress=False,
        ),
    )
    return made


def test_each_size_cuts_as_if_it_had_been_trained_so() -> None:
    own = TrainedTokenizer(TEXT)
    assert own.sizes[0].vocabulary == BYTES
    assert own.sizes[0].tokens == len(TEXT.encode())
    assert [*own.sizes] == sorted(own.sizes, key=lambda size: -size.tokens)
    for size in (own.sizes[3], own.sizes[7], own.sizes[-1]):
        library = trained(size.vocabulary)
        assert library.get_vocab_size() == size.vocabulary
        cut = library.encode_batch(TEXT.splitlines(keepends=True))
        assert size.tokens == sum(len(each.ids) for each in cut)
        shown = own.apart.take("the attention of one head")
        pieces = [piece.decode() for word in shown.words for piece in own.pieces(word, size)]
        assert [piece.replace(" ", "Ġ") for piece in pieces] == library.encode(
            "the attention of one head"
        ).tokens


def test_a_short_text_soon_has_nothing_left_to_merge() -> None:
    own = TrainedTokenizer("ab ab ab")
    assert (own.sizes[0].tokens, own.sizes[-1].vocabulary, own.sizes[-1].tokens) == (8, 258, 3)
    assert [size.tokens for size in TrainedTokenizer("x").sizes] == [1]


@pytest.mark.parametrize(
    "text", ["a" * MOST, "".join(chr(0x4E00 + n % 20_000) for n in range(MOST)), "\x00" * 99]
)
def test_a_text_without_spaces_and_without_end_is_trained_on(text: str) -> None:
    own = TrainedTokenizer(text + "more")
    assert own.text == (text + "more")[:MOST]
    assert own.sizes[0].tokens == len(own.text.encode())
    assert own.sizes[-1].tokens < own.sizes[0].tokens


@pytest.mark.parametrize("text", ["", " \n", "a\ud800"])
def test_what_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(PromptError):
        TrainedTokenizer(text)
