"""The screen of two models in lockstep: the text, and below it what each believes at the cursor."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from heapq import nlargest
from itertools import groupby
from typing import ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, getters, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.message import Message

from engine.protocol import (
    Candidate,
    LockstepMemory,
    LockstepOpened,
    LockstepRead,
    LockstepSpan,
    OpenLockstep,
    Record,
    WaysParted,
)
from engine.settings import LoadSettings
from inspector.display import joined_to_fit, pad, token_label, token_text, truncate, unfinished, visible
from inspector.keys import key_for
from inspector.main.dialogs import Downloads
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import bits, left_over, percent, size
from inspector.state.lockstep import Divergences, mean
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.lockstep.control import LOCKSTEP_SCREEN, LockstepControl
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, PanelCanvas, Row, centred, colourful, is_dark
from inspector.widgets.charts import bar
from inspector.widgets.token_lines import TextPiece, Wrap, heat_style, link_of, swatches

# ---- the text, coloured by how far the two are apart --------------------------------------------

FLIP = "≠"
TITLED = 6
"""Cells of a frame's line beside its title."""
SLIM = 54
"""Cells of the answer below which the legend in the frame has no room for the unit."""
"""Under a token before which the two have different top tokens."""


class Colouring(Struct, frozen=True):
    """A number of a span that the text is coloured by."""

    name: str
    unit: str
    value: Callable[[LockstepSpan], float | None]
    steps: tuple[float, ...]
    """Sizes from which on a token has the next colour."""
    form: str
    """How it is written."""

    def step(self, span: LockstepSpan | None) -> int:
        """The heat of a span, 0 to 5."""
        value = None if span is None else self.value(span)
        return 0 if value is None else sum(abs(value) >= edge for edge in self.steps)

    def written(self, span: LockstepSpan | None) -> str:
        """The number as it stands under a token; empty where there is none, or it is too small to be written."""
        value = None if span is None else self.value(span)
        if value is None or math.isnan(value) or abs(value) < self.steps[0]:
            return ""
        return format(value, self.form).replace("-", "−") if math.isfinite(value) else "∞"

    def size(self, span: LockstepSpan | None) -> float:
        """Its size, for finding the largest; -1 where there is none."""
        value = None if span is None else self.value(span)
        return -1.0 if value is None or math.isnan(value) else abs(value)


COLOURINGS = (
    Colouring("KL(P||Q)", "bits", lambda span: span.kl_bits, (0.01, 0.05, 0.2, 0.5, 1.5), ".2f"),
    Colouring("change of logprob", "nats, Q less P",
            lambda span: span.logprob_change, (0.05, 0.2, 0.5, 1.0, 2.0), "+.1f"),
    Colouring("change of rank", "Q less P", lambda span: span.rank_change, (1, 2, 5, 20, 100), "+.0f"),
)  # fmt: skip
BY_BYTES = 1
"""The only one that models with different tokens have."""


class LockstepText(PanelCanvas):
    """The path, each token in the colour of a measure, its number under it."""

    class SlotClicked(Message):
        """A token was clicked.

        Args:
            slot: In the path, from 0.
        """

        def __init__(self, slot: int) -> None:
            super().__init__()
            self.slot = slot

    def on_click(self, event: events.Click) -> None:
        """Say which token was clicked."""
        if isinstance(slot := event.style.meta.get("slot"), int):
            self.post_message(self.SlotClicked(slot))

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._items: Sequence[Item] = ()
        self._spans: Sequence[LockstepSpan | None] = ()
        self._measure: Colouring | None = None
        self._slot = 0
        self._instead: tuple[str, str] | None = None
        self._framed = ("", "")

    def put(
        self,
        titles: tuple[str, str],
        items: Sequence[Item],
        spans: Sequence[LockstepSpan | None],
        measure: Colouring,
        slot: int,
        instead: tuple[str, str] | None = None,
    ) -> None:
        """Show a path.

        Args:
            titles: At the top and at the bottom of the frame; printable.
            items: Its tokens.
            spans: What is known of each.
            measure: What they are coloured by.
            slot: Of the cursor; one past the end is the token to come.
            instead: What is said in the place of the text; None for the text.
        """
        self._items, self._spans, self._measure, self._slot = items, spans, measure, slot
        self._instead, self._framed = instead, titles
        self._entitle()
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._entitle()

    def _entitle(self) -> None:
        top, bottom = map(Content, self._framed)
        if self._instead is None and self._measure is not None:
            top += Content(" from ") + swatches(self._measure.steps, is_dark(self.app), colourful(self.app))
        self.title(top, bottom)

    def draw(self, width: int, height: int) -> list[Row]:
        if self._instead is not None or self._measure is None:
            reason, advice = self._instead or ("", "")
            return centred([(reason, self.rich_style), (advice, self.ink("muted"))], width, height)
        numbered = height >= 2
        wrap = Wrap(width - 1, numbered)
        for slot, item in enumerate(self._items):
            parts = item.text.split("\n")
            texts = list(map(visible, parts)) if len(parts) > 1 else [
                token_text(item.text, item.raw, unfinished(item.raw))
            ]  # fmt: skip
            wrap.append(texts, "", truncate(self._number(slot), width - 2) if numbered else "")
        lines, room = wrap.lines, max(1, height // (2 if numbered else 1))
        last = len(lines) - 1
        at = wrap.line_of[self._slot] if self._slot < len(wrap.line_of) else last
        top = max(0, min(at - room // 2, last + 1 - room))
        rows: list[Row] = []
        for line in lines[top : top + room]:
            rows.append([part for piece in line.pieces for part in self._piece(piece)])
            if numbered:
                rows.append([self._under(piece) for piece in line.pieces])
        if self._slot >= len(self._items) and rows and top + room > last:
            rows[-2 if numbered else -1].append(Segment(" ", self.ink("cursor")))
        return rows

    def _span(self, slot: int) -> LockstepSpan | None:
        return self._spans[slot] if slot < len(self._spans) else None

    def _number(self, slot: int) -> str:
        """The measure of a token, at the last one of its span; and whether the top token differs."""
        span = self._span(slot)
        if self._measure is None or span is None or span.node != self._items[slot].node:
            return ""
        return self._measure.written(span) + (FLIP if span.same_top is False else "")

    def _piece(self, piece: TextPiece) -> list[Segment]:
        assert self._measure is not None
        blank, linked = " " * (piece.blank + piece.edge), link_of(piece)
        if piece.slot == self._slot:
            return [Segment(piece.text, self.ink("cursor") + linked), Segment(blank, self.rich_style)]
        step = self._measure.step(self._span(piece.slot))
        style = self.rich_style + heat_style(step, is_dark(self.app), colourful(self.app))
        core = piece.text.lstrip(" ")
        return [
            Segment(piece.text[: len(piece.text) - len(core)], self.rich_style + linked),
            Segment(core, style + linked),
            Segment(blank, self.rich_style),
        ]

    def _under(self, piece: TextPiece) -> Segment:
        return Segment(
            pad(piece.under, piece.cells), self.ink("accent" if piece.slot == self._slot else "muted")
        )


# ---- where the two differ most ------------------------------------------------------------------

LISTED = 10
LOW = 16
"""Lines of a screen below which there is no room for the list."""


class LargestList(Canvas):
    """The tokens where the two differ most, the largest first, in one line: as many as there is room for."""

    DEFAULT_CSS = "LargestList { height: 1; padding: 0 1; }"

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._largest: Sequence[tuple[int, LockstepSpan]] = ()
        self._items: Sequence[Item] = ()
        self._measure = COLOURINGS[0]
        self._slot = 0

    def put(
        self,
        largest: Sequence[tuple[int, LockstepSpan]],
        items: Sequence[Item],
        measure: Colouring,
        slot: int,
    ) -> None:
        """Show some tokens.

        Args:
            largest: The slot of each, and its span.
            items: The path.
            measure: By which they are the largest.
            slot: Of the cursor.
        """
        self._largest, self._items, self._measure, self._slot = largest, items, measure, slot
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Say which token was clicked."""
        if isinstance(slot := event.style.meta.get("slot"), int):
            self.post_message(LockstepText.SlotClicked(slot))

    def draw(self, width: int, height: int) -> list[Row]:
        row: Row = [Segment(f"differ most ({key_for('lockstep.largest')}): ", self.ink("muted"))]
        room = width - sum(segment.cell_length for segment in row)
        for slot, span in self._largest:
            item = self._items[slot]
            label = truncate(token_label(item.text, item.raw), 16)
            flip = FLIP if span.same_top is False else ""
            text = f"{slot + 1} {label} {self._measure.written(span)}{flip}"
            if (room := room - cell_len(text) - 2) < 0:
                break
            ink = self.ink("cursor") if slot == self._slot else self.rich_style
            row += [Segment(text, ink + Style.from_meta({"slot": slot})), Segment("  ", self.rich_style)]
        return [row]


# ---- one model's candidates, or its own way -----------------------------------------------------

NARROW = 24
"""Cells from which on a list has room for the ranks of the other model."""
WORD = re.compile(r"\s*\S+|\s+")


class LockstepSide(PanelCanvas):
    """One model's candidates at the cursor, or its own way from there."""

    def __init__(self, second: bool, id: str | None = None) -> None:
        super().__init__(id=id)
        self._second = second
        self._candidates: Sequence[Candidate] = ()
        self._ranks: dict[int, int] = {}
        self._taken: int | None = None
        self._ways: WaysParted | None = None
        self._why = ""

    def put(
        self,
        titles: tuple[str, str],
        candidates: Sequence[Candidate],
        others: Sequence[Candidate],
        taken: int | None,
        why: str,
    ) -> None:
        """Show candidates.

        Args:
            titles: At the top and at the bottom of the frame; printable.
            candidates: This model's.
            others: The other model's, whose ranks stand beside them.
            taken: Id of the token that was taken; None for none.
            why: Why there are none, as a sentence.
        """
        self._candidates, self._taken, self._ways, self._why = candidates, taken, None, why
        self._ranks = {each.id: each.rank for each in others}
        self.title(*map(Content, titles))
        self.redraw()

    def put_ways(self, titles: tuple[str, str], ways: WaysParted) -> None:
        """Show this model's own way."""
        self._ways = ways
        self.title(*map(Content, titles))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if self._ways is not None:
            return self._way(self._ways, width)
        if not self._candidates:
            return centred([(self._why, self.ink("muted"))], width, height)
        shown = self._candidates[: max(1, height - 2)]
        rest = percent(left_over(min(1.0, max(0.0, each.prob)) for each in shown))
        others = f"  {pad('others', self._columns(width)[0])}{rest:>7}"
        return [
            self._head(width),
            *(self._row(each, width) for each in shown),
            [Segment(others, self.ink("muted"))],
        ]

    def _columns(self, width: int) -> tuple[int, int]:
        """Cells of the label and of the bar."""
        label = max(6, min(20, width - (18 if width >= NARROW else 11)))
        return label, max(0, min(16, width - label - 18))

    def _head(self, width: int) -> Row:
        label, cells = self._columns(width)
        other = "in P" if self._second else "in Q"
        text = f"  {pad('token', label)}{'p':>7}  "
        text += f"{pad('', cells)} {other:>6}" if width >= NARROW else ""
        return [Segment(text, self.ink("muted"))]

    def _row(self, candidate: Candidate, width: int) -> Row:
        label, cells = self._columns(width)
        rank = self._ranks.get(candidate.id)
        apart = rank is not None and rank != candidate.rank
        name = truncate(token_label(candidate.text, candidate.raw), label - 1)
        share = min(1.0, max(0.0, candidate.prob))
        taken = candidate.id == self._taken
        row = [
            Segment("▶ " if taken else "  ", self.ink("accent")),
            Segment(pad(name, label), self.ink("strong") if taken else self.rich_style),
            Segment(f"{percent(share):>7}  ", self.rich_style),
            Segment(bar(share, cells) if cells else "", self.data(share)),
        ]
        if width >= NARROW:
            there = "–" if rank is None else f"#{rank}"
            row.append(Segment(f" {there:>6}", self.ink("warn" if apart else "muted")))
        return row

    def _way(self, ways: WaysParted, width: int) -> list[Row]:
        """The text of this model's way, what both have in plain ink."""
        wrap = Wrap(width - 1)
        parts = [
            (word, each.same)
            for each in ways.parts
            for word in WORD.findall(each.other_text if self._second else each.text)
        ]
        for word, _ in parts:  # so that lines break between words
            wrap.append([visible(line) for line in word.split("\n")])
        styles = self.rich_style, self.ink("accent") + Style(underline=True)
        return [
            [
                Segment("".join(piece.text for piece in pieces), styles[not parts[slot][1]])
                for slot, pieces in groupby(line.pieces, key=lambda piece: piece.slot)
            ]
            for line in wrap.lines
        ]


# ---- the screen ---------------------------------------------------------------------------------


class LockstepScreen(ToolScreen[WaysParted]):
    """Shows what two models make of the path on show.

    Args:
        host: The main screen.
        control: Knows the engine and the second model.
    """

    TOOL: ClassVar[str] = "lockstep"
    ACTIONS: ClassVar[ActionTable] = LOCKSTEP_SCREEN
    MEASURES: ClassVar[str] = "Comparing"
    TELLING: ClassVar[tuple[type[Record], ...]] = (LockstepOpened, LockstepRead, WaysParted)
    AUTO_FOCUS = ""

    text = getters.query_one("#lockstep-text", LockstepText)
    differing = getters.query_one("#lockstep-largest", LargestList)
    first = getters.query_one("#lockstep-first", LockstepSide)
    second = getters.query_one("#lockstep-second", LockstepSide)

    def __init__(self, host: Host, control: LockstepControl) -> None:
        super().__init__(host)
        self.control = control
        self._measure = 0
        self._ways = False
        """True if the two ways are shown, where they are known."""

    def body(self) -> ComposeResult:
        yield LockstepText(id="lockstep-text")
        yield LargestList(id="lockstep-largest")
        with Container(id="lockstep-sides"):
            yield LockstepSide(False, id="lockstep-first")
            yield LockstepSide(True, id="lockstep-second")

    # ---- what is shown ------------------------------------------------------------------------

    @property
    def timeline(self) -> Timeline:
        """The timeline on show."""
        return self.host.controller.timeline

    @property
    def opened(self) -> LockstepOpened | None:
        """The second model."""
        return self.control.state.opened

    @property
    def measure(self) -> Colouring:
        """The number that the text is coloured by."""
        by_bytes = self.opened is not None and self.opened.aligned == "bytes"
        return COLOURINGS[BY_BYTES if by_bytes else self._measure]

    @property
    def spans(self) -> list[LockstepSpan | None]:
        """The span of each token of the path, as far as it was read."""
        return self.control.state.along(self.timeline.items)

    @property
    def here(self) -> LockstepSpan | None:
        """The span at the cursor; at the token to come both distributions there."""
        return self.control.state.at(self.timeline.items, self.timeline.slot)

    @property
    def largest(self) -> Sequence[tuple[int, LockstepSpan]]:
        """The tokens where the two differ most by the measure, the largest first: the slot of each one's last token."""
        measure = self.measure
        last = {span.node: (slot, span) for slot, span in enumerate(self.spans) if span is not None}
        apart = [each for each in last.values() if measure.size(each[1]) >= measure.steps[0]]
        return nlargest(LISTED, apart, key=lambda each: measure.size(each[1]))

    @property
    def way(self) -> WaysParted | None:
        """Both ways from the cursor, where they are to be shown and are known."""
        return self.control.state.ways.get(self.timeline.before) if self._ways else None

    def show(self) -> None:
        """Show everything, now; have read what isn't known."""
        self.control.want()
        timeline, spans, measure = self.timeline, self.spans, self.measure
        instead = self._instead()
        named = measure.name if self.area.width < SLIM else f"{measure.name}, {measure.unit}"
        titles = (named if instead is None else "Text"), self._sum(spans, self.area.width - TITLED)
        self.text.put(titles, timeline.items, spans, measure, timeline.slot, instead)
        self.differing.put(self.largest, timeline.items, measure, timeline.slot)
        self.differing.display = instead is None and bool(self.largest) and self.app.size.height >= LOW
        self._sides()
        facts = timeline.facts
        names = visible(facts.name) if facts else ""
        if self.opened is not None:
            names = f"P {names} · Q {visible(self.opened.title)}"
        recorded = "recorded · " if self.recorded else ""
        self.write(f"Lockstep · {recorded}{names}", self.control.job.failure is not None)

    def _instead(self) -> tuple[str, str] | None:
        """Why there is no text, and what to do."""
        if not self.timeline.items:
            return "There is no text yet.", f"Press esc, then {key_for('prompt')} to write a prompt."
        if self.opened is not None and not self.control.loading:
            return None
        if self.recorded:
            return (
                "No second model was recorded up to here.",
                f"{key_for('step').capitalize()} shows what came next.",
            )
        if self.control.loading:
            return (
                "The second model is loading; the session stays as it is.",
                f"{needs(self.control.memory)}{key_for('lockstep.stop')} stops it.",
            )
        other = f"Press {key_for('lockstep.open')} to choose another one."
        if (failure := self.control.job.failures.get(OpenLockstep.kind)) is not None:
            return visible(failure.message), visible(f"{failure.hint} {other}".strip())
        if self.control.stopped:
            return "The loading was stopped: there is no second model.", other
        return (
            "There is no second model to compare with.",
            f"Press {key_for('lockstep.open')} to open one beside it: this model in 8 or 4 bits or with an adapter, a "
            "model on the disk, or another. You see how much memory it takes before it opens; the session stays.",
        )

    def _sum(self, spans: Sequence[LockstepSpan | None], cells: int) -> str:
        """The figures of the whole path, as many as fit."""
        figures = Divergences()
        known = {span.node: span for span in spans if span is not None}
        figures.add(known.values())
        if figures.kl and figures.tops:
            same = 100 * figures.same_top.value
            known_kl = f"mean KL {mean(figures.kl).value:.3g} bits"
            return joined_to_fit((f"{len(figures.kl)} tokens", known_kl, f"same top {same:.1f} %"), cells)
        return f"{len(figures.spans)} spans" if figures.spans else ""

    def _sides(self) -> None:
        opened, facts, here, way = self.opened, self.timeline.facts, self.here, self.way
        names = (visible(facts.name) if facts else "", visible(opened.title) if opened else "no second model")
        self.query_one("#lockstep-sides").display = self._instead() is None or opened is not None
        taken = None if self.timeline.following else self.timeline.taken
        lists: tuple[tuple[Candidate, ...], tuple[Candidate, ...]] = (
            (here.candidates, here.other_candidates) if here is not None else ((), ())
        )
        entropies = (here.entropy_bits, here.other_entropy_bits) if here is not None else (None, None)
        for side, panel in enumerate((self.first, self.second)):
            name, cells = f"{'PQ'[side]} {names[side]}", self.area.width // 2 - TITLED
            name = name if cell_len(name) <= cells else joined_to_fit(name.split(", "), cells)
            if way is not None:
                count = len(way.other_ids if side else way.ids)
                panel.put_ways((name, f"its own way, {count} tokens"), way)
                continue
            entropy = entropies[side]
            bits_here = f"entropy {bits(entropy)} bits" if entropy is not None else ""
            own = taken if side == 0 or (opened is not None and opened.aligned == "ids") else None
            panel.put((name, bits_here), lists[side], lists[1 - side], own, self._why())

    def _why(self) -> str:
        if self.timeline.slot == 0:
            return "There is nothing before the first token."
        return "Not read yet." if self.control.live else "Not recorded here."

    def situation(self) -> str:
        """The work under way or the failure, else the cursor's figures."""
        job, failure = self.control.job, self.control.job.failure
        if failure is not None and self.control.live:
            return visible(f"{failure.message} {failure.hint}".strip())
        if job.progress is not None:
            total = f" {job.progress.done}/{job.progress.total}" if job.progress.total else ""
            return f"{visible(job.progress.detail)}{total}"
        if (way := self.way) is not None:
            return ways_words(way)
        if self.opened is not None and self.here is not None:
            return span_words(self.here)
        if self.recorded:
            return f"Recorded. {self.needs_model}"
        if self.control.loading:
            return f"The second model is loading; {key_for('lockstep.stop')} stops it"
        if self.opened is None:
            return f"Press {key_for('lockstep.open')} to open a second model beside this one"
        return self._why()

    # ---- keys -------------------------------------------------------------------------------------

    def walk(self, by: int) -> None:
        """Look at another token."""
        self.timeline.walk(by)
        self._moved()

    def look_at(self, slot: int | None) -> None:
        """Look at a token."""
        self.timeline.select(slot)
        self._moved()

    def _moved(self) -> None:
        self.control.job.failures.clear()
        self.host.changed()

    def change_measure(self) -> None:
        """Colour by the next measure."""
        if self.opened is not None and self.opened.aligned == "bytes":
            self.say("The two models have different tokens: only their logprobs can be compared")
        else:
            self._measure = (self._measure + 1) % len(COLOURINGS)

    def go_to_flip(self, by: int) -> None:
        """Go to the next token before which the top tokens differ, or to the one before."""
        slots = [slot for slot, span in enumerate(self.spans) if span is not None and span.same_top is False]
        here = self.timeline.slot
        found = [slot for slot in slots if (slot - here) * by > 0]
        if found:
            self.look_at(found[0] if by > 0 else found[-1])
        else:
            self.say(
                f"No {'further' if by > 0 else 'earlier'} token has another top token in the second model"
            )

    def go_to_largest(self) -> None:
        """Go to the largest of what the text is coloured by; from one of the list to the next largest."""
        slots = [slot for slot, _ in self.largest]
        if not slots:
            self.say("No text has been read in both models yet")
        else:
            here = slots.index(self.timeline.slot) if self.timeline.slot in slots else -1
            self.look_at(slots[(here + 1) % len(slots)])

    @on(LockstepText.SlotClicked)
    def _clicked(self, message: LockstepText.SlotClicked) -> None:
        """Look at the token that was clicked, in the text or in the list."""
        self.look_at(message.slot)
        self.changed()

    def follow_first(self) -> None:
        """Step by the first model's pick; at an older token walk one forward."""
        if not self._lacks():
            self.say(self.host.controller.transport.step())

    def follow_second(self) -> None:
        """Step by the second model's pick."""
        if self._lacks():
            return
        if self.opened is not None and self.opened.aligned == "bytes":
            ways = key_for("lockstep.ways")
            self.say(
                f"The second model has other tokens: its pick is no token of the first one. "
                f"{ways} shows its own continuation"
            )
            return
        self.timeline.select(None)
        self.control.follow()

    def part(self) -> None:
        """Let each go its own way from the cursor, or show the candidates again."""
        if self.way is not None:
            self._ways = False
            return
        self._ways = True
        if self.control.state.ways.get(self.timeline.before) is not None:
            return
        if self.recorded:
            self.say(self.needs_model)
        elif not self._lacks():
            self.control.part()

    def branch(self) -> None:
        """Leave, and have the two ways on show compared as branches of the tree."""
        way, ways = self.way, key_for("lockstep.ways")
        if way is None:
            self.say(
                f"Press {ways} first: each model continues on its own from here, and ⏎ makes both branches"
            )
        elif self._lacks():
            return
        elif self.opened is not None and self.opened.aligned == "bytes":
            self.say(
                "The second model has other tokens: its continuation can't be a branch of the first one's tree"
            )
        elif way.parted is None:
            self.say("Both continue alike: there is nothing to compare")
        else:
            self.dismiss(way)

    def ask_model(self) -> None:
        """Ask for the second model."""
        from inspector.tools.lockstep.dialog import SecondModelDialog

        controller = self.host.controller
        if why := controller.transport.bound:
            self.say(why)
            return
        facts, downloads = self.timeline.facts, Downloads(self.host)
        dialog = SecondModelDialog(controller.setup.load, facts, downloads)

        def chosen(load: LoadSettings | None) -> None:
            if load is not None:
                self.control.open(load, dialog.bits)
                self.say()

        self.host.open(dialog, chosen)

    def stop_loading(self) -> None:
        """Stop the loading of a second model."""
        if self.control.loading:
            self.control.stop_loading()
        else:
            self.say("No second model is being loaded")

    def look_into(self, second: int, action: str) -> None:
        """Close this screen, and look at the token on the main one, or inside one of the models.

        Args:
            second: 1 for the second model, 0 for the session's.
            action: Of the main screen.
        """
        if self._lacks():
            return
        if second and self.opened is not None and self.opened.aligned == "bytes":
            self.say(
                "Q has other tokens, so it has no such token. Open it as the session's model to look inside it"
            )
            return
        self.control.state.look(bool(second))
        self.leave()
        if action == "why" and "sampler" in self.host.shown:
            self.host.changed()
        else:
            self.host.press(action)

    def _lacks(self) -> bool:
        """Say what is missing for a key that goes on; returns whether anything is."""
        if self.opened is None or not self.timeline.before:
            self.say("There is no second model yet" if self.opened is None else "Go to a later token first")
            return True
        return False

    def leave(self) -> None:
        """Go back; what is under way stops, but a second model that is loading."""
        if not self.control.loading:
            self.control.job.stop()
        self.dismiss(None)


def needs(memory: LockstepMemory | None) -> str:
    """What a second model needs beside the first, against what is free; empty until it is known."""
    if memory is None:
        return ""
    free = f"; {size(memory.free_bytes)} were free" if memory.free_bytes is not None else ""
    if not memory.second_bytes:
        return f"It shares the weights of the first one{free}. "
    return f"It takes about {size(memory.second_bytes)} beside {size(memory.first_bytes)}{free}. "


def span_words(span: LockstepSpan) -> str:
    """The figures of one place in a line."""
    parts = []
    if span.kl_bits is not None:
        parts.append(f"KL {span.kl_bits:.4f} bits")
    if span.rank is not None and span.other_rank is not None:
        parts.append(f"rank {span.rank} → {span.other_rank}")
    if span.same_top is not None:
        parts.append("same top token" if span.same_top else f"{FLIP} another top token")
    if span.logprob is not None and span.other_logprob is not None:
        parts.append(
            f"{token_label(span.text, span.raw)} logprob {span.logprob:.2f} → {span.other_logprob:.2f}"
        )
    if span.tokens > 1 or span.other_tokens > 1:
        parts.append(f"{span.tokens} tokens of P, {span.other_tokens} of Q: no KL")
    return " · ".join(parts) or "There is nothing before the first token."


def ways_words(way: WaysParted) -> str:
    """A sentence on where two ways part and meet."""
    if way.parted is None:
        return f"Both continue alike for {len(way.ids)} tokens"
    first = "at the first token" if way.parted == 0 else f"after {way.parted} tokens"
    times = {0: "and don't meet again", 1: "and meet again once"}.get(
        way.meetings, f"and meet again {way.meetings} times"
    )
    return f"They part {first} {times} within {max(len(way.ids), len(way.other_ids))}"
