"""Why a token was chosen, in plain sentences, for somebody who has never seen a sampler."""

from __future__ import annotations

from collections.abc import Sequence

from engine.records import Candidate, Distribution, StageReading, Step
from engine.settings import Settings
from inspector import scales
from inspector.display import token_label, visible
from inspector.panels.ruler import places
from inspector.panels.stages import PENALTIES
from inspector.timeline import Item

_FELL = "The draw"
_SHAPING = ("logit-bias", *PENALTIES)


def sentences(
    distribution: Distribution, settings: Settings | None, item: Item | None, now: Distribution | None = None
) -> list[str]:
    """The reason, the most important sentence first; printable.

    Args:
        distribution: What was, or would be, drawn from.
        settings: Of the sampler, None where they are not known.
        item: The token that stands there, None for the token to come.
        now: The distribution that stands, where `distribution` is only tried.
    """
    if now is not None:
        reason = [each for each in _reason(distribution, settings) if not each.startswith(_FELL)]
        return [_tried(distribution, now), *reason]
    return [*_by_hand(distribution, item), *_reason(distribution, settings)]


def _reason(distribution: Distribution, settings: Settings | None) -> list[str]:
    if distribution.draw is None:
        return _greedy(distribution)
    first = f"{_belief(distribution)} {_made_of(distribution, settings)}"
    return [first, _fell(distribution), *_instead(distribution)]


def _tried(distribution: Distribution, now: Distribution) -> str:
    """What would be picked, and whether that is what was."""
    label = label_of(distribution, distribution.picked)
    same = distribution.picked == now.picked
    end = f"{label} again" if same else f"{label}, not {label_of(now, now.picked)}"
    if distribution.draw is None:
        return f"Greedy would take {end}, without a draw."
    draw, low, high = places(distribution)
    return f"The same draw {draw} would take {end}. Its share is {low} to {high}."


def _greedy(distribution: Distribution) -> list[str]:
    picked, top = _find(distribution, distribution.picked), distribution.candidates[0]
    label = _label(picked)
    if picked is None or picked.id == top.id:
        return [f"Greedy takes the most probable token, {label}: there is no draw."]
    shaping = _names([stage for stage in distribution.stages if stage.name in _SHAPING])
    lowered = f"{shaping or 'a stage'} put {label} before it"
    why = f"{visible(top.cut_by)} cut it" if top.cut_by not in (None, "greedy") else lowered
    return [
        f"Greedy takes {label}, the highest logit after the penalties: there is no draw.",
        f"The model's own favourite is {_label(top)} ({_percent(top.prob)}), but {why}.",
    ]


def _belief(distribution: Distribution) -> str:
    picked = _find(distribution, distribution.picked)
    label = _label(picked)
    if picked is None:
        return f"{label} is beyond the candidates."
    return f"{label} has {_percent(picked.prob)} by the model (rank {scales.count(picked.rank)});"


def _made_of(distribution: Distribution, settings: Settings | None) -> str:
    """What the stages made of the picked token's probability."""
    picked = _find(distribution, distribution.picked)
    parts = list(_doings(distribution, settings))
    share = _percent(picked.sampler_prob) if picked else "a part"
    if not parts:
        return f"no stage changed anything, so it holds {share} of the draws."
    return f"{', '.join(parts)}, so it holds {share} of the draws."


def _doings(distribution: Distribution, settings: Settings | None) -> list[str]:
    left = distribution.others + len(distribution.candidates)
    found = []
    for stage in distribution.stages:
        name = visible(stage.name)
        if stage.kept < left:
            found.append(f"{name} kept {scales.count(stage.kept)} token{'s' * (stage.kept != 1)}")
        elif stage.name in _SHAPING:
            found.append(f"{name} changed logits")
        elif stage.name == "temperature" and settings is not None:
            word = "flattened" if settings.temp > 1 else "sharpened"
            found.append(f"temperature {settings.temp:g} {word} them")
        left = stage.kept
    return found


def _instead(distribution: Distribution) -> list[str]:
    """Why it is not the token that one would expect."""
    top = distribution.candidates[0]
    if top.id == distribution.picked:
        return []
    label, belief = _label(top), _percent(top.prob)
    if top.cut_by is not None:
        return [f"{label} ({belief}) can't be drawn: {visible(top.cut_by)} cut it."]
    best = max(distribution.candidates, key=lambda candidate: candidate.sampler_prob)
    if best.id == distribution.picked:
        stages = _names([stage for stage in distribution.stages if stage.name in _SHAPING])
        return [f"{label} ({belief}) fell behind it through {stages or 'the stages'}."]
    label, share = _label(best), best.sampler_prob
    chance = "most draws take it, this one is beyond" if share > 0.5 else "this draw is beyond it"
    return [f"{label} ({_percent(best.prob)}) holds 0 to {share:.3f}: {chance}."]


def _fell(distribution: Distribution) -> str:
    draw, low, high = places(distribution)
    again = f" (drawn again {distribution.reroll}×)" if distribution.reroll else ""
    return f"{_FELL} {draw}{again} falls on its share, {low} to {high}."


def _by_hand(distribution: Distribution, item: Item | None) -> list[str]:
    if not isinstance(item, Step) or item.id == distribution.picked:
        return []
    word = {"chosen": "chosen by hand", "inserted": "inserted"}.get(item.origin, "taken")
    return [
        f"{quoted(token_label(item.text, item.raw, item.pending))} was {word}; the sampler's pick is another."
    ]


def _names(stages: Sequence[StageReading]) -> str:
    return " and ".join(visible(stage.name) for stage in stages)


def _find(distribution: Distribution, id: int) -> Candidate | None:
    return next((candidate for candidate in distribution.candidates if candidate.id == id), None)


def _label(candidate: Candidate | None) -> str:
    return quoted(token_label(candidate.text, candidate.raw)) if candidate else "the token"


def _percent(share: float) -> str:
    """A probability that no line break tears from its unit."""
    return scales.percent(share).replace(" ", "\u00a0")


def quoted(label: str) -> str:
    """A token's label inside a sentence, where a comma would be lost."""
    return f"“{label}”"


def label_of(distribution: Distribution, id: int) -> str:
    """A candidate by its id, as it is shown."""
    found = _find(distribution, id)
    return _label(found) if found else f"id {id}"


# ---- notes ------------------------------------------------------------------------------------


def xtc(distribution: Distribution, settings: Settings | None) -> str:
    """Whether XTC fired, empty where it is off or not known."""
    if settings is None or settings.temp == 0 or settings.xtc_probability == 0:
        return ""
    often = f"{settings.xtc_probability:.0%} of the steps"
    left = distribution.others + len(distribution.candidates)
    for stage in distribution.stages:
        if stage.name == "xtc":
            cut = left - stage.kept
            if not cut:
                return "XTC fired, but fewer than two tokens are above its threshold: it cut none."
            mass = _percent(stage.removed_mass)
            return f"XTC fired (as on {often}): it cut the {cut} likeliest, {mass} of what was left."
        left = stage.kept
    return f"XTC did not fire here: its own draw lets it on {often}."


def penalised(
    candidate: Candidate,
    earlier: Sequence[int],
    items: Sequence[Item],
    boundary: int,
    settings: Settings | None,
) -> str:
    """Which earlier occurrences a penalty holds against a token; empty where there are none."""
    if not earlier:
        return ""
    places = [_place(position, items, boundary) for position in earlier]
    return f"{_label(candidate)} is penalised{_by(settings)}: it stands {', '.join(places)}."


def _by(settings: Settings | None) -> str:
    if settings is None:
        return ""
    on = [name for name in PENALTIES if getattr(settings, f"{name}_penalty")]
    return f" ({', '.join(on)})" if on else ""


def _place(position: int, items: Sequence[Item], boundary: int) -> str:
    before = items[position - 1] if 0 < position <= len(items) else None
    after = (
        f" after {quoted(token_label(before.text, before.raw))}" if before is not None and before.text else ""
    )
    if position < boundary:
        return f"in the prompt{after}"
    return f"at step {position - boundary + 1}{after}"
