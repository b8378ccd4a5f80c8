"""The dialogs: what they accept, what they refuse and how they say so."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from textual.geometry import Region
from textual.widgets import Button, Markdown, TabbedContent, TabPane, Tabs

from engine import protocol
from engine.settings import FIELDS, LoadSettings, Settings
from inspector.main.dialogs.facts import FactsDialog, rows
from inspector.main.dialogs.field import JumpDialog
from inspector.main.dialogs.help import HelpDialog, HelpPages, KeysPage, TopicPages
from inspector.main.dialogs.model import ModelDialog
from inspector.main.dialogs.prompt import PromptDialog
from inspector.main.help_pages import PAGES, TOPICS, page
from inspector.main.key_table import key_table
from inspector.views import TOOLS
from inspector.views.sampling_dialog import SamplingDialog
from inspector.widgets.fields import SafeInput, SafeTextArea, editable, escaped, unescaped
from inspector.widgets.lists import SafeOptionList
from tests.inspector.fakes import facts
from tests.inspector.main.test_prompt_dialog import previewed
from tests.inspector.rig import Rig, run

HOSTILE = "a[/nope]\x1b[31m\x9b1m\x00\x7f\u202eb\u200b[@click=app.quit]x[/]\ud83d"


def remark(rig: Rig, name: str) -> tuple[str, bool]:
    widget = rig.app.top.query_one(f"#{name}")
    return str(widget.content), widget.has_class("-wrong")


# ---- prompt -----------------------------------------------------------------------------------


async def test_a_prompt_is_typed_and_prefilled(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p")
    rig.app.top.query_one("#prompt-text", SafeTextArea).text = "Two\nlines"
    await rig.press("ctrl+s")
    assert rig.engine.sent == [protocol.Prefill("Two\nlines", False, None, None)]
    assert rig.app.top is rig.app.main


async def test_letters_typed_into_the_prompt_are_no_commands(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p", "end", "q", "space", "r", "s", "ctrl+j", "left", "x")
    assert rig.app.top.query_one("#prompt-text", SafeTextArea).text == "Once upon a time,q rs" + "x\n"
    assert rig.engine.sent == []


async def test_nothing_typed_is_lost_when_the_dialog_is_left(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p", "end", "exclamation_mark", "tab", "right")
    rig.app.top.query_one("#prompt-system", SafeTextArea).text = "Be kind.\nBe brief."
    await rig.press("escape")
    assert rig.engine.sent == []
    await rig.press("p")
    assert isinstance(rig.app.top, PromptDialog)
    typed = rig.app.top.typed()
    assert (typed.text, typed.chat, typed.system) == ("Once upon a time,!", True, "Be kind.\nBe brief.")


async def test_what_is_typed_replaces_the_prompt_and_is_added_to_a_draft(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p", "right", "H", "i", "ctrl+s")
    assert rig.engine.sent == [protocol.Prefill("Once upon a time,Hi", False, None, None)]
    rig.engine.sent.clear()
    await rig.press("p", "escape", "p", "H", "i", "escape", "p", "exclamation_mark", "enter")
    assert rig.engine.sent == [protocol.Prefill("Hi!", False, None, None)]


async def test_an_empty_prompt_is_refused_in_place(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p")
    rig.app.top.query_one("#prompt-text", SafeTextArea).text = ""
    await rig.pilot.pause()
    await rig.press("ctrl+s")
    assert remark(rig, "prompt-remark") == ("The prompt is empty. Type at least one character.", True)
    await rig.press("a")
    await previewed(rig)
    assert not remark(rig, "prompt-remark")[1]
    await rig.press("ctrl+s")
    assert rig.engine.sent == [protocol.Prefill("a", False, None, None)]


async def test_chat_and_logprobs_are_chosen_with_the_keyboard(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p", "tab", "right", "tab", "h", "i", "tab", "left", "ctrl+s")
    assert rig.engine.sent == [protocol.Prefill("Once upon a time,", True, "hi", False)]


async def test_a_model_without_a_template_offers_raw_prompts_only(rig: Rig) -> None:
    await rig.push(rig.session.load(has_chat_template=False))
    await rig.press("p")
    assert rig.app.top.query_one("#prompt-mode").labels == ("raw",)
    await rig.press("ctrl+a", "delete")
    assert "no chat template" in remark(rig, "prompt-remark")[0]


# ---- sampling ---------------------------------------------------------------------------------


def test_the_help_of_every_setting_fits_into_the_frame_of_its_form():
    assert [field.name for field in FIELDS if cell_len(field.help) > 55] == []


def test_every_setting_has_a_field_with_its_value():
    settings = Settings(temp=0.8, top_p=0.9, min_p=0.05, top_k=40, seed=3, stop=("\n\n",), candidates=30)

    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("s")
        values = {each.name: rig.form.rows[each.name].text for each in FIELDS}
        first = {"temp": "0.8", "top_p": "0.9", "min_p": "0.05", "top_k": "40", "seed": "3",
                          "max_tokens": "100", "min_tokens": "0", "stop": "\\n\\n", "candidates": "30"}  # fmt: skip
        assert (
            values == {field.name: field.format(getattr(Settings(), field.name)) for field in FIELDS} | first
        )
        await rig.press("enter")
        assert rig.engine.sent == [protocol.Configure(settings)]

    run(test, settings=settings)


WRONG = [
    ("temp", "-1", "temperature must be 0, or a number from 0.001 to 100, not -1."),
    ("temp", "1e-39", "temperature must be 0, or a number from 0.001 to 100, not 1e-39."),
    ("temp", "nan", "temperature must be 0, or a number from 0.001 to 100, not nan."),
    ("top_p", "1.5", "top-p must be a number above 0 and at most 1, not 1.5."),
    ("top_k", "4.5", "top-k must be a whole number from 0 to 2147483647, not '4.5'."),
    ("candidates", "", "candidates must be a whole number from 1 to 2147483647, not empty."),
    ("min_p", "[/x]\x1b", r"min-p must be a number from 0 to 1, not '[/x]\x1b'."),
]


async def test_a_wrong_value_is_told_at_its_field_and_cannot_be_applied(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    for field, typed, message in WRONG:
        row = rig.form.rows[field]
        good = row.text
        await rig.type_in(field, typed)
        said = f"{message} The preview shows the last valid values."
        assert (row.remark, row.ink) == (said, "$text-error")
        await rig.until(lambda message=message: all(word in rig.screen_text() for word in message.split()))
        assert rig.app.top.query_one("#apply", Button).disabled
        await rig.press("enter", "ctrl+s")
        assert isinstance(rig.app.top, SamplingDialog)
        assert rig.engine.sent == []
        await rig.type_in(field, good)
        assert not row.remark
        assert not rig.app.top.query_one("#apply", Button).disabled


async def test_a_bias_for_a_token_outside_the_vocabulary_is_refused(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    await rig.type_in("logit_bias", "5000=1")
    row = rig.form.rows["logit_bias"]
    assert row.ink == "$text-error"
    assert "4096" in row.remark
    assert rig.app.top.query_one("#apply", Button).disabled


async def test_greedy_says_that_the_filters_do_nothing(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    await rig.press("up", "up")
    assert "is greedy" not in rig.screen_text()
    await rig.type_in("temp", "0")
    await rig.press("up", "up")
    assert "Temperature 0 is greedy" in rig.screen_text()


async def test_the_form_of_sampling_is_not_painted_again_for_its_first_field(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The focus comes after the first paint: what the frame says of the field is there before it."""
    monkeypatch.setattr(SamplingDialog, "on_settings_form_highlighted", lambda self: None)
    for _ in range(2):
        await rig.press("s")
        assert str(rig.app.top.query_one("#dialog").border_subtitle).startswith("0 is greedy")
        await rig.press("escape")


@pytest.mark.screen(settings=Settings(stop=("a", "b", "c")))
async def test_further_stop_strings_are_kept(rig: Rig) -> None:
    await rig.ready()
    await rig.press("s")
    rig.form.highlight("stop")
    await rig.pilot.pause()
    assert "2 more are kept" in str(rig.app.top.query_one("#dialog").border_subtitle)
    await rig.type_in("stop", "END")
    await rig.press("ctrl+s")
    assert rig.engine.sent[0].settings.stop == ("END", "b", "c")


@pytest.mark.parametrize("text", ["", "plain", "\n\n", "a\\nb", "\\", "\\\\n", "tab\tcr\r", "C:\\new\\x"])
def test_a_text_on_one_line_comes_back_as_it_was(text):
    assert unescaped(escaped(text)) == text
    assert "\n" not in escaped(text)


# ---- jump, model, facts, help -----------------------------------------------------------------


async def test_a_jump_is_checked_as_it_is_typed(rig: Rig) -> None:
    await rig.ready(steps=12)
    await rig.press("g", "9", "9", "enter")
    assert isinstance(rig.app.top, JumpDialog)
    assert remark(rig, "jump-step-remark") == ("There is no step 99. A whole number from 1 to 12.", True)
    await rig.press("backspace", "enter")
    assert rig.app.top is rig.app.main
    assert rig.timeline.selected.index == 8
    assert rig.engine.sent == []


@pytest.mark.wide(1)
@pytest.mark.parametrize("typed", ["-1", "²", "１", "1e3", "\x1b", "[/]", "9" * 400, " "])
async def test_a_jump_to_no_number_is_refused(rig: Rig, typed) -> None:
    await rig.ready()
    await rig.press("g")
    rig.app.top.query_one("#jump-step", SafeInput).value = typed
    await rig.press("enter")
    assert isinstance(rig.app.top, JumpDialog)


@pytest.mark.screen(load=LoadSettings(adapter_path="adapters", extra_eos_token=("x",), kv_bits=4))
async def test_another_model_is_opened_with_the_same_load_settings(rig: Rig) -> None:
    await rig.ready()
    await rig.do("open")
    assert isinstance(rig.app.top, ModelDialog)
    for name in ("~nosuchuser/x", "a" * 5000, "b" * 300):
        rig.app.top.query_one("#model-name", SafeInput).value = name
        await rig.press("enter")
        assert remark(rig, "model-remark")[1]
    rig.app.top.query_one("#model-name", SafeInput).value = "other-model"
    await rig.press("enter")
    load = LoadSettings("other-model", kv_bits=4)
    assert rig.engine.sent == [protocol.Load(load)]


async def test_the_facts_are_all_told_with_the_notes(rig: Rig) -> None:
    await rig.push(rig.session.load(notes=("--max-kv-size is ignored: [/x]\x1b",)))
    await rig.press("i")
    assert isinstance(rig.app.top, FactsDialog)
    text = rig.screen_text()
    for part in ("llama", "7,340,032", "14.0 MiB", "512 tokens", "8 plain", "8.00 KiB", "[/x]␛"):
        assert part in text, part


def test_weights_that_were_unpacked_are_no_plain_ones():
    held = "4-bit, group 64, affine"
    told = dict(rows(facts(dtype="float32", stored=held)))
    assert told["weights"] == f"14.0 MiB, unpacked from {held}"
    assert told["computed in"] == f"float32 ({held} in the files) on the cpu"
    assert dict(rows(facts(quantization=held)))["weights"] == f"14.0 MiB, {held}"
    assert dict(rows(facts(dtype="float32", stored="bfloat16")))["weights"] == "14.0 MiB, not quantized"


def test_facts_that_are_not_known_are_said_to_be_so():
    unknown = dict.fromkeys(
        ("heads", "kv_heads", "head_size", "hidden_size", "context_window", "kv_bytes_per_token")
    )
    told = dict(rows(facts(**unknown, eos_ids=(), has_chat_template=False, family="ev\x1bil")))
    assert told["heads"] == "none stated"
    assert told["context window"] == "not stated"
    assert told["KV of a token"] == "does not grow with the text"
    assert "raw" in told["chat template"]
    assert told["family"] == "ev␛il, 8 layers"


@pytest.mark.screen(size=(60, 20))
async def test_the_names_of_the_pages_are_whole_at_60_columns(rig: Rig) -> None:
    await rig.press("question_mark")
    assert "All pages" in rig.screen_text()


@pytest.mark.wide(1)
@pytest.mark.parametrize("page", ["parts/head", "walks"])
async def test_the_help_opens_at_the_page_that_was_asked_for_the_first_time_too(rig: Rig, page: str) -> None:
    rig.app.main.help(page=page)
    await rig.until(lambda: isinstance(rig.app.top, HelpDialog) and rig.app.screen.query(Markdown))
    for _ in range(5):
        await rig.pilot.pause()
    own_tab = page in {name for name, _ in PAGES}
    assert rig.app.top.query_one(TabbedContent).active == f"help-{page if own_tab else 'topics'}"


@pytest.mark.wide(1)
@pytest.mark.parametrize("places", [(1, -1), range(len(TOPICS))], ids=["some", "all"])
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_the_pages_on_one_thing_each_are_laid_out_when_they_are_chosen(
    rig: Rig, size: tuple[int, int], places: Sequence[int]
) -> None:
    await rig.press("question_mark")
    help = rig.app.top
    assert not help.query(TopicPages)
    await rig.press("left")
    assert TOPICS[0][1][:20] in rig.screen_text()
    assert not help.query(Markdown)
    for place in (each % len(TOPICS) for each in places):
        await rig.press("home", *["down"] * place, "enter")
        (shown,) = help.query_one("#topic").query(Markdown)
        assert shown.source == page(TOPICS[place][0])
        title = f"⌫ All pages  {TOPICS[place][1].split()[0]}"  # a longer one goes on in the next line
        await rig.until(lambda title=title: title in rig.screen_text(), seconds=20)
        assert help.query_one("#topic").has_focus
        await rig.press("backspace")
        assert help.query_one(SafeOptionList).has_focus


@pytest.mark.slow
async def test_a_page_leads_to_another_and_the_help_opens_at_the_keys_again(rig: Rig) -> None:
    await rig.press("question_mark")
    assert "1 Next" in rig.screen_text()
    await rig.press("left", "enter")
    help = rig.app.top
    markdown = help.query_one("#topic").query_one(Markdown)
    for href, wanted in (
        ("nowhere.md", "sampling"),
        ("parts/grammar.md", "parts/grammar"),
        ("mlp.md", "parts/mlp"),
        ("../limits.md", "limits"),
    ):
        markdown.post_message(Markdown.LinkClicked(markdown, href))
        await rig.until(
            lambda wanted=wanted: help.query_one("#topic").query_one(Markdown).source == page(wanted)
        )
    markdown.post_message(Markdown.LinkClicked(markdown, "concepts.md#the-screen"))
    pages = help.query_one(TabbedContent)
    await rig.until(
        lambda: pages.active == "help-concepts" and pages.get_pane("help-concepts").query(Markdown)
    )
    concepts = pages.get_pane("help-concepts").query_one(Markdown)
    assert concepts.source == page("concepts")
    concepts.post_message(Markdown.LinkClicked(concepts, "parts/head.md"))
    await rig.until(lambda: help.query_one("#topic").query_one(Markdown).source == page("parts/head"))
    assert pages.active == "help-topics"
    await rig.press("escape")
    assert rig.app.top is rig.app.main
    await rig.press("question_mark", "left")
    await rig.until(lambda: rig.app.top.query_one(SafeOptionList).has_focus)
    assert TOPICS[0][1] in rig.screen_text()


async def test_what_is_heard_late_of_a_page_before_does_not_turn_back_to_it(rig: Rig) -> None:
    """On a busy machine: that the first page was opened, and that it got the focus."""
    await rig.press("question_mark", "left")
    pages = rig.app.top.query_one(HelpPages)
    tabs = pages.query_one(Tabs)
    for _ in range(3):
        tabs.post_message(Tabs.TabActivated(tabs, pages.get_tab("help-keys")))
        keys = pages.get_pane("help-keys")
        keys.post_message(TabPane.Focused(keys))
        await rig.pilot.pause()
        assert pages.active == "help-topics"
    await rig.until(lambda: rig.app.top.query_one(SafeOptionList).has_focus)


@pytest.mark.slow
async def test_a_click_on_a_tab_turns_the_help_to_it(rig: Rig) -> None:
    await rig.press("question_mark")
    pages = rig.app.top.query_one(HelpPages)
    await rig.pilot.click(pages.get_tab("help-walks"))
    await rig.until(lambda: pages.active == "help-walks" and pages.get_pane("help-walks").query(Markdown))


async def test_the_list_of_pages_has_the_focus_before_it_is_laid_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the layout comes after the key."""
    monkeypatch.setattr(TopicPages, "region", Region())
    await rig.press("question_mark", "left", "right", "left")
    await rig.until(lambda: rig.app.top.query_one(SafeOptionList).has_focus)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_the_page_of_keys_leaves_nothing_out_and_fits(rig: Rig, size: tuple[int, int]) -> None:
    await rig.press("question_mark")
    page = rig.app.top.query_one(KeysPage)
    lines = str(page.render()).split("\n")
    assert max(map(cell_len, lines)) <= page.content_size.width
    assert len(lines) == page.content_size.height
    shown = re.sub(r"\s+", "", "".join(lines))
    for action in key_table(TOOLS).actions:
        named = "" if action.told.casefold().startswith(f"{action.label} ".casefold()) else f"{action.label}."
        assert re.sub(r"\s+", "", f"{action.shown} {named} {action.told}") in shown


def help_rows(rig: Rig) -> list[str]:
    """What the page of keys has, a line each."""
    return str(rig.app.top.query_one(KeysPage).render()).split("\n")


async def test_the_page_of_keys_begins_with_what_is_on_show_and_the_open_tab(rig: Rig) -> None:
    await rig.ready()
    for tab, title, view in (
        ("1", "1 Next", "Candidates"),
        ("5", "5 Cost", "KV cache"),
        ("6", "6 Learn", "Lessons"),
    ):
        await rig.press(tab, "question_mark")
        rows = [row.strip() for row in help_rows(rig)]
        assert rows[1].startswith(f"On show: {view}")
        tabs = [row for row in rows if re.fullmatch(r"[1-7] [A-Z].*", row)]
        assert tabs[0] == title
        await rig.press("escape")


async def test_the_page_of_keys_is_filtered_by_words(rig: Rig) -> None:
    """What is typed is text: the keys that turn pages or leave are letters there."""
    await rig.ready()
    await rig.press("question_mark")
    whole = help_rows(rig)
    await rig.press("slash", *"BOOKMARK")
    assert not help_rows(rig)[0].strip()
    assert "bookmark" in "\n".join(help_rows(rig)).lower()
    assert 4 < len(help_rows(rig)) < 30 < len(whole)
    await rig.press(*"q?")
    assert isinstance(rig.app.top, HelpDialog)
    assert "Nothing here has “BOOKMARKq?”" in " ".join(help_rows(rig))
    await rig.press("enter")
    assert rig.app.top.query_one("#page-keys").has_focus
    await rig.press("escape", "question_mark")
    assert help_rows(rig) == whole


@pytest.mark.parametrize("width", [20, 40, 60, 90])
def test_keys_too_long_for_their_column_have_a_line_of_their_own(width: int) -> None:
    page = KeysPage("# Keys\n| `up down home end pgup` | Go from module to module. |\n")
    lines = [line.plain for line in page._lines(width)]
    assert [word for line in lines for word in line.split()] == [
        *["up", "down", "home", "end", "pgup", "Go", "from", "module", "to", "module."]
    ]


# ---- hostile text, small screens --------------------------------------------------------------


def test_an_editor_shows_control_characters_one_for_one():
    shown = editable(HOSTILE)
    assert len(shown) == len(HOSTILE)
    assert shown.startswith("a[/nope]␛[31m")
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown)


DIALOGS = ["prompt", "sampling", "jump", "facts", "open", "help", "finder"]
"""Actions that open a dialog."""


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(100, 30), (40, 12)])
@pytest.mark.screen(
    prompt=HOSTILE, settings=replace(Settings(temp=0.8), stop=(HOSTILE,)), load=LoadSettings(model=HOSTILE)
)
async def test_hostile_text_reaches_no_terminal_from_any_dialog(rig: Rig, size) -> None:
    session_facts = facts(name=HOSTILE, path=HOSTILE, family=HOSTILE, notes=(HOSTILE,), quantization=HOSTILE)
    names = ("name", "path", "family", "notes", "quantization")

    async def opened(action: str) -> None:
        await rig.do(action)
        for line in rig.app.screen.query("Line, Input"):
            line.value = HOSTILE
        await rig.pilot.pause()
        text = rig.screen_text()
        assert rig.app.top is not rig.app.main
        assert not any(char in text for char in "\x1b\x9b\x00\x7f\u202e\u200b\ud83d")

    rig.session.load(**{name: getattr(session_facts, name) for name in names})
    await rig.push(rig.session.records)
    await rig.push([*rig.session.open(), *rig.session.steps(3)])
    await rig.through(DIALOGS, opened)


@pytest.mark.screen(size=(40, 12))
async def test_the_buttons_of_every_dialog_are_in_sight_on_a_small_screen(rig: Rig) -> None:
    async def opened(action: str) -> None:
        await rig.do(action)
        assert rig.app.top is not rig.app.main
        assert "esc" in rig.screen_text()

    await rig.ready()
    await rig.through(DIALOGS, opened)


async def test_halves_of_surrogate_pairs_in_a_field_can_be_copied(rig: Rig) -> None:
    await rig.ready()
    await rig.do("open")
    field = rig.app.top.query_one("#model-name", SafeInput)
    field.value = "a\udcff\ud83d"
    field.focus()
    await rig.press("shift+home", "ctrl+c")
    assert rig.app.clipboard == "a??"


async def test_the_list_of_topics_is_in_the_ink_of_its_row(rig: Rig) -> None:
    """One of another ink can't be read where it is highlighted."""
    await rig.ready()
    await rig.press("question_mark", "left")
    await rig.until(lambda: bool(rig.app.screen.query(TopicPages)))
    options = rig.app.top.query_one(TopicPages).query_one(SafeOptionList).options
    assert options
    assert {str(span.style) for option in options for span in option.prompt.spans} == {"bold"}
