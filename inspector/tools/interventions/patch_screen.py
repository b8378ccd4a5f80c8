"""The second page of interventions: activation patching, the activations of another path put in place by place."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from rich.style import Style

from engine.protocol import ActivationsPatched, Command, PatchActivations
from inspector.keys import key_for
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.scales import count
from inspector.tools.interventions.choices import PARTS, SwitchControl
from inspector.tools.interventions.patching import NAMES, PatchSource, after, difference, page, pair, sources
from inspector.tools.interventions.tool import PATCHING_SCREEN
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row


class PatchingScreen(InsideScreen[ActivationsPatched]):
    """What another path computed, put into this one.

    Args:
        host: The main screen.
        control: What is chosen, and what is known.
    """

    TOOL: ClassVar[str] = "interventions"
    ACTIONS: ClassVar[ActionTable] = PATCHING_SCREEN

    def __init__(self, host: Host, control: SwitchControl) -> None:
        super().__init__(host, control.patched)
        self.control = control
        self._layer: int | None = None
        self._column: int | None = None
        """Places of the cursor; None for the largest share."""
        self._known: tuple[int, int, list[PatchSource]] = (-1, -1, [])

    # ---- asking ---------------------------------------------------------------------------------

    @property
    def sources(self) -> list[PatchSource]:
        """The paths whose activations can be taken."""
        now = self.node, len(self.timeline.tree.nodes)
        if now != self._known[:2]:
            self._known = *now, sources(self.timeline, self.node) if self.path else []
        return self._known[2]

    @property
    def _source(self) -> PatchSource | None:
        found = self.sources
        chosen = next((each for each in found if each.node == self.control.source), None)
        return chosen or next(iter(found), None)

    def question(self) -> tuple[Hashable, Command]:
        source, part = self._source, self.control.part
        end = source.node if source is not None else self.node
        both = pair(after(self.timeline, self.node), after(self.timeline, end))
        token, other = both or (0, 0)
        return (self.node, end, part), PatchActivations(self.node, end, token, other, part)

    def ask(self) -> None:
        """See `InsideScreen`; only where there is a source, and tokens that tell it apart."""
        source = self._source
        if source is not None and pair(after(self.timeline, self.node), after(self.timeline, source.node)):
            super().ask()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: ActivationsPatched | None) -> str:
        return f"Activation patching: {NAMES[self.control.part]} put in from another path"

    def _words(self, source: PatchSource) -> str:
        found = self.sources
        place = f" ({[each.node for each in found].index(source.node) + 1} of {len(found)})"
        words = difference(self.path, self.timeline.tree.path(source.node))
        return f"{count(source.tokens)} tokens{place if len(found) > 1 else ''}, “{words}”"

    def draw(self, answer: ActivationsPatched, on: Canvas, width: int, height: int) -> list[Row]:
        source = self._source
        words = self._words(source) if source is not None else f"node {answer.source}"
        return page(on, answer, *self._cursor(answer), words, width, height)

    def _instead(self, on: Canvas, answer: ActivationsPatched | None) -> list[tuple[str, Style]]:
        source = self._source
        if answer is None and self.path and not self.host.controller.transport.recorded:
            if source is None:
                return [
                    ("Activations come from another prompt or branch with as many tokens.", on.rich_style),
                    (
                        (
                            f"There is none: press esc, then {key_for('prompt')}, and give this prompt with a word "
                            "changed."
                        ),
                        on.ink("muted"),
                    ),
                ]
            if pair(after(self.timeline, self.node), after(self.timeline, source.node)) is None:
                return [
                    ("What one of both paths predicts isn't known here.", on.rich_style),
                    (
                        f"Choose another token with ← →, or another source with {key_for('patching.source')}.",
                        on.ink("muted"),
                    ),
                ]
        said = super()._instead(on, answer)
        return [*said, (f"Source: {self._words(source)}", on.ink("muted"))] if source is not None else said

    def _cursor(self, answer: ActivationsPatched) -> tuple[int, int]:
        """Layer and column; at first the largest share of a position before the last, where all ends up."""
        layers, columns = len(answer.layers), len(answer.columns)
        if self._layer is None or self._column is None:
            places = [(row, at) for row in range(layers) for at in range(max(1, columns - 1))]
            return max(places, key=lambda place: answer.shares.row(place[0])[place[1]])
        return max(0, min(layers - 1, self._layer)), max(0, min(columns - 1, self._column))

    # ---- keys -----------------------------------------------------------------------------------

    def move_cursor(self, layers: int, columns: int) -> None:
        """Look at another layer, or at another position."""
        if (answer := self.answer) is not None and not self._failed(answer):
            layer, column = self._cursor(answer)
            self._layer = max(0, min(len(answer.layers) - 1, layer + layers))
            self._column = max(0, min(len(answer.columns) - 1, column + columns))

    def change_source(self) -> None:
        """Take the next source."""
        found = [each.node for each in self.sources]
        if (source := self._source) is not None:
            self.control.source = found[(found.index(source.node) + 1) % len(found)]
            self._layer = self._column = None

    def change_part(self) -> None:
        """Put in what another part returns."""
        self.control.part = PARTS[(PARTS.index(self.control.part) + 1) % len(PARTS)]
