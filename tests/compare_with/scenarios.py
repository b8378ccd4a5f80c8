"""What is run in both checkouts: subcommands, the Python interface, and keys on the screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

PROMPT = "Once upon a time, there was a little girl named"
RED = "Lily has a red ball. Tom has a blue"
INPUTS = {
    "text.txt": "Once upon a time there was a dog.\nHe said: “Hello, naïve 🐕!” The end.",
    "schema.json": '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, '
    '"age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": false}',
    "grammar.lark": 'start: " " NAME " and " NAME "."\nNAME: /[A-Z][a-z]{2,4}/\n',
    "messages.json": '[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tell me a story."}, '
    '{"role": "assistant", "content": "Tom ran."}, {"role": "user", "content": "And then?"}]',
    "pairs.txt": "I am happy\tI am sad\nShe felt great\tShe felt awful\n",
    "lines.txt": "Once upon a time\nThe cat\nTom and Lily went to the park\n",
}
"""Files in the directory of each scenario, by name; the recorded requests of tests/inspector/served are there, too."""
SPELLINGS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("--chat",), ()),  # where a template is used without a flag
)
"""Words of a command line, and what stands for them in a checkout whose help doesn't have the first."""


@dataclass(frozen=True)
class Command:
    """A subcommand of the program.

    Args:
        argv: Its arguments; with --jsonl its standard output is read as values.
        typed: Standard input.
        files: What it writes that is compared, too.
    """

    argv: tuple[str, ...]
    typed: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Script:
    """A Python program beside this module, which prints JSON lines."""

    file: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Screen:
    """The program on a terminal.

    Args:
        argv: Its arguments.
        shots: Keys by the name of the picture that is taken after them. The first, `start`, needs none.
        size: Columns and rows.
    """

    argv: tuple[str, ...]
    shots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    size: tuple[int, int] = (120, 40)


@dataclass(frozen=True)
class Scenario:
    """Steps that share a directory and a home."""

    name: str
    steps: tuple[Command | Script | Screen, ...]


RAW = ("--ignore-chat-template", "--prefill-step-size", "8")
DRAWN = ("--temp", "0.8", "--top-p", "0.95", "--seed", "7")
GENERATE: dict[str, tuple[str, ...]] = {
    "greedy": ("--temp", "0", "--top-p", "1"),
    "top-p": ("--temp", "0.9", "--top-p", "0.9"),
    "min-p": ("--temp", "1.2", "--top-p", "1", "--min-p", "0.02", "--min-tokens-to-keep", "2", "--candidates", "5"),
    "top-k": ("--temp", "1.5", "--top-p", "1", "--top-k", "12"),
    "penalties": ("--temp", "0.8", "--top-p", "1", "--repetition-penalty", "1.3", "--repetition-context-size", "9",
                  "--presence-penalty", "0.4", "--frequency-penalty", "0.2", "--frequency-context-size", "50"),
    "logit-bias": ("--temp", "0.8", "--top-p", "1", "--logit-bias", "339=2.5", "--logit-bias", "14=-100"),
    "xtc": ("--temp", "1", "--top-p", "1", "--xtc-probability", "0.5", "--xtc-threshold", "0.05"),
    "llama.cpp": ("--temp", "0.9", "--top-p", "0.9", "--min-p", "0.03", "--top-k", "40", "--xtc-probability", "0.4",
                  "--sampler-order", "llama.cpp"),
    "transformers": ("--temp", "0.9", "--top-p", "0.9", "--min-p", "0.03", "--top-k", "40",
                     "--sampler-order", "transformers"),
    "kv-bits": (*DRAWN, "--kv-bits", "4", "--quantized-kv-start", "6"),
    "kv-bits-8": (*DRAWN, "--kv-bits", "8", "--kv-group-size", "32", "--quantized-kv-start", "0"),
    "rotating": (*DRAWN, "--max-kv-size", "16"),
    "no-kv-cache": (*DRAWN, "--no-kv-cache", "--max-tokens", "8"),
    "stop": (*DRAWN, "--stop", ".", "--stop", "\\n"),
    "end": ("--temp", "0.6", "--top-p", "0.9", "--seed", "3", "--max-tokens", "200", "--min-tokens", "30",
            "--extra-eos-token", " park", "--candidates", "2"),
    "full-window": (*DRAWN, "--max-tokens", "700", "--min-tokens", "700", "--candidates", "1"),
    "regex": (*DRAWN, "--regex", " [A-Z][a-z]+ (was|had) [a-z ]{5,20}\\."),
    "json-schema": (*DRAWN, "--json-schema", "schema.json"),
    "grammar": (*DRAWN, "--grammar", "grammar.lark"),
    "choices": (*DRAWN, "--choices", " Lily, Tom, Anna and Ben"),
    "draft-lookup": (*DRAWN, "--draft", "lookup", "--num-draft-tokens", "4"),
    "draft-self": (*DRAWN, "--draft", "self-4bit"),
    "steps-without-pipeline": (*DRAWN, "--prompt-logprobs", "--dtype", "file"),
}  # fmt: skip
INSIDE: dict[str, tuple[str, ...]] = {
    "attention": (),
    "lens": ("--positions", "4"),
    "contributions": ("--token", " car", "--against", " ball"),
    "gradients": ("--gradient-steps", "8"),
    "scores": ("--head", "L3 h2"),
    "heads": ("--texts", "12,2,5"),
    "interventions": ("--off", "L6 h1,L3 mlp"),
    "steering": ("--pairs", "pairs.txt", "--layer", "3"),
    "patching": ("--source", "Lily has a red ball. Tom has a green", "--token", " car", "--against", " ball"),
    "modules": (),
    "experts": (),
    "positions": (),
}
SESSION = ("--prompt", "Once upon a time", *RAW, *DRAWN)


def scenarios() -> tuple[Scenario, ...]:
    """All of them; those that take longest first."""
    return (*_screens(), *_commands())


def _commands() -> Iterator[Scenario]:
    for name, flags in GENERATE.items():
        argv = ("generate", "--prompt", PROMPT, "--max-tokens", "20", "--seed", "7", *RAW, *flags)
        yield Scenario(f"generate-{name}", (Command(argv), Command((*argv, "--jsonl"))))
    chat = ("generate", "--chat", *DRAWN, "--max-tokens", "20", "--prefill-step-size", "8", "--jsonl")
    yield Scenario(
        "generate-chat",
        (
            Command((*chat, "--prompt", "Tell me a story.", "--system-prompt", "Be kind.")),
            Command((*chat, "--messages", "messages.json", "--prefill-response", "Then")),
        ),
    )
    for name, flags in INSIDE.items():
        argv = ("show", name, "--prompt", RED, *RAW, "--temp", "0", "--seed", "7", *flags)
        yield Scenario(f"inside-{name}", (Command((*argv, "--jsonl")), Command(argv)))
    yield Scenario(
        "score",
        (
            Command(("score", "text.txt")),
            Command(("score", "text.txt", "--summary", "--no-kv-cache")),
            Command(("score", "text.txt", "--candidates", "4", "--jsonl")),
        ),
    )
    diff = ("diff", "pocket", "--bits", "4", "--text", "text.txt", "--window", "16")
    yield Scenario("diff", (Command(diff), Command((*diff, "--jsonl", "--max-kld", "0.001"))))
    batch = (
        "batch",
        "--prompt-file",
        "lines.txt",
        "--lines",
        "--max-tokens",
        "12",
        *DRAWN,
        "--ignore-chat-template",
    )
    draws = ("batch", "--prompt", PROMPT, "--draws", "30")
    yield Scenario(
        "batch",
        (
            Command((*batch, "--jsonl", "--candidates", "4")),
            Command((*batch, "--batch-size", "2", "--static", "--compare")),
            Command((*draws, "--max-tokens", "1", *DRAWN, "--ignore-chat-template")),
        ),
    )
    beam = ("beam", "--prompt", PROMPT, *RAW, "--max-tokens", "8")
    yield Scenario("beam", (
        Command((*beam, "--width", "4")),
        Command((*beam, "--width", "3", "--length-penalty", "0.5", "--early-stopping", "--jsonl")),
    ))  # fmt: skip
    yield Scenario("tokens", (
        Command(("tokens", "text.txt")),
        Command(("tokens", "--prompt", "Tell me a story.", "--chat", "--system-prompt", "Be kind.", "--jsonl")),
        Command(("tokens", "--prompt", "unhappiness strawberry 🐕", "--merges")),
        Command(("tokens", "--messages", "messages.json", "--summary")),
    ))  # fmt: skip
    train = (
        "train",
        "--layers",
        "1",
        "--width",
        "32",
        "--vocabulary",
        "300",
        "--batch",
        "4x16",
        "--steps",
        "12",
    )
    yield Scenario(
        "train", (Command((*train, "--every", "4", "--seed", "3", "--jsonl", "--output", "trained")),)
    )
    yield Scenario("models", (
        Command(("models",)), Command(("models", "--jsonl")), Command(("sessions",)), Command(("--keys", "--jsonl")),
        Command(("--keys",)),
    ))  # fmt: skip
    yield Scenario("served", (
        Command(("open", "served.har", "--check", "--model", "pocket", "--jsonl")),
        Command(("open", "mitmdump.har", "--check", "--model", "pocket")),
    ))  # fmt: skip
    yield Scenario("lesson-new", (
        Command(("lesson", "new", "own.md")),
        Command(("lesson", "check", "own.md", "--static")),
        Command(("learn",)),
    ))  # fmt: skip
    for lesson in ("pieces", "the-draw", "the-cache"):
        typed = "2\n\n\n" * 12
        yield Scenario(f"lesson-plain-{lesson}", (Command(("learn", lesson, "--plain"), typed),))
    for lesson in ("beams", "filters-and-order"):
        yield Scenario(
            f"lesson-export-{lesson}",
            (Command(("export", lesson, "--to", "html", "-o", "lesson.html"), files=("lesson.html",)),),
        )
    for kind in ("html", "md", "csv", "txt", "svg"):
        file = f"demonstration.{kind}"
        yield Scenario(
            f"export-demonstration-{kind}", (Command(("export", "--to", kind, "-o", file), files=(file,)),)
        )
    yield Scenario("recording", (
        Command(("generate", *SESSION, "--max-tokens", "12", "-o", "own", "--record-logits")),
        *(Command(("export", "own", "--to", kind, "-o", f"own.{kind}"), files=(f"own.{kind}",))
          for kind in ("html", "md", "csv", "txt")),
        Screen(("replay", "own"), {"three": ("space",) * 3, "stages": ("2",), "tree": ("4", "t")}),
    ))  # fmt: skip
    yield Scenario("recording-of-scores", (
        Command(("score", "text.txt", "-o", "scored", "--summary")),
        Command(("export", "scored", "--to", "csv", "-o", "score.csv"), files=("score.csv",)),
    ))  # fmt: skip
    yield Scenario("recording-of-batch", (
        Command((*batch, "-o", "batched")),
        Command(("export", "batched", "--to", "md", "-o", "batch.md"), files=("batch.md",)),
    ))  # fmt: skip
    yield Scenario("python-session", (Script("python_session.py", files=("own.html",)),))
    yield Scenario("python-inside", (Script("python_inside.py"),))
    yield Scenario("errors", tuple(map(Command, (
        ("generate", "--prompt", "x", "--temp", "-1"),
        ("generate", "--prompt", "x", "--tempp", "1"),
        ("generat", "--prompt", "x"),
        ("generate", "--prompt", "x", "--model", "no-such-model"),
        ("generate", "--prompt", "x", "--regex", "("),
        ("generate", "--prompt", "x", "--kv-bits", "4", "--max-kv-size", "8", "--max-tokens", "4", *DRAWN),
        ("generate", "--prompt-file", "none.txt"),
        ("score", "none.txt"), ("replay", "none"), ("export", "text.txt", "--to", "html"),
        ("open", "text.txt", "--check"), ("show", "--prompt", "a", "--off", "L99 h1", "--temp", "0"),
    ))))  # fmt: skip


def _screens() -> Iterator[Scenario]:
    yield Scenario("screen-first-steps", (Screen(SESSION, {
        "one": ("space",), "five": ("space",) * 4, "back": ("left", "left"), "highlight": ("down",),
        "taken": ("enter",), "run": ("n",), "undone": ("u",), "other branch": ("home", "]"), "draw": ("d",),
        "colors": ("m",), "borders": ("e",), "tip": ("end",),
    }),))  # fmt: skip
    yield Scenario("screen-tabs", (Screen(SESSION, {
        "six": ("space",) * 6, "why": ("2",), "inside": ("3",), "what if": ("4",), "cost": ("5",), "learn": ("6",),
        "next": ("1",), "next view": ("tab",), "enlarged": ("f",), "restored": ("escape",), "look-ahead": ("l",),
    }),))  # fmt: skip
    yield Scenario("screen-inside", (Screen(SESSION, {
        "four": ("space",) * 4, "attention": ("3", "A"), "head": ("]", "up"), "why there": ("escape", "3", "V"),
        "lens": ("escape", "3", "I"), "layer": ("up", "up"), "contributions": ("escape", "3", "D"), "heads": ("h",),
    }),))  # fmt: skip
    yield Scenario("screen-inside-more", (Screen(SESSION, {
        "four": ("space",) * 4, "gradients": ("3", "g"), "positions": ("escape", "3", "Y"),
        "modules": ("escape", "3", "O"), "module": ("down", "down"), "experts": ("escape", "3", "E"),
        "facts": ("escape", "3", "i"),
    }),))  # fmt: skip
    yield Scenario("screen-what-if", (Screen(SESSION, {
        "branches": ("space", "space", "space", "left", "down", "enter", "space", "space"), "tree": ("4", "t"),
        "tree up": ("up",), "compare": ("escape", "4", "c"), "off": ("escape", "4", "X"), "off more": ("]", "a"),
        "beams": ("escape", "4", "B"),
    }),))  # fmt: skip
    yield Scenario("screen-cost", (Screen(SESSION, {
        "four": ("space",) * 4, "kv": ("5", "k"), "verify": ("v",), "segments": ("1", "W"),
    }),))  # fmt: skip
    # alone beside the text: a dialog would lie over a part of the panel of times
    yield Scenario("screen-dialogs", (Screen(SESSION, {
        "three": ("space", "space", "space", "0"), "sampling": ("s",), "other temperature": ("escape", "2", "-", "-"),
        "prompt": ("escape", "p"),
        "everything": ("escape", ":"), "export": ("escape", "7", "E"), "copy": ("escape", "C"),
    }),))  # fmt: skip
    yield Scenario("screen-small-dialogs", (Screen(SESSION, {
        "three": ("space",) * 3, "breakpoints": ("b",), "find": ("escape", "/"),
    }, (80, 24)),))  # fmt: skip
    yield Scenario("screen-help", (Screen(SESSION, {
        "help": ("?",), "what": ("right",), "walks": ("right",), "pages": ("right",), "closed": ("escape",),
    }),))  # fmt: skip
    yield Scenario("screen-chat", (Screen(
        ("--chat", "--prompt", "Tell me a story.", "--prefill-step-size", "8", *DRAWN),
        {"three": ("space",) * 3, "segments": ("1", "W"), "reply": ("escape", "4", "R")},
    ),))  # fmt: skip
    yield Scenario("screen-demonstration", (Screen(("replay",), {
        "one": ("space",), "four": ("space",) * 3, "why": ("2",), "tree": ("4", "t"), "steps": ("1", "t"),
        "earlier": ("backspace",),
    }),))  # fmt: skip
    yield Scenario("screen-served", (Screen(("open", "served.har", "2", "--model", "pocket"), {
        "reply": ("2", "R"), "stages": ("escape", "w"),
    }),))  # fmt: skip
    yield Scenario("screen-lesson", (Screen(("learn", "the-draw"), {
        "predicted": ("2",), "shown": ("h", "h"), "next": ("enter",), "again": ("1", "h", "h"),
    }),))  # fmt: skip
    yield Scenario("screen-lesson-recorded", (Screen(("learn", "pieces", "--recorded"), {
        "predicted": ("1",), "shown": ("h", "h"), "next": ("enter",), "list": ("V",),
    }),))  # fmt: skip
    yield Scenario("screen-small", (Screen(SESSION, {
        "three": ("space",) * 3, "why": ("2",), "inside": ("3",), "attention": ("A",), "what if": ("escape", "4"),
        "tree": ("t",), "cost": ("escape", "5"), "learn": ("6",), "next": ("1",), "help": ("?",),
    }, (80, 24)),))  # fmt: skip
    yield Scenario("screen-small-demonstration", (Screen(("replay",), {
        "four": ("space",) * 4, "why": ("2",), "text": ("tab",),
    }, (80, 24)),))  # fmt: skip
