"""`inspector score`, `diff` and `tokens`: what one model, or two, make of a text that is given, and how it is cut."""

from __future__ import annotations

import argparse
import math
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.errors import EngineError, PromptError
from engine.setting import check
from engine.settings import BY_NAME, LoadSettings, Settings
from inspector.cli.arguments import CliRequest, given, load_settings
from inspector.cli.exit import output
from inspector.cli.flags import (
    EXIT_STATUS,
    Parser,
    Subcommand,
    add_jsonl,
    add_load,
    add_trace,
    between,
    command_parser,
    flag_errors,
    whole,
)
from inspector.cli.inputs import (
    STDIN,
    add_chat,
    chat_from,
    given_text,
    idle,
    read_file,
    read_stdin,
    unescaped,
)
from inspector.texts import decoded

if TYPE_CHECKING:
    from engine.protocol import Failure, OpenLockstep

MOST = 20
"""Candidates that the engine records for a token of the prompt."""


def score_parser() -> Parser:
    """The parser of `inspector score`."""
    made = command_parser(
        "score",
        "Score a text with a model: every token's logprob, rank and surprisal, the text's perplexity, and its bits per "
        "byte and per character. The model reads the text exactly as the file has it, and does not continue it.",
        "The first token has nothing before it, so it is not scored. The text must fit into the model's context "
        f"window. {EXIT_STATUS}",
    )
    made.add_argument("file", metavar="FILE", nargs="?", help="a UTF-8 text; - reads standard input")
    text = made.add_argument_group("text")
    own = r"the text itself, without a FILE; \n and \t are escapes"
    text.add_argument("--prompt", "-p", metavar="TEXT", help=own)
    template = "score it as a user's message in the model's chat template"
    text.add_argument("--chat-template", action="store_true", help=template)
    text.add_argument("--system-prompt", metavar="TEXT", help="system message of the chat template")
    add_chat(text)
    out = made.add_argument_group("output")
    add_jsonl(out, "table")
    out.add_argument(
        "--summary", action="store_true", help="print the figures of the whole text only, not its tokens"
    )
    add_trace(out)
    likely = f"candidates at each place in the JSON lines or the recording, at most {MOST} (default: {MOST})"
    out.add_argument("--candidates", type=BY_NAME["candidates"].parse, metavar="N", help=likely)
    add_load(made.add_argument_group("model and cache"))
    return made


def run_score(args: Namespace) -> int:
    """Run `inspector score`.

    Raises:
        EngineError: A value is out of range, the text can't be read or is empty, or the recording can't be written.
    """
    from inspector.cli.driver import place, run
    from inspector.cli.writers.tokens import score_writer

    path, request = place(args.output, args.force, "the scores do"), score_request_from(args)
    writer = score_writer(request, args.summary, output(), sys.stderr)
    return run(args, request, writer, [], trace=path, told=_of_text)


def _of_text(failure: Failure) -> Failure:
    """The engine's message on a prompt, as a message on the text that is read."""
    if failure.command not in ("Prefill", "DiffText") or not failure.expected:
        return failure
    message, hint = (words.replace("prompt", "text") for words in (failure.message, failure.hint))
    return replace(failure, message=message, hint=hint)


def score_request_from(args: Namespace) -> CliRequest:
    """Check what the flags ask for, and read the text.

    Raises:
        EngineError: A value is out of range, or the text can't be read or is empty.
    """
    shown = args.jsonl or args.output is not None
    candidates = given(args).get("candidates", MOST if shown else 1)
    with flag_errors():
        settings = check(Settings(candidates=candidates))
    text = lambda: given_text(args.file, args.prompt, "inspector score", "score")  # noqa: E731
    return replace(_request(args, args.chat_template, "--chat-template", text), settings=settings, echo=True)


def _request(args: Namespace, chat: bool, flag: str, text: Callable[[], str]) -> CliRequest:
    """What the flags ask for, with the conversation that they name, or else the text that they give.

    Args:
        args: As parsed.
        chat: Whether the text goes through the chat template.
        flag: That says so.
        text: Reads it.
    """
    load, conversation = load_settings(args), chat_from(args)
    messages = conversation.messages
    return CliRequest(
        load=load,
        settings=Settings(),
        prompt=conversation.last if messages else text(),
        chat=chat or bool(messages),
        system=args.system_prompt,
        jsonl=args.jsonl,
        notes=(*conversation.notes, *(() if chat or messages else idle(args, flag))),
        messages=messages,
        options=conversation.options,
    )


SCORE = Subcommand(
    "score", score_parser, run_score, "score a text: logprobs, ranks, perplexity and bits per byte"
)


# ---- inspector diff --------------------------------------------------------------------------

CANDIDATES = 10
"""Most probable tokens of each model in the JSON lines."""


def diff_parser() -> Parser:
    """The parser of `inspector diff`."""
    made = command_parser(
        "diff",
        "Compare two models over one text, token by token: the KL divergence of the second's distribution from the "
        "first's, the perplexity of both, equal top tokens and changes of probability, named as in llama.cpp's KL "
        "tool.",
        "KL is KL(first||second), in bits (llama.cpp prints nats; a bit is 0.693 nats). Models with different "
        "tokenizers are compared by logprob, over the stretches of text between places where tokens of both end. A "
        "text longer than a context window is read in windows that overlap by half. "
        f"{EXIT_STATUS} With a gate: 3 a bound is broken, 4 a figure is within two standard errors of a bound, 2 a "
        "figure could not be computed.",
    )
    made.intermixed = True  # B may come after flags
    made.add_argument("first", metavar="A", help="the first model: pocket, a directory, or a hub id")
    made.add_argument(
        "second",
        metavar="B",
        nargs="?",
        help="the second model (default: A, changed by the flags of the second model)",
    )
    add_against(made.add_argument_group("second model"), "")
    text = made.add_argument_group("text")
    file = "a UTF-8 text; - reads standard input; may be repeated, for the figures of all texts together"
    text.add_argument("--text", "-t", metavar="FILE", action="append", help=file)
    text.add_argument("--prompt", "-p", metavar="TEXT", help=r"the text itself; \n and \t are escapes")
    window = "tokens in a window (default: as many as fit both models)"
    text.add_argument("--window", type=whole, metavar="N", help=window)
    gate = made.add_argument_group(
        "gate", "bounds that the second model must keep; the exit status says whether it does"
    )
    gate.add_argument(
        "--max-kld",
        type=between(math.inf),
        metavar="BITS",
        help="upper bound of the mean KL divergence per token",
    )
    gate.add_argument("--min-same-top", type=between(1.0), metavar="SHARE",
                      help="lower bound of the share of places at which both have the same most probable token, 0 to "
                           "1")  # fmt: skip
    ratio = "upper bound of the second perplexity over the first, and its inverse the lower bound; 1 or more"
    gate.add_argument("--max-ppl-ratio", type=between(math.inf, 1.0), metavar="X", help=ratio)
    out = made.add_argument_group("output")
    add_jsonl(out, "figures, which come last", "one JSON object a line, with every token,")
    both = "both models and their caches (--adapter-path is for the first model, --adapter for the second)"
    add_load(made.add_argument_group(both))
    return made


def run_diff(args: Namespace) -> int:
    """Run `inspector diff`.

    Raises:
        EngineError: A value is out of range, no second model is named, or a text can't be read or is empty.
    """
    from engine.protocol import DiffText
    from inspector.cli.driver import run
    from inspector.cli.writers.diff import Bounds, DiffReading
    from inspector.cli.writers.diff import writer as diff_writer

    if args.model is not None:
        raise EngineError("The first model was named twice: as A and with --model.", "Leave --model out.")
    args.model = args.first
    load = load_settings(args)
    against = against_from(args, load, args.second)
    if against is None:
        hint = "Name one after the first, or give --bits or --adapter."
        raise EngineError("There is no second model.", hint)
    if (args.text or []).count(STDIN) > 1:
        raise PromptError("Standard input can be read only once.", "Name it once with --text.")
    texts = [
        given_text(file, args.prompt, "inspector diff A B", "compare", "--text")
        for file in args.text or [None]
    ]
    request = CliRequest(load, Settings(), "", chat=False, jsonl=args.jsonl)
    reads = [DiffText(text, args.window, CANDIDATES if args.jsonl else 0) for text in texts]
    reading = DiffReading(len(texts), Bounds(args.max_kld, args.min_same_top, args.max_ppl_ratio))
    writer = diff_writer(request, output(), sys.stderr, reading)
    return run(args, request, writer, [against, *reads], told=_of_text) or reading.status


DIFF = Subcommand(
    "diff", diff_parser, run_diff, "compare two models over one text: KL, perplexity, equal top tokens"
)


# ---- the flags of a second model, for the screen too -----------------------------------------

GROUP_SIZE = 64
"""That of mlx_lm.convert."""


def add_against(group: argparse._ArgumentGroup, prefix: str) -> None:
    """The flags that make a second model of the first one.

    Args:
        group: Of the parser.
        prefix: Before their names, as in `--against-bits`; empty for `--bits`.
    """
    add = group.add_argument
    add(f"--{prefix}bits", dest="against_bits", type=whole, metavar="N",
        help="quantize the second model to 2, 3, 4, 5, 6 or 8 bits on loading, as mlx_lm.convert does")  # fmt: skip
    add(f"--{prefix}group-size", dest="against_group_size", type=whole, metavar="N",
        help=f"weights that share a scale in it: 32, 64 or 128 (default: {GROUP_SIZE})")  # fmt: skip
    adapter = "directory of an adapter to load with the second model"
    add(f"--{prefix}adapter", dest="against_adapter", metavar="DIR", help=adapter)


def against_from(args: Namespace, load: LoadSettings, named: str | None) -> OpenLockstep | None:
    """The command that opens the second model.

    Args:
        args: With the flags above.
        load: Of the first model; what doesn't belong to that model alone holds for both.
        named: The second model, where it is named.

    Returns:
        None where neither a model nor a flag was given.

    Raises:
        EngineError: A group size was given without bits.
    """
    from engine.protocol import OpenLockstep

    bits, group, adapter = args.against_bits, args.against_group_size, args.against_adapter
    if group is not None and bits is None:
        hint = "Add the bits, or leave it out."
        raise EngineError("A group size was given without the bits to quantize to.", hint)
    system = getattr(args, "against_system_prompt", None)
    if all(each is None for each in (named, bits, adapter, system)):
        return None
    if named is None or named == load.model:
        against = replace(load, adapter_path=adapter if adapter or named else load.adapter_path)
    else:
        against = replace(load, model=named, adapter_path=adapter, extra_eos_token=())
    return OpenLockstep(against, bits, group or GROUP_SIZE, system)


# ---- inspector tokens ------------------------------------------------------------------------


def tokens_parser() -> Parser:
    """The parser of `inspector tokens`."""
    made = command_parser(
        "tokens",
        "Cut a text into tokens: the id, the text and the bytes of each, and the bytes per token. Only the model's "
        "tokenizer is read, or downloaded. Without --chat the text is cut as a raw prompt: special tokens that are "
        "spelled out in it become those tokens, and a beginning-of-sequence token comes first if the tokenizer adds "
        "one.",
        f"`‹E2 82›` are the first bytes of a character that a later token completes. {EXIT_STATUS}",
    )
    text = made.add_argument_group("text")
    file = "a UTF-8 text (default: -, standard input)"
    text.add_argument("file", nargs="?", metavar="FILE", help=file)
    text.add_argument("--prompt", "-p", metavar="TEXT", help=r"the text itself; \n and \t are escapes")
    template = "cut it as a user's message in the model's chat template"
    text.add_argument("--chat", "--chat-template", dest="chat", action="store_true", help=template)
    text.add_argument("--system-prompt", metavar="TEXT", help="system message of the chat template")
    add_chat(text)
    model = made.add_argument_group("model")
    model.add_argument("--model", metavar="MODEL", help="pocket, a directory, or a hub id (default: pocket)")
    own_code = "run code that comes with the tokenizer"
    model.add_argument("--trust-remote-code", action="store_true", default=None, help=own_code)
    apart = made.add_argument_group("taken apart; a MODEL may be a tokenizer.json, too")
    merges = "show how each word became its tokens: BPE's merges with ranks, a unigram's best cuts, WordPiece's steps"
    apart.add_argument("--merges", action="store_true", help=merges)
    beside = "also show the tokens of another tokenizer, below the first one's"
    apart.add_argument("--beside", metavar="MODEL", help=beside)
    out = made.add_argument_group("output")
    add_jsonl(out, "table")
    out.add_argument("--summary", action="store_true", help="print the counts only, not the tokens")
    return made


def run_tokens(args: Namespace) -> int:
    """Run `inspector tokens`.

    Raises:
        EngineError: The text can't be read or is empty, or the model's name is wrong.
    """
    from engine.protocol import CutText, TakeApart
    from engine.thread import EngineThread
    from inspector.cli.driver import drive, exit_status
    from inspector.cli.writers.merges import TextApart, TokenizerBackend, merges_writer, needs_no_engine
    from inspector.cli.writers.tokens import token_writer

    asked = tokens_request_from(args)
    cut = CutText(asked.load, asked.prompt, bool(asked.chat), asked.system, asked.messages, asked.options)
    if args.merges or args.beside is not None:
        of = [asked.load, *([] if args.beside is None else [LoadSettings(model=args.beside)])]
        text = TextApart(asked.prompt)
        apart = merges_writer(asked, text, args.merges, args.summary, output(), sys.stderr)
        filled = [cut] if asked.chat else []  # the chat template's text
        taken = lambda: [TakeApart(text.text, each) for each in of]  # noqa: E731
        on_disk = not filled and all(needs_no_engine(each.model) for each in of)
        backend = TokenizerBackend if on_disk else EngineThread
        return exit_status(drive(asked, apart, filled, backend, loads=False, after=taken))
    made = token_writer(asked, args.summary, output(), sys.stderr)
    return exit_status(drive(asked, made, [cut], loads=False))


def tokens_request_from(args: Namespace) -> CliRequest:
    """Check what the flags ask for, and read the text.

    Raises:
        EngineError: The text can't be read or is empty, or the model's name is wrong.
    """
    return _request(args, args.chat, "--chat", lambda: _text_to_cut(args))


def _text_to_cut(args: Namespace) -> str:
    if args.prompt is not None and args.file is not None:
        raise PromptError("A file and --prompt were both given.", "Leave one of them out.")
    if args.prompt is not None and args.prompt != STDIN:
        text = unescaped(args.prompt)
    elif args.file is not None and args.file != STDIN:
        text = decoded(read_file(args.file), args.file)
    else:
        text = _piped(asked=STDIN in (args.prompt, args.file))
    if not text:
        hint = "Give some text: inspector tokens -p TEXT."
        raise PromptError("The text is empty: there is nothing to cut.", hint)
    return text


def _piped(asked: bool) -> str:
    if not asked and (sys.stdin is None or sys.stdin.isatty()):
        raise PromptError("No text was given.", "Add -p TEXT or a file, or pipe a text into it.")
    return decoded(read_stdin("Give the text as a file, or with -p."), "Standard input")


PURPOSE = "cut a text into tokens with ids and bytes; loads only the tokenizer"
TOKENS = Subcommand("tokens", tokens_parser, run_tokens, PURPOSE)
