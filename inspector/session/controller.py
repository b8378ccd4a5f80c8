"""One session on the screen: its parts, and the moves along the path and between branches.

Every method that a key calls returns the answer for the user, or an empty string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import protocol
from engine.setting import GRAMMAR
from engine.settings import LoadSettings, Settings, SpeculationSettings
from inspector.keys import key_for
from inspector.session.client import Backend, EngineClient
from inspector.session.history import History
from inspector.session.setup import SamplerQueries, Setup
from inspector.session.transport import LiveTransport
from inspector.state.session_tree import quoted_label
from inspector.state.timeline import Phase, Timeline, other

if TYPE_CHECKING:
    from inspector.session.replay import ReplayTransport


class Navigation:
    """Selects tokens, chooses others, and moves between branches.

    Args:
        client: Takes the commands.
        setup: Has the sampler's settings.
    """

    def __init__(self, client: EngineClient, setup: Setup) -> None:
        self._client, self._setup = client, setup
        self._forbidden: tuple[int, int, int] | None = None
        """The last choice that the grammar forbade; choosing it again before the next step leaves the grammar."""
        client.listen(
            self._answered,
            protocol.Failure,
            protocol.Step,
            of=(protocol.Choose, protocol.Take, protocol.Insert),
        )

    @property
    def _timeline(self) -> Timeline:
        return self._client.timeline

    # ---- look around ------------------------------------------------------------------------

    def first(self) -> None:
        """Select the first token of the completion; from there, the first one of the prompt."""
        timeline = self._timeline
        first = timeline.step_slots[0] if timeline.step_slots else len(timeline.items)
        timeline.select(0 if timeline.slot == first else first)

    def tip(self) -> None:
        """Follow the token to come."""
        self._timeline.select(None)

    def steps_range(self) -> tuple[int, int] | None:
        """Numbers of the first and the last step of the path, counted from 1; None if there is no step."""
        steps = self._timeline.steps
        return (steps[0].index + 1, steps[-1].index + 1) if steps else None

    def jump(self, number: int) -> None:
        """Select the step with a number, counted from 1."""
        for slot, item in enumerate(self._timeline.items):
            if isinstance(item, protocol.Step) and item.index == number - 1:
                self._timeline.select(slot)

    def differing(self, by: int) -> str:
        """Select the next (or, with -1, the previous) step that the trial settings would have picked differently."""
        timeline = self._timeline
        slots = [slot for slot, item in enumerate(timeline.items) if other(timeline.trial, item) is not None]
        here = [slot for slot in slots if (slot > timeline.slot if by > 0 else slot < timeline.slot)]
        if here:
            timeline.select(here[0] if by > 0 else here[-1])
            return ""
        which = ("later " if by > 0 else "earlier ") if slots else ""
        return f"No {which}step would differ."

    def go_to(self, node: int, through: int | None = None) -> None:
        """Select a token of the tree: at once if it is on the path, else after a move of the engine to its branch.

        Args:
            node: Node of the token.
            through: A node below it that the path must contain; None for the branch that was last followed.

        Raises:
            KeyError: There is no such node, or it is deleted.
        """
        timeline = self._timeline
        slot, end = timeline.tree.branches.depth(node) - 1, node if through is None else through
        last = timeline.tree.branches.depth(end) - 1
        if last < len(timeline.items) and timeline.items[last].node == end:
            timeline.select(slot)
        else:
            timeline.expect(slot)
            self._client.do(protocol.MoveTo(timeline.tree.leaf(end)))

    # ---- branch -----------------------------------------------------------------------------

    def choose(self, token: int) -> str:
        """Take a token at the selected slot, and continue from it."""
        timeline = self._client.timeline
        if timeline.selected is not None and timeline.selected.id == token:
            return (
                "This token is here already. Highlight another with ↑ ↓ to branch, or press end to continue."
            )
        choice = self._choice(timeline.before, token)
        again = self._forbidden == choice
        for each in timeline.candidates:
            if each.id == token and each.cut_by == GRAMMAR and not (again or timeline.recorded):
                self._forbidden = choice
                label = quoted_label(each)
                return f"The grammar forbids {label}. Press again to take it and leave the grammar"
        self._client.do(protocol.Choose(timeline.before, token, leave_grammar=again))
        return ""

    def _choice(self, node: int, token: int) -> tuple[int, int, int]:
        """A choice with the number of steps taken so far, which tells a repeated choice from a later one."""
        return node, token, self._timeline.tree.taken

    def branch(self, by: int) -> str:
        """Go to the end of a neighboring branch, and keep the place where the branches diverge selected."""
        timeline = self._timeline
        if timeline.following and timeline.tree.latest(timeline.tip) is not None:
            return self._go(timeline.tip, None)  # the tokens that were taken back
        # the selected slot; at the token to come, the last one that has several nodes
        slots = range(len(timeline.items) - 1, -1, -1) if timeline.following else (timeline.slot,)
        for slot in slots:
            if len(nodes := timeline.siblings(slot)) > 1:
                place = nodes.index(timeline.items[slot].node) + by
                return self._go(nodes[place % len(nodes)], slot)
        return "No other branch here. Highlight a candidate with ↑ ↓ and press ⏎ to make one."

    def _go(self, node: int, slot: int | None) -> str:
        self._timeline.select(slot)
        self._client.do(protocol.MoveTo(self._timeline.tree.leaf(node)))
        return ""

    def reroll(self) -> str:
        """Draw the token to come again; at an older step, draw that token again, which adds a sibling."""
        if self._setup.settings.temp == 0:
            warmer = f"Press {key_for('sampling')} and set a temperature above 0."
            return f"Greedy has no draw: it takes the most probable token. {warmer}"
        node = self._timeline.before if isinstance(self._timeline.selected, protocol.Step) else None
        self._client.pause()
        self._timeline.select(None)
        self._client.request(protocol.Reroll(node=node))
        if node is not None:
            self._client.request(protocol.TakeStep(), each=self._drawn)
        return ""

    def _drawn(self, record: protocol.Record) -> None:
        if isinstance(record, protocol.Step):
            self._timeline.select(len(self._timeline.items) - 1)

    def verify(self) -> str:
        """Recompute the path from scratch and compare."""
        self._client.do(protocol.Verify())
        return ""

    # ---- records ----------------------------------------------------------------------------

    def _answered(self, record: protocol.Record) -> None:
        """Follow a branch that chosen tokens begin, and remember a choice that the grammar forbids."""
        command = self._client.requests[self._client.answering].command
        if isinstance(record, protocol.Step):
            if command.node == record.parent:
                self._client.timeline.select(None)
        elif isinstance(command, protocol.Choose):
            self._forbidden = self._choice(command.node, command.token)


class Controller:
    """The parts of one session.

    Args:
        backend: Takes the commands.
        load: The model to open.
        settings: Settings of the sampler.
        prompt: Prefilled as soon as the model is loaded; an empty one waits for the user.
    """

    def __init__(
        self, backend: Backend, load: LoadSettings, settings: Settings, prompt: protocol.Prefill
    ) -> None:
        self.client = client = EngineClient(backend)
        self.queries = SamplerQueries(client, settings)
        self.runs = LiveTransport(client)
        self.setup = Setup(client, self.runs, self.queries, load, settings, prompt)
        self.history = History(client, self.queries, self.setup, self.runs)
        self.navigation = Navigation(client, self.setup)
        self.transport: LiveTransport | ReplayTransport = self.runs
        """The live transport, or the one of the recording on show."""
        self.speculation = SpeculationSettings()
        """Settings that speculative decoding begins with."""
        self.opening = False
        """True while a recording is about to replace the session on show."""
        client.runs = lambda: self.transport.running

    @property
    def timeline(self) -> Timeline:
        return self.client.timeline

    @property
    def resting(self) -> bool:
        """True if the user isn't waiting for anything."""
        timeline = self.client.timeline
        settled = timeline.phase in (Phase.EMPTY, Phase.READY, Phase.FAILED)
        return settled and not (self.opening or timeline.running or self.client.outstanding)

    @property
    def stepping(self) -> bool:
        """True if steps, moves and choices are possible: a distribution is on show and isn't about to be replaced."""
        return self.client.timeline.phase in (Phase.READY, Phase.RUNNING) and not self.opening

    def open_model(self, load: LoadSettings) -> str:
        """Load a model, or continue the recording on show live with it; returns the answer for the user."""
        if isinstance(self.transport, LiveTransport):
            self.setup.open(load)
            return ""
        return self.transport.begin(load)
