"""What a recording is exported as: plain text, a CSV table, a Markdown report, a web page, a picture of the screen.

Foreign text stays text in each: what a terminal would obey is made visible; a cell of CSV is guarded against being run
as a formula, and columns of numbers have numbers alone; no link, image, heading or HTML comes of Markdown. The web page
needs no network and no other file: its script and its style are named by their hashes in a content security policy that
allows nothing else, and what is shown is JSON in an element that no browser runs.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape

from engine.frozen import frozen
from engine.protocol import Distribution, PromptToken, Step
from inspector.display import guarded, hex_bytes, visible
from inspector.scales import METRIC, bits, count, milliseconds, percent, size
from inspector.state.branches import ROOT, made
from inspector.state.conditions import Made, by_token
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.export import figures, markup
from inspector.tools.export.data import data, label, places_of, tree_rows
from inspector.tools.export.evidence import beside_section, evidence, likeliest
from inspector.tools.export.markup import element, written
from inspector.tools.export.recording import Recording, TreePath, paths


def plain_text(recording: Recording) -> str:
    """Prompt and completion. Lines and tabs stay; what a terminal would obey, or not show, is made visible.

    Args:
        recording: Its path is exported.
    """
    text = readable("".join(item.text for item in recording.items))
    pending = getattr(recording.items[-1], "pending", b"") if recording.items else b""
    text += hex_bytes(pending) if pending else ""
    text += "" if text.endswith("\n") else "\n"
    made = "".join(f"[{each.sentence}]\n" for each in recording.made)
    return f"{text}\n{made}" if made else text


def readable(text: str) -> str:
    """Several lines of foreign text, printable; a carriage return before a line's end is the line's end."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(visible(part) for part in line.split("\t")) for line in lines)


# ---- a path as CSV: one token a row, for a spreadsheet or a script ---------------------------


Cell = str | int | float | None
COLUMNS = (
    "step", "position", "node", "parent", "id", "text", "bytes", "special", "made",
    "prob", "sampler_prob", "logprob", "rank", "surprisal_bits", "entropy_bits", "sampler_entropy_bits",
    "draw", "draw_from", "draw_to", "reroll", "first_id", "first_text", "first_prob",
    "ms", "forward_ms", "sample_ms", "inspect_ms", "pipelined",
    "kv_tokens", "kv_used_bytes", "kv_allocated_bytes", "memory_active_bytes", "memory_peak_bytes",
    "name", "bookmarked", "note", "caption", "cold", "made_with",
)  # fmt: skip


def csv_table(recording: Recording) -> str:
    """The table, with a line of names: `step` counts from 1 and is empty in the prompt, `bytes` are hexadecimal.

    Args:
        recording: Its path is exported.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    parent, timeline = ROOT, recording.timeline
    for item, found in zip(recording.items, by_token(timeline.tree, recording.items), strict=True):
        cells = (*_csv_row(timeline, item, parent), guarded("; ".join(each.short for each in found)))
        writer.writerow([_cell(cell) for cell in cells])
        parent = item.node
    return out.getvalue()


def _cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(int(cell))
    if isinstance(cell, float):
        return (
            repr(cell) if math.isfinite(cell) else "" if math.isnan(cell) else ("-inf" if cell < 0 else "inf")
        )
    return str(cell)


def _csv_row(timeline: Timeline, item: Item, parent: int) -> Sequence[Cell]:
    step = item if isinstance(item, Step) else None
    mark = timeline.tree.marks.at(item.node)
    return (
        step.index + 1 if step else None, item.position, item.node, parent, item.id, guarded(item.text),
        item.raw.hex(), item.special, made(item),
        item.prob, step.sampler_prob if step else None, item.logprob, item.rank,
        METRIC["surprisal"].value(item), METRIC["entropy"].value(item),
        step.choice.sampler_entropy_bits if step else None, *_draw_cells(step.choice if step else None),
        *_first_cells(item), *_cost_cells(step),
        guarded(mark.name), mark.bookmarked, guarded(mark.note), guarded(mark.caption),
        step.ms.cold if step else None,
    )  # fmt: skip


def _draw_cells(choice: Distribution | None) -> Sequence[Cell]:
    if choice is None:
        return (None,) * 4
    return choice.draw, choice.draw_from, choice.draw_to, choice.reroll


def _first_cells(item: Item) -> Sequence[Cell]:
    """The most probable candidate."""
    candidates = item.candidates if isinstance(item, PromptToken) else item.choice.candidates
    if not candidates:
        return (None,) * 3
    return candidates[0].id, guarded(candidates[0].text), candidates[0].prob


def _cost_cells(step: Step | None) -> Sequence[Cell]:
    if step is None:
        return (None,) * 10
    ms, kv, memory = step.ms, step.kv, step.memory
    return (
        ms.total, ms.forward, ms.sample, ms.inspect, ms.pipelined, kv.offset, kv.used_bytes, kv.allocated_bytes,
        memory.active_bytes, memory.peak_bytes,
    )  # fmt: skip


# ---- a path as Markdown ----------------------------------------------------------------------

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


def markdown_report(recording: Recording) -> str:
    """The report.

    Args:
        recording: Its path is exported.
    """
    branches = paths(recording)
    parts = [
        [f"# {escaped(figures.title(recording))}"],
        _quoted("".join(item.text for item in recording.items)),
        [f"- **{escaped(each.sentence)}**" for each in recording.made],
        _report_figures(recording),
        _captions(recording, branches),
        _surprises(recording.items),
        _branches(branches),
        _step_rows(recording.items),
    ]
    if source := figures.source(recording):
        parts.append([f"*Recorded by {escaped(source)}*"])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _quoted(text: str) -> list[str]:
    """The text as a quotation; its line breaks stay."""
    lines = readable(text).replace("\t", "⇥").split("\n")
    return [f"> {escaped(line)}\\" if line and following else f"> {escaped(line)}"
            for line, following in zip(lines, [*lines[1:], ""], strict=True)]  # fmt: skip


def _report_figures(recording: Recording) -> list[str]:
    totals = figures.totals(recording.timeline, recording.items)
    pairs = (*figures.model(recording), *figures.settings(recording), *totals)
    return ["## Figures", "", *_markdown_table(("what", "value"), pairs)]


def _captions(recording: Recording, branches: Sequence[TreePath]) -> list[str]:
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
    table = _markdown_table(heading[:columns], [row[:columns] for row in rows])
    return ["## Captions and notes", "", *table]


def _written(recording: Recording, items: Iterable[Item]) -> Iterator[tuple[str, str, str]]:
    marks = recording.timeline.tree.marks
    for item in items:
        mark = marks.at(item.node)
        text = " · ".join(part for part in (mark.name, mark.caption, mark.note) if part)
        if text or mark.bookmarked:
            yield _place(item), label(item), f"{visible(text)}{' ★' * mark.bookmarked}".strip()


def _surprises(items: Sequence[Item]) -> list[str]:
    least = METRIC["surprisal"].steps[0]
    steps = (item for item in items if isinstance(item, Step) and item.surprisal_bits >= least)
    surprising = sorted(steps, key=lambda step: -step.surprisal_bits)[:SURPRISES]
    if not surprising:
        return []
    table = [
        (_place(step), label(step), percent(step.prob), bits(step.surprisal_bits), count(step.rank),
         likeliest(step.choice.candidates))
        for step in surprising
    ]  # fmt: skip
    heading = ("step", "token", "probability", "bits", "rank", "likeliest")
    return ["## Surprises", "", *_markdown_table(heading, table, "rlrrrl")]


def _branches(paths: Sequence[TreePath]) -> list[str]:
    if len(paths) < 2:
        return []
    table = [(path.title, str(path.fork), path.text, count(path.tokens), path.perplexity) for path in paths]
    heading = ("branch", "from step", "how it goes on", "tokens", "perplexity")
    return ["## Branches", "", *_markdown_table(heading, table, "lrlrr")]


def _step_rows(items: Sequence[Item]) -> list[str]:
    table = [_step_row(item) for item in items if isinstance(item, Step)]
    heading = ("step", "token", "probability", "sampler", "bits", "rank", "model entropy", "time", "KV")
    return ["## Steps", "", *_markdown_table(heading, table, "rlrrrrrrr")] if table else []


def _step_row(step: Step) -> Sequence[str]:
    return (
        _place(step), label(step), percent(step.prob), percent(step.sampler_prob), bits(step.surprisal_bits),
        count(step.rank), bits(step.choice.entropy_bits), milliseconds(step.ms.total), size(step.kv.used_bytes),
    )  # fmt: skip


def _place(item: Item) -> str:
    return str(item.index + 1) if isinstance(item, Step) else "prompt"


def _markdown_table(heading: Sequence[str], lines: Iterable[Sequence[str]], align: str = "") -> Iterator[str]:
    align = align or "l" * len(heading)
    yield f"| {' | '.join(heading)} |"
    yield f"|{'|'.join('---:' if side == 'r' else '---' for side in align)}|"
    for line in lines:
        yield f"| {' | '.join(escaped(cell) for cell in line)} |"


# ---- a recording as one web page -------------------------------------------------------------

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SCRIPTS = ("numbers.js", "charts.js", "inside.js", "panel.js", "page.js")
"""In the order in which they run, as one."""


def web_page(recording: Recording) -> str:
    """The page.

    Args:
        recording: Its path is shown first; the other branches of its tree can be chosen.
    """
    values = data(recording)
    style, script = markup.style("page.css"), markup.script(_SCRIPTS)
    slots = {
        "policy": escape(markup.policy(style, script)),
        "title": escape(values["title"]),
        "style": style,
        "made": "".join(f"<li>{escape(each.sentence)}</li>" for each in recording.made),
        "text": escape(readable("".join(item.text for item in recording.items))),
        "evidence": _evidence(recording),
        "data": embedded(values),
        "script": script,
    }
    return markup.filled("page.html", slots)


def _evidence(recording: Recording) -> str:
    """What was looked at, as one section; empty where nothing was."""
    articles = evidence(recording, places_of(tree_rows(recording)))
    if (second := beside_section(recording)) is not None:
        articles.append(second)
    if not articles:
        return ""
    return written(element("section", element("h2", "What was looked at"), *articles, id="evidence"))


def embedded(value: object) -> str:
    """JSON that is safe inside a script element: no character in it is markup, or the end of a line of script."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match[0]], text)


# ---- a picture of the screen -----------------------------------------------------------------

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_FAMILY = "ui-monospace, SF Mono, Cascadia Mono, DejaVu Sans Mono, Menlo, Consolas, monospace"


def alone(svg: str, made: Sequence[Made] = ()) -> str:
    """A picture that needs nothing else: fonts of the reader's machine in the place of those on the net.

    Args:
        svg: As Textual exports it.
        made: What the text in it was made with: its description, which browsers and screen readers offer.
    """
    said = "".join(f"{escape(each.sentence)}. " for each in made)
    if said:
        svg = re.sub(r"<svg\b[^>]*>", lambda begin: f"{begin[0]}<desc>{said.rstrip()}</desc>", svg, count=1)
    return re.sub(r"font-family:\s*Fira Code, monospace", f"font-family: {_FAMILY}", _FONT_FACE.sub("", svg))


# ---- the table of documents ------------------------------------------------------------------


@frozen
class Format:
    """One kind of document."""

    name: str
    """Also the end of a file's name."""
    label: str
    """A word, for a choice."""
    purpose: str
    """What is in it, as a phrase."""
    make: Callable[[Recording], str]
    """Its text, of the recording's path."""


FORMATS: Mapping[str, Format] = {
    format.name: format
    for format in (
        Format("html", "page", "one page to share: every token with its candidates, branches and charts",
               web_page),
        Format("md", "Markdown", "a report: the text, its figures, surprises, branches and steps",
               markdown_report),
        Format("csv", "CSV", "the tokens of the path as a table, one a row", csv_table),
        Format("txt", "text", "the text, and under it what it was made with if not by the model alone", plain_text),
    )
}  # fmt: skip
