"""A lesson as a dialogue of lines: for screen readers, and for classes without a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from engine.protocol import (
    BatchEnded,
    BeamEnded,
    Distribution,
    DraftRound,
    HeadsSwept,
    RaceStep,
    Record,
    StrengthsSwept,
    TakenApart,
)
from inspector.display import token_label, visible
from inspector.documents.grammar import sentences
from inspector.lessons.headless import HeadlessSession, settle
from inspector.lessons.lesson import SCREENS, LessonPhase
from inspector.lessons.play import LessonPlay
from inspector.scales import bits, counted, milliseconds, percent, size
from inspector.state.batch import Batches
from inspector.state.inside import KEYS, Answers
from inspector.state.speculation import FATE_SIGNS, Speculation
from inspector.state.timeline import Timeline
from inspector.widgets.charts import places

LEAVE = "q"


class Left(Exception):
    """The learner has left."""


class LessonDialogue:
    """Writes a lesson line by line, and reads the answers.

    Args:
        session: The lesson's session.
        play: The lesson, not begun yet.
        ask: Writes a prompt and returns the line of the answer, None at the end of the input.
        tell: Writes a line.
        beat: The beat to begin with, from 0.
        keep: Called when a beat is revealed, when the next one begins, and at the end; saves the progress.
    """

    def __init__(
        self,
        session: HeadlessSession,
        play: LessonPlay,
        ask: Callable[[str], str | None],
        tell: Callable[[str], None],
        beat: int = 0,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        self._session, self._play, self._ask, self._tell = session, play, ask, tell
        self._first, self._keep = beat, keep

    def hold(self) -> bool:
        """Go through the lesson.

        Returns:
            Whether it was completed.

        Raises:
            LessonError: It can't continue.
        """
        play, lesson = self._play, self._play.lesson
        self._tell_all((visible(f"{lesson.title}. {lesson.minutes:g} minutes, {len(lesson.beats)} cards."),))
        if self._first:
            self._tell(f"It begins at card {self._first + 1}.")
        play.begin(self._first)
        try:
            while play.phase is not LessonPhase.ENDED:
                self._beat()
        except Left:
            self._tell("You left the lesson.")
            return False
        self._end()
        return True

    def _tell_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._tell(line)

    def _answer(self, prompt: str) -> str:
        """Ask for a line, and again after a hint.

        Raises:
            Left: The learner leaves, or the input has ended.
        """
        while True:
            answer = self._ask(prompt)
            if answer is None or answer.strip().casefold() == LEAVE:
                raise Left
            if answer.strip().casefold() != "h":
                return answer.strip()
            self._tell(visible(self._play.beat.hint) or "This card has no hint.")

    # ---- a beat -----------------------------------------------------------------------------

    def _beat(self) -> None:
        play = self._play
        settle(self._session, play, LessonPhase.ASKING, LessonPhase.ACTING, LessonPhase.REVEALED)
        self._begin()
        if play.phase is LessonPhase.ASKING:
            self._predict()
            settle(self._session, play, LessonPhase.ACTING, LessonPhase.REVEALED)
        if play.phase is LessonPhase.ACTING:
            self._act()
        self._reveal()
        self._keep()
        last = play.beat_number + 1 == len(play.lesson.beats)
        self._answer("Enter ends the lesson, q leaves: " if last else "Enter for the next card, q leaves: ")
        play.go_on()
        self._keep()

    def _begin(self) -> None:
        play = self._play
        self._tell("")
        self._tell(visible(f"Card {play.beat_number + 1} of {len(play.lesson.beats)}: {play.beat.title}."))
        self._tell_all(play.card.text)
        self._look(revealed=False)

    def _look(self, revealed: bool) -> None:
        """Write the contents of the screen, except for those that are hidden until the reveal."""
        beat, timeline = self._play.beat, self._session.controller.timeline
        if revealed or "text" not in beat.hide:
            self._tell(f"Text so far: {text_so_far(timeline) or 'none'}")
        told = revealed or beat.show not in (*beat.hide, *SCREENS)  # the screen opens a view at the reveal
        if beat.show and told:
            slot = beat.slot(timeline) if revealed else None
            scope = self._play.scope
            self._tell_all(panel(beat.show, timeline, slot, [*scope.since, *scope.answers], revealed))

    def _predict(self) -> None:
        play = self._play
        self._tell(f"Question: {play.card.question}")
        self._tell_all(f"  {place}. {visible(each.text)}" for place, each in enumerate(play.options, 1))
        most = len(play.options)
        while True:
            answer = self._answer(f"Your answer, 1 to {most} (h hint, Enter for none, q leaves): ")
            if not answer:
                play.skip_question()
                return
            if answer.isdecimal() and play.predict(int(answer) - 1):
                return
            self._tell(f"Type a number from 1 to {most}.")

    def _act(self) -> None:
        play = self._play
        left = play.stage.left
        for action in left:
            self._tell(visible(f"To do (on the screen: press {action.keys})."))
        self._answer("Enter does it (h hint, q leaves): ")
        play.do_it()
        settle(self._session, play, LessonPhase.REVEALED)
        self._tell(visible(f"Done: {', '.join(map(str, left))}."))

    def _reveal(self) -> None:
        play = self._play
        right, guess = play.card.right, play.guess
        if right is not None:
            answer = visible(play.options[right].text)
            if guess is None:
                self._tell(f"The answer: {answer}.")
            elif guess == right:
                self._tell(f"Right: {answer}.")
            else:
                self._tell(f"Not right: you said {visible(play.options[guess].text)}; it is {answer}.")
        self._tell_all(play.card.why)
        self._look(revealed=True)

    def _end(self) -> None:
        play = self._play
        self._tell("")
        self._tell_all(filter(None, (visible(play.lesson.about), play.result)))


# ---- what panels show, as lines --------------------------------------------------------------

CANDIDATES, STEPS, CONTINUATIONS, PARTS_OFF, ROUNDS = 5, 8, 3, 5, 3
LONGEST = 600
"""Most characters of the text so far, from its end."""


def text_so_far(timeline: Timeline) -> str:
    """The current text, printable; only its end if it is long."""
    text = "".join(each.text for each in timeline.items)
    return visible(text if len(text) <= LONGEST else f"…{text[-LONGEST:]}")


def panel(
    show: str, timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool
) -> Iterator[str]:
    """The contents of a panel or tool.

    Args:
        show: Its id.
        timeline: The session's timeline.
        slot: Slot of the selected token; None for the next token.
        since: The records of this beat, and the answers to its questions.
        told: Whether the picked token may be shown.
    """
    yield from PANELS_AS_TEXT.get(show, _candidates)(timeline, slot, since, told)


def _looked_at(timeline: Timeline, slot: int | None) -> tuple[Distribution | None, str]:
    """The distribution at the selected token, and the words that say which token it is."""
    if slot is None or slot not in timeline.completion_slots:
        return timeline.next, "next"
    step = timeline.completion[timeline.completion_slots.index(slot)]
    return step.choice, f"for token {step.index + 1}"


def _candidates(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    distribution, about = _looked_at(timeline, slot)
    if distribution is None:
        return
    yield f"Most probable {about} (entropy {bits(distribution.entropy_bits)}):"
    for place, each in enumerate(distribution.candidates[:CANDIDATES], 1):
        own, sampled = percent(each.prob), percent(each.sampler_prob)
        after = "" if own == sampled else f", {sampled} after the sampler"
        yield f"  {place}. {token_label(each.text, each.raw)}, {own}{after}"
    if told:
        yield from _picked(distribution)


def _picked(distribution: Distribution) -> Iterator[str]:
    picked = next(each for each in distribution.candidates if each.id == distribution.picked)
    name = token_label(picked.text, picked.raw)
    if distribution.draw is None or distribution.draw_from is None or distribution.draw_to is None:
        yield f"Picked: {name}, the most probable token that the sampler left."
    else:
        draw, low, high = places(distribution)
        yield f"Picked: {name}. The draw {draw} fell into its share, {low} to {high}."


def _grammar(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    distribution, _ = _looked_at(timeline, slot)
    if distribution is not None and distribution.grammar is not None:
        yield from sentences(distribution.grammar)
    yield from _candidates(timeline, slot, since, told)


def _steps(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    for step in timeline.completion[-STEPS:]:
        name, entropy = token_label(step.text, step.raw), bits(step.choice.entropy_bits)
        yield f"  {step.index + 1}. {name}, {percent(step.prob)}, entropy {entropy}"


def _text(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    return iter(())


def _kv(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    if timeline.kv is not None:
        yield f"The KV cache holds {counted(timeline.kv.offset, 'token')} in {size(timeline.kv.used_bytes)}."


def _timing(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    for step in timeline.completion[-STEPS:]:
        yield f"  {step.index + 1}. {token_label(step.text, step.raw)}, {milliseconds(step.ms.total)}"


def _race(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    steps = [each for each in since if isinstance(each, RaceStep)]
    for each in (steps[0], steps[-1]) if steps else ():
        times = f"{milliseconds(each.cached_ms)} with the cache, {milliseconds(each.uncached_ms)} without"
        yield f"  At {each.tokens} tokens a step takes {times}; the cache has {size(each.kv_bytes)}."


def _beams(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    ended = next((each for each in reversed(since) if isinstance(each, BeamEnded)), None)
    if ended is not None:
        for place, each in enumerate(ended.ranking[:CONTINUATIONS], 1):
            yield f"  {place}. {visible(each.text)}, logprob {each.logprob:.3f}"
        yield f"  Greedy: {visible(ended.greedy.text)}, logprob {ended.greedy.logprob:.3f}"


def _batch(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    batch = timeline.of(Batches).last
    if batch is not None and any(isinstance(each, BatchEnded) for each in since):
        for lane in batch.lanes:
            length = f"{counted(len(lane.opened.ids), 'token')} after {lane.padding} of padding"
            yield f"  Row {lane.number + 1}: {visible(lane.opened.text)} ({length})"
            yield f"    writes {counted(len(lane.tokens), 'token')}: {visible(lane.text.strip())}"


def _speculation(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    rounds = [
        each for each in since if isinstance(each, DraftRound) and each.stage == "taken" and each.drafts
    ]
    if rounds:
        yield "The last rounds: ✓ accepted, ✗ refused, ? not looked at."
    for each in rounds[-ROUNDS:]:
        drafts = " ".join(FATE_SIGNS[of.fate] + token_label(of.text, of.raw) for of in each.drafts)
        instead = f", then {token_label(each.instead.text, each.instead.raw)}" if each.instead else ""
        yield f"  {token_label(each.first_text)} and {drafts}{instead}"
    if (verified := timeline.of(Speculation).verified) is not None and told:
        yield f"  Verified: {counted(verified.tokens, 'token')} beside plain steps."


def _steering(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    swept = next((each for each in reversed(since) if isinstance(each, StrengthsSwept)), None)
    if swept is not None and told:
        yield f"{visible(swept.direction.label)}, by strength: KL, and in brackets 90 % of {swept.random} random ones"
        for each in swept.strengths:
            band = f"({bits(each.kl_low)} to {bits(each.kl_high)})"
            leads = f"{token_label(each.top_text)} leads, {percent(each.top_prob)}"
            yield f"  {each.strength:g} times: {bits(each.kl_bits)} {band}, {leads}"
    yield from _candidates(timeline, slot, since, told)


def _interventions(
    timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool
) -> Iterator[str]:
    seen = Answers()
    for record in since:
        if type(record) in KEYS:
            seen.apply(record)
    if sweeps := seen.found(HeadsSwept):
        yield "Parts that change the prediction most when they alone are switched off:"
        for each in sweeps[-1].by_kl[:PARTS_OFF]:
            then = f"then {token_label(each.top_text)}, {percent(each.top_prob)}"
            yield f"  {visible(each.intervention.label)}, KL {bits(each.kl_bits)} bits, {then}"
    yield from _candidates(timeline, slot, since, told)


def _merges(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    apart = next((each for each in reversed(since) if isinstance(each, TakenApart) and each.words), None)
    if apart is not None:
        word = apart.words[0]
        for made, rank in enumerate((0, *word.ranks)):
            pieces = "·".join(
                token_label(each.decode("utf-8", "replace"), each) for each in word.pieces(made)
            )
            yield f"  {made} merges: {pieces}" + (f" (rank {rank})" if made else "")


PANELS_AS_TEXT: Mapping[str, Callable[[Timeline, int | None, Sequence[Record], bool], Iterator[str]]] = {
    "text": _text,
    "steps": _steps,
    "grammar": _grammar,
    "kv": _kv,
    "timing": _timing,
    "race": _race,
    "beams": _beams,
    "merges": _merges,
    "interventions": _interventions,
    "batch": _batch,
    "speculation": _speculation,
    "steering": _steering,
    "training": _text,
}
"""The lines of panels and tools by id; all others have those of the candidates."""
