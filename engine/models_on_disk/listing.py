"""Lists the models that are on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.models_on_disk.facts import DiskModel
from engine.models_on_disk.places import all_places
from engine.models_on_disk.reading import read_model

MOST = 5000
"""Models of a list at most."""


def listed(
    directories: Sequence[str] = (), recent: Sequence[str] = (), stopped: Callable[[], bool] = lambda: False
) -> Iterator[DiskModel]:
    """Every model: the bundled one, those used last, those of given directories, the hub's, LM Studio's.

    Args:
        directories: Those that a person gave; where there are any, nothing else is looked at.
        recent: Paths of models that were used last.
        stopped: Polled before each model: whether to end here.

    Yields:
        Each with its facts, as soon as it was read.
    """
    for place, _ in zip(all_places(directories, recent), range(MOST), strict=False):
        if stopped():
            return
        yield place if place.problem else read_model(place)
