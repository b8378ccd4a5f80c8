"""The prompts of a tree, apart from the timeline that they are part of."""

from __future__ import annotations

from msgspec.structs import replace

from engine.model.load import load
from engine.protocol import NO_SEGMENTS, AddTurn, Message, Prefill, PromptOpened
from engine.session import conversation
from engine.session import session as engine_session
from engine.settings import LoadSettings, Settings
from engine.task import never
from inspector.state.timeline import Prompts, Timeline
from tests.inspector.fakes import PROMPT, Session, session


def test_a_prompt_is_held_as_far_as_its_chunks_go() -> None:
    made = Session()
    made.load()
    opened = made.begin()
    timeline = made.timeline()
    prompts = timeline.prompts
    assert (prompts.opened, prompts.prefilled, prompts.chunks) == (opened, None, [])
    assert timeline.held == prompts.held(len(PROMPT)) == opened.held == 0
    chunk = made.chunk(opened, 3)
    timeline.apply(chunk)
    assert prompts.chunks == [chunk]
    assert timeline.held == prompts.held(len(PROMPT)) == 3
    assert prompts.kv == {item.node: chunk.kv for item in timeline.items[:3]}
    prefilled = made.prefilled(opened)
    timeline.apply(prefilled)
    assert prompts.prefilled == prefilled
    assert not prompts.reading
    assert timeline.held == len(PROMPT)


def test_tokens_that_two_prompts_share_have_the_readings_of_the_one_on_show() -> None:
    made = session(0)
    timeline = made.timeline()
    first = timeline.tip
    made.node = timeline.items[0].node
    tokens = (timeline.items[0], made._prompt_token(1, " a"))
    opened = PromptOpened("Once a", False, tokens, True, new_tree=False, held=1)
    for record in (opened, made.chunk(opened, 2), made.prefilled(opened)):
        timeline.apply(record)
    shared = tokens[0].node
    assert timeline.prompts.kv[shared].offset == 2
    timeline.apply(made.move(first))
    assert timeline.items[0].node == shared
    assert timeline.prompts.kv[shared].offset == 3


def test_a_prompt_that_the_cache_holds_has_no_chunk_and_its_tokens_the_reading_of_its_end() -> None:
    made = session(0)
    timeline = made.timeline()
    nodes = [item.node for item in timeline.items]
    opened = PromptOpened("Once", False, tuple(timeline.items), True, new_tree=False, held=len(nodes) - 1)
    prefilled = made.prefilled(opened)
    for record in (opened, prefilled):
        timeline.apply(record)
    assert timeline.prompts.chunks == []
    assert timeline.prompts.kv == dict.fromkeys(nodes, prefilled.kv)


def test_without_a_prompt_all_is_held() -> None:
    prompts = Prompts()
    assert (prompts.opened, prompts.prefilled, prompts.chunks, prompts.held(0)) == (None, None, [], 0)


def test_what_comes_after_a_snapshot_changes_nothing_in_it() -> None:
    made = Session()
    made.load()
    opened = made.begin()
    timeline = made.timeline()
    timeline.apply(made.chunk(opened, 3))
    taken = timeline.prompts.snapshot()
    assert taken == timeline.prompts
    assert taken.current is next(iter(taken.by_end.values()))
    timeline.apply(made.chunk(opened, 4))
    timeline.apply(made.prefilled(opened))
    assert len(taken.chunks) == 1
    assert len(taken.kv) == 3
    assert (taken.prefilled, taken.reading) == (None, True)


def test_a_refusal_is_kept_until_a_prompt_is_taken() -> None:
    made = Session()
    made.load()
    timeline = made.timeline()
    refused = made.fail("The prompt is empty.", "Give some text.", "Prefill")
    timeline.apply(refused)
    assert timeline.prompts.failure == refused
    timeline.apply(made.begin())
    assert timeline.prompts.failure is None


def test_a_new_tree_begins_without_the_prompts_of_the_last_one() -> None:
    made = session(2)
    timeline = made.timeline()
    before = timeline.prompts.current
    timeline.apply(made.begin())
    assert len(timeline.prompts.by_end) == 1
    assert timeline.prompts.current is not before
    assert timeline.prompts.kv == {}


# ---- roles --------------------------------------------------------------------------------------


def text_before(timeline: Timeline, slot: int) -> str:
    return "".join(item.text for item in timeline.items[:slot])


def test_a_word_of_the_template_is_no_message() -> None:
    session, timeline = engine_session.Session(load(LoadSettings()), Settings(temp=0.0)), Timeline()
    for record in conversation.prompt(session, Prefill("a", chat=True, system="s"), never):
        timeline.apply(record)
    slots = timeline.prompts.roles(timeline.items)
    assert [*slots.values()] == ["system", "user", "assistant"]
    assert [text_before(timeline, slot).rpartition("<|im_start|>")[2] for slot in slots] == [
        "system\n",
        "user\n",
        "assistant\n",
    ]
    timeline.apply(session.step())
    history = (Message("system", "s"), Message("user", "a"))
    for record in conversation.add_turn(session, AddTurn("assistant", history, differing="path"), never):
        timeline.apply(record)
    slots = timeline.prompts.roles(timeline.items)
    assert [*slots.values()] == ["system", "user", "assistant", "user", "assistant"]
    assert text_before(timeline, [*slots][3]).endswith("<|im_start|>user\n")


def test_an_older_recording_shows_what_is_certain() -> None:
    session, timeline = engine_session.Session(load(LoadSettings()), Settings(temp=0.0)), Timeline()
    for record in conversation.prompt(session, Prefill("a", chat=True, system="Be kind."), never):
        old = replace(record, segments=NO_SEGMENTS) if isinstance(record, PromptOpened) else record
        timeline.apply(old)
    slots = timeline.prompts.roles(timeline.items)
    assert [*slots.values()] == ["system", "assistant"], "a is in more than one place"
    assert text_before(timeline, next(iter(slots))).endswith("system\n")


def test_a_prompt_over_decoded_tokens_has_them_on_its_own_paths_alone() -> None:
    made = session(4)
    timeline = made.timeline()
    before, steps = [*timeline.items], timeline.steps
    over = [made._prompt_token(place, item.raw.decode()) for place, item in enumerate(before[:-2])]
    tokens = tuple(replace(token, node=item.node) for token, item in zip(over, before, strict=False))
    made.node = tokens[-1].node
    more = made._prompt_token(len(tokens), " a")
    opened = PromptOpened("Once", False, (*tokens, more), False, new_tree=False)
    timeline.apply(opened)
    assert not timeline.steps
    assert timeline.items[-2].prob == steps[1].prob
    made.prompt_length = len(opened.tokens)
    for record in (made.prefilled(opened), made.step()):
        timeline.apply(record)
    (branch,) = [each for each in timeline.tree.branches if each.last == timeline.tip]
    assert [item.index for item in timeline.steps] == [0]
    assert timeline.completion_slots == [len(opened.tokens)]
    assert timeline.tree.completion(branch).tokens == 1
    timeline.apply(made.move(before[-1].node))
    assert timeline.items == before
    (branch,) = [each for each in timeline.tree.branches if each.last == timeline.tip]
    assert timeline.tree.completion(branch).tokens == 4
