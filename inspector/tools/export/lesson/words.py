"""What is done in a beat, in words for a page that has no keys for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.settings import BY_NAME
from inspector.display import visible
from inspector.lessons.actions import Action, given_text, settings_given


def done(actions: Sequence[Action]) -> str:
    """What some actions do, as a sentence; printable."""
    words = "; then ".join(
        _WORDS[each.name](each.given) if each.name in _WORDS else str(each) for each in actions
    )
    return visible(words[:1].upper() + words[1:])


def _counted(once: str, often: str) -> Callable[[str], str]:
    return lambda given: often.format(given) if given not in ("", "1") else once


def _settings(given: str) -> str:
    return "set " + " and ".join(
        f"{BY_NAME[name].label} to {given_text(given, name)}" for name in settings_given(given)
    )


_WORDS: Mapping[str, Callable[[str], str]] = {
    "step": _counted("take one step", "take {} steps"),
    "run": lambda _: "run to the end",
    "back": _counted("take one token back", "take {} tokens back"),
    "start": lambda _: "go back to the end of the prompt",
    "choose": lambda given: f"take “{given}”",
    "type": lambda given: f"type “{given}”",
    "reroll": _counted("draw again", "draw again {} times"),
    "set": _settings,
    "prompt": lambda given: f"read the prompt “{given}”",
    "race": lambda given: f"race to {given} tokens",
    "attention": lambda _: "look where the heads look",
    "lens": lambda _: "read what each layer would predict",
    "beams": lambda given: f"search with beams, {given}".rstrip(", "),
}
"""By the action's name; one that isn't here is written as the lesson's file has it."""
