"""Answers about the inside of the model, in words and as rows: contributions, gradients, roles and scores of heads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

from msgspec import Struct

from engine import protocol
from engine.protocol import AttributionRead, Candidate, GradientsRead, HeadScore, HeadsScored, ScoreRead
from inspector.display import quoted, token_label, visible
from inspector.scales import count, percent, signed
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline

# ---- the tokens whose logits are compared -------------------------------------------------------


def ranked(timeline: Timeline) -> tuple[int, ...]:
    """The tokens that can be looked at in the selected slot: the one that was taken, then the candidates by rank."""
    best = [candidate.id for candidate in sorted(timeline.candidates, key=lambda each: each.rank)]
    taken = [timeline.taken] if timeline.taken is not None else []
    return tuple(dict.fromkeys([*taken, *best]))


def compared(timeline: Timeline, token: int | None = None, against: int | None = None) -> tuple[int, ...]:
    """The two tokens whose logits are compared in the selected slot.

    Args:
        timeline: Has the candidates of the slot.
        token: The first one; None for the one that was taken, or that the sampler picked.
        against: The second one, which the first is not; None for the best other candidate.

    Returns:
        Two ids; one if no other candidate is known, none if no token is.
    """
    if token is None:
        token = next((id for id in ranked(timeline) if id != against), None)
    if token is None:
        return ()
    if against is None:
        best = sorted(timeline.candidates, key=lambda each: each.rank)
        against = next((each.id for each in best if each.id != token), None)
    return (token,) if against is None else (token, against)


def told_here(timeline: Timeline, tokens: Sequence[int]) -> set[int]:
    """Some of the tokens explained in the selected slot: those whose explanations belong to it, its own token, or
    else candidates that no branch took there.

    Args:
        timeline: Has the tree.
        tokens: Their ids.
    """
    if (own := timeline.taken) is not None and own in tokens:
        return {own}
    return {each for each in tokens if timeline.tree.taken_by(timeline.before, each) is None}


class TokenChoices(Struct):
    """The one or two tokens that are looked at in a slot, kept from opening to opening."""

    place: tuple[int, int | None] | None = None
    """The token before the slot at which tokens were chosen, and the slot's: elsewhere they are the usual ones."""
    token: int | None = None
    """The token whose logit it is; None for the one that was taken."""
    against: int | None = None
    """The one that it is compared with; None for the best other candidate."""
    alone: bool = False
    """True if one token is looked at by itself."""

    def at(self, timeline: Timeline) -> Self:
        """These choices, the tokens forgotten if they were chosen in another slot, or for another token in it."""
        if (place := (timeline.before, timeline.taken)) != self.place:
            self.place, self.token, self.against = place, None, None
        return self

    def begin(self, timeline: Timeline, highlighted: Candidate | None) -> Self:
        """These choices at the selected token: against the highlighted candidate, if that is another token."""
        self.at(timeline)
        if highlighted is not None and highlighted.id not in compared(timeline)[:1]:
            self.against = highlighted.id
        return self

    def tokens(self, timeline: Timeline) -> tuple[int, ...]:
        """The token whose logit is wanted, and the one that it is compared with."""
        tokens = compared(timeline, self.token, self.against)
        return tokens[:1] if self.alone else tokens

    def follow_other(self, timeline: Timeline, by: int) -> None:
        """Look at the logit of another candidate; the one that it is compared with stays, if it can."""
        tokens = self.tokens(timeline)
        others = [id for id in ranked(timeline) if self.alone or id not in tokens[1:]]
        if tokens and others:
            if not self.alone and len(tokens) == 2:
                self.against = tokens[1]
            self.token = _next(others, tokens[0], by)

    def compare_with(self, timeline: Timeline, by: int) -> None:
        """Compare with another candidate."""
        self.alone = False
        tokens = self.tokens(timeline)
        if others := [id for id in ranked(timeline) if id not in tokens[:1]]:
            self.token, self.against = tokens[0], _next(others, tokens[-1], by)


def _next(ids: Sequence[int], now: int, by: int) -> int:
    return ids[(ids.index(now) + by) % len(ids)] if now in ids else ids[0]


def label_of(timeline: Timeline, id: int, known: Iterable[tuple[int, str]] = ()) -> str:
    """The label of a token that could come in the selected slot; printable.

    Args:
        timeline: Has the candidates of the slot.
        id: Id of the token.
        known: Ids and texts of other tokens.
    """
    texts = {id: token_label(text) for id, text in known}
    texts |= {each.id: token_label(each.text, each.raw) for each in timeline.candidates}
    if (selected := timeline.selected) is not None:
        texts[selected.id] = token_label(selected.text, selected.raw)
    return texts.get(id, f"token {id}")


# ---- contributions to a logit -------------------------------------------------------------------

SEEN = 0.005
"""The least number that two decimals show."""
_WORDS = {"embedding": "embedding", "attention": "attention", "mlp": "MLP", "recurrence": "recurrence",
          "residual": "residual", "layer": "whole", "constant": "constant"}  # fmt: skip


class ContributionRow(Struct, frozen=True):
    """One writer: a part, or a head of one."""

    name: str
    """`embedding`, `L6 attention`, `L6 h1`; layers and heads counted from 1. Printable."""
    logits: tuple[float, ...]
    """Its contribution to the logit of each token."""
    value: float
    """One number of these: see `AttributionRead.bar`."""
    part: int
    """Place in the record."""
    kind: str
    """As the record has it, or `head`, or `rest` for what an attention adds without any head."""
    head: int | None = None
    """Index from 0."""
    after: float | None = None
    """The logit, or the difference, once this part has written; None for heads."""
    last: bool = False
    """True if it is the last head of its attention."""

    @property
    def key(self) -> tuple[int, int | None]:
        """The same in every order."""
        return self.part, -1 if self.kind == "rest" else self.head

    @property
    def within(self) -> bool:
        """True if it is a share of an attention."""
        return self.kind in ("head", "rest")


def heads_of(read: AttributionRead, part: protocol.Contribution) -> int:
    """Number of a part's heads that can be told apart."""
    shape = part.heads.shape
    return shape[0] if len(shape) == 2 and shape[1] == len(read.tokens) and part.heads.fits else 0


def part_rows(read: AttributionRead) -> list[ContributionRow]:
    """A row for each part, in the order in which they write; a constant of nothing is left out."""
    rows, after = [], 0.0
    twice = Counter((part.layer, part.kind) for part in read.parts)
    for place, part in enumerate(read.parts):
        if len(part.logits) != len(read.tokens) or (part.kind == "constant" and not any(part.logits)):
            continue
        value = read.bar(part.logits)
        after += value
        name = writer_name(part.kind, part.layer, part.name, twice[part.layer, part.kind] > 1)
        rows.append(ContributionRow(name, part.logits, value, place, part.kind, None, after))
    return rows


def head_rows(read: AttributionRead, row: ContributionRow) -> Iterator[ContributionRow]:
    """The rows of a part's heads, and of what it adds without any, as far as they can be told apart."""
    part = read.parts[row.part]
    heads, layer = heads_of(read, part), f"L{(part.layer or 0) + 1}"
    rest = read.bar(part.rest) if len(part.rest) == len(read.tokens) else 0.0
    with_rest = heads > 0 and abs(rest) >= SEEN
    for head in range(heads):
        logits, last = part.head(head), head == heads - 1 and not with_rest
        name = f"{layer} h{head + 1}"
        yield ContributionRow(name, logits, read.bar(logits), row.part, "head", head, last=last)
    if with_rest:
        yield ContributionRow(f"{layer} no head", part.rest, rest, row.part, "rest", last=True)


def rows_of(
    read: AttributionRead, unfolded: Collection[int] = (), by_size: bool = False
) -> list[ContributionRow]:
    """The rows of a view.

    Args:
        read: The contributions.
        unfolded: Parts, by place, whose heads are rows of their own.
        by_size: The largest first, whatever its sign; otherwise in the order in which they write. Then heads replace
            their attention: all rows sum to the logit.
    """
    rows: list[ContributionRow] = []
    for row in part_rows(read):
        heads = list(head_rows(read, row)) if row.part in unfolded else []
        rows += heads if by_size and heads else [row, *heads]
    return sorted(rows, key=lambda row: -abs(row.value)) if by_size else rows


def writer_name(kind: str, layer: int | None, name: str, ambiguous: bool = False) -> str:
    """The name of a writer to the residual stream: `embedding`, `L6 attention`, `L3 MLP`; printable.

    Args:
        kind: As records have it.
        layer: Index from 0; None if it belongs to no layer.
        name: The layer's attribute that holds it.
        ambiguous: Whether the layer has several of the kind.
    """
    word = _WORDS.get(kind) or visible(name) or "other"
    if ambiguous and name and kind in _WORDS:
        word = f"{word} {visible(name)}"
    return word if layer is None else f"L{layer + 1} {word}"


# ---- gradients ----------------------------------------------------------------------------------

MEANINGS = {
    "input": "A share says how fast the logit rises (+) or falls (−) as the token's vector grows: a slope at this "
    "text, not what another word there would change.",
    "integrated": "A share says how far the token's vector moves the logit, up (+) or down (−), on the way from the "
    "baseline to the text: not what another word there would change.",
}
"""Meaning of a number, by the method."""
JUMPS = (
    "The model chooses experts: where others are chosen on the way from the baseline, a jump is in no share."
)
METHODS = {"input": "gradient x input", "integrated": "integrated gradients"}
BASELINES = {
    "mean": "the mean of all tokens",
    "first": "the first token",
    "token": "a given token",
    "zero": "zeros",
}


class TokenShare(Struct, frozen=True):
    """The share of one token of the context."""

    place: int
    """Index in the path, from 0."""
    label: str
    """Printable."""
    value: float
    """Logits."""
    share: float
    """Share of the sizes of all of them, with its sign."""


def shares_of(read: GradientsRead, path: Sequence[Item]) -> list[TokenShare]:
    """The shares in the order of the text.

    Args:
        read: The gradients.
        path: The tokens up to the one that is looked at; a file may have others.
    """
    values = [value if math.isfinite(value) else 0.0 for value in read.values]
    whole = math.fsum(map(abs, values)) or 1.0
    pairs = zip(path[max(0, read.first) :], values, strict=False)
    return [
        TokenShare(place, token_label(item.text, item.raw), value, value / whole)
        for place, (item, value) in enumerate(pairs, max(0, read.first))
    ]


def largest(shares: Sequence[TokenShare]) -> list[TokenShare]:
    """The largest first, whatever their sign."""
    return sorted(shares, key=lambda each: (-abs(each.value), each.place))


def baseline_of(text: str) -> tuple[protocol.GradientBaseline, str]:
    """A baseline by its name, `mean`, `first` or `zero`, or by the text of a token; and that text."""
    for name in ("mean", "first", "zero"):
        if text == name:
            return name, ""
    return "token", text


def asked_words(read: GradientsRead) -> str:
    """The logit, or the difference, that is looked at; printable."""
    return " against ".join(quoted(token_label(each.text)) for each in read.tokens[:2])


def method_words(read: GradientsRead) -> str:
    """The method with its baseline, steps and what is held: `integrated gradients from ..., 32 steps`; printable."""
    if read.method == "input":
        return METHODS["input"]
    base = BASELINES[read.baseline]
    if read.baseline_text:
        base = f"{quoted(token_label(read.baseline_text))} everywhere"
    held = ", experts held as in the text, which is another question" if read.held_experts else ""
    return f"{METHODS['integrated']} from {base}, {count(read.steps)} steps{held}"


def complete_words(read: GradientsRead) -> str:
    """The distance of the shares from what they have to sum to."""
    if read.residual is None:
        total, value = signed(read.total), signed(read.value)
        return f"The shares sum to {total}; those of gradient x input need not sum to the value, {value}."
    before = "; ".join(f"{count(steps)} steps {percent_off(error)}" for steps, error in read.tried[:-1])
    return (
        f"The shares sum to {signed(read.total)} and should to {signed(read.reached)}, from {signed(read.base_value)} "
        f"at the baseline to {signed(read.value)} at the text: {percent_off(read.tried[-1][1])}"
        f"{f' ({before})' if before else ''}."
    )


def percent_off(error: float) -> str:
    """A residual: `0.12 % missing`, `1.3 % too much`."""
    if not math.isfinite(error):
        return "not a number" if math.isnan(error) else "a share of 0 can't be given"
    return f"{abs(error):.2%} {'too much' if error > 0 else 'missing'}".replace("%", " %", 1)


def notes_of(read: GradientsRead) -> list[str]:
    """Remarks on the shares; printable."""
    free = read.chooses and not read.held_experts and read.method == "integrated"
    return [*([JUMPS] if free else []), *map(visible, read.notes)]


# ---- the roles of heads -------------------------------------------------------------------------

NAMED = 0.4
"""The mean share from which on a head is named by its role, as in ARENA's exercises."""
LISTED = 4
"""Heads of a name that are listed."""


class HeadRole(NamedTuple):
    """A known role of heads."""

    name: str
    score: Callable[[HeadScore], float | None]


ROLES = (
    HeadRole("previous-token", lambda each: each.previous),
    HeadRole("induction", lambda each: each.induction),
    HeadRole("duplicate-token", lambda each: each.duplicate),
)


def names_of(score: HeadScore) -> tuple[str, ...]:
    """The roles of a head whose scores are above the threshold: `previous-token`."""
    return tuple(role.name for role in ROLES if (role.score(score) or 0.0) >= NAMED)


def measured_on(scored: HeadsScored) -> str:
    """The texts that heads were scored on."""
    if (texts := scored.texts) is None:
        return f"{count(scored.tokens)} tokens of this path"
    texts_of = f"{count(texts.count)} text{'s' * (texts.count != 1)} of {count(texts.length)} random tokens"
    return f"{texts_of}, each repeated once (seed {texts.seed})"


def best_of(role: HeadRole, heads: Sequence[HeadScore]) -> list[tuple[float, HeadScore]]:
    """The heads that have a role's score, the highest first."""
    found = [(value, each) for each in heads if (value := role.score(each)) is not None]
    return sorted(found, key=lambda pair: -pair[0])


def found_words(scored: HeadsScored) -> tuple[str, ...]:
    """A sentence for each role: the heads above the threshold, or that there is none."""
    return tuple(_role_words(role, scored) for role in ROLES)


def _role_words(role: HeadRole, scored: HeadsScored) -> str:
    best = best_of(role, scored.heads)
    heads = [f"L{each.layer + 1} h{each.head + 1} ({percent(value)})" for value, each in best]
    above = sum(value >= NAMED for value, _ in best)
    if not best:
        why = "nothing to score: no token occurs again" if scored.heads else "no head whose weights are known"
        return f"{role.name.capitalize()} heads: {why}."
    if not above:
        where = "in this model" if scored.texts is not None else "on this text"
        return f"No {role.name} head {where}: at most {heads[0]}, named from {percent(NAMED)} on."
    more = f" and {above - LISTED} more" if above > LISTED else ""
    listed = ", ".join(heads[: min(above, LISTED)])
    if scored.texts is None:  # its work on one text makes it no head of a kind
        return f"{role.name.capitalize()} attention on this text: {listed}{more}."
    return f"{role.name.capitalize()} head{'s' * (above > 1)}: {listed}{more}."


# ---- why a head looks at a token ----------------------------------------------------------------


class ScoreShare(Struct, frozen=True):
    """The share of a writer, or of a pair of them, in the difference between one key's score and others'."""

    name: str
    """Printable; of a pair the query's writer, then the key's."""
    value: float
    """Positive: for the key that is looked at."""


def score_writer_name(writer: protocol.ScoreWriter) -> str:
    """The name of a writer: `embedding`, `L3 h2`, `L3 MLP`; `biases` for the constant. Printable."""
    if writer.kind == "constant":
        return "biases"
    if writer.head is not None:
        return f"L{(writer.layer or 0) + 1} h{writer.head + 1}"
    return writer_name(writer.kind, writer.layer, writer.name)


@lru_cache(maxsize=64)
def weights_of(read: ScoreRead) -> tuple[float, ...]:
    """The head's weight on each kept key; empty if the record is inconsistent, as one of a file may be."""
    weights = read.weights.row()
    fits = len(weights) == len(read.keys) and all(map(math.isfinite, weights))
    ordered = all(0 <= place < read.tokens for place in read.keys) and len(set(read.keys)) == len(read.keys)
    return weights if fits and ordered and read.keys else ()


def over_path(read: ScoreRead, tokens: int) -> list[float]:
    """The head's weights over a path, 0 for keys that are not kept.

    Args:
        read: The answer.
        tokens: Length of the path.
    """
    weights = dict(zip(read.keys, weights_of(read), strict=False))
    return [weights.get(place, 0.0) for place in range(tokens)]


def by_weight(read: ScoreRead) -> list[int]:
    """The kept keys by their places in the path, the heaviest first."""
    return [place for _, place in sorted(zip((-each for each in weights_of(read)), read.keys, strict=False))]


def compared_to(read: ScoreRead, row: Sequence[float], key: int, against: int | None) -> float:
    """One key's number less another's, or less the mean over all kept keys; 0 if there are none.

    Args:
        read: Has the keys.
        row: A number for each of them.
        key: A place in the path.
        against: Another; None for the mean.
    """
    keys = read.keys
    if len(row) != len(keys) or key not in keys or (against is not None and against not in keys):
        return 0.0
    base = math.fsum(row) / len(row) if against is None else row[keys.index(against)]
    value = row[keys.index(key)] - base
    return value if math.isfinite(value) else 0.0


def _shares(
    read: ScoreRead, names: Sequence[str], rows: protocol.Floats, key: int, against: int | None
) -> list[ScoreShare]:
    found = (
        ScoreShare(name, compared_to(read, rows.row(place), key, against)) for place, name in enumerate(names)
    )
    return sorted(found, key=lambda share: -abs(share.value))


def key_shares(read: ScoreRead, key: int, against: int | None = None) -> list[ScoreShare]:
    """The shares of the keys' writers in the difference, the largest first."""
    return _shares(read, [score_writer_name(each) for each in read.writers], read.by_key, key, against)


def query_shares(read: ScoreRead, key: int, against: int | None = None) -> list[ScoreShare]:
    """The shares of the query's writers in the difference, the largest first."""
    return _shares(read, [score_writer_name(each) for each in read.writers], read.by_query, key, against)


def pair_shares(read: ScoreRead, key: int, against: int | None = None) -> list[ScoreShare]:
    """The shares of the kept pairs of a query's writer and a key's in the difference, the largest first."""
    names = [score_writer_name(each) for each in read.writers]
    known = all(0 <= place < len(names) for pair in read.pairs for place in pair)
    pairs = [f"{names[query]} × {names[of_key]}" for query, of_key in read.pairs] if known else []
    return _shares(read, pairs, read.pair_scores, key, against)


def head_name(read: ScoreRead) -> str:
    """The head, counted from 1: `L5 h3`."""
    return f"L{read.layer + 1} h{read.head + 1}"


def in_words(read: ScoreRead, labels: Sequence[str], key: int, against: int | None = None) -> str:
    """Why the head looks at a key, in a sentence.

    Args:
        read: The answer.
        labels: Labels of the path's tokens, printable.
        key: A place in the path.
        against: The key that it is compared with; None for the mean of all.
    """
    weights = dict(zip(read.keys, weights_of(read), strict=False))

    def weighed(place: int) -> str:
        label = quoted(labels[place]) if place < len(labels) else f"token {place + 1}"
        return f"{label} ({percent(weights.get(place, 0.0))})"

    whole = compared_to(read, read.scores.row(), key, against)
    looks = f"{head_name(read)} looks at {weighed(key)}"
    if against is not None:
        looks = f"{looks} {'more' if whole >= 0 else 'less'} than at {weighed(against)}"
    elif whole < 0:
        looks = f"{looks} rather little,"
    best = next((share for share in key_shares(read, key, against) if share.value * whole > 0), None)
    if best is None:
        return f"{looks}: no writer of the key stands out."
    much = "mostly" if 2 * abs(best.value) >= abs(whole) else "above all"
    wrote = f"{'' if best.value > 0 else 'of what '}{best.name} wrote into it"
    wrote = {"embedding": "of its embedding", "biases": "of the layer's biases"}.get(best.name, wrote)
    return f"{looks} {much} because {wrote} ({signed(best.value)} of {signed(whole)})."
