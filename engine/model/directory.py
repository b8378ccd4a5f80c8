"""Checks of a model directory, before mlx_lm and transformers open its files.

These libraries would wait forever for a named pipe, read `/dev/zero` without end, and build any number of layers that
config.json asks for. The headers of safetensors files are read here, too, by the safetensors library.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import LoadError, first_line
from engine.files import CONFIG_LIMIT, MIB, check_regular, open_regular, read_regular, typed

# ---- safetensors -------------------------------------------------------------------------------

HEADERS = 64 * MIB
"""Maximum total size in bytes of the headers of a model's files; the largest known are 15 MiB, for 91,000 tensors in
160 files."""


class TensorEntry(NamedTuple):
    """The entry of one tensor in a header."""

    dtype: str
    """Name of the type in safetensors, such as `BF16`."""
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes in the file."""
        bits = re.search(r"\d+", self.dtype)  # `BOOL` has no digits
        return math.prod(self.shape) * (int(bits[0]) if bits else 8) // 8


def read_weights(path: Path, files: Iterable[Path]) -> dict[str, TensorEntry]:
    """Read the headers of safetensors files.

    Args:
        path: The model's directory, for messages.
        files: Its files, unchecked.

    Returns:
        The tensors by name.

    Raises:
        LoadError: A file can't be read, or its header is invalid, too large, or doesn't fit the size of the file.
    """
    from safetensors import SafetensorError, safe_open  # imported late because it imports numpy

    entries: dict[str, TensorEntry] = {}
    left = HEADERS
    for file in files:
        try:
            with open_regular(file) as opened:  # the library would wait for a named pipe
                length = int.from_bytes(opened.read(8), "little")
                most = min(left, os.fstat(opened.fileno()).st_size - 8)
            if not 0 < length <= most:
                raise ValueError("it has no header")
            left -= length
            with safe_open(file, framework="numpy") as tensors:
                slices = ((name, tensors.get_slice(name)) for name in tensors.keys())  # noqa: SIM118
                for name, each in slices:
                    entries[name] = TensorEntry(each.get_dtype(), tuple(each.get_shape()))
        except OSError as error:
            raise unreadable(file, error) from error
        except (SafetensorError, ValueError) as error:
            why = f"{file.name}: {first_line(error, 160)}"
            raise LoadError(f"The weights in {path} are damaged or cut short ({why}).", _ALL_AGAIN) from error
    return entries


# ---- directories -------------------------------------------------------------------------------

WEIGHTS = "model*.safetensors"
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "tiktoken.model", "vocab.json",
)  # fmt: skip
SETTINGS = (
    "generation_config.json", "hf_quant_config.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.json",
)  # fmt: skip
"""Files that must contain a JSON object, if they exist."""
VOCABULARIES = ("tokenizer.json", "vocab.json", "added_tokens.json")
"""Files that must contain a JSON object with a vocabulary, if they exist."""
LIMITS = {"chat_template.jinja": MIB} | dict.fromkeys(
    ("merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "tiktoken.model"), 64 * MIB
)
"""Maximum size in bytes of some other files."""
SUFFIXES = {".json", ".jinja", ".model", ".txt", ".tiktoken", ".safetensors", ".spm", ".bpe", ".codes"}
"""Suffixes of files that tokenizers may read."""
VALUES, VALUES_OF_VOCABULARY = 1_000_000, 3_000_000
"""Maximum number of values of a JSON file, without and with a vocabulary; an object counts as four. Each takes 200
bytes and 4 microseconds. Lists of 65,000 added tokens have 700,000; gemma3's tokenizer.json has 1.9 million."""
TOKENS = 100_000
"""Maximum number of entries of a vocabulary, unless twice the longest dimension of a tensor is larger. An added token
takes 2 KB and 50 µs."""
LAYERS = 512
"""Number of layers that are always allowed, since building them takes only a second. For more, the weights must have as
many tensors."""
PACKED = 32
"""Maximum number of quantized values packed into one element of a tensor."""
_LAYER_COUNT = re.compile(r"(n|num)_(\w+_)?layers?")
_SIZE = re.compile(
    r"n_embd|n_head|n_inner|d_model|vocab_size|head_dim|(hidden|intermediate)_size|num_(\w+_)?heads"
)
WINDOWS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
"""Fields of a config for the size of the context window."""
WIDEST = 2**40
"""Maximum size of a context window in tokens."""
_AGAIN, _ALL_AGAIN = "Download it again.", "Download them again."
_GIVE_FILES = "Give the directory that holds the model's files."
_GIVE_ADAPTER = "Give the directory that mlx_lm.lora wrote."
_NO_CONFIG = "It is not the config of a language model."


def named(spec: str) -> Path | None:
    """The path that was given as a model's name; None if it can only be a hub id.

    Raises:
        LoadError: It is a path that doesn't exist.
        PathError: It is not a valid path.
    """
    path = typed(spec)
    if os.path.lexists(path):
        return path
    looks = spec.startswith((".", "/", "~")) or spec.endswith(("/", ".gguf", ".safetensors"))
    if looks or spec.count("/") > 1 or ("/" in spec and path.parent.is_dir()):
        raise LoadError(f"No such directory: {spec}.", "Check the path's spelling.")
    return None


def check(path: Path, needs_weights: bool = True) -> None:
    """Check that a path is a valid model directory.

    Args:
        path: The directory.
        needs_weights: True if there must be weights; otherwise they are not checked.

    Raises:
        LoadError: A file is missing or invalid; the message names it, the hint says where to get it.
    """
    if os.path.isfile(path):
        if path.suffix != ".gguf":
            raise LoadError(f"{path} is a file, not a model directory.", f"Did you mean {path.parent}?")
        message = f"{path} is a GGUF file, which this program can't read."
        raise LoadError(message, "Give a directory with safetensors, or convert with mlx_lm.convert.")
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except NotADirectoryError as error:
        raise LoadError(f"{path} is not a directory.", _GIVE_FILES) from error
    except OSError as error:
        raise LoadError(f"{path} can't be read: {error.strerror}.", "Check its permissions.") from error
    weights = sorted(path.glob(WEIGHTS))
    if needs_weights and not weights and any(name.endswith(".gguf") for name in names):
        message = f"{path} holds GGUF weights, which this program can't read."
        raise LoadError(message, "Use the model's safetensors, or convert them with mlx_lm.convert.")
    if "config.json" not in names:
        raise LoadError(f"{path} has no config.json.", _GIVE_FILES)
    config = read_object(path / "config.json")
    if not config.get("model_type"):
        raise LoadError(f"{path}/config.json names no model_type.", _NO_CONFIG)
    if not isinstance(config["model_type"], str):
        raise LoadError(f"{path}/config.json has a model_type that is not a string.", _NO_CONFIG)
    if needs_weights and not weights:
        message = f"{path} has no weights ({WEIGHTS})."
        raise LoadError(message, "Download them, or convert with mlx_lm.convert.")
    if not any(name in names for name in TOKENIZER_FILES):
        message = f"{path} has no tokenizer (tokenizer.json)."
        raise LoadError(message, "Copy it from the model's original directory.")
    if needs_weights:
        tensors = read_weights(path, weights)
        check_sizes(path, config, tensors)
        longest = max((size for entry in tensors.values() for size in entry.shape), default=0)
    else:
        sizes = [size for name, size in _numbers(config) if name == "vocab_size" and isinstance(size, int)]
        longest = min(max(sizes, default=0), WIDEST)
    for name in names:
        _check_file(path / name, max(TOKENS, 2 * longest))


def check_adapter(path: Path) -> None:
    """Check that a path is a valid adapter directory.

    Raises:
        LoadError: A file is missing or invalid; the message names it.
    """
    for name in ("adapter_config.json", "adapters.safetensors"):
        if os.path.lexists(path / name):
            continue
        if os.path.lexists(path / "adapter_model.safetensors"):
            raise LoadError(
                f"The adapter in {path} is one of PEFT, which mlx_lm can't load.",
                "Merge it into its model with PEFT, and convert that with mlx_lm.convert.",
            )
        raise LoadError(f"The adapter directory {path} has no {name}.", _GIVE_ADAPTER)
    config = read_object(path / "adapter_config.json")
    if "lora_layers" in config and "num_layers" not in config:
        raise LoadError(
            f"{path}/adapter_config.json is of an early mlx_lm: it has lora_layers, and mlx_lm now reads num_layers.",
            "Rename lora_layers to num_layers in it.",
        )
    if not read_weights(path, [path / "adapters.safetensors"]):
        raise LoadError(f"{path}/adapters.safetensors holds no tensors.", _GIVE_ADAPTER)


def _check_file(path: Path, most: int) -> None:
    """Check a file that mlx_lm or a tokenizer may read.

    Args:
        path: The file.
        most: Maximum number of entries of a vocabulary.
    """
    name = path.name
    if name in SETTINGS:
        try:
            read_object(path)
        except LoadError as error:
            # mlx_lm ignores a generation_config.json that isn't JSON
            if name != "generation_config.json" or not isinstance(error.__cause__, json.JSONDecodeError):
                raise
    elif name in VOCABULARIES:
        content = read_object(path, VALUES_OF_VOCABULARY)
        model = content.get("model")
        words = model.get("vocab") if isinstance(model, dict) else None
        for tokens in (content, content.get("added_tokens"), words):
            if isinstance(tokens, dict | list) and len(tokens) > most:
                raise LoadError(f"{path} has {len(tokens)} tokens, and the model far fewer.", _AGAIN)
    elif name in LIMITS or (path.suffix in SUFFIXES and not path.is_dir()):
        try:
            check_regular(path, LIMITS.get(name))
        except OSError as error:
            raise unreadable(path, error) from error


def read_object(path: Path, values: int = VALUES) -> dict[str, Any]:
    """Read a file with a JSON object.

    Args:
        path: The file.
        values: Maximum number of values in it.

    Raises:
        LoadError: The file can't be read, or contains something else.
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
    """The error for a file of a model that can't be read."""
    return LoadError(
        f"{path} can't be read: {error.strerror or error}.", "Check the file, or download it again."
    )


# ---- formats of quantized weights ----------------------------------------------------------------

_OWN_METHODS = frozenset({"bitnet", "mxfp4", "mxfp8"})
_PACKED_FORMATS = frozenset({"nvfp4-pack-quantized", "mxfp4-pack-quantized", "pack-quantized"})
"""The formats of compressed-tensors that mlx_lm reads."""
IN_MLX_FORMAT = "Use a version of it in MLX's format, or convert its unquantized weights with mlx_lm.convert."
QUANTIZATION = "hf_quant_config.json"


def unreadable_format(
    config: Mapping[str, Any], tensors: Mapping[str, TensorEntry], dequantizes: bool
) -> str:
    """Name of the format of a model's quantized weights if mlx_lm (0.32) can't load it; empty if it can.

    Args:
        config: The model's config.json, with `quantization_config` from `hf_quant_config.json` if only that has it.
        tensors: Tensors of the model's weights.
        dequantizes: True if mlx_lm's code for the family reads FP8 weights with a scale for each block.
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
    """The error that names the format of a model's weights, if mlx_lm can't load it."""
    try:
        config = read_object(path / "config.json")
        if "quantization_config" not in config and (path / QUANTIZATION).exists():
            config["quantization_config"] = read_object(path / QUANTIZATION)
        form = unreadable_format(config, read_weights(path, path.glob(WEIGHTS)), dequantizes=False)
    except LoadError:
        return None
    message = f"mlx_lm can't load the weights in {path}: they are in {form}."
    return LoadError(message, IN_MLX_FORMAT) if form else None


# ---- sizes --------------------------------------------------------------------------------------


def check_sizes(path: Path, config: dict[str, Any], tensors: Mapping[str, TensorEntry]) -> None:
    """Check that the sizes in a config, such as layers and widths, are plausible for the tensors of the weights.

    Args:
        path: Directory of the model, for messages.
        config: Content of its config.json.
        tensors: Tensors of its weights.

    Raises:
        LoadError: Config and weights don't fit each other.
    """
    if not tensors:
        raise LoadError(f"The weights in {path} hold no tensors.", _ALL_AGAIN)
    largest = max(math.prod(entry.shape) for entry in tensors.values())
    for name, value in _numbers(config):
        if not isinstance(value, int):
            message = f"{path}/config.json says {name} {str(value)[:40]!r}, which is not a number."
            raise LoadError(message, _AGAIN)
        allowed = max(len(tensors), LAYERS) if _LAYER_COUNT.fullmatch(name) else PACKED * largest
        if name in WINDOWS:
            allowed = WIDEST
        if not -1 <= value <= allowed:
            shown = value if abs(value) < 10**15 else "a number of many digits"
            raise LoadError(
                f"The weights in {path} don't fit its config.json: it says {name} {shown},"
                f" and they are {len(tensors)} tensors of at most {largest} numbers.",
                "Download both again.",
            )


def _numbers(table: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The numbers of layers, sizes and windows in a config and in nested configs. Sizes that are lists, with one for
    each layer, are left to the model's own code; a window that is not a number is yielded as it is."""
    for name, value in table.items():
        if name in WINDOWS and value is not None:
            yield name, int(value) if isinstance(value, float) and value.is_integer() else value
        elif isinstance(value, int) and any(form.fullmatch(name) for form in (_LAYER_COUNT, _SIZE)):
            yield name, value
        elif isinstance(value, dict):
            yield from _numbers(value)
