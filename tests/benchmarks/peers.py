"""Beside the peers, in one run and on the same weights: a step with its 20 best tokens, a prefill, a fork and a return.

    pip install torch transformers
    python -m tests.benchmarks.peers [--models MODEL ...] [--count ROUNDS]

Not in CI: PyTorch is large. Without it mlx_lm is the only peer, as it is of a quantized model.
Every program decodes greedily and reads the 20 most probable tokens of every step. They take turns, so that a machine
that slows down slows all; medians, and the ratio to ours within a round.

A fork goes from a context of 500 tokens back by 250, takes another token there and then one step. transformers and
mlx_lm are used as their documentation has it for a cache that is used twice: a deep copy, cut to length. The return
takes one more step at the end of the 500. Ours keeps the KV of the branch it left. A figure of a round is the median of
several forks, each with another token, and of the returns after them: one alone is a forward or two.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache

from engine.model.load import Loaded, load
from engine.patches import blas
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.benchmarks import run
from tests.benchmarks.vocabularies import MODELS, Asked, Figures, by_command

try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError:
    torch = None  # type: ignore[assignment]

STEPS, PROMPT, CONTEXT, BACK, BEST, FORKS = 50, 256, 500, 250, 20, 5
Taken = dict[str, float]
"""By name: milliseconds, and for the prefill tokens a second."""
NAMES = ("step ms", "prefill tok/s", "fork ms", "return ms")


@dataclass(frozen=True)
class Peer:
    """One program, ready to run."""

    key: str
    """What the table calls it."""
    name: str
    measure: Callable[[list[int], int], Taken]
    """From token ids, at least `CONTEXT`, and a count of steps to the figures."""


def to_and_fro(
    fork: Callable[[int], object], back: Callable[[], object], ids: list[int]
) -> tuple[float, float]:
    """Milliseconds of a fork with a token, and of the return after it: medians over the first tokens that differ."""
    forks, returns = [], []
    for token in list(dict.fromkeys(ids))[:FORKS]:
        begun = time.perf_counter()
        fork(token)
        forked = time.perf_counter()
        back()
        forks.append((forked - begun) * 1e3)
        returns.append((time.perf_counter() - forked) * 1e3)
    return statistics.median(forks), statistics.median(returns)


# ---- transformers on torch ---------------------------------------------------------------------


class Transformers:
    """`generate` with its KV cache, float32.

    Args:
        path: Of the model.
        threads: That torch may use.
    """

    def __init__(self, path: str, threads: int) -> None:
        self._threads = threads
        self._model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._model.generation_config.eos_token_id = None  # the others don't stop there either

    def measure(self, ids: list[int], steps: int) -> Taken:
        """All figures."""
        torch.set_num_threads(self._threads)
        with torch.inference_mode():
            return self._measured(ids, steps)

    def _measured(self, ids: list[int], steps: int) -> Taken:
        begun = time.perf_counter()
        self._model(torch.tensor([ids[:PROMPT]]), use_cache=True, logits_to_keep=1)
        prefill = time.perf_counter() - begun
        cache = self._model(torch.tensor([ids[:CONTEXT]]), use_cache=True, logits_to_keep=1).past_key_values

        def fork(token: int) -> None:
            branch = copy.deepcopy(cache)
            branch.crop(CONTEXT - BACK - branch.get_seq_length())
            self._step(self._step(token, branch), branch)

        moves = to_and_fro(fork, lambda: self._step(ids[1], cache), ids)
        return dict(zip(NAMES, (self._generate(ids, steps), PROMPT / prefill, *moves), strict=True))

    def _generate(self, ids: list[int], steps: int) -> float:
        """Milliseconds of a step of `generate`, its readings included; the prefill is taken off by a shorter run."""
        taken = []
        for count in (1, steps + 1):
            begun = time.perf_counter()
            found = self._model.generate(
                torch.tensor([ids[:PROMPT]]), attention_mask=torch.ones(1, PROMPT, dtype=torch.long),
                max_new_tokens=count, do_sample=False, output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
            for row in found.logits:
                torch.log_softmax(row, -1).topk(BEST)
            taken.append(time.perf_counter() - begun)
        return (taken[1] - taken[0]) / steps * 1e3

    def _step(self, token: int, cache: Any) -> int:
        logits = self._model(torch.tensor([[token]]), past_key_values=cache, use_cache=True).logits[0, -1]
        return int(torch.log_softmax(logits, -1).topk(BEST).indices[0])


# ---- mlx_lm ------------------------------------------------------------------------------------


class MlxLm:
    """mlx_lm's `generate_step` and caches.

    Args:
        loaded: The model.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded

    def measure(self, ids: list[int], steps: int) -> Taken:
        """All figures."""
        blas.install(self._loaded.settings.blas)
        begun = time.perf_counter()
        found = self._tokens(ids[:PROMPT], None, steps + 1)
        next(found)
        prefill, begun = time.perf_counter() - begun, time.perf_counter()
        list(found)
        step = (time.perf_counter() - begun) / steps
        cache = make_prompt_cache(self._loaded.model)
        next(self._tokens(ids[:CONTEXT], cache, 1))

        def fork(token: int) -> None:
            branch = copy.deepcopy(cache)
            trim_prompt_cache(branch, branch[0].offset - (CONTEXT - BACK))
            list(self._tokens([token], branch, 2))

        moves = to_and_fro(fork, lambda: list(self._tokens(ids[1:2], cache, 1)), ids)
        return dict(zip(NAMES, (step * 1e3, PROMPT / prefill, *moves), strict=True))

    def _tokens(self, ids: list[int], cache: Any, count: int) -> Any:
        tokens = generate_step(mx.array(ids), self._loaded.model, prompt_cache=cache, max_tokens=count)
        for token, logprobs in tokens:
            best = mx.argpartition(-logprobs, BEST)[:BEST]
            yield token, best.tolist(), logprobs[best].tolist()


# ---- ours --------------------------------------------------------------------------------------


class Ours:
    """A session, as the screen steps it: all readings, not the 20 best alone.

    Args:
        loaded: The model.
    """

    def __init__(self, loaded: Loaded) -> None:
        facts = replace(loaded.facts, context_window=None)
        self._loaded = replace(loaded, facts=facts)

    def measure(self, ids: list[int], steps: int) -> Taken:
        """All figures."""
        blas.install(self._loaded.settings.blas)
        session = self._session(ids[:PROMPT])
        prefill = self._ms / 1e3
        taken = run.endless_run(session)
        next(taken)
        begun = time.perf_counter()
        list(islice(taken, steps))
        step = (time.perf_counter() - begun) / steps
        session = self._session(ids[: CONTEXT - BACK])
        middle = session.node
        for token in ids[CONTEXT - BACK : CONTEXT]:
            session.choose(token)
        tip = [session.node]

        def fork(token: int) -> None:
            session.move(middle)
            session.choose(token)
            session.step()

        def back() -> None:
            session.move(tip[0])
            session.step()
            tip[0] = session.node

        return dict(zip(NAMES, (step * 1e3, PROMPT / prefill, *to_and_fro(fork, back, ids)), strict=True))

    def _session(self, ids: list[int]) -> Session:
        session = Session(self._loaded, Settings(candidates=BEST, max_tokens=10**9))
        *_, prefilled = session.prefill("", ids, echo=False)
        self._ms = prefilled.ttft_ms  # type: ignore[union-attr]  # the last record of a prefill
        return session


# ---- all of them -------------------------------------------------------------------------------


def peers(model: str) -> list[Peer]:
    """Ours first, in the way in which the program runs by default; every way of the bundled model alone."""
    fast = load(LoadSettings(model=model))
    held = f"{fast.facts.dtype}, {fast.facts.blas or 'bundled BLAS'}"
    made = [
        Peer("inspector", f"inspector ({held})", Ours(fast).measure),
        Peer("mlx_lm", f"mlx_lm ({held})", MlxLm(fast).measure),
    ]
    if model == "pocket":
        plain = load(LoadSettings(dtype="file", blas="bundled"))
        name = f"mlx_lm, as it comes ({plain.facts.dtype})"
        made.append(Peer("mlx_lm as it comes", name, MlxLm(plain).measure))
    threaded = (1, 2) if model == "pocket" else (1,)
    for threads in threaded if torch is not None and not fast.facts.quantized else ():
        peer = Transformers(fast.facts.path, threads)
        name = f"transformers (float32, torch, {threads} threads)"
        made.append(Peer(f"transformers {threads}", name, peer.measure))
    return made


def measured(made: Sequence[Peer], ids: list[int], steps: int, rounds: int) -> list[list[Taken]]:
    """Figures by peer and round; the first round isn't counted, and the order rotates."""
    found: list[list[Taken]] = [[] for _ in made]
    for turn in range(rounds + 1):
        for place in range(len(made)):
            which = (turn + place) % len(made)
            figures = made[which].measure(ids, steps)
            if turn:
                found[which].append(figures)
    return found


def measure(name: str, model: str, rounds: int) -> Figures:
    """Measure one model and print."""
    figures: Figures = {}
    made = peers(model)
    text = load(LoadSettings(model=model)).tokens.encode(run.PROMPT + " ")
    ids = (text * (CONTEXT // len(text) + 1))[:CONTEXT]
    found = measured(made, ids, STEPS, rounds)
    print(f"{name:56}" + "".join(f"{each:>22}" for each in NAMES))
    for peer, taken in zip(made, found, strict=True):
        cells = [_cell([each[of] for each in taken], [each[of] for each in found[0]]) for of in NAMES]
        print(f"  {peer.name:54}" + "".join(f"{cell:>22}" for cell in cells))
        figures |= {f"{name} {peer.key} {of}": statistics.median(each[of] for each in taken) for of in NAMES}
    return figures


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {} if torch is None else {"torch": ".".join(torch.__version__.split(".")[:2])}
    for name, model in asked.each(*MODELS):
        figures |= measure(name, model, asked.times(7))
    return figures


def _cell(theirs: Sequence[float], ours: Sequence[float]) -> str:
    ratio = statistics.median(peer / own for peer, own in zip(theirs, ours, strict=True))
    return f"{statistics.median(theirs):.1f} ({ratio:.2f} x)"


if __name__ == "__main__":
    by_command(main, __doc__)
