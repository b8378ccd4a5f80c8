"""Undo and redo: of marks, deletions, other ways that the path was sent, draws, settings and breakpoints."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.protocol import Deleted, Marked, MoveTo, Record, Step, Undeleted
from engine.settings import FIELDS, Settings
from inspector.display import quoted, token_label, truncate, visible
from inspector.keys import key_for, with_keys
from inspector.session.client import EngineClient
from inspector.session.sampler_queries import SamplerQueries
from inspector.session.setup import Runs, Setup
from inspector.state.branches import ROOT
from inspector.state.breakpoints import conditions
from inspector.state.inside import interventions_words
from inspector.state.timeline import Timeline

NOTHING = (
    "Nothing to undo: {undo} takes back marks, deletions, branches, prompts, draws, settings and breakpoints"
)
NOTHING_AGAIN = "Nothing to redo: {redo} redoes what {undo} has undone, until you change something else"
_LABEL = 24
"""Cells that a token's text gets in an answer."""


# ---- changes ------------------------------------------------------------------------------------


class DrawCount(Struct, frozen=True):
    """How often was drawn again after a node."""

    node: int
    count: int


ChangeRecord = Marked | Deleted | Undeleted | Settings | Breakpoints | DrawCount
"""What reports a change."""


class MarkChange(Struct, frozen=True):
    """The marks of a node were changed."""

    before: Marked
    after: Marked


class Removal(Struct, frozen=True):
    """A node and all below it were deleted."""

    node: int
    tokens: int


class SettingsChange(Struct, frozen=True):
    """The sampler has other settings."""

    before: Settings
    after: Settings


class BreakpointsChange(Struct, frozen=True):
    """Runs stop elsewhere."""

    before: Breakpoints
    after: Breakpoints


class Redraw(Struct, frozen=True):
    """The token to come after a node was drawn again."""

    node: int
    before: int
    """How often it had been drawn again."""
    after: int


class PathChange(Struct, frozen=True):
    """A person had the path go another way."""

    before: int
    """Where the path ended before."""
    first: int
    last: int
    """Where the other way begins, and as far as the person gave it."""
    how: Literal["chosen", "held", "released", "prompt"] = "chosen"
    """Tokens were chosen, typed or drawn again; interventions held or released; a prompt or a message given."""
    draw: Redraw | None = None
    """Of a token that was drawn again at an older step, the draw."""


Change = MarkChange | Removal | SettingsChange | BreakpointsChange | Redraw | PathChange


class ChangeLog:
    """The changes in force and those that were taken back, in the order of time.

    It follows from the records alone, so that a session which is gone on with has that of the one before. Taking a
    change back is reported by an `Undone`, and after it by whatever reported the change: a mark, a deletion, settings.
    Breakpoints are of this screen and in no record, and so is taking them back.
    """

    def __init__(self) -> None:
        self.done: list[Change] = []
        """In force, oldest first."""
        self.undone: list[Change] = []
        """Taken back, the one to make again last."""
        self._expected: ChangeRecord | None = None
        """What will report the change that was just taken back, or made again: that is no change of its own."""

    def take(self, change: Change, record: ChangeRecord | None = None) -> None:
        """Take in a change, unless taking back another one brought it.

        Args:
            change: It.
            record: What reported it.
        """
        expected, self._expected = self._expected, None
        if record is None or record != expected:
            self.done.append(change)
            self.undone.clear()

    def turn(self, again: bool) -> None:
        """The last change was taken back, or the one that was taken back last was made again."""
        source, target = (self.undone, self.done) if again else (self.done, self.undone)
        if source:
            target.append(change := source.pop())
            self._expected = record_of(change, again)

    def returned(self, record: Undeleted) -> None:
        """A deletion was taken back; in a trace from before there was an `Undone`, by that alone."""
        expected, self._expected = self._expected, None
        if record == expected:
            return
        removals = [each for each in self.done if isinstance(each, Removal) and each.node == record.node]
        if removals:
            self.done.remove(removals[-1])

    def leave_tree(self) -> None:
        """Another tree has the place of the one that was changed: settings and breakpoints outlive it."""
        self.done = [change for change in self.done if isinstance(change, SettingsChange | BreakpointsChange)]
        self.undone.clear()


def record_of(change: Change, again: bool) -> ChangeRecord | None:
    """What reports that a change is taken back, or made again; None for a path that only goes elsewhere."""
    match change:
        case MarkChange():
            return change.after if again else change.before
        case Removal():
            return Deleted(change.node) if again else Undeleted(change.node)
        case SettingsChange() | BreakpointsChange():
            return change.after if again else change.before
        case Redraw():
            return DrawCount(change.node, change.after if again else change.before)
        case PathChange():
            return None if change.draw is None else record_of(change.draw, again)


# ---- taking back and making again ---------------------------------------------------------------


class History:
    """Takes the last change back, or makes it again. Each method that a key calls returns the answer for the person.

    Args:
        client: Hears of the changes, and takes what undoes them.
        queries: Know the settings in force.
        setup: Changes them.
        runs: Have the breakpoints.
    """

    def __init__(self, client: EngineClient, queries: SamplerQueries, setup: Setup, runs: Runs) -> None:
        self._client, self._queries, self._setup, self._runs = client, queries, setup, runs
        self._log = ChangeLog()
        self._timeline, self._tree = client.timeline, client.timeline.tree.marks
        self._marks: dict[int, protocol.Marked] = {}
        """As they were before the record that is heard."""
        self._settings, self._points = queries.in_force, runs.breakpoints.points
        self._draws: dict[int, int] = {}
        """How often was drawn again, by the node before; those that were never are not in it."""
        self._tip = client.timeline.tip
        self._left: int | None = None
        """Where the path ended before the command under way moved it."""
        self._choosing = False
        """True if the command under way has put in a token."""
        client.listen(self._hear)
        runs.changed = self._settle

    # ---- keys -------------------------------------------------------------------------------

    def undo(self) -> str:
        """Take back the last change that still holds."""
        self._settle()
        done = self._log.done
        while done and not self._holds(done[-1]):
            done.pop()
        return self._turn(done[-1], again=False) if done else with_keys(NOTHING)

    def redo(self) -> str:
        """Make the change again that was taken back last."""
        self._settle()
        return self._turn(self._log.undone[-1], again=True) if self._log.undone else with_keys(NOTHING_AGAIN)

    def _holds(self, change: Change) -> bool:
        """True if there is something to take back: a person may have done it another way."""
        timeline = self._client.timeline
        match change:
            case MarkChange():
                return timeline.tree.marks.at(change.after.node) == change.after
            case Removal():
                return timeline.tree.marks.hides(change.node)
            case SettingsChange():
                return self._queries.in_force == change.after
            case BreakpointsChange():
                return self._points == change.after
            case Redraw():
                counted = self._draws.get(change.node, 0) == change.after
                return counted and any(item.node == change.node for item in timeline.items)
            case PathChange():
                gone_back = change.before == timeline.tip
                return not gone_back and any(item.node == change.first for item in timeline.items)

    def _turn(self, change: Change, again: bool) -> str:
        if refused := self._refusal(change, again):
            return refused
        words = self._words(change, again)
        if isinstance(change, BreakpointsChange):
            self._log.turn(again)  # in no record
        else:
            self._client.receive(protocol.Undone(again))
        problem = self._carry_out(change, again)
        if again:
            return f"Redone: {words}. {key_for('undo')} undoes it{problem}"
        return f"Undone: {words}. {key_for('redo')} redoes it{problem}"

    def _carry_out(self, change: Change, again: bool) -> str:
        """Have it as it was before a change, or after it; returns what went wrong."""
        client, timeline = self._client, self._client.timeline
        match record_of(change, again):
            case Settings() as settings:
                self._setup.configure(settings)
            case Breakpoints() as points:
                return self._runs.break_at(points)
            case DrawCount() as draw if not timeline.recorded:
                self._draw(draw)
            case protocol.Marked() | protocol.Deleted() | protocol.Undeleted() as record:
                client.receive(record)
        if isinstance(change, PathChange):
            timeline.select(None)
            client.do(MoveTo(timeline.tree.leaf(change.last) if again else change.before))
        return ""

    def _draw(self, draw: DrawCount) -> None:
        client, timeline = self._client, self._client.timeline
        client.pause()
        timeline.select(None)
        if draw.node != timeline.tip or client.outstanding:
            client.request(MoveTo(draw.node))
        client.request(protocol.Reroll(draw.count))

    def _refusal(self, change: Change, again: bool) -> str:
        timeline = self._client.timeline
        if isinstance(change, SettingsChange) and timeline.recorded:
            return (
                "Recorded: the settings were changed here, and no model samples with others. "
                f"{key_for('go_live')} continues live"
            )
        if isinstance(change, Redraw) and timeline.recorded:
            return f"Recorded: this was drawn here, and no model draws otherwise. {key_for('go_live')} continues live"
        through = again and isinstance(change, Removal) and change.node in timeline.tree.branches
        if through and timeline.tree.branches.leads(change.node, timeline.tip):  # type: ignore[union-attr]
            return f"Not deleted again: the path runs through it now. Go to another branch first: {key_for('tree')}"
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
            case BreakpointsChange():
                points = change.after if again else change.before
                now = f"runs stop at {conditions(points)} now" if points.active else "none is set now"
                return f"the change of breakpoints: {now}"
            case Redraw():
                stays = "" if change.node == self._client.timeline.tip else "; the branch after it stays"
                return f"drawing again after {self._label(change.node)}{stays}"
            case PathChange():
                return f"{self._way_words(change)}; {'that' if again else 'its'} branch stays"

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
        branches = tree.branches
        ends = change.last in branches and change.first in branches
        count = branches.depth(change.last) - branches.depth(change.first) + 1 if ends else 1
        return f"{count:,} tokens inserted" if count > 1 else f"continuing with {self._label(change.first)}"

    def _label(self, node: int) -> str:
        branches = self._client.timeline.tree.branches
        if node not in branches:
            return "a deleted token"
        return quoted(truncate(token_label(branches[node].text, branches[node].raw), _LABEL))

    # ---- records ----------------------------------------------------------------------------

    def _hear(self, record: Record) -> None:
        timeline = self._client.timeline
        if timeline.tree.marks is not self._tree:
            self._follow(timeline)
        if self._queries.in_force is not self._settings or self._runs.breakpoints.points is not self._points:
            self._settle()
        match record:
            case protocol.Undone():
                self._log.turn(record.redo)
            case protocol.Marked():
                self._marked(record)
            case protocol.Deleted():
                self._deleted(record)
            case protocol.Undeleted():
                self._log.returned(record)
            case protocol.Moved():
                self._left = self._tip
            case protocol.Ended() if (
                not self._client.outstanding
            ):  # drawing again is a move, a draw and a step
                self._left, self._choosing = None, False
            case Step(origin="sampled" | "greedy") if self._left is None or not record.choice.reroll:
                self._left, self._choosing = None, False  # nobody put it in
            case Step():
                self._stepped(record)
            case protocol.Resampled(next=drawn):
                self._drawn(DrawCount(drawn.node, drawn.reroll))
            case protocol.InterventionsHeld():
                self._held(record)
            case protocol.PromptOpened(new_tree=False, tokens=(*_, last)):
                if self._tip != ROOT:
                    self._log.take(PathChange(self._tip, last.node, last.node, "prompt"))
        self._tip = timeline.tip

    def _follow(self, timeline: Timeline) -> None:
        """Begin anew with another model or recording; with another tree, but for the settings."""
        if timeline is self._timeline:
            self._log.leave_tree()
        else:
            self._log = ChangeLog()
        self._timeline, self._tree = timeline, timeline.tree.marks
        self._marks, self._draws, self._left, self._choosing = {}, {}, None, False

    def _settle(self) -> None:
        """Notice other breakpoints, and other settings once the engine, or the recording, has them in force."""
        settings, points = self._settings, self._points
        self._settings, self._points = self._queries.in_force, self._runs.breakpoints.points
        if self._client.timeline.prompts.opened is None:
            return
        if settings != self._settings:
            self._log.take(SettingsChange(settings, self._settings), self._settings)
        if points != self._points:
            self._log.take(BreakpointsChange(points, self._points), self._points)

    def _marked(self, record: protocol.Marked) -> None:
        before = self._marks.get(record.node, protocol.Marked(record.node))
        if before != record:
            self._marks[record.node] = record
            self._log.take(MarkChange(before, record), record)

    def _deleted(self, record: protocol.Deleted) -> None:
        last = self._client.timeline.tree.marks.last
        if last is not None and last.node == record.node:
            self._log.take(Removal(record.node, len(last.tokens)), record)

    def _stepped(self, step: Step) -> None:
        """A token that a person put in: chosen, typed, or drawn again at an older step."""
        held, parent = step.origin == "intervened", self._client.timeline.tree.nodes.get(step.parent)
        if held and not (isinstance(parent, Step) and parent.origin == "intervened"):
            self._left = step.parent if self._left is None else self._left
            return  # the first of a branch under interventions: they come next
        left, self._left = self._left, None
        by_hand = step.origin in ("chosen", "inserted") or (held and step.id != step.choice.picked)
        drawn_again = not by_hand and step.choice.reroll > 0 and left is not None
        if not by_hand and not drawn_again:
            self._choosing = False
            return
        last = self._log.done[-1] if self._log.done else None
        draw = last if drawn_again and isinstance(last, Redraw) and last.node == step.parent else None
        if draw is not None:
            self._log.done.pop()
        if self._choosing and isinstance(last, PathChange) and last.last == step.parent:
            self._log.done[-1] = PathChange(last.before, last.first, step.node)
        else:
            self._log.take(PathChange(step.parent if left is None else left, step.node, step.node, draw=draw))
        self._choosing = True

    def _drawn(self, now: DrawCount) -> None:
        before = self._draws.get(now.node, 0)
        if before != now.count:
            self._draws[now.node] = now.count
            self._log.take(Redraw(now.node, before, now.count), now)

    def _held(self, record: protocol.InterventionsHeld) -> None:
        """Interventions are held from a token on, or were let go."""
        left, self._left = self._left, None
        if left is not None and left != record.node:
            how: Literal["held", "released"] = "held" if record.interventions else "released"
            self._log.take(PathChange(left, record.node, record.node, how))


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
    if old.grammar != new.grammar:
        values.append(f"the grammar is {visible(new.grammar.summary) if new.grammar else 'off'}")
    return f"the change of settings: {', '.join(values)} now"
