"""Prefill with prompt logprobs against prefill without, by the size of the vocabulary, in turns in one process.

    python -m tests.benchmarks.prefill [--count ROUNDS]

The time is that from sending the prompt to the record with the first token, which is written and shown then; beside it
stands the process's own, in which nobody else's work counts. The prompt logprobs follow, as long as no command
comes; how long one waits for a piece of them is printed, too. The first pair is not counted. The goal is a ratio of
0.8, with chunks of the same sizes.
"""

from __future__ import annotations

import os
import statistics
import time
from itertools import pairwise
from queue import SimpleQueue

from engine import protocol
from engine.protocol import Command, Ended, PrefillChunk, Prefilled, PromptReadings, Received, Record, Sent
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from tests.benchmarks.vocabularies import LARGE, VOCABULARIES, Asked, Figures, by_command

TOKENS = 1_760
WITHOUT, WITH = False, True


class Prompts:
    """An engine that reads one prompt after another, none of which begins as one before.

    Args:
        model: What it loads.
    """

    def __init__(self, model: str) -> None:
        self._records: SimpleQueue[Received] = SimpleQueue()
        self.engine = EngineThread(self._records.put)
        self.engine.start()
        self._given = 0
        for given in (
            protocol.Load(LoadSettings(model=model)),
            protocol.Configure(Settings(candidates=20)),
        ):
            self._carry_out(given)

    def read(self, echo: bool) -> tuple[float, float, list[int]]:
        """Read a prompt; returns seconds until its first token, of the clock and of the processor, and the chunks."""
        self._given += 1
        text = chr(0x20 + self._given) + "x" * (TOKENS - 1)
        begun, begun_cpu = time.perf_counter(), time.process_time()
        self.engine.send(Sent(protocol.Prefill(text, False, echo=echo), 1))
        records: list[Record] = []
        while not (records and isinstance(records[-1], Prefilled)):
            records.append(self._records.get().record)
        took, took_cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
        assert not any(isinstance(record, PromptReadings) for record in records)
        done = [0, *(record.done for record in records if isinstance(record, PrefillChunk))]
        return took, took_cpu, [end - start for start, end in pairwise(done)]

    def interrupt(self) -> float:
        """Seconds until another command is answered, while prompt logprobs are read."""
        begun = time.perf_counter()
        self._carry_out(protocol.Configure(Settings(candidates=20)))
        return time.perf_counter() - begun

    def rest(self) -> float:
        """Tokens a second whose logprobs are read, until all are."""
        left, begun = TOKENS, time.perf_counter()
        while left:
            record = self._records.get().record
            left = record.left if isinstance(record, PromptReadings) else left
        return TOKENS / (time.perf_counter() - begun)

    def _carry_out(self, command: Command) -> None:
        self.engine.send(Sent(command, 1))
        while not isinstance(self._records.get().record, Ended):
            pass


def measure(name: str, model: str, rounds: int) -> Figures:
    """Measure one model and print."""
    prompts, ratios, ratios_cpu, waits, rates = Prompts(model), [], [], [], []
    seconds: dict[bool, list[float]] = {WITHOUT: [], WITH: []}
    for turn in range(rounds + 1):
        taken: dict[bool, tuple[float, float, list[int]]] = {}
        for echo in (WITHOUT, WITH) if turn % 2 else (WITH, WITHOUT):
            taken[echo] = prompts.read(echo)
            if echo:
                waits.append(prompts.interrupt())
                rates.append(prompts.rest())
        if not turn:
            continue
        for echo, (took, _, chunks) in taken.items():
            seconds[echo].append(took)
            print(
                f"{name:12} {'with' if echo else 'without':8}{TOKENS / took:7,.0f} tokens/s, "
                f"first token after {took * 1000:5.0f} ms, chunks of {', '.join(map(str, chunks))}",
            )
        ratios.append(taken[WITHOUT][0] / taken[WITH][0])
        ratios_cpu.append(taken[WITHOUT][1] / taken[WITH][1])
    with_, without = (TOKENS / statistics.median(seconds[echo]) for echo in (WITH, WITHOUT))
    ratio = statistics.median(ratios)
    print(
        f"{name:12} {with_:,.0f} tokens/s with, {without:,.0f} without: {ratio:.2f}, of the "
        f"processor {statistics.median(ratios_cpu):.2f}\n{name:12} {statistics.median(rates):.0f} prompt logprobs a "
        f"second; a command meanwhile waits {max(waits) * 1000:.0f} ms at most; load {os.getloadavg()[0]:.1f}"
    )
    prompts.engine.close(10)
    return {f"{name} with": with_, f"{name} ratio": ratio}


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*VOCABULARIES, *LARGE):
        figures |= measure(name, model, asked.times(5))
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
