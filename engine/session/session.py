"""The stepping engine: one model, one token tree, one live KV cache that holds the path to its current node.

A step is explicit: one forward, one evaluation, then plain numbers. After a failure, too, the caches hold a prefix of
the path to `node`, of `kv.offset` tokens.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from engine import protocol
from engine.cache.moves import MoveCost
from engine.errors import Cancelled, StepError
from engine.model.forward import Runner, rounding_of
from engine.model.prompt_fields import ChatText
from engine.protocol import (
    NO_OPTIONS,
    NO_SEGMENTS,
    ChatOptions,
    Message,
    Moved,
    Origin,
    Step,
    StepTimes,
)
from engine.sampling.ranking import ranked
from engine.session.node_records import memory
from engine.session.prefill import PrefillRun, PromptPath, PromptRecord
from engine.session.state import SessionState
from engine.task import Stopped, never
from engine.timing import stall_times
from engine.tree import ROOT


class Session(SessionState):
    """Prefill, step, choose, insert, move and verify on one loaded model, in the thread that loaded it.

    Args:
        loaded: The model.
        settings: Sampling and stops; `configure` changes them.
    """

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
        self.check_settings()
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
        shared = self.tree[self.tree.common_ancestor(self.node, end)].depth
        self.mover.keep_branch(self.node, shared)
        cost = self.mover.move(self.node, end, want)
        self.make_current(self.tree[end].parent)
        self._position = None
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
            row = self._forward(run.tokens[-1].id)
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

    def step(self) -> Step:
        """Take the token that the sampler picked, and run it through the model.

        Raises:
            StepError: There is no prompt, or the context is full and its positions end there.
        """
        distribution = self.position.next
        return self.take(distribution.picked, "greedy" if distribution.draw is None else "sampled")

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
            yield self.take(token, origin)

    def take(self, token: int, origin: Origin, held: int | None = None) -> Step:
        """Take a checked token after the current node; `held` as in `TokenTree.add`. Raises as `step`."""
        before, stalls = self.position, stall_times()
        begun = time.perf_counter()
        self.prepare_step()
        forward_begun = time.perf_counter()
        row = self._forward(token)
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

    def prepare_step(self) -> None:
        """Check that there is room for one more token, and make the cache hold the whole path.

        Raises:
            StepError: The context is full and its positions end there.
        """
        self.check_room(self.node)
        at = self.tree[self.node]
        if self.kv.offset < at.depth:  # a failure or a cancelled move left it short
            self.run_path(self.runner, self.node)

    def prepared_runner(self, stopped: Stopped = never) -> Runner:
        """A runner whose cache holds the path to the current node; read-only.

        Raises:
            StepError: There is no prompt, or no room for one more token.
            Cancelled: `stopped` returned True.
        """
        _ = self.position
        self.prepare_step()
        return self.runner

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
            yield self.take(self.tree[child].token, self.tree[child].origin)

    def recall(self, nodes: tuple[int, ...], stopped: Stopped = never) -> None:
        """Recompute the logits after some nodes of one path, in separate caches, and keep them.

        Args:
            nodes: Nodes of one path, in its order; those whose rows are kept are left out.
            stopped: Polled before each chunk and token.

        Raises:
            StepError: There is no such node.
            Cancelled: `stopped` returned True; the logits computed so far are kept.
        """
        runner = self.runner.fresh()
        for node in self._dropped(nodes):
            self.kept_logits.put(node, self.run_path(runner, node, stopped))

    def _dropped(self, nodes: tuple[int, ...]) -> list[int]:
        """Those of some nodes whose rows are not kept; rows that are kept are dropped for them last."""
        for node in nodes:
            self.check_node(node)
        return [node for node in nodes if self.row_at(node) is None]

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
