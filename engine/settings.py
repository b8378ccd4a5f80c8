"""The settings, with the names and defaults of `mlx_lm.generate` where it has them.

Each is declared once, at its field: flags, forms, checks and words are made from that (`engine/setting.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict, replace

from engine.errors import SettingsError
from engine.grammar_settings import Grammar
from engine.setting import SamplerStage, Setting, SettingsStruct, check, named, settings_of

SEED_LIMIT = 2**64
MOST = 2**31 - 1
LEAST_TEMP = 0.001
"""The least temperature above 0. It divides the rounding of float32 logprobs, 1e-6 where 150,000 tokens are alike: here
probabilities are right to 1 in 1,000. Smaller ones would draw by rounding; 1e-38 overflows."""
LEAST_PENALTY = 0.001
"""The least repetition penalty above 0: it multiplies logits by 1,000; far smaller ones overflow float32."""
KV_BITS = (2, 3, 4, 5, 6, 8)
KV_GROUP_SIZES = (32, 64, 128)
SHARDS = ("auto", "tensor", "pipeline")
MOST_RANKS = 64
LEAST_KEPT_MIB, KEPT_ROWS = 64, 400
"""Of rows of logits by default: 4,096 rows of pocket's, 105 of 152,000 ids. A fork from 250 tokens back that finds its
row takes 300 ms of a model with 0.6 B parameters, one that computes it anew 480."""
DTYPES = ("auto", "file", "float32", "bfloat16", "float16", "dequantized")
_SHAPES = ("logit-bias", "min-tokens", "repetition", "presence", "frequency")
_TRANSFORMERS = ("logit-bias", "repetition", "presence", "frequency", "min-tokens")
ORDERS: Mapping[str, tuple[str, ...]] = {
    "mlx-lm": (*_SHAPES, "top-p", "min-p", "xtc", "top-k", "temperature"),
    "transformers": (*_TRANSFORMERS, "temperature", "top-k", "top-p", "min-p", "xtc"),
    "llama.cpp": (*_SHAPES, "top-k", "top-p", "min-p", "xtc", "temperature"),
}
"""Stage orders by program: mlx_lm.sample_utils, `GenerationMixin._get_logits_processor` of transformers (which has
no presence and frequency penalties and no XTC), and llama.cpp's default chain. Rules for ties and XTC go with the
order: see `engine.sampling.stages`."""
GROUPS = DRAW, PENALTIES, XTC, STOPS, ORDER = (
    "Draw", "Penalties", "XTC: exclude top choices", "Stops and candidates", "Bias and order",
)  # fmt: skip
"""The parts of the settings' dialog."""
LOAD_GROUPS = MODEL, RANKS, MEMORY = "model", "ranks", "memory"
"""The parts of the load settings' flags."""


def _biased(settings: Any) -> str:
    count = len(settings.logit_bias)
    return f"{count} id{'s' * (count != 1)}"


def _min_p(settings: Any) -> str:
    least = settings.min_tokens_to_keep
    return f"{settings.min_p:g}" + (f"≥{least}" if least > 1 else "")


def _min_p_brief(settings: Any) -> str:
    return f"min-p {_min_p(settings).replace('≥', ' ≥')}"


class Settings(SettingsStruct, frozen=True):
    """How tokens are sampled and when generation stops; may change at any step."""

    temp: Annotated[float, Meta(ge=0, le=100), Setting(
        "0 always takes the most probable token; above 1 flattens probabilities", least=LEAST_TEMP,
        label="temperature", group=DRAW, wide=True,
        stage=SamplerStage("temperature", "scale", "temp.", off=(1,))
    )] = 0.0  # fmt: skip
    """0 is greedy: the most probable token, and no filter matters."""
    top_p: Annotated[float, Meta(gt=0, le=1), Setting(
        "keeps the fewest tokens that hold this probability together; 1 is off", label="top-p", group=DRAW,
        stage=SamplerStage("top-p", "order")
    )] = 1.0  # fmt: skip
    min_p: Annotated[float, Meta(ge=0, le=1), Setting(
        "keeps tokens with this share of the top token's probability; 0 is off", label="min-p", group=DRAW,
        stage=SamplerStage("min-p", "shares", shown=_min_p),
        brief=_min_p_brief
    )] = 0.0  # fmt: skip
    min_tokens_to_keep: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "min-p keeps at least this many tokens", group=DRAW, needs="min_p"
    )] = 1  # fmt: skip
    top_k: Annotated[int, Meta(ge=0, le=MOST), Setting(
        "keeps this many of the most probable tokens; 0 is off", label="top-k", group=DRAW, before="min_p",
        stage=SamplerStage("top-k", "order")
    )] = 0  # fmt: skip
    seed: Annotated[int, Meta(ge=0), Setting(
        "each draw is a function of seed, position and re-rolls", most=SEED_LIMIT - 1, group=DRAW, wide=True
    )] = 0  # fmt: skip
    max_tokens: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "a run ends after this many tokens", group=STOPS, short="-m"
    )] = 100  # fmt: skip
    """A run ends with `length` after this many tokens of completion, one that begins there or later after as many more,
    and one whose breakpoint counts tokens after those."""
    min_tokens: Annotated[int, Meta(ge=0, le=MOST), Setting(
        "no end-of-sequence token before this many tokens", group=STOPS,
        stage=SamplerStage("min-tokens", "logits", "barred")
    )] = 0  # fmt: skip
    stop: Annotated[tuple[str, ...], Setting(
        "generation ends when this text appears", label="stop string", group=STOPS,
        brief=lambda on: f"stop {len(on.stop)}"
    )] = ()  # fmt: skip
    """Texts that end the generation, wherever tokens cut them."""
    candidates: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "candidates shown and recorded at each step", group=STOPS
    )] = 20  # fmt: skip
    xtc_probability: Annotated[float, Meta(ge=0, le=1), Setting(
        "share of steps at which the top choices are cut; 0 is off", label="XTC probability", group=XTC,
        stage=SamplerStage("xtc", "shares", "XTC", lambda on: f"{on.xtc_threshold:g}"),
        brief=lambda on: f"xtc {on.xtc_probability:g}/{on.xtc_threshold:g}"
    )] = 0.0  # fmt: skip
    xtc_threshold: Annotated[float, Meta(ge=0, le=0.5), Setting(
        "cuts all tokens above this probability but the least probable of them", label="XTC threshold",
        group=XTC
    )] = 0.1  # fmt: skip
    logit_bias: Annotated[tuple[tuple[int, float], ...], Setting(
        "added to the logits of tokens: ID=VALUE, ID=VALUE", group=ORDER, wide=True,
        stage=SamplerStage("logit-bias", "logits", "bias", _biased),
        brief=lambda on: f"bias {len(on.logit_bias):,}"
    )] = ()  # fmt: skip
    repetition_penalty: Annotated[float, Meta(ge=0, le=100), Setting(
        "divides the logits of recent tokens; 0 is off", least=LEAST_PENALTY, group=PENALTIES,
        stage=SamplerStage("repetition", "logits", "repet."),
        brief=lambda on: f"rep {on.repetition_penalty:g}/{on.repetition_context_size}"
    )] = 0.0  # fmt: skip
    repetition_context_size: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "recent tokens that the repetition penalty sees", label="repetition context", group=PENALTIES
    )] = 20  # fmt: skip
    """How many tokens back the repetition penalty looks, prompt included; so are the others."""
    presence_penalty: Annotated[float, Meta(ge=-100, le=100), Setting(
        "subtracted once from the logits of recent tokens; 0 is off", group=PENALTIES,
        stage=SamplerStage("presence", "logits", "presen."),
        brief=lambda on: f"presence {on.presence_penalty:g}/{on.presence_context_size}"
    )] = 0.0  # fmt: skip
    presence_context_size: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "recent tokens that the presence penalty sees", label="presence context", group=PENALTIES
    )] = 20  # fmt: skip
    frequency_penalty: Annotated[float, Meta(ge=-100, le=100), Setting(
        "subtracted per occurrence from the logits of recent tokens; 0 is off", group=PENALTIES,
        stage=SamplerStage("frequency", "logits", "frequ."),
        brief=lambda on: f"frequency {on.frequency_penalty:g}/{on.frequency_context_size}"
    )] = 0.0  # fmt: skip
    frequency_context_size: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "recent tokens that the frequency penalty sees", label="frequency context", group=PENALTIES
    )] = 20  # fmt: skip
    sampler_order: Annotated[str, Setting(
        "mlx-lm (the default), transformers or llama.cpp, each with its rules for ties and XTC",
        choices=named(tuple(ORDERS)), group=ORDER, wide=True, metavar="ORDER",
        brief=lambda on: f"order {on.sampler_order}"
    )] = "mlx-lm"  # fmt: skip
    """Name of the order of the stages, from `ORDERS`; a grammar comes before them and the draw after them."""
    grammar: Grammar | None = None
    """What the completion must match; None for nothing."""

    def check_together(self, vocabulary: int | None) -> None:
        """See `SettingsStruct`: a logit bias is of the model's tokens."""
        for token, _ in self.logit_bias:
            if vocabulary is not None and token >= vocabulary:
                raise SettingsError(
                    "logit_bias",
                    f"logit bias: token id {token} is outside the model's vocabulary of {vocabulary}.",
                    f"Ids go from 0 to {vocabulary - 1}.",
                )


class LoadSettings(SettingsStruct, frozen=True):
    """The model, and the settings that are fixed once it is loaded."""

    model: Annotated[str, Setting(
        "pocket (the bundled one), a directory, or a hub id (default: pocket)", group=MODEL, metavar="MODEL"
    )] = "pocket"  # fmt: skip
    adapter_path: Annotated[str | None, Setting(
        "adapter to load with the model: its weights and config", group=MODEL, metavar="DIR"
    )] = None  # fmt: skip
    extra_eos_token: Annotated[tuple[str, ...], Setting(
        "a token that also ends the generation, by its text or id", metavar="TOKEN"
    )] = ()  # fmt: skip
    """Tokens that end the sequence besides the model's own, as in mlx_lm.generate: by their text, by their piece as the
    tokenizer's file spells it, or by id."""
    trust_remote_code: Annotated[bool, Setting("run code that comes with the model", group=MODEL)] = False
    max_kv_size: Annotated[Annotated[int, Meta(ge=5)] | None, Setting(
        "use a rotating KV cache, of this many tokens", group=MODEL,
        says="a whole number from 5 up (the first 4 tokens are always kept)"
    )] = None  # fmt: skip
    """Where the model doesn't build its own caches."""
    no_kv_cache: Annotated[bool, Setting(
        "keep no KV cache: compute all tokens again at every step", group=MODEL
    )] = False  # fmt: skip
    """No keys and values are kept."""
    kv_bits: Annotated[int | None, Setting(
        "quantize the KV cache to 2, 3, 4, 5, 6 or 8 bits", choices=named(KV_BITS), group=MODEL
    )] = None  # fmt: skip
    kv_group_size: Annotated[int, Setting(
        "numbers that share a scale in the quantized cache: 32, 64 or 128", choices=named(KV_GROUP_SIZES),
        group=MODEL, needs="kv_bits"
    )] = 64  # fmt: skip
    quantized_kv_start: Annotated[int, Meta(ge=0), Setting(
        "quantize the KV cache once it holds this many tokens", label="quantized KV start", group=MODEL,
        needs="kv_bits"
    )] = 5000  # fmt: skip
    prefill_step_size: Annotated[Annotated[int, Meta(ge=1)] | None, Setting(
        "tokens in a chunk of the prefill (default: as many as take about 100 ms)", group=MODEL
    )] = None  # fmt: skip
    """None adapts the chunk so that a cancel takes effect within about 150 ms."""
    float32_scales: Annotated[bool | None, Setting(
        "use float32 scales for quantized weights that stay packed (default: on the CPU, where it is faster)",
        group=MODEL
    )] = None  # fmt: skip
    """None: on the CPU backend, where it is 7 to 40 times faster, of weights that `dtype` leaves packed."""
    dtype: Annotated[str, Setting(
        "type to compute in: file (that of the model's files), float32, bfloat16, float16, or dequantized "
        "(float32, quantized weights unpacked). auto, the default, is float32 on a CPU with a fast BLAS, "
        "with quantized weights unpacked, if that takes at most half of the free memory; otherwise it is "
        "file", choices=named(DTYPES), group=MODEL, metavar="TYPE"
    )] = "auto"  # fmt: skip
    """`dequantized` unpacks quantized weights into float32; `auto` does where `float32_scales` is None."""
    blas: Annotated[str, Setting(
        "library that multiplies float32 matrices on a Linux CPU: auto (the default) is OpenBLAS or BLIS "
        "where one is installed, bundled is the one in MLX", choices=named(("auto", "bundled")), group=MODEL,
        metavar="WHICH"
    )] = "auto"  # fmt: skip
    kept_logits_mib: Annotated[Annotated[int, Meta(ge=0)] | None, Setting(
        f"MiB for the logits of earlier steps, so that going back needs no forward (default: {LEAST_KEPT_MIB}, "
        f"or what {KEPT_ROWS} rows of a large vocabulary take)",
        group=MEMORY, says="a whole number of MiB from 0 up"
    )] = None  # fmt: skip
    """So that going back and what-if need no forward; None: see `kept_logits_bytes`."""
    kept_kv_mib: Annotated[int, Meta(ge=0), Setting(
        "MiB for the KV of branches that you left", group=MEMORY, says="a whole number of MiB from 0 up"
    )] = 256  # fmt: skip
    """So that going back to the branches that the session left needs no forward."""
    ranks: Annotated[int, Meta(ge=1, le=MOST_RANKS), Setting(
        "compute the model in N processes on this machine", group=RANKS
    )] = 1  # fmt: skip
    """Processes that compute the model together, on this machine unless `hostfile` names others."""
    hostfile: Annotated[str, Setting(
        "compute the model in a process on each host of this file, written as for mlx.launch; the first "
        "host is this one, and ssh starts the others", group=RANKS, metavar="FILE"
    )] = ""  # fmt: skip
    shard: Annotated[str, Setting(
        "how the processes share the model: tensor (each has a part of every layer), pipeline (each has "
        "some whole layers), or auto (the default: tensor where the family allows it)",
        choices=named(SHARDS), group=RANKS, metavar="HOW"
    )] = "auto"  # fmt: skip
    """`auto` is `tensor` where its family can, else `pipeline`."""
    record_logits: Annotated[bool, Setting(
        "keep all logits of each step in the recording, 2 or 4 bytes each, so that a replay can try settings "
        "and search the vocabulary"
    )] = False  # fmt: skip

    def kept_logits_bytes(self, vocabulary: int) -> int:
        """Bytes for kept rows of logits, of 4 bytes an id.

        Args:
            vocabulary: Ids of the model.
        """
        if self.kept_logits_mib is not None:
            return self.kept_logits_mib * 2**20
        return max(LEAST_KEPT_MIB * 2**20, KEPT_ROWS * vocabulary * 4)

    @property
    def divided(self) -> bool:
        """True if several processes compute the model."""
        return self.ranks > 1 or bool(self.hostfile)

    def check_together(self, vocabulary: int | None) -> None:
        """See `SettingsStruct`: without a KV cache nothing changes it."""
        for name in ("kv_bits", "max_kv_size"):
            if self.no_kv_cache and getattr(self, name) is not None:
                message = f"there is no KV cache for --{name.replace('_', '-')} to change."
                raise SettingsError("no_kv_cache", message, "Leave out one of the two.")


FIELDS = settings_of(Settings)
LOAD_FIELDS = settings_of(LoadSettings)
BY_NAME: Mapping[str, Setting] = {field.name: field for field in (*FIELDS, *LOAD_FIELDS)}
STAGES: Mapping[str, SamplerStage] = {
    stage.name: stage
    for stage in sorted(
        (field.stage for field in FIELDS if field.stage is not None),
        key=lambda stage: ORDERS["mlx-lm"].index(stage.name),
    )
}
"""The stages that a setting turns on, in mlx_lm's order: all but the grammar's."""


def changed(settings: Settings, **values: Any) -> Settings:
    """A checked copy of the settings with some values replaced."""
    return check(replace(settings, **values))


MODELS_OWN = ("temp", "top_p", "top_k", "min_p", "repetition_penalty")
"""The settings that a model's generation_config.json may have."""


def with_defaults(settings: Settings, own: Iterable[tuple[str, Any]], given: Collection[str]) -> Settings:
    """Settings with the defaults of a model: its own, or else those of mlx_lm.

    Args:
        settings: Of the sampler.
        own: The model's own defaults by name.
        given: Names of the settings that the user gave; these stay.
    """
    usual = {name: BY_NAME[name].default for name in MODELS_OWN}
    usual |= {name: int(value) if BY_NAME[name].kind == "int" else value for name, value in own}
    return replace(settings, **{name: value for name, value in usual.items() if name not in given})


def differences(old: Settings, new: Settings) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, as name: (old, new)."""
    before, after = asdict(old), asdict(new)
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def for_model(settings: LoadSettings, model: str) -> LoadSettings:
    """The same settings for a model, without what belongs to another one: its adapter and its tokens."""
    if model == settings.model:
        return settings
    return replace(settings, model=model, adapter_path=None, extra_eos_token=())
