"""What the keys of the lockstep mean to the engine, and what the screen asks for by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.protocol import (
    CloseLockstep,
    Failure,
    FollowSecond,
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
from inspector.session.client import Request
from inspector.session.controller import Controller
from inspector.session.requests import Job
from inspector.state.lockstep import LockstepSoFar


class LockstepControl:
    """Opens second models and has them read what is on show.

    Args:
        controller: Sends the commands.
        against: The second model to open with the first; None for none.
    """

    def __init__(self, controller: Controller, against: OpenLockstep | None) -> None:
        self.controller = controller
        self.job = Job(controller.client, OpenLockstep, CloseLockstep, ReadLockstep, FollowSecond, PartWays)
        self._against = against
        self._fingerprint: str | None = None
        """Of the first model that the second was asked for with."""
        self._asked: tuple[LockstepOpened, int] | None = None
        """What was asked for last: it isn't asked for again where it failed."""
        controller.client.listeners.append(self._receive)

    @property
    def state(self) -> LockstepSoFar:
        """What is known, live or recorded."""
        return self.controller.timeline.of(LockstepSoFar)

    @property
    def live(self) -> bool:
        """Whether an engine can be asked."""
        return not self.controller.transport.recorded

    def _receive(self, record: Record) -> None:
        """Open the second model with another first one; what was drawn again is read again."""
        if isinstance(record, ModelFacts) and self.live and self._against is not None:
            if self._fingerprint in (
                None,
                record.fingerprint,
            ):  # it is another one that a second was asked for with
                self._fingerprint = record.fingerprint
                self.job.start(self._against.renewed())
        elif isinstance(record, Resampled):
            self._asked = None

    def open(self, bits: int) -> None:
        """Compare the first model with itself in fewer bits."""
        load = self.controller.setup.load
        self._against = replace(OpenLockstep(load), bits=bits)
        facts = self.controller.timeline.facts
        self._fingerprint = facts.fingerprint if facts is not None else None
        self.job.start(self._against)

    def want(self) -> None:
        """Have read what was not yet read of the path on show."""
        timeline, opened = self.controller.timeline, self.state.opened
        if not self.live or opened is None or not timeline.items or timeline.prompts.reading:
            return
        node = timeline.tip
        if self.job.running or node in self.state.ahead or self._asked == (opened, node):
            return
        self._asked = opened, node
        self.job.start(ReadLockstep(node))

    def follow(self) -> None:
        """Take what the second model picks after the token before the cursor."""
        self.job.start(FollowSecond(self.controller.timeline.before))

    def part(self) -> None:
        """Let each go its own way from the token before the cursor."""
        self.job.start(PartWays(self.controller.timeline.before))

    def branch(self, ways: WaysParted, then: Callable[[], None]) -> None:
        """Take both ways as branches of the session's tree, the first model's last, so that the session stands there.

        Args:
            ways: Of models with the same tokens.
            then: Called once both are taken; not where that was cancelled or failed.
        """

        def taken(request: Request[Take]) -> None:
            if not any(each.cancelled or each.failure for each in (first, request)):
                then()

        first = self.controller.client.do(Take(ways.node, ways.other_ids))
        self.controller.client.do(Take(ways.node, ways.ids), taken)

    @property
    def failure(self) -> Failure | None:
        """What failed and was not asked for again."""
        return self.job.failure
