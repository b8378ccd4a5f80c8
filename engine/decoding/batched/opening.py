"""What a batch begins with: encoded prompts, rows for them, and the memory that they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from engine.cache.kinds import padded
from engine.decoding.batched.lane import Batched, Lane
from engine.decoding.batched.rows import Begin, LaneRows, PaddedRows, SingleRows
from engine.errors import StepError
from engine.model.forward import Runner
from engine.model.memory import free_bytes
from engine.model.rounding import rounding_of
from engine.protocol import LaneOpened, LanePrompt, PreviewPrompt
from engine.sampling.ranking import Row
from engine.session.conversation import encoded
from engine.session.session import Session
from engine.settings import BY_NAME, Settings, check, differences

LARGEST = 256
"""Lanes at once at most."""
MEMORY_SHARE = 0.8
"""Of the free memory, what the KV of a batch may take."""
PROBE = 12
"""Tokens of the longer prompt of the check; the other one has a third."""


def open_lanes(session: Session, shared: Batched, prompts: Sequence[LanePrompt], first: int) -> list[Lane]:
    """Encode prompts and make their lanes.

    Args:
        session: Its model, and the settings of prompts that have none of their own; not changed.
        shared: What the lanes share.
        prompts: One a lane.
        first: Number of the first lane.

    Raises:
        PromptError: One can't be encoded, is empty or too long.
        SettingsError: A setting is out of its range, or its grammar can't be used.
    """
    made: list[Lane] = []
    for number, prompt in enumerate(prompts, first):
        known = encoded(
            session, PreviewPrompt(prompt.text, prompt.chat, prompt.system, options=prompt.options)
        )
        session.check_prompt(known.ids, 0)
        settings = check(prompt.settings or session.settings, session.facts.vocabulary)
        if settings.grammar is not None:
            shared.node_reader.grammars.compiled(settings.grammar)
        own = tuple(_own(session.settings, settings))
        opened = LaneOpened(number, known.text, tuple(known.ids), settings.seed, 0, known.notes, own)
        node = shared.tree.add_prompt(0, known.ids)[-1]
        made.append(Lane(shared, opened, settings, node))
    return made


def _own(usual: Settings, own: Settings) -> Iterator[str]:
    """In words, the settings in which a lane differs."""
    for name, (_, value) in differences(usual, own).items():
        if name == "grammar":
            yield f"grammar {own.grammar.summary}" if own.grammar is not None else "no grammar"
        elif name != "seed":
            yield f"{BY_NAME[name].label} {BY_NAME[name].format(value) or 'none'}"


def not_together(runner: Runner, dtype: str, ids: Sequence[int]) -> str:
    """Why the lanes of a model can't go through it together; empty where they can.

    Wrong KV is silent, and nothing says whether a model's own code takes rows of different padding: so two prompts are
    run both ways, and the logits compared. This takes some short forwards.

    Args:
        runner: Of the model.
        dtype: Of its computation.
        ids: Some tokens to try it with.
    """
    kv = runner.fresh().kv
    why = next(filter(None, map(padded.refusal, kv.caches)), "")
    if not why and kv.chunks_matter:
        why = "its KV cache is quantized, which mlx_lm does for one sequence alone"
    return why or _unlike(runner, dtype, ids)


def _unlike(runner: Runner, dtype: str, ids: Sequence[int]) -> str:
    """Why several padded rows don't give what each gives alone; empty where they do."""
    longer = (list(ids) * PROBE)[:PROBE]
    prompts = [longer, longer[: PROBE // 3]]
    try:
        batched = _tried(PaddedRows(runner), prompts)
    except (ValueError, TypeError, RuntimeError, IndexError, AttributeError) as error:
        return f"the model's code takes no rows of different lengths ({type(error).__name__})"
    alone = _tried(SingleRows(runner), prompts)
    apart = max(float(np.abs(one - other).max()) for one, other in zip(batched, alone, strict=True))
    if apart <= rounding_of(np.concatenate(alone), dtype):
        return ""
    return f"batched, the model's logits differ by {apart:.2g}, which rounding doesn't explain"


def _tried(rows: LaneRows, prompts: Sequence[Sequence[int]]) -> list[Row]:
    """The logits after each prompt, and after one token more."""
    first = read_prompts(rows.begin(prompts))
    return [*first, *rows.forward([prompt[0] for prompt in prompts])]


def read_prompts(prefill: Begin) -> list[Row]:
    """Run a prefill to its end; returns the logits after each prompt."""
    while True:
        try:
            next(prefill)
        except StopIteration as stop:
            found: list[Row] = stop.value
            return found


# ---- memory -----------------------------------------------------------------------------------


def check_room(runner: Runner, lanes: Sequence[tuple[int, Settings]], size: int) -> None:
    """Refuse a batch whose KV doesn't fit the memory that is free.

    Args:
        runner: Of the model; a forward of one token tells what a token takes.
        lanes: Of each lane the tokens of its prompt, and its settings.
        size: Lanes at once.

    Raises:
        StepError: It doesn't fit, or the number of lanes is out of range.
    """
    if not 1 <= size <= LARGEST:
        raise StepError(f"{size} lanes at once are out of range.", f"Give 1 to {LARGEST}.")
    free = free_bytes()
    probe = runner.fresh()
    probe.forward(0)
    each = probe.kv.bytes_per_token() or 0
    at_once = min(size, len(lanes))
    columns = max((tokens + settings.max_tokens for tokens, settings in lanes), default=0)
    needed = at_once * columns * each
    if free is not None and needed > MEMORY_SHARE * free:
        raise StepError(
            f"{at_once} lanes of up to {columns:,} tokens need {needed / 2**30:.1f} GiB of KV; "
            f"{free / 2**30:.1f} GiB are free.",
            "Take fewer lanes at once, or lower max tokens.",
        )
