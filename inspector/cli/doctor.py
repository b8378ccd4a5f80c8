"""The checks of `inspector doctor` on this machine, and their results: the engine driven as the screen drives it.

Each check compares two ways to the same numbers, or asks a view of the inside for its own checks, and tells how far
they are apart and how far rounding explains. A report names no path, prompt or token.
"""

from __future__ import annotations

import math
import os
import re
import select
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, TypeVar

from engine.errors import EngineError
from engine.frozen import frozen
from engine.grammar_settings import Grammar
from engine.processes import python_command
from engine.protocol import (
    BatchCompared,
    CaptureFacts,
    Choose,
    Command,
    CompareBatch,
    Configure,
    Ended,
    Failure,
    LaneCompared,
    LanePrompt,
    Load,
    MeasureRoofline,
    ModelFacts,
    MoveTo,
    Prefill,
    Prefilled,
    Race,
    RaceEnded,
    Record,
    RooflineMeasured,
    Run,
    RunRounds,
    SpeculationVerified,
    StartBatch,
    Step,
    TakeStep,
    Verified,
    Verify,
    VerifySpeculation,
)
from engine.settings import LoadSettings, Settings
from engine.speculation_settings import SpeculationSettings
from engine.trace import Entry, load, save_as, worth_keeping
from inspector.cli.writers.inside import every_view
from inspector.session.client import Backend
from inspector.version import program

PROMPT = (
    "Once upon a time, there was a little girl. She had a red ball and a blue hat. One day, the little girl"
)
OTHERS = ("The dog ran to", "Tom and Sue went to the park. They saw a big", "It was a sunny day and the bird")
"""Of the other lanes of a batch: each of another length."""
TOKENS = 16
"""Of the completion."""
CHOSEN_AT = 4
"""The step at which another token is chosen."""
DIGITS = "[0-9]{3}-[0-9]{4}"
QUOTED = re.compile(r"“[^”]*”|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|\S*[/\\]\S*")
"""What a message may quote: texts, names and paths."""
Status = Literal["ok", "differs", "refused", "failed"]
"""`refused`: the engine says why this model can't do it. `failed`: a fault of the program, or a wrong token."""
Answer = TypeVar("Answer", bound=Record)


@frozen
class CheckResult:
    """The result of one check."""

    computed: str
    """The type that the model was computed in; empty for what no model takes part in."""
    check: str
    status: Status
    said: str = ""
    """A few words, or a sentence on what is wrong."""
    difference: float | None = None
    """The largest that was found; None where nothing was compared."""
    allowed: float | None = None
    """What rounding explains, in the same unit."""
    ms: float = 0.0

    @property
    def holds(self) -> bool:
        """True if nothing is wrong: what a model can't do is no fault."""
        return self.status in ("ok", "refused")


@frozen
class FoundDifference:
    """The finding of a check."""

    said: str = ""
    difference: float | None = None
    allowed: float | None = None

    @property
    def within(self) -> bool:
        """True if rounding explains the difference; not that of a number that is none."""
        return self.difference is None or self.allowed is None or self.difference <= self.allowed


class CommandFailed(Exception):
    """The engine could not carry out a command."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class WrongAnswer(Exception):
    """The answer is not what a check expects: a sentence."""


class AskedEngine:
    """Sends one command after another to a backend, and waits for all that belongs to each.

    Args:
        make: Makes the backend from the function that receives its records.
    """

    def __init__(self, make: Callable[[Callable[[Record], None]], Backend]) -> None:
        self._inbox: SimpleQueue[Record] = SimpleQueue()
        self._backend = make(self._inbox.put)
        self.entries: list[Entry] = []
        """What a trace of the session would have."""
        self._backend.start()

    def all(self, command: Command) -> list[Record]:
        """The records of a command.

        Raises:
            CommandFailed: It failed.
        """
        records: list[Record] = []
        failure: Failure | None = None
        self._backend.send(command)
        while not isinstance(record := self._inbox.get(), Ended) or record.request != command.id:
            if record.request != command.id:
                continue  # logprobs of a prompt, which the engine reads while it is idle
            records.append(record)
            if isinstance(record, Failure):
                failure = record
            if worth_keeping(record):
                self.entries.append(Entry(record))
        if failure is not None:
            raise CommandFailed(failure)
        return records

    def one(self, command: Command, kind: type[Answer]) -> Answer:
        """The last record of a kind that a command is answered by.

        Raises:
            CommandFailed: It failed.
            WrongAnswer: There is none.
        """
        found = [record for record in self.all(command) if isinstance(record, kind)]
        if not found:
            raise WrongAnswer(f"{command.kind} was not answered by {kind.__name__}.")
        return found[-1]

    def close(self) -> None:
        """End the backend."""
        self._backend.close()


# ---- the checks of a model ----------------------------------------------------------------------


class ModelChecks:
    """The checks of one model in one type.

    Args:
        asked: The engine.
        load: The model.
    """

    def __init__(self, asked: AskedEngine, load: LoadSettings) -> None:
        self._asked, self._load = asked, load
        self.settings = Settings(temp=0.8, top_p=0.95, seed=7, max_tokens=TOKENS)
        self.facts: ModelFacts | None = None
        self.notes: tuple[str, ...] = ()
        """What to know of the rates."""
        self.refused: Failure | None = None
        """Why there is no model."""
        self._steps: list[Step] = []
        self._prompt_end = self._other_tip = 0
        self._rounding = 0.0
        """What rounding explains of a logit, once a path was verified."""

    @property
    def computed(self) -> str:
        """The type of the arithmetic, and that of packed weights."""
        facts = self.facts
        if facts is None:
            return self._load.dtype
        return f"{facts.dtype}, {facts.quantization}" if facts.quantization else facts.dtype

    @property
    def stepped(self) -> bool:
        """True if there are tokens to compare others with."""
        return bool(self._steps)

    def run(self) -> Iterator[CheckResult]:
        """Make one check after another; what can't be done without the one before is left out."""
        for name, check in self._begin():
            yield (found := self._made(name, check))
            if found.status != "ok" and name != "single steps":
                return
        for name, check in self._rest():
            yield self._made(name, check)

    def _made(self, name: str, check: Callable[[], FoundDifference]) -> CheckResult:
        began = time.perf_counter()
        status, found = examined(check)
        ms = (time.perf_counter() - began) * 1000
        return CheckResult(self.computed, name, status, found.said, found.difference, found.allowed, ms)

    def _begin(self) -> Sequence[tuple[str, Callable[[], FoundDifference]]]:
        return [
            ("load", self._loaded),
            ("run", self._run),
            ("single steps", self._single),
            ("verify", self._verified),
        ]

    def _rest(self) -> Iterator[tuple[str, Callable[[], FoundDifference]]]:
        yield "branch", self._branched
        facts, last = self.facts, self._steps[-1]
        assert facts is not None
        best = [each.id for each in last.next.candidates[:2]]
        for name, command, kind in every_view(last.node, self._other_tip, facts.layers // 2, *best):
            yield name, partial(self._looked, command, kind)
        yield "batch", self._batched
        yield "race", self._raced
        yield "grammar", self._matched
        yield "speculation", self._speculated
        yield "rates", self._rated
        yield "trace", lambda: kept(self._asked.entries, self._load, self.settings)

    # ---- a session ----

    def _loaded(self) -> FoundDifference:
        try:
            self.facts = facts = self._asked.one(Load(self._load), ModelFacts)
        except CommandFailed as refused:
            self.refused = refused.failure
            raise
        heads = f", {facts.heads} heads" if facts.heads else ""
        return FoundDifference(
            f"{facts.family}, {facts.layers} layers{heads}, {facts.vocabulary:,} ids, {facts.backend}"
        )

    def _prefilled(self) -> None:
        self._asked.all(Configure(self.settings))
        prefilled = self._asked.one(Prefill(PROMPT, False), Prefilled)
        self._prompt_end = prefilled.tokens[-1].node

    def _run(self) -> FoundDifference:
        self._prefilled()
        self._steps = [record for record in self._asked.all(Run()) if isinstance(record, Step)]
        if not self._steps:
            raise WrongAnswer("No token came.")
        if not all(math.isfinite(step.logprob) for step in self._steps):
            raise WrongAnswer("A logprob is not a finite number.")
        return FoundDifference(f"{len(self._steps)} tokens")

    def _single(self) -> FoundDifference:
        """The same tokens by single steps, in a session of their own: the same records as those of the run."""
        ran = self._steps
        self._asked.all(Load(self._load))
        self._prefilled()
        self._steps = [self._asked.one(TakeStep(), Step) for _ in ran]
        if (at := _parted(ran, self._steps)) is not None:
            raise WrongAnswer(f"Token {at + 1} of a run differs from that of single steps.")
        # both run one token after another through the same arrays: not even rounding differs
        apart = max(abs(a.logprob - b.logprob) for a, b in zip(ran, self._steps, strict=True))
        return FoundDifference("as in the run", apart, 0.0)

    def _verified(self) -> FoundDifference:
        verified = self._asked.one(Verify(), Verified)
        self._rounding = verified.rounding
        return FoundDifference(
            f"{verified.tokens} tokens recomputed from the start",
            verified.largest_difference,
            verified.rounding,
        )

    def _branched(self) -> FoundDifference:
        """Another token, some after it, and back: the KV cache is that of a path computed from nothing."""
        tip, at = self._steps[-1].node, self._steps[min(CHOSEN_AT, len(self._steps) - 1)]
        other = next(each.id for each in at.choice.candidates if each.id != at.id)
        self._asked.all(Choose(at.parent, other))
        self._asked.all(Run())
        branch = self._asked.one(Verify(), Verified)
        self._other_tip = branch.node
        self._asked.all(MoveTo(tip))
        back = self._asked.one(Verify(), Verified)
        worst = max((branch, back), key=lambda each: each.largest_difference)
        return FoundDifference("another token, and back", worst.largest_difference, worst.rounding)

    # ---- the inside ----

    def _looked(self, command: Command, kind: type[Record]) -> FoundDifference:
        """A view, and the check of its own that came closest to its bound."""
        record = self._asked.one(command, kind)
        facts: CaptureFacts | None = getattr(record, "facts", None)
        if facts is None or not facts.checks:
            return FoundDifference("shown")
        worst = facts.failed or max(
            facts.checks, key=lambda check: check.error / check.bound if check.bound else 0.0
        )
        return FoundDifference(worst.name, worst.error, worst.bound)

    # ---- other ways to decode ----

    def _batched(self) -> FoundDifference:
        settings = replace(self.settings, max_tokens=TOKENS // 2)
        lanes = [LanePrompt(text, settings=settings) for text in (PROMPT, *OTHERS)]
        self._asked.all(StartBatch(tuple(lanes), size=len(lanes)))
        records = self._asked.all(CompareBatch())
        compared = [record for record in records if isinstance(record, LaneCompared)]
        if not compared or not any(isinstance(record, BatchCompared) for record in records):
            raise WrongAnswer("The lanes were not compared.")
        worst = max(
            compared, key=lambda lane: lane.largest / lane.rounding if lane.rounding else lane.largest
        )
        parted = sum(lane.difference is not None for lane in compared)
        said = f"{len(lanes)} lanes" + (f", {parted} of them part within rounding" if parted else "")
        return FoundDifference(said, worst.largest, worst.rounding)

    def _raced(self) -> FoundDifference:
        first = self._steps[-1].position
        ended = self._asked.one(Race(first, first + TOKENS // 2), RaceEnded)
        return FoundDifference("with a KV cache and without", ended.largest_difference, self._rounding)

    def _matched(self) -> FoundDifference:
        self._asked.all(Configure(replace(self.settings, grammar=Grammar("regex", DIGITS))))
        self._asked.all(MoveTo(self._prompt_end))
        text = "".join(
            record.text
            for record in self._asked.all(Run())
            if isinstance(record, Step) and not record.special
        )
        self._asked.all(Configure(self.settings))
        if re.fullmatch(DIGITS, text) is None:
            raise WrongAnswer("The text does not match its regular expression.")
        return FoundDifference("a regular expression matches")

    def _speculated(self) -> FoundDifference:
        self._asked.all(Configure(replace(self.settings, temp=0.0)))
        self._asked.all(MoveTo(self._prompt_end))
        self._asked.all(RunRounds(SpeculationSettings()))
        verified = self._asked.one(VerifySpeculation(self._prompt_end), SpeculationVerified)
        self._asked.all(Configure(self.settings))
        if verified.differs is not None and verified.difference > self._rounding:
            raise WrongAnswer("A token differs from that of a plain step.")
        return FoundDifference(
            f"{verified.tokens} tokens as by plain steps", verified.difference, self._rounding
        )

    def _rated(self) -> FoundDifference:
        """What the machine reaches through MLX, in the type of the weights."""
        roofline = self._asked.one(MeasureRoofline(), RooflineMeasured)
        self.notes = roofline.notes
        return FoundDifference(f"{roofline.bandwidth_gbs:.3g} GB/s, {roofline.matmul_gflops:.3g} GFLOP/s")

    # ---- beside ranks ----

    def over_ranks(self, ranks: AskedEngine) -> CheckResult:
        """The same tokens where two processes compute the model.

        Args:
            ranks: An engine in a process of its own.
        """
        return self._made("two ranks", lambda: self._ranked(ranks))

    def _ranked(self, ranks: AskedEngine) -> FoundDifference:
        ranks.all(Load(replace(self._load, ranks=2)))
        ranks.all(Configure(self.settings))
        ranks.all(Prefill(PROMPT, False))
        steps = [record for record in ranks.all(Run()) if isinstance(record, Step)]
        parted = _parted(self._steps, steps)
        same = list(zip(self._steps, steps, strict=False))[:parted]
        apart = max((abs(a.logprob - b.logprob) for a, b in same), default=math.inf)
        # twice: of both logits, and of what they are normalized with
        return FoundDifference(f"{len(same)} tokens as in one process", apart, 2 * self._rounding)


def examined(check: Callable[[], FoundDifference]) -> tuple[Status, FoundDifference]:
    """Make a check; whatever goes wrong is what was found."""
    try:
        found = check()
    except CommandFailed as refused:
        failure = refused.failure
        said = without_names(f"{failure.message} {failure.hint}".strip())
        return "refused" if failure.expected else "failed", FoundDifference(said)
    except WrongAnswer as wrong:
        return "failed", FoundDifference(str(wrong))
    except EngineError as error:
        return "refused", FoundDifference(without_names(str(error)))
    return "ok" if found.within else "differs", found


def without_names(message: str) -> str:
    """A message without what it quotes: paths, texts and names stay on this machine."""
    return QUOTED.sub("…", message)


def _parted(steps: Sequence[Step], others: Sequence[Step]) -> int | None:
    """The place from which on two runs have other tokens; None where they are alike."""
    pairs = zip(steps, others, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a.id != b.id), None)


def kept(entries: Sequence[Entry], load_settings: LoadSettings, settings: Settings) -> FoundDifference:
    """Save a session, read it again, and compare all that it says."""
    whole = [Entry(load_settings), Entry(settings), *entries]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "doctor.jsonl.gz"
        nbytes = save_as(path, whole, program())
        read = load(path).entries
    if [each.value for each in read] != [each.value for each in whole]:
        raise WrongAnswer("A recording that was read back differs from what was written.")
    return FoundDifference(f"{len(whole)} records in {nbytes / 1024:.0f} KiB, read back unchanged")


# ---- the screen ---------------------------------------------------------------------------------

PATIENCE = 180.0
"""Seconds for a large model to be read, and for the screen to answer."""
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78cPM])")
"""What a terminal obeys, between what it shows."""
SHOWN, STEPPED = "sampler entropy", "perplexity"
"""On the screen once there are candidates, and once there is a step."""


def on_a_screen(load_settings: LoadSettings) -> FoundDifference:
    """The screen in a pseudo-terminal: the candidates come, a key takes a step, another one leaves.

    Nothing that the person set counts, and nothing of theirs is written.

    Raises:
        WrongAnswer: One of these does not happen.
    """
    flags = [
        "--model",
        load_settings.model,
        "--dtype",
        load_settings.dtype,
        "--prompt",
        PROMPT,
        "--temp",
        "0.8",
    ]
    flags += ["--seed", "7", "--ignore-chat-template", "--no-save"]
    flags += ["--adapter-path", load_settings.adapter_path] if load_settings.adapter_path else []
    flags += ["--trust-remote-code"] if load_settings.trust_remote_code else []
    with tempfile.TemporaryDirectory() as folder:
        terminal = Terminal(flags, folder)
        try:
            first = terminal.wait_for(SHOWN)
            terminal.press(b" ")
            terminal.wait_for(STEPPED)
            terminal.press(b"q")
            status = terminal.end()
        finally:
            terminal.close()
    if status:
        raise WrongAnswer(f"The screen ended with status {status}.")
    return FoundDifference(f"candidates after {first:.1f} s, a step, and left by a key")


class Terminal:
    """The program in a terminal of 120 columns and 40 rows.

    Args:
        flags: Of `inspector`.
        folder: In the place of the person's own configuration.
    """

    def __init__(self, flags: Sequence[str], folder: str) -> None:
        import fcntl
        import pty
        import termios

        call = f"from inspector.cli.main import main; sys.exit(main({list(flags)!r}))"
        own = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"), folder)
        environment = {**os.environ, **own, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._began = time.monotonic()
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._process = subprocess.Popen(
            python_command(call),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = ""

    def wait_for(self, words: str) -> float:
        """Wait until some words are written; returns the seconds since the start.

        Raises:
            WrongAnswer: They never are.
        """
        while words not in self._seen:
            left = self._began + PATIENCE - time.monotonic()
            if left <= 0 or not self._read(left):
                raise WrongAnswer(f"The screen never shows “{words}”.")
        self._seen = ""
        return time.monotonic() - self._began

    def _read(self, seconds: float) -> bool:
        """Take in what is written; returns whether there was something, and more can come."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            written = os.read(self._ours, 65536)
        except OSError:  # Linux says so of a terminal whose program has ended
            return False
        self._seen = ESCAPES.sub("", self._seen + written.decode(errors="replace"))
        return bool(written)

    def press(self, keys: bytes) -> None:
        """Send keys."""
        os.write(self._ours, keys)

    def end(self) -> int:
        """Wait until the program has ended; returns its status.

        Raises:
            WrongAnswer: It never does.
        """
        ends = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            if time.monotonic() > ends:
                raise WrongAnswer("The screen does not end.")
            self._read(0.05)  # what is not taken in keeps a program from ending
        return self._process.returncode

    def close(self) -> None:
        """End what is left of it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._ours)
