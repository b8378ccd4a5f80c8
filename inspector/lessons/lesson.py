"""A lesson as its file says it: beats in order, each with what it shows, asks and has the learner do."""

from __future__ import annotations

from ast import Constant
from dataclasses import field

from engine.frozen import frozen
from engine.settings import Settings
from inspector.lessons.actions import Action
from inspector.lessons.expressions import Expression, Template
from inspector.lessons.options import Option
from inspector.state.timeline import Timeline


@frozen
class Question:
    """What a learner predicts."""

    text: Template
    options: tuple[Option, ...]
    answer: Expression
    """Exactly one option must hold its value."""
    line: int


@frozen
class Beat:
    """One beat: text, a prediction, something to do, and what came of it."""

    title: str
    line: int
    """Of its heading in the file, from 1."""
    text: tuple[Template, ...] = ()
    """Paragraphs on show before the reveal."""
    question: Question | None = None
    act: tuple[Action, ...] = ()
    """What the learner does after predicting."""
    why: tuple[Template, ...] = ()
    """Paragraphs of the reveal."""
    begin: tuple[Action, ...] = ()
    """What the program does before the beat begins."""
    keep: tuple[tuple[str, Expression], ...] = ()
    """Values as they are before the learner acts, by the names that this beat and later ones have for them."""
    show: str = ""
    """Panel or tool that matters; empty for the one before."""
    look: str = "next"
    """The token that is selected at the reveal, and before it where nothing is concealed and nothing is to be done:
    `next`, `last`, `step 3`, `prompt 2`."""
    hide: tuple[str, ...] = ()
    """What is concealed until the reveal: ids of panels, `picked`, `probabilities`, `captions`."""
    number: Expression | None = None
    """The one number that the presenter shows large, once it is revealed."""
    hint: str = ""
    """Beyond the keys of what is to be done."""
    minutes: float = 0.0
    """The presenter's time for it; 0 for a share of the lesson's."""
    notes: tuple[str, ...] = ()
    """For the presenter alone."""

    def slot(self, timeline: Timeline) -> int | None:
        """Where the token that is looked at stands in the text; None for the one to come, or where there is none."""
        what, _, number = self.look.partition(" ")
        if what == "prompt":
            prompts = len(timeline.items) - len(timeline.completion_slots)
            return int(number) - 1 if int(number) <= prompts else None
        steps = timeline.completion_slots if what in ("step", "last") else []
        place = int(number) if number else len(steps)
        return steps[place - 1] if 1 <= place <= len(steps) else None

    def calls(self, function: str) -> list[tuple[int, ...]]:
        """What the beat gives to a function that counts layers or heads: the answer first, then its texts."""
        answer = (self.question.answer,) if self.question is not None else ()
        texts = (part for text in (*self.text, *self.why) for part in text.expressions)
        calls = (call for each in (*answer, *texts) for call in each.calls(function))
        given = ([part.value for part in call.args if isinstance(part, Constant)] for call in calls)
        return [tuple(number for number in numbers if isinstance(number, int)) for numbers in given]


@frozen
class Lesson:
    """One lesson."""

    id: str
    """Name of its file, without the ending."""
    title: str
    beats: tuple[Beat, ...]
    about: str = ""
    """The misconception that it removes, in one sentence."""
    minutes: float = 5.0
    prompt: str = ""
    chat: bool = False
    """Through the chat template."""
    settings: Settings = field(default_factory=Settings)
    model: str = "pocket"
    fingerprint: str = ""
    """Of the model that it was written for; empty for any."""
    needs: tuple[str, ...] = ()
    """What a model must have for it: `attention`, `lens`."""
