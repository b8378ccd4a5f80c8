"""`inspector score`: what a model makes of a text, through the prefill alone."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import PromptError
from engine.settings import BY_NAME, Settings, check
from inspector.cli.arguments import Request, given, load_settings
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
from inspector.cli.inputs import decoded, read_file, read_stdin, unescaped
from inspector.cli.prompts.chat import add_chat, chat_from, idle
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from engine.records import Failure

STDIN = "-"
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
    from inspector.cli.writers.score import writer
    from inspector.cli.writers.trace import TraceWriter, place

    path, request = place(args.output, args.force, "the scores do"), score_request_from(args)
    trace = TraceWriter(writer(request, args.summary, output(), sys.stderr), request)
    outcome = drive(request, trace, [])
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
        prompt=conversation.last if conversation.messages else _text(args),
        chat=chat,
        system=args.system_prompt,
        echo=True,
        jsonl=args.jsonl,
        notes=(*conversation.notes, *(() if chat else idle(args, "--chat-template"))),
        messages=conversation.messages,
        options=conversation.options,
    )


def _text(args: Namespace) -> str:
    if (args.file is None) == (args.prompt is None):
        which = "No text was given." if args.file is None else "A FILE and --prompt were both given."
        raise PromptError(which, "Name a file, or - for standard input, or give the text with -p TEXT.")
    if STDIN in (args.file, args.prompt):
        text = decoded(read_stdin("Give the text as a file: inspector score FILE."), "Standard input")
    elif args.prompt is not None:
        text = unescaped(args.prompt)
    else:
        mend = "Check the path's spelling, or give the text itself: inspector score -p TEXT."
        text = decoded(read_file(args.file, mend=mend), args.file)
    if not text:
        raise PromptError("The text is empty: there is nothing to score.", "Give some text.")
    return text


SUBCOMMAND = Subcommand(parser, run, "a text's logprobs, ranks, perplexity and bits per byte")
