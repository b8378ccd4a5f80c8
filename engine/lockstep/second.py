"""The second model: loading it, and reading the session's path in both models.

The part of a path that was read is kept, so that a step costs one forward pass of the second model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from threading import Event

import mlx.core as mx
import numpy as np
from msgspec.structs import replace

from engine import protocol
from engine.cache.live import KVStore, Mover
from engine.errors import LoadError, StepError
from engine.lockstep.spans import Side, Span, by_bytes, byte_ends, first_difference, one_by_one, read_span
from engine.logits.questions import explain
from engine.memory import size_words
from engine.model import directory
from engine.model.facts import float32_scales, free_bytes, unpacked_by_itself, unpacks
from engine.model.forward import Runner
from engine.model.load import Loaded, load, resolve
from engine.models_on_disk.models import stored_weights
from engine.protocol import (
    Alignment,
    Inside,
    Loading,
    LockstepClosed,
    LockstepMemory,
    LockstepOpened,
    LockstepRead,
    Measuring,
    Message,
    OpenLockstep,
    Record,
)
from engine.sampling.ranking import Row
from engine.session.context import Context, free_garbage, take_tokens
from engine.session.node_records import NodeReader
from engine.session.session import InterventionSets, KeptLogits, Session
from engine.task import Stopped, Task, never, poll
from engine.tree import Chunks, chunk_end, chunks_go_on, common_prefix

BATCH = 32
"""Number of spans in a record."""
KEPT_BYTES = 64 * 2**20
"""Bytes of the second model's rows that are kept: the session's default for the first model."""
ROWS_BYTES = 2**26
"""Maximum bytes of the rows of a chunk: 64 MiB, 110 rows of a vocabulary of 150,000."""


# ---- rows of logits along a path, chunk by chunk -----------------------------------------------


class PathRows:
    """Logits of one model along a path, which runs in chunks as they are needed.

    Args:
        runner: Runner of the model.
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
        """The path; the cache contains its first tokens."""
        self.chunks: Chunks | None = None
        """Tokens of the path that run in chunks, if the cache's numbers depend on that; None for all."""
        self._stopped: Stopped = never
        self.ends: list[int] = []
        """Ends of the chunks."""
        self.ms = 0.0
        """Milliseconds of all forward passes, the logits of every token included."""

    def follow(self, ids: Sequence[int], chunks: Chunks | None, stopped: Stopped) -> None:
        """Go to another path; what it shares with the last one is kept.

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
        """Continue the path from the end of the cache; earlier rows are not available."""
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
            self.runner.kv.rewind(place)
            self._begin()
        while place >= self._end:
            self._advance()
        found: Row = self._rows[place - self._first]
        if self._kept.budget:
            self._kept.put(place, found := found.copy())  # a copy, so that the chunk can be freed
        return found

    def _advance(self) -> None:
        poll(self._stopped)
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
        """A runner whose cache contains the whole path; read-only.

        Raises:
            Cancelled: `stopped` returned True.
        """
        if self.runner.kv.offset < len(self.ids):  # it could not be trimmed
            self._begin()
            while self._end < len(self.ids):
                self._advance()
        return self.runner


# ---- the session's paths in both models --------------------------------------------------------


class PathReader:
    """The second model, and the session's paths in both.

    Args:
        first: The session's model.
        loaded: The other model.
        by_ids: True if both have the same tokens; otherwise the text is compared between common token borders.
        system: System prompt that the second model gets instead of the conversation's; None for the same one.
        title: Difference of the second model from the first.
    """

    def __init__(self, first: Loaded, loaded: Loaded, by_ids: bool, system: str | None, title: str) -> None:
        self.loaded, self.by_ids, self._system, self.title = loaded, by_ids, system, title
        one, other = first.tokens.vocabulary, loaded.tokens.vocabulary
        self.compared = min(one, other) if by_ids and one != other else None
        """Number of values of a row that belong to tokens of both models; None for all."""
        self.rows = PathRows(loaded.runner(), other, KEPT_BYTES)
        self.forget()

    def forget(self) -> None:
        """Read the next path from its beginning, since it belongs to another prompt."""
        self._read: tuple[list[int], list[int], list[Span]] = [], [], []
        """Nodes of the last path, the second model's tokens of it, and the spans that were read."""
        self._nodes: list[int] = []
        """The path that the rows follow, in the session's tree."""
        self._session: Session | None = None

    def read(self, session: Session, node: int, candidates: int, stopped: Stopped) -> Iterator[LockstepRead]:
        """Read the rest of the path to a node, and both distributions after it.

        Args:
            session: The session, not changed.
            node: A node of its tree.
            candidates: Number of most probable tokens of each model to list.
            stopped: Polled before each chunk.

        Raises:
            StepError: There is no such node, it was computed under interventions, or the second model has no positions
                for the path.
            Cancelled: `stopped` returned True; spans that were emitted stay read.
        """
        session.check_node(node)
        session.interventions.refuse(node, "two models are compared")
        ids, nodes, by_ids = session.tree.tokens(node), session.tree.nodes(node), self.by_ids
        other_ids, spans = self.paths(session, node)
        read_nodes, read_ids, read = self._read
        end, other_end = common_prefix(read_nodes, nodes), common_prefix(read_ids, other_ids)
        alike = spans[: common_prefix(read, spans)]
        seen = [span for span in alike if span.end <= end and span.other_end <= other_end]
        self._read = nodes, other_ids, seen
        self._follow(session, node, other_ids, stopped)
        again = PathRows(session.runner.fresh(), session.tokens.vocabulary)
        again.follow(ids, session.tree.chunks(node), stopped)

        def first_row(place: int) -> Row:
            """The first model's row: the session's, if it is kept, or else computed again."""
            row = session.row_at(nodes[place])
            return again.after(place) if row is None else row

        mine = Side(session.tokens, ids, first_row, self.compared, candidates)
        theirs = Side(self.loaded.tokens, other_ids, self.rows.after, self.compared, candidates)
        left, total = spans[len(seen) :], len(ids)
        since, spent, other_spent = left[0].first if left else total, 0.0, self.rows.ms
        while True:
            batch, left = left[:BATCH], left[BATCH:]
            found = tuple(read_span(mine, theirs, span, by_ids, nodes[span.end - 1]) for span in batch)
            end, ahead, pick = batch[-1].end if left else total, None, None
            if not left:
                last = Span(total, total, len(other_ids), len(other_ids))
                ahead = read_span(mine, theirs, last, by_ids, node)
                pick = self.pick(session, node) if by_ids else None
            ms, other_ms = again.ms - spent, self.rows.ms - other_spent
            yield LockstepRead(node, since, found, end, total, ms, other_ms, ahead, pick)
            seen.extend(batch)
            if not left:
                return
            since, spent, other_spent = end, again.ms, self.rows.ms

    def _follow(self, session: Session, node: int, other_ids: list[int], stopped: Stopped) -> None:
        """Let the rows follow the second model's path to a node."""
        chunks = session.tree.chunks(node) if other_ids == session.tree.tokens(node) else None
        self.rows.follow(other_ids, chunks, stopped)
        self._nodes = session.tree.nodes(node)

    def pick(self, session: Session, node: int) -> int:
        """The token that the sampler picks from the second model's row after a node whose path was read."""
        row = self.rows.after(len(self._read[1]) - 1)
        return session.node_reader.sample(node, row, session.settings).sampled.picked

    def session(self, session: Session, node: int | None, stopped: Stopped) -> Session:
        """A session of the second model over the session's tree: views copy its cache and read its rows, and don't
        change the tree.

        It shares the cache that reads the paths, so that a path goes through the second model once.

        Args:
            session: The session, not changed.
            node: Node whose path, or a longer one, the cache must contain; its row is kept. None if no path is needed.
            stopped: Polled before each chunk.

        Raises:
            StepError: There is no such node, it was computed under interventions, or the second model has other tokens
                there, or no positions for the path.
            Cancelled: `stopped` returned True.
        """
        if (made := self._session) is None:
            made = self._session = Session(self.loaded, session.settings)
            made.title, made.tree, made.pending = self.title, session.tree, session.pending
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
        other_ids, _ = self.paths(session, node)
        if other_ids != session.tree.tokens(node):
            raise StepError(
                f"{self.loaded.facts.name} reads other tokens than the session's model here, so it has no "
                "such token.",
                "Open it as the session's model to look inside it.",
            )
        depth = session.tree[node].depth
        if self._nodes[:depth] == session.tree.nodes(node):  # the rows follow this path, or a longer one
            self.rows.follow(self.rows.ids, self.rows.chunks, stopped)
        else:
            self._follow(session, node, other_ids, stopped)
        made.kept_logits.put(node, self.rows.after(depth - 1))
        made.make_current(self._nodes[self.rows.hold().kv.offset - 1])
        return made

    # ---- the second model's path --------------------------------------------------------------

    def paths(self, session: Session, node: int) -> tuple[list[int], list[Span]]:
        """The second model's tokens of the text up to a node, and the spans of both.

        Raises:
            StepError: The second model has no positions for the path, or its tokenizer changes the text.
        """
        ids, facts = session.tree.tokens(node), self.loaded.facts
        other_ids, spans = ids, one_by_one(len(ids))
        if not self.by_ids:
            other_ids, spans = self._by_bytes(session, ids)
        elif self._system is not None:
            other_ids, spans = self._prompted(session, node, ids, self._system)
        self.loaded.tokens.check(other_ids)
        if facts.hard_window and facts.context_window is not None and len(other_ids) > facts.context_window:
            raise StepError(
                f"The path has {len(other_ids)} tokens, and {facts.name} has {facts.context_window} positions.",
                "Go back, or begin with a shorter prompt.",
            )
        return other_ids, spans

    def _by_bytes(self, session: Session, ids: list[int]) -> tuple[list[int], list[Span]]:
        """The second model's tokens of the path's text, without the special tokens before it; and the spans."""
        tokens, other = session.tokens, self.loaded.tokens
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
                f"The tokenizer of {self.loaded.facts.name} changes this text, so its tokens can't be placed "
                f"in it.",
                "Compare models whose tokenizers keep texts as they are.",
            )
        return other_ids, by_bytes(mine, theirs)

    def _prompted(
        self, session: Session, node: int, ids: list[int], system: str
    ) -> tuple[list[int], list[Span]]:
        """The path with the second model's prompt of the same conversation; compared where both prompts are the same,
        and after them."""
        messages, options = session.conversation
        if not messages:
            raise StepError(
                "This prompt is raw text, which has no place for the second model's system prompt.",
                "Give the prompt as a conversation.",
            )
        first, tokens = messages[0], self.loaded.tokens
        if first.role == "system":
            messages = (replace(first, content=system), *messages[1:])
        else:
            messages = (Message("system", system), *messages)
        prompt = tokens.encode(tokens.chat(messages, options), bare=True)
        nodes = session.tree.nodes(node)
        own = len(list(takewhile(lambda each: session.tree[each].origin == "prompt", nodes)))
        before = common_prefix(ids[:own], prompt)
        after = common_prefix(reversed(ids[before:own]), reversed(prompt[before:]))
        later = one_by_one(len(ids), len(prompt) - own)[own - after :]
        return [*prompt, *ids[own:]], [*one_by_one(before), *later]


# ---- the commands ------------------------------------------------------------------------------


def both_models(context: Context) -> PathReader:
    """The reader of both models; in a new tree, it reads from the beginning.

    Raises:
        StepError: There is no second model.
    """
    paths: PathReader | None = context.of_model.get(PathReader)
    if paths is None:
        raise StepError("There is no second model.", "Open one to compare with.")
    if not context.of_tree.get(PathReader):  # no path of the tree was read in both models
        paths.forget()
    context.of_tree[PathReader] = True
    return paths


def second_session(context: Context, command: Inside, stopped: Stopped) -> Session:
    """A session of the second model over the current tree, at the end of the path that a view reads.

    Raises:
        StepError: There is no second model, or the view's token can't be read in it.
        Cancelled: `stopped` returned True.
    """
    node = getattr(command, "until", None) or getattr(command, "node", None)
    return both_models(context).session(context.session, node, stopped)


def _drop(context: Context) -> str:
    """Drop the second model, and free its memory; returns its title."""
    paths: PathReader | None = context.of_model.pop(PathReader, None)
    title = paths.title if paths is not None else ""
    del paths
    free_garbage()
    return title


def close_lockstep(context: Context, command: protocol.CloseLockstep, task: Task) -> Iterator[Record]:
    yield LockstepClosed(_drop(context))


def read_lockstep(context: Context, command: protocol.ReadLockstep, task: Task) -> Iterator[Record]:
    """Read the path to a node in both models."""
    both = both_models(context)
    yield from both.read(context.session, command.node, command.candidates, task.cancel.is_set)


def explain_second(context: Context, command: protocol.ExplainSecond, task: Task) -> Iterator[Record]:
    """Explain the sampler's choice from the second model's distribution."""
    second = both_models(context).session(context.session, command.node, task.cancel.is_set)
    explained = explain(second, command.node, command.settings, command.reroll)
    yield replace(explained, model=second.title)


def follow_second(context: Context, command: protocol.FollowSecond, task: Task) -> Iterator[Record]:
    """Take the token that the second model picks."""
    both, session = both_models(context), context.session
    if not both.by_ids:
        raise StepError(
            "The second model has other tokens, so its pick is no token of the first one.",
            "Step with the first model, or let each continue on its own.",
        )
    yield from read_lockstep(context, protocol.ReadLockstep(command.node), task)
    pick = both.pick(session, command.node)
    yield from take_tokens(session, command.node, [pick], "chosen", task.cancel.is_set)


# ---- loading the second model ------------------------------------------------------------------

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
OVERHEAD = 1.1
"""Factor of the weights' bytes that leaves room for KV and buffers; the same as for models on the disk."""


def open_lockstep(context: Context, command: OpenLockstep, task: Task) -> Iterator[Record]:
    """Load a second model if there is enough memory; the first model's weights don't change.

    Raises:
        LoadError: It can't be loaded, or doesn't fit beside the first; the message says why, the hint what to do.
        Cancelled: The task was cancelled.
    """
    first, cancel = context.model, task.cancel
    if closed := _drop(context):  # frees its memory before the next one takes more
        yield LockstepClosed(closed)
    _check(first, command)
    shared = command.bits is None and command.against == first.settings
    needed, free = 0 if shared else _weights(first, command, cancel), free_bytes()
    if free is not None and needed * OVERHEAD > free:
        raise LoadError(
            f"A second model of about {size_words(needed)} doesn't fit beside the first, which has "
            f"{size_words(first.facts.weight_bytes)}: {size_words(free)} are free.",
            "Compare with fewer bits, or close other programs.",
        )
    yield LockstepMemory(first.facts.weight_bytes, needed, free)
    quantization = None if command.bits is None else (command.bits, command.group_size)

    def progress(loading: Loading) -> None:
        detail = f"{loading.stage} {loading.detail}"
        context.emit(Measuring("OpenLockstep", loading.done, loading.total, detail))

    loaded = first if shared else load(command.against, progress, cancel, quantization)
    poll(cancel.is_set)
    differs = first_difference(first.tokens, loaded.tokens) if not shared else None
    title = _title(first, command, loaded)
    facts = replace(loaded.facts, special=(), special_count=0, chat_template="")
    second = PathReader(first, loaded, differs is None, command.system, title)
    context.of_model[PathReader] = second
    aligned: Alignment = "ids" if differs is None else "bytes"
    yield LockstepOpened(facts, title, aligned, tuple(_notes(first, second, command.system, differs)))


def _check(first: Loaded, command: OpenLockstep) -> None:
    if command.bits is None:
        return
    if command.bits not in BITS or command.group_size not in GROUP_SIZES:
        raise LoadError(
            f"A model can't be quantized to {command.bits} bits in groups of {command.group_size}.",
            f"Bits are {', '.join(map(str, BITS))}, group sizes {', '.join(map(str, GROUP_SIZES))}.",
        )
    same = command.against.model == first.settings.model
    if same and (how := first.facts.quantized):
        raise LoadError(
            f"The weights of {first.facts.name} are quantized already ({how}).",
            "Open the model that it was made from, and compare that one.",
        )


def _title(first: Loaded, command: OpenLockstep, loaded: Loaded) -> str:
    """The difference of the second model from the first."""
    parts = [loaded.facts.name]
    if loaded.facts.quantized and loaded.facts.quantized != first.facts.quantized:
        parts.append(loaded.facts.quantized.removesuffix(", affine"))
    if command.against.adapter_path is not None:
        parts.append(f"adapter {Path(command.against.adapter_path).name}")
    if command.system is not None:
        parts.append("another system prompt")
    if len(parts) == 1 and loaded.facts.name == first.facts.name:
        parts.append("the same again" if loaded is first else loaded.facts.dtype)
    return ", ".join(parts)


def _notes(first: Loaded, second: PathReader, system: str | None, differs: int | None) -> Iterator[str]:
    mine, theirs = first.tokens, second.loaded.tokens
    if differs is not None:
        yield (
            f"The tokenizers differ (first at id {differs}): the text is compared between common borders, by logprob; "
            "KL, ranks and top tokens need the same tokens."
        )
        if system is not None:
            yield "Its other system prompt is not used: two prompts need the same tokens."
    elif second.compared is not None:
        rows = f"{mine.vocabulary:,} and {theirs.vocabulary:,}"
        yield f"The models have {rows} rows of logits: the {second.compared:,} that both have are compared."
    if second.loaded is not first:
        yield from (f"Second model: {note[:1].lower()}{note[1:]}" for note in second.loaded.facts.notes)


def _weights(first: Loaded, command: OpenLockstep, cancel: Event) -> int:
    """Bytes of the second model's weights in memory, from the headers of its files."""
    path = resolve(command.against.model, lambda _: None, cancel)
    files = sorted(path.glob(directory.WEIGHTS))
    wide = 4 if first.facts.dtype == "float32" else 2
    if command.bits is None:
        held = sum(file.stat().st_size for file in files)
        config = directory.read_object(path / "config.json")
        packed = "quantization" in config or "quantization_config" in config
        doubled = wide == 4 and not packed and config.get("torch_dtype", config.get("dtype")) != "float32"
        if packed and first.facts.blas and unpacked_by_itself(command.against):
            parameters = stored_weights(directory.read_weights(path, files), config).parameters
            return 4 * parameters if unpacks(parameters) else held
        return held * 2 if doubled and command.against.dtype == "auto" else held
    shapes = [entry.shape for entry in directory.read_weights(path, files).values()]
    if float32_scales(command.against):
        wide = 4
    matrix = command.bits / 8 + 2 * wide / command.group_size
    return int(sum(math.prod(shape) * (matrix if len(shape) > 1 else wide) for shape in shapes))
