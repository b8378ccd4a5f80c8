"""Records made by hand, for tests that need a session and no engine: deterministic, plausible, free of MLX.

    session = Session()
    session.load(); session.open(); session.steps(12)
    timeline = session.timeline()

Every method returns the records it made, in the order in which the engine would hand them out, and keeps them
in `session.records`.
"""

from __future__ import annotations

import codecs
import math
import random
from collections.abc import Sequence

from msgspec.structs import replace

from engine.protocol import (
    Candidate,
    Candidates,
    Distribution,
    Ended,
    Failure,
    Finished,
    FinishReason,
    KVGroup,
    KVReading,
    Loading,
    Memory,
    ModelFacts,
    Moved,
    Origin,
    PrefillChunk,
    Prefilled,
    PromptOpened,
    PromptReadings,
    PromptToken,
    Record,
    StageReading,
    Step,
    StepTimes,
)
from inspector.state.timeline import Timeline

Piece = str | bytes
"""A token: its text, or its bytes where they are no whole character."""

PROMPT: tuple[Piece, ...] = ("Once", " upon", " a", " time", ",")
STORY: tuple[Piece, ...] = (
    " there", " was", " a", " little", " girl", " named", " Lily", ".", " She", " loved", " to", " play",
    " with", " her", " toys", " and", " her", " dog", ".", "\n", "One", " day", ",", " she", " found", " a",
    " big", ",", " red", " ball", " in", " the", " garden", ".", ' "', "Can", " we", " play", " together", '?"',
    " asked", " Li", "ly", ".", "\n\n", "The", " dog", " wag", "ged", " his", " tail", " and", " ran", " after",
    " it", ".", " They", " were", " very", " happy", " that", " day", ".",
)  # fmt: skip
HOSTILE: tuple[Piece, ...] = (
    "[/nope]", "[@click=app.quit]x[/]", "\x1b[31m", "\x9b31m", "\x00", "\x7f", "\u202eevil\u202c", "\u200b",
    "\u200d", "\u0301", "\ufe0f", "\U0001f3fd", "\ufffd", "\U000e0041", "\t", "\r\n", " \t ", "狐狸", "👩", "\u3164",
)  # fmt: skip
TORN: tuple[Piece, ...] = (
    " It", " cost", " 5", " ", b"\xe2\x82", b"\xac", " and", b" \xf0\x9f", b"\x98", b"\x80", "!",
)  # fmt: skip
"""`€` and `😀`, each cut across tokens."""
WORDS: tuple[str, ...] = (
    " toys", " dolls", " friends", " hair", " mom", " the", " and", " big", " dog", " cat", " sun", " park", " ball",
    " happy", " sad", " was", " to", " it", ".", ",", " very", " named", " one", " little", " tree", " bird", " car",
    " house", " loved", "\n", " said", " he", " she", " his", " red", " blue", " ran", " saw", " could", " would",
)  # fmt: skip
EOS = 2


def facts(**changes: object) -> ModelFacts:
    """The pocket model's facts, some of them changed."""
    pocket = ModelFacts(
        name="pocket", path="pocket", family="llama", layers=8, heads=8, kv_heads=4, head_size=32, hidden_size=256,
        vocabulary=4096, parameters=7_340_032, weight_bytes=14_680_064, dtype="bfloat16", quantization=None,
        context_window=512, hard_window=False, cache_kinds=("plain",) * 8, kv_bytes_per_token=8192, eos_ids=(EOS,),
        has_chat_template=True, backend="cpu", load_ms=180.0,
    )  # fmt: skip
    return replace(pocket, **changes)  # type: ignore[arg-type]


_IDS: dict[Piece, int] = {}


def token_id(piece: Piece) -> int:
    """The id of a piece: the same for the same piece, within the vocabulary."""
    return _IDS.setdefault(piece, EOS if piece == "<|im_end|>" else 300 + len(_IDS) * 37 % 3701)


for _piece in (*PROMPT, *STORY, *WORDS):
    token_id(_piece)


def raw_of(piece: Piece) -> bytes:
    """A piece's bytes."""
    return piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass")


def is_special(piece: Piece) -> bool:
    """Whether it is written like a control token."""
    return isinstance(piece, str) and piece.startswith("<|") and piece.endswith("|>")


def reading(offset: int, model: ModelFacts) -> KVReading:
    """A plain cache that grows in strides of 256 tokens."""
    each = model.kv_bytes_per_token or 0
    used, allocated = offset * each, -(-offset // 256) * 256 * each
    layers = tuple(range(len(model.cache_kinds)))
    group = KVGroup("plain", layers, offset, None, used // len(layers), allocated // len(layers))
    return KVReading(offset, used, allocated, (group,))


class Session:
    """Makes the records of one session, as the engine would."""

    def __init__(
        self,
        story: Sequence[Piece] = STORY,
        seed: int = 7,
        temp: float = 0.8,
        top_p: float = 0.95,
        count: int = 12,
    ) -> None:
        self.story, self.temp, self.top_p, self.count = tuple(story), temp, top_p, count
        self.random = random.Random(seed)
        self.model = facts()
        self.records: list[Record] = []
        self.paths: dict[int, tuple[int, ...]] = {0: ()}
        self.tips: dict[int, Distribution] = {}
        self.pieces: dict[int, Piece] = {}
        self.pending: dict[int, bytes] = {0: b""}
        self.node = 0
        self.nodes = 0
        self.prompt_length = 0

    def timeline(self) -> Timeline:
        """A timeline that took in every record made so far."""
        timeline = Timeline()
        for record in self.records:
            timeline.apply(record)
        return timeline

    # ---- what the engine would do -----------------------------------------------------------

    def load(self, **changes: object) -> list[Record]:
        """Load a model, with some facts changed."""
        self.model = facts(**changes)
        return self._out(Loading("weights", 42, 64, "model.safetensors"), self.model, Ended("Load"))

    def open(self, prompt: Sequence[Piece] = PROMPT, echo: bool = True, chunk: int = 3) -> list[Record]:
        """Prefill a prompt, in chunks."""
        began = len(self.records)
        opened = self.begin(prompt, echo)
        for done in range(chunk, len(prompt) + chunk, chunk):
            self.chunk(opened, min(done, len(prompt)), chunk)
        self.prefilled(opened)
        return self.records[began:]

    def begin(self, prompt: Sequence[Piece] = PROMPT, echo: bool = True) -> PromptOpened:
        """Encode a prompt; nothing of it went through the model yet."""
        self.paths, self.tips, self.pending, self.node, self.nodes = {0: ()}, {}, {0: b""}, 0, 0
        self.prompt_length = len(prompt)
        tokens = tuple(self._prompt_token(place, piece) for place, piece in enumerate(prompt))
        opened = PromptOpened("".join(token.text for token in tokens), False, tokens, echo)
        self._out(opened)
        return opened

    def chunk(self, opened: PromptOpened, done: int, size: int = 3) -> PrefillChunk:
        """One chunk of the prompt went through."""
        record = PrefillChunk(done, len(opened.tokens), 7.5 * size, reading(done, self.model))
        self._out(record)
        return record

    def prefilled(self, opened: PromptOpened) -> Prefilled:
        """The whole prompt is in the cache."""
        total = len(opened.tokens)
        readings = self.readings(opened) if opened.echo else []
        self.tips[self.node] = self._distribution(self.node)
        ttft, kv = 7.5 * total + 8.0, reading(total, self.model)
        record = Prefilled(
            opened.text,
            opened.tokens,
            self.tips[self.node],
            kv,
            self._memory(total),
            ttft,
            1000 / 7.5,
            unread=(total - 1) * opened.echo,
        )
        self._out(record, *readings, Ended("Prefill"))
        return record

    def readings(self, opened: PromptOpened) -> list[PromptReadings]:
        """The prompt logprobs, two at a time."""
        read = [self._echoed(token) for token in opened.tokens[1:]]
        places = range(0, len(read), 2)
        return [
            PromptReadings(tuple(read[place : place + 2]), 0.75, max(0, len(read) - place - 2))
            for place in places
        ]

    def steps(self, count: int) -> list[Record]:
        """Take what the sampler picked, so many times."""
        return [self.step() for _ in range(count)]

    def step(self, id: int | None = None, origin: Origin | None = None) -> Step:
        """Take one token: the picked one, or the one with this id among the candidates."""
        choice = self.tips[self.node]
        taken = next(c for c in choice.candidates if c.id == (choice.picked if id is None else id))
        parent, position = self.node, choice.position
        piece = self.pieces[taken.id]
        node = self._node(parent, piece)
        self.tips[node] = self._distribution(node)
        drawn: Origin = "greedy" if choice.draw is None else "sampled"
        record = Step(
            position - self.prompt_length, position, node, parent, taken.id,
            self._text(parent, node, piece), raw_of(piece), self.pending[node], is_special(piece), origin or drawn,
            taken.logprob, taken.prob, taken.sampler_prob, taken.rank, -math.log2(taken.prob),
            self.tips[node], reading(position + 1, self.model), self._times(), self._memory(position + 1), choice,
        )  # fmt: skip
        self._out(record)
        return record

    def choose(self, node: int, id: int) -> list[Record]:
        """Take another candidate after a node, moving there first."""
        began = len(self.records)
        if node != self.node:
            self.move(node)
        self.step(id, "chosen")
        return self.records[began:]

    def move(self, node: int, note: str = "") -> Moved:
        """Put the cache at a node."""
        here, there = self.paths[self.node], self.paths[node]
        common = sum(1 for a, b in zip(here, there, strict=False) if a == b)
        self.node = node
        offset = len(there)
        record = Moved(
            node, common, 0, offset - common, 4.2, self.tips[node], reading(offset, self.model),
            note or ("" if offset == common else "the branch was not kept in memory"),
        )  # fmt: skip
        self._out(record)
        return record

    def finish(self, reason: FinishReason = "eos", detail: str = "<|im_end|>") -> Finished:
        """A stop was reached at the tip."""
        record = Finished(self.node, reason, detail)
        self._out(record)
        return record

    def fail(self, message: str, hint: str, command: str = "Load") -> Failure:
        """A command could not be carried out."""
        record = Failure(command, message, hint)
        self._out(record, Ended(command))
        return record

    # ---- the numbers ------------------------------------------------------------------------

    def _out(self, *records: Record) -> list[Record]:
        self.records.extend(records)
        return list(records)

    def _node(self, parent: int, piece: Piece) -> int:
        self.nodes += 1
        self.paths[self.nodes] = (*self.paths[parent], self.nodes) if self.nodes < 2000 else ()
        self.node = self.nodes
        return self.nodes

    def _text(self, parent: int, node: int, piece: Piece) -> str:
        """What the piece finishes, with the bytes that waited before it."""
        if isinstance(piece, str) and not self.pending[parent]:
            self.pending[node] = b""
            return piece
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(self.pending[parent] + raw_of(piece))
        self.pending[node] = decoder.getstate()[0]
        return text

    def _prompt_token(self, place: int, piece: Piece) -> PromptToken:
        parent = self.node
        node = self._node(parent, piece)
        text = self._text(parent, node, piece)
        return PromptToken(node, place, token_id(piece), text, raw_of(piece), is_special(piece))

    def _echoed(self, token: PromptToken) -> PromptToken:
        if token.position == 0:
            return token
        candidates, _ = self._candidates(token.text or token.raw, sampler=False)
        own = next(c for c in candidates if c.id == token.id)
        entropy = -sum(c.prob * math.log2(c.prob) for c in candidates)
        return replace(
            token,
            logprob=own.logprob,
            prob=own.prob,
            rank=own.rank,
            entropy_bits=entropy,
            candidates=Candidates(candidates),
        )

    def _script(self, position: int) -> Piece:
        place = position - self.prompt_length
        return self.story[place % len(self.story)] if self.story else " the"

    def _candidates(self, wanted: Piece, sampler: bool = True) -> tuple[tuple[Candidate, ...], float]:
        """Candidates with the wanted one among them, and the mass of all others."""
        words: list[Piece] = [word for word in self.random.sample(WORDS, self.count) if word != wanted][
            : self.count - 1
        ]
        sharp = self.random.choice((0.7, 1.4, 2.2, 3.0, 4.0, 5.0, 6.0, 8.0))
        scores = sorted(
            (math.exp(-sharp * n**0.7 * self.random.uniform(0.5, 1.0)) for n in range(self.count)),
            reverse=True,
        )
        others = self.random.uniform(0.0, 0.12) / sharp
        total = sum(scores)
        probs = [score / total * (1 - others) for score in scores]
        place = self.random.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 5))
        place = place if probs[place] > 0.01 and sum(probs[:place]) < self.top_p else 0
        words.insert(place, wanted)
        after, cuts = self._sampled(probs) if sampler else (probs, [None] * self.count)
        return tuple(
            Candidate(
                token_id(word), "" if isinstance(word, bytes) else word, raw_of(word), is_special(word),
                math.log(probs[n]), probs[n], n + 1, after[n], cuts[n],
            )
            for n, word in enumerate(self._known(words))
        ), others  # fmt: skip

    def _known(self, words: Sequence[Piece]) -> Sequence[Piece]:
        self.pieces.update({token_id(word): word for word in words})
        return words

    def _sampled(self, probs: Sequence[float]) -> tuple[list[float], list[str | None]]:
        """Top-p, then temperature, as the sampler would; greedy where the temperature is 0."""
        if self.temp == 0:
            return [1.0] + [0.0] * (len(probs) - 1), [None] * len(probs)
        kept, before = [], 0.0
        for prob in probs:
            kept.append(before < self.top_p)
            before += prob
        warm = [prob ** (1 / self.temp) if keep else 0.0 for prob, keep in zip(probs, kept, strict=True)]
        total = sum(warm)
        return [value / total for value in warm], [None if keep else "top-p" for keep in kept]

    def _distribution(self, node: int) -> Distribution:
        position = self._position(node)
        wanted = self._script(position)
        candidates, others = self._candidates(wanted)
        picked = next(c for c in candidates if c.id == token_id(wanted))
        if picked.sampler_prob == 0:
            picked = candidates[0]
        ranked = sorted(candidates, key=lambda c: -c.sampler_prob)
        start = sum(c.sampler_prob for c in ranked[: ranked.index(picked)])
        draw = start + picked.sampler_prob * self.random.random()
        greedy = self.temp == 0
        kept = sum(1 for c in candidates if c.cut_by is None)
        return Distribution(
            node, position, Candidates(candidates), _entropy([c.prob for c in candidates] + [others]),
            _entropy([c.sampler_prob for c in candidates]), self.model.vocabulary - len(candidates), others, 0.0,
            (StageReading("top-p", kept, 1 - self.top_p), StageReading("temperature", kept, 0.0)), picked.id,
            None if greedy else draw, None if greedy else start, None if greedy else start + picked.sampler_prob, 0,
        )  # fmt: skip

    def _position(self, node: int) -> int:
        return len(self.paths[node]) or node

    def _times(self) -> StepTimes:
        forward = 7.2 + self.random.expovariate(2.5) + (4.0 if self.random.random() < 0.03 else 0.0)
        sample, inspect = 0.15 + 0.1 * self.random.random(), 0.35 + 0.1 * self.random.random()
        return StepTimes(forward + sample + inspect + 0.06, forward, sample, inspect)

    def _memory(self, offset: int) -> Memory:
        active = self.model.weight_bytes + reading(offset, self.model).allocated_bytes
        return Memory(active, active + 6_200_000)


def _entropy(probs: Sequence[float]) -> float:
    return -sum(p * math.log2(p) for p in probs if p > 0)


def session(steps: int = 17, **settings: float) -> Session:
    """A session that was loaded, prefilled and stepped."""
    made = Session(**settings)  # type: ignore[arg-type]
    made.load()
    made.open()
    made.steps(steps)
    return made


def long_timeline(tokens: int) -> Timeline:
    """A timeline of many tokens, made cheaply: for benchmarks and for panels that must stay quick.

    Args:
        tokens: Steps of the completion.
    """
    timeline = session(40).timeline()
    pattern = timeline.steps
    for index in range(len(pattern), tokens):
        timeline.apply(next_step(timeline, pattern[index % len(pattern)]))
    return timeline


def next_step(timeline: Timeline, like: Step) -> Step:
    """A step that follows the timeline's tip and reads like another one."""
    last = timeline.items[-1]
    position = last.position + 1
    kv = replace(like.kv, offset=position + 1, used_bytes=(position + 1) * 8192,
                 allocated_bytes=-(-(position + 1) // 256) * 256 * 8192)  # fmt: skip
    index = last.index + 1 if isinstance(last, Step) else 0
    return replace(like, index=index, position=position, node=last.node + 1, parent=last.node, kv=kv)
