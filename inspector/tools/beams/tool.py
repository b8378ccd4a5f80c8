"""Beam search as a tool: the key that opens its screen, and where that leads."""

from __future__ import annotations

from inspector.keys import KEYS, key_for
from inspector.main.tool import BRANCH, HelpSection, Hint, Host, Key, Needs, Tool, ToolActions
from inspector.state.beams import BeamHistory
from inspector.tools.beams.control import BeamControl


class BeamActions(ToolActions):
    """Searches with beams."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = BeamControl(host.controller)

    def open(self) -> None:
        """Open the beam search; a search that waits goes on there."""
        from inspector.tools.beams.screen import BeamScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(BeamScreen(self.host, self.control), self._left)

    def _left(self, node: int | None) -> None:
        """Go to the end of the beam that was chosen."""
        if node is not None:
            self.control.go(node)
        search, recorded = self.control.search, self.controller.transport.recorded
        waits = search is not None and not search.over and not recorded
        self.host.answer(
            f"The beam search waits: {key_for('beams')} goes on with it" if waits and node is None else ""
        )


BEAMS = Tool(
    "beams",
    "Beam search",
    BeamActions,
    screen=True,
    keys=(
        Key("beams", *KEYS["beams"], "Beam search", BRANCH,
            "Follow several continuations at once from the token that is looked at, step by step or to the end; a "
            "search that waits goes on.", BeamActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.timeline.of(BeamHistory).search is not None),
    ),
    hints=(Hint(11, ("beams",), "beams", 2),),
    help=(
        HelpSection(
            "In a beam search",
            (
                ("`space`", "Let every beam grow by a token; while the search runs, pause."),
                ("`r`", "Search to the end; again to pause."),
                ("`↑` `↓`", "Highlight another beam."),
                ("`⏎`", "Go to the highlighted beam: it is a branch of the tree."),
                ("`←` `→` `pgup` `pgdn`", "See the search as it was a step before or after, or ten of them."),
                ("`home` `end`", "See it after its first step, or as it stands."),
                ("`tab`", "Change between list, tree and text."),
                ("`n`", "Set up another search; `⏎` starts it."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `q`", f"Go back; the search waits, and `{key_for('beams')}` goes on with it."),
            ),
        ),
    ),
)  # fmt: skip
