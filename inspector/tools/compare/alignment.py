"""Two runs of token ids set side by side: where they meet again, and which token faces which. Pure.

Two texts share `.` and `the` everywhere, which means nothing. They meet where at least `LEAST` ids in a row are the
same: so it is windows of that many ids whose longest common subsequence is looked for, exactly, a row of its table as
the bits of one integer. 4,000 ids on each side take up to 30 ms, the most that are compared 60 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from engine.frozen import frozen

LEAST = 3
"""Ids in a row that make a meeting."""
MOST = 8192
"""Ids of each side that are searched for meetings; what comes after is paired in order."""
_Window = tuple[int, ...]


@frozen
class Meeting:
    """A run of ids that both sides have."""

    left: int
    """Where it begins on the left."""
    right: int
    length: int

    @property
    def shift(self) -> int:
        """How many tokens later it comes on the right; below 0 where it comes earlier."""
        return self.right - self.left

    @property
    def mirrored(self) -> Meeting:
        """The same one, seen from the other side."""
        return Meeting(self.right, self.left, self.length)


@frozen
class Pair:
    """One line: a token of each side, or of one."""

    left: int | None
    right: int | None
    joined: bool = False
    """Whether it is part of what both share, before they part or where they meet again."""


def meetings(left: Sequence[int], right: Sequence[int]) -> tuple[Meeting, ...]:
    """Where two runs of ids meet: as much of them as is in the same order on both sides.

    Args:
        left: Ids, of which the first `MOST` are compared.
        right: As many.

    Returns:
        Runs of `LEAST` ids and more, in order, none overlapping another on either side. The sides exchanged, the
        meetings are the same.
    """
    one, other = tuple(left[:MOST]), tuple(right[:MOST])
    if (len(other), other) < (len(one), one):  # ties are cut in the same way from both sides
        return tuple(meeting.mirrored for meeting in meetings(other, one))
    return tuple(_runs(_subsequence(_windows(one), _windows(other))))


def _windows(ids: Sequence[int]) -> list[_Window]:
    return list(zip(*(ids[place:] for place in range(LEAST)), strict=False))


def _subsequence(left: Sequence[_Window], right: Sequence[_Window]) -> list[tuple[int, int]]:
    """The places of a longest common subsequence, in order.

    A bit of a row is 0 where one more window of the left makes the subsequence longer: Hyyrö's bit-vector form of
    the table that the textbook fills cell by cell. Its rows are kept, and walked back.
    """
    rows, places = _rows(left, right), []
    at, row = len(left) - 1, len(right)
    while at >= 0 and row > 0:
        if rows[row] >> at & 1:
            at -= 1
        elif not rows[row - 1] >> at & 1:
            row -= 1
        else:
            row -= 1
            places.append((at, row))
            at -= 1
    return places[::-1]


def _rows(left: Sequence[_Window], right: Sequence[_Window]) -> list[int]:
    places: dict[_Window, int] = {}
    for place, window in enumerate(left):
        places[window] = places.get(window, 0) | 1 << place
    full = (1 << len(left)) - 1
    row, rows = full, [full]
    for window in right:
        if (here := row & places.get(window, 0)) != 0:
            row = ((row + here) | (row - here)) & full
        rows.append(row)
    return rows


def _runs(windows: Iterable[tuple[int, int]]) -> Iterator[Meeting]:
    """Windows that follow one another as one run; where two runs overlap, the later one begins behind the other."""
    left_end = right_end = 0
    for left, right, count in _consecutive(windows):
        taken = max(0, left_end - left, right_end - right)
        length = count + LEAST - 1 - taken
        if length >= LEAST:
            yield Meeting(left + taken, right + taken, length)
            left_end, right_end = left + taken + length, right + taken + length


def _consecutive(windows: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Where each run of windows begins on the left and on the right, and how many they are."""
    runs: list[tuple[int, int, int]] = []
    for left, right in windows:
        if runs and (left, right) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((left, right, 1))
    return runs


def pairs(left: int, right: int, met: Sequence[Meeting]) -> Iterator[Pair]:
    """Which token faces which: those of a meeting each other, those between two meetings in their order.

    Args:
        left: Tokens on the left.
        right: Tokens on the right.
        met: Their meetings, in order.

    Yields:
        Pairs in order; each token of either side is in exactly one.
    """
    left_end, right_end = 0, 0
    for meeting in (*met, Meeting(left, right, 0)):
        for step in range(max(meeting.left - left_end, meeting.right - right_end)):
            yield Pair(
                left_end + step if left_end + step < meeting.left else None,
                right_end + step if right_end + step < meeting.right else None,
            )
        yield from (Pair(meeting.left + n, meeting.right + n, True) for n in range(meeting.length))
        left_end, right_end = meeting.left + meeting.length, meeting.right + meeting.length
