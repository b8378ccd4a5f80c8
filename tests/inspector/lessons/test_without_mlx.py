"""Lessons from their recordings where there is no MLX: nothing of it is imported, not even in vain."""

from __future__ import annotations

import subprocess
import sys

import pytest

from inspector.lessons.catalogue import ORDER

BLOCKED = """
import sys
asked = []
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"mlx", "mlx_lm", "transformers", "tokenizers", "safetensors", "torch"}:
            asked.append(name)
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Block())
from inspector.lessons.catalogue import shipped
from tests.inspector.lessons.playing import learn
for listed in shipped():
    if listed.lesson.id not in sys.argv[1:]:
        continue
    async def body(learner):
        for number in range(len(listed.lesson.beats)):
            await learner.beat(guess=number)
        print(listed.lesson.id, len(learner.play.right))
    learn(listed, body, (80, 24), recorded=True)
print("asked", *asked)
"""


def played(*lessons: str) -> list[str]:
    """What a program without MLX says after going through lessons by their keys."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *lessons], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_lesson_is_played_where_there_is_no_mlx() -> None:
    assert played("the-draw") == ["the-draw 6", "asked"]


@pytest.mark.slow
def test_all_lessons_are_played_where_there_is_no_mlx() -> None:
    *lessons, asked = played(*ORDER)
    assert [line.split()[0] for line in lessons] == list(ORDER)
    assert asked == "asked"
