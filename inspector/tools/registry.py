"""The tools that come with the program, a line each: keys, panels, help and finder follow this order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import OpenLockstep
from inspector.main.tool import Tool
from inspector.tools.attention.tool import ATTENTION
from inspector.tools.attribution.tool import ATTRIBUTION
from inspector.tools.batch.tool import BATCH
from inspector.tools.beams.tool import BEAMS
from inspector.tools.breakpoints.tool import BREAKPOINTS
from inspector.tools.compare.tool import COMPARE
from inspector.tools.copy.tool import COPY
from inspector.tools.costs.tool import COSTS
from inspector.tools.draws.tool import DRAWS
from inspector.tools.export.tool import EXPORT
from inspector.tools.find.tool import FIND
from inspector.tools.gradients.tool import GRADIENTS
from inspector.tools.grammar.tool import GRAMMAR
from inspector.tools.interventions.tool import INTERVENTIONS
from inspector.tools.lens.tool import LENS
from inspector.tools.lessons.tool import LESSONS, lessons
from inspector.tools.lockstep.tool import LOCKSTEP, lockstep
from inspector.tools.lookahead.tool import LOOK_AHEAD
from inspector.tools.marks.tool import MARKS
from inspector.tools.merges.tool import MERGES
from inspector.tools.modules.tool import MODULES
from inspector.tools.positions.tool import POSITIONS
from inspector.tools.race.tool import RACE
from inspector.tools.ranks.tool import RANKS
from inspector.tools.recordings.tool import RECORDINGS
from inspector.tools.sampler.tool import SAMPLER
from inspector.tools.scores.tool import SCORES
from inspector.tools.segments.tool import SEGMENTS
from inspector.tools.served.tool import SERVED, served
from inspector.tools.speculation.tool import SPECULATION
from inspector.tools.steering.tool import STEERING, steered
from inspector.tools.training.tool import TRAINING
from inspector.tools.tree.tool import TREE
from inspector.tools.turns.tool import TURNS
from inspector.tools.typed_text.tool import TYPED_TEXT

if TYPE_CHECKING:
    from inspector.config.directions import Steering
    from inspector.lessons.catalogue import Listed
    from inspector.lessons.courses import CoursePlace
    from inspector.served.opening import OpenedRequest

TOOLS: tuple[Tool, ...] = (
    BREAKPOINTS,
    FIND,
    TYPED_TEXT,
    TURNS,
    COMPARE,
    BEAMS,
    LOOK_AHEAD,
    SEGMENTS,
    MERGES,
    SPECULATION,
    LOCKSTEP,
    RACE,
    BATCH,
    DRAWS,
    COSTS,
    RANKS,
    ATTENTION,
    SCORES,
    LENS,
    ATTRIBUTION,
    GRADIENTS,
    INTERVENTIONS,
    STEERING,
    POSITIONS,
    MODULES,
    SAMPLER,
    SERVED,
    TREE,
    GRAMMAR,
    MARKS,
    COPY,
    EXPORT,
    RECORDINGS,
    LESSONS,
    TRAINING,
)

FOLLOWING = tuple(tool for tool in TOOLS if tool not in (BREAKPOINTS, EXPORT, RECORDINGS, LESSONS, TRAINING))
"""The tools of a program that follows a session of somebody else: none that writes, or opens anything else."""


def with_lesson(
    listed: Listed, present: bool = False, beat: int | None = None, course: CoursePlace | None = None
) -> tuple[Tool, ...]:
    """The tools of a program that begins with a lesson.

    Args:
        listed: The lesson.
        present: Whether to present it.
        beat: The one to begin with, from 0; None for where it was left, or for the first one before a class.
        course: The course that the lesson is taken in; None for none.
    """
    return tuple(lessons(listed, present, beat, course) if tool is LESSONS else tool for tool in TOOLS)


def with_against(against: OpenLockstep) -> tuple[Tool, ...]:
    """The tools of a program that begins with a second model.

    Args:
        against: The second model.
    """
    return tuple(lockstep(against) if tool is LOCKSTEP else tool for tool in TOOLS)


def with_steering(tools: tuple[Tool, ...], how: Steering) -> tuple[Tool, ...]:
    """The tools of a program whose first completion is steered.

    Args:
        tools: All of them.
        how: By what.
    """
    return tuple(steered(how) if tool is STEERING else tool for tool in tools)


def with_request(opened: OpenedRequest) -> tuple[Tool, ...]:
    """The tools of a program that begins with a request of a server.

    Args:
        opened: The request.
    """
    return tuple(served(opened) if tool is SERVED else tool for tool in TOOLS)
