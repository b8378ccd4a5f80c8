"""The command line: the parsers of the commands, and what their flags ask for once they are checked.

Standard library alone, so that `--help` is instant.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from engine.beam_settings import BeamSettings, check_beams
from engine.breakpoints import Breakpoints
from engine.errors import EngineError, PromptError, SettingsError
from engine.settings import FIELDS, LoadSettings, Settings, check, check_load
from inspector.cli.flags import (
    Parser,
    Version,
    add_beams,
    add_breakpoints,
    add_load,
    add_prompt,
    add_session,
    add_settings,
    named,
    parsed,
)
from inspector.cli.inputs import decoded, read_file, read_stdin, unescaped

STORY = "Once upon a time"
"""The screen's prompt on the bundled model, as raw text: it continues stories."""
GREETING = "hello"
"""The screen's prompt on any other model: mlx_lm.generate's own default."""


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
    breakpoints: Breakpoints | None = None
    """Where runs of the screen stop; None for those that are remembered."""
    notes: tuple[str, ...] = ()
    """Flags that have no effect beside the others: one sentence each."""


def screen_parser(others: Mapping[str, str] | None = None) -> Parser:
    """The parser of `inspector`.

    Args:
        others: The subcommands and what each does, for the help.
    """
    lines = [f"  {name:<10}{purpose}" for name, purpose in (others or {}).items()]
    parser = _parser(
        "inspector",
        "Step through a language model's generation, token by token.",
        "\n".join(["Without a terminal, each with --help of its own:", *lines]) if lines else None,
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    asked = "breakpoints", "where runs stop, in the place of those that are remembered"
    add_breakpoints(parser.add_argument_group(*asked))
    add_session(parser.add_argument_group("session"))
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and leave")
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
    add_prompt(parser.add_argument_group("prompt"))
    add_beams(parser.add_argument_group("beam search"))
    add_load(parser.add_argument_group("model and cache"))
    parser.add_argument("--jsonl", action="store_true", help="one JSON object a line instead of the ranking")
    return parser


def _parser(name: str, description: str, epilog: str | None) -> Parser:
    parser = Parser(prog=name, description=description, epilog=epilog, allow_abbrev=False)
    add_prompt(parser.add_argument_group("prompt"))
    add_settings(parser.add_argument_group("sampling and stops"))
    add_load(parser.add_argument_group("model and cache"))
    return parser


def parse(argv: Sequence[str], headless: bool) -> argparse.Namespace:
    """Parse the flags of `inspector generate`, or of the screen; raises as `flags.parsed` does."""
    return parsed(generate_parser() if headless else screen_parser(), argv)


def parse_beam(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `inspector beam`; raises as `flags.parsed` does."""
    return parsed(beam_parser(), argv)


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
        raise named(error) from None
    prompt, chat = _prompt(args, headless, load.model)
    return Request(
        load=load,
        settings=settings,
        prompt=prompt,
        chat=chat,
        system=args.system_prompt,
        echo=args.prompt_logprobs,
        jsonl=getattr(args, "jsonl", False),
        breakpoints=_breakpoints(given),
        notes=_notes(given, settings),
    )


def load_given(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags say of the model of a session that is gone on with; all else comes from the session.

    Raises:
        EngineError: A flag of the prompt or the sampler was given.
    """
    given = {name: value for name, value in vars(args).items() if value not in (None, False)}
    prompt = ("prompt", "prompt_file", "system_prompt", "ignore_chat_template", "prompt_logprobs", "preset")
    clash = [name for name in (*prompt, *_known(Settings, given)) if name in given]
    if clash:
        raise EngineError(
            f"--resume goes on with the session's own prompt and settings, not with --{clash[0].replace('_', '-')}.",
            "Leave it out; s changes settings, p begins with another prompt.",
        )
    return _known(LoadSettings, given)


def beam_settings(args: argparse.Namespace) -> BeamSettings:
    """Check what the flags ask of a beam search.

    Raises:
        EngineError: A value is out of range.
    """
    given = {name: value for name, value in vars(args).items() if value is not None}
    try:
        return check_beams(BeamSettings(**_known(BeamSettings, given)))
    except SettingsError as error:
        raise named(error) from None


def _known(kind: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


def _settings(given: dict[str, Any]) -> Settings:
    values = {"seed": secrets.randbelow(2**32), **_preset(given.get("preset")), **_known(Settings, given)}
    if "stop" in given:
        values["stop"] = tuple(unescaped(text) for text in given["stop"])
    values["logit_bias"] = tuple(values.get("logit_bias", ()))
    return Settings(**values)


def _breakpoints(given: dict[str, Any]) -> Breakpoints | None:
    names = {f"break_{each.name}": each.name for each in fields(Breakpoints)}
    values = {names[key]: value for key, value in given.items() if key in names}
    return Breakpoints(**values) if values else None


def _preset(name: str | None) -> Mapping[str, Any]:
    if name is None:
        return {}
    from inspector.config.presets import Presets  # reads a file: only where one is asked for

    return Presets().values(name)


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
        return decoded(read_stdin("Give the prompt with --prompt TEXT."), "Standard input")
    if args.prompt_file is not None:
        return decoded(read_file(args.prompt_file, "prompt file"), args.prompt_file)
    return None if args.prompt is None else unescaped(args.prompt)
