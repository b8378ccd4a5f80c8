"""The results of a lesson's functions, field by field, read from records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from msgspec import Struct

from engine.protocol import (
    AttributionRead,
    BatchOpened,
    BatchTotals,
    Candidate,
    Distribution,
    DraftRound,
    Explained,
    GrammarReading,
    Hypothesis,
    Intervened,
    LaneCompared,
    LensCell,
    LensColumn,
    LockstepSpan,
    PairPatched,
    Piece,
    RaceStep,
    SteeredStrength,
    Step,
    StrengthsSwept,
    TrainedStep,
    TrainingLook,
    WaysParted,
    WordApart,
)
from inspector.display import token_label
from inspector.documents.race import paces
from inspector.lessons.values import NEAREST_DRAW, Value, margin, near_draw, near_top
from inspector.state.beams import BeamNode
from inspector.state.session_tree import Item
from inspector.state.speculation import SpeculationTotals
from inspector.state.training import part_label

Field = tuple[str, Callable[[Any], Value]]
"""A description of a field in a few words, and the function that reads it."""


class SubjectKind(Struct, frozen=True):
    """The kind of a function's result: its fields, by name."""

    name: str
    default: str
    """The field that an expression reads if it names none."""
    fields: Mapping[str, Field]
    of_text: str = ""
    """The same, if the function is called with an argument; empty for `default`."""


def token(text: str, fragile: str = "", margin: str = "") -> Value:
    return Value("token", text, "", fragile, margin=margin)


def count(number: int, fragile: str = "") -> Value:
    """A number that was counted."""
    return Value("count", number, "", fragile)


probability = partial(Value, "probability")
bits = partial(Value, "bits")
number = partial(Value, "number")
text = partial(Value, "text")


def draw(value: float | None) -> Value:
    """A place on the line from 0 to 1 on which a draw falls.

    Raises:
        LookupError: There was no draw, as in greedy decoding.
    """
    if value is None:
        raise LookupError("a draw was not recorded")
    return Value("draw", value)


def ms(milliseconds: float) -> Value:
    return Value("ms", milliseconds, timed=True)


def times(ratio: float, timed: bool = False) -> Value:
    return Value("times", ratio, timed=timed)


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise LookupError("there is no such token")
    return math.fsum(values) / len(values)


def written(item: Item | Candidate | Piece) -> str:
    """The characters of a token; its decoded bytes, if it has none yet."""
    return item.text or item.raw.decode("utf-8", "replace")


# ---- distributions ----------------------------------------------------------------------------


def _picked(distribution: Distribution) -> Candidate:
    return next(each for each in distribution.candidates if each.id == distribution.picked)


def picked(distribution: Distribution) -> Value:
    """The token that the sampler picked, with its distance from the next token."""
    return token(written(_picked(distribution)), near_draw(distribution), margin(distribution))


def _top(distribution: Distribution) -> Value:
    candidates = distribution.candidates
    return token(written(candidates[0]), near_top([each.prob for each in candidates]))


def _kept(distribution: Distribution) -> int:
    everything = len(distribution.candidates) + distribution.others
    return min((each.kept for each in distribution.stages), default=everything)


DISTRIBUTION = SubjectKind("a distribution", "picked", {
    "picked": ("the token that the sampler picked", picked),
    "prob": ("the model's probability of the picked token", lambda of: probability(_picked(of).prob)),
    "sampler_prob": ("its probability after the sampler", lambda of: probability(_picked(of).sampler_prob)),
    "top": ("the model's most probable token", _top),
    "top_prob": ("its probability", lambda of: probability(of.candidates[0].prob)),
    "second": ("the second most probable token", lambda of: token(written(of.candidates[1]))),
    "second_prob": ("its probability", lambda of: probability(of.candidates[1].prob)),
    "entropy": ("the model's entropy, before the sampler", lambda of: bits(of.entropy_bits)),
    "sampler_entropy": ("the entropy of what is drawn from", lambda of: bits(of.sampler_entropy_bits)),
    "draw": ("the random number that decides", lambda of: draw(of.draw)),
    "low": ("where the picked token's part of the line begins", lambda of: draw(of.draw_from)),
    "high": ("where it ends", lambda of: draw(of.draw_to)),
    "kept": ("how many tokens the sampler kept", lambda of: count(_kept(of))),
    "vocabulary": ("all tokens that get a probability", lambda of: count(len(of.candidates) + of.others)),
    "removed": ("the probability that its filters cut",
                lambda of: probability(max((each.removed_mass for each in of.stages), default=0.0))),
})  # fmt: skip

CANDIDATE = SubjectKind("a candidate", "prob", {
    "text": ("its characters", lambda of: token(written(of))),
    "prob": ("the model's probability", lambda of: probability(of.prob)),
    "sampler_prob": ("its probability after the sampler", lambda of: probability(of.sampler_prob)),
    "rank": ("1 for the most probable", lambda of: count(of.rank)),
    "cut_by": ("the stage that cut it; `none`", lambda of: text(of.cut_by or "none")),
})  # fmt: skip


def _of_next(read: Callable[[Distribution], Value]) -> Callable[[Explained], Value]:
    return lambda of: read(of.next)


TRIED = SubjectKind(
    "a trial of other settings",
    "picked",
    {name: (words, _of_next(read)) for name, (words, read) in DISTRIBUTION.fields.items()},
)
"""The fields of `Explained`: those of its distribution."""
STAGE = SubjectKind("a stage of the sampler", "kept", {
    "kept": ("how many tokens it kept", lambda of: count(of.kept)),
    "removed": ("the probability that it cut", lambda of: probability(of.removed_mass)),
})  # fmt: skip


class Redrawn(Struct, frozen=True):
    """Repeated draws from one distribution."""

    draws: tuple[Distribution, ...]
    text: str
    """The token in question, with or without the space before it."""

    @property
    def texts(self) -> Counter[str]:
        """The drawn tokens, with the number of draws of each."""
        return Counter(written(_picked(each)) for each in self.draws)

    @property
    def times(self) -> Value:
        """The number of draws of the token in question."""
        own = [each for each in self.draws if written(_picked(each)) in (self.text, f" {self.text}")]
        borders = [border for each in own[:1] for border in (each.draw_from, each.draw_to) if border]
        near = any(
            abs((each.draw or 0.0) - border) < NEAREST_DRAW for each in self.draws for border in borders
        )
        return count(len(own), f"a draw is within {NEAREST_DRAW} of its border" if near else "")


REROLLS = SubjectKind("draws that were repeated", "most", {
    "most": ("the token that was drawn most often", lambda of: token(of.texts.most_common(1)[0][0])),
    "times": ("how often that token was drawn", lambda of: count(of.texts.most_common(1)[0][1])),
    "drawn": ("how often the token in question was drawn", lambda of: of.times),
    "count": ("how many draws", lambda of: count(len(of.draws))),
    "different": ("how many different tokens", lambda of: count(len(of.texts))),
}, of_text="drawn")  # fmt: skip

# ---- grammars ---------------------------------------------------------------------------------


def grammar_of(distribution: Distribution) -> GrammarReading:
    """The tokens that the grammar allows at a distribution.

    Raises:
        LookupError: No grammar is in force there.
    """
    if distribution.grammar is None:
        raise LookupError("no grammar holds there")
    return distribution.grammar


def _mass(reading: GrammarReading) -> Value:
    return probability(reading.mass)


def _certain(step: Step) -> bool:
    """True if a grammar left only one text for a token."""
    return step.choice.grammar is not None and step.choice.grammar.forced.startswith(step.raw)


GRAMMAR = SubjectKind("a grammar", "mass", {
    "mass": ("the model's probability of all tokens that it allows", _mass),
    "allowed": ("how many tokens it allows", lambda of: count(of.allowed)),
    "forced": ("characters that the grammar makes certain", lambda of: text(of.forced.decode("utf-8", "replace"))),
})  # fmt: skip

# ---- tokens -----------------------------------------------------------------------------------


def _step_text(step: Step) -> Value:
    """The characters of a step; another machine may take a different token only if the sampler picked it."""
    fragile = near_draw(step.choice) if step.origin in ("greedy", "sampled") else ""
    return token(written(step), fragile, margin(step.choice))


STEP = SubjectKind("a step", "text", {
    "text": ("its characters", _step_text),
    "prob": ("the model's probability", lambda of: probability(of.prob)),
    "sampler_prob": ("its probability after the sampler", lambda of: probability(of.sampler_prob)),
    "rank": ("1 for the most probable", lambda of: count(of.rank)),
    "surprisal": ("how unexpected it was", lambda of: bits(of.surprisal_bits)),
    "entropy": ("the model's entropy before it", lambda of: bits(of.choice.entropy_bits)),
    "number": ("its place in the completion, from 1", lambda of: count(of.index + 1)),
    "ms": ("how long it took", lambda of: ms(of.ms.total)),
    "draw": ("the random number that decided it", lambda of: draw(of.choice.draw)),
    "low": ("where its part of the line begins", lambda of: draw(of.choice.draw_from)),
    "high": ("where it ends", lambda of: draw(of.choice.draw_to)),
    "mass": ("the probability of all tokens that a grammar allowed there", lambda of: _mass(grammar_of(of.choice))),
})  # fmt: skip

PIECES = SubjectKind("a text in tokens", "count", {
    "count": ("how many tokens", lambda of: count(len(of))),
    "bytes": ("how many bytes", lambda of: count(sum(len(each.raw) for each in of))),
    "first": ("the first token", lambda of: token(written(of[0]))),
    "last": ("the last token", lambda of: token(written(of[-1]))),
})  # fmt: skip


class Merged(Struct, frozen=True):
    """A word after some of its merges."""

    word: WordApart
    made: int
    """Merges so far."""

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The word's pieces after these merges."""
        return self.word.pieces(self.made)

    @property
    def rank(self) -> int:
        """Place of the last of these merges in the tokenizer's list, from 0 as on the screen.

        Raises:
            LookupError: No merge was made.
        """
        if not self.made:
            raise LookupError("no merge was made")
        return self.word.ranks[self.made - 1]

    @property
    def latest(self) -> str:
        """The piece that the last of these merges made.

        Raises:
            LookupError: No merge was made.
        """
        if not self.made:
            raise LookupError("no merge was made")
        border = sum(map(len, self.word.symbols[: self.word.borders[self.made - 1]]))
        ends = accumulate(map(len, self.pieces))
        found = next(piece for piece, end in zip(self.pieces, ends, strict=True) if border < end)
        return found.decode("utf-8", "replace")


MERGED = SubjectKind("a word in merges", "text", {
    "text": ("its pieces, with dots between them",
             lambda of: text("·".join(token_label(each.decode("utf-8", "replace"), each) for each in of.pieces))),
    "pieces": ("how many there are", lambda of: count(len(of.pieces))),
    "merges": ("how many merges were made", lambda of: count(of.made)),
    "made": ("the piece that the last one made", lambda of: token(of.latest)),
    "rank": ("the place of that merge in the tokenizer's list, from 0", lambda of: count(of.rank)),
})  # fmt: skip


class Generated(Struct, frozen=True):
    """The tokens generated on the current path."""

    steps: tuple[Step, ...]
    words: int = 0
    """Occurrences of the text in question."""
    reason: str = ""
    """Why it ended; empty if it has not ended."""
    detail: str = ""

    @property
    def perplexity(self) -> float:
        """2 to the mean of the surprisals.

        Raises:
            LookupError: Nothing was generated.
        """
        if not self.steps:
            raise LookupError("nothing was generated")
        return float(2 ** (sum(each.surprisal_bits for each in self.steps) / len(self.steps)))


COMPLETION = SubjectKind("the completion", "length", {
    "text": ("all of it", lambda of: text("".join(each.text for each in of.steps))),
    "length": ("how many tokens", lambda of: count(len(of.steps))),
    "logprob": ("the sum of its logprobs", lambda of: number(sum(each.logprob for each in of.steps))),
    "perplexity": ("2 to the mean of its surprisals", lambda of: number(of.perplexity)),
    "occurrences": ("how often the text in question occurs", lambda of: count(of.words)),
    "forced": ("how many tokens were certain under a grammar", lambda of: count(sum(map(_certain, of.steps)))),
    "reason": ("why it ended: eos, stop, length; `none`", lambda of: text(of.reason or "none")),
    "detail": ("what ended it", lambda of: text(of.detail)),
}, of_text="occurrences")  # fmt: skip

# ---- settings, memory and time ----------------------------------------------------------------


def _setting(of: object) -> Value:
    """The value of a setting: a number as it is, a list with commas."""
    if isinstance(of, int | float):
        return count(of) if isinstance(of, int) else number(of)
    return text(", ".join(map(str, of)) if isinstance(of, tuple) else str(of))


SETTING = SubjectKind("a setting", "value", {"value": ("its value", _setting)})
PREFILL = SubjectKind("the reading of a prompt", "tokens", {
    "tokens": ("how many tokens the prompt has", lambda of: count(len(of.tokens))),
    "kept": ("tokens of it that the cache held already", lambda of: count(of.kept)),
    "ms": ("the time to the first token", lambda of: ms(of.ttft_ms)),
})  # fmt: skip
KV = SubjectKind("the KV cache", "bytes", {
    "bytes": ("bytes in use", lambda of: Value("bytes", of.used_bytes)),
    "tokens": ("tokens that it holds", lambda of: count(of.offset)),
})  # fmt: skip


def _growth(steps: Sequence[RaceStep], cached: bool) -> Value:
    """The time of the last steps of one lane over that of the first ones, as on the race's screen."""
    first, last = paces(steps, cached)
    return times(last / first, timed=True)


RACE = SubjectKind("a race", "equal", {
    "equal": ("true if both lanes took the same tokens", lambda of: Value("truth", all(each.equal for each in of))),
    "tokens": ("tokens at its end", lambda of: count(of[-1].tokens)),
    "first": ("tokens at its first step", lambda of: count(of[0].tokens)),
    "longer": ("how many times longer the text is at its end", lambda of: times(of[-1].tokens / of[0].tokens)),
    "cached_growth": ("the last steps with the cache over the first, medians of seven",
                      lambda of: _growth(of, True)),
    "uncached_growth": ("the last steps without the cache over the first, medians of seven",
                        lambda of: _growth(of, False)),
    "ratio": ("all steps without the cache over all with it",
              lambda of: times(of[-1].uncached_total_ms / of[-1].cached_total_ms, timed=True)),
    "kv_growth": ("the cache's bytes at its end over those at its first step",
                  lambda of: times(of[-1].kv_bytes / of[0].kv_bytes)),
    "difference": ("the largest difference of logits",
                   lambda of: number(max(each.largest_difference for each in of))),
})  # fmt: skip

# ---- several tokens with one forward pass: a batch, speculation ----------------------------------


class RunBatch(Struct, frozen=True):
    """A batch that has ended."""

    opened: BatchOpened
    totals: BatchTotals
    compared: tuple[LaneCompared, ...]
    """The comparisons of its lanes with their prompts run alone, if that was done."""

    @property
    def equal(self) -> bool:
        """True if each prompt alone takes the same tokens.

        Raises:
            LookupError: No prompt was run alone.
        """
        if not self.compared:
            raise LookupError("its prompts were not run alone")
        return all(each.difference is None for each in self.compared)


BATCH = SubjectKind("a batch", "tokens", {
    "tokens": ("tokens that all lanes wrote together", lambda of: count(of.totals.tokens)),
    "forwards": ("forwards that wrote them, after the prompts", lambda of: count(of.totals.forwards)),
    "lanes": ("how many prompts", lambda of: count(len(of.opened.lanes))),
    "prompt_tokens": ("tokens of all prompts", lambda of: count(of.totals.prompt_tokens)),
    "padding": ("places before prompts that were filled up with padding", lambda of: count(of.totals.padding)),
    "rows": ("row-steps that wrote a token: one row in one forward", lambda of: count(of.totals.rows)),
    "idle": ("row-steps of lanes that had ended", lambda of: count(of.totals.rows_after_end)),
    "equal": ("whether each prompt alone takes the same tokens", lambda of: Value("truth", of.equal)),
})  # fmt: skip


def _accepted(of: DraftRound) -> int:
    return sum(each.fate == "accepted" for each in of.drafts)


def _acceptance(of: SpeculationTotals) -> Value:
    if of.acceptance is None:
        raise LookupError("nothing was drafted")
    return probability(of.acceptance)


ROUND = SubjectKind("a round of speculation", "taken", {
    "taken": ("tokens that it added with one forward", lambda of: count(of.taken)),
    "drafted": ("tokens that the draft proposed", lambda of: count(len(of.drafts))),
    "accepted": ("how many of them were accepted", lambda of: count(_accepted(of))),
    "text": ("the draft", lambda of: text("".join(each.text for each in of.drafts).strip())),
})  # fmt: skip
SPECULATION = SubjectKind("rounds of speculation", "tokens", {
    "tokens": ("tokens that a forward added, the mean", lambda of: number(of.tokens_a_forward)),
    "rounds": ("how many rounds", lambda of: count(of.rounds)),
    "taken": ("tokens that they added", lambda of: count(of.taken)),
    "drafted": ("tokens that were drafted", lambda of: count(of.drafted)),
    "acceptance": ("the share of the drafted tokens looked at that was accepted",
                   _acceptance),
})  # fmt: skip
VERIFIED = SubjectKind("speculation beside plain steps", "equal", {
    "equal": ("whether plain steps take the same tokens", lambda of: Value("truth", of.differs is None)),
    "tokens": ("how many were compared", lambda of: count(of.tokens)),
})  # fmt: skip

# ---- beams ------------------------------------------------------------------------------------


class Searched(Struct, frozen=True):
    """A continuation of a beam search."""

    best: Hypothesis
    greedy: Hypothesis
    nodes: Mapping[int, BeamNode]
    """Nodes of all searches since the prompt was read, by number."""

    @property
    def shared(self) -> int:
        """Number of tokens before it diverges from greedy decoding."""
        pairs = zip(self.best.ids, self.greedy.ids, strict=False)
        return next((place for place, (own, other) in enumerate(pairs) if own != other), self._shorter)

    @property
    def _shorter(self) -> int:
        return min(self.best.length, self.greedy.length)

    def parted(self, hypothesis: Hypothesis) -> BeamNode:
        """The token of one of the two at which they diverge.

        Raises:
            LookupError: They don't diverge.
        """
        if self.shared == self._shorter:
            raise LookupError("it doesn't part from greedy decoding")
        node = self.nodes[hypothesis.node]
        while node.length > self.shared + 1:
            node = self.nodes[node.parent]
        return node


BEAMS = SubjectKind("a continuation of a beam search", "text", {
    "text": ("its text", lambda of: text(of.best.text)),
    "logprob": ("the sum of its logprobs", lambda of: number(of.best.logprob)),
    "score": ("its score", lambda of: number(of.best.score)),
    "length": ("how many tokens", lambda of: count(of.best.length)),
    "greedy_logprob": ("the sum of greedy decoding's logprobs", lambda of: number(of.greedy.logprob)),
    "greedy_text": ("greedy decoding's text", lambda of: text(of.greedy.text)),
    "times_greedy": ("how many times as probable it is as greedy decoding's text",
                     lambda of: times(math.exp(of.best.logprob - of.greedy.logprob))),
    "shared": ("tokens until it parts from greedy decoding", lambda of: count(of.shared)),
    "parts": ("its token where they part", lambda of: token(of.parted(of.best).text)),
    "parts_prob": ("the probability of that token", lambda of: probability(math.exp(of.parted(of.best).logprob))),
    "greedy_parts": ("the token that greedy decoding takes there", lambda of: token(of.parted(of.greedy).text)),
    "greedy_parts_prob": ("the probability of that token",
                          lambda of: probability(math.exp(of.parted(of.greedy).logprob))),
    "is_greedy": ("true if it is the text of greedy decoding",
                  lambda of: Value("truth", of.best.ids == of.greedy.ids)),
})  # fmt: skip

# ---- inside the model -------------------------------------------------------------------------


class HeadRow(Struct, frozen=True):
    """The attention of one head."""

    weights: tuple[float, ...]
    """The weight on each position of the path."""
    path: tuple[Item, ...]

    @property
    def most(self) -> int:
        """Position that it looks at most."""
        return max(range(len(self.weights)), key=lambda place: self.weights[place])


HEAD = SubjectKind("a head", "text", {
    "text": ("the token that it looks at most", lambda of: token(written(of.path[of.most]), near_top(of.weights))),
    "weight": ("the weight on it", lambda of: probability(of.weights[of.most])),
    "place": ("its place in the text, from 1", lambda of: count(of.most + 1)),
})  # fmt: skip


class LensLayer(Struct, frozen=True):
    """The prediction of one layer at the last token."""

    column: LensColumn
    layer: int

    @property
    def cell(self) -> LensCell:
        """The layer's cell.

        Raises:
            LookupError: The model has no such layer.
        """
        cells = self.column.cells
        if not 0 <= self.layer < len(cells):
            raise LookupError(f"the model has {len(cells) - 1} layers")
        return cells[self.layer]


LENS = SubjectKind("the lens at a layer", "top", {
    "top": ("the token that it would predict",
            lambda of: token(of.cell.top[0].text, near_top([each.prob for each in of.cell.top]))),
    "prob": ("its probability", lambda of: probability(of.cell.top[0].prob)),
    "entropy": ("its entropy", lambda of: bits(of.cell.entropy_bits)),
    "layers": ("how many layers the model has", lambda of: count(len(of.column.cells) - 1)),
    "leads_from": ("the layer from which on the final token leads, from 1; 0 for the embedding",
                   lambda of: count(of.column.leads_from)),
})  # fmt: skip


def _left(of: Intervened) -> list[Candidate]:
    """The candidates under the interventions, the most probable first."""
    return sorted((each.after for each in of.candidates), key=lambda each: each.rank)


WITHOUT = SubjectKind("a model without some parts", "top", {
    "top": ("the token that is then most probable",
            lambda of: token(written(_left(of)[0]), near_top([each.prob for each in _left(of)]))),
    "top_prob": ("its probability", lambda of: probability(_left(of)[0].prob)),
    "prob": ("the probability that is left to the token that was most probable before",
             lambda of: probability(of.candidates[0].after.prob)),
    "kl": ("how far the distribution moved, as KL", lambda of: bits(of.kl_bits)),
})  # fmt: skip
STRONGEST = SubjectKind("a part that was switched off", "label", {
    "label": ("its name: `L6 h1`, `L3 MLP`", lambda of: text(of.by_kl[0].intervention.label)),
    "kind": ("what it is: head, attention, mlp, recurrence, layer", lambda of: text(of.by_kl[0].intervention.kind)),
    "kl": ("how far the distribution moved without it, as KL", lambda of: bits(of.by_kl[0].kl_bits)),
    "top": ("the token that is then most probable", lambda of: token(of.by_kl[0].top_text)),
    "parts": ("how many parts were switched off, one at a time", lambda of: count(len(of.units))),
})  # fmt: skip

# ---- steering, and learning ----------------------------------------------------------------------


class Steered(Struct, frozen=True):
    """The effect of a direction at one strength, compared with random ones of its length."""

    swept: StrengthsSwept
    at: SteeredStrength


STEERED = SubjectKind("a steered prediction", "top", {
    "top": ("the most probable token then", lambda of: token(of.at.top_text)),
    "top_prob": ("its probability", lambda of: probability(of.at.top_prob)),
    "first": ("the candidate that is followed", lambda of: token(of.swept.text)),
    "first_prob": ("its probability then", lambda of: probability(of.at.prob)),
    "second": ("the candidate that it is compared with", lambda of: token(of.swept.other_text)),
    "second_prob": ("its probability then", lambda of: probability(of.at.other_prob)),
    "kl": ("how far all probabilities moved, as KL", lambda of: bits(of.at.kl_bits)),
    "low": ("what 95 % of the random directions exceed: their KL", lambda of: bits(of.at.kl_low)),
    "high": ("what 95 % of the random directions stay below: their KL", lambda of: bits(of.at.kl_high)),
    "outside": ("whether it moved them further than 95 % of the random directions",
                lambda of: Value("truth", of.at.kl_bits > of.at.kl_high)),
    "random": ("how many random directions", lambda of: count(of.swept.random)),
})  # fmt: skip


class Learned(Struct, frozen=True):
    """A model at a step of its training, as it was evaluated then."""

    steps: tuple[TrainedStep, ...]
    """The last steps until then; their mean is shown, as on the screen."""
    look: TrainingLook
    parts: tuple[str, ...]
    """The parts with known gradients."""
    parameters: int
    vocabulary: int
    """Tokens that it chooses among."""

    @property
    def pulled(self) -> str:
        """The part with the largest gradient."""
        norms = [_mean([each.norms[place] for each in self.steps]) for place in range(len(self.parts))]
        return part_label(self.parts[norms.index(max(norms))])


LEARNED = SubjectKind("a model that learns", "loss", {
    "step": ("the step of its training", lambda of: count(of.steps[-1].step)),
    "loss": ("its loss in nats on the text of the last steps, the mean",
             lambda of: number(_mean([each.loss for each in of.steps]))),
    "held_out": ("its loss on text that it never learns from", lambda of: number(of.look.held_out_loss)),
    "top": ("what it expects first after its prompt", lambda of: token(of.look.candidates[0].text)),
    "top_prob": ("the probability of that", lambda of: probability(of.look.candidates[0].prob)),
    "text": ("what it writes after its prompt: the first 60 characters",
             lambda of: text(" ".join(of.look.sample[:60].split()))),
    "pulled": ("the part with the largest gradient, as its bars name it", lambda of: text(of.pulled)),
    "parameters": ("how many numbers it has", lambda of: count(of.parameters)),
    "vocabulary": ("tokens that it chooses among", lambda of: count(of.vocabulary)),
    "guess": ("the loss of a blind guess among these", lambda of: number(math.log(of.vocabulary))),
    "tokens": ("tokens that it learned from until then", lambda of: count(of.steps[-1].tokens)),
})  # fmt: skip

# ---- contributions to a logit, patching, what heads do ------------------------------------------


class Written(Struct, frozen=True):
    """One writer of the residual stream, and what it adds to the difference of two logits."""

    label: str
    kind: str
    logits: float
    read: AttributionRead


CONTRIBUTION = SubjectKind("a contribution", "logits", {
    "label": ("the part: `L7 h2`, `L3 MLP`, `embedding`", lambda of: text(of.label)),
    "kind": ("what it is: head, attention, mlp, embedding", lambda of: text(of.kind)),
    "logits": ("what it adds, in logits", lambda of: number(of.logits)),
    "total": ("the difference of the two logits, what all parts add", lambda of: number(of.read.reached)),
    "token": ("the token whose logit it is", lambda of: token(of.read.tokens[0].text)),
    "other": ("the one whose logit is taken off", lambda of: token(of.read.tokens[1].text)),
})  # fmt: skip


class AnswerMoved(Struct, frozen=True):
    """The layer after which the last token carries the difference between two texts."""

    pair: PairPatched
    layers: tuple[int, ...]
    shares: tuple[float, ...]
    """The share of the other text's answer that comes with the activation patched into the last token, by layer."""

    @property
    def place(self) -> int:
        """Place of the first layer with more than half.

        Raises:
            LookupError: There is no such layer.
        """
        found = next((place for place, share in enumerate(self.shares) if share > 0.5), None)
        if found is None:
            raise LookupError("the last token holds the difference after no layer")
        return found


PATCHED = SubjectKind("a pair of texts, patched", "layer", {
    "layer": ("the first layer after which the last token holds more than half of the difference, from 1",
              lambda of: count(of.layers[of.place] + 1)),
    "share": ("the share that it holds then", lambda of: probability(of.shares[of.place])),
    "before": ("the share one layer before", lambda of: probability(of.shares[of.place - 1] if of.place else 0.0)),
    "token": ("the answer of the text that is put in", lambda of: token(of.pair.token)),
    "other": ("the answer of the text that it is put into", lambda of: token(of.pair.other)),
})  # fmt: skip


class Does(Struct, frozen=True):
    """The head with the highest score for something that heads do."""

    label: str
    layer: int
    score: float


DOES = SubjectKind("what a head does", "score", {
    "label": ("its name: `L4 h4`", lambda of: text(of.label)),
    "layer": ("its layer, from 1", lambda of: count(of.layer)),
    "score": ("the share of its attention that does it", lambda of: probability(of.score)),
})  # fmt: skip

# ---- a second model -----------------------------------------------------------------------------

SURE, UNSURE = 1.0, 2.0
"""Bits of the first model's entropy: below `SURE` it was sure of a token, from `UNSURE` on it was unsure."""
Spans = Sequence[LockstepSpan]
"""Tokens that both models read whole."""


def _kl(spans: Spans, low: float = 0.0, high: float = math.inf) -> Value:
    """The mean KL of the tokens before which the first model's entropy was in a range."""
    return bits(_mean([each.kl_bits or 0.0 for each in spans if low <= (each.entropy_bits or 0.0) < high]))


def _worst(spans: Spans) -> LockstepSpan:
    return max(spans, key=lambda each: each.kl_bits or 0.0)


def _perplexity(logprobs: Sequence[float | None]) -> Value:
    return number(math.exp(-_mean([each or 0.0 for each in logprobs])))


SECOND_MODEL = SubjectKind("both models", "kl", {
    "kl": ("the mean KL, in bits", _kl),
    "sure_kl": (f"the mean KL at tokens of which the first model was sure: below {SURE:.0f} bit of entropy",
                lambda of: _kl(of, high=SURE)),
    "unsure_kl": (f"the mean KL at tokens of which it was unsure: {UNSURE:.0f} bits or more",
                  lambda of: _kl(of, low=UNSURE)),
    "same_top": ("the share of tokens at which both have the same most probable one",
                 lambda of: probability(_mean([float(bool(each.same_top)) for each in of]))),
    "worst": ("the token at which they are furthest apart", lambda of: token(_worst(of).text)),
    "worst_kl": ("the KL there, in bits", lambda of: bits(_worst(of).kl_bits or 0.0)),
    "worst_prob": ("its probability in the first model", lambda of: probability(math.exp(_worst(of).logprob or 0.0))),
    "worst_other_prob": ("its probability in the second one",
                         lambda of: probability(math.exp(_worst(of).other_logprob or 0.0))),
    "perplexity": ("the first model's perplexity", lambda of: _perplexity([each.logprob for each in of])),
    "other_perplexity": ("the second model's perplexity", lambda of: _perplexity([each.other_logprob for each in of])),
})  # fmt: skip


def _parting(of: WaysParted) -> tuple[str, str]:
    """The first passages that differ, one of each model."""
    part = next(each for each in of.parts if not each.same)
    return part.text, part.other_text


WAYS = SubjectKind("the continuations of two models", "parted", {
    "parted": ("how many tokens are equal before they diverge", lambda of: count(of.parted)),
    "own": ("the first passage of the first model that differs", lambda of: text(_parting(of)[0].strip())),
    "other": ("the first passage of the second model that differs", lambda of: text(_parting(of)[1].strip())),
})  # fmt: skip
