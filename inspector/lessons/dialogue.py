"""A lesson as a dialogue of lines: for screen readers, and for classes without a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from inspector.display import visible
from inspector.lessons.headless import HeadlessSession, settle
from inspector.lessons.plain_panels import panel, text_so_far
from inspector.lessons.play import LessonPhase, LessonPlay

LEAVE = "q"


class Left(Exception):
    """Whoever answers has left."""


class LessonDialogue:
    """Tells a lesson line by line, and reads what is answered.

    Args:
        session: Where it takes place.
        play: The lesson; not begun.
        ask: Writes a prompt and returns the line that is answered, None at the end of the input.
        tell: Writes a line.
        beat: The one to begin with, from 0.
        keep: Called whenever another beat begins, and at the end.
    """

    def __init__(
        self,
        session: HeadlessSession,
        play: LessonPlay,
        ask: Callable[[str], str | None],
        tell: Callable[[str], None],
        beat: int = 0,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        self._session, self._play, self._ask, self._tell = session, play, ask, tell
        self._first, self._keep = beat, keep

    def hold(self) -> bool:
        """Go through the lesson.

        Returns:
            Whether it came to its end.

        Raises:
            LessonError: It can't go on.
        """
        play, lesson = self._play, self._play.lesson
        self._tell_all((visible(f"{lesson.title}. {lesson.minutes:g} minutes, {len(lesson.beats)} beats."),))
        if self._first:
            self._tell(f"It goes on at beat {self._first + 1}, where it was left.")
        play.begin(self._first)
        try:
            while play.phase is not LessonPhase.ENDED:
                self._beat()
        except Left:
            self._tell("Left.")
            return False
        self._end()
        return True

    def _tell_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._tell(line)

    def _answer(self, prompt: str) -> str:
        """A line; asks again after a hint."""
        while True:
            answer = self._ask(prompt)
            if answer is None or answer.strip().casefold() == LEAVE:
                raise Left
            if answer.strip().casefold() != "h":
                return answer.strip()
            self._tell(visible(self._play.beat.hint) or "There is no hint here.")

    # ---- a beat -----------------------------------------------------------------------------

    def _beat(self) -> None:
        play = self._play
        settle(self._session, play, LessonPhase.ASKING, LessonPhase.ACTING, LessonPhase.REVEALED)
        self._begin()
        if play.phase is LessonPhase.ASKING:
            self._predict()
            settle(self._session, play, LessonPhase.ACTING, LessonPhase.REVEALED)
        if play.phase is LessonPhase.ACTING:
            self._act()
        self._reveal()
        last = play.beat_number + 1 == len(play.lesson.beats)
        self._answer("Enter ends the lesson, q leaves: " if last else "Enter for the next beat, q leaves: ")
        play.go_on()
        self._keep()

    def _begin(self) -> None:
        play = self._play
        self._tell("")
        self._tell(visible(f"Beat {play.beat_number + 1} of {len(play.lesson.beats)}: {play.beat.title}."))
        self._tell_all(play.card.text)
        self._look(revealed=False)

    def _look(self, revealed: bool) -> None:
        """What the screen would show, but for what is hidden until the reveal."""
        beat, timeline = self._play.beat, self._session.controller.timeline
        if revealed or "text" not in beat.hide:
            self._tell(f"Text so far: {text_so_far(timeline) or 'none'}")
        if beat.show and (revealed or beat.show not in beat.hide):
            slot = beat.slot(timeline) if revealed else None
            self._tell_all(panel(beat.show, timeline, slot, self._play.scope.since, revealed))

    def _predict(self) -> None:
        play = self._play
        self._tell(f"Question: {play.card.question}")
        self._tell_all(f"  {place}. {visible(each.text)}" for place, each in enumerate(play.options, 1))
        most = len(play.options)
        while True:
            answer = self._answer(f"Your answer, 1 to {most} (h hint, Enter for none, q leaves): ")
            if not answer:
                play.skip_question()
                return
            if answer.isdecimal() and play.predict(int(answer) - 1):
                return
            self._tell(f"Type a number from 1 to {most}.")

    def _act(self) -> None:
        play = self._play
        left = play.stage.left
        for action in left:
            self._tell(visible(f"To do; on the screen: press {action.keys}."))
        self._answer("Enter does it (h hint, q leaves): ")
        play.do_it()
        settle(self._session, play, LessonPhase.REVEALED)
        self._tell(visible(f"Done: {', '.join(map(str, left))}."))

    def _reveal(self) -> None:
        play = self._play
        right, guess = play.card.right, play.guess
        if right is not None:
            answer = visible(play.options[right].text)
            if guess is None:
                self._tell(f"The answer: {answer}.")
            elif guess == right:
                self._tell(f"Right: {answer}.")
            else:
                self._tell(f"Not right: you said {visible(play.options[guess].text)}; it is {answer}.")
        self._tell_all(play.card.why)
        self._look(revealed=True)

    def _end(self) -> None:
        play = self._play
        asked = sum(beat.question is not None for beat in play.lesson.beats)
        self._tell("")
        if play.lesson.about:
            self._tell(visible(play.lesson.about))
        if asked:
            self._tell(f"{sum(play.right.values())} of {asked} predictions were right.")
