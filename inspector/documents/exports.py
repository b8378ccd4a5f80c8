"""The export parts of all tools, as in `inspector.views`; for use without a screen."""

from __future__ import annotations

from inspector.documents.attention import ATTENTION_PART
from inspector.documents.attribution import CONTRIBUTIONS_PART
from inspector.documents.beams import BEAMS_PART
from inspector.documents.draws import ODDS_PART
from inspector.documents.experts import EXPERTS_PART
from inspector.documents.gradients import GRADIENTS_PART
from inspector.documents.interventions import SWITCHED_PART
from inspector.documents.lens import LENS_PART
from inspector.documents.merges import MERGES_PART
from inspector.documents.modules import MODULES_PART
from inspector.documents.patching import PATCHED_PART
from inspector.documents.positions import POSITIONS_PART
from inspector.documents.race import RACE_PART
from inspector.documents.scores import SCORES_PART
from inspector.documents.second_model import SECOND_MODEL_PART
from inspector.documents.segments import SEGMENTS_PART
from inspector.documents.steering import STEERED_PART

EXPORTS = (
    BEAMS_PART, SEGMENTS_PART, MERGES_PART, SECOND_MODEL_PART, RACE_PART, ODDS_PART, ATTENTION_PART, SCORES_PART,
    LENS_PART, CONTRIBUTIONS_PART, GRADIENTS_PART, SWITCHED_PART, PATCHED_PART, STEERED_PART, MODULES_PART,
    POSITIONS_PART, EXPERTS_PART,
)  # fmt: skip
