"""The application within this process: quick, and the same each time.

Its event loop runs only while an action is done, and a held engine hands out a record only when an action says so:
between two actions nothing moves, whatever the machine is busy with.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace
from textual._context import visible_screen_stack
from textual._xterm_parser import XTermParser
from textual.events import Resize
from textual.geometry import Size
from textual.pilot import Pilot

from engine.grammar_settings import Grammar
from engine.memory import resident
from engine.protocol import Cancel, Ended, Failure, Loading, OpenLockstep, Prefill, Received, Record, Sent
from engine.recording import Entry, Journal, save_as
from engine.session.context import free_garbage
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from inspector.app import InspectorApp
from inspector.lessons.catalogue import ORDER, find
from inspector.main.dialogs.help import HelpDialog
from inspector.session.playback import Opening, checked
from inspector.state.timeline import Phase
from inspector.views import FOLLOWING, with_lesson, with_second_model
from tests.fuzz.actions import MODES, PROBE, Action, Scenario
from tests.fuzz.faults import Fault, StuckError, of
from tests.fuzz.sandbox import inside
from tests.inspector.fakes import HOSTILE, STORY, Session
from tests.inspector.painting import Terminal
from tests.inspector.screen_numbers import ScreenNumbers, Told, place, same_text
from tests.synthetic import write
from tests.zoo import CONFIGS

PROGRAM = "fuzz"
SCHEMA = """{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
"tags": {"type": "array", "items": {"enum": ["a", "bb", "ccc"]}}}, "required": ["name", "age"]}"""
LARGE: Mapping[str, Any] = CONFIGS["llama"] | {
    "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "hidden_size": 128, "head_dim": 4,
    "intermediate_size": 64,
}  # fmt: skip
"""As many layers and heads as the largest models that people run have, and next to no weights."""
GROWN = 200
"""Steps that a session that is followed goes through, again and again from another branch."""


@dataclass(frozen=True)
class Begin:
    """What an application is made with."""

    load: LoadSettings
    settings: Settings
    more: Mapping[str, Any]
    """Further arguments."""
    let: Callable[[int], None] | None = None
    """Brings so many records of somebody else's session."""


def begin(scenario: Scenario, settings: Settings, folder: Path, resources: ExitStack) -> Begin:
    """What the application of a scenario is made with.

    Args:
        scenario: Of any kind.
        settings: What it samples with, unless the kind says otherwise.
        folder: Of the sandbox.
        resources: Closed with the session.
    """
    load = LoadSettings(model_of(scenario.model, folder))
    match scenario.kind:
        case "lesson" | "presenter":
            listed = find(ORDER[scenario.number % len(ORDER)])
            tools = with_lesson(listed, scenario.kind == "presenter")
            return Begin(LoadSettings(model=listed.lesson.model), listed.lesson.settings, {"tools": tools})
        case "lesson-recorded":
            listed = find(ORDER[scenario.number % len(ORDER)])
            opening = Opening(checked(listed.trace), play=True)
            return Begin(load, Settings(), {"trace": opening, "tools": with_lesson(listed)})
        case "lockstep":
            return Begin(load, settings, {"tools": with_second_model(OpenLockstep(load, 4, 32))})
        case "grammar":
            constrained = Settings(
                temp=settings.temp, seed=7, max_tokens=60, grammar=Grammar("json-schema", SCHEMA)
            )
            return Begin(load, constrained, {})
        case "ranks":
            return Begin(LoadSettings(load.model, ranks=2), settings, {})
        case "following":
            growing = Growing(folder / f"followed-{scenario.number}.trace")
            resources.callback(growing.close)
            more = {"trace": Opening(growing.path, follow=True), "tools": FOLLOWING}
            return Begin(LoadSettings(), Settings(), more, let=growing.let)
        case "replay":
            return Begin(load, settings, {"trace": Opening(trace(folder / "trace.trace"))})
        case "failed":
            return Begin(LoadSettings("no-such-model"), settings, {})
        case _:
            return Begin(load, settings, {})


def model_of(family: str, folder: Path) -> str:
    """The directory of a model of a family, written when it is asked for first; pocket comes with the program."""
    if family == "pocket":
        return family
    path = folder / family
    return str(path if path.exists() else write(path, LARGE if family == "large" else CONFIGS[family]))


class Growing:
    """A session of somebody else, written on while it is followed: steps, hostile tokens, branches.

    Args:
        path: Of its file; one that is there is written anew.
    """

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path = path
        session = Session((*STORY[:12], *HOSTILE, *STORY[12:30]))
        self._journal = Journal.create(path, PROGRAM)
        first = [each for each in (*session.load(), *session.open()) if not isinstance(each, Loading)]
        self._write(first)
        self._records = iter(self._session(session))

    def _session(self, session: Session) -> list[Record]:
        begun = len(session.records)
        for _ in range(GROWN // 20):
            steps = session.steps(20)
            other = next(each.id for each in steps[5].choice.candidates if each.id != steps[5].id)
            session.choose(steps[5].parent, other)
        return session.records[begun:]

    def let(self, count: int) -> None:
        """Write so many records."""
        self._write([record for _, record in zip(range(min(count, 20)), self._records, strict=False)])

    def _write(self, records: list[Record]) -> None:
        for record in records:
            self._journal.write(Entry(record))
        self._journal.flush()

    def close(self) -> None:
        """End the session."""
        self._journal.close()


def trace(path: Path) -> Path:
    """A recording with a fork, and with tokens that no terminal should see."""
    if not path.exists():
        made = Session((*STORY[:12], *HOSTILE, *STORY[12:30]))
        made.load()
        made.open()
        steps = made.steps(24)
        other = next(each.id for each in steps[5].choice.candidates if each.id != steps[5].id)
        made.choose(steps[5].parent, other)
        made.steps(6)
        entries = [Entry(LoadSettings("pocket"), 0.0)]
        entries += [
            Entry(each, n / 100) for n, each in enumerate(made.records) if not isinstance(each, Loading)
        ]
        save_as(path, entries, "fuzz")
    return path


OWN_ENGINE = ("live", "ranks")
"""Kinds of scenarios whose application makes its engine itself."""
BOUND = 60.0
"""Seconds in which an action must be taken in, on whatever machine."""
GRANTED = 2.0
"""Seconds to wait for records that a held engine may hand out: a measurement has none for a while."""
ALL, BEGUN = 1000, 20.0
"""Records that stand for all of them, and seconds that an engine of its own gets to load a model."""
PAINTS = 20
"""Times that what is drawn, and does not change meanwhile, is waited for to be painted."""
CHANGES = 500
"""Times that what is drawn may change, as a long page of the help that is still being built."""
WITHOUT = 20
"""Actions without a model, in a session of a kind that is about one."""
RESTS = 5
"""Times that a probe lets the engine hand out all that it has, for the screen to come to rest."""
Result = TypeVar("Result")


class HeldEngine:
    """The engine's own thread, which waits before each record until it may hand it out.

    Args:
        emit: Receives each record.
    """

    def __init__(self, emit: Any) -> None:
        self._emit = emit
        self._engine = EngineThread(self._hold)
        self._turn = threading.Condition()
        self._free = 0.0
        self._open = 0
        """Commands that have not ended; the first record, of the import, belongs to none."""

    def start(self) -> None:
        self._open += 1
        self._engine.start()

    def send(self, sent: Sent) -> None:
        if not isinstance(sent.command, Cancel):
            with self._turn:
                self._open += 1
        self._engine.send(sent)

    def _hold(self, received: Received) -> None:
        record = received.record
        with self._turn:
            self._turn.wait_for(lambda: self._free >= 1)
            self._free -= 1
            self._emit(received)
            self._open -= isinstance(record, Ended) or (
                isinstance(record, Loading) and record.stage == "import"
            )
            self._turn.notify_all()

    def let(self, count: int) -> None:
        """Let the engine hand out so many records, and wait until it did or has nothing to do."""
        with self._turn:
            self._free = count
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._free < 1 or self._open < 1, GRANTED)
            self._free = 0

    def close(self, timeout: float = 2.0) -> bool:
        with self._turn:
            self._free = float("inf")
            self._turn.notify_all()
        return self._engine.close(timeout)


class PilotHost:
    """Drives the application by Textual's pilot and parser of terminal input.

    Args:
        folder: The sandbox.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.visits: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._unhandled)
        self._faults: list[Fault] = []

    # ---- a session --------------------------------------------------------------------------

    def start(self, scenario: Scenario) -> None:
        self._faults.clear()
        self._kind, self._without = scenario.kind, 0
        self._resources = ExitStack()
        self._inside = inside(self._folder)
        self._inside.__enter__()
        try:
            self._begin(scenario)
        except BaseException:
            self._inside.__exit__(
                None, None, None
            )  # else everything after it in this process meets the fence
            raise

    def _begin(self, scenario: Scenario) -> None:
        threading.excepthook = lambda args: self._faults.append(of(args.exc_value or StuckError()))
        self._context = contextvars.copy_context()
        self._parser = XTermParser()
        self._app = self._application(scenario)
        self._terminal = Terminal(self._app)
        self._numbers = ScreenNumbers(self._app, self._terminal, Told(self._app))
        self._app.controller.client.listen(self._received)
        self._app._fatal_error = self._app._close_messages_no_wait  # type: ignore[method-assign]
        # the toolkit's own draws the traceback with all variables, which takes seconds
        test = self._app.run_test(size=scenario.size, tooltips=True, notifications=True)
        self._test = test
        self._pilot: Pilot[int] = self._run(test.__aenter__())

    def _application(self, scenario: Scenario) -> InspectorApp:
        settings = Settings(temp=scenario.temp, seed=7, max_tokens=60, top_p=0.95)
        made = begin(scenario, settings, self._folder, self._resources)
        held = HeldEngine(lambda received: self._app.inbox.emit(received))
        self._let = made.let
        if self._let is None and scenario.kind not in OWN_ENGINE:
            self._let = held.let
        return InspectorApp(
            replace(made.load, no_kv_cache=scenario.no_kv_cache, record_logits=scenario.number % 2 == 0),
            made.settings,
            Prefill(
                "" if "tools" in made.more and scenario.kind != "lockstep" else scenario.prompt, scenario.chat
            ),
            engine=None if scenario.kind in OWN_ENGINE else held,
            save=self._folder / "home" / "sessions" if scenario.save else None,
            **made.more,
        )

    def _received(self, record: Record) -> None:
        if isinstance(record, Failure) and not record.expected:
            self._faults.append(Fault(f"{record.message[:90]} (engine)", record.trace))

    def _unhandled(self, _: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._faults.append(of(error) if error is not None else Fault(str(context["message"]), repr(context)))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Let the event loop run until something is done, in one context for the whole session."""
        return self._loop.run_until_complete(self._loop.create_task(work, context=self._context))

    # ---- actions ----------------------------------------------------------------------------

    def do(self, action: Action) -> Fault | None:
        self._visit()
        return self._guarded(self._do(action))

    def _guarded(self, work: Coroutine[Any, Any, None]) -> Fault | None:
        """Run something; what takes beyond all bounds is interrupted where it is, so that its traceback is seen."""
        before = signal.signal(signal.SIGALRM, _stuck)
        signal.setitimer(signal.ITIMER_REAL, BOUND)
        try:
            self._run(work)
        except Exception as error:
            if self._app._exception is None:
                return of(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return self._seen()

    async def _do(self, action: Action) -> None:
        driver = self._app._driver
        if driver is None or self.over:
            return
        match action.kind:
            case "settle":
                await self._settle()
                await self._compare()
            case "records" if self._let is not None:
                self._let(action.values[0])
            case "records":
                await self._wait(0.02 if action.values[0] < ALL else BEGUN)
            case "resize":
                driver._size = action.values  # type: ignore[attr-defined]
                size = Size(*action.values)
                self._app.post_message(Resize(size, size))
            case _:
                for event in [*self._parser.feed(action.sent), *self._pause()]:
                    driver.process_message(event)

    async def _wait(self, seconds: float) -> None:
        """Let an engine that nobody holds work for a while, or until it has nothing to do."""
        end, controller = time.monotonic() + seconds, self._app.controller
        while time.monotonic() < end and not self.over and self._app._exception is None:
            await asyncio.sleep(0.005)
            stopped = controller.timeline.phase is Phase.PREFILL and not controller.client.requests
            if controller.resting or stopped:
                return

    def _pause(self) -> list[Any]:
        """What the parser makes of an escape that nothing follows."""
        if self._parser._timeout_time is not None:
            self._parser._timeout_time = 0.0
        return list(self._parser.tick())

    async def _settle(self) -> None:
        """Have everything taken in that was sent, handed out and asked for, and painted."""
        app = self._app
        while app.keys.busy and not self.over and app._exception is None:  # each waits for the one before it
            await asyncio.sleep(0)
        for _ in range(2):
            await self._pilot._wait_for_screen(BOUND)
            if self.over or app._exception is not None:
                return
            if app.inbox.waiting and app.main.is_attached:
                with app._context():
                    app.inbox.drain()
        app.screen._on_timer_update()
        await asyncio.sleep(0)

    async def _compare(self) -> None:
        """Compare the numbers of the screen on top with the records that they belong to."""
        app, before = self._app, self._numbers.compared
        drawn, waited = "", 0
        for _ in range(CHANGES):
            if self.over or app._exception is not None or not self._numbers.shown:
                return
            visible_screen_stack.set(app._background_screens)  # known where Textual paints, and not here
            last = drawn
            drawn = "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())
            waited = waited + 1 if drawn == last else 0
            if waited == PAINTS or same_text(self._terminal.text, drawn):
                break
            await asyncio.sleep(0.02)
            await self._settle()
        try:
            with place(f"not painted: {type(app.screen).__name__}"):
                assert same_text(self._terminal.text, drawn), drawn
            if self._numbers.check_top():
                self.visits["screens compared"] += 1
        except AssertionError as error:
            error.add_note(self._terminal.text)
            raise
        self.visits["numbers compared"] += self._numbers.compared - before

    def _visit(self) -> None:
        if self._app._screen_stack:
            timeline, client = self._app.controller.timeline, self._app.controller.client
            self._without = self._without + 1 if timeline.phase is Phase.FAILED else 0
            self.visits[type(self._app.top).__name__] += 1
            self.visits[f"phase {timeline.phase.value}{' (recorded)' * timeline.recorded}"] += 1
            if client.outstanding:
                self.visits[f"doing {client.outstanding[0].kind}"] += 1

    # ---- what came of it --------------------------------------------------------------------

    def _seen(self) -> Fault | None:
        if self._app._exception is not None:
            return of(self._app._exception)
        return self._faults[0] if self._faults else None

    @property
    def over(self) -> bool:
        return self._app.leaving

    @property
    def lost(self) -> bool:
        """A random name was opened in the place of the model, some actions ago: most keys say so and do no more."""
        return self._without > WITHOUT and self._kind in MODES

    def probe(self) -> Fault | None:
        return self._guarded(self._probe())

    async def _probe(self) -> None:
        await self._do(Action("resize", (120, 40)))
        for _ in range(RESTS):
            for action in PROBE:
                await self._do(action)
            if self.over or self._app._exception is not None:
                return
            if self._numbers.settled and self._app.top is self._app.main:
                break
            # what was asked for before may still come, and open a tool: a lesson shows what its card speaks of
            await self._do(Action("records", (ALL,)))
            await self._do(Action("settle"))
        if self._app.top is not self._app.main:
            raise StuckError(f"twelve escapes lead no further than {self._app.top}")
        await self._do(Action("key", ("question_mark",)))
        await self._settle()
        if not isinstance(self._app.top, HelpDialog):
            raise StuckError(f"the help key opens {self._app.top}, {self._app.controller.timeline.phase}")
        await self._do(Action("key", ("escape",)))
        await self._settle()

    def end(self) -> Fault | None:
        app, fault = self._app, self._seen()
        if fault is None and not self.over:
            fault = self._guarded(self._leave())
        codes = (0, 2) if app.controller.timeline.phase is Phase.FAILED else (0,)
        if fault is None and (app.return_code or 0) not in codes:
            fault = Fault(f"exit status {app.return_code}", "")
        after = self._guarded(self._close())
        if (known := getattr(XTermParser, "_parse_extended_key", None)) is not None:  # not in Textual 8.2.5
            known.cache_clear()  # keys know the application that they were sent to
        free_garbage()  # the engine freezes what is there when it has loaded a model; here that are older sessions too
        self._resources.close()
        self._inside.__exit__(None, None, None)
        threading.excepthook = threading.__excepthook__
        return fault or after

    async def _leave(self) -> None:
        for action in (PROBE[0], Action("key", ("ctrl+q",)), Action("settle")):
            await self._do(action)
        if not self.over:
            raise StuckError("ctrl+q leaves nothing")

    async def _close(self) -> None:
        self._app._exit_renderables.clear()  # what it says at the end without a model
        await self._test.__aexit__(None, None, None)
        if not self._app.closed_in_time:
            raise StuckError("the engine's thread did not end")

    def resident(self) -> int:
        return resident()


def _stuck(*_: object) -> None:
    raise StuckError(f"no answer within {BOUND:g} s")
