"""Runs: steps at a pace, or back to back with the forward of one overlapping the readings of the one before.

Back to back, the next forward's graph is built while this one is evaluated, with a slot for its token. On a GPU,
greedy, it even begins, with the token that the device finds most probable: `engine.model.forward.PipelinedForward`. The
records are those of single steps either way. A run that a breakpoint or a cancel ends discards one forward.

Breakpoints are evaluated after each of the steps. Figures of the distribution are computed from the step's logits, only
where a condition needs them. Text is searched as it grows: a step costs the end of the text, not all of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from threading import Event
from typing import Any

import numpy as np
from msgspec import Struct

from engine.breakpoints import REACH, UNSURE, Breakpoints
from engine.errors import SettingsError
from engine.logits.node_sampler import NodeLogits
from engine.model.forward import PipelinedForward
from engine.protocol import KVReading, Memory, Origin, Step, StepTimes
from engine.sampling.ranking import Row, rank_of
from engine.segments import ReplyReader, kind_of
from engine.session.node_records import memory, run_limit, stop_reached
from engine.session.session import Session
from engine.setting import check, percent
from engine.settings import BY_NAME, STAGES
from engine.task import Stopped
from engine.timing import StallTimes, stall_times
from engine.token_texts import decode

PATIENCE_MS = 50
"""A regular expression that takes longer over one step stops the run: some would never end."""


class BreakpointEvaluator:
    """Evaluates sets of breakpoints over one run.

    Args:
        session: The run begins at its current node.
        sets: Any of them stops the run.

    Raises:
        SettingsError: A condition is out of its range, or a regular expression can't be compiled.
    """

    def __init__(self, session: Session, sets: Iterable[Breakpoints] = ()) -> None:
        self._session = session
        self._sets = [check(points) for points in sets if points.active]
        self._tail = TextTail(session) if any(points.text or points.regex for points in self._sets) else None
        self._reply = ReplyTail(session) if any(points.segment for points in self._sets) else None
        self._patterns = {points.regex: _compiled(points.regex) for points in self._sets if points.regex}
        self._matched: dict[str, str] = {}
        """Texts and patterns that matched in this run, each with its sentence."""
        self.steps_taken = 0
        """Steps of the run so far."""
        self._node = session.node
        counted = any(points.tokens is not None and not points.all_of for points in self._sets)
        self.most: float = math.inf if counted else run_limit(session, session.node)
        """Tokens of the completion at which max tokens ends the run; endless where a breakpoint counts them."""
        self.hits: tuple[str, ...] = ()
        """Conditions that held after the last step, as sentences with their figures; empty where the run continues."""

    def is_at(self, session: Session) -> bool:
        """True if the last evaluation was at the session's current node, so that its run continues from there."""
        return session is self._session and session.node == self._node

    def evaluate(self, logits: NodeLogits) -> bool:
        """Evaluate all conditions after one step.

        Args:
            logits: Those after the step's node.

        Returns:
            Whether the run stops there.
        """
        self._node, self.steps_taken = logits.node, self.steps_taken + 1
        if not self._sets:
            return False
        if self._tail is not None:
            self._tail.add(self._session.tree[logits.node].token)
        if self._reply is not None:
            self._reply.add(logits.node)
        sentences: list[str] = []
        for points in self._sets:
            sentences += self._hits(points, logits)
        self.hits = tuple(dict.fromkeys(sentences))
        return bool(sentences)

    def _hits(self, points: Breakpoints, logits: NodeLogits) -> list[str]:
        """Sentences of the conditions that hold; none where all must hold and one doesn't."""
        if points is UNSURE and logits.grammar is not None and logits.grammar.certain:
            return []
        held = [_EVALUATED[each.name](self, getattr(points, each.name), logits) for each in points.active]
        return [] if points.all_of and not all(held) else [sentence for sentence in held if sentence]

    # ---- the next token ---------------------------------------------------------------------

    def _entropy(self, limit: float, logits: NodeLogits) -> str:
        bits = logits.masses.entropy_bits
        return f"entropy {_against(bits, limit)} bits is above {limit:g}" if bits > limit else ""

    def _prob(self, limit: float, logits: NodeLogits) -> str:
        prob = math.exp(logits.masses.logprob(logits.sampled.picked))
        return f"probability {_share_against(prob, limit)} is below {percent(limit)}" if prob < limit else ""

    def _rank(self, limit: int, logits: NodeLogits) -> str:
        rank = rank_of(logits.row, logits.sampled.picked)
        return f"rank {rank:,} is above {limit:,}" if rank > limit else ""

    def _margin(self, limit: float, logits: NodeLogits) -> str:
        lead = margin(logits.logprobs)
        if lead >= limit:
            return ""
        return f"margin {_share_against(lead, limit)} between first and second is below {percent(limit)}"

    def _mass(self, limit: float, logits: NodeLogits) -> str:
        mass = 1.0 if logits.grammar is None else logits.grammar.mass(logits.logprobs)
        return f"mass kept {_share_against(mass, limit)} is below {percent(limit)}" if mass < limit else ""

    def _eos(self, _: bool, logits: NodeLogits) -> str:
        tokens, picked = self._session.tokens, logits.sampled.picked
        return f"end of sequence comes next: {tokens.text(picked)[0]}" if picked in tokens.eos_ids else ""

    # ---- the run so far ---------------------------------------------------------------------

    def _tokens(self, limit: int, _: NodeLogits) -> str:
        if self.steps_taken < limit:
            return ""
        return "1 token was taken" if self.steps_taken == 1 else f"{self.steps_taken:,} tokens were taken"

    def _text(self, wanted: str, _: NodeLogits) -> str:
        assert self._tail is not None
        if wanted not in self._matched and self._tail.contains(wanted):
            self._matched[wanted] = f"the text now contains “{wanted}”"
        return self._matched.get(wanted, "")

    def _segment(self, event: str, _: NodeLogits) -> str:
        assert self._reply is not None
        if event in self._reply.events:
            self._matched[event] = event
        return self._matched.get(event, "")

    def _regex(self, pattern: str, _: NodeLogits) -> str:
        assert self._tail is not None
        key = f"/{pattern}/"
        if key in self._matched:
            return self._matched[key]
        try:
            match = self._tail.match(self._patterns[pattern])
        except TimeoutError:
            return f"/{pattern}/ took more than {PATIENCE_MS} ms at this text: make it simpler"
        if match:
            self._matched[key] = f"the text now matches /{pattern}/ with “{match}”"
        return self._matched.get(key, "")


_EVALUATED: dict[str, Callable[[BreakpointEvaluator, Any, NodeLogits], str]] = {
    "entropy_above": BreakpointEvaluator._entropy,
    "prob_below": BreakpointEvaluator._prob,
    "rank_above": BreakpointEvaluator._rank,
    "margin_below": BreakpointEvaluator._margin,
    "mass_below": BreakpointEvaluator._mass,
    "tokens": BreakpointEvaluator._tokens,
    "eos": BreakpointEvaluator._eos,
    "text": BreakpointEvaluator._text,
    "regex": BreakpointEvaluator._regex,
    "segment": BreakpointEvaluator._segment,
}
"""By the condition's name: what returns a sentence where it holds, else an empty text."""


class ReplyTail:
    """The events that the newest token brought of a reply's segments.

    Args:
        session: Its current node is the last token of the reply so far.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        format, nodes = session.reply(session.node)
        self._reader = ReplyReader(format)
        self._at = self._reader.begin
        self.events: tuple[str, ...] = ()
        """Of `SEGMENT_EVENTS`."""
        for node in nodes:
            self.add(node)

    def add(self, node: int) -> None:
        """Take in the next token."""
        kinds = [kind_of(self._at.state)]
        self._at = self._reader.advance(self._at, self._session.reply_token(node))
        kinds += map(kind_of, self._at.entered)
        changes = [(one, other) for one, other in pairwise(kinds) if one != other]
        self.events = tuple(event for one, other in changes for event in (f"{one} ends", f"{other} begins"))


class TextTail:
    """The end of a completion's text, and what the newest token added to it.

    Args:
        session: Its current node is a token of the path.
    """

    def __init__(self, session: Session) -> None:
        at = session.tree[session.node]
        length = at.depth - at.start
        self._raw = session.tokens.raw
        self._cut = length > REACH
        """True if the completion began before `_text`."""
        before = b"".join(map(self._raw, session.tree.tail(session.node, min(length, REACH))))
        self._text, self._pending = decode(b"", before)
        self._seen = len(self._text)
        """Characters before those of the newest token."""

    def add(self, token: int) -> None:
        """Append the next token; an unfinished character counts when it is finished."""
        text, self._pending = decode(self._pending, self._raw(token))
        if len(self._text) > 2 * REACH:
            self._text, self._cut = self._text[-REACH:], True
        self._seen = len(self._text)
        self._text += text

    def contains(self, wanted: str) -> bool:
        """True if the newest token completed a text."""
        return self._text.find(wanted, max(0, self._seen - len(wanted) + 1)) >= 0

    def match(self, pattern: Any) -> str:
        """The first match that includes a part of the newest token; empty where there is none.

        Args:
            pattern: Compiled by `regex`.

        Raises:
            TimeoutError: It takes too long.
        """
        return next(self._matches(pattern), "")

    def _matches(self, pattern: Any) -> Iterator[str]:
        # Where nothing was cut the text begins with the completion: `^` holds there and nowhere else.
        begin = max(int(self._cut), self._seen - REACH)
        for match in pattern.finditer(self._text, begin, overlapped=True, timeout=PATIENCE_MS / 1000):
            if match.end() > max(self._seen, match.start()):
                yield match[0]


def margin(logprobs: Row) -> float:
    """The probability of the first token less that of the second, from logprobs (vocabulary,); 0 to 1."""
    best = int(logprobs.argmax())
    # searching twice is thirty times faster than sorting
    second = max(part.max(initial=-np.inf) for part in (logprobs[:best], logprobs[best + 1 :]))
    return math.exp(float(logprobs[best])) - math.exp(float(second))


def _compiled(pattern: str) -> Any:
    import regex  # 30 ms, which the first distribution would wait for; few runs look for one

    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise SettingsError(
            "regex", f"regular expression can't be read: {error}.", "Write another."
        ) from None


def _against(value: float, limit: float) -> str:
    """A figure with as many decimals as distinguish it from a limit, two at least."""
    return next((text for n in range(2, 8) if float(text := f"{value:.{n}f}") != limit), f"{value:.8g}")


def _share_against(share: float, limit: float) -> str:
    """A share of 1 as a percentage that can be distinguished from a limit."""
    figures = (f"{share * 100:.{n}g}" for n in range(3, 10))
    other = float(f"{limit * 100:.12g}")
    return next((text for text in figures if float(text) != other), f"{share * 100:.9g}") + " %"


# ---- steps -------------------------------------------------------------------------------------


def run_steps(
    session: Session, pace: float | None, cancel: Event, stopped: Stopped, breaking: BreakpointEvaluator
) -> Iterator[Step]:
    """The steps of a run: at `pace` if given, else back to back; none where a breakpoint holds already."""
    if breaking.hits:
        return iter(())
    return paced(session, pace, cancel, stopped, breaking) if pace else run(session, stopped, breaking)


def paced(
    session: Session,
    pace: float,
    cancel: Event,
    stopped: Stopped,
    breaking: BreakpointEvaluator | None = None,
) -> Iterator[Step]:
    """Single steps, at most `pace` a second, until a stop or a breakpoint is reached or `stopped` returns True.

    Args:
        session: It takes the steps.
        pace: Steps a second.
        cancel: Ends a wait early.
        stopped: Polled before each step.
        breaking: Breakpoints to stop at, too.
    """
    due, breaking = time.perf_counter(), breaking or BreakpointEvaluator(session)
    while not stopped():
        step = session.step()
        broken = breaking.evaluate(session.position.node_logits)
        yield step
        if broken or stop_reached(session, step.node, breaking.most) is not None:
            return
        due = max(due + 1 / pace, time.perf_counter())
        cancel.wait(due - time.perf_counter())


def run(session: Session, stopped: Stopped, breaking: BreakpointEvaluator | None = None) -> Iterator[Step]:
    """Steps back to back, until a stop or a breakpoint is reached or `stopped` returns True.

    Args:
        session: Its current node is that of the yielded step; its cache may be one token ahead until the end.
        stopped: Polled once a step; the step under way is still taken.
        breaking: Breakpoints to stop at, too.
    """
    breaking = breaking or BreakpointEvaluator(session)
    while not stopped():
        if session.can_pipeline:
            yield from _back_to_back(session, stopped, breaking)
        else:
            step = session.step()
            breaking.evaluate(session.position.node_logits)
            yield step
        if breaking.hits or stop_reached(session, session.node, breaking.most) is not None:
            return


def guesses(session: Session) -> bool:
    """True if a run's next token is guessed on the device: on a GPU, if the sampler takes the most probable token.

    On a CPU the guess saves as much time as it takes.
    """
    settings = session.settings
    shapes = any(stage.kind == "logits" and BY_NAME[stage.setting].on(settings) for stage in STAGES.values())
    return not (session.runner.on_cpu or settings.temp or shapes or settings.grammar is not None)


class _PendingStep(Struct, frozen=True):
    """A token whose forward is under way."""

    node: int
    origin: Origin
    kv: KVReading
    memory: Memory
    launched: float
    others: StallTimes
    """What garbage collection and drawing had taken until then."""


def _back_to_back(session: Session, stopped: Stopped, breaking: BreakpointEvaluator) -> Iterator[Step]:
    """Steps for as long as the caches can take a token back that turns out to be unwanted."""
    session.prepare_step()
    pipeline = PipelinedForward(session.runner, guesses(session))
    before, reader = session.position, session.node_reader
    try:
        pipeline.prepare()
        step = _launch(session, pipeline, before.node_logits)
        while step is not None:
            ends = stop_reached(session, step.node, breaking.most) is not None
            more = not stopped() and not ends and session.can_pipeline and pipeline.prepare()
            row = pipeline.collect()
            forward_ms = (time.perf_counter() - step.launched) * 1000
            node_logits = reader.sample(step.node, row, session.settings)
            total_ms = (time.perf_counter() - step.launched) * 1000
            stalls = stall_times(step.others)
            hit = breaking.evaluate(node_logits)  # before the launch: no unwanted token enters the tree
            following = _launch(session, pipeline, node_logits) if more and not hit else None
            begun = time.perf_counter()
            position = reader.position(node_logits, session.settings.candidates)
            session.set_position(position)
            inspect_ms = (time.perf_counter() - begun) * 1000
            cold = session.runner.warmup.take("step")
            ms = StepTimes(total_ms, forward_ms, node_logits.sample_ms, inspect_ms, True, *stalls, cold)
            yield reader.step_record(before, position, step.origin, step.kv, ms, step.memory)
            before, step = position, following
    finally:
        pipeline.drop(session.tree[session.node].depth)


def _launch(session: Session, pipeline: PipelinedForward, node_logits: NodeLogits) -> _PendingStep | None:
    """Begin the forward of the token that the sampler picked after a node; None where that failed."""
    stalls = stall_times()
    # before the launch, which waits for most of the forward on the CPU backend
    launched = time.perf_counter()
    if not pipeline.launch(node_logits.sampled.picked):
        return None
    origin: Origin = "greedy" if node_logits.sampled.draw is None else "sampled"
    node = session.node_reader.add_token(node_logits.node, node_logits.sampled.picked, origin)
    if pipeline.undo is not None:
        session.mover.record_step(node, pipeline.undo)
    return _PendingStep(node, origin, session.kv_reading(), memory(), launched, stalls)
