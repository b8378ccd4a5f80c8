"""A recording with rows answers what the live engine answers, to the last bit, with no model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as budget
from hypothesis import strategies as st
from msgspec.structs import replace

from engine import protocol
from engine.logits.recorded import RecordedLogits
from engine.protocol import Command, LogitsRow, ModelVocabulary
from engine.settings import ORDERS, LoadSettings, Settings
from tests import synthetic
from tests.engine.logits.recording import Recording, answer, story, taken
from tests.zoo import CONFIGS

BASE = Settings(temp=0.9, top_p=0.92, min_p=0.02, top_k=40, seed=11, repetition_penalty=1.2, candidates=8)
KINDS: dict[str, dict[str, Any]] = {
    "pocket": {},
    "pocket bfloat16": {"dtype": "file"},
    "pocket float16": {"dtype": "float16"},
    "300 tokens": {"vocab_size": 300},
    "700 tokens": {"vocab_size": 700, "tie_word_embeddings": False},
    "gpt2 of 512": {"vocab_size": 512, "family": "gpt2"},
}


def switched(on: float, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([on, *others])


SETTINGS = st.builds(
    Settings,
    temp=switched(1.0, 0.0, 0.3, 1.7) | st.floats(0.05, 5),
    top_p=switched(1.0, 0.5, 0.9) | st.floats(0.01, 1),
    min_p=switched(0.0, 0.02) | st.floats(0, 1),
    min_tokens_to_keep=st.integers(1, 4),
    top_k=st.integers(0, 60),
    seed=st.integers(0, 2**64 - 1),
    min_tokens=st.sampled_from([0, 5, 1000]),
    candidates=st.integers(1, 30),
    xtc_probability=switched(0.0, 0.5, 1.0),
    xtc_threshold=st.floats(0, 0.5),
    logit_bias=st.lists(st.tuples(st.integers(0, 310), st.floats(-20, 20)), max_size=3).map(tuple),
    repetition_penalty=switched(0.0, 1.3),
    repetition_context_size=st.integers(1, 50),
    presence_penalty=switched(0.0, 1.0, -2.0),
    presence_context_size=st.integers(1, 50),
    frequency_penalty=switched(0.0, 0.7),
    frequency_context_size=st.integers(1, 50),
    sampler_order=st.sampled_from(list(ORDERS)),
)
QUERIES = ["", "a", " t", "The", "#5", "#100000", "0x c3", "0x a9", "é", "↵", "nothing has this in it"]


@pytest.fixture(scope="module", params=KINDS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Recording, RecordedLogits]:
    """A live engine, and what a replay of its trace knows."""
    directory, own = tmp_path_factory.mktemp("rows"), dict(KINDS[request.param])
    model = "pocket"
    if "vocab_size" in own:
        family = own.pop("family", "llama")
        model = str(directory / "model")
        synthetic.write(directory / "model", {**CONFIGS[family], **own})
        own = {}
    live = story(LoadSettings(model=model, record_logits=True, **own), "a b c d", 30, BASE)
    return live, live.read(directory)


def nodes(live: Recording) -> list[int]:
    """Nodes with a row: all that were current."""
    found = {entry.value.node: None for entry in live.entries if isinstance(entry.value, LogitsRow)}
    return list(found)


def same(live: Recording, recorded: RecordedLogits, command: Command) -> None:
    expected, found = live.ask(command), answer(recorded, command)
    assert found == expected
    assert str(found) == str(expected)  # -0.0, too


@pytest.mark.wide(1)
def test_there_are_steps_of_each_kind(pair: tuple[Recording, RecordedLogits]) -> None:
    live, _ = pair
    assert len(live.steps) >= 37
    assert {"sampled", "chosen", "inserted"} <= {step.origin for step in live.steps}
    assert any(step.choice.reroll for step in live.steps)
    assert len(nodes(live)) == len({step.node for step in live.steps}) + 1


@pytest.mark.wide(2)
def test_at_the_settings_that_were_used_it_explains_each_place_as_live(
    pair: tuple[Recording, RecordedLogits],
) -> None:
    live, recorded = pair
    for node in nodes(live):
        same(live, recorded, protocol.Explain(node))
    assert isinstance(live.ask(protocol.Explain(nodes(live)[3])), protocol.Explained)


@pytest.mark.wide(1)
@given(st.data())
@budget(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_other_settings_explain_and_pick_as_live(
    pair: tuple[Recording, RecordedLogits], data: st.DataObject
) -> None:
    live, recorded = pair
    settings, node = data.draw(SETTINGS), data.draw(st.sampled_from(nodes(live)))
    same(live, recorded, protocol.Explain(node, settings))
    same(live, recorded, protocol.WhatIf(settings, live.steps[-1].node))
    same(live, recorded, protocol.WhatIf(settings, live.steps[29].node))


@given(st.data())
@budget(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_search_finds_what_it_finds_live(
    pair: tuple[Recording, RecordedLogits], data: st.DataObject
) -> None:
    live, recorded = pair
    query = data.draw(st.sampled_from(QUERIES) | st.text(max_size=2))
    same(
        live,
        recorded,
        protocol.FindTokens(data.draw(st.sampled_from(nodes(live))), query, data.draw(st.integers(1, 60))),
    )


def test_thirty_steps_have_an_answer_each(pair: tuple[Recording, RecordedLogits]) -> None:
    live, recorded = pair
    told = answer(
        recorded, protocol.WhatIf(replace(BASE, temp=0.0, repetition_penalty=0.0), live.steps[29].node)
    )
    assert (len(told.steps), told.dropped) == (30, ())
    assert any(not step.same for step in told.steps)


# ---- in part ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The pocket model's, with rows."""
    return story(LoadSettings(record_logits=True), "Once upon a time", 10, BASE)


def test_steps_without_a_row_are_named_as_without_an_answer(plain: Recording) -> None:
    left_out = plain.steps[4].parent
    recorded = taken(
        entry.value for entry in plain.entries
        if not (isinstance(entry.value, LogitsRow) and entry.value.node == left_out)
    )  # fmt: skip
    told = answer(recorded, protocol.WhatIf(BASE, plain.steps[9].node))
    assert (len(told.steps), told.dropped) == (9, (plain.steps[4].node,))
    assert not recorded.answers(protocol.Explain(left_out))
    assert not recorded.answers(protocol.FindTokens(left_out, "a"))


def test_nothing_is_answered_without_rows_or_without_the_vocabulary(plain: Recording) -> None:
    for lacks in (LogitsRow, ModelVocabulary):
        recorded = taken(entry.value for entry in plain.entries if not isinstance(entry.value, lacks))
        for command in (protocol.Explain(5), protocol.WhatIf(BASE, 5), protocol.FindTokens(5, "a")):
            assert not recorded.answers(command)
    assert not RecordedLogits().answers(protocol.WhatIf(BASE, 5))


def test_the_vocabulary_is_told_once_and_each_row_once(plain: Recording) -> None:
    values = [entry.value for entry in plain.entries]
    assert sum(isinstance(value, ModelVocabulary) for value in values) == 1
    rows = [value.node for value in values if isinstance(value, LogitsRow)]
    assert len(rows) == len(set(rows))
    for place, value in enumerate(values):
        if isinstance(value, LogitsRow):
            before = values[place - 1]
            before = values[place - 2] if isinstance(before, ModelVocabulary) else before
            assert before.next.node == value.node  # type: ignore[union-attr]


def test_a_second_prompt_keeps_the_rows_and_another_model_forgets_them() -> None:
    live = Recording(LoadSettings(record_logits=True))
    live.do(protocol.Configure(BASE))
    live.do(protocol.Prefill("Once upon a time", chat=False))
    first = live.do(protocol.TakeStep())[0]
    assert isinstance(first, protocol.Step)
    (second,) = (
        each
        for each in live.do(protocol.Prefill("Once upon the end", chat=False))
        if isinstance(each, LogitsRow)
    )
    recorded = taken(entry.value for entry in live.entries)
    for node in (first.node, second.node):
        same(live, recorded, protocol.Explain(node))
        same(live, recorded, protocol.Explain(node, replace(BASE, min_tokens=1)))
    live.do(protocol.Load(LoadSettings(record_logits=True, dtype="file")))
    live.do(protocol.Prefill("a b", chat=False))
    recorded = taken(entry.value for entry in live.entries)
    assert not recorded.answers(protocol.Explain(first.node))
    row = next(entry.value for entry in reversed(live.entries) if isinstance(entry.value, LogitsRow))
    same(live, recorded, protocol.Explain(row.node))


def test_the_tokens_of_a_prompt_that_was_given_up_are_forgotten(plain: Recording) -> None:
    values = [entry.value for entry in plain.entries]
    at, opened = next(each for each in enumerate(values) if isinstance(each[1], protocol.PromptOpened))
    others = tuple(replace(token, id=token.id + 1) for token in opened.tokens)
    recorded = taken([*values[:at], replace(opened, tokens=others), *values[at:]])
    for step in plain.steps[:3]:
        same(plain, recorded, protocol.Explain(step.node))


# ---- asked for --------------------------------------------------------------------------------


def test_rows_that_are_kept_can_be_asked_for_afterwards(tmp_path: Path) -> None:
    live = story(LoadSettings(), "Once upon a time", 10, BASE)
    assert not any(isinstance(entry.value, LogitsRow) for entry in live.entries)
    told = live.do(protocol.ReadLogits())
    assert isinstance(told[0], ModelVocabulary)
    kept = [record.node for record in told if isinstance(record, LogitsRow)]
    assert kept == sorted({step.node for step in live.steps} | {live.steps[0].parent})
    recorded = live.read(tmp_path)
    command = protocol.WhatIf(replace(BASE, temp=0.0), live.steps[-1].node)
    assert answer(recorded, command) == live.ask(command)


def test_rows_are_read_in_the_order_asked_for_and_those_that_are_not_kept_are_refused() -> None:
    live = Recording(LoadSettings())
    live.do(protocol.Prefill("Once upon a time", chat=False))
    step = live.do(protocol.TakeStep())[0]
    assert isinstance(step, protocol.Step)
    told = live.do(protocol.ReadLogits((step.node, step.parent)))
    assert [record.node for record in told if isinstance(record, LogitsRow)] == [step.node, step.parent]
    failure = live.do(protocol.ReadLogits((2,)))[0]
    assert failure.message == "The logits here were not kept."
    live.do(protocol.Recall((2,)))
    assert isinstance(live.do(protocol.ReadLogits((2,)))[0], LogitsRow)


# ---- without MLX ------------------------------------------------------------------------------

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mlx", "mlx_lm", "transformers", "tokenizers"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
import pickle
from engine.logits.recorded import RecordedLogits
from engine.recording import load
recorded = RecordedLogits()
for entry in load(sys.argv[1]).entries:
    recorded.take(entry.value)
assert "numpy" not in sys.modules
asked = pickle.loads(sys.stdin.buffer.read())
assert all(map(recorded.answers, asked))
sys.stdout.buffer.write(pickle.dumps([recorded.question(command)(lambda: False) for command in asked]))
"""


def test_it_needs_no_mlx_and_no_numpy_before_it_is_asked(plain: Recording, tmp_path: Path) -> None:
    import pickle

    plain.read(tmp_path)
    tip, other = plain.steps[9].node, replace(BASE, temp=1.4, xtc_probability=0.5, min_tokens=100)
    asked = [
        protocol.WhatIf(other, tip),
        protocol.Explain(plain.steps[3].node, other),
        protocol.FindTokens(tip, " a"),
    ]
    command = [sys.executable, "-c", BLOCKED, str(tmp_path / "rows.trace.zst")]
    done = subprocess.run(command, input=pickle.dumps(asked), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    found = pickle.loads(done.stdout)
    assert [replace(found[0], ms=0.0), *found[1:]] == [plain.ask(command) for command in asked]
