"""The models that are compared with transformers: the bundled one, and tiny ones whose weights numpy draws."""

from __future__ import annotations

import zlib
from pathlib import Path

import mlx.core as mx
import numpy as np

from engine.model.load import Loaded, load
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests import synthetic
from tests.families import FAMILIES, Config

TINY: dict[str, Config] = {
    "qwen3": FAMILIES["qwen3"],
    "gpt2": FAMILIES["gpt2"],
    "mixtral": FAMILIES["mixtral"],
    "gemma3_text": {
        **FAMILIES["gemma3_text"],
        "hidden_size": 64,  # mlx_lm rounds its root, a factor of the embedding, to bfloat16; 8 is 8
        "num_hidden_layers": 4,
        "rope_local_base_freq": 5000.0,
        "layer_types": ["sliding_attention", "full_attention"] * 2,  # transformers wants them written out
    },
}
PROMPT = "Once upon a time, there was a little boy named Max and a girl named Sue. One day, Max went to the park with"
IDS = [5, 17, 250, 31, 8, 17, 250, 99, 301, 44, 8, 17]
STEPS = 6
RESULTS = Path(__file__).parent / "reference.json"


def reference_session(directory: Path, name: str) -> Session:
    """A session some steps behind its prompt, in float32.

    Args:
        directory: Where a tiny model is written, if it isn't there.
        name: `pocket` or one of `TINY`.
    """
    session = Session(_loaded(directory, name), Settings(candidates=4))
    ids = session.encode(PROMPT) if name == "pocket" else IDS
    list(session.prefill("", ids, echo=False))
    for _ in range(STEPS):
        session.step()
    return session


def _loaded(directory: Path, name: str) -> Loaded:
    if name == "pocket":
        return load(LoadSettings(dtype="float32"))
    path = directory / name
    if not path.exists():
        synthetic.write(path, TINY[name])
        weights = mx.load(str(path / "model.safetensors"))
        assert isinstance(weights, dict)
        drawn = {key: mx.array(_drawn(key, array.shape)) for key, array in weights.items()}
        mx.save_safetensors(str(path / "model.safetensors"), drawn, {"format": "mlx"})
    return load(LoadSettings(model=str(path), dtype="float32"))


def _drawn(key: str, shape: tuple[int, ...]) -> np.ndarray:
    """The same numbers on each machine; norms differ from 1, and distributions have peaks."""
    numbers = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(shape).astype(np.float32)
    if len(shape) == 1:
        return (1 if "norm" in key or ".ln_" in key else 0) + numbers * np.float32(0.2)
    return numbers * np.float32(2 / np.sqrt(shape[-1]))
