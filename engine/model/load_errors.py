"""Why a model can't be loaded or run, in words: by what mlx_lm and MLX raise."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx

from engine.errors import LoadError
from engine.libraries import unsupported
from engine.model import directory

_ON_A_MAC = "It needs an Apple GPU: run it on a Mac, or use another model."
_LIMITS = {
    "only supports float32": "Load it with --dtype float32.",
    "only support float32": "Load it with --dtype float32.",
    "Metal": _ON_A_MAC,
    "metal": _ON_A_MAC,
}
"""What a backend says that has no way to compute something, and what to do. It says so in a RuntimeError, which no
wrong config.json leads to: shapes that don't fit are a ValueError."""


def explain(error: Exception, path: Path) -> LoadError:
    """Put what mlx_lm raised into words; the cases are those observed with broken files."""
    text = first_line(error)
    if "custom module" in text:
        return LoadError(
            f"{path} needs code of its own to run.", "Read it, and if you trust it use --trust-remote-code."
        )
    if "Model type" in text or "has no attribute 'Model" in text:
        family = directory.read_object(path / "config.json").get("model_type")
        return LoadError(
            f"mlx_lm does not know the model type {family}.", "Use another model, or a newer mlx-lm."
        )
    if isinstance(error, RuntimeError) and ("safetensors" in text or "read" in text.lower()):
        return LoadError(f"The weights in {path} are damaged or cut short ({text}).", "Download them again.")
    if (other := unsupported(error)) is not None:
        return LoadError(*other)
    if isinstance(error, TypeError | KeyError | AttributeError):
        return LoadError(
            f"{path}/config.json lacks something its model type needs, or has it in another form ({text}).",
            "Download it again.",
        )
    if isinstance(error, ValueError):
        return LoadError(f"The weights in {path} don't fit its config.json ({text}).", "Download both again.")
    return LoadError(f"The model in {path} can't be loaded ({text}).", "Download it again.")


def cannot_run(error: Exception, path: Path, dtype: str) -> LoadError:
    """Why a model that was built can't run: this machine, the type that it was to compute in, or its files.

    Args:
        error: What the first forward raised.
        path: The model's folder.
        dtype: The setting.
    """
    why = first_line(error)
    if (other := unsupported(error)) is not None:
        return LoadError(*other)
    if isinstance(error, RuntimeError):
        hint = next((hint for part, hint in _LIMITS.items() if part in why), "Use another model or machine.")
        backend = "CPU" if mx.default_device() == mx.Device(mx.cpu) else "GPU"
        return LoadError(f"The model in {path} can't run on the {backend} here ({why}).", hint)
    if dtype not in ("auto", "file"):
        return LoadError(f"The model in {path} can't run in {dtype} here ({why}).", "Leave --dtype out.")
    return LoadError(
        f"The model in {path} can't run: its config.json, or the adapter's, may be wrong ({why}).",
        "Download it again.",
    )


def bad_tokenizer(path: Path, error: Exception) -> LoadError:
    """That a tokenizer's files say something else than it needs, or that the library is another one."""
    if (other := unsupported(error)) is not None:
        return LoadError(*other)
    return LoadError(
        f"The tokenizer in {path} can't be read ({first_line(error)}).", "Download its files again."
    )


def first_line(error: Exception) -> str:
    """The first line of an error's text, 200 characters at most; its class where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(" :.") if lines else type(error).__name__
