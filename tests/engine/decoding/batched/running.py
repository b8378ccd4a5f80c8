"""Batches in the worker that carries them out, and what each prompt comes to in a session of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import protocol
from engine.model.load import Loaded
from engine.protocol import BatchOpened, LaneCompared, LanePrompt, LaneToken, Record, StartBatch
from engine.session.node_records import stop_reached
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.engine.unthreaded import Unthreaded
from tests.zoo import Zoo

CREATIVE = Settings(temp=0.9, top_p=0.95, seed=11, max_tokens=12)


class Batch(Unthreaded):
    """Batches in a worker with a model.

    Args:
        loaded: How its model is loaded.
        settings: The session's.
    """

    def __init__(self, loaded: LoadSettings, settings: Settings = CREATIVE) -> None:
        super().__init__(loaded, settings)

    def start(self, prompts: Sequence[str | LanePrompt], **more: Any) -> list[Record]:
        """What a batch of these prompts begins with, or comes to."""
        lanes = tuple(each if isinstance(each, LanePrompt) else LanePrompt(each) for each in prompts)
        return self.do(StartBatch(lanes, **more))

    @property
    def tokens(self) -> dict[int, list[LaneToken]]:
        """The tokens of each lane of the last batch."""
        begun = max(n for n, each in enumerate(self.records) if isinstance(each, BatchOpened))
        found: dict[int, list[LaneToken]] = {}
        for step in self.of(protocol.BatchStep, self.records[begun:]):
            for token in step.tokens:
                found.setdefault(token.lane, []).append(token)
        return found

    @property
    def ids(self) -> dict[int, list[int]]:
        """Their ids."""
        return {lane: [token.id for token in tokens] for lane, tokens in self.tokens.items()}


def source(zoo: Zoo, name: str, **more: Any) -> LoadSettings:
    """How a model of the zoo is loaded; `pocket` is the bundled one."""
    return LoadSettings(model="pocket" if name == "pocket" else str(zoo.path(name)), **more)


def alone(loaded: Loaded, ids: Sequence[int], settings: Settings) -> list[int]:
    """The ids that a session of its own generates after a prompt."""
    session = Session(loaded, settings)
    list(session.prefill("", list(ids), echo=False))
    found: list[int] = []
    while not found or stop_reached(session, session.node) is None:
        found.append(session.step().id)
    return found


def explained(compared: Sequence[LaneCompared]) -> bool:
    """Whether rounding explains what differs, and something was compared."""
    return bool(compared) and all(each.within for each in compared)
