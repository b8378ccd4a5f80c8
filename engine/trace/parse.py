"""The JSON of a trace: the strict language, no name twice, no depth that ends the process."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from engine.trace.shapes import Misfit


def parse(data: bytes) -> Any:
    """The value of a line.

    Raises:
        Misfit: It isn't JSON, has a name twice, `NaN` or `Infinity`, a number of thousands of digits, or is nested
            too deep.
    """
    try:
        text = data.decode()
        value, end = _DECODER.raw_decode(text)
    except UnicodeDecodeError as error:
        raise Misfit(f"is not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise Misfit(f"is not JSON ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise Misfit("is nested too deep") from None
    except ValueError:  # the interpreter's own bound on the digits of a whole number
        raise Misfit("has a number of too many digits") from None
    if end != len(text):
        raise Misfit(f"has something after its end (at character {end + 1})")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Misfit(f"has the name {twice[:40]!r} twice")
    return named


def _refused(name: str) -> NoReturn:
    raise Misfit(f"has {name}, which is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refused)
