"""What was looked at, as elements of the page: they stand in it for print and where no script runs.

With scripts the panel shows those of the chosen token, copied from here. Which tools there are is not known here: each
makes its own part.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from inspector.blocks.elements import element
from inspector.display import quoted, token_label
from inspector.main.evidence import Exhibit, Exported, exhibits_of
from inspector.state.session_tree import Item, SessionTree
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
    return [*(article for node in nodes for article in _articles(recording, of, node, views[node])), *whole]


def _articles(recording: Recording, of: Exported, node: int, views: list[Exhibit]) -> Iterator[Element]:
    """All views of one token's way through the model: with those that explain the token that the path, or else the
    oldest branch, took after it; then those that explain the tokens of other branches, each by itself."""
    tree, path = recording.timeline.tree, {each.node for each in recording.items}
    children = sorted(tree.children.get(node, ()), key=lambda child: child not in path)
    tokens = dict.fromkeys(tree.nodes[child].id for child in children)
    shown = {tree.nodes[child].id: child for child in reversed(children) if child in of.places}
    own = next((token for token in tokens if token in shown), None)
    if found := [view for view in views if view.token == own or view.token not in tokens]:
        yield _article(of, tree, node, None if own is None else shown[own], found)
    for token in tokens:
        if token in shown and token != own and (found := [view for view in views if view.token == token]):
            yield _article(of, tree, node, shown[token], found)


def _article(of: Exported, tree: SessionTree, node: int, taken: int | None, views: list[Exhibit]) -> Element:
    """Some views of a token's way through the model, and the token that was taken after it, if any was."""
    own = None if taken is None else tree.nodes[taken].id
    followed = f"What came after {_named(tree.nodes[node])}"
    followed += f": {_named(tree.nodes[taken])}" if taken is not None else ""
    sections = [
        element("section", element("h4", view.heading), *made, class_="look", data_kind=view.kind,
                data_token=own if view.token is not None and view.token == own else None)
        for view in views
        if (made := tuple(view.make()))
    ]  # fmt: skip
    next_row = of.places[taken] if taken is not None else None
    return element(
        "article",
        element("h3", followed),
        *sections,
        class_="looked",
        data_row=of.places[node],
        data_next=next_row,
    )


def _named(item: Item) -> str:
    return quoted(token_label(item.text, item.raw))
