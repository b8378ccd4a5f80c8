"""Undo and redo of marks, deletions, changes of the path, draws, settings and breakpoints."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.protocol import Deleted, Marked, Moved, MoveTo, Record, Step, Undeleted
from engine.settings import FIELDS, Settings
from inspector.display import quoted, token_label, truncate, visible
from inspector.keys import key_for, with_keys
from inspector.scales import counted
from inspector.session.client import EngineClient, Request
from inspector.session.setup import SamplerQueries, Setup
from inspector.session.transport import LiveTransport, conditions
from inspector.state.branches import ROOT
from inspector.state.inside import interventions_words

NOTHING = (
    "Nothing to undo: {undo} takes back marks, deletions, branches, prompts, draws, settings and breakpoints"
)
NOTHING_AGAIN = "Nothing to redo: {redo} redoes what {undo} has undone, until you change something else"
MOVES = (MoveTo.kind, protocol.Configure.kind)
"""Kinds of commands that take tokens back, unless they also change the path at the place that they move to."""
_LABEL = 24
"""Maximum width of a token's text in an answer, in cells."""


# ---- changes ------------------------------------------------------------------------------------


class DrawCount(Struct, frozen=True):
    """Number of times that the token after a node was drawn again."""

    node: int
    count: int


Report = Marked | Deleted | Undeleted | Settings | Breakpoints | DrawCount


class Change(Struct, frozen=True):
    """A change, as the report of its undoing and the report of the change itself."""

    before: Report
    after: Report
    tokens: int = 0
    """Number of tokens that a deletion hid."""


class PathChange(Struct, frozen=True):
    """A change of the path by the user."""

    before: int
    """Last node of the path before the change."""
    first: int
    """First node of the new branch."""
    last: int
    """Last node of the new branch that the user gave."""
    how: Literal["chosen", "held", "released", "prompt", "back"] = "chosen"
    """Tokens were chosen or typed; interventions held or released; a prompt or a message given; a token taken back."""
    moved_for: Change | None = None
    """The change that moved the path, if any: settings or a draw at an older step, or a deletion of the path's end."""
    end: int = ROOT
    """Last node of the path when this change was undone."""


def report_of(change: Change | PathChange, again: bool) -> Report | None:
    """The report of a change (with `again`) or of its undoing; None if only the path changes."""
    reported = change.moved_for if isinstance(change, PathChange) else change
    if reported is None:
        return None
    return reported.after if again else reported.before


class History:
    """Undoes and redoes changes. Each method that a key calls returns the answer for the user.

    The history is built from records alone, so that a continued session still has it. Undoing is reported by an
    `Undone` record, followed by a record of the kind that reported the change: a mark, a deletion, settings.
    Breakpoints belong to this screen; neither they nor their undoing are in records.

    Args:
        client: Receives the records, and sends the commands that undo.
        queries: Know the settings in force.
        setup: Changes the settings.
        runs: Have the breakpoints.
    """

    def __init__(
        self, client: EngineClient, queries: SamplerQueries, setup: Setup, runs: LiveTransport
    ) -> None:
        self._client, self._queries, self._setup, self._runs = client, queries, setup, runs
        self._done: list[Change | PathChange] = []
        """Changes in force, oldest first."""
        self._undone: list[Change | PathChange] = []
        """Changes that were undone; the last one is redone first."""
        self._expected: Report | None = None
        """The report that the last undo or redo brings, which doesn't count as a new change."""
        self._timeline, self._tree = client.timeline, client.timeline.tree.marks
        self._settings, self._points = queries.in_force, runs.breakpoints.points
        self._marks: dict[int, Marked] = {}
        """Marks before the current record, by node."""
        self.draws: dict[int, int] = {}
        """Number of times that the token after a node was drawn again, by node."""
        self._tip = client.timeline.tip
        self._left: int | None = None
        """Last node of the path before the current command moved it; None if it didn't."""
        self._returning = ROOT
        """Node that an undo or redo moves to, which doesn't count as a new change."""
        self._choosing = False
        """True if the current command has added a token that the user gave."""
        client.listen(self._receive)
        runs.changed = self._settle

    # ---- keys -------------------------------------------------------------------------------

    def undo(self) -> str:
        """Undo the last change that is still in force."""
        self._settle()
        while self._done and not self._holds(self._done[-1]):
            self._done.pop()
        return self._turn(self._done[-1], again=False) if self._done else with_keys(NOTHING)

    def redo(self) -> str:
        """Redo the change that was undone last."""
        self._settle()
        return self._turn(self._undone[-1], again=True) if self._undone else with_keys(NOTHING_AGAIN)

    def count(self) -> int:
        """Number of changes in the history, for `put_back`."""
        self._settle()
        return len(self._done)

    def put_back(self, count: int, settings: Settings, tip: int) -> None:
        """Drop the latest changes, because the caller restores the session to the state before them.

        Args:
            count: Number of changes to keep.
            settings: The settings that the caller restores.
            tip: Last node of the path that the caller restores.
        """
        self._settle()
        del self._done[count:]
        self._undone.clear()
        self._expected = settings if settings != self._settings else None
        self._returning = tip

    def _holds(self, change: Change | PathChange) -> bool:
        """True if a change is still in force; the user may have reversed it without undo."""
        timeline = self._client.timeline
        if isinstance(change, PathChange):
            if change.moved_for is not None:
                return self._holds(change.moved_for)
            gone_back = change.before == timeline.tip
            return not gone_back and any(item.node == change.first for item in timeline.items)
        match change.after:
            case Marked(node=node):
                return timeline.tree.marks.at(node) == change.after
            case Deleted(node=node):
                return timeline.tree.marks.hides(node)
            case DrawCount(node=node, count=count):
                return self.draws.get(node, 0) == count and any(item.node == node for item in timeline.items)
            case Breakpoints():
                return self._points == change.after
        return self._queries.in_force == change.after

    def _turn(self, change: Change | PathChange, again: bool) -> str:
        if refused := self._refusal(change, again):
            return refused
        words = self._words(change, again)
        if isinstance(report_of(change, again), Breakpoints):
            self._turned(again)  # no record reports it
        else:
            self._client.receive(protocol.Undone(again))
        problem = self._carry_out(change, again)
        if again:
            return f"Redone: {words}. {key_for('undo')} undoes it{problem}"
        return f"Undone: {words}. {key_for('redo')} redoes it{problem}"

    def _refusal(self, change: Change | PathChange, again: bool) -> str:
        timeline = self._client.timeline
        live = f"{key_for('go_live')} continues live"
        match change:
            case Change(after=Settings()) | PathChange(moved_for=Change(after=Settings())) if (
                timeline.recorded
            ):
                return f"This is a recording: other settings need the model. {live}"
            case Change(after=DrawCount()) if timeline.recorded:
                return f"This is a recording: another draw needs the model. {live}"
            case Change(after=Deleted(node=node)) if again and node in timeline.tree.branches:
                if timeline.tree.branches.leads(node, timeline.tip):
                    other = f"Go to another branch first: {key_for('tree')}"
                    return f"Not deleted again: the path runs through it now. {other}"
        return ""

    def _carry_out(self, change: Change | PathChange, again: bool) -> str:
        """Restore the state before a change, or with `again` the one after it; returns what went wrong."""
        client, timeline = self._client, self._client.timeline
        match report_of(change, again):
            case Settings() as settings:
                self._setup.configure(settings)
            case Breakpoints() as points:
                return self._runs.break_at(points)
            case DrawCount() as draw if not timeline.recorded:
                timeline.select(None)
                client.do(protocol.Reroll(draw.count, draw.node))
            case Deleted() as record if isinstance(change, PathChange):
                timeline.select(None)

                def left(move: Request[MoveTo]) -> None:
                    if move.reply(Moved) is not None:
                        client.receive(record)

                client.do(MoveTo(change.end), left)
                return ""
            case Marked() | Deleted() | Undeleted() as record:
                client.receive(record)
        if isinstance(change, PathChange):
            timeline.select(None)
            client.do(MoveTo(change.end if again else change.before))
        return ""

    # ---- words ------------------------------------------------------------------------------

    def _words(self, change: Change | PathChange, again: bool) -> str:
        if isinstance(change, PathChange):
            if change.moved_for is not None:
                return self._words(change.moved_for, again)
            if change.how == "back":
                tokens = self._tokens(change.first, change.before) - 1
                return f"taking back {counted(tokens, 'token') if tokens > 1 else self._label(change.before)}"
            return f"{self._way_words(change)}; {'that' if again else 'its'} branch stays"
        now = change.after if again else change.before
        match change.before, change.after:
            case Marked() as before, Marked() as after:
                return f"{_mark_words(before, after)} at {self._label(after.node)}"
            case Settings() as before, Settings() as after:
                return _settings_words(*((before, after) if again else (after, before)))
            case _, DrawCount(node=node):
                stays = "" if node == self._client.timeline.tip else "; the branch after it stays"
                return f"drawing again after {self._label(node)}{stays}"
        if isinstance(now, Breakpoints):
            stops = f"runs stop at {conditions(now)} now" if now.active else "none is set now"
            return f"the change of breakpoints: {stops}"
        return f"deleting {counted(change.tokens, 'token')}"

    def _way_words(self, change: PathChange) -> str:
        tree, prompts = self._client.timeline.tree, self._client.timeline.prompts.by_end
        match change.how:
            case "prompt" if change.last in prompts:
                opened = prompts[change.last].opened
                text = opened.messages[-1].content if opened.messages else opened.text
                what = "the message" if opened.parent else "the prompt"
                return f"giving {what} {quoted(truncate(visible(text), _LABEL))}"
            case "held":
                return f"continuing with {interventions_words(tree.interventions.get(change.first, ()))}"
            case "released":
                return "going back to the model's own"
        count = self._tokens(change.first, change.last)
        return f"{count:,} tokens inserted" if count > 1 else f"continuing with {self._label(change.first)}"

    def _tokens(self, first: int, last: int) -> int:
        """Number of tokens between two nodes of a path, including both; 1 if one of them is deleted."""
        branches = self._client.timeline.tree.branches
        known = first in branches and last in branches
        return branches.depth(last) - branches.depth(first) + 1 if known else 1

    def _label(self, node: int) -> str:
        branches = self._client.timeline.tree.branches
        if node not in branches:
            return "a deleted token"
        return quoted(truncate(token_label(branches[node].text, branches[node].raw), _LABEL))

    # ---- records ----------------------------------------------------------------------------

    def _receive(self, record: Record) -> None:
        timeline = self._client.timeline
        if timeline.tree.marks is not self._tree:
            self._follow()
        if self._queries.in_force is not self._settings or self._runs.breakpoints.points is not self._points:
            self._settle()
        match record:
            case protocol.Undone():
                self._turned(record.redo)
            case Marked():
                before = self._marks.get(record.node, Marked(record.node))
                if before != record:
                    self._marks[record.node] = record
                    self._take(Change(before, record))
            case Deleted(node=node):
                last = timeline.tree.marks.last
                if last is not None and last.node == node:
                    self._take(Change(Undeleted(node), record, len(last.tokens)))
            case Undeleted():
                self._expected = None
            case Moved():
                self._left = self._tip
            case protocol.Ended(command=kind) if kind in MOVES or not self._client.outstanding:
                left, self._left, self._choosing = self._left, None, False
                if kind in MOVES and left is not None:
                    returned, self._returning = self._returning == timeline.tip, ROOT
                    back = kind != MoveTo.kind or timeline.tree.parent.get(left) == timeline.tip
                    if back and not returned and left != timeline.tip:
                        self._take(PathChange(left, timeline.tip, timeline.tip, "back"))
            case Step(origin="sampled" | "greedy"):
                self._left, self._choosing = None, False  # the sampler picked it
            case Step():
                self._stepped(record)
            case protocol.Resampled(next=drawn):
                drawn_before = self.draws.get(drawn.node, 0)
                if drawn_before != drawn.reroll:
                    self.draws[drawn.node] = drawn.reroll
                    now = DrawCount(drawn.node, drawn.reroll)
                    self._take(Change(DrawCount(drawn.node, drawn_before), now))
            case protocol.InterventionsHeld():
                left, self._left = self._left, None
                if left is not None and left != record.node:
                    how: Literal["held", "released"] = "held" if record.interventions else "released"
                    self._take(PathChange(left, record.node, record.node, how))
            case protocol.PromptOpened(new_tree=False, tokens=(*_, end)) if self._tip != ROOT:
                self._take(PathChange(self._tip, end.node, end.node, "prompt"))
        self._tip = timeline.tip

    def _take(self, change: Change | PathChange) -> None:
        """Add a change, unless an undo or redo brought it."""
        expected, self._expected = self._expected, None
        if isinstance(change, Change):
            if change.after == expected:
                return
            if self._left is not None and isinstance(change.after, Settings | DrawCount | Deleted):
                change = PathChange(self._left, self._tip, self._tip, moved_for=change)
                self._left = None
        self._done.append(change)
        self._undone.clear()

    def _turned(self, again: bool) -> None:
        """Move the last change to the undone ones, or back from them."""
        source, target = (self._undone, self._done) if again else (self._done, self._undone)
        if source:
            change = source.pop()
            self._expected = report_of(change, again)
            if isinstance(change, PathChange):
                change = change if again else replace(change, end=self._tip)
                self._returning = change.end if again else change.before
            target.append(change)

    def _follow(self) -> None:
        """Start a new history for a new model or recording; for a new tree, keep settings and breakpoints."""
        stay = Settings | Breakpoints if self._client.timeline is self._timeline else ()
        self._done = [each for each in self._done if isinstance(getattr(each, "after", None), stay)]
        self._undone.clear()
        if not stay:
            self._expected = None
        self._timeline, self._tree = self._client.timeline, self._client.timeline.tree.marks
        self._marks, self.draws, self._left, self._choosing = {}, {}, None, False

    def _settle(self) -> None:
        """Add changes of breakpoints, and of settings once they are in force in the engine or the recording."""
        settings, points = self._settings, self._points
        self._settings, self._points = self._queries.in_force, self._runs.breakpoints.points
        if self._client.timeline.prompts.opened is None:
            return
        if settings != self._settings:
            self._take(Change(settings, self._settings))
        if points != self._points:
            self._take(Change(points, self._points))

    def _stepped(self, step: Step) -> None:
        """Add a token that the user gave, chosen or typed, to the history."""
        held, parent = step.origin == "intervened", self._client.timeline.tree.nodes.get(step.parent)
        if held and not (isinstance(parent, Step) and parent.origin == "intervened"):
            self._left = step.parent if self._left is None else self._left
            return  # the first token of a branch under interventions: their record comes next
        left, self._left = self._left, None
        if step.origin not in ("chosen", "inserted") and not (held and step.id != step.choice.picked):
            self._choosing = False
            return
        last = self._done[-1] if self._done else None
        if self._choosing and isinstance(last, PathChange) and last.last == step.parent:
            self._done[-1] = PathChange(last.before, last.first, step.node)
        else:
            self._take(PathChange(step.parent if left is None else left, step.node, step.node))
        self._choosing = True


def _mark_words(before: Marked, after: Marked) -> str:
    """Words for a change of marks: `the bookmark`, `the note and caption`."""
    if before.bookmarked != after.bookmarked:
        return "the bookmark" if after.bookmarked else "taking the bookmark off"
    fields = ("name", "note", "caption")
    changed = [name for name in fields if getattr(before, name) != getattr(after, name)]
    return "the " + (" and ".join(changed) or "panel of the caption")


def _settings_words(old: Settings, new: Settings) -> str:
    """Words for a change of settings: up to two with their new values, else their number."""
    changed = [field for field in FIELDS if getattr(old, field.name) != getattr(new, field.name)]
    if len(changed) > 2:
        return f"{len(changed)} sampling settings"
    values = [
        f"{field.label} is {visible(field.format(getattr(new, field.name))) or 'none'}" for field in changed
    ]
    if old.grammar != new.grammar:
        values.append(f"the grammar is {visible(new.grammar.summary) if new.grammar else 'off'}")
    return f"the change of settings: {', '.join(values)} now"
