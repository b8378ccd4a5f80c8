"""The output of the engine: frozen dataclasses of plain values, made once and never changed.

Everything the screen shows, the headless command prints and a trace keeps is one of these. Units are in the
names: `ms` milliseconds, `bytes` bytes, `bits` base-2, `logprob` natural logarithm, `tps` tokens a second.
"""

from __future__ import annotations

from engine.records.beams import Beam, BeamEnded, BeamOpened, BeamStep, Hypothesis
from engine.records.chat import NO_OPTIONS, ChatOptions, Message, TurnDiffers, conversation
from engine.records.costs import (
    KVCompared,
    KVCost,
    Measuring,
    Profiled,
    ProfilePart,
    RaceEnded,
    RaceOpened,
    RaceStep,
    Role,
    RooflineMeasured,
    Work,
)
from engine.records.ends import Ended, Failure, Finished, FinishReason
from engine.records.explore import (
    AheadLine,
    BreakpointHit,
    LookedAhead,
    Piece,
    PromptPreview,
    Tokenized,
    TokensFound,
)
from engine.records.floats import Floats
from engine.records.inside import (
    AttentionLayer,
    AttentionRead,
    CaptureFacts,
    Check,
    LensCell,
    LensColumn,
    LensRead,
    LensToken,
)
from engine.records.interventions import (
    ActivationsPatched,
    CandidateChange,
    HeadsSwept,
    Intervened,
    Intervention,
    InterventionKind,
    InterventionsHeld,
    PatchColumn,
    PatchKind,
    Scope,
    SweptUnit,
)
from engine.records.kv import KVGroup, KVReading, Memory
from engine.records.marks import Deleted, Marked, Undeleted, Undone
from engine.records.model import CacheKind, Loading, ModelFacts, SpecialToken
from engine.records.moves import Moved, Verified
from engine.records.restores import Restored, Restoring
from engine.records.sampler import Explained, Recalled, StageColumn, WhatIfAnswered, WhatIfStep
from engine.records.steps import (
    Candidate,
    Distribution,
    Origin,
    PrefillChunk,
    Prefilled,
    PromptOpened,
    PromptToken,
    Resampled,
    StageReading,
    Step,
    StepTimes,
)
from engine.records.sweeps import Figure, Machine, SweepName, SweepPoint, Swept

__all__ = [
    "NO_OPTIONS",
    "ActivationsPatched",
    "AheadLine",
    "AttentionLayer",
    "AttentionRead",
    "Beam",
    "BeamEnded",
    "BeamOpened",
    "BeamStep",
    "BreakpointHit",
    "CacheKind",
    "Candidate",
    "CandidateChange",
    "CaptureFacts",
    "ChatOptions",
    "Check",
    "Deleted",
    "Distribution",
    "Ended",
    "Explained",
    "Failure",
    "Figure",
    "FinishReason",
    "Finished",
    "Floats",
    "HeadsSwept",
    "Hypothesis",
    "Intervened",
    "Intervention",
    "InterventionKind",
    "InterventionsHeld",
    "KVCompared",
    "KVCost",
    "KVGroup",
    "KVReading",
    "LensCell",
    "LensColumn",
    "LensRead",
    "LensToken",
    "Loading",
    "LookedAhead",
    "Machine",
    "Marked",
    "Measuring",
    "Memory",
    "Message",
    "ModelFacts",
    "Moved",
    "Origin",
    "PatchColumn",
    "PatchKind",
    "Piece",
    "PrefillChunk",
    "Prefilled",
    "ProfilePart",
    "Profiled",
    "PromptOpened",
    "PromptPreview",
    "PromptToken",
    "RaceEnded",
    "RaceOpened",
    "RaceStep",
    "Recalled",
    "Record",
    "Resampled",
    "Restored",
    "Restoring",
    "Role",
    "RooflineMeasured",
    "Scope",
    "SpecialToken",
    "StageColumn",
    "StageReading",
    "Step",
    "StepTimes",
    "SweepName",
    "SweepPoint",
    "Swept",
    "SweptUnit",
    "Tokenized",
    "TokensFound",
    "TurnDiffers",
    "Undeleted",
    "Undone",
    "Verified",
    "WhatIfAnswered",
    "WhatIfStep",
    "Work",
    "conversation",
]

Record = (
    ModelFacts
    | Loading
    | PromptOpened
    | TurnDiffers
    | PrefillChunk
    | Prefilled
    | Step
    | Resampled
    | Restoring
    | Restored
    | Explained
    | WhatIfAnswered
    | Recalled
    | Moved
    | Verified
    | BeamOpened
    | BeamStep
    | BeamEnded
    | LookedAhead
    | TokensFound
    | Tokenized
    | PromptPreview
    | BreakpointHit
    | Swept
    | Marked
    | Measuring
    | Deleted
    | Undeleted
    | Undone
    | RaceOpened
    | RaceStep
    | RaceEnded
    | Profiled
    | RooflineMeasured
    | KVCompared
    | AttentionRead
    | LensRead
    | Intervened
    | HeadsSwept
    | InterventionsHeld
    | ActivationsPatched
    | Finished
    | Ended
    | Failure
)
"""Everything that the engine thread emits, and a person's marks on the tree."""
