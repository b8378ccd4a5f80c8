"""The table of keys is the truth: bindings, palette and help agree with it."""

from __future__ import annotations

from textual.content import Content

from inspector.main.dialogs.help import PAGES, page
from inspector.main.keyline import HINTS, fitting
from inspector.main.keys import KEYS, keys_markdown
from inspector.main.screen import MainScreen

ALIASED = {"ctrl+j", "ctrl+m", "ctrl+i", "ctrl+h", "ctrl+p"}


def test_the_help_file_is_made_from_the_table():
    assert page("keys") == keys_markdown()


def test_every_key_has_an_action_an_id_of_its_own_and_words():
    assert len({key.id for key in KEYS}) == len(KEYS)
    for key in KEYS:
        name = key.action.partition("(")[0]
        assert name == "app.quit" or hasattr(MainScreen, f"action_{name}"), key.id
        assert key.label, key.id
        assert key.tooltip.endswith("."), key.id


def test_no_key_is_bound_twice_or_aliased_by_terminals():
    names = [name for key in KEYS for name in key.keys.split(",")]
    assert len(set(names)) == len(names)
    assert not ALIASED & set(names)


def test_the_palette_reads_the_texts_as_they_are():
    for key in KEYS:
        for text in (key.label, f"{key.shown} · {key.tooltip}"):
            assert Content.from_markup(text).plain == text


def test_the_line_of_keys_keeps_the_worthiest_that_fit():
    assert fitting(200) == list(HINTS)
    narrow = [hint.word for hint in fitting(38)]
    assert narrow[:2] == ["step", "run"]
    assert "help" in narrow
    assert fitting(0) == []


def test_during_a_run_the_line_tells_how_to_pause_it():
    assert [(hint.shown, hint.word) for hint in fitting(200, running=True)[:2]] == [
        ("space", "pause"),
        ("-+", "pace"),
    ]


def test_every_page_of_the_help_has_a_title_and_text():
    for name, _ in PAGES:
        assert page(name).startswith("# ")
        assert len(page(name).splitlines()) > 20


def test_the_help_explains_the_words_on_screen():
    text = page("concepts").lower()
    for word in ("prefill", "decode", "logprob", "surprisal", "entropy", "rank", "allocated", "ttft", "tpot",
                 "greedy", "draw"):  # fmt: skip
        assert word in text, word
