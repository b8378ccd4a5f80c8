"""llama.cpp's GBNF as Lark. Standard library alone.

llama.cpp matches a text character by character. Lark cuts it into lexemes first, the longest that it can: of
`[a-z]+ "xy"` it takes no `axya`. So a grammar without a rule that contains itself is one lexeme here, and in any other
each character is one, for which a mask takes some milliseconds.

llguidance's own converter loses zeros of escapes, gives two rules one name, reads operators of regular expressions in
classes, and has `.` match no line break.
"""

from __future__ import annotations

import json
import re
from graphlib import CycleError, TopologicalSorter

_NAME = re.compile(r"[\w-]+")
_COUNT = re.compile(r"[0-9]+")
_TOKEN = re.compile(r"!?<[^>\n]*>")
_BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_DIGITS = {"x": 2, "u": 4, "U": 8}
"""Hexadecimal digits of an escape."""
MOST_DIGITS = 9
_NOTHING = '""'
_LETTER = "\0"
"""Stands for the first letter of names in Lark; no text in it has this character."""
NAMES_A_TOKEN = (
    "{} names a token, and a grammar here matches text: write the text of the token, or leave it out"
)
"""llguidance 1.9 forgets such tokens when it is asked for the text that is certain."""


class GbnfError(Exception):
    """Why a text can't be used as GBNF."""


def lark_of(text: str) -> str:
    """A grammar as llguidance reads it.

    Raises:
        GbnfError: It isn't GBNF, or names tokens.
        RecursionError: Its parentheses are nested too deeply.
    """
    grammar = _Grammar(text)
    try:
        TopologicalSorter(grammar.named).prepare()
        letter = "R"  # terminals of Lark, of which each is one lexeme
    except CycleError:
        letter = "r"  # rules
    return grammar.lark().replace(_LETTER, letter)


class _Grammar:
    """A text read from its beginning, as llama.cpp does.

    Args:
        text: The GBNF.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._numbers: dict[str, int] = {}
        """A number for each rule by its name: names in Lark have no `-`, and their case tells rules from terminals."""
        self._rules: dict[str, str] = {}
        """The right-hand side of each rule in Lark, by the name of the rule."""
        self.named: dict[str, dict[str, int]] = {}
        """The rules that each rule names, and where it does first."""
        self._own: dict[str, int] = {}
        """The same of the rule that is read."""
        self._skip(_LINES)
        while self._at < len(text):
            self._rule()
        for name, place in [each for own in self.named.values() for each in own.items()]:
            if name not in self._rules:
                raise self._wrong(f"there is no rule {name}", place)
        if "root" not in self._rules:
            raise GbnfError("it has no rule root")

    def lark(self) -> str:
        """The rules in Lark."""
        rules = "".join(f"{self._lark_name(name)}: {rule}\n" for name, rule in self._rules.items())
        return f"start: {self._lark_name('root')}\n{rules}"

    def _lark_name(self, name: str) -> str:
        return f"{_LETTER}{self._numbers.setdefault(name, len(self._numbers))}"

    # ---- rules ------------------------------------------------------------------------------

    def _rule(self) -> None:
        name = self._read(_NAME, "the name of a rule")
        self._own = self.named[name] = {}
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
            blanks: What may stand between parts: within parentheses line breaks, too.
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
        """A class of characters as a regular expression: written as numbers, none of them is an operator."""
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
        """A part with the repetition that comes next; empty if none does."""
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
        """Continue after a sign if it comes next."""
        found = self._text.startswith(sign, self._at)
        self._at += len(sign) * found
        return found

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._wrong(f"expected {sign}")

    def _wrong(self, why: str, place: int | None = None) -> GbnfError:
        before = self._text[: self._at if place is None else place].split("\n")
        return GbnfError(f"line {len(before)}, column {len(before[-1]) + 1}: {why}")
