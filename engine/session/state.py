"""Where a session stands: its tree, its node and its cache, and what is known there."""

from __future__ import annotations

from engine.cache.live import KV
from engine.cache.moves import Mover
from engine.errors import StepError
from engine.model.forward import Runner
from engine.model.load import Loaded
from engine.records import Distribution, KVReading
from engine.sampling.ranking import Row
from engine.session.kept_logits import KeptLogits
from engine.session.node_logits import NodeReader, Position
from engine.session.prefill import PrefillRun
from engine.settings import Settings, check
from engine.tree import ROOT, TokenTree


class SessionState:
    """One model, one token tree and one live KV cache, standing at one node.

    Args:
        loaded: The model.
        settings: Sampling and stops; `configure` changes them.
    """

    cached = True
    """Whether a KV cache is kept between steps."""

    def __init__(self, loaded: Loaded, settings: Settings) -> None:
        self.tokens = loaded.tokens
        self.facts = loaded.facts
        self.settings = settings
        self._load = loaded.settings
        self.runner = Runner(loaded.model, loaded.settings)
        self.forget()

    def forget(self) -> None:
        """Begin a new tree, with nothing in the cache."""
        self.tree = TokenTree()
        self.node = ROOT
        self.kv.clear()
        self.kept = KeptLogits(self._load.kept_logits_mib * 2**20)
        self.mover = Mover(self.kv, self.tree, self._load.kept_kv_mib * 2**20)
        self.pending: dict[int, bytes] = {}
        self.used: dict[int, Settings] = {}
        """The settings with which each node's distribution was last made."""
        self.looker = NodeReader(self.tokens, self.tree, self.pending)
        self._here: Position | None = None
        self._reading: PrefillRun | None = None
        """A prompt that is on its way."""

    @property
    def overlaps(self) -> bool:
        """Whether one more forward could be prepared before its token is known, and taken back."""
        return self.kv.can_step_back()

    @property
    def kv(self) -> KV:
        """The live cache."""
        return self.runner.kv

    def reading(self) -> KVReading:
        """The live cache, and what is kept beside it."""
        kept = self.mover.kept
        return self.kv.reading(kept.nbytes, kept.budget)

    @property
    def next(self) -> Distribution:
        """What follows the node where the session stands.

        Raises:
            StepError: No prompt has been read.
        """
        return self.here.next

    @property
    def logits(self) -> Row:
        """The model's logits after the node where the session stands, float32, shape (vocabulary,)."""
        return self.here.look.row

    @property
    def here(self) -> Position:
        """All that is known at the node where the session stands.

        Raises:
            StepError: No prompt has been read.
        """
        if self._here is None:
            raise StepError("There is no prompt to go on from.", "Give a prompt first.")
        return self._here

    def stand(self, here: Position) -> None:
        """Stand at a node whose path the cache holds."""
        self.node, self._here = here.look.node, here
        self.used[self.node] = self.settings
        self.kept.put(self.node, here.look.row)

    def _forward(self, token: int) -> Row:
        """Run one more token of the path."""
        return self.runner.forward(token)

    def _arrive(self, node: int, row: Row) -> None:
        """Look at a node whose path the cache holds, and stand there."""
        self.stand(self.looker.show(self.looker.look(node, row, self.settings), self.settings.candidates))

    def _check_room(self) -> None:
        window, at = self.facts.context_window, self.tree[self.node]
        if self.facts.hard_window and window is not None and at.depth >= window:
            raise StepError(
                f"The context window of {window} tokens is full, and this model has no positions beyond it.",
                "Go back, or begin with a new prompt.",
            )

    def check_node(self, node: int) -> None:
        """See that a node can be stood on.

        Raises:
            StepError: There is none of that number, or it stands for no token.
        """
        if node not in self.tree or self.tree[node].token < 0:
            raise StepError(f"There is no token number {node} to go to.", "Begin with a prompt.")

    def configure(self, settings: Settings) -> Distribution | None:
        """Use other settings from here on.

        Returns:
            The distribution here under them, with no forward; None where there is no prompt.

        Raises:
            SettingsError: One is out of its range, or a bias names a token that the model hasn't.
        """
        self.settings = check(settings, self.facts.vocabulary)
        if self._here is None:
            return None
        self._arrive(self.node, self.logits)
        return self.next

    def reroll(self) -> Distribution:
        """Draw again here: the next random number of this position.

        Raises:
            StepError: There is no prompt.
        """
        row = self.logits
        self.tree[self.node].reroll += 1
        self._arrive(self.node, row)
        return self.next
