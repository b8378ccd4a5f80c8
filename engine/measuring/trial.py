"""The step that would be taken next, taken again and again beside the session, for measuring."""

from __future__ import annotations

import mlx.core as mx

from engine.model.forward import Runner
from engine.sampling.ranking import Row
from engine.session.detached import copy_of
from engine.session.session import Session


class RepeatedStep:
    """One step on a copy of the live cache; the live one is only read.

    MLX copies the arrays when the first step writes them, so that the copy takes as much memory as the cache has
    allocated, and the first step is to be discarded.

    Args:
        session: Stands where the step begins.

    Raises:
        StepError: There is no prompt, or no room for one more token.
    """

    def __init__(self, session: Session) -> None:
        session.make_ready()
        self._session = session
        self.token = session.next.picked
        """The token that goes through."""
        self._path = session.tree.tokens(session.node)
        self._runner: Runner = copy_of(session.runner)
        self.copies = session.cached and session.kv.unkeepable() is not None
        """Whether every step copies the cache, which takes time of its own."""

    def forward(self) -> Row:
        """Run the token: over the cache or, in a session without one, the whole path with it."""
        if not self._session.cached:
            return self._runner.whole([*self._path, self.token])
        return self._runner.forward(self.token)

    def pending(self) -> list[mx.array]:
        """States that the logits don't depend on; see `KV.pending`."""
        return self._runner.kv.pending()

    def bytes_read(self) -> int:
        """Keys, values and states that the step had to read, its own included; asked for before `back`."""
        kv = self._runner.kv
        return kv.reading().used_bytes if self._session.cached else kv.last_pass[1]

    def back(self) -> None:
        """Take the token off again, so that the next step is the same."""
        if not self._session.cached:
            return
        runner, offset = self._runner, self._session.kv.offset
        if not self.copies:
            self._undo(runner, offset)
        if (
            self.copies or runner.kv.offset != offset
        ):  # where mlx_lm quantized at this token, nothing leads back
            self._runner = copy_of(self._session.runner)

    def _undo(self, runner: Runner, offset: int) -> None:
        if runner.undo is None:
            runner.kv.rewind(offset)
        else:
            runner.kv.undo([runner.undo])
