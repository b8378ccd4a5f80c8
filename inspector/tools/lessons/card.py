"""A lesson's card: what it says in each phase, and its keys."""

from __future__ import annotations

from collections.abc import Iterator

from textual.content import Content

from inspector.display import visible
from inspector.keys import key_for
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.main.narration import Narration
from inspector.widgets.key_hints import KeyHint

HELP, BEFORE, AFTER, AGAIN, ON = "h", "j", "J", "Z", "⏎"
"""The card's own keys as a person reads them."""
BACK: KeyHint = (BEFORE, "back", 2)
LEAVE: KeyHint = (key_for("lessons"), "explore", 4)
RESET: KeyHint = (AGAIN, "again", 1)
LIST: KeyHint = (key_for("all_lessons"), "lessons", 5)


def card(play: LessonPlay, hint: bool = False, exploring: bool = False) -> Narration:
    """What a lesson's card says.

    Args:
        play: The lesson.
        hint: Whether the learner asked for one.
        exploring: Whether the learner left the card for a while.
    """
    title = _title(play)
    if exploring:
        body = Content(
            f"Explore freely. {key_for('lessons')} goes back to the lesson, {AGAIN} begins this beat again."
        )
        return Narration(title, body, ((key_for("lessons"), "back to the lesson", 5), RESET))
    body = Content("\n").join(_lines(play, hint))
    veiled = (
        frozenset() if play.phase in (LessonPhase.REVEALED, LessonPhase.ENDED) else frozenset(play.beat.hide)
    )
    hints = tuple(_hints(play, hint))
    return Narration(title, body, hints, play.beat.show, veiled, situation=_situation(play))


def numbers(play: LessonPlay) -> str:
    """The keys that predict, as a sentence names them."""
    return f"1-{len(play.options)}"


def _situation(play: LessonPlay) -> str:
    """What the status line says: what to press now, also where a dialog lies over the card."""
    explore = f"{key_for('lessons')} explores freely"
    if play.problem is not None:
        return f"{AFTER} goes to the next beat, {AGAIN} begins this one again"
    match play.phase:
        case LessonPhase.ASKING:
            return f"Predict with {numbers(play)}: keys that would show it wait. {explore}"
        case LessonPhase.ACTING if play.stage.left:
            return f"Press {visible(play.stage.left[0].keys)}"
        case LessonPhase.REVEALED:
            last = play.beat_number + 1 == len(play.lesson.beats)
            return f"{ON} ends the lesson" if last else f"{ON} goes to the next beat, {explore}"
        case LessonPhase.ENDED:
            return f"{ON} leaves the lesson, {key_for('all_lessons')} lists all of them"
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


def _hints(play: LessonPlay, hint: bool) -> Iterator[KeyHint]:
    if play.problem is not None:
        yield from ((AFTER, "next beat", 3), RESET, LIST)
        return
    match play.phase:
        case LessonPhase.ASKING:
            yield (numbers(play), "predict", 9)
        case LessonPhase.ACTING:
            yield (HELP, "have it done" if hint or not play.beat.hint else "hint", 6)
        case LessonPhase.REVEALED:
            yield (ON, "next", 9)
        case LessonPhase.ENDED:
            yield from ((ON, "end", 9), LIST)
            return
    yield from (BACK, RESET, LEAVE)
