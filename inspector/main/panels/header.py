"""The lines above the panels: the header (model, phase, context, sampling), the tabs, and the open tab's answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.style import Style as VisualStyle
from textual.widget import Widget

from engine.protocol import ModelFacts
from engine.settings import Settings
from inspector.display import joined_to_fit, truncate, visible
from inspector.documents.grammar import outside, warning
from inspector.keys import TABS, key_for, names_of
from inspector.scales import amount, count
from inspector.state.conditions import defaults_of, settings_words
from inspector.state.inside import interventions_words
from inspector.state.second_model import SecondModelSoFar
from inspector.state.session_tree import numbered
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.actions import Action, pressing
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.charts import bar
from inspector.widgets.inks import Inked

Parts = list[list[Row]]
"""The parts of the line from left to right, each in versions from long to short; the last may be empty."""
_SHORT_TYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
_MODEL, _SECOND, _PHASE, _UNDER, _GRAMMAR, _CONTEXT, _SAMPLING = range(7)
_GIVING_WAY = (
    _MODEL, _MODEL, _SAMPLING, _SAMPLING, _CONTEXT, _SECOND, _GRAMMAR, _MODEL, _CONTEXT, *[_SAMPLING] * 4, _PHASE,
    _SECOND, _UNDER, _MODEL, _UNDER, _GRAMMAR, _PHASE, *[_SAMPLING] * 8,
)  # fmt: skip
"""The order in which parts are replaced by their next shorter version while the line is too long."""
_BETWEEN = " │ "


class HeaderLine(Canvas):
    """Model, phase, context and sampling; a narrow screen shows shorter versions of them, or fewer."""

    DEFAULT_CSS = "HeaderLine { height: 1; padding: 0 1; background: $panel; color: $text; }"

    settings = Settings()
    _ends_of: tuple[object, ...] = ()
    _ends: tuple[Sequence[Row], Sequence[Row]] = (), ()
    """The versions of the first and the last part, which no step changes; `_ends_of` contains their inputs."""

    def show(self, timeline: Timeline, settings: Settings | None = None) -> None:
        """Show the timeline and the settings as they are now.

        Args:
            timeline: The timeline on show.
            settings: The settings in force; None for the same as before.
        """
        self.settings = settings or self.settings
        super().show(timeline)

    def draw(self, width: int, height: int) -> list[Row]:
        timeline, settings = self.timeline, self.settings
        if timeline is None:
            return []
        facts = timeline.facts
        ends_of = facts, settings, self.ink("strong"), self.ink("muted")
        if ends_of != self._ends_of:
            self._ends_of = ends_of
            self._ends = self._model(facts), self._sampling(facts)
        model, sampling = self._ends
        stepping = timeline.phase in (Phase.READY, Phase.RUNNING)
        parts = [
            [*model],  # a copy, since versions are deleted below
            self._second(timeline),
            self._steps(timeline) if stepping else self._phase(timeline),
            self._under(timeline) if timeline.under else [],
            self._grammar(timeline) if settings.grammar is not None else [],
            self._window(timeline),
            [*sampling],
        ]
        row = self._joined(parts)
        for part in _GIVING_WAY:
            if Segment.get_line_length(row) <= width:
                break
            if len(parts[part]) > 1:
                del parts[part][0]
                row = self._joined(parts)
        while len(parts) > 1 and Segment.get_line_length(row) > width:
            parts.pop()  # the whole part, since a truncated number would be wrong
            row = self._joined(parts)
        return [row]

    def _joined(self, parts: Parts) -> Row:
        """The first version of each part, unless it is empty."""
        row: Row = []
        for versions in parts:
            if versions and versions[0]:
                row += [Segment(_BETWEEN, self.ink("faint"))] * bool(row) + versions[0]
        return row

    # ---- the parts --------------------------------------------------------------------------

    def _model(self, facts: ModelFacts | None) -> list[Row]:
        if facts is None:
            return []
        whole = Segment(visible(facts.name), self.ink("strong"))
        name = Segment(truncate(whole.text, 28), whole.style)
        if not facts.ran:
            return [[whole], [name], []]
        size, muted = f"{amount(facts.parameters)} {_type(facts)}", self.ink("muted")
        kind = Segment(f" {visible(facts.family)} · {facts.layers} layers · {size}", muted)
        return [[whole, kind], [name, kind], [name, Segment(f" {size}", muted)], [name], []]

    def _second(self, timeline: Timeline) -> list[Row]:
        """The second model while one is open, since it takes memory."""
        if (opened := timeline.of(SecondModelSoFar).opened) is None:
            return []
        name, *rest = visible(opened.title).split(", ")
        parts = truncate(name, 16), *rest
        texts = f"second model B: {joined_to_fit(parts, 40)}", f"B {joined_to_fit(parts, 16)}", "+B"
        return [[Segment(text, self.ink("accent"))] for text in texts]

    def _phase(self, timeline: Timeline) -> list[Row]:
        """The phase while no steps are taken, with details and without."""
        phase, detail = timeline.phase, ""
        if timeline.recorded and phase in (Phase.LOADING, Phase.EMPTY):
            name, ink = "RECORDED", "accent"
        elif phase is Phase.LOADING:
            return self._loading(timeline)
        elif phase is Phase.FAILED:
            name, ink = "FAILED", "bad"
            detail = visible(timeline.load_failure.message) if timeline.load_failure else ""
        elif phase is Phase.EMPTY:
            name, ink = "READY", "muted"
            detail = "" if timeline.narrated else f"{key_for('prompt')} writes a prompt"
        elif phase is Phase.RETURNING:
            name, ink, detail = "RETURNING", "warn", visible(timeline.returning)
        else:
            return self._prefill(timeline)
        return [self._state(name, ink, detail), self._state(name, ink, "")]

    def _steps(self, timeline: Timeline) -> list[Row]:
        """The number of steps, and the place of an earlier token that is looked at."""
        running = timeline.phase is Phase.RUNNING
        name, ink = ("RUN", "accent") if running else ("DECODE", "good")
        name, ink = ("RECORDED", "accent") if timeline.recorded else (name, ink)
        short = self._state(name, ink, f"step {count(len(timeline.step_slots))}")
        if timeline.following:
            return [short]
        place = numbered(timeline.items[timeline.slot])
        return [[*short, Segment(f" · at {place}", self.ink("primary"))], short]

    def _state(self, name: str, ink: str, detail: str) -> Row:
        row = [Segment("● ", self.ink(ink)), Segment(name, self.ink("strong"))]
        return [*row, Segment(f" {detail}")] if detail else row

    def _loading(self, timeline: Timeline) -> list[Row]:
        loading = timeline.loading
        if loading is None:
            return [self._state("LOADING", "warn", "")]
        state = self._state("LOADING", "warn", loading.stage)
        if not loading.total:
            return [[*state, Segment(f" {visible(loading.detail)}", self.ink("muted"))], state]
        share = loading.done / loading.total
        number = Segment(f" {share:.0%}")
        return [[*state, *self._bar(share, 12), number], [*state, number], self._state("LOADING", "warn", "")]

    def _prefill(self, timeline: Timeline) -> list[Row]:
        total, done = len(timeline.items), timeline.held
        name = "RECORDED prefill" if timeline.recorded else "PREFILL"
        state = self._state(name, "warn", f"{count(done)}/{count(total)}")
        return [[*state, *self._bar(done / total if total else 0.0, 12)], state]

    def _under(self, timeline: Timeline) -> list[Row]:
        """The interventions on the path: no version is empty, so that they always show."""
        long = interventions_words(timeline.under)
        return [[Segment(text, self.ink("warn"))] for text in (long, truncate(long, 24), "changed")]

    def _grammar(self, timeline: Timeline) -> list[Row]:
        if timeline.facts is None or (grammar := self.settings.grammar) is None:
            return []
        reading = timeline.distribution.grammar if timeline.distribution is not None else None
        texts = [truncate(visible(grammar.summary), 24), "grammar"]
        ink = "warn" if reading is not None and warning(reading) else "accent"
        if outside(reading):
            texts, ink = ["outside the grammar", "outside grammar"], "warn"
        return [[Segment(text, self.ink(ink))] for text in texts]

    def _window(self, timeline: Timeline) -> list[Row]:
        """The share of the context that is full, with a long bar, a short one and none; empty if concealed."""
        facts = timeline.facts
        if timeline.kv is None or timeline.conceals("text") or (facts is not None and not facts.ran):
            return []
        used = timeline.kv.offset or len(timeline.items)  # the offset is 0 without a KV cache
        name = Segment("context ", self.ink("muted"))
        window = facts.context_window if facts is not None else None
        if not window:
            return [[name, Segment(count(used))], []]
        number = Segment(f"{count(used)}/{count(window)}", self.ink("strong" if used < window else "bad"))
        long, short = self._bar(used / window, 10), self._bar(used / window, 6)
        return [[name, number, *long], [number, *short], [number], []]

    def _bar(self, share: float, cells: int) -> Row:
        return [Segment(" "), Segment(bar(share, cells), self.ink("track") + self.data())]

    def _sampling(self, facts: ModelFacts | None) -> list[Row]:
        """The settings that are on, as many as there is room for."""
        settings = self.settings
        if facts is None or (not facts.ran and settings == Settings()):
            return []  # a server's reply without its request
        greedy = settings.temp == 0
        first = Segment("greedy", self.ink("muted")) if greedy else Segment(f"T {settings.temp:g}")
        on = settings_words(settings)
        versions = [[first, *(Segment(f"  {text}") for text in on[:kept])] for kept in range(len(on), -1, -1)]
        for left_out, version in enumerate(versions):
            version += [Segment(f"  +{left_out}", self.ink("muted"))] * bool(left_out)
        of = defaults_of(facts, settings)
        whose = [Segment(f"{of} defaults ", self.ink("muted"))] if of else []
        seed = [] if greedy else [Segment(f"  seed {settings.seed}", self.ink("muted"))]
        seeded = [*versions[0], *seed]
        return [[*whose, *seeded], seeded, *versions, *([[]] if greedy and not on else [])]


def _type(facts: ModelFacts) -> str:
    """The type of the weights: `4-bit`, `4-bit as f32` if they were dequantized, or the dtype of the computation."""
    bits, computed = facts.quantized.partition(",")[0], _SHORT_TYPES.get(facts.dtype, facts.dtype)
    return visible(bits if facts.quantization else f"{bits} as {computed}" if bits else computed)


# ---- the tabs -----------------------------------------------------------------------------------

QUESTIONS = {
    "1": "what could come here?",
    "2": "why this one?",
    "3": "what happened in the model?",
    "4": "what else could have been?",
    "5": "what did it cost?",
    "6": "what does it mean?",
    "7": "how do I keep or share it?",
}
"""The question that each tab answers about the selected token."""
_DOES = "does"
NAMED = 4
"""Cells around the name of a tab: its key, and blanks."""
KEY, NAME, SENTENCE = 12, 17, 27
"""Cells of a key, of a name, and of the longest question in the rows of questions."""


def _cells(pieces: Sequence[Content], gap: int) -> int:
    """Cells of pieces with gaps between them, after a blank."""
    return 1 + sum(piece.cell_length for piece in pieces) + gap * (len(pieces) - 1)


class TabLines(Widget):
    """The tabs, and under them the answers of the open one; each can be clicked.

    Args:
        do: Does an action of the main screen, by its id. Used instead of a key, which a focused field would take.
        id: Id of the widget.
    """

    DEFAULT_CSS = "TabLines { height: 2; padding: 0 1; background: $panel; color: $text-muted; }"

    def __init__(self, do: Callable[[str], None], id: str | None = None) -> None:
        super().__init__(id=id)
        self._do = do
        self._shown: tuple[str, Sequence[Action], str, frozenset[str]] = ("", (), "", frozenset())

    def show(self, tab: str, view: str, views: Sequence[Action], able: frozenset[str]) -> None:
        """Show a tab as the open one.

        Args:
            tab: Key of the tab.
            view: Id of the answer that is shown.
            views: The actions that show the tab's answers.
            able: Ids of the actions that can be done now: the others are grey.
        """
        shown = tab, tuple(views), view, able
        if shown != self._shown:
            self._shown = shown
            self.refresh()

    def render(self) -> Content:
        """The tabs with the key of the finder, and under them the open tab's answers with their keys, with the one on
        show in bold. If not all answers fit, those around the one on show are kept."""
        width, (opened, views, view, able) = self.content_size.width, self._shown
        roomy = sum(map(cell_len, TABS.values())) + NAMED * len(TABS) <= width
        tabs = Content("")
        for digit, name in TABS.items():
            text = f" {digit} {name} " if roomy or digit == opened else f" {digit} "
            style = "bold reverse" if digit == opened else "$text"
            tabs += Content.styled(text, style).stylize(VisualStyle.from_meta({_DOES: f"tab_{digit}"}))
        find = f"{key_for('finder')} find anything"
        room = width - tabs.cell_length - cell_len(find)
        if room >= 2:
            tabs += Content(" " * room) + Content(find).stylize(VisualStyle.from_meta({_DOES: "finder"}))
        pieces = []
        for action in views:
            ink = "bold underline $text" if action.id == view else "" if action.id in able else "$ink-faint"
            key = "bold $footer-key-foreground" if action.id in able else "$ink-faint"
            piece = Content.assemble((action.shown, key), " " * bool(action.shown), (action.view, ink))
            pieces.append(piece.stylize(VisualStyle.from_meta({_DOES: action.id})))
        at = next((place for place, action in enumerate(views) if action.id == view), 0)
        gap, more = 2, 0
        while len(pieces) > 1 and _cells(pieces, gap) + more > width:
            if gap == 2:
                gap = 1
            else:
                more = 2
                pieces.pop(0 if at else -1)
                at = max(0, at - 1)
        row = Content(" " * gap).join(pieces)
        return tabs + Content("\n ") + row + Content(" …" if more else "")

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Explain the tab or answer under the mouse."""
        id = str(event.style.meta.get(_DOES, ""))
        helps = (each.told for each in self._shown[1] if each.id == id)
        self.tooltip = QUESTIONS.get(id.removeprefix("tab_")) or next(helps, None)

    def on_click(self, event: events.Click) -> None:
        if id := event.style.meta.get(_DOES):
            event.stop()
            self._do(str(id))


def question_rows(on: Inked, width: int) -> list[Row]:
    """The tabs' questions, one in a row; a click opens the tab.

    Args:
        on: The widget with the inks.
        width: Cells of a row.
    """
    key, name = (KEY, NAME) if width >= KEY + NAME + SENTENCE else (4, 10)
    rows: list[Row] = []
    for digit, tab in TABS.items():
        link = pressing(names_of(f"tab_{digit}")[0]).rich_style
        base, question = on.ink("base"), truncate(QUESTIONS[digit], max(0, width - key - name))
        row = [Segment(f" {digit}".ljust(key), base + Style(bold=True) + link)]
        row += [Segment(tab.ljust(name), base + link), Segment(question, on.ink("muted") + link)]
        rows.append(row)
    return rows
