"""The command `inspector`: reads the flags, then opens the screen or runs a subcommand.

Heavy modules are imported only when they are needed, so that `--help` is instant. Every error is reported in one line.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import ModuleType

from engine.errors import EngineError
from inspector.cli import screen
from inspector.cli.exit import INTERRUPTED, bad_input, fault, flush, not_written
from inspector.cli.flags import Parser, answer, names_model, parsed

SUBCOMMANDS: Mapping[str, tuple[str, str]] = {
    "generate": ("generate", "write one completion, as text or JSON lines"),
    "batch": ("generate", "several prompts at once, or many draws of one"),
    "beam": ("generate", "search with beams; write the ranking or JSON lines"),
    "show": ("show", "look inside the model at one token: attention, logit lens, contributions, gradients, patching, "
             "steering"),
    "show race": ("show", "measure what a KV cache saves: a race with and without one"),
    "show time": ("show", "measure one step part by part, and the machine's limits"),
    "show cache": ("show", "measure what the KV cache takes at fewer bits, and what that changes"),
    "score": ("texts", "score a text: logprobs, ranks, perplexity and bits per byte"),
    "diff": ("texts", "compare two models over one text: KL, perplexity, equal top tokens"),
    "tokens": ("texts", "cut a text into tokens with ids and bytes; loads only the tokenizer"),
    "train": ("train", "train a small model on a text of yours, and watch it learn"),
    "open": ("recordings", "open a recorded request as a session, and compare its reply"),
    "replay": ("recordings", "show a recorded session on the screen, without a model"),
    "export": ("recordings", "a recorded session or a lesson as a web page, Markdown, CSV, text or SVG"),
    "learn": ("lessons", "take a lesson: predict, try it, and see"),
    "lesson": ("lessons", "write a lesson of your own: new, check, record, run"),
    "models": ("lists", "list the models on the disk; --get downloads one"),
    "sessions": ("lists", "list the saved sessions"),
    "doctor": ("lists", "check that everything works on this machine; the output is for a report"),
    "completion": ("lists", "print the code for tab completion in bash, zsh or fish"),
}  # fmt: skip
"""The module in `inspector.cli.subcommands` and the purpose of each subcommand, in the order of the help. The module
has two functions for each: `show_race_parser` and `run_show_race` for `show race`. It is imported when one is run."""
MODEL = "MODEL: pocket (the bundled model), a directory, or a hub id such as mlx-community/Qwen3-0.6B-4bit"
TAB = (
    "For tab completion put this line into ~/.bashrc (zsh and fish: inspector completion --help):",
    '  eval "$(inspector completion bash)"',
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments after the command's name; None for `sys.argv`.

    Returns:
        Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.
    """
    return flush(_guarded(list(sys.argv[1:] if argv is None else argv)))


def _guarded(argv: Sequence[str]) -> int:
    try:
        return _run(argv)
    except SystemExit as leave:  # argparse, after --help or --version
        return leave.code if isinstance(leave.code, int) else 0
    except EngineError as error:
        return bad_input(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except BaseException as error:  # a panic in a library written in Rust is not an Exception
        if isinstance(error, OSError) and error.filename is None:  # not about a file: standard output
            return bad_input(str(not_written(error)))
        return fault(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))


def _run(argv: Sequence[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:
        from inspector.cli.subcommands.lists import complete

        complete(*_parsers().values())
    if name := next((name for name in (" ".join(argv[:2]), *argv[:1]) if name in SUBCOMMANDS), ""):
        module = _module(name)
        args = parsed(_parser(name), argv[len(name.split()) :], _parsers)
        return int(getattr(module, f"run_{name.replace(' ', '_')}")(args))
    parser = screen.screen_parser()
    if not {"-h", "--help"}.isdisjoint(argv):
        lines = [f"  {name:<14}{purpose}" for name, (_, purpose) in SUBCOMMANDS.items()]
        parser.usage = "inspector [MODEL] [flags]\n       inspector SUBCOMMAND [flags]"
        title = "Subcommands; each has a --help of its own:"
        parser.description = "\n".join([screen.PURPOSE, "", MODEL, "", title, *lines])
        parser.epilog = "\n".join(TAB)
    if argv and argv[0][:1] not in ("", "-"):
        if not names_model(argv[0]):
            raise answer(argv[:1], argv, parser, _parsers)
        argv = ["--model", *argv]
    return screen.run_screen(parsed(parser, argv, _parsers))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"inspector.cli.subcommands.{SUBCOMMANDS[name][0]}")


def _parser(name: str) -> Parser:
    made: Parser = getattr(_module(name), f"{name.replace(' ', '_')}_parser")()
    return made


def _parsers() -> dict[str, Parser]:
    """The parsers of all commands, by their names, such as `inspector show`."""
    return {parser.prog: parser for parser in (screen.screen_parser(), *map(_parser, SUBCOMMANDS))}
