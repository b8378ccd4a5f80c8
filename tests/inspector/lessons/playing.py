"""Lessons gone through in the application, by its real keys: live and from their recordings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

from textual.pilot import Pilot

from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.keys import key_for, textual_name
from inspector.lessons.actions import LessonAction
from inspector.lessons.catalogue import Listed
from inspector.lessons.courses import CoursePlace
from inspector.lessons.lesson import LessonPhase
from inspector.lessons.play import LessonPlay
from inspector.lessons.stages import RecordedStage
from inspector.session.playback import Opening
from inspector.views import with_lesson
from inspector.views.lessons import LessonActions
from inspector.views.race import RaceView

PATIENCE = 120.0
"""Seconds for what should take one: machines are busy."""
WAITING = (LessonPhase.ASKING, LessonPhase.ACTING, LessonPhase.REVEALED)


class LearnerKeys:
    """A learner at the keyboard.

    Args:
        pilot: Of the application, with a lesson begun.
    """

    def __init__(self, pilot: Pilot[int]) -> None:
        self.pilot = pilot
        app = pilot.app
        assert isinstance(app, InspectorApp)
        self.app: InspectorApp = app
        found = self.app.main.own("lessons")
        assert isinstance(found, LessonActions)
        self.actions: LessonActions = found

    @property
    def play(self) -> LessonPlay:
        """The lesson under way."""
        assert self.actions.play is not None
        return self.actions.play

    @property
    def recorded(self) -> bool:
        """True if the lesson plays from its recording."""
        return isinstance(self.play.stage, RecordedStage)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        end = monotonic() + PATIENCE
        while not condition():
            assert monotonic() < end, self.text()
            await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def phase(self, *phases: LessonPhase) -> None:
        """Wait until the lesson is in one of some phases; a problem of it is an error."""
        await self.until(lambda: self.actions.play is not None)
        await self.until(lambda: self.play.problem is not None or self.play.phase in phases)
        assert self.play.problem is None, str(self.play.problem)

    def text(self) -> str:
        """What the terminal shows."""
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    @property
    def told(self) -> str:
        """What the card says; it may have more lines than there is room for."""
        narration = self.actions.narration()
        return narration.body.plain if narration is not None else ""

    async def press(self, *keys: str) -> None:
        """Press keys, one after another."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def press_for(self, id: str) -> None:
        """Press what a sentence names for an action now: its key, or first that of its tab."""
        await self.press(*map(textual_name, key_for(id).split()))

    async def do(self, action: LessonAction) -> None:
        """Do what a beat asks for by the keys that it names; by `h`, where a recording has no engine for them."""
        way = action.verb.action or ("" if self.recorded else WAYS.get(action.name, ""))
        if way:
            named = f"Press {key_for(way)}"
            await self.until(lambda: named in self.told)
            await self.press_for(way)
        elif self.recorded or action.name not in ("choose", "race"):
            key = key_for("lesson.help")
            await self.until(lambda: any(f"{key} {word}" in self.text() for word in ("hint", "do it for me")))
            await self.press(*(["h", "h"] if self.actions.hint else ["h"]))
        elif action.name == "choose":
            await self._choose(action.given)
        else:
            await self._race(int(action.given))

    async def _choose(self, text: str) -> None:
        """Highlight a candidate, and take it."""
        for _ in range(20):
            candidate = self.app.main.candidate
            if candidate is not None and candidate.text in (text, f" {text}"):
                break
            await self.press("down")
        await self.press("enter")

    async def _race(self, tokens: int) -> None:
        """Open the race, where it isn't, and start it."""
        if not isinstance(self.app.top, RaceView):
            await self.press_for("race")
            await self.until(lambda: isinstance(self.app.top, RaceView))
        screen = self.app.top
        assert isinstance(screen, RaceView)
        while screen.last != tokens:
            await self.press("left" if screen.last > tokens else "right")
        await self.press("space")

    async def beat(self, guess: int) -> None:
        """Go through one beat, and to the next one."""
        await self.phase(*WAITING)
        number = self.play.beat_number
        if self.play.phase is LessonPhase.ASKING:
            await self.press(str(guess % len(self.play.options) + 1))
            await self.phase(LessonPhase.ACTING, LessonPhase.REVEALED)
        while self.play.phase is LessonPhase.ACTING:
            left = self.play.stage.left
            await self.do(left[0])
            await self.until(lambda left=left: self._moved_on(left))  # type: ignore[misc]
        await self.phase(LessonPhase.REVEALED)
        await self.press("enter")
        await self.until(lambda: self.actions.play is None or self._left(number))

    def _moved_on(self, left: tuple[LessonAction, ...]) -> bool:
        """Whether an action was done, or a part of it: then it is looked at again."""
        busy = self.play.stage.busy
        return (
            self.play.problem is not None
            or self.play.stage.left != left
            or (not busy and left[0].name in PARTS)
        )

    def _left(self, number: int) -> bool:
        return self.play.beat_number != number or self.play.phase is LessonPhase.ENDED


WAYS: dict[str, str] = {
    "step": "step",
    "back": "take_back",
    "reroll": "reroll",
    "run": "run",
    "start": "take_back",
}
"""By the action's name: the id of the key that does it, or a part of it. What isn't here is had done with `h`."""
PARTS = ("step", "back", "start", "reroll")
"""Actions that a press does a part of."""


@asynccontextmanager
async def on_lesson(
    listed: Listed,
    size: tuple[int, int] = (120, 40),
    recorded: bool = False,
    present: bool = False,
    beat: int | None = None,
    course: CoursePlace | None = None,
) -> AsyncIterator[LearnerKeys]:
    """The application with a lesson begun."""
    app = InspectorApp(
        LoadSettings(listed.lesson.model),
        Settings() if recorded else listed.lesson.settings,
        trace=Opening(listed.trace, play=True) if recorded else None,
        tools=with_lesson(listed, present, beat, course),
        begins=Preferences(),
    )
    async with app.run_test(size=size) as pilot:
        learner = LearnerKeys(pilot)
        await learner.phase(*WAITING)
        yield learner
