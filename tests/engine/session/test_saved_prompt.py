"""A KV cache that mlx_lm saved is gone on from: ids, logprobs and KV are those of a fresh prefill."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import load_prompt_cache, make_prompt_cache, save_prompt_cache

from engine.errors import Cancelled, PromptError
from engine.model.load import Loaded
from engine.protocol import NO_OPTIONS, ChatOptions, Message, Prefill, Prefilled
from engine.session import conversation
from engine.session.session import Session
from engine.session.uncached import open_session
from engine.settings import Settings
from engine.tree import prompt_chunks
from tests.engine.session.test_equality import Spy
from tests.zoo import Zoo

CACHED = "Once upon a time, there was a little girl named Lily. She had a red ball and a big dog. "
REST = "One day they went"
STEPS = 6
CASES: dict[str, dict[str, Any]] = {
    "pocket": {},
    "pocket file": {"dtype": "file"},
    "llama": {},
    "llama:bfloat16": {},
    "gemma3": {},
    "gpt-oss": {},
    "mamba2": {},
    "lfm2": {},
    "qwen3-next": {},
    "deepseek-v2": {},
    "phi3 window": {"max_kv_size": 24},
    "phi3 wide window": {"max_kv_size": 4000},
    "llama kv8": {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0},
    "llama kv4": {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0},
    "pocket kv4": {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0},
}


def fill(loaded: Loaded, ids: list[int], caches: list[Any], steps: int = 0, model: Any = None) -> list[int]:
    """mlx_lm's own loop, as cache_prompt and generate call it."""
    settings = loaded.settings
    found = generate_step(
        mx.array(ids),
        model or loaded.model,
        max_tokens=steps,
        prompt_cache=caches,
        kv_bits=settings.kv_bits,
        kv_group_size=settings.kv_group_size,
        quantized_kv_start=settings.quantized_kv_start,
    )
    return [int(token) for token, _ in found]


def save(loaded: Loaded, ids: list[int], path: Path) -> Path:
    caches = make_prompt_cache(loaded.model, loaded.settings.max_kv_size)
    fill(loaded, ids, caches)
    save_prompt_cache(str(path), caches, {"model": "some/model", "tokenizer_config": "{}"})
    return path


def cached_ids(session: Session) -> list[int]:
    """What mlx_lm.cache_prompt reads: through the template, where the model has one."""
    tokens = session.tokens
    if not tokens.has_chat_template:
        return session.encode(CACHED)
    return session.encode(tokens.chat((Message("user", CACHED),), NO_OPTIONS, opened=True), bare=True)


def command(path: Path, text: str = REST, cached: str = CACHED, **more: Any) -> Prefill:
    return Prefill(text, more.pop("chat", False), cache_file=str(path), cached_text=cached, **more)


def run(session: Session, given: Prefill) -> list[Any]:
    return list(conversation.prompt(session, given, lambda: False))


def numbers(caches: list[Any], tokens: int) -> list[np.ndarray]:
    """The arrays of some caches; of those that grow, the columns that hold tokens."""
    found = []
    for cache in caches:
        for _, value in tree_flatten(cache.state):
            if isinstance(value, mx.array):
                grown = type(cache).__name__ in ("KVCache", "QuantizedKVCache")
                found.append(np.array((value[:, :, :tokens] if grown else value).astype(mx.float32)))
    return found


@pytest.mark.wide(2)
@pytest.mark.parametrize("case", CASES)
def test_ids_logprobs_and_kv_are_those_of_a_fresh_prefill(zoo: Zoo, tmp_path: Path, case: str) -> None:
    loaded = zoo.load(case.partition(" ")[0], **CASES[case])
    session = open_session(loaded, Settings())
    before, after = cached_ids(session), session.encode(REST)
    path = save(loaded, before, tmp_path / "cache.safetensors")
    cached, opened, *_, prefilled = run(session, command(path))
    assert [token.id for token in cached.tokens] == before
    assert [token.id for token in opened.tokens] == after
    assert (opened.parent, opened.held, cached.new_tree, opened.new_tree) == (
        cached.tokens[-1].node,
        len(before),
        True,
        False,
    )
    assert "cache file" in cached.notes[0]
    assert isinstance(prefilled, Prefilled)
    assert prefilled.kept == len(before)

    # KV: that of a fresh prefill of both, each in the chunks in which it ran, bit for bit
    fresh = session.runner.fresh(2048)
    fresh.forward_path(before, prompt_chunks(len(before)))
    fresh.forward_path([*before, *after], ((0, len(before) - 1), (len(before), len(before) + len(after) - 1)))
    pairs = zip(
        *(numbers(caches, fresh.kv.offset) for caches in (session.kv.caches, fresh.kv.caches)), strict=True
    )
    assert all(np.array_equal(ours, other) for ours, other in pairs)
    # ids and logits: those with which mlx_lm goes on from the file, bit for bit
    spy = Spy(loaded.model)
    tokens = fill(loaded, after, load_prompt_cache(str(path)), STEPS, spy)
    for token, row in zip(tokens, spy.rows[1:], strict=False):
        assert np.array_equal(session.logits, np.array(row))
        assert session.step().id == token
    assert session.verify().same_order
    assert session.verify().largest_difference <= session.verify().rounding


def test_a_model_without_a_template_has_raw_text_in_the_file(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = zoo.load("llama")
    monkeypatch.setattr(loaded.tokens, "has_chat_template", False)
    session = open_session(loaded, Settings())
    path = save(loaded, loaded.tokens.encode(CACHED), tmp_path / "c.safetensors")
    cached, opened, *_ = run(session, command(path, chat=True))
    assert (cached.text, opened.text, cached.chat, opened.chat) == (CACHED, REST, False, False)
    assert session.tree.tokens(session.node) == [*loaded.tokens.encode(CACHED), *loaded.tokens.encode(REST)]


def test_the_live_cache_is_the_files_own(zoo: Zoo, tmp_path: Path) -> None:
    """A number of the file that rounding could explain is gone on from, and is told."""
    loaded = zoo.load("llama")
    session = open_session(loaded, Settings())
    caches = make_prompt_cache(loaded.model)
    fill(loaded, cached_ids(session), caches)
    keys = np.array(caches[1].keys)
    keys[0, 0, 3, 0] += 1e-4
    caches[1].keys = mx.array(keys)
    save_prompt_cache(str(tmp_path / "c.safetensors"), caches, {"model": "m", "tokenizer_config": "{}"})
    cached, *_ = run(session, command(tmp_path / "c.safetensors"))
    assert float(session.kv.caches[1].keys[0, 0, 3, 0].item()) == keys[0, 0, 3, 0]
    assert "by at most" in cached.notes[0]


def test_a_prompt_beside_others_loses_nothing(zoo: Zoo, tmp_path: Path) -> None:
    loaded = zoo.load("llama")
    session = open_session(loaded, Settings())
    run(session, Prefill("A first prompt", False))
    left = session.step().node
    path = save(loaded, cached_ids(session), tmp_path / "c.safetensors")
    cached, *_ = run(session, command(path))
    assert not cached.new_tree
    end = session.node
    assert session.move(left).recomputed == 0
    assert session.move(end).recomputed == 0
    assert session.verify().largest_difference <= session.verify().rounding


def test_a_chat_goes_on_as_mlx_lm_generate_does(zoo: Zoo, tmp_path: Path) -> None:
    loaded = zoo.load("pocket")
    session, tokens = open_session(loaded, Settings()), loaded.tokens
    whole = tokens._wrapper if hasattr(tokens._wrapper, "apply_chat_template") else None
    messages = [{"role": "user", "content": CACHED}]
    if whole is None:
        from mlx_lm import utils

        from engine import pocket

        whole = utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2])
    begun = whole.apply_chat_template(messages, add_generation_prompt=False, continue_final_message=True)
    path = save(loaded, list(begun), tmp_path / "c.safetensors")
    cached, opened, *_ = run(session, command(path, chat=True, options=ChatOptions('{"x": 1}')))
    assert [token.id for token in cached.tokens] == list(begun)
    text = whole.apply_chat_template(
        [{"role": "user", "content": REST}], tokenize=False, add_generation_prompt=True, x=1
    )
    assert [token.id for token in opened.tokens] == whole.encode(
        text[text.index(REST) :], add_special_tokens=False
    )
    assert opened.messages[0].content == CACHED + REST
    assert opened.chat
    session.step()
    assert conversation.answer(session, opened.options) == tokens.join(session.tree.tail(session.node, 1))


def edit_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])


LIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "is not a prompt cache of mlx_lm"),
    "text": (lambda path: path.write_text("hello " * 100), "is not a prompt cache of mlx_lm"),
    "truncated": (
        lambda path: os.truncate(path, path.stat().st_size - 1000),
        "is not a prompt cache of mlx_lm",
    ),
    "huge header": (
        lambda path: path.write_bytes((1 << 40).to_bytes(8, "little") + b"{}"),
        "is not a prompt cache",
    ),
    "no metadata": (
        lambda path: edit_header(path, lambda header: header.pop("__metadata__")),
        "is not a prompt cache",
    ),
    "other class": (
        lambda path: edit_header(path, lambda header: header["__metadata__"].update({"1.0": "Popen"})),
        "caches of the class Popen, here they are KVCache",
    ),
    "fewer layers": (
        lambda path: edit_header(path, lambda header: header["__metadata__"].pop("1.1")),
        "layers",
    ),
    "missing array": (lambda path: edit_header(path, lambda header: header.pop("0.0")), "lacks arrays"),
    "unknown type": (
        lambda path: edit_header(path, lambda header: header["0.0"].update(dtype="F4096")),
        "is not a prompt cache of mlx_lm",
    ),
    "other shape": (
        lambda path: edit_header(path, lambda header: header["0.0"]["shape"].reverse()),
        "an array of shape",
    ),
    "missing": (lambda path: path.unlink(), "There is no prompt cache file"),
    "directory": (lambda path: (path.unlink(), path.mkdir()), "can't be read: Is a directory"),
    "pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "can't be read: it is a named pipe"),
}


@pytest.mark.wide(4)
@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_is_refused_in_one_line(zoo: Zoo, tmp_path: Path, lie: str) -> None:
    loaded = zoo.load("llama")
    session = open_session(loaded, Settings())
    path = save(loaded, cached_ids(session), tmp_path / "c.safetensors")
    change, said = LIES[lie]
    change(path)
    with pytest.raises(PromptError) as error:
        run(session, command(path))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert (len(session.tree), session.kv.offset) == (1, 0)


def wrong(zoo: Zoo, path: Path, **load: Any) -> str:
    """What is said of a file whose model, settings or prompt is another one."""
    session = open_session(zoo.load(load.pop("model", "llama"), **load), Settings())
    with pytest.raises(PromptError) as error:
        run(session, command(path))
    assert len(session.tree) == 1
    return str(error.value)


def test_another_model_prompt_or_cache_is_refused(zoo: Zoo, tmp_path: Path) -> None:
    loaded = zoo.load("llama")
    ids = cached_ids(open_session(loaded, Settings()))
    path = save(loaded, ids, tmp_path / "c.safetensors")
    assert "made with the model some/model" in wrong(zoo, path, model="pocket")
    assert "here they are" in wrong(zoo, path, model="llama:bfloat16", dtype="file")
    assert "Leave out --kv-bits" in wrong(zoo, path, kv_bits=8, kv_group_size=32, quantized_kv_start=0)
    other = [*ids[:5], ids[5] + 1, *ids[6:]]
    assert "is not the cache of this prompt" in wrong(zoo, save(loaded, other, path))
    assert f"is {len(ids) - 1}, not {len(ids)}" in wrong(zoo, save(loaded, ids[:-1], path))
    packed = zoo.load("llama", kv_bits=4, kv_group_size=32, quantized_kv_start=0)
    assert "Add --kv-bits 4 --kv-group-size 32" in wrong(zoo, save(packed, ids, path))
    ring = zoo.load("phi3", max_kv_size=100)
    ids = cached_ids(open_session(ring, Settings()))
    assert "Add --max-kv-size 100" in wrong(zoo, save(ring, ids, path), model="phi3")


def test_numbers_that_are_none_are_refused(zoo: Zoo, tmp_path: Path) -> None:
    loaded = zoo.load("llama")
    session, caches = open_session(loaded, Settings()), make_prompt_cache(loaded.model)
    fill(loaded, cached_ids(session), caches)
    caches[0].values = caches[0].values * float("nan")
    save_prompt_cache(str(tmp_path / "c.safetensors"), caches, {"model": "m", "tokenizer_config": "{}"})
    with pytest.raises(PromptError, match="is not the cache of this prompt"):
        run(session, command(tmp_path / "c.safetensors"))


def test_what_cannot_be(zoo: Zoo, tmp_path: Path) -> None:
    session = open_session(zoo.load("llama", no_kv_cache=True), Settings())
    with pytest.raises(PromptError, match="without a KV cache"):
        run(session, command(tmp_path / "none"))
    loaded = zoo.load("llama")
    session = open_session(loaded, Settings())
    with pytest.raises(PromptError, match="empty"):
        run(session, command(tmp_path / "none", text=""))
    with pytest.raises(Cancelled):
        list(conversation.prompt(session, command(tmp_path / "none"), lambda: True))
    assert len(session.tree) == 1
