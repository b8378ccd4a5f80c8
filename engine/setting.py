"""The declaration of a setting: its texts next to its type, and the reading and checking of its values.

A setting is a field of a `SettingsStruct` with the type `Annotated[TYPE, Meta(BOUNDS), Setting(TEXTS)]`, or
`Annotated[Annotated[TYPE, Meta(BOUNDS)] | None, Setting(TEXTS)]`. Its flag, shell completion, form field, checks and
messages follow from that.
"""

from __future__ import annotations

import math
import re
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import fields, replace

from engine.errors import SettingsError, not_unicode_at

MOST_BIAS = 1e9
"""Largest absolute value of a logit bias. It outweighs any logit; much larger values overflow float32."""
LONGEST_SHOWN = 60
"""Maximum number of characters of a value in a message."""
GRAMMAR = "grammar"
"""Name of the grammar's stage. It is in no program's stage order, since it always comes first."""
StageKind = Literal["logits", "order", "shares", "scale"]
"""Kind of a stage: `logits` changes logits; `order` filters by the order of the logits, `shares` by logprobs; `scale`
scales the logits."""


FORBIDS = -100.0
"""Bias of a token that is given as a text without a value: it is never drawn."""
TokenId = Callable[[str], int]
_PARTS = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
"""Matches the parts of a text between commas; commas in quotes don't count."""
_NAMED = re.compile(r'"((?:[^"\\]|\\.)+)"\s*(?:=(.*))?')
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def unescaped(text: str) -> str:
    """A text that was typed on one line, with `\\n`, `\\t` and `\\"`."""
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), text)


class SamplerStage(Struct, frozen=True):
    """The sampler's stage that a setting turns on."""

    name: str
    kind: StageKind
    head: str = ""
    """Heading of its column in the sampler's table; empty for its name."""
    shown: Callable[[Any], str] | None = None
    """Makes the stage's text in the sampler's table from all settings; None for the setting's value."""
    off: tuple[Any, ...] = ()
    """Values of the setting that turn the stage off, in addition to the default."""
    setting: str = ""
    """Name of the setting; filled in by `settings_of`."""


class Setting(Struct, frozen=True):
    """The declaration of one setting."""

    help: str
    """Explanation in the flag's help and in the form."""
    label: str = ""
    """Name in a sentence; empty for the field's name."""
    form: Literal["", "share", "text", "regex"] = ""
    """Format of the typed value, beyond its type: `share` is 0.05 or 5 %; `text` and `regex` are None if empty."""
    least: float = -math.inf
    """Smallest value above the lower bound; the lower bound itself turns the setting off."""
    most: float = math.inf
    """Upper bound, if it is too large for the `Meta` of the type."""
    choices: Mapping[str, Any] = {}
    """Allowed values by their names; empty if any value in the range is allowed."""
    says: str = ""
    """The range in words; empty to derive it from the bounds."""
    group: str = ""
    """Group in the form or of the flags."""
    before: str = ""
    """Name of the setting that this one precedes in its group; empty for the order of declaration."""
    flag: str = ""
    """The flag; empty for the name as mlx_lm.generate spells it."""
    short: str = ""
    metavar: str = ""
    """Name of the value in the flag's help; empty for the default of its kind."""
    needs: str = ""
    """Name of the setting that must be set for this one to have an effect."""
    stage: SamplerStage | None = None
    """Stage of the sampler that the setting turns on."""
    brief: Callable[[Any], str] | None = None
    """Makes the text in the header if the setting is on; None for stage and value, or no text without a stage."""
    words: str = ""
    """Short text if the setting is on, with `{}` for the value."""
    name: str = ""
    """Name of the field; this and the following fields are filled in by `settings_of`."""
    default: Any = None
    type: Any = None
    meta: Meta = Meta()

    @property
    def kind(self) -> str:
        """`float`, `int`, `flag` (True if given), `choice` (yes or no), `texts`, `biases`, `word` or `text`."""
        plain = [_bare(each) for each in _alternatives(self.type)]
        if (self.choices and str in plain) or get_origin(plain[0]) is Literal:
            return "word"
        if plain[0] is bool:
            return "flag" if self.default is False else "choice"
        if get_origin(plain[0]) is tuple:
            return "texts" if get_args(plain[0])[0] is str else "biases"
        return {float: "float", int: "int"}.get(plain[0], "text")

    @property
    def low(self) -> float:
        return next((each for each in (self.meta.ge, self.meta.gt) if each is not None), -math.inf)

    @property
    def high(self) -> float:
        return self.most if self.meta.le is None else self.meta.le

    @property
    def bounds(self) -> str:
        """The range in words, for messages."""
        if self.says:
            return self.says
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind in ("flag", "choice"):
            return "on or off"
        if self.meta.max_length is not None:
            what = "a regular expression" if self.form == "regex" else "a text"
            return f"{what} of 1 to {self.meta.max_length} characters"
        number = "a whole number" if self.kind == "int" else "a number"
        if self.least > self.low:
            return f"{self.low:g}, or {number} from {self.least:g} to {self.high:g}"
        if self.meta.multiple_of is not None:
            number += f" divisible by {self.meta.multiple_of}"
        above = self.meta.gt is not None
        if self.high >= MOST_FLOAT:
            return f"{number} {'above' if above else 'of at least'} {self.low:g}"
        high = f"{int(self.high)}" if self.kind == "int" else f"{self.high:g}"
        return (
            f"{number} {'above' if above else 'from'} {self.low:g} {'and at most' if above else 'to'} {high}"
        )

    def on(self, settings: object) -> bool:
        """True if the setting's value is not one that turns it off."""
        value = getattr(settings, self.name)
        return value != self.default and not (self.stage is not None and value in self.stage.off)

    def parse(self, text: str, token_id: TokenId | None = None) -> Any:
        """Parse a value typed by the user.

        Args:
            text: A number; one text, empty for none; `ID=VALUE, "TEXT"=VALUE`; a word; or the format of `form`.
            token_id: Looks up the one token of a text; None if no model is at hand.

        Returns:
            The value, which is in range.

        Raises:
            SettingsError: The text can't be parsed or the value is out of range.
        """
        if self.form and not text.strip(None if self.form == "share" else ""):
            return None
        match self.kind:
            case "float" | "int" if not (self.default is None and not text.strip()):
                value: Any = self._number(text.strip())
            case "texts":
                value = (text,) if text else ()
            case "biases":
                pairs = self.biases(text)
                value = tuple((self._token(token, token_id), bias) for token, bias in pairs)
            case "word":
                value = " ".join(text.split()).lower() if self.default is None else text.strip()
                value = value or self.default
            case "text":
                value = text
            case _:
                value = None
        self.check(value)
        return value

    def _number(self, text: str) -> float | int:
        try:
            if self.form == "share" and text.endswith("%"):
                return float(f"{float(text[:-1]) / 100:.12g}")
            return int(text) if self.kind == "int" else float(text)
        except ValueError:
            raise self._refused(repr(text) if text else "empty") from None

    def biases(self, text: str) -> tuple[tuple[int | str, float], ...]:
        """Split typed biases into pairs of a token (id or text) and its bias; a text without a value gets `FORBIDS`.

        Raises:
            SettingsError: A part can't be parsed.
        """
        return tuple(self._bias(part.strip()) for part in _PARTS.findall(text) if part.strip())

    def _bias(self, part: str) -> tuple[int | str, float]:
        named, (token, equals, value) = _NAMED.fullmatch(part), part.partition("=")
        try:
            if named is not None:
                return unescaped(named[1]), FORBIDS if named[2] is None else float(named[2])
            if not equals:
                raise ValueError
            return int(token), float(value)
        except ValueError:
            message = (
                f'{self.label} must be ID=VALUE or "TEXT"=VALUE, with a comma between two of them, such as '
                f'451=-5, " cat"=-5, not {part!r}.'
            )
            raise SettingsError(self.name, message) from None

    def _token(self, token: int | str, token_id: TokenId | None) -> int:
        if isinstance(token, int):
            return token
        if token_id is None:
            message = f"No model is at hand to look up “{token}”."
            raise SettingsError(self.name, message, "Give the token's id.")
        return token_id(token)

    def one_token(self, text: str, tokens: Sequence[tuple[int, str]]) -> int:
        """The id of a text that is a single token.

        Args:
            text: The text.
            tokens: Ids and texts of the tokens that the text is tokenized into.

        Raises:
            SettingsError: There isn't exactly one token; the message lists them.
        """
        if len(tokens) == 1:
            return tokens[0][0]
        listed = ", ".join(f"“{part}” ({id})" for id, part in tokens[:6]) + ", …" * (len(tokens) > 6)
        message = f"“{text}” is {len(tokens)} tokens{': ' if tokens else ''}{listed}."
        raise SettingsError(self.name, message, "A bias is of one token: name one of them by its text or id.")

    def format(self, value: Any) -> str:
        """The value as the user types it; `parse` reads it."""
        if value is None and self.default is None:
            return ""
        match self.kind:
            case "float":
                return f"{value:.12g}"
            case "texts":
                return value[0] if value else ""
            case "biases":
                return ", ".join([f"{token}={bias:.12g}" for token, bias in value])
        return str(value)

    def describe(self, value: Any) -> str:
        """A short text for the setting and a value, from `words`."""
        return self.words.format(percent(value) if self.form == "share" else self.format(value))

    def check(self, value: Any) -> None:
        """Check that a value is in range; None is allowed if it is the default.

        Raises:
            SettingsError: The value is out of range; the message contains the range.
        """
        if value is None and self.default is None:
            return
        for token, bias in value if self.kind == "biases" else ():
            if token < 0:
                raise SettingsError(self.name, f"{self.label}: a token id is 0 or more, not {token}.")
            if not abs(bias) <= MOST_BIAS:
                reach = f"a number from {-MOST_BIAS:g} to {MOST_BIAS:g}, not {bias}"
                message = f"{self.label}: the value for token {token} must be {reach}."
                raise SettingsError(self.name, message, "Use -100 to bar a token.")
        for text in value if self.kind == "texts" else ():
            if not text:
                raise SettingsError(self.name, f"{self.label} must not be empty.", "Leave the setting out.")
            if not_unicode_at(text) is not None:
                raise SettingsError(self.name, f"{self.label} is not valid Unicode.", "Give it as UTF-8.")
        try:
            convert(value, self.type)
        except ValidationError:
            raise self._refused(self._shown(value)) from None
        number = value if self.kind in ("float", "int") else self.low
        is_choice = not self.choices or value in self.choices.values()
        if not is_choice or not (number >= self.least or number == self.low) or number > self.high:
            raise self._refused(self._shown(value))
        if self.form == "regex":
            self._check_regex(value)

    def _refused(self, given: str) -> SettingsError:
        given = given if len(given) <= LONGEST_SHOWN else f"{given[:LONGEST_SHOWN]}…"
        shown = given if given.strip() else "empty"
        return SettingsError(self.name, f"{self.label} must be {self.bounds}, not {shown}.")

    def _shown(self, value: object) -> str:
        """A value that is out of range, for a message."""
        if isinstance(value, str) and self.meta.max_length is not None:
            return f"{len(value)} characters"
        if isinstance(value, str) and self.kind in ("float", "int"):
            return repr(value)
        short = f"{value:.12g}" if isinstance(value, float) else str(value)
        return short if not isinstance(value, float) or float(short) == value else str(value)

    def _check_regex(self, pattern: str) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about syntax that may change its meaning
                empty = re.compile(pattern).search("")
        except (re.error, OverflowError, RecursionError) as error:
            raise SettingsError(
                self.name, f"{self.label} can't be read: {error}.",
                "Put a backslash before a sign to match the sign itself.",
            ) from None  # fmt: skip
        if empty is not None:
            raise SettingsError(
                self.name, f"{self.label} matches the empty text.",
                "It would stop the run at once: let it match at least one character.",
            )  # fmt: skip


MOST_FLOAT = 1.7976931348623157e308
"""Upper bound of numbers that have no smaller one; excludes infinity and NaN."""


def percent(share: float) -> str:
    """A fraction of 1 as `5 %`, with at most three significant digits."""
    return f"{share * 100:.3g} %"


def named(values: Iterable[Any]) -> Mapping[str, Any]:
    """Values by name, for `Setting.choices`."""
    return {str(value): value for value in values}


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def _alternatives(hint: Any) -> list[Any]:
    """The types in a hint except None, each with its bounds."""
    if get_origin(_bare(hint)) not in (typing.Union, UnionType):
        return [hint]
    return [each for each in get_args(_bare(hint)) if each is not NoneType]


# ---- classes of settings ----------------------------------------------------------------------


class SettingsStruct(Struct, frozen=True):
    """Base class of the settings."""

    def check_together(self, vocabulary: int | None) -> None:
        """Check for combinations of values that are not allowed, although each value is in range.

        Args:
            vocabulary: Number of token ids of the model; None if unknown.

        Raises:
            SettingsError: A combination is not allowed.
        """


Declared = TypeVar("Declared", bound=SettingsStruct)


@cache
def settings_of(cls: type[SettingsStruct]) -> tuple[Setting, ...]:
    """The settings that a class declares, in the order of declaration."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for each in fields(cls):
        extras = getattr(hints[each.name], "__metadata__", ())
        setting = next((extra for extra in extras if isinstance(extra, Setting)), None)
        if setting is not None:
            stage = replace(setting.stage, setting=each.name) if setting.stage is not None else None
            kinds = _alternatives(hints[each.name])
            bounds = [extra for kind in kinds for extra in getattr(kind, "__metadata__", ())]
            found.append(
                replace(
                    setting, name=each.name, default=each.default, type=hints[each.name], stage=stage,
                    meta=next((extra for extra in bounds if isinstance(extra, Meta)), Meta()),
                    label=setting.label or each.name.replace("_", " ").replace("kv", "KV"),
                    flag=setting.flag or "--" + each.name.replace("_", "-"),
                )
            )  # fmt: skip
    return tuple(found)


def check(settings: Declared, vocabulary: int | None = None) -> Declared:
    """Check the settings and return them.

    Args:
        settings: Settings to check, including nested ones.
        vocabulary: Number of token ids of the model; None if unknown.

    Raises:
        SettingsError: A setting is out of range; the first one is reported.
    """
    for each in settings_of(type(settings)):
        each.check(getattr(settings, each.name))
    for name in settings.__struct_fields__:
        if isinstance(inner := getattr(settings, name), SettingsStruct):
            check(inner, vocabulary)
    settings.check_together(vocabulary)
    return settings


def grouped(settings: Iterable[Setting], group: str) -> list[Setting]:
    """The settings of one group, in the order of a form or of the help."""
    found: list[Setting] = []
    for each in settings:
        if each.group == group:
            place = next((n for n, other in enumerate(found) if other.name == each.before), len(found))
            found.insert(place, each)
    return found
