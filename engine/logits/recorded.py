"""Rows of logits recorded from a session, and answers computed from them: no model, no MLX.

The answers come from the same functions as in a live session: `explain`, `what_if`, `expected` and `find`. Only the
standard library and msgspec are imported before the first question: a replay without rows needs no numpy.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from engine import protocol
from engine.errors import StepError
from engine.protocol import Command, LogitsRow, ModelFacts, ModelVocabulary, Record
from engine.settings import LoadSettings, Settings
from engine.task import poll
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
        record: The tokens' bytes.
        eos_ids: Ids that end the sequence.

    Raises:
        StepError: The record is damaged.
    """

    def __init__(self, record: ModelVocabulary, eos_ids: tuple[int, ...]) -> None:
        from engine.logits.node_sampler import unpack_vocabulary

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
    """One tree of a recorded session with its rows, and facts about the model: a `LogitsSource`.

    Args:
        facts: Facts about the model.
        vocabulary: Its tokens.
        settings: Current settings.
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
        if self.vocabulary is None:
            raise StepError("The model's vocabulary was not recorded.", "Go on live with the model.")
        return RecordedTexts(self.vocabulary, self.facts.eos_ids)

    @cached_property
    def node_reader(self) -> NodeSampler:
        from engine.logits.node_sampler import NodeSampler

        return NodeSampler(self.tokens, self.tree, self.pending)

    @cached_property
    def search(self) -> Vocabulary:
        from engine.logits.questions import Vocabulary

        return Vocabulary(self.tokens)

    def row_at(self, node: int) -> Row | None:
        """The logits after a node; None if they weren't recorded.

        Raises:
            StepError: The recorded logits are damaged.
        """
        from engine.logits.node_sampler import unpack_row

        return unpack_row(self.rows[node]) if node in self.rows else None

    def take(self, value: Record | Settings | LoadSettings) -> None:
        """Receive an entry of this tree.

        Raises:
            LookupError: The entry names a node that no earlier entry has.
        """
        match value:
            case ModelVocabulary():
                self.vocabulary = value
            case LogitsRow(node=node):
                self.rows[node] = value
            case Settings():
                self.settings = value
                # the token after the current node was sampled again with them
                if self.node in self.settings_at:
                    self.settings_at[self.node] = value
            case protocol.PromptOpened(parent=parent):
                for token in value.tokens:
                    pending = decode(self.pending.get(parent, b""), token.raw)[1]
                    at = self._add(token.node, parent, token.id, "prompt", pending)
                    at.origin, at.start = "prompt", at.depth
                    parent = token.node
            case protocol.Step():
                at = self._add(value.node, value.parent, value.id, value.origin, value.pending)
                at.start = self.nodes[value.parent].start
                if at.origin == "prompt":  # it belongs to the completion from here on
                    at.origin = value.origin
                at.has_step, at.drawn_reroll = True, value.choice.reroll
        match value:
            case (
                protocol.Step(next=following)
                | protocol.Moved(next=following)
                | protocol.Prefilled(next=following)
                | protocol.Resampled(next=following)
                | protocol.Restored(next=following)
            ):
                self.node = following.node
                self.nodes[self.node].reroll = following.reroll
                self.settings_at[self.node] = self.settings

    def _add(self, node: int, parent: int, token: int, origin: protocol.Origin, pending: bytes) -> Node:
        """The node, which is added if it doesn't exist; records the bytes that it leaves unfinished."""
        above = self.nodes[parent]
        if pending:
            self.pending[node] = pending
        return self.nodes.setdefault(node, Node(token, parent, above.depth + 1, origin, above.start))


class RecordedLogits:
    """Receives the entries of a recording, and answers from the rows among them."""

    def __init__(self) -> None:
        self._source: RecordedSource | None = None
        self._settings = Settings()
        self._rows: set[int] = set()
        """Nodes of the current tree with a row."""
        self._complete = False
        """True if the vocabulary was recorded, too."""
        self._waiting: list[Record | Settings | LoadSettings] = []
        """Entries since the last question: if there are no rows, no tree is built from them."""

    def take(self, value: Record | Settings | LoadSettings) -> None:
        """Receive an entry, in the order of the recording."""
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
        """Return a function that answers a command for which `answers` is True; its argument returns True once the
        command is cancelled.

        It may be called in another thread; the functions of several questions are called one after another, in their
        order. It raises the errors of a live session, or any exception if the recording is inconsistent.
        """
        waiting, self._waiting = self._waiting, []

        def answer(stopped: Callable[[], bool]) -> Record:
            from engine.logits.questions import expected, explain, find, what_if

            for value in waiting:
                self._build(value)
            poll(stopped)
            source = self._source
            assert source is not None
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
