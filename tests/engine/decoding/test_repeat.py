"""A reply generated again as mlx_lm.server generates it: the same tokens as its own loop, for a seed too."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from engine.decoding.repeat import repeat_reply
from engine.errors import Cancelled, StepError
from engine.inside.interventions import hold
from engine.protocol import HoldInterventions, Intervention, RepeatReply, ReplyRepeated
from engine.session.context import Context
from engine.session.session import Session
from engine.settings import Settings
from engine.task import Task
from tests.engine.sessions import begun
from tests.zoo import Zoo

PROMPT = "Once upon a time there was"


def asked(
    session: Session, loaded: Any, command: RepeatReply, cancelled: bool = False
) -> list[ReplyRepeated]:
    context, task = Context(print), Task(command)
    context.loaded, context.opened = loaded, session
    if cancelled:
        task.cancel.set()
    return list(repeat_reply(context, command, task))


def repeated(loaded: Any, settings: Settings, **more: Any) -> ReplyRepeated:
    session = begun(loaded, PROMPT, settings)
    before = session.node, session.kv.offset, session.next
    *_, last = asked(session, loaded, RepeatReply(session.node, **more))
    assert last.last
    assert (session.node, session.kv.offset, session.next) == before
    return last


def by_mlx_lm(loaded: Any, settings: Settings, seed: int | None, cached: int = 0) -> list[tuple[int, float]]:
    """What the server's own calls give, with a part of the prompt in its cache already."""
    ids = mx.array(loaded.tokens.encode(PROMPT))
    cache = make_prompt_cache(loaded.model)
    if cached:
        mx.eval(loaded.model(ids[None, :cached], cache=cache))
    if seed is not None:
        mx.random.seed(seed)
    sampler = make_sampler(
        settings.temp, top_p=settings.top_p, top_k=settings.top_k, min_p=settings.min_p,
        xtc_probability=settings.xtc_probability, xtc_threshold=settings.xtc_threshold,
        xtc_special_tokens=list(loaded.tokens.spared),
    )  # fmt: skip
    processors = make_logits_processors(
        dict(settings.logit_bias) or None, settings.repetition_penalty, settings.repetition_context_size,
        settings.presence_penalty, settings.presence_context_size, settings.frequency_penalty,
        settings.frequency_context_size,
    )  # fmt: skip
    made = generate_step(
        ids[cached:], loaded.model, max_tokens=settings.max_tokens, sampler=sampler, logits_processors=processors,
        prompt_cache=cache,
    )  # fmt: skip
    found = []
    for token, row in made:
        found.append((int(token), float(row[token])))
        if token in loaded.tokens.eos_ids:
            break
    return found


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    ("settings", "seed"),
    [
        (Settings(max_tokens=20), None),
        (Settings(max_tokens=20, temp=1.0), 7),
        (Settings(max_tokens=20, temp=0.7, top_p=0.9, min_p=0.02), 11),
        (Settings(max_tokens=20, temp=1.2, top_k=30, xtc_probability=0.5, xtc_threshold=0.05), 3),
        (Settings(max_tokens=20, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2), None),
        (Settings(max_tokens=20, temp=0.9, logit_bias=((300, 4.0), (12, -5.0))), 2),
    ],
)
def test_the_tokens_and_logprobs_are_those_of_mlx_lm(zoo: Zoo, settings: Settings, seed: int | None) -> None:
    loaded = zoo.load("pocket")
    got = repeated(loaded, settings, seed=seed)
    assert list(zip(got.ids, got.logprobs, strict=True)) == by_mlx_lm(loaded, settings, seed)
    again = repeated(loaded, settings, seed=seed)
    assert again == got


def test_penalties_see_what_was_not_cached_alone(zoo: Zoo) -> None:
    loaded, settings = zoo.load("pocket"), Settings(max_tokens=16, repetition_penalty=3.0)
    cached = len(loaded.tokens.encode(PROMPT)) - 1
    got, whole = repeated(loaded, settings, cached=cached), repeated(loaded, settings)
    assert list(zip(got.ids, got.logprobs, strict=True)) == by_mlx_lm(loaded, settings, None, cached)
    assert got.ids != whole.ids


def test_given_tokens_are_taken_and_their_margins_told(zoo: Zoo) -> None:
    loaded = zoo.load("pocket")
    free = repeated(loaded, Settings(max_tokens=6))
    assert all(margin > 0 for margin in free.margins)  # greedy takes the largest
    given = (free.ids[0], 300, 301)
    got = repeated(loaded, Settings(max_tokens=50), ids=given)
    assert got.ids == given
    assert got.logprobs[0] == free.logprobs[0]
    assert got.margins[1] < 0 > got.margins[2]
    session = begun(loaded, PROMPT)
    for token, logprob, margin in zip(got.ids, got.logprobs, got.margins, strict=True):
        step = session.step(token, "served")
        assert step.logprob == pytest.approx(logprob, abs=1e-3)
        best = max(each.logprob for each in step.choice.candidates if each.id != token)
        assert logprob - margin == pytest.approx(best, abs=1e-3)


def test_a_stop_ends_it_at_its_tokens(zoo: Zoo) -> None:
    loaded = zoo.load("pocket")
    free = repeated(loaded, Settings(max_tokens=12))
    word = loaded.tokens.join([free.ids[5]])
    got = repeated(loaded, Settings(max_tokens=12, stop=(word,)))
    assert got.ids == free.ids[: free.ids.index(free.ids[5]) + 1]


def test_what_can_not_be_repeated_is_refused(zoo: Zoo) -> None:
    loaded = zoo.load("pocket")
    with pytest.raises(StepError, match="Without a seed"):
        repeated(loaded, Settings(temp=1.0))
    session = begun(loaded, PROMPT)
    with pytest.raises(StepError, match="no token number 99"):
        asked(session, loaded, RepeatReply(99))
    with pytest.raises(StepError, match="fewer than 99 tokens"):
        repeated(loaded, Settings(), cached=99)
    with pytest.raises(Cancelled):
        asked(session, loaded, RepeatReply(session.node), cancelled=True)
    list(hold(session, HoldInterventions(session.node, (Intervention("mlp", 0),))))
    session.step()
    with pytest.raises(StepError, match="can't compute interventions"):
        asked(session, loaded, RepeatReply(session.node))
