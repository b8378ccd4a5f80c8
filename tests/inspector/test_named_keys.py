"""A sentence names a key of the main screen by the table of keys: no source has one as a literal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.keys import KEYS
from inspector.main.screen import key_table
from inspector.tools.registry import TOOLS

ROOT = Path(__file__).parents[2]
SAME_EVERYWHERE = {"↑", "↓", "←", "→", "⏎", "esc", "tab", "pgup", "pgdn", "home", "end"}
"""Keys of every list, form and dialog, which each binds for itself: they name no action of the main screen."""
ELSEWHERE = {
    ("tools/export/evidence.py", "P"): "the first model, as lockstep calls it",
    ("tools/export/evidence.py", "Q"): "the second model, as lockstep calls it",
    ("lessons/actions.py", "n"): "the beam search's own key",
    ("lessons/actions.py", "space"): "the race's own key",
    ("lessons/actions.py", "r"): "the beam search's own key",
    ("lessons/actions.py", "ctrl+s"): "the key of every dialog",
    ("lessons/dialogue.py", "h"): "typed at the dialogue's prompt, a line each",
    ("lessons/dialogue.py", "q"): "typed at the dialogue's prompt, a line each",
    ("demo/record.py", "n"): "lockstep's own key",
    ("demo/record.py", "w"): "lockstep's own key",
    ("demo/record.py", "P"): "the first model, as lockstep calls it",
    ("main/status.py", "r"): "a key of the screen that switches parts off",
    ("main/status.py", "ctrl+s"): "the key of the dialog that is open then",
    ("main/key_help.py", "ctrl+s"): "the key of every dialog",
    ("main/panels/header.py", "T"): "the temperature",
    ("main/panels/header.py", "r"): "a key of the screen that switches parts off",
    ("main/panels/steps.py", "p"): "the probability",
    ("tools/compare/table.py", "p"): "the probability",
    ("tools/lessons/card.py", "Z"): "bound while a lesson runs",
    ("tools/lessons/notes.py", "v"): "a key of the notes' own program",
    ("tools/lockstep/measures.py", "Q"): "the second model",
    ("tools/lockstep/tool.py", "P"): "the first model",
    ("widgets/dialog.py", "ctrl+s"): "the key of every dialog",
    ("widgets/safety.py", "ctrl+o"): "the prompt dialog's own key",
}  # fmt: skip
"""What looks like a key of the main screen and is none."""
_NAMES = sorted({shown for _, shown in KEYS.values()} - SAME_EVERYWHERE, key=len, reverse=True)
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
    re.compile(rf"\b(?:[Pp]ress|then|Meanwhile:) (?P<key>[{_LETTERS}aAI⌫{_SIGNS}]|{_WORDS}){_END}"),
    re.compile(rf"(?:`|\*\*)(?P<key>[{_LETTERS}AI⌫@;&#]|{_WORDS})(?:`|\*\*)"),
    # what is listed: "s sampling, q quit", "q to quit", "or r", "* sets", "# shows", "; shows"
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


def bound(paths: list[Path]) -> set[str]:
    """What a tool's own screens and dialogs bind: such a key is theirs where it is named there."""
    found: set[str] = set()
    shown = {"space": "space", "backspace": "⌫", "number_sign": "#", "asterisk": "*"}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Binding":
                first = node.args[0]
                names = str(first.value).split(",") if isinstance(first, ast.Constant) else []
                found |= {shown.get(name, name) for name in names}
    return found


def literals(path: Path) -> Iterator[tuple[int, str, str]]:
    """Keys of the main screen that are written out in a source."""
    tools = "tools" in path.parts or "dialogs" in path.parts
    own = bound([*path.parent.glob("*.py")] if "tools" in path.parts else [path]) if tools else set()
    name = str(path.relative_to(ROOT / "inspector"))
    for line, text in sentences(path):
        if _ROW.fullmatch(text) or (len(text.split()) < 2 and "`" not in text):
            continue
        for each in LITERALS:
            for match in each.finditer(text):
                key = match["key"].replace("Space", "space")
                if key not in own and (name, key) not in ELSEWHERE:
                    yield line, key, text[max(0, match.start() - 20) : match.end() + 20]


SOURCES = [
    path
    for path in sorted((ROOT / "inspector").rglob("*.py"))
    if path.name != "keys.py" and not {"cli", "authors", "serve"} & set(path.parts)
]


def test_no_sentence_names_a_key_as_a_literal() -> None:
    found = [(str(path.relative_to(ROOT)), *each) for path in SOURCES for each in literals(path)]
    assert found == []


@pytest.mark.parametrize(
    "sentence",
    ["P is shown: J shows both models at each token.", "No model. Press o to open another, q to quit",
     "A beam search is here: B shows it", "Space or r goes on past it", "esc, then G", "Draws: # shows them",
     "Loading. Meanwhile: p another prompt, s sampling", "`w` shows why it came", "Undone. U does it again"],
)  # fmt: skip
def test_such_a_sentence_is_found(tmp_path: Path, sentence: str) -> None:
    path = tmp_path / "inspector" / "words.py"
    path.parent.mkdir()
    path.write_text(f"WORDS = {sentence!r}\n", encoding="utf-8")
    assert any(each.search(text) for _, text in sentences(path) for each in LITERALS)


def test_the_table_has_the_keys_of_all_tools() -> None:
    """But the numbers of the panels, which follow from their order."""
    table = key_table(TOOLS)
    assert {
        key.id: (key.keys, key.shown) for key in table.keys if not key.shown.isdigit() or key.id == "alone"
    } == KEYS
