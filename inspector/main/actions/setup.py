"""Setting up: the keys that ask for a prompt or a model, and show what is known of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.protocol import Prefill
from engine.settings import LoadSettings
from inspector.main.downloads import Downloads
from inspector.main.tool import SET_UP, Host, Tool, ToolActions, live
from inspector.recordings.sessions import recent_models
from inspector.session.prompts import given, on_show
from inspector.session.requests import Latest
from inspector.state.measured import Measured
from inspector.widgets.actions import Action, Needs, applies, dialog_table, leaves, note, picking, taking

if TYPE_CHECKING:
    from inspector.session.prompts import Draft

_MOST_KEPT = 100
"""Prompts that are kept beside those of the tree."""


class SetupActions(ToolActions):
    """Asks for what the engine works on."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.draft = host.controller.setup.prompt
        """What stands in the prompt dialog when it is opened, unless it was given and went on as a conversation."""
        self._given = self.draft
        self._typed: list[Prefill] = []
        """What was given or left in it before."""
        self._downloads = Downloads(host)
        self._lookup = Latest(host.controller.client)

    def prompt(self) -> None:
        """Ask for a prompt."""
        from inspector.main.dialogs.prompt import PromptDialog

        before = [*given(self.timeline), *self._typed]
        conversation = on_show(self.timeline) if self.draft == self._given else None
        if conversation is not None:
            self.draft = self._given = replace(conversation, echo=self.draft.echo)
        dialog = PromptDialog(self.draft, lambda: self.timeline.facts, self._lookup, before)
        self.host.open(dialog, self._prompted)

    def _prompted(self, draft: Draft | None) -> None:
        if draft is None:
            return
        self.draft = draft.prompt
        self._typed = [*self._typed[1 - _MOST_KEPT :], draft.prompt]
        if draft.submitted:
            self._given = draft.prompt
            self.controller.setup.give(draft.prompt)
            self.host.answer()

    def open(self) -> None:
        """Ask for a model; in a replay for the one to go on live with."""
        from inspector.main.dialogs.model import ModelDialog

        if why := self.controller.transport.bound:
            self.host.answer(why)
            return
        facts = self.timeline.facts
        facts = None if self.timeline.recorded else facts
        present = Path(facts.path) if facts is not None else None
        # what is open gives its memory back before the next one is read
        room = (
            facts.free_bytes + facts.weight_bytes
            if facts is not None and facts.free_bytes is not None
            else None
        )
        connection = self.controller.connection
        elsewhere = connection.now.where if connection is not None and connection.far else ""
        load = self.controller.setup.load
        dialog = ModelDialog(load, present, recent_models, self._downloads, elsewhere, room)
        self.host.open(dialog, self._open)

    def _open(self, load: LoadSettings | None) -> None:
        if load is not None:
            self.host.answer(self.controller.transport.open_model(load))

    def facts(self) -> None:
        """Show the facts about the model."""
        from inspector.main.dialogs.facts import FactsDialog

        if (facts := self.timeline.facts) is not None:
            self.host.open(FactsDialog(facts, self.timeline.of(Measured).loaded))


PROMPT_KEYS = dialog_table(
    "While a prompt is typed",
    note("up down", "On the first and the last line: the prompt before, the next one. `alt+↑` `alt+↓` on any.",
         "other prompts", 5),
    Action("prompt.read_file", "From a file", "Take the text of a file; `→` completes its path.",
           lambda own: own.read_file(), hint="from a file", worth=4, priority=True),
    note("ctrl+a", "Select all of it: what is typed then takes its place.", "select all", 2),
    note("tab", hint="next field", worth=3),
    applies("Prefill it."),
    leaves("Leave; what was typed is kept."),
)  # fmt: skip
MODEL_KEYS = dialog_table(
    "While a model is chosen",
    note("", "Filter by name, family, bits or source: `qwen 4-bit`. A path or a hub id opens as typed.",
         written="letters"),
    *picking("Go through the list, `pgup` `pgdn` by pages; its facts are below.", "model", 6, pages=""),
    taking("Open it. A hub id that is not on the disk, or not whole, is downloaded first while the session goes on: "
           "`⏎` again stops that, and goes on with it later.", "open"),
)  # fmt: skip
SETTING_UP = Tool(
    "setup",
    "Set up",
    SetupActions,
    actions=(
        Action("prompt", "Prompt",
            "Give another prompt, raw or through the chat template. What is there stays in the tree.",
            SetupActions.prompt, Needs.ENGINE, group=SET_UP,
            synonyms="text input chat system message template question",
            hint=live("prompt"), worth=9, place=140),
        Action("open", "Open model", "Open another model: one of those on the disk, a directory or a hub id.",
            SetupActions.open, Needs.SESSION, group=SET_UP,
            synonyms="load change switch model checkpoint hub download"),
        Action("facts", "Model facts", "Show what is known of the model.", SetupActions.facts, Needs.MODEL,
            group=SET_UP, synonyms="architecture config parameters layers details info quantization about"),
    ),
    owners=(PROMPT_KEYS, MODEL_KEYS),
)  # fmt: skip
