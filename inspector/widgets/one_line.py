"""Text of several lines in a field of one: a newline is typed as \\n."""

from __future__ import annotations

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_UNESCAPES = {"\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


def escaped(text: str) -> str:
    """A text as it can be typed on one line: a newline as \\n."""
    return "".join(_ESCAPES.get(char, char) for char in text)


def unescaped(text: str) -> str:
    """What was typed on one line, with \\n as a newline; other backslashes stay."""
    out, chars = [], iter(text)
    for char in chars:
        follower = next(chars, "") if char == "\\" else ""
        out.append(_UNESCAPES.get(follower, char + follower) if follower else char)
    return "".join(out)
