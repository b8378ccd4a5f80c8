"""Every number on the main screen, compared with the records that it belongs to and with float64.

`Told` takes in what the engine told, by itself. `ScreenNumbers` reads the cells that were painted, and looks up there
what each number must be: the records of that token and no other; where its row of logits was recorded, the model's
and the sampler's probabilities are computed anew, by the reference in tests/engine/sampling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len
from textual.screen import Screen
from textual.widget import Widget

from engine import protocol
from engine.logits.node_sampler import unpack_row
from engine.protocol import Configure, Distribution, KVReading, LockstepSpan, PromptToken, Record, Step
from engine.settings import FIELDS, ORDERS, Settings
from inspector import scales
from inspector.app import InspectorApp
from inspector.display import token_label
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.timing import TimingPanel
from inspector.main.screen import MainScreen
from inspector.main.view import View
from inspector.views.attention import AttentionView
from inspector.views.batch import BatchView
from inspector.views.sampler import SamplerPanel
from inspector.views.second_model import SecondModelView
from inspector.widgets.canvas import DrawnPanel
from tests.engine.sampling.reference import Reference, softmax
from tests.inspector.painting import Terminal

Row = npt.NDArray[np.float64]
Item = Step | PromptToken
COUNT = r"\d{1,3}(?:,\d{3})+|\d+"
BLOCKS = " ▁▂▃▄▅▆▇█"
PERCENT = r"(?<![\d.<>])[<>]?[\d.]+ %"
BAR = "[ ▏▎▍▌▋▊▉█]"
STEP_CELLS = {"p": 9, "bits": 7, "entropy": 9, "rank": 7, "ms": 7, "KV": 10}
SAMPLER_CELLS = {"logit": 8, "model %": 8, "final %": 8, "taken %": 8}
"""How wide the columns are of the steps and of the sampler's panel, by their heads."""


class WrongNumberError(AssertionError):
    """A number stands on the screen that isn't the one of its token, with its place; the cause says which."""


@contextmanager
def place(name: str) -> Iterator[None]:
    """Say where a number is wrong."""
    try:
        yield
    except AssertionError as error:
        raise WrongNumberError(name) from error


class Told:
    """What the engine told, by itself: the path, and the settings with which each token was picked, or will be.

    Args:
        app: Its client receives the records.
    """

    def __init__(self, app: InspectorApp) -> None:
        self._client = app.controller.client
        self._client.listen(self.receive)
        self._app, self._settings = app, app.controller.setup.settings
        self._sent: dict[int, Settings] = {}
        """What the engine is to sample with, by the id of the command that says so and has not ended."""
        self._client.request = partial(self._request, self._client.request)  # type: ignore[method-assign]
        self._forget()

    def _request(self, send: Callable[..., Any], command: Any, *then: Any, **more: Any) -> Any:
        request = send(command, *then, **more)
        if isinstance(command, Configure):
            self._sent[request.id] = command.settings
        return request

    def _forget(self) -> None:
        """Another tree."""
        self.rows: dict[int, list[Row]] = {}
        """The logits after each node, as often as they were computed."""
        self.tokens: dict[int, Item] = {}
        self.parents: dict[int, int] = {}
        self.made: dict[int, Settings] = {}
        """By the step's node."""
        self.kv_after: dict[int, KVReading] = {}
        """The KV cache after a step, by node."""
        self.prompts: dict[int, tuple[protocol.PromptOpened, list[tuple[int, KVReading]]]] = {}
        """Every prompt, and where its chunks ended with which KV cache, by the node of its last token."""
        self.spans: dict[int, LockstepSpan] = {}
        """What two models make of each token, by the node of its last one."""
        self.ahead: dict[int, LockstepSpan] = {}
        """What they make of what follows a node."""
        self.lanes: dict[int, Distribution] = {}
        """What the next token of each lane of the last batch is drawn from."""
        self.lasts: dict[int, Distribution] = {}
        """What its last token was drawn from."""
        self.attention: dict[int, protocol.AttentionRead] = {}
        """By the token that looks."""
        self.end, self.next, self.kv = 0, None, None
        self.refused = False

    end: int
    """Node at the end of the path."""
    next: Distribution | None
    """What follows it."""
    kv: KVReading | None
    """The KV cache there."""

    @property
    def in_force(self) -> Settings | None:
        """The settings that the engine samples with; None in a recording, where they are no records."""
        return None if self._client.timeline.recorded else self._settings

    def receive(self, record: Record) -> None:
        match record:
            case _ if protocol.ends_model(record):
                self._forget()
            case protocol.LogitsRow():
                self._row(record)
            case protocol.PromptOpened():
                self._open(record)
            case protocol.PrefillChunk():
                self.kv = record.kv
                self.prompts[self.end][1].append((record.done, record.kv))
            case protocol.PromptReadings():
                self._read(record.tokens)
            case protocol.Prefilled():
                self.next, self.kv = record.next, record.kv
                self.prompts[self.end][1].append((len(self.path), record.kv))
            case Step():
                self._step(record)
            case protocol.Moved() | protocol.Restored():
                self.end, self.next, self.kv = record.node, record.next, record.kv
            case protocol.Resampled():
                self.next = record.next
                self._settings = self._sent.get(self._client.answering, self._settings)
            case protocol.LockstepOpened() | protocol.LockstepClosed():
                self.spans, self.ahead = {}, {}
            case protocol.LockstepRead():
                self.spans |= {span.node: span for span in record.spans}
                if record.ahead is not None:
                    self.ahead[record.node] = record.ahead
            case protocol.AttentionRead():
                self.attention[record.node] = record
            case protocol.BatchOpened():
                self.lanes, self.lasts = {}, {}
            case protocol.LaneStarted():
                self.lanes[record.lane] = record.next
            case protocol.BatchStep():
                self.lasts |= {token.lane: self.lanes[token.lane] for token in record.tokens}
                self.lanes |= {token.lane: token.next for token in record.tokens if token.next is not None}
            case protocol.Failure(command=Configure.kind):
                self.refused = True
            case protocol.Ended() if (settings := self._sent.pop(self._client.answering, None)) is not None:
                self._settings = self._settings if self.refused or record.cancelled else settings
                self.refused = False
            case _:
                pass

    def _row(self, record: protocol.LogitsRow) -> None:
        row, known = unpack_row(record).astype(np.float64), self.rows.setdefault(record.node, [])
        if not any(np.array_equal(row, each) for each in known):
            known.append(row)

    def _open(self, record: protocol.PromptOpened) -> None:
        if record.new_tree:
            lanes, lasts = self.lanes, self.lasts
            self._forget()
            self.lanes, self.lasts = lanes, lasts  # a batch has trees of its own
        self.next, self.end = None, record.parent
        for token in record.tokens:
            self.tokens.setdefault(token.node, token)
            self.parents[token.node], self.end = self.end, token.node
        self.prompts[self.end] = record, []

    def kv_at(self, path: Sequence[int]) -> dict[int, KVReading]:
        """The KV cache after each token of a path: after its step, or after its chunk of its own prompt."""
        found: dict[int, KVReading] = {}
        for node in path:
            if node in self.prompts:
                opened, chunks = self.prompts[node]
                begin = path.index(opened.tokens[0].node)
                for done, kv in chunks:
                    found |= dict.fromkeys(path[begin:done] if begin < done else path[done - 1 : done], kv)
                    begin = done
        return found | {step.node: self.kv_after[step.node] for step in self.steps(path)}

    def steps(self, path: Sequence[int]) -> list[Step]:
        """The steps of a path, without those that one of its prompts goes over."""
        begin = 0
        for slot, node in enumerate(path, 1):
            if node in self.prompts and not self.prompts[node][0].parent:
                after = [each for node in path[slot:] if isinstance(each := self.tokens[node], Step)]
                begin = slot if not after or after[-1].index == len(after) - 1 else begin
        found = (self.tokens[node] for node in path[begin:])
        return [each for each in found if isinstance(each, Step)]

    def _read(self, tokens: Sequence[PromptToken]) -> None:
        for token in tokens:
            if not isinstance(self.tokens.get(token.node), Step):
                self.tokens[token.node] = token

    def _step(self, record: Step) -> None:
        node = record.node
        self.tokens[node], self.parents[node], self.kv_after[node] = record, record.parent, record.kv
        if self.in_force is not None:
            self.made[node] = self.in_force
        self.end, self.next, self.kv = node, record.next, record.kv

    @property
    def path(self) -> list[int]:
        """Nodes of the path."""
        nodes, node = list[int](), self.end
        while node:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]


def bits(probs: Row) -> float:
    """Entropy."""
    kept = probs[probs > 0]
    return float(-(kept * np.log2(kept)).sum())


def close(shown: str, true: float, what: object, by: float = 0.0052) -> None:
    """A number as it was painted is the true one, rounded."""
    number = float(re.sub(r"[<>%\s]", "", shown))
    assert abs(number - true) <= by + (0.01 if shown[0] in "<>" else 0), f"{what}: {shown}, true {true:.4f}"


def agrees(shown: str, true: float) -> bool:
    """Whether a painted number is the true one, rounded."""
    try:
        close(shown, true, "")
    except AssertionError:
        return False
    return True


def drawn_from(row: Row, settings: Settings, ids: Sequence[int]) -> Row | None:
    """The probabilities that the sampler draws from; None where they hang on more than a row, or on rounding.

    Args:
        row: The model's logits.
        settings: Of the sampler.
        ids: The tokens before, newest last.
    """
    if settings.grammar is not None or settings.min_tokens or settings.xtc_probability:
        return None
    reference = Reference(row, settings, tuple(ids))
    turned_on = {each.stage.name for each in FIELDS if each.stage is not None and each.on(settings)}
    for stage in ORDERS[settings.sampler_order]:
        of_greedy = stage in ("logit-bias", "repetition", "presence", "frequency")
        runs = stage in turned_on and (settings.temp or of_greedy)
        if runs and not reference.follow(stage):
            return None
    if settings.temp:
        return reference.probs
    best = np.flatnonzero(reference.logits >= reference.logits.max() - 1e-4)
    return np.eye(row.size)[best[0]] if best.size == 1 else None


class ScreenNumbers:
    """Compares what is painted with what it belongs to.

    Args:
        app: At rest when it is compared: nothing is asked or under way.
        terminal: Has what the application painted.
        told: What its engine told since it began.
    """

    def __init__(self, app: InspectorApp, terminal: Terminal, told: Told) -> None:
        self._app, self._terminal, self._told = app, terminal, told
        self.compared = 0
        """Numbers, so far."""

    # ---- reading ------------------------------------------------------------------------------

    def lines(self, kind: type[Widget]) -> list[str]:
        """The lines of the main screen's panel of a class; none where it is hidden or something lies over it."""
        return self._lines_of(self._app.main, self._app.main.query_one(kind))

    def _lines_of(self, screen: Screen[Any], panel: Widget) -> list[str]:
        """The lines of a panel with its frame, a character a cell."""
        region, laid_out = panel.region, screen.screen._compositor.visible_widgets
        over = [each.region for each in screen.screen.query("Toast, Tooltip") if each in laid_out]
        seen = panel.display and panel in laid_out
        if not seen or not region.area or any(region.overlaps(each) for each in over):
            return []
        return [self._terminal.line(y)[region.x : region.right] for y in range(region.y, region.bottom)]

    def _equal(self, shown: str, true: float, what: object, by: float = 0.0052) -> None:
        close(shown, true, what, by)
        self.compared += 1

    def _same(self, shown: object, true: object, what: object) -> None:
        assert shown == true, f"{what}: {shown!r}, true {true!r}"
        self.compared += 1

    @property
    def settled(self) -> bool:
        """Whether nothing is under way, and all that is known is shown."""
        return self._app.controller.resting and self.shown

    @property
    def shown(self) -> bool:
        """Whether the panels were shown all that is known, and wait for no answer on what they show."""
        app, queries = self._app, self._app.controller.queries
        asking = queries._explain.waiting or queries._what_if.waiting
        if isinstance(app.top, View) and app.top._stale:
            return False
        return not (asking or app.inbox.waiting or app.main._stale or app.main._expects)

    # ---- what was painted ---------------------------------------------------------------------

    def check_top(self) -> bool:
        """Compare the numbers of the screen on top, where it is one whose numbers are known; returns whether it is."""
        match self._app.top:
            case MainScreen():
                self.check()
            case SecondModelView() as screen:
                with place("second_model"):
                    self._second_model(screen)
            case BatchView() as screen:
                with place("batch"):
                    self._batch(screen)
            case AttentionView() as screen:
                with place("attention"):
                    self._attention(screen)
            case _:
                return False
        return True

    def check(self, covered: bool = False) -> None:
        """Compare every number with what it belongs to.

        Args:
            covered: Whether a dialog lies over the panels, but for the header and the sampler's.
        """
        timeline, told = self._app.controller.timeline, self._told
        if timeline.recorded:
            self._follow_replay()
        path = told.path
        with place("path"):
            self._same([item.node for item in timeline.items], path, "the path")
        if not path or timeline.phase.value not in ("ready", "running"):
            return
        slot = timeline.slot
        item = told.tokens[path[slot]] if slot < len(path) else None
        with place("header"):
            self._header(path, item)
        if not covered:
            with place("KV"):
                self._kv(path, item)
            with place("steps"):
                self._steps(path)
            with place("time"):
                self._time(item if item is not None else told.tokens[path[-1]])
        if timeline.concealed:
            return
        ids = [told.tokens[node].id for node in path[:slot]]
        if isinstance(item, PromptToken):
            if not covered:
                with place("candidates in the prompt"):
                    self._prompt_candidates(slot, item)
            return
        choice = told.next if item is None else item.choice
        if choice is None:
            return
        used = told.in_force if item is None else told.made.get(item.node)
        before = path[slot - 1] if slot else 0
        with place("records"):
            row = self._row(choice, before, used, ids)
        if not covered:
            with place("candidates"):
                self._candidates(self._tried(choice, row, ids), item)
        with place("sampler"):
            self._sampler(choice, row, used, ids, item)

    def _follow_replay(self) -> None:
        """A recording is gone through without records: its place is the timeline's."""
        timeline, told = self._app.controller.timeline, self._told
        told.end, told.next = timeline.tip, None
        told.kv = told.kv_at(told.path).get(timeline.tip)
        item = told.tokens.get(timeline.tip)
        if isinstance(item, Step):
            told.next = item.next
        if timeline.next is not None and timeline.next.node == timeline.tip:
            told.next = timeline.next

    def _row(self, choice: Distribution, node: int, used: Settings | None, ids: Sequence[int]) -> Row | None:
        """The row that a distribution was read from, where it was recorded: its numbers are those of float64."""
        self._same(choice.node, node, "the node of a distribution")
        rows = self._told.rows.get(node, [])
        if not rows:
            return None
        apart = [self._apart(choice, row) for row in rows]
        assert min(apart) < 1e-3, f"no row of node {node} has these probabilities: {choice}"
        row = rows[int(np.argmin(apart))]
        self._equal(f"{choice.entropy_bits}", bits(softmax(row)), choice)
        sampler = drawn_from(row, used, ids) if used is not None else None
        if sampler is not None:
            self._equal(f"{choice.sampler_entropy_bits}", bits(sampler), (choice, used))
            for each in choice.candidates:
                self._equal(f"{each.sampler_prob}", float(sampler[each.id]), (each, used), 1e-3)
        return row

    @staticmethod
    def _apart(choice: Distribution, row: Row) -> float:
        model = softmax(row)
        return max((abs(each.prob - model[each.id]) for each in choice.candidates), default=0.0)

    def _header(self, path: Sequence[int], item: Item | None) -> None:
        lines, told = self.lines(HeaderLine), self._told
        if not lines:
            return
        line, in_force = lines[0], told.in_force
        configuring = self._app.controller.client.of(Configure)
        if (
            in_force is not None
            and not configuring
            and (shown := re.search(r"│ T ([\d.e-]+)(?![\d.e…-])", line))
        ):
            self._equal(shown[1], in_force.temp, line)
        if told.kv is not None and (shown := re.search(rf"context ({COUNT})(?:/| )", line)):
            self._same(plain(shown[1]), told.kv.offset or len(path), line)
        if shown := re.search(rf"● (?:DECODE|RUN|RECORDED) step ({COUNT})(?: · at (.*?) +│)?", line):
            self._same(plain(shown[1]), len(told.steps(path)), line)
            if shown[2] and isinstance(item, Step):
                self._same(shown[2], f"step {scales.count(item.index + 1)}", line)
            elif shown[2] and isinstance(item, PromptToken):
                self._same(shown[2], f"prompt token {item.position + 1}", line)

    def _kv(self, path: Sequence[int], item: Item | None) -> None:
        lines, told = self.lines(KVPanel), self._told
        readings = told.kv_at(path)
        kv = told.kv if item is None else readings.get(item.node)
        if not lines or kv is None:
            return
        if shown := re.search(r"KV cache  (\S+ \S+) used of (\S+ [^\s…]+)(?= )", lines[0]):  # it has no frame
            sizes = scales.size(kv.used_bytes), scales.size(kv.allocated_bytes)
            self._same((shown[1], shown[2]), sizes, lines[0])
            if shown := re.search(rf"  ({COUNT}) tokens", lines[0]):
                self._same(plain(shown[1]), kv.offset, lines[0])
        if not (shown := re.search(rf"KV cache · ({COUNT}) (?:of (?:{COUNT}) )?tokens", lines[0])):
            return
        held = [group.held for group in kv.groups if group.kind != "recurrent"]
        self._same(plain(shown[1]), max(held, default=kv.offset), lines[0])
        if len(lines) == 1:  # its frame alone, where the test gave one to a panel of one line
            return
        if shown := re.search(r"█ (\S+ \S+) used +. (\S+ \S+) allocated", lines[1]):
            sizes = scales.size(kv.used_bytes), scales.size(kv.allocated_bytes)
            self._same((shown[1], shown[2]), sizes, lines[1])
        if shown := re.search(rf"allocated +({PERCENT}) full", lines[1]):
            self._equal(shown[1], kv.used_bytes / kv.allocated_bytes * 100, lines[1])
        self._growth(lines, [readings[node] for node in path if node in readings])

    def _growth(self, lines: Sequence[str], readings: Sequence[KVReading]) -> None:
        """The columns of the chart, where each token has as many, are what was used; the line over it, all that was
        allocated, each from the token on that needed it."""
        at = next((n for n, line in enumerate(lines) if re.match(r". ┌[^u]*$", line)), None)
        if at is None or not readings:
            return
        over = lines[at][2:-1].rstrip()
        wide, rest = divmod(len(over), len(readings))
        if rest:
            return
        before: int | None = None
        for n, reading in enumerate(readings):
            allocated, here = reading.allocated_bytes, over[n * wide : (n + 1) * wide]
            self._same("┌" in here, allocated != before, (n, over))
            begun = over[n * wide :].split("┌")[1] if allocated != before else ""
            if found := re.match(r" (\S+ [^\s╌]+)", begun):
                self._same(found[1], scales.size(allocated), (n, over))
            before = allocated
        bars = list(takewhile(lambda line: not line.strip(BLOCKS), (line[2:-1] for line in lines[at + 1 :])))
        top = max(reading.used_bytes for reading in readings)
        for n, reading in enumerate(readings):
            eighths = sum(BLOCKS.index(line[n * wide]) for line in bars)
            self._same(eighths, max(1, round(reading.used_bytes / top * 8 * len(bars))), (n, bars))

    def _steps(self, path: Sequence[int]) -> None:
        lines = self.lines(StepsPanel)
        steps = self._told.steps(path)
        if len(lines) < 3 or not (heads := columns(lines[1], STEP_CELLS)):
            return
        for line in lines[2:-1]:
            if not (shown := re.match(r".[▶ ] +(\d+) ", line)):
                continue
            same = [step for step in steps if step.index == int(shown[1]) - 1]
            # two have one number where a prompt was shortened, or reaches over a completion: the row names the token
            step = next((step for step in same if token_label(step.text, step.raw)[:4] in line), same[-1])
            rows = self._told.rows.get(step.parent, [])
            cells = {head: line[begin:end].strip() for head, (begin, end) in heads.items()}
            prob = min((float(softmax(row)[step.id]) for row in rows), key=lambda each: abs(each - step.prob),
                       default=step.prob)  # fmt: skip
            if "p" in cells:
                self._equal(cells["p"], prob * 100, line)
            if "bits" in cells:
                self._equal(
                    cells["bits"], float(-np.log2(prob)) if prob > 1e-30 else step.surprisal_bits, line
                )
            if "entropy" in cells:
                self._equal(cells["entropy"], step.choice.entropy_bits, line)
            if "rank" in cells:
                self._same(plain(cells["rank"]), step.rank, line)
            if "ms" in cells:
                self._same(cells["ms"], scales.ms(step.ms.total), line)
            if "KV" in cells:
                self._same(cells["KV"], scales.size(step.kv.used_bytes), line)
        if steps and (shown := re.search(r"([\d.]+) bits/token", lines[-1])):
            mean = float(np.mean([step.surprisal_bits for step in steps]))
            self._equal(shown[1], mean, lines[-1])

    def _time(self, item: Item) -> None:
        """The parts of the step that is looked at."""
        if not isinstance(item, Step):
            return
        for line in self.lines(TimingPanel):
            if shown := re.search(rf"step ({COUNT}): (\S+ [^\s…]+)(?= )", line):
                told = scales.count(item.index + 1), scales.milliseconds(item.ms.total)
                self._same((shown[1], shown[2]), told, line)
            for name in ("forward", "sample", "inspect"):
                if shown := re.search(rf" {name} ([\d.]+) ", line):
                    self._same(shown[1], scales.ms(getattr(item.ms, name)), line)

    def _prompt_candidates(self, slot: int, item: PromptToken) -> None:
        lines = self.lines(CandidatesPanel)
        if not lines or not item.candidates:
            return
        self._title(lines[0], f"Prompt token {slot + 1}", item.entropy_bits)
        known = {each.id: each for each in item.candidates}
        for line in lines[1:-1]:
            if shown := re.search(rf"({PERCENT}) +({COUNT}) +(\d+)(?: +{PERCENT})? +.$", line):
                each = known.get(int(shown[3]))
                prob, rank = (item.prob, item.rank) if each is None else (each.prob, each.rank)
                assert each is not None or int(shown[3]) == item.id, line
                self._equal(shown[1], (prob or 0.0) * 100, line)
                self._same(plain(shown[2]), rank, line)

    def _title(self, line: str, name: str, entropy: float | None) -> None:
        assert re.search(rf"{name}\b", line), f"{line}, which is {name}"
        if entropy is not None and (shown := re.search(r"model entropy ([\d.]+) bits", line)):
            self._equal(shown[1], entropy, line)

    def _tried(self, choice: Distribution, row: Row | None, ids: Sequence[int]) -> Distribution:
        """What settings that are tried would draw from where they are shown; else what was, or would be, drawn from."""
        timeline = self._app.controller.timeline
        tried, trial = timeline.tried, timeline.trial
        if tried is None or trial is None:
            return choice
        sampler = drawn_from(row, trial.settings, ids) if row is not None else None
        for each in tried.candidates if sampler is not None else ():
            self._equal(f"{each.sampler_prob}", float(sampler[each.id]), (each, trial.settings), 1e-3)
        return tried

    def _candidates(self, choice: Distribution, item: Step | None) -> None:
        lines = self.lines(CandidatesPanel)
        if not lines:
            return
        self._title(
            lines[0], f"Step {item.index + 1}" if item is not None else "Next token", choice.entropy_bits
        )
        if shown := re.search(r"sampler entropy ([\d.]+) bits", lines[-1]):
            self._equal(shown[1], choice.sampler_entropy_bits, lines[-1])
        known = {each.id: each for each in choice.candidates}
        count = 0
        one = re.search(r"\b(model = sampler|both)\b", lines[1])
        shares = rf"(({PERCENT}))" if one else rf"({PERCENT}){BAR}+({PERCENT}|\S+)"
        tried = self._app.controller.timeline.tried is not None
        for line in lines[1:-1]:
            shown = re.search(rf"{shares} +({COUNT}) +(\d+)(?: +{PERCENT})? +.$", line)
            if not shown:
                continue
            count += 1
            if (each := known.get(int(shown[4]))) is not None:
                prob, rank, cut, sampler = each.prob, each.rank, each.cut_by, each.sampler_prob
            else:
                assert item is not None, line
                self._same(int(shown[4]), item.id, line)
                prob, rank, cut, sampler = item.prob, item.rank, None, item.sampler_prob
            self._equal(shown[1], prob * 100, line)
            if cut is None and each is None and tried:
                self._same(shown[2], "·", line)
            elif cut is None:
                self._equal(shown[2], sampler * 100, line)
            else:
                self._same(shown[2][:6], "0 %" if cut == "greedy" else cut[:6], line)
            self._same(plain(shown[3]), rank, line)
        if count and (shown := re.search(r"(\d+) more row", lines[-1])):
            self._same(int(shown[1]) + count, len(self._app.main.query_one(CandidatesPanel)._rows), lines[-1])

    def _sampler(
        self,
        choice: Distribution,
        row: Row | None,
        used: Settings | None,
        ids: Sequence[int],
        item: Item | None,
    ) -> None:
        """The last column is what was, or would be, drawn from; a row is known by what else stands in it."""
        lines, trial = self.lines(SamplerPanel), self._app.controller.timeline.trial
        at = next((n for n, line in enumerate(lines) if "model %" in columns(line, SAMPLER_CELLS)), None)
        # the second model's are no records of the session
        if at is None or lines[0].startswith("╭─ B "):
            return
        tried = trial is not None and trial.settings != used
        final: Mapping[int, float] = {each.id: each.sampler_prob for each in choice.candidates}
        model: Mapping[int, float] = {each.id: each.prob for each in choice.candidates}
        if tried:
            sampler = drawn_from(row, trial.settings, ids) if row is not None and trial is not None else None
            if row is None or sampler is None:
                return
            final, model = dict(enumerate(sampler.tolist())), dict(enumerate(softmax(row).tolist()))
        spans = columns(lines[at], SAMPLER_CELLS)
        for line in lines[at + 1 : -1]:
            cells = {head: line[begin:end].strip() for head, (begin, end) in spans.items()}
            last = cells.get("final %") or cells.get("taken %") or ""
            if re.match(rf".\s+(?:{COUNT}) (?:o|…|\s)", line) or not all(
                re.fullmatch(r"[<>]?[\d.]+", each) for each in (cells["model %"], last)
            ):
                continue
            own = [id for id, share in model.items() if agrees(cells["model %"], share * 100)]
            logit = cells.get("logit", "").replace("−", "-")
            if row is not None and re.fullmatch(r"-?[\d.]+", logit):
                own = [id for id in own if abs(row[id] - float(logit)) <= 0.0052]
            inserted = isinstance(item, Step) and item.id not in model  # of which the records say no more
            if not own and inserted and agrees(cells["model %"], item.prob * 100):
                continue
            assert any(agrees(last, final[id] * 100) for id in own), (line, own, trial, used)
            self.compared += 1

    def _attention(self, screen: AttentionView) -> None:
        """The weights in the list are those of the head that it names, at the token that the main screen is about."""
        timeline = self._app.controller.timeline
        slot = timeline.slot
        read = self._told.attention.get(timeline.items[slot - 1].node) if slot else None
        head: re.Match[str] | None = None
        for line in self._lines_of(screen, screen.view):
            if "Layer " in line:
                head = re.search(r"Layer (\d+), head (\d+) looks from ", line)
            if head is None or not (
                shown := re.search(rf"({PERCENT})  .* (\d+)  (?:(\d+) back|itself)", line)
            ):
                continue
            assert read is not None, f"of a token that was not read: {line}"
            layer = next(each for each in read.layers if each.layer == int(head[1]) - 1)
            at = int(shown[2]) - 1
            self._equal(shown[1], layer.over(int(head[2]) - 1, slot)[at] * 100, (head[0], line))
            self._same(int(shown[3] or 0), slot - 1 - at, line)

    # ---- two models, and many prompts -----------------------------------------------------------

    def _second_model(self, screen: SecondModelView) -> None:
        """Each side's candidates are those of its model at the cursor, and so is its entropy."""
        timeline, told = self._app.controller.timeline, self._told
        slot = timeline.slot
        if slot == len(timeline.items):
            span = told.ahead.get(timeline.tip)
        else:
            ends = ((n, told.spans.get(item.node)) for n, item in enumerate(timeline.items[slot:]))
            span = next((found for n, found in ends if found is not None and n < max(1, found.tokens)), None)
        for id, second in (("#second-model-first", False), ("#second-model-second", True)):
            panel = screen.query_one(id, DrawnPanel)
            if (lines := self._lines_of(screen, panel)) and screen.way is None:
                self._side(lines, span, second)

    def _side(self, lines: Sequence[str], span: LockstepSpan | None, second: bool) -> None:
        shown = [
            found
            for line in lines[1:-1]
            if not re.match(r". +others\b", line)
            and (found := re.search(rf"({PERCENT})  .*?(?: (#\d+|–))? *.$", line))
        ]
        if span is None:
            assert not shown, f"of a token that was not read: {lines}"
            return
        entropy = span.other_entropy_bits if second else span.entropy_bits
        if entropy is not None and (found := re.search(r"entropy ([\d.]+) bits", lines[-1])):
            self._equal(found[1], entropy, lines)
        own, others = span.candidates, span.other_candidates
        if second:
            own, others = others, own
        ranks = {each.id: f"#{each.rank}" for each in others}
        for found, each in zip(shown, own, strict=False):
            self._equal(found[1], each.prob * 100, (found.string, each))
            if found[2]:
                self._same(found[2], ranks.get(each.id, "–"), (found.string, each))

    def _batch(self, screen: BatchView) -> None:
        """The candidates of the lane that is highlighted."""
        lines = self._lines_of(screen, screen.query_one("#batch-lane", DrawnPanel))
        if not lines or not (lane := re.search(r"Lane (\d+) ", lines[0])):
            return
        head = next((line for line in lines if "next token: " in line or "last token: " in line), "")
        told = self._told.lasts if "last token: " in head else self._told.lanes
        choice = told.get(int(lane[1]))
        if choice is None:
            assert not head, f"of a lane that has not begun: {lines}"
            return
        if shown := re.search(r" ([\d.]+) bits ", head):
            self._equal(shown[1], choice.entropy_bits, head)
        rows = [found for line in lines if (found := re.search(rf"({PERCENT}) +(cut|{PERCENT}) *.$", line))]
        for found, each in zip(rows, choice.candidates, strict=False):
            self._equal(found[1], each.prob * 100, (found.string, each))
            if each.cut_by is None:
                self._equal(found[2], each.sampler_prob * 100, (found.string, each))
            else:
                self._same(found[2], "cut", (found.string, each))


def plain(count: str) -> int:
    """A whole number as it was painted."""
    return int(re.sub(r"\D", "", count))


def columns(line: str, cells: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Where the columns of a table are that is headed by a line.

    Args:
        line: The heads, each at the end of its column.
        cells: How wide each column is that may be there, by its head.
    """
    ends = {head: found.end() for head in cells if (found := re.search(rf"(?<= ){head}(?= )", line))}
    return {head: (end - cells[head], end) for head, end in ends.items()}


def same_text(painted: str, drawn: str) -> bool:
    """Whether two screens have the same words in each line, but for lines with marks that join the character before
    them: those have no cell, and what follows them stands where the libraries take it to stand."""
    lines, others = painted.split("\n"), drawn.split("\n")
    return len(lines) == len(others) and all(
        one.split() == other.split() or not all(map(cell_len, other))
        for one, other in zip(lines, others, strict=True)
    )
