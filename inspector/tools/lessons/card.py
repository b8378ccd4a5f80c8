"""A lesson's card: what it says in each phase, and its keys."""

from __future__ import annotations

from collections.abc import Iterator

from textual.content import Content

from engine.frozen import frozen
from inspector.display import visible
from inspector.keys import key_for
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.lessons.reading import MOST_OPTIONS
from inspector.main.narration import Narration
from inspector.widgets.actions import Action, ActionTable, Hint, hints_of


@frozen
class CardState:
    """What the card is about.

    Args:
        play: The lesson.
        hint: Whether the learner asked for one.
        exploring: Whether the learner left the card for a while.
    """

    play: LessonPlay
    hint: bool = False
    exploring: bool = False

    @property
    def phase(self) -> LessonPhase | None:
        """Of the beat; None where there is a problem, or the card was left."""
        return None if self.exploring or self.play.problem is not None else self.play.phase

    @property
    def over(self) -> bool:
        """Whether there is nothing but to leave, or to go past a problem."""
        return not self.exploring and (self.play.problem is not None or self.phase is LessonPhase.ENDED)


def _helps(own: CardState) -> str:
    if own.phase is not LessonPhase.ACTING:
        return ""
    return "have it done" if own.hint or not own.play.beat.hint else "hint"


def _explores(own: CardState) -> str:
    return "back to the lesson" if own.exploring else "" if own.over else "explore"


_BEATS, _READ = "Go a beat back, or on.", "Read on in a card that is longer than its room."


def _predicts(place: int) -> Action:
    """The action that predicts one of the options."""

    def word(own: CardState) -> str:
        return "predict" if own.phase is LessonPhase.ASKING and place < len(own.play.options) else ""

    text = "Predict: keys that would show the answer wait until then."
    return Action(f"lesson.predict_{place + 1}", f"Option {place + 1}", text, hint=word, worth=9)


PREDICTS = tuple(map(_predicts, range(MOST_OPTIONS)))
LESSON_KEYS = ActionTable(
    "In a lesson",
    (
        *PREDICTS,
        Action("lesson.go_on", "Go on", "Go on, once it is revealed.", worth=9,
               hint=lambda own: {LessonPhase.REVEALED: "next", LessonPhase.ENDED: "end"}.get(own.phase, "")),
        Action("lesson.help", "Hint", "A hint; then have it done.", hint=_helps, worth=6),
        Action("lesson.back", "Beat before", _BEATS, hint=lambda own: "" if own.over or own.exploring else "back",
               worth=2),
        Action("lesson.on", "Next beat", _BEATS, worth=3,
               hint=lambda own: "next beat" if own.over and own.play.problem is not None else ""),
        Action("lesson.again", "Again", "Begin this beat again.", worth=1,
               hint=lambda own: "" if own.phase is LessonPhase.ENDED else "again"),
        Action("lessons", "Explore", "Explore freely, and come back.", hint=_explores, worth=5),
        Action("lesson.read_back", "Read back", _READ),
        Action("lesson.read_on", "Read on", _READ),
        Action("all_lessons", hint=lambda own: "lessons" if own.over else "", worth=5),
    ),
)  # fmt: skip
"""What keys mean beside the card, before they mean anything else; the owner is a `CardState`."""


def card(play: LessonPlay, hint: bool = False, exploring: bool = False) -> Narration:
    """What a lesson's card says.

    Args:
        play: The lesson.
        hint: Whether the learner asked for one.
        exploring: Whether the learner left the card for a while.
    """
    title, state = _title(play), CardState(play, hint, exploring)
    hints = tuple(hints_of([[(state, each) for each in LESSON_KEYS.actions]]))
    if exploring:
        again = key_for("lesson.again")
        told = (
            f"Explore freely. {key_for('lessons')} goes back to the lesson, {again} begins this beat again."
        )
        return Narration(title, Content(told), hints)
    body = Content("\n").join(_lines(play, hint))
    veiled = (
        frozenset() if play.phase in (LessonPhase.REVEALED, LessonPhase.ENDED) else frozenset(play.beat.hide)
    )
    return Narration(title, body, hints, play.beat.show, veiled, situation=_situation(play))


def numbers(play: LessonPlay) -> str:
    """The keys that predict, as a sentence names them."""
    return Hint(PREDICTS[: len(play.options)], "", 0).keys


def _situation(play: LessonPlay) -> str:
    """What the status line says: what to press now, also where a dialog lies over the card."""
    explore = f"{key_for('lessons')} explores freely"
    if play.problem is not None:
        return (
            f"{key_for('lesson.on')} goes to the next beat, {key_for('lesson.again')} begins this one again"
        )
    match play.phase:
        case LessonPhase.ASKING:
            return f"Predict with {numbers(play)}: keys that would show it wait. {explore}"
        case LessonPhase.ACTING if play.stage.left:
            return f"Press {visible(play.stage.left[0].keys)}"
        case LessonPhase.REVEALED:
            last = play.beat_number + 1 == len(play.lesson.beats)
            on = key_for("lesson.go_on")
            return f"{on} ends the lesson" if last else f"{on} goes to the next beat, {explore}"
        case LessonPhase.ENDED:
            return f"{key_for('lesson.go_on')} leaves the lesson, {key_for('all_lessons')} lists all of them"
    return ""


def _title(play: LessonPlay) -> str:
    beats = len(play.lesson.beats)
    if play.phase is LessonPhase.ENDED:
        return visible(play.lesson.title)
    return visible(f"{play.lesson.title} {play.beat_number + 1}/{beats} · {play.beat.title}")


def _lines(play: LessonPlay, hint: bool) -> Iterator[Content]:
    if play.problem is not None:
        yield Content.styled(visible(str(play.problem)), "$text-error")
        return
    match play.phase:
        case LessonPhase.PREPARING:
            yield Content.styled("Getting ready", "$ink-muted")
        case LessonPhase.ENDED:
            yield from _ended(play)
        case LessonPhase.REVEALED:
            yield from _options(play)
            yield from map(Content, play.card.why)
        case _:
            yield from map(Content, play.card.text)
            yield from _asked(play)
            if play.phase is LessonPhase.ACTING:
                yield _to_do(play)
            if hint and play.beat.hint:
                yield Content.styled(visible(play.beat.hint), "$ink-muted")


def _asked(play: LessonPlay) -> Iterator[Content]:
    if play.card.question:
        yield Content.styled(play.card.question, "bold")
    yield from _options(play)


def _options(play: LessonPlay) -> Iterator[Content]:
    """The options in a line: before the reveal with the guess marked, after it with what is right."""
    if not play.options:
        return
    yield Content("   ").join(_option(play, place) for place in range(len(play.options)))


def _option(play: LessonPlay, place: int) -> Content:
    text = visible(play.options[place].text)
    revealed = play.phase is LessonPhase.REVEALED
    if revealed and place == play.card.right:
        return Content.styled(f"✓ {text}", "bold $text-success")
    if place == play.guess:
        return Content.styled(f"✗ {text}", "$text-error") if revealed else Content.styled(f"▸ {text}", "bold")
    if revealed or play.guess is not None:
        return Content.styled(f"  {text}", "$ink-muted")
    return Content.styled(f" {place + 1} ", "bold reverse $primary") + Content(f" {text}")


def _to_do(play: LessonPlay) -> Content:
    left = play.stage.left
    if not left:
        return Content.styled("Wait a moment", "$ink-muted")
    return Content.styled("▶ ", "bold $text-warning") + Content(f"Press {visible(left[0].keys)}.")


def _ended(play: LessonPlay) -> Iterator[Content]:
    asked = sum(beat.question is not None for beat in play.lesson.beats)
    if play.lesson.about:
        yield Content(visible(play.lesson.about))
    if asked:
        yield Content(f"{sum(play.right.values())} of {asked} predictions were right.")
