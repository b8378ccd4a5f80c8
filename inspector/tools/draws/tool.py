"""Many draws as a tool: the key that opens it."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.state.batch import Batches
from inspector.tools.draws.control import DrawControl


class DrawsActions(ToolActions):
    """Counts draws in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = DrawControl(host.controller)
        host.controller.client.listeners.append(self.control.job.receive)

    def open(self) -> None:
        """Open the draws after the token that is looked at."""
        from inspector.tools.draws.screen import DrawsScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(DrawsScreen(self.host, self.control))


DRAWS = Tool(
    "draws",
    "Draws",
    DrawsActions,
    screen=True,
    keys=(
        Key("draws", *KEYS["draws"], "What are the odds", LOOK,
            "Draw many times after the token that is looked at: how often each came, against what the sampler states.",
            DrawsActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.timeline.of(Batches).drawn is not None),
    ),
    help=(
        HelpSection(
            "In many draws",
            (
                ("`space` `r` `⏎`", "Draw; again to stop."),
                ("`←` `→`", "Fewer draws, or more."),
                ("`↑` `↓`", "Longer continuations, or shorter ones: from two tokens on a tree of what came."),
                ("`tab`", "Where there is room for one panel, show the other."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `#` `q`", "Go back."),
            ),
            "`stated` is the sampler's probability, `came` the share of the draws, and 95 % of it Wilson's interval: "
            "where the stated probability lies outside of it, a `!` says so (one in twenty does by chance). Chi-square "
            "tells of all of them at once.",
        ),
    ),
)  # fmt: skip
