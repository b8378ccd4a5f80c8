"""What spares the toolkit styling, laying out and drawing the same thing again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from textual import events
from textual._compositor import CompositorMap
from textual.css.model import RuleSet, SelectorType
from textual.css.styles import RulesMap
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.geometry import Size
from textual.message import Message
from textual.messages import Layout, Update
from textual.screen import Screen
from textual.widget import Widget

MOST = 4096
"""Paths that are remembered: all dialogs and screens have some hundreds of them."""
Result = TypeVar("Result")


# ---- layouts ------------------------------------------------------------------------------------


class LaidOutOnce(Screen[Result]):
    """A screen that a layout is enough for.

    The toolkit has each widget that got another size in a layout ask for the next one, and follows what was asked for
    before a layout after it. Only where a scroll bar came or went is there less room, or more, than was laid out for.
    """

    _laid_out: float = 0
    """When it was laid out last."""
    _placed: CompositorMap | None = None
    """Where everything was then."""
    _painted: float = 0
    """When all of it was painted last."""

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Lay out, and paint."""
        bars = self._bars()
        scrolled = scroll and not self._layout_widgets  # what moved is placed, and nothing else is laid out
        for each in () if scrolled else self.walk_children(Widget):
            # this layout is that of all that was asked for: the toolkit forgets old arrangements later only
            for ancestor in each.ancestors if each._layout_required else ():
                if not isinstance(ancestor, Widget):
                    break
                ancestor._clear_arrangement_cache()
                ancestor._layout_updates += 1
                if not ancestor.styles.auto_dimensions:
                    break
        # a layout paints what differs from the toolkit's map of the screen. Whoever asks for a place, as the mouse
        # does, may have that map made anew before: what went since the last layout, as a notice that has expired,
        # stands in neither of the two then, and would stay on the terminal
        now = self._compositor._full_map
        if self._placed is not None and now is not self._placed:
            for _, place in self._placed.items() ^ now.items():
                if went := place.clip.intersection(place.region):
                    self._compositor._dirty_regions.add(went)
        super()._refresh_layout(size, scroll)
        self._placed = self._compositor._full_map
        if scrolled or not (self.outer_size if size is None else size):
            return
        self._laid_out = Message().time
        if self._bars() == bars:
            for each in self.walk_children(Widget, with_self=True):
                each._layout_required = False

    def _screen_resized(self, size: Size) -> None:
        """Lay out for another size: after the first layout the toolkit sends the size that was laid out for."""
        if size != self._compositor.size:
            super()._screen_resized(size)

    def _on_timer_update(self) -> None:
        """Paint, with what changed on the screens below: the toolkit would paint this one again for each of those."""
        if self.is_active:
            for below in self.app._background_screens:
                below._on_timer_update()
        # where a part of the screen below changed, the toolkit forgets which widgets of this one did
        if self._repaint_required and self.is_current:
            self._compositor.update_widgets(self._dirty_widgets)
        super()._on_timer_update()

    def _compositor_refresh(self) -> None:
        """Paint. Where all is to be painted after a layout, that is enough."""
        if self._repaint_required and self.is_active:
            return
        whole = self._compositor.size.region in self._compositor._dirty_regions
        if whole and self.is_active and not self.app._batch_count:
            drawn_anew = all(map(self._styles_cache.is_dirty, range(self.size.height)))
            # its ground, which is kept else, has those below
            for screen in (self, *(self.app._background_screens if drawn_anew else ())):
                if isinstance(screen, LaidOutOnce):
                    # all of it is painted next: whoever has asked for a paint until now has it
                    screen._painted = Message().time
                    for each in screen.walk_children(Widget):
                        each._repaint_required = False
        super()._compositor_refresh()

    def _bars(self) -> tuple[list[Widget], list[Widget]]:
        """The widgets that show a vertical scroll bar, and those that show a horizontal one."""
        vertical: list[Widget] = []
        horizontal: list[Widget] = []
        for each in self.walk_children(Widget, with_self=True):
            if each.show_vertical_scrollbar:
                vertical.append(each)
            if each.show_horizontal_scrollbar:
                horizontal.append(each)
        return vertical, horizontal

    def _maybe_clear_tooltip(self, screen: Screen[Any]) -> None:
        """Hide the tooltip of what is under the mouse no longer, behind the layout that told so: what asks for a layout
        within one has it."""
        self.call_later(super()._maybe_clear_tooltip, screen)

    def _forward_event(self, event: events.Event) -> None:
        """Take in an event of the terminal. What is under the mouse is known from the last layout: where a widget has
        gone since, as a notice that expired while another screen was on top, lay out first."""
        if isinstance(event, events.MouseEvent) and any(each._pruning for each in self._compositor._full_map):
            self._refresh_layout()
        super()._forward_event(event)

    async def _dispatch_message(self, message: Message) -> None:
        """Dispatch a message, unless it asks for a layout that there was, or for a paint."""
        there_was = {Layout: self._laid_out, Update: self._painted}.get(type(message), 0)
        if message.time >= there_was:
            await super()._dispatch_message(message)


# ---- the style sheet ----------------------------------------------------------------------------


class RememberingStylesheet(Stylesheet):
    """The style sheet of the application, which remembers what it found.

    Whenever a class of a widget changes, the toolkit styles it and everything in it: for each widget it goes through
    all rules, hundreds of them, tries those that may hold on the whole path from the application down, and sets each
    value. It does so too for a form that it built a moment ago. Here rules are found once for all widgets of a path.
    """

    _EXCLUDE_PSEUDO_CLASSES_FROM_CACHE: ClassVar[set[str]] = set()  # type: ignore[misc]
    """None: all that the rules ask for are part of a path."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._every: list[RuleSet] = []
        """All rules that what follows was made of."""
        self._order: dict[int, int] = {}
        """The place of each among them, by its `id`: to hash a rule is a call."""
        self._ids: frozenset[str] = frozenset()
        """The ids that any selector asks for."""
        self._candidates: dict[frozenset[str], tuple[list[RuleSet], tuple[str, ...]]] = {}
        """Rules that may hold, and the pseudo classes they ask for, by the names that selectors know a widget by."""
        self._found: dict[tuple[frozenset[str], Hashable], _OfPath] = {}
        """The values that the rules give, by those names and the path of a widget."""
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
        if (rules := self.rules) is not self._every:
            self._forget()
        by_name = self.rules_map  # made of all rules: the toolkit asks for it below, when there are few
        names = frozenset(node._selector_names)
        if names not in self._candidates:
            held = {self._order[id(rule)] for name in names for rule in by_name.get(name, ())}
            may_hold = [rules[place] for place in sorted(held)]
            asked = set[str]().union(*(rule.pseudo_classes for rule in may_hold))
            self._candidates[names] = may_hold, tuple(sorted(asked))
        self._next, pseudo_classes = self._candidates[names]
        path: list[Hashable] = []  # all that selectors see of it and of those that it is in
        for within in node.css_path_nodes:
            own = within._id if within._id in self._ids else None
            pseudo = tuple(filter(within.has_pseudo_class, pseudo_classes))
            path.append((type(within), own, frozenset(within._classes), pseudo))
        whole = names, tuple(path)
        if (found := self._found.get(whole)) is None:
            if len(self._found) > MOST:
                self._found.clear()
            found = self._found[whole] = _OfPath()
        super().apply(node, animate=animate, cache=found)

    def set_variables(self, variables: dict[str, str]) -> None:
        """Take the colours of a theme; whoever has the same values as before is told, too: panels mix inks of them."""
        super().set_variables(variables)
        self._given.clear()

    def _forget(self) -> None:
        """The rules have changed: forget what the new ones concern, or all where some have gone. A class of widgets
        brings its own with its first widget: a dozen times until the first paint, when most are of no concern."""
        rules, known = self.rules, self._order
        new = [rule for rule in rules if id(rule) not in known]
        if len(known) + len(new) > len(rules):
            self._ids, self._candidates, self._found, new = frozenset(), {}, {}, rules
        concerned = {name for rule in new for name in rule.selector_names}
        self._candidates = {
            names: held for names, held in self._candidates.items() if concerned.isdisjoint(names)
        }
        self._found = {key: found for key, found in self._found.items() if key[0] in self._candidates}
        parts = (part for rule in new for selectors in rule.selector_set for part in selectors.selectors)
        self._ids |= {part.name for part in parts if part.type is SelectorType.ID}
        self._every, self._order = rules, {id(rule): place for place, rule in enumerate(rules)}

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
        animate = animate and bool(rules.get("transitions"))  # without any the toolkit sets all at once, too
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


class _OfPath(dict[Any, RulesMap]):
    """The values of one path, in the place of the toolkit's cache, whose keys hold only while nothing changes."""

    def get(self, key: object, default: Any = None) -> Any:
        """The values, if they were found before."""
        return next(iter(self.values()), default)
