"""The user's sessions, one file each in the state directory: where they are, which exist, which may be removed.

The last 50 are kept, within 500 MiB; the oldest go first. A session with a mark (a name, a bookmark, a note, a
caption), one that runs, and one whose file was renamed never go by themselves. Without Textual: the command line lists
sessions too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct

from engine.errors import EngineError, RecordingError
from engine.files import shorter, typed
from engine.protocol import DraftRound, InterventionsHeld
from engine.recording import Peek, RecordingReader, in_use, peek
from engine.settings import Settings
from inspector import places

MOST = 50
"""Sessions that are kept."""
MOST_BYTES = 500 * 2**20
MOST_NAMED = 3
"""Names in a message on a name that is none."""
ENDING = ".trace"
RECENT, PEEKED = 20, 10
"""Sessions whose models are recent, and the entries of each in which its model is looked for."""
_OWN = r"\d{8}-\d{6}-.*\.trace"
"""Names that the program gave."""
_BLOCK = 2**20
_STEP, _MARK = b"\xa5event\xa4Step", b"\xa5event\xa6Marked"


def folder() -> Path:
    """Where sessions are kept: in the user's state directory."""
    return places.state() / "sessions"


def new_path(directory: Path, model: str, now: datetime | None = None) -> Path:
    """A name for a session that begins now, which no file has yet.

    Args:
        directory: Where.
        model: Its name; what file systems may not like in it is left out.
        now: When; None for now.
    """
    stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
    stem = f"{stamp}-{re.sub('[^A-Za-z0-9._-]+', '-', model.rstrip('/').rsplit('/', 1)[-1])[:40] or 'model'}"
    path, number = directory / f"{stem}{ENDING}", 1
    while os.path.lexists(path):
        number += 1
        path = directory / f"{stem}-{number}{ENDING}"
    return path


# ---- which there are --------------------------------------------------------------------------


class SavedSession(Struct, frozen=True):
    """One session of a list."""

    path: Path
    changed: float
    """When something was last written, in seconds since 1970."""
    size: int
    """Bytes of its file."""
    peek: Peek | None
    """What its first entries hold; None where they can't be read."""
    tokens: int
    """Steps that were taken."""
    made: str = ""
    """What some of its tokens were made with beside the model and its sampler; printable."""
    problem: str = ""
    """Why it can't be read, if so."""

    @property
    def name(self) -> str:
        """What `--resume`, `replay` and `export` find it by."""
        return name_of(self.path)


def name_of(path: Path) -> str:
    """The name of the session in a file of the sessions' directory."""
    return path.name.removesuffix(ENDING)


def saved_sessions(directory: Path | None = None) -> list[SavedSession]:
    """Every session, the one last written to first. Reads all files: a moment for hundreds of MiB."""
    return [_look(path, changed) for changed, path in _newest(directory or folder())]


class PeekedSession(Struct, frozen=True):
    """A session of which the first entries alone were read."""

    path: Path
    changed: float
    """When something was last written, in seconds since 1970."""
    peek: Peek


def session_peeks(directory: Path | None = None) -> Iterator[PeekedSession]:
    """The sessions that can be read, the one last written to first: of each its first entries.

    Args:
        directory: Where sessions are kept; None for their usual place.
    """
    for changed, path in _newest(directory or folder()):
        try:
            yield PeekedSession(path, changed, peek(path))
        except (RecordingError, OSError):
            continue


def recent_models() -> list[str]:
    """Directories of the models of the last sessions, the latest first, each once."""
    paths: dict[str, None] = {}
    for _, path in _newest(folder())[:RECENT]:
        try:
            place = peek(path, PEEKED).model_path
        except (RecordingError, OSError):
            continue
        if place:
            paths[place] = None
    return list(paths)


def _newest(directory: Path) -> list[tuple[float, Path]]:
    try:
        names = [path for path in directory.iterdir() if path.suffix == ENDING and path.name[0] != "."]
    except OSError:  # there is no such directory yet
        return []
    return sorted(((_changed(path), path) for path in names), reverse=True)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it went meanwhile
        return 0.0


def _look(path: Path, changed: float) -> SavedSession:
    size = path.stat().st_size if path.exists() else 0
    try:
        return SavedSession(path, changed, size, peek(path), count(path, _STEP), made_with(path))
    except RecordingError as error:
        return SavedSession(path, changed, size, None, 0, "", error.message.replace(str(path), path.name))
    except OSError as error:
        return SavedSession(path, changed, size, None, 0, "", error.strerror or str(error))


def made_with(path: Path) -> str:
    """What was in force at some time of a session, of what changes how its tokens are made; its steps are not read.

    Raises:
        RecordingError: It can't be read.
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
    """How often some bytes occur in a file."""
    total, kept = 0, b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total += (kept + block).count(begin)
            kept = (kept + block)[-len(begin) + 1 :]
    return total


def find(name: str, directory: Path | None = None) -> Path:
    """The file that a name refers to: the one way in which `--resume`, `replay` and `export` take names.

    Args:
        name: A path, or the name of a session in the state directory, or the beginning of just one such name; empty for
            the last session.
        directory: Where sessions are kept; None for their usual place.

    Raises:
        EngineError: There is none, or several names begin so; with the names that may be meant.
    """
    directory = directory or folder()
    if not name:
        return _last(directory)
    places = (typed(name), directory / name, directory / f"{name}{ENDING}")
    path = next((path for path in places if os.path.isfile(path)), None)
    if path is not None:
        return path
    if os.path.exists(places[0]):
        kind = "a directory" if os.path.isdir(places[0]) else "no file that can be kept"
        raise EngineError(f"{name} is {kind}.", "Give a file that inspector saved.")
    return directory / f"{_begun_by(name, names(directory))}{ENDING}"


def names(directory: Path | None = None) -> list[str]:
    """The names of all sessions, the one last written to first; reads no file."""
    return [name_of(path) for _, path in _newest(directory or folder())]


def _begun_by(name: str, known: Sequence[str]) -> str:
    """The only session whose name begins so.

    Raises:
        EngineError: There is none, or more than one.
    """
    begun = [each for each in known if each.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise EngineError(
            f"{len(begun)} sessions begin with {shorter(name)!r}.", f"Say which: {_some(begun)}."
        )
    near = [each for each in known if name in each] or get_close_matches(name, known, MOST_NAMED)
    meant = f"Did you mean {_some(near)}? " if near else ""
    raise EngineError(
        f"There is no file and no session {shorter(name)!r}.", f"{meant}See `inspector sessions`."
    )


def _some(known: Sequence[str]) -> str:
    """A few names for a message, and how many there are beyond them."""
    more = len(known) - MOST_NAMED
    return ", ".join(known[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _last(directory: Path) -> Path:
    """The session last written to, of those that no other program has."""
    newest = [path for _, path in _newest(directory)]
    free = next((path for path in newest if not in_use(path)), None)
    if free is not None:
        return free
    if newest:
        raise EngineError("The only session is in use: another inspector runs it.", "End that one first.")
    raise EngineError(f"No session is saved in {directory}.", "Begin one: inspector.")


def find_growing(name: str, directory: Path | None = None) -> Path:
    """The file of a session that is to be followed.

    Args:
        name: As for `find`; empty for the last session that a program has open.
        directory: Where sessions are kept; None for their usual place.

    Raises:
        EngineError: There is none.
    """
    if name:
        return find(name, directory)
    directory = directory or folder()
    path = next((path for _, path in _newest(directory) if in_use(path)), None)
    if path is None:
        raise EngineError(
            f"No session in {directory} is running.",
            "Begin one with a prompt in another terminal: inspector.",
        )
    return path


# ---- which may go -----------------------------------------------------------------------------


def prune(directory: Path, most: int = MOST, most_bytes: int = MOST_BYTES) -> list[Path]:
    """Remove the oldest sessions beyond what is kept.

    Returns:
        Those that were removed.
    """
    return [path for path in _beyond(_newest(directory), most, most_bytes) if _removed(path)]


def _beyond(newest: Iterable[tuple[float, Path]], most: int, most_bytes: int) -> Iterator[Path]:
    """Those that don't fit any more, from the newest on, so that a large old one doesn't take newer ones along."""
    number = size = 0
    for _, path in newest:
        number, size = number + 1, size + _size(path)
        if number > most or size > most_bytes:
            size -= _size(path)
            yield path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _removed(path: Path) -> bool:
    try:
        if re.fullmatch(_OWN, path.name) is None or in_use(path) or count(path, _MARK):
            return False
        path.unlink()
    except OSError:
        return False
    return True
