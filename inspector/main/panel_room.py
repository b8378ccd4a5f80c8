"""What a person changes about the room of the panels: hidden, enlarged, larger and smaller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from inspector.keys import key_for
from inspector.main.arrangement import Layout
from inspector.main.panel_layout import PanelLayout

ALONE = "Text and candidates alone. 0 brings the other panels back"


class PanelRoom:
    """Hides, enlarges and sizes panels.

    Args:
        layout: Puts them in their places.
        answer: Answers the last key, and has everything shown again.
    """

    def __init__(self, layout: PanelLayout, answer: Callable[..., None]) -> None:
        self._layout, self._answer = layout, answer

    def hide(self, panels: Collection[str]) -> None:
        """Hide panels, and name the keys that bring them back; a tool's is closed."""
        arrangement = self._layout.arrangement
        if not panels:
            self._answer()
            return
        places = [(place + 1, panel) for place, panel in enumerate(arrangement.panels) if panel.id in panels]
        going = [(key, panel) for key, panel in places if panel.id != arrangement.text]
        for _, panel in going:
            if arrangement.is_tool(panel.id):
                arrangement.close(panel.id)
            else:
                arrangement.hide(panel.id)
        names, keys = _listed([panel.label for _, panel in going]), _listed([str(key) for key, _ in going])
        again = "shows it again" if len(going) == 1 else "show them again"
        self._answer(
            f"{names} hidden. {keys} {again}, \\ all panels at their usual sizes"
            if going
            else "Text stays. 2, 3, 4 and 5 go to panels that can be hidden, 0 hides all but the candidates"
        )

    def dragged(self, panels: Collection[str]) -> None:
        """Say which panels letting go of the mouse would hide, and have everything shown again."""
        going = [panel for panel in self._layout.arrangement.panels if panel.id in panels]
        stays = "" if self._layout.now is Layout.BESIDE else self._layout.arrangement.text
        names = [panel.label for panel in going if panel.id != stays]
        self._answer(f"Let go to hide {_listed(names)}" if names else "")

    def let_go(self, panels: Collection[str]) -> None:
        """Hide panels that a divider left no room; where one is shown at a time, none takes its place."""
        layout, arrangement = self._layout.now, self._layout.arrangement
        left = self._layout.shown - set(panels)
        if layout is Layout.BESIDE and len(left) == 1:
            arrangement.go(next(iter(left)), layout)
            arrangement.enlarged = True
            self._answer(
                f"{arrangement.panels[arrangement.number].label} alone. {key_for('enlarge')} or esc "
                "brings the other panel back"
            )
        elif panels and layout is Layout.STACK and left == arrangement.top:
            arrangement.set_alone(True)
            self._answer(ALONE)
        else:
            self.hide(panels)

    def show_alone(self) -> None:
        """Show the text and the candidates alone, or all panels again."""
        self._layout.arrangement.set_alone(not self._layout.arrangement.alone)
        self._answer(ALONE if self._layout.arrangement.alone else "")

    def enlarge(self) -> None:
        """Give the current panel the whole screen, or back."""
        self._layout.arrangement.enlarged = not self._layout.arrangement.enlarged
        enlarged = self._layout.arrangement.enlarged
        self._answer(
            f"Enlarged: {key_for('enlarge')} or esc goes back, tab to the next panel" if enlarged else ""
        )

    def resize(self, across: int, down: int) -> None:
        """Move the divider between the columns, or the line under the current panel, by so many steps."""
        if self._layout.nudge(across, down):
            self._answer()
        else:
            self._answer(
                f"No divider can be moved here. {key_for('enlarge')}, {key_for('alone')} or "
                f"{key_for('usual_room')} bring back a layout that has one"
            )

    def usual_layout(self) -> None:
        """Show all panels again, at their usual sizes."""
        self._layout.arrangement.set_alone(False)
        self._layout.arrangement.hidden = frozenset()
        self._layout.sizes.clear()
        self._answer("All panels, at their usual sizes")


def _listed(words: Sequence[str]) -> str:
    """`Candidates, KV cache and Time`."""
    return " and ".join(([", ".join(words[:-1])] if len(words) > 1 else []) + list(words[-1:]))
