"""The application on a fake engine: tests press keys, look at the commands sent, and push records by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from textual.drivers.headless_driver import HeadlessDriver
from textual.events import Resize
from textual.geometry import Size
from textual.pilot import Pilot

from engine import protocol
from engine.protocol import (
    Cancel,
    Command,
    Deleted,
    Ended,
    Marked,
    Prefill,
    Received,
    Record,
    Sent,
    Undeleted,
)
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.keys import textual_name
from inspector.main.dialogs.finder import FinderDialog
from inspector.session.client import EngineClient
from inspector.widgets.form import SettingsForm
from tests.inspector.fakes import Session
from tests.inspector.quick_clock import run_quickly

Case = TypeVar("Case")


class FakeEngine:
    """Keeps the commands that it was sent, and apart from them the questions that need no forward."""

    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.asked: list[Command] = []
        self.all: list[Sent] = []
        self.cancels: set[int] = set()
        self.started = self.closed = False

    def start(self) -> None:
        self.started = True

    def send(self, sent: Sent) -> None:
        if isinstance(sent.command, Cancel):
            self.cancels.add(sent.command.target)
        else:
            self.all.append(sent)
            (self.asked if sent.command.interleavable else self.sent).append(sent.command)

    def id(self, command: Command) -> int:
        """With which a command was sent."""
        return next(each.id for each in self.all if each.command is command)

    def cancelled(self, command: Command) -> bool:
        """Whether a command was cancelled."""
        return self.id(command) in self.cancels

    def close(self, timeout: float = 2.0) -> bool:
        self.closed = True
        return True

    @property
    def names(self) -> list[str]:
        """Kinds of the commands."""
        return [command.kind for command in self.sent]

    def last(self, kind: type[Command]) -> Command:
        """The command of a kind that was sent last."""
        return next(command for command in reversed(self.sent) if isinstance(command, kind))


ANSWERED_BY: Mapping[type[Record], type[Command]] = {
    protocol.Explained: protocol.Explain,
    protocol.WhatIfAnswered: protocol.WhatIf,
    protocol.TokensFound: protocol.FindTokens,
    protocol.GrammarExpected: protocol.ReadGrammar,
    protocol.Tokenized: protocol.Tokenize,
    protocol.PromptPreview: protocol.PreviewPrompt,
}
"""Of the questions that need no forward."""


def addressed(record: Record | Received, open: Mapping[int, Command]) -> Received:
    """A record by hand with the id of the command that an engine would have emitted it for.

    That is the first open one of the kind that the record names or answers; else the first that the engine has to do.
    """
    if isinstance(record, Received):
        return record
    if isinstance(record, Marked | Deleted | Undeleted):
        return Received(record)
    asked = ANSWERED_BY.get(type(record))
    kind = asked.kind if asked is not None else getattr(record, "command", "")
    found = (id for id, each in open.items() if (each.kind == kind if kind else not each.interleavable))
    return Received(record, next(found, 0))


def take_in(client: EngineClient, record: Record) -> None:
    """Have a client take in a record by hand, for the command that an engine would have emitted it for."""
    received = addressed(record, {id: each.command for id, each in client.requests.items()})
    client.receive(received.record, received.id)


class Rig:
    """One running application."""

    def __init__(self, pilot: Pilot[int], engine: FakeEngine, session: Session) -> None:
        self.pilot, self.engine, self.session = pilot, engine, session
        assert isinstance(pilot.app, InspectorApp)
        self.app: InspectorApp = pilot.app

    @property
    def timeline(self):
        return self.app.controller.timeline

    @property
    def status(self) -> str:
        """What the status line says."""
        line = self.app.main.status
        return line.answer or line.left

    async def press(self, *keys: str) -> None:
        """Press keys and let what follows happen.

        A key of another tab than the open one, and of no other besides, does what it does there, as from the finder.
        """
        for key in keys:
            if (action := self._elsewhere(key)) is not None:
                await self.app.main.do(action)
                await self.pilot.pause()
            else:
                await self.app._press_keys(
                    [key]
                )  # the pilot waits for each widget twice, here and in its pause
        await self.pilot.pause()
        while self.app.is_running and (
            self.app.screen._layout_required
            or not getattr(self.app.top, "takes_keys", True)
            or getattr(self.app.top, "_stale", False)
        ):
            await self.pilot.pause(0.01)

    async def do(self, *actions: str) -> None:
        """Do actions of the main screen by their ids, as from the finder."""
        for action in actions:
            await self.app.main.do(action)
            await self.pilot.pause()
        await self.pilot.pause()  # a panel that was hidden learns its size with the first one

    def _elsewhere(self, key: str) -> str | None:
        """The action that a key has in another tab alone; None where it means something here."""
        main = self.app.main
        told = main.narrator.narration() if main.narrator is not None else None
        taken = told is not None and key in told.keys
        if self.app.top is not main or main.meaning(key) is not None or taken:
            return None
        found = [each.id for each in main.table.actions if key in each.names]
        assert len(found) < 2, f"{key} is a key of {found}: name the one that is meant with `do`"
        return found[0] if found else None

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size, and wait for nothing, as the pilot does."""
        driver, size = self.app._driver, Size(columns, rows)
        assert isinstance(driver, HeadlessDriver)
        driver._size = size
        self.app.post_message(Resize(size, size))

    async def until(self, holds: Callable[[], object], seconds: float = 120) -> None:
        """Wait for what can be seen."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"it never came:\n{self.screen_text()}"
            await self.pilot.pause(0.01)

    async def from_finder(self, typed: str, label: str) -> None:
        """Do what the finder finds first, once it has found it."""

        def found() -> bool:
            finder = self.app.screen
            first = finder.picked if isinstance(finder, FinderDialog) and finder.choices else None
            return first is not None and first.label == label

        keys = (textual_name(" ") if each == " " else textual_name(each) for each in typed)
        await self.press("ctrl+p", *keys)
        await self.until(found)
        await self.press("enter")

    async def push(self, records: Iterable[Record | Received]) -> None:
        """Hand out records as the engine would, and have them shown in one frame.

        A question that needs no forward has ended with its answer, unless its end is among them.
        """
        client, shown = self.app.controller.client, []
        answered = []
        for record in records:
            told = addressed(record, {id: each.command for id, each in client.requests.items()})
            request = client.requests.get(told.id)
            shown += self._take_in(told)
            if request is not None and request.command.interleavable and not request.done:
                answered.append(request)
        for request in answered:
            if request.id in client.requests:
                shown += self._take_in(Received(Ended(request.command.kind), request.id))
        self.app.inbox.show(shown)
        await self.pilot.pause()

    def _take_in(self, received: Received) -> list[Record]:
        """Have the application take in a record, with what it handed out before; nothing of it is shown yet."""
        self.app.inbox.emit(received)
        taken = [*self.app.inbox.waiting]
        self.app.inbox.waiting.clear()
        for each in taken:
            self.app.inbox._receive(each.record, each.id)
        return [each.record for each in taken]

    async def end(self, command: str, cancelled: bool = False) -> None:
        """End a command."""
        await self.push([Ended(command, cancelled)])

    @property
    def form(self) -> SettingsForm:
        """The form of the open dialog."""
        return self.app.top.query_one(SettingsForm)

    async def type_in(self, name: str, text: str) -> None:
        """Highlight a row of the open form, and type something instead of its value."""
        self.form.highlight(name)
        self.form.field.value = text
        await self.pilot.pause()

    async def through(self, cases: Iterable[Case], test: Callable[[Case], Awaitable[None]]) -> None:
        """Go through cases within this application; what fails names its case.

        After each nothing lies over the main screen and nothing is outstanding, as where an application begins.
        """
        for case in cases:
            try:
                await test(case)
                while self.app.top is not self.app.main:
                    opened = self.app.main.open_view if self.app.screen is self.app.main else None
                    if opened is not None:
                        opened.dismiss()
                    else:
                        self.app.pop_screen()
                for command in [*self.app.controller.client.outstanding]:
                    await self.end(command.kind, cancelled=True)
                await self.pilot.pause()
            except BaseException as error:
                error.add_note(f"in the case of {case!r}")
                raise
            if self.app._exception is not None:
                self.app._exception.add_note(f"in the case of {case!r}")
                return

    async def fail_to_load(self, message: str, hint: str) -> None:
        """Have the model not loaded."""
        await self.push([self.session.fail(message, hint), Ended("Load")])

    async def ready(self, steps: int = 6) -> None:
        """Load, prefill and step, as far as the screen is concerned."""
        await self.until(
            lambda: self.engine.started
        )  # what ends is otherwise no command of the application's yet
        began = [*self.session.load(), Ended("Configure"), *self.session.open()]
        await self.push([*began, *self.session.steps(steps)])
        self.engine.sent.clear()

    def answer_words(self) -> str:
        """The words in the place of the answer, on one line."""
        area = self.app.main.area
        strips = [*self.app.screen._compositor.render_strips()][area.y : area.bottom]
        text = " ".join(strip.crop(area.x, area.right).text for strip in strips)
        return " ".join(word for word in text.split() if word.strip("│╭╮╰╯─"))

    def screen_text(self) -> str:
        """What the terminal shows."""
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    def answer_text(self) -> str:
        """What it shows in the place of the answer, without the text beside it."""
        area = self.app.main.area
        strips = self.app.screen._compositor.render_strips()[area.y : area.bottom]
        return "\n".join(strip.crop(area.x, area.right).text.rstrip() for strip in strips)

    def said(self) -> str:
        """The same as running text: sentences there are whole, wherever their lines end."""
        return " ".join(self.answer_text().replace("│", " ").split())


async def idle(pilot: Pilot[int]) -> None:
    """Wait until a real engine has read the prompt and owes no answer, and nothing that is shown of it asks again."""
    app, rounds = pilot.app, 0
    assert isinstance(app, InspectorApp)
    async with asyncio.timeout(120):
        while rounds < 2:
            busy = app.controller.client.outstanding or app.inbox.waiting or app.main._stale
            rounds = 0 if busy or not app.controller.timeline.prompts.prefilled else rounds + 1
            await pilot.pause(0.02)


@asynccontextmanager
async def on_screen(
    size: tuple[int, int] = (120, 40),
    prompt: str = "Once upon a time,",
    settings: Settings | None = None,
    session: Session | None = None,
    load: LoadSettings | None = None,
    save: Path | None = None,
) -> AsyncIterator[Rig]:
    """The application, running."""
    engine = FakeEngine()
    app = InspectorApp(
        load or LoadSettings(), settings or Settings(temp=0.8), Prefill(prompt, False), engine=engine, save=save,
    )  # fmt: skip
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Rig(pilot, engine, session or Session())


def run(
    test: Callable[[Rig], Awaitable[None]], size: tuple[int, int] = (120, 40), **options: Any
) -> InspectorApp:
    """Run a test inside the application; returns it ended."""

    async def body() -> InspectorApp:
        async with on_screen(size, **options) as rig:
            await test(rig)
        return rig.app

    return run_quickly(body())
