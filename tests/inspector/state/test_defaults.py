"""Whose defaults the settings on show are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.settings import Settings, with_defaults
from inspector.state.conditions import defaults_of
from tests.inspector.fakes import facts as model_facts

OWN = (("temp", 0.8), ("top_p", 0.95))


@pytest.mark.parametrize(("own", "whose"), [(OWN, "model's"), ((), "mlx-lm's")])
def test_settings_that_the_user_changed_are_not_called_defaults(
    own: tuple[tuple[str, float], ...], whose: str
) -> None:
    facts = model_facts(sampling=own)
    usual = with_defaults(Settings(), own, ())
    assert defaults_of(facts, usual) == whose
    assert defaults_of(facts, replace(usual, seed=7, max_tokens=3)) == whose
    for changed in (
        {"temp": 1.3},
        {"logit_bias": ((3, -100.0),)},
        {"presence_penalty": 0.5},
        {"stop": ("x",)},
    ):
        assert defaults_of(facts, replace(usual, **changed)) == ""
