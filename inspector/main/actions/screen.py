"""The screen itself: the keys that go from panel to panel, enlarge one, stop, help and leave."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.keys import KEYS
from inspector.main.arrangement import PanelPlace
from inspector.main.opening import no_text
from inspector.main.tool import SCREEN, STEP, Hint, Key, Tool, ToolActions


def screen_tool(panels: Sequence[PanelPlace]) -> Tool:
    """The tool of the screen's own keys.

    Args:
        panels: Each gets a number key, in their order, as far as there are digits.
    """
    numbers = tuple(_number(place + 1, panel) for place, panel in enumerate(panels[:9]))
    return Tool("screen", "Screen", ScreenActions, keys=(*_FIRST, *numbers, *_LAST), hints=_HINTS)


def _number(digit: int, panel: PanelPlace) -> Key:
    return Key(f"panel_{panel.id}", str(digit), str(digit), panel.label, SCREEN, f"Go to {panel.called}.",
               lambda own: own.host.go_to(panel.id))  # fmt: skip


class ScreenActions(ToolActions):
    """Arranges the screen; nearly all of it is the host's own."""

    def next_panel(self, by: int) -> None:
        """Go so many panels further."""
        self.host.go_to(self.host.arrangement.neighbour(by, side=not no_text(self.timeline)))


_FIRST = (
    Key("stop", *KEYS["stop"], "Stop", STEP,
        "Pause the run, stop the prefill or a look ahead, or leave the enlarged panel; notices go too.",
        lambda own: own.host.stop()),
    Key("next_panel", *KEYS["next_panel"], "Next panel", SCREEN, "Go to the next panel.",
        lambda own: own.next_panel(1)),
    Key("panel_before", *KEYS["panel_before"], "Panel before", SCREEN, "Go to the panel before.",
        lambda own: own.next_panel(-1)),
)  # fmt: skip
_LAST = (
    Key("alone", *KEYS["alone"], "Text and candidates", SCREEN,
        "Show the text and the candidates alone, as for a projector; again for all panels.",
        lambda own: own.host.room.show_alone()),
    Key("hide", *KEYS["hide"], "Hide panel", SCREEN,
        "Hide the current panel; its number key shows it again.",
        lambda own: own.host.room.hide({own.host.arrangement.current})),
    Key("left_narrower", *KEYS["left_narrower"], "Divider left", SCREEN,
        "Move the divider between the columns to the left; or drag it. A panel that is left no room is hidden.",
        lambda own: own.host.room.resize(-1, 0)),
    Key("left_wider", *KEYS["left_wider"], "Divider right", SCREEN,
        "Move the divider between the columns to the right.", lambda own: own.host.room.resize(1, 0)),
    Key("divider_up", *KEYS["divider_up"], "Divider up", SCREEN,
        "Move the line under the current panel up; or drag it.", lambda own: own.host.room.resize(0, -1)),
    Key("divider_down", *KEYS["divider_down"], "Divider down", SCREEN,
        "Move the line under the current panel down.", lambda own: own.host.room.resize(0, 1)),
    Key("usual_room", *KEYS["usual_room"], "Usual layout", SCREEN,
        "Show all panels again, at their usual sizes.", lambda own: own.host.room.usual_layout()),
    Key("enlarge", *KEYS["enlarge"], "Enlarge", SCREEN, "Give the current panel the whole screen, or back.",
        lambda own: own.host.room.enlarge()),
    Key("theme", *KEYS["theme"], "Dark or light", SCREEN, "Switch between the dark and the light theme.",
        lambda own: own.host.switch_theme()),
    Key("help", *KEYS["help"], "Help", SCREEN, "Show the keys and what the panels mean.",
        lambda own: own.host.help()),
    Key("quit", *KEYS["quit"], "Quit", SCREEN, "Leave; ctrl+q does so from everywhere.",
        lambda own: own.host.quit()),
)  # fmt: skip
_HINTS = (
    Hint(16, ("enlarge",), "enlarge", 1),
    Hint(17, ("help",), "help", 13),
    Hint(18, ("quit",), "quit", 8),
)
