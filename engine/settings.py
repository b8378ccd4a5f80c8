"""The settings, with the names and defaults of `mlx_lm.generate` where it has them.

Each is declared once, at its field: flags, forms, checks and words are made from that (`engine/setting_field.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from engine.errors import SettingsError
from engine.frozen import frozen
from engine.grammar_settings import Grammar, check_grammar
from engine.setting_field import Field, SamplerStage, fields_of, setting

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


def _named(values: tuple[Any, ...]) -> Mapping[str, Any]:
    """Values by their names."""
    return {str(value): value for value in values}


def _least(settings: Any) -> str:
    """How many tokens min-p keeps at least, where that is more than one."""
    return f"≥{settings.min_tokens_to_keep}" if settings.min_tokens_to_keep > 1 else ""


@frozen
class Settings:
    """How tokens are sampled and when generation stops; may change at any step."""

    temp: float = setting(
        0.0, "0 always takes the most probable token; above 1 flattens probabilities",
        0, 100, least=LEAST_TEMP, label="temperature",
        group=DRAW, wide=True, stage=SamplerStage("temperature", "scale", "temp.", off=(1,)),
    )  # fmt: skip
    """0 is greedy: the most probable token, and no filter matters."""
    top_p: float = setting(
        1.0, "keeps the fewest tokens that hold this probability together; 1 is off",
        0, 1, low_open=True, label="top-p", group=DRAW,
        stage=SamplerStage("top-p", "order"),
    )  # fmt: skip
    min_p: float = setting(
        0.0, "keeps tokens with this share of the top token's probability; 0 is off",
        0, 1, label="min-p", group=DRAW,
        stage=SamplerStage("min-p", "shares", shown=lambda on: f"{on.min_p:g}{_least(on)}"),
        brief=lambda on: f"min-p {on.min_p:g} {_least(on)}".rstrip(),
    )  # fmt: skip
    min_tokens_to_keep: int = setting(
        1, "min-p keeps at least this many tokens", 1, MOST, group=DRAW, needs="min_p"
    )
    top_k: int = setting(
        0, "keeps this many of the most probable tokens; 0 is off", 0, MOST, label="top-k", group=DRAW, before="min_p",
        stage=SamplerStage("top-k", "order"),
    )  # fmt: skip
    seed: int = setting(
        0, "each draw is a function of seed, position and re-rolls", 0, SEED_LIMIT - 1, group=DRAW, wide=True
    )
    max_tokens: int = setting(100, "a run ends after this many tokens", 1, MOST, group=STOPS, short="-m")
    """A run ends with `length` after this many tokens of completion, one that begins there or later after as many more,
    and one whose breakpoint counts tokens after those."""
    min_tokens: int = setting(
        0, "no end-of-sequence token before this many tokens", 0, MOST, group=STOPS,
        stage=SamplerStage("min-tokens", "logits", "barred"),
    )  # fmt: skip
    stop: tuple[str, ...] = setting(
        (), "generation ends when this text appears", kind="texts", label="stop string", group=STOPS,
        brief=lambda on: f"stop {len(on.stop)}",
    )  # fmt: skip
    """Texts that end the generation, wherever tokens cut them."""
    candidates: int = setting(20, "candidates shown and recorded at each step", 1, MOST, group=STOPS)
    xtc_probability: float = setting(
        0.0, "share of steps at which the top choices are cut; 0 is off", 0, 1, label="XTC probability", group=XTC,
        stage=SamplerStage("xtc", "shares", "XTC", lambda on: f"{on.xtc_threshold:g}"),
        brief=lambda on: f"xtc {on.xtc_probability:g}/{on.xtc_threshold:g}",
    )  # fmt: skip
    xtc_threshold: float = setting(
        0.1,
        "cuts all tokens above this probability but the least probable of them",
        0,
        0.5,
        label="XTC threshold",
        group=XTC,
    )
    logit_bias: tuple[tuple[int, float], ...] = setting(
        (), "added to the logits of tokens: ID=VALUE, ID=VALUE", kind="biases", group=ORDER, wide=True,
        stage=SamplerStage(
            "logit-bias", "logits", "bias", lambda on: f"{len(on.logit_bias)} id{'s' * (len(on.logit_bias) != 1)}"
        ),
        brief=lambda on: f"bias {len(on.logit_bias):,}",
    )  # fmt: skip
    repetition_penalty: float = setting(
        0.0, "divides the logits of recent tokens; 0 is off", 0, 100, least=LEAST_PENALTY, group=PENALTIES,
        stage=SamplerStage("repetition", "logits", "repet."),
        brief=lambda on: f"rep {on.repetition_penalty:g}/{on.repetition_context_size}",
    )  # fmt: skip
    repetition_context_size: int = setting(
        20,
        "recent tokens that the repetition penalty sees",
        1,
        MOST,
        label="repetition context",
        group=PENALTIES,
    )
    """How many tokens back the repetition penalty looks, prompt included; so are the others."""
    presence_penalty: float = setting(
        0.0, "subtracted once from the logits of recent tokens; 0 is off", -100, 100, group=PENALTIES,
        stage=SamplerStage("presence", "logits", "presen."),
        brief=lambda on: f"presence {on.presence_penalty:g}/{on.presence_context_size}",
    )  # fmt: skip
    presence_context_size: int = setting(
        20, "recent tokens that the presence penalty sees", 1, MOST, label="presence context", group=PENALTIES
    )
    frequency_penalty: float = setting(
        0.0, "subtracted per occurrence from the logits of recent tokens; 0 is off", -100, 100, group=PENALTIES,
        stage=SamplerStage("frequency", "logits", "frequ."),
        brief=lambda on: f"frequency {on.frequency_penalty:g}/{on.frequency_context_size}",
    )  # fmt: skip
    frequency_context_size: int = setting(
        20,
        "recent tokens that the frequency penalty sees",
        1,
        MOST,
        label="frequency context",
        group=PENALTIES,
    )
    sampler_order: str = setting(
        "mlx-lm", "mlx-lm (the default), transformers or llama.cpp, each with its rules for ties and XTC",
        kind="word", choices=_named(tuple(ORDERS)), group=ORDER, wide=True, metavar="ORDER",
        brief=lambda on: f"order {on.sampler_order}",
    )  # fmt: skip
    """Name of the order of the stages, from `ORDERS`; a grammar comes before them and the draw after them."""
    grammar: Grammar | None = None
    """What the completion must match; None for nothing."""


@frozen
class LoadSettings:
    """The model, and the settings that are fixed once it is loaded."""

    model: str = setting(
        "pocket",
        "pocket (the bundled one), a directory, or a hub id (default: pocket)",
        group=MODEL,
        metavar="MODEL",
    )
    adapter_path: str | None = setting(
        None,
        "adapter to load with the model: its weights and config",
        kind="text",
        group=MODEL,
        metavar="DIR",
    )
    extra_eos_token: tuple[str, ...] = setting(
        (), "a token that also ends the generation, by its text or id", kind="texts", metavar="TOKEN"
    )
    """Tokens that end the sequence besides the model's own, as in mlx_lm.generate: by their text, by their piece as the
    tokenizer's file spells it, or by id."""
    trust_remote_code: bool = setting(False, "run code that comes with the model", group=MODEL)
    max_kv_size: int | None = setting(
        None, "use a rotating KV cache, of this many tokens", 5, kind="int", group=MODEL,
        says="a whole number from 5 up (the first 4 tokens are always kept)",
    )  # fmt: skip
    """Where the model doesn't build its own caches."""
    no_kv_cache: bool = setting(
        False, "keep no KV cache: compute all tokens again at every step", group=MODEL
    )
    """No keys and values are kept."""
    kv_bits: int | None = setting(
        None,
        "quantize the KV cache to 2, 3, 4, 5, 6 or 8 bits",
        kind="int",
        choices=_named(KV_BITS),
        group=MODEL,
    )
    kv_group_size: int = setting(
        64,
        "numbers that share a scale in the quantized cache: 32, 64 or 128",
        choices=_named(KV_GROUP_SIZES),
        group=MODEL,
        needs="kv_bits",
    )
    quantized_kv_start: int = setting(
        5000,
        "quantize the KV cache once it holds this many tokens",
        0,
        label="quantized KV start",
        group=MODEL,
        needs="kv_bits",
    )
    prefill_step_size: int | None = setting(
        None,
        "tokens in a chunk of the prefill (default: as many as take about 100 ms)",
        1,
        kind="int",
        group=MODEL,
    )
    """None adapts the chunk so that a cancel takes effect within about 150 ms."""
    float32_scales: bool | None = setting(
        None, "use float32 scales for quantized weights that stay packed (default: on the CPU, where it is faster)",
        kind="choice", group=MODEL,
    )  # fmt: skip
    """None: on the CPU backend, where it is 7 to 40 times faster, of weights that `dtype` leaves packed."""
    dtype: str = setting(
        "auto", "type to compute in: file (that of the model's files), float32, bfloat16, float16, or dequantized "
        "(float32, quantized weights unpacked). auto, the default, is float32 on a CPU with a fast BLAS, with "
        "quantized weights unpacked, if that takes at most half of the free memory; otherwise it is file",
        kind="word", choices=_named(DTYPES), group=MODEL, metavar="TYPE",
    )  # fmt: skip
    """`dequantized` unpacks quantized weights into float32; `auto` does where `float32_scales` is None."""
    blas: str = setting(
        "auto", "library that multiplies float32 matrices on a Linux CPU: auto (the default) is OpenBLAS or BLIS where "
        "one is installed, bundled is the one in MLX",
        kind="word", choices=_named(("auto", "bundled")), group=MODEL, metavar="WHICH",
    )  # fmt: skip
    kept_logits_mib: int | None = setting(
        None, f"MiB for the logits of earlier steps, so that going back needs no forward (default: {LEAST_KEPT_MIB}, "
        f"or what {KEPT_ROWS} rows of a large vocabulary take)", 0, kind="int", group=MEMORY,
        says="a whole number of MiB from 0 up",
    )  # fmt: skip
    """So that going back and what-if need no forward; None: see `kept_logits_bytes`."""
    kept_kv_mib: int = setting(
        256,
        "MiB for the KV of branches that you left",
        0,
        group=MEMORY,
        says="a whole number of MiB from 0 up",
    )
    """So that going back to the branches that the session left needs no forward."""
    ranks: int = setting(1, "compute the model in N processes on this machine", 1, MOST_RANKS, group=RANKS)
    """Processes that compute the model together, on this machine unless `hostfile` names others."""
    hostfile: str = setting(
        "", "compute the model in a process on each host of this file, written as for mlx.launch; the first host is "
        "this one, and ssh starts the others", group=RANKS, metavar="FILE",
    )  # fmt: skip
    shard: str = setting(
        "auto", "how the processes share the model: tensor (each has a part of every layer), pipeline (each has some "
        "whole layers), or auto (the default: tensor where the family allows it)",
        kind="word", choices=_named(SHARDS), group=RANKS, metavar="HOW",
    )  # fmt: skip
    """`auto` is `tensor` where its family can, else `pipeline`."""
    record_logits: bool = setting(
        False,
        "keep all logits of each step in the trace, 2 or 4 bytes each, so that a replay can try settings and search "
        "the vocabulary",
    )

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


FIELDS: tuple[Field, ...] = fields_of(Settings)
LOAD_FIELDS: tuple[Field, ...] = fields_of(LoadSettings)
BY_NAME: Mapping[str, Field] = {field.name: field for field in (*FIELDS, *LOAD_FIELDS)}
STAGES: Mapping[str, SamplerStage] = {
    stage.name: stage
    for stage in sorted(
        (field.stage for field in FIELDS if field.stage is not None),
        key=lambda stage: ORDERS["mlx-lm"].index(stage.name),
    )
}
"""The stages that a setting turns on, in mlx_lm's order: all but the grammar's."""


def check(settings: Settings, vocabulary: int | None = None) -> Settings:
    """Return the settings if all are in range.

    Args:
        settings: What to check.
        vocabulary: The model's, where it is known: a logit bias must stay below it.

    Raises:
        SettingsError: For the first that is not.
    """
    for field in FIELDS:
        field.check(getattr(settings, field.name))
    if settings.grammar is not None:
        check_grammar(settings.grammar)
    for token, _ in settings.logit_bias:
        if vocabulary is not None and token >= vocabulary:
            raise SettingsError(
                "logit_bias",
                f"logit bias: token id {token} is outside the model's vocabulary of {vocabulary}.",
                f"Ids go from 0 to {vocabulary - 1}.",
            )
    return settings


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


def check_load(settings: LoadSettings) -> LoadSettings:
    """Return the load settings if all are in range.

    Raises:
        SettingsError: For the first that is not.
    """
    for field in LOAD_FIELDS:
        field.check(getattr(settings, field.name))
    for name in ("kv_bits", "max_kv_size"):
        if settings.no_kv_cache and getattr(settings, name) is not None:
            flag = name.replace("_", "-")
            raise SettingsError(
                "no_kv_cache", f"there is no KV cache for --{flag} to change.", "Leave out one of the two."
            )
    return settings


def for_model(settings: LoadSettings, model: str) -> LoadSettings:
    """The same settings for a model, without what belongs to another one: its adapter and its tokens."""
    if model == settings.model:
        return settings
    return replace(settings, model=model, adapter_path=None, extra_eos_token=())
