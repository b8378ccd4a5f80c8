"""How often the token that the device guesses is not the one that the sampler draws: each costs a forward.

    python -m tests.benchmarks.guesses [--count TOKENS]

Runs of 400 tokens, each with a seed and a last token of the prompt of its own, greedy and with temperature 0.8 and
top-p 0.95, of which a run on a CPU guesses none by itself. A line every tenth of the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from unittest.mock import patch

from msgspec.structs import replace

from engine.decoding.run import run
from engine.model.forward import PipelinedForward
from engine.model.load import Loaded, load
from engine.settings import LoadSettings, Settings
from engine.task import never
from tests.benchmarks.run import GREEDY, PROMPT, SAMPLED
from tests.benchmarks.vocabularies import Asked, Figures, by_command
from tests.engine.sessions import begun

TOKENS, EACH = 100_000, 400


class Guesses:
    """What runs guessed while it watched them."""

    def __init__(self) -> None:
        self.made = self.wrong = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count those of all runs, and let none give up guessing."""
        launch = PipelinedForward.launch

        def counted(forward: PipelinedForward, token: int) -> bool:
            if forward._guessed is not None:
                self.made += 1
                self.wrong += forward._guessed != token
            return launch(forward, token)

        with (
            patch.object(PipelinedForward, "launch", counted),
            patch("engine.decoding.run.pays", lambda settings: True),
            patch("engine.model.forward.RIGHT_FOR_WRONG", 0),
        ):
            yield


def guesses(loaded: Loaded, settings: Settings, tokens: int) -> Guesses:
    """Take so many tokens in runs, and count."""
    found, taken = Guesses(), 0
    with found.watching():
        for seed in count():
            prompt = [*loaded.tokens.encode(PROMPT), 7 + seed]  # another text each time, greedy too
            session = begun(loaded, prompt, replace(settings, seed=seed, max_tokens=10**9))
            before = taken
            for _ in islice(run(session, never), min(EACH, tokens - taken)):
                taken += 1
                if taken % max(1, tokens // 10) == 0:
                    print(f"{taken:9,} tokens: {found.made:,} guesses, {found.wrong} wrong")
            if taken >= tokens or taken == before:
                return found
    raise AssertionError


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each("pocket", "4k"):
        loaded = load(LoadSettings(model=model))
        for kind, settings in (("greedy", GREEDY), ("sampled", SAMPLED)):
            found = guesses(loaded, settings, asked.times(TOKENS))
            figures |= {f"{name} {kind} guesses": found.made, f"{name} {kind} wrong": found.wrong}
            print(f"{name:12} {kind:8} {found.wrong} of {found.made:,} guesses were wrong")
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
