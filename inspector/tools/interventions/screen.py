"""The screen of interventions: the map of all units, and what the chosen ones do to the candidates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.protocol import (
    CandidateChange,
    Command,
    HeadsSwept,
    HoldInterventions,
    Intervened,
    Scope,
    Step,
    SweepHeads,
)
from inspector.display import pad, quoted, token_label, visible
from inspector.keys import key_for, with_keys
from inspector.main.inside.screen import LOW, TALL, InsideScreen, refused, told, under_way
from inspector.main.tool import Host
from inspector.scales import bits, count, milliseconds, percent
from inspector.state.inside import interventions_words
from inspector.tools.interventions.tool import INTERVENTIONS_SCREEN, SwitchControl
from inspector.tools.interventions.unit_map import UnitMap, figure, strongest_line
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import bar

AT_ONCE = 600
"""Units of a model up to which its heads are switched off with the rest: at 94 layers of 64 heads that takes 6,298
forwards of one token, ten minutes where they run one by one."""
UNDER = 5
"""Rows of what stands under the map at least, where the screen isn't small."""


class InterventionsScreen(InsideScreen[HeadsSwept]):
    """Units of the model switched off, alone or together.

    Args:
        host: The main screen.
        control: What is chosen, and what is known.
    """

    TOOL: ClassVar[str] = "interventions"
    ACTIONS: ClassVar[ActionTable] = INTERVENTIONS_SCREEN

    def __init__(self, host: Host, control: SwitchControl) -> None:
        super().__init__(host, control.sweeps)
        self.control = control

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        return (self.node, None), SweepHeads(self.node, heads=() if self._large else None)

    @property
    def _large(self) -> bool:
        """Whether heads are switched off a layer at a time, when they are asked for."""
        facts = self.timeline.facts
        return facts is not None and facts.layers * ((facts.heads or 0) + 3) > AT_ONCE

    @property
    def answer(self) -> HeadsSwept | None:
        """The sweep of the present token, with the heads that were asked for."""
        return self.control.sweep(self.node) if self.path else None

    @property
    def lacks_heads(self) -> int | None:
        """The layer of the cursor, where its heads were not switched off yet though there are some."""
        if (swept := self._swept) is None or not self._large:
            return None
        layer = self.control.unit(swept).layer
        kinds = {each.intervention.kind for each in swept.units if each.intervention.layer == layer}
        refused = self.control.sweeps.failure((self.node, layer)) is not None  # none can be told apart
        return layer if "attention" in kinds and "head" not in kinds and not refused else None

    def ask(self) -> None:
        """See `InsideScreen`; once the units are known, what the chosen ones do."""
        if self.answer is None:
            super().ask()
        if (swept := self._swept) is not None:
            self.control.tried.want(*self.control.question(self.node, swept))

    @property
    def _swept(self) -> HeadsSwept | None:
        """The sweep of the token, where it passed its checks."""
        answer = self.answer
        return answer if answer is not None and not self._failed(answer) and answer.units else None

    def _tried(self, swept: HeadsSwept) -> Intervened | None:
        return self.control.tried.get(self.control.question(self.node, swept)[0])

    def drop(self) -> None:
        self.control.drop()
        super().drop()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: HeadsSwept | None) -> str:
        if answer is None:
            return "What each part of the model does here, seen by switching it off"
        name = quoted(token_label(answer.text))
        what = (
            "Each head and part"
            if any(each.intervention.kind == "head" for each in answer.units)
            else "Each part"
        )
        return f"{what} switched off alone: what becomes of {name} ({percent(answer.prob)})"

    def situation(self) -> str:
        if self.control.sweeps.waiting and self.answer is not None:
            return under_way(self.control.sweeps.progress)
        if (swept := self._swept) is not None:
            key = self.control.question(self.node, swept)[0]
            if self._tried(swept) is None and (words := told(self.control.tried, key, self.status_room)):
                return words
        return super().situation()

    def draw(self, answer: HeadsSwept, on: Canvas, width: int, height: int) -> list[Row]:
        if not answer.units:
            return [
                [Segment(line, on.ink("muted"))] for text in answer.missing for line in wrapped(text, width)
            ]
        control = self.control
        units = UnitMap(answer, control.measure, control.unit(answer), control.marked(answer))
        short, tight = height < LOW // 2, height < TALL - 8
        said: list[Row] = (
            [] if short else [[Segment(strongest_line(answer, control.measure, width), on.ink("accent"))]]
        )
        under = 3 if short else max(UNDER, height - len(said) - units.depth - 3 + tight)
        mapped = units.rows(on, width, max(3, height - len(said) - under))
        missing = [
            [Segment(line, on.ink("muted"))] for text in answer.missing for line in wrapped(text, width)
        ]
        room = height - len(said) - len(mapped) - (not tight)
        below = self._effect(answer, on, width, room)
        return [*said, *mapped, *([] if tight else [[]]), *below, *missing]

    def _instead(self, on: Canvas, answer: HeadsSwept | None) -> list[tuple[str, Style]]:
        last = self.path[-1] if self.path else None
        if answer is None and isinstance(last, Step) and last.origin == "intervened":
            return [
                (f"This token was computed under {interventions_words(self.timeline.under)}.", on.rich_style),
                ("Views of the inside are for the model's own tokens: ← goes to those before this branch.",
                 on.ink("muted")),
                (f"{key_for('interventions.release')} releases: it goes back to the model's own token that the branch "
                 "was made from.", on.ink("muted")),
            ]  # fmt: skip
        return super()._instead(on, answer)

    def _effect(self, swept: HeadsSwept, on: Canvas, width: int, height: int) -> list[Row]:
        """The effect of the chosen units, or why it isn't there."""
        tried = self._tried(swept)
        key = self.control.question(self.node, swept)[0]
        failure = self.control.tried.failure(key)
        if tried is not None and tried.facts.failed is None:
            return effect(on, tried, width, height)
        if tried is not None and tried.facts.failed is not None:
            texts = refused(on, tried.facts.failed, tried.facts.family)
        elif failure is not None:
            texts = [(visible(failure.message), on.ink("bad")), (visible(failure.hint), on.ink("muted"))]
        else:
            recorded = self.host.controller.transport.recorded
            what = (
                f"was not recorded. {key_for('go_live')} on the main screen goes on live"
                if recorded
                else "is being computed"
            )
            texts = [
                (f"{interventions_words(self.control.interventions(swept))}: this {what}.", on.ink("muted"))
            ]
        return [[Segment(line, style)] for text, style in texts for line in wrapped(text, width)]

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Choose a unit of another layer."""
        if (swept := self._swept) is not None:
            self.control.turn_layer(swept, by)

    def turn_column(self, by: int) -> None:
        """Choose another unit of the layer."""
        if (swept := self._swept) is not None:
            self.control.turn_column(swept, by)

    def turn_together(self) -> None:
        """Switch the unit off together with others, or no more."""
        if (swept := self._swept) is not None:
            self.control.toggle(swept)

    def turn_scale(self, by: int) -> None:
        """Scale the unit by another factor."""
        if (swept := self._swept) is not None:
            self.control.turn_scale(swept, by)

    def switch_off_heads(self) -> None:
        """Switch off each head of the cursor's layer: in a large model they are not among the first."""
        layer, swept = self.lacks_heads, self._swept
        if layer is None or swept is None or self.host.controller.transport.recorded:
            return
        self.control.tried.drop()
        question = SweepHeads(self.node, swept.token, swept.other, heads=(layer,), parts=False)
        self.control.sweeps.want((self.node, layer), question)

    def clear(self) -> None:
        """Switch off nothing together."""
        self.control.together.clear()
        self.control.scale = 0.0

    @property
    def scope(self) -> str:
        """The scope of the change, in a word."""
        return SCOPES[self.control.scope][0]

    def change_scope(self) -> None:
        """Change this token alone, or the whole context."""
        self.control.scope = "context" if self.control.scope == "token" else "token"

    def hold(self) -> None:
        """Go on under what is chosen, in a branch that begins with this token."""
        if (swept := self._swept) is not None:
            self._send(HoldInterventions(self.node, self.control.interventions(swept)), "")

    def release(self) -> None:
        """Go back to the model's own."""
        if self.timeline.under:
            self._send(HoldInterventions(self.timeline.tip), "")

    def _send(self, command: HoldInterventions, answer: str) -> None:
        """Leave this screen, and have the session go on from the tip of what comes."""
        host, recorded = self.host, self.host.controller.transport.recorded
        self.leave()
        if recorded:
            host.answer(
                f"A recording computes nothing: {key_for('go_live')} goes on live, then "
                f"{key_for('interventions')} and {key_for('interventions.hold')} hold it"
            )
            return
        host.controller.timeline.select(None)
        host.controller.client.do(command)
        host.answer(answer)


# ---- under the map: the candidates with and without the chosen units ----------------------------

NARROW, WIDE = 60, 100
SCOPES: dict[Scope, tuple[str, str]] = {
    "token": (
        "this token",
        "This token's forward alone is changed: the KV of the tokens before it stays the model's own. "
        "{interventions.hold} holds this for all tokens that follow.",
    ),
    "context": (
        "whole context",
        "The whole path runs anew through the changed model, so that its KV is changed too. "
        "{interventions.hold} holds from this token on alone.",
    ),
}
"""Each scope's name, and what it means; `{step}` is the key of that action."""
TOTAL = (
    "This is the total effect: later layers react to what is missing, and may make up for it. "
    "What a unit adds by itself, its direct effect, is in Contributions."
)


def effect(on: Canvas, answer: Intervened, width: int, height: int) -> list[Row]:
    """The rows of an answer: all of them, with as many candidates as fit, three at least.

    Args:
        on: Where they are drawn.
        answer: Its checks passed.
        width: Cells.
        height: Rows that there is room for.
    """
    head = [Segment(line, on.ink("accent")) for line in wrapped(_figures(answer, width), width)]
    words: list[Row] = [
        [Segment(line, on.ink("muted"))]
        for text in (answer.note, f"{with_keys(SCOPES[answer.scope][1])} {_cost(answer)}", TOTAL)
        if text
        for line in wrapped(text, width)
    ]
    room = height - len(head) - len(words) - 1
    listed = answer.candidates[: max(3, min(len(answer.candidates), room))]
    return [*([part] for part in head), *_candidates(on, listed, width), *words]


def _figures(answer: Intervened, width: int) -> str:
    """Of the whole distribution."""
    scope = SCOPES[answer.scope][0]
    if width < NARROW:
        return f"{interventions_words(answer.interventions)}: KL {bits(answer.kl_bits)}"
    if width < WIDE:
        entropy = f"{bits(answer.entropy_before_bits)} → {bits(answer.entropy_after_bits)}"
        what = f"{interventions_words(answer.interventions)}, {scope}"
        return f"{what}: KL {answer.kl_bits:.3f} bits, model entropy {entropy}"
    largest = quoted(token_label(answer.largest_change_text))
    below = " (rounding explains it)" if answer.largest_change <= answer.rounding else ""
    return (
        f"{interventions_words(answer.interventions)}, {scope}: KL {answer.kl_bits:.3f} bits · model entropy "
        f"{bits(answer.entropy_before_bits)} → {bits(answer.entropy_after_bits)} bits · largest logit change "
        f"{answer.largest_change:.2f} ({largest}){below}"
    )


def _cost(answer: Intervened) -> str:
    tokens = "1 token" if answer.tokens_run == 1 else f"{count(answer.tokens_run)} tokens"
    return f"It ran {tokens}, {milliseconds(answer.facts.ms)}."


def _candidates(on: Canvas, listed: Sequence[CandidateChange], width: int) -> list[Row]:
    """Candidates with their probability, rank and logit on both sides."""
    wide = width >= NARROW
    label = min(
        14, max((cell_len(token_label(each.before.text, each.before.raw)) for each in listed), default=0)
    )
    figures = 22 if wide else 0
    each_side = (width - label - figures - 5) // 2
    length = min(24, max(0, each_side - 10))
    side = length + 10 if wide else 10
    ranks = f"{'rank':>13}{'logit':>9}" if wide else ""
    head = f"{pad('', label + 2)}{pad('   with it', side)} {pad('   without', side)}{ranks}"
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    for change in listed:
        arrow = "↑" if change.ranks_up > 0 else "↓" if change.ranks_up < 0 else " "
        row: Row = [Segment(f"  {pad(token_label(change.before.text, change.before.raw), label)}")]
        for candidate, mark in ((change.before, " "), (change.after, arrow)):
            row += [Segment(f"{percent(candidate.prob):>8}"), Segment(mark, on.ink("accent"))]
            if wide:
                row.append(Segment(bar(candidate.prob, length) + "  ", on.data(candidate.prob)))
            else:
                row.append(Segment("  "))
        if wide:
            row.append(
                Segment(f"{_ranks(change):>12}{figure(change.logit_change, 5, True):>9}", on.rich_style)
            )
        rows.append(row)
    return rows


def _ranks(change: CandidateChange) -> str:
    if not change.ranks_up:
        return f"#{count(change.before.rank)}"
    return f"#{count(change.before.rank)}→#{count(change.after.rank)}"
