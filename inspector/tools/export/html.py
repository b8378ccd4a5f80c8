"""A recording as one web page: no network, no other file, nothing in it that a token could break out of.

The page is three files next to this one, put together: its script and its style are named by their hashes in a content
security policy that allows nothing else, and what is shown is JSON in an element that no browser runs. All foreign text
was made visible before, is escaped here, and is put into the page as text alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from importlib import resources

from inspector.scales import STEPS, Rgb, heat
from inspector.tools.export.data import data
from inspector.tools.export.recording import Recording
from inspector.tools.export.text import readable

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SCRIPTS = ("numbers.js", "charts.js", "inside.js", "panel.js", "page.js")
"""In the order in which they run, as one."""


def page(recording: Recording) -> str:
    """The page.

    Args:
        recording: Its path is shown first; the other branches of its tree can be chosen.
    """
    values = data(recording)
    style, script = _style(), _script()
    slots = {
        "policy": escape(_policy(style, script)),
        "title": escape(values["title"]),
        "style": style,
        "text": escape(readable("".join(item.text for item in recording.items))),
        "data": embedded(values),
        "script": script,
    }
    # one pass, so that what is put in is never looked through for slots itself
    return re.sub(r"\{\{(\w+)\}\}", lambda match: slots[match[1]], _read("page.html"))


def embedded(value: object) -> str:
    """JSON that is safe inside a script element: no character in it is markup, or the end of a line of script."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match[0]], text)


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    return resources.files("inspector.tools.export").joinpath("page", name).read_text(encoding="utf-8")


def _script() -> str:
    return '\n"use strict";\n' + "\n".join(_read(name) for name in _SCRIPTS)


def _style() -> str:
    """The style, with the colours of the screen for dark and for light."""
    dark, light = _colours(dark=True), _colours(dark=False)
    return f"\n:root {{{light}}}\n@media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}\n{_read('page.css')}"


def _colours(dark: bool) -> str:
    rules = []
    for step in range(1, STEPS + 1):
        ink, ground = heat(step, dark)
        rules.append(f"--ink{step}:{_hex(ink)};--ground{step}:{_hex(ground)};")
    return "".join(rules)


def _hex(rgb: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
