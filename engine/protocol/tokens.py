"""Commands and records of texts and tokens: cutting, finding, previews, rows of logits, and what a grammar allows."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from engine.grammar_settings import Grammar
from engine.protocol.base import Command, Record
from engine.protocol.numbers import Count, Finite
from engine.protocol.segments import NO_SEGMENTS, PromptSegments
from engine.protocol.steps import NO_OPTIONS, Candidate, ChatOptions, GrammarReading, Message
from engine.settings import LoadSettings, Settings


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
