"""Things found by typed words: whole words first, then their beginnings, then one letter wrong.

Letters that are scattered over a name find nothing. Every word that was typed has to be found: in the label of a thing,
in what else it is called, in where it lives, or in the sentence about it, and the earlier of these weighs more.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property

from msgspec import Struct

WHOLE, BEGINNING, MISSPELT = 3.0, 2.0, 1.0
"""The fit of a word: to a whole word, to the beginning of one, to one with another letter."""
LABEL, SYNONYM, PLACE, SENTENCE = 1.0, 0.8, 0.5, 0.3
"""Weights of a word by its place. A beginning in a label (2.0) comes before a word of a sentence (0.9)."""
NAMED, CALLED = 1.0, -0.1
"""Added where all that was typed is the whole label; or all of one synonym, or place and label: these come
before words of several names, and behind a whole word of a label."""
COVERED = 0.5
"""Added for the part of the label that was typed: of two labels with the word the shorter comes first."""
LEAST = 4
"""Letters of a word that may be misspelt."""
PASSED = frozenset(
    ("a", "an", "and", "are", "can", "do", "does", "for", "how", "i", "in", "is", "it", "me", "my", "of", "on", "or",
     "see", "show", "the", "this", "to", "want", "what", "where", "which", "with")
)  # fmt: skip
"""Words that tell nothing."""
_WORDS = r"[^\W_]+"
_COMPOUNDS = r"\w+(?:-\w+)+"
_MOST = 3
"""Similar words that are told where nothing is found."""


class Findable(Struct, frozen=True):
    """One thing that a finder finds."""

    id: str
    label: str
    help: str
    """One sentence."""
    where: str
    """Its place: a tool, a dialog, a group of keys."""
    keys: str = ""
    """The keys that lead to it, as they are read; empty for none."""
    synonyms: str = ""
    """Other names, with commas between."""
    action: str = ""
    """Id of the action of the main screen that has to be possible for it; empty for none."""
    run: Callable[[], Awaitable[None] | None] | None = None
    """Does it; None for the action."""
    stays: bool = False
    """True if it is done on the screen that is on top: nothing is left for it."""
    minor: bool = False
    """True if it is done on another screen, or one of many alike: its label counts no more than a synonym."""
    foreign: bool = False
    """True if its words come from a file or a model: no advice is made of them."""


# ---- matching -----------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """The words of a text, in small letters."""
    return re.findall(_WORDS, text.casefold())


def _known(text: str) -> list[str]:
    """The words of a name: both of `knock-out`, and `knockout`."""
    return [*words_of(text), *(each.replace("-", "") for each in re.findall(_COMPOUNDS, text.casefold()))]


def one_off(typed: str, word: str) -> bool:
    """True if a word is another with one letter changed, left out, put in, or two neighbours exchanged."""
    if typed == word or abs(len(typed) - len(word)) > 1:
        return typed == word
    at = next((n for n, (a, b) in enumerate(zip(typed, word, strict=False)) if a != b), None)
    if at is None:
        return True  # one more at the end
    a, b = typed[at:], word[at:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


class Words:
    """The words of a thing, as they are matched again and again.

    Args:
        thing: The thing.
    """

    def __init__(self, thing: Findable) -> None:
        self._label = thing.label
        self.label, self.synonyms = _known(thing.label), _known(thing.synonyms)
        self.phrases = frozenset("".join(asked(phrase)) for phrase in thing.synonyms.split(",")) - {""}
        self._named, self._weight = (CALLED, SYNONYM) if thing.minor else (NAMED, LABEL)
        where = words_of(thing.where)
        self._placed = sorted((*where, *words_of(thing.label)))
        fields = [(self._weight, self.label), (SYNONYM, self.synonyms), (PLACE, where)]
        fields.append((SENTENCE, words_of(thing.help)))
        self._fields = [(weight, words, frozenset(map(_stem, words))) for weight, words in fields]

    @cached_property
    def joined(self) -> str:
        """The label in one, without the words that tell nothing."""
        return "".join(asked(self._label))

    def fit(self, typed: Sequence[str]) -> tuple[bool, float] | None:
        """The fit of all words that were typed; None if one of them is not found.

        Returns:
            Whether all are spelt as they are here, and how well they fit.
        """
        whole = "".join(typed)
        named, called = whole == self.joined, whole in self.phrases or sorted(typed) == self._placed
        if named or called:
            return True, len(typed) * WHOLE + (self._named if named else CALLED)
        spelt, total, covered = True, 0.0, 0
        for word in typed:
            as_typed, best, in_label = self._best(word)
            if not best:
                return None
            spelt, total, covered = spelt and as_typed, total + best, covered + in_label
        return spelt, total + COVERED * covered / max(1, len(self.label))

    def _best(self, typed: str) -> tuple[bool, float, bool]:
        """The fit of one word: whether it is spelt so, how well it fits, and whether it is one of the label's."""
        stem = _stem(typed)
        spelt = max(
            (weight * (WHOLE if stem in stems else _beginning(typed, words)), weight)
            for weight, words, stems in self._fields
        )
        if spelt[0]:
            return True, spelt[0], spelt[1] == self._weight
        if len(typed) < LEAST:
            return False, 0.0, False
        for weight, words, _ in self._fields[:3]:
            if any(len(word) >= LEAST and one_off(typed, word) for word in words):
                return False, weight * MISSPELT, weight == self._weight
        return False, 0.0, False


def _beginning(typed: str, words: Sequence[str]) -> float:
    """The fit of the beginning of a word to the best of some, 0 where none begins so."""
    beginnings = [len(typed) / len(word) for word in words if word.startswith(typed)]
    return BEGINNING * (0.9 + max(beginnings) / 10) if beginnings else 0.0


def _stem(word: str) -> str:
    """A word without the s of a plural: one more s makes no other word."""
    return word[:-1] if len(word) >= LEAST and word.endswith("s") and not word.endswith("ss") else word


def asked(query: str) -> list[str]:
    """The words of a query that tell something; all of them, where none does."""
    words = words_of(query)
    return [word for word in words if word not in PASSED] or words


def matched(text: str, typed: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The pieces of a text, and whether each is what was typed, as it begins a word.

    Args:
        text: The text.
        typed: The words that were typed.
    """
    at = 0
    for word in re.finditer(_WORDS, text):
        begun = [len(each) for each in typed if word[0].casefold().startswith(each)]
        end = word.start() + max(begun, default=0)
        if begun:
            yield text[at : word.start()], False
            yield text[word.start() : end], True
            at = end
    yield text[at:], False


class Index:
    """Things, and their words.

    Args:
        things: In the order in which those that fit alike come.
        named: What a query names as a whole, which comes before all that has its words.
    """

    def __init__(
        self, things: Sequence[Findable], named: Callable[[str], Iterable[Findable]] = lambda query: ()
    ) -> None:
        self._named = named
        self.things: list[Findable] = []
        self._words: list[Words] = []
        self.add(things)

    def add(self, things: Sequence[Findable]) -> None:
        """Put more behind them."""
        self.things += things
        self._words += map(Words, things)

    def search(self, query: str) -> list[Findable]:
        """The things that have all words of a query, the best first; misspelt ones if none is spelt so.

        Args:
            query: As it was typed.
        """
        typed = asked(query)
        found = list(self._found(typed)) if typed else []
        own = any(spelt and not self.things[at].foreign for spelt, _, at in found)
        kept = [each for each in found if each[0] or not own]
        kept.sort(key=lambda each: (not each[0], -each[1], each[2]))
        return [*self._named(query), *(self.things[at] for *_, at in kept)]

    def _found(self, typed: Sequence[str]) -> Iterator[tuple[bool, float, int]]:
        for at, words in enumerate(self._words):
            if (fit := words.fit(typed)) is not None:
                yield (*fit, at)

    def unknown(self, query: str) -> list[str]:
        """The words of a query that find nothing, even alone."""
        return [word for word in asked(query) if not self.search(word)]

    def similar(self, word: str) -> list[str]:
        """Words that find something, similar to one that finds nothing; none of a file or a model."""
        known: dict[str, None] = {}
        for thing, words in zip(self.things, self._words, strict=True):
            if not thing.foreign:
                known |= dict.fromkeys(each for each in words.label + words.synonyms if len(each) >= LEAST)
        return get_close_matches(word, known, _MOST, 0.7)
