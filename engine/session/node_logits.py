"""What is known at one node: its logits, what the sampler makes of them, and the records that tell both."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from engine.errors import StepError
from engine.model.tokens import Tokens
from engine.records import Distribution, KVReading, Memory, Origin, Step, StepTimes
from engine.sampling.pipeline import Sampled, Watch, sample, uniform
from engine.sampling.ranking import Row, log_softmax, rank_of
from engine.sampling.stages import Context
from engine.session.readings import RowReader
from engine.session.rss import resident
from engine.settings import Settings
from engine.tree import TokenTree

LN2 = math.log(2)


def memory() -> Memory:
    """What the framework reports now, and the system of the process: about 2 us."""
    return Memory(mx.get_active_memory(), mx.get_peak_memory(), mx.get_cache_memory(), resident())


@dataclass(frozen=True, slots=True)
class NodeLogits:
    """A node's row and what the sampler makes of it: enough to go on, not yet to show."""

    node: int
    row: Row
    logprobs: Row
    sampled: Sampled
    sample_ms: float
    reroll: int = 0
    """The re-roll count that the draw was made with."""


@dataclass(frozen=True, slots=True)
class Position:
    """A node that was looked at, and the distribution as it is shown."""

    look: NodeLogits
    next: Distribution


class NodeReader:
    """Looks at the nodes of one tree.

    Args:
        tokens: The model's tokenizer.
        tree: The tree.
        pending: Bytes of unfinished characters by node, filled in as tokens are told.
    """

    def __init__(self, tokens: Tokens, tree: TokenTree, pending: dict[int, bytes]) -> None:
        self._tokens = tokens
        self._tree = tree
        self._pending = pending
        self.reader = RowReader(tokens)

    def look(
        self, node: int, row: Row, settings: Settings, watch: Watch | None = None, reroll: int | None = None
    ) -> NodeLogits:
        """Sample what follows a node.

        Args:
            node: The node that the row came after.
            row: The model's logits, float32, shape (vocabulary,).
            settings: The sampler's.
            watch: Is shown the row after each stage.
            reroll: The re-roll count of the draw; None for the node's present one.

        Raises:
            StepError: The row holds no numbers.
        """
        if np.isnan(row).any():
            raise StepError(
                "The model's logits are not numbers here.", "Its weights or precision don't hold."
            )
        at = self._tree[node]
        logprobs = log_softmax(row)
        begun = time.perf_counter()
        turn = at.reroll if reroll is None else reroll
        draw = uniform(settings.seed, at.depth, turn)
        sampled = sample(row, logprobs, settings, draw, self.context(node, settings, turn), watch)
        return NodeLogits(node, row, logprobs, sampled, (time.perf_counter() - begun) * 1000, turn)

    def context(self, node: int, settings: Settings, reroll: int) -> Context:
        """What the sampler's stages look at beside the row after a node."""
        at = self._tree[node]
        return Context(
            path=tuple(self._tree.tail(node, _reach(settings))),
            barred=self._tokens.eos_ids if at.depth - at.start < settings.min_tokens else (),
            spared=self._tokens.spared if settings.xtc_probability else (),
            chance=uniform(settings.seed, at.depth, reroll, "xtc") if settings.xtc_probability else 1.0,
        )

    def show(self, look: NodeLogits, candidates: int) -> Position:
        """Read candidates, entropies and ranks off a row."""
        at = self._tree[look.node]
        pending = self._pending.get(look.node, b"")
        following = self.reader.distribution(
            look.node, at.depth, look.logprobs, look.sampled, candidates, pending, look.reroll
        )
        return Position(look, following)

    def tell(
        self, before: Position, here: Position, origin: Origin, kv: KVReading, ms: StepTimes, used: Memory
    ) -> Step:
        """The record of the token that led from one node to the next."""
        node = self._tree[here.look.node]
        node.has_step = True
        token, looked = node.token, before.look
        text, pending = self._tokens.text(token, self._pending.get(looked.node, b""))
        logprob = float(looked.logprobs[token])
        return Step(
            index=node.depth - node.start - 1,
            position=node.depth - 1,
            node=here.look.node,
            parent=looked.node,
            id=token,
            text=text,
            raw=self._tokens.raw(token),
            pending=pending,
            special=self._tokens.is_special(token),
            origin=origin,
            logprob=logprob,
            prob=math.exp(logprob),
            sampler_prob=float(looked.sampled.probs[token]),
            rank=rank_of(looked.logprobs, token),
            surprisal_bits=max(0.0, -logprob / LN2),
            choice=before.next,
            next=here.next,
            kv=kv,
            ms=ms,
            memory=used,
        )

    def grow(self, parent: int, token: int, origin: Origin) -> int:
        """Add a token to the tree, with the bytes that it leaves unfinished; returns its node."""
        node = self._tree.add(parent, token, origin)
        pending = self._tokens.text(token, self._pending.get(parent, b""))[1]
        if pending:
            self._pending[node] = pending
        return node


def _reach(settings: Settings) -> int:
    """How many tokens back the penalties that are on look."""
    sizes = [
        (settings.repetition_penalty, settings.repetition_context_size),
        (settings.presence_penalty, settings.presence_context_size),
        (settings.frequency_penalty, settings.frequency_context_size),
    ]
    return max((size for penalty, size in sizes if penalty), default=0)
