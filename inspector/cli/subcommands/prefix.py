"""`inspector prefix`: where two requests to a server stop sharing a prefix, why, and how many tokens that costs."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from engine.errors import PromptError
from engine.files import shorter
from inspector.cli.arguments import CliRequest, load_settings
from inspector.cli.exit import output
from inspector.cli.flags import EXIT_STATUS, Parser, Subcommand, add_jsonl, command_parser
from inspector.cli.inputs import STDIN, Chat, chat_from, read_file, read_stdin
from inspector.texts import decoded

if TYPE_CHECKING:
    from engine.protocol import Command


def prefix_parser() -> Parser:
    """The parser of `inspector prefix`."""
    made = command_parser(
        "prefix",
        "Find the first token at which the prompts of two requests differ, and why they do: up to that token a "
        "server can "
        "use its KV cache of the first request for the second. Only the model's tokenizer and chat template are read, "
        "unless --measure is given.",
        'A and B are bodies of chat requests, {"messages": [...], "tools": [...]}, or lists of messages; - is '
        f"standard input. {EXIT_STATUS}",
    )
    made.add_argument("first", metavar="A", help="the earlier request")
    made.add_argument("second", metavar="B", help="the later one")
    answer = (
        "what the model generated for A, which a server's cache also holds: the raw text, with thinking, special "
        "tokens "
        "and the end of the turn, or a JSON list of token ids"
    )
    made.add_argument("--answer", metavar="FILE", help=answer)
    how_long = "load the model, and measure how long the second prompt takes after the first"
    made.add_argument("--measure", action="store_true", help=how_long)
    model = made.add_argument_group("model")
    model.add_argument("--model", metavar="MODEL", help="pocket, a directory, or a hub id (default: pocket)")
    own_code = "run code that comes with the tokenizer"
    model.add_argument("--trust-remote-code", action="store_true", default=None, help=own_code)
    model.add_argument("--chat-template-config", metavar="JSON", help="variables for the chat template, as a JSON "
                                                                      "object, "
        """such as '{"enable_thinking": false}'""")  # fmt: skip
    add_jsonl(made.add_argument_group("output"), "table", "one JSON object")
    return made


def run_prefix(args: Namespace) -> int:
    """Run `inspector prefix`.

    Raises:
        EngineError: A file can't be read, or is no request.
    """
    from engine.protocol import Configure, CutText, Load, Prefill
    from engine.settings import Settings
    from inspector.cli.driver import drive, exit_status
    from inspector.cli.writers.prefix import PrefixWriter

    if [args.first, args.second, args.answer].count(STDIN) > 1:
        raise PromptError("Standard input can be read only once.", "Give the others as files.")
    first, second = chats = [_chat(args, name) for name in (args.first, args.second)]
    if first.messages[-1].role == "assistant":
        raise PromptError(
            f"{shorter(args.first)} ends with an answer, so it is not a request.",
            "Leave the answer out, and give what the model generated with --answer FILE.",
        )
    answer, ids = ("", ()) if args.answer is None else _answer(args.answer)
    load = load_settings(args)
    request = CliRequest(load=load, settings=Settings(), prompt="", chat=True, jsonl=args.jsonl)
    cuts = [
        CutText(load, first.last, True, None, first.messages, first.options, answer, ids),
        CutText(load, second.last, True, None, second.messages, second.options),
    ]
    timed: list[Command] = []
    if args.measure:
        reads = [
            Prefill(each.last, True, echo=False, messages=each.messages, options=each.options)
            for each in chats
        ]
        timed = [Load(load), Configure(Settings()), *reads]
    writer = PrefixWriter(chats, output(), sys.stderr, request)
    return exit_status(drive(request, writer, [*cuts, *timed], loads=False))


def _chat(args: Namespace, name: str) -> Chat:
    own = Namespace(messages=name, chat_template_config=args.chat_template_config, prefill_response=None,
                    use_default_chat_template=None, system_prompt=None)  # fmt: skip
    return chat_from(own)


def _answer(name: str) -> tuple[str, tuple[int, ...]]:
    """A generated answer: as a text, or as its token ids.

    Raises:
        PromptError: It can't be read, or is empty.
    """
    raw = read_stdin("Give the answer as a file.") if name == STDIN else read_file(name, "answer")
    text = decoded(raw, name)
    if not text:
        raise PromptError("The answer is empty.", "Give what the model generated, or leave --answer out.")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text, ()
    ids = isinstance(value, list) and value and all(type(each) is int for each in value)
    return ("", tuple(value)) if ids else (text, ())


PREFIX = Subcommand(
    "prefix", prefix_parser, run_prefix, "find where two requests stop sharing a prefix, and why"
)
