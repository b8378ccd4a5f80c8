"""The session's path in both models: what was read of it stays, so that a step costs one forward pass of the second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import takewhile

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.cache.live import KVStore, Mover
from engine.errors import Cancelled, StepError
from engine.lockstep.second import Second
from engine.lockstep.spans import Side, Span, by_bytes, byte_ends, one_by_one, read_span
from engine.model.forward import Runner
from engine.model.load import Loaded
from engine.protocol import LockstepRead
from engine.sampling.ranking import Row
from engine.session.node_records import NodeReader
from engine.session.session import InterventionSets, KeptLogits, Session
from engine.task import Stopped, never
from engine.tree import Chunks, chunk_end, chunks_go_on, common_prefix

BATCH = 32
"""Spans of a record."""
KEPT_BYTES = 64 * 2**20
"""Bytes of the second model's rows that are kept, as many as the session keeps of the first's by default."""
ROWS_BYTES = 2**26
"""Maximum bytes of the rows of a chunk: 64 MiB, 110 rows of a vocabulary of 150,000."""

# ---- rows of logits along a path, chunk by chunk -----------------------------------------------


class PathRows:
    """Logits of one model along the path that it follows, which runs in chunks as they are asked for.

    Args:
        runner: Runs the path.
        vocabulary: Number of values of a row, which bounds the tokens of a chunk.
        budget: Bytes of rows to keep as long as the path continues.
        like: Ends of another path's chunks, so that equal models give equal bits; may grow while this one runs. None
            for chunks of about 100 ms.
    """

    def __init__(
        self, runner: Runner, vocabulary: int, budget: int = 0, like: Sequence[int] | None = None
    ) -> None:
        self.runner, self._like = runner, like
        self._most = max(8, ROWS_BYTES // (4 * vocabulary))
        self._kept = KeptLogits(budget)
        self.ids: list[int] = []
        """The path; the cache holds a beginning of it."""
        self.chunks: Chunks | None = None
        """Tokens of the path that run in chunks, if the cache's numbers depend on that; None for all."""
        self._stopped: Stopped = never
        self.ends: list[int] = []
        """Ends of the chunks."""
        self.ms = 0.0
        """Milliseconds of all forward passes, the logits of every token included."""

    def follow(self, ids: Sequence[int], chunks: Chunks | None, stopped: Stopped) -> None:
        """Go to another path: what it has in common with the one before stays.

        Args:
            ids: The whole path (checked by the caller: an id beyond the embedding ends the process).
            chunks: Tokens that run in chunks, if the cache's numbers depend on that; None for all.
            stopped: Polled before each chunk from here on.
        """
        shared, kept = common_prefix(self.ids, ids), self._kept
        self._kept = KeptLogits(kept.budget)
        for place in takewhile(lambda place: place < shared, kept.nodes):
            if (row := kept.get(place)) is not None:
                self._kept.put(place, row)
        if self.runner.kv.offset > shared:
            self.runner.kv.rewind(shared)
        self.ids, self.chunks, self._stopped = list(ids), chunks, stopped
        self._begin()

    def _begin(self) -> None:
        """Run the path from where the cache ends; rows before that can't be asked for."""
        kv = self.runner.kv
        if (
            kv.chunks_matter
            and self.chunks is not None
            and not chunks_go_on(kv.chunks, self.chunks, kv.offset)
        ):
            kv.clear()
        self._sizer = self.runner.chunk_sizer(self._most)
        self._first = self._end = kv.offset
        self._rows = np.empty((0, 0), np.float32)

    def after(self, place: int) -> Row:
        """The logits after a token of the path, float32, shape (vocabulary,).

        Raises:
            Cancelled: `stopped` returned True.
        """
        if (row := self._kept.get(place)) is not None:
            return row
        if place < self._first:
            if self.runner.kv.offset > place:
                self.runner.kv.rewind(place)
            self._begin()
        while place >= self._end:
            self._advance()
        found: Row = self._rows[place - self._first]
        if self._kept.budget:
            self._kept.put(place, found := found.copy())  # the chunk that it is a part of needn't stay
        return found

    def _advance(self) -> None:
        if self._stopped():
            raise Cancelled
        begun = time.perf_counter()
        end = min(self._end + self._sizer.size, len(self.ids))
        if self._like is not None:
            end = next((each for each in self._like if each > self._end), end)
        if self.chunks is not None and self.runner.kv.chunks_matter:
            end = min(end, max(chunk_end(self.chunks, self._end), self._end + 1))
        ids = self.ids[self._end : end]
        self._rows = np.array(self.runner.forward_logits(ids))
        self._first, self._end = self._end, end
        self.ends.append(end)
        mx.clear_cache()
        ms = (time.perf_counter() - begun) * 1000
        self._sizer.learn(len(ids), ms)
        self.ms += ms

    def hold(self) -> Runner:
        """A runner whose cache holds the whole path; read-only.

        Raises:
            Cancelled: `stopped` returned True.
        """
        if self.runner.kv.offset < len(self.ids):  # it could not be trimmed
            self._begin()
            while self._end < len(self.ids):
                self._advance()
        return self.runner


# ---- the session's paths in both models --------------------------------------------------------


class Paths(Struct, frozen=True):
    """A path of the session, and the second model's path of the same text."""

    nodes: list[int]
    ids: list[int]
    other_ids: list[int]
    spans: list[Span]


class PathReader:
    """Reads the session's paths in both models.

    Args:
        first: The session's model.
        second: The other model.
    """

    def __init__(self, first: Loaded, second: Second) -> None:
        self._first, self.second = first, second
        self.rows = PathRows(second.loaded.runner(), second.loaded.tokens.vocabulary, KEPT_BYTES)
        """Rows of the second model."""
        self.forget()

    def forget(self) -> None:
        """Read the next path from its beginning: it belongs to another prompt."""
        self._read = Paths([], [], [], [])
        """The part of the last path that was read."""
        self._nodes: list[int] = []
        """The path that the rows follow, in the session's tree."""
        self._session: Session | None = None

    def read(self, session: Session, node: int, candidates: int, stopped: Stopped) -> Iterator[LockstepRead]:
        """Read the rest of the path to a node, and both distributions after it.

        Args:
            session: Doesn't change.
            node: A node of its tree.
            candidates: Number of most probable tokens of each to list.
            stopped: Polled before each chunk.

        Raises:
            StepError: There is no such node, it was computed under interventions, or the second model has no positions
                for the path.
            Cancelled: `stopped` returned True; what was emitted stays read.
        """
        session.check_node(node)
        session.interventions.refuse(node, "two models are compared")
        paths, other, by_ids = self.paths(session, node), self.second.loaded, self.second.aligned == "ids"
        same = self._same(paths)
        self._read = Paths(paths.nodes, paths.ids, paths.other_ids, paths.spans[:same])
        self._follow(session, paths, stopped)
        again = PathRows(session.runner.fresh(), session.tokens.vocabulary)
        again.follow(paths.ids, session.tree.chunks(node), stopped)

        def first_row(place: int) -> Row:
            """The row of the first model that the session keeps, else computed again in a pass of its own."""
            row = session.row_at(paths.nodes[place])
            return again.after(place) if row is None else row

        compared = self.second.compared(self._first)
        mine = Side(session.tokens, paths.ids, first_row, compared, candidates)
        theirs = Side(other.tokens, paths.other_ids, self.rows.after, compared, candidates)
        left, total = paths.spans[same:], len(paths.ids)
        since, spent, other_spent = left[0].first if left else total, 0.0, self.rows.ms
        while True:
            batch, left = left[:BATCH], left[BATCH:]
            spans = [read_span(mine, theirs, span, by_ids, paths.nodes[span.end - 1]) for span in batch]
            end, ahead, pick = batch[-1].end if left else total, None, None
            if not left:
                last = Span(total, total, len(paths.other_ids), len(paths.other_ids))
                ahead = read_span(mine, theirs, last, by_ids, node)
                pick = self.pick(session, node) if by_ids else None
            ms, other_ms = again.ms - spent, self.rows.ms - other_spent
            yield LockstepRead(node, since, tuple(spans), end, total, ms, other_ms, ahead, pick)
            self._read.spans.extend(batch)
            if not left:
                return
            since, spent, other_spent = end, again.ms, self.rows.ms

    def _follow(self, session: Session, paths: Paths, stopped: Stopped) -> None:
        chunks = session.tree.chunks(paths.nodes[-1]) if paths.other_ids == paths.ids else None
        self.rows.follow(paths.other_ids, chunks, stopped)
        self._nodes = paths.nodes

    def _same(self, paths: Paths) -> int:
        """Number of a path's spans that were read as they are."""
        nodes = common_prefix(self._read.nodes, paths.nodes)
        other = common_prefix(self._read.other_ids, paths.other_ids)
        same = common_prefix(self._read.spans, paths.spans)
        return sum(1 for span in paths.spans[:same] if span.end <= nodes and span.other_end <= other)

    def pick(self, session: Session, node: int) -> int:
        """The token that the sampler takes from the second model's row after a node whose path was read."""
        row = self.rows.after(len(self._read.other_ids) - 1)
        return session.node_reader.sample(node, row, session.settings).sampled.picked

    def session(self, session: Session, node: int | None, stopped: Stopped) -> Session:
        """The session's tree on the second model: views copy its cache and read its rows, and add nothing to the tree.

        The cache is the one that the paths are read with, so that a path goes through the second model once.

        Args:
            session: Doesn't change.
            node: Node to which the cache must hold the path, or a longer one; its row is kept. None for none.
            stopped: Polled before each chunk.

        Raises:
            StepError: There is no such node, it was computed under interventions, or the second model has other tokens
                there, or no positions for the path.
            Cancelled: `stopped` returned True.
        """
        if (made := self._session) is None:
            made = self._session = Session(self.second.loaded, session.settings)
            made.title, made.tree, made.pending = self.second.title, session.tree, session.pending
            made.settings_at, made.kept_logits = session.settings_at, KeptLogits(KEPT_BYTES)
            made.runner, made.kv = self.rows.runner, self.rows.runner.kv
            made.interventions = InterventionSets(made.runner.model, made.tree)
            made.mover = Mover(made.kv, made.tree, KVStore(0))
            made.node_reader = NodeReader(made.tokens, made.tree, made.pending)
        made.settings = session.settings
        if node is None:
            return made
        session.check_node(node)
        session.interventions.refuse(node, "a second model is looked into")
        paths = self.paths(session, node)
        if paths.other_ids != paths.ids:
            raise StepError(
                f"{self.second.loaded.facts.name} reads other tokens than the session's model here, so it has no "
                "such token.",
                "Open it as the session's model to look inside it.",
            )
        depth = session.tree[node].depth
        if self._nodes[:depth] == paths.nodes:  # the rows follow this path, or a longer one
            self.rows.follow(self.rows.ids, self.rows.chunks, stopped)
        else:
            self._follow(session, paths, stopped)
        made.kept_logits.put(node, self.rows.after(depth - 1))
        made.make_current(self._nodes[self.rows.hold().kv.offset - 1])
        return made

    # ---- the second model's path --------------------------------------------------------------

    def paths(self, session: Session, node: int) -> Paths:
        """A path of the session, and the second model's path of the same text.

        Raises:
            StepError: The second model has no positions for it, or its text can't be cut.
        """
        ids, nodes, loaded = session.tree.tokens(node), session.tree.nodes(node), self.second.loaded
        other_ids, spans = ids, one_by_one(len(ids))
        if self.second.aligned == "bytes":
            other_ids, spans = self._by_bytes(session, ids)
        elif self.second.prompted:
            other_ids, spans = self._prompted(session, nodes, ids)
        loaded.tokens.check(other_ids)
        facts = loaded.facts
        if facts.hard_window and facts.context_window is not None and len(other_ids) > facts.context_window:
            raise StepError(
                f"The path has {len(other_ids)} tokens, and {facts.name} has {facts.context_window} positions.",
                "Go back, or begin with a shorter prompt.",
            )
        return Paths(nodes, ids, other_ids, spans)

    def _by_bytes(self, session: Session, ids: list[int]) -> tuple[list[int], list[Span]]:
        """The path's text as the second model's tokenizer cuts it; the marks before it stay out."""
        tokens, other = session.tokens, self.second.loaded.tokens
        marks = next((place for place, token in enumerate(ids) if not tokens.is_special(token)), len(ids))
        raws = [b""] * marks + [tokens.raw(token) for token in ids[marks:]]
        text = b"".join(raws).decode("utf-8", "ignore")  # a character at the end may be unfinished
        if not text:
            raise StepError("There is no text to compare yet.", "Take a step.")
        other_ids = other.encode(text)
        mine = byte_ends(raws, text.encode())
        theirs = byte_ends([other.raw(token) for token in other_ids], text.encode())
        if mine is None or theirs is None:
            raise StepError(
                f"The tokenizer of {self.second.loaded.facts.name} changes this text, so its tokens can't be placed "
                f"in it.",
                "Compare models whose tokenizers keep texts as they are.",
            )
        return other_ids, by_bytes(mine, theirs)

    def _prompted(self, session: Session, nodes: list[int], ids: list[int]) -> tuple[list[int], list[Span]]:
        """The path after another prompt of the same conversation: compared where both are the same, and after them."""
        messages, options = session.conversation
        if not messages:
            raise StepError(
                "This prompt is raw text, which has no place for the second model's system prompt.",
                "Give the prompt as a conversation.",
            )
        prompt = self.second.loaded.tokens.encode(self.second.prompt(messages, options), bare=True)
        own = len(list(takewhile(lambda node: session.tree[node].origin == "prompt", nodes)))
        before = common_prefix(ids[:own], prompt)
        after = common_prefix(reversed(ids[before:own]), reversed(prompt[before:]))
        later = one_by_one(len(ids), len(prompt) - own)[own - after :]
        return [*prompt, *ids[own:]], [*one_by_one(before), *later]
