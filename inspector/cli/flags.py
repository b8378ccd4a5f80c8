"""The flags that the commands share: groups of them, and how they are parsed.

Sampler and stop flags are made from `engine.settings.FIELDS`, so that a flag, its bounds and the settings screen can't
differ. Nothing heavy is imported, so that `--help` is instant.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from engine.errors import EngineError, SettingsError
from engine.files import shorter
from engine.setting import Setting, grouped
from engine.settings import BY_NAME, FIELDS, LOAD_FIELDS, LOAD_GROUPS, MODELS_OWN
from inspector.cli.exit import output

EXIT_STATUS = "Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted."
STEER = "FILE[:STRENGTH[@LAYER]]"
"""Name of a direction in the help, with its strength and layer."""
METAVARS = {"float": "X", "int": "N", "texts": "TEXT", "biases": "ID=VALUE"}
"""Name of a flag's value in the help, by the kind of its setting."""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a fault as one line and raises instead of leaving."""

    intermixed = False
    """True if arguments without a flag may stand on both sides of flags."""

    def print_help(self, file: Any = None) -> None:
        """Write the help, and unlike `argparse` fail if that fails."""
        (output() if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Raise what `argparse` would print with the usage."""
        flag, _, fault = message.removeprefix("argument ").partition(": ")
        hint = f"See `{self.prog} --help`."
        if fault == "expected one argument":
            hint = f"A value that begins with - is given as {flag.partition('/')[0]}=VALUE."
        raise EngineError(f"{message.removeprefix('argument ')}.", hint)


def command_parser(name: str, description: str | None, epilog: str | None = EXIT_STATUS) -> Parser:
    """A parser without flags.

    Args:
        name: Of the subcommand, empty for `inspector` alone.
        description: Of the command: most often the docstring of the function that makes its flags.
        epilog: End of the help.
    """
    prog = f"inspector {name}".rstrip()
    return Parser(prog=prog, description=description, epilog=epilog, allow_abbrev=False)


# ---- groups of flags ----------------------------------------------------------------------------


def add_generation(parser: Parser) -> None:
    """The groups of a generation: prompt, settings, model."""
    add_prompt(parser.add_argument_group("prompt"))
    add_settings(parser.add_argument_group("sampling and stops"))
    load = parser.add_argument_group("model and cache")
    add_load(load)
    add_named(load, "record_logits")


def add_jsonl(to: argparse._ActionsContainer, instead_of: str, what: str = "one JSON object a line") -> None:
    """The flag that asks for JSON lines, in both of its spellings.

    Args:
        to: The parser or group.
        instead_of: What is written without it.
        what: What the lines hold.
    """
    to.add_argument("--jsonl", "--json", action="store_true", help=f"{what} instead of the {instead_of}")


def add_trace(to: argparse._ActionsContainer) -> None:
    """The flags of a recording that is written beside the output."""
    what = "also write a recording, such as story.trace, which inspector replay opens; .zst at its end compresses it"
    to.add_argument("--output", "-o", metavar="RECORDING", help=what)
    to.add_argument("--force", action="store_true", help="replace the recording if it exists")


def add_theme(to: argparse._ActionsContainer) -> None:
    """The flag of the screen's colours."""
    theme = "dark, light or a theme that the finder (ctrl+p) lists (default: the last one)"
    to.add_argument("--theme", metavar="NAME", help=theme)


def add_template(group: argparse._ArgumentGroup) -> None:
    """The flags that say whether prompts go through the chat template."""
    add = group.add_mutually_exclusive_group().add_argument
    chat = "fill the prompt into the model's chat template (default: if there is one; pocket starts with raw text)"
    add("--chat", action="store_true", default=None, help=chat)
    raw = "give the model the prompt as raw text"
    add("--ignore-chat-template", action="store_true", default=None, help=raw)


def add_prompt(group: argparse._ArgumentGroup) -> None:
    """The flags of the prompt."""
    prompt = r"the prompt; - reads standard input; \n and \t are escapes"
    group.add_argument("--prompt", "-p", metavar="TEXT", help=prompt)
    group.add_argument("--prompt-file", metavar="FILE", help="read the prompt from a UTF-8 file, as it is")
    group.add_argument("--system-prompt", metavar="TEXT", help="system message of the chat template")
    add_template(group)
    add_chat(group)
    logprobs = "compute how probable the model finds each token of the prompt (default: on up to 2048 tokens)"
    group.add_argument("--prompt-logprobs", action=argparse.BooleanOptionalAction, help=logprobs)


def add_chat(group: argparse._ArgumentGroup) -> None:
    """The flags of a chat, named as mlx_lm.generate names them."""
    add = group.add_argument
    add("--messages", metavar="FILE", help="a conversation as JSON, in place of a prompt: a list of objects with role "
        'and content, or {"messages": [...], "tools": [...]}; - reads standard input')  # fmt: skip
    add("--chat-template-config", metavar="JSON", help="variables for the chat template, as a JSON object, "
        """such as '{"enable_thinking": false}'""")  # fmt: skip
    add("--use-default-chat-template", action="store_true", default=None, help="if the model has no chat template, use "
        "that of its tokenizer's class (few have one)")  # fmt: skip
    add("--prefill-response", metavar="TEXT", help=r"begin the answer with this text; \n and \t are escapes")


def add_grammar(group: argparse._ArgumentGroup) -> None:
    """The flags, of which one may be given."""
    add = group.add_argument
    expression = (
        "the completion, as a whole, must match this regular expression, in the syntax of Rust's regex"
    )
    add("--regex", metavar="REGEX", help=expression)
    schema = "the completion must be JSON of this schema: a file, or the schema itself, which begins with {. " \
             "Formats are checked by their form alone"  # fmt: skip
    add("--json-schema", metavar="FILE|TEXT", help=schema)
    grammar = "the completion must match this grammar: Lark, or llama.cpp's GBNF"
    add("--grammar", dest="grammar_file", metavar="FILE", help=grammar)
    texts = r"the completion must be one of these texts. Of these four flags only --regex reads \n and \t as escapes"
    add("--choices", metavar="A,B,C", help=texts)


def add_settings(group: argparse._ArgumentGroup) -> None:
    """The flags of the sampler and the stops, made from `engine.settings.FIELDS`."""
    preset = (
        "start from greedy, precise, plain, creative, wild or a preset of your own; other flags override it"
    )
    group.add_argument("--preset", metavar="NAME", help=preset)
    for field in FIELDS:
        add_setting(group, field)
    add_grammar(group)
    add_extra_eos(group)


def add_extra_eos(group: argparse._ArgumentGroup) -> None:
    """The flag of tokens that end the sequence besides the model's own; like mlx_lm's it takes several, too."""
    field, add = BY_NAME["extra_eos_token"], group.add_argument
    text = rf"{field.help}; \n and \t are escapes; may be repeated"
    add(field.flag, action="extend", nargs="+", type=unescaped, metavar=field.metavar, help=text)


def add_setting(
    group: argparse._ArgumentGroup, field: Setting, read: Callable[[str], Any] | None = None
) -> None:
    """The flag of one setting.

    Args:
        group: Receives it.
        field: The setting.
        read: Reads a number in place of `field.parse`, for one that is checked together with others.
    """
    names, add = [field.flag, *([field.short] if field.short else [])], group.add_argument
    metavar = field.metavar or METAVARS.get(field.kind)
    match field.kind:
        case "flag":
            add(*names, action="store_true", default=None, help=field.help)
        case "choice":
            add(*names, action=argparse.BooleanOptionalAction, help=field.help)
        case "text" | "word":
            add(*names, metavar=metavar, help=field.help)
        case "texts":
            help_text = rf"{field.help}; \n and \t are escapes; may be repeated"
            add(*names, action="append", type=unescaped, metavar=metavar, help=help_text)
        case "biases":
            help_text = f"{field.help}; may be repeated"
            add(*names, action="extend", type=field.biases, metavar=metavar, help=help_text)
        case _:
            default = "random" if field is BY_NAME["seed"] else field.format(field.default)
            default = f"the model's own, or else {default}" if field.name in MODELS_OWN else default
            suffix = "" if field.default is None else f" (default: {default})"
            add(*names, type=read or field.parse, metavar=metavar, help=field.help + suffix)


def add_named(group: argparse._ArgumentGroup, *names: str) -> None:
    """The flags of some settings of the sampler or of loading, by their names."""
    for name in names:
        add_setting(group, BY_NAME[name])


def between(most: float, least: float = 0.0) -> Callable[[str], float]:
    """Reads a number between two bounds.

    Args:
        most: It may be; infinity where it has no upper bound.
        least: It may be.
    """

    def read(typed: str) -> float:
        try:
            value = float(typed)
        except ValueError:
            value = math.nan
        if not (least <= value <= most and math.isfinite(value)):
            upper = f" to {most:g}" if math.isfinite(most) else " up"
            raise argparse.ArgumentTypeError(f"must be a number from {least:g}{upper}, not {typed!r}")
        return value

    return read


def whole(text: str) -> int:
    """A whole number.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def add_load(group: argparse._ArgumentGroup) -> None:
    """The flags of the model and its cache."""
    for part in LOAD_GROUPS:
        for field in grouped(LOAD_FIELDS, part):
            add_setting(group, field, whole)


def unescaped(text: str) -> str:
    r"""A text of the command line, its \n and \t replaced by a newline and a tab."""
    return text.replace("\\n", "\n").replace("\\t", "\t")


# ---- parsing ------------------------------------------------------------------------------------


def parsed(
    parser: Parser, argv: Sequence[str], parsers: Callable[[], Mapping[str, Parser]] = dict
) -> argparse.Namespace:
    """Parse the flags.

    Args:
        parser: Of the command.
        argv: Arguments after the command's name.
        parsers: Makes the parsers of all commands, for what is said of an argument that this one doesn't know.

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
    flag = _unknown_flag(parser, argv)  # before an argument that is missing, which it may be the cause of
    unknown = [flag] if flag else []
    if not unknown:
        with flag_errors():
            parse = parser.parse_known_intermixed_args if parser.intermixed else parser.parse_known_args
            args, left = parse(_joined(parser, argv))
        unknown = [argument for argument in left if argument != "--"]
    if not unknown:
        return args
    raise answer(unknown, argv, parser, parsers)


def _unknown_flag(parser: Parser, argv: Sequence[str]) -> str:
    """The first argument that is written as a flag and is none; empty if all are flags."""
    known, before = parser._option_string_actions, ""
    for argument in argv:
        if argument == "--":
            break
        is_value = before in known and known[before].nargs is None
        # -prompt, which argparse takes for -p rompt
        single = f"-{argument}" in known and argument not in known
        double = argument.startswith("--") and " " not in argument and argument.partition("=")[0] not in known
        if (single or double) and not is_value:
            return argument
        before = argument
    return ""


def _joined(parser: Parser, argv: Sequence[str]) -> list[str]:
    """The arguments, a value that begins with a hyphen joined to its flag: argparse takes -hello for -h ello."""
    known, joined, left = parser._option_string_actions, [], deque(argv)
    while left and left[0] != "--":
        argument = left.popleft()
        if left and argument in known and known[argument].nargs is None and _is_value(left[0], known):
            argument += f"={left.popleft()}"
        joined.append(argument)
    return [*joined, *left]


def _is_value(argument: str, known: Container[str]) -> bool:
    """True if an argument that begins with one hyphen is no flag, nor one that lacks a hyphen, as -prompt does."""
    one_hyphen = argument.startswith("-") and not argument.startswith("--")
    return one_hyphen and argument not in known and f"-{argument.partition('=')[0]}" not in known


@contextmanager
def flag_errors() -> Iterator[None]:
    """Put the flag before what is wrong with a setting, so that it is clear which one to change.

    Raises:
        EngineError: Instead of a `SettingsError`.
    """
    try:
        yield
    except SettingsError as error:
        raise EngineError(f"--{error.field.replace('_', '-')}: {error.message}", error.hint) from None


# ---- an argument that no parser knows: by the argument alone, as argparse's messages differ between versions ----

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
WORDS = {
    "help": "--help",
    "version": "--version",
    "resume": "--resume",
    "list": "sessions",
    "compare": "diff",
}
"""Words of other programs' command lines, and what is typed here after `inspector`."""


def answer(
    unknown: Sequence[str], argv: Sequence[str], parser: Parser, parsers: Callable[[], Mapping[str, Parser]]
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
    """The nearest of some words or flags; the hyphens that all flags begin with don't count. Empty if none is near."""
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
        if word in subcommands:
            return EngineError(message, f"Put {word} first: inspector {word} ...")
        message = f"{shorter(word)!r} is neither a model nor a subcommand of inspector."
        if word.endswith((".trace", ".trace.zst")):
            return EngineError(message, f"Did you mean inspector replay {shlex.quote(word)}?")
        a_name = len(word) <= LONGEST_ECHO and "/" not in word  # some/model is no misspelt `models`
        near = _nearest(word.lower(), subcommands, POSSIBLE) if a_name else ""
        if near := WORDS.get(word.lower(), near):
            return EngineError(message, f"Did you mean inspector {near}?")
    typed = shlex.quote(word) if len(word) <= LONGEST_ECHO else "TEXT"
    for flag, what, fits in (
        ("--model", "A model", names_model(word)),
        ("--prompt-file", "The file of a prompt", os.path.isfile(word)),
        ("-p", "A prompt", word),
    ):
        if fits and flag in parser._option_string_actions:
            return EngineError(message, f"{what} is given with {flag}: {parser.prog} {flag} {typed}")
    return EngineError(message, f"See `{parser.prog} --help`.")
