"""The sampler's stages as a table: one column each, one row a candidate, and what fits of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from engine.frozen import frozen
from engine.protocol import Candidate, Distribution, Explained
from engine.settings import STAGES, Settings
from inspector import scales

LOGIT, MODEL, FINAL, NOW = "logit", "model", "final", "now"
"""Columns that are no stage; the last one is shown while other settings are tried."""
PENALTIES = [name for name, stage in STAGES.items() if stage.setting.endswith("_penalty")]
CELLS = 8
"""Of a column, its gap at the left included."""
UNKNOWN = "·"
"""Shown for a number that the engine has not sent yet, or can't."""


@frozen
class TableColumn:
    """One column: what it is, what the stage did, and a text for each candidate."""

    name: str
    """Of the stage; or `logit`, `model`, `final`, `now`."""
    head: str
    setting: str
    kept: int | None
    """Tokens left after it; None where that means nothing."""
    removed: float
    cells: tuple[str, ...]
    """Empty for a candidate that is cut here or was before."""


def columns(
    distribution: Distribution,
    explained: Explained | None,
    settings: Settings | None,
    now: Distribution | None = None,
) -> tuple[TableColumn, ...]:
    """All columns, in the order in which the stages ran.

    Args:
        distribution: What is drawn from; it holds the stages, what they kept and what they cut.
        explained: The values in between, None while they are not known.
        settings: That the stages ran with, None where they are not known.
        now: The present distribution, where `distribution` is only tried.
    """
    candidates = distribution.candidates
    vocabulary = distribution.others + len(candidates)
    table = [
        TableColumn(LOGIT, "logit", "", None, 0.0, _logits(explained, candidates)),
        TableColumn(MODEL, "model %", "", vocabulary, 0.0, tuple(number(c.prob) for c in candidates)),
    ]
    table += _stages(distribution, explained, settings)
    if now is not None:
        finals = {candidate.id: candidate.sampler_prob for candidate in now.candidates}
        cells = tuple(number(finals[c.id]) if c.id in finals else UNKNOWN for c in candidates)
        table.append(TableColumn(NOW, "now %", "", None, 0.0, cells))
    return (*table, _final(distribution))


def number(share: float) -> str:
    """A probability in percent, without the sign: the head of the column has it."""
    return scales.percent(share).removesuffix(" %")


def _logits(explained: Explained | None, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    if explained is None:
        return (UNKNOWN,) * len(candidates)
    logits = dict(zip((c.id for c in explained.next.candidates), explained.logits, strict=True))
    return tuple(_logit(logits.get(c.id)) for c in candidates)


def _logit(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _stages(
    distribution: Distribution, explained: Explained | None, settings: Settings | None
) -> list[TableColumn]:
    names = [stage.name for stage in distribution.stages]
    stages = []
    for place, stage in enumerate(distribution.stages):
        if stage.name == "greedy":
            continue
        percent, cells = _values(stage.name, distribution.candidates, names[: place + 1], explained)
        known = STAGES.get(stage.name)
        head = (known.head if known and known.head else stage.name) + (" %" if percent else "")
        stages.append(
            TableColumn(
                stage.name, head, _setting(stage.name, settings), stage.kept, stage.removed_mass, cells
            )
        )
    return stages


def _values(
    name: str, candidates: Sequence[Candidate], ran: Sequence[str], explained: Explained | None
) -> tuple[bool, tuple[str, ...]]:
    """Whether the values are probabilities, and the cells; empty for who is cut by now."""
    stage = next((c for c in explained.columns if c.name == name), None) if explained else None
    if explained is None or stage is None:
        return name not in PENALTIES, tuple("" if c.cut_by in ran else UNKNOWN for c in candidates)
    percent = stage.unit == "prob"
    values = dict(zip((c.id for c in explained.next.candidates), stage.values, strict=True))
    cells = []
    for candidate in candidates:
        value = values.get(candidate.id)
        known = UNKNOWN if value is None else number(value) if percent else _logit(value)
        cells.append("" if candidate.cut_by in ran else known)
    return percent, tuple(cells)


def _setting(name: str, settings: Settings | None) -> str:
    """What the stage is set to."""
    stage = STAGES.get(name)
    if settings is None or stage is None:
        return ""
    return stage.shown(settings) if stage.shown is not None else f"{getattr(settings, stage.setting):g}"


def _final(distribution: Distribution) -> TableColumn:
    drawable = distribution.stages[-1].kept if distribution.stages else None
    greedy = distribution.draw is None
    cells = tuple(
        "" if c.cut_by not in (None, "greedy") else number(c.sampler_prob) for c in distribution.candidates
    )
    return TableColumn(FINAL, "taken %" if greedy else "final %", "", drawable, 0.0, cells)


# ---- what fits --------------------------------------------------------------------------------


def fitting(columns: Sequence[TableColumn], room: int) -> tuple[tuple[TableColumn, ...], int]:
    """The columns that fit into `room` cells, and how many stages are left out.

    The raw logits go first, then stages that left every number as it was, then those in the middle.
    """
    kept = list(columns)
    for column in _dispensable(columns):
        if len(kept) * CELLS <= room:
            break
        kept.remove(column)
    return tuple(kept), sum(1 for column in columns if column not in kept and column.name != LOGIT)


def _dispensable(columns: Sequence[TableColumn]) -> list[TableColumn]:
    logits = [column for column in columns if column.name == LOGIT]
    middle = [column for column in columns[:-1] if column.name not in (LOGIT, MODEL, NOW)]
    idle = [b for a, b in pairwise(columns[1:-1]) if b in middle and a.cells == b.cells]
    shaping = [column for column in middle if "%" not in column.head and column not in idle]
    rest = [column for column in reversed(middle) if column not in idle and column not in shaping]
    return [*logits, *idle, *shaping, *rest]
