"""The ranks that compute a model together, as a tool."""

from __future__ import annotations

from engine.protocol import MeasureRanks
from inspector.keys import KEYS
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.session.job import Job
from inspector.state.measured import Measured


class RanksActions(ToolActions):
    """Opens the ranks."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.job = Job(host.controller.client, MeasureRanks)
        host.controller.client.listeners.append(self.job.receive)

    def open(self) -> None:
        """Show what each rank holds."""
        from inspector.tools.ranks.screen import RanksScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(RanksScreen(self.host, self.job))

    @property
    def recorded(self) -> bool:
        """Whether a recording has anything of ranks."""
        measured = self.timeline.of(Measured)
        return measured.ranks is not None or measured.loaded is not None


RANKS = Tool(
    "ranks",
    "Ranks",
    RanksActions,
    screen=True,
    keys=(
        Key("ranks", *KEYS["ranks"], "Ranks", LOOK,
            "Show the processes that compute the model together: layers, weights, KV and memory of each, and a step's "
            "compute and communication.", RanksActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.recorded),
    ),
    help=(
        HelpSection(
            "While ranks are shown",
            (
                ("`r` `space`", "Measure a step on all ranks, with fences; while it is measured, stop."),
                ("`↑` `↓`", "Scroll."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `$` `q`", "Go back; what is measured stops."),
            ),
            "Rank 0 has the screen, samples and decides; the others run the same forwards. `--ranks 2` begins so.",
        ),
    ),
)  # fmt: skip
