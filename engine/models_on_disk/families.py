"""The families that mlx_lm knows, read off its sources: importing it takes a second, and MLX with it."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

from engine.files import MIB, read_regular

_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_MODEL = re.compile(r"^class Model\b|^from \.\w+ import .*\bModel\b", re.MULTILINE)
_IMPORTED = re.compile(r"^from \. import (\w+)|^from \.(\w+) import", re.MULTILINE)
_SHARED = frozenset({"activations", "base", "cache", "pipeline", "rope_utils", "ssm", "switch_layers"})
"""What families share: it says nothing of one of them."""


@cache
def _package() -> Path | None:
    """The directory of mlx_lm, None where it isn't installed."""
    found = importlib.util.find_spec("mlx_lm")
    places = found.submodule_search_locations if found else None
    return Path(next(iter(places))) if places else None


@cache
def _remapped() -> dict[str, str]:
    """Families that mlx_lm loads as another one, `MODEL_REMAPPING` of its utils; empty where it can't be read."""
    try:
        package = _package()
        tree = ast.parse(read_regular(package / "utils.py", MIB)) if package else ast.Module([], [])
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODEL_REMAPPING":
                return dict(ast.literal_eval(node.value))
    except (OSError, ValueError, SyntaxError, TypeError):
        pass
    return {}


@cache
def source(family: str) -> str | None:
    """The source of a family in mlx_lm, with that of the families it is built of.

    Args:
        family: `model_type` of a config.

    Returns:
        None where mlx_lm has no such family, or isn't installed.
    """
    name, package = _remapped().get(family, family), _package()
    if package is None or not _NAME.fullmatch(name):
        return None
    text = _text(package / "models" / f"{name}.py")
    if not _MODEL.search(text):
        return None
    parts = {one or other for one, other in _IMPORTED.findall(text)} - _SHARED
    return "\n".join([text, *(_text(package / "models" / f"{part}.py") for part in sorted(parts))])


def known(family: str) -> bool | None:
    """Whether mlx_lm has a family, None where it isn't installed."""
    return source(family) is not None if _package() else None


def _text(path: Path) -> str:
    try:
        return read_regular(path, MIB).decode(errors="replace")
    except OSError:
        return ""
