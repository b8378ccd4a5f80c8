"""Presets: what comes with the program, what is kept in the file, and what becomes of a file that doesn't hold."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from pathlib import Path

import pytest

from engine.errors import EngineError, PathError
from engine.settings import Settings, check
from inspector.cli import main as cli
from inspector.cli import screen
from inspector.config import files
from inspector.config.files import TableFile
from inspector.config.presets import LONGEST_NAME, SHIPPED, Presets
from tests.inspector.cli.test_main import ask

MINE = Settings(temp=0.7, top_k=40, logit_bias=((451, -5.0),), sampler_order="llama.cpp")


def file_of(config: Path, content: str) -> Path:
    config.mkdir(parents=True)
    path = config / "presets.json"
    path.write_text(content, encoding="utf-8")
    return path


def test_five_come_with_the_program_and_hold():
    presets = Presets()
    assert presets.names == ("greedy", "precise", "plain", "creative", "wild")
    assert [check(presets.apply(name, Settings())).temp for name in presets.names] == [
        0.0,
        0.3,
        1.0,
        1.0,
        1.5,
    ]
    assert presets.problems == ()


def test_a_preset_replaces_what_shapes_a_choice_and_nothing_else():
    before = Settings(temp=0.5, xtc_probability=0.9, top_k=9, seed=3, max_tokens=7, stop=("x",), candidates=5)
    after = Presets().apply("precise", before)
    assert (after.temp, after.top_p, after.xtc_probability, after.top_k) == (0.3, 0.9, 0.0, 0)
    assert (after.seed, after.max_tokens, after.stop, after.candidates) == (3, 7, ("x",), 5)


def test_the_preset_that_settings_are_already_is_found():
    presets, others = Presets(), Settings(seed=3, stop=("x",))
    for name in presets.names:
        assert presets.matching(presets.apply(name, others)) == name
    assert presets.matching(Settings(temp=0.123)) == ""


def test_what_is_saved_is_read_back_and_readable(config):
    told = Presets().save(" mine ", MINE)
    assert told == f"Saved as mine in {config / 'presets.json'}."
    assert json.loads((config / "presets.json").read_text()) == {
        "presets": {"mine": {"temp": 0.7, "top_k": 40, "logit_bias": "451=-5", "sampler_order": "llama.cpp"}}
    }
    again = Presets()
    assert again.names[-1] == "mine"
    assert again.apply("mine", Settings(seed=9)) == Settings(
        temp=0.7, top_k=40, seed=9, logit_bias=MINE.logit_bias, sampler_order=MINE.sampler_order
    )


def test_what_is_not_understood_survives(config):
    file_of(config, '{"note": "é", "presets": {"mine": {"temp": 1, "mood": [1]}, "odd": {"temp": "hot"}}}')
    presets = Presets()
    assert presets.names[len(SHIPPED) :] == ("mine",)
    assert presets.apply("mine", Settings()).temp == 1.0
    assert "'odd'" in presets.problems[0]
    assert "temperature must be 0, or a number from 0.001 to 100" in presets.problems[0]
    presets.save("mine", Settings(temp=0.2))
    presets.save("new", Settings(temp=0.4))
    assert json.loads((config / "presets.json").read_text()) == {
        "note": "é",
        "presets": {"mine": {"temp": 0.2, "mood": [1]}, "odd": {"temp": "hot"}, "new": {"temp": 0.4}},
    }


@pytest.mark.parametrize("content", ["{", "[]", '{"presets": 4}', "\x00", "[" * 20_000, '"\udc80"', ""])
def test_a_damaged_file_is_told_and_set_aside_before_it_is_replaced(config, content):
    config.mkdir()
    path = config / "presets.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    presets = Presets()
    assert len(presets.problems) == 1
    assert "can't be read" in presets.problems[0]
    assert presets.names == tuple(SHIPPED)
    assert path.read_bytes() == content.encode("utf-8", "surrogatepass")
    told = presets.save("mine", Settings(temp=0.7))
    assert "presets.damaged-1.json" in told
    assert (config / "presets.damaged-1.json").read_bytes() == content.encode("utf-8", "surrogatepass")
    assert presets.problems == ()
    assert Presets().names[-1] == "mine"


@pytest.mark.parametrize(
    "value",
    ['{"temp": true}', '{"top_k": 1.5}', '{"temp": 1e999}', '{"temp": NaN}', '{"top_p": 0}', "4",
     '{"sampler_order": "top-q"}', '{"logit_bias": 5}'],
)  # fmt: skip
def test_a_preset_that_does_not_hold_is_left_out_and_said(config, value):
    file_of(config, f'{{"presets": {{"bad": {value}, "good": {{"temp": 0.5}}}}}}')
    presets = Presets()
    assert presets.names[len(SHIPPED) :] == ("good",)
    assert "'bad'" in presets.problems[0]


def test_one_of_the_programs_can_be_replaced_and_comes_back(config):
    presets = Presets()
    presets.save("wild", Settings(temp=3.0))
    assert Presets().apply("wild", Settings()).temp == 3.0
    assert presets.is_own("wild")
    assert presets.delete("wild") == "Deleted wild. The program's own preset is back."
    assert Presets().apply("wild", Settings()).temp == 1.5
    with pytest.raises(EngineError, match=r"wild comes with the program. Only presets of your own"):
        presets.delete("wild")


def test_two_windows_keep_what_the_other_one_saved():
    one, other = Presets(), Presets()
    one.save("a", Settings(temp=0.1))
    other.save("b", Settings(temp=0.2))
    assert Presets().names[len(SHIPPED) :] == ("a", "b")


def test_a_file_is_read_again_once_another_took_its_place(monkeypatch):
    presets, reads = Presets(), []
    read = TableFile.read
    monkeypatch.setattr(
        TableFile, "read", lambda file, check: (reads.append(file.path), read(file, check))[1]
    )
    presets.refresh()
    assert not reads
    Presets().save("other", MINE)
    reads.clear()
    presets.refresh()
    presets.refresh()
    assert presets.names[-1] == "other"
    assert len(reads) == 1
    presets.path.write_text('{"presets": {"edited": {"temp": 0.5}}}')
    presets.refresh()
    assert presets.names[-1] == "edited"
    presets.path.unlink()
    presets.refresh()
    assert presets.names == tuple(SHIPPED)


@pytest.mark.parametrize("name", ["", "  ", "x" * (LONGEST_NAME + 1), "a\nb", "\x1b[31m", "\udc80"])
def test_a_name_that_is_none_is_refused(config, name):
    with pytest.raises(EngineError, match="1 to 40 printable characters"):
        Presets().save(name, MINE)
    assert not config.exists()


def test_a_write_that_fails_leaves_the_old_file(config, monkeypatch):
    Presets().save("mine", Settings(temp=0.7))
    before = (config / "presets.json").read_text()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(EngineError, match="can't be written: No space left on device"):
        Presets().save("mine", Settings(temp=0.9))
    assert (config / "presets.json").read_text() == before
    assert [path.name for path in config.iterdir()] == ["presets.json"]


def test_a_place_that_is_no_directory_is_told(config):
    config.write_text("in the way")
    presets = Presets()
    assert "can't be read" in presets.problems[0]
    with pytest.raises(EngineError, match="can't be written"):
        presets.save("mine", MINE)


# ---- the flag ---------------------------------------------------------------------------------


@pytest.mark.parametrize("headless", [False, True])
def test_the_flag_begins_with_a_preset_and_other_flags_override_it(headless):
    Presets().save("mine", MINE)
    asked = ["--preset", "mine", "--top-k", "7", "--prompt", "x", "--seed", "4"]
    settings = ask(*asked, headless=headless).settings
    assert (settings.temp, settings.top_k, settings.logit_bias, settings.seed) == (0.7, 7, ((451, -5.0),), 4)
    assert settings.sampler_order == "llama.cpp"


@pytest.mark.parametrize("command", [[], ["generate"]])
def test_an_unknown_preset_is_bad_input_with_the_list(capsys, command, monkeypatch):
    monkeypatch.setattr(screen, "check_terminal", lambda _: None)
    assert cli.main([*command, "--preset", "nope\x1b", "--prompt", "x"]) == 2
    told = capsys.readouterr().err
    assert "There is no preset 'nope" in told
    assert "There are greedy, precise, plain, creative, wild." in told
    assert "\x1b" not in told


def test_without_the_flag_the_file_is_not_read(config):
    file_of(config, "{")
    assert ask("--prompt", "x").settings.temp == 0.0
    assert ask("--prompt", "x", "--preset", "precise").settings.temp == 0.3


def test_a_directory_that_stays_locked_is_said_and_not_waited_for(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program that was stopped, or over a network: the screen waits for the answer."""
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.1)
    presets = Presets()
    presets.save("mine", MINE)
    holder = os.open(config, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    before = (config / "presets.json").read_bytes()
    began = time.monotonic()
    with pytest.raises(PathError, match=r"Another program has locked .*\. Let it go on"):
        presets.save("other", MINE)
    assert time.monotonic() - began < 5
    assert (config / "presets.json").read_bytes() == before
    threading.Timer(0.02, os.close, [holder]).start()
    assert "Saved as other" in presets.save("other", MINE)
