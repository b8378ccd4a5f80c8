"""The last line: the keys that matter most, as many as fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from inspector.main.keys import KEYS, Key
from inspector.state.timeline import Phase

BY_ID = {key.id: key for key in KEYS}
GAP = 2
"""Cells between two keys."""


@dataclass(frozen=True, slots=True)
class Hint:
    """One or two keys and their word."""

    ids: tuple[str, ...]
    word: str
    worth: int
    """The least worthy goes first where there is no room."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys, of the table."""
        return tuple(BY_ID[id] for id in self.ids)

    @property
    def shown(self) -> str:
        """The keys as a person reads them."""
        return "".join(key.shown for key in self.keys)

    @property
    def width(self) -> int:
        """Cells that it takes."""
        return cell_len(f"{self.shown} {self.word}")


HINTS: tuple[Hint, ...] = (
    Hint(("step",), "step", 12),
    Hint(("run",), "run", 11),
    Hint(("earlier", "later"), "walk", 7),
    Hint(("above", "below"), "candidate", 5),
    Hint(("choose",), "choose", 10),
    Hint(("find",), "find", 3),
    Hint(("own_text",), "type", 2),
    Hint(("take_back",), "take back", 2),
    Hint(("why",), "why", 6),
    Hint(("tree",), "tree", 5),
    Hint(("beams",), "beams", 2),
    Hint(("metric",), "colour", 3),
    Hint(("sampling",), "sampling", 4),
    Hint(("prompt",), "prompt", 9),
    Hint(("enlarge",), "enlarge", 1),
    Hint(("help",), "help", 13),
    Hint(("quit",), "quit", 8),
)


RUNNING = {"step": Hint(("step",), "pause", 12), "run": Hint(("slower", "faster"), "pace", 11)}
"""What takes the place of the first two during a run."""
IN_TREE = {
    "earlier": Hint(("earlier", "later"), "fold", 7),
    "above": Hint(("above", "below"), "branch", 12),
    "choose": Hint(("choose",), "go", 12),
    "why": Hint(("name",), "name", 9),
    "metric": Hint(("delete",), "delete", 10),
    "sampling": Hint(("undelete",), "undo", 7),
    "take_back": Hint(("bookmark",), "bookmark", 6),
    "tree": Hint(("tree",), "back", 10),
}
"""What takes the place of others while the tree is the current panel."""


IN_REPLAY = {
    "step": Hint(("step",), "next", 12),
    "run": Hint(("run",), "play", 11),
    "take_back": Hint(("take_back",), "back", 9),
    "prompt": Hint(("go_live",), "go live", 10),
    "sampling": Hint(("compare",), "compare", 4),
    "own_text": Hint(("jump",), "jump", 2),
}
"""What takes the place of others while a recording is on show."""


def fitting(width: int, running: bool = False, tree: bool = False, recorded: bool = False) -> list[Hint]:
    """The hints that fit in so many cells, in their order."""
    instead = (IN_REPLAY if recorded else {}) | (RUNNING if running else {}) | (IN_TREE if tree else {})
    kept = [instead.get(hint.ids[0], hint) for hint in HINTS]
    while kept and sum(hint.width for hint in kept) + GAP * (len(kept) - 1) > width:
        kept.remove(min(kept, key=lambda hint: hint.worth))
    return kept


class KeyLine(Widget):
    """Keys that can be clicked; grey while they mean nothing."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.phase: Phase | None = None
        self.wooded = self.recorded = False

    def show(self, phase: Phase, tree: bool = False, recorded: bool = False) -> None:
        """Show the keys anew, where the phase or the panel is another one: they decide what keys mean.

        Args:
            phase: What the engine is doing.
            tree: Whether the tree is the current panel.
            recorded: Whether a recording is on show.
        """
        if (phase, tree, recorded) != (self.phase, self.wooded, self.recorded):
            self.phase, self.wooded, self.recorded = phase, tree, recorded
            self.refresh()

    def render(self) -> Content:
        hints = fitting(self.content_size.width, self.phase is Phase.RUNNING, self.wooded, self.recorded)
        return Content(" " * GAP).join(self._hint(hint) for hint in hints)

    def _hint(self, hint: Hint) -> Content:
        enabled = all(self._enabled(key) for key in hint.keys)
        return Content("").join(
            (*self._keys(hint, enabled), Content.styled(f" {hint.word}", "" if enabled else "dim"))
        )

    def _keys(self, hint: Hint, enabled: bool) -> Iterator[Content]:
        for key in hint.keys:
            content = Content.styled(key.shown, "bold $footer-key-foreground" if enabled else "dim")
            yield content.stylize(Style.from_meta({"key": key.id}))

    def _enabled(self, key: Key) -> bool:
        return bool(self.screen.check_action(key.action.partition("(")[0], ()))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Explain the key under the mouse."""
        key = BY_ID.get(event.style.meta.get("key", ""))
        self.tooltip = key.tooltip if key else None

    async def on_click(self, event: events.Click) -> None:
        """Do what the key does."""
        if (key := BY_ID.get(event.style.meta.get("key", ""))) is not None:
            await self.screen.run_action(key.action)
