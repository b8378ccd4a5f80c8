"""A lesson, or any session, before a class: one panel of at most 60 columns, block digits, votes, a blank, timers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO

from rich.console import Console
from textual.content import Content
from textual.renderables.digits import Digits

from inspector.display import visible
from inspector.keys import key_for
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.main.narration import Narration
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
MOST_VOTES = 100_000


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
        now = self._clock()
        beat, whole = now - self._beat_began, now - self._began
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


def read_votes(text: str, options: int) -> tuple[int, ...] | None:
    """The counts of a class as they are typed: a number for each option, with spaces or commas; None if they aren't."""
    words = text.replace(",", " ").split()
    if len(words) != options or not all(word.isdecimal() and len(word) < 7 for word in words):
        return None
    return tuple(min(MOST_VOTES, int(word)) for word in words)


def _vote(text: str, count: int, votes: Sequence[int], right: bool) -> Content:
    longest = max(1, *votes)
    bar = "█" * math.ceil(BAR * count / longest) if count else ""
    mark = Content.styled("✓ ", "bold $text-success") if right else Content("  ")
    style = "$success" if right else "$primary"
    return mark + Content.styled(bar, style) + Content(f" {count} {visible(text)}")


def clock(seconds: float) -> str:
    """A time as a clock writes it."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def block_digits(text: str) -> list[str]:
    """A number in characters of three lines."""
    console = Console(file=StringIO(), width=COLUMNS, legacy_windows=False, color_system=None)
    lines = console.render_lines(Digits(text), console.options.update(width=COLUMNS), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines[:3]]
