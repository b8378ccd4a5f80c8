"""The models that the engine's tests share."""

from __future__ import annotations

import pytest

from tests.forked import own_process as own_process
from tests.zoo import Zoo


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    """Tiny random models, written once a run."""
    return Zoo(tmp_path_factory.mktemp("zoo"))
