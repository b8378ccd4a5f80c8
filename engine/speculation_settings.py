"""The settings of speculative decoding, and their bounds."""

from __future__ import annotations

from typing import Literal, get_args

from engine.errors import SettingsError
from engine.frozen import frozen

DraftKind = Literal["lookup", "self-4bit", "model"]
"""`lookup`: what followed the last tokens where they stood before; `self-4bit`: the same model, quantized when it is
loaded; `model`: another model of the same vocabulary."""
DRAFT_KINDS: tuple[DraftKind, ...] = get_args(DraftKind)
MOST_DRAFTS = 16
"""Tokens of a draft at most: every one of them makes the forward that verifies it longer."""


@frozen
class SpeculationSettings:
    """The settings of speculative decoding; none of them changes the text."""

    draft: DraftKind = "lookup"
    draft_model: str = ""
    """Of `model`: a directory or a hub id, or `pocket`."""
    num_draft_tokens: int = 3
    """Tokens that are drafted for a round, as in mlx_lm.generate; fewer where the text ends before."""

    @property
    def name(self) -> str:
        """How a sentence calls the draft."""
        return self.draft_model if self.draft == "model" else self.draft


def check_speculation(settings: SpeculationSettings) -> SpeculationSettings:
    """Check every setting.

    Returns:
        The same settings.

    Raises:
        SettingsError: One is out of its range, or the model of a draft is missing, or is named where none is used.
    """
    if settings.draft not in DRAFT_KINDS:
        raise SettingsError("draft", f"draft must be one of {', '.join(DRAFT_KINDS)}, not {settings.draft}.")
    if not 1 <= settings.num_draft_tokens <= MOST_DRAFTS:
        raise SettingsError(
            "num_draft_tokens",
            f"draft tokens must be a whole number from 1 to {MOST_DRAFTS}, not {settings.num_draft_tokens}.",
        )
    if (settings.draft == "model") != bool(settings.draft_model.strip()):
        raise SettingsError(
            "draft_model",
            f"a draft of kind {settings.draft} {'needs a' if settings.draft == 'model' else 'has no'} draft model.",
            "Name a model only with the draft `model`.",
        )
    return settings
