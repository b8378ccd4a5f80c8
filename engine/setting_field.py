"""What a setting may be: its name, type, bounds and words, and how a value is read, written and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from engine.errors import SettingsError
from engine.frozen import frozen

MOST_BIAS = 1e9
"""The largest logit bias either way: it decides alone, and far above float32 overflows."""

_SHAPES = ("logit-bias", "min-tokens", "repetition", "presence", "frequency")
MLX_LM = (*_SHAPES, "top-p", "min-p", "xtc", "top-k", "temperature")
_TRANSFORMERS = ("logit-bias", "repetition", "presence", "frequency", "min-tokens")
ORDERS: Mapping[str, tuple[str, ...]] = {
    "mlx-lm": MLX_LM,
    "transformers": (*_TRANSFORMERS, "temperature", "top-k", "top-p", "min-p", "xtc"),
    "llama.cpp": (*_SHAPES, "top-k", "top-p", "min-p", "xtc", "temperature"),
}
"""Stage orders by program: mlx_lm.sample_utils, `GenerationMixin._get_logits_processor` of transformers (which has
no presence and frequency penalties and no XTC), and llama.cpp's default chain. Rules for ties and XTC go with the
order: see `engine.sampling.stages`."""
GRAMMAR = "grammar"
"""The stage of a grammar, which no program's order names: it is the first where an order doesn't name it."""
STAGES = (GRAMMAR, *MLX_LM)
"""Every stage by name."""


@frozen
class Field:
    """One setting: its name, type, bounds and words."""

    name: str
    kind: Literal["float", "int", "texts", "biases", "order"]
    label: str
    help: str
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    """True where `low` itself is out of range."""
    least: float = -math.inf
    """The least value above `low`, which turns the setting off."""

    @property
    def flag(self) -> str:
        """The command-line flag, as mlx_lm.generate spells it."""
        return "--" + self.name.replace("_", "-")

    @property
    def bounds(self) -> str:
        """The range in words, for messages."""
        number = "a whole number" if self.kind == "int" else "a number"
        if self.least > self.low:
            return f"{self.low:g}, or {number} from {self.least:g} to {self.high:g}"
        above = "above" if self.low_open else "from"
        if self.high == math.inf:
            return f"{number} {above} {self.low:g}" + ("" if self.low_open else " up")
        high = f"{int(self.high)}" if self.kind == "int" else f"{self.high:g}"
        return f"{number} {above} {self.low:g} to {high}"

    def parse(self, text: str) -> Any:
        """Read a value as typed by a person.

        Args:
            text: What was typed: a number; one text, empty for none; `ID=VALUE, ID=VALUE`; an order's name, or
                stages separated by commas.

        Returns:
            The value, in range.

        Raises:
            SettingsError: It is no such value or is out of range.
        """
        value = _READERS[self.kind](self, text)
        self.check(value)
        return value

    def format(self, value: Any) -> str:
        """A value as a person types it; `parse` reads it back."""
        match self.kind:
            case "float":
                return f"{value:.12g}"
            case "int":
                return str(value)
            case "texts":
                return value[0] if value else ""
            case "biases":
                return ", ".join(f"{token}={bias:.12g}" for token, bias in value)
        return next((name for name, order in ORDERS.items() if order == value), ", ".join(value))

    def check(self, value: Any) -> None:
        """Refuse a value that is out of range.

        Raises:
            SettingsError: With the range in words.
        """
        match self.kind:
            case "texts":
                if any(not text for text in value):
                    raise SettingsError(
                        self.name, f"{self.label} must not be empty.", "Leave the setting out."
                    )
            case "biases":
                _check_biases(self, value)
            case "order":
                _check_order(self, value)
            case _:
                inside = self.low < value if self.low_open else self.low <= value
                inside = inside and (value >= self.least or value == self.low)
                if not (inside and value <= self.high and math.isfinite(value)):
                    raise SettingsError(self.name, f"{self.label} must be {self.bounds}, not {value}.")


def _read_number(field: Field, text: str) -> float | int:
    try:
        return int(text.strip()) if field.kind == "int" else float(text.strip())
    except ValueError:
        raise SettingsError(field.name, f"{field.label} must be {field.bounds}, not {text!r}.") from None


def _read_biases(field: Field, text: str) -> tuple[tuple[int, float], ...]:
    biases: list[tuple[int, float]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        token, equals, value = part.partition("=")
        try:
            if not equals:
                raise ValueError
            biases.append((int(token), float(value)))
        except ValueError:
            raise SettingsError(
                field.name, f"{field.label} must be ID=VALUE, such as 451=-5, not {part!r}."
            ) from None
    return tuple(biases)


def _read_order(_: Field, text: str) -> tuple[str, ...]:
    name = text.strip()
    return ORDERS.get(name) or tuple(part.strip() for part in name.split(",") if part.strip())


def _read_texts(_: Field, text: str) -> tuple[str, ...]:
    return (text,) if text else ()


_READERS: Mapping[str, Callable[[Field, str], Any]] = {
    "float": _read_number,
    "int": _read_number,
    "texts": _read_texts,
    "biases": _read_biases,
    "order": _read_order,
}


def _check_biases(field: Field, value: tuple[tuple[int, float], ...]) -> None:
    for token, bias in value:
        if token < 0:
            raise SettingsError(field.name, f"{field.label}: a token id is 0 or more, not {token}.")
        if not abs(bias) <= MOST_BIAS:
            raise SettingsError(
                field.name, f"{field.label}: the value for token {token} must be a number "
                f"from {-MOST_BIAS:g} to {MOST_BIAS:g}, not {bias}.",
                "Use -100 to bar a token.",
            )  # fmt: skip


def _check_order(field: Field, value: tuple[str, ...]) -> None:
    if not value:
        raise SettingsError(
            field.name,
            f"{field.label} must not be empty.",
            f"Use {', '.join(ORDERS)}, or stages with commas.",
        )
    for name in value:
        if name not in STAGES:
            raise SettingsError(
                field.name,
                f"{field.label}: there is no stage {name!r}.",
                f"The stages are {', '.join(STAGES)}.",
            )
    if len(set(value)) < len(value):
        twice = next(name for name in value if value.count(name) > 1)
        raise SettingsError(field.name, f"{field.label} has {twice} twice.", "Name each stage once.")
