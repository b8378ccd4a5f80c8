"""What is saved is what is loaded: every kind of record, through every form of file, and the screen made from it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import (
    Beam,
    BeamStep,
    Candidate,
    CaptureFacts,
    Check,
    Distribution,
    Endless,
    KVReading,
    LensRead,
    PrefillChunk,
    Prefilled,
    Step,
)
from engine.trace import Entry, Header, TraceReader, load, save_as
from engine.trace.candidates import NAMES, restored, shortened, steady_exp
from engine.trace.decode import Decoder
from engine.trace.encode import Encoder
from engine.trace.schema import KINDS, classes, columns, field_names
from inspector.state.timeline import Timeline
from tests.engine.trace.made_records import ANY, FLOAT32, entries, made, session

PROGRAM = "test 1"


def lines_of(values: list[Any]) -> list[bytes]:
    encoder = Encoder(PROGRAM)
    encoder.header()
    return [encoder.entry(Entry(value)) for value in values]


def decoded(lines: list[bytes]) -> list[Any]:
    problems: list[Any] = []
    decoder = Decoder(Header(PROGRAM, "", field_names()), problems.append)
    found = [decoder.entry(line, number).value for number, line in enumerate(lines, 2)]
    for value in found:
        hash(value)  # decodes what waits
    assert problems == []
    return found


def test_a_logprob_may_be_infinite_wherever_it_stands() -> None:
    """A model may give a token probability 0; declared as a plain number, it would end the session's file."""
    plain = [
        f"{name}.{column.name}"
        for name, cls in classes().items()
        for column in columns(cls)
        if re.search("logprob|surprisal", column.name)
        and "float" in str(column.hint)
        and not _endless(column.hint)
    ]
    assert plain == []


def _endless(hint: Any) -> bool:
    return hint == Endless or any(map(_endless, get_args(hint)))


# ---- identity ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY, max_size=6))
def test_any_records_in_any_order_come_back_equal(values: list[Any]) -> None:
    found = decoded(lines_of(values))
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize("name", sorted(KINDS))
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_each_kind_comes_back_equal(name: str, data: st.DataObject) -> None:
    value = data.draw(made(KINDS[name]))
    assert decoded(lines_of([value, value])) == [value, value]


@settings(max_examples=30, deadline=None)
@given(st.lists(ANY, max_size=4))
def test_lines_without_a_checksum_are_read_the_same(values: list[Any]) -> None:
    plain = [line[: line.rindex(b',"crc"')] + b"}\n" for line in lines_of(values)]
    assert decoded(plain) == values


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_session_comes_back_from_a_file(tmp_path: Path, suffix: str) -> None:
    path, given = tmp_path / f"a.trace{suffix}", entries()
    size = save_as(path, given, PROGRAM)
    trace = load(path)
    assert trace.entries == given
    assert (trace.header.program, trace.torn, trace.problems) == (PROGRAM, 0, [])
    assert path.stat().st_size == size
    again = tmp_path / f"b.trace{suffix}"
    save_as(again, trace.entries, PROGRAM)
    assert load(again).entries == given


def test_a_timeline_made_from_the_file_is_the_one_made_from_the_engine(tmp_path: Path) -> None:
    save_as(tmp_path / "a.trace", entries(), PROGRAM)
    live, replayed = Timeline(), Timeline()
    for value in session():
        live.apply(value)  # type: ignore[arg-type]
    for entry in TraceReader(tmp_path / "a.trace"):
        replayed.apply(entry.value)  # type: ignore[arg-type]
    for name in ("facts", "prompts", "items", "next", "kv", "finished"):
        assert getattr(replayed, name) == getattr(live, name), name
    assert replayed.tree.nodes == live.tree.nodes
    assert replayed.tree.children == live.tree.children
    assert live.steps
    assert replayed.steps[-1].choice is replayed.steps[-2].next  # told once, so that it is held once


def test_what_waits_is_of_its_class_before_and_after_it_is_looked_at() -> None:
    steps = [value for value in session() if isinstance(value, Step)]
    found = decoded_unseen(lines_of(steps))
    for step, given_step in zip(found, steps, strict=True):
        assert isinstance(step.next, Distribution)
        assert isinstance(step.kv, KVReading)
        assert type(step.next) is not Distribution
        assert step.next.entropy_bits == given_step.next.entropy_bits
        assert (
            type(step.next) is not Distribution
        )  # entropies of a whole path are asked for: they cost nothing
        match step.next:
            case Distribution(draw=draw):
                assert draw == given_step.next.draw
        assert given_step.next == step.next
        assert type(step.next) is Distribution
        assert step == given_step


def decoded_unseen(lines: list[bytes]) -> list[Any]:
    decoder = Decoder(Header(PROGRAM, "", field_names()), print)
    return [decoder.entry(line, 1).value for line in lines]


# ---- size -------------------------------------------------------------------------------------


def test_a_prompt_token_is_told_with_its_readings_once() -> None:
    values = session()
    chunks = [value for value in values if isinstance(value, PrefillChunk)]
    echo = tuple({token.node: token for chunk in chunks for token in chunk.echo}.values())
    place = next(place for place, value in enumerate(values) if isinstance(value, Prefilled))
    values[place] = replace(
        values[place], tokens=echo
    )  # as the engine has it; the fake one repeats the prompt's
    row = json.loads(lines_of(values)[place])["Prefilled"]
    assert row[1] == [token.node for token in echo]


def test_candidates_know_every_field_of_theirs() -> None:
    """A field that is added to `Candidate` needs a column in engine/trace/candidates.py."""
    assert {column.name for column in columns(Candidate)} == {*NAMES} - {"logprob32"}


# ---- numbers ----------------------------------------------------------------------------------


@given(st.lists(FLOAT32, max_size=20))
def test_float32_numbers_are_short_and_exact(values: list[float]) -> None:
    short = shortened(values)
    assert short is not None
    assert restored(short) == values
    assert all(value == float(f"{value:.9g}") for value in short)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_numbers_that_are_no_float32_are_not_shortened(values: list[float]) -> None:
    short = shortened(values)
    assert short is None or restored(short) == values


@given(st.floats(-699, 699))
def test_the_steady_exponential_is_the_exponential(value: float) -> None:
    exact = math.exp(value)
    assert abs(steady_exp(value) - exact) <= 2 * math.ulp(exact)


def test_the_steady_exponential_is_the_same_everywhere() -> None:
    assert [steady_exp(x).hex() for x in (0.0, -1.5871454477310181, -11.687544822692871)] == [
        "0x1.0000000000000p+0", "0x1.a2d5623cbffe5p-3", "0x1.19c8430bbca03p-17",
    ]  # fmt: skip
    assert steady_exp(-1000.0) == steady_exp(math.nan) == steady_exp(-math.inf) == 0.0


def test_a_check_that_could_not_be_computed_comes_back(tmp_path: Path) -> None:
    facts = CaptureFacts((Check("lens", float("inf"), 1e-5, "its end raises"),), 2.0, 1.0, "odd")
    read = LensRead(3, (), (), facts)
    save_as(tmp_path / "a.trace", [Entry(read, 0.0)], PROGRAM)
    assert [entry.value for entry in TraceReader(tmp_path / "a.trace")] == [read]


def test_a_number_that_is_none_comes_back_where_a_model_may_give_it() -> None:
    beam = Beam(1, 0, 0, 0, 5, "a", math.nan, -math.inf, math.inf, 1)
    (found,) = decoded(lines_of([BeamStep(1, (beam,), (), (), None, 1, 1.0, True)]))
    assert math.isnan(found.live[0].logprob)
    assert (found.live[0].total_logprob, found.live[0].score) == (-math.inf, math.inf)
