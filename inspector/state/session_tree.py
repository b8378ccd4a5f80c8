"""Every known token of the session with its place in the tree: paths, branches, marks."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from msgspec import Struct, field

from engine.protocol import (
    Candidate,
    Deleted,
    DraftRound,
    Intervention,
    Marked,
    PromptOpened,
    PromptToken,
    Step,
    Undeleted,
)
from engine.settings import Settings
from engine.tree import common_prefix
from inspector.display import quoted, token_label, visible
from inspector.keys import bare_key_for, key_for
from inspector.state.branches import PROMPT, ROOT, Branch, Branches, Sums, Token, token

Item = PromptToken | Step
STAR, NOTE, CAPTION, BRANCHES = "★", "✎", "❝", "├"
BOOKMARKED = f"{STAR} bookmarked"  # for a bookmark without name, note and caption


# ---- marks and deletions ------------------------------------------------------------------------


class Deletion(Struct, eq=False):
    """One deletion, with the nodes that it hides."""

    node: int
    tokens: dict[int, Token]
    """Tokens that are still hidden, by node; parents before their children."""


class Marks:
    """Names, bookmarks, notes and captions of one tree, and deletions that can be undone.

    Deleted nodes are hidden from the branches and from the children of every node; they stay in the engine's tree. If
    the engine moves to one again, it and its path are shown again, and the other nodes of the deletion stay hidden. All
    nodes below a hidden node are hidden too, so that every node shown has its whole path.
    """

    def __init__(self) -> None:
        self.of: dict[int, Marked] = {}
        """Marks by node, without nodes that have none."""
        self.version = 0
        """Grows whenever a mark changes, so that a view knows what to redraw."""
        self.deleted: dict[int, Deletion] = {}
        """Deleted tokens, each with its deletion, by node."""
        self.children: dict[int, set[int]] = {}
        """Deleted nodes that the session was at, by their parent."""
        self._deletions: list[Deletion] = []
        """Deletions that were not undone, oldest first."""

    def at(self, node: int) -> Marked:
        """The marks of a node; the defaults if there are none."""
        return self.of.get(node, Marked(node))

    @property
    def last(self) -> Deletion | None:
        """The deletion to undo next: the latest that still hides tokens."""
        return next((deletion for deletion in reversed(self._deletions) if deletion.tokens), None)

    def hides(self, node: int) -> bool:
        """True if the deletion of a node still hides tokens."""
        return any(deletion.node == node and deletion.tokens for deletion in self._deletions)

    # ---- records as they come ---------------------------------------------------------------

    def apply(self, record: Marked | Deleted | Undeleted, tree: SessionTree, tip: int) -> None:
        """Apply a mark, a deletion or its undoing; deleting a node that isn't shown changes nothing.

        Args:
            record: The record.
            tree: The tree that these marks belong to.
            tip: Last node of the path on show, whose prompts can't be deleted.
        """
        self.version += 1
        match record:
            case Marked() if record == Marked(record.node):
                self.of.pop(record.node, None)
            case Marked():
                self.of[record.node] = record
            case Deleted(node=node) if node in tree.branches:
                prompt = tree.branches[node].made == PROMPT and tip in tree.branches
                if prompt and tree.branches.leads(node, tip):
                    return  # the prompt on show stays
                tokens = tree.branches.discard(node)
                deletion = Deletion(node, {each.node: each for each in tokens})
                self._deletions.append(deletion)
                for each in tokens:
                    self._hide(each, deletion, tree)
            case Undeleted():
                self._undelete(record.node, tree)

    def _undelete(self, node: int, tree: SessionTree) -> None:
        deletion = next((deletion for deletion in reversed(self._deletions) if deletion.node == node), None)
        if deletion is None:
            return
        self._deletions.remove(deletion)
        for each in list(deletion.tokens.values()):
            if (over := self.deleted.get(each.parent)) is None:
                self._show(each, tree)
            else:  # a different deletion hides its path: the token becomes part of that one
                self.deleted[each.node] = over
                over.tokens[each.node] = each

    # ---- the tree as it grows ---------------------------------------------------------------

    def grown(self, token: Token, tree: SessionTree) -> None:
        """Add a token that the engine reported without moving to it; below a hidden node it is hidden too."""
        if token.node in tree.branches:
            return
        deletion = self.deleted.get(token.node) or self.deleted.get(token.parent)
        if deletion is None:
            tree.branches.add(token)
        else:
            self.deleted[token.node] = deletion
            deletion.tokens[token.node] = token

    def reveal(self, node: int, tree: SessionTree) -> None:
        """Show a node again that the engine moved to, and the hidden nodes of its path."""
        path: list[Token] = []
        while (deletion := self.deleted.get(node)) is not None:
            path.append(deletion.tokens[node])
            node = path[-1].parent
        for each in reversed(path):
            self._show(each, tree)

    # ---- one node ---------------------------------------------------------------------------

    def _hide(self, token: Token, deletion: Deletion, tree: SessionTree) -> None:
        node, parent = token.node, token.parent
        self.deleted[node] = deletion
        siblings = tree.children.get(parent, [])
        if node in siblings:  # false for a beam that was never stepped
            self.children.setdefault(parent, set()).add(node)
            siblings.remove(node)
            if not siblings:
                del tree.children[parent]

    def _show(self, token: Token, tree: SessionTree) -> None:
        deletion = self.deleted.pop(token.node)
        deletion.tokens.pop(token.node, None)
        tree.branches.add(token)
        if token.node in (hidden := self.children.get(token.parent, set())):
            hidden.remove(token.node)
            insort(tree.children.setdefault(token.parent, []), token.node)


def quoted_label(token: Item | Candidate) -> str:
    """A token quoted for a sentence; printable."""
    return quoted(token_label(token.text, token.raw))


def numbered(item: Item) -> str:
    """The name of a token by its number, as on every screen: steps and tokens of the prompt count from 1 separately."""
    if isinstance(item, Step):
        return f"step {item.index + 1:,}"
    return f"prompt token {item.position + 1:,}"


def place_name(item: Item) -> str:
    """The number of a token as in flags and tables: `12` for a step, `p5` for a token of the prompt."""
    return str(item.index + 1) if isinstance(item, Step) else f"p{item.position + 1}"


# ---- the tree -----------------------------------------------------------------------------------


class SessionTree(Struct):
    """The token tree of one session, built from its records."""

    nodes: dict[int, Item] = field(default_factory=dict)
    taken: int = 0
    """Number of nodes that are steps."""
    parent: dict[int, int] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=dict)
    """Children of a node, oldest first, without deleted ones."""
    followed: dict[int, int] = field(default_factory=dict)
    """The child visited last, by node, unless it is the newest one; it may be deleted."""
    left: dict[int, int] = field(default_factory=dict)
    """First nodes of paths that were left for another branch; the one left last has the largest number."""
    interventions: dict[int, tuple[Intervention, ...]] = field(default_factory=dict)
    """Interventions that a token was computed under, by its node, without nodes computed by the unmodified model."""
    settings: dict[int, Settings] = field(default_factory=dict)
    """Settings that each step was picked with, by its node, as far as they are known."""
    drafts: dict[int, str] = field(default_factory=dict)
    """Name of the draft, by a node that was taken in a round of speculative decoding."""
    branches: Branches = field(default_factory=Branches)
    """The tree folded to its branches, without deleted nodes."""
    marks: Marks = field(default_factory=Marks)
    prompts: set[int] = field(default_factory=set)
    """Nodes of the last tokens of prompts that begin at the root."""
    mixed: bool = False
    """True if a token of a prompt was also decoded, on a different path or before."""

    def siblings(self, node: int) -> list[int]:
        """A token and its siblings, oldest first."""
        return self.children.get(self.parent[node], [])

    def taken_by(self, node: int, token: int) -> int | None:
        """The oldest child of a node with a token id; None if no branch took that token there."""
        return next((child for child in self.children.get(node, ()) if self.nodes[child].id == token), None)

    def latest(self, node: int) -> int | None:
        """The child of a node that was visited last, or the newest if that one is deleted; None without children."""
        children, followed = self.children.get(node, ()), self.followed.get(node)
        return followed if followed in children else children[-1] if children else None

    def follow(self, parent: int, child: int) -> None:
        """Record that a child of a node was visited last."""
        newest = max([self.children[parent][-1], *self.marks.children.get(parent, ())])
        if newest == child:  # the usual case needs no entry, which saves memory in long sessions
            self.followed.pop(parent, None)
        else:
            self.followed[parent] = child

    def leaves(self) -> list[int]:
        """The ends of all branches, without deleted ones; at each fork those of the oldest branch first."""
        ends, waiting = [], self.children.get(ROOT, [])[::-1]
        while waiting:
            node = waiting.pop()
            children = self.children.get(node, [])
            waiting += children[::-1]
            ends += [] if children else [node]
        return ends

    def oldest_end(self, node: int) -> int:
        """The leaf below a node reached through the oldest children; visits and new branches don't change it."""
        while children := self.children.get(node):
            node = children[0]
        return node

    def leaf(self, node: int) -> int:
        """The leaf below a node reached through the children visited last."""
        while (child := self.latest(node)) is not None:
            node = child
        return node

    def under(self, item: Item) -> tuple[Intervention, ...] | None:
        """The interventions that a token was computed under; empty if they weren't recorded, None if the model was
        unmodified."""
        unrecorded = () if isinstance(item, Step) and item.origin == "intervened" else None
        return self.interventions.get(item.node, unrecorded)

    def drafted(self, round: DraftRound) -> None:
        """Record which draft the steps of a round came from."""
        node = round.end
        for _ in range(round.taken):
            if node == round.node or node not in self.parent:
                break
            self.drafts[node], node = round.settings.name, self.parent[node]

    def path(self, node: int) -> list[Item]:
        """The tokens from the root to a node; a decoded token that lies in a prompt of the path is a `PromptToken`."""
        path: list[Item] = []
        while node != ROOT:
            path.append(self.nodes[node])
            node = self.parent[node]
        path.reverse()
        ends = [slot + 1 for slot, item in enumerate(path) if item.node in self.prompts] if self.mixed else []
        for end in reversed(ends):
            steps = [item for item in path[end:] if isinstance(item, Step)]
            # if the index differs, the last step was decoded under a shorter prompt
            if not steps or steps[-1].index == len(steps) - 1:
                path[:end] = map(_of_prompt, path[:end])
                break
        return path

    def completion(self, branch: Branch) -> Sums:
        """The sums of the completion, from its first token to the end of a branch; costs the branches above it."""
        total, node = self.branches.completion(branch), branch.last
        if self.mixed:
            while node not in self.nodes:  # a beam that was never stepped
                node = self.branches[node].parent
            decoded = (item.node for item in self.path(node) if isinstance(item, PromptToken))
            over = (self.branches[each] for each in decoded if isinstance(self.nodes[each], Step))
            total.add(Sums().count(over), -1)
        return total

    def open(self, prompt: PromptOpened) -> int:
        """Add the tokens of a prompt.

        Returns:
            The node of its last token.
        """
        end = prompt.parent
        for item in prompt.tokens:
            known = self.nodes.get(item.node)
            self.mixed |= isinstance(known, Step)
            # a token that was stepped, or is part of an earlier prompt, already has readings
            self.add(item if known is None or known.logprob is None else known, end)
            end = item.node
        if prompt.parent == ROOT:
            self.prompts.add(end)
        return end

    def add(self, item: Item, parent: int) -> None:
        """Add a token that the session is at, or new readings of it; a deleted one is shown again."""
        node = item.node
        if self.marks.deleted:
            self.marks.reveal(parent, self)
            self.marks.reveal(node, self)
        if node not in self.nodes:
            self.parent[node] = parent
            if (children := self.children.get(parent)) is None:
                self.children[parent] = [node]  # a list made by append would over-allocate
            else:
                insort(children, node)
            if parent in self.interventions:
                self.interventions[node] = self.interventions[parent]
        known = self.nodes.get(node)
        self.mixed |= isinstance(known, PromptToken) and isinstance(item, Step)
        self.taken += isinstance(item, Step) - isinstance(known, Step)
        self.nodes[node] = item
        self.branches.add(token(item, parent))
        self.follow(self.parent[node], node)

    def add_readings(self, item: PromptToken) -> bool:
        """Add the readings of a prompt's token, unless it is a step, which already has more.

        Returns:
            Whether they were added.
        """
        if isinstance(self.nodes[item.node], Step):
            return False
        self.nodes[item.node] = item
        self.branches.add(token(item, self.parent[item.node]))
        return True

    def go(self, before: list[Item], path: list[Item]) -> None:
        """Switch to a different path: record which one was left, and that the new one's tokens were visited last."""
        if (parted := shared(before, path)) < len(before):
            self.left[before[parted].node] = max(self.left.values(), default=0) + 1
        for item in path:
            self.follow(self.parent[item.node], item.node)


def _of_prompt(item: Item) -> PromptToken:
    """A token as a `PromptToken`, with the readings of its step if it was decoded."""
    if isinstance(item, PromptToken):
        return item
    token = item.node, item.position, item.id, item.text, item.raw, item.special
    read, choice = (item.logprob, item.prob, item.rank), item.choice
    return PromptToken(*token, *read, choice.entropy_bits, choice.candidates, choice.others_prob)


def shared(one: Iterable[Item], other: Iterable[Item]) -> int:
    """Length of the common prefix of two paths of one tree."""
    return common_prefix((item.node for item in one), (item.node for item in other))


# ---- marks in words -----------------------------------------------------------------------------


def written(mark: Marked) -> str:
    """Marks on one line: `★ ending A ✎ why this one? ❝ watch the entropy`; `★ bookmarked` for a bookmark alone."""
    star = STAR if mark.name or mark.note or mark.caption else BOOKMARKED
    note = f"{NOTE} {visible(mark.note)}" if mark.note else ""
    caption = f"{CAPTION} {visible(mark.caption)}" if mark.caption else ""
    return " ".join(filter(None, (star * mark.bookmarked, visible(mark.name), note, caption)))


def signs(tree: SessionTree, node: int) -> str:
    """Signs of a token in the text and the steps: `★` bookmark, `✎` name or note, `❝` caption, `├` other branches in
    its place."""
    branches = BRANCHES if len(tree.children.get(tree.parent[node], ())) > 1 else ""
    mark = tree.marks.of.get(node)
    if mark is None:
        return branches
    noted = NOTE if mark.name or mark.note else ""
    return STAR * mark.bookmarked + noted + CAPTION * bool(mark.caption) + branches


def explained(tree: SessionTree, node: int) -> list[str]:
    """An explanation of each sign of a token, one per line."""
    mark = tree.marks.at(node)
    starred = "bookmarked" if mark.bookmarked else ""
    texts = ((STAR, starred), (NOTE, mark.name), (NOTE, mark.note), (CAPTION, mark.caption))
    lines = [f"{sign} {visible(text)}" for sign, text in texts if text]
    if (branches := len(tree.siblings(node))) > 1:
        lines.append(f"{BRANCHES} {branches_words(branches)}")
    return lines


def branches_words(count: int) -> str:
    """The sentence shown if several branches start at a token."""
    keys = f"{key_for('previous_branch')} and {bare_key_for('next_branch')}"
    return f"{count} branches start here: {keys} switch."
