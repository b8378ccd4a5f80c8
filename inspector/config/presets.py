"""Named sampling settings (five come with the program, the user's own are in a JSON file), and the prompts of a batch
with the settings of their lanes.

Doesn't import Textual, since the command line uses it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from engine.errors import EngineError, PromptError, SettingsError
from engine.protocol import LanePrompt
from engine.setting import check
from engine.settings import BY_NAME, FIELDS, Settings
from inspector import places
from inspector.config.files import TableFile

OUTSIDE = frozenset({"seed", "max_tokens", "stop", "candidates"})
"""Settings that a preset changes only if its file names them, since they don't shape the distribution."""
SHIPPED: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temp": 0.0},
    "precise": {"temp": 0.3, "top_p": 0.9},
    "plain": {"temp": 1.0},
    "creative": {"temp": 1.0, "min_p": 0.05, "repetition_penalty": 1.05, "repetition_context_size": 64},
    "wild": {"temp": 1.5, "min_p": 0.02, "xtc_probability": 0.5, "xtc_threshold": 0.1},
}
"""The presets that come with the program; every setting that one doesn't name is at its default."""
LONGEST_NAME = 40
_DEFAULTS = Settings()
_UNNAMED: Mapping[str, Any] = {
    field.name: getattr(_DEFAULTS, field.name) for field in FIELDS if field.name not in OUTSIDE
}
"""The defaults of the other settings, which a preset sets unless it names a value."""
_NUMBERS = {"float": (int, float), "int": (int,)}


class Presets:
    """All presets.

    Args:
        path: The file; None for `presets.json` in the user's configuration directory. It need not exist.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or places.config() / "presets.json"
        fault = "Preset {name!r} in {path} is not used: {error}"
        self._file = TableFile(self.path, "presets", "NAME: {SETTING: VALUE}", "The presets", fault)
        self._seen: tuple[int, ...] = ()
        """Inode, time of change and size of the file when it was read, to recognize a new one."""
        self.refresh()

    def refresh(self) -> None:
        """Read the file if it has changed: another window may have saved meanwhile."""
        try:
            there = self.path.stat()
            seen: tuple[int, ...] = there.st_ino, there.st_ctime_ns, there.st_size
        except OSError as error:
            seen = (error.errno or 0,)
        if seen == self._seen:
            return
        self._seen = seen  # from before reading: changes during it are read the next time
        own, self.problems = self._file.read(lambda name, values: (checked_name(name), read(values)))
        self._own: dict[str, Mapping[str, Any]] = dict(own.values())
        self._all = {**SHIPPED, **self._own}
        self.names = tuple(self._all)
        """Names of the program's presets, then of the user's own in the order in which they were saved."""

    def is_own(self, name: str) -> bool:
        """True if a preset is in the user's file, so that it can be deleted."""
        return name in self._own

    def values(self, name: str) -> Mapping[str, Any]:
        """The settings that a preset names.

        Raises:
            EngineError: There is no such preset; the error lists those that exist.
        """
        values = self._all.get(name)
        if values is None:
            known = f"There are {', '.join(self.names)}."
            raise EngineError(f"There is no preset {name!r}.", " ".join((known, *self.problems)))
        return values

    def apply(self, name: str, settings: Settings) -> Settings:
        """Settings with a preset applied; those that no preset changes stay.

        Raises:
            EngineError: There is no such preset.
        """
        return replace(settings, **{**_UNNAMED, **self.values(name)})

    def matching(self, settings: Settings) -> str:
        """The first preset that wouldn't change the settings; empty if there is none."""
        return next((name for name in self.names if self.apply(name, settings) == settings), "")

    def save(self, name: str, settings: Settings) -> str:
        """Save settings under a name, replacing a preset with that name.

        Args:
            name: 1 to 40 characters.
            settings: The settings; those of `OUTSIDE` are left out.

        Returns:
            A sentence for the user: where the preset was saved, and whether a damaged file was renamed.

        Raises:
            EngineError: The name is invalid, or the file can't be written.
        """
        name = checked_name(name)

        def edit(presets: Mapping[str, Any]) -> Mapping[str, Any]:
            before = presets.get(name)
            unknown = before.items() if isinstance(before, dict) else ()
            kept = {key: value for key, value in unknown if key not in BY_NAME}
            return {**presets, name: preset_values(settings) | kept}

        moved = self._file.change(edit)
        self.refresh()
        return f"Saved as {name} in {self.path}.{moved}"

    def delete(self, name: str) -> str:
        """Delete one of the user's own presets.

        Returns:
            A sentence for the user.

        Raises:
            EngineError: It isn't the user's own, or the file can't be written.
        """
        self.refresh()
        if not self.is_own(name):
            raise EngineError(f"{name} comes with the program.", "Only presets of your own can be deleted.")
        self._file.change(lambda presets: {key: value for key, value in presets.items() if key != name})
        self.refresh()
        return f"Deleted {name}." + (" The program's own preset is back." if name in SHIPPED else "")


# ---- one preset -------------------------------------------------------------------------------


def checked_name(name: str) -> str:
    """A name without spaces at its edges.

    Raises:
        EngineError: It is empty, too long, or has characters that aren't printable.
    """
    name = name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise EngineError(
            f"A preset's name has 1 to {LONGEST_NAME} printable characters, not {name[:60]!r}.",
            "Give it another name.",
        )
    return name


def preset_values(settings: Settings) -> dict[str, Any]:
    """Settings in the form of a preset: those that differ from the defaults, numbers as numbers."""
    values: dict[str, Any] = {}
    for field in FIELDS:
        value = getattr(settings, field.name)
        if field.name not in OUTSIDE and value != getattr(_DEFAULTS, field.name):
            values[field.name] = value if field.kind in _NUMBERS else field.format(value)
    return values or {"temp": settings.temp}


def read(given: object) -> dict[str, Any]:
    """The settings that a preset names; other entries are ignored.

    Raises:
        EngineError: A value is invalid, or they don't go together.
    """
    if not isinstance(given, dict):
        raise EngineError("It is not a table of settings.", 'Write it as {"temp": 0.8}.')
    values = {name: _value(name, value) for name, value in given.items() if name in BY_NAME}
    check(replace(_DEFAULTS, **values))
    return values


def _value(name: str, value: object) -> Any:
    field = BY_NAME[name]
    numbers = _NUMBERS.get(field.kind)
    if isinstance(value, bool) or not isinstance(value, numbers or str):
        form = field.bounds if numbers else "a text"
        raise SettingsError(name, f"{field.label} must be {form}, not {json.dumps(value)}.")
    if isinstance(value, str):
        return field.parse(value)
    field.check(value)
    return float(value) if field.kind == "float" else value


# ---- a batch's prompts as lines: each a text, or an object with a prompt and its lane's settings ----

OWN = ("prompt", "system")
"""Names in an object that aren't settings."""
FORM = '{"prompt": "...", "seed": 1, "temp": 0.7}'


def lanes(lines: Sequence[str], like: LanePrompt, settings: Settings) -> tuple[LanePrompt, ...]:
    """The prompts of some lines.

    A line is an object if it is JSON and has a prompt; any other line is a prompt itself, with its braces.

    Args:
        lines: The lines, none of them empty.
        like: Defaults for the prompts.
        settings: Defaults for the settings of a line that has any.

    Raises:
        PromptError: An object has an unknown setting or an invalid value; the error names the prompt's number.
    """
    prompts = []
    for number, line in enumerate(lines, 1):
        try:
            given = json.loads(line)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or "prompt" not in given:
            prompts.append(replace(like, text=line))
            continue
        try:
            prompts.append(
                _lane({key.replace("-", "_"): each for key, each in given.items()}, like, settings)
            )
        except EngineError as error:
            raise PromptError(f"Prompt {number}: {error.message}", error.hint) from error
    return tuple(prompts)


def _lane(given: dict[str, Any], like: LanePrompt, settings: Settings) -> LanePrompt:
    for name in OWN:
        if name in given and not isinstance(given[name], str):
            raise PromptError(f"its {name} is not a text.", f"Write it as {FORM}.")
    if not given["prompt"]:
        raise PromptError("its prompt is empty.", "Give some text.")
    own = {name: value for name, value in given.items() if name not in OWN}
    if unknown := [name for name in own if name not in BY_NAME]:
        raise PromptError(
            f"there is no setting {unknown[0]!r}.",
            "Settings have the names of the flags: temp, top_p, seed, max_tokens.",
        )
    lane = replace(like, text=given["prompt"], system=given.get("system", like.system))
    values = read(own)
    return replace(lane, settings=check(replace(settings, **values)) if values else None)
