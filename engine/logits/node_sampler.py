"""The logits after one node, what the sampler makes of them, and the distribution that a record has of both."""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine.frozen import frozen
from engine.grammar.states import GrammarState, GrammarStates
from engine.logits.readings import RowReader
from engine.logits.token_texts import TokenTexts
from engine.protocol import Distribution
from engine.sampling.pipeline import OnStage, Sampled, sample, uniform
from engine.sampling.ranking import Row, checked_logprobs
from engine.sampling.stages import Context
from engine.settings import Settings
from engine.tree import TokenPaths


@frozen
class NodeLogits:
    """The logits after a node and the sampler's result: enough for the next step, not yet for a record."""

    node: int
    row: Row
    """The model's logits, float32, shape (vocabulary,)."""
    logprobs: Row
    """Their log-softmax, float32, shape (vocabulary,)."""
    sampled: Sampled
    sample_ms: float
    reroll: int = 0
    """The re-roll count that the draw was made with."""
    grammar: GrammarState | None = None
    """The grammar's state; None without one, and before it begins."""


@frozen
class Position:
    """A node's logits, and the distribution that a record has of them."""

    node_logits: NodeLogits
    next: Distribution


class NodeSampler:
    """Samples after the nodes of one tree.

    Args:
        tokens: The bytes and texts of the model's tokens.
        tree: The tree.
        pending: Bytes of unfinished characters by node.
    """

    def __init__(self, tokens: TokenTexts, tree: TokenPaths, pending: Mapping[int, bytes]) -> None:
        self._tokens = tokens
        self._tree = tree
        self._pending = pending
        self.row_reader = RowReader(tokens)
        self.grammars = GrammarStates(tokens, tree)

    def sample(
        self, node: int, row: Row, settings: Settings, watch: OnStage | None = None, reroll: int | None = None
    ) -> NodeLogits:
        """Sample what follows a node.

        Args:
            node: The node that the row follows.
            row: The model's logits, float32, shape (vocabulary,).
            settings: The sampler's.
            watch: Receives the run after each stage.
            reroll: The re-roll count of the draw; None for the node's current one.

        Raises:
            StepError: The row holds no numbers, or the grammar became too complex here.
            SettingsError: The grammar can't be used.
        """
        at, logprobs = self._tree[node], checked_logprobs(row)
        begun = time.perf_counter()
        grammar = self.grammars.at(settings.grammar, node)
        count = at.reroll if reroll is None else reroll
        draw = uniform(settings.seed, at.depth, count)
        context = self._context(node, settings, count, grammar)
        sampled = sample(row, logprobs, settings, draw, context, watch)
        return NodeLogits(node, row, logprobs, sampled, (time.perf_counter() - begun) * 1000, count, grammar)

    def context(self, node: int, settings: Settings, reroll: int) -> Context:
        """What the sampler's stages look at in addition to the row after a node."""
        return self._context(node, settings, reroll, self.grammars.at(settings.grammar, node))

    def _context(self, node: int, settings: Settings, reroll: int, grammar: GrammarState | None) -> Context:
        at = self._tree[node]
        short = at.depth - at.start < settings.min_tokens
        complete = grammar is not None and grammar.complete  # then nothing else may follow
        return Context(
            path=tuple(self._tree.tail(node, _reach(settings))),
            barred=self._tokens.eos_ids if short and not complete else (),
            spared=self._tokens.spared if settings.xtc_probability else (),
            chance=uniform(settings.seed, at.depth, reroll, "xtc") if settings.xtc_probability else 1.0,
            allowed=grammar.allowed if grammar is not None else None,
        )

    def position(self, logits: NodeLogits, candidates: int) -> Position:
        """Read candidates, entropies and ranks off the logits of a node."""
        at = self._tree[logits.node]
        pending = self._pending.get(logits.node, b"")
        distribution = self.row_reader.distribution(
            logits.node,
            at.depth,
            logits.row,
            logits.logprobs,
            logits.sampled,
            candidates,
            pending,
            logits.reroll,
            logits.grammar.reading(logits.logprobs) if logits.grammar is not None else None,
        )
        return Position(logits, distribution)


def _reach(settings: Settings) -> int:
    """How many tokens the active penalties look back."""
    sizes = [
        (settings.repetition_penalty, settings.repetition_context_size),
        (settings.presence_penalty, settings.presence_context_size),
        (settings.frequency_penalty, settings.frequency_context_size),
    ]
    return max((size for penalty, size in sizes if penalty), default=0)
