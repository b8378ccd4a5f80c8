"""The settings, with the names and defaults of `mlx_lm.generate` where it has them.

One table (`FIELDS`) names every setting once: flags, the settings screen and the checks are made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from engine.errors import SettingsError
from engine.frozen import frozen
from engine.grammar_settings import Grammar, check_grammar
from engine.setting_field import MLX_LM, ORDERS, Field

SEED_LIMIT = 2**64
LEAST_TEMP = 0.001
"""The least temperature above 0. It divides the rounding of float32 logprobs, 1e-6 where 150,000 tokens are alike: here
probabilities are right to 1 in 1,000. Smaller ones would draw by rounding; 1e-38 overflows."""
LEAST_PENALTY = 0.001
"""The least repetition penalty above 0: it multiplies logits by 1,000; far smaller ones overflow float32."""
KV_BITS = (2, 3, 4, 5, 6, 8)
KV_GROUP_SIZES = (32, 64, 128)
SHARDS = ("auto", "tensor", "pipeline")
MOST_RANKS = 64
DTYPES = ("auto", "file", "float32", "bfloat16", "float16", "dequantized")


@frozen
class Settings:
    """How tokens are sampled and when generation stops; may change at any step."""

    temp: float = 0.0
    """Temperature; 0 is greedy: the most probable token, and no filter matters."""
    top_p: float = 1.0
    """Nucleus: the fewest tokens whose probability adds up to this; 1 is off."""
    min_p: float = 0.0
    """Least probability, as a share of the most probable token's; 0 is off."""
    min_tokens_to_keep: int = 1
    """Tokens, the most probable ones, that min-p keeps at least, however improbable they are."""
    top_k: int = 0
    """The k most probable tokens; 0 is off."""
    seed: int = 0
    """Seed of the draws: the draw is a function of seed, position and re-roll count."""
    max_tokens: int = 100
    """A run ends with `length` after this many tokens of completion, one that begins there or later after as many more,
    and one whose breakpoint counts tokens after those."""
    min_tokens: int = 0
    """End-of-sequence is barred before this many tokens of completion."""
    stop: tuple[str, ...] = ()
    """Texts that end the generation, wherever tokens cut them."""
    candidates: int = 20
    """Candidates recorded at each step."""
    xtc_probability: float = 0.0
    """Share of the steps on which XTC cuts the top choices; 0 is off."""
    xtc_threshold: float = 0.1
    """XTC cuts all tokens above this probability but the least probable of them."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """What is added to the logits of some tokens, as (id, value)."""
    repetition_penalty: float = 0.0
    """Recent tokens' positive logits are divided by it, negative ones multiplied; 0 is off."""
    repetition_context_size: int = 20
    """How many tokens back the repetition penalty looks, prompt included."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of each recent token, once; 0 is off."""
    presence_context_size: int = 20
    frequency_penalty: float = 0.0
    """Subtracted from the logit of each recent token for every time that it occurred; 0 is off."""
    frequency_context_size: int = 20
    sampler_order: tuple[str, ...] = MLX_LM
    """The stages in the order in which they run; the draw comes last. `grammar` is the first where it isn't named."""
    grammar: Grammar | None = None
    """What the completion must match; None for nothing."""


@frozen
class LoadSettings:
    """The model, and the settings that are fixed once it is loaded."""

    model: str = "pocket"
    """`pocket`, a directory, or a hub id."""
    adapter_path: str | None = None
    extra_eos_token: tuple[str, ...] = ()
    """Tokens that end the sequence besides the model's own, as in mlx_lm.generate: by their text, by their piece as the
    tokenizer's file spells it, or by id."""
    trust_remote_code: bool = False
    max_kv_size: int | None = None
    """Rotating cache of this many tokens, where the model doesn't build its own caches."""
    no_kv_cache: bool = False
    """Every step runs all tokens of its path again; no keys and values are kept."""
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 5000
    prefill_step_size: int | None = None
    """Prompt tokens a chunk; None adapts the chunk so that a cancel takes effect within about 150 ms."""
    float32_scales: bool | None = None
    """Compute a quantized model with float32 scales; None: on the CPU backend, where it is 7 to 40 times faster."""
    dtype: str = "auto"
    """Of the computation, one of `DTYPES`; `auto` is float32 on a CPU with a fast BLAS, where memory allows it, and
    the file's elsewhere; `dequantized` unpacks quantized weights into float32."""
    blas: str = "auto"
    """What multiplies float32 matrices on a Linux CPU: `auto` for a fast one that is installed, `bundled` for what MLX
    brings, or a library's path."""
    kept_logits_mib: int = 64
    """Memory for rows of logits, so that going back and what-if need no forward."""
    kept_kv_mib: int = 256
    """Memory for the KV of branches that the session left, so that going back to them needs no forward."""
    ranks: int = 1
    """Processes that compute the model together, on this machine unless `hostfile` names others."""
    hostfile: str = ""
    """A file in the format of mlx.launch: the hosts of the ranks, the first of which is this one; empty for none."""
    shard: str = "auto"
    """How ranks divide the model, one of `SHARDS`; `auto` is `tensor` where its family can, else `pipeline`."""
    rank_patience: int = 60
    """Seconds after which a rank that does not answer counts as lost; more work has more."""
    record_logits: bool = False
    """Whether every step is followed by a record of its whole row of logits, for replays with no model."""

    @property
    def divided(self) -> bool:
        """Whether several processes compute the model."""
        return self.ranks > 1 or bool(self.hostfile)


FIELDS: tuple[Field, ...] = (
    Field("temp", "float", "temperature", "0 takes the most probable token; above 1 flattens", 0, 100,
          least=LEAST_TEMP),
    Field("top_p", "float", "top-p", "fewest tokens that hold this probability; 1 is off", 0, 1, low_open=True),
    Field("min_p", "float", "min-p", "least share of the top token's probability; 0 is off", 0, 1),
    Field("min_tokens_to_keep", "int", "min tokens to keep", "so many most probable tokens pass min-p", 1, 2**31 - 1),
    Field("top_k", "int", "top-k", "this many most probable tokens; 0 is off", 0, 2**31 - 1),
    Field("seed", "int", "seed", "the draw is a function of seed, position and re-roll", 0, SEED_LIMIT - 1),
    Field("max_tokens", "int", "max tokens", "a run ends after so many tokens", 1, 2**31 - 1),
    Field("min_tokens", "int", "min tokens", "end-of-sequence is barred before so many", 0, 2**31 - 1),
    Field("stop", "texts", "stop string", "generation ends when this text appears"),
    Field("candidates", "int", "candidates", "shown and recorded at each step", 1, 2**31 - 1),
    Field("xtc_probability", "float", "XTC probability", "share of steps that lose their top choices; 0 is off", 0, 1),
    Field("xtc_threshold", "float", "XTC threshold", "it cuts all tokens above this but the last of them", 0, 0.5),
    Field("logit_bias", "biases", "logit bias", "added to logits: ID=VALUE, ID=VALUE"),
    Field("repetition_penalty", "float", "repetition penalty", "divides recent tokens' logits; 0 is off", 0, 100,
          least=LEAST_PENALTY),
    Field("repetition_context_size", "int", "repetition context", "tokens it looks back", 1, 2**31 - 1),
    Field("presence_penalty", "float", "presence penalty", "off recent tokens' logits, once; 0 is off", -100, 100),
    Field("presence_context_size", "int", "presence context", "tokens it looks back", 1, 2**31 - 1),
    Field("frequency_penalty", "float", "frequency penalty", "off their logits, each time; 0 is off", -100, 100),
    Field("frequency_context_size", "int", "frequency context", "tokens it looks back", 1, 2**31 - 1),
    Field("sampler_order", "order", "sampler order",
          "mlx-lm, transformers, llama.cpp (each with its rules for ties and XTC), or stages with commas"),
)  # fmt: skip
BY_NAME: Mapping[str, Field] = {field.name: field for field in FIELDS}


TURNED_ON: Mapping[str, Callable[[Settings], bool]] = {
    "logit-bias": lambda settings: bool(settings.logit_bias),
    "min-tokens": lambda settings: settings.min_tokens > 0,
    "repetition": lambda settings: settings.repetition_penalty != 0,
    "presence": lambda settings: settings.presence_penalty != 0,
    "frequency": lambda settings: settings.frequency_penalty != 0,
    "top-p": lambda settings: settings.top_p < 1,
    "min-p": lambda settings: settings.min_p > 0,
    "xtc": lambda settings: settings.xtc_probability > 0,
    "top-k": lambda settings: settings.top_k > 0,
    "temperature": lambda settings: settings.temp not in (0, 1),
}
"""Whether the settings turn a stage on."""


def check(settings: Settings, vocabulary: int | None = None) -> Settings:
    """Return the settings if all are in range and every stage that is turned on has a place in the order.

    Args:
        settings: What to check.
        vocabulary: The model's, where it is known: a logit bias must stay below it.

    Raises:
        SettingsError: For the first that is not.
    """
    for field in FIELDS:
        field.check(getattr(settings, field.name))
    check_grammar(settings.grammar)
    for name, on in TURNED_ON.items():
        if on(settings) and name not in settings.sampler_order:
            raise SettingsError(
                "sampler_order",
                f"sampler order leaves out {name}, which is turned on.",
                "Add it, or turn it off.",
            )
    for token, _ in settings.logit_bias:
        if vocabulary is not None and token >= vocabulary:
            raise SettingsError(
                "logit_bias",
                f"logit bias: token id {token} is outside the model's vocabulary of {vocabulary}.",
                f"Ids go from 0 to {vocabulary - 1}.",
            )
    return settings


def program(settings: Settings) -> str:
    """The program whose rules for ties and XTC hold: that of the order, mlx-lm for an order that is no program's."""
    return next((name for name, order in ORDERS.items() if order == settings.sampler_order), "mlx-lm")


def changed(settings: Settings, **values: Any) -> Settings:
    """A checked copy of the settings with some values replaced."""
    return check(replace(settings, **values))


def differences(old: Settings, new: Settings) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, as name: (old, new)."""
    before, after = asdict(old), asdict(new)
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def check_load(settings: LoadSettings) -> LoadSettings:
    """Return the load settings if all are in range.

    Raises:
        SettingsError: For the first that is not.
    """
    bits, sizes = ", ".join(map(str, KV_BITS)), ", ".join(map(str, KV_GROUP_SIZES))
    _need(settings, "max_kv_size", (None, 5), "a whole number from 5 up (the first 4 tokens are always kept)")
    _need(settings, "kv_bits", (None, *KV_BITS), f"one of {bits}", listed=True)
    _need(settings, "kv_group_size", KV_GROUP_SIZES, f"one of {sizes}", listed=True)
    _need(settings, "quantized_kv_start", (None, 0), "a whole number from 0 up")
    _need(settings, "prefill_step_size", (None, 1), "a whole number from 1 up")
    _need(settings, "kept_logits_mib", (None, 0), "a whole number of MiB from 0 up")
    _need(settings, "kept_kv_mib", (None, 0), "a whole number of MiB from 0 up")
    _need(settings, "rank_patience", (None, 1), "a whole number of seconds from 1 up")
    if not 1 <= settings.ranks <= MOST_RANKS:
        raise SettingsError(
            "ranks", f"ranks must be a whole number from 1 to {MOST_RANKS}, not {settings.ranks}."
        )
    if settings.shard not in SHARDS:
        raise SettingsError("shard", f"shard must be one of {', '.join(SHARDS)}, not {settings.shard}.")
    if "" in settings.extra_eos_token:
        raise SettingsError("extra_eos_token", "extra eos token must not be empty.", "Leave the setting out.")
    if settings.dtype not in DTYPES:
        raise SettingsError("dtype", f"dtype must be one of {', '.join(DTYPES)}, not {settings.dtype}.")
    if not settings.blas.strip():
        raise SettingsError("blas", "blas must be auto, bundled or the path of a library, not empty.")
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


def _need(
    settings: LoadSettings, field: str, allowed: tuple[int | None, ...], words: str, *, listed: bool = False
) -> None:
    """Refuse a load setting that is not among the listed values, or below the least (None is always allowed)."""
    value = getattr(settings, field)
    least = min(value_allowed for value_allowed in allowed if value_allowed is not None)
    if value in allowed or (value is not None and not listed and value >= least):
        return
    raise SettingsError(field, f"{field.replace('_', ' ').replace('kv', 'KV')} must be {words}, not {value}.")
