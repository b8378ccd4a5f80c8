"""The user's sessions, one file each in the state directory: listing, names, and the removal of old ones.

The last 50 are kept, within 500 MiB; the oldest are removed first. A session with a mark (a name, a bookmark, a note, a
caption), one that runs, and one with a renamed file are never removed. Doesn't import Textual, since the command line
uses it too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from engine.errors import EngineError, RecordingError
from engine.files import shorter, typed
from engine.protocol import DraftRound, InterventionsHeld
from engine.recording import Peek, RecordingReader, in_use, peek
from engine.settings import Settings
from inspector import places
from inspector.texts import few

MOST = 50
"""Number of sessions that are kept."""
MOST_BYTES = 500 * 2**20
MOST_NAMED = 3
"""Maximum number of similar names in a message."""
ENDING = ".trace"
RECENT, PEEKED = 20, 10
"""Number of last sessions that `recent_models` reads, and number of entries read of each."""
_OWN = r"\d{8}-\d{6}-.*\.trace"
"""Pattern of the names that the program gives."""
_BLOCK = 2**20
_STEP, _MARK = b"\xa5event\xa4Step", b"\xa5event\xa6Marked"


def folder() -> Path:
    """Directory of the sessions, in the user's state directory."""
    return places.state() / "sessions"


def new_path(directory: Path, model: str, now: datetime | None = None) -> Path:
    """An unused path for a new session.

    Args:
        directory: Directory of the sessions.
        model: Name of the model; characters that file systems may refuse are replaced.
        now: Beginning of the session; None for now.
    """
    stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
    stem = f"{stamp}-{re.sub('[^A-Za-z0-9._-]+', '-', model.rstrip('/').rsplit('/', 1)[-1])[:40] or 'model'}"
    path, number = directory / f"{stem}{ENDING}", 1
    while os.path.lexists(path):
        number += 1
        path = directory / f"{stem}-{number}{ENDING}"
    return path


# ---- the list ---------------------------------------------------------------------------------


class SavedSession(Struct, frozen=True):
    """One session of a list."""

    path: Path
    changed: float
    """Time of the last write, in seconds since 1970."""
    size: int
    peek: Peek | None
    """Contents of its first entries; None if they can't be read."""
    tokens: int
    """Number of steps."""
    made: str = ""
    """Conditions such as interventions under which some tokens were made; printable."""
    problem: str = ""
    """Reason that it can't be read; otherwise empty."""

    @property
    def name(self) -> str:
        """Name by which `--resume`, `replay` and `export` find it."""
        return name_of(self.path)


def name_of(path: Path) -> str:
    """The name of the session in a file of the sessions' directory."""
    return path.name.removesuffix(ENDING)


def saved_sessions(directory: Path | None = None) -> list[SavedSession]:
    """All sessions, the one last written to first. Reads every file, which takes a moment for hundreds of MiB."""
    return [_look(path, changed) for changed, path in _newest(directory or folder())]


def session_peeks(most: int | None = None, entries: int = 50) -> Iterator[tuple[Path, float, Peek]]:
    """The readable sessions, the one last written to first: path, time of the last write, first entries.

    Args:
        most: Maximum number of sessions; None for all.
        entries: Number of entries to read of each.
    """
    for changed, path in _newest(folder())[:most]:
        with suppress(RecordingError, OSError):
            yield path, changed, peek(path, entries)


def recent_models() -> list[str]:
    """Directories of the models of the last sessions, the latest first, each once."""
    paths = (found.model_path for _, _, found in session_peeks(RECENT, PEEKED))
    return list(dict.fromkeys(filter(None, paths)))


def _newest(directory: Path) -> list[tuple[float, Path]]:
    try:
        names = [path for path in directory.iterdir() if path.suffix == ENDING and path.name[0] != "."]
    except OSError:  # there is no such directory yet
        return []
    return sorted(((_changed(path), path) for path in names), reverse=True)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it was removed meanwhile
        return 0.0


def _look(path: Path, changed: float) -> SavedSession:
    size = path.stat().st_size if path.exists() else 0
    try:
        return SavedSession(path, changed, size, peek(path), count(path, _STEP), made_with(path))
    except RecordingError as error:
        problem = error.message.replace(str(path), path.name)
    except OSError as error:
        problem = error.strerror or str(error)
    return SavedSession(path, changed, size, None, 0, "", problem)


def made_with(path: Path) -> str:
    """All conditions under which tokens of a session may have been made; its steps are not read.

    Raises:
        RecordingError: The file can't be read.
    """
    from inspector.state.conditions import TextCondition, draft, grammar, held, order  # not needed for --help

    found: list[TextCondition | None] = []
    with RecordingReader(path, torn_ok=True, only=("Settings", "InterventionsHeld", "DraftRound")) as reader:
        for entry in reader:
            match entry.value:
                case Settings() as settings:
                    found += [grammar(settings), order(settings)]
                case InterventionsHeld(interventions=(_, *_) as units):
                    found.append(held(units))
                case DraftRound(stage="taken", settings=settings):
                    found.append(draft(settings.name))
    return " · ".join(dict.fromkeys(each.short for each in found if each is not None))


def count(path: Path, begin: bytes) -> int:
    """Number of occurrences of some bytes in a file."""
    total, kept = 0, b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total += (kept + block).count(begin)
            kept = (kept + block)[-len(begin) + 1 :]
    return total


def find(name: str, directory: Path | None = None, growing: bool = False) -> Path:
    """The file that a name refers to, for `--resume`, `replay` and `export` alike.

    Args:
        name: A path, the name of a session in the state directory, or the unambiguous beginning of one; empty for the
            last session.
        directory: Directory of the sessions; None for the default.
        growing: Whether an empty name means the last session of a running program, instead of the last one not in use.

    Raises:
        EngineError: There is no such session, or several names begin so; the error lists similar names.
    """
    directory = directory or folder()
    if not name:
        return _last(directory, growing)
    places = (typed(name), directory / name, directory / f"{name}{ENDING}")
    path = next((path for path in places if os.path.isfile(path)), None)
    if path is not None:
        return path
    if os.path.exists(places[0]):
        kind = "a directory" if os.path.isdir(places[0]) else "no file that can be kept"
        raise EngineError(f"{name} is {kind}.", "Give a file that inspector saved.")
    known = names(directory)
    begun = [each for each in known if each.startswith(name)]
    if len(begun) == 1:
        return directory / f"{begun[0]}{ENDING}"
    short = repr(shorter(name))
    if begun:
        raise EngineError(
            f"{len(begun)} sessions begin with {short}.", f"Say which: {few(begun, MOST_NAMED)}."
        )

    from difflib import get_close_matches  # not needed for --help

    near = [each for each in known if name in each] or get_close_matches(name, known, MOST_NAMED)
    meant = f"Did you mean {few(near, MOST_NAMED)}? " if near else ""
    raise EngineError(f"There is no file and no session {short}.", f"{meant}See `inspector sessions`.")


def names(directory: Path | None = None) -> list[str]:
    """The names of all sessions, the one last written to first; reads no file."""
    return [name_of(path) for _, path in _newest(directory or folder())]


def _last(directory: Path, growing: bool) -> Path:
    """The session last written to, among those that another program is running, or among all others."""
    newest = [path for _, path in _newest(directory)]
    path = next((path for path in newest if in_use(path) == growing), None)
    if path is not None:
        return path
    if growing:
        hint = "Begin one with a prompt in another terminal: inspector."
        raise EngineError(f"No session in {directory} is running.", hint)
    if newest:
        raise EngineError("The only session is in use: another inspector runs it.", "End that one first.")
    raise EngineError(f"No session is saved in {directory}.", "Begin one: inspector.")


# ---- removal ----------------------------------------------------------------------------------


def prune(directory: Path, most: int = MOST, most_bytes: int = MOST_BYTES) -> list[Path]:
    """Remove the oldest sessions over the limits, and return their paths.

    A session that is too large doesn't count against the limit of older ones.
    """
    removed, used = [], 0
    for number, (_, path) in enumerate(_newest(directory), 1):
        with suppress(OSError):
            size = path.stat().st_size
            if number <= most and used + size <= most_bytes:
                used += size
            elif re.fullmatch(_OWN, path.name) and not in_use(path) and not count(path, _MARK):
                path.unlink()
                removed.append(path)
    return removed
