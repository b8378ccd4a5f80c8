"""Where the person looks, and where the cache goes: along the path, and between branches."""

from __future__ import annotations

from engine import records
from engine.commands import Choose, MoveTo, Reroll, TakeStep, Verify
from inspector.session.client import EngineClient


class Navigation(EngineClient):
    """Looks around and branches; every method that a key calls returns what to tell the person."""

    # ---- look around ------------------------------------------------------------------------

    def walk(self, by: int) -> None:
        """Look at the token `by` slots away, as far as the path goes."""
        self.timeline.select(max(0, self.timeline.slot + by))

    def first(self) -> None:
        """Look at the first token of the completion; from there, at the first of the prompt."""
        prompt = self.timeline.boundary  # less than the whole prompt where a branch leaves inside it
        self.timeline.select(0 if self.timeline.slot == prompt else prompt)

    def tip(self) -> None:
        """Follow the token to come."""
        self.timeline.select(None)

    def steps_range(self) -> tuple[int, int] | None:
        """Numbers of the first and the last step of the path, counted from 1; None where there is no step."""
        steps = self.timeline.steps
        return (steps[0].index + 1, steps[-1].index + 1) if steps else None

    def jump(self, number: int) -> None:
        """Look at the step of that number, counted from 1."""
        for slot, item in enumerate(self.timeline.items):
            if isinstance(item, records.Step) and item.index == number - 1:
                self.timeline.select(slot)

    # ---- branch -----------------------------------------------------------------------------

    def choose(self, token: int) -> str:
        """Take a token at the selected slot, and go on from it."""
        selected = self.timeline.selected
        if selected is not None and selected.id == token:
            return (
                "This token already stands here. Highlight another with ↑ ↓ to branch, or press end to go on."
            )
        self.pause()
        self._send(Choose(self.timeline.before, token))
        return ""

    def take_back(self) -> str:
        """Move the cache to before the last token of the completion."""
        node = self._standing()
        if not isinstance(self.timeline.nodes.get(node), records.Step):
            return "Nothing to take back: the completion is empty. Press p to change the prompt."
        self.pause()
        self.timeline.select(None)
        self._send(MoveTo(self.timeline.parent[node]))
        return ""

    def _standing(self) -> int:
        """Node where the cache will stand when what is out is done, so that quick presses add up."""
        last = self.outstanding[-1] if self.outstanding else None
        return last.node if isinstance(last, MoveTo) else self.timeline.tip

    def branch(self, by: int) -> str:
        """Go to the end of a neighbouring branch, and keep the place where they part selected."""
        if self.timeline.following and self.timeline.latest.get(self.timeline.tip) is not None:
            return self._go(self.timeline.tip, None)  # what was taken back
        slot, nodes = self._fork()
        if not nodes:
            return "No other branch here. Highlight a candidate with ↑ ↓ and press ⏎ to make one."
        place = nodes.index(self.timeline.items[slot].node) + by
        return self._go(nodes[place % len(nodes)], slot)

    def _go(self, node: int, slot: int | None) -> str:
        self.pause()
        self.timeline.select(slot)
        self._send(MoveTo(self.timeline.leaf(node)))
        return ""

    def _fork(self) -> tuple[int, list[int]]:
        """The selected slot and the nodes that stand in it, where there are several; at the tip the nearest."""
        timeline = self.timeline
        slots = range(len(timeline.items) - 1, -1, -1) if timeline.following else (timeline.slot,)
        for slot in slots:
            if len(nodes := timeline.siblings(slot)) > 1:
                return slot, nodes
        return timeline.slot, []

    def reroll(self) -> str:
        """Draw the token to come again; at an older step draw that one again, which makes a sibling of it."""
        if self.settings.temp == 0:
            return (
                "Greedy has no draw: it takes the most probable token. Press s and set a temperature above 0."
            )
        node = self.timeline.before if isinstance(self.timeline.selected, records.Step) else None
        self.pause()
        self.timeline.select(None)
        if node is None:
            self._send(Reroll())
        else:
            self._draw_again(node)
        return ""

    def _draw_again(self, node: int) -> None:
        self._send(MoveTo(node))
        self._send(Reroll())
        self._again = TakeStep()
        self._send(self._again)

    def differing(self, by: int) -> str:
        """Look at the next (or, with -1, the last) step that the settings tried would have picked otherwise."""
        timeline = self.timeline
        slots = [slot for slot, item in enumerate(timeline.items) if timeline.other(item) is not None]
        here = [slot for slot in slots if (slot > timeline.slot if by > 0 else slot < timeline.slot)]
        if not here:
            return (
                f"No {'later' if by > 0 else 'earlier'} step would differ."
                if slots
                else "No step would differ."
            )
        timeline.select(here[0] if by > 0 else here[-1])
        return ""

    def verify(self) -> str:
        """Have the path recomputed from nothing and compared."""
        self.pause()
        self._send(Verify())
        return ""
