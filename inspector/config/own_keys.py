"""The user's own keys: `keys.toml` in the configuration directory, read once at the start.

    step = "n"                        # an action of the main screen
    run = ["r", "f5"]                 # several keys
    "race.again" = "ctrl+n"           # one of a view

Each fault in it is reported in a sentence, and the rest applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from engine.files import read_regular
from inspector import places
from inspector.keys import FIXED, MOVING, names_of, shown, textual_name

NAME = "keys.toml"
LIMIT = 64 * 1024
"""Maximum bytes of the file: all actions with three keys each take 12 KiB."""
_LONGEST = 60
"""Maximum number of characters of a name in a problem."""
_SUGGESTED = 10
"""Number of problems for which a similar name is suggested, since each search takes a millisecond."""
RESERVED = {"ctrl+q": "quits everywhere", "ctrl+p": "opens the finder everywhere"}
_PLAIN = FIXED | {"space", "backspace", "insert", "delete", *(f"f{number}" for number in range(1, 25))}
_MODIFIED = MOVING | {"delete"}
_ALIASES = frozenset("hijm[")
"""Keys that, with ctrl, are the same to a terminal as backspace, tab, enter and escape."""


class OwnKeys(Struct, frozen=True):
    """The keys and faults of a file."""

    keys: Mapping[str, tuple[str, ...]]
    """Valid keys, as Textual names them, by the id of their action."""
    problems: tuple[str, ...] = ()
    """Faults of the file, one sentence each."""


Place = tuple[str, Mapping[str, str]]
"""A screen whose actions apply together, as the end of a sentence, and their default keys by id, as in `KEYS`."""


def read(everywhere: Callable[[], Iterable[Place]], path: Path | None = None) -> OwnKeys:
    """Read the file; report its faults, and use what is valid.

    Args:
        everywhere: Returns all actions; called only if there is a file, since it imports every screen.
        path: The file; None for `keys.toml` in the user's configuration directory. It need not exist.
    """
    path = path or places.config() / NAME
    try:
        content = read_regular(path, LIMIT).decode()
        import tomllib  # imported only if there is a file

        entries = list(_entries(tomllib.loads(content)))
    except FileNotFoundError:
        return OwnKeys({})
    except (OSError, ValueError, RecursionError) as error:
        why = str(getattr(error, "strerror", None) or error)
        text = f"The keys in {path} can't be read: {why}. Correct the file; until then the usual keys apply."
        return OwnKeys({}, (text,))
    where = list(everywhere())
    usual = {id: keys for _, actions in where for id, keys in actions.items()}
    own: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    for id, value in entries:
        keys = [value] if isinstance(value, str) else value
        if wrong := _wrong(id[:_LONGEST], keys, usual, len(problems) < _SUGGESTED):
            problems.append(f"{NAME}: {wrong}")
        else:
            own[id] = tuple(dict.fromkeys(map(textual_name, cast("list[str]", keys))))
    while double := next(_doubles(own, where), None):
        id, problem = double
        del own[id]
        problems.append(f"{NAME}: {problem}")
    return OwnKeys(own, tuple(problems))


def _wrong(id: str, keys: Any, usual: Mapping[str, str], suggest: bool) -> str:
    """The fault of one entry by itself; empty if there is none."""
    if id not in usual:
        from difflib import get_close_matches

        near = get_close_matches(id, usual, 1) if suggest else []
        return f"there is no action {id}. " + (
            f"Did you mean {near[0]}?" if near else "`inspector --keys` lists them."
        )
    if not (isinstance(keys, list) and keys and all(isinstance(key, str) for key in keys)):
        return f'{id} is no key. Write it as {id} = "n", or with several as ["n", "f5"].'
    for key in keys:
        if not can_be_sent(key):
            key = key[:_LONGEST]
            return f"no terminal sends “{key}” for {id}. Take a letter, a sign, f1 to f12, or ctrl with a letter."
        if does := RESERVED.get(textual_name(key)):
            return f"{key} for {id} is not used: it {does}. Take another key."
    return ""


def _entries(content: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """The ids of a file and their values; tables are joined with dots."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _entries(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def can_be_sent(key: str) -> bool:
    """True if every terminal can send a key without extensions.

    Args:
        key: As the user writes it.
    """
    if len(key) < 2:
        return key.isprintable() and key.strip() != ""
    name = textual_name(key)
    modifier, _, last = name.rpartition("+")
    if not modifier:
        return name in _PLAIN or len(shown(name)) == 1
    if modifier == "ctrl" and len(last) == 1:
        return last in "abcdefghijklmnopqrstuvwxyz" and last not in _ALIASES
    return name in _PLAIN or (modifier in ("ctrl", "shift") and last in _MODIFIED)


def _doubles(own: Mapping[str, tuple[str, ...]], places: Sequence[Place]) -> Iterator[tuple[str, str]]:
    """The ids of own keys that another action also has, the later entry first, each with the problem."""
    order = list(own)
    for where, actions in places:
        taken: dict[str, str] = {}
        for id, keys in actions.items():
            for name in names_of(id, keys, own):
                other = taken.setdefault(name, id)
                mine = [each for one in (id, other) for each in _causes(one, actions) if each in own]
                if other == id or not mine:
                    continue
                cause = max(mine, key=order.index)
                holder = other if cause in _causes(id, actions) else id
                what = f"{shown(name)} for {cause} is not used: it is the key of {holder} {where}."
                yield cause, f"{what} Take another key, or give {holder} another one."


def _causes(id: str, actions: Mapping[str, str]) -> list[str]:
    """The actions whose own keys apply to an action: itself, and those that it takes its keys from."""
    return [id, *(key[1:] for key in actions[id].split() if key.startswith("@") and len(key) > 1)]
