"""Records of prompts and steps: what the model expected, what the sampler took, and what it cost."""

from __future__ import annotations

from typing import ClassVar, Literal

from engine.frozen import frozen
from engine.protocol.base import Record
from engine.protocol.floats import Endless
from engine.protocol.model import KVReading, Memory
from engine.protocol.segments import NO_SEGMENTS, PromptSegments


@frozen
class Message:
    """One message of a conversation."""

    role: str
    """`system`, `user`, `assistant`, `tool` or what else the template knows."""
    content: str
    more: str = ""
    """Its other keys as a JSON object, empty where it has none."""


@frozen
class ChatOptions:
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


@frozen
class TurnDiffers(Record):
    """The template gives the conversation another text than the path has: a turn was not added. The person decides."""

    lasting: ClassVar[bool] = False
    at: int
    """Characters that both texts share at the beginning."""
    path: str
    """What the path and the turn behind it would be, from there on."""
    template: str
    """What the template makes of the whole conversation, from there on."""
    kept: int
    """Tokens that the template's text shares with the path: the rest would run again."""
    tokens: int
    """Tokens of the template's text."""


Origin = Literal["prompt", "greedy", "sampled", "chosen", "inserted", "beam", "intervened", "served"]
"""How a token was added to the tree. `served`: a server sent it. `intervened`: it was computed under interventions,
however it was chosen."""


@frozen
class StepTimes:
    """Milliseconds of one step.

    Fenced unless `pipelined`: nothing of the next step is under way in them. The totals of a run add up to its time.
    """

    total: float
    forward: float
    """The model, until its logits are in host memory."""
    sample: float
    """Penalties, filters and draw for the next token."""
    inspect: float
    """Candidates, entropy, ranks and readings; in a pipelined step they overlap the next forward."""
    pipelined: bool = False
    """True in a run without a pace: then `total` is from when the step's token was known to when the next one is,
    without `inspect`. Its forward may have begun before that, for a guess of the token, and so may that of the next."""
    collecting: float = 0.0
    """Time of Python's garbage collector between the step's begin and end."""
    drawing: float = 0.0
    """Time of drawing the screen, in another thread, in the same interval."""
    cold: bool = False
    """The model's first step since it was loaded, which may hold what is done once: no rate counts it."""
    shared: int = 0
    """In a round of speculative decoding, the tokens that its one forward gave: `total` and `forward` have this token's
    part of the drafting and of that forward. 0 in a step of its own."""


@frozen
class Candidate:
    """One token that could be next."""

    id: int
    text: str
    """The characters that it would add to the text so far; empty while they are unfinished."""
    raw: bytes
    special: bool
    logprob: Endless
    """float32 log-softmax of the model's own logits, before any penalty or filter."""
    prob: float
    rank: int
    """1 for the most probable; ties share the lowest."""
    sampler_prob: float
    """Probability with which the sampler draws it, after every stage."""
    cut_by: str | None
    """Name of the stage that cut it, None if none did."""


@frozen
class StageReading:
    """The effect of one stage of the sampler."""

    name: str
    kept: int
    """Tokens still in after it."""
    removed_mass: float
    """Probability, before the stage, of the tokens that it cut."""


@frozen
class GrammarReading:
    """The tokens that a grammar allows after one node, in figures."""

    allowed: int
    """Tokens that it allows."""
    mass: float
    """Their probability together, of the model's own distribution: near 0 the grammar fights the model."""
    state: Literal["open", "accepting", "complete", "left", "ended"]
    """`accepting`: the text may end here; `complete`: it must. `left`: a token was taken that the grammar forbids;
    `ended`: its text ended with an end of sequence. After these two it holds no more."""
    forced: bytes = b""
    """The bytes that every text of the grammar has next."""


MADE_UP = 2**20
"""Ids from here up stand for tokens of a server's reply that has none for them; no vocabulary has as many."""


@frozen
class Distribution:
    """The model's distribution after one node, and the sampler's."""

    node: int
    position: int
    """Index in the context of the next token."""
    candidates: tuple[Candidate, ...]
    """The most probable by the model, best first; the picked one is always among them, whatever its rank."""
    entropy_bits: float
    """Of the model's own distribution."""
    sampler_entropy_bits: float
    """Of the distribution that is drawn from."""
    others: int
    """Tokens of the vocabulary that are not among the candidates."""
    others_prob: float
    others_sampler_prob: float
    stages: tuple[StageReading, ...]
    picked: int
    """Id that the sampler picked: a step makes it the next token."""
    draw: float | None
    """The random number in [0, 1) that picked it, None for greedy."""
    draw_from: float | None
    """The picked token's share of the cumulative distribution starts here (ranked, after the sampler) ..."""
    draw_to: float | None
    """... and ends here."""
    reroll: int
    """How often the draw was repeated at this node; part of the draw's seed."""
    grammar: GrammarReading | None = None
    """None without a grammar, and before it begins."""
    listed: bool = False
    """True if a server's reply is all that is known of it: the candidates are those that it listed, their ranks beyond
    them aren't known and 0, nor is what its sampler did. The entropies are then lower bounds, with the rest as one
    token, and times, memory and cache of its step aren't known and 0."""


@frozen
class PromptToken:
    """One token of the prompt, and the model's readings of it."""

    node: int
    position: int
    id: int
    text: str
    raw: bytes
    special: bool
    logprob: Endless | None = None
    """None for the first token, and where prompt logprobs are off."""
    prob: float | None = None
    rank: int | None = None
    entropy_bits: float | None = None
    candidates: tuple[Candidate, ...] = ()
    """The model's most probable tokens at this position; `sampler_prob` equals `prob`, since nothing is drawn."""
    others_prob: float | None = None
    """Of all other tokens together; None where prompt logprobs are off, and in a trace from before it was recorded."""


@frozen
class PromptOpened(Record):
    """A prompt was encoded and added to the token tree; the prefill begins."""

    text: str
    """The encoded text, chat template included."""
    chat: bool
    tokens: tuple[PromptToken, ...]
    """Without readings, which the chunks have. Those that it shares with earlier prompts have their nodes."""
    echo: bool
    """True if prompt logprobs are computed."""
    notes: tuple[str, ...] = ()
    parent: int = 0
    """Node before its first token: the root, or the end of a completion that it follows."""
    held: int = 0
    """Tokens of its path that the cache holds already: they don't run again."""
    messages: tuple[Message, ...] = ()
    """The conversation up to its end, which the chat template got; none for raw text."""
    options: ChatOptions = NO_OPTIONS
    """What else the template got."""
    new_tree: bool = True
    """True if it is the first of its tree. In a trace from before prompts shared a tree every prompt is."""
    starts: tuple[int, ...] = ()
    """In a trace from before `segments`, the place in `text` where each of the messages begins, -1 where that isn't
    known."""
    segments: PromptSegments = NO_SEGMENTS
    """Whose its tokens are."""


@frozen
class PrefillChunk(Record):
    """One chunk of the prompt ran through the model."""

    done: int
    total: int
    ms: float
    """The forward as mlx_lm does it, until the caches are evaluated."""
    echo_ms: float
    """In a trace from before `PromptReadings`, the additional time of the prompt logprobs; not part of TTFT."""
    kv: KVReading
    echo: tuple[PromptToken, ...]
    """In such a trace the prompt's tokens whose readings this chunk computed."""
    cold: bool = False
    """The model's first chunk since it was loaded, which may hold what is done once: no rate counts it."""


@frozen
class PromptReadings(Record):
    """What the model made of some tokens of a prompt: its prompt logprobs, which the first token doesn't wait for."""

    tokens: tuple[PromptToken, ...]
    ms: float
    """Of the model's end for each of them, and of the readings; not part of TTFT."""
    left: int
    """Tokens that are still to be read."""


@frozen
class Prefilled(Record):
    """The whole prompt is in the cache and the first distribution is known."""

    text: str
    tokens: tuple[PromptToken, ...]
    """Without readings, but in a trace from before `PromptReadings`."""
    next: Distribution
    kv: KVReading
    memory: Memory
    ttft_ms: float
    """Time to first token: the move to what the cache can keep, the forward of the rest and the first draw, without the
    prompt logprobs."""
    echo_ms: float
    """In a trace from before `PromptReadings`, the time of the prompt logprobs."""
    prompt_tps: float
    """Tokens that ran, a second, in the forwards that are no cold start; 0 where all of them are."""
    kept: int = 0
    """Tokens of the path that stayed in the cache: the beginning that it shares with the path before."""
    restored: int = 0
    """Tokens whose KV was restored from memory."""
    restored_bytes: int = 0
    """KV that was restored from memory."""
    note: str = ""
    """Why shared tokens ran through the model again, empty if none did."""
    cold: bool = False
    """True if `ttft_ms` holds a cold start: the model's first chunk or first single token since it was loaded."""
    unread: int = 0
    """Tokens whose `PromptReadings` follow."""


@frozen
class Step(Record):
    """One token was taken and ran through the model."""

    index: int
    """Place among the decoded tokens of its path, from 0: prompts and the turns of a person don't count."""
    position: int
    """Place in the context, prompt included, from 0."""
    node: int
    parent: int
    id: int
    text: str
    """The characters that this token finished; concatenated they are the text."""
    raw: bytes
    pending: bytes
    """Bytes of an unfinished character that wait for the next token."""
    special: bool
    origin: Origin
    logprob: Endless
    prob: float
    sampler_prob: float
    rank: int
    surprisal_bits: Endless
    choice: Distribution
    """The distribution that it was taken from."""
    next: Distribution
    """The distribution after it."""
    kv: KVReading
    ms: StepTimes
    memory: Memory


@frozen
class Resampled(Record):
    """The sampler's settings or the re-roll count changed: the new distribution at the tip, without a forward."""

    next: Distribution


FinishReason = Literal["eos", "stop", "length", "cancelled", "grammar"]


@frozen
class Finished(Record):
    """A stop was reached. Stepping on past it stays possible, except past a hard window."""

    node: int
    reason: FinishReason
    detail: str
    """`<|im_end|>`, the stop string, `100 tokens`, `context window of 512 tokens`, the grammar."""


@frozen
class Restoring(Record):
    """How much of the path the model has run."""

    lasting: ClassVar[bool] = False
    done: int
    total: int
    """Tokens."""


@frozen
class Restored(Record):
    """The tree of a recorded session was rebuilt, and the cache holds the path to one of its nodes."""

    node: int
    tokens: int
    """Of the path to it."""
    logprobs: tuple[Endless, ...]
    """The model's logprobs of the path's last tokens now, in its order, to be compared with the recorded ones."""
    next: Distribution
    kv: KVReading
    memory: Memory
    ms: float
