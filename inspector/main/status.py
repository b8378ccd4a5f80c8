"""The status line: what is going on, and what the person can do about it."""

from __future__ import annotations

from dataclasses import replace

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from engine.breakpoints import Breakpoints
from engine.protocol import Candidate, Choose, Insert, MoveTo, PromptToken, Recall, Step, Verify
from engine.thread import WITHOUT_MLX
from inspector.display import quoted, token_label, truncate_words, visible
from inspector.keys import bare_key_for, key_for
from inspector.session.controller import Controller
from inspector.state.breakpoints import marker
from inspector.state.inside import interventions_words
from inspector.state.session_tree import BOOKMARKED, written
from inspector.state.timeline import Phase, Timeline


def situation(
    controller: Controller, panel: str = "", candidate: Candidate | None = None, narrated: str = ""
) -> str:
    """The state of the session, and the keys that matter now; printable.

    Args:
        controller: Knows it.
        panel: What the tool whose panel is the current one has to say.
        candidate: The highlighted one.
        narrated: The keys that do something now, where a narrator takes some of them.
    """
    timeline = controller.timeline
    if controller.away:
        return controller.away
    if timeline.returning:
        return f"Continuing live: {visible(timeline.returning)}. Esc stops it; you can look at the recording meanwhile"
    if timeline.recorded and not controller.transport.recorded:
        return picture_words(timeline)
    rests = timeline.recorded and timeline.phase is Phase.READY
    if (words := controller.transport.describe()) and not (narrated and rests):
        return words
    match timeline.phase:
        case Phase.LOADING:
            return (
                f"Loading the model. Meanwhile: {key_for('prompt')} another prompt, "
                f"{key_for('sampling')} sampling, {key_for('quit')} quit"
            )
        case Phase.FAILED if timeline.load_failure and timeline.load_failure.hint.endswith(WITHOUT_MLX):
            return f"No MLX. Press {key_for('sessions')} to see a saved session, {key_for('quit')} to quit"
        case Phase.FAILED:
            return f"No model. Press {key_for('open')} to open another, {key_for('quit')} to quit"
        case Phase.EMPTY if timeline.prompts.failure is not None:
            return f"The prompt was refused. Press {key_for('prompt')} to change it"
        case Phase.EMPTY:
            return f"No prompt. Press {key_for('prompt')} to give one"
        case _:
            return _ready(controller, panel, candidate, narrated)


def picture_words(timeline: Timeline) -> str:
    """The words under a picture of a recording, whose reader can press no key; printable."""
    steps = f" of {len(timeline.steps):,} steps" if timeline.steps else ""
    return f"A picture of a recording{steps}; `inspector replay` shows it token by token"


def _ready(controller: Controller, panel: str, candidate: Candidate | None, narrated: str) -> str:
    timeline = controller.timeline
    match controller.client.doing:
        case Verify():
            return "Recomputing the path without the cache to compare. Press esc to stop it"
        case Insert():
            return "Taking your text, token by token. Press esc to stop it"
        case MoveTo() | Choose():
            return "Moving the KV cache. Press esc to stop it"
        case Recall():
            return "Computing dropped logits again. Press esc to stop it"
    if narrated:
        return narrated
    if timeline.trial is not None and timeline.recorded:
        return "Trying other settings on the recording. Esc leaves them"
    if timeline.trial is not None:
        return "Trying other settings. ⏎ continues with them, esc discards them"
    if panel:
        return panel
    if not timeline.following:
        return _looking_back(timeline, candidate)
    if (finished := timeline.finished.get(timeline.tip)) is not None:
        if under := _under(timeline):
            return f"{under}. Finished: {finished.reason}; {key_for('run')} runs on"
        return f"Finished: {finished.reason} ({visible(finished.detail)}). {_past(timeline)}"
    if stopped := controller.runs.breakpoints.stop_sentence(timeline.next):
        return stopped
    begins = timeline.items and isinstance(timeline.items[-1], PromptToken)
    lost = timeline.prompts.lost_words if begins else ""
    return f"{lost}. {_tip(timeline, candidate)}" if lost else _tip(timeline, candidate)


def _looking_back(timeline: Timeline, candidate: Candidate | None) -> str:
    item = timeline.selected
    place = f"step {item.index + 1}" if isinstance(item, Step) else f"prompt token {timeline.slot + 1}"
    branches = len(timeline.siblings(timeline.slot))
    more = (
        f", one of {branches} branches: {key_for('previous_branch')} {bare_key_for('next_branch')}"
        if branches > 1
        else ""
    )
    told = _mark(timeline, item.node) if item is not None else ""
    if told and told != BOOKMARKED:
        return f"Looking at {place}: {told}"
    place += f", {told}" if told else ""
    if timeline.recorded or candidate is None:
        return f"Looking at {place}{more}. Press end for the tip"
    if item is not None and candidate.id == item.id:
        return f"Looking at {place}{more}. Press end for the tip, ↑↓ and ⏎ to take another here"
    return f"Looking at {place}{more}. ⏎ takes {_name(candidate)} here, a branch; end goes to the tip"


def _mark(timeline: Timeline, node: int) -> str:
    """The marks of a person there; a recording's caption has lines of its own above."""
    mark = timeline.tree.marks.of.get(node)
    if mark is None:
        return ""
    return written(replace(mark, caption="") if timeline.recorded else mark)


def _tip(timeline: Timeline, candidate: Candidate | None) -> str:
    picked = _picked(timeline)
    if under := _under(timeline):
        more = (
            f". {key_for('step').capitalize()} takes {_name(picked)}, {key_for('run')} runs"
            if picked is not None
            else ""
        )
        return f"{under}{more}"
    if picked is None:
        return f"Press {key_for('step')} to step, {key_for('run')} to run"
    if candidate is None or candidate.id == picked.id:
        return (
            f"{key_for('step').capitalize()} or ⏎ takes {_name(picked)}; ↑↓ highlights another for "
            f"⏎, {key_for('run')} runs"
        )
    return (
        f"{key_for('step').capitalize()} takes {_name(picked)}, ⏎ takes {_name(candidate)} in "
        f"its place; {key_for('run')} runs"
    )


def _under(timeline: Timeline) -> str:
    """What is held while the text goes on, and the keys that release it; empty for nothing."""
    if not timeline.under or timeline.recorded:
        return ""
    how = f"{key_for('interventions')} then {key_for('interventions.release')}"
    return f"Under {interventions_words(timeline.under)} ({how} releases)"


def _past(timeline: Timeline) -> str:
    """The keys that go on past the end."""
    picked = _picked(timeline)
    past = (
        f"{key_for('step').capitalize()} takes {_name(picked)} past it, {key_for('run')} runs on"
        if picked
        else f"{key_for('step').capitalize()} or {key_for('run')} continues past it"
    )
    talks = timeline.prompts.opened is not None and timeline.prompts.opened.messages and not timeline.recorded
    return f"{past}, {key_for('reply')} replies" if talks else past


def _picked(timeline: Timeline) -> Candidate | None:
    """The token that space takes, where it is among the candidates."""
    return next((c for c in timeline.candidates if c.id == timeline.taken), None)


def _name(candidate: Candidate) -> str:
    return quoted(token_label(candidate.text, candidate.raw))


def _stage(phase: Phase) -> Phase:
    """A phase, as far as answers hold: a run begins and ends within one."""
    return Phase.READY if phase is Phase.RUNNING else phase


class StatusLine(Widget):
    """One line under the panels: the situation, or an answer to the last key; at the right where one is."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.left, self.right, self.answer = "", "", ""
        self.points = Breakpoints()
        self._answered_in = Phase.LOADING

    def say(self, answer: str, phase: Phase) -> None:
        """Answer the last key, until the phase is another one; an empty answer gives the line back to the situation.

        Args:
            answer: Printable.
            phase: What the engine is doing now.
        """
        self._answered_in = phase
        if answer != self.answer:
            self.answer = answer
            self.set_class(bool(answer), "-answer")
            self.refresh()

    def show(
        self,
        controller: Controller,
        right: str,
        panel: str = "",
        candidate: Candidate | None = None,
        narrated: str = "",
    ) -> None:
        """Show the situation.

        Args:
            controller: Knows it.
            right: What stands at the right end: the panel, where one is shown at a time.
            panel: What the tool whose panel is the current one has to say.
            candidate: The highlighted one.
            narrated: The keys that do something now, where a narrator takes some of them.
        """
        if _stage(controller.timeline.phase) is not _stage(self._answered_in):
            self.say("", controller.timeline.phase)
        said = situation(controller, panel, candidate, narrated)
        shown = said, right, controller.runs.breakpoints.points
        if shown != (self.left, self.right, self.points):
            self.left, self.right, self.points = shown
            self.refresh()

    def render(self) -> Content:
        said, width = self.answer or self.left, self.content_size.width
        right = f" {self.right}" if self.right else ""
        marked = marker(self.points, width - cell_len(said) - cell_len(right) - 2)
        right = f"  {marked}{right}" if marked else right
        room = max(0, width - cell_len(right))
        left = truncate_words(said, room)
        return Content(left + " " * (room - cell_len(left))) + Content.styled(right, "bold")
