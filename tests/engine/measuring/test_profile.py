"""The fenced profile: its parts are the model's, they add up, and nothing is changed by looking."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from engine.cache.kinds import arrays
from engine.errors import Cancelled, EngineError, SettingsError, StepError
from engine.measuring.profile import COPIED, capture_metal, fences, places, profile
from engine.model.forward import Runner
from engine.model.layers import decoder_layers
from engine.protocol import CaptureMetal, Measuring, Profile, Profiled
from engine.session.session import Session
from engine.settings import Settings
from tests.engine.measuring.rig import measure
from tests.engine.sessions import begun
from tests.zoo import CONFIGS, Zoo

PROMPT = list(range(7, 50))
"""Beyond the sliding windows, so that a token can't be trimmed off them."""
MIXERS = {
    "mamba2": {"recurrence": 2},
    "lfm2": {"attention": 1, "recurrence": 1},
    "qwen3-next": {"attention": 1, "recurrence": 1},
}


def opened(zoo: Zoo, name: str, **load: object) -> Session:
    """A session that has read the prompt and taken a step."""
    return begun(zoo.load(name, **load), PROMPT, Settings(temp=0.8, seed=1), steps=1)


def profiled(zoo: Zoo, session: Session, name: str, repeats: int = 3, **load: object) -> Profiled:
    """The profile of the next step."""
    *_, found = measure(profile, zoo.load(name, **load), session, Profile(repeats))
    assert isinstance(found, Profiled)
    return found


def state(session: Session) -> list[bytes]:
    """Every byte of the live cache, and where its caches stand."""
    held = [np.array(array.astype(mx.float32)).tobytes() for array in session.kv.state()]
    return [*held, repr([getattr(cache, "offset", None) for cache in session.kv.caches]).encode()]


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ["pocket", *CONFIGS])
def test_the_parts_are_the_models_and_nothing_is_changed(zoo: Zoo, name: str) -> None:
    session, twin = opened(zoo, name), opened(zoo, name)
    before, row, nodes = state(session), session.logits.copy(), len(session.tree)
    found = profiled(zoo, session, name)
    assert (state(session), len(session.tree)) == (before, nodes)
    assert np.array_equal(session.logits, row)
    assert session.step().id == twin.step().id
    assert np.array_equal(session.logits, twin.logits)
    assert (found.node, found.tokens) == (session.tree[session.node].parent, len(PROMPT) + 1)
    count = len(decoder_layers(zoo.load(name).model))
    roles = Counter(part.role for part in found.parts if part.layer is not None)
    mixers = {role: roles[role] for role in ("attention", "recurrence") if roles[role]}
    assert mixers == MIXERS.get(name, {"attention": count})
    assert roles["mlp"] == (0 if name == "mamba2" else count)
    assert roles["norm"] >= count
    assert roles["other"] == 0
    outside = {part.role for part in found.parts if part.layer is None}
    assert outside == {"embedding", "norm", "head", "sampling", "detokenizing"}
    assert {part.layer for part in found.parts} == {None, *range(count)}
    assert all(part.ms >= 0 for part in found.parts)


def test_the_parts_add_up_to_the_whole(zoo: Zoo) -> None:
    """No time is counted twice, and what is outside the parts is little, in most of some profiles: another process may
    take the processor in between."""
    session = opened(zoo, "pocket")
    every = [profiled(zoo, session, "pocket") for _ in range(5)]
    parts = [sum(part.ms for part in found.parts) for found in every]
    for found, ms in zip(every, parts, strict=True):
        assert ms + found.other_ms == pytest.approx(found.fenced_ms)
        assert "middle" in found.how
    assert median(ms / found.fenced_ms for found, ms in zip(every, parts, strict=True)) > 0.7
    assert 0.2 < median(found.fenced_ms / found.unfenced_ms for found in every) < 5


@pytest.mark.parametrize(
    "load", [{"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}, {"max_kv_size": 32}]
)
def test_other_caches_are_left_alone_too(zoo: Zoo, load: dict[str, int]) -> None:
    name = "gpt2" if "max_kv_size" in load else "llama"
    session, twin = opened(zoo, name, **load), opened(zoo, name, **load)
    before = state(session)
    profiled(zoo, session, name, **load)
    assert state(session) == before
    for _ in range(3):
        assert session.step().id == twin.step().id
    assert np.array_equal(session.logits, twin.logits)


@pytest.mark.parametrize("name", ["llama", "mamba2", "gemma3", "no snapshots"])
def test_the_cache_is_copied_once_where_a_step_can_be_undone_and_else_for_each_and_that_is_told(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model, undone = (name, True) if name != "no snapshots" else ("llama", False)
    session, copies = opened(zoo, model), list[Runner]()
    own = Runner.copy
    monkeypatch.setattr(Runner, "copy", lambda runner: (copies.append(runner), own(runner))[1])
    if not undone:
        monkeypatch.setattr(type(session.kv), "without_snapshots", lambda kv: ("unknown", "it has no undo"))
    found = profiled(zoo, session, model)
    assert (len(copies) == 1) == undone
    assert (COPIED in found.how) == (not undone)


def test_a_token_at_which_the_cache_is_quantized(zoo: Zoo) -> None:
    load = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": len(PROMPT) + 2}
    session, twin = opened(zoo, "llama", **load), opened(zoo, "llama", **load)
    profiled(zoo, session, "llama", **load)
    assert session.kv.kinds() == ("plain",) * 2
    assert session.step().id == twin.step().id
    assert session.kv.kinds() == ("quantized",) * 2


def test_without_a_cache_the_whole_pass_is_profiled(zoo: Zoo) -> None:
    session = opened(zoo, "llama", no_kv_cache=True)
    found = profiled(zoo, session, "llama", no_kv_cache=True)
    assert "no KV cache" in found.how
    assert session.kv.offset == 0


def test_the_classes_are_what_they_were(zoo: Zoo) -> None:
    model = zoo.load("gemma3").model
    kinds = {type(module) for _, module in model.named_modules()} | {nn.Embedding}
    before = {
        kind: (kind.__call__, "__call__" in vars(kind), getattr(kind, "as_linear", None)) for kind in kinds
    }

    def broken() -> None:
        with fences(model, places(model, 4096), list):
            assert any(kind.__call__ is not before[kind][0] for kind in kinds)
            raise ValueError("within")

    with pytest.raises(ValueError, match="within"):
        broken()
    after = {
        kind: (kind.__call__, "__call__" in vars(kind), getattr(kind, "as_linear", None)) for kind in kinds
    }
    assert after == before


class Strange(nn.Module):
    """A layer whose parts' names say nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def __call__(self, x: mx.array) -> mx.array:
        return x + self.second(self.first(x))


class StrangeModel(nn.Module):
    """A model of them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 8)
        self.blocks = [Strange() for _ in range(2)]

    def __call__(self, ids: mx.array) -> mx.array:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.table.as_linear(x)


def test_unknown_parts_are_named_by_their_path() -> None:
    model = StrangeModel()
    plain = model(mx.array([[3]]))
    with fences(model, places(model, 16), list) as found:
        fenced = model(mx.array([[3]]))
    assert bool((plain == fenced).all())
    assert {(name, role) for name, role, _ in found} == {
        ("table", "embedding"), ("table.as_linear", "head"),
        ("blocks.0", "residual"), ("blocks.1", "residual"),
        *((f"blocks.{n}.{name}", "other") for n in (0, 1) for name in ("first", "second")),
    }  # fmt: skip
    assert list(arrays([plain])) == [plain]


def test_it_tells_how_far_it_is_and_can_be_stopped(zoo: Zoo) -> None:
    session, loaded = opened(zoo, "llama"), zoo.load("llama")
    *told, _ = measure(profile, loaded, session, Profile(2))
    assert [(each.done, each.total) for each in told if isinstance(each, Measuring)] == [
        (n, 4) for n in range(4)
    ]
    before = state(session)
    with pytest.raises(Cancelled):
        list(measure(profile, loaded, session, Profile(2), lambda: True))
    assert state(session) == before
    with pytest.raises(StepError, match="no prompt"):
        next(measure(profile, loaded, Session(loaded, Settings()), Profile(2)))
    with pytest.raises(SettingsError, match="at least 1, not 0"):
        next(measure(profile, loaded, session, Profile(0)))


# ---- one step as Metal sees it -----------------------------------------------------------------


class FakeMetal:
    """What `mx.metal` has, on a machine without it.

    Args:
        refuses: What Metal says instead of beginning.
    """

    def __init__(self, refuses: str = "") -> None:
        self._refuses = refuses
        self.calls: list[str] = []

    def is_available(self) -> bool:
        return True

    def start_capture(self, path: str) -> None:
        if self._refuses:
            raise RuntimeError(self._refuses)
        self.calls.append(path)

    def stop_capture(self) -> None:
        self.calls.append("stop")


def test_metal_captures_one_step_and_nothing_is_changed(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metal = FakeMetal()
    monkeypatch.setattr(mx, "metal", metal)
    session = opened(zoo, "llama")
    before = state(session)
    command = CaptureMetal(str(tmp_path / "step.gputrace"))
    (captured,) = measure(capture_metal, zoo.load("llama"), session, command)
    assert metal.calls == [str(tmp_path / "step.gputrace"), "stop"]
    assert captured.ms > 0
    assert state(session) == before


@pytest.mark.parametrize(
    ("metal", "name", "says"),
    [
        (None, "step.gputrace", "This MLX has no Metal"),
        (FakeMetal(), "step.txt", "Give step.gputrace."),
        (FakeMetal("[metal] Capture layer is not inserted."), "step.gputrace", "MTL_CAPTURE_ENABLED=1"),
    ],
)
def test_what_metal_can_not_capture_is_one_line(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metal: FakeMetal | None, name: str, says: str
) -> None:
    if metal is not None:
        monkeypatch.setattr(mx, "metal", metal)
    with pytest.raises(EngineError) as error:
        list(
            measure(
                capture_metal, zoo.load("llama"), opened(zoo, "llama"), CaptureMetal(str(tmp_path / name))
            )
        )
    assert says in str(error.value)
