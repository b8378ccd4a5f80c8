"""What a lesson may show and hide, by its id on the screen. A test holds these tables against the real registry."""

from __future__ import annotations

from collections.abc import Mapping

_TOKEN = frozenset({"step", "last", "least_sure"})
_SHARES = frozenset(
    f"next.{name}" for name in ("picked", "prob", "sampler_prob", "top", "top_prob", "second", "second_prob")
)
_SHARE_OF_DRAW = frozenset({"next.picked", "next.low", "next.high"})
PANELS: Mapping[str, frozenset[str]] = {
    "text": frozenset({f"{name}.text" for name in _TOKEN} | {"completion.text", "completion.occurrences"}),
    "candidates": _SHARES | _SHARE_OF_DRAW | {"candidate"},
    "steps": _TOKEN,
    "kv": frozenset({"kv.bytes"}),
    "timing": frozenset({f"{name}.ms" for name in _TOKEN} | {"prefill.ms"}),
    "sampler": _SHARE_OF_DRAW | {"stage", "whatif", "next.kept", "next.removed", "next.sampler_entropy"},
    "tree": frozenset(),
    "grammar": frozenset({"stage", "next.kept", "next.removed"}),
}
"""Panels by id, with the quantities that each shows: `function`, or `function.field`."""
PARTS: Mapping[str, frozenset[str]] = {
    "picked": _SHARE_OF_DRAW,
    "probabilities": frozenset(
        {
            "next.prob",
            "next.sampler_prob",
            "next.top_prob",
            "next.second_prob",
            "candidate.prob",
            "candidate.sampler_prob",
        }
    ),
    "captions": frozenset(),
}
"""Parts of panels that `hide` may name besides the panels, in the same way."""
HIDDEN: Mapping[str, frozenset[str]] = {**PANELS, **PARTS}
"""What `hide` may name."""
SCREENS = (
    "attention", "attribution", "beams", "breakpoints", "compare", "compare_kv", "experts", "facts", "find",
    "interventions", "lens", "look_ahead", "modules", "own_text", "patching", "positions", "profile", "prompt", "race",
    "sampling", "sweep", "why",
)  # fmt: skip
"""Keys, by id, that open something to look at. A lesson's file presses no others: some delete, write or end."""
SHOWN = (*PANELS, *SCREENS)
"""What `show` may name."""
