"""Takes the pictures of README and the help anew: python -m tests.pictures [NAME ...].

Each is a walk of keys through the program on the bundled model, or in a recording, drawn without a terminal once
nothing moves any more. What is random has a seed; times are those of this machine. Nothing that a person set on it
counts: no preferences, presets, breakpoints or sessions of theirs. A picture that no longer shows what its caption in
its page says needs another walk.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from textual.app import App
from textual.pilot import Pilot

import inspector
from engine.breakpoints import Breakpoints
from engine.grammar_settings import Grammar
from engine.protocol import NO_OPTIONS, ChatOptions, Message, Prefill
from engine.settings import LoadSettings, Settings, SpeculationSettings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.demo import DEMONSTRATION
from inspector.demo import LESSON as DEMONSTRATIONS_LESSON
from inspector.export.documents import alone
from inspector.lessons.catalogue import find, listed
from inspector.main.tool import Tool
from inspector.served.opening import OpenedRequest, ServedFile, exchanges_of, opened_request
from inspector.session.playback import Opening
from inspector.views import TOOLS, with_lesson, with_request
from tests.film import film
from tests.templates import source

PLACE = Path(inspector.__file__).parent / "pictures"
PATIENCE = 300.0
"""Seconds for what should take some: a race takes ten, machines are busy."""
NAP = 0.02


class Seen(Struct, frozen=True):
    """A walk goes on once some words are on the screen."""

    words: str


class Hold(Struct, frozen=True):
    """A film shows the screen as it is then for some seconds."""

    seconds: float


Walk = Sequence[str | Seen | Hold]
"""Keys, one after another, each once nothing is under way that the one before began."""


class Picture(Struct, frozen=True):
    """What is on show, and the keys that lead there."""

    walk: Walk = ()
    prompt: str = "Once upon a time"
    settings: Settings = field(default_factory=lambda: sampled(7))
    size: tuple[int, int] = (120, 40)
    chat: bool = False
    load: LoadSettings = field(default_factory=LoadSettings)
    speculation: SpeculationSettings | None = None
    recording: Path | None = None
    lesson: str = ""
    """Its name; empty for none."""
    request: int = 0
    """Number of one that was recorded of a server; 0 for none."""
    presents: bool = False
    messages: tuple[Message, ...] = ()
    """A conversation, in the place of the prompt."""
    options: ChatOptions = NO_OPTIONS
    metric: str = "surprisal"
    """What the text is coloured by."""


def sampled(seed: int, **others: Any) -> Settings:
    """The settings of most pictures: a story of 60 tokens, drawn."""
    return Settings(**{"temp": 0.8, "top_p": 0.95, "max_tokens": 60, "seed": seed, **others})


def typed(text: str) -> tuple[str, ...]:
    """The keys of a text."""
    return tuple("space" if character == " " else character for character in text)


SERVED = Path(__file__).parent / "inspector" / "served" / "served.har"
AS_SERVED = LoadSettings(dtype="file", blas="bundled")
"""As mlx_lm.server computes."""
NAMED = "Once upon a time, there was a little boy named Max and a girl named Sue. One day, Max went to the park with"
KITE = "Tim had a red kite. Sue had a blue ball. Tim played with his red"
DOG = "Tell me a story about a dog."
SCHEMA = Grammar(
    "json-schema",
    '{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"]}',
)
RARE = sampled(2, temp=0.9, top_p=0.98)
RARE_STEP: Walk = ("r", "g", *typed("51"), "enter", "2")
LONG = sampled(7, max_tokens=100)
FORKED: Walk = (
    "r", "g", *typed("11"), "enter", "down", "enter", *["space"] * 3, "g", *typed("12"), "enter", "down", "enter",
    "space", "space", "4", "b", "p", "ctrl+a", *typed("Once upon a hill"), "ctrl+s", "r", "f",
)  # fmt: skip
ASKED = (
    Message("system", "You tell short stories about dogs."),
    Message("user", "Where is the red ball?"),
    Message(
        "assistant", "",
        json.dumps({"reasoning_content": "I have to look for it.", "tool_calls": [
            {"type": "function", "function": {"name": "find", "arguments": {"toy": "red ball"}}}]}),
    ),
    Message("tool", "in the park"),
)  # fmt: skip
FIND = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Finds a toy.",
        "parameters": {"type": "object", "properties": {"toy": {"type": "string"}}},
    },
}
THOUGHT = ChatOptions(
    config=json.dumps({"chat_template": source("qwen3")}),
    tools=json.dumps([FIND]),
    response="<think>\nIt is in the park, so a dog may have it.\n</think>\n\nThe dog",
)
"""The bundled model has no thinking of its own: its answer goes on from one that is given."""
DRAW = "the-draw"
REVEALED: Walk = (Seen("Which token does it fall on?"), "2", "space", Seen("next"))
PRESENTED: Walk = (
    Seen("Which token does it fall on?"), "v", *typed("12 7 3"), "enter", "pagedown", "pagedown", Seen("✓ boy"),
)  # fmt: skip

FILMED: Walk = (
    Hold(1.2), "space", Hold(0.6), "space", Hold(0.6), "space", Hold(0.6), "space", Hold(0.9), "down", Hold(0.7),
    "enter", Hold(1.2), "2", Hold(2.2), "-", "-", "-", Hold(1.6), "escape", "3", "A", Hold(1.8), "D", Hold(2.0),
    "escape", "1", "r", Hold(1.8),
)  # fmt: skip

PICTURES: Mapping[str, Picture] = {
    "screen": Picture(("r",)),
    "film": Picture(FILMED, settings=Settings(temp=1.0, min_p=0.05, seed=7), size=(110, 32)),
    "lesson": Picture((Seen("Which token does it fall on?"),), lesson=DRAW),
    "lesson-revealed": Picture(REVEALED, lesson=DRAW),
    "presenter": Picture(PRESENTED, lesson=DRAW, presents=True, size=(60, 24)),
    "sampler": Picture(RARE_STEP, settings=RARE, size=(100, 40)),
    "sampler-80x24": Picture(RARE_STEP, settings=RARE, size=(80, 24)),
    "what-if": Picture((*RARE_STEP, "s", *typed("0.6")), settings=RARE, size=(100, 40)),
    "grammar": Picture(
        (*["space"] * 9, "g", "2", "enter", "j"), settings=sampled(3, top_p=1.0, grammar=SCHEMA)
    ),
    "tree": Picture(FORKED, settings=sampled(7, max_tokens=14)),
    "chat": Picture(
        ("r", "4", "R", *typed("Why?"), "ctrl+s", "r", "R", *typed("And the cat?"), "ctrl+s", "r", "1"),
        prompt=DOG,
        chat=True,
        settings=sampled(3, max_tokens=24),
    ),
    "segments": Picture(
        ("r", "1", "W", Seen("tool call"), "up", "up"),
        messages=ASKED,
        options=THOUGHT,
        metric="segment",
        settings=sampled(3, max_tokens=24),
    ),
    "tokens": Picture(("r", "e", "e")),
    "prompt": Picture(("p", Seen("20 tokens")), prompt=DOG, chat=True, settings=sampled(3)),
    "beams": Picture((*["space"] * 4, "4", "B", *["space"] * 10), settings=LONG),
    "speculation": Picture(("5", "d", *["space"] * 8, "c"), speculation=SpeculationSettings("self-4bit")),
    "batch": Picture(
        (
            "5",
            "b",
            "n",
            "right",
            "ctrl+j",
            *typed("Lily had a red ball. She liked"),
            "ctrl+s",
            *["space"] * 6,
        ),
        settings=sampled(3),
    ),
    "draws": Picture(("o", "space"), prompt="Once upon a time, there was a"),
    "second-model": Picture(
        ("r", "4", "h", "o", Seen("this model in 4 bits"), "down", "enter", Seen("mean KL"), "g")
    ),
    "attention": Picture(("3", "A"), prompt=NAMED),
    "contributions": Picture(("3", "D"), prompt=NAMED),
    "switch-off": Picture(("4", "X"), prompt=NAMED),
    "lens": Picture(("3", "I"), prompt=NAMED),
    "gradients": Picture(("3", "g"), prompt=NAMED),
    "scores": Picture(("3", "V"), prompt=NAMED),
    "steering": Picture(("4", "S", "enter", "ctrl+s", Seen("random")), prompt=NAMED),
    "triangle": Picture(("3", "A", "a"), prompt=KITE),
    "modules": Picture(("3",)),
    "replay": Picture(("1", "J", "2"), recording=DEMONSTRATION),
    "served": Picture((Seen("named ␣"), "left", "left", "left"), request=33, load=AS_SERVED),
    "ranks": Picture((*["space"] * 12, "5", "R", "r"), load=LoadSettings(ranks=2)),
    "race": Picture(("5", "z", "space")),
    "costs": Picture(("5", "P")),
    "kv": Picture(("r", "5", "f")),
    "kv-80x24": Picture(("r", "5", "f"), settings=LONG, size=(80, 24)),
    "time": Picture(("r", "5", "t", "f")),
    "time-80x24": Picture(("r", "5", "t", "f"), settings=LONG, size=(80, 24)),
}
"""By the name of the file, in the order in which the pages show them."""


class Sitting:
    """Somebody at the program, who waits for what can be seen.

    Args:
        app: The program.
        pilot: Its keyboard.
    """

    def __init__(self, app: App[Any], pilot: Pilot[Any]) -> None:
        self._app, self._pilot = app, pilot
        self.frames: list[tuple[str, float]] = []
        """What was held so far, and for how many seconds."""

    async def walk(self, walk: Walk) -> None:
        """Press the keys."""
        await self._still()
        for each in walk:
            if isinstance(each, Seen):
                await self.until(lambda words=each.words: words in self._text())  # type: ignore[misc]
            elif isinstance(each, Hold):
                self.frames.append((alone(self.drawn()), each.seconds))
            else:
                await self._pilot.press(each)
            await self._still()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait.

        Raises:
            TimeoutError: It never came.
        """
        end = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError(f"it never came:\n{self._text()}")
            await self._pilot.pause(NAP)

    async def _still(self) -> None:
        """Wait until nothing is under way, and two frames are alike."""
        before = ""
        while True:
            await self.until(lambda: _rests(self._app))
            await self._pilot.pause(NAP)
            drawn = self.drawn()
            if drawn == before and _rests(self._app):
                return
            before = drawn

    def drawn(self) -> str:
        """The screen as SVG."""
        return self._app.export_screenshot(title="inspector")

    def _text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self._app.screen._compositor.render_strips())


def _rests(app: App[Any]) -> bool:
    """Whether nothing is under way that would change the screen."""
    if not isinstance(app, InspectorApp):
        return True
    controller = app.controller
    asking = controller.queries._explain.waiting or controller.queries._what_if.waiting
    return controller.resting and not (asking or app.inbox.waiting or app.main._stale)


def _tools(picture: Picture) -> Sequence[Tool]:
    if picture.recording is not None:
        return with_lesson(listed(DEMONSTRATIONS_LESSON))
    if picture.request:
        return with_request(recorded_request(picture.request))
    return with_lesson(find(picture.lesson), picture.presents) if picture.lesson else TOOLS


def recorded_request(number: int) -> OpenedRequest:
    """One of the requests to mlx_lm.server that the tests have."""
    exchanges = tuple(exchanges_of(str(SERVED)))
    return opened_request(
        ServedFile(SERVED.name, exchanges), next(each for each in exchanges if each.number == number)
    )


async def take(picture: Picture) -> str:
    """The picture as SVG that needs nothing else."""
    begins = picture.recording is None and not picture.lesson
    request = recorded_request(picture.request).request if picture.request else None
    settings = request.settings if request is not None else picture.settings
    app = InspectorApp(
        picture.load,
        find(picture.lesson).lesson.settings if picture.lesson else settings,
        Prefill(
            (request.prompt if request is not None else picture.prompt) if begins else "",
            picture.chat or request is not None,
            messages=request.messages if request is not None else picture.messages,
            options=picture.options,
        ),
        breakpoints=Breakpoints(),
        trace=Opening(picture.recording, play=True) if picture.recording is not None else None,
        tools=_tools(picture),
        begins=Preferences(metric=picture.metric),
        speculation=picture.speculation,
    )
    async with app.run_test(size=picture.size) as pilot:
        sitting = Sitting(app, pilot)
        if begins:
            await sitting.until(lambda: app.controller.timeline.prompts.prefilled)
        await sitting.walk(picture.walk)
        if sitting.frames:
            return film(sitting.frames)
        return alone(sitting.drawn())


def draw(name: str) -> None:
    """Write one picture."""
    (PLACE / f"{name}.svg").write_text(asyncio.run(take(PICTURES[name])), encoding="utf-8")


def main(names: Sequence[str]) -> int:
    """Take some of the pictures, or all, each in a process of its own: peaks and cold starts are its own then, too."""
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        print(f"There is no picture {unknown[0]}. There are {', '.join(PICTURES)}.", file=sys.stderr)
        return 2
    os.environ.update(COLORTERM="truecolor", TERM="xterm-256color")
    os.environ.pop("NO_COLOR", None)
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(
            dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"), home)
        )
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as processes:
            for name in names or PICTURES:
                processes.submit(draw, name).result()
                print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
