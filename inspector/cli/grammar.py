"""The flags of a grammar: what the generated text must match. Standard library alone."""

from __future__ import annotations

import argparse
from pathlib import PurePath

from engine.errors import EngineError, PromptError, SettingsError
from engine.grammar_settings import Grammar, check_grammar, choices
from inspector.cli.inputs import decoded, read_file, unescaped

FLAGS = {
    "regex": "--regex",
    "json_schema": "--json-schema",
    "grammar_file": "--grammar",
    "choices": "--choices",
}
"""The flags by the names of their values."""


def add_grammar(group: argparse._ArgumentGroup) -> None:
    """The flags, of which one may be given."""
    group.add_argument(
        "--regex", metavar="REGEX", help="the whole completion must match this regular expression"
    )
    group.add_argument(
        "--json-schema",
        metavar="FILE|TEXT",
        help="... must be JSON of this schema: a file, or the schema where it begins with {",
    )
    group.add_argument(
        "--grammar",
        dest="grammar_file",
        metavar="FILE",
        help="... must match this grammar: Lark, or GBNF as llama.cpp has it",
    )
    group.add_argument(
        "--choices",
        metavar="A,B,C",
        help=r"... must be one of these texts; \n and \t are escapes in --regex alone",
    )


def grammar_from(args: argparse.Namespace) -> Grammar | None:
    """The grammar that the flags ask for; None without one.

    Raises:
        EngineError: Two are given, a file can't be read, or it is no grammar.
    """
    given = {flag: value for name, flag in FLAGS.items() if (value := getattr(args, name, None)) is not None}
    if not given:
        return None
    if len(given) > 1:
        raise PromptError(f"{' and '.join(given)} were given.", "Give one of them: a text has one grammar.")
    ((flag, value),) = given.items()
    try:
        grammar = _grammar(flag, value)
        check_grammar(grammar)
    except SettingsError as error:
        raise EngineError(f"{flag}: {error.message}", error.hint) from None
    return grammar


def _grammar(flag: str, value: str) -> Grammar:
    match flag:
        case "--regex":
            return Grammar("regex", unescaped(value))
        case "--json-schema":
            return Grammar("json-schema", value if value.lstrip().startswith("{") else _file(value))
        case "--choices":
            return choices(tuple(value.split(",")))
    text = _file(value)
    return Grammar("gbnf" if PurePath(value).suffix == ".gbnf" or "::=" in text else "lark", text)


def _file(name: str) -> str:
    return decoded(read_file(name, "grammar file"), name)
