"""The declaration of a setting: its type, bounds and words, and how a value is read and checked.

A setting is declared once, as a field of its class with `setting(...)` for its default. Its flag and what completes it,
its checks, its place in the dialog, its words in the header and its notes follow from that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field as dataclass_field
from dataclasses import fields, replace
from typing import Any, Literal, TypeVar

from engine.errors import SettingsError
from engine.frozen import frozen

MOST_BIAS = 1e9
"""The largest logit bias either way: it decides alone, and far above float32 overflows."""
LONGEST_SHOWN = 60
"""Characters of a value in a message."""
GRAMMAR = "grammar"
"""The stage of a grammar, which no program's order names: it is the first."""
StageKind = Literal["logits", "order", "shares", "scale"]
"""What a stage does: `logits` changes logits; `order` filters by the logits' order, `shares` by logprobs; `scale`
scales."""
Value = TypeVar("Value")


@frozen
class SamplerStage:
    """The stage of the sampler that a setting turns on."""

    name: str
    kind: StageKind
    head: str = ""
    """Head of its column in the sampler's table; empty for its name."""
    shown: Callable[[Any], str] | None = None
    """What the table says of the settings that it runs with; None for the value of the setting."""
    off: tuple[Any, ...] = ()
    """Values of the setting that turn it off, beside the default."""
    setting: str = ""
    """Name of the setting; `fields_of` fills it in."""


@frozen
class Field:
    """The declaration of one setting."""

    kind: Literal["float", "int", "texts", "biases", "word", "text", "flag", "choice"]
    """`texts` are several texts, `word` is one of some words, `flag` is on where it is named, `choice` is yes or no."""
    help: str
    """As the flag's help and the form say it."""
    label: str = ""
    """As a sentence calls it; empty for its name."""
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    """True where `low` itself is out of range."""
    least: float = -math.inf
    """The least value above `low`, which turns the setting off."""
    choices: Mapping[str, Any] = dataclass_field(default_factory=dict)
    """Values by their names: all that there are of a word, and of numbers that have any."""
    says: str = ""
    """The range in words, where it doesn't follow from the bounds."""
    group: str = ""
    """Of the form, or of the flags."""
    before: str = ""
    """The setting of its group that it comes before; empty where the group has it in the order of the class."""
    wide: bool = False
    """True if it takes a whole line of the form."""
    short: str = ""
    """The short flag, such as `-m`."""
    metavar: str = ""
    """What the flag's help calls the value; empty for that of its kind."""
    needs: str = ""
    """The setting without which this one has no effect."""
    stage: SamplerStage | None = None
    """The stage that it turns on, if it does."""
    brief: Callable[[Any], str] | None = None
    """What the header says of the settings where it is on; None for its stage and value, or nothing without a stage."""
    name: str = ""
    """Of the field in its class; `fields_of` fills it in, and the default."""
    default: Any = None

    @property
    def flag(self) -> str:
        """The command-line flag, as mlx_lm.generate spells it."""
        return "--" + self.name.replace("_", "-")

    @property
    def bounds(self) -> str:
        """The range in words, for messages."""
        if self.says or self.choices:
            return self.says or f"one of {', '.join(self.choices)}"
        number = "a whole number" if self.kind == "int" else "a number"
        if self.least > self.low:
            return f"{self.low:g}, or {number} from {self.least:g} to {self.high:g}"
        above = "above" if self.low_open else "from"
        if self.high == math.inf:
            return f"{number} {above} {self.low:g}" + ("" if self.low_open else " up")
        high = f"{int(self.high)}" if self.kind == "int" else f"{self.high:g}"
        return f"{number} {above} {self.low:g} to {high}"

    def on(self, settings: object) -> bool:
        """True if it has another value than one that turns it off."""
        value = getattr(settings, self.name)
        return value != self.default and not (self.stage is not None and value in self.stage.off)

    def parse(self, text: str) -> Any:
        """Read a value as typed by a person.

        Args:
            text: What was typed: a number; one text, empty for none; `ID=VALUE, ID=VALUE`; a word.

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
            case "texts":
                return value[0] if value else ""
            case "biases":
                return ", ".join([f"{token}={bias:.12g}" for token, bias in value])
        return str(value)

    def check(self, value: Any) -> None:
        """Refuse a value that is out of range; None is in it where it is the default.

        Raises:
            SettingsError: With the range in words.
        """
        if value is None and self.default is None:
            return
        match self.kind:
            case "flag" | "choice" | "text":
                inside = True
            case "texts":
                if "" in value:
                    hint = "Leave the setting out."
                    raise SettingsError(self.name, f"{self.label} must not be empty.", hint)
                try:
                    "".join(value).encode()
                except UnicodeEncodeError:
                    message, hint = f"{self.label} is not valid Unicode.", "Give it as UTF-8."
                    raise SettingsError(self.name, message, hint) from None
                inside = True
            case "biases":
                inside = not value or _check_biases(self, value)
            case _ if self.choices:
                inside = value in self.choices.values()
            case _:
                inside = self.low < value if self.low_open else self.low <= value
                inside = inside and (value >= self.least or value == self.low)
                inside = inside and value <= self.high and math.isfinite(value)
        if not inside:
            given = str(value) if len(str(value)) <= LONGEST_SHOWN else f"{str(value)[:LONGEST_SHOWN]}…"
            raise SettingsError(
                self.name, f"{self.label} must be {self.bounds}, not {given if given.strip() else 'empty'}."
            )


def setting(default: Value, help: str, low: float = -math.inf, high: float = math.inf, **about: Any) -> Value:
    """The default of a field of a class of settings, with what is said of it.

    Args:
        default: Its type is the setting's, where `kind` names no other.
        help: As in `Field`; so are the others.
        low: The least value.
        high: The largest.
        about: The other attributes of `Field`.
    """
    kind = _KINDS.get(type(default), "")
    made = Field(**{"kind": kind, "help": help, "low": low, "high": high, **about})
    return dataclass_field(default=default, metadata={"setting": made})


_KINDS = {float: "float", int: "int", str: "text", bool: "flag"}


def fields_of(cls: type) -> tuple[Field, ...]:
    """The settings of a class that are declared by `setting`, in the order of the class."""
    return tuple(_named(each) for each in fields(cls) if "setting" in each.metadata)


def _named(field: Any) -> Field:
    about, name = field.metadata["setting"], field.name
    label = about.label or name.replace("_", " ").replace("kv", "KV")
    stage = replace(about.stage, setting=name) if about.stage is not None else None
    named: Field = replace(about, name=name, default=field.default, label=label, stage=stage)
    return named


def grouped(settings: tuple[Field, ...], group: str) -> list[Field]:
    """The settings of one group, in the order in which a form or the help has them."""
    found: list[Field] = []
    for each in settings:
        if each.group == group:
            place = len(found)
            for before, other in enumerate(found):
                if other.name == each.before:
                    place = before
            found.insert(place, each)
    return found


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


def _read_texts(_: Field, text: str) -> tuple[str, ...]:
    return (text,) if text else ()


def _read_word(_: Field, text: str) -> str:
    return text.strip()


_READERS: Mapping[str, Callable[[Field, str], Any]] = {
    "float": _read_number,
    "int": _read_number,
    "texts": _read_texts,
    "biases": _read_biases,
    "word": _read_word,
}
"""What reads a value as it was typed, of the kinds that a person types into a form."""


def _check_biases(field: Field, value: tuple[tuple[int, float], ...]) -> bool:
    for token, bias in value:
        if token < 0:
            raise SettingsError(field.name, f"{field.label}: a token id is 0 or more, not {token}.")
        if not abs(bias) <= MOST_BIAS:
            raise SettingsError(
                field.name, f"{field.label}: the value for token {token} must be a number "
                f"from {-MOST_BIAS:g} to {MOST_BIAS:g}, not {bias}.",
                "Use -100 to bar a token.",
            )  # fmt: skip
    return True
