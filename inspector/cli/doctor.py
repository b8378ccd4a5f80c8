"""The checks of `inspector doctor`, and its report: this machine, and what mlx_lm computes on it.

The report contains no path, prompt or token.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.child import EngineProcess
from engine.errors import EngineError
from engine.protocol import Command, Failure, MachineRead, Record, Step, Verified
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from inspector.cli.driver import CommandRunner, Failed, MakeBackend
from inspector.cli.exit import NOT_SHOWN, OK, output, write
from inspector.cli.writers.json_lines import json_line
from inspector.display import visible
from inspector.scales import size
from inspector.version import program

PROMPT = (
    "Once upon a time, there was a little girl. She had a red ball and a blue hat. One day, the little girl"
)
STEPS = 8
SETTINGS = Settings(temp=0.8, top_p=0.95, seed=7, max_tokens=STEPS, min_tokens=STEPS)
QUOTED = re.compile(r"“[^”]*”|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|\S*[/\\]\S*")
"""Quotations in a message: texts, names and paths."""
Status = Literal["ok", "differs", "refused", "failed"]
"""`refused`: the engine says why this model can't do it. `failed`: a fault of the program, or a wrong token."""
Answer = TypeVar("Answer", bound=Record)


# ---- the checks -------------------------------------------------------------------------------


class FoundDifference(Struct, frozen=True):
    """The finding of a check."""

    said: str = ""
    """A few words, or a sentence on what is wrong."""
    difference: float | None = None
    """The largest difference; None if nothing was compared."""
    allowed: float | None = None
    """The difference that rounding explains, in the same unit."""

    @property
    def figures(self) -> str:
        """The difference and the allowed one, as text; empty if nothing was compared."""
        if self.difference is None or self.allowed is None:
            return ""
        return f"{self.difference:.2g} of {self.allowed:.2g}" if self.difference else "equal"


class CheckResult(Struct, frozen=True):
    """The result of one check."""

    check: str
    status: Status
    found: FoundDifference
    ms: float

    @property
    def holds(self) -> bool:
        """True if nothing is wrong; something that the model can't do is not wrong."""
        return self.status in ("ok", "refused")


class WrongAnswer(Exception):
    """The engine's answer is not what a check expects; the message is a sentence."""


@contextmanager
def started(make: MakeBackend) -> Iterator[CommandRunner]:
    """Start a backend, and close it at the end."""
    runner = CommandRunner(make)
    runner.backend.start()
    try:
        yield runner
    finally:
        runner.backend.close()


def answers(runner: CommandRunner, command: Command) -> list[Record]:
    """The records that answer a command.

    Raises:
        Failed: The command failed.
    """
    # records with another id are logprobs of a prompt, which the engine computes while it is idle
    records = [each.record for each in runner.records(command) if each.id == runner.sent]
    if failures := [record for record in records if isinstance(record, Failure)]:
        raise Failed(failures[-1])
    return records


def ask(runner: CommandRunner, command: Command, kind: type[Answer]) -> Answer:
    """The last record of a kind that answers a command.

    Raises:
        Failed: The command failed.
        WrongAnswer: No record of this kind answered it.
    """
    for record in reversed(answers(runner, command)):
        if isinstance(record, kind):
            return record
    raise WrongAnswer(f"{command.kind} was not answered by {kind.__name__}.")


def steps_of(runner: CommandRunner) -> tuple[int, list[Step]]:
    """The last node of the prompt, and the steps after it."""
    answers(runner, protocol.Configure(SETTINGS))
    prefilled = ask(runner, protocol.Prefill(PROMPT, False), protocol.Prefilled)
    return prefilled.tokens[-1].node, [ask(runner, protocol.TakeStep(), Step) for _ in range(STEPS)]


class ModelChecks:
    """The checks of one model.

    Args:
        engine: Computes the model in one process.
        load: The model.
    """

    def __init__(self, engine: CommandRunner, load: LoadSettings) -> None:
        self._engine, self._load = engine, load
        self._prompt_end = 0
        self._steps: list[Step] = []
        self.apart: list[float] = []
        """Differences of each token's logprob from mlx_lm's."""
        self._allowed = 0.0
        """Allowed difference of a logprob: twice a logit's rounding, for the logit and for the normalization."""

    def run(self) -> Iterator[CheckResult]:
        """Run the checks in order, up to the first that is refused or fails.

        Raises:
            EngineError: The model can't be loaded.
        """
        for name, check in (
            ("load", self._loaded),
            ("steps", self._stepped),
            ("KV cache", self._recomputed),
            ("forward of mlx_lm", self._forward_compared),
            ("steps of mlx_lm", self._steps_compared),
        ):
            yield (found := made(name, check))
            if found.status in ("refused", "failed"):
                return

    def over_ranks(self, ranks: CommandRunner) -> CheckResult:
        """Check that two processes compute the same tokens.

        Args:
            ranks: An engine in other processes.
        """
        return made("two ranks", lambda: self._ranked(ranks))

    def _loaded(self) -> FoundDifference:
        try:
            facts = ask(self._engine, protocol.Load(self._load), protocol.ModelFacts)
        except Failed as refused:
            raise EngineError(refused.failure.message, refused.failure.hint) from refused
        heads = f", {facts.heads} heads" if facts.heads else ""
        types = f"{facts.dtype}, {facts.quantization}" if facts.quantization else facts.dtype
        sizes = f"{facts.vocabulary:,} ids, {types}, {size(facts.weight_bytes)} of weights"
        return FoundDifference(f"{facts.family}, {facts.layers} layers{heads}, {sizes}")

    def _stepped(self) -> FoundDifference:
        self._prompt_end, self._steps = steps_of(self._engine)
        if not all(math.isfinite(step.logprob) for step in self._steps):
            raise WrongAnswer("A logprob is not a finite number.")
        return FoundDifference(f"{len(self._steps)} tokens")

    def _recomputed(self) -> FoundDifference:
        found = ask(self._engine, protocol.Verify(), Verified)
        self._allowed = 2 * found.rounding
        said = f"{found.tokens} tokens recomputed from the start"
        return FoundDifference(said, found.largest_difference, found.rounding)

    def _forward_compared(self) -> FoundDifference:
        """Run the prompt and the same tokens through mlx_lm's own generator, and compare the first token's logprob."""
        ids = tuple(step.id for step in self._steps)
        theirs = ask(self._engine, protocol.RepeatReply(self._prompt_end, ids=ids), protocol.ReplyRepeated)
        pairs = zip(self._steps, theirs.logprobs, strict=True)
        self.apart = [abs(step.logprob - logprob) for step, logprob in pairs]
        return FoundDifference("the first token's logprob", self.apart[0], self._allowed)

    def _steps_compared(self) -> FoundDifference:
        said = f"the logprobs of {len(self.apart) - 1} more"
        return FoundDifference(said, max(self.apart[1:]), self._allowed)

    def _ranked(self, ranks: CommandRunner) -> FoundDifference:
        answers(ranks, protocol.Load(replace(self._load, ranks=2)))
        pairs = list(zip(self._steps, steps_of(ranks)[1], strict=True))
        equal = next((at for at, (one, other) in enumerate(pairs) if one.id != other.id), len(pairs))
        apart = max((abs(one.logprob - other.logprob) for one, other in pairs[:equal]), default=math.inf)
        return FoundDifference(f"{equal} tokens as in one process", apart, self._allowed)


def made(name: str, check: Callable[[], FoundDifference]) -> CheckResult:
    """Run a check; a failure of the engine becomes its result."""
    began = time.perf_counter()
    try:
        found = check()
        difference, allowed = found.difference, found.allowed  # a NaN is not within what is allowed
        fits = difference is None or allowed is None or difference <= allowed
        status: Status = "ok" if fits else "differs"
    except Failed as refused:
        failure = refused.failure
        found = FoundDifference(without_names(f"{failure.message} {failure.hint}".strip()))
        status = "refused" if failure.expected else "failed"
    except WrongAnswer as wrong:
        found, status = FoundDifference(str(wrong)), "failed"
    return CheckResult(name, status, found, (time.perf_counter() - began) * 1000)


def results(load: LoadSettings) -> Iterator[CheckResult | MachineRead]:
    """The machine, if it can be read, and the results of the checks, one after another.

    Args:
        load: The model.

    Raises:
        EngineError: The model can't be loaded.
    """
    with started(EngineThread) as engine:
        checks = ModelChecks(engine, load)
        for place, each in enumerate(checks.run()):
            if place == 0:  # the model is loaded
                with suppress(Failed, WrongAnswer):  # the checks are reported without it, too
                    yield ask(engine, protocol.ReadMachine(), MachineRead)
            yield each
        if checks.apart:
            with started(EngineProcess) as ranks:  # MLX makes one group of ranks per process
                yield checks.over_ranks(ranks)


def without_names(message: str) -> str:
    """A message without its quotations: paths, texts and names stay on this machine."""
    return QUOTED.sub("…", message)


# ---- what is written --------------------------------------------------------------------------


class DoctorReport(Struct, frozen=True, tag_field="event"):
    """The machine, and the result of each check."""

    program: str
    holds: bool
    """True if nothing is wrong."""
    seconds: float
    machine: MachineRead | None
    terminal: Sequence[str]
    checks: tuple[CheckResult, ...]


def run(load: LoadSettings, jsonl: bool) -> int:
    """Run the checks, and write a line for each, or one JSON object at the end; returns the exit status.

    Raises:
        EngineError: The model can't be loaded.
    """
    out, began = output(), time.monotonic()
    machine: MachineRead | None = None
    found: list[CheckResult] = []
    for each in results(load):
        if isinstance(each, CheckResult):
            found.append(each)
            lines = [f"  {each.check:<20}{each.status:<9}{each.found.figures:<20}{each.found.said}".rstrip()]
        else:
            machine = replace(each, machine=replace(each.machine, blas=without_names(each.machine.blas)))
            facts = [*_machine(machine), ("terminal", ", ".join(terminal()))]
            lines = [*(f"{name:<12}{said}" for name, said in facts), ""]
        if not jsonl:
            write(lines)
    seconds = time.monotonic() - began
    wrong = ", ".join(each.check for each in found if not each.holds)
    if jsonl:
        out.write(json_line(DoctorReport(program(), not wrong, seconds, machine, terminal(), tuple(found))))
    else:
        report = "Please report it with these lines: they have no path, prompt or token."
        holds = f"All {len(found)} checks hold, in {seconds:.0f} s."
        write(["", f"Wrong: {wrong}. {report}" if wrong else holds])
    return NOT_SHOWN if wrong else OK


def terminal() -> Sequence[str]:
    """The terminal's variables, size and encoding, and Textual's version."""
    from importlib import metadata

    names = ("TERM", "COLORTERM", "TERM_PROGRAM")
    columns, rows = shutil.get_terminal_size()
    variables = (f"{name}={visible(os.environ[name])}" for name in names if name in os.environ)
    return [*variables, f"{columns}x{rows}", sys.stdout.encoding, f"textual {metadata.version('textual')}"]


def _machine(read: MachineRead) -> Iterator[tuple[str, str]]:
    """The machine in a few lines."""
    machine = read.machine
    memory = f", {size(machine.memory_bytes)} of memory" if machine.memory_bytes else ""
    yield "machine", f"{machine.processor}, {machine.cores} cores{memory}, {machine.system}"
    libraries = f"mlx {machine.mlx}, mlx-lm {machine.mlx_lm}, numpy {read.numpy}, Python {machine.python}"
    yield "versions", f"{program()}, {libraries}"
    room = f"{size(read.memory_for_models)} for models" if read.memory_for_models else "how much is not known"
    yield "memory", f"{room}{f', {size(read.memory_available)} free' if read.memory_available else ''}"
    exact = "float32" if read.product_type == "float32" else "no better than float16: TF32, or as coarse"
    blas = f", {machine.blas}" if machine.blas else ""
    yield "backend", f"{machine.backend}{blas}; float32 products are off by {read.product_error:.0e}: {exact}"
    late = "is read" if read.late_token else "is not read: runs can't go ahead"
    yield "device", f"an evaluation of nothing takes {read.nothing_ms:.3f} ms; a token written late {late}"
