"""The command line: its flags, and what they ask for once they are checked.

Sampler and stop flags are made from `engine.settings.FIELDS`, so that a flag, its bounds and the settings screen can't
differ. Standard library alone, so that `--help` is instant.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from engine.beam_settings import WIDEST, BeamSettings, check_beams
from engine.errors import EngineError, PromptError, SettingsError
from engine.settings import BY_NAME, FIELDS, Field, LoadSettings, Settings, check, check_load

STORY = "Once upon a time"
"""The screen's prompt on the bundled model, as raw text: it continues stories."""
GREETING = "hello"
"""The screen's prompt on any other model: mlx_lm.generate's own default."""
SHORT = {"max_tokens": "-m"}
METAVARS = {"float": "X", "int": "N", "texts": "TEXT", "biases": "ID=VALUE", "order": "ORDER"}
ESCAPES = {"\\n": "\n", "\\t": "\t"}


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for."""

    load: LoadSettings
    settings: Settings
    prompt: str
    chat: bool
    """Through the chat template, where the model has one."""
    system: str | None = None
    echo: bool | None = None
    """Prompt logprobs: None for up to 2,048 tokens, True always, False never."""
    jsonl: bool = False
    notes: tuple[str, ...] = ()
    """Flags that have no effect beside the others: one sentence each."""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a fault as one line and raises instead of leaving."""

    def error(self, message: str) -> NoReturn:
        """Raise what `argparse` would print with the usage."""
        raise EngineError(f"{message.removeprefix('argument ')}.", f"See `{self.prog} --help`.")


class _Version(argparse.Action):
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


def screen_parser() -> Parser:
    """The parser of `inspector`."""
    parser = _parser(
        "inspector",
        "Step through a language model's generation, token by token.",
        "Without a terminal: inspector generate --prompt TEXT [--jsonl], see inspector generate --help.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and leave")
    parser.add_argument("stray", nargs="*", help=argparse.SUPPRESS)
    return parser


def generate_parser() -> Parser:
    """The parser of `inspector generate`."""
    parser = _parser(
        "inspector generate",
        "The same engine without a screen: the text to standard output, the figures to standard error.",
        "Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.",
    )
    parser.add_argument("--jsonl", action="store_true", help="one JSON object a line instead of the text")
    return parser


def beam_parser() -> Parser:
    """The parser of `inspector beam`."""
    parser = Parser(
        prog="inspector beam",
        description="Beam search from the prompt: the ranking to standard output, greedy decoding beside it.",
        epilog="Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.",
        allow_abbrev=False,
    )
    _add_prompt(parser.add_argument_group("prompt"))
    _add_beams(parser.add_argument_group("beam search"))
    _add_load(parser.add_argument_group("model and cache"))
    parser.add_argument("--jsonl", action="store_true", help="one JSON object a line instead of the ranking")
    return parser


def _parser(name: str, description: str, epilog: str) -> Parser:
    parser = Parser(prog=name, description=description, epilog=epilog, allow_abbrev=False)
    _add_prompt(parser.add_argument_group("prompt"))
    _add_settings(parser.add_argument_group("sampling and stops"))
    _add_load(parser.add_argument_group("model and cache"))
    return parser


def _add_beams(group: argparse._ArgumentGroup) -> None:
    add, default = group.add_argument, BeamSettings()
    add("--width", type=_whole, metavar="N", help=f"beams at once, 1 to {WIDEST} (default: {default.width})")
    penalty = "score = logprob / length ** X: above 0 favours long hypotheses, below 0 short ones"
    add("--length-penalty", type=float, metavar="X", help=f"{penalty} (default: {default.length_penalty})")
    early = "end at as many finished hypotheses as there are beams, though a live beam could still be better"
    add("--early-stopping", action="store_true", default=None, help=early)
    for name in ("max_tokens", "min_tokens"):
        _add_setting(group, BY_NAME[name])


def _add_prompt(group: argparse._ArgumentGroup) -> None:
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


def _add_settings(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--preset",
        metavar="NAME",
        help="begin with greedy, precise, creative, wild or a preset of your own; the other flags override it",
    )
    for field in FIELDS:
        _add_setting(group, field)


def _add_setting(group: argparse._ArgumentGroup, field: Field) -> None:
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


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def _add_load(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--model", metavar="MODEL", help="pocket, a directory, or a hub id (default: pocket)")
    add("--adapter-path", metavar="DIR", help="adapter weights and config to load with the model")
    add("--trust-remote-code", action="store_true", default=None, help="run code that comes with the model")
    add("--max-kv-size", type=_whole, metavar="N", help="rotating KV cache of so many tokens")
    add("--kv-bits", type=_whole, metavar="N", help="quantize the KV cache to 2, 3, 4, 5, 6 or 8 bits")
    add("--kv-group-size", type=_whole, metavar="N", help="32, 64 or 128 (default: 64)")
    add("--quantized-kv-start", type=_whole, metavar="N", help="quantize from this token on (default: 5000)")
    add("--prefill-step-size", type=_whole, metavar="N", help="prompt tokens a chunk (default: about 100 ms)")
    add(
        "--float32-scales",
        action=argparse.BooleanOptionalAction,
        help="compute a quantized model with float32 scales (default: on the CPU, where it is faster)",
    )
    add("--kept-logits-mib", type=_whole, metavar="N", help="memory for kept rows of logits (default: 64)")
    add("--kept-kv-mib", type=_whole, metavar="N", help="memory for the KV of branches left (default: 256)")


def parse(argv: Sequence[str], headless: bool) -> argparse.Namespace:
    """Parse the flags.

    Args:
        argv: Arguments after the command's name.
        headless: Whether they are those of `inspector generate`.

    Raises:
        EngineError: They can't be read, or a sampler flag is out of range.
        SystemExit: Help or version was asked for, and was printed.
    """
    args = _parsed(generate_parser() if headless else screen_parser(), argv)
    if stray := getattr(args, "stray", None):
        word = next((word for word in ("generate", "beam") if word in stray), None)
        hint = f"Put {word} first: inspector {word} ..." if word else "See `inspector --help`."
        raise EngineError(f"{stray[0]!r} is no flag of inspector.", hint)
    return args


def parse_beam(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `inspector beam`; raises as `parse` does."""
    return _parsed(beam_parser(), argv)


def _parsed(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    _check_encoding(argv)
    try:
        return parser.parse_args(list(argv))
    except SettingsError as error:
        raise _named(error) from None


def _check_encoding(argv: Sequence[str]) -> None:
    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise EngineError(
                f"The argument {argument!a} is not UTF-8.",
                "Put a prompt into a UTF-8 file: --prompt-file.",
            ) from None


def request(args: argparse.Namespace, headless: bool) -> Request:
    """Check what the flags ask for, and read the prompt.

    Raises:
        EngineError: A value is out of range, or the prompt can't be read.
    """
    given = {name: value for name, value in vars(args).items() if value is not None}
    try:
        load = check_load(LoadSettings(**_known(LoadSettings, given)))
        settings = check(_settings(given))
    except SettingsError as error:
        raise _named(error) from None
    prompt, chat = _prompt(args, headless, load.model)
    return Request(
        load=load,
        settings=settings,
        prompt=prompt,
        chat=chat,
        system=args.system_prompt,
        echo=args.prompt_logprobs,
        jsonl=getattr(args, "jsonl", False),
        notes=_notes(given, settings),
    )


def beam_settings(args: argparse.Namespace) -> BeamSettings:
    """Check what the flags ask of a beam search.

    Raises:
        EngineError: A value is out of range.
    """
    given = {name: value for name, value in vars(args).items() if value is not None}
    try:
        return check_beams(BeamSettings(**_known(BeamSettings, given)))
    except SettingsError as error:
        raise _named(error) from None


def _known(kind: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


def _settings(given: dict[str, Any]) -> Settings:
    values = {"seed": secrets.randbelow(2**32), **_preset(given.get("preset")), **_known(Settings, given)}
    if "stop" in given:
        values["stop"] = tuple(_unescaped(text) for text in given["stop"])
    values["logit_bias"] = tuple(values.get("logit_bias", ()))
    return Settings(**values)


def _preset(name: str | None) -> Mapping[str, Any]:
    if name is None:
        return {}
    from inspector.presets import Presets  # reads a file: only where one is asked for

    return Presets().values(name)


def _named(error: SettingsError) -> EngineError:
    """The error with the flag in front, so that it is clear which one to change."""
    return EngineError(f"--{error.field.replace('_', '-')}: {error.message}", error.hint)


def _notes(given: dict[str, Any], settings: Settings) -> tuple[str, ...]:
    notes = []
    if settings.temp == 0:
        idle = [
            field.flag
            for field in FIELDS
            if field.name in ("top_p", "min_p", "top_k", "xtc_probability") and field.name in given
        ]
        notes += [f"{flag} has no effect at --temp 0: the most probable token is taken." for flag in idle]
    if "kv_bits" not in given:
        idle = [name for name in ("kv_group_size", "quantized_kv_start") if name in given]
        notes += [f"--{name.replace('_', '-')} has no effect without --kv-bits." for name in idle]
    return tuple(notes)


# ---- the prompt -------------------------------------------------------------------------------


def _prompt(args: argparse.Namespace, headless: bool, model: str) -> tuple[str, bool]:
    """The prompt's text, and whether the chat template is wanted."""
    text, chat = _given_prompt(args), not args.ignore_chat_template
    if text is None:
        if headless:
            raise PromptError(
                "No prompt was given.", "Add --prompt TEXT, --prompt-file FILE, or -p - for a pipe."
            )
        text, chat = (STORY, False) if model == "pocket" else (GREETING, chat)
    if not text:
        raise PromptError("The prompt is empty.", "Give some text with --prompt or --prompt-file.")
    return text, chat


def _given_prompt(args: argparse.Namespace) -> str | None:
    if args.prompt is not None and args.prompt_file is not None:
        raise PromptError("--prompt and --prompt-file were both given.", "Leave one of them out.")
    if args.prompt == "-":
        return _decoded(_read_stdin(), "Standard input")
    if args.prompt_file is not None:
        return _decoded(_read_file(args.prompt_file), args.prompt_file)
    return None if args.prompt is None else _unescaped(args.prompt)


def _unescaped(text: str) -> str:
    for escape, char in ESCAPES.items():
        text = text.replace(escape, char)
    return text


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise PromptError("Standard input is closed.", "Give the prompt with --prompt TEXT.")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise PromptError(f"Standard input can't be read: {error.strerror}.", "Use --prompt TEXT.") from error


def _read_file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except FileNotFoundError:
        raise PromptError(f"There is no prompt file {name}.", "Check the path's spelling.") from None
    except OSError as error:
        raise PromptError(
            f"The prompt file {name} can't be read: {error.strerror}.", "Choose another."
        ) from error


def _decoded(raw: bytes, source: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        where = f"byte {raw[error.start]:#04x} at offset {error.start}"
        raise PromptError(
            f"{source} is not UTF-8 ({where}).", "Convert it first, with iconv for example."
        ) from None
