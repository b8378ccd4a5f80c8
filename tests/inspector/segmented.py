"""A conversation whose prompt says whose its tokens are, and a reply with thinking and a tool call, as records."""

from __future__ import annotations

from engine.protocol import (
    Candidate,
    Candidates,
    Distribution,
    KVReading,
    LeftOut,
    Memory,
    Message,
    Prefilled,
    PromptOpened,
    PromptSegments,
    PromptToken,
    ReplyFormat,
    ReplyMark,
    SegmentRun,
    Step,
    StepTimes,
)
from tests.inspector import fakes

FACTS = fakes.facts()

MARKS = (
    ReplyMark("answer", "<think>", "thinking"), ReplyMark("thinking", "</think>", "answer"),
    ReplyMark("answer", "<tool_call>", "tool call"), ReplyMark("tool call", "</tool_call>", "answer"),
)  # fmt: skip
RUNS = (SegmentRun("system", 1, 3, 0), SegmentRun("user", 4, 6, 1))
END = 7
"""The prompt's last node."""


def distribution(node: int) -> Distribution:
    picked = Candidate(5, " so", b" so", False, -0.7, 0.5, 1, 1.0, None)
    return Distribution(
        node, node, Candidates((picked,)), 1.0, 0.0, 4095, 0.5, 0.0, (), 5, None, None, None, 0
    )


def prompt(begin: str = "answer", runs: tuple[SegmentRun, ...] = RUNS) -> PromptOpened:
    tokens = tuple(PromptToken(n + 1, n, n, f" p{n}", b"", n in (0, 3, 6)) for n in range(END))
    messages = (Message("system", "s"), Message("user", "u"))
    left = (LeftOut("thinking", 0, False),)
    segments = PromptSegments(runs, left, ReplyFormat(begin, MARKS, "json_tools"))
    return PromptOpened("", True, tokens, False, messages=messages, segments=segments)


def step(node: int, text: str, parent: int | None = None, special: bool = False, id: int = 5) -> Step:
    above = node - 1 if parent is None else parent
    kv, memory = KVReading(0, 0, 0, ()), Memory(0, 0)
    return Step(
        index=node - END - 1, position=node - 1, node=node, parent=above, id=id, text=text, raw=text.encode(),
        pending=b"", special=special, origin="greedy", logprob=-0.7, prob=0.5, sampler_prob=0.5, rank=1,
        surprisal_bits=1.0, choice=distribution(above), next=distribution(node), kv=kv,
        ms=StepTimes(2.0, 1.0, 0.5, 0.5), memory=memory,
    )  # fmt: skip


def prefilled(opened: PromptOpened) -> Prefilled:
    kv, memory = fakes.reading(END, FACTS), Memory(0, 0)
    return Prefilled(opened.text, opened.tokens, distribution(END), kv, memory, 9.0, 100.0)
