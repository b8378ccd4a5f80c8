"""The pictures of README and the help: each has a walk that takes it anew, and is shown."""

from __future__ import annotations

import asyncio
import re
import xml.etree.ElementTree
from itertools import pairwise
from pathlib import Path

import pytest

from tests.pictures import PICTURES, PLACE, Hold, take

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *(ROOT / "inspector/help").rglob("*.md"))


def test_each_picture_has_a_walk_and_is_shown() -> None:
    shown = {
        name
        for path in PAGES
        for name in re.findall(r"/pictures/([\w-]+)\.svg", path.read_text(encoding="utf-8"))
    }
    assert sorted(shown) == sorted(PICTURES)
    assert sorted(shown) == sorted(path.stem for path in PLACE.glob("*.svg"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_each_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    """As code hosts name headings: in small letters, with `-` for blanks and without signs."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        place, _, heading = link.partition("#")
        page = (path.parent / place).resolve() if place else path
        assert page.exists(), link
        if heading:
            heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, (
                link
            )


def test_the_film_is_one_small_picture_that_shows_each_moment_in_its_turn() -> None:
    svg = (PLACE / "film.svg").read_text(encoding="utf-8")
    assert len(svg) < 1_200_000
    xml.etree.ElementTree.fromstring(svg)
    holds = [each.seconds for each in PICTURES["film"].walk if isinstance(each, Hold)]
    assert 14 <= sum(holds) <= 16
    turns = re.findall(r"@keyframes (g\d+)\{((?:[^{}]*\{visibility:\w+\})+)\}", svg)
    shown = [re.findall(r"visibility:(\w+)", steps) for _, steps in turns]
    assert {len(each) for each in shown} == {len(holds)}
    for moment in range(len(holds)):
        assert any(each[moment] == "visible" for each in shown)
    for first, second in pairwise(range(len(holds))):
        assert any(each[first] != each[second] for each in shown)
    assert {name for name, _ in turns} < set(re.findall(r'class="(g\d+)"', svg))


def test_a_walk_leads_to_what_it_shows() -> None:
    drawn = asyncio.run(take(PICTURES["prompt"])).replace("&#160;", " ")
    assert "20 tokens, 3 of them special, of a context window of 512." in drawn
    assert "fonts.googleapis" not in drawn


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PICTURES))
def test_no_picture_is_older_than_the_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows but two are those that the program draws today, and four where times decide what is told; the roofline
    says how busy the machine is."""
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    kept, now = (PLACE / f"{name}.svg").read_text(encoding="utf-8"), asyncio.run(take(PICTURES[name]))
    others = sorted(rows(kept) ^ rows(now))
    assert len(others) <= {"costs": 16, "film": 8, "time": 8, "race": 4}.get(name, 4), others


def rows(svg: str) -> set[str]:
    """The rows of a picture without blanks, numbers and what bars are made of."""
    by_row: dict[str, str] = {}
    for y, text in re.findall(r'<text class="[^"]*" x="[^"]*" y="([^"]*)"[^>]*>([^<]*)</text>', svg):
        by_row[y] = (
            by_row.get(y, "") + re.sub(r"&#160;|[\d.,]+|[─-▟⠀-⣿]|\b[mµ]?s\b|\b[KM]iB\b", "", text).strip()
        )
    return set(by_row.values())
