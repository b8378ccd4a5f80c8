"""Recordings as a tool: the keys that continue live, save, and list recent sessions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

from inspector.display import visible
from inspector.keys import key_for
from inspector.main.finder import Findable
from inspector.main.tool import Tool, ToolActions, replayed
from inspector.recordings.sessions import session_peeks
from inspector.session.playback import Opening
from inspector.widgets.actions import Action, ActionTable, Needs


class RecordingActions(ToolActions):
    """Continues recorded sessions, saves them and lists them."""

    def go_live(self) -> None:
        """Continue live from the recording on show."""
        playback = self.host.playback
        if playback is None or playback.replay is None:
            self.host.answer(f"This session is live already: {key_for('step')} takes the next token")
        elif self.timeline.facts is not None and not self.timeline.facts.ran:
            self.host.answer(
                "A recorded reply has no model to continue with: open its request with --model MODEL"
            )
        else:
            self.host.answer(playback.replay.begin())

    def save_as(self) -> None:
        """Ask for a name, and save the session under it."""
        from inspector.tools.recordings.dialogs import SaveAsDialog

        playback = self.host.playback
        if playback is None or not playback.entries:
            self.host.answer("There is nothing to save yet")
            return
        name = playback.path.name.partition(".trace")[0] if playback.path is not None else "session"
        facts, live = self.timeline.facts, self.controller.stepping and playback.player is None
        bits = 2 if facts is not None and facts.dtype in ("bfloat16", "float16") else 4
        dialog = SaveAsDialog(
            lambda: tuple(playback.entries),
            f"{name}.trace.zst",
            playback.recorder.program(),
            self.controller.client if live else None,
            bits * facts.vocabulary if facts is not None else 0,
        )
        self.host.open(dialog, lambda answer: None if answer is None else self.host.answer(answer))

    def sessions(self) -> None:
        """List recent sessions, and show the chosen one."""
        from inspector.tools.recordings.dialogs import SessionsDialog

        self.host.open(SessionsDialog(), self._chosen)

    def on_disk(self) -> Iterator[Findable]:
        """The sessions that are saved: each is shown as a recording."""
        if self.host.playback is None:
            return
        keys = key_for("sessions")
        for path, changed, peek in session_peeks():
            when = datetime.fromtimestamp(changed).strftime("%Y-%m-%d %H:%M")
            label = visible(peek.user_message or peek.prompt) or when
            about = f"A session of {visible(peek.model) or 'no model'}, last written to on {when}."
            yield Findable(f"session {path.name}", label, about, "Recent sessions", keys, "session", "sessions",
                           partial(self._chosen, path), foreign=True)  # fmt: skip

    def _chosen(self, path: Path | None) -> None:
        playback = self.host.playback
        if path is None or playback is None:
            return
        if path == playback.recorder.path:
            self.host.answer("That is the session that is open now")
        else:
            playback.open(Opening(path))


def _in_replay(help: str, *ids: str) -> tuple[Action, ...]:
    """Actions of a replay that share one sentence."""
    return tuple(Action(id, help=help) for id in ids)


RECORDINGS = Tool(
    "recordings",
    "Recordings",
    RecordingActions,
    actions=(
        Action("go_live", "Continue live",
            "In a replay: load the model, if it is the recorded one, and continue live from the selected token.",
            RecordingActions.go_live, Needs.SESSION, hint=replayed("continue live"), worth=10, place=140,
            synonyms="replay, resume a recording, continue live"),
        Action("save_as", "Save as",
            "Save the session, with its kept logits if you like, or the shown part of a recording, to a file.",
            RecordingActions.save_as, Needs.SESSION,
            synonyms="save, save session, write to a file, trace, recording"),
        Action("sessions", "Recent sessions", "Open a recent session, and continue it.",
            RecordingActions.sessions,
            synonyms="history, resume, open session, load session, saved sessions, recordings, continue a session",
            view="sessions…"),
    ),
    contexts=(
        ActionTable("In a replay", (
            Action("step", help="Show the next step or caption; while it plays, pause."),
            Action("run", help="Play it at the recorded pace; at its end, play it from the start; again to pause."),
            *_in_replay("Play faster or slower: a quarter of the recorded pace up to as fast as possible.", "faster",
                   "slower"),
            Action("take_back", help="Go back a step."),
            *_in_replay("Go to another recorded branch.", "choose", "previous_branch", "next_branch"),
            *_in_replay("Show the race, costs, quantized KV, beams or speculation recorded up to here. There "
                   "`{step}`, `{run}`, `{take_back}`, `{faster}` and `{slower}` move the recording, too.",
                   "race", "profile", "compare_kv", "beams", "speculation"),
            Action("find",
                   help="Search the recorded candidates, or the whole vocabulary if logits were recorded."),
            Action("sampling", help="Try other settings, if logits were recorded."),
            Action("go_live", help="Continue live: load the model, compare it with the recording, and step."),
            Action("open", help="Continue live with a model that has moved to another directory."),
        ), recorded=True),
    ),
)  # fmt: skip
