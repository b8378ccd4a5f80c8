"""The lines of a trace: the header or the entry that each is, its bytes with their checksum, and the nodes it names.

The end of a line, its parts and candidates, need not be decoded before it is shown.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.frozen import frozen
from engine.protocol import (
    Beam,
    BeamEnded,
    BeamOpened,
    BeamStep,
    Hypothesis,
    LogitsRow,
    ModelFacts,
    ModelVocabulary,
    Moved,
    PrefillChunk,
    Prefilled,
    PromptOpened,
    PromptReadings,
    PromptToken,
    Step,
)
from engine.trace.schema import Kept
from engine.trace.values import Misfit, brief, parse

MAGIC = "mlx-inspector-trace"
END = "mlx-inspector-trace-end"
"""Key of the last line of a complete file, with the number of lines before it."""
VERSION = 2
Fields = Mapping[str, Sequence[str]]
"""The fields of each class, in the order of the values in a row."""


@frozen
class Header:
    """The first line of a trace, and of each part that was appended by another run of the program."""

    program: str
    """The program that wrote it, with its version."""
    created: str
    """When, as ISO 8601 in UTC."""
    fields: Fields
    ends: bool = False
    """True if a last line follows, so that a file that is cut short can be detected. A journal has none."""


@frozen
class Unknown:
    """A line of a kind that this version doesn't know, kept unchanged."""

    kind: str
    content: Mapping[str, Any]
    """The line's JSON, without time and checksum."""
    fields: Fields
    """Those of the header before it."""


@frozen
class Entry:
    """One line: what happened, and when."""

    value: Kept | Unknown
    at: float = 0.0
    """Seconds since the session began."""
    more: tuple[tuple[object, Mapping[str, Any]], ...] = ()
    """Fields that this version doesn't know, with the object inside `value` that has them (None for the line itself):
    saving writes them back."""


# ---- bytes ------------------------------------------------------------------------------------

_CRC = b',"crc":"'


def sealed(data: bytes) -> bytes:
    """A line with its checksum.

    Args:
        data: A JSON object without its last brace.
    """
    return b'%b,"crc":"%08x"}\n' % (data, zlib.crc32(data))


def unsealed(line: bytes) -> tuple[bytes, bool]:
    """A line without its checksum and last brace, and whether it had a checksum.

    Raises:
        Misfit: The checksum differs, or the last brace is missing.
    """
    line = line.rstrip(b"\r\n")
    if not line.endswith(b"}"):
        raise Misfit("is not JSON: it has no closing brace")
    if line[-18:-10] != _CRC:
        return line[:-1], False
    if line[-10:] != b'%08x"}' % zlib.crc32(line[:-18]):
        raise Misfit("was damaged: its checksum differs")
    return line[:-18], True


def split(content: bytes) -> tuple[bytes, bytes, bytes]:
    """A line without its end, its parts and its candidates: JSON, the first without its last brace, each empty if none.

    Args:
        content: A line, as `unsealed` gave it.
    """
    before, _, candidates = content.partition(b',"candidates":')
    head, _, parts = before.partition(b',"parts":')
    return head, parts, candidates


def whole(content: bytes) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        Misfit: It isn't one.
    """
    value = parse(content + b"}")
    if type(value) is not dict:
        raise Misfit(f"must be an object, not {brief(value)}")
    return value


# ---- nodes: a step needs its parent, a move its target, a beam what it grew from ---------------

ROOT = 0


class KnownNodes:
    """The nodes of the lines so far, of the last tree."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {ROOT: ROOT}
        self._prompt: dict[int, int] = {}
        """Position of each token of the last prompt, by node."""
        self._search: KnownSearch | None = None

    def check(self, value: object) -> None:
        """Check one record, and add its nodes.

        Raises:
            Misfit: It refers to a node that no earlier line has.
        """
        match value:
            case Step():
                self._step(value)
            case Moved() if value.node not in self._parents:
                raise Misfit(f"moves to node {value.node}, which no line before it has")
            case PromptOpened():
                self._open(value)
            case PrefillChunk():
                self._same(value.echo)
            case Prefilled():
                self._same(value.tokens)
            case PromptReadings():  # of an earlier prompt of the tree, too
                self._known(value.tokens)
            case BeamOpened():
                if value.node not in self._parents:
                    raise Misfit(f"begins beams at node {value.node}, which no line before it has")
                self._search = KnownSearch(value.node, self._parents)
            case BeamStep() | BeamEnded():
                if self._search is None:
                    raise Misfit("is of a beam search that no line before it begins")
                self._search.check(value)

    def _open(self, opened: PromptOpened) -> None:
        if opened.new_tree:
            self._parents = {ROOT: ROOT}
        if opened.parent not in self._parents:
            raise Misfit(f"has a prompt after node {opened.parent}, which no line before it has")
        self._search, self._prompt = None, {token.node: token.position for token in opened.tokens}
        before, position = opened.parent, self._depth(opened.parent)
        for token in opened.tokens:
            if token.position != position:
                raise Misfit(f"has the prompt's tokens out of order, at node {token.node}")
            _add(self._parents, token.node, before)
            before, position = token.node, position + 1

    def _depth(self, node: int) -> int:
        depth = 0
        while node != ROOT:
            node, depth = self._parents[node], depth + 1
        return depth

    def _same(self, tokens: tuple[PromptToken, ...]) -> None:
        for token in tokens:
            if self._prompt.get(token.node) != token.position:
                raise Misfit(f"has a token of the prompt that the prompt hasn't, at node {token.node}")

    def _known(self, tokens: tuple[PromptToken, ...]) -> None:
        for token in tokens:
            if token.node not in self._parents:
                raise Misfit(f"has a prompt's token that no line before it has, at node {token.node}")

    def _step(self, step: Step) -> None:
        if step.parent not in self._parents:
            raise Misfit(f"stands on node {step.parent}, which no line before it has")
        _add(self._parents, step.node, step.parent)


class KnownSearch:
    """The nodes of one beam search.

    Args:
        start: Node at which it begins.
        parents: Of all nodes of the tree; those of the search are added.
    """

    def __init__(self, start: int, parents: dict[int, int]) -> None:
        self._start, self._parents = start, parents
        self._children: dict[int, dict[int, int]] = {start: {}}
        """By node of the search: the nodes that grew from it, by token id."""
        self._step, self._over = 0, False

    def check(self, value: BeamStep | BeamEnded) -> None:
        """Check one record, and add its nodes.

        Raises:
            Misfit: It doesn't follow the one before it, or refers to a node that the search didn't reach.
        """
        if self._over or (isinstance(value, BeamStep) and value.step != self._step + 1):
            raise Misfit("doesn't fit the lines before it on its beam search")
        if isinstance(value, BeamStep):
            self._step = value.step
            for beam in (*value.live, *([value.greedy] if value.greedy else ())):
                self._grow(beam)
            self._finish(value.finished)
            self._known(beam.node for beam in value.pruned)
        else:
            self._over = True
            self._finish(value.ranking)
            self._known([*(beam.node for beam in value.left), value.greedy.node])

    def _grow(self, beam: Beam) -> None:
        self._known([beam.parent], start=True)
        self._add(beam.node, beam.parent, beam.id)

    def _finish(self, hypotheses: Iterable[Hypothesis]) -> None:
        for hypothesis in hypotheses:
            node: int | None = self._start
            for id in hypothesis.ids[:-1]:
                node = self._children[node].get(id) if node is not None else None
            if node is None or not hypothesis.ids:
                raise Misfit(f"has a hypothesis that no beam before it leads to, at node {hypothesis.node}")
            self._add(hypothesis.node, node, hypothesis.ids[-1])

    def _add(self, node: int, parent: int, id: int) -> None:
        _add(self._parents, node, parent)
        self._children.setdefault(node, {})
        if self._children[parent].setdefault(id, node) != node:
            raise Misfit(f"has two nodes of one token, {self._children[parent][id]} and {node}")

    def _known(self, nodes: Iterable[int], start: bool = False) -> None:
        for node in nodes:
            if node not in self._children or (node == self._start and not start):
                raise Misfit(f"names node {node}, which no beam before it reached")


def _add(parents: dict[int, int], node: int, parent: int) -> None:
    """Add a node to a tree.

    Raises:
        Misfit: It has another parent there, or comes before its parent.
    """
    if node <= parent or parents.setdefault(node, parent) != parent:
        raise Misfit(f"has node {node} after node {parent}, where it can't be")


# ---- rows of logits, put behind the lines that name their nodes --------------------------------

_Place = tuple[int, int]
"""The number of a tree, and a node of it; -1 for its model's vocabulary."""
_VOCABULARY = -1


def placed(entries: Iterable[Entry]) -> list[Entry]:
    """The entries with each row after the first one that brings its node, and each vocabulary after its model.

    Args:
        entries: In their order; rows that were asked for afterwards come late in it, and some perhaps twice.
    """
    numbered, tree = [], 0
    for entry in entries:
        tree += isinstance(entry.value, ModelFacts) or (
            isinstance(entry.value, PromptOpened) and entry.value.new_tree
        )
        numbered.append((tree, entry))
    rows: dict[_Place, Entry] = {}
    models = [tree for tree, entry in numbered if isinstance(entry.value, ModelFacts)]
    for tree, entry in numbered:
        if isinstance(entry.value, LogitsRow):
            rows.setdefault((tree, entry.value.node), entry)
        elif isinstance(entry.value, ModelVocabulary):
            model = max((begun for begun in models if begun <= tree), default=0)
            rows.setdefault((model, _VOCABULARY), entry)
    found: list[Entry] = []
    for tree, entry in numbered:
        if isinstance(entry.value, LogitsRow):
            late = [rows.pop((tree, entry.value.node), None)]  # of a node that no other entry has
        elif isinstance(entry.value, ModelVocabulary):
            late = []
        else:
            found.append(entry)
            late = [rows.pop((tree, node), None) for node in _nodes_of(entry.value)]
        found += [replace(row, at=entry.at) for row in late if row is not None]
    return found


def _nodes_of(value: object) -> tuple[int, ...]:
    """The nodes that an entry brings."""
    match value:
        case ModelFacts():
            return (_VOCABULARY,)
        case Prefilled():
            return tuple(token.node for token in value.tokens)
        case Step():
            return (value.node,)
    return ()
