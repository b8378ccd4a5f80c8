"""Compares attention weights and hidden states with those of transformers on torch, and writes what that computed.

The program doesn't need torch. In an environment of its own, from the top of a checkout:

    pip install torch transformers numpy mlx[cpu] mlx-lm regex
    python -m tests.engine.inside.reference

It fails where anything differs by more than 1e-4, and writes reference.json: the worst differences, and some of
torch's own rows, which test_families.py compares with in the usual suite.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine import pocket
from engine.inside.attention import read_attention
from engine.inside.lens import residual_streams
from engine.inside.view import capture
from engine.protocol import ReadAttention
from engine.session.session import Session
from tests.engine.inside.looking import answer
from tests.engine.inside.reference_models import RESULTS, STEPS, TINY, reference_session

BOUND = 1e-4
ROWS = 3
"""Tokens, from the end, whose rows are written."""
VALUES = 16
"""Of a hidden state that are written."""
Truth = tuple[list[np.ndarray], list[np.ndarray]]
"""Attention weights of each layer, shape (heads, tokens, keys), and hidden states before and after each layer."""


def main() -> int:
    """Compare all models; returns the exit status."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("pocket", *TINY):
            session = reference_session(Path(folder), name)
            path = pocket.directory() if name == "pocket" else Path(folder) / name
            results[name] = compared(session, *computed_by_torch(path, session.tree.tokens(session.node)))
            print(name, results[name]["worst"])
    versions = {each: version(each) for each in ("torch", "transformers", "mlx", "mlx-lm", "numpy")}
    lines = json.dumps({"versions": versions, "models": results}).replace('{"layer"', '\n{"layer"')
    RESULTS.write_text(lines + "\n", encoding="utf-8")
    worst = max(
        number for model in results.values() for numbers in model["worst"].values() for number in numbers
    )
    print(f"worst {worst:.1e}, bound {BOUND:.0e}")
    return int(worst > BOUND)


def compared(session: Session, attentions: list[np.ndarray], hidden: list[np.ndarray]) -> dict[str, Any]:
    """The worst differences, layer by layer, and rows of torch's to keep."""
    ids = session.tree.tokens(session.node)
    chunk = capture(session, session.node, tokens=len(ids), attention=True)
    states = np.array(residual_streams(chunk))
    runs = [np.array(run.weights) for run in chunk.taps[0].attended]
    worst = {
        "attention_in_a_chunk": list(map(_apart, runs, attentions)),
        "attention_of_a_step": [0.0] * len(runs),
        "hidden": list(map(_apart, states, hidden)),
    }
    rows = []
    for node in session.tree.nodes(session.node)[-STEPS - 1 :]:
        read = answer(read_attention(session, ReadAttention(node)))
        assert read.facts.failed is None
        place = read.tokens - 1
        for number, layer in enumerate(read.layers):
            mine = np.array([layer.over(head, read.tokens) for head in range(layer.heads)])
            truth = attentions[number][:, place, : read.tokens]
            steps = worst["attention_of_a_step"]
            steps[number] = max(steps[number], _apart(mine, truth))
            if place >= len(ids) - ROWS:
                head = (number + place) % layer.heads
                kept = [round(float(weight), 7) for weight in truth[head]]
                rows.append({"layer": number, "head": head, "tokens": read.tokens, "weights": kept})
    states_kept = [
        {"layer": layer, "place": len(ids) - 1 - layer % ROWS,
         "values": [round(float(v), 6) for v in state[len(ids) - 1 - layer % ROWS, :VALUES]]}
        for layer, state in enumerate(hidden)
    ]  # fmt: skip
    return {"ids": ids, "worst": worst, "attention": rows, "hidden": states_kept}


def _apart(mine: np.ndarray, truth: np.ndarray) -> float:
    """The largest difference, of hidden states as a share of the largest."""
    assert mine.shape == truth.shape, (mine.shape, truth.shape)
    return float(f"{np.abs(mine - truth).max() / max(1.0, np.abs(truth).max()):.1e}")


def computed_by_torch(path: Path, ids: list[int]) -> Truth:
    """What transformers' own model of that family computes with the same weights in float32."""
    config = AutoConfig.from_pretrained(path)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    weights = mx.load(str(path / "model.safetensors"))
    assert isinstance(weights, dict)
    state = converted(
        {key: np.array(array.astype(mx.float32)) for key, array in weights.items()}, config.model_type
    )
    own = model.state_dict()
    if "lm_head.weight" not in state:  # tied
        embedding = next(key for key in state if key.endswith(("embed_tokens.weight", "wte.weight")))
        state["lm_head.weight"] = state[embedding]
    assert own.keys() == state.keys(), own.keys() ^ state.keys()
    model.load_state_dict({key: torch.from_numpy(array.copy()) for key, array in state.items()})
    ends: list[torch.Tensor] = []
    body = model.get_decoder()
    layers = body.h if hasattr(body, "h") else body.layers
    layers[-1].register_forward_hook(lambda *call: ends.append(_first(call[-1])))
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
    # the last of its hidden states is behind the final norm
    hidden = [*(each[0] for each in out.hidden_states[:-1]), ends[0].reshape(len(ids), -1)]
    return [each[0].numpy() for each in out.attentions], [each.numpy() for each in hidden]


def _first(result: Any) -> torch.Tensor:
    state: torch.Tensor = result[0] if isinstance(result, tuple) else result
    return state


def converted(weights: dict[str, np.ndarray], model_type: str) -> dict[str, np.ndarray]:
    """Weights under transformers' names, in its shapes."""
    if model_type == "gpt2":
        return {
            key.replace("model.", "transformer.", 1): array.T if array.ndim == 2 and ".h." in key else array
            for key, array in weights.items()
        }
    if model_type != "mixtral":
        return weights
    state: dict[str, np.ndarray] = {}
    for key, array in weights.items():
        place, _, part = key.partition(".block_sparse_moe.")
        if part == "switch_mlp.gate_proj.weight":
            up = weights[key.replace("gate_proj", "up_proj")]
            state[f"{place}.mlp.experts.gate_up_proj"] = np.concatenate([array, up], axis=1)
        elif part == "switch_mlp.down_proj.weight":
            state[f"{place}.mlp.experts.down_proj"] = array
        elif part == "gate.weight":
            state[f"{place}.mlp.gate.weight"] = array
        elif not part:
            state[key] = array
    return state


if __name__ == "__main__":
    sys.exit(main())
