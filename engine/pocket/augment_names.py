"""More variety from the same stories, by swapping first names consistently inside a story.

Never for the held-out stories. Run it as
`python -m engine.pocket.augment_names STORIES.txt AUGMENTED.txt --copies 2`.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Sequence
from pathlib import Path

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


def main(argv: Sequence[str] | None = None) -> int:
    """Augment one file of stories."""
    parser = argparse.ArgumentParser(description="Swap first names in copies of stories.")
    parser.add_argument("source", type=Path, help=f"stories, {END_OF_TEXT} between them")
    parser.add_argument("target", type=Path, help="file to write")
    parser.add_argument("--copies", type=int, default=2, help="how often a story occurs, itself included")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    text = args.source.read_text(encoding="utf-8")
    stories = [story.strip("\n") for story in text.split(END_OF_TEXT) if story.strip()]
    augmented = augment(stories, args.copies, args.seed)
    args.target.write_text("".join(f"{story}\n{END_OF_TEXT}\n" for story in augmented), encoding="utf-8")
    print(f"{len(stories)} stories became {len(augmented)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
