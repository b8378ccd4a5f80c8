"""The application: owns the engine and brings its records to the screen."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from traceback import walk_tb
from typing import Any

from rich.console import RenderableType
from rich.text import Text
from textual import constants, events, on
from textual.app import App
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.driver import Driver
from textual.errors import NoWidget
from textual.filter import DimFilter, LineFilter
from textual.screen import Screen
from textual.widget import Widget

from engine.breakpoints import Breakpoints
from engine.errors import EngineError, RecordingError
from engine.protocol import Configure, Failure, Load, LoadDraft, ModelFacts, MoveTo, Prefill, Received, Record
from engine.settings import LoadSettings, Settings, SpeculationSettings
from engine.thread import EngineThread
from inspector import keys
from inspector.config import own_keys
from inspector.config.preferences import Preferences, Remembered, SavedBreakpoints
from inspector.display import visible
from inspector.driver import ControlFilter, TerminalDriver, TerminalGone, copy_on_mac
from inspector.keys import key_for
from inspector.main.ahead import IdleWork, imports, modules_of
from inspector.main.key_table import key_table
from inspector.main.screen import MainScreen
from inspector.main.status import TOLD, notice
from inspector.main.tool import Tool
from inspector.recordings.recorder import Recorder
from inspector.session.client import Backend, RecordInbox, Severity
from inspector.session.controller import Controller
from inspector.session.playback import Opening, Playback
from inspector.state.timeline import Phase
from inspector.version import program
from inspector.views import TOOLS, plugins
from inspector.widgets.dialog import read_styles
from inspector.widgets.inks import readable
from inspector.widgets.keys_in_order import KeysInOrder

FRAME = 1 / 30
"""Seconds between two checks for new records of the engine."""
DIM = DimFilter(0.7)
"""Dim text keeps this share of its colour; with Textual's half it can't be read."""
CONTROLS = ControlFilter()
NOTES_SECONDS = 12.0
"""Seconds that notes on the flags stay, since a model loads meanwhile and there may be several notes."""
MOST_PROBLEMS = 8
"""Maximum number of problems of the user's own keys in a notification, one line each."""
PROBLEM_LINES, AROUND_PROBLEMS = 3, 8
"""Rows that a problem takes in a narrow terminal, and rows of the notification and the screen around the problems."""
CLOSE_SECONDS = 2.0
NO_PROMPT = Prefill("", None)
NO_THREAD = (
    "The system allows the program no more threads. "
    "Close other programs, or raise the limit (ulimit -u), and try again."
)


class InspectorApp(App[int]):
    """A step debugger for one model.

    Args:
        load: The model to open.
        settings: Settings of the sampler.
        prefill: The prompt, read once the model is loaded; an empty one waits for the user.
        engine: Takes commands and passes its records to `inbox`; None for the thread that owns MLX, or for a model
            over ranks a separate process.
        breakpoints: Breakpoints of runs; None for the saved ones.
        save: Directory in which the session is recorded; None to keep it only in memory.
        trace: A recording to show instead of a new session; None for a session.
        tools: The tools besides the panels of the main screen.
        theme: Name of the theme, or dark or light; empty for the saved one.
        begins: Look of the screen at the start, in which case nothing is saved; None for the saved look.
        given: Names of the settings that the user gave; the others become the model's defaults. None if all were given.
        notes: Sentences about the flags to show at the start.
        notes_on: Returns further such sentences once the first model is loaded.
        speculation: Settings that speculative decoding starts with; None for the defaults.

    Raises:
        EngineError: There is no such theme.
    """

    TITLE = "inspector"
    CSS_PATH = "inspector.tcss"
    # no ClassVar, as in Textual's own declarations
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (40, "-narrow"), (80, "-normal"), (120, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (10, "-short"), (20, "-middle"), (32, "-tall")]  # noqa: RUF012

    def __init__(
        self,
        load: LoadSettings,
        settings: Settings,
        prefill: Prefill = NO_PROMPT,
        engine: Backend | None = None,
        breakpoints: Breakpoints | None = None,
        save: Path | None = None,
        trace: Opening | None = None,
        tools: Sequence[Tool] = TOOLS,
        theme: str = "",
        begins: Preferences | None = None,
        given: Collection[str] | None = None,
        notes: Sequence[str] = (),
        notes_on: Callable[[ModelFacts], Sequence[str]] = lambda facts: (),
        speculation: SpeculationSettings | None = None,
    ) -> None:
        super().__init__()
        self._plugins = plugins()
        tools = (*tools, *(each.tool for each in self._plugins if each.tool is not None))
        keys.use({})  # before anything binds or names a key
        self._table = key_table(tools)
        self._own_keys = own_keys.read(self._table.places)
        if self._own_keys.keys:
            keys.use(self._own_keys.keys)
            self._table = key_table(tools)
        self._remembered = Remembered(begins)
        self._remembered.begin(self, theme, "TEXTUAL_THEME" in os.environ)
        self.leaving = False
        """True once the program is about to exit."""
        self.ended_by: int | None = None
        """Number of the signal that ended the screen, if any."""
        self.inbox = RecordInbox(
            self._receive,
            lambda records: None,  # there is no screen yet
            self._takes_records,
            self.call_later,
        )
        self.engine = engine or (self._engine_process() if load.divided else EngineThread(self.inbox.emit))
        self.controller = Controller(self.engine, load, settings, prefill)
        self.controller.setup.given = None if given is None else set(given)
        self.controller.speculation = speculation or self.controller.speculation
        self._trace, self.controller.opening = trace, trace is not None
        self._saved_breakpoints = SavedBreakpoints().read()
        set_at_start = self._saved_breakpoints.values if breakpoints is None else breakpoints
        self.controller.runs.breakpoints.points = set_at_start
        setup, queries = self.controller.setup, self.controller.queries
        self.recorder = Recorder(save, program, lambda: setup.load, lambda: queries.in_force, self.announce)
        self.controller.client.listen(self.recorder.receive)
        self.playback = Playback(self.controller, self.recorder, self._live_engine, self.inbox.emit, self)
        self._notes = notes
        self._notes_on: Callable[[ModelFacts], Sequence[str]] | None = notes_on
        self.closed_in_time = True
        """False if the engine was still at work two seconds after it was asked to stop."""
        self._engine_runs = False
        self._ahead = IdleWork(self._work_ahead(tools))
        self.keys = KeysInOrder(self, self._hand_on, lambda: self.main.top)

    def _engine_process(self) -> Backend:
        from engine.child import EngineProcess  # imported only for a model over ranks

        return EngineProcess(self.inbox.emit, lambda reason: self.call_later(self._engine_lost, reason))

    def _live_engine(self) -> Backend:
        if not self._engine_runs:
            self._engine_runs = True
            self.engine.start()
        return self.engine

    def get_driver_class(self) -> type[Driver]:
        """The terminal driver, or the one that the environment variable TEXTUAL_DRIVER names, as for a browser.

        Raises:
            EngineError: The variable doesn't name a driver.
        """
        if constants.DRIVER is None:
            return TerminalDriver
        try:
            return super().get_driver_class()
        except Exception as error:  # importing that module may raise anything
            raise EngineError(
                f"TEXTUAL_DRIVER is {constants.DRIVER!r}, which is not a terminal driver.", "Unset it."
            ) from error

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's filters, with readable dim text, and one that keeps control characters from the terminal."""
        filters = (DIM if isinstance(each, DimFilter) else each for each in super().get_line_filters())
        return [*filters, CONTROLS]

    def get_default_screen(self) -> Screen[None]:
        """The main screen, which is on from the first paint."""
        self.main = MainScreen(self.controller, self._table, self.playback, self._remembered)
        self.inbox.show = self.main.show_changes
        return self.main

    @property
    def top(self) -> Screen[Any] | Widget:
        """The topmost dialog, or else the open view, or else the main screen."""
        return self.main.top

    def get_css_variables(self) -> dict[str, str]:
        """The theme's colours, with text adjusted to be readable on each background."""
        self.theme_variables = readable(super().get_css_variables())
        return self.theme_variables

    def action_command_palette(self) -> None:
        """Show the finder."""
        self.main.find_anything()

    def search_themes(self) -> None:
        """Show the finder with all themes."""
        self.main.find_anything("theme ")

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text to the terminal's clipboard, with `?` for lone surrogates, which terminals don't accept."""
        taken = text.encode("utf-8", "replace").decode()
        super().copy_to_clipboard(taken)
        copy_on_mac(taken)

    async def on_event(self, event: events.Event) -> None:
        """Handle an event, except input while the program exits, and presses on removed widgets.

        While all screens close, a screen that input opens would lack its widgets. A removed widget is still found under
        the mouse until the next paint, and Textual would ask for its parent.
        """
        if self.leaving and isinstance(event, events.InputEvent):
            return
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.keys.take(event)
            return
        if isinstance(event, events.MouseDown) and gone_at(self.screen, event.x, event.y):
            return
        await super().on_event(event)

    async def _hand_on(self, event: events.Event) -> None:
        """Pass a key or pasted text to the topmost screen, unless a lesson's card handles the key."""
        narrator = self.main.narrator if self.screen is self.main else None  # not in dialogs
        if self.leaving or (
            isinstance(event, events.Key) and narrator is not None and narrator.takes(event.key)
        ):
            return
        await super().on_event(event)

    def _work_ahead(self, tools: Sequence[Tool]) -> Iterator[None]:
        """Prepare what may be opened next, one piece at a time, starting with the styles of dialogs and views."""
        read_styles(self)
        self.stylesheet.parse()
        yield
        yield from imports(modules_of(tools))
        program()
        yield

    # ---- the engine -------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Paint first, then let the engine import MLX and load the model."""
        if self.ended_by is not None:
            self.exit()
        self.call_after_refresh(self._start)
        self.set_interval(FRAME, self._tick)

    def _start(self) -> None:
        self._warn("Breakpoints", *self._saved_breakpoints.problems)
        self._warn(
            "Plug-in",
            *(f"{each.name} ({each.package}): {each.problem}" for each in self._plugins if each.problem),
        )
        problems = self._own_keys.problems
        most = max(1, min(MOST_PROBLEMS, (self.size.height - AROUND_PROBLEMS) // PROBLEM_LINES))
        hidden = len(problems) - most
        more = [f"{hidden} more: `inspector --keys` lists all"] if hidden > 0 else []
        self._warn("Keys", *problems[:most], *more)
        self._warn("Look of the screen", *self._remembered.problems)
        self._warn("Flags", *self._notes)
        if self._trace is not None:
            self.playback.open(self._trace)
        else:
            self._live_engine()
            self.controller.setup.open(self.controller.setup.load)
        self.main.changed()

    def _warn(self, title: str, *problems: str) -> None:
        """Show a notification of problems, one line each, if there are any."""
        if problems:
            text = "\n".join(map(visible, problems))
            self.notify(text, title=title, severity="warning", timeout=NOTES_SECONDS, markup=False)

    def _tick(self) -> None:
        """Do the work of one frame: receive records, play a recording, prepare further views; nothing during exit."""
        if not self._takes_records():
            return
        if self.inbox.waiting:
            self.inbox.tick()
        if self.playback.player is not None or self.playback.waiting is not None:
            self.playback.tick()
        if not self._ahead.done:
            self._ahead.tick(self.controller.resting and not (self.inbox.waiting or self.keys.busy))

    def _takes_records(self) -> bool:
        """True if records are received; False during exit, while widgets are removed one by one."""
        return self.main.is_attached

    def _receive(self, record: Record, id: int) -> None:
        """Receive a record, and show a notification if no panel shows it, as one does for a refused model or first
        prompt."""
        self.controller.client.receive(record, id)
        if isinstance(record, ModelFacts) and self._notes_on is not None:
            self._warn("Flags", *self._notes_on(record))
            self._notes_on = None
            if (drafts := self.controller.speculation).draft_model:  # a flag named it
                self.controller.client.request(LoadDraft(drafts))
        if not isinstance(record, TOLD) or (found := notice(record)) is None:
            return
        timeline = self.controller.timeline
        refused = timeline.phase is Phase.EMPTY and record is timeline.prompts.failure
        if not ((timeline.phase is Phase.FAILED or refused) and getattr(record, "expected", True)):
            title, text, severity = found
            self.announce(text, title, severity)

    def _engine_lost(self, reason: str) -> None:
        """Continue without the engine, with a replay of the session if there is one."""
        self.inbox.drain()  # the last records of the engine belong to the session
        text, client = visible(reason), self.controller.client
        try:
            if self.playback.fall_back():
                text += f" The session is shown as a replay: {key_for('go_live')} continues live with a new engine."
            elif client.timeline.facts is not None and not client.timeline.recorded:
                hint = f"Press {key_for('open')} to load a model again."
                self.inbox.emit(Received(Failure(Load.kind, reason, hint)))
                return
        except RecordingError as error:
            text += f" {visible(str(error))}"
        self.announce(text, "The engine is lost", "error")

    # ---- the host of the session ------------------------------------------------------------

    def say(self, answer: str) -> None:
        """Show an answer to the user once the current work is done."""
        self.call_later(self.main.answer, answer)

    def redraw(self) -> None:
        """Show the changes now."""
        self.main.replayed()

    def announce(self, text: str, title: str, severity: Severity = "information") -> None:
        """Show a notification that doesn't answer a key; the text is printable."""
        self.notify(text, title=title, severity=severity, timeout=8, markup=False)

    def on_unmount(self) -> None:
        """Stop the engine, since MLX must not outlive its thread, and close the recording."""
        if self._engine_runs:
            self.closed_in_time = self.engine.close(CLOSE_SECONDS)
        self.recorder.close()

    # ---- leaving ----------------------------------------------------------------------------

    def exit(
        self, result: int | None = None, return_code: int = 0, message: RenderableType | None = None
    ) -> None:
        """Exit the program.

        Args:
            result: Result of the application.
            return_code: Exit status of the process.
            message: Printed once the screen is closed.
        """
        self.leaving = True
        super().exit(result, return_code, message)

    @property
    def saved(self) -> Path | None:
        """The file of the session once the screen is closed; None if there is none."""
        return self.recorder.saved

    def end_by(self, number: int) -> None:
        """Exit because of a signal, as the key does; called in the signal's handler.

        Args:
            number: Number of the signal.
        """
        self.ended_by = number
        with suppress(RuntimeError):  # the event loop hasn't started and checks `ended_by` later, or is over
            asyncio.get_running_loop().call_soon_threadsafe(self.exit)

    @on(TerminalGone)
    def _terminal_gone(self) -> None:
        """Exit as on a hangup, whose signal may be ignored."""
        self.end_by(signal.SIGHUP)

    def _handle_exception(self, error: Exception) -> None:
        """Exit because of an error, unless it comes from removed widgets; with one line if no thread can start."""
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            self.exit(2, return_code=2, message=Text(NO_THREAD))
        elif not (isinstance(error, NoMatches) and (self.leaving or _from_what_goes(error))):
            super()._handle_exception(error)

    async def action_quit(self) -> None:
        """Exit; a lesson is left first, so that the session is saved as the lesson found it. If the model couldn't be
        loaded, print the error and exit with code 2."""
        if self.main.narrator is not None:
            self.main.narrator.leave()
            client, end = self.controller.client, monotonic() + CLOSE_SECONDS
            while client.of(MoveTo, Configure) and monotonic() < end:
                await asyncio.sleep(FRAME)
                self.inbox.drain()
        failure = self.controller.timeline.load_failure
        if self.controller.timeline.phase is Phase.FAILED and failure is not None:
            self.exit(2, return_code=2, message=Text(visible(f"{failure.message} {failure.hint}".rstrip())))
        else:
            self.exit(0)

    def action_help_quit(self) -> None:
        """Answer ctrl+c, which doesn't quit, so that a reflex loses no work: say what does."""
        self.notify(
            f"{key_for('quit')} quits, ctrl+q from everywhere; esc or {key_for('step')} pauses a run.",
            title="Still here",
            markup=False,
        )


def _from_what_goes(error: Exception) -> bool:
    """True if an error comes from a view or a dialog that was closed: its widgets are removed one by one while messages
    to them are still queued."""
    nodes = (frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__))
    ancestors = (each for node in nodes if isinstance(node, DOMNode) for each in node.ancestors_with_self)
    return any(getattr(each, "left", None) is True for each in ancestors)


def gone_at(screen: Screen[Any], x: int, y: int) -> bool:
    """True if the widget at a position was removed: Textual would draw it to see what is under the mouse."""
    try:
        return not screen.get_widget_at(x, y)[0].is_attached
    except NoWidget:
        return False
