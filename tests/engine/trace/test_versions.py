"""Traces of other versions: fields and kinds that are unknown are kept, what lacks is refused with its line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import TraceError
from engine.protocol import Candidate, Distribution, KVReading, Step, StepTimes
from engine.trace import Entry, Unknown, load, save_as
from engine.trace.lines import MAGIC, sealed
from engine.trace.schema import KINDS, classes, columns, items, optional
from tests.engine.trace.made_records import entries

PROGRAM = "test 1"
Edit = Callable[[str, list[Any]], None]


class Lines(list[dict[str, Any]]):
    """Of a trace; short in reports."""

    def __repr__(self) -> str:
        return f"<{len(self)} lines>"


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a trace as JSON, without checksums and without its end."""
    *lines, _ = (json.loads(line) for line in path.read_bytes().splitlines())
    for line in lines:
        del line["crc"]
    lines[0]["ends"] = False
    return lines


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The lines of a session's trace as JSON, without checksums."""
    path = tmp_path_factory.mktemp("versions") / "a.trace"
    save_as(path, entries(), PROGRAM)
    return Lines(read(path))


def each_row(hint: Any, value: Any, edit: Edit) -> None:
    """Call `edit` for every row that stands in a value, inner ones first."""
    hint, _ = optional(hint)
    if (parts := items(hint)) is not None and isinstance(value, list):
        for item in value:
            each_row(parts[0], item, edit)
    if hint not in classes().values() or hint in (Candidate, Distribution, KVReading):
        return  # these stand at the end of the line, or are a number
    if isinstance(value, list):
        for column, inner in zip(columns(hint), list(value), strict=True):
            each_row(column.hint, inner, edit)
        edit(hint.__name__, value)


def edited(lines: list[dict[str, Any]], edit: Edit) -> list[dict[str, Any]]:
    """The lines with every row edited."""
    lines = json.loads(json.dumps(lines))
    for line in lines[1:]:
        kind = next(iter(line))
        each_row(KINDS[kind], line[kind], edit)
        for row in line.get("parts", []):
            cls = Distribution if len(row) == len(columns(Distribution)) else KVReading
            for column, inner in zip(columns(cls), list(row), strict=True):
                each_row(column.hint, inner, edit)
            edit(cls.__name__, row)
    return lines


def save(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(sealed(json.dumps(line).encode()[:-1]) for line in lines))
    return path


NESTED = sorted(set(classes()) - {"Candidate"})
NEW = st.dictionaries(
    st.sampled_from(NESTED),
    st.sampled_from([1, "text", None, [1, 2], {"deep": [{"er": 1}]}, 2.5]),
    max_size=4,
)


@settings(max_examples=8, deadline=None)
@given(new=NEW, top=st.booleans())
def test_unknown_fields_are_kept_through_load_and_save(
    written: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory, new: dict[str, Any], top: bool
) -> None:
    def edit(name: str, row: list[Any]) -> None:
        if name in new:
            row.insert(0, new[name])

    lines = edited(written, edit)
    for name in new:
        lines[0]["fields"][name].insert(0, "fresh")
    if top:
        lines[-1]["by"] = {"whom": "me"}
    directory = tmp_path_factory.mktemp("kept")
    first = load(save(directory / "a.trace", lines))
    assert [entry.value for entry in first.entries] == [entry.value for entry in entries()]
    save_as(directory / "b.trace", first.entries, PROGRAM)
    second = load(directory / "b.trace")
    assert [entry.value for entry in second.entries] == [entry.value for entry in first.entries]
    assert kept(second.entries) == kept(first.entries)
    told = {
        name
        for name in new
        if any(type(owner).__name__ == name for e in first.entries for owner, _ in e.more)
    }
    assert told == {name for name in new if any(name == found for found in present(written))}
    assert not top or (None, {"by": {"whom": "me"}}) in second.entries[-1].more


def kept(found: list[Entry]) -> list[Any]:
    """What was unknown, with the kinds of what had it."""
    return [sorted((type(owner).__name__, json.dumps(more)) for owner, more in entry.more) for entry in found]


def present(lines: list[dict[str, Any]]) -> set[str]:
    """The classes of which there are rows."""
    found: set[str] = set()
    edited(lines, lambda name, _: found.add(name))
    return found


REMOVED = st.sets(
    st.sampled_from([(name, column.name) for name in NESTED for column in columns(classes()[name])]),
    max_size=6,
)


@settings(max_examples=12, deadline=None)
@given(removed=REMOVED)
def test_a_field_that_lacks_has_its_default_or_is_refused_with_its_line(
    written: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory, removed: set[tuple[str, str]]
) -> None:
    names = {cls: [column.name for column in columns(classes()[cls])] for cls, _ in removed}

    def edit(name: str, row: list[Any]) -> None:
        for place in sorted((names[cls].index(gone) for cls, gone in removed if cls == name), reverse=True):
            del row[place]

    lines = edited(written, edit)
    for cls, gone in removed:
        lines[0]["fields"][cls].remove(gone)
    path = save(tmp_path_factory.mktemp("removed") / "a.trace", lines)
    needed = {
        (cls, gone) for cls, gone in removed if default(cls, gone) is MISSING and cls in present(written)
    }
    if not needed:
        found = load(path)
        assert len(found.entries) == len(entries())
        for entry in found.entries:
            hash(entry.value)
        assert found.problems == []
        return
    with pytest.raises(TraceError) as raised:
        load(path)
    line = raised.value.line
    assert line == first_line(written, {cls for cls, _ in needed})
    assert f"Line {line} of {path}" in raised.value.message
    assert any(f"{cls}.{gone} is not in the header's fields" in raised.value.message for cls, gone in needed)
    assert raised.value.hint


def default(cls: str, name: str) -> Any:
    return next(column.default for column in columns(classes()[cls]) if column.name == name)


def first_line(lines: list[dict[str, Any]], classes: set[str]) -> int:
    """The number of the first line with a row of one of the classes."""
    for number in range(1, len(lines)):
        if classes & present([lines[0], lines[number]]):
            return number + 1
    raise AssertionError


def test_fields_may_stand_in_any_order(written: list[dict[str, Any]], tmp_path: Path) -> None:
    lines = edited(written, lambda _, row: row.reverse())
    for names in lines[0]["fields"].values():
        names.reverse()
    assert load(save(tmp_path / "a.trace", lines)).entries == entries()


def test_a_candidate_column_that_is_unknown_is_kept(written: list[dict[str, Any]], tmp_path: Path) -> None:
    lines = json.loads(json.dumps(written))
    lines[0]["fields"]["Candidate"].append("mood")
    for line in lines:
        for found in line.get("candidates", []):
            found["mood"] = ["calm"] * len(found["id"])
    first = load(save(tmp_path / "a.trace", lines))
    save_as(tmp_path / "b.trace", first.entries, PROGRAM)
    second = load(tmp_path / "b.trace")
    assert [entry.value for entry in second.entries] == [entry.value for entry in entries()]
    owner, more = next(each for e in second.entries for each in e.more)
    assert isinstance(owner, tuple)
    assert more == {"mood": ["calm"] * len(owner)}


def test_an_unknown_kind_is_kept_with_the_fields_that_its_header_names(tmp_path: Path) -> None:
    save_as(tmp_path / "a.trace", entries(), PROGRAM)
    lines = read(tmp_path / "a.trace")
    lines[0]["fields"]["Dream"] = ["of", "sheep"]
    dream = {
        "Dream": ["androids", [3, {"x": "\ud800"}]],
        "at": 0.5,
        "candidates": [{"id": [1]}],
        "parts": [[1]],
    }
    lines.insert(5, dream)
    first = load(save(tmp_path / "b.trace", lines))
    unknown = first.entries[4].value
    assert isinstance(unknown, Unknown)
    assert (unknown.kind, unknown.fields["Dream"]) == ("Dream", ["of", "sheep"])
    save_as(tmp_path / "c.trace", first.entries, PROGRAM)
    second = load(tmp_path / "c.trace")
    assert second.entries == first.entries
    assert [e.value for e in second.entries if not isinstance(e.value, Unknown)] == [
        e.value for e in entries()
    ]


# ---- refused ----------------------------------------------------------------------------------


def step_line(lines: list[dict[str, Any]]) -> int:
    return next(number for number, line in enumerate(lines) if "Step" in line)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("index", "3", "Step.index must be a whole number"),
        ("index", True, "Step.index must be a whole number"),
        ("index", 2**64, "Step.index must be a whole number"),
        ("index", -2, "Step.index must be a whole number"),
        ("position", None, "Step.position must be a whole number"),
        ("text", 5, "Step.text must be text, not 5"),
        ("text", {"hex": "zz"}, "Step.text must be text, not an object"),
        ("raw", ["a"], "Step.raw must be text or"),
        ("special", 1, "Step.special must be true or false, not 1"),
        ("origin", "dreamt", "Step.origin must be one of prompt, greedy, sampled, chosen, inserted, beam, "),
        ("prob", "0.5", "Step.prob must be a finite number, not '0.5'"),
        ("logprob", "many", "Step.logprob must be a finite number, not 'many'"),
        ("prob", "inf", "Step.prob must be a finite number"),
        ("ms", [1, 2, 3], f"Step.ms must have the {len(fields(StepTimes))} fields of StepTimes, not 3"),
        ("ms", 7, "Step.ms must be a list of the fields of StepTimes, not 7"),
        ("choice", 999, "Step.choice refers to the Distribution of node 999, which no line before it has"),
        ("choice", [0], "Step.choice must have 5 items, not 1"),
        ("next", None, "Step.next must be a list, not None"),
        ("parent", 998, "stands on node 998, which no line before it has"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_of_its_field_is_refused_with_its_line(
    written: list[dict[str, Any]], tmp_path: Path, field: str, value: Any, words: str
) -> None:
    lines = json.loads(json.dumps(written))
    place = step_line(lines)
    lines[place]["Step"][[column.name for column in columns(Step)].index(field)] = value
    with pytest.raises(TraceError) as raised:
        load(save(tmp_path / "a.trace", lines))
    assert words in raised.value.message
    assert raised.value.line == place + 1


def test_settings_out_of_range_are_refused(written: list[dict[str, Any]], tmp_path: Path) -> None:
    lines = json.loads(json.dumps(written))
    place = next(number for number, line in enumerate(lines) if "Settings" in line)
    lines[place]["Settings"][1] = 7.5
    with pytest.raises(
        TraceError, match=rf"Line {place + 1} of .*Settings.top_p is out of range: top-p must be"
    ):
        load(save(tmp_path / "a.trace", lines))


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ({MAGIC: 3}, "is of format 3, and this program reads up to 2: a newer version wrote it"),
        ({MAGIC: 0}, "has no format number but 0"),
        ({MAGIC: "1"}, "has no format number but '1'"),
        ({MAGIC: 1}, "must have the fields of each class"),
        ({MAGIC: 1, "fields": {"Step": ["a", "a"]}}, "must have the fields of each class"),
        ({"other": 1}, "is not a trace of this program"),
    ],
)
def test_another_format_is_refused(tmp_path: Path, head: dict[str, Any], words: str) -> None:
    (tmp_path / "a.trace").write_text(json.dumps(head, separators=(",", ":")) + "\n")
    with pytest.raises(TraceError) as raised:
        load(tmp_path / "a.trace")
    assert words in raised.value.message


def test_a_class_that_the_header_does_not_name_is_refused(
    written: list[dict[str, Any]], tmp_path: Path
) -> None:
    lines = json.loads(json.dumps(written))
    del lines[0]["fields"]["StepTimes"]
    with pytest.raises(TraceError, match="has a StepTimes, whose fields the header does not name"):
        load(save(tmp_path / "a.trace", lines))
