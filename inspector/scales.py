"""Colours and units of values: the metrics of a token and the format of every number on the screen.

The colour scale has five steps with round thresholds, so that a legend can name them; below the first a token stays
unstyled. The colours are viridis, which keeps its order for colour-blind users and in greyscale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from engine.memory import MemoryOf
from engine.protocol import PromptToken, Step

STEPS = 5
"""Number of steps of the colour scale, without step 0, which has no colour."""
TokenRecord = PromptToken | Step
"""A record from which a token's metrics are read."""
Rgb = tuple[int, int, int]
_VIRIDIS: tuple[Rgb, ...] = (
    (68, 1, 84), (72, 40, 120), (62, 73, 137), (49, 104, 142), (38, 130, 142),
    (31, 158, 137), (53, 183, 121), (110, 206, 88), (181, 222, 43), (253, 231, 37),
)  # fmt: skip
_ON_DARK = (0.12, 0.32, 0.50, 0.70, 0.96)
_ON_LIGHT = (0.90, 0.72, 0.52, 0.30, 0.04)
_WHITE = (0.55, 0.40, 0.25, 0.05, 0.0)
"""Positions of the steps on the viridis scale, and the share of white mixed into those of a light theme."""
_BELOW_DARK = ((62, 40, 16), (104, 62, 16), (155, 88, 14), (214, 120, 24), (255, 178, 90))
_ABOVE_DARK = ((24, 40, 66), (30, 64, 110), (40, 95, 165), (70, 135, 215), (140, 190, 250))
_BELOW_LIGHT = ((254, 232, 206), (253, 205, 150), (250, 160, 85), (220, 105, 20), (150, 60, 5))
_ABOVE_LIGHT = ((222, 235, 247), (180, 210, 238), (120, 170, 220), (50, 115, 185), (8, 60, 130))
_INKS: tuple[Rgb, Rgb] = ((16, 16, 20), (248, 248, 250))


# ---- numbers --------------------------------------------------------------------------------


def count(value: int) -> str:
    """A whole number with commas between thousands: `4,086`."""
    return f"{value:,}"


def counted(value: int, noun: str) -> str:
    """A number with a noun: `1 token`, `4,086 tokens`, `12 branches`."""
    more = "es" if noun.endswith(("ch", "ss")) else "s"
    return f"{count(value)} {noun}{more * (value != 1)}"


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign and a true minus; zero has no sign: `+1.20`, `−0.31`, `0.00`."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if any(char in "123456789" for char in text) else text[1:]


def cut(value: float, digits: int = 3) -> str:
    """A number from 0 to 1, truncated instead of rounded, so that a draw never seems to be at the end of its range."""
    return f"{int(value * 10**digits) / 10**digits:.{digits}f}"


def decimal(value: float, digits: int = 2) -> str:
    """A number with a true minus; zero has no sign: `−0.31`, `0.00`."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def times(strength: float) -> str:
    """A strength, with a true minus: `x2`, `x−0.5`."""
    return f"x{strength:g}".replace("-", "−")


def perplexity(value: float) -> str:
    """A perplexity: two decimals, none if it is large: `1.98`, `4,086`, `60 M`."""
    if value < 99_999.5:
        return f"{value:.2f}" if value < 999.995 else count(round(value))
    return amount(value) if value < 1e15 else "∞" if math.isinf(value) else ">999 T"


def time_left(left_ms: float | None) -> str:
    """The estimated remaining time, for the end of a line: `, about 40 s left`; empty if unknown."""
    if left_ms is None:
        return ""
    seconds = max(1, round(left_ms / 1000))
    return f", about {seconds} s left" if seconds < 120 else f", about {round(seconds / 60)} min left"


def percent(share: float, sign: str = " %") -> str:
    """A probability in percent with two decimals, never rounded to 0 or 100.

    Args:
        share: 0 to 1.
        sign: Text after the number.

    Returns:
        `61.24 %`; `100 %` and `0 %` only for exactly these; `>99.99 %` and `<0.01 %` close to them.
    """
    if share >= 1.0:
        return f"100{sign}"
    if share <= 0.0:
        return f"0{sign}"
    if share < 0.0001:
        return f"<0.01{sign}"
    return f"{share:.2%}"[:-1] + sign if share < 0.99995 else f">99.99{sign}"


def share(mass: float) -> str:
    """Like `percent`, but with one significant digit for small values: `0.0003 %`."""
    if mass >= 0.001 or mass <= 0:
        return percent(mass)
    return f"{100 * mass:.1g} %" if mass >= 1e-6 else "<0.0001 %"


def bits(value: float) -> str:
    """Bits with two decimals; negative rounding errors become 0."""
    return f"{max(0.0, value):.2f}"


def milliseconds(value: float) -> str:
    """A duration with its unit: `0.42 ms`, `8.1 ms`, `120 ms`, `1.20 s`."""
    if value >= 999.5:
        return f"{value / 1000:.2f} s" if value < 100_000 else f"{value / 1000:.0f} s"
    return f"{ms(value)} ms"


def clock(seconds: float) -> str:
    """Minutes and seconds: `3:07`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def ms(value: float) -> str:
    """Milliseconds without the unit, with about two digits."""
    return f"{value:.2f}" if value < 0.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def size(value: int) -> str:
    """Bytes in the largest fitting unit, with about three digits: `512 B`, `122 KiB`, `1.5 MiB`."""
    if value < 1024:
        return f"{value} B"
    amount, unit = value / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if amount < 1000:
            break
        amount, unit = amount / 1024, larger
    return f"{_short(amount)} {unit}"


FREE: Mapping[MemoryOf, str] = {
    "machine": "free",
    "gpu": "free on the GPU",
    "metal": "free of what Metal recommends",
}
"""Words for free memory, by its kind."""


def amount(value: float) -> str:
    """A large number in short: `7.34 M`, `124 M`, `1.5 B`; unchanged below a thousand."""
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{_short(value / factor)} {unit}"
    return f"{value:g}"


def rate(tokens_a_second: float) -> str:
    """Throughput: `121 tok/s`, `8.4 tok/s`."""
    digits = 0 if tokens_a_second >= 99.5 else 1 if tokens_a_second >= 1 else 2
    return f"{tokens_a_second:.{digits}f} tok/s"


MODEL_ENTROPY, SAMPLER_ENTROPY = "model entropy", "sampler entropy"
"""Names of the entropy of the model's distribution, and of the one after all stages of the sampler."""
COLD = "with warm-up"
"""Remark on a time that includes work done only once after loading."""


def prompt_rate(tokens_a_second: float) -> str:
    """Throughput of a prefill; empty for 0, which means that all chunks included warm-up."""
    return rate(tokens_a_second) if tokens_a_second else ""


def _short(value: float) -> str:
    """A number with about three digits, without trailing zeros after the point."""
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ---- metrics --------------------------------------------------------------------------------


class Metric(Struct, frozen=True):
    """A figure of a token with its colour scale."""

    name: str
    unit: str
    value: Callable[[TokenRecord], float | None]
    """Value of a token; None if unknown."""
    steps: tuple[float, ...]
    """Threshold of each step of the colour scale, from the least conspicuous."""
    format: Callable[[float], str]
    top: float | None = None
    """Value at the full height of its chart; None to fit the values shown."""
    height: Callable[[float], float] = float
    """Height of a value in a chart, before it is divided by the top's."""
    signed: bool = False
    """True if values below 0 have a colour scale of their own."""
    falling: bool = False
    """True if a smaller value has a higher step."""

    def step(self, value: float | None) -> int:
        """The step of a value on the colour scale: 0 (no colour, or not known) to 5; if signed, from -5."""
        if value is None:
            return 0
        if self.signed and value < 0:
            return -self.step(-value)
        return sum(value < edge if self.falling else value >= edge for edge in self.steps)

    def level(self, value: float | None) -> float:
        """The step of a value, scaled to 0 to 1."""
        return self.step(value) / STEPS


def _probability(token: TokenRecord) -> float | None:
    return None if isinstance(token, Step) and math.isnan(token.logprob) else token.prob


def _surprisal(token: TokenRecord) -> float | None:
    if isinstance(token, Step):
        return None if math.isnan(token.logprob) else token.surprisal_bits
    return None if token.logprob is None else -token.logprob / math.log(2)


def _entropy(token: TokenRecord) -> float | None:
    if isinstance(token, PromptToken):
        return token.entropy_bits
    return None if token.choice.listed else token.choice.entropy_bits


def left_over(shares: Iterable[float]) -> float:
    """The difference between 1 and the sum of some shares."""
    return max(0.0, 1 - math.fsum(shares))


def others_prob(token: PromptToken) -> float:
    """Probability of the tokens beyond a prompt token's candidates; for an old trace, 1 minus the candidates'."""
    if token.others_prob is not None:
        return token.others_prob
    return left_over(candidate.prob for candidate in token.candidates)


def _rank(token: TokenRecord) -> float | None:
    return token.rank or None


SURPRISE_BITS = 4.0
"""Surprisal from which on a token is a surprise: its probability is at most 1/16."""
SHARES = (0.02, 0.05, 0.15, 0.35, 0.65)
"""Threshold of each step of the colour scale for shares, as of attention."""
INSIDE = "inside"
"""Stands for a view of the model's internals instead of a metric: see `shares_metric`."""
SEGMENT = "segment"
"""Stands for the segment of a token instead of a metric: each kind has a colour."""
METRIC: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("off", "", lambda _: None, (), str),
        Metric("probability", "", _probability, (0.25, 0.1, 0.05, 0.01, 0.001), percent, 1.0, falling=True),
        Metric("surprisal", "bits", _surprisal, (2, 3, 4, 6, 8), bits),
        Metric("entropy", "bits", _entropy, (2, 3, 4, 5, 6), bits),
        Metric("rank", "", _rank, (2, 3, 6, 11, 101), lambda value: count(int(value)), None, math.log2),
        Metric(SEGMENT, "", lambda _: None, (), str),
        Metric(INSIDE, "", lambda _: None, (), str),
    )
}
METRICS: tuple[str, ...] = tuple(METRIC)
"""Names of the metrics, in the order in which a key goes through them."""


def shares_metric(name: str, shares: Mapping[int, float], signed: bool) -> Metric:
    """A metric made from a share of each token.

    Args:
        name: Name of the metric; printable.
        shares: Shares by node, 0 to 1 or -1 to 1; a token without one stays unstyled.
        signed: Whether shares can be below 0.
    """
    return Metric(name, "", lambda token: shares.get(token.node), SHARES, percent, 1.0, signed=signed)


KL_BITS = (0.01, 0.05, 0.2, 0.5, 1.5)
"""Threshold of each step of the colour scale for KL divergences, in bits."""


# ---- colour ---------------------------------------------------------------------------------


def viridis(share: float, white: float = 0.0) -> Rgb:
    """The viridis colour at a position.

    Args:
        share: Position, 0 to 1.
        white: Share of white to mix in, 0 to 1.
    """
    place = min(1.0, max(0.0, share)) * (len(_VIRIDIS) - 1)
    low = min(int(place), len(_VIRIDIS) - 2)
    pairs = zip(_VIRIDIS[low], _VIRIDIS[low + 1], strict=True)
    mixed = (round(one + (other - one) * (place - low)) for one, other in pairs)
    red, green, blue = (round(value + (255 - value) * white) for value in mixed)
    return red, green, blue


@lru_cache(maxsize=256)  # a screen draws a few levels repeatedly
def colour(level: float, dark: bool = True) -> Rgb:
    """A viridis colour that contrasts with the theme's background, for bars and charts.

    Args:
        level: 0 to 1, the most conspicuous.
        dark: Whether the theme is dark.
    """
    return viridis(0.42 + 0.55 * level) if dark else viridis(0.52 - 0.50 * level)


def step_of(share: float) -> int:
    """The step of a share on the colour scale, 0 to 5."""
    return sum(share >= edge for edge in SHARES)


def opposed_heat(step: int, dark: bool = True) -> tuple[Rgb, Rgb]:
    """Text and background colour of a step on a signed scale: blue above 0, orange below, as in bars of contributions.

    Args:
        step: 1 to 5, or -1 to -5.
        dark: Whether the theme is dark.
    """
    above, below = (_ABOVE_DARK, _BELOW_DARK) if dark else (_ABOVE_LIGHT, _BELOW_LIGHT)
    return _inked((above if step > 0 else below)[abs(step) - 1])


def contrast(one: Rgb, other: Rgb) -> float:
    """Contrast of two colours, as in WCAG: 1 for equal ones, 21 for black on white, 4.5 required for small text."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(rgb: Rgb) -> float:
    """Relative luminance, as in WCAG."""
    linear = (each / 255 / 12.92 if each <= 10 else ((each / 255 + 0.055) / 1.055) ** 2.4 for each in rgb)
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _inked(ground: Rgb) -> tuple[Rgb, Rgb]:
    """The text colour with more contrast on a background, and the background."""
    return max(_INKS, key=lambda ink: contrast(ink, ground)), ground


HEAT: Mapping[tuple[int, bool], tuple[Rgb, Rgb]] = {
    (n + 1, dark): _inked(viridis(_ON_DARK[n]) if dark else viridis(_ON_LIGHT[n], _WHITE[n]))
    for n in range(STEPS)
    for dark in (True, False)
}
"""Text and background colour by step, 1 to 5, and by whether the theme is dark. Step 5 differs most from the theme's
own background."""
