"""Records the demonstration and the scenes anew: `python -m inspector.demo.record`, from a checkout, in some seconds.

Everything in them is what the engine did while they were gone through, times included.
"""

from __future__ import annotations

from engine.settings import LoadSettings
from inspector.demo import DEMONSTRATION, LESSON, SCENES
from inspector.demo.scenes import SCRIPTS, record_scene
from inspector.lessons.headless import record
from inspector.lessons.reading import read


def main() -> None:
    """Write them in the place of those before."""
    written = record(read(LESSON), DEMONSTRATION, LoadSettings(), print)
    print(f"{DEMONSTRATION.name}: {written:,} bytes")
    for name, path in SCENES.items():
        print(f"{path.name}: {record_scene(SCRIPTS[name], path):,} bytes")


if __name__ == "__main__":
    main()
