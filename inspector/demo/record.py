"""Records the demonstration and the scenes anew: `python -m inspector.demo.record`, from a checkout, in some seconds.

Everything in them is what the engine did while they were gone through, times included. A scene is commands on the
bundled model, and captions that open the screen they speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from engine.protocol import (
    AddLanes,
    AdvanceBatch,
    Command,
    CompareBatch,
    LanePrompt,
    Marked,
    OpenLockstep,
    PartWays,
    Prefill,
    ReadLockstep,
    StartBatch,
    TakeStep,
)
from engine.settings import LoadSettings, Settings
from inspector.demo import DEMONSTRATION, LESSON, SCENES
from inspector.lessons.headless import engine_session, record, recording
from inspector.lessons.reading import read
from inspector.session.controller import Controller

Act = Callable[[Controller], Command]


class Said(Struct, frozen=True):
    """A caption, and the id of the tool whose screen shows what it says."""

    text: str
    tool: str


class Scene(Struct, frozen=True):
    """One recording: its session and its keys."""

    settings: Settings
    acts: Sequence[Act | Said]


def _always(command: Command) -> Act:
    return lambda _: command


def _read_lockstep(on: Controller) -> Command:
    return ReadLockstep(on.timeline.tip, candidates=8)


_SHORT = LanePrompt("Tom had a", settings=Settings(temp=0.8, seed=3, max_tokens=6))
SCRIPTS: Mapping[str, Scene] = {
    "batch": Scene(
        Settings(temp=0.8, seed=7, max_tokens=14, candidates=10),
        (
            _always(Prefill("Once upon a time", chat=False)),
            _always(
                StartBatch(
                    (
                        LanePrompt("Once upon a time"), LanePrompt("The dog was"),
                        LanePrompt("Lily and her mom went to the park. They saw a"), _SHORT,
                    ),
                    size=3, steps=0,
                )
            ),
            Said("Three prompts at once, and one that waits. The short ones have padding (░) before them.", "batch"),
            *[_always(AdvanceBatch(steps=1))] * 2,
            Said("Each step is one forward for all lanes; each lane has candidates and a draw of its own.", "batch"),
            _always(AddLanes((LanePrompt("The end of the"),))),
            _always(AdvanceBatch()),
            Said("Where a lane ended, one that waited began: see what the rows were used for.", "batch"),
            _always(CompareBatch()),
            Said("Each prompt alone gives the same ids; all at once took less time than one after another.", "batch"),
        ),
    ),
    "lockstep": Scene(
        Settings(temp=0.0, candidates=10),
        (
            _always(Prefill("Once upon a time, there was a little girl named Lily. She loved to", chat=False)),
            _always(OpenLockstep(LoadSettings(), bits=4)),
            _read_lockstep,
            Said("P is the model, Q the same in 4 bits: the colours say how far apart they are.", "lockstep"),
            *[act for _ in range(6) for act in (_always(TakeStep()), _read_lockstep)],
            Said("≠ marks where the likeliest token is another one. n goes to the next of them.", "lockstep"),
            lambda on: PartWays(on.timeline.tip, tokens=24),
            Said("Each went its own way from here. Press w: where they part, and where they meet.", "lockstep"),
        ),
    ),
}  # fmt: skip


def record_scene(scene: Scene, path: Path) -> int:
    """Go through a scene with the bundled model and write its trace.

    Args:
        scene: What is done.
        path: Of the trace; replaced, if it is there.

    Returns:
        Bytes of the file.

    Raises:
        EngineError: The model can't be loaded, or the file can't be written.
    """
    load = LoadSettings(dtype="float32")  # the same tokens on every machine, whatever BLAS it has
    with engine_session(load, scene.settings) as session, recording(session, path, load.model):
        client = session.controller.client
        for act in scene.acts:
            if isinstance(act, Said):
                client.receive(Marked(session.controller.timeline.tip, caption=act.text, tool=act.tool))
                continue
            request = client.request(act(session.controller))
            session.until(lambda request=request: request.done)  # type: ignore[misc]
    return path.stat().st_size


def main() -> None:
    """Write them in the place of those before."""
    written = record(read(LESSON), DEMONSTRATION, LoadSettings(), print)
    print(f"{DEMONSTRATION.name}: {written:,} bytes")
    for name, path in SCENES.items():
        print(f"{path.name}: {record_scene(SCRIPTS[name], path):,} bytes")


if __name__ == "__main__":
    main()
