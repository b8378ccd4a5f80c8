"""Undo and redo: of marks, deletions, tokens chosen by hand and the sampler's settings."""

from __future__ import annotations

from engine.commands import MoveTo
from engine.records import Deleted, Ended, Marked, Moved, Record, Step, Undeleted, Undone
from engine.settings import FIELDS, Settings
from inspector.display import quoted, token_label, truncate, visible
from inspector.session.client import EngineClient
from inspector.session.sampler_queries import SamplerQueries
from inspector.session.setup import Setup
from inspector.state.history import (
    Change,
    ChangeLog,
    ChosenTokens,
    MarkChange,
    Removal,
    SettingsChange,
    telling,
)
from inspector.state.timeline import Timeline

NOTHING = (
    "Nothing to undo: u takes back deletions, marks and notes, tokens put in by hand and changes of settings"
)
NOTHING_AGAIN = "Nothing to do again: U makes again what u has undone, until something else is changed"
_LABEL = 24
"""Cells that a token's text gets in an answer."""


class History:
    """Takes the last change back, or makes it again. Each method that a key calls returns the answer for the person.

    Args:
        client: Hears of the changes, and takes what undoes them.
        queries: Know the settings in force.
        setup: Changes them.
    """

    def __init__(self, client: EngineClient, queries: SamplerQueries, setup: Setup) -> None:
        self._client, self._queries, self._setup = client, queries, setup
        self._log = ChangeLog()
        self._timeline, self._tree = client.timeline, client.timeline.tree.marks
        self._marks: dict[int, Marked] = {}
        """As they were before the record that is heard."""
        self._settings = queries.in_force
        self._tip = client.timeline.tip
        self._left: int | None = None
        """Where the path ended before the command under way moved it."""
        self._choosing = False
        """Whether the command under way has put in a token."""
        client.listeners.append(self._hear)

    # ---- keys -------------------------------------------------------------------------------

    def undo(self) -> str:
        """Take back the last change that still holds."""
        self._settle()
        done = self._log.done
        while done and not self._holds(done[-1]):
            done.pop()
        return self._turn(done[-1], again=False) if done else NOTHING

    def redo(self) -> str:
        """Make the change again that was taken back last."""
        self._settle()
        return self._turn(self._log.undone[-1], again=True) if self._log.undone else NOTHING_AGAIN

    def _holds(self, change: Change) -> bool:
        """Whether there is something to take back: a person may have done it another way."""
        timeline = self._client.timeline
        match change:
            case MarkChange():
                return timeline.tree.marks.at(change.after.node) == change.after
            case Removal():
                return timeline.tree.marks.hides(change.node)
            case SettingsChange():
                return self._queries.in_force == change.after
            case ChosenTokens():
                return any(item.node == change.first for item in timeline.items)

    def _turn(self, change: Change, again: bool) -> str:
        if refused := self._refusal(change, again):
            return refused
        words = self._words(change, again)
        self._client.receive(Undone(again))
        match telling(change, again):
            case Settings() as settings:
                self._setup.configure(settings)
            case None:
                assert isinstance(change, ChosenTokens)
                self._client.timeline.select(None)
                self._client.do(
                    MoveTo(self._client.timeline.tree.leaf(change.last) if again else change.before)
                )
            case mark_or_deletion:
                self._client.receive(mark_or_deletion)
        return f"Done again: {words}. u undoes it" if again else f"Undone: {words}. U does it again"

    def _refusal(self, change: Change, again: bool) -> str:
        timeline = self._client.timeline
        if isinstance(change, SettingsChange) and timeline.recorded:
            return (
                "Recorded: the settings were changed here, and no model samples with others. G goes on live"
            )
        through = again and isinstance(change, Removal) and change.node in timeline.tree.branches
        if through and timeline.tree.branches.leads(change.node, timeline.tip):  # type: ignore[union-attr]
            return "Not deleted again: the path runs through it now. Go to another branch first: t"
        return ""

    # ---- words ------------------------------------------------------------------------------

    def _words(self, change: Change, again: bool) -> str:
        match change:
            case MarkChange():
                return f"{_mark_words(change)} at {self._label(change.after.node)}"
            case Removal():
                return f"deleting {change.tokens:,} token{'s' * (change.tokens != 1)}"
            case SettingsChange():
                return _settings_words(change, again)
            case ChosenTokens(first=first, last=last):
                branches = self._client.timeline.tree.branches
                count = branches.depth(last) - branches.depth(first) + 1 if last in branches else 1
                if count > 1:
                    return f"{count:,} tokens put in by hand; their branch stays"
                return f"going on with {self._label(first)}; its branch stays"

    def _label(self, node: int) -> str:
        branches = self._client.timeline.tree.branches
        if node not in branches:
            return "a deleted token"
        return quoted(truncate(token_label(branches[node].text, branches[node].raw), _LABEL))

    # ---- records ----------------------------------------------------------------------------

    def _hear(self, record: Record) -> None:
        self._follow(self._client.timeline)
        self._settle()
        match record:
            case Undone():
                self._log.turn(record.redo)
            case Marked():
                self._marked(record)
            case Deleted():
                self._deleted(record)
            case Undeleted():
                self._log.returned(record)
            case Moved():
                self._left = self._tip
            case Ended() if not self._client.outstanding:  # drawing again is a move, a draw and a step
                self._left, self._choosing = None, False
            case Step():
                self._stepped(record)
        self._tip = self._client.timeline.tip

    def _follow(self, timeline: Timeline) -> None:
        """Begin anew with another model or recording; with another tree, but for the settings."""
        if timeline.tree.marks is self._tree:
            return
        if timeline is self._timeline:
            self._log.leave_tree()
        else:
            self._log = ChangeLog()
        self._timeline, self._tree = timeline, timeline.tree.marks
        self._marks, self._left, self._choosing = {}, None, False

    def _settle(self) -> None:
        """Notice other settings, once the engine, or the recording, has them in force."""
        before, now = self._settings, self._queries.in_force
        if before != now:
            self._settings = now
            if self._client.timeline.prompts.opened is not None:
                self._log.take(SettingsChange(before, now), now)

    def _marked(self, record: Marked) -> None:
        before = self._marks.get(record.node, Marked(record.node))
        if before != record:
            self._marks[record.node] = record
            self._log.take(MarkChange(before, record), record)

    def _deleted(self, record: Deleted) -> None:
        last = self._client.timeline.tree.marks.last
        if last is not None and last.node == record.node:
            self._log.take(Removal(record.node, len(last.tokens)), record)

    def _stepped(self, step: Step) -> None:
        """A token that a person put in: chosen, typed, or drawn again at an older step."""
        left, self._left = self._left, None
        drawn_again = step.origin == "sampled" and step.choice.reroll > 0 and left is not None
        if step.origin not in ("chosen", "inserted") and not drawn_again:
            self._choosing = False
            return
        last = self._log.done[-1] if self._log.done else None
        if self._choosing and isinstance(last, ChosenTokens) and last.last == step.parent:
            self._log.done[-1] = ChosenTokens(last.before, last.first, step.node)
        else:
            self._log.take(ChosenTokens(step.parent if left is None else left, step.node, step.node))
        self._choosing = True


def _mark_words(change: MarkChange) -> str:
    """What of the marks was changed: `the bookmark`, `the note and caption`."""
    before, after = change.before, change.after
    if before.bookmarked != after.bookmarked:
        return "the bookmark" if after.bookmarked else "taking the bookmark off"
    fields = ("name", "note", "caption")
    changed = [name for name in fields if getattr(before, name) != getattr(after, name)]
    return "the " + (" and ".join(changed) or "panel of the caption")


def _settings_words(change: SettingsChange, again: bool) -> str:
    """The setting that was changed, with the value that it has now; of several their number."""
    old, new = (change.before, change.after) if again else (change.after, change.before)
    changed = [field for field in FIELDS if getattr(old, field.name) != getattr(new, field.name)]
    if len(changed) > 2:
        return f"{len(changed)} sampling settings"
    values = [
        f"{field.label} is {visible(field.format(getattr(new, field.name))) or 'none'}" for field in changed
    ]
    return f"the change of settings: {', '.join(values)} now"
