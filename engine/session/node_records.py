"""The records of a node: its step, and the stop that its token reached; and continuations outside the session: a lane
of a batch, a draw, or one of two models that continue independently."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

import mlx.core as mx

from engine.logits.node_sampler import NodeLogits, NodeSampler, Position
from engine.memory import resident
from engine.model.tokens import Tokens
from engine.protocol import Finished, KVReading, Memory, ModelFacts, Origin, Step, StepTimes
from engine.sampling.ranking import LN2, Row
from engine.settings import Settings
from engine.token_texts import decode
from engine.tree import ROOT, TokenTree


def memory() -> Memory:
    """Memory in use now, as reported by MLX and the system; takes about 2 us."""
    return Memory(mx.get_active_memory(), mx.get_peak_memory(), mx.get_cache_memory(), resident())


class NodeReader(NodeSampler):
    """Samples after the nodes of one tree, adds nodes, and makes their records.

    Args:
        tokens: The model's tokenizer.
        tree: The tree.
        pending: Bytes of unfinished characters by node; `add_token` adds to it.
    """

    def __init__(self, tokens: Tokens, tree: TokenTree, pending: dict[int, bytes]) -> None:
        super().__init__(tokens, tree, pending)
        self._tree: TokenTree = tree
        self._pending: dict[int, bytes] = pending

    def step_record(
        self, before: Position, after: Position, origin: Origin, kv: KVReading, ms: StepTimes, memory: Memory
    ) -> Step:
        """The record of the step from one node to the next."""
        node = self._tree[after.node_logits.node]
        node.has_step = True
        token, parent = node.token, before.node_logits
        above = self._tree[parent.node]
        text, pending = self._tokens.text(token, self._pending.get(parent.node, b""))
        logprob = parent.masses.logprob(token)
        return Step(
            index=above.decoded,
            position=above.depth,
            node=after.node_logits.node,
            parent=parent.node,
            id=token,
            text=text,
            raw=self._tokens.raw(token),
            pending=pending,
            special=self._tokens.is_special(token),
            origin="intervened" if node.intervention_set else origin,
            logprob=logprob,
            prob=math.exp(logprob),
            sampler_prob=parent.sampled.prob(token),
            rank=before.rank(token),
            surprisal_bits=max(0.0, -logprob / LN2),
            choice=before.next,
            next=after.next,
            kv=kv,
            ms=ms,
            memory=memory,
        )

    def add_token(
        self, parent: int, token: int, origin: Origin, prompt_begin: int = 0, under: int | None = None
    ) -> int:
        """Add a token to the tree, and the bytes of an unfinished character at its end to `pending`; returns its node.

        Args:
            parent: Node before it.
            token: Its token id.
            origin: The token's origin.
            prompt_begin: Number of tokens of the path before the prompt, if the token belongs to one.
            under: Id of the intervention set that it is computed under; None for the parent's.
        """
        if origin == "prompt":
            node = self._tree.add_prompt(parent, [token], prompt_begin)[-1]
        else:
            node = self._tree.add(parent, token, origin, under)
        pending = self._tokens.text(token, self._pending.get(parent, b""))[1]
        if pending:
            self._pending[node] = pending
        return node


# ---- stops: reported, never forced -------------------------------------------------------------


class CompletionSource:
    """The source of a completion: a session, or a continuation outside of it."""

    tokens: Tokens
    facts: ModelFacts
    settings: Settings
    """Settings of the sampler and of the stops."""
    tree: TokenTree
    pending: dict[int, bytes]
    """Bytes of unfinished characters by node."""
    node_reader: NodeReader


def stop_reached(session: CompletionSource, node: int, most: float | None = None) -> Finished | None:
    """The stop that a node's token reached; None if generation continues.

    Args:
        session: The source of the completion.
        node: Node of a token of the completion.
        most: Number of completion tokens at which it ends; None for the settings' `max_tokens`.

    Returns:
        The first that applies: end of sequence, complete grammar, stop string, context window, max tokens.
    """
    at = session.tree[node]
    if at.token in session.tokens.eos_ids:
        return Finished(node, "eos", eos_name(session, at.token))
    settings, state = session.settings, None
    if settings.grammar is not None:
        state = session.node_reader.grammars.at(settings.grammar, node)
        if state is not None and state.complete:
            return Finished(node, "grammar", settings.grammar.summary)
    if settings.stop and (text := stop_string(session, node)) is not None:
        return Finished(node, "stop", text)
    if at.depth == session.facts.context_window:
        return window_full(session, node)
    count = at.depth - at.start
    if count == (settings.max_tokens if most is None else most):
        open_ = state is not None and state.matcher is not None and not state.matcher.accepting
        unfinished = ", reached before the output was complete" if open_ else ""
        return Finished(node, "length", f"{count} token" + "s" * (count != 1) + unfinished)
    return None


def run_limit(session: CompletionSource, node: int) -> int:
    """Number of completion tokens at which a run from a node ends: `max_tokens`, or that many more tokens if the node
    has reached `max_tokens` already."""
    at, most = session.tree[node], session.settings.max_tokens
    taken = at.depth - at.start
    return most if taken < most else taken + most


def eos_name(session: CompletionSource, token: int) -> str:
    """Text of an end-of-sequence token, or its id if the text is empty."""
    return session.tokens.text(token)[0] or f"id {token}"


def window_full(session: CompletionSource, node: int) -> Finished | None:
    """The stop at the context window if a node's token filled it; otherwise None."""
    window = session.facts.context_window
    if window is None or session.tree[node].depth != window:
        return None
    return Finished(node, "length", f"context window of {window} tokens")


def stop_string(session: CompletionSource, node: int) -> str | None:
    """The stop string that a node's token completed, regardless of token boundaries; None if it completed none.

    A stop string must begin in the completion, not in the prompt. The first one in the text wins.
    """
    stops, at = session.settings.stop, session.tree[node]
    if not stops or not session.tokens.raw(at.token):
        return None
    # A string of n bytes spans at most n tokens, not counting tokens without bytes; these are rare, and it would take a
    # dozen of them inside one stop string to miss it.
    reach = max(len(stop.encode()) for stop in stops) + 12
    tail = session.tree.tail(node, min(reach, at.depth - at.start))
    # An unfinished character is not text yet: the token that completes it may complete the string.
    before = len(decode(b"", b"".join(map(session.tokens.raw, tail[:-1])))[0])
    text = session.tokens.join(tail)
    matches = [
        (place, stop) for stop in stops if (place := text.find(stop, max(0, before - len(stop) + 1))) >= 0
    ]
    return min(matches)[1] if matches else None


# ---- continuations outside the session --------------------------------------------------------------


class Continuation(CompletionSource):
    """A path in a separate tree, and the tokens taken after it.

    Args:
        tokens: The model's tokenizer.
        facts: Facts about the model.
        settings: Settings of the sampler and of the stops.
        ids: Token ids of the prompt.
    """

    def __init__(
        self, tokens: Tokens, facts: ModelFacts, settings: Settings, ids: Sequence[int] = ()
    ) -> None:
        self.tokens, self.facts, self.settings = tokens, facts, settings
        self.tree = TokenTree()
        self.pending = {}
        self.node_reader = NodeReader(tokens, self.tree, self.pending)
        self.begin = self.node = (ROOT, *self.tree.add_prompt(ROOT, ids))[-1]
        self.reroll: int | None = None
        """Re-roll count of all draws; None for the counts of the nodes."""

    @classmethod
    def after(cls, source: CompletionSource, node: int, settings: Settings) -> Continuation:
        """Copy a path of a session or of another continuation, to continue it; the original doesn't change."""
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
            StepError: No token is left to sample.
        """
        return self.node_reader.sample(self.node, row, self.settings, reroll=self.reroll)

    def take(self, token: int, origin: Origin = "sampled") -> None:
        """Add a token to the path."""
        self.node = self.node_reader.add_token(self.node, token, origin)

    def stop(self) -> Finished | None:
        """The stop that the last token reached; None if the path continues."""
        return stop_reached(self, self.node)
