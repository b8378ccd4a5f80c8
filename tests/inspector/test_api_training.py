"""Training from Python: its steps, what leaves the loop, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import EngineError
from mlx_inspector import open, train
from tests.engine.training.rig import text

SMALL = {"layers": 1, "width": 16, "vocabulary": 300, "rows": 2, "row_tokens": 16, "every": 4}


def test_a_loop_trains_and_saves(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text())
    steps = list(train(tmp_path / "text.txt", directory=tmp_path / "out", steps=8, **SMALL))
    assert [each.step for each in steps] == [*range(1, 9)]
    assert [each.step for each in steps if each.look] == [1, 4, 8]
    with open(tmp_path / "out" / "step-000008", prompt="the dog") as session:
        assert len(session.run(2).wait().new) == 2


def test_what_leaves_the_loop_saves_what_was_learned(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text())
    steps = train(tmp_path / "text.txt", directory=tmp_path / "out", **SMALL)
    assert next(steps).step == 1
    assert next(steps).step == 2
    steps.close()  # type: ignore[attr-defined]
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["step-000002"]


@pytest.mark.slow
def test_two_trainings_and_a_session_are_apart(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text())
    alone = [each.loss for each in train(tmp_path / "text.txt", steps=4, **SMALL)]
    one, other = (train(tmp_path / "text.txt", steps=4, **SMALL) for _ in range(2))
    with open("pocket", prompt="Once upon a time") as session:
        ids = session.run(4).wait().ids
    pairs = []
    with open("pocket", prompt="Once upon a time") as session:
        for first, second in zip(one, other, strict=True):
            pairs.append((first.loss, second.loss))
            session.run(1).wait()
        assert session.ids == ids
    assert pairs == [(loss, loss) for loss in alone]


@pytest.mark.parametrize(
    ("texts", "settings", "told"),
    [
        ((), {"depth": 3}, "Unknown setting “depth”."),
        ((), {"layers": 0}, "from 1 to 12"),
        (("nowhere.txt",), {}, "nowhere.txt can't be read"),
    ],
)
def test_what_can_t_be_trained_is_an_error(
    texts: tuple[str, ...], settings: dict[str, int], told: str
) -> None:
    with pytest.raises(EngineError, match=told):
        train(*texts, **settings)
