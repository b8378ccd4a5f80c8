"""A sentence names a key of the main screen by the table of keys: no source has one as a literal, and the engine, which
doesn't know that table, names none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.keys import FIXED, KEYS, names_of, shown

ROOT = Path(__file__).parents[2]
NOT_NAMED = {"super+c", "="}
"""Keys beside the one that is named."""
ELSEWHERE = {
    ("documents/second_model.py", "B"): "the second model",
    ("lessons/dialogue.py", "q"): "typed at the dialogue's prompt, a line each",
    ("views/lookahead.py", "2"): "the number of a panel, which follows from the order of the panels",
    ("views/second_model.py", "B"): "the second model",
    ("views/sampler.py", "B"): "the second model",
    ("state/second_model.py", "B"): "the second model",
}  # fmt: skip
"""What looks like a key of the main screen and is none."""
_NAMES = sorted(
    {shown(name) for id in KEYS for name in names_of(id) if name not in FIXED} - NOT_NAMED,
    key=len,
    reverse=True,
)
_LETTERS = "".join(name for name in _NAMES if len(name) == 1 and name.isalpha() and name not in "aAI")
_WORDS = "|".join(re.escape(name) for name in _NAMES if len(name) > 1)
_SIGNS = "".join(
    re.escape(name) for name in _NAMES if len(name) == 1 and not name.isalpha() and name not in "⌫0"
)
_END = r"(?=$|[ .,:;)`*])"
_ROW = re.compile(r"`[^`]+`(?:,?(?: or| then)? `[^`]+`)*")
"""The keys of a row in a screen's own help: test_keys.py holds them against what it binds."""
LITERALS = (
    # the first word of a clause, with a verb after it: "J shows", "; space goes on"
    re.compile(rf"(?:^|[.;:(·] |, |\*\*)(?P<key>[{_LETTERS}⌫]|{_WORDS}|Space)(?: or [{_LETTERS}⌫])? [a-z]+(?:s|ing)\b"),
    # what is pressed: "press p", "then G", "(X then", "`w`", "**w**"
    re.compile(rf"\b(?:[Pp]ress|then|[Ll]ive with(?! a )|Meanwhile:) (?P<key>[{_LETTERS}aAI⌫{_SIGNS}]|{_WORDS}){_END}"),
    re.compile(rf"(?:`|\*\*)(?P<key>[{_LETTERS}AI⌫@;&#]|{_WORDS})(?:`|\*\*)"),
    # what is listed: "s settings, q quit", "q to quit", "or r", "* sets", "# shows", "; shows"
    re.compile(rf"(?:, |or |and )(?P<key>[{_LETTERS}]|{_WORDS}) (?:to |for |[a-z]+(?:s|ing)\b)"),
    re.compile(r"(?:^|[.:,] )(?P<key>[*#@&;]) (?:sets|shows?|says|tries|gives)\b"),
)  # fmt: skip


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a source that are no docstrings; what is put into one is shown as `{}`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed |= {id(value) for value in node.values}
            yield (
                node.lineno,
                "".join(
                    str(value.value) if isinstance(value, ast.Constant) else "{}" for value in node.values
                ),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            yield node.lineno, node.value


def literals(path: Path) -> Iterator[tuple[int, str, str]]:
    """Keys of the main screen that are written out in a source."""
    name = str(path.relative_to(ROOT)).removeprefix("inspector/")
    for line, text in sentences(path):
        if _ROW.fullmatch(text) or (len(text.split()) < 2 and "`" not in text):
            continue
        # the engine writes of rows K and columns N: there only what is pressed counts
        for each in LITERALS if path.is_relative_to(ROOT / "inspector") else LITERALS[1:2]:
            for match in each.finditer(text):
                key = match["key"].replace("Space", "space")
                if (name, key) not in ELSEWHERE:
                    yield line, key, text[max(0, match.start() - 20) : match.end() + 20]


SOURCES = [
    path
    for path in sorted([*(ROOT / "inspector").rglob("*.py"), *(ROOT / "engine").rglob("*.py")])
    if path.name != "keys.py" and not {"cli", "authors"} & set(path.parts)
]


def test_no_sentence_names_a_key_as_a_literal() -> None:
    found = [(str(path.relative_to(ROOT)), *each) for path in SOURCES for each in literals(path)]
    assert found == []


@pytest.mark.parametrize(
    "sentence",
    ["P is shown: J shows both models at each token.", "No model. Press o to open another, q to quit",
     "A beam search is here: B shows it", "Space or r continues", "esc, then G", "Draws: # shows them",
     "Continue live with G.",
     "Loading. Meanwhile: p another prompt, s settings", "`w` shows why it came", "Undone. U redoes it"],
)  # fmt: skip
def test_such_a_sentence_is_found(tmp_path: Path, sentence: str) -> None:
    path = tmp_path / "inspector" / "words.py"
    path.parent.mkdir()
    path.write_text(f"WORDS = {sentence!r}\n", encoding="utf-8")
    assert any(each.search(text) for _, text in sentences(path) for each in LITERALS)
