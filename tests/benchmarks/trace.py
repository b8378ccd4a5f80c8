"""What a recording takes: bytes a step, what writing costs, and how soon one of 50,000 steps is there.

    python -m tests.benchmarks.trace [--count STEPS]

Steps are those of the long one.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from engine.model.load import load as load_model
from engine.protocol import Distribution, Prefilled, PromptOpened, Record, Step
from engine.recording import Entry, Journal, RecordingReader, load, save_as
from engine.recording.file import FrameWriter, uncollected
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from inspector.state.timeline import Timeline
from tests.benchmarks.vocabularies import MODELS, Asked, Figures, by_command

STEPS, LONG = 300, 50_000
SETTINGS = {
    "greedy": Settings(),
    "T 0.8, top-p 0.95": Settings(temp=0.8, top_p=0.95, seed=7),
    "T 1, no filter": Settings(temp=1.0, seed=7),
    "penalties, XTC": Settings(temp=1.2, min_p=0.02, xtc_probability=0.5, repetition_penalty=1.1, seed=7),
}
PROGRAM = "benchmark 1"
FIRST = 100
"""Entries that are read before the first time is shown."""


def recorded(settings: Settings, model: str = "pocket") -> list[Record]:
    """A session of a model."""
    session = Session(load_model(LoadSettings(model=model)), settings)
    prompt = "Once upon a time"
    found: list[Record] = [*session.prefill(prompt, session.tokens.encode(prompt))]
    return [*found, *(session.step() for _ in range(STEPS))]


def sizes(records: list[Record]) -> list[int]:
    """Bytes of each step's frame."""
    writer = FrameWriter(PROGRAM)
    writer.header()
    frames = [(record, writer.entry(Entry(record, 12.345))) for record in records]
    return sorted(len(frame) for record, frame in frames if isinstance(record, Step))


def long(records: list[Record], count: int) -> Iterator[Entry]:
    """A session of so many steps, of which each reads like one of the recorded ones."""
    opened = next(record for record in records if isinstance(record, PromptOpened))
    steps = [record for record in records if isinstance(record, Step)]
    yield from (Entry(record) for record in records if not isinstance(record, Step))
    tip = next(record for record in records if isinstance(record, Prefilled)).next
    node = opened.tokens[-1].node
    for index in range(count):
        like = steps[index % len(steps)]
        following = _moved(like.next, node + 1, like.next.position + index - like.index)
        yield Entry(
            replace(like, index=index, position=tip.position, node=node + 1, parent=node, choice=tip, next=following),
            index / 30,
        )  # fmt: skip
        node, tip = node + 1, following


def _moved(distribution: Distribution, node: int, position: int) -> Distribution:
    return replace(distribution, node=node, position=position)


def timed(work: Callable[[], object]) -> float:
    """Seconds of the processor: what else runs on the machine doesn't count."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def show(name: str, seconds: float, count: int = 0) -> None:
    """One line."""
    each = f"   {seconds / count * 1e6:7.1f} µs each" if count else ""
    print(f"{name:44} {seconds * 1000:9.1f} ms{each}")


def opening(path: Path, steps_written: int) -> None:
    """Read a long recording, and show the time of its first entries, too."""
    begun = time.process_time()
    reader, timeline, count = RecordingReader(path), Timeline(), 0
    with uncollected():
        for count, entry in enumerate(reader, 1):
            timeline.apply(entry.value)  # type: ignore[arg-type]
            if count == FIRST:
                show(f"{path.suffix}: the first {count} on the timeline", time.process_time() - begun)
    show(f"{path.suffix}: all on the timeline", time.process_time() - begun, count)
    show(f"{path.suffix}: all loaded, without a timeline", timed(lambda: load(path)), count)
    steps = timeline.steps
    assert len(steps) == steps_written
    show(
        "   ms and surprisal of every step",
        timed(lambda: [(s.ms.total, s.surprisal_bits) for s in steps]),
        len(steps),
    )
    show("   entropy of every step", timed(lambda: [s.choice.entropy_bits for s in steps]), len(steps))
    some = steps[:: max(1, len(steps) // 1000)]
    show("   candidates of one, first look", timed(lambda: [s.next.candidates for s in some]), len(some))


def journal(records: list[Record]) -> None:
    """What appending costs whoever does it, and the thread behind it."""
    with tempfile.TemporaryDirectory() as directory:
        _journal(records, Journal.create(Path(directory) / "session", PROGRAM))


def _journal(records: list[Record], made: Journal) -> None:
    show(
        "journal: write, for the one who calls", timed(lambda: [made.write(r) for r in records]), len(records)
    )
    made.close()
    writer = FrameWriter(PROGRAM)
    writer.header()
    show(
        "journal: encode, in its thread",
        timed(lambda: [writer.entry(Entry(r)) for r in records]),
        len(records),
    )


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for model, place in asked.each(*MODELS):
        largest, records = 0, list[Record]()
        for name, settings in SETTINGS.items():
            records = recorded(settings, place)
            found = sizes(records)
            largest = max(largest, found[-1])
            p95, middle = found[int(0.95 * len(found))], statistics.median(found)
            print(f"{model:12} {name:24} bytes a step: p50 {middle:.0f}   p95 {p95}   most {found[-1]}")
        journal(records)
        figures[f"{model} bytes"] = largest
    if not asked.models:
        long_recordings(recorded(SETTINGS["penalties, XTC"]), asked.times(LONG))
    return figures


def long_recordings(records: list[Record], count: int) -> None:
    """Write so many steps in each form, and read them."""
    with tempfile.TemporaryDirectory() as name:
        for suffix in ("", ".zst"):
            path = Path(name) / f"long.trace{suffix}"
            seconds = timed(lambda path=path: save_as(path, long(records, count), PROGRAM))  # type: ignore[misc]
            show(f"save {count} steps{suffix}, {path.stat().st_size / 2**20:.1f} MiB", seconds, count)
            opening(path, count)


if __name__ == "__main__":
    by_command(main, __doc__)
