"""What a grammar expects after a node: from the path, and from kept logits where there are some."""

from __future__ import annotations

from engine.errors import StepError
from engine.grammar.expected import Beginnings
from engine.grammar_settings import Grammar, check_grammar
from engine.logits.source import LogitsSource, check_node
from engine.protocol import GrammarExpected
from engine.sampling.ranking import checked_logprobs
from engine.tree import ROOT

_made: list[Beginnings] = []
"""Those of the vocabulary asked about last."""


def expected(source: LogitsSource, node: int, grammar: Grammar | None = None) -> GrammarExpected:
    """What a grammar expects after a node.

    Args:
        source: Provides tree and kept logits; not changed.
        node: The node; with the root a grammar is only tried.
        grammar: To try; None for the one in force.

    Raises:
        StepError: There is no such node, no grammar, or it became too complex there.
        SettingsError: The grammar can't be used.
    """
    check_node(source, node)
    if (grammar := grammar or source.settings.grammar) is None:
        raise StepError("No grammar is set.", "Set one first.")
    check_grammar(grammar)
    grammars = source.node_reader.grammars
    if node == ROOT:
        grammars.compiled(grammar)
        return GrammarExpected(node, None, ())
    row, state = source.row_at(node), grammars.at(grammar, node)
    logprobs = None if row is None else checked_logprobs(row)
    if state is None or state.allowed is None:
        reading = state.reading(logprobs) if state is not None and logprobs is not None else None
        return GrammarExpected(node, reading, ())
    if not _made or _made[0].tokens is not source.tokens:
        _made[:] = [Beginnings(source.tokens)]
    reading = None if logprobs is None else state.reading(logprobs)
    return GrammarExpected(node, reading, _made[0].of(state.allowed, logprobs))
