"""The finder: what is found by the words that people type, and that it is done from wherever it was found."""

from __future__ import annotations

import random
import string
from functools import cache
from pathlib import Path

import platformdirs
import pytest
from textual.widgets import Markdown

from inspector.main.dialogs.finder import FinderDialog
from inspector.main.dialogs.help import HelpDialog, TopicPages
from inspector.main.dialogs.model import ModelDialog
from inspector.main.everything import FIRST, Everything
from inspector.main.finder import Findable, Index, matched, one_off, words_of
from inspector.main.key_table import key_table
from inspector.main.tool import found as imported
from inspector.main.view import View
from inspector.state.timeline import Phase
from inspector.views import TOOLS
from inspector.views.sampling_dialog import SamplingDialog
from inspector.views.second_model import SecondModelDialog
from inspector.widgets.dialog import Remark
from tests.inspector.main.finder_queries import QUERIES, SENTENCES
from tests.inspector.main.test_overlays import branched
from tests.inspector.rig import Rig, run

TABLE = key_table(TOOLS)
RIGHT = 91
"""Of 92 queries, those whose first hit has to be the right one."""
LETTERS = string.ascii_lowercase


@cache
def things() -> tuple[Findable, ...]:
    """All that can be found on the main screen, without models and sessions, which are each machine's own."""
    found: list[Findable] = []

    async def read(rig: Rig) -> None:
        await rig.ready()
        everything = Everything(rig.app.main)
        found.extend((*everything._things(), *(each for each in everything._on_disk() if not each.foreign)))

    run(read)
    return tuple(found)


@cache
def index() -> Index:
    """The same, to be searched."""
    return Index(things())


def found(typed: str) -> list[str]:
    """Ids of what is found, the best first."""
    return [each.id for each in index().search(typed)]


def told(rig: Rig) -> str:
    """The notices."""
    return " ".join(each.message for each in rig.app._notifications)


def rows(rig: Rig) -> list[str]:
    """Ids of the rows of the finder."""
    return [each.id for each in rig.app.top.choices]


# ---- matching -----------------------------------------------------------------------------------


def test_the_first_hits_of_what_people_type_are_right() -> None:
    assert len(QUERIES) == len(dict(QUERIES)) == 95
    known = {each.id for each in things()}
    assert {id for _, id in QUERIES} <= known
    wrong = [(typed, id, found(typed)[:3]) for typed, id in QUERIES if found(typed)[:1] != [id]]
    assert len(QUERIES) - len(wrong) >= RIGHT, wrong


def test_the_first_hits_of_sentences_are_right() -> None:
    wrong = [(typed, id, found(typed)[:3]) for typed, id in SENTENCES if found(typed)[:1] != [id]]
    assert len(SENTENCES) - len(wrong) >= 66, wrong
    assert "lesson repetition" in found("repeat")


def test_every_label_finds_its_own_first() -> None:
    """Of those with one label the first of the table; on another screen what is opened by it comes first."""
    for each in things():
        first = index().search(each.label)[0]
        if each.where in ("Help", "Lessons"):
            assert each.id in found(each.label)[:4], each.id
        elif not each.minor:
            assert words_of(first.label) == words_of(each.label), (each.id, first.id)
    for each in things()[::5]:
        whole = f"{each.where} {each.label}"
        assert each.id in found(whole)[:3], (each.id, whole, found(whole)[:5])


@pytest.mark.slow
def test_every_synonym_finds_its_own_among_the_first_three() -> None:
    for each in things():
        for phrase in filter(None, each.synonyms.split(",")):
            if not each.id.startswith(("theme ", "help ", "lesson ")):  # what all of these are called
                assert each.id in found(phrase)[:3], (each.id, phrase, found(phrase)[:5])


def misspelt(word: str, chance: random.Random) -> str:
    """A word with one letter changed, left out, put in, or exchanged with the next."""
    at = chance.randrange(len(word))
    letter = chance.choice(LETTERS)
    changed = word[:at] + letter + word[at + 1 :]
    more, less = word[:at] + letter + word[at:], word[:at] + word[at + 1 :]
    turned = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
    return chance.choice((changed, more, less, turned))


@pytest.mark.wide(1)
@pytest.mark.parametrize("seed", range(5))
def test_a_label_with_one_letter_wrong_is_still_found(seed: int) -> None:
    chance, alone = random.Random(seed), 0
    for each in things()[seed::5]:
        for word in words_of(each.label):
            if len(word) < 5 or not word.isascii():
                continue
            typed = misspelt(word, chance)
            assert Index([each]).search(typed) == [each], (each.id, word, typed)
            others = [hit for hit in index().search(typed) if hit.id != each.id]
            words = [begun for hit in others for begun in everything_of(hit)]
            spelt = [each for each in words if each.startswith(typed) or f"{each}s" == typed]
            if not spelt:  # it is no word, and the beginning of none: the misspelt one is what is meant
                assert each.id in found(typed), (each.id, word, typed)
                alone += 1
    assert alone > 20


def everything_of(thing: Findable) -> list[str]:
    """The words by which a thing may be found."""
    return words_of(" ".join((thing.label, thing.synonyms, thing.where, thing.help)))


@pytest.mark.wide(1)
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_that_no_word_begins_with_or_is_near(seed: int) -> None:
    """Scattered letters find nothing: neither random ones nor those of a label, in their order."""
    chance, tried = random.Random(seed), 0
    words = {word for each in things() for word in everything_of(each)}
    words |= {
        a + b for each in things() for a, b in zip(everything_of(each), everything_of(each)[1:], strict=False)
    }
    labels = ["".join(words_of(each.label)) for each in things()]
    for _ in range(100):
        label = chance.choice(labels)
        scattered = "".join(letter for letter in label if chance.random() < 0.5)
        typed = chance.choice(
            (scattered, "".join(chance.choice(LETTERS) for _ in range(chance.randint(3, 9))))
        )
        typed = typed or "zzz"
        if any(word.startswith(typed) or one_off(typed, word) for word in words):
            continue
        assert not [each for each in index().search(typed) if not any(
            typed in "".join(words_of(part)) for part in (each.label, *each.synonyms.split(","))
        )], typed  # fmt: skip
        tried += 1
    assert tried > 25


@pytest.mark.parametrize(
    ("typed", "word", "near"),
    [
        ("lens", "lens", True), ("lenss", "lens", True), ("les", "lens", True), ("lnes", "lens", True),
        ("lans", "lens", True), ("ens", "lens", True), ("alens", "lens", True), ("lean", "lens", False),
        ("snel", "lens", False), ("le", "lens", False), ("lensen", "lens", False), ("nels", "lens", False),
    ],
)  # fmt: skip
def test_one_letter_is_one_letter(typed: str, word: str, near: bool) -> None:
    assert one_off(typed, word) is near
    assert one_off(word, typed) is near


def thing(label: str, synonyms: str = "", help: str = "", foreign: bool = False) -> Findable:
    return Findable(label, label, help, "Somewhere", synonyms=synonyms, foreign=foreign)


def test_labels_come_before_synonyms_and_these_before_sentences() -> None:
    things = [thing("One", help="About heads."), thing("Two", "heads"), thing("Heads of all"), thing("Heads")]
    assert [each.label for each in Index(things).search("heads")] == ["Heads", "Heads of all", "Two", "One"]


def test_whole_words_come_before_their_beginnings_and_misspelt_ones_are_for_want_of_these() -> None:
    things = [thing("Stopping"), thing("Step"), thing("Stop")]
    assert [each.label for each in Index(things).search("stop")] == ["Stop", "Stopping"]
    assert [each.label for each in Index(things).search("sto")] == ["Stop", "Stopping"]
    assert [each.label for each in Index(things).search("stpe")] == ["Step"]
    assert Index([thing("Run")]).search("rum") == []  # too short to be misspelt


def test_the_rare_words_of_a_sentence_count_and_unknown_ones_do_not() -> None:
    things = [thing("Attention", "head"), thing("Heads"), thing("Switch off", "disable a head")]
    assert next(each.label for each in Index(things).search("the attention head")) == "Attention"
    assert next(each.label for each in Index(things).search("head off")) == "Switch off"
    assert [each.label for each in Index(things).search("attention banana")] == ["Attention"]
    assert Index(things).unknown("attention banana") == ["banana"]
    assert Index(things).unknown("attention off") == []
    assert Index(things).similar("attentoin") == ["attention"]


def test_one_word_and_two_and_a_hyphen_are_the_same() -> None:
    things = [thing("Switch off", "knock-out"), thing("Look ahead"), thing("Top-k")]
    for typed in ("knockout", "knock out", "knock-out", "Knock Out"):
        assert Index(things).search(typed) == things[:1], typed
    assert Index(things).search("lookahead") == things[1:2]
    assert Index(things).search("topk") == Index(things).search("TOP_K") == things[2:]


def test_words_of_a_file_are_no_advice_and_no_spelling() -> None:
    things = [thing("Temperature"), thing("temprature of the sea", foreign=True)]
    assert [each.label for each in Index(things).search("temprature")] == [
        "temprature of the sea",
        "Temperature",
    ]
    assert Index(things).similar("tempratures") == ["temperature"]


def test_what_was_typed_is_marked_where_words_begin_with_it() -> None:
    assert list(matched("Attention heads", ["head"])) == [("Attention ", False), ("head", True), ("s", False)]
    assert list(matched("Lens", ["ens"])) == [("Lens", False)]
    assert "".join(piece for piece, _ in matched("What is shown", ["is", "w"])) == "What is shown"


# ---- what there is ------------------------------------------------------------------------------


def test_every_action_of_the_table_is_there_and_tells_where_it_lives() -> None:
    ids = [each.id for each in things()]
    assert {each.id for each in TABLE.actions} - set(ids) == {"finder"}
    assert all(each.where and each.help and each.label for each in things())
    assert all(each.keys for each in things() if not each.id.startswith(("theme ", "screenshot")))
    assert set(FIRST) <= set(ids)
    assert len(FIRST) == len(set(FIRST))


async def test_before_anything_is_typed_each_question_has_its_tools(rig: Rig) -> None:
    await rig.ready()
    await rig.press("colon")
    assert rows(rig)[: len(FIRST)] == list(FIRST)
    assert len(rows(rig)) == len({*rows(rig)}) > 200


async def test_what_finds_nothing_says_what_else_to_type(rig: Rig) -> None:
    await rig.ready()
    await rig.press("colon", *"zzqx")
    remark = rig.app.top.query_one("#finder-remark", Remark)
    assert not rows(rig)
    assert remark._text.startswith("Nothing is called “zzqx”. Type another word: attention, temperature")
    await rig.press("enter")
    assert isinstance(rig.app.top, FinderDialog)
    await rig.press(*["backspace"] * 4, *"attendion")
    assert rows(rig)[0] == "attention"
    await rig.press(*["backspace"] * 9, *"temparatures")
    assert "Did you mean temperature" in remark._text


# ---- doing it -----------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
async def test_it_opens_on_the_main_screen_and_over_a_tool_s(rig: Rig, key: str) -> None:
    await rig.ready()
    await rig.press(key, *"lens", "enter")
    await rig.until(lambda: rig.app.main.over == "lens")
    await rig.press(key)
    assert isinstance(rig.app.top, FinderDialog)
    assert rows(rig)[0].startswith("lens.")
    await rig.press("escape")
    assert rig.app.main.over == "lens"


async def test_over_a_dialog_it_opens_and_what_is_found_is_done(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p", "colon")
    assert not isinstance(rig.app.top, FinderDialog)  # a colon is typed
    await rig.from_finder("tree", "Tree")
    await rig.until(lambda: rig.app.main.arrangement.current == "tree")
    assert rig.app.top is rig.app.main
    await rig.press("ctrl+o", "colon")
    assert isinstance(rig.app.top, FinderDialog)


async def test_on_a_tool_s_screen_its_own_keys_are_done_there_and_others_elsewhere(rig: Rig) -> None:
    await rig.ready()
    await rig.press("A")
    await rig.from_finder("sort", "Sort")
    await rig.until(lambda: rig.app.main.over == "attention")
    await rig.from_finder("lens", "Lens")
    await rig.until(lambda: rig.app.main.over == "lens")
    dark = rig.app.current_theme.dark
    await rig.from_finder("dark or light", "Dark or light")
    await rig.until(lambda: rig.app.current_theme.dark is not dark)
    assert rig.app.main.over == "lens"


async def test_what_another_screen_does_is_done_there(rig: Rig) -> None:
    await rig.ready()
    await rig.from_finder("open a second model", "Open a second model")
    await rig.until(lambda: isinstance(rig.app.top, SecondModelDialog))
    await rig.press("escape")
    assert rig.app.main.over == "second_model"


async def test_the_nth_action_of_a_tool_opens_its_nth_screen(rig: Rig) -> None:
    async def opened(case: tuple[str, object]) -> None:
        id, table = case
        await rig.app.main.do(id)
        await rig.until(lambda: rig.app.top is not rig.app.main and rig.app.top.takes_keys)
        top = rig.app.top
        if isinstance(top, View):
            assert table in top.tables, id
        else:
            assert id == "beams"  # which asks first

    await branched(rig)
    opening = [
        action for tool in TABLE.tools for action in tool.actions if action.opens and tool.id != "ranks"
    ]
    cases = [(action.id, imported(action.opens).ACTIONS) for action in opening]
    assert len(cases) > 15
    await rig.through(cases, opened)


async def test_a_setting_opens_the_dialog_at_its_field(rig: Rig) -> None:
    await rig.ready()
    for typed, label, field in (("seed", "Seed", "seed"), ("temperature", "Temperature", "temp")):
        await rig.from_finder(typed, label)
        await rig.until(lambda: isinstance(rig.app.top, SamplingDialog))
        await rig.until(
            lambda field=field: rig.form.highlighted.setting.name == field and rig.form.field.has_focus
        )
        await rig.press("escape")


@pytest.mark.slow
async def test_a_page_of_the_help_opens_at_once_and_again(rig: Rig) -> None:
    await rig.ready()
    for label in ("Position", "Norm"):
        await rig.from_finder(f"help {label.lower()}", label)
        await rig.until(lambda: isinstance(rig.app.top, HelpDialog))
        await rig.until(lambda: rig.app.screen.query(TopicPages))
        await rig.until(lambda title=f"# {label}": [
            each for each in rig.app.top.query_one("#topic").query(Markdown) if each.source.startswith(title)
        ])  # fmt: skip
        await rig.press("escape")
    await rig.press("question_mark")
    assert rig.app.top.query_one("#help-tabs").active == "help-keys"


async def test_a_lesson_and_a_model_are_found_once_they_are_read(rig: Rig) -> None:
    await rig.ready()
    await rig.from_finder("pocket", "pocket")
    await rig.until(lambda: isinstance(rig.app.top, ModelDialog))
    assert rig.app.top.typed == "pocket"
    await rig.press("escape")
    await rig.from_finder("lesson the draw", "Temperature and the draw")
    await rig.until(lambda: rig.app.main.narrator is not None or rig.engine.names)


async def test_what_cannot_be_done_now_says_why(rig: Rig) -> None:
    await rig.until(lambda: rig.engine.started)
    assert rig.timeline.phase is Phase.LOADING
    await rig.from_finder("seed", "Seed")
    await rig.until(lambda: isinstance(rig.app.top, SamplingDialog))  # it needs no model
    await rig.press("escape")
    await rig.from_finder("attention", "Attention")
    await rig.until(lambda: "still loading" in rig.status)


async def test_a_theme_is_chosen_by_its_name(rig: Rig) -> None:
    await rig.ready()
    await rig.from_finder("theme nord", "Theme nord")
    await rig.until(lambda: rig.app.theme == "nord")
    rig.app.search_themes()
    await rig.until(lambda: isinstance(rig.app.top, FinderDialog) and len(rows(rig)) > 10)
    assert all(each.startswith("theme") for each in rows(rig)[:10])


@pytest.mark.parametrize("there", [True, False])
async def test_a_picture_of_the_screen_is_saved_with_and_without_a_folder_for_downloads(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    downloads, here = tmp_path / "Downloads", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(platformdirs, "user_downloads_path", lambda: downloads)
    if there:
        downloads.mkdir()

    await rig.ready()
    await rig.from_finder("screenshot", "Screenshot")
    folder = downloads if there else here
    await rig.until(lambda: [*folder.glob("*.svg")])
    assert "<svg" in next(folder.glob("*.svg")).read_text(encoding="utf-8")
    await rig.until(lambda: str(folder) in told(rig))


async def test_a_picture_that_cannot_be_saved_has_a_reason(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "user_downloads_path", lambda: tmp_path)

    await rig.ready()
    monkeypatch.setattr(
        rig.app,
        "save_screenshot",
        lambda **how: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    await rig.from_finder("screenshot", "Screenshot")
    await rig.until(lambda: "No space left on device" in told(rig))
