"""Sampling settings that are tried in their dialog: what is shown meanwhile, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.settings import Settings
from inspector.keys import with_keys
from inspector.main.tool import Host

if TYPE_CHECKING:
    from inspector.tools.sampler.dialog import SamplingDialog

TRIED = "Recorded: the settings were tried, and can't be gone on with. {go_live} goes on live from here"


class WhatIfFlow:
    """One dialog after the other.

    Args:
        host: The main screen.
    """

    def __init__(self, host: Host) -> None:
        self.open = False
        """Whether settings are tried, with the sampler in sight."""
        self._host, self._controller = host, host.controller
        self._slot: int | None = None
        """The slot selected before, None for the tip."""

    def dialog(self) -> SamplingDialog:
        """Begin: a dialog that tries what is typed; give what it returns to `end`."""
        from inspector.tools.sampler.dialog import SamplingDialog

        controller, timeline = self._controller, self._controller.timeline
        self.open, self._slot = controller.stepping, None if timeline.following else timeline.slot
        return SamplingDialog(
            controller.setup.settings,
            timeline.facts.vocabulary if timeline.facts else None,
            attempt=self._try,
            look=self._look,
            at=lambda: controller.setup.applies_at,
            above=card.outer_size.height if (card := self._host.card) is not None and card.display else 0,
        )

    def _try(self, settings: Settings) -> None:
        self._controller.queries.try_out(self._controller.timeline, settings)
        self._host.answer()

    def _look(self, what: str, by: int) -> None:
        """Look elsewhere meanwhile, or have dropped logits computed again."""
        controller = self._controller
        if not controller.stepping:
            return
        match what:
            case "differing":
                self._host.answer(controller.navigation.differing(by))
            case "recall":
                self._host.answer(controller.setup.recall())
            case _:
                controller.timeline.walk(by)
                self._host.answer()

    def end(self, settings: Settings | None) -> None:
        """Apply the settings; or, where they were discarded, restore those before and the selected slot."""
        self.open = False
        if settings is not None and self._controller.transport.recorded:
            self._controller.queries.try_out(self._controller.timeline, None)
            self._host.answer(with_keys(TRIED))
            return
        if settings is not None:
            self._controller.setup.apply(settings)
        else:
            self._controller.queries.try_out(self._controller.timeline, None)
            self._controller.timeline.select(self._slot)
        self._host.answer()
