"""Speculative decoding as a tool: the key that opens it."""

from __future__ import annotations

from inspector.main.tool import STEP, Host, Tool, ToolActions
from inspector.tools.speculation.control import SpeculationControl
from inspector.widgets.actions import Action, Needs, back, both, screen_table


class SpeculationActions(ToolActions):
    """Takes rounds in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = SpeculationControl(host.controller)

    def open(self) -> None:
        """Open the screen; a run pauses."""
        from inspector.tools.speculation.screen import SpeculationScreen

        self.open_screen(SpeculationScreen(self.host, self.control))


SPECULATION_SCREEN = screen_table(
    "In speculation",
    Action("speculation.round", "Round", "Take a round, or the rest of one; while a run goes on, pause.",
           lambda own: own.take(inside=False), Needs.ENGINE, hint="round", worth=11, place=1),
    Action("speculation.inside", "Inside", "The next stage of a round: propose, verify, take.",
           lambda own: own.take(inside=True), Needs.ENGINE, hint="inside", worth=9, place=2),
    Action("speculation.run", "Run", "Take rounds until a stop or a breakpoint; again to pause.",
           lambda own: own.take_rounds(), Needs.ENGINE, worth=8, place=3,
           hint=lambda own: "pause" if own.control.job.running else "run"),
    Action("speculation.draft", "Draft", "Draft by lookup, by the model's own 4 bits, or by the model that was named.",
           lambda own: own.change_draft(), Needs.ENGINE, hint="draft", worth=7, place=5),
    Action("speculation.model", "Draft model", "Name a model that drafts; its tokens must be the model's.",
           lambda own: own.ask_model(), Needs.ENGINE, hint="draft model", worth=4, place=7),
    *both(("speculation.fewer", "speculation.more"), ("Fewer", "More"), "Draft fewer tokens for a round, or more.",
          lambda own, by: own.control.change_number(by), needs=Needs.ENGINE, hint="number", worth=5, place=6),
    Action("speculation.verify", "Verify",
           "Decode the same stretch again by plain steps, in separate caches, and compare.",
           lambda own: own.verify(), Needs.ENGINE, worth=6, place=4,
           hint=lambda own: "verify" if own.control.state.rounds else ""),
    Action("speculation.anew", "Count anew", "Count rounds from the next one on.", lambda own: own.count_anew(),
           Needs.ENGINE, hint="anew", worth=3, place=8),
    back("speculation.leave", "Go back; a run under way pauses.", worth=10),
    text="A drafted token is accepted where it is the one that the position's own draw takes from the model's "
    "distribution, so that the text is that of plain steps. `✓` accepted, `✗` refused, `?` behind a refused one: not "
    "looked at, `→` taken instead. The tokens taken are ordinary steps; refused drafts stand dim behind the text until "
    "the next one.",
)  # fmt: skip
SPECULATION = Tool(
    "speculation",
    "Speculation",
    SpeculationActions,
    screen=True,
    actions=(
        Action("speculation", "Speculate",
            "Take several tokens with one forward: a draft proposes them, the model accepts or refuses each.",
            SpeculationActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.state.latest is not None, group=STEP,
            synonyms="speculative decoding draft speed assisted"),
    ),
    owners=(SPECULATION_SCREEN,),
)  # fmt: skip
