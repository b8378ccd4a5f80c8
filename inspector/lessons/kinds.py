"""What the functions of lessons give, field by field, read from records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.frozen import frozen
from engine.protocol import Candidate, Distribution, Explained, Piece, PromptToken, RaceStep, Step
from inspector.lessons.expressions import SubjectKind
from inspector.lessons.margins import margin, near_draw, near_top
from inspector.lessons.values import Unit, Value
from inspector.state.session_tree import Item


def token(text: str, label: str = "", fragile: str = "") -> Value:
    """A token as a value."""
    return Value("token", text, label, fragile)


def count(number: int, fragile: str = "") -> Value:
    """A number that was counted."""
    return Value("count", number, "", fragile)


def measured(unit: Unit, number: float) -> Value:
    """A number that was computed."""
    return Value(unit, number, timed=unit == "ms")


def written(item: Item | Candidate | Piece) -> str:
    """The characters of a token; its bytes, where it has none yet."""
    return item.text or item.raw.decode("utf-8", "replace")


# ---- distributions ----------------------------------------------------------------------------


def picked(distribution: Distribution) -> Value:
    """The token that the sampler picked, and how near it was to another one."""
    chosen = next(each for each in distribution.candidates if each.id == distribution.picked)
    return Value("token", written(chosen), "", near_draw(distribution), margin=margin(distribution))


def _top(distribution: Distribution) -> Value:
    fragile = near_top([each.prob for each in distribution.candidates])
    return token(written(distribution.candidates[0]), fragile=fragile)


def _some(value: float | None, what: str) -> float:
    if value is None:
        raise LookupError(f"{what} was not recorded")
    return value


DISTRIBUTION = SubjectKind(
    "a distribution",
    "picked",
    {
        "picked": ("the token that the sampler picked", picked),
        "prob": ("the model's probability of the picked token",
                 lambda of: measured("probability", _picked(of).prob)),
        "sampler_prob": ("its probability after the sampler",
                         lambda of: measured("probability", _picked(of).sampler_prob)),
        "top": ("the model's most probable token", _top),
        "top_prob": ("its probability", lambda of: measured("probability", of.candidates[0].prob)),
        "second": ("the second most probable token", lambda of: token(written(of.candidates[1]))),
        "second_prob": ("its probability", lambda of: measured("probability", of.candidates[1].prob)),
        "entropy": ("the model's entropy, before the sampler", lambda of: measured("bits", of.entropy_bits)),
        "sampler_entropy": ("the entropy of what is drawn from", lambda of: measured("bits", of.sampler_entropy_bits)),
        "draw": ("the random number that picked", lambda of: measured("number", _some(of.draw, "a draw"))),
        "low": ("where the picked token's share begins",
                lambda of: measured("number", _some(of.draw_from, "a draw"))),
        "high": ("where it ends", lambda of: measured("number", _some(of.draw_to, "a draw"))),
        "kept": ("tokens that the sampler left in", lambda of: count(_kept(of))),
        "vocabulary": ("all tokens that get a probability", lambda of: count(len(of.candidates) + of.others)),
        "removed": ("the probability of what its filters cut",
                    lambda of: measured("probability", max((each.removed_mass for each in of.stages), default=0.0))),
    },
)  # fmt: skip


def _picked(distribution: Distribution) -> Candidate:
    return next(each for each in distribution.candidates if each.id == distribution.picked)


def _kept(distribution: Distribution) -> int:
    everything = len(distribution.candidates) + distribution.others
    return min((each.kept for each in distribution.stages), default=everything)


CANDIDATE = SubjectKind(
    "a candidate",
    "prob",
    {
        "text": ("its characters", lambda of: token(written(of))),
        "prob": ("the model's probability", lambda of: measured("probability", of.prob)),
        "sampler_prob": (
            "its probability after the sampler",
            lambda of: measured("probability", of.sampler_prob),
        ),
        "rank": ("1 for the most probable", lambda of: count(of.rank)),
        "cut_by": ("the stage that cut it; `none`", lambda of: Value("text", of.cut_by or "none")),
    },
)


def _of_next(read: Callable[[Distribution], Value]) -> Callable[[Explained], Value]:
    def read_next(of: Explained) -> Value:
        return read(of.next)

    return read_next


TRIED = SubjectKind(
    "a trial of other settings",
    "picked",
    {name: (words, _of_next(read)) for name, (words, read) in DISTRIBUTION.fields.items()},
)
"""Of `Explained`: its distribution's fields."""


def stage_column(explained: Explained, name: str) -> int:
    """Tokens that a stage left in."""
    return next(each.kept for each in explained.columns if each.name == name)


# ---- tokens -----------------------------------------------------------------------------------


def _near_step(step: Step) -> str:
    """Why a step may have taken another token elsewhere: only where the sampler picked it."""
    return near_draw(step.choice) if step.origin in ("greedy", "sampled") else ""


STEP = SubjectKind(
    "a step",
    "text",
    {
        "text": (
            "its characters",
            lambda of: Value("token", written(of), "", _near_step(of), margin=margin(of.choice)),
        ),
        "prob": ("the model's probability", lambda of: measured("probability", of.prob)),
        "sampler_prob": (
            "its probability after the sampler",
            lambda of: measured("probability", of.sampler_prob),
        ),
        "rank": ("1 for the most probable", lambda of: count(of.rank)),
        "surprisal": ("how much it surprised", lambda of: measured("bits", of.surprisal_bits)),
        "entropy": ("the model's entropy before it", lambda of: measured("bits", of.choice.entropy_bits)),
        "number": ("its place in the completion, from 1", lambda of: count(of.index + 1)),
        "ms": ("how long it took", lambda of: measured("ms", of.ms.total)),
        "draw": (
            "the random number that picked it",
            lambda of: measured("number", _some(of.choice.draw, "a draw")),
        ),
        "low": (
            "where its share begins",
            lambda of: measured("number", _some(of.choice.draw_from, "a draw")),
        ),
        "high": ("where it ends", lambda of: measured("number", _some(of.choice.draw_to, "a draw"))),
    },
)


@frozen
class Pieces:
    """A text in tokens."""

    pieces: tuple[Piece | PromptToken, ...]


PIECES = SubjectKind(
    "a text in tokens",
    "count",
    {
        "count": ("how many tokens", lambda of: count(len(of.pieces))),
        "bytes": ("how many bytes", lambda of: count(sum(len(each.raw) for each in of.pieces))),
        "first": ("the first token", lambda of: token(written(of.pieces[0]))),
        "last": ("the last token", lambda of: token(written(of.pieces[-1]))),
    },
)


@frozen
class Generated:
    """What was generated on the path on show."""

    steps: tuple[Step, ...]
    words: int
    """How often the text in question occurs."""
    reason: str
    """Why it ended; empty where it didn't."""
    detail: str


COMPLETION = SubjectKind(
    "the completion",
    "length",
    {
        "text": ("all of it", lambda of: Value("text", "".join(each.text for each in of.steps))),
        "length": ("how many tokens", lambda of: count(len(of.steps))),
        "logprob": (
            "the sum of its logprobs",
            lambda of: measured("number", sum(each.logprob for each in of.steps)),
        ),
        "perplexity": (
            "2 to the mean of its surprisals",
            lambda of: measured("number", _perplexity(of.steps)),
        ),
        "occurrences": ("how often the text in question occurs", lambda of: count(of.words)),
        "reason": ("why it ended: eos, stop, length; `none`", lambda of: Value("text", of.reason or "none")),
        "detail": ("what ended it", lambda of: Value("text", of.detail)),
    },
)


def _perplexity(steps: Sequence[Step]) -> float:
    if not steps:
        raise LookupError("nothing was generated")
    return float(2 ** (sum(each.surprisal_bits for each in steps) / len(steps)))


# ---- memory and time --------------------------------------------------------------------------

KV = SubjectKind(
    "the KV cache",
    "bytes",
    {
        "bytes": ("bytes in use", lambda of: Value("bytes", of.used_bytes)),
        "tokens": ("tokens that it holds", lambda of: count(of.offset)),
    },
)


@frozen
class Raced:
    """The steps of a race."""

    steps: tuple[RaceStep, ...]

    def uncached(self, first: bool) -> float:
        """Milliseconds of a step without the cache: the median of the first, or last, five."""
        some = self.steps[:5] if first else self.steps[-5:]
        return sorted(each.uncached_ms for each in some)[len(some) // 2]

    def cached(self, first: bool) -> float:
        """The same with the cache."""
        some = self.steps[:5] if first else self.steps[-5:]
        return sorted(each.cached_ms for each in some)[len(some) // 2]


def _times(number: float) -> Value:
    return Value("times", number, timed=True)


RACE = SubjectKind(
    "a race",
    "equal",
    {
        "equal": ("whether both lanes took the same tokens",
                  lambda of: Value("truth", all(each.equal for each in of.steps))),
        "tokens": ("tokens at its end", lambda of: count(of.steps[-1].tokens)),
        "first": ("tokens at its first step", lambda of: count(of.steps[0].tokens)),
        "longer": ("how many times longer the text is at its end",
                   lambda of: Value("times", of.steps[-1].tokens / of.steps[0].tokens)),
        "cached_growth": ("the last step with the cache over the first, medians of five",
                          lambda of: _times(of.cached(False) / of.cached(True))),
        "uncached_growth": ("the last step without the cache over the first, medians of five",
                            lambda of: _times(of.uncached(False) / of.uncached(True))),
        "ratio": ("all steps without the cache over all with it",
                  lambda of: _times(of.steps[-1].uncached_total_ms / of.steps[-1].cached_total_ms)),
        "kv_growth": ("the cache's bytes at its end over those at its first step",
                      lambda of: Value("times", of.steps[-1].kv_bytes / of.steps[0].kv_bytes)),
        "difference": ("the largest difference of logits",
                       lambda of: measured("number", max(each.largest_difference for each in of.steps))),
    },
)  # fmt: skip
