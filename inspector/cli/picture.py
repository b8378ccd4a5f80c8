"""A picture of the screen as it shows a recording, drawn without a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import rich.console

from engine.breakpoints import Breakpoints
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.export.documents import alone
from inspector.export.recording import Recording
from inspector.session.client import IdleBackend

SETTLING = 8
"""Drawn at most so many times, until two in a row are alike: a panel that got its size may scroll or fold only then."""


def picture(recording: Recording, size: tuple[int, int], light: bool = False) -> str:
    """The screen as it shows a recording, as SVG. In a thread of its own: a notebook has a loop running already.

    Args:
        recording: Its path is shown, with the chosen token selected, or else the one to come.
        size: Columns and rows of the terminal.
        light: In the light theme.
    """
    with _anywhere(), ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(_picture(recording, size, light))).result()


@contextmanager
def _anywhere() -> Iterator[None]:
    """A picture has all colours, whatever the terminal can show in which it is made, and a notebook shows no frames.

    Textual records the screen with a console of rich, which prints what it records where it finds a notebook; Textual
    has no argument that would tell it otherwise (rich 15, `Console(force_jupyter=False)`).
    """
    before, in_notebook = dict(os.environ), rich.console._is_jupyter
    rich.console._is_jupyter = lambda: False
    os.environ.update(COLORTERM="truecolor", TERM="xterm-256color")
    os.environ.pop("NO_COLOR", None)
    try:
        yield
    finally:
        rich.console._is_jupyter = in_notebook
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
        client.forget()
        client.timeline = timeline = recording.timeline
        if recording.items and recording.tip != timeline.tip:
            timeline.visit(recording.tip)
        chosen = (place for place, item in enumerate(recording.items) if item.node == recording.chosen)
        timeline.select(next(chosen, None))
        app.main.show()
        before, heading, made = "", recording.heading, recording.made
        for _ in range(SETTLING):
            await pilot.pause()
            drawn = app.export_screenshot(title=heading)
            if drawn == before:
                break
            before = drawn
        return alone(drawn, made)
