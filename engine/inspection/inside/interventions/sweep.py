"""Every head, part and layer switched off alone, in a few batched forwards of one token."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from engine.errors import Cancelled, StepError
from engine.frozen import frozen
from engine.inspection.inside.capture import tolerance
from engine.inspection.inside.interventions.intervene import (
    GROUND_RUNS,
    Ground,
    changed_logprobs,
    finite,
    ground,
    kl_bits,
)
from engine.inspection.inside.interventions.rows import forward_rows, row_bytes, rows_at_once
from engine.inspection.inside.interventions.scaling import Scaling
from engine.model.forward import Stopped, never
from engine.protocol import Check, HeadsSwept, Intervention, Measuring, SweptUnit
from engine.sampling.ranking import Row, absolute_difference, checked_logprobs
from engine.session.session import Session


@frozen
class _Target:
    """What a sweep looks at: the logit of a token, and its difference from that of another."""

    at: Ground
    own: Row
    """The model's own log-probabilities."""
    token: int
    other: int | None

    def difference(self, row: Row) -> float | None:
        return None if self.other is None else float(row[self.token] - row[self.other])

    def unit(self, intervention: Intervention, row: Row) -> SweptUnit:
        """What switching off one unit did."""
        changed, top = changed_logprobs(row), int(row.argmax())
        before, after = self.difference(self.at.plain), self.difference(row)
        return SweptUnit(
            intervention,
            kl_bits(self.own, changed),
            float(row[self.token] - self.at.plain[self.token]),
            None if before is None or after is None else after - before,
            float(np.exp(changed[self.token])),
            top,
            _text(self.at.session, top),
            float(np.exp(changed[top])),
        )


def sweep_heads(
    session: Session,
    node: int,
    token: int | None = None,
    other: int | None = None,
    stopped: Stopped = never,
    heads: Collection[int] | None = None,
    parts: bool = True,
) -> Iterator[Measuring | HeadsSwept]:
    """Switch off every head, part and layer alone in one token's forward, or some of them.

    Args:
        session: Has read a prompt; not changed.
        node: The token's.
        token: Whose logit is followed; None for the one that was taken after the node, or else the most probable.
        other: Whose logit is taken off.
        stopped: Polled before each forward.
        heads: The layers whose heads are switched off; None for all layers.
        parts: Whether parts and layers are.

    Yields:
        The progress, then the result.

    Raises:
        StepError: There is no such node, or it is the root; the logits are not numbers; nothing was left to switch off.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    session.tokens.check([each for each in (token, other) if each is not None])
    at = ground(session, node, stopped)
    target = _Target(at, checked_logprobs(at.plain), _token(at) if token is None else token, other)
    units, vocabulary = [each for each in at.survey.units() if _wanted(each, heads, parts)], at.plain.size
    if not units:
        layers = ", ".join(f"L{layer + 1}" for layer in sorted(heads or ()))
        raise StepError(
            f"{layers}: no heads that could be told apart.", "Switch off the attention as a whole."
        )
    count = rows_at_once(at.runner, 1, vocabulary, at.survey.rows)
    swept: list[SweptUnit] = []
    errors = [0.0]
    run = at.recomputed + GROUND_RUNS
    while len(swept) < len(units):
        batch = units[len(swept) : len(swept) + count]
        yield Measuring("SweepHeads", len(swept), len(units), batch[0].label)
        if stopped():
            raise Cancelled
        found = _rows(at, batch)
        swept += map(target.unit, batch, found)
        run += len(batch)
        if len(batch) > 1:
            errors.append(_error(at, batch, found))
            run += 1
    check = Check("single", max(errors), tolerance(session), f"{count} rows")
    yield HeadsSwept(
        node=node,
        token=target.token,
        text=_text(session, target.token),
        prob=float(np.exp(target.own[target.token])),
        logit=float(at.plain[target.token]),
        other=other,
        other_text="" if other is None else _text(session, other),
        difference=target.difference(at.plain),
        top=int(at.plain.argmax()),
        top_text=_text(session, int(at.plain.argmax())),
        units=tuple(swept),
        missing=at.survey.missing(),
        rows=count,
        row_bytes=row_bytes(at.runner, 1, vocabulary),
        tokens_run=run,
        note="" if count > 1 else "They ran one by one: the cache or the memory doesn't hold several rows.",
        facts=at.facts(check),
    )


def _wanted(unit: Intervention, heads: Collection[int] | None, parts: bool) -> bool:
    """Whether a unit is one of those that are switched off."""
    return (heads is None or unit.layer in heads) if unit.kind == "head" else parts


def _token(at: Ground) -> int:
    """The token that was taken after the node; where none was, the most probable one."""
    latest = at.session.tree[at.node].latest
    return int(at.plain.argmax()) if latest is None else at.session.tree[latest].token


def _rows(at: Ground, batch: Sequence[Intervention]) -> list[Row]:
    """The logits with each of some units switched off."""
    model = at.session.runner.model
    if len(batch) == 1:
        return [at.row(Scaling(model, batch))]
    return list(
        forward_rows(at.runner, [[at.token]], len(batch), [Scaling(model, *([each] for each in batch))])
    )


def _error(at: Ground, batch: Sequence[Intervention], found: Sequence[Row]) -> float:
    """How far the row that changed most is from the same unit switched off alone, as a share of the largest logit."""
    most = max(range(len(batch)), key=lambda row: float(absolute_difference(found[row], at.plain).max()))
    alone = at.row(Scaling(at.session.runner.model, [batch[most]]))
    return finite(absolute_difference(found[most], alone).max() / max(float(np.abs(alone).max()), 1e-9))


def _text(session: Session, token: int) -> str:
    return session.tokens.text(token, b"")[0]
