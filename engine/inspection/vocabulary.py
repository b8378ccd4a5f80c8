"""Search the vocabulary at a node of the tree: which tokens match, and what model and sampler make of them there.

No forward is needed: the logits are those that were kept. A search of 150,000 tokens takes about 30 ms; the first
one reads every token's bytes, which takes about half a second and is done in batches that can be stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.errors import Cancelled
from engine.inspection.explain import kept_row, turn_of
from engine.model.forward import Stopped, never
from engine.model.tokens import Tokens
from engine.records import TokensFound
from engine.sampling.ranking import Row
from engine.session.session import Session
from engine.token_query import TokenQuery, read

Ids = npt.NDArray[np.intp]
BATCH = 4096
"""Tokens that are read at once: about 15 ms."""


class Vocabulary:
    """The bytes and texts of a model's tokens, as searches want them; read when the first search comes.

    Args:
        tokens: The model's tokenizer.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._raws: list[bytes] = []
        self._texts: list[str] = []
        self._lowered: list[str] = []
        """The same objects as in `_texts` where nothing had to be lowered."""
        self._continuing: list[int] = []
        """Ids that may finish a character: what they read as depends on the bytes before them."""

    def read(self, stopped: Stopped = never) -> None:
        """Read every token, unless it was done.

        Raises:
            Cancelled: `stopped` said so; what was read stays.
        """
        while (done := len(self._raws)) < self._tokens.vocabulary:
            if stopped():
                raise Cancelled
            ids = range(done, min(done + BATCH, self._tokens.vocabulary))
            raws, texts = (
                [self._tokens.raw(each) for each in ids],
                [self._tokens.text(each)[0] for each in ids],
            )
            self._continuing += [each for each in ids if 0x80 <= (raws[each - done] or b"\0")[0] < 0xC0]
            self._texts += texts
            self._lowered += [lower if (lower := text.lower()) != text else text for text in texts]
            self._raws += raws

    def matching(self, query: TokenQuery, pending: bytes = b"") -> list[int]:
        """Ids of the tokens that match, in rising order.

        Args:
            query: What is asked for.
            pending: Bytes that the text before left unfinished: tokens that finish them are found by the character.
        """
        match query.kind:
            case "id":
                return [query.id] if query.id < self._tokens.vocabulary else []
            case "bytes":
                wanted = query.raw
                return [each for each, raw in enumerate(self._raws) if wanted in raw]
            case "text":
                return self._containing(query, pending)

    def _containing(self, query: TokenQuery, pending: bytes) -> list[int]:
        texts: Sequence[str] = self._texts if query.cased else self._lowered
        if pending:
            texts = list(texts)
            for each in self._continuing:
                text = self._tokens.text(each, pending)[0]
                texts[each] = text if query.cased else text.lower()
        found: set[int] = set()
        for part in query.texts:
            found.update([each for each, text in enumerate(texts) if part in text])
        return sorted(found)


def find(
    session: Session, vocabulary: Vocabulary, node: int, query: str, limit: int, stopped: Stopped = never
) -> TokensFound:
    """Find tokens, with what the model expected of them after a node and what the sampler made of that.

    Args:
        session: Whose tree and kept logits are used; it does not move.
        vocabulary: Of its model.
        node: The tokens would stand after it.
        query: See `engine.token_query.read`; an empty one matches all tokens.
        limit: How many matches to tell of, the most probable first.
        stopped: Asked while the vocabulary is read for the first time.

    Raises:
        StepError: There is no such node, or its logits aren't kept.
        Cancelled: `stopped` said so.
    """
    row = kept_row(session, node)
    vocabulary.read(stopped)
    look = session.looker.look(
        node, row, session.used.get(node, session.settings), reroll=turn_of(session, node)
    )
    pending = session.pending.get(node, b"")
    ids = np.array(vocabulary.matching(read(query), pending), np.intp)
    ids = ids[ids < row.size]
    best = _best(look.logprobs, ids, limit)
    matches = session.looker.reader.chosen(look.logprobs, best, pending, look.sampled)
    mass = float(np.exp(look.logprobs[ids], dtype=np.float64).sum())
    return TokensFound(node, query, matches, int(ids.size), min(1.0, mass))


def _best(logprobs: Row, ids: Ids, limit: int) -> Ids:
    """The most probable of some tokens, ties by id."""
    values = logprobs[ids]
    if limit < ids.size:
        edge = np.partition(values, ids.size - limit)[ids.size - limit]
        near = values >= edge
        ids, values = ids[near], values[near]
    found: Ids = ids[np.lexsort((ids, -values))][:limit]
    return found
