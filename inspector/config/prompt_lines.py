"""A batch's prompts as lines: a text each, or a JSON object of a prompt and the settings of its lane."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.errors import EngineError, PromptError
from engine.protocol import LanePrompt
from engine.settings import BY_NAME, Settings, check
from inspector.config import presets

OWN = ("prompt", "system")
"""Names in an object that are no settings."""
FORM = '{"prompt": "...", "seed": 1, "temp": 0.7}'


def lanes(lines: Sequence[str], like: LanePrompt, settings: Settings) -> tuple[LanePrompt, ...]:
    """The prompts of some lines.

    A line is an object where it is JSON and has a prompt; any other line is a prompt itself, with its braces.

    Args:
        lines: None of them empty.
        like: What a prompt gets that its line doesn't give.
        settings: What those that a line names are put into.

    Raises:
        PromptError: An object names what is no setting, or a value that can't be; told with the prompt's number.
    """
    return tuple(_lanes(lines, like, settings))


def _lanes(lines: Sequence[str], like: LanePrompt, settings: Settings) -> Iterator[LanePrompt]:
    for number, line in enumerate(lines, 1):
        try:
            given = json.loads(line)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or "prompt" not in given:
            yield replace(like, text=line)
            continue
        try:
            yield _lane({name.replace("-", "_"): value for name, value in given.items()}, like, settings)
        except EngineError as error:
            raise PromptError(f"Prompt {number}: {error.message}", error.hint) from error


def _lane(given: dict[str, object], like: LanePrompt, settings: Settings) -> LanePrompt:
    for name in OWN:
        if name in given and not isinstance(given[name], str):
            raise PromptError(f"its {name} is no text.", f"Write it as {FORM}.")
    if not given["prompt"]:
        raise PromptError("its prompt is empty.", "Give some text.")
    unknown = [name for name in given if name not in OWN and name not in BY_NAME]
    if unknown:
        raise PromptError(
            f"there is no setting {unknown[0]!r}.",
            "They have the names of the flags: temp, top_p, seed, max_tokens.",
        )
    own = presets.read({name: value for name, value in given.items() if name not in OWN})
    system = given.get("system", like.system)
    assert isinstance(given["prompt"], str)
    assert system is None or isinstance(system, str)
    return replace(
        like, text=given["prompt"], system=system, settings=check(replace(settings, **own)) if own else None
    )
