"""A lesson read from its file: TOML front matter, then Markdown, with a block of TOML in each beat.

Nothing in the file is executed. It may come from a stranger, so its size is limited, and its texts stay text. Reading
continues after a fault, so that an author sees all faults at once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from engine.errors import PathError, SettingsError
from engine.files import message_and_hint, read_regular
from engine.setting import check
from engine.settings import BY_NAME, Settings
from inspector.lessons.actions import LessonAction, action
from inspector.lessons.errors import Faults, LessonError
from inspector.lessons.expressions import Expression, Template, expression, template
from inspector.lessons.lesson import HIDDEN, MOST_OPTIONS, SHOWN, Beat, Lesson, Option, Question, option
from inspector.lessons.quantities import FUNCTIONS

if TYPE_CHECKING:
    from markdown_it.token import Token

LARGEST, MOST_LINES = 64 * 1024, 3000
"""Most bytes and lines of a file."""
MOST_BEATS, MOST_ACTIONS, LONGEST_OPTION = 60, 20, 200
LONGEST_TOML, MOST_DOTS = 16 * 1024, 30
"""Most characters of a table, and dots of a key in it: tomllib takes a minute for a key of 30,000 dots."""
MOST_MINUTES = 600.0
FENCE = "+++"
HEAD = ("title", "about", "minutes", "prompt", "chat", "settings", "model", "fingerprint", "needs")
"""Keys in the front matter."""
BEAT = ("show", "look", "hide", "begin", "act", "keep", "answer", "number", "hint", "minutes")
"""Keys in a beat's block."""
_BEGINS = re.compile(r"\n(?=\?|[Nn]ote:)")
"""The line break before a question or a note, which needs no blank line."""
LOOK = re.compile(r"next|last|(step|prompt) [1-9]\d{0,5}")


def read(path: Path) -> Lesson:
    """Read a lesson.

    Args:
        path: Its file.

    Raises:
        PathError: It can't be read.
        LessonError: It is not a valid lesson; this is its first fault.
    """
    return lesson(text_of(path), path.stem)


def text_of(path: Path) -> str:
    """The text of a lesson's file.

    Raises:
        PathError: It can't be read, or is too large.
        LessonError: It is not UTF-8 text.
    """
    try:
        content = read_regular(path, LARGEST)
    except OSError as error:
        raise PathError(*message_and_hint(path, error, "read")) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise LessonError(line, "This is not UTF-8 text.", "Save the file as UTF-8.") from error


def begins(path: Path) -> bool:
    """True if a file begins with a lesson's front matter, unlike other Markdown."""
    try:
        with path.open("rb") as file:
            return file.readline(100).strip() == FENCE.encode()
    except OSError:
        return False


@lru_cache(maxsize=32)  # files are read each time the lessons are listed, and seldom change
def lesson(text: str, id: str) -> Lesson:
    """Read a lesson from its text.

    Raises:
        LessonError: It is not a valid lesson; this is its first fault.
    """
    made, faults = draft(text, id)
    if faults:
        raise min(faults, key=lambda fault: fault.line)
    assert made is not None
    return made


def draft(text: str, id: str) -> tuple[Lesson | None, list[LessonError]]:
    """Read a lesson as far as possible; returns the lesson, if any, and all faults."""
    faults = Faults()
    return faults.of(lambda: _lesson(text, id, faults), None), faults.found


def _lesson(text: str, id: str, faults: Faults) -> Lesson | None:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > LARGEST or text.count("\n") > MOST_LINES:
        raise LessonError(MOST_LINES, "The file is too long for a lesson.",
                          f"{LARGEST // 1024} KiB and {MOST_LINES:,} lines are allowed.")  # fmt: skip
    head, body, offset = _split(text)
    made = faults.of(lambda: _head(head, id, faults), None)
    beats = tuple(_beat(part, faults) for part in _parts(body, offset, faults))
    if not beats:
        raise LessonError(offset + 1, "There is no card.", "A card begins with a heading: ## Its title.")
    if len(beats) > MOST_BEATS:
        raise LessonError(
            beats[MOST_BEATS].line, f"There are {len(beats)} cards.", f"A lesson may have {MOST_BEATS}."
        )
    return replace(made, beats=beats) if made is not None else None


# ---- tables of TOML -----------------------------------------------------------------------------


class TomlTable:
    """A table of TOML, with the lines of its keys.

    Args:
        source: Text of the table.
        offset: Number of lines before it in the file.
        names: Keys that it may have.
        faults: Receives the faults of its values.

    Raises:
        LessonError: It is not valid TOML, or is too large.
    """

    def __init__(self, source: str, offset: int, names: Sequence[str], faults: Faults) -> None:
        self._lines, self._offset, self._faults = source.split("\n"), offset, faults
        if len(source) > LONGEST_TOML or any(_dots(line) > MOST_DOTS for line in self._lines):
            raise LessonError(offset + 1, "This table is too large.", "Make it shorter.", "toml")
        try:
            self._values = tomllib.loads(source)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of 5,000 digits
            message = f"This is not valid TOML: {str(error).partition(' (at ')[0]}."
            raise LessonError(self._error_line(error), message, _TOML, "toml") from error
        for unknown in sorted(self._values.keys() - set(names), key=self.line):
            hint = f"There are {', '.join(names)}."
            faults.add(self.line(unknown), f"There is no {unknown}.", hint, "entry")

    def _error_line(self, error: Exception) -> int:
        """The line that the message of tomllib's error names."""
        said = re.search(r"at line (\d+)", str(error))
        return self._offset + (int(said[1]) if said else len(self._lines))

    def line(self, name: str, containing: str = "") -> int:
        """The line of a key in the file, or of a text in its value."""
        own = (place for place, line in enumerate(self._lines, 1) if _names(line, name))
        begin = next(own, 1)
        if containing:
            rest = enumerate(self._lines[begin - 1 :], begin)
            begin = next((place for place, line in rest if containing in line), begin)
        return self._offset + begin

    def get(self, name: str, kinds: type | tuple[type, ...], default: Any) -> Any:
        """The value of a key; if it has another type, adds a fault and returns the default."""
        value = self._values.get(name, default)
        if isinstance(value, kinds) and (not isinstance(value, bool) or kinds is bool):
            return value
        words = {str: "a text in quotes", dict: "a table", bool: "true or false"}
        kind = words.get(kinds, "a number") if isinstance(kinds, type) else "a number"
        self._faults.add(self.line(name), f"{name} must be {kind}.", "", "entry")
        return default

    def minutes(self, default: float) -> float:
        """The value of `minutes`; if it is not valid, adds a fault and returns the default."""
        value = self.get("minutes", (int, float), default)
        if not 0 <= value <= MOST_MINUTES:  # also nan
            line = self.line("minutes")
            self._faults.add(line, f"minutes must be from 0 to {MOST_MINUTES:.0f}.", "", "entry")
            return default
        return float(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts of a key with a list of texts, or with one."""
        value = self._values.get(name, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            self._faults.add(self.line(name), f"{name} must be a list of texts in quotes.", "", "entry")
            return ()
        return tuple(found)


_TOML = 'A value is written name = "text", name = 3, or name = ["text", "text"].'


def _names(line: str, name: str) -> bool:
    """True if a line gives a key its value, or begins its table."""
    return line.partition("=")[0].strip() == name or line.strip() == f"[{name}]"


def _dots(line: str) -> int:
    """The most dots in a row with at most one word between two of them, as in a dotted key."""
    most = now = 0
    for word in line.split("."):
        now = now + 1 if len(word.split()) < 2 else 0
        most = max(most, now)
    return most


# ---- front matter -----------------------------------------------------------------------------


def _split(text: str) -> tuple[str, str, int]:
    """Front matter, body, and the number of lines before the body."""
    lines = text.split("\n")
    if lines[0].strip() != FENCE:
        raise LessonError(
            1, "The file doesn't begin with +++.", 'Begin with +++, title = "...", and +++ again.'
        )
    end = next((place for place, line in enumerate(lines[1:], 1) if line.strip() == FENCE), None)
    if end is None:
        raise LessonError(1, "The front matter has no end.", "Close it with a line of +++.")
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]), end + 1


def _head(source: str, id: str, faults: Faults) -> Lesson:
    table = TomlTable(source, 1, HEAD, faults)
    title = table.get("title", str, "")
    if not title.strip():
        faults.add(2, "The lesson has no title.", 'Write title = "...".', "entry")
    settings = table.get("settings", dict, {})
    return Lesson(
        id=id,
        title=title,
        beats=(),
        about=table.get("about", str, ""),
        minutes=table.minutes(5.0),
        prompt=table.get("prompt", str, ""),
        chat=table.get("chat", bool, False),
        settings=faults.of(lambda: _settings(settings, table.line("settings")), Settings()),
        model=table.get("model", str, "pocket"),
        fingerprint=table.get("fingerprint", str, ""),
        needs=table.texts("needs"),
    )


def _settings(table: Mapping[str, Any], line: int) -> Settings:
    if unknown := sorted(table.keys() - BY_NAME.keys()):
        raise LessonError(
            line,
            f"{unknown[0]} is not a setting of the sampler.",
            "See inspector generate --help.",
            "setting",
        )
    try:
        typed = {name: _typed(name, value) for name, value in table.items()}
        return check(replace(Settings(), **typed))
    except (SettingsError, TypeError, ValueError, OverflowError) as error:
        wrong = error.message if isinstance(error, SettingsError) else "A setting has the wrong type."
        raise LessonError(line, wrong, "See inspector generate --help.", "setting") from error


def _typed(name: str, value: Any) -> Any:
    """A setting's value from TOML: lists become tuples, texts and numbers are parsed like typed ones."""
    if isinstance(value, list):
        pairs = [tuple(each) if isinstance(each, list) else each for each in value]
        return tuple(pairs)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(name)
    return BY_NAME[name].parse(str(value))


# ---- beats ------------------------------------------------------------------------------------


@dataclass
class _Part:
    """The pieces of a beat, as Markdown has them, with their lines in the file."""

    title: str
    line: int
    paragraphs: list[tuple[str, int]] = field(default_factory=list)
    quotes: list[tuple[str, int]] = field(default_factory=list)
    items: list[tuple[str, int]] = field(default_factory=list)
    block: tuple[str, int] | None = None


def _parts(body: str, offset: int, faults: Faults) -> list[_Part]:
    from markdown_it import MarkdownIt  # only if a lesson is read

    parts: list[_Part] = []
    within: list[str] = []
    line = offset + 1
    # no emphasis, links or underlined headings: an author's braces and dashes stay as they are
    parser = MarkdownIt("commonmark", {"maxNesting": 20})
    for token in parser.disable(["inline", "reference", "lheading", "html_block"]).parse(body):
        line = token.map[0] + 1 + offset if token.map else line
        if token.nesting == 1:
            within.append(token.type.removesuffix("_open"))
        elif token.nesting == -1:
            within.pop()
        else:
            faults.each(lambda piece: _piece(parts, within, *piece), [(token, line)])
    return parts


def _piece(parts: list[_Part], within: Sequence[str], token: Token, line: int) -> None:
    """Add a piece of the file to its part."""
    if token.type == "inline" and within and within[-1] == "heading":
        parts.append(_Part(" ".join(token.content.split()), line))
    elif not parts:
        raise LessonError(
            line, "There is text before the first card.", "A card begins with ## and its title."
        )
    elif token.type == "inline":
        _inline(parts[-1], within, token.content, line)
    elif token.type != "fence" or token.info.strip() != "toml":
        raise LessonError(line, "A card has text, a quote, a list, and one block of TOML.",
                          "The block is fenced by ```toml and ```; other text is not indented.")  # fmt: skip
    elif parts[-1].block is not None:
        raise LessonError(line, "A card has one block of TOML.", "Put the two blocks together.")
    else:
        parts[-1].block = token.content, line


def _inline(part: _Part, within: Sequence[str], content: str, line: int) -> None:
    place = (
        part.items if "list_item" in within else part.quotes if "blockquote" in within else part.paragraphs
    )
    for text in _BEGINS.split(content) if place is part.paragraphs else [content]:
        place.append((text.strip(), line))
        line += text.count("\n") + 1


def _beat(part: _Part, faults: Faults) -> Beat:
    source, line = part.block or ("", part.line)
    table = faults.of(lambda: TomlTable(source, line, BEAT, faults), None)
    if table is None:
        return Beat(part.title, part.line)
    asked = [(text[1:].strip(), at) for text, at in part.paragraphs if text.startswith("?")]
    notes = [text[5:].strip() for text, _ in part.paragraphs if text.lower().startswith("note:")]
    told = [
        (text, at)
        for text, at in part.paragraphs
        if not text.startswith("?") and not text.lower().startswith("note:")
    ]
    number = table.get("number", str, "")
    made = Beat(
        title=part.title,
        line=part.line,
        text=faults.each(lambda each: template(*each), told),
        question=faults.of(lambda: _question(part, asked, table, faults), None),
        act=_actions(table, "act", faults),
        why=faults.each(lambda each: template(*each), part.quotes),
        begin=_actions(table, "begin", faults),
        keep=faults.each(
            lambda each: _kept(each[0], each[1], table.line("keep", each[0])),
            table.get("keep", dict, {}).items(),
        ),
        show=table.get("show", str, ""),
        look=table.get("look", str, "next"),
        hide=table.texts("hide"),
        number=faults.of(lambda: expression(number, table.line("number")) if number else None, None),
        hint=table.get("hint", str, ""),
        minutes=table.minutes(0.0),
        notes=tuple(" ".join(note.split()) for note in notes),
    )
    _check_names(made, table, faults)
    return made


def _check_names(beat: Beat, table: TomlTable, faults: Faults) -> None:
    """Check what a beat shows, hides and selects: a lesson from a stranger can press only the keys in the list."""
    if beat.show and beat.show not in SHOWN:
        names = f"There are {', '.join(SHOWN)}."
        faults.add(table.line("show"), f"There is no panel or tool {beat.show} to show.", names, "show")
    for each in beat.hide:
        if each not in HIDDEN:
            names = f"There are {', '.join(HIDDEN)}."
            faults.add(table.line("hide", each), f"There is no {each} to hide.", names, "hide")
    if LOOK.fullmatch(beat.look) is None:
        line = table.line("look")
        faults.add(
            line, f"look = {beat.look} names no token.", "Write next, last, step 3 or prompt 2.", "look"
        )


def _kept(name: str, source: Any, line: int) -> tuple[str, Expression]:
    if not isinstance(source, str) or not name.isidentifier() or name in FUNCTIONS:
        hint = 'Write keep = {before = "next.entropy"}.'
        raise LessonError(line, f"{name} can't be the name of a kept value.", hint, "keep")
    return name, expression(source, line)


def _actions(table: TomlTable, name: str, faults: Faults) -> tuple[LessonAction, ...]:
    found = table.texts(name)
    if len(found) > MOST_ACTIONS:
        line = table.line(name)
        faults.add(line, f"There are {len(found)} actions.", f"A card may have {MOST_ACTIONS}.", "action")
        return ()
    return faults.each(lambda source: action(source, table.line(name, source)), found)


def _question(
    part: _Part, asked: Sequence[tuple[str, int]], table: TomlTable, faults: Faults
) -> Question | None:
    answer = table.get("answer", str, "")
    if not asked:
        if part.items or answer:
            line = part.items[0][1] if part.items else table.line("answer")
            raise LessonError(line, "There are options or an answer without a question.",
                              "Write the question as a paragraph that begins with ?.", "question")  # fmt: skip
        return None
    words, line = asked[0]
    if len(asked) > 1:
        raise LessonError(asked[1][1], "A card asks one question.", "Make two cards of this one.", "question")
    text = faults.of(lambda: template(words, line), Template((), line))
    none: tuple[Option, ...] = ()
    options = faults.of(lambda: _options(part.items, line), none)
    if not answer:
        raise LessonError(
            line, "The question has no answer.", 'Write answer = "next.picked" in the block.', "question"
        )
    return Question(text, options, expression(answer, table.line("answer")), line)


def _options(items: Sequence[tuple[str, int]], line: int) -> tuple[Option, ...]:
    if not 2 <= len(items) <= MOST_OPTIONS:
        raise LessonError(
            line, f"The question has {len(items)} options.", f"Give it 2 to {MOST_OPTIONS}.", "options"
        )
    for text, at in items:
        if len(text) > LONGEST_OPTION:
            raise LessonError(at, "An option is too long.", "A few words are enough.", "options")
    options = tuple(option(" ".join(text.split()), at) for text, at in items)
    for place, each in enumerate(options):
        if not each.text or any(each.text == other.text for other in options[:place]):
            hint = "Give each option a text of its own."
            raise LessonError(each.line, "An option is empty, or given twice.", hint, "options")
    return options
