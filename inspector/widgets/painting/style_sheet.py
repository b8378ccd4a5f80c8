"""The toolkit's style sheet, which remembers what it found.

Whenever a class of a widget changes, the toolkit styles it and everything in it: for each widget it goes through all
rules, hundreds of them, tries those that may hold on the whole path from the application down, and sets each value.
It does so too for a form that it built a moment ago. Here rules are found once for all widgets of the same path.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from textual.css.model import RuleSet, Selector, SelectorType
from textual.css.styles import RulesMap
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode

MOST = 4096
"""Paths that are remembered: all dialogs and screens have some hundreds of them."""


class RememberingStylesheet(Stylesheet):
    """The style sheet of the application."""

    _EXCLUDE_PSEUDO_CLASSES_FROM_CACHE: ClassVar[set[str]] = set()  # type: ignore[misc]
    """None: all that the rules ask for are part of a path."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._every: list[RuleSet] | None = None
        """All rules that what follows was made of."""
        self._ids: frozenset[str] = frozenset()
        """The ids that any selector asks for."""
        self._candidates: dict[frozenset[str], tuple[list[RuleSet], tuple[str, ...]]] = {}
        """Rules that may hold, and the pseudo classes they ask for, by the names that selectors know a widget by."""
        self._found: dict[Hashable, RulesMap] = {}
        """The values, by path."""
        self._given: WeakKeyDictionary[DOMNode, tuple[RulesMap, int]] = WeakKeyDictionary()
        """The values that a widget got last, and the count of changes to its style that it had then."""
        self._changed: set[DOMNode] | None = None
        """Those of the widgets that are styled together that changed, or are in one that did."""
        self._next: list[RuleSet] | None = None
        """The rules for whoever asks next."""

    @property
    def rules(self) -> list[RuleSet]:
        """All rules; within the toolkit's `apply`, which asks once, those that may hold."""
        few, self._next = self._next, None
        return super().rules if few is None else few

    def apply(self, node: DOMNode, *, animate: bool = False, cache: Any = None) -> None:
        """Style a widget.

        Args:
            node: The widget.
            animate: Whether values that may be animated are.
            cache: The toolkit's own, for the widgets that are styled together: of no use here.
        """
        self._next = None
        if self.rules is not self._every:
            self._forget()
        few, pseudo_classes = self._candidates_for(frozenset(node._selector_names))
        self._next = few
        super().apply(node, animate=animate, cache=_Slot(self._found, self._path(node, pseudo_classes)))

    def _forget(self) -> None:
        """The rules have changed."""
        self._every = self.rules
        self._ids = frozenset(
            each.name for rule in self._every for each in _selectors(rule) if each.type is SelectorType.ID
        )
        self._candidates, self._found = {}, {}
        self._given.clear()

    def _candidates_for(self, names: frozenset[str]) -> tuple[list[RuleSet], tuple[str, ...]]:
        if names not in self._candidates:
            held = {rule for name in self.rules_map.keys() & names for rule in self.rules_map[name]}
            few = [rule for rule in self.rules if rule in held]
            asked = {name for rule in few for each in _selectors(rule) for name in each.pseudo_classes}
            self._candidates[names] = few, tuple(sorted(asked))
        return self._candidates[names]

    def _path(self, node: DOMNode, pseudo_classes: tuple[str, ...]) -> Hashable:
        """All that selectors see of a widget and of those that it is in."""
        if len(self._found) > MOST:
            self._found.clear()
        ids = self._ids
        return tuple(
            (
                type(each),
                each._id if each._id in ids else None,
                frozenset(each._classes),
                tuple([name for name in pseudo_classes if each.has_pseudo_class(name)]),
            )
            for each in node.css_path_nodes
        )

    def update_nodes(self, nodes: Iterable[DOMNode], animate: bool = False) -> None:
        """Style some widgets, each after the one that it is in."""
        self._changed = set()
        try:
            super().update_nodes(nodes, animate=animate)
        finally:
            self._changed = None

    def replace_rules(  # type: ignore[override]
        self, node: DOMNode, rules: RulesMap, animate: bool = False
    ) -> None:
        """Give a widget its values, unless it has them already, and tell it where these or those around it changed:
        panels draw anew what they are told of."""
        style, last, changed = node.styles.base, self._given.get(node), self._changed
        same = last is not None and last[1] == style._updates and (last[0] is rules or last[0] == rules)
        if not same:
            super().replace_rules(node, rules, animate=animate)
        elif changed is None or node._parent in changed:
            node.notify_style_update()
        if changed is not None and (not same or node._parent in changed):
            changed.add(node)
        if same or not animate:  # animated values come bit by bit
            self._given[node] = rules, style._updates


class _Slot(dict[Any, RulesMap]):
    """The values of one path, in the place of the toolkit's cache, which holds while nothing changes."""

    def __init__(self, found: dict[Hashable, RulesMap], path: Hashable) -> None:
        super().__init__()
        self._found, self._path = found, path

    def get(self, key: object, default: Any = None) -> Any:
        """The values, if they were found before."""
        return self._found.get(self._path, default)

    def __setitem__(self, key: object, rules: RulesMap) -> None:
        self._found[self._path] = rules


def _selectors(rule: RuleSet) -> list[Selector]:
    return [selector for selectors in rule.selector_set for selector in selectors.selectors]
