"""A KV cache that mlx_lm saved (`mlx_lm.cache_prompt`, `save_prompt_cache`), compared before it is gone on from.

Such a file holds keys, values and counts, and the name of a model: neither token ids nor what ran the model. So nothing
in it is believed: it takes the place of a cache that holds the same tokens here only where it has the same classes,
counts, types and shapes, and the same numbers but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from engine.cache.kinds import kind_of
from engine.errors import PromptError
from engine.frozen import frozen
from engine.model.directory import Damaged, read_header
from engine.paths import shorter

SHARES = {mx.float32: 1e-2, mx.float16: 0.1, mx.bfloat16: 0.1}
"""How far a token's keys, or its values, may be from those computed here, as a share of their norm, by the
numbers' type. Measured over 12 families of random models: up to 1.3e-6 in float32 for another cut into chunks,
0.7 to 2.6 for a prompt with one other token; 0.001 for one that a recurrent state has nearly forgotten. On a GPU mlx_lm
multiplies in TF32 unless it is told not to, which this program does: 1e-3 and a few layers more."""
PACKED_SHARE = 0.3
"""The same for a quantized cache, where rounding may flip a number by one step: measured 0.22 at 4 bits for another
cut, 1.2 and more for another token."""
MADE = "mlx_lm.cache_prompt makes such files."
BLOCK = 256
"""Columns by which growing caches grow: a file may have that many more than another cache of as many tokens."""


@frozen
class SavedCaches:
    """The caches of a file that were found to be those of a prompt."""

    caches: list[Any]
    """mlx_lm's objects, with the file's arrays."""
    difference: float
    """The largest share by which a token's keys or values differ from those computed here; 0 for equal bits."""


def read_saved(path: Path, computed: list[Any], tokens: int) -> SavedCaches:
    """Read a file, where it holds what was computed here.

    Args:
        path: The file.
        computed: The model's caches, which hold the tokens.
        tokens: How many.

    Raises:
        PromptError: It can't be read, is none of mlx_lm, or holds something else.
    """
    name = shorter(str(path))
    arrays, metadata = _loaded(path, name)
    expected = dict(tree_flatten([cache.state for cache in computed]))
    classes = [type(cache).__name__ for cache in computed]
    _check_form(name, arrays, metadata, expected, classes, tokens)
    saved = {key: arrays[key] if isinstance(value, mx.array) else value for key, value in expected.items()}
    states = tree_unflatten(list(saved.items()))
    caches = [
        type(cache).from_state(_like(cache.state, state))
        for cache, state in zip(computed, states, strict=True)
    ]
    try:
        mx.eval([each for each in saved.values() if isinstance(each, mx.array)])
    except RuntimeError as error:
        raise _unreadable(name, "its data can't be read") from error
    difference = max(
        (_difference(name, *pair, tokens) for pair in zip(caches, computed, strict=True)), default=0.0
    )
    return SavedCaches(caches, difference)


def _loaded(path: Path, name: str) -> tuple[dict[str, mx.array], dict[str, str]]:
    """The arrays, not read yet, and the metadata."""
    try:
        read_header(path)  # before MLX, which would trust it
        loaded: Any = mx.load(str(path), format="safetensors", return_metadata=True)
    except FileNotFoundError as error:
        raise PromptError(f"There is no prompt cache file {name}.", "Check the path's spelling.") from error
    except OSError as error:
        raise PromptError(f"The prompt cache file {name} can't be read: {error.strerror}.", MADE) from error
    except (Damaged, RuntimeError, ValueError) as error:
        raise _unreadable(name, "it is no safetensors file, or was cut short") from error
    arrays, metadata = loaded
    if "1.0" not in metadata:
        raise _unreadable(name, "it names no classes of caches")
    return arrays, metadata


def _unreadable(name: str, why: str) -> PromptError:
    return PromptError(f"{name} is no prompt cache of mlx_lm: {why}.", MADE)


def _check_form(
    name: str,
    arrays: dict[str, mx.array],
    metadata: dict[str, str],
    expected: dict[str, Any],
    classes: list[str],
    tokens: int,
) -> None:
    """Refuse a file of other classes, counts, types or shapes; no array is read for it but single numbers."""
    made = f" It was made with the model {shorter(metadata['0.model'])}." if metadata.get("0.model") else ""
    found = [metadata[key] for key in (f"1.{place}" for place in range(len(arrays) + 1)) if key in metadata]
    if len(found) != len(classes):
        raise PromptError(
            f"{name} has {len(found)} layers, this model {len(classes)}.{made}", "Give --model."
        )
    if found != classes:
        other, own = next(pair for pair in zip(found, classes, strict=True) if pair[0] != pair[1])
        raise PromptError(
            f"{name} has caches of the class {other[:60]}, here they are {own}.", _flags(arrays, other)
        )
    if arrays.keys() != expected.keys():
        raise PromptError(f"{name} lacks arrays that its caches must have.{made}", MADE)
    for key, value in expected.items():
        place, array = key.partition(".")[0], arrays[key]
        if not isinstance(value, mx.array):
            if (given := _scalar(array, value)) != value:
                raise PromptError(
                    f"{name}, layer {int(place) + 1}: a count or setting of the cache is {given}, not {value}.{made}",
                    f"The prompt given has {tokens} tokens: it must be the very text that the file was made from.",
                )
        elif array.dtype != value.dtype:
            kinds = f"{_named(array.dtype)}, here they are {_named(value.dtype)}"
            raise PromptError(
                f"{name}: its numbers are {kinds}.{made}", f"Add --dtype {_named(array.dtype)}."
            )
        elif not _fits(array, value, tokens):
            raise PromptError(
                f"{name}, layer {int(place) + 1}: an array of shape {array.shape} in place of {value.shape}.{made}",
                "It was made with another model, prompt or --max-kv-size.",
            )


def _fits(array: mx.array, value: mx.array, tokens: int) -> bool:
    """Whether an array has the shape of another, or that of a growing cache with a few columns more or less."""
    one, other = list(array.shape), list(value.shape)
    if len(one) == len(other) == 4 and min(one[2], other[2]) >= tokens and one[2] <= tokens + 2 * BLOCK:
        one[2] = other[2]
    return one == other


def _scalar(array: mx.array, like: Any) -> Any:
    """What mlx_lm saved as an array: a number, a text or nothing."""
    if like is None or array.size > 100:
        return None if array.size == 0 else f"an array of {array.size} numbers"
    if isinstance(like, str):
        codes: Any = array.flatten().tolist()
        return "".join(chr(int(code) % 0x110000) for code in codes)
    return array.item() if array.size == 1 else f"an array of {array.size} numbers"


def _flags(arrays: dict[str, mx.array], other: str) -> str:
    """The flags with which the caches here would be of a file's class."""
    if other == "QuantizedKVCache" and all(arrays[key].size == 1 for key in ("0.3", "0.4") if key in arrays):
        group, bits = (arrays[key].item() if key in arrays else "N" for key in ("0.3", "0.4"))
        return f"Add --kv-bits {bits} --kv-group-size {group} --quantized-kv-start as it was given to mlx_lm."
    if other == "RotatingKVCache":
        size = arrays["0.4"].item() if "0.4" in arrays and arrays["0.4"].size == 1 else "N"
        return f"Add --max-kv-size {size}, if the model is the same."
    return "Leave out --kv-bits and --max-kv-size, if the model is the same."


def _like(state: Any, saved: Any) -> Any:
    """A saved state with tuples where the cache has them."""
    if isinstance(state, list | tuple):
        parts = [_like(one, other) for one, other in zip(state, saved, strict=True)]
        return tuple(parts) if isinstance(state, tuple) else parts
    return saved


def _difference(name: str, saved: Any, computed: Any, tokens: int) -> float:
    """The largest share by which a cache's numbers differ.

    Raises:
        PromptError: They differ by more than rounding.
    """
    largest = 0.0
    for one, other in zip(_numbers(saved), _numbers(computed), strict=True):
        columns = kind_of(computed).columns and other.ndim == 4
        if columns:
            one, other = (each[:, :, : min(tokens, other.shape[2])] for each in (one, other))
        axes = (0, 1, 3) if columns else None
        one, other = one.astype(mx.float32), other.astype(mx.float32)
        apart = mx.sqrt(mx.sum((one - other) ** 2, axis=axes))
        length = mx.sqrt(mx.sum(other**2, axis=axes))
        share = float(np.array(mx.where(apart == 0, 0.0, apart / length)).max()) if other.size else 0.0
        if not share <= _bound(computed):
            raise PromptError(
                f"{name} is not the cache of this prompt: keys or values are {share:.0%} off a fresh prefill's.",
                "The model, its adapter and the whole text must be those that the file was made from.",
            )
        largest = max(largest, share)
    return largest


def _numbers(cache: Any) -> Iterator[mx.array]:
    """The arrays of a cache, unpacked where they are quantized."""
    if kind_of(cache).quantized:
        for packed in (cache.keys, cache.values):
            weights, scales, biases = packed
            yield mx.dequantize(weights, scales, biases, group_size=cache.group_size, bits=cache.bits)
    else:
        flat: Any = tree_flatten(cache.state)
        yield from (value for _, value in flat if isinstance(value, mx.array))


def _bound(cache: Any) -> float:
    if kind_of(cache).quantized:
        return PACKED_SHARE
    types = {one.dtype for one in _numbers(cache)}
    return max((SHARES.get(each, 0.0) for each in types), default=0.0)


def _named(dtype: mx.Dtype) -> str:
    return str(dtype).rpartition(".")[2]
