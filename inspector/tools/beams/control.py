"""The commands that a beam search sends to the engine, and the keys of its screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from engine.protocol import GoOnBeams, MoveTo, SearchBeams
from engine.settings import BeamSettings
from inspector.keys import key_for
from inspector.main.tool import ToolActions
from inspector.session.client import Request
from inspector.session.transport import MAX_QUEUED_STEPS
from inspector.state.beams import BeamHistory, BeamSearch
from inspector.widgets.actions import HELP, Action, ActionTable, Needs, back, both, note, screen_table

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class BeamActions(ToolActions):
    """Begins beam searches and continues with the one that waits."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.settings = BeamSettings()
        """The settings used last, as long as the program runs."""

    @property
    def beams(self) -> BeamHistory:
        """Every token that a beam reached."""
        return self.timeline.of(BeamHistory)

    @property
    def search(self) -> BeamSearch | None:
        """The search that was begun last."""
        return self.beams.search

    @property
    def start(self) -> int:
        """Node after which a search would begin: beams replace the token that is looked at."""
        timeline = self.timeline
        if timeline.following or not timeline.items:
            return timeline.tip
        return timeline.before or timeline.items[0].node

    @property
    def requests(self) -> list[Request[SearchBeams | GoOnBeams]]:
        """The requests that neither ended nor were cancelled."""
        return self.controller.client.under_way(SearchBeams, GoOnBeams)

    @property
    def running(self) -> bool:
        """True if a search runs to its end."""
        return any(each.command.steps is None for each in self.requests)

    def begin(self, settings: BeamSettings) -> None:
        """Begin a search and take its first step; the session stands afterwards where it stood."""
        self.settings = settings
        self.pause()
        start, tip, search = self.start, self.timeline.tip, SearchBeams(settings, steps=1)
        for command in (search,) if start == tip else (MoveTo(start), search, MoveTo(tip)):
            self.controller.client.do(command)

    def advance(self, steps: int | None) -> None:
        """Take so many steps, or all if None; while the search runs, pause."""
        waits = self.search is not None and not self.search.over
        if self.running:
            self.pause()
        elif waits and (steps is None or len(self.requests) < MAX_QUEUED_STEPS):
            self.controller.client.do(GoOnBeams(steps=steps))

    def pause(self) -> None:
        """Stop after the step that is under way."""
        self.controller.client.cancel(*self.requests)

    def left(self, node: int | None) -> None:
        """Go to the end of the beam that was chosen."""
        if node is not None:
            self.timeline.select(None)
            self.controller.client.do(MoveTo(node))
        waits = self.search is not None and not self.search.over and not self.controller.transport.recorded
        paused = f"The beam search is paused: {key_for('beams')} continues it"
        self.host.answer(paused if waits and node is None else "")


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
    *both(("beams.next_view", "beams.view_before"), ("Next view", "Previous view"),
          "Change between list, tree and text.",
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
