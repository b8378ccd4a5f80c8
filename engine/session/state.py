"""The state of a session: its tree and the current node, the live cache, what is kept beside it, and its interventions.

Also the path to any other node, in a cache of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from engine.cache.live import KV
from engine.cache.moves import KVStore, Mover
from engine.errors import PromptError, StepError
from engine.logits.node_sampler import Position
from engine.model.chat_template import given_tools
from engine.model.forward import Changed, Compute, Runner
from engine.model.load import Loaded
from engine.protocol import (
    NO_OPTIONS,
    ChatOptions,
    Distribution,
    Intervention,
    KVReading,
    Message,
    ReplyFormat,
)
from engine.sampling.ranking import Row
from engine.segments import ReplyToken
from engine.session.node_records import NodeReader
from engine.session.prefill import PrefillRun
from engine.session.unread import Unread
from engine.setting import check
from engine.settings import Settings
from engine.task import Stopped, never
from engine.tree import ROOT, TokenTree, chunks_go_on, within_chunk

# ---- interventions -----------------------------------------------------------------------------
# A node names its set by number, 0 for the model itself, and the same token after the same path under another set is
# another node. So what is kept of a node, its KV, its logits, what undoes it, is never that of another set. A branch
# keeps the set of its first node: a path has tokens of the model's own, then those of at most one set.


class HeldSets:
    """The sets of one tree.

    Args:
        model: Computes the nodes of no set.
        tree: The tree.
    """

    def __init__(self, model: Compute, tree: TokenTree) -> None:
        self._tree = tree
        self._sets: list[tuple[Intervention, ...]] = [()]
        self.computes: list[Compute] = [model]
        """The forward that computes the nodes of each set, by the set's number."""

    def add(self, interventions: tuple[Intervention, ...], compute: Compute) -> int:
        """The number of a set; a set that is there keeps its number.

        Args:
            interventions: The set.
            compute: Called as the model is, it computes what the model does under them.
        """
        if interventions in self._sets:
            return self._sets.index(interventions)
        self._sets.append(interventions)
        self.computes.append(compute)
        return len(self._sets) - 1

    def at(self, node: int) -> tuple[Intervention, ...]:
        """The set that a node was computed under; empty for the model's own."""
        return self._sets[self._tree[node].held]

    def first(self, node: int) -> int:
        """The first node under the set of a node that is under one."""
        while self._tree[self._tree[node].parent].held:
            node = self._tree[node].parent
        return node

    def begin(self, node: int) -> int:
        """How many tokens of a node's path are the model's own, before those under a set; 0 where all are its own."""
        return self._tree[self.first(node)].depth - 1 if self._tree[node].held else 0

    def changed(self, node: int) -> Changed | None:
        """From which token of a node's path on another function than the model computes it; None where none does."""
        held = self._tree[node].held
        return (self.begin(node), self.computes[held]) if held else None

    def refuse(self, node: int, what: str) -> None:
        """Refuse what is there for the model's own tokens alone.

        Args:
            node: Any node.
            what: Of the model's own tokens alone, with its verb, as in `measurements are`.

        Raises:
            StepError: It was computed under interventions.
        """
        if node in self._tree and self._tree[node].held:
            units = ", ".join(each.label for each in self.at(node))
            raise StepError(
                f"This token was computed under interventions ({units}): {what} for the model's own.",
                "Go to a branch of the model's own.",
            )


# ---- rows of logits, kept within a bound -------------------------------------------------------


class KeptLogits:
    """Rows by node; at the bound it drops the least recently used first.

    Args:
        budget: Bytes that the rows together may take.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._rows: OrderedDict[int, Row] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes whose rows are kept, in the order of the tree."""
        return tuple(sorted(self._rows))

    def put(self, node: int, row: Row) -> None:
        """Keep a node's row, dropping old ones to stay within the budget; a row larger than that is not kept."""
        if (old := self._rows.pop(node, None)) is not None:
            self.nbytes -= old.nbytes
        if row.nbytes > self.budget:
            return
        self._rows[node] = row
        self.nbytes += row.nbytes
        while self.nbytes > self.budget:
            self.nbytes -= self._rows.popitem(last=False)[1].nbytes

    def get(self, node: int) -> Row | None:
        """The row of a node, None where it was never kept or was dropped."""
        row = self._rows.get(node)
        if row is not None:
            self._rows.move_to_end(node)
        return row


# ---- the state of a session --------------------------------------------------------------------

CUT_NOTE = (
    "These are the numbers where the prompt ends here; in the middle of a longer prompt's chunk this KV cache gives "
    "other ones."
)
_CHARACTERS = 16
"""Characters for each token of the window, of which a prompt that is far too long is told: 4 to a token are usual."""


class SessionState:
    """One model, one token tree and one live KV cache, which holds the path to the current node.

    Args:
        loaded: The model.
        settings: Sampling and stops; `configure` changes them.
    """

    cached = True
    """True if a KV cache is kept between steps."""
    title = ""
    """What tells its model from the session's, where it is another one."""

    def __init__(self, loaded: Loaded, settings: Settings) -> None:
        self.loaded = loaded
        self.tokens = loaded.tokens
        self.facts = loaded.facts
        self.settings = settings
        self._load = loaded.settings
        self._tail = loaded.tail
        self.record_logits = loaded.settings.record_logits
        self.runner = loaded.runner()
        self.kv: KV = self.runner.kv
        """The live cache."""
        self.forget()

    def forget(self) -> None:
        """Begin a new tree, with nothing in the cache."""
        self.tree = TokenTree()
        self.held = HeldSets(self.runner.model, self.tree)
        self.make_current(ROOT)
        self.kv.clear()
        self.kept_logits = KeptLogits(self._load.kept_logits_bytes(self.facts.vocabulary))
        self.mover = Mover(self.kv, self.tree, KVStore(self._load.kept_kv_mib * 2**20))
        self.pending: dict[int, bytes] = {}
        self.settings_at: dict[int, Settings] = {}
        """By node, the settings of its last distribution."""
        self.node_reader = NodeReader(self.tokens, self.tree, self.pending)
        self._position: Position | None = None
        self.conversation: tuple[tuple[Message, ...], ChatOptions] = (), NO_OPTIONS
        """What the chat template got for the prompt that the path begins with."""
        self.replies: dict[int, ReplyFormat] = {}
        """How the reply to a prompt is marked, by the prompt's last node."""
        self._prefill_run: PrefillRun | None = None
        """The prefill under way, if any."""
        self.unread = Unread(self.node_reader.row_reader, self.tokens.vocabulary)
        """Tokens of prompts whose logprobs are to be read."""

    def make_current(self, node: int) -> None:
        """Make a node the current one: the token after it is computed as the node was."""
        self.node = node
        """The current node."""
        self.runner.compute = self.held.computes[self.tree[node].held]

    def run_path(self, runner: Runner, node: int, stopped: Stopped = never) -> Row:
        """Run what a runner's cache lacks of the path to a node, each token as it was computed the first time.

        A cache that holds its tokens in another cut than the path's is emptied before, where the cut changes the
        numbers: else the rest of a prompt would run as a chunk of its own.

        Returns:
            The logits after the node, float32, shape (vocabulary,).

        Raises:
            Cancelled: `stopped` returned True.
        """
        tree, kv = self.tree, runner.kv
        chunks = tree.chunks(node)
        if kv.chunks_matter and not chunks_go_on(kv.chunks, chunks, kv.offset):
            kv.clear()
        return runner.forward_path(tree.tokens(node), chunks, stopped, self.held.changed(node))

    def reply(self, node: int) -> tuple[ReplyFormat, list[int]]:
        """The reply that a node is of: how it is marked, and its nodes up to that one; none inside a prompt."""
        nodes, start = self.tree.nodes(node), self.tree[node].start
        format = self.replies.get(nodes[start - 1]) if start else None
        return format or self.tokens.reply_format(), nodes[start:]

    @property
    def tools(self) -> list[Any] | None:
        """The tools that the conversation of the path has; None for none."""
        return given_tools(self.conversation[1])

    def reply_token(self, node: int) -> ReplyToken:
        """A token of a reply, as its marks are looked for."""
        at = self.tree[node]
        text, _ = self.tokens.text(at.token, self.pending.get(at.parent, b""))
        return ReplyToken(text, self.tokens.is_special(at.token), at.token in self.tokens.eos_ids)

    def cut_note(self, node: int) -> str:
        """That the numbers after a node are those of another cut than the current path's; empty where they aren't."""
        at, path = self.tree[node], self.tree.chunks(self.node)
        if (
            not self.kv.chunks_matter
            or not within_chunk(path, at.depth)
            or node not in self.tree.nodes(self.node)
        ):
            return ""
        return CUT_NOTE

    @property
    def can_pipeline(self) -> bool:
        """True if one more forward could be begun before its token is known, and taken back."""
        return self.kv.lazy and self.runner.stays_lazy and self.kv.can_go_ahead()

    def kv_reading(self) -> KVReading:
        """The live cache, and the KV that is kept next to it."""
        kept = self.mover.store
        return self.kv.reading(kept.nbytes, kept.budget)

    @property
    def next(self) -> Distribution:
        """The distribution after the current node.

        Raises:
            StepError: No prompt has been read.
        """
        return self.position.next

    @property
    def logits(self) -> Row:
        """The model's logits after the current node, float32, shape (vocabulary,)."""
        return self.position.node_logits.row

    @property
    def position(self) -> Position:
        """The logits and the distribution after the current node.

        Raises:
            StepError: No prompt has been read.
        """
        if self._position is None:
            raise StepError("There is no prompt to continue from.", "Give a prompt first.")
        return self._position

    def row_at(self, node: int) -> Row | None:
        """The logits after a node, float32, shape (vocabulary,); None where they were dropped or never kept."""
        if node == self.node and self._position is not None:
            return self._position.node_logits.row
        return self.kept_logits.get(node)

    def set_position(self, position: Position) -> None:
        """Make a node whose path the cache holds the current one."""
        self.make_current(position.node_logits.node)
        self._position, self._prefill_run = position, None
        self.settings_at[self.node] = self.settings
        self.kept_logits.put(self.node, position.node_logits.row)

    def _forward(self, token: int) -> Row:
        """Run the next token of the path."""
        return self.runner.forward(token)

    def _set_node(self, node: int, row: Row) -> None:
        """Sample after a node whose path the cache holds, and make it the current one."""
        node_logits = self.node_reader.sample(node, row, self.settings)
        self.set_position(self.node_reader.position(node_logits, self.settings.candidates))

    def check_room(self, node: int) -> None:
        """Ensure that one more token can go through the model after a node.

        Raises:
            StepError: The context is full and the model's positions end there.
        """
        window, at = self.facts.context_window, self.tree[node]
        if self.facts.hard_window and window is not None and at.depth >= window:
            raise StepError(
                f"The context window of {window} tokens is full, and this model has no positions beyond it.",
                "Go back, or begin with a new prompt.",
            )

    def encode(self, text: str, *, bare: bool = False) -> list[int]:
        """Token ids of a prompt. One that is far beyond the window is refused by its beginning alone: to encode all of
        5 MB takes a gigabyte and seconds.

        Args:
            text: The prompt.
            bare: Without the beginning-of-sequence token.

        Raises:
            PromptError: It is far too long, or can't be encoded.
        """
        window = self.facts.context_window
        if (
            window is not None
            and len(text) > 2 * (begin := _CHARACTERS * window)
            # the cut may change the tokens next to it, but not double their number
            and len(self.tokens.encode(text[:begin], bare=bare)) > 2 * window
        ):
            raise PromptError(
                f"The prompt has {len(text)} characters, many more than fit into the model's context window of "
                f"{window} tokens.",
                "Shorten the prompt.",
            )
        return self.tokens.encode(text, bare=bare)

    def check_prompt(self, ids: list[int], before: int) -> None:
        """Check that a prompt can be prefilled.

        Args:
            ids: Its token ids.
            before: Tokens of the path before it.

        Raises:
            PromptError: It is empty, too long for the window, or has ids without an embedding.
        """
        if not ids:
            raise PromptError("The prompt is empty.", "Give some text.")
        self.tokens.check(ids)
        window = self.facts.context_window
        if window is not None and before + len(ids) > window:
            raise PromptError(
                f"The prompt has {len(ids)} tokens{f' after {before}' if before else ''}, "
                f"the model's context window holds {window}.",
                "Shorten the prompt.",
            )

    def check_node(self, node: int) -> None:
        """Check that a node can be moved to.

        Raises:
            StepError: There is no node of that number, or it has no token.
        """
        if node not in self.tree or self.tree[node].token < 0:
            raise StepError(f"There is no token number {node} to go to.", "Begin with a prompt.")

    def check_settings(self) -> None:
        """Refuse settings that were given before the model was known and that it can't have.

        Raises:
            SettingsError: A bias names a token that the model doesn't have, or the grammar can't be used.
        """
        self._check(self.settings)

    def _check(self, settings: Settings) -> Settings:
        check(settings, self.facts.vocabulary)
        if settings.grammar is not None:
            self.node_reader.grammars.compiled(settings.grammar)
        return settings

    def check_allowed(self, ids: Sequence[int]) -> None:
        """Refuse tokens after the current node that its grammar forbids.

        Raises:
            StepError: Naming the first.
        """
        state = self.position.node_logits.grammar
        place = None if state is None else state.first_forbidden(ids, self.tokens.eos_ids)
        if place is not None:
            name = self.tokens.text(ids[place])[0] or f"id {ids[place]}"
            raise StepError(
                f"The grammar forbids “{name}” here.",
                "Take one that it allows, or do the same again to leave the grammar.",
            )

    def configure(self, settings: Settings) -> Distribution | None:
        """Use other settings from here on.

        Returns:
            The current node's distribution under them, with no forward; None where there is no prompt.

        Raises:
            SettingsError: One is out of its range, a bias names a token that the model doesn't have, or the grammar
                can't be used.
            StepError: They leave no token here.
        """
        before, self.settings = self.settings, self._check(settings)
        if self._position is None:
            return None
        try:
            self._set_node(self.node, self.logits)
        except BaseException:
            self.settings = before
            raise
        return self.next

    def reroll(self, count: int | None = None) -> Distribution:
        """Draw again after the current node, with another of the position's random numbers.

        Args:
            count: How many draws came before it, 0 for the first; None for the one after the present draw.

        Raises:
            StepError: There is no prompt.
        """
        row, at = self.logits, self.tree[self.node]
        at.reroll = at.reroll + 1 if count is None else count
        self._set_node(self.node, row)
        return self.next


# ---- a runner whose cache holds the path to any node, while the live cache doesn't change ------


class DetachedPath(Struct, frozen=True):
    """A cache that holds a path, and the logits after it."""

    runner: Runner
    """Read-only: it is the session's own at the session's current node."""
    row: Row
    recomputed: int
    """Tokens of the path that went through the model again."""
    why: str
    """Why tokens in the live cache could not be used, empty if they could."""


def run_at(session: SessionState, node: int, stopped: Stopped = never) -> DetachedPath:
    """Bring the path to a node into a cache, and compute the logits after it.

    Unless it is the session's current node, the live cache is copied (MLX copies an array only when it is written), and
    the copy is moved as the session would move: by trimming, by restoring kept KV, and by running the rest.

    Args:
        session: Not changed.
        node: Any node but the root.
        stopped: Polled before each chunk and token that is recomputed.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    if node not in session.tree or node == ROOT:
        raise StepError(f"There is no token number {node} to continue from.", "Begin with a prompt.")
    depth = session.tree[node].depth
    if node == session.node and session.kv.offset == depth:
        return DetachedPath(session.runner, session.logits, 0, "")
    if not session.cached:
        runner = session.runner.fresh()
        after = session.run_path(runner, node, stopped)
        return DetachedPath(runner, after, depth, "the session keeps no KV cache")
    row, runner = session.kept_logits.get(node), session.runner.copy()
    mover = Mover(runner.kv, session.tree, session.mover.store)
    runner.compute = session.held.computes[session.tree[node].held]
    cost = mover.move(session.node, node, depth if row is not None else depth - 1)
    recomputed = depth - runner.kv.offset
    if recomputed:
        row = session.run_path(runner, node, stopped)
    assert row is not None  # without kept logits the last token was recomputed
    return DetachedPath(runner, row, recomputed, cost.note)
