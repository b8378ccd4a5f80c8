"""The source of a direction of the residual stream, and the two candidates whose logits it is judged by."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from engine.protocol import Candidate


class Contrast(Struct, frozen=True):
    """Source of a direction: two kinds of text, or two nodes."""

    name: str
    toward: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()


EXAMPLE = Contrast(
    "happy-sad",
    (
        "Lily was very happy. She smiled and",
        "Tom was so happy that he laughed and",
        "They were happy and glad. They",
    ),
    ("Lily was very sad. She cried and", "Tom was so sad that he wept and", "They were sad and upset. They"),
)
"""Values that the fields begin with, as an example."""


def followed(name: str, best: Sequence[Candidate]) -> tuple[int, int]:
    """The places of the two candidates whose logits are followed: those that the direction is named after, or else the
    first two.

    Args:
        name: Of the direction: `happy-sad`.
        best: The candidates, the most probable first.
    """
    texts = [each.text.strip() for each in best]
    named = [texts.index(word) for word in name.split("-") if word in texts]
    return (named[0], named[1]) if len(set(named)) == 2 else (0, 1)
