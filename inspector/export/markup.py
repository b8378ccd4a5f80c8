"""A whole page with its script and style, and a content security policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources

from inspector.scales import HEAT, STEPS, Rgb


def filled(template: str, styles: Sequence[str], scripts: Sequence[str], slots: Mapping[str, str]) -> str:
    """A page with its styles and scripts in it, and a content security policy that allows nothing else.

    Args:
        template: Name of its file.
        styles: Names of its style files; the screen's colors, for dark and for light, come before them.
        scripts: Names of its script files, which are joined in this order.
        slots: HTML to insert, already escaped, by the slot's name.
    """
    dark, light = _colours(dark=True), _colours(dark=False)
    rules = "\n".join(map(_read, styles))
    style = f"\n:root {{{light}}}\n@media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}\n{rules}"
    script = '\n"use strict";\n' + "\n".join(map(_read, scripts))
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    every = {**slots, "style": style, "script": script, "policy": escape(policy)}
    # one pass, so that inserted text is not searched for slots
    return re.sub(r"\{\{(\w+)\}\}", lambda match: every[match[1]], _read(template))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    return resources.files("inspector.export").joinpath("page", name).read_text(encoding="utf-8")


def _colours(dark: bool) -> str:
    inks = ((step, *map(_hex, HEAT[step, dark])) for step in range(1, STEPS + 1))
    return "".join(f"--ink{step}:{ink};--ground{step}:{ground};" for step, ink, ground in inks)


def _hex(rgb: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
