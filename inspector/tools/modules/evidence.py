"""The modules of the model, and the experts of a token, for an export."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import ExpertsRead, ModelFacts, ModelModules
from inspector.blocks.elements import element, explained, hint, row, table
from inspector.display import visible
from inspector.main.evidence import Exhibit, Exported, ExportPart, of_both
from inspector.scales import amount, count, size
from inspector.state.inside import Answers, Asked
from inspector.state.lockstep import LockstepSoFar
from inspector.tools.modules.lines import STATES, chosen_words, experts_summary, lines, states_summary, times

MOST = 400
"""Rows of a table at most: a model whose layers all differ has many."""
INDENT = "\N{NO-BREAK SPACE}" * 2


def _modules(of: Exported) -> Iterator[Exhibit]:
    """Of the session's model, and of the second one."""
    answers, opened = of.timeline.of(Answers), of.timeline.of(LockstepSoFar).opened
    for facts, which in ((of.timeline.facts, ""), (opened.facts if opened else None, " (second model, Q)")):
        read = answers.get(ModelModules, _asked(facts)) if facts is not None else None
        if isinstance(read, ModelModules):
            yield Exhibit("modules", f"What the model is made of{which}", partial(_map, read))


def _asked(facts: ModelFacts) -> Asked:
    return False, (facts.path, facts.weight_bytes)


def _map(read: ModelModules) -> Iterator[Element]:
    """A row for each module on a token's way, with its hooks as TransformerLens names them."""
    found = lines(read)
    rows = [
        row(
            line.label.strip() if line.strong else f"{INDENT}{line.label.strip()}", line.says, line.shape,
            amount(line.parameters) if line.parameters else "", size(line.bytes) if line.bytes else "", line.hooks,
        )
        for line in found[:MOST]
    ]  # fmt: skip
    head = ("module", "what it is", "shape", "params", "bytes", "hooks")
    left_out = f"{count(len(found) - MOST)} more are left out." if len(found) > MOST else ""
    whole = f"{count(read.parameters)} parameters, {size(read.bytes)} of weights, {read.depth} layers."
    told = hint(whole, "Of layers that are alike the numbers are those of all together.", left_out)
    yield element("div", table("", head, rows, class_="plain"), told)


def _experts(of: Exported) -> Iterator[Exhibit]:
    def exhibits(second: bool) -> Iterator[Exhibit]:
        for read in of.timeline.of(Answers).found(ExpertsRead, second):
            if read.layers or read.states:
                heading = (
                    "Experts that the token went through" if read.layers else "What recurrent layers keep"
                )
                yield Exhibit("experts", heading, partial(_chosen, read), read.node)

    return of_both(of, exhibits)


def _chosen(read: ExpertsRead) -> Iterator[Element]:
    """A row for each layer's experts, and one for each state."""
    experts = [row(f"L{layer.layer + 1}", chosen_words(layer)) for layer in read.layers[:MOST]]
    states = [
        row(
            f"L{state.layer + 1}", times(state.shape), size(state.bytes), f"{state.before:.3g}", f"{state.norm:.3g}",
            "was empty" if state.changed is None else f"{100 * state.changed:.0f} %",
        )
        for state in read.states[:MOST]
    ]  # fmt: skip
    shown = [
        table("", ("layer", "experts, each with its weight"), experts, class_="plain") if experts else None,
        table("", ("layer", "state", "bytes", "norm before", "after", "changed"), states, class_="plain")
        if states
        else None,
    ]
    more = max(0, len(read.layers) - MOST) + max(0, len(read.states) - MOST)
    said = (
        experts_summary(read.layers),
        states_summary(read.states),
        STATES if states else "",
        f"{count(more)} more rows are left out." if more else "",
        *map(visible, read.missing),
    )
    yield explained(" ".join(filter(None, said)), read.facts, *shown)


MODULES_PART = ExportPart("modules", _modules)
EXPERTS_PART = ExportPart("experts", _experts)
