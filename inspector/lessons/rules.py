"""The rules of a lesson that need no model: what its expressions name, what it gives away, what fits on its card."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from itertools import combinations

from msgspec.structs import replace
from rich.cells import cell_len

from engine.errors import SettingsError
from engine.settings import BY_NAME
from inspector.lessons.actions import MOST_STEPS, LessonAction, settings_given
from inspector.lessons.errors import Faults, LessonError
from inspector.lessons.expressions import Expression, Template
from inspector.lessons.lesson import HIDDEN, SOUGHT, Beat, Lesson, Option
from inspector.lessons.quantities import FUNCTIONS

COLUMNS = 76
"""Columns of the card in a terminal of 80."""
TEXT, QUESTION, WHY, HINT, TO_DO = 2, 1, 3, 1, 2
"""Lines of the card's parts in a terminal of 24 rows."""
NO_PROMPT = frozenset({"tokens", "merged", "learned"})
"""Functions that need no prompt."""


def static(lesson: Lesson) -> list[LessonError]:
    """All faults of a lesson that can be found without its model."""
    faults = Faults()
    names = _Names(lesson, faults)
    for number, beat in enumerate(lesson.beats):
        if not (beat.question or beat.act or beat.text):
            hint = "Give it a text, a question or an action, or remove its heading."
            faults.add(beat.line, "The card has no text, no question and no action.", hint, "beat")
        names.check(number)
        _check_options(beat, faults)
        _check_hidden(beat, faults)
        _check_look(beat, faults)
        _check_room(lesson, number, faults)
    names.check_unused()
    _check_prompt(lesson, faults)
    _check_settings(lesson, faults)
    return faults.found


def before(beat: Beat) -> Iterator[Expression]:
    """The expressions that are shown before the reveal."""
    asked = (beat.question.text,) if beat.question is not None else ()
    yield from (expression for text in (*beat.text, *asked) for expression in text.expressions)


def after(beat: Beat) -> Iterator[Expression]:
    """The expressions of the reveal."""
    if beat.question is not None:
        yield beat.question.answer
    if beat.number is not None:
        yield beat.number
    yield from (expression for text in beat.why for expression in text.expressions)


# ---- what expressions name --------------------------------------------------------------------


class _Names:
    """The names that expressions may use: functions with their fields, and kept values."""

    def __init__(self, lesson: Lesson, faults: Faults) -> None:
        self._beats, self._faults = lesson.beats, faults
        self._kept = {
            name: (number, each.line)
            for number, beat in reversed(list(enumerate(lesson.beats)))
            for name, each in beat.keep
        }
        """The first beat that keeps a value, and the line, by name."""
        self._used: set[str] = set()

    def check(self, number: int) -> None:
        """Check that everything that the expressions of a beat name exists."""
        for expression in self._beats[number].expressions:
            self._used |= expression.names()
            self._faults.of(lambda at=expression: self._check(at.tree, at, number), None)  # type: ignore[misc]

    def check_unused(self) -> None:
        """Check that all kept values are used."""
        for name, (_, line) in self._kept.items():
            if name not in self._used:
                hint = f"Write {{{name}}} where the value should appear, or remove {name} from keep."
                self._faults.add(line, f"keep stores {name}, but nothing uses it.", hint, "keep")

    def _check(self, node: ast.AST, within: Expression, number: int) -> None:
        if isinstance(node, ast.Attribute):
            self._check_field(node, within)
        elif isinstance(node, ast.Call):
            self._check_call(node, within)
            return
        elif isinstance(node, ast.Name):
            self._check_name(node.id, within, number)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._check(child, within, number)

    def _check_name(self, name: str, within: Expression, number: int) -> None:
        if name in FUNCTIONS:
            return
        if name not in self._kept:
            names = ", ".join(sorted((*FUNCTIONS, *self._kept)))
            raise LessonError(within.line, f"There is no quantity {name}.", f"There are {names}.", "quantity")
        if self._kept[name][0] > number:
            hint = "Add it to keep in this card or an earlier one."
            raise LessonError(within.line, f"{name} is used before it is kept.", hint, "keep")

    def _check_field(self, node: ast.Attribute, within: Expression) -> None:
        name = _function(node.value)
        if name in self._kept or name is None:
            raise LessonError(within.line, f"{ast.unparse(node.value)} has no field {node.attr}.",
                              "A kept value has no fields.", "field")  # fmt: skip
        function = FUNCTIONS.get(name)
        if function is not None and node.attr not in function.gives.fields:
            hint = f"It has {', '.join(function.gives.fields)}."
            raise LessonError(within.line, f"{function.gives.name} has no field {node.attr}.", hint, "field")

    def _check_call(self, node: ast.Call, within: Expression) -> None:
        name = _function(node) or ""
        function = FUNCTIONS.get(name)
        if function is None:
            names = ", ".join(FUNCTIONS)
            raise LessonError(within.line, f"There is no quantity {name}.", f"There are {names}.", "quantity")
        signature = inspect.signature(function.call)
        named = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
        try:
            signature.bind(None, *node.args, **named)
        except TypeError as error:
            raise LessonError(within.line, f"{name} doesn't take these arguments.",
                              f"Example: {function.usage}", "argument") from error  # fmt: skip
        free = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
        _check_tried({key: value for key, value in named.items() if free and key not in signature.parameters},
                     within.line)  # fmt: skip


def _function(node: ast.expr) -> str | None:
    """The name of the function or kept value that an expression reads or calls; None for another expression."""
    inner = node.func if isinstance(node, ast.Call) else node
    return inner.id if isinstance(inner, ast.Name) else None


def _check_tried(values: dict[str, object], line: int) -> None:
    """Check the settings that an expression tries."""
    for name, value in values.items():
        if name not in BY_NAME:
            hint = "See inspector generate --help."
            raise LessonError(line, f"{name} is not a setting of the sampler.", hint, "setting")
        try:
            BY_NAME[name].parse(str(value))
        except SettingsError as error:
            raise LessonError(line, error.message, error.hint, "setting") from error


# ---- questions --------------------------------------------------------------------------------


def _check_options(beat: Beat, faults: Faults) -> None:
    if beat.question is None:
        return
    for each in beat.question.options:
        if ".." in each.test and each.borders is None:
            hint = "A range is written {..2}, {2..5} or {5..}."
            faults.add(each.line, f"{each.test.strip()} is not a range.", hint, "options")
    for one, other in combinations(beat.question.options, 2):
        if _overlap(one, other):
            hint = "Let one range end where the other begins."
            faults.add(other.line, f"The ranges of “{one.text}” and “{other.text}” overlap.", hint, "answer")
    tree = beat.question.answer.tree
    if isinstance(tree, ast.Attribute) and tree.attr == "ms":
        hint = "Ask for a ratio with wide borders, or for a count."
        faults.add(
            beat.question.answer.line,
            "The answer is in milliseconds, which differ between machines.",
            hint,
            "timed",
        )


def _overlap(one: Option, other: Option) -> bool:
    if one.borders is None or other.borders is None:
        return one.borders is other.borders and one.test.strip().casefold() == other.test.strip().casefold()
    return max(one.borders[0], other.borders[0]) < min(one.borders[1], other.borders[1])


def _check_hidden(beat: Beat, faults: Faults) -> None:
    """Check that nothing shown before the reveal gives away the answer, or what is hidden."""
    answer = ast.dump(beat.question.answer.tree) if beat.question is not None and not beat.act else ""
    hidden = {each: HIDDEN[each] for each in beat.hide}
    for expression in before(beat):
        if ast.dump(expression.tree) == answer:
            hint = "Show it in the reveal: a line that begins with >."
            faults.add(
                expression.line,
                f"{{{expression.source}}} is the answer, and can be seen before the prediction.",
                hint,
                "hidden",
            )
        for panel, names in hidden.items():
            if _quantities(expression) & names:
                hint = "Move it to the reveal, or don't hide the panel."
                message = f"{{{expression.source}}} shows what hide = {panel} should hide."
                faults.add(expression.line, message, hint, "hidden")


def _quantities(expression: Expression) -> set[str]:
    """The functions that an expression reads, both alone and with the field: the default field if it names none."""
    found: set[str] = set()
    for node in ast.walk(expression.tree):
        if isinstance(node, ast.Attribute) and (name := _function(node.value)) in FUNCTIONS:
            found |= {str(name), f"{name}.{node.attr}"}
    bare = expression.tree
    if not isinstance(bare, ast.Attribute) and (name := _function(bare)) in FUNCTIONS:
        found |= {str(name), f"{name}.{FUNCTIONS[str(name)].gives.default}"}
    return found


def _check_look(beat: Beat, faults: Faults) -> None:
    """Check that the token that the reveal speaks of is the selected one."""
    spoken = [(each, about) for text in beat.why for each in text.expressions for about in tokens(each)]
    accepted = dict.fromkeys(("last", *SOUGHT), ("last", "step "))
    if any(beat.look.startswith(accepted.get(about, (about,))) for _, about in spoken) or not spoken:
        return
    expression, about = spoken[0]
    look = "step 3" if about in SOUGHT else about
    faults.add(expression.line, f"The reveal names {{{expression.source}}}, but look selects {beat.look}.",
               f'Write look = "{look}"' + (", with its number." if about in SOUGHT else "."), "look")  # fmt: skip


def tokens(expression: Expression) -> Iterator[str]:
    """The tokens that an expression reads: as `look` names them, or the function of `SOUGHT` that finds one."""
    for node in ast.walk(expression.tree):
        if isinstance(node, ast.Name) and node.id in ("next", "candidate"):
            yield "next"
        elif isinstance(node, ast.Name) and node.id in ("last", *SOUGHT):
            yield node.id
    for call in expression.calls("step"):
        if call.args and isinstance(call.args[0], ast.Constant):
            yield f"step {call.args[0].value!s}"


# ---- room -------------------------------------------------------------------------------------


def lines(text: str, columns: int = COLUMNS) -> int:
    """The number of lines that a text takes, wrapped at spaces."""
    count, room = 1, columns
    for word in text.split(" "):
        width = cell_len(word)
        if width > room and room < columns:
            count, room = count + 1, columns
        count += max(0, width - 1) // columns
        room -= width % columns + 1
    return count


def too_long(beat: Beat, text: Sequence[str], question: str, why: Sequence[str], faults: Faults) -> None:
    """Add a fault for each part of a beat's card that has more lines than there is room for."""
    parts = (
        (beat.text[0].line if beat.text else beat.line, "The text", sum(map(lines, text)), TEXT),
        (beat.question.line if beat.question else beat.line, "The question", lines(question), QUESTION),
        (beat.why[0].line if beat.why else beat.line, "The reveal", sum(map(lines, why)), WHY),
    )
    for line, what, needed, most in parts:
        if needed > most:
            hint = f"A terminal of 80 by 24 has room for {most}, of {COLUMNS} columns: shorten it, or make two cards."
            faults.add(line, f"{what} takes {needed} lines.", hint, "caption")


def _check_room(lesson: Lesson, number: int, faults: Faults) -> None:
    beat = lesson.beats[number]
    question = beat.question
    too_long(
        beat,
        [*map(_least, beat.text)],
        _least(question.text) if question else "",
        [*map(_least, beat.why)],
        faults,
    )
    hint = "Use fewer words."
    title = f"{lesson.title} {number + 1}/{len(lesson.beats)} · {beat.title}"
    if cell_len(title) > COLUMNS - 6:
        faults.add(beat.line, f"The title of the card has {cell_len(title)} columns.", hint, "caption")
    if lines(beat.hint) > HINT:
        faults.add(beat.line, f"The hint takes {lines(beat.hint)} lines.", hint, "caption")
    if question is not None and lines("   ".join(f"1 {each.text}" for each in question.options)) > 1:
        faults.add(question.options[0].line, "The options don't fit on one line.", hint, "caption")
    for action in beat.act:
        if (needed := lines(f"▶ Press {action.keys}.")) > TO_DO:
            faults.add(action.line, f"The keys to press take {needed} lines.", hint, "caption")


def _least(text: Template) -> str:
    """The text with each value as short as possible."""
    return "".join(part if isinstance(part, str) else "0" for part in text.parts)


# ---- actions ----------------------------------------------------------------------------------


def _check_prompt(lesson: Lesson, faults: Faults) -> None:
    """Check that there is a prompt before something needs one."""
    there = bool(lesson.prompt)
    for beat in lesson.beats:
        steps: tuple[LessonAction | Expression, ...] = (*beat.begin, *_first(beat), *beat.act, *after(beat))
        for needs in steps:
            if isinstance(needs, LessonAction):
                there = there or needs.name == "prompt"
                wanted = needs.name not in ("set", "training")
            else:
                wanted = bool(needs.names() & (FUNCTIONS.keys() - NO_PROMPT))
            if wanted and not there:
                hint = 'Write prompt = "Once upon a time" at the top, or begin = "prompt Once upon a time".'
                faults.add(needs.line, "This needs a prompt, but there is none.", hint, "prompt")
                return


def _first(beat: Beat) -> Iterator[Expression]:
    yield from (expression for _, expression in beat.keep)
    yield from before(beat)


def _check_settings(lesson: Lesson, faults: Faults) -> None:
    """Check that settings stay in range, and that runs are not too long."""
    settings = lesson.settings
    for beat in lesson.beats:
        for action in (*beat.begin, *beat.act):
            if action.name == "set":
                settings = replace(settings, **settings_given(action.given))
            elif action.name == "run" and settings.max_tokens > MOST_STEPS:
                message = f"This run may take {settings.max_tokens:,} tokens."
                faults.add(action.line, message, f"Set max_tokens to {MOST_STEPS:,} at most.", "run")
