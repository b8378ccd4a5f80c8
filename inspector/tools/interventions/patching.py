"""Activation patching: the activations of another path put in place by place, and the map of what that restores."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style

from engine.protocol import (
    ActivationsPatched,
    Command,
    Facing,
    MoveTo,
    PairsPatched,
    PatchActivations,
    PatchPair,
    PatchPairs,
    Prefill,
    Prefilled,
    PromptOpened,
    Step,
)
from engine.tree import aligned, facing
from inspector.blocks.paint import part_shown
from inspector.display import first_fitting, pad, quoted, token_label, truncate, visible
from inspector.keys import with_keys
from inspector.main.inside_view import TITLED, InsideView, Notice, told, why_missing
from inspector.scales import count
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.state.patching import after, alignment_words, faced_with, pair, partner_of
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.interventions.control import (
    NOTHING,
    PATCHING_SCREEN,
    SHARE_EDGES,
    InterventionsActions,
    figure,
    glyph,
    ground,
    legend,
    step_of,
)
from inspector.tools.interventions.evidence import NAMES, difference
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, centred, paragraph
from inspector.widgets.charts import in_sight
from inspector.widgets.fields import MOST_TYPED


class PatchingScreen(InsideView[ActivationsPatched]):
    """Activations of another path, put into this one.

    Args:
        control: What is chosen, and what is known.
    """

    TOOL: ClassVar[str] = "interventions"
    OF_BOTH: ClassVar[bool] = False
    opener = "patching"
    ACTIONS: ClassVar[ActionTable] = PATCHING_SCREEN

    def __init__(self, control: InterventionsActions) -> None:
        super().__init__(control.host, control.patched)
        self.control = control
        control.cursor = None
        self._reading = False
        """True if a counterfactual prompt is being read: the session is at it, and not at the path on show."""
        self._said = ""
        """Why the last one could not be read; printable."""
        self._known: tuple[int, int, list[int]] = (-1, -1, [])
        """The node and the size of the tree for which the sources were found, and these."""
        self._adopted = -1
        """The token of a recording for which the recorded source and part were chosen."""
        self.editing: Facing | None = None
        """The alignment that is being changed; None while the map is on show."""
        self.over_pairs = False
        """True if the means over a set of pairs are on show."""
        self._top = 0
        """The lines of that page that are scrolled out of sight."""
        self._place = 0
        """The place in the path of the token whose partner is changed."""

    # ---- asking ---------------------------------------------------------------------------------

    @property
    def sources(self) -> list[int]:
        """The last tokens of the paths whose activations can be taken."""
        now = self.node, len(self.timeline.tree.nodes)
        if now != self._known[:2]:
            self._known = *now, sources(self.timeline, self.node) if self.path else []
        return self._known[2]

    @property
    def _source(self) -> int | None:
        found = self.sources
        return self.control.source if self.control.source in found else next(iter(found), None)

    @property
    def _source_path(self) -> Sequence[Item]:
        return self.timeline.tree.path(self._source) if self._source is not None else ()

    @property
    def _telling(self) -> tuple[int, int] | None:
        """The two tokens that are followed: those that were chosen, or else those that tell both paths apart."""
        control, source, node = self.control, self._source, self.node
        if source is None:
            return None
        if control.chosen_at != (node, source):  # what was chosen for other paths is forgotten
            control.chosen_at, control.followed, control.facing = (node, source), None, None
        return control.followed or pair(after(self.timeline, node), after(self.timeline, source))

    def look(self) -> None:
        """See `InsideView`; a token of a recording begins with what was recorded of it."""
        node = self.host.controller.timeline.before
        if not self.live and self._adopted != node:
            self._adopted, control = node, self.control
            recorded = [key for key in control.patched.keys if isinstance(key, tuple) and key[0] == node]
            if recorded and not any(key[1:3] == (control.source, control.part) for key in recorded):
                control.source, control.part = recorded[-1][1:3]
        super().look()

    def question(self) -> tuple[Hashable, Command]:
        control, source, part = self.control, self._source, self.control.part
        end = source if source is not None else self.node
        both = self._telling or (0, 0)
        command = PatchActivations(self.node, end, *both, part, control.facing)
        key = self.node, end, part, both, control.facing
        if not self.live and control.patched.get(key) is None:
            known = [each for each in control.patched.keys if isinstance(each, tuple) and each[:3] == key[:3]]
            return (known[-1] if known else key), command
        return key, command

    def ask(self) -> None:
        """See `InsideView`; only where there is a source, and tokens that tell it apart."""
        if self.over_pairs:
            self.control.pairs.want(self._pairs_key, PatchPairs(self.control.set, self.control.part))
        elif not self._reading and self.editing is None and self._telling is not None:
            super().ask()

    @property
    def _pairs_key(self) -> Hashable:
        return self.control.part, self.control.set

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: ActivationsPatched | None) -> str:
        if self.over_pairs:
            return f"Patching over {count(len(self.control.set))} pairs: {NAMES[self.control.part]}"
        return first_fitting(
            self.area.width - TITLED,
            f"Activation patching: {NAMES[self.control.part]} put in from another path",
            f"Patching: {NAMES[self.control.part]} from another path",
        )

    def _words(self, source: int) -> str:
        found, path = self.sources, self.timeline.tree.path(source)
        place = f" ({found.index(source) + 1} of {len(found)})" if len(found) > 1 else ""
        return f"{count(len(path))} tokens{place}, “{difference(self.path, path)}”"

    def draw(self, answer: ActivationsPatched, on: Canvas, width: int, height: int) -> list[Row]:
        source, (layer, column) = self._source, self.control.place(answer)
        chosen = self._words(source) if source is not None else f"node {answer.source}"
        token, other = (quoted(token_label(text)) for text in (answer.text, answer.other_text))
        followed = f"{answer.difference:+.2f} here, {answer.source_difference:+.2f} in the source"
        less = f"the logit of {token} less that of {other}" if width >= WIDE else f"{token} - {other}"
        said = truncate(f"Source: {chosen}", width), f"Followed: {less}: {followed}.", alignment_words(answer)
        top = paragraph(None, width, *filter(None, said))
        cell = paragraph(on.ink("strong"), width, _cell_words(answer, layer, column, width))
        words = paragraph(on.ink("muted"), width, _WORDS)
        if height < 9:
            return [*_map(on, answer, layer, column, width, max(3, height - 2)), *cell, *top, *words]
        room = height - len(top) - len(cell) - 1
        mapped = _map(on, answer, layer, column, width, max(3, min(room, len(answer.layers) + 2)))
        return [*top, *mapped, _edges(on, width, _cell(answer, width) < CELL), *cell, *words]

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        """See `InsideView`; the pairs, or the alignment while it is changed, whatever the answer."""
        if self.over_pairs:
            answer = self.control.pairs.get(self._pairs_key)
            facts = answer.facts if answer is not None else None
            said = why_missing(on, facts, self.control.pairs.failure(self._pairs_key))
            if answer is not None and answer.facts.failed is None:
                return pairs_page(on, answer, self._top, width, height)
            waiting = [("The pairs go through the model, one after another.", on.rich_style)]
            return centred(said or waiting, width, height)
        if self.editing is None or self._source is None:
            return super()._draw(on, width, height)
        return facing_page(on, self.path, self._source_path, self.editing, self._place, width, height)

    def _instead(self, on: Canvas) -> Notice:
        source = None if self._reading else self._source
        if self.answer is None and self.path and not self._reading and self.live:
            if source is None:
                return [
                    ("Activations come from another prompt or branch.", on.rich_style),
                    (with_keys("There is no other one yet: {patching.edit} edits this text; change a word of it."),
                     on.ink("muted")),
                ]  # fmt: skip
            if self._telling is None:
                return [
                    ("What one of both paths predicts isn't known here.", on.rich_style),
                    (with_keys("Choose another token with ← →, or another source with {patching.source}."),
                     on.ink("muted")),
                ]  # fmt: skip
        if self._reading:
            return [("The counterfactual prompt is being read.", on.rich_style)]
        said = super()._instead(on)
        return [*said, (f"Source: {self._words(source)}", on.ink("muted"))] if source is not None else said

    # ---- keys -----------------------------------------------------------------------------------

    @property
    def aligning(self) -> bool:
        """True if the alignment is being changed."""
        return self.editing is not None

    @property
    def chosen(self) -> bool:
        """True if tokens or an alignment were chosen."""
        return bool(self.control.followed or self.control.facing)

    @property
    def mapping(self) -> bool:
        """True if the map of the two paths is on show, or the reason that there is none."""
        return not self.over_pairs and not self.aligning

    @property
    def words(self) -> tuple[str, str]:
        """The words for the keys that go up and down, and for those that go along."""
        if self.over_pairs:
            return "scroll", ""
        if self.aligning:
            return "token", "partner"
        return ("layer", "position") if self.answer is not None and self.failed is None else ("", "")

    def move_cursor(self, layers: int, columns: int) -> None:
        """Look at another layer, or at another position; in the alignment at another token, or let it face another."""
        if self.over_pairs:
            pairs = self.control.pairs.get(self._pairs_key)
            self._top = max(0, min(self._top - layers, pairs_lines(pairs) if pairs is not None else 0))
        elif (faced := self.editing) is not None:
            self._place = place = max(0, min(len(self.path) - 1, self._place - layers))
            if columns:  # the first time the next one after the partner of the token before
                before = max((partner for own, partner in faced if own < place), default=-1)
                now = dict(faced).get(place)
                wanted = before + 1 if now is None else now + columns
                self.editing = faced_with(faced, place, max(0, min(len(self._source_path) - 1, wanted)))
        elif (answer := self.answer) is not None and self.failed is None:
            layer, column = self.control.place(answer)
            self.control.cursor = layer + layers, column + columns
            self.control.cursor = self.control.place(answer)

    # ---- which tokens are followed, and which face each other ------------------------------------

    def follow_other(self, side: int, by: int) -> None:
        """Follow another token: the one whose logit it is, or the one whose logit is taken off."""
        source, both = self._source, self._telling
        if source is None or both is None or not self.live:
            return
        known = [*after(self.timeline, source), *after(self.timeline, self.node)]
        ids = dict.fromkeys(each.id for each in sorted(known, key=lambda each: each.rank))
        others = [id for id in ids if id != both[1 - side]]
        if others:
            at = others.index(both[side]) + by if both[side] in others else 0
            new = others[at % len(others)]
            self.control.followed = (new, both[1]) if side == 0 else (both[0], new)

    def turn_facing(self) -> None:
        """Show the alignment and change it; then put it in force."""
        if self._source is None or not self.live:
            return
        own, other = ([item.id for item in path] for path in (self.path, self._source_path))
        usual = tuple(aligned(own, other))
        if self.editing is None:
            first, _ = facing(own, other)
            self.editing, self._place = self.control.facing or usual, min(first, len(self.path) - 1)
        else:
            self.control.facing = None if self.editing == usual else self.editing
            self.editing = self.control.cursor = None

    def unface(self) -> None:
        """Let the token at the cursor face none."""
        if self.editing is not None:
            self.editing = faced_with(self.editing, self._place, None)

    def usual(self) -> None:
        """Align by common blocks, and follow the tokens that tell both paths apart."""
        self.editing = self.control.facing = self.control.followed = None

    def situation(self) -> str:
        """See `InsideView`; or why there is no counterfactual prompt."""
        if self.over_pairs:
            return told(self.control.pairs, self._pairs_key, self.app.size.width - 2)
        return self._said or super().situation()

    def turn_pairs(self) -> None:
        """Ask for a set of pairs and patch them, or go back to the one path. A recording shows the last set it has."""
        if self.over_pairs:
            self.over_pairs = False
            self.control.pairs.drop()
        elif not self.live:
            known = [key for key in self.control.pairs.keys if isinstance(key, tuple)]
            if not known:
                self.say("No set of pairs was recorded")
                return
            self.control.part, self.control.set = known[-1]
            self.over_pairs = True
        else:
            from inspector.tools.interventions.dialogs import PairsDialog

            self.drop()
            self.host.open(PairsDialog(self.control.set), self._take_pairs)

    def _take_pairs(self, pairs: tuple[PatchPair, ...] | None) -> None:
        if pairs is not None:
            self.control.set, self.over_pairs, self.editing, self._top = pairs, True, None, 0
        self.changed()

    def edit(self) -> None:
        """Edit the text on show as the prompt whose activations are put in."""
        from inspector.tools.interventions.dialogs import CounterfactualDialog

        if not self.live or self._reading or not self.path:
            return
        opened, first = self.timeline.prompts.opened, self.path[0]
        # what the tokenizer puts before every text is not part of what is typed
        added = opened is not None and first.special and not opened.text.startswith(first.text)
        text = "".join(item.text for item in self.path[added:])
        if len(text) > MOST_TYPED:
            self._said = (
                "The text is too long to be edited. Give another prompt on the main screen: it is a source."
            )
            self.changed()
            return
        lookup = Latest(self.host.controller.client)
        self.host.open(CounterfactualDialog(text, [item.id for item in self.path], lookup), self._read)

    def _read(self, text: str | None) -> None:
        """Have another prompt read, and come back to the path on show."""
        if text is None:
            return
        client, timeline = self.host.controller.client, self.timeline
        tip, slot = timeline.tip, None if timeline.following else timeline.slot
        self._reading, self._said = True, ""
        self.drop()

        def read(request: Request[Prefill]) -> None:
            opened = request.reply(PromptOpened)
            if request.failure is not None:
                self._said = visible(f"{request.failure.message} {request.failure.hint}".rstrip())
            elif opened is not None and request.reply(Prefilled) is not None:
                self.control.source = opened.tokens[-1].node
                self.control.cursor = None
            if opened is None:
                came_back()
                return
            if slot is not None:
                timeline.expect(slot)
            client.request(MoveTo(tip), came_back)

        def came_back(request: Request[MoveTo] | None = None) -> None:
            self._reading = False
            self.host.changed()
            self.changed()

        client.do(Prefill(text, False, echo=False), read)

    def change_source(self) -> None:
        """Take the next source."""
        found = self.sources
        if (source := self._source) is not None:
            self.control.source = found[(found.index(source) + 1) % len(found)]
            self.editing = self.control.cursor = None

    def change_part(self) -> None:
        """Put in what another part returns."""
        parts = [*NAMES]
        self.control.part = parts[(parts.index(self.control.part) + 1) % len(parts)]


def sources(timeline: Timeline, node: int) -> list[int]:
    """The last tokens of the paths that activations may come from: first paths as long as that to a node, then other
    prompts and ends.

    Args:
        timeline: With the tree.
        node: The end of the path that is changed.
    """
    tree, position = timeline.tree, timeline.tree.nodes[node].position
    own = {item.node for item in (*tree.path(node), *timeline.items)}
    ends = {read.opened.tokens[-1].node for read in timeline.prompts.by_end.values() if read.opened.tokens}
    found = [
        each
        for each, item in tree.nodes.items()
        if (item.position == position or each in ends or not tree.children.get(each))
        and each not in own
        and not (isinstance(item, Step) and item.origin == "intervened")
    ]
    return sorted(found, key=lambda each: (tree.nodes[each].position != position, each))


# ---- which tokens face each other ---------------------------------------------------------------


def facing_page(
    on: Canvas, path: Sequence[Item], source: Sequence[Item], faced: Facing, chosen: int, width: int,
    height: int,
) -> list[Row]:  # fmt: skip
    """The alignment: a line for each token of the path with the one that it faces, and for each of the source without.

    Args:
        on: Where it is drawn.
        path: The one that is changed.
        source: The other one.
        faced: Which face each other.
        chosen: The token of the path whose partner is changed.
        width: Cells.
        height: Rows.
    """
    partners, lines, cursor, done = dict(faced), list[tuple[int | None, int | None]](), 0, 0
    for place in range(len(path)):
        partner = partners.get(place)
        if partner is not None:
            lines += [(None, left) for left in range(done, partner)]
            done = partner + 1
        cursor = len(lines) if place == chosen else cursor
        lines.append((place, partner))
    lines += [(None, left) for left in range(done, len(source))]
    words = with_keys(
        "{patching.earlier_layer} {patching.later_layer} choose a token of this text, {patching.position_before} "
        "{patching.next_position} let it face the one before or the next of the source, {patching.unface} none. "
        "{patching.facing} uses it."
    )
    rows = paragraph(on.ink("muted"), width, words)
    rows.append([Segment(truncate(_facing_line("  ", "this text", "source"), width), on.ink("strong"))])
    for at in in_sight(len(lines), max(1, height - len(rows)), cursor):
        own, other = lines[at]
        theirs = "faces none" if other is None else _placed(source, other)
        text = _facing_line("▸ " if at == cursor else "  ", _placed(path, own), theirs)
        replaced = own is not None and other is not None and path[own].id != source[other].id
        alone = own is None or other is None
        ink = on.ink("accent" if at == cursor else "warn" if replaced else "faint" if alone else "base")
        rows.append([Segment(truncate(text, width), ink)])
    return rows


FACING = 24
"""Cells of a token in the alignment."""


def _facing_line(mark: str, own: str, other: str) -> str:
    return f"{mark}{pad(truncate(own, FACING), FACING)}  {truncate(other, FACING)}"


def _placed(items: Sequence[Item], place: int | None) -> str:
    """A token with its place, counted from 1; empty for none."""
    return "" if place is None else f"{place + 1:>4} {token_label(items[place].text, items[place].raw)}"


# ---- the map -----------------------------------------------------------------------------------

LABEL = 5
"""Cells of a layer's name."""
WIDE = 100
CELL, WIDEST = 5, 9
"""Cells of a position from which on it has numbers, and at most."""
GAP = "┆"
"""The mark of a column before which tokens that face none are left out."""
_WORDS = (
    "Each cell: one layer at one position computes what it did in the source, all else runs as here. "
    "Where the share is near 1, what makes the difference is carried there; near 0 it isn't, or is elsewhere, too. "
    "Below 0 it goes the other way."
)


def _cell(answer: ActivationsPatched, width: int) -> int:
    """Cells of a position: with numbers, unless that leaves most of many positions out of sight."""
    each = (width - LABEL) // len(answer.columns)
    return max(CELL, min(WIDEST, each)) if each >= 2 else 2


def _map(
    on: Canvas, answer: ActivationsPatched, layer: int, column: int, width: int, height: int
) -> list[Row]:
    """The tokens over the columns, and as many layers as fit, upwards."""
    columns, depth, cell = len(answer.columns), len(answer.layers), _cell(answer, width)
    shown = in_sight(columns, max(1, (width - LABEL) // cell), column)
    lines = max(1, height - 2)
    hidden = len(shown) < columns or lines < depth
    lines -= hidden and lines > 1
    rows, seen = _heads(on, answer, column, cell, shown), in_sight(depth, lines, layer)
    if hidden and height > 3:
        said = part_shown(width, ("layers", seen, depth), ("columns", shown, columns))
        rows.insert(0, [Segment(said, on.ink("warn"))])
    for place in reversed(seen):
        ink = on.ink("strong" if place == layer else "muted")
        row: Row = [Segment(pad(f"L{answer.layers[place] + 1}", LABEL), ink)]
        shares = answer.shares.row(place)
        for at in shown:
            step = step_of(shares[at], SHARE_EDGES)
            text = figure(shares[at], cell - 1, False) if cell >= CELL else glyph(on, step) * 2
            sign = "-" if cell >= CELL and shares[at] < 0 and text != NOTHING else ""
            here = (place, at) == (layer, column)
            plain = on.rich_style + ground(on, step)
            # the cursor's own orange is a share's here
            style = on.ink("strong") + Style(reverse=True, bold=True) if here else plain
            row.append(Segment((sign + text).rjust(cell)[-cell:], style))
        rows.append(row)
    return rows


def _heads(on: Canvas, answer: ActivationsPatched, column: int, cell: int, shown: Sequence[int]) -> list[Row]:
    """This path's tokens, and the source's where they differ."""
    here: Row = [Segment(pad("here", LABEL), on.ink("muted"))]
    there: Row = [Segment(pad("src", LABEL), on.ink("muted"))]
    for at in shown:
        each = answer.columns[at]
        ink = on.ink("strong" if at == column else "muted")
        own, other = token_label(each.text), token_label(each.source_text)
        before = answer.columns[max(0, at - 1)]
        here_skips = each.position > before.position + 1
        skips = here_skips or partner_of(answer, each) > partner_of(answer, before) + 1
        text = pad(truncate(own, cell - 1), cell, right=True)
        here.append(Segment(f"{GAP}{text[1:]}" if skips else text, ink))
        theirs = "" if each.id == each.source_id else truncate(other, cell - 1)
        there.append(Segment(pad(theirs, cell, right=True), ink))
    return [here, there]


def _edges(on: Canvas, width: int, glyphs: bool) -> Row:
    says = "Share of the difference restored: " if width >= 76 else "Share: "
    steps = [*((step, f"{edge:g}") for step, edge in enumerate(SHARE_EDGES, 1)), (-3, "below 0")]
    return [Segment(says, on.ink("muted")), *legend(on, steps, glyphs)]


def _cell_words(answer: ActivationsPatched, layer: int, column: int, width: int) -> str:
    """The cell under the cursor in a sentence."""
    each = answer.columns[column]
    share = answer.shares.row(layer)[column]
    token, there = token_label(each.text), token_label(each.source_text)
    source = quoted(there) if there != token else "the same token"
    if (partner := partner_of(answer, each)) != each.position:
        source += f", its token {partner + 1}"
    at, place = f"L{answer.layers[layer] + 1}", f"token {each.position + 1}"
    if width < WIDE:
        return f"{at}, {place} {quoted(token)}: {share:+.2f} restored."
    return f"{at} at {place}, {quoted(token)} (source: {source}): {share:+.2f} of the difference is restored."


# ---- over a set of pairs --------------------------------------------------------------------------

NAME, CLASS = 6, 18
"""Cells of a layer's name, and of a class of positions."""


def pairs_page(on: Canvas, answer: PairsPatched, top: int, width: int, height: int) -> list[Row]:
    """A line a layer, the last one on top, with a column a class of positions; then the pairs.

    Args:
        on: Where it is drawn.
        answer: Its checks passed.
        top: Lines that are scrolled out of sight.
        width: Cells.
        height: Rows.
    """
    done = [each for each in answer.pairs if not each.failure]
    says = (
        f"{count(len(done))} of {count(len(answer.pairs))} pairs: mean share of the difference restored ± its standard "
        "deviation over the pairs. Changed: where the tokens differ, the last of them by itself. After: the same "
        "tokens behind them."
    )
    rows = paragraph(on.ink("muted"), width, says)
    cell = max(12, min(CLASS, (width - NAME) // max(1, len(answer.places))))
    named = (each.place if cell < CLASS else f"{each.place} ({each.pairs})" for each in answer.places)
    heads = "".join(f"{name:>{cell}.{cell - 1}}" for name in named)
    rows.append([Segment(" " * NAME + heads, on.ink("strong"))])
    lines: list[Row] = []
    for place, layer in reversed(list(enumerate(answer.layers))):
        line: Row = [Segment(f"{f'L{layer + 1}':<{NAME}}", on.ink("muted"))]
        for each in answer.places:
            between = " ± " if cell >= CLASS else "±"
            text = f"{each.means[place]:.2f}{between}{each.spreads[place]:.2f}"
            style = on.rich_style + ground(on, step_of(each.means[place], SHARE_EDGES))
            line.append(Segment(f"{text:>{cell}}", style))
        lines.append(line)
    lines.append([])
    for number, one in enumerate(answer.pairs, 1):
        what = visible(one.failure) or (
            f"{quoted(token_label(one.token))} less {quoted(token_label(one.other))}: "
            f"{one.difference:+.2f} here, {one.source_difference:+.2f} in the source"
        )
        ink = on.ink("bad" if one.failure else "muted")
        lines.append([Segment(truncate(f"{number}. {what}", width), ink)])
    room = max(1, height - len(rows))
    if len(lines) <= room:
        return rows + lines
    room -= room > 1
    first = max(0, min(top, len(lines) - room))
    said = part_shown(width, ("lines", range(first, first + room), len(lines)))
    return [*rows, *lines[first : first + room], [Segment(said, on.ink("warn"))]]


def pairs_lines(answer: PairsPatched) -> int:
    """The number of lines of that page that can be scrolled: the layers, a gap and the pairs."""
    return len(answer.layers) + 1 + len(answer.pairs)
