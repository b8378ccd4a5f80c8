"""The page of a lesson: all its beats in one document, which a script shows one at a time.

Without the script the answers are folded. Texts of the lesson's file and of its recording are inserted as text, never
as markup, and the page's content security policy allows no other script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from xml.etree.ElementTree import Element

from msgspec import Struct

from engine.errors import EngineError
from engine.protocol import Candidate, Distribution, PromptToken, Record, Step
from engine.settings import BY_NAME
from inspector.blocks.page import element, hint, row, table, written
from inspector.display import token_label, visible
from inspector.documents.parts import ExportPart
from inspector.export.documents import label, running
from inspector.export.markup import filled
from inspector.lessons.actions import LessonAction, given_text, settings_given
from inspector.lessons.headless import go_through, recorded_play, recorded_session, settle
from inspector.lessons.lesson import Beat, Lesson, LessonPhase
from inspector.lessons.play import Card, LessonPlay
from inspector.scales import METRIC, bits, count, counted, milliseconds, percent, size
from inspector.state.candidates import choice_of
from inspector.state.conditions import conditions
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.widgets.charts import places

SCRIPTS = ("numbers.js", "lesson.js")
Found = Callable[[Timeline, Sequence[Record], Beat], Iterable[Element]]
"""Makes tables of a timeline, the records since the beat began, and the beat."""


class ShownBeat(Struct, frozen=True):
    """One beat, with its view before and after the reveal."""

    beat: Beat
    card: Card
    before: Element
    after: Element | None
    """The view after the reveal; None if it is unchanged."""


def page(lesson: Lesson, trace: Path, parts: Iterable[ExportPart]) -> str:
    """The page.

    Args:
        lesson: The lesson.
        trace: Its recording.
        parts: Parts of tools, which may add tables to a beat.

    Raises:
        EngineError: There is no recording, or it is of something else.
        LessonError: The recording is of another version of the lesson.
    """
    if not trace.is_file():
        raise EngineError(f"There is no recording {trace}.", "inspector lesson record FILE makes it.")
    beats = shown(lesson, trace, parts)
    about = written(element("p", visible(lesson.about), class_="about")) if lesson.about else ""
    total = len(beats)
    minutes = f", about {lesson.minutes:g} minutes" if lesson.minutes else ""
    return filled("lesson.html", ["page.css", "lesson.css"], SCRIPTS, {
        "title": escape(visible(lesson.title)),
        "kicker": escape(f"A lesson on how a language model writes: {counted(total, 'card')}{minutes}"),
        "beats": "\n".join(written(_section(number, each, total)) for number, each in enumerate(beats, 1)),
        "about": about,
        "source": escape(f"Model: {visible(lesson.model)}. Every number is of one recorded run."),
    })  # fmt: skip


def shown(lesson: Lesson, trace: Path, parts: Iterable[ExportPart]) -> list[ShownBeat]:
    """Go through a recording; returns the beats with their views."""
    before: dict[int, Element] = {}
    found = {part.name: part.beat for part in parts if part.beat is not None}
    beats: list[ShownBeat] = []
    with recorded_session(trace, lesson) as (session, player):
        play = recorded_play(session, player, lesson)

        def settled(*phases: LessonPhase) -> None:
            settle(session, play, *phases)
            if play.phase in (LessonPhase.ASKING, LessonPhase.ACTING):
                before.setdefault(play.beat_number, BeatView(play, found).made())

        def revealed(_: str) -> None:
            after = BeatView(play, found).made()
            first = before.get(play.beat_number, after)
            changed = written(first) != written(after)
            beats.append(ShownBeat(play.beat, play.card, first, after if changed else None))

        play.begin()
        go_through(settled, play, revealed)
        play.close()
    return beats


# ---- a beat -------------------------------------------------------------------------------------


def _section(number: int, shown: ShownBeat, total: int) -> Element:
    beat, card, question = shown.beat, shown.card, shown.beat.question
    progress = element("span", f"{number}/{total}", class_="progress")
    head = element("h2", progress, f" {visible(beat.title)}", id=f"title-{number}", tabindex=-1)
    say = element("div", *(element("p", text) for text in card.text), class_="say")
    shown.before.set("class", "view before")
    ask: list[Element] = []
    if question is not None:
        name = f"question-{number}"
        options = (element("li", visible(each.text)) for each in question.options)
        ask.append(element("p", card.question, class_="question", id=name))
        ask.append(element("ol", *options, class_="options", aria_labelledby=name))
    waits = question is not None or bool(beat.act)
    ask.append(_reveal(shown) if waits else _why(card))
    return element(
        "section", head, say, shown.before, element("div", *ask, class_="ask"), class_="beat", id=f"card-{number}",
        aria_labelledby=f"title-{number}", data_right=card.right, data_waits="yes" if waits else None,
    )  # fmt: skip


def _reveal(shown: ShownBeat) -> Element:
    """The part that is folded until the learner has predicted and acted."""
    beat, card = shown.beat, shown.card
    act = element("p", f"{done(beat.act)}.", class_="act") if beat.act else None
    answer = None
    if beat.question is not None and card.answer is not None:
        right = visible(beat.question.options[card.right].text) if card.right is not None else "none of these"
        answer = element("p", "The answer: ", element("b", right), class_="answer")
    if shown.after is not None:
        shown.after.set("class", "view after")
    summary = element("summary", "Do it, and see" if beat.act else "See")
    return element("details", summary, act, answer, _why(card), shown.after, class_="reveal")


def _why(card: Card) -> Element:
    number = element("p", card.number.written(), class_="number") if card.number is not None else None
    return element("div", number, *(element("p", text) for text in card.why), class_="why")


# ---- the actions of a beat, in words for a page that has no keys for them ------------------------


def done(actions: Sequence[LessonAction]) -> str:
    """Some actions as a sentence; printable."""
    words = "; then ".join(map(_words, actions))
    return visible(words[:1].upper() + words[1:])


def _words(action: LessonAction) -> str:
    given = action.given
    match action.name:
        case "set":
            names = settings_given(given)
            return "set " + " and ".join(
                f"{BY_NAME[name].label} to {given_text(given, name)}" for name in names
            )
        case "beams":
            return f"search with beams, {given}".rstrip(", ")
        case "grammar" if given == "off":
            return "take the grammar off"
        case "steering" if given == "example":
            return "make the direction of the example"
    once = _ONCE.get(action.name) if given in ("", "1") else None
    words = once or _WORDS.get(action.name)
    return words.format(given) if words is not None else str(action)


_ONCE = {"step": "take one step", "back": "take one token back", "reroll": "draw again"}
_WORDS = {
    "step": "take {} steps",
    "run": "run to the end",
    "back": "take {} tokens back",
    "start": "go back to the end of the prompt",
    "choose": "take “{}”",
    "type": "type “{}”",
    "reroll": "draw again {} times",
    "prompt": "read the prompt “{}”",
    "race": "race to {} tokens",
    "attention": "look where the heads look",
    "lens": "read what each layer would predict",
    "grammar": "set the grammar “{}”",
    "interventions": "switch off each head, part and layer alone",
    "merges": "take the last word's tokens apart",
    "batch": "run a {} batch of the prompt and two more to its end",
    "alone": "run each prompt of the batch alone",
    "round": "take a round of speculation with the draft {}",
    "rounds": "take rounds of speculation with the draft {}, to the end",
    "verify": "decode the speculated tokens again by plain steps",
    "steering": "make a direction of “{}”",
    "training": "look at the training that comes with the program",
    "second_model": "read the text in {} bits, too",
    "ways": "let each model continue on its own",
}
"""Words by the action's name; other actions are written as in the lesson's file."""


# ---- one moment of a lesson ----------------------------------------------------------------------

TOKENS = 600
"""Number of the last tokens of a text that are shown."""
CANDIDATES = frozenset({"", "candidates", "sampler", "whatif", "lookahead"})
"""Panels and tools whose beats show the candidates."""
ASKED = frozenset({"next", "candidate"})
"""Functions of an answer that is among the candidates."""
NUMBERS = frozenset({"probabilities", "candidates"})
_HEAT = METRIC["surprisal"]


class BeatView:
    """The view of a beat at one moment.

    Args:
        play: The lesson in its present state.
        once_done: By tool, makes tables of its results; only for the reveal, as they may contain the answer.
    """

    def __init__(self, play: LessonPlay, once_done: Mapping[str, Found]) -> None:
        self._once_done = once_done
        self._beat, self._timeline, self._since = play.beat, play.controller.timeline, play.scope.since
        self._revealed = play.phase is LessonPhase.REVEALED
        self._hidden = frozenset() if self._revealed else frozenset(self._beat.hide)
        named = (each.show for each in reversed(play.lesson.beats[: play.beat_number + 1]) if each.show)
        self._show = next(named, "")
        """The panel to show: the last one named up to this beat."""

    def made(self) -> Element:
        """The view as an element, without what the learner has yet to predict."""
        return element("div", *self._text(), *self._candidates(), *self._found(), class_="view")

    def _looked_at(self) -> Item | None:
        """The token that the beat is about; None for the next one, and before the reveal if it might give it away."""
        shown = self._revealed or not (self._beat.hide or self._beat.act)
        slot = self._beat.slot(self._timeline) if shown else None
        return self._timeline.items[slot] if slot is not None else None

    # ---- the text ---------------------------------------------------------------------------

    def _text(self) -> Iterator[Element]:
        if "text" in self._hidden:
            yield _veil("The text")
            return
        items, heat = self._timeline.items, not NUMBERS & self._hidden
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
            yield of_token(item, vocabulary, stages)
        elif timeline.next is not None:
            concealed = not self._revealed and (question is not None or "picked" in hidden)
            taken = None if concealed else timeline.next.picked
            yield _drawn("What can come next", timeline.next, taken, stages)

    # ---- other panels and tools -------------------------------------------------------------

    def _found(self) -> Iterator[Element]:
        found = ON_SHOW.get(self._show) or (self._once_done.get(self._show) if self._revealed else None)
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
    """A token; the space before its word is separate, so that a line that breaks there has no colored edge."""
    text = running(item)
    space = len(text) - len(text.lstrip()) if text.strip() else 0
    marks = {"prompt": isinstance(item, PromptToken), "special": item.special, "chosen": chosen}
    names = ("t", f"h{_step(item) if heat else 0}", *(name for name, holds in marks.items() if holds))
    return element("span", text[:space], element("i", text[space:]), class_=" ".join(names))


# ---- the candidates of one token, with the draw -------------------------------------------------

ROWS = 10
"""Number of the most probable candidates shown; the one that was taken is always shown."""


def of_token(item: Item, vocabulary: int, stages: bool) -> Element:
    """The candidates that a token of the text was taken from."""
    if isinstance(item, Step):
        title = f"What could have come at step {item.index + 1}, where {label(item)} was taken"
        return _drawn(title, choice_of(item), item.id, stages)
    title = f"What the model expected where {label(item)} stands"
    of = choice_of(item, vocabulary)
    return element("section", _candidates_table(title, of, item.id, drawn=False))


def _drawn(title: str, of: Distribution, taken: int | None, stages: bool) -> Element:
    """The table, the draw, and the result of each stage of the sampler."""
    # without a draw, the sampler's probability of the token to predict is 1, which would give it away
    candidates = _candidates_table(title, of, taken, drawn=taken is not None or of.draw is not None)
    return element("section", candidates, _draw(of, taken), _stages(of) if stages else None)


def _candidates_table(title: str, of: Distribution, taken: int | None, drawn: bool) -> Element:
    """A table of candidates.

    Args:
        title: Its caption.
        of: Has the candidates.
        taken: Id of the token that was, or will be, taken; None if the learner has yet to predict it.
        drawn: Whether to show the sampler's probabilities.
    """
    shown = [each for each in of.candidates if each.rank <= ROWS or each.id == taken][: ROWS + 1]
    shares = [each.prob for each in shown] + [each.sampler_prob for each in shown if drawn]
    rows = [_candidate_row(each, max(shares, default=1.0) or 1.0, taken, drawn) for each in shown]
    left = [each for each in of.candidates if each not in shown]
    if others := of.others + len(left):
        after = percent(of.others_sampler_prob + sum(each.sampler_prob for each in left)) if drawn else ""
        before = percent(of.others_prob + sum(each.prob for each in left))
        rows.append(row("", f"{count(others)} others", "", before, after, class_="others"))
    head = ("", "candidate", "", "model", "sampler" if drawn else "")
    return table(title, head, rows, class_="candidates")


def _candidate_row(each: Candidate, most: float, taken: int | None, drawn: bool) -> Element:
    own = each.id == taken
    sampler = "" if not drawn else visible(each.cut_by) if each.cut_by else percent(each.sampler_prob)
    made = row(
        element("span", "▶", role="img", aria_label="taken") if own else "",
        token_label(each.text, each.raw),
        _bar(each, most, drawn),
        percent(each.prob),
        sampler,
        class_="taken" if own else "cut" if each.cut_by else None,
    )
    made[1].set("class", "label")
    made[2].set("class", "bar")
    return made


def _bar(each: Candidate, most: float, drawn: bool) -> Element:
    """Two bars: the model's probability, and below it the sampler's."""
    before, after = (f"{100 * share / most:.2f}" for share in (each.prob, each.sampler_prob))
    model = element("rect", class_="model", y=1, height=7 if drawn else 12, width=before)
    sampler = element("rect", class_="sampler", y=9, height=4, width=after)
    return element("svg", model, sampler if drawn else None,
                   viewBox="0 0 100 14", preserveAspectRatio="none", aria_hidden="true")  # fmt: skip


def _draw(distribution: Distribution, taken: int | None) -> Element | None:
    """The line from 0 to 1 on which the random number fell, divided into the candidates' shares."""
    draw, low, high = distribution.draw, distribution.draw_from, distribution.draw_to
    if draw is None or low is None or high is None:
        return None
    known = taken == distribution.picked
    at, begin, end = places(distribution)
    words = f"The draw {at} fell on {begin} to {end}" if known else f"The draw is {at}"
    words += f", drawn again {distribution.reroll}×" if distribution.reroll else ""
    shapes = [element("rect", class_="rest", x=0.5, y=8, width=999, height=10)]
    edge = 0.0
    shares = (each.sampler_prob for each in distribution.candidates if each.sampler_prob > 0)
    for place, share in enumerate(sorted(shares, reverse=True)):
        name = "odd" if place % 2 else "even"
        shapes.append(element("rect", class_=name, x=_at(edge), y=8, width=_at(share), height=10))
        edge += share
    if known:
        width = _at(max(0.0015, high - low))
        shapes.append(element("rect", class_="taken", x=_at(low), y=8, width=width, height=10))
    shapes.append(element("rect", class_="drawn", x=f"{draw * 1000 - 1.5:.2f}", y=0, width=3, height=26))
    line = element("svg", *shapes, viewBox="0 0 1000 26", preserveAspectRatio="none", aria_hidden="true")
    return element("div", element("p", words), line, class_="draw")


def _at(share: float) -> str:
    return f"{share * 1000:.2f}"


def _stages(distribution: Distribution) -> Element | None:
    if not distribution.stages:
        return None
    lines = []
    for stage in distribution.stages:
        took = f", took out {percent(stage.removed_mass)}" if stage.removed_mass else ""
        words = f" left {counted(stage.kept, 'token')}{took}"
        lines.append(element("li", element("b", visible(stage.name)), words))
    heading = element("p", "The sampler's stages, in their order")
    return element("div", heading, element("ol", *lines), class_="stages")


# ---- what tools found in a beat, as tables ------------------------------------------------------

STEPS = 60
"""Number of the last steps of a completion that are shown."""


def steps(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The completion, one row per token."""
    head = ("step", "token", "probability", "surprisal", "model entropy", "rank", "time")
    rows = [
        row(str(each.index + 1), label(each), percent(each.prob), bits(each.surprisal_bits),
            bits(each.choice.entropy_bits), count(each.rank), milliseconds(each.ms.total))
        for each in timeline.completion[-STEPS:]
    ]  # fmt: skip
    if rows:
        yield table("Steps", head, rows, class_="plain")


def memory(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The size of the KV cache."""
    if (kv := timeline.kv) is not None:
        rows = (row("tokens", count(kv.offset)), row("in use", size(kv.used_bytes)),
                row("allocated", size(kv.allocated_bytes)))  # fmt: skip
        yield table("KV cache", ("", ""), rows, class_="plain")


ON_SHOW: Mapping[str, Found] = {"steps": steps, "timing": steps, "kv": memory}
"""Tables by panel, which are also shown before the learner acts."""
