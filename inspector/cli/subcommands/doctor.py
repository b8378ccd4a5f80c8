"""`inspector doctor`: whether everything holds on this machine, a line each, as text or as JSON."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from inspector.cli.arguments import load_settings
from inspector.cli.exit import INTERRUPTED, NOT_SHOWN, OK, leave_at_once, output
from inspector.cli.flags import EXIT_STATUS, Parser, Subcommand, add_jsonl, add_load, command_parser

if TYPE_CHECKING:
    from engine.protocol import MachineRead
    from engine.settings import LoadSettings
    from inspector.cli.doctor import CheckResult

TYPES = ("file", "float32")
"""Each check is made in the type of the files, and in float32."""


def doctor_parser() -> Parser:
    """The parser of `inspector doctor`."""
    made = command_parser(
        "doctor",
        "Check what the program does on this machine, in the type of the model's files and in float32: runs against "
        "single steps, branches, every view of the inside, a batch, a race with and without a KV cache, a grammar, "
        "speculative decoding, two ranks, a recording read back, and the screen. Each check has a line: ok, or the "
        "difference beside the one that rounding explains. The report has no path, prompt or token, so that you can "
        "attach it to an issue.",
        f"{EXIT_STATUS} 3 if a check fails.",
    )
    group = made.add_argument_group("report")
    add_jsonl(made, "lines", "one JSON object")
    group.add_argument("--output", "-o", metavar="FILE", help="also write the JSON object to a file")
    group.add_argument("--force", action="store_true", help="replace the file if it exists")
    add_load(made.add_argument_group("model"))
    return made


def run_doctor(args: Namespace) -> int:
    """Run `inspector doctor`.

    Raises:
        EngineError: The model can't be loaded, or the file can't be written.
    """
    from engine.files import free, replacing, typed

    load, out = load_settings(args), output()
    file = free(typed(args.output), args.force) if args.output is not None else None
    report = Report(out, as_json=args.jsonl)
    try:
        for each in findings(load, report):
            report.take(each)
    except KeyboardInterrupt:
        leave_at_once(INTERRUPTED)  # a forward may be under way
    report.end()
    if file is not None:
        with replacing(Path(file), args.force) as written:
            written.write(json.dumps(report.as_object(), indent=1).encode() + b"\n")
    return OK if report.holds else NOT_SHOWN


def findings(load: LoadSettings, report: Report) -> Iterator[CheckResult]:
    """The results of the checks, one after another.

    Args:
        load: The model.
        report: Is told of the machine.
    """
    from engine.child import EngineProcess
    from engine.errors import EngineError
    from engine.protocol import MachineRead, ReadMachine
    from engine.thread import EngineThread
    from inspector.cli.doctor import (
        AskedEngine,
        CheckResult,
        CommandFailed,
        ModelChecks,
        WrongAnswer,
        examined,
        on_a_screen,
    )

    computed: set[str] = set()
    for dtype in (load.dtype,) if load.dtype != "auto" else TYPES:
        asked = AskedEngine(EngineThread)
        try:
            examination = ModelChecks(asked, replace(load, dtype=dtype))
            for found in examination.run():
                if examination.refused is not None and not computed:
                    raise EngineError(examination.refused.message, examination.refused.hint)
                if examination.computed in computed:
                    break
                if report.machine is None:
                    with suppress(
                        CommandFailed, WrongAnswer
                    ):  # what comes of the checks is told all the same
                        report.tell(asked.one(ReadMachine(), MachineRead))
                yield found
            if examination.computed in computed:
                continue
            computed.add(examination.computed)
            report.notes = examination.notes
            if not examination.stepped:
                continue
            ranks = AskedEngine(EngineProcess)
            try:
                yield examination.over_ranks(ranks)
            finally:
                ranks.close()
        finally:
            asked.close()
    began = time.perf_counter()
    status, seen = examined(lambda: on_a_screen(load))
    yield CheckResult("", "screen", status, seen.said, ms=(time.perf_counter() - began) * 1000)


# ---- what is written ----------------------------------------------------------------------------


class Report:
    """Writes a line a check, or one JSON object at the end.

    Args:
        out: Receives it.
        as_json: Whether it is the object.
    """

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out, self._json = out, as_json
        self._began = time.monotonic()
        self._findings: list[CheckResult] = []
        self.machine: MachineRead | None = None
        """Once it was measured."""
        self.notes: tuple[str, ...] = ()
        """What to know of it."""

    @property
    def holds(self) -> bool:
        """True if nothing is wrong."""
        return all(found.holds for found in self._findings)

    def tell(self, machine: MachineRead) -> None:
        """Write what was measured of the machine."""
        self.machine = machine
        if not self._json:
            self._out.write("".join(f"{name:<12}{said}\n" for name, said in _machine(machine)))

    def take(self, found: CheckResult) -> None:
        """Write what came of a check."""
        before = self._findings[-1].computed if self._findings else None
        self._findings.append(found)
        if self._json:
            return
        if found.computed != before:
            self._out.write(f"\n{found.computed or 'the program'}\n")
        self._out.write(f"  {found.check:<24}{found.status:<9}{_figures(found)}\n")
        self._out.flush()

    def end(self) -> None:
        """Write what it all comes to."""
        if self._json:
            self._out.write(json.dumps(self.as_object()) + "\n")
            return
        for each in self.notes:
            self._out.write(f"\n{each}\n")
        wrong = [found for found in self._findings if not found.holds]
        seconds = time.monotonic() - self._began
        if not wrong:
            self._out.write(f"\nAll {len(self._findings)} checks hold, in {seconds:.0f} s.\n")
            return
        named = ", ".join(f"{found.check} ({found.computed or 'the program'})" for found in wrong)
        self._out.write(
            f"\n{len(wrong)} of {len(self._findings)} do not hold: {named}. Please report them with the file that "
            "--output FILE writes: it has no path, prompt or token.\n"
        )

    def as_object(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        from inspector.version import program

        return {
            "program": program(),
            "holds": self.holds,
            "seconds": round(time.monotonic() - self._began, 1),
            "machine": _machine_object(self.machine) if self.machine is not None else None,
            "notes": list(self.notes),
            "findings": [_finding_object(found) for found in self._findings],
        }


def _figures(found: CheckResult) -> str:
    """How far, of how much, in what time."""
    apart = ""
    if found.difference is not None and found.allowed is not None:
        apart = f"{found.difference:.2g} of {found.allowed:.2g}" if found.difference else "equal"
    return f"{apart:<20}{found.said}".rstrip()


def _finding_object(found: CheckResult) -> dict[str, Any]:
    from inspector.state.record_json import number

    return {
        "computed": found.computed,
        "check": found.check,
        "status": found.status,
        "said": found.said,
        "difference": number(found.difference),
        "allowed": number(found.allowed),
        "ms": round(found.ms, 1),
    }


def _machine(read: MachineRead) -> Iterator[tuple[str, str]]:
    """The machine in a few lines."""
    from inspector.cli.doctor import without_names
    from inspector.scales import size

    machine = read.machine
    memory = f", {size(machine.memory_bytes)} of memory" if machine.memory_bytes else ""
    yield "machine", f"{machine.processor}, {machine.cores} cores{memory}, {machine.system}"
    yield (
        "versions",
        f"mlx {machine.mlx}, mlx-lm {machine.mlx_lm}, numpy {read.numpy}, Python {machine.python}",
    )
    room = f"{size(read.memory_for_models)} for models" if read.memory_for_models else "how much is not known"
    yield "memory", f"{room}{f', {size(read.memory_available)} free' if read.memory_available else ''}"
    exact = "float32" if read.product_type == "float32" else "no better than float16: TF32, or as coarse"
    blas = f", {without_names(machine.blas)}" if machine.blas else ""
    yield "backend", f"{machine.backend}{blas}; float32 products are off by {read.product_error:.0e}: {exact}"
    late = "is read" if read.late_token else "is not read: runs can't go ahead"
    yield "device", f"an evaluation of nothing takes {read.nothing_ms:.3f} ms; a token written late {late}"


def _machine_object(read: MachineRead) -> dict[str, Any]:
    """The same as JSON can hold it."""
    from inspector.cli.doctor import without_names
    from inspector.state.record_json import record_json

    machine = replace(read.machine, blas=without_names(read.machine.blas))
    return record_json(replace(read, machine=machine))


PURPOSE = "check that everything works on this machine; the output is for a report"
DOCTOR = Subcommand("doctor", doctor_parser, run_doctor, PURPOSE)
