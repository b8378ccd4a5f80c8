"""Expressions over the records of a run: calls of a fixed list of functions, never evaluated as code.

An expression is a function, with or without arguments, and one of the fields of its result: `next.entropy`,
`step(3).text`, `whatif(temp=1.5).picked`. Numbers can be added, subtracted, multiplied, divided and compared; a value
that this beat or an earlier one keeps is written by its name. Python's own parser makes the syntax tree; nodes that
aren't listed here are refused, and nothing is executed.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from engine.errors import SettingsError
from inspector.display import visible
from inspector.lessons.errors import LessonError
from inspector.lessons.kinds import SubjectKind
from inspector.lessons.quantities import FUNCTIONS, Scope
from inspector.lessons.values import FORMS, NEAR_BORDER, NEAR_TIMED, Value

LONGEST, DEEPEST = 200, 12
"""Most characters of an expression, and levels of its tree: Python's parser crashes on very deep ones."""
MOST_VALUES = 40
"""The most expressions in one text."""
OTHER_VALUE = "Ask for another value, or change what the card does before it."


class Subject(Struct, frozen=True):
    """The result of a function, which has fields."""

    kind: SubjectKind
    of: Any


class Expression(Struct, frozen=True):
    """One expression of a lesson's file."""

    source: str
    tree: ast.expr
    line: int
    """Its line in the lesson's file."""

    def value(self, scope: Scope) -> Value:
        """Its value in a run.

        Raises:
            LessonError: It has no value here; the message says why.
            Unanswered: The engine has to be asked first.
        """
        return self._value(self._found(self.tree, scope))

    def names(self) -> set[str]:
        """All names in it: functions and kept values."""
        return {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}

    def calls(self, function: str) -> list[ast.Call]:
        """The calls of a function in it."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == function]

    # ---- the tree ---------------------------------------------------------------------------

    def _found(self, node: ast.expr, scope: Scope) -> Subject | Value:
        match node:
            case ast.Constant(value=bool() as value):
                return Value("truth", value)
            case ast.Constant(value=int() | float() as value):
                return Value("number", value)
            case ast.Constant(value=str() as value):
                return Value("text", value)
            case ast.UnaryOp(operand=operand):
                inner = self._value(self._found(operand, scope))
                return replace(inner, raw=-self._number(inner))
            case ast.BinOp(left=left, op=op, right=right):
                pair = (self._value(self._found(left, scope)), self._value(self._found(right, scope)))
                return self._computed(*pair, _ARITHMETIC[type(op)])
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                pair = (self._value(self._found(left, scope)), self._value(self._found(right, scope)))
                return self._compared(*pair, _COMPARISONS[type(op)])
            case ast.Attribute(value=inner_node, attr=name):
                return self._field(self._found(inner_node, scope), name)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                return self._called(name, scope, args, keywords)
            case ast.Name(id=name) if name in scope.kept:
                return scope.kept[name]
            case ast.Name(id=name):
                return self._called(name, scope)
        raise self._wrong(f"{ast.unparse(node)} can't be used in a lesson's expression.")

    def _called(
        self, name: str, scope: Scope, args: Sequence[ast.expr] = (), keywords: Sequence[ast.keyword] = ()
    ) -> Subject:
        if name not in FUNCTIONS:
            names = ", ".join(sorted((*FUNCTIONS, *scope.kept)))
            raise self._wrong(f"There is no quantity {name}.", f"There are {names}.", "quantity")
        function, kind = FUNCTIONS[name], FUNCTIONS[name].gives
        if args and kind.of_text:
            kind = replace(kind, default=kind.of_text)
        arguments = [cast(ast.Constant, each).value for each in args]
        named = {str(each.arg): cast(ast.Constant, each.value).value for each in keywords}
        try:
            return Subject(kind, function.call(scope, *arguments, **named))
        except TypeError as error:
            hint = f"Example: {function.usage}"
            raise self._wrong(f"{name} doesn't take these arguments.", hint) from error
        except SettingsError as error:
            raise self._wrong(error.message, error.hint, "setting") from error
        except LookupError as error:
            raise self._missing(error, name) from error

    def _missing(self, error: Exception, name: str) -> LessonError:
        why = f"{error.args[0]}." if error.args else ""
        return self._wrong(f"This card has no value of {self.source}. {why[:1].upper()}{why[1:]}".rstrip())

    def _value(self, found: Subject | Value) -> Value:
        return found if isinstance(found, Value) else self._field(found, found.kind.default)

    def _field(self, found: Subject | Value, name: str) -> Value:
        if isinstance(found, Value):
            raise self._wrong(f"A {found.unit} has no field {name}.")
        if name not in found.kind.fields:
            hint = f"It has {', '.join(found.kind.fields)}."
            raise self._wrong(f"{found.kind.name} has no field {name}.", hint, "field")
        try:
            return found.kind.fields[name][1](found.of)
        except (LookupError, TypeError, ArithmeticError) as error:
            raise self._missing(error, name) from error

    def _computed(self, left: Value, right: Value, op: Callable[[float, float], float]) -> Value:
        try:
            number = op(self._number(left), self._number(right))
        except (ZeroDivisionError, OverflowError) as error:
            raise self._wrong(f"{self.source} divides by zero, or its value is too large.") from error
        if not math.isfinite(number):
            raise self._wrong(f"The value of {self.source} is too large.")
        unit = left.unit if left.unit == right.unit and op in (operator.add, operator.sub) else "number"
        unit = "times" if op is operator.truediv and left.unit == right.unit else unit
        return Value(unit, number, "", left.fragile or right.fragile, left.timed or right.timed)

    def _compared(self, left: Value, right: Value, op: Callable[[Any, Any], bool]) -> Value:
        words = left.number is None or right.number is None
        truth = op(left.plain, right.plain) if words else op(self._number(left), self._number(right))
        fragile = left.fragile or right.fragile
        if not words and not fragile and not (left.exact and right.exact):
            fragile = _close(self._number(left), self._number(right), left.timed or right.timed)
        return Value("truth", truth, "", fragile, left.timed or right.timed)

    def _number(self, value: Value) -> float:
        if value.number is None:
            raise self._wrong(f"{self.source} computes with {value.written()}, which is not a number.")
        return value.number

    def _wrong(self, message: str, hint: str = OTHER_VALUE, rule: str = "quantity") -> LessonError:
        return LessonError(self.line, message, hint, rule)


def _close(left: float, right: float, timed: bool) -> str:
    """The reason that a comparison of two measured numbers is not safe; empty if it is."""
    apart = abs(left - right)
    if apart == 0 or apart >= (NEAR_TIMED if timed else NEAR_BORDER) * max(abs(left), abs(right)):
        return ""
    return f"{left:.4g} and {right:.4g} are too close to be compared safely"


_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def expression(source: str, line: int) -> Expression:
    """Read an expression.

    Args:
        source: Text of the expression in the file.
        line: Its line in the file.

    Raises:
        LessonError: It can't be parsed, or has something that isn't listed.
    """
    if len(source) > LONGEST:
        raise LessonError(
            line, f"An expression of {len(source):,} characters is too long.", f"It may have {LONGEST}."
        )
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LessonError(line, f"{source.strip()} can't be read as an expression.", _EXAMPLE) from error
    tree = _Signed().visit(tree)
    _check(tree, source, line, 0)
    return Expression(source.strip(), tree, line)


_EXAMPLE = "One looks like this: step(3).entropy."


class _Signed(ast.NodeTransformer):
    """Makes one constant from a minus and a number, as the arguments of a call must be constants."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return ast.copy_location(ast.Constant(-value), node)
        self.generic_visit(node)
        return node


def _check(node: ast.AST, source: str, line: int, depth: int) -> None:
    """Check that all nodes of a tree are listed."""
    listed = (
        (isinstance(node, ast.Constant) and isinstance(node.value, str | int | float))
        or isinstance(node, ast.Name | ast.Attribute)
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub))
        or (isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC)
        or (isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS)
        or (isinstance(node, ast.Call) and _plain(node))
    )  # fmt: skip
    if not listed or depth > DEEPEST:
        raise LessonError(line, f"{source.strip()} can't be used in a lesson's expression.", _EXAMPLE)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            _check(child, source, line, depth + 1)
        elif isinstance(child, ast.keyword):
            _check(child.value, source, line, depth + 1)


def _plain(call: ast.Call) -> bool:
    """True if a call names its function, and its arguments are constants."""
    constants = (*call.args, *(each.value for each in call.keywords))
    named = all(each.arg is not None for each in call.keywords)
    return (
        isinstance(call.func, ast.Name)
        and named
        and all(isinstance(each, ast.Constant) for each in constants)
    )


# ---- texts with expressions in them -----------------------------------------------------------


class Template(Struct, frozen=True):
    """A text with values of the run: `The draw stays at {next.draw:.3}.`"""

    parts: tuple[str | tuple[Expression, str], ...]
    """Texts, and expressions with their forms."""
    line: int

    def filled(self, scope: Scope) -> str:
        """The text with the values of a run; printable."""
        return "".join(
            visible(part) if isinstance(part, str) else part[0].value(scope).written(part[1])
            for part in self.parts
        )

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions in it."""
        return tuple(part[0] for part in self.parts if not isinstance(part, str))


_BRACES = re.compile(r"\{([^{}]*)\}")


def template(text: str, line: int) -> Template:
    """Read a text with expressions in braces.

    Raises:
        LessonError: An expression is not valid, or its form isn't listed.
    """
    parts: list[str | tuple[Expression, str]] = []
    end = 0
    for number, match in enumerate(_BRACES.finditer(text)):
        if number == MOST_VALUES:
            raise LessonError(line, "A text has too many values.", f"A text may have {MOST_VALUES}.")
        at = line + text.count("\n", 0, match.start())
        parts += [_spaced(text[end : match.start()]), _part(" ".join(match[1].split()), at)]
        end = match.end()
    rest = _spaced(text[end:])
    if any(brace in part for part in (*parts, rest) if isinstance(part, str) for brace in "{}"):
        raise LessonError(line, "A brace is not closed.", "A value of the run is written {next.entropy}.")
    return Template(tuple(part for part in (*parts, rest) if part != ""), line)


def _spaced(text: str) -> str:
    """The text on one line, with single spaces."""
    return re.sub(r"\s+", " ", text)


def _part(inside: str, line: int) -> tuple[Expression, str]:
    source, colon, form = inside.rpartition(":")
    if not colon or form not in FORMS:
        if colon and not form.endswith(("'", '"', ")")):
            names = ", ".join(FORMS)
            raise LessonError(line, f"There is no number format {form}.", f"There are {names}.", "form")
        source, form = inside, ""
    return expression(source, line), form
