"""The finder's search: exact words first, then beginnings, then synonyms, then words with one letter wrong.

The fewer things contain a word, the more it counts, so that the rare words of a sentence decide; a word that no thing
contains is ignored. There is no fuzzy matching of letters scattered over a name.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches

from msgspec import Struct

LABEL, SYNONYM, PLACE, SENTENCE = 1.3, 0.85, 0.45, 0.3
"""Weights of a word by the field it is in."""
BEGINNING, MISSPELT = 0.6, 0.3
"""Factors for a word that was typed only in part, or with one letter wrong."""
NAMED = 0.6
"""Weight of the share of a label or synonym that was typed, which is added to the score."""
WHOLE = (2.6, 2.4)
"""Factors for a thing if the query is exactly its label, or its place and label."""
FEW = 0.3
"""The share of the best score below which a thing that lacks a word is left out."""
BEHIND, LATER = ("Help", "Lessons"), 0.7
"""Places of explanations, and the factor that ranks them after actions."""
EMPTY = frozenset(("",))
"""The words of a name without any."""
LEAST = 4
"""Minimum letters of a word that may be misspelt."""
PASSED = frozenset(
    ("a", "an", "and", "are", "can", "do", "does", "for", "how", "i", "in", "is", "it", "me", "my", "of", "on", "or",
     "see", "show", "the", "this", "to", "want", "what", "where", "which", "with")
)  # fmt: skip
"""Words that are ignored in a query."""
NOUNS = {"repetition": "repeat", "repetitions": "repeat"}
"""Nouns that are found by their verbs, too."""
_WORDS = r"[^\W_]+"
_COMPOUNDS = r"\w+(?:-\w+)+"
_MOST = 3
"""Number of similar words that are suggested for an unknown one."""


class Findable(Struct, frozen=True):
    """One thing that the finder can find."""

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
    """Does it; None to do the action."""
    stays: bool = False
    """True if it is done on the screen that is on top, which stays open."""
    minor: bool = False
    """True if it is done on another screen, or one of many alike: its label counts no more than a synonym."""
    foreign: bool = False
    """True if its words come from a file or a model: they are not suggested."""


# ---- matching -----------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """The words of a text in lower case."""
    return re.findall(_WORDS, text.casefold())


def _known(text: str) -> list[str]:
    """The words of a name in lower case; for `knock-out`, also `knockout`."""
    return [*words_of(text), *(each.replace("-", "") for each in re.findall(_COMPOUNDS, text.casefold()))]


def one_off(typed: str, word: str) -> bool:
    """True if two words are the same, or differ in one letter or by two neighbouring letters exchanged."""
    if typed == word or abs(len(typed) - len(word)) > 1:
        return typed == word
    at = next((n for n, (a, b) in enumerate(zip(typed, word, strict=False)) if a != b), None)
    if at is None:
        return True  # one has a letter more at the end
    a, b = typed[at:], word[at:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


def _stem(word: str) -> str:
    """A word without the s of a plural, or the verb of one of `NOUNS`."""
    word = NOUNS.get(word, word)
    return word[:-1] if len(word) >= LEAST and word.endswith("s") and not word.endswith("ss") else word


def asked(query: str) -> list[str]:
    """The words of a query without those of `PASSED`; all words if no other is left."""
    words = words_of(query)
    return [word for word in words if word not in PASSED] or words


def matched(text: str, typed: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The pieces of a text, and whether each is the beginning of a word that was typed.

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
    """An index of things by their words.

    Args:
        things: The things; those with equal scores are found in this order.
        named: Returns the things that a whole query names, which come first.
    """

    def __init__(
        self, things: Sequence[Findable], named: Callable[[str], Iterable[Findable]] = lambda query: ()
    ) -> None:
        self._named = named
        self.things: list[Findable] = []
        self._places: dict[str, dict[int, float]] = defaultdict(dict)
        """The places in `things` of those that contain a word, by the word, with the weight of the field it is in."""
        self._names: list[list[tuple[str, frozenset[str]]]] = []
        """The names of each thing (label, place and label, synonyms), each as one string and as words."""
        self.add(things)

    def add(self, things: Sequence[Findable]) -> None:
        """Append things."""
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
        """The things that contain the words of a query, the best first; words that no thing contains are ignored.

        Args:
            query: The query as it was typed.
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
        """The places in `things`, with weights, of those with a word, or one that begins with it, or else a similar
        one."""
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
        """The words of a query that no thing contains."""
        return [word for word in asked(query) if not self._fits(word)]

    def similar(self, word: str) -> list[str]:
        """Known words that are similar to an unknown one, without those of files and models."""
        known: dict[str, None] = {}
        for thing in self.things:
            if not thing.foreign:
                words = _known(f"{thing.label} {thing.synonyms}")
                known |= dict.fromkeys(each for each in words if len(each) >= LEAST)
        return get_close_matches(word, known, _MOST, 0.7)
