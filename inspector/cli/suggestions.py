"""The probable meaning of an argument that no parser knows. Imported when there is such an argument.

By the argument alone, not by argparse's messages: those differ between versions of Python.
"""

from __future__ import annotations

import os
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from engine.errors import EngineError
from engine.files import shorter

Parsers = Callable[[], Mapping[str, ArgumentParser]]
"""Makes the parsers of all commands, by what is typed: `inspector`, `inspector generate`."""
SURE, POSSIBLE = 0.75, 0.6
"""Likeness from which on a flag of the command itself is meant, and any flag, though another may be nearer."""
LONGEST_ECHO = 60
"""Characters of a text that a message repeats as it should be typed."""
FOREIGN: Mapping[str, str] = {
    foreign: own
    for own, named in {
        "--temp": "--temperature",
        "--preset greedy": "--greedy",
        "--max-tokens": "--max-new-tokens --max-completion-tokens --max-length --n-predict --num-predict --n",
        "--min-tokens": "--min-new-tokens --min-length",
        "--min-tokens-to-keep": "--min-keep",
        "--width": "--num-beams --beam-width --beam-size",
        "--repetition-penalty": "--repeat-penalty",
        "--repetition-context-size": "--repeat-last-n",
        "--sampler-order": "--samplers",
        "--stop": "--stop-sequence --reverse-prompt",
        "--extra-eos-token": "--eos-token-id",
        "--candidates": "--top-logprobs --n-probs",
        "--system-prompt": "--system --system-message",
        "--prompt-file": "--file --f",
        "--model": "--model-path --model-name-or-path",
        "--adapter-path": "--lora",
        "--max-kv-size": "--ctx-size",
        "--no-kv-cache": "--use-cache",
        "--jsonl": "--json-lines",
        "--to": "--format",
    }.items()
    for foreign in named.split()
}
"""Flags of other programs (transformers, llama.cpp, vLLM, OpenAI's API) that no close match finds, and ours."""
WORDS: Mapping[str, str] = {
    "help": "--help",
    "version": "--version",
    "resume": "--resume",
    "list": "sessions",
}
"""Words of other programs' command lines, and what is typed here after `inspector`."""


def answer(
    unknown: Sequence[str], argv: Sequence[str], parser: ArgumentParser, parsers: Parsers
) -> EngineError:
    """The answer to arguments that a command doesn't know, with its probable meaning.

    Args:
        unknown: As typed; the first flag among them is answered, or else the first word.
        argv: All arguments.
        parser: Of the command.
        parsers: Of all commands, for flags of other commands.
    """
    flags = [each for each in unknown if each.startswith("-") and len(each) > 1 and " " not in each]
    if flags:
        return _flag(flags[0].partition("=")[0], parser, parsers())
    return _word(unknown[0], argv, parser, [command.partition(" ")[2] for command in parsers()])


def _flag(flag: str, parser: ArgumentParser, parsers: Mapping[str, ArgumentParser]) -> EngineError:
    plain = "--" + flag.strip("-").lower().replace("_", "-")
    having = {command: _long_flags(other) for command, other in {parser.prog: parser, **parsers}.items()}
    own, others = having[parser.prog], [name for names in having.values() for name in names]
    known = {**dict(zip(others, others, strict=True)), **FOREIGN, **dict(zip(own, own, strict=True))}
    meant = [name for name, ours in known.items() if ours.partition(" ")[0] in own]
    tried = ((meant, 1.0), (own, SURE), (list(known), 1.0), (meant, SURE), (list(known), POSSIBLE))
    near = next(filter(None, (_nearest(plain, *each) for each in tried)), [])
    message, wanted = f"{parser.prog} has no flag {shorter(flag)}.", known[near[0]] if near else ""
    if near and near[0] in meant:
        return EngineError(message, f"Did you mean {wanted}?")
    commands = [command for command, names in having.items() if wanted.partition(" ")[0] in names]
    there = f"{wanted} is a flag of {', '.join(commands[:3])}. " if commands else ""
    return EngineError(message, f"{there}See `{parser.prog} --help`.")


def _long_flags(parser: ArgumentParser) -> list[str]:
    return [name for name in parser._option_string_actions if name.startswith("--")]


def _nearest(flag: str, known: Sequence[str], cutoff: float) -> list[str]:
    """The nearest flag, compared without the hyphens that all of them begin with."""
    return [f"--{name}" for name in get_close_matches(flag[2:], [name[2:] for name in known], 1, cutoff)]


def _word(word: str, argv: Sequence[str], parser: ArgumentParser, subcommands: Sequence[str]) -> EngineError:
    prog, before = parser.prog, argv[: argv.index(word)]
    message = f"{prog} takes no {shorter(word)!r}."
    if "-p" in before or "--prompt" in before:
        return EngineError(message, "Put a prompt of several words in quotes.")
    if prog == "inspector" and word:
        if word in subcommands:
            return EngineError(message, f"Put {word} first: inspector {word} ...")
        message = f"{shorter(word)!r} is not a subcommand of inspector."
        if near := _near(word, subcommands):
            return EngineError(message, f"Did you mean inspector {near}?")
    return EngineError(message, _as_value(word, parser))


def _as_value(word: str, parser: ArgumentParser) -> str:
    """The flag with which a word is given, as a sentence."""
    typed = shlex.quote(word) if len(word) <= LONGEST_ECHO else "TEXT"
    for flag, what, fits in (
        ("--model", "A model", _names_model),
        ("--prompt-file", "The file of a prompt", os.path.isfile),
        ("-p", "A prompt", bool),
    ):
        if flag in parser._option_string_actions and fits(word):
            return f"{what} is given with {flag}: {parser.prog} {flag} {typed}"
    return f"See `{parser.prog} --help`."


def _near(word: str, subcommands: Sequence[str]) -> str:
    """The words to type after `inspector` for a mistyped subcommand or a recording; empty if a word is neither."""
    if word.endswith((".trace", ".trace.zst")):
        return f"replay {shlex.quote(word)}"
    a_name = len(word) <= LONGEST_ECHO and "/" not in word  # some/model is no misspelt `models`
    near = get_close_matches(word.lower(), subcommands, 1) if a_name else []
    return WORDS.get(word.lower(), near[0] if near else "")


def _names_model(word: str) -> bool:
    """True if a word is the bundled model, a directory, or written as a hub id is."""
    return word == "pocket" or os.path.isdir(word) or re.fullmatch(r"[\w.-]+/[\w.-]+", word) is not None
