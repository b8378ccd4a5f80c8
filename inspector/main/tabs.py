"""The two lines under the header: the tabs, each a question about the selected token, and the open one's answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.style import Style as VisualStyle
from textual.widget import Widget

from inspector.display import truncate
from inspector.keys import TABS, key_for, names_of
from inspector.widgets.actions import Action, pressing
from inspector.widgets.canvas import Row
from inspector.widgets.inks import Inked

QUESTIONS = {
    "1": "what could come here?",
    "2": "why this one?",
    "3": "what happened in the model?",
    "4": "what else could have been?",
    "5": "what did it cost?",
    "6": "what does it mean?",
}
"""The question that each tab answers about the selected token."""
_DOES = "does"
NAMED = 4
"""Cells around the name of a tab: its key, and blanks."""
KEY, NAME, SENTENCE = 12, 17, 27
"""Cells of a key, of a name, and of the longest sentence in a list of what there is."""


class TabLines(Widget):
    """The tabs, and under them the answers of the open one; each can be clicked.

    Args:
        do: Does an action of the main screen, by its id: a key would go to the field that has the focus.
        id: Of the widget.
    """

    DEFAULT_CSS = "TabLines { height: 2; padding: 0 1; background: $panel; color: $text-muted; }"

    def __init__(self, do: Callable[[str], None], id: str | None = None) -> None:
        super().__init__(id=id)
        self._do = do
        self._shown: tuple[str, Sequence[Action], str, frozenset[str]] = ("", (), "", frozenset())

    def show(self, tab: str, view: str, views: Sequence[Action], able: frozenset[str]) -> None:
        """Show a tab as the open one.

        Args:
            tab: Its key.
            view: Id of the answer that is shown.
            views: The actions that show its answers.
            able: Ids of those that can do something now: the others are grey.
        """
        shown = tab, tuple(views), view, able
        if shown != self._shown:
            self._shown = shown
            self.refresh()

    def render(self) -> Content:
        """The six tabs with the way to the finder, and under them the answers of the open one: the one that is shown
        bold, and with their keys, as far as there is room for them."""
        width, (opened, views, view, able) = self.content_size.width, self._shown
        roomy = sum(map(cell_len, TABS.values())) + NAMED * len(TABS) <= width
        tabs = Content("")
        for digit, name in TABS.items():
            text = f" {digit} {name} " if roomy or digit == opened else f" {digit} "
            style = "bold reverse" if digit == opened else "$text"
            tabs += Content.styled(text, style).stylize(VisualStyle.from_meta({_DOES: f"tab_{digit}"}))
        find = f"{key_for('finder')} find anything"
        room = width - tabs.cell_length - cell_len(find)
        if room >= 2:
            tabs += Content(" " * room) + Content(find).stylize(VisualStyle.from_meta({_DOES: "finder"}))
        names = [each.view for each in views]
        with_keys = [f"{each.shown} {each.view}" for each in views]
        for gap, texts in ((2, with_keys), (1, with_keys), (1, names)):
            if sum(map(cell_len, texts)) + gap * (len(texts) - 1) + 1 <= width:
                break
        pieces = []
        for action, text in zip(views, texts, strict=True):
            ink = "bold underline $text" if action.id == view else "" if action.id in able else "$ink-faint"
            pieces.append(Content.styled(text, ink).stylize(VisualStyle.from_meta({_DOES: action.id})))
        at = next((place for place, action in enumerate(views) if action.id == view), 0)
        while at and sum(map(cell_len, texts)) + gap * (len(texts) - 1) + 1 > width:
            pieces, texts, at = pieces[1:], texts[1:], at - 1  # the one that is shown stays in sight
        return tabs + Content("\n ") + Content(" " * gap).join(pieces)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Explain what is under the mouse."""
        id = str(event.style.meta.get(_DOES, ""))
        helps = (each.told for each in self._shown[1] if each.id == id)
        self.tooltip = QUESTIONS.get(id.removeprefix("tab_")) or next(helps, None)

    def on_click(self, event: events.Click) -> None:
        """Do what was clicked."""
        if id := event.style.meta.get(_DOES):
            event.stop()
            self._do(str(id))


def question_rows(on: Inked, width: int) -> list[Row]:
    """The six questions, a row each, that open their tabs.

    Args:
        on: Draws them.
        width: Cells of a row.
    """
    key, name = (KEY, NAME) if width >= KEY + NAME + SENTENCE else (4, 10)
    rows: list[Row] = []
    for digit, tab in TABS.items():
        link = Style.from_meta(dict(pressing(names_of(f"tab_{digit}")[0]).meta))
        base, question = on.ink("base"), truncate(QUESTIONS[digit], max(0, width - key - name))
        row = [Segment(f" {digit}".ljust(key), base + Style(bold=True) + link)]
        row += [Segment(tab.ljust(name), base + link), Segment(question, on.ink("muted") + link)]
        rows.append(row)
    return rows
