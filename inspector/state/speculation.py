"""Rounds of speculative decoding and their totals, built from live or recorded records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from msgspec import Struct, field

from engine import protocol
from engine.protocol import Ended, Failure, PromptOpened, Record, Step
from inspector.display import token_label, visible
from inspector.scales import milliseconds
from inspector.state.capability import CapabilityState, measurable

FATE_SIGNS = {"drafted": "…", "accepted": "✓", "refused": "✗", "unseen": "?"}
"""Sign for each fate of a drafted token."""
RECENT = 64
"""Number of last plain steps used in the comparison: steps take longer as the text grows."""


class SpeculationTotals(Struct, frozen=True):
    """Totals and means over some rounds; milliseconds are measured."""

    rounds: int
    taken: int
    """Tokens that the rounds added."""
    drafted: int
    looked: tuple[int, ...]
    """Number of drafted tokens that were accepted or refused, by place in the draft."""
    accepted: tuple[int, ...]
    rates: protocol.AcceptanceRates | None
    """Mean over the drafted tokens with rates; None if there are none."""
    draft_ms: float
    """Mean of a round, as for the next three."""
    verify_ms: float
    take_ms: float
    round_ms: float
    token_ms: float
    """Mean of a token in rounds."""
    plain_ms: float | None
    """Mean of a plain step; a mean too, so that the parts of a round add up to `slower`. None if none was taken."""
    usual_ms: float
    """Median of a plain step; 0 if none was taken."""

    @property
    def tokens_a_forward(self) -> float:
        """Mean number of tokens that a round added."""
        return self.taken / self.rounds if self.rounds else 0.0

    @property
    def acceptance(self) -> float | None:
        """The accepted share of the tokens that were accepted or refused; None if there are none."""
        return sum(self.accepted) / sum(self.looked) if sum(self.looked) else None

    @property
    def steady(self) -> bool:
        """False if a few plain steps took so long that the mean means nothing: the machine was busy."""
        return self.plain_ms is None or self.plain_ms <= UNSTEADY * self.usual_ms

    @property
    def slower(self) -> float | None:
        """Time of a token in rounds divided by that of a plain step; below 1 if rounds save time."""
        return self.token_ms / self.plain_ms if self.plain_ms and self.taken and self.steady else None

    @property
    def saved_ms(self) -> float | None:
        """Milliseconds that the rounds saved compared to plain steps; negative if they lost time."""
        return (self.plain_ms - self.token_ms) * self.taken if self.plain_ms and self.slower else None


class Speculation(Struct, CapabilityState):
    """The rounds of one tree."""

    ENDS = "LoadDraft", "TakeRound", "RunRounds", "VerifySpeculation"

    loading: protocol.DraftLoading | None = None
    rounds: list[protocol.DraftRound] = field(default_factory=list)
    """Rounds that were taken with the same settings; different settings begin a new count."""
    latest: protocol.DraftRound | None = None
    """The last round, in any stage."""
    begin: int | None = None
    """The node before the first round: the tokens after it can be compared with plain steps."""
    verified: protocol.SpeculationVerified | None = None
    failure: Failure | None = None
    plain: list[float] = field(default_factory=list)
    """Milliseconds of plain steps, without garbage collection and drawing of the screen."""

    def apply(self, record: Record) -> None:
        match record:
            case Step(ms=ms) if not ms.shared and not ms.cold:
                net = max(0.0, ms.total - ms.collecting - ms.drawing)  # as rounds are timed
                self.plain = [*self.plain[-RECENT + 1 :], net]
            case protocol.DraftRound():
                self.failure, self.latest = None, record
                if self.rounds and self.rounds[-1].settings != record.settings:
                    self.rounds = []
                if self.begin is None:
                    self.begin = record.node
                if record.stage == "taken":
                    self.rounds.append(record)
            case protocol.DraftLoading():
                self.loading = record
            case protocol.DraftReady():
                self.loading = None
            case protocol.SpeculationVerified():
                self.verified = record
                if not self.plain and record.plain_ms:
                    self.plain = [record.plain_ms]
            case PromptOpened():
                self.forget()
                self.latest = None
            case Failure() if record.command in self.ENDS:
                self.failure, self.loading = record, None
            case Ended() if record.command in self.ENDS:
                self.loading = None

    @classmethod
    def sound(cls, record: Record) -> bool:
        """True if the numbers of a round, or of a verification, can be drawn."""
        return not isinstance(record, protocol.DraftRound | protocol.SpeculationVerified) or measurable(
            record
        )

    def forget(self) -> None:
        """Start counting with the next round."""
        self.rounds, self.begin, self.verified = [], None, None

    def ghost_words(self, tip: int) -> str:
        """The drafted tokens of the latest round that aren't in the text, on one line, each with the sign of its fate.

        Args:
            tip: Node of the last token of the path.

        Returns:
            Printable; empty if there are none, or if the path doesn't end where the round does.
        """
        if (latest := self.latest) is None or latest.end != tip:
            return ""
        drafts = (each for each in latest.drafts if each.fate != "accepted" or latest.stage != "taken")
        return " ".join(FATE_SIGNS[each.fate] + token_label(each.text, each.raw) for each in drafts)

    @property
    def totals(self) -> SpeculationTotals:
        """Totals and means over the rounds so far."""
        rounds = self.rounds
        taken = sum(each.taken for each in rounds)
        most = max((len(each.drafts) for each in rounds), default=0)
        at = [[each.drafts[place] for each in rounds if len(each.drafts) > place] for place in range(most)]
        seen = [draft.rates for drafts in at for draft in drafts if draft.rates is not None]

        def mean(field: str, values: Sequence[object] = rounds) -> float:
            return fmean(getattr(each, field) for each in values) if values else 0.0

        return SpeculationTotals(
            len(rounds),
            taken,
            drafted=sum(map(len, at)),
            looked=tuple(sum(draft.fate in ("accepted", "refused") for draft in drafts) for drafts in at),
            accepted=tuple(sum(draft.fate == "accepted" for draft in drafts) for drafts in at),
            rates=protocol.AcceptanceRates(*(mean(field, seen) for _, field, _ in RULES)) if seen else None,
            **{field: mean(field) for field in ("draft_ms", "verify_ms", "take_ms")},
            round_ms=mean("ms"),
            token_ms=sum(each.ms for each in rounds) / taken if taken else 0.0,
            plain_ms=fmean(self.plain) if self.plain else None,
            usual_ms=median(self.plain or [0.0]),
        )


UNSTEADY = 1.5
"""Ratio of mean to median above which a few long plain steps dominate the mean."""
EVEN = 0.03
"""A relative difference that counts as none: two runs of the same steps differ by as much."""
RULES = (
    ("position draw", "position_draw", "in force: the draw of the position, for the draft and the model"),
    ("rejection", "rejection", "Leviathan 2023: min(1, p/q), else the residual"),
    ("match", "match", "mlx-lm: two draws of their own, equal or not"),
)
"""Name, field and meaning of each rule; narrow places show only the part before the colon."""


def share(value: float) -> str:
    """A fraction as a percentage."""
    return f"{100 * value:.1f} %"


def verdict(totals: SpeculationTotals) -> str:
    """A sentence on whether drafting saves time, and why; empty if nothing can be said yet."""
    slower, plain_ms = totals.slower, totals.plain_ms
    if plain_ms is not None and not totals.steady:
        usual, mean = milliseconds(totals.usual_ms), milliseconds(plain_ms)
        varied = f"plain steps took {mean} on average, where {usual} is usual"
        return f"Too uneven to tell whether drafting pays: {varied}. Measure again when the machine is less busy."
    if not slower or plain_ms is None:
        return ""
    if abs(slower - 1) < EVEN:
        paid = "as fast as plain steps"
    elif slower < 1:
        paid = f"{1 / slower:.1f} times faster"
    else:
        paid = f"{slower:.1f} times slower" if slower >= 1.05 else "slightly slower"
    round_, forward, draft = (ms / plain_ms for ms in (totals.round_ms, totals.verify_ms, totals.draft_ms))
    drafting = f", drafting {draft:.2f}" if draft > 0.1 else ""
    # (a round's cost in plain steps) / (its tokens) = `slower`
    tokens = f"{totals.tokens_a_forward:.2f}".removesuffix(".00")
    yields = f"yields {tokens} token{'s' * (tokens != '1')}"
    costs = f"costs {round_:.2f} steps (its forward pass {forward:.2f}{drafting})"
    return f"Here drafting is {paid}: a round {costs} and {yields}."


def figures(totals: SpeculationTotals) -> Iterator[tuple[str, str]]:
    """Figures of the rounds, as names and values."""
    places = ", ".join(f"{one}/{of}" for one, of in zip(totals.accepted, totals.looked, strict=True))
    accepted = (
        "no draft yet" if totals.acceptance is None else f"{share(totals.acceptance)}, by place {places}"
    )
    parts = (totals.round_ms, totals.draft_ms, totals.verify_ms, totals.take_ms, totals.token_ms)
    round_, draft, verify, take, token = map(milliseconds, parts)
    plain = "not measured yet: a run or a comparison does it"
    if totals.plain_ms is not None:
        plain = milliseconds(totals.plain_ms)
    yield "rounds", f"{totals.rounds}, {totals.tokens_a_forward:.2f} tokens a forward pass"
    yield "accepted", accepted
    yield "a round", f"{round_}: draft {draft}, verification {verify}, taking {take}"
    yield "a token", f"{token}, as a plain step {plain}"
    if (saved := totals.saved_ms) is not None:
        yield "saved" if saved >= 0 else "lost", milliseconds(abs(saved))


def proof(found: protocol.SpeculationVerified) -> str:
    """A sentence on the result of the comparison with plain steps."""
    tokens = f"{found.tokens} token" + "s" * (found.tokens != 1)
    logits = f"logits differ by {found.difference:.2g} at most"
    if found.differs is None:
        chosen = f" ({found.chosen} of them were chosen by hand)" if found.chosen else ""
        return f"Equal to plain steps: {tokens}{chosen}; {logits}."
    plain = f"“{visible(found.plain_text)}” (id {found.plain})"
    return f"Differs from plain steps at token {found.tokens}: they take {plain}; {logits}."
