"""The effect of a direction with each strength, for an export."""

from __future__ import annotations

from engine.protocol import StrengthsSwept
from inspector.documents.parts import ExportPart, looked_at
from inspector.documents.steering import document, heading

STEERED_PART = ExportPart(
    "steering",
    looked_at(
        StrengthsSwept, lambda read, place: f"steered-{place}", heading, lambda read, path: document(read)
    ),
)
