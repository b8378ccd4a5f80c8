"""Questions about cached or recorded rows of logits, answered with the same draws and without a forward pass.

They ask why a token was chosen, which one other settings would choose, what a grammar allows, and which tokens match.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from engine.errors import COMPUTE_AGAIN, StepError
from engine.grammar.states import beginnings
from engine.grammar_settings import Grammar
from engine.logits.node_sampler import NodeSampler, chosen_candidates
from engine.protocol import (
    Explained,
    FindTokens,
    GrammarExpected,
    ModelFacts,
    StageColumn,
    StageReading,
    TokensFound,
    WhatIfAnswered,
    WhatIfStep,
)
from engine.sampling.pipeline import Stage
from engine.sampling.ranking import Ids, Row, checked_logprobs
from engine.setting import check
from engine.settings import Settings
from engine.task import Stopped, never, poll
from engine.token_texts import TokenQuery, TokenTexts, read_query
from engine.tree import ROOT, TokenPaths


class LogitsSource(Protocol):
    """A session or a `RecordedSource`: the data for questions about the sampler and the vocabulary."""

    @property
    def tree(self) -> TokenPaths:
        """The token tree."""

    @property
    def facts(self) -> ModelFacts:
        """Facts about the model."""

    @property
    def tokens(self) -> TokenTexts:
        """The model's tokens."""

    @property
    def settings(self) -> Settings:
        """Settings that apply now."""

    @property
    def settings_at(self) -> Mapping[int, Settings]:
        """Settings of each node's last distribution."""

    @property
    def pending(self) -> Mapping[int, bytes]:
        """Bytes of an unfinished character at the end of the text up to a node, by node."""

    @property
    def node_reader(self) -> NodeSampler:
        """Sampler after the nodes of the tree."""

    def row_at(self, node: int) -> Row | None:
        """The logits after a node, float32, shape (vocabulary,); None if they are not available."""


def check_node(source: LogitsSource, node: int) -> None:
    """Check that a node exists.

    Raises:
        StepError: The node does not exist.
    """
    if node not in source.tree:
        raise StepError(f"There is no token number {node}.", "Begin with a prompt.")


def kept_row(source: LogitsSource, node: int) -> Row:
    """The logits after a node, float32, shape (vocabulary,); always available for a session's current node.

    Raises:
        StepError: There is no such node, it is the root, or its logits are not available: dropped to stay within the
            memory limit, or inside the prompt, where no rows are stored.
    """
    check_node(source, node)
    if node == ROOT:
        raise StepError(
            "The model predicts nothing for the first token: there is no text before it.",
            "Go to a later one.",
        )
    row = source.row_at(node)
    if row is None and node not in source.settings_at:
        raise StepError("The logits here were not kept.", f"{COMPUTE_AGAIN}.")
    if row is None:
        raise StepError(
            "The logits of this step were dropped to stay within the memory limit.",
            f"{COMPUTE_AGAIN}, or start with more --kept-logits-mib.",
        )
    return row


# ---- why a token was chosen, and which one other settings would choose -------------------------


def explain(
    source: LogitsSource,
    node: int,
    settings: Settings | None = None,
    reroll: int = 0,
    also: Sequence[int] = (),
) -> Explained:
    """Explain the sampler's result after a node, stage by stage.

    Args:
        source: Provides tree and rows of logits; not changed.
        node: The node whose distribution is explained.
        settings: Settings to try with the same draw; None for those that the node was sampled with.
        reroll: Number of re-rolls of that draw.
        also: Tokens to list in addition to the most probable ones.

    Raises:
        StepError: There is no such node, or its logits were dropped to stay within the memory limit.
        SettingsError: A setting is out of its range.
    """
    row = kept_row(source, node)
    used = source.settings_at.get(node, source.settings)
    settings = check(settings or used, source.facts.vocabulary)
    stage_rows: list[tuple[Stage, Row]] = []
    node_logits = source.node_reader.sample(
        node, row, settings, lambda stage, run: stage_rows.append((stage, run.row)), reroll
    )
    also = [token for token in also if 0 <= token < row.size]
    position = source.node_reader.position(node_logits, settings.candidates, also=also)
    occurs: dict[int, list[int]] = {}  # by candidate, its positions among the path's last tokens
    for candidate in position.next.candidates:
        occurs[candidate.id] = []
    path = source.node_reader.context(node, settings, reroll, node_logits.grammar).path
    for at, token in enumerate(path, source.tree[node].depth - len(path)):
        if token in occurs:
            occurs[token].append(at)
    ids = np.array(list(occurs))
    columns = [
        _column(stage, left, reading, ids)
        for (stage, left), reading in zip(stage_rows, position.next.stages, strict=False)
    ]
    return Explained(
        node=node,
        logits=tuple(row[ids].tolist()),
        columns=tuple(columns),
        earlier=tuple(map(tuple, occurs.values())),
        next=position.next,
        used=settings == used,
    )


def _column(stage: Stage, row: Row, reading: StageReading, ids: Ids) -> StageColumn:
    """Values of some tokens after a stage: their logits, or their probabilities among the remaining tokens."""
    left = row[ids].astype(np.float64)
    if not stage.changes_logits:
        top = row.max()
        left = np.exp(left - float(top)) / float(np.exp(row - top).sum(dtype=np.float64))
    values = tuple(
        None if gone else value
        for value, gone in zip(left.tolist(), np.isneginf(row[ids]).tolist(), strict=True)
    )
    return StageColumn(
        reading.name, reading.kept, reading.removed_mass, "logit" if stage.changes_logits else "prob", values
    )


def what_if(source: LogitsSource, settings: Settings, tip: int, stopped: Stopped = never) -> WhatIfAnswered:
    """Find the tokens that the same draws would have picked under other settings, at each step of an unchanged path.

    Args:
        source: Provides tree and rows of logits; not changed.
        settings: Settings to try.
        tip: Last node of the path.
        stopped: Polled before each step.

    Raises:
        StepError: There is no such node.
        SettingsError: A setting is out of its range.
        Cancelled: `stopped` returned True.
    """
    check(settings, source.facts.vocabulary)
    check_node(source, tip)
    begun = time.perf_counter()
    answers: list[WhatIfStep] = []
    dropped: list[int] = []
    for node in source.tree.nodes(tip):
        at = source.tree[node]
        if not at.has_step:
            continue
        poll(stopped)
        row = source.row_at(at.parent)
        if row is None:
            dropped.append(node)
            continue
        picked = source.node_reader.sample(at.parent, row, settings, reroll=at.drawn_reroll).sampled.picked
        text = source.tokens.text(picked, source.pending.get(at.parent, b""))[0]
        answers.append(WhatIfStep(node, picked, text, picked == at.token))
    return WhatIfAnswered(tip, tuple(answers), tuple(dropped), (time.perf_counter() - begun) * 1000)


# ---- what a grammar allows after a node --------------------------------------------------------


def expected(source: LogitsSource, node: int, grammar: Grammar | None = None) -> GrammarExpected:
    """Find what a grammar allows after a node.

    Args:
        source: Provides tree and rows of logits; not changed.
        node: The node; for the root the grammar is only compiled.
        grammar: Grammar to try; None for the one in the settings.

    Raises:
        StepError: There is no such node or no grammar, or the grammar became too complex there.
        SettingsError: The grammar is invalid.
    """
    check_node(source, node)
    if (grammar := grammar or source.settings.grammar) is None:
        raise StepError("No grammar is set.", "Set one first.")
    check(grammar)
    grammars = source.node_reader.grammars
    if node == ROOT:
        grammars.compiled(grammar)
        return GrammarExpected(node, None, ())
    row, state = source.row_at(node), grammars.at(grammar, node)
    logprobs = None if row is None else checked_logprobs(row)
    reading = None if state is None or logprobs is None else state.reading(logprobs)
    if state is None or state.allowed is None:
        return GrammarExpected(node, reading, ())
    return GrammarExpected(node, reading, beginnings(source.tokens, state.allowed, logprobs))


# ---- the vocabulary at a node: the matching tokens, with their probabilities -------------------
# No forward pass is needed: the logits are available. A search of 150,000 tokens takes about 30 ms; the first one reads
# every token's bytes, which takes about half a second and is done in batches, so that it can be stopped.

BATCH = 4096
"""Number of tokens read between two polls of `stopped`: about 15 ms."""


class Vocabulary:
    """The bytes and texts of a model's tokens, in a form for searches; read at the first search."""

    def __init__(self, tokens: TokenTexts) -> None:
        self._tokens = tokens
        self._raws: list[bytes] = []
        self._texts: list[str] = []
        self._lowered: list[str] = []
        """Texts in lower case; the same objects as in `_texts` if those are lower case already."""
        self._continuing: list[int] = []
        """Ids of tokens that may finish a character, so that their text depends on the bytes before them."""

    def read(self, stopped: Stopped = never) -> None:
        """Read the tokens that were not read before.

        Raises:
            Cancelled: `stopped` returned True; the tokens read so far stay.
        """
        while (done := len(self._raws)) < self._tokens.vocabulary:
            poll(stopped)
            ids = range(done, min(done + BATCH, self._tokens.vocabulary))
            raws = [self._tokens.raw(token) for token in ids]
            texts = [self._tokens.text(token)[0] for token in ids]
            self._continuing += [token for token in ids if 0x80 <= (raws[token - done] or b"\0")[0] < 0xC0]
            self._texts += texts
            self._lowered += [lower if (lower := text.lower()) != text else text for text in texts]
            self._raws += raws

    def matching(self, query: TokenQuery, pending: bytes = b"") -> list[int]:
        """Ids of the tokens that match, in ascending order.

        Args:
            query: The search.
            pending: Bytes of an unfinished character in the text before: tokens that finish it match by that character.
        """
        match query.kind:
            case "id":
                return [query.id] if query.id < self._tokens.vocabulary else []
            case "bytes":
                wanted = query.raw
                return [token for token, raw in enumerate(self._raws) if wanted in raw]
            case "text":
                texts = self._texts if query.cased else self._lowered
                if pending:
                    texts = list(texts)
                    for token in self._continuing:
                        text = self._tokens.text(token, pending)[0]
                        texts[token] = text if query.cased else text.lower()
                ids: set[int] = set()
                for part in query.texts:
                    ids.update([token for token, text in enumerate(texts) if part in text])
                return sorted(ids)

    def distances(self, query: TokenQuery, ids: Sequence[int]) -> list[int]:
        """Sort order of the matching tokens: 0 if a token equals the searched text, 1 if only its case differs, 2 if it
        begins with the text, 3 otherwise; a leading space is ignored. 0 if the search has no text."""
        parts = [part for part in query.texts if part]
        if not parts:
            return [0] * len(ids)
        texts, whole = (
            (self._texts if query.cased else self._lowered),
            {*parts, *(f" {part}" for part in parts)},
        )
        begins = tuple(whole)
        return [
            0
            if self._texts[id] in whole
            else 1
            if texts[id] in whole
            else 2
            if texts[id].startswith(begins)
            else 3
            for id in ids
        ]


def find(
    source: LogitsSource, vocabulary: Vocabulary, asked: FindTokens, stopped: Stopped = never
) -> TokensFound:
    """Find tokens, with their probabilities after a node from the model and from the sampler.

    A token that equals the text comes first, then tokens with another case, then tokens that begin with it, then the
    others; each group by probability.

    Args:
        source: Provides tree and rows of logits; not changed.
        vocabulary: The vocabulary of its model.
        asked: The search.
        stopped: Polled while the vocabulary is read for the first time.

    Raises:
        StepError: There is no such node, or its logits are not available.
        Cancelled: `stopped` returned True.
    """
    node = asked.node
    row = kept_row(source, node)
    vocabulary.read(stopped)
    settings = asked.settings or source.settings_at.get(node, source.settings)
    node_logits = source.node_reader.sample(node, row, settings, reroll=asked.reroll)
    pending = source.pending.get(node, b"")
    query = read_query(asked.query)
    found = [token for token in vocabulary.matching(query, pending) if token < row.size]
    ids, distances = np.array(found, np.intp), np.array(vocabulary.distances(query, found), np.intp)
    best = ids[np.lexsort((ids, -row[ids], distances))[: asked.limit]]
    matches = chosen_candidates(source.tokens, node_logits.masses, best, pending, node_logits.sampled)
    mass = float(np.exp(node_logits.masses.logprobs_of(ids), dtype=np.float64).sum())
    return TokensFound(node, asked.query, matches, int(ids.size), min(1.0, mass))
