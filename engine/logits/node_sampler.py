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

import numpy as np
import numpy.typing as npt

from engine.frozen import frozen
from engine.grammar.states import GrammarState, GrammarStates
from engine.protocol import Candidate, Distribution, GrammarReading, PromptToken
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
    sum_of_products,
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
"""Tokens whose text and bytes are kept together for the next time, some 200 bytes each."""


def entropy_bits(logprobs: Row) -> float:
    """Shannon entropy of a distribution given by its log-probabilities (vocabulary,), in bits: -sum p log2 p."""
    return _entropy_bits(np.exp(logprobs, dtype=np.float64), logprobs, logprobs.astype(np.float64))


def _entropy_bits(probs: Wide, logprobs: Row, wide: Wide, whole: bool = False) -> float:
    """The entropy; `whole` where it is known that no token is barred."""
    if not whole and logprobs.min() == -np.inf:
        live = logprobs > -np.inf
        probs, wide = probs.compress(live), wide.compress(live)
    return max(0.0, -sum_of_products(probs, wide) / LN2)


def entropy_of(probs: Wide) -> float:
    """Shannon entropy of a distribution given by its probabilities, shape (vocabulary,), in bits."""
    left = probs.compress(probs > 0)
    return max(0.0, -sum_of_products(left, np.log(left)) / LN2)


def _ranks(values: list[float]) -> list[int]:
    """Ranks of values in falling order, ties sharing the lowest."""
    ranks: list[int] = []
    for place, value in enumerate(values):
        ranks.append(ranks[-1] if place and value == values[place - 1] else place + 1)
    return ranks


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
        self._known: dict[int, tuple[str, bytes, bool]] = {}
        """Text, bytes and whether it is special, of tokens that were candidates."""
        self._wide = np.empty((2, 0, 0))

    def read(
        self, logits: Sequence[Row] | Rows, logprobs: Sequence[Row] | Rows, k: int
    ) -> Iterator[RowReading]:
        """Read rows, as many at once as stay in the processor's cache.

        Probabilities are computed in arrays that are kept: the system may take new ones of this size back each time,
        and to get them again then costs as much as what is computed in them.

        Args:
            logits: The model's, float32, each of shape (vocabulary,).
            logprobs: Their log-softmax.
            k: Most probable tokens of each.
        """
        for rows, given in zip(blocks(logits), blocks(logprobs), strict=True):
            count, size = rows.shape
            if self._wide.shape[1] < count or self._wide.shape[2] != size:
                self._wide = np.empty((2, count, size))
            probs, wide = self._wide[:, :count]
            wide[:] = given
            np.exp(wide, out=probs)
            best = ranked_rows(rows, min(k, size))
            whole = given.min() > -np.inf
            for ids, row_probs, row, row_wide in zip(best, probs, given, wide, strict=True):
                yield RowReading(ids, row_probs, _entropy_bits(row_probs, row, row_wide, whole))

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
        listed = ids.tolist()
        values = logprobs[ids].tolist()
        ranks = _ranks(logits[ids].tolist())
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
        known, final, cuts = self._known, *_after(sampled, ids, logprobs)
        named = [known.get(token) or self._named(token) for token in ids]
        if pending:
            texts = [self._tokens.text(token, pending)[0] for token in ids]
            named = [(text, raw, special) for text, (_, raw, special) in zip(texts, named, strict=True)]
        rows = zip(ids, named, logprobs, ranks, final, cuts, strict=True)
        # positional arguments and no function of our own: this runs for every candidate of every step
        return tuple(
            [
                Candidate(id, text, raw, special, logprob, math.exp(logprob), rank, drawn, cut)
                for id, (text, raw, special), logprob, rank, drawn, cut in rows
            ]
        )

    def _named(self, token: int) -> tuple[str, bytes, bool]:
        tokens = self._tokens
        named = tokens.text(token, b"")[0], tokens.raw(token), tokens.is_special(token)
        if len(self._known) < MOST_KNOWN:
            self._known[token] = named
        return named

    def distribution(
        self,
        node: int,
        position: int,
        logits: Row,
        logprobs: Row,
        sampled: Sampled,
        k: int,
        pending: bytes,
        reroll: int,
        grammar: GrammarReading | None = None,
        read: RowReading | None = None,
    ) -> Distribution:
        """The model's distribution after a node, and what the sampler makes of it.

        Args:
            node: The node.
            position: Of the token after it.
            logits: The model's, float32, shape (vocabulary,).
            logprobs: Their log-softmax, same shape and dtype.
            sampled: The sampler's result.
            k: Candidates; more than the vocabulary means all.
            pending: Bytes of a character that the text before left unfinished.
            reroll: The re-roll count of the draw.
            grammar: What the grammar allows.
            read: The row's reading, with k of the most probable tokens or more; None to read it here.
        """
        best = min(k, SAMPLERS_BEST) if grammar is not None else 0
        read = next(self.read([logits], [logprobs], k)) if read is None else read
        candidates = self.candidates(logits, logprobs, read.best[:k], pending, sampled, best)
        drawn = sampled.draw is not None  # greedy leaves one token, a candidate
        return Distribution(
            node=node,
            position=position,
            candidates=candidates,
            entropy_bits=read.entropy_bits,
            sampler_entropy_bits=entropy_of(sampled.left) if drawn else 0.0,
            others=logits.size - len(candidates),
            others_prob=_others_mass(read.probs, candidates),
            others_sampler_prob=_others_mass(sampled.probs, candidates) if drawn else 0.0,
            stages=sampled.readings,
            picked=sampled.picked,
            draw=sampled.draw,
            draw_from=sampled.draw_from,
            draw_to=sampled.draw_to,
            reroll=reroll,
            grammar=grammar,
        )

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
                others_prob=_others_mass(read.probs, candidates),
            )


def _after(
    sampled: Sampled | None, ids: list[int], logprobs: list[float]
) -> tuple[list[float], list[str | None]]:
    """For some ids, the probability after the sampler, and the stage that cut the token."""
    if sampled is None:
        return [math.exp(value) for value in logprobs], [None] * len(ids)
    names = (*sampled.names, None)  # -1, not cut, is the last
    return sampled.probs[ids].tolist(), [names[cut] for cut in sampled.cut[ids].tolist()]


def _others_mass(probs: Wide, candidates: tuple[Candidate, ...]) -> float:
    """What the tokens beyond the candidates have together: summed, since 1 less the sum of these is mostly rounding."""
    ids = np.array([candidate.id for candidate in candidates])
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
        grammar = self.grammars.at(settings.grammar, node)
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
            candidates: How many of the best.
            read: What `row_reader.read` gave for its row, where several rows were read at once; None to read it here.
        """
        distribution = self.row_reader.distribution(
            logits.node,
            self._tree[logits.node].depth,
            logits.row,
            logits.logprobs,
            logits.sampled,
            candidates,
            self._pending.get(logits.node, b""),
            logits.reroll,
            logits.grammar.reading(logits.logprobs) if logits.grammar is not None else None,
            read,
        )
        return Position(logits, distribution)
