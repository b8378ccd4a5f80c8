"""Prints the worst error of each check for each family: `python -m tests.engine.inside.report [FAMILY ...]`.

Once in float32, as its table; then in bfloat16 and with quantized KV, as the worst of all families that can have it.
With `--views` before the families it prints how many views are shown and refused instead: here, and on machines that
compute otherwise, emulated.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import mlx.core as mx

from engine.errors import EngineError
from engine.inside.capture import QUANTIZED
from engine.patches.imports import import_mlx_lm
from tests.emulations import MACHINES
from tests.engine.inside.looking import Look, loaded, look, opened
from tests.engine.inside.views import VIEWS, View, views_of
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


# ---- which views are shown ---------------------------------------------------------------------

HERE = "here"


def main_of_views(families: Sequence[str]) -> None:
    """Print how many families have each view shown and refused on each machine, and what is otherwise than here.

    Args:
        families: Those to look at.
    """
    import_mlx_lm()
    shown: dict[str, Counter[str]] = {}
    said: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        here = _views_on(Path(folder), families, nullcontext, mx.float32)
        shown[HERE] = _shown(here)
        said[HERE] = list(_refused(here))
        for name, (machine, dtype) in MACHINES.items():
            there = _views_on(Path(folder), families, machine, dtype)
            shown[name], said[name] = _shown(there), list(_otherwise(here, there))
    print(f"{len(here)} of {len(families)} families run here; shown / refused\n")
    print("| view | " + " | ".join(shown) + " |\n|---|" + "---|" * len(shown))
    for view in (*VIEWS, "all"):
        counts = (f"{counted[view]} / {counted[f'not {view}']}" for counted in shown.values())
        print(f"| {view} | " + " | ".join(counts) + " |")
    for name, lines in said.items():
        what = "refused here" if name == HERE else f"{name}, otherwise than here"
        print(f"\n{what}:" + "".join(f"\n- {line}" for line in lines or ["nothing"]))


def _views_on(
    directory: Path,
    families: Sequence[str],
    machine: Callable[[], AbstractContextManager[None]],
    dtype: mx.Dtype,
) -> dict[str, dict[str, View]]:
    """The views of each family that runs."""
    found: dict[str, dict[str, View]] = {}
    with machine():
        for family in families:
            try:
                session = opened(loaded(directory, family, dtype))
            except EngineError:
                continue
            found[family] = views_of(session)
    return found


def _shown(found: dict[str, dict[str, View]]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for views in found.values():
        for name, view in views.items():
            counted.update([f"not {name}", "not all"] if view.refused else [name, "all"])
    return counted


def _refused(found: dict[str, dict[str, View]]) -> Iterator[str]:
    for family, views in found.items():
        yield from (f"{family}, {name}: {view.refused}" for name, view in views.items() if view.refused)


def _otherwise(here: dict[str, dict[str, View]], there: dict[str, dict[str, View]]) -> Iterator[str]:
    for family, views in there.items():
        for name, view in views.items():
            own = here[family][name]
            if bool(view.refused) != bool(own.refused):
                yield f"{family}, {name}: " + (view.refused or f"shown; here {own.refused}")
            elif view.parts != own.parts:
                less, more = sorted(own.parts - view.parts), sorted(view.parts - own.parts)
                yield f"{family}, {name}: without {', '.join(less) or 'nothing'}; with {', '.join(more) or 'nothing'}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--views"]:
        main_of_views(sys.argv[2:] or list(FAMILIES))
    else:
        main(sys.argv[1:] or list(FAMILIES))
