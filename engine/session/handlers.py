"""Handlers of a session's commands, each named like its command in `engine.protocol`: model, settings, prompt, steps,
choices, moves, runs, recomputation, answers from cached logits, and recorded sessions."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from importlib import import_module

from msgspec.structs import replace

from engine import protocol
from engine.breakpoints import UNSURE
from engine.errors import Cancelled, PromptError, StepError
from engine.logits import questions
from engine.logits.questions import Vocabulary, kept_row
from engine.model.load import load as load_model
from engine.protocol import PromptOpened, Record, Resampled, Restore, Restored, Restoring
from engine.session import conversation
from engine.session.context import Context, free_garbage, move, take_tokens, with_stop
from engine.session.node_records import memory, window_full
from engine.session.run import BreakpointEvaluator
from engine.session.run import run as steps_of_run
from engine.session.session import Session
from engine.setting import check
from engine.task import Stopped, Task

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
    settings = check(command.settings)
    if context.opened:
        yield from _moved(context.opened, command.node, task)
    following = context.opened.configure(settings) if context.opened else None
    context.settings = settings
    if following is not None:
        yield Resampled(following)


def prefill(context: Context, command: protocol.Prefill, task: Task) -> Iterator[Record]:
    context.forget()
    yield from conversation.prompt(context.session, command, task.cancel.is_set)
    yield from context.prompt_readings(task)


def add_turn(context: Context, command: protocol.AddTurn, task: Task) -> Iterator[Record]:
    for record in conversation.add_turn(context.session, command, task.cancel.is_set):
        if isinstance(record, PromptOpened):
            context.forget()
        yield record
    yield from context.prompt_readings(task)


def go_on_prefill(context: Context, command: protocol.GoOnPrefill, task: Task) -> Iterator[Record]:
    yield from context.session.go_on_prefill(command.step_size, task.cancel.is_set)
    yield from context.prompt_readings(task)


# ---- steps and moves ---------------------------------------------------------------------------


def take_step(context: Context, command: protocol.TakeStep, task: Task) -> Iterator[Record]:
    yield from with_stop(context.session, context.session.step())


def choose(context: Context, command: protocol.Choose, task: Task) -> Iterator[Record]:
    session = context.session
    yield from _moved(session, command.node, task)
    yield from with_stop(session, session.choose(command.token, leave_grammar=command.leave_grammar))


def take(context: Context, command: protocol.Take, task: Task) -> Iterator[Record]:
    yield from take_tokens(
        context.session, command.node, command.ids, command.origin, task.cancel.is_set, command.leave_grammar
    )


def move_to(context: Context, command: protocol.MoveTo, task: Task) -> Iterator[Record]:
    yield from move(context.session, command.node, task.cancel.is_set)


def _moved(session: Session, node: int | None, task: Task) -> Iterator[Record]:
    """Move to the node of a command, unless the session is there."""
    if node not in (None, session.node):
        yield from move(session, node, task.cancel.is_set)


def reroll(context: Context, command: protocol.Reroll, task: Task) -> Iterator[Record]:
    yield from _moved(context.session, command.node, task)
    yield Resampled(context.session.reroll(command.count))


def run(context: Context, command: protocol.Run, task: Task) -> Iterator[Record]:
    """Take steps until one reaches a stop or a breakpoint."""
    session, stopped = context.session, task.cancel.is_set
    if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
        yield full
        return
    breaking: BreakpointEvaluator | None = context.of_tree.get(BreakpointEvaluator)
    if breaking is None or not command.goes_on or not breaking.is_at(session):
        breaking = BreakpointEvaluator(session, (command.until, UNSURE if command.over_sure else None))
        context.of_tree[BreakpointEvaluator] = breaking
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
    begun = time.perf_counter()
    context.session.recall(command.nodes, task.cancel.is_set)
    yield protocol.Recalled(command.nodes, (time.perf_counter() - begun) * 1000)


def verify(context: Context, command: protocol.Verify, task: Task) -> Iterator[Record]:
    yield context.session.verify(task.cancel.is_set)


# ---- answers from the cached rows of logits, without a forward pass ---------------------------------


def explain(context: Context, command: protocol.Explain, task: Task) -> Iterator[Record]:
    """Explain the sampler's choice after a node."""
    yield questions.explain(context.session, command.node, command.settings, command.reroll, command.also)


def what_if(context: Context, command: protocol.WhatIf, task: Task) -> Iterator[Record]:
    """Find the tokens that the same draws would have picked under other settings."""
    yield questions.what_if(context.session, command.settings, command.tip, task.cancel.is_set)


def find_tokens(context: Context, command: protocol.FindTokens, task: Task) -> Iterator[Record]:
    """Search the vocabulary after a node."""
    session = context.session
    if Vocabulary not in context.of_model:  # decoded at the first search
        context.of_model[Vocabulary] = Vocabulary(session.tokens)
    found = questions.find(session, context.of_model[Vocabulary], command, task.cancel.is_set)
    yield replace(found, note=session.cut_note(command.node))


def read_grammar(context: Context, command: protocol.ReadGrammar, task: Task) -> Iterator[Record]:
    """Read the tokens that a grammar allows after a node."""
    yield questions.expected(context.session, command.node, command.grammar)


def read_logits(context: Context, command: protocol.ReadLogits, task: Task) -> Iterator[Record]:
    """Read the cached rows of logits, all or those of some nodes."""
    session = context.session
    for node in command.nodes or session.kept_logits.nodes:
        if task.cancel.is_set():
            raise Cancelled
        yield from context.rows.row(session, node, kept_row(session, node))


# ---- a recorded session, rebuilt --------------------------------------------------------------------
# The tree gets the recorded node numbers, and the path to the requested node runs through the model. Only token ids
# come from the recording. The model's numbers are computed again, so that they can be compared with the recorded ones.

COMPARED = 16
"""Number of steps at the path's end that run one by one, as when recorded, so that their logprobs can be compared."""
REPORT_SECONDS = 0.1
MOST_NODES = 2_000_000
"""Limit of the tree's size; a node takes about 300 bytes of memory."""


def restore(context: Context, command: Restore, task: Task) -> Iterator[Record]:
    """Build a tree and move to one of its nodes, discarding the session's previous state.

    Yields:
        `Restored`, with the node's distribution and the logprobs of the path's last tokens. `Restoring` records are
        emitted before it.

    Raises:
        StepError: The tree is inconsistent, or too large.
        PromptError: There is no prompt, or the model has no embedding for an id.
        SettingsError: A logit bias names a token that the model doesn't have.
        Cancelled: The command was cancelled; the session has no prompt then.
    """
    begun, session = time.perf_counter(), context.session
    context.forget()
    if not command.nodes:
        raise PromptError("The recorded session has no prompt.", "Begin with a prompt in a new session.")
    session.check_settings(session.settings)
    session.tokens.check([grown.id for grown in command.nodes])
    if (last := max(grown.node for grown in command.nodes)) > MOST_NODES:
        raise StepError(
            f"The recorded tree goes up to node {last:,}.", f"The program can rebuild {MOST_NODES:,} at most."
        )
    session.forget()
    try:
        _build(session, command)
        session.replies = dict(command.replies)
        logprobs = _run(session, command.node, context.emit, task.cancel.is_set)
    except BaseException:
        session.forget()
        raise
    ms = (time.perf_counter() - begun) * 1000
    depth = session.tree[command.node].depth
    yield Restored(command.node, depth, logprobs, session.next, session.kv_reading(), memory(), ms)


def _build(session: Session, command: Restore) -> None:
    tree, add_token = session.tree, session.node_reader.add_token
    for grown in command.nodes:
        while len(tree) < grown.node:
            tree.add_gap()
        held = None  # id of the intervention set that begins at the node
        if grown.interventions:
            changed = import_module("engine.inside.interventions").changed  # imported only if needed
            compute = changed(session.runner.model, grown.interventions)
            held = session.interventions.add(grown.interventions, compute)
        if (
            grown.parent not in tree
            or add_token(grown.parent, grown.id, grown.origin, grown.prompt_begin, held) != grown.node
            or (grown.origin == "intervened" and not tree[grown.node].intervention_set)
        ):
            raise StepError(
                f"The recorded tree doesn't hold together at node {grown.node}.",
                "You can look at the recording, but not continue it.",
            )
        tree[grown.node].has_step = grown.has_step
    for node, count in command.rerolls:
        if node in tree:
            tree[node].reroll = count


def _run(session: Session, node: int, emit: Callable[[Record], None], stopped: Stopped) -> tuple[float, ...]:
    """Run the path, most of it in chunks and its last steps one by one; returns the logprobs of these steps."""
    session.check_node(node)
    facts, depth = session.facts, session.tree[node].depth
    if facts.hard_window and facts.context_window is not None and depth > facts.context_window:
        raise StepError(
            f"The recorded path has {depth:,} tokens, this model's window {facts.context_window:,}.",
            "Go to an earlier place of the recording, and continue there.",
        )
    path, reported = session.tree.nodes(node), float("-inf")

    def reporter() -> bool:
        """Emit a progress record at times; returns True if the command was cancelled."""
        nonlocal reported
        if time.perf_counter() - reported > REPORT_SECONDS:
            reported = time.perf_counter()
            emit(Restoring(session.kv.offset, depth))
        return stopped()

    first = max(session.tree[node].start, len(path) - COMPARED)
    session.move(path[first - 1], reporter)
    logprobs = []
    for child in path[first:]:
        logprobs.append(session.position.node_logits.masses.logprob(session.tree[child].token))
        session.move(child, reporter)
    return tuple(logprobs)
