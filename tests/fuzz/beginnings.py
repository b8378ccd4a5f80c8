"""How the sessions of random use begin: a model, a recording, a lesson, two models, other processes, a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.grammar_settings import Grammar
from engine.model.synthetic import write
from engine.protocol import Loading, OpenLockstep, Record
from engine.remote.client import RemoteEngine
from engine.remote.link import ProcessLink
from engine.settings import LoadSettings, Settings
from engine.trace import Entry, Journal, save_as
from inspector.lessons.catalogue import ORDER, find
from inspector.session.playback import Opening, checked
from inspector.tools.registry import FOLLOWING, with_against, with_lesson
from tests.fuzz.actions import Scenario
from tests.inspector.fakes import HOSTILE, STORY, Session
from tests.zoo import CONFIGS

PROGRAM = "fuzz"
SCHEMA = """{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
"tags": {"type": "array", "items": {"enum": ["a", "bb", "ccc"]}}}, "required": ["name", "age"]}"""
LARGE: Mapping[str, Any] = CONFIGS["llama"] | {
    "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "hidden_size": 128, "head_dim": 4,
    "intermediate_size": 64,
}  # fmt: skip
"""As many layers and heads as the largest models that people run have, and next to no weights."""
GROWN = 200
"""Steps that the session of a watcher goes through, again and again from another branch."""


@dataclass(frozen=True)
class Begin:
    """What an application is made with."""

    load: LoadSettings
    settings: Settings
    more: Mapping[str, Any]
    """Further arguments."""
    engine: RemoteEngine | None = None
    """One that runs in another process; None for one in this process."""
    let: Callable[[int], None] | None = None
    """Brings so many records of somebody else's session."""


def begin(scenario: Scenario, settings: Settings, folder: Path, resources: ExitStack) -> Begin:
    """What the application of a scenario is made with.

    Args:
        scenario: Of any kind.
        settings: What it samples with, unless the kind says otherwise.
        folder: Of the sandbox.
        resources: Closed with the session.
    """
    load = LoadSettings(model_of(scenario.model, folder))
    match scenario.kind:
        case "lesson" | "presenter":
            listed = find(ORDER[scenario.number % len(ORDER)])
            tools = with_lesson(listed, scenario.kind == "presenter")
            return Begin(LoadSettings(model=listed.lesson.model), listed.lesson.settings, {"tools": tools})
        case "lesson-recorded":
            listed = find(ORDER[scenario.number % len(ORDER)])
            opening = Opening(checked(listed.trace), play=True)
            return Begin(load, Settings(), {"trace": opening, "tools": with_lesson(listed)})
        case "lockstep":
            return Begin(load, settings, {"tools": with_against(OpenLockstep(load, 4, 32))})
        case "grammar":
            constrained = Settings(
                temp=settings.temp, seed=7, max_tokens=60, grammar=Grammar("json-schema", SCHEMA)
            )
            return Begin(load, constrained, {})
        case "ranks":
            return Begin(LoadSettings(load.model, ranks=2), settings, {}, _elsewhere())
        case "far":
            return Begin(load, settings, {}, _elsewhere())
        case "watcher":
            growing = Growing(folder / f"watched-{scenario.number}.jsonl")
            resources.callback(growing.close)
            more = {"trace": Opening(growing.path, follow=True), "tools": FOLLOWING}
            return Begin(LoadSettings(), Settings(), more, let=growing.let)
        case "replay":
            return Begin(load, settings, {"trace": Opening(trace(folder / "trace.jsonl"))})
        case "failed":
            return Begin(LoadSettings("no-such-model"), settings, {})
        case _:
            return Begin(load, settings, {})


def model_of(family: str, folder: Path) -> str:
    """The directory of a model of a family, written when it is asked for first; pocket comes with the program."""
    if family == "pocket":
        return family
    path = folder / family
    return str(path if path.exists() else write(path, LARGE if family == "large" else CONFIGS[family]))


def _elsewhere() -> RemoteEngine:
    engine = RemoteEngine(lambda record: None, ProcessLink(PROGRAM), PROGRAM)
    engine.connect()
    return engine


class Growing:
    """A session of somebody else, written on while it is watched: steps, hostile tokens, branches.

    Args:
        path: Of its file; one that is there is written anew.
    """

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path = path
        session = Session((*STORY[:12], *HOSTILE, *STORY[12:30]))
        self._journal = Journal.create(path, PROGRAM)
        first = [each for each in (*session.load(), *session.open()) if not isinstance(each, Loading)]
        self._write(first)
        self._records = iter(self._session(session))

    def _session(self, session: Session) -> list[Record]:
        begun = len(session.records)
        for _ in range(GROWN // 20):
            steps = session.steps(20)
            other = next(each.id for each in steps[5].choice.candidates if each.id != steps[5].id)
            session.choose(steps[5].parent, other)
        return session.records[begun:]

    def let(self, count: int) -> None:
        """Write so many records."""
        self._write([record for _, record in zip(range(min(count, 20)), self._records, strict=False)])

    def _write(self, records: list[Record]) -> None:
        for record in records:
            self._journal.write(record)
        self._journal.flush()

    def close(self) -> None:
        """End the session."""
        self._journal.close()


def trace(path: Path) -> Path:
    """A recording with a fork, and with tokens that no terminal should see."""
    if not path.exists():
        made = Session((*STORY[:12], *HOSTILE, *STORY[12:30]))
        made.load()
        made.open()
        steps = made.steps(24)
        other = next(each.id for each in steps[5].choice.candidates if each.id != steps[5].id)
        made.choose(steps[5].parent, other)
        made.steps(6)
        entries = [Entry(LoadSettings("pocket"), 0.0)]
        entries += [
            Entry(each, n / 100) for n, each in enumerate(made.records) if not isinstance(each, Loading)
        ]
        save_as(path, entries, "fuzz")
    return path
