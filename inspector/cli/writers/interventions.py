"""What switched-off parts of a model change, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterator

from engine.protocol import HeadsSwept, Intervened, Intervention
from inspector.cli.writers.jsonl import Json, number
from inspector.display import pad, token_label
from inspector.scales import bits, percent
from inspector.state.inside import interventions_words

STRONGEST = 12
"""Units in a table."""
CELL = 14


def unit_json(unit: Intervention) -> Json:
    """What is scaled, and by how much; layers and heads count from 0."""
    return {"kind": unit.kind, "layer": unit.layer, "head": unit.head, "scale": unit.scale}


def sweep_json(read: HeadsSwept) -> Json:
    """Every unit switched off alone; none where a check failed."""
    return {
        "event": "sweep", "node": read.node, "token": read.token, "text": read.text, "prob": read.prob,
        "logit": number(read.logit), "missing": list(read.missing), "tokens_run": read.tokens_run,
        "units": [
            {
                **unit_json(unit.intervention), "label": unit.intervention.label, "kl_bits": number(unit.kl_bits),
                "logit_change": number(unit.logit_change), "prob": unit.prob,
                "top": {"id": unit.top, "text": unit.top_text, "prob": unit.top_prob},
            }
            for unit in (read.units if read.facts.failed is None else ())
        ],
    }  # fmt: skip


def intervened_json(read: Intervened) -> Json:
    """What several units together change; no candidates where a check failed."""
    return {
        "event": "intervened", "node": read.node, "scope": read.scope,
        "interventions": [unit_json(unit) for unit in read.interventions],
        "tokens_run": read.tokens_run, "effect_note": read.note,
        **(_effect(read) if read.facts.failed is None else {}),
    }  # fmt: skip


def _effect(read: Intervened) -> Json:
    return {
        "kl_bits": number(read.kl_bits), "entropy_before_bits": number(read.entropy_before_bits),
        "entropy_after_bits": number(read.entropy_after_bits), "rounding": number(read.rounding),
        "largest_change": {
            "id": read.largest_change_id, "text": read.largest_change_text, "logit": number(read.largest_change),
        },
        "candidates": [
            {
                "id": each.before.id, "text": each.before.text, "prob_before": each.before.prob,
                "prob_after": each.after.prob, "rank_before": each.before.rank, "rank_after": each.after.rank,
                "logit_before": number(each.logit_before), "logit_after": number(each.logit_after),
            }
            for each in read.candidates
        ],
    }  # fmt: skip


def sweep_table(read: HeadsSwept) -> Iterator[str]:
    """The units that move the probabilities most, a line each."""
    name = pad(token_label(read.text), CELL)
    yield f"followed: {token_label(read.text)} ({percent(read.prob)}); the strongest of {len(read.units)} units"
    yield f"{'off':<15}{'KL bits':>8}{'logit':>8}  {name}  then first"
    for unit in sorted(read.units, key=lambda each: -each.kl_bits)[:STRONGEST]:
        first = f"{pad(token_label(unit.top_text), CELL)} {percent(unit.top_prob):>8}"
        yield (
            f"{unit.intervention.label:<15}{unit.kl_bits:>8.3f}{unit.logit_change:>+8.2f}  "
            f"{percent(unit.prob):<{CELL}}  {first}"
        )
    yield from read.missing


def intervened_table(read: Intervened) -> Iterator[str]:
    """The candidates without and with the interventions."""
    scope = "this token" if read.scope == "token" else "whole context"
    yield (
        f"{interventions_words(read.interventions)}, {scope}: KL {read.kl_bits:.3f} bits, model entropy "
        f"{bits(read.entropy_before_bits)} to {bits(read.entropy_after_bits)} bits, "
        f"largest logit change {read.largest_change:.2f} ({token_label(read.largest_change_text)})"
    )
    yield f"{'':{CELL}}{'before':>10}{'rank':>7}{'after':>12}{'rank':>7}{'logit':>8}"
    for each in read.candidates:
        yield (
            f"{pad(token_label(each.before.text, each.before.raw), CELL)}{percent(each.before.prob):>10}"
            f"{each.before.rank:>7}{percent(each.after.prob):>12}{each.after.rank:>7}{each.logit_change:>+8.2f}"
        )
    if read.note:
        yield read.note
