"""Generates a reply of mlx_lm.server again, with mlx_lm's generator, sampler and processors, and MLX's random numbers.

The server seeds MLX's generator for a request that has a seed, and serves that request alone: the same weights in the
same dtypes give the same tokens. Other dtypes or shapes may round differently, and then a draw may differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
from mlx_lm.generate import generate_step, make_stop_sequences
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from engine.errors import Cancelled, StepError
from engine.protocol import RepeatReply, ReplyRepeated
from engine.session.context import Context
from engine.session.session import Session
from engine.task import Task
from engine.tree import ROOT

EVERY_SECONDS = 0.5
"""Seconds between two records."""
CHUNK = 2048
"""Tokens of the prompt in one forward pass, the server's default: other chunks may round differently."""


def repeat_reply(context: Context, command: RepeatReply, task: Task) -> Iterator[ReplyRepeated]:
    """Generate after a node as mlx_lm.server does, with the session's settings; the session doesn't change.

    Yields:
        A record of all tokens so far, twice a second and at the end.

    Raises:
        StepError: There is no such node, it was computed under interventions, or the draws can't be repeated.
        Cancelled: The command was cancelled, before a chunk of the prompt or a token.
    """
    session, model = context.session, context.model.model
    settings, tokens = session.settings, session.tokens
    if command.node not in session.tree or command.node == ROOT:
        raise StepError(f"There is no token number {command.node} to continue from.", "Begin with a prompt.")
    if session.tree[command.node].intervention_set:
        raise StepError(
            "mlx_lm's generator can't compute interventions.", "Go to a branch without interventions."
        )
    if settings.temp and command.seed is None and not command.ids:
        raise StepError("Without a seed the draws of a server can't be repeated.", "Give the request a seed.")
    if not 0 <= command.cached < session.tree[command.node].depth:
        raise StepError(
            f"The prompt has fewer than {command.cached} tokens before its last one.", "Give fewer."
        )
    tokens.check(command.ids)
    path, cache = session.tree.tokens(command.node), make_prompt_cache(model)

    def poll(done: int = 0, total: int = 0) -> None:
        if task.cancel.is_set():
            raise Cancelled

    for begin in range(0, command.cached, CHUNK):
        poll()
        mx.eval(model(mx.array(path[begin : min(begin + CHUNK, command.cached)])[None], cache=cache))
    if command.seed is not None:
        mx.random.seed(command.seed)
    # the part of a tokenizer that `make_stop_sequences` needs
    encoder = SimpleNamespace(
        eos_token_ids=tokens.eos_ids,
        encode=lambda text, add_special_tokens: tokens.encode(text, bare=not add_special_tokens),
    )
    stops = make_stop_sequences(encoder, () if command.ids else settings.stop).matcher()
    ids: list[int] = []
    logprobs: list[float] = []
    margins: list[float] = []

    def record(last: bool) -> ReplyRepeated:
        raws = tuple(map(tokens.raw, ids))
        return ReplyRepeated(command.node, tuple(ids), tuple(logprobs), tuple(margins), raws, last)

    processors = make_logits_processors(
        dict(settings.logit_bias) or None,
        settings.repetition_penalty,
        settings.repetition_context_size,
        settings.presence_penalty,
        settings.presence_context_size,
        settings.frequency_penalty,
        settings.frequency_context_size,
    )
    shown = time.perf_counter()
    for token, row in generate_step(
        mx.array(path[command.cached :]),
        model,
        max_tokens=len(command.ids) or settings.max_tokens,
        sampler=_sampler(session, command.ids),
        logits_processors=processors,
        prompt_cache=cache,
        prefill_step_size=CHUNK,
        prompt_progress_callback=poll,
    ):
        two: list[float] = np.array(mx.topk(row.astype(mx.float32), 2)).tolist()
        own, largest = float(row[int(token)]), max(two)
        ids.append(int(token))
        logprobs.append(own)
        margins.append(own - (largest if own < largest else min(two)))
        if stops.advance(token) and not command.ids:
            break
        poll()
        if time.perf_counter() - shown > EVERY_SECONDS:
            yield record(last=False)
            shown = time.perf_counter()
    yield record(last=True)


def _sampler(session: Session, ids: Sequence[int]) -> Callable[[mx.array], mx.array]:
    """The sampler as mlx_lm.server makes it, or one that takes given tokens one after another."""
    settings = session.settings
    if ids:
        given = iter((*ids, ids[-1]))  # the generator asks for one more than it yields
        return lambda logprobs: mx.array([next(given)])
    made: Callable[[mx.array], mx.array] = make_sampler(
        settings.temp,
        top_p=settings.top_p,
        top_k=settings.top_k,
        min_p=settings.min_p,
        xtc_probability=settings.xtc_probability,
        xtc_threshold=settings.xtc_threshold,
        xtc_special_tokens=list(session.tokens.spared),
    )
    return made
