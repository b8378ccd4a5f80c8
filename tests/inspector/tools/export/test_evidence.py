"""What was looked at inside the model is on the page: in its panel, printed, and where no script runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.protocol import (
    CaptureFacts,
    Check,
    Intervene,
    LensCell,
    LensColumn,
    LensRead,
    LensToken,
    LockstepOpened,
    LockstepRead,
    LockstepSpan,
    Record,
    Step,
)
from engine.trace import Entry, save_as
from inspector.state.inside import Looks
from inspector.state.lockstep import LockstepSoFar
from inspector.tools.export.documents import FORMATS
from inspector.tools.export.recording import Recording, line, read, snapshot
from tests.inspector.fakes import Session, facts
from tests.inspector.fakes import session as session_of
from tests.inspector.tools.attention.heads import on
from tests.inspector.tools.attention.heads import read as attention
from tests.inspector.tools.attribution.reads import read as contributions
from tests.inspector.tools.export.browser import Browser, installed
from tests.inspector.tools.interventions.units import STRONGEST, candidate, effect, sweep

SEEN = CaptureFacts((Check("forward", 0.0, 0.0), Check("lens", 2e-6, 1e-5)), 3.0, 1.0, "llama")
NAMES = (
    "Where the model looked", "What each layer would predict", "rather than", "What each part is worth",
    "With L2 h1 off", "Beside a second model",
)  # fmt: skip
WITH = (
    "parts sum to logits (1e-07)", "L2 MLP", "lens = logits (2e-06)", "L2 h1", "1.25", "12.50 %", "Q has first",
    "mean KL(P||Q)", "as one alone (0)", "rows sum to 1 (2e-07)",
)  # fmt: skip


def looked_at(session: Session, node: int, tokens: int, failed: bool = False) -> list[Record]:
    """All that can be looked at where a token went through the model."""
    broken = CaptureFacts((Check("parts", 1.0, 1e-5),), 3.0, 1.0, "llama")
    own = {"facts": broken} if failed else {}
    cell = LensCell((LensToken(5, " toys", 0.5),), 1.0, 1)
    records = [
        attention(node, tokens, lambda layer, head: on(2, tokens), **own),
        LensRead(node, (LensColumn(node, (cell, cell)),), (), broken if failed else SEEN),
        contributions(node, (7, 9), **own),
        sweep(node, **own),
        effect(Intervene(node, (STRONGEST,)), **own),
    ]
    session.records += records
    return records


def beside(session: Session, node: int) -> None:
    """A second model read a token that the two part over."""
    lists = (candidate(1, " cat", 0.5, 1),), (candidate(2, "[/b]", 0.75, 1),)
    span = LockstepSpan(node, 7, 1, 1, " x", b" x", -1.0, -2.0, 1, 1, 1.5, 2.5, 0.693147, 1, 3, False, *lists)
    session.records += [
        LockstepOpened(facts(), "pocket, 4-bit", "ids"),
        LockstepRead(node, 7, (span,), 8, 8, 1.0, 2.0),
    ]


def looked(failed: bool = False, tip: bool = False) -> Recording:
    session = session_of(5)
    step = session.timeline().steps[-1 if tip else 2]
    looked_at(session, step.node, step.position + 1, failed)
    if not failed:
        beside(session, step.node)
    return line(Recording(session.timeline()))


def printed(recording: Recording) -> str:
    """The part of the page that is printed, and read where no script runs, as text."""
    found = re.search(
        r'<section id="evidence">(.*?)</section>\n<footer', FORMATS["html"].make(recording), re.DOTALL
    )
    return re.sub(r"<[^>]*>", " ", found[1]).replace("&amp;", "&") if found else ""


@pytest.mark.parametrize("tip", [False, True])
def test_all_that_was_looked_at_is_in_the_document_itself_with_its_checks(tip: bool) -> None:
    shown = printed(looked(tip=tip))
    assert [name for name in (*NAMES, *WITH) if name not in shown] == []


def test_a_recording_has_it_too_and_so_has_a_running_session(tmp_path: Path) -> None:
    session = session_of(5)
    step = session.timeline().steps[2]
    looked_at(session, step.node, step.position + 1)
    beside(session, step.node)
    save_as(tmp_path / "a.jsonl", [Entry(record, 0.1) for record in session.records], "test 1")
    timeline = session.timeline()
    running = snapshot(timeline, None, None, "test 1")
    timeline.of(Looks).sweeps.clear()
    timeline.of(LockstepSoFar).spans.clear()
    for recording in (read(tmp_path / "a.jsonl"), running):
        assert [name for name in NAMES if name not in printed(recording)] == []


def test_a_view_whose_check_failed_is_not_on_the_page() -> None:
    assert printed(looked(failed=True)) == ""


def test_a_session_that_nobody_looked_into_has_no_such_section() -> None:
    assert printed(line(Recording(session_of(3).timeline()))) == ""


def test_the_map_of_a_large_model_stays_small_and_a_made_up_one_too() -> None:
    session = session_of(5)
    step = session.timeline().steps[2]
    swept = sweep(step.node, layers=94, heads=64)
    session.records.append(swept)
    page = FORMATS["html"].make(line(Recording(session.timeline())))
    assert len(page) < 300_000
    assert "L88" in page
    far = replace(swept.units[0], intervention=replace(swept.units[0].intervention, layer=10**9))
    nothing = replace(swept.units[1], kl_bits=float("nan"))
    session.records[-1] = replace(swept, units=(far, nothing))
    page = FORMATS["html"].make(line(Recording(session.timeline())))
    assert "L1000000001" in page
    assert len(page) < 200_000


# ---- in a browser -------------------------------------------------------------------------------

in_a_browser = pytest.mark.skipif(installed() is None, reason="needs Chromium or Chrome")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def opened(browser: Browser, recording: Recording, path: Path) -> None:
    path.write_text(FORMATS["html"].make(recording), encoding="utf-8")
    browser.open(path.as_uri())


@in_a_browser
def test_the_panel_folds_them_under_the_token_that_they_predicted(browser: Browser, tmp_path: Path) -> None:
    recording = looked()
    opened(browser, recording, tmp_path / "page.html")
    browser.click("#more .told")
    node = browser.value("tokens.node[state.rows[state.chosen]]")
    steps = [item for item in recording.items if isinstance(item, Step)]
    assert node == steps[3].node
    names = browser.value("[...document.querySelectorAll('#panel summary')].map((each) => each.textContent)")
    assert [name for name in NAMES[:-1] if not any(name in each for each in names)] == []
    assert browser.value("document.querySelector('#panel .map').getBoundingClientRect().height") > 0
    browser.press("ArrowLeft")
    names = browser.value("[...document.querySelectorAll('#panel summary')].map((each) => each.textContent)")
    assert any("second model" in name for name in names)
    assert not any("worth" in name for name in names)
    browser.press("ArrowRight")
    assert browser.value("document.querySelectorAll('#panel details[open]').length") >= 4, (
        "what was open stays so"
    )
    assert browser.value("document.getElementById('evidence').getBoundingClientRect().height") == 0
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value("document.getElementById('evidence').getBoundingClientRect().height") > 500
    browser.call("Emulation.setEmulatedMedia", media="")
    assert browser.complaints == []


@in_a_browser
def test_the_divergence_of_a_second_model_colours_the_text(browser: Browser, tmp_path: Path) -> None:
    opened(browser, looked(), tmp_path / "page.html")
    browser.click("#metrics button[value=KL]")
    assert browser.value("document.querySelectorAll('#text .t.h4').length") == 1
    assert browser.complaints == []


@in_a_browser
def test_at_the_end_of_the_text_the_panel_has_what_would_come(browser: Browser, tmp_path: Path) -> None:
    opened(browser, looked(tip=True), tmp_path / "page.html")
    browser.press("End")
    assert "What comes after it" in browser.value("document.querySelector('#panel').textContent")
    assert browser.value("document.querySelectorAll('#panel .map').length") == 1


@in_a_browser
def test_where_no_script_runs_it_stands_below_the_text(browser: Browser, tmp_path: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    opened(browser, looked(), tmp_path / "page.html")
    assert browser.value("document.body.className") == ""
    assert browser.value("document.getElementById('evidence').getBoundingClientRect().height") > 500
    assert browser.value("document.getElementById('panel').getBoundingClientRect().height") == 0
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
