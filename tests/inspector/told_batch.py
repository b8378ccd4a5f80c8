"""Records of a small batch, as an engine tells them."""

from __future__ import annotations

from msgspec.structs import replace

from engine.protocol import (
    BatchCompared,
    BatchEnded,
    BatchOpened,
    BatchStep,
    BatchTotals,
    Candidate,
    Candidates,
    Distribution,
    DrawnToken,
    DrawsCounted,
    LaneCompared,
    LaneDifference,
    LaneEnded,
    LaneKV,
    LaneOpened,
    LanesJoined,
    LanesPrefilled,
    LaneStarted,
    LaneToken,
    Record,
)

TEXTS = ("Once [b]upon", "The")
SAID = ((" a", " time", "."), (" dog", "<|eos|>"))


def choice(text: str, id: int) -> Distribution:
    """What a token was drawn from."""
    candidates = (
        Candidate(id, text, text.encode(), False, -0.5, 0.6065, 1, 0.7, None),
        Candidate(99, " [i]", b" [i]", False, -2.0, 0.1353, 2, 0.0, "top-p"),
    )
    return Distribution(1, 3, Candidates(candidates), 1.25, 0.9, 4094, 0.26, 0.3, (), id, 0.25, 0.0, 0.7, 0)


def token(lane: int, index: int) -> LaneToken:
    """A token of one of the lanes."""
    said, last = SAID[lane], index + 1 == len(SAID[lane])
    following = None if last else choice(said[index + 1], 10 * lane + index + 1)
    kv = None if last else LaneKV(4 + index, 4 + index, 8192, 2048)
    text = said[index]
    return LaneToken(
        lane,
        index,
        3 + index,
        10 * lane + index,
        text,
        text.encode(),
        False,
        -0.5,
        0.6,
        0.7,
        1,
        kv,
        following,
    )


def step(number: int, *lanes: int) -> BatchStep:
    """A step of some lanes."""
    tokens = tuple(token(lane, number - 1) for lane in lanes)
    totals = BatchTotals(5, 1, number * len(tokens), number, number * len(tokens), 0, 20.0, 10.0 * number)
    return BatchStep(number, tokens, len(lanes), 8.0, 10.0, totals)


OPENED = BatchOpened(
    tuple(LaneOpened(n, text, (1, 2, 3)[n:], 7, 0) for n, text in enumerate(TEXTS)), 8, False
)
BEGINNING: tuple[Record, ...] = (
    OPENED,
    LanesJoined((0, 1), (0, 1)),
    LanesPrefilled((0, 1), 3, 3, 5, 1, 20.0),
    LaneStarted(0, choice(" a", 0), LaneKV(3, 3, 6144, 0), 20.0),
    LaneStarted(1, choice(" dog", 10), LaneKV(2, 3, 4096, 2048), 21.0),
)
REST: tuple[Record, ...] = (
    step(1, 0, 1),
    step(2, 0, 1),
    LaneEnded(1, "eos", "<|eos|>", 2, 41.0),
    step(3, 0),
    LaneEnded(0, "length", "3 tokens", 3, 51.0),
    BatchEnded(BatchTotals(5, 1, 5, 2, 3, 0, 20.0, 30.0)),
)
DIFFERENCE = LaneDifference(1, 11, 12, "<|eos|>", " [u]", 2e-6)
COMPARED: tuple[Record, ...] = (
    LaneCompared(0, 3, None, 1e-6, 1e-4, 45.0),
    LaneCompared(1, 2, DIFFERENCE, 2e-6, 1e-4, 30.0),
    BatchCompared(2, 5, 50.0, 5, 75.0),
)
DRAWN = DrawsCounted(
    1, 200,
    (DrawnToken(14, ",", 0.85, 173, 0.8107, 0.9055), DrawnToken(5, " [b]", 0.1, 26, 0.12, 0.19),
     DrawnToken(6, " in", 0.001, 1, 0.0009, 0.0278)),
    0, 0.049, 1.5, 2, 0.47,
)  # fmt: skip


def draws(node: int) -> tuple[Record, ...]:
    """Two continuations of one path: both begin alike."""
    opened = replace(OPENED, node=node, lanes=tuple(replace(lane, ids=(), text="") for lane in OPENED.lanes))
    same = replace(token(0, 0), lane=1)
    first = step(1, 0, 1)
    return (
        opened,
        replace(first, tokens=(first.tokens[0], same)),
        replace(step(2, 0), tokens=(token(0, 1), token(1, 1))),
    )
