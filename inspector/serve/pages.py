"""The two pages: the one with the terminal, and the one that says why there is none."""

from __future__ import annotations

from html import escape
from pathlib import Path

from aiohttp import web

from engine.errors import EngineError

_FOLDER = Path(__file__).parent / "page"


def page() -> web.Response:
    """The page with the terminal."""
    return web.Response(text=(_FOLDER / "page.html").read_text(encoding="utf-8"), content_type="text/html")


def refusal(status: int, title: str, error: EngineError) -> web.Response:
    """A page that says what is wrong and what to do.

    Args:
        status: Of HTTP.
        title: A few words.
        error: Says it.
    """
    text = (_FOLDER / "refusal.html").read_text(encoding="utf-8")
    for name, value in (("title", title), ("message", error.message), ("hint", error.hint)):
        text = text.replace(f"{{{name}}}", escape(value))
    return web.Response(status=status, text=text, content_type="text/html")
