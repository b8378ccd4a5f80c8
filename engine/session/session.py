"""The stepping engine: one model, one token tree, one live KV cache that holds the path to its current node.

A step is explicit: one forward, one evaluation, then plain numbers. After a failure, too, the caches hold a prefix of
the path to `node`, of `kv.offset` tokens.

Without a KV cache (`no_kv_cache`) every step runs all tokens of its path again, as `simple_generate` of tiny-llm does.
A pass runs over new caches, since the model's layers need some, and drops them at its end. The numbers are those of the
cached session but for the order of sums: the ids are the same unless two tokens are nearly equal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.cache.live import KV
from engine.cache.moves import KVStore, MoveCost, Mover
from engine.errors import Cancelled, PromptError, StepError
from engine.logits.node_sampler import Position
from engine.model.chat_template import given_tools
from engine.model.forward import Runner, rounding_of
from engine.model.load import Loaded
from engine.model.prompt_fields import ChatText
from engine.protocol import (
    NO_OPTIONS,
    NO_SEGMENTS,
    ChatOptions,
    Distribution,
    KVReading,
    Message,
    Moved,
    Origin,
    ReplyFormat,
    Step,
    StepTimes,
)
from engine.sampling.ranking import Row, ranked
from engine.segments import ReplyToken
from engine.session.node_records import NodeReader, memory
from engine.session.prefill import PrefillRun, PromptPath, PromptRecord, Unread
from engine.session.state import HeldSets, KeptLogits
from engine.setting import check
from engine.settings import Settings
from engine.task import Stopped, never
from engine.timing import stall_times
from engine.tree import ROOT, TokenTree, chunks_go_on, within_chunk

CUT_NOTE = (
    "These are the numbers where the prompt ends here; in the middle of a longer prompt's chunk this KV cache gives "
    "other ones."
)
_CHARACTERS = 16
"""Characters for each token of the window, of which a prompt that is far too long is told: 4 to a token are usual."""
ALL_AGAIN = "without a KV cache the whole path goes through again"


class Session:
    """Prefill, step, choose, insert, move and verify on one loaded model, in the thread that loaded it.

    Args:
        loaded: The model.
        settings: Sampling and stops; `configure` changes them.
    """

    title = ""
    """What tells its model from the session's, where it is another one."""

    def __init__(self, loaded: Loaded, settings: Settings) -> None:
        self.loaded = loaded
        self.cached = not loaded.settings.no_kv_cache
        """True if a KV cache is kept between steps."""
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
        return self.cached and self.kv.lazy and self.runner.stays_lazy and self.kv.can_go_ahead()

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

    def _forward_uncached(self, token: int) -> Row:
        """Run the whole path and one more token; a prompt's last token ends the pass that its chunks began."""
        if not self.kv.offset:
            return self.runner.forward_uncached([*self.tree.tokens(self.node), token])
        try:
            return self.runner.forward(token)
        finally:
            self.kv.drop()

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

    def check_settings(self, settings: Settings) -> None:
        """Refuse settings that this model can't have.

        Raises:
            SettingsError: A bias names a token that the model doesn't have, or the grammar can't be used.
        """
        check(settings, self.facts.vocabulary)
        if settings.grammar is not None:
            self.node_reader.grammars.compiled(settings.grammar)

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
        """Add a prompt to the tree, and go to its end.

        The cache keeps what the prompt shares with the path so far, and what was kept of other branches is restored.
        The rest but its last token goes through the model in chunks, as in mlx_lm; the last is a separate forward.

        Args:
            text: The prompt as encoded, for the record.
            ids: Its token ids.
            parent: Node before it: the root, or the end of a completion that it follows.
            chat: Whether a chat template was filled.
            echo: Prompt logprobs; None for prompts of up to 2,048 tokens.
            notes: Requests that could not be met, for the record.
            messages: The conversation up to its end, for the record.
            options: What else the template got, for the record.
            filled: The text with whose each part is; None where that isn't known.
            step_size: Tokens a chunk; None for as many as take about 100 ms.
            stopped: Polled before each chunk.

        Yields:
            The prompt, a record for each chunk, and the first distribution. The prompt logprobs are read after it, by
            `unread`; of a long prompt some on the way.

        Raises:
            PromptError: The prompt is empty, longer than the context window, or has ids without an embedding; nothing
                changed then.
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
        segments = NO_SEGMENTS if filled is None else filled.segments([token.text for token in run.tokens])
        self.replies[run.tokens[-1].node] = segments.reply
        yield protocol.PromptOpened(
            text, chat, tuple(run.tokens), run.echo, notes, parent, held, messages, options, new_tree,
            segments=segments,
        )  # fmt: skip
        yield from self.go_on_prefill(step_size, stopped)

    def _add_prompt(self, text: str, ids: list[int], parent: int) -> PromptPath:
        """Add a prompt to the tree, and make the cache hold what was computed of its path before."""
        begun, known = time.perf_counter(), len(self.tree)
        nodes = self.tree.add_prompt(parent, ids)
        path = self.tree.nodes(nodes[-1])
        computed = next((place for place, node in enumerate(path) if node >= known), len(path))
        row = self.kept_logits.get(path[computed - 1]) if computed else None
        # Without the row the last known token runs once more, for the readings of the token after it; where that would
        # change the numbers, the token has none.
        again = row is None and not self.kv.chunks_matter
        cost = self._share(nodes[-1], max(0, computed - 1) if again else len(path) - 1, computed)
        if again and computed < len(path) and self.kv.offset == computed - 1:
            cost = replace(cost, note=f"token {computed:,} ran again, for the logits after it")
        before = row if self.kv.offset == computed else None
        ids, ms = self.tree.tokens(nodes[-1]), (time.perf_counter() - begun) * 1000
        return PromptPath(text, ids, nodes, parent, self.pending, before, cost, ms)

    def _share(self, end: int, want: int, computed: int) -> MoveCost:
        """Make the cache hold what it can of the path to a prompt's end, and go to the node before that.

        Args:
            end: The prompt's last node.
            want: Tokens to hold at most.
            computed: Tokens of the path that were in the tree before.
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
        if self.kv.offset < self.held.begin(end):  # from there on, and no earlier, chunks run changed
            self.run_path(self.runner, self.tree[self.held.first(end)].parent)
        return cost if self.kv.offset < min(want, computed) else replace(cost, note="")

    def go_on_prefill(self, step_size: int | None = None, stopped: Stopped = never) -> Iterator[PromptRecord]:
        """Continue a prefill that was stopped.

        Args:
            step_size: Tokens a chunk from here on; None changes nothing.
            stopped: Polled before each chunk.

        Yields:
            A record for each remaining chunk, and the first distribution.

        Raises:
            StepError: None was stopped.
            Cancelled: `stopped` returned True; another call continues.
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

    def step(self, token: int | None = None, origin: Origin | None = None, held: int | None = None) -> Step:
        """Take a token after the current node, and run it through the model.

        Args:
            token: Its id (checked by the caller); None for the one that the sampler picked.
            origin: Its origin, for the tree; None for the sampler.
            held: As in `TokenTree.add`.

        Raises:
            StepError: There is no prompt, or the context is full and its positions end there.
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
        node = self.node_reader.add_token(self.node, token, origin, held=held)
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
        ms = StepTimes(
            total=(ended - begun) * 1000,
            forward=(forward_ended - forward_begun) * 1000,
            sample=sample_ms,
            inspect=(ended - forward_ended) * 1000 - sample_ms,
            **stall_times(stalls)._asdict(),
            cold=self.runner.first_uses.take("step"),
        )
        return self.node_reader.step_record(before, self.position, origin, kv, ms, used)

    def choose(self, token: int, *, leave_grammar: bool = False) -> Step:
        """Take a given token after the current node.

        Args:
            token: Its id.
            leave_grammar: Whether one is taken that the grammar forbids; from there on the grammar holds no more.

        Raises:
            StepError: As `step`, or the grammar forbids the token.
            PromptError: The model has no embedding for the id.
        """
        return next(self.insert([token], "chosen", leave_grammar=leave_grammar))

    def insert(
        self, ids: Sequence[int], origin: Origin = "inserted", *, leave_grammar: bool = False
    ) -> Iterator[Step]:
        """Take tokens after the current node, one step each.

        Args:
            ids: The tokens.
            origin: Their origin, for the tree.
            leave_grammar: As for `choose`.

        Raises:
            PromptError: The model has no embedding for one of them; then none is taken.
            StepError: As `step`, or the grammar forbids one of them; then none is taken.
        """
        self.tokens.check(ids)
        if not leave_grammar:
            self.check_allowed(ids)
        for token in ids:
            yield self.step(token, origin)

    def prepare_step(self) -> None:
        """Check that there is room for one more token, and make the cache hold the whole path.

        Raises:
            StepError: The context is full and its positions end there.
        """
        self.check_room(self.node)
        at = self.tree[self.node]
        if self.cached and self.kv.offset < at.depth:  # a failure or a cancelled move left it short
            self.run_path(self.runner, self.node)

    def prepared_runner(self, stopped: Stopped = never) -> Runner:
        """A runner whose cache holds the path to the current node; read-only. Without a KV cache it is made for this.

        Raises:
            StepError: There is no prompt, or no room for one more token.
            Cancelled: `stopped` returned True.
        """
        _ = self.position
        self.prepare_step()
        if self.cached:
            return self.runner
        runner = self.runner.fresh()
        self.run_path(runner, self.node, stopped)
        return runner

    # ---- moves ------------------------------------------------------------------------------

    def move(self, node: int, stopped: Stopped = never) -> Moved:
        """Move to another node of the tree: keep what the paths share, restore what was kept, recompute the rest.

        Args:
            node: Any node but the root.
            stopped: Polled before each chunk that is recomputed.

        Returns:
            The cost: tokens that stayed, that were restored from memory, and that were recomputed.

        Raises:
            StepError: There is no such node, it is the root, or nothing can be sampled after it.
            Cancelled: `stopped` returned True; after both the current node is the one before.
        """
        self.check_node(node)
        begun = time.perf_counter()
        row, depth = self.kept_logits.get(node), self.tree[node].depth
        if not self.cached:
            recomputed = 0 if row is not None else depth
            if row is None:
                row = self.runner.forward_uncached(self.tree.tokens(node), stopped)
            if self.kv.offset:
                self.kv.clear()  # chunks of a prompt that was stopped on its way: the next step would continue them
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
            assert row is not None  # without kept logits the last token was recomputed
            self._set_node(node, row)
        except BaseException:
            self._rewind(shared)  # the current node stays: what lies behind that is of another path
            raise
        ms = (time.perf_counter() - begun) * 1000
        note = cost.note or "the logits after it are not kept any more" if recomputed else ""
        return Moved(
            node, cost.kept, cost.restored, recomputed, ms, self.next, self.kv_reading(), note, cost.nbytes
        )

    def move_and_step(self, node: int, stopped: Stopped = never) -> Iterator[Moved | Step]:
        """Move to another node, and step the nodes on the path that were never stepped.

        Yields:
            The move to the last stepped node, then a step for each token after it.

        Raises:
            StepError: As `move` and `step`.
            Cancelled: `stopped` returned True; the current node is that of the last record.
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
        """Recompute the logits after some nodes of one path, in separate caches, and keep them.

        Args:
            nodes: Nodes of one path, in its order; those whose rows are kept are left out.
            stopped: Polled before each chunk and token.

        Raises:
            StepError: There is no such node.
            Cancelled: `stopped` returned True; the logits computed so far are kept.
        """
        for node in nodes:
            self.check_node(node)
        runner = self.runner.fresh()
        for node in [
            each for each in nodes if self.row_at(each) is None
        ]:  # `row_at` makes rows the last to be dropped
            if self.cached:
                row = self.run_path(runner, node, stopped)
            else:
                row = runner.forward_uncached(self.tree.tokens(node), stopped)
            self.kept_logits.put(node, row)

    def _rewind(self, depth: int) -> None:
        """Rewind the cache to at most `depth` tokens."""
        self.kv.rewind(min(depth, self.kv.offset))

    def verify(self, stopped: Stopped = never) -> protocol.Verified:
        """Recompute the path from nothing, in separate caches, and compare the logits with those of the live cache.

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
        tokens, held = self.tree[self.node].depth, self.held.at(self.node)
        return protocol.Verified(self.node, tokens, difference, same, ms, rounding, held)


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


def run_at(session: Session, node: int, stopped: Stopped = never) -> DetachedPath:
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
