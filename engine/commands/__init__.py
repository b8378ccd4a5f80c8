"""The commands of an engine: frozen values of plain fields, with an id; their classes declare how to treat them.

The engine answers every command but `Cancel` with records. The last of them is one `records.Ended` with the command's
id, after a `records.Failure` with the same id where the command failed.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.commands.batch import (
    AddLanes,
    AdvanceBatch,
    CompareBatch,
    DrawMany,
    LanePrompt,
    RemoveLane,
    StartBatch,
)
from engine.commands.command import Cancel, Command
from engine.commands.decoding import GoOnBeams, LookAhead, Run, SearchBeams
from engine.commands.heads import TRIANGLE_TOKENS, ReadTriangle, ScoreHeads
from engine.commands.inside import (
    Attribute,
    Inside,
    ReadAttention,
    ReadExperts,
    ReadLens,
    ReadModules,
    TryPosition,
)
from engine.commands.inspection import (
    CutText,
    Explain,
    FindTokens,
    PreviewPrompt,
    ReadGrammar,
    ReadLogits,
    Tokenize,
    WhatIf,
)
from engine.commands.interventions import HoldInterventions, Intervene, PatchActivations, SweepHeads
from engine.commands.lockstep import (
    CloseLockstep,
    DiffText,
    FollowSecond,
    OpenLockstep,
    PartWays,
    ReadLockstep,
)
from engine.commands.measuring import CompareKV, Measure, MeasureRanks, MeasureRoofline, Profile, Race, Sweep
from engine.commands.session import (
    AddTurn,
    Choose,
    Configure,
    GoOnPrefill,
    Grown,
    Insert,
    Load,
    MoveTo,
    Prefill,
    Recall,
    Reroll,
    Restore,
    Take,
    TakeStep,
    Verify,
)
from engine.commands.speculation import LoadDraft, RunRounds, TakeRound, VerifySpeculation

__all__ = [
    "KINDS",
    "TRIANGLE_TOKENS",
    "AddLanes",
    "AddTurn",
    "AdvanceBatch",
    "Attribute",
    "Cancel",
    "Choose",
    "CloseLockstep",
    "Command",
    "CompareBatch",
    "CompareKV",
    "Configure",
    "CutText",
    "DiffText",
    "DrawMany",
    "Explain",
    "FindTokens",
    "FollowSecond",
    "GoOnBeams",
    "GoOnPrefill",
    "Grown",
    "HoldInterventions",
    "Insert",
    "Inside",
    "Intervene",
    "LanePrompt",
    "Load",
    "LoadDraft",
    "LookAhead",
    "Measure",
    "MeasureRanks",
    "MeasureRoofline",
    "MoveTo",
    "OpenLockstep",
    "PartWays",
    "PatchActivations",
    "Prefill",
    "PreviewPrompt",
    "Profile",
    "Race",
    "ReadAttention",
    "ReadExperts",
    "ReadGrammar",
    "ReadLens",
    "ReadLockstep",
    "ReadLogits",
    "ReadModules",
    "ReadTriangle",
    "Recall",
    "RemoveLane",
    "Reroll",
    "Restore",
    "Run",
    "RunRounds",
    "ScoreHeads",
    "SearchBeams",
    "StartBatch",
    "Sweep",
    "SweepHeads",
    "Take",
    "TakeRound",
    "TakeStep",
    "Tokenize",
    "TryPosition",
    "Verify",
    "VerifySpeculation",
    "WhatIf",
]


def _kinds() -> dict[str, type[Command]]:
    """The classes above without the bases. `__subclasses__` would have each twice, see `__init_subclass__`."""
    classes = [cls for cls in globals().values() if isinstance(cls, type) and issubclass(cls, Command)]
    return {cls.kind: cls for cls in classes if cls not in (Command, Inside, Measure)}


KINDS: Mapping[str, type[Command]] = _kinds()
"""Every command by its kind."""
