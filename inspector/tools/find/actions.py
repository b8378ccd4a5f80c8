"""Putting tokens of one's own choice into the path: found in the vocabulary, or typed."""

from __future__ import annotations

from engine import records
from engine.commands import FindTokens, Insert, Recall, Tokenize
from engine.records import Ended, Failure, Record, Step, TokensFound
from inspector.main.acting import PanelScreen
from inspector.session.controller import Controller
from inspector.session.lookup import Lookup
from inspector.tools.find.dialog import FindDialog, FindPlace, VocabularySearch
from inspector.tools.typed_text.dialog import OwnText, OwnTextDialog, spot
from inspector.tools.typed_text.tally import tally


class Finding(PanelScreen):
    """Searches the vocabulary at the token that is looked at, and takes what was found or typed."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        send = controller.engine.send
        self.finder = Lookup(FindTokens, TokensFound, send)
        self.cutter = Lookup(Tokenize, records.Tokenized, send)
        self.query_text = ""
        """What was looked for last."""
        self.own_text = ""
        """What was typed and not inserted yet."""
        self._taken_steps: list[Step] = []
        self._refused_text = False
        controller.listeners += [self.finder.receive, self.cutter.receive, self._follow_typing]

    # ---- find -------------------------------------------------------------------------------

    def action_find(self) -> None:
        """Ask for a part of a token, and take what is found."""
        self.controller.pause()
        facts = self.controller.timeline.facts
        dialog = FindDialog(
            self.query_text,
            self.finder,
            self._asked_place,
            facts.vocabulary if facts else 0,
            self._compute_logits,
        )
        self.app.push_screen(dialog, self._token_found)
        self.answer()

    def _asked_place(self) -> FindPlace:
        timeline = self.controller.timeline
        item = timeline.selected
        name = "the token to come"
        if isinstance(item, Step):
            name = f"step {item.index + 1}"
        elif item is not None:
            name = f"prompt token {timeline.slot + 1}"
        return FindPlace(timeline.before, name, timeline.taken)

    def _compute_logits(self, node: int) -> None:
        self.controller.do(Recall((node,)))

    def _token_found(self, search: VocabularySearch | None) -> None:
        if search is not None:
            self.query_text = search.query
            self.answer("" if search.chosen is None else self.controller.choose(search.chosen))

    # ---- type -------------------------------------------------------------------------------

    def action_own_text(self) -> None:
        """Ask for a text, and take it token by token."""
        self.controller.pause()
        where = spot(self.controller.timeline)
        if not where.taken:
            self.answer(
                "Nothing can go before the first token. Press → for a later one, or p for another prompt"
            )
            return
        self.app.push_screen(
            OwnTextDialog(self.own_text, self.cutter, where),
            lambda typed: self._insert_own(where.node, typed),
        )
        self.answer()

    def _insert_own(self, node: int, typed: OwnText | None) -> None:
        if typed is None:
            return
        self.own_text = typed.text
        if typed.submitted:
            self._taken_steps, self._refused_text = [], False
            self.controller.do(Insert(node, typed.text))
            self.answer()

    # ---- records ----------------------------------------------------------------------------

    def _follow_typing(self, record: Record) -> None:
        """Take in one record, after the timeline did."""
        match record:
            case Step() if isinstance(self.controller.doing, Insert):
                self._taken_steps.append(record)
            case Failure(command="Insert"):
                self._refused_text = True
            case Ended(command="Insert"):
                self._own_inserted(record.cancelled)
            case records.Recalled() if isinstance(self.app.screen, FindDialog):
                self.app.screen.recalled()
            case _:
                pass

    def _own_inserted(self, stopped: bool) -> None:
        """Tell what the model thought of it; what was not taken stays to be typed again."""
        if not (stopped or self._refused_text):
            self.own_text = ""
        self.answer(tally(self._taken_steps, stopped))
        self._taken_steps = []
