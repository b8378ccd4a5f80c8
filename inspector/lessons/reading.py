"""A lesson read from its file: TOML front matter, then Markdown, with a block of TOML in each beat.

Nothing in the file is run. It may come from strangers: it is bounded in size, and what it says stays text.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from engine.errors import PathError, SettingsError
from engine.files import read_regular
from engine.paths import told
from engine.settings import Settings, check
from inspector.lessons.actions import Action, action
from inspector.lessons.errors import LessonError
from inspector.lessons.expressions import Expression, expression, template
from inspector.lessons.lesson import Beat, Lesson, Question
from inspector.lessons.options import Option, option

LARGEST = 256 * 1024
"""Bytes of a file."""
MOST_BEATS, MOST_OPTIONS, MOST_ACTIONS = 60, 4, 20
_SEE = "See inspector generate --help."
FENCE = "+++"
HEAD = ("title", "about", "minutes", "prompt", "chat", "settings", "model", "fingerprint", "needs")
"""Names in the front matter."""
BEAT = ("show", "look", "hide", "begin", "act", "keep", "answer", "number", "hint", "minutes")
"""Names in a beat's block."""


def read(path: Path) -> Lesson:
    """Read a lesson.

    Args:
        path: Its file.

    Raises:
        PathError: It can't be read.
        LessonError: It is none.
    """
    try:
        content = read_regular(path, LARGEST)
    except OSError as error:
        raise PathError(*told(path, error, "read")) from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise LessonError(line, "This is no UTF-8 text.", "Save the file as UTF-8.") from error
    return lesson(text, path.stem)


def begins(path: Path) -> bool:
    """Whether a file begins as a lesson does; other Markdown doesn't."""
    try:
        with path.open("rb") as file:
            return file.readline(100).strip() == FENCE.encode()
    except OSError:
        return False


def lesson(text: str, id: str) -> Lesson:
    """Read a lesson from its text.

    Raises:
        LessonError: It is none: the first thing that is wrong.
    """
    head, body, offset = _split(text)
    made = _head(head, id)
    beats = tuple(_beat(part) for part in _parts(body, offset))
    if not beats:
        raise LessonError(offset + 1, "There is no beat.", "A beat begins with a heading: ## Its title.")
    if len(beats) > MOST_BEATS:
        raise LessonError(
            beats[MOST_BEATS].line, f"There are {len(beats)} beats.", f"{MOST_BEATS} are allowed."
        )
    return replace(made, beats=beats)


# ---- front matter -----------------------------------------------------------------------------


def _split(text: str) -> tuple[str, str, int]:
    """Front matter, body, and the lines before the body."""
    lines = text.split("\n")
    if lines[0].strip() != FENCE:
        raise LessonError(
            1, "The file doesn't begin with +++.", 'Begin with +++, title = "...", and +++ again.'
        )
    end = next((place for place, line in enumerate(lines[1:], 1) if line.strip() == FENCE), None)
    if end is None:
        raise LessonError(1, "The front matter has no end.", "Close it with a line of +++.")
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]), end + 1


def _head(source: str, id: str) -> Lesson:
    table = TomlTable(source, 1, HEAD)
    title = table.get("title", str, "")
    if not title:
        raise LessonError(2, "The lesson has no title.", 'Write title = "...".')
    settings = table.get("settings", dict, {})
    return Lesson(
        id=id,
        title=title,
        beats=(),
        about=table.get("about", str, ""),
        minutes=float(table.get("minutes", (int, float), 5)),
        prompt=table.get("prompt", str, ""),
        chat=table.get("chat", bool, False),
        settings=_settings(settings, table.line("settings")),
        model=table.get("model", str, "pocket"),
        fingerprint=table.get("fingerprint", str, ""),
        needs=table.texts("needs"),
    )


def _settings(table: Mapping[str, Any], line: int) -> Settings:
    known = {each.name for each in fields(Settings)}
    if unknown := sorted(table.keys() - known):
        raise LessonError(
            line, f"{unknown[0]} is no setting of the sampler.", "See inspector generate --help.", "setting"
        )
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in table.items()
    }
    try:
        return check(replace(Settings(), **values))
    except (SettingsError, TypeError) as error:
        raise LessonError(line, str(error) if isinstance(error, SettingsError) else "A setting has the wrong type.",
                          rule="setting") from error  # fmt: skip


class TomlTable:
    """A table of TOML, with the lines where its names stand.

    Args:
        source: Its text.
        offset: Lines of the file before it.
        names: Those that it may have.
    """

    def __init__(self, source: str, offset: int, names: Sequence[str]) -> None:
        self._lines, self._offset = source.split("\n"), offset
        try:
            self._values = tomllib.loads(source)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise LessonError(self._error_line(error), f"This is no TOML: {error}.", rule="toml") from error
        if unknown := sorted(self._values.keys() - set(names)):
            hint = f"There are {', '.join(names)}."
            raise LessonError(self.line(unknown[0]), f"There is no {unknown[0]}.", hint, "field")

    def _error_line(self, error: Exception) -> int:
        return self._offset + int(getattr(error, "lineno", 0) or _said_line(str(error)))

    def line(self, name: str) -> int:
        """Where a name stands in the file."""
        own = (place for place, line in enumerate(self._lines, 1) if line.partition("=")[0].strip() == name)
        return self._offset + next(own, 1)

    def get(self, name: str, kinds: type | tuple[type, ...], default: Any) -> Any:
        """A value of some type."""
        value = self._values.get(name, default)
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            words = {str: "a text in quotes", dict: "a table", bool: "true or false", list: "a list"}
            kind = words.get(kinds, "a number") if isinstance(kinds, type) else "a number"
            raise LessonError(self.line(name), f"{name} must be {kind}.", rule="field")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, or one."""
        value = self._values.get(name, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise LessonError(self.line(name), f"{name} must be a list of texts in quotes.", rule="field")
        return tuple(found)


def _said_line(message: str) -> int:
    """The line that an error of tomllib names in its words."""
    _, _, after = message.partition("at line ")
    digits = after.partition(",")[0]
    return int(digits) if digits.isdigit() else 1


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


def _parts(body: str, offset: int) -> list[_Part]:
    from markdown_it import MarkdownIt  # only where a lesson is read

    parts: list[_Part] = []
    within: list[str] = []
    line = 0
    for token in MarkdownIt("commonmark", {"maxNesting": 20}).parse(body):
        line = token.map[0] + 1 + offset if token.map else line
        if token.nesting == 1:
            within.append(token.type.removesuffix("_open"))
        elif token.nesting == -1:
            within.pop()
        elif token.type == "inline":
            _inline(parts, within, token.content, line)
        elif token.type in ("fence", "code_block", "html_block"):
            _block(parts, token.type, token.info, token.content, line)
    return parts


def _inline(parts: list[_Part], within: list[str], content: str, line: int) -> None:
    words = " ".join(content.split())
    if within and within[-1] == "heading":
        parts.append(_Part(words, line))
        return
    if not parts:
        raise LessonError(
            line, "There is text before the first beat.", "A beat begins with ## and its title."
        )
    part = parts[-1]
    place = (
        part.items if "list_item" in within else part.quotes if "blockquote" in within else part.paragraphs
    )
    place.append((words, line))


def _block(parts: list[_Part], kind: str, info: str, content: str, line: int) -> None:
    if kind != "fence" or info.strip() != "toml":
        raise LessonError(line, "A beat has no blocks but one of TOML.", "It is fenced by ```toml and ```.")
    if not parts:
        raise LessonError(
            line, "There is a block before the first beat.", "A beat begins with ## and its title."
        )
    if parts[-1].block is not None:
        raise LessonError(line, "A beat has one block of TOML.", "Put both into one.")
    parts[-1].block = content, line


def _beat(part: _Part) -> Beat:
    source, line = part.block or ("", part.line)
    table = TomlTable(source, line, BEAT)
    asked = [(text[1:].strip(), at) for text, at in part.paragraphs if text.startswith("?")]
    notes = [text[5:].strip() for text, _ in part.paragraphs if text.lower().startswith("note:")]
    text = [
        template(words, at)
        for words, at in part.paragraphs
        if not words.startswith("?") and not words.lower().startswith("note:")
    ]
    keep = table.get("keep", dict, {})
    number = table.get("number", str, "")
    return Beat(
        title=part.title,
        line=part.line,
        text=tuple(text),
        question=_question(part, asked, table),
        act=_actions(table, "act"),
        why=tuple(template(words, at) for words, at in part.quotes),
        begin=_actions(table, "begin"),
        keep=tuple(_kept(name, source, table.line("keep")) for name, source in keep.items()),
        show=table.get("show", str, ""),
        look=table.get("look", str, "next"),
        hide=table.texts("hide"),
        number=expression(number, table.line("number")) if number else None,
        hint=table.get("hint", str, ""),
        minutes=float(table.get("minutes", (int, float), 0)),
        notes=tuple(notes),
    )


def _kept(name: str, source: Any, line: int) -> tuple[str, Expression]:
    from inspector.lessons.expressions import functions

    if not isinstance(source, str) or not name.isidentifier() or name in functions():
        raise LessonError(
            line, f"{name} can't be kept under that name.", 'Write keep = {before = "next.entropy"}.'
        )
    return name, expression(source, line)


def _actions(table: TomlTable, name: str) -> tuple[Action, ...]:
    found, line = table.texts(name), table.line(name)
    if len(found) > MOST_ACTIONS:
        raise LessonError(
            line, f"There are {len(found)} actions.", f"{MOST_ACTIONS} are allowed in a row.", "action"
        )
    return tuple(action(each, line) for each in found)


def _question(part: _Part, asked: Sequence[tuple[str, int]], table: TomlTable) -> Question | None:
    answer = table.get("answer", str, "")
    if not asked:
        if part.items or answer:
            line = part.items[0][1] if part.items else table.line("answer")
            raise LessonError(line, "There are options or an answer without a question.",
                              "Write the question as a paragraph that begins with ?.", "question")  # fmt: skip
        return None
    words, line = asked[0]
    if len(asked) > 1:
        raise LessonError(asked[1][1], "A beat asks one question.", "Make two beats of it.", "question")
    if not answer:
        raise LessonError(
            line, "The question has no answer.", 'Write answer = "next.picked" in the block.', "question"
        )
    options = tuple(option(text, at) for text, at in part.items)
    _check_options(options, line)
    return Question(template(words, line), options, expression(answer, table.line("answer")), line)


def _check_options(options: Sequence[Option], line: int) -> None:
    if not 2 <= len(options) <= MOST_OPTIONS:
        raise LessonError(
            line, f"The question has {len(options)} options.", f"2 to {MOST_OPTIONS} are a choice.", "options"
        )
    for place, each in enumerate(options):
        if not each.text or any(each.text == other.text for other in options[:place]):
            raise LessonError(
                each.line,
                "An option is empty, or stands there twice.",
                "Give each words of its own.",
                "options",
            )
