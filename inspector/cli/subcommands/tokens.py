"""`inspector tokens`: a text as a model's tokenizer cuts it, without the model's weights."""

from __future__ import annotations

import sys
from argparse import Namespace

from engine.errors import PromptError
from engine.settings import Settings
from inspector.cli.arguments import Request, load_settings
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import EXIT_STATUS, Parser, add_jsonl, command_parser
from inspector.cli.inputs import STDIN, decoded, read_file, read_stdin, unescaped
from inspector.cli.prompts.chat import add_chat, chat_from, idle
from inspector.cli.subcommand import Subcommand


def parser() -> Parser:
    """The parser of `inspector tokens`."""
    made = command_parser(
        "tokens",
        "Cut a text into tokens: the id, the text and the bytes of each, and bytes per token. Only the model's "
        "tokenizer is read, or downloaded. A text without --chat is cut as a raw prompt is: special tokens written out "
        "in it become these tokens, and a beginning-of-sequence token comes first where the tokenizer puts one there.",
        f"`‹E2 82›` are bytes of a character that a later token ends. {EXIT_STATUS}",
    )
    text = made.add_argument_group("text")
    text.add_argument(
        "file", nargs="?", metavar="FILE", help="a UTF-8 text; - reads standard input, as no text does"
    )
    text.add_argument("--prompt", "-p", metavar="TEXT", help=r"the text itself; \n and \t are escapes")
    template = "as a user's message in the model's chat template"
    text.add_argument("--chat", "--chat-template", dest="chat", action="store_true", help=template)
    text.add_argument("--system-prompt", metavar="TEXT", help="system message of the chat template")
    add_chat(text)
    model = made.add_argument_group("model")
    model.add_argument("--model", metavar="MODEL", help="pocket, a directory, or a hub id (default: pocket)")
    own_code = "run code that comes with the tokenizer"
    model.add_argument("--trust-remote-code", action="store_true", default=None, help=own_code)
    out = made.add_argument_group("output")
    add_jsonl(out, "table")
    out.add_argument("--summary", action="store_true", help="the counts alone, without the tokens")
    return made


def run(args: Namespace) -> int:
    """Run `inspector tokens`.

    Raises:
        EngineError: The text can't be read or is empty, or the model's name is wrong.
    """
    from engine.protocol import CutText
    from inspector.cli.driver import drive
    from inspector.cli.writers.tokens import token_writer

    request = tokens_request_from(args)
    cut = CutText(
        request.load, request.prompt, request.chat, request.system, request.messages, request.options
    )
    made = token_writer(request, args.summary, output(), sys.stderr)
    return exit_status(drive(request, made, [cut], loads=False))


def tokens_request_from(args: Namespace) -> Request:
    """Check what the flags ask for, and read the text.

    Raises:
        EngineError: The text can't be read or is empty, or the model's name is wrong.
    """
    conversation = chat_from(args)
    chat = args.chat or bool(conversation.messages)
    return Request(
        load=load_settings(args),
        settings=Settings(),
        prompt=conversation.last if conversation.messages else _text(args),
        chat=chat,
        system=args.system_prompt,
        jsonl=args.jsonl,
        notes=(*conversation.notes, *(() if chat else idle(args, "--chat"))),
        messages=conversation.messages,
        options=conversation.options,
    )


def _text(args: Namespace) -> str:
    if args.prompt is not None and args.file is not None:
        raise PromptError("A file and --prompt were both given.", "Leave one of them out.")
    if args.prompt is not None and args.prompt != STDIN:
        text = unescaped(args.prompt)
    elif args.file is not None and args.file != STDIN:
        text = decoded(read_file(args.file), args.file)
    else:
        text = _piped(asked=STDIN in (args.prompt, args.file))
    if not text:
        raise PromptError(
            "The text is empty: there is nothing to cut.", "Give some text: inspector tokens -p TEXT."
        )
    return text


def _piped(asked: bool) -> str:
    if not asked and (sys.stdin is None or sys.stdin.isatty()):
        raise PromptError("No text was given.", "Add -p TEXT or a file, or pipe a text into it.")
    return decoded(read_stdin("Give the text as a file, or with -p."), "Standard input")


SUBCOMMAND = Subcommand(parser, run, "a text's tokens with ids and bytes, by a model's tokenizer alone")
