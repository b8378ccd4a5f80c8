"""A path as plain text, and under it what it was made with beside the model and its sampler."""

from __future__ import annotations

from inspector.display import hex_bytes, visible
from inspector.tools.export.recording import Recording


def plain(recording: Recording) -> str:
    """Prompt and completion. Lines and tabs stay; what a terminal would obey, or not show, is made visible.

    Args:
        recording: Its path is exported.
    """
    text = readable("".join(item.text for item in recording.items))
    pending = getattr(recording.items[-1], "pending", b"") if recording.items else b""
    text += hex_bytes(pending) if pending else ""
    text += "" if text.endswith("\n") else "\n"
    made = "".join(f"[{each.sentence}]\n" for each in recording.made)
    return f"{text}\n{made}" if made else text


def readable(text: str) -> str:
    """Several lines of foreign text, printable; a carriage return before a line's end is the line's end."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(visible(part) for part in line.split("\t")) for line in lines)
