"""What a model directory must hold, checked before mlx_lm and transformers open its files by their names.

They wait for ever at a named pipe, read `/dev/zero` without end, and build as many layers as config.json says. The
header of a safetensors file is read here too: what tensors there are, each checked against the size of the file.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import LoadError
from engine.files import CONFIG_LIMIT, MIB, check_regular, open_regular, read_regular

# ---- safetensors -------------------------------------------------------------------------------

Tensors = dict[str, tuple[int, ...]]
"""Shapes by name."""
HEADER_LIMIT = 100_000_000
"""Bytes of a header at most, as in the safetensors library and MLX."""
HEADER_VALUES = 8_000_000
"""Values of a header at most: some 700,000 tensors."""
BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


class Damaged(ValueError):
    """A file isn't safetensors, or is cut short."""


class TensorEntry(NamedTuple):
    """The entry of one tensor in a header."""

    dtype: str
    """As safetensors names it: `BF16`."""
    shape: tuple[int, ...]
    size: int
    """Bytes in the file."""


def read_header(path: Path) -> Tensors:
    """The tensors of a file.

    Args:
        path: A safetensors file.

    Returns:
        The shape of each.

    Raises:
        OSError: It can't be read, or is no regular file.
        Damaged: Its header is wrong, or says more than the file holds.
    """
    return {name: entry.shape for name, entry in read_entries(path).items()}


def read_entries(path: Path, limit: int = HEADER_LIMIT) -> dict[str, TensorEntry]:
    """The tensors of a file, with their types.

    Args:
        path: A safetensors file.
        limit: Bytes of its header at most.

    Raises:
        OSError: It can't be read, or is no regular file.
        Damaged: Its header is wrong, or larger, or says more than the file holds.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(limit, size - 8):
            raise Damaged(f"{path.name} has no header")
        text = file.read(length)
    if text.count(b",") + text.count(b"[") + 4 * text.count(b"{") > HEADER_VALUES:
        raise Damaged(f"{path.name} has a header of too many values")
    try:
        entries = json.loads(text.decode())
    except RecursionError as error:
        raise Damaged(f"the header of {path.name} is nested too deeply") from error
    except ValueError as error:
        raise Damaged(f"the header of {path.name} is not JSON") from error
    if not isinstance(entries, dict):
        raise Damaged(f"the header of {path.name} names no tensors")
    metadata = entries.pop("__metadata__", None)
    if not isinstance(metadata, dict | None):
        raise Damaged(f"the header of {path.name} has metadata of another kind")
    return {name: _entry(name, entry, size - 8 - length) for name, entry in entries.items()}


def _entry(name: str, entry: Any, size: int) -> TensorEntry:
    """One tensor, checked.

    Args:
        name: For the message.
        entry: Its entry in the header.
        size: Bytes of data in the file.
    """
    entry = entry if isinstance(entry, dict) else {}
    shape, span, dtype = entry.get("shape"), entry.get("data_offsets"), entry.get("dtype")
    if not (_whole(shape) and _whole(span) and len(span) == 2 and isinstance(dtype, str)):
        raise Damaged(f"the entry of {name[:100]!r} is wrong")
    begin, end = span
    if not begin <= end <= size:
        raise Damaged(f"{name[:100]!r} lies beyond the end of the file")
    if dtype in BITS and math.prod(shape) * BITS[dtype] != (end - begin) * 8:
        raise Damaged(f"{name[:100]!r} has another size than its shape")
    return TensorEntry(dtype, tuple(shape), end - begin)


def _whole(values: Any) -> bool:
    """True if this is a list of numbers that count something."""
    if not isinstance(values, list) or not set(map(type, values)) <= {int}:
        return False
    return not values or (min(values) >= 0 and max(values) < 2**63)


# ---- directories -------------------------------------------------------------------------------

WEIGHTS = "model*.safetensors"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "tiktoken.model",
    "vocab.json",
)
SETTINGS = (
    "generation_config.json",
    "hf_quant_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.json",
)
"""Files that hold a JSON object, where they are there."""
VOCABULARIES = ("tokenizer.json", "vocab.json", "added_tokens.json")
"""Likewise, and with a vocabulary in it."""
LIMITS = {
    "chat_template.jinja": MIB,
    **dict.fromkeys(
        ("merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "tiktoken.model"), 64 * MIB
    ),
}
"""Bytes of other files at most."""
SUFFIXES = frozenset(
    {".json", ".jinja", ".model", ".txt", ".tiktoken", ".safetensors", ".spm", ".bpe", ".codes"}
)
"""Of the files that some tokenizer or another reads."""
VALUES, VALUES_OF_VOCABULARY = 1_000_000, 3_000_000
"""Values of a JSON file at most, an object counted as four: 200 bytes and 4 microseconds each. Models with 65,000 added
tokens list them in 700,000; gemma3's tokenizer.json has 1.9 million."""
TOKENS = 100_000
"""Entries of a vocabulary at most, or twice the longest side of a tensor: an added one takes 2 KB and 50 µs."""
LAYERS = 512
"""Layers that may be built unseen: it takes a second. More must have tensors in the weights."""
PACKED = 32
"""Numbers that one element of a tensor stands for at most, in quantized weights."""
_LAYER_COUNT = re.compile(r"(n|num)_(\w+_)?layers?")
_SIZE = re.compile(
    r"n_embd|n_head|n_inner|d_model|vocab_size|head_dim|(hidden|intermediate)_size|num_(\w+_)?heads"
)
_WINDOW = re.compile(r"max_position_embeddings|n_positions|max_sequence_length|seq_length")
WIDEST = 2**40
"""Tokens of a context window at most."""
_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_AGAIN = "Download it again."


def check(path: Path, needs_weights: bool = True) -> None:
    """Refuse what can't be a model directory, saying what is missing.

    Args:
        path: The directory.
        needs_weights: Whether the weights must be there; those that are there are not looked at otherwise.

    Raises:
        LoadError: With what is missing and where it usually comes from.
    """
    if os.path.isfile(path):
        raise _not_a_directory(path)
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except NotADirectoryError as error:
        raise LoadError(
            f"{path} is not a directory.", "Give the directory that holds the model's files."
        ) from error
    except OSError as error:
        raise LoadError(f"{path} can't be read: {error.strerror}.", "Check its permissions.") from error
    weights = sorted(path.glob(WEIGHTS))
    if needs_weights and not weights and any(name.endswith(".gguf") for name in names):
        raise LoadError(
            f"{path} holds GGUF weights, which this program can't read.",
            "Use the model's safetensors, or convert them with mlx_lm.convert.",
        )
    if "config.json" not in names:
        raise LoadError(f"{path} has no config.json.", "Give the directory that holds the model's files.")
    config = _config(path / "config.json")
    if needs_weights and not weights:
        raise LoadError(
            f"{path} has no weights ({WEIGHTS}).", "Download them, or convert with mlx_lm.convert."
        )
    if not any(name in names for name in TOKENIZER_FILES):
        raise LoadError(
            f"{path} has no tokenizer (tokenizer.json).", "Copy it from the model's original directory."
        )
    if needs_weights:
        tensors = _headers(path, weights)
        check_sizes(path, config, tensors)
        longest = max((size for shape in tensors.values() for size in shape), default=0)
    else:
        sizes = [size for name, size in _numbers(config) if name == "vocab_size" and isinstance(size, int)]
        longest = min(max(sizes, default=0), WIDEST)
    _check_files(path, names, longest)


def check_adapter(path: Path) -> None:
    """Refuse what can't be an adapter's directory.

    Raises:
        LoadError: With what is missing.
    """
    for name in ("adapter_config.json", "adapters.safetensors"):
        if not os.path.lexists(path / name):
            if os.path.lexists(path / "adapter_model.safetensors"):
                raise LoadError(
                    f"The adapter in {path} is one of PEFT, which mlx_lm can't load.",
                    "Merge it into its model with PEFT, and convert that with mlx_lm.convert.",
                )
            raise LoadError(
                f"The adapter directory {path} has no {name}.", "Give the directory that mlx_lm.lora wrote."
            )
    config = read_object(path / "adapter_config.json")
    if "lora_layers" in config and "num_layers" not in config:
        raise LoadError(
            f"{path}/adapter_config.json is of an early mlx_lm: it has lora_layers, and mlx_lm now reads num_layers.",
            "Rename lora_layers to num_layers in it.",
        )
    if not _headers(path, [path / "adapters.safetensors"]):
        raise LoadError(
            f"{path}/adapters.safetensors holds no tensors.", "Give the directory that mlx_lm.lora wrote."
        )


def _not_a_directory(path: Path) -> LoadError:
    if path.suffix == ".gguf":
        return LoadError(
            f"{path} is a GGUF file, which this program can't read.",
            "Give a directory with safetensors, or convert with mlx_lm.convert.",
        )
    return LoadError(f"{path} is a file, not a model directory.", f"Did you mean {path.parent}?")


# ---- JSON ---------------------------------------------------------------------------------------


def read_object(path: Path, values: int = VALUES) -> dict[str, Any]:
    """The JSON object that a file holds.

    Args:
        path: The file.
        values: How many there may be in it.

    Raises:
        LoadError: It can't be read, or holds something else.
    """
    try:
        raw = read_regular(path, CONFIG_LIMIT)
        if raw.count(b",") + raw.count(b"[") + 4 * raw.count(b"{") > values:
            raise LoadError(f"{path} holds more values than any model needs.", _AGAIN)
        content = json.loads(raw.decode())
    except OSError as error:
        raise unreadable(path, error) from error
    except RecursionError as error:
        raise LoadError(f"{path} can't be read as JSON: it is nested too deeply.", _AGAIN) from error
    except ValueError as error:
        raise LoadError(f"{path} can't be read as JSON: {error}.", "Download the file again.") from error
    if not isinstance(content, dict):
        raise LoadError(f"{path} is not a JSON object.", _AGAIN)
    return content


def unreadable(path: Path, error: OSError) -> LoadError:
    """That a file of a model can't be read."""
    return LoadError(
        f"{path} can't be read: {error.strerror or error}.", "Check the file, or download it again."
    )


def _config(path: Path) -> dict[str, Any]:
    config = read_object(path)
    if not config.get("model_type"):
        raise LoadError(f"{path} names no model_type.", "It is not the config of a language model.")
    if not isinstance(config["model_type"], str):
        raise LoadError(
            f"{path} has a model_type that is not a string.", "It is not the config of a language model."
        )
    return config


def _check_files(path: Path, names: list[str], longest: int) -> None:
    for name in names:
        entry = path / name
        if name in SETTINGS:
            _check_settings(entry)
        elif name in VOCABULARIES:
            _check_vocabulary(entry, max(TOKENS, 2 * longest))
        elif name in LIMITS or (entry.suffix in SUFFIXES and not entry.is_dir()):
            try:
                check_regular(entry, LIMITS.get(name))
            except OSError as error:
                raise unreadable(entry, error) from error


def _check_vocabulary(path: Path, most: int) -> None:
    content = read_object(path, VALUES_OF_VOCABULARY)
    model = content.get("model")
    for tokens in (
        content,
        content.get("added_tokens"),
        model.get("vocab") if isinstance(model, dict) else None,
    ):
        if isinstance(tokens, dict | list) and len(tokens) > most:
            raise LoadError(f"{path} has {len(tokens)} tokens, and the model far fewer.", _AGAIN)


def _check_settings(path: Path) -> None:
    try:
        read_object(path)
    except LoadError as error:
        # mlx_lm goes on without a generation_config.json that is no JSON
        if path.name != "generation_config.json" or not isinstance(error.__cause__, json.JSONDecodeError):
            raise


# ---- formats of quantized weights ----------------------------------------------------------------

_OWN_METHODS = frozenset({"bitnet", "mxfp4", "mxfp8"})
_PACKED_FORMATS = frozenset({"nvfp4-pack-quantized", "mxfp4-pack-quantized", "pack-quantized"})
"""The formats of compressed-tensors that mlx_lm reads."""
IN_MLX_FORMAT = "Use a version of it in MLX's format, or convert its unquantized weights with mlx_lm.convert."
QUANTIZATION = "hf_quant_config.json"


def unreadable_format(
    config: Mapping[str, Any], tensors: Mapping[str, TensorEntry], dequantizes: bool
) -> str:
    """The format of a model's quantized weights, if mlx_lm (0.32) can't load it; empty if it can.

    Args:
        config: Its config.json, with `quantization_config` from `hf_quant_config.json` if only that has it.
        tensors: Those of its weights.
        dequantizes: Whether mlx_lm's code of the family reads FP8 weights with a scale for each block.
    """
    text = config.get("text_config")
    stated = config.get("quantization_config") or (isinstance(text, dict) and text.get("quantization_config"))
    if config.get("quantization") or not isinstance(stated, dict) or not stated:
        return ""
    match str(stated.get("quant_method"))[:40]:
        case "None":
            return "a format that its config.json doesn't name"
        case "fp8":
            is_mxfp8 = stated.get("scale_fmt") == "ue8m0" and stated.get("weight_block_size") == [32, 32]
            return "" if is_mxfp8 or dequantizes else "FP8"
        case "compressed-tensors":
            form = str(stated.get("format"))[:40]
            return "" if form in _PACKED_FORMATS else f"compressed-tensors in the format {form}"
        case "modelopt":
            inner = stated.get("quantization")
            algorithm = str((inner if isinstance(inner, dict) else stated).get("quant_algo"))[:40]
            return "" if algorithm == "NVFP4" else f"ModelOpt's {algorithm}"
        case "awq" | "gptq" as method:
            bits = str(stated.get("bits", 4))[:40]
            if any(name.endswith(".g_idx") for name in tensors):
                return f"{method.upper()} with an order of its groups (g_idx)"
            return "" if bits == "4" else f"{method.upper()} of {bits} bits"
        case method:
            floats = all(entry.dtype in ("F16", "BF16", "F32", "F64") for entry in tensors.values())
            return "" if method in _OWN_METHODS or floats else method


def format_error(path: Path) -> LoadError | None:
    """Why mlx_lm can't load the quantized weights of a model, if their format is the cause."""
    try:
        config = read_object(path / "config.json")
        if "quantization_config" not in config and (path / QUANTIZATION).exists():
            config["quantization_config"] = read_object(path / QUANTIZATION)
        tensors = {name: each for file in path.glob(WEIGHTS) for name, each in read_entries(file).items()}
    except (LoadError, OSError, Damaged):
        return None
    if not (form := unreadable_format(config, tensors, dequantizes=False)):
        return None
    return LoadError(f"mlx_lm can't load the weights in {path}: they are in {form}.", IN_MLX_FORMAT)


# ---- sizes --------------------------------------------------------------------------------------


def _headers(path: Path, files: list[Path]) -> Tensors:
    tensors: Tensors = {}
    for file in files:
        try:
            tensors |= read_header(file)
        except OSError as error:
            raise unreadable(file, error) from error
        except Damaged as error:
            raise LoadError(
                f"The weights in {path} are damaged or cut short ({error}).", "Download them again."
            ) from error
    return tensors


def check_sizes(path: Path, config: dict[str, Any], tensors: Tensors) -> None:
    """Refuse a config that asks for more layers than there are tensors, or for wider ones than any tensor is.

    Args:
        path: Of the model, for the message.
        config: Its config.json.
        tensors: Those of its weights.

    Raises:
        LoadError: They don't fit each other.
    """
    if not tensors:
        raise LoadError(f"The weights in {path} hold no tensors.", "Download them again.")
    largest = max(map(math.prod, tensors.values()))
    for name, value in _numbers(config):
        if not isinstance(value, int):
            raise LoadError(
                f"{path}/config.json says {name} {str(value)[:40]!r}, which is not a number.", _AGAIN
            )
        allowed = max(len(tensors), LAYERS) if _LAYER_COUNT.fullmatch(name) else PACKED * largest
        if _WINDOW.fullmatch(name):
            allowed = WIDEST
        if not -1 <= value <= allowed:
            shown = value if abs(value) < 10**15 else "a number of many digits"
            raise LoadError(
                f"The weights in {path} don't fit its config.json: it says {name} {shown},"
                f" and they are {len(tensors)} tensors of at most {largest} numbers.",
                "Download both again.",
            )


def _numbers(table: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The fields of a config, and of the configs in it, that say how much is built. Sizes may be lists, one for each
    layer, which the model's own code checks; what is no number in the place of a window is left to nobody else."""
    for name, value in table.items():
        if _WINDOW.fullmatch(name) and value is not None:
            yield name, int(value) if isinstance(value, float) and value.is_integer() else value
        elif isinstance(value, int) and any(form.fullmatch(name) for form in (_LAYER_COUNT, _SIZE)):
            yield name, value
        elif isinstance(value, dict):
            yield from _numbers(value)
