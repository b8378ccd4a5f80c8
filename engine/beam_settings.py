"""The settings of a beam search."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from engine.setting import Setting, SettingsStruct, settings_of

WIDEST = 10
STEEPEST = 10.0


class BeamSettings(SettingsStruct, frozen=True):
    """The settings of a beam search; the sampler's `min_tokens` applies, too."""

    width: Annotated[int, Meta(ge=1, le=WIDEST), Setting(
        f"Beams that are followed at once, 1 to {WIDEST}; 1 is greedy decoding."
    )] = 4  # fmt: skip
    length_penalty: Annotated[float, Meta(ge=-STEEPEST, le=STEEPEST), Setting(
        "Score = logprob / tokens ** penalty. 0: the sum, 1: the mean, above 1 length helps."
    )] = 1.0  # fmt: skip
    early_stopping: Annotated[bool, Setting(
        "On: stop when as many as the width have finished. Off: not while a live beam may win."
    )] = False  # fmt: skip
    max_tokens: Annotated[int, Meta(ge=1), Setting("Tokens of a hypothesis at most.")] = 100


BEAM_SETTINGS = {each.name: each for each in settings_of(BeamSettings)}
