"""One wording for one thing: entropies, prompt logprobs, the length penalty, keys with their tabs, wherever one reads
of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.breakpoints import CONDITIONS
from engine.settings import BY_NAME, STAGES
from inspector.main.key_table import key_table
from inspector.views import TOOLS

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


def test_thousands_are_parted_by_commas_alone() -> None:
    """A thin space is one more way, and a line breaks there."""
    written = {**dict(texts()), "settings": (ROOT / "engine/settings.py").read_text(encoding="utf-8")}
    assert [name for name, text in written.items() if "\u2009" in text or "\\u2009" in text] == []


def test_the_page_of_concepts_has_all_stages_in_their_order() -> None:
    concepts = (ROOT / "inspector/help/concepts.md").read_text(encoding="utf-8")
    labels = [BY_NAME[stage.setting].label for stage in STAGES.values()]
    names = [label.removesuffix(" penalty").removesuffix(" probability") for label in labels]
    rows = re.search(r"\| stage \| what it does \|\n\|---\|---\|\n((?:\|.*\n)+)", concepts)
    assert [row.split("|")[1].strip() for row in rows[1].splitlines()] == names
    drawn = [name for name, stage in zip(names, STAGES.values(), strict=True) if stage.kind != "logits"]
    assert f"{', '.join(drawn)}; then the draw" in concepts


def test_each_entropy_has_its_name_wherever_both_could_be_meant() -> None:
    entropy = next(each for each in CONDITIONS if each.name == "entropy_above")
    concepts = (ROOT / "inspector/help/concepts.md").read_text(encoding="utf-8")
    for name in ("model entropy", "sampler entropy"):
        assert name in re.sub(r"\s+", " ", concepts)
    assert "model entropy" in entropy.help


ACTIONS = key_table(TOOLS).actions
HELP = ROOT / "inspector/help"
LISTS = ("keys.md", "lessons.md", "walks.md", "events.md", "terms.md", "python.md")
"""Pages that name keys in another form."""
PAGES = [ROOT / "README.md", *(path for path in sorted(HELP.rglob("*.md")) if path.name not in LISTS)]
ROLES = "`U`, `A` and `S` in the margin"
"""No keys."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_key_behind_a_digit_is_one_of_that_tab(page: Path) -> None:
    ways = {f"{tab} {each.shown}" for each in ACTIONS for tab in each.tabs}
    written = re.findall(r"`([1-7] [^` ]+)`", page.read_text(encoding="utf-8"))
    assert [each for each in written if each not in ways] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_key_is_told_that_meant_something_before_the_tabs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"`[#%&$@!;*]`|number key|panel at the side|[Pp]ress [0-9]\b", text) == []


def test_the_actions_of_the_tabs_are_first_told_with_their_digit() -> None:
    """Those that only the main screen has: others' keys may mean something on a tool's own screen, too."""
    own = {each.shown for each in ACTIONS if each.tabs} - {
        each.shown for tool in TOOLS for table in tool.tables for each in table.actions
    }
    own -= {each.shown for each in ACTIONS if not each.tabs}
    for page in PAGES:
        for section in re.split(r"\n#+ ", page.read_text(encoding="utf-8").replace(ROLES, "")):
            first: dict[str, str] = {}
            for tab, key in re.findall(r"`([1-7] )?([A-Z])`", section):
                first.setdefault(key, tab)
            bare = [key for key, tab in first.items() if key in own and not tab]
            assert bare == [], (page.name, section.partition("\n")[0])


def test_readme_tells_the_keys_in_ten_lines() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Keys\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line]
    assert len(lines) <= 10
    tabs = {f"tab_{line[3]}": line for line in lines if line.startswith("- `")}
    assert [*tabs] == [each.id for each in ACTIONS if each.id.startswith("tab_")]
    for action in ACTIONS:
        if action.id in tabs:
            assert f"**{action.label}**" in tabs[action.id]
            assert action.told.partition(": ")[2] in tabs[action.id]
