"""The flags that the commands share: groups of them, and how they are parsed.

Sampler and stop flags are made from `engine.settings.FIELDS`, so that a flag, its bounds and the settings screen can't
differ. Standard library alone, so that `--help` is instant.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from engine.beam_settings import WIDEST, BeamSettings
from engine.breakpoints import CONDITIONS, Condition
from engine.errors import EngineError, SettingsError
from engine.settings import BY_NAME, FIELDS, Field, Settings
from inspector.cli.inputs import unescaped

SHORT = {"max_tokens": "-m"}
METAVARS = {"float": "X", "int": "N", "texts": "TEXT", "biases": "ID=VALUE", "order": "ORDER"}


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a fault as one line and raises instead of leaving."""

    def error(self, message: str) -> NoReturn:
        """Raise what `argparse` would print with the usage."""
        raise EngineError(f"{message.removeprefix('argument ')}.", f"See `{self.prog} --help`.")


class Version(argparse.Action):
    """Prints the version and leaves."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        try:
            print(f"inspector {version()}", flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise EngineError(f"The output can't be written: {error.strerror}.") from error
        parser.exit()


def version() -> str:
    """The installed version; `unknown` in a checkout that was not installed."""
    from importlib import metadata  # slow to import, and only wanted here

    try:
        return metadata.version("mlx-inspector")
    except metadata.PackageNotFoundError:
        return "unknown"


# ---- groups of flags ---------------------------------------------------------------------------


def add_beams(group: argparse._ArgumentGroup) -> None:
    """The flags of a beam search."""
    add, default = group.add_argument, BeamSettings()
    add("--width", type=whole, metavar="N", help=f"beams at once, 1 to {WIDEST} (default: {default.width})")
    penalty = "score = logprob / length ** X: above 0 favours long hypotheses, below 0 short ones"
    add("--length-penalty", type=float, metavar="X", help=f"{penalty} (default: {default.length_penalty})")
    early = "end at as many finished hypotheses as there are beams, though a live beam could still be better"
    add("--early-stopping", action="store_true", default=None, help=early)
    for name in ("max_tokens", "min_tokens"):
        add_setting(group, BY_NAME[name])


def add_prompt(group: argparse._ArgumentGroup) -> None:
    """The flags of the prompt."""
    group.add_argument(
        "--prompt", "-p", metavar="TEXT", help=r"- reads standard input; \n and \t are escapes"
    )
    group.add_argument("--prompt-file", metavar="FILE", help="read the prompt from a UTF-8 file, as it is")
    group.add_argument("--system-prompt", metavar="TEXT", help="system message of the chat template")
    group.add_argument(
        "--ignore-chat-template", action="store_true", help="give the model the prompt as raw text"
    )
    group.add_argument(
        "--prompt-logprobs",
        action=argparse.BooleanOptionalAction,
        help="what the model thought of the prompt's own tokens (default: up to 2048 tokens)",
    )


def add_session(group: argparse._ArgumentGroup) -> None:
    """The flags of what is kept of a session."""
    resume = "go on with the last session, or with FILE: a path, or a name that `inspector sessions` lists"
    group.add_argument("--resume", nargs="?", const="", metavar="FILE", help=resume)
    no_save = "don't save the session as it goes (by default the last 50 are kept; `inspector sessions`)"
    group.add_argument("--no-save", action="store_true", help=no_save)


def add_settings(group: argparse._ArgumentGroup) -> None:
    """The flags of the sampler and the stops, made from `engine.settings.FIELDS`."""
    group.add_argument(
        "--preset",
        metavar="NAME",
        help="begin with greedy, precise, creative, wild or a preset of your own; the other flags override it",
    )
    for field in FIELDS:
        add_setting(group, field)


def add_setting(group: argparse._ArgumentGroup, field: Field) -> None:
    """The flag of one setting."""
    names = [field.flag, *([SHORT[field.name]] if field.name in SHORT else [])]
    default = "random" if field.name == "seed" else field.format(getattr(Settings(), field.name))
    if field.kind == "texts":
        help_text = rf"{field.help}; \n and \t are escapes; may be repeated"
        group.add_argument(*names, action="append", metavar=METAVARS[field.kind], help=help_text)
    elif field.kind == "biases":
        help_text = f"{field.help}; may be repeated"
        group.add_argument(
            *names, action="extend", type=field.parse, metavar=METAVARS[field.kind], help=help_text
        )
    else:
        help_text = f"{field.help} (default: {default})"
        group.add_argument(*names, type=field.parse, metavar=METAVARS[field.kind], help=help_text)


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
    add = group.add_argument
    add("--model", metavar="MODEL", help="pocket, a directory, or a hub id (default: pocket)")
    add("--adapter-path", metavar="DIR", help="adapter weights and config to load with the model")
    add("--trust-remote-code", action="store_true", default=None, help="run code that comes with the model")
    add("--max-kv-size", type=whole, metavar="N", help="rotating KV cache of so many tokens")
    add("--no-kv-cache", action="store_true", default=None, help="run all tokens again at every step")
    add("--kv-bits", type=whole, metavar="N", help="quantize the KV cache to 2, 3, 4, 5, 6 or 8 bits")
    add("--kv-group-size", type=whole, metavar="N", help="32, 64 or 128 (default: 64)")
    add("--quantized-kv-start", type=whole, metavar="N", help="quantize from this token on (default: 5000)")
    add("--prefill-step-size", type=whole, metavar="N", help="prompt tokens a chunk (default: about 100 ms)")
    add(
        "--float32-scales",
        action=argparse.BooleanOptionalAction,
        help="compute a quantized model with float32 scales (default: on the CPU, where it is faster)",
    )
    add("--kept-logits-mib", type=whole, metavar="N", help="memory for kept rows of logits (default: 64)")
    add("--kept-kv-mib", type=whole, metavar="N", help="memory for the KV of branches left (default: 256)")


def add_breakpoints(group: argparse._ArgumentGroup) -> None:
    """The flags of the breakpoints, made from `engine.breakpoints.CONDITIONS`."""
    for each in CONDITIONS:
        name, told = f"break_{each.name}", f"{each.label}: {each.help}".replace("%", "%%")
        if each.kind == "switch":
            group.add_argument(each.flag, dest=name, action="store_true", default=None, help=told)
        else:
            told += r"; \n and \t are escapes" if each.kind == "text" else ""
            metavar = {"count": "N", "text": "TEXT", "regex": "REGEX"}.get(each.kind, "X")
            group.add_argument(each.flag, dest=name, type=_value(each), metavar=metavar, help=told)
    together = "stop only where all of them hold at once"
    group.add_argument("--break-all", dest="break_all_of", action="store_true", default=None, help=together)


def _value(condition: Condition) -> Callable[[str], Any]:
    """Reads the value of a condition's flag."""

    def read(text: str) -> Any:
        try:
            return condition.parse(unescaped(text) if condition.kind == "text" else text)
        except SettingsError as error:
            raise argparse.ArgumentTypeError(f"{error.message.removesuffix('.')}") from None

    return read


# ---- parsing -----------------------------------------------------------------------------------


def parsed(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags.

    Args:
        parser: Of the command.
        argv: Arguments after the command's name.

    Raises:
        EngineError: They can't be read, or a setting is out of range.
        SystemExit: Help or version was asked for, and was printed.
    """
    _check_encoding(argv)
    try:
        return parser.parse_args(list(argv))
    except SettingsError as error:
        raise named(error) from None


def _check_encoding(argv: Sequence[str]) -> None:
    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise EngineError(
                f"The argument {argument!a} is not UTF-8.",
                "Put a prompt into a UTF-8 file: --prompt-file.",
            ) from None


def named(error: SettingsError) -> EngineError:
    """The error with the flag in front, so that it is clear which one to change."""
    return EngineError(f"--{error.field.replace('_', '-')}: {error.message}", error.hint)
