"""Texts and tokens: cutting, finding, previews, rows of logits, what a grammar allows; merges of a tokenizer."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import ClassVar, Literal

from msgspec import Struct

from engine.grammar_settings import Grammar
from engine.protocol.base import Command, Count, Finite, Record
from engine.protocol.steps import (
    NO_OPTIONS,
    NO_SEGMENTS,
    Candidate,
    ChatOptions,
    GrammarReading,
    Message,
    PromptSegments,
)
from engine.settings import LoadSettings, Settings

# ---- texts and tokens ------------------------------------------------------------------------------


class Tokenize(Command, frozen=True):
    """Cut a text into tokens without taking them; answered by `Tokenized`. An aside."""

    aside: ClassVar[bool] = True
    text: str


class PreviewPrompt(Command, frozen=True):
    """Cut a prompt as a `Prefill` of these fields would, and change nothing; answered by `PromptPreview`. An aside."""

    aside: ClassVar[bool] = True
    text: str
    chat: bool | None
    system: str | None = None
    messages: tuple[Message, ...] = ()
    options: ChatOptions = NO_OPTIONS
    most: Count = 400
    """Tokens that are handed out at most: of a longer prompt the first and the last ones."""


class CutText(Command, frozen=True):
    """Cut a text by a model's tokenizer alone: its weights are not read, and a loaded model stays as it is.

    Answered by `Loading` records and one `Tokenized`, whose text has the chat template in it.
    """

    needs_model: ClassVar[bool] = False
    settings: LoadSettings
    text: str
    chat: bool = False
    """Through the model's chat template, as a user's message."""
    system: str | None = None
    messages: tuple[Message, ...] = ()
    """A whole conversation, in place of `text` and `system`."""
    options: ChatOptions = NO_OPTIONS
    """What else the chat template gets."""


class FindTokens(Command, frozen=True):
    """Search the vocabulary at a node, from kept logits; answered by `TokensFound`. An aside."""

    aside: ClassVar[bool] = True
    node: Count
    query: str
    """Part of a token's text; `#123` for an id; `0x e2 9c` for bytes."""
    limit: Count = 100
    """Of matches, the most probable first."""
    settings: Settings | None = None
    """Of the sampler, for the probabilities after it; None for those that the session was at the node with last."""
    reroll: Count = 0
    """How often the draw was repeated: some stages of the sampler draw, too."""


class ReadGrammar(Command, frozen=True):
    """What a grammar expects after a node, or why it can't be used; answered by `GrammarExpected`. An aside.

    A grammar that was not seen before is tried in a process of its own, which takes 0.3 to 2 s.
    """

    aside: ClassVar[bool] = True
    node: Count
    """The root (0) before there is a prompt."""
    grammar: Grammar | None = None
    """To try; None for the one in force."""


class ReadLogits(Command, frozen=True):
    """Hand out kept rows of logits, for a recording: a `LogitsRow` for each node, the first after a `ModelVocabulary`.

    A row that was dropped, or never kept as those inside a prompt, has to be computed again with `Recall` before.
    """

    nodes: tuple[Count, ...] = ()
    """In the order in which they are answered; none for all that are kept."""


class TokensFound(Record, frozen=True):
    """Tokens of the vocabulary that a search found, with what model and sampler make of them after one node."""

    lasting: ClassVar[bool] = False
    node: Count
    query: str
    matches: tuple[Candidate, ...]
    """The most probable first, at most the requested number."""
    total: Count
    """How many match in all."""
    mass: Finite
    """Probability of all that match together, by the model."""
    note: str = ""
    """That these numbers are of another cut into chunks than the path's, a sentence; empty where they aren't."""


class Piece(Struct, frozen=True):
    """One token of a text as the tokenizer cuts it."""

    id: Count
    text: str
    """The characters that it finishes; empty while they are unfinished."""
    raw: bytes
    special: bool


class Tokenized(Record, frozen=True):
    """A text was cut into tokens; nothing was taken."""

    lasting: ClassVar[bool] = False
    text: str
    pieces: tuple[Piece, ...]
    segments: PromptSegments = NO_SEGMENTS
    """Whose its tokens are, where a chat template was filled."""


class PromptPreview(Record, frozen=True):
    """A prompt as it would be prefilled, the chat template filled and cut into tokens; nothing was taken."""

    lasting: ClassVar[bool] = False
    tokens: Count
    """Of the prompt."""
    special: Count
    """Special tokens among them."""
    shared: Count
    """First tokens that are those of the current path."""
    first: tuple[Piece, ...]
    """The first tokens; all of them, where `last` is empty."""
    last: tuple[Piece, ...]
    """The last tokens of a prompt that is too long to be handed out as a whole."""
    notes: tuple[str, ...]
    """Requests that can't be met."""


class ExpectedBeginning(Struct, frozen=True):
    """Tokens that a grammar allows and that begin alike."""

    words: str
    """What they begin with: `a digit`, `“-”`, `the end`."""
    tokens: Count
    mass: Finite | None
    """Their probability together, by the model; None where the logits were dropped."""


class GrammarExpected(Record, frozen=True):
    """A grammar that can be used, and what it expects after a node."""

    lasting: ClassVar[bool] = False
    node: Count
    reading: GrammarReading | None
    """None before the grammar begins, and where the logits were dropped."""
    expected: tuple[ExpectedBeginning, ...]
    """Of the largest mass first; empty where all is allowed."""


# ---- the merges of a tokenizer ---------------------------------------------------------------------

TokenizerKind = Literal["bpe", "unigram", "wordpiece"]


class TakeApart(Command, frozen=True):
    """Take apart how a tokenizer cuts a text; answered by `TakenApart`. No weights are read."""

    needs_model: ClassVar[bool] = False
    text: str
    settings: LoadSettings | None = None
    """The model whose tokenizer it is, or as its name a tokenizer.json; None for the loaded one's."""
    begin: Count = 0
    """Words that end up to this character are left out of the answer."""
    end: Count | None = None
    """And those that begin at this one or later; None for none."""
    node: Count | None = None
    """The token that is looked at, which the answer is about; None for none."""


class Segmentation(Struct, frozen=True):
    """One way in which a unigram model could cut a word."""

    score: Finite | None
    """Sum of the pieces' log probabilities, natural logarithm; None for a WordPiece, which has none."""
    lengths: tuple[Count, ...]
    """Symbols of each piece."""


class WordApart(Struct, frozen=True):
    """A word, as the tokenizer sees it, and how its tokens came about."""

    begin: Count
    """First character of the text."""
    end: Count
    """The character after the last one."""
    symbols: tuple[bytes, ...]
    """What a merge begins with: the bytes of each character, or of each byte of one."""
    borders: tuple[Count, ...]
    """Of each merge, in its order, the symbol before which a border fell."""
    ranks: tuple[Count, ...]
    """Of each merge the place in the tokenizer's list, from 0: the lowest that is there goes first."""
    ways: tuple[Segmentation, ...]
    """Of a unigram model the best ones, the best first; of a WordPiece the only one; of a BPE none."""
    ids: tuple[Count, ...]
    """Its tokens, as the tokenizer itself cuts it."""
    ends: tuple[Count, ...]
    """The character of the text behind each of these."""
    added: bool = False
    """True if it is a token beside the vocabulary, cut out of the text before all others."""

    def pieces(self, merges: int | None = None) -> tuple[bytes, ...]:
        """The pieces of the word.

        Args:
            merges: How many were made; None for all.
        """
        return self.joined(self._lengths(merges))

    def joined(self, lengths: tuple[int, ...]) -> tuple[bytes, ...]:
        """The symbols joined to pieces of so many symbols each."""
        ends = accumulate(lengths, initial=0)
        return tuple(b"".join(self.symbols[begin:end]) for begin, end in pairwise(ends))

    def _lengths(self, merges: int | None) -> tuple[int, ...]:
        if self.ways:
            return self.ways[0].lengths
        fallen = {*self.borders[:merges]}
        left = (place for place in range(len(self.symbols) + 1) if place not in fallen)
        return tuple(end - begin for begin, end in pairwise(left))


class TakenApart(Record, frozen=True):
    """How a tokenizer cuts a text; each word's tokens were checked against those of the tokenizer itself."""

    node: Count | None
    """The token that it is about; None where it is about none."""
    name: str
    """Of the model or the file; empty for the loaded model's."""
    algorithm: TokenizerKind
    vocabulary: Count
    merges: Count
    """In the tokenizer's list; 0 where it has none."""
    characters: Count
    """Of the text."""
    tokens: Count
    """Of the text."""
    words: tuple[WordApart, ...]
    """Those that were asked for."""
    unknown: Count | None = None
    """The token for what no piece stands for; None where there is none."""
