"""A person's own keys: what a file may say, what is told of it, and that the rest holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inspector.config.own_keys import LIMIT, OwnKeys, can_be_sent, read
from inspector.main.key_table import key_table
from inspector.views import TOOLS

PLACES = list(key_table(TOOLS).places())


def reading(path: Path, text: str) -> OwnKeys:
    path.write_text(text, encoding="utf-8")
    return read(lambda: PLACES, path)


def test_without_a_file_the_usual_keys_hold(tmp_path: Path) -> None:
    assert read(lambda: PLACES, tmp_path / "keys.toml") == OwnKeys({})


def test_keys_of_the_main_screen_and_of_a_tool_s_own(tmp_path: Path) -> None:
    own = reading(
        tmp_path / "keys.toml",
        '"step" = "f5"\nabove = ["f6", "ctrl+k"]\n"draws.go" = "g"\n\n[race]\nagain = "ctrl+n"\nlonger = "*"\n',
    )
    assert own.problems == ()
    assert own.keys == {
        "step": ("f5",), "above": ("f6", "ctrl+k"), "draws.go": ("g",), "race.again": ("ctrl+n",),
        "race.longer": ("asterisk",),
    }  # fmt: skip


def test_the_examples_of_readme_and_help_hold(tmp_path: Path) -> None:
    [example] = re.findall(
        r"```toml\n(step.*?)```",
        Path("inspector/help/keys-of-your-own.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    own = reading(tmp_path / "keys.toml", example)
    assert own.problems == ()
    assert len(own.keys) == 3
    page = Path("inspector/help/keys.md").read_text(encoding="utf-8")
    written = re.findall(r'`("?[a-z.]+"? = [^`]+)`', page)
    assert len(written) == 3
    assert reading(tmp_path / "keys.toml", 'skip = "f7"\n' + "\n".join(written)).problems == ()


def test_two_keys_can_be_exchanged(tmp_path: Path) -> None:
    own = reading(tmp_path / "keys.toml", 'step = "r"\nrun = "space"\n')
    assert own == OwnKeys({"step": ("r",), "run": ("space",)})


def test_a_key_that_was_freed_or_is_that_of_another_tab_can_be_taken(tmp_path: Path) -> None:
    own = reading(tmp_path / "keys.toml", 'sampling = "f2"\ntheme = "s"\nwhy = "c"\n')
    assert own == OwnKeys({"sampling": ("f2",), "theme": ("s",), "why": ("c",)})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('stepp = "f5"', "keys.toml: there is no action stepp. Did you mean step?"),
        ('qqqq = "f5"', "keys.toml: there is no action qqqq. `inspector --keys` lists them."),
        ('[race]\nwait = "f5"', "keys.toml: there is no action race.wait."),
        ('step = "ctrl+1"', "keys.toml: no terminal sends “ctrl+1” for step. Take a letter, a sign, f1 to f12"),
        ('step = "shift+n"', "keys.toml: no terminal sends “shift+n” for step."),
        ('step = "ctrl+m"', "keys.toml: no terminal sends “ctrl+m” for step."),
        ('step = "f99"', "keys.toml: no terminal sends “f99” for step."),
        ('step = ""', "keys.toml: no terminal sends “” for step."),
        ('step = "\\u001b"', "keys.toml: no terminal sends"),
        ('step = "ctrl+q"', "keys.toml: ctrl+q for step is not used: it quits everywhere. Take another key."),
        ("step = 5", 'keys.toml: step is no key. Write it as step = "n", or with several as ["n", "f5"].'),
        ("step = []", "keys.toml: step is no key."),
        ('step = ["n", 5]', "keys.toml: step is no key."),
        ('step = "n"', "keys.toml: n for step is not used: it is the key of skip in the tab Next. Take another key, "
                       "or give skip another one."),
        ('step = "r"', "keys.toml: r for step is not used: it is the key of run in every tab."),
        ('theme = ["f2", "s"]', "keys.toml: s for theme is not used: it is the key of sampling in the tab Keep."),
        ('earlier = "f7"\nlater = "f7"', "keys.toml: f7 for later is not used: it is the key of earlier in every tab."),
        ('[race]\nagain = "space"', "keys.toml: space for race.again is not used: it is the key of race.go in a race."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_a_line_and_the_rest_holds(tmp_path: Path, text: str, told: str) -> None:
    own = reading(tmp_path / "keys.toml", f'export = "f12"\n{text}\n')
    assert len(own.problems) == 1, own.problems
    assert own.problems[0].startswith(told)
    assert own.keys["export"] == ("f12",)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"step = ", "Invalid value"), (b"\xff\xfe", "can't decode"), (b"step = 'n'\n" * 2, "Cannot overwrite"),
        (b"a" * (LIMIT + 1), ""), (b"[" * 5000, ""), (b"a." * 5_000 + b"b = 1", ""), (b"step = " + b"[" * 10_000, ""),
    ],
)  # fmt: skip
def test_a_file_that_is_no_toml_or_too_large_is_told_once_and_nothing_of_it_holds(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "keys.toml"
    path.write_bytes(content)
    own = read(lambda: PLACES, path)
    assert own.keys == {}
    assert len(own.problems) == 1
    assert own.problems[0].startswith(f"The keys in {path} can't be read: ") or "no action" in own.problems[0]
    assert told in own.problems[0]
    assert len(own.problems[0]) < 600


def test_a_file_of_64_KiB_is_read_and_no_larger_one(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    entry = b'step = "f5"\n'
    for longer, keys in ((0, {"step": ("f5",)}), (1, {})):
        path.write_bytes(entry + b"#" * (64 * 1024 - len(entry) + longer))
        own = read(lambda: PLACES, path)
        assert own.keys == keys
        assert len(own.problems) == longer


@pytest.mark.parametrize("key", ["ctrl+q", "ctrl+p"])
def test_a_key_that_holds_everywhere_stays_what_it_is(tmp_path: Path, key: str) -> None:
    own = reading(tmp_path / "keys.toml", f'step = "{key}"')
    assert own.keys == {}
    assert f"{key} for step is not used: it " in own.problems[0]


def test_a_directory_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").mkdir()
    assert "can't be read" in read(lambda: PLACES, tmp_path / "keys.toml").problems[0]


def test_thousands_of_wrong_entries_are_told_within_a_moment(tmp_path: Path) -> None:
    own = reading(tmp_path / "keys.toml", "".join(f'a{number} = "n"\n' for number in range(5000)))
    assert len(own.problems) == 5000


def test_ten_wrong_names_get_a_similar_one(tmp_path: Path) -> None:
    own = reading(tmp_path / "keys.toml", "".join(f'ste{letter} = "f5"\n' for letter in "abcdefghijk"))
    assert ["Did you mean" in problem for problem in own.problems] == [*[True] * 10, False]


@pytest.mark.parametrize(
    "key",
    [
        "n",
        "N",
        "#",
        "ä",
        "space",
        "f1",
        "f24",
        "ctrl+a",
        "ctrl+z",
        "shift+up",
        "ctrl+delete",
        "pgup",
        "esc",
        "shift+tab",
        "⏎",
    ],
)
def test_what_terminals_send(key: str) -> None:
    assert can_be_sent(key)


@pytest.mark.parametrize(
    "key",
    [
        "",
        " ",
        "ab",
        "f0",
        "f25",
        "ctrl+1",
        "ctrl+h",
        "ctrl+i",
        "ctrl+j",
        "ctrl+m",
        "ctrl+[",
        "ctrl+f1",
        "super+c",
        "ctrl+shift+n",
        "shift+n",
        "shift+f1",
        "alt+up",
        "\t",
        "word",
        "alt+x",
    ],
)
def test_what_they_do_not(key: str) -> None:
    assert not can_be_sent(key)
