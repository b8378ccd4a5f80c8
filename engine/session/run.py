"""Runs: steps at a pace, or back to back, with each forward pass overlapping the readings of the previous step.

Back to back, a greedy run starts the next forward pass with the token that is most probable on the device; otherwise a
GPU gets the next graph with a slot for its token: see `engine.model.forward.PipelinedForward`. The records are the same
as for single steps. A run that ends at a breakpoint or a cancel discards one forward pass.

Breakpoints are evaluated after each step. Statistics of the distribution are computed from the step's logits, and only
if a condition needs them. Only the end of the text is searched at each step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

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
"""Time limit of a regular expression at one step, after which the run stops: some would never end."""


class BreakpointEvaluator:
    """Evaluates sets of breakpoints over one run.

    Args:
        session: The session; the run begins at its current node.
        sets: Sets of breakpoints, each of which can stop the run; None is ignored.

    Raises:
        SettingsError: A condition is out of its range, or a regular expression can't be compiled.
    """

    def __init__(self, session: Session, sets: Iterable[Breakpoints | None] = ()) -> None:
        self._session, self._node = session, session.node
        self._sets = [check(points) for points in sets if points is not None and points.active]
        self._tail = TextTail(session) if any(points.text or points.regex for points in self._sets) else None
        self._reader: ReplyReader | None = None
        """Finds the segments of the reply; None if no breakpoint is at a segment."""
        if any(points.segment for points in self._sets):
            format, nodes = session.reply(session.node)
            self._reader = ReplyReader(format)
            self._place = self._reader.begin
            for node in nodes:
                self._place = self._reader.advance(self._place, session.reply_token(node))
        self._patterns = {points.regex: _compiled(points.regex) for points in self._sets if points.regex}
        self._matched: dict[tuple[str, str], str] = {}
        """Sentences of the texts, segments and patterns that matched in this run, by the condition's name and value."""
        self.steps_taken = 0
        """Number of steps of the run so far."""
        counted = any(points.tokens is not None and not points.all_of for points in self._sets)
        self.most: float = math.inf if counted else run_limit(session, session.node)
        """Number of completion tokens at which `max_tokens` ends the run; infinite if a breakpoint counts tokens."""
        self.hits: tuple[str, ...] = ()
        """Conditions that were met after the last step, as sentences with their values; empty if the run continues."""

    def is_at(self, session: Session) -> bool:
        """True if the last evaluation was at the session's current node, so that its run continues from there."""
        return session is self._session and session.node == self._node

    def evaluate(self, logits: NodeLogits) -> bool:
        """Evaluate all conditions after one step.

        Args:
            logits: Logits after the step's node.

        Returns:
            True if the run stops there.
        """
        self._node, self.steps_taken = logits.node, self.steps_taken + 1
        if self._tail is not None:
            self._tail.add(self._session.tree[logits.node].token)
        if self._reader is not None:
            before = kind_of(self._place.state)
            self._place = self._reader.advance(self._place, self._session.reply_token(logits.node))
            for one, other in pairwise([before, *map(kind_of, self._place.entered)]):
                if one != other:
                    for event in (f"{one} ends", f"{other} begins"):
                        self._matched["segment", event] = event
        sentences: list[str] = []
        for points in self._sets:
            if points is UNSURE and logits.grammar is not None and logits.grammar.certain:
                continue
            held = [self._sentence(each.name, getattr(points, each.name), logits) for each in points.active]
            if all(held) or not points.all_of:
                sentences += filter(None, held)
        self.hits = tuple(dict.fromkeys(sentences))
        return bool(sentences)

    def _sentence(self, name: str, limit: Any, logits: NodeLogits) -> str:
        """The sentence for a condition that is met, with its values; empty if it isn't met."""
        picked = logits.sampled.picked
        match name:
            case "entropy_above":
                bits = logits.masses.entropy_bits
                return f"entropy {_against(bits, limit)} bits is above {limit:g}" if bits > limit else ""
            case "rank_above":
                rank = rank_of(logits.row, picked)
                return f"rank {rank:,} is above {limit:,}" if rank > limit else ""
            case "prob_below":
                share, what = math.exp(logits.masses.logprob(picked)), "probability {}"
            case "margin_below":
                share, what = margin(logits.logprobs), "margin {} between first and second"
            case "mass_below":
                share = 1.0 if logits.grammar is None else logits.grammar.mass(logits.logprobs)
                what = "mass kept {}"
            case "eos":
                tokens = self._session.tokens
                ends = picked in tokens.eos_ids
                return f"end of sequence comes next: {tokens.text(picked)[0]}" if ends else ""
            case "tokens":
                count = "1 token was" if self.steps_taken == 1 else f"{self.steps_taken:,} tokens were"
                return f"{count} taken" if self.steps_taken >= limit else ""
            case _:
                return self._matched.get((name, limit)) or self._match(name, limit)
        figure = what.format(_share_against(share, limit))
        return f"{figure} is below {percent(limit)}" if share < limit else ""

    def _match(self, name: str, wanted: str) -> str:
        """Search the newest text for a text or a pattern, and store a match; segments are found by `evaluate`."""
        sentence = ""
        if name == "text" and self._tail is not None and self._tail.contains(wanted):
            sentence = f"the text now contains “{wanted}”"
        elif name == "regex" and self._tail is not None:
            try:
                match = self._tail.match(self._patterns[wanted])
            except TimeoutError:
                return f"/{wanted}/ took more than {PATIENCE_MS} ms at this text: make it simpler"
            sentence = f"the text now matches /{wanted}/ with “{match}”" if match else ""
        if sentence:
            self._matched[name, wanted] = sentence
        return sentence


class TextTail:
    """The end of a completion's text, with the part that the newest token added.

    Args:
        session: The session; the text ends at its current node.
    """

    def __init__(self, session: Session) -> None:
        at = session.tree[session.node]
        length = at.depth - at.start
        self._raw = session.tokens.raw
        self._cut = length > REACH
        """True if `_text` lacks the beginning of the completion."""
        before = b"".join(map(self._raw, session.tree.tail(session.node, min(length, REACH))))
        self._text, self._pending = decode(b"", before)
        self._seen = len(self._text)
        """Number of characters before those of the newest token."""

    def add(self, token: int) -> None:
        """Append the next token; an unfinished character is added when it is complete."""
        text, self._pending = decode(self._pending, self._raw(token))
        if len(self._text) > 2 * REACH:
            self._text, self._cut = self._text[-REACH:], True
        self._seen = len(self._text)
        self._text += text

    def contains(self, wanted: str) -> bool:
        """True if the newest token completed a text."""
        return self._text.find(wanted, max(0, self._seen - len(wanted) + 1)) >= 0

    def match(self, pattern: Any) -> str:
        """The first match that includes a part of the newest token; empty if there is none.

        Args:
            pattern: A pattern compiled by `regex`.

        Raises:
            TimeoutError: The search takes too long.
        """
        # `^` must match only at the beginning of the completion, which is the text's beginning unless it was cut.
        begin = max(int(self._cut), self._seen - REACH)
        for match in pattern.finditer(self._text, begin, overlapped=True, timeout=PATIENCE_MS / 1000):
            if match.end() > max(self._seen, match.start()):
                return str(match[0])
        return ""


def margin(logprobs: Row) -> float:
    """Probability of the most probable token minus that of the second, from logprobs of shape (vocabulary,)."""
    best = int(logprobs.argmax())
    # searching twice is thirty times faster than sorting
    second = max(part.max(initial=-np.inf) for part in (logprobs[:best], logprobs[best + 1 :]))
    return math.exp(float(logprobs[best])) - math.exp(float(second))


def _compiled(pattern: str) -> Any:
    import regex  # 30 ms that would delay the first distribution; few runs need it

    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise SettingsError(
            "regex", f"regular expression can't be read: {error}.", "Write another."
        ) from None


def _against(value: float, limit: float, kind: str = "f", places: int = 2) -> str:
    """A number with enough decimal places to distinguish it from a limit."""
    figures = (f"{value:.{n}{kind}}" for n in range(places, 18))
    return next((each for each in figures if float(each) != limit), f"{value:g}")


def _share_against(share: float, limit: float) -> str:
    """A fraction of 1 as a percentage that can be distinguished from a limit."""
    return _against(share * 100, float(f"{limit * 100:.12g}"), "g", 3) + " %"


# ---- steps -------------------------------------------------------------------------------------


def run(
    session: Session,
    stopped: Stopped,
    breaking: BreakpointEvaluator | None = None,
    pace: float | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Step]:
    """Yield steps until a stop or a breakpoint is reached or `stopped` returns True.

    Args:
        session: The session; its current node is that of the yielded step, but its cache may be one token ahead until
            the run ends.
        stopped: Polled once per step; a step in progress is still taken.
        breaking: The breakpoints of the run; None for none.
        pace: Maximum number of steps per second; None for steps back to back.
        wait: Waits for at most the given seconds.
    """
    due, breaking = time.perf_counter(), breaking or BreakpointEvaluator(session)
    while not stopped():
        if session.can_pipeline and not pace:
            yield from _back_to_back(session, stopped, breaking)
        else:
            step = session.step()
            breaking.evaluate(session.position.node_logits)
            yield step
        if breaking.hits or stop_reached(session, session.node, breaking.most) is not None:
            return
        if pace:
            due = max(due + 1 / pace, time.perf_counter())
            wait(max(0.0, due - time.perf_counter()))


def guesses(session: Session) -> bool:
    """True if the next token of a run is guessed on the device, since the sampler picks the most probable token.

    Without guesses a greedy run of the bundled model takes 1.2 times as long on a CPU with two cores.
    """
    settings = session.settings
    shapes = any(stage.kind == "logits" and BY_NAME[stage.setting].on(settings) for stage in STAGES.values())
    return not (settings.temp or shapes or settings.grammar is not None)


Launched = tuple[int, Origin, KVReading, Memory, float, StallTimes]
"""A token with a forward pass in progress: node and origin, cache and memory, and time and stalls at its start."""


def _back_to_back(session: Session, stopped: Stopped, breaking: BreakpointEvaluator) -> Iterator[Step]:
    """Yield steps as long as the caches can remove an unwanted token again."""
    session.prepare_step()
    pipeline = PipelinedForward(session.runner, guesses(session))
    before, reader = session.position, session.node_reader
    try:
        pipeline.prepare()
        launched = _launch(session, pipeline, before.node_logits)
        while launched is not None:
            node, origin, kv, used, since, stalled = launched
            ends = stop_reached(session, node, breaking.most) is not None
            more = not stopped() and not ends and session.can_pipeline and pipeline.prepare()
            row = pipeline.collect()
            forward_ms = (time.perf_counter() - since) * 1000
            node_logits = reader.sample(node, row, session.settings)
            total_ms = (time.perf_counter() - since) * 1000
            stalls = stall_times(stalled)
            hit = breaking.evaluate(node_logits)  # before the launch: no unwanted token enters the tree
            launched = _launch(session, pipeline, node_logits) if more and not hit else None
            begun = time.perf_counter()
            position = reader.position(node_logits, session.settings.candidates)
            session.set_position(position)
            inspect_ms = (time.perf_counter() - begun) * 1000
            cold = session.runner.is_first("step")
            ms = StepTimes(total_ms, forward_ms, node_logits.sample_ms, inspect_ms, True, *stalls, cold)
            yield reader.step_record(before, position, origin, kv, ms, used)
            before = position
    finally:
        pipeline.drop(session.tree[session.node].depth)


def _launch(session: Session, pipeline: PipelinedForward, node_logits: NodeLogits) -> Launched | None:
    """Start the forward pass of the token that the sampler picked after a node; None if that failed."""
    stalls = stall_times()
    # read before the launch, which on the CPU backend waits for most of the forward pass
    launched = time.perf_counter()
    if not pipeline.launch(node_logits.sampled.picked):
        return None
    origin: Origin = "greedy" if node_logits.sampled.draw is None else "sampled"
    node = session.node_reader.add_token(node_logits.node, node_logits.sampled.picked, origin)
    if pipeline.undo is not None:
        session.mover.record_step(node, pipeline.undo)
    return node, origin, session.kv_reading(), memory(), launched, stalls
