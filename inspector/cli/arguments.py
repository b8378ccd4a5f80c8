"""The request that the flags of a generation make, checked.

Standard library alone, so that `--help` is instant.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import fields, replace

from engine.errors import PromptError
from engine.setting import check
from engine.settings import BY_NAME, FIELDS, LoadSettings, Settings, with_defaults
from inspector.cli.flags import flag_errors
from inspector.cli.inputs import STDIN, chat_from, grammar_from, read_file, read_text, unescaped
from inspector.served.requests import last_of
from inspector.texts import decoded

if TYPE_CHECKING:
    from engine.protocol import ChatOptions, Message, ModelFacts

STORY = "Once upon a time"
"""The screen's prompt on the bundled model, as raw text: it continues stories."""
GREETING = "hello"
"""The screen's prompt on any other model: mlx_lm.generate's own default."""


def no_options() -> ChatOptions:
    """Nothing but the messages; imported when it is asked for, which the help never does."""
    from engine.protocol import NO_OPTIONS

    return NO_OPTIONS


class CliRequest(Struct):
    """The request of the command line."""

    load: LoadSettings
    settings: Settings
    prompt: str
    chat: bool | None
    """Through the chat template, if the model has one; None for as the model's prompts usually are."""
    system: str | None = None
    echo: bool | None = None
    """Prompt logprobs: None for up to 2,048 tokens, True always, False never."""
    jsonl: bool = False
    notes: tuple[str, ...] = ()
    """Flags that have no effect together with the others: one sentence each."""
    messages: tuple[Message, ...] = ()
    """A whole conversation; the prompt is then its last user's message."""
    options: ChatOptions = field(default_factory=no_options)
    """Other variables of the chat template."""
    given: Mapping[str, Any] | None = None
    """The values of the flags; the settings that they don't name are the model's. None if none is."""

    @property
    def given_settings(self) -> frozenset[str] | None:
        """Names of the settings that are not the model's: those of the flags, or all with a preset; None for all."""
        if self.given is None or "preset" in self.given:
            return None
        return frozenset(known(Settings, self.given))

    def model_known(self, facts: ModelFacts) -> tuple[str, ...]:
        """Take over the model's own settings, except for those that the flags name.

        Returns:
            The flags that have no effect together with the settings: one sentence each, which are notes from now on.
        """
        if (names := self.given_settings) is not None:
            self.settings = with_defaults(self.settings, facts.sampling, names)
        idle = () if self.given is None else _notes(self.given, self.settings, self.load)
        self.notes += idle
        return idle


def request_from(args: argparse.Namespace, default_prompt: bool = False) -> CliRequest:
    """Check what the flags ask for, and read the prompt.

    Args:
        args: With the flags of the prompt, the model and some settings.
        default_prompt: Whether to begin with the screen's own prompt where none is given.

    Raises:
        EngineError: A value is out of range, or the prompt is missing or can't be read.
    """
    values, load = given(args), load_settings(args)
    with flag_errors():
        settings = check(replace(_settings(values), grammar=grammar_from(args)))
    messages, options, notes = chat_from(args)
    prompt, chat = (last_of(messages), True) if messages else _prompt(args, default_prompt, load.model)
    return CliRequest(
        load=load,
        settings=settings,
        prompt=prompt,
        chat=chat,
        system=args.system_prompt,
        echo=_prompt_logprobs(args),
        jsonl=getattr(args, "jsonl", False),
        notes=notes,
        messages=messages,
        options=options,
        given=values,
    )


def load_settings(args: argparse.Namespace) -> LoadSettings:
    """Check the flags of the model and its cache.

    Raises:
        EngineError: A value is out of range.
    """
    with flag_errors():
        return check(LoadSettings(**load_values(given(args))))


def load_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The load settings among some values, as `LoadSettings` takes them."""
    own = known(LoadSettings, values)
    if "extra_eos_token" in own:
        own["extra_eos_token"] = tuple(own["extra_eos_token"])
    return own


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The values of the flags that were given."""
    return {name: value for name, value in vars(args).items() if value is not None}


def known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are fields of a struct."""
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}


def _settings(values: Mapping[str, Any]) -> Settings:
    own: dict[str, Any] = {"seed": random.SystemRandom().randrange(2**32)}
    if "preset" in values:
        from inspector.config.presets import Presets  # reads a file

        own |= Presets().values(values["preset"])
    own |= known(Settings, values)
    if "stop" in values:
        own["stop"] = tuple(unescaped(text) for text in values["stop"])
    own["logit_bias"] = tuple(own.get("logit_bias", ()))
    return Settings(**own)


def _notes(values: Mapping[str, Any], settings: Settings, load: LoadSettings) -> tuple[str, ...]:
    """The flags that have no effect together with the others: one sentence each."""
    given = [each for each in BY_NAME.values() if each.name in values]
    default = "" if "temp" in values or "preset" in values else ", the default of this model"
    notes = [
        f"{each.flag} has no effect at --temp 0{default}: the most probable token is taken. Give --temp 1 to draw."
        for each in given
        if settings.temp == 0 and each.stage is not None and each.stage.kind in ("order", "shares")
    ]
    notes += [
        f"{each.flag} has no effect without {needed.flag}."
        for each in given
        if each.needs and not (needed := BY_NAME[each.needs]).on(settings if each in FIELDS else load)
    ]
    return tuple(notes)


# ---- the prompt -------------------------------------------------------------------------------


def _prompt(args: argparse.Namespace, default: bool, model: str) -> tuple[str, bool | None]:
    """The prompt's text, and whether the flags want the chat template; None if they don't say."""
    text, chat = _given_prompt(args), False if args.ignore_chat_template else args.chat
    if text is None:
        if not default:
            hint = "Add --prompt TEXT, --prompt-file FILE, or -p - for a pipe."
            raise PromptError("No prompt was given.", hint)
        text = STORY if model == "pocket" else GREETING
    if not text:
        raise PromptError("The prompt is empty.", "Give some text with --prompt or --prompt-file.")
    return text, chat


def _prompt_logprobs(args: argparse.Namespace) -> bool | None:
    """As for `CliRequest.echo`; off by default where a text or a table is written, which have no place for them."""
    unseen = getattr(args, "jsonl", None) is False and getattr(args, "output", None) is None
    return False if unseen and args.prompt_logprobs is None else args.prompt_logprobs


def _given_prompt(args: argparse.Namespace) -> str | None:
    if args.prompt is not None and args.prompt_file is not None:
        raise PromptError("--prompt and --prompt-file were both given.", "Leave one of them out.")
    if args.prompt == STDIN:
        return read_text(STDIN, "Give the prompt with --prompt TEXT.")
    if args.prompt_file is not None:
        return decoded(read_file(args.prompt_file, "prompt file"), args.prompt_file)
    return None if args.prompt is None else unescaped(args.prompt)
