"""The flags that the commands share, and the parser of flags.

Sampler and stop flags are made from `engine.settings.FIELDS`, so that a flag, its bounds and the settings screen can't
differ. Nothing heavy is imported, so that `--help` is instant.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from engine.errors import EngineError, SettingsError
from engine.files import shorter
from engine.setting import Setting, grouped
from engine.settings import BY_NAME, FIELDS, LOAD_FIELDS, LOAD_GROUPS, MODELS_OWN
from inspector.cli.exit import output

EXIT_STATUS = "Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted."
STEER = "FILE[:STRENGTH[@LAYER]]"
"""The help's notation of a direction with its strength and layer."""
DOCUMENTS = ("html", "md", "csv", "txt", "svg")
"""Kinds of documents that a recording is written as."""
EXAMPLES = {
    "inspector completion": "inspector completion bash",
    "inspector diff": "inspector diff pocket --bits 4 --text FILE, or inspector diff A B -p TEXT",
    "inspector lesson": "inspector lesson new my-lesson.md, then inspector lesson check my-lesson.md",
    "inspector open": "inspector open requests.har, or inspector open requests.har 3",
}
"""Examples of the commands that need an argument."""
METAVARS = {"float": "X", "int": "N", "texts": "TEXT", "biases": "ID=VALUE"}
"""Name of a flag's value in the help, by the kind of its setting."""
BIASES = """add VALUE to the logit of a token, which is named by its id or its text: 451=-5, '" cat"=2'; without a VALUE
-100, which forbids it unless a grammar allows nothing else; may be repeated"""
Flags = Mapping[str, "str | tuple[str, dict[str, Any]] | Flags"]
"""Flags and groups of flags, as described in `add`."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises an error of one line instead of exiting."""

    intermixed = False
    """True if positional arguments may come before and after flags."""

    def print_help(self, file: Any = None) -> None:
        """Write the help; unlike in `argparse`, an error of the write is raised."""
        (output() if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Raise the error that `argparse` would print with the usage."""
        flag, _, fault = message.removeprefix("argument ").partition(": ")
        hint = f"See `{self.prog} --help`."
        if flag == "the following arguments are required":
            raise EngineError(
                f"{self.prog} needs {fault.replace(', ', ' and ')}.", f"Such as: {EXAMPLES[self.prog]}."
            )
        if fault == "expected one argument":
            hint = f"A value that begins with - is given as {flag.partition('/')[0]}=VALUE."
        if of := re.fullmatch(r"invalid choice: (.+) \(choose from (.+)\)", fault):
            fault = f"must be one of {of[2].replace(chr(39), '')}, not {of[1]}"
        fault = fault.replace("invalid float value: ", "must be a number, not ")
        raise EngineError(f"{flag}: {fault}." if fault else f"{flag}.", hint)


def command_parser(name: str, description: str | None, epilog: str | None, flags: Flags) -> Parser:
    """The parser of a command.

    Args:
        name: The subcommand's name; empty for `inspector` itself.
        description: Usually the docstring of the function that makes the parser.
        epilog: End of the help.
        flags: As for `add`.
    """
    prog = f"inspector {name}".rstrip()
    arguments = [each.split()[-1] for each in flags if each[0] != "-" and not each.endswith(":")]
    usage = " ".join([prog, *arguments, "[flags]"])
    made = Parser(prog=prog, usage=usage, description=description, epilog=epilog, allow_abbrev=False)
    add(made, flags)
    return made


# ---- values of flags ----------------------------------------------------------------------------


def whole(text: str) -> int:
    """Parse a whole number.

    Raises:
        argparse.ArgumentTypeError: It is not a whole number.
    """
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def unescaped(text: str) -> str:
    r"""A text of the command line with \n and \t replaced by a newline and a tab."""
    return text.replace("\\n", "\n").replace("\\t", "\t")


# ---- flags --------------------------------------------------------------------------------------


def add(to: argparse._ActionsContainer, flags: Flags) -> None:
    """Add flags.

    Args:
        to: The parser or group.
        flags: Each flag's help. `--output -o FILE` is a flag with two names and a value; without a value, a flag is a
            switch. The value N is a whole number, and a value in brackets is optional. A name without hyphens is a
            positional argument. A tuple adds keywords of `add_argument` to the help, which ends with the default if
            there is one. A name that ends with a colon begins a group and has its description. Of the flags in a
            nested mapping, only one may be given.
    """
    into = to
    for spelling, help in flags.items():
        if isinstance(help, Mapping):
            add(into.add_mutually_exclusive_group(), help)
            continue
        text, more = (help, {}) if isinstance(help, str) else help
        if spelling.endswith(":"):
            into = to.add_argument_group(spelling[:-1], text or None)
            continue
        words = spelling.split()
        names = [each for each in words if each.startswith("-")] or words[:1]
        how: dict[str, Any] = {} if "choices" in more else {"action": "store_true"}
        if len(words) > len(names):
            value = words[-1]
            how = {"metavar": value, "type": whole if value == "N" else None}
            if value.startswith("["):
                how = {"metavar": value[1:-1], "nargs": "?"}
        if more.get("default") not in (None, ()):
            text += f" (default: {more['default']})"
        into.add_argument(*names, help=text, **how | more)


def jsonl(instead_of: str, what: str = "one JSON object a line") -> Flags:
    """The flag that asks for JSON lines, in both of its spellings.

    Args:
        instead_of: What is written without the flag.
        what: What the lines contain.
    """
    return {"--jsonl --json": f"{what} instead of the {instead_of}"}


NONE: dict[str, Any] = {"default": None}
"""Keywords of a switch that is None, not False, if it is not given."""
TRACE: Flags = {
    "--output -o RECORDING": "also write a recording, such as story.trace, which inspector replay opens; .zst at its "
                             "end compresses it",
    "--force": "replace the recording if it exists",
}  # fmt: skip
THEME: Flags = {
    "--theme NAME": "dark, light or a theme that the finder (ctrl+p) lists (default: the last one)"
}
SYSTEM: Flags = {"--system-prompt TEXT": "system message of the chat template"}
CHAT: Flags = {
    "--messages FILE": "a conversation as JSON, instead of a prompt: a list of objects with role and content, or "
                       '{"messages": [...], "tools": [...]}; - reads standard input',
    "--chat-template-config JSON": "variables for the chat template, as a JSON object, such as "
                                   """'{"enable_thinking": false}'""",
    "--use-default-chat-template": ("if the model has no chat template, use that of its tokenizer's class (few have "
                                    "one)", NONE),
    "--prefill-response TEXT": r"begin the answer with this text; \n and \t are escapes",
}  # fmt: skip
"""The flags of a chat, with the names of mlx_lm.generate."""
GRAMMAR: Flags = {
    "--regex REGEX": "the completion, as a whole, must match this regular expression, in the syntax of Rust's regex",
    "--json-schema FILE|TEXT": "the completion must be JSON of this schema: a file, or the schema itself, which begins "
                               "with {. Formats are checked by their form alone",
    "--grammar FILE": ("the completion must match this grammar: Lark, or llama.cpp's GBNF", {"dest": "grammar_file"}),
    "--choices A,B,C": r"the completion must be one of these texts. Of these four flags only --regex reads \n and \t "
                       "as escapes",
}  # fmt: skip
"""The flags of grammars, of which one may be given."""


def settings(fields: Iterable[Setting], read: Callable[[str], Any] | None = None) -> Flags:
    """The flags of some settings, made from their declarations.

    Args:
        fields: The settings.
        read: Parses a number instead of `Setting.parse`, for settings that are checked together later.
    """
    flags: dict[str, str | tuple[str, dict[str, Any]]] = {}
    for field in fields:
        value = field.metavar or METAVARS.get(field.kind, "")
        spelling = " ".join(filter(None, (field.flag, field.short, value)))
        several = rf"{field.help}; \n and \t are escapes; may be repeated"
        match field.kind:
            case "flag":
                flags[spelling] = field.help, NONE
            case "choice":
                flags[spelling] = field.help, {"action": argparse.BooleanOptionalAction}
            case "text" | "word":
                flags[spelling] = field.help, {"action": "store"}
            case "texts" if field.name == "extra_eos_token":  # as in mlx_lm
                flags[spelling] = several, {"action": "extend", "nargs": "+", "type": unescaped}
            case "texts":
                flags[spelling] = several, {"action": "append", "type": unescaped}
            case "biases":
                flags[spelling] = BIASES, {"action": "extend", "type": field.biases}
            case _:
                default = "random" if field is BY_NAME["seed"] else field.format(field.default)
                default = f"the model's own, or else {default}" if field.name in MODELS_OWN else default
                suffix = "" if field.default is None else f" (default: {default})"
                flags[spelling] = field.help + suffix, {"type": read or field.parse}
    return flags


def named(*names: str) -> Flags:
    """The flags of some settings of the sampler or of loading, by their names."""
    return settings(BY_NAME[name] for name in names)


TEMPLATE: Flags = {
    "--chat | --ignore-chat-template": {
        "--chat": ("fill the prompt into the model's chat template (default: if there is one; pocket starts with raw "
                   "text)", NONE),
        "--ignore-chat-template": ("give the model the prompt as raw text", NONE),
    },
}  # fmt: skip
"""The flags that say whether prompts go through the chat template."""
PROMPT: Flags = {
    "prompt:": "",
    "--prompt -p TEXT": r"the prompt; - reads standard input; \n and \t are escapes",
    "--prompt-file FILE": "read the prompt from a UTF-8 file, as it is",
    **SYSTEM, **TEMPLATE, **CHAT,
    "--prompt-logprobs": ("compute how probable the model finds each token of the prompt (default: on up to 2048 "
                          "tokens)", {"action": argparse.BooleanOptionalAction}),
}  # fmt: skip
SAMPLING: Flags = {
    "sampling and stops:": "",
    "--preset NAME": "start from greedy, precise, plain, creative, wild or a preset of your own; other flags override "
                     "it",
    **settings(FIELDS), **GRAMMAR, **named("extra_eos_token"),
}  # fmt: skip
MODEL: Flags = settings((field for part in LOAD_GROUPS for field in grouped(LOAD_FIELDS, part)), whole)
"""The flags of the model and its cache."""
LOAD: Flags = {"model and cache:": "", **MODEL}
GENERATION: Flags = {**PROMPT, **SAMPLING, **LOAD, **named("record_logits")}


# ---- parsing ------------------------------------------------------------------------------------


def parsed(
    parser: Parser, argv: Sequence[str], parsers: Callable[[], Mapping[str, Parser]] = dict
) -> argparse.Namespace:
    """Parse the flags.

    Args:
        parser: The command's parser.
        argv: Arguments after the command's name.
        parsers: Makes the parsers of all commands, for the error about an unknown argument.

    Raises:
        EngineError: They can't be read, or a setting is out of range.
        SystemExit: Help or version was requested, and printed.
    """
    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError:
            hint = "Put a prompt into a UTF-8 file: --prompt-file."
            raise EngineError(f"The argument {argument!a} is not UTF-8.", hint) from None
    joined, flag = _joined(parser, argv)
    unknown = [flag] if flag else []
    if not unknown:  # an unknown flag is reported first: it may be why an argument is missing
        with flag_errors():
            parse = parser.parse_known_intermixed_args if parser.intermixed else parser.parse_known_args
            args, left = parse(joined)
        unknown = [argument for argument in left if argument != "--"]
    if not unknown:
        return args
    raise answer(unknown, argv, parser, parsers)


def _joined(parser: Parser, argv: Sequence[str]) -> tuple[list[str], str]:
    """The arguments, with each value that begins with a hyphen joined to its flag, and the first unknown flag if any.

    argparse would read -hello as -h ello, and -prompt as -p rompt.
    """
    known, joined, left = parser._option_string_actions, list[str](), deque(argv)
    while left and left[0] != "--":
        argument = left.popleft()
        name, lacks_hyphen = argument.partition("=")[0], f"-{argument}" in known and argument not in known
        if lacks_hyphen or (argument.startswith("--") and " " not in argument and name not in known):
            return joined, argument
        if argument in known and known[argument].nargs is None and left:
            value = left.popleft()
            name, one_hyphen = value.partition("=")[0], value.startswith("-") and not value.startswith("--")
            if one_hyphen and value not in known and f"-{name}" not in known:
                argument += f"={value}"
            else:
                joined, argument = [*joined, argument], value
        joined.append(argument)
    return [*joined, *left], ""


@contextmanager
def flag_errors() -> Iterator[None]:
    """Name the flag in the error of a setting, so that it is clear which one to change.

    Raises:
        EngineError: Instead of a `SettingsError`.
    """
    try:
        yield
    except SettingsError as error:
        raise EngineError(f"--{error.field.replace('_', '-')}: {error.message}", error.hint) from None


# ---- unknown arguments: the error is made here, as argparse's messages differ between versions ----

SURE, POSSIBLE = 0.75, 0.6
"""Similarity (difflib's ratio) from which a flag is suggested: a flag of the command itself, and any flag."""
LONGEST_ECHO = 60
"""Most characters of a text that a message repeats in the command to type."""
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
"""Flags of other programs (transformers, llama.cpp, vLLM, OpenAI's API) that have no similar name here, and ours."""
WORDS = {
    "help": "inspector --help",
    "version": "inspector --version",
    "resume": "inspector --resume",
    "list": "inspector sessions",
    "compare": "inspector diff A B",
    "inside": "inspector show VIEW",
    "race": "inspector show race",
    "profile": "inspector show time",
    "keys": "inspector --keys",
    "bits": "inspector diff A --bits N",
    "prefix": "inspector open FILE N",
    "record": "mitmdump --mode reverse:URL --set hardump=FILE, and then: inspector open FILE",
    "bench": "mlx_lm.benchmark",
    "serve": """python -c 'import textual_serve.server as t; t.Server("inspector").serve()'""",
    "engine": "ssh -t HOST inspector",
    "notes": "inspector learn LESSON --present",
}
"""Words that are not subcommands, or no longer, and what to type instead."""


def answer(
    unknown: Sequence[str], argv: Sequence[str], parser: Parser, parsers: Callable[[], Mapping[str, Parser]]
) -> EngineError:
    """The error for arguments that a command doesn't know, with what was probably meant.

    Args:
        unknown: As typed; the error is about the first flag among them, or else the first word.
        argv: All arguments.
        parser: The command's parser.
        parsers: Makes the parsers of all commands, for flags of other commands.
    """
    flags = [each for each in unknown if each.startswith("-") and len(each) > 1 and " " not in each]
    if flags:
        return _flag(flags[0].partition("=")[0], parser, parsers())
    return _word(unknown[0], argv, parser, [command.partition(" ")[2] for command in parsers()])


def _flag(flag: str, parser: Parser, parsers: Mapping[str, Parser]) -> EngineError:
    plain = "--" + flag.strip("-").lower().replace("_", "-")
    having = {
        command: [name for name in other._option_string_actions if name.startswith("--")]
        for command, other in {parser.prog: parser, **parsers}.items()
    }
    own = {name: name for name in having[parser.prog]}
    known = {**{name: name for names in having.values() for name in names}, **FOREIGN, **own}
    meant = [name for name, ours in known.items() if ours.partition(" ")[0] in own]
    tried = ((meant, 1.0), (own, SURE), (known, 1.0), (meant, SURE), (known, POSSIBLE))
    near = next(filter(None, (_nearest(plain, *each) for each in tried)), "")
    message, wanted = f"{parser.prog} has no flag {shorter(flag)}.", known.get(near, "")
    if near in meant:
        return EngineError(message, f"Did you mean {wanted}?")
    commands = [command for command, names in having.items() if wanted.partition(" ")[0] in names]
    there = f"{wanted} is a flag of {', '.join(commands[:3])}. " if commands else ""
    return EngineError(message, f"{there}See `{parser.prog} --help`.")


def _nearest(word: str, known: Iterable[str], likeness: float) -> str:
    """The most similar of some words or flags, leading hyphens ignored; empty if none is similar enough."""
    from difflib import get_close_matches  # not needed for --help

    words = {each.removeprefix("--"): each for each in known}
    return next((words[each] for each in get_close_matches(word.removeprefix("--"), words, 1, likeness)), "")


def names_model(word: str) -> bool:
    """True if a word is the bundled model, a directory, or has the form of a hub id."""
    hub_id = re.fullmatch(r"[\w.-]+/[\w.-]+", word) is not None and not os.path.isfile(word)
    return word == "pocket" or hub_id or os.path.isdir(word)


def _word(word: str, argv: Sequence[str], parser: Parser, subcommands: Sequence[str]) -> EngineError:
    before, message = argv[: argv.index(word)], f"{parser.prog} takes no {shorter(word)!r}."
    if "-p" in before or "--prompt" in before:
        return EngineError(message, "Put a prompt of several words in quotes.")
    if parser.prog == "inspector" and word:
        if before and names_model(word):
            return EngineError(
                message, f"Put the model first, and one alone: inspector {shlex.quote(word)} [flags]."
            )
        if word in subcommands:
            return EngineError(message, f"Put {word} first: inspector {word} ...")
        message = f"{shorter(word)!r} is neither a model nor a subcommand of inspector."
        if word.endswith((".trace", ".trace.zst")):
            return EngineError(message, f"Did you mean inspector replay {shlex.quote(word)}?")
        a_name = len(word) <= LONGEST_ECHO and "/" not in word  # some/model is not a misspelled `models`
        if instead := WORDS.get(word.lower()):
            return EngineError(message, f"Type: {instead}")
        if a_name and (near := _nearest(word.lower(), subcommands, POSSIBLE)):
            return EngineError(message, f"Did you mean inspector {near}?")
    typed = shlex.quote(word) if len(word) <= LONGEST_ECHO else "TEXT"
    for flag, what, fits in (
        ("--model", "A model", names_model(word)),
        ("--text", "The file of a text", os.path.isfile(word)),
        ("--prompt-file", "The file of a prompt", os.path.isfile(word)),
        ("-p", "A prompt", word),
    ):
        if fits and flag in parser._option_string_actions:
            lines = flag == "--prompt-file" and "--lines" in parser._option_string_actions
            each = ", and --lines if each line of it is a prompt" * lines
            return EngineError(message, f"{what} is given with {flag}: {parser.prog} {flag} {typed}{each}")
    return EngineError(message, f"See `{parser.prog} --help`.")
