"""The tour: its stops, a panel each with the question that it answers, and the card that goes through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from engine.frozen import frozen
from inspector.keys import with_keys
from inspector.main.tool import SCREEN, Host, Tool, ToolActions
from inspector.widgets.actions import Action, ActionTable, dialog_table, leaves
from inspector.widgets.dialog import Dialog


@frozen
class Stop:
    """One stop."""

    panel: str
    """Id of the panel that is shown."""
    question: str
    """That the panel answers."""
    text: str
    """`{step}` in it is the key of that action."""


STOPS = (
    Stop("text", "What has been said?",
         "The prompt is grey, with a bar at its left; what the model wrote comes after it. Coloured tokens "
         "surprised the model. ← → walk from token to token, and every panel follows."),
    Stop("candidates", "What could come next?",
         "The likeliest tokens: what the model believes, and what the sampler made of it. The model entropy and the "
         "sampler entropy tell how open each is. A grey row was cut. ▶ is what "
         "{step} takes; ↑ ↓ and ⏎ take another, "
         "as a branch."),
    Stop("steps", "How did it go?",
         "A row for each token that was generated: its probability, how many bits it surprised by, and what it "
         "cost. {metric} changes what the colours mean."),
    Stop("kv", "What does it hold in memory?",
         "Keys and values of every token, kept so that a step computes one token alone. The axis tells what a "
         "token adds. {enlarge} gives a panel the whole screen, and it tells more."),
    Stop("timing", "How long did it take?",
         "The time to the first token, then the time of each, and where in a step it goes: the model, the "
         "sampler, and what you see here."),
    Stop("sampler", "Why this token?",
         "{why} shows the sampler stage by stage, and the draw. "
         "{sampling} changes temperature, top-p and the rest, and shows "
         "at once what that would have picked. {attention} looks into the model: "
         "where its heads look, layer by layer."),
    Stop("tree", "What would have happened otherwise?",
         "{tree} shows every branch that was taken; nothing is lost. "
         "{previous_branch} and {next_branch} go from branch to branch, "
         "{reroll} draws again."),
    Stop("text", "Now you",
         "{Step} takes a step, {run} runs, "
         "{prompt} gives another prompt. {help} explains every key and "
         "what the numbers mean; "
         "`inspector replay` plays a recorded demonstration."),
)  # fmt: skip
_LOWER = ("steps", "kv", "timing")
"""The stops whose panels are in the lower half of the screen."""
TOUR_KEYS = dialog_table(
    "On the tour",
    Action("tour.next", "Next", "Go to the next panel.", lambda own: own.go(1), hint="next", worth=7, priority=True),
    Action("tour.right", "Next", "Go to the next panel.", lambda own: own.go(1), hint="next", worth=7, priority=True),
    Action("tour.back", "Back", "Go to the one before.", lambda own: own.go(-1), hint="back", worth=5, priority=True),
    leaves("End it; everything is as it was before."),
)  # fmt: skip


class TourDialog(Dialog[None]):
    """Goes from stop to stop.

    Args:
        stops: Of the tour.
        go: Shows the panel of a stop; returns whether it is in the lower half of the screen.
    """

    ACTIONS: ClassVar[ActionTable] = TOUR_KEYS
    LEAVE: ClassVar[str] = "End"

    def __init__(self, stops: Sequence[Stop], go: Callable[[Stop], bool]) -> None:
        super().__init__()
        self.stops, self._show_stop = tuple(stops), go
        self.place = 0
        """Of the present stop."""

    def body(self) -> Iterable[Widget]:
        yield Static(id="tour-text")

    def on_mount(self) -> None:
        """Begin at the first stop."""
        self._show()

    def go(self, by: int) -> None:
        """Go to another stop; beyond the last one, leave."""
        if self.place + by >= len(self.stops):
            self.leave()
        else:
            self.place = max(0, self.place + by)
            self._show()

    def _show(self) -> None:
        stop = self.stops[self.place]
        self.set_class(self._show_stop(stop), "-above")
        self.query_one("#dialog", Vertical).border_title = Content(
            f"Tour {self.place + 1}/{len(self.stops)} · {stop.question}"
        )
        self.query_one("#tour-text", Static).update(Content(with_keys(stop.text)))


class TourActions(ToolActions):
    """Shows a stranger around."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._before: tuple[str, bool, frozenset[str], bool] = ("text", False, frozenset(), False)

    def begin(self) -> None:
        """Go from panel to panel; everything is as it was afterwards."""
        arrangement = self.host.arrangement
        self._before = arrangement.current, arrangement.alone, arrangement.hidden, arrangement.enlarged
        arrangement.enlarged = False
        panels = {panel.id for panel in arrangement.panels}
        stops = [stop for stop in STOPS if stop.panel in panels]
        self.host.open(TourDialog(stops, self._go), self._end)

    def _go(self, stop: Stop) -> bool:
        self._close()
        self.host.go_to(stop.panel)
        return stop.panel in _LOWER

    def _close(self) -> None:
        """Close the panel of the tool that the tour was at."""
        arrangement = self.host.arrangement
        if arrangement.is_tool(arrangement.current):
            arrangement.close(arrangement.current)

    def _end(self, _: None) -> None:
        self._close()
        arrangement = self.host.arrangement
        current, alone, arrangement.hidden, arrangement.enlarged = self._before
        self.host.go_to(current)
        arrangement.set_alone(alone)
        self.host.answer()


TOUR = Tool(
    "tour",
    "Tour",
    TourActions,
    actions=(
        Action(
            "tour",
            "Tour",
            "Show a stranger around: what each panel answers.",
            TourActions.begin,
            group=SCREEN,
            synonyms="guide, introduction, welcome, getting started, show me around",
        ),
    ),
    owners=(TOUR_KEYS,),
)
