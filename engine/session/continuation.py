"""A path that continues beside the session: a lane of a batch, a draw, one of two models that each go their own way."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from engine.logits.node_sampler import NodeLogits
from engine.model.tokens import Tokens
from engine.protocol import Finished, ModelFacts, Origin
from engine.sampling.ranking import Row
from engine.session.node_records import NodeReader, stop_reached
from engine.session.session import Session
from engine.settings import Settings
from engine.tree import ROOT, TokenTree


class Continuation:
    """A path in a tree of its own, and the tokens taken after it.

    Args:
        tokens: The model's tokenizer.
        facts: Facts about the model.
        settings: Settings of the sampler and of the stops.
        ids: Token ids of its prompt.
    """

    def __init__(
        self, tokens: Tokens, facts: ModelFacts, settings: Settings, ids: Sequence[int] = ()
    ) -> None:
        self.tokens, self.facts, self.settings = tokens, facts, settings
        self.tree = TokenTree()
        self.pending: dict[int, bytes] = {}
        """Bytes of unfinished characters by node."""
        self.node_reader = NodeReader(tokens, self.tree, self.pending)
        self.begin = self.node = (ROOT, *self.tree.add_prompt(ROOT, ids))[-1]
        self.reroll: int | None = None
        """Re-roll count of all draws; None for those of the nodes."""

    @classmethod
    def after(cls, source: Session | Continuation, node: int, settings: Settings) -> Continuation:
        """A continuation of a path of a session, or of another continuation, which doesn't change."""
        made = cls(source.tokens, source.facts, settings)
        for each in source.tree.nodes(node):
            original = source.tree[each]
            made.node = made.tree.add(made.node, original.token, original.origin)
            at = made.tree[made.node]
            at.start, at.prompt_begin, at.decoded = original.start, original.prompt_begin, original.decoded
        if unfinished := source.pending.get(node):
            made.pending[made.node] = unfinished
        made.begin = made.node
        return made

    def rerolled(self, count: int) -> Continuation:
        """A continuation of the same path, in the same tree, with the draws of another re-roll count."""
        made = copy(self)
        made.node, made.reroll = self.begin, count
        return made

    @property
    def count(self) -> int:
        """Number of tokens taken."""
        return self.tree[self.node].depth - self.tree[self.begin].depth

    @property
    def ids(self) -> list[int]:
        """Token ids taken."""
        return self.tree.tail(self.node, self.count)

    def sample(self, row: Row) -> NodeLogits:
        """Sample from the logits after the last token, float32, shape (vocabulary,).

        Raises:
            StepError: The sampler can't.
        """
        return self.node_reader.sample(self.node, row, self.settings, reroll=self.reroll)

    def take(self, token: int, origin: Origin = "sampled") -> None:
        """Add a token to the path."""
        self.node = self.node_reader.add_token(self.node, token, origin)

    def stop(self) -> Finished | None:
        """The stop that the last token reached; None if the path continues."""
        return stop_reached(self, self.node)
