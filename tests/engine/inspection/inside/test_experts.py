"""Which experts a token went through, against the router's logits; and the states of recurrent layers."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from engine.errors import Cancelled, StepError
from engine.inspection.inside import experts
from engine.inspection.inside.experts import read_experts
from engine.model.patches import calls, patched
from engine.protocol import ExpertsRead
from engine.session.session import Session
from engine.settings import Settings
from tests.zoo import Zoo

PROMPT = [5, 6, 7, 8, 9, 100]


def begun(zoo: Zoo, name: str) -> Session:
    session = Session(zoo.load(name), Settings())
    for _ in session.prefill("", PROMPT, echo=False):
        pass
    session.step()
    session.step()
    return session


def router_logits(session: Session) -> list[np.ndarray]:
    """What each layer's router says of the last token, in a forward over the whole path from nothing."""
    found = []

    def keep(original, module, args, kwargs):
        result = original(module, *args, **kwargs)
        found.append(np.array(result.reshape(-1, result.shape[-1])[-1]))
        return result

    routers = [
        module for path, module in session.runner.model.named_modules() if path.endswith((".gate", ".router"))
    ]
    ids = [session.tree[node].token for node in session.tree.nodes(session.node)]
    with patched(*calls(routers, keep)):
        mx.eval(session.runner.model(mx.array([ids])))
    return found


def expected(logits: np.ndarray, count: int) -> tuple[list[int], list[float]]:
    """The top-k of a router, and the softmax over them, or over all and then over them: the same."""
    best = np.argsort(-logits)[:count]
    shares = np.exp(logits[best] - logits[best].max())
    return [int(index) for index in best], list(shares / shares.sum())


@pytest.mark.parametrize("name", ["mixtral", "gpt-oss", "qwen3-next", "mixtral:4bit"])
def test_experts_and_weights_are_those_of_the_routers_logits(zoo: Zoo, name: str) -> None:
    session = begun(zoo, name)
    read = read_experts(session, session.node)
    assert read.facts.failed is None
    logits = router_logits(session)
    assert [layer.layer for layer in read.layers] == list(range(len(logits)))
    for layer, row in zip(read.layers, logits, strict=True):
        chosen, weights = expected(row, 2)
        assert list(layer.chosen) == chosen
        assert layer.weights == pytest.approx(weights, abs=1e-5)
        assert layer.experts == 4
        assert layer.error is not None
        assert layer.error < 1e-5
    assert not any("weights" in sentence and "not known" in sentence for sentence in read.missing)


def test_a_shared_expert_beside_the_chosen_ones_does_not_disturb_the_reading(zoo: Zoo) -> None:
    session = begun(zoo, "deepseek-v2")
    read = read_experts(session, session.node)
    (layer,) = read.layers
    # This router's weights are zeros: of 4 experts each has a share of 1/4, and nothing makes the chosen ones sum to 1.
    assert (layer.layer, layer.weights) == (1, pytest.approx((0.25, 0.25)))


def test_weights_that_do_not_make_the_output_are_not_shown(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    session = begun(zoo, "mixtral")
    whole = read_experts(session, session.node)
    monkeypatch.setattr(experts.mx, "eye", lambda *shape: mx.zeros(shape))  # a reading that reads nothing
    read = read_experts(session, session.node)
    assert [set(layer.chosen) for layer in read.layers] == [set(layer.chosen) for layer in whole.layers]
    assert all(not layer.weights and layer.error == pytest.approx(1) for layer in read.layers)
    assert read.missing[0].startswith("The weights of 2 layers are not known: their outputs")


def test_states_of_recurrent_layers(zoo: Zoo) -> None:
    session = begun(zoo, "mamba2")
    read = read_experts(session, session.node)
    states = tree_flatten([cache.state for cache in session.runner.kv.caches])
    caches = [array for _, array in states if isinstance(array, mx.array)]
    assert [(state.shape, state.bytes) for state in read.states] == [
        (each.shape, each.nbytes) for each in caches
    ]
    assert [state.layer for state in read.states] == [0, 0, 1, 1]
    for state, array in zip(read.states, caches, strict=True):
        assert state.norm == pytest.approx(float(np.linalg.norm(np.array(array))), rel=1e-4)
    before = read_experts(session, session.tree[session.node].parent)
    assert [state.norm for state in before.states] == pytest.approx([state.before for state in read.states])
    assert all(state.changed for state in read.states)
    assert "can't be read from it" in read.missing[-1]


def test_a_layer_without_a_state_is_left_out(zoo: Zoo) -> None:
    assert {state.layer for state in read_states(zoo, "lfm2").states} == {0}
    assert {state.layer for state in read_states(zoo, "qwen3-next").states} == {0}


def read_states(zoo: Zoo, name: str) -> ExpertsRead:
    session = begun(zoo, name)
    return read_experts(session, session.node)


def test_the_session_stays_as_it_is_and_a_model_without_either_says_so(zoo: Zoo) -> None:
    session = begun(zoo, "llama")
    before = session.kv_reading(), session.node, session.logits.copy()
    read = read_experts(session, session.node)
    assert (read.layers, read.states) == ((), ())
    assert read.missing == ("This model has neither experts nor recurrent layers.",)
    assert (session.kv_reading(), session.node) == before[:2]
    assert np.array_equal(session.logits, before[2])
    with pytest.raises(StepError):
        read_experts(session, 0)
    with pytest.raises(Cancelled):
        read_experts(session, session.node, stopped=lambda: True)
