"""One lane of a batch: a prompt, its own settings and draws, and the tokens after it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.logits.node_sampler import Position
from engine.model.rounding import rounding_of
from engine.model.tokens import Tokens
from engine.protocol import (
    Distribution,
    LaneEnd,
    LaneEnded,
    LaneKV,
    LaneOpened,
    LaneToken,
    ModelFacts,
    Origin,
)
from engine.sampling.ranking import Row, rank_of
from engine.session.node_logits import NodeReader
from engine.session.stops import stop_reached, window_full
from engine.settings import Settings
from engine.tree import ROOT, TokenPaths, TokenTree

LANE_CANDIDATES = 5
"""Candidates that the record of a lane's token has: those of 40 lanes are as many as 10 steps of a session have."""


class Batched:
    """What the lanes of a batch share: the model's tokens, and one tree of all that they say.

    Args:
        tokens: The model's tokenizer.
        facts: The model's.
        tree: Where the lanes' tokens are added; None for a new one.
        pending: Bytes of unfinished characters by node of that tree.
    """

    def __init__(
        self,
        tokens: Tokens,
        facts: ModelFacts,
        tree: TokenTree | None = None,
        pending: dict[int, bytes] | None = None,
    ) -> None:
        self.tokens, self.facts = tokens, facts
        self.tree = TokenTree() if tree is None else tree
        self.pending: dict[int, bytes] = {} if pending is None else pending
        self.node_reader = NodeReader(tokens, self.tree, self.pending)


class Lane:
    """One prompt of a batch.

    Args:
        shared: What all lanes share.
        opened: Its number, its prompt, and its draws' re-roll count.
        settings: Of its sampler and its stops.
        node: The last node of its prompt.
        limit: Tokens at most; None for those of the settings.
    """

    def __init__(
        self, shared: Batched, opened: LaneOpened, settings: Settings, node: int, limit: int | None = None
    ) -> None:
        self.tokens, self.facts = shared.tokens, shared.facts
        self.tree, self.node_reader = shared.tree, shared.node_reader
        self._pending = shared.pending
        self.opened, self.settings, self.node = opened, settings, node
        self.begin, self.limit = node, limit
        self._position: Position | None = None
        self.taken: list[LaneToken] = []
        """Its decoded tokens."""
        self.choices: list[Distribution] = []
        """What each of them was drawn from, and the next one is."""
        self.roundings: list[float] = []
        """What rounding may change in the logits of each of these."""
        self.ended: LaneEnded | None = None

    @property
    def number(self) -> int:
        """Of the lane."""
        return self.opened.lane

    @property
    def prompt(self) -> Sequence[int]:
        """Token ids before its first token."""
        return self.tree.tokens(self.begin)

    def alone(self) -> Lane:
        """The same prompt, settings and draws in a tree of its own, with nothing decoded yet."""
        tree, node = copied_path(self.tree, self.begin)
        unfinished = self._pending.get(self.begin)
        shared = Batched(self.tokens, self.facts, tree, {node: unfinished} if unfinished else {})
        return Lane(shared, self.opened, self.settings, node, self.limit)

    @property
    def position(self) -> Position:
        """The logits after its last token, and what is drawn from them."""
        assert self._position is not None
        return self._position

    def read(self, row: Row) -> Position:
        """Sample from the logits after its last token.

        Raises:
            StepError: The sampler can't, or the model's logits are not numbers.
        """
        logits = self.node_reader.sample(self.node, row, self.settings, reroll=self.opened.reroll)
        position = self.node_reader.position(logits, min(LANE_CANDIDATES, self.settings.candidates))
        self.choices.append(position.next)
        self.roundings.append(rounding_of(row, self.facts.dtype))
        self._position = position
        return position

    def full(self, ms: float) -> LaneEnded | None:
        """The end of a lane whose prompt fills the context window."""
        full = window_full(self, self.node)
        return None if full is None else self.end(full.reason, full.detail, ms)

    def take(self) -> int:
        """Take the token that was drawn; returns its id."""
        token = self.position.next.picked
        origin: Origin = "greedy" if self.position.next.draw is None else "sampled"
        self.node = self.node_reader.add_token(self.node, token, origin)
        return token

    def stop(self, ms: float) -> LaneEnded | None:
        """The stop that its last token reached, None where the lane goes on."""
        if (stop := stop_reached(self, self.node)) is not None:
            return self.end(stop.reason, stop.detail, ms)
        return self.end("length", "", ms) if self.tokens_taken == self.limit else None

    def end(self, reason: LaneEnd, detail: str, ms: float) -> LaneEnded:
        """End the lane."""
        self.ended = LaneEnded(self.number, reason, detail, self.tokens_taken, ms)
        return self.ended

    @property
    def tokens_taken(self) -> int:
        """Tokens after its prompt."""
        return self.tree[self.node].depth - self.tree[self.begin].depth

    def record(self, before: Position, kv: LaneKV | None) -> LaneToken:
        """The record of its last token.

        Args:
            before: The logits that it was drawn from.
            kv: What the lane holds; None where it ended and has no row any more.
        """
        at, logits = self.tree[self.node], before.node_logits
        token, logprob = at.token, float(logits.logprobs[at.token])
        made = LaneToken(
            lane=self.number,
            index=len(self.taken),
            position=at.depth - 1,
            id=token,
            text=self.tokens.text(token, self._pending.get(at.parent, b""))[0],
            raw=self.tokens.raw(token),
            special=self.tokens.is_special(token),
            logprob=logprob,
            prob=math.exp(logprob),
            sampler_prob=float(logits.sampled.probs[token]),
            rank=rank_of(logits.row, token),
            kv=kv,
            next=None if self.ended is not None else self.position.next,
        )
        self.taken.append(made)
        return made


def copied_path(tree: TokenPaths, node: int) -> tuple[TokenTree, int]:
    """A tree with one path of another one, and the number of the path's last node in it."""
    made, parent = TokenTree(), ROOT
    for original in (tree[each] for each in tree.nodes(node)):
        parent = made.add(parent, original.token, original.origin)
        at = made[parent]
        at.start, at.prompt_begin, at.decoded = original.start, original.prompt_begin, original.decoded
    return made, parent
