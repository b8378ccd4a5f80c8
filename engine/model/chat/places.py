"""Where each message of a conversation begins in a filled template, for any template.

Its text is not searched: a message `a` is found in `<|im_start|>system`, and `You are` in a system prompt of the
template's own. The template is filled again with characters of plane 15 in the messages, which no template and no text
uses; where it is the same text without them, they are where the messages are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Conversation = list[dict[str, Any]]
Fill = Callable[[Sequence[Conversation]], Sequence[str | None]]
"""The template filled with each of some conversations; only the first is sure to be filled."""
_FIRST = 0xF0000
_LAST = 0xFFFFD
MOST = 64
"""Messages that are looked for one by one, the last ones, where a template takes notice of the marks."""
_THOUGHT = "</think>"
"""Templates cut an answer's thinking off behind it."""


def message_places(fill: Fill, conversation: Conversation, count: int) -> tuple[str, tuple[int, ...]]:
    """Fill a template, and find its messages.

    Args:
        fill: Fills it.
        conversation: What it is filled with.
        count: How many messages are looked for, from the first.

    Returns:
        The text, and the place in it of the first character of each message that is no space; -1 where a message is
        empty, isn't written, or is written in another way.
    """
    texts = [str(message.get("content") or "") for message in conversation[:count]]
    every = [place for place, text in enumerate(texts) if text.strip()]
    if count > _LAST - _FIRST or any(_is_mark(sign) for text in texts for sign in text):
        text = fill([conversation])[0]
        assert text is not None
        return text, (-1,) * count
    text, marked = fill([conversation, _marked(conversation, every)])
    assert text is not None
    found = _found(text, marked)
    if found is None:
        last = every[-MOST:]
        ends = [_marked(conversation, [place], at_end=True) for place in last]
        _, *alone = fill([conversation, *(_marked(conversation, [place]) for place in last), *ends])
        found = {}
        for place, begin, end in zip(last, alone[: len(last)], alone[len(last) :], strict=True):
            found |= _found(text, begin) or _before(texts[place].strip(), text, _found(text, end) or {})
    return text, tuple(found.get(place, -1) for place in range(count))


def _is_mark(sign: str) -> bool:
    return _FIRST <= ord(sign) <= _LAST


def _marked(conversation: Conversation, places: Sequence[int], at_end: bool = False) -> Conversation:
    """The conversation with marks within some messages, inside the white space that a template may cut off."""
    made = list(conversation)
    for place in places:
        content = str(made[place]["content"])
        mark = chr(_FIRST + place)
        if at_end:
            cuts = [len(content.rstrip())]
        else:
            behind = content.rfind(_THOUGHT) + len(_THOUGHT) if _THOUGHT in content else 0
            cuts = (
                [_first_sign(content, behind), _first_sign(content, 0)]
                if behind
                else [_first_sign(content, 0)]
            )
        for cut in cuts:
            content = content[:cut] + mark + content[cut:]
        made[place] = {**made[place], "content": content}
    return made


def _first_sign(content: str, begin: int) -> int:
    """The place of the first character that is no space."""
    return begin + len(content[begin:]) - len(content[begin:].lstrip())


def _found(text: str, marked: str | None) -> dict[int, int] | None:
    """The places of the marks, None where the text is another one without them."""
    if marked is None or "".join(sign for sign in marked if not _is_mark(sign)) != text:
        return None
    places: dict[int, int] = {}
    at = 0
    for sign in marked:
        if _is_mark(sign):
            places.setdefault(ord(sign) - _FIRST, at)
        else:
            at += 1
    return places


def _before(content: str, text: str, ends: dict[int, int]) -> dict[int, int]:
    """The places where the content begins whose end was found."""
    starts = {place: end - len(content) for place, end in ends.items()}
    return {place: at for place, at in starts.items() if at >= 0 and text.startswith(content, at)}
