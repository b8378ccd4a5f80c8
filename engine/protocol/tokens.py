"""Commands and records of texts and tokens: cutting, finding, previews, rows of logits, and what a grammar allows."""

from __future__ import annotations

from typing import ClassVar

from engine.frozen import frozen
from engine.grammar_settings import Grammar
from engine.protocol.base import Command, Record
from engine.protocol.segments import NO_SEGMENTS, PromptSegments
from engine.protocol.steps import NO_OPTIONS, Candidate, ChatOptions, GrammarReading, Message
from engine.settings import LoadSettings, Settings


@frozen
class Tokenize(Command):
    """Cut a text into tokens without taking them; answered by `Tokenized`. An aside."""

    aside: ClassVar[bool] = True
    text: str


@frozen
class PreviewPrompt(Command):
    """Cut a prompt as a `Prefill` of these fields would, and change nothing; answered by `PromptPreview`. An aside."""

    aside: ClassVar[bool] = True
    text: str
    chat: bool | None
    system: str | None = None
    messages: tuple[Message, ...] = ()
    options: ChatOptions = NO_OPTIONS
    most: int = 400
    """Tokens that are handed out at most: of a longer prompt the first and the last ones."""


@frozen
class CutText(Command):
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


@frozen
class FindTokens(Command):
    """Search the vocabulary at a node, from kept logits; answered by `TokensFound`. An aside."""

    aside: ClassVar[bool] = True
    node: int
    query: str
    """Part of a token's text; `#123` for an id; `0x e2 9c` for bytes."""
    limit: int = 100
    """Of matches, the most probable first."""
    settings: Settings | None = None
    """Of the sampler, for the probabilities after it; None for those that the session was at the node with last."""
    reroll: int = 0
    """How often the draw was repeated: some stages of the sampler draw, too."""


@frozen
class ReadGrammar(Command):
    """What a grammar expects after a node, or why it can't be used; answered by `GrammarExpected`. An aside.

    A grammar that was not seen before is tried in a process of its own, which takes 0.3 to 2 s.
    """

    aside: ClassVar[bool] = True
    node: int
    """The root (0) before there is a prompt."""
    grammar: Grammar | None = None
    """To try; None for the one in force."""


@frozen
class ReadLogits(Command):
    """Hand out kept rows of logits, for a recording: a `LogitsRow` for each node, the first after a `ModelVocabulary`.

    A row that was dropped, or never kept as those inside a prompt, has to be computed again with `Recall` before.
    """

    nodes: tuple[int, ...] = ()
    """In the order in which they are answered; none for all that are kept."""


@frozen
class TokensFound(Record):
    """Tokens of the vocabulary that a search found, with what model and sampler make of them after one node."""

    lasting: ClassVar[bool] = False
    node: int
    query: str
    matches: tuple[Candidate, ...]
    """The most probable first, at most the requested number."""
    total: int
    """How many match in all."""
    mass: float
    """Probability of all that match together, by the model."""
    note: str = ""
    """That these numbers are of another cut into chunks than the path's, a sentence; empty where they aren't."""


@frozen
class Piece:
    """One token of a text as the tokenizer cuts it."""

    id: int
    text: str
    """The characters that it finishes; empty while they are unfinished."""
    raw: bytes
    special: bool


@frozen
class Tokenized(Record):
    """A text was cut into tokens; nothing was taken."""

    lasting: ClassVar[bool] = False
    text: str
    pieces: tuple[Piece, ...]
    segments: PromptSegments = NO_SEGMENTS
    """Whose its tokens are, where a chat template was filled."""


@frozen
class PromptPreview(Record):
    """A prompt as it would be prefilled, the chat template filled and cut into tokens; nothing was taken."""

    lasting: ClassVar[bool] = False
    tokens: int
    """Of the prompt."""
    special: int
    """Special tokens among them."""
    shared: int
    """First tokens that are those of the current path."""
    first: tuple[Piece, ...]
    """The first tokens; all of them, where `last` is empty."""
    last: tuple[Piece, ...]
    """The last tokens of a prompt that is too long to be handed out as a whole."""
    notes: tuple[str, ...]
    """Requests that can't be met."""


@frozen
class ExpectedBeginning:
    """Tokens that a grammar allows and that begin alike."""

    words: str
    """What they begin with: `a digit`, `“-”`, `the end`."""
    tokens: int
    mass: float | None
    """Their probability together, by the model; None where the logits were dropped."""


@frozen
class GrammarExpected(Record):
    """A grammar that can be used, and what it expects after a node."""

    lasting: ClassVar[bool] = False
    node: int
    reading: GrammarReading | None
    """None before the grammar begins, and where the logits were dropped."""
    expected: tuple[ExpectedBeginning, ...]
    """Of the largest mass first; empty where all is allowed."""
