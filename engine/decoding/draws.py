"""Many draws of one prompt: how often each token came first, against the probability that the sampler states.

Draw k is the one that k re-rolls give: its random numbers are a function of seed, position and k, so that the same
draws come again. The frequencies have Wilson's interval (E. B. Wilson, 1927: Probable inference, the law of succession,
and statistical inference, Journal of the American Statistical Association 22), which holds for few draws and for
probabilities near 0 and 1 too. The chi-square is Pearson's (1900), over cells of five or more expected draws.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from engine.decoding.batch import BatchRun, Lane, advance, check_room
from engine.decoding.rows import rows_of
from engine.errors import StepError
from engine.logits.node_sampler import Wide
from engine.model.tokens import Tokens
from engine.protocol import BatchOpened, DrawMany, DrawnToken, DrawsCounted, LaneOpened, Record
from engine.session.context import Context
from engine.session.node_records import Continuation
from engine.session.session import run_at
from engine.task import Task

MOST = 100_000
"""Maximum number of draws."""
LISTED = 40
"""Maximum number of tokens in the table."""
CELL = 5.0
"""Least number of expected draws in a cell of the chi-square, as is usual (W. G. Cochran, 1954)."""
Z = 1.959963984540054
"""Standard deviations of the normal distribution that contain 95 %."""
UNLIMITED = 2**31 - 1
"""Max tokens of a continuation's settings: it begins within a completion, and has a limit of its own."""


def wilson(count: int, draws: int, z: float = Z) -> tuple[float, float]:
    """Wilson's interval for a probability.

    Args:
        count: Number of draws in which the event came.
        draws: Number of all draws, at least 1.
        z: Standard deviations on both sides.
    """
    share, square = count / draws, z * z / draws
    middle = share + square / 2
    half = z * math.sqrt(share * (1 - share) / draws + square / (4 * draws))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def chi_square_tail(value: float, degrees: int) -> float:
    """The chance that a chi-square variable exceeds a value: the upper regularized incomplete gamma function.

    By its series below the mean and its continued fraction above (Press et al., Numerical Recipes, section 6.2).

    Args:
        value: The value, at least 0.
        degrees: Degrees of freedom, at least 1.
    """
    a, x = degrees / 2, value / 2
    if x <= 0:
        return 1.0
    if math.isinf(x):
        return 0.0
    scale = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for step in range(1, 10_000):
            term *= x / (a + step)
            total += term
            if term < total * 1e-15:
                break
        return max(0.0, 1 - scale * total)
    b = x + 1 - a
    c, d = 1e300, 1 / b
    fraction = d
    for step in range(1, 10_000):
        factor = step * (a - step)
        b += 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return scale * fraction


def count_draws(node: int, probs: Wide, picked: Sequence[int], tokens: Tokens) -> DrawsCounted:
    """The table of the first tokens of some draws.

    Args:
        node: Node that they follow, for the record.
        probs: The probability of each token to be drawn there, shape (vocabulary,).
        picked: The tokens that were drawn, one a draw.
        tokens: The model's tokenizer.
    """
    draws, counts = len(picked), Counter(picked)
    likely = np.argsort(-probs, kind="stable")[:LISTED].tolist()
    listed = sorted({*likely, *(token for token, _ in counts.most_common(LISTED))}, key=lambda id: -probs[id])
    listed = [token for token in listed if counts[token] or probs[token] * draws >= 1][:LISTED]
    outcomes = tuple(
        DrawnToken(
            token, tokens.text(token)[0], float(probs[token]), counts[token], *wilson(counts[token], draws)
        )
        for token in listed
    )
    value, degrees = _chi_square(probs.tolist(), counts, draws)
    others = draws - sum(each.count for each in outcomes)
    rest = max(0.0, 1.0 - sum(each.prob for each in outcomes))
    chance = chi_square_tail(value, degrees) if degrees else 1.0
    return DrawsCounted(node, draws, outcomes, others, rest, value, degrees, chance)


def _chi_square(probs: Sequence[float], counts: Counter[int], draws: int) -> tuple[float, int]:
    """Pearson's chi-square and its degrees of freedom."""
    cells = [(prob * draws, counts[token]) for token, prob in enumerate(probs) if prob * draws >= CELL]
    expected, count = draws - sum(cell[0] for cell in cells), draws - sum(cell[1] for cell in cells)
    if count and expected <= 1e-9 * draws:  # a token came that the sampler never draws
        return math.inf, max(1, len(cells) - 1)
    if expected < CELL and cells:  # too few for a cell: they go to the smallest
        least = cells.pop(min(range(len(cells)), key=lambda place: cells[place][0]))
        expected, count = expected + least[0], count + least[1]
    cells.append((expected, count))
    value = sum((count - expected) ** 2 / expected for expected, count in cells)
    return value, len(cells) - 1


# ---- the command -------------------------------------------------------------------------------


def draw_many(context: Context, command: DrawMany, task: Task) -> Iterator[Record]:
    """Draw many times after a node of the session's tree, and continue each draw in a batch.

    Raises:
        StepError: There is no prompt or no such node, or a number is out of range.
        Cancelled: The command was cancelled.
    """
    session = context.session
    node, count = session.node if command.node is None else command.node, command.count
    depth = session.tree[node].depth
    if command.tokens > 1:
        context.of_model.pop(BatchRun, None)
        check_room(session.runner.fresh(), [(depth, command.tokens)] * count, command.size)
    if not 1 <= count <= MOST or command.tokens < 1:
        raise StepError(
            f"{count:,} draws of {command.tokens} tokens are out of range.",
            f"Give 1 to {MOST:,} draws, of one token or more each.",
        )
    session.position  # noqa: B018 - raises if there is no prompt
    detached = run_at(session, node, task.cancel.is_set)
    settings = replace(session.settings, max_tokens=UNLIMITED)
    path = Continuation.after(session, node, settings)
    probs = path.node_reader.expected(path.node, detached.row, settings)
    picked = [path.rerolled(number).sample(detached.row).sampled.picked for number in range(count)]
    tossed = 0 < settings.xtc_probability < 1 and settings.temp > 0
    yield replace(count_draws(node, probs, picked, session.tokens), tossed=tossed)
    if command.tokens == 1:
        return
    rows = rows_of(detached.runner.copy(), detached.row)
    run = context.of_model[BatchRun] = BatchRun(rows, command.size)
    opened = [LaneOpened(number, "", (), settings.seed, number) for number in range(count)]
    for lane in opened:
        run.add(Lane(lane, path.rerolled(lane.lane), command.tokens))
    note = " ".join(filter(None, (session.cut_note(node), rows.note)))
    yield BatchOpened(tuple(opened), command.size, False, node, note)
    yield from advance(context, None, task)
