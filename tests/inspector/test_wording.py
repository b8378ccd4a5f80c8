"""One wording for one thing: entropies, prompt logprobs and the length penalty, wherever a person reads of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.breakpoints import CONDITIONS
from engine.settings import BY_NAME, STAGES
from inspector.tools.tour.tool import STOPS

ROOT = Path(__file__).parents[2]


def texts() -> Iterator[tuple[str, str]]:
    """What a person may read: the sources, with every string in them, the help and the first page."""
    for path in (
        *ROOT.glob("inspector/**/*.py"),
        *ROOT.glob("inspector/**/*.md"),
        *ROOT.glob("inspector/**/*.js"),
    ):
        if "demo" not in path.parts:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    yield "README.md", (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "wording",
    [r"bits of choice", r"bits expected", r"bits after the sampler", r"bits of entropy", r"\*\*echo\*\*", r"\"echo \d",
     r"[Aa]bove 0 (it is )?favour", r"\(\"echo\","],
)  # fmt: skip
def test_what_misled_is_said_nowhere(wording: str) -> None:
    assert [name for name, text in texts() if re.search(wording, text)] == []


def test_the_page_of_concepts_has_all_stages_in_their_order() -> None:
    concepts = (ROOT / "inspector/help/concepts.md").read_text(encoding="utf-8")
    labels = [BY_NAME[stage.setting].label for stage in STAGES.values()]
    names = [label.removesuffix(" penalty").removesuffix(" probability") for label in labels]
    rows = re.search(r"\| stage \| what it does \|\n\|---\|---\|\n((?:\|.*\n)+)", concepts)
    assert [row.split("|")[1].strip() for row in rows[1].splitlines()] == names
    drawn = [name for name, stage in zip(names, STAGES.values(), strict=True) if stage.kind != "logits"]
    assert f"{', '.join(drawn)}; then the draw" in concepts


def test_each_entropy_has_its_name_wherever_both_could_be_meant() -> None:
    stop = next(stop for stop in STOPS if stop.panel == "candidates")
    entropy = next(each for each in CONDITIONS if each.name == "entropy_above")
    concepts = (ROOT / "inspector/help/concepts.md").read_text(encoding="utf-8")
    for name in ("model entropy", "sampler entropy"):
        assert name in stop.text
        assert name in re.sub(r"\s+", " ", concepts)
    assert "model entropy" in entropy.help
