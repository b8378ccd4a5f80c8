"""`inspector train`: its lines, its JSON lines, checkpoints, Ctrl-C and going on, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inspector.cli.main import main
from tests.engine.training.rig import text
from tests.inspector.cli.scripted import Complaint, Events, finish, start


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """A training of a second."""
    (tmp_path / "text.txt").write_text(text())
    sizes = "--layers 1 --width 16 --vocabulary 300 --batch 2x16 --steps 8 --every 4 --seed 3 --save-every 6"
    return ["train", "-t", str(tmp_path / "text.txt"), *sizes.split(), "-p", "the dog"]


def test_the_lines(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*flags, "-o", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    opening, looks = out.split("\n\n")
    assert [line.split()[0] for line in opening.splitlines()] == ["text", "tokenizer", "model", "training"]
    assert opening.startswith("text        text.txt: ")
    lines = looks.splitlines()
    assert [line.split("  ")[0] for line in lines[::2]] == ["step 1", "step 4", "step 8"]
    assert all(" held out " in line and " gradient " in line for line in lines[::2])
    assert all(line.startswith("  the dog") for line in lines[1::2])
    last = tmp_path / "out" / "step-000008"
    assert f"saved       {last}\n" in err
    assert f"inspector --model {last}\n" in err
    assert [each.name for each in sorted((tmp_path / "out").iterdir())] == ["step-000006", "step-000008"]


def test_the_json_lines(flags: list[str], tmp_path: Path, events: Events) -> None:
    found = events(*flags, "-o", str(tmp_path / "out"), "--jsonl")
    assert [each["event"] for each in found] == [
        "TrainingBegun",
        *["TrainedStep"] * 6,
        "CheckpointSaved",
        *["TrainedStep"] * 2,
        "CheckpointSaved",
    ]
    steps = [each for each in found if each["event"] == "TrainedStep"]
    assert [each["step"] for each in steps] == [*range(1, 9)]
    assert len(steps[-1]["norms"]) == len(found[0]["parts"])
    assert steps[-1]["look"]["candidates"][0].keys() == {"id", "text", "prob"}
    assert found[-1]["directory"] == str(tmp_path / "out" / "step-000008")


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_from_which_it_goes_on(
    flags: list[str], tmp_path: Path, events: Events
) -> None:
    whole = [
        each
        for each in events(*flags, "-o", str(tmp_path / "whole"), "--jsonl")
        if each["event"] == "TrainedStep"
    ]
    long = [*flags[: flags.index("--steps")], "--steps", "100000", *flags[flags.index("--steps") + 2 :]]
    process, line = start(*long, "-o", str(tmp_path / "out"), "--save-every", "1000000", "--jsonl"), b""
    assert process.stdout is not None
    while b'"event":"TrainedStep"' not in line:
        line = process.stdout.readline()
    process.send_signal(2)
    code, found, err = finish(process)
    assert (code, err) == (130, "")
    last = found[-1]
    assert last["event"] == "CheckpointSaved"
    assert last["step"] == max(
        each["step"] for each in [json.loads(line), *found] if each["event"] == "TrainedStep"
    )
    more = events("train", "--resume", str(tmp_path / "out"), "--steps", str(last["step"] + 2), "--jsonl")
    assert more[0]["step"] == last["step"]
    assert [each["step"] for each in more if each["event"] == "TrainedStep"] == [
        last["step"] + 1,
        last["step"] + 2,
    ]
    again = events("train", "--resume", str(tmp_path / "whole" / "step-000006"), "--jsonl")
    assert [each["loss"] for each in again if each["event"] == "TrainedStep"] == [
        each["loss"] for each in whole[6:]
    ]


def test_text_that_a_terminal_would_obey_is_made_visible(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = tmp_path / "evil\x1b[31m.txt"
    name.write_text("\x1b]0;title\x07 \x9b31m \u202e " * 3000)
    assert main(["train", "-t", str(name), *flags[3:-1], "\x1b[2J", "-o", str(tmp_path / "o\x1but")]) == 0
    out, err = capsys.readouterr()
    assert not set("\x1b\x07\x9b\u202e") & set(out + err)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--layers", "99"], "--layers: layers must be a whole number from 1 to 12, not 99."),
        (["--width", "20"], "--width: width must be a whole number divisible by 8 from 16 to 256"),
        (["--batch", "8"], "--batch: must be rows x tokens"),
        (["--batch", "0x16"], "--batch: rows must be a whole number from 1 to 64"),
        (["--batch", "2x1000"], "--batch: row tokens must be a whole number from 8 to 256"),
        (["--rate", "nan"], "--rate: rate must be a number above 0"),
        (["--save-every", "0"], "--save-every: must be at least 1"),
        (["-t", "nowhere.txt"], "nowhere.txt can't be read"),
        (["-o", "text.txt"], "text.txt is a file"),
        (["-o", "text.txt/below"], "text.txt/below can't be written: Not a directory"),
        (["-o", "used"], "used has the checkpoints of another training. Continue it with --resume used"),
        (["--resume", "used"], "--text has no effect with --resume"),
    ],
)  # fmt: skip
def test_what_can_t_be_trained_is_one_line(
    more: list[str],
    told: str,
    flags: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    complaint: Complaint,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "used" / "step-000001").mkdir(parents=True)
    output = [] if "-o" in more or "--resume" in more else ["-o", str(tmp_path / "out")]
    assert told in complaint(*flags, *output, *more)


def test_a_training_that_is_over_says_so(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "-o", str(tmp_path / "out")]) == 0
    assert main(["train", "--resume", str(tmp_path / "out")]) == 0
    assert "over        all 8 steps were made; --steps N gives it more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "told"), [("nothing", "There is no checkpoint"), (".", "is not a checkpoint of a")]
)
def test_there_must_be_something_to_go_on_from(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told in complaint("train", "--resume", name)


@pytest.mark.slow
def test_a_checkpoint_opens_as_any_model(flags: list[str], tmp_path: Path, events: Events) -> None:
    assert main([*flags, "-o", str(tmp_path / "out")]) == 0
    folder = str(tmp_path / "out" / "step-000008")
    found: list[dict[str, Any]] = events("generate", "--model", folder, "-p", "the dog", "-m", "3", "--jsonl")
    assert len([each for each in found if each["event"] == "Step"]) == 3
    other = str(tmp_path / "out" / "step-000006")
    compared = events("diff", folder, other, "-p", "the dog saw the cat", "--jsonl")[-1]
    assert compared["kl_bits"]["mean"]["value"] > 0
