"""Model directories that are broken, each in one way: functions that break a copy of a tiny model that loads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.broken_models.adapters import ADAPTERS
from tests.broken_models.configs import CONFIGS
from tests.broken_models.places import PLACES
from tests.broken_models.tokenizers import TOKENIZERS
from tests.broken_models.weights import WEIGHTS

CASES = {
    **{f"config-{name}": change for name, change in CONFIGS.items()},
    **{f"weights-{name}": change for name, change in WEIGHTS.items()},
    **{f"tokenizer-{name}": change for name, change in TOKENIZERS.items()},
    **{f"place-{name}": change for name, change in PLACES.items()},
    **{f"adapter-{name}": change for name, change in ADAPTERS.items()},
}
"""What breaks a model directory, by a name for it. Those of adapters break `adapter` in it."""


def copied(good: Path, directory: Path) -> Path:
    """A copy of a model directory: hard links, which `put` replaces."""
    shutil.copytree(good, directory, copy_function=os.link)
    return directory


def flags(name: str, directory: Path) -> list[str]:
    """What opens a broken directory on the command line."""
    model = directory / "model.safetensors" if name == "place-a-file" else directory
    adapter = ["--adapter-path", str(directory / "adapter")] if name.startswith("adapter-") else []
    return ["--model", str(model), *adapter]
