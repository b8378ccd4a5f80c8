"""Lessons from strangers: whatever a file holds, its reader answers with a lesson or with what is wrong, soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import EngineError
from inspector.lessons.check import read_checked
from inspector.lessons.errors import LessonError
from inspector.lessons.reading import LARGEST, draft, lesson, read
from tests.inspector.lessons.test_check import GOOD
from tests.system import peak

SECONDS = 20.0
"""For one file on a busy machine; each takes far below one alone."""
HEAD = '+++\ntitle = "t"\nprompt = "p"\n+++\n'
BLOCK = HEAD + "## b\n\n```toml\n{}\n```\n"
BODY = HEAD + "## b\n\n{}\n"
N = LARGEST - 500
BOMBS = {
    "dotted name": BLOCK.replace("{}", "a." * (N // 2) + "a = 1"),
    "dotted names": BLOCK.replace("{}", "\n".join(f"{'a.' * 29}b{each} = 1" for each in range(500))),
    "quoted dotted name": BLOCK.replace("{}", '"a".' * (N // 4) + "a = 1"),
    "dotted tables": BLOCK.replace("{}", "[" + "a." * 4000 + "a]"),
    "inline dotted": BLOCK.replace("{}", "x = {" + "a." * 4000 + "a = 1}"),
    "arrays": BLOCK.replace("{}", "act = " + "[" * 8000),
    "tables in tables": BLOCK.replace("{}", "keep = " + "{a=" * 5000),
    "digits": BLOCK.replace("{}", "minutes = " + "9" * 8000),
    "hex": BLOCK.replace("{}", "minutes = 0x" + "f" * 8000),
    "infinite": BLOCK.replace("{}", "minutes = inf"),
    "open braces": BODY.replace("{}", "{" * N),
    "braces": BODY.replace("{}", "{}" * (N // 2)),
    "names in braces": BODY.replace("{}", "{a}" * (N // 3)),
    "brackets": BODY.replace("{}", "[" * N),
    "stars": BODY.replace("{}", "*a" * (N // 2)),
    "underscores": BODY.replace("{}", "_" * N),
    "links": BODY.replace("{}", "[a](" * (N // 4)),
    "references": BODY.replace("{}", "[a]: b\n" * 2900),
    "quotes": BODY.replace("{}", "> " * (N // 2)),
    "quoted lines": BODY.replace("{}", "> > > > a\n" * 2900),
    "items": BODY.replace("{}", "- " * (N // 2)),
    "item lines": BODY.replace("{}", "- a\n" * 2900),
    "deeper items": BODY.replace("{}", "".join(" " * each + "- a\n" for each in range(300))),
    "headings": BODY.replace("{}", "# a\n" * 2900),
    "fences": BODY.replace("{}", "```\n" * 2900),
    "ticks": BODY.replace("{}", "`" * N),
    "option of dots": BODY.replace("{}", "? q\n\n- a {" + "." * N + "x}\n- b"),
    "option of blanks": BODY.replace("{}", "? q\n\n- a" + " " * N + "{\n- b"),
    "many lines": BODY.replace("{}", "\n" * (LARGEST // 2)),
    "returns": BODY.replace("{}", "\r" * (LARGEST // 2)),
    "parentheses": BODY.replace("{}", "{" + "(" * 190 + "}"),
    "minuses": BODY.replace("{}", "{" + "-" * 190 + "1}"),
    "attributes": BODY.replace("{}", "{a" + ".a" * 90 + "}"),
    "comparisons": BODY.replace("{}", "{" + "1<" * 90 + "1}"),
    "sums": BODY.replace("{}", "{" + "1+" * 90 + "1}"),
    "large numbers": BODY.replace("{}", "{" + "9" * 190 + "}"),
    "nulls": BODY.replace("{}", "\0{\0}\0"),
    "surrogates": BODY.replace("{}", "{\ud800}"),
    "words": BODY.replace("{}", "a " * (N // 2)),
}


def read_in_time(text: str) -> None:
    """Read a file as the screen does, and check it as an author does: a lesson, or faults with their lines."""
    begin = time.process_time()
    made, faults = read_checked(text, "hostile")
    assert (made is None) <= bool(faults)
    assert all(1 <= fault.line <= max(3000, text.count("\n") + 2) and fault.message for fault in faults)
    if faults and made is None:
        with pytest.raises(LessonError):
            lesson(text, "hostile")
    assert time.process_time() - begin < SECONDS


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_bounded_time_and_memory(name: str) -> None:
    before = peak()
    read_in_time(BOMBS[name])
    assert peak() - before < 400 * 2**20


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.md"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole, not a terabyte
    with pytest.raises(Exception, match="large") as caught:
        read(path)
    assert "large" in str(caught.value)


def test_a_file_that_is_too_large_is_told_by_how_much(tmp_path: Path) -> None:
    path = tmp_path / "long.md"
    path.write_bytes(b"x" * 70_000)
    with pytest.raises(EngineError, match=r"more than 64 KiB\. Give a smaller one"):
        read(path)


BEAT = "## b\n\nA text.\n\n"
ASKED = "## b\n\n```toml\nanswer = '1'\n```\n\n? q\n\n{}\n"


def _options(count: int) -> str:
    return HEAD + ASKED.replace("{}", "\n".join(f"- {number}" for number in range(count)))


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        (HEAD + BEAT * 60, HEAD + BEAT * 61, 5 + 60 * 4, "There are 61 cards."),
        (BLOCK.replace("{}", f"act = {['step'] * 20}"), BLOCK.replace("{}", f"act = {['step'] * 21}"), 8,
         "There are 21 actions."),
        (_options(2), _options(1), 11, "The question has 1 options."),
        (_options(4), _options(5), 11, "The question has 5 options."),
        (HEAD + ASKED.replace("{}", f"- {'a' * 200}\n- b"), HEAD + ASKED.replace("{}", f"- {'a' * 201}\n- b"), 13,
         "An option is too long."),
        (BLOCK.replace("{}", "minutes = 600"), BLOCK.replace("{}", "minutes = 600.1"), 8, "from 0 to 600."),
        (BLOCK.replace("{}", "minutes = 0"), BLOCK.replace("{}", "minutes = -0.1"), 8, "from 0 to 600."),
        (BLOCK.replace("{}", "minutes = 1"), BLOCK.replace("{}", "minutes = true"), 8, "minutes must be a number."),
        (BLOCK.replace("{}", "look = 'step 999999'"), BLOCK.replace("{}", "look = 'step 1000000'"), 8,
         "names no token."),
        (BLOCK.replace("{}", "look = 'prompt 1'"), BLOCK.replace("{}", "look = 'prompt 0'"), 8, "names no token."),
        (BLOCK.replace("{}", "hide = 'sampler'"), BLOCK.replace("{}", "hide = ['sampler', 5]"), 8, "a list of texts"),
        (BLOCK.replace("{}", "keep = {a = 'next.prob'}"), BLOCK.replace("{}", "keep = {a = 5}"), 8, "a can't be the"),
        (BLOCK.replace("{}", "keep = {a = 'next.prob'}"), BLOCK.replace("{}", "keep = {'a b' = 'next.prob'}"), 8,
         "a b can't be the"),
        (BLOCK.replace("{}", "keep = {a = 'next.prob'}"), BLOCK.replace("{}", "keep = {step = 'next.prob'}"), 8,
         "step can't be the"),
        (BLOCK.replace("{}", "#" * (16 * 1024 - 1)), BLOCK.replace("{}", "#" * (16 * 1024)), 8, "too large"),
        (HEAD + BEAT + "\n" * (3000 - 8), HEAD + BEAT + "\n" * (3000 - 7), 3000, "too long for a lesson"),
        (f"{HEAD}{BEAT}".ljust(LARGEST, "a"), f"{HEAD}{BEAT}".ljust(LARGEST + 1, "a"), 3000, "too long for a lesson"),
        (HEAD + BEAT, HEAD + "A text.\n\n" + BEAT, 5, "There is text before the first card."),
        (HEAD + BEAT, HEAD, 5, "There is no card."),
        (_options(2), _options(2) + "\n? r\n", 16, "asks one question."),
        (_options(2), _options(2).replace("- 1", "- 0"), 14, "empty, or given twice."),
        (HEAD + BEAT, HEAD.replace('title = "t"', 'title = " "') + BEAT, 2, "The lesson has no title."),
        (HEAD + BEAT, HEAD.replace("+++\n", "++\n", 1) + BEAT, 1, "doesn't begin with +++"),
        (HEAD + BEAT, "+++\n" + BEAT, 1, "The front matter has no end."),
    ],
    ids=lambda value: value if isinstance(value, str) and value.count("\n") == 0 else "",
)  # fmt: skip
def test_the_last_that_is_allowed_is_read_and_the_first_beyond_is_told_with_its_line(
    right: str, wrong: str, line: int, said: str
) -> None:
    made, faults = draft(right, "a")
    assert (made is not None, [fault.message for fault in faults]) == (True, [])
    found = draft(wrong, "a")[1]
    assert [(fault.line, said in fault.message) for fault in found] == [(line, True)], found


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"+++\n\xc3\x28", b"\x00" * 1000, b"", b"+++", b"\xef\xbb\xbf+++\n"]
)
def test_bytes_that_are_no_lesson(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bytes.md"
    path.write_bytes(content)
    with pytest.raises(LessonError):
        read(path)


def test_a_file_of_windows_is_read(tmp_path: Path) -> None:
    """With a byte order mark, and returns before the line ends."""
    path = tmp_path / "windows.md"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    made, usual = read(path), lesson(GOOD, "windows")
    assert (made.title, made.settings) == (usual.title, usual.settings)
    assert [(each.title, each.line, each.look) for each in made.beats] == [
        (each.title, each.line, each.look) for each in usual.beats
    ]


PIECES = st.sampled_from(
    [
        "+++\n", "\n", "\n\n", "## b\n\n", "```toml\n", "```\n", "? ", "- ", "> ", "Note: ", "{", "}", ":.3}", "..",
        "[", "]",
        'title = "t"\n', "minutes = ", 'act = "', '"\n', "keep = {", "settings = {", "temp = ", "seed = ", "look = ",
        "answer = ", "step(3)", "next.draw", "candidate('girl')", "whatif(temp=", ")", ".", "-", "1e999", "nan", "0",
        "set temp=", "race 128", "beams width=", "prompt ", "choose ", "\x00", "\r", "\u2028", "é", "\ud83d", "    ",
        "\t",
    ]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(PIECES, max_size=60).map("".join),
    st.lists(PIECES, max_size=40).map(lambda parts: HEAD + "## b\n\n" + "".join(parts)),
    st.lists(PIECES, max_size=40).map(lambda parts: BLOCK.replace("{}", "".join(parts))),
    st.tuples(st.integers(0, len(GOOD)), st.integers(0, 30), st.lists(PIECES, max_size=4).map("".join)).map(
        lambda cut: GOOD[: cut[0]] + cut[2] + GOOD[cut[0] + cut[1] :]
    ),
    st.text(alphabet="{}.()'\"=+-*/<>,:ab1 ", max_size=120).map(
        lambda inside: BODY.replace("{}", f"{{{inside}}}")
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(TEXTS)
def test_no_text_makes_the_reader_fail(text: str) -> None:
    read_in_time(text)
