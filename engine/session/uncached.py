"""Stepping without a KV cache: every step runs all tokens of its path again, as `simple_generate` of tiny-llm does.

The model is given fresh caches for each pass, since its layers ask for some, and they are dropped at its end: nothing
is held between two steps, so that the cache's offset is 0 there and the readings tell what the pass made and dropped.
The numbers are those of the cached session but for the order of sums (a row of a product of many rows against a
product of one): the ids are the same unless two tokens are as good as equal.
"""

from __future__ import annotations

import time

from engine.model.forward import Runner, Stopped, never
from engine.model.load import Loaded
from engine.records import Moved
from engine.sampling.ranking import Row
from engine.session.session import Session
from engine.settings import Settings


def open_session(loaded: Loaded, settings: Settings) -> Session:
    """The session that a model's load settings ask for: with a KV cache or without."""
    return (UncachedSession if loaded.settings.no_kv_cache else Session)(loaded, settings)


class UncachedSession(Session):
    """A session that keeps the tokens of its path and nothing else."""

    cached = False

    @property
    def overlaps(self) -> bool:
        """Never: the next pass needs the token in its place among all others."""
        return False

    def _forward(self, token: int) -> Row:
        """Run the whole path and one more token; the last token of a prompt ends the pass that its chunks began."""
        if not self.kv.offset:
            return self.runner.whole([*self.tree.tokens(self.node), token])
        try:
            return self.runner.forward(token)
        finally:
            self.kv.drop()

    def make_ready(self) -> None:
        """See that one more token has a place; nothing has to be held for it.

        Raises:
            StepError: The context is full and its positions end there.
        """
        self._check_room()

    def holding(self, stopped: Stopped = never) -> Runner:
        """A runner with a cache of its own, for what can't do without: beams and looks ahead.

        Raises:
            StepError: There is no prompt, or no room for one more token.
            Cancelled: `stopped` said so.
        """
        self.make_ready()
        runner = self.runner.fresh()
        runner.path(self.tree.tokens(self.node), self.tree[self.node].start, stopped)
        return runner

    def move(self, node: int, stopped: Stopped = never) -> Moved:
        """Stand at another node: free where its logits were kept, else one pass over its path.

        Raises:
            StepError: There is no such node, or it is the root.
            Cancelled: `stopped` said so; the session stands where it stood.
        """
        self.check_node(node)
        begun = time.perf_counter()
        row, recomputed = self.kept.get(node), 0
        if row is None:
            row, recomputed = self._whole(node, stopped), self.tree[node].depth
        self._arrive(node, row)
        self.tree.visit(node)
        ms = (time.perf_counter() - begun) * 1000
        note = "without a KV cache the whole path goes through again" if recomputed else ""
        return Moved(node, 0, 0, recomputed, ms, self.next, self.reading(), note)

    def recall(self, nodes: tuple[int, ...], stopped: Stopped = never) -> None:
        """Compute the logits after some nodes again, in a pass each, and keep them.

        Raises:
            StepError: There is no such node.
            Cancelled: `stopped` said so; what was computed is kept.
        """
        for node in nodes:
            self.check_node(node)
            self.kept.put(node, self._whole(node, stopped))

    def _whole(self, node: int, stopped: Stopped) -> Row:
        return self.runner.whole(self.tree.tokens(node), stopped)
