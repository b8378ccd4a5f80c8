"""Goes on from a KV cache that mlx_lm.cache_prompt saved, with the ids that mlx_lm.generate would continue with.

The file has no token ids. The text that it was made from must be given, too; it runs through the model in caches of
its own, and where the file's numbers are those, the file's arrays take their place. That costs a prefill: it is the
only way to know that the tokens on the screen are the ones whose keys and values are gone on from.

Such a file (`mlx_lm.cache_prompt`, `save_prompt_cache`) holds keys, values and counts, and the name of a model: neither
token ids nor what ran the model. So nothing in it is believed: it takes the place of a cache that holds the same tokens
here only where it has the same classes, counts, types and shapes, and the same numbers but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from engine.cache.kinds import kind_of
from engine.cache.moves import MoveCost
from engine.errors import PromptError
from engine.files import shorter
from engine.frozen import frozen
from engine.model.directory import Damaged, read_header
from engine.model.forward import FIXED_CHUNK
from engine.protocol import NO_OPTIONS, Message, Prefill, PromptOpened
from engine.session.prefill import PrefillRun, PromptPath, PromptRecord
from engine.session.session import Session
from engine.task import Stopped
from engine.tree import ROOT, prompt_chunks

SHARES = {mx.float32: 1e-2, mx.float16: 0.1, mx.bfloat16: 0.1}
"""How far a token's keys, or its values, may be from those computed here, as a share of their norm, by the
numbers' type. Measured over 12 families of random models: up to 1.3e-6 in float32 for another cut into chunks,
0.7 to 2.6 for a prompt with one other token; 0.001 for one that a recurrent state has nearly forgotten. On a GPU mlx_lm
multiplies in TF32 unless it is set not to, as this program does: 1e-3 and a few layers more."""
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
        raise _unreadable(name, "it is not a safetensors file, or was cut short") from error
    arrays, metadata = loaded
    if "1.0" not in metadata:
        raise _unreadable(name, "it names no classes of caches")
    return arrays, metadata


def _unreadable(name: str, why: str) -> PromptError:
    return PromptError(f"{name} is not a prompt cache of mlx_lm: {why}.", MADE)


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
    """True if an array has the shape of another, or that of a growing cache with a few columns more or less."""
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


# ---- the prompt --------------------------------------------------------------------------------

QUERY = "<query>"
"""Put in the prompt's place by mlx_lm.generate, to find what the template writes from there on."""
FORGOTTEN = " The comparison can't see tokens that have left a window or faded from a recurrent state."


@frozen
class PromptParts:
    """A prompt in two parts, each as text and as ids."""

    cached: str
    cached_ids: list[int]
    text: str
    ids: list[int]
    chat: bool
    """True if the second went through the chat template."""


def prompt(session: Session, command: Prefill, stopped: Stopped) -> Iterator[PromptRecord]:
    """Prefill what follows a saved cache.

    Yields:
        What the file holds as a prompt of its own, which needs no forward, then as `Session.prefill`.

    Raises:
        PromptError: The file is not the cache of the text, or as `Session.prefill`; nothing changed then.
        Cancelled: `stopped` returned True.
    """
    if not session.cached:
        raise PromptError("A saved KV cache can't be used without a KV cache.", "Leave out --no-kv-cache.")
    parts = _cut(session, command)
    session.check_prompt(parts.cached_ids, 0)
    session.check_prompt(parts.ids, len(parts.cached_ids))
    session.check_settings()
    runner = session.runner.fresh(FIXED_CHUNK)  # as mlx_lm.cache_prompt cuts it
    ids = parts.cached_ids
    row = runner.forward_path(ids, prompt_chunks(len(ids)), stopped)
    saved = read_saved(Path(command.cache_file), runner.kv.caches, len(ids))
    new_tree = len(session.tree) == 1
    nodes = session.adopt(ids, saved.caches, runner.kv.chunks, row)
    path = PromptPath(parts.cached, ids, nodes, ROOT, session.pending, None, MoveCost(len(ids), 0, ""))
    read = PrefillRun(
        session.runner,
        session.unread,
        None,
        session.tokens,
        session.settings.candidates,
        path,
        False,
    ).tokens
    same = f"by at most {saved.difference:.1e} of their length" if saved.difference else "in no bit"
    whole = all(kind_of(cache).held(cache) == len(ids) and kind_of(cache).columns for cache in saved.caches)
    note = f"{len(ids)} tokens are in the cache file: its numbers differ from a fresh prefill's {same}."
    yield PromptOpened(
        text=parts.cached,
        chat=session.tokens.has_chat_template,
        tokens=tuple(read),
        echo=False,
        notes=(note + ("" if whole else FORGOTTEN),),
        held=len(ids),
        new_tree=new_tree,
    )
    yield from session.prefill(
        parts.text,
        parts.ids,
        parent=nodes[-1],
        chat=parts.chat,
        echo=command.echo,
        messages=(Message("user", command.cached_text + command.text),) if parts.chat else (),
        options=command.options if parts.chat else NO_OPTIONS,
        filled=session.tokens.raw_text(parts.text),
        step_size=command.step_size,
        stopped=stopped,
    )


def _cut(session: Session, command: Prefill) -> PromptParts:
    """What mlx_lm.cache_prompt read, and what mlx_lm.generate would add.

    Raises:
        PromptError: One of both can't be encoded, or the template doesn't write the second behind the first.
    """
    tokens, options = session.tokens, command.options
    cached, templated = command.cached_text, tokens.has_chat_template
    if templated:  # whether or not the rest is raw text: mlx_lm.cache_prompt has no flag for it
        cached = tokens.chat((Message("user", cached),), NO_OPTIONS, opened=True)
    cached_ids = session.encode(cached, bare=templated)
    if not (command.chat and templated):
        # as in mlx_lm, which begins both with the beginning-of-sequence token where the tokenizer has one
        return PromptParts(cached, cached_ids, command.text, session.encode(command.text), False)
    text = tokens.chat((Message("user", command.text),), options)
    pattern = tokens.chat((Message("user", QUERY),), replace(options, config=""))
    begin, found, _ = pattern.partition(QUERY)
    if not found or not text.startswith(begin):
        raise PromptError(
            "The chat template does not write this prompt where the cached one ended.",
            "Leave out --chat-template-config, or give the whole prompt without the file.",
        )
    text = text[len(begin) :]
    return PromptParts(cached, cached_ids, text, session.encode(text, bare=True), True)
