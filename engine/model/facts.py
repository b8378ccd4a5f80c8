"""The facts about a model: its modules and arrays, what its caches support, its special tokens, its fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from msgspec.structs import replace

from engine.cache.kinds import group_size_problem, kind_of
from engine.cache.live import KV
from engine.errors import EngineError, LoadError, SettingsError
from engine.files import CONFIG_LIMIT, open_regular, read_regular, typed
from engine.model import weights
from engine.model.directory import read_object
from engine.model.forward import Compute, MakeKV
from engine.model.layers import Tail
from engine.model.tokens import Tokens
from engine.protocol import ModelFacts, SpecialToken
from engine.settings import BY_NAME, LoadSettings

LEARNED_POSITIONS = ("wpe", "embed_positions", "position_embeddings", "position_embedding")


def facts_of(model: Any, config: dict[str, Any], path: Path) -> ModelFacts:
    """The facts of a model whose weights may be lazy, before several processes divide it.

    Args:
        model: As mlx_lm loads it.
        config: Its `config.json`.
        path: Its directory.
    """
    hidden = first_of(config, "hidden_size", "n_embd", "d_model")
    heads = first_of(config, "num_attention_heads", "n_head")
    window = first_of(config, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
    names = [name.split(".")[-1] for name, _ in model.named_modules()]
    snapshot = path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--")
    try:
        layers = len(model.layers)
    except (AttributeError, TypeError):
        layers = int(first_of(config, "num_hidden_layers", "n_layer", "n_layers") or 0)
    return ModelFacts(
        name=path.parent.parent.name.removeprefix("models--").replace("--", "/") if snapshot else path.name,
        path=str(path),
        family=str(config.get("model_type")),
        layers=layers,
        heads=heads,
        kv_heads=first_of(config, "num_key_value_heads") or heads,
        head_size=first_of(config, "head_dim") or (hidden // heads if hidden and heads else None),
        hidden_size=hidden,
        vocabulary=_embedding_rows(model, config),
        parameters=weights.parameters_of(model),
        weight_bytes=weights.bytes_of(model),
        dtype=weights.dtype_of(model),
        quantization=weights.quantization_of(model),
        context_window=None if window is None else int(window),
        hard_window=any(name in LEARNED_POSITIONS for name in names),
        cache_kinds=(),
        kv_bytes_per_token=None,
        eos_ids=(),
        has_chat_template=False,
        backend="cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu",
        load_ms=0.0,
        memory_of=weights.memory_of_device(),
        experts=weights.experts_of(model),
    )


def _embedding_rows(model: Any, config: dict[str, Any]) -> int:
    """Number of ids that may reach the model: an id beyond ends the process.

    Of several tables, as of n-grams beside the tokens, the one that is as large as the vocabulary.
    """
    vocabulary = int(first_of(config, "vocab_size") or 0)
    tables = (nn.Embedding, nn.QuantizedEmbedding)
    named = (
        (name.split(".")[-1], module) for name, module in model.named_modules() if isinstance(module, tables)
    )
    rows = [int(module.weight.shape[0]) for name, module in named if name not in LEARNED_POSITIONS]
    return vocabulary if vocabulary in rows or not rows else max(rows)


def first_of(config: dict[str, Any], *names: str) -> Any:
    """The first of some fields that the config, or the text part of a multimodal one, has."""
    tables = (config, config.get("text_config") or {})
    return next((table[name] for table in tables for name in names if table.get(name) is not None), None)


# ---- defaults of the generation ---------------------------------------------------------------

_SAMPLING = {"temperature": "temp", "repetition_penalty": "repetition_penalty"} | {
    name: name for name in ("top_p", "top_k", "min_p")
}
"""Fields of generation_config.json, and our names of them."""
_OFF = {"top_k": (-1, 0), "repetition_penalty": (1, 0)}
"""Values with which other programs turn a setting off, and what it then is here."""


def generation_defaults(path: Path) -> tuple[tuple[tuple[str, float], ...], bool, tuple[str, ...]]:
    """Read a model's generation_config.json, if it has one.

    As in transformers `do_sample: false` is greedy decoding; as in vLLM a temperature needs no `do_sample`. A filter
    without a temperature is used at temperature 1.

    Args:
        path: Directory of the model, whose files were checked.

    Returns:
        Settings by their names in `engine.settings.Settings`; True if prompts are raw text, though there may be a chat
        template (`use_chat_template` is false); and a sentence for each setting that is not used.
    """
    try:
        table = read_object(path / "generation_config.json")
    except LoadError:  # there is none, or no JSON: mlx_lm continues, too
        return (), False, ()
    found: dict[str, float] = {}
    notes = []
    for theirs, name in _SAMPLING.items():
        value = table.get(theirs)
        if value is None:
            continue
        off, none = _OFF.get(name, (None, None))
        value = none if value == off else value
        field = BY_NAME[name]
        try:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SettingsError(name, "it is no number")
            value = int(value) if field.kind == "int" and value == int(value) else value
            field.check(value)
            if value != field.default or name == "temp":
                found[name] = value
        except (SettingsError, OverflowError, ValueError):  # int() of what is not finite
            asked = f"generation_config.json asks for {theirs} {str(value)[:40]!r}"
            notes.append(f"{asked}, which is not used: it must be {field.bounds}.")
    sampled = table.get("do_sample")
    if sampled is False and found:
        found = {name: value for name, value in found.items() if name == "repetition_penalty"} | {"temp": 0.0}
    elif sampled is True or found.keys() - {"repetition_penalty"}:
        found.setdefault("temp", 1.0)
    return tuple(found.items()), table.get("use_chat_template") is False, tuple(notes)


# ---- special tokens ----------------------------------------------------------------------------

MOST_SPECIAL = 1000
"""Special tokens in the facts: models with tens of thousands, kept free for later use, are known."""
TEMPLATE_CHARACTERS = 64 * 1024
"""Characters of a chat template's source in the facts. The longest in use have 20,000."""


def facts_with_tokens(facts: ModelFacts, path: Path, tokens: Tokens) -> ModelFacts:
    """The facts with those of the tokenizer and of generation_config.json, and a note on each setting that is not used.

    Args:
        facts: Facts of the model.
        path: Directory of the model, whose files were checked.
        tokens: The model's tokenizer.
    """
    sampling, raw_prompts, notes = generation_defaults(path)
    special, count = special_tokens(tokens)
    return replace(
        facts,
        eos_ids=tokens.eos_ids,
        has_chat_template=tokens.has_chat_template,
        special=special,
        special_count=count,
        chat_template=tokens.template[:TEMPLATE_CHARACTERS],
        sampling=sampling,
        raw_prompts=raw_prompts,
        notes=(*facts.notes, *notes),
    )


def special_tokens(tokens: Tokens) -> tuple[tuple[SpecialToken, ...], int]:
    """The special tokens of a tokenizer by id.

    Args:
        tokens: The model's tokenizer.

    Returns:
        `MOST_SPECIAL` of them, those with a role and those in the chat template before others; and their number. Roles
        are `BOS`, `EOS`, `PAD` and the like, as the tokenizer names them; every token that ends a text is an `EOS`.
    """
    roles: dict[int, set[str]] = {token: {"EOS"} for token in tokens.eos_ids}
    for name, token in tokens.named_ids.items():
        roles.setdefault(token, set()).add(name.removesuffix("_token").upper())
    made = [
        SpecialToken(token, tokens.text(token)[0], tuple(sorted(roles.get(token, ()))))
        for token in sorted({*tokens.special_ids, *roles})
    ]
    first = sorted(made, key=lambda each: (not each.roles, each.text not in tokens.template))[:MOST_SPECIAL]
    return tuple(sorted(first, key=lambda each: each.id)), len(made)


# ---- what the cache supports -------------------------------------------------------------------


def probe_cache(
    model: Any, settings: LoadSettings, make_kv: MakeKV, facts: ModelFacts
) -> tuple[LoadSettings, Tail | None, ModelFacts]:
    """Run two tokens through throwaway caches to find which cache settings a model supports.

    Returns:
        The settings without those that this model can't have; its end, if that can be run alone; and its facts with
        those of its caches, and a note on each setting that is not used.

    Raises:
        Exception: Anything that a model raises that can't run.
    """
    notes: list[str] = []
    if settings.no_kv_cache:
        settings = replace(settings, kept_kv_mib=0)
        notes.append("The KV cache is off: every step runs all tokens before it again.")
    cache = make_kv(model, settings)
    kinds = cache.kinds()
    if settings.max_kv_size is not None and hasattr(model, "make_cache"):
        settings = replace(settings, max_kv_size=None)
        notes.append("--max-kv-size is not used: this model builds its own caches.")
    unquantized = replace(settings, kv_bits=None)
    if settings.kv_bits is not None and (why := _kv_bits_problem(model, settings, cache, make_kv)):
        settings = unquantized
        notes.append(f"--kv-bits is not used{why}")
    others = _unquantizable(cache)
    if settings.kv_bits is not None and others:
        notes.append(f"--kv-bits is used only for the plain caches; {', '.join(others)} stay as they are.")
    tail = Tail(model)
    # over ranks all of them run the model itself, and the logits of a chunk are there
    trial = _trial_cache(model, settings, make_kv, tail.trial if make_kv is KV else model)
    sizes = _head_sizes(_trial_cache(model, unquantized, make_kv) if settings.kv_bits is not None else trial)
    facts = replace(
        facts,
        notes=(*facts.notes, *notes),
        cache_kinds=kinds,
        kv_bytes_per_token=trial.bytes_per_token(),
        head_size=next(iter(sizes)) if len(sizes) == 1 else facts.head_size,
    )
    return settings, tail if tail.fits else None, facts


def _kv_bits_problem(model: Any, settings: LoadSettings, cache: KV, make_kv: MakeKV) -> str:
    """The end of a sentence that says why a model's caches can't be quantized; empty if they can."""
    if not any(quantizable for _, quantizable in cache.quantizable()):
        return f": caches of kind {', '.join(_unquantizable(cache))} can't be quantized."
    try:
        _trial_cache(model, settings, make_kv, tokens=2)
    except Exception as error:
        sizes = _head_sizes(_trial_cache(model, replace(settings, kv_bits=None), make_kv), quantizable=True)
        why = group_size_problem(sizes, settings.kv_group_size)
        return f". {why}" if why else f". This model can't run with a quantized cache ({error})."
    return ""


def _unquantizable(cache: KV) -> list[str]:
    return sorted({kind for kind, quantizable in cache.quantizable() if not quantizable})


def _head_sizes(cache: KV, quantizable: bool = False) -> set[int]:
    """Head sizes of the caches that hold a column for each token; with `quantizable`, of the quantizable ones."""
    layers = [(kind_of(layer), layer) for layer in cache.caches]
    of_columns = [
        (kind, layer) for kind, layer in layers if kind.columns and (kind.quantizable or not quantizable)
    ]
    return {int(array.shape[-1]) for kind, layer in of_columns for array in kind.buffers(layer)}


def _trial_cache(
    model: Any, settings: LoadSettings, make_kv: MakeKV, compute: Compute | None = None, tokens: int = 1
) -> KV:
    """Throwaway caches after one or more tokens; with `kv_bits`, quantized from the first on."""
    trial = make_kv(model, replace(settings, quantized_kv_start=0))
    for _ in range(tokens):
        mx.eval(trial.run(compute or model, mx.array([[0]])))
    return trial


# ---- the fingerprint of the files --------------------------------------------------------------
# A fingerprint is BLAKE2b over what determines the numbers: config.json (parsed, without notes on its origin) and,
# for the weights files and the adapter's, the name, the size, the safetensors header (every tensor's name, type, shape
# and place), and the bytes: all of them in files of up to 32 MiB, else 256 blocks of 4 KiB spread evenly from the first
# to the last. It can thus miss a change of a few numbers in a large file, but not another training, quantization or
# version. The later comparison of ids and logprobs with the record detects the rest.

WHOLE_LIMIT = 32 * 2**20
"""Bytes of a file that are all read."""
BLOCKS, BLOCK = 256, 4096
"""Number of blocks that are read of a larger file, and bytes of a block."""
HEADER_LIMIT = 100 * 2**20
"""Bytes of a safetensors header at most: the limit of the safetensors library."""
_NOTES = frozenset({"_name_or_path", "transformers_version"})
"""Fields of config.json that name a model's origin and change no number."""


def fingerprint(directory: Path | str, adapter: Path | str | None = None) -> str:
    """The fingerprint of a model directory.

    Args:
        directory: Holds config.json and the weights.
        adapter: Directory of an adapter, if one is used.

    Returns:
        32 hexadecimal digits; empty if a file can't be read, so that nothing is known.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        _add(digest, Path(directory), "config.json", "model*.safetensors")
        if adapter is not None:
            _add(digest, typed(str(adapter)), "adapter_config.json", "adapters.safetensors")
    except (EngineError, OSError, ValueError, RecursionError):
        return ""
    return digest.hexdigest()


def _add(digest: Any, directory: Path, config: str, pattern: str) -> None:
    parsed = json.loads(read_regular(directory / config, CONFIG_LIMIT).decode())
    if isinstance(parsed, dict):
        parsed = {name: value for name, value in parsed.items() if name not in _NOTES}
    digest.update(json.dumps(parsed, sort_keys=True).encode())
    if not (files := sorted(directory.glob(pattern))):
        raise ValueError("no weights")
    for path in files:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(f"{path.name} {size}\n".encode())
            if size <= WHOLE_LIMIT:
                digest.update(file.read())
                continue
            length = int.from_bytes(file.read(8), "little")
            begin = (
                8 + length if length <= min(HEADER_LIMIT, size - 8) else 8
            )  # else it is no safetensors file
            digest.update(file.read(begin - 8))
            for block in range(BLOCKS):
                file.seek(begin + block * max(0, size - begin - BLOCK) // (BLOCKS - 1))
                digest.update(file.read(BLOCK))
