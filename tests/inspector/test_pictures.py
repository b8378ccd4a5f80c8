"""The pictures of README: each has a walk that takes it anew, and is shown."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.pictures import PICTURES, PLACE, take

README = Path(__file__).parents[2] / "README.md"


def test_each_picture_has_a_walk_and_is_shown() -> None:
    shown = re.findall(r"inspector/pictures/([\w-]+)\.svg", README.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(PICTURES)
    assert sorted(shown) == sorted(path.stem for path in PLACE.glob("*.svg"))


def test_a_walk_leads_to_what_it_shows() -> None:
    drawn = asyncio.run(take(PICTURES["prompt"])).replace("&#160;", " ")
    assert "20 tokens, 3 of them special, of a context window of 512." in drawn
    assert "fonts.googleapis" not in drawn
