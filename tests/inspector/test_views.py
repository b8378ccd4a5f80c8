"""What holds for every view and dialog, seen from outside: by its key and by what is painted.

The catalogue is the table of keys, as in the help, and each view's own line of keys.
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from pathlib import Path

import mlx.core as mx
import pytest
from rich.cells import cell_len

from inspector.keys import KEYS, key_for
from inspector.main.key_table import key_table
from inspector.views import TOOLS
from tests.inspector.outside import Outside, give_key, outside

OPENS: Mapping[str, str] = {
    "Prompt": "Prompt",
    "Settings": r"Settings · .*",
    "Find anything": "Find anything",
    "Help": "Help",
    "Jump": "Jump to a step",
    "Breakpoints": "Breakpoints: stop a run when…",
    "Find a token": "Find a token · .*",
    "Find in the text": "Find in the text",
    "Type your own": "Type your own",
    "Merges": "Merges",
    "Odds": "First tokens",
    "Constrain": "Constrain the output",
    "Candidates": "(Next token|Step \\d+) · .*",
    "Steps": "Steps",
    "Stages": "Why “.*",
    "Open model": "Open a model",
    "Model facts": "Model",
    "Attention": "Where each head looks: .*",
    "Why a head looks there": r"Why L\d+ h\d+ looks at “.*",
    "Lens": "What each layer would predict",
    "Contributions": "Why “.*” rather than “.*”.*",
    "Gradients": "Tokens behind “.*” rather than “.*”.*",
    "Positions": "What if “.*” had another position",
    "Map": "How a token passes through .*",
    "Compare": "Compare( · .*)?",
    "Beams": "Beams",
    "Second model": "Text",
    "Batch": "Lanes",
    "Switch off": "(Switching off one head or part at a time: e|One head or part off: e|E)ffect on .*",
    "Activation patching": "Patching(: .*)?",
    "Steering": "Steering against random directions",
    "Tree": "Tree · .*",
    "Filter tree": "Filter the tree",
    "Name and note": "Name and note",
    "Marks": "Marks",
    "Segments": "Segments",
    "Drafts": "The round",
    "Race": "With and without a KV cache",
    "Take a step apart": "Parts of a step",
    "Other KV bits": "Other KV bits",
    "KV cache": "KV cache · .*",
    "Time": "Time · .*",
    "Requests": "Requests",
    "Copy": "Copy",
    "Export": "Export",
    "Save": "Save",
    "Sessions": "Sessions",
    "Lessons": "Lessons",
    "Watch a model learn": "Watch a model learn",
    "Keep": "Keep",
}
"""What the help calls a view or a dialog, and the title that its frame has."""
REFUSES: Mapping[str, str] = {
    "Other model": "No second model is open: 4 h opens one",
    "Recorded reply": "No request of a server is open",
    "Experts and states": "This model has neither experts nor recurrent layers",
    "Reply": "Raw text has no turns",
    "Ranks": "This session runs in one process",
    "Close second model": "No second model is open: h opens one",
}
"""What this session can't show, and why."""
DOES = """
Step. Run. Take back. Candidate above. Candidate below. Choose. Undo. Redo. Earlier. Later. Ten earlier. Ten later.
First. Last token. Copy selection. Continue live. Tab 1. Tab 2. Tab 3. Tab 4. Tab 5. Tab 6. Tab 7. Next view.
Previous view. Stop. Enlarge. Quit. Faster. Slower. Previous branch. Next branch. Draw again. Recompute logits. Colour.
Previous colour. Tokens. Skip sure tokens. Previous surprise. Next surprise. Previous fork point. Next fork point.
Grammar. Look-ahead. Take look-ahead.
Bookmark. Delete branch. Previous mark. Next mark. Verify. Present. Text and answer.
Divider left. Divider right. Divider up. Divider down. Usual layout. Dark or light.
"""
"""What the other keys do opens nothing."""
SLOW_TO_OPEN = {"Take a step apart"}
"""It measures for seconds."""
RECORDED = "Recorded: no model is loaded. G continues live"
OTHERWISE_RECORDED = {
    "Find a token", "Open model", "Name and note", "Save", "Watch a model learn",
    "Keep", "Copy", "Export",
}  # fmt: skip
"""What has less to offer in a recording, tells of the machine, or has the panel beneath that names the file."""
ASKS: Mapping[str, Sequence[str]] = {
    "Attention": (), "Why a head looks there": (), "Lens": (), "Contributions": (), "Gradients": (), "Positions": (),
    "Switch off": (), "Activation patching": (), "Other KV bits": (), "Take a step apart": (),
    "Odds": ("space",), "Race": ("space",), "Drafts": ("space",), "Beams": ("space",),
}  # fmt: skip
"""Views that have the engine compute, and the keys that make them ask."""
CHECKED = (
    "Attention", "Why a head looks there", "Lens", "Contributions", "Gradients", "Positions", "Switch off",
)  # fmt: skip
"""Views that compare what they show with what the model computes."""
FOLLOWS = {*CHECKED, "Candidates", "Stages"}
"""Views of the selected token."""
KEPT_ROWS = {"Odds"}
"""It draws from rows that were kept, without the model."""
HOSTILE = (
    "one [/b][@click=app.quit]x[/] \x1b[31mred\x1b]0;t\x07 \u202eback\u202c \u2066iso\u2069 \x9b2J \x00\x7f "
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u200b\ufeff e\u0301\u0301 \u4f60\u597d\ttab\r\nline\n"
    "${jndi} {{x}} %s <b>&amp;</b> " + "a" * 60
)
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""What acts on a terminal, or is not seen."""
SOON = ("Reading the list", "It is being cut into tokens")
"""What a dialog says until a thread or a timer of it is done."""
REFUSED = re.compile(
    r"The check “logits unchanged” failed for the architecture llama: off by [\d.]+, where [\de.-]+ is allowed\. "
    r"So this view is not shown\. Other views may be right: tab goes on to the next\."
)
"""All that a view paints whose check failed."""
SWALLOWED = re.compile(r"(?<!␛)\[31m|(?<!␛)\]0;t")
"""What is left of an escape sequence where its first character is not shown."""
STARTED = ("--no-save", "--seed", "7", "--temp", "1", "--max-tokens", "12")


@dataclass(frozen=True)
class View:
    """A view or a dialog of the help."""

    name: str
    keys: tuple[str, ...]
    """The tab's and its own."""

    @property
    def title(self) -> re.Pattern[str]:
        return re.compile(OPENS[self.name])

    def __repr__(self) -> str:
        return f"{' '.join(self.keys)} {self.name}"


def catalogue() -> list[View]:
    """What the help lists, in its order."""
    order = [*KEYS]
    listed = sorted(key_table(TOOLS).actions, key=lambda each: (each.tabs[:1], order.index(each.id)))
    return [
        View(
            f"Tab {each.shown}" if each.id.startswith("tab_") else each.label,
            (each.tabs[:1] or "1", each.shown or key_for("next_view")),
        )
        for each in listed
    ]


LISTED = catalogue()
VIEWS = [each for each in LISTED if each.name in OPENS]
QUICK = [each for each in VIEWS if each.name not in SLOW_TO_OPEN]
SOME = QUICK[::4]
SLOW = pytest.mark.slow


def test_the_help_lists_what_is_tried_here() -> None:
    known = [*OPENS, *REFUSES, *DOES.replace("\n", " ").strip().removesuffix(".").split(". ")]
    listed = [each.name for each in LISTED]
    assert {*known} == {*listed}
    assert len(VIEWS) >= 50


async def each(user: Outside, views: Iterable[View], test: Callable[[View], Awaitable[None]]) -> None:
    """Try views one after another; all that fails is told at the end, by name."""
    failed = []
    for view in views:
        try:
            await test(view)
        except AssertionError as error:
            failed.append(f"{view}: {error}")
            if len(failed) > 9 or not user.app.is_running:
                break
            await home(user)
    if failed:
        pytest.fail("\n\n".join([f"{len(failed)} failed", *failed]), pytrace=False)


async def branched(user: Outside) -> str:
    """Take some steps, and begin a side branch; returns what is painted."""
    await user.press("space", "space", "space", "left", "down", "enter", "space")
    return user.text


async def home(user: Outside) -> None:
    """Leave whatever is open."""
    await user.press("esc", "esc", "esc", "1")


async def opened(user: Outside, view: View) -> None:
    """Press its keys: its title is painted."""
    await user.burst(*view.keys)
    await user.until(lambda: any(view.title.fullmatch(title) for title in user.titles), 10)
    await user.until(lambda: not any(each in user.words for each in SOON), 10)


async def closed(user: Outside, before: str) -> None:
    """Press escape, once for the view and once for the tab's own answer: all is as before."""
    await user.burst("esc", "esc")
    assert_same(user.text, before)


def assert_same(text: str, before: str) -> None:
    """Whether the same is painted, by the lines that are not."""
    if text != before:
        pairs = zip_longest(before.split("\n"), text.split("\n"))
        changed = [f"- {old}\n+ {new}" for old, new in pairs if old != new]
        raise AssertionError("\n".join(["painted otherwise than before:", *changed]))


def framed(lines: Sequence[str], title: str = ".+?") -> list[str]:
    """The words in each frame, line by line, without its borders.

    Args:
        lines: What is painted.
        title: Of the frames, as a regular expression.
    """
    found = []
    for top, line in enumerate(lines):
        for frame in re.finditer(rf"╭─ {title} ─+╮", line):
            inside = list[str]()
            for below in lines[top + 1 :]:
                if below[frame.start() : frame.start() + 1] != "│":
                    break
                inside.append(below[frame.start() : frame.end()].strip("│ "))
            found.append("\n".join(inside))
    return found


def answer(text: str) -> str:
    """What is painted but for the header, the status line and the line of keys."""
    return "\n".join(text.split("\n")[1:-2])


# ---- opened and closed, live and in a recording --------------------------------------------------


@pytest.mark.parametrize("views", [QUICK, pytest.param(VIEWS, marks=SLOW)], ids=["quick", "all"])
async def test_each_opens_and_closes_and_a_recording_shows_the_same(
    views: Sequence[View], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    live: dict[str, str] = {}
    async with outside(*STARTED) as user:
        before = await branched(user)

        async def opens(view: View) -> None:
            await user.burst(*view.keys, "esc", "esc")
            assert_same(user.text, before)
            await opened(user, view)
            assert "esc" in user.lines[-1] or "q quit" in user.lines[-1], "its keys don't say how to leave it"
            live[view.name] = user.text
            await closed(user, before)

        async def refuses(view: View) -> None:
            await user.burst(*view.keys)
            assert REFUSES[view.name] in user.words
            await closed(user, before)

        await each(user, views, opens)
        await each(user, [each for each in LISTED if each.name in REFUSES], refuses)
        await user.press("7", "ctrl+s", "ctrl+s")
        await user.until(lambda: [*tmp_path.glob("session.*")])
        [saved] = tmp_path.glob("session.*")
    async with outside("replay", str(saved), "--no-save") as user:
        recorded = user.text
        shown = []

        async def same(view: View) -> None:
            await user.burst(*view.keys)
            if RECORDED not in user.words and view.name not in OTHERWISE_RECORDED:
                assert_same(answer(user.text), answer(live[view.name]))
                shown.append(view.name)
            await closed(user, recorded)

        await each(user, [each for each in views if each.name in live], same)
    assert {"Attention", "Lens", "Contributions", "Switch off", "Compare", "Stages"} <= {*shown}


@pytest.mark.parametrize("views", [SOME, pytest.param(VIEWS, marks=SLOW)], ids=["some", "all"])
async def test_the_demonstration_shows_each_or_says_why_not(views: Sequence[View]) -> None:
    async with outside("replay", "--no-save") as user:
        await user.press("S", "space", "space")
        before = user.lines[-2]

        async def shows(view: View) -> None:
            await user.burst(*view.keys)
            told = user.lines[-2] != before
            assert told or any(view.title.fullmatch(title) for title in user.titles), user.text
            await home(user)

        await each(user, views, shows)


# ---- what fails ----------------------------------------------------------------------------------


def lost(*_: object, **__: object) -> None:
    """In the place of MLX's evaluation."""
    raise RuntimeError("the device is lost")


async def test_a_failed_computation_is_told_where_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And at the next token all is as ever."""
    asking = [view for view in VIEWS if view.name in ASKS and view.name not in KEPT_ROWS]
    async with outside(*STARTED) as user:
        await branched(user)

        async def fails(view: View) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(mx, "eval", lost)
                patched.setattr(mx, "async_eval", lost)
                await user.burst(*view.keys, *ASKS[view.name])
                await user.until("the device is lost", 10)
                assert "please report it" in user.words
            await home(user)

        async def works(view: View) -> None:
            await opened(user, view)
            await user.press(*ASKS[view.name])
            await user.until(lambda: "the device is lost" not in answer(user.text), 10)
            await home(user)

        await each(user, asking, fails)
        await user.press("end", "space")
        await user.until("step 5")
        await each(user, asking, works)


async def test_a_failed_check_is_told_and_its_view_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's attention is computed otherwise each time, so that no view of it can agree with it."""
    attention, calls = mx.fast.scaled_dot_product_attention, count()

    def drifting(*args: object, **named: object) -> mx.array:
        return attention(*args, **named) * (1 + 0.01 * (next(calls) % 7))

    checked = [view for view in VIEWS if view.name in CHECKED]
    async with outside(*STARTED) as user:
        await branched(user)

        async def shows(view: View) -> None:
            """Before anything is replaced: what is imported for a view must find the model as it is."""
            await opened(user, view)
            assert not any(REFUSED.fullmatch(" ".join(each.split())) for each in framed(user.lines))
            await home(user)

        async def refuses(view: View) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(mx.fast, "scaled_dot_product_attention", drifting)
                await user.burst(*view.keys)
                await user.until(
                    lambda: any(REFUSED.fullmatch(" ".join(each.split())) for each in framed(user.lines)), 10
                )
            await home(user)

        await each(user, checked, shows)
        await user.press("end", "space")
        await each(user, checked, refuses)


# ---- hostile text --------------------------------------------------------------------------------


@pytest.mark.parametrize("views", [SOME, pytest.param(VIEWS, marks=SLOW)], ids=["some", "all"])
async def test_hostile_text_is_painted_as_text(views: Sequence[View]) -> None:
    async with outside(*STARTED, "--prompt", HOSTILE, size=(160, 40)) as user:
        before = await branched(user)
        assert "[/b][@click=app.quit]x[/] ␛[31mred␛]0;t␇" in user.words

        async def safe(view: View) -> None:
            await opened(user, view)
            assert not (found := RAW.findall(user.text)), f"painted raw: {found}"
            assert not (found := SWALLOWED.findall(user.text)), f"painted without its escape: {found}"
            await closed(user, before)

        await each(user, views, safe)


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("views", "sizes"),
    [(SOME, [(40, 12), (1, 1)]), pytest.param(VIEWS, [(80, 24), (60, 20), (40, 12), (1, 1)], marks=SLOW)],
    ids=["some", "all"],
)
async def test_another_size_and_back_paints_the_same(
    views: Sequence[View], sizes: Sequence[tuple[int, int]]
) -> None:
    async with outside(*STARTED) as user:
        await branched(user)

        async def same(view: View) -> None:
            await opened(user, view)
            before = user.text
            for size in sizes:
                await user.resize(*size)
                lines = user.lines
                assert len(lines) == size[1]
                assert all(cell_len(line) <= size[0] for line in lines), size
                assert size == (1, 1) or user.words
            await user.resize(120, 40)
            assert_same(user.text, before)
            await home(user)

        await each(user, views, same)


@SLOW
@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 12)], ids=str)
async def test_each_opens_and_closes_in_little_room(size: tuple[int, int]) -> None:
    async with outside(*STARTED, size=size) as user:
        before = await branched(user)

        async def opens(view: View) -> None:
            await user.burst(*view.keys)
            await closed(user, before)

        await each(user, VIEWS, opens)


# ---- what it is about ----------------------------------------------------------------------------


async def test_it_follows_the_token_and_comes_back_to_the_same() -> None:
    async with outside(*STARTED) as user:
        await branched(user)

        async def follows(view: View) -> None:
            await opened(user, view)
            here = answer(user.text)
            await user.press("left")
            there = answer(user.text)
            assert framed(there.split("\n"))[1:] != framed(here.split("\n"))[1:]
            await user.press("right")
            assert_same(answer(user.text), here)
            await home(user)
            await user.press("end")

        await each(user, [each for each in VIEWS if each.name in FOLLOWS], follows)


# ---- files, and leaving --------------------------------------------------------------------------


@pytest.mark.parametrize("choices", [0, 1], ids=["page", "Markdown"])
async def test_what_is_exported_has_the_title_and_the_numbers_that_were_painted(
    choices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the view that was opened."""
    monkeypatch.chdir(tmp_path)
    [lens] = [view for view in VIEWS if view.name == "Lens"]
    [export] = [view for view in VIEWS if view.name == "Export"]
    async with outside(*STARTED) as user:
        await branched(user)
        steps = re.findall(r"(\d) (\S+) .*?([\d.]+ %) +([\d.]+) ", "\n".join(framed(user.lines, "Steps")))
        [perplexity] = re.findall(r"perplexity ([\d.]+)", user.text)
        assert len(steps) == 4
        await opened(user, lens)
        await home(user)
        await opened(user, export)
        await user.press(*["right"] * choices, "ctrl+s")
        await user.until(lambda: [*tmp_path.iterdir()])
    [file] = tmp_path.iterdir()
    text = html.unescape(file.read_text())
    for found in ("there were friends,", "What each layer would predict", perplexity):
        assert found in text
    if choices:
        assert f"| perplexity | {perplexity} |" in text
        rows = [[cell.strip() for cell in line.split("|")] for line in text.split("## Steps")[1].split("\n")]
        for step, token, share, bits in steps:
            [row] = [row for row in rows if row[1:3] == [step, token]]
            assert {share, bits} <= {*row}
    else:
        assert f'["perplexity","{perplexity}"]' in text


async def test_it_is_left_while_it_computes() -> None:
    [switch_off] = [view for view in VIEWS if view.name == "Switch off"]
    async with outside(*STARTED) as user:
        await branched(user)
        for key in (*switch_off.keys, "ctrl+q"):
            give_key(user.app, key)
        end = time.monotonic() + 10
        while user.running:
            assert time.monotonic() < end, "it was not left"
            await user.pause()
