"""The contributions to a token's logit, for an export."""

from __future__ import annotations

from engine.protocol import AttributionRead
from inspector.documents.attribution import document, heading
from inspector.main.evidence import ExportPart, looked_at

CONTRIBUTIONS_PART = ExportPart(
    "contributions",
    looked_at(AttributionRead, "contributions", heading, lambda read, path: document(read), explains=True),
)
