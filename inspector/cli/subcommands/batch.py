"""`inspector batch`: several prompts at once, or many draws of one, as a table or as JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import PromptError
from inspector.cli.arguments import Request, request_from
from inspector.cli.connect import backend_from
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import (
    Parser,
    add_jsonl,
    add_load,
    add_settings,
    add_trace,
    command_parser,
    whole,
)
from inspector.cli.inputs import decoded, read_file, read_stdin, unescaped
from inspector.cli.subcommand import Subcommand

FORM = '{"prompt": "...", "seed": 1, "temp": 0.7}'
"""Of such a line, as `inspector.config.prompt_lines` reads it."""

if TYPE_CHECKING:
    from engine.protocol import Command

SIZE = 32
"""Lanes at once, as in `engine.protocol.StartBatch`."""


def parser() -> Parser:
    """The parser of `inspector batch`."""
    made = command_parser(
        "batch",
        "Several prompts through the model at once, a lane for each, one forward for all; or many draws of one prompt.",
    )
    prompt = made.add_argument_group("prompts")
    add = prompt.add_argument
    text = r"a prompt; may be repeated; - reads standard input; \n and \t are escapes"
    add("--prompt", "-p", metavar="TEXT", action="append", help=text)
    add("--prompt-file", metavar="FILE", help="read a prompt from a UTF-8 file, as it is")
    lines = f"the file, or standard input, has a prompt on each line; one with settings of its own is {FORM}"
    add("--lines", action="store_true", help=lines)
    add("--system-prompt", metavar="TEXT", help="system message of the chat template")
    raw = "give the model the prompts as raw text"
    add("--ignore-chat-template", action="store_true", default=None, help=raw)
    add("--chat-template-config", metavar="JSON", help="an object of variables for the chat template")
    made.set_defaults(
        messages=None, use_default_chat_template=None, prefill_response=None, prompt_logprobs=False
    )
    add = made.add_argument_group("batch").add_argument
    add(
        "--batch-size",
        type=whole,
        metavar="N",
        default=SIZE,
        help=f"lanes at once; the others wait (default: {SIZE})",
    )
    static = "lanes that ended keep their rows until all have: what a batch without a queue wastes"
    add("--static", action="store_true", help=static)
    compare = "run each prompt alone too: whether the ids are equal, and the time of all against one after the other"
    add("--compare", action="store_true", help=compare)
    draws = (
        "draw N continuations of one prompt over one copy of its KV; draw k is the one that k re-rolls of each token "
        "give; frequencies of the first token against the stated probabilities"
    )
    add("--draws", "-n", type=whole, metavar="N", help=draws)
    add_settings(made.add_argument_group("sampling and stops"))
    add_load(made.add_argument_group("model and cache"))
    add_jsonl(made, "table")
    add_trace(made)
    return made


def run(args: Namespace) -> int:
    """Run `inspector batch`.

    Raises:
        EngineError: A value is out of range, there is no prompt, or the trace can't be written.
    """
    from inspector.cli.driver import drive
    from inspector.cli.writers.sequences import batch_writer
    from inspector.cli.writers.trace import TraceWriter, place

    path = place(args.output, args.force, "the lanes do")
    texts = prompts_from(args)
    request = batch_request(args, texts)
    plain = batch_writer(request, output(), sys.stderr)
    commands = list(commands_for(args, request, texts))
    if path is None:
        return exit_status(drive(request, plain, commands, make_backend=backend_from(args)))
    trace = TraceWriter(plain, request)
    outcome = drive(request, trace, commands, make_backend=backend_from(args))
    if outcome.failure is None:
        trace.save(path, args.force)
    return exit_status(outcome)


def prompts_from(args: Namespace) -> list[str]:
    """The prompts.

    Raises:
        PromptError: There is none, or a file can't be read.
    """
    texts: list[str] = []
    for text in args.prompt or ():
        if text == "-":
            texts += _cut(args, decoded(read_stdin("Give prompts with --prompt TEXT."), "Standard input"))
        else:
            texts.append(unescaped(text))
    if args.prompt_file is not None:
        texts += _cut(args, decoded(read_file(args.prompt_file, "prompt file"), args.prompt_file))
    if not texts:
        raise PromptError(
            "No prompt was given.",
            "Add --prompt TEXT for each, --prompt-file FILE --lines, or -p - for a pipe.",
        )
    if not all(texts):
        raise PromptError("One of the prompts is empty.", "Give some text in each.")
    if args.draws is not None and len(texts) > 1:
        raise PromptError("--draws continues one prompt, and several were given.", "Leave all but one out.")
    return texts


def _cut(args: Namespace, text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()] if args.lines else [text]


def batch_request(args: Namespace, texts: list[str]) -> Request:
    """What the flags ask for; the prompt is that of draws, lanes have theirs in their command."""
    one = Namespace(**{**vars(args), "prompt": "x", "prompt_file": None})
    return replace(request_from(one), prompt=texts[0] if args.draws is not None else "")


def commands_for(args: Namespace, request: Request, texts: list[str]) -> Iterable[Command]:
    """The commands after model, settings and, for draws, their prompt.

    Raises:
        PromptError: A line names what is no setting, or a value that can't be.
    """
    from engine.protocol import CompareBatch, DrawMany, LanePrompt, StartBatch
    from inspector.config.prompt_lines import lanes

    like = LanePrompt("", request.chat, request.system, request.options)
    prompts = (
        lanes(texts, like, request.settings)
        if args.lines
        else tuple(replace(like, text=text) for text in texts)
    )
    if args.draws is not None:
        if prompts[0].text != texts[0]:
            raise PromptError(
                "--draws continues one prompt, under the settings of the flags.", "Give it with --prompt."
            )
        yield DrawMany(args.draws, tokens=request.settings.max_tokens, size=args.batch_size)
        alone = request.settings.max_tokens > 1
    else:
        yield StartBatch(prompts, args.batch_size, args.static)
        alone = True
    if args.compare and alone:
        yield CompareBatch()


SUBCOMMAND = Subcommand(parser, run, "several prompts at once, or many draws of one")
