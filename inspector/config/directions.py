"""Files of steering directions, and of the pairs of texts that they are made from.

A direction is a safetensors file, which other programs can read: one tensor, `direction`, with one axis, and metadata.
Files of other programs are not trusted: no more is read than a direction can have.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct, json

from engine.errors import EngineError, PathError, PromptError
from engine.files import message_and_hint, read_regular, replacing, shorter, typed
from engine.protocol import LONGEST_NAME, Direction, Floats, Intervention
from inspector.texts import read_text_file

END = ".safetensors"
_HEADER, _FILE = 2**16, 2**23
"""Maximum bytes of a header and of a file: a million numbers."""
_TENSOR = "direction"
_HINT = "Give one that this program saved, or a safetensors file with one tensor `direction` of one axis."
_ASKED = r"(?s)(?P<file>.+?)(?::(?P<strength>-?\d*\.?\d+)(?:@[lL]?(?P<layer>\d{1,5}))?)?"


# ---- files --------------------------------------------------------------------------------------


class _Tensor(Struct, frozen=True):
    """Type, shape and offsets of the numbers in a file."""

    dtype: Literal["F32", "F16", "BF16"]
    shape: tuple[Annotated[int, Meta(gt=0)]]
    data_offsets: tuple[int, int]


class _Metadata(Struct, frozen=True):
    """The description of the numbers; empty in files of other programs."""

    format: str = ""
    name: str | None = None
    layer: Annotated[str, Meta(pattern=r"^[1-9]\d{0,4}\Z")] = "1"
    """Number of the layer, from 1."""
    model: str = ""
    fingerprint: str = ""


def read_direction(path: Path) -> Direction:
    """Read the direction in a file.

    Args:
        path: The path, expanded by `typed`.

    Raises:
        PathError: The file can't be read, or contains no direction.
    """
    try:
        content = read_regular(path, _FILE)
    except OSError as error:
        raise PathError(*message_and_hint(path, error)) from error
    try:
        return _direction(content, path.stem)
    except (ValueError, struct.error, RecursionError) as error:
        raise PathError(f"{shorter(path)} is not a direction: {error}.", _HINT) from None


def _direction(content: bytes, stem: str) -> Direction:
    """Parse the bytes of a file.

    Raises:
        ValueError: They aren't a direction.
        struct.error: They are too short.
    """
    (length,) = struct.unpack_from("<Q", content)
    if not 2 <= length <= min(_HEADER, len(content) - 8):
        raise ValueError("it doesn't begin as a safetensors file")
    header, data = json.decode(content[8 : 8 + length], type=dict[str, Raw]), content[8 + length :]
    said = json.decode(header.pop("__metadata__", b"null"), type=_Metadata | None)  # MLX writes null for none
    if len(header) != 1:
        raise ValueError(f"it has {len(header)} tensors")
    tensor, metadata = json.decode(*header.values(), type=_Tensor), said or _Metadata()
    size = tensor.shape[0] * (4 if tensor.dtype == "F32" else 2)
    if tensor.data_offsets != (0, len(data)) or len(data) != size:
        raise ValueError("its header and its length don't agree")
    if tensor.dtype == "BF16":  # the upper half of a float32
        data = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
    return Direction(
        name=(stem if metadata.name is None else metadata.name)[:LONGEST_NAME],
        layer=int(metadata.layer) - 1,
        vector=Floats(tensor.shape, data, 16 if tensor.dtype == "F16" else 32),
        model=metadata.model[:200],
        fingerprint=metadata.fingerprint[:200],
    )


def write_direction(path: Path, direction: Direction, force: bool = False) -> None:
    """Save a direction.

    Args:
        path: The path, expanded by `typed`.
        direction: The direction.
        force: Whether an existing file may be replaced.

    Raises:
        PathError: The file can't be written.
    """
    vector, packed = direction.vector, direction.vector.packed
    of = _Metadata(
        "mlx-inspector direction",
        direction.name,
        str(direction.layer + 1),
        direction.model,
        direction.fingerprint,
    )
    tensor = {"dtype": f"F{vector.bits}", "shape": list(vector.shape), "data_offsets": [0, len(packed)]}
    header = json.encode({"__metadata__": of, _TENSOR: tensor})
    header += b" " * (-len(header) % 8)
    with replacing(path, force) as file:
        file.write(struct.pack("<Q", len(header)) + header + packed)


# ---- the value of a flag -------------------------------------------------------------------------


class Steering(Struct, frozen=True):
    """A direction from a file, with the strength and the layer to add it at."""

    direction: Direction
    strength: float
    layer: int

    @property
    def intervention(self) -> Intervention:
        """The intervention for the engine."""
        return Intervention("direction", self.layer, None, self.strength, self.direction)


def steering(text: str) -> Steering:
    """Read `FILE[:STRENGTH[@LAYER]]`; the strength is 1 and the layer the file's by default.

    Raises:
        PathError: The file can't be read, or contains no direction.
        EngineError: The layer is 0.
    """
    found = re.fullmatch(_ASKED, text)
    if found is None:
        raise PathError("No direction file was named.", "Give FILE, FILE:2 or FILE:2@L4.")
    direction = read_direction(typed(found["file"]))
    layer = direction.layer if found["layer"] is None else int(found["layer"]) - 1
    if layer < 0:
        raise EngineError("There is no L0: layers count from 1.", "Give FILE:STRENGTH@LAYER, as in x:2@4.")
    return Steering(direction, float(found["strength"] or 1), layer)


# ---- pairs of texts -----------------------------------------------------------------------------


def read_pairs(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read a file with a pair of texts on each line, separated by a tab or `|`.

    Args:
        name: The path as typed.

    Returns:
        The texts to steer toward, and the texts to steer away from.

    Raises:
        PromptError: The file can't be read, isn't a text, or has a line that isn't a pair.
    """
    content = read_text_file(name, "file of pairs", "Check its name.", "Give a text file.")
    path, toward, away = shorter(name), [], []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        pair = [part.strip() for part in line.split("\t" if "\t" in line else "|")]
        if len(pair) != 2 or not all(pair):
            raise PromptError(
                f"Line {number} of {path} is not a pair of texts.", "Write two, with a tab or | between them."
            )
        toward.append(pair[0])
        away.append(pair[1])
    if not toward:
        raise PromptError(
            f"{path} has no pairs.", "Write two texts on each line, with a tab or | between them."
        )
    return tuple(toward), tuple(away)


def name_of(toward: tuple[str, ...], away: tuple[str, ...]) -> str:
    """A name for a direction: the first two words in which the texts of a pair differ."""
    for one, other in zip(toward, away, strict=False):
        words = (re.findall(r"\w+", side) for side in (one, other))
        for first, second in zip(*words, strict=False):
            if first != second:
                return f"{first}-{second}"[:LONGEST_NAME]
    return "direction"
