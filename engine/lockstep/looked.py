"""The session's path in the second model, for what looks inside and for the sampler's explanation."""

from __future__ import annotations

from msgspec import Struct

from engine.cache.moves import KVStore, Mover
from engine.lockstep.paths import PathReader
from engine.logits.node_sampler import NodeSampler
from engine.model.tokens import Tokens
from engine.protocol import ModelFacts
from engine.sampling.ranking import Row
from engine.session.node_records import NodeReader
from engine.session.session import Session
from engine.session.state import HeldSets
from engine.settings import Settings
from engine.task import Stopped
from engine.tree import TokenTree


class SecondSession(Session):
    """The session's tree on the second model: views copy its cache and read its rows, and add nothing to the tree.

    The cache is the one that the paths are read with, so that a path goes through the second model once.

    Args:
        session: Whose tree it is; models with the same tokens have the same paths.
        paths: Reads in both models.
    """

    def __init__(self, session: Session, paths: PathReader) -> None:
        super().__init__(paths.second.loaded, session.settings)
        self._paths = paths
        self.cached = True  # of the paths, whatever the session keeps
        self.title = paths.second.title
        self.tree, self.pending, self.settings_at = session.tree, session.pending, session.settings_at
        self.runner = paths.rows.runner
        self.kv = self.runner.kv
        self.held = HeldSets(self.runner.model, self.tree)
        self.mover = Mover(self.kv, self.tree, KVStore(0))
        self.node_reader = NodeReader(self.tokens, self.tree, self.pending)

    def go_to(self, session: Session, node: int, stopped: Stopped) -> Row:
        """Have the cache hold the path to a node, or a longer one that it is the beginning of.

        Args:
            session: Doesn't change.
            node: Of its tree.
            stopped: Polled before each chunk.

        Returns:
            The second model's logits after the node.

        Raises:
            StepError: There is no such node, it was computed under interventions, or the second model has no positions
                for the path.
            Cancelled: `stopped` returned True.
        """
        rows = self._paths.rows
        nodes = self._paths.follow(session, node, stopped)
        row = rows.after(self.tree[node].depth - 1)
        self.kept_logits.put(node, row)
        self.make_current(nodes[rows.hold().kv.offset - 1])
        return row


class SecondSource(Struct, frozen=True):
    """The parts of an explanation of the second model's distribution after one node."""

    tree: TokenTree
    facts: ModelFacts
    """Of the second model."""
    tokens: Tokens
    settings: Settings
    settings_at: dict[int, Settings]
    pending: dict[int, bytes]
    node_reader: NodeSampler
    row: Row
    """The second model's logits after the node that is asked about."""

    def row_at(self, node: int) -> Row:
        """See `LogitsSource`."""
        return self.row
