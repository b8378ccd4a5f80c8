"""Plug-ins: panels, lessons and kinds of documents that other installed packages bring, by entry points.

    [project.entry-points."mlx_inspector.tools"]
    first_choices = "first_choices:PANEL"

names a `PanelPlugin` in a module, an entry point of `mlx_inspector.exporters` an `ExportPlugin`, and one of
`mlx_inspector.lessons` the path of a lesson's file. What a plug-in does is done in threads of its own, for a bounded
time: nothing that it raises or waits for ends or holds up the program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from engine.errors import EngineError
from engine.frozen import frozen
from engine.protocol import Step as StepRecord
from inspector.config.own_keys import can_be_sent
from inspector.display import truncate, visible
from inspector.keys import FIXED, TABS, textual_name
from inspector.state.passage import Passage, Step
from inspector.state.session_tree import Item

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rich.text import Text

Done = TypeVar("Done")
TOOLS, LESSONS, EXPORTERS = "mlx_inspector.tools", "mlx_inspector.lessons", "mlx_inspector.exporters"
KINDS = {TOOLS: "panel", LESSONS: "lesson", EXPORTERS: "exporter"}
"""The kind of each group's entry points, as a message names it."""
PLUGIN = "plugin."
"""The beginning of the ids of their actions."""
LOAD_SECONDS, DRAW_SECONDS, WRITE_SECONDS = 5.0, 2.0, 60.0
"""After which a plug-in is left out, its panel is switched off, and its document is given up."""
_REST, _LONGEST_REST = 3.0, 0.5
"""Times what a drawing took that its thread rests, and seconds that it rests at most."""
_TITLE, _WHY = 24, 200
"""Characters of a title, and of a reason, at most."""
_OURS = frozenset(("html", "md", "csv", "txt", "svg", "lesson"))
"""Names of the documents that come with the program."""


# ---- what a plug-in is --------------------------------------------------------------------------


class Shown(Passage):
    """The tokens of the branch on the screen, which a panel draws."""

    def __init__(self, items: Sequence[Item], slot: int, model: str) -> None:
        super().__init__(items)
        self._slot = slot
        self.model = model
        """Name of the model; empty while there is none."""

    @property
    def selected(self) -> Step | None:
        """The step that the person looks at; None at the end, where the next token is open, and in a prompt."""
        item = self._items[self._slot] if 0 <= self._slot < len(self._items) else None
        return Step(item) if isinstance(item, StepRecord) else None


@frozen
class PanelPlugin:
    """A panel of the screen, which a key opens as one more answer of a tab."""

    title: str
    draw: Callable[[Shown, int, int], Text | str]
    """Given the tokens, and the panel's columns and rows, what to show: lines of text, which are cut where there is no
    room. Called in a thread, whenever the tokens, the selected one or the size changed; it can't touch the screen."""
    key: str
    """The key that opens it, as it is typed: `y`, `ctrl+y`; a person may give it another one in keys.toml."""
    tab: str = "1"
    """Digit of the tab in which the key holds."""
    help: str = ""
    """One sentence, for help and finder."""


@frozen
class ExportPlugin:
    """A kind of document."""

    label: str
    """A word or two, for a choice."""
    purpose: str
    """Its content, as a phrase."""
    write: Callable[[Passage], str]
    """The document's text, of the tokens of a branch. Called in a thread."""


@frozen
class Plugin:
    """One entry point, and what came of it."""

    name: str
    """The entry point's; an exporter's is also the end of a file's name."""
    group: str
    package: str
    """Name and version of the package that brings it."""
    value: PanelPlugin | ExportPlugin | Path | None
    """None where it is left out."""
    problem: str = ""
    """Why it is left out, as a clause; printable."""

    @property
    def kind(self) -> str:
        """Its kind, in a word."""
        return KINDS[self.group]

    @property
    def what(self) -> str:
        """The name of its panel, document or lesson; empty where it is left out."""
        match self.value:
            case PanelPlugin(title=title):
                return title
            case ExportPlugin(purpose=purpose):
                return purpose
            case Path(name=name):
                return visible(name)
        return ""

    @property
    def sentence(self) -> str:
        """The notice of one that is left out."""
        return f"Plug-in {visible(self.name)} ({self.package}) is left out: {self.problem}."


# ---- finding and loading them -------------------------------------------------------------------

_loaded: list[Plugin] = []
"""The plug-ins of this process that can be used."""


def load_all(read_lesson: Callable[[Path], object], groups: Iterable[str] = tuple(KINDS)) -> list[Plugin]:
    """Load the plug-ins of all installed packages. It may take seconds, and imports foreign modules.

    Args:
        read_lesson: Reads the file of a lesson; raises where it is none.
        groups: Of entry points.

    Returns:
        All plug-ins, those that are left out with the reason.
    """
    found = [_load(entry, read_lesson, taken) for entry, taken in _entries(groups)]
    known = {(each.group, each.name) for each in _loaded}
    _loaded.extend(each for each in found if not each.problem and (each.group, each.name) not in known)
    return found


def exporters() -> Iterator[tuple[str, ExportPlugin]]:
    """The kinds of documents of plug-ins that were loaded, with their names."""
    return ((each.name, each.value) for each in _loaded if isinstance(each.value, ExportPlugin))


def lessons() -> Iterator[Path]:
    """The lessons' files of plug-ins that were loaded."""
    return (each.value for each in _loaded if isinstance(each.value, Path))


def _entries(groups: Iterable[str]) -> Iterator[tuple[EntryPoint, bool]]:
    """The entry points, by name, each with whether another one of its group has that name already."""
    from importlib.metadata import entry_points  # 30 to 90 ms where nobody imported it before

    for group in groups:
        before = ""
        for entry in sorted(entry_points(group=group), key=lambda each: (each.name, each.value)):
            yield entry, entry.name == before
            before = entry.name


def _load(entry: EntryPoint, read_lesson: Callable[[Path], object], taken: bool) -> Plugin:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "unknown package"
    made = Plugin(entry.name, entry.group, visible(package), None)
    if taken:
        return replace(made, problem="another plug-in has its name")
    if not (entry.name.isascii() and entry.name.isidentifier() and entry.name.islower()):
        return replace(made, problem="its name must be lower-case letters, digits and underscores")

    def load() -> PanelPlugin | ExportPlugin | Path:
        value = entry.load()
        if entry.group == LESSONS and isinstance(value, str | Path):
            read_lesson(Path(value))
            return Path(value)
        _check(entry, value)
        return cast("PanelPlugin | ExportPlugin", value)

    try:
        value = bounded(load, LOAD_SECONDS, "importing it")
    except EngineError as error:
        return replace(made, problem=str(error).removesuffix("."))
    return replace(made, value=value)


def _check(entry: EntryPoint, value: object) -> None:
    """Refuse what is no plug-in of its group.

    Raises:
        EngineError: It is none, and why.
    """
    kind = {TOOLS: PanelPlugin, EXPORTERS: ExportPlugin}.get(entry.group)
    if kind is None or not isinstance(value, kind):
        wanted = f"a {kind.__name__}" if kind is not None else "the path of a lesson's file"
        raise EngineError(
            f"{visible(entry.value)} must be {wanted}, not a value of type {type(value).__name__}."
        )
    if isinstance(value, PanelPlugin):
        _check_text("title", value.title)
        _check_text("help", value.help or value.title, 300)
        if not (isinstance(value.tab, str) and value.tab in TABS):
            raise EngineError(f"its tab must be one of {', '.join(TABS)}.")
        if not (isinstance(value.key, str) and can_be_sent(value.key)):
            raise EngineError(
                "no terminal sends its key; take a letter, a sign, f1 to f12, or ctrl with a letter."
            )
        if textual_name(value.key) in FIXED | {"ctrl+q", "ctrl+p", "ctrl+c"}:
            raise EngineError(f"its key {value.key} has a fixed meaning everywhere; use another one.")
    elif isinstance(value, ExportPlugin):
        _check_text("label", value.label)
        _check_text("purpose", value.purpose, 100)
        if entry.name in _OURS:
            raise EngineError("a document of the program has its name.")


_MARKS = frozenset("{}|`*")
"""Signs that mean something in the sentences of the help."""


def _check_text(what: str, text: object, most: int = _TITLE) -> None:
    sound = isinstance(text, str) and text.strip() and len(text) <= most and text == visible(text)
    if not sound or not _MARKS.isdisjoint(str(text)):
        raise EngineError(f"its {what} must be 1 to {most} printable characters, without {{ }} | ` and *.")


# ---- calling foreign code -----------------------------------------------------------------------


def bounded(call: Callable[[], Done], seconds: float, what: str) -> Done:
    """Call foreign code in a thread of its own, and wait for it so long at most.

    The thread can't be ended: where it takes longer it is left to itself, and dies with the process.

    Args:
        call: What is called.
        seconds: To wait.
        what: What it does, for the message.

    Raises:
        EngineError: It raised something, or took longer.
    """
    done: list[Done] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            done.append(call())
        except BaseException as error:  # SystemExit, too
            raised.append(error)

    thread = threading.Thread(target=run, name="plug-in", daemon=True)
    thread.start()
    thread.join(seconds)
    if done:
        return done[0]
    if raised:
        raise EngineError(why(raised[0]))
    raise EngineError(f"{what} takes longer than {seconds:g} s.")


def why(error: BaseException) -> str:
    """An exception of foreign code as a sentence; printable, on one line."""
    if isinstance(error, EngineError):
        return visible(str(error))
    try:
        text = str(error)
    except Exception:
        text = ""
    return truncate(visible(f"{type(error).__name__}: {text}".removesuffix(": ")), _WHY).rstrip(".") + "."


class Drawing:
    """Draws a panel in threads of its own, one at a time: what was asked for last is drawn next.

    Args:
        plugin: Whose panel.
        drawn: Called in such a thread with what was drawn.
    """

    def __init__(self, plugin: PanelPlugin, drawn: Callable[[object], None]) -> None:
        self._plugin, self._drawn = plugin, drawn
        self._lock = threading.Lock()
        self._wanted: tuple[Shown, int, int] | None = None
        self._since: float | None = None
        self.problem = ""
        """Why it is switched off, as a sentence; empty while it isn't."""

    def ask(self, shown: Shown, width: int, height: int) -> None:
        """Have something drawn."""
        with self._lock:
            self._wanted = (shown, width, height)
            if self._since is None and not self.problem:
                self._since = time.monotonic()
                threading.Thread(target=self._run, name="plug-in", daemon=True).start()

    def look(self) -> bool:
        """Switch it off where one drawing has taken too long; returns True while one is under way."""
        with self._lock:
            if self._since is not None and time.monotonic() - self._since > DRAW_SECONDS and not self.problem:
                self.problem = f"drawing takes longer than {DRAW_SECONDS:g} s."
            return self._since is not None and not self.problem

    def _run(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None or self.problem:
                    self._since = None
                    return
                self._since = time.monotonic()
            try:
                self._drawn(self._plugin.draw(*wanted))
            except BaseException as error:  # SystemExit, too
                self.problem = self.problem or why(error)
                self._drawn("")
            # a run goes on meanwhile: at 20,000 tokens a drawing of 11 ms, one after another, would take a third of it
            time.sleep(min(_LONGEST_REST, _REST * (time.monotonic() - self._since)))
