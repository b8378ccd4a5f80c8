"""Converts a user's grammar for llguidance, and llguidance's errors to one sentence each. Needs only llguidance."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, islice
from typing import Any, TypeGuard

from engine.errors import SettingsError
from engine.grammar_settings import Grammar

BYTE_ORDER_MARK = "\ufeff"
"""The character that some programs begin a file with."""

# ---- JSON schemas ------------------------------------------------------------------------------
# Found by comparing texts with jsonschema (tests/engine/grammar/test_schemas.py): llguidance 1.9 computes bounds in
# float64, takes `"\u0061"` for another name than `"a"`, and lets an escaped quote through a pattern's negated class.

DEFAULTS = {"whitespace_pattern": " ?", "json_allowed_escapes": 'nrbtf\\"'}
"""Options of llguidance. A schema may not set them: some allow text that is not JSON, or doesn't match the schema.

At most one space is allowed between the parts of JSON, as `json.dumps` writes it: with any white space, which the
standard allows, a model that likes newlines writes newlines forever. `\\u` is not allowed in strings: llguidance takes
`"\\u0061"` for another name than `"a"`, and would not apply the schema of `a` to it."""
DECIMALS = 9
"""Largest number of decimals of a number with a bound: without a limit, a model may write 2.1111… forever."""
_EXACT = 2**53
"""The smallest integer with the same float64 as its successor."""
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords whose value has a schema for each name."""
_VALUES = ("default", "example", "examples")
"""Keywords whose value is not a schema."""
_NEGATED = re.compile(r"(\\.)|\[\^([]-]?)", re.DOTALL)
_PLAIN_NEGATED = re.compile(r"\[\^[]-]?(?:\\.|(?!&&|--|~~)[^][\\])*\]", re.DOTALL)
_WITH_CONTROLS = re.compile(r"\\P|\\p\{?\^?C|\\x0|\\x\{|\\u00[01]|\[:|\[[^]]*(?:[\x00-\x1f]-|&&|--|~~)")
"""Classes that may contain all control characters without `"` and the backslash; their patterns are refused."""
_CLASS = re.compile(r"(\\.)|(\[\^?]?)((?:\\.|[^]\\])*)", re.DOTALL)
_BRACKET = re.compile(r"(\\.)|\[", re.DOTALL)
"""A bracket, which is a character in a class of a JSON schema's pattern, and begins another class in llguidance's."""
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
"""Characters that JSON strings only contain as `\\u` and four digits; llguidance also writes U+007F that way."""


def refusal(why: str) -> SettingsError:
    """The error for a grammar that can't be used."""
    return SettingsError(
        "grammar", f"The grammar can't be used: {why.rstrip('.')}.", "Change it, or remove it."
    )


def schema_for_llguidance(text: str) -> Any:
    """Convert a JSON schema for llguidance; the result allows nothing that the schema doesn't.

    Raises:
        SettingsError: The text is not JSON or not a schema, or requires something that llguidance can't enforce.
    """
    try:
        value = json.loads(text.removeprefix(BYTE_ORDER_MARK), parse_constant=_no_number)
        if not isinstance(value, dict | bool):
            raise refusal("a JSON schema is an object, or true or false")
        schema = _schema(value)
    except json.JSONDecodeError as error:
        raise refusal(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise refusal("it is nested too deeply") from None
    except ValueError as error:  # an integer of more than 4,300 digits
        raise refusal(str(error)) from None
    return {**schema, "x-guidance": DEFAULTS} if isinstance(schema, dict) else schema


def _no_number(name: str) -> None:
    raise refusal(f"{name} is no number of JSON")


def _schema(value: Any) -> Any:
    """Convert a schema, or a part of one that a `$ref` may name."""
    if isinstance(value, list):
        return [_schema(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "x-guidance" in value:
        raise refusal("it has x-guidance, options of llguidance that the program sets itself: leave them out")
    for key in _BOUNDS:
        if _number(bound := value.get(key)) and abs(bound) >= _EXACT:
            raise refusal(f"its {key} {_short(bound)} is beyond what llguidance can hold, ±{_EXACT - 1:,}")
    made = _named({key: _keyword(key, held) for key, held in value.items()})
    _check_values(made)
    _check_count(made)
    return _inclusive(made | _fewer_digits(value))


def _keyword(key: str, value: Any) -> Any:
    if key in ("const", "enum", *_VALUES):
        return value
    if key in _MAPS and isinstance(value, dict):
        pattern = key == "patternProperties"
        return {_pattern(name) if pattern else name: _schema(each) for name, each in value.items()}
    return _pattern(value) if key == "pattern" and isinstance(value, str) else _schema(value)


def _named(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace patterns that match few names by properties: llguidance keeps no list of the names that it wrote, and if
    all names of a pattern are properties, it begins another name that it can't finish."""
    patterns, properties = schema.get("patternProperties"), schema.get("properties", {})
    if not isinstance(patterns, dict) or not isinstance(properties, dict):
        return schema
    few = {pattern: _few_names(pattern) for pattern in patterns}
    # llguidance counts properties only if all are required; it counts names of patterns, though one may occur twice
    counted = "minProperties" in schema or "maxProperties" in schema
    found = {
        pattern: names
        for pattern, names in few.items()
        if names is not None and not (counted and properties.keys().isdisjoint(names))
    }
    if not found:
        return schema
    properties = {**properties}
    for pattern, names in found.items():
        for name in names:
            held = patterns[pattern]
            properties[name] = {"allOf": [properties[name], held]} if name in properties else held
    left = {pattern: held for pattern, held in patterns.items() if pattern not in found}
    return {**schema, "properties": properties, "patternProperties": left}


MOST_NAMES, LONGEST_NAME = 16, 200
"""Largest number of a pattern's names to write as properties, and largest size of each in bytes."""


def _few_names(pattern: str) -> list[str] | None:
    """All names that a pattern matches; None if there are too many."""
    found: list[str] = []
    left = [(b"", _over_bytes({"type": "string", "pattern": pattern}))]
    while left:
        text, matcher = left.pop()
        if matcher.is_error() or len(left) + len(found) > MOST_NAMES or len(text) > LONGEST_NAME:
            return None
        if matcher.is_accepting():
            found.append(json.loads(text))
            continue  # the closing quotation mark ends the name
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        for byte in (byte for byte in range(256) if mask >> byte & 1):
            after = matcher.deep_copy()
            after.consume_token(byte)
            left.append((text + bytes([byte]), after))
    return sorted(found)


def _over_bytes(schema: Mapping[str, Any]) -> Any:
    """llguidance's matcher of a schema over single bytes."""
    from llguidance import LLMatcher, LLTokenizer

    source = f"start: %json {json.dumps({**schema, 'x-guidance': DEFAULTS})}{NO_FORCING}"
    return LLMatcher(LLTokenizer("byte"), source, log_level=0)


def _overlap(schema: Any) -> str:
    """A sentence about the parts of a schema's `oneOf` that llguidance can't tell apart, and about what helps.

    Args:
        schema: The schema as converted for llguidance.
    """
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    for place, parts in _one_ofs(schema, "#"):
        for (first, one), (second, other) in islice(combinations(enumerate(parts, 1), 2), MOST_PAIRS):
            if ONE_OF in str(_over_bytes({**shared, "oneOf": [one, other]}).get_error()):
                both = f"parts {first} and {second} of {place}/oneOf"
                if any(isinstance(each, dict) and "$ref" in each for each in (one, other)):
                    return f"llguidance can't compare {both} through a $ref. Write out what it names, or use anyOf"
                return f"{both} overlap, as far as llguidance can tell. {_APART}"
    return f"parts of a oneOf overlap, as far as llguidance can tell. {_APART}"


MOST_PAIRS = 200
"""Largest number of pairs of parts that are compared to find two that overlap: each takes llguidance up to 10 ms."""
_APART = "Use anyOf, or give each part a required property with a text of its own as const"


def _one_ofs(schema: Any, place: str) -> Iterator[tuple[str, list[Any]]]:
    """The `oneOf` lists of a schema and their places, the innermost first."""
    if isinstance(schema, list):
        for number, each in enumerate(schema):
            yield from _one_ofs(each, f"{place}/{number}")
    elif isinstance(schema, dict):
        for key, each in schema.items():
            yield from _one_ofs(each, f"{place}/{key}")
        if isinstance(parts := schema.get("oneOf"), list):
            yield place, parts


def _number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(number: float) -> str:
    """A number with six digits; an integer may be larger than any float."""
    try:
        return f"{number:.6g}"
    except OverflowError:
        return f"of {len(str(abs(int(number)))):,} digits"


def _check_values(schema: Mapping[str, Any]) -> None:
    """Refuse constants and names that llguidance would write differently."""
    names = [*schema.get("properties", ())] if isinstance(schema.get("properties"), dict) else []
    left = [names, schema.get("const"), schema.get("enum"), schema.get("required")]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str) and (found := _CONTROL.search(value)):
            raise refusal(
                f"it names the control character U+{ord(found[0]):04X}, which llguidance can't write"
            )
        elif isinstance(value, int | float) and abs(value) >= _EXACT:
            raise refusal(
                f"the number {_short(value)} in it is beyond what llguidance can hold, ±{_EXACT - 1:,}"
            )


def _check_count(schema: Mapping[str, Any]) -> None:
    """Refuse to count names that may repeat: llguidance keeps no list of names that aren't properties."""
    least, required = schema.get("minProperties"), schema.get("required")
    sure = len({str(each) for each in required}) if isinstance(required, list) else 0
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    if _number(least) and least > sure + 1 and not closed:
        raise refusal(
            f"its minProperties {_short(least)} can't be counted where names are free: one may come twice. Name the "
            'properties and say "additionalProperties": false, or list some as required'
        )


def _fewer_digits(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords that limit the digits of a number with a bound: its decimals, and the range of exact integers."""
    types = schema.get("type")
    bounds = {key: schema[key] for key in _BOUNDS if _number(schema.get(key))}
    if "number" not in (types if isinstance(types, list) else [types]) or not bounds:
        return {}
    if any(key in schema for key in ("multipleOf", "const", "enum")):
        return {}
    if any(round(bound, DECIMALS) != bound for bound in bounds.values()):
        return {}
    made: dict[str, Any] = {"multipleOf": 10**-DECIMALS}
    if not any("inimum" in key for key in bounds):
        made["minimum"] = 1 - _EXACT
    if not any("aximum" in key for key in bounds):
        made["maximum"] = _EXACT - 1
    return made


def _inclusive(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace exclusive integer bounds by inclusive ones next to them: for `0 < x <= 0.5` llguidance allows 0."""
    for key, other, step, tighter in (
        ("exclusiveMinimum", "minimum", 10**-DECIMALS, max),
        ("exclusiveMaximum", "maximum", -(10**-DECIMALS), min),
    ):
        bound, beside = schema.get(key), schema.get(other)
        if not _number(bound) or bound != int(bound) or (moved := round(bound + step, DECIMALS)) == bound:
            continue
        schema = {name: held for name, held in schema.items() if name != key}
        schema[other] = tighter(moved, beside) if _number(beside) else moved
    return schema


def _pattern(pattern: str) -> str:
    """The pattern, without NUL in negated classes: one with all control characters would allow `\\"` and `\\\\`."""
    if _WITH_CONTROLS.search(_PLAIN_NEGATED.sub("", pattern)):
        raise refusal(
            f"its pattern {pattern[:60]} has control characters, \\P, \\p{{C}} or an operation in a class, which "
            "llguidance can't hold in JSON"
        )
    pattern = _CLASS.sub(lambda found: found[1] or found[2] + _escaped(found[3]), pattern)
    return _NEGATED.sub(lambda found: found[1] or r"[^\x00" + (f"\\{found[2]}" if found[2] else ""), pattern)


def _escaped(characters: str) -> str:
    return _BRACKET.sub(lambda found: found[1] or r"\[", characters)


# ---- grammars ----------------------------------------------------------------------------------

NO_FORCING = '\n%llguidance {"no_forcing": true}\n'
"""The last line, which overrides the grammar's own options. Without it, if the next text is certain, a mask contains
only the first token of its usual tokenization, and forbids others that the grammar allows: `i` and `il` for `ily`."""
_LARK_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|(?://|#)[^\n]*|/(?:\\.|[^/\\\n])+/|(<[^<>\s]+>)')
"""A string, a comment, a regular expression or a token; the group only matches tokens."""
_POSITION = re.compile(r"^(?:at )?(\d+)\((\d+)\): (.*)", re.DOTALL)
_KEYWORDS = re.compile(r"Unimplemented keys: (\[.*\])")
_ERROR, _CARET = re.compile(r"^error: (.*)", re.MULTILINE), re.compile(r"^    ( *)\^+ *$", re.MULTILINE)
"""The regex parser's message, and its place: the parser indents an expression of one line by four spaces."""
_REMOTE = re.compile(r"Resource '(.*)' is not present in a registry")
_DRAFT = re.compile(r'"\$schema"\s*:\s*"([^"]*)"')
_FORMAT = re.compile(r"Unknown format: (.*)")
FORMATS = "date, time, date-time, duration, email, hostname, ipv4, ipv6, uri and uuid"
ONE_OF = "oneOf constraints are not supported"
NO_TOKEN = "no token of the model continues it"
_WORDS = {
    "NoExtension": NO_TOKEN,
    "Empty grammar": "it has no rule",
    "no start rule found": "it has no rule named start",
    "panic:": "it is too large",
    "too big (limit": "it is too large",
    "schema too large": "it is too large",
    "too many expressions": "it is too large",
    "recursion limit exceeded": "it is nested too deeply",
    "LexerTooComplex": "its regular expressions take too much time or memory",
    "fuel": "its regular expressions take too much time or memory",
    "too many states": "its regular expressions take too much time or memory",
    "ParserTooComplex": "it is too complex",
    "Too many items": "it is too complex",
    "Current row has": "it is too complex",
    "Regex is empty": "no text matches it",
    "decimal literal invalid": "a number in it is beyond what llguidance can count",
    "number out of range": "a number in it is beyond what llguidance can count",
}
"""Meanings of llguidance's errors about a whole grammar."""


def llguidance_source(grammar: Grammar) -> str:
    """The grammar for llguidance, in Lark, with an option that makes masks depend only on the grammar.

    Raises:
        SettingsError: A schema or GBNF is invalid, or the grammar names tokens.
    """
    text = grammar.text.removeprefix(BYTE_ORDER_MARK)
    match grammar.kind:
        case "regex":
            from llguidance import LLMatcher

            rules = json.loads(LLMatcher.grammar_from_regex(grammar.text))["grammars"][0]["lark_grammar"]
        case "json-schema":
            rules = f"start: %json {json.dumps(schema_for_llguidance(grammar.text))}"
        case "lark":
            if token := next((found[1] for found in _LARK_TOKEN.finditer(text) if found[1]), None):
                raise refusal(NAMES_A_TOKEN.format(token[:40]))
            rules = text
        case "gbnf":
            try:
                rules = _Grammar(text).lark()
            except RecursionError:
                raise refusal("it is nested too deeply") from None
        case "choices":
            texts = dict.fromkeys(text for text in grammar.text.split("\n") if text)
            rules = f"start: {' | '.join(json.dumps(text, ensure_ascii=False) for text in texts)}"
    return f"{rules}{NO_FORCING}"


def in_words(error: str, grammar: Grammar) -> str:
    """llguidance's error as one sentence without a full stop, with line and column if it names them."""
    first = error.strip().split("\n")[0]
    if keywords := _KEYWORDS.search(first):
        names: list[Any] = json.loads(keywords[1])
        return f"keywords of the schema that are not supported: {', '.join(map(str, names))}"
    if ONE_OF in first:
        return _overlap(schema_for_llguidance(grammar.text) if grammar.kind == "json-schema" else {})
    if unknown := _FORMAT.search(first):
        return f"llguidance doesn't know the format {unknown[1][:60]}. It knows {FORMATS}"
    if (remote := _REMOTE.search(first)) and remote[1] in _DRAFT.findall(grammar.text):
        return (
            f"llguidance doesn't know its $schema {remote[1][:100]}. Name a draft of json-schema.org, or none"
        )
    if remote:
        return f"$ref to {remote[1][:100]}: only references within the schema are followed"
    if words := next((words for part, words in _WORDS.items() if part in first), ""):
        return words
    place = _POSITION.match(first)
    why = place[3] if place else first
    if error_of_regex := _ERROR.search(error):
        why = next((words for part, words in _WORDS.items() if part in error_of_regex[1]), error_of_regex[1])
        if grammar.kind == "regex" and (caret := _CARET.search(error)):
            return f"column {len(caret[1]) + 1}: {why}"
    why = "a text or pattern doesn't end, or a sign is out of place" if why == "lexer error" else why
    why = why.removeprefix("failed to compile JSON schema: ")[:200] or "llguidance gives no reason"
    # for other kinds, the place is in a text that the user didn't write
    return f"line {place[1]}, column {place[2]}: {why}" if place and grammar.kind == "lark" else why


# ---- llama.cpp's GBNF as Lark ------------------------------------------------------------------
# llama.cpp matches a text character by character. Lark first splits it into lexemes, as long as possible: with
# `[a-z]+ "xy"` it rejects `axy`. So a grammar without recursive rules is one lexeme here, and in any other grammar each
# character is a lexeme, so that a mask takes some milliseconds.
#
# llguidance's own converter loses zeros in escapes, gives two rules the same name, takes characters in classes for
# operators of regular expressions, and doesn't let `.` match a line break.

_NAME = re.compile(r"[\w-]+")
_COUNT = re.compile(r"[0-9]+")
_TOKEN = re.compile(r"!?<[^>\n]*>")
_BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_DIGITS = {"x": 2, "u": 4, "U": 8}
"""Number of hexadecimal digits of an escape."""
MOST_DIGITS = 9
_NOTHING = '""'
_LETTER = "\0"
"""Placeholder for the first letter of names in Lark: a character that no text in Lark contains."""
NAMES_A_TOKEN = (
    "{} names a token, and a grammar here matches text: write the text of the token, or leave it out"
)
"""llguidance 1.9 ignores such tokens when it computes the text that is certain."""


class _Grammar:
    """A parser of GBNF that reads as llama.cpp does.

    Raises:
        SettingsError: The text isn't GBNF, or names tokens.
        RecursionError: Its parentheses are nested too deeply.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._numbers: dict[str, int] = {}
        """A number for each rule name: names in Lark have no `-`, and their case tells rules from terminals."""
        self._rules: dict[str, str] = {}
        """The right-hand side of each rule in Lark, by the name of the rule."""
        self._named: dict[str, dict[str, int]] = {}
        """The rules that each rule names, with the place of the first mention."""
        self._own: dict[str, int] = {}
        """The same for the rule that is being read."""
        self._skip(_LINES)
        while self._at < len(text):
            self._rule()
        for name, place in [each for own in self._named.values() for each in own.items()]:
            if name not in self._rules:
                raise self._wrong(f"there is no rule {name}", place)
        if "root" not in self._rules:
            raise refusal("it has no rule root")

    def lark(self) -> str:
        try:
            TopologicalSorter(self._named).prepare()
            letter = "R"  # terminals of Lark: each is one lexeme
        except CycleError:
            letter = "r"  # rules
        rules = "".join(f"{self._lark_name(name)}: {rule}\n" for name, rule in self._rules.items())
        return f"start: {self._lark_name('root')}\n{rules}".replace(_LETTER, letter)

    def _lark_name(self, name: str) -> str:
        return f"{_LETTER}{self._numbers.setdefault(name, len(self._numbers))}"

    # ---- rules ------------------------------------------------------------------------------

    def _rule(self) -> None:
        name = self._read(_NAME, "the name of a rule")
        self._own = self._named[name] = {}
        self._skip(_BLANKS)
        self._expect("::=")
        self._skip(_LINES)
        self._rules[name] = self._alternatives(_BLANKS)
        if self._at < len(self._text) and self._text[self._at] not in "\r\n":
            raise self._wrong("expected a part of a rule, or a line break")
        self._skip(_LINES)

    def _alternatives(self, blanks: re.Pattern[str]) -> str:
        """Sequences with `|` between them.

        Args:
            blanks: Pattern of the blanks between parts; within parentheses with line breaks.
        """
        made = [self._sequence(blanks)]
        while self._take("|"):
            self._skip(_LINES)
            made.append(self._sequence(blanks))
        return " | ".join(made)

    def _sequence(self, blanks: re.Pattern[str]) -> str:
        made: list[str] = []
        while part := self._part():
            self._skip(blanks)
            while repeated := self._repeated(part, blanks):
                part = repeated
                self._skip(blanks)
            made.append(part)
        return " ".join(made) or _NOTHING

    def _part(self) -> str:
        """One part of a sequence; empty at its end."""
        if self._take('"'):
            chars = []
            while not self._take('"'):
                chars.append(json.dumps(self._char(), ensure_ascii=False))
            return f"({' '.join(chars) or _NOTHING})"
        if self._take("["):
            return self._class()
        if self._take("("):
            self._skip(_LINES)
            inner = self._alternatives(_LINES)
            self._expect(")")
            return f"({inner})"
        if self._take("."):
            return "/(?s:.)/"
        if token := _TOKEN.match(self._text, self._at):
            raise self._wrong(NAMES_A_TOKEN.format(token[0][:40]))
        if not _NAME.match(self._text, self._at):
            return ""
        place, name = self._at, self._read(_NAME, "")
        self._own.setdefault(name, place)
        return self._lark_name(name)

    def _class(self) -> str:
        """A class of characters as a regular expression; written as numbers, so that none is an operator."""
        begin = self._at - 1
        negation, made = "^" * self._take("^"), ""
        while not self._take("]"):
            first = last = ord(self._char())
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = ord(self._char())
            if first > last:
                raise self._wrong(f"the range from U+{first:04X} to U+{last:04X} is out of order", begin)
            made += rf"\x{{{first:X}}}-\x{{{last:X}}}"
        if not made:
            raise self._wrong("the class has no characters", begin)
        return f"/[{negation}{made}]/"

    def _repeated(self, part: str, blanks: re.Pattern[str]) -> str:
        """A part with the repetition that comes next; empty if there is none."""
        for sign in "*+?":
            if self._take(sign):
                return f"({part}){sign}"
        begin = self._at
        if not self._take("{"):
            return ""
        self._skip(blanks)
        least = most = self._count()
        self._skip(blanks)
        if self._take(","):
            self._skip(blanks)
            most = self._count() if _COUNT.match(self._text, self._at) else ""
            self._skip(blanks)
        self._expect("}")
        if most and int(most) < int(least):
            raise self._wrong(f"{{{least},{most}}} is out of order", begin)
        return _NOTHING if most and not int(most) else f"({part}){{{least},{most}}}"

    # ---- characters -------------------------------------------------------------------------

    def _char(self) -> str:
        """The next character of a text or class, which may be an escape."""
        place = self._at
        if place == len(self._text):
            raise self._wrong("a text or class doesn't end")
        if self._text[place] != "\\":
            self._at += 1
            return self._text[place]
        kind = self._text[place + 1 : place + 2]
        self._at += 2 + _DIGITS.get(kind, 0)
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        written = self._text[place : self._at]
        if kind not in _DIGITS or not re.fullmatch(f"[0-9a-fA-F]{{{_DIGITS[kind]}}}", written[2:]):
            raise self._wrong(f"{written} is no escape", place)
        if (number := int(written[2:], 16)) > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise self._wrong(f"{written} is no character", place)
        return chr(number)

    def _count(self) -> str:
        number = self._read(_COUNT, "a number")
        if len(number) > MOST_DIGITS:
            raise self._wrong(f"a repetition has a number of {len(number)} digits")
        return number

    def _read(self, pattern: re.Pattern[str], what: str) -> str:
        if (found := pattern.match(self._text, self._at)) is None:
            raise self._wrong(f"expected {what}")
        self._at = found.end()
        return found[0]

    def _skip(self, blanks: re.Pattern[str]) -> None:
        self._read(blanks, "")

    def _take(self, sign: str) -> bool:
        """Skip a sign if it comes next; returns True if it did."""
        found = self._text.startswith(sign, self._at)
        self._at += len(sign) * found
        return found

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._wrong(f"expected {sign}")

    def _wrong(self, why: str, place: int | None = None) -> SettingsError:
        before = self._text[: self._at if place is None else place].split("\n")
        return refusal(f"line {len(before)}, column {len(before[-1]) + 1}: {why}")
