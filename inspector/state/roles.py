"""Where the messages of a conversation begin on a path. Pure."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from engine.protocol import PromptOpened
from inspector.state.branches import ROOT
from inspector.state.timeline import Timeline


def role_slots(timeline: Timeline) -> dict[int, str]:
    """The role of each message of the path by the slot of its first token; empty for raw text.

    A message that the template leaves out, or writes in another way, has no slot.
    """
    starts: dict[int, str] = {}
    for slot, item in enumerate(timeline.items):
        if (read := timeline.prompts.by_end.get(item.node)) is not None and read.opened.messages:
            starts |= _of_prompt(read.opened)
            starts[slot + 1] = "assistant"
    return starts


def _of_prompt(opened: PromptOpened) -> dict[int, str]:
    """The messages that are in a prompt's own text: of a turn the last one alone."""
    ends = list(accumulate(len(token.text) for token in opened.tokens))
    places = opened.starts or _only_places(opened)
    return {
        opened.tokens[bisect_right(ends, at)].position: message.role
        for message, at in zip(opened.messages, places, strict=False)
        if 0 <= at < ends[-1]
    }


def _only_places(opened: PromptOpened) -> list[int]:
    """Where messages are that are once in the text: all that can be said of a recording from before `starts`."""
    contents = [message.content.strip() for message in opened.messages]
    if opened.parent != ROOT:
        contents[:-1] = [""] * (len(contents) - 1)
    return [opened.text.find(each) if each and opened.text.count(each) == 1 else -1 for each in contents]
