"""What commands answer over ranks, what ranks cost at rest, and what is measured of them."""

from __future__ import annotations

import sys

import pytest

from engine import protocol
from engine.protocol import COMMANDS
from tests.engine.ranks.programs import Program

REFUSED = {
    "ReadAttention", "ReadTriangle", "ScoreHeads", "ReadLens", "ReadModules", "ReadExperts", "TryPosition", "Attribute",
    "ReadGradients",
    "ReadScore",
    "Intervene", "SweepHeads", "PatchActivations", "PatchPairs", "HoldInterventions", "StartBatch", "AdvanceBatch",
    "AddLanes", "RemoveLane", "CompareBatch", "DrawMany", "RepeatReply", "LoadDraft",
    "TakeRound", "RunRounds",
    "VerifySpeculation", "OpenLockstep", "CloseLockstep", "DiffText", "ReadLockstep", "FollowSecond",
    "ExplainSecond", "PartWays", "Profile",
    "MeasureRoofline", "CompareKV", "ReadMachine", "CaptureMetal", "MakeDirection", "SweepStrengths",
}  # fmt: skip
"""They look into the arrays of one process, or make caches of their own of it."""
WALKED = {
    "Load", "Configure", "Prefill", "AddTurn", "GoOnPrefill", "Restore", "TakeStep", "Choose", "Take", "Insert",
    "MoveTo", "Reroll", "Recall", "Verify", "Run", "LookAhead", "SearchBeams", "GoOnBeams", "Race", "MeasureRanks",
}  # fmt: skip
"""They go through `Runner` and `KV` alone: the walks and the program of these tests run them or the same methods."""
NO_FORWARD = {
    "Cancel", "CheckToolCall", "Tokenize", "PreviewPrompt", "CutText", "FindTokens", "ReadGrammar", "ReadLogits",
    "Explain", "WhatIf", "TakeApart", "BeginTraining", "ResumeTraining", "Train", "SaveCheckpoint",
}  # fmt: skip
"""They need no model, have one of their own, or answer from kept logits."""


def test_every_command_is_refused_or_works_over_ranks() -> None:
    assert {kind for kind, cls in COMMANDS.items() if not cls.over_ranks} == REFUSED
    assert sorted(COMMANDS) == sorted([*REFUSED, *WALKED, *NO_FORWARD])
    assert not protocol.Inside.over_ranks


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processor time is read in /proc")
def test_commands_over_two_ranks() -> None:
    program = Program("commanded")
    (found,) = program.lines()
    assert found["opened"] == ["tensor", [8, 8]]
    assert found["idle"] < 0.02
    measured = found["measured"]
    assert measured["ranks"] == 2
    assert measured["tokens"] == 19
    assert measured["kv"]
    assert measured["slowest"]
    assert measured["memory"] > 2**20
    assert measured["least_ms"] > 0
    assert set(found["refused"]) == REFUSED
    assert set(found["refused"].values()) == {
        "This needs a model that one process computes; here several do. Load the model in one process, without "
        "--ranks and --hostfile."
    }
    assert "has 2 ranks, and can't have others" in found["three"]
    assert found["no ranks"].startswith("One process computes this model")
    for what in ("step", "race", "again", "alone", "attention", "back"):
        assert found[what] == ""
    assert found["closed"]
    assert program.left() == []
