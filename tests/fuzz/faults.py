"""What went wrong in a driven program, and the little by which it is known again."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tests.fuzz.actions import Action, Scenario

OURS = re.compile(r"/(inspector|engine)/(?!.*site-packages)")
"""In the path of a module of this project, whatever the directory of the checkout is called."""


class StuckError(Exception):
    """The program did not answer in time."""


@dataclass(frozen=True)
class Fault:
    """One thing that must not happen."""

    signature: str
    """Class of the error and the last place of ours in it: equal for the same fault in other sessions."""
    detail: str
    """The traceback, or what was seen."""


class Host(Protocol):
    """A program that actions are done to: within this process, or on a terminal of its own."""

    visits: Mapping[str, int]
    """How many actions were done in each screen and phase, as far as this can be seen."""

    def start(self, scenario: Scenario) -> None:
        """Begin a session."""

    def do(self, action: Action) -> Fault | None:
        """Do one action."""

    def probe(self) -> Fault | None:
        """See whether escape still leads to the main screen and its help key still opens the help."""

    @property
    def over(self) -> bool:
        """Whether the program was left, by one of its own keys."""

    @property
    def lost(self) -> bool:
        """Whether the session has been without what its kind is about for a while, and another should begin."""

    def end(self) -> Fault | None:
        """Leave the program, and see whether it ended as it should."""

    def resident(self) -> int:
        """Bytes of the program that are in memory."""


def of(error: BaseException, note: str = "") -> Fault:
    """The fault that an exception tells."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if OURS.search(frame.filename)]
    last = (ours or frames)[-1:]
    place = "".join(f"{frame.filename.rpartition('/')[2]}:{frame.name}" for frame in last)
    text = str(error).splitlines()
    told = re.sub(r"\d+", "N", text[0])[:60] if text else ""
    return Fault(
        f"{type(error).__name__}({told}) in {place}{note}", "".join(traceback.format_exception(error))
    )


def in_text(text: str) -> Fault | None:
    """The fault that a program tells on its way out, on a terminal or in its log; None where it tells none."""
    plain = re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|[│╭╮╰╯─]", "", text)
    if not re.search(r"Traceback|fault of the program|Fatal Python|terminate called|\w+Error: ", plain):
        return None
    errors = re.findall(r"^\s*(\w+(?:Error|Exception|Matches)\b.*)$", plain, re.MULTILINE)
    places = re.findall(r"/([^\s:\"]+\.py)\D{1,9}\d+,?\s+in\s+(\w+)", plain)
    ours = [place for place in places if OURS.search(place[0])]
    place = ":".join((ours or places or [("nowhere", "")])[-1]).rpartition("/")[2]
    what = re.sub(r"\d+", "N", errors[-1].strip())[:60] if errors else "a fault"
    return Fault(f"{what} in {place}", plain[-6000:])
