"""Stepping without a KV cache: every step runs all tokens of its path again, as `simple_generate` of tiny-llm does.

A pass runs over new caches, since the model's layers need some, and drops them at its end: the session holds nothing
between two steps, so that the cache's offset is 0 there and the readings report what the pass made and dropped.
The numbers are those of the cached session but for the order of sums (a row of a product of many rows against a
product of one): the ids are the same unless two tokens are nearly equal.
"""

from __future__ import annotations

import time

from engine.cache.moves import MoveCost
from engine.model.forward import Runner
from engine.model.load import Loaded
from engine.protocol import Moved
from engine.sampling.ranking import Row
from engine.session.session import Session
from engine.settings import Settings
from engine.task import Stopped, never

ALL_AGAIN = "without a KV cache the whole path goes through again"


def open_session(loaded: Loaded, settings: Settings) -> Session:
    """The session that a model's load settings ask for: with a KV cache or without."""
    return (UncachedSession if loaded.settings.no_kv_cache else Session)(loaded, settings)


class UncachedSession(Session):
    """A session that keeps the tokens of its path and nothing else."""

    cached = False

    @property
    def can_pipeline(self) -> bool:
        """False: the next pass needs the token in its place among all others."""
        return False

    def _forward(self, token: int) -> Row:
        """Run the whole path and one more token; a prompt's last token ends the pass that its chunks began."""
        if not self.kv.offset:
            return self.runner.forward_uncached([*self.tree.tokens(self.node), token])
        try:
            return self.runner.forward(token)
        finally:
            self.kv.drop()

    def _share(self, end: int, want: int, computed: int) -> MoveCost:
        """Go to the node before a prompt's end; all tokens of the path run again."""
        self.kv.clear()
        self.make_current(self.tree[end].parent)
        self._position = None
        return MoveCost(0, 0, ALL_AGAIN if computed else "")

    def prepare_step(self) -> None:
        """Check that there is room for one more token; the cache need not hold the path.

        Raises:
            StepError: The context is full and its positions end there.
        """
        self.check_room(self.node)

    def prepared_runner(self, stopped: Stopped = never) -> Runner:
        """A runner with a separate cache, for beams and look-aheads, which need one.

        Raises:
            StepError: There is no prompt, or no room for one more token.
            Cancelled: `stopped` returned True.
        """
        self.prepare_step()
        runner = self.runner.fresh()
        self.run_path(runner, self.node, stopped)
        return runner

    def move(self, node: int, stopped: Stopped = never) -> Moved:
        """Move to another node: no forward where its logits were kept, else one pass over its path.

        Raises:
            StepError: There is no such node, or it is the root.
            Cancelled: `stopped` returned True; the current node is the one before.
        """
        self.check_node(node)
        begun = time.perf_counter()
        row, recomputed = self.kept_logits.get(node), 0
        if row is None:
            row, recomputed = self._whole(node, stopped), self.tree[node].depth
        if self.kv.offset:
            self.kv.clear()  # chunks of a prompt that was stopped on its way: the next step would go on from them
        self._set_node(node, row)
        ms = (time.perf_counter() - begun) * 1000
        note = ALL_AGAIN if recomputed else ""
        return Moved(node, 0, 0, recomputed, ms, self.next, self.kv_reading(), note)

    def recall(self, nodes: tuple[int, ...], stopped: Stopped = never) -> None:
        """Recompute the logits after some nodes, in a pass each, and keep them; rows that are kept stay.

        Raises:
            StepError: There is no such node.
            Cancelled: `stopped` returned True; the logits computed so far are kept.
        """
        for node in self._dropped(nodes):
            self.kept_logits.put(node, self._whole(node, stopped))

    def _whole(self, node: int, stopped: Stopped) -> Row:
        return self.runner.forward_uncached(self.tree.tokens(node), stopped)
