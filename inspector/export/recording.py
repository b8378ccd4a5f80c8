"""A session to export: its timeline, its settings, the path through its tree, and the figures of these."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, field

from engine.errors import EngineError
from engine.protocol import PromptToken, Step
from engine.recording import RecordingReader
from engine.settings import FIELDS, MOST, LoadSettings, Settings
from engine.timing import tpot, warm
from inspector.display import truncate, visible
from inspector.documents.parts import Exported, ExportPart, exhibits_of
from inspector.recordings.recorder import UNFIT, unfit
from inspector.scales import (
    COLD,
    amount,
    bits,
    count,
    counted,
    milliseconds,
    perplexity,
    prompt_rate,
    rate,
    size,
)
from inspector.state.beams import BeamHistory
from inspector.state.branches import ROOT, made
from inspector.state.conditions import Made, draft, in_short, made_with
from inspector.state.session_tree import Item
from inspector.state.speculation import Speculation, verdict
from inspector.state.speculation import figures as speculation_figures
from inspector.state.timeline import Timeline


class Recording(Struct):
    """A session at one moment, and the path of it that is exported."""

    timeline: Timeline
    settings: Settings | None = None
    """Settings in force at the end of the session; None if unknown."""
    load: LoadSettings | None = None
    program: str = ""
    """Name and version of the program that recorded it."""
    created: str = ""
    """Time of the recording, as ISO 8601 in UTC."""
    items: list[Item] = field(default_factory=list)
    """The exported path, prompt first."""
    chosen: int | None = None
    """Node that is selected first; None if none was named."""
    parts: Sequence[ExportPart] = ()
    """Parts of the tools that are exported with it."""

    @property
    def made(self) -> list[Made]:
        """The conditions of the path, besides the model and its sampler."""
        return made_with(self.timeline.tree, self.items)

    @property
    def title(self) -> str:
        """The beginning of the text."""
        text = "".join(item.text for item in self.items[:200] if not item.special)
        text = visible(re.sub(r"\s*\n\s*", " ", text)).strip()
        short = truncate(text, _TITLE)
        whole = short == text or " " not in short
        return (short if whole else short.rpartition(" ")[0] + " …") or "Nothing yet"

    @property
    def heading(self) -> str:
        """The beginning of the text, and its conditions; the title of a picture."""
        return " · ".join(filter(None, (self.title, in_short(self.made))))

    @property
    def source(self) -> str:
        """The program that recorded it, and when; empty if that isn't known."""
        when = self.created.partition("T")
        day = f"{when[0]} {when[2][:5]} UTC" if when[2] else when[0]
        return " · ".join(visible(part) for part in (self.program, day) if part)

    @property
    def tip(self) -> int:
        """Node of the path's last token."""
        return self.items[-1].node if self.items else ROOT


def read(path: Path | str) -> Recording:
    """The session in a trace, with the path that is current at its end.

    Args:
        path: The file; one that is still being written is read as far as it goes.

    Raises:
        RecordingError: It can't be read.
        EngineError: There is no prompt in it.
    """
    recording = Recording(Timeline(recorded=True))
    with RecordingReader(path, torn_ok=True) as reader:
        recording.program, recording.created = reader.header.program, reader.header.created
        for entry in reader:
            try:
                match entry.value:
                    case Settings() as settings:
                        recording.settings = settings
                    case LoadSettings() as load:
                        recording.load = load
                    case record:
                        recording.timeline.apply(record)
                        if isinstance(record, Step) and recording.settings is not None:
                            recording.timeline.tree.settings[record.node] = recording.settings
            except UNFIT as error:
                raise unfit(reader.entries, entry.value, error) from error
    return line(recording)


def snapshot(timeline: Timeline, settings: Settings, load: LoadSettings, program: str) -> Recording:
    """A copy of a running session, which the session doesn't change later, whichever thread reads the copy.

    Args:
        timeline: The session's timeline; its current path is exported, with its selected token chosen.
        settings: Settings in force.
        load: Settings of its model.
        program: Name and version of this program.

    Raises:
        EngineError: There is no prompt in it.
    """
    held = copy.copy(timeline)
    tree, marks = copy.copy(timeline.tree), copy.copy(timeline.tree.marks)
    for name in tree.__struct_fields__:
        if isinstance(own := getattr(tree, name), dict):
            setattr(tree, name, own.copy())
    tree.children = {node: list(nodes) for node, nodes in tree.children.items()}
    marks.of, tree.marks, held.tree = dict(marks.of), marks, tree
    held.states = copy.deepcopy(timeline.states)
    held.finished, held.prompts = dict(timeline.finished), timeline.prompts.snapshot()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    recording = line(Recording(held, settings, load, program, now))
    recording.chosen = timeline.selected.node if timeline.selected is not None else None
    return recording


def line(recording: Recording, to: str | int | None = None, on: bool = True) -> Recording:
    """Choose the path that is exported.

    Args:
        recording: Its `items` and `chosen` are set.
        to: A node, or the name of a branch. None for the current path.
        on: Whether the path continues from there, always along the oldest branch; otherwise it ends there.

    Returns:
        The recording.

    Raises:
        EngineError: There is nothing to export, or no such node.
    """
    timeline = recording.timeline
    if timeline.prompts.opened is None:
        raise EngineError(
            "There is nothing to export: no prompt was given yet.", "Give one, and take some steps."
        )
    if to is None:
        recording.items = list(timeline.items)
    else:
        recording.chosen = _node(timeline, to)
        tree, node = timeline.tree, recording.chosen
        recording.items = tree.path(tree.oldest_end(node) if on else node)
    return recording


def _node(timeline: Timeline, to: str | int) -> int:
    """The node with a number or a name.

    Raises:
        EngineError: There is no such node.
    """
    marks = reversed(timeline.tree.marks.of.items())
    named: dict[str | int, int] = {mark.name: node for node, mark in marks if mark.name}
    if (node := named.get(to)) is None:
        try:
            node = int(to)
        except ValueError:
            hint = f"Its names: {', '.join(sorted(map(str, named)))}." if named else "Give a node's number."
            raise EngineError(f"No branch is named {to!r}.", hint) from None
    if node not in timeline.tree.nodes:
        beam = f"Node {node} is of a beam that was never stepped on."
        what = beam if node in timeline.of(BeamHistory).nodes else f"There is no node {node}."
        hint = "The table of --to csv has the nodes of a path; leave --node out for the current one."
        raise EngineError(what, hint)
    return node


# ---- the paths of a session's tree -----------------------------------------------------------

TREE = 5000
"""Most tokens of a tree that is exported with all its branches; of a larger one, only the current path is."""
_TEXT = 60
"""Most cells of the text of a branch."""


class TreePath(Struct, frozen=True):
    """One way through the tree, from the root to a leaf. Texts are printable."""

    items: list[Item]
    title: str
    """Title in a list of branches: its name, or how it begins, and the conditions of its tokens."""
    conditions: list[Made]
    """The conditions of its tokens, besides the model and its sampler."""
    fork: int
    """The step at which it leaves the paths before it, from 1; 0 if it begins with the prompt."""
    text: str
    """The beginning of its text from there on."""
    tokens: int
    """Number of its steps from there on, as the tree counts them."""
    perplexity: str
    """Perplexity of these steps; empty if it isn't known."""


def paths(recording: Recording) -> list[TreePath]:
    """All paths that were stepped and are not deleted: the exported one first, then by age. See `TREE`."""
    timeline, current = recording.timeline, recording.items
    ends = [] if left_out(timeline) else timeline.tree.leaves()
    others = [timeline.tree.path(node) for node in ends if not current or node != current[-1].node]
    met = {item.node for item in current}
    listed = [_path(recording, current, None)]
    for items in others:
        own = next((place for place, item in enumerate(items) if item.node not in met), len(items) - 1)
        met.update(item.node for item in items)
        listed.append(_path(recording, items, own))
    return listed


def left_out(timeline: Timeline) -> bool:
    """True if branches are left out, because the tree is too large."""
    forks = any(len(nodes) > 1 for nodes in timeline.tree.children.values())
    return len(timeline.tree.nodes) > TREE and forks


def _path(recording: Recording, items: list[Item], own: int | None) -> TreePath:
    """A path, with the place of the first token that no path before it has; None for the exported path."""
    tree = recording.timeline.tree
    begins = (
        next((place for place, item in enumerate(items) if isinstance(item, Step)), 0) if own is None else own
    )
    fork = first.index + 1 if items and isinstance(first := items[own or 0], Step) else ROOT
    names = (tree.marks.at(item.node).name for item in reversed(items[begins:]))
    how = "as it stands" if own is None else f"{made(items[own])} at step {fork}"
    conditions = made_with(tree, items)
    steps = [item for item in items[begins:] if isinstance(item, Step)]
    text = visible("".join(item.text for item in items[begins : begins + _TEXT])).strip(" ")
    return TreePath(
        items,
        " · ".join(filter(None, (visible(next(filter(None, names), "")) or how, in_short(conditions)))),
        conditions,
        fork,
        truncate(text, _TEXT),
        len(steps),
        _perplexity([step.logprob for step in steps]),
    )


def _perplexity(logprobs: Sequence[float]) -> str:
    """The perplexity of tokens, without those of probability 0; empty if none is left."""
    known = list(filter(math.isfinite, logprobs))
    return perplexity(math.exp(min(700.0, -sum(known) / len(known)))) if known else ""


def viewed(timeline: Timeline, parts: Iterable[ExportPart]) -> list[str]:
    """Names of the parts that have something to export of the current path.

    Args:
        timeline: The session's timeline.
        parts: The parts of all tools.

    Raises:
        EngineError: There is no text yet.
    """
    of = exported(line(Recording(timeline)))
    return [part.name for part in parts if any(exhibits_of([part], of))]


def exported(recording: Recording) -> Exported:
    """The session as the parts see it, with the row of each exported token."""
    places = {item.node: place for place, item in enumerate(rows_of(paths(recording)))}
    return Exported(recording.timeline, recording.items, places)


def rows_of(paths: Iterable[TreePath]) -> list[Item]:
    """Every token of some paths once, parents before their children, from the first path that has it."""
    items: dict[int, Item] = {}
    for item in (item for path in paths for item in path.items):
        items.setdefault(item.node, item)
    return list(items.values())


Figure = tuple[str, str]
"""A name and a value."""
_TITLE = 72
"""Most cells of a title."""


def model_figures(recording: Recording) -> Iterator[Figure]:
    """The facts of the model and how it was loaded. Its directory is private, so it is left out."""
    facts, load = recording.timeline.facts, recording.load or LoadSettings()
    if facts is None:
        return
    yield "model", visible(facts.name)
    yield "family", f"{visible(facts.family)}, {facts.layers} layers"
    yield "parameters", amount(facts.parameters)
    held = f" ({facts.stored} in its files)" if facts.stored else ""
    yield "weights", f"{size(facts.weight_bytes)}, {visible((facts.quantization or facts.dtype) + held)}"
    yield "vocabulary", f"{count(facts.vocabulary)} tokens"
    if facts.context_window is not None:
        yield "context window", f"{count(facts.context_window)} tokens"
    if facts.kv_bytes_per_token is not None:
        yield "KV of a token", size(facts.kv_bytes_per_token)
    if load.adapter_path:
        yield "adapter", visible(load.adapter_path.rstrip("/").rpartition("/")[2])
    if load.kv_bits is not None:
        yield "KV cache", f"{load.kv_bits} bits from token {count(load.quantized_kv_start)} on"
    if load.max_kv_size is not None:
        yield "KV cache", f"{count(load.max_kv_size)} tokens at most; the oldest are dropped"
    if load.no_kv_cache:
        yield "KV cache", "off"
    yield "computed on", visible(facts.backend) + (f", by {load.ranks} processes" if load.ranks > 1 else "")
    for note in facts.notes:
        yield "note", visible(note)


def settings_figures(recording: Recording) -> Iterator[Figure]:
    """The sampling settings at the path's end that differ from the defaults, and always temperature and seed. The
    limit of tokens is left out if there is none, as in a session of Python."""
    default = Settings()
    chosen = recording.timeline.tree.settings.get(recording.tip, recording.settings)
    if chosen is None:
        return
    for each in FIELDS:
        value = getattr(chosen, each.name)
        unset = (getattr(default, each.name), MOST if each.name == "max_tokens" else None)
        if each.name not in ("temp", "seed") and value in unset:
            continue
        for element in value if each.kind == "texts" else (value,):
            shown = element if each.kind == "texts" else each.format(element)
            yield each.label, visible(shown) + (" (greedy)" if each.name == "temp" and not value else "")


def totals(timeline: Timeline, items: Sequence[Item]) -> Iterator[Figure]:
    """The conditions of a path, and its figures: tokens, perplexity, times, KV cache, memory."""
    yield from (each.figure for each in made_with(timeline.tree, items))
    steps = [item for item in items if isinstance(item, Step)]
    prefilled = timeline.prompts.prefilled
    speed = prompt_rate(prefilled.prompt_tps) if prefilled is not None else ""
    yield "prompt", counted(len(items) - len(steps), "token") + (f", {speed}" if speed else "")
    yield from _worth("prompt ", [item for item in items if isinstance(item, PromptToken)])
    yield "completion", counted(len(steps), "token")
    if (finish := timeline.finished.get(items[-1].node if items else ROOT)) is not None:
        yield "finished", finish.reason + (f": {visible(finish.detail)}" if finish.detail else "")
    yield from _worth("", steps)
    if prefilled is not None:
        yield "first token", milliseconds(prefilled.ttft_ms) + (f", {COLD}" if prefilled.cold else "")
    if (times := tpot(warm(step.ms for step in steps))) is not None:
        spread = f"p50 {milliseconds(times.p50)}, p95 {milliseconds(times.p95)}"
        overlap = ", pipelined" if any(step.ms.pipelined for step in steps) else ""
        cold = next((step.ms.total for step in steps if step.ms.cold), None)
        first = f"; not counted: the first, {milliseconds(cold)}, {COLD}" if cold else ""
        yield "each token", f"{milliseconds(times.mean)} ({spread}), {rate(times.tps)}{overlap}{first}"
    yield from _speculation(timeline, items)
    if steps:
        kv = steps[-1].kv
        held = f"{counted(kv.offset, 'token')}, {size(kv.used_bytes)} of {size(kv.allocated_bytes)}"
        ran = f"off: the last pass ran {count(kv.passed_tokens)} tokens"
        yield "KV cache", ran if kv.passed_tokens else held
        yield "memory", f"{size(max(step.memory.peak_bytes for step in steps))} at its peak"


def _speculation(timeline: Timeline, items: Sequence[Item]) -> Iterator[Figure]:
    """The figures of speculative decoding, if the path has the end of its rounds."""
    rounds = timeline.of(Speculation).rounds
    if not rounds or all(item.node != rounds[-1].end for item in items):
        return
    last, totals = rounds[-1], timeline.of(Speculation).totals
    yield (
        "speculation",
        f"{draft(last.settings.name).short}, {last.settings.num_draft_tokens} tokens a round",
    )
    yield from speculation_figures(totals)
    if compared := verdict(totals):
        yield "speed", compared


def _worth(what: str, items: Sequence[Item]) -> Iterator[Figure]:
    logprobs = [item.logprob for item in items if item.logprob is not None]
    known = list(filter(math.isfinite, logprobs))
    if known:
        barred = len(logprobs) - len(known)
        without = f" ({barred} of no probability left out)" if barred else ""
        yield f"{what}perplexity", _perplexity(known)
        yield f"{what}surprisal", f"{bits(-sum(known) / len(known) / math.log(2))} bits/token{without}"
