"""The stepping engine: one model, one token tree, one live KV cache with the path to its current node.

A step is explicit: one forward pass, one evaluation, then plain numbers. The caches always contain the first
`kv.offset` tokens of the path to `node`, even after a failure.

Without a KV cache (`no_kv_cache`) every step runs all tokens of its path again, like `simple_generate` of tiny-llm.
Each pass uses new caches, since the model's layers need some, and drops them at its end. The numbers differ from those
of a cached session only by the order of sums: the ids are the same unless two tokens are nearly equal.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.cache.live import KV, KVStore, MoveCost, Mover
from engine.errors import Cancelled, PromptError, StepError
from engine.logits.node_sampler import Position
from engine.model.chat_template import ChatText
from engine.model.forward import Changed, Compute, Runner, rounding_of
from engine.model.load import Loaded
from engine.protocol import NO_OPTIONS, ChatOptions, Distribution, Intervention, Message, Moved, Origin, Step
from engine.sampling.ranking import Row, ranked
from engine.segments import ReplyToken
from engine.session.node_records import CompletionSource, NodeReader, memory
from engine.session.prefill import PrefillRun, PromptPath, PromptRecord, Unread
from engine.setting import check
from engine.settings import Settings
from engine.task import Stopped, never
from engine.timing import stall_times
from engine.tree import ROOT, TokenTree, chunks_go_on, within_chunk

# ---- interventions -----------------------------------------------------------------------------
# A node refers to its intervention set by id; 0 is the unmodified model. The same token after the same path under
# another set is a different node, so that KV, logits and undo records stored for a node never come from another set. A
# branch keeps the set of its first node: a path has tokens without interventions, then tokens under at most one set.


class InterventionSets:
    """The intervention sets of one tree.

    Args:
        model: Computes the nodes without interventions.
        tree: The tree.
    """

    def __init__(self, model: Compute, tree: TokenTree) -> None:
        self._tree = tree
        self._sets: list[tuple[Intervention, ...]] = [()]
        self.computes: list[Compute] = [model]
        """The function that computes the nodes of each set, by the set's id."""

    def add(self, interventions: tuple[Intervention, ...], compute: Compute) -> int:
        """Add a set, unless it exists, and return its id.

        Args:
            interventions: The set.
            compute: Called like the model; computes the model's logits under the interventions.
        """
        if interventions in self._sets:
            return self._sets.index(interventions)
        self._sets.append(interventions)
        self.computes.append(compute)
        return len(self._sets) - 1

    def at(self, node: int) -> tuple[Intervention, ...]:
        """The set that a node was computed under; empty for the unmodified model."""
        return self._sets[self._tree[node].intervention_set]

    def first(self, node: int) -> int:
        """The first node on the path with the same set as a node; the node must be under interventions."""
        while self._tree[self._tree[node].parent].intervention_set:
            node = self._tree[node].parent
        return node

    def begin(self, node: int) -> int:
        """Number of tokens of a node's path without interventions; 0 if the node itself has no interventions."""
        return self._tree[self.first(node)].depth - 1 if self._tree[node].intervention_set else 0

    def changed(self, node: int) -> Changed | None:
        """Position at which interventions begin on a node's path, and the function that computes them; or None."""
        held = self._tree[node].intervention_set
        return (self.begin(node), self.computes[held]) if held else None

    def refuse(self, node: int, what: str) -> None:
        """Raise an error if a node was computed under interventions.

        Args:
            node: Any node.
            what: Subject and verb of the message, such as `measurements are`.

        Raises:
            StepError: The node was computed under interventions.
        """
        if node in self._tree and self._tree[node].intervention_set:
            units = ", ".join(each.label for each in self.at(node))
            raise StepError(
                f"This token was computed under interventions ({units}): {what} for the model's own tokens.",
                "Go to a branch without interventions.",
            )


# ---- rows of logits, within a budget -----------------------------------------------------------


class KeptLogits:
    """Cached rows of logits by node; above the budget the least recently used are dropped first.

    Args:
        budget: Maximum bytes of all rows together.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._rows: OrderedDict[int, Row] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes with cached rows, in the order of their numbers."""
        return tuple(sorted(self._rows))

    def put(self, node: int, row: Row) -> None:
        """Store a node's row, unless it is larger than the budget; old rows are dropped to make room."""
        if (old := self._rows.pop(node, None)) is not None:
            self.nbytes -= old.nbytes
        if row.nbytes > self.budget:
            return
        self._rows[node] = row
        self.nbytes += row.nbytes
        while self.nbytes > self.budget:
            self.nbytes -= self._rows.popitem(last=False)[1].nbytes

    def get(self, node: int) -> Row | None:
        """The row of a node; None if it was never stored or was dropped."""
        row = self._rows.get(node)
        if row is not None:
            self._rows.move_to_end(node)
        return row


CUT_NOTE = (
    "These are the numbers where the prompt ends here; in the middle of a longer prompt's chunk this KV cache gives "
    "other ones."
)
_CHARACTERS = 16
"""Characters per token of the context window that are encoded to reject a much too long prompt; about 4 are usual."""
ALL_AGAIN = "without a KV cache the whole path goes through again"


class Session(CompletionSource):
    """Prefill, step, choose, insert, move and verify on one loaded model, in the thread that loaded it.

    Args:
        loaded: The model.
        settings: Sampling and stops; `configure` changes them.
    """

    title = ""
    """Name of the session's model if it isn't the main session's; otherwise empty."""

    def __init__(self, loaded: Loaded, settings: Settings) -> None:
        self.loaded = loaded
        self.cached = not loaded.settings.no_kv_cache
        """True if the KV cache is kept between steps."""
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
        """Begin a new tree with an empty cache."""
        self.tree = TokenTree()
        self.interventions = InterventionSets(self.runner.model, self.tree)
        self.make_current(ROOT)
        self.kv.clear()
        self.kept_logits = KeptLogits(self._load.kept_logits_bytes(self.facts.vocabulary))
        self.mover = Mover(self.kv, self.tree, KVStore(self._load.kept_kv_mib * 2**20))
        self.pending = {}
        self.settings_at: dict[int, Settings] = {}
        """Settings of each node's last distribution."""
        self.node_reader = NodeReader(self.tokens, self.tree, self.pending)
        self._position: Position | None = None
        self.conversation: tuple[tuple[Message, ...], ChatOptions] = (), NO_OPTIONS
        """Messages and options given to the chat template for the prompt at the beginning of the path."""
        self.replies: dict[int, protocol.ReplyFormat] = {}
        """Format of the reply to a prompt, by the prompt's last node."""
        self._prefill_run: PrefillRun | None = None
        """The prefill in progress, if any."""
        self.unread = Unread(self.tokens)
        """Prompt tokens whose logprobs have not been read yet."""

    def make_current(self, node: int) -> None:
        """Make a node the current one; later tokens are computed under its intervention set."""
        self.node = node
        self.runner.compute = self.interventions.computes[self.tree[node].intervention_set]

    def run_path(self, runner: Runner, node: int, stopped: Stopped = never) -> Row:
        """Run the tokens of the path to a node that a runner's cache lacks, each as it was computed the first time.

        If chunk boundaries change the numbers, and those of the cached tokens differ from the path's, the cache is
        emptied first: otherwise the rest of a prompt would run as a separate chunk.

        Returns:
            The logits after the node, float32, shape (vocabulary,).

        Raises:
            Cancelled: `stopped` returned True.
        """
        tree, kv = self.tree, runner.kv
        chunks = tree.chunks(node)
        if kv.chunks_matter and not chunks_go_on(kv.chunks, chunks, kv.offset):
            kv.clear()
        return runner.forward_path(tree.tokens(node), chunks, stopped, self.interventions.changed(node))

    def reply(self, node: int) -> tuple[protocol.ReplyFormat, list[int]]:
        """Format of the reply that contains a node, and the reply's nodes up to it; no nodes if it is in a prompt."""
        nodes, start = self.tree.nodes(node), self.tree[node].start
        format = self.replies.get(nodes[start - 1]) if start else None
        return format or self.tokens.reply_format(), nodes[start:]

    def reply_token(self, node: int) -> ReplyToken:
        """A token of a reply, in the form that `ReplyReader` needs."""
        at = self.tree[node]
        text, _ = self.tokens.text(at.token, self.pending.get(at.parent, b""))
        return ReplyToken(text, self.tokens.is_special(at.token), at.token in self.tokens.eos_ids)

    def cut_note(self, node: int) -> str:
        """Note that the numbers after a node come from other chunk boundaries than the path's; empty if not."""
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
        """True if another forward pass can be started before its token is known, and undone again."""
        return self.cached and self.kv.lazy and self.runner.stays_lazy and self.kv.can_go_ahead()

    def kv_reading(self) -> protocol.KVReading:
        """Read the live cache, and the KV saved for other branches."""
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
        """The logits after a node, float32, shape (vocabulary,); None if they are not in the cache of rows."""
        if node == self.node and self._position is not None:
            return self._position.node_logits.row
        return self.kept_logits.get(node)

    def set_position(self, position: Position) -> None:
        """Make a node the current one; the KV cache must contain its path."""
        self.make_current(position.node_logits.node)
        self._position, self._prefill_run = position, None
        self.settings_at[self.node] = self.settings
        self.kept_logits.put(self.node, position.node_logits.row)

    def _forward_uncached(self, token: int) -> Row:
        """Run the complete path and one more token; after the chunks of a prompt, only its last token."""
        if not self.kv.offset:
            return self.runner.forward_uncached([*self.tree.tokens(self.node), token])
        try:
            return self.runner.forward(token)
        finally:
            self.kv.drop()

    def _set_node(self, node: int, row: Row) -> None:
        """Sample after a node and make it the current one; the KV cache must contain its path."""
        node_logits = self.node_reader.sample(node, row, self.settings)
        self.set_position(self.node_reader.position(node_logits, self.settings.candidates))

    def check_room(self, node: int) -> None:
        """Check that one more token can run through the model after a node.

        Raises:
            StepError: The context is full and the model has no positions beyond it.
        """
        window, at = self.facts.context_window, self.tree[node]
        if self.facts.hard_window and window is not None and at.depth >= window:
            raise StepError(
                f"The context window of {window} tokens is full, and this model has no positions beyond it.",
                "Go back, or begin with a new prompt.",
            )

    def encode(self, text: str, *, bare: bool = False) -> list[int]:
        """Token ids of a prompt. A much too long prompt is rejected after encoding only its beginning, since encoding
        5 MB takes a gigabyte and seconds.

        Args:
            text: The prompt.
            bare: True to omit the beginning-of-sequence token.

        Raises:
            PromptError: The prompt is much too long, or can't be encoded.
        """
        window = self.facts.context_window
        if (
            window is not None
            and len(text) > 2 * (begin := _CHARACTERS * window)
            # cutting the text changes only the tokens at the cut
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
            before: Number of tokens of the path before it.

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
            StepError: There is no such node, or it has no token.
        """
        if node not in self.tree or self.tree[node].token < 0:
            raise StepError(f"There is no token number {node} to go to.", "Begin with a prompt.")

    def check_settings(self, settings: Settings) -> None:
        """Check that the settings are valid for this model.

        Raises:
            SettingsError: A bias names a token that the model doesn't have, or the grammar is invalid.
        """
        check(settings, self.facts.vocabulary)
        if settings.grammar is not None:
            self.node_reader.grammars.compiled(settings.grammar)

    def check_allowed(self, ids: Sequence[int]) -> None:
        """Check that the current node's grammar allows some tokens after it.

        Raises:
            StepError: The grammar forbids a token; the message names the first.
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
        """Change the settings from now on.

        Returns:
            The current node's distribution under the new settings, without a forward pass; None if there is no prompt.

        Raises:
            SettingsError: A setting is out of its range, a bias names a token that the model doesn't have, or the
                grammar is invalid.
            StepError: They leave no token to sample at the current node.
        """
        self.check_settings(settings)
        before, self.settings = self.settings, settings
        if self._position is None:
            return None
        try:
            self._set_node(self.node, self.logits)
        except BaseException:
            self.settings = before
            raise
        return self.next

    def reroll(self, count: int | None = None) -> Distribution:
        """Draw the token after the current node again, with another of the position's random numbers.

        Args:
            count: Number of draws before it, 0 for the first draw; None for the next draw.

        Raises:
            StepError: There is no prompt.
        """
        row, at = self.logits, self.tree[self.node]
        at.reroll = at.reroll + 1 if count is None else count
        self._set_node(self.node, row)
        return self.next

    # ---- prefill ----------------------------------------------------------------------------

    def prefill(
        self,
        text: str,
        ids: list[int],
        *,
        parent: int = ROOT,
        chat: bool = False,
        echo: bool | None = None,
        notes: tuple[str, ...] = (),
        messages: tuple[Message, ...] = (),
        options: ChatOptions = NO_OPTIONS,
        filled: ChatText | None = None,
        step_size: int | None = None,
        stopped: Stopped = never,
    ) -> Iterator[PromptRecord]:
        """Add a prompt to the tree, and move to its end.

        The cache keeps the tokens that the prompt shares with the previous path, and saved KV of other branches is
        restored. The other tokens run through the model in chunks, as in mlx_lm, except the last one, which is a
        separate forward pass.

        Args:
            text: The prompt as encoded, for the record.
            ids: Its token ids.
            parent: Node before the prompt: the root, or the end of a completion.
            chat: True if a chat template was filled.
            echo: True to compute prompt logprobs; None for prompts of up to 2,048 tokens.
            notes: Notes about requests that could not be met, for the record.
            messages: The conversation up to the prompt's end, for the record.
            options: Options given to the template, for the record.
            filled: The text with the role of each of its parts; None if unknown.
            step_size: Tokens per chunk; None for as many as take about 100 ms.
            stopped: Polled before each chunk.

        Yields:
            The prompt, a record for each chunk, and the first distribution. The prompt logprobs are read afterwards,
            with `unread`; for a long prompt some are read between the chunks.

        Raises:
            PromptError: The prompt is empty, longer than the context window, or has ids without an embedding; nothing
                has changed then.
            SettingsError: A logit bias names a token that the model doesn't have.
            Cancelled: `stopped` returned True; `go_on_prefill` continues.
        """
        self.check_prompt(ids, self.tree[parent].depth)
        self.check_settings(self.settings)
        new_tree = len(self.tree) == 1
        prompt = self._add_prompt(text, ids, parent)
        if parent == ROOT:
            self.conversation = messages, options
        self._prefill_run = run = PrefillRun(
            self.runner, self.unread, self._tail, self.tokens, self.settings.candidates, prompt, echo
        )
        held = self.kv.offset
        segments = (
            protocol.NO_SEGMENTS if filled is None else filled.segments([token.text for token in run.tokens])
        )
        self.replies[run.tokens[-1].node] = segments.reply
        yield protocol.PromptOpened(
            text, chat, tuple(run.tokens), run.echo, notes, parent, held, messages, options, new_tree,
            segments=segments,
        )  # fmt: skip
        yield from self.go_on_prefill(step_size, stopped)

    def _add_prompt(self, text: str, ids: list[int], parent: int) -> PromptPath:
        """Add a prompt to the tree, and make the cache contain the tokens of its path that were computed before."""
        begun, known = time.perf_counter(), len(self.tree)
        nodes = self.tree.add_prompt(parent, ids)
        path = self.tree.nodes(nodes[-1])
        computed = next((place for place, node in enumerate(path) if node >= known), len(path))
        row = self.kept_logits.get(path[computed - 1]) if computed else None
        # If the logits of the last computed token are not cached, it runs again, for the readings of the next token. If
        # that would change the numbers, the next token gets no readings.
        again = row is None and not self.kv.chunks_matter
        cost = self._share(nodes[-1], max(0, computed - 1) if again else len(path) - 1, computed)
        if again and computed < len(path) and self.kv.offset == computed - 1:
            cost = replace(cost, note=f"token {computed:,} recomputed, for the logits after it")
        before = row if self.kv.offset == computed else None
        ids, ms = self.tree.tokens(nodes[-1]), (time.perf_counter() - begun) * 1000
        return PromptPath(text, ids, nodes, parent, self.pending, before, cost, ms)

    def _share(self, end: int, want: int, computed: int) -> MoveCost:
        """Make the cache contain as much as possible of the path to a prompt's end, and move to the node before the
        prompt's last one.

        Args:
            end: The prompt's last node.
            want: Maximum number of tokens in the cache.
            computed: Number of tokens of the path that were in the tree before.
        """
        if self.cached:
            shared = self.tree[self.tree.common_ancestor(self.node, end)].depth
            self.mover.keep_branch(self.node, shared)
            cost = self.mover.move(self.node, end, want)
        else:
            self.kv.clear()
            cost = MoveCost(0, 0, ALL_AGAIN if computed else "")
        self.make_current(self.tree[end].parent)
        self._position = None
        if not self.cached:
            return cost
        begin = self.interventions.begin(end)
        if self.kv.offset < begin:  # chunks run under interventions from there on, not earlier
            self.run_path(self.runner, self.tree[self.interventions.first(end)].parent)
        return cost if self.kv.offset < min(want, computed) else replace(cost, note="")

    def go_on_prefill(self, step_size: int | None = None, stopped: Stopped = never) -> Iterator[PromptRecord]:
        """Continue a prefill that was stopped.

        Args:
            step_size: Tokens per chunk from now on; None to leave it unchanged.
            stopped: Polled before each chunk.

        Yields:
            A record for each remaining chunk, and the first distribution.

        Raises:
            StepError: No prefill was stopped.
            Cancelled: `stopped` returned True; another call continues the prefill.
        """
        if (run := self._prefill_run) is None:
            raise StepError("There is no prefill to continue.", "Give a prompt.")
        run.resize(step_size)
        try:
            yield from run.chunks(stopped)
            begun = time.perf_counter()
            last = run.tokens[-1].id
            row = self.runner.forward(last) if self.cached else self._forward_uncached(last)
            run.count("token", 1, (time.perf_counter() - begun) * 1000)
            self._set_node(run.tokens[-1].node, row)
        except (Cancelled, GeneratorExit):
            raise
        except BaseException:
            self._prefill_run = None
            self.kv.clear()  # the state of the caches is unknown, or beyond the current node
            raise
        cost = run.prompt.cost
        yield protocol.Prefilled(
            text=run.prompt.text,
            tokens=tuple(run.tokens),
            next=self.next,
            kv=self.kv_reading(),
            memory=memory(),
            ttft_ms=run.prompt.ms + run.ms + self.position.node_logits.sample_ms,
            prompt_tps=run.tps,
            kept=cost.kept,
            restored=cost.restored,
            restored_bytes=cost.nbytes,
            note=cost.note,
            cold=run.cold,
            unread=len(self.unread),
        )

    # ---- decode -----------------------------------------------------------------------------

    def step(self, token: int | None = None, origin: Origin | None = None, under: int | None = None) -> Step:
        """Take a token after the current node, and run it through the model.

        Args:
            token: Token id (checked by the caller); None for the sampler's pick.
            origin: Origin in the tree; None for `greedy` or `sampled`.
            under: See `TokenTree.add`.

        Raises:
            StepError: There is no prompt, or the context is full and the model has no positions beyond it.
        """
        before, stalls = self.position, stall_times()
        if token is None:
            token = before.next.picked
        if origin is None:
            origin = "greedy" if before.next.draw is None else "sampled"
        begun = time.perf_counter()
        self.prepare_step()
        forward_begun = time.perf_counter()
        row = self.runner.forward(token) if self.cached else self._forward_uncached(token)
        forward_ended = time.perf_counter()
        node = self.node_reader.add_token(self.node, token, origin, under=under)
        if self.runner.undo is not None:
            self.mover.record_step(node, self.runner.undo)
        try:
            self._set_node(node, row)
        except StepError:
            self._rewind(self.tree[node].depth - 1)
            raise
        kv, used = self.kv_reading(), memory()
        ended = time.perf_counter()
        sample_ms = self.position.node_logits.sample_ms
        ms = protocol.StepTimes(
            total=(ended - begun) * 1000,
            forward=(forward_ended - forward_begun) * 1000,
            sample=sample_ms,
            inspect=(ended - forward_ended) * 1000 - sample_ms,
            **stall_times(stalls)._asdict(),
            cold=self.runner.is_first("step"),
        )
        return self.node_reader.step_record(before, self.position, origin, kv, ms, used)

    def choose(self, token: int, *, leave_grammar: bool = False) -> Step:
        """Take a given token after the current node.

        Args:
            token: Its id.
            leave_grammar: True to allow a token that the grammar forbids; the grammar doesn't apply from there on.

        Raises:
            StepError: See `step`; or the grammar forbids the token.
            PromptError: The model has no embedding for the id.
        """
        return next(self.insert([token], "chosen", leave_grammar=leave_grammar))

    def insert(
        self, ids: Sequence[int], origin: Origin = "inserted", *, leave_grammar: bool = False
    ) -> Iterator[Step]:
        """Take tokens after the current node, one step each.

        Args:
            ids: The tokens.
            origin: Their origin in the tree.
            leave_grammar: See `choose`.

        Raises:
            PromptError: The model has no embedding for one of them; no token is taken then.
            StepError: See `step`; or the grammar forbids one of them; no token is taken then.
        """
        self.tokens.check(ids)
        if not leave_grammar:
            self.check_allowed(ids)
        for token in ids:
            yield self.step(token, origin)

    def prepare_step(self) -> None:
        """Check that there is room for one more token, and make the cache contain the complete path.

        Raises:
            StepError: The context is full and the model has no positions beyond it.
        """
        self.check_room(self.node)
        at = self.tree[self.node]
        if self.cached and self.kv.offset < at.depth:  # incomplete after a failure or a cancelled move
            self.run_path(self.runner, self.node)

    # ---- moves ------------------------------------------------------------------------------

    def move(self, node: int, stopped: Stopped = never) -> Moved:
        """Move to another node of the tree: keep the tokens that the paths share, restore saved KV, recompute the rest.

        Args:
            node: Any node except the root.
            stopped: Polled before each chunk that is recomputed.

        Returns:
            The record of the move, with the numbers of tokens that were kept, restored and recomputed.

        Raises:
            StepError: There is no such node, it is the root, or nothing can be sampled after it.
            Cancelled: `stopped` returned True. After any error the current node is unchanged.
        """
        self.check_node(node)
        begun = time.perf_counter()
        row, depth = self.kept_logits.get(node), self.tree[node].depth
        if not self.cached:
            recomputed = 0 if row is not None else depth
            if row is None:
                row = self.runner.forward_uncached(self.tree.tokens(node), stopped)
            if self.kv.offset:
                self.kv.clear()  # chunks of a prompt whose prefill was stopped: the next step would continue them
            self._set_node(node, row)
            ms, note = (time.perf_counter() - begun) * 1000, ALL_AGAIN if recomputed else ""
            return Moved(node, 0, 0, recomputed, ms, self.next, self.kv_reading(), note)
        shared = self.tree[self.tree.common_ancestor(self.node, node)].depth
        self.mover.keep_branch(self.node, shared)
        try:
            cost = self.mover.move(self.node, node, depth if row is not None else depth - 1)
            recomputed = depth - self.kv.offset
            if recomputed:
                row = self.run_path(self.runner, node, stopped)
            assert row is not None  # without a cached row the last token was recomputed
            self._set_node(node, row)
        except BaseException:
            self._rewind(shared)  # the node is unchanged: the tokens after these are another path's
            raise
        ms = (time.perf_counter() - begun) * 1000
        note = cost.note or "the logits after it are not kept any more" if recomputed else ""
        return Moved(
            node, cost.kept, cost.restored, recomputed, ms, self.next, self.kv_reading(), note, cost.nbytes
        )

    def move_and_step(self, node: int, stopped: Stopped = never) -> Iterator[Moved | Step]:
        """Move to another node, and step the nodes on its path that have no step yet.

        Yields:
            The move to the last node with a step, then a step for each node after it.

        Raises:
            StepError: See `move` and `step`.
            Cancelled: `stopped` returned True; the session is at the node of the last record.
        """
        if node not in self.tree or not (unstepped := self.tree.without_step(node)):
            yield self.move(node, stopped)
            return
        yield self.move(self.tree[unstepped[0]].parent, stopped)
        for child in unstepped:
            if stopped():
                raise Cancelled
            yield self.step(self.tree[child].token, self.tree[child].origin)

    def recall(self, nodes: tuple[int, ...], stopped: Stopped = never) -> None:
        """Recompute the logits after some nodes of one path, in separate KV caches, and cache them.

        Args:
            nodes: Nodes of one path, in its order; nodes with cached logits are skipped.
            stopped: Polled before each chunk and token.

        Raises:
            StepError: There is no such node.
            Cancelled: `stopped` returned True; the logits computed so far are stored.
        """
        for node in nodes:
            self.check_node(node)
        runner = self.runner.fresh()
        missing = [
            each for each in nodes if self.row_at(each) is None
        ]  # also marks the cached rows as the most recently used
        for node in missing:
            if self.cached:
                row = self.run_path(runner, node, stopped)
            else:
                row = runner.forward_uncached(self.tree.tokens(node), stopped)
            self.kept_logits.put(node, row)

    def _rewind(self, depth: int) -> None:
        """Rewind the cache to at most `depth` tokens."""
        self.kv.rewind(min(depth, self.kv.offset))

    def verify(self, stopped: Stopped = never) -> protocol.Verified:
        """Recompute the path with separate, empty caches, and compare the logits with those of the live cache.

        Raises:
            StepError: There is no prompt.
            Cancelled: `stopped` returned True.
        """
        live = self.logits
        begun = time.perf_counter()
        fresh = self.run_path(self.runner.fresh(), self.node, stopped)
        difference = float(np.abs(live - fresh).max())
        same = bool((ranked(live, 10) == ranked(fresh, 10)).all())
        ms, rounding = (time.perf_counter() - begun) * 1000, rounding_of(live, self.facts.dtype)
        tokens, held = self.tree[self.node].depth, self.interventions.at(self.node)
        return protocol.Verified(self.node, tokens, difference, same, ms, rounding, held)


# ---- the path to any node in a cache, without changing the live cache --------------------------


class DetachedPath(Struct, frozen=True):
    """A cache that contains a path, and the logits after it."""

    runner: Runner
    """The runner with that cache; read-only, since for the current node it is the session's runner."""
    row: Row
    recomputed: int
    """Number of tokens of the path that ran through the model again."""
    why: str
    """Reason why cached tokens could not be used; empty if they could."""


def run_at(session: Session, node: int, stopped: Stopped = never) -> DetachedPath:
    """Bring the path to a node into a cache, and compute the logits after it.

    Unless it is the session's current node, the live cache is copied (MLX copies an array only when it is written), and
    the copy is moved like the session's own: trimmed, extended with saved KV, and the rest recomputed.

    Args:
        session: The session; it is not changed.
        node: Any node except the root.
        stopped: Polled before each chunk and token to recompute.

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
    runner.compute = session.interventions.computes[session.tree[node].intervention_set]
    cost = mover.move(session.node, node, depth if row is not None else depth - 1)
    recomputed = depth - runner.kv.offset
    if recomputed:
        row = session.run_path(runner, node, stopped)
    assert row is not None  # without a cached row the last token was recomputed
    return DetachedPath(runner, row, recomputed, cost.note)
