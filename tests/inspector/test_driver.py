"""What the driver makes of what a terminal sends and of a terminal that has gone."""

from __future__ import annotations

import errno
import io
from itertools import pairwise

import pytest
from textual.events import Paste

from inspector.driver import MOST_PASTED, PasteReader, TerminalOutput

SENT = "ab\x1b[200~one \x1b[A\x00two\x1b[201~c\x1b[200~\x1b[201~\x1b[Bd"
READ = ["ab", Paste("one \x1b[Atwo"), "c", Paste(""), "\x1b[Bd"]


def together(parts: list[str | Paste]) -> str:
    """Pasted texts marked, and typed ones joined: the reader may cut those anywhere."""
    return "".join(f"‹{part.text}›" if isinstance(part, Paste) else part for part in parts)


@pytest.mark.parametrize("size", [1000, *range(6, 30)])
def test_pasted_texts_are_told_from_typed_ones_wherever_they_are_cut(size: int) -> None:
    reader = PasteReader()
    begins = SENT.index("\x1b[200~"), SENT.rindex("\x1b[200~")
    cuts = [0, *range(size, len(SENT), size), len(SENT)]
    if any(begin < cut < begin + 6 for begin in begins for cut in cuts):
        pytest.skip("a beginning that is cut in two is left to the toolkit")
    parts = [part for a, b in pairwise(cuts) for part in reader.read(SENT[a:b])]
    assert together(parts) == together(READ)


def test_of_a_pasted_text_no_more_is_kept_than_any_field_takes() -> None:
    reader = PasteReader()
    parts = [part for _ in range(400) for part in reader.read("\x1b[200~"[: 6 * (not _)] + "x" * 2**14)]
    parts += reader.read("y\x1b[201~q")
    pasted, typed = parts
    assert isinstance(pasted, Paste)
    assert MOST_PASTED <= len(pasted.text) <= MOST_PASTED + 2**15
    assert typed == "q"


class Closed(io.StringIO):
    """A terminal that fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.tries = number, 0

    def write(self, text: str) -> int:
        self.tries += 1
        raise OSError(self.number, "failed")


def test_a_terminal_that_has_gone_is_written_to_once() -> None:
    lost: list[bool] = []
    file = Closed(errno.EIO)
    output = TerminalOutput(file, lambda: lost.append(True))
    for _ in range(50):
        output.write("x")
        output.flush()
    assert (file.tries, lost) == (1, [True])


def test_another_failure_is_no_end_of_the_terminal() -> None:
    with pytest.raises(OSError, match="failed"):
        TerminalOutput(Closed(errno.ENOSPC), list).write("x")
