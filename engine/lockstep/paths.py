"""The session's path in both models: what was read of it stays, so that a step costs one forward of the second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from msgspec import Struct

from engine.errors import StepError
from engine.lockstep.second import Second
from engine.lockstep.spans import ChunkedRows, Side, Span, SpanReader, by_bytes, byte_ends, one_by_one
from engine.model.forward import Runner
from engine.model.load import Loaded
from engine.protocol import LockstepRead, LockstepSpan
from engine.sampling.ranking import Row
from engine.session.session import Session
from engine.session.state import KeptLogits
from engine.task import Stopped
from engine.tree import Chunks, common_prefix

BATCH = 32
"""Spans of a record."""
KEPT_BYTES = 64 * 2**20
"""Of the second model's rows, as many as the session keeps of the first's by default."""


class Paths(Struct, frozen=True):
    """A path of the session, and the second model's path of the same text."""

    nodes: list[int]
    ids: list[int]
    other_ids: list[int]
    spans: list[Span]


class FirstRows:
    """Rows of the first model along a path of the session: those that it keeps, the rest run again, in a pass.

    Args:
        session: Its live cache isn't touched.
        paths: The path.
        stopped: Polled before each chunk.
    """

    def __init__(self, session: Session, paths: Paths, stopped: Stopped) -> None:
        self._session, self._nodes = session, paths.nodes
        vocabulary = session.tokens.vocabulary
        chunks = session.tree.chunks(paths.nodes[-1])
        self.again = ChunkedRows(session.runner.fresh(), vocabulary, paths.ids, stopped, chunks=chunks)

    @property
    def ms(self) -> float:
        """Of its forwards."""
        return self.again.ms

    def after(self, place: int) -> Row:
        """See `RowSource`."""
        row = self._session.row_at(self._nodes[place])
        return self.again.after(place) if row is None else row


class SecondRows:
    """Rows of the second model along the path that it follows: kept while the path goes on, run again after a turn.

    Args:
        loaded: The second model.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._vocabulary = loaded.tokens.vocabulary
        self.runner = loaded.runner()
        self._ids: list[int] = []
        """The path of the kept rows; the cache holds a beginning of it."""
        self._chunks: Chunks | None = None
        """Which of it the first model ran in chunks; None where the two paths have other tokens."""
        self._kept = KeptLogits(KEPT_BYTES)
        self._run: ChunkedRows | None = None
        self._stopped: Stopped = lambda: False
        self._before = 0.0

    @property
    def ms(self) -> float:
        """Of all its forwards."""
        return self._before + (self._run.ms if self._run is not None else 0.0)

    def follow(self, ids: Sequence[int], chunks: Chunks | None, stopped: Stopped) -> None:
        """Go to another path: what it has in common with the one before stays.

        Args:
            ids: The whole path (checked).
            chunks: Which of it the first model ran in chunks; None where the two paths have other tokens.
            stopped: Polled before each chunk from here on.
        """
        shared = common_prefix(self._ids, ids)
        kept, self._kept = self._kept, KeptLogits(KEPT_BYTES)
        for place in takewhile(lambda place: place < shared, kept.nodes):
            row = kept.get(place)
            assert row is not None
            self._kept.put(place, row)
        self._before, self._run = self.ms, None
        held = self.runner.kv.offset
        if held > shared:
            self.runner.kv.rewind(shared)
        self._ids, self._chunks, self._stopped = list(ids), chunks, stopped

    def go_on(self, stopped: Stopped) -> None:
        """Follow the same path for another command.

        Args:
            stopped: Polled before each chunk from here on.
        """
        self._before, self._run, self._stopped = self.ms, None, stopped

    def after(self, place: int) -> Row:
        """See `RowSource`.

        Raises:
            Cancelled: As `ChunkedRows`.
        """
        if (row := self._kept.get(place)) is not None:
            return row
        if self._run is None or place < self._run.first:
            self._before, self._run = self.ms, None
            if self.runner.kv.offset > place:
                self.runner.kv.rewind(place)
            self._run = self._chunked()
        row = self._run.after(place).copy()  # the chunk that it is a part of needn't stay
        self._kept.put(place, row)
        return row

    def hold(self) -> Runner:
        """A runner whose cache holds the whole path; read-only.

        Raises:
            Cancelled: As `ChunkedRows`.
        """
        end = len(self._ids)
        if self.runner.kv.offset < end:  # it could not be trimmed
            self._before, self._run = self.ms, self._chunked()
            self._run.after(end - 1)
        return self.runner

    def _chunked(self) -> ChunkedRows:
        return ChunkedRows(self.runner, self._vocabulary, self._ids, self._stopped, chunks=self._chunks)


class PathReader:
    """Reads the session's paths in both models.

    Args:
        first: The session's model.
        second: The other.
    """

    def __init__(self, first: Loaded, second: Second) -> None:
        self._first, self.second = first, second
        self.rows = SecondRows(second.loaded)
        self._sent = Paths([], [], [], [])
        """As far as it was read."""
        self._nodes: list[int] = []
        """The path that the rows follow, in the session's tree."""

    def forget(self) -> None:
        """Read the next path from its beginning: it is in another tree."""
        self._sent, self._nodes = Paths([], [], [], []), []

    def follow(self, session: Session, node: int, stopped: Stopped) -> list[int]:
        """Have the rows follow the path to a node, or a longer one that it is the beginning of.

        Args:
            session: Doesn't change.
            node: Of its tree.
            stopped: Polled before each chunk from here on.

        Returns:
            The nodes of the path that they follow.

        Raises:
            StepError: There is no such node, it was computed under interventions, or the second model has other tokens
                there, or no positions for the path.
        """
        session.check_node(node)
        session.held.refuse(node, "a second model is looked into")
        paths = self.paths(session, node)
        if paths.other_ids != paths.ids:
            raise StepError(
                f"{self.second.loaded.facts.name} reads other tokens than the session's model here, so it has no "
                "such token.",
                "Open it as the session's model to look inside it.",
            )
        ends = session.tree[node].depth
        if self._nodes[:ends] == paths.nodes:
            self.rows.go_on(stopped)
        else:
            self._follow(session, paths, stopped)
        return self._nodes

    def _follow(self, session: Session, paths: Paths, stopped: Stopped) -> None:
        alike = session.tree.chunks(paths.nodes[-1]) if paths.other_ids == paths.ids else None
        self.rows.follow(paths.other_ids, alike, stopped)
        self._nodes = paths.nodes

    def read(self, session: Session, node: int, candidates: int, stopped: Stopped) -> Iterator[LockstepRead]:
        """What was not read of the path to a node, and both distributions after it.

        Args:
            session: Doesn't change.
            node: Of its tree.
            candidates: Most probable tokens of each that are listed.
            stopped: Polled before each chunk.

        Raises:
            StepError: There is no such node, it was computed under interventions, or the second model has no positions
                for the path.
            Cancelled: `stopped` returned True; what was emitted stays read.
        """
        session.check_node(node)
        session.held.refuse(node, "two models are compared")
        paths = self.paths(session, node)
        same = self._same(paths)
        self._sent = Paths(paths.nodes, paths.ids, paths.other_ids, paths.spans[:same])
        self._follow(session, paths, stopped)
        mine, begun = FirstRows(session, paths, stopped), self.rows.ms
        compared = self.second.compared(self._first)
        reader = SpanReader(
            Side(session.tokens, paths.ids, mine, compared),
            Side(self.second.loaded.tokens, paths.other_ids, self.rows, compared),
            self.second.aligned == "ids",
            candidates,
        )
        taken: list[LockstepSpan] = []
        left = paths.spans[same:]
        total, since = len(paths.ids), left[0].first if left else len(paths.ids)
        spent = 0.0
        for span in left:
            taken.append(reader.read(span, span.first, paths.nodes[span.end - 1]))
            if len(taken) == BATCH and span is not left[-1]:
                yield LockstepRead(
                    node, since, tuple(taken), span.end, total, mine.ms - spent, self.rows.ms - begun
                )
                self._sent.spans.extend(left[: len(taken)])
                left = left[len(taken) :]
                taken, since, spent, begun = [], span.end, mine.ms, self.rows.ms
        end = Span(total, total, len(paths.other_ids), len(paths.other_ids))
        ahead = reader.read(end, total, node)
        pick = self.pick(session, node) if self.second.aligned == "ids" else None
        yield LockstepRead(
            node, since, tuple(taken), total, total, mine.ms - spent, self.rows.ms - begun, ahead, pick
        )
        self._sent.spans.extend(left)

    def _same(self, paths: Paths) -> int:
        """How many of a path's spans were sent as they are."""
        sent = self._sent
        nodes, other = common_prefix(sent.nodes, paths.nodes), common_prefix(sent.other_ids, paths.other_ids)

        def known(pair: tuple[Span, Span]) -> bool:
            one, two = pair
            return one == two and one.end <= nodes and one.other_end <= other

        return sum(1 for _ in takewhile(known, zip(sent.spans, paths.spans, strict=False)))

    def pick(self, session: Session, node: int) -> int:
        """The token that the sampler takes from the second model's row after a node whose path was read."""
        row = self.rows.after(len(self._sent.other_ids) - 1)
        return session.node_reader.sample(node, row, session.settings).sampled.picked

    # ---- the second model's path --------------------------------------------------------------

    def paths(self, session: Session, node: int) -> Paths:
        """A path of the session, and the second model's path of the same text.

        Raises:
            StepError: The second model has no positions for it, or its text can't be cut.
        """
        ids, nodes = session.tree.tokens(node), session.tree.nodes(node)
        find: Callable[[Session, list[int], list[int]], tuple[list[int], list[Span]]] = self._by_ids
        if self.second.aligned == "bytes":
            find = self._by_bytes
        elif self.second.prompted:
            find = self._prompted
        other_ids, spans = find(session, nodes, ids)
        self.second.loaded.tokens.check(other_ids)
        facts = self.second.loaded.facts
        if facts.hard_window and facts.context_window is not None and len(other_ids) > facts.context_window:
            raise StepError(
                f"The path has {len(other_ids)} tokens, and {facts.name} has {facts.context_window} positions.",
                "Go back, or begin with a shorter prompt.",
            )
        return Paths(nodes, ids, other_ids, spans)

    def _by_ids(self, session: Session, nodes: list[int], ids: list[int]) -> tuple[list[int], list[Span]]:
        return ids, one_by_one(len(ids))

    def _by_bytes(self, session: Session, nodes: list[int], ids: list[int]) -> tuple[list[int], list[Span]]:
        """The path's text as the second model's tokenizer cuts it; the marks before it stay out."""
        tokens, other = session.tokens, self.second.loaded.tokens
        marks = next((place for place, token in enumerate(ids) if not tokens.is_special(token)), len(ids))
        raws = [b""] * marks + [tokens.raw(token) for token in ids[marks:]]
        text = b"".join(raws).decode("utf-8", "ignore")  # a character at the end may be unfinished
        if not text:
            raise StepError("There is no text to compare yet.", "Take a step.")
        other_ids = other.encode(text)
        ends = (
            byte_ends(raws, text.encode()),
            byte_ends([other.raw(token) for token in other_ids], text.encode()),
        )
        if ends[0] is None or ends[1] is None:
            raise StepError(
                f"The tokenizer of {self.second.loaded.facts.name} changes this text, so its tokens can't be placed "
                f"in it.",
                "Compare models whose tokenizers keep texts as they are.",
            )
        return other_ids, by_bytes(ends[0], ends[1])

    def _prompted(self, session: Session, nodes: list[int], ids: list[int]) -> tuple[list[int], list[Span]]:
        """The path behind another prompt of the same conversation: compared where both are the same, and after them."""
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
        shift = len(prompt) - own
        later = [
            Span(place, place + 1, place + shift, place + shift + 1) for place in range(own - after, len(ids))
        ]
        return [*prompt, *ids[own:]], [*one_by_one(before), *later]
