"""mlx_lm without what it imports and the program does not need."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any, ClassVar

# ---- mlx_lm without transformers and huggingface_hub -------------------------------------------

# mlx_lm's package imports both, which takes three quarters of a start (measured: 2.2 s of 2.6 s; without them 0.6 s),
# and neither is needed for a model that lies in a directory and whose tokenizer is a plain `tokenizer.json`. While
# mlx_lm is imported, placeholders stand in their place: five names, four of them classes. What needs the real ones gets
# them: the first use of a placeholder fills them in, in every module of mlx_lm that has one. Nothing is changed where
# either was imported before, and both are imported as usual by whoever asks for them afterwards.

_registered: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
"""Arguments of each `AutoTokenizer.register` while mlx_lm was imported."""


class _Placeholder:
    """Stands for a class of transformers."""

    HOME: ClassVar[str] = "transformers"


class _AutoTokenizer(_Placeholder):
    @staticmethod
    def register(*given: Any, **named: Any) -> None:
        _registered.append((given, named))

    @staticmethod
    def from_pretrained(*given: Any, **named: Any) -> Any:
        fill_in()
        return importlib.import_module("transformers").AutoTokenizer.from_pretrained(*given, **named)


class _TokenizerBase(_Placeholder):
    HOME: ClassVar[str] = "transformers.tokenization_utils_base"


class _SlowTokenizer(_Placeholder):
    pass


class _FastTokenizer(_Placeholder):
    """mlx_lm derives a tokenizer of its own from it."""


def _snapshot_download(*given: Any, **named: Any) -> Any:
    return importlib.import_module("huggingface_hub").snapshot_download(*given, **named)


_CLASSES: dict[str, type[_Placeholder]] = {
    "AutoTokenizer": _AutoTokenizer,
    "PreTrainedTokenizer": _SlowTokenizer,
    "PreTrainedTokenizerBase": _TokenizerBase,
    "PreTrainedTokenizerFast": _FastTokenizer,
}


def import_mlx_lm() -> None:
    """Import `mlx_lm`, without transformers if neither has been imported yet."""
    absent = not {"mlx_lm", "transformers", "huggingface_hub"} & sys.modules.keys()
    if absent and "MLXLM_USE_MODELSCOPE" not in os.environ:
        placeholders = _modules()
        sys.modules.update(placeholders)
        try:
            importlib.import_module("mlx_lm.utils")
            return
        except (ImportError, AttributeError, TypeError):  # another mlx_lm, which needs more of them
            for name in [name for name in sys.modules if name.partition(".")[0] == "mlx_lm"]:
                del sys.modules[name]
        finally:
            for name, module in placeholders.items():
                if sys.modules.get(name) is module:
                    del sys.modules[name]
    importlib.import_module("mlx_lm.utils")


def _modules() -> dict[str, ModuleType]:
    modules = {name: ModuleType(name) for name in ("transformers", _TokenizerBase.HOME, "huggingface_hub")}
    for name, placeholder in _CLASSES.items():
        setattr(modules[placeholder.HOME], name, placeholder)
    modules["huggingface_hub"].snapshot_download = _snapshot_download  # type: ignore[attr-defined]
    modules["transformers"].__path__ = []  # a package: it has the other one in it
    return modules


def fill_in() -> None:
    """Give mlx_lm's modules the real classes, if they have placeholders; it imports transformers."""
    real = {
        placeholder: getattr(importlib.import_module(placeholder.HOME), name)
        for name, placeholder in _CLASSES.items()
    }
    for module in [each for name, each in sys.modules.items() if name.partition(".")[0] == "mlx_lm"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in real:
                setattr(module, name, real[value])
    for derived in _FastTokenizer.__subclasses__():
        derived.__bases__ = (real[_FastTokenizer],)
    while _registered:
        given, named = _registered.pop()
        real[_AutoTokenizer].register(*given, **named)
