"""What pages are made of: their scripts, their style with the screen's colours, the policy that allows no other."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources

from inspector.scales import STEPS, Rgb, heat


def filled(template: str, slots: Mapping[str, str]) -> str:
    """A page.

    Args:
        template: Name of its file.
        slots: What is put in, by name; it is escaped.
    """
    # one pass, so that what is put in is never looked through for slots itself
    return re.sub(r"\{\{(\w+)\}\}", lambda match: slots[match[1]], _read(template))


def policy(style: str, script: str) -> str:
    """The content security policy that allows these two, named by their hashes, and nothing else."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def script(names: Sequence[str]) -> str:
    """Some scripts as one, in the order in which they run."""
    return '\n"use strict";\n' + "\n".join(_read(name) for name in names)


def style(*names: str) -> str:
    """Some styles as one, with the colours of the screen for dark and for light."""
    dark, light = _colours(dark=True), _colours(dark=False)
    rules = "\n".join(_read(name) for name in names)
    return f"\n:root {{{light}}}\n@media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}\n{rules}"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    return resources.files("inspector.tools.export").joinpath("page", name).read_text(encoding="utf-8")


def _colours(dark: bool) -> str:
    rules = []
    for step in range(1, STEPS + 1):
        ink, ground = heat(step, dark)
        rules.append(f"--ink{step}:{_hex(ink)};--ground{step}:{_hex(ground)};")
    return "".join(rules)


def _hex(rgb: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
