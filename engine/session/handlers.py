"""Handlers of a session's commands: model, settings, prompt, steps, choices, moves, runs, and recomputation."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from importlib import import_module

from engine import protocol
from engine.breakpoints import UNSURE
from engine.errors import Cancelled
from engine.model.load import load as load_model
from engine.protocol import PromptOpened, Record, Resampled
from engine.session import conversation
from engine.session.context import Context, free_garbage, move, take_tokens, with_stop
from engine.session.node_records import window_full
from engine.session.run import BreakpointEvaluator
from engine.session.run import run as steps_of_run
from engine.session.session import Session
from engine.setting import check
from engine.task import Task

# ---- model, settings, prompt -------------------------------------------------------------------


def load(context: Context, command: protocol.Load, task: Task) -> Iterator[Record]:
    """Load a model, and open a session on it."""
    settings = command.settings
    context.forget(model=True)  # frees its memory before the next model takes more
    if context.loads:
        free_garbage()
    context.loads += 1
    shared = context.shared(settings)
    load_here = import_module("engine.ranks.handlers").load if settings.divided else load_model
    loaded = shared or load_here(settings, context.emit, task.cancel)
    opened = Session(loaded, context.settings)  # before either is set: a failure sets neither
    context.loaded, context.opened, context.asked = loaded, opened, settings
    if shared is None:
        gc.freeze()  # the model and its libraries are a hundred thousand long-lived objects
    yield loaded.facts
    if loaded.divided:
        yield import_module("engine.ranks.handlers").loaded_over_ranks(opened)


def configure(context: Context, command: protocol.Configure, task: Task) -> Iterator[Record]:
    """Change the settings from now on."""
    settings = check(command.settings)
    following = context.opened.configure(settings) if context.opened else None
    context.settings = settings
    if following is not None:
        yield Resampled(following)


def prefill(context: Context, command: protocol.Prefill, task: Task) -> Iterator[Record]:
    """Read a prompt."""
    context.forget()
    yield from conversation.prompt(context.session, command, task.cancel.is_set)
    yield from context.prompt_readings(task)


def add_turn(context: Context, command: protocol.AddTurn, task: Task) -> Iterator[Record]:
    """Add a user turn to the conversation."""
    for record in conversation.add_turn(context.session, command, task.cancel.is_set):
        if isinstance(record, PromptOpened):
            context.forget()
        yield record
    yield from context.prompt_readings(task)


def go_on_prefill(context: Context, command: protocol.GoOnPrefill, task: Task) -> Iterator[Record]:
    """Continue a prefill that was cancelled."""
    yield from context.session.go_on_prefill(command.step_size, task.cancel.is_set)
    yield from context.prompt_readings(task)


# ---- steps and moves ---------------------------------------------------------------------------


def take_step(context: Context, command: protocol.TakeStep, task: Task) -> Iterator[Record]:
    """Take the token that the sampler picked."""
    yield from with_stop(context.session, context.session.step())


def choose(context: Context, command: protocol.Choose, task: Task) -> Iterator[Record]:
    """Take a given token after a node."""
    session = context.session
    if session.node != command.node:
        yield from move(session, command.node, task.cancel.is_set)
    yield from with_stop(session, session.choose(command.token, leave_grammar=command.leave_grammar))


def take(context: Context, command: protocol.Take, task: Task) -> Iterator[Record]:
    """Take several tokens after a node."""
    yield from take_tokens(
        context.session, command.node, command.ids, command.origin, task.cancel.is_set, command.leave_grammar
    )


def move_to(context: Context, command: protocol.MoveTo, task: Task) -> Iterator[Record]:
    """Move to another node."""
    yield from move(context.session, command.node, task.cancel.is_set)


def reroll(context: Context, command: protocol.Reroll, task: Task) -> Iterator[Record]:
    """Draw the next token again."""
    yield Resampled(context.session.reroll(command.count))


class KeptRun:
    """Breakpoints that are kept of a tree between two runs."""

    breakpoints: BreakpointEvaluator | None = None
    """The last run's, with their counts."""


def run(context: Context, command: protocol.Run, task: Task) -> Iterator[Record]:
    """Take steps until one reaches a stop or a breakpoint."""
    session, kept, stopped = context.session, context.of_tree(KeptRun), task.cancel.is_set
    if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
        yield full
        return
    breaking = kept.breakpoints
    if breaking is None or not command.goes_on or not breaking.is_at(session):
        sets = command.until, UNSURE if command.over_sure else None
        breaking = kept.breakpoints = BreakpointEvaluator(session, sets)
    ended = False
    if not breaking.hits:
        for step in steps_of_run(session, stopped, breaking, command.pace, task.cancel.wait):
            ended = yield from with_stop(session, step, breaking.most)
    if breaking.hits:
        yield protocol.BreakpointHit(session.node, breaking.hits)
    elif not ended:
        raise Cancelled


# ---- recomputation -----------------------------------------------------------------------------


def recall(context: Context, command: protocol.Recall, task: Task) -> Iterator[Record]:
    """Recompute the logits after some nodes."""
    begun = time.perf_counter()
    context.session.recall(command.nodes, task.cancel.is_set)
    yield protocol.Recalled(command.nodes, (time.perf_counter() - begun) * 1000)


def verify(context: Context, command: protocol.Verify, task: Task) -> Iterator[Record]:
    """Recompute the path with empty caches, and compare."""
    yield context.session.verify(task.cancel.is_set)
