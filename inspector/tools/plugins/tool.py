"""The panel of a plug-in as a tool: its key, and the widget of ours in which the plug-in's function draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.content import Content
from textual.message import Message
from textual.timer import Timer

from inspector import keys
from inspector.config import own_keys
from inspector.display import visible
from inspector.keys import TABS
from inspector.main.key_table import KeyTable
from inspector.main.tool import PanelSpec, Tool, ToolActions
from inspector.plugins import DRAW_SECONDS, PLUGIN, Drawing, PanelPlugin, Plugin, Shown
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action
from inspector.widgets.canvas import PanelCanvas, Row, centred

NO_STYLE = Style()


def rows_of(made: object, width: int, height: int) -> list[Row]:
    """The text that a plug-in drew, as rows of a panel: nothing in it is obeyed, and what has no room is left out.

    Args:
        made: Its text.
        width: Cells of a row.
        height: Rows.

    Raises:
        TypeError: It is no text.
    """
    if not isinstance(made, str | Text):
        raise TypeError(f"draw returned {type(made).__name__}, no str or rich.text.Text")
    text = Text(made[: 8 * width * height]) if isinstance(made, str) else made
    rows: list[Row] = []
    console = Console(width=width, file=None, force_terminal=False)
    for line in text.split("\n")[:height]:
        cut = line[: 4 * width]
        cut.end = ""
        pieces = (each for each in cut.render(console) if each.text)
        rows.append([Segment(visible(each.text), _ink(each.style)) for each in pieces])
    return rows


def _ink(style: Style | None) -> Style:
    """A style's colours and attributes, without its links and actions."""
    if style is None:
        return NO_STYLE
    names = ("color", "bgcolor", "bold", "dim", "italic", "underline", "strike", "reverse")
    return Style(**{name: getattr(style, name) for name in names})


class PluginPanel(PanelCanvas, can_focus=True):
    """Shows what the function of a plug-in drew last.

    Args:
        name: Of the plug-in.
        plugin: Whose panel.
    """

    class Drawn(Message):
        """There is something else to show."""

    def __init__(self, name: str, plugin: PanelPlugin) -> None:
        super().__init__()
        self._called, self._plugin = name, plugin
        self._drawing = Drawing(plugin, self._take)
        self._rows: list[Row] = []
        self._asked: object = None
        """The tokens and the size of the last drawing, which may be under way."""
        self._told = False
        self._timer: Timer | None = None
        """Runs while a drawing may take too long."""

    def reads(self, timeline: Timeline) -> tuple[object, ...]:
        """The branch, the place in it, and the model."""
        return timeline.tip, timeline.slot, len(timeline.items), timeline.facts

    def draw(self, width: int, height: int) -> list[Row]:
        """The rows that were drawn last; those of the present tokens are drawn meanwhile."""
        self.title(Content(self._plugin.title))
        if self._drawing.problem:
            texts = (
                ("This plug-in is switched off:", self.ink("muted")),
                (self._drawing.problem, self.ink("bad")),
            )
            return centred(texts, width, height)
        timeline = self.timeline
        asked = (self.reads(timeline), width, height) if timeline is not None else None
        if timeline is not None and asked != self._asked:
            self._asked = asked
            model = timeline.facts.name if timeline.facts is not None else ""
            self._drawing.ask(Shown(tuple(timeline.items), timeline.slot, model), width, height)
            self._watch()
        return self._rows[:height]

    def _take(self, made: object) -> None:
        """Take in what was drawn; called in the plug-in's thread."""
        if not self._drawing.problem:
            self._rows = rows_of(made, max(1, self.size.width), max(1, self.size.height))
        self.post_message(self.Drawn())

    def on_plugin_panel_drawn(self) -> None:
        """Show it."""
        self._show_drawn()

    def _watch(self) -> None:
        """Look after a while whether a drawing has ended; one timer at a time, however many there are."""
        if self._timer is None:
            self._timer = self.set_timer(DRAW_SECONDS + 0.1, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._drawing.look():
            self._watch()
        elif self._drawing.problem:
            self._show_drawn()

    def _show_drawn(self) -> None:
        if self._drawing.problem and not self._told:
            self._told = True
            title = f"Plug-in {self._called} is switched off"
            self.app.notify(self._drawing.problem, title=title, severity="error", timeout=8, markup=False)
        self.redraw()


def tool_of(name: str, value: PanelPlugin) -> Tool:
    """The tool of a plug-in's panel.

    Args:
        name: Of the plug-in.
        value: Its panel; the keys may be several, as `inspector.keys.KEYS` has them.
    """
    id = f"plugin-{name}"
    panels: list[PluginPanel] = []

    def make() -> PluginPanel:
        panels.append(PluginPanel(name, value))
        return panels[0]

    class PluginActions(ToolActions):
        """Shows the panel."""

        def open(self) -> None:
            """Show the panel, or go back where it is on show."""
            arrangement = self.host.arrangement
            if arrangement.answer == id and arrangement.current == id:
                arrangement.close()
                self.host.answer()
            else:
                self.host.go_to(id)

        def show(self) -> None:
            """Show what the timeline has come to."""
            if id in self.host.shown:
                panels[0].show(self.timeline)

    return Tool(
        id, value.title, PluginActions,
        actions=(
            Action(f"{PLUGIN}{name}", value.title, value.help or f"Show {value.title}.", PluginActions.open,
                   looks=True, synonyms="plug-in, plugin", view=value.title.lower(), keys=value.key, tab=value.tab),
        ),
        panel=PanelSpec(make, value.title, value.title),
    )  # fmt: skip


class Admitted(NamedTuple):
    """The outcome for some plug-ins."""

    plugins: list[Plugin]
    """All of them: those that are left out with the reason."""
    tools: list[Tool]
    """Those of their panels; their keys hold from now on, once they are added."""
    problems: tuple[str, ...]
    """Faults in the person's own keys, once those of plug-ins are known."""


def admit(found: Sequence[Plugin], table: KeyTable) -> Admitted:
    """Make tools of panels, but of those whose key another action has.

    Args:
        found: All plug-ins.
        table: The keys that there are.
    """
    values = {each.name: each.value for each in found if isinstance(each.value, PanelPlugin)}
    made = {name: tool_of(name, value) for name, value in values.items()}
    own = own_keys.read(list(table.places(tool.actions[0] for tool in made.values())))
    for name, value in values.items():
        if (given := own.keys.get(f"{PLUGIN}{name}")) is not None:
            made[name] = tool_of(name, replace(value, key=" ".join(given)))
    keys.use(own.keys, {tool.actions[0].id: tool.actions[0].usual for tool in made.values()})
    taken: dict[tuple[str, str], Action] = {}
    plugins: list[Plugin] = []
    for plugin in found:
        if isinstance(plugin.value, PanelPlugin):
            action = made[plugin.name].actions[0]
            places = [(action.tab, name) for name in action.names]
            holder = table.holder(action) or next((taken[each] for each in places if each in taken), None)
            if holder is not None:
                del made[plugin.name]
                plugins.append(replace(plugin, value=None, problem=_key_taken(action, holder)))
                continue
            taken |= dict.fromkeys(places, action)
        plugins.append(plugin)
    return Admitted(plugins, list(made.values()), own.problems)


def _key_taken(action: Action, holder: Action) -> str:
    """The reason for leaving a panel out whose key another action has."""
    return (
        f"its key {action.shown} is that of {holder.label} in the tab {TABS[action.tab]}; another one can be given in "
        f'keys.toml: "{action.id}" = "f2"'
    )
