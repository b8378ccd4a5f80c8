"""What was recorded of a session's logits, entry by entry, and the answers to what is asked of them: no model, no MLX.

The answers are computed by the code that a live session has: `explain`, `what_if` and `find`. Standard library alone
until something is asked: a replay without rows does without numpy.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from engine import protocol
from engine.errors import Cancelled, StepError
from engine.protocol import Command, Distribution, LogitsRow, ModelFacts, ModelVocabulary, Record
from engine.settings import LoadSettings, Settings
from engine.token_texts import decode
from engine.tree import ROOT, Node, TokenPaths, root

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.logits.node_sampler import NodeSampler
    from engine.logits.questions import Vocabulary
    from engine.sampling.ranking import Row


class RecordedTexts:
    """The tokens of a recorded model.

    Args:
        record: Their bytes.
        eos_ids: Ids that end the sequence.

    Raises:
        StepError: The record doesn't hold together.
    """

    def __init__(self, record: ModelVocabulary, eos_ids: tuple[int, ...]) -> None:
        from engine.logits.packing import unpack_vocabulary

        self.vocabulary, self.eos_ids, self.spared = record.tokens, eos_ids, record.spared
        self._raws, self._special = unpack_vocabulary(record), frozenset(record.special)
        self.known: dict[int, tuple[str, bytes, bool]] = {}

    def raw(self, token: int) -> bytes:
        """A token's own bytes; empty for an id without a token."""
        return self._raws[token] if 0 <= token < self.vocabulary else b""

    def text(self, token: int, pending: bytes = b"") -> tuple[str, bytes]:
        """The characters that a token finishes after some pending bytes, and the bytes still pending."""
        return decode(pending, self.raw(token))

    def is_special(self, token: int) -> bool:
        """True if it is a mark of the format rather than text."""
        return token in self._special


class RecordedSource:
    """One tree of a recorded session with its rows, and the model's facts: a `LogitsSource`.

    Args:
        facts: About the model.
        vocabulary: Its tokens.
        settings: In force.
    """

    def __init__(self, facts: ModelFacts, vocabulary: ModelVocabulary | None, settings: Settings) -> None:
        self.facts, self.vocabulary, self.settings = facts, vocabulary, settings
        self.node = ROOT
        self.nodes: dict[int, Node] = {ROOT: root()}
        self.tree = TokenPaths(self.nodes)
        self.rows: dict[int, LogitsRow] = {}
        self.settings_at: dict[int, Settings] = {}
        self.pending: dict[int, bytes] = {}

    @cached_property
    def tokens(self) -> RecordedTexts:
        """The model's tokens."""
        if self.vocabulary is None:
            raise StepError("The model's vocabulary was not recorded.", "Go on live with the model.")
        return RecordedTexts(self.vocabulary, self.facts.eos_ids)

    @cached_property
    def node_reader(self) -> NodeSampler:
        """Samples after the nodes."""
        from engine.logits.node_sampler import NodeSampler

        return NodeSampler(self.tokens, self.tree, self.pending)

    def row_at(self, node: int) -> Row | None:
        """The logits after a node; None where they weren't recorded.

        Raises:
            StepError: They are damaged.
        """
        from engine.logits.packing import unpack_row

        return unpack_row(self.rows[node]) if node in self.rows else None

    @cached_property
    def search(self) -> Vocabulary:
        """Searches the model's tokens."""
        from engine.logits.questions import Vocabulary

        return Vocabulary(self.tokens)

    # ---- entries ----------------------------------------------------------------------------

    def take(self, value: Record | Settings | LoadSettings) -> None:
        """Take in what an entry says of this tree.

        Raises:
            LookupError: It names a node that no entry before it has.
        """
        match value:
            case ModelVocabulary():
                self.vocabulary = value
            case LogitsRow(node=node):
                self.rows[node] = value
            case Settings():
                self._configure(value)
            case protocol.PromptOpened():
                self._open(value)
            case protocol.Step():
                self._step(value)
                self._arrive(value.next)
            case protocol.Moved():
                self._arrive(value.next)
            case protocol.Prefilled() | protocol.Resampled() | protocol.Restored():
                self._arrive(value.next)

    def _open(self, prompt: protocol.PromptOpened) -> None:
        parent = prompt.parent
        for token in prompt.tokens:
            self._add(token.node, parent, token.id, "prompt")
            at = self.nodes[token.node]
            at.origin, at.start = "prompt", at.depth
            self._leave(token.node, decode(self.pending.get(parent, b""), token.raw)[1])
            parent = token.node

    def _step(self, step: protocol.Step) -> None:
        self._add(step.node, step.parent, step.id, step.origin)
        at = self.nodes[step.node]
        at.start = self.nodes[step.parent].start
        if at.origin == "prompt":  # it belongs to the completion from here on
            at.origin = step.origin
        at.has_step, at.drawn_reroll = True, step.choice.reroll
        self._leave(step.node, step.pending)

    def _add(self, node: int, parent: int, token: int, origin: protocol.Origin) -> None:
        above = self.nodes[parent]
        if node not in self.nodes:
            self.nodes[node] = Node(token, parent, above.depth + 1, origin, above.start)

    def _leave(self, node: int, pending: bytes) -> None:
        if pending:
            self.pending[node] = pending

    def _arrive(self, following: Distribution) -> None:
        """Make the node of a distribution the current one."""
        self.node = following.node
        self.nodes[self.node].reroll = following.reroll
        self.settings_at[self.node] = self.settings

    def _configure(self, settings: Settings) -> None:
        """Other settings are in force; the current node's distribution was made anew with them."""
        self.settings = settings
        if self.node in self.settings_at:
            self.settings_at[self.node] = settings


class RecordedLogits:
    """Takes in the entries of a recording, and answers from the rows among them."""

    def __init__(self) -> None:
        self._source: RecordedSource | None = None
        self._settings = Settings()
        self._rows: set[int] = set()
        """Nodes of the present tree with a row."""
        self._complete = False
        """True if the vocabulary was recorded, too."""
        self._waiting: list[Record | Settings | LoadSettings] = []
        """What was taken in since something was asked last: where no row comes, no tree is built of it."""

    def take(self, value: Record | Settings | LoadSettings) -> None:
        """Take in what an entry says, in the order of the recording."""
        match value:
            case ModelFacts():
                self._rows, self._complete = set(), False
            case ModelVocabulary():
                self._complete = True
            case protocol.PromptOpened(new_tree=True):
                self._rows = set()
            case LogitsRow(node=node):
                self._rows.add(node)
        self._waiting.append(value)

    def answers(self, command: Command) -> bool:
        """True if there are rows to answer a command from, though perhaps not for each of its steps."""
        match command:
            case protocol.Explain() | protocol.FindTokens() | protocol.ReadGrammar():
                return self._complete and command.node in self._rows
            case protocol.WhatIf():
                return self._complete and bool(self._rows)
        return False

    def question(self, command: Command) -> Callable[[Callable[[], bool]], Record]:
        """What answers a command for which `answers` is True, given a function that is True once nobody waits for it.

        It may be called in another thread; those of several questions are called one after another, in their order. It
        raises as a live session does, and any exception where what was recorded doesn't hold together.
        """
        waiting, self._waiting = self._waiting, []

        def answer(stopped: Callable[[], bool]) -> Record:
            for value in waiting:
                self._build(value)
            if stopped():
                raise Cancelled
            assert self._source is not None
            return _answer(self._source, command, stopped)

        return answer

    def _build(self, value: Record | Settings | LoadSettings) -> None:
        source = self._source
        match value:
            case Settings():
                self._settings = value
            case ModelFacts():
                self._source = RecordedSource(value, None, self._settings)
            case protocol.PromptOpened(new_tree=True) if source is not None:
                self._source = RecordedSource(source.facts, source.vocabulary, self._settings)
        if self._source is not None:
            self._source.take(value)


def _answer(source: RecordedSource, command: Command, stopped: Callable[[], bool]) -> Record:
    from engine.logits.questions import expected, explain, find, what_if

    match command:
        case protocol.Explain():
            return explain(source, command.node, command.settings, command.reroll, command.also)
        case protocol.WhatIf():
            return what_if(source, command.settings, command.tip, stopped)
        case protocol.ReadGrammar():
            return expected(source, command.node, command.grammar)
        case protocol.FindTokens():
            return find(source, source.search, command, stopped)
    raise TypeError(f"{command.kind} is not answered from rows")
