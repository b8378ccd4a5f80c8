"""Records the demonstration and the scenes again: `python -m tests.make_demo.record`, in some seconds.

Everything in them was computed by the engine while they were recorded, times included. A scene is commands on the
bundled model, and captions that open the tool of the scene's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engine import protocol
from engine.protocol import Command, LanePrompt
from engine.settings import LoadSettings, Settings
from inspector.demo import DEMONSTRATION, LESSON, SCENES
from inspector.lessons.headless import engine_session, record, recording
from inspector.lessons.reading import read
from inspector.session.controller import Controller

Act = str | Command | Callable[[Controller], Command]
"""A caption, or a command."""


def _read_both(on: Controller) -> Command:
    return protocol.ReadLockstep(on.timeline.tip, candidates=8)


_STEP: tuple[Act, ...] = (protocol.TakeStep(), _read_both)
_BATCH = (
    LanePrompt("Once upon a time"),
    LanePrompt("The dog was"),
    LanePrompt("Lily and her mom went to the park. They saw a"),
    LanePrompt("Tom had a", settings=Settings(temp=0.8, seed=3, max_tokens=6)),
)
SCRIPTS: Mapping[str, tuple[Settings, Sequence[Act]]] = {
    "batch": (
        Settings(temp=0.8, seed=7, max_tokens=14, candidates=10),
        (
            protocol.Prefill("Once upon a time", chat=False),
            protocol.StartBatch(_BATCH, size=3, steps=0),
            "Three prompts at once, and one that waits. The short ones have padding (░) before them.",
            *[protocol.AdvanceBatch(steps=1)] * 2,
            "Each step is one forward for all lanes; each lane has candidates and a draw of its own.",
            protocol.AddLanes((LanePrompt("The end of the"),)),
            protocol.AdvanceBatch(),
            "Where a lane ended, one that waited began: see what the rows were used for.",
            protocol.CompareBatch(),
            "Each prompt alone gives the same ids; all at once took less time than one after another.",
        ),
    ),
    "second-model": (
        Settings(temp=0.0, candidates=10),
        (
            protocol.Prefill(
                "Once upon a time, there was a little girl named Lily. She loved to", chat=False
            ),
            protocol.OpenLockstep(LoadSettings(), bits=4),
            _read_both,
            "A is the model, B the same in 4 bits: the colours say how far apart they are.",
            *_STEP * 6,
            "≠ marks where the most probable tokens differ. . goes to the next one.",
            lambda on: protocol.PartWays(on.timeline.tip, tokens=24),
            "Each continued on its own from here. Press w: where they diverge, and where they match again.",
        ),
    ),
}


def record_scene(name: str, path: Path) -> int:
    """Run a scene with the bundled model and write its trace.

    Args:
        name: Key of `SCRIPTS`; with `_` for `-` the id of the tool that its captions open.
        path: The trace; replaced if it exists.

    Returns:
        Size of the file in bytes.

    Raises:
        EngineError: The model can't be loaded, or the file can't be written.
    """
    load = LoadSettings(dtype="float32")  # the same tokens on every machine, whatever BLAS it has
    settings, acts = SCRIPTS[name]
    with engine_session(load, settings) as session, recording(session, path, load.model):
        client = session.controller.client
        for act in acts:
            if isinstance(act, str):
                client.receive(
                    protocol.Marked(session.controller.timeline.tip, caption=act, tool=name.replace("-", "_"))
                )
                continue
            request = client.request(act if isinstance(act, Command) else act(session.controller))
            session.until(lambda request=request: request.done)  # type: ignore[misc]
    return path.stat().st_size


def main() -> None:
    """Replace the recordings."""
    written = record(read(LESSON), DEMONSTRATION, LoadSettings(), print)
    print(f"{DEMONSTRATION.name}: {written:,} bytes")
    for name, path in SCENES.items():
        print(f"{path.name}: {record_scene(name, path):,} bytes")


if __name__ == "__main__":
    main()
