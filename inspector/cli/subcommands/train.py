"""`inspector train`: trains a small model on a text, and shows how it learns."""

from __future__ import annotations

import argparse
import time
from argparse import Namespace
from pathlib import Path

from engine.errors import EngineError, PathError
from engine.files import message_and_hint, shorter, typed
from engine.protocol import BeginTraining, ResumeTraining, Train
from engine.setting import settings_of
from engine.settings import MOST_STEPS, LoadSettings, Settings, TrainingSettings
from inspector import places
from inspector.cli import flags
from inspector.cli.arguments import CliRequest, given, settings_from

SAVE_EVERY = 300
"""Default number of steps between two checkpoints."""
PATTERN = "step-*"
"""Glob of the checkpoints' names."""


def train_parser() -> flags.Parser:
    """Train a small llama from random weights, on a text of your own or on stories that come with the program, and
    watch what it learns: its loss on the training text and on held-out text, its candidates after a prompt, and the
    text it writes. Its tokenizer is trained first. Ctrl+c saves a checkpoint; each checkpoint is a model that mlx_lm
    loads: inspector --model DIR/step-000300."""
    default = TrainingSettings()
    return flags.command_parser("train", train_parser.__doc__, flags.EXIT_STATUS, {
        "text:": "",
        "--text -t FILE": ("a UTF-8 text, or a folder of .txt and .md files; may be repeated (default: the stories)",
                           {"action": "append", "dest": "texts"}),
        "--prompt -p TEXT": f'the prompt whose candidates and continuation are shown (default: "{default.prompt}")',
        "model:": "",
        **_declared("layers", "width", "vocabulary"),
        "training:": "",
        "--batch ROWSxTOKENS": ("rows and tokens per row of a training step (default: "
                                f"{default.rows}x{default.row_tokens})", {"type": _batch}),
        **_declared("steps", "rate", "seed", "every"),
        "output:": "",
        "--output -o DIR": "directory for the checkpoints (default: a new one in the program's own folder)",
        "--save-every N": ("steps between two checkpoints", {"default": SAVE_EVERY}),
        "--resume DIR": "continue from a checkpoint, or from the last one in the directory of a training",
        **flags.jsonl("lines"),
    })  # fmt: skip


def _declared(*names: str) -> flags.Flags:
    declared = {each.name: each for each in settings_of(TrainingSettings)}
    return flags.settings(declared[name] for name in names)


def _batch(text: str) -> tuple[int, int]:
    """Parse rows and tokens, such as `8x64`."""
    rows, by, tokens = text.lower().partition("x")
    if not by or not rows.isdecimal() or not tokens.isdecimal():
        raise argparse.ArgumentTypeError(f"must be rows x tokens, such as 8x64, not {text!r}")
    return flags.whole(rows), flags.whole(tokens)


def run_train(args: Namespace) -> int:
    """Run `inspector train`.

    Raises:
        EngineError: A value is out of range, or the directory can't be used.
    """
    from inspector.cli.writers.generation import report
    from inspector.cli.writers.measured import TrainingLooks

    if args.save_every < 1:
        raise EngineError("--save-every: must be at least 1.", f"Take {SAVE_EVERY}, for example.")
    begin: BeginTraining | ResumeTraining
    if args.resume is not None:
        begin = _resumed(args)
        directory = Path(begin.checkpoint).parent
    else:
        begin = BeginTraining(_settings(args))
        directory = _new_directory(args.output)
    request = CliRequest(LoadSettings(), Settings(), jsonl=args.jsonl)
    then = [begin, Train(MOST_STEPS, str(directory), args.save_every)]
    return report(request, TrainingLooks(), then, loads=False, awaits=True)


def _settings(args: Namespace) -> TrainingSettings:
    values = given(args)
    if args.batch is not None:
        values["rows"], values["row_tokens"] = args.batch
    try:
        return settings_from(TrainingSettings, values)
    except EngineError as error:
        message = error.message.replace("--rows:", "--batch:").replace("--row-tokens:", "--batch:")
        raise EngineError(message, error.hint) from None


def _resumed(args: Namespace) -> ResumeTraining:
    """Continue from the checkpoint that was named, or from the last one in the directory."""
    begun = ("texts", "prompt", "layers", "width", "vocabulary", "batch", "rate", "seed", "every", "output")
    if clash := [name for name in begun if getattr(args, name) is not None]:
        flag = {"texts": "text"}.get(clash[0], clash[0])
        message = (
            f"--{flag} has no effect with --resume: a training continues with the settings it began with."
        )
        raise EngineError(message, f"Leave --{flag} out, or begin a new one without --resume.")
    named = typed(args.resume)
    newest = max(checkpoints(named), default=named)
    if not newest.is_dir():
        hint = "Check the name, or begin a new training."
        raise EngineError(f"There is no checkpoint {shorter(named)}.", hint)
    return ResumeTraining(str(newest.absolute()), args.steps)


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in a directory, those of fewer steps first."""
    return sorted(each for each in directory.glob(PATTERN) if each.is_dir())


def _new_directory(name: str | None) -> Path:
    """Make the directory of the checkpoints, before the training begins."""
    usual = places.state() / "trained" / time.strftime("%Y-%m-%d %H.%M.%S")
    directory = usual if name is None else typed(name)
    if directory.exists() and not directory.is_dir():
        raise EngineError(f"{shorter(directory)} is a file.", "Name a directory with -o.")
    if checkpoints(directory):
        hint = f"Continue it with --resume {shorter(directory)}, or name another directory."
        raise EngineError(f"{shorter(directory)} has the checkpoints of another training.", hint)
    made = directory.absolute()
    try:
        made.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(*message_and_hint(made, error, "written")) from error
    return made
