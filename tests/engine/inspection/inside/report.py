"""Prints the worst error of each check for each family: `python -m tests.engine.inspection.inside.report [FAMILY ...]`.

Once in float32, as its table; then in bfloat16 and with quantized KV, as the worst of all families that can have it.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import mlx.core as mx

from engine.errors import EngineError
from engine.inspection.inside.capture import QUANTIZED
from engine.libraries import import_mlx_lm
from tests.engine.inspection.inside.looking import Look, loaded, look, opened
from tests.families import FAMILIES

CHECKS = ("forward", "session", "attention", "rows", "lens")


def main(families: Sequence[str]) -> None:
    """Print the tables.

    Args:
        families: Those to look at.
    """
    import_mlx_lm()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        print(
            "| family | "
            + " | ".join(CHECKS)
            + " | whole text | layers |\n|---|"
            + "---|" * (len(CHECKS) + 2)
        )
        for family in families:
            print(f"| {family} | {_row(directory, family)} |", flush=True)
        variants = [("bfloat16", {"dtype": mx.bfloat16})]
        variants += [(f"KV of {bits} bits", {"kv_bits": bits, "kv_group_size": 32, "quantized_kv_start": 0})
                     for bits in (8, 4)]  # fmt: skip
        for name, settings in variants:
            print(f"\n{name}: " + "; ".join(_worst(directory, families, settings)))


def _row(directory: Path, family: str) -> str:
    try:
        seen = look(opened(loaded(directory, family)))
    except EngineError as error:
        return f"{error} |" + " |" * (len(CHECKS) + 1)
    numbers = [_said(seen, name) for name in CHECKS]
    layers = "; ".join(seen.attention.missing) or f"all {seen.attention.depth}"
    return " | ".join([*numbers, f"{seen.whole:.1e}", layers])


def _said(seen: Look, name: str) -> str:
    check = seen.checks.get(name)
    if check is None:
        return "-"
    return f"{check.error:.1e}" if check.passed else f"**{check.error:.1e}** ({check.where})"


def _worst(directory: Path, families: Sequence[str], settings: dict[str, object]) -> Iterator[str]:
    """The worst of each check over all families that can have these settings."""
    worst: dict[str, tuple[float, str]] = defaultdict(lambda: (0.0, ""))
    able, failed = 0, []
    for family in families:
        try:
            seen = look(opened(loaded(directory, family, **settings)))  # type: ignore[arg-type]
        except EngineError:
            continue
        if "kv_bits" in settings and seen.checks["lens"].bound < QUANTIZED:
            continue
        able += 1
        for name, check in seen.checks.items():
            if check.passed:
                worst[name] = max(worst[name], (check.error, family))
            else:
                failed.append(f"{family} {name} {check.error:.1e} of {check.bound:.0e}")
    yield f"{able} of {len(families)} families can"
    yield from (f"{name} {error:.1e} ({family})" for name, (error, family) in worst.items())
    yield f"failed: {', '.join(failed) or 'none'}"


if __name__ == "__main__":
    main(sys.argv[1:] or list(FAMILIES))
