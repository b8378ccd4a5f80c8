"""The status line, with the state of the session and the keys that matter now; and the notices about records."""

from __future__ import annotations

from msgspec.structs import replace
from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from engine.breakpoints import Breakpoints
from engine.protocol import (
    Candidate,
    Choose,
    Command,
    Configure,
    Failure,
    Insert,
    ModelFacts,
    MoveTo,
    Prefill,
    PromptOpened,
    Recall,
    Record,
    Reroll,
    Verified,
    Verify,
)
from engine.thread import WITHOUT_MLX
from inspector.config.files import log_crash
from inspector.display import truncate_words, visible, visible_lines
from inspector.keys import bare_key_for, key_for
from inspector.session.client import Severity
from inspector.session.controller import Controller
from inspector.session.transport import marker
from inspector.state.conditions import ending
from inspector.state.inside import interventions_words
from inspector.state.session_tree import BOOKMARKED, branches_words, numbered, quoted_label, written
from inspector.state.timeline import Phase, Timeline


def situation(
    controller: Controller, panel: str = "", candidate: Candidate | None = None, narrated: str = ""
) -> str:
    """The state of the session, and the keys that matter now; printable.

    Args:
        controller: The session.
        panel: The sentence of the current panel's tool.
        candidate: The highlighted candidate.
        narrated: A narrator's sentence about the keys that do something now.
    """
    timeline = controller.timeline
    if timeline.returning:
        return f"Continuing live: {visible(timeline.returning)}. Esc stops it; you can look at the recording meanwhile"
    if timeline.recorded and not controller.transport.recorded:
        return picture_words(timeline)
    rests = timeline.recorded and timeline.phase is Phase.READY
    if (words := controller.transport.describe()) and not (narrated and rests):
        return words
    if timeline.phase in (Phase.LOADING, Phase.FAILED) or (timeline.phase is Phase.EMPTY and not narrated):
        return _without_text(controller)
    if (asked := controller.client.outstanding) and (doing := _under_way(asked[0])):
        return f"{doing}. Press esc to stop it"
    if narrated:
        return narrated
    if timeline.trial is not None:
        if timeline.recorded:
            return "Preview of other settings on the recording. Esc discards it"
        return "Preview: ⏎ applies from here on, esc discards"
    if stopped := stop_words(controller):
        return stopped
    if panel:
        return panel
    if not timeline.following:
        return _looking_back(timeline, candidate)
    if timeline.tip in timeline.finished:
        return _finished(timeline)
    return _tip(timeline, candidate)


def stop_words(controller: Controller) -> str:
    """The breakpoint that stopped a run at the last token, and the keys; printable, empty if none did, or an earlier
    token is on show."""
    timeline = controller.timeline
    if not timeline.following or timeline.tip in timeline.finished:
        return ""
    return controller.runs.breakpoints.stop_sentence(timeline.next)


def _under_way(command: Command) -> str:
    """The engine's work for a command that may take long; empty for other commands."""
    match command:
        case Verify():
            return "Recomputing the path without the cache to compare"
        case Insert():
            return "Taking your text, token by token"
        case MoveTo() | Choose() | Configure(node=int()) | Reroll(node=int()):
            return "Moving the KV cache"
        case Recall():
            return "Computing dropped logits again"
        case _:
            return ""


def picture_words(timeline: Timeline) -> str:
    """The words under a picture of a recording, which has no keys to press; printable."""
    steps = f" of {len(timeline.steps):,} steps" if timeline.steps else ""
    return f"A picture of a recording{steps}; `inspector replay` shows it token by token"


def _without_text(controller: Controller) -> str:
    """The keys that help while there is no model, or no prompt."""
    timeline = controller.timeline
    prompt, sampling, quits = key_for("prompt"), key_for("sampling"), key_for("quit")
    match timeline.phase:
        case Phase.LOADING:
            return f"Loading the model. Meanwhile: {prompt} another prompt, {sampling} settings, {quits} quit"
        case Phase.FAILED if timeline.load_failure and timeline.load_failure.hint.endswith(WITHOUT_MLX):
            return f"No MLX. Press {key_for('sessions')} to see a saved session, {quits} to quit"
        case Phase.FAILED:
            return f"No model. Press {key_for('open')} to open another, {quits} to quit"
        case _ if controller.client.under_way(Prefill):
            return "The prompt is about to go through the model. Press esc to stop it"
        case _ if timeline.prompts.failure is not None:
            return f"The prompt was refused. Press {prompt} to change it"
        case _:
            return f"No prompt. Press {prompt} to give one"


def _looking_back(timeline: Timeline, candidate: Candidate | None) -> str:
    item = timeline.selected
    place = numbered(item).capitalize() if item is not None else ""
    branches = len(timeline.siblings(timeline.slot))
    more = f" {branches_words(branches)}" if branches > 1 else ""
    mark = _mark(timeline, item.node) if item is not None else ""
    if mark and mark != BOOKMARKED:
        return f"{place}: {mark}"
    place += f", {mark}" if mark else ""
    end = f"{key_for('tip').capitalize()} returns to the last token"
    if timeline.recorded or candidate is None:
        return f"{place}.{more} {end}"
    if item is not None and candidate.id == item.id:
        return f"{place}.{more} ↑↓ and ⏎ take another token here. {end}"
    return f"{place}.{more} ⏎ branches here with {quoted_label(candidate)}. {end}"


def _mark(timeline: Timeline, node: int) -> str:
    """The user's marks at a node; a recording's captions are left out, since they have their own lines."""
    if (mark := timeline.tree.marks.of.get(node)) is None:
        return ""
    return written(replace(mark, caption="") if timeline.recorded else mark)


def _finished(timeline: Timeline) -> str:
    """The reason why the text ended at its last token, and the keys that continue past it."""
    run, words = key_for("run"), ending(timeline.finished[timeline.tip])
    words = words[0].upper() + words[1:]
    if timeline.under and not timeline.recorded:
        return f"{_under(timeline)}. {words}; {run} continues"
    talks = timeline.prompts.opened is not None and timeline.prompts.opened.messages and not timeline.recorded
    replies = f"; {key_for('reply')} replies" if talks else ""
    return f"{words}. {key_for('step').capitalize()} or {run} continues{replies}"


def _tip(timeline: Timeline, candidate: Candidate | None) -> str:
    """The token that the next key takes, after the last one."""
    step, run, taken = key_for("step"), key_for("run"), timeline.taken
    picked = next((each for each in timeline.candidates if each.id == taken), None)
    takes = f"{step.capitalize()} takes {quoted_label(picked)}" if picked is not None else ""
    if timeline.under and not timeline.recorded:
        return f"{_under(timeline)}. {takes}; {run} runs" if takes else _under(timeline)
    if picked is None:
        return f"Press {step} to step, {run} to run"
    if candidate is None or candidate.id == picked.id:
        return f"{step.capitalize()} or ⏎ takes {quoted_label(picked)}. ↑↓ choose another; {run} runs"
    return f"{takes}, ⏎ takes {quoted_label(candidate)} instead; {run} runs"


def _under(timeline: Timeline) -> str:
    """The interventions that are held, and the keys that end them."""
    steered = any(each.direction is not None for each in timeline.under)
    tool, words = "steering" if steered else "interventions", interventions_words(timeline.under)
    keys = f"{key_for(tool)}, then {bare_key_for(f'{tool}.release')}"
    if not all(each.scale == 0 for each in timeline.under):
        return f"Changed: {words} ({keys}, ends that)"
    are, them = ("are", "them") if len(timeline.under) > 1 else ("is", "it")
    return f"{words.removesuffix('off')}{are} off ({keys}, turns {them} back on)"


_STEPPING = frozenset((Phase.READY, Phase.RUNNING))
"""Phases between which an answer to a key stays: a run may begin or end meanwhile."""


class StatusLine(Widget):
    """One line under the panels: the situation, or an answer to the last key; at the right, the breakpoints, and the
    current panel or the pace."""

    left = right = answer = ""
    points = Breakpoints()
    _answered_in = Phase.LOADING
    _view: str | None = None
    """The words of the open view; None if no view is open."""

    def tell(self, said: str | None, alert: bool = False) -> None:
        """Show the open view's sentence.

        Args:
            said: Printable; None once no view is open.
            alert: True if it answers a key, or is a failure.
        """
        self.set_class(bool(self.answer) if said is None else alert, "-answer")
        if said != self._view:
            self._view = said
            self.refresh()

    def say(self, answer: str, phase: Phase) -> None:
        """Answer the last key, until the phase changes; an empty answer shows the situation again.

        Args:
            answer: Printable.
            phase: The current phase.
        """
        self._answered_in = phase
        if answer != self.answer:
            self.answer = answer
            if self._view is None:
                self.set_class(bool(answer), "-answer")
            self.refresh()

    def show(self, controller: Controller, said: str, right: str) -> None:
        """Show the situation.

        Args:
            controller: The session, with its phase and breakpoints.
            said: The situation; printable.
            right: The words at the right end: the panel's name if one is shown at a time, or else the pace.
        """
        phase = controller.timeline.phase
        if phase is not self._answered_in and not {phase, self._answered_in} <= _STEPPING:
            self.say("", phase)
        points = controller.runs.breakpoints.points
        if points is not self.points:
            self.points = points
            self.refresh()
        if (said, right) != (self.left, self.right):
            self.left, self.right = said, right
            self.refresh()

    def render(self) -> Content:
        said, width = self.answer or self.left, self.content_size.width
        if self._view is not None:
            return Content(truncate_words(self._view, width))
        right = f" {self.right}" if self.right else ""
        room = width - cell_len(said) - cell_len(right) - 2
        marked = marker(self.points, room) if self.points.active else ""
        right = f"  {marked}{right}" if marked else right
        room = max(0, width - cell_len(right))
        left = truncate_words(said, room)
        return Content(left + " " * (room - cell_len(left))) + Content.styled(right, "bold")


# ---- notices -----------------------------------------------------------------------------------

TOLD = (Failure, Verified, PromptOpened, ModelFacts)
"""The kinds of records that have a notice."""


Notice = tuple[str, str, Severity]
"""Title, text and severity; printable."""


def notice(record: Record) -> Notice | None:
    """The notice about a record of these kinds; None for most."""
    match record:
        case Failure(
            command="Explain" | "WhatIf" | "FindTokens" | "Tokenize" | "PreviewPrompt" | "TakeApart",
            expected=True,
        ):
            return None  # shown instead of the answer
        case Failure(command="SearchBeams" | "GoOnBeams", expected=True):
            return None  # shown by the view of the beams
        case Failure():
            return _failure(record)
        case Verified():
            return _verified(record)
        case PromptOpened(notes=notes) | ModelFacts(notes=notes) if notes:
            return "Good to know", visible_lines("\n".join(notes)), "information"
        case _:
            return None


def _failure(failure: Failure) -> Notice:
    text = visible_lines("\n".join(part for part in (failure.message, failure.hint) if part))
    if failure.expected:
        name = _COMMANDS.get(failure.command)
        return f"{name} failed" if name else "Not possible here", text, "error"
    log = log_crash(failure.command, failure.trace or failure.message)
    where = f"is in {visible_lines(str(log))}" if log else "could not be written to a log"
    return (
        "A fault of the program",
        f"{text}\nThe traceback {where}. What the screen shows is still valid.",
        "error",
    )


_COMMANDS = {"MoveTo": "The move", "Choose": "The choice", "Configure": "The settings", "Load": "Loading",
             "LoadDraft": "Loading the draft model",
             "Verify": "The verification", "Reroll": "The draw", "Insert": "The insertion",
             "Recall": "Computing the logits again", "OpenLockstep": "Opening the second model",
             "ReadLockstep": "Reading in both models", "FollowSecond": "The step with B",
             "PartWays": "Continuing each model on its own", "Prefill": "Reading the prompt", "TakeStep": "The step",
             "Run": "The run"}  # fmt: skip


def _verified(record: Verified) -> Notice:
    text = (
        f"{record.tokens:,} tokens recomputed without the cache in {record.ms:,.0f} ms. "
        f"Largest difference of a logit: {record.largest_difference:.3g}. "
    )
    if record.largest_difference and record.rounding:  # 0 in older recordings
        text += f"Rounding explains up to {record.rounding:.2g}: other chunks are added up in another order. "
    text += f"The ten most probable tokens come in {'the same' if record.same_order else 'another'} order."
    if record.same_order and record.largest_difference <= (record.rounding or record.largest_difference):
        return "Verified", text, "information"
    return "Verified: the results differ", text, "warning"
