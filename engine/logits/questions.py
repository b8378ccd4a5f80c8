"""Questions about kept rows of logits, live or recorded: answered with the same draws and without a forward pass.

They ask why a token was chosen, which one other settings would choose, what a grammar expects, and which tokens match.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from engine.errors import COMPUTE_AGAIN, Cancelled, StepError
from engine.grammar.states import Beginnings
from engine.grammar_settings import Grammar
from engine.logits.node_sampler import NodeSampler
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
from engine.sampling.ranking import Ids, Row, checked_logprobs
from engine.sampling.stages import Stage
from engine.setting import check
from engine.settings import Settings
from engine.task import Stopped, never
from engine.token_texts import TokenQuery, TokenTexts, read_query
from engine.tree import ROOT, TokenPaths


class LogitsSource(Protocol):
    """A session or a `RecordedSource`: all that questions about the sampler and the vocabulary need."""

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
        """Settings in force."""

    @property
    def settings_at(self) -> Mapping[int, Settings]:
        """Settings of each node's last distribution."""

    @property
    def pending(self) -> Mapping[int, bytes]:
        """Bytes of a character that the text up to a node leaves unfinished, by node."""

    @property
    def node_reader(self) -> NodeSampler:
        """Sampler after the nodes of the tree."""

    def row_at(self, node: int) -> Row | None:
        """The kept logits after a node, float32, shape (vocabulary,); None if they aren't kept."""


def check_node(source: LogitsSource, node: int) -> None:
    """Check that a node exists.

    Raises:
        StepError: It does not.
    """
    if node not in source.tree:
        raise StepError(f"There is no token number {node}.", "Begin with a prompt.")


def kept_row(source: LogitsSource, node: int) -> Row:
    """The kept logits after a node, float32, shape (vocabulary,); the current node of a session always has some.

    Raises:
        StepError: There is no such node, it is the root, or its logits aren't kept: dropped to hold the memory bound,
            or inside the prompt, whose chunks leave none behind.
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
        source: Provides tree and kept logits; not changed.
        node: The node whose distribution is explained.
        settings: Settings to try with the same draw; None for those that were used there.
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
    occurs: dict[int, list[int]] = {}  # by candidate, its positions among the last ones of the path
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
    """The values of some tokens after a stage: their logits, or their share of what the stage left."""
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
    """Find what the same draws would have picked under other settings, at each step of a path that stays as it is.

    Args:
        source: Provides tree and kept logits; not changed.
        settings: Settings to try.
        tip: The last node of the path.
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
        if stopped():
            raise Cancelled
        row = source.row_at(at.parent)
        if row is None:
            dropped.append(node)
            continue
        picked = source.node_reader.sample(at.parent, row, settings, reroll=at.drawn_reroll).sampled.picked
        text = source.tokens.text(picked, source.pending.get(at.parent, b""))[0]
        answers.append(WhatIfStep(node, picked, text, picked == at.token))
    return WhatIfAnswered(tip, tuple(answers), tuple(dropped), (time.perf_counter() - begun) * 1000)


# ---- what a grammar expects after a node -------------------------------------------------------

_beginnings: list[Beginnings] = []
"""First characters of the tokens of the last vocabulary."""


def expected(source: LogitsSource, node: int, grammar: Grammar | None = None) -> GrammarExpected:
    """Find what a grammar expects after a node.

    Args:
        source: Provides tree and kept logits; not changed.
        node: The node; with the root a grammar is only compiled.
        grammar: A grammar to try; None for the one in force.

    Raises:
        StepError: There is no such node, no grammar, or it became too complex there.
        SettingsError: The grammar can't be used.
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
    if not _beginnings or _beginnings[0].tokens is not source.tokens:
        _beginnings[:] = [Beginnings(source.tokens)]
    return GrammarExpected(node, reading, _beginnings[0].of(state.allowed, logprobs))


# ---- the vocabulary at a node: the tokens that match, with their probability there -------------
# No forward is needed: the logits are those that were kept. A search of 150,000 tokens takes about 30 ms; the first
# one reads every token's bytes, which takes about half a second and is done in batches that can be stopped.

BATCH = 4096
"""Number of tokens read between two polls of `stopped`: about 15 ms."""


class Vocabulary:
    """The bytes and texts of a model's tokens, in the form that searches need; read at the first search.

    Args:
        tokens: The model's tokens.
    """

    def __init__(self, tokens: TokenTexts) -> None:
        self._tokens = tokens
        self._raws: list[bytes] = []
        self._texts: list[str] = []
        self._lowered: list[str] = []
        """Texts in lower case; the same objects as in `_texts` if they are that already."""
        self._continuing: list[int] = []
        """Ids of tokens that may finish a character: their text depends on the bytes before them."""

    def read(self, stopped: Stopped = never) -> None:
        """Read every token that was not read before.

        Raises:
            Cancelled: `stopped` returned True; the tokens read so far stay.
        """
        while (done := len(self._raws)) < self._tokens.vocabulary:
            if stopped():
                raise Cancelled
            ids = range(done, min(done + BATCH, self._tokens.vocabulary))
            raws = [self._tokens.raw(token) for token in ids]
            texts = [self._tokens.text(token)[0] for token in ids]
            self._continuing += [token for token in ids if 0x80 <= (raws[token - done] or b"\0")[0] < 0xC0]
            self._texts += texts
            self._lowered += [lower if (lower := text.lower()) != text else text for text in texts]
            self._raws += raws

    def matching(self, query: TokenQuery, pending: bytes = b"") -> list[int]:
        """Ids of the tokens that match, in rising order.

        Args:
            query: The search.
            pending: Bytes that the text before left unfinished: tokens that finish them match by the character.
        """
        match query.kind:
            case "id":
                return [query.id] if query.id < self._tokens.vocabulary else []
            case "bytes":
                wanted = query.raw
                return [token for token, raw in enumerate(self._raws) if wanted in raw]
            case "text":
                return self._containing(query, pending)

    def _containing(self, query: TokenQuery, pending: bytes) -> list[int]:
        texts: Sequence[str] = self._texts if query.cased else self._lowered
        if pending:
            texts = list(texts)
            for token in self._continuing:
                text = self._tokens.text(token, pending)[0]
                texts[token] = text if query.cased else text.lower()
        ids: set[int] = set()
        for part in query.texts:
            ids.update([token for token, text in enumerate(texts) if part in text])
        return sorted(ids)


def find(
    source: LogitsSource, vocabulary: Vocabulary, asked: FindTokens, stopped: Stopped = never
) -> TokensFound:
    """Find tokens, with their probability after a node by the model and by the sampler.

    Args:
        source: Provides tree and kept logits; not changed.
        vocabulary: Of its model.
        asked: The question.
        stopped: Polled while the vocabulary is read for the first time.

    Raises:
        StepError: There is no such node, or its logits aren't kept.
        Cancelled: `stopped` returned True.
    """
    node = asked.node
    row = kept_row(source, node)
    vocabulary.read(stopped)
    settings = asked.settings or source.settings_at.get(node, source.settings)
    node_logits = source.node_reader.sample(node, row, settings, reroll=asked.reroll)
    pending = source.pending.get(node, b"")
    ids = np.array(vocabulary.matching(read_query(asked.query), pending), np.intp)
    ids = ids[ids < row.size]
    best = _best(row, ids, asked.limit)
    matches = source.node_reader.row_reader.chosen(node_logits.masses, best, pending, node_logits.sampled)
    mass = float(np.exp(node_logits.masses.logprobs_of(ids), dtype=np.float64).sum())
    return TokensFound(node, asked.query, matches, int(ids.size), min(1.0, mass))


def _best(logits: Row, ids: Ids, limit: int) -> Ids:
    """The most probable of some tokens, ties by id."""
    values = logits[ids]
    if limit < ids.size:
        edge = np.partition(values, ids.size - limit)[ids.size - limit]
        near = values >= edge
        ids, values = ids[near], values[near]
    best: Ids = ids[np.lexsort((ids, -values))][:limit]
    return best
