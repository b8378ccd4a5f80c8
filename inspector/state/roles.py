"""Where the messages of a conversation begin on a path. Pure."""

from __future__ import annotations

from itertools import accumulate, pairwise

from engine.records import PromptOpened
from inspector.state.branch import ROOT
from inspector.state.timeline import Timeline


def role_slots(timeline: Timeline) -> dict[int, str]:
    """The role of each message of the path by the slot of its first token; empty for raw text.

    A template may write a message in another way (trimmed, or as JSON): one whose content is not found in the prompt's
    text has no slot.
    """
    starts: dict[int, str] = {}
    for slot, item in enumerate(timeline.items):
        if (read := timeline.prompts.by_end.get(item.node)) is not None and read.opened.messages:
            starts |= _of_prompt(read.opened)
            starts[slot + 1] = "assistant"
    return starts


def _of_prompt(opened: PromptOpened) -> dict[int, str]:
    """The messages that are in a prompt's own text: of a turn the last one alone."""
    messages = opened.messages if opened.parent == ROOT else opened.messages[-1:]
    ends = list(accumulate(len(token.text) for token in opened.tokens))
    first, text, starts, done = opened.tokens[0].position, opened.text, {}, 0
    for message in messages:
        content = message.content.strip()
        at = text.find(content, done) if content else -1
        if at < 0:
            continue
        done = at + len(content)
        place = next(
            (place for place, (begin, end) in enumerate(pairwise([0, *ends])) if begin <= at < end), None
        )
        if place is not None:
            starts[first + place] = message.role
    return starts
