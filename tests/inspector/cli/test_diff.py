"""`inspector diff`: its flags, its figures and JSON lines, on the bundled model and against itself."""

from __future__ import annotations

import json
import math
import re
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from engine.protocol import LockstepOpened, LockstepRead, LockstepSpan, OpenLockstep
from engine.settings import LoadSettings
from inspector.cli import main as cli
from inspector.cli.flags import parsed
from inspector.cli.subcommands.texts import diff_parser, second_model_from
from inspector.cli.writers.diff import DiffSummary
from tests.inspector.cli.scripted import Events, of_kind

TEXT = "Once upon a time, there was a little girl named Lily. She loved to play."


def against(*argv: str, load: LoadSettings | None = None) -> OpenLockstep | None:
    args = parsed(diff_parser(), argv)
    return second_model_from(args, load or LoadSettings(), args.second)


@pytest.fixture
def events(events: Events) -> Events:
    return partial(events, "diff", "--json")


def spans(found: list[dict[str, Any]]) -> list[LockstepSpan]:
    """The spans of all lines."""
    return [span for read in of_kind(found, LockstepRead) for span in read.spans]


# ---- the gate ---------------------------------------------------------------------------------


@pytest.mark.wide(4)
@pytest.mark.parametrize(
    ("flags", "status", "told"),
    [
        (["--max-kld", "0.5"], 0, "holds"),
        (["--max-kld", "0.0001"], 3, "BROKEN"),
        (["--min-same-top", "1"], 3, "BROKEN"),
        (["--max-ppl-ratio", "1.001"], 4, "within two standard errors: a longer text decides"),
        (["--max-kld", "0.5", "--max-ppl-ratio", "1.001"], 4, "holds"),
        (["--max-kld", "0.0001", "--max-ppl-ratio", "1.001"], 3, "BROKEN"),
    ],
)
def test_the_exit_status_is_the_gate_s(
    flags: list[str], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TEXT + " One day, she went to the park and saw a big dog. The dog was very happy to see her."
    assert cli.main(["diff", "pocket", "--bits", "3", "-p", text, *flags]) == status
    gate = capsys.readouterr().out.partition("====== Gate ======")[2]
    assert told in gate
    assert len(gate.strip().splitlines()) == len(flags) // 2


def test_a_figure_that_there_is_not_holds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "pocket", "pocket", "-p", "a", "--max-kld", "1"]) == 2
    assert "no figure: can't be decided" in capsys.readouterr().out


def test_the_last_event_has_the_verdicts_and_the_worst_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        "diff",
        "pocket",
        "--bits",
        "3",
        "-p",
        TEXT,
        "--json",
        "--max-kld",
        "0.0001",
        "--max-ppl-ratio",
        "9",
    ]
    assert cli.main(given) == 3
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    last = convert(found[-1], DiffSummary)
    kld, ratio = last.gate
    assert (kld.name, kld.bound, kld.verdict) == ("mean KLD", 0.0001, "broken")
    assert last.kl_bits is not None
    assert kld.value == last.kl_bits.mean
    assert (ratio.verdict, ratio.value) == ("holds", last.ratio)
    assert last.worst[0] == max(spans(found)[1:], key=lambda each: each.kl_bits or 0.0)


def test_several_texts_are_one_comparison(events: Events, tmp_path: Path) -> None:
    texts = [TEXT, "Tom saw a big red ball. He was very happy."]
    flags = []
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
        flags += ["--text", str(tmp_path / f"{number}.txt")]
    apart = [
        span.kl_bits or 0.0
        for text in texts
        for span in spans(events("pocket", "--bits", "4", "-p", text))[1:]
    ]
    last = events("pocket", "--bits", "4", *flags)[-1]
    assert last["complete"]
    assert last["scored"][0] == len(apart)
    assert last["kl_bits"]["mean"]["value"] == pytest.approx(statistics.fmean(apart))


@pytest.mark.parametrize("flags", [["--max-kld", "-1"], ["--min-same-top", "95"], ["--max-ppl-ratio", "0.9"],
                                   ["--max-kld", "nan"], ["--max-kld", "inf"]])  # fmt: skip
def test_bounds_that_mean_nothing_are_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "pocket", "pocket", "-p", TEXT, *flags]) == 2
    assert re.search(f"{flags[0]}: .* must be a number (from|of at least) ", capsys.readouterr().err)


def test_the_second_model_may_come_after_flags() -> None:
    args = parsed(diff_parser(), ["pocket", "--kv-bits", "8", "other", "-p", "x"])
    assert (args.first, args.second, args.kv_bits) == ("pocket", "other", 8)
    assert parsed(diff_parser(), ["--kv-bits", "8", "pocket"]).second is None


def test_flags_make_the_second_model() -> None:
    plain = LoadSettings()
    assert against("pocket") is None
    assert against("pocket", "pocket") == OpenLockstep(plain)
    assert against("pocket", "--bits", "4") == OpenLockstep(plain, 4, 64)
    assert against("pocket", "some/model", "--bits", "8", "--group-size", "32") == OpenLockstep(
        LoadSettings(model="some/model"), 8, 32
    )
    adapted = LoadSettings(adapter_path="a", kv_bits=8)
    assert against("pocket", "--bits", "4", load=adapted) == OpenLockstep(adapted, 4)
    assert against("pocket", "pocket", load=adapted) == OpenLockstep(LoadSettings(kv_bits=8))
    assert against("pocket", "--adapter", "b", load=adapted) == OpenLockstep(
        LoadSettings(adapter_path="b", kv_bits=8)
    )


def test_equal_models_differ_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "pocket", "pocket", "-p", TEXT]) == 0
    out = capsys.readouterr().out
    assert "Same top p" in out
    assert "differ most" not in out
    assert cli.main(["diff", "pocket", "--bits", "4", "-p", TEXT]) == 0
    (_, listed) = capsys.readouterr().out.split("Where they differ most")
    assert all("KLD" in line for line in listed.splitlines() if "▕" in line)


def test_a_model_against_itself_and_four_bits(events: Events) -> None:
    found = events("pocket", "pocket", "-p", TEXT)
    assert "".join(span.text for span in spans(found)) == TEXT
    assert {span.kl_nats for span in spans(found)[1:]} == {0.0}
    assert (found[-1]["complete"], found[-1]["kl_bits"]["mean"]) == (True, {"value": 0.0, "error": 0.0})
    found = events("pocket", "--bits", "4", "-p", TEXT)
    scored, last = spans(found)[1:], found[-1]
    assert of_kind(found, LockstepOpened)[0].facts.quantization == "4-bit, group 64, affine"
    kl = [span.kl_bits or 0.0 for span in scored]
    assert last["kl_bits"]["mean"]["value"] == pytest.approx(math.fsum(kl) / len(kl))
    assert last["kl_bits"]["max"] == max(kl) > 0
    assert last["logprobs"][1] == pytest.approx(math.fsum(span.other_logprob or 0.0 for span in scored))
    assert scored[0].candidates[0].rank == 1
    assert not any("nats" in name for name in last)


def test_kl_is_in_bits_in_the_table_too(capsys: pytest.CaptureFixture[str], events: Events) -> None:
    given = ("pocket", "--bits", "4", "-p", TEXT)
    last = events(*given)[-1]
    assert cli.main(["diff", *given]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Mean    KLD"))
    assert row.split(": ")[1].split() == [
        f"{last['kl_bits']['mean']['value']:.6f}", "±", f"{last['kl_bits']['mean']['error']:.6f}", "bits",
    ]  # fmt: skip


def test_the_figures_have_the_names_of_llama_cpp(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "pocket", "--bits", "8", "--dtype", "float32", "-p", TEXT]) == 0
    out, err = capsys.readouterr()
    for name in ("Mean PPL(Q) ", "Mean PPL(base) ", "Cor(ln(PPL(Q)), ln(PPL(base)))", "Mean ln(PPL(Q)/PPL(base))",
                 "Mean    KLD", "Maximum KLD", "99.9%   KLD", "99.0%   KLD", "90.0%   KLD", "Median  KLD",
                 "Minimum KLD", "RMS Δp", "Same top p"):  # fmt: skip
        assert f"\n{name}" in out
    assert err.startswith("memory      the first model has 28 MiB, the second needs about 7.89 MiB")
    assert "8-bit, group 64" in err
