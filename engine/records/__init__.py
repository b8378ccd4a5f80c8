"""The output of the engine: frozen dataclasses of plain values, made once and never changed.

Everything the screen shows, the headless command prints and a trace keeps is one of these. Units are in the
names: `ms` milliseconds, `bytes` bytes, `bits` base-2, `logprob` natural logarithm, `tps` tokens a second.
"""

from __future__ import annotations

from engine.records.answer import Answer, addressed
from engine.records.batch import (
    BatchCompared,
    BatchEnded,
    BatchOpened,
    BatchStep,
    BatchTotals,
    DrawnToken,
    DrawsCounted,
    LaneCompared,
    LaneDifference,
    LaneEnd,
    LaneEnded,
    LaneKV,
    LaneOpened,
    LanesAdded,
    LanesJoined,
    LanesPrefilled,
    LaneStarted,
    LaneToken,
)
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
from engine.records.grammar import ExpectedBeginning, GrammarExpected
from engine.records.inside.attribution import AttributedToken, AttributionRead, Contribution, WriterKind
from engine.records.inside.heads import HeadScore, HeadsScored, TriangleRead
from engine.records.inside.interventions import (
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
from engine.records.inside.modules import (
    ExpertFacts,
    ExpertLayer,
    ExpertsRead,
    HeadFacts,
    LayerBlock,
    LayerSum,
    MlpFacts,
    ModelModules,
    ModulePart,
    NormFacts,
    RopeFacts,
    StateArray,
    WeightArray,
)
from engine.records.inside.positions import (
    PositionChange,
    PositionTried,
    PositionUse,
    PositionWay,
    Rotation,
    TokenShift,
)
from engine.records.inside.reading import (
    AttentionLayer,
    AttentionRead,
    CaptureFacts,
    Check,
    LensCell,
    LensColumn,
    LensRead,
    LensToken,
)
from engine.records.kv import KVGroup, KVReading, Memory
from engine.records.lockstep import (
    Alignment,
    LockstepClosed,
    LockstepEnded,
    LockstepMemory,
    LockstepOpened,
    LockstepRead,
    LockstepSpan,
    WayPart,
    WaysParted,
)
from engine.records.logits import LogitsRow, ModelVocabulary, Packed, RowType
from engine.records.marks import BeatReached, Deleted, Marked, QuestionAsked, Undeleted, Undone
from engine.records.model import CacheKind, Loading, ModelFacts, SpecialToken
from engine.records.moves import Moved, Verified
from engine.records.ranks import RankFacts, RanksLoaded, RanksMeasured, RankTime, Sharding
from engine.records.restores import Restored, Restoring
from engine.records.sampler import Explained, Recalled, StageColumn, WhatIfAnswered, WhatIfStep
from engine.records.speculation import (
    AcceptanceRates,
    DraftFate,
    DraftLoading,
    DraftReady,
    DraftRound,
    DraftToken,
    RoundStage,
    SpeculationVerified,
    TakenInstead,
)
from engine.records.steps import (
    Candidate,
    Distribution,
    GrammarReading,
    Origin,
    PrefillChunk,
    Prefilled,
    PromptOpened,
    PromptReadings,
    PromptToken,
    Resampled,
    StageReading,
    Step,
    StepTimes,
)
from engine.records.sweeps import Figure, Machine, SweepName, SweepPoint, Swept

__all__ = [
    "NO_OPTIONS",
    "AcceptanceRates",
    "ActivationsPatched",
    "AheadLine",
    "Alignment",
    "Answer",
    "AttentionLayer",
    "AttentionRead",
    "AttributedToken",
    "AttributionRead",
    "BatchCompared",
    "BatchEnded",
    "BatchOpened",
    "BatchStep",
    "BatchTotals",
    "Beam",
    "BeamEnded",
    "BeamOpened",
    "BeamStep",
    "BeatReached",
    "BreakpointHit",
    "CacheKind",
    "Candidate",
    "CandidateChange",
    "CaptureFacts",
    "ChatOptions",
    "Check",
    "Contribution",
    "Deleted",
    "Distribution",
    "DraftFate",
    "DraftLoading",
    "DraftReady",
    "DraftRound",
    "DraftToken",
    "DrawnToken",
    "DrawsCounted",
    "Ended",
    "ExpectedBeginning",
    "ExpertFacts",
    "ExpertLayer",
    "ExpertsRead",
    "Explained",
    "Failure",
    "Figure",
    "FinishReason",
    "Finished",
    "Floats",
    "GrammarExpected",
    "GrammarReading",
    "HeadFacts",
    "HeadScore",
    "HeadsScored",
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
    "LaneCompared",
    "LaneDifference",
    "LaneEnd",
    "LaneEnded",
    "LaneKV",
    "LaneOpened",
    "LaneStarted",
    "LaneToken",
    "LanesAdded",
    "LanesJoined",
    "LanesPrefilled",
    "LayerBlock",
    "LayerSum",
    "LensCell",
    "LensColumn",
    "LensRead",
    "LensToken",
    "Loading",
    "LockstepClosed",
    "LockstepEnded",
    "LockstepMemory",
    "LockstepOpened",
    "LockstepRead",
    "LockstepSpan",
    "LogitsRow",
    "LookedAhead",
    "Machine",
    "Marked",
    "Measuring",
    "Memory",
    "Message",
    "MlpFacts",
    "ModelFacts",
    "ModelModules",
    "ModelVocabulary",
    "ModulePart",
    "Moved",
    "NormFacts",
    "Origin",
    "Packed",
    "PatchColumn",
    "PatchKind",
    "Piece",
    "PositionChange",
    "PositionTried",
    "PositionUse",
    "PositionWay",
    "PrefillChunk",
    "Prefilled",
    "ProfilePart",
    "Profiled",
    "PromptOpened",
    "PromptPreview",
    "PromptReadings",
    "PromptToken",
    "QuestionAsked",
    "RaceEnded",
    "RaceOpened",
    "RaceStep",
    "RankFacts",
    "RankTime",
    "RanksLoaded",
    "RanksMeasured",
    "Recalled",
    "Record",
    "Resampled",
    "Restored",
    "Restoring",
    "Role",
    "RooflineMeasured",
    "RopeFacts",
    "Rotation",
    "RoundStage",
    "RowType",
    "Scope",
    "Sharding",
    "SpecialToken",
    "SpeculationVerified",
    "StageColumn",
    "StageReading",
    "StateArray",
    "Step",
    "StepTimes",
    "SweepName",
    "SweepPoint",
    "Swept",
    "SweptUnit",
    "TakenInstead",
    "TokenShift",
    "Tokenized",
    "TokensFound",
    "TriangleRead",
    "TurnDiffers",
    "Undeleted",
    "Undone",
    "Verified",
    "WayPart",
    "WaysParted",
    "WeightArray",
    "WhatIfAnswered",
    "WhatIfStep",
    "Work",
    "WriterKind",
    "addressed",
    "conversation",
]

Record = (
    ModelFacts
    | RanksLoaded
    | Loading
    | PromptOpened
    | TurnDiffers
    | PrefillChunk
    | Prefilled
    | PromptReadings
    | Step
    | Resampled
    | Restoring
    | Restored
    | Explained
    | WhatIfAnswered
    | Recalled
    | LogitsRow
    | ModelVocabulary
    | Moved
    | Verified
    | BeamOpened
    | BeamStep
    | BeamEnded
    | BatchOpened
    | LanesAdded
    | LanesJoined
    | LanesPrefilled
    | LaneStarted
    | BatchStep
    | LaneEnded
    | BatchEnded
    | LaneCompared
    | BatchCompared
    | DrawsCounted
    | LookedAhead
    | TokensFound
    | GrammarExpected
    | Tokenized
    | PromptPreview
    | BreakpointHit
    | Swept
    | Marked
    | Measuring
    | Deleted
    | Undeleted
    | Undone
    | BeatReached
    | QuestionAsked
    | RaceOpened
    | RaceStep
    | RaceEnded
    | Profiled
    | RooflineMeasured
    | KVCompared
    | RanksMeasured
    | AttentionRead
    | LensRead
    | TriangleRead
    | HeadsScored
    | AttributionRead
    | ModelModules
    | ExpertsRead
    | PositionTried
    | Intervened
    | HeadsSwept
    | InterventionsHeld
    | ActivationsPatched
    | DraftLoading
    | DraftReady
    | DraftRound
    | SpeculationVerified
    | LockstepMemory
    | LockstepOpened
    | LockstepClosed
    | LockstepRead
    | LockstepEnded
    | WaysParted
    | Finished
    | Ended
    | Failure
)
"""Everything that the engine thread emits, and a person's marks on the tree."""
