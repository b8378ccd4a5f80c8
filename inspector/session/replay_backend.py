"""What stands in the engine's place while a recording is on show: shows its entries, and answers commands from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine import commands, records
from engine.commands import Command
from engine.records import Candidate, Ended, Explained, Failure, Record, TokensFound
from engine.settings import LoadSettings, Settings
from engine.token_query import TokenQuery, read
from engine.trace import Kept
from inspector.state.timeline import Timeline

REFUSED = "Recorded: no model is loaded. G goes on live from here"
_BEAMS = ("SearchBeams", "GoOnBeams")
_ANSWERS = (
    records.WhatIfAnswered, records.TokensFound, records.Tokenized, records.Recalled, records.Measuring,
    records.RaceOpened, records.RaceStep, records.RaceEnded, records.Profiled, records.RooflineMeasured,
    records.KVCompared, records.Swept, records.Loading, records.Restoring,
)  # fmt: skip
"""Records that answered a question of the person who recorded: nobody waits for them here."""


class Engine(Protocol):
    """What a live engine takes."""

    def start(self) -> None: ...

    def send(self, command: Command) -> None: ...

    def close(self, timeout: float = 2.0) -> bool: ...


class Stage(Protocol):
    """What a recording is shown on: the controller of the screen."""

    timeline: Timeline
    load: LoadSettings
    settings: Settings

    def use(self, settings: Settings) -> None: ...

    def tell(self, record: Record) -> None: ...


class ReplayBackend:
    """Takes commands as an engine does. Without a live one behind it it answers from the record, or says that it can't.

    Args:
        emit: Receives records, as from an engine.
        answer: Tells the person something.
    """

    def __init__(self, emit: Callable[[Record], None], answer: Callable[[str], None]) -> None:
        self._emit, self._answer = emit, answer
        self.stage: Stage
        """Set before the first entry is shown."""
        self.live: Engine | None = None
        """Takes everything once it is there."""
        self._explained: dict[int, Explained] = {}

    # ---- entries ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Clear the screen."""
        self._explained = {}
        before, self.stage.timeline = self.stage.timeline, Timeline(recorded=True)
        self.stage.timeline.generation = before.generation + 1  # or a view might take one for the other
        self.stage.timeline.readings = before.readings + 1

    def show(self, value: Kept) -> None:
        """Show what an entry tells."""
        match value:
            case LoadSettings():
                self.stage.load = value
            case Settings():
                self.stage.use(value)
            case Explained():
                if _whole(value):
                    self._explained[value.node] = value
            case Ended() | Failure():
                if value.command in _BEAMS:
                    self.stage.timeline.apply(value)
            case records.ModelFacts() if self.stage.timeline.facts is not None:
                self.begin()  # another model was opened
                self.stage.tell(value)
            case _:
                self._told(value)

    def _told(self, record: Record) -> None:
        if isinstance(record, _ANSWERS):
            return
        if isinstance(record, records.PromptOpened):
            self._explained = {}
        self.stage.tell(record)

    # ---- commands ---------------------------------------------------------------------------

    def start(self) -> None:
        """Nothing is to be started until a live engine is wanted."""

    def close(self, timeout: float = 2.0) -> bool:
        """End the live engine, where there is one."""
        return self.live is None or self.live.close(timeout)

    def send(self, command: Command) -> None:
        """Take a command."""
        if self.live is not None:
            self.live.send(command)
            return
        done = self._do(command)
        self._emit(Ended(type(command).__name__, cancelled=not done))

    def _do(self, command: Command) -> bool:
        """Do what can be done with the record alone; returns whether it was."""
        match command:
            case commands.MoveTo():
                return self._visit(command.node)
            case commands.Choose():
                return self._choose(command.node, command.id)
            case commands.Explain():
                self._emit(self._explain(command.node, command.settings))
            case commands.FindTokens():
                self._emit(self._find(command))
            case commands.Tokenize() | commands.WhatIf():
                self._emit(Failure(type(command).__name__, "No model is loaded.", "G goes on live."))
            case commands.LookAhead():
                pass  # what was recorded of it is shown already
            case commands.SearchBeams() | commands.GoOnBeams() | commands.Measure() | commands.Sweep():
                self._emit(Failure(type(command).__name__, "No model is loaded.", "G goes on live."))
            case _:
                self._answer(REFUSED)
                return False
        return True

    def _visit(self, node: int) -> bool:
        if node not in self.stage.timeline.nodes:
            self._answer("Recorded: nobody stepped here. G goes on live")
            return False
        self.stage.timeline.visit(node)
        return True

    def _choose(self, node: int, id: int) -> bool:
        timeline = self.stage.timeline
        for child in timeline.children.get(node, []):
            if timeline.nodes[child].id == id:
                timeline.select(len(timeline.path(child)) - 1)
                timeline.visit(timeline.leaf(child))
                return True
        self._answer("Recorded: this way was not taken. G goes on live, then every way is open")
        return False

    def _explain(self, node: int, settings: Settings | None) -> Explained | Failure:
        found = self._explained.get(node)
        if found is not None and found.used:
            return found
        return Failure("Explain", "The sampler's stages were not recorded here.", "G goes on live.")

    def _find(self, command: commands.FindTokens) -> TokensFound | Failure:
        """Search among the candidates that were recorded."""
        timeline = self.stage.timeline
        if timeline.before != command.node or not timeline.candidates:
            return Failure("FindTokens", "No candidates were recorded here.", "G goes on live.")
        query = read(command.query)
        found = tuple(each for each in timeline.candidates if _matches(each, query))
        return TokensFound(
            command.node, command.query, found[: command.limit], len(found), sum(each.prob for each in found)
        )


def _matches(candidate: Candidate, query: TokenQuery) -> bool:
    match query.kind:
        case "id":
            return candidate.id == query.id
        case "bytes":
            return query.raw in candidate.raw
        case _:
            text = candidate.text if query.cased else candidate.text.lower()
            return any(part in text for part in query.texts)


def _whole(explained: Explained) -> bool:
    """Whether an explanation has a value for each candidate, as one that an engine made does."""
    count = len(explained.next.candidates)
    parts = (explained.logits, explained.earlier, *(column.values for column in explained.columns))
    return all(len(part) == count for part in parts)
