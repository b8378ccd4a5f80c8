"""The facts about a model: its modules and arrays, what its caches support, its special tokens, its fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import mlx.core as mx
import mlx.nn as nn
from msgspec import Struct
from msgspec.structs import replace

from engine.cache.kinds import group_size_problem, kind_of
from engine.cache.live import KV
from engine.errors import EngineError, LoadError, SettingsError
from engine.files import CONFIG_LIMIT, open_regular, read_regular, typed
from engine.model.directory import read_object
from engine.model.forward import Compute, MakeKV
from engine.model.layers import Tail
from engine.model.tokens import Tokens
from engine.model.weights import (
    bytes_of,
    dtype_of,
    experts_of,
    free_bytes,
    memory_of_device,
    parameters_of,
    quantization_of,
)
from engine.protocol import CacheKind, ModelFacts, SpecialToken
from engine.settings import BY_NAME, LoadSettings

LEARNED_POSITIONS = ("wpe", "embed_positions", "position_embeddings", "position_embedding")


class Whole(Struct, frozen=True):
    """The facts of a model before its weights are read, and before several processes divide it."""

    layers: int
    rows: int
    """Number of ids that may reach it."""
    parameters: int
    nbytes: int
    dtype: str
    quantization: str | None
    learned_positions: bool
    """True if positions beyond its window have no embedding."""
    experts: int
    """Of its largest mixture; 0 for none."""

    @property
    def weights(self) -> str:
        """The form of most of the weights."""
        return self.quantization or self.dtype


def whole_of(model: Any, config: dict[str, Any]) -> Whole:
    """The facts of a model whose weights may be lazy."""
    return Whole(
        layers=_layers(model, config),
        rows=_embedding_rows(model, config),
        parameters=parameters_of(model),
        nbytes=bytes_of(model),
        dtype=dtype_of(model),
        quantization=quantization_of(model),
        learned_positions=any(name.split(".")[-1] in LEARNED_POSITIONS for name, _ in model.named_modules()),
        experts=experts_of(model),
    )


def _embedding_rows(model: Any, config: dict[str, Any]) -> int:
    """Number of ids that may reach the model: an id beyond ends the process.

    Of several tables, as of n-grams beside the tokens, the one that is as large as the vocabulary.
    """
    vocabulary = int(first_of(config, "vocab_size") or 0)
    rows = [
        int(module.weight.shape[0])
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding)
        and name.split(".")[-1] not in LEARNED_POSITIONS
    ]
    return vocabulary if vocabulary in rows or not rows else max(rows)


def first_of(config: dict[str, Any], *names: str) -> Any:
    """The first of some fields that the config, or the text part of a multimodal one, has."""
    for table in (config, config.get("text_config") or {}):
        for name in names:
            if table.get(name) is not None:
                return table[name]
    return None


def facts_of(
    whole: Whole, config: dict[str, Any], path: Path, tokens: Tokens, probe: CacheProbe, load_ms: float
) -> ModelFacts:
    hidden, heads = (
        first_of(config, "hidden_size", "n_embd", "d_model"),
        first_of(config, "num_attention_heads", "n_head"),
    )
    head_size = (
        probe.head_size or first_of(config, "head_dim") or (hidden // heads if hidden and heads else None)
    )
    special, special_count = special_tokens(tokens)
    defaults = generation_defaults(path)
    window = first_of(config, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
    return ModelFacts(
        name=path.name
        if not _is_snapshot(path)
        else path.parent.parent.name.removeprefix("models--").replace("--", "/"),
        path=str(path),
        family=str(config.get("model_type")),
        layers=whole.layers,
        heads=heads,
        kv_heads=first_of(config, "num_key_value_heads") or heads,
        head_size=head_size,
        hidden_size=hidden,
        vocabulary=tokens.vocabulary,
        parameters=whole.parameters,
        weight_bytes=whole.nbytes,
        dtype=whole.dtype,
        quantization=whole.quantization,
        context_window=None if window is None else int(window),
        hard_window=whole.learned_positions,
        cache_kinds=probe.kinds,
        kv_bytes_per_token=probe.bytes_per_token,
        eos_ids=tokens.eos_ids,
        has_chat_template=tokens.has_chat_template,
        special=special,
        special_count=special_count,
        chat_template=tokens.template[:TEMPLATE_CHARACTERS],
        backend="cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu",
        load_ms=load_ms,
        free_bytes=free_bytes(),
        memory_of=memory_of_device(),
        experts=whole.experts,
        notes=defaults.notes,
        sampling=defaults.sampling,
        raw_prompts=defaults.raw_prompts,
    )


def _is_snapshot(path: Path) -> bool:
    return path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--")


def _layers(model: Any, config: dict[str, Any]) -> int:
    try:
        return len(model.layers)
    except (AttributeError, TypeError):
        return int(first_of(config, "num_hidden_layers", "n_layer", "n_layers") or 0)


# ---- defaults of the generation ---------------------------------------------------------------

_SAMPLING = {"temperature": "temp", "repetition_penalty": "repetition_penalty"} | {
    name: name for name in ("top_p", "top_k", "min_p")
}
"""Fields of generation_config.json, and our names of them."""
_OFF = {"top_k": (-1, 0), "repetition_penalty": (1, 0)}
"""Values with which other programs turn a setting off, and what it then is here."""


class GenerationDefaults(Struct, frozen=True):
    """What a model's generation_config.json says of how its text is generated."""

    sampling: tuple[tuple[str, float], ...] = ()
    """Settings by their names in `engine.settings.Settings`."""
    raw_prompts: bool = False
    """True if prompts are raw text, though there may be a chat template: `use_chat_template` is false."""
    notes: tuple[str, ...] = ()
    """A sentence for each setting that is not used."""


def generation_defaults(path: Path) -> GenerationDefaults:
    """Read a model's generation_config.json, if it has one.

    As in transformers `do_sample: false` is greedy decoding; as in vLLM a temperature needs no `do_sample`. A filter
    without a temperature is used at temperature 1.

    Args:
        path: Directory of the model, whose files were checked.
    """
    try:
        table = read_object(path / "generation_config.json")
    except LoadError:  # there is none, or no JSON, with which mlx_lm goes on, too
        return GenerationDefaults()
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
    return GenerationDefaults(tuple(found.items()), table.get("use_chat_template") is False, tuple(notes))


# ---- special tokens ----------------------------------------------------------------------------

MOST_SPECIAL = 1000
"""Special tokens in the facts: models with tens of thousands, kept free for later use, are known."""
TEMPLATE_CHARACTERS = 64 * 1024
"""Of a chat template's source in the facts. The longest in use have 20,000."""


def special_tokens(tokens: Tokens) -> tuple[tuple[SpecialToken, ...], int]:
    """The special tokens of a tokenizer by id.

    Args:
        tokens: The model's tokenizer.

    Returns:
        `MOST_SPECIAL` of them, those with a role and those in the chat template before others; and how many there are.
    """
    roles: dict[int, set[str]] = {}
    for role, token in _roles(tokens):
        roles.setdefault(token, set()).add(role)
    made = [
        SpecialToken(token, tokens.text(token)[0], tuple(sorted(roles.get(token, ()))))
        for token in sorted({*tokens.special_ids, *roles})
    ]
    first = sorted(made, key=lambda each: (not each.roles, each.text not in tokens.template))[:MOST_SPECIAL]
    return tuple(sorted(first, key=lambda each: each.id)), len(made)


def _roles(tokens: Tokens) -> Iterator[tuple[str, int]]:
    """`BOS`, `EOS`, `PAD` and the like, as the tokenizer names them; every token that ends a text is an `EOS`."""
    for name, token in tokens.named_ids.items():
        yield name.removesuffix("_token").upper(), token
    for token in tokens.eos_ids:
        yield "EOS", token


# ---- what the cache supports -------------------------------------------------------------------


class CacheProbe(Struct, frozen=True):
    """The kinds of a model's caches, and the operations that they allow."""

    settings: LoadSettings
    """Those requested, without what this model can't do."""
    notes: tuple[str, ...]
    """What it can't do, one sentence each."""
    kinds: tuple[CacheKind, ...]
    bytes_per_token: int | None
    head_size: int | None
    """Of all keys and values, where these have one size."""
    tail: Tail | None
    """The model's end, where it can be run alone."""


def probe_cache(model: Any, settings: LoadSettings, make_kv: MakeKV = KV) -> CacheProbe:
    """Run two tokens through throwaway caches to find which cache settings a model supports.

    Raises:
        Exception: Whatever a model raises that can't run.
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
    if settings.kv_bits is not None:
        settings, more = _probe_kv_bits(model, settings, cache, make_kv)
        notes += more
    tail = Tail(model)
    # over ranks all of them run the model itself, and the logits of a chunk are there
    trial = _trial_cache(model, settings, make_kv, tail.trial if make_kv is KV else model)
    packed = settings.kv_bits is not None
    sizes = _head_sizes(_trial_cache(model, replace(settings, kv_bits=None), make_kv) if packed else trial)
    head_size = next(iter(sizes)) if len(sizes) == 1 else None
    return CacheProbe(
        settings, tuple(notes), kinds, trial.bytes_per_token(), head_size, tail if tail.fits else None
    )


def _probe_kv_bits(
    model: Any, settings: LoadSettings, cache: KV, make_kv: MakeKV
) -> tuple[LoadSettings, list[str]]:
    off = replace(settings, kv_bits=None)
    kinds = cache.quantizable()
    others = sorted({kind for kind, quantizable in kinds if not quantizable})
    if not any(quantizable for _, quantizable in kinds):
        return off, [f"--kv-bits is not used: caches of kind {', '.join(others)} can't be quantized."]
    try:
        _trial_cache(model, settings, make_kv, tokens=2)
    except Exception as error:
        sizes = _head_sizes(_trial_cache(model, off, make_kv), quantizable=True)
        why = group_size_problem(sizes, settings.kv_group_size)
        why = why or f"This model can't run with a quantized cache ({error})."
        return off, [f"--kv-bits is not used. {why}"]
    if others:
        return settings, [
            f"--kv-bits is used only for the plain caches; {', '.join(others)} stay as they are."
        ]
    return settings, []


def _head_sizes(cache: KV, quantizable: bool = False) -> set[int]:
    """Of the keys and values in caches that hold a column for each token; with `quantizable`, in those alone."""
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
        adapter: Directory of an adapter, where one is used.

    Returns:
        32 hexadecimal digits; empty where a file can't be read, so that nothing is known.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        _add(digest, Path(directory), ("model*.safetensors",), "config.json")
        if adapter is not None:
            _add(digest, typed(str(adapter)), ("adapters.safetensors",), "adapter_config.json")
    except (EngineError, OSError, ValueError, RecursionError):
        return ""
    return digest.hexdigest()


def _add(digest: Any, directory: Path, patterns: Iterable[str], config: str) -> None:
    parsed = json.loads(read_regular(directory / config, CONFIG_LIMIT).decode())
    if isinstance(parsed, dict):
        parsed = {name: value for name, value in parsed.items() if name not in _NOTES}
    digest.update(json.dumps(parsed, sort_keys=True).encode())
    files = sorted({path for pattern in patterns for path in directory.glob(pattern)})
    if not files:
        raise ValueError("no weights")
    for path in files:
        with open_regular(path) as file:
            _weights(digest, path.name, file)


def _weights(digest: Any, name: str, file: BinaryIO) -> None:
    size = os.fstat(file.fileno()).st_size
    digest.update(f"{name} {size}\n".encode())
    if size <= WHOLE_LIMIT:
        digest.update(file.read())
        return
    length = int.from_bytes(file.read(8), "little")
    begin = 8 + length if length <= min(HEADER_LIMIT, size - 8) else 8  # else it is no safetensors file
    digest.update(file.read(begin - 8))
    for block in range(BLOCKS):
        file.seek(begin + block * max(0, size - begin - BLOCK) // (BLOCKS - 1))
        digest.update(file.read(BLOCK))
