"""The logits after a node, what the sampler makes of them, and their readings: candidates, entropy, ranks. numpy alone.

The numbers are the model's own: float32 log-softmax of its logits, before any penalty or filter. The sampler's
probabilities are added to them and replace none. Order and ranks go by the logits: logprobs are rounded, and two that
differ may become one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from engine.grammar.states import GrammarState, GrammarStates
from engine.protocol import Candidate, Candidates, Distribution, PromptToken
from engine.sampling.pipeline import OnStage, Sampled, sample, uniform
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
from engine.sampling.stages import StageContext
from engine.settings import Settings
from engine.token_texts import TokenTexts
from engine.tree import TokenPaths

Wide = npt.NDArray[np.float64]
"""Probabilities or log-probabilities, float64, shape (vocabulary,)."""
SAMPLERS_BEST = 5
"""Candidates that a grammar's distribution has besides the model's own: as a rule it cuts all of these but one or two.
"""
MOST_KNOWN = 2**15
"""Tokens of a model whose text and bytes are kept together for the next time, some 200 bytes each."""
LogprobsOf = Callable[[Ids], Row]
"""Returns the log-softmax of the given tokens, float32, shape (tokens,)."""
_ID = attrgetter("id")


def entropy_of(probs: Wide) -> float:
    """Shannon entropy of a distribution given by its probabilities, shape (vocabulary,), in bits."""
    left = probs if probs.min() > 0 else probs.compress(probs > 0)
    return max(0.0, -sum_of_products(left, np.log(left))) / LN2


class RowReader:
    """Turns rows into records with the text of one model's tokens.

    Args:
        tokens: The bytes and texts of the model's tokens.
    """

    def __init__(self, tokens: TokenTexts) -> None:
        self._tokens = tokens

    def candidates(
        self,
        logits: Row,
        logprobs_of: LogprobsOf,
        ids: Ids,
        pending: bytes,
        sampled: Sampled | None,
        best: int = 0,
        also: Sequence[int] = (),
    ) -> tuple[Candidate, ...]:
        """The most probable tokens, best first; then the sampler's best, the picked one and given ones, where they are
        others.

        Args:
            logits: The model's, float32, shape (vocabulary,).
            logprobs_of: The log-softmax of some tokens.
            ids: The most probable.
            pending: Bytes of a character that the text before left unfinished.
            sampled: The sampler's result, None where nothing is drawn (in the prompt).
            best: Most probable tokens of the sampler's that are listed too.
            also: More tokens that are.
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
        return self._as_candidates(listed, values, ranks, pending, sampled)

    def chosen(
        self, masses: Masses, ids: Ids, pending: bytes, sampled: Sampled | None
    ) -> tuple[Candidate, ...]:
        """The given tokens as candidates, in their order.

        Args:
            masses: The model's logits and their probabilities.
            ids: Token ids, shape (tokens,).
            pending: Bytes of a character that the text before left unfinished.
            sampled: The sampler's result, None where nothing is drawn.
        """
        logits = masses.logits
        above = logits.size - np.searchsorted(np.sort(logits), logits[ids], side="right")
        return self._as_candidates(
            ids.tolist(), masses.logprobs_of(ids).tolist(), (above + 1).tolist(), pending, sampled
        )

    def _as_candidates(
        self, ids: list[int], logprobs: list[float], ranks: list[int], pending: bytes, sampled: Sampled | None
    ) -> tuple[Candidate, ...]:
        if sampled is None:
            final, cuts = list(map(math.exp, logprobs)), [-1] * len(ids)
            names: tuple[str | None, ...] = (None,)
        else:
            final, cuts = sampled.probs_of(ids), sampled.cut[ids].tolist()
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
        given = iter(tokens)
        for block in blocks(logits):
            for row, best in zip(block, ranked_rows(block, k), strict=True):
                (token, pending), masses = next(given), Masses(row)
                logprob = masses.logprob(token.id)
                candidates = self.candidates(row, masses.logprobs_of, best, pending, None)
                yield replace(
                    token,
                    logprob=logprob,
                    prob=math.exp(logprob),
                    rank=rank_of(row, token.id),
                    entropy_bits=masses.entropy_bits,
                    candidates=Candidates(candidates),
                    others_prob=masses.without(np.array(list(map(_ID, candidates)))),
                )


# ---- the logits after one node, and the distribution that a record has of them -----------------


class NodeLogits(Struct, frozen=True):
    """The logits after a node and the sampler's result: enough for the next step, not yet for a record."""

    node: int
    masses: Masses
    """The model's logits and their probabilities."""
    sampled: Sampled
    sample_ms: float
    """With the sums over the row, which the readings use, too."""
    reroll: int = 0
    """The re-roll count that the draw was made with."""
    grammar: GrammarState | None = None
    """The grammar's state; None without one, and before it begins."""

    @property
    def row(self) -> Row:
        """The model's logits, float32, shape (vocabulary,)."""
        return self.masses.logits

    @property
    def logprobs(self) -> Row:
        """Their log-softmax, float32, shape (vocabulary,)."""
        return self.masses.logprobs


class Position(Struct, frozen=True):
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
    ) -> NodeLogits:
        """Sample what follows a node.

        Args:
            node: The node that the row follows.
            row: The model's logits, float32, shape (vocabulary,).
            settings: The sampler's.
            watch: Receives the run after each stage.
            reroll: The re-roll count of the draw; None for the node's current one.

        Raises:
            StepError: The row holds values that are not numbers, or the grammar became too complex here.
            SettingsError: The grammar can't be used.
        """
        at, masses = self._tree[node], checked_masses(row)
        begun = time.perf_counter()
        grammar = self.grammars.at(settings.grammar, node) if settings.grammar is not None else None
        count = at.reroll if reroll is None else reroll
        draw = uniform(settings.seed, at.depth, count) if settings.temp else 0.0  # greedy uses none
        context = self.context(node, settings, count, grammar)
        sampled = sample(masses, settings, draw, context, watch)
        return NodeLogits(node, masses, sampled, (time.perf_counter() - begun) * 1000, count, grammar)

    def expected(self, node: int, row: Row, settings: Settings) -> Wide:
        """The probabilities of what follows a node, over all re-rolls.

        XTC tosses a coin for each draw, while `Sampled` has the probabilities after one toss: these are their mean.

        Args:
            node: The node that the row follows.
            row: The model's logits, float32, shape (vocabulary,).
            settings: The sampler's.

        Returns:
            Shape (vocabulary,).

        Raises:
            StepError: As `sample`.
            SettingsError: As `sample`.
        """
        masses, heads = checked_masses(row), settings.xtc_probability
        grammar = self.grammars.at(settings.grammar, node) if settings.grammar is not None else None
        context = self.context(node, settings, 0, grammar)
        tosses = (
            (heads, 0.0),
            (1 - heads, 1.0),
        )  # the probability of a toss, and a random number that gives it
        probs: list[Wide] = [
            share * sample(masses, settings, 0.0, replace(context, chance=chance)).probs
            for share, chance in tosses
            if share
        ]
        return sum(probs[1:], probs[0])

    def context(
        self, node: int, settings: Settings, reroll: int, grammar: GrammarState | None
    ) -> StageContext:
        """What the sampler's stages look at in addition to the row after a node."""
        at = self._tree[node]
        short = at.depth - at.start < settings.min_tokens
        complete = grammar is not None and grammar.complete  # then nothing else may follow
        reach = max(  # tokens that the active penalties look back
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
        """Read candidates, entropies and ranks off the logits of a node.

        Args:
            logits: Of the node.
            candidates: How many of the best; more than the vocabulary means all.
            ids: The most probable tokens, as many or more, best first; None to find them here.
            also: Tokens that are listed beside them.
        """
        row, masses, sampled, grammar = logits.row, logits.masses, logits.sampled, logits.grammar
        ids = ranked(row, candidates) if ids is None else ids[:candidates]
        pending = self._pending.get(logits.node, b"")
        best = min(candidates, SAMPLERS_BEST) if grammar is not None else 0
        listed = self.row_reader.candidates(row, masses.logprobs_of, ids, pending, sampled, best, also)
        shown = ids if len(listed) == ids.size else np.array(list(map(_ID, listed)))
        drawn = sampled.draw is not None  # greedy leaves one token, a candidate
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
