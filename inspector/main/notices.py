"""Records that are told as a notice: failures, and the outcome of a verification."""

from __future__ import annotations

from msgspec import Struct

from engine.protocol import Failure, LockstepOpened, ModelFacts, PromptOpened, Record, Verified
from inspector.config.files import log_crash
from inspector.display import visible_lines
from inspector.keys import key_for
from inspector.session.client import Severity


class Notice(Struct, frozen=True):
    """Something to tell; printable."""

    title: str
    text: str
    severity: Severity


TOLD = (Failure, Verified, LockstepOpened, PromptOpened, ModelFacts)
"""The records of which a notice tells."""


def notice(record: Record) -> Notice | None:
    """The notice on a record of these, None for most."""
    match record:
        case Failure(
            command="Explain" | "WhatIf" | "FindTokens" | "Tokenize" | "PreviewPrompt" | "TakeApart",
            expected=True,
        ):
            return None  # it is said in the place where the answer would stand
        case Failure(command="SearchBeams" | "GoOnBeams", expected=True):
            return None  # the beam screen says so
        case Failure():
            return _failure(record)
        case Verified():
            return _verified(record)
        case LockstepOpened(title=title, notes=notes):
            text = "\n".join((f"{title}: {key_for('lockstep')} shows both models at each token.", *notes))
            return Notice("A second model", visible_lines(text), "information")
        case PromptOpened(notes=notes) | ModelFacts(notes=notes) if notes:
            return Notice("Good to know", visible_lines("\n".join(notes)), "information")
        case _:
            return None


def _failure(failure: Failure) -> Notice:
    text = visible_lines("\n".join(part for part in (failure.message, failure.hint) if part))
    if failure.expected:
        return Notice(f"{_COMMANDS.get(failure.command, failure.command)} failed", text, "error")
    log = log_crash(failure.command, failure.trace or failure.message)
    where = (
        f"The traceback is in {visible_lines(str(log))}."
        if log
        else "The traceback could not be written to a log."
    )
    return Notice("A fault of the program", f"{text}\n{where} What the screen shows is still valid.", "error")


_COMMANDS = {"MoveTo": "The move", "Choose": "The choice", "Configure": "The settings", "Load": "Loading",
             "Open": "Opening a model",
             "Verify": "The verification", "Reroll": "The draw", "Insert": "The insertion",
             "Recall": "Computing the logits again", "OpenLockstep": "Opening the second model",
             "ReadLockstep": "Reading in both models", "FollowSecond": "The second model's pick",
             "PartWays": "Continuing each model on its own"}  # fmt: skip


def _verified(record: Verified) -> Notice:
    text = (
        f"{record.tokens:,} tokens recomputed without the cache in {record.ms:,.0f} ms. "
        f"Largest difference of a logit: {record.largest_difference:.3g}. "
    )
    if record.largest_difference and record.rounding:  # older recordings don't tell it
        text += f"Rounding explains up to {record.rounding:.2g}: other chunks are added up in another order. "
    text += f"The ten most probable tokens come in {'the same' if record.same_order else 'another'} order."
    if record.same_order and record.largest_difference <= (record.rounding or record.largest_difference):
        return Notice("Verified", text, "information")
    return Notice("Verified: the results differ", text, "warning")
