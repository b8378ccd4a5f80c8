"""The counterfactual prompt: edited in place from the text on show, counted, read, and put in where tokens face."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Ended, MoveTo, PatchActivations, Piece, Prefill, PreviewPrompt, PromptPreview
from engine.settings import LoadSettings, Settings
from engine.tree import facing
from inspector.app import InspectorApp
from inspector.views.patching import CounterfactualDialog, Patching, facing_words
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import SafeTextArea
from tests.inspector.rig import Rig
from tests.inspector.views.sampler.test_what_if_real import until

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(IDS, IDS)
def test_what_faces_each_other_is_the_same_and_as_much_as_can_be(one: list[int], other: list[int]) -> None:
    first, end = facing(one, other)
    assert one[:first] == other[:first]
    if len(one) == len(other):
        assert first + end == len(one)
        return
    short = min(len(one), len(other))
    assert first + end <= short
    assert one[len(one) - end :] == other[len(other) - end :]
    more = first + end < short
    assert not more or one[len(one) - end - 1] != other[len(other) - end - 1]
    assert facing(other, one) == (first, end)


def test_how_they_face_each_other_in_words() -> None:
    assert facing_words([1, 2, 3, 4], [1, 5, 6, 3, 4]) == (
        "4 tokens face each other, by common blocks. No token here and 1 token of the source face none."
    )
    assert "1 token here and no token of the source" in facing_words([1, 7, 2], [1, 2])
    assert facing_words([1, 2], [1, 2]) == "Both have the same tokens."
    assert "from token 2 on" in facing_words([1, 2], [1, 3])
    assert facing_words([1, 2], [1, 2, 3]).startswith("2 tokens face each other"), "their last ones do"


async def editing(rig: Rig) -> CounterfactualDialog:
    await rig.ready(steps=6)
    await rig.press("left", "left")
    await rig.do("patching")
    await rig.press("e")
    dialog = rig.app.top
    assert isinstance(dialog, CounterfactualDialog)
    return dialog


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 22), (60, 18)])
async def test_it_begins_with_the_text_on_show_and_counts_its_tokens(rig: Rig, size: tuple[int, int]) -> None:
    dialog = await editing(rig)
    path = rig.timeline.items[: rig.timeline.slot]
    assert dialog.typed == "".join(item.text for item in path)
    await rig.until(lambda: any(isinstance(each, PreviewPrompt) for each in rig.engine.asked))
    pieces = [Piece(item.id, item.text, item.raw, False) for item in path]
    pieces.insert(2, Piece(9, " big", b" big", False))
    await rig.push([PromptPreview(len(pieces), 0, 2, tuple(pieces), (), ()), Ended("PreviewPrompt")])
    said = str(dialog.query_one("#counterfactual-remark", Remark).render())
    assert said.startswith(f"{len(path) + 1} tokens, {len(path)} here. {len(path)} tokens face each other")
    assert "big" in rig.screen_text()
    assert "ctrl+s" in rig.screen_text()


async def test_an_unchanged_text_is_not_read(rig: Rig) -> None:
    dialog = await editing(rig)
    rig.engine.sent.clear()
    await rig.press("ctrl+s")
    assert rig.app.top is dialog
    assert "Change a word of it" in str(dialog.query_one("#counterfactual-remark", Remark).render())
    await rig.press("escape")
    assert isinstance(rig.app.top, Patching)
    assert rig.engine.sent == []


async def test_while_it_is_read_nothing_is_asked_and_a_failure_is_said(rig: Rig) -> None:
    dialog = await editing(rig)
    slot = rig.timeline.slot
    dialog.query_one("#counterfactual-text", SafeTextArea).load_text("Something else")
    rig.engine.sent.clear()
    await rig.press("ctrl+s")
    assert rig.engine.names == ["Prefill"]
    read = rig.engine.last(Prefill)
    assert isinstance(read, Prefill)
    assert (read.text, read.chat) == ("Something else", False)
    assert "is being read" in rig.screen_text()
    await rig.push([rig.session.fail("No such token.", "Type another text.", "Prefill"), Ended("Prefill")])
    assert "No such token. Type another text." in rig.screen_text()
    assert rig.timeline.slot == slot
    assert not any(isinstance(each, PatchActivations | MoveTo) for each in rig.engine.sent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "shift", "tokens"),
    [
        ("a big dark", 2, 32),
        pytest.param("a big dark", 2, 96, marks=pytest.mark.slow),
        pytest.param("one", 0, 96, marks=pytest.mark.slow),
    ],
    ids=["longer", "longer after a hundred", "as long after a hundred"],
)
async def test_after_tokens_of_the_real_engine_a_word_is_changed_and_put_in(
    word: str, shift: int, tokens: int
) -> None:
    app = InspectorApp(
        LoadSettings(), Settings(temp=0.0, max_tokens=tokens), Prefill("Once upon a time", False)
    )
    async with app.run_test(size=(120, 40)) as pilot:
        timeline = lambda: app.controller.timeline  # noqa: E731
        idle = lambda: not app.controller.client.outstanding  # noqa: E731
        await until(lambda: timeline().prompts.prefilled and idle())
        await pilot.press("r")
        await until(lambda: len(timeline().steps) >= tokens - 6 and idle())
        timeline().select(len(timeline().items) - 6)
        tip, slot = timeline().tip, timeline().slot
        ids = [item.id for item in timeline().items[:slot]]
        await pilot.press("4", "P", "e")
        await until(lambda: isinstance(app.top, CounterfactualDialog))
        dialog = app.top
        assert isinstance(dialog, CounterfactualDialog)
        remark = lambda: str(dialog.query_one("#counterfactual-remark", Remark).render())  # noqa: E731
        await until(lambda: "Both have the same tokens" in remark())
        text = dialog.typed
        at = text.rindex(" a ")
        dialog.query_one("#counterfactual-text", SafeTextArea).load_text(
            f"{text[:at]} {word} {text[at + 3 :]}"
        )
        await until(lambda: ("face each other" if shift else "As many") in remark())
        assert remark().startswith(f"{len(ids) + shift:,} tokens, {len(ids):,} here.")
        await pilot.press("ctrl+s")
        await until(lambda: isinstance(app.top, Patching))
        screen = app.top
        assert isinstance(screen, Patching)
        await until(lambda: (timeline().tip, timeline().slot) == (tip, slot) and screen.answer is not None)
        answer = screen.answer
        assert answer is not None
        assert answer.facts.failed is None
        assert answer.shift == shift
        assert [item.id for item in screen.path] == ids
        source = [item.id for item in timeline().tree.path(answer.source)]
        assert len(source) == len(ids) + shift
        for column in answer.columns:
            partner = column.position + (shift if column.position >= answer.first else 0)
            assert (ids[column.position], source[partner]) == (column.id, column.source_id)
        await pilot.pause()
        shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert ("Aligned by common blocks" in shown) == bool(shift)
        assert ("┆" in shown) == bool(shift)
    assert app.closed_in_time
