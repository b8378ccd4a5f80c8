"""Views on machines that round otherwise: what is shown here is shown there, and what is wrong is refused there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from msgspec.structs import replace

from engine.errors import LoadError
from engine.inside import gradients, lens, modules, patching, scores, taps
from engine.session.session import Session
from tests.emulations import MACHINES
from tests.engine.inside.looking import loaded, opened
from tests.engine.inside.test_families import METAL
from tests.engine.inside.views import View, views_of
from tests.families import FAMILIES


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are written."""
    return tmp_path_factory.mktemp("families")


IN_FLOAT32 = (
    "bailing_moe_linear", "longcat_flash", "longcat_flash_ngram", "mellum", "olmo_hybrid", "qwen3_5_moe", "qwen3_moe",
    "qwen3_vl_moe",
)  # fmt: skip
"""Gradients are computed in float32 from the vectors on: there these choose other experts than in bfloat16, or move
their states further, and the check of the forward, or of the derivative, refuses the view."""


@pytest.mark.wide(2)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_shown_here_is_shown_there(models: Path, family: str, machine: str) -> None:
    """Nothing but rounding is different: no view is refused, and none shows less or something else."""
    if family in METAL and not mx.metal.is_available():
        with pytest.raises(LoadError, match="No Metal back-end"):
            loaded(models, family)
        return
    here = views_of(opened(loaded(models, family)))
    emulated, dtype = MACHINES[machine]
    with emulated():
        there = views_of(opened(loaded(models, family, dtype)))
    shown = {name: view for name, view in here.items() if not view.refused}
    refused = {name: there[name].refused for name in shown if there[name].refused}
    assert refused.keys() <= ({"gradients"} if family in IN_FLOAT32 else set()), refused
    assert {name: there[name].parts for name in shown if name not in refused} == {
        name: view.parts for name, view in shown.items() if name not in refused
    }


def test_activations_are_those_before_the_model_changed_them_in_place(models: Path) -> None:
    """gemma3n unembeds its streams in the very array that its last layer returned: patching was refused."""
    assert views_of(opened(loaded(models, "gemma3n")), ["patching"])["patching"].refused == ""


@pytest.mark.slow
def test_logits_of_minus_infinity_are_equal_over_a_whole_path_too(models: Path) -> None:
    """phi3small bars tokens: the triangle was refused, and what its heads do."""
    found = views_of(opened(loaded(models, "phi3small")), ["triangle", "heads"])
    assert (found["triangle"].refused, found["heads"].refused) == ("", "")


# ---- what is wrong -----------------------------------------------------------------------------

Wrong = Callable[[pytest.MonkeyPatch], None]


def _keys_of_the_token_before(patch: pytest.MonkeyPatch) -> None:
    own = taps.attention_weights

    def rolled(given: taps.AttentionInputs, output: mx.array) -> Any:
        return own(replace(given, keys=mx.roll(given.keys, 1, axis=2)), output)

    patch.setattr(taps, "attention_weights", rolled)


def _the_stream_before_the_last_layer(patch: pytest.MonkeyPatch) -> None:
    own = lens.residual_streams
    patch.setattr(lens, "residual_streams", lambda taken: own(taken)[:-1])


def _a_layer_without_its_last_part(patch: pytest.MonkeyPatch) -> None:
    own = lens.split_layer

    def split(*given: Any) -> Any:
        found = own(*given)
        return found and found[:-1]

    patch.setattr(lens, "split_layer", split)


def _a_share_too_large(patch: pytest.MonkeyPatch) -> None:
    own = scores._ScoringLayer.queries_and_keys

    def wrong(look: Any, streams: Any) -> tuple[Any, Any]:
        query, keys = own(look, streams)
        keys[0] *= 1.5
        return query, keys

    patch.setattr(scores._ScoringLayer, "queries_and_keys", wrong)


def _the_gradients_of_the_tokens_before(patch: pytest.MonkeyPatch) -> None:
    own = gradients._LogitFunction.gradients

    def wrong(at: Any, rows: Any) -> Any:
        values, slopes = own(at, rows)
        return values, np.roll(slopes, 1, axis=1)

    patch.setattr(gradients._LogitFunction, "gradients", wrong)


def _outputs_of_other_experts(patch: pytest.MonkeyPatch) -> None:
    own = modules.MixtureRun

    def run(layer: int, path: str, count: int, chosen: list[int], outputs: mx.array) -> Any:
        return own(layer, path, count, chosen, mx.roll(outputs, 1, axis=-2))

    patch.setattr(modules, "MixtureRun", run)


def _rows_of_other_units(patch: pytest.MonkeyPatch) -> None:
    own = patching.forward_rows
    patch.setattr(patching, "forward_rows", lambda *given: np.roll(own(*given), 1, axis=0))


def _the_last_activation_of_the_token_before(patch: pytest.MonkeyPatch) -> None:
    own = patching.ActivationCache.layer

    def layer(self: Any, index: int, given: mx.array, result: Any) -> Any:
        found = own(self, index, given, result)
        kept = self.states[index, ""]
        self.states[index, ""] = mx.concatenate([kept[:, :-1], kept[:, -2:-1]], axis=1)
        return found

    patch.setattr(patching.ActivationCache, "layer", layer)


WRONG: dict[str, tuple[Wrong, str]] = {
    "attention": (_keys_of_the_token_before, "attention "),
    "triangle": (_keys_of_the_token_before, "attention "),
    "heads": (_keys_of_the_token_before, "attention "),
    "scores": (_a_share_too_large, "scores "),
    "lens": (_the_stream_before_the_last_layer, "lens "),
    "contributions": (_a_layer_without_its_last_part, "parts "),
    "gradients": (_the_gradients_of_the_tokens_before, "derivative "),
    "sweep": (_rows_of_other_units, "single "),
    "steering": (_rows_of_other_units, "single "),
    "patching": (_the_last_activation_of_the_token_before, "restored "),
}
"""By view: what makes it wrong, and the check that refuses it."""


@pytest.fixture(params=MACHINES)
def there(request: pytest.FixtureRequest, models: Path) -> Iterator[Callable[[str], Session]]:
    """Opens a family's model on a machine."""
    emulated, dtype = MACHINES[request.param]
    with emulated():
        yield lambda family: opened(loaded(models, family, dtype))


@pytest.mark.wide(14)
@pytest.mark.parametrize("view", WRONG)
def test_a_wrong_view_is_refused_there(
    there: Callable[[str], Session], monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    wrong, check = WRONG[view]
    session = there("llama")
    wrong(monkeypatch)
    assert views_of(session, [view])[view].refused.startswith(check)


@pytest.mark.wide(2)
def test_weights_of_other_experts_are_not_shown_there(
    there: Callable[[str], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = there("mixtral")
    right: View = views_of(session, ["experts"])["experts"]
    assert right.parts == {"L1 block_sparse_moe.switch_mlp weights", "L2 block_sparse_moe.switch_mlp weights"}
    _outputs_of_other_experts(monkeypatch)
    assert views_of(there("mixtral"), ["experts"])["experts"].parts == set()
