"""The commands of two models in lockstep: a text in both, the session's path in both, both going on by themselves."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import count

import mlx.core as mx
from msgspec.structs import replace

from engine import protocol
from engine.errors import Cancelled, PromptError, StepError
from engine.lockstep.looked import SecondSession, SecondSource
from engine.lockstep.paths import PathReader
from engine.lockstep.second import Second, open_second
from engine.lockstep.spans import (
    ChunkedRows,
    Side,
    Span,
    SpanReader,
    Window,
    by_bytes,
    byte_ends,
    leading_marks,
    one_by_one,
    window_size,
    windows,
)
from engine.logits.questions import explain
from engine.model.forward import Runner
from engine.model.load import Loaded
from engine.model.tokens import Tokens
from engine.protocol import (
    DiffText,
    Inside,
    LockstepClosed,
    LockstepEnded,
    LockstepRead,
    LockstepSpan,
    Measuring,
    Record,
    WayPart,
    WaysParted,
)
from engine.sampling.ranking import Row
from engine.session.context import Context, free_garbage, take_tokens
from engine.session.node_records import NodeReader
from engine.session.session import Session, run_at
from engine.settings import Settings
from engine.task import Stopped, Task
from engine.tree import ROOT, TokenTree

# ---- a whole text in both models, window by window, in caches of their own ---------------------

BATCH = 32
"""Spans of a record."""


def compare_texts(
    first: Loaded, second: Second, command: DiffText, stopped: Stopped
) -> Iterator[LockstepRead | LockstepEnded]:
    """Read a text in both models.

    Args:
        first: P.
        second: Q.
        command: The text.
        stopped: Polled before each chunk.

    Raises:
        PromptError: The text has no token to score, or a tokenizer doesn't give it back.
        Cancelled: `stopped` returned True; the records so far stand.
    """
    run = TextRun(first, second, command, stopped)
    for window in run.windows:
        yield from run.read(window)
    yield run.ended()


class TextRun:
    """One text; see `compare_texts`."""

    def __init__(self, first: Loaded, second: Second, command: DiffText, stopped: Stopped) -> None:
        self._first, self._second, self._command, self._stopped = first, second, command, stopped
        other = second.loaded
        self._ids = first.tokens.encode(command.text)
        self._other_ids = self._ids if second.aligned == "ids" else other.tokens.encode(command.text)
        other.tokens.check(self._other_ids)
        self._spans = self._cut()
        if not self._spans:
            raise PromptError("The two tokenizers have no common border in this text.", "Give a longer text.")
        # the mark that begins a text begins every window; spans by ids count it as a token, those by bytes don't
        self._marks = leading_marks(first.tokens, self._ids)
        self._other_marks = leading_marks(other.tokens, self._other_ids)
        size, other_size = (window_size(each.facts.context_window, command.window) for each in (first, other))
        self.windows = list(
            windows(self._spans, size - len(self._marks), other_size - len(self._other_marks))
        )
        self._kv = self._other_kv = 0

    def _cut(self) -> list[Span]:
        if self._second.aligned == "ids":
            return one_by_one(len(self._ids))
        text, ends = self._command.text.encode(), []
        for loaded, ids in ((self._first, self._ids), (self._second.loaded, self._other_ids)):
            found = byte_ends([loaded.tokens.raw(token) for token in ids], text)
            if found is None:
                raise PromptError(
                    f"The tokenizer of {loaded.facts.name} changes this text, so its tokens can't be placed in it.",
                    "Compare models whose tokenizers keep texts as they are, or another text.",
                )
            ends.append(found)
        return by_bytes(*ends)

    # ---- windows ----------------------------------------------------------------------------

    def read(self, window: Window) -> Iterator[LockstepRead]:
        """The spans of one window that were not in the one before.

        Raises:
            Cancelled: As `compare_texts`.
        """
        spans = self._spans[window.first : window.end]
        again = window.first > 0
        marks, other_marks = (self._marks, self._other_marks) if again else ([], [])
        # the first window has the marks among its own tokens, whether a span has them or not
        begin, other_begin = (spans[0].first, spans[0].other_first) if again else (0, 0)
        ids = [*marks, *self._ids[begin : spans[-1].end]]
        other_ids = [*other_marks, *self._other_ids[other_begin : spans[-1].other_end]]
        runner, other_runner = self._first.runner(), self._second.loaded.runner()
        compared, by_ids = self._second.compared(self._first), self._second.aligned == "ids"
        rows = ChunkedRows(runner, self._first.tokens.vocabulary, ids, self._stopped)
        other_rows = ChunkedRows(
            other_runner, self._second.loaded.tokens.vocabulary, other_ids, self._stopped,
            rows.ends if by_ids else None,
        )  # fmt: skip
        reader = SpanReader(
            Side(self._first.tokens, ids, rows, compared),
            Side(self._second.loaded.tokens, other_ids, other_rows, compared),
            by_ids,
            self._command.candidates,
        )
        shift, other_shift = begin - len(marks), other_begin - len(other_marks)
        taken: list[LockstepSpan] = []
        spent, other_spent = 0.0, 0.0
        for number, span in zip(count(window.scored), self._spans[window.scored : window.end]):
            moved = Span(
                span.first - shift,
                span.end - shift,
                span.other_first - other_shift,
                span.other_end - other_shift,
            )
            taken.append(reader.read(moved, span.first))
            if len(taken) == BATCH or number + 1 == window.end:
                yield LockstepRead(
                    -1, taken[0].position, tuple(taken), span.end, len(self._ids),
                    rows.ms - spent, other_rows.ms - other_spent,
                )  # fmt: skip
                taken, spent, other_spent = [], rows.ms, other_rows.ms
        self._kv = max(self._kv, runner.kv.reading().used_bytes)
        self._other_kv = max(self._other_kv, other_runner.kv.reading().used_bytes)

    def ended(self) -> LockstepEnded:
        """What it took."""
        several = len(self.windows) > 1
        size = max(self._spans[each.end - 1].end - self._spans[each.first].first for each in self.windows)
        context = min(
            (self._spans[each.scored].first - self._spans[each.first].first for each in self.windows[1:]),
            default=0,
        )
        return LockstepEnded(size if several else 0, context, self._kv, self._other_kv, mx.get_peak_memory())


# ---- both go on from one token, each with its own picks ----------------------------------------

MEET = 3
"""Words in a row that both must have before it counts as a meeting: one or two are alike by chance."""
_WORDS = re.compile(r"\s*\S+|\s+")


class Way:
    """One model's continuation, in a cache of its own.

    Args:
        tokens: The model's.
        runner: Its cache holds the path.
        ids: The path.
        row: The logits after it.
        settings: The sampler's.
    """

    def __init__(self, tokens: Tokens, runner: Runner, ids: list[int], row: Row, settings: Settings) -> None:
        self.tokens, self._runner, self._row, self._settings = tokens, runner, row, settings
        self._tree = TokenTree()
        self._reader = NodeReader(tokens, self._tree, {})
        self._node = self._tree.add_prompt(ROOT, ids)[-1]
        self.ids: list[int] = []
        self.ended = False
        """True if it ended its sequence."""

    def step(self) -> None:
        """Take its own pick, unless it has ended."""
        if self.ended:
            return
        token = self._reader.sample(self._node, self._row, self._settings).sampled.picked
        self._node = self._reader.add_token(self._node, token, "sampled")
        self.ids.append(token)
        self.ended = token in self.tokens.eos_ids
        if not self.ended:
            self._row = self._runner.forward(token)

    @property
    def text(self) -> str:
        """Of its continuation, without the mark that ended it."""
        return self.tokens.join(self.ids[:-1] if self.ended else self.ids)


def continue_both(
    session: Session, paths: PathReader, node: int, tokens: int, stopped: Stopped
) -> Iterator[Measuring | WaysParted]:
    """Let both go on from a node whose path was read in both.

    Args:
        session: Doesn't change.
        paths: The second model's path.
        node: Of the session's tree.
        tokens: Decoded by each at most.
        stopped: Polled before each token.

    Raises:
        StepError: There is no such node.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    found, here = run_at(session, node, stopped), paths.paths(session, node)
    row = paths.rows.after(len(here.other_ids) - 1)
    mine = Way(session.tokens, found.runner.copy(), here.ids, found.row, session.settings)
    theirs = Way(paths.second.loaded.tokens, paths.rows.hold().copy(), here.other_ids, row, session.settings)
    for done in range(tokens):
        if stopped():
            raise Cancelled
        yield Measuring("PartWays", done, tokens, "both continue")
        mine.step()
        theirs.step()
        if mine.ended and theirs.ended:
            break
    parts = compared(mine.text, theirs.text)
    same = [each.same for each in parts]
    yield WaysParted(
        node=node,
        tokens=tokens,
        ids=tuple(mine.ids),
        other_ids=tuple(theirs.ids),
        parts=parts,
        parted=parted(mine, theirs),
        meetings=sum(1 for place, each in enumerate(same) if each and place),
        ms=(time.perf_counter() - begun) * 1000,
    )


def parted(mine: Way, theirs: Way) -> int | None:
    """How many tokens of the first way come before the first byte that differs; None where none does."""
    raws, others = ([way.tokens.raw(token) for token in way.ids] for way in (mine, theirs))
    one, other, before = b"".join(raws), b"".join(others), 0
    if one == other:
        return None
    for place, raw in enumerate(raws):
        if one[before : before + len(raw)] != other[before : before + len(raw)]:
            return place
        before += len(raw)
    return len(raws)


def compared(one: str, other: str) -> tuple[WayPart, ...]:
    """Two texts as the pieces that they have in common and those that they don't, word by word."""
    mine, theirs = _WORDS.findall(one), _WORDS.findall(other)
    parts: list[WayPart] = []
    at, at_other = 0, 0

    def apart(end: int, end_other: int) -> None:
        if (at, at_other) != (end, end_other):
            parts.append(WayPart("".join(mine[at:end]), "".join(theirs[at_other:end_other]), False))

    for begin, begin_other, size in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks():
        if size < MEET and (begin, begin_other) != (0, 0):
            continue  # the last block is empty
        if size:
            apart(begin, begin_other)
            text = "".join(mine[begin : begin + size])
            parts.append(WayPart(text, text, True))
            at, at_other = begin + size, begin_other + size
    apart(len(mine), len(theirs))
    return tuple(parts)


# ---- the commands ------------------------------------------------------------------------------


NO_SECOND = "There is no second model.", "Open one to compare with."
"""The refusal of what needs a second model, and what to do."""


class _OfModel:
    """The second model, which is kept until the first one goes."""

    paths: PathReader | None = None

    @property
    def both(self) -> PathReader:
        """Reads in both models.

        Raises:
            StepError: There is no second one.
        """
        if self.paths is None:
            raise StepError(*NO_SECOND)
        return self.paths


class _OfTree:
    """The current tree on the second model, once its inside was read."""

    session: SecondSession | None = None
    begun: bool = False
    """True if a path of the tree was read in both models."""


def _both(context: Context) -> PathReader:
    """Reads in both models; in a tree that was begun since the last time, from its beginning."""
    both, kept = context.of_model(_OfModel).both, context.of_tree(_OfTree)
    if not kept.begun:
        both.forget()
    kept.begun = True
    return both


def second_session(context: Context, command: Inside | None, stopped: Stopped) -> SecondSession:
    """The current tree on the second model, at the end of the path that a view reads.

    Args:
        context: Has the session.
        command: The view; None for no path.
        stopped: Polled before each chunk.

    Raises:
        StepError: There is no second model, or the view's token can't be read in it.
    """
    kept, session = context.of_tree(_OfTree), context.session
    if kept.session is None:
        kept.session = SecondSession(session, _both(context))
    node = getattr(command, "until", None) or getattr(command, "node", None)
    if node is not None:
        kept.session.go_to(session, node, stopped)
    return kept.session


def _drop(context: Context) -> None:
    context.of_model(_OfModel).paths = context.of_tree(_OfTree).session = None


def open_lockstep(context: Context, command: protocol.OpenLockstep, task: Task) -> Iterator[Record]:
    """Load a second model."""
    kept = context.of_model(_OfModel)
    if kept.paths is not None:
        yield LockstepClosed(kept.paths.second.title)
    _drop(context)
    free_garbage()  # its memory is free before the next one takes more
    kept.paths = PathReader(context.model, open_second(context.model, command, context.emit, task.cancel))


def close_lockstep(context: Context, command: protocol.CloseLockstep, task: Task) -> Iterator[Record]:
    """Drop the second model."""
    paths = context.of_model(_OfModel).paths
    title = paths.second.title if paths is not None else ""
    del paths
    _drop(context)
    free_garbage()
    yield LockstepClosed(title)


def diff_text(context: Context, command: protocol.DiffText, task: Task) -> Iterator[Record]:
    second = context.of_model(_OfModel).both.second
    yield from compare_texts(context.model, second, command, task.cancel.is_set)


def read_lockstep(context: Context, command: protocol.ReadLockstep, task: Task) -> Iterator[Record]:
    """Read the path to a node in both models."""
    both = _both(context)
    yield from both.read(context.session, command.node, command.candidates, task.cancel.is_set)


def explain_second(context: Context, command: protocol.ExplainSecond, task: Task) -> Iterator[Record]:
    """Explain the sampler's choice from the second model's distribution."""
    session, second = context.session, second_session(context, None, task.cancel.is_set)
    row = second.go_to(session, command.node, task.cancel.is_set)
    source = SecondSource(
        session.tree, second.facts, second.tokens, session.settings, session.settings_at,
        session.pending, second.node_reader, row,
    )  # fmt: skip
    explained = explain(source, command.node, command.settings, command.reroll)
    yield replace(explained, model=second.title)


def follow_second(context: Context, command: protocol.FollowSecond, task: Task) -> Iterator[Record]:
    """Take the token that the second model picks."""
    both, session = _both(context), context.session
    if both.second.aligned == "bytes":
        raise StepError(
            "The second model has other tokens, so its pick is no token of the first one.",
            "Step with the first model, or let each continue on its own.",
        )
    yield from read_lockstep(context, protocol.ReadLockstep(command.node), task)
    pick = both.pick(session, command.node)
    yield from take_tokens(session, command.node, [pick], "chosen", task.cancel.is_set)


def part_ways(context: Context, command: protocol.PartWays, task: Task) -> Iterator[Record]:
    both = _both(context)
    yield from read_lockstep(context, protocol.ReadLockstep(command.node), task)
    yield from continue_both(context.session, both, command.node, command.tokens, task.cancel.is_set)
