"""The main screen: the panels of every session, those of the tools, and the host that the tools talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.command import Provider
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from engine.records import Candidate, Record
from engine.stalls import drawing
from inspector.main.actions.branching import BRANCHING
from inspector.main.actions.looking import LOOKING
from inspector.main.actions.screen import screen_tool
from inspector.main.actions.setup import SETTING_UP
from inspector.main.actions.transport import TRANSPORT
from inspector.main.arrangement import MINIMUM, Arrangement, Layout, PanelPlace, Place
from inspector.main.caption import CaptionLine
from inspector.main.clipboard import Clipboard
from inspector.main.key_help import keys_markdown, screen_markdown
from inspector.main.keyline import KeyLine
from inspector.main.messages import ToolMessage
from inspector.main.opening import OpeningPanel, no_text
from inspector.main.palette import KeyCommands
from inspector.main.panel_layout import PanelLayout
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import TextPanel
from inspector.main.panels.timing import TimingPanel
from inspector.main.refusals import available, refusal
from inspector.main.status import StatusLine
from inspector.main.tool import KeyTable, Tool, ToolActions
from inspector.session.controller import Controller
from inspector.session.playback import Playback, Severity
from inspector.widgets.overlay import shown

Result = TypeVar("Result")
Panel = TypeVar("Panel", bound=Widget)

PANELS = (
    PanelPlace("text", "Text", Place.TEXT, "Text", "the text"),
    PanelPlace("candidates", "Next token", Place.UPPER, "Candidates", "the candidates"),
    PanelPlace("steps", "Steps", Place.LOWER, "Steps", "the steps"),
    PanelPlace("kv", "KV cache", Place.LOWER, "KV cache", "the KV cache"),
    PanelPlace("timing", "Time", Place.LOWER, "Time", "the timings"),
)
"""The panels of every session, in the order of the number keys; those of the tools follow."""


def key_table(tools: Sequence[Tool]) -> KeyTable:
    """All keys of a main screen with some tools."""
    return KeyTable((TRANSPORT, BRANCHING, LOOKING, SETTING_UP, *tools, screen_tool(panels_with(tools))))


def panels_with(tools: Sequence[Tool]) -> tuple[PanelPlace, ...]:
    """All panels of a main screen with some tools."""
    specs = [(tool.id, tool.panel) for tool in tools if tool.panel is not None]
    return (*PANELS, *(PanelPlace(id, each.name, each.place, each.label, each.called) for id, each in specs))


class MainScreen(Screen[None]):
    """The panels around one timeline; the host of its tools.

    Args:
        controller: The session on the screen.
        tools: What a person can open beyond the panels of every session.
        playback: Recordings in the place of the engine; None for an application without files.
    """

    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {KeyCommands}
    AUTO_FOCUS = "#opening"

    def __init__(
        self, controller: Controller, tools: Sequence[Tool], playback: Playback | None = None
    ) -> None:
        super().__init__()
        self.controller = controller
        self.playback = playback
        self.table = key_table(tools)
        self.clipboard = Clipboard(self)
        self.arrangement = Arrangement(panels_with(tools))
        self.actions: dict[str, ToolActions] = {tool.id: tool.make(self) for tool in self.table.tools}
        """State and actions of each tool, by its id."""
        self._bindings = BindingsMap(key.binding for key in self.table.keys)
        self._stale = False
        self._panel_layout = PanelLayout(self, self.arrangement, self.actions)

    def compose(self) -> ComposeResult:
        yield HeaderLine(id="header")
        with Container(id="panels"):
            yield OpeningPanel(id="opening", classes="panel")
            yield TextPanel(id="text", classes="panel")
            yield CandidatesPanel(id="candidates", classes="panel")
            yield from self._tool_panels(Place.SIDE)
            yield StepsPanel(id="steps", classes="panel")
            yield from self._tool_panels(Place.BELOW)
            yield KVPanel(id="kv", classes="panel")
            yield TimingPanel(id="timing", classes="panel")
        yield CaptionLine(id="caption")
        yield StatusLine(id="status")
        yield KeyLine(self.table, lambda key: available(key, self.controller), id="keyline")
        yield Static(Content("This terminal is too small: {} columns by {} rows at least.".format(*MINIMUM)),
                     id="too-small")  # fmt: skip

    def _tool_panels(self, place: Place) -> Iterable[Widget]:
        for tool in self.table.tools:
            if tool.panel is not None and tool.panel.place is place:
                widget = tool.panel.make()
                widget.id = tool.id
                widget.add_class("panel", f"-{place.value}")
                yield widget

    def on_mount(self) -> None:
        """Arrange the panels before the first layout: each class that changes after it costs another one."""
        self.show()

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
            self.call_next(self.show)

    def show(self) -> None:
        """Show everything, now."""
        self._stale = False
        if self._pruning or not self.is_attached:
            return  # the program is being left, and the panels are going
        timeline, setup = self.controller.timeline, self.controller.setup
        self.query_one(HeaderLine).show(timeline, setup.settings)
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
        self.query_one(CaptionLine).show(self.controller.transport, timeline)
        self.status.show(self.controller, self._whereabouts(), self._tool.situation if self._tool else "")
        self.query_one(KeyLine).show(timeline, self._tool)
        self._panel_layout.apply()
        for actions in self.actions.values():
            actions.shown()

    def takes_alone(self, records: Sequence[Record]) -> bool:
        """Whether one tool can show records by itself, since nothing else follows from them; it does so then."""
        return any(actions.takes_alone(records) for actions in self.actions.values())

    def answer(self, answer: str = "") -> None:
        """Answer the last key, or take the answer back, and have everything shown again."""
        self.status.say(answer, self.controller.timeline.phase)
        self.changed()

    @property
    def status(self) -> StatusLine:
        """The status line."""
        return self.query_one(StatusLine)

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted candidate."""
        return self.panel(CandidatesPanel).candidate

    def panel(self, kind: type[Panel]) -> Panel:
        """The panel of a class."""
        return self.query_one(kind)

    def _whereabouts(self) -> str:
        if self._panel_layout.now is Layout.SINGLE:
            place = self.arrangement.number + 1
            return f"{place}/{len(self.arrangement.panels)} {self.arrangement.name}"
        return self.controller.transport.whereabouts

    # ---- keys -------------------------------------------------------------------------------

    async def action_do(self, id: str) -> None:
        """Do what a key does, or say why it can't be done."""
        key = self.table[id]
        actions = self.actions[self.table.tool(id).id]
        if refused := refusal(key, self.controller, actions):
            self.answer(refused)
            return
        for each in self.actions.values():
            each.pressed(id)
        current = self.actions.get(self.arrangement.current)
        if current is not None and id in current.instead:
            current.instead[id]()
        elif (done := key.run(actions)) is not None:
            await done

    @property
    def _tool(self) -> Tool | None:
        """The tool whose panel is the current one."""
        return next((tool for tool in self.table.tools if tool.id == self.arrangement.current), None)

    # ---- panels -----------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Another size may be another arrangement."""
        self.changed()

    @property
    def shown(self) -> frozenset[str]:
        """Ids of the panels that are, or are about to be, on screen."""
        return self._panel_layout.shown

    def go_to(self, panel: str) -> None:
        """Make a panel the current one."""
        self.arrangement.go(panel, self._panel_layout.now)
        self.answer()

    def toggle(self, panel: str) -> None:
        """Open a tool's panel, or close it."""
        if self.arrangement.is_open(panel, self.shown):
            self.arrangement.close(panel)
            self.answer()
        else:
            self.go_to(panel)

    def enlarge(self) -> None:
        """Give the current panel the whole screen, or back."""
        self.arrangement.enlarged = not self.arrangement.enlarged
        enlarged = self.arrangement.enlarged
        self.answer("Enlarged: f or esc goes back, tab to the next panel" if enlarged else "")

    def on_descendant_focus(self) -> None:
        """A click into a panel goes to it; under a dialog the toolkit moves the focus from a panel that was hidden."""
        if not self.is_active:
            return
        focused = self.focused.id if self.focused is not None else None
        if focused != self.arrangement.current and any(
            panel.id == focused for panel in self.arrangement.panels
        ):
            self.go_to(str(focused))

    @on(ToolMessage)
    def _tool_message(self, message: ToolMessage) -> None:
        self.actions[message.tool].hear(message)

    # ---- the rest of the host ---------------------------------------------------------------

    def stop(self) -> None:
        """Stop what goes on, or else leave the enlarged panel, then the tools' panels; notices go too."""
        self.app.clear_notifications()
        arrangement = self.arrangement
        if not self.controller.transport.stop():
            if any(actions.stop() for actions in self.actions.values()):
                return
            below = arrangement.open_below
            if arrangement.enlarged:
                self.enlarge()
            elif arrangement.open_side is not None:
                self.toggle(arrangement.open_side)
            elif below is not None and below in self.shown:
                self.toggle(below)
        self.answer()

    def open(
        self, screen: Screen[Result], then: Callable[[Result | None], None] | None = None
    ) -> Screen[Result]:
        """Show a screen or a dialog over this one; returns the one that is shown, which may have been kept."""
        if type(self.app.screen) is type(screen):  # a key that was pressed twice opens one
            return self.app.screen
        kept = shown(self.app, screen)
        self.app.push_screen(kept, then)
        self._repaint_required = False  # the toolkit asks for it, and what lies over this one paints it, too
        return kept

    def switch_theme(self) -> None:
        """Switch between dark and light."""
        self.app.theme = "textual-light" if self.app.current_theme.dark else "textual-dark"

    def help(self, tool: str = "") -> None:
        """Show the help of the main screen, or of the screen that a tool opened."""
        from inspector.main.dialogs.help import HelpDialog  # its parsers take a tenth of the start

        opened = next((each for each in self.table.tools if each.id == tool), None)
        keys = keys_markdown(self.table) if opened is None else screen_markdown(opened)
        self.open(HelpDialog(keys))

    @on(events.ScreenSuspend)
    @on(events.ScreenResume)
    def _covered_or_not(self) -> None:
        """The line of keys has those of what is on top."""
        self.query(KeyLine).refresh()

    def announce(self, text: str, title: str, severity: Severity = "information") -> None:
        """Tell the person something that is no answer to a key; printable."""
        self.app.notify(text, title=title, severity=severity, timeout=8, markup=False)

    def in_background(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do what takes long in a thread of its own; then give its result to the screen's thread."""

        def work_then_tell() -> None:
            done = work()
            self.app.call_from_thread(lambda: then(done) if self.is_attached else None)

        self.run_worker(work_then_tell, thread=True)

    def screenshot(self, title: str, then: Callable[[str], None]) -> None:
        """Take a picture of the screen without the dialog that is about to close."""
        self.call_after_refresh(lambda: then(self.app.export_screenshot(title=title)))

    async def quit(self) -> None:
        """Leave."""
        await self.app.action_quit()
