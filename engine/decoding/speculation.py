"""Speculative decoding: a draft proposes tokens, and one forward pass of the model verifies them.

At a node the sampler has picked the next token, t0. The draft proposes d1, d2, ... after it. One forward pass over t0,
d1, d2, ... gives the logits after each. After t0 the session's sampler picks a token, with the draw of that position,
and d1 is accepted if it is that token; and so on. The first draft that differs is refused, and the next step takes the
token that was picked instead. A token depends only on (seed, position, re-roll count) and on the model's distribution
there, so the text is that of plain steps, whatever the draft.

Drafted tokens form paths outside the session's tree. The penalties, barred end of sequence, XTC, draw and grammar of a
token depend on its path: the session's own sampler runs over these paths, on the draft's logits and on the model's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import count
from statistics import median
from threading import Event

import mlx.core as mx
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.breakpoints import UNSURE
from engine.cache.kinds import kind_of
from engine.errors import Cancelled, LoadError, StepError
from engine.logits.node_sampler import NodeLogits, NodeSampler, Wide
from engine.model.facts import quantize
from engine.model.forward import CLEAR_EVERY, Runner
from engine.model.load import Loaded, load
from engine.model.tokens import Tokens
from engine.protocol import AcceptanceRates, DraftLoading, LoadDraft, Origin, Record, Step, StepTimes
from engine.sampling.ranking import Row, Rows, absolute_difference, rank_of, ranked, sum_of_products
from engine.session.context import Context, with_stop
from engine.session.node_records import memory, window_full
from engine.session.run import BreakpointEvaluator
from engine.session.session import Session
from engine.setting import check
from engine.settings import Settings, SpeculationSettings, for_model
from engine.task import Stopped, Task
from engine.timing import stall_times
from engine.tree import Node, TokenPaths, common_prefix, prompt_chunks

# ---- drafts: a lookup in the path, a model, or the model quantized as a draft of itself -------------


class DraftPaths(TokenPaths):
    """The paths of a session's tree and of drafts that continue them. Drafted nodes have negative numbers, and are not
    in the tree."""

    def __init__(self, session: Session) -> None:
        super().__init__(self)
        self.tree = session.tree
        """The tree that they continue."""
        self._drafted: dict[int, Node] = {}
        self._known: dict[int, int] = {}
        """Nodes of the tree, by the drafted nodes that stand for them."""
        self._numbers = count(-1, -1)
        """Numbers of drafted nodes, never used twice: the sampler stores what it knows of a node by its number."""
        self.sampler = NodeSampler(session.tokens, self, session.pending)
        """Samples after any of these nodes as the session does after its own."""

    def __getitem__(self, node: int) -> Node:
        return self.tree[node] if node >= 0 else self._drafted[node]

    def add(self, parent: int, token: int) -> int:
        """The node of a token after another node: the tree's, if there is one, or else a drafted node. If a prompt was
        read up to `parent` after the tree's node was taken, it is a drafted node that counts from that prompt, with the
        re-roll count of the tree's."""
        above = self[parent]
        taken = Node(
            token, parent, above.depth + 1, "sampled", above.start, above.prompt_begin, above.decoded + 1
        )
        after = self._known.get(parent, parent)
        known = self.tree.child(after, token) if after >= 0 else None
        if known is not None:
            at = self.tree[known]
            follows = (at.start, at.prompt_begin, at.decoded) == (
                taken.start,
                taken.prompt_begin,
                taken.decoded,
            )
            if follows and after == parent:
                return known
            taken.reroll = at.reroll
        number = next(self._numbers)
        self._drafted[number] = taken
        if known is not None:
            self._known[number] = known
        return number

    def forget(self) -> None:
        """Drop the drafts of the last round."""
        self._drafted.clear()
        self._known.clear()


class Proposed(Struct, frozen=True):
    """One drafted token."""

    id: int
    node: int
    """The token's node in the `DraftPaths`."""
    probs: Wide | None
    """The distribution that it was drawn from; None if the draft has none."""


Proposal = tuple[Sequence[Proposed], int]
"""Tokens to verify, and the length of the path's suffix that a lookup found earlier in the path."""

# ---- the draft that needs no model: what followed the path's last tokens when they occurred before ----

LONGEST_SUFFIX = 3
"""Length of the suffix to look up first, as in transformers' prompt lookup; shorter ones if it didn't occur before."""


class LookupDraft:
    """Copies tokens from the path itself."""

    weight_bytes = 0
    """Bytes of its model's weights."""
    note = ""
    """Limitations, a sentence; empty for none."""

    def propose(
        self, paths: DraftPaths, node: int, count: int, settings: Settings, stopped: Stopped
    ) -> Proposal:
        """Propose tokens after a node.

        Args:
            paths: Paths that receive a node for each token.
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
        The tokens, and the length of the suffix; no tokens and 0 if no suffix occurred before.
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
        vocabulary: Size of the session's vocabulary; both models have the same tokens.
        note: Limitations of the model.
    """

    def __init__(self, loaded: Loaded, vocabulary: int, note: str = "") -> None:
        self._loaded, self._vocabulary = loaded, vocabulary
        self._runner = loaded.runner()
        self._path: list[int] = []
        """The last path; the cache contains its first `kv.offset` tokens."""
        self.weight_bytes, self.note = loaded.facts.weight_bytes, note

    def propose(
        self, paths: DraftPaths, node: int, count: int, settings: Settings, stopped: Stopped
    ) -> Proposal:
        """Propose tokens, as `LookupDraft.propose`: with a forward pass for each, and for the new part of the path."""
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

# ---- making a draft ----------------------------------------------------------------------------

BITS, GROUP_SIZE = 4, 64
"""Quantization of the model as a draft of itself: mlx_lm.convert's defaults."""


def make_draft(
    settings: SpeculationSettings, target: Loaded, emit: Callable[[DraftLoading], None], cancel: Event
) -> Drafter:
    """Make a draft: the lookup, a model, or the target's files again, quantized by mlx_lm's own rule for the model.

    Args:
        settings: Settings with the draft's kind and model.
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
    own = replace(  # its own plain cache, which can be trimmed
        target.settings, max_kv_size=None, kv_bits=None, no_kv_cache=False, record_logits=False, kept_kv_mib=0
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
    """Refuse a draft model whose token ids mean other tokens than the target's.

    Raises:
        LoadError: An id differs; the message names the first one, and both texts.
    """
    for token in range(max(target.vocabulary, draft.vocabulary)):
        # ids beyond a vocabulary have no bytes, like the padding rows of an embedding
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


# ---- the acceptance of a drafted token: how often each of three rules accepts ------------------
# p is the distribution that the model draws from, q the draft's, both after the sampler. Each rule gives tokens
# distributed as p, so they differ only in how often they accept:
#
# - position draw, the rule used here: one number u in [0, 1) per position. Drafter and target each invert their
#   cumulative distribution at u, most probable token first. Accepted if both give the same token. Rate: the length in
#   which the two intervals of a token overlap, summed over tokens.
# - rejection (Leviathan, Kalman, Matias 2023, arXiv:2211.17192, algorithm 1): d from q is accepted with probability
#   min(1, p(d)/q(d)); else a token is drawn from the residual max(0, p - q), normalized. Rate: sum of min(p, q), which
#   no rule exceeds.
# - match (mlx_lm.generate.speculative_generate_step): d from q, t from p, independent; accepted if d = t. Rate: sum of
#   p q.

HEAD = 8192
"""Number of most probable tokens whose intervals are compared: sorting 150,000 tokens takes 25 ms, these 3. The others
are not counted, so that the rate is too low by at most their probability; smaller vocabularies are complete."""


def rates(p: Wide, q: Wide) -> AcceptanceRates:
    """The probability that a token drafted from q is accepted, by each rule."""
    return AcceptanceRates(position_draw_rate(p, q), float(np.minimum(p, q).sum()), sum_of_products(p, q))


def position_draw_rate(p: Wide, q: Wide) -> float:
    """The length of the part of [0, 1) with the same token in both distributions, each most probable token first."""
    (p_begin, p_end), (q_begin, q_end) = _intervals(p), _intervals(q)
    both = np.minimum(p_end, q_end) - np.maximum(p_begin, q_begin)
    return float(np.maximum(both, 0.0).sum())


def _intervals(probs: Wide) -> tuple[Wide, Wide]:
    """The begin and end of each token's share of the cumulative distribution; empty outside of `HEAD`."""
    order = ranked(probs, min(HEAD, probs.size))
    begin, end = np.zeros(probs.size), np.zeros(probs.size)
    end[order] = np.cumsum(probs[order])
    begin[order] = end[order] - probs[order]
    return begin, end


# ---- one round: propose, verify, take ----------------------------------------------------------
# A forward pass over several tokens rounds its sums in another order than one over a single token. If two tokens are
# that close to each other, it can take the other one; `VerifySpeculation` reports this, with the difference.

COPY_NOTE = (
    "These caches can't give tokens back: drafts are verified in a copy, and accepted tokens run once more,"
    " so that no time is saved."
)


Taken = Callable[[Step], Generator[Record, None, bool]]
"""Yields the records of a step, with the session at that step; returns True to end the round."""


class Round:
    """One round at a session's current node; its stages may run one at a time.

    If the caches can always be trimmed, drafts are verified in them, and refused tokens are trimmed off. Other caches
    are copied, and the accepted tokens run again as plain steps in the live cache, which is exact for every kind.

    Args:
        session: Session to continue with the accepted tokens.
        draft: Proposes tokens.
        paths: Paths over the session's tree.
        settings: Settings of the draft.
        paused: True if the user may do other things between two stages.

    Raises:
        StepError: There is no prompt or no KV cache, or the context is full.
    """

    def __init__(
        self,
        session: Session,
        draft: Drafter,
        paths: DraftPaths,
        settings: SpeculationSettings,
        *,
        paused: bool = False,
    ) -> None:
        self._session, self._draft, self._paths, self.settings = session, draft, paths, settings
        self.stage: protocol.RoundStage | None = None
        self._position = session.position
        session.prepare_step()
        if not session.cached:
            raise StepError(
                "Speculative decoding needs a KV cache, and this model was opened without one.",
                "Open the model without --no-kv-cache.",
            )
        self._count, depth = _room(session, settings.num_draft_tokens), session.tree[session.node].depth
        self.trims = not session.kv.chunks_matter and session.kv.could_trim(depth + 1 + self._count, depth)
        self._runner = session.runner.copy() if self.trims and paused else session.runner
        """The session's runner, or a copy whose caches become the session's at the first token taken."""
        self._chunks = session.kv.chunks
        self._node, self._end, self._taken = session.node, session.node, 0
        self._first, self._first_node = self._position.next.picked, 0
        self._proposed: Sequence[Proposed] = ()
        self._matched = 0
        self._judged: list[NodeLogits] = []
        """Logits that the forward pass gave after t0 and each accepted draft."""
        self._ms = dict.fromkeys(("draft", "forward", "sample", "take", "stalled"), 0.0)
        """Milliseconds of the parts, without stalls (garbage collection, drawing the screen)."""

    def _begin_part(self) -> None:
        self._begun, self._stalls = time.perf_counter(), stall_times()

    def _end_part(self, part: str) -> None:
        """End a part of the time, and begin the next."""
        ms = (time.perf_counter() - self._begun) * 1000
        stalled = min(ms, sum(stall_times(self._stalls)))  # both stalls may be of one moment
        self._ms[part] += ms - stalled
        self._ms["stalled"] += stalled
        self._begin_part()

    @property
    def over(self) -> bool:
        """True if the session's position changed since the round began, or the round was taken."""
        return self.stage == "taken" or self._session.position is not self._position

    def run(self, stopped: Stopped, taken: Taken, *, stage: bool = False) -> Iterator[Record]:
        """Run the remaining stages, or only the next one.

        Args:
            stopped: Polled while drafting.
            taken: Yields the records of each step; if it returns True, the tokens after it are not taken.
            stage: True to run only the next stage.

        Yields:
            The records of the steps, and one of the round.

        Raises:
            StepError: The caches can be neither trimmed nor copied.
            Cancelled: `stopped` returned True; nothing was taken.
        """
        while True:
            self._begin_part()
            match self.stage:
                case None:
                    self._propose(stopped)
                case "proposed":
                    self._verify()
                case _:
                    yield from self._take(taken)
            if stage or self.stage == "taken":
                yield self.record()
                return

    def _propose(self, stopped: Stopped) -> None:
        self._paths.forget()
        self._first_node = self._paths.add(self._node, self._first)
        if self._count:
            self._proposed, self._matched = self._draft.propose(
                self._paths, self._first_node, self._count, self._session.settings, stopped
            )
        self._end_part("draft")
        self.stage = "proposed"

    def _verify(self) -> None:
        """Run the forward pass (in a copy of the cache only if there are drafts), and the sampler up to the first
        refused draft."""
        ids = [self._first, *(each.id for each in self._proposed)]
        rows: Sequence[Row] | Rows = ()
        try:
            if self.trims:
                rows = np.array(self._runner.forward_logits(ids))
                if self._runner.kv.offset % CLEAR_EVERY < len(ids):
                    mx.clear_cache()
            elif self._proposed:
                rows = np.array(_copy(self._session.runner).forward_logits(ids))
            self._end_part("forward")
            node, judged = self._first_node, list[NodeLogits]()
            for row, proposed in zip(rows, (*self._proposed, None), strict=False):
                judged.append(self._paths.sampler.sample(node, row, self._session.settings))
                if proposed is None or proposed.id != judged[-1].sampled.picked:
                    break
                node = proposed.node
        except BaseException:
            self._settle()
            raise
        self._end_part("sample")
        self._judged = judged
        self.stage = "verified"

    def _take(self, taken: Taken) -> Iterator[Record]:
        """Take t0 and the accepted drafts, one step each; afterwards the live cache contains the path to the last."""
        session, spent, count = self._session, self._ms, max(1, len(self._judged))
        ids = [self._first, *(each.id for each in self._proposed)]
        held: list[NodeLogits | None] = [*self._judged] or [None]
        # the share of each of these tokens in the drafting and in the forward pass
        share = StepTimes(
            (spent["draft"] + spent["forward"]) / count,
            spent["forward"] / count,
            0.0,
            0.0,
            cold=session.runner.is_first("step"),
            shared=count if self._proposed else 0,
        )
        try:
            for token, logits in zip(ids, held, strict=False):
                following = session.next
                if self._taken and token != following.picked:
                    break  # accepted in a copy of the cache; the live one, rounded differently, gives another token
                origin: Origin = "greedy" if following.draw is None else "sampled"
                if not self.trims or logits is None:
                    step = session.step(token, origin)
                else:
                    step = self._step(logits, token, origin, share)
                self._end, self._taken = step.node, self._taken + 1
                self._end_part("take")
                halted = yield from taken(step)
                self._begin_part()  # the caller's work with a step doesn't belong to the round
                if halted:
                    break
        finally:
            self._settle()
        self._end_part("take")
        self.stage = "taken"

    def _step(self, logits: NodeLogits, token: int, origin: Origin, share: StepTimes) -> Step:
        """Go to the next of the tokens that the forward pass ran.

        Args:
            logits: Logits after the token; their node is replaced.
            token: The token.
            origin: Its origin.
            share: The token's share of the round so far.
        """
        session = self._session
        begun, stalls, kv = time.perf_counter(), stall_times(), self._runner.kv
        if self._runner is not session.runner:
            session.kv.adopt(kv.caches, kv.offset, kv.chunks)
            self._runner = session.runner
        before, reader = session.position, session.node_reader
        node = reader.add_token(session.node, token, origin)
        session.set_position(reader.position(replace(logits, node=node), session.settings.candidates))
        reading = _without_end(session.kv_reading(), session.kv.offset - session.tree[node].depth)
        used, ms = memory(), (time.perf_counter() - begun) * 1000
        times = replace(
            share,
            total=share.total + logits.sample_ms + ms,
            sample=logits.sample_ms,
            inspect=ms,
            **stall_times(stalls)._asdict(),
        )
        return reader.step_record(before, session.position, origin, reading, times, used)

    def _settle(self) -> None:
        """Trim the live cache to the path to the current node, whatever was taken.

        If a cache was trimmed to another length than asked for, all are emptied; the path then runs again.
        """
        kv, depth = self._session.kv, self._session.tree[self._session.node].depth
        if not self.trims or self._runner is not self._session.runner or kv.offset <= depth:
            return  # the live cache was not written, or contains only the path
        kv.rewind(depth)
        kv.set_offset(kv.offset, chunks=self._chunks)
        if any(kind_of(cache).held(cache) != kv.offset for cache in kv.caches):
            kv.clear()

    def record(self) -> protocol.DraftRound:
        """The record of the round up to its current stage."""
        begun, tokens, ms = time.perf_counter(), self._session.tokens, self._ms
        first_text, pending = tokens.text(self._first, self._session.pending.get(self._node, b""))
        drafts: list[protocol.DraftToken] = []
        instead: protocol.TakenInstead | None = None
        for place, (proposed, fate) in enumerate(zip(self._proposed, self._fates(), strict=True)):
            id, probs = proposed.id, proposed.probs
            text, pending = tokens.text(id, pending)
            draft_prob = None if probs is None else float(probs[id])
            draft = protocol.DraftToken(id, text, tokens.raw(id), fate, draft_prob)
            if fate in ("accepted", "refused"):
                sampled, prob = self._judged[place].sampled, self._judged[place].sampled.prob(id)
                draft = replace(
                    draft,
                    target_prob=prob,
                    rank=rank_of(self._judged[place].row, id),
                    rates=AcceptanceRates(prob, prob, prob) if probs is None else rates(sampled.probs, probs),
                )
            if fate == "refused":
                picked, taken = sampled.picked, self.stage == "taken"
                text = tokens.text(picked, self._session.pending.get(self._end, b"") if taken else b"")[0]
                draft_prob = None if probs is None else float(probs[picked])
                instead = protocol.TakenInstead(
                    picked, text, tokens.raw(picked), draft_prob, sampled.prob(picked)
                )
            drafts.append(draft)
        return protocol.DraftRound(
            node=self._node,
            end=self._end,
            stage=self.stage or "proposed",
            settings=self.settings,
            first=self._first,
            first_text=first_text,
            drafts=tuple(drafts),
            instead=instead,
            matched=self._matched,
            taken=self._taken,
            verified=0 if self.stage == "proposed" else 1 + len(drafts),
            draft_ms=ms["draft"],
            verify_ms=ms["forward"] + ms["sample"],
            take_ms=ms["take"],
            ms=ms["draft"] + ms["forward"] + ms["sample"] + ms["take"],
            rates_ms=(time.perf_counter() - begun) * 1000,
            stalled_ms=ms["stalled"],
            note="" if self.trims else COPY_NOTE,
        )

    def _fates(self) -> list[protocol.DraftFate]:
        places, held = range(len(self._proposed)), len(self._judged) - 1
        if held < 0:
            return ["drafted" for _ in places]
        accepted, refused = held, held
        if self.stage == "taken":
            accepted = self._taken - 1
            refused = -1 if self._taken <= held else held  # the round was halted before it
        return [
            "accepted" if place < accepted else "refused" if place == refused else "unseen"
            for place in places
        ]


def _copy(live: Runner) -> Runner:
    names = ", ".join(sorted({type(cache).__name__ for cache in live.kv.caches}))
    refusal = StepError(
        f"These caches ({names}) can neither be trimmed nor copied, so drafts can't be verified.",
        "Step without speculation.",
    )
    try:
        copied = live.copy()
    except Exception as error:  # a cache class of the model's own code may fail in any way
        raise refusal from error
    if any(ours is theirs for ours, theirs in zip(live.kv.caches, copied.kv.caches, strict=True)):
        raise refusal
    return copied


def _without_end(reading: protocol.KVReading, tokens: int) -> protocol.KVReading:
    """A reading of caches, without their tokens beyond the path to a node.

    Args:
        reading: Reading of caches that can be trimmed: each token has the same bytes in them.
        tokens: Number of tokens beyond the path.
    """
    groups = tuple(
        replace(
            group,
            held=group.held - tokens,
            used_bytes=group.used_bytes - group.used_bytes // group.held * tokens,
        )
        if group.held
        else group
        for group in reading.groups
    )
    used = sum(group.used_bytes * len(group.layers) for group in groups)
    return replace(reading, offset=reading.offset - tokens, used_bytes=used, groups=groups)


def _room(session: Session, count: int) -> int:
    """Number of tokens to draft: none after an end of sequence, the run's last token, or the context window's end."""
    at, window = session.tree[session.node], session.facts.context_window
    if session.next.picked in session.tokens.eos_ids:
        return 0
    most = session.settings.max_tokens
    left = most - (at.depth - at.start) % most
    if window is not None and at.depth < window:
        left = min(left, window - at.depth)
    return max(0, min(count, left - 1))


# ---- a part of the path again by plain steps, in separate caches: a check that speculation changed nothing ----

NOT_SAMPLED = ("prompt", "chosen", "inserted", "beam")
"""Origins of tokens that no sampler picked."""


def compare_with_plain(session: Session, begin: int, stopped: Stopped) -> protocol.SpeculationVerified:
    """Take plain steps over the path from a node to the current one, and compare each token with the one taken.

    Args:
        session: Session, not changed. After each node the sampler runs with the settings that were used there.
        begin: Node on the path before the first token to compare; if a prompt follows, the prompt's last node is used.
        stopped: Polled before each token.

    Raises:
        StepError: The node is not on the path, or there is nothing after it.
        Cancelled: `stopped` returned True.
    """
    path = session.tree.nodes(session.node)
    prompts = [node for node in path if session.tree[node].origin == "prompt"]
    if begin in path and prompts and session.tree[begin].depth < session.tree[prompts[-1]].depth:
        begin = prompts[-1]  # a prompt runs in chunks, not in steps
    if begin not in path or begin == session.node:
        raise StepError("There is no text to compare with plain steps.", "Take a round first.")
    runner = session.runner.fresh()
    row = session.run_path(runner, begin, stopped)
    ms: list[float] = []
    difference, chosen, compared, at = 0.0, 0, 0, begin
    plain: int | None = None
    text = ""
    for node in path[path.index(begin) + 1 :]:
        if stopped():
            raise Cancelled
        begun = time.perf_counter()
        settings, reroll = session.settings_at.get(at, session.settings), session.tree[node].drawn_reroll
        picked = session.node_reader.sample(at, row, settings, reroll=reroll).sampled.picked
        sampled, compared = time.perf_counter() - begun, compared + 1
        if (kept := session.row_at(at)) is not None:
            difference = max(difference, float(np.max(absolute_difference(kept, row))))
        taken, before, at = session.tree[node], at, node
        chosen += taken.origin in NOT_SAMPLED
        if picked != taken.token and taken.origin not in NOT_SAMPLED:
            plain, text = picked, session.tokens.text(picked, session.pending.get(before, b""))[0]
            break
        begun = time.perf_counter()
        runner.compute = session.interventions.computes[taken.intervention_set]
        row = runner.forward(taken.token)
        ms.append((sampled + time.perf_counter() - begun) * 1000)
    return protocol.SpeculationVerified(
        begin=begin,
        end=session.node,
        tokens=compared,
        chosen=chosen,
        differs=None if plain is None else at,
        plain=plain,
        plain_text=text,
        difference=difference,
        plain_ms=median(ms) if ms else 0.0,
    )


# ---- the commands ------------------------------------------------------------------------------


def load_draft(context: Context, command: LoadDraft, task: Task) -> Iterator[Record]:
    yield from _ready(context, command.settings, task)


def _ready(context: Context, settings: SpeculationSettings, task: Task) -> Generator[Record, None, Drafter]:
    """Return the draft for these settings, and load it if it isn't loaded yet."""
    check(settings)
    kind, kept = (settings.draft, settings.draft_model), context.of_model
    if LoadDraft in kept and kept[LoadDraft][0] == kind:
        ready: Drafter = kept[LoadDraft][1]
        return ready
    kept.pop(LoadDraft, None)  # frees its memory before the next one takes more
    begun = time.perf_counter()
    draft = make_draft(settings, context.model, context.emit, task.cancel)
    kept[LoadDraft] = kind, draft
    ms = (time.perf_counter() - begun) * 1000
    yield protocol.DraftReady(settings, draft.weight_bytes, ms, draft.note)
    return draft


def _round(context: Context, draft: Drafter, settings: SpeculationSettings, paused: bool = False) -> Round:
    """A round at the current node; the paths of its drafts are kept as long as the tree."""
    session = context.session
    if DraftPaths not in context.of_tree:
        context.of_tree[DraftPaths] = DraftPaths(session)
    return Round(session, draft, context.of_tree[DraftPaths], settings, paused=paused)


def take_round(context: Context, command: protocol.TakeRound, task: Task) -> Iterator[Record]:
    """Take a round of speculative decoding, or its next stage."""
    session, stopped = context.session, task.cancel.is_set
    round: Round | None = context.of_tree.pop(Round, None)
    if round is None or round.over or round.settings != command.settings:
        draft = yield from _ready(context, command.settings, task)
        round = _round(context, draft, command.settings, paused=command.inside)

    def taken(step: Step) -> Generator[Record, None, bool]:
        return (yield from with_stop(session, step)) or stopped()

    yield from round.run(stopped, taken, stage=command.inside)
    if not round.over:
        context.of_tree[Round] = round


def run_rounds(context: Context, command: protocol.RunRounds, task: Task) -> Iterator[Record]:
    """Take rounds until a token reaches a stop or a breakpoint."""
    session, ended = context.session, False
    if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
        yield full
        return
    breaking = BreakpointEvaluator(session, (command.until, UNSURE if command.over_sure else None))
    draft = yield from _ready(context, command.settings, task)

    def taken(step: Step) -> Generator[Record, None, bool]:
        nonlocal ended
        broken = breaking.evaluate(session.position.node_logits)
        ended = yield from with_stop(session, step, breaking.most)
        return ended or broken or task.cancel.is_set()

    for _ in range(command.plain):
        if (yield from taken(session.step())):
            break
    while not (ended or breaking.hits or task.cancel.is_set()):
        yield from _round(context, draft, command.settings).run(task.cancel.is_set, taken)
    if breaking.hits:
        yield protocol.BreakpointHit(session.node, breaking.hits)
    elif not ended:
        raise Cancelled


def verify_speculation(context: Context, command: protocol.VerifySpeculation, task: Task) -> Iterator[Record]:
    """Compare the rounds' tokens with those of plain steps."""
    yield compare_with_plain(context.session, command.node, task.cancel.is_set)
