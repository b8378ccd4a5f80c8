"""A picture of the screen as it shows a recording, drawn without a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

from engine.breakpoints import Breakpoints
from engine.commands import Command
from engine.records import Step
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.state.timeline import Timeline
from inspector.tools.export import figures
from inspector.tools.export.recording import Recording
from inspector.tools.export.svg import alone

SETTLING = 8
"""Drawn at most so many times, until two in a row are alike: a panel that got its size may scroll or fold only then."""


class IdleBackend:
    """Answers nothing: what is shown was recorded."""

    def start(self) -> None:
        """Nothing to start."""

    def send(self, command: Command) -> None:
        """Nothing takes it."""

    def close(self, timeout: float = 2.0) -> bool:
        """Nothing to end."""
        return True


def picture(recording: Recording, size: tuple[int, int], light: bool = False) -> str:
    """The screen as it shows a recording, as SVG.

    Args:
        recording: Its path is shown, with the chosen token selected, or else the one to come.
        size: Columns and rows of the terminal.
        light: In the light theme.
    """
    with _full_colour():
        return asyncio.run(_picture(recording, size, light))


@contextmanager
def _full_colour() -> Iterator[None]:
    """A picture has all colours, whatever the terminal can show in which it is made."""
    before = dict(os.environ)
    os.environ.update(COLORTERM="truecolor", TERM="xterm-256color")
    os.environ.pop("NO_COLOR", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def _picture(recording: Recording, size: tuple[int, int], light: bool) -> str:
    settings = recording.settings or Settings()
    app = InspectorApp(
        recording.load or LoadSettings(),
        settings,
        engine=IdleBackend(),
        breakpoints=Breakpoints(),
        theme="light" if light else "dark",
        begins=Preferences(),
    )
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        client = app.controller.client
        client.outstanding.clear()
        client.timeline = _timeline(recording)
        app.main.show()
        before, title = "", figures.title(recording)
        for _ in range(SETTLING):
            await pilot.pause()
            drawn = app.export_screenshot(title=title)
            if drawn == before:
                break
            before = drawn
        return alone(drawn)


def _timeline(recording: Recording) -> Timeline:
    """The timeline on the recording's path, with its chosen token selected."""
    timeline, items = recording.timeline, recording.items
    if items and items[-1].node != timeline.tip:
        timeline.items, timeline.generation = items, timeline.generation + 1
        last = items[-1]
        if isinstance(last, Step):
            timeline.next, timeline.kv, timeline.memory = last.next, last.kv, last.memory
        elif timeline.prompts.prefilled is not None:
            timeline.next, timeline.kv = timeline.prompts.prefilled.next, timeline.prompts.prefilled.kv
    places = [place for place, item in enumerate(items) if item.node == recording.chosen]
    timeline.select(places[0] if places else None)
    return timeline
