"""The screen itself: the keys that go from panel to panel, enlarge one, stop, help and leave."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.main.arrangement import PanelPlace
from inspector.main.opening import no_text
from inspector.main.tool import SCREEN, STEP, Tool, ToolActions
from inspector.widgets.actions import Action, both, dialog_table, note


def screen_tool(panels: Sequence[PanelPlace]) -> Tool:
    """The tool of the screen's own keys.

    Args:
        panels: Each gets a number key, in their order, as far as there are digits.
    """
    numbers = tuple(_number(place + 1, panel) for place, panel in enumerate(panels[:9]))
    return Tool("screen", "Screen", ScreenActions, actions=(*_FIRST, *numbers, *_LAST), owners=(HELP_KEYS,))


def _number(digit: int, panel: PanelPlace) -> Action:
    return Action(f"panel_{panel.id}", panel.label, f"Go to {panel.called}.", lambda own: own.host.go_to(panel.id),
                  group=SCREEN, keys=str(digit))  # fmt: skip


class ScreenActions(ToolActions):
    """Arranges the screen; nearly all of it is the host's own."""

    def next_panel(self, by: int) -> None:
        """Go so many panels further."""
        self.host.go_to(self.host.arrangement.neighbour(by, side=not no_text(self.timeline)))


HELP_KEYS = dialog_table(
    "In the help",
    *both(("help.page_before", "help.next_page"), ("Page before", "Next page"), "", lambda own, by: own.other_page(by),
          hint="other page", worth=6, priority=True),
    note("up down", hint="scroll", worth=5),
    note("enter", hint="open", worth=4),
    Action("help.pages", "All pages", run=lambda own: own.show_topics()),
    Action("help.close", "Close", run=lambda own: own.leave()),
    told=False,
)  # fmt: skip
_FIRST = (
    Action("stop", "Stop",
            "Pause the run, stop the prefill or a look ahead, or leave the enlarged panel; notices go too.",
            lambda own: own.host.stop(), group=STEP),
    Action("next_panel", "Next panel", "Go to the next panel.", lambda own: own.next_panel(1), group=SCREEN),
    Action("panel_before", "Panel before", "Go to the panel before.", lambda own: own.next_panel(-1), group=SCREEN),
)  # fmt: skip
_LAST = (
    Action("alone", "Text and candidates",
            "Show the text and the candidates alone, as for a projector; again for all panels.",
            lambda own: own.host.room.show_alone(), group=SCREEN),
    Action("hide", "Hide panel", "Hide the current panel; its number key shows it again.",
            lambda own: own.host.room.hide({own.host.arrangement.current}), group=SCREEN),
    Action("left_narrower", "Divider left",
            "Move the divider between the columns to the left; or drag it. A panel that is left no room is hidden.",
            lambda own: own.host.room.resize(-1, 0), group=SCREEN),
    Action("left_wider", "Divider right", "Move the divider between the columns to the right.",
            lambda own: own.host.room.resize(1, 0), group=SCREEN),
    Action("divider_up", "Divider up", "Move the line under the current panel up; or drag it.",
            lambda own: own.host.room.resize(0, -1), group=SCREEN),
    Action("divider_down", "Divider down", "Move the line under the current panel down.",
            lambda own: own.host.room.resize(0, 1), group=SCREEN),
    Action("usual_room", "Usual layout", "Show all panels again, at their usual sizes.",
            lambda own: own.host.room.usual_layout(), group=SCREEN),
    Action("enlarge", "Enlarge", "Give the current panel the whole screen, or back.",
            lambda own: own.host.room.enlarge(), group=SCREEN, synonyms="full screen zoom maximize bigger",
            hint="enlarge", worth=1, place=160),
    Action("theme", "Dark or light", "Switch between the dark and the light theme.",
            lambda own: own.host.switch_theme(), group=SCREEN, synonyms="dark light colors colours"),
    Action("help", "Help", "Show the keys and what the panels mean.", lambda own: own.host.help(), group=SCREEN,
            synonyms="keys manual documentation", hint="help", worth=13, place=170),
    Action("quit", "Quit", "Leave; ctrl+q does so from everywhere.", lambda own: own.host.quit(), group=SCREEN,
            synonyms="exit leave close", hint="quit", worth=8, place=180),
)  # fmt: skip
