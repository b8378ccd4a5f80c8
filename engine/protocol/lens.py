"""Commands and records of the logit lens."""

from __future__ import annotations

from msgspec import Struct

from engine.protocol.base import Record
from engine.protocol.inside import CaptureFacts, Look
from engine.protocol.numbers import Count, Finite


class ReadLens(Look, frozen=True):
    """The prediction of each layer; answered by `LensRead`."""

    node: Count
    positions: Count = 12
    """Of the path, at its end: columns of the table."""
    top: Count = 3
    """Tokens in each cell."""
    followed: tuple[Count, ...] = ()
    """Tokens whose probability and rank are wanted in each cell."""


class LensToken(Struct, frozen=True):
    """A token that the lens of a layer ranks high."""

    id: Count
    text: str
    prob: Finite


class LensCell(Struct, frozen=True):
    """What the model's own end makes of the residual stream after one layer, at one position."""

    top: tuple[LensToken, ...]
    """The most probable first."""
    entropy_bits: Finite
    final_rank: Count
    """Of the token that the last layer ranks first, from 1."""
    followed: tuple[Finite, ...] = ()
    """Probability of each followed token."""
    followed_ranks: tuple[Count, ...] = ()


class LensColumn(Struct, frozen=True):
    """One position: a cell for the embedding, then one for each layer."""

    node: Count
    cells: tuple[LensCell, ...]

    @property
    def leads_from(self) -> int:
        """The first cell from which on the final token is ranked first."""
        late = [index for index, cell in enumerate(self.cells) if cell.final_rank != 1]
        return late[-1] + 1 if late else 0


class LensRead(Record, frozen=True):
    """The logit lens (nostalgebraist 2020): final norm and head over the residual stream after each layer.

    Early layers were not trained to be read by the model's end: what the lens says of them is rough.
    """

    node: Count
    columns: tuple[LensColumn, ...]
    """The last positions of the path up to this token; none where the check `lens` could not be made."""
    followed: tuple[Count, ...]
    facts: CaptureFacts
