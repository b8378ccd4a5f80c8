"""The logits after a node: the sampler's result, statistics (candidates, entropy, ranks), and lossless packing into
records. Uses numpy, not MLX.

Logprobs are the model's own: float32 log-softmax of its logits, before any penalty or filter. The sampler's
probabilities are listed in addition. Order and ranks follow the logits: logprobs are rounded, so that two different
logits may have the same logprob.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from engine.errors import StepError
from engine.grammar.states import GrammarState, GrammarStates
from engine.protocol import (
    Candidate,
    Candidates,
    Distribution,
    LogitsRow,
    ModelVocabulary,
    PromptToken,
    RowType,
)
from engine.sampling.pipeline import OnStage, Sampled, StageContext, sample, uniform
from engine.sampling.ranking import (
    LN2,
    Ids,
    Masses,
    Row,
    blocks,
    checked_masses,
    rank_of,
    ranked,
    ranked_rows,
    sum_of_products,
)
from engine.settings import Settings
from engine.token_texts import TokenTexts
from engine.tree import TokenPaths

Wide = npt.NDArray[np.float64]
"""Probabilities or log-probabilities, float64, shape (vocabulary,)."""
SAMPLERS_BEST = 5
"""Number of the sampler's candidates that a distribution under a grammar lists in addition to the model's: usually the
grammar cuts all but one or two of the model's."""
MOST_KNOWN = 2**15
"""Maximum number of tokens with cached text and bytes, some 200 bytes each."""
LogprobsOf = Callable[[Ids], Row]
"""Returns the log-softmax of the given tokens, float32, shape (tokens,)."""
_ID = attrgetter("id")


def entropy_of(probs: Wide) -> float:
    """Shannon entropy in bits of a distribution, given as probabilities of shape (vocabulary,)."""
    left = probs if probs.min() > 0 else probs.compress(probs > 0)
    return max(0.0, -sum_of_products(left, np.log(left))) / LN2


# ---- candidates: tokens with their texts, from rows of logits -----------------------------------


def list_candidates(
    tokens: TokenTexts,
    logits: Row,
    logprobs_of: LogprobsOf,
    ids: Ids,
    pending: bytes,
    sampled: Sampled | None,
    best: int = 0,
    also: Sequence[int] = (),
) -> tuple[Candidate, ...]:
    """List the most probable tokens, best first; then the sampler's best, the picked one and given ones, each only
    once.

    Args:
        tokens: The model's tokens.
        logits: The model's logits, float32, shape (vocabulary,).
        logprobs_of: Returns the log-softmax of given tokens.
        ids: Ids of the most probable tokens.
        pending: Bytes of an unfinished character in the text before.
        sampled: The sampler's result; None if nothing is sampled (in the prompt).
        best: Number of the sampler's most probable tokens to list too.
        also: Additional tokens to list.
    """
    listed, values = ids.tolist(), logprobs_of(ids).tolist()
    ranks: list[int] = []
    before = None
    for place, logit in enumerate(logits[ids].tolist()):
        ranks.append(ranks[-1] if logit == before else place + 1)
        before = logit
    more: list[int] = []
    if sampled is not None:
        kept = ranked(sampled.shares, best) if best else np.empty(0, np.intp)
        kept = kept[sampled.shares[kept] > 0]
        more = [*(kept if sampled.ids is None else sampled.ids[kept]).tolist(), sampled.picked]
    for token in (*more, *also):
        if token not in listed:
            listed.append(token)
            values += logprobs_of(np.array([token])).tolist()
            ranks.append(rank_of(logits, token))
    return _as_candidates(tokens, listed, values, ranks, pending, sampled)


def chosen_candidates(
    tokens: TokenTexts, masses: Masses, ids: Ids, pending: bytes, sampled: Sampled | None
) -> tuple[Candidate, ...]:
    """List the given tokens as candidates, in their order.

    Args:
        tokens: The model's tokens.
        masses: The model's logits and their probabilities.
        ids: Token ids, shape (tokens,).
        pending: Bytes of an unfinished character in the text before.
        sampled: The sampler's result; None if nothing is sampled.
    """
    logits = masses.logits
    above = logits.size - np.searchsorted(np.sort(logits), logits[ids], side="right")
    return _as_candidates(
        tokens, ids.tolist(), masses.logprobs_of(ids).tolist(), (above + 1).tolist(), pending, sampled
    )


def _as_candidates(
    tokens: TokenTexts,
    ids: list[int],
    logprobs: list[float],
    ranks: list[int],
    pending: bytes,
    sampled: Sampled | None,
) -> tuple[Candidate, ...]:
    if sampled is None:
        final, cuts = list(map(math.exp, logprobs)), [-1] * len(ids)
        names: tuple[str | None, ...] = (None,)
    else:
        final, cuts = sampled.probs_of(ids), sampled.cut[ids].tolist()
        names = (*sampled.names, None)  # index -1, not cut, is the last
    known, made = tokens.known, []
    for id, logprob, rank, drawn, cut in zip(ids, logprobs, ranks, final, cuts, strict=True):
        if (named := known.get(id)) is None:
            named = tokens.text(id, b"")[0], tokens.raw(id), tokens.is_special(id)
            if len(known) < MOST_KNOWN:
                known[id] = named
        text, raw, special = named
        if pending:
            text = tokens.text(id, pending)[0]
        # positional arguments, since this runs for every candidate of every step
        made.append(Candidate(id, text, raw, special, logprob, math.exp(logprob), rank, drawn, names[cut]))
    return tuple(made)


def echoes(
    tokens: TokenTexts, prompt: Sequence[tuple[PromptToken, bytes]], logits: Sequence[Row], k: int
) -> Iterator[PromptToken]:
    """Add the model's logprobs, ranks and candidates to prompt tokens.

    Args:
        tokens: The model's tokens.
        prompt: The prompt tokens, each with the bytes of an unfinished character in the text before it.
        logits: The model's logits at their positions, float32, each of shape (vocabulary,).
        k: Number of candidates to record.
    """
    given = iter(prompt)
    for block in blocks(logits):
        for row, best in zip(block, ranked_rows(block, k), strict=True):
            (token, pending), masses = next(given), Masses(row)
            logprob = masses.logprob(token.id)
            candidates = list_candidates(tokens, row, masses.logprobs_of, best, pending, None)
            yield replace(
                token,
                logprob=logprob,
                prob=math.exp(logprob),
                rank=rank_of(row, token.id),
                entropy_bits=masses.entropy_bits,
                candidates=Candidates(candidates),
                others_prob=masses.without(np.array(list(map(_ID, candidates)))),
            )


# ---- the logits after one node, and the distribution in its record -----------------------------


class NodeLogits(Struct, frozen=True):
    """The logits after a node and the sampler's result: enough for the next step, but not yet a record."""

    node: int
    masses: Masses
    """The model's logits and their probabilities."""
    sampled: Sampled
    sample_ms: float
    """Milliseconds of the sampler, including the sums over the row that the statistics use too."""
    reroll: int = 0
    """Re-roll count of the draw."""
    grammar: GrammarState | None = None
    """State of the grammar; None if there is none, or before it begins."""

    @property
    def row(self) -> Row:
        """The model's logits, float32, shape (vocabulary,)."""
        return self.masses.logits

    @property
    def logprobs(self) -> Row:
        """The log-softmax of the logits, float32, shape (vocabulary,)."""
        return self.masses.logprobs


class Position(Struct, frozen=True):
    """A node's logits, and the distribution in its record."""

    node_logits: NodeLogits
    next: Distribution

    def rank(self, token: int) -> int:
        """Rank of a token by the model's logits; see `rank_of`. A candidate's rank is known already."""
        for each in self.next.candidates:
            if each.id == token and each.rank:
                return each.rank
        return rank_of(self.node_logits.row, token)


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
        self.grammars = GrammarStates(tokens, tree)

    def sample(
        self, node: int, row: Row, settings: Settings, watch: OnStage | None = None, reroll: int | None = None
    ) -> NodeLogits:
        """Sample the token after a node.

        Args:
            node: The node that the row follows.
            row: The model's logits, float32, shape (vocabulary,).
            settings: Settings of the sampler.
            watch: Receives the run after each stage.
            reroll: The re-roll count of the draw; None for the node's current one.

        Raises:
            StepError: The row contains values that are not numbers, or the grammar became too complex here.
            SettingsError: The grammar is invalid.
        """
        at, masses = self._tree[node], checked_masses(row)
        begun = time.perf_counter()
        grammar = self.grammars.at(settings.grammar, node)
        count = at.reroll if reroll is None else reroll
        draw = uniform(settings.seed, at.depth, count) if settings.temp else 0.0  # greedy uses none
        context = self.context(node, settings, count, grammar)
        sampled = sample(masses, settings, draw, context, watch)
        return NodeLogits(node, masses, sampled, (time.perf_counter() - begun) * 1000, count, grammar)

    def expected(self, node: int, row: Row, settings: Settings) -> Wide:
        """The probabilities of the token after a node, averaged over all re-rolls.

        XTC is applied at random to each draw, and `Sampled` has the probabilities with or without it: this is their
        mean.

        Args:
            node: The node that the row follows.
            row: The model's logits, float32, shape (vocabulary,).
            settings: Settings of the sampler.

        Returns:
            Probabilities, float64, shape (vocabulary,).

        Raises:
            StepError: See `sample`.
            SettingsError: See `sample`.
        """
        masses, heads = checked_masses(row), settings.xtc_probability
        grammar = self.grammars.at(settings.grammar, node)
        context = self.context(node, settings, 0, grammar)
        # the probability of XTC's toss, and a random number that gives it
        tosses = ((heads, 0.0), (1 - heads, 1.0))
        probs: list[Wide] = [
            share * sample(masses, settings, 0.0, replace(context, chance=chance)).probs
            for share, chance in tosses
            if share
        ]
        return sum(probs[1:], probs[0])

    def context(
        self, node: int, settings: Settings, reroll: int, grammar: GrammarState | None
    ) -> StageContext:
        """Inputs of the sampler's stages in addition to the row after a node."""
        at = self._tree[node]
        short = at.depth - at.start < settings.min_tokens
        complete = grammar is not None and grammar.complete  # then nothing else may follow
        reach = max(  # number of recent tokens that the active penalties use
            settings.repetition_context_size if settings.repetition_penalty else 0,
            settings.presence_context_size if settings.presence_penalty else 0,
            settings.frequency_context_size if settings.frequency_penalty else 0,
        )
        return StageContext(
            path=tuple(self._tree.tail(node, reach)) if reach else (),
            barred=self._tokens.eos_ids if short and not complete else (),
            spared=self._tokens.spared if settings.xtc_probability else (),
            chance=uniform(settings.seed, at.depth, reroll, "xtc") if settings.xtc_probability else 1.0,
            allowed=grammar.allowed if grammar is not None else None,
        )

    def position(
        self, logits: NodeLogits, candidates: int, ids: Ids | None = None, also: Sequence[int] = ()
    ) -> Position:
        """Compute candidates, entropies and ranks from the logits of a node.

        Args:
            logits: The node's logits.
            candidates: Number of the most probable tokens to list; all if it exceeds the vocabulary.
            ids: The most probable tokens, at least as many, best first; None to find them here.
            also: Additional tokens to list.
        """
        row, masses, sampled, grammar = logits.row, logits.masses, logits.sampled, logits.grammar
        ids = ranked(row, candidates) if ids is None else ids[:candidates]
        pending = self._pending.get(logits.node, b"")
        best = min(candidates, SAMPLERS_BEST) if grammar is not None else 0
        listed = list_candidates(self._tokens, row, masses.logprobs_of, ids, pending, sampled, best, also)
        shown = ids if len(listed) == ids.size else np.array(list(map(_ID, listed)))
        drawn = sampled.draw is not None  # greedy leaves a single token, which is a candidate
        distribution = Distribution(
            node=logits.node,
            position=self._tree[logits.node].depth,
            candidates=Candidates(listed),
            entropy_bits=masses.entropy_bits,
            sampler_entropy_bits=entropy_of(sampled.shares) if drawn else 0.0,
            others=row.size - len(listed),
            others_prob=masses.without(shown),
            others_sampler_prob=sampled.prob_without(shown) if drawn else 0.0,
            stages=sampled.readings,
            picked=sampled.picked,
            draw=sampled.draw,
            draw_from=sampled.draw_from,
            draw_to=sampled.draw_to,
            reroll=logits.reroll,
            grammar=grammar.reading(masses.logprobs) if grammar is not None else None,
        )
        return Position(logits, distribution)


# ---- rows and vocabularies, packed without loss ------------------------------------------------
# The tokens that a filter keeps, and the probability that it removes, depend on sums over the complete row: a rounded
# row would give other numbers, and near a filter's edge other tokens. So nothing is rounded. The logits of a model that
# computes in bfloat16 or float16 have 16 bits, those of one that computes in float32 have 32. Bytes of equal
# significance are stored together, since the highest ones repeat: a row of the bundled model's 4,096 tokens takes
# 5.6 KiB in bfloat16 and 13.8 KiB in float32 (tests/engine/logits/test_packing.py), and a third more in an uncompressed
# file.

MOST_TOKENS = 2**19
"""Maximum vocabulary that is unpacked; the largest in use have 262,144 tokens."""
MOST_TEXT = 16 * 2**20
"""Maximum total bytes of its tokens; the largest vocabularies in use have 2 MiB."""
LEVEL = 1
"""zlib's compression level: level 6 takes twice the time, 2 ms instead of 0.9, and saves 2 to 4 %."""
_BYTES: dict[RowType, int] = {"bfloat16": 2, "float16": 2, "float32": 4}


def pack_row(node: int, row: Row) -> LogitsRow:
    """Pack the logits after a node.

    Args:
        node: The node.
        row: Logits, float32, shape (vocabulary,).
    """
    dtype = _smallest(row)
    numbers = row.astype("<f2" if dtype == "float16" else "<f4").view(np.uint8).reshape(row.size, -1)
    planes = numbers[:, -_BYTES[dtype] :].T
    return LogitsRow(node, row.size, dtype, zlib.compress(planes.tobytes(), LEVEL))


def _smallest(row: Row) -> RowType:
    bits = row.view(np.uint32)
    if not (bits & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        half = row.astype(np.float16).astype(np.float32)
    return "float16" if (half.view(np.uint32) == bits).all() else "float32"


def unpack_row(record: LogitsRow) -> Row:
    """Unpack a row of logits, float32, shape (vocabulary,), equal to the packed row in every bit.

    Raises:
        StepError: Its bytes don't have the length for its number of tokens, or are damaged.
    """
    width = _BYTES[record.dtype]
    planes = _inflated(record.packed, record.tokens, record.tokens * width)
    numbers = np.zeros((record.tokens, 2 if record.dtype == "float16" else 4), np.uint8)
    numbers[:, -width:] = np.frombuffer(planes, np.uint8).reshape(width, record.tokens).T
    row = numbers.view("<f2" if record.dtype == "float16" else "<f4").reshape(record.tokens)
    return np.asarray(row, np.float32)


def pack_vocabulary(tokens: TokenTexts) -> ModelVocabulary:
    """Pack the tokens of a model; of a token with more than 65,535 bytes, which no model has, only the first bytes."""
    ids = range(tokens.vocabulary)
    raws = [tokens.raw(token)[:0xFFFF] for token in ids]
    sizes = np.array([len(raw) for raw in raws], "<u2").tobytes()
    special = tuple(token for token in ids if tokens.is_special(token))
    packed = zlib.compress(sizes + b"".join(raws))
    return ModelVocabulary(tokens.vocabulary, packed, special, tokens.spared)


def unpack_vocabulary(record: ModelVocabulary) -> list[bytes]:
    """Unpack the bytes of each token.

    Raises:
        StepError: The record is damaged.
    """
    content = _inflated(record.packed, record.tokens, MOST_TEXT + 2 * MOST_TOKENS, exact=False)
    if len(content) < 2 * record.tokens:
        raise _damaged()
    sizes: npt.NDArray[np.uint16] = np.frombuffer(content, "<u2", record.tokens)
    ends = (2 * record.tokens + np.cumsum(sizes, dtype=np.int64)).tolist()
    if ends[-1] != len(content):
        raise _damaged()
    return [content[begin:end] for begin, end in zip([2 * record.tokens, *ends], ends, strict=False)]


def _inflated(packed: bytes, tokens: int, most: int, exact: bool = True) -> bytes:
    """Decompress, but never to more bytes than a record with this number of tokens can have."""
    if not 0 < tokens <= MOST_TOKENS:
        raise StepError(
            f"The logits recorded here are of {tokens:,} tokens; at most {MOST_TOKENS:,} are read.", _MEND
        )
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(packed, most + 1)
    except zlib.error:
        raise _damaged() from None
    if not inflater.eof or len(content) > most or (exact and len(content) < most):
        raise _damaged()
    return content


_MEND = "Take another copy of the recording, or continue live with its model."


def _damaged() -> StepError:
    return StepError("The logits recorded here are damaged.", _MEND)
