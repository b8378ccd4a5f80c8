"""Steering without a screen: a direction made of pairs, saved, and added for a view or for a completion."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from engine.protocol import DirectionMade, Intervened, MakeDirection, StrengthsSwept
from engine.recording import load
from engine.settings import LoadSettings
from inspector.cli import main as cli
from inspector.config.directions import read_direction, write_direction
from inspector.state.timeline import Timeline
from tests.engine.unthreaded import Unthreaded
from tests.inspector.cli.scripted import Complaint, Events, as_record

PROMPT = ("--ignore-chat-template", "-p", "Once upon a time there was a girl named Lily. She felt very")
PAIRS = """Lily was very happy. She smiled and | Lily was very sad. She cried and
Tom was so happy that he laughed and | Tom was so sad that he wept and
They were happy and glad. They | They were sad and upset. They
"""


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.txt"
    path.write_text(PAIRS, "utf-8")
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("directions") / "happy.safetensors"
    happy, sad = zip(*(line.split(" | ") for line in PAIRS.splitlines()), strict=True)
    made = Unthreaded(LoadSettings()).one(MakeDirection(3, happy, sad, name="happy-sad"), DirectionMade)
    write_direction(path, made.direction)
    return path


@pytest.mark.slow
def test_a_direction_of_pairs_has_its_curve_with_the_band(
    events: Events, pairs: Path, saved: Path, tmp_path: Path
) -> None:
    inside, own = partial(events, "show", "--jsonl", *PROMPT), tmp_path / "own.safetensors"
    lines = inside(
        "--pairs", str(pairs), "--layer", "4", "--token", " happy", "--against", " sad", "--scope", "context",
        "--save-direction", str(own),
    )  # fmt: skip
    made, swept = as_record(lines[-2], DirectionMade), as_record(lines[-1], StrengthsSwept)
    assert (made.direction.name, made.direction.layer) == ("happy-sad", 3)
    assert (swept.text, swept.other_text) == (" happy", " sad")
    two = swept.at(2)
    assert two is not None
    assert two.change == pytest.approx(8.65, abs=0.05)
    assert two.kl_bits == pytest.approx(5.52, abs=0.05)
    assert (two.change_low, two.change_high) == pytest.approx((-0.66, 4.54), abs=0.05)
    assert (swept.steered, swept.random) == (14, 32)
    assert made.facts.failed is swept.facts.failed is None
    assert read_direction(own).digest == read_direction(saved).digest == made.direction.digest
    tried = as_record(inside("--steer", f"{saved}:2", "--scope", "context", "--from", "p9")[-1], Intervened)
    assert (tried.begin, tried.interventions[0].scale) == (8, 2.0)
    assert tried.kl_bits == pytest.approx(5.20, abs=0.02)


def test_the_tables_say_what_is_beyond_chance(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["show", *PROMPT, "--steer", f"{saved}:2", "--token", " happy", "--against", " sad"]) == 0
    out = capsys.readouterr().out
    assert "L4 +happy-sad x1 #" in out
    assert "this token (1 of the path's positions)" in out
    line = next(line for line in out.splitlines() if line.split()[:1] == ["x2"])
    assert "+4.64" in line
    assert "+2.50 *" in line
    assert "L4 +happy-sad x2 #" in out
    assert out.lower().count("verified") == 2


def test_a_completion_is_steered_from_its_first_token(events: Events, saved: Path, tmp_path: Path) -> None:
    own = ("generate", "--jsonl", *PROMPT, "--temp", "0", "--max-tokens", "12")
    plain = events(*own)[-1]["text"]
    none, much = (events(*own, "--steer", f"{saved}:{strength}")[-1]["text"] for strength in ("0", "2"))
    assert plain.startswith(none)
    assert len(none) > len(plain) / 2
    assert much.startswith(" curious and")
    trace = tmp_path / "x.trace"
    again = events(*own, "--steer", f"{saved}:2", "-o", str(trace))
    assert again[-1]["text"] == much
    timeline = Timeline()
    for entry in load(trace).entries:
        timeline.apply(entry.value)  # type: ignore[arg-type]
    assert [each.label for each in timeline.under] == [f"L4 +happy-sad x2 #{read_direction(saved).digest}"]


def test_the_token_of_the_prompt_that_ran_again_is_no_new_one(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["generate", *PROMPT, "--temp", "0", "-m", "4", "--steer", f"{saved}:2"]) == 0
    told = "length: 4 tokens, 3 of them new: the prompt's last one was recomputed"
    assert told in capsys.readouterr().err


def test_what_can_not_be_is_said_in_one_line(
    complaint: Complaint, pairs: Path, saved: Path, tmp_path: Path
) -> None:
    inside = ("show", *PROMPT)
    assert "There is no direction to steer by." in complaint(*inside, "steering")
    assert "--layer has no effect" in complaint(*inside, "--steer", str(saved), "--layer", "2")
    assert "--save-direction has no effect" in complaint(*inside, "--save-direction", "x")
    assert "--from has no effect" in complaint(*inside, "--off", "L2", "--from", "3")
    taken = complaint(*inside, "--pairs", str(pairs), "--save-direction", str(saved))
    assert "already exists" in taken
    assert "There is no L99" in complaint(*inside, "--pairs", str(pairs), "--layer", "99")
    assert "There is no L99" in complaint("generate", *PROMPT, "--steer", f"{saved}:2@99")
    other = tmp_path / "other.safetensors"
    made = read_direction(saved)
    write_direction(other, type(made)(made.name, 3, made.vector, "llama", "b2:another"))
    refused = complaint("generate", *PROMPT, "--steer", str(other))
    assert "was made with another model (llama)" in refused
    assert "a grammar would have to allow" in complaint(
        "generate", *PROMPT, "--steer", str(saved), "--regex", "a+"
    )
    assert "can't be read" in complaint("generate", *PROMPT, "--steer", str(tmp_path / "none"))
