"""The share of each token in a logit, for an export."""

from __future__ import annotations

from engine.protocol import GradientsRead
from inspector.documents.gradients import document, heading
from inspector.documents.parts import ExportPart, looked_at

GRADIENTS_PART = ExportPart(
    "gradients", looked_at(GradientsRead, "gradients", heading, document, explains=True)
)
