"""The exported page in a real browser: it does what it says, runs nothing foreign, and asks for nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.protocol import (
    AttentionLayer,
    AttentionRead,
    CaptureFacts,
    LensCell,
    LensColumn,
    LensRead,
    LensToken,
    Marked,
    Step,
    floats,
)
from engine.settings import Settings
from inspector.documents.exports import EXPORTS
from inspector.export.documents import FORMATS
from inspector.export.recording import Recording, line, read
from tests.inspector.fakes import HOSTILE, Session
from tests.inspector.story import STORY
from tests.inspector.views.export.browser import Browser, installed

pytestmark = pytest.mark.skipif(installed() is None, reason="needs Chromium or Chrome")

MARKUP = (
    "<img src=x onerror=pwned=1>", "</script><script>pwned=1</script>", "<!--<script>", "-->", "\u2028", "\u2029",
    "{{data}}", "{{script}}", "</style><style>*{display:none}</style>", "<svg onload=pwned=1>", '"><b>bold</b>',
    "' onmouseover='pwned=1", "javascript:pwned=1", "https://example.com/x.png", "&lt;b&gt;", "</title>", "\\u003c",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>", "<a href=javascript:pwned=1>x</a>", "]]>", "<base href=//x>",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, str]:
    """The demonstration, and the address of its page."""
    recording = read(STORY)
    return recording, written(recording, tmp_path_factory.mktemp("page") / "demonstration.html")


def written(recording: Recording, path: Path) -> str:
    path.write_text(FORMATS["html"](recording), encoding="utf-8")
    return path.as_uri()


def hostile() -> Recording:
    """A session in which every text that there is wants to be more than text."""
    told = Session(story=(*MARKUP, *HOSTILE), count=24, top_p=1.0)
    told.load(name=MARKUP[0], family=MARKUP[1], notes=(MARKUP[9],))
    told.open((*MARKUP[:4], *HOSTILE[:6]))
    told.steps(len(MARKUP) + len(HOSTILE))
    timeline = told.timeline()
    for place, markup in enumerate(MARKUP[:6]):
        timeline.apply(Marked(timeline.steps[place].node, markup, True, markup, markup))
    settings = Settings(temp=0.8, stop=(MARKUP[1],))
    return line(Recording(timeline, settings, program=MARKUP[0], created=MARKUP[1]))


def label(browser: Browser) -> str:
    return str(browser.value("document.querySelector('#panel .token').textContent"))


def candidates(browser: Browser) -> list[list[str]]:
    """Token, model and sampler of each line of the panel."""
    return browser.value("""[...document.querySelectorAll('.candidates tbody tr')].map((row) =>
        [1, 3, 4].map((place) => row.children[place].textContent))""")  # type: ignore[no-any-return]


def test_a_click_shows_the_candidates_of_that_token(
    browser: Browser, demonstration: tuple[Recording, str]
) -> None:
    recording, url = demonstration
    browser.open(url)
    step = next(item for item in recording.items if item.text == " wall")
    assert isinstance(step, Step)
    browser.click(f"#text [data-place='{step.position}'] i")
    assert label(browser) == "␣wall"
    told = candidates(browser)
    assert told[0] == ["␣pond", "25.58 %", "35.83 %"]
    assert [each[0] for each in told[:-1]] == ["␣" + each.text.strip() for each in step.choice.candidates]
    assert told[-1][0].endswith("others")
    assert "A surprise" in browser.value("document.querySelector('#panel .caption').textContent")
    assert browser.value("document.querySelector('.candidates .taken .label').textContent") == "␣wall"
    assert browser.complaints == []


def test_pointing_at_a_token_shows_it_until_the_pointer_leaves(
    browser: Browser, demonstration: tuple[Recording, str]
) -> None:
    browser.open(demonstration[1])
    chosen = label(browser)
    browser.point("#text [data-place='9'] i")
    assert label(browser) == "␣boy"
    browser.point("h1")
    assert label(browser) == chosen


def test_keys_walk_and_change_the_colour_and_the_branch(
    browser: Browser, demonstration: tuple[Recording, str]
) -> None:
    browser.open(demonstration[1] + "#node=10")
    assert label(browser) == "␣boy"
    browser.press("ArrowRight")
    assert label(browser) == "␣named"
    browser.press("m")
    assert browser.value("document.querySelector('#metrics [aria-checked=true]').textContent") == "entropy"
    browser.press("]")
    assert label(browser) == "␣dog"
    assert "dog named Spot" in browser.value("document.getElementById('text').textContent")
    assert browser.value("location.hash").endswith("&colour=entropy")


def test_a_link_opens_the_page_at_a_step(browser: Browser, demonstration: tuple[Recording, str]) -> None:
    browser.open(demonstration[1] + "#step=5")
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


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_the_page_is_no_wider_than_the_window(
    browser: Browser, demonstration: tuple[Recording, str], width: int
) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.open(demonstration[1])
        assert browser.value("document.documentElement.scrollWidth") <= width
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")


def test_a_cut_candidate_says_what_cut_it(browser: Browser, demonstration: tuple[Recording, str]) -> None:
    browser.open(demonstration[1] + "#node=6")
    assert candidates(browser)[2][2] == "top-p"
    assert browser.value("document.querySelectorAll('.candidates .cut').length") == 18


def test_it_asks_for_nothing_but_itself(browser: Browser, demonstration: tuple[Recording, str]) -> None:
    url = demonstration[1]
    browser.open(url)
    for key in ("n", "n", "]", "m", "End"):
        browser.press(key)
    assert browser.requests == [url]
    assert browser.value("performance.getEntriesByType('resource').length") == 0


def test_the_policy_lets_nothing_else_run_or_load(
    browser: Browser, demonstration: tuple[Recording, str]
) -> None:
    url = demonstration[1]
    browser.open(url)
    browser.value("""(() => { const script = document.createElement('script'); script.textContent = 'window.pwned = 1';
        const image = document.createElement('img'); image.src = 'https://example.com/x.png';
        const frame = document.createElement('iframe'); frame.src = 'https://example.com/';
        document.body.append(script, image, frame); document.body.setAttribute('onclick', 'window.pwned = 1');
        document.body.click(); return fetch('https://example.com/').catch(() => 0); })()""")
    assert browser.value("typeof window.pwned") == "undefined"
    assert [each for each in browser.requests if "example.com" in each and not blocked(browser, each)] == []
    assert any("Content Security Policy" in each for each in browser.complaints)


def blocked(browser: Browser, address: str) -> bool:
    """Whether the policy, and not the lack of a network, kept a request back."""
    asked = [
        each["requestId"]
        for each in browser.seen("Network.requestWillBeSent")
        if each["request"]["url"] == address
    ]
    failed = {each["requestId"]: each.get("blockedReason") for each in browser.seen("Network.loadingFailed")}
    return all(failed.get(each) == "csp" for each in asked)


def test_hostile_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    recording = hostile()
    url = written(recording, tmp_path / "hostile.html")
    browser.open(url)
    names = set(
        browser.value("[...new Set([...document.querySelectorAll('*')].map((each) => each.localName))]")
    )
    walked = [label(browser)]
    for _ in range(len(recording.items)):
        browser.press("ArrowRight")
        walked.append(label(browser))
    names |= set(
        browser.value("[...new Set([...document.querySelectorAll('*')].map((each) => each.localName))]")
    )
    assert names.isdisjoint({"img", "iframe", "base", "object", "embed", "link", "form", "input", "template"})
    links = browser.value("[...document.querySelectorAll('a')].map((each) => each.getAttribute('href'))")
    assert all(re.fullmatch(r"#node=\d+(&tool=\w+)*", link) for link in links)
    assert browser.value("document.scripts.length") == 2
    assert browser.value("document.querySelectorAll('style').length") == 1
    assert browser.value("typeof pwned") == "undefined"
    obeyed = "[onerror], [onload], [onmouseover], [style], [href]:not(#panel .steps a)"
    assert browser.value(f"document.querySelectorAll('{obeyed}').length") == 0
    assert (browser.complaints, browser.requests) == ([], [url])
    shown = browser.value("document.getElementById('text').textContent")
    for markup in MARKUP:
        assert markup.replace("\u2028", "‹2028›").replace("\u2029", "‹2029›") in shown
    assert "</script><script>pwned=1</script>" in walked


def test_what_nobody_would_see_is_made_visible(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(hostile(), tmp_path / "hostile.html"))
    shown = browser.value("document.getElementById('text').textContent")
    assert {"‹202E›evil‹202C›", "␛[31m", "‹009B›31m", "␀", "␡", "‹200B›", "‹D83D›"} <= {
        each
        for each in ("‹202E›evil‹202C›", "␛[31m", "‹009B›31m", "␀", "␡", "‹200B›", "‹D83D›")
        if each in shown
    }
    everything = browser.value("document.documentElement.textContent")
    assert not [char for char in everything if ord(char) < 32 and char not in "\n"]
    assert not set("\u202e\u202c\u200b\u2028\u2029\x7f\x9b") & set(everything)


def test_a_session_without_a_step_is_a_page_too(browser: Browser, tmp_path: Path) -> None:
    told = Session()
    told.load()
    told.open()
    browser.open(written(line(Recording(told.timeline())), tmp_path / "prompt.html"))
    assert browser.complaints == []
    assert browser.value("document.getElementById('text').textContent") == "Once upon a time,"
    browser.press("ArrowLeft")
    assert label(browser) == "␣time"


def test_unfinished_characters_and_lines_read_as_they_do_on_the_screen(
    browser: Browser, tmp_path: Path
) -> None:
    told = Session(story=(" fox ", b"\xf0\x9f", b"\xa6\x8a", "\n", "Then"))
    told.load()
    told.open()
    told.steps(2)
    browser.open(written(line(Recording(told.timeline())), tmp_path / "torn.html"))
    assert browser.value("document.getElementById('text').textContent").endswith(" fox ‹F0 9F›")
    told.steps(3)
    browser.open(written(line(Recording(told.timeline())), tmp_path / "whole.html"))
    assert browser.value("document.getElementById('text').textContent").endswith("🦊↵\nThen")


def test_probabilities_that_are_none_are_told_as_such(browser: Browser, tmp_path: Path) -> None:
    """A token that the model gives no probability at all has infinite surprisal."""
    told = Session()
    told.load()
    told.open()
    last = told.steps(3)[-1]
    assert isinstance(last, Step)
    timeline = told.timeline()
    barred = replace(last, logprob=float("-inf"), prob=0.0, surprisal_bits=float("inf"))
    timeline.items[-1] = timeline.tree.nodes[last.node] = barred
    browser.open(written(line(Recording(timeline)), tmp_path / "barred.html"))
    browser.press("End")
    assert browser.complaints == []
    numbers = browser.value("document.querySelector('#panel .numbers').textContent")
    assert "probability0 %" in numbers
    assert "surprisal" not in numbers


def test_what_was_looked_at_inside_is_shown_as_text_and_colours_it(browser: Browser, tmp_path: Path) -> None:
    told = Session(story=(*MARKUP, *HOSTILE), count=24)
    told.load()
    told.open(MARKUP[:4])
    told.steps(3)
    timeline = told.timeline()
    step = timeline.steps[1]
    tokens = step.position
    row = [0.0] * tokens
    row[1], row[tokens - 1] = 0.75, 0.25
    layers = (AttentionLayer(0, "fused", 1, floats([*[0.0] * (tokens - 1), 1.0, *row], (2, tokens)), tokens),)
    facts = CaptureFacts((), 1.0, 1.0, "llama")
    timeline.apply(AttentionRead(step.parent, tokens, layers, 1, (), facts))
    cells = tuple(LensCell((LensToken(5, MARKUP[0], 0.5),), 1.0, rank) for rank in (9, 1))
    timeline.apply(LensRead(step.parent, (LensColumn(step.parent, cells),), (), facts))
    recording = line(Recording(timeline, parts=EXPORTS))
    browser.open(written(recording, tmp_path / "inside.html") + f"#node={step.node}")
    assert browser.value("document.querySelectorAll('#panel details').length") >= 2
    browser.click("#panel details:nth-last-of-type(2) summary")
    for name in ("layer 1, head 2", "layer 1, head 1", "layer 1, head 2"):
        assert browser.value("document.querySelector('.heads b').textContent") == name
        if name.endswith("1"):
            assert browser.value("document.querySelectorAll('.weights tr').length") == 1
        browser.click(".heads button:last-child")
    browser.click(".heads button:first-child")
    shares = "[...document.querySelectorAll('.weights tr')].map((row) => row.children[2].textContent)"
    assert browser.value(shares) == ["75.0 %", "25.0 %"]
    browser.becomes("document.querySelector('#text [data-place=\"1\"]').className", "t h5")
    browser.click("#panel details:nth-last-of-type(1) summary")
    assert browser.value("document.querySelector('.lens b').textContent").startswith("<img")
    browser.press("ArrowRight")
    assert browser.value("document.querySelector('#text .t.prompt') !== null"), (
        "the colours went with the token"
    )
    assert browser.value("typeof pwned") == "undefined"
    assert browser.complaints == []
