"""Records of prompts and steps: what the model expected, what the sampler took, and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar, Literal, overload

from msgspec import Struct, msgpack

from engine.protocol.base import Record
from engine.protocol.model import KVReading, Memory
from engine.protocol.numbers import Count, Finite
from engine.protocol.segments import NO_SEGMENTS, PromptSegments


class Message(Struct, frozen=True):
    """One message of a conversation."""

    role: str
    """`system`, `user`, `assistant`, `tool` or what else the template knows."""
    content: str
    more: str = ""
    """Its other keys as a JSON object, empty where it has none."""


class ChatOptions(Struct, frozen=True):
    """The values that a chat template gets in addition to the messages."""

    config: str = ""
    """Variables of the template as a JSON object (`--chat-template-config` of mlx_lm.generate)."""
    tools: str = ""
    """Tools as a JSON list, empty for none."""
    default_template: bool = False
    """Where the model has no template, the one that its tokenizer's class brings, if any."""
    response: str | None = None
    """The given beginning of the answer (`--prefill-response` of mlx_lm.generate): the prompt ends with it. In the
    record of a prompt it is as the template wrote it."""


NO_OPTIONS = ChatOptions()


def conversation(text: str, system: str | None) -> tuple[Message, ...]:
    """One user's message, and the system prompt before it."""
    before = (Message("system", system),) if system is not None else ()
    return (*before, Message("user", text))


class TurnDiffers(Record, frozen=True):
    """The template gives the conversation another text than the path has: a turn was not added. The person decides."""

    lasting: ClassVar[bool] = False
    at: Count
    """Characters that both texts share at the beginning."""
    path: str
    """What the path and the turn behind it would be, from there on."""
    template: str
    """What the template makes of the whole conversation, from there on."""
    kept: Count
    """Tokens that the template's text shares with the path: the rest would run again."""
    tokens: Count
    """Tokens of the template's text."""


Origin = Literal["prompt", "greedy", "sampled", "chosen", "inserted", "beam", "intervened", "served"]
"""How a token was added to the tree. `served`: a server sent it. `intervened`: it was computed under interventions,
however it was chosen."""


class StepTimes(Struct, frozen=True, gc=False):
    """Milliseconds of one step.

    Fenced unless `pipelined`: nothing of the next step is under way in them. The totals of a run add up to its time.
    """

    total: Finite
    forward: Finite
    """The model, until its logits are in host memory."""
    sample: Finite
    """Penalties, filters and draw for the next token."""
    inspect: Finite
    """Candidates, entropy, ranks and readings; in a pipelined step they overlap the next forward."""
    pipelined: bool = False
    """True in a run without a pace: then `total` is from when the step's token was known to when the next one is,
    without `inspect`. Its forward may have begun before that, for a guess of the token, and so may that of the next."""
    collecting: Finite = 0.0
    """Time of Python's garbage collector between the step's begin and end."""
    drawing: Finite = 0.0
    """Time of drawing the screen, in another thread, in the same interval."""
    cold: bool = False
    """The model's first step since it was loaded, which may hold what is done once: no rate counts it."""
    shared: Count = 0
    """In a round of speculative decoding, the tokens that its one forward gave: `total` and `forward` have this token's
    part of the drafting and of that forward. 0 in a step of its own."""


class Candidate(Struct, frozen=True, gc=False):
    """One token that could be next."""

    id: Count
    text: str
    """The characters that it would add to the text so far; empty while they are unfinished."""
    raw: bytes
    special: bool
    logprob: float
    """float32 log-softmax of the model's own logits, before any penalty or filter."""
    prob: Finite
    rank: Count
    """1 for the most probable; ties share the lowest."""
    sampler_prob: Finite
    """Probability with which the sampler draws it, after every stage."""
    cut_by: str | None
    """Name of the stage that cut it, None if none did."""


_ENCODER = msgpack.Encoder()
_DECODER = msgpack.Decoder(tuple[Candidate, ...])


class Candidates(Sequence[Candidate]):
    """The candidates of a distribution, packed until somebody reads them, and equal to a tuple of them.

    Twenty candidates are 4.5 KB as objects, most of what a session of 20,000 steps holds, and 2 KB packed.

    Args:
        candidates: The candidates, or what `packed` was of others.
    """

    __slots__ = ("packed",)

    def __init__(self, candidates: Iterable[Candidate] | bytes) -> None:
        self.packed = candidates if isinstance(candidates, bytes) else _ENCODER.encode(tuple(candidates))
        """A msgpack array of maps."""

    def __len__(self) -> int:
        return len(_unpacked(self.packed))

    @overload
    def __getitem__(self, place: int) -> Candidate: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, place: int | slice) -> Candidate | tuple[Candidate, ...]:
        return _unpacked(self.packed)[place]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(_unpacked(self.packed))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Candidates):
            return self.packed == other.packed or tuple(self) == tuple(other)
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sys.getsizeof(self.packed)

    def __repr__(self) -> str:
        return repr(tuple(self))


@lru_cache(maxsize=64)
def _unpacked(packed: bytes) -> tuple[Candidate, ...]:
    return _DECODER.decode(packed)


NO_CANDIDATES = Candidates(())


class StageReading(Struct, frozen=True, gc=False):
    """The effect of one stage of the sampler."""

    name: str
    kept: Count
    """Tokens still in after it."""
    removed_mass: Finite
    """Probability, before the stage, of the tokens that it cut."""


class GrammarReading(Struct, frozen=True, gc=False):
    """The tokens that a grammar allows after one node, in figures."""

    allowed: Count
    """Tokens that it allows."""
    mass: Finite
    """Their probability together, of the model's own distribution: near 0 the grammar fights the model."""
    state: Literal["open", "accepting", "complete", "left", "ended"]
    """`accepting`: the text may end here; `complete`: it must. `left`: a token was taken that the grammar forbids;
    `ended`: its text ended with an end of sequence. After these two it holds no more."""
    forced: bytes = b""
    """The bytes that every text of the grammar has next."""


MADE_UP = 2**20
"""Ids from here up stand for tokens of a server's reply that has none for them; no vocabulary has as many."""


class Distribution(Struct, frozen=True, gc=False):
    """The model's distribution after one node, and the sampler's."""

    node: Count
    position: Count
    """Index in the context of the next token."""
    candidates: Candidates
    """The most probable by the model, best first; the picked one is always among them, whatever its rank."""
    entropy_bits: Finite
    """Of the model's own distribution."""
    sampler_entropy_bits: Finite
    """Of the distribution that is drawn from."""
    others: Count
    """Tokens of the vocabulary that are not among the candidates."""
    others_prob: Finite
    others_sampler_prob: Finite
    stages: tuple[StageReading, ...]
    picked: Count
    """Id that the sampler picked: a step makes it the next token."""
    draw: Finite | None
    """The random number in [0, 1) that picked it, None for greedy."""
    draw_from: Finite | None
    """The picked token's share of the cumulative distribution starts here (ranked, after the sampler) ..."""
    draw_to: Finite | None
    """... and ends here."""
    reroll: Count
    """How often the draw was repeated at this node; part of the draw's seed."""
    grammar: GrammarReading | None = None
    """None without a grammar, and before it begins."""
    listed: bool = False
    """True if a server's reply is all that is known of it: the candidates are those that it listed, their ranks beyond
    them aren't known and 0, nor is what its sampler did. The entropies are then lower bounds, with the rest as one
    token, and times, memory and cache of its step aren't known and 0."""


class PromptToken(Struct, frozen=True, gc=False):
    """One token of the prompt, and the model's readings of it."""

    node: Count
    position: Count
    id: Count
    text: str
    raw: bytes
    special: bool
    logprob: float | None = None
    """None for the first token, and where prompt logprobs are off."""
    prob: Finite | None = None
    rank: Count | None = None
    entropy_bits: Finite | None = None
    candidates: Candidates = NO_CANDIDATES
    """The model's most probable tokens at this position; `sampler_prob` equals `prob`, since nothing is drawn."""
    others_prob: Finite | None = None
    """Probability of all other tokens together; None if prompt logprobs are off."""


class PromptOpened(Record, frozen=True):
    """A prompt was encoded and added to the token tree; the prefill begins."""

    text: str
    """The encoded text, chat template included."""
    chat: bool
    tokens: tuple[PromptToken, ...]
    """Without readings, which `PromptReadings` have. Those that it shares with earlier prompts have their nodes."""
    echo: bool
    """True if prompt logprobs are computed."""
    notes: tuple[str, ...] = ()
    parent: Count = 0
    """Node before its first token: the root, or the end of a completion that it follows."""
    held: Count = 0
    """Tokens of its path that the cache holds already: they don't run again."""
    messages: tuple[Message, ...] = ()
    """The conversation up to its end, which the chat template got; none for raw text."""
    options: ChatOptions = NO_OPTIONS
    """What else the template got."""
    new_tree: bool = True
    """True if it is the first of its tree."""
    segments: PromptSegments = NO_SEGMENTS
    """Whose its tokens are."""


class PrefillChunk(Record, frozen=True):
    """One chunk of the prompt ran through the model."""

    done: Count
    total: Count
    ms: Finite
    """The forward as mlx_lm does it, until the caches are evaluated."""
    kv: KVReading
    cold: bool = False
    """The model's first chunk since it was loaded, which may hold what is done once: no rate counts it."""


class PromptReadings(Record, frozen=True):
    """What the model made of some tokens of a prompt: its prompt logprobs, which the first token doesn't wait for."""

    tokens: tuple[PromptToken, ...]
    ms: Finite
    """Of the model's end for each of them, and of the readings; not part of TTFT."""
    left: Count
    """Tokens that are still to be read."""


class Prefilled(Record, frozen=True):
    """The whole prompt is in the cache and the first distribution is known."""

    text: str
    tokens: tuple[PromptToken, ...]
    """Without readings, which `PromptReadings` have."""
    next: Distribution
    kv: KVReading
    memory: Memory
    ttft_ms: Finite
    """Time to first token: the move to what the cache can keep, the forward of the rest and the first draw, without the
    prompt logprobs."""
    prompt_tps: Finite
    """Tokens that ran, a second, in the forwards that are no cold start; 0 where all of them are."""
    kept: Count = 0
    """Tokens of the path that stayed in the cache: the beginning that it shares with the path before."""
    restored: Count = 0
    """Tokens whose KV was restored from memory."""
    restored_bytes: Count = 0
    """KV that was restored from memory."""
    note: str = ""
    """Why shared tokens ran through the model again, empty if none did."""
    cold: bool = False
    """True if `ttft_ms` holds a cold start: the model's first chunk or first single token since it was loaded."""
    unread: Count = 0
    """Tokens whose `PromptReadings` follow."""


AS_BEFORE = Distribution(-1, -1, NO_CANDIDATES, 0.0, 0.0, 0, 0.0, 0.0, (), -1, None, None, None, 0)
"""In a file in place of `Step.choice`, if that is the last distribution of the node before."""


class Step(Record, frozen=True, omit_defaults=True):
    """One token was taken and ran through the model."""

    index: Count
    """Place among the decoded tokens of its path, from 0: prompts and the turns of a person don't count."""
    position: Count
    """Place in the context, prompt included, from 0."""
    node: Count
    parent: Count
    id: Count
    text: str
    """The characters that this token finished; concatenated they are the text."""
    raw: bytes
    pending: bytes
    """Bytes of an unfinished character that wait for the next token."""
    special: bool
    origin: Origin
    logprob: float
    prob: Finite
    sampler_prob: Finite
    rank: Count
    surprisal_bits: float
    next: Distribution
    """The distribution after it."""
    kv: KVReading
    ms: StepTimes
    memory: Memory
    choice: Distribution = AS_BEFORE
    """The distribution that it was taken from."""


class Resampled(Record, frozen=True):
    """The sampler's settings or the re-roll count changed: the new distribution at the tip, without a forward."""

    next: Distribution


FinishReason = Literal["eos", "stop", "length", "cancelled", "grammar"]


class Finished(Record, frozen=True):
    """A stop was reached. Stepping on past it stays possible, except past a hard window."""

    node: Count
    reason: FinishReason
    detail: str
    """`<|im_end|>`, the stop string, `100 tokens`, `context window of 512 tokens`, the grammar."""


class Restoring(Record, frozen=True):
    """How much of the path the model has run."""

    lasting: ClassVar[bool] = False
    done: Count
    total: Count
    """Tokens."""


class Restored(Record, frozen=True):
    """The tree of a recorded session was rebuilt, and the cache holds the path to one of its nodes."""

    node: Count
    tokens: Count
    """Of the path to it."""
    logprobs: tuple[float, ...]
    """The model's logprobs of the path's last tokens now, in its order, to be compared with the recorded ones."""
    next: Distribution
    kv: KVReading
    memory: Memory
    ms: Finite
