"""The presenter's keys and dialogs, and the notes in a second terminal."""

from __future__ import annotations

import atexit
from collections.abc import Callable

from engine.errors import EngineError
from inspector.display import visible
from inspector.lessons.notes import NotesPage, NotesServer, next_of
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.main.tool import Host
from inspector.tools.lessons.presenter import Presenter, minutes_of

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
        from inspector.tools.lessons.present_dialogs import VotesDialog

        options = [each.text for each in play.options]
        beat = play.beat_number

        def take(votes: tuple[int, ...] | None) -> None:
            if votes is not None:
                self.presenter.votes[beat] = votes
            self._changed()

        self._host.open(VotesDialog(options, self.presenter.votes.get(beat, ())), take)

    def _ask_beat(self, play: LessonPlay) -> None:
        from inspector.tools.lessons.present_dialogs import BeatsDialog

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
        following = next_of(play.lesson, play.beat_number)
        seconds = self.presenter.seconds
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
            beat_seconds=seconds[0],
            lesson_seconds=seconds[1],
            beat_minutes=minutes_of(play),
            lesson_minutes=play.lesson.minutes,
        )
