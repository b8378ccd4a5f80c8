"""The page of a lesson: all its beats in one document, which a script shows one at a time.

Without the script the answers are folded. What a lesson's file and its recording say is text in elements: no markup is
put together from it, and the page's policy lets no other script run.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from xml.etree.ElementTree import Element

from engine.errors import EngineError
from engine.frozen import frozen
from inspector.display import visible
from inspector.lessons.headless import go_through, recorded_play, recorded_session, settle
from inspector.lessons.lesson import Beat, Lesson
from inspector.lessons.play import Card, LessonPhase, LessonPlay
from inspector.tools.export import assets
from inspector.tools.export.element import element, written
from inspector.tools.export.lesson.views import View
from inspector.tools.export.lesson.words import done

SCRIPTS = ("numbers.js", "lesson.js")


@frozen
class ShownBeat:
    """One beat, gone through."""

    beat: Beat
    card: Card
    before: Element
    after: Element | None
    """None where it is as it was before."""


def page(lesson: Lesson, trace: Path) -> str:
    """The page.

    Args:
        lesson: The lesson.
        trace: Its recording.

    Raises:
        EngineError: There is no recording, or it is of something else.
        LessonError: The recording is of another version of the lesson.
    """
    if not trace.is_file():
        raise EngineError(f"There is no recording {trace}.", "inspector lesson record FILE makes it.")
    beats = shown(lesson, trace)
    style = assets.style("page.css", "lesson.css")
    script = assets.script(SCRIPTS)
    about = [element("p", visible(lesson.about), class_="about")] if lesson.about else []
    total = len(beats)
    minutes = f", about {lesson.minutes:g} minutes" if lesson.minutes else ""
    return assets.filled("lesson.html", {
        "policy": escape(assets.policy(style, script)),
        "title": escape(visible(lesson.title)),
        "kicker": escape(f"A lesson on how a language model writes: {total} beat{'s' * (total != 1)}{minutes}"),
        "style": style,
        "beats": "\n".join(written(_section(number, each, total)) for number, each in enumerate(beats, 1)),
        "about": "".join(written(each) for each in about),
        "source": escape(f"Model: {visible(lesson.model)}. Every number is of one recorded run."),
        "script": script,
    })  # fmt: skip


def shown(lesson: Lesson, trace: Path) -> list[ShownBeat]:
    """Go through a recording, and keep what each beat shows before and after."""
    before: dict[int, Element] = {}
    beats: list[ShownBeat] = []
    with recorded_session(trace, lesson) as (session, player):
        play = recorded_play(session, player, lesson)

        def settled(*phases: LessonPhase) -> None:
            settle(session, play, *phases)
            if play.phase in (LessonPhase.ASKING, LessonPhase.ACTING):
                before.setdefault(play.beat_number, View(play, _panel(play)).made())

        def revealed(_: str) -> None:
            after = View(play, _panel(play)).made()
            first = before.get(play.beat_number, after)
            changed = written(first) != written(after)
            beats.append(ShownBeat(play.beat, play.card, first, after if changed else None))

        play.begin()
        go_through(settled, play, revealed)
        play.close()
    return beats


def _panel(play: LessonPlay) -> str:
    """The panel that matters: of the beat, or of the last one before that names one."""
    named = (each.show for each in reversed(play.lesson.beats[: play.beat_number + 1]) if each.show)
    return next(named, "")


# ---- a beat -----------------------------------------------------------------------------------


def _section(number: int, shown: ShownBeat, total: int) -> Element:
    beat, card = shown.beat, shown.card
    title = element("span", f"{number}/{total}", class_="progress")
    head = element("h2", title, f" {visible(beat.title)}", id=f"title-{number}", tabindex=-1)
    say = element("div", *(element("p", text) for text in card.text), class_="say")
    shown.before.set("class", "view before")
    waits = beat.question is not None or bool(beat.act)
    ask = [*_question(number, shown), _reveal(shown) if waits else _why(card)]
    return element(
        "section", head, say, shown.before, element("div", *ask, class_="ask"), class_="beat", id=f"beat-{number}",
        aria_labelledby=f"title-{number}", data_right=card.right, data_waits="yes" if waits else None,
    )  # fmt: skip


def _question(number: int, shown: ShownBeat) -> list[Element]:
    question = shown.beat.question
    if question is None:
        return []
    options = (element("li", visible(each.text)) for each in question.options)
    name = f"question-{number}"
    return [
        element("p", shown.card.question, class_="question", id=name),
        element("ol", *options, class_="options", aria_labelledby=name),
    ]


def _reveal(shown: ShownBeat) -> Element:
    """What is folded until the learner has predicted, and done it."""
    beat, card = shown.beat, shown.card
    act = element("p", f"{done(beat.act)}.", class_="act") if beat.act else None
    if shown.after is not None:
        shown.after.set("class", "view after")
    summary = "Do it, and see" if beat.act else "See"
    return element(
        "details",
        element("summary", summary),
        act,
        _answer(beat, card),
        _why(card),
        shown.after,
        class_="reveal",
    )


def _answer(beat: Beat, card: Card) -> Element | None:
    if beat.question is None or card.answer is None:
        return None
    right = visible(beat.question.options[card.right].text) if card.right is not None else "none of these"
    return element("p", "The answer: ", element("b", right), class_="answer")


def _why(card: Card) -> Element:
    number = element("p", card.number.written(), class_="number") if card.number is not None else None
    return element("div", number, *(element("p", text) for text in card.why), class_="why")
