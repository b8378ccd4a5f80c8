"""mlx_lm without transformers and huggingface_hub.

Reason: mlx_lm's package imports both, and a model in a directory with a plain `tokenizer.json` needs neither. Gain: a
start takes 1.25 s less. Upstream: no issue is known; lazy imports in mlx_lm would replace this file.

While mlx_lm is imported, stubs stand in for both libraries. The first use of a stub, or `complete`, imports mlx_lm's
modules again with the real ones. Other code that imports transformers or huggingface_hub always gets the real ones.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from engine.patches import allowed

_STUBS = ("transformers", "transformers.tokenization_utils_base", "huggingface_hub")
_MODULES = ("mlx_lm.tokenizer_utils", "mlx_lm.utils", "mlx_lm.generate", "mlx_lm")
"""Modules of mlx_lm that import from the stubs, in an order in which they can be reloaded."""


class _Stub:
    """Stands for any class of transformers, and for `huggingface_hub.snapshot_download`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        complete()
        return importlib.import_module("huggingface_hub").snapshot_download(*args, **kwargs)

    @staticmethod
    def register(*args: Any, **kwargs: Any) -> None:
        """Do nothing: `complete` registers with the real `AutoTokenizer`."""

    @staticmethod
    def from_pretrained(*args: Any, **kwargs: Any) -> Any:
        complete()
        return importlib.import_module("transformers").AutoTokenizer.from_pretrained(*args, **kwargs)


def import_mlx_lm() -> None:
    """Import `mlx_lm`, without transformers and huggingface_hub if none of the three has been imported yet."""
    imported = {"mlx_lm", "transformers", "huggingface_hub"} & sys.modules.keys()
    stubs: dict[str, ModuleType] = {}
    if allowed("imports") and not imported and "MLXLM_USE_MODELSCOPE" not in os.environ:
        stubs = {name: ModuleType(name) for name in _STUBS}
        for stub in stubs.values():
            vars(stub).update(__path__=[], __getattr__=lambda name: _Stub)
    sys.modules.update(stubs)
    try:
        importlib.import_module("mlx_lm")
    finally:
        for name in stubs:
            del sys.modules[name]


def complete() -> None:
    """Import mlx_lm's modules again if they have stubs; this imports transformers."""
    if vars(importlib.import_module("mlx_lm.tokenizer_utils"))["AutoTokenizer"] is _Stub:
        for name in _MODULES:
            importlib.reload(sys.modules[name])
