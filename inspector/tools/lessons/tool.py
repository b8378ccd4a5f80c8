"""Lessons as a tool: the list, the lesson under way, and its keys."""

from __future__ import annotations

from collections.abc import Callable

from engine.settings import Settings
from inspector.lessons.catalogue import Listed
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.lessons.stages import LessonStage, LiveStage, RecordedStage
from inspector.main.narration import Narration
from inspector.main.tool import SCREEN, HelpSection, Host, Key, Tool, ToolActions
from inspector.tools.lessons.card import card


class LessonActions(ToolActions):
    """Begins lessons, and tells them beside the panels.

    Args:
        host: The main screen.
        first: The lesson to begin with, as soon as its model or its recording is there; None for none.
    """

    def __init__(self, host: Host, first: Listed | None = None) -> None:
        super().__init__(host)
        self._first = first
        self.play: LessonPlay | None = None
        self.exploring = False
        self._hint = False
        self._shown = ""
        """Panel or tool of the beat that was gone to last."""
        self._before: tuple[Settings, int] | None = None
        """The session as the lesson found it."""

    # ---- the lesson under way ---------------------------------------------------------------

    def show(self) -> None:
        """Everything is shown again: go on with the lesson as far as it can."""
        if self._first is not None and self._ready:
            first, self._first = self._first, None
            self.begin(first)
        if self.play is not None:
            self.play.tick()

    @property
    def _ready(self) -> bool:
        playback = self.host.playback
        recorded = playback is not None and playback.player is not None
        return recorded or (self.timeline.facts is not None and not self.controller.client.outstanding)

    def begin(self, listed: Listed, beat: int = 0) -> None:
        """Begin a lesson."""
        self.leave()
        self._before = self.controller.setup.settings, self.timeline.tip
        self.play = LessonPlay(listed.lesson, self._stage(listed), self.controller, self._told)
        self.exploring, self._shown = False, ""
        self.host.narrate(self)
        self.play.begin(beat)

    def _stage(self, listed: Listed) -> LessonStage:
        playback = self.host.playback
        if playback is not None and playback.player is not None:
            return RecordedStage(listed.lesson, playback.player)
        return LiveStage(listed.lesson, self.controller)

    def leave(self) -> None:
        """End the lesson; the session stays where it is."""
        if self.play is not None:
            self.play.close()
            self.play = None
            self.host.narrate(None)
            self.host.answer()

    def _told(self) -> None:
        """The lesson went on: show the panel that matters and the token that it speaks of."""
        play = self.play
        if play is None:
            return
        if (
            play.phase in (LessonPhase.ASKING, LessonPhase.ACTING, LessonPhase.REVEALED)
            and not self.exploring
        ):
            self._go_to(play.beat.show)
            self._look(play)
        self.host.narrate(self)

    def _go_to(self, panel: str) -> None:
        if panel and panel != self._shown:
            self._shown = panel
            if any(each.id == panel for each in self.host.arrangement.panels):
                self.host.go_to(panel)
            else:
                self.host.press(panel)

    def _look(self, play: LessonPlay) -> None:
        slot = play.beat.slot(self.timeline)
        if slot is not None and play.phase is LessonPhase.REVEALED:
            self.timeline.select(slot)

    # ---- narration --------------------------------------------------------------------------

    def narration(self) -> Narration | None:
        """What the card says now."""
        return card(self.play, self._hint, self.exploring) if self.play is not None else None

    def takes(self, key: str) -> bool:
        """Do what a key means to the lesson."""
        play = self.play
        if play is None or self.exploring:
            return False
        done = self._taken(play).get(key)
        if done is None and key.isdigit() and play.phase is LessonPhase.ASKING:
            play.predict(int(key) - 1)
            return True
        if done is not None:
            done()
            self.host.narrate(self)
        return done is not None

    def _taken(self, play: LessonPlay) -> dict[str, Callable[[], object]]:
        keys: dict[str, Callable[[], object]] = {
            "j": lambda: play.begin(play.beat_number - 1),
            "J": lambda: play.begin(play.beat_number + 1),
            "Z": lambda: play.begin(play.beat_number),
        }
        match play.phase:
            case LessonPhase.ACTING:
                keys["h"] = lambda: self._help(play)
            case LessonPhase.REVEALED:
                keys["enter"] = play.go_on
            case LessonPhase.ENDED:
                keys["enter"] = self.leave
        return keys

    def _help(self, play: LessonPlay) -> None:
        """The hint; and after it, have it done."""
        if play.beat.hint and not self._hint:
            self._hint = True
        else:
            play.do_it()

    def explore(self) -> None:
        """Leave the card to look around, or come back; without a lesson, the list."""
        if self.play is None:
            self.list()
            return
        self.exploring = not self.exploring
        self.host.narrate(self)

    def list(self) -> None:
        """Show all lessons."""
        from inspector.tools.lessons.list_dialog import LessonsDialog

        self.host.open(LessonsDialog(), lambda listed: self.begin(listed) if listed is not None else None)


def lessons(first: Listed | None = None) -> Tool:
    """The tool.

    Args:
        first: The lesson to begin with; None for none.
    """
    return Tool(
        "lessons",
        "Lessons",
        lambda host: LessonActions(host, first),
        keys=(
            Key("lessons", "S", "S", "Learn", SCREEN,
                "Lessons: predict, do it, and see. In a lesson: leave it to explore, and come back.",
                LessonActions.explore),
            Key("all_lessons", "V", "V", "All lessons", SCREEN, "Show all lessons; begin another one.",
                LessonActions.list),
        ),
        help=(
            HelpSection(
                "In a lesson",
                (
                    ("`1` to `4`", "Predict."),
                    ("`⏎`", "Go on, once it is revealed."),
                    ("`h`", "A hint; then have it done."),
                    ("`j` `J`", "Go a beat back, or on."),
                    ("`Z`", "Begin this beat again."),
                    ("`S`", "Explore freely, and come back."),
                ),
            ),
        ),
    )  # fmt: skip


LESSONS = lessons()
