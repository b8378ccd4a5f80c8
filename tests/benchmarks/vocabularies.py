"""Models for measuring what each token costs, and what every benchmark is asked by its command line.

The bundled model has 4,096 ids, which numpy reads in no time; published models have 150,000 to 260,000. `4k`, `152k`
and `256k` are two random layers with so many ids, `600m` and `600m-4bit` have the shape of Qwen3-0.6B with random
weights, in bfloat16 and in 4 bits. Each is written when it is first asked for, once for all benchmarks of one command.
"""

from __future__ import annotations

import argparse
import io
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.token_texts import alphabet
from tests import synthetic

SIZES = {"4k": 4_096, "152k": 152_000, "256k": 256_000}
VOCABULARIES = tuple(SIZES)
LARGE = ("600m", "600m-4bit")
SMALL = ("pocket", *VOCABULARIES)
MODELS = (*SMALL, *LARGE)
"""What each benchmark of a token's way measures."""

Value = float | str | tuple[float, float]
"""A number, the ends of a range, or a word."""
Figures = dict[str, Value]
"""What a benchmark found, by name: that of the model first, where there are several."""


def _layers(size: int, hidden: int) -> Mapping[str, Any]:
    """Two layers and so many ids."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return {**synthetic.wide(size), **heads, "hidden_size": hidden, "intermediate_size": 2 * hidden}


MADE: Mapping[str, tuple[Mapping[str, Any], dict[str, Any]]] = {
    **{name: (_layers(size, 64), {}) for name, size in SIZES.items()},
    **{f"{name}-h512": (_layers(size, 512), {}) for name, size in SIZES.items()},
    "600m": (synthetic.QWEN3_600M, {"dtype": mx.bfloat16}),
    "600m-4bit": (synthetic.QWEN3_600M, {"dtype": mx.bfloat16, "quantize": 4, "group_size": 64}),
    "bench-100m": (synthetic.LLAMA_100M, {"dtype": mx.bfloat16}),
    "bench-152k": (synthetic.wide(152_000), {"dtype": mx.bfloat16}),
    "bench-256k": (synthetic.wide(256_000), {"dtype": mx.bfloat16}),
    "bench-100m-float32": (synthetic.LLAMA_100M, {}),
}
"""Shapes of what is made, and how they are written."""


def write(directory: Path, name: str) -> None:
    """Write one of `MADE`, each of its ids with a text."""
    shape, options = MADE[name]
    synthetic.write(directory, shape, **options)
    mx.clear_cache()
    if not name.startswith("bench-"):
        tokenizer(shape["vocab_size"]).save(str(directory / "tokenizer.json"))
        (directory / "tokenizer_config.json").write_text(
            '{"tokenizer_class": "PreTrainedTokenizerFast"}', "utf-8"
        )


def tokenizer(size: int) -> Tokenizer:
    """A byte-level tokenizer of random words, most of them with a space before."""
    chance = random.Random(1)
    letter = {byte: char for char, byte in alphabet().items()}
    known = {char: place for place, char in enumerate(letter.values())}
    while len(known) < size:
        word = "".join(chance.choice("eeetaoinshrdlu") for _ in range(chance.randint(2, 8)))
        word = word.title() if chance.random() < 0.2 else word
        word += "狐" if chance.random() < 0.05 else ""
        spaced = " " + word if chance.random() < 0.6 else word
        known.setdefault("".join(letter[byte] for byte in spaced.encode()), len(known))
    made = Tokenizer(models.BPE(vocab=known, merges=[]))
    made.decoder, made.pre_tokenizer = decoders.ByteLevel(), pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made


# ---- what is asked ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What a benchmark is to measure."""

    directory: Path
    """Where models are made."""
    models: tuple[str, ...] = ()
    """Empty for the benchmark's own."""
    count: int | None = None
    """Of rounds, or of what else it counts; None for its own."""
    beside: tuple[Path, ...] = ()
    """Other checkouts of the program."""

    def each(self, *usual: str) -> Iterator[tuple[str, str]]:
        """The name of each model and where it is; `usual` where none was chosen."""
        for name in self.models or usual:
            yield name, self.path(name)

    def path(self, name: str) -> str:
        """Where one of `MADE` is, which is written before; another name is a model's own."""
        directory = self.directory / name
        if name in MADE and not directory.exists():
            write(directory, name)
        return str(directory) if name in MADE else name

    def old(self) -> Figures:
        """Which version the last of the other checkouts is of, if there is one."""
        ask = ("git", "rev-parse", "--short", "HEAD")
        if not self.beside:
            return {}
        return {"old": f"version {subprocess.check_output(ask, text=True, cwd=self.beside[-1]).strip()}"}

    def times(self, usual: int) -> int:
        """How often."""
        return usual if self.count is None else self.count


def parser(doc: str) -> argparse.ArgumentParser:
    """What every benchmark can be asked."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--models", nargs="+", default=(), metavar="MODEL", help=f"pocket, {', '.join(MADE)}, or a directory"
    )
    made.add_argument("--count", type=int, metavar="N", help="rounds, or what else it counts")
    made.add_argument(
        "--beside", nargs="+", default=(), type=Path, metavar="CHECKOUT",
        help="other versions of the program, measured in turn with this one: `start` and `dialogs`",
    )  # fmt: skip
    return made


def asked(args: argparse.Namespace, directory: str) -> Asked:
    """What was given on the command line."""
    beside = tuple(checkout.resolve() for checkout in args.beside)
    return Asked(Path(directory), tuple(args.models), args.count, beside)


def print_lines_at_once() -> None:
    """Print as it goes, also where the output is no terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def main_of(name: str, what: Asked) -> Figures:
    """Run one benchmark by its name: what a process of its own does."""
    print_lines_at_once()
    figures: Figures = import_module(f"tests.benchmarks.{name}").main(what)
    return figures


def by_command(main: Callable[[Asked], Figures], doc: str | None) -> None:
    """Run one benchmark with what the command line asks; it prints what it finds."""
    print_lines_at_once()
    args = parser(doc or "").parse_args()
    with tempfile.TemporaryDirectory() as directory:
        main(asked(args, directory))
