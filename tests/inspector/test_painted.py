"""What each view paints of one recording is what it painted before, colours included.

The recording `painted/every-view.trace.zst` has an answer of each view, so no model is needed and no number differs
from machine to machine. `painted/*.txt` has what each view paints at 120x40, `painted/80x24.digests` a number for what
it paints at 80x24. After an intended change:

    PAINTED=write python -m pytest -n0 tests/inspector/test_painted.py

writes them again, and the recording if it is missing; look at the difference before it is committed.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.inspector.outside import Outside, outside
from tests.inspector.test_views import ASKS, VIEWS, home

HERE = Path(__file__).parent / "painted"
RECORDING, DIGESTS = HERE / "every-view.trace.zst", HERE / "80x24.digests"
WRITES = os.environ.get("PAINTED") == "write"
ELSEWHERE = {
    "Open model", "Sessions", "Save", "Copy", "Export", "Find a token", "Type your own", "Constrain",
    "Watch a model learn", "Keep", "Lessons", "Help", "Find anything", "Requests", "Model facts",
}  # fmt: skip
"""What shows the machine or the program rather than the recording."""
SHOWN = [view for view in VIEWS if view.name not in ELSEWHERE]
FIRST = ("Drafts", "Beams", "Race", "Batch", "Second model")
"""They are asked first: what they add to the tree is in what the others show."""
ALSO_ASKED = {"Batch": ("enter", "space", "space"), "Second model": ("enter",)}


def lines_of(user: Outside) -> list[str]:
    """The painted lines, each after eight digits that change with its colours."""
    found = []
    for segments in user.looks:
        colours = "|".join(f"{part.style}:{len(part.text)}" for part in segments)
        text = "".join(part.text for part in segments).rstrip()
        found.append(f"{zlib.crc32(colours.encode()):08x} {text}".rstrip())
    return found


async def replayed(size: tuple[int, int]) -> AsyncIterator[tuple[str, list[str]]]:
    """What each view paints, by its name."""
    if WRITES and not RECORDING.exists():
        HERE.mkdir(exist_ok=True)
        await record()
    async with outside("replay", str(RECORDING), "--no-save", "--theme", "dark", size=size) as user:
        for view in SHOWN:
            await user.press(*view.keys)
            yield view.name, lines_of(user)
            await home(user)


def file_of(name: str) -> Path:
    """The file of what a view paints at 120x40."""
    return HERE / f"{name.lower().replace(' ', '-')}.txt"


async def record() -> None:
    """Record a session in which each view was asked for once."""
    order = [view for view in SHOWN if view.name in FIRST] + [
        view for view in SHOWN if view.name not in FIRST
    ]
    async with outside("--no-save", "--seed", "7", "--temp", "1", "--max-tokens", "12") as user:
        await user.press("space", "space", "space", "left", "down", "enter", "space", "4", "b")
        for view in order:
            await user.press(*view.keys, *ALSO_ASKED.get(view.name, ASKS.get(view.name, ())))
            await home(user)
        await user.press("7", "ctrl+s", *["backspace"] * 40, *str(RECORDING), "enter")
        await user.until(RECORDING.exists)


async def test_each_view_paints_what_it_painted() -> None:
    changed = []
    async for name, lines in replayed((120, 40)):
        if WRITES:
            file_of(name).write_text("\n".join(lines) + "\n")
        elif lines != file_of(name).read_text().splitlines():
            changed.append(name)
            print(name, *lines, sep="\n")
    assert not changed, "see above what is painted; the files have what was painted before"


async def test_and_at_80x24() -> None:
    before, found = (DIGESTS.read_text().splitlines() if DIGESTS.exists() else []), []
    async for name, lines in replayed((80, 24)):
        found.append(f"{name}: {zlib.crc32(chr(10).join(lines).encode()):08x}")
        if found[-1] not in before and not WRITES:
            print(name, *lines, sep="\n")
    if WRITES:
        DIGESTS.write_text("".join(f"{line}\n" for line in found))
    else:
        assert found == before, "see above what is painted"
