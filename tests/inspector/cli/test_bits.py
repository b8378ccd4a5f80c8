"""`inspector bits`: its tables, its JSON lines, and the mix that it writes, which mlx_lm converts to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlx_lm import convert

from inspector.cli.main import main
from tests.zoo import Zoo

TEXT = "Once upon a time, there was a little girl named Lily. She loved to play with her toys in the park."


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of 15 layers."""
    return str(Zoo(tmp_path_factory.mktemp("zoo")).path("llama"))


def events(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_mix_is_what_mlx_lm_makes_of_it(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "plan.json", tmp_path / "mixed"
    given = ["bits", tiny, "--bits", "3", "-p", TEXT, "--share", "0.3", "-o", str(file), "--json"]
    assert main(given) == 0
    found = events(capsys.readouterr().out)
    assert [each["event"] for each in found] == ["model", *["layer"] * 15, *["mix"] * 9, "bits"]
    assert (found[-1]["complete"], found[-1]["notes"]) == (True, [])
    assert -1 <= found[-1]["spearman"] <= 1
    assert not any("nats" in name for each in found for name in each)
    mixes = [each for each in found if each["event"] == "mix" and each["share"] == 0.3]
    mix = min(mixes, key=lambda each: each["kl_bits"][0])
    assert len(mixes) == 2
    plan = json.loads(file.read_text())
    assert {path for path, each in plan.items() if isinstance(each, dict)} == set(mix["high"]) != set()
    convert(
        tiny, str(folder), quantize=True, q_bits=plan["bits"], q_group_size=plan["group_size"],
        quant_predicate=lambda path, _: plan.get(path, True),
    )  # fmt: skip
    assert json.loads((folder / "config.json").read_text())["quantization"] == plan
    capsys.readouterr()
    assert main(["diff", tiny, str(folder), "-p", TEXT, "--json"]) == 0
    figures = events(capsys.readouterr().out)[-1]
    assert figures["kl_bits"]["mean"] == pytest.approx(mix["kl_bits"], rel=1e-2)
    assert figures["same_top"][0] == pytest.approx(mix["same_top"], abs=0.05)


def test_the_tables(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bits", tiny, "-p", TEXT]) == 0
    out, err = capsys.readouterr()
    layers, mixes = out.split("\n\n")
    head, names, *rows, more, correlation = layers.splitlines()
    assert head == "Each layer alone in 4 bits, those that cost most per parameter first"
    assert names.split() == ["layer", "parameters", "KL,", "bits", "same", "top", "mlx_lm's", "rank"]
    assert len(rows) == 12
    assert len({line.index("±") for line in rows}) == 1
    assert more == "and 3 more, which --jsonl has"
    assert correlation.startswith("Spearman's correlation with mlx_lm's sensitivities: ")

    assert mixes.splitlines()[0] == "All layers in 4 bits, some in 6"
    assert "readings    23 of the text, about 1 s left" in err


def test_what_a_family_decides_is_part_of_the_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The routers of gpt-oss have 8 bits."""
    folder = str(Zoo(tmp_path).path("gpt-oss"))
    assert main(["bits", folder, "-p", TEXT, "-o", str(tmp_path / "plan.json")]) == 0
    assert "2 layers keep the bits that the model's family" in capsys.readouterr().out
    plan = json.loads((tmp_path / "plan.json").read_text())
    routers = {path: each for path, each in plan.items() if path.endswith("router")}
    assert list(routers.values()) == [{"group_size": 64, "bits": 8}] * 2


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["-p", TEXT, "--high-bits", "4"], "4 bits are not more than 4. Give more bits"),
        (["-p", TEXT, "--share", "25"], "--share: must be a number from 0 to 1, not '25'"),
        (["-p", TEXT, "--model", "pocket"], "The model was named twice. Leave --model out."),
        (["-p", TEXT, "-o", "there.json"], "there.json already exists."),
        (["-t", "-", "-t", "-"], "Standard input can be read only once."),
        (["-p", TEXT, "--bits", "9"], "can't be quantized to 9 bits"),
    ],
)
def test_what_means_nothing_is_refused(
    tiny: str, flags: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.json").write_text("{}")
    assert main(["bits", tiny, *flags]) == 2
    assert told in capsys.readouterr().err
    assert (tmp_path / "there.json").read_text() == "{}"
