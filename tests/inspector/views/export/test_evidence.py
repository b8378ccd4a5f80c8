"""What was looked at inside the model is on the page: in its panel, printed, and where no script runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import inspector
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
    PatchActivations,
    RaceOpened,
    RaceStep,
    ReadGradients,
    RepeatedTexts,
    Step,
    SweepStrengths,
    TryPosition,
)
from engine.recording import Entry, save_as
from inspector.documents.exports import EXPORTS
from inspector.export.documents import FORMATS, data
from inspector.export.recording import Recording, line, read, snapshot
from inspector.state.inside import Answers
from inspector.state.measured import Measured
from inspector.state.second_model import SecondModelSoFar
from tests.inspector.fakes import Session, facts
from tests.inspector.fakes import session as session_of
from tests.inspector.told_batch import DRAWN
from tests.inspector.views.attention.heads import on
from tests.inspector.views.attention.heads import read as attention
from tests.inspector.views.attention.heads import scores as roles
from tests.inspector.views.attribution.reads import read as contributions
from tests.inspector.views.export.browser import Browser, installed
from tests.inspector.views.gradients.reads import read as gradients
from tests.inspector.views.interventions.units import STRONGEST, candidate, effect, patched, sweep
from tests.inspector.views.modules.test_lines import MODULES
from tests.inspector.views.modules.test_screen import experts
from tests.inspector.views.positions.test_screen import told
from tests.inspector.views.scores.reads import read as scores
from tests.inspector.views.steering.sweeps import UP, strengths

B = "pocket, 4-bit"
BITS = Path(inspector.__file__).parent / "lessons" / "shipped" / "four-bits.trace.zst"
SEEN = CaptureFacts((Check("forward", 0.0, 0.0), Check("lens", 2e-6, 1e-5)), 3.0, 1.0, "llama")
BY_PART = {
    "odds": "What 200 draws came to",
    "attention": "Where the model looked",
    "lens": "What each layer would predict",
    "contributions": "Why “␣toys” rather than",
    "gradients": "Tokens behind “␣toys” rather than “[odd]”: integrated gradients",
    "scores": "Why L2 h1 looks there",
    "switched off": "L2 h1 off",
    "patching": "put in from",
    "steering": "Steered by L2 +up-down x1",
    "second model": "Second model",
    "race": "With the KV cache and without",
    "positions": "What if the token had another position",
    "map": "What the model is made of",
    "experts": "Experts that the token went through",
}
"""Of each part a heading."""
NAMES = (*BY_PART.values(), "Switching off one part at a time")
WITH = (
    "sums make its weights (2e-07)",
    "parts sum to logits (1e-07)", "L2 MLP", "lens = logits (2e-06)", "L2 h1", "1.25", "12.50 %", "B has first",
    "mean KL(A||B)", "as one alone (0)", "rows sum to 1 (2e-07)", "75.00 %", "chi-square", "All steps: 6.0 ms",
    "its position is 110, not 10", "blocks.N.ln1.hook_scale", "4 of 16 ran for this token",
    "Previous-token head: L2 h1 (50.00 %)",
)  # fmt: skip


def looked_at(session: Session, node: int, tokens: int, failed: bool = False, model: str = "") -> None:
    """All that can be looked at where a token went through the model; of the second model what can be of it."""
    broken = CaptureFacts((Check("parts", 1.0, 1e-5),), 3.0, 1.0, "llama")
    facts = replace(broken if failed else SEEN, model=model)
    own = {"facts": facts} if failed or model else {}
    cell = LensCell((LensToken(5, " toys", 0.5),), 1.0, 1)
    session.records += [
        attention(node, tokens, lambda layer, head: on(2, tokens), **own),
        replace(roles(node, 1000), texts=RepeatedTexts(), **own),
        LensRead(node, (LensColumn(node, (cell, cell)),), (), facts),
        contributions(node, (7, 9), **own),
        gradients(ReadGradients(node, 7, 9, "integrated"), **own),
        scores(node, tokens, **own),
    ]
    if not model:
        session.records += [
            sweep(node, **own),
            effect(Intervene(node, (STRONGEST,)), **own),
            patched(PatchActivations(node, 2, 7, 9, "layer"), **own),
            strengths(SweepStrengths(node, UP, 1), **own),
            replace(told(TryPosition(node, "token", 100)), facts=facts),
            replace(experts(node), facts=facts),
        ]
        if not failed:
            known = session.timeline().facts
            assert known is not None
            session.records.append(replace(MODULES, model=known.path, bytes=known.weight_bytes))


def measured(session: Session, node: int) -> None:
    """Draws were counted after a token, and a race was run."""
    steps = [
        RaceStep(16 + at, 5, " a", 2.0, 3.0, 2.0 * at, 3.0 * at, 7, 7, 0.0, 1024, 0) for at in range(1, 4)
    ]
    session.records += [replace(DRAWN, node=node), RaceOpened(node, 16, 19, 4, "How."), *steps]


def beside(session: Session, node: int) -> None:
    """A second model read a token that the two part over."""
    lists = (candidate(1, " cat", 0.5, 1),), (candidate(2, "[/b]", 0.75, 1),)
    span = LockstepSpan(node, 7, 1, 1, " x", b" x", -1.0, -2.0, 1, 1, 1.5, 2.5, 0.693147, 1, 3, False, *lists)
    session.records += [
        LockstepOpened(facts(), B, "ids"),
        LockstepRead(node, 7, (span,), 8, 8, 1.0, 2.0),
    ]


def session_looked_into(failed: bool = False, tip: bool = False) -> Session:
    session = session_of(5)
    step = session.timeline().steps[-1 if tip else 2]
    looked_at(session, step.node, step.position + 1, failed)
    if not failed:
        measured(session, step.node)
        beside(session, step.node)
    return session


def looked(failed: bool = False, tip: bool = False) -> Recording:
    return line(Recording(session_looked_into(failed, tip).timeline(), parts=EXPORTS))


def printed(recording: Recording) -> str:
    """The part of the page that is printed, and read where no script runs, as text."""
    found = re.search(
        r'<section id="evidence">(.*?)</section>\n<footer', FORMATS["html"](recording), re.DOTALL
    )
    return re.sub(r"<[^>]*>", " ", found[1]).replace("&amp;", "&") if found else ""


@pytest.mark.parametrize("tip", [False, True])
def test_all_that_was_looked_at_is_in_the_document_itself_with_its_checks(tip: bool) -> None:
    shown = printed(looked(tip=tip))
    assert [name for name in (*NAMES, *WITH) if name not in shown] == []


def test_the_report_has_the_same_tables_and_no_drawings() -> None:
    report = FORMATS["md"](looked())
    text = report.replace("\\", "")
    assert [name for name in (*NAMES, *WITH) if name not in text] == []
    assert "| L2 MLP | \\+7.20 |" in report
    assert "| 1 | **␣toys** |" in report
    assert [each for each in ("≥0.1", "<svg", "dashed") if each in text] == []


@pytest.mark.parametrize("part", BY_PART)
def test_each_part_goes_along_where_it_is_ticked_and_not_where_it_is_not(part: str) -> None:
    recording = looked()
    for shown, there in (([part], [part]), (set(BY_PART) - {part}, set(BY_PART) - {part})):
        recording.parts = [each for each in EXPORTS if each.name in shown]
        for text in (printed(recording), FORMATS["md"](recording).replace("\\", "")):
            assert {name for name, heading in BY_PART.items() if heading in text} == set(there)
    every = data(recording)
    assert bool(every["inside"]) == (part != "attention")
    assert bool(every["second"]) == (part != "second model")


def test_the_page_opens_the_attention_at_the_head_that_was_looked_at_last() -> None:
    recording = looked()
    heads = data(recording)["inside"][0][1]
    assert data(recording)["head"] > 0, "one that looks at something"
    layer, number, *_ = heads[0]
    recording.timeline.of(Answers).head = layer - 1, number - 1
    assert data(recording)["head"] == 0


def test_what_was_looked_at_in_the_second_model_bears_its_name_until_there_is_another() -> None:
    session = session_of(5)
    step = session.timeline().steps[2]
    beside(session, step.node)
    looked_at(session, step.node, step.position + 1, model=B)
    own, other = (
        line(Recording(session.timeline(), parts=EXPORTS)),
        line(Recording(session_looked_into().timeline(), parts=EXPORTS)),
    )
    named = f"(second model, B: {B})"
    for text in (printed(own), FORMATS["md"](own).replace("\\", "")):
        assert text.count(named) == 6
        for name in (
            "Where the model looked",
            "What each layer would predict",
            "Why “␣toys” rather than “[odd]”",
        ):
            assert f"{name} {named}" in text
    assert named not in printed(other)
    assert data(own)["inside"] == []  # the colours of the text are the session's
    session.records.append(LockstepOpened(facts(), "another", "ids"))
    assert "second model, B: " not in printed(line(Recording(session.timeline(), parts=EXPORTS)))


def test_a_recording_has_it_too_and_so_has_a_running_session(tmp_path: Path) -> None:
    session = session_looked_into()
    save_as(tmp_path / "a.trace", [Entry(record, 0.1) for record in session.records], "test 1")
    timeline = session.timeline()
    running = snapshot(timeline, None, None, "test 1")
    timeline.states[Answers] = Answers()
    timeline.of(SecondModelSoFar).spans.clear()
    race = timeline.of(Measured).race
    assert race is not None
    race.steps.clear()
    for recording in (read(tmp_path / "a.trace"), running):
        recording.parts = EXPORTS
        assert [name for name in NAMES if name not in printed(recording)] == []


def test_a_view_whose_check_failed_is_not_on_the_page() -> None:
    assert printed(looked(failed=True)) == ""


def test_a_session_that_nobody_looked_into_has_no_such_section() -> None:
    assert printed(line(Recording(session_of(3).timeline(), parts=EXPORTS))) == ""


def test_the_map_of_a_large_model_stays_small_and_a_made_up_one_too() -> None:
    session = session_of(5)
    step = session.timeline().steps[2]
    swept = sweep(step.node, layers=94, heads=64)
    session.records.append(swept)
    page = FORMATS["html"](line(Recording(session.timeline(), parts=EXPORTS)))
    assert len(page) < 300_000
    assert "L88" in page
    far = replace(swept.units[0], intervention=replace(swept.units[0].intervention, layer=10**9))
    nothing = replace(swept.units[1], kl_bits=float("nan"))
    session.records[-1] = replace(swept, units=(far, nothing))
    page = FORMATS["html"](line(Recording(session.timeline(), parts=EXPORTS)))
    assert "L1000000001" in page
    assert len(page) < 200_000


def test_what_was_put_in_a_long_text_and_many_draws_stay_small() -> None:
    session = session_of(5)
    node = session.timeline().steps[2].node
    empty = len(FORMATS["html"](line(Recording(session.timeline(), parts=EXPORTS))))
    many = tuple(replace(DRAWN.outcomes[0], id=id) for id in range(5000))
    steps = [RaceStep(at, 5, " a", 2.0, 3.0, 2.0, 3.0, 7, 7, 0.0, 1024, 0) for at in range(17, 4097)]
    session.records += [
        patched(PatchActivations(node, 2, 7, 9, "layer"), columns=4000),
        replace(DRAWN, node=node, outcomes=many),
        RaceOpened(node, 16, 4096, 4, "How."),
        *steps,
    ]
    page = FORMATS["html"](line(Recording(session.timeline(), parts=EXPORTS)))
    assert len(page) - empty < 120_000
    assert "4,976" in page or "others" in page


# ---- in a browser -------------------------------------------------------------------------------

in_a_browser = pytest.mark.skipif(installed() is None, reason="needs Chromium or Chrome")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def opened(browser: Browser, recording: Recording, path: Path) -> None:
    path.write_text(FORMATS["html"](recording), encoding="utf-8")
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
    of_tokens = [heading for part, heading in BY_PART.items() if part not in ("second model", "race", "map")]
    assert [name for name in of_tokens if not any(name in each for each in names)] == []
    assert browser.value("document.querySelector('#panel .map').getBoundingClientRect().height") > 0
    browser.press("ArrowLeft")
    names = browser.value("[...document.querySelectorAll('#panel summary')].map((each) => each.textContent)")
    assert any("second model" in name for name in names)
    assert not any("at a time" in name for name in names)
    browser.press("ArrowRight")
    assert browser.value("document.querySelectorAll('#panel details[open]').length") >= 4, (
        "what was open stays so"
    )
    assert browser.value("document.getElementById('evidence').getBoundingClientRect().height") == 0
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value("document.getElementById('evidence').getBoundingClientRect().height") > 500
    browser.call("Emulation.setEmulatedMedia", media="")
    assert browser.complaints == []


def test_the_perplexities_are_in_the_order_of_the_models() -> None:
    recording = read(BITS)
    spans = recording.timeline.of(SecondModelSoFar).along(recording.items)
    both = [(each.logprob, each.other_logprob) for each in spans if each is not None and each.whole]
    known = [pair for pair in both if None not in pair]
    means = [sum(each) / len(known) for each in zip(*known, strict=True)]  # type: ignore[arg-type]
    first, second = (f"{math.exp(-mean):.2f}" for mean in means)
    assert first != second
    recording.parts = EXPORTS
    assert f"| perplexity | {first} and {second} |" in FORMATS["md"](recording)


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
