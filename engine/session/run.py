"""Runs: steps at a pace, or back to back with the forward of one overlapping the readings of the one before.

Back to back, a greedy run begins the next forward with the token that the device finds most probable; else a GPU gets
the next graph with a slot for its token: see `engine.model.forward.PipelinedForward`. The records are those of single
steps either way. A run that a breakpoint or a cancel ends discards one forward.

Breakpoints are evaluated after each of the steps. Figures of the distribution are computed from the step's logits, only
where a condition needs them. Text is searched as it grows: a step costs the end of the text, not all of it.
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
"""A regular expression that takes longer over one step stops the run: some would never end."""


class BreakpointEvaluator:
    """Evaluates sets of breakpoints over one run.

    Args:
        session: The run begins at its current node.
        sets: Any of them stops the run; None is no set.

    Raises:
        SettingsError: A condition is out of its range, or a regular expression can't be compiled.
    """

    def __init__(self, session: Session, sets: Iterable[Breakpoints | None] = ()) -> None:
        self._session, self._node = session, session.node
        self._sets = [check(points) for points in sets if points is not None and points.active]
        self._tail = TextTail(session) if any(points.text or points.regex for points in self._sets) else None
        self._reader: ReplyReader | None = None
        """Tells the segments of the reply apart, if a breakpoint is at one."""
        if any(points.segment for points in self._sets):
            format, nodes = session.reply(session.node)
            self._reader = ReplyReader(format)
            self._place = self._reader.begin
            for node in nodes:
                self._place = self._reader.advance(self._place, session.reply_token(node))
        self._patterns = {points.regex: _compiled(points.regex) for points in self._sets if points.regex}
        self._matched: dict[tuple[str, str], str] = {}
        """Texts, segments and patterns that matched in this run, by the names of their conditions and themselves; each
        with its sentence."""
        self.steps_taken = 0
        """Steps of the run so far."""
        counted = any(points.tokens is not None and not points.all_of for points in self._sets)
        self.most: float = math.inf if counted else run_limit(session, session.node)
        """Tokens of the completion at which max tokens ends the run; endless where a breakpoint counts them."""
        self.hits: tuple[str, ...] = ()
        """Conditions that held after the last step, as sentences with their figures; empty if the run continues."""

    def is_at(self, session: Session) -> bool:
        """True if the last evaluation was at the session's current node, so that its run continues from there."""
        return session is self._session and session.node == self._node

    def evaluate(self, logits: NodeLogits) -> bool:
        """Evaluate all conditions after one step.

        Args:
            logits: Those after the step's node.

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
        """The sentence of a condition that holds, with its figures; empty if it doesn't hold."""
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
        """Search the newest text for a text or a pattern, which then stays matched; `evaluate` finds segments."""
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
        """The first match that includes a part of the newest token; empty if there is none.

        Args:
            pattern: Compiled by `regex`.

        Raises:
            TimeoutError: It takes too long.
        """
        # Where nothing was cut the text begins with the completion: `^` holds there and nowhere else.
        begin = max(int(self._cut), self._seen - REACH)
        for match in pattern.finditer(self._text, begin, overlapped=True, timeout=PATIENCE_MS / 1000):
            if match.end() > max(self._seen, match.start()):
                return str(match[0])
        return ""


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


def _against(value: float, limit: float, kind: str = "f", places: int = 2) -> str:
    """A figure with as many places as distinguish it from a limit."""
    figures = (f"{value:.{n}{kind}}" for n in range(places, 18))
    return next((each for each in figures if float(each) != limit), f"{value:g}")


def _share_against(share: float, limit: float) -> str:
    """A share of 1 as a percentage that can be distinguished from a limit."""
    return _against(share * 100, float(f"{limit * 100:.12g}"), "g", 3) + " %"


# ---- steps -------------------------------------------------------------------------------------


def run(
    session: Session,
    stopped: Stopped,
    breaking: BreakpointEvaluator | None = None,
    pace: float | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Step]:
    """Steps until a stop or a breakpoint is reached or `stopped` returns True: single ones at a pace, or back to back.

    Args:
        session: Its current node is that of the yielded step; its cache may be one token ahead until the end.
        stopped: Polled once a step; the step under way is still taken.
        breaking: Breakpoints to stop at, too.
        pace: Maximum number of steps a second; None for no limit.
        wait: Waits for some seconds at most.
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
    """True if a run's next token is guessed on the device: if the sampler takes the most probable token.

    Without it a greedy run of the bundled model takes 1.2 times as long on a CPU of two cores.
    """
    settings = session.settings
    shapes = any(stage.kind == "logits" and BY_NAME[stage.setting].on(settings) for stage in STAGES.values())
    return not (settings.temp or shapes or settings.grammar is not None)


Launched = tuple[int, Origin, KVReading, Memory, float, StallTimes]
"""A token whose forward is under way: its node and origin, cache and memory, the time, and the stalls until then."""


def _back_to_back(session: Session, stopped: Stopped, breaking: BreakpointEvaluator) -> Iterator[Step]:
    """Steps for as long as the caches can take a token back that turns out to be unwanted."""
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
    """Begin the forward of the token that the sampler picked after a node; None if that failed."""
    stalls = stall_times()
    # before the launch, which waits for most of the forward on the CPU backend
    launched = time.perf_counter()
    if not pipeline.launch(node_logits.sampled.picked):
        return None
    origin: Origin = "greedy" if node_logits.sampled.draw is None else "sampled"
    node = session.node_reader.add_token(node_logits.node, node_logits.sampled.picked, origin)
    if pipeline.undo is not None:
        session.mover.record_step(node, pipeline.undo)
    return node, origin, session.kv_reading(), memory(), launched, stalls
