"""The main screen: the panels of every session and those of the tools, their keys, and when they are shown again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingsMap
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from engine.protocol import Record
from engine.timing import drawing
from inspector.config.preferences import Preferences
from inspector.keys import key_for, with_keys
from inspector.main.arrangement import MINIMUM, Arrangement, Layout, Place
from inspector.main.caption import CaptionLine
from inspector.main.guide import CaptionGuide
from inspector.main.host import ScreenHost
from inspector.main.key_table import available, key_table, panels_with, refusal
from inspector.main.messages import ToolMessage
from inspector.main.narration import Narration, NarrationCard, Narrator
from inspector.main.opening import OpeningPanel, no_text
from inspector.main.panel_area import PanelArea
from inspector.main.panel_layout import PanelLayout
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import TextPanel
from inspector.main.panels.timing import TimingPanel
from inspector.main.remembered import Remembered
from inspector.main.status import StatusLine
from inspector.main.tool import Tool, ToolActions
from inspector.main.tool_screen import ToolScreen
from inspector.session.controller import Controller
from inspector.session.playback import Playback
from inspector.session.setup import PACES
from inspector.widgets.actions import Action, Hint, KeyedScreen, KeyLine, bindings_of, hints_of
from inspector.widgets.overlay import Overlay

Panel = TypeVar("Panel", bound=Widget)

MOMENT = 0.05
"""Seconds after which a step that hasn't ended is shown as under way."""


class MainScreen(KeyedScreen[None]):
    """The panels around one timeline.

    Args:
        controller: The session on the screen.
        tools: What a person can open beyond the panels of every session.
        playback: Recordings in the place of the engine; None for an application without files.
        remembered: How the screen begins, and where it is kept how it is left; None for neither.
    """

    AUTO_FOCUS = "#opening"

    def __init__(
        self,
        controller: Controller,
        tools: Sequence[Tool],
        playback: Playback | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        super().__init__()
        self.controller = controller
        self.table = key_table(tools)
        self.arrangement = Arrangement(panels_with(tools))
        self.actions: dict[str, ToolActions] = {}
        """State and actions of each tool, by its id."""
        self._panel_layout = PanelLayout(self, self.arrangement, self.actions)
        self.host = ScreenHost(self, self.table, playback, self._panel_layout)
        self.actions.update({tool.id: tool.make(self.host) for tool in self.table.tools})
        self._guide = CaptionGuide(self)
        self._text = TextPanel(id="text", classes="panel")
        self._remembered = remembered or Remembered(Preferences())
        self._begin(self._remembered.values)
        self._bindings = BindingsMap(self._bound())
        self._stale = self._expects = False
        self._silent: frozenset[str] = frozenset()
        """Ids of the actions that aren't offered while somebody narrates."""
        self._in_sight_since = 0.0
        """When what lay over this one last was left; the toolkit's seconds."""
        self.narrator: Narrator | None = None
        """Whoever tells something beside the panels."""

    def compose(self) -> ComposeResult:
        self._begin_classes()
        yield HeaderLine(id="header")
        with PanelArea(self._panel_layout, self.host.room.dragged, self.host.room.let_go, id="panels"):
            yield OpeningPanel(id="opening", classes="panel")
            yield self._text
            yield CandidatesPanel(id="candidates", classes="panel")
            yield from self._tool_panels(Place.SIDE)
            yield StepsPanel(id="steps", classes="panel")
            yield from self._tool_panels(Place.BELOW)
            yield KVPanel(id="kv", classes="panel")
            yield TimingPanel(id="timing", classes="panel")
        yield CaptionLine(id="caption")
        yield NarrationCard()
        yield StatusLine(id="status")
        yield KeyLine(id="keyline")
        yield Static(Content("This terminal is too small: {} columns by {} rows at least.".format(*MINIMUM)),
                     id="too-small")  # fmt: skip

    def _tool_panels(self, place: Place) -> Iterable[Widget]:
        for tool in self.table.tools:
            if tool.panel is not None and tool.panel.place is place:
                widget = tool.panel.make()
                widget.id = tool.id
                widget.add_class("panel", f"-{place.value}", update=False)
                yield widget

    def _begin_classes(self) -> None:
        """Set the classes that the first layout would bring, each of which has the styles of all widgets computed."""
        size, app = self.app.size, self.app
        across = self._get_breakpoint_classes(size.width, app.HORIZONTAL_BREAKPOINTS or [])
        down = self._get_breakpoint_classes(size.height, app.VERTICAL_BREAKPOINTS or [])
        self.add_class(*across, *down, update=False)
        self._panel_layout.begin()

    def on_mount(self) -> None:
        """Arrange the panels before the first layout: each class that changes after it costs another one."""
        for steps in self.query(StepsPanel):  # there is none where a signal ended the program before
            steps.metric = self._text.metric
        self.show()

    def _begin(self, begins: Preferences) -> None:
        """Have everything as it was left."""
        arrangement = self.arrangement
        arrangement.hidden = frozenset(panel for panel in begins.hidden if arrangement.can_hide(panel))
        arrangement.set_alone(begins.alone)
        self._panel_layout.sizes = dict(begins.sizes)
        self.controller.runs.pace = begins.pace if begins.pace in PACES else None
        self._text.set_reactive(TextPanel.metric, begins.metric)
        self._text.set_reactive(TextPanel.view, begins.view)

    def on_unmount(self) -> None:
        """Keep how everything is left."""
        self._remembered.keep(self.app.theme, self.left)

    @property
    def left(self) -> Preferences:
        """How everything is left, the theme apart; also when the panels have gone."""
        arrangement = self.arrangement
        hidden, sizes = tuple(sorted(arrangement.hidden)), dict(self._panel_layout.sizes)
        pace = self.controller.runs.pace
        return Preferences("", self._text.metric, pace, arrangement.alone, hidden, sizes, self._text.own_view)

    # ---- showing ----------------------------------------------------------------------------

    def _compositor_refresh(self) -> None:
        """Paint what changed. The toolkit's own: steps record how long it took, since it holds them up.

        Under a dialog that has the dialog painted, and the toolkit would do so twice.
        """
        with drawing:
            super()._compositor_refresh()
        if not self.is_active:
            self._repaint_required = False

    def changed(self) -> None:
        """Have everything shown again: once, however often this is called before."""
        if not self._stale:
            self._stale = True
            self.call_next(self._show_after_opening)

    def changes_soon(self) -> None:
        """Have everything shown again with the next records, or without them after a moment.

        A step of a small model takes less than showing and painting that one is under way, which would hold it up.
        """
        if not self._expects:
            self._expects = True
            self.set_timer(MOMENT, self._show_expected)

    def _show_expected(self) -> None:
        if self._expects:
            self.changed()

    def _show_after_opening(self) -> None:
        """Show everything; where a dialog is being put over this, once that is painted: it is what was asked for."""
        top = self.app.screen
        if isinstance(top, Overlay) and not top.painted:
            top.call_after_refresh(self.show)
        else:
            self.show()

    def show(self) -> None:
        """Show everything, now."""
        self._stale = self._expects = False
        if self._pruning or not self.is_attached:
            return  # the program is being left, and the panels are going
        timeline, setup = self.controller.timeline, self.controller.setup
        told = self._narrate()
        connection = self.controller.connection
        self.query_one(HeaderLine).show(timeline, setup.settings, connection.away if connection else "")
        self._panel_layout.waiting = no_text(timeline)
        if self._panel_layout.waiting:
            self.query_one(OpeningPanel).show(timeline, setup)
        self.panel(TimingPanel).kept_bytes = setup.load.kept_logits_mib * 2**20
        self.panel(TextPanel).show(timeline)
        self.panel(CandidatesPanel).show(timeline)
        self.panel(StepsPanel).show(timeline)
        self.panel(KVPanel).show(timeline)
        self.panel(TimingPanel).show(timeline)
        for actions in self.actions.values():
            actions.show()
        caption = "" if timeline.conceals("captions") else self.host.caption
        self.query_one(CaptionLine).put(caption, self.controller.transport.captioned)
        said = with_keys(self._tool.situation) if self._tool else ""
        narrated = told.situation if told is not None else ""
        candidate = self.panel(CandidatesPanel).candidate
        self.status.show(self.controller, self._whereabouts(), said, candidate, narrated)
        self._silent = self._silenced(told)
        self.query_one(KeyLine).show()
        self._panel_layout.apply()
        for actions in self.actions.values():
            actions.shown()

    def replayed(self) -> None:
        """Show what a recording showed, and go where its caption points."""
        self._guide.follow()
        self.show()
        top = self.app.screen
        if isinstance(top, ToolScreen):
            top.changed()

    def show_changes(self, records: Sequence[Record]) -> None:
        """Show what records changed, at once: nothing may be painted from a path that was shortened under it.

        A tool shows those by itself from which nothing else follows.
        """
        if not any(actions.takes_alone(records) for actions in self.actions.values()):
            self.show()

    def _narrate(self) -> Narration | None:
        """Show what is told, and the panel that matters for it; the panels ask what they are to conceal."""
        told = self.narrator.narration() if self.narrator is not None else None
        if told is None and not self.has_class("-narrated"):
            return None  # as most of the time: nothing of it is looked at again with each frame
        self.query_one(NarrationCard).tell(told)
        self.set_class(told is not None, "-narrated")
        self.set_class(told is not None and told.room > 0, "-projected")
        self.set_class(told is not None and told.blank, "-blank")
        spot = told.spotlight if told is not None else ""
        places = {panel.id for panel in self.arrangement.panels}
        self.arrangement.spotlight = spot if spot in places else ""
        self.controller.timeline.concealed = told.hidden if told is not None else frozenset()
        bright = {"text", spot, *(id for id, each in self.actions.items() if each.in_dialog)}
        for panel in self.arrangement.panels:
            dim = spot in places and panel.id not in bright
            wanted = {"-spot": panel.id == spot, "-dim": dim}
            widget = self.query_one(f"#{panel.id}")
            if any(widget.has_class(name) is not on for name, on in wanted.items()):
                widget.update_classes(wanted)
        return told

    def _silenced(self, told: Narration | None) -> frozenset[str]:
        """Ids of the actions that the narrator refuses, or whose keys it takes: they aren't offered meanwhile."""
        narrator = self.narrator
        if told is None or narrator is None:
            return frozenset()
        return frozenset(
            each.id
            for each in self.table.actions
            if not told.keys.isdisjoint(each.names) or narrator.refuses(each)
        )

    @property
    def status(self) -> StatusLine:
        """The status line."""
        return self.query_one(StatusLine)

    def panel(self, kind: type[Panel]) -> Panel:
        """The panel of a class."""
        return self.query_one(kind)

    def _whereabouts(self) -> str:
        if self._panel_layout.now is Layout.SINGLE:
            place = self.arrangement.number + 1
            return f"{place}/{len(self.arrangement.panels)} {self.arrangement.name}"
        return self.controller.transport.whereabouts

    # ---- keys -------------------------------------------------------------------------------

    def _bound(self) -> Iterator[Binding]:
        """All before the panel that has the focus, which would scroll on the arrow keys."""
        contexts = (each for tool in self.table.tools for table in tool.contexts for each in table.actions)
        for action in (*self.table.actions, *contexts):
            yield from bindings_of(action, priority=True)

    def meaning(self, key: str) -> Action | None:
        """What a key does now."""
        return self.table.at(key, self.actions)

    def hints(self) -> Sequence[Hint]:
        """What the line of keys would have now."""
        return hints_of(
            self.table.levels(self.actions),
            lambda each: each.id not in self._silent,
            lambda each: available(self.table.get(each.id, each), self.controller),
        )

    async def do(self, id: str) -> None:
        """Do what an action does, by its id, or say why it can't be done."""
        (owner, action), (usual_owner, usual) = self.table.now(id, self.actions)
        waits = self.narrator.refuses(usual) if self.narrator is not None else ""
        if refused := waits or refusal(usual, self.controller, usual_owner):
            self.host.answer(refused)
            return
        for each in self.actions.values():
            each.pressed(id)
        if action.run is not None and (done := action.run(owner)) is not None:
            await done

    async def perform(self, action: Action) -> None:
        """Do what an action does now, or say why it can't be done."""
        await self.do(action.id)

    def refuses(self, key: str, typed: float) -> bool:
        """Whether a key is the one that quits, and was meant for what lay over this one, as the second of two is.

        Args:
            key: As the toolkit names it.
            typed: When it was typed, in the toolkit's seconds.
        """
        if key not in self.table["quit"].names or typed >= self._in_sight_since:
            return False
        self.host.answer(f"Press {key_for('quit')} once more to quit")
        return True

    @property
    def _tool(self) -> Tool | None:
        """The tool whose panel is the current one."""
        return next((tool for tool in self.table.tools if tool.id == self.arrangement.current), None)

    # ---- panels -----------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Another size may be another arrangement."""
        self.changed()

    def on_screen_suspend(self) -> None:
        """Something lies over this one."""
        self._in_sight_since = math.inf

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """What lay over this one was left; when the program begins, nothing did.

        A screen that is left before it is painted takes with it what waited for that.
        """
        if self._in_sight_since == math.inf:
            self._in_sight_since = event.time
        if self._stale:
            self.call_next(self._show_after_opening)

    def covered(self) -> None:
        """A screen was put over this one."""
        self._repaint_required = False  # the toolkit asks for it, and what lies over this one paints it, too

    def on_descendant_focus(self) -> None:
        """A click into a panel goes to it; under a dialog the toolkit moves the focus from a panel that was hidden."""
        if not self.is_active:
            return
        focused = self.focused.id if self.focused is not None else None
        if focused != self.arrangement.current and any(
            panel.id == focused for panel in self.arrangement.panels
        ):
            self.host.go_to(str(focused))

    @on(CandidatesPanel.CandidateHighlighted)
    def _candidate_highlighted(self) -> None:
        """The status line says what enter takes."""
        self.changed()

    @on(ToolMessage)
    def _tool_message(self, message: ToolMessage) -> None:
        self.actions[message.tool].hear(message)
