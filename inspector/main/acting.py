"""What the actions of the main screen have in common: the panels, the controller and a place for an answer."""

from __future__ import annotations

from textual import getters
from textual.screen import Screen

from inspector.main.keyline import KeyLine
from inspector.main.opening import OpeningPanel
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import TextPanel
from inspector.main.panels.timing import TimingPanel
from inspector.main.status import StatusLine
from inspector.session.controller import Controller
from inspector.tools.sampler.panel import SamplerPanel
from inspector.tools.tree.panel import TreePanel


class PanelScreen(Screen[None]):
    """A screen of panels around one timeline.

    Args:
        controller: Knows the timeline and the engine.
    """

    header = getters.query_one("#header", HeaderLine)
    opening = getters.query_one("#opening", OpeningPanel)
    text = getters.query_one("#text", TextPanel)
    candidates = getters.query_one("#candidates", CandidatesPanel)
    sampler = getters.query_one("#sampler", SamplerPanel)
    steps = getters.query_one("#steps", StepsPanel)
    forest = getters.query_one("#tree", TreePanel)
    kv = getters.query_one("#kv", KVPanel)
    timing = getters.query_one("#timing", TimingPanel)
    status = getters.query_one("#status", StatusLine)
    keyline = getters.query_one("#keyline", KeyLine)

    def __init__(self, controller: Controller) -> None:
        super().__init__()
        self.controller = controller
        self._stale = False

    def changed(self) -> None:
        """Have everything shown anew: once, however often this is called before."""
        if not self._stale:
            self._stale = True
            self.call_next(self.show)

    def show(self) -> None:
        """Show everything anew, now."""
        raise NotImplementedError

    def answer(self, answer: str = "") -> None:
        """Tell the person something, or nothing any more, and have everything shown anew."""
        self.status.say(answer)
        self.changed()
