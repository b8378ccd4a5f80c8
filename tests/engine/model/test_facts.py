"""The fingerprint of a model's files, and its special tokens."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import mlx.nn as nn
import pytest
from mlx_lm import utils
from msgspec.structs import replace
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

from engine import pocket
from engine.memory import Room
from engine.model import facts as module
from engine.model.facts import (
    BLOCK,
    BLOCKS,
    WHOLE_LIMIT,
    facts_of,
    fingerprint,
    generation_defaults,
    special_tokens,
)
from engine.model.load import load
from engine.model.tokens import Tokens, plain_tokenizer
from engine.protocol import SpecialToken
from engine.settings import LoadSettings


def test_the_room_for_another_model_is_known_where_the_free_bytes_are() -> None:
    facts = load(LoadSettings()).facts
    assert replace(facts, free_bytes=None).room is None
    assert replace(facts, free_bytes=7).room == Room(7, facts.memory_of)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.copytree(pocket.directory(), tmp_path / "model")
    return tmp_path / "model"


def edit(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


def test_the_same_model_elsewhere_has_the_same(model: Path) -> None:
    known = fingerprint(pocket.directory())
    assert len(known) == 32
    assert fingerprint(model) == known
    config = json.loads((model / "config.json").read_text())
    config |= {"_name_or_path": "elsewhere", "transformers_version": "99"}
    (model / "config.json").write_text(json.dumps(config, indent=8))
    (model / "README.md").write_text("other")
    assert fingerprint(model) == known


@pytest.mark.parametrize("place", [0, 20, 5000, 7_000_000, -1])
def test_one_bit_of_the_weights_makes_another(model: Path, place: int) -> None:
    known, weights = fingerprint(model), model / "model.safetensors"
    edit(weights, place % weights.stat().st_size)
    assert fingerprint(model) not in (known, "")


def test_another_config_or_adapter_or_name_makes_another(model: Path, tmp_path: Path) -> None:
    found = {fingerprint(model)}
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"rope_theta": 1.0}))
    found.add(fingerprint(model))
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapters.safetensors").write_bytes(b"\0" * 100)
    found.add(fingerprint(model, tmp_path))
    edit(tmp_path / "adapters.safetensors", 50)
    found.add(fingerprint(model, tmp_path))
    (model / "model.safetensors").rename(model / "model-00001-of-00001.safetensors")
    found.add(fingerprint(model))
    assert len(found) == 5
    assert "" not in found


def test_what_can_not_be_read_has_none(model: Path, tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "none") == ""
    assert fingerprint(model, tmp_path / "none") == ""
    (model / "config.json").write_text("{")
    assert fingerprint(model) == ""
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").unlink()
    assert fingerprint(model) == ""


def test_eight_gigabytes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights, head = tmp_path / "model.safetensors", json.dumps({"__metadata__": {"a": "b" * 9000}}).encode()
    with weights.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 * 2**30)
    begun = time.perf_counter()
    known = fingerprint(tmp_path)
    assert time.perf_counter() - begun < 1
    for place in (8000, 8 + len(head), 8 * 2**30 - 1):  # the header, the first block and the last
        edit(weights, place)
        assert fingerprint(tmp_path) != known
        edit(weights, place)
    assert fingerprint(tmp_path) == known
    assert BLOCKS * BLOCK < WHOLE_LIMIT


def test_a_header_that_lies_about_its_length_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(b"\xff" * 8)
        file.truncate(WHOLE_LIMIT + 10)
    assert len(fingerprint(tmp_path)) == 32


def test_a_loaded_model_tells_its_fingerprint() -> None:
    assert load(LoadSettings()).facts.fingerprint == fingerprint(pocket.directory())


class Tables(nn.Module):
    """A model of embeddings alone.

    Args:
        rows: The number of rows of each.
    """

    def __init__(self, rows: dict[str, int]) -> None:
        super().__init__()
        for name, count in rows.items():
            self[name] = nn.Embedding(count, 8)


@pytest.mark.parametrize(
    ("rows", "vocabulary"),
    [
        ({"tokens": 128, "wpe": 512}, 128),  # more rows than tokens; and positions are no tokens
        ({"ngrams": 300, "tokens": 100}, 100),
        ({}, 100),
    ],
)
def test_an_id_may_be_as_large_as_the_table_of_the_tokens_has_rows(
    rows: dict[str, int], vocabulary: int
) -> None:
    assert facts_of(Tables(rows), {"vocab_size": 100}, Path("made up")).vocabulary == vocabulary


# ---- special tokens ----------------------------------------------------------------------------

TEMPLATE = "{{ bos_token }}{% for m in messages %}<|header|>{{ m.role }}{% endfor %}"


def made(path: Path, special: list[str], **config: Any) -> Path:
    """A directory with a byte-level tokenizer that has some special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("plain_added", special=False)])
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 3}))
    return path


def test_the_bundled_model_has_its_three_with_either_tokenizer() -> None:
    expected = (
        SpecialToken(0, "<|endoftext|>", ("EOS", "PAD")),
        SpecialToken(1, "<|im_start|>"),
        SpecialToken(2, "<|im_end|>", ("EOS",)),
    )
    config = json.loads((pocket.directory() / "config.json").read_text())
    plain = plain_tokenizer(pocket.directory(), config)
    for wrapper in (plain, utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2])):
        tokens = Tokens(wrapper, 4096)
        assert special_tokens(tokens) == (expected, 3)
        assert tokens.template.startswith("{% for message in messages %}{{'<|im_start|>'")


def test_roles_are_those_of_the_files_and_an_added_word_is_none_of_them(tmp_path: Path) -> None:
    names = ["<|begin|>", "<|end|>", "<|eot|>", "<|header|>", "<|pad|>"]
    roles = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
    path = made(tmp_path, names, chat_template=TEMPLATE, **roles)
    tokens = Tokens(utils.load_tokenizer(path, eos_token_ids=[3]), 100)
    assert special_tokens(tokens) == (
        (
            SpecialToken(1, "<|begin|>", ("BOS",)),
            SpecialToken(2, "<|end|>", ("EOS",)),
            SpecialToken(3, "<|eot|>", ("EOS",)),
            SpecialToken(4, "<|header|>"),
            SpecialToken(5, "<|pad|>", ("PAD",)),
        ),
        5,
    )
    assert tokens.template == TEMPLATE
    theirs = AutoTokenizer.from_pretrained(path)
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (1, 2, 5)


def test_of_very_many_those_in_use_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*(f"<|reserved_{number}|>" for number in range(40)), "<|header|>", "<|end|>"]
    path = made(tmp_path, names, chat_template=TEMPLATE, eos_token="<|end|>")
    monkeypatch.setattr(module, "MOST_SPECIAL", 10)
    kept, count = special_tokens(Tokens(utils.load_tokenizer(path, eos_token_ids=[42]), 100))
    assert count == 42
    assert [each.id for each in kept] == [1, 2, 3, 4, 5, 6, 7, 8, 41, 42]


def test_a_model_without_template_or_special_tokens_has_none(tmp_path: Path) -> None:
    tokens = Tokens(utils.load_tokenizer(made(tmp_path, []), eos_token_ids=[]), 100)
    assert special_tokens(tokens) == ((), 0)
    assert tokens.template == ""


# ---- defaults of the generation ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, {}),
        ({"eos_token_id": 2, "do_sample": False}, {}),
        ({"do_sample": True, "temperature": 0.6, "top_k": 20}, {"temp": 0.6, "top_k": 20}),
        ({"do_sample": True}, {"temp": 1.0}),
        ({"repetition_penalty": 1.0, "do_sample": False}, {}),
        ({"temperature": 0, "top_p": 0.9}, {"temp": 0, "top_p": 0.9}),
        ({"top_p": 0.9}, {"temp": 1.0, "top_p": 0.9}),
        ({"temperature": 0.6}, {"temp": 0.6}),
        ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, {"temp": 0.0}),
        ({"do_sample": False, "repetition_penalty": 1.1}, {"temp": 0.0, "repetition_penalty": 1.1}),
        ({"repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({"temperature": 0.7, "repetition_penalty": 1.0}, {"temp": 0.7}),
        ({"temperature": 0.7, "top_k": -1}, {"temp": 0.7}),
        ({"temperature": None, "top_k": 20.0}, {"temp": 1.0, "top_k": 20}),
    ],
)  # fmt: skip
def test_the_sampling_settings_of_a_generation_config(
    tmp_path: Path, table: dict[str, object], expected: dict[str, float]
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(table))
    sampling, raw_prompts, notes = generation_defaults(tmp_path)
    assert (dict(sampling), notes, raw_prompts) == (expected, (), False)


@pytest.mark.parametrize(
    "value", [-1, 1e9, "hot", True, [1], {"a": 1}, float("nan"), float("inf"), 10**400], ids=str
)
def test_a_sampling_setting_that_cannot_be_is_left_out_and_named(tmp_path: Path, value: object) -> None:
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"temperature": value, "use_chat_template": False})
    )
    sampling, raw_prompts, (note,) = generation_defaults(tmp_path)
    assert sampling == ()
    assert raw_prompts
    assert note.startswith("generation_config.json asks for temperature ")
    assert note.endswith("which is not used: it must be 0, or a number from 0.001 to 100.")


def test_without_a_generation_config_nothing_is_the_models_own(tmp_path: Path) -> None:
    assert generation_defaults(tmp_path) == ((), False, ())
    (tmp_path / "generation_config.json").write_text("{no JSON")
    assert generation_defaults(tmp_path) == ((), False, ())
