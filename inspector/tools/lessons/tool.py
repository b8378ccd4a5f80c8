"""Lessons as a tool: the list, the lesson under way, and its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.settings import Settings
from inspector.lessons.catalogue import Listed
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.lessons.stages import LessonStage, LiveStage, RecordedStage
from inspector.main.narration import Narration, NarrationCard
from inspector.main.panels.text import TextPanel
from inspector.main.panels.token_views import BORDERS, OFF
from inspector.main.tool import SCREEN, HelpSection, Host, Key, Tool, ToolActions
from inspector.tools.lessons.card import card

SHOWN = (LessonPhase.ASKING, LessonPhase.ACTING, LessonPhase.REVEALED)
"""Phases in which the beat's panel is gone to."""


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
        self._bordered = False
        """Whether the borders of tokens are drawn for the lesson alone."""
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
        self.exploring = False
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
            self._draw_borders(False)
            self.host.narrate(None)
            self.host.answer()

    def _told(self) -> None:
        """The lesson went on: show the panel that matters and the token that it speaks of."""
        play = self.play
        if play is None:
            return
        if play.phase is LessonPhase.PREPARING:
            self._hint = False
        if play.phase in SHOWN and not self.exploring:
            self._go_to(play.beat.show, play.phase)
            self._look(play)
        self.host.narrate(self)

    def _go_to(self, panel: str, phase: LessonPhase) -> None:
        """Show the panel that matters; a tool's own screen once there is something on it."""
        if not panel:
            return
        if any(each.id == panel for each in self.host.arrangement.panels):
            self.host.to_main()
            if panel != self.host.arrangement.current:
                self.host.go_to(panel)
            self._draw_borders(panel == self.host.arrangement.text)
        elif panel != self.host.over:
            self.host.to_main()
            if phase is LessonPhase.REVEALED:
                self._open_screen(panel)

    def _open_screen(self, show: str) -> None:
        """Open the tool's own screen that a beat is about, if it is one."""
        if show and show != self.host.over and all(each.id != show for each in self.host.arrangement.panels):
            self.host.press(show)

    def _draw_borders(self, wanted: bool) -> None:
        """Draw the borders of the tokens while the text is what matters, where it is plain otherwise."""
        text = self.host.panel(TextPanel)
        if wanted and text.view == OFF:
            text.view, self._bordered = BORDERS, True
        elif not wanted and self._bordered:
            text.view, self._bordered = OFF, False

    def _look(self, play: LessonPlay) -> None:
        """Select the token that the beat speaks of: before its reveal only where that tells nothing."""
        revealed = play.phase is LessonPhase.REVEALED
        if not revealed and (play.beat.hide or play.beat.act):
            if play.guess is None:
                self.timeline.select(None)
            return
        what, _, number = play.beat.look.partition(" ")
        slots: Sequence[int] = ()
        if what in ("step", "prompt"):
            slots = self.timeline.step_slots if what == "step" else range(len(self.timeline.items))
        place = int(number) - 1 if number.isdigit() else -1
        self.timeline.select(slots[place] if 0 <= place < len(slots) else None)

    # ---- narration --------------------------------------------------------------------------

    def narration(self) -> Narration | None:
        """What the card says now."""
        return card(self.play, self._hint, self.exploring) if self.play is not None else None

    def takes(self, key: str) -> bool:
        """Do what a key means to the lesson."""
        play = self.play
        if play is None:
            return False
        done = self._taken(play).get(key)
        if done is None and key.isdigit() and not self.exploring and play.phase is LessonPhase.ASKING:
            play.predict(int(key) - 1)
            return True
        if done is not None:
            done()
            self.host.narrate(self)
        return done is not None

    def _taken(self, play: LessonPlay) -> dict[str, Callable[[], object]]:
        if self.exploring:
            return {"S": self.explore, "Z": lambda: self._again(play)}
        keys: dict[str, Callable[[], object]] = {
            "S": self.explore,
            **self._paging(),
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

    def _again(self, play: LessonPlay) -> None:
        """Come back from exploring to the beginning of the beat."""
        self.exploring = False
        play.begin(play.beat_number)

    def _paging(self) -> dict[str, Callable[[], object]]:
        """Keys of a card that is longer than its room."""
        card = self.host.panel(NarrationCard)
        return {"pageup": lambda: card.page(-1), "pagedown": lambda: card.page(1)} if card.overflows else {}

    def _help(self, play: LessonPlay) -> None:
        """The hint; and after it, have it done."""
        if play.beat.hint and not self._hint:
            self._hint = True
            return
        self._open_screen(play.beat.show)
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
                    ("`pgup` `pgdn`", "Read on in a card that is longer than its room."),
                ),
            ),
        ),
    )  # fmt: skip


LESSONS = lessons()
