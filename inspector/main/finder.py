"""Things found by typed words: exact words first, then beginnings, then other names, then one letter wrong.

A word counts by how few things have it, so that a sentence is answered by its rare words; a word that nothing has is
left out. Letters that are scattered over a name find nothing.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches

from msgspec import Struct

LABEL, SYNONYM, PLACE, SENTENCE = 1.3, 0.85, 0.45, 0.3
"""Weights of a word by its place."""
BEGINNING, MISSPELT = 0.6, 0.3
"""Factors of a word of which the beginning, or another letter, was typed."""
NAMED = 0.6
"""Added for a label or another name, by the share of it that was typed."""
WHOLE = (2.6, 2.4)
"""Factors of a thing whose label is all that was typed, or its place and label."""
FEW = 0.3
"""The share of the best score below which a thing that lacks a word is left out."""
BEHIND, LATER = ("Help", "Lessons"), 0.7
"""Places of what explains, and its factor: what can be done comes first."""
EMPTY = frozenset(("",))
"""The words of a name without any."""
LEAST = 4
"""Letters of a word that may be misspelt."""
PASSED = frozenset(
    ("a", "an", "and", "are", "can", "do", "does", "for", "how", "i", "in", "is", "it", "me", "my", "of", "on", "or",
     "see", "show", "the", "this", "to", "want", "what", "where", "which", "with")
)  # fmt: skip
"""Words that tell nothing."""
NOUNS = {"repetition": "repeat", "repetitions": "repeat"}
"""Verbs by nouns of another spelling."""
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


def _stem(word: str) -> str:
    """A word without the s of a plural: one more s makes no other word; for a noun the verb that is typed, too."""
    word = NOUNS.get(word, word)
    return word[:-1] if len(word) >= LEAST and word.endswith("s") and not word.endswith("ss") else word


def asked(query: str) -> list[str]:
    """The words of a query that tell something; all of them, if none does."""
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
        self._places: dict[str, dict[int, float]] = defaultdict(dict)
        """The places of the things that have a word, by that word, with the weight of where they have it."""
        self._names: list[list[tuple[str, frozenset[str]]]] = []
        """The label of each thing and its other names, in one piece and as words."""
        self.add(things)

    def add(self, things: Sequence[Findable]) -> None:
        """Put more behind them."""
        for thing in things:
            at, label = len(self.things), SYNONYM if thing.minor else LABEL
            self.things.append(thing)
            fields = (
                (label, thing.label),
                (SYNONYM, thing.synonyms),
                (PLACE, thing.where),
                (SENTENCE, thing.help),
            )
            for weight, text in fields:
                for word in {each for known in _known(text) for each in (known, _stem(known))}:
                    places = self._places[word]
                    places[at] = max(weight, places.get(at, 0.0))
            names = (
                thing.label,
                f"{thing.where} {thing.label}",
                *filter(str.strip, thing.synonyms.split(",")),
            )
            words = map(asked, names)
            self._names.append([("".join(each), frozenset(map(_stem, each)) or EMPTY) for each in words])

    def search(self, query: str) -> list[Findable]:
        """The things that have the words of a query, the best first; words that nothing has are left out.

        Args:
            query: As it was typed.
        """
        typed = list(dict.fromkeys(asked(query)))
        scores, lacks = defaultdict[int, float](float), defaultdict[int, int](int)
        worth: dict[str, float] = {}
        for word in typed:
            if fits := self._fits(word):
                worth[_stem(word)] = math.log(1 + len(self.things) / len(fits))
                for at, fit in fits.items():
                    scores[at] += fit * worth[_stem(word)]
                    lacks[at] -= 1
        whole = "".join(typed)
        for at, names in enumerate(self._names):
            kind = next((n for n, (name, _) in enumerate(names) if name == whole), None)
            if kind is not None:
                kind = 2 if kind > 1 or (kind == 0 and self.things[at].minor) else kind
                named = NAMED * sum(worth.values()) or LABEL
                scores[at] = (
                    scores[at] + named if kind == 2 else WHOLE[kind] * max(sum(worth.values()), LABEL)
                )
            elif at in scores:
                scores[at] += NAMED * max(
                    sum(worth.get(word, 0.0) for word in words) * len(words.intersection(worth)) / len(words)
                    for _, words in names
                )
            if at in scores and self.things[at].where in BEHIND:
                scores[at] *= LATER
        best = max(scores.values(), default=0.0)
        kept = [
            (-score, at) for at, score in scores.items() if -lacks[at] == len(worth) or score >= FEW * best
        ]
        return [*self._named(query), *(self.things[at] for _, at in sorted(kept))]

    def _fits(self, typed: str) -> dict[int, float]:
        """The places of the things that have a word, or one that begins so, or else one that is like it."""
        fits = dict(self._places.get(_stem(typed), {}))
        for word, places in self._places.items():
            if word.startswith(typed) and word != _stem(typed):
                share = BEGINNING * (0.9 + 0.1 * len(typed) / len(word))
                for at, weight in places.items():
                    fits[at] = max(fits.get(at, 0.0), share * weight)
        if len(typed) >= LEAST and all(self.things[at].foreign for at in fits):
            for word, places in self._places.items():
                if len(word) >= LEAST and one_off(typed, word):
                    for at, weight in places.items():
                        if weight > SENTENCE:
                            fits[at] = max(fits.get(at, 0.0), MISSPELT * weight)
        return fits

    def unknown(self, query: str) -> list[str]:
        """The words of a query that find nothing, even alone."""
        return [word for word in asked(query) if not self._fits(word)]

    def similar(self, word: str) -> list[str]:
        """Words that find something, similar to one that finds nothing; none of a file or a model."""
        known: dict[str, None] = {}
        for thing in self.things:
            if not thing.foreign:
                words = _known(f"{thing.label} {thing.synonyms}")
                known |= dict.fromkeys(each for each in words if len(each) >= LEAST)
        return get_close_matches(word, known, _MOST, 0.7)
