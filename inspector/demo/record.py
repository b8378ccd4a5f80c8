"""Records the demonstration anew: `python -m inspector.demo.record`, from a checkout, in about two minutes.

Everything in it is what the engine did while the script ran, times included; the pauses after captions really were
made, so that a replay at the recorded pace leaves time to read. The numbers in captions are those of the records.
"""

from __future__ import annotations

import math
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from engine import commands, records
from engine.beam_settings import BeamSettings
from engine.records import Ended, Failure, Marked, ModelFacts, Record
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from engine.trace import Entry, save_as, worth_keeping
from engine.trace.shapes import Kept
from inspector.demo import DEMONSTRATION
from inspector.display import token_label
from inspector.scales import bits, milliseconds, percent, size
from inspector.state.timeline import Timeline

PROMPT = "Once upon a time"
SETTINGS = Settings(temp=0.8, top_p=0.95, seed=3)
STORY = 66
"""Steps of the story itself."""
BESIDE = 14
"""Steps of each branch."""
PACE = 0.3
"""Seconds between steps."""
READING = 0.045
"""Seconds for a character of a caption."""
Found = TypeVar("Found")


class DemoRecorder:
    """One session with the engine, and what it told, with the time."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.entries: list[Entry] = []
        self._told: SimpleQueue[Record] = SimpleQueue()
        self._engine = EngineThread(self._told.put)
        self._began: float | None = None
        self._engine.start()

    def close(self) -> None:
        """End the engine's thread."""
        self._engine.close()

    def begin(self) -> None:
        """Let the time of the recording begin: nobody wants to wait for another machine's loading."""
        self._began = time.perf_counter()

    def keep(self, value: Kept) -> None:
        """Put something into the trace."""
        at = 0.0 if self._began is None else time.perf_counter() - self._began
        self.entries.append(Entry(value, round(at, 3)))

    def do(self, command: commands.Command) -> list[Record]:
        """Have the engine do something; returns all that it told."""
        found: list[Record] = []
        self._engine.send(command)
        while not (found and isinstance(ended := found[-1], Ended) and ended.id == command.id):
            found.append(self._hear(self._told.get()))
        return found

    def _hear(self, record: Record) -> Record:
        if isinstance(record, Failure):
            raise RuntimeError(f"{record.message} {record.hint} {record.trace}")
        if isinstance(record, ModelFacts):
            record = replace(record, path=f"engine/{record.name}")  # not the recorder's own directory
        self.mark(record)
        return record

    def mark(self, record: Record) -> None:
        """Take in a record, and keep it where a trace has a place for it."""
        self.timeline.apply(record)
        if worth_keeping(record):
            self.keep(record)

    def step(self, times: int = 1) -> list[records.Step]:
        """Take steps, at the demonstration's pace."""
        found = []
        for _ in range(times):
            time.sleep(PACE)
            found.append(first(self.do(commands.TakeStep()), records.Step))
        return found

    def caption(self, node: int, caption: str, **more: Any) -> None:
        """Write a caption onto a node, and give the time to read it."""
        self.mark(Marked(node, caption=caption, **more))
        time.sleep(1 + READING * len(caption))


def first(found: Sequence[object], kind: type[Found]) -> Found:
    """The first record of a kind."""
    return next(each for each in found if isinstance(each, kind))


# ---- what is shown ----------------------------------------------------------------------------


def prefill(to: DemoRecorder) -> None:
    """The model, the settings and the prompt."""
    to.keep(LoadSettings())
    to.do(commands.Load(LoadSettings()))
    to.keep(SETTINGS)
    to.do(commands.Configure(SETTINGS))
    to.begin()
    told = first(to.do(commands.Prefill(PROMPT, chat=False)), records.Prefilled)
    to.caption(
        to.timeline.tip,
        f"Prefill: the {len(told.tokens)} tokens of the prompt went through the model together, in "
        f"{milliseconds(told.ttft_ms)}. The KV cache keeps what the model made of them.",
    )


def story(to: DemoRecorder) -> list[records.Step]:
    """The story, with a caption where there is something to see."""
    due = [began, sure, wide, cut, grown, surprised]
    steps: list[records.Step] = []
    for _ in range(STORY):
        steps += to.step()
        said = next(((tell, told) for tell in due if (told := tell(to, steps[-1])) is not None), None)
        if said is not None:
            due.remove(said[0])
            to.caption(steps[-1].node, said[1], bookmarked=said[0] in (wide, surprised))
    if due:
        raise RuntimeError(f"nothing to see of {[tell.__name__ for tell in due]}: take another seed")
    return steps


def began(to: DemoRecorder, step: records.Step) -> str | None:
    """The first step."""
    return (
        f"Decode: from here on one token at a time. The model gave {label(step)} {percent(step.prob)}, and the "
        "sampler drew it. The candidates are what else could have come."
    )


def sure(to: DemoRecorder, step: records.Step) -> str | None:
    """A token with hardly another choice."""
    if step.prob < 0.99:
        return None
    return (
        f"Hardly a choice: the model gave {label(step)} {percent(step.prob)}. Tokens that it was sure of stay "
        "without colour; colour shows where it could have gone elsewhere."
    )


def wide(to: DemoRecorder, step: records.Step) -> str | None:
    """A choice among many."""
    entropy = step.choice.entropy_bits
    if entropy < 4:
        return None
    return (
        f"A wide choice: {bits(entropy)} bits of entropy, as if {round(2**entropy):,} tokens were equally "
        f"likely. {label(step)} was rank {step.rank}. Another seed tells another story from here."
    )


def cut(to: DemoRecorder, step: records.Step) -> str | None:
    """A place where top-p cut candidates that are on show."""
    stage = next(stage for stage in step.choice.stages if stage.name == "top-p")
    if not 2 <= stage.kept <= 8:
        return None
    assert to.timeline.facts is not None
    return (
        f"Top-p {SETTINGS.top_p} left {stage.kept} of {to.timeline.facts.vocabulary:,} tokens in: the fewest that "
        "hold 95 % of the probability. The grey candidates were cut and can't be drawn."
    )


def grown(to: DemoRecorder, step: records.Step) -> str | None:
    """The KV cache, halfway."""
    facts = to.timeline.facts
    if step.index < STORY // 3 or facts is None or facts.kv_bytes_per_token is None:
        return None
    return (
        f"Each step adds {size(facts.kv_bytes_per_token)} of keys and values in {facts.layers} layers: "
        f"{size(step.kv.used_bytes)} for {step.kv.offset} tokens. That is why a step runs one token and not "
        "all of them."
    )


def surprised(to: DemoRecorder, step: records.Step) -> str | None:
    """An improbable token."""
    if step.surprisal_bits < 7 or step.choice.draw is None:
        return None
    best = step.choice.candidates[0]
    return (
        f"A surprise: {label(step)} had {percent(step.prob)}, {bits(step.surprisal_bits)} bits. The draw "
        f"{step.choice.draw:.3f} fell on its share; likeliest was ‘{token_label(best.text, best.raw)}’ "
        f"with {percent(best.prob)}."
    )


def chosen(to: DemoRecorder, steps: Sequence[records.Step]) -> None:
    """A branch: another candidate, chosen by hand."""
    at = next(step for step in steps if step.text == " boy")
    other = next(each for each in at.choice.candidates if each.text == " dog")
    told = to.do(commands.Choose(at.parent, other.id))
    moved, taken = first(told, records.Moved), first(told, records.Step)
    to.caption(
        taken.node,
        f"Another branch: {label(taken)} was chosen in the place of {label(at)}. The cache went back to "
        f"{moved.kept} tokens in {milliseconds(moved.ms)}, and nothing before this had to run again.",
        name="a dog instead",
    )
    to.step(BESIDE)


def drawn_again(to: DemoRecorder, steps: Sequence[records.Step]) -> None:
    """A branch: the surprise, drawn again."""
    at = max(steps, key=lambda step: step.surprisal_bits)
    to.do(commands.MoveTo(at.parent))
    to.do(commands.Reroll())
    taken = to.step()[0]
    assert taken.choice.draw is not None
    to.caption(
        taken.node,
        f"Drawn again: the same place, the next random number. {taken.choice.draw:.3f} fell on {label(taken)} "
        f"with {percent(taken.prob)}. A draw follows from seed, position and count, so it comes the same again.",
        name="drawn again",
    )
    to.step(BESIDE)


def typed(to: DemoRecorder, steps: Sequence[records.Step]) -> None:
    """A branch: a text of one's own, with a character that the tokenizer has no token for."""
    at = next(step for step in steps if step.text == " mud")
    told = [each for each in to.do(commands.Insert(at.parent, " sky 🐉")) if isinstance(each, records.Step)]
    rare = sum(step.surprisal_bits for step in told)
    to.caption(
        told[0].node,
        f"Typed by hand, {len(told)} tokens: {bits(rare)} bits of surprise for the model. It has no token for the "
        "dragon, so its UTF-8 bytes go one by one; ‹F0› is a byte that waits for the others.",
        name="a typed sky",
    )
    to.step(BESIDE)


def beams(to: DemoRecorder, start: int, steps: Sequence[records.Step]) -> None:
    """A beam search from the prompt, set against what was sampled."""
    to.do(commands.MoveTo(start))
    ended = first(to.do(commands.SearchBeams(BeamSettings(width=4, max_tokens=16))), records.BeamEnded)
    best = ended.ranking[0]
    to.do(commands.MoveTo(best.node))
    drawn = {step.node for step in steps}
    apart = next(step for step in to.timeline.steps if step.node not in drawn)
    sampled = sum(step.logprob for step in steps[: best.length])
    to.caption(
        apart.node,
        f"Beam search: four continuations at once for {best.length} tokens. The best is "
        f"{round(math.exp(best.logprob - sampled)):,} times as probable as the story that "
        "was drawn; safe, and duller.",
        name="beam search",
    )


def back(to: DemoRecorder, tip: int) -> None:
    """Back to the story's end, and the proof that the cache is right."""
    moved = first(to.do(commands.MoveTo(tip)), records.Moved)
    proof = first(to.do(commands.Verify()), records.Verified)
    computed = "none ran again" if not moved.recomputed else f"{moved.recomputed} ran again"
    differs = proof.largest_difference
    proven = f"no logit differs by more than {differs:.2g}" if differs else "every logit is the same"
    to.caption(
        tip,
        f"Back at the first story: {moved.restored} tokens' KV came back from memory, {computed}. "
        f"Recomputed from nothing as a proof, {proven}.",
    )


def label(step: records.Step) -> str:
    """A token in a sentence."""
    return f"‘{token_label(step.text, step.raw, step.pending)}’"


def record() -> list[Entry]:
    """Make the demonstration."""
    to = DemoRecorder()
    try:
        prefill(to)
        start = to.timeline.tip
        steps = story(to)
        branches: tuple[Callable[[DemoRecorder, Sequence[records.Step]], None], ...] = (
            chosen,
            drawn_again,
            typed,
        )
        for branch in branches:
            branch(to, steps)
        beams(to, start, steps)
        back(to, steps[-1].node)
    finally:
        to.close()
    return to.entries


def version() -> str:
    """Of the checkout."""
    return str(tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


if __name__ == "__main__":
    written = save_as(DEMONSTRATION, record(), f"mlx-inspector {version()}")
    print(f"{DEMONSTRATION.name}: {written:,} bytes")
