"""Recorded rows of logits in their places: a replay that stands at a step has the rows of the steps before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.protocol import LogitsRow, ModelFacts, ModelVocabulary, Prefilled, PromptOpened, Step
from engine.trace.entry import Entry

_Place = tuple[int, int]
"""The number of a tree, and a node of it; -1 for its model's vocabulary."""
_VOCABULARY = -1


def placed(entries: Iterable[Entry]) -> list[Entry]:
    """The entries with each row after the first one that tells its node, and each vocabulary after its model.

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
            late = [rows.pop((tree, entry.value.node), None)]  # of a node that no other entry tells
        elif isinstance(entry.value, ModelVocabulary):
            late = []
        else:
            found.append(entry)
            late = [rows.pop((tree, node), None) for node in _told(entry.value)]
        found += [replace(row, at=entry.at) for row in late if row is not None]
    return found


def _told(value: object) -> tuple[int, ...]:
    """The nodes that an entry tells."""
    match value:
        case ModelFacts():
            return (_VOCABULARY,)
        case Prefilled():
            return tuple(token.node for token in value.tokens)
        case Step():
            return (value.node,)
    return ()
