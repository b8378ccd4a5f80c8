"""Where the model looked, as it leaves with an export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from engine.protocol import AttentionRead, HeadsScored, Record
from inspector.blocks.elements import row, table
from inspector.display import token_label
from inspector.documents.attention import measured_on, roles, strongest
from inspector.documents.parts import Exhibit, Exported, ExportPart, looked_at
from inspector.lessons.lesson import Beat
from inspector.scales import count, percent
from inspector.state.inside import Answers
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline

PLACES = 6
"""Tokens that a head attends to, in a lesson."""


def _heads(scored: HeadsScored, before: int) -> str:
    texts = scored.texts
    return "heads" if texts is None else f"heads-{texts.count}-{texts.length}-{texts.seed}"


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    yield from looked_at(AttentionRead, "attention", lambda read: "Where the model looked", strongest)(of)
    yield from looked_at(
        HeadsScored,
        _heads,
        lambda scored: f"What the heads do, over {measured_on(scored)}",
        lambda scored, path: roles(scored),
    )(of)


LEAST = 0.004
"""Weights below are left out: no token's colour shows them."""


def _data(of: Exported) -> Mapping[str, Any]:
    """Rows of the tokens whose attention was read, each with it."""
    read = of.timeline.of(Answers).found(AttentionRead)
    return {"inside": [[of.places[each.node], _attention(each)] for each in read if each.node in of.places]}


def _attention(read: AttentionRead) -> list[Any]:
    """For each head its layer and number, from 1, then pairs of a place in the path and a weight in per mille."""
    return [
        [layer.layer + 1, head + 1, *_weights(layer.over(head, read.tokens))]
        for layer in read.layers
        for head in range(layer.heads)
    ]


def _weights(row: tuple[float, ...]) -> list[int]:
    pairs = [(place, round(weight * 1000)) for place, weight in enumerate(row) if weight >= LEAST]
    return [number for pair in pairs for number in pair]


def _beat(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The attention from the last token of the heads that the beat asks about."""
    found = timeline.of(Answers).found(AttentionRead)
    read = next((each for each in found if each.node == timeline.tip), None)
    if read is None:
        return
    layers = {each.layer + 1: each for each in read.layers}
    for layer, head in (each for each in beat.calls("head") if len(each) == 2):
        if layer in layers and 1 <= head <= layers[layer].heads:
            yield _head(timeline.items, layer, head, layers[layer].over(head - 1, read.tokens))


def _head(path: Sequence[Item], layer: int, head: int, weights: Sequence[float]) -> Element:
    places = sorted(range(len(weights)), key=lambda place: -weights[place])[:PLACES]
    rows = [
        row(token_label(path[at].text, path[at].raw), count(at + 1), percent(weights[at]))
        for at in places
        if at < len(path)
    ]
    head_names = ("token", "place", "weight")
    return table(f"Where layer {layer}, head {head} looks", head_names, rows, class_="plain")


ATTENTION_PART = ExportPart("attention", _exhibits, _data, _beat)
