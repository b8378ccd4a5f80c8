"""The score of a head for the key with the largest weight, for an export."""

from __future__ import annotations

from engine.protocol import ScoreRead
from inspector.documents.parts import ExportPart, looked_at
from inspector.documents.scores import document, heading

SCORES_PART = ExportPart("scores", looked_at(ScoreRead, "scores", heading, document))
