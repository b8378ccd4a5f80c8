"""Checks that a lesson works: first the rules that need no model, then all its beats on the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import Step
from engine.settings import LoadSettings
from inspector.lessons.errors import Faults, LessonError
from inspector.lessons.expressions import Expression
from inspector.lessons.headless import HeadlessSession, live_play, live_session, settle
from inspector.lessons.lesson import SOUGHT, Beat, Lesson, LessonPhase, Option
from inspector.lessons.play import LessonPlay
from inspector.lessons.quantities import FUNCTIONS
from inspector.lessons.reading import draft
from inspector.lessons.rules import before, static, tokens, too_long
from inspector.lessons.values import Value, near_draw
from inspector.scales import counted

OWN_DTYPES = ("file", "float32")
"""The types that the program may choose by itself for a model."""
MEASURED = ("probability", "bits", "number", "ms", "times", "draw")
"""Units of numbers that are never equal by accident."""


class Finding(Struct, frozen=True):
    """The result of one beat."""

    beat: int
    """Its number, from 0."""
    title: str
    line: int
    answer: Value | None
    """The value; None for a beat without a question."""
    right: Option | None
    margin: str
    """The distance of the answer from a different one, in words; empty if there can be no other."""


@dataclass
class Examination:
    """The result of one run of a lesson."""

    dtype: str = ""
    """The type of the computation."""
    fingerprint: str = ""
    findings: list[Finding] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)


def read_checked(text: str, id: str) -> tuple[Lesson | None, list[LessonError]]:
    """Read a lesson, and check all that needs no model.

    Args:
        text: Text of its file.
        id: Id of the lesson.

    Returns:
        The lesson, None if it can't be read; and its faults, in the order of the lines.
    """
    lesson, faults = draft(text, id)
    if lesson is not None and not faults:
        faults = static(lesson)
    return lesson, sorted(faults, key=lambda fault: fault.line)


def check_live(
    lesson: Lesson, load: LoadSettings, dtypes: Sequence[str], tell: Callable[[str], None] = lambda _: None
) -> tuple[list[Examination], list[LessonError]]:
    """Go through a lesson on its model, once with each type.

    Args:
        lesson: A lesson without static faults.
        load: How the model is loaded.
        dtypes: Types of the computation, as for `--dtype`.
        tell: Called with a line of progress.

    Returns:
        The runs; and the faults, in the order of the lines, each once.

    Raises:
        EngineError: The model can't be loaded.
    """
    runs: list[Examination] = []
    for dtype in dtypes:
        tell(f"Going through the lesson ({dtype})")
        with live_session(replace(load, dtype=dtype), lesson) as session:
            runs.append(examine(session, lesson))
    faults = [fault for run in runs for fault in run.faults.found] + list(_differences(runs))
    once = {(fault.line, fault.message): fault for fault in reversed(faults)}
    return runs, sorted(once.values(), key=lambda fault: fault.line)


def examine(session: HeadlessSession, lesson: Lesson) -> Examination:
    """Go through a lesson in a session, from its beginning.

    Raises:
        EngineError: The engine doesn't answer.
    """
    found = Examination()
    facts = session.controller.timeline.facts
    if facts is not None:
        found.dtype, found.fingerprint = facts.dtype, facts.fingerprint
    if lesson.fingerprint and lesson.fingerprint != found.fingerprint:
        hint = (
            f'Check it with the model that it was written for, or write fingerprint = "{found.fingerprint}".'
        )
        found.faults.add(1, "The lesson was written for another model.", hint, "fingerprint")
    play = live_play(session, lesson)
    try:
        _Walk(session, play, found).go()
    finally:
        play.close()
    return found


def _differences(runs: Sequence[Examination]) -> Iterable[LessonError]:
    """The faults of answers that differ between types."""
    for findings in zip(*(run.findings for run in runs), strict=False):
        rights = {each.right.text: run.dtype for each, run in zip(findings, runs, strict=True) if each.right}
        if len(rights) > 1:
            said = ", ".join(f"{text} in {dtype}" for text, dtype in rights.items())
            hint = (
                "Ask for a quantity that is the same in all types, or find another seed: inspector lesson "
                "check --find-seed."
            )
            yield LessonError(findings[0].line, f"The answer depends on the type: {said}.", hint, "fragile")


class _Walk:
    """One run of a lesson from beat to beat, which continues after a fault if it can."""

    def __init__(self, session: HeadlessSession, play: LessonPlay, found: Examination) -> None:
        self._session, self._play, self._found = session, play, found

    def go(self) -> None:
        for number in range(len(self._play.lesson.beats)):
            self._play.begin(number)
            try:
                self._beat(self._play.beat)
            except LessonError as error:
                self._found.faults.found.append(error)
                if error.rule in ("action", "ends"):
                    return  # it is not known where the next beat would begin

    def _beat(self, beat: Beat) -> None:
        play = self._play
        settle(self._session, play, LessonPhase.ASKING, LessonPhase.ACTING, LessonPhase.REVEALED)
        self._refuse_failure(beat)
        seen = [(each, each.value(play.scope)) for each in before(beat)]
        play.predict(0)
        if beat.act:
            settle(self._session, play, LessonPhase.ACTING, LessonPhase.REVEALED)
            self._act(beat)
        settle(self._session, play, LessonPhase.REVEALED)
        too_long(beat, play.card.text, play.card.question, play.card.why, self._found.faults)
        right = self._answer(beat, play.card.answer)
        self._found.findings.append(self._finding(beat, right))
        if right is not None and play.card.answer is not None:
            self._check_hidden(beat, seen, play.card.answer, right)
        self._check_look(beat)

    def _act(self, beat: Beat) -> None:
        """Do the learner's actions; it is a fault if the session becomes idle before they are done."""
        play = self._play
        play.do_it()
        session = self._session
        session.until(
            lambda: play.problem is not None or play.phase is LessonPhase.REVEALED or self._idle, play.tick
        )
        self._refuse_failure(beat)
        if play.problem is None and self._idle:
            action = play.stage.left[0]
            hint = "Let the card begin where it changes something."
            raise LessonError(action.line, f"The action {action} changed nothing.", hint, "ends")

    @property
    def _idle(self) -> bool:
        play = self._play
        return play.phase is LessonPhase.ACTING and not play.stage.busy and bool(play.stage.left)

    def _refuse_failure(self, beat: Beat) -> None:
        if (failure := self._play.stage.failure) is not None:
            line = beat.act[0].line if beat.act and self._play.phase is LessonPhase.ACTING else beat.line
            raise LessonError(line, failure.message, failure.hint, "action")

    # ---- the answer -------------------------------------------------------------------------

    def _answer(self, beat: Beat, value: Value | None) -> Option | None:
        """The one option that holds the answer; adds a fault if there isn't exactly one, or if it isn't safe."""
        if beat.question is None or value is None:
            return None
        line, faults = beat.question.answer.line, self._found.faults
        holding = [each for each in beat.question.options if each.holds(value)]
        if len(holding) != 1:
            many = "No option holds" if not holding else f"{len(holding)} options hold"
            hint = "Add an option with it, or ask for another quantity; another seed may also help."
            faults.add(line, f"{many} the answer: {value.written()}.", hint, "answer")
            return None
        if value.unit == "ms":
            hint = "Ask for a ratio with wide borders, or for a count."
            faults.add(line, "The answer is in milliseconds, which differ between machines.", hint, "timed")
        elif why := value.fragile or self._near(beat.question.answer):
            faults.add(line, f"The answer is fragile: {why}.", SEED_HINT, "fragile")
        elif holding[0].near(value):
            hint = "Move the border further away."
            faults.add(
                holding[0].line,
                f"The answer is fragile: {value.written()} is near a border.",
                hint,
                "fragile",
            )
        return holding[0]

    def _near(self, answer: Expression) -> str:
        """The reason that a token of an answer may differ on another machine; empty if it is safe."""
        steps = self._session.controller.timeline.completion
        for about in tokens(answer):
            what, _, number = about.partition(" ")
            place = int(number) if number.isdecimal() else len(steps)
            if what in ("last", "step") and 1 <= place <= len(steps):
                step = steps[place - 1]
                if step.origin in ("greedy", "sampled") and (why := near_draw(step.choice)):
                    return why
        return ""

    def _finding(self, beat: Beat, right: Option | None) -> Finding:
        value = self._play.card.answer
        line = beat.question.answer.line if beat.question is not None else beat.line
        margin = value.margin if value is not None else ""
        if value is not None and right is not None and not margin:
            margin = right.margin(value)
        return Finding(self._play.beat_number, beat.title, line, value, right, margin)

    def _check_hidden(
        self, beat: Beat, seen: Sequence[tuple[Expression, Value]], answer: Value, right: Option
    ) -> None:
        """Check that no value shown before the reveal was the answer."""
        asked = beat.question.text if beat.question is not None else None
        words = "".join(part for part in asked.parts if isinstance(part, str)) if asked is not None else ""
        named = right.text.casefold() in words.casefold()
        for expression, value in seen:
            same = value.unit == answer.unit and value.raw == answer.raw
            told = same and (value.unit in MEASURED or (isinstance(value.raw, str) and not named))
            if told:
                message = (
                    f"{{{expression.source}}} shows the answer before the prediction: {value.written()}."
                )
                self._found.faults.add(expression.line, message, "Move it to the reveal.", "hidden")

    def _check_look(self, beat: Beat) -> None:
        """Check that the selected token exists, and that it is the one that the reveal speaks of."""
        timeline = self._session.controller.timeline
        slot = beat.slot(timeline)
        line = beat.why[0].line if beat.why else beat.line
        if beat.look != "next" and slot is None:
            hint = (
                f"The completion has {counted(len(timeline.completion), 'token')}: name one of them, or next."
            )
            self._found.faults.add(line, f"There is no {beat.look} to look at.", hint, "look")
        spoken = [(each, about) for text in beat.why for each in text.expressions for about in tokens(each)]
        if spoken and slot not in {self._slot(about) for _, about in spoken}:
            message = f"The reveal names {{{spoken[0][0].source}}}, but look selects {beat.look}."
            slots, wanted = timeline.completion_slots, self._slot(spoken[0][1])
            look = f"step {slots.index(wanted) + 1}" if wanted in slots else "next"
            self._found.faults.add(spoken[0][0].line, message, f'Write look = "{look}".', "look")

    def _slot(self, about: str) -> int | None:
        """The slot of a token that the reveal speaks of; None for the next token."""
        timeline = self._session.controller.timeline
        if about in SOUGHT:
            step: Step = FUNCTIONS[about].call(self._play.scope)
            return timeline.completion_slots[step.index]
        return Beat("", 0, look=about).slot(timeline)


SEED_HINT = "Find a safe seed: inspector lesson check --find-seed."


def find_seed(
    lesson: Lesson, load: LoadSettings, seeds: Iterable[int], tell: Callable[[int, int], None]
) -> tuple[int | None, Examination | None]:
    """Look for a seed with which nothing is wrong.

    Args:
        lesson: A lesson without static faults.
        load: How the model is loaded.
        seeds: Seeds to try, in this order.
        tell: Called with each seed and the number of its faults.

    Returns:
        The seed and its run; None if no seed will do.

    Raises:
        EngineError: The model can't be loaded.
    """
    with live_session(load, lesson) as session:
        for seed in seeds:
            found = examine(session, replace(lesson, settings=replace(lesson.settings, seed=seed)))
            tell(seed, len(found.faults.found))
            if not found.faults.found:
                return seed, found
    return None, None
