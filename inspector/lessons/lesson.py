"""A lesson as its file describes it: beats in order, each with what it shows and asks, and the learner's actions."""

from __future__ import annotations

import math
import re
from ast import Constant
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from engine.protocol import named_part
from engine.settings import Settings
from inspector.lessons.values import NEAR_BORDER, NEAR_TIMED, Value
from inspector.state.timeline import Timeline

if TYPE_CHECKING:  # imported when a lesson begins
    from inspector.lessons.actions import LessonAction
    from inspector.lessons.expressions import Expression, Template

_RANGE = r"^(?P<low>[-+.\d]*)\s*\.\.\s*(?P<high>[-+.\d]*)$"
_TEST = r"\s*\{(?P<test>[^{}]*)\}\s*$"

# ---- what may be shown and hidden, by its id on the screen; a test compares it with the registry ---

SOUGHT = ("least_sure", "least_allowed")
"""Functions that search the completion for a step."""
_TOKEN = frozenset({"step", "last", *SOUGHT})
_SHARES = frozenset(
    f"next.{name}" for name in ("picked", "prob", "sampler_prob", "top", "top_prob", "second", "second_prob")
)
_SHARE_OF_DRAW = frozenset({"next.picked", "next.low", "next.high"})
PANELS: Mapping[str, frozenset[str]] = {
    "text": frozenset({f"{name}.text" for name in _TOKEN} | {"completion.text", "completion.occurrences"}),
    "candidates": _SHARES | _SHARE_OF_DRAW | {"candidate"},
    "steps": _TOKEN,
    "kv": frozenset({"kv.bytes"}),
    "timing": frozenset({f"{name}.ms" for name in _TOKEN} | {"prefill.ms"}),
    "sampler": _SHARE_OF_DRAW | {"stage", "whatif", "next.kept", "next.removed", "next.sampler_entropy"},
    "served": frozenset(),
    "tree": frozenset(),
    "grammar": frozenset({"grammar", "stage", "next.kept", "next.removed"}),
    "keep": frozenset(),
}
"""Panels by id, with the quantities that each shows: `function`, or `function.field`."""
PARTS: Mapping[str, frozenset[str]] = {
    "picked": _SHARE_OF_DRAW,
    "probabilities": frozenset(
        {
            "next.prob",
            "next.sampler_prob",
            "next.top_prob",
            "next.second_prob",
            "candidate.prob",
            "candidate.sampler_prob",
        }
    ),
    "captions": frozenset(),
}
"""Parts of panels that `hide` may name besides the panels, in the same way."""
HIDDEN: Mapping[str, frozenset[str]] = {**PANELS, **PARTS}
"""The names that `hide` accepts."""
SCREENS = (
    "attention", "attribution", "batch", "beams", "breakpoints", "compare", "compare_kv", "experts", "facts", "find",
    "gradients", "interventions", "lens", "second_model", "look_ahead", "merges", "modules", "own_text", "patching",
    "positions", "profile", "prompt", "race", "sampling", "scores", "speculation", "steering", "training",
    "why",
)  # fmt: skip
"""Keys, by id, that open a view. A lesson's file can't press others: some delete, write or quit."""
SHOWN = (*PANELS, *SCREENS)
"""The names that `show` accepts."""

PLAYED = ("step", "run")
"""Actions with keys that also advance a recording."""

# ---- the lesson ---------------------------------------------------------------------------------

MOST_OPTIONS = 4


class LessonPhase(Enum):
    """The phase of a beat."""

    PREPARING = "preparing"
    ASKING = "asking"
    """The learner predicts."""
    ACTING = "acting"
    """The learner does the beat's actions."""
    REVEALING = "revealing"
    REVEALED = "revealed"
    ENDED = "ended"
    """The lesson is over."""


class Option(Struct, frozen=True):
    """One option.

    Its test is written in braces at its end: `about as long {..2}`, `yes {true}`, `it ends {eos}`. Without one, the
    option's own words are compared with the answer's text.
    """

    text: str
    test: str
    line: int

    def holds(self, value: Value) -> bool:
        """True if it is the right one for a value."""
        if (borders := self.borders) is not None:
            return value.number is not None and borders[0] <= value.number < borders[1]
        return self.test.strip().casefold() == value.plain.strip().casefold()

    @property
    def borders(self) -> tuple[float, float] | None:
        """Lower border, included, and upper border, excluded, for a test that is a range; None for words."""
        match = re.match(_RANGE, self.test.strip())
        if match is None:
            return None
        low, high = match["low"], match["high"]
        try:
            return (float(low) if low else -math.inf, float(high) if high else math.inf)
        except ValueError:
            return None

    def near(self, value: Value) -> bool:
        """True if a value that it holds is so near to a border that another machine may have it on the other side."""
        if self.borders is None or value.number is None or value.exact:
            return False
        return self._apart(value.number) < (NEAR_TIMED if value.timed else NEAR_BORDER)

    def margin(self, value: Value) -> str:
        """The distance of a number that it holds from the nearest border, in words; empty if it has no border."""
        if self.borders is None or value.number is None or not math.isfinite(self._apart(value.number)):
            return ""
        return f"{100 * self._apart(value.number):.0f} % from a border"

    def _apart(self, number: float) -> float:
        """The distance from the nearest border, as a share of the larger of the two."""
        borders = [border for border in self.borders or () if math.isfinite(border)]
        return min(
            (abs(number - border) / (max(abs(border), abs(number)) or 1) for border in borders),
            default=math.inf,
        )


def option(text: str, line: int) -> Option:
    """Read an option."""
    match = re.search(_TEST, text)
    words = text[: match.start()] if match else text
    return Option(words.strip(), match["test"] if match else words, line)


class Question(Struct, frozen=True):
    """The question that a learner answers by predicting."""

    text: Template
    options: tuple[Option, ...]
    answer: Expression
    """Exactly one option must hold its value."""
    line: int


class Beat(Struct, frozen=True):
    """One beat: text, a prediction, actions, and the reveal."""

    title: str
    line: int
    """The line of its heading in the file, from 1."""
    text: tuple[Template, ...] = ()
    """Paragraphs that are shown before the reveal."""
    question: Question | None = None
    act: tuple[LessonAction, ...] = ()
    """The learner's actions after the prediction."""
    why: tuple[Template, ...] = ()
    """Paragraphs of the reveal."""
    begin: tuple[LessonAction, ...] = ()
    """The program's actions before the beat begins."""
    keep: tuple[tuple[str, Expression], ...] = ()
    """Values from before the learner acts, by the names that this beat and later ones use for them."""
    show: str = ""
    """Panel or tool to show; empty for that of the beat before."""
    look: str = "next"
    """The token that is selected at the reveal, and already before it if the beat hides nothing and has no actions:
    `next`, `last`, `step 3`, `prompt 2`."""
    hide: tuple[str, ...] = ()
    """Parts that are hidden until the reveal: ids of panels, `picked`, `probabilities`, `captions`."""
    number: Expression | None = None
    """The one number that is shown large when presenting, once it is revealed."""
    hint: str = ""
    """A hint in addition to the keys of the actions."""
    minutes: float = 0.0
    """The presenter's time for it; 0 for an equal share of what the other beats leave."""
    notes: tuple[str, ...] = ()
    """The presenter's notes, under the card once the answer is shown, when presenting to a class."""

    def slot(self, timeline: Timeline) -> int | None:
        """The slot of the token that `look` selects; None for the next token, or if there is no such token."""
        what, _, number = self.look.partition(" ")
        if what == "prompt":
            prompts = len(timeline.items) - len(timeline.completion_slots)
            return int(number) - 1 if int(number) <= prompts else None
        steps = timeline.completion_slots if what in ("step", "last") else []
        place = int(number) if number else len(steps)
        return steps[place - 1] if 1 <= place <= len(steps) else None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions of the beat, the answer first."""
        asked = (self.question.answer, *self.question.text.expressions) if self.question is not None else ()
        texts = (expression for text in (*self.text, *self.why) for expression in text.expressions)
        number = (self.number,) if self.number is not None else ()
        return (*asked, *texts, *(expression for _, expression in self.keep), *number)

    def calls(self, function: str) -> list[tuple[int, ...]]:
        """The layers and heads that the beat passes to a function, as numbers or by a name, each once."""
        calls = (call for each in self.expressions for call in each.calls(function))
        given = ((*call.args, *(each.value for each in call.keywords)) for call in calls)
        values = ([part.value for part in parts if isinstance(part, Constant)] for parts in given)
        return list(dict.fromkeys(tuple(n for each in parts for n in _place(each)) for parts in values))


def _place(value: object) -> tuple[int, ...]:
    """The numbers that a value of an expression stands for."""
    if not isinstance(value, str):
        return (value,) if isinstance(value, int) else ()
    try:
        return tuple(number for part in value.split(",") for number in named_part(part.strip()).place)
    except ValueError:  # reported when the expression is read
        return ()


class Lesson(Struct, frozen=True):
    id: str
    """Name of its file, without the ending."""
    title: str
    beats: tuple[Beat, ...]
    about: str = ""
    """The misconception that it removes, in one sentence."""
    minutes: float = 5.0
    prompt: str = ""
    chat: bool = False
    """True if the prompt goes through the chat template."""
    settings: Settings = field(default_factory=Settings)
    model: str = "pocket"
    fingerprint: str = ""
    """The fingerprint of the model that it was written for; empty for any model."""
    needs: tuple[str, ...] = ()
    """The capabilities that its model must have: `attention`, `lens`."""
