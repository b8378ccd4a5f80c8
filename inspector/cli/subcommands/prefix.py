"""`inspector prefix`: where two requests to a server stop sharing a prefix, why, and how many tokens that costs."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from engine.errors import PromptError
from inspector.cli.arguments import CliRequest, load_settings
from inspector.cli.exit import output
from inspector.cli.flags import EXIT_STATUS, Parser, Subcommand, add_jsonl, command_parser
from inspector.cli.inputs import STDIN, Chat, chat_from

if TYPE_CHECKING:
    from engine import protocol
    from inspector.cli.driver import Summary
    from inspector.state.prefixes import Parting, SentPrompt

_BEFORE, _AFTER = 40, 40
"""Characters of the text that are told before and after the place."""


def prefix_parser() -> Parser:
    """The parser of `inspector prefix`."""
    made = command_parser(
        "prefix",
        "Find the first token in which the prompts of two requests differ, and why: a server's KV cache of the first "
        "serves the second up to there. Only the model's tokenizer and its chat template are read.",
        'A and B are bodies of chat requests, {"messages": [...], "tools": [...]}, or lists of messages; - is '
        f"standard input. {EXIT_STATUS}",
    )
    made.add_argument("first", metavar="A", help="the earlier request")
    made.add_argument("second", metavar="B", help="the later one")
    model = made.add_argument_group("model")
    model.add_argument("--model", metavar="MODEL", help="pocket, a directory, or a hub id (default: pocket)")
    own_code = "run code that comes with the tokenizer"
    model.add_argument("--trust-remote-code", action="store_true", default=None, help=own_code)
    model.add_argument("--chat-template-config", metavar="JSON", help="an object of variables for the chat template, "
        """such as '{"enable_thinking": false}'""")  # fmt: skip
    add_jsonl(made.add_argument_group("output"), "table", "one JSON object")
    return made


def run_prefix(args: Namespace) -> int:
    """Run `inspector prefix`.

    Raises:
        EngineError: A file can't be read, or is no request.
    """
    from engine.protocol import CutText
    from engine.settings import Settings
    from inspector.cli.driver import drive, exit_status

    if args.first == args.second == STDIN:
        raise PromptError("Standard input can be read once.", "Give one of the requests as a file.")
    chats = [_chat(args, name) for name in (args.first, args.second)]
    load = load_settings(args)
    request = CliRequest(load=load, settings=Settings(), prompt="", chat=True, jsonl=args.jsonl)
    cuts = [CutText(load, each.last, True, None, each.messages, each.options) for each in chats]
    writer = PrefixWriter(chats, output(), sys.stderr, args.jsonl)
    return exit_status(drive(request, writer, cuts, loads=False))


def _chat(args: Namespace, name: str) -> Chat:
    own = Namespace(messages=name, chat_template_config=args.chat_template_config, prefill_response=None,
                    use_default_chat_template=None, system_prompt=None)  # fmt: skip
    return chat_from(own)


class PrefixWriter:
    """Writes where two requests part, once both are cut.

    Args:
        chats: Both.
        out: Receives it.
        err: Receives the notes.
        jsonl: Whether as JSON.
    """

    def __init__(self, chats: list[Chat], out: TextIO, err: TextIO | None, jsonl: bool) -> None:
        self._chats, self._out, self._err, self._jsonl = chats, out, err, jsonl
        self._requests: list[SentPrompt] = []

    def take(self, record: protocol.Record, text: str) -> None:
        """Take in a prompt that was cut."""
        from engine.protocol import Tokenized
        from inspector.state.prefixes import SentPrompt

        if isinstance(record, Tokenized):
            chat = self._chats[len(self._requests)]
            self._requests.append(SentPrompt(chat.messages, chat.options, record.pieces))

    def end(self, summary: Summary) -> None:
        """Write what both came to."""
        from inspector.state.prefixes import parting_of

        if len(self._requests) < len(self._chats):
            return
        found = parting_of(*self._requests)
        if self._jsonl:
            self._out.write(json.dumps(_event(found), ensure_ascii=True, allow_nan=False) + "\n")
        else:
            self._out.write("".join(f"{line}\n" for line in _lines(found, self._requests)))
        self._out.flush()


def _event(found: Parting) -> dict[str, object]:
    return {
        "event": "prefix",
        "shared": found.shared,
        "lost": found.lost,
        "anew": found.anew,
        "cause": found.cause,
        "message": found.message,
        "before": found.before[-_BEFORE:],
        "first": found.one[:_AFTER],
        "second": found.other[:_AFTER],
    }


def _lines(found: Parting, requests: list[SentPrompt]) -> Iterator[str]:
    from inspector.display import visible
    from inspector.state.prefixes import SENTENCES

    one, other = (len(each.pieces) for each in requests)
    yield f"tokens   {one:,} in A, {other:,} in B, {found.shared:,} in common"
    yield f"cost     B computes {found.anew:,} anew; of a KV cache of A {found.lost:,} are of no use to it"
    if found.cause is None:
        same = f"{'A' if one < other else 'B'} is the beginning of the other"
        same = "A and B are the same prompt" if one == other else same
        yield f"part     nowhere: {same}"
        return
    yield f"part     at token {found.shared + 1:,}, after …{visible(found.before[-_BEFORE:])}"
    yield f"A        {visible(found.one[:_AFTER])}"
    yield f"B        {visible(found.other[:_AFTER])}"
    yield f"cause    {found.cause}: {SENTENCES[found.cause]}"
    if found.message is None:
        yield "request  the messages that both have are equal: the template or the encoding makes the difference"
    else:
        role = visible(requests[1].messages[found.message].role)
        yield f"request  message {found.message + 1} ({role}) is another one in B"


PREFIX = Subcommand("prefix", prefix_parser, run_prefix, "where two requests stop sharing a prefix, and why")
