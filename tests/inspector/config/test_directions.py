"""Directions in files: written and read, hostile and cut ones refused; pairs of texts; what a flag asks for."""

from __future__ import annotations

import json
import os
import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import EngineError, PathError, PromptError
from engine.protocol import Direction, floats
from inspector.config.directions import name_of, read_direction, read_pairs, steering, write_direction

MADE = Direction("happy-sad", 3, floats([0.5, -1.25, 3.0], (3,)), "pocket", "b2:123")


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    packed = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(packed) if length is None else length) + packed + data


def tensor(count: int = 3, kind: str = "F32", size: int = 12) -> dict[str, Any]:
    return {"dtype": kind, "shape": [count], "data_offsets": [0, size]}


def test_what_was_written_is_read_here_and_by_mlx(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_direction(path, MADE)
    assert read_direction(path) == MADE
    arrays, metadata = mx.load(str(path), return_metadata=True)  # type: ignore[misc]
    assert np.array(arrays["direction"]).tolist() == [0.5, -1.25, 3.0]  # type: ignore[call-overload]
    assert metadata["layer"] == "4"  # type: ignore[index]
    with pytest.raises(PathError, match="already exists"):
        write_direction(path, MADE)
    write_direction(path, Direction("other", 0, floats([1.0], (1,))), force=True)
    assert read_direction(path).name == "other"


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_what_another_program_wrote_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "theirs.safetensors"
    mx.save_safetensors(str(path), {"vector": mx.array([0.5, -1.25, 3.0]).astype(getattr(mx, kind))})
    found = read_direction(path)
    assert (found.name, found.layer, found.fingerprint) == ("theirs", 0, "")
    assert found.vector.fits
    assert list(found.vector.row()) == [0.5, -1.25, 3.0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 7,
        file_of(b"{}"),
        file_of({"direction": tensor()}, bytes(11)),
        file_of({"direction": tensor()}, bytes(13)),
        file_of({"direction": tensor()}, bytes(12), length=2**63),
        file_of({"direction": tensor(2**40)}, bytes(12)),
        file_of({"direction": tensor(-3)}, bytes(12)),
        file_of({"direction": tensor(0, size=0)}),
        file_of({"direction": {**tensor(), "shape": [True]}}, bytes(12)),
        file_of({"direction": {**tensor(), "shape": [1, 3]}}, bytes(12)),
        file_of({"direction": tensor(3, "I64", 24)}, bytes(24)),
        file_of({"direction": tensor(3, ["F32"])}, bytes(12)),  # type: ignore[arg-type]
        file_of({"a": tensor(), "b": tensor()}, bytes(12)),
        file_of({"direction": 7}, bytes(12)),
        file_of({"direction": tensor(), "__metadata__": 7}, bytes(12)),
        file_of({"direction": tensor(), "__metadata__": {"layer": "0"}}, bytes(12)),
        file_of({"direction": tensor(), "__metadata__": {"layer": "9" * 5000}}, bytes(12)),
        file_of(b'{"direction": NaN}', bytes(12)),
        file_of(b"[" * 60000, bytes(12)),
        file_of(b'{"a": 1, "a": 2}', bytes(12)),
        file_of(b"\xff\xfe", bytes(12)),
        file_of(b"[1]", bytes(12)),
    ],
)
def test_a_file_that_lies_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(PathError, match="is not a direction") as raised:
        read_direction(path)
    assert "\n" not in str(raised.value)


def test_any_damage_is_refused_or_read_as_a_vector_that_fits(tmp_path: Path) -> None:
    path, chance = tmp_path / "x.safetensors", random.Random(5)
    write_direction(path, MADE)
    whole = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(bytes(damaged[: chance.choice([len(damaged), chance.randrange(len(damaged))])]))
        with suppress(PathError):
            assert read_direction(path).vector.fits


def test_a_file_that_is_none_or_too_large_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(2**24)
    refused = {
        tmp_path: "directory",
        tmp_path / "pipe": "pipe",
        large: "more than",
        tmp_path / "no": "No such",
    }
    for path, words in refused.items():
        with pytest.raises(PathError, match=words):
            read_direction(path)


@pytest.mark.parametrize(
    ("more", "strength", "layer"),
    [("", 1.0, 3), (":2", 2.0, 3), (":-0.5", -0.5, 3), (":.5@2", 0.5, 1), (":2@L7", 2.0, 6)],
)
def test_a_flag_names_a_file_a_strength_and_a_layer(
    tmp_path: Path, more: str, strength: float, layer: int
) -> None:
    path = tmp_path / "x.safetensors"
    write_direction(path, MADE)
    found = steering(f"{path}{more}")
    assert (found.direction, found.strength, found.layer) == (MADE, strength, layer)
    assert found.intervention.label == f"L{layer + 1} +happy-sad x{strength:g} #{MADE.digest}"


def test_a_flag_that_names_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_direction(path, MADE)
    with pytest.raises(EngineError, match="There is no L0"):
        steering(f"{path}:1@0")
    for text in ("", ":2", f"{path}:two", f"{path}:2@", "no\0name"):
        with pytest.raises(EngineError):
            steering(text)


def test_pairs_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text("I am happy | I am sad\n\nso glad\tso | upset\n", "utf-8")
    assert read_pairs(str(path)) == (("I am happy", "so glad"), ("I am sad", "so | upset"))
    refused = {
        "": "has no pairs",
        "one text\n": "Line 1 of",
        "a | b\nc |\n": "Line 2 of",
        "a|b|c": "Line 1 of",
    }
    for text, words in refused.items():
        path.write_text(text, "utf-8")
        with pytest.raises(PromptError, match=words):
            read_pairs(str(path))
    path.write_bytes(b"\xff | \xfe")
    with pytest.raises(PromptError):
        read_pairs(str(path))


def test_a_name_is_made_of_the_first_words_that_differ() -> None:
    assert name_of(("Lily was happy. She",), ("Lily was sad. She",)) == "happy-sad"
    assert name_of(("the same",), ("the same",)) == "direction"
    assert name_of(("a" * 99,), ("b",)) == "a" * 40
    assert name_of((), ()) == "direction"
