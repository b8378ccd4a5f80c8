"""`inspector doctor`: this machine as a report needs it, and whether the program computes here what mlx_lm computes."""

from __future__ import annotations

from argparse import Namespace

from inspector.cli import flags
from inspector.cli.arguments import load_settings
from inspector.cli.exit import INTERRUPTED, NOT_SHOWN, OK, leave_at_once, output


def doctor_parser() -> flags.Parser:
    """Say what a bug report needs of this machine: versions, devices, memory and terminal; and compare what the program
    computes here with mlx_lm: a prompt's forward, some steps, the KV cache with a fresh one, and two ranks. Each check
    has a line: ok, or the difference beside the one that rounding explains. The report has no path, prompt or token."""
    made = flags.command_parser("doctor", doctor_parser.__doc__, f"{flags.EXIT_STATUS} 3 if a check fails.")
    flags.add_jsonl(made, "lines", "one JSON object")
    names = "model", "adapter_path", "trust_remote_code", "float32_scales", "dtype", "blas"
    flags.add_named(made.add_argument_group("model"), *names)
    return made


def run_doctor(args: Namespace) -> int:
    """Run `inspector doctor`.

    Raises:
        EngineError: The model can't be loaded.
    """
    from inspector.cli.doctor import Report, results

    report = Report(output(), jsonl=args.jsonl)
    try:
        for each in results(load_settings(args)):
            report.take(each)
    except KeyboardInterrupt:
        leave_at_once(INTERRUPTED)  # a forward may be under way
    report.end()
    return OK if report.holds else NOT_SHOWN
