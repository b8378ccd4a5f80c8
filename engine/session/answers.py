"""Answers from the session's cached rows of logits, without a forward pass: explanations, what-if, vocabulary
search."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from engine import protocol
from engine.errors import Cancelled
from engine.logits import questions
from engine.logits.questions import Vocabulary, kept_row
from engine.protocol import Record
from engine.session.context import Context
from engine.task import Task


class _Searched:
    """The model's vocabulary, decoded at the first search."""

    vocabulary: Vocabulary | None = None


def explain(context: Context, command: protocol.Explain, task: Task) -> Iterator[Record]:
    """Explain the sampler's choice after a node."""
    yield questions.explain(context.session, command.node, command.settings, command.reroll, command.also)


def what_if(context: Context, command: protocol.WhatIf, task: Task) -> Iterator[Record]:
    """Find the tokens that the same draws would have picked under other settings."""
    yield questions.what_if(context.session, command.settings, command.tip, task.cancel.is_set)


def find_tokens(context: Context, command: protocol.FindTokens, task: Task) -> Iterator[Record]:
    """Search the vocabulary after a node."""
    session, searched = context.session, context.of_model(_Searched)
    if searched.vocabulary is None:
        searched.vocabulary = Vocabulary(session.tokens)
    found = questions.find(session, searched.vocabulary, command, task.cancel.is_set)
    yield replace(found, note=session.cut_note(command.node))


def read_grammar(context: Context, command: protocol.ReadGrammar, task: Task) -> Iterator[Record]:
    """Read the tokens that a grammar allows after a node."""
    yield questions.expected(context.session, command.node, command.grammar)


def read_logits(context: Context, command: protocol.ReadLogits, task: Task) -> Iterator[Record]:
    """Read the cached rows of logits, all or those of some nodes."""
    session = context.session
    for node in command.nodes or session.kept_logits.nodes:
        if task.cancel.is_set():
            raise Cancelled
        yield from context.rows.row(session, node, kept_row(session, node))
