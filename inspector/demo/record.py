"""Records the demonstration anew: `python -m inspector.demo.record`, from a checkout, in some seconds.

Everything in it is what the engine did while the lesson was gone through, times included.
"""

from __future__ import annotations

from engine.settings import LoadSettings
from inspector.demo import DEMONSTRATION, LESSON
from inspector.lessons.reading import read
from inspector.lessons.record import record


def main() -> None:
    """Write it in the place of the one before."""
    written = record(read(LESSON), DEMONSTRATION, LoadSettings(), print)
    print(f"{DEMONSTRATION.name}: {written:,} bytes")


if __name__ == "__main__":
    main()
