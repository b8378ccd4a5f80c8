"""`inspector generate` as a person runs it: a process of its own, the bundled model, real pipes and signals."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.protocol import DraftRound, LogitsRow, Prefilled, Step
from engine.recording import load
from inspector.cli import main as cli
from inspector.cli.writers.generation import PlainText
from inspector.cli.writers.json_lines import JsonLines
from tests import synthetic
from tests.inspector.cli.scripted import Events, Run, finish, of_kind, start, text_writer
from tests.zoo import CONFIGS

STORY = ["-p", "Once upon a time", "--ignore-chat-template"]


def test_sixty_tokens_of_a_story() -> None:
    code, events, err = finish(start("generate", *STORY, "--temp", "0", "--max-tokens", "60", "--jsonl"))
    assert (code, err) == (0, "")
    steps, end = of_kind(events, Step), events[-1]
    assert len(steps) == end["steps"] == 60 or end["reason"] == "eos"
    assert end["text"].startswith(", there was a little")
    assert end["text"] == "".join(step.text for step in steps)
    assert all(len(step.choice.candidates) == 20 for step in steps)
    assert all(step.origin == "greedy" and step.rank == 1 for step in steps)
    assert [step.kv.offset for step in steps] == list(range(5, 65))
    assert all(step.ms.total >= step.ms.forward > 0 for step in steps)
    assert [step.choice for step in steps[1:]] == [step.next for step in steps[:-1]]
    [prompt] = of_kind(events, Prefilled)
    assert "".join(token.text for token in prompt.tokens) == "Once upon a time"


@pytest.mark.slow  # test_same_text holds this for one seed, in the screen too
def test_the_same_seed_tells_the_same_story() -> None:
    flags = [*STORY, "--max-tokens", "12", "--temp", "1", "--jsonl", "--candidates", "1"]
    told = [finish(start("generate", *flags, "--seed", seed))[1][-1]["text"] for seed in ("5", "5", "6")]
    assert told[0] == told[1] != told[2]


@pytest.mark.slow
def test_it_imports_no_screen() -> None:
    code = (
        "import sys; from inspector.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or 'textual' in sys.modules or 'inspector.app' in sys.modules)"
    )
    argv = ["generate", *STORY, "--max-tokens", "2", "--temp", "0"]
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, ", there\n")
    assert "finished    length: 2 tokens" in done.stderr


def test_a_stop_string_ends_it() -> None:
    code, events, _ = finish(start("generate", *STORY, "--temp", "0", "--stop", "little girl", "--jsonl"))
    end = events[-1]
    assert (code, end["reason"], end["detail"]) == (0, "stop", "little girl")
    assert end["text"] == ", there was a "


def test_a_reader_that_has_enough() -> None:
    process = start("generate", *STORY, "--max-tokens", "400", "--jsonl")
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["event"] == "LoadSettings"
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.wide(1)
@pytest.mark.parametrize("phase", ["loading", "PrefillChunk", "Step"])
def test_ctrl_c(phase: str) -> None:
    words = ["-p", "word " * 490 if phase == "PrefillChunk" else "Once", "--prefill-step-size", "4"]
    if phase == "loading" and sys.platform != "linux":
        pytest.skip("that a program imports MLX is seen in its /proc/PID/maps")
    process = start(
        "generate", *words, "--ignore-chat-template", "--max-tokens", "500", "--min-tokens", "500", "--jsonl"
    )
    assert process.stdout is not None
    seen = b""
    while phase != "loading" and f'"event":"{phase}"'.encode() not in seen:
        seen = process.stdout.readline()
    if phase == "loading":
        _wait_for_python(process.pid)
    process.send_signal(signal.SIGINT)
    code, events, err = finish(process)
    assert (code, err) == (130, "")
    assert (events[-1]["event"], events[-1]["reason"]) == ("Summary", "cancelled")


def _wait_for_python(pid: int) -> None:
    """Wait until the process has begun to import MLX: a signal while Python itself starts is not ours to answer."""
    maps = Path(f"/proc/{pid}/maps")
    while maps.exists() and "libmlx" not in maps.read_text():
        os.sched_yield()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("none", "No such directory"),
        ("config.json", "has no config.json"),
        ("tokenizer.json", "has no tokenizer"),
        ("model.safetensors", "has no weights"),
        ("truncated", "damaged or cut short"),
    ],
)
def test_a_model_that_cannot_be_loaded(
    broken: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from engine import pocket
    from inspector.cli.main import main

    model = tmp_path / "model"
    if broken != "none":
        model.mkdir()
        for name in {"config.json", "tokenizer.json", "model.safetensors"} - {broken}:
            (model / name).symlink_to(pocket.directory() / name)
    if broken == "truncated":
        whole = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").unlink()
        (model / "model.safetensors").write_bytes(whole[:1_000_000])
    code = main(["generate", "--model", str(model), *STORY, "--jsonl"])
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert err.startswith("inspector: error: ")


@pytest.mark.slow
def test_sixty_starts_and_quits() -> None:
    for turn in range(60):
        limits = "--min-tokens", "400", "--max-tokens", "400"
        process = start("generate", "-p", "word " * 40, "--ignore-chat-template", *limits, "--jsonl")
        if turn % 2:
            assert process.stdout is not None
            for _ in range(turn % 20):
                process.stdout.readline()
            process.send_signal(signal.SIGINT)
        else:
            _wait_for_python(process.pid)
            process.send_signal(signal.SIGINT)
        code, events, err = finish(process)
        assert (code, err) == (130, "")
        assert events[-1]["reason"] == "cancelled"


def test_the_writer_is_the_one_asked_for() -> None:
    assert isinstance(text_writer(Run({}).request, io.StringIO(), None), JsonLines)
    assert isinstance(text_writer(Run({}, jsonl=False).request, io.StringIO(), None), PlainText)


# ---- as a recording ---------------------------------------------------------------------------


def test_a_recording_of_it_has_every_row_where_that_was_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plain, rows = tmp_path / "plain.trace", tmp_path / "rows.trace.zst"
    flags = ["generate", *STORY, "--max-tokens", "4", "--seed", "1"]
    assert cli.main([*flags, "-o", str(plain)]) == 0
    text = capsys.readouterr().out
    assert cli.main([*flags, "-o", str(rows), "--record-logits"]) == 0
    assert capsys.readouterr().out == text
    told = [entry.value for entry in load(rows).entries]
    steps = [value for value in told if isinstance(value, Step)]
    assert [value.node for value in told if isinstance(value, LogitsRow)] == [
        steps[0].parent,
        *(step.node for step in steps),
    ]
    assert [step.id for step in steps] == [
        entry.value.id for entry in load(plain).entries if isinstance(entry.value, Step)
    ]
    assert not any(isinstance(entry.value, LogitsRow) for entry in load(plain).entries)
    assert cli.main([*flags, "-o", str(rows)]) == 2
    assert "rows.trace.zst already exists" in capsys.readouterr().err


def test_rows_without_a_recording_are_said_to_have_no_effect(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", *STORY, "--max-tokens", "1", "--record-logits"]) == 0
    assert "--record-logits has no effect without a recording: give -o RECORDING." in capsys.readouterr().err


def test_a_draft_changes_the_time_and_not_the_text(
    capsys: pytest.CaptureFixture[str], events: Events
) -> None:
    flags = [*STORY, "--max-tokens", "24", "--temp", "1", "--seed", "3", "--candidates", "3"]
    assert cli.main(["generate", *flags]) == 0
    plain = capsys.readouterr().out
    assert cli.main(["generate", *flags, "--draft", "lookup"]) == 0
    told = capsys.readouterr()
    assert told.out == plain
    for name in ("draft       lookup, 3 tokens a draft", "rounds", "accepted", "a token", "speed"):
        assert name in told.err
    found = events("generate", *flags, "--draft-model", "pocket", "--num-draft-tokens", "2", "--jsonl")
    rounds, end = of_kind(found, DraftRound), found[-1]
    assert end["text"] == plain.rstrip("\n")
    assert sum(each.taken for each in rounds) == end["speculation"]["taken"] == 24 - 9
    assert end["speculation"]["rounds"] == len(rounds)
    assert {draft.fate for each in rounds for draft in each.drafts} <= {"accepted", "unseen"}


def test_a_draft_that_is_refused_leaves_standard_output_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = synthetic.write(tmp_path / "draft", {**CONFIGS["llama"], "vocab_size": 4000})
    assert cli.main(["generate", *STORY, "--draft-model", str(draft)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "The draft model has other tokens" in printed.err


def test_a_draft_needs_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", *STORY, "--draft", "lookup", "--no-kv-cache"]) == 2
    assert "Open the model without --no-kv-cache" in capsys.readouterr().err


@pytest.mark.slow
def test_two_ranks_write_what_one_process_writes() -> None:
    args = [*STORY, "--max-tokens", "8", "--temp", "0"]
    one, two = (start("generate", *args, *more).communicate(timeout=200) for more in ((), ("--ranks", "2")))
    assert one[0] == two[0]
    process = start("generate", *args, "--ranks", "2", "--shard", "pipeline")
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out) == (2, b"")
    assert err.count(b"\n") == 1
    assert b"divides a model of type llama by tensor, not by pipeline" in err
