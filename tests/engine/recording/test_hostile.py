"""Files made to do harm: each is refused in one sentence with its entry, in bounded time and memory."""

from __future__ import annotations

import random
import struct
import sys
import zlib
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase, seed, settings
from msgspec import Raw, msgpack

from engine.errors import RecordingError
from engine.protocol import MOST_PACKED, Moved, Step
from engine.recording import Entry, RecordingReader, load, peek
from engine.recording.file import FRAME_LIMIT, MAGIC, MIB
from tests.engine.recording.made_records import KINDS, entries, frames, made, session
from tests.engine.recording.resumed import resumed
from tests.system import python

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MANY = 2**32 - 1


def framed(payload: bytes) -> bytes:
    return struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


def entry(event: object, at: object = 0.0, **fields: Any) -> bytes:
    return framed(msgpack.encode([at, {"event": event, **fields}]))


def growing(*frames: bytes, ends: bool = False) -> bytes:
    """The file of a running session."""
    return MAGIC + entry("Header", program="x", created="x", ends=ends) + b"".join(frames)


def saved(*frames: bytes) -> bytes:
    """A saved file with what ends it, if that is among the frames."""
    return growing(*frames, ends=True)


def claim(type: int) -> Raw:
    """The beginning of an array, text, map or binary that claims to have the most that msgpack can say."""
    return Raw(struct.pack(">BI", type, MANY))


def array(item: bytes) -> Raw:
    """An array of equal items that fills a frame."""
    count = (FRAME_LIMIT - 1024) // len(item)
    return Raw(struct.pack(">BI", 0xDD, count) + item * count)


def first(kind: type) -> bytes:
    """The first frame of a kind in a session."""
    return next(frame for frame, each in zip(TOLD, session(), strict=True) if type(each) is kind)


def with_candidates(candidates: object) -> bytes:
    """A distribution with these candidates."""
    value = msgpack.decode(first(Moved)[8:])
    value[1]["next"]["candidates"] = candidates
    return entry("Resampled", next=value[1]["next"])


def given(**settings: object) -> bytes:
    return entry("Settings", settings=settings)


TOLD = frames(entries())[1:]
NAN, INF, ONE = float("nan"), float("inf"), entry("Undeleted", node=1)
DEEP = Raw(b"\x91" * 10**6)
ROW = [1, "", b"", False, 1, 1, 1, 1, None]
"""A candidate in a frame, as short as it can be."""
FRAMES: dict[str, tuple[bytes, str]] = {
    "a wrong type": (entry("Undeleted", node="1"), "Expected `int`, got `str` - at `$[1].node`"),
    "a truth value for a number": (entry("Undeleted", node=True), "Expected `int`, got `bool`"),
    "a part of a number": (entry("Undeleted", node=1.5), "Expected `int`, got `float`"),
    "a number below -1": (entry("Undeleted", node=-2), "Expected `int` >= -1"),
    "2 ** 64": (entry("Undeleted", node=2.0**64), "Expected `int`"),
    "an unknown kind": (entry("Dream"), "Invalid value 'Dream' - at `$[1].event`"),
    "a kind with escapes": (entry("\x1b[2J\n"), "Invalid value"),
    "a kind that is a number": (entry(7), "Expected `str`, got `int`"),
    "no kind": (framed(msgpack.encode([0.0, {"node": 1}])), "missing required field `event`"),
    "no array": (framed(msgpack.encode({"event": "Undeleted"})), "Expected `array`, got `object`"),
    "a missing field": (entry("Undeleted"), "missing required field `node`"),
    "NaN for a time": (entry("Undeleted", NAN, node=1), "Expected `float`"),
    "NaN for a finite number": (entry("Recalled", nodes=[], ms=NAN), "Expected `float`"),
    "an infinite one": (entry("Recalled", nodes=[], ms=INF), "Expected `float`"),
    "truncated": (framed(ONE[8:-1]), "Input data was truncated"),
    "bytes behind the value": (framed(ONE[8:] + b"\0"), "trailing"),
    "an invalid opcode": (framed(b"\x92\0\xc1"), "invalid opcode"),
    "not UTF-8": (entry("Failure", command=Raw(b"\xa2\xff\xfe")), "can't decode byte 0xff"),
    "half of a pair": (entry("Failure", command=Raw(b"\xa3\xed\xa0\x80")), "can't decode byte 0xed"),
    "an array of 2 ** 32": (entry("Recalled", ms=0, nodes=claim(0xDD)), "truncated"),
    "a map of 2 ** 32": (framed(b"\x92\0" + bytes(claim(0xDF))), "truncated"),
    "bytes of 2 ** 32": (entry("PromptOpened", tokens=[{"raw": claim(0xC6)}]), "truncated"),
    "a text of 2 ** 32": (entry("Failure", message=claim(0xDB)), "truncated"),
    "a million arrays": (framed(b"\x92\0" + bytes(DEEP)), "Expected `object`, got `array`"),
    "a million in a field": (entry("Undeleted", more=DEEP, node=1), "recursion depth exceeded"),
    "a million candidates": (with_candidates(DEEP), "recursion depth exceeded"),
    "too many packed bytes": (entry("LogitsRow", packed=bytes(MOST_PACKED + 1)), "`bytes` of length <= 2097152"),
    "a frame that is too long": (struct.pack("<II", FRAME_LIMIT + 1, 0), "is longer than the 8 MiB"),
    "a frame of 2 ** 32": (struct.pack("<II", MANY, 0), "is longer than the 8 MiB that a frame may have"),
    "zeros before a frame": (bytes(16) + ONE, "is empty"),
    "a wrong checksum": (ONE[:-1] + b"\2", "was damaged: its checksum differs"),
    "candidates that are no msgpack": (with_candidates(b"\xc1"), "invalid opcode"),
    "candidates of a wrong type": (with_candidates(msgpack.encode([["1", *ROW[1:]]])), "Expected `int`"),
    "candidates without a field": (with_candidates(b"\x91\x90"), "Expected `array` of length 9, got 0"),
    "candidates with names": (with_candidates(msgpack.encode([{"id": 1}])), "Expected `array`, got `object`"),
    "candidates in an array": (with_candidates([{"id": 1}]), "Expected `bytes`"),
    "candidates in a map": (with_candidates({"id": 1}), "Expected `bytes`"),
    "a choice that is not known": (first(Step), "needs the distribution after node 5, which no entry before it has"),
    "a move to nowhere": (first(Moved), "moves to node 15, which no entry before it has"),
    "settings out of range": (given(top_p=7.5), "Expected `float` <= 1.0"),
    "settings out of their choices": (given(sampler_order="\x1b[2J\n"), "sampler order must be one of"),
    "an endless bias": (given(logit_bias=[[1, NAN]]), "the value for token 1 must be"),
    "an empty grammar": (given(grammar={"kind": "lark", "text": " "}), "the lark grammar is empty"),
    "settings that contradict": (
        entry("LoadSettings", settings={"no_kv_cache": True, "kv_bits": 4}), "there is no KV cache for"
    ),
}  # fmt: skip
"""The second frame of a file, and a part of the sentence that it is refused with."""
END = entry("End", entries=2)
FILES: dict[str, tuple[bytes, int, str]] = {
    **{name: (growing(frame), 2, words) for name, (frame, words) in FRAMES.items()},
    "no header": (MAGIC + ONE, 1, "is not the header"),
    "nothing behind the first line": (MAGIC, 1, "is not the header"),
    "a header without a program": (MAGIC + entry("Header", created=""), 1, "missing required field `program`"),
    "a header before the end": (saved(entry("Header", program="", created=""), END), 2, "is a header before"),
    "no end": (saved(ONE), 3, "is missing: the file is cut short before it"),
    "an end that counts less": (saved(ONE, ONE, END), 4, "counts 2 entries before it, and there are 3"),
    "an entry behind the end": (saved(ONE, END, ONE), 4, "stands behind the recording's end"),
    "bytes behind the end": (saved(ONE, END, b"\1"), 4, "is cut short"),
    "zeros behind the end": (saved(ONE, END, bytes(99)), 4, "is cut short"),
    "a bomb": (zstd.compress(growing(framed(bytes(FRAME_LIMIT)))), 2, "expand to more than 20 times as many"),
    "a bomb of small frames": (zstd.compress(growing(entry("Marked", node=1, note="a" * 999) * 9999)), 0, "expand to"),
    "a window of 1 GiB": (
        b"\x28\xb5\x2f\xfd\0\xa0" + (len(growing(ONE)) << 3 | 1).to_bytes(3, "little") + growing(ONE), 1,
        "Frame requires too much memory",
    ),
    "no Zstandard": (b"\x28\xb5\x2f\xfd" + b"\xff" * 99, 1, "can't be read"),
    "Zstandard behind the end": (zstd.compress(saved(ONE, END)) + b"more", 0, "can't be read"),
}  # fmt: skip
"""By name: the file, the entry that it is refused at, if that is certain, and a part of the sentence."""


def refused(read: Callable[[Path], object], path: Path) -> RecordingError | None:
    """Read a file; the error in words, if there is one. Any other exception is a fault."""
    try:
        read(path)
    except RecordingError as error:
        said, hint = str(error), error.hint
        assert hint and "\n" not in said and len(said) < 600, said  # noqa: PT018
        return error
    return None


def some(path: Path) -> Collection[Entry]:
    return list(RecordingReader(path, only=("Marked", "Settings")))


@pytest.mark.parametrize("name", FILES)
def test_a_file_made_to_do_harm_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    data, number, words = FILES[name]
    path = tmp_path / "a.trace"
    path.write_bytes(data)
    error = refused(load, path)
    assert error is not None
    assert words in error.message
    assert number in (0, error.entry)
    assert error.message.startswith(f"Entry {error.entry} of {path} ")
    for read in (peek, some, lambda path: resumed(path, "x")[2].close()):
        refused(read, path)


FULL: dict[str, tuple[Callable[[], bytes], str]] = {
    "whole numbers": (lambda: entry("Recalled", ms=0, nodes=array(b"\1")), ""),
    "numbers": (lambda: entry("Restored", logprobs=array(b"\1"), node=1), "missing required field"),
    "logit biases": (lambda: given(logit_bias=array(b"\x92\1\1")), ""),
    "texts": (lambda: entry("LoadSettings", settings={"extra_eos_token": array(b"\xa2ab")}), ""),
    "candidates": (lambda: with_candidates(bytes(array(msgpack.encode(ROW)))), ""),
    "candidates of nothing": (lambda: with_candidates(bytes(array(b"\x90"))), "Expected `array` of length 9"),
    "times": (lambda: framed(msgpack.encode([array(b"\x90"), {"event": "Marked", "node": 1}])), "Expected `float`"),
}  # fmt: skip
"""Frames of 8 MiB, of as many values as fit; and what is wrong with them, if something is."""
MEASURE = """
import sys, time
from engine.errors import RecordingError
from engine.recording import RecordingReader, load
from tests.system import peak
load(sys.argv[1])
before, begun, words = peak(), time.perf_counter(), ""
for read in load, lambda path: list(RecordingReader(path, only=("Marked",))):
    try:
        read(sys.argv[2])
    except RecordingError as error:
        words += error.message
print((peak() - before) / 2**20, time.perf_counter() - begun, words)
"""


@pytest.mark.parametrize("name", FULL)
def test_a_full_frame_takes_bounded_time_and_memory(name: str, tmp_path: Path) -> None:
    make, words = FULL[name]
    (tmp_path / "small.trace").write_bytes(growing(ONE))
    (tmp_path / "full.trace").write_bytes(growing(make()))
    ran = python(MEASURE, str(tmp_path / "small.trace"), str(tmp_path / "full.trace"))
    assert ran.returncode == 0, ran.stderr
    mib, seconds, said = ran.stdout.split(" ", 2)
    assert float(mib) < 90 * FRAME_LIMIT / MIB
    assert float(seconds) < 60
    assert words in said
    assert bool(words) == bool(said.strip())


# ---- frames changed at random -----------------------------------------------------------------


@cache
def examples() -> tuple[Any, ...]:
    """Values of every kind, the same ones at each call."""
    found: list[Any] = []
    for name in sorted(KINDS):
        gathered = hypothesis.given(made(KINDS[name]))(lambda value: found.append(value))
        some_phases = settings(max_examples=3, database=None, phases=[Phase.generate])
        seed(1)(some_phases(gathered))()
    return tuple(found)


ODD: tuple[Any, ...] = (
    None, True, -1, 0, 7, 2**63, 2**64 - 1, -(2**63), 0.5, -0.0, 1e300, float("nan"), float("inf"), "", "x", "\x1b",
    b"", b"\xff", [], [1], [[]], {}, {"a": 1}, {1: 2}, msgpack.Ext(5, b"x"),
)  # fmt: skip


def changed(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    """The msgpack of an entry with some bytes changed, or one value."""
    if rng.random() < 0.5:
        made = bytearray(payload)
        for _ in range(rng.choice((1, 1, 2, 8))):
            place, size = rng.randrange(len(made) + 1), rng.choice((0, 1, 1, 4, 40))
            made[place : place + size] = rng.choice((
                b"", rng.randbytes(size), rng.randbytes(1), other[place : place + 40], bytes(claim(0xDD)), b"\x80" * 9,
            ))  # fmt: skip
        return bytes(made)
    value = msgpack.decode(payload)
    inside: Any = value
    way: list[tuple[Any, Any]] = []
    while isinstance(inside, list | dict) and inside and (len(way) < 2 or rng.random() < 0.8):
        way.append((inside, rng.choice(range(len(inside)) if isinstance(inside, list) else list(inside))))
        inside = inside[way[-1][1]]
    holder, name = way[-1]
    if rng.random() < 0.2:
        del holder[name]
    elif isinstance(holder[name], int) and rng.random() < 0.5:
        holder[name] += rng.choice((-1, 1, 5))
    else:
        holder[name] = rng.choice((*ODD, holder, [*value] * 3))
    try:
        return msgpack.encode(value)
    except (RecursionError, OverflowError):  # a value inside itself, or a number that msgpack has not
        return payload[: rng.randrange(len(payload))]


@pytest.mark.parametrize(
    "begin", [0, *(pytest.param(2000 * n, marks=pytest.mark.slow) for n in range(1, 10))]
)
def test_a_frame_changed_at_random_is_read_or_refused(begin: int, tmp_path: Path) -> None:
    path, outcomes = tmp_path / "a.trace", {True: 0, False: 0}
    lone = [frame[8:] for frame in frames(map(Entry, examples()))[1:]]
    for number in range(begin, begin + 2000):
        rng = random.Random(number)
        place = rng.randrange(len(TOLD))
        payload = rng.choice((TOLD[place][8:], rng.choice(lone)))
        path.unlink(missing_ok=True)  # a new file is made sooner than an old one is emptied
        path.write_bytes(growing(*TOLD[:place], framed(changed(payload, rng.choice(lone), rng))))
        refused(some, path)
        error = refused(load, path)
        outcomes[error is None] += 1
        if error is None:
            frames(load(path).entries)  # what is read can be written, too
        else:
            assert error.entry == place + 2, number
    assert min(outcomes.values()) > 100
