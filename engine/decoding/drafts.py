"""Drafts propose tokens after a path: a lookup in the path, a model, or the model quantized as a draft of itself.

Drafted tokens have paths of their own, which the session's tree doesn't have. Penalties, barred end of sequence, XTC,
draw and grammar of a token depend on its path: over these paths the session's own sampler runs, on the draft's logits
and on the model's, so that nothing of it is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from threading import Event

import mlx.core as mx
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from engine.errors import LoadError
from engine.logits.node_sampler import NodeSampler, Wide
from engine.model.facts import quantize
from engine.model.load import Loaded, load
from engine.model.tokens import Tokens
from engine.protocol import DraftLoading
from engine.sampling.ranking import Row
from engine.session.session import Session
from engine.settings import Settings, SpeculationSettings, for_model
from engine.task import Stopped
from engine.tree import Node, TokenPaths, common_prefix, prompt_chunks


class DraftPaths(TokenPaths):
    """The paths of one session's tree and of drafts that continue them: their nodes are below 0, and not in the tree.

    Args:
        session: Its tree and tokens.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(self)
        self.tree = session.tree
        """The tree that they continue."""
        self._drafted: dict[int, Node] = {}
        self._numbers = count(-1, -1)
        """Never used again: the sampler keeps what it knows of a node by its number."""
        self.sampler = NodeSampler(session.tokens, self, session.pending)
        """Samples after any of the nodes as the session does after its own."""

    def __getitem__(self, node: int) -> Node:
        return self.tree[node] if node >= 0 else self._drafted[node]

    def add(self, parent: int, token: int) -> int:
        """The node of a token after another node: the tree's if it has it, for the re-roll count of its draw."""
        above = self[parent]
        if parent >= 0 and (known := self.tree.child(parent, token)) is not None:
            return known
        number = next(self._numbers)
        depth, decoded = above.depth + 1, above.decoded + 1
        self._drafted[number] = Node(
            token, parent, depth, "sampled", above.start, above.prompt_begin, decoded
        )
        return number

    def forget(self) -> None:
        """Drop the drafts of the last round."""
        self._drafted.clear()


# ---- drafts ------------------------------------------------------------------------------------


class Proposed(Struct, frozen=True):
    """One drafted token."""

    id: int
    node: int
    """The token's node in the `DraftPaths`."""
    probs: Wide | None
    """The distribution that it was drawn from; None if the draft has none."""


Proposal = tuple[Sequence[Proposed], int]
"""Tokens to verify, and the number of tokens at the end of the path that a lookup knew from before."""

# ---- the draft that needs no model: what followed the path's last tokens when they occurred before ----

LONGEST_SUFFIX = 3
"""Tokens that are looked for at first, as by transformers' prompt lookup; fewer if they occur nowhere before."""


class LookupDraft:
    """Copies from the path itself."""

    weight_bytes = 0
    """Bytes of its model's weights."""
    note = ""
    """Limitations, a sentence; empty for none."""

    def propose(
        self, paths: DraftPaths, node: int, count: int, settings: Settings, stopped: Stopped
    ) -> Proposal:
        """Propose tokens after a node.

        Args:
            paths: Receive a node for each token.
            node: The last node of the path.
            count: Maximum number of tokens, 1 or more.
            settings: Settings of the session's sampler.
            stopped: Polled before each forward pass.

        Raises:
            Cancelled: `stopped` returned True.
        """
        ids, matched = look_up(paths.tokens(node), count)
        tokens: list[Proposed] = []
        for token in ids:
            node = paths.add(node, token)
            tokens.append(Proposed(token, node, None))
        return tokens, matched


def look_up(ids: Sequence[int], count: int) -> tuple[list[int], int]:
    """The tokens after the latest earlier occurrence of the longest suffix of up to three tokens.

    Args:
        ids: A path.
        count: Maximum number of tokens.

    Returns:
        The tokens, and the length of the suffix; none and 0 if no suffix occurs anywhere before.
    """
    path = np.asarray(ids)
    for length in range(min(LONGEST_SUFFIX, path.size - 1), 0, -1):
        begins = path.size - length  # an occurrence that ends before the path does
        same = np.ones(begins, bool)
        for place in range(length):
            same &= path[place : place + begins] == path[begins + place]
        if (places := np.flatnonzero(same)).size:
            first = int(places[-1]) + length
            return list(ids[first : first + count]), length
    return [], 0


# ---- the draft that is a model: its own cache follows the session along the tree ---------------


class ModelDraft:
    """Draws as the session does, with the same random numbers, from its own distributions.

    Args:
        loaded: The model.
        vocabulary: Number of the session's tokens, which are this model's, too.
        note: Limitations of the model.
    """

    def __init__(self, loaded: Loaded, vocabulary: int, note: str = "") -> None:
        self._loaded, self._vocabulary = loaded, vocabulary
        self._runner = loaded.runner()
        self._path: list[int] = []
        """The cache holds `kv.offset` tokens of it."""
        self.weight_bytes, self.note = loaded.facts.weight_bytes, note

    def propose(
        self, paths: DraftPaths, node: int, count: int, settings: Settings, stopped: Stopped
    ) -> Proposal:
        """Propose tokens, as `LookupDraft.propose`: a forward pass for each, and for what is new of the path."""
        facts, ids, tokens = self._loaded.facts, paths.tokens(node), list[Proposed]()
        if facts.hard_window and facts.context_window is not None:
            count = min(count, facts.context_window - len(ids) + 1)
        for _ in range(count):
            sampled = paths.sampler.sample(node, self._row(ids, stopped), settings).sampled
            node = paths.add(node, sampled.picked)
            tokens.append(Proposed(sampled.picked, node, sampled.probs))
            if sampled.picked in self._loaded.tokens.eos_ids:
                break
            ids = [*ids, sampled.picked]
        return tokens, 0

    def _row(self, ids: list[int], stopped: Stopped) -> Row:
        """The logits after a path, float32, shape (vocabulary of the session,)."""
        kv = self._runner.kv
        shared = min(common_prefix(self._path, ids), kv.offset, len(ids) - 1)
        kv.rewind(shared)  # a cache that can't be trimmed is emptied, and all of the path runs
        self._path = ids
        row = self._runner.forward_path(ids, prompt_chunks(len(ids)), stopped)
        fitted = np.full(self._vocabulary, -np.inf, np.float32)
        count = min(row.size, self._vocabulary)
        fitted[:count] = row[:count]
        return fitted


Drafter = LookupDraft | ModelDraft

# ---- making the draft that is asked for --------------------------------------------------------

BITS, GROUP_SIZE = 4, 64
"""Quantization of the model as a draft of itself: mlx_lm.convert's defaults."""


def make_draft(
    settings: SpeculationSettings, target: Loaded, emit: Callable[[DraftLoading], None], cancel: Event
) -> Drafter:
    """Make a draft: the lookup, a model, or the target's files again, quantized by mlx_lm's own rule for the model.

    Args:
        settings: Its kind and model.
        target: The session's model; not changed.
        emit: Receives the progress of loading.
        cancel: Stops the loading.

    Raises:
        LoadError: The draft's model can't be loaded, has other tokens than the target, or can't be quantized.
        Cancelled: `cancel` was set.
    """
    if settings.draft == "lookup":
        return LookupDraft()
    if settings.draft == "self-4bit" and (quantization := target.facts.quantized):
        raise LoadError(
            f"The model is quantized already ({quantization}): at {BITS} bits it would be the same model.",
            "Take the draft lookup, or a smaller model as --draft-model.",
        )
    own = replace(  # a plain cache of its own, which can be trimmed
        target.settings,
        max_kv_size=None,
        kv_bits=None,
        no_kv_cache=False,
        record_logits=False,
        kept_kv_mib=0,
    )
    if settings.draft == "model":
        own = for_model(own, settings.draft_model)
    loaded = load(own, lambda step: emit(DraftLoading(own.model, step.done, step.total)), cancel)
    if settings.draft == "model":
        check_vocabulary(target.tokens, loaded.tokens)
        return ModelDraft(loaded, target.tokens.vocabulary, " ".join(loaded.facts.notes))
    try:
        quantize(loaded.model, BITS, GROUP_SIZE)
    except LoadError as error:
        raise LoadError(
            f"This model can't be quantized: no layer has a multiple of {GROUP_SIZE} columns.",
            "Take the draft lookup.",
        ) from error
    if mx.default_device() == mx.Device(mx.cpu):
        loaded.model.set_dtype(mx.float32)  # as the loader does: 7 to 40 times faster there
    mx.eval(loaded.model.parameters())
    return ModelDraft(loaded, target.tokens.vocabulary)


def check_vocabulary(target: Tokens, draft: Tokens) -> None:
    """Refuse a draft whose token ids don't mean what the target's mean.

    Raises:
        LoadError: It names the first id that differs, and both texts.
    """
    for token in range(max(target.vocabulary, draft.vocabulary)):
        # no bytes beyond a vocabulary, as for the rows that fill an embedding up
        ours, theirs = (each.raw(token) if token < each.vocabulary else b"" for each in (target, draft))
        if ours != theirs:
            here, there = (
                f"“{raw.decode('utf-8', 'backslashreplace')}”" if raw else "no token"
                for raw in (ours, theirs)
            )
            raise LoadError(
                f"The draft model has other tokens: id {token} is {here} here and {there} there.",
                "Take a smaller model of the same family, or the draft lookup, which needs no model.",
            )
