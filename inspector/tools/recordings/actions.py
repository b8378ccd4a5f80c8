"""Recordings: what the keys mean in a replay, the way back to a live session, saving, and recent sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.settings import LoadSettings
from inspector.main.branching import Branching
from inspector.main.dialogs.model import ModelDialog
from inspector.main.replay_words import speed_text
from inspector.main.setting_up import SettingUp
from inspector.main.stepping import Stepping
from inspector.session.controller import Controller
from inspector.session.player import Player
from inspector.session.replay_backend import REFUSED
from inspector.tools.breakpoints.actions import BreakActions
from inspector.tools.find.actions import Finding


class Live(Protocol):
    """The way to a live session."""

    @property
    def under_way(self) -> bool: ...

    def begin(self, load: LoadSettings | None = None) -> str: ...

    def stop(self) -> bool: ...


class Files(Protocol):
    """What the application does with files."""

    def save_as(self) -> None: ...

    def sessions(self) -> None: ...


class TraceActions(Branching, Stepping, BreakActions, Finding, SettingUp):
    """Plays, and gives the keys that need a model a word to say while there is none."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.live: Live | None = None
        """There while a recording is on show."""
        self.files: Files | None = None
        """Set by the application."""

    @property
    def replay(self) -> Player | None:
        """The recording on show."""
        return self.controller.replay

    def _refused(self) -> bool:
        """Whether there is no model for what was asked; the person is told."""
        if self.replay is not None:
            self.answer(REFUSED)
        return self.replay is not None

    def _on_replay(self, what: Callable[[Player], None]) -> bool:
        """Do something with the recording on show; returns whether there is one."""
        if self.replay is None or (self.live is not None and self.live.under_way):
            return self.replay is not None
        what(self.replay)
        self.controller.timeline.running = self.replay.playing
        self.answer()
        return True

    # ---- playing ----------------------------------------------------------------------------

    def action_step(self) -> None:
        """Show what came next, walk forward, or pause; without a recording, step."""
        if not self._on_replay(self._next):
            super().action_step()

    def _next(self, replay: Player) -> None:
        if replay.playing:
            replay.pause()
        elif self.controller.timeline.following or not self.controller.timeline.items:
            replay.step()
        else:
            self.controller.walk(1)

    def action_run(self) -> None:
        """Play or pause; without a recording, run."""
        if not self._on_replay(self._play):
            super().action_run()

    def _play(self, replay: Player) -> None:
        if replay.playing:
            replay.pause()
        else:
            self.controller.timeline.select(None)
            replay.play()

    def action_pace(self, by: int) -> None:
        """Play faster or slower; without a recording, run so."""
        if self._on_replay(lambda replay: replay.change_speed(by)):
            replay = self.replay
            self.answer("" if replay is None or replay.playing else f"Plays {speed_text(replay.speed)}")
        else:
            super().action_pace(by)

    def action_take_back(self) -> None:
        """Show what was there before; without a recording, take back the last token."""
        if not self._on_replay(self._back):
            super().action_take_back()

    def _back(self, replay: Player) -> None:
        self.controller.timeline.select(None)
        replay.back()

    def stop_replay(self) -> bool:
        """Pause the replay, or give up going live; returns whether there was anything to stop."""
        if self.live is not None and self.live.under_way:
            return self.live.stop()
        playing = self.replay is not None and self.replay.playing
        return playing and self._on_replay(Player.pause)

    # ---- live -------------------------------------------------------------------------------

    def action_go_live(self) -> None:
        """Go on live from the recording on show."""
        if self.live is None:
            self.answer("This session is live already: space takes the next token")
        else:
            self.answer(self.live.begin())

    def action_open(self) -> None:
        """Ask for a model; in a replay for the one to go on live with."""
        if self.replay is None:
            super().action_open()
        else:
            self.app.push_screen(ModelDialog(self.controller.load), self._go_live_with)

    def _go_live_with(self, load: LoadSettings | None) -> None:
        if load is not None and self.live is not None:
            self.answer(self.live.begin(load))

    # ---- files ------------------------------------------------------------------------------

    def action_save_as(self) -> None:
        """Ask for a name, and save the session under it."""
        if self.files is not None:
            self.files.save_as()

    def action_sessions(self) -> None:
        """List recent sessions."""
        if self.files is not None:
            self.files.sessions()

    # ---- what needs a model -----------------------------------------------------------------

    def action_prompt(self) -> None:
        """Ask for a prompt."""
        if not self._refused():
            super().action_prompt()

    def action_sampling(self) -> None:
        """Ask for sampling settings."""
        if not self._refused():
            super().action_sampling()

    def action_own_text(self) -> None:
        """Ask for a text."""
        if not self._refused():
            super().action_own_text()

    def action_breakpoints(self) -> None:
        """Ask where runs stop."""
        if not self._refused():
            super().action_breakpoints()

    def action_skip(self) -> None:
        """Run over sure tokens."""
        if not self._refused():
            super().action_skip()

    def action_reroll(self) -> None:
        """Draw again."""
        if not self._refused():
            super().action_reroll()

    def action_verify(self) -> None:
        """Compare the cache with a fresh prefill."""
        if not self._refused():
            super().action_verify()
