"""The commands that inspect: a distribution, the vocabulary, and typed text before it is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine import protocol
from engine.desk import Call, Desk, Handler
from engine.errors import Cancelled
from engine.inspection.typed_text import check_room, cut, pieces, preview, tokenize
from engine.logits.explain import explain, what_if
from engine.logits.grammar import expected
from engine.logits.source import kept_row
from engine.logits.vocabulary import Vocabulary, find
from engine.model.load import load_tokenizer
from engine.protocol import Command, Tokenized, conversation


class InspectionCommands:
    """Handlers that compute no forward, and the one that takes typed text into the path.

    Args:
        desk: The session, and where records are emitted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._vocabulary: Vocabulary | None = None
        """The model's, made at the first search."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.Explain: self._explain,
            protocol.WhatIf: self._what_if,
            protocol.FindTokens: self._find,
            protocol.ReadGrammar: self._read_grammar,
            protocol.ReadLogits: self._read_logits,
            protocol.Tokenize: self._tokenize,
            protocol.PreviewPrompt: self._preview,
            protocol.CutText: self._cut_text,
            protocol.Insert: self._insert,
        }

    def forget(self, model: bool) -> None:
        """Drop the vocabulary with its model."""
        if model:
            self._vocabulary = None

    def _explain(self, command: protocol.Explain, call: Call) -> None:
        self._desk.emit(explain(self._desk.session, command.node, command.settings))

    def _what_if(self, command: protocol.WhatIf, call: Call) -> None:
        self._desk.emit(what_if(self._desk.session, command.settings, command.tip, call.stopped))

    def _find(self, command: protocol.FindTokens, call: Call) -> None:
        session = self._desk.session
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(session.tokens)
        found = find(session, self._vocabulary, command.node, command.query, command.limit, call.stopped)
        self._desk.emit(replace(found, note=session.cut_note(command.node)))

    def _read_grammar(self, command: protocol.ReadGrammar, call: Call) -> None:
        self._desk.emit(expected(self._desk.session, command.node, command.grammar))

    def _read_logits(self, command: protocol.ReadLogits, call: Call) -> None:
        session = self._desk.session
        for node in command.nodes or session.kept_logits.nodes:
            if call.stopped():
                raise Cancelled
            self._desk.emit_row(node, kept_row(session, node))

    def _tokenize(self, command: protocol.Tokenize, call: Call) -> None:
        self._desk.emit(tokenize(self._desk.session.tokens, command.text))

    def _preview(self, command: protocol.PreviewPrompt, call: Call) -> None:
        self._desk.emit(preview(self._desk.session, command))

    def _cut_text(self, command: protocol.CutText, call: Call) -> None:
        tokens = load_tokenizer(command.settings, self._desk.emit, call.cancel)
        messages = command.messages or conversation(command.text, command.system)
        text = tokens.chat(messages, command.options) if command.chat else command.text
        self._desk.emit(Tokenized(text, pieces(tokens, tokens.encode(text, bare=command.chat))))

    def _insert(self, command: protocol.Insert, call: Call) -> None:
        session = self._desk.session
        ids = cut(session.tokens, command.text)
        check_room(session, command.node, ids)
        self._desk.take_tokens(command.node, ids, "inserted", call, command.leave_grammar)
