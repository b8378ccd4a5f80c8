"""A running lesson: its current beat, the learner's predictions, and the words of the card. Without Textual.

    preparing -> asking -> acting -> revealing -> revealed -> the next beat
                (a question)  (something to do)

The stage brings the session to the beginning of the beat. The values in the beat's text are read from the records, and
the engine is asked for those that no record has. Each change of phase waits until nothing is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from inspector.lessons.catalogue import LessonProgress
from inspector.lessons.errors import LessonError
from inspector.lessons.lesson import Beat, Lesson, LessonPhase, Option
from inspector.lessons.quantities import Scope, Unanswered
from inspector.lessons.stages import LessonStage
from inspector.lessons.values import Value
from inspector.scales import counted
from inspector.session.controller import Controller


class Card(Struct):
    """The current words of a beat; printable."""

    text: tuple[str, ...] = ()
    question: str = ""
    why: tuple[str, ...] = ()
    answer: Value | None = None
    """The answer, once it is revealed."""
    right: int | None = None
    """The option that holds the answer, from 0."""
    number: Value | None = None


@dataclass
class LessonPlay:
    """One run of a lesson.

    Args:
        lesson: The lesson.
        stage: Where the lesson runs.
        controller: The session.
        on_change: Called after each change.
    """

    lesson: Lesson
    stage: LessonStage
    controller: Controller
    on_change: Callable[[], None] = lambda: None
    beat_number: int = 0
    phase: LessonPhase = LessonPhase.PREPARING
    card: Card = field(default_factory=Card)
    guesses: dict[int, int] = field(default_factory=dict)
    """The option that the learner chose, from 0, by beat."""
    right: dict[int, bool] = field(default_factory=dict)
    """True if that option was right, by beat."""
    problem: LessonError | None = None
    """The reason that the lesson can't continue."""

    def __post_init__(self) -> None:
        self.scope = Scope(self.controller)
        self._marked = False

    def close(self) -> None:
        """Leave; the session stays as it is."""
        self.scope.close()
        self.stage.close()

    @property
    def beat(self) -> Beat:
        """The current beat."""
        return self.lesson.beats[self.beat_number]

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of the current question."""
        return self.beat.question.options if self.beat.question is not None else ()

    @property
    def guess(self) -> int | None:
        """The learner's option in this beat."""
        return self.guesses.get(self.beat_number)

    @property
    def progress(self) -> LessonProgress:
        """The progress to save."""
        over = self.phase is LessonPhase.ENDED
        return LessonProgress(0 if over else self.beat_number, dict(self.right), over)

    @property
    def result(self) -> str:
        """The number of right predictions, in a sentence; empty if none was made."""
        right, made = sum(self.right.values()), len(self.right)
        return (
            f"{right} of {counted(made, 'prediction')} {'was' if 1 in (right, made) else 'were'} right."
            if made
            else ""
        )

    def know(self, kept: LessonProgress, beat: int) -> None:
        """Take over the saved results of the predictions before a beat."""
        self.right |= {number: right for number, right in kept.right.items() if number < beat}

    # ---- what the learner does --------------------------------------------------------------

    def begin(self, beat: int = 0) -> None:
        """Go to a beat, from anywhere; an earlier prediction in it is forgotten."""
        self.beat_number = max(0, min(len(self.lesson.beats) - 1, beat))
        self.guesses.pop(self.beat_number, None)
        self.put_back()

    def put_back(self) -> None:
        """Go back to the beginning of the current beat, and keep the prediction in it."""
        self.right.pop(self.beat_number, None)
        self.phase, self.card, self._marked, self.problem = LessonPhase.PREPARING, Card(), False, None
        self.scope.forget()
        self._guarded(lambda: self.stage.begin(self.beat_number, self.scope.forget))
        self.on_change()

    def predict(self, option: int) -> bool:
        """Make a prediction; returns False if none is asked for, or if there is no such option."""
        if self.phase is not LessonPhase.ASKING or not 0 <= option < len(self.options):
            return False
        self.guesses[self.beat_number] = option
        self._on()
        return True

    def skip_question(self) -> None:
        """Continue without a prediction."""
        if self.phase is LessonPhase.ASKING:
            self._on()

    def do_it(self) -> None:
        """Do the learner's actions."""
        if self.phase is LessonPhase.ACTING:
            self._guarded(self.stage.act)
            self.tick()

    def go_on(self) -> bool:
        """Go to the next beat, or end the lesson after the last one; returns False before the reveal."""
        if self.phase is not LessonPhase.REVEALED:
            return False
        if self.beat_number + 1 < len(self.lesson.beats):
            self.begin(self.beat_number + 1)
        else:
            self.phase = LessonPhase.ENDED
            self.on_change()
        return True

    # ---- from phase to phase ----------------------------------------------------------------

    def tick(self) -> None:
        """Continue as far as possible; called after each record and once a frame."""
        before = self._shown
        self._guarded(self._tick)
        if self._shown != before:
            self.on_change()

    @property
    def _shown(self) -> tuple[object, ...]:
        """Everything that determines the card's words within a beat."""
        acting = self.phase is LessonPhase.ACTING
        return self.phase, self.problem, acting and self.stage.left, self.stage.missed, self.stage.pending

    def _tick(self) -> None:
        if self.problem is not None or self.phase in (LessonPhase.ENDED, LessonPhase.REVEALED):
            return
        self.stage.tick()
        if self.stage.busy or self.scope.waiting:
            return
        try:
            self._advance()
        except Unanswered as question:
            self.scope.ask(question.command)

    def _advance(self) -> None:
        match self.phase:
            case LessonPhase.PREPARING:
                self._prepared()
            case LessonPhase.ACTING if self.stage.done:
                self.stage.reached(True)
                self.phase = LessonPhase.REVEALING
                self._reveal()
            case LessonPhase.REVEALING:
                self._reveal()
            case _:
                pass

    def _prepared(self) -> None:
        if not self._marked:
            self.stage.reached(False)
            self._marked = True
        for name, expression in self.beat.keep:
            self.scope.kept[name] = expression.value(self.scope)
        self.card.text = tuple(each.filled(self.scope) for each in self.beat.text)
        if self.beat.question is not None:
            self.card.question = self.beat.question.text.filled(self.scope)
            self.phase = LessonPhase.ASKING
        if self.beat.question is None or self.guess is not None:
            self._on()

    def _on(self) -> None:
        """Continue after the prediction: with the task, or with the reveal."""
        self.phase = LessonPhase.ACTING if self.beat.act else LessonPhase.REVEALING
        self.on_change()
        self.tick()

    def _reveal(self) -> None:
        question = self.beat.question
        if question is not None:
            value = question.answer.value(self.scope)
            self.card.right = next(
                (place for place, each in enumerate(self.options) if each.holds(value)), None
            )
            self.card.answer = value
            if self.guess is not None:
                self.right[self.beat_number] = self.guess == self.card.right
        self.card.number = self.beat.number.value(self.scope) if self.beat.number is not None else None
        self.card.why = tuple(each.filled(self.scope) for each in self.beat.why)
        self.phase = LessonPhase.REVEALED

    def _guarded(self, what: Callable[[], None]) -> None:
        try:
            what()
        except LessonError as error:
            self.problem = error
