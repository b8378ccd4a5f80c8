"""The sentences of the beam screen around its panels: where beams begin, how far they are, and which keys matter."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from engine.frozen import frozen
from engine.protocol import Step
from inspector.display import quoted, token_label, visible
from inspector.keys import key_for
from inspector.scales import milliseconds
from inspector.state.beams import BeamHistory, BeamSearch
from inspector.state.branches import ROOT
from inspector.state.timeline import Timeline
from inspector.tools.beams.control import BeamControl


@frozen
class BeamStatus:
    """What is going on; printable."""

    text: str
    wrong: bool = False


def situation(
    control: BeamControl, setting: bool, at: int | None, recorded: str = "", goes: bool = True
) -> BeamStatus:
    """What is going on, and what to do about it.

    Args:
        control: Knows the search.
        setting: Whether the form is shown.
        at: The older step shown, None for the last.
        recorded: In a replay what another search would need.
        goes: Whether ⏎ goes to a beam: beside a lesson's card it goes on with the lesson.
    """
    if recorded:
        return BeamStatus(_recorded(control.search, at, recorded))
    beams = control.controller.timeline.of(BeamHistory)
    if beams.refused is not None:
        return _failed("No search was begun", beams.refused.message, beams.refused.hint)
    search = beams.search
    if setting or search is None:
        return BeamStatus("⏎ starts a search with these settings")
    if search.failure is not None:
        return _failed("The search broke off", search.failure.message, search.failure.hint)
    if at is not None:
        return BeamStatus(f"Looking at step {at} of {len(search.steps)}. end goes back to the last one")
    if search.ended is not None:
        going = "⏎ goes to the highlighted beam, " if goes else ""
        return BeamStatus(f"{_over(search)}. {going}{key_for('beams.new')} sets up another search")
    return BeamStatus(_under_way(control, search))


def _recorded(search: BeamSearch | None, at: int | None, more: str) -> str:
    if search is None:
        return f"No search was recorded up to here. {more}"
    over = ", over" if search.ended is not None else ""
    step = (
        f"step {len(search.steps)} of at most {search.opened.max_tokens}{over}"
        if at is None
        else f"at step {at}"
    )
    return f"Recorded, {step}. {more}"


def _failed(what: str, message: str, hint: str) -> BeamStatus:
    return BeamStatus(visible(f"{what}: {message} {hint}".strip()), wrong=True)


def _over(search: BeamSearch) -> str:
    end = search.ended
    assert end is not None
    why = "max tokens" if end.reason == "length" else "what finished is good enough"
    return f"Over after {end.steps} steps, {milliseconds(end.ms)}: {why}"


def _under_way(control: BeamControl, search: BeamSearch) -> str:
    step, most = len(search.steps), search.opened.max_tokens
    if control.running:
        return f"Searching: step {step} of at most {most}. {key_for('beams.step')} pauses"
    if search.step is None:
        return "Beginning"
    alone = "" if search.step.live else " Only greedy decoding goes on."
    note = f" {visible(search.opened.note)}" if search.opened.note else ""
    cost = milliseconds(search.step.ms)
    keys = f"{key_for('beams.step')} steps, {key_for('beams.run')} runs to the end"
    return f"Step {step} of at most {most}, {cost}.{alone} {keys}.{note}"


# ---- where beams begin --------------------------------------------------------------------------


def begun_after(control: BeamControl, setting: bool, width: int) -> Content:
    """The text after which beams begin, or began: as much of its end as fits."""
    timeline, search = control.controller.timeline, control.search
    node = control.start if setting or search is None else search.opened.node
    head, tail = ("Beams begin after ", _instead(timeline)) if setting else ("Beams began after ", "")
    room = width - cell_len(head) - cell_len(tail) - 1
    text = _end_of(timeline, node, room)
    return (
        Content.styled(head, "bold")
        + Content(text)
        + Content.styled("▌", "$primary")
        + Content.styled(tail, "$text-warning")
    )


def _instead(timeline: Timeline) -> str:
    """Which older token the beams would replace."""
    item = timeline.selected
    if timeline.following or item is None or timeline.before == ROOT:
        return ""
    what = f"step {item.index + 1}" if isinstance(item, Step) else f"prompt token {timeline.slot + 1}"
    return f" in place of {quoted(token_label(item.text, item.raw))}, {what}"


def _end_of(timeline: Timeline, node: int, cells: int) -> str:
    """As much of the end of a path's text as fits, whole tokens."""
    end, room = "", cells - 1
    while (item := timeline.tree.nodes.get(node)) is not None:
        text = visible(item.text)
        if cell_len(text) > room:
            return "…" + end
        end, room, node = text + end, room - cell_len(text), timeline.tree.parent[node]
    return end
