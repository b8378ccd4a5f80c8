"""mlx_lm's own `sharded_load`, and the same model over ranks here: the largest difference of a logit; on each rank."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import sharded_load

from engine.patches import blas
from engine.ranks.group import joined
from engine.ranks.handlers import load
from engine.settings import LoadSettings
from tests.engine.ranks.walks import PROMPT, written
from tests.engine.sessions import begun

NAME = "qwen2"


def main(folder: str, sharding: str) -> None:
    """Print the difference of the logits after the prompt, whose last token is a forward of its own."""
    mx.disable_compile()
    blas.install()
    group, path = joined(), written(Path(folder), NAME, 2)
    groups = (group.mlx, None) if sharding == "pipeline" else (None, group.mlx)
    model, _ = sharded_load(str(path), *groups)
    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([PROMPT[:-1]]), cache=cache), [each.state for each in cache])
    logits = model(mx.array([PROMPT[-1:]]), cache=cache)[0, -1].astype(mx.float32)
    mx.eval(logits, [each.state for each in cache])
    loaded = load(LoadSettings(str(path), ranks=2, shard=sharding), lambda _: None, Event())
    session = begun(loaded, PROMPT, echo=None)
    largest = float(np.abs(session.logits - np.array(logits)).max())
    if group.rank == 0:
        print(json.dumps({"largest": largest, "ranks": loaded.settings.ranks}), flush=True)
