"""Build the tokenizer and the packed token files for the pocket model. Needs numpy and tokenizers.

Tokenizer: byte-level BPE, 4096 entries, three of them special. Training text: every story, and a second copy
with first names swapped; about 45 % of the stories follow a ChatML turn whose request names words of the
story, the rest have no turn before them. Run it as `python -m tests.make_pocket.prepare CORPUS TARGET`.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

# ---- more variety from the same stories: first names swapped consistently inside a story, never for held-out ones ----

END_OF_TEXT = "<|endoftext|>"
"""Separates two stories of a file."""

GIRLS = (
    "Lily Sue Mia Lucy Sara Anna Amy Jane Emma Sally Jill Molly Mary Jenny Sarah Ella Kate Nina Rosie Lola "
    "Bella Maya Zoe Ruby Nora Alice Clara Tina Betty Jessica Sophie Emily Annie Lisa Kim Mandy Katie Susie "
    "Polly Julia"
)
BOYS = (
    "Tim Tom Ben Sam Jack Bob Billy Joe Timmy Jimmy John Leo Mike Peter Fred Tommy Johnny Bobby Benny Andy "
    "Danny Harry Henry Noah Luke Adam Alex Dan David Eric Finn George James Josh Kevin Nick Oscar Paul Simon "
    "Toby"
)
POOLS = (GIRLS.split(), BOYS.split())
NAME = re.compile(rf"\b({'|'.join(POOLS[0] + POOLS[1])})\b")


def swap(story: str, rng: random.Random) -> str:
    """Give the girls and boys of a story other names: one name for one name, all through it."""
    used = list(dict.fromkeys(NAME.findall(story)))
    new: dict[str, str] = {}
    for pool in POOLS:
        names = [name for name in used if name in pool]
        new.update(zip(names, rng.sample(pool, len(names)), strict=True))
    return NAME.sub(lambda match: new[match.group(1)], story)


def augment(stories: Sequence[str], copies: int, seed: int = 1) -> list[str]:
    """The stories and their renamed copies, shuffled.

    Args:
        stories: One story each.
        copies: How often a story occurs, itself included; a copy in which no name occurs is left out.
        seed: Of the names and the order.

    Returns:
        At least the stories themselves.
    """
    rng = random.Random(seed)
    augmented = list(stories)
    for _ in range(copies - 1):
        renamed = ((story, swap(story, rng)) for story in stories)
        augmented += [copy for story, copy in renamed if copy != story]
    rng.shuffle(augmented)
    return augmented


# ---- the token files ---------------------------------------------------------------------------

VOCABULARY = 4096
SPECIAL = (END_OF_TEXT, "<|im_start|>", "<|im_end|>")
CHAT_SHARE = 0.45
REQUESTS = (
    "Tell me a story about {}.",
    "Write a short story about {}.",
    "Tell me a short story with the words {}.",
    "Write a story with these words: {}.",
    "Can you tell me a story about {}?",
    "I want a story about {}.",
    "Please tell a story that has {} in it.",
)


def read_stories(path: Path) -> list[str]:
    """The stories of a gzipped file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [story.strip() for story in file.read().split(END_OF_TEXT) if story.strip()]


def train_tokenizer(stories: Sequence[str]) -> Any:
    """A byte-level BPE tokenizer learned from the stories."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(stories, trainer)
    return tokenizer


class Requests:
    """Makes up the request that a story answers, from the words that distinguish it from the other stories.

    Args:
        stories: All training stories: a distinctive word occurs in few of them.
    """

    def __init__(self, stories: Sequence[str]) -> None:
        self._stories = len(stories)
        self._occurs_in = Counter[str]()
        for story in stories:
            self._occurs_in.update(set(re.findall(r"[a-z]{3,}", story)))

    def words(self, story: str, rng: random.Random) -> list[str]:
        """One to three of the story's most distinctive words, by count times inverse document frequency."""
        count = Counter(re.findall(r"\b[a-z]{3,}\b", story))
        known = (word for word in count if 30 < self._occurs_in[word] < 0.06 * self._stories)
        distinctive = sorted(
            known, key=lambda word: -count[word] * np.log(self._stories / self._occurs_in[word])
        )[:6]
        rng.shuffle(distinctive)
        return distinctive[: rng.choice((1, 2, 2, 3, 3))]

    def request(self, story: str, share: float, rng: random.Random) -> str | None:
        """A request for the story; None for the share without one, and where no word is distinctive."""
        words = self.words(story, rng) if rng.random() < share else []
        if not words:
            # the choice is drawn only for a request, so that the order of draws stays what the model saw
            return None
        joined = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
        return rng.choice(REQUESTS).format(joined)


def pack(
    tokenizer: Any, stories: Sequence[str], requests: Requests, share: float, seed: int = 1
) -> np.ndarray[Any, Any]:
    """The stories as one row of token ids, in a shuffled order.

    Args:
        tokenizer: Of `train_tokenizer`.
        stories: One story each.
        requests: Makes the user's turns.
        share: Of the stories that follow a ChatML turn, 0 to 1.
        seed: Of the requests and the order.

    Returns:
        Token ids as uint16.
    """
    rng = random.Random(seed)
    texts = [requests.request(story, share, rng) for story in stories]
    answers = [coded.ids for coded in tokenizer.encode_batch(list(stories))]
    turns = [coded.ids for coded in tokenizer.encode_batch(["user\n" + (text or "") for text in texts])]
    order = list(range(len(stories)))
    rng.shuffle(order)
    end_of_text, start, end = (tokenizer.token_to_id(token) for token in SPECIAL)
    newline, assistant = tokenizer.encode("\n").ids, tokenizer.encode("assistant\n").ids
    ids: list[int] = []
    for index in order:
        if texts[index]:
            turn = [start, *turns[index], end, *newline, start, *assistant]
            ids += [*turn, *answers[index], end, *newline, end_of_text]
        else:
            ids += [*answers[index], end_of_text]
    return np.array(ids, np.uint16)


def prepare(corpus: Path, target: Path) -> None:
    """Write `tokenizer.json`, `train.bin`, `valid_raw.bin` and `valid_chat.bin`.

    Args:
        corpus: Directory with `tinystories_train.txt.gz` and `tinystories_valid.txt.gz`.
        target: Directory to write to; made if it isn't there.
    """
    target.mkdir(parents=True, exist_ok=True)
    train, valid = (read_stories(corpus / f"tinystories_{name}.txt.gz") for name in ("train", "valid"))
    tokenizer = train_tokenizer(train)
    tokenizer.save(str(target / "tokenizer.json"))
    requests = Requests(train)
    pack(tokenizer, augment(train, copies=2), requests, CHAT_SHARE).tofile(target / "train.bin")
    pack(tokenizer, valid, requests, 0.0).tofile(target / "valid_raw.bin")
    pack(tokenizer, valid, requests, 1.0).tofile(target / "valid_chat.bin")


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare a corpus."""
    parser = argparse.ArgumentParser(description="Build the pocket model's tokenizer and token files.")
    parser.add_argument("corpus", type=Path, help="directory with the two gzipped story files")
    parser.add_argument("target", type=Path, help="directory to write to")
    args = parser.parse_args(argv)
    prepare(args.corpus, args.target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
