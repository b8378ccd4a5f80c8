"""The record of the token between two nodes, and the tree's nodes with their unfinished characters."""

from __future__ import annotations

import math

import mlx.core as mx

from engine.logits.node_sampler import NodeSampler, Position
from engine.logits.readings import LN2
from engine.model.tokens import Tokens
from engine.protocol import KVReading, Memory, Origin, Step, StepTimes
from engine.sampling.ranking import rank_of
from engine.session.rss import resident
from engine.tree import TokenTree


def memory() -> Memory:
    """Memory in use now, as the framework and the system report it; takes about 2 us."""
    return Memory(mx.get_active_memory(), mx.get_peak_memory(), mx.get_cache_memory(), resident())


class NodeReader(NodeSampler):
    """Samples after the nodes of one tree, adds to them, and makes their records.

    Args:
        tokens: The model's tokenizer.
        tree: The tree.
        pending: Bytes of unfinished characters by node; `add_token` fills it in.
    """

    def __init__(self, tokens: Tokens, tree: TokenTree, pending: dict[int, bytes]) -> None:
        super().__init__(tokens, tree, pending)
        self._tree: TokenTree = tree
        self._pending: dict[int, bytes] = pending

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
