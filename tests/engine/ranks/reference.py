"""mlx_lm's own `sharded_load` in two processes, and the same model over ranks: the largest difference of a logit.

python -m tests.engine.ranks.reference FOLDER SHARD
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np

from engine.model.load import load
from engine.patches import blas
from engine.ranks.handlers import RanksSpread
from engine.ranks.hosts import LOOPBACK, RankHost, RankHosts
from engine.ranks.mirror import join
from engine.ranks.ring import RING
from engine.settings import LoadSettings
from tests.engine.ranks.walks import PROMPT, model_at
from tests.engine.sessions import begun

NAME = "qwen2"


def reference(rank: int, path: str, sharding: str, hostfile: str, out: str) -> None:
    """One process of mlx_lm's; rank 0 writes the logits after the prompt, whose last token is a forward of its own."""
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import sharded_load

    mx.disable_compile()
    blas.install()
    group = join(rank, "ring", {"MLX_HOSTFILE": hostfile}, {})
    groups = (group, None) if sharding == "pipeline" else (None, group)
    model, _ = sharded_load(path, *groups)
    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([PROMPT[:-1]]), cache=cache), [each.state for each in cache])
    logits = model(mx.array([PROMPT[-1:]]), cache=cache)[0, -1].astype(mx.float32)
    mx.eval(logits, [each.state for each in cache])
    if rank == 0:
        np.save(out, np.array(logits))


def main(folder: str, sharding: str) -> None:
    """Print the difference."""
    path, out = model_at(Path(folder), NAME, 2), Path(folder) / f"logits-{sharding}.npy"
    hostfile = RankHosts((RankHost(LOOPBACK, (LOOPBACK,)),) * 2).meeting().files["MLX_HOSTFILE"]
    command = [sys.executable, "-m", "tests.engine.ranks.reference"]
    given = [str(path), sharding, hostfile, str(out)]
    started = [subprocess.Popen([*command, str(rank), *given]) for rank in range(2)]
    assert [process.wait(120) for process in started] == [0, 0]
    loaded = load(LoadSettings(str(path), ranks=2, shard=sharding), spread=RanksSpread())
    session = begun(loaded, PROMPT, echo=None)
    largest = float(np.abs(session.logits - np.load(out)).max())
    print(json.dumps({"largest": largest, "ranks": loaded.settings.ranks}))
    RING.close()


if __name__ == "__main__":
    if len(sys.argv) > 3:
        reference(int(sys.argv[1]), *sys.argv[2:])
        sys.stdout.flush()
        os._exit(0)
    main(*sys.argv[1:])
