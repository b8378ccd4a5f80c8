"""Search the vocabulary at a node of the tree: the tokens that match, with their probability there.

No forward is needed: the logits are those that were kept. A search of 150,000 tokens takes about 30 ms; the first
one reads every token's bytes, which takes about half a second and is done in batches that can be stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.errors import Cancelled
from engine.logits.source import LogitsSource, Stopped, draw_reroll, kept_row, never
from engine.logits.token_texts import TokenTexts
from engine.protocol import TokensFound
from engine.sampling.ranking import Row
from engine.token_query import TokenQuery, read

Ids = npt.NDArray[np.intp]
BATCH = 4096
"""Tokens that are read between two polls of `stopped`: about 15 ms."""


class Vocabulary:
    """The bytes and texts of a model's tokens, in the form that searches need; read at the first search.

    Args:
        tokens: The model's.
    """

    def __init__(self, tokens: TokenTexts) -> None:
        self._tokens = tokens
        self._raws: list[bytes] = []
        self._texts: list[str] = []
        self._lowered: list[str] = []
        """The same objects as in `_texts` where the text is in lower case already."""
        self._continuing: list[int] = []
        """Ids that may finish a character: their text depends on the bytes before them."""

    def read(self, stopped: Stopped = never) -> None:
        """Read every token that was not read before.

        Raises:
            Cancelled: `stopped` returned True; the tokens read so far stay.
        """
        while (done := len(self._raws)) < self._tokens.vocabulary:
            if stopped():
                raise Cancelled
            ids = range(done, min(done + BATCH, self._tokens.vocabulary))
            raws, texts = (
                [self._tokens.raw(token) for token in ids],
                [self._tokens.text(token)[0] for token in ids],
            )
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
    source: LogitsSource, vocabulary: Vocabulary, node: int, query: str, limit: int, stopped: Stopped = never
) -> TokensFound:
    """Find tokens, with their probability after a node by the model and by the sampler.

    Args:
        source: Provides tree and kept logits; not changed.
        vocabulary: Of its model.
        node: The node before the tokens.
        query: See `engine.token_query.read`; an empty one matches all tokens.
        limit: How many matches to return, the most probable first.
        stopped: Polled while the vocabulary is read for the first time.

    Raises:
        StepError: There is no such node, or its logits aren't kept.
        Cancelled: `stopped` returned True.
    """
    row = kept_row(source, node)
    vocabulary.read(stopped)
    node_logits = source.node_reader.sample(
        node, row, source.settings_at.get(node, source.settings), reroll=draw_reroll(source, node)
    )
    pending = source.pending.get(node, b"")
    ids = np.array(vocabulary.matching(read(query), pending), np.intp)
    ids = ids[ids < row.size]
    best = _best(row, ids, limit)
    matches = source.node_reader.row_reader.chosen(
        row, node_logits.logprobs, best, pending, node_logits.sampled
    )
    mass = float(np.exp(node_logits.logprobs[ids], dtype=np.float64).sum())
    return TokensFound(node, query, matches, int(ids.size), min(1.0, mass))


def _best(logits: Row, ids: Ids, limit: int) -> Ids:
    """The most probable of some tokens, ties by id."""
    values = logits[ids]
    if limit < ids.size:
        edge = np.partition(values, ids.size - limit)[ids.size - limit]
        near = values >= edge
        ids, values = ids[near], values[near]
    best: Ids = ids[np.lexsort((ids, -values))][:limit]
    return best
