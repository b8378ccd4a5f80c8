"""Typed text as a tool: the key that puts a text of one's own into the path, and the word on what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import Insert, Step
from inspector.keys import key_for
from inspector.main.tool import BRANCH, Host, Tool, ToolActions, live
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.widgets.actions import Action, Needs, applies, dialog_table, leaves, note

if TYPE_CHECKING:
    from inspector.tools.typed_text.dialog import OwnText


class TypedTextActions(ToolActions):
    """Takes a text token by token."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._lookup = Latest(host.controller.client)
        self._text = ""
        """What was typed and not inserted yet."""
        self._forbidden: tuple[int, str] | None = None
        """Node and text of the insertion that was refused last: the same again leaves a grammar that forbids it."""

    def open(self) -> None:
        """Ask for a text, and take it token by token."""
        from inspector.tools.typed_text.dialog import OwnTextDialog, spot

        self.controller.client.pause()
        where = spot(self.timeline)
        if not where.taken:
            self.host.answer(
                "Nothing can go before the first token. Press → for a later one, or "
                f"{key_for('prompt')} for another prompt"
            )
            return
        dialog = OwnTextDialog(self._text, self._lookup, where)
        self.host.open(dialog, lambda typed: self._left(where.node, typed))
        self.host.answer()

    def _left(self, node: int, typed: OwnText | None) -> None:
        if typed is None:
            return
        self._text = typed.text
        if typed.submitted:
            again = self._forbidden == (node, typed.text)
            self.controller.client.do(Insert(node, typed.text, leave_grammar=again), self._inserted)
            self.host.answer()

    def _inserted(self, request: Request[Insert]) -> None:
        """Say what the model thought of it; what was not taken stays to be typed again."""
        from inspector.tools.typed_text.summary import typed_summary

        if request.failure is not None:
            self._forbidden = request.command.node, request.command.text
        elif not request.cancelled:
            self._text = ""
        steps = [record for record in request.records if isinstance(record, Step)]
        self.host.answer(typed_summary(steps, request.cancelled))


OWN_TEXT_KEYS = dialog_table(
    "While a text of your own is typed",
    applies("Insert it.", written="`⏎` or `{dialog.apply}`"),
    note("enter", hint="insert", worth=6),
    note("ctrl+n", "Begin a new line.", "new line", 5),
    leaves("Leave; what was typed is kept."),
)
TYPED_TEXT = Tool(
    "typed_text",
    "Type your own",
    TypedTextActions,
    actions=(
        Action("own_text", "Type your own",
            "Type a text, special tokens included, in the place of the token that is looked at: a branch of its own, "
            "and the status line says what the model thought of it.", TypedTextActions.open,
            Needs.DISTRIBUTION | Needs.ENGINE, hint=live("type"), worth=2, place=70, group=BRANCH,
            synonyms="write insert force edit"),
    ),
    owners=(OWN_TEXT_KEYS,),
)  # fmt: skip
