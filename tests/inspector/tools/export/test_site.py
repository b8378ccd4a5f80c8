"""The folder of pages: whole, with links that lead somewhere, and in a browser at three widths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.cli import main as cli
from inspector.demo import DEMONSTRATION
from inspector.lessons.catalogue import ORDER
from inspector.lessons.courses import ORDER as COURSES
from inspector.main.help_pages import PAGES, TOPICS
from tests.inspector.story import STORY
from tests.inspector.tools.export.browser import Browser, installed

WIDTHS = (390, *(pytest.param(width, marks=pytest.mark.slow) for width in (1280, 768)))
"""Of a window; a telephone's, where pages are too wide first, is tried in the quick suite."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    assert cli.main(["export", "--site", str(place), str(STORY), str(STORY), str(DEMONSTRATION)]) == 0
    return place


def test_it_has_all_lessons_the_recordings_and_the_whole_help(folder: Path) -> None:
    pages = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.html")}
    assert pages == {
        "index", "recordings/demonstration", "recordings/story", "recordings/story-2",
        *(f"lessons/{name}" for name in ORDER), *(f"lessons/{name}-exercises" for name in COURSES),
        *(f"help/{name}" for name, *_ in (*PAGES, *TOPICS)),
    }  # fmt: skip


def test_every_link_leads_to_a_page_and_a_heading_of_it(folder: Path) -> None:
    found = 0
    for path in folder.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", html)
        for href in re.findall(r'<a href="([^"]*)"', html):
            place, _, heading = href.partition("#")
            if not href.startswith("https://"):
                target = (path.parent / place).resolve() if place else path
                assert target.is_file(), (path, href)
                assert not heading or f'id="{heading}"' in target.read_text(encoding="utf-8"), (path, href)
                found += 1
    assert found > 80


def test_a_folder_that_has_an_index_is_replaced_only_where_a_person_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", "--site", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err
    assert cli.main(["export", "--site", str(folder), "--to", "md"]) == 2
    assert cli.main(["export", str(DEMONSTRATION), str(DEMONSTRATION), "-o", "x.html"]) == 2
    assert "Add --site DIR" in capsys.readouterr().err


@pytest.fixture(scope="module", params=WIDTHS)
def browser(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Browser]:
    if installed() is None:
        pytest.skip("needs Chromium or Chrome")
    width: int = request.param
    with Browser(tmp_path_factory.mktemp("profile"), size=(max(width, 500), 900)) as found:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        found.call("Emulation.setDeviceMetricsOverride", **size)
        yield found


@pytest.mark.parametrize(
    "name",
    [
        "index",
        "help/concepts",
        "help/courses",
        "help/command-line",
        "help/figures",
        "recordings/demonstration",
    ],
)
def test_no_page_is_wider_than_the_window_or_asks_anybody_for_anything(
    browser: Browser, folder: Path, name: str
) -> None:
    browser.open((folder / f"{name}.html").as_uri())
    wide, window = browser.value("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= window
    assert browser.complaints == []


def test_a_link_opens_the_page_at_a_token_with_a_view(browser: Browser, folder: Path) -> None:
    url = (folder / "recordings/story.html").as_uri()
    browser.open(f"{url}#step=5")
    where = "document.querySelector('#panel .where').textContent"
    assert str(browser.value(where)).startswith("step 5 ·")
    browser.value("location.hash = '#step=9'")
    browser.becomes(f"{where}.startsWith('step 9 ·')", True)
    link = str(browser.value("document.querySelector('#panel .steps a').getAttribute('href')"))
    browser.value("location.hash = '#step=1'")
    browser.becomes(f"{where}.startsWith('step 1 ·')", True)
    browser.value(f"location.hash = '{link}'")
    browser.becomes(f"{where}.startsWith('step 9 ·')", True)
    assert browser.complaints == []
