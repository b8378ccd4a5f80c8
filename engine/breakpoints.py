"""Breakpoints of a run: conditions on the next token, on the text so far and on the number of tokens.

`engine.session.run` evaluates them.
"""

from typing import Annotated, Literal, get_args

from msgspec import Meta

from engine.setting import MOST_FLOAT, Setting, SettingsStruct, settings_of

LONGEST = 200
"""Maximum length of a text or a regular expression in characters."""
REACH = 1000
"""Maximum distance in characters from the beginning of a match to the newest token's text."""
SURE = 0.5
"""Smallest probability of a sure token: it is at least as probable as all others together."""
SegmentEvent = Literal[
    "thinking begins", "thinking ends", "answer begins", "answer ends", "tool call begins", "tool call ends"
]
"""Begin or end of a segment of a reply."""
SEGMENT_EVENTS: tuple[SegmentEvent, ...] = get_args(SegmentEvent)
_Bits = Annotated[float, Meta(ge=0, le=MOST_FLOAT)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Whole = Annotated[int, Meta(ge=1)]
_Text = Annotated[str, Meta(min_length=1, max_length=LONGEST)]
_BITS = "a number of bits, at least 0"
_SHARE = "a number from 0 to 1, or 0 % to 100 %"


class Breakpoints(SettingsStruct, frozen=True):
    """Conditions, each None (or False) if it is off; the first that is met stops the run."""

    entropy_above: Annotated[_Bits | None, Setting(
        "model entropy, in bits", flag="--break-entropy", says=_BITS, words="entropy > {}"
    )] = None  # fmt: skip
    """Entropy of the model's own distribution of the next token, in bits."""
    prob_below: Annotated[_Share | None, Setting(
        "of the picked token, such as 0.05 or 5 %", "probability below", "share", flag="--break-prob", says=_SHARE,
        words="p < {}",
    )] = None  # fmt: skip
    """The model's probability of the token that the sampler picked next."""
    rank_above: Annotated[_Whole | None, Setting(
        "of the picked token; 1 is the first", flag="--break-rank", words="rank > {}"
    )] = None  # fmt: skip
    """The model's rank of the token that the sampler picked next."""
    margin_below: Annotated[_Share | None, Setting(
        "between the first two: a fork point", "margin below", "share", flag="--break-margin", says=_SHARE,
        words="margin < {}",
    )] = None  # fmt: skip
    """Probability of the most probable token minus that of the second; a small margin is a fork point."""
    mass_below: Annotated[_Share | None, Setting(
        "of all tokens that the grammar allows", "allowed p below", "share", flag="--break-mass", says=_SHARE,
        words="mass < {}",
    )] = None  # fmt: skip
    """Total model probability of the tokens that the grammar allows next; if it is low, the grammar works against the
    model."""
    eos: Annotated[bool, Setting(
        "stop before its token is taken", "end of sequence", flag="--break-eos", words="end of sequence"
    )] = False  # fmt: skip
    """True to stop before an end-of-sequence token is taken."""
    tokens: Annotated[_Whole | None, Setting(
        "stop after this many in a run", flag="--break-tokens", words="{} tokens"
    )] = None  # fmt: skip
    """Number of tokens after which a run stops."""
    text: Annotated[_Text | None, Setting(
        "the completion contains it", form="text", flag="--break-text", words="“{}”"
    )] = None  # fmt: skip
    """Text that the completion contains; it must end in this run."""
    segment: Annotated[SegmentEvent | None, Setting(
        "such as thinking ends, answer begins, tool call begins", flag="--break-segment", words="{}",
        says=f"one of {', '.join(SEGMENT_EVENTS)}",
    )] = None  # fmt: skip
    """Segment begin or end at the newest token, such as `thinking ends`."""
    regex: Annotated[_Text | None, Setting(
        f"the completion's last {REACH:,} characters match it", "regular expression", "regex",
        flag="--break-regex", words="/{}/",
    )] = None  # fmt: skip
    """Regular expression that the completion matches somewhere; the match must end in this run."""
    all_of: bool = False
    """True to stop only if all conditions are met at once; `text`, `regex` and `tokens` stay met after the first
    match."""

    @property
    def active(self) -> tuple[Setting, ...]:
        """The conditions that are set."""
        values = ((each, getattr(self, each.name)) for each in CONDITIONS)
        return tuple(each for each, value in values if value is not None and value is not False)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that are set, as short texts such as `entropy > 3`. Text and regex values are unchanged."""
        return tuple(each.describe(getattr(self, each.name)) for each in self.active)


CONDITIONS = settings_of(Breakpoints)
"""Every condition, in the order of display."""
UNSURE = Breakpoints(prob_below=SURE)
"""Stops a run at the first token that is not sure; a token forced by the grammar is always sure."""
