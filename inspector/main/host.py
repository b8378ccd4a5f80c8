"""The host that the tools talk to: panels, screens over the main one, answers and work beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from textual.screen import Screen
from textual.widget import Widget

from engine.protocol import Candidate
from inspector.display import visible
from inspector.main.arrangement import Arrangement
from inspector.main.clipboard import Clipboard
from inspector.main.guide import recorded_action
from inspector.main.key_table import KeyTable, keys_markdown, screen_markdown
from inspector.main.narration import NarrationCard, Narrator
from inspector.main.panel_layout import PanelLayout
from inspector.main.panel_room import PanelRoom
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.tool import Tool
from inspector.main.tool_screen import ToolScreen
from inspector.session.client import Severity
from inspector.session.controller import Controller
from inspector.session.playback import Playback
from inspector.widgets.overlay import shown

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

Result = TypeVar("Result")
Panel = TypeVar("Panel", bound=Widget)


class ScreenHost:
    """What the main screen does for its tools.

    Args:
        screen: The main screen; its session, its tools' actions and its status line are used.
        table: All keys.
        playback: Recordings in the place of the engine; None for an application without files.
        layout: Puts the panels where the arrangement has them.
    """

    def __init__(
        self,
        screen: MainScreen,
        table: KeyTable,
        playback: Playback | None,
        layout: PanelLayout,
    ) -> None:
        self.playback = playback
        self.clipboard = Clipboard(screen)
        self._screen, self._table, self._layout = screen, table, layout
        self.room = PanelRoom(layout, self.answer)
        """Which panels are hidden, and how large the others are."""

    @property
    def controller(self) -> Controller:
        """The session on the screen."""
        return self._screen.controller

    def changed(self) -> None:
        """Have everything shown again: once, however often this is called before."""
        self._screen.changed()

    def answer(self, answer: str = "") -> None:
        """Answer the last key, or take the answer back, and have everything shown again."""
        self._screen.status.say(answer, self.controller.timeline.phase)
        self.changed()

    def expect(self) -> None:
        """Take the answer to the last key back, and have everything shown again with what the engine tells soon."""
        self._screen.status.say("", self.controller.timeline.phase)
        self._screen.changes_soon()

    @property
    def caption(self) -> str:
        """What is told to an audience now, of the token that is selected; printable, empty for nothing."""
        transport, timeline = self.controller.transport, self.controller.timeline
        told, selected = transport.telling, timeline.selected
        if told is not None and (selected is None or selected.node == told.node):
            return visible(told.text) if told.node in timeline.tree.branches else ""
        return visible(transport.caption(selected.node)) if selected is not None else ""

    @property
    def stages(self) -> Sequence[tuple[str, str]]:
        """Where a caption can be shown now: ids and titles of the panels, and of tools whose screen has something."""
        panels = [(panel.id, panel.name) for panel in self.arrangement.panels]
        tools = [
            (tool.id, tool.title)
            for tool in self._table.tools
            if tool.screen and recorded_action(tool, self._screen) is not None
        ]
        return [*panels, *tools]

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted candidate."""
        return self.panel(CandidatesPanel).candidate

    def panel(self, kind: type[Panel]) -> Panel:
        """The panel of a class."""
        return self._screen.query_one(kind)

    # ---- panels -----------------------------------------------------------------------------

    @property
    def arrangement(self) -> Arrangement:
        """Which panels are on screen."""
        return self._layout.arrangement

    @property
    def shown(self) -> frozenset[str]:
        """Ids of the panels that are, or are about to be, on screen."""
        return self._layout.shown

    def go_to(self, panel: str) -> None:
        """Make a panel the current one."""
        self.arrangement.go(panel, self._layout.now)
        self.answer()

    def toggle(self, panel: str) -> None:
        """Open a tool's panel, or close it."""
        if self.arrangement.is_open(panel, self.shown):
            self.arrangement.close(panel)
            self.answer()
        else:
            self.go_to(panel)

    def stop(self) -> None:
        """Stop what goes on, or else leave the enlarged panel, then the tools' panels; notices go too."""
        self._screen.app.clear_notifications()
        arrangement = self.arrangement
        if not self.controller.transport.stop():
            if any(actions.stop() for actions in self._screen.actions.values()):
                return
            below = arrangement.open_below
            if arrangement.enlarged:
                self.room.enlarge()
            elif arrangement.open_side is not None:
                self.toggle(arrangement.open_side)
            elif below is not None and below in self.shown:
                self.toggle(below)
        self.answer()

    # ---- the application --------------------------------------------------------------------

    def open(
        self, screen: Screen[Result], then: Callable[[Result | None], None] | None = None
    ) -> Screen[Result]:
        """Show a screen or a dialog over the main one; returns the one that is shown, which may have been kept."""
        app = self._screen.app
        if type(app.screen) is type(screen):  # a key that was pressed twice opens one
            return app.screen
        kept = shown(app, screen)
        app.push_screen(kept, then)
        self._screen.covered()
        return kept

    @property
    def over(self) -> str:
        """Id of the tool whose own screen is on top; empty for the main screen and dialogs."""
        top = self._screen.app.screen
        return top.TOOL if isinstance(top, ToolScreen) else ""

    def to_main(self) -> None:
        """Leave the tool's own screen that is on top."""
        top = self._screen.app.screen
        if isinstance(top, ToolScreen):
            top.dismiss(None)

    def point(self, tool: str, *place: int) -> None:
        """Choose what a tool's own screen shows, before it is opened."""
        if (actions := self._screen.actions.get(tool)) is not None:
            actions.point(*place)

    def help(self, tool: str = "") -> None:
        """Show the help of the main screen, or of the screen that a tool opened; first of what is told beside it."""
        from inspector.main.dialogs.help import HelpDialog  # its parsers take a tenth of the start

        opened = next((each for each in self._table.tools if each.id == tool), None)
        told = self.narrator.narration() if self.narrator is not None else None
        first = told.help if told is not None else ()
        self.open(
            HelpDialog(
                keys_markdown(self._table, first) if opened is None else screen_markdown(opened, first)
            )
        )

    def family(self, tool: str) -> Sequence[Tool]:
        """The tools of the same family as one of them, that one included."""
        family = next((each.family for each in self._table.tools if each.id == tool), "")
        return [each for each in self._table.tools if each.family and each.family == family]

    def press(self, key: str) -> None:
        """Do what an action of the main screen does, once what lies over it has gone."""
        self._screen.call_later(self._screen.do, key)

    def switch_theme(self) -> None:
        """Switch between dark and light."""
        app = self._screen.app
        app.theme = "textual-light" if app.current_theme.dark else "textual-dark"

    def announce(self, text: str, title: str, severity: Severity = "information") -> None:
        """Tell the person something that is no answer to a key; printable."""
        self._screen.app.notify(text, title=title, severity=severity, timeout=8, markup=False)

    def in_background(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do what takes long in a thread of its own; then give its result to the screen's thread."""
        screen = self._screen

        def work_then_tell() -> None:
            done = work()
            screen.app.call_from_thread(lambda: then(done) if screen.is_attached else None)

        screen.run_worker(work_then_tell, thread=True)

    @property
    def card(self) -> NarrationCard | None:
        """The narrator's card on the screen on top; None where it has none."""
        return next(iter(self._screen.app.screen.query(NarrationCard)), None)

    @property
    def narrator(self) -> Narrator | None:
        """Whoever tells something beside the panels."""
        return self._screen.narrator

    def narrate(self, narrator: Narrator | None) -> None:
        """Have somebody tell something beside the panels, on all screens, and be asked first about each key."""
        self._screen.narrator = narrator
        self.changed()
        top = self._screen.app.screen
        if isinstance(top, ToolScreen):
            top.changed()

    def screenshot(self, title: str, then: Callable[[str], None]) -> None:
        """Take a picture of the screen without the dialog that is about to close."""
        app = self._screen.app
        self._screen.call_after_refresh(lambda: then(app.export_screenshot(title=title)))

    async def quit(self) -> None:
        """Leave."""
        await self._screen.app.action_quit()
