"""Why a head looks there: its scores q·k divided among what wrote into the query's and the keys' residual streams.

The stream before a layer is the sum of the embedding and of what each head and MLP before it wrote. With the scales of
the norms held at their values for the real streams, queries and keys are linear in these writers, rotary positions
included. A score is then a sum over pairs: what one writer put into the query times what another put into the key.

Softmax ignores what all keys share, so a share means something against the mean over the keys, or between two keys.
"""

from __future__ import annotations

from msgspec import Struct

from engine.protocol.attribution import WriterKind
from engine.protocol.base import Record
from engine.protocol.inside import CaptureFacts, Look
from engine.protocol.numbers import Count, Floats

MOST_KEYS = 16
"""That a command may name."""


class ReadScore(Look, frozen=True):
    """What made one head look where it looks; answered by `Measuring` records and a `ScoreRead`."""

    node: Count
    """The token that looks: its query."""
    layer: Count | None = None
    """From 0; None for that of the head with the largest weight on one token, neither the first nor the last two."""
    head: Count | None = None
    """From 0; None for the one with the largest weight so."""
    keys: tuple[Count, ...] = ()
    """Some to keep whatever their weights, by their places in the path, from 0; at most `MOST_KEYS`."""


class ScoreWriter(Struct, frozen=True):
    """What wrote to the residual stream before the layer."""

    kind: WriterKind
    """`constant`: what the layer makes of a stream of zeros, such as the biases of queries and keys."""
    layer: Count | None
    """None for the embedding and the constant."""
    name: str
    """The layer's attribute that holds the module; empty where there is none."""
    head: Count | None = None
    """Of an attention whose heads are told apart, from 0."""


class ScoreRead(Record, frozen=True):
    """The scores of one head from one token, as sums over what wrote the query and the keys.

    Scores are scaled as the model scales them before its softmax, and taken before a softcap.
    """

    node: Count
    layer: Count
    head: Count
    tokens: Count
    """Of the path, the one that looks included."""
    visible: Count
    """Keys that the head sees."""
    keys: tuple[Count, ...]
    """Places in the path of those that are kept: the heaviest, the first, and the last ones."""
    scores: Floats
    """Of each kept key."""
    weights: Floats
    """The head's own on each kept key."""
    writers: tuple[ScoreWriter, ...]
    by_key: Floats
    """Shape (writers, keys): what each writer's part of the key makes with the whole query. Sums to the scores."""
    by_query: Floats
    """Shape (writers, keys): what each writer's part of the query makes with the whole key. Sums to the scores."""
    pairs: tuple[tuple[Count, Count], ...]
    """Places of a writer of the query and of one of the key: those that matter most to a key, against the mean over the
    keys. None where a part of the score can't be told by pairs."""
    pair_scores: Floats
    """Shape (pairs, keys)."""
    depth: Count
    """Layers of the model."""
    softcap: bool
    """True if the model bends its scores (tanh) before the softmax."""
    notes: tuple[str, ...]
    """A sentence for each kind of thing that was not told apart, with the layers."""
    facts: CaptureFacts

    @property
    def nbytes(self) -> int:
        """Bytes of all packed numbers."""
        packed = self.scores, self.weights, self.by_key, self.by_query, self.pair_scores
        return sum(len(each.packed) for each in packed)
