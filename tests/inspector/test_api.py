"""The Python interface: it gives out what the command line does, and leaves every session sound."""

from __future__ import annotations

import gc
import html
import io
import json
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import mlx_inspector
from engine import protocol
from engine.errors import EngineError, LoadError, PathError, PromptError, SettingsError, StepError
from inspector import api
from inspector.cli.main import main
from inspector.session.client import EngineClient
from mlx_inspector import Session, compare, open, train
from tests import templates
from tests.inspector.cli.scripted import of_kind

STORY = "Once upon a time"
SAMPLED = {"temp": 0.8, "seed": 7}
SAID = {"role": "user", "content": "Hello"}


@pytest.fixture(scope="module", autouse=True)
def held() -> Iterator[None]:
    """A session on the bundled model, whose weights all others then share: none reads them again."""
    with open("pocket", prompt="A"):
        yield


@pytest.fixture
def story() -> Iterator[Session]:
    with open("pocket", prompt=STORY, **SAMPLED) as session:
        yield session


def alone(prompt: str, count: int, **settings: float) -> list[int]:
    """The ids of a run in a session of its own."""
    with open(prompt=prompt, **settings) as session:
        return [step.id for step in session.run(count)]


# ---- the first lines that one writes ------------------------------------------------------------


def test_the_lines_of_the_first_page_do_what_they_say(story: Session, tmp_path: Path) -> None:
    s = story
    seen = [(step.text, step.prob, step.rank, step.entropy_bits, step.top(5)) for step in s.run(20)]
    assert "".join(text for text, *_ in seen) == s.text
    b = s.at(13).take(" cat").run(10)
    assert b.text.startswith("".join(step.text for step in s.steps[:12]) + " cat")
    assert (len(b.new), len(b.steps), len(s.steps)) == (10, 23, 20)
    compared = compare(s, b)
    assert re.search(r"logprob -\d+\.\d\d of 8 tokens against -\d+\.\d\d of 11 tokens>", repr(compared))
    assert (compared.shared, compared.step) == (len(s.ids) - 20 + 12, 13)
    assert "in common, different from step 13 on, then" in repr(compared)
    assert repr(s.at(13)).endswith(f", before step 13 “{s.steps[12].text}”>")
    assert compared.logprobs == pytest.approx(
        (sum(each.logprob for each in s.steps[12:]), sum(each.logprob for each in b.steps[12:]))
    )
    assert s.at(13).sampler().picked == s.steps[12].id
    assert s.at(13).sampler(temp=0.0).picked == s.steps[12].top(1)[0].id
    other = s.what_if(temp=3.0)
    assert 0 < len(other.differing) <= 20
    for step, picked, text in other.differing:
        assert other.record.steps[step - 1].picked == picked != s.steps[step - 1].id
        assert text in other._repr_html_()
    assert repr(s.at(other.differing[-1])) == repr(s.at(other.differing[-1].step))
    assert repr(s.steps[12]).startswith("<Step 13 "), "as on the screen, and as `at` counts"
    sad = s.at(13).gradients(integrated=False)
    assert sum(each.value for each in sad.shares) == pytest.approx(sad.record.total)
    assert (len(sad.top(2)), sad.residual) == (2, None)
    assert "background" in sad._repr_html_()
    attention = s.at(13).attention()
    assert all(error <= bound for error, bound in attention.check.values())
    assert np.allclose(attention.weights(0).sum(axis=1), 1, atol=1e-3)
    assert "previous-token head" in repr(s.heads())
    assert len(s.heads().heads) == len(s.heads(texts=1, length=5).heads) == 8 * 4
    other = s.at(13).take(" cat")
    first, second = s.at(12).sampler().top(2)
    patched = s.at(14).patching(other, first.id, second.id)
    assert patched.share(patched.layers[-1], patched.columns[-1].position) == pytest.approx(1, abs=1e-2)
    last = patched.columns[-1].position
    faced = s.at(14).patching(other, first.id, second.id, "mlp", ((last, last),))
    assert (faced.aligned, [each.position for each in faced.columns]) == (True, [last])
    over = s.patch_pairs([("The dog ran", "The cat sat"), ("same", "same")])
    assert [bool(each.failure) for each in over.pairs] == [False, True]
    scores = s.at(13).scores(4, 2)
    assert all(error <= bound for error, bound in scores.check.values())
    key, second = sorted(scores.weights, key=lambda each: -scores.weights[each])[:2]
    real = scores.record.scores.row()
    whole = real[scores.record.keys.index(key)] - real[scores.record.keys.index(second)]
    assert sum(scores.in_key(key, second).values()) == pytest.approx(whole, abs=1e-4)
    assert sum(scores.in_query(key, second).values()) == pytest.approx(whole, abs=1e-4)
    assert scores.why().startswith("L5 h3 looks at ")
    assert scores.why() == repr(scores).removeprefix("<Scores: ")[:-1] == scores.why(key)
    assert s.at(13).moved(0).kl_bits == pytest.approx(0, abs=1e-6)
    assert s.at(13).moved(5).kl_bits > 0.001
    assert [text for text, _, _ in s.at(13).moved(5).tokens[:1]] == [s.at(13).sampler().top(1)[0].text]
    assert s.at(13).lens().tokens[-1][0] == s.at(13).sampler().top(1)[0].text
    step, against = s.steps[12], [s.steps[12].id, *(each.id for each in s.steps[12].top(2))]
    compared_with = [each.id for each in s.at(13).contributions().record.tokens]
    assert compared_with == [*dict.fromkeys(against)][:2], "as on the screen"
    assert [each.id for each in s.at(13).contributions(alone=True).record.tokens] == [step.id]
    added = s.at(13).contributions(" cat", against=" dog")
    assert sum(added.parts.values()) == pytest.approx(added.record.total, abs=1e-4)
    assert len(added.heads) == 32
    rows = s.map().rows
    assert next(row for row in rows if row["hooks"] == "hook_embed")["parameters"] == 4096 * 256
    with s.off("blocks.5.attn.hook_z[0]"):
        named = s.at(13).run(20)
    with s.off("L6 h1"):
        changed = s.at(13).run(20)
    assert named.ids == changed.ids
    assert [step.id for step in changed.steps[:12]] == [step.id for step in s.steps[:12]]
    assert len(changed.new) == 20 or changed.finished
    assert s.save(tmp_path / "x.trace").exists()
    page = s.to_html(tmp_path / "x.html")
    assert "max tokens" not in page, "nobody set a limit"
    assert (tmp_path / "x.html").read_text("utf-8") == page
    for view in (
        "Where the model looked",
        "Tokens behind “",
        "Why L5 h3 looks there",
        "With whole layers put in from",
        "With MLPs put in from",
        "over 1 pair of texts",
        "What if the token had another position",
        "What the model is made of",
    ):
        assert view in page
    with pytest.raises(StepError, match="no terminal"):
        s.screen()


@pytest.mark.slow
def test_a_direction_is_made_saved_and_steers(tmp_path: Path) -> None:
    pairs = [("Lily was very happy. She smiled and", "Lily was very sad. She cried and")]
    with open("pocket", prompt="Lily felt very", temp=0.0) as s:
        made = s.direction(pairs, 3)
        assert made.record.name == "happy-sad"
        assert np.linalg.norm(made.vector) > 1
        path = tmp_path / "happy.safetensors"
        made.save(path)
        swept = s.strengths(path, scope="context")
        assert swept.direction == made.record
        assert swept.facts.failed is None
        plain = s.run(6).text
        with s.steer(path, 0.0):
            assert s.at(1).run(6).text.endswith(plain)
        with s.steer(made, 4.0):
            steered = s.at(1).run(6)
        assert steered.text != plain
        label = s._line.timeline.under[0].label
        assert label == f"L4 +happy-sad x4 #{made.record.digest}"
        assert s.at(1).run(1).steps[-1].record.origin == "greedy"
        with pytest.raises(StepError, match="There is no layer 99"):
            s.direction(pairs, 99)
        with pytest.raises(EngineError, match="No such file"), s.steer(tmp_path / "none"):
            pass


def test_ids_and_readings_are_those_of_the_command_line(
    story: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--temp", "0.8", "--seed", "7", "--max-tokens", "40", "--ignore-chat-template", "--jsonl"]
    assert main(["generate", "-p", STORY, *flags]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told, made = of_kind(events, protocol.Step), list(story.run(40))
    assert [step.id for step in made] == [each.id for each in told]
    assert [step.logprob for step in made] == [each.logprob for each in told]
    assert [step.rank for step in made] == [each.rank for each in told]


@pytest.mark.parametrize("name", mlx_inspector.__all__)
def test_each_public_name_is_told_of(name: str) -> None:
    assert getattr(mlx_inspector, name).__doc__


# ---- runs ----------------------------------------------------------------------------------------


def test_a_run_goes_on_past_a_hundred_tokens_and_ends_with_the_text() -> None:
    with open(prompt=STORY, temp=1.0, seed=3) as session:
        run = session.run(400)
        assert run.finished == "eos" or len(run) == 400
        assert len(run) > 100 or run.finished
        if run.finished:
            assert len(session.run(5)) == 0, "the next story is another one"


@pytest.mark.wide(1)
@pytest.mark.parametrize("seen", [1, 5])
def test_a_loop_that_is_left_leaves_what_was_seen(story: Session, seen: int) -> None:
    whole = alone(STORY, 30, **SAMPLED)
    for count, _ in enumerate(story.run(200), 1):
        if count >= seen:
            break
    assert [step.id for step in story.steps] == whole[:seen]
    assert [step.id for step in story.run(30 - seen)] == whole[seen:]


def test_what_is_asked_inside_a_loop_is_answered_meanwhile(story: Session) -> None:
    picked = [(step.id, story._line.timeline.steps[step.index].id, step) for step in story.run(15)]
    assert [one for one, *_ in picked] == [other for _, other, _ in picked]
    asked = [story.at(step).sampler().picked for *_, step in picked]
    assert asked == [one for one, *_ in picked]
    line = story._line
    assert all(api.Branch(line, step.record.parent).sampler().picked == step.id for step in story.run(15))


def test_interrupted_it_is_sound_and_has_what_was_seen(tmp_path: Path) -> None:
    script = """
import _thread, threading
from mlx_inspector import open
s = open(prompt="Once upon a time", temp=0.8, seed=7)
seen = []
try:
    for step in s.run(100_000):
        seen.append(step.id)
        if len(seen) == 10:
            threading.Timer(0.05, _thread.interrupt_main).start()
        if step.record.position > 400:
            raise SystemExit("nothing came")
except KeyboardInterrupt:
    print([step.id for step in s.steps] == seen, len(s.run(3)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.returncode) == ("True 3\n", 0), done.stderr


async def test_async_loops_get_the_same_steps(story: Session) -> None:
    assert [step.id async for step in story.run(20)] == alone(STORY, 20, **SAMPLED)


# ---- several sessions --------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [12, pytest.param(500, marks=pytest.mark.slow)])
def test_sessions_on_one_model_don_t_disturb_each_other(moves: int) -> None:
    """Steps, branches and questions in turns by chance: each session is what it is alone."""

    def walk(session: Session, draw: random.Random) -> None:
        what = draw.random()
        if session.finished:
            session._went(session.at(1).node)
        elif what < 0.6 or not session.steps:
            session.run(draw.randint(1, 3)).wait()
        elif what < 0.75:
            session._went(session.at(draw.choice(session.steps)).node)
        elif what < 0.9:
            session.take(draw.choice([" cat", " and", 300])).run(2).wait()
        else:
            session.sampler(temp=draw.choice([0.5, 1.5]))

    def walked(count: int, seed: int, session: Session) -> Iterator[list[int]]:
        draw = random.Random(seed)
        for _ in range(count):
            walk(session, draw)
            yield session.ids

    prompts = {1: STORY, 2: "The big dog"}
    apart = {}
    for seed, prompt in prompts.items():
        with open(prompt=prompt, temp=0.8, seed=seed) as session:
            apart[seed] = list(walked(moves // 2, seed, session))
    with open(prompt=STORY, temp=0.8, seed=1) as one, open(prompt="The big dog", temp=0.8, seed=2) as two:
        turns = {1: walked(moves // 2, 1, one), 2: walked(moves // 2, 2, two)}
        came: dict[int, list[list[int]]] = {1: [], 2: []}
        order = [1, 2] * (moves // 2)
        random.Random(0).shuffle(order)
        for seed in order:
            came[seed].append(next(turns[seed]))
    assert came == apart


def test_threads_may_share_a_session(story: Session) -> None:
    failed: list[Exception] = []

    def ask() -> None:
        try:
            for place in range(10):
                assert story.at(place + 1).sampler().picked == story.steps[place].id
        except Exception as error:
            failed.append(error)

    story.run(10).wait()
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []


@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=pytest.mark.slow)])
def test_sessions_leave_nothing(count: int) -> None:
    """By hand, at the end of a block, and by the collector; the model stays while one session has it."""
    from engine.memory import resident, trim

    def use(number: int) -> None:
        session = open(prompt=STORY, temp=0.8, seed=number)
        session.run(3).wait()
        if number % 3 == 0:
            session.close()
        elif number % 3 == 1:
            with session:
                pass

    with open(prompt=STORY) as held:
        for number in range(count // 2):
            use(number)
        gc.collect()
        trim()
        held.run(1).wait()  # behind all that was left
        threads, before = threading.active_count(), resident()
        sessions = len(api._ENGINE._thread._receivers)  # type: ignore[union-attr]
        for number in range(count):
            use(number)
        gc.collect()
        trim()  # what waited for the collector has left holes
        held.run(1).wait()
        assert threading.active_count() == threads
        assert resident() - before < 24 * 2**20
        assert len(api._ENGINE._thread._receivers) == sessions  # type: ignore[union-attr]


# ---- traces and bad input ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_trace_opens_where_mlx_is_not(story: Session, tmp_path: Path) -> None:
    story.run(12).wait()
    story.save(tmp_path / "x.trace")
    script = f"""
import sys
sys.modules["mlx"] = sys.modules["mlx.core"] = None
from mlx_inspector import open, EngineError
s = open({str(tmp_path / "x.trace")!r})
try:
    s.run(1)
except EngineError as error:
    print(s.text == {story.text!r}, len(s.at(4).steps), error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("True 3 This session is a recording"), done.stderr


def run_without(session: Session, units: str) -> None:
    """Run with parts switched off."""
    with session.off(units):
        session.run(1).wait()


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (lambda s: open("no/such-model"), LoadError, "no directory no/such-model"),
        (lambda s: open(temp=-1), SettingsError, "temperature must be 0, or a number"),
        (lambda s: open(tempp=1), SettingsError, "Unknown setting “tempp”. Did you mean temp"),
        (lambda s: open(kv_bits=7), EngineError, "KV"),
        (lambda s: s.at(99), StepError, "There is no step 99. There are steps from 1 to 5."),
        (lambda s: s.at(-6), StepError, "There is no step -6."),
        (lambda s: s.at(0), StepError, "There is no step 0."),
        (lambda s: s.take(99_999), PromptError, "outside the model's vocabulary"),
        (lambda s: s.take(""), EngineError, ""),
        (lambda s: s.run(0), StepError, "Give a number from 1"),
        (lambda s: s.set(top_p=2), SettingsError, "top-p"),
        (lambda s: run_without(s, "L99 h1"), EngineError, "99"),
        (lambda s: s.off("no").__enter__(), StepError, "'no' is not a unit: write L6 h1, L3 mlp or L4."),
        (lambda s: compare(s, open(prompt="A")), StepError, "two sessions"),
        (lambda s: s.gradients(" a big dog"), PromptError, "is 3 tokens, not one"),
        (lambda s: s.experts(), StepError, "has neither experts nor recurrent layers"),
        (lambda s: s.off("blocks.3.attn.hook_pattern").__enter__(), StepError, "These can: hook_z"),
        (lambda s: s.attention().weights(99), StepError, "Layer 99 has no attention"),
        (
            lambda s: s.scores(99),
            StepError,
            "There is no layer 99: the model has 8. They count from 0: give 0 to 7, L1 to L8",
        ),
        (lambda s: s.scores(-1, 0), StepError, "There is no layer -1: the model has 8."),
        (lambda s: s.scores(4, 99), StepError, "L5 has 4 heads: there is no h100. Choose h1 to h4."),
        (
            lambda s: s.scores(4, 2, (9999,)),
            StepError,
            "There is no token 9999: the path has 9. They count from 0",
        ),
        (lambda s: s.scores(1).why(9999), StepError, "Token 9999 is not among the keys"),
        (lambda s: s.direction([("a", "b")], 8), StepError, "give 0 to 7, L1 to L8 of the screen."),
        (lambda s: s.off("L99 h1"), StepError, "There is no L99 h1: the model has 8 layers."),
        (lambda s: s.off("L1, blocks.8.hook_mlp_out"), StepError, "There is no blocks.8.hook_mlp_out"),
        (lambda s: s.merges("a cat").ladder(2), StepError, "There is no word 2: the text has 2."),
        (lambda s: open(prompt="A").at(0), StepError, "There are no steps yet. Take some first: run(10)."),
        (lambda s: s.patching(open(prompt="The dog"), 12, 13), StepError, "branches of two sessions"),
        (lambda s: s.patching(s.at(3), " a big dog", 13), PromptError, "is 3 tokens, not one"),
        (
            lambda s: s.moved(3, "x"),
            EngineError,
            "moved(change=...) must be 'token', 'path' or 'mask', not 'x'.",
        ),
        (
            lambda s: s.moved("x"),
            EngineError,
            "moved(offset=...) must be a whole number, not 'x'. help(mlx_insp",
        ),
        (lambda s: s.moved(2**40), StepError, "The offset +1,099,511,627,776 is too large."),
        (lambda s: s.take(s.at(3).run(1)), EngineError, "must be a whole number or a text, not a Run."),
        (
            lambda s: s.set(seed=1.5),
            SettingsError,
            "seed must be a whole number from 0 to 18446744073709551615, n",
        ),
        (lambda s: s.set(stop=[1]), SettingsError, "stop must be a list of texts, not a list with 1 in it."),
        (lambda s: s.set(stop=["\ud800"]), SettingsError, "stop string is not valid Unicode."),
        (lambda s: s.set(grammar="x"), SettingsError, "must be a Grammar of engine.grammar_settings or None"),
        (lambda s: s.to_html("no/such.html"), PathError, "There is no directory no"),
        (lambda s: train(layers=99), SettingsError, "layers must be a whole number from 1 to 12, not 99."),
        (lambda s: open(prompt=3), EngineError, "open(prompt=...) must be a text or None, not 3."),
        (lambda s: open().run(1).wait(), EngineError, ""),
        (
            lambda s: open(messages=[SAID, {"role": "user"}]),
            PromptError,
            "The conversation, message 2 has no content.",
        ),
        (
            lambda s: open(messages=[{"content": "Hello"}]),
            PromptError,
            "The conversation, message 1 has no role.",
        ),
        (lambda s: open(messages=[]), PromptError, "The conversation has an empty list of messages."),
        (lambda s: open(messages=[{**SAID, "content": 5}]), EngineError, "not a list with 5 in it."),
        (lambda s: open(prompt="x", messages=[SAID]), PromptError, "messages and a prompt were both given."),
        (lambda s: open(messages=[SAID], system="x"), PromptError, "messages and a system message were both"),
        (lambda s: open(prompt="x", system="y", chat=False), PromptError, "needs the chat template."),
    ],
)
def test_what_is_wrong_is_said_and_the_session_stays(
    story: Session, wrong: Callable[[Session], object], kind: type[EngineError], words: str
) -> None:
    before = [step.id for step in story.run(5)]
    with pytest.raises(kind) as raised:
        wrong(story)
    assert words in str(raised.value)
    assert [step.id for step in story.steps] == before
    assert len(story.run(2)) == 2


def test_numbers_may_be_those_of_numpy(tmp_path: Path) -> None:
    """What they come to is what Python's own come to, and can be saved."""

    def ids(**given: Any) -> list[int]:
        with open(prompt=STORY, **given) as session:
            session.run(6).take(given["top_k"])
            session.moved(given["seed"])
            session.direction([("happy", "sad")], given["seed"])
            session.scores(4, 2, [given["seed"]])
            assert session.save(tmp_path / "x.trace", force=True).exists()
            return [*session.ids, *open(tmp_path / "x.trace").ids]

    plain = ids(temp=0.5, seed=3, top_k=5, logit_bias=[(11, -100.0)])
    numpy = {
        "temp": np.float32(0.5),
        "seed": np.int64(3),
        "top_k": np.uint8(5),
        "logit_bias": {np.int32(11): -100},
    }
    assert ids(**numpy) == plain


def test_a_step_of_any_branch_is_gone_back_to_on_that_branch(story: Session) -> None:
    story.run(8).wait()
    side = story.at(4).take(" cat").run(6).wait()
    assert side.steps[5] != story.steps[5]
    assert story.at(side.steps[5]).ids == side.at(6).ids != story.at(6).ids
    with open(prompt="The dog", **SAMPLED) as other:
        step = next(iter(other.run(3)))
        with pytest.raises(StepError, match="This is a step of another session"):
            story.at(step)


def test_the_first_and_the_last_are_there_and_nothing_beyond(story: Session) -> None:
    places = len(story.run(1).ids)
    for layer, head in ((0, 0), (0, 3), (7, 0), (7, 3)):
        scores = story.scores(layer, head, keys=[0, places - 1])
        assert scores.why().startswith(f"L{layer + 1} h{head + 1} looks at ")
        assert {0, places - 1} <= set(scores.weights)
    for layer, head, keys in (
        (-1, 0, ()),
        (8, 0, ()),
        (0, -1, ()),
        (0, 4, ()),
        (0, 0, [-1]),
        (0, 0, [places]),
    ):
        with pytest.raises(StepError, match=r"[Tt]here is no "):
            story.scores(layer, head, keys)
    attention = story.attention()
    assert attention.weights(0).shape == attention.weights(7).shape
    for layer in (-1, 8):
        with pytest.raises(StepError):
            attention.weights(layer)


def test_no_step_or_sampler_has_fewer_candidates_than_none(story: Session) -> None:
    story.run(1).wait()
    for each in (story.steps[0], story.at(1).sampler(), story.gradients(integrated=False)):
        assert each.top(-2) == each.top(0) == []


@pytest.mark.parametrize("kind", [protocol.AttentionRead, protocol.Ended])
def test_a_record_that_can_t_be_taken_in_fails_its_call_and_no_other(
    story: Session, tmp_path: Path, kind: type[protocol.Record]
) -> None:
    def refuse(client: EngineClient, record: protocol.Record, id: int = 0) -> None:
        if isinstance(record, kind):
            raise ValueError("not this one")
        receive(client, record, id)

    story.run(2).wait()
    receive = EngineClient.receive
    with patch.object(EngineClient, "receive", refuse), pytest.raises(api.Fault, match="not this one"):
        story.attention()
    assert len(story.run(2)) == 2
    assert story.save(tmp_path / "x.trace").exists()


def test_whoever_asks_is_told_where_another_thread_closes_the_session() -> None:
    def closing(line: api._Line, received: protocol.Received) -> None:
        if isinstance(received.record, protocol.Measuring):
            session.close()
        emit(line, received)

    emit = api._Line._emit
    with patch.object(api._Line, "_emit", closing), open(prompt=STORY) as session:
        session.run(1).wait()
        with pytest.raises(StepError, match="This session is closed"):
            session.heads(texts=20)


def test_a_page_is_written_to_no_pipe(story: Session, tmp_path: Path) -> None:
    """It would wait for a reader for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PathError, match="is a pipe"):
        story.to_html(tmp_path / "pipe")


FORKING = """
import os, sys, multiprocessing
from mlx_inspector import EngineError, open
def use(number):
    told = []
    for ask in (lambda: s.text, lambda: s.run(1), lambda: open("pocket"), lambda: len(run) < 300, s.close):
        try:
            told.append(ask())
        except EngineError as error:
            told.append("spawn" in str(error))
    return told
s = open("pocket", prompt="Once upon a time", temp=0.8, seed=7)
s.run(2).wait()
run = s.run(300)
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map_async(use, [1]).get(60))
pid = os.fork()
if not pid:
    sys.exit(0)
print(os.waitpid(pid, 0)[1], len(run) > 100)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process with threads is not forked")
def test_a_forked_process_says_that_it_can_t_compute_and_hangs_nowhere() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "[[' there were', True, True, True, None]]\n0 True\n", done.stderr


def test_a_closed_session_says_so(story: Session) -> None:
    story.run(3).wait()
    story.close()
    story.close()
    assert len(story.steps) == 3
    for use in (lambda: story.run(1), lambda: story.at(2).sampler(), lambda: story.set(temp=1)):
        with pytest.raises(StepError, match=r"This session is closed\. Open another one\."):
            use()


def test_a_notebook_gets_what_is_escaped_and_whole(story: Session) -> None:
    story.take("<script>alert(1)</script>")
    other = story.at(3).take("</td><b>").run(3)
    shown = [
        story, other, story.steps[0], story.at(2).sampler(top_p=0.9, temp=0.7), story.at(4).attention(),
        compare(story, other),
        story.tree, story.heads(), story.scores(4, 2), story.at(4).moved(3), story.map(),
        story.patch_pairs([("The dog ran", "The cat sat")]),
    ]  # fmt: skip
    for each in shown:
        made = each._repr_html_()
        tags = "div|p|span|table|thead|tbody|tr|th|td|svg|rect|b"
        own = rf"<style>[^<]*</style>|</?({tags})( [a-zA-Z-]+=\"[^\"]*\")*>"
        inner = re.sub(own, "", made)
        assert "<" not in inner, each
        assert html.unescape(inner).strip()
        assert len(made) < 100_000
    assert "top-p" in shown[3]._repr_html_()
    assert "script" in repr(story)


@pytest.mark.parametrize(
    "theirs", ["engine.py", "engine/__init__.py", "inspector/__init__.py", "inspector/x.py"]
)
def test_a_module_of_somebodys_own_in_the_way_is_told_in_a_line(tmp_path: Path, theirs: str) -> None:
    (tmp_path / theirs).parent.mkdir(exist_ok=True)
    (tmp_path / theirs).write_text("")
    ask = "import mlx_inspector"
    here = {**os.environ, "PYTHONPATH": str(Path(mlx_inspector.__file__).parent)}  # behind the directory
    done = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, cwd=tmp_path, env=here, timeout=100
    )
    if theirs == "inspector/x.py":  # a folder that is no package comes behind ours
        assert done.returncode == 0, done.stderr
        return
    last, name = done.stderr.rstrip().rpartition("\n")[2], theirs.partition("/")[0].removesuffix(".py")
    assert last.startswith(f"ImportError: mlx-inspector has a package named {name}, ")
    assert str(tmp_path) in last


def test_a_text_is_taken_apart_merge_by_merge(story: Session) -> None:
    merges = story.merges("a cat unhappiness")
    assert merges.words == ["a", " cat", " unhappiness"]
    assert merges.ladder(2)[0] == (None, tuple(bytes([each]) for each in b" unhappiness"))
    assert merges.ladder(2)[-1] == (2511, (b" un", b"h", b"app", b"iness"))
    assert "2,511  ␣un│h│app│iness" in repr(merges)
    with pytest.raises(EngineError, match="no word 3"):
        merges.ladder(3)


def test_the_tree_has_each_branch_to_its_end(story: Session) -> None:
    story.run(12).wait()
    other = story.at(6).take(" zebra").run(4)
    first, second = story.tree
    assert first.steps[0] == second.steps[0], "the same token"
    assert first.steps[6] != second.steps[6]
    assert (first.ids, second.ids) == (story.at(1).run(12).ids, other.ids)
    rows = story.tree._repr_html_()
    assert rows.count("<tr>") == 3
    assert re.findall(r"<tr><td>(\d+)", rows) == ["1", "6"], "counted as `at` does"
    assert "zebra" in rows


def test_only_the_interface_is_completed() -> None:
    shown = {name for name in vars(mlx_inspector) if not name.startswith("_")}
    assert shown == {*mlx_inspector.__all__}


def test_a_run_says_how_far_it_is(story: Session, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            told.append(text)
            return len(text)

    with patch.object(sys, "stderr", Terminal()):
        run = story.run(30).wait(progress=True)
    assert len(run) == 30
    assert told[-1].startswith("\r30 of 30 tokens, ")
    assert told[-1].endswith("\n")
    story.run(3).wait(progress=True)  # a file: nothing is written into it
    assert capsys.readouterr().err == ""


def test_the_screen_of_a_session_is_the_program_of_this_process(
    story: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever modules of somebody's own stand in the directory by then."""
    (tmp_path / "inspector").mkdir()
    (tmp_path / "inspector" / "__init__.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    done: list[subprocess.CompletedProcess[str]] = []

    def run(command: list[str], **rest: object) -> None:
        done.append(real([*command[:-2], "--version"], capture_output=True, text=True, timeout=60))

    real = subprocess.run
    story.run(2).wait()
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True, raising=False)
    with patch.object(subprocess, "run", run):
        story.screen()
    assert (done[0].returncode, done[0].stderr) == (0, "")
    assert done[0].stdout.startswith("inspector ")


# ---- whose each token is ------------------------------------------------------------------------


def test_a_step_knows_its_segment(story: Session) -> None:
    assert {step.segment for step in story.run(3)} == {"answer"}
    config = json.dumps({"chat_template": templates.source("qwen3")})
    story._line.do(protocol.Prefill("<think>", chat=True, options=protocol.ChatOptions(config=config)))
    story._went(story._line.timeline.tip)
    branch = story.take("<think>").take("Hm").take("</think>")
    kinds = {"".join(step.text for step in group): kind for kind, group in groupby(branch.steps, _segment)}
    assert kinds == {"<think>": "markup", "Hm": "thinking"} | {"</think>": "markup"}
    assert [step.segment for step in branch.run(2).new] == ["answer"] * 2


def _segment(step: mlx_inspector.Step) -> str | None:
    return step.segment
