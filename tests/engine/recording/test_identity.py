"""What is saved is what is loaded: every kind of record to the last bit, and the screen that is made from it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json, msgpack
from msgspec.structs import replace

from engine.decoding.beam import search
from engine.errors import RecordingError
from engine.model.load import load as load_model
from engine.protocol import COMMANDS, Failure, ModelVocabulary, Record, Resampled, Restored, Step
from engine.recording import Entry, RecordingReader, as_json, asked, load, question, save_as
from engine.recording.file import MAGIC
from engine.session.session import Session
from engine.settings import BeamSettings, LoadSettings, Settings
from inspector.state.timeline import Timeline
from tests.engine.recording.made_records import ANY, KINDS, entries, frames, made, session
from tests.engine.recording.resumed import resumed
from tests.inspector import fakes

PROGRAM = "test 1"
STEP: Step = fakes.session(1).records[-1]  # type: ignore[assignment]


def frames_of(values: list[Any]) -> list[bytes]:
    return frames(Entry(value, 0.25) for value in values)[1:]


def through_a_file(values: list[Any], directory: Path) -> list[Any]:
    """Write values, and read them without a check of their nodes: a value alone names some that no entry has."""
    path = directory / "a.trace"
    path.write_bytes(MAGIC + b"".join(frames(Entry(value) for value in values)))
    with RecordingReader(path, only=KINDS) as reader:
        return [entry.value for entry in reader]


@pytest.mark.parametrize("name", sorted(KINDS))
@settings(max_examples=5)
@given(data=st.data())
def test_each_kind_comes_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    values = [data.draw(made(KINDS[name])), data.draw(ANY)]
    found = through_a_file(values, tmp_path_factory.mktemp("kind"))
    assert repr(found) == repr(values)
    assert frames_of(found) == frames_of(values)  # NaN equals nothing, but has the same bytes
    for value in found:
        json.decode(as_json(value))


@pytest.mark.parametrize("name", sorted(COMMANDS))
@settings(max_examples=5)
@given(data=st.data())
def test_each_command_is_found_by_its_question(name: str, data: st.DataObject) -> None:
    command = data.draw(made(COMMANDS[name]))
    assert asked(question(command)) == command


@pytest.mark.parametrize("text", ["", "{}", '{"command":"Dream"}', '{"command":"TakeStep"', "[" * 10_000])
def test_a_question_of_another_version_is_none(text: str) -> None:
    assert asked(text) is None


def test_values_at_their_edges_come_back(tmp_path: Path) -> None:
    odd = (math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7e308, 0.1, float(2**63))
    restored = Restored(0, 2**64 - 1, odd, STEP.next, STEP.kv, STEP.memory, 1.5)
    others = [
        Failure("", "a\0b\ud7ff\U0010ffff" * 100_000, ""),
        ModelVocabulary(1, bytes(range(256)), (), ()),
    ]
    found, *same = through_a_file([restored, *others], tmp_path)
    assert list(map(float.hex, found.logprobs)) == list(map(float.hex, odd))
    assert math.copysign(1, found.logprobs[4]) == -1
    assert (found.tokens, same) == (2**64 - 1, others)
    halved = Failure("", "half of a pair: \ud800", "")
    escaped = replace(halved, message="half of a pair: \\ud800")
    assert through_a_file([halved], tmp_path) == [escaped]
    assert as_json(halved) == as_json(escaped)
    assert b'"logprobs":[null,null,null,null,-0.0,' in as_json(found)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Failure("TakeStep", "a" * 9 * 2**20, ""), "Failure is too long: at most 8 MiB are read."),
        (replace(STEP, index=2**64), "Step can't be recorded"),
        (replace(STEP, text=object()), "Step can't be recorded: object has no place in a recording."),
    ],
)
def test_what_can_not_be_recorded_is_refused_in_words(tmp_path: Path, value: Any, words: str) -> None:
    with pytest.raises(RecordingError, match=words) as refused:
        save_as(tmp_path / "a.trace", [Entry(value)], PROGRAM)
    assert refused.value.hint
    assert not list(tmp_path.iterdir())


# ---- sessions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".trace", ".trace.zst"])
def test_a_session_comes_back_from_a_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    size = save_as(path, entries(), PROGRAM)
    found = load(path)
    assert found.entries == entries()
    assert (found.header.program, found.header.ends, found.torn) == (PROGRAM, True, 0)
    assert path.stat().st_size == size
    assert path.read_bytes().startswith(MAGIC) == (suffix == ".trace")
    save_as(tmp_path / f"b{suffix}", found.entries, PROGRAM)
    assert load(tmp_path / f"b{suffix}").entries == entries()


def test_a_timeline_made_from_the_file_is_the_one_made_from_the_engine(tmp_path: Path) -> None:
    save_as(tmp_path / "a.trace", entries(), PROGRAM)
    live, replayed = Timeline(), Timeline()
    for value, entry in zip(session(), RecordingReader(tmp_path / "a.trace"), strict=True):
        live.apply(value)  # type: ignore[arg-type]
        replayed.apply(entry.value)  # type: ignore[arg-type]
        for name in ("facts", "prompts", "items", "next", "kv", "finished"):
            assert getattr(replayed, name) == getattr(live, name), name
    assert replayed.tree.nodes == live.tree.nodes
    assert replayed.tree.children == live.tree.children
    assert replayed.steps[1].choice is replayed.steps[0].next  # written once, so that it is held once


# ---- the choice of a step ---------------------------------------------------------------------


def has_choice(frame: bytes) -> bool:
    """True if the frame of a step has its choice."""
    return "choice" in msgpack.decode(frame[8:])[1]


def test_a_choice_is_left_out_if_it_is_the_last_distribution_of_the_parent(tmp_path: Path) -> None:
    path, fake = tmp_path / "a.trace", fakes.session(2)
    node, before = fake.node, fake.tips[fake.node]
    fake.tips[node] = replace(before, reroll=1)
    fake.records.append(Resampled(fake.tips[node]))
    fake.step()
    fake.move(node)
    fake.step()
    fake.node, fake.tips[node] = node, before  # a step from what was drawn before
    fake.step()
    fake.open()  # the same numbers of nodes, in a new tree
    fake.steps(2)
    values: list[Any] = list(fake.records)
    shown = [
        has_choice(each) for each, value in zip(frames_of(values), values, strict=True) if type(value) is Step
    ]
    assert shown == [False, False, False, False, True, False, False]
    save_as(path, map(Entry, values), PROGRAM)
    assert [entry.value for entry in load(path).entries] == values

    following = fake.step()  # in a journal that another run of the program began
    journal = resumed(path, PROGRAM)[2]
    journal.flush()
    size = path.stat().st_size
    journal.write(Entry(following))
    journal.close()
    assert not has_choice(path.read_bytes()[size:])
    assert load(path).entries[-1].value == following


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12))
def test_steps_with_any_choices_come_back_equal(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int]]
) -> None:
    """Of any parent that the tree has, and of some distributions of each."""
    path, values = tmp_path_factory.mktemp("choices") / "a.trace", list(fakes.session(0).records)
    for node, (back, reroll) in enumerate(drawn, STEP.node):
        parent = max(STEP.parent, node - 1 - back)
        choice, following = replace(STEP.choice, node=parent, reroll=reroll), replace(STEP.next, node=node)
        values.append(replace(STEP, parent=parent, node=node, choice=choice, next=following))
    save_as(path, map(Entry, values), PROGRAM)
    assert [entry.value for entry in load(path).entries] == values


# ---- the bundled model ------------------------------------------------------------------------

LIMIT = 3400
"""Bytes of a step with 20 candidates at most, before compression."""
CHOICES = {
    "greedy": Settings(),
    "filtered": Settings(temp=0.8, top_p=0.95, seed=7),
    "everything": Settings(temp=1.3, min_p=0.01, xtc_probability=0.5, repetition_penalty=1.1, seed=3),
    "open": Settings(temp=1.0, seed=5),
}


def recorded(settings: Settings) -> list[Record]:
    """A prompt with its readings, steps, bytes of an emoji, a re-roll, a move back, beams."""
    session = Session(load_model(LoadSettings()), settings)
    prompt = "Once upon a time, naïve 🙂"
    found: list[Record] = [session.facts, *session.prefill(prompt, session.tokens.encode(prompt))]
    start = session.node
    found += [session.step() for _ in range(30)]
    found += [session.move(start), Resampled(session.reroll())]
    found += session.insert(session.tokens.encode(" 🦊é", bare=True))
    found.append(session.verify())
    return [*found, *search(session, BeamSettings(width=2, max_tokens=3))]


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", CHOICES)
def test_what_the_engine_emits_comes_back_equal_and_small(name: str, tmp_path: Path) -> None:
    records = recorded(CHOICES[name])
    sizes = [
        len(each) for each, record in zip(frames_of(records), records, strict=True) if type(record) is Step
    ]
    assert max(sizes) <= LIMIT
    save_as(tmp_path / "a.trace.zst", map(Entry, records), PROGRAM)
    found = [entry.value for entry in load(tmp_path / "a.trace.zst").entries]
    assert found == records
    assert repr(found) == repr(records)  # to the sign of a zero
