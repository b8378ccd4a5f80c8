"""Commands and records of the logit lens."""

from __future__ import annotations

from engine.frozen import frozen
from engine.protocol.base import Record
from engine.protocol.inside import CaptureFacts, Look


@frozen
class ReadLens(Look):
    """The prediction of each layer; answered by `LensRead`."""

    node: int
    positions: int = 12
    """Of the path, at its end: columns of the table."""
    top: int = 3
    """Tokens in each cell."""
    followed: tuple[int, ...] = ()
    """Tokens whose probability and rank are wanted in each cell."""


@frozen
class LensToken:
    """A token that the lens of a layer ranks high."""

    id: int
    text: str
    prob: float


@frozen
class LensCell:
    """What the model's own end makes of the residual stream after one layer, at one position."""

    top: tuple[LensToken, ...]
    """The most probable first."""
    entropy_bits: float
    final_rank: int
    """Of the token that the last layer ranks first, from 1."""
    followed: tuple[float, ...] = ()
    """Probability of each followed token."""
    followed_ranks: tuple[int, ...] = ()


@frozen
class LensColumn:
    """One position: a cell for the embedding, then one for each layer."""

    node: int
    cells: tuple[LensCell, ...]

    @property
    def leads_from(self) -> int:
        """The first cell from which on the final token is ranked first."""
        late = [index for index, cell in enumerate(self.cells) if cell.final_rank != 1]
        return late[-1] + 1 if late else 0


@frozen
class LensRead(Record):
    """The logit lens (nostalgebraist 2020): final norm and head over the residual stream after each layer.

    Early layers were not trained to be read by the model's end: what the lens says of them is rough.
    """

    node: int
    columns: tuple[LensColumn, ...]
    """The last positions of the path up to this token; none where the check `lens` could not be made."""
    followed: tuple[int, ...]
    facts: CaptureFacts
