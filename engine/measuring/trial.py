"""The next step of a session, repeated for measuring on a copy of its cache."""

from __future__ import annotations

import mlx.core as mx

from engine.model.forward import Runner
from engine.sampling.ranking import Row
from engine.session.session import Session


class RepeatedStep:
    """One step on a copy of the live cache; the live one is only read.

    MLX copies the arrays when the first step writes them, so that the copy takes as much memory as the cache has
    allocated, and the first step is to be discarded.

    Args:
        session: The step begins at its current node.

    Raises:
        StepError: There is no prompt, or no room for one more token.
    """

    def __init__(self, session: Session) -> None:
        session.prepare_step()
        self._session = session
        self.token = session.next.picked
        """The token that the step runs."""
        self._path = session.tree.tokens(session.node)
        self._runner: Runner = session.runner.copy()
        self.copies = session.cached and session.kv.without_snapshots() is not None
        """Whether every step copies the cache, which takes additional time."""

    def forward(self) -> Row:
        """Run the token: over the cache or, in a session without one, the whole path with it."""
        if not self._session.cached:
            return self._runner.forward_uncached([*self._path, self.token])
        return self._runner.forward(self.token)

    def pending(self) -> list[mx.array]:
        """States that the logits don't depend on; see `KV.pending`."""
        return self._runner.kv.pending()

    def bytes_read(self) -> int:
        """Bytes of keys, values and states that the step had to read, its own included; call it before `undo`."""
        kv = self._runner.kv
        return kv.reading().used_bytes if self._session.cached else kv.last_pass[1]

    def undo(self) -> None:
        """Undo the token, so that the next step is the same."""
        if not self._session.cached:
            return
        runner, offset = self._runner, self._session.kv.offset
        if not self.copies:
            self._undo_token(runner, offset)
        if self.copies or runner.kv.offset != offset:  # where mlx_lm quantized at this token, undo can't work
            self._runner = self._session.runner.copy()

    def _undo_token(self, runner: Runner, offset: int) -> None:
        if runner.undo is None:
            runner.kv.rewind(offset)
        else:
            runner.kv.undo([runner.undo])
