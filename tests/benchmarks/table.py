"""The tables of the page of figures: their rows, and the file in which the figures are kept.

A row is written anew when its benchmark has run and found all that the row tells; otherwise it keeps what it told, with
the day on which that was measured. A row of which nothing was ever measured isn't in the table.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.benchmarks.vocabularies import Figures, Value

TOP = Path(__file__).parents[2]
PAGE, FIGURES = TOP / "inspector/help/figures.md", TOP / "inspector/help/figures.json"
HEADS = {
    "figures": "| what | figure | command | measured |\n|---|---|---|---|\n",
    "peers": "| | a step | prefill of 256 | fork | return | measured |\n|---|---|---|---|---|---|\n",
}
"""The tables, each between two comments of this name."""
EACH = "4,096, 152,000, 256,000 ids of two small layers; 0.6 B in bfloat16, in 4 bits"


@dataclass(frozen=True)
class Row:
    """One row."""

    benchmark: str
    """The module."""
    what: str
    form: str
    """Both have names of figures in braces, with a format where two digits, and all before the point, aren't meant."""

    @property
    def table(self) -> str:
        """The table that it is in."""
        return "peers" if self.benchmark == "peers" else "figures"

    @property
    def names(self) -> list[str]:
        """Of the figures that it tells."""
        return [name for _, name, _, _ in Formatter().parse(self.what + self.form) if name is not None]


def _each(name: str, spec: str = "") -> str:
    first, second, third, plain, packed = (
        f"{{{model} {name}:{spec}}}" for model in ("4k", "152k", "256k", "600m", "600m-4bit")
    )
    return f"{first}, {second}, {third}; {plain}, {packed}"


def _beside(model: str, *peers: str) -> str:
    """Cells with the figures of several programs."""
    return " | ".join(
        f"{', '.join(f'{{{model} {peer} {name}}}' for peer in peers)} {unit}"
        for name, unit in (
            ("step ms", "ms"),
            ("prefill tok/s", "tokens/s"),
            ("fork ms", "ms"),
            ("return ms", "ms"),
        )
    )


_THREE = ("inspector", "mlx_lm", "transformers 1")
_OF_THREE = "inspector, mlx_lm in float32, transformers with 1 thread"
ROWS = (
    Row("run", "a run with 20 candidates and all readings, against mlx_lm's `generate_step`, both in float32 through "
        "OpenBLAS: pocket", "{pocket run:.2f} of its steps a second where a step takes {pocket step ms} ms"),
    Row("run", "the same, a llama of 103 M random weights",
        "{bench-100m run:.2f} where a step takes {bench-100m step ms} ms"),
    Row("run", "the same, 2 layers and 152,000 or 256,000 token ids", "{bench-152k run:.2f}, {bench-256k run:.2f}"),
    Row("run", "their first token after a prompt of 480 tokens, with prompt logprobs and without; these are read "
        "after it", "{bench-152k first with ms}, {bench-152k first ms} ms; "
        "{bench-256k first with ms}, {bench-256k first ms} ms"),
    Row("run", "single steps, nothing overlapped: pocket, 103 M", "{pocket single:.2f}, {bench-100m single:.2f}"),
    Row("run", f"a run, and single steps, against `generate_step`: {EACH}",
        f"{_each('run', '.2f')}; single {_each('single', '.2f')}"),
    Row("run", "a run with temperature 0.8 and top-p 0.95, against `generate_step` with such a sampler: pocket, 103 M; "
        f"{EACH}", "{pocket sampled:.2f}, {bench-100m sampled:.2f}; " + _each("sampled", ".2f")),
    Row("own_time", f"what a step of a run costs the stepping thread itself, greedy, and with top-p: {EACH}",
        f"{_each('greedy ms')}; sampled {_each('sampled ms')} ms"),
    Row("step_parts", f"a single step in the engine, and one of a run on the screen: {EACH}",
        f"{_each('ms')}; {_each('screen ms')} ms"),
    Row("prefill", f"a prompt of 1,760 tokens with its logprobs, and against one without: {EACH}",
        f"{_each('with')} tokens/s; {_each('ratio', '.2f')}"),
    Row("matrices", "Qwen3's shape, 0.6 B random weights in 4 bits: a step, and the tokens of a prefill in a second of "
        "the processor; packed, and unpacked as by default",
        "{packed step}, {unpacked step} ms; {packed prefill}, {unpacked prefill}"),
    Row("matrices", "a single step of pocket in bfloat16 with MLX's own BLAS, in float32 with it, in float32 with "
        "OpenBLAS", "{way 0 a step}, {way 1 a step}, {way 2 a step} ms"),
    Row("matrices", "its prefill of 256 tokens; look-ahead of 5 candidates by 8 tokens, likewise",
        "{way 0 prefill of 256}, {way 1 prefill of 256}, {way 2 prefill of 256} tokens/s; "
        "{way 0 look-ahead 5 x 8}, {way 1 look-ahead 5 x 8}, {way 2 look-ahead 5 x 8} ms"),
    Row("race", "a step with a KV cache, from 16 to 480 tokens: pocket in bfloat16 with MLX's own BLAS",
        "{cached first ms:.1f} to {cached last ms:.1f} ms"),
    Row("race", "the same tokens without one", "{uncached first ms} to {uncached last ms} ms; of {steps} ids "
        "{differing} differ, logits by {difference} at most"),
    Row("race", "all these steps, with and without", "{cached s:.2f} s, {uncached s} s"),
    Row("moves", "back to a kept branch of 500 tokens, the slowest of nine cache kinds",
        "{largest:.2f} of a decode step"),
    Row("moves", f"back to such a branch by model: {EACH}", f"{_each('move', '.2f')} of a decode step"),
    Row("batch", "tokens a CPU second of a batch with its readings, against `mlx_lm.batch_generate`, 8 and 32 lanes of "
        "pocket", "{pocket 8 lanes:.2f}, {pocket 32 lanes:.2f}"),
    Row("batch", f"the same, 8 lanes by model: {EACH}", _each("8 lanes", ".2f")),
    Row("beam", "8 beams in a batch, against 8 single steps: pocket, 103 M", "{pocket:.2f}, {bench-100m:.2f}"),
    Row("key_to_paint", "a step on screen, from the key to the new token painted: median, p95",
        "{pocket p50}, {pocket p95} ms"),
    Row("key_to_paint", f"the same, p95 by model: {EACH}", f"{_each('p95')} ms"),
    Row("lookahead", "look-ahead, 8 tokens behind 5 candidates, until it is on screen: median, p95",
        "{pocket p50}, {pocket p95} ms"),
    Row("dialogs", "a dialog from its key to the whole of it painted, opened before: breakpoints, find, prompt, "
        "sampling; of {old}, in one run", "{breakpoints}, {find a token}, {prompt}, {sampling} ms; {old breakpoints}, "
        "{old find a token}, {old prompt}, {old sampling} ms"),
    Row("inside", "a look inside, from the command to the record, each with a plain forward for its checks: attention "
        "of all heads, lens of 12 positions, contributions to two tokens, 56 units switched off one by one",
        "{pocket attention of all heads}, {pocket lens of 12 positions}, {pocket contributions to two tokens}, "
        "{pocket all units switched off, one by one} plain steps"),
    Row("inside", "what it takes in memory at 2,000 tokens, 14 layers of 12 heads: attention, lens",
        "{attention MiB}, {lens MiB} MiB"),
    Row("vocabulary", "a search in a vocabulary of 150,000, the slowest", "{152k} ms"),
    Row("tree_panel", "a step in a tree of 20,000 tokens and 500 branches, tree open, against 100",
        "{step:.2f} times ({step ms} ms)"),
    Row("text_repaint", "repaint after a token at 20,000 tokens, against 100", "{ratio:.2f} times"),
    Row("sampler_panel", "a run in the screen, sampler panel open against closed",
        "{ratio:.2f} times its steps a second"),
    Row("what_if", "a what-if on a vocabulary of 150,000, all stages on", "{152k} ms"),
    Row("grammar", "a step under a grammar against one without, on a vocabulary of 150,000: all of it; the stepping "
        "thread, which is without the forward", "{152k-h512:.2f}; {152k-h512 thread:.2f}"),
    Row("replay", "a recording of 50,000 steps: start of the program to the first steps on the timeline",
        "{pocket first s:.1f} s"),
    Row("trace", "largest step of a recording with 20 candidates, before compression", "{pocket bytes} bytes"),
    Row("trace", f"the largest step by model: {EACH}", f"{_each('bytes')} bytes"),
    Row("memory", "what a step of a long run on the screen keeps in memory beside the KV cache: pocket; 4,096, "
        "152,000, 256,000 ids", "{pocket KB}; {4k KB}, {152k KB}, {256k KB} KB"),
    Row("start", "first paint, and the first distribution of the pocket model; {old}, in one run",
        "{first paint} s, {first distribution} s after the start; {old first paint} s, {old first distribution} s"),
    Row("peers", "inspector, float32 through OpenBLAS, all readings", _beside("pocket", "inspector")),
    Row("peers", "mlx_lm as it comes, bfloat16", _beside("pocket", "mlx_lm as it comes")),
    Row("peers", "mlx_lm in float32 through the same products", _beside("pocket", "mlx_lm")),
    Row("peers", "transformers on torch {torch}, float32, 1 thread", _beside("pocket", "transformers 1")),
    Row("peers", "the same, 2 threads", _beside("pocket", "transformers 2")),
    Row("peers", f"4,096 ids of two small layers: {_OF_THREE}", _beside("4k", *_THREE)),
    Row("peers", f"152,000 ids: {_OF_THREE}", _beside("152k", *_THREE)),
    Row("peers", f"256,000 ids: {_OF_THREE}", _beside("256k", *_THREE)),
    Row("peers", f"0.6 B in bfloat16: {_OF_THREE}", _beside("600m", *_THREE)),
    Row("peers", "0.6 B in 4 bits, unpacked: inspector, mlx_lm", _beside("600m-4bit", *_THREE[:2])),
)  # fmt: skip
BENCHMARKS = tuple(dict.fromkeys(row.benchmark for row in ROWS))

# ---- what is kept -------------------------------------------------------------------------------

Kept = dict[str, dict[str, Any]]
"""By row: its figures (`values`), the day (`on`), the machine, and how busy that was (`load`)."""


def kept() -> Kept:
    """What the file has."""
    found: Kept = json.loads(FIGURES.read_text(encoding="utf-8"))
    return found


def keep(benchmark: str, figures: Figures, **when: str) -> Iterator[str]:
    """Write what a benchmark found into the file; yields a line for each of its rows."""
    before = kept()
    found = dict[str, Any](before)
    for row in ROWS:
        missing = [name for name in row.names if name not in figures]
        if row.benchmark == benchmark and not missing:
            found[row.what] = {"values": {name: figures[name] for name in row.names}, **when}
            yield told(row, found[row.what]["values"])
        elif row.benchmark == benchmark:
            yield f"{row.what}: left as it was, for want of {', '.join(missing)}"
    in_order = {row.what: found[row.what] for row in ROWS if row.what in found}
    FIGURES.write_text(json.dumps(in_order, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# ---- what is told -------------------------------------------------------------------------------


class _Told:
    """A figure as it is told: a range as its ends, a number without a format with two digits at least."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def __format__(self, spec: str) -> str:
        if isinstance(self._value, str):
            return self._value
        ends = self._value if isinstance(self._value, list | tuple) else [self._value]
        return " to ".join(dict.fromkeys(_number(end, spec) for end in ends))


def _number(value: float, spec: str) -> str:
    digits = 0 if isinstance(value, int) or not value else max(0, 1 - math.floor(math.log10(abs(value))))
    return format(value, spec or f",.{digits}f")


def told(row: Row, values: Mapping[str, Value]) -> str:
    """The cells of a row."""
    return f"{row.what} | {row.form}".format(**{name: _Told(value) for name, value in values.items()})


def page(text: str, found: Kept) -> str:
    """The page with its tables made of the file; a machine has a letter, and is named above the first table."""
    machines = list(dict.fromkeys(entry["machine"] for entry in found.values()))
    letters = {machine: chr(ord("A") + place) for place, machine in enumerate(machines)}
    for table, head in HEADS.items():
        lines = []
        for row in ROWS:
            if row.table == table and row.what in found:
                entry = found[row.what]
                cells = [told(row, entry["values"])]
                cells += [f"`python -m tests.benchmarks.{row.benchmark}`"] * (table == "figures")
                on = ", ".join(
                    each for each in (entry["on"], letters[entry["machine"]], entry["load"]) if each
                )
                lines.append(f"| {' | '.join([*cells, on])} |\n")
        where = "".join(f"{letter}: {machine}.\n" for machine, letter in letters.items()) + "\n"
        block = (where if table == "figures" else "") + head + "".join(lines)
        begin, end = f"<!-- {table} -->\n", f"<!-- end of {table} -->"
        text = re.sub(f"(?<={begin}).*?(?={end})", lambda _, block=block: block, text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def write_page() -> None:
    """Make the tables anew."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), kept()), encoding="utf-8")
