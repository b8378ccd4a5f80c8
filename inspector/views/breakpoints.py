"""Breakpoints: the dialog that sets where runs stop, and the places of a path that are worth a look.

Surprises and fork points are found in the records on the path, the prompt's included if it was read with logprobs.
Each key press takes one pass over the path.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from msgspec import Struct
from textual.widget import Widget

from engine.breakpoints import CONDITIONS, Breakpoints
from engine.errors import EngineError
from engine.protocol import Candidate, Step
from engine.setting import Setting
from inspector.config.preferences import SavedBreakpoints
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.tool import Host, ToolActions
from inspector.scales import SURPRISE_BITS
from inspector.session.transport import conditions
from inspector.state.session_tree import Item, quoted_label
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, ActionTable, dialog_table, taking
from inspector.widgets.dialog import Remark
from inspector.widgets.form import FormRow, SettingsDialog, going

# ---- places worth a look ------------------------------------------------------------------------

FORK_MARGIN = 0.1
"""Difference of the first two probabilities below which a token is a fork point; one with branches is one, too."""


class Landmark(Struct, frozen=True):
    """One kind of place, and its words."""

    name: str
    rule: str
    """The property of a token of this kind, as the end of a sentence."""
    stands: Callable[[Timeline, int], bool]
    """True if the token at a slot is of this kind."""
    describe: Callable[[Timeline, int], str]
    """A description of the place at a slot; printable."""

    def slots(self, timeline: Timeline) -> list[int]:
        """The slots of the path that are of this kind, in order."""
        return [slot for slot in range(len(timeline.items)) if self.stands(timeline, slot)]


def surprisal(item: Item) -> float | None:
    """Bits of surprisal of a token; None if its logprob isn't known."""
    if isinstance(item, Step):
        return item.surprisal_bits
    return None if item.logprob is None else max(0.0, -item.logprob / math.log(2))


def _is_surprise(timeline: Timeline, slot: int) -> bool:
    """True if the model hardly expected a token."""
    bits = surprisal(timeline.items[slot])
    return bits is not None and bits >= SURPRISE_BITS


def _is_fork(timeline: Timeline, slot: int) -> bool:
    """True if another token was nearly as probable as the first in its place, or was taken there too."""
    if len(timeline.siblings(slot)) > 1:
        return True
    two = _best_two(timeline.items[slot])
    return two is not None and two[0].prob - two[1].prob < FORK_MARGIN


def _best_two(item: Item) -> tuple[Candidate, Candidate] | None:
    """The two most probable candidates in a token's place; None if they weren't recorded."""
    candidates = item.choice.candidates if isinstance(item, Step) else item.candidates
    return (candidates[0], candidates[1]) if len(candidates) > 1 and candidates[1].rank <= 2 else None


def _describe_surprise(timeline: Timeline, slot: int) -> str:
    item = timeline.items[slot]
    return f"{quoted_label(item)}, {surprisal(item) or 0:.1f} bits, rank {item.rank or 0:,}"


def _describe_fork(timeline: Timeline, slot: int) -> str:
    item, branches = timeline.items[slot], len(timeline.siblings(slot))
    two = [f"{quoted_label(each)} {each.prob:.1%}".replace("%", " %") for each in _best_two(item) or ()]
    count = f"{branches} branches" if branches > 1 else ""
    return ", ".join(filter(None, (" against ".join(two), count)))


SURPRISE = Landmark(
    "surprise",
    "has 4 bits of surprisal or more, a probability of 6.25 % or less",
    _is_surprise,
    _describe_surprise,
)
FORK = Landmark(
    "fork point",
    "has less than 10 % between its first two candidates, or branches",
    _is_fork,
    _describe_fork,
)


COUNTED = 5_000
"""Tokens of a path up to which all places of a kind are counted; reading the candidates of 100,000 tokens takes
seconds."""


def go(timeline: Timeline, kind: Landmark, by: int) -> str:
    """Select the next place of a kind (or, with -1, the last one before), and describe it.

    Returns:
        A description of the place, or a sentence that there is none; printable.
    """
    if len(timeline.items) > COUNTED:
        return _go_far(timeline, kind, by)
    slots, slot = kind.slots(timeline), timeline.slot
    if not slots:
        return f"No {kind.name} on this path: one {kind.rule}{_unread(timeline)}"
    before, after = bisect_left(slots, slot), bisect_right(slots, slot)
    place = after if by > 0 else before - 1
    if not 0 <= place < len(slots):
        where, other, others = "after", "before", before
        if by < 0:
            where, other, others = "before", "after", len(slots) - after
        there = f"there {'is' if others == 1 else 'are'} {others} {other} it"
        return f"No {kind.name} {where} this token: {there if others else 'this is the only one'}"
    timeline.select(slots[place])
    return f"{kind.name.capitalize()} {place + 1} of {len(slots)}: {kind.describe(timeline, slots[place])}"


def _go_far(timeline: Timeline, kind: Landmark, by: int) -> str:
    """See `go`; for a long path, without counting its places."""
    on, back = range(timeline.slot + 1, len(timeline.items)), range(timeline.slot - 1, -1, -1)
    found = next((slot for slot in (on if by > 0 else back) if kind.stands(timeline, slot)), None)
    if found is None:
        return f"No {kind.name} {'after' if by > 0 else 'before'} this token{_unread(timeline)}"
    timeline.select(found)
    return f"{kind.name.capitalize()}: {kind.describe(timeline, found)}"


def _unread(timeline: Timeline) -> str:
    """The end of a sentence if the prompt was read without logprobs; else empty."""
    off = timeline.prompts.opened is not None and not timeline.prompts.opened.echo
    return "; prompt logprobs are off" if off else ""


# ---- the dialog ---------------------------------------------------------------------------------

BREAKPOINT_KEYS = dialog_table(
    "Among the breakpoints",
    *going(),
    taking(hint="apply", worth=7),
    Action("breakpoints.clear", "Clear fields", "Clear every field; ⏎ turns the breakpoints off then.",
           lambda own: own.clear_all(), hint="clear fields", worth=4, priority=True),
    told=False,
)  # fmt: skip
ALL_OF = Setting("text and token conditions stay met once reached", "stop at", name="all_of")
GROUPS = (
    ("Next token", ("entropy_above", "prob_below", "rank_above", "margin_below", "mass_below", "eos")),
    ("The run and its text", ("tokens", "text", "regex", "segment")),
    ("Several conditions", (ALL_OF.name,)),
)
"""The conditions in display order."""
HELP = "An empty field is off. What is set is remembered for the next start."


class BreakpointsDialog(SettingsDialog[Breakpoints]):
    """Asks for breakpoints; an empty field is off.

    Args:
        points: The initial values.
        problems: What is wrong with the file that they are saved in, one sentence each.
    """

    ACTIONS: ClassVar[ActionTable] = BREAKPOINT_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("settings", "_problems")
    EXPLAINS: ClassVar[bool] = True
    HEADING: ClassVar[str] = "Breakpoints: stop a run when…"
    APPLY: ClassVar[str] = "Apply"
    EXTRA = (("breakpoints.clear", "Clear fields", "clear"),)

    def __init__(self, points: Breakpoints, problems: Iterable[str] = ()) -> None:
        rows = {
            each.name: FormRow(each, ("off", "on") if each.kind == "flag" else (), "off")
            for each in CONDITIONS
        }
        rows[ALL_OF.name] = FormRow(ALL_OF, ("any of them", "all at once"))
        groups = [(title, [rows[name] for name in names]) for title, names in GROUPS]
        super().__init__(groups, points, "entropy_above")
        self._problems = " ".join(problems)

    def body(self) -> Iterable[Widget]:
        yield Remark(id="breaks-remark")
        yield self.form

    def begin(self) -> None:
        """Begin in the first field."""
        self.say(self._problems or HELP, wrong=bool(self._problems))
        super().begin()

    def made(self, values: Mapping[str, Any]) -> Breakpoints:
        return Breakpoints(**values)

    def clear_all(self) -> None:
        """Clear all fields."""
        self.form.fill({each.name: each.default for each in CONDITIONS})
        self.say("All cleared: ⏎ turns the breakpoints off, esc keeps them.")
        self.read()


# ---- keys ---------------------------------------------------------------------------------------


class BreakpointActions(ToolActions):
    """Sets where runs stop, and goes to where the model was unsure."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        host.controller.runs.keep = _kept

    def open(self) -> None:
        points, problems = self.controller.runs.breakpoints.points, SavedBreakpoints().read().problems
        self.host.open(BreakpointsDialog(points, problems), self._left)

    def _left(self, points: Breakpoints | None) -> None:
        if points is None:
            return
        where = "No breakpoints are set"
        if points.active:
            where = f"Runs stop at {conditions(points)}. Press {key_for('run')} to run"
        self.host.answer(f"{where}{self.controller.runs.break_at(points)}")

    def surprise(self, by: int) -> None:
        """Look at the previous or the next surprise."""
        self.host.answer(go(self.timeline, SURPRISE, by))

    def fork(self, by: int) -> None:
        """Look at the previous or the next fork point."""
        self.host.answer(go(self.timeline, FORK, by))


def _kept(points: Breakpoints) -> str:
    """Save the breakpoints for the next start; returns what went wrong, or what became of a damaged file."""
    try:
        return visible(SavedBreakpoints().save(points))
    except EngineError as error:
        return f". Not remembered: {visible(str(error))}"
