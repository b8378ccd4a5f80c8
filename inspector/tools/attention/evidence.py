"""Where the model looked, as it leaves with an export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from xml.etree.ElementTree import Element

from engine.protocol import AttentionRead, HeadsScored, Record
from inspector.blocks.elements import explained, row, table, token_span
from inspector.display import token_label
from inspector.lessons.lesson import Beat
from inspector.main.evidence import Exhibit, Exported, ExportPart, of_both
from inspector.scales import count, percent
from inspector.state.heads import NAMED, ROLES, best_of, found_words, measured_on
from inspector.state.inside import InsideViews
from inspector.state.session_tree import Item, SessionTree
from inspector.state.timeline import Timeline

STRONGEST = 8
"""Heads that are listed."""
ROLE_HEADS = 3
"""That are listed of each kind."""
PLACES = 6
"""That a head looks at, in a lesson."""


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def exhibits(seen: InsideViews) -> Iterator[Exhibit]:
        for node, read in seen.attention.items():
            make = partial(_strongest, read, of.timeline.tree, node)
            yield Exhibit("attention", "Where the model looked", make, node)
        for (node, texts), scored in seen.scored.items():
            name = "heads" if texts is None else f"heads-{texts.count}-{texts.length}-{texts.seed}"
            heading = f"What the heads do, over {measured_on(scored)}"
            yield Exhibit(name, heading, partial(_roles, scored), node)

    return of_both(of, exhibits)


def _strongest(read: AttentionRead, tree: SessionTree, node: int) -> Iterator[Element]:
    """The strongest weights that are not on the first token, which many heads look at where they look at nothing."""
    path = tree.path(node)
    found = sorted(
        (
            (weight, layer.layer, head, place)
            for layer in read.layers
            for head in range(layer.heads)
            for place, weight in enumerate(layer.over(head, read.tokens))
            if 0 < place < len(path)
        ),
        reverse=True,
    )
    rows = [
        row(f"L{layer + 1} h{head + 1}", token_span(path[at]), f"token {at + 1}", percent(weight))
        for weight, layer, head, at in found[:STRONGEST]
    ]
    says = "The strongest weights, the first token aside. Where a head looks does not show what it takes from there."
    head_names = ("head", "looks at", "", "weight")
    yield explained(says, read.facts, table("", head_names, rows, class_="figured"))


def _roles(scored: HeadsScored) -> Iterator[Element]:
    """The heads that score highest as each of the known kinds."""
    rows = [
        row(
            f"{role.name} head",
            f"L{each.layer + 1} h{each.head + 1}",
            percent(value),
            "named so" * (value >= NAMED),
        )
        for role in ROLES
        for value, each in best_of(role, scored.heads)[:ROLE_HEADS]
    ]
    says = " ".join(found_words(scored))
    head_names = ("as a", "head", "share of its attention", "")
    yield explained(says, scored.facts, table("", head_names, rows, class_="figured"))


LEAST = 0.004
"""Weights below are left out: no token's colour shows them."""


def _data(of: Exported) -> Mapping[str, Any]:
    """Rows of the tokens whose attention was read, each with it."""
    read = of.timeline.of(InsideViews).attention.items()
    return {"inside": [[of.places[node], _attention(each)] for node, each in read if node in of.places]}


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
    read = timeline.of(InsideViews).attention.get(timeline.tip)
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
