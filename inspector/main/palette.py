"""The command palette: every key of the main screen by its name, its sentence and what else it is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import platformdirs
from textual.app import App, ComposeResult
from textual.command import (
    CommandInput,
    CommandList,
    CommandPalette,
    DiscoveryHit,
    Hit,
    Hits,
    Provider,
    SearchIcon,
)
from textual.containers import Horizontal, Vertical
from textual.widgets import LoadingIndicator

from engine import confinement
from engine.frozen import frozen
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.screen import MainScreen
from inspector.main.tool_screen import ToolScreen
from inspector.widgets.actions import Action, ActionTable, KeyLine, note
from inspector.widgets.lists import SafeOptionList
from inspector.widgets.overlay import Overlay


class SafeCommandList(CommandList, SafeOptionList):
    """The list of commands."""


class Palette(CommandPalette, Overlay[None]):
    """The toolkit's palette, left once like any other dialog, with a list that no early key ends the program in."""

    ACTIONS: ClassVar[ActionTable] = ActionTable(
        "In the command palette",
        (
            note("up down", hint="choose", worth=5),
            note("enter", hint="do it", worth=6),
            note("escape", hint="leave", worth=8),
        ),
        told=False,
    )

    def compose(self) -> ComposeResult:
        """The toolkit's own, but for the list."""
        with Vertical(id="--container"):
            with Horizontal(id="--input"):
                yield SearchIcon()
                yield CommandInput(placeholder=self._placeholder, select_on_focus=False)
            with Vertical(id="--results"):
                yield SafeCommandList()
                yield LoadingIndicator()
        yield KeyLine(classes="-dialog")

    def let_go(self) -> None:
        """End the clocks: the toolkit's would ask for the list when it has gone."""
        self._stop_busy_countdown()
        self._stop_no_matches_countdown()


def save_picture(app: App[Any]) -> None:
    """Save a picture of the screen as SVG, in the folder for downloads or else in the current one, and say where.

    A visitor's goes to the visitor's own folder.
    """
    downloads = platformdirs.user_downloads_path()
    try:
        folder = confinement.folder() or str(downloads if downloads.is_dir() else Path.cwd())
        path = app.save_screenshot(path=folder)
    except OSError as error:
        text = f"{error.strerror or error}. {key_for('export')} writes a picture where you choose."
        app.notify(visible(text), title="No picture was saved", severity="error", markup=False)
    else:
        app.notify(visible(path), title="Saved a picture of the screen", markup=False)


WORD, BEGINNING, TOLD, INITIALS, SCATTERED = 1.0, 0.8, 0.4, 0.3, 0.01
"""The fit of a word that was typed: a whole word of a name, its beginning, one of the sentence; letters alone."""
SYNONYMS = {
    "Screenshot": "picture image capture svg print",
    "Theme": "dark light colors colours appearance",
}
"""Other names for what the application has beyond keys."""
PASSED = frozenset(
    ["a", "an", "the", "of", "to", "in", "and", "or", "is", "it", "my", "me", "how", "what", "with", "for"]
)
"""Words that tell nothing."""
_WORDS = re.compile(r"[^\W_]+")


def fit(typed: str, name: str, told: str, also: str = "") -> float:
    """The fit of a command to what was typed: 0 for none. Every word that was typed has to be somewhere in it.

    Args:
        typed: Words, or the initials of the name's.
        name: Of the command.
        told: The sentence about it.
        also: What else it is called.
    """
    wanted = [word for word in _words(typed) if word not in PASSED] or _words(typed)
    names, others, sentence = _words(name), _words(also), _words(told)
    if not wanted:
        return 0.0
    if len(wanted) == 1 and len(wanted[0]) > 1 and wanted[0] == "".join(word[0] for word in names):
        return INITIALS
    fits = [max(_fit(word, names), 0.95 * _fit(word, others), TOLD * _fit(word, sentence)) for word in wanted]
    return sum(fits) / len(fits) + (0.1 if wanted == names else 0.0) if all(fits) else 0.0


def _fit(typed: str, words: Sequence[str]) -> float:
    return WORD if typed in words else BEGINNING if any(word.startswith(typed) for word in words) else 0.0


def _words(text: str) -> list[str]:
    return _WORDS.findall(text.lower())


@frozen
class _Entry:
    """One command."""

    name: str
    help: str
    callback: Callable[[], Any]
    also: str = ""


class KeyCommands(Provider):
    """Offers the keys of a tool's own screen, where that is on top, the actions of the main screen, and what the
    application has beyond keys."""

    async def discover(self) -> Hits:
        """All of them, the actions in the order of the help."""
        for each in self._entries():
            yield DiscoveryHit(each.name, each.callback, each.name, each.help)

    async def search(self, query: str) -> Hits:
        """Those that have the words that were typed; where none has, those with its letters in their names."""
        entries, matcher = list(self._entries()), self.matcher(query)
        scores = [
            fit(query, each.name, each.help.partition(" · ")[2] or each.help, each.also) for each in entries
        ]
        if not any(scores):
            scores = [SCATTERED * matcher.match(each.name) for each in entries]
        for score, each in zip(scores, entries, strict=True):
            if score > 0:
                yield Hit(score, matcher.highlight(each.name), each.callback, each.name, each.help)

    @property
    def _main(self) -> MainScreen:
        return next(each for each in self.app.screen_stack if isinstance(each, MainScreen))

    def _entries(self) -> Iterator[_Entry]:
        main, screen = self._main, self.screen
        if isinstance(screen, ToolScreen):
            yield from self._own(screen)
        if isinstance(screen, ToolScreen) or screen is main:
            for action in main.table.actions:
                yield _entry(action, partial(self._do, action))
        for name, told, callback, _ in self.app.get_system_commands(screen):
            yield _Entry(name, told, callback, SYNONYMS.get(name, ""))

    def _own(self, screen: ToolScreen[Any]) -> Iterator[_Entry]:
        for table in screen.tables:
            for action in table.actions if table.when(screen) else ():
                if action.label and screen.offers(action):
                    yield _entry(action, partial(screen.perform, action))

    async def _do(self, action: Action) -> None:
        """Do what an action of the main screen does, once the tool's own screen is left."""
        if isinstance(self.screen, ToolScreen):
            self.screen.leave()
        self._main.host.press(action.id)


def _entry(action: Action, callback: Callable[[], Any]) -> _Entry:
    return _Entry(action.label, f"{action.shown} · {action.told}", callback, action.synonyms)
