"""The row of the settings under the sampler's table: what is set, and what turning the temperature would change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.settings import Settings
from inspector.display import visible
from inspector.keys import key_for, names_of, with_keys
from inspector.state.conditions import settings_words
from inspector.widgets.actions import pressing
from inspector.widgets.canvas import Row


class StripPart(Struct, frozen=True):
    """One part of the row of the settings."""

    ink: str
    text: str
    action: str = ""
    """Id of what a click on it does; empty for nothing."""
    short: str = ""
    """The text where there is no room for all of it; empty for none."""


class SettingsStrip(Struct, frozen=True):
    """What the row under the table says of the settings, and of what turning the temperature would change."""

    in_force: Settings
    """What the sampler continues with."""
    turned: Settings | None = None
    """With the temperature as it is turned; None where it is not."""
    at: int | None = None
    """Number of the older step from which they would be applied; None at the tip."""
    lacking: str = ""
    """Why the token on show has no answer; printable."""
    recorded: bool = False
    """True if nothing can be applied, since no model is loaded."""

    def parts(self, used: Settings | None) -> list[StripPart]:
        """Its parts, the most important first.

        Args:
            used: The settings that the token on show was, or will be, picked with.
        """
        if self.turned is None:
            return self._resting(used or self.in_force)
        before, after = _degrees(self.in_force), _degrees(self.turned)
        turn = f"T {before} → {after}" if before != after else f"T {before}, as it is"
        where = "" if self.at is None else f" from step {self.at:,}"
        applies, discards = (
            StripPart("base", f"{key_for(id)} {word}", id, key_for(id))
            for id, word in (("sampler.apply", f"applies{where}"), ("stop", "discards"))
        )
        live = StripPart("base", f"{key_for('go_live')} continues live", "go_live")
        lacking = [StripPart("warn", self.lacking)] * bool(self.lacking)
        ends = [discards, live] if self.recorded else [applies, discards]
        return [StripPart("accent", turn), *lacking, *ends]

    def _resting(self, used: Settings) -> list[StripPart]:
        here = f"T {_degrees(used)}"
        here += f", now {_degrees(self.in_force)}" if used.temp != self.in_force.temp else ""
        seed = [f"seed {used.seed}"] if used.temp else []
        return [
            StripPart("strong", here),
            StripPart("muted", with_keys("{sampler.cooler} {sampler.warmer} turn it")),
            StripPart("muted", with_keys("{sampling} all settings"), "sampling"),
            *(StripPart("muted", visible(word)) for word in (*settings_words(used), *seed)),
        ]


def _degrees(settings: Settings) -> str:
    """A temperature with two decimals, more where it has them; 0 is greedy."""
    temp = settings.temp
    return "0 (greedy)" if temp == 0 else f"{temp:.2f}" if round(temp, 2) == temp else f"{temp:g}"


def strip_row(parts: Sequence[StripPart], width: int, ink: Callable[[str], Style]) -> Row:
    """As many parts of a strip as fit, in their order; the first always.

    Args:
        parts: All of them.
        width: Cells available.
        ink: Gives a named ink.
    """
    row: Row = []
    for part in parts:
        lead = "  " if row else ""
        left = width - Segment.get_line_length(row) - len(lead)
        fits = (text for text in (part.text, part.short) if text and cell_len(text) <= left)
        if not (text := next(fits, "" if row else part.text)):
            break
        pressed = pressing(names_of(part.action)[0]).rich_style if part.action else Style()
        row += [Segment(lead), Segment(text, ink(part.ink) + pressed)]
    return row
