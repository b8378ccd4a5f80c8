"""Many changed forward passes as rows of a batch; heads, parts and layers switched off one at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.cache.kinds import kind_of
from engine.errors import StepError
from engine.inside.interventions import BASELINE_RUNS, ModuleTrace, Scaling, baseline, changed_masses, edited
from engine.inside.taps import Edits
from engine.inside.view import bounds, check_tokens, finite, kl_bits, poll, token_text
from engine.model.forward import Runner
from engine.protocol import Check, HeadsSwept, Intervention, Measuring, Record, SweepHeads, SweptUnit
from engine.sampling.ranking import Row, absolute_difference, checked_logprobs
from engine.session.session import Session
from engine.task import Stopped, never

# ---- rows of a batch ---------------------------------------------------------------------------

BYTES = 256 * 2**20
"""Bytes for the rows of one forward pass: copies of the KV, and logits."""
MOST_ROWS = 64
"""Largest number of rows: on two cores more rows than this take no less time a row."""
_LOGITS = 3
"""Copies of a row's logits: the model's own, in float32, in host memory."""
ONE_BY_ONE = "They ran one by one: the cache or the memory doesn't hold several rows."


def row_bytes(runner: Runner, tokens: int, vocabulary: int) -> int:
    """The bytes of one row of a forward pass over copies of a runner's cache.

    Args:
        runner: Runner whose cache is copied for each row.
        tokens: Number of tokens of the row.
        vocabulary: Number of tokens of the vocabulary.
    """
    return runner.kv.reading().allocated_bytes + 4 * _LOGITS * tokens * vocabulary


def rows_at_once(runner: Runner, tokens: int, vocabulary: int, batchable: bool, stored: int = 0) -> int:
    """The number of rows that go through the model in one forward pass; 1 if a cache can't hold several.

    Args:
        runner: Runner whose cache is copied for each row.
        tokens: Number of tokens of each row.
        vocabulary: Number of tokens of the vocabulary.
        batchable: True if the whole model has its rows along the first axis.
        stored: Bytes that are stored of each token.
    """
    if not batchable or runner.kv.without_snapshots() is not None:
        return 1
    return max(1, min(MOST_ROWS, BYTES // (row_bytes(runner, tokens, vocabulary) + stored * tokens)))


def forward_rows(
    runner: Runner, pieces: list[list[int]], count: int, edits: list[Edits], stopped: Stopped = never
) -> npt.NDArray[np.float32]:
    """Run the same tokens in each row, with changes.

    Args:
        runner: Runner whose cache holds what is before the tokens; not written.
        pieces: The tokens of each forward pass.
        count: Number of rows.
        edits: The changes to each forward pass.
        stopped: Polled before each forward pass.

    Returns:
        The logits after the last token, shape (rows, vocabulary), in host memory.

    Raises:
        StepError: The memory doesn't suffice.
        Cancelled: `stopped` returned True.
    """
    copied = runner.copy()
    if count > 1 and runner.kv.offset:
        copied.kv.caches = [kind_of(cache).repeat(cache, count) for cache in runner.kv.caches]
    logits: Any = None
    try:
        for piece, each in zip(pieces, edits, strict=True):
            poll(stopped)
            with edited(runner.model, each).set():
                logits = copied.kv.run(runner.model, mx.array([piece] * count), chunk=len(piece) > 1)
                mx.eval(copied.kv.state())  # the logits of all but the last piece cost nothing
        logits = logits[:, -1].astype(mx.float32)
        mx.eval(logits)
    except (RuntimeError, MemoryError) as error:
        if "alloc" not in str(error).lower():
            raise
        raise StepError("There is not enough memory for the batch.", "Use a shorter context.") from error
    found = np.array(logits)
    mx.clear_cache()
    return found


class Batch(Struct, frozen=True):
    """The same tokens in several rows, each row with its own interventions."""

    runner: Runner
    """Runner whose cache holds what is before the tokens; not written."""
    pieces: list[list[int]]
    rows: int
    """Largest number of rows."""
    stopped: Stopped = never

    @classmethod
    def of_tokens(
        cls, runner: Runner, ids: list[int], size: int, rows: int, stopped: Stopped = never
    ) -> Batch:
        """Cut tokens into pieces of a size, and the last token; into single tokens if the cut changes the numbers."""
        size = 1 if runner.kv.chunks_matter else size
        pieces = [ids[first : min(first + size, len(ids) - 1)] for first in range(0, len(ids) - 1, size)]
        return cls(runner, [*pieces, ids[-1:]], rows, stopped)

    def plain(self) -> Row:
        """The model's own logits, in a forward pass of as many rows: other shapes would have other last bits."""
        return self._run(Edits(), self.rows)[0]

    def under(self, *interventions: Intervention) -> list[Row]:
        """The logits with one intervention in each row."""
        edits = Scaling(self.runner.model, *([each] for each in interventions))
        return self._run(edits, len(interventions))

    def _run(self, edits: Edits, rows: int) -> list[Row]:
        return list(forward_rows(self.runner, self.pieces, rows, [edits] * len(self.pieces), self.stopped))


# ---- heads, parts and layers switched off one at a time ----------------------------------------

AT_ONCE = 2048
"""Tokens of all rows in one forward pass, at most: as many as in a usual chunk of a prefill."""


def sweep_heads(session: Session, command: SweepHeads, stopped: Stopped = never) -> Iterator[Record]:
    """Switch off every head, part and layer alone, or some of them.

    Raises:
        StepError: There is no such node, or it is the root; the logits are not numbers; nothing was left to switch off.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    check_tokens(session, command.token, command.other)
    at = baseline(session, command.node, stopped)
    units = _units(at.trace, command)
    vocabulary, in_context = at.logits.size, command.scope == "context"
    count = min(len(units), rows_at_once(at.runner, 1, vocabulary, at.trace.batchable))
    ids = session.tree.tokens(command.node) if in_context else [at.token]
    if in_context:
        batch = Batch.of_tokens(session.runner.fresh(), ids, max(1, AT_ONCE // count), count, stopped)
    else:
        batch = Batch(at.runner, [ids], count)
    plain = batch.plain() if in_context else at.logits
    token, other = int(at.logits.argmax()) if command.token is None else command.token, command.other
    own, top = checked_logprobs(plain), int(plain.argmax())

    def switched_off(*units: Intervention) -> list[Row]:
        alone = len(units) == 1 and not in_context
        return [at.edited_logits(Scaling(session.runner.model, units))] if alone else batch.under(*units)

    def difference(row: Row) -> float | None:
        return None if other is None else float(row[token] - row[other])

    def effect(unit: Intervention, row: Row) -> SweptUnit:
        changed, best = changed_masses(row).logprobs, int(row.argmax())
        before, after = difference(plain), difference(row)
        return SweptUnit(
            unit,
            kl_bits(own, changed),
            float(row[token] - plain[token]),
            None if before is None or after is None else after - before,
            math.exp(changed[token]),
            best,
            token_text(session, best),
            math.exp(changed[best]),
        )

    swept: list[SweptUnit] = []
    error, ran = 0.0, 0
    while len(swept) < len(units):
        some = units[len(swept) : len(swept) + count]
        yield Measuring(command.kind, len(swept), len(units), some[0].label)
        poll(stopped)
        rows = switched_off(*some)
        swept += map(effect, some, rows)
        ran += len(some)
        if len(some) > 1:  # the row that changed most, and the same unit switched off alone
            most = max(range(len(some)), key=lambda row: float(absolute_difference(rows[row], plain).max()))
            (alone,) = switched_off(some[most])
            largest = max(float(np.abs(alone).max()), 1e-9)
            error = max(error, finite(absolute_difference(rows[most], alone).max() / largest))
            ran += 1
    check = Check("single", error, bounds(session).twice, f"{count} rows")
    yield HeadsSwept(
        node=command.node,
        token=token,
        text=token_text(session, token),
        prob=math.exp(own[token]),
        logit=float(plain[token]),
        other=other,
        other_text="" if other is None else token_text(session, other),
        difference=difference(plain),
        top=top,
        top_text=token_text(session, top),
        units=tuple(swept),
        missing=tuple(at.trace.missing()),
        rows=count,
        row_bytes=row_bytes(at.runner, 1, vocabulary),
        tokens_run=at.recomputed + BASELINE_RUNS + ran * len(ids) + (count * len(ids) if in_context else 0),
        note="" if count > 1 else ONE_BY_ONE,
        facts=at.facts(check),
        scope=command.scope,
    )


def _units(trace: ModuleTrace, command: SweepHeads) -> list[Intervention]:
    """The units that are switched off in turn.

    Raises:
        StepError: There are none.
    """
    heads = command.heads

    def wanted(unit: Intervention) -> bool:
        return (heads is None or unit.layer in heads) if unit.kind == "head" else command.parts

    units = list(filter(wanted, trace.units()))
    if not units:
        layers = ", ".join(f"L{layer + 1}" for layer in sorted(heads or ()))
        raise StepError(
            f"{layers}: no heads that could be told apart.", "Switch off the attention as a whole."
        )
    return units
