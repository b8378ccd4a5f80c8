"""What a grammar costs a step, by the size of the vocabulary: with one and without, in turn.

    python -m tests.benchmarks.grammar [--count ROUNDS]

A step is a forward of a random llama of two layers, hidden size 512, and everything that the session does after it. The
grammars leave little (digits), much (a JSON string) and nothing to choose. Times are the
processor's, of all threads and of the stepping thread alone, which is without the forward; the least of the rounds
counts. Prints their ratios for each grammar (1 is no cost).
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
from msgspec.structs import replace

from engine.grammar_settings import Grammar
from engine.model.load import load
from engine.model.tokens import Tokens
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.token_texts import alphabet
from tests.benchmarks.vocabularies import SIZES, Asked, Figures, by_command
from tests.engine.sessions import begun

ROUNDS, STEPS = 8, 5
GRAMMARS = {
    "digits": Grammar("regex", "[0-9]+"),
    "a JSON string": Grammar("json-schema", '{"type": "string"}'),
    "any text": Grammar("regex", "(.|\n)*"),
    "a certain text": Grammar("regex", "(abcdefghijklmnopqrstuvwxyz){200}"),
}


class Pieces:
    """A tokenizer of the bytes, then random runs of letters, digits and signs; the last one ends.

    Args:
        size: How many pieces.
    """

    added_tokens_decoder: dict[int, object] = {}  # noqa: RUF012
    backend_tokenizer = SimpleNamespace(
        decoder=SimpleNamespace(__getstate__=lambda: b'{"type": "ByteLevel"}')
    )

    def __init__(self, size: int) -> None:
        self.all_special_ids = (size - 1,)
        random, texts = np.random.default_rng(0), [*alphabet()]
        chars = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,-:;!?Ġ\"'{}[]()")
        seen = dict.fromkeys(texts)
        while len(seen) < size:
            seen["".join(random.choice(chars, random.integers(2, 9)))] = None
        self._texts = [*seen]

    def __len__(self) -> int:
        return len(self._texts)

    def convert_ids_to_tokens(self, token: int) -> str:
        return self._texts[token]


def milliseconds(session: Session, begin: int, grammar: Grammar | None) -> tuple[float, float]:
    """Processor time of a step, on average of some: of all threads, and of this one."""
    session.configure(Settings(temp=1.0, top_p=0.95, seed=1, grammar=grammar))
    session.move(begin)
    session.step()
    begun, begun_here = time.process_time(), time.thread_time()
    for _ in range(STEPS):
        session.step()
    all_threads, here = time.process_time() - begun, time.thread_time() - begun_here
    return all_threads * 1000 / STEPS, here * 1000 / STEPS


def measure(name: str, model: str, rounds: int) -> Figures:
    """Measure one model and print."""
    wholes, threads = list[float](), list[float]()
    loaded = load(LoadSettings(model=model))
    size = loaded.tokens.vocabulary
    wrapper = SimpleNamespace(_tokenizer=Pieces(size), eos_token_ids=[size - 1], has_chat_template=False)
    session = begun(replace(loaded, tokens=Tokens(wrapper, size)), [65, 66, 67, 68])
    begin = session.node
    for title, grammar in GRAMMARS.items():
        milliseconds(session, begin, grammar)
        times = [[milliseconds(session, begin, each) for each in (None, grammar)] for _ in range(rounds)]
        plain, held = (np.min(each, axis=0) for each in zip(*times, strict=True))
        whole, here = held / plain
        print(
            f"{name:12} {title:16} {plain[0]:6.2f} ms without, {held[0]:6.2f} ms with: {whole:.3f}; "
            f"stepping thread {here:.3f}"
        )
        wholes.append(float(whole))
        threads.append(float(here))
    return {name: (min(wholes), max(wholes)), f"{name} thread": (min(threads), max(threads))}


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*(f"{size}-h512" for size in SIZES)):
        figures |= measure(name, model, asked.times(ROUNDS))
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
