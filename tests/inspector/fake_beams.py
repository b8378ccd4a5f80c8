"""Records of a beam search made by hand: a width of 2 over a few words.

    records = search(start)          # opened, six steps, ended
    records[:3]                      # opened and two steps

Step by step, best first (`■` ends a hypothesis, the number is the node after the start):

    1   the(1) a(2)
    2   the cat(3)  the dog(4)       a(2) falls out
    3   the cat sat(5)  the dog ran(6)
    4   the cat sat ■(7) finishes; the dog ran off(8), the cat sat down(9) are live
    5   the dog ran off ■(10) finishes; the dog ran off too(11) is live; down(9) falls out
    6   max tokens: the dog ran off too far(12) finishes, and (7) falls out of the ranking

Greedy decoding says `the dog ran off ■` and is over at step 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from engine.protocol import Beam, BeamEnded, BeamOpened, BeamStep, Hypothesis

EOS_ID = 2
WORDS = {
    " the": 11,
    " a": 12,
    " cat": 13,
    " dog": 14,
    " sat": 15,
    " ran": 16,
    " off": 17,
    " down": 18,
    " too": 19,
    " far": 20,
}


@dataclass
class Maker:
    """Makes beams that grow from one another."""

    start: int

    def __post_init__(self) -> None:
        self.root = Beam(self.start, 0, 0, 0, 0, "", 0.0, 0.0, 0.0, 0)
        self.path: dict[int, tuple[Beam, ...]] = {self.start: ()}

    def grow(self, beam: Beam, number: int, text: str, logprob: float, place: int) -> Beam:
        """A beam that is longer by a word."""
        total, length = beam.total_logprob + logprob, beam.length + 1
        grown = Beam(self.start + number, beam.node, place, beam.place, WORDS.get(text, EOS_ID), text, logprob, total,
                     total / length, length)  # fmt: skip
        self.path[grown.node] = (*self.path[beam.node], grown)
        return grown

    def hypothesis(self, beam: Beam, end: str = "") -> Hypothesis:
        """What a beam's path says; with an end it ended with end-of-sequence."""
        path = self.path[beam.node]
        said = "".join(each.text for each in (path[:-1] if end else path))
        return Hypothesis(beam.node, tuple(each.id for each in path), said, beam.total_logprob, beam.score, beam.length,
                          "eos" if end else "length", end)  # fmt: skip


def search(start: int, end: str = "<eos>") -> list[BeamOpened | BeamStep | BeamEnded]:
    """The whole search.

    Args:
        start: Node where it begins.
        end: How the end-of-sequence token is written.
    """
    make = Maker(start)
    the, a = make.grow(make.root, 1, " the", -0.2, 0), make.grow(make.root, 2, " a", -1.8, 1)
    cat, dog = make.grow(the, 3, " cat", -0.7, 1), make.grow(the, 4, " dog", -0.6, 0)
    sat, ran = make.grow(cat, 5, " sat", -0.1, 1), make.grow(dog, 6, " ran", -0.15, 0)
    sat_end = make.grow(sat, 7, end, -0.9, -1)
    off, down = make.grow(ran, 8, " off", -0.2, 0), make.grow(sat, 9, " down", -1.0, 1)
    off_end, too = make.grow(off, 10, end, -0.3, -1), make.grow(off, 11, " too", -0.5, 0)
    far = make.grow(too, 12, " far", -0.05, -1)
    one, two = make.hypothesis(sat_end, end), make.hypothesis(off_end, end)
    best = make.hypothesis(far)
    return [
        BeamOpened(start, 2, 1.0, False, 6),
        BeamStep(1, (the, a), (), (), the, 2, 5.0, False),
        BeamStep(2, (dog, replace(cat, place=1)), (a,), (), dog, 2, 5.0, False),
        BeamStep(3, (ran, sat), (), (), ran, 2, 5.0, False),
        BeamStep(4, (off, down), (), (one,), off, 2, 5.0, False),
        BeamStep(5, (too,), (down,), (two, one), off_end, 1, 5.0, False),
        BeamStep(6, (), (), (best, two), None, 0, 5.0, True),
        BeamEnded((best, two), two, (), 6, "length", 30.0),
    ]
