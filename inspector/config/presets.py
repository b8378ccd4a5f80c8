"""Named sampling settings: five that come with the program, and the user's own in one JSON file.

The file is meant to be read and edited by hand. What this version doesn't know stays in it, and a file that can't be
read is moved aside, never overwritten. Without Textual: the command line reads presets too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import EngineError, SettingsError
from engine.files import TEXT_LIMIT, read_regular
from engine.frozen import frozen
from engine.settings import BY_NAME, FIELDS, Settings, check
from inspector import places
from inspector.config.files import alone, set_aside, write

OUTSIDE = frozenset({"seed", "max_tokens", "stop", "candidates"})
"""Settings that no preset touches unless its file names them: they don't shape a choice."""
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
_NUMBERS = {"float": (int, float), "int": (int,)}


def folder() -> Path:
    """The program's directory in the user's place for configuration."""
    return places.config()


@frozen
class StoredPresets:
    """The file as it was read."""

    content: Mapping[str, Any]
    """All of it, what is not understood too."""
    values: Mapping[str, Mapping[str, Any]]
    """The valid presets, by name."""
    problems: tuple[str, ...] = ()
    """What is invalid, one sentence each."""
    damaged: bool = False
    """Nothing of the file could be read."""


class Presets:
    """All presets.

    Args:
        path: The file; None for `presets.json` in the user's configuration directory. It need not exist.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or folder() / "presets.json"
        self._stored = self._read()

    @property
    def names(self) -> tuple[str, ...]:
        """Those that come with the program, then the user's own in the order in which they were saved."""
        own = [name for name in self._stored.values if name not in SHIPPED]
        return (*SHIPPED, *own)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is invalid in the file, one sentence each."""
        return self._stored.problems

    def is_own(self, name: str) -> bool:
        """Whether a preset is in the user's file, so that it can be deleted."""
        return name in self._stored.values

    def values(self, name: str) -> Mapping[str, Any]:
        """The settings that a preset names.

        Raises:
            EngineError: There is no such preset; with those that there are.
        """
        values = self._stored.values.get(name, SHIPPED.get(name))
        if values is None:
            hint = " ".join((f"There are {', '.join(self.names)}.", *self.problems))
            raise EngineError(f"There is no preset {name!r}.", hint)
        return values

    def apply(self, name: str, settings: Settings) -> Settings:
        """Settings with a preset in them; what no preset touches stays.

        Raises:
            EngineError: There is no such preset.
        """
        defaults = {f.name: getattr(_DEFAULTS, f.name) for f in FIELDS if f.name not in OUTSIDE}
        return replace(settings, **(defaults | dict(self.values(name))))

    def save(self, name: str, settings: Settings) -> str:
        """Keep settings under a name, replacing what was there.

        Args:
            name: 1 to 40 characters.
            settings: What to keep; those of `OUTSIDE` are left out.

        Returns:
            A sentence for the user: where it was kept, and what became of a damaged file.

        Raises:
            EngineError: The name is none, or the file can't be written.
        """
        name = checked_name(name)
        with alone(self.path):
            self._stored = self._read()  # another window may have saved meanwhile
            own = dict(self._own())
            before = own.get(name)
            unknown = (
                {k: v for k, v in before.items() if k not in BY_NAME} if isinstance(before, dict) else {}
            )
            own[name] = preset_values(settings) | unknown
            moved = set_aside(self.path) if self._stored.damaged else ""
            self._write(own)
        return f"Saved as {name} in {self.path}.{moved}"

    def delete(self, name: str) -> str:
        """Take one of the user's own presets out of the file.

        Returns:
            A sentence for the user.

        Raises:
            EngineError: It is none of them, or the file can't be written.
        """
        with alone(self.path):
            self._stored = self._read()
            if not self.is_own(name):
                raise EngineError(
                    f"{name} comes with the program.", "Only presets of your own can be deleted."
                )
            own = {key: value for key, value in self._own().items() if key != name}
            self._write(own)
        return f"Deleted {name}." + (" The one of the program is back." if name in SHIPPED else "")

    # ---- the file ---------------------------------------------------------------------------

    def _own(self) -> Mapping[str, Any]:
        """What the file has under `presets`, valid or not."""
        presets = self._stored.content.get("presets")
        return presets if isinstance(presets, dict) else {}

    def _read(self) -> StoredPresets:
        try:
            content = json.loads(read_regular(self.path, TEXT_LIMIT).decode())
        except FileNotFoundError:
            return StoredPresets({}, {})
        except (OSError, ValueError, RecursionError) as error:
            return self._damaged(str(getattr(error, "strerror", None) or error))
        if not isinstance(content, dict) or not isinstance(content.get("presets", {}), dict):
            return self._damaged('it is not {"presets": {NAME: {SETTING: VALUE}}}')
        return self._parsed(content)

    def _damaged(self, why: str) -> StoredPresets:
        text = f"The presets in {self.path} can't be read: {why}. Mend the file; saving sets it aside first."
        return StoredPresets({}, {}, (text,), damaged=True)

    def _parsed(self, content: Mapping[str, Any]) -> StoredPresets:
        values, problems = {}, []
        for name, given in content.get("presets", {}).items():
            try:
                values[checked_name(name)] = read(given)
            except EngineError as error:
                problems.append(f"Preset {name!r} in {self.path} is not used: {error}")
        return StoredPresets(content, values, tuple(problems))

    def _write(self, own: Mapping[str, Any]) -> None:
        """Replace the file as a whole: whoever reads it finds the old one or the new one."""
        text = json.dumps({**self._stored.content, "presets": own}, ensure_ascii=False, indent=2) + "\n"
        write(self.path, text)
        self._stored = self._read()


# ---- one preset -------------------------------------------------------------------------------


def checked_name(name: str) -> str:
    """A name without spaces at its edges.

    Raises:
        EngineError: It is empty, too long, or holds what can't be typed.
    """
    name = name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise EngineError(
            f"A preset's name has 1 to {LONGEST_NAME} printable characters, not {name[:60]!r}.",
            "Give it another.",
        )
    return name


def preset_values(settings: Settings) -> dict[str, Any]:
    """Settings as a preset holds them: those that are not at their default, numbers as numbers."""
    values: dict[str, Any] = {}
    for field in FIELDS:
        value = getattr(settings, field.name)
        if field.name not in OUTSIDE and value != getattr(_DEFAULTS, field.name):
            values[field.name] = value if field.kind in _NUMBERS else field.format(value)
    return values or {"temp": settings.temp}


def read(given: object) -> dict[str, Any]:
    """The settings that a preset names; what is no setting is passed over.

    Raises:
        SettingsError: One of them is no such value, or they don't go together.
    """
    if not isinstance(given, dict):
        raise EngineError("It is no table of settings.", 'Write it as {"temp": 0.8}.')
    values = {name: _value(name, value) for name, value in given.items() if name in BY_NAME}
    check(replace(_DEFAULTS, **values))
    return values


def _value(name: str, value: object) -> Any:
    field = BY_NAME[name]
    numbers = _NUMBERS.get(field.kind)
    if numbers is not None:
        if isinstance(value, bool) or not isinstance(value, numbers):
            raise SettingsError(name, f"{field.label} must be {field.bounds}, not {json.dumps(value)}.")
        field.check(value)
        return float(value) if field.kind == "float" else value
    if not isinstance(value, str):
        raise SettingsError(name, f"{field.label} must be a text, not {json.dumps(value)}.")
    return field.parse(value)
