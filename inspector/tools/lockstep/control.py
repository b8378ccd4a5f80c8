"""The second model of a lockstep, and the keys of its screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.protocol import (
    CloseLockstep,
    FollowSecond,
    LockstepMemory,
    LockstepOpened,
    ModelFacts,
    OpenLockstep,
    PartWays,
    ReadLockstep,
    Record,
    Resampled,
    Take,
    WaysParted,
)
from engine.settings import LoadSettings
from inspector.main.tool import ToolActions
from inspector.session.client import Request
from inspector.session.requests import Job
from inspector.state.lockstep import LockstepSoFar
from inspector.widgets.actions import Action, Needs, back, both, screen_table

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class LockstepActions(ToolActions):
    """Opens second models and has them read what is on show.

    Args:
        host: The main screen.
        against: The second model to open with the first; None for none.
    """

    def __init__(self, host: MainScreen, against: OpenLockstep | None = None) -> None:
        super().__init__(host)
        client = self.controller.client
        self.job = Job(client, OpenLockstep, CloseLockstep, ReadLockstep, FollowSecond, PartWays)
        self._against = against
        self._fingerprint: str | None = None
        """The fingerprint of the first model that the second was asked for with."""
        self._asked: tuple[LockstepOpened, int] | None = None
        """The last question: it isn't asked again if it failed."""
        self.memory: LockstepMemory | None = None
        """The memory that the loading model needs, once that is known."""
        self.stopped = False
        """True if the last one was stopped while it was loading."""
        client.listen(self._receive, ModelFacts, Resampled)

    @property
    def state(self) -> LockstepSoFar:
        """The lockstep so far, live or recorded."""
        return self.timeline.of(LockstepSoFar)

    def _receive(self, record: Record) -> None:
        """Open the second model with another first one; what was drawn again is read again."""
        if isinstance(record, ModelFacts) and self._against is not None:
            # a second one was asked for with this one, or with any
            known = self._fingerprint in (None, record.fingerprint)
            if known and not self.controller.transport.recorded:
                self._fingerprint = record.fingerprint
                self._load(self._against)
        elif isinstance(record, Resampled):
            self._asked = None

    def open(self, load: LoadSettings, bits: int | None) -> None:
        """Compare with a second model.

        Args:
            load: What it is, and how it is loaded.
            bits: In which it is quantized while it is loaded; None for what its files hold.
        """
        self._against = OpenLockstep(load, bits)
        facts = self.timeline.facts
        self._fingerprint = facts.fingerprint if facts is not None else None
        self._load(self._against)

    def _load(self, against: OpenLockstep) -> None:
        self.memory, self.stopped = None, False
        self.job.start(against, each=self._loading)

    def _loading(self, record: Record) -> None:
        if isinstance(record, LockstepMemory):
            self.memory = record

    @property
    def loading(self) -> bool:
        """True if a second model is being loaded."""
        return any(isinstance(command, OpenLockstep) for command in self.job.commands)

    def want(self) -> None:
        """Have the rest of the path on show read."""
        timeline, opened = self.timeline, self.state.opened
        recorded = self.controller.transport.recorded
        if recorded or opened is None or not timeline.items or timeline.prompts.reading:
            return
        node = timeline.tip
        if self.job.running or node in self.state.ahead or self._asked == (opened, node):
            return
        self._asked = opened, node
        self.job.start(ReadLockstep(node))

    def branch(self, ways: WaysParted, then: Callable[[], None]) -> None:
        """Take both ways as branches of the session's tree, the first model's last, so that the session stands there.

        Args:
            ways: Of models with the same tokens.
            then: Called once both are taken, unless that was cancelled or failed.
        """

        def taken(request: Request[Take]) -> None:
            if not any(each.cancelled or each.failure for each in (first, request)):
                then()

        first = self.controller.client.do(Take(ways.node, ways.other_ids))
        self.controller.client.do(Take(ways.node, ways.ids), taken)


def _looking(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, once there is a second model, or a recording."""
    return lambda own: word if own.recorded or own.opened is not None else ""


def _compared(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, once there is a second model."""
    return lambda own: word if own.opened is not None else ""


LOCKSTEP_SCREEN = screen_table(
    "In the lockstep of two models",
    Action("lockstep.open", "Second model",
           "Choose the second model: this one in 8 or 4 bits or with an adapter, one on the disk, or another. The "
           "session stays as it is.",
           lambda own: own.ask_model(), Needs.ENGINE, worth=7, place=9,
           hint=lambda own: "another Q" if own.opened else "open a second model"),
    Action("lockstep.stop", "Stop loading", "Stop loading the second model.",
           lambda own: own.stop_loading(), Needs.ENGINE, worth=10,
           hint=lambda own: "stop" if own.control.loading else ""),
    Action("lockstep.follow_first", "Follow P",
           "Follow P: step by the first model's pick; at an earlier token, go one forward.",
           lambda own: own.follow_first(), Needs.ENGINE, hint=_compared("follow P"), worth=8, place=3),
    Action("lockstep.follow_second", "Follow Q", "Follow Q: step by the second model's pick.",
           lambda own: own.follow_second(), Needs.ENGINE, hint=_compared("follow Q"), worth=7, place=4),
    Action("lockstep.ways", "Own ways",
           "Let each model continue on its own from the cursor, and show where they part and meet; again for the "
           "candidates.",
           lambda own: own.part(), worth=7, place=5,
           hint=lambda own: "" if own.recorded or not own.opened else "candidates" if own.way else "own ways"),
    Action("lockstep.branch", "Branches",
           "While the two continuations are shown: make both branches of the tree, and compare them.",
           lambda own: own.branch(), Needs.ENGINE, worth=9, place=1,
           hint=lambda own: "branches, compared" if own.way else ""),
    *both(("earlier", "later"), ("Previous token", "Next token"), "Look at another token.",
          lambda own, by: own.walk(by), hint=_looking("token"), worth=7, place=6),
    Action("first", "First token", "Look at another token.", lambda own: own.look_at(0)),
    Action("tip", "Last token", "Look at another token.", lambda own: own.look_at(None)),
    Action("lockstep.measure", "Measure", "Colour by KL(P||Q), by the change of logprob or by the change of rank.",
           lambda own: own.change_measure(), hint=_looking("measure"), worth=5, place=6),
    *both(("lockstep.next_flip", "lockstep.flip_before"), ("Next flip", "Previous flip"),
          "Go to the next token with another top token (`≠`), or to the previous one.",
          lambda own, by: own.go_to_flip(by), by=(1, -1), hint=_looking("flip ≠"), worth=6, place=7, one=True),
    Action("lockstep.largest", "Largest", "Go to the largest; again, to the next largest.",
           lambda own: own.go_to_largest(), hint=_looking("largest"), worth=6, place=7),
    *both(("lockstep.why_first", "lockstep.why_second"), ("Why P", "Why Q"),
          "Show why the session's model takes its token here, or why the second one would, with the same draw.",
          lambda own, by: own.look_into(by, "why"), by=(0, 1), hint=_compared("why P, Q"), worth=9, place=1,
          needs=Needs.ENGINE),
    *both(("lockstep.inside_first", "lockstep.inside_second"), ("Inside P", "Inside Q"),
          "Look inside the session's model at this token, or inside the second one: the layers first, the other views "
          "from there.",
          lambda own, by: own.look_into(by, "lens"), by=(0, 1), hint=_compared("inside P, Q"), worth=9, place=2,
          needs=Needs.ENGINE),
    back("lockstep.leave", "Go back; the second model stays.", worth=10),
    text="P is the session's model, Q the second one. `--against MODEL`, `--against-bits 4`, `--against-adapter DIR` "
    "or `--against-system-prompt TEXT` open it at the start, too. KL(P||Q) is in bits, "
    "over the whole vocabulary (llama.cpp prints nats). Where the two cut the text into different tokens, only "
    "logprobs between common borders are compared.",
)  # fmt: skip
