"""Whether MLX, mlx_lm and Textual are such as the program uses them: asked once something has failed in them.

What the program uses of them is read from its own source, so that no list of it can be out of date: half a second, and
nothing at the start.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

LIBRARIES = {"mlx": "mlx", "mlx_lm": "mlx-lm", "textual": "textual"}
"""By the package that is imported: the name under which it is installed."""
_SUSPECT = (ImportError, AttributeError, TypeError)
"""What a name raises that is gone or means something else."""


def unsupported(error: BaseException) -> tuple[str, str] | None:
    """Why a failure is that of another version of a library, and what to do; None where it isn't, or can't be said.

    Args:
        error: What was raised; its causes are looked at, too.
    """
    while not isinstance(error, _SUSPECT):
        if error.__cause__ is None:
            return None
        error = error.__cause__
    for package, name in LIBRARIES.items():
        named = isinstance(error, ImportError) and (error.name or "").partition(".")[0] == package
        if not (named or package in sys.modules) or (wanted := _wanted(name)) is None:
            continue
        version, requirement, fits = wanted
        gone = missing(package)
        if gone or not fits:
            why = f": {gone[0]} is missing in it" if gone else f" ({error})"
            return (
                f"{name} {version} is not supported{why}.",
                f"Install {requirement}, or a newer mlx-inspector.",
            )
    return None


def _wanted(name: str) -> tuple[str, str, bool] | None:
    """The version of a library that is installed, the requirement of it, and whether the one fits the other."""
    try:
        from packaging.requirements import Requirement

        version = metadata.version(name)
        requirements = map(Requirement, metadata.requires("mlx-inspector") or ())
    except (ImportError, metadata.PackageNotFoundError):
        return None
    for each in requirements:
        if each.name == name and (each.marker is None or each.marker.evaluate({"extra": ""})):
            return version, f"{name}{each.specifier}", each.specifier.contains(version, prereleases=True)
    return None


@cache
def missing(package: str) -> tuple[str, ...]:
    """The names that the program uses of a library and that it doesn't have."""
    sources = [sys.modules[name].__file__ for name in ("engine", "inspector") if name in sys.modules]
    folders = [Path(source).parent for source in sources if source]
    used = {name for folder in folders for path in folder.rglob("*.py") for name in _used(path, package)}
    return tuple(sorted(name for name in used if not _exists(name)))


def _used(path: Path, package: str) -> Iterator[str]:
    """The dotted names of a library that a file of ours uses, as far as it names them through a module."""
    text = path.read_text(encoding="utf-8")
    if f"import {package}" not in text and f"from {package}" not in text:
        return
    nodes = list(ast.walk(ast.parse(text)))
    homes: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names = {each.asname or each.name.partition(".")[0]: each for each in node.names}
            homes |= {local: each.name if each.asname else local for local, each in names.items()}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            homes |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    homes = {local: home for local, home in homes.items() if home.partition(".")[0] == package}
    for node in nodes:  # a name that also means something else says nothing
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            homes.pop(node.id, None)
        elif isinstance(node, ast.arg):
            homes.pop(node.arg, None)
    yield from homes.values()
    for node in nodes:
        if isinstance(node, ast.Attribute) and (dotted := _dotted(node)):
            local, _, rest = dotted.partition(".")
            if local in homes:
                yield f"{homes[local]}.{rest}"


def _dotted(node: ast.expr) -> str:
    """A chain of attributes of a name, empty where it begins elsewhere."""
    if isinstance(node, ast.Name):
        return node.id
    before = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if before and isinstance(node, ast.Attribute) else ""


def _exists(name: str) -> bool:
    """Whether a name can be reached: through modules alone, since what an object has is known once it runs."""
    package, *rest = name.split(".")
    found: object = importlib.import_module(package)
    for place, part in enumerate(rest, 2):
        if not isinstance(found, ModuleType):
            return True
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(name.split(".")[:place]))
            except ModuleNotFoundError as error:
                return error.name is None or error.name.partition(".")[0] != package
            except Exception:  # it is there, and something else keeps it from being imported
                return True
        found = getattr(found, part, None)
    return True
