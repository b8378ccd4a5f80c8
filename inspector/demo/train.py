"""Records the training that comes with the program: `python -m inspector.demo.train`, from a checkout, in some minutes.

Everything in it is what the engine told while it trained, times included; of the steps every few are kept, and of their
numbers four digits.
"""

from __future__ import annotations

from queue import SimpleQueue

from msgspec.structs import replace

from engine.protocol import BeginTraining, Ended, Failure, Received, Sent, Train, TrainedStep
from engine.recording import Entry, save_as
from engine.settings import TrainingSettings
from engine.thread import EngineThread
from inspector.state.training import RECORDING
from inspector.version import program

SETTINGS = TrainingSettings(layers=4, width=128, steps=4000, every=50)
KEPT_EVERY = 5
"""Of the steps one in so many is kept, and each that was looked at."""


def rounded(value: float) -> float:
    """A number with four digits."""
    return float(f"{value:.4g}")


def shorter(step: TrainedStep) -> TrainedStep:
    """A step whose numbers have four digits."""
    look = step.look
    if look is not None:
        candidates = tuple(replace(each, prob=rounded(each.prob)) for each in look.candidates)
        look = replace(
            look, held_out_loss=rounded(look.held_out_loss), candidates=candidates, ms=rounded(look.ms)
        )
    return replace(
        step,
        loss=rounded(step.loss),
        rate=rounded(step.rate),
        norms=tuple(map(rounded, step.norms)),
        ms=rounded(step.ms),
        left_ms=rounded(step.left_ms),
        look=look,
    )


def main() -> None:
    """Train, and write what was told."""
    told: SimpleQueue[Received] = SimpleQueue()
    engine = EngineThread(told.put)
    engine.start()
    entries = []
    for number, command in enumerate((BeginTraining(SETTINGS), Train(SETTINGS.steps)), 1):
        engine.send(Sent(command, number))
        while not isinstance(record := (received := told.get()).record, Ended):
            if isinstance(record, Failure):
                raise SystemExit(f"{record.message} {record.hint}")
            if isinstance(record, TrainedStep):
                if record.step % KEPT_EVERY and record.look is None:
                    continue
                record = shorter(record)
                if record.look is not None:
                    print(record.step, record.loss, record.look.held_out_loss, record.look.sample, flush=True)
            if received.id == number:
                entries.append(Entry(record))
    engine.close()
    save_as(RECORDING, entries, program())


if __name__ == "__main__":
    main()
