"""Every view of the inside of a model: what it shows, or why it is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from engine.errors import EngineError
from engine.inside.attention import read_attention, read_triangle, score_heads
from engine.inside.gradients import read_gradients
from engine.inside.interventions import baseline, intervene
from engine.inside.lens import attribute, read_lens
from engine.inside.modules import read_experts, read_modules
from engine.inside.patching import patch_activations, sweep_heads
from engine.inside.positions import try_position
from engine.inside.scores import read_score
from engine.inside.steering import sweep_strengths
from engine.protocol import (
    ActivationsPatched,
    AttentionRead,
    Attribute,
    AttributionRead,
    Direction,
    ExpertsRead,
    HeadsScored,
    HeadsSwept,
    Intervene,
    Intervention,
    LensRead,
    ModelModules,
    PatchActivations,
    ReadAttention,
    ReadExperts,
    ReadGradients,
    ReadLens,
    ReadModules,
    ReadScore,
    ReadTriangle,
    RepeatedTexts,
    ScoreHeads,
    ScoreRead,
    StrengthsSwept,
    SweepHeads,
    SweepStrengths,
    TryPosition,
    floats,
)
from engine.session.session import Session
from tests.engine.inside.looking import PROMPT, answer

ANOTHER = [*PROMPT[:-3], 32, *PROMPT[-2:]]
"""The prompt with another token near its end: the activations that are put in come from it."""
TEXTS = RepeatedTexts(8, 1)
"""Over which heads are scored."""
VIEWS = (
    "attention", "triangle", "heads", "scores", "lens", "contributions", "gradients", "experts", "modules", "position",
    "path", "mask", "off", "off in all", "sweep", "steering", "patching",
)  # fmt: skip


class View(Struct, frozen=True):
    """What became of one view."""

    refused: str
    """The check that failed, with its error and bound, or what the engine said; empty where the view is shown."""
    parts: frozenset[str]
    """Names of what it shows: layers, heads, sums; empty where a view has no parts that could be missing."""
    strain: float
    """The largest error of its checks as a share of the bound; 0 where all bounds are 0."""


def views_of(session: Session, names: Collection[str] = VIEWS) -> dict[str, View]:
    """Open views: at the session's last token, the mask and patching at the end of the prompt.

    Args:
        session: Some steps behind `PROMPT`; patching, which comes last, reads another prompt into its tree.
        names: Those to open, without what the model is known to have nothing of.
    """
    node = session.node
    end = session.tree.nodes(node)[len(PROMPT) - 1]
    first, layers = (Intervention("layer", 0),), session.facts.layers
    ways: dict[str, Callable[[], Any]] = {
        "attention": lambda: answer(read_attention(session, ReadAttention(node))),
        "triangle": lambda: answer(read_triangle(session, ReadTriangle(node, layers - 1, 0))),
        "heads": lambda: answer(score_heads(session, ScoreHeads(node, TEXTS))),
        "scores": lambda: answer(read_score(session, ReadScore(node, layers - 1, 0))),
        "lens": lambda: answer(read_lens(session, ReadLens(node))),
        "contributions": lambda: answer(attribute(session, Attribute(node, (5, 6)))),
        "gradients": lambda: answer(read_gradients(session, ReadGradients(node, 5, 6))),
        "experts": lambda: answer(read_experts(session, ReadExperts(node))),
        "modules": lambda: answer(read_modules(session, ReadModules())),
        "position": lambda: answer(try_position(session, TryPosition(node, "token", 3))),
        "path": lambda: answer(try_position(session, TryPosition(node, "path", 3))),
        "mask": lambda: answer(try_position(session, TryPosition(end, "mask"))),
        "off": lambda: answer(intervene(session, Intervene(node, first))),
        "off in all": lambda: answer(intervene(session, Intervene(node, first, "context"))),
        "sweep": lambda: answer(sweep_heads(session, SweepHeads(node))),
        "steering": lambda: _steered(session, node),
        "patching": lambda: _patched(session, end),
    }
    assert tuple(ways) == VIEWS
    offered = [name for name in names if name != "experts" or session.facts.chooses_or_keeps]
    return {name: _view(way) for name, way in ways.items() if name in offered}


def _steered(session: Session, node: int) -> StrengthsSwept:
    """The last token steered after the first layer, by one strength beside random directions."""
    size = baseline(session, node).trace.width or 1
    vector = np.random.default_rng(1).normal(size=size).astype(np.float32)
    asked = SweepStrengths(node, Direction("up", 0, floats(vector, vector.shape)), 0, strengths=(1.0,))
    found = answer(sweep_strengths(session, asked))
    assert isinstance(found, StrengthsSwept)
    return found


def _patched(session: Session, end: int) -> ActivationsPatched:
    """The prompt's end with activations of another prompt, for the tokens whose logits the two move apart most."""
    session.move(end)
    own = session.logits.copy()
    list(session.prefill("", ANOTHER, echo=False))
    there = np.isfinite(own)  # some families bar tokens
    apart = np.where(there, session.logits, 0) - np.where(there, own, 0)
    found = answer(
        patch_activations(
            session, PatchActivations(end, session.node, int(apart.argmax()), int(apart.argmin()))
        )
    )
    assert isinstance(found, ActivationsPatched)
    return found


def _view(way: Callable[[], Any]) -> View:
    try:
        found = way()
    except EngineError as error:
        return View(str(error), frozenset(), 0.0)
    if isinstance(found, ModelModules):
        return View("", frozenset(_known(found)), 0.0)
    failed = found.facts.failed
    why = "" if failed is None else f"{failed.name} {failed.error:.1e} of {failed.bound:.0e} {failed.where}"
    strain = max((check.error / check.bound for check in found.facts.checks if check.bound), default=0.0)
    return View(why.strip(), frozenset(_parts(found)), strain)


def _parts(found: Any) -> Iterable[str]:
    if isinstance(found, AttentionRead):
        return [f"L{layer.layer + 1} {layer.kind}" for layer in found.layers]
    if isinstance(found, HeadsScored):
        return [f"L{score.layer + 1}h{score.head + 1}" for score in found.heads]
    if isinstance(found, ScoreRead):
        return [" ".join(map(str, (each.kind, each.layer, each.name, each.head))) for each in found.writers]
    if isinstance(found, LensRead):
        return [f"column {place}" for place in range(len(found.columns))]
    if isinstance(found, AttributionRead):
        return _shares(found)
    if isinstance(found, ExpertsRead):
        return [
            *(f"L{layer.layer + 1} {layer.path} weights" for layer in found.layers if layer.weights),
            *(f"L{state.layer + 1} state" for state in found.states),
        ]
    return [unit.intervention.label for unit in found.units] if isinstance(found, HeadsSwept) else ()


def _shares(found: AttributionRead) -> Iterator[str]:
    for part in found.parts:
        place = part.kind if part.layer is None else f"L{part.layer + 1} {part.kind} {part.name}".strip()
        yield place
        if part.heads.shape[0]:
            yield f"{place} of {part.heads.shape[0]} heads"


def _known(found: ModelModules) -> Iterator[str]:
    """What the map tells by comparing arrays: what parts read, where they are added, and activations."""
    for block in found.blocks:
        for layer in block.layers:
            for part in block.parts:
                if part.reads:
                    yield f"L{layer + 1} {part.path} reads {part.reads}"
                if part.mlp is not None and part.mlp.activation:
                    yield f"L{layer + 1} {part.path} is {part.mlp.activation}"
            for each in block.sums:
                yield f"L{layer + 1} adds {' + '.join(each.parts)} after {each.after}"
