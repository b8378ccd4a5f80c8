"""Texts that the user gives: on the command line, in a file or through a pipe. Standard library alone."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING

from engine.errors import EngineError, PromptError, SettingsError
from engine.files import TEXT_LIMIT, read_at_most, shorter
from engine.grammar_settings import Grammar, choices
from engine.setting import check
from inspector.served.requests import conversation_of, parsed_json
from inspector.texts import decoded, read_text_file

if TYPE_CHECKING:
    from engine.protocol import ChatOptions, Message

ESCAPES = {"\\n": "\n", "\\t": "\t"}
STDIN = "-"
"""Stands for standard input, instead of a file or a text."""


def unescaped(text: str) -> str:
    r"""A text of the command line, its \n and \t replaced by a newline and a tab."""
    for escape, char in ESCAPES.items():
        text = text.replace(escape, char)
    return text


def read_stdin(instead: str) -> bytes:
    """All of standard input.

    Args:
        instead: What to do if it can't be read, as a sentence.

    Raises:
        PromptError: It is closed, can't be read, or has more than `TEXT_LIMIT` bytes.
    """
    if sys.stdin is None:
        raise PromptError("Standard input is closed.", instead)
    try:
        content = read_at_most(sys.stdin.buffer, TEXT_LIMIT)
    except OSError as error:
        raise PromptError(f"Standard input can't be read: {error.strerror}.", instead) from error
    if len(content) > TEXT_LIMIT:
        raise PromptError(f"Standard input has more than {TEXT_LIMIT >> 20} MiB.", "Give a shorter text.")
    return content


def read_file(name: str, kind: str = "file", mend: str = "Check the path's spelling.") -> bytes:
    """All of a file; of standard input where the path leads there, as /dev/stdin does.

    Args:
        name: Its path.
        kind: What it is called in a message.
        mend: What to do if it isn't there, as a sentence.

    Raises:
        PromptError: It isn't there, can't be read, is no regular file, or has more than `TEXT_LIMIT` bytes.
    """
    with suppress(OSError, ValueError):
        if name.startswith("/dev/") and os.path.samestat(os.stat(name), os.fstat(0)):
            return read_stdin("Give the text in a file.")
    return read_text_file(name, kind, mend, "Give a regular file, or pipe it into standard input (-).")


def read_text(name: str, instead: str, kind: str = "file", mend: str = "Check the path's spelling.") -> str:
    """The UTF-8 text in a file or, as `-`, in standard input; arguments and errors as for `read_stdin`, `read_file`."""
    if name == STDIN:
        return decoded(read_stdin(instead), "Standard input")
    return decoded(read_file(name, kind, mend), name)


def given_text(file: str | None, typed: str | None, command: str, purpose: str, flag: str = "") -> str:
    """The text that a command reads, from a file, from standard input (`-`) or as typed.

    Args:
        file: Its path.
        typed: With escapes.
        command: Named if the text is missing: `inspector score`.
        purpose: What is done with it: `score`.
        flag: That names the file; empty for a positional argument.

    Raises:
        EngineError: None was given, or two; it can't be read, or is empty.
    """
    if (file is None) == (typed is None):
        which = "No text was given." if file is None else f"{flag or 'A FILE'} and --prompt were both given."
        named = f"Name a file with {flag}" if flag else "Name a file"
        raise PromptError(which, f"{named}, or - for standard input, or give the text with -p TEXT.")
    if typed is not None and typed != STDIN:
        text = unescaped(typed)
    else:
        instead = f"Give the text as a file: {f'{command} {flag}'.rstrip()} FILE."
        mend = f"Check the path's spelling, or give the text itself: {command} -p TEXT."
        text = read_text(STDIN if file is None else file, instead, mend=mend)
    if not text:
        raise PromptError(f"The text is empty: there is nothing to {purpose}.", "Give some text.")
    return text


# ---- a grammar: what the generated text must match -------------------------------------------

GRAMMAR_FLAGS = {
    "regex": "--regex", "json_schema": "--json-schema", "grammar_file": "--grammar", "choices": "--choices",
}  # fmt: skip
"""The flags by the names of their values."""


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


def grammar_from(args: argparse.Namespace) -> Grammar | None:
    """The grammar that the flags ask for; None without one.

    Raises:
        EngineError: Two are given, a file can't be read, or it is no grammar.
    """
    values = ((flag, getattr(args, name, None)) for name, flag in GRAMMAR_FLAGS.items())
    given = {flag: value for flag, value in values if value is not None}
    if not given:
        return None
    if len(given) > 1:
        raise PromptError(f"{' and '.join(given)} were given.", "Give one of them: a text has one grammar.")
    ((flag, value),) = given.items()
    try:
        return check(_grammar(flag, value))
    except SettingsError as error:
        raise EngineError(f"{flag}: {error.message}", error.hint) from None


def _grammar(flag: str, value: str) -> Grammar:
    if flag == "--regex":
        return Grammar("regex", unescaped(value))
    if flag == "--choices":
        return choices(tuple(value.split(",")))
    if flag == "--json-schema" and value.lstrip().startswith("{"):
        return Grammar("json-schema", value)
    text = decoded(read_file(value, "grammar file"), value)
    if flag == "--json-schema":
        return Grammar("json-schema", text)
    return Grammar("gbnf" if PurePath(value).suffix == ".gbnf" or "::=" in text else "lark", text)


# ---- a chat: a whole conversation from a file, and what else the model's chat template gets ---

INSTEAD = {
    "prompt": "--prompt", "prompt_file": "--prompt-file", "file": "FILE", "system_prompt": "--system-prompt",
    "ignore_chat_template": "--ignore-chat-template",
}  # fmt: skip
"""Flags that a conversation takes the place of."""


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


def chat_from(args: argparse.Namespace) -> tuple[tuple[Message, ...], ChatOptions, tuple[str, ...]]:
    """Check what the flags of a chat ask for, and read the conversation.

    Returns:
        Its messages, none if no file was given; the options; and the flags that have no effect, one sentence each.

    Raises:
        PromptError: The file can't be read or is no conversation, or two flags exclude each other.
    """
    from engine.protocol import ChatOptions

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
    """The notes on the flags that need the chat template, where it is not filled.

    Args:
        args: As parsed.
        flag: That would fill it, or that forbids it.
        so: `without` or `with` that flag.
    """
    needing = ("system_prompt", "chat_template_config", "use_default_chat_template", "prefill_response")
    names = [name.replace("_", "-") for name in needing if getattr(args, name) is not None]
    return tuple(f"--{name} has no effect {so} {flag}." for name in names)


def _conversation(args: argparse.Namespace) -> tuple[tuple[Message, ...], str, tuple[str, ...]]:
    clash = next((flag for name, flag in INSTEAD.items() if getattr(args, name, None)), None)
    if clash is not None:
        system = 'Put it into the file as {"role": "system", ...}.'
        hint = system if "system" in clash else "Leave one of them out."
        raise PromptError(f"--messages and {clash} were both given.", hint)
    name = args.messages
    if name == "-":
        raw, source = read_stdin("Give the conversation in a file."), "Standard input"
    else:
        raw, source = read_file(name, "file of messages"), shorter(name)
    value = parsed_json(source, decoded(raw, source))
    fields = value if isinstance(value, dict) else {"messages": value}
    messages, tools = conversation_of(source, fields)
    notes: tuple[str, ...] = ()
    if unused := sorted(fields.keys() - {"messages", "tools"}):
        instead = "set it with flags, or take the whole request with `inspector open`"
        notes += (f"{source}: {_listed(unused)} has no effect here: {instead}.",)
    if messages[-1].role == "assistant":
        answer = "ends with an answer; another one would follow it. --prefill-response begins an answer."
        notes += (f"{source} {answer}",)
    return messages, tools, notes


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[:40] for name in names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown
