"""The logits after one node, what the sampler makes of them, and the records of both."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import mlx.core as mx

from engine.model.tokens import Tokens
from engine.records import Distribution, KVReading, Memory, Origin, Step, StepTimes
from engine.sampling.pipeline import OnStage, Sampled, sample, uniform
from engine.sampling.ranking import Row, checked_logprobs, rank_of
from engine.sampling.stages import Context
from engine.session.readings import RowReader
from engine.session.rss import resident
from engine.settings import Settings
from engine.tree import TokenTree

LN2 = math.log(2)


def memory() -> Memory:
    """Memory in use now, as the framework and the system report it; takes about 2 us."""
    return Memory(mx.get_active_memory(), mx.get_peak_memory(), mx.get_cache_memory(), resident())


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Position:
    """A node's logits, and the distribution that a record has of them."""

    node_logits: NodeLogits
    next: Distribution


class NodeReader:
    """Samples after the nodes of one tree, and makes their records.

    Args:
        tokens: The model's tokenizer.
        tree: The tree.
        pending: Bytes of unfinished characters by node; `add_token` fills it in.
    """

    def __init__(self, tokens: Tokens, tree: TokenTree, pending: dict[int, bytes]) -> None:
        self._tokens = tokens
        self._tree = tree
        self._pending = pending
        self.row_reader = RowReader(tokens)

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
            StepError: The row holds no numbers.
        """
        at, logprobs = self._tree[node], checked_logprobs(row)
        begun = time.perf_counter()
        count = at.reroll if reroll is None else reroll
        draw = uniform(settings.seed, at.depth, count)
        sampled = sample(row, logprobs, settings, draw, self.context(node, settings, count), watch)
        return NodeLogits(node, row, logprobs, sampled, (time.perf_counter() - begun) * 1000, count)

    def context(self, node: int, settings: Settings, reroll: int) -> Context:
        """What the sampler's stages look at in addition to the row after a node."""
        at = self._tree[node]
        return Context(
            path=tuple(self._tree.tail(node, _reach(settings))),
            barred=self._tokens.eos_ids if at.depth - at.start < settings.min_tokens else (),
            spared=self._tokens.spared if settings.xtc_probability else (),
            chance=uniform(settings.seed, at.depth, reroll, "xtc") if settings.xtc_probability else 1.0,
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
        )
        return Position(logits, distribution)

    def step_record(
        self, before: Position, after: Position, origin: Origin, kv: KVReading, ms: StepTimes, memory: Memory
    ) -> Step:
        """The record of the token between one node and the next."""
        node = self._tree[after.node_logits.node]
        node.has_step = True
        token, parent = node.token, before.node_logits
        text, pending = self._tokens.text(token, self._pending.get(parent.node, b""))
        logprob = float(parent.logprobs[token])
        return Step(
            index=node.decoded - 1,
            position=node.depth - 1,
            node=after.node_logits.node,
            parent=parent.node,
            id=token,
            text=text,
            raw=self._tokens.raw(token),
            pending=pending,
            special=self._tokens.is_special(token),
            origin="intervened" if node.held else origin,
            logprob=logprob,
            prob=math.exp(logprob),
            sampler_prob=float(parent.sampled.probs[token]),
            rank=rank_of(parent.row, token),
            surprisal_bits=max(0.0, -logprob / LN2),
            choice=before.next,
            next=after.next,
            kv=kv,
            ms=ms,
            memory=memory,
        )

    def add_token(
        self, parent: int, token: int, origin: Origin, prompt_begin: int = 0, held: int | None = None
    ) -> int:
        """Add a token to the tree, and the bytes that it leaves unfinished; returns its node.

        Args:
            parent: Node before it.
            token: Its id.
            origin: Of the token.
            prompt_begin: Of a prompt's token: tokens of the path before the prompt.
            held: Number of the interventions that it is computed under; None for those of its parent.
        """
        if origin == "prompt":
            node = self._tree.add_prompt(parent, [token], prompt_begin)[-1]
        else:
            node = self._tree.add(parent, token, origin, held)
        pending = self._tokens.text(token, self._pending.get(parent, b""))[1]
        if pending:
            self._pending[node] = pending
        return node


def _reach(settings: Settings) -> int:
    """How many tokens the active penalties look back."""
    sizes = [
        (settings.repetition_penalty, settings.repetition_context_size),
        (settings.presence_penalty, settings.presence_context_size),
        (settings.frequency_penalty, settings.frequency_context_size),
    ]
    return max((size for penalty, size in sizes if penalty), default=0)
