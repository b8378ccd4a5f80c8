"""What a beam search asks of the engine, and the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from engine.protocol import GoOnBeams, MoveTo, SearchBeams
from engine.settings import BeamSettings
from inspector.session.client import Request
from inspector.session.controller import Controller
from inspector.session.transport import MAX_QUEUED_STEPS
from inspector.state.beams import BeamHistory, BeamSearch
from inspector.widgets.actions import HELP, Action, ActionTable, Needs, back, both, note, screen_table

# ---- what the engine is asked -------------------------------------------------------------------


class BeamControl:
    """Begins beam searches and continues with the one that waits.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.settings = BeamSettings()
        """Those asked for last, for as long as the program runs."""

    @property
    def search(self) -> BeamSearch | None:
        """The search that was begun last."""
        return self.controller.timeline.of(BeamHistory).search

    @property
    def start(self) -> int:
        """Node after which a search would begin: beams stand in the place of the token that is looked at."""
        timeline = self.controller.timeline
        if timeline.following or not timeline.items:
            return timeline.tip
        return timeline.before or timeline.items[0].node

    @property
    def running(self) -> bool:
        """True if a search goes on by itself."""
        return any(each.command.steps is None for each in self._out())

    @property
    def busy(self) -> bool:
        """True if the engine has beams to see to."""
        return bool(self._out())

    def _out(self) -> list[Request[SearchBeams | GoOnBeams]]:
        """The requests that neither ended nor were cancelled."""
        return self.controller.client.under_way(SearchBeams, GoOnBeams)

    def begin(self, settings: BeamSettings) -> None:
        """Begin a search and take its first step; the session stands afterwards where it stood."""
        self.settings = settings
        self.pause()
        start, tip = self.start, self.controller.timeline.tip
        if start == tip:
            self.controller.client.do(SearchBeams(settings, steps=1))
            return
        for command in (MoveTo(start), SearchBeams(settings, steps=1), MoveTo(tip)):
            self.controller.client.do(command)

    def step(self) -> None:
        """Take one step, or pause."""
        if self.running:
            self.pause()
        elif self._waits and len(self._out()) < MAX_QUEUED_STEPS:
            self.controller.client.do(GoOnBeams(steps=1))

    def run(self) -> None:
        """Go on to the end, or pause."""
        if self.running:
            self.pause()
        elif self._waits:
            self.controller.client.do(GoOnBeams())

    @property
    def _waits(self) -> bool:
        return self.search is not None and not self.search.over

    def pause(self) -> None:
        """Stop after the step that is under way."""
        self.controller.client.cancel(*self._out())

    def go(self, node: int) -> None:
        """Stand at the end of a beam."""
        self.pause()
        self.controller.timeline.select(None)
        self.controller.client.do(MoveTo(node))


# ---- keys ---------------------------------------------------------------------------------------

_LOOK_BACK = "See the search one step earlier or later, or ten steps."
_LOOK_ENDS = "See it after its first step, or as it is now."


def _viewing(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, but while the form is shown."""
    return lambda own: "" if own.setting else word


BEAM_SCREEN = screen_table(
    "In a beam search",
    Action("beams.step", "Step", "Extend every beam by a token; while the search runs, pause.",
           lambda own: own.take_step(), Needs.ENGINE, worth=10,
           hint=lambda own: "" if own.setting else "pause" if own.control.running else "step"),
    Action("beams.run", "Run", "Search to the end; again to pause.", lambda own: own.run_search(), Needs.ENGINE,
           worth=9, hint=lambda own: "" if own.setting or own.control.running else "run"),
    *both(("beams.above", "beams.below"), ("Beam above", "Beam below"), "Highlight another beam.",
          lambda own, by: own.highlight(by), hint=_viewing("beam"), worth=6),
    Action("beams.go", "Go there", "Go to the highlighted beam: it is a branch of the tree.", lambda own: own.go(),
           hint=_viewing("go there"), worth=7),
    *both(("beams.step_before", "beams.next_step"), ("Previous step", "Next step"), _LOOK_BACK, lambda own,
          by: own.look(by), hint=_viewing("steps"), worth=5),
    *both(("beams.ten_before", "beams.ten_after"), ("Ten before", "Ten after"), _LOOK_BACK, lambda own,
          by: own.look(by), by=(-10, 10)),
    Action("beams.first", "First step", _LOOK_ENDS, lambda own: own.look(-own.step)),
    Action("beams.last", "Last step", _LOOK_ENDS, lambda own: own.to_last()),
    *both(("beams.next_view", "beams.view_before"), ("Next view", "Previous view"), "Change between list, tree and "
                                                                                    "text.",
          lambda own, by: own.turn(by), by=(1, -1), hint=_viewing("view"), worth=7, place=2, one=True),
    Action("beams.new", "New search", "Set up another search; `{beams.go}` starts it.", lambda own: own.set_up(),
           Needs.ENGINE, hint=_viewing("new"), worth=6, place=1),
    replace(HELP, hint=_viewing("help"), worth=1),
    back("beams.leave", "Go back; the search is kept, and `{beams}` continues it."),
    priority=False,
)  # fmt: skip
BEAM_FORM = ActionTable(
    "While a beam search is set up",
    (
        Action("beams.start", "Start", run=lambda own: own.form.submit(), hint="start", worth=9),
        *both(("beams.field_above", "beams.field_below"), ("Field above", "Field below"), "",
              lambda own, by: own.app.action_focus_next() if by > 0 else own.app.action_focus_previous(), hint="field",
              worth=7),
        note("left right", hint="on or off", worth=4),
    ),
    when=lambda own: own.setting, told=False,
)  # fmt: skip
