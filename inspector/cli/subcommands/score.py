"""`inspector score`: what a model makes of a text, through the prefill alone."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.settings import BY_NAME, Settings, check
from inspector.cli.arguments import Request, given, load_settings
from inspector.cli.connect import backend_from
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import (
    EXIT_STATUS,
    Parser,
    add_jsonl,
    add_load,
    add_trace,
    command_parser,
    flag_errors,
)
from inspector.cli.inputs import given_text
from inspector.cli.prompts.chat import add_chat, chat_from, idle
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from engine.protocol import Failure

MOST = 20
"""Candidates that the engine records for a token of the prompt."""


def parser() -> Parser:
    """The parser of `inspector score`."""
    made = command_parser(
        "score",
        "What a model makes of a text: every token's logprob, rank and surprisal, the text's perplexity, "
        "and its bits per byte and per character. The text is raw, as it stands in the file, and is not continued.",
        "The first token has nothing before it, so it is not scored. The text must fit into the model's context "
        f"window. {EXIT_STATUS}",
    )
    made.add_argument("file", metavar="FILE", nargs="?", help="a UTF-8 text; - reads standard input")
    text = made.add_argument_group("text")
    text.add_argument(
        "--prompt", "-p", metavar="TEXT", help=r"the text itself, without a FILE; \n and \t are escapes"
    )
    template = "score it as a user's message in the model's chat template"
    text.add_argument("--chat-template", action="store_true", help=template)
    text.add_argument("--system-prompt", metavar="TEXT", help="system message of the chat template")
    add_chat(text)
    out = made.add_argument_group("output")
    add_jsonl(out, "table")
    out.add_argument("--summary", action="store_true", help="the text's figures alone, without its tokens")
    add_trace(out)
    likely = (
        f"most probable tokens at each place in the JSON lines or the trace, at most {MOST} (default: {MOST})"
    )
    out.add_argument("--candidates", type=BY_NAME["candidates"].parse, metavar="N", help=likely)
    add_load(made.add_argument_group("model and cache"))
    return made


def run(args: Namespace) -> int:
    """Run `inspector score`.

    Raises:
        EngineError: A value is out of range, the text can't be read or is empty, or the trace can't be written.
    """
    from inspector.cli.driver import drive
    from inspector.cli.writers.tokens import score_writer
    from inspector.cli.writers.trace import TraceWriter, place

    path, request = place(args.output, args.force, "the scores do"), score_request_from(args)
    trace = TraceWriter(score_writer(request, args.summary, output(), sys.stderr), request)
    outcome = drive(request, trace, [], make_backend=backend_from(args))
    if path is not None and outcome.failure is None:
        trace.save(path, args.force)
    return exit_status(replace(outcome, failure=_of_text(outcome.failure)))


def _of_text(failure: Failure | None) -> Failure | None:
    """The engine's message on a prompt, as a message on the text that is scored."""
    if failure is None or failure.command != "Prefill" or not failure.expected:
        return failure
    message, hint = (words.replace("prompt", "text") for words in (failure.message, failure.hint))
    return replace(failure, message=message, hint=hint)


def score_request_from(args: Namespace) -> Request:
    """Check what the flags ask for, and read the text.

    Raises:
        EngineError: A value is out of range, or the text can't be read or is empty.
    """
    load, values = load_settings(args), given(args)
    shown = args.jsonl or args.output is not None
    with flag_errors():
        settings = check(Settings(candidates=values.get("candidates", MOST if shown else 1)))
    conversation = chat_from(args)
    chat = args.chat_template or bool(conversation.messages)
    return Request(
        load=load,
        settings=settings,
        prompt=conversation.last
        if conversation.messages
        else given_text(args.file, args.prompt, "inspector score", "score"),
        chat=chat,
        system=args.system_prompt,
        echo=True,
        jsonl=args.jsonl,
        notes=(*conversation.notes, *(() if chat else idle(args, "--chat-template"))),
        messages=conversation.messages,
        options=conversation.options,
    )


SUBCOMMAND = Subcommand(parser, run, "a text's logprobs, ranks, perplexity and bits per byte")
