"""The commands of a second model, which is compared with the session's."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from engine import protocol
from engine.errors import StepError
from engine.lockstep.diverge import continue_both
from engine.lockstep.paths import PathReader
from engine.lockstep.second import open_second
from engine.lockstep.texts import compare_texts
from engine.logits.questions import explain
from engine.protocol import Inside, LockstepClosed, Record
from engine.session.context import Context, free_garbage, take_tokens
from engine.session.session import Session
from engine.task import Stopped, Task


class KeptSecond:
    """The second model, which is kept until the first one is dropped."""

    paths: PathReader | None = None


class KeptReading:
    """Kept as long as the current tree."""

    begun: bool = False
    """True if a path of the tree was read in both models."""


def both_models(context: Context) -> PathReader:
    """Reads in both models; in a tree that was begun since the last time, from its beginning.

    Raises:
        StepError: There is no second one.
    """
    if (paths := context.of_model(KeptSecond).paths) is None:
        raise StepError("There is no second model.", "Open one to compare with.")
    kept = context.of_tree(KeptReading)
    if not kept.begun:
        paths.forget()
    kept.begun = True
    return paths


def second_session(context: Context, command: Inside, stopped: Stopped) -> Session:
    """The current tree on the second model, at the end of the path that a view reads.

    Args:
        context: Has the session.
        command: The view.
        stopped: Polled before each chunk.

    Raises:
        StepError: There is no second model, or the view's token can't be read in it.
        Cancelled: `stopped` returned True.
    """
    node = getattr(command, "until", None) or getattr(command, "node", None)
    return both_models(context).session(context.session, node, stopped)


def _drop(context: Context) -> str:
    """Drop the second model, and free its memory; returns its title."""
    kept = context.of_model(KeptSecond)
    title = kept.paths.second.title if kept.paths is not None else ""
    kept.paths = None
    free_garbage()
    return title


def open_lockstep(context: Context, command: protocol.OpenLockstep, task: Task) -> Iterator[Record]:
    """Load a second model."""
    kept = context.of_model(KeptSecond)
    if kept.paths is not None:
        yield LockstepClosed(kept.paths.second.title)
    _drop(context)  # its memory is free before the next one takes more
    kept.paths = PathReader(context.model, open_second(context.model, command, context.emit, task.cancel))


def close_lockstep(context: Context, command: protocol.CloseLockstep, task: Task) -> Iterator[Record]:
    """Drop the second model."""
    yield LockstepClosed(_drop(context))


def diff_text(context: Context, command: protocol.DiffText, task: Task) -> Iterator[Record]:
    """Read a text in both models."""
    yield from compare_texts(context.model, both_models(context).second, command, task.cancel.is_set)


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
    if both.second.aligned == "bytes":
        raise StepError(
            "The second model has other tokens, so its pick is no token of the first one.",
            "Step with the first model, or let each continue on its own.",
        )
    yield from read_lockstep(context, protocol.ReadLockstep(command.node), task)
    pick = both.pick(session, command.node)
    yield from take_tokens(session, command.node, [pick], "chosen", task.cancel.is_set)


def part_ways(context: Context, command: protocol.PartWays, task: Task) -> Iterator[Record]:
    """Let both models continue until they diverge."""
    both = both_models(context)
    yield from read_lockstep(context, protocol.ReadLockstep(command.node), task)
    yield from continue_both(context.session, both, command.node, command.tokens, task.cancel.is_set)
