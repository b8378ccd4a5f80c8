"""The tour: its stops, a panel each with the question that it answers, and the card that goes through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from engine.frozen import frozen
from inspector.keys import key_for
from inspector.widgets.dialog import Dialog
from inspector.widgets.key_hints import KeyHint


@frozen
class Stop:
    """One stop."""

    panel: str
    """Id of the panel that is shown."""
    question: str
    """That the panel answers."""
    text: str


STOPS = (
    Stop("text", "What has been said?",
         "The prompt is grey, with a bar at its left; what the model wrote comes after it. Coloured tokens "
         "surprised the model. ← → walk from token to token, and every panel follows."),
    Stop("candidates", "What could come next?",
         "The likeliest tokens: what the model believes, and what the sampler made of it. The model entropy and the "
         "sampler entropy tell how open each is. A grey row was cut. ▶ is what "
         f"{key_for('step')} takes; ↑ ↓ and ⏎ take another, "
         "as a branch."),
    Stop("steps", "How did it go?",
         "A row for each token that was generated: its probability, how many bits it surprised by, and what it "
         f"cost. {key_for('metric')} changes what the colours mean."),
    Stop("kv", "What does it hold in memory?",
         "Keys and values of every token, kept so that a step computes one token alone. The axis tells what a "
         f"token adds. {key_for('enlarge')} gives a panel the whole screen, and it tells more."),
    Stop("timing", "How long did it take?",
         "The time to the first token, then the time of each, and where in a step it goes: the model, the "
         "sampler, and what you see here."),
    Stop("sampler", "Why this token?",
         f"{key_for('why')} shows the sampler stage by stage, and the draw. "
         f"{key_for('sampling')} changes temperature, top-p and the rest, and shows "
         f"at once what that would have picked. {key_for('attention')} looks into the model: "
         "where its heads look, layer by layer."),
    Stop("tree", "What would have happened otherwise?",
         f"{key_for('tree')} shows every branch that was taken; nothing is lost. "
         f"{key_for('previous_branch')} and {key_for('next_branch')} go from branch to branch, "
         f"{key_for('reroll')} draws again."),
    Stop("text", "Now you",
         f"{key_for('step').capitalize()} takes a step, {key_for('run')} runs, "
         f"{key_for('prompt')} gives another prompt. {key_for('help')} explains every key and "
         "what the numbers mean; "
         "`inspector replay` plays a recorded demonstration."),
)  # fmt: skip


class TourDialog(Dialog[None]):
    """Goes from stop to stop.

    Args:
        stops: Of the tour.
        go: Shows the panel of a stop; returns whether it is in the lower half of the screen.
    """

    LEAVE: ClassVar[str] = "End"
    HINTS: ClassVar[tuple[KeyHint, ...]] = (("space →", "next", 7), ("←", "back", 5))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "space,right,enter",
            "go(1)",
            "Next",
            priority=True,
            tooltip="Go to the next stop; from the last, leave.",
        ),
        Binding("left,backspace", "go(-1)", "Back", priority=True, tooltip="Go to the stop before."),
    ]

    def __init__(self, stops: Sequence[Stop], go: Callable[[Stop], bool]) -> None:
        super().__init__()
        self.stops, self._go = tuple(stops), go
        self.place = 0
        """Of the present stop."""

    def body(self) -> Iterable[Widget]:
        yield Static(id="tour-text")

    def on_mount(self) -> None:
        """Begin at the first stop."""
        self._show()

    def action_go(self, by: int) -> None:
        """Go to another stop; beyond the last one, leave."""
        if self.place + by >= len(self.stops):
            self.action_leave()
        else:
            self.place = max(0, self.place + by)
            self._show()

    def _show(self) -> None:
        stop = self.stops[self.place]
        self.set_class(self._go(stop), "-above")
        self.query_one("#dialog", Vertical).border_title = Content(
            f"Tour {self.place + 1}/{len(self.stops)} · {stop.question}"
        )
        self.query_one("#tour-text", Static).update(Content(stop.text))
