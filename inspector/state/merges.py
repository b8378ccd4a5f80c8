"""The way tokenizers cut a text, for screen, command line and exports: the merges of a word as rows (a ladder with
rungs), two tokenizers over one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from rich.cells import cell_len

from engine import protocol
from engine.errors import EngineError, SettingsError
from engine.protocol import TakenApart, TokenizerKind, WordApart
from engine.settings import BY_NAME, LoadSettings
from engine.token_texts import decode
from inspector.display import pad, token_label, truncate, visible
from inspector.scales import counted, decimal
from inspector.state.session_tree import Item

NAMES: dict[TokenizerKind, str] = {"bpe": "BPE", "unigram": "unigram", "wordpiece": "WordPiece"}
BORDER = "│"
"""Separator of two pieces."""
TOLD = 40
"""Maximum number of rungs of a word that are listed; of a longer ladder the first and the last ones."""


def taken_apart(command: protocol.TakeApart, load: LoadSettings, stopped: Callable[[], bool]) -> TakenApart:
    """Trace how a tokenizer on this disk cuts a text.

    Args:
        command: The question.
        load: The model of the session.
        stopped: Returns True once the answer is no longer wanted.

    Raises:
        EngineError: There is no such tokenizer, or it or the text can't be traced.
    """
    from engine.tokenizers.tracer import on_disk

    name = "" if command.settings is None else command.settings.model
    return on_disk(name or load.model, name).trace(
        command.text, command.begin, command.end, command.node, stopped
    )


def token_id(text: str, load: LoadSettings) -> int:
    """The id of the single token that a text encodes to, for a logit bias.

    Args:
        text: The text.
        load: Names the model, which must be on this disk.

    Raises:
        SettingsError: The text isn't one token, or the tokenizer can't be read.
    """
    from engine.models_on_disk.models import all_places

    setting = BY_NAME["logit_bias"]
    cached = next((each.path for each in all_places() if each.hub_id == load.model), None)
    named = load if cached is None else LoadSettings(model=str(cached))
    try:
        found = taken_apart(protocol.TakeApart(text), named, lambda: False)
    except EngineError as error:
        message = f"“{text}” can't be looked up: {error.message}"
        raise SettingsError(setting.name, message, "Give the token's id.") from error
    pieces = (zip(word.ids, word.pieces(), strict=True) for word in found.words)
    tokens = [(id, raw.decode("utf-8", "replace")) for word in pieces for id, raw in word]
    return setting.one_token(text, tokens)


# ---- one word ------------------------------------------------------------------------------------


class Rung(Struct, frozen=True):
    """A word after one step of its tokenization."""

    value: int | float | None
    """The rank of the merge, the score of the segmentation (unigram) or the number of the step (WordPiece) that led
    here; None for the beginning."""
    pieces: tuple[bytes, ...]
    new: int | None = None
    """Index of the piece made by this step, if any."""

    @property
    def of(self) -> str:
        """The value in words; empty for the beginning."""
        if self.value is None:
            return ""
        return f"{self.value:,}" if isinstance(self.value, int) else decimal(self.value)


def rungs(word: WordApart) -> int:
    """Number of rungs: the beginning and one per merge, or one per segmentation or step."""
    if word.ways:
        return len(word.ways[0].lengths) if word.ways[0].score is None else len(word.ways)
    return len(word.borders) + 1


def final(word: WordApart) -> int:
    """The rung with the word's tokens: the first for a unigram tokenizer, else the last."""
    return 0 if word.ways and word.ways[0].score is not None else rungs(word) - 1


def rung(word: WordApart, place: int) -> Rung:
    """One of the rungs, from 0."""
    if word.ways and (score := word.ways[min(place, len(word.ways) - 1)].score) is not None:
        return Rung(score, word.joined(word.ways[place].lengths))
    if word.ways:
        lengths = word.ways[0].lengths
        rest = sum(lengths[place + 1 :])
        pieces = word.joined((*lengths[: place + 1], rest) if rest else lengths)
        return Rung(place + 1, pieces, place)
    if not place:
        return Rung(None, word.pieces(0))
    fallen = {*word.borders[: place - 1]}
    border = word.borders[place - 1]
    begin = sum(1 for each in range(1, border) if each not in fallen)
    return Rung(word.ranks[place - 1], word.pieces(place), begin)


def told_rungs(word: WordApart) -> Iterator[int | None]:
    """The indices of the rungs that are listed; None in place of those that are left out."""
    count, half = rungs(word), TOLD // 2
    yield from range(count) if count <= TOLD else (*range(half), None, *range(count - half, count))


def labels(pieces: Sequence[bytes]) -> list[str]:
    """The label of each piece; printable. Bytes of a character that a later piece completes are shown as `‹E2 82›`."""
    made, pending = [], b""
    for raw in pieces:
        text, pending = decode(pending, raw)
        made.append(token_label(text, raw, pending if text else b""))
    return made


def word_label(word: WordApart) -> str:
    """A word in one piece; printable."""
    return labels([b"".join(word.symbols)])[0] if word.symbols else ""


def head(algorithm: TokenizerKind) -> str:
    """The head of a ladder's first column."""
    return {"bpe": "rank", "unigram": "logprob", "wordpiece": "step"}[algorithm]


def unknown(taken: TakenApart, word: WordApart) -> bool:
    """True if a word contains the unknown token."""
    return not word.added and taken.unknown is not None and taken.unknown in word.ids


def summed(taken: TakenApart) -> str:
    """A text's figures: tokens, characters per token, and the tokenizer."""
    each = f", {taken.characters / taken.tokens:.2f} characters a token" if taken.tokens else ""
    rules = f", {taken.merges:,} merges" if taken.merges else ""
    tokens = f"{counted(taken.tokens, 'token')}{each}"
    return f"{tokens} · {NAMES[taken.algorithm]}, {taken.vocabulary:,} in the vocabulary{rules}"


# ---- as lines ----

WIDTH = 100
"""Maximum width of a line in a file or a terminal, in cells."""


def ladder_lines(taken: TakenApart) -> Iterator[str]:
    """The ladder of each word, each word once; printable."""
    yield f"{visible(taken.name)}: {summed(taken)}" if taken.name else summed(taken)
    yield ""
    told: set[tuple[bytes, ...]] = set()
    for word in taken.words:
        if word.symbols in told:
            continue
        told.add(word.symbols)
        count = len(word.ids)
        tokens = counted(count, "token") if not word.added else "an added token, cut out first"
        tokens += ", with what no piece stands for" if unknown(taken, word) else ""
        yield f"{truncate(word_label(word), WIDTH // 2)}   {tokens}"
        yield from () if word.added else _rows(taken, word)
        yield ""


def _rows(taken: TakenApart, word: WordApart) -> Iterator[str]:
    yield f"{head(taken.algorithm):>9}  pieces"
    for place in told_rungs(word):
        if place is None:
            yield f"{'…':>9}  {rungs(word) - TOLD:,} more"
            continue
        made = rung(word, place)
        yield truncate(f"{pad(made.of, 9, right=True)}  {BORDER.join(labels(made.pieces))}", WIDTH)


# ---- two tokenizers over one text ----------------------------------------------------------------


class AlignedTokens(Struct, frozen=True):
    """A part of a text between two borders that both tokenizers have."""

    first: tuple[str, ...]
    """Tokens of the first one; printable."""
    second: tuple[str, ...]

    @property
    def width(self) -> int:
        """Cells that it takes, without the border after it."""
        return max(cell_len(BORDER.join(each)) for each in (self.first, self.second))


def columns(first: TakenApart, second: TakenApart) -> list[AlignedTokens]:
    """The columns of one text cut by two tokenizers, divided where the tokens of both end."""
    cuts = [_cut(first), _cut(second)]
    common = sorted({end for end, _ in cuts[0]} & {end for end, _ in cuts[1]})
    made, places = [], [0, 0]
    for end in common:
        sides = []
        for side, cut in enumerate(cuts):
            begin = places[side]
            while places[side] < len(cut) and cut[places[side]][0] <= end:
                places[side] += 1
            sides.append(tuple(label for _, label in cut[begin : places[side]]))
        made.append(AlignedTokens(*sides))
    rest = [tuple(label for _, label in cut[place:]) for cut, place in zip(cuts, places, strict=True)]
    return [*made, AlignedTokens(*rest)] if any(rest) else made


def _cut(taken: TakenApart) -> list[tuple[int, str]]:
    """Each token's end in the text and its label; tokens that share a character have the same end."""
    return [
        (end, label) for word in taken.words for end, label in zip(word.ends, token_labels(word), strict=True)
    ]


def token_labels(word: WordApart) -> list[str]:
    """The tokens of a word; printable."""
    pieces = word.pieces()
    if len(pieces) == len(word.ids):
        return labels(pieces)
    if len(word.ids) == 1:  # unknown characters that are one token
        return [word_label(word)]
    raw = b"".join(word.symbols)
    made = labels([bytes([byte]) for byte in raw[: len(word.ids)]])
    return made + ["?"] * (len(word.ids) - len(raw))


def faced(made: Sequence[AlignedTokens], width: int) -> Iterator[tuple[str, str]]:
    """Columns as pairs of lines, the first tokenizer's above the second's, at most `width` cells wide."""
    lines, used = ["", ""], 0
    for column in made:
        room = column.width + 1
        if used and used + room > width:
            yield lines[0], lines[1]
            lines, used = ["", ""], 0
        for side, tokens in enumerate((column.first, column.second)):
            lines[side] += pad(BORDER.join(tokens), column.width) + BORDER
        used += room
    if used:
        yield lines[0], lines[1]


# ---- the text around a token ---------------------------------------------------------------------

BEFORE, AFTER = 60, 40
"""Maximum number of tokens before and after a token that are read with it."""


class Around(Struct, frozen=True):
    """The text around a token up to the next special tokens, and the range of the token's characters in it."""

    first: int
    """Slot of the first token."""
    tokens: tuple[Item, ...]
    text: str
    begin: int
    end: int

    def own(self, word: WordApart) -> tuple[int, ...]:
        """Slots of the tokens that share characters with a word."""
        ends = [0, *self._ends()]
        return tuple(
            self.first + place
            for place, (begin, end) in enumerate(pairwise(ends))
            if max(begin + 1, end) > word.begin and begin < word.end
        )

    def _ends(self) -> Iterator[int]:
        """The end of each token in the text; a character that a token leaves incomplete doesn't count."""
        pending, end = b"", 0
        for token in self.tokens:
            text, pending = decode(pending, token.raw)
            end += len(text)
            yield end


def around(items: Sequence[Item], slot: int, before: int = BEFORE, after: int = AFTER) -> Around | None:
    """The text around the token in a slot, or around the last token if the slot is past it; None for an empty path.

    Args:
        items: The path.
        slot: Slot of the token.
        before: Maximum number of tokens before it; a text that is cut there starts at the beginning of a word.
        after: Maximum number of tokens after it.
    """
    slot = min(slot, len(items) - 1)
    if slot < 0:
        return None
    first = last = slot
    if not items[slot].special:
        while first and slot - first < before and not items[first - 1].special:
            first -= 1
        whole = not first or items[first - 1].special
        while not whole and first < slot and items[first].raw[:1] not in (b" ", b"\n"):
            first += 1
        while last + 1 < len(items) and last - slot < after and not items[last + 1].special:
            last += 1
    raw = b"".join(item.raw for item in items[first : last + 1])
    ahead = b"".join(item.raw for item in items[first:slot])
    begin = len(decode(b"", ahead)[0])
    end = max(begin + 1, len((ahead + items[slot].raw).decode("utf-8", "replace")))
    return Around(first, tuple(items[first : last + 1]), raw.decode("utf-8", "replace"), begin, end)


def is_sound(word: WordApart) -> bool:
    """True if the merges or segmentations of a word are consistent with its symbols and tokens."""
    count = len(word.symbols)
    if len(word.ranks) != len(word.borders) or len(word.ends) != len(word.ids):
        return False
    if len({*word.borders}) != len(word.borders) or not all(0 < border < count for border in word.borders):
        return False
    return all(min(way.lengths, default=1) > 0 and sum(way.lengths) == count for way in word.ways)
