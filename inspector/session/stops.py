"""Ends of steps through a recording: places at which the picture changes, or a caption speaks.

A place is a number of entries. A caption that was written where the session stood speaks at its own place. One that was
written afterwards, about a token further up, speaks where that token came: an audience that watches it come is to read
it then.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence

from msgspec import Struct

from engine import protocol
from engine.protocol import Marked, Moved, Prefilled, PromptOpened, PromptReadings, Step
from engine.recording import Entry, Kept
from inspector.state.capability import ReplayStop
from inspector.state.timeline import STATES

Telling = tuple[type, ...]
"""Classes of records that change what is looked at, where that is the screen of a tool."""
LATE_CAPTION = 3.0
"""A caption that was written so many seconds after its step was not read in the recorded time."""
WORDS_A_SECOND = 3.0
_QUIET = (
    Marked, protocol.Ended, protocol.Measuring, protocol.Failure, protocol.Finished, protocol.Verified, protocol.Undone,
)  # fmt: skip
"""Records that change nothing on show."""


class Caption(Struct, frozen=True):
    """One caption."""

    node: int
    """The token that it speaks of."""
    text: str
    """Not made printable."""
    tool: str
    """Id of the panel or tool that shows what it says; empty for none in particular."""
    seconds: float
    """Time to read it, if it was not waited for in the recorded time."""


class Captions:
    """Takes in the entries of a recording in their order; what is said of a place may come long after it."""

    def __init__(self) -> None:
        self.at: dict[int, list[Caption]] = {}
        """Captions by place: a number of entries."""
        self._places: list[int] = []
        """The same places, in ascending order."""
        self._of: dict[tuple[int, int], list[tuple[int, Caption]]] = {}
        """Captions in force, by the number of the tree and the node, with their places in ascending order."""
        self._tree = 0
        self._reached: dict[int, tuple[int, float]] = {}
        """Place and time at which each node of the present tree came."""
        self._prompt: list[int] = []
        """Nodes that came with the last prompt, until something follows it."""
        self._tip, self._jumped = 0, 0.0
        """The end of the path, and the time when it last changed by more than a step."""
        self._changed = 0
        """The place after the last entry that changed anything."""

    def of(self, tree: int, node: int, place: int) -> str:
        """The caption of a node up to a place; empty for most."""
        texts = [caption.text for at, caption in self._of.get((tree, node), ()) if at <= place]
        return texts[-1] if texts else ""

    def before(self, place: int) -> int:
        """The last place up to one where a caption speaks, that one included; 0 for none."""
        found = bisect_right(self._places, place)
        return self._places[found - 1] if found else 0

    def note(self, place: int, entry: Entry) -> int | None:
        """Take in an entry.

        Args:
            place: How many entries there are, this one included.
            entry: The last of them.

        Returns:
            The place where a caption speaks now that this entry is known; None if it has none.
        """
        if not isinstance(entry.value, _QUIET):
            self._changed = place
        match entry.value:
            case Marked():
                return self._written(place, entry.value, entry.at)
            case PromptOpened(new_tree=new_tree, tokens=tokens, parent=parent):
                if new_tree:
                    self._tree, self._reached = self._tree + 1, {}
                self._prompt = [token.node for token in tokens if token.node not in self._reached]
                self._come(self._prompt, place, entry.at)
                self._tip, self._jumped = tokens[-1].node if tokens else parent, entry.at
            case Prefilled() | PromptReadings():
                for node in self._prompt:
                    self._reached[node] = place, entry.at
            case Step(node=node, parent=parent):
                self._prompt = []
                self._jumped = self._jumped if parent == self._tip else entry.at
                self._tip = node
                self._come((node,), place, entry.at)
            case Moved(node=node):
                self._prompt = []
                self._tip, self._jumped = node, entry.at
            case protocol.BeamStep(live=live, finished=finished, greedy=greedy):
                self._prompt = []
                self._come(
                    (each.node for each in (*live, *finished, greedy) if each is not None), place, entry.at
                )
            case protocol.BeamEnded(ranking=ranking, greedy=greedy):
                self._come((each.node for each in (*ranking, greedy)), place, entry.at)
        return None

    def alone(self, place: int, stop: int) -> bool:
        """True if at a place there is nothing else to be seen than at a stop before it, but for the caption there."""
        return self._changed <= stop < place and stop not in self.at

    def _come(self, nodes: Iterable[int], place: int, at: float) -> None:
        for node in nodes:
            self._reached.setdefault(node, (place, at))

    # ---- captions ---------------------------------------------------------------------------

    def _written(self, place: int, mark: Marked, at: float) -> int | None:
        """Take in what is written at a node from here on."""
        if mark.node not in self._reached:
            return None
        written = self._of.setdefault((self._tree, mark.node), [])
        said = mark.caption, mark.tool
        known = next((n for n, (_, each) in enumerate(written) if (each.text, each.tool) == said), None)
        if known is not None or not mark.caption:  # another mark was made there, or a caption was taken back
            self._forget(written, len(written) - 1 if known is None else known + 1)
            return None
        reached, came = self._reached[mark.node]
        if mark.node == self._tip or at - max(came, self._jumped) <= LATE_CAPTION:
            reached = place  # it was written where the session stood
        elif written:
            reached = written[-1][0]  # it was corrected
            self._forget(written, len(written) - 1)
        # a caption with a panel was written for a replay: it was hardly waited for
        seconds = len(mark.caption.split()) / WORDS_A_SECOND if at - came > LATE_CAPTION or mark.tool else 0.0
        caption = Caption(mark.node, mark.caption, mark.tool, seconds)
        written.append((reached, caption))
        if reached not in self.at:
            self.at[reached] = []
            insort(self._places, reached)
        self.at[reached].append(caption)
        return reached

    def _forget(self, written: list[tuple[int, Caption]], kept: int) -> None:
        """Take back all but the first captions of a node."""
        for place, caption in written[max(0, kept) :]:
            self.at[place] = [each for each in self.at[place] if each is not caption]
            if not self.at[place]:
                del self.at[place]
                self._places.remove(place)
        del written[max(0, kept) :]


# ---- where steps end --------------------------------------------------------------------------

_PICTURES = (protocol.PrefillChunk, Prefilled, Step, Moved, protocol.Resampled)
"""Entries that change the main screen."""
STOPS: dict[type, ReplayStop] = {of: stop for state in STATES for of, (stop, _) in state.STOPS.items()}
ELSEWHERE = tuple(record for state in STATES for record in state.changing())
"""Entries that change the screen of a tool and not the main one."""


class Stops:
    """The places of one recording, each a number of entries.

    Args:
        entries: Those that were read; more come.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self.places: list[int] = []
        """Ends of steps, in ascending order."""
        self._pictures: list[int] = []
        self._row: type[object] | None = None
        """The kind of those that come in a row now."""
        self._spoken = 0
        """The last place to which a caption moved a step's end."""

    def note(self, value: Kept) -> None:
        """Take in the last entry that was read."""
        place, picture = len(self._entries), isinstance(value, _PICTURES)
        if picture:
            self._pictures.append(place)
        stop = ReplayStop.EACH if picture else STOPS.get(type(value))
        # shown with the step before it: what was drafted after its token, and a prompt's logprobs
        late = isinstance(value, PromptReadings) or (
            isinstance(value, protocol.DraftRound) and value.stage == "taken"
        )
        if late and self.places and self.places[-1] != self._spoken:
            self.places[-1] = place
            return
        first = self._row is not type(value)
        if stop is not None:
            self._row = type(value)
        last = stop is ReplayStop.FIRST_AND_LAST and bool(getattr(value, "last", False))
        begins = first and stop in (ReplayStop.FIRST, ReplayStop.FIRST_AND_LAST)
        if begins or last or stop is ReplayStop.EACH:
            self.places.append(place)

    def speak(self, place: int, captions: Captions) -> None:
        """Have a step end where a caption speaks, rather than just before it."""
        if self.places and captions.alone(place, self.places[-1]):
            self.places[-1] = self._spoken = place
        elif self.upto(place) != place:
            insort(self.places, place)

    def cut(self) -> None:
        """Forget the places beyond the last entry."""
        for places in (self.places, self._pictures):
            del places[bisect_right(places, len(self._entries)) :]

    def pictures(self, place: int) -> int:
        """Number of changes of the main screen up to a place."""
        return bisect_right(self._pictures, place)

    def after(self, place: int, telling: Telling = ()) -> int:
        """The next place where a step ends.

        Args:
            place: The present one.
            telling: Records that change what is looked at, too.
        """
        stop = bisect_right(self.places, place)
        end = self.places[stop] if stop < len(self.places) else len(self._entries)
        found = (n + 1 for n in range(place, end) if isinstance(self._entries[n].value, telling))
        return next(found, end) if telling else end

    def upto(self, place: int, telling: Telling = ()) -> int:
        """The last place where a step ends, that one included; 0 for the beginning.

        Args:
            place: The present one.
            telling: Records that change what is looked at, too.
        """
        stop = bisect_right(self.places, place) - 1
        begin = self.places[stop] if stop >= 0 else 0
        found = (n for n in range(place, begin, -1) if isinstance(self._entries[n - 1].value, telling))
        return next(found, begin) if telling else begin
