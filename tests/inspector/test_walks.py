"""The page of walks is followed key by key, as it is written, on the real program: what it says is seen, is seen."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic

import pytest
from msgspec import Struct
from textual.pilot import Pilot

from inspector.app import InspectorApp
from inspector.cli.arguments import request_from
from inspector.cli.screen import screen_parser
from inspector.config.preferences import Preferences
from inspector.keys import textual_name
from inspector.lessons.catalogue import find
from inspector.main.help_pages import page
from inspector.views.lessons import LessonActions
from tests.inspector.lessons.playing import LearnerKeys

PATIENCE = 120.0
"""Seconds for what should take one: machines are busy."""
PRESSED = re.compile(r"`(?P<key>[^`]+)`(?: × (?P<times>\d+))?|\*(?P<typed>[^*]+)\*")
FRAMES = re.compile(r"[│┃╭╮╰╯─━┏┓┗┛▌▐]")


class Line(Struct, frozen=True):
    """One line of a walk."""

    keys: tuple[str, ...]
    """As Textual names them."""
    seen: tuple[str, ...]
    """Words that are on the screen afterwards; one of them was not before."""


def pressed(text: str) -> tuple[str, ...]:
    """The keys of a line: those in backticks, and the letters of what is typed."""
    keys: list[str] = []
    for each in PRESSED.finditer(text):
        named = [each["key"]] * int(each["times"] or 1) if each["key"] else [*each["typed"]]
        keys += map(textual_name, named)
    return tuple(keys)


def walks() -> dict[str, Sequence[Line]]:
    """The walks of the page, by their headings."""
    found: dict[str, Sequence[Line]] = {}
    for section in page("walks").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        numbered = re.findall(r"^\d+\. .*$", body, re.MULTILINE)
        lines = [re.match(r"\d+\. (.*?): (“.*)", each) for each in numbered]
        assert all(lines), (title, numbered)
        found[title] = [
            Line(pressed(each[1]), tuple(re.findall("“(.+?)”", each[2]))) for each in lines if each
        ]
    return found


WALKS = walks()
*_, HEAD_OFF, LEARNED = WALKS
LESSON = find("the-draw")
"""That of the last walk."""
EACH_SIZE = pytest.mark.parametrize(
    "size", [pytest.param((120, 40), marks=pytest.mark.slow), (80, 24)], ids=str
)


QUICK = {"The first minute", "Why this token, and what did the model look at?"}
"""Walks of the quick suite; the others are gone by the same code, each for one to two seconds."""


class Walker:
    """Somebody who follows the page.

    Args:
        pilot: Of the application.
    """

    def __init__(self, pilot: Pilot[int]) -> None:
        assert isinstance(pilot.app, InspectorApp)
        self.pilot, self.app = pilot, pilot.app

    @property
    def text(self) -> str:
        """The words on the screen: of its lines, and of the answer as running text."""
        strips = [*self.app.screen._compositor.render_strips()]
        area = self.app.main.area
        whole = " ".join(strip.text for strip in strips)
        answer = " ".join(strip.crop(area.x, area.right).text for strip in strips[area.y : area.bottom])
        return " ".join(FRAMES.sub(" ", f"{whole} {answer}").split())

    def shows(self, words: str) -> bool:
        """Whether words are on the screen."""
        return words in self.text

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for what can be seen."""
        end = monotonic() + PATIENCE
        while not holds():
            assert monotonic() < end, f"{what} never came:\n{self.lines()}"
            await self.pilot.pause(0.02)

    def lines(self) -> str:
        """What the terminal shows."""
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    def rested(self) -> bool:
        """Whether nothing is under way that a person would wait for."""
        app = self.app
        lessons = app.main.own("lessons")
        assert isinstance(lessons, LessonActions)
        busy = lessons.play is not None and lessons.play.stage.busy
        return not (app.controller.client.outstanding or app.inbox.waiting or app.main._stale or busy)

    async def follow(self, line: Line) -> None:
        """Press the keys of a line, and look at what it says is seen."""
        before = self.text
        for key in line.keys:
            await self.pilot.press(key)
            await self.until(f"an end of what {key} began", self.rested)
        for words in line.seen:
            await self.until(f"“{words}” after {line.keys}", partial(self.shows, words))
        assert any(words not in before for words in line.seen), (line, before)


@asynccontextmanager
async def walking(size: tuple[int, int]) -> AsyncIterator[Walker]:
    """The program as `inspector` starts it, but for its seed."""
    request = request_from(screen_parser().parse_args(["--seed", "7"]), default_prompt=True)
    app = InspectorApp(
        request.load, request.settings, request.prefill, begins=Preferences(), given=request.given_settings
    )
    async with app.run_test(size=size) as pilot:
        walker = Walker(pilot)
        await walker.until("the prompt", lambda: app.controller.timeline.prompts.prefilled)
        yield walker


@EACH_SIZE
@pytest.mark.parametrize("title", [
    pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in WALKS if each != HEAD_OFF
])  # fmt: skip
async def test_what_a_walk_says_is_seen(title: str, size: tuple[int, int]) -> None:
    async with walking(size) as walker:
        for line in WALKS[title]:
            await walker.follow(line)


@pytest.mark.slow
@EACH_SIZE
async def test_the_exported_page_names_the_head_that_was_off(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with walking(size) as walker:
        for line in WALKS[HEAD_OFF]:
            await walker.follow(line)
        named = re.search(r"(L\d h\d off)", walker.text)
        steps = walker.app.controller.timeline.completion
    assert named is not None
    first = next(each.index + 1 for each in steps if each.origin == "intervened")
    [html], [markdown] = tmp_path.glob("*.html"), tmp_path.glob("*.md")
    made = f"Made with interventions: {named[1]} (steps {first} to {len(steps)})"
    for text in (html.read_text(), markdown.read_text()):
        assert made in text
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html.read_text(), re.DOTALL)
    assert data is not None
    titles = [each["title"] for each in json.loads(data[1])["paths"]]
    assert [named[1] in each for each in titles].count(True) == 1, "its branch, and no other one"


@pytest.mark.slow
@EACH_SIZE
@pytest.mark.lesson(recorded=True)
async def test_the_cards_are_played_from_the_recording_too(
    learner: LearnerKeys, size: tuple[int, int]
) -> None:
    """With the guesses of the page, and `h` where a card names it."""
    guesses = [line.keys[line.keys[0] == "enter"] for line in WALKS[LEARNED][2:-2]]
    assert len(guesses) == len(learner.play.lesson.beats)
    for guess in guesses:
        await learner.beat(int(guess) - 1)
    assert all(learner.play.right.values()), "the page guesses right"
    assert "predictions were right" in learner.text()


def test_there_are_seven_and_each_line_says_what_is_seen() -> None:
    assert len(WALKS) == 7
    for title, lines in WALKS.items():
        for line in lines:
            assert line.keys, title
            assert line.seen, title
