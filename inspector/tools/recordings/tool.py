"""Recordings as a tool: the keys that go on live, save, and list recent sessions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.protocol import Ended, Failure, ReadLogits, Record
from inspector.keys import KEYS, key_for
from inspector.main.tool import SET_UP, HelpSection, Hint, Host, Key, Needs, Tool, ToolActions, When
from inspector.session.playback import Opening

if TYPE_CHECKING:
    from inspector.tools.recordings.dialogs import SaveAsDialog, Saved


class RecordingActions(ToolActions):
    """Goes on with recorded sessions, saves them and lists them."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._dialog: SaveAsDialog | None = None
        self._reads: ReadLogits | None = None
        """What the dialog waits for."""
        host.controller.client.listeners.append(self._receive)

    def go_live(self) -> None:
        """Go on live from the recording on show."""
        playback = self.host.playback
        if playback is None or playback.going is None:
            self.host.answer(f"This session is live already: {key_for('step')} takes the next token")
        else:
            self.host.answer(playback.going.begin())

    def save_as(self) -> None:
        """Ask for a name, and save the session under it."""
        from inspector.tools.recordings.dialogs import SaveAsDialog

        playback = self.host.playback
        if playback is None or not playback.entries:
            self.host.answer("There is nothing to save yet")
            return
        name = playback.path.name.partition(".json")[0] if playback.path is not None else "session"
        facts, live = self.timeline.facts, self.controller.stepping and playback.player is None
        bits = 2 if facts is not None and facts.dtype in ("bfloat16", "float16") else 4
        self._dialog = SaveAsDialog(
            lambda: tuple(playback.entries),
            f"{name}.jsonl.gz",
            playback.recorder.program(),
            self._read_logits if live else None,
            bits * facts.vocabulary if facts is not None else 0,
        )
        self.host.open(self._dialog, self._saved)

    def _read_logits(self) -> None:
        self._reads = ReadLogits()
        self.controller.client.do(self._reads)

    def _receive(self, record: Record) -> None:
        """Have the dialog go on once the rows that it asked for are among the entries."""
        if self._dialog is None or self._reads is None:
            return
        if isinstance(record, Failure) and record.id == self._reads.id:
            self._dialog.logits_read(f"{record.message} {record.hint}")
        elif isinstance(record, Ended) and record.id == self._reads.id:
            self._dialog.logits_read(
                "The logits were not read: it was cancelled." if record.cancelled else ""
            )

    def _saved(self, saved: Saved | None) -> None:
        from inspector.tools.recordings.dialogs import saved_sentence

        self._dialog = None
        if saved is not None:
            self.host.answer(saved_sentence(saved))

    def sessions(self) -> None:
        """List recent sessions, and show the one that is chosen."""
        from inspector.tools.recordings.dialogs import SessionsDialog

        self.host.open(SessionsDialog(), self._chosen)

    def _chosen(self, path: Path | None) -> None:
        playback = self.host.playback
        if path is None or playback is None:
            return
        if path == playback.recorder.path:
            self.host.answer("That is the session which runs now")
        else:
            playback.open(Opening(path))


RECORDINGS = Tool(
    "recordings",
    "Recordings",
    RecordingActions,
    keys=(
        Key("go_live", *KEYS["go_live"], "Go on live", SET_UP,
            "In a replay: load the model, if it is the recorded one, and step on from what is on show.",
            RecordingActions.go_live, Needs.SESSION),
        Key("save_as", *KEYS["save_as"], "Save as", SET_UP,
            "Save the session, with its kept logits if you like, or what is on show of a recording, to a file.",
            RecordingActions.save_as, Needs.SESSION),
        Key("sessions", *KEYS["sessions"], "Recent sessions", SET_UP,
            "Look at a recent session, and go on with it.", RecordingActions.sessions),
    ),
    hints=(Hint(14, ("go_live",), "go live", 10, When.REPLAY),),
    help=(
        HelpSection(
            "In a replay",
            (
                ("`space`", "Show the next step or caption; while it plays, pause."),
                ("`r`", "Play it at the recorded pace, at its end from the start; again to pause."),
                (f"`{key_for('faster')}` `{key_for('slower')}`",
                 "Play faster or slower: a quarter of the recorded pace up to as fast as possible."),
                ("`⌫`", "Go back to what was there a step before."),
                (f"`⏎` `{key_for('previous_branch')}` `{key_for('next_branch')}`",
                 "Go to another branch that was recorded."),
                (f"`{key_for('race')}` `{key_for('profile')}` `{key_for('compare_kv')}` "
                f"`{key_for('sweep')}` `{key_for('beams')}` `{key_for('speculation')}`",
                 "Show the race, costs, quantized KV, sweeps, beams or speculation recorded "
                 f"up to here. There `{key_for('step')}`, `{key_for('run')}`, `{key_for('take_back')}`, "
                 f"`{key_for('faster')}` and `{key_for('slower')}` move the recording, too."),
                ("`/`", "Search among the candidates that were recorded, or the vocabulary where the logits were."),
                ("`s`", "Try other settings, where the logits were recorded."),
                ("`G`", "Go on live: load the model, compare it with the recording, step on."),
                ("`o`", "Go on live with a model that lies elsewhere."),
            ),
        ),
    ),
)  # fmt: skip
