"""Which rows of logits go into a recording: of each node when it becomes the current one, within a bound."""

from __future__ import annotations

from collections.abc import Iterator

from engine.logits.packing import pack_row, pack_vocabulary
from engine.model.tokens import Tokens
from engine.protocol import LogitsRow, ModelVocabulary, Moved, Prefilled, Resampled, Restored, Step
from engine.sampling.ranking import Row
from engine.session.state import SessionState
from engine.trace.values import ROWS_LIMIT
from engine.tree import TokenTree

AT_A_NODE = (Step, Prefilled, Moved, Resampled, Restored)
"""Records whose distribution is that of the current node."""


class LogitsRecorder:
    """Knows what was recorded of the present model and tree."""

    def __init__(self) -> None:
        self._tokens: Tokens | None = None
        """Those of the model whose vocabulary was recorded."""
        self._tree: TokenTree | None = None
        self._nodes: set[int] = set()
        """Nodes of that tree whose rows were recorded."""
        self._nbytes = 0
        """Of all rows of that model."""

    def new(self, session: SessionState, node: int) -> Iterator[LogitsRow | ModelVocabulary]:
        """The row of the current node, unless it was recorded, or the recording has as many as it can hold."""
        seen = self._tree is session.tree and node in self._nodes
        row = None if seen or self._nbytes > ROWS_LIMIT else session.row_at(node)
        if row is not None:
            yield from self.row(session, node, row)

    def row(self, session: SessionState, node: int, row: Row) -> Iterator[LogitsRow | ModelVocabulary]:
        """The row of a node, after the vocabulary of a model that has no row yet."""
        if self._tokens is not session.tokens:
            self._tokens, self._nbytes = session.tokens, 0
            yield pack_vocabulary(session.tokens)
        if self._tree is not session.tree:
            self._tree, self._nodes = session.tree, set()
        record = pack_row(node, row)
        self._nodes.add(node)
        self._nbytes += record.nbytes
        yield record
