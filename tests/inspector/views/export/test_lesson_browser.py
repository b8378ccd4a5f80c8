"""The page of a lesson in a real browser: it asks, waits and reveals, by mouse and by keys, and asks for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.documents.exports import EXPORTS
from inspector.export.lesson_page import ShownBeat, page, shown
from inspector.lessons.catalogue import shipped
from tests.inspector.views.export.browser import Browser, installed
from tests.inspector.views.export.test_lesson_page import IMAGE, recorded

pytestmark = pytest.mark.skipif(installed() is None, reason="needs Chromium or Chrome")
PHONE = (390, 844)
CONTRAST = """(() => {
  const rgba = (colour) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] / 255 + below[at] * (1 - top[3] / 255));
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const own = rgba(getComputedStyle(element).backgroundColor);
    const below = own[3] === 255 ? own : ground(element.parentElement);
    return over(own, below);
  };
  const light = (rgb) => rgb.map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const low = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, .heard, :disabled")) continue;
    const below = ground(element), ink = over(rgba(getComputedStyle(element).color), below);
    const [one, other] = [light(ink), light(below)].sort((a, b) => b - a);
    if ((one + .05) / (other + .05) < 4.5) low.push(`${element.className}: ${walker.currentNode.data.slice(0, 40)}`);
  }
  return low;
})()"""
"""Texts in view whose contrast is too low, as WCAG has it."""


class Reader:
    """Somebody before the page.

    Args:
        browser: Shows it.
        beats: What it was made of.
    """

    def __init__(self, browser: Browser, beats: list[ShownBeat]) -> None:
        self.browser, self.beats = browser, beats

    def text(self) -> str:
        """What is in view."""
        return str(self.browser.value("document.body.innerText"))

    def marked(self, selector: str) -> list[str]:
        """Texts of the elements of a kind that are in view."""
        every = f"[...document.querySelectorAll('{selector}')]"
        script = f"{every}.filter((each) => each.checkVisibility()).map((each) => each.innerText)"
        found: list[str] = self.browser.value(script)
        return found

    def unrevealed(self, number: int) -> None:
        """Nothing that a beat reveals is in view, and no other beat."""
        beat = self.beats[number]
        text = self.text()
        assert self.marked(".beat h2") == [f"{number + 1}/{len(self.beats)} {beat.beat.title}"]
        assert self.marked(".after, .why, .verdict, .answer, .sign") == [""] * len(self.marked(".sign"))
        assert not [why for why in beat.card.why if why in text]

    def revealed(self, number: int, guess: int) -> None:
        """What it reveals is in view, and whether the guess was right."""
        card, question = self.beats[number].card, self.beats[number].beat.question
        text = self.text()
        assert all(why in text for why in card.why)
        if question is not None and card.right is not None:
            right = guess == card.right
            assert self.marked(".verdict")[0].startswith("✓ Right" if right else "✗ Not")
            assert self.marked(".option.right span:nth-child(2)") == [question.options[card.right].text]
            assert len(self.marked(".option.wrong")) == (not right)
            assert self.marked(".verdict")[0] in self.browser.value(
                "document.getElementById('told').textContent"
            )
        if self.beats[number].after is not None:
            assert (len(self.marked(".before")), len(self.marked(".after"))) == (0, 1)
        assert self.browser.value("document.activeElement.id") == "next"

    def guess(self, number: int, right: bool) -> int:
        """An option that is right, or not."""
        card, question = self.beats[number].card, self.beats[number].beat.question
        if question is None or card.right is None:
            return 0
        return card.right if right else (card.right + 1) % len(question.options)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[ShownBeat], str]:
    """A lesson of all kinds of beats, and the address of its page."""
    folder = tmp_path_factory.mktemp("lesson")
    listed = recorded(folder)
    path = folder / "page.html"
    path.write_text(page(listed.lesson, listed.trace, EXPORTS), encoding="utf-8")
    return shown(listed.lesson, listed.trace, EXPORTS), path.as_uri()


@pytest.fixture
def reader(browser: Browser, hostile: tuple[list[ShownBeat], str]) -> Reader:
    beats, url = hostile
    browser.open(url)
    return Reader(browser, beats)


def test_it_is_gone_through_by_mouse_right_and_wrong(reader: Reader) -> None:
    browser, asked = reader.browser, 0
    for number, each in enumerate(reader.beats):
        now = f"#card-{number + 1}"
        guess = reader.guess(number, right=number % 2 == 1)
        if each.beat.question is not None:
            asked += 1
            reader.unrevealed(number)
            browser.click(f"{now} .options li:nth-child({guess + 1}) button")
        if each.beat.question is not None and each.beat.act:
            browser.click(f"{now} .options li:nth-child({(guess + 1) % 2 + 1}) button")  # it is locked
            assert browser.value(f"document.querySelectorAll('{now} [aria-pressed=true]').length") == 1
        if each.beat.act:
            reader.unrevealed(number)
            browser.click(f"{now} .do button")
        if each.beat.question is not None or each.beat.act:
            reader.revealed(number, guess)
        browser.click("#next")
    right = sum(number % 2 == 1 for number, each in enumerate(reader.beats) if each.beat.question is not None)
    assert f"{right} of {asked} predictions {'was' if right == 1 else 'were'} right." in reader.text()
    assert reader.marked(".beat") == []
    browser.click("#next")  # again from the start: nothing is left of the answers
    browser.click("#next")
    reader.unrevealed(1)
    assert browser.complaints == []


def test_it_is_gone_through_by_keys(reader: Reader) -> None:
    browser = reader.browser
    for number, each in enumerate(reader.beats):
        guess = reader.guess(number, right=True)
        if each.beat.question is not None:
            browser.press("Enter")  # it waits for a prediction
            browser.press("9")
            reader.unrevealed(number)
            browser.press(str(guess + 1))
        if each.beat.act:
            reader.unrevealed(number)
            browser.press("Enter")
        if each.beat.question is not None or each.beat.act:
            reader.revealed(number, guess)
        browser.press("Enter")
    assert "3 of 3 predictions were right." in reader.text()
    browser.press("ArrowLeft")
    assert len(reader.marked(".why")) == 1  # what was revealed stays
    assert reader.marked(".beat h2")[0].startswith(f"{len(reader.beats)}/")
    assert browser.complaints == []


def test_a_shipped_lesson_is_gone_through(browser: Browser, tmp_path: Path) -> None:
    listed = shipped()[0]
    path = tmp_path / "page.html"
    path.write_text(page(listed.lesson, listed.trace, EXPORTS), encoding="utf-8")
    browser.open(path.as_uri())
    reader = Reader(browser, shown(listed.lesson, listed.trace, EXPORTS))
    for number, each in enumerate(reader.beats):
        guess = reader.guess(number, right=False)
        if each.beat.question is not None:
            reader.unrevealed(number)
            browser.press(str(guess + 1))
        if each.beat.act:
            browser.press("Enter")
        if each.beat.question is not None or each.beat.act:
            reader.revealed(number, guess)
        browser.press("Enter")
    assert "0 of" in reader.text()
    assert (browser.complaints, browser.requests) == ([], [path.as_uri()])


def test_it_asks_for_nothing_and_runs_nothing_foreign(
    reader: Reader, hostile: tuple[list[ShownBeat], str]
) -> None:
    browser = reader.browser
    for _ in range(4 * len(reader.beats)):
        browser.press("2")
        browser.press("Enter")
    assert browser.requests == [hostile[1]]
    assert browser.value("performance.getEntriesByType('resource').length") == 0
    assert browser.value("typeof pwned") == "undefined"
    assert browser.value("document.scripts.length") == 1
    assert (
        browser.value(
            "document.querySelectorAll('img, iframe, a, form, [style], [href], [src], [onerror]').length"
        )
        == 0
    )
    assert IMAGE in browser.value("document.body.textContent")
    assert browser.complaints == []


def test_the_policy_lets_nothing_else_run(reader: Reader) -> None:
    reader.browser.value("""(() => { const script = document.createElement('script');
        script.textContent = 'window.pwned = 1'; document.body.append(script); })()""")
    assert reader.browser.value("typeof window.pwned") == "undefined"
    assert any("Content Security Policy" in each for each in reader.browser.complaints)


def test_without_scripts_it_is_a_document_with_folded_answers(
    browser: Browser, hostile: tuple[list[ShownBeat], str]
) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(hostile[1])
        reader = Reader(browser, hostile[0])
        titles = [f"{number}/5 {each.beat.title}" for number, each in enumerate(reader.beats, 1)]
        assert reader.marked(".beat h2") == titles
        folded = [each for each in reader.beats if each.beat.question is not None or each.beat.act]
        assert not [why for each in folded for why in each.card.why if why in reader.text()]
        browser.click("#card-2 summary")
        assert all(why in reader.text() for why in reader.beats[1].card.why)
        assert "The answer: boy" in reader.text()
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_text_can_be_read_on_a_phone_too(reader: Reader, scheme: str) -> None:
    browser = reader.browser
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    width, height = PHONE
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True
    )
    try:
        for number in range(len(reader.beats)):
            assert browser.value(CONTRAST) == []
            browser.press(str(reader.guess(number, right=number > 1) + 1))
            assert browser.value(CONTRAST) == []
            if not browser.value(f"document.querySelector('#card-{number + 1} .do')?.hidden ?? true"):
                browser.press("Enter")
            assert browser.value(CONTRAST) == []
            assert browser.value("document.documentElement.scrollWidth") == width
            browser.press("ArrowRight")
        assert browser.value(CONTRAST) == []
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")
        browser.call("Emulation.setEmulatedMedia", features=[])


def test_printed_it_has_all_beats_and_the_answers_that_were_revealed(reader: Reader) -> None:
    browser = reader.browser
    browser.press("ArrowRight")
    browser.press(str(reader.guess(1, right=True) + 1))
    browser.press("Enter")
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert len(reader.marked(".beat h2")) == len(reader.beats)
        text = reader.text()
        assert reader.beats[1].card.why[0] in text
        assert not [why for each in reader.beats[2:] for why in each.card.why if why in text]
        assert reader.marked("#nav, .end") == []
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


def test_a_beat_can_be_named_in_the_address(reader: Reader, hostile: tuple[list[ShownBeat], str]) -> None:
    reader.browser.open(hostile[1] + "#card-3")
    reader.unrevealed(2)
    reader.browser.open(hostile[1] + "#card-999")
    assert "The end" in reader.text()
