"""The screen of two models in lockstep: the text, and below it what each believes at the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from engine.protocol import Candidate, LockstepOpened, LockstepRead, LockstepSpan, Record, WaysParted
from inspector.display import token_label, visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import bits
from inspector.state.divergence import Divergences, mean
from inspector.state.timeline import Timeline
from inspector.tools.lockstep.control import LockstepControl
from inspector.tools.lockstep.measures import BY_BYTES, MEASURES, Colouring
from inspector.tools.lockstep.panels import FLIP, LockstepSide, LockstepText
from inspector.tools.lockstep.tool import LOCKSTEP_SCREEN
from inspector.widgets.actions import ActionTable, KeyLine


class LockstepScreen(ToolScreen[WaysParted]):
    """Shows what two models make of the path on show.

    Args:
        host: The main screen.
        control: Knows the engine and the second model.
    """

    TOOL: ClassVar[str] = "lockstep"
    ACTIONS: ClassVar[ActionTable] = LOCKSTEP_SCREEN
    MEASURES: ClassVar[str] = "Comparing"
    TELLING: ClassVar[tuple[type[Record], ...]] = (LockstepOpened, LockstepRead, WaysParted)
    AUTO_FOCUS = ""

    text = getters.query_one("#lockstep-text", LockstepText)
    first = getters.query_one("#lockstep-first", LockstepSide)
    second = getters.query_one("#lockstep-second", LockstepSide)

    def __init__(self, host: Host, control: LockstepControl) -> None:
        super().__init__(host)
        self.control = control
        self._measure = 0
        self._ways = False
        """Whether the two ways are shown, where they are known."""

    def compose(self) -> ComposeResult:
        yield Static(id="lockstep-place")
        yield LockstepText(id="lockstep-text")
        with Container(id="lockstep-sides"):
            yield LockstepSide(False, id="lockstep-first")
            yield LockstepSide(True, id="lockstep-second")
        yield Static(id="lockstep-status")
        yield KeyLine(id="lockstep-keys")

    # ---- what is shown ------------------------------------------------------------------------

    @property
    def timeline(self) -> Timeline:
        """What is on show."""
        return self.host.controller.timeline

    @property
    def opened(self) -> LockstepOpened | None:
        """The second model."""
        return self.control.state.opened

    @property
    def measure(self) -> Colouring:
        """What the text is coloured by."""
        by_bytes = self.opened is not None and self.opened.aligned == "bytes"
        return MEASURES[BY_BYTES if by_bytes else self._measure]

    @property
    def spans(self) -> list[LockstepSpan | None]:
        """What is known of each token of the path."""
        return self.control.state.along(self.timeline.items)

    @property
    def here(self) -> LockstepSpan | None:
        """What is known at the cursor; at the token to come both distributions there."""
        timeline = self.timeline
        if timeline.following:
            return self.control.state.ahead.get(timeline.tip)
        return self.spans[timeline.slot]

    @property
    def way(self) -> WaysParted | None:
        """Both ways from the cursor, where they are to be shown and are known."""
        return self.control.state.ways.get(self.timeline.before) if self._ways else None

    def show(self) -> None:
        """Show everything, now; have read what isn't known."""
        self.control.want()
        timeline, spans, measure = self.timeline, self.spans, self.measure
        instead = self._instead()
        titles = (f"{measure.name}, {measure.unit}" if instead is None else "Text"), self._sum(spans)
        self.text.put(titles, timeline.items, spans, measure, timeline.slot, instead)
        self._sides()
        facts = timeline.facts
        names = visible(facts.name) if facts else ""
        if self.opened is not None:
            names = f"P {names} · Q {visible(self.opened.title)}"
        recorded = "recorded · " if self.recorded else ""
        self.write("lockstep", f"Lockstep · {recorded}{names}", self.control.failure is not None)

    def _instead(self) -> tuple[str, str] | None:
        """Why there is no text, and what to do."""
        if not self.timeline.items:
            return "There is no text yet.", f"Press esc, then {key_for('prompt')} to write a prompt."
        if self.opened is not None:
            return None
        if self.recorded:
            return (
                "No second model was recorded up to here.",
                f"{key_for('step').capitalize()} shows what came next.",
            )
        if self.control.job.running:
            return "The second model is loading.", "Its candidates appear beside the first one's."
        return (
            "There is no second model to compare with.",
            f"Press {key_for('lockstep.four_bits')} or {key_for('lockstep.eight_bits')} for this one in so many bits; "
            "start with --against MODEL for another one.",
        )

    def _sum(self, spans: Sequence[LockstepSpan | None]) -> str:
        """The figures of the whole path."""
        figures = Divergences()
        known = {span.node: span for span in spans if span is not None}
        figures.add(known.values())
        if figures.kl and figures.tops:
            same = 100 * figures.same_top.value
            return f"{len(figures.kl)} tokens · mean KL {mean(figures.kl).value:.3g} bits · same top {same:.1f} %"
        return f"{len(figures.spans)} spans" if figures.spans else ""

    def _sides(self) -> None:
        opened, facts, here, way = self.opened, self.timeline.facts, self.here, self.way
        names = (visible(facts.name) if facts else "", visible(opened.title) if opened else "no second model")
        self.query_one("#lockstep-sides").display = self._instead() is None or opened is not None
        taken = None if self.timeline.following else self.timeline.taken
        lists: tuple[tuple[Candidate, ...], tuple[Candidate, ...]] = (
            (here.candidates, here.other_candidates) if here is not None else ((), ())
        )
        entropies = (here.entropy_bits, here.other_entropy_bits) if here is not None else (None, None)
        for side, panel in enumerate((self.first, self.second)):
            name = f"{'PQ'[side]} {names[side]}"
            if way is not None:
                count = len(way.other_ids if side else way.ids)
                panel.put_ways((name, f"its own way, {count} tokens"), way)
                continue
            entropy = entropies[side]
            bits_here = f"entropy {bits(entropy)} bits" if entropy is not None else ""
            own = taken if side == 0 or (opened is not None and opened.aligned == "ids") else None
            panel.put((name, bits_here), lists[side], lists[1 - side], own, self._why())

    def _why(self) -> str:
        if self.timeline.slot == 0:
            return "Nothing is before the first token."
        return "Not read yet." if self.control.live else "Not recorded here."

    def situation(self) -> str:
        """What is under way or wrong, else the cursor's figures."""
        job, failure = self.control.job, self.control.failure
        if failure is not None and self.control.live:
            return visible(f"{failure.message} {failure.hint}".strip())
        if job.progress is not None:
            total = f" {job.progress.done}/{job.progress.total}" if job.progress.total else ""
            return f"{visible(job.progress.detail)}{total}"
        if (way := self.way) is not None:
            return parted(way)
        if self.opened is None or self.here is None:
            return f"Recorded. {self.needs_model}" if self.recorded else ""
        return told(self.here)

    # ---- keys -------------------------------------------------------------------------------------

    def walk(self, by: int) -> None:
        """Look at another token."""
        self.timeline.walk(by)
        self._moved()

    def look_at(self, slot: int | None) -> None:
        """Look at a token."""
        self.timeline.select(slot)
        self._moved()

    def _moved(self) -> None:
        self.control.job.failures.clear()
        self.host.changed()

    def change_measure(self) -> None:
        """Colour by the next measure."""
        if self.opened is not None and self.opened.aligned == "bytes":
            self.say("The two models have different tokens: only their logprobs can be compared")
        else:
            self._measure = (self._measure + 1) % len(MEASURES)

    def go_to_flip(self, by: int) -> None:
        """Go to the next token before which the top tokens differ, or to the one before."""
        slots = [slot for slot, span in enumerate(self.spans) if span is not None and span.same_top is False]
        here = self.timeline.slot
        found = [slot for slot in slots if (slot - here) * by > 0]
        if found:
            self.look_at(found[0] if by > 0 else found[-1])
        else:
            self.say(
                f"No {'further' if by > 0 else 'earlier'} token has another top token in the second model"
            )

    def go_to_largest(self) -> None:
        """Go to the largest of what the text is coloured by."""
        sizes = [self.measure.size(span) for span in self.spans]
        if not sizes or max(sizes) < 0:
            self.say("Nothing of the text was read in both models yet")
        else:
            self.look_at(sizes.index(max(sizes)))

    def follow_first(self) -> None:
        """Step by the first model's pick; at an older token walk one forward."""
        if not self._lacks():
            self.say(self.host.controller.transport.step())

    def follow_second(self) -> None:
        """Step by the second model's pick."""
        if self._lacks():
            return
        if self.opened is not None and self.opened.aligned == "bytes":
            ways = key_for("lockstep.ways")
            self.say(
                f"The second model has other tokens: its pick is none of the first one's. {ways} shows its own way"
            )
            return
        self.timeline.select(None)
        self.control.follow()

    def part(self) -> None:
        """Let each go its own way from the cursor, or show the candidates again."""
        if self.way is not None:
            self._ways = False
            return
        self._ways = True
        if self.control.state.ways.get(self.timeline.before) is not None:
            return
        if self.recorded:
            self.say(self.needs_model)
        elif not self._lacks():
            self.control.part()

    def branch(self) -> None:
        """Leave, and have the two ways on show compared as branches of the tree."""
        way, ways = self.way, key_for("lockstep.ways")
        if way is None:
            self.say(f"Press {ways} first: each goes its own way from here, and ⏎ makes both branches")
        elif self._lacks():
            return
        elif self.opened is not None and self.opened.aligned == "bytes":
            self.say("The second model has other tokens: its way is no branch of the first one's tree")
        elif way.parted is None:
            self.say("Both go the same way: there is nothing to compare")
        else:
            self.dismiss(way)

    def open_second(self, bits: int) -> None:
        """Compare with this model in fewer bits."""
        self.control.open(bits)

    def _lacks(self) -> bool:
        """Say what is missing for a key that goes on; returns whether anything is."""
        if self.opened is None or not self.timeline.before:
            self.say("There is no second model yet" if self.opened is None else "Go to a later token first")
            return True
        return False

    def leave(self) -> None:
        """Go back; what is under way stops, but a second model that is loading."""
        if self.opened is not None:
            self.control.job.stop()
        self.dismiss(None)


def told(span: LockstepSpan) -> str:
    """The figures of one place in a line."""
    parts = []
    if span.kl_bits is not None:
        parts.append(f"KL {span.kl_bits:.4f} bits")
    if span.rank is not None and span.other_rank is not None:
        parts.append(f"rank {span.rank} → {span.other_rank}")
    if span.same_top is not None:
        parts.append("same top token" if span.same_top else f"{FLIP} another top token")
    if span.logprob is not None and span.other_logprob is not None:
        parts.append(
            f"{token_label(span.text, span.raw)} logprob {span.logprob:.2f} → {span.other_logprob:.2f}"
        )
    if span.tokens > 1 or span.other_tokens > 1:
        parts.append(f"{span.tokens} tokens of P, {span.other_tokens} of Q: no KL")
    return " · ".join(parts) or "Nothing is before the first token."


def parted(way: WaysParted) -> str:
    """Where two ways part and meet."""
    if way.parted is None:
        return f"Both go the same way for {len(way.ids)} tokens"
    first = "at the first token" if way.parted == 0 else f"after {way.parted} tokens"
    times = {0: "and don't meet again", 1: "and meet again once"}.get(
        way.meetings, f"and meet again {way.meetings} times"
    )
    return f"They part {first} {times} within {max(len(way.ids), len(way.other_ids))}"
