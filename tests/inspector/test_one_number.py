"""One quantity is one number at every entrance: screen, JSON, Python, page, Markdown and CSV, beside a side branch.

Twelve steps are taken, and a branch is begun at the fifth of them; all entrances are asked about the eighth step. What
is printed has few digits: it must be the number, rounded. Times are of the one session that all documents are about.
`python -m tests.inspector.test_one_number` prints the table of quantities by entrance.
"""

from __future__ import annotations

import asyncio
import csv
import html
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.protocol import (
    AttentionRead,
    AttributionRead,
    GradientsRead,
    Intervened,
    Prefill,
    PromptReadings,
    PromptToken,
    Step,
)
from engine.settings import LoadSettings, Settings
from inspector.api import open
from inspector.app import InspectorApp
from tests.inspector.cli.scripted import of_kind
from tests.inspector.rig import idle

PROMPT, STEPS, STEP, FORK, TOKEN = "Once upon a time", 12, 8, 5, " called"
SAMPLING = {"temp": 0.8, "top_p": 0.95, "seed": 7}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in SAMPLING.items()]
HEAD = "L3 h4"
VIEWS = {"why": "2 w", "attention": "3 A", "lens": "3 I", "parts": "3 D", "gradients": "3 g", "off": "4 X"}
FIXED = {">99.99 %": "99.995 %", "<0.01 %": "0.005 %"}
UNITS = {"KiB": 2**10, "MiB": 2**20, "B": 1, "%": 0.01, "": 1}


@dataclass(frozen=True)
class Number:
    """A number as an entrance gives it."""

    value: float
    by: float = 0.0
    """How far the exact one may be from it, as it is rounded."""


def number(text: str) -> Number:
    """Read a number as people do: `−0.90`, `3.71 %`, `96 KiB`."""
    text = FIXED.get(text.strip(), text).replace("\\", "").replace("−", "-").replace(",", "")
    found = re.search(r"([-+]?\d+(?:\.(\d+))?) ?(KiB|MiB|B|%)?", text)
    assert found is not None, text
    unit = UNITS[found[3] or ""]
    return Number(float(found[1]) * unit, 0.5 * 10.0 ** -len(found[2] or "") * unit)


def exact(value: Any) -> Number:
    return Number(float(value))


# ---- the entrances ----------------------------------------------------------------------------------


def command(*argv: str) -> list[dict[str, Any]]:
    """The JSON lines of a subcommand."""
    done = subprocess.run(
        [sys.executable, "-m", "inspector", *argv], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


async def on_screen(folder: Path) -> dict[str, str]:
    """What the screen shows of the step: by view what it paints in the place of the answer, and the rest."""
    settings = Settings(**SAMPLING, max_tokens=STEPS)  # type: ignore[arg-type]
    app = InspectorApp(LoadSettings(), settings, Prefill(PROMPT, False), save=folder)

    async def press(pilot: Pilot[int], *keys: str) -> None:
        for key in keys:
            await pilot.press(key)
            await idle(pilot)

    def painted(answer: bool = True) -> str:
        strips = [*app.screen._compositor.render_strips()]
        area = app.main.area
        if answer:
            strips = [each.crop(area.x, area.right) for each in strips[area.y : area.bottom]]
        return "\n".join(each.text.rstrip() for each in strips).replace("\xa0", " ")

    async with app.run_test(size=(180, 60)) as pilot:
        await idle(pilot)
        await press(pilot, "r", *["left"] * (STEPS - FORK + 1))
        place = [each.text for each in app.controller.timeline.candidates].index(TOKEN)
        await press(pilot, *["down"] * place, "enter", *["space"] * 5)
        await press(pilot, "4", "t")
        found = {"tree": painted()}
        await press(pilot, "up", "enter", "1", "c", *["left"] * (STEPS - STEP + 1))
        found["all"] = painted(answer=False)
        found["next"] = painted()
        for name, keys in VIEWS.items():
            await press(pilot, *keys.split())
            while "computing" in painted().lower():
                await idle(pilot)
            if name == "attention":  # to the head that all entrances are asked about
                while f"{HEAD} looks" not in painted():
                    await press(pilot, "right_square_bracket")
            found[name] = painted()
            if name != "off":
                await press(pilot, "escape")
        app.exit()
    return found


def text_of(page: str) -> str:
    """The text of a web page, a line for each row and paragraph, cells apart by bars."""
    page = re.sub(r"<style\b.*?</style>|<script\b.*?</script>", "", page, flags=re.DOTALL)
    page = re.sub(r"</(tr|p|h\d|li|div|figcaption)>", "\n", page)
    page = re.sub(r"</t[dh]>", " | ", page)
    return html.unescape(re.sub(r"<[^>]+>", "", page))


@dataclass(frozen=True)
class Asked:
    """What each entrance says."""

    screen: dict[str, str]
    generate: Step
    prompt: list[PromptToken]
    """Those that are scored."""
    inside: list[dict[str, Any]]
    python: dict[str, float]
    page: str
    markdown: str
    rows: list[dict[str, str]]

    @property
    def row(self) -> dict[str, str]:
        return next(row for row in self.rows if row["step"] == str(STEP))


def ask() -> Asked:
    """Ask everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        screen = asyncio.run(asyncio.wait_for(on_screen(folder), 240))
        (session,) = folder.glob("*pocket*")
        for kind in ("html", "md", "csv"):
            argv = ["-m", "inspector", "export", str(session), "--to", kind, "-o", str(folder / f"x.{kind}")]
            subprocess.run([sys.executable, *argv], check=True, capture_output=True)
        page, markdown = ((folder / f"x.{kind}").read_text() for kind in ("html", "md"))
        rows = [*csv.DictReader((folder / "x.csv").read_text().splitlines())]
    lines = command("generate", "-p", PROMPT, *FLAGS, "-m", str(STEPS), "--jsonl", "--prompt-logprobs")
    unit = re.search(r"#+ (L\d h\d) off", markdown)
    assert unit is not None
    views = "attention,lens,contributions,gradients"
    inside = command("show", views, "-p", PROMPT, *FLAGS, "--steps", str(STEPS), "--at", str(STEP),
                     "--method", "input", "--off", unit[1], "--positions", "3", "--jsonl")  # fmt: skip
    return Asked(
        screen=screen,
        generate=of_kind(lines, Step)[STEP - 1],
        prompt=[token for read in of_kind(lines, PromptReadings) for token in read.tokens],
        inside=inside,
        python=in_python(unit[1]),
        page=text_of(page),
        markdown=markdown,
        rows=rows,
    )


def in_python(unit: str) -> dict[str, float]:
    """The numbers of the Python interface."""
    with open("pocket", prompt=PROMPT, **SAMPLING) as session:
        session.run(STEPS).wait()
        side = session.at(FORK).take(TOKEN).run(5).wait()
        main = (
            session.tree[0]
            if session.tree[0].ids[4 + FORK - 1] != side.ids[4 + FORK - 1]
            else session.tree[1]
        )
        step, here = main.steps[STEP - 1], main.at(STEP)
        sampler, attention = step.record.choice, here.attention()
        gradients = here.gradients(" J", against=" Jill", integrated=False)
        count = len(side.steps)
        with here.off(unit) as changed:
            without = changed.take(step.id).steps[-1].prob
        return {
            "probability": step.prob, "sampler": step.sampler_prob, "logprob": step.logprob, "rank": step.rank,
            "surprisal": -step.logprob / math.log(2), "entropy": step.entropy_bits, "draw": sampler.draw or 0.0,
            "sampler entropy": sampler.sampler_entropy_bits, "draw from": sampler.draw_from or 0.0,
            "draw to": sampler.draw_to or 0.0, "others": sampler.others_prob,
            "others, sampler": sampler.others_sampler_prob, "first": sampler.candidates[0].prob,
            "kept": sampler.stages[0].kept, "removed": sampler.stages[0].removed_mass,
            "KV used": step.record.kv.used_bytes, "KV allocated": step.record.kv.allocated_bytes,
            "KV tokens": step.record.kv.offset,
            "perplexity": math.exp(-sum(each.logprob for each in main.steps) / STEPS),
            "bits/token": -sum(each.logprob for each in main.steps) / STEPS / math.log(2),
            "branch perplexity": math.exp(-sum(each.logprob for each in side.steps) / count),
            "attention": float(max(attention.weights(2)[3])), "gradient sum": gradients.record.total,
            "gradient": max((each.value for each in gradients.top(99)), key=abs), "without": without,
        }  # fmt: skip


# ---- the quantities ---------------------------------------------------------------------------------

Entrance = Callable[[Asked], Number]


def step_of(name: str) -> Entrance:
    """A field of the step; of the distribution that it was taken from as `choice.draw`."""
    return lambda asked: exact(attrgetter(name)(asked.generate))


def cell(name: str) -> Entrance:
    return lambda asked: exact(asked.row[name])


def python(name: str) -> Entrance:
    return lambda asked: exact(asked.python[name])


def painted(view: str, pattern: str, group: int = 1, cut: bool = False) -> Entrance:
    """A number on the screen: the group of a pattern in what a view paints.

    With `cut` its digits end without rounding, so that a draw stays below the end of its share.
    """

    def read(asked: Asked) -> Number:
        found = re.search(pattern, asked.screen[view], re.MULTILINE)
        assert found is not None, (pattern, asked.screen[view])
        shown = number(found[group])
        return Number(shown.value, 2 * shown.by) if cut else shown

    return read


def row_of(view: str, column: int) -> Entrance:
    """A number of the step's row in the table of steps on the screen."""

    def read(asked: Asked) -> Number:
        line = next(line for line in asked.screen["all"].splitlines() if re.match(rf"│ ▶ +{STEP} ", line))
        cells = re.findall(r"[\d.]+ %|[\d.]+ KiB|\d[\d.]*", line.split("││")[0].partition(str(STEP))[2])
        return number(cells[column])

    return read


def listed(where: str, begin: str, column: int, after: str = "") -> Entrance:
    """A cell of the row of a document's table that begins with a text, behind a heading."""

    def read(asked: Asked) -> Number:
        text = getattr(asked, where).replace("\\", "")
        text = text[text.index(after) :] if after else text
        rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines())
        return number(next(cells for cells in rows if cells[0] == begin and len(cells) > column)[column])

    return read


def in_text(where: str, pattern: str) -> Entrance:
    def read(asked: Asked) -> Number:
        found = re.search(pattern, getattr(asked, where).replace("\\", ""))
        assert found is not None, pattern
        return number(found[1])

    return read


def inside(kind: type[Any], of: Callable[[Any], Any]) -> Entrance:
    return lambda asked: exact(of(of_kind(asked.inside, kind)[-1]))


J, OFF, PARTS = "␣J", r"off, this token: KL ([\d.]+) bits", "Why “␣J” rather than “␣Jill”"
HANGS, TABLE = "Tokens behind “␣J” rather than “␣Jill”", "## Steps"
SAYS = r"“␣J” ([\d.]+ %), logit ([-−\d.]+)"
QUANTITIES: Mapping[str, Mapping[str, Entrance]] = {
    "probability": {
        "screen": row_of("all", 0), "candidates": painted("next", rf"{J} .*? ([\d.]+ %)"),
        "why": painted("why", r"“␣J” has ([\d.]+ %)"), "parts": painted("parts", SAYS),
        "generate": step_of("prob"), "inside": inside(AttributionRead, lambda it: it.tokens[0].prob),
        "Python": python("probability"), "CSV": cell("prob"), "Markdown": listed("markdown", str(STEP), 2, TABLE),
        "page": in_text("page", rf"{J} \| ([\d.]+ %)"),
    },
    "probability of the sampler": {
        "candidates": painted("next", rf"{J} .*? [\d.]+ %.*? ([\d.]+ %)"),
        "why": painted("why", r"now covers ([\d.]+ %)"),
        "generate": step_of("sampler_prob"), "Python": python("sampler"), "CSV": cell("sampler_prob"),
        "Markdown": listed("markdown", str(STEP), 3, TABLE),
    },
    "logprob": {"generate": step_of("logprob"), "Python": python("logprob"), "CSV": cell("logprob")},
    "surprisal, bits": {
        "screen": row_of("all", 1), "generate": step_of("surprisal_bits"), "Python": python("surprisal"),
        "CSV": cell("surprisal_bits"), "Markdown": listed("markdown", str(STEP), 4, TABLE),
    },
    "rank": {
        "screen": row_of("all", 3), "why": painted("why", r"\(rank (\d+)\)"), "generate": step_of("rank"),
        "inside": inside(AttributionRead, lambda it: it.tokens[0].rank), "Python": python("rank"),
        "CSV": cell("rank"), "Markdown": listed("markdown", str(STEP), 5, TABLE),
    },
    "entropy, bits": {
        "screen": row_of("all", 2), "candidates": painted("next", r"model entropy ([\d.]+) bits"),
        "off": painted("off", r"model entropy ([\d.]+) →"), "generate": step_of("choice.entropy_bits"),
        "inside": inside(Intervened, lambda it: it.entropy_before_bits), "Python": python("entropy"),
        "CSV": cell("entropy_bits"), "Markdown": listed("markdown", str(STEP), 6, TABLE),
        "page": in_text("page", r"entropy goes from ([\d.]+) to"),
    },
    "entropy of the sampler, bits": {
        "generate": step_of("choice.sampler_entropy_bits"), "Python": python("sampler entropy"),
        "CSV": cell("sampler_entropy_bits"),
    },
    "draw": {
        "candidates": painted("next", r"draw ([\d.]+)", cut=True),
        "why": painted("why", r"draw ([\d.]+) falls", cut=True),
        "generate": step_of("choice.draw"), "Python": python("draw"), "CSV": cell("draw"),
    },
    "where the draw's share begins": {
        "why": painted("why", r"share, ([\d.]+) to", cut=True), "generate": step_of("choice.draw_from"),
        "Python": python("draw from"),
        "CSV": cell("draw_from"),
    },
    "where it ends": {
        "why": painted("why", r"share, [\d.]+ to[\s│]+([\d.]+\d)", cut=True), "generate": step_of("choice.draw_to"),
        "Python": python("draw to"), "CSV": cell("draw_to"),
    },
    "probability of the first": {
        "candidates": painted("next", r"␣Jill .*? ([\d.]+ %)"), "off": painted("off", r"␣Jill +([\d.]+ %)"),
        "generate": lambda asked: exact(asked.generate.choice.candidates[0].prob), "Python": python("first"),
        "CSV": cell("first_prob"), "Markdown": in_text("markdown", r"␣Jill ([\d.]+ %)"),
        "page": listed("page", "␣Jill", 1, "off\ncandidate"),
    },
    "probability of the others": {
        "candidates": painted("next", r"others .*?([\d.]+ %)"),
        "generate": step_of("choice.others_prob"), "Python": python("others"),
    },
    "the others' of the sampler": {
        "candidates": painted("next", r"others .*?[\d.]+ % .*?([\d.]+ %)"),
        "generate": step_of("choice.others_sampler_prob"), "Python": python("others, sampler"),
    },
    "tokens that top-p keeps": {
        "candidates": painted("next", r"top-p keeps (\d+)"), "why": painted("why", r"top-p kept (\d+)"),
        "generate": lambda asked: exact(asked.generate.choice.stages[0].kept), "Python": python("kept"),
    },
    "probability that top-p removes": {
        "generate": lambda asked: exact(asked.generate.choice.stages[0].removed_mass), "Python": python("removed"),
    },
    "KV used, bytes": {
        "screen": row_of("all", 5), "generate": step_of("kv.used_bytes"),
        "Python": python("KV used"), "CSV": cell("kv_used_bytes"), "Markdown": listed("markdown", str(STEP), 8, TABLE),
    },
    "KV allocated, bytes": {
        "screen": painted("all", r"┌ ([\d.]+ MiB) allocated"),
        "generate": step_of("kv.allocated_bytes"), "Python": python("KV allocated"),
        "CSV": cell("kv_allocated_bytes"),
    },
    "KV, tokens": {
        "screen": painted("all", r"KV cache · (\d+) of \d+ tokens"),
        "generate": step_of("kv.offset"),
        "Python": python("KV tokens"), "CSV": cell("kv_tokens"),
    },
    "time, ms": {
        "screen": row_of("all", 4), "CSV": cell("ms"), "Markdown": listed("markdown", str(STEP), 7, TABLE),
    },
    "perplexity": {
        "screen": painted("all", r"perplexity ([\d.]+)"), "Python": python("perplexity"),
        "Markdown": listed("markdown", "perplexity", 1),
        "CSV": lambda asked: exact(math.exp(-sum(float(row["logprob"]) for row in asked.rows if row["step"]) / STEPS)),
    },
    "bits/token": {
        "screen": painted("all", r"([\d.]+) bits/token"), "Python": python("bits/token"),
        "Markdown": in_text("markdown", r"\| surprisal \| ([\d.]+) bits/token"),
    },
    "perplexity of the prompt": {
        "generate": lambda asked: exact(math.exp(-sum(each.logprob or 0.0 for each in asked.prompt) / 3)),
        "Markdown": listed("markdown", "prompt perplexity", 1),
        "CSV": lambda asked: exact(math.exp(-sum(float(row["logprob"]) for row in asked.rows[1:4]) / 3)),
    },
    "perplexity of the side branch": {
        "tree": painted("tree", r"completion: .*perplexity ([\d.]+)"), "Python": python("branch perplexity"),
    },
    "weight of a head": {
        "screen": painted("attention", r"([\d.]+ %) [ █▉▊▋▌▍▎▏]*␣Jack"),
        "inside": inside(AttentionRead, lambda it: max(
            next(each for each in it.layers if each.layer == 2).over(3, it.tokens))),
        "Python": python("attention"), "Markdown": listed("markdown", HEAD, 2), "page": listed("page", HEAD, 2),
    },
    "logit": {
        "screen": painted("parts", SAYS, 2), "inside": inside(AttributionRead, lambda it: it.tokens[0].logit),
    },
    "what the last MLP adds": {
        "screen": painted("parts", r"L8 MLP +([-−+\d.]+)"),
        "inside": inside(AttributionRead, lambda it: next(
            it.bar(each.logits) for each in it.parts if (each.kind, each.layer) == ("mlp", 7))),
        "Markdown": listed("markdown", "L8 MLP", 1, PARTS), "page": listed("page", "L8 MLP", 1, PARTS),
    },
    "sum of what the parts add": {
        "screen": painted("parts", r"= sum +([-−+\d.]+)"), "inside": inside(AttributionRead, lambda it: it.total),
        "Markdown": listed("markdown", "= sum", 1, PARTS), "page": listed("page", "= sum", 1, PARTS),
    },
    "largest share of a gradient, logits": {
        "screen": painted("gradients", r"▶ , .*?%\s+([-−+\d.]+)"),
        "inside": inside(GradientsRead, lambda it: max(it.shares.row(), key=abs)),
        "Python": python("gradient"), "Markdown": listed("markdown", ",", 3, HANGS),
        "page": listed("page", ",", 3, HANGS),
    },
    "sum of the shares of a gradient": {
        "screen": painted("gradients", r"The logits add up to ([-−+\d.]+\d)"),
        "inside": inside(GradientsRead, lambda it: it.total), "Python": python("gradient sum"),
        "Markdown": in_text("markdown", r"The logits add up to ([-−+\d.]+\d)"),
        "page": in_text("page", r"The logits add up to ([-−+\d.]+\d)"),
    },
    "probability with a head off": {
        "screen": painted("off", r" J|␣J  +[\d.]+ %.*? ([\d.]+ %)"),
        "inside": inside(Intervened, lambda it: next(
            each.after.prob for each in it.candidates if each.before.text == " J")),
        "Python": python("without"), "Markdown": listed("markdown", J, 2, "off\n\n| candidate"),
        "page": listed("page", J, 2, "off\ncandidate"),
    },
    "KL with a head off, bits": {
        "screen": painted("off", OFF), "inside": inside(Intervened, lambda it: it.kl_bits),
        "Markdown": in_text("markdown", r"This token. KL ([\d.]+) bits"),
        "page": in_text("page", r"This token. KL ([\d.]+) bits"),
    },
    "rank of the token after the last layer": {
        "screen": painted("lens", r"^│ +8 .*#(\d+)"), "generate": step_of("rank"),
    },
}  # fmt: skip
"""For each quantity the entrances that show it; the others don't."""


def differences(asked: Asked, of: Mapping[str, Entrance]) -> dict[str, tuple[Number, float]]:
    """By entrance the number, and by how much it is further from the exact one than its rounding explains."""
    read = {name: entrance(asked) for name, entrance in of.items()}
    true = min(read.values(), key=lambda each: each.by).value
    return {name: (each, max(0.0, abs(each.value - true) - each.by)) for name, each in read.items()}


@pytest.fixture(scope="module")
def asked() -> Asked:
    return ask()


@pytest.mark.parametrize("name", QUANTITIES)
def test_a_quantity_is_the_same_number_everywhere(asked: Asked, name: str) -> None:
    for entrance, (read, off) in differences(asked, QUANTITIES[name]).items():
        assert off <= 1e-6 * max(1.0, abs(read.value)), (entrance, read, off)


if __name__ == "__main__":
    everything = ask()
    for name, of in QUANTITIES.items():
        found = differences(everything, of)
        print(f"{name}, most {max(off for _, off in found.values()):.1g}:")
        print("   ", *(f"{entrance} {read.value:.8g}" for entrance, (read, _) in found.items()), sep="  ")
