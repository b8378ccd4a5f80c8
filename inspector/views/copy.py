"""Copying: a menu of what can be copied from a session, and the text selected with the mouse.

Texts are copied exactly: unlike a terminal, a clipboard executes nothing. The tables for spreadsheets are the
exception: their text cells are made printable, and can't be formulas.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import ClassVar

from msgspec import Struct, json
from rich.segment import Segment
from textual import events
from textual.widget import Widget

from engine.protocol import Candidate, Step
from engine.recording import as_json
from engine.settings import LoadSettings, Settings
from inspector.display import guarded, pad, token_label, visible
from inspector.keys import key_for, with_keys
from inspector.main.tool import ToolActions
from inspector.scales import METRIC, counted, size
from inspector.session.as_code import as_command, as_python
from inspector.state.branches import made
from inspector.state.conditions import TextCondition, by_token, in_short, made_with
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.widgets.actions import ActionTable, dialog_table, leaves, picking, taking
from inspector.widgets.canvas import Row
from inspector.widgets.dialog import Remark
from inspector.widgets.lists import PickDialog, PickList

# ---- keys ---------------------------------------------------------------------------------------

MOST_BYTES = 74_994
"""Bytes of text that fit into a clipboard escape sequence of 100,000 bytes, the limit of some terminals (hterm, and
scripts that follow it): 8 bytes around the text, and 4 for every 3 bytes of it."""
NOTHING_SELECTED = (
    "Nothing is selected to copy: drag over the text, or press {copy} for a menu. "
    "{quit} quits, ctrl+q from everywhere; esc or {step} pauses a run."
)


class CopyActions(ToolActions):
    """Copies texts to the clipboard, and says how long they were."""

    def open(self) -> None:
        setup = self.controller.setup
        listed = copyables(self.timeline, self.host.candidate, setup.settings, setup.load)
        self.host.open(CopyDialog(listed), self._chosen)

    def _chosen(self, chosen: Copyable | None) -> None:
        if chosen is not None:
            made = () if chosen.complete else made_with(self.timeline.tree, self.timeline.items)
            self._copy(chosen.text(), chosen.name, in_short(made))

    def selection(self) -> None:
        """Copy what is selected with the mouse."""
        if text := self.host.get_selected_text():
            self._copy(text, "the selection")
        else:
            self.host.announce(with_keys(NOTHING_SELECTED), "Still here")

    def _copy(self, text: str, name: str, made: str = "") -> None:
        self.host.app.copy_to_clipboard(text)
        sent = len(text.encode("utf-8", "replace"))
        answer = f"Copied {name}: {counted(len(text), 'character')}"
        if sent > MOST_BYTES:
            answer += f", {size(sent)}. Some terminals take {MOST_BYTES:,} at most: "
            answer += f"where it doesn't arrive, press {key_for('export')}"
        if made:
            answer += f". The path was made with {made}: what was copied doesn't say so"
        self.host.answer(answer)


# ---- the menu -----------------------------------------------------------------------------------


class Copyable(Struct, frozen=True):
    """One thing that can be copied."""

    key: str
    """The letter that copies it."""
    name: str
    """Its name in a sentence: `the token`."""
    preview: str
    """Its beginning, printable."""
    text: Callable[[], str]
    complete: bool = False
    """True if the text itself says what the tokens were made with."""


COPY_KEYS = dialog_table(
    "While something is copied",
    *picking("Go through what can be copied.", "choose"),
    taking("Copy it to the terminal's clipboard.", "copy", written="`⏎`, or the letter before it"),
    leaves("Leave."),
)
WHERE = (
    "To this terminal's clipboard (OSC 52), and to the Mac's if its Terminal has none. If that has no effect, "
    "as in tmux without set-clipboard on, {export} writes files."
)
_KEY, _NAME = 3, 29
"""Cells of the letter and of the name."""
_ROOMY = 44
"""Cells from which there is room for previews."""


class CopyDialog(PickDialog[Copyable]):
    """Asks what to copy."""

    ACTIONS: ClassVar[ActionTable] = COPY_KEYS
    HEADING: ClassVar[str] = "Copy"
    APPLY: ClassVar[str] = "Copy"
    AUTO_FOCUS = ""

    def __init__(self, copyables: Sequence[Copyable]) -> None:
        super().__init__()
        self.choices = copyables

    def body(self) -> Iterable[Widget]:
        yield PickList(id="copy-list")
        yield Remark(with_keys(WHERE))

    def on_mount(self) -> None:
        self.put(self.choices)

    def head(self, width: int) -> Row:
        titles = pad("", _KEY + 1) + pad("what", _NAME)
        return [Segment(titles + "preview" * (width >= _ROOMY), self.picks.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        each, ink = self.choices[place], self.picks.ink
        preview = pad(each.preview, width - _KEY - _NAME) if width + 1 >= _ROOMY else ""
        return [
            Segment(pad(each.key, _KEY), ink("accent")),
            Segment(pad(each.name, _NAME), self.picks.rich_style),
            Segment(preview, ink("muted")),
        ]

    def on_key(self, event: events.Key) -> None:
        """Copy the row of a letter."""
        found = next((each for each in self.choices if each.key == event.character), None)
        if found is not None:
            event.stop()
            self.dismiss(found)


# ---- what can be copied -------------------------------------------------------------------------

COLUMNS = (
    "position", "step", "id", "token", "prob", "logprob", "rank", "entropy_bits", "made", "made_with",
)  # fmt: skip
_COPIED = (
    "index", "position", "node", "id", "text", "raw", "special", "logprob", "prob", "sampler_prob", "rank",
)  # fmt: skip
"""Fields of a token's record in its branch as JSON; `index` and `sampler_prob` are those of steps."""
_PREVIEW = 200
"""Characters of a text that its preview may need."""


def copyables(
    timeline: Timeline, candidate: Candidate | None, settings: Settings, load: LoadSettings
) -> list[Copyable]:
    """The things that can be copied now, in the menu's order.

    Args:
        timeline: Provides the current path and its selected token.
        candidate: The highlighted candidate, which is the token to copy at the end of the text.
        settings: Sampling settings, for JSON and code.
        load: Load settings, for code.
    """
    items = list(timeline.items)
    token = candidate if timeline.following else timeline.selected
    answer, whole = completion(items, timeline.slot), _text(items)
    before = _text(items[: timeline.step_slots[0] if timeline.step_slots else None])
    count = counted(len(items), "token")
    command, drawn = as_command(timeline, load, settings)
    written = "the session" if drawn == len(timeline.step_slots) else f"steps 1 to {drawn}"
    python = as_python(timeline, load, settings)
    listed: list[Copyable] = []
    if token is not None:
        raw, text, what = token.raw, token.text, "the candidate" if timeline.following else "the token"
        listed += [
            Copyable("t", what, token_label(text, raw), lambda: text),
            Copyable("i", f"{what}'s id", str(token.id), lambda: str(token.id)),
            Copyable("b", f"{what}'s bytes", raw.hex(" "), lambda: raw.hex(" ")),
        ]
    listed += [
        Copyable("c", "the completion", token_label(answer[:_PREVIEW]), lambda: answer),
        Copyable("p", "the prompt", token_label(before[:_PREVIEW]), lambda: before),
        Copyable("a", "prompt and completion", token_label(whole[:_PREVIEW]), lambda: whole),
        Copyable("n", "the ids of the path", f"{count} as [1, 2, …]", lambda: str([each.id for each in items])),
        Copyable("r", "the path with probabilities", f"{count}, a row each, for a spreadsheet",
                 lambda: table(timeline, items), complete=True),
        Copyable("j", "the branch as JSON", f"{count} with model, settings and marks",
                 lambda: branch_json(timeline, items, settings), complete=True),
        Copyable("s", f"{written} as a command", visible(command), lambda: command),
        Copyable("y", "the session as Python", visible(python.partition("s = ")[2]), lambda: python),
    ]  # fmt: skip
    return [each for each in listed if each.preview]


def completion(items: Sequence[Item], slot: int) -> str:
    """The text that the model wrote, without prompts: the run of steps at a slot, or else the last one before it.

    Args:
        items: The path; prompt tokens may follow steps, as in the next turn of a conversation.
        slot: The selected slot.
    """
    by_kind = groupby(enumerate(items), lambda each: isinstance(each[1], Step))
    runs = [list(run) for of_steps, run in by_kind if of_steps]
    begun = [run for run in runs if run[0][0] <= slot]
    chosen = begun[-1:] or runs[:1]
    return _text([item for run in chosen for _, item in run])


def _text(items: Sequence[Item]) -> str:
    return "".join(item.text for item in items)


def table(timeline: Timeline, items: Sequence[Item]) -> str:
    """A path as lines of tab-separated cells, below a line of column names."""
    out = io.StringIO()
    pairs = zip(items, by_token(timeline.tree, items), strict=True)
    lines = ((*_row(item), guarded("; ".join(each.short for each in found))) for item, found in pairs)
    csv.writer(out, delimiter="\t", lineterminator="\n").writerows([COLUMNS, *lines])
    return out.getvalue()


def _row(item: Item) -> tuple[str, ...]:
    step = str(item.index + 1) if isinstance(item, Step) else ""
    return (
        str(item.position), step, str(item.id), guarded(token_label(item.text, item.raw)), _cell(item.prob),
        _cell(item.logprob), "" if item.rank is None else str(item.rank),
        _cell(METRIC["entropy"].value(item)), made(item),
    )  # fmt: skip


def _cell(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.6g}"


def branch_json(timeline: Timeline, items: Sequence[Item], settings: Settings) -> str:
    """A path as one JSON object; numbers that JSON lacks are null, bytes are base64."""
    facts, found = timeline.facts, by_token(timeline.tree, items)
    branch = {
        "model": facts.name if facts else None,
        "fingerprint": facts.fingerprint if facts else None,
        "dtype": facts.dtype if facts else None,
        "quantization": facts.quantization if facts else None,
        "settings": timeline.tree.settings.get(timeline.tip, settings),
        "made_with": [each.sentence for each in made_with(timeline.tree, items)],
        "text": _text(items),
        "tokens": [_token(timeline, *pair) for pair in zip(items, found, strict=True)],
    }
    return json.format(as_json(branch), indent=1).decode()


def _token(timeline: Timeline, item: Item, found: Sequence[TextCondition]) -> dict[str, object]:
    fields: dict[str, object] = {name: getattr(item, name) for name in _COPIED if hasattr(item, name)}
    return fields | {
        "entropy_bits": METRIC["entropy"].value(item),
        "made": made(item),
        "made_with": [each.short for each in found],
        "mark": timeline.tree.marks.of.get(item.node),
    }
