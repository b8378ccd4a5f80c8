"""The page of a lesson: all its beats in one document, which a script shows one at a time.

Without the script the answers are folded. What a lesson's file and its recording say is text in elements: no markup is
put together from it, and the page's policy lets no other script run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from xml.etree.ElementTree import Element

from engine.errors import EngineError
from engine.frozen import frozen
from engine.protocol import PromptToken
from engine.settings import BY_NAME
from inspector.display import visible
from inspector.lessons.actions import LessonAction, given_text, settings_given
from inspector.lessons.headless import go_through, recorded_play, recorded_session, settle
from inspector.lessons.lesson import Beat, Lesson
from inspector.lessons.play import Card, LessonPhase, LessonPlay
from inspector.scales import METRIC
from inspector.state.conditions import conditions
from inspector.state.session_tree import Item
from inspector.tools.export import markup
from inspector.tools.export.data import running
from inspector.tools.export.lesson_panels import ON_SHOW, ONCE_DONE, candidates_section, of_next, of_token
from inspector.tools.export.markup import element, hint, written

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
    style = markup.style("page.css", "lesson.css")
    script = markup.script(SCRIPTS)
    about = written(element("p", visible(lesson.about), class_="about")) if lesson.about else ""
    total = len(beats)
    minutes = f", about {lesson.minutes:g} minutes" if lesson.minutes else ""
    return markup.filled("lesson.html", {
        "policy": escape(markup.policy(style, script)),
        "title": escape(visible(lesson.title)),
        "kicker": escape(f"A lesson on how a language model writes: {total} beat{'s' * (total != 1)}{minutes}"),
        "style": style,
        "beats": "\n".join(written(_section(number, each, total)) for number, each in enumerate(beats, 1)),
        "about": about,
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
                before.setdefault(play.beat_number, View(play).made())

        def revealed(_: str) -> None:
            after = View(play).made()
            first = before.get(play.beat_number, after)
            changed = written(first) != written(after)
            beats.append(ShownBeat(play.beat, play.card, first, after if changed else None))

        play.begin()
        go_through(settled, play, revealed)
        play.close()
    return beats


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
    summary = element("summary", "Do it, and see" if beat.act else "See")
    return element("details", summary, act, _answer(beat, card), _why(card), shown.after, class_="reveal")


def _answer(beat: Beat, card: Card) -> Element | None:
    if beat.question is None or card.answer is None:
        return None
    right = visible(beat.question.options[card.right].text) if card.right is not None else "none of these"
    return element("p", "The answer: ", element("b", right), class_="answer")


def _why(card: Card) -> Element:
    number = element("p", card.number.written(), class_="number") if card.number is not None else None
    return element("div", number, *(element("p", text) for text in card.why), class_="why")


# ---- what is done in a beat, in words for a page that has no keys for it ---------------------


def done(actions: Sequence[LessonAction]) -> str:
    """What some actions do, as a sentence; printable."""
    words = "; then ".join(
        _WORDS[each.name](each.given) if each.name in _WORDS else str(each) for each in actions
    )
    return visible(words[:1].upper() + words[1:])


def _counted(once: str, often: str) -> Callable[[str], str]:
    return lambda given: often.format(given) if given not in ("", "1") else once


def _settings(given: str) -> str:
    return "set " + " and ".join(
        f"{BY_NAME[name].label} to {given_text(given, name)}" for name in settings_given(given)
    )


_WORDS: Mapping[str, Callable[[str], str]] = {
    "step": _counted("take one step", "take {} steps"),
    "run": lambda _: "run to the end",
    "back": _counted("take one token back", "take {} tokens back"),
    "start": lambda _: "go back to the end of the prompt",
    "choose": lambda given: f"take “{given}”",
    "type": lambda given: f"type “{given}”",
    "reroll": _counted("draw again", "draw again {} times"),
    "set": _settings,
    "prompt": lambda given: f"read the prompt “{given}”",
    "race": lambda given: f"race to {given} tokens",
    "attention": lambda _: "look where the heads look",
    "lens": lambda _: "read what each layer would predict",
    "beams": lambda given: f"search with beams, {given}".rstrip(", "),
}
"""By the action's name; one that isn't here is written as the lesson's file has it."""


# ---- what matters at one moment of a lesson --------------------------------------------------

TOKENS = 600
"""Of a text: the last ones."""
CANDIDATES = frozenset({"", "candidates", "sampler", "whatif", "lookahead"})
"""Panels and tools whose beats speak of candidates."""
ASKED = frozenset({"next", "candidate"})
"""Functions of an answer that is among them."""
NUMBERS = frozenset({"probabilities", "candidates"})
_HEAT = METRIC["surprisal"]


class View:
    """One moment.

    Args:
        play: The lesson, where it stands.
    """

    def __init__(self, play: LessonPlay) -> None:
        self._beat, self._timeline, self._since = play.beat, play.controller.timeline, play.scope.since
        self._revealed = play.phase is LessonPhase.REVEALED
        self._hidden = frozenset() if self._revealed else frozenset(self._beat.hide)
        named = (each.show for each in reversed(play.lesson.beats[: play.beat_number + 1]) if each.show)
        self._show = next(named, "")
        """The panel that matters; a beat that names none has that of the one before."""

    def made(self) -> Element:
        """As an element; what is to be predicted isn't in it."""
        return element("div", *self._text(), *self._candidates(), *self._found(), class_="view")

    def _looked_at(self) -> Item | None:
        """The token that the beat looks at; before the reveal only where that tells nothing. None for the next one."""
        what, _, number = self._beat.look.partition(" ")
        if not number.isdecimal() or (not self._revealed and (self._beat.hide or self._beat.act)):
            return None
        items = self._timeline.items if what == "prompt" else self._timeline.completion
        return items[int(number) - 1] if 0 < int(number) <= len(items) else None

    # ---- the text ---------------------------------------------------------------------------

    def _text(self) -> Iterator[Element]:
        if "text" in self._hidden:
            yield _veil("The text")
            return
        items = self._timeline.items
        heat = not NUMBERS & self._hidden
        chosen = self._looked_at()
        spans = [_token(each, heat, each is chosen) for each in items[-TOKENS:]]
        before = [f"… {len(items) - TOKENS} tokens before … "] if len(items) > TOKENS else []
        name = "text pieces" if self._show == "text" else "text"
        yield element(
            "p", *before, *spans, class_=name, tabindex=0, role="group", aria_label="The text in its tokens"
        )
        tree = self._timeline.tree
        found = dict.fromkeys(each.short for item in items for each in conditions(tree, item))
        if found:
            yield hint(f"Made with {' · '.join(found)}.")
        if heat and any(_step(each) for each in items[-TOKENS:]):
            yield hint("Coloured: a token that surprised, from 2 bits (pale) to 8 (strong).")

    # ---- candidates -------------------------------------------------------------------------

    def _candidates(self) -> Iterator[Element]:
        item = self._looked_at()
        hidden, question = self._hidden, self._beat.question
        asked = question is not None and not ASKED.isdisjoint(question.answer.names())
        if self._show not in CANDIDATES and item is None and not asked:
            return
        if NUMBERS & hidden:
            yield _veil("What the model expects")
            return
        timeline = self._timeline
        stages = self._show == "sampler" and hidden.isdisjoint({"picked", "sampler"})
        if item is not None:
            vocabulary = timeline.facts.vocabulary if timeline.facts is not None else 0
            if isinstance(item, PromptToken) and not item.candidates:
                return
            yield candidates_section(of_token(item, vocabulary), stages)
        elif timeline.next is not None:
            concealed = not self._revealed and (question is not None or "picked" in hidden)
            yield candidates_section(of_next(timeline.next, concealed), stages)

    # ---- other panels and tools -------------------------------------------------------------

    def _found(self) -> Iterator[Element]:
        found = ON_SHOW.get(self._show) or (ONCE_DONE.get(self._show) if self._revealed else None)
        if found is None:
            return
        if not self._hidden.isdisjoint({self._show, "probabilities"}):
            yield _veil("This panel")
            return
        yield from found(self._timeline, self._since, self._beat)


def _veil(what: str) -> Element:
    return element("p", f"{what} is hidden until you have predicted.", class_="veil")


def _step(item: Item) -> int:
    return _HEAT.step(_HEAT.value(item))


def _token(item: Item, heat: bool, chosen: bool) -> Element:
    """A token; the space before its word stands apart, so that a line broken there ends without a coloured edge."""
    text = running(item)
    space = len(text) - len(text.lstrip()) if text.strip() else 0
    marks = {"prompt": isinstance(item, PromptToken), "special": item.special, "chosen": chosen}
    names = ("t", f"h{_step(item) if heat else 0}", *(name for name, holds in marks.items() if holds))
    return element("span", text[:space], element("i", text[space:]), class_=" ".join(names))
