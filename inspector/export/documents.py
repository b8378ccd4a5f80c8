"""The documents made from a recording: plain text, a CSV table, a Markdown report, a web page, a picture of the screen.

Foreign text stays text in all of them: control characters are made visible, no CSV cell can run as a formula, columns
of numbers contain only numbers, and Markdown makes no link, image, heading or HTML of it. The web page needs no network
and no other file: its content security policy allows only its own script and style, by their hashes, and its data is
JSON in an element that browsers don't run.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from operator import attrgetter
from typing import Any
from xml.etree.ElementTree import Element

from engine.protocol import Distribution, PromptToken, Step
from inspector.blocks.page import element, likeliest, millionths, number, written
from inspector.display import guarded, hex_bytes, token_label, visible
from inspector.documents.parts import Exhibit, Exported, exhibits_of
from inspector.export.markup import filled
from inspector.export.recording import (
    Recording,
    TreePath,
    exported,
    left_out,
    model_figures,
    paths,
    rows_of,
    settings_figures,
    totals,
)
from inspector.scales import KL_BITS, METRIC, SURPRISE_BITS, bits, count, milliseconds, percent, size
from inspector.state.branches import ROOT, made
from inspector.state.candidates import choice_of
from inspector.state.conditions import Made, by_token
from inspector.state.session_tree import Item, SessionTree, quoted_label
from inspector.state.timeline import Timeline


def plain_text(recording: Recording) -> str:
    """Prompt and completion. Line breaks and tabs stay; other control and invisible characters are made visible.

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
    """Several lines of foreign text, printable; CRLF is a line break."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(visible(part) for part in line.split("\t")) for line in lines)


def running(item: Item) -> str:
    """A token in the running text, with ↵ before each line break."""
    shown = "↵\n".join(visible(part) for part in item.text.split("\n"))
    pending = item.pending if isinstance(item, Step) else b""
    if not item.text:
        return hex_bytes(item.raw) if item.raw else "∅"
    return shown + (hex_bytes(pending) if pending else "")


def label(item: Item) -> str:
    """A token as a label, with the bytes of an unfinished character."""
    return token_label(item.text, item.raw, item.pending if isinstance(item, Step) else b"")


# ---- a path as CSV: one token a row, for a spreadsheet or a script ------------------------------

Cell = str | int | float | None
COLUMNS = (
    "step", "position", "node", "parent", "id", "text", "bytes", "special", "made",
    "prob", "sampler_prob", "logprob", "rank", "surprisal_bits", "entropy_bits", "sampler_entropy_bits",
    "draw", "draw_from", "draw_to", "reroll", "first_id", "first_text", "first_prob",
    "ms", "forward_ms", "sample_ms", "inspect_ms", "pipelined",
    "kv_tokens", "kv_used_bytes", "kv_allocated_bytes", "memory_active_bytes", "memory_peak_bytes",
    "name", "bookmarked", "note", "caption", "cold", "made_with",
)  # fmt: skip

COSTS = attrgetter(
    "ms.total", "ms.forward", "ms.sample", "ms.inspect", "ms.pipelined",
    "kv.offset", "kv.used_bytes", "kv.allocated_bytes", "memory.active_bytes", "memory.peak_bytes",
)  # fmt: skip


def csv_table(recording: Recording) -> str:
    """The table, with a header line: `step` counts from 1 and is empty in the prompt, `bytes` are hexadecimal.

    Args:
        recording: Its path is exported.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    parent, timeline = ROOT, recording.timeline
    for item, found in zip(recording.items, by_token(timeline.tree, recording.items), strict=True):
        cells = (*_csv_row(timeline, item, parent), guarded("; ".join(each.short for each in found)))
        known = ("" if cell != cell else cell for cell in cells)  # NaN; infinities are "inf" and "-inf"
        writer.writerow(int(cell) if isinstance(cell, bool) else cell for cell in known)
        parent = item.node
    return out.getvalue()


def _csv_row(timeline: Timeline, item: Item, parent: int) -> Sequence[Cell]:
    step = item if isinstance(item, Step) else None
    measured = None if step is None or step.choice.listed else step
    mark, draw = timeline.tree.marks.at(item.node), step and step.choice
    candidates = item.candidates if isinstance(item, PromptToken) else item.choice.candidates
    first = candidates[0] if candidates else None
    return (
        step.index + 1 if step else None, item.position, item.node, parent, item.id, guarded(item.text),
        item.raw.hex(), item.special, made(item),
        METRIC["probability"].value(item), measured.sampler_prob if measured else None, item.logprob,
        METRIC["rank"].value(item),
        METRIC["surprisal"].value(item), METRIC["entropy"].value(item),
        measured.choice.sampler_entropy_bits if measured else None,
        *((draw.draw, draw.draw_from, draw.draw_to, draw.reroll) if draw else (None,) * 4),
        *((first.id, guarded(first.text), first.prob) if first else (None,) * 3),
        *(COSTS(measured) if measured else (None,) * 10),
        guarded(mark.name), mark.bookmarked, guarded(mark.note), guarded(mark.caption),
        step.ms.cold if step else None,
    )  # fmt: skip


# ---- a path as Markdown -------------------------------------------------------------------------

SURPRISES = 10
"""Number of the least probable tokens that are listed."""
_ALWAYS = re.compile(r"([\\`*_\[\]<>|~&$#@!])")
_SCHEME = re.compile(r"(?i)\b(www\.|[a-z][a-z0-9+.-]*:)(?=\S)")
_BEGINS = re.compile(r"^( *)([-+=]|\d+[.)](?= |$))")


def escaped(text: str) -> str:
    """One line of printable text, escaped for Markdown."""
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
    own = totals(recording.timeline, recording.items)
    figures = [*model_figures(recording), *settings_figures(recording), *own]
    parts = [
        [f"# {escaped(recording.title)}"],
        _quoted("".join(item.text for item in recording.items)),
        [f"- **{escaped(each.sentence)}**" for each in recording.made],
        _section("Figures", ("what", "value"), figures),
        _captions(recording, branches),
        _surprises(recording.items),
        _branches(branches),
        _looked_at(recording),
        _step_rows(recording.items),
    ]
    if source := recording.source:
        parts.append([f"*Recorded by {escaped(source)}*"])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _quoted(text: str) -> list[str]:
    """The text as a quotation; its line breaks stay."""
    lines = readable(text).replace("\t", "⇥").split("\n")
    return [f"> {escaped(line)}\\" if line and following else f"> {escaped(line)}"
            for line, following in zip(lines, [*lines[1:], ""], strict=True)]  # fmt: skip


def _captions(recording: Recording, branches: Sequence[TreePath]) -> list[str]:
    """Captions and notes of the path, and those of the other branches with the text of their branch."""
    rows = [(*row, "") for row in _written(recording, recording.items)]
    seen = {item.node for item in recording.items}
    for branch in branches:
        own = [item for item in branch.items if item.node not in seen]
        rows += [(*row, branch.text) for row in _written(recording, own)]
        seen.update(item.node for item in own)
    heading = ("step", "token", "what it shows", "on another branch")
    columns = len(heading) if any(row[-1] for row in rows) else len(heading) - 1
    return _section("Captions and notes", heading[:columns], [row[:columns] for row in rows])


def _written(recording: Recording, items: Iterable[Item]) -> Iterator[tuple[str, str, str]]:
    marks = recording.timeline.tree.marks
    for item in items:
        mark = marks.at(item.node)
        text = " · ".join(part for part in (mark.name, mark.caption, mark.note) if part)
        if text or mark.bookmarked:
            yield _place(item), label(item), f"{visible(text)}{' ★' * mark.bookmarked}".strip()


def _surprises(items: Sequence[Item]) -> list[str]:
    """The least probable tokens, among those that the screen's keys treat as surprises."""
    steps = (item for item in items if isinstance(item, Step) and item.surprisal_bits >= SURPRISE_BITS)
    every = sorted(steps, key=lambda step: -step.surprisal_bits)
    surprising, more = every[:SURPRISES], len(every) - SURPRISES
    table = [
        (_place(step), label(step), percent(step.prob), bits(step.surprisal_bits), count(step.rank),
         likeliest(step.choice.candidates))
        for step in surprising
    ]  # fmt: skip
    heading = ("step", "token", "probability", "bits", "rank", "most probable")
    left = ["", f"{count(more)} more have {SURPRISE_BITS:g} bits or more."] if more > 0 else []
    return [*_section("Surprises", heading, table, "rlrrrl"), *left]


def _branches(paths: Sequence[TreePath]) -> list[str]:
    table = [(path.title, str(path.fork), path.text, count(path.tokens), path.perplexity) for path in paths]
    heading = ("branch", "from step", "how it continues", "tokens", "perplexity")
    return _section("Branches", heading, table, "lrlrr") if len(paths) > 1 else []


def _looked_at(recording: Recording) -> list[str]:
    """The views that were opened, as on the page but without drawings."""
    lines = [line for article in evidence(recording) for line in _markdown(article)]
    return ["## Views that were opened", *lines] if lines else []


def views_csv(views: Iterable[Exhibit]) -> str:
    """The tables of some views as CSV, each after a line with the view's heading.

    Args:
        views: The views of one tool.
    """
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    for view in views:
        for table in (table for part in view.make() for table in part.iter("table")):
            lines.writerow([guarded(view.heading)])
            rows = [[_csv_cell("".join(cell.itertext())) for cell in row] for row in table.iter("tr")]
            lines.writerows(_without_empty_columns(rows))
    return out.getvalue()


def _without_empty_columns(rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    columns = [column for column in itertools.zip_longest(*rows, fillvalue="") if any(column)]
    return [*zip(*columns, strict=True)]


def _csv_cell(text: str) -> str:
    """A text, not indented, that can't run as a formula; or a number as spreadsheets read it."""
    text = text.strip()
    plain = text.replace("−", "-").removeprefix("+")
    return plain if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", plain) else guarded(text)


_HEADINGS = {"h3": "###", "h4": "####"}


def _markdown(made: Element) -> Iterator[str]:
    """An element as lines of Markdown, without drawings and the paragraph that explains each."""
    text = "".join(made.itertext())
    if made.tag in ("table", "dl"):
        rows = [[_markdown_cell(cell) for cell in line] for line in made.iter() if line.tag in ("div", "tr")]
        named = rows if made.tag == "table" else [["what", "value"], *rows]
        yield from ("", f"**{escaped(caption)}**") if (caption := made.findtext("caption")) else ()
        if lines := _without_empty_columns(named):
            yield from ("", *markdown_table(lines[0], lines[1:]))
    elif made.tag in _HEADINGS:
        yield from ("", f"{_HEADINGS[made.tag]} {escaped(text)}")
    elif made.tag == "p":
        yield from ("", escaped(text))
    elif made.tag != "svg":
        for before, each in itertools.pairwise((made, *made)):
            if (before.tag, each.tag) != ("svg", "p"):
                yield from _markdown(each)


def _markdown_cell(made: Element) -> str:
    text = escaped("".join(made.itertext()))
    return f"**{text}**" if text and made.find("b") is not None else text


def _step_rows(items: Sequence[Item]) -> list[str]:
    table = [
        (_place(step), label(step), percent(step.prob), percent(step.sampler_prob), bits(step.surprisal_bits),
         count(step.rank), bits(step.choice.entropy_bits), milliseconds(step.ms.total), size(step.kv.used_bytes))
        for step in items
        if isinstance(step, Step)
    ]  # fmt: skip
    heading = ("step", "token", "probability", "sampler", "bits", "rank", "model entropy", "time", "KV")
    return _section("Steps", heading, table, "rlrrrrrrr")


def _place(item: Item) -> str:
    return str(item.index + 1) if isinstance(item, Step) else "prompt"


def _section(title: str, heading: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> list[str]:
    """A table of printable texts under its title, as lines of Markdown; empty without rows."""
    lines = [[*map(escaped, row)] for row in rows]
    return [f"## {title}", "", *markdown_table(heading, lines, align)] if lines else []


def markdown_table(heading: Sequence[str], lines: Iterable[Sequence[str]], align: str = "") -> Iterator[str]:
    """A table in Markdown, line by line.

    Args:
        heading: Names of its columns.
        lines: Its rows; their cells are Markdown.
        align: A letter for each column, `r` for numbers.
    """
    yield f"| {' | '.join(heading)} |"
    yield f"|{'|'.join('---:' if side == 'r' else '---' for side in align or 'l' * len(heading))}|"
    for line in lines:
        yield f"| {' | '.join(line)} |"


# ---- the views that were opened, as elements of the page and of the report -----------------------


def evidence(recording: Recording) -> list[Element]:
    """An article for each token with views that were opened, in the order of the tree's tokens, then one for each view
    of the whole session. The page has them for print and for browsers without scripts; its script copies the chosen
    token's articles into the panel.

    Args:
        recording: Has the views.
    """
    of = exported(recording)
    views: dict[int | None, list[Exhibit]] = {}
    for view in exhibits_of(recording.parts, of):
        views.setdefault(view.node, []).append(view)
    whole = [
        element("article", element("h3", view.heading), *made, class_="looked")
        for view in views.pop(None, ())
        if (made := tuple(view.make()))
    ]
    nodes = sorted((node for node in views if node is not None), key=lambda node: of.places[node])
    return [*(article for node in nodes for article in _articles(recording, of, node, views[node])), *whole]


def _articles(recording: Recording, of: Exported, node: int, views: list[Exhibit]) -> Iterator[Element]:
    """The articles of one token's views: the first also has those about the token that follows on the path, or else on
    the oldest branch; then one for each token of other branches that has views about it."""
    tree, path = recording.timeline.tree, {each.node for each in recording.items}
    children = sorted(tree.children.get(node, ()), key=lambda child: child not in path)
    tokens = dict.fromkeys(tree.nodes[child].id for child in children)
    shown = {tree.nodes[child].id: child for child in reversed(children) if child in of.places}
    own = next((token for token in tokens if token in shown), None)
    if found := [view for view in views if view.token == own or view.token not in tokens]:
        yield _article(of, tree, node, None if own is None else shown[own], found)
    for token in tokens:
        if token in shown and token != own and (found := [view for view in views if view.token == token]):
            yield _article(of, tree, node, shown[token], found)


def _article(of: Exported, tree: SessionTree, node: int, taken: int | None, views: list[Exhibit]) -> Element:
    """An article with some views of a token, and the token that was taken after it, if any."""
    own = None if taken is None else tree.nodes[taken].id
    followed = f"What came after {quoted_label(tree.nodes[node])}"
    followed += f": {quoted_label(tree.nodes[taken])}" if taken is not None else ""
    sections = [
        element("section", element("h4", view.heading), *made, class_="look", data_kind=view.kind,
                data_token=own if view.token == own else None)
        for view in views
        if (made := tuple(view.make()))
    ]  # fmt: skip
    return element(
        "article", element("h3", followed), *sections, class_="looked", data_row=of.places[node],
        data_next=None if taken is None else of.places[taken],
    )  # fmt: skip


# ---- a recording as one web page ----------------------------------------------------------------

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SCRIPTS = ("numbers.js", "charts.js", "inside.js", "panel.js", "page.js")
"""The scripts of the page, which are joined in this order."""


def web_page(recording: Recording) -> str:
    """The page.

    Args:
        recording: Its path is shown first; the other branches of its tree can be chosen.
    """
    values, articles = data(recording), evidence(recording)
    shown = (element("h2", "Views that were opened"), *articles)
    slots = {
        "title": escape(values["title"]),
        "made": "".join(f"<li>{escape(each.sentence)}</li>" for each in recording.made),
        "text": escape(readable("".join(item.text for item in recording.items))),
        "evidence": written(element("section", *shown, id="evidence")) if articles else "",
        "data": embedded(values),
    }
    return filled("page.html", ["page.css"], _SCRIPTS, slots)


def embedded(value: object) -> str:
    """JSON that is safe inside a script element: markup and line separators are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match[0]], text)


# ---- the data of the page: columns of plain values, every text printable ------------------------

Json = dict[str, Any]
CANDIDATES = 200_000
"""Most candidates of all tokens together; in a long session, each token keeps fewer."""
FEWEST = 3
SIGNS = "0123456789abcdefghijklmnopqrstuvwxyz"
KL: Json = {"name": "KL", "steps": KL_BITS, "falling": False}
"""The color scale of the divergence of a second model."""


def data(recording: Recording) -> Json:
    """The page's data. Probabilities are in millionths; texts of candidates are stored once, in a table of words.

    Args:
        recording: Its path comes first; the other paths of its tree follow it.
    """
    timeline, listed, of = recording.timeline, paths(recording), exported(recording)
    metrics: list[Json] = [
        {"name": name, "steps": metric.steps, "falling": metric.falling}
        for name, metric in METRIC.items()
        if metric.steps
    ]
    found = {name: value for part in recording.parts for name, value in part.data(of).items()}
    return {
        "title": recording.title,
        "source": recording.source,
        "model": list(model_figures(recording)),
        "settings": list(settings_figures(recording)),
        "left_out": left_out(timeline),
        "metrics": [*metrics, *[KL] * ("second" in found)],
        "second": found.get("second"),
        "prefill": [[c.done, c.kv.used_bytes, c.kv.allocated_bytes] for c in timeline.prompts.chunks],
        "paths": [_path(recording, path, of.places) for path in listed],
        "chosen": -1 if recording.chosen is None else of.places.get(recording.chosen, -1),
        "marks": _marks(recording, of.places),
        "inside": found.get("inside", []),
        "head": found.get("head", 0),
        **_tokens(timeline, of.places, rows_of(listed)),
    }  # fmt: skip


def _path(recording: Recording, path: TreePath, places: Mapping[int, int]) -> Json:
    return {
        "tip": places[path.items[-1].node] if path.items else -1,
        "title": path.title,
        "with": [each.sentence for each in path.conditions],
        "fork": path.fork,
        "text": path.text,
        "tokens": path.tokens,
        "perplexity": path.perplexity,
        "figures": list(totals(recording.timeline, path.items)),
    }


def _marks(recording: Recording, places: Mapping[int, int]) -> list[list[Any]]:
    """Row, name, bookmarked, note and caption of each marked node, oldest node first."""
    return [
        [places[node], visible(mark.name), int(mark.bookmarked), visible(mark.note), visible(mark.caption)]
        for node, mark in sorted(recording.timeline.tree.marks.of.items())
        if node in places
    ]


def _tokens(timeline: Timeline, places: Mapping[int, int], rows: Sequence[Item]) -> Json:
    """The columns of the tokens, and the tables that they refer to.

    Args:
        timeline: Has the tree of the tokens.
        places: Row of each node.
        rows: The tokens.
    """
    words, origins, stages, under = _numbered(), _numbered(), _numbered(), _numbered("")
    most = max(FEWEST, CANDIDATES // max(1, len(places)))
    vocabulary = timeline.facts.vocabulary if timeline.facts else 0

    def candidates(item: Item) -> list[Any] | None:
        """Words, probabilities, the sampler's probabilities if they differ, cuts, the number of others and their
        probability, ranks that differ from the places, and the sampler's probability of the others if it differs."""
        choice = choice_of(item, vocabulary)
        if not choice.candidates:
            return None
        kept = [c for place, c in enumerate(choice.candidates) if place < most or c.id == item.id]
        left = [c for c in choice.candidates if c not in kept]
        mass = millionths(choice.others_prob + sum(c.prob for c in left))
        drawn_mass = millionths(choice.others_sampler_prob + sum(c.sampler_prob for c in left))
        probs = [millionths(c.prob) for c in kept]
        drawn = [millionths(c.sampler_prob) for c in kept if c.cut_by is None]
        # one character per candidate: `.` if it was kept, else the stage that cut it; empty if none was cut
        cuts = "".join("." if c.cut_by is None else SIGNS[min(stages[visible(c.cut_by)], 35)] for c in kept)
        return [
            [words[c.id, token_label(c.text, c.raw)] for c in kept],
            probs,
            0 if drawn == probs else drawn,
            cuts if cuts.strip(".") else "",
            choice.others + len(left),
            mass,
            [[place, c.rank] for place, c in enumerate(kept) if c.rank != place + 1],
            *([] if mass == drawn_mass else [drawn_mass]),
        ]

    steps = [item if isinstance(item, Step) else None for item in rows]
    conditions = [" · ".join(each.short for each in some) for some in by_token(timeline.tree, rows)]
    columns = {
        "node": [item.node for item in rows],
        "parent": [places.get(timeline.tree.parent.get(item.node, ROOT), -1) for item in rows],
        "id": [item.id for item in rows],
        "text": [running(item) for item in rows],
        "label": [label(item) for item in rows],
        "special": [place for place, item in enumerate(rows) if item.special],
        "made": [origins[made(item)] for item in rows],
        "with": [under[words] for words in conditions],
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
        "candidates": [candidates(item) for item in rows],
    }  # fmt: skip
    return {"tokens": columns, "words": [[id, label] for id, label in words], "made": list(origins),
            "conditions": list(under), "stages": list(stages)}  # fmt: skip


def _numbered(*known: str) -> dict[Any, int]:
    """A table that numbers its keys from 0, in the order in which they are first looked up."""
    table: dict[Any, int] = defaultdict(itertools.count().__next__)
    for key in known:
        table[key]
    return table


def _draw(choice: Distribution) -> list[Any]:
    """The draw, the ends of the token's share, the number of re-rolls, and the result of each stage."""
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


# ---- a picture of the screen --------------------------------------------------------------------

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_FAMILY = "ui-monospace, SF Mono, Cascadia Mono, DejaVu Sans Mono, Menlo, Consolas, monospace"


def alone(svg: str, made: Sequence[Made] = ()) -> str:
    """A self-contained picture, with fonts of the reader's machine instead of web fonts.

    Args:
        svg: As Textual exports it.
        made: The conditions of its text, for the description that browsers and screen readers offer.
    """
    said = "".join(f"{escape(each.sentence)}. " for each in made)
    if said:
        svg = re.sub(r"<svg\b[^>]*>", lambda begin: f"{begin[0]}<desc>{said.rstrip()}</desc>", svg, count=1)
    # some readers drop the blanks at the ends of a text, which moves bars
    svg = svg.replace("<text ", '<text xml:space="preserve" ')
    return re.sub(r"font-family:\s*Fira Code, monospace", f"font-family: {_FAMILY}", _FONT_FACE.sub("", svg))


FORMATS: Mapping[str, Callable[[Recording], str]] = {
    "html": web_page, "md": markdown_report, "csv": csv_table, "txt": plain_text,
}  # fmt: skip
"""The documents that are made from a recording alone, by the extensions of their files."""
