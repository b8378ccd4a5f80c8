"""A session as a command line and as Python code that generate the same text again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import asdict, replace

from engine.protocol import ModelFacts, Prefill, Step
from engine.settings import BY_NAME, LoadSettings, Settings, with_defaults
from inspector.session.prompts import is_conversation, prompt_of
from inspector.state.branches import ROOT
from inspector.state.timeline import Timeline

_BY_ITSELF = ("max_tokens", "candidates", "seed", "grammar")
"""Settings that don't affect a draw, are always written separately, or have no argument in Python."""
_DRAWN = frozenset(("greedy", "sampled"))
_ESCAPE = re.compile(r"\\[nt]")
"""The escapes that the flags read as a newline or a tab."""


def as_command(timeline: Timeline, load: LoadSettings, settings: Settings) -> tuple[str, int]:
    """The command that generates the path on show, and the number of tokens that it generates.

    The tokens end before the first that the sampler didn't pick with the settings of the first step.

    Args:
        timeline: Has the path.
        load: Settings of the model.
        settings: Settings in force, for steps whose own settings aren't known.

    Returns:
        Command and number; empty and 0 if there are no such tokens, or if a flag would misread one of the texts.
    """
    prompt, steps = _first_prompt(timeline), _steps(timeline, settings)
    first = next((settings for _, settings in steps if settings is not None), None)
    drawn = next((at for at, (_, own) in enumerate(steps) if own is None or own != first), len(steps))
    if prompt is None or first is None or not drawn or is_conversation(prompt.messages):
        return "", 0
    if prompt.text == "-" or any(map(_ESCAPE.search, (prompt.text, *first.stop, *load.extra_eos_token))):
        return "", 0
    words, plain = ["inspector", "--model", load.model], LoadSettings(model=load.model)
    words += [word for name, value in _given(load, plain) for word in _flags(name, value)]
    words += [f"--prompt={prompt.text}"] if prompt.text.startswith("-") else ["-p", prompt.text]
    words += ["--chat"] if prompt.chat else ["--ignore-chat-template"]
    words += ["--system-prompt", prompt.system] if prompt.system else []
    words += [word for name, value in _given(first, _usual(timeline.facts)) for word in _flags(name, value)]
    words += ["--seed", str(first.seed), "--max-tokens", str(drawn)]
    return shlex.join(words), drawn


def as_python(timeline: Timeline, load: LoadSettings, settings: Settings) -> str:
    """Code with `mlx_inspector` that generates the path on show; empty if it has no prompt.

    Args:
        timeline: Has the path.
        load: Settings of the model.
        settings: Settings in force, for steps whose own settings aren't known.
    """
    prompt, steps = _first_prompt(timeline), _steps(timeline, settings)
    if prompt is None:
        return ""
    usual = _usual(timeline.facts)
    present = next((own for _, own in steps if own is not None), settings)
    given: list[tuple[str, Any]] = [("prompt", prompt.text)]
    if is_conversation(prompt.messages):
        given = [("messages", [{"role": each.role, "content": each.content} for each in prompt.messages])]
    elif prompt.system:
        given += [("system", prompt.system)]
    given += [("chat", bool(prompt.chat)), *_given(load, LoadSettings(model=load.model))]
    given += [*_given(present, usual), ("seed", present.seed)]
    lines = ["import mlx_inspector as mi", "", f"s = mi.open({load.model!r}, {_arguments(given)})"]
    for own, group in groupby(steps, key=lambda each: each[1]):
        run = [step for step, _ in group]
        if own is None:
            ids = ", ".join(str(step.id) for step in run)
            lines += [f"for token in ({ids},):", "    s.take(token)"]
            continue
        if own != present:
            seed = [("seed", own.seed)] * (own.seed != present.seed)
            lines += [f"s.set({_arguments([*_given(own, present), *seed])})"]
            present = own
        lines += [f"s.run({len(run)}).wait()"]
    return "\n".join([*lines, "print(s.text)", ""])


def _first_prompt(timeline: Timeline) -> Prefill | None:
    """The prompt that the path begins with, without further turns; None if the path doesn't begin with one."""
    ends = timeline.prompts.by_end
    read = next((ends[item.node] for item in timeline.items if item.node in ends), None)
    return prompt_of(read.opened) if read is not None and read.opened.parent == ROOT else None


def _steps(timeline: Timeline, settings: Settings) -> list[tuple[Any, Settings | None]]:
    """The tokens after the first prompt, each with the settings that it was drawn with; None if a run can't take it."""
    items, tree, usual = timeline.items, timeline.tree, Settings()
    first = timeline.step_slots[0] if timeline.step_slots else len(items)
    found: list[tuple[Any, Settings | None]] = []
    for at in range(first, len(items)):
        item, own = items[at], None
        finished = timeline.finished.get(items[at - 1].node) if at else None
        ended = finished is not None and finished.reason != "length"
        if isinstance(item, Step) and item.origin in _DRAWN and not item.choice.reroll and not ended:
            settings = tree.settings.get(item.node, settings)
            if settings.grammar is None:  # settings that change no draw are set to their defaults
                own = replace(settings, max_tokens=usual.max_tokens, candidates=usual.candidates)
        found.append((item, own))
    return found


def _usual(facts: ModelFacts | None) -> Settings:
    """The settings that both the command and Python start with."""
    return with_defaults(Settings(), facts.sampling if facts is not None else (), ())


def _given(own: Any, usual: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the settings that differ from the default ones."""
    before = asdict(usual)
    for name, value in asdict(own).items():
        if value != before[name] and name in BY_NAME and name not in _BY_ITSELF:
            yield name, value


def _flags(name: str, value: Any) -> list[str]:
    field = BY_NAME[name]
    match field.kind:
        case "flag":
            return [field.flag]
        case "choice":
            return [field.flag if value else f"--no-{field.flag.removeprefix('--')}"]
        case "texts":
            return [word for text in value for word in (field.flag, text)]
    return [field.flag, field.format(value)]


def _arguments(given: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given)
