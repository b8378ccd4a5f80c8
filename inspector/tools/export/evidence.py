"""What was looked at, as elements of the page: they stand in it for print and where no script runs.

With scripts the panel shows those of the chosen token, copied from here. Which tools there are is not known here: each
makes its own part.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element

from inspector.display import quoted, token_label
from inspector.main.elements import element
from inspector.main.evidence import Exhibit, exhibits_of
from inspector.state.session_tree import Item
from inspector.tools.export.recording import Recording, exported


def evidence(recording: Recording) -> list[Element]:
    """An article for each token whose forward was looked at, in the order of the tree's tokens, then one for each view
    of the whole session.

    Args:
        recording: Whose views they are.
    """
    of = exported(recording)
    views: dict[int | None, list[Exhibit]] = {}
    for view in exhibits_of(recording.parts, of):
        views.setdefault(view.node, []).append(view)
    whole = [
        element("article", element("h3", view.heading), *made, class_="looked")
        for view in views.pop(None, ())
        if (made := tuple(view.make()))
    ]
    nodes = sorted((node for node in views if node is not None), key=lambda node: of.places[node])
    return [
        *(_article(recording, node, of.places[node], views[node]) for node in nodes),
        *whole,
    ]


def _article(recording: Recording, node: int, place: int, views: list[Exhibit]) -> Element:
    """All views of one token's way through the model."""
    tree, path = recording.timeline.tree, {each.node for each in recording.items}
    children = tree.children.get(node, [])
    taken = next((child for child in children if child in path), children[0] if children else None)
    followed = f"What came after {_named(tree.nodes[node])}"
    followed += f": {_named(tree.nodes[taken])}" if taken is not None else ""
    sections = [
        element("section", element("h4", view.heading), *made, class_="look", data_kind=view.kind)
        for view in views
        if (made := tuple(view.make()))
    ]
    return element("article", element("h3", followed), *sections, class_="looked", data_row=place)


def _named(item: Item) -> str:
    return quoted(token_label(item.text, item.raw))
