"""Files that are cut short, damaged, too large or made to do harm: a clear error, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import TraceError
from engine.protocol import Distribution, Failure, PromptOpened, PromptToken, Recalled, Step
from engine.trace import Entry, Trace, TraceReader, load, peek, save_as, user_message
from engine.trace import values as trace_bounds
from engine.trace.encode import Encoder
from engine.trace.lines import sealed
from tests.engine.trace.made_records import entries
from tests.system import python

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SET = zstd.CompressionParameter

PROGRAM = "test 1"
MIB = 2**20
DEEP = 100_000
"""Deeper than the JSON reader of any Python goes: 3.11 stops at 1,000, later ones at several thousand."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A session's trace."""
    path = tmp_path_factory.mktemp("files") / "a.trace"
    save_as(path, entries(), PROGRAM)
    return path.read_bytes()


@pytest.fixture(scope="module")
def growing() -> bytes:
    """The same, as the journal of a running session has it: it has no end."""
    encoder = Encoder(PROGRAM)
    return encoder.header() + b"".join(map(encoder.entry, entries()))


def seen(trace: Trace) -> int:
    """Look at everything that a trace holds."""
    return sum(hash(entry.value) != 0 for entry in trace.entries if entry.value.__hash__)


def refused(path: Path, data: bytes | None = None) -> TraceError:
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(TraceError) as raised:
        load(path)
    assert raised.value.hint
    return raised.value


@contextmanager
def bounded(mib: int, seconds: float) -> Iterator[None]:
    """At most so much memory at any moment, and so much time."""
    tracemalloc.start()
    begun = time.perf_counter()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < mib * MIB
        assert time.perf_counter() - begun < seconds
    finally:
        tracemalloc.stop()


# ---- whatever the bytes are -------------------------------------------------------------------

FORMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "unsealed": lambda data: b"".join(
        line[: line.rindex(b',"crc"')] + b"}\n" for line in data.splitlines() if b',"crc"' in line
    ),
    "gz": lambda data: gzip.compress(data, 1, mtime=0),
    "zst": lambda data: zstd.compress(data, options={SET.compression_level: 1, SET.checksum_flag: 1}),
}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25, deadline=4000)
@given(data=st.data())
def test_damage_is_refused_or_seen_through(
    plain: bytes, tmp_path_factory: pytest.TempPathFactory, form: str, data: st.DataObject
) -> None:
    bad = bytearray(FORMS[form](plain))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, max(0, len(bad) - 1)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "drop", "double"])):
            case "flip" if bad:
                bad[place] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del bad[place:]
            case "insert":
                bad[place:place] = data.draw(st.binary(max_size=20))
            case "drop":
                del bad[place : place + data.draw(st.integers(1, 300))]
            case _:
                bad[place:place] = bad[place : place + 300]
    path = tmp_path_factory.mktemp("fuzz") / "a.trace"
    path.write_bytes(bad)
    for torn_ok in (False, True):
        try:
            found = load(path, torn_ok)
        except TraceError as error:
            assert error.hint  # noqa: PT017
        else:
            seen(found)


@settings(max_examples=40, deadline=4000)
@given(
    tail=st.binary(max_size=200)
    | st.text('[]{}",:0123456789.eE-+nulltruefalseStepND \n\\u', max_size=200).map(str.encode)
)
def test_any_bytes_after_a_header_are_refused_or_read(
    plain: bytes, tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "a.trace"
    path.write_bytes(plain[: plain.index(b"\n") + 1] + tail)
    try:
        seen(load(path))
    except TraceError as error:
        assert error.line >= 2  # noqa: PT017


def test_one_flipped_bit_of_a_line_is_told_with_its_line(plain: bytes, tmp_path: Path) -> None:
    place = plain.index(b'{"Step"') + 30
    error = refused(tmp_path / "a.trace", plain[:place] + bytes([plain[place] ^ 1]) + plain[place + 1 :])
    assert error.line == plain[:place].count(b"\n") + 1
    assert "was damaged: its checksum differs" in error.message


# ---- cut short --------------------------------------------------------------------------------


def test_an_incomplete_last_line_is_torn_off_where_that_is_allowed(growing: bytes, tmp_path: Path) -> None:
    path, whole = tmp_path / "a.trace", entries()
    last = growing.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(growing), 7):
        path.write_bytes(growing[:cut])
        found = load(path, torn_ok=True)
        assert (found.entries, found.torn) == (whole[:-1], cut - last)
    path.write_bytes(growing + b"\0" * 4096)  # what a power cut leaves on some file systems
    assert load(path, torn_ok=True).entries == whole
    assert load(path, torn_ok=True).torn == 4096


def test_an_incomplete_last_line_is_refused_elsewhere(growing: bytes, tmp_path: Path) -> None:
    error = refused(tmp_path / "a.trace", growing[:-20])
    assert (error.line, "is cut short" in error.message) == (growing.count(b"\n"), True)
    (tmp_path / "b.trace").write_bytes(growing[:-1])  # only its end of line lacks
    assert load(tmp_path / "b.trace").entries == entries()


def test_a_saved_file_that_is_cut_between_lines_is_refused(plain: bytes, tmp_path: Path) -> None:
    lines = plain.splitlines(keepends=True)
    for count in range(1, len(lines)):
        (tmp_path / "a.trace").write_bytes(b"".join(lines[:count]))
        with pytest.raises(
            TraceError, match=f"Line {count + 1} of .* lacks: the file is cut short before it"
        ):
            load(tmp_path / "a.trace", torn_ok=True)
    error = refused(tmp_path / "a.trace", b"".join([*lines[:5], *lines[6:]]))
    assert error.line in (6, len(lines) - 1)  # refers to what lacks, or counts another number of lines


@pytest.mark.parametrize("form", ["gz", "zst"])
def test_a_compressed_file_that_is_cut_short_is_refused(plain: bytes, tmp_path: Path, form: str) -> None:
    data = FORMS[form](plain)
    for cut in (len(data) // 3, len(data) - 30):
        assert "is cut short" in refused(tmp_path / "a.trace", data[:cut]).message or form == "zst"
    assert load_or_none(tmp_path / "a.trace", data[:-1]) in (
        None,
        entries(),
    )  # only the end of a checksum lacks


def load_or_none(path: Path, data: bytes) -> list[Entry] | None:
    path.write_bytes(data)
    try:
        return load(path).entries
    except TraceError:
        return None


def test_a_line_damaged_before_the_last_is_never_torn_off(plain: bytes, tmp_path: Path) -> None:
    place = plain.index(b'{"Step"') + 30
    (tmp_path / "a.trace").write_bytes(plain[:place] + b"#" + plain[place + 1 :])
    with pytest.raises(TraceError, match="checksum"):
        load(tmp_path / "a.trace", torn_ok=True)


# ---- no trace ---------------------------------------------------------------------------------


def test_what_is_no_trace_is_said_to_be_none(tmp_path: Path) -> None:
    assert "can't be read: No such file" in refused(tmp_path / "none").message
    assert "can't be read: Is a directory" in refused(tmp_path).message
    assert "is empty" in refused(tmp_path / "a", b"").message
    assert "is not a trace of this program" in refused(tmp_path / "a", b"\x7fELF" + os.urandom(3000)).message
    assert "is not a trace of this program" in refused(tmp_path / "a", b'{"a": 1}\n').message
    assert "is longer than the 1 MiB" in refused(tmp_path / "a", b"a" * (MIB + 2)).message
    assert "is not a trace" in refused(tmp_path / "a", gzip.compress(b"hello")).message
    assert "can't be read" in refused(tmp_path / "a", b"\x28\xb5\x2f\xfd" + b"\xff" * 99).message
    assert "can't be read" in refused(tmp_path / "a", b"\x1f\x8b" + b"\xff" * 99).message


def test_a_device_without_end_is_refused() -> None:
    with bounded(20, 5):
        assert "it is a device" in refused(Path("/dev/zero")).message


# ---- made to do harm --------------------------------------------------------------------------


def after_header(plain: bytes, *lines: bytes) -> bytes:
    return plain[: plain.index(b"\n") + 1] + b"".join(line + b"\n" for line in lines)


def test_a_file_of_two_gigabytes_is_refused_at_once(plain: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    with path.open("wb") as file:
        file.write(plain)
        file.truncate(2 * 2**30)
    with bounded(8, 1):
        assert "is too long: a trace has at most 512 MiB and 1000000 lines" in refused(path).message


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_bomb_is_refused_before_it_fills_the_memory(plain: bytes, tmp_path: Path, suffix: str) -> None:
    bomb = plain + b"a" * (40 * MIB)
    path = tmp_path / "a.trace"
    path.write_bytes(FORMS[suffix](bomb))
    assert path.stat().st_size < 300_000
    del bomb
    with bounded(120, 10):
        assert "is longer than the 32 MiB" in refused(path).message


def test_a_bomb_of_many_lines_is_refused(
    plain: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = b'{"Undeleted":[1],"at":0}\n'
    path = tmp_path / "a.trace"
    path.write_bytes(gzip.compress(after_header(plain) + line * 30_000, 1))
    monkeypatch.setattr(trace_bounds, "LINES_LIMIT", 20_000)
    assert "20000 lines" in refused(path).message
    monkeypatch.setattr(trace_bounds, "LINES_LIMIT", 10**6)
    monkeypatch.setattr(trace_bounds, "TOTAL_LIMIT", 2**19)
    assert "is too long" in refused(path).message


def test_a_window_of_gigabytes_is_refused(tmp_path: Path) -> None:
    options = {SET.window_log: 30, SET.enable_long_distance_matching: 1}  # a frame that asks for 1 GiB
    path = tmp_path / "a.zst"
    with zstd.ZstdFile(path, "w", options=options) as out:
        out.write(b"a" * 1000)
    with bounded(80, 5):
        assert "can't be read" in refused(path).message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"[" * 100_000 + b"}", "is nested too deep"),
        (b'{"Step":' + b"[" * DEEP + b"]" * DEEP + b"}", "is nested too deep"),
        (b'{"Dream":' + b'{"a":' * DEEP + b"1" + b"}" * (DEEP + 1), "is nested too deep"),
        (b'{"Undeleted":[' + b"9" * 100_000 + b"]}", "has a number of too many digits"),
        (b'{"Undeleted":[' + b"9" * 4000 + b"]}", "Undeleted.node must be a whole number"),
        (b'{"Undeleted":[NaN]}', "has NaN, which is not a JSON number"),
        (b'{"Undeleted":[-Infinity]}', "has -Infinity, which is not a JSON number"),
        (b'{"Undeleted":[1],"Undeleted":[2]}', "has the name 'Undeleted' twice"),
        (b'{"Undeleted":[1],"Deleted":[2]}', "must be of one kind, not 'Undeleted', 'Deleted'"),
        (b'{"at":1}', "must be of one kind, not of none"),
        (b'{"undeleted":[1]}', "must be of one kind, not of none"),
        (b'{"Undeleted":[1],"at":-1}', "must not have a time below 0"),
        (b'{"Undeleted":[1],"at":1e999}', "must be a finite number, not inf"),
        (b'{"Recalled":[[],1e999]}', "Recalled.ms must be a finite number, not inf"),
        (b'{"Undeleted":[1]} {}', "has something after its end"),
        (b'{"Undeleted":[1]', "is not JSON"),
        (b'{"Undeleted":["\xff"]}', "is not UTF-8"),
        (b"[1]", "is not JSON: it has no closing brace"),
        (b"", "is not JSON"),
        (b'{"Moved":[77,0,0,0,1.0,[0,77,0.0,1,0],[1],"",0],"parts":[[]]}', "fields of Distribution"),
        (b'{"Finished":[1,"eos",{"hex":"' + b"61" * (5 * MIB) + b'"}]}', "characters; at most"),
    ],
)  # fmt: skip
def test_a_line_made_to_do_harm_is_refused_with_its_number(
    plain: bytes, tmp_path: Path, line: bytes, words: str
) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(after_header(plain, line))
    with bounded(100, 5):
        error = refused(path)
    assert words in error.message
    assert error.line == 2


NEST = b'{"Dream":[' + b'[],{"a":[]},' * 20_000 + b"1]}"
"""Of a kind that no version knows, so that it is kept: 0.2 MiB that take 4 MiB of memory."""


@pytest.mark.slow
def test_a_bomb_of_nested_values_is_refused_before_it_fills_the_memory(plain: bytes, tmp_path: Path) -> None:
    """Of 20 MiB, so that neither its bytes nor its lines are too many, nor the values of one line."""
    path = tmp_path / "a.trace"
    path.write_bytes(gzip.compress(after_header(plain, *[NEST] * 80), 6))
    assert path.stat().st_size < MIB // 2
    with bounded(130, 60):
        found = refused(path)
    assert "expand to more than 100 times as many" in found.message
    assert "damaged or edited" in found.hint


def test_what_is_built_is_bounded_whatever_the_file_is(
    plain: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_bounds, "BUILT_LIMIT", 40 * MIB)
    path = tmp_path / "a.trace"
    path.write_bytes(after_header(plain, *[NEST] * 40))
    with bounded(60, 20):
        assert "is too large: what it holds takes more than 40 MiB of memory" in refused(path).message
    in_a_field = b'{"Undeleted":[1,{"more":' + NEST[9:-1] + b"}]}"
    path.write_bytes(after_header(plain, *[in_a_field] * 40))
    with bounded(60, 20):
        assert "is too large" in refused(path).message


def test_the_estimate_of_what_is_built_is_no_less_than_what_it_takes() -> None:
    for content in (b"[" + b"[]," * 99_999 + b"[]]", b"[" + b"{}," * 99_999 + b"{}]", NEST[9:-1],
                    b"[" + b'{"a":1},' * 9_999 + b"1]", b"[" + b"[0.5,1000]," * 99_999 + b"1]",
                    '["🦊'.encode() + b"a" * 100_000 + b'"]'):  # fmt: skip
        tracemalloc.start()
        held = json.loads(content)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert taken <= trace_bounds.built(content) < 6 * taken
        del held


def test_the_writer_keeps_to_what_the_reader_accepts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Encoder(PROGRAM)
    lines = [written.header(), *map(written.entry, entries())]
    (tmp_path / "a.trace").write_bytes(b"".join(lines))
    with TraceReader(tmp_path / "a.trace") as reader:
        list(reader)
        assert 0 <= written.built - reader.built < 100 * len(lines)
    monkeypatch.setattr(trace_bounds, "BUILT_LIMIT", written.built - 1)
    with pytest.raises(TraceError, match="The session is too large"):
        save_as(tmp_path / "b.trace", entries(), PROGRAM)


@pytest.mark.parametrize(
    "content", [b'{"Dream":%b}', b'{"Undeleted":[1,{"more":%b}]}', b'{"Undeleted":[1],"x":%b}']
)
def test_what_is_kept_without_being_known_is_not_nested_deep(
    plain: bytes, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(after_header(plain, content % (b"[" * 70 + b"]" * 70)))
    assert "is nested too deep" in refused(path).message
    growing = plain.partition(b"\n")[0].replace(b'"ends":true', b'"ends":false')
    growing = sealed(growing[: growing.index(b',"crc":')])
    path.write_bytes(growing + content % (b"[" * 50 + b"]" * 50) + b"\n")
    assert len(load(path).entries) == 1


def test_millions_of_values_in_one_line_are_refused(plain: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(after_header(plain, b'{"Recalled":[[' + b"[]," * (5 * 10**6) + b"1],1]}"))
    with bounded(120, 5):
        assert "has more than 4000000 values" in refused(path).message


def test_a_tree_that_does_not_hang_together_is_refused(plain: bytes, tmp_path: Path) -> None:
    lines = plain.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(b'{"Step"'))
    found = refused(tmp_path / "a", b"\n".join([*lines[:first], *lines[first + 1 :]]) + b"\n")
    assert "no line before it has" in found.message
    assert found.line == first + 1


def test_what_waits_and_does_not_fit_after_all_is_left_out_and_reported(plain: bytes, tmp_path: Path) -> None:
    """Only who writes checksums can make such a line; a screen that draws it must not break."""
    lines = plain.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith(b'{"Step"'))
    content = json.loads(lines[place])
    del content["crc"]
    content["parts"][0][4], content["parts"][1] = "none", "none"
    content["candidates"] = [{"id": [1], "raw": []}]
    lines[place] = sealed(json.dumps(content, separators=(",", ":")).encode()[:-1])[:-1]
    path = tmp_path / "a.trace"
    path.write_bytes(b"\n".join(lines) + b"\n")
    trace = load(path)
    step = trace.entries[place - 1].value
    assert isinstance(step, Step)
    assert trace.problems == []
    assert step.next.candidates == ()
    assert type(step.next) is Distribution
    assert step.kv.offset == 0
    assert [problem.line for problem in trace.problems] == [place + 1, place + 1]
    assert (
        f"Line {place + 1} Distribution.sampler_entropy_bits must be a finite number"
        in trace.problems[0].message
    )


# ---- reading in slices, looking at the beginning ----------------------------------------------


def test_slices_are_the_whole(plain: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(plain)
    reader = TraceReader(path)
    found: list[Entry] = []
    shares = [reader.progress]
    while part := reader.slice(0.0):
        found += part
        shares.append(reader.progress)
    assert found == entries()
    assert shares == sorted(shares)
    assert reader.progress == 1.0
    assert reader.slice(1.0) == []


def test_what_waits_may_be_looked_at_while_the_rest_is_read(plain: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(plain)
    expected = [entry.value for entry in entries()]
    for _ in range(5):
        found, bad = load(path).entries, []

        def look(found: list[Entry] = found, bad: list[object] = bad) -> None:
            bad += [e.value for e, value in zip(found, expected, strict=True) if e.value != value]

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bad == []


def test_a_peek_tells_model_and_prompt(plain: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(plain)
    found = peek(path)
    assert (found.model, found.prompt, found.size, found.in_use) == (
        "pocket",
        "Once upon a time,",
        len(plain),
        False,
    )
    assert found.created.endswith("+00:00")


# ---- saving -----------------------------------------------------------------------------------


def test_saving_replaces_the_file_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    save_as(path, entries(), PROGRAM)
    before = path.read_bytes()

    def broken() -> Iterator[Entry]:
        yield from entries()
        raise TraceError("Enough.")

    with pytest.raises(TraceError, match="Enough"):
        save_as(path, broken(), PROGRAM)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.trace"]


def test_what_could_not_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.trace"
    with pytest.raises(TraceError, match="Failure can't be written to a trace: a text has more than 4194304"):
        save_as(path, [Entry(Failure("Step", "a" * 5 * MIB, ""))], PROGRAM)
    with pytest.raises(TraceError, match="Recalled can't be saved: its line is longer than the 32 MiB"):
        save_as(path, [Entry(Recalled((2**60,) * 2_000_000, 1.0))], PROGRAM)
    monkeypatch.setattr(trace_bounds, "LINES_LIMIT", 20)
    with pytest.raises(TraceError, match="The session is too long"):
        save_as(path, entries(), PROGRAM)
    assert not list(tmp_path.iterdir())


def test_saving_keeps_a_link_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.trace").touch()
    (tmp_path / "b").symlink_to(tmp_path / "a.trace")
    save_as(tmp_path / "b", entries(), PROGRAM)
    assert (tmp_path / "b").is_symlink()
    assert load(tmp_path / "a.trace").entries == entries()


def test_saving_where_it_can_not_be_says_so(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"There is no directory .*none. Create it"):
        save_as(tmp_path / "none" / "a.trace", entries(), PROGRAM)
    with pytest.raises(TraceError, match=r"is a directory. Give the name of a file"):
        save_as(tmp_path, entries(), PROGRAM)


def test_a_number_that_is_none_is_refused_when_it_is_written(tmp_path: Path) -> None:
    step = next(entry.value for entry in entries() if isinstance(entry.value, Step))
    bad = Failure("Step", "a", "b")
    save_as(tmp_path / "a.trace", [Entry(bad)], PROGRAM)
    object.__setattr__(step, "prob", float("nan"))
    with pytest.raises(TraceError, match="Step can't be written to a trace"):
        save_as(tmp_path / "a.trace", [Entry(step)], PROGRAM)
    assert load(tmp_path / "a.trace").entries == [Entry(bad)]


def test_traces_need_the_standard_library_alone(plain: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(plain)
    code = f"""
import sys
for name in ("mlx", "mlx_lm", "numpy", "transformers", "textual", "rich", "backports.zstd", "safetensors"):
    sys.modules[name] = None
from engine.trace import load, save_as
found = load({str(path)!r})
save_as({str(tmp_path / "b.trace.gz")!r}, found.entries, "test 1")
assert load({str(tmp_path / "b.trace.gz")!r}).entries == found.entries
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("chat", "pieces", "words"),
    [
        (True, ["<s>", "user\nTell", " me", "</s>", "\n", "<s>", "assistant\n"], "Tell me"),
        (True, ["<s>", "system\nBe kind.", "</s>", "<s>", "user\nHi", "</s>", "<s>", "model"], "Hi"),
        (True, ["<s>", "user", "</s>", "\n\nuser\nis a word", "</s>", "assistant", "</s>"], "is a word"),
        (True, ["<s>", "No role"], "No role"),
        (True, ["<s>", "</s>"], "<s></s>"),
        (False, ["<s>", "user\nas it is"], "<s>user\nas it is"),
    ],
)
def test_a_list_shows_what_was_said_without_the_chat_template(
    chat: bool, pieces: list[str], words: str
) -> None:
    tokens = tuple(
        PromptToken(number, number, 0, piece, piece.encode(), piece in ("<s>", "</s>"))
        for number, piece in enumerate(pieces)
    )
    assert user_message(PromptOpened("".join(pieces), chat, tokens, False)) == words
