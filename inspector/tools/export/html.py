"""A recording as one web page: no network, no other file, nothing in it that a token could break out of.

The page is three files next to this one, put together: its script and its style are named by their hashes in a content
security policy that allows nothing else, and what is shown is JSON in an element that no browser runs. All foreign text
was made visible before, is escaped here, and is put into the page as text alone.
"""

from __future__ import annotations

import json
import re
from html import escape

from inspector.tools.export import assets, lockstep
from inspector.tools.export.data import data, places_of, tree_rows
from inspector.tools.export.element import element, written
from inspector.tools.export.evidence import evidence
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
    style, script = assets.style("page.css"), assets.script(_SCRIPTS)
    slots = {
        "policy": escape(assets.policy(style, script)),
        "title": escape(values["title"]),
        "style": style,
        "made": "".join(f"<li>{escape(each.sentence)}</li>" for each in recording.made),
        "text": escape(readable("".join(item.text for item in recording.items))),
        "evidence": _evidence(recording),
        "data": embedded(values),
        "script": script,
    }
    return assets.filled("page.html", slots)


def _evidence(recording: Recording) -> str:
    """What was looked at, as one section; empty where nothing was."""
    articles = evidence(recording, places_of(tree_rows(recording)))
    if (second := lockstep.section(recording)) is not None:
        articles.append(second)
    if not articles:
        return ""
    return written(element("section", element("h2", "What was looked at"), *articles, id="evidence"))


def embedded(value: object) -> str:
    """JSON that is safe inside a script element: no character in it is markup, or the end of a line of script."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match[0]], text)
