"""The settings, with the names and defaults of `mlx_lm.generate` if it has them.

Each setting is declared once, at its field; flags, forms, checks and messages are derived from that
(`engine/setting.py`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta
from msgspec.structs import asdict, replace

from engine.errors import SettingsError
from engine.grammar_settings import Grammar
from engine.setting import SamplerStage, Setting, SettingsStruct, check, named, settings_of

MOST = 2**31 - 1
LEAST_TEMP = 0.001
"""Smallest temperature above 0. Logprobs are divided by it, and so are their float32 rounding errors (1e-6 if 150,000
tokens are equally likely): with this value, probabilities are right to 1 in 1,000. With smaller ones the draw would
depend on rounding; 1e-38 overflows."""
LEAST_PENALTY = 0.001
"""Smallest repetition penalty above 0: it multiplies logits by 1,000; much smaller values overflow float32."""
KV_BITS = (2, 3, 4, 5, 6, 8)
KV_GROUP_SIZES = (32, 64, 128)
SHARDS = ("auto", "tensor", "pipeline")
MOST_RANKS = 64
LEAST_KEPT_MIB, KEPT_ROWS = 64, 400
"""Default budget of cached logits: 64 MiB (4,096 rows for pocket), or the size of 400 rows if that is more, as with
152,000 ids. With 0.6 B parameters, a fork 250 tokens back takes 300 ms if its row is cached and 480 ms if not."""
DTYPES = ("auto", "file", "float32", "bfloat16", "float16", "dequantized")
_SHAPES = ("logit-bias", "min-tokens", "repetition", "presence", "frequency")
_TRANSFORMERS = ("logit-bias", "repetition", "presence", "frequency", "min-tokens")
ORDERS: Mapping[str, tuple[str, ...]] = {
    "mlx-lm": (*_SHAPES, "top-p", "min-p", "xtc", "top-k", "temperature"),
    "transformers": (*_TRANSFORMERS, "temperature", "top-k", "top-p", "min-p", "xtc"),
    "llama.cpp": (*_SHAPES, "top-k", "top-p", "min-p", "xtc", "temperature"),
}
"""Stage orders by program: mlx_lm.sample_utils, `GenerationMixin._get_logits_processor` of transformers (which has no
presence and frequency penalties and no XTC), and llama.cpp's default chain. The rules for ties and XTC belong to the
order: see `engine.sampling.pipeline`."""
GROUPS = DRAW, PENALTIES, XTC, STOPS, ORDER = (
    "Draw", "Penalties", "XTC: exclude top choices", "Stops and candidates", "Bias and order",
)  # fmt: skip
LOAD_GROUPS = MODEL, RANKS, MEMORY = "model", "ranks", "memory"
"""Groups of the load settings' flags."""


def _biased(settings: Any) -> str:
    return f"{len(settings.logit_bias)} id{'s' * (len(settings.logit_bias) != 1)}"


def _min_p(settings: Any) -> str:
    least = settings.min_tokens_to_keep
    return f"{settings.min_p:g}" + (f"≥{least}" if least > 1 else "")


class Settings(SettingsStruct, frozen=True):
    """Settings of the sampler and of the stops; they may change at any step."""

    temp: Annotated[float, Meta(ge=0, le=100), Setting(
        "0 is greedy; above 1 flattens the distribution", least=LEAST_TEMP,
        label="temperature", group=DRAW,
        stage=SamplerStage("temperature", "scale", "temp.", off=(1,))
    )] = 0.0  # fmt: skip
    """Sampling temperature; 0 is greedy: the most probable token is picked, and filters have no effect."""
    top_p: Annotated[float, Meta(gt=0, le=1), Setting(
        "keeps the top tokens up to this probability; 1 is off", label="top-p", group=DRAW,
        stage=SamplerStage("top-p", "order")
    )] = 1.0  # fmt: skip
    min_p: Annotated[float, Meta(ge=0, le=1), Setting(
        "least share of the top token's probability; 0 is off", label="min-p", group=DRAW,
        stage=SamplerStage("min-p", "shares", shown=_min_p),
        brief=lambda on: f"min-p {_min_p(on).replace('≥', ' ≥')}"
    )] = 0.0  # fmt: skip
    min_tokens_to_keep: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "min-p keeps at least this many tokens", group=DRAW, needs="min_p"
    )] = 1  # fmt: skip
    top_k: Annotated[int, Meta(ge=0, le=MOST), Setting(
        "keeps this many of the most probable tokens; 0 is off", label="top-k", group=DRAW, before="min_p",
        stage=SamplerStage("top-k", "order")
    )] = 0  # fmt: skip
    seed: Annotated[int, Meta(ge=0), Setting(
        "each draw is a function of seed, position and re-rolls", most=2**64 - 1, group=DRAW
    )] = 0  # fmt: skip
    max_tokens: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "a run ends once the answer has this many tokens", group=STOPS, short="-m"
    )] = 100  # fmt: skip
    """Maximum number of tokens of the completion, at which a run ends with `length`. A run that begins at this limit or
    beyond ends after `max_tokens` more; a run with a `tokens` breakpoint ends after that number of tokens."""
    min_tokens: Annotated[int, Meta(ge=0, le=MOST), Setting(
        "no end-of-sequence token before this many tokens", group=STOPS,
        stage=SamplerStage("min-tokens", "logits", "barred")
    )] = 0  # fmt: skip
    stop: Annotated[tuple[str, ...], Setting(
        "generation ends when this text appears", label="stop string", group=STOPS,
        brief=lambda on: f"stop ×{len(on.stop)}"
    )] = ()  # fmt: skip
    """Texts that end the generation, regardless of token boundaries."""
    candidates: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "candidates shown and recorded at each step", group=STOPS
    )] = 20  # fmt: skip
    xtc_probability: Annotated[float, Meta(ge=0, le=1), Setting(
        "share of steps that cut the top choices; 0 is off", label="XTC probability", group=XTC,
        stage=SamplerStage("xtc", "shares", "XTC", lambda on: f"{on.xtc_threshold:g}"),
        brief=lambda on: f"xtc {on.xtc_probability:g}/{on.xtc_threshold:g}"
    )] = 0.0  # fmt: skip
    xtc_threshold: Annotated[float, Meta(ge=0, le=0.5), Setting(
        "cuts the tokens above this but the least probable one", label="XTC threshold",
        group=XTC
    )] = 0.1  # fmt: skip
    logit_bias: Annotated[tuple[tuple[int, float], ...], Setting(
        '" cat" forbids it; " cat"=2, 451=-5 add to logits', group=ORDER,
        stage=SamplerStage("logit-bias", "logits", "bias", _biased),
        brief=lambda on: f"bias ×{len(on.logit_bias):,}"
    )] = ()  # fmt: skip
    repetition_penalty: Annotated[float, Meta(ge=0, le=100), Setting(
        "divides the logits of recent tokens; 0 is off", least=LEAST_PENALTY, group=PENALTIES,
        stage=SamplerStage("repetition", "logits", "repet."),
        brief=lambda on: f"rep {on.repetition_penalty:g}/{on.repetition_context_size}"
    )] = 0.0  # fmt: skip
    repetition_context_size: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "recent tokens that the repetition penalty sees", label="repetition context", group=PENALTIES
    )] = 20  # fmt: skip
    """Number of recent tokens that the penalty applies to, including the prompt; likewise for the other two."""
    presence_penalty: Annotated[float, Meta(ge=-100, le=100), Setting(
        "subtracted once from recent tokens' logits; 0 is off", group=PENALTIES,
        stage=SamplerStage("presence", "logits", "presen."),
        brief=lambda on: f"presence {on.presence_penalty:g}/{on.presence_context_size}"
    )] = 0.0  # fmt: skip
    presence_context_size: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "recent tokens that the presence penalty sees", label="presence context", group=PENALTIES
    )] = 20  # fmt: skip
    frequency_penalty: Annotated[float, Meta(ge=-100, le=100), Setting(
        "subtracted from logits for each occurrence; 0 is off", group=PENALTIES,
        stage=SamplerStage("frequency", "logits", "frequ."),
        brief=lambda on: f"frequency {on.frequency_penalty:g}/{on.frequency_context_size}"
    )] = 0.0  # fmt: skip
    frequency_context_size: Annotated[int, Meta(ge=1, le=MOST), Setting(
        "recent tokens that the frequency penalty sees", label="frequency context", group=PENALTIES
    )] = 20  # fmt: skip
    sampler_order: Annotated[str, Setting(
        "mlx-lm, transformers or llama.cpp, with their rules",
        choices=named(tuple(ORDERS)), group=ORDER, metavar="ORDER",
        brief=lambda on: f"order {on.sampler_order}"
    )] = "mlx-lm"  # fmt: skip
    """Name of the stage order, from `ORDERS`; the grammar comes before these stages and the draw after them."""
    grammar: Grammar | None = None
    """Grammar that the completion must match; None for no grammar."""

    def check_together(self, vocabulary: int | None) -> None:
        """See `SettingsStruct`: a logit bias must be for one of the model's tokens."""
        for token, _ in self.logit_bias:
            if vocabulary is not None and token >= vocabulary:
                raise SettingsError(
                    "logit_bias",
                    f"logit bias: token id {token} is outside the model's vocabulary of {vocabulary}.",
                    f"Ids go from 0 to {vocabulary - 1}.",
                )


class LoadSettings(SettingsStruct, frozen=True):
    """The model, and the settings that can't change once it is loaded."""

    model: Annotated[str, Setting(
        "pocket (the bundled one), a directory, or a hub id (default: pocket)", group=MODEL, metavar="MODEL"
    )] = "pocket"  # fmt: skip
    adapter_path: Annotated[str | None, Setting(
        "adapter to load with the model: its weights and config", group=MODEL, metavar="DIR"
    )] = None  # fmt: skip
    extra_eos_token: Annotated[tuple[str, ...], Setting(
        "a token that also ends the generation, by its text or id", metavar="TOKEN"
    )] = ()  # fmt: skip
    """Additional end-of-sequence tokens, as in mlx_lm.generate, each given as its text, its spelling in the tokenizer's
    file, or its id."""
    trust_remote_code: Annotated[bool, Setting("run code that comes with the model", group=MODEL)] = False
    max_kv_size: Annotated[Annotated[int, Meta(ge=5)] | None, Setting(
        "use a rotating KV cache, of this many tokens", group=MODEL,
        says="a whole number from 5 up (the first 4 tokens are always kept)"
    )] = None  # fmt: skip
    """Size of a rotating KV cache in tokens; no effect on a model that creates its own caches. None for no limit."""
    no_kv_cache: Annotated[bool, Setting(
        "keep no KV cache: compute all tokens again at every step", group=MODEL
    )] = False  # fmt: skip
    """True to store no keys and values between steps."""
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
    """Tokens per prefill chunk; None adapts the size, so that a cancel takes effect within about 150 ms."""
    float32_scales: Annotated[bool | None, Setting(
        "use float32 scales for quantized weights that stay packed (default: on the CPU, where it is faster)",
        group=MODEL
    )] = None  # fmt: skip
    """True to use float32 scales for weights that stay packed; None for True on the CPU backend only, where it is 7 to
    40 times faster."""
    dtype: Annotated[str, Setting(
        "type to compute in: file (that of the model's files), float32, bfloat16, float16, or dequantized "
        "(float32, quantized weights unpacked). auto, the default, is float32 on a CPU with a fast BLAS, "
        "with quantized weights unpacked, if that takes at most half of the free memory; otherwise it is "
        "file", choices=named(DTYPES), group=MODEL, metavar="TYPE"
    )] = "auto"  # fmt: skip
    """Type to compute in. `dequantized` unpacks weights into float32; `auto` may do so if `float32_scales` is None."""
    blas: Annotated[str, Setting(
        "library that multiplies float32 matrices on a Linux CPU: auto (the default) is OpenBLAS or BLIS "
        "where one is installed, bundled is the one in MLX", choices=named(("auto", "bundled")), group=MODEL,
        metavar="WHICH"
    )] = "auto"  # fmt: skip
    kept_logits_mib: Annotated[Annotated[int, Meta(ge=0)] | None, Setting(
        f"MiB for the logits of earlier steps, so that going back needs no forward pass (default: {LEAST_KEPT_MIB}, "
        f"or what {KEPT_ROWS} rows of a large vocabulary take)",
        group=MEMORY, says="a whole number of MiB, at least 0"
    )] = None  # fmt: skip
    """Budget for cached logits, which save a forward pass when going back and in what-if; for None see
    `kept_logits_bytes`."""
    kept_kv_mib: Annotated[int, Meta(ge=0), Setting(
        "memory (MiB) for the KV cache of inactive branches", group=MEMORY, says="a whole number of MiB, at least 0"
    )] = 256  # fmt: skip
    """Budget for the KV of inactive branches, which saves a forward pass when going back to them."""
    ranks: Annotated[int, Meta(ge=1, le=MOST_RANKS), Setting(
        "compute the model in N processes on this machine", group=RANKS
    )] = 1  # fmt: skip
    """Number of processes that compute the model together, on this machine unless `hostfile` names others."""
    hostfile: Annotated[str, Setting(
        "compute the model in a process on each host of this file, written as for mlx.launch; the first "
        "host is this one, and ssh starts the others", group=RANKS, metavar="FILE"
    )] = ""  # fmt: skip
    shard: Annotated[str, Setting(
        "how the processes share the model: tensor (each has a part of every layer), pipeline (each has "
        "some whole layers), or auto (the default: tensor where the family allows it)",
        choices=named(SHARDS), group=RANKS, metavar="HOW"
    )] = "auto"  # fmt: skip
    """Parallelism of the processes: `auto` is `tensor` if the model's family supports it, otherwise `pipeline`."""
    record_logits: Annotated[bool, Setting(
        "keep all logits of each step in the recording, 2 or 4 bytes each, so that a replay can try settings "
        "and search the vocabulary"
    )] = False  # fmt: skip

    def kept_logits_bytes(self, vocabulary: int) -> int:
        """Budget in bytes for cached rows of logits, with 4 bytes per id.

        Args:
            vocabulary: Number of token ids of the model.
        """
        if self.kept_logits_mib is not None:
            return self.kept_logits_mib * 2**20
        return max(LEAST_KEPT_MIB * 2**20, KEPT_ROWS * vocabulary * 4)

    @property
    def divided(self) -> bool:
        """True if several processes compute the model together."""
        return self.ranks > 1 or bool(self.hostfile)

    def check_together(self, vocabulary: int | None) -> None:
        """See `SettingsStruct`: without a KV cache, settings that change it are not allowed."""
        for name in ("kv_bits", "max_kv_size"):
            if self.no_kv_cache and getattr(self, name) is not None:
                message = f"there is no KV cache for --{name.replace('_', '-')} to change."
                raise SettingsError("no_kv_cache", message, "Leave out one of the two.")


FIELDS = settings_of(Settings)
LOAD_FIELDS = settings_of(LoadSettings)
BY_NAME: Mapping[str, Setting] = {field.name: field for field in (*FIELDS, *LOAD_FIELDS)}
_STAGE_OF = {field.stage.name: field.stage for field in FIELDS if field.stage is not None}
STAGES: Mapping[str, SamplerStage] = {name: _STAGE_OF[name] for name in ORDERS["mlx-lm"]}
"""All stages except the grammar, in mlx_lm's order."""


def changed(settings: Settings, **values: Any) -> Settings:
    """A checked copy of the settings with some values replaced."""
    return check(replace(settings, **values))


MODELS_OWN = ("temp", "top_p", "top_k", "min_p", "repetition_penalty")
"""Settings that a model's generation_config.json may contain."""


def with_defaults(settings: Settings, own: Iterable[tuple[str, Any]], given: Collection[str]) -> Settings:
    """Fill in a model's own defaults; mlx_lm's if the model has none.

    Args:
        settings: Settings of the sampler.
        own: The model's own defaults by name.
        given: Names of the settings given by the user, which are not changed.
    """
    usual = {name: BY_NAME[name].default for name in MODELS_OWN}
    usual |= {name: int(value) if BY_NAME[name].kind == "int" else value for name, value in own}
    return replace(settings, **{name: value for name, value in usual.items() if name not in given})


def differences(old: Settings, new: Settings) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, as name: (old, new)."""
    before, after = asdict(old), asdict(new)
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def for_model(settings: LoadSettings, model: str) -> LoadSettings:
    """The same settings for another model, without the adapter and tokens that belong to the old one."""
    if model == settings.model:
        return settings
    return replace(settings, model=model, adapter_path=None, extra_eos_token=())


WIDEST = 10
STEEPEST = 10.0


class BeamSettings(SettingsStruct, frozen=True):
    """Settings of a beam search; the sampler's `min_tokens` applies too."""

    width: Annotated[int, Meta(ge=1, le=WIDEST), Setting(f"Beams to keep, 1 to {WIDEST} (1 = greedy).")] = 4
    length_penalty: Annotated[float, Meta(ge=-STEEPEST, le=STEEPEST), Setting(
        "Score = logprob / tokens ** penalty. 0: the sum, 1: the mean, above 1 length helps."
    )] = 1.0  # fmt: skip
    early_stopping: Annotated[bool, Setting(
        "On: stop when as many as the width have finished. Off: not while a live beam may win."
    )] = False  # fmt: skip
    max_tokens: Annotated[int, Meta(ge=1), Setting("Tokens of a hypothesis at most.")] = 100


BEAM_SETTINGS = {each.name: each for each in settings_of(BeamSettings)}


DraftKind = Literal["lookup", "self-4bit", "model"]
"""Source of the draft tokens. `lookup`: the continuation of an earlier occurrence of the last tokens; `self-4bit`: the
same model, quantized to 4 bits when it is loaded; `model`: another model with the same vocabulary."""
DRAFT_KINDS: tuple[DraftKind, ...] = get_args(DraftKind)
MOST_DRAFTS = 16
"""Maximum number of tokens of a draft; each makes the verifying forward pass longer."""


class SpeculationSettings(SettingsStruct, frozen=True):
    """Settings of speculative decoding; none of them changes the generated text."""

    draft: Annotated[DraftKind, Setting("the source of drafts", says=f"one of {', '.join(DRAFT_KINDS)}")] = (
        "lookup"
    )
    draft_model: str = ""
    """Draft model if `draft` is `model`: a directory, a hub id, or `pocket`."""
    num_draft_tokens: Annotated[int, Meta(ge=1, le=MOST_DRAFTS), Setting(
        "tokens that are drafted for a round", "draft tokens"
    )] = 3  # fmt: skip
    """Maximum number of tokens drafted in a round, as in mlx_lm.generate; fewer if the text ends first."""

    @property
    def name(self) -> str:
        """Name of the draft's source, for a sentence."""
        return self.draft_model if self.draft == "model" else self.draft

    def check_together(self, vocabulary: int | None) -> None:
        """See `SettingsStruct`: a draft model must be named for the kind `model`, and only for it."""
        if (self.draft == "model") != bool(self.draft_model.strip()):
            raise SettingsError(
                "draft_model",
                f"a draft of kind {self.draft} {'needs a' if self.draft == 'model' else 'has no'} draft model.",
                "Name a model only with the draft `model`.",
            )


LEAST_VOCABULARY = 257
"""Smallest vocabulary: a token for each byte, and one for the end of a text."""
MOST_STEPS = 1_000_000
LONGEST_PROMPT = 200
"""Maximum length of the prompt in characters."""
MOST_TEXTS = 100


class TrainingSettings(SettingsStruct, frozen=True):
    """Training texts, sizes of the model and length of the training."""

    texts: Annotated[tuple[str, ...], Meta(max_length=MOST_TEXTS), Setting(
        "UTF-8 texts, or folders of them; the program's own stories by default", "text",
        says=f"at most {MOST_TEXTS} paths; put the texts into a folder and give that",
    )] = ()  # fmt: skip
    layers: Annotated[int, Meta(ge=1, le=12), Setting("layers of the llama")] = 2
    """Number of layers. With the default text, 4 layers predict no better after the same time: see
    `engine.training.learner.SLOWED`."""
    width: Annotated[
        int, Meta(ge=16, le=256, multiple_of=8), Setting("width of its residual stream, a multiple of 8")
    ] = 96
    vocabulary: Annotated[
        int, Meta(ge=LEAST_VOCABULARY, le=8192), Setting("maximum tokens of its tokenizer")
    ] = 512
    """A step of 4 layers takes 58 ms with a vocabulary of 512 and 251 ms with 4,096, mostly for the logits."""
    rows: Annotated[int, Meta(ge=1, le=64), Setting("rows of a batch")] = 8
    row_tokens: Annotated[int, Meta(ge=8, le=256), Setting("tokens of a row")] = 64
    steps: Annotated[int, Meta(ge=1, le=MOST_STEPS), Setting(
        "steps of the whole training; the learning rate falls until the last"
    )] = 1800  # fmt: skip
    rate: Annotated[float, Meta(gt=0, le=1), Setting("highest learning rate")] = 8e-3
    every: Annotated[
        int, Meta(ge=1, le=10_000), Setting("steps between two reports of loss, candidates and text")
    ] = 25
    """Steps between two evaluations: held-out loss, candidates after the prompt, and a sampled text."""
    prompt: Annotated[
        str, Meta(min_length=1, max_length=LONGEST_PROMPT), Setting("the text that it continues")
    ] = "Once upon a time"
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1), Setting("seed of the weights and batches")] = 0
