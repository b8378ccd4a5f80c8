"""Where a step through a recording ends: places at which the picture changes, or a caption speaks. Pure."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from engine.protocol import DraftRound, Moved, PrefillChunk, Prefilled, PromptReadings, Resampled, Step
from engine.trace import Entry, Kept, Unknown
from inspector.session.replay.captions import Captions
from inspector.session.transport import Telling
from inspector.state.capabilities import STATES
from inspector.state.capability import ReplayStop

_PICTURES = (PrefillChunk, Prefilled, Step, Moved, Resampled)
"""Entries that change the main screen."""
STOPS: dict[type, ReplayStop] = {record: stop for state in STATES for record, stop in state.STOPS.items()}
ELSEWHERE = tuple(record for record, stop in STOPS.items() if stop is not ReplayStop.BEGINS)
"""Entries that change the screen of a tool and not the main one."""


class Stops:
    """The places of one recording, each a number of entries.

    Args:
        entries: Those that were read; more come.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._places: list[int] = []
        self._pictures: list[int] = []
        self._row: type[object] | None = None
        """The kind of those that come in a row now."""
        self._spoken = 0
        """The last place to which a caption moved a step's end."""

    def note(self, value: Kept | Unknown) -> None:
        """Take in the last entry that was read."""
        if isinstance(value, _PICTURES):
            self._pictures.append(len(self._entries))
        if self._belongs_to_last(value):
            self._places[-1] = len(self._entries)
        elif self._ends_step(value):
            self._places.append(len(self._entries))

    def _belongs_to_last(self, value: Kept | Unknown) -> bool:
        """Whether an entry is shown with the step before it: what was drafted behind its token, a prompt's logprobs."""
        if not self._places or self._places[-1] == self._spoken:
            return False
        return isinstance(value, PromptReadings) or (isinstance(value, DraftRound) and value.stage == "taken")

    def _ends_step(self, value: Kept | Unknown) -> bool:
        stop = ReplayStop.EACH if isinstance(value, _PICTURES) else STOPS.get(type(value))
        first, self._row = self._row is not type(value), self._row if stop is None else type(value)
        match stop:
            case ReplayStop.EACH:
                return True
            case ReplayStop.FIRST:
                return first
            case ReplayStop.FIRST_AND_LAST:
                return first or bool(getattr(value, "last", False))
        return False

    def speak(self, place: int, captions: Captions) -> None:
        """Have a step end where a caption speaks, rather than just before it."""
        if self._places and captions.alone(place, self._places[-1]):
            self._places[-1] = self._spoken = place
        elif self.upto(place) != place:
            insort(self._places, place)

    def cut(self) -> None:
        """Forget the places beyond the last entry."""
        for places in (self._places, self._pictures):
            del places[bisect_right(places, len(self._entries)) :]

    def __len__(self) -> int:
        return len(self._places)

    def number(self, place: int) -> int:
        """How many there are up to a place."""
        return bisect_right(self._places, place)

    def pictures(self, place: int) -> int:
        """How often the main screen has changed up to a place."""
        return bisect_right(self._pictures, place)

    def after(self, place: int, telling: Telling = ()) -> int:
        """The next place where a step ends.

        Args:
            place: The present one.
            telling: Records that change what is looked at, too.
        """
        stop = self.number(place)
        end = self._places[stop] if stop < len(self._places) else len(self._entries)
        told = (n + 1 for n in range(place, end) if isinstance(self._entries[n].value, telling))
        return next(told, end)

    def upto(self, place: int, telling: Telling = ()) -> int:
        """The last place where a step ends, that one included; 0 for the beginning.

        Args:
            place: The present one.
            telling: Records that change what is looked at, too.
        """
        stop = self.number(place) - 1
        begin = self._places[stop] if stop >= 0 else 0
        told = (n for n in range(place, begin, -1) if isinstance(self._entries[n - 1].value, telling))
        return next(told, begin)
