"""The settings of speculative decoding."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import Meta

from engine.errors import SettingsError
from engine.setting import Setting, SettingsStruct

DraftKind = Literal["lookup", "self-4bit", "model"]
"""`lookup`: what followed the last tokens where they stood before; `self-4bit`: the same model, quantized when it is
loaded; `model`: another model of the same vocabulary."""
DRAFT_KINDS: tuple[DraftKind, ...] = get_args(DraftKind)
MOST_DRAFTS = 16
"""Tokens of a draft at most: every one of them makes the forward that verifies it longer."""


class SpeculationSettings(SettingsStruct, frozen=True):
    """The settings of speculative decoding; none of them changes the text."""

    draft: Annotated[DraftKind, Setting("what drafts", says=f"one of {', '.join(DRAFT_KINDS)}")] = "lookup"
    draft_model: str = ""
    """Of `model`: a directory or a hub id, or `pocket`."""
    num_draft_tokens: Annotated[int, Meta(ge=1, le=MOST_DRAFTS), Setting(
        "tokens that are drafted for a round", "draft tokens"
    )] = 3  # fmt: skip
    """As in mlx_lm.generate; fewer where the text ends before."""

    @property
    def name(self) -> str:
        """How a sentence calls the draft."""
        return self.draft_model if self.draft == "model" else self.draft

    def check_together(self, vocabulary: int | None) -> None:
        """See `SettingsStruct`: a model is named if it drafts, and only then."""
        if (self.draft == "model") != bool(self.draft_model.strip()):
            raise SettingsError(
                "draft_model",
                f"a draft of kind {self.draft} {'needs a' if self.draft == 'model' else 'has no'} draft model.",
                "Name a model only with the draft `model`.",
            )
