"""What a person can set, with the names and defaults of `mlx_lm.generate` where it has them.

One table (`FIELDS`) names every setting once: flags, the settings screen and the checks are made from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from engine.errors import SettingsError

SEED_LIMIT = 2**64
KV_BITS = (2, 3, 4, 5, 6, 8)
KV_GROUP_SIZES = (32, 64, 128)


@dataclass(frozen=True, slots=True)
class Settings:
    """How tokens are sampled and when generation stops; may change at any step."""

    temp: float = 0.0
    """Temperature; 0 is greedy: the most probable token, and no filter matters."""
    top_p: float = 1.0
    """Nucleus: the fewest tokens whose probability adds up to this; 1 is off."""
    min_p: float = 0.0
    """Least probability, as a share of the most probable token's; 0 is off."""
    top_k: int = 0
    """The k most probable tokens; 0 is off."""
    seed: int = 0
    """Seed of the draws: the draw is a function of seed, position and re-roll count."""
    max_tokens: int = 100
    """A run ends with `length` after so many tokens of completion (and again after so many more)."""
    min_tokens: int = 0
    """End-of-sequence is barred before so many tokens of completion."""
    stop: tuple[str, ...] = ()
    """Texts that end the generation, wherever tokens cut them."""
    candidates: int = 20
    """Candidates recorded at each step."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Which model, and what is fixed once it is loaded."""

    model: str = "pocket"
    """`pocket`, a directory, or a hub id."""
    adapter_path: str | None = None
    trust_remote_code: bool = False
    max_kv_size: int | None = None
    """Rotating cache of so many tokens, where the model doesn't build its own caches."""
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 5000
    prefill_step_size: int | None = None
    """Prompt tokens a chunk; None adapts the chunk so that a cancel takes effect within about 150 ms."""
    float32_scales: bool | None = None
    """Compute a quantized model with float32 scales; None: on the CPU backend, where it is 7 to 40 times faster."""
    kept_logits_mib: int = 64
    """Memory for rows of logits, so that going back and what-if need no forward."""


@dataclass(frozen=True, slots=True)
class Field:
    """One setting: its name, type, bounds and words."""

    name: str
    kind: Literal["float", "int", "texts"]
    label: str
    help: str
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    """True where `low` itself is out of range."""

    @property
    def flag(self) -> str:
        """The command-line flag, as mlx_lm.generate spells it."""
        return "--" + self.name.replace("_", "-")

    @property
    def bounds(self) -> str:
        """The range in words, for messages."""
        number = "a whole number" if self.kind == "int" else "a number"
        above = "above" if self.low_open else "from"
        if self.high == math.inf:
            return f"{number} {above} {self.low:g}" + ("" if self.low_open else " up")
        high = f"{int(self.high)}" if self.kind == "int" else f"{self.high:g}"
        return f"{number} {above} {self.low:g} to {high}"

    def parse(self, text: str) -> Any:
        """Read a value as typed by a person.

        Args:
            text: What was typed; for `texts` a comma-free single text or an empty string for none.

        Returns:
            The value, in range.

        Raises:
            SettingsError: It is no such number or is out of range.
        """
        if self.kind == "texts":
            return (text,) if text else ()
        try:
            value = int(text.strip()) if self.kind == "int" else float(text.strip())
        except ValueError:
            raise SettingsError(self.name, f"{self.label} must be {self.bounds}, not {text!r}.") from None
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Refuse a value that is out of range.

        Raises:
            SettingsError: With the range in words.
        """
        if self.kind == "texts":
            if any(not text for text in value):
                raise SettingsError(self.name, f"{self.label} must not be empty.", "Leave the setting out.")
            return
        inside = self.low < value if self.low_open else self.low <= value
        if not (inside and value <= self.high):
            raise SettingsError(self.name, f"{self.label} must be {self.bounds}, not {value}.")


FIELDS: tuple[Field, ...] = (
    Field("temp", "float", "temperature", "0 takes the most probable token; above 1 flattens", 0, 100),
    Field(
        "top_p", "float", "top-p", "fewest tokens that hold this probability; 1 is off", 0, 1, low_open=True
    ),
    Field("min_p", "float", "min-p", "least share of the top token's probability; 0 is off", 0, 1),
    Field("top_k", "int", "top-k", "this many most probable tokens; 0 is off", 0, 2**31 - 1),
    Field("seed", "int", "seed", "the draw is a function of seed, position and re-roll", 0, SEED_LIMIT - 1),
    Field("max_tokens", "int", "max tokens", "a run ends after so many tokens", 1, 2**31 - 1),
    Field("min_tokens", "int", "min tokens", "end-of-sequence is barred before so many", 0, 2**31 - 1),
    Field("stop", "texts", "stop string", "generation ends when this text appears"),
    Field("candidates", "int", "candidates", "shown and recorded at each step", 1, 2**31 - 1),
)
BY_NAME: Mapping[str, Field] = {field.name: field for field in FIELDS}


def check(settings: Settings) -> Settings:
    """Return the settings when each is in its range.

    Raises:
        SettingsError: For the first that is not.
    """
    for field in FIELDS:
        field.check(getattr(settings, field.name))
    return settings


def changed(settings: Settings, **values: Any) -> Settings:
    """A checked copy of the settings with some values replaced."""
    return check(replace(settings, **values))


def differences(old: Settings, new: Settings) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, as name: (old, new)."""
    before, after = asdict(old), asdict(new)
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def check_load(settings: LoadSettings) -> LoadSettings:
    """Return the load settings when each is in its range.

    Raises:
        SettingsError: For the first that is not.
    """
    bits, sizes = ", ".join(map(str, KV_BITS)), ", ".join(map(str, KV_GROUP_SIZES))
    _need(settings, "max_kv_size", (None, 5), "a whole number from 5 up (the first 4 tokens are always kept)")
    _need(settings, "kv_bits", (None, *KV_BITS), f"one of {bits}", listed=True)
    _need(settings, "kv_group_size", KV_GROUP_SIZES, f"one of {sizes}", listed=True)
    _need(settings, "quantized_kv_start", (None, 0), "a whole number from 0 up")
    _need(settings, "prefill_step_size", (None, 1), "a whole number from 1 up")
    _need(settings, "kept_logits_mib", (None, 0), "a whole number of MiB from 0 up")
    return settings


def _need(
    settings: LoadSettings, field: str, allowed: tuple[int | None, ...], words: str, *, listed: bool = False
) -> None:
    """Refuse a load setting that is none of the listed values, or is below the least (None is always allowed)."""
    value = getattr(settings, field)
    least = min(each for each in allowed if each is not None)
    if value in allowed or (value is not None and not listed and value >= least):
        return
    raise SettingsError(field, f"{field.replace('_', ' ').replace('kv', 'KV')} must be {words}, not {value}.")
