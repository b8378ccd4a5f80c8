"""A tokenizer taken apart on the screen: ladders, two tokenizers, in a replay, with an export."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.style import Style

from engine.protocol import Ended, Failure, Loading, TakeApart
from engine.recording import Entry, save_as
from engine.settings import LoadSettings
from engine.tokenizers.tracer import on_disk
from inspector.blocks.page import written
from inspector.documents.merges import MERGES_PART
from inspector.documents.parts import Exported, exhibits_of
from inspector.state.merges import Rung
from inspector.views.merges import MergesView, NameDialog, pieces_in
from inspector.widgets.canvas import DrawnPanel, strip_of
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig

POCKET = on_disk("pocket", "")
SIZES = [(120, 40), (80, 24)]


async def opened(rig: Rig, *keys: str) -> MergesView:
    await rig.ready()
    if keys:
        await rig.press(*keys)
    await rig.do("merges")
    assert isinstance(rig.app.top, MergesView)
    return rig.app.top


async def answered(rig: Rig) -> TakeApart:
    """Answer the last question as an engine with the bundled model would."""
    asked = rig.engine.last(TakeApart)
    assert isinstance(asked, TakeApart)
    apart = POCKET if asked.settings is None else on_disk("pocket", asked.settings.model)
    await rig.push([apart.trace(asked.text, asked.begin, asked.end, asked.node), Ended("TakeApart")])
    return asked


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
async def test_a_words_merges_are_gone_through(rig: Rig, size: tuple[int, int]) -> None:
    screen = await opened(rig, "left", "left", "left")
    asked = await answered(rig)
    assert asked.text[asked.begin : asked.end] == " little"
    assert asked.node == rig.timeline.items[rig.timeline.slot].node
    assert "› 127 ␣little" in rig.said()
    await rig.press("up", "up")
    assert "› 108 ␣l itt le" in rig.said()
    assert "it + t = itt" in rig.said() or size[1] < 40
    await rig.press(*["up"] * 9)
    assert "› ␣ l i t t l e" in rig.said()
    await rig.press("left")
    assert rig.timeline.items[rig.timeline.slot].text == " a"
    await answered(rig)
    assert "› 2 ␣a" in rig.said()
    await rig.press("escape")
    assert rig.app.top is not screen


@pytest.mark.screen(session=Session(story=(" ", "u", "pon", " a")))
async def test_a_word_that_the_text_has_otherwise_is_told_so(rig: Rig) -> None:
    await rig.ready(steps=4)
    rig.timeline.select(6)
    await rig.do("merges")
    await answered(rig)
    assert "The text has it as ␣ u pon, which the tokenizer would not cut so." in rig.said()


# ---- in a replay -------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording whose word `␣little` was looked at."""
    session = Session()
    session.load(), session.open(), session.steps(4)
    node = session.timeline().tip
    taken = POCKET.trace("a girl named Lily", 1, 2, node)
    kept = [record for record in session.records if not isinstance(record, Loading)]
    entries = [Entry(LoadSettings("/nowhere/at/all"), 0.0)]
    entries += [Entry(record, 0.1) for record in [*kept, replace(taken, words=taken.words[:1])]]
    save_as(tmp_path / "a.trace", entries, "test 1")
    return tmp_path / "a.trace"


async def test_a_replay_shows_what_was_recorded_and_says_what_was_not(replay: Rig) -> None:
    await replay.do("merges")
    assert "␣girl" in replay.answer_text()
    await replay.press("left", "left")
    await replay.until(lambda: "isn't on this disk" in replay.said())
    assert replay.engine.sent == []


def test_a_word_is_taken_apart_without_mlx() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "un│h│app│iness" in done.stdout


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mlx", "mlx_lm", "transformers", "numpy"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
from inspector.cli.main import main
sys.exit(main(["tokens", "-p", "unhappiness", "--merges"]))
"""


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
async def test_two_tokenizers_face_each_other(rig: Rig, size: tuple[int, int]) -> None:
    await opened(rig)
    await answered(rig)
    await rig.press("v")
    assert "names the second one" in rig.said()
    await rig.press("w")
    assert isinstance(rig.app.top, NameDialog)
    await rig.press(*"[x].json", "enter")
    asked = [each for each in rig.engine.sent if isinstance(each, TakeApart)][-2:]
    assert [each.settings and each.settings.model for each in asked] == [None, "[x].json"]
    for each in asked:
        apart = POCKET if each.settings is None else on_disk("pocket", each.settings.model)
        await rig.push([apart.trace(each.text), Ended("TakeApart")])
    assert "this model: 11 tokens" in rig.said()
    assert "[x].json: 11 tokens" in rig.said()
    assert rig.said().count("␣little") == 2


async def test_a_refusal_is_told_with_what_to_do(rig: Rig) -> None:
    await opened(rig)
    await rig.push([Failure("TakeApart", "It is [b]code[/b].", "Give a file."), Ended("TakeApart")])
    assert "It is [b]code[/b]. Give a file." in rig.said()
    assert not rig.app._notifications, "once is enough"


async def test_what_was_looked_at_leaves_with_an_export(rig: Rig) -> None:
    await opened(rig, "left", "left", "left")
    await answered(rig)
    places = {item.node: place for place, item in enumerate(rig.timeline.items)}
    of = Exported(rig.timeline, rig.timeline.items, places)
    (exhibit,) = exhibits_of([MERGES_PART], of)
    page = "".join(map(written, exhibit.make()))
    assert "How “␣little” came to its tokens" in exhibit.heading
    assert "<td>127</td><td>␣little</td>" in page


@pytest.mark.wide(1)
@pytest.mark.parametrize("names", [["a"] * 9, ["abc", "defg", "h"], ["\u65e5\u672c", "\u8a9e", "x"]])
async def test_a_rung_that_is_too_long_says_so(rig: Rig, names: list[str]) -> None:
    panel = (await opened(rig)).query_one("#merges-panel", DrawnPanel)
    whole = "\u2502".join(names)
    for new in (None, 0, len(names) - 1):
        for width in range(3, 20):
            made = Rung(None, tuple(name.encode() for name in names), new)
            row = [*pieces_in(panel, made, Style(), width)]
            text = strip_of(row, width, Style()).text.rstrip()
            assert cell_len(text) <= width
            assert text == whole if cell_len(whole) <= width else "\u2026" in text
