"""Reading a model in a directory: regular files alone, and of weights no more than their headers."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from fnmatch import fnmatch
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from engine.errors import LoadError
from engine.model import directory
from engine.model.directory import IN_MLX_FORMAT, QUANTIZATION, WEIGHTS, read_object
from engine.models_on_disk.facts import DiskModel, kv_size, number, stored_weights

# ---- the families that mlx_lm knows, read off its sources: importing it takes a second, and MLX with it ----

_MODEL = re.compile(r"^class Model\b|^from \.\w+ import .*\bModel\b", re.MULTILINE)
DEQUANTIZE = frozenset({
    "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "joyai_llm_flash", "kimi_k2", "kimi_k25", "kimi_vl", "mimo_v2_flash",
    "minimax", "minimax_m2", "minimax_m3_vl", "ministral3", "mistral4",
})  # fmt: skip
"""Families whose code in mlx_lm reads FP8 weights with a scale for each block."""


@cache
def known_family(family: str) -> bool | None:
    """True if mlx_lm has a family; None if mlx_lm isn't installed.

    Args:
        family: `model_type` of a config.
    """
    found = importlib.util.find_spec("mlx_lm")
    if found is None or not found.submodule_search_locations:
        return None
    package = Path(next(iter(found.submodule_search_locations)))
    try:
        remapped = (package / "utils.py").read_text(encoding="utf-8").partition("MODEL_REMAPPING = ")[2]
        name = ast.literal_eval(remapped.partition("\n}")[0] + "}").get(family, family)
        if not re.fullmatch(r"\w[\w.-]{0,99}", name, re.ASCII):
            return False
        return bool(_MODEL.search((package / "models" / f"{name}.py").read_text(encoding="utf-8")))
    except (OSError, ValueError, SyntaxError):
        return False


# ---- models ------------------------------------------------------------------------------------

FILES = 10_000
"""Entries of a directory that are looked at, at most."""
VALUES = 100_000
"""Values of a config at most, an object counted as four; 7,000 were seen in a config that quantizes modules each its
own way."""
INDEX = "model.safetensors.index.json"
_PART = re.compile(r"model.*-(\d{1,6})-of-(\d{1,6})\.safetensors")
_WINDOWS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")


def read_model(model: DiskModel) -> DiskModel:
    """Read all that is known of a model.

    Args:
        model: Where it is, and its name.

    Returns:
        It with its facts, or with the reason that it can't be read. Never raises for what a file holds.
    """
    facts: dict[str, Any] = {"notes": model.notes}
    try:
        _fill(facts, model.path)
    except LoadError as error:  # the path, which stands beside the problem, is left out
        problem = str(error).replace(f"{model.path}/", "").replace(f"weights in {model.path}", "weights")
        facts["problem"] = problem.replace(f"{model.path} ", "It ")
    except OSError as error:
        facts["problem"] = f"It can't be read: {error.strerror or error}. Check its permissions."
    return replace(model, **facts)


def _fill(facts: dict[str, Any], path: Path) -> None:
    """Put in the facts of a model, as fields of `DiskModel`.

    Raises:
        LoadError: It can't be loaded; what is known of it is in.
        OSError: Its directory can't be read.
    """
    with os.scandir(path) as entries:
        names = frozenset(entry.name for entry in islice(entries, FILES))
    files = [path / name for name in sorted(names) if fnmatch(name, WEIGHTS)]
    facts["size"] = sum(os.path.getsize(file) for file in files if os.path.exists(file))
    foreign = ""
    if any(name.endswith(".gguf") for name in names):
        foreign = "It holds GGUF weights, which this program can't read. Use the model's safetensors."
    elif any(name.endswith((".bin", ".pth", ".pt")) for name in names):
        foreign = "Its weights are PyTorch's. Convert it with mlx_lm.convert."
    if "config.json" not in names:
        facts["incomplete"] = not foreign
        raise LoadError(foreign or "It has no config.json. Download it.")
    config = read_object(path / "config.json", VALUES)
    family, text = config.get("model_type"), config.get("text_config")
    if not isinstance(family, str) or not family:
        raise LoadError("Its config.json names no model_type: it is not a language model.")
    inner = {**config, **text} if isinstance(text, dict) else config
    if config.get("model_file"):
        facts["notes"] += ("It comes with code of its own, which runs only with --trust-remote-code.",)
    if inner is not config:
        facts["notes"] += ("Its parts for anything but text are counted, but not loaded.",)
    facts |= {"family": family, "known": known_family(family)}
    sizes = {
        "layers": number(inner, "num_hidden_layers", "n_layer", "n_layers") or None,
        "context": number(inner, *_WINDOWS) or None,
    }
    if not files:
        facts |= {"incomplete": not foreign, **sizes}
        raise LoadError(foreign or f"It has no weights ({WEIGHTS}). Download them.")
    try:
        tensors = directory.read_weights(path, files)
    except LoadError as error:
        facts |= {"incomplete": isinstance(error.__cause__, FileNotFoundError), **sizes}
        raise
    missing = _missing(path, names, {file.name for file in files})
    if not missing:
        directory.check_sizes(path, config, tensors)
    weights = stored_weights(tensors, inner)
    facts |= {"weights": weights, "kv": kv_size(family, inner, weights.dtype), **sizes}
    if missing:
        facts["incomplete"] = True
        raise LoadError(missing)
    if facts["known"] is False and not config.get("model_file"):
        raise LoadError(f"mlx_lm has no family {family[:100]}. A later mlx_lm may have it.")
    if "quantization_config" not in config and QUANTIZATION in names:
        config = {**config, "quantization_config": read_object(path / QUANTIZATION, VALUES)}
    dequantizes = bool(DEQUANTIZE & {family, str(inner.get("model_type"))})
    if form := directory.unreadable_format(config, tensors, dequantizes):
        raise LoadError(f"mlx_lm can't load its weights: they are in {form}. {IN_MLX_FORMAT}")


def _missing(path: Path, names: frozenset[str], weights: set[str]) -> str:
    """A sentence about missing files: weights that the index names, else that their own names count."""
    wanted: set[str] = set()
    for match in filter(None, map(_PART.fullmatch, sorted(weights))):
        if (count := int(match[2])) <= FILES:
            name, begin, end = match[0], match.start(1), match.end(1)
            wanted = {f"{name[:begin]}{n:0{end - begin}}{name[end:]}" for n in range(1, count + 1)}
            break
    if INDEX in names:
        listed = read_object(path / INDEX, 4 * VALUES).get("weight_map")
        if isinstance(listed, dict):
            wanted = {name for name in listed.values() if isinstance(name, str)}
    if missing := len(wanted - weights):
        return f"{missing} of its {missing + len(weights)} weight files are missing. Download them."
    if not names.intersection(directory.TOKENIZER_FILES):
        return "It has no tokenizer (tokenizer.json). Copy it from the model's original directory."
    return ""
