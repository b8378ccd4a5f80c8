"""What is read of the inside equals what transformers computed on torch with the same weights: reference.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine.inspection.inside.attention import read_attention
from engine.inspection.inside.capture import capture
from engine.inspection.inside.lens import residual_streams
from tests.engine.inspection.inside.reference_models import RESULTS, TINY, reference_session

BOUND = 1e-4
STORED = json.loads(RESULTS.read_text(encoding="utf-8"))["models"]


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ["pocket", *TINY])
def test_what_is_read_is_what_transformers_computes(tmp_path: Path, name: str) -> None:
    session, stored = reference_session(tmp_path, name), STORED[name]
    assert session.tree.tokens(session.node) == stored["ids"]
    path = session.tree.nodes(session.node)
    for row in stored["attention"]:
        read = read_attention(session, path[row["tokens"] - 1])
        mine = read.layers[row["layer"]].over(row["head"], row["tokens"])
        assert np.abs(np.array(mine) - row["weights"]).max() < BOUND, row
    states = np.array(residual_streams(capture(session, session.node, tokens=len(path))))
    for row in stored["hidden"]:
        mine, truth = states[row["layer"], row["place"], : len(row["values"])], np.array(row["values"])
        assert np.abs(mine - truth).max() < BOUND * max(1.0, np.abs(truth).max()), row


@pytest.mark.parametrize("name", ["pocket", *TINY])
def test_the_whole_comparison_was_within_the_bound(name: str) -> None:
    worst = STORED[name]["worst"]
    assert all(number <= BOUND for numbers in worst.values() for number in numbers)
    depth = len(worst["attention_of_a_step"])
    assert len(worst["hidden"]) == depth + 1
    assert {row["layer"] for row in STORED[name]["attention"]} == set(range(depth))
    assert {row["layer"] for row in STORED[name]["hidden"]} == set(range(depth + 1))
