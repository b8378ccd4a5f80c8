"""The beams after one step of a search: their ranks and differences, in words, as a tree, and for an export."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal
from xml.etree.ElementTree import Element

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len

from engine.protocol import Beam, BeamEnded, BeamStep, Hypothesis, Record
from engine.tree import common_prefix
from inspector.blocks.page import element, row, table
from inspector.display import SPACE, quoted, token_label, truncate, visible
from inspector.documents.parts import ExportPart
from inspector.scales import count, counted, decimal
from inspector.state.beams import BeamHistory, BeamNode, BeamSearch

if TYPE_CHECKING:
    from inspector.lessons.lesson import Beat
    from inspector.state.timeline import Timeline

# ---- the list -----------------------------------------------------------------------------------

Kind = Literal["live", "fell", "finished", "left", "greedy"]


class BeamEntry(Struct, frozen=True):
    """One beam or hypothesis after a step."""

    kind: Kind
    place: int | None
    """Place among the live beams or in the ranking, 1 the best; None for the others."""
    path: tuple[BeamNode, ...]
    """Its tokens, at least one."""
    greedy: bool = False
    """True if greedy decoding gives exactly this."""
    ended: str = ""
    """`eos` or `length` if it is finished, with the end-of-sequence token if texts are equal; printable."""

    @property
    def last(self) -> BeamNode:
        return self.path[-1]

    @property
    def node(self) -> int:
        return self.last.node


def entries(beams: BeamHistory, at: int) -> list[BeamEntry]:
    """The entries to list after a step, best first.

    Args:
        beams: A search with at least `at` steps.
        at: The step, from 1.

    Returns:
        Before the end: live beams, finished hypotheses, greedy decoding if it is not one of them, and the beams that
        were pruned last, as many as the width. At the end: the ranking, greedy decoding, and the unfinished beams.
    """
    search = beams.search
    assert search is not None
    if (end := search.ended) is not None and at == len(search.steps):
        ranked = any(hypothesis.node == end.greedy.node for hypothesis in end.ranking)
        found = [*_finished(beams, end.ranking if ranked else (*end.ranking, end.greedy), end.greedy.node)]
        if not ranked:
            found[-1] = replace(found[-1], kind="greedy", place=None)
        return [*found, *(_beam(beams, beam, "left", end.greedy.node) for beam in end.left)]
    step, greedy = search.steps[at - 1], _greedy(search.steps[:at])
    taken = greedy.node if greedy is not None else -1
    found = [_beam(beams, beam, "live", taken) for beam in step.live]
    found += _finished(beams, step.finished, taken)
    if greedy is not None and all(each.node != taken for each in found):
        found.append(_beam(beams, greedy, "greedy", taken))
    return [*found, *_fallen(beams, at, search.opened.width)]


def _greedy(steps: Sequence[BeamStep]) -> Beam | None:
    """The last known token of greedy decoding."""
    return next((step.greedy for step in reversed(steps) if step.greedy is not None), None)


def _beam(beams: BeamHistory, beam: Beam, kind: Kind, greedy: int) -> BeamEntry:
    place = beam.place + 1 if kind == "live" else None
    return BeamEntry(kind, place, tuple(beams.path(beam.node)), beam.node == greedy)


def _finished(beams: BeamHistory, hypotheses: Sequence[Hypothesis], greedy: int) -> Iterator[BeamEntry]:
    ends = endings(hypotheses)
    for place, (hypothesis, end) in enumerate(zip(hypotheses, ends, strict=True), 1):
        yield BeamEntry("finished", place, tuple(beams.path(hypothesis.node)), hypothesis.node == greedy, end)


def endings(hypotheses: Sequence[Hypothesis]) -> list[str]:
    """The end of each hypothesis, printable; with the token that ended it if texts are equal."""
    texts = Counter(h.text for h in hypotheses)
    return [f"{h.reason} {visible(h.end)}" if texts[h.text] > 1 and h.end else h.reason for h in hypotheses]


def _fallen(beams: BeamHistory, at: int, count: int) -> Iterator[BeamEntry]:
    """The beams that were pruned last, the latest first; within a step, the better ones first."""
    latest: list[BeamNode] = []
    for beam in _fell_by(beams, at):
        if len(latest) >= count and beam.fell != latest[-1].fell:
            break
        latest.append(beam)
    latest.sort(key=lambda beam: (-(beam.fell or 0), -beam.score))
    for beam in latest[:count]:
        yield BeamEntry("fell", None, tuple(beams.path(beam.node)))


def _fell_by(beams: BeamHistory, at: int) -> Iterator[BeamNode]:
    """The beams that were pruned up to a step, the latest first."""
    fallen = (beams.nodes[node] for node in reversed(beams.fallen))
    return (beam for beam in fallen if beam.fell is not None and beam.fell <= at)


def passing(entries: Sequence[BeamEntry]) -> Counter[int]:
    """The number of beams through each node, not counting pruned ones and greedy decoding; all go through the node at
    which the search began."""
    those = [entry.path for entry in entries if entry.kind not in ("fell", "greedy")]
    return Counter(node for path in those for node in (path[0].parent, *(beam.node for beam in path)))


def follow(listed: Sequence[BeamEntry], node: int | None, beams: BeamHistory) -> tuple[int, int | None]:
    """Keep the cursor on its beam, or on one that continues it, or on its beginning; else on the best one.

    Args:
        listed: The beams that are shown.
        node: Last token of the beam that the cursor was on; None for the best one.
        beams: Every token that a beam reached.

    Returns:
        The cursor's index in the list, and the node to follow from there; None for the best one.
    """
    if node is None:
        return 0, None
    nodes = [entry.node for entry in listed]
    if node in nodes:
        return nodes.index(node), node
    for place, entry in enumerate(listed):
        if entry.kind != "fell" and any(beam.node == node for beam in entry.path):
            return place, entry.node
    before = {beam.node for beam in beams.path(node)}
    return next(((place, node) for place, each in enumerate(nodes) if each in before), (0, None))


# ---- in words -----------------------------------------------------------------------------------


def state_phrase(entry: BeamEntry, short: bool = False) -> str:
    """The state of a beam, in a few words."""
    match entry.kind:
        case "fell":
            return f"pruned {entry.last.fell}" if short else f"pruned at step {entry.last.fell}"
        case "live":
            word = "live"
        case "left":
            return "left" if short else "not finished"
        case _:
            word = "limit" if entry.ended == "length" else entry.ended.removeprefix("eos ") or "live"
    if not (entry.greedy or entry.kind == "greedy"):
        return word
    return "greedy" if short else f"greedy, {word}"


def counts(entries: Sequence[BeamEntry]) -> str:
    """The number of entries of each kind."""
    numbers = Counter(entry.kind for entry in entries)
    words = {"live": "live", "finished": "finished", "left": "not finished"}
    return " · ".join(f"{numbers[kind]} {words[kind]}" for kind in numbers if kind in words)


def settings_phrase(search: BeamSearch, short: bool = False) -> str:
    opened = search.opened
    width, most, penalty = opened.width, opened.max_tokens, f"penalty {opened.length_penalty:g}"
    if short:
        return f"width {width} · max {most} · {penalty} · {'' if opened.early_stopping else 'no '}early stop"
    early = "on" if opened.early_stopping else "off"
    return f"width {width} · max tokens {most} · length {penalty} · early stopping {early}"


def name_of(entry: BeamEntry) -> str:
    """The name of a beam in a sentence."""
    if entry.place is None:
        return "greedy decoding" if entry.kind == "greedy" else "this beam"
    return f"{'beam' if entry.kind == 'live' else 'hypothesis'} {entry.place}"


def beside_greedy(beams: BeamHistory, entry: BeamEntry, at: int) -> str:
    """The sentence on where a beam diverges from greedy decoding, and by how much logprob; empty if that isn't known.

    Args:
        beams: Every token that a beam reached.
        entry: The beam.
        at: The step of the search that is shown.
    """
    last = _greedy(beams.search.steps[:at]) if beams.search is not None else None
    if last is None:
        return ""
    name, mine, greedy = name_of(entry).capitalize(), entry.path, beams.path(last.node)
    shared = common_prefix((beam.node for beam in mine), (beam.node for beam in greedy))
    tokens, longer = min(len(mine), len(greedy)), len(mine) - len(greedy)
    if shared < tokens:
        one, other = (f"{_token(path[shared])} {decimal(path[shared].logprob)}" for path in (mine, greedy))
        gap = mine[tokens - 1].total - greedy[tokens - 1].total
        lead = f"{decimal(abs(gap), 3)} {'ahead' if gap >= 0 else 'behind'}"
        ahead = f"{lead} in logprob after {counted(tokens, 'token')}"
        return f"{name} diverges from greedy at token {shared + 1}: {one}, greedy {other}; {ahead}"
    if entry.kind == "greedy":
        return "This is greedy decoding: always the most probable token"
    if longer == 0:
        return f"{name} is what greedy decoding says, token for token"
    if longer < 0:
        return f"{name} is how greedy decoding begins; that continues for {counted(-longer, 'token')}"
    return f"{name} begins with all that greedy decoding says, and continues for {counted(longer, 'token')}"


def _token(token: BeamNode) -> str:
    return quoted(token_label(token.text)) if token.text else "an unfinished character"


# ---- the text of a beam -------------------------------------------------------------------------

Piece = tuple[str, bool]
"""Text, and whether this beam differs from the others there."""
GAP = "…"


def pieces(entry: BeamEntry, passing: Counter[int]) -> list[Piece]:
    """The text of a beam, token by token, printable.

    Args:
        entry: The beam.
        passing: How many beams go through each node. A token is marked if only one does, or if other beams have
            another token there.
    """
    return [
        (visible(token.text), passing[token.node] <= 1 or passing[token.node] < passing[token.parent])
        for token in entry.path
        if not token.ends
    ]


def excerpt(text: Sequence[Piece], cells: int) -> list[Piece]:
    """The pieces that fit, and an ellipsis for each gap between them.

    The beginning of the last run of marked pieces is kept first, then the marked pieces before it, the latest first,
    then the pieces after it, and finally the others before it.
    """
    if sum(cell_len(piece) for piece, _ in text) <= cells:
        return list(text)
    own = next((place for place in reversed(range(len(text))) if text[place][1]), len(text) - 1)
    while own > 0 and text[own][1] and text[own - 1][1]:
        own -= 1
    before = range(own - 1, -1, -1)
    marked = [place for place in before if text[place][1]]
    shown: list[Piece] = [(truncate(text[own][0], cells), text[own][1])]
    kept: set[int] = set()
    for places in ((own,), marked, range(own + 1, len(text)), before):
        for place in places:
            more = [*_with_gaps(text, kept | {place})]
            if sum(cell_len(piece) for piece, _ in more) > cells:
                break
            kept.add(place)
            shown = more
    return shown


def _with_gaps(text: Sequence[Piece], kept: Collection[int]) -> Iterator[Piece]:
    for place, piece in enumerate(text):
        if place in kept:
            yield piece
        elif place == 0 or place - 1 in kept:
            yield GAP, False


# ---- the tree -----------------------------------------------------------------------------------

WIDEST = 12
"""Maximum cells of a token."""
JOIN = 2
"""Cells of the lines before a token."""
TAIL = 16
"""Cells kept free after the last column, for place and score."""
ENDED, FELL, UNFINISHED = "■", "✗", "‹…›"
"""Signs of an end-of-sequence token, of a pruned beam, and of a token that completes no character."""


Bit = tuple[str, str]
"""A stretch of a row, and the name of its ink; empty for none."""
LatticeLine = tuple[list[Bit], int | None]
"""A row, and the last node of the beam that ends in it; None for the head of the columns."""


def lattice(
    beams: BeamHistory, entries: Sequence[BeamEntry], at: int, rows: int, cells: int, node: int
) -> list[LatticeLine]:
    """The lines of the tree that fit: the last steps, and the beams that were pruned last.

    Args:
        beams: Every token that a beam reached.
        entries: The list after the step, at least one.
        at: The step.
        rows: Lines available, the head included.
        cells: Cells of a line.
        node: Last node of the highlighted beam.
    """
    if not (leaves := _leaves(beams, entries, at, max(1, rows - 1))):
        return []
    first, widths = _window(leaves, at, cells)
    leaves = [leaf for leaf in leaves if leaf.last.length >= first]
    chosen = {token.node for leaf in leaves if leaf.node == node for token in leaf.path}
    grown: dict[int | None, dict[int, BeamNode]] = defaultdict(dict)  # by their parent, if that is drawn
    through: dict[int, list[BeamEntry]] = defaultdict(list)
    for leaf in leaves:
        for token in leaf.path[first - 1 :]:
            grown[token.parent if token.length > first else None][token.node] = token
            through[token.node].append(leaf)
    alive = sum(leaf.kind != "fell" for leaf in leaves)

    def ink(token: BeamNode) -> str:
        going = sum(leaf.kind != "fell" for leaf in through[token.node])
        if token.node in chosen:
            return "accent"
        if not going or (token.fell is not None and token.fell <= at):
            return "faint"
        return "muted" if going == alive > 1 else ""

    def best_first(tokens: Iterable[BeamNode]) -> list[BeamNode]:
        return sorted(tokens, key=lambda token: min(map(_order, through[token.node])))

    def lines_of(token: BeamNode) -> Iterator[LatticeLine]:
        """A token and all its continuations: the best in a straight line, the others below."""
        text, cells = shown(token), widths[token.length]
        if token.node not in grown:
            leaf = through[token.node][-1]  # greedy decoding may be a beam, too
            yield [(text.ljust(cells + len(text) - cell_len(text)), ink(token)), *_end(leaf)], leaf.node
            return
        head = text + " " + "─" * (cells - 1 - cell_len(text)), ink(token)
        for bits, end in joined(grown[token.node].values()):
            yield [head, *bits], end
            head = " " * cells, "faint"

    def joined(tokens: Iterable[BeamNode]) -> Iterator[LatticeLine]:
        """Tokens with the same parent, the best first, with the lines that join them."""
        family = best_first(tokens)
        for place, token in enumerate(family):
            last = place == len(family) - 1
            sign = "──" if len(family) == 1 else "┬─" if place == 0 else "╰─" if last else "├─"
            join = sign, "accent" if token.node in chosen else "faint"
            for bits, end in lines_of(token):
                yield [join, *bits], end
                join = " " * JOIN if last else "│ ", "faint"

    drawn: list[LatticeLine] = [(_head(widths), None)]
    # the first tokens in the window are separate trees, unless it shows the whole tree
    roots = best_first(grown[None].values())
    for family in [roots] if first == 1 else [[root] for root in roots]:
        begins = "● " if first == 1 else "… "
        for bits, end in joined(family):
            drawn.append(([(begins, "faint"), *bits], end))
            begins = "  "
    return drawn


def _leaves(beams: BeamHistory, entries: Sequence[BeamEntry], at: int, rows: int) -> list[BeamEntry]:
    """The listed beams, then beams that were pruned earlier, as many as there are rows."""
    listed = {entry.node for entry in entries}
    others = (beam.node for beam in _fell_by(beams, at) if beam.node not in listed)
    more = islice(others, max(0, rows - len(entries)))
    leaves = [*entries, *(BeamEntry("fell", None, tuple(beams.path(node))) for node in more)]
    on = {beam.node for leaf in leaves for beam in leaf.path[:-1]}
    ends = [leaf for leaf in leaves if leaf.node not in on]  # greedy decoding may continue a pruned one
    return ends[:rows]


def _order(entry: BeamEntry) -> tuple[int, float]:
    """Sort key of a row: the best first, pruned beams last, of these the latest first."""
    return (1, -float(entry.last.fell or 0)) if entry.kind == "fell" else (0, -entry.last.score)


def _window(leaves: Sequence[BeamEntry], at: int, cells: int) -> tuple[int, dict[int, int]]:
    """The first step that is drawn, and the cells of each step's tokens: as many steps as fit, at least the last."""
    widths: dict[int, int] = {}
    last = max(leaf.last.length for leaf in leaves)
    room = cells - TAIL - JOIN
    for step in range(min(at, last), 0, -1):
        tokens = [leaf.path[step - 1] for leaf in leaves if leaf.last.length >= step]
        width = max(cell_len(shown(token)) for token in tokens) + 1
        room -= width + JOIN
        if widths and room < 0:
            break
        widths[step] = width
    return min(widths), widths


def shown(token: BeamNode) -> str:
    """A token in the tree, printable; its leading blank separates it from the line."""
    if token.ends or not token.text:
        return ENDED if token.ends else UNFINISHED
    text = visible(token.text).rstrip(" ")
    return truncate(text or SPACE * len(token.text), WIDEST)


def _head(widths: dict[int, int]) -> list[Bit]:
    """The numbers of the steps."""
    bits = [("  ", "muted")]
    for step in sorted(widths):
        cells = JOIN + widths[step]
        label = f" {step}" if cells > len(str(step)) + 1 else ""
        bits.append(((" " * JOIN + label).ljust(cells), "muted"))
    return bits


def _end(entry: BeamEntry) -> Iterator[Bit]:
    """The label after a beam's last token."""
    if entry.kind == "fell":
        yield (f"{FELL} {entry.last.fell}", "faint")
        return
    if entry.place is not None:
        yield (f"{entry.place}", "strong")
        yield (f" {decimal(entry.last.score, 3)}", "")
    if entry.kind == "left":
        yield ("not finished", "muted")
    if entry.greedy or entry.kind == "greedy":
        yield (" greedy", "primary")


# ---- on the page of a lesson ------------------------------------------------------------------


def _beat(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The ranking of a beam search, and greedy decoding."""
    ended = next((each for each in reversed(since) if isinstance(each, BeamEnded)), None)
    if ended is None:
        return
    rows = []
    for rank, each in [*enumerate(ended.ranking, 1), ("greedy", ended.greedy)]:
        said = element("span", visible(each.text + each.end), class_="said")
        rows.append(
            row(str(rank), said, decimal(each.logprob, 3), decimal(each.score, 3), count(each.length))
        )
    yield table("Beam search", ("rank", "text", "logprob", "score", "tokens"), rows, class_="plain")


BEAMS_PART = ExportPart("beams", beat=_beat)
