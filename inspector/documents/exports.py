"""The parts that all tools contribute to an export, as in the registry: for where there is no screen."""

from __future__ import annotations

from inspector.documents.attribution import CONTRIBUTIONS_PART
from inspector.documents.beams import BEAMS_PART
from inspector.documents.draws import ODDS_PART
from inspector.documents.lens import LENS_PART
from inspector.documents.race import RACE_PART
from inspector.tools.attention.evidence import ATTENTION_PART
from inspector.tools.gradients.evidence import GRADIENTS_PART
from inspector.tools.interventions.evidence import PATCHED_PART, SWITCHED_PART
from inspector.tools.lockstep.evidence import LOCKSTEP_PART
from inspector.tools.merges.evidence import MERGES_PART
from inspector.tools.modules.lines import EXPERTS_PART, MODULES_PART
from inspector.tools.positions.evidence import POSITIONS_PART
from inspector.tools.scores.evidence import SCORES_PART
from inspector.tools.segments.evidence import SEGMENTS_PART
from inspector.tools.steering.evidence import STEERED_PART

EXPORTS = (
    BEAMS_PART, SEGMENTS_PART, MERGES_PART, LOCKSTEP_PART, RACE_PART, ODDS_PART, ATTENTION_PART, SCORES_PART, LENS_PART,
    CONTRIBUTIONS_PART, GRADIENTS_PART, SWITCHED_PART, PATCHED_PART, STEERED_PART, POSITIONS_PART, MODULES_PART,
    EXPERTS_PART,
)  # fmt: skip
