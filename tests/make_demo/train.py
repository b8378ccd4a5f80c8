"""Records the training that comes with the program: `python -m tests.make_demo.train`, in some minutes.

Everything in it is the engine's own, times included; one step in five is kept, and four digits of each number.
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from engine.protocol import BeginTraining, Ended, Failure, Received, Sent, Train, TrainedStep
from engine.recording import Entry, save_as
from engine.settings import TrainingSettings
from engine.thread import EngineThread
from inspector.state.training import RECORDING
from inspector.version import program

SETTINGS = TrainingSettings(layers=4, width=128, steps=4000, every=50)
KEPT_EVERY = 5
"""Distance of the steps that are kept, in addition to those with a look."""


def rounded(value: Any) -> Any:
    """A record, or a value in one, with four digits of each number."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case tuple():
            return tuple(map(rounded, value))
        case Struct():
            return replace(value, **{name: rounded(each) for name, each in asdict(value).items()})
    return value


def main() -> None:
    """Train, and write the records."""
    received: SimpleQueue[Received] = SimpleQueue()
    engine = EngineThread(received.put)
    engine.start()
    entries = []
    for number, command in enumerate((BeginTraining(SETTINGS), Train(SETTINGS.steps)), 1):
        engine.send(Sent(command, number))
        while not isinstance(record := (each := received.get()).record, Ended):
            if isinstance(record, Failure):
                raise SystemExit(f"{record.message} {record.hint}")
            if isinstance(record, TrainedStep):
                if record.step % KEPT_EVERY and record.look is None:
                    continue
                record = rounded(record)
                if record.look is not None:
                    print(record.step, record.loss, record.look.held_out_loss, record.look.sample, flush=True)
            if each.id == number:
                entries.append(Entry(record))
    engine.close()
    save_as(RECORDING, entries, program())


if __name__ == "__main__":
    main()
