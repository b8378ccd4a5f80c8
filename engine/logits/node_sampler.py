"""The logits after a node, what the sampler makes of them, and their readings: candidates, entropy, ranks. numpy alone.

The numbers are the model's own: float32 log-softmax of its logits, before any penalty or filter. The sampler's
probabilities are added to them and replace none. Order and ranks go by the logits: logprobs are rounded, and two that
differ may become one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from engine.frozen import frozen
from engine.grammar.states import GrammarState, GrammarStates
from engine.protocol import Candidate, Distribution, PromptToken
from engine.sampling.pipeline import OnStage, Sampled, sample, uniform
from engine.sampling.ranking import (
    Row,
    Rows,
    blocks,
    checked_logprobs,
    log_softmax,
    rank_of,
    ranked,
    ranked_rows,
)
from engine.sampling.stages import Context
from engine.settings import Settings
from engine.token_texts import TokenTexts
from engine.tree import TokenPaths

Wide = npt.NDArray[np.float64]
"""Probabilities or log-probabilities, float64, shape (vocabulary,)."""
LN2 = math.log(2)
SAMPLERS_BEST = 5
"""Candidates that a grammar's distribution has besides the model's own: as a rule it cuts all of these but one or two.
On a vocabulary of 150,000 that takes 0.6 to 0.8 ms where up to 3,000 tokens are kept, 3.4 ms where all are."""


MOST_KNOWN = 2**15
"""Tokens of a model whose text and bytes are kept together for the next time, some 200 bytes each."""
_ID = attrgetter("id")


def entropy_bits(logprobs: Row) -> float:
    """Shannon entropy of a distribution given by its log-probabilities (vocabulary,), in bits: -sum p log2 p."""
    wide = logprobs.astype(np.float64)
    return _entropy_bits(np.exp(wide), wide, barred=logprobs.min() == -np.inf)


def _entropy_bits(probs: Wide, logprobs: Wide, barred: bool) -> float:
    """The entropy of probabilities whose logarithms are given; `barred` where some of these may be -inf."""
    if barred:
        live = logprobs > -np.inf
        probs, logprobs = probs.compress(live), logprobs.compress(live)
    # numpy's BLAS divides a scalar product between threads: see `sum_of_products`
    return max(0.0, -float(np.einsum("i,i", probs, logprobs)) / LN2)


def entropy_of(probs: Wide) -> float:
    """Shannon entropy of a distribution given by its probabilities, shape (vocabulary,), in bits."""
    left = probs if probs.min() > 0 else probs.compress(probs > 0)
    return _entropy_bits(left, np.log(left), barred=False)


@frozen
class RowReading:
    """The readings of a row that every use needs."""

    best: npt.NDArray[np.intp]
    """Ids of the most probable tokens, best first."""
    probs: Wide
    """Probabilities; the array is written again by the next reading."""
    entropy_bits: float


class RowReader:
    """Turns rows into records with the text of one model's tokens.

    Args:
        tokens: The bytes and texts of the model's tokens.
    """

    def __init__(self, tokens: TokenTexts) -> None:
        self._tokens = tokens
        self._wide = np.empty((2, 0, 0))

    def read(
        self, logits: Sequence[Row] | Rows, logprobs: Sequence[Row] | Rows, k: int
    ) -> Iterator[RowReading]:
        """Read rows, as many at once as stay in the processor's cache; each before the next ones are asked for.

        Args:
            logits: The model's, float32, each of shape (vocabulary,).
            logprobs: Their log-softmax.
            k: Most probable tokens of each.
        """
        for rows, given in zip(blocks(logits), blocks(logprobs), strict=True):
            yield from self.read_block(rows, given, k)

    def read_block(self, logits: Rows, logprobs: Rows, k: int) -> list[RowReading]:
        """Read some rows at once.

        Probabilities are computed in arrays that are kept: the system may take new ones of this size back each time,
        and to get them again then costs as much as what is computed in them.

        Args:
            logits: The model's, float32, shape (places, vocabulary).
            logprobs: Their log-softmax.
            k: Most probable tokens of each.
        """
        count, size = logits.shape
        if self._wide.shape[1] < count or self._wide.shape[2] != size:
            self._wide = np.empty((2, count, size))
        probs, wide = self._wide[:, :count]
        wide[:] = logprobs
        np.exp(wide, out=probs)
        k, barred = min(k, size), bool(logprobs.min() == -np.inf)
        best = [ranked(logits[0], k)] if count == 1 else ranked_rows(logits, k)
        read = []
        for ids, row_probs, row_wide in zip(best, probs, wide, strict=True):
            read.append(RowReading(ids, row_probs, _entropy_bits(row_probs, row_wide, barred)))
        return read

    def candidates(
        self,
        logits: Row,
        logprobs: Row,
        ids: npt.NDArray[np.intp],
        pending: bytes,
        sampled: Sampled | None,
        best: int = 0,
    ) -> tuple[Candidate, ...]:
        """The most probable tokens, best first; then the sampler's best and the picked one, where they are others.

        Args:
            logits: The model's, float32, shape (vocabulary,).
            logprobs: Their log-softmax, same shape and dtype.
            ids: The most probable.
            pending: Bytes of a character that the text before left unfinished.
            sampled: The sampler's result, None where nothing is drawn (in the prompt).
            best: Most probable tokens of the sampler's that are listed too.
        """
        listed, values = ids.tolist(), logprobs[ids].tolist()
        ranks: list[int] = []
        before = None
        for place, logit in enumerate(logits[ids].tolist()):
            ranks.append(ranks[-1] if logit == before else place + 1)
            before = logit
        more: list[int] = []
        if sampled is not None:
            kept = ranked(sampled.probs, best) if best else np.empty(0, np.intp)
            more = [*kept[sampled.probs[kept] > 0].tolist(), sampled.picked]
        for token in more:
            if token not in listed:
                listed.append(token)
                values.append(float(logprobs[token]))
                ranks.append(rank_of(logits, token))
        return self._as_candidates(listed, values, ranks, pending, sampled)

    def chosen(
        self, logits: Row, logprobs: Row, ids: npt.NDArray[np.intp], pending: bytes, sampled: Sampled | None
    ) -> tuple[Candidate, ...]:
        """The given tokens as candidates, in their order.

        Args:
            logits: The model's, float32, shape (vocabulary,).
            logprobs: Their log-softmax, same shape and dtype.
            ids: Token ids, shape (tokens,).
            pending: Bytes of a character that the text before left unfinished.
            sampled: The sampler's result, None where nothing is drawn.
        """
        above = logits.size - np.searchsorted(np.sort(logits), logits[ids], side="right")
        return self._as_candidates(
            ids.tolist(), logprobs[ids].tolist(), (above + 1).tolist(), pending, sampled
        )

    def _as_candidates(
        self, ids: list[int], logprobs: list[float], ranks: list[int], pending: bytes, sampled: Sampled | None
    ) -> tuple[Candidate, ...]:
        if sampled is None:
            final, cuts = list(map(math.exp, logprobs)), [-1] * len(ids)
            names: tuple[str | None, ...] = (None,)
        else:
            final, cuts = sampled.probs[ids].tolist(), sampled.cut[ids].tolist()
            names = (*sampled.names, None)  # -1, not cut, is the last
        tokens, known, made = self._tokens, self._tokens.known, []
        for id, logprob, rank, drawn, cut in zip(ids, logprobs, ranks, final, cuts, strict=True):
            if (named := known.get(id)) is None:
                named = tokens.text(id, b"")[0], tokens.raw(id), tokens.is_special(id)
                if len(known) < MOST_KNOWN:
                    known[id] = named
            text, raw, special = named
            if pending:
                text = tokens.text(id, pending)[0]
            # positional arguments: this runs for every candidate of every step
            made.append(
                Candidate(id, text, raw, special, logprob, math.exp(logprob), rank, drawn, names[cut])
            )
        return tuple(made)

    def echoes(
        self, tokens: Sequence[tuple[PromptToken, bytes]], logits: Sequence[Row], k: int
    ) -> Iterator[PromptToken]:
        """Prompt tokens with the model's readings of them.

        Args:
            tokens: The tokens, without readings, each with the bytes that the text before left unfinished.
            logits: The model's at their positions, float32, each of shape (vocabulary,).
            k: Candidates to record.
        """
        logprobs = [row for block in blocks(logits) for row in log_softmax(block)]
        rows = zip(tokens, logits, logprobs, self.read(logits, logprobs, k), strict=True)
        for (token, pending), row, given, read in rows:
            logprob = float(given[token.id])
            candidates = self.candidates(row, given, read.best, pending, None)
            yield replace(
                token,
                logprob=logprob,
                prob=math.exp(logprob),
                rank=rank_of(row, token.id),
                entropy_bits=read.entropy_bits,
                candidates=candidates,
                others_prob=_others_mass(read.probs, np.array(list(map(_ID, candidates)))),
            )


def _others_mass(probs: Wide, ids: npt.NDArray[np.intp]) -> float:
    """The probability of all tokens but some: summed, since 1 less the sum of these is mostly rounding."""
    own = probs[ids]
    probs[ids] = 0.0
    mass = float(probs.sum())
    probs[ids] = own  # in place and back: copying 150,000 would cost more than the sum
    return mass


# ---- the logits after one node, and the distribution that a record has of them -----------------


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

    def rank(self, token: int) -> int:
        """A token's rank among the model's, as `rank_of` has it: that of a candidate is known already."""
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
        self.row_reader = RowReader(tokens)
        self.grammars = GrammarStates(tokens, tree)

    def sample(
        self,
        node: int,
        row: Row,
        settings: Settings,
        watch: OnStage | None = None,
        reroll: int | None = None,
        logprobs: Row | None = None,
        greedy: Sampled | None = None,
    ) -> NodeLogits:
        """Sample what follows a node.

        Args:
            node: The node that the row follows.
            row: The model's logits, float32, shape (vocabulary,).
            settings: The sampler's.
            watch: Receives the run after each stage.
            reroll: The re-roll count of the draw; None for the node's current one.
            logprobs: The checked log-softmax of the row; None to compute it here.
            greedy: As for `sample` of `engine.sampling.pipeline`.

        Raises:
            StepError: The row holds no numbers, or the grammar became too complex here.
            SettingsError: The grammar can't be used.
        """
        at, logprobs = self._tree[node], checked_logprobs(row) if logprobs is None else logprobs
        begun = time.perf_counter()
        grammar = self.grammars.at(settings.grammar, node) if settings.grammar is not None else None
        count = at.reroll if reroll is None else reroll
        draw = uniform(settings.seed, at.depth, count) if settings.temp else 0.0  # greedy uses none
        context = self.context(node, settings, count, grammar)
        sampled = sample(row, logprobs, settings, draw, context, watch, greedy)
        return NodeLogits(node, row, logprobs, sampled, (time.perf_counter() - begun) * 1000, count, grammar)

    def context(self, node: int, settings: Settings, reroll: int, grammar: GrammarState | None) -> Context:
        """What the sampler's stages look at in addition to the row after a node."""
        at = self._tree[node]
        short = at.depth - at.start < settings.min_tokens
        complete = grammar is not None and grammar.complete  # then nothing else may follow
        reach = max(  # tokens that the active penalties look back
            settings.repetition_context_size if settings.repetition_penalty else 0,
            settings.presence_context_size if settings.presence_penalty else 0,
            settings.frequency_context_size if settings.frequency_penalty else 0,
        )
        return Context(
            path=tuple(self._tree.tail(node, reach)) if reach else (),
            barred=self._tokens.eos_ids if short and not complete else (),
            spared=self._tokens.spared if settings.xtc_probability else (),
            chance=uniform(settings.seed, at.depth, reroll, "xtc") if settings.xtc_probability else 1.0,
            allowed=grammar.allowed if grammar is not None else None,
        )

    def position(self, logits: NodeLogits, candidates: int, read: RowReading | None = None) -> Position:
        """Read candidates, entropies and ranks off the logits of a node.

        Args:
            logits: Of the node.
            candidates: How many of the best; more than the vocabulary means all.
            read: The row's reading, with as many of the most probable tokens or more; None to read it here.
        """
        reader, row, logprobs = self.row_reader, logits.row, logits.logprobs
        sampled, grammar = logits.sampled, logits.grammar
        if read is None:
            read = reader.read_block(row[None], logprobs[None], candidates)[0]
        pending = self._pending.get(logits.node, b"")
        best = min(candidates, SAMPLERS_BEST) if grammar is not None else 0
        listed = reader.candidates(row, logprobs, read.best[:candidates], pending, sampled, best)
        ids = np.array(list(map(_ID, listed)))
        drawn = sampled.draw is not None  # greedy leaves one token, a candidate
        distribution = Distribution(
            node=logits.node,
            position=self._tree[logits.node].depth,
            candidates=listed,
            entropy_bits=read.entropy_bits,
            sampler_entropy_bits=entropy_of(sampled.left) if drawn else 0.0,
            others=row.size - len(listed),
            others_prob=_others_mass(read.probs, ids),
            others_sampler_prob=_others_mass(sampled.probs, ids) if drawn else 0.0,
            stages=sampled.readings,
            picked=sampled.picked,
            draw=sampled.draw,
            draw_from=sampled.draw_from,
            draw_to=sampled.draw_to,
            reroll=logits.reroll,
            grammar=grammar.reading(logprobs) if grammar is not None else None,
        )
        return Position(logits, distribution)
