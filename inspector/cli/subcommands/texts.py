"""`inspector score`, `diff` and `tokens`: scores a text, compares two models over it, or cuts it into tokens."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace

from msgspec.structs import replace

from engine.errors import EngineError, PromptError
from engine.protocol import CutText, DiffText, Failure, OpenLockstep, Prefill, TakeApart
from engine.settings import BY_NAME, LoadSettings, Settings
from inspector.cli import arguments, flags
from inspector.cli.arguments import CliRequest
from inspector.cli.exit import OK
from inspector.served.requests import last_of

MOST = 20
"""Candidates that the engine records for a token of the prompt."""


def score_parser() -> flags.Parser:
    """Score a text with a model: every token's logprob, rank and surprisal, the text's perplexity, and its bits per
    byte and per character. The model reads the text exactly as the file has it, and does not continue it."""
    epilog = "The first token has nothing before it, so it is not scored. The text must fit into the model's context " \
             f"window. {flags.EXIT_STATUS}"  # fmt: skip
    return flags.command_parser("score", score_parser.__doc__, epilog, {
        "file [FILE]": "a UTF-8 text; - reads standard input",
        "text:": "",
        "--prompt -p TEXT": r"the text itself, without a FILE; \n and \t are escapes",
        "--chat-template": ("score it as a user's message in the model's chat template", {"dest": "chat"}),
        **flags.SYSTEM, **flags.CHAT,
        "output:": "",
        **flags.jsonl("table"),
        "--summary": "print the figures of the whole text only, not its tokens",
        **flags.TRACE,
        "--candidates N": ("candidates at each place in the JSON lines or the recording, at most "
                           f"{MOST} (default: {MOST})", {"type": BY_NAME["candidates"].parse}),
        **flags.LOAD,
    })  # fmt: skip


def run_score(args: Namespace) -> int:
    """Run `inspector score`.

    Raises:
        EngineError: A value is out of range, the text can't be read or is empty, or the recording can't be written.
    """
    from inspector.cli.writers.generation import report
    from inspector.cli.writers.tokens import Score

    path, request = arguments.place(args.output, args.force, "the scores do"), score_request_from(args)
    how = {"trace": path, "force": args.force, "told": _of_text}
    return report(request, Score(not args.summary), **how)


def _of_text(failure: Failure) -> Failure:
    """The engine's message about a prompt, reworded for the text that is read."""
    if failure.command not in ("Prefill", "DiffText") or not failure.expected:
        return failure
    message, hint = (words.replace("prompt", "text") for words in (failure.message, failure.hint))
    return replace(failure, message=message, hint=hint)


def score_request_from(args: Namespace) -> CliRequest:
    """Check the flags, and read the text.

    Raises:
        EngineError: A value is out of range, or the text can't be read or is empty.
    """
    shown = args.jsonl or args.output is not None
    candidates = arguments.given(args).get("candidates", MOST if shown else 1)
    settings = arguments.settings_from(Settings, {"candidates": candidates})
    return _request(args, args.file, "score", "--chat-template", settings)


def _request(
    args: Namespace, file: str | None, purpose: str, flag: str, settings: Settings | None = None
) -> CliRequest:
    """The request of the flags, with the conversation that they name, or else the text.

    Args:
        args: As parsed.
        file: Path of the text.
        purpose: What is done with it, as a verb.
        flag: The flag that applies the chat template.
        settings: Settings of the sampler.
    """
    load, (messages, options, notes) = arguments.load_settings(args), arguments.chat_from(args)
    if messages:
        text = last_of(messages)
    else:
        text = arguments.given_text(file, args.prompt, purpose)
        notes += () if args.chat else arguments.idle(args, flag)
    chat = args.chat or bool(messages)
    prefill = Prefill(text, chat, args.system_prompt, True, messages=messages, options=options)
    return CliRequest(load, settings or Settings(), prefill, args.jsonl, notes)


# ---- inspector diff --------------------------------------------------------------------------

CANDIDATES = 10
"""Most probable tokens of each model in the JSON lines."""


def diff_parser() -> flags.Parser:
    """Compare two models over one text, token by token: the KL divergence of the second's distribution from the
    first's, the perplexity of both, equal top tokens and changes of probability, named as in llama.cpp's KL tool."""
    epilog = (
        "KL is KL(first||second), in bits (llama.cpp prints nats; a bit is 0.693 nats). Models with different "
        "tokenizers are compared by logprob, over the stretches of text between places where tokens of both end. A "
        "text longer than a context window is read in windows that overlap by half. "
        f"{flags.EXIT_STATUS} With a gate: 3 a bound is broken, 4 a figure is within two standard errors of a bound, "
        "2 a figure could not be computed."
    )
    made = flags.command_parser("diff", diff_parser.__doc__, epilog, {
        "first A": "the first model: pocket, a directory, or a hub id",
        "second [B]": "the second model (default: A, changed by the flags of the second model)",
        "second model:": "",
        **second_model_flags(""),
        "text:": "",
        "--text -t FILE": ("a UTF-8 text; - reads standard input; may be repeated, for the figures of all texts "
                           "together", {"action": "append"}),
        "--prompt -p TEXT": r"the text itself; \n and \t are escapes",
        "--window N": "tokens in a window (default: as many as fit both models)",
        "gate:": "bounds that the second model must keep; the exit status says whether it does",
        "--max-kld BITS": ("upper bound of the mean KL divergence per token", {"type": float}),
        "--min-same-top SHARE": ("lower bound of the share of places at which both have the same most probable token, "
                                 "0 to 1", {"type": float}),
        "--max-ppl-ratio X": ("upper bound of the ratio of the perplexities, the larger over the smaller; 1 or more",
                              {"type": float}),
        "output:": "",
        **flags.jsonl("figures alone", "one JSON object a line, every token and then the figures,"),
        "both models and their caches:": "--adapter-path is for the first model, --adapter for the second",
        **flags.MODEL,
        "--model MODEL": argparse.SUPPRESS,  # the first model is A
    })  # fmt: skip
    made.intermixed = True  # B may come after flags
    return made


def run_diff(args: Namespace) -> int:
    """Run `inspector diff`.

    Raises:
        EngineError: A value is out of range, no second model is named, or a text can't be read or is empty.
    """
    from inspector.cli.writers.diff import Bounds, DiffReading
    from inspector.cli.writers.generation import report

    if args.model is not None:
        raise EngineError("The first model was named twice: as A and with --model.", "Leave --model out.")
    args.model = args.first
    load = arguments.load_settings(args)
    second = second_model_from(args, load, args.second)
    if second is None:
        hint = "Name one after the first, or give --bits or --adapter."
        raise EngineError("No second model was named.", hint)
    if (args.text or []).count(arguments.STDIN) > 1:
        raise PromptError("Standard input can be read only once.", "Name it once with --text.")
    texts = [arguments.given_text(file, args.prompt, "compare", "--text") for file in args.text or [None]]
    request = CliRequest(load, Settings(), jsonl=args.jsonl)
    reads = [DiffText(text, args.window, CANDIDATES if args.jsonl else 0) for text in texts]
    reading = DiffReading(len(texts), arguments.settings_from(Bounds, arguments.given(args)))
    return report(request, reading, [second, *reads], told=_of_text) or reading.status


# ---- the flags of a second model, for the screen too -----------------------------------------

GROUP_SIZE = 64
"""The default of mlx_lm.convert."""


def second_model_flags(prefix: str) -> flags.Flags:
    """The flags that make a second model from the first one.

    Args:
        prefix: Before their names, as in `--second-model-bits`; empty for `--bits`.
    """
    return {
        f"--{prefix}bits N": ("quantize the second model to 2, 3, 4, 5, 6 or 8 bits on loading, as mlx_lm.convert does",
                              {"dest": "second_model_bits"}),
        f"--{prefix}group-size N": (f"weights that share a scale in it: 32, 64 or 128 (default: {GROUP_SIZE})",
                                    {"dest": "second_model_group_size"}),
        f"--{prefix}adapter DIR": ("directory of an adapter to load with the second model",
                                   {"dest": "second_model_adapter"}),
    }  # fmt: skip


def second_model_from(args: Namespace, load: LoadSettings, named: str | None) -> OpenLockstep | None:
    """The command that opens the second model.

    Args:
        args: Has the flags above.
        load: Settings of the first model; those that are not specific to it apply to both.
        named: Name of the second model, if given.

    Returns:
        None if neither a model nor a flag was given.

    Raises:
        EngineError: A group size was given without bits.
    """
    bits, group, adapter = args.second_model_bits, args.second_model_group_size, args.second_model_adapter
    if group is not None and bits is None:
        hint = "Add the bits, or leave it out."
        raise EngineError("A group size was given without the bits to quantize to.", hint)
    system = getattr(args, "second_model_system_prompt", None)
    if all(each is None for each in (named, bits, adapter, system)):
        return None
    if named is None or named == load.model:
        against = replace(load, adapter_path=adapter if adapter or named else load.adapter_path)
    else:
        against = replace(load, model=named, adapter_path=adapter, extra_eos_token=())
    return OpenLockstep(against, bits, group or GROUP_SIZE, system)


# ---- inspector tokens ------------------------------------------------------------------------


def tokens_parser() -> flags.Parser:
    """Cut a text into tokens: the id, the text and the bytes of each, and the bytes per token. Only the model's
    tokenizer is read, or downloaded. Without --chat the text is cut as a raw prompt: special tokens that are spelled
    out in it become those tokens, and a beginning-of-sequence token comes first if the tokenizer adds one."""
    epilog = f"`‹E2 82›` are the first bytes of a character that a later token completes. {flags.EXIT_STATUS}"
    return flags.command_parser("tokens", tokens_parser.__doc__, epilog, {
        "text:": "",
        "file [FILE]": "a UTF-8 text (default: -, standard input)",
        "--prompt -p TEXT": r"the text itself; \n and \t are escapes",
        "--chat --chat-template": ("cut it as a user's message in the model's chat template", {"dest": "chat"}),
        **flags.SYSTEM, **flags.CHAT,
        "model:": "",
        "--model MODEL": "pocket, a directory, or a hub id (default: pocket)",
        "--trust-remote-code": ("run code that comes with the tokenizer", flags.NONE),
        "how it is cut:": "with these two a MODEL may also be a tokenizer.json",
        "--merges": "show how each word became its tokens: BPE's merges with ranks, a unigram's best cuts, WordPiece's "
                    "steps",
        "--beside MODEL": "also show the tokens of another tokenizer, below the first one's",
        "output:": "",
        **flags.jsonl("table"),
        "--summary": "print the counts only, not the tokens",
    })  # fmt: skip


def run_tokens(args: Namespace) -> int:
    """Run `inspector tokens`.

    Raises:
        EngineError: The text can't be read or is empty, or the model's name is wrong.
    """
    from inspector.cli.driver import Summary
    from inspector.cli.writers import tokens
    from inspector.cli.writers.generation import report, writer
    from inspector.state.merges import taken_apart

    asked, listed = tokens_request_from(args), not args.summary
    prompt = asked.prefill
    cut = CutText(asked.load, prompt.text, bool(prompt.chat), prompt.system, prompt.messages, prompt.options)
    if not args.merges and args.beside is None:
        return report(asked, tokens.CountedTokens(listed), [cut], loads=False)
    models = [asked.load, *([] if args.beside is None else [LoadSettings(model=args.beside)])]
    text = tokens.TextApart(prompt.text, args.merges, listed)
    apart = [TakeApart(text.text, each) for each in models]
    if prompt.chat or not all(each.model == "pocket" or each.model.endswith(".json") for each in models):
        template = [cut] if prompt.chat else []  # which writes the text
        after = lambda summary: [replace(each, text=text.text) for each in apart]  # noqa: E731
        return report(asked, text, template, loads=False, after=after)
    written = writer(asked, text)  # each tokenizer is known from one file: no engine is needed
    for each in apart:
        written.take(taken_apart(each, asked.load, lambda: False), "")
    written.end(Summary(asked.settings))
    return OK


def tokens_request_from(args: Namespace) -> CliRequest:
    """Check the flags, and read the text; a pipe is read even if the flags don't name it.

    Raises:
        EngineError: The text can't be read or is empty, or the model's name is wrong.
    """
    piped = args.prompt is None and sys.stdin is not None and not sys.stdin.isatty()
    file = arguments.STDIN if args.file is None and piped else args.file
    return _request(args, file, "cut", "--chat")
