"""The commands that look at a text or at a distribution."""

from __future__ import annotations

from typing import ClassVar

from engine.commands.command import Command
from engine.frozen import frozen
from engine.grammar_settings import Grammar
from engine.records import NO_OPTIONS, ChatOptions, Message
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
    chat: bool
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
class Explain(Command):
    """Explain the sampler stage by stage after a node, from kept logits; answered by `Explained`.

    An aside: it is answered between the steps of a run.
    """

    aside: ClassVar[bool] = True
    node: int
    """The node before the token in question: its distribution is explained."""
    settings: Settings | None = None
    """Other settings to try with the same draw; None for those that were used."""


@frozen
class ReadLogits(Command):
    """Hand out kept rows of logits, for a recording: a `LogitsRow` for each node, the first after a `ModelVocabulary`.

    A row that was dropped, or never kept as those inside a prompt, has to be computed again with `Recall` before.
    """

    nodes: tuple[int, ...] = ()
    """In the order in which they are answered; none for all that are kept."""


@frozen
class WhatIf(Command):
    """Which steps up to a node would have picked other tokens under other settings; answered by `WhatIfAnswered`.

    An aside: it is answered between the steps of a run.
    """

    aside: ClassVar[bool] = True
    settings: Settings
    tip: int
