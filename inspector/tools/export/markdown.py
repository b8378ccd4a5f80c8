"""A path as Markdown: a report that reads well on any forge and in any editor.

Foreign text is escaped, so that it stays text: no link, no image, no heading, no HTML comes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from engine.protocol import Step
from inspector.display import token_label, visible
from inspector.scales import METRIC, bits, count, milliseconds, percent, size
from inspector.state.session_tree import Item
from inspector.tools.export import figures
from inspector.tools.export.paths import Path, paths
from inspector.tools.export.recording import Recording
from inspector.tools.export.text import readable

SURPRISES = 10
"""How many of the least probable tokens are listed."""
_ALWAYS = re.compile(r"([\\`*_\[\]<>|~&$#@!])")
_SCHEME = re.compile(r"(?i)\b(www\.|[a-z][a-z0-9+.-]*:)(?=\S)")
_BEGINS = re.compile(r"^( *)([-+=]|\d+[.)](?= |$))")


def escaped(text: str) -> str:
    """One line of printable text as Markdown that shows it as it is."""
    text = _SCHEME.sub(lambda match: match[0][:-1] + "\\" + match[0][-1], _ALWAYS.sub(r"\\\1", text))
    text = _BEGINS.sub(lambda match: match[1] + match[2][:-1] + "\\" + match[2][-1], text)
    spaces = len(text) - len(text.lstrip(" "))
    return "\u00a0" * spaces + text[spaces:]


def report(recording: Recording) -> str:
    """The report.

    Args:
        recording: Its path is exported.
    """
    branches = paths(recording)
    parts = [
        [f"# {escaped(figures.title(recording))}"],
        _quoted("".join(item.text for item in recording.items)),
        [f"- **{escaped(each.sentence)}**" for each in recording.made],
        _figures(recording),
        _captions(recording, branches),
        _surprises(recording.items),
        _branches(branches),
        _steps(recording.items),
    ]
    if source := figures.source(recording):
        parts.append([f"*Recorded by {escaped(source)}*"])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _quoted(text: str) -> list[str]:
    """The text as a quotation; its line breaks stay."""
    lines = readable(text).replace("\t", "⇥").split("\n")
    return [f"> {escaped(line)}\\" if line and following else f"> {escaped(line)}"
            for line, following in zip(lines, [*lines[1:], ""], strict=True)]  # fmt: skip


def _figures(recording: Recording) -> list[str]:
    pairs = [
        *figures.model(recording),
        *figures.settings(recording),
        *figures.totals(recording.timeline, recording.items),
    ]
    return ["## Figures", "", *_table(("what", "value"), pairs)]


def _captions(recording: Recording, branches: Sequence[Path]) -> list[str]:
    """What was written onto the path, and onto the other branches, each with how that one goes on."""
    rows = [(*row, "") for row in _written(recording, recording.items)]
    seen = {item.node for item in recording.items}
    for branch in branches:
        own = [item for item in branch.items if item.node not in seen]
        rows += [(*row, branch.text) for row in _written(recording, own)]
        seen.update(item.node for item in own)
    if not rows:
        return []
    heading = ("step", "token", "what it shows", "on another branch")
    columns = len(heading) if any(row[-1] for row in rows) else len(heading) - 1
    table = _table(heading[:columns], [row[:columns] for row in rows])
    return ["## Captions and notes", "", *table]


def _written(recording: Recording, items: Iterable[Item]) -> Iterator[tuple[str, str, str]]:
    marks = recording.timeline.tree.marks
    for item in items:
        mark = marks.at(item.node)
        text = " · ".join(part for part in (mark.name, mark.caption, mark.note) if part)
        if text or mark.bookmarked:
            yield _place(item), _label(item), f"{visible(text)}{' ★' * mark.bookmarked}".strip()


def _surprises(items: Sequence[Item]) -> list[str]:
    steps = [
        item
        for item in items
        if isinstance(item, Step) and item.surprisal_bits >= METRIC["surprisal"].steps[0]
    ]
    surprising = sorted(steps, key=lambda step: -step.surprisal_bits)[:SURPRISES]
    if not surprising:
        return []
    table = [
        (
            _place(step),
            _label(step),
            percent(step.prob),
            bits(step.surprisal_bits),
            count(step.rank),
            _instead(step),
        )
        for step in surprising
    ]
    heading = ("step", "token", "probability", "bits", "rank", "likeliest")
    return ["## Surprises", "", *_table(heading, table, "rlrrrl")]


def _instead(step: Step) -> str:
    if not step.choice.candidates:
        return ""
    first = step.choice.candidates[0]
    return f"{token_label(first.text, first.raw)} {percent(first.prob)}"


def _branches(paths: Sequence[Path]) -> list[str]:
    if len(paths) < 2:
        return []
    table = [(path.title, str(path.fork), path.text, count(path.tokens), path.perplexity) for path in paths]
    heading = ("branch", "from step", "how it goes on", "tokens", "perplexity")
    return ["## Branches", "", *_table(heading, table, "lrlrr")]


def _steps(items: Sequence[Item]) -> list[str]:
    table = [_step(item) for item in items if isinstance(item, Step)]
    heading = ("step", "token", "probability", "sampler", "bits", "rank", "model entropy", "time", "KV")
    return ["## Steps", "", *_table(heading, table, "rlrrrrrrr")] if table else []


def _step(step: Step) -> Sequence[str]:
    return (
        _place(step), _label(step), percent(step.prob), percent(step.sampler_prob), bits(step.surprisal_bits),
        count(step.rank), bits(step.choice.entropy_bits), milliseconds(step.ms.total), size(step.kv.used_bytes),
    )  # fmt: skip


def _place(item: Item) -> str:
    return str(item.index + 1) if isinstance(item, Step) else "prompt"


def _label(item: Item) -> str:
    return token_label(item.text, item.raw, item.pending if isinstance(item, Step) else b"")


def _table(heading: Sequence[str], lines: Iterable[Sequence[str]], align: str = "") -> Iterator[str]:
    align = align or "l" * len(heading)
    yield f"| {' | '.join(heading)} |"
    yield f"|{'|'.join('---:' if side == 'r' else '---' for side in align)}|"
    for line in lines:
        yield f"| {' | '.join(escaped(cell) for cell in line)} |"
