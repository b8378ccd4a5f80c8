"""The models on this disk: where they are found, their facts, and whether they fit in memory.

Places are the hub's cache, LM Studio's folders, given directories and recently used models. Facts are read from
config.json and the headers of the weights, only from regular files. Directories are searched no deeper than models are
stored, so that the search ends even if a link leads back.
"""

from __future__ import annotations

import ast
import filecmp
import importlib.util
import math
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from engine import pocket
from engine.errors import LoadError
from engine.files import read_regular
from engine.model import directory
from engine.model.directory import (
    IN_MLX_FORMAT,
    QUANTIZATION,
    WEIGHTS,
    WIDEST,
    WINDOWS,
    TensorEntry,
    read_object,
)
from engine.model.download import hub_cache

Source = Literal["bundled", "recent", "given", "hub", "LM Studio"]
WORKING_SHARE = 1.1
"""Memory of a loaded model as a multiple of its weights: the program and a chunk's activations take some, too."""


class StoredWeights(Struct, frozen=True):
    """The facts of a model's weights, from the headers of its files."""

    parameters: int
    """Number of parameters; a quantized weight counts as the numbers packed in it."""
    size: int
    """Bytes of all tensors."""
    bits: tuple[int, ...]
    """Bits of quantized weights, those of most parameters first; empty if none are quantized."""
    group_size: int | None
    """Number of weights that share a scale; None if none are quantized in groups."""
    dtype: str
    """Dtype, such as `BF16`, of the scales, or else of most weights that are not quantized."""

    @property
    def bits_a_parameter(self) -> float:
        """Average number of bits per parameter, with the scales."""
        return self.size * 8 / self.parameters if self.parameters else 0.0


class KVSize(Struct, frozen=True):
    """Bytes of the KV cache, in the dtype of the files."""

    growing: int
    """Bytes per token, in the layers that keep all tokens."""
    windowed: int = 0
    """Bytes per token up to `window` tokens, in the layers that only keep the last ones."""
    window: int = 0
    """Number of tokens that these layers keep."""

    def at(self, tokens: int) -> int:
        """Bytes after this number of tokens."""
        return self.growing * tokens + self.windowed * min(tokens, self.window)

    def tokens_in(self, room: int, most: int) -> int:
        """The number of tokens, at most `most`, that fit in `room` bytes."""
        return bisect_right(range(most + 1), room, key=self.at) - 1


class DiskModel(Struct, frozen=True):
    """One model in the list."""

    name: str
    """A hub id, or the last parts of the path; not yet printable."""
    path: Path
    source: Source
    hub_id: str = ""
    """Id of a model that came from the hub; not yet printable."""
    family: str = ""
    """`model_type` of its config.json, empty if it can't be read; not yet printable."""
    layers: int | None = None
    context: int | None = None
    """Context window in tokens; None if the config doesn't have it."""
    size: int = 0
    """Bytes of its weights' files."""
    weights: StoredWeights | None = None
    kv: KVSize | None = None
    """Bytes of its cache; None if that isn't known for the family."""
    known: bool | None = None
    """True if mlx_lm has this family; None if mlx_lm isn't installed."""
    problem: str = ""
    """Why it can't be loaded, and what to do about it: a sentence or two; not yet printable. Empty if it can be."""
    incomplete: bool = False
    """True if some of its files are missing."""
    notes: tuple[str, ...] = ()
    """Sentences about it; not yet printable."""

    @property
    def downloads(self) -> bool:
        """True if opening it downloads what is missing."""
        return self.incomplete and bool(self.hub_id)

    @property
    def spec(self) -> str:
        """The name to open it by: its path, `pocket`, or its hub id if files are missing; empty if it can't be."""
        if self.downloads:
            return self.hub_id
        if self.problem:
            return ""
        return "pocket" if self.source == "bundled" else str(self.path)

    @property
    def bits(self) -> str:
        """The format of its weights: `4-bit`, `4/6-bit`, `bf16`; empty if that isn't known."""
        if self.weights is None:
            return ""
        if self.weights.bits:
            return "/".join(map(str, self.weights.bits[:2])) + "-bit"
        return self.weights.dtype.lower()

    def fits(self, available: int | None) -> int | None:
        """Estimate of the tokens of context that fit in memory with the weights; 0 if the weights don't fit.

        Args:
            available: Bytes of memory that a program can take.

        Returns:
            The number of tokens; None if it isn't known.
        """
        if available is None or self.weights is None:
            return None
        room = available - int(self.weights.size * WORKING_SHARE)
        if room <= 0:
            return 0
        return self.kv.tokens_in(room, self.context) if self.kv and self.context else None


# ---- parameters and bits of weights from the headers of their files ----------------------------

Entries = Mapping[str, TensorEntry]
FLOATS = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}
"""Size in bytes of the dtypes that a cache can have."""
BITS, GROUPS = (2, 3, 4, 5, 6, 8), (64, 32, 128, 16)
MX_FORMATS = {64: (4, 16), 128: (4, 32), 256: (8, 32)}
"""Bits and group size of nvfp4, mxfp4 and mxfp8, whose scales are bytes, by the product of both."""
_NO_PARAMETER = (
    ".scales", ".biases", ".qzeros", ".g_idx", ".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".input_scale",
    ".inv_freq", "_scales", "_scale_inv",
)  # fmt: skip
"""Ends of the names of tensors that belong to a weight and don't count as parameters."""
_BYTES_OF_TWO = "_blocks"
"""End of the names of tensors with two numbers per byte: mxfp4 as on the hub."""


def stored_weights(entries: Entries, config: Mapping[str, Any]) -> StoredWeights:
    """The facts of a model's weights, from the headers.

    Args:
        entries: All tensors of its files.
        config: Its config.json, for the groups of quantized weights and for formats that aren't mlx's own.
    """
    stated = (config.get(name) for name in ("quantization", "quantization_config"))
    quantization: Mapping[str, Any] = next((each for each in stated if isinstance(each, dict)), {})
    packed = _packed(entries, quantization)
    claimed = quantization.get("bits")
    by_bits: Counter[int] = Counter()
    plain: Counter[str] = Counter()
    for name, entry in entries.items():
        numbers = math.prod(entry.shape)
        if name in packed:
            by_bits[packed[name][0]] += numbers * 32 // packed[name][0]
        elif name.endswith(".qweight") and claimed in BITS:
            by_bits[claimed] += numbers * 32 // claimed
        elif name.endswith(_BYTES_OF_TWO) and entry.dtype == "U8":
            by_bits[4] += numbers * 2
        elif entry.dtype.startswith("F8"):
            by_bits[8] += numbers
        elif not name.endswith(_NO_PARAMETER):
            plain[entry.dtype] += numbers
    groups = Counter(group for _, group in packed.values())
    scales = Counter(entries[f"{name.removesuffix('weight')}scales"].dtype for name in packed)
    kinds = [kind for kind, _ in (*scales.most_common(), *plain.most_common())]
    return StoredWeights(
        parameters=by_bits.total() + plain.total(),
        size=sum(entry.size for entry in entries.values()),
        bits=tuple(bits for bits, _ in by_bits.most_common()),
        group_size=groups.most_common(1)[0][0] if groups else None,
        dtype=next((kind for kind in kinds if kind in FLOATS), next(iter(plain), "")),
    )


def _packed(entries: Entries, quantization: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Bits and group size of each quantized weight of mlx, by its name.

    A column of a weight has 32 / bits numbers, and there is a scale per group: the numbers of columns of both give the
    product of bits and group size. The config's group size divides it; if not, mlx's default of 64 is the likeliest.
    """
    found = {}
    for name, entry in entries.items():
        module = name.removesuffix("weight")
        scales = entries.get(f"{module}scales")
        if entry.dtype == "U32" and entry.shape and scales and scales.shape and scales.shape[-1]:
            product = 32 * entry.shape[-1] // scales.shape[-1]
            stated = (quantization.get(module.removesuffix(".")), quantization)
            likely = [number(each, "group_size") for each in stated if isinstance(each, dict)]
            groups = (group for group in (*likely, *GROUPS) if group in GROUPS)
            ways = [(product // group, group) for group in groups if not product % group]
            if scales.dtype == "U8" and product in MX_FORMATS:
                ways = [MX_FORMATS[product]]
            if way := next((way for way in ways if way[0] in BITS), None):
                found[name] = way
    return found


# ---- bytes of the KV cache per token, from config.json -----------------------------------------
# tests/engine/models_on_disk/test_reading.py compares the figures with caches of mlx_lm's families.

KEEP_ALL = frozenset({
    "afm7", "apertus", "bailing_moe", "cohere", "deepseek", "deepseek_v2", "dots1", "ernie4_5", "ernie4_5_moe",
    "exaone", "falcon_h1", "gemma", "gemma2", "glm", "glm4", "glm4_moe", "granite", "granitemoe", "helium",
    "hunyuan_v1_dense", "internlm2", "internlm3", "Klear", "lille-130m", "llama4", "llama4_text", "mimo", "minicpm",
    "minimax", "minimax_m2", "mixtral", "nanochat", "nemotron", "olmo2", "olmoe", "phi", "phi3", "phi3small",
    "phimoe", "qwen2", "qwen2_5_vl", "qwen2_moe", "qwen2_vl", "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe",
    "seed_oss", "smollm3", "solar_open", "stablelm", "starcoder2", "telechat3",
})  # fmt: skip
"""Families in which every layer keeps the keys and values of all tokens."""
BY_KIND = frozenset({
    "afmoe", "cohere2", "exaone4", "exaone_moe", "gear", "gemma3", "gemma3_text", "gemma3n", "gemma4",
    "gemma4_text", "gemma4_unified", "gpt_oss", "granitemoehybrid", "iquestcoder", "laguna", "lfm2", "lfm2_moe",
    "llama", "llava", "mellum", "ministral3", "mistral", "mistral3", "muse_glimmer", "olmo3", "olmo_hybrid",
    "pixtral", "plamo3", "qwen3_5", "qwen3_5_moe", "qwen3_next", "spark2_5", "step3p5", "xverse",
})  # fmt: skip
"""Families with layers of several kinds, given in the config: keys and values of all tokens, of a window, or none."""
UNGROUPED = frozenset({"gpt2", "gpt_neox", "gptj", "phi-msft", "phixtral", "qwen", "talkie"})
"""Families that keep all tokens, with keys and values for each query head."""
LATENT = {"deepseek_v3", "glm4_moe_lite", "joyai_llm_flash", "kimi_k2", "kimi_k25", "kimi_vl", "mistral4"}
"""Families that keep a latent vector per token, from which the keys and values of all heads are computed."""
RECURRENT = frozenset({"falcon_mamba", "mamba", "mamba2", "rwkv7"})
"""Families without keys and values."""
MOST_LAYERS = 10_000
_GEMMA3 = {"head_dim": 256, "sliding_window": 512, "sliding_window_pattern": 6}
LEFT_OUT: Mapping[str, Mapping[str, int]] = {
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "gemma3": {**_GEMMA3, "num_attention_heads": 8, "num_key_value_heads": 4},
    "gemma3_text": {**_GEMMA3, "num_attention_heads": 4, "num_key_value_heads": 1},
    **{name: {"full_attention_interval": 4} for name in ("qwen3_5", "qwen3_5_moe", "qwen3_next")},
}
"""mlx_lm's defaults for numbers that configs on the hub leave out."""


def kv_size(family: str, config: Mapping[str, Any], dtype: str) -> KVSize | None:
    """Bytes per token of all layers together.

    Args:
        family: Name of the model's family in mlx_lm.
        config: Its config.json, or the text model's part of it.
        dtype: Dtype of the cache, such as `BF16`.

    Returns:
        The sizes; None if the family is not listed above, or the config lacks a number.
    """
    config = {**LEFT_OUT.get(family, {}), **config}
    layers = number(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    heads = number(config, "num_attention_heads", "n_head", "num_heads")
    kv_heads = (family not in UNGROUPED and number(config, "num_key_value_heads", "num_kv_heads")) or heads
    width = number(config, "head_dim") or number(config, "hidden_size", "n_embd", "d_model") // max(1, heads)
    pair = 2 * FLOATS.get(dtype, 2)
    if family in LATENT:
        each = (number(config, "kv_lora_rank") + number(config, "qk_rope_head_dim")) * pair // 2
    elif family == "deepseek_v2":  # keys and values of all heads, and keys are wider
        sizes = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        each = heads * sum(number(config, name) for name in sizes) * pair // 2
    else:
        each = kv_heads * width * pair
    if family in RECURRENT:
        return KVSize(0)
    if layers * each and family in KEEP_ALL | UNGROUPED | LATENT:
        return KVSize(layers * each)
    if not layers * each or family not in BY_KIND or layers > MOST_LAYERS:
        return None
    kinds = _kinds(config, layers)[: max(0, layers - number(config, "num_kv_shared_layers"))]
    ringed, window = kinds.count("sliding_attention"), number(config, "sliding_window")
    whole = each
    if family.startswith("gemma4"):  # the layers that keep all have wider heads, and fewer
        shared = config.get("attention_k_eq_v") is True and number(config, "num_global_key_value_heads")
        whole = (shared or kv_heads) * (number(config, "global_head_dim") or width) * pair
    growing = whole * (kinds.count("full_attention") + kinds.count("attention"))
    return KVSize(growing, ringed * each, window) if window or not ringed else None


def _kinds(config: Mapping[str, Any], layers: int) -> list[Any]:
    """The kinds of the layers, from a list, or from a pattern of the layers that keep all tokens."""
    listed, pattern = config.get("layer_types"), config.get("sliding_window_pattern")
    if isinstance(listed, list):
        return listed
    if isinstance(attending := config.get("full_attn_idxs"), list):  # lfm2: all others are convolutions
        return ["full_attention"] * len(attending)
    if not isinstance(pattern, str) or not pattern:  # exaone4 has one: LLLG
        every = number(config, "sliding_window_pattern", "full_attention_interval") or 1
        pattern = "L" * min(every - 1, layers) + "G"
    other = "sliding_attention" if number(config, "sliding_window") else "linear_attention"
    return [other if pattern[at % len(pattern)] == "L" else "full_attention" for at in range(layers)]


def number(config: Mapping[str, Any], *names: str) -> int:
    """The first of some fields that is a positive integer; 0 if there is none."""
    values = (config.get(name) for name in names)
    return next((value for value in values if type(value) is int and 0 < value <= WIDEST), 0)


# ---- the families that mlx_lm knows, read from its sources: importing it takes a second, and imports MLX ----

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
"""Largest number of entries that are read of a directory."""
VALUES = 100_000
"""Largest number of values of a config, with an object counted as four; a config that quantizes each module in its own
way had 7,000."""
INDEX = "model.safetensors.index.json"
_PART = re.compile(r"model.*-(\d{1,6})-of-(\d{1,6})\.safetensors")


def read_model(model: DiskModel) -> DiskModel:
    """Read the facts of a model; contents of files never raise.

    Args:
        model: The model's name and place.

    Returns:
        The model with its facts, or with the reason why it can't be loaded.
    """
    facts: dict[str, Any] = {"notes": model.notes}
    try:
        _fill(facts, model.path)
    except LoadError as error:  # without the path, which is shown next to the problem
        problem = str(error).replace(f"{model.path}/", "").replace(f"weights in {model.path}", "weights")
        facts["problem"] = problem.replace(f"{model.path} ", "It ")
    except OSError as error:
        facts["problem"] = f"It can't be read: {error.strerror or error}. Check its permissions."
    return replace(model, **facts)


def _fill(facts: dict[str, Any], path: Path) -> None:
    """Add the facts of a model, as fields of `DiskModel`.

    Raises:
        LoadError: It can't be loaded; the facts known so far are added.
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
    layers = number(inner, "num_hidden_layers", "n_layer", "n_layers")
    sizes = {"layers": layers or None, "context": number(inner, *WINDOWS) or None}
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
    """A sentence about missing files: weights that the index names, or else that their own names count; or the
    tokenizer. Empty if none are missing."""
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


# ---- the places of models ----------------------------------------------------------------------

VARIABLE = "INSPECTOR_MODELS"
"""Environment variable: directories of models, separated as in PATH."""
DEPTH = 2
"""Number of levels below a directory that are searched for models: publisher/model."""
MOST = 5000
"""Largest number of models in the list."""
_REPOSITORY = "models--"


def check_typed(spec: str) -> None:
    """Refuse a typed name of a model if it is a directory that can't be loaded.

    Raises:
        LoadError: The directory can't be loaded; the message says what is missing.
        PathError: No file can have that name.
    """
    if (path := directory.named(spec)) is not None:
        directory.check(path)


def listed(
    directories: Sequence[str] = (), recent: Sequence[str] = (), stopped: Callable[[], bool] = lambda: False
) -> Iterator[DiskModel]:
    """Read all models: the bundled one, recently used ones, those in given directories, the hub's, LM Studio's.

    Args:
        directories: Directories that the user gave; if there are any, nothing else is searched.
        recent: Paths of recently used models.
        stopped: Polled before each model.

    Yields:
        Each model with its facts, as soon as it was read.
    """
    for place in islice(all_places(directories, recent), MOST):
        if stopped():
            return
        yield place if place.problem else read_model(place)


def all_places(directories: Sequence[str] = (), recent: Sequence[str] = ()) -> Iterator[DiskModel]:
    """Find all models, with only their names and paths; each only once, even if several paths lead to it.

    Args:
        directories: Directories that the user gave; if there are any, nothing else is searched.
        recent: Paths of recently used models.
    """
    seen: set[str] = set()
    for model in _places(directories, recent):
        real = str(model.path) if model.problem else os.path.realpath(model.path)
        if real not in seen:
            seen.add(real)
            yield model


def _places(directories: Sequence[str], recent: Sequence[str]) -> Iterator[DiskModel]:
    given = directories or list(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))
    if not directories:
        yield DiskModel("pocket", pocket.directory(), "bundled")
        for path in map(Path, recent):
            if path.is_dir() and not _is_bundled(path):
                yield _at(path, "recent")
    for name in given:
        yield from _below(_path(name), "given", DEPTH)
    if not directories:
        yield from _below(hub_cache(), "hub", 1)
        for folder in ("~/.lmstudio/models", "~/.cache/lm-studio/models"):
            yield from _below(_path(folder), "LM Studio", DEPTH)


def _is_bundled(path: Path) -> bool:
    """True if a directory has the bundled model's weights, as in another installation of the program."""
    name = "model.safetensors"
    try:
        return filecmp.cmp(path / name, pocket.directory() / name, shallow=False)
    except OSError:
        return False


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # unlike Path's own, it keeps the name of an unknown user


def _below(path: Path, source: Source, depth: int) -> Iterator[DiskModel]:
    """Find the models in a directory and the directories in it.

    Args:
        path: The directory.
        source: How it was found; a given directory without a model is listed with that problem.
        depth: Number of levels to search below it.
    """
    given = source == "given" and depth == DEPTH
    try:
        with os.scandir(path) as entries:
            found = sorted(islice(entries, FILES), key=lambda entry: entry.name)
    except (OSError, ValueError) as error:
        if given or not isinstance(error, FileNotFoundError | NotADirectoryError):
            why = getattr(error, "strerror", None) or str(error)
            problem = f"It can't be read: {why}. Check its name and permissions."
            yield replace(_at(path, source), problem=problem)
        return
    names = [entry.name for entry in found]
    if path.name.startswith(_REPOSITORY):
        yield _repository(path, source)
    elif any(n == "config.json" or (n.startswith("model") and n.endswith(".safetensors")) for n in names):
        yield _at(path, source)
    else:
        inner = [Path(entry.path) for entry in found if entry.name[0] != "." and os.path.isdir(entry.path)]
        below = chain.from_iterable(_below(each, source, depth - 1) for each in inner if depth)
        if (first := next(below, None)) is not None:
            yield first
            yield from below
        elif any(name.endswith((".gguf", ".safetensors")) for name in names):
            yield _at(path, source)  # another program's: listed with the reason why it can't be loaded
        elif given:
            problem = "There is no model in it. Give a directory that holds some."
            yield replace(_at(path, source), problem=problem)


def _at(path: Path, source: Source) -> DiskModel:
    """A model in a directory, named by the last parts of its path, or by its hub id if it is a snapshot of the hub."""
    repository = path.parent.parent.name
    if path.parent.name == "snapshots" and repository.startswith(_REPOSITORY):
        return DiskModel(_hub_id(repository), path, source, _hub_id(repository))
    name = path.name if source in ("given", "recent") else "/".join(path.parts[-2:])
    return DiskModel(name or str(path), path, source)


# ---- the hub's cache --------------------------------------------------------------------------


def _repository(path: Path, source: Source) -> DiskModel:
    """A repository of the hub's cache: the snapshot that `main` points to, or else the latest."""
    model = DiskModel(_hub_id(path.name), path, source, _hub_id(path.name))
    parts = sum(name.endswith(".incomplete") for name in _names(path / "blobs"))
    unfinished = f" ({parts} {'file' if parts == 1 else 'files'} in part)" if parts else ""
    snapshots = [each for name in _names(path / "snapshots") if (each := path / "snapshots" / name).is_dir()]
    if not snapshots:
        return replace(model, problem=f"No file of it is complete{unfinished}. Download it.", incomplete=True)
    notes = (f"A download of it was not finished{unfinished}.",) if parts else ()
    try:
        revision = read_regular(path / "refs" / "main", 1024).decode(errors="replace").strip()
    except OSError:
        revision = ""
    newest = max(snapshots, key=lambda each: (each.name == revision, each.stat().st_mtime))
    return replace(model, path=newest, notes=notes)


def _names(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in islice(entries, FILES)]
    except OSError:
        return []


def _hub_id(folder: str) -> str:
    return folder.removeprefix(_REPOSITORY).replace("--", "/")
