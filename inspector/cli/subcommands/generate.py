"""`inspector generate`, `beam` and `batch`: a completion, a beam search, several prompts; as text or JSON lines."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine import protocol
from engine.errors import EngineError, PromptError
from engine.protocol import Command
from engine.settings import DRAFT_KINDS, WIDEST, BeamSettings, SpeculationSettings
from inspector.cli import arguments, flags
from inspector.cli.arguments import CliRequest
from inspector.config.directions import steering
from inspector.config.presets import lanes

if TYPE_CHECKING:
    from inspector.cli.driver import Summary

UNKEPT = "--record-logits has no effect without a recording: give -o RECORDING."


def generate_parser() -> flags.Parser:
    """Write one completion without the screen: the text to standard output, the figures to standard error."""
    return flags.command_parser("generate", generate_parser.__doc__, flags.EXIT_STATUS, {
        **flags.jsonl("text"), **flags.TRACE, **flags.GENERATION, **SPECULATION, **STEERING,
    })  # fmt: skip


def run_generate(args: Namespace) -> int:
    """Run `inspector generate`.

    Raises:
        EngineError: A value is out of range, there is no prompt, or the recording can't be written.
    """
    from inspector.cli.writers.generation import GenerationFigures, report

    path, request = arguments.place(args.output, args.force, "the text does"), arguments.request_from(args)
    if request.load.record_logits and path is None:
        request = replace(request, notes=(*request.notes, UNKEPT))
    speculation, figures = speculation_from(args), GenerationFigures(request)
    how = {"trace": path, "force": args.force}
    first: list[Command] = []
    commands: list[Command] = [protocol.Run()]
    if speculation is not None:  # loaded before the prompt: a draft may be refused, and then there is no text
        first = [protocol.LoadDraft(speculation)]
        commands = [protocol.RunRounds(speculation, plain=PLAIN_STEPS)]
    if args.steer is None:
        return report(request, figures, commands, first=first, **how)
    if request.settings.grammar is not None:
        message = "--steer computes the prompt's last token again, so a grammar would have to allow it."
        raise EngineError(message, "Leave out the grammar, or --steer.")
    direction = steering(args.steer).intervention

    def steered(summary: Summary) -> list[Command]:
        """The commands of a run that is steered from the prompt's last token on."""
        assert summary.prefilled is not None
        return [protocol.HoldInterventions(summary.prefilled.tokens[-1].node, (direction,)), *commands]

    return report(request, figures, first=first, after=steered, **how)


# ---- steering --------------------------------------------------------------------------------


STEERING: flags.Flags = {
    "steering:": "",
    f"--steer {flags.STEER}": "add a direction from a file to the residual stream, from the prompt's last token on. "
                              "That token, whose forward pass predicts the first token of the text, runs again, and "
                              "counts as one of --max-tokens; the KV of the tokens before it stays as it was",
}  # fmt: skip
"""The flag of a direction that is added from the prompt's last token on."""


# ---- the flags of speculative decoding -------------------------------------------------------

PLAIN_STEPS = 9
"""Plain steps at the beginning of a run: the first is a cold start, and rounds are compared with the median of the
other eight."""


SPECULATION: flags.Flags = {
    "speculative decoding:": "the text is the same with a draft and without one; only the time differs",
    "--draft-model MODEL": "a smaller model with the same vocabulary, which drafts the next tokens",
    "--draft": ("draft without another model: lookup copies what followed an earlier occurrence of the last tokens, "
                "self-4bit is the model itself, quantized on loading",
                {"choices": [kind for kind in DRAFT_KINDS if kind != "model"]}),
    "--num-draft-tokens N": f"tokens to draft in each round (default: {SpeculationSettings().num_draft_tokens})",
}  # fmt: skip
"""The flags of a draft."""


def speculation_from(args: Namespace) -> SpeculationSettings | None:
    """The settings of the flags; None without a draft.

    Raises:
        EngineError: Both kinds of draft were given, a number without a draft, or one that is out of range.
    """
    if args.draft_model is not None and args.draft is not None:
        raise EngineError("--draft-model and --draft were both given.", "Leave one of them out.")
    number = args.num_draft_tokens
    if args.draft_model is None and args.draft is None:
        if number is not None:
            hint = "Add --draft lookup, or --draft-model MODEL."
            raise EngineError("--num-draft-tokens has no effect without a draft.", hint)
        return None
    values = {"draft": args.draft or "model", "draft_model": args.draft_model or ""}
    return arguments.settings_from(SpeculationSettings, arguments.given(args) | values)


# ---- inspector beam --------------------------------------------------------------------------


def beam_parser() -> flags.Parser:
    """Search for the most probable continuations of a prompt with beams, and print their ranking beside greedy
    decoding."""
    default = BeamSettings()
    return flags.command_parser("beam", beam_parser.__doc__, flags.EXIT_STATUS, {
        **flags.jsonl("ranking"),
        **flags.PROMPT,
        "beam search:": "",
        "--width N": f"number of beams, 1 to {WIDEST} (default: {default.width})",
        "--length-penalty X": ("score = logprob / length ** X: 0 ranks by the sum, 1 by the mean per token; above 1 "
                               f"favours length itself (default: {default.length_penalty})", {"type": float}),
        "--early-stopping": ("end once as many beams are finished as --width, even if a live beam could still become "
                             "better", flags.NONE),
        **flags.named("max_tokens", "min_tokens"), **flags.GRAMMAR, **flags.named("extra_eos_token"),
        **flags.LOAD,
    })  # fmt: skip


def run_beam(args: Namespace) -> int:
    from inspector.cli.writers.generation import report
    from inspector.cli.writers.sequences import BeamReport

    request, search = (
        arguments.request_from(args),
        protocol.SearchBeams(arguments.settings_from(BeamSettings, arguments.given(args))),
    )
    return report(request, BeamReport(), [search])


# ---- inspector batch -------------------------------------------------------------------------

FORM = '{"prompt": "...", "seed": 1, "temp": 0.7}'
"""Example of a line with its own settings, as `inspector.config.presets` reads it."""
SIZE = 32
"""Lanes at once, as in `engine.protocol.StartBatch`."""


def batch_parser() -> flags.Parser:
    """Generate from several prompts at once, with one forward pass for all of them, or draw many continuations of one
    prompt."""
    made = flags.command_parser("batch", batch_parser.__doc__, flags.EXIT_STATUS, {
        **flags.jsonl("table"), **flags.TRACE,
        "prompts:": "",
        "--prompt -p TEXT": (r"a prompt; may be repeated; - reads standard input; \n and \t are escapes",
                             {"action": "append"}),
        "--prompt-file FILE": "read a prompt from a UTF-8 file, as it is",
        "--lines": "read a prompt from each line of the file or of standard input; a line with settings of its own is "
                   f"{FORM}",
        **flags.SYSTEM, **flags.TEMPLATE,
        "--chat-template-config JSON": "variables for the chat template, as a JSON object",
        "batch:": "",
        "--batch-size N": ("prompts at once; the others wait for a free lane", {"default": SIZE}),
        "--static": "keep the rows of lanes that have ended until all have: this shows what a batch without a queue "
                    "wastes",
        "--compare": "also run each prompt alone, and compare the token ids and the time",
        "--draws -n N": "draw N continuations of one prompt over one copy of its KV, and compare the frequencies of "
                        "the first token with its probabilities; draw k is what k re-rolls of each token give",
        **flags.SAMPLING, **flags.LOAD,
    })  # fmt: skip
    absent = dict.fromkeys(("messages", "use_default_chat_template", "prefill_response"))
    made.set_defaults(**absent, prompt_logprobs=False)
    return made


def run_batch(args: Namespace) -> int:
    """Run `inspector batch`.

    Raises:
        EngineError: A value is out of range, there is no prompt, or the recording can't be written.
    """
    from inspector.cli.writers.generation import report
    from inspector.cli.writers.sequences import BatchReport

    path, texts = arguments.place(args.output, args.force, "the lanes do"), prompts_from(args)
    request = batch_request(args, texts)
    list(commands_for(args, request, texts))  # refuses a wrong line before the model is loaded
    commands = lambda summary: commands_for(args, request, texts)  # noqa: E731
    return report(request, BatchReport(request), after=commands, trace=path, force=args.force)


def prompts_from(args: Namespace) -> list[str]:
    """The prompts.

    Raises:
        PromptError: There is no prompt, or a file can't be read.
    """
    texts: list[str] = []
    for text in args.prompt or ():
        given_one = arguments.typed_text(text)
        texts += _cut(args, given_one) if text == arguments.STDIN else [given_one]
    if args.prompt_file is not None:
        texts += _cut(args, arguments.read_file(args.prompt_file, "prompt file"))
    if not texts:
        hint = "Add --prompt TEXT for each, --prompt-file FILE --lines, or -p - for a pipe."
        raise PromptError("No prompt was given.", hint)
    if not all(texts):
        raise PromptError("One of the prompts is empty.", "Give some text in each.")
    if args.draws is not None and len(texts) > 1:
        raise PromptError("--draws continues one prompt, and several were given.", "Leave all but one out.")
    return texts


def _cut(args: Namespace, text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()] if args.lines else [text]


def batch_request(args: Namespace, texts: list[str]) -> CliRequest:
    """The request of the flags; its prompt is for draws, as lanes have theirs in their command."""
    one = Namespace(**{**vars(args), "prompt": "x", "prompt_file": None})
    request = arguments.request_from(one)
    text = texts[0] if args.draws is not None else ""
    return replace(request, prefill=replace(request.prefill, text=text))


def commands_for(args: Namespace, request: CliRequest, texts: list[str]) -> Iterable[Command]:
    """The commands after those for the model, the settings and, for draws, the prompt.

    Raises:
        PromptError: A line has an unknown setting or an invalid value.
    """
    prompt = request.prefill
    like = protocol.LanePrompt("", prompt.chat, prompt.system, prompt.options)
    each = tuple(replace(like, text=text) for text in texts)
    prompts = lanes(texts, like, request.settings) if args.lines else each
    tokens = request.settings.max_tokens
    if args.draws is None:
        yield protocol.StartBatch(prompts, args.batch_size, args.static)
    elif prompts[0].text != texts[0]:
        message = "--draws continues one prompt, under the settings of the flags."
        raise PromptError(message, "Give it with --prompt.")
    else:
        yield protocol.DrawMany(args.draws, tokens=tokens, size=args.batch_size)
    if args.compare and (args.draws is None or tokens > 1):
        yield protocol.CompareBatch()
