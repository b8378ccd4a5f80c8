"""Makes a checked request from a command's flags, and reads the texts that they name: typed, in a file, or piped."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

from engine.errors import EngineError, PromptError, SettingsError
from engine.files import TEXT_LIMIT, free, read_at_most, shorter, typed
from engine.grammar_settings import Grammar, choices
from engine.protocol import ChatOptions, Message, ModelFacts, Prefill
from engine.setting import Declared, check
from engine.settings import BY_NAME, FIELDS, LoadSettings, Settings, with_defaults
from inspector.cli.flags import flag_errors, unescaped
from inspector.config.presets import Presets
from inspector.served.requests import conversation_of, last_of, parsed_json
from inspector.texts import decoded, few, read_text_file

STDIN = "-"
"""The name of a file, or a text, that means standard input."""
NO_STDIN = "Give the text in a file, or with -p TEXT."
STORY = "Once upon a time"
"""The screen's prompt on the bundled model, as raw text: it continues stories."""
GREETING = "hello"
"""The screen's prompt on any other model: mlx_lm.generate's own default."""


NO_PROMPT = Prefill("", False)
Notes = tuple[str, ...]


class CliRequest(Struct):
    """The requests of the command line."""

    load: LoadSettings
    settings: Settings
    prefill: Prefill = NO_PROMPT
    jsonl: bool = False
    notes: tuple[str, ...] = ()
    """Flags that have no effect together with the others: one sentence each."""
    given: Mapping[str, Any] | None = None
    """The values of the flags; the other settings are the model's own. None if no setting is the model's own."""

    @property
    def given_settings(self) -> frozenset[str] | None:
        """Names of the settings that are not the model's own: those of the flags; None for all, as with a preset."""
        if self.given is None or "preset" in self.given:
            return None
        return frozenset(known(Settings, self.given))

    def model_known(self, facts: ModelFacts) -> tuple[str, ...]:
        """Apply the model's own settings, except for those that the flags name.

        Returns:
            One sentence for each flag that has no effect with these settings; they are also added to `notes`.
        """
        if (names := self.given_settings) is not None:
            self.settings = with_defaults(self.settings, facts.sampling, names)
        idle = _notes(self.given or {}, self.settings, self.load, facts.context_window)
        self.notes += idle
        return idle


def request_from(args: argparse.Namespace, default_prompt: bool = False) -> CliRequest:
    """Check the flags, and read the prompt.

    Args:
        args: Has the flags of the prompt, the model and some settings.
        default_prompt: Whether to use the screen's default prompt if none is given.

    Raises:
        EngineError: A value is out of range, or the prompt is missing or can't be read.
    """
    values, load = given(args), load_settings(args)
    with flag_errors():
        if "logit_bias" in values:
            from inspector.state.merges import token_id  # loads the tokenizer's library

            biases: Sequence[tuple[int | str, float]] = values["logit_bias"]
            ids = (token if isinstance(token, int) else token_id(token, load) for token, _ in biases)
            values["logit_bias"] = tuple(zip(ids, (bias for _, bias in biases), strict=True))
        preset = Presets().values(values["preset"]) if "preset" in values else {}
        seed = {"seed": random.SystemRandom().randrange(2**32)}
        made = Settings(**{**seed, **preset, **known(Settings, values)})
        settings = check(replace(made, grammar=grammar_from(args)))
    messages, options, notes = chat_from(args)
    # logprobs of the prompt are off by default if a text or a table is written, which doesn't show them
    unseen = getattr(args, "jsonl", None) is False and getattr(args, "output", None) is None
    prompt, chat = (last_of(messages), True) if messages else _prompt(args, default_prompt, load.model)
    echo = False if unseen and args.prompt_logprobs is None else args.prompt_logprobs
    prefill = Prefill(prompt, chat, args.system_prompt, echo, messages=messages, options=options)
    return CliRequest(load, settings, prefill, getattr(args, "jsonl", False), notes, values)


def settings_from(kind: type[Declared], values: Mapping[str, Any]) -> Declared:
    """Check the flags of some settings.

    Args:
        kind: Class of the settings.
        values: Values of the flags; those of other settings are ignored.

    Raises:
        EngineError: A value is out of range.
    """
    with flag_errors():
        return check(kind(**known(kind, values)))


def load_settings(args: argparse.Namespace) -> LoadSettings:
    """Check the flags of the model and its cache; raises as `settings_from`."""
    return settings_from(LoadSettings, given(args))


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The values of the flags that were given, lists as tuples."""
    values = {name: value for name, value in vars(args).items() if value is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are fields of a struct."""
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}


def _notes(values: Mapping[str, Any], settings: Settings, load: LoadSettings, window: int | None) -> Notes:
    """The flags that have no effect together with the others, or not yet: one sentence each."""
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
    if "kv_bits" in values and "quantized_kv_start" not in values:
        begins = f"{load.quantized_kv_start:,} tokens (this model's context: {window or 'unknown'})"
        notes.append(
            f"--kv-bits takes effect from {begins} on. Give --quantized-kv-start 0 to begin at once."
        )
    if "min_tokens" in values and settings.min_tokens > settings.max_tokens:
        notes.append("--min-tokens is more than --max-tokens, which ends the run before.")
    return tuple(notes)


def place(output: str | None, force: bool, instead: str) -> Path | None:
    """The path of the recording, checked before the work begins; None without a recording.

    Args:
        output: As it was typed.
        force: Whether an existing file may be replaced.
        instead: What goes to standard output, as the end of a sentence.

    Raises:
        EngineError: It is standard output, the file exists, or it can't be written.
    """
    if output is None:
        return None
    if output == "-":
        message = f"The recording can't go to standard output: {instead}."
        raise EngineError(message, "Name a file: -o story.trace.zst.")
    return free(typed(output), force)


# ---- texts ------------------------------------------------------------------------------------


def _prompt(args: argparse.Namespace, default: bool, model: str) -> tuple[str, bool | None]:
    """The prompt's text, and whether the flags want the chat template; None if they don't say."""
    if args.prompt is not None and args.prompt_file is not None:
        raise PromptError("--prompt and --prompt-file were both given.", "Leave one of them out.")
    if args.prompt is not None:
        text = typed_text(args.prompt)
    elif args.prompt_file is not None:
        text = read_file(args.prompt_file, "prompt file")
    elif default:
        text = STORY if model == "pocket" else GREETING
    else:
        hint = "Add --prompt TEXT, --prompt-file FILE, or -p - for a pipe."
        raise PromptError("No prompt was given.", hint)
    if not text:
        raise PromptError("The prompt is empty.", "Give some text with --prompt or --prompt-file.")
    return text, False if args.ignore_chat_template else args.chat


def typed_text(text: str) -> str:
    """A text of the command line with its escapes replaced, or standard input for `-`; raises as `read_stdin`."""
    return read_stdin() if text == STDIN else unescaped(text)


def read_stdin(source: str = "Standard input") -> str:
    """The text of standard input.

    Args:
        source: Its name in messages.

    Raises:
        PromptError: It is closed, can't be read, isn't UTF-8, or has more than `TEXT_LIMIT` bytes.
    """
    if sys.stdin is None:
        raise PromptError("Standard input is closed.", NO_STDIN)
    try:
        content = read_at_most(sys.stdin.buffer, TEXT_LIMIT)
    except OSError as error:
        raise PromptError(f"Standard input can't be read: {error.strerror}.", NO_STDIN) from error
    if len(content) > TEXT_LIMIT:
        raise PromptError(f"Standard input has more than {TEXT_LIMIT >> 20} MiB.", "Give a shorter text.")
    return decoded(content, source)


def read_file(name: str, kind: str = "file", mend: str = "Check the path's spelling.") -> str:
    """The text of a file; of standard input if the path leads there, as /dev/stdin does, or is `-`.

    Args:
        name: Its path.
        kind: What messages call it.
        mend: What to do if it isn't there, as a sentence.

    Raises:
        PromptError: It isn't there, can't be read, isn't a regular file in UTF-8, or has more than `TEXT_LIMIT` bytes.
    """
    if name == STDIN:
        return read_stdin()
    with suppress(OSError, ValueError):
        if name.startswith("/dev/") and os.path.samestat(os.stat(name), os.fstat(0)):
            return read_stdin(name)
    otherwise = "Give a regular file, or pipe it into standard input (-)."
    return read_text_file(name, kind, mend, otherwise)


def given_text(file: str | None, prompt: str | None, purpose: str, flag: str = "") -> str:
    """The text that a command reads, from a file, from standard input (`-`) or as typed.

    Args:
        file: Its path.
        prompt: The text as it was typed.
        purpose: What is done with it, as a verb: `score`.
        flag: The flag that names the file; empty for a positional argument.

    Raises:
        EngineError: No text or two were given, or the text can't be read or is empty.
    """
    if (file is None) == (prompt is None):
        which = "No text was given." if file is None else f"{flag or 'A FILE'} and --prompt were both given."
        named = f"Name a file with {flag}" if flag else "Name a file"
        raise PromptError(which, f"{named}, or - for standard input, or give the text with -p TEXT.")
    mend = "Check the path's spelling, or give the text itself with -p TEXT."
    text = typed_text(prompt) if prompt is not None else read_file(file or STDIN, mend=mend)
    if not text:
        raise PromptError(f"The text is empty: there is nothing to {purpose}.", "Give some text.")
    return text


# ---- a grammar: what the generated text must match -------------------------------------------

GRAMMAR_FLAGS = {
    "regex": "--regex", "json_schema": "--json-schema", "grammar_file": "--grammar", "choices": "--choices",
}  # fmt: skip
"""The flags by the names of their values."""


def grammar_from(args: argparse.Namespace) -> Grammar | None:
    """The grammar that the flags ask for; None without one.

    Raises:
        EngineError: Two are given, a file can't be read, or the grammar is not valid.
    """
    values: dict[str, Any] = {flag: getattr(args, name, None) for name, flag in GRAMMAR_FLAGS.items()}
    given = [flag for flag, value in values.items() if value is not None]
    if len(given) > 1:
        raise PromptError(f"{' and '.join(given)} were given.", "Give one of them: a text has one grammar.")
    try:
        return check(_grammar(given[0], values[given[0]])) if given else None
    except EngineError as error:
        raise EngineError(f"{given[0]}: {error.message}", error.hint) from None


def _grammar(flag: str, value: str) -> Grammar:
    if flag == "--regex":
        return Grammar("regex", unescaped(value))
    if flag == "--choices":
        if value and not all(value.split(",")):
            raise SettingsError("choices", f"one of {value!r} is empty.", "Take out the comma too many.")
        return choices(tuple(value.split(",")))
    if flag == "--json-schema" and value.lstrip().startswith("{"):
        return Grammar("json-schema", value)
    if flag == "--json-schema":
        return Grammar("json-schema", read_file(value, "schema file", "A schema itself begins with {."))
    text = read_file(value, "grammar file")
    return Grammar("gbnf" if PurePath(value).suffix == ".gbnf" or "::=" in text else "lark", text)


# ---- a chat: a conversation from a file, and the options of the model's chat template ---------

INSTEAD = "prompt", "prompt_file", "file", "system_prompt", "ignore_chat_template"
"""Flags that can't be given with a conversation, which replaces their values."""


def chat_from(args: argparse.Namespace) -> tuple[tuple[Message, ...], ChatOptions, tuple[str, ...]]:
    """Check the flags of a chat, and read the conversation.

    Returns:
        Its messages, empty if no file was given; the options; and one sentence for each flag that has no effect.

    Raises:
        PromptError: The file can't be read or is not a conversation, or two flags exclude each other.
    """
    config, response = args.chat_template_config, args.prefill_response
    if config is not None and not isinstance(parsed_json("--chat-template-config", config), dict):
        hint = """Such as '{"enable_thinking": false}'."""
        raise PromptError("--chat-template-config must be a JSON object.", hint)
    messages, tools, notes = _conversation(args) if args.messages is not None else ((), "", ())
    if getattr(args, "ignore_chat_template", None):
        notes = (*notes, *idle(args, "--ignore-chat-template", "with"))
    options = ChatOptions(
        config=config or "",
        tools=tools,
        default_template=bool(args.use_default_chat_template),
        response=None if response is None else unescaped(response),
    )
    return messages, options, notes


def idle(args: argparse.Namespace, flag: str, so: str = "without") -> tuple[str, ...]:
    """The notes on flags that need the chat template, if it is not used.

    Args:
        args: As parsed.
        flag: The flag that applies the template, or that excludes it.
        so: Whether the flags have no effect `without` or `with` that flag.
    """
    needing = ("system_prompt", "chat_template_config", "use_default_chat_template", "prefill_response")
    names = [name.replace("_", "-") for name in needing if getattr(args, name) is not None]
    return tuple(f"--{name} has no effect {so} {flag}." for name in names)


def _conversation(args: argparse.Namespace) -> tuple[tuple[Message, ...], str, tuple[str, ...]]:
    if clash := next((name for name in INSTEAD if getattr(args, name, None)), ""):
        flag = "FILE" if clash == "file" else f"--{clash.replace('_', '-')}"
        system = 'Put it into the file as {"role": "system", ...}.'
        hint = system if "system" in clash else "Leave one of them out."
        raise PromptError(f"--messages and {flag} were both given.", hint)
    source = "Standard input" if args.messages == STDIN else shorter(args.messages)
    value = parsed_json(source, read_file(args.messages, "file of messages"))
    fields = value if isinstance(value, dict) else {"messages": value}
    messages, tools = conversation_of(source, fields)
    notes: tuple[str, ...] = ()
    if unused := sorted(fields.keys() - {"messages", "tools"}):
        instead = "set it with flags, or take the whole request with `inspector open`"
        notes += (f"{source}: {few([name[:40] for name in unused], 4)} has no effect here: {instead}.",)
    if messages[-1].role == "assistant":
        answer = "ends with an answer; another one would follow it. --prefill-response begins an answer."
        notes += (f"{source} {answer}",)
    return messages, tools, notes
