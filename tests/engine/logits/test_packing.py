"""Rows and vocabularies as records: exact, of the size that is promised, and refused where they mislead."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine import protocol
from engine.errors import RecordingError, StepError
from engine.logits.node_sampler import MOST_TOKENS, pack_row, pack_vocabulary, unpack_row, unpack_vocabulary
from engine.protocol import MOST_PACKED, LogitsRow, ModelVocabulary
from engine.recording import Entry, load, save_as, worth_keeping
from engine.settings import LoadSettings, Settings
from tests.engine.logits.recording import Recording, answer, taken
from tests.engine.sessions import begun
from tests.zoo import Zoo

BITS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50)


def row_of(bits: list[int], keep: int = 0xFFFFFFFF) -> np.ndarray:
    return (np.array(bits, np.uint32) & np.uint32(keep)).view(np.float32)


@given(BITS, st.sampled_from([0xFFFFFFFF, 0xFFFF0000, 0xFFFFE000]))
def test_every_bit_comes_back(bits: list[int], keep: int) -> None:
    row = row_of(bits, keep)
    record = pack_row(3, row)
    assert (record.node, record.tokens) == (3, len(bits))
    assert (unpack_row(record).view(np.uint32) == row.view(np.uint32)).all()


@given(st.lists(st.floats(width=16), min_size=1, max_size=50))
def test_numbers_of_16_bits_take_16(values: list[float]) -> None:
    row = np.array(values, np.float16).astype(np.float32)
    record = pack_row(1, row)
    assert record.dtype in ("float16", "bfloat16")
    assert (unpack_row(record).view(np.uint32) == row.view(np.uint32)).all()


@pytest.mark.wide(1)
@pytest.mark.parametrize(("dtype", "most"), [("file", 6.0), ("float32", 14.5), ("float16", 8.1)])
def test_the_size_of_a_step_is_what_the_help_says(zoo: Zoo, dtype: str, most: float) -> None:
    session = begun(zoo.load("pocket", dtype=dtype), "Once upon a time", Settings(temp=1, seed=3))
    sizes = []
    for _ in range(30):
        session.step()
        record = pack_row(session.node, session.logits)
        assert record.dtype == {"file": "bfloat16"}.get(dtype, dtype)
        sizes.append(record.nbytes / 1024)
    assert most * 0.8 < sum(sizes) / 30 < most
    assert pack_vocabulary(session.tokens).nbytes < 14 * 1024


def test_a_vocabulary_comes_back(zoo: Zoo) -> None:
    tokens = zoo.load("pocket").tokens
    record = pack_vocabulary(tokens)
    assert unpack_vocabulary(record) == [tokens.raw(token) for token in range(tokens.vocabulary)]
    assert [token for token in range(tokens.vocabulary) if tokens.is_special(token)] == list(record.special)
    assert record.spared == tokens.spared


# ---- made to mislead --------------------------------------------------------------------------

ROW = pack_row(1, np.arange(40, dtype=np.float32) / np.float32(3))
BOMB = zlib.compress(bytes(2**28), 1)


@pytest.mark.parametrize(
    "record",
    [
        replace(ROW, packed=ROW.packed[:-1]),
        replace(ROW, packed=ROW.packed[:9]),
        replace(ROW, packed=b""),
        replace(ROW, packed=b"no zlib at all"),
        replace(ROW, tokens=39),
        replace(ROW, tokens=41),
        replace(ROW, tokens=0),
        replace(ROW, tokens=-1),
        replace(ROW, dtype="bfloat16"),
        replace(ROW, tokens=2**63),
        replace(ROW, tokens=MOST_TOKENS + 1, packed=BOMB),
        replace(ROW, packed=BOMB),
    ],
)
def test_a_row_that_does_not_fit_is_refused_in_one_line(record: LogitsRow) -> None:
    with pytest.raises(StepError, match="recorded here are") as refused:
        unpack_row(record)
    assert "\n" not in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("tokens", "content"),
    [
        (3, b"\1\0\1\0\1\0ab"),
        (3, b"\1\0\1\0\1\0abcd"),
        (3, b"\1\0"),
        (0, b""),
        (-1, b""),
        (2**62, b"\1\0a"),
        (2, bytes(2**26)),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused_in_one_line(tokens: int, content: bytes) -> None:
    record = ModelVocabulary(tokens, zlib.compress(content), (), ())
    with pytest.raises(StepError, match="recorded here are") as refused:
        unpack_vocabulary(record)
    assert "\n" not in str(refused.value)


def test_a_bomb_is_not_unpacked() -> None:
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(StepError):
        unpack_row(replace(ROW, packed=BOMB))
    with pytest.raises(StepError):
        unpack_vocabulary(ModelVocabulary(4096, BOMB, (), ()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    """A short session with rows."""
    live = Recording(LoadSettings(record_logits=True))
    live.do(protocol.Prefill("Once upon a time", chat=False))
    live.do(protocol.TakeStep())
    return live.entries


def test_what_a_question_says_of_a_damaged_row(entries: list[Entry]) -> None:
    def damaged(value: object) -> object:
        return replace(value, packed=b"?") if isinstance(value, LogitsRow) else value

    recorded = taken(damaged(entry.value) for entry in entries)
    for command in (protocol.Explain(4), protocol.FindTokens(4, "a"), protocol.WhatIf(Settings(), 5)):
        failure = answer(recorded, command)
        assert isinstance(failure, protocol.Failure)
        assert failure.message == "The logits recorded here are damaged."


def changed(entries: list[Entry], path: Path, packed: object) -> Path:
    """A file of the session with other bytes in its first row."""
    place = next(place for place, entry in enumerate(entries) if isinstance(entry.value, LogitsRow))
    bad = replace(entries[place], value=replace(entries[place].value, packed=packed))
    save_as(path, [*entries[:place], bad, *entries[place + 1 :]], "test")
    return path


@pytest.mark.parametrize("packed", ["YQ==", 5, None, [b"a"], {"hex": "00"}])
def test_a_row_whose_bytes_are_none_is_refused_with_its_entry(
    entries: list[Entry], tmp_path: Path, packed: object
) -> None:
    with pytest.raises(
        RecordingError, match=r"Entry \d+ .*Expected `bytes`, got .* at `\$\[1\]\.packed`"
    ) as refused:
        load(changed(entries, tmp_path / "rows.trace.zst", packed))
    assert "\n" not in str(refused.value)


def test_a_row_larger_than_any_is_neither_kept_nor_read(entries: list[Entry], tmp_path: Path) -> None:
    large = bytes(MOST_PACKED + 1)
    assert not worth_keeping(replace(ROW, packed=large))
    assert worth_keeping(ROW)
    with pytest.raises(RecordingError, match="Expected `bytes` of length <= 2097152"):
        load(changed(entries, tmp_path / "rows.trace", large))


def test_rows_that_are_not_looked_into_are_copied_as_they_are(entries: list[Entry], tmp_path: Path) -> None:
    save_as(tmp_path / "a.trace", entries, "test")
    again = load(tmp_path / "a.trace").entries
    assert [entry.value for entry in again] == [entry.value for entry in entries]
