"""A recording as compact JSON for the web page: columns of plain values, every text printable.

Probabilities are in millionths, so that most take few digits. Texts of candidates are stored once, in a table of words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.protocol import AttentionRead, Candidate, Distribution, PromptToken, Step
from inspector.display import hex_bytes, token_label, visible
from inspector.scales import KL_BITS, METRIC, others_prob
from inspector.state.branches import ROOT, made
from inspector.state.conditions import TextCondition, by_token
from inspector.state.inside import Looks
from inspector.state.session_tree import Item
from inspector.tools.export import figures
from inspector.tools.export.evidence import beside_column
from inspector.tools.export.markup import millionths, number
from inspector.tools.export.recording import Recording, TreePath, left_out, paths

Json = dict[str, Any]
CANDIDATES = 200_000
"""Candidates of all tokens together, at most: of a long session each token keeps fewer of them."""
FEWEST = 3
KL: Json = {"name": "KL", "steps": KL_BITS, "falling": False}
"""The colours of what a second model would make of the tokens."""


def data(recording: Recording) -> Json:
    """What the page shows.

    Args:
        recording: Its path comes first; the other paths of its tree follow it.
    """
    timeline = recording.timeline
    listed = paths(recording)
    rows = _rows(listed)
    places = places_of(rows)
    second = beside_column(recording, places)
    return {
        "title": figures.title(recording),
        "source": figures.source(recording),
        "model": list(figures.model(recording)),
        "settings": list(figures.settings(recording)),
        "left_out": left_out(timeline),
        "metrics": [*(_metric(name) for name in METRIC if name != "off"), *([KL] if second else [])],
        "second": second or None,
        "prefill": [[c.done, c.kv.used_bytes, c.kv.allocated_bytes] for c in timeline.prompts.chunks],
        "paths": [_path(recording, path, places) for path in listed],
        "chosen": -1 if recording.chosen is None else places.get(recording.chosen, -1),
        "marks": _marks(recording, places),
        "inside": looks(recording.timeline.of(Looks), places),
        **_Tokens(recording, places).columns(rows),
    }  # fmt: skip


def tree_rows(recording: Recording) -> list[Item]:
    """Every token of the page."""
    return _rows(paths(recording))


def places_of(rows: Iterable[Item]) -> dict[int, int]:
    """Row of each node."""
    return {item.node: place for place, item in enumerate(rows)}


def _rows(paths: Iterable[TreePath]) -> list[Item]:
    """Every token of some paths, parents before their children."""
    items = {item.node: item for path in paths for item in path.items}
    return list(items.values())


def _metric(name: str) -> Json:
    metric = METRIC[name]
    return {"name": name, "steps": metric.steps, "falling": metric.falling}


def _path(recording: Recording, path: TreePath, places: Mapping[int, int]) -> Json:
    return {
        "tip": places[path.items[-1].node] if path.items else -1,
        "title": path.title,
        "with": [each.sentence for each in path.conditions],
        "fork": path.fork,
        "text": path.text,
        "tokens": path.tokens,
        "perplexity": path.perplexity,
        "figures": list(figures.totals(recording.timeline, path.items)),
    }


def _marks(recording: Recording, places: Mapping[int, int]) -> list[list[Any]]:
    """Row, name, bookmarked, note, caption; in the order in which the nodes came to be."""
    return [
        [places[node], visible(mark.name), int(mark.bookmarked), visible(mark.note), visible(mark.caption)]
        for node, mark in sorted(recording.timeline.tree.marks.of.items())
        if node in places
    ]


class _Tokens:
    """Makes the columns of the tokens, and the tables that they refer to.

    Args:
        recording: Whose tokens they are.
        places: Row of each node.
    """

    def __init__(self, recording: Recording, places: Mapping[int, int]) -> None:
        self._timeline, self._places = recording.timeline, places
        self._words: dict[tuple[int, str], int] = {}
        self._made: dict[str, int] = {}
        self._conditions: dict[str, int] = {"": 0}
        self._stages: dict[str, int] = {}
        share = CANDIDATES // max(1, len(places))
        self._most = max(FEWEST, share)

    def columns(self, rows: Sequence[Item]) -> Json:
        """All of them."""
        steps = [item if isinstance(item, Step) else None for item in rows]
        columns = {
            "node": [item.node for item in rows],
            "parent": [self._places.get(self._parent(item), -1) for item in rows],
            "id": [item.id for item in rows],
            "text": [running(item) for item in rows],
            "label": [label(item) for item in rows],
            "special": [place for place, item in enumerate(rows) if item.special],
            "made": [self._made.setdefault(made(item), len(self._made)) for item in rows],
            "with": [self._with(each) for each in by_token(self._timeline.tree, rows)],
            "step": [step.index + 1 if step else 0 for step in steps],
            "prob": [millionths(item.prob) for item in rows],
            "drawn": [millionths(step.sampler_prob) if step else None for step in steps],
            "bits": [number(METRIC["surprisal"].value(item), 3) for item in rows],
            "entropy": [number(METRIC["entropy"].value(item), 3) for item in rows],
            "choice": [number(step.choice.sampler_entropy_bits, 3) if step else None for step in steps],
            "rank": [item.rank for item in rows],
            "ms": [_times(step) for step in steps],
            "kv": [[step.kv.used_bytes, step.kv.allocated_bytes, step.kv.offset] if step else None for step in steps],
            "draw": [_draw(step.choice) if step else None for step in steps],
            "candidates": [self._candidates(item) for item in rows],
        }  # fmt: skip
        return {"tokens": columns, "words": [[id, label] for id, label in self._words], "made": list(self._made),
                "conditions": list(self._conditions),
                "stages": list(self._stages)}  # fmt: skip

    def _with(self, conditions: Sequence[TextCondition]) -> int:
        """What a token was made with, in the table of those words."""
        words = " · ".join(each.short for each in conditions)
        return self._conditions.setdefault(words, len(self._conditions))

    def _parent(self, item: Item) -> int:
        return self._timeline.tree.parent.get(item.node, ROOT)

    def _candidates(self, item: Item) -> list[Any] | None:
        """Words, probabilities, the sampler's where they differ, cuts, others and their share, ranks unlike places."""
        recorded = item.candidates if isinstance(item, PromptToken) else item.choice.candidates
        if not recorded:
            return None
        kept = [c for place, c in enumerate(recorded) if place < self._most or c.id == item.id]
        others, mass = self._others(item, [c for c in recorded if c not in kept])
        probs = [millionths(c.prob) for c in kept]
        drawn = [millionths(c.sampler_prob) for c in kept if c.cut_by is None]
        return [
            [self._words.setdefault((c.id, token_label(c.text, c.raw)), len(self._words)) for c in kept],
            probs,
            0 if drawn == probs else drawn,
            self._cuts(kept),
            others,
            millionths(mass),
            [[place, c.rank] for place, c in enumerate(kept) if c.rank != place + 1],
        ]

    def _others(self, item: Item, left: Sequence[Candidate]) -> tuple[int, float]:
        """How many tokens are not among the candidates, and what they have together."""
        if isinstance(item, Step):
            count, mass = item.choice.others, item.choice.others_prob
        else:
            vocabulary = self._timeline.facts.vocabulary if self._timeline.facts else len(item.candidates)
            count = vocabulary - len(item.candidates)
            mass = others_prob(item)
        return count + len(left), mass + sum(c.prob for c in left)

    def _cuts(self, kept: Sequence[Candidate]) -> str:
        """A character a candidate: `.` where it is in, else the stage that cut it; empty where none was."""
        if all(c.cut_by is None for c in kept):
            return ""
        return "".join("." if c.cut_by is None else self._stage(c.cut_by) for c in kept)

    def _stage(self, name: str) -> str:
        place = self._stages.setdefault(visible(name), len(self._stages))
        return "0123456789abcdefghijklmnopqrstuvwxyz"[min(place, 35)]


def running(item: Item) -> str:
    """A token in the running text; line breaks are marked and made."""
    shown = "↵\n".join(visible(part) for part in item.text.split("\n"))
    pending = item.pending if isinstance(item, Step) else b""
    if not item.text:
        return hex_bytes(item.raw) if item.raw else "∅"
    return shown + (hex_bytes(pending) if pending else "")


def label(item: Item) -> str:
    """A token as a label, with the bytes that wait for their character."""
    return token_label(item.text, item.raw, item.pending if isinstance(item, Step) else b"")


def _draw(choice: Distribution) -> list[Any]:
    """Draw, where the token's share begins and ends, re-rolls, and what each stage left."""
    stages = [[visible(stage.name), stage.kept, millionths(stage.removed_mass)] for stage in choice.stages]
    span = [number(value, 5) for value in (choice.draw, choice.draw_from, choice.draw_to)]
    return [*span, choice.reroll, stages]


def _times(step: Step | None) -> list[Any] | None:
    if step is None:
        return None
    ms = step.ms
    values = [number(value, 2) for value in (ms.total, ms.forward, ms.sample, ms.inspect)]
    marks = [int(ms.pipelined), int(ms.cold)] if ms.cold else [1] if ms.pipelined else []
    return [*values, *marks]


LEAST = 0.004
"""Weights below are left out: no token's colour shows them."""


def looks(looks: Looks, places: Mapping[int, int]) -> list[list[Any]]:
    """Rows of the tokens that were looked at, each with its attention.

    Args:
        looks: Of the session.
        places: Row of each node.
    """
    return [[places[node], _attention(read)] for node, read in looks.attention.items() if node in places]


def _attention(read: AttentionRead) -> list[Any]:
    """For each head its layer and number, from 1, then pairs of a place in the path and a weight in per mille."""
    return [
        [layer.layer + 1, head + 1, *_weights(layer.over(head, read.tokens))]
        for layer in read.layers
        for head in range(layer.heads)
    ]


def _weights(row: tuple[float, ...]) -> list[int]:
    pairs = [(place, round(weight * 1000)) for place, weight in enumerate(row) if weight >= LEAST]
    return [number for pair in pairs for number in pair]
