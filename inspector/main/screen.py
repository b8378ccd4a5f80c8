"""The main screen: the panels of every session and of the tools, the keys, and the services for tools and views."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from io import StringIO
from typing import Any, TypeVar

from rich.console import Console
from rich.segment import Segment, Segments
from textual import events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingsMap
from textual.containers import Container
from textual.content import Content
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from engine.protocol import BreakpointHit, Candidate, Record
from engine.timing import drawing
from inspector.config.preferences import Preferences, Remembered
from inspector.display import truncate, visible
from inspector.keys import KEYS, PRINTABLE, TABS, TABS_OF, go_to, key_for, names_of, nothing_here, with_keys
from inspector.main.guide import CaptionGuide, recorded_actions
from inspector.main.key_table import (
    PANELS,
    Context,
    KeyTable,
    available,
    keys_markdown,
    lacking,
    panels_of,
    refusal,
)
from inspector.main.layout import ALONE, MINIMUM, Arrangement, Layout, PanelLayout, Place
from inspector.main.narration import CaptionLine, Narration, NarrationCard, Narrator
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import HeaderLine, TabLines
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import OpeningPanel, TextPanel
from inspector.main.panels.timing import TimingPanel
from inspector.main.status import StatusLine, situation, stop_words
from inspector.main.tool import OfferedHeat, Tool, ToolActions, ToolMessage, found
from inspector.main.view import View
from inspector.scales import INSIDE
from inspector.session.client import Severity
from inspector.session.controller import Controller
from inspector.session.playback import Playback
from inspector.session.transport import PACES
from inspector.state.second_model import SecondModelSoFar
from inspector.state.timeline import TO_PREDICT, Phase, Timeline
from inspector.widgets.actions import Action, Hint, KeyedScreen, KeyLine, hints_of
from inspector.widgets.canvas import Canvas
from inspector.widgets.dialog import Dialog, read_styles
from inspector.widgets.inks import Inked

Result = TypeVar("Result")
Panel = TypeVar("Panel", bound=Widget)
MOMENT = 0.05
"""Seconds after which a step that hasn't ended is shown as under way."""


# ---- the screen ---------------------------------------------------------------------------------


class MainScreen(KeyedScreen[None]):
    """The panels around one timeline.

    Args:
        controller: The session on the screen.
        table: All keys of the screen, and the tools they belong to.
        playback: Recordings shown instead of an engine; None for an application without files.
        remembered: Preferences to start with, and their file; None for the defaults, without a file.
    """

    AUTO_FOCUS = "#opening"
    takes_keys = True

    def __init__(
        self,
        controller: Controller,
        table: KeyTable,
        playback: Playback | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        super().__init__()
        self.controller = controller
        self.table = table
        self.arrangement = Arrangement((*PANELS, *panels_of(table.tools)))
        self.actions: dict[str, ToolActions] = {}
        """State and actions of each tool, by its id; `own` creates those that are made on first use."""
        self._panel_layout = PanelLayout(self, self.arrangement)
        self.playback = playback
        self._looked: dict[str, None] = {}
        """Ids of the tools with views that were opened, the most recent last."""
        self._kept: dict[str, View] = {}
        """The views created so far, by place (see `Action.opens`)."""
        for tool in self.table.tools:
            self.actions[tool.id] = ToolActions(self) if isinstance(tool.make, str) else tool.make(self)
        self._regions: dict[Widget, Region] = {}
        """The places of the panels in the last layout."""
        self._early_paints = 0
        """Paints since then with the panels elsewhere."""
        self._opened: View | None = None
        self.tab = next(iter(TABS))
        """Key of the open tab."""
        self._named = ""
        """Key of the tab for which the panels' sentences name keys."""
        self._last = {tab: next(iter(self.table.answers(tab)), "") for tab in TABS}
        """Id of the answer that was shown last, by tab; empty if the tab has none here."""
        self._view = self._last[self.tab]
        """Value of `view` when the open tab was last set."""
        self._guide = CaptionGuide(self)
        self.status = StatusLine(id="status")
        self._header = HeaderLine(id="header")
        self._text = TextPanel(id="text", classes="panel")
        self._candidates = CandidatesPanel(id="candidates", classes="panel")
        self._steps = StepsPanel(id="steps", classes="panel")
        self._kv = KVPanel(id="kv", classes="panel")
        self._timing = TimingPanel(id="timing", classes="panel")
        self._area = Container(id="panels")
        self._remembered = remembered or Remembered(Preferences())
        begins = self._remembered.values
        self.arrangement.set_alone(begins.alone)
        self._panel_layout.sizes = dict(begins.sizes)
        self.controller.runs.pace = begins.pace if begins.pace in PACES else None
        self._text.set_reactive(TextPanel.metric, begins.metric)
        self._text.set_reactive(TextPanel.view, begins.view)
        self._bind_all()
        self._stale = self._highlights = False
        self._expects: Timer | None = None
        """Shows everything again if the expected records don't arrive in time."""
        self._framed: tuple[object, ...] | None = None
        """Inputs of the current frame (`_frame_reads`); None if it has to be made again."""
        self._session: object = None
        """The session state in `_frame_reads` when hidden tools were shown last; None to show them again."""
        self._records: tuple[object, ...] | None = None
        """Inputs of the last redraw in `_show_records`."""
        self._shown: frozenset[str] = frozenset()
        """Ids of the panels that are on screen in the frame."""
        self._silent: frozenset[str] = frozenset()
        """Ids of the actions that a narrator refuses, or whose keys it takes."""
        self.narrator: Narrator | None = None
        """The narrator beside the panels, if any."""
        controller.client.listen(self._run_stopped, BreakpointHit)

    def compose(self) -> ComposeResult:
        # before there are widgets: Textual would set the classes with the first layout, and style all of them again
        self.fit(self.app.size, update=False)
        self.update_classes(self._panel_layout.classes, update=False)
        self.app.stylesheet.apply(self)
        yield self._header
        yield TabLines(self.press, id="tabs")
        with self._area:
            yield OpeningPanel(id="opening", classes="panel")
            yield self._text
            yield self._candidates
            yield self._steps
            yield self._kv
            yield self._timing
            for tool in self.table.tools:
                if tool.panel is not None:
                    panel = tool.panel()
                    panel.id = tool.id
                    panel.add_class("panel", update=False)
                    yield panel
        yield CaptionLine(id="caption")
        yield NarrationCard()
        yield self.status
        yield KeyLine(id="keyline")
        yield Static(Content("This terminal is too small: {} columns by {} rows at least.".format(*MINIMUM)),
                     id="too-small")  # fmt: skip

    def on_mount(self) -> None:
        """Arrange the panels before the first layout: each class that changes later costs a layout."""
        if self._steps.is_attached:  # it isn't if a signal has ended the program
            self._steps.metric = self._text.metric
        self.screen_layout_refresh_signal.subscribe(self, self._laid_out)
        self.show()

    def _laid_out(self, _: Screen[Any]) -> None:
        """Arrange the panels again if their room changed; repaint those that moved if a paint came before the layout.

        Such a paint has Textual read the map of the layout to come (`Compositor.full_map`), and the layout then paints
        only what differs from that: a panel that had just been shown stayed unpainted.
        """
        before, self._regions = self._regions, self._panel_regions
        if self._early_paints > 1:  # the last one is the layout's
            for panel, region in self._regions.items():
                if region != before.get(panel) and panel is not self.open_view:
                    panel.refresh()
        self._early_paints = 0
        if self._text.is_attached:
            self._panel_layout.apply()

    @property
    def _panel_regions(self) -> dict[Widget, Region]:
        return {panel: panel.region for panel in self._area.children}

    def on_unmount(self) -> None:
        """Save the preferences."""
        self._remembered.keep(self.app.theme, self.preferences)

    @property
    def preferences(self) -> Preferences:
        """The current preferences without the theme; available even after the panels were removed."""
        sizes, pace, text = dict(self._panel_layout.sizes), self.controller.runs.pace, self._text
        view = "off" if text.lent else text.view
        return Preferences("", text.metric, pace, self.arrangement.alone, sizes, view)

    # ---- showing ----------------------------------------------------------------------------

    def _compositor_refresh(self) -> None:
        """Paint what changed. Steps record how long it took, since it delays them."""
        try:
            with drawing:
                super()._compositor_refresh()
            self._early_paints += self._panel_regions != self._regions
        except Exception as error:
            if (view := self.open_view) is None:
                raise
            view.raised(error)

    def changed(self) -> None:
        """Schedule a redraw of everything, with the frame; several calls schedule one."""
        self._framed = None
        self.show_soon()

    def show_soon(self) -> None:
        """Schedule a redraw of everything, with the frame if its inputs have changed; several calls schedule one."""
        if not self._stale:
            self._stale = True
            self.call_next(self._show_changes)

    def _show_changes(self) -> None:
        """Show everything, unless that was done since it was scheduled."""
        if self._stale:
            self.show()

    def show(self) -> None:
        """Show everything now: the panels, and the frame around them if its inputs have changed."""
        self._stale = False
        if self._expects is not None:
            self._expects.stop()
            self._expects = None
        if not (self.is_attached and self._area.is_attached and self._text.is_attached):
            return  # the program is exiting, and Textual removes the panels one by one
        timeline, setup, layout = self.controller.timeline, self.controller.setup, self._panel_layout
        # there is seldom a narrator: its card is not looked up without one
        told = self._narrate() if self.narrator is not None or self.has_class("-narrated") else None
        layout.waiting = timeline.prompts.opened is None  # there is no text yet
        if layout.waiting:
            self.query_one(OpeningPanel).show(timeline, setup)
        reads, before = self._frame_reads(), self._shown
        changed = told is not None or reads != self._framed
        heard = told is not None or reads[0] != self._session
        if changed:
            self._shown = self.shown
            layout.apply()  # first, so that no panel is drawn that is about to be hidden
        if self._text.metric == INSIDE:
            self.colour()
        self._show_records(timeline, heard)
        for id, tool in self.actions.items():
            if heard or tool.awake or id in self._shown or id in before:
                tool.show()
        if heard or timeline.recorded or self.controller.transport.recorded:  # else there are no captions
            caption = "" if timeline.conceals("captions") else self.caption
            held = self.controller.transport.captioned and self.open_view is None
            self.query_one(CaptionLine).put(caption, held)
        self._show_status(told)
        if changed or self._frame_reads() != self._framed:  # a tool may have changed them
            self._frame(told)
        for id, tool in self.actions.items():
            if heard or tool.awake or id in self._shown or id in before:
                tool.shown()
        self._session = reads[0] if told is None else None
        if (opened := self.open_view) is not None:
            opened.changed()

    def _show_records(self, timeline: Timeline, heard: bool) -> None:
        """Show the panels of every session, if anything that they show has changed.

        Args:
            timeline: The timeline on show.
            heard: Whether to show them in any case, since the session state in `_frame_reads` has changed.
        """
        setup, ahead = self.controller.setup, self._candidates.ahead
        lines = ahead.seen(timeline.before) if ahead is not None and ahead.on else ()
        records = (*timeline.place, setup.settings, lines)
        highlights, self._highlights = self._highlights, False
        if not heard and records == self._records:
            if highlights:
                self._candidates.show(timeline)
            return
        self._records = records
        if heard and timeline.facts is not None:
            self._timing.kept_bytes = setup.load.kept_logits_bytes(timeline.facts.vocabulary)
        self._header.show(timeline, setup.settings)
        self._text.show(timeline)
        self._candidates.show(timeline)
        self._steps.show(timeline)
        self._kv.show(timeline)
        self._timing.show(timeline)

    def _frame_reads(self) -> tuple[object, ...]:
        """The inputs of the frame: of the lines of tabs and keys, the open tab, and the places of the panels. The first
        is the session state: after a change of it, hidden tools are shown, too.

        A tool whose own state changes the frame calls `MainScreen.changed`.
        """
        controller, arrangement, layout = self.controller, self.arrangement, self._panel_layout
        timeline, transport, phase = controller.timeline, controller.transport, controller.timeline.phase
        second = timeline.of(SecondModelSoFar)
        session = (
            timeline.tree.branches, timeline.generation, timeline.recorded, timeline.facts,
            second.opened, second.looking, phase, controller.opening, transport,
            None if phase in (Phase.READY, Phase.RUNNING) else transport.ready, controller.setup.load,
        )  # fmt: skip
        place = (
            arrangement.current, arrangement.answer, arrangement.dialog, arrangement.enlarged, arrangement.alone,
            layout.waiting, layout.projected, tuple(layout.sizes.items()),
            timeline.trial is None,
        )  # fmt: skip
        screen = (
            self.app.size, self._area.region.size, self.app.screen, self.open_view, self.focused, self.tab,
            self._view,
        )  # fmt: skip
        return session, place, screen, self._contexts

    def _frame(self, told: Narration | None) -> None:
        """Make the frame: the line of keys, the tab with its answers, and the places of the panels.

        Args:
            told: The narration, if any.
        """
        self._silent = self._silenced(told) if told is not None else frozenset()
        self._shown = self.shown
        self._follow_view()
        self.query_one(KeyLine).show()
        self._panel_layout.apply()
        if (opened := self.open_view) is not None:
            opened.take_focus()
        if self.tab != self._named:  # after the layout: hidden panels need no new names
            self._name_keys()
        views = self.views
        able = frozenset([each.id for each in views if available(each, self.controller)])
        self.query_one(TabLines).show(self.tab, self.table.on_row(self.view), views, able)
        self._framed = self._frame_reads() if told is None else None

    def _show_status(self, told: Narration | None) -> None:
        """Show the status line, which names the key that takes the highlighted candidate."""
        tool = self.table.named.get(self.arrangement.current)
        panel = with_keys(tool.situation) if tool is not None else ""
        narrated = told.situation if told is not None else ""
        said = situation(self.controller, panel, self._candidates.candidate, narrated)
        single = self._panel_layout.places.layout is Layout.SINGLE
        here = self.arrangement.by_id[self.arrangement.current]
        where = here.name if single else self.controller.transport.whereabouts
        self.status.show(self.controller, said, where)

    def _show_highlighted(self) -> None:
        """Show what depends on the highlighted candidate: its row, the status line, and the tools' panels."""
        if self._stale or not self._highlights or not self.is_attached:
            return  # a full redraw is scheduled or was done, or the screen was removed
        self._highlights = False
        self._candidates.show(self.controller.timeline)
        self._show_status(self.narrator.narration() if self.narrator is not None else None)
        seen = [tool for id, tool in self.actions.items() if tool.awake or id in self._shown]
        for tool in seen:
            tool.show()
        for tool in seen:
            tool.shown()

    def replayed(self) -> None:
        """Show what the recording shows now, and go where its caption points."""
        self._guide.follow()
        self.show()

    def show_changes(self, records: Sequence[Record]) -> None:
        """Show what records changed, at once: nothing may be painted from a path that has become shorter.

        If they change nothing but one tool's panel, the tool shows them itself (`ToolActions.takes_alone`).
        """
        for tool in self.actions.values():
            if tool.awake and tool.takes_alone(records):
                return
        self.show()

    def _narrate(self) -> Narration | None:
        """Show the narration, and the panel that it is about; returns it."""
        told = self.narrator.narration() if self.narrator is not None else None
        self.query_one(NarrationCard).tell(told)
        projected = self._panel_layout.projected = told is not None and told.projected
        blank = told is not None and told.blank
        self.update_classes({"-narrated": told is not None, "-projected": projected, "-blank": blank})
        spot = told.spotlight if told is not None else ""
        timeline = self.controller.timeline
        timeline.concealed = told.hidden if told is not None else frozenset()
        timeline.narrated = told is not None
        timeline.concealed_as = told.hidden_as if told is not None else TO_PREDICT
        bright = {"text", spot, self.arrangement.dialog}
        for panel in self.arrangement.panels:
            dim = spot in self.arrangement.by_id and panel.id not in bright
            self.query_one(f"#{panel.id}").update_classes({"-spot": panel.id == spot, "-dim": dim})
        return told

    def _silenced(self, told: Narration) -> frozenset[str]:
        """Ids of the actions that the narrator refuses, or whose keys it takes: they aren't offered meanwhile."""
        narrator = self.narrator
        assert narrator is not None  # there is a narration
        contexts = (each for tool in self.table.tools for table in tool.contexts for each in table.actions)
        return frozenset(
            each.id
            for each in (*self.table.actions, *contexts)
            if not told.keys.isdisjoint(each.names) or narrator.refuses(each)
        )

    def panel(self, kind: type[Panel]) -> Panel:
        """The panel of a class."""
        return self.query_one(kind)

    # ---- keys -------------------------------------------------------------------------------

    def _bind_all(self) -> None:
        """Bind all keys, with priority over the panel that has the focus, which would scroll on the arrow keys. The
        action is looked up when a key is pressed: it may belong to a view that was never opened."""
        own = (each for each in self.table.actions if each.id not in KEYS)
        names = dict.fromkeys(
            name
            for id, keys in (*KEYS.items(), *((each.id, each.keys) for each in own))
            for name in names_of(id, keys)
        ) | dict.fromkeys(PRINTABLE)
        self._bindings = BindingsMap(
            Binding(key, f"{action}('{key}')", show=False, priority=first)
            for key in names
            for action, first in (("press", True), ("press_last", False))
        )

    @property
    def _contexts(self) -> list[Context]:
        """The contexts that apply now, the topmost first."""
        return [
            (tool, table)
            for tool, table in self.table.contexts
            if table.panel in ("", self.arrangement.answer)
            and (table.when is None or table.when(self.actions[tool]))
        ]

    def meaning(self, key: str) -> Action | None:
        """The action of a key now."""
        if (opened := self.open_view) is None:
            return self.table.at(key, self.tab, self._contexts)
        if (found := opened.meaning(key)) is not None or opened.typing:
            return found
        found = self.table.at(key, self.tab, ())  # a tab's own keys apply in a view, too
        return found if found is not None and found.tabs else None

    def hints(self) -> Sequence[Hint]:
        """The hints for the line of keys now."""
        if (opened := self.open_view) is not None and opened.takes_keys:
            return opened.hints()
        return hints_of(
            self.table.levels(self.tab, self._contexts, self.actions),
            (lambda each: each.id not in self._silent) if self._silent else None,
            lambda each: available(self.table.get(each.id, each), self.controller),
        )

    async def action_press(self, key: str) -> None:
        """Do what a key does now, or say why it can't be done.

        Raises:
            SkipAction: The key does nothing here, and another binding may handle it.
        """
        opened, found = self.open_view, self.meaning(key)
        if found is None:
            raise SkipAction
        if opened is None:
            await self.do(found.id)
        elif self.focused is None or opened.takes_first(key):
            await self._do_in_view(opened, found, key)
        else:
            raise SkipAction  # see `action_press_last`

    async def action_press_last(self, key: str) -> None:
        """Do what a key does in a view if the widget that has the focus ignored it; or say in which other tab it does
        something, or that it does nothing.

        Raises:
            SkipAction: The key types no character and does nothing, or `action_press` handles it.
        """
        opened, found = self.open_view, self.meaning(key)
        if found is None and (said := self.table.elsewhere(key) or nothing_here(key)):
            self.answer(said)
        elif opened is None or found is None or opened.takes_first(key):
            raise SkipAction
        else:
            await self._do_in_view(opened, found, key)

    async def _do_in_view(self, opened: View, action: Action, key: str) -> None:
        if key == "escape" and self.arrangement.enlarged:
            self.enlarge()
        elif opened.meaning(key) is action:
            await opened.perform(action)
        elif action.id == self.view:
            self.answer(f"On show already: {action.label}. Esc goes back")
        else:
            await self.do(action.id)

    async def do(self, id: str, instead: Callable[[], Awaitable[None] | None] | None = None) -> None:
        """Do what an action does, or say why it can't be done.

        Args:
            id: Id of the action.
            instead: Called instead of the action's function, if the action can be done now.
        """
        (tool, action), (usual_tool, usual) = self.table.now(id, self._contexts)
        waits = self.narrator.refuses(usual) if self.narrator is not None else ""
        refused = waits or refusal(usual, self.controller, self.actions[usual_tool])
        if refused := refused or (self.view_at(usual.opens).refusal() if usual.opens else ""):
            self.answer(refused)
            return
        if (usual.opens or (usual.view and usual.tabs)) and (opened := self.open_view) is not None:
            opened.goes_to(id)
            if not self._left_open_view():
                return
            if self.view == id and instead is None:  # as in `open_tab`
                self.answer()
                return
        for each in self.actions.values():
            if id in each.HEEDS:
                each.pressed(id)
        if action.opens and instead is None:
            self.open_by(action)
        else:
            owner = self.actions[tool]
            if type(owner) is ToolActions:  # the tool's class is not imported yet, or it has none
                owner = self.own(tool)
            run = instead or (action.run and partial(action.run, owner))
            if run is not None and (done := run()) is not None:
                await done
        if self._frame_reads() != self._framed:
            self._follow_view()

    def own(self, tool: str) -> ToolActions:
        """The actions of a tool, created on first use.

        Args:
            tool: Id of the tool.
        """
        place = self.table.named[tool].make
        if isinstance(place, str) and type(self.actions[tool]) is ToolActions:
            self.actions[tool] = found(place)(self)
        return self.actions[tool]

    # ---- tabs -------------------------------------------------------------------------------

    @property
    def top(self) -> Screen[Any] | View:
        """The dialog that is on top, or else the open view, or else this screen."""
        screen: Screen[Any] = self.app.screen
        return screen if isinstance(screen, Dialog) else self.open_view or screen

    @property
    def open_view(self) -> View | None:
        """The open view; a dialog may lie over it."""
        return self._opened if self._opened is not None and not self._opened.left else None

    def view_at(self, place: str) -> View:
        """A view, created on first use.

        Args:
            place: See `Action.opens`.
        """
        if place not in self._kept:
            read_styles(self.app)
            self._kept[place] = found(place)(self)
        return self._kept[place]

    def open_by(self, action: Action) -> None:
        """Open the view of an action, or say why it can't be opened."""
        view = self.view_at(action.opens)
        refused = view.refusal()
        self.answer(refused)
        if refused:
            return
        if view.PAUSES:
            self.controller.client.pause()
        view.opener = action.id
        self._looked.pop(view.TOOL, None)
        self._looked[view.TOOL] = None
        if (opened := self.open_view) is view:  # a key that was pressed twice
            return
        if opened is not None:
            opened.leave()
        self._opened, view.is_open = view, True
        if view.is_attached:
            view.display = True
            view.call_next(view.activate)
        else:
            self._area.mount(view)
        self.status.tell("")
        self.changed()

    def give_up(self, view: View, error: Exception) -> None:
        """Close a plug-in's view for good, with a notice."""
        self._kept = {place: each for place, each in self._kept.items() if each is not view}
        view.dismiss()
        view.remove()
        text = f"{type(error).__name__}: {error}. The view is closed; tell the author of the plug-in."
        self.announce(visible(text), view.ENTRY.title, "error")

    def close_view(self, view: View) -> None:
        """Hide a view that was left."""
        if view is self._opened:
            self._opened = None
            self.status.tell(None)
            view.display = False
            self.changed()

    @property
    def view(self) -> str:
        """Id of the action whose answer is on show."""
        if (opened := self.open_view) is not None:
            return opened.opener
        return self.arrangement.by_id[self._panel_layout.places.answer].view

    @property
    def views(self) -> Sequence[Action]:
        """The actions that show the answers of the open tab, without a panel that is on screen beside them anyway."""
        arrangement, beside, views = self.arrangement, set[str](), []
        if self._panel_layout.places.layout is Layout.GRID:
            for id in arrangement.of[Place.STEPS]:
                beside.add(arrangement.by_id[id].view)
        for each in self.table.views[self.tab]:
            offered = each.offered is None or each.offered(self.actions[self.table.tool(each.id).id])
            if offered and each.id not in beside and not (each.lacks and lacking(each, self.controller)):
                views.append(each)
        return views

    def _follow_view(self) -> None:
        """Open the tab of the answer on show, if that has changed."""
        if (view := self.view) != self._view:
            self._view = view
            if tabs := TABS_OF.get(view, ""):
                self._last[tabs] = view
                if tabs != self.tab:
                    self.tab = tabs
                    go_to(tabs)

    def _name_keys(self) -> None:
        """Name keys as they are reached from the open tab, also in the sentences on screen."""
        self._named = self.tab
        go_to(self.tab)
        for panel in self.query(Inked):
            if isinstance(panel, Canvas):
                panel.redraw()
            elif not panel.virtual_size.height:  # a list names keys only while it is empty
                panel.refresh()

    def _left_open_view(self) -> bool:
        """Leave the open view; returns whether none is open any more."""
        opened = self.open_view
        if opened is not None and self.is_active:
            opened.leave()
        return self.open_view is None

    async def open_tab(self, tab: str) -> None:
        """Open a tab with the answer that was shown there last.

        Args:
            tab: Its key.
        """
        if not (wanted := self._last[tab]):
            self.answer(f"{TABS[tab]} needs a session of your own: this one follows another program")
            return
        if wanted != self.view and not self._left_open_view():
            return
        self.tab, self._view = tab, self.view
        go_to(tab)
        places = self._panel_layout.places
        if self.view != wanted:  # not if it lay under the view that was left: doing it would leave it
            await self.do(wanted)
            if self.view != wanted:  # it can't be shown yet: the tab opens with the answer on show
                self.tab, self._view = tab, self.view
                go_to(tab)
        elif places.layout is Layout.SINGLE:
            self.arrangement.current = places.answer
        self.changed()

    def _turns(self) -> list[str]:
        """The views that `turn_view` goes through."""
        offered = {each.id for each in self.views}
        single = self._panel_layout.places.layout is Layout.SINGLE
        text = [self.arrangement.text] * single
        return [*text, *(each for each in self.table.answers(self.tab) if each in offered)]

    @property
    def turn_word(self) -> str:
        """The word for the line of keys; empty unless the open tab has more than one answer."""
        return "next view" if len(self._turns()) > 1 else ""

    async def turn_view(self, by: int) -> None:
        """Show the next answer in the open tab that can be shown now; a negative number goes back.

        If one panel is shown at a time, the text comes before the first answer.
        """
        self.answer()
        views = self._turns()
        arrangement, text = self.arrangement, self.arrangement.text
        single = self._panel_layout.places.layout is Layout.SINGLE
        at = self.table.on_row(self.view)
        at = text if single and self.open_view is None and arrangement.current == text else at
        place = views.index(at) if at in views else -1 if by > 0 else 0
        for further in range(1, len(views) + 1):
            wanted = views[(place + by * further) % len(views)]
            if wanted == text:
                if self._left_open_view():
                    self._view = self.view  # the tab stays open, whichever answer lay under the view
                    self.go_to(text)
                return
            if self.view != wanted:
                await self.do(wanted)
            if self.view == wanted:
                arrangement.current = self._panel_layout.places.answer
                if wanted != at:
                    self.answer()  # clears the refusals of the answers that were skipped
                    return
        if not self.status.answer:
            self.answer("No other answer can be shown in this tab now")

    # ---- panels -----------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Arrange the panels for the new size."""
        self.changed()

    @on(events.ScreenResume)
    def _resumed(self) -> None:
        """Show what changed under a dialog that was closed, which may have moved the cursor."""
        self.show_soon()

    def on_descendant_focus(self) -> None:
        """Go to a panel that was clicked; under a dialog, Textual itself moves the focus away from a hidden panel."""
        if not self.is_active:
            return
        focused = self.focused.id if self.focused is not None else None
        given, self._panel_layout.focusing = self._panel_layout.focusing, ""
        if focused == given:
            return  # the layout focused it, as the current panel at that time
        if focused in self.arrangement.by_id and focused != self.arrangement.current:
            self.arrangement.current = focused
            self.answer()

    @on(CandidatesPanel.CandidateHighlighted)
    def _candidate_highlighted(self) -> None:
        """Schedule one update of the status line and the panels that follow the highlighted candidate."""
        if not self._highlights:
            self._highlights = True
            self.call_next(self._show_highlighted)

    @on(ToolMessage)
    def _tool_message(self, message: ToolMessage) -> None:
        self.actions[message.tool].hear(message)

    # ---- what it does for its tools and views -------------------------------------------------

    @property
    def tools(self) -> Sequence[Tool]:
        """All tools, in the order of their keys."""
        return self.table.tools

    def answer(self, answer: str = "") -> None:
        """Answer the last key, or clear the answer, and schedule a redraw."""
        self.status.say(answer, self.controller.timeline.phase)
        if answer and (opened := self.open_view) is not None:
            opened.say(answer)
        self.show_soon()

    def expect(self) -> None:
        """Clear the answer to the last key, and redraw with the next records, or after `MOMENT` seconds without any.

        A step of a small model takes less time than drawing that it is under way, which would delay it.
        """
        self.status.say("", self.controller.timeline.phase)
        if self._expects is None:
            self._expects = self.set_timer(MOMENT, self.show_soon)

    def _run_stopped(self, _: Record) -> None:
        """Say in the open view why a run stopped, as the status line of the panels does."""
        if (opened := self.open_view) is not None:
            opened.say(stop_words(self.controller))

    @property
    def caption(self) -> str:
        """The caption to show now: a replay's current one, or that of the selected token; printable, empty for none."""
        transport, timeline = self.controller.transport, self.controller.timeline
        told, selected = transport.telling, timeline.selected
        if told is not None and (selected is None or selected.node == told.node):
            return visible(told.text) if told.node in timeline.tree.branches else ""
        return visible(transport.caption(selected.node)) if selected is not None else ""

    @property
    def stages(self) -> Sequence[tuple[str, str]]:
        """Places that a caption can point at: ids and titles of the panels, and of views that were recorded."""
        panels = [(panel.id, panel.name) for panel in self.arrangement.panels]
        views = [
            (tool.id if each.id == tool.opener else each.id, each.label)
            for tool in self.table.tools
            for each in recorded_actions(tool, self.actions[tool.id])
        ]
        return [*panels, *views]

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted candidate."""
        return self.panel(CandidatesPanel).candidate

    # ---- panels -----------------------------------------------------------------------------

    @property
    def shown(self) -> frozenset[str]:
        """Ids of the panels that are, or are about to be, on screen."""
        return self._panel_layout.places.shown

    def go_to(self, panel: str) -> None:
        """Make a panel the current one."""
        self.arrangement.go(panel, self._panel_layout.places.layout)
        self.answer()

    @property
    def area(self) -> Region:
        """The region of the terminal for a view."""
        return self._panel_layout.answer_area

    def stop(self) -> None:
        """Stop the work under way, or a tool's; or else restore the enlarged panel, or go back to the first answer.
        Notices are cleared, too."""
        self.app.clear_notifications()
        self._follow_view()  # for keys in a burst: a view that was just left is no longer its tab's answer
        arrangement = self.arrangement
        if not self.controller.transport.stop():
            if any(actions.stop() for actions in self.actions.values()):
                return
            if arrangement.enlarged:
                self.enlarge()
            else:
                arrangement.close()
        self.answer()

    def show_alone(self) -> None:
        """Show the text and the answer alone, or all panels again."""
        self.arrangement.set_alone(not self.arrangement.alone)
        self.answer(with_keys(ALONE) if self.arrangement.alone else "")

    def enlarge(self) -> None:
        """Give the current panel the whole screen, or restore it."""
        self.arrangement.enlarged = not self.arrangement.enlarged
        self.answer(f"Enlarged: {key_for('enlarge')} or esc goes back" if self.arrangement.enlarged else "")

    def resize(self, across: int, down: int) -> None:
        """Move the divider between the columns, or the one above the lower panels, by some steps."""
        ways = f"{key_for('enlarge')}, {key_for('alone')} or {key_for('usual_room')}"
        moved = self._panel_layout.resize(across, down)
        self.answer("" if moved else f"No divider can be moved here. {ways} bring back a layout that has one")

    def usual_layout(self) -> None:
        """Show all panels again, at their usual sizes."""
        self.arrangement.set_alone(False)
        self._panel_layout.sizes.clear()
        self.answer("All panels, at their usual sizes")

    # ---- the application --------------------------------------------------------------------

    def open(
        self, screen: Dialog[Result], then: Callable[[Result | None], None] | None = None
    ) -> Dialog[Result]:
        """Show a dialog over the screen; returns the one that is shown, which may be a kept one of its class.

        Args:
            screen: The dialog.
            then: Called with its result.
        """
        app = self.app
        if type(app.screen) is type(screen):  # the key was pressed twice
            return app.screen
        # the kept dialog of a class is shown instead of a new one
        if screen.KEPT:
            name = type(screen).__name__
            kept = app.get_screen(name) if app.is_screen_installed(name) else None
            if isinstance(kept, Dialog) and kept not in app.screen_stack and kept.serves(screen):
                kept.again(screen)
                screen = kept
            elif kept not in app.screen_stack:
                if kept is not None:
                    app.uninstall_screen(name)
                    kept.remove()
                app.install_screen(screen, name)
        app.push_screen(screen, then)
        return screen

    @property
    def over(self) -> str:
        """Id of the tool of the open view; empty for the main screen and dialogs."""
        opened = self.open_view
        return opened.TOOL if opened is not None and self.is_active else ""

    def to_main(self) -> None:
        """Close the open view."""
        if (opened := self.open_view) is not None and self.is_active:
            opened.dismiss()

    def point(self, id: str, *place: int) -> None:
        """Choose what a view shows, before it is opened."""
        if id in self.table and self.table[id].opens:
            views = [self.table[id]]
        else:
            views = self.table.named[id].opening if id in self.table.named else []
        for each in views:
            self.view_at(each.opens).point(*place)

    def heat(self) -> OfferedHeat | None:
        """Token shares for coloring the text, of the most recently opened view that has any."""
        concealed = self.controller.timeline.concealed
        tools = [id for id in dict.fromkeys((*reversed(self._looked), *self.actions)) if id not in concealed]
        places = (
            each.opens
            for id in tools
            for each in self.table.named[id].opening
            if each.opens in self._kept or each.recorded(self.actions[id])
        )
        offered = (self.view_at(place).heat_of_text() for place in places)
        return next((each for each in offered if each is not None), None)

    def colour(self) -> None:
        """Color the text again, if it is colored by a view's shares."""
        if self._text.metric == INSIDE:
            self._text.offer(self.heat())

    def help(self, page: str = "keys") -> None:
        """Show the help, beginning with a narrator's keys and those of what is on show."""
        from inspector.main.dialogs.help import HelpDialog  # its parsers take a tenth of the start-up time

        told = self.narrator.narration() if self.narrator is not None else None
        first = told.help if told is not None else ()
        self.open(HelpDialog(keys_markdown(self.table, first, self.tab, self.table[self.view]), page))

    def find_anything(self, typed: str = "") -> None:
        """Open the finder over the screen that is on top."""
        from inspector.main.everything import Everything

        Everything(self).find(typed)

    def has(self, action: str) -> bool:
        return action in self.table

    def press(self, key: str) -> None:
        """Do an action of the main screen once a dialog over it has closed; nothing if there is no such action."""
        if key in self.table:
            self.call_later(self.do, key)

    def switch_theme(self) -> None:
        app = self.app
        app.theme = "textual-light" if app.current_theme.dark else "textual-dark"

    def announce(self, text: str, title: str, severity: Severity = "information") -> None:
        """Show a notice that is not an answer to a key; its text and title are printable."""
        self.app.notify(text, title=title, severity=severity, timeout=8, markup=False)

    def in_background(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do slow work in a thread, then pass its result to a function in the app's thread."""

        def work_then_tell() -> None:
            done = work()
            self.app.call_from_thread(lambda: then(done) if self.is_attached else None)

        self.run_worker(work_then_tell, thread=True)

    @property
    def card(self) -> NarrationCard | None:
        """The narrator's card; None under a dialog."""
        return self.query_one(NarrationCard) if self.is_active else None

    def narrate(self, narrator: Narrator | None) -> None:
        """Set the narrator, which gets each key first; None removes it."""
        self.narrator = narrator
        self.changed()

    def screenshot(self, title: str, then: Callable[[str], None]) -> None:
        """Take a picture of the screen as SVG, without the dialog that is about to close."""
        app = self.app
        self.call_after_refresh(lambda: then(app.export_screenshot(title=title)))

    def picture(self, view: View, title: str) -> str:
        """A view as SVG, without the dialogs over it.

        Args:
            view: The view.
            title: Title of the picture.
        """
        area, parts = view.region, sorted(view.query("*").results(), key=lambda each: each.region.x)
        leaves = [each for each in parts if each.is_on_screen and not each.children] or [view]
        console = Console(width=area.width, file=StringIO(), force_terminal=True, color_system="truecolor",
                          record=True, legacy_windows=False)  # fmt: skip
        for y in range(area.y, area.bottom):
            strips, x = list[Strip](), area.x
            for each in leaves:
                if each.region.y <= y < each.region.bottom and each.region.x >= x:
                    line = Region(0, y - each.region.y, each.region.width, 1)
                    strips += [Strip.blank(each.region.x - x, self.rich_style), *each.render_lines(line)]
                    x = each.region.right
            console.print(Segments([*Strip.join(strips), Segment.line()]), end="")
        beside = 16  # cells of the frame's buttons, and as many at the right
        return console.export_svg(title=truncate(title, max(1, area.width - beside)))
