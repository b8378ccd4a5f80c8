"""The last line: the keys that matter most, as many as fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from inspector.main.tool import Hint, Key, KeyTable, Tool, When
from inspector.state.timeline import Phase, Timeline

GAP = 2
"""Cells between two keys."""


def fitting(
    table: KeyTable,
    width: int,
    when: Collection[When],
    panel: Tool | None = None,
    silent: Collection[str] = (),
) -> list[Hint]:
    """The hints that fit in so many cells, in their order.

    Args:
        table: All keys and hints.
        width: Cells.
        when: What is the case.
        panel: The tool whose panel is the current one.
        silent: Ids of keys that a narrator takes for itself, or refuses.
    """
    chosen: dict[int, Hint] = {}
    hints = [hint for tool in table.tools for hint in tool.hints if hint.when in when]
    hints += [hint for hint in panel.hints if hint.when is When.PANEL] if panel else []
    for hint in sorted(hints, key=lambda hint: hint.when.value):
        chosen[hint.place] = hint
    kept = [chosen[place] for place in sorted(chosen) if not set(chosen[place].ids) & set(silent)]
    while kept and sum(_width(table, hint) for hint in kept) + GAP * (len(kept) - 1) > width:
        kept.remove(min(kept, key=lambda hint: hint.worth))
    return kept


def written(table: KeyTable, hint: Hint) -> str:
    """A hint's keys as a person reads them."""
    return "".join(table[id].shown for id in hint.ids)


def _width(table: KeyTable, hint: Hint) -> int:
    return cell_len(f"{written(table, hint)} {hint.word}")


class KeyLine(Widget):
    """Keys that can be clicked; grey while they mean nothing.

    Args:
        table: All keys and hints.
        available: Whether a key means something now.
        id: Of the widget.
    """

    def __init__(self, table: KeyTable, available: Callable[[Key], bool], id: str | None = None) -> None:
        super().__init__(id=id)
        self._table, self._available = table, available
        self._seen: tuple[Phase | None, Tool | None, bool, Collection[str]] = (None, None, False, ())

    def show(self, timeline: Timeline, panel: Tool | None = None, silent: Collection[str] = ()) -> None:
        """Show the keys again, where the phase, the panel or what a narrator lets through is another one.

        Args:
            timeline: What is on show.
            panel: The tool whose panel is the current one.
            silent: Ids of keys that a narrator takes for itself, or refuses.
        """
        seen = timeline.phase, panel, timeline.recorded, silent
        if seen != self._seen:
            self._seen = seen
            self.refresh()

    def render(self) -> Content:
        phase, panel, recorded, silent = self._seen
        when = {When.ALWAYS, When.REPLAY if recorded else When.LIVE}
        when |= {When.RUNNING} if phase is Phase.RUNNING else set()
        hints = fitting(self._table, self.content_size.width, when, panel, silent)
        return Content(" " * GAP).join(self._hint(hint) for hint in hints)

    def _hint(self, hint: Hint) -> Content:
        enabled = all(self._available(self._table[id]) for id in hint.ids)
        return Content("").join(
            (*self._keys(hint, enabled), Content.styled(f" {hint.word}", "" if enabled else "$ink-faint"))
        )

    def _keys(self, hint: Hint, enabled: bool) -> Iterator[Content]:
        for id in hint.ids:
            style = "bold $footer-key-foreground" if enabled else "$ink-faint"
            yield Content.styled(self._table[id].shown, style).stylize(Style.from_meta({"key": id}))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Explain the key under the mouse."""
        id = event.style.meta.get("key", "")
        self.tooltip = self._table[id].tooltip if id in self._table else None

    async def on_click(self, event: events.Click) -> None:
        """Do what the key does."""
        if (id := event.style.meta.get("key", "")) in self._table:
            await self.screen.run_action(self._table[id].action)
