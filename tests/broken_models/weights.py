"""Broken weights: safetensors whose headers lie, and files that are none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mlx.core as mx

from tests.broken_models.breaking import Change, Header, cut, file, gone, header, nested, put, safetensors

NAME = "model.safetensors"
EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"


def entry(name: str = NORM, **values: Any) -> Change:
    """Falsifies one tensor's entry."""
    return header(lambda entries: entries[name].update(values))


def tensors(edit: Any) -> Change:
    """Changes the tensors themselves, and writes a header that fits them."""

    def change(directory: Path) -> None:
        arrays = mx.load(str(directory / NAME))
        edit(arrays)
        mx.eval(arrays)
        (directory / NAME).unlink()
        mx.save_safetensors(str(directory / NAME), arrays)

    return change


def renamed(entries: Header) -> Header:
    return {f"x.{name}": value for name, value in entries.items()}


def sparse(directory: Path) -> None:
    put(directory, NAME, b"")
    with (directory / NAME).open("wb") as opened:
        opened.truncate(2**40)


def pipe(directory: Path) -> None:
    (directory / NAME).unlink()
    os.mkfifo(directory / NAME)


def to(target: str) -> Change:
    def change(directory: Path) -> None:
        (directory / NAME).unlink()
        (directory / NAME).symlink_to(target)

    return change


def folder(directory: Path) -> None:
    (directory / NAME).unlink()
    (directory / NAME).mkdir()


def two_pipes(directory: Path) -> None:
    os.mkfifo(directory / "model-00002-of-00002.safetensors")


def half_elsewhere(directory: Path) -> None:
    """An index that names files outside the directory, and no weights in it."""
    (directory / NAME).rename(directory / "weights.safetensors")
    index = {"weight_map": {EMBEDDING: "../../../../etc/passwd", NORM: "/dev/zero"}}
    put(directory, "model.safetensors.index.json", index)


WEIGHTS: dict[str, Change] = {
    "missing": gone(NAME),
    "empty": file(NAME, b""),
    "seven-bytes": file(NAME, b"\x01" * 7),
    "zeros": file(NAME, bytes(4096)),
    "text": file(NAME, "not a model\n" * 100),
    "pointer": file(NAME, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 900\n"),
    "cut-header": cut(NAME, 0.0001),
    "cut-data": cut(NAME, 0.7),
    "cut-at-the-end": cut(NAME, 0.999999),
    "sparse-1-tb": sparse,
    "pipe": pipe,
    "second-file-a-pipe": two_pipes,
    "to-dev-zero": to("/dev/zero"),
    "to-itself": to(NAME),
    "to-nothing": to("nothing"),
    "to-proc-mem": to("/proc/self/mem"),
    "a-directory": folder,
    "index-out-of-the-directory": half_elsewhere,
    "gguf": lambda directory: (directory / NAME).rename(directory / "model.gguf"),
    "pytorch": lambda directory: (directory / NAME).rename(directory / "pytorch_model.bin"),
    "header-length-huge": file(NAME, safetensors({}, b"", 2**63)),
    "header-length-1-gb": file(NAME, safetensors({}, b"", 10**9)),
    "header-length-negative": file(NAME, b"\xff" * 8 + b"{}"),
    "header-no-json": file(NAME, safetensors(b"{" * 500)),
    "header-nested": file(NAME, safetensors(nested(50_000).encode())),
    "header-nested-in-a-shape": header(lambda entries: entries[NORM].update(shape=json.loads(nested(900)))),
    "header-a-list": file(NAME, safetensors([1, 2])),
    "header-a-number": file(NAME, safetensors(7)),
    "header-null": file(NAME, safetensors(None)),
    "header-empty": file(NAME, safetensors({})),
    "header-invalid-utf8": file(NAME, safetensors(b'{"\xff\xfe": 1}')),
    "header-metadata-alone": file(NAME, safetensors({"__metadata__": {"format": "mlx"}})),
    "header-metadata-a-list": header(lambda entries: entries.update(__metadata__=[1])),
    "header-tensor-a-number": header(lambda entries: entries.update({NORM: 7})),
    "header-tensor-empty": header(lambda entries: entries.update({NORM: {}})),
    "names-other": header(renamed),
    "tensor-missing": header(lambda entries: entries.pop(NORM) and None),
    "embedding-missing": header(lambda entries: entries.pop(EMBEDDING) and None),
    "tensor-extra": header(lambda entries: entries.update({"model.extra.weight": entries[NORM]})),
    "tensor-of-a-third-layer": header(
        lambda entries: entries.update({"model.layers.2.mlp.up_proj.weight": entries[NORM]})
    ),
    "name-with-newline": header(lambda entries: entries.update({"model\nx\x1b[2J": entries[NORM]})),
    "name-empty": header(lambda entries: entries.update({"": entries[NORM]})),
    "dtype-unknown": entry(dtype="F7"),
    "dtype-number": entry(dtype=32),
    "dtype-missing": header(lambda entries: entries[NORM].pop("dtype") and None),
    "dtype-wider": entry(dtype="I64"),
    "dtype-narrower": entry(dtype="F16"),
    "dtype-integers": entry(dtype="I32"),
    "shape-text": entry(shape="64"),
    "shape-number": entry(shape=64),
    "shape-null": entry(shape=None),
    "shape-negative": entry(shape=[-64]),
    "shape-two-negatives": entry(shape=[-8, -8]),
    "shape-float": entry(shape=[64.0]),
    "shape-of-texts": entry(shape=["64"]),
    "shape-huge": entry(shape=[2**62]),
    "shape-overflowing": entry(shape=[2**32, 2**32, 64]),
    "shape-1e30": entry(shape=[10**30]),
    "shape-zero": entry(shape=[0]),
    "shape-other": entry(shape=[8, 8]),
    "shape-missing": header(lambda entries: entries[NORM].pop("shape") and None),
    "shape-1000-deep": entry(shape=[1] * 1000 + [64]),
    "embedding-transposed": header(lambda entries: entries[EMBEDDING]["shape"].reverse()),
    "offsets-beyond": entry(data_offsets=[10**9, 10**9 + 256]),
    "offsets-1e30": entry(data_offsets=[10**30, 10**30 + 256]),
    "offsets-negative": entry(data_offsets=[-256, 0]),
    "offsets-backwards": entry(data_offsets=[512, 256]),
    "offsets-short": entry(data_offsets=[0, 4]),
    "offsets-one": entry(data_offsets=[0]),
    "offsets-text": entry(data_offsets="0"),
    "offsets-floats": entry(data_offsets=[0.0, 256.0]),
    "offsets-null": entry(data_offsets=None),
    "offsets-missing": header(lambda entries: entries[NORM].pop("data_offsets") and None),
    "rows-fewer": tensors(lambda arrays: arrays.update({EMBEDDING: arrays[EMBEDDING][:4095]})),
    "a-layer-missing": tensors(
        lambda arrays: [arrays.pop(name) for name in list(arrays) if name.startswith("model.layers.1.")]
    ),
    "scalars": tensors(lambda arrays: arrays.update({NORM: mx.array(1.0)})),
    "packed-without-scales": tensors(
        lambda arrays: arrays.update({EMBEDDING: mx.zeros((4096, 8), dtype=mx.uint32)})
    ),
    "scales-without-quantization": tensors(
        lambda arrays: arrays.update({"model.embed_tokens.scales": mx.zeros((4096, 2))})
    ),
    "integers-in-place-of-floats": tensors(
        lambda arrays: arrays.update({NORM: arrays[NORM].astype(mx.int32)})
    ),
}
