"""Style sheets that are parsed once for all applications of a process.

Each application parses those of the program and of every widget that it mounts, with its theme's colours: a tenth of a
second, the same in every test. The toolkit keeps what it parsed, and applies it again, within one application.
"""

from __future__ import annotations

from typing import Any

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet


def parse_once() -> None:
    """Have every application of this process find what another one parsed with the same colours."""
    parse, parsed = Stylesheet._parse_rules, dict[tuple[Any, ...], list[RuleSet]]()

    def found(sheet: Stylesheet, css: str, *where: Any, **how: Any) -> list[RuleSet]:
        key = (tuple(sheet._variables.items()), css, where, tuple(how.items()))
        if key not in parsed:
            parsed[key] = parse(sheet, css, *where, **how)
        return parsed[key]

    Stylesheet._parse_rules = found  # type: ignore[method-assign]
