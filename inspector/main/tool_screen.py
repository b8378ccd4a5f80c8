"""What the full screens of tools have in common: records, repainting once, the theme and the help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.binding import Binding, BindingsMap, BindingType
from textual.widgets import Static

from engine.protocol import Record
from inspector.keys import key_for
from inspector.main.caption import CaptionLine
from inspector.main.narration import NarrationCard
from inspector.main.tool import Host
from inspector.widgets.key_hints import KeyHint, key_hints
from inspector.widgets.overlay import Overlay

Result = TypeVar("Result")
REPLAY = (
    Binding("space", "replay('step')", "Next", tooltip="In a replay: show what came next, or pause."),
    Binding("r", "replay('run')", "Play", tooltip="In a replay: play on, or pause."),
    Binding("backspace", "replay('back')", "Back", tooltip="In a replay: show what was there before."),
    Binding("plus,equals_sign", "replay('faster')", "Faster", tooltip="In a replay: play faster."),
    Binding("minus", "replay('slower')", "Slower", tooltip="In a replay: play slower."),
)
"""Before a screen's own meaning of these keys, where what it shows was recorded."""


class ToolScreen(Overlay[Result]):
    """A screen over the main one.

    Args:
        host: The main screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("T", "theme", "Dark or light", tooltip="Switch between the dark and the light theme."),
        Binding("question_mark", "help", "Help", tooltip="Show the keys and what is shown."),
    ]

    TOOL: ClassVar[str]
    """Id of the tool that opens it: its help is this screen's."""
    KEYS: ClassVar[str]
    """The widget of the line of keys, as a selector."""
    MEASURES: ClassVar[str] = ""
    """What its keys start, at the beginning of a sentence; empty where they start nothing."""
    TELLING: ClassVar[tuple[type[Record], ...]] = ()
    """The records of that which change what is shown: in a replay space goes from one to the next."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self.said = ""
        """To the last key, in the place of the situation; printable."""
        self._stale = False
        keys = self._bindings.key_to_bindings
        for binding in BindingsMap(REPLAY if self.MEASURES else ()).key_to_bindings.values():
            keys[binding[0].key] = [*binding, *keys.get(binding[0].key, ())]

    def begin(self) -> None:
        """Take in what the engine says from now on."""
        self.host.controller.client.listeners.append(self.receive)
        self.call_after_refresh(self._show)

    def let_go(self) -> None:
        """Listen no more."""
        listeners = self.host.controller.client.listeners
        if self.receive in listeners:  # it may be left before it is there
            listeners.remove(self.receive)

    def on_screen_suspend(self) -> None:
        """The line of keys has those of what is on top."""
        self.changed()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Catch up with what happened under another screen."""
        self.changed()

    def on_resize(self, event: events.Resize) -> None:
        """As much as there is room for."""
        self.changed()

    def receive(self, record: Record) -> None:
        """Take in one record."""
        self.changed()

    def changed(self) -> None:
        """Have everything shown again: once, however often this is called before."""
        if not self._stale:
            self._stale = True
            self.call_next(self._show)

    def _show(self) -> None:
        self._stale = False
        if self.left:
            return
        self._narrate()
        self._tell()
        self.show()

    def _narrate(self) -> None:
        """Show the card of whoever narrates. It is made with the first one, and kept as long as the screen is."""
        narrator, cards = self.host.narrator, self.query(NarrationCard)
        if cards:
            cards.first().tell(narrator.narration() if narrator is not None else None)
        elif narrator is not None:
            self.mount(NarrationCard())
            self.call_after_refresh(self.changed)

    def _tell(self) -> None:
        """Show what is told to an audience, above the status. The line is made with the first of that."""
        text, lines = self.host.caption, self.query(CaptionLine)
        if lines:
            lines.first().put(text)
        elif text and len(own := self.query_children("*").exclude(".narration")) > 1:
            line = CaptionLine(id="caption")
            line.put(text)
            self.mount(line, before=list(own)[-2])

    @property
    def room(self) -> int:
        """Rows that the card of whoever narrates leaves."""
        cards = (card.outer_size.height for card in self.query(NarrationCard) if card.display)
        return self.app.size.height - sum(cards)

    def show(self) -> None:
        """Show everything, now."""

    def say(self, answer: str = "") -> None:
        """Answer a key, or take the answer back; printable."""
        self.said = answer
        self.changed()

    # ---- in a replay ------------------------------------------------------------------------

    @property
    def recorded(self) -> bool:
        """Whether what is shown was recorded: nothing can be started."""
        return bool(self.MEASURES) and self.host.controller.transport.recorded

    @property
    def needs_model(self) -> str:
        """What a key that starts something says in a replay."""
        return f"{self.MEASURES} needs a live model: esc, then {key_for('go_live')}"

    def refused(self) -> bool:
        """Say so, in a replay; returns whether it is one."""
        if self.recorded:
            self.say(self.needs_model)
        return self.recorded

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of a replay mean something in one."""
        return super().check_action(action, parameters) and (action != "replay" or self.recorded)

    def action_replay(self, what: str) -> None:
        """Move the recording on or back, or change its pace; at its end say what more would need."""
        transport, playback = self.host.controller.transport, self.host.playback
        at_end = playback is not None and playback.player is not None and playback.player.at_end
        match what:
            case "step" | "run" if at_end:
                self.say(self.needs_model)
            case "step":
                self.say(transport.step(self.TELLING))
            case "run":
                self.say(transport.run())
            case "back":
                self.say(transport.back(self.TELLING))
            case _:
                self.say(transport.change_pace(1 if what == "faster" else -1))

    def replay_keys(self) -> tuple[KeyHint, ...]:
        """Those keys, for the line of keys."""
        running = self.host.controller.transport.running
        doing = (
            (("space", "pause", 10), ("+-", "pace", 4))
            if running
            else (("space", "next", 10), ("r", "play", 9))
        )
        return (*doing, ("⌫", "before", 5))

    # ---- keys -------------------------------------------------------------------------------

    def keeps(self, shown: str) -> bool:
        """Whether a key means here what it says, and nothing to whoever narrates.

        Args:
            shown: The key as a person reads it.
        """
        narrator = self.host.narrator
        told = narrator.narration() if narrator is not None else None
        return told is None or ("enter" if shown == "⏎" else shown) not in told.keys

    def show_keys(self, hints: Sequence[KeyHint]) -> None:
        """Show these keys in the line of keys, as many as fit."""
        kept = [hint for hint in hints if self.keeps(hint[0])]
        self.query_one(self.KEYS, Static).update(key_hints(self.size.width - 2, kept))

    def action_theme(self) -> None:
        """Switch between dark and light."""
        self.host.switch_theme()

    def action_help(self) -> None:
        """Show the help."""
        self.host.help(self.TOOL)
