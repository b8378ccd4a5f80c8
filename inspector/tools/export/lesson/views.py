"""What matters at one moment of a lesson: the text in its tokens, the candidates, and the panel that the beat names."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from engine.frozen import frozen
from engine.protocol import PromptToken
from inspector.lessons.lesson import Beat
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.scales import METRIC
from inspector.state.conditions import conditions
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.export.data import running
from inspector.tools.export.element import element
from inspector.tools.export.lesson import candidates, tables

TOKENS = 600
"""Of a text: the last ones."""
CANDIDATES = frozenset({"", "candidates", "sampler", "whatif", "lookahead"})
"""Panels and tools whose beats speak of candidates."""
ASKED = frozenset({"next", "candidate"})
"""Functions of an answer that is among them."""
NUMBERS = frozenset({"probabilities", "candidates"})
_HEAT = METRIC["surprisal"]


@frozen
class View:
    """One moment.

    Args:
        play: The lesson, where it stands.
        show: The panel that matters; a beat that names none has that of the one before.
    """

    play: LessonPlay
    show: str

    def made(self) -> Element:
        """As an element; what is to be predicted isn't in it."""
        shown = [*self._text(), *self._candidates(), *self._found()]
        return element("div", *shown, class_="view")

    @property
    def _beat(self) -> Beat:
        return self.play.beat

    @property
    def _revealed(self) -> bool:
        return self.play.phase is LessonPhase.REVEALED

    @property
    def _timeline(self) -> Timeline:
        return self.play.controller.timeline

    @property
    def _hidden(self) -> frozenset[str]:
        return frozenset() if self._revealed else frozenset(self._beat.hide)

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
        name = "text pieces" if self.show == "text" else "text"
        yield element(
            "p", *before, *spans, class_=name, tabindex=0, role="group", aria_label="The text in its tokens"
        )
        tree = self._timeline.tree
        found = dict.fromkeys(each.short for item in items for each in conditions(tree, item))
        if found:
            yield element("p", f"Made with {' · '.join(found)}.", class_="hint")
        if heat and any(_step(each) for each in items[-TOKENS:]):
            yield element(
                "p", "Coloured: a token that surprised, from 2 bits (pale) to 8 (strong).", class_="hint"
            )

    # ---- candidates -------------------------------------------------------------------------

    def _candidates(self) -> Iterator[Element]:
        item = self._looked_at()
        hidden, question = self._hidden, self._beat.question
        asked = question is not None and not ASKED.isdisjoint(question.answer.names())
        if self.show not in CANDIDATES and item is None and not asked:
            return
        if NUMBERS & hidden:
            yield _veil("What the model expects")
            return
        timeline = self._timeline
        stages = self.show == "sampler" and hidden.isdisjoint({"picked", "sampler"})
        if item is not None:
            vocabulary = timeline.facts.vocabulary if timeline.facts is not None else 0
            if isinstance(item, PromptToken) and not item.candidates:
                return
            yield candidates.section(candidates.of_token(item, vocabulary), stages)
        elif timeline.next is not None:
            concealed = not self._revealed and (question is not None or "picked" in hidden)
            yield candidates.section(candidates.of_next(timeline.next, concealed), stages)

    # ---- other panels and tools -------------------------------------------------------------

    def _found(self) -> Iterator[Element]:
        found = tables.ON_SHOW.get(self.show)
        if self._revealed:
            found = found or tables.ONCE_DONE.get(self.show)
        if found is None:
            return
        if not self._hidden.isdisjoint({self.show, "probabilities"}):
            yield _veil("This panel")
            return
        yield from found(self._timeline, self.play.scope.since, self._beat)


def _veil(what: str) -> Element:
    return element("p", f"{what} is hidden until you have predicted.", class_="veil")


def _step(item: Item) -> int:
    return _HEAT.step(_HEAT.value(item))


def _token(item: Item, heat: bool, chosen: bool) -> Element:
    """A token; the space before its word stands apart, so that a line broken there ends without a coloured edge."""
    text = running(item)
    space = len(text) - len(text.lstrip()) if text.strip() else 0
    names = ["t", f"h{_step(item) if heat else 0}"]
    names += ["prompt"] if isinstance(item, PromptToken) else []
    names += ["special"] if item.special else []
    names += ["chosen"] if chosen else []
    return element("span", text[:space], element("i", text[space:]), class_=" ".join(names))
