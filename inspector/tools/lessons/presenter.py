"""A lesson, or any session, before a class: one panel of at most 60 columns, block digits, votes, a blank, timers."""

from __future__ import annotations

import atexit
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO

from rich.console import Console
from textual.content import Content
from textual.renderables.digits import Digits

from engine.errors import EngineError
from inspector.display import visible
from inspector.keys import key_for
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.main.narration import Narration
from inspector.main.tool import Host
from inspector.tools.lessons.notes import NotesPage, NotesServer, clock
from inspector.widgets.actions import Action, ActionTable, Hint, hints_of

COLUMNS = 60
"""Of the panel that is shown: on a projector the terminal's font may then be twice as large."""
HIDES = (frozenset[str](), frozenset({"probabilities"}), frozenset({"candidates"}))
"""What the key hides, one after another: nothing, the candidates' numbers, the candidates."""
HIDDEN = ("Everything is shown", "Probabilities are hidden", "Candidates are hidden")
BAR = 20
_ON = {LessonPhase.ASKING: "on", LessonPhase.ACTING: "do it", LessonPhase.REVEALED: "next"}
PRESENTING_KEYS = ActionTable(
    "While presenting",
    (
        Action("presenting.on", "On", "On: the class has predicted, do it, the next beat.", worth=9, place=1,
               hint=lambda play: _ON.get(play.phase, "") if play is not None else ""),
        Action("presenting.back", "Beat before", "Go a beat back."),
        Action("presenting.votes", "Votes", "Type how many of the class chose each option.", worth=6, place=2,
               hint=lambda play: "votes" if play is not None and play.options else ""),
        Action("presenting.hide", "Hide", "Hide probabilities, the candidates, nothing.", hint="hide", worth=4,
               place=6),
        Action("presenting.blank", "Blank", "Blank the screen, and show it again.", hint="blank", worth=3, place=5),
        Action("presenting.jump", "Jump", "Jump to a beat.", hint=lambda play: "jump" if play is not None else "",
               worth=1, place=3),
        Action("present", "End", "End it. `inspector notes` in a second terminal shows the notes.", hint="end", worth=2,
               place=7),
        Action("lessons", hint=lambda play: "explore" if play is not None else "", worth=1, place=4),
    ),
)  # fmt: skip
"""What keys mean while something is presented, before they mean anything else; the owner is the lesson, if any."""


class Presenter:
    """What the one before the class changed: votes, what is hidden, since when.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.on = False
        self.blank = False
        self.hiding = 0
        """Place in `HIDES`."""
        self.votes: dict[int, tuple[int, ...]] = {}
        """By beat: how many chose each option."""
        self._began = self._beat_began = clock()
        self._beat = -1

    def begin(self) -> None:
        """Begin to present: the timers begin, too."""
        self.on, self.blank, self.hiding = True, False, 0
        self._began = self._beat_began = self._clock()

    def end(self) -> None:
        """Present no more; votes stay."""
        self.on = self.blank = False

    def follow(self, beat: int) -> None:
        """Another beat began."""
        if beat != self._beat:
            self._beat, self._beat_began = beat, self._clock()

    def hide(self) -> str:
        """Hide the next thing; returns the answer for the presenter."""
        self.hiding = (self.hiding + 1) % len(HIDES)
        return HIDDEN[self.hiding]

    # ---- showing ----------------------------------------------------------------------------

    def narration(self, play: LessonPlay | None, told: Narration | None) -> Narration:
        """What the card says before a class.

        Args:
            play: The lesson under way, None for a session without one.
            told: What its card says to a single learner.
        """
        if play is None or told is None:
            body = Content(
                f"The whole class sees one panel. tab goes to the next, {key_for('present')} ends it."
            )
            return Narration(
                "Presenting", body, self._hints(None), "", HIDES[self.hiding], COLUMNS, self.blank
            )
        lines = [told.body, *self._votes_lines(play)]
        if play.phase is LessonPhase.REVEALED and play.card.number is not None:
            lines.insert(0, Content("\n").join(map(Content, block_digits(play.card.number.written()))))
        return replace(
            told,
            body=Content("\n").join(lines),
            hints=self._hints(play),
            hidden=told.hidden | HIDES[self.hiding],
            room=COLUMNS,
            blank=self.blank,
            clock=lambda: self.time(play),
        )

    def _votes_lines(self, play: LessonPlay) -> list[Content]:
        votes = self.votes.get(play.beat_number)
        if not votes or not play.options or play.phase is LessonPhase.ENDED:
            return []
        revealed = play.phase is LessonPhase.REVEALED
        return [
            _vote(option.text, count, votes, revealed and place == play.card.right)
            for place, (option, count) in enumerate(zip(play.options, votes, strict=False))
        ]

    def time(self, play: LessonPlay) -> Content:
        """Time of the beat and of the lesson; orange when late."""
        beat, whole = self.seconds
        due = minutes_of(play) * 60
        end = play.lesson.minutes * 60
        return (
            Content.styled(f"{clock(beat)}/{clock(due)}", "bold $warning" if beat > due else "")
            + Content(" · ")
            + Content.styled(f"{clock(whole)}/{clock(end)}", "bold $warning" if whole > end else "")
        )

    @property
    def seconds(self) -> tuple[float, float]:
        """Since the beat began, and since the lesson did."""
        now = self._clock()
        return now - self._beat_began, now - self._began

    def _hints(self, play: LessonPlay | None) -> tuple[Hint, ...]:
        return tuple(hints_of([[(play, each) for each in PRESENTING_KEYS.actions]]))


def minutes_of(play: LessonPlay) -> float:
    """The time that a beat should take: its own, or an equal share of what the others leave."""
    if play.beat.minutes:
        return play.beat.minutes
    own = [beat.minutes for beat in play.lesson.beats]
    left = play.lesson.minutes - sum(own)
    return max(0.5, left / max(1, own.count(0)))


def _vote(text: str, count: int, votes: Sequence[int], right: bool) -> Content:
    longest = max(1, *votes)
    bar = "█" * math.ceil(BAR * count / longest) if count else ""
    mark = Content.styled("✓ ", "bold $text-success") if right else Content("  ")
    style = "$success" if right else "$primary"
    return mark + Content.styled(bar, style) + Content(f" {count} {visible(text)}")


def block_digits(text: str) -> list[str]:
    """A number in characters of three lines."""
    console = Console(file=StringIO(), width=COLUMNS, legacy_windows=False, color_system=None)
    lines = console.render_lines(Digits(text), console.options.update(width=COLUMNS), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines[:3]]


# ---- its keys, dialogs and notes -------------------------------------------------------------


Keys = dict[str, Callable[[], object]]


class Presenting:
    """Presents a lesson, or a session without one.

    Args:
        host: The main screen.
        changed: Has everything shown again.
    """

    def __init__(self, host: Host, changed: Callable[[], None]) -> None:
        self._host, self._changed = host, changed
        self.presenter = Presenter()
        self._enlarged = False
        self._server: NotesServer | None = None

    @property
    def on(self) -> bool:
        """Whether it is presented."""
        return self.presenter.on

    def toggle(self) -> None:
        """Begin to present, or end it."""
        arrangement = self._host.arrangement
        if self.on:
            self.presenter.end()
            arrangement.enlarged = self._enlarged
            self._close_notes()
        else:
            self.presenter.begin()
            self._enlarged, arrangement.enlarged = arrangement.enlarged, True
            self._open_notes()
        self._host.answer()
        self._changed()

    def _open_notes(self) -> None:
        try:
            self._server = NotesServer()
            atexit.register(self._close_notes)
        except EngineError as error:
            self._host.announce(visible(str(error)), "No notes", "warning")

    def _close_notes(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            atexit.unregister(self._close_notes)

    # ---- keys -------------------------------------------------------------------------------

    def keys(self, play: LessonPlay | None) -> Keys:
        """By the id of an action what it does while it is presented."""
        own: Keys = {"presenting.blank": self._blank, "presenting.hide": self._hide}
        if play is None:
            return own
        votes: Keys = {"presenting.votes": lambda: self._ask_votes(play)} if play.options else {}
        return {
            **own,
            **votes,
            "presenting.on": lambda: self._on(play),
            "presenting.back": lambda: play.begin(play.beat_number - 1),
            "presenting.jump": lambda: self._ask_beat(play),
        }

    def _on(self, play: LessonPlay) -> None:
        """The next thing, whichever it is: the class has predicted, it is done, the next beat."""
        match play.phase:
            case LessonPhase.ASKING:
                play.skip_question()
            case LessonPhase.ACTING:
                play.do_it()
            case LessonPhase.REVEALED:
                play.go_on()
            case _:
                pass

    def _blank(self) -> None:
        self.presenter.blank = not self.presenter.blank

    def _hide(self) -> None:
        self._host.answer(self.presenter.hide())

    def _ask_votes(self, play: LessonPlay) -> None:
        from inspector.tools.lessons.dialogs import VotesDialog

        options = [each.text for each in play.options]
        beat = play.beat_number

        def take(votes: tuple[int, ...] | None) -> None:
            if votes is not None:
                self.presenter.votes[beat] = votes
            self._changed()

        self._host.open(VotesDialog(options, self.presenter.votes.get(beat, ())), take)

    def _ask_beat(self, play: LessonPlay) -> None:
        from inspector.tools.lessons.dialogs import BeatsDialog

        titles = [each.title for each in play.lesson.beats]
        jump: Callable[[int | None], None] = lambda beat: play.begin(beat) if beat is not None else None  # noqa: E731
        self._host.open(BeatsDialog(titles, play.beat_number), jump)

    # ---- notes ------------------------------------------------------------------------------

    def tell(self, play: LessonPlay | None) -> None:
        """Tell the second terminal what is on show."""
        if play is not None:
            self.presenter.follow(play.beat_number)
        if self._server is not None and play is not None:
            self._server.publish(self._page(play))

    def _page(self, play: LessonPlay) -> NotesPage:
        beat, card = play.beat, play.card
        following = [*play.lesson.beats, None][play.beat_number + 1]
        beat_seconds, lesson_seconds = self.presenter.seconds
        return NotesPage(
            lesson=play.lesson.title,
            beat=play.beat_number + 1,
            beats=len(play.lesson.beats),
            title=beat.title,
            phase=play.phase.value,
            notes=beat.notes,
            question=card.question,
            options=tuple(each.text for each in play.options),
            answer=play.options[card.right].text if card.right is not None else "",
            votes=self.presenter.votes.get(play.beat_number, ()),
            next_title=following.title if following is not None else "",
            next_notes=following.notes if following is not None else (),
            beat_seconds=beat_seconds,
            lesson_seconds=lesson_seconds,
            beat_minutes=minutes_of(play),
            lesson_minutes=play.lesson.minutes,
        )
