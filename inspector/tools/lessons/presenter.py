"""A lesson, or any session, before a class: one panel of at most 60 columns, block digits, votes, a blank, timers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.console import Console
from textual.content import Content

from inspector.display import visible
from inspector.keys import key_for
from inspector.lessons.lesson import LessonPhase
from inspector.main.narration import Narration
from inspector.main.tool import Host
from inspector.scales import clock
from inspector.widgets.actions import Action, ActionTable, Hint, hints_of

if TYPE_CHECKING:
    from inspector.lessons.courses import CoursePlace
    from inspector.lessons.play import LessonPlay

COLUMNS = 60
"""Of the panel that is shown: on a projector the terminal's font may then be twice as large."""
HIDES = (frozenset[str](), frozenset({"probabilities"}), frozenset({"candidates"}))
"""What the key hides, one after another: nothing, the candidates' numbers, the candidates."""
HIDDEN = ("Everything is shown", "Probabilities are hidden", "Candidates are hidden")
BAR = 20
_ON = {LessonPhase.ASKING: "on", LessonPhase.ACTING: "do it", LessonPhase.REVEALED: "next"}
END = Action("present", "End", "End it.", hint="end", worth=2, place=7)
"""Its key holds in every tab then: the line of tabs isn't shown."""
PRESENTING_KEYS = ActionTable(
    "While presenting",
    (
        Action("presenting.on", "On", "Continue: scroll a long card, end the votes, do the step, show the next beat.",
               worth=9, place=1, hint=lambda play: _ON.get(play.phase, "") if play is not None else ""),
        Action("presenting.back", "Previous beat", "Go to the previous beat."),
        Action("presenting.votes", "Votes", "Type how many of the class chose each option.", worth=6, place=2,
               hint=lambda play: "votes" if play is not None and play.options else ""),
        Action("presenting.hide", "Hide", "Hide the probabilities, then the candidates, then nothing.", hint="hide",
               worth=4, place=6),
        Action("presenting.blank", "Blank", "Blank the screen; again, or {stop}, to show it.", hint="blank", worth=3,
               place=5),
        Action("presenting.jump", "Jump", "Jump to a beat.", hint=lambda play: "jump" if play is not None else "",
               worth=1, place=3),
        END,
        Action("lessons", hint=lambda play: "explore" if play is not None else "", worth=1, place=4),
    ),
)  # fmt: skip
"""What keys mean while something is presented, before they mean anything else; the owner is the lesson, if any."""


Keys = dict[str, Callable[[], object]]


class Presenting:
    """Presents a lesson, or a session without one: votes, what is hidden, a blank screen, timers.

    Args:
        host: The main screen.
        changed: Has everything shown again.
    """

    def __init__(self, host: Host, changed: Callable[[], None]) -> None:
        self._host, self._changed = host, changed
        self.on = False
        self._blank = False
        self._hiding = 0
        """Place in `HIDES`."""
        self._votes: dict[int, tuple[int, ...]] = {}
        """By beat: how many chose each option."""
        self._began = self._beat_began = time.monotonic()
        self._beat = -1
        self._play: LessonPlay | None = None
        """The lesson whose time and votes these are."""
        self._enlarged = False

    def toggle(self) -> None:
        """Begin to present, or end it."""
        arrangement = self._host.arrangement
        if self.on:
            self.on = self._blank = False
            arrangement.enlarged = self._enlarged
        else:
            self.on, self._blank, self._hiding = True, False, 0
            self._began = self._beat_began = time.monotonic()
            self._enlarged, arrangement.enlarged = arrangement.enlarged, True
        self._host.answer()
        self._changed()

    # ---- keys -------------------------------------------------------------------------------

    def keys(self, play: LessonPlay | None) -> Keys:
        """By the id of an action what it does while it is presented."""
        own: Keys = {END.id: self.toggle, "presenting.blank": self._turn_blank, "presenting.hide": self._hide}
        if self._blank:  # whoever did not blank it looks for the key that leaves
            own["stop"] = self._turn_blank
        if play is None:
            return own
        votes: Keys = {"presenting.votes": lambda: self._ask_votes(play)} if play.options else {}
        on: Keys = {"presenting.on": lambda: self._on(play)} if play.phase is not LessonPhase.ENDED else {}
        return {
            **own,
            **votes,
            **on,
            "presenting.back": lambda: play.begin(play.beat_number - 1),
            "presenting.jump": lambda: self._ask_beat(play),
        }

    def _on(self, play: LessonPlay) -> None:
        """The next thing, whichever it is: the rest of the card, the class has predicted, it is done, the next beat."""
        card = self._host.card
        if card is not None and card.scroll_offset.y < card.max_scroll_y:
            card.page(1)
            return
        match play.phase:
            case LessonPhase.ASKING:
                play.skip_question()
            case LessonPhase.ACTING:
                play.do_it()
            case LessonPhase.REVEALED:
                play.go_on()
            case _:
                pass

    def _turn_blank(self) -> None:
        self._blank = not self._blank

    def _hide(self) -> None:
        """Hide the next thing."""
        self._hiding = (self._hiding + 1) % len(HIDES)
        self._host.answer(HIDDEN[self._hiding])

    def _ask_votes(self, play: LessonPlay) -> None:
        from inspector.tools.lessons.dialogs import VotesDialog

        options = [each.text for each in play.options]
        beat = play.beat_number

        def take(votes: tuple[int, ...] | None) -> None:
            if votes is not None:
                self._votes[beat] = votes
            self._changed()

        self._host.open(VotesDialog(options, self._votes.get(beat, ())), take)

    def _ask_beat(self, play: LessonPlay) -> None:
        from inspector.tools.lessons.dialogs import BeatsDialog

        titles = [each.title for each in play.lesson.beats]
        jump: Callable[[int | None], None] = lambda beat: play.begin(beat) if beat is not None else None  # noqa: E731
        self._host.open(BeatsDialog(titles, play.beat_number), jump)

    def follow(self, play: LessonPlay | None) -> None:
        """Count the time of a beat from where it begins, and time and votes of a lesson from its own beginning."""
        if play is None:
            return
        if play is not self._play:
            self._play, self._beat, self._votes = play, -1, {}
            self._began = time.monotonic()
        if play.beat_number != self._beat:
            self._beat, self._beat_began = play.beat_number, time.monotonic()

    # ---- showing ----------------------------------------------------------------------------

    def narration(
        self, play: LessonPlay | None, own: Narration | None, course: CoursePlace | None = None
    ) -> Narration:
        """The card before a class.

        Args:
            play: The lesson under way, None for a session without one.
            own: Its card for a single learner.
            course: Its place in a course; None for a lesson alone.
        """
        if play is None or own is None:
            body = Content(
                f"The whole class sees one panel. {key_for('tab_1')}-{key_for('tab_6')} open the tabs, "
                f"{key_for('next_view')} shows the next answer, {END.shown} ends it."
            )
            return Narration(
                "Presenting",
                body,
                self._hints(None),
                hidden=HIDES[self._hiding],
                hidden_as=self._hidden_as,
                room=COLUMNS,
                blank=self._blank,
            )
        lines = [own.body, *self._votes_lines(play), *self._notes(play, course)]
        if play.phase is LessonPhase.REVEALED and play.card.number is not None:
            lines.insert(0, Content("\n").join(map(Content, block_digits(play.card.number.written()))))
        return replace(
            own,
            body=Content("\n").join(lines),
            hints=self._hints(play),
            hidden=own.hidden | HIDES[self._hiding],
            hidden_as=own.hidden_as if own.hidden else self._hidden_as,
            room=COLUMNS,
            blank=self._blank,
            clock=lambda: self._time(play),
        )

    @property
    def _hidden_as(self) -> str:
        return f"hidden with {key_for('presenting.hide')}"

    def _votes_lines(self, play: LessonPlay) -> list[Content]:
        votes = self._votes.get(play.beat_number)
        if not votes or not play.options or play.phase is LessonPhase.ENDED:
            return []
        revealed = play.phase is LessonPhase.REVEALED
        return [
            _vote(option.text, count, votes, revealed and place == play.card.right)
            for place, (option, count) in enumerate(zip(play.options, votes, strict=False))
        ]

    def _time(self, play: LessonPlay) -> Content:
        """Time of the beat and of the lesson; orange when late."""
        now = time.monotonic()
        beat, whole = now - self._beat_began, now - self._began
        due = minutes_of(play) * 60
        end = play.lesson.minutes * 60
        return (
            Content.styled(f"{clock(beat)}/{clock(due)}", "bold $warning" if beat > due else "")
            + Content(" · ")
            + Content.styled(f"{clock(whole)}/{clock(end)}", "bold $warning" if whole > end else "")
        )

    def _hints(self, play: LessonPlay | None) -> tuple[Hint, ...]:
        return tuple(hints_of([[(play, each) for each in PRESENTING_KEYS.actions]]))

    def _notes(self, play: LessonPlay, course: CoursePlace | None) -> list[Content]:
        """What the teacher says: of the course before its lesson and after it, and of the beat once its answer is
        shown, as it may tell that."""
        part = course.course.parts[course.place] if course is not None else None
        if play.phase is LessonPhase.ENDED:
            notes = part.discuss if part is not None else ()
        else:
            notes = part.say if part is not None and not play.beat_number else ()
            notes += play.beat.notes if play.phase is LessonPhase.REVEALED else ()
        return [Content(), *(Content.styled(visible(each), "$ink-muted") for each in notes)] if notes else []


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
    from textual.renderables.digits import Digits  # before a class alone

    console = Console(file=StringIO(), width=COLUMNS, legacy_windows=False, color_system=None)
    lines = console.render_lines(Digits(text), console.options.update(width=COLUMNS), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines[:3]]
