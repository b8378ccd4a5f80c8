"""The session's path in both models: read piece by piece it is what a fresh reading gives, whatever the moves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from tokenizers import Tokenizer, normalizers

from engine import protocol
from engine.lockstep.second import PathReader, both_models
from engine.lockstep.texts import _diverged, compared
from engine.protocol import LockstepRead, LockstepSpan, WaysParted
from engine.settings import LoadSettings, Settings
from tests import synthetic
from tests.engine.lockstep.rig import Two, coarse_tokenizer
from tests.zoo import CONFIGS, Zoo

PROMPT = "Once upon a time, there was a little girl named Lily. She loved"


def opened(two: Two, settings: LoadSettings, *, prompt: str = PROMPT, **more: object) -> Two:
    """With a second model, at the end of a prompt."""
    two.one(replace(protocol.OpenLockstep(settings), **more), protocol.LockstepOpened)  # type: ignore[type-var]
    two.do(protocol.Configure(Settings(temp=1, seed=5)))
    two.do(protocol.Prefill(prompt, False))
    return two


def node(two: Two) -> int:
    return two.session.node


def told(found: list[protocol.Record]) -> list[LockstepSpan]:
    """The spans of a path, after what was told again has replaced what it replaces."""
    spans: list[LockstepSpan] = []
    for each in found:
        if isinstance(each, LockstepRead):
            spans = [span for span in spans if span.position < each.since] + list(each.spans)
    return spans


def fresh(two: Two) -> list[LockstepSpan]:
    """The same path, read from nothing."""
    context = two.context
    assert context.loaded is not None
    both = both_models(context)
    reader = PathReader(context.loaded, both.loaded, both.by_ids, both._system, both.title)
    return told(list(reader.read(context.session, context.session.node, 0, lambda: False)))


def assert_alike(mine: list[LockstepSpan], theirs: list[LockstepSpan]) -> None:
    """Equal but for the order of sums: rows of steps and of chunks."""
    assert [(each.node, each.position, each.raw) for each in mine] == [
        (each.node, each.position, each.raw) for each in theirs
    ]
    for one, other in zip(mine, theirs, strict=True):
        near(one.kl_nats, other.kl_nats, 2e-2)
        near(one.logprob, other.logprob, 0)
        near(one.other_logprob, other.other_logprob, 0)


def near(one: float | None, other: float | None, share: float) -> None:
    assert one == other or one == pytest.approx(other, rel=share, abs=2e-3)


@pytest.mark.wide(2)
@pytest.mark.parametrize("family", ["llama", "gemma3", "mamba2", "lfm2"])
def test_walks_read_what_a_fresh_reading_does(zoo: Zoo, family: str) -> None:
    two = Two(LoadSettings(model=str(zoo.path("llama"))))
    opened(two, LoadSettings(model=str(zoo.path(family))))
    held: list[protocol.Record] = []

    def read() -> None:
        held.extend(two.do(protocol.ReadLockstep(node(two), candidates=0)))

    read()
    for _ in range(3):
        two.do(protocol.TakeStep())
    read()
    fork = node(two)
    two.do(protocol.Choose(fork, 300))
    two.do(protocol.TakeStep())
    read()
    two.do(protocol.Choose(fork, 301))
    read()
    two.do(protocol.MoveTo(fork))
    read()
    two.do(protocol.Choose(fork, 300))
    read()
    assert not [each for each in held if isinstance(each, protocol.Failure)]
    assert_alike(told(held), fresh(two))


def test_a_step_costs_one_forward_of_the_second_model(monkeypatch: pytest.MonkeyPatch) -> None:
    two = opened(Two(), LoadSettings())
    two.do(protocol.ReadLockstep(node(two)))
    two.do(protocol.TakeStep())
    ran: list[int] = []
    from engine.model.forward import Runner

    plain = Runner.forward_logits
    monkeypatch.setattr(
        Runner, "forward_logits", lambda self, ids: (ran.append(len(ids)), plain(self, ids))[1]
    )
    (read, _) = two.do(protocol.ReadLockstep(node(two)))
    assert ran == [1]  # nothing of the first model, whose rows the session keeps
    assert len(read.spans) == 1
    assert read.spans[0].kl_nats == pytest.approx(
        0, abs=1e-6
    )  # one stepped both times, in other chunks before
    assert (read.ahead.tokens, len(read.ahead.candidates), len(read.ahead.other_candidates)) == (0, 12, 12)
    assert read.other_pick == two.session.next.picked
    two.do(protocol.ReadLockstep(node(two)))
    assert ran == [1]


def test_following_the_second_takes_what_it_picks(zoo: Zoo) -> None:
    two = Two(LoadSettings(model=str(zoo.path("llama"))))
    opened(two, LoadSettings(model=str(zoo.path("qwen2"))))
    read = next(each for each in two.do(protocol.ReadLockstep(node(two))) if isinstance(each, LockstepRead))
    step = two.one(protocol.FollowSecond(node(two)), protocol.Step)
    assert (step.id, step.origin) == (read.other_pick, "chosen")
    assert step.id != step.choice.picked  # or it would show nothing


def test_each_its_own_way_until_they_part(zoo: Zoo) -> None:
    two = opened(Two(), LoadSettings())
    same = two.one(protocol.PartWays(node(two), tokens=8), WaysParted)
    assert (same.parted, same.ids == same.other_ids, same.meetings) == (None, True, 0)
    before = node(two)
    steps = [two.one(protocol.TakeStep(), protocol.Step).id for _ in range(8)]
    assert list(same.ids) == steps  # the first goes the way that the session goes
    two.do(protocol.MoveTo(before))
    two.one(protocol.OpenLockstep(LoadSettings(model=str(zoo.path("llama")))), protocol.LockstepOpened)
    apart = two.one(protocol.PartWays(node(two), tokens=8), WaysParted)
    assert list(apart.ids) == steps
    assert apart.parted is not None
    assert apart.ids[: apart.parted] == apart.other_ids[: apart.parted]
    assert apart.ids[apart.parted] != apart.other_ids[apart.parted]
    assert "".join(part.text for part in apart.parts) == two.session.tokens.join(steps)
    assert node(two) == before


def test_the_other_goes_on_where_one_has_ended(zoo: Zoo) -> None:
    two = opened(Two(LoadSettings(model=str(zoo.path("llama")))), LoadSettings(model=str(zoo.path("qwen2"))))
    ways = two.one(protocol.PartWays(node(two), tokens=6), WaysParted)
    end = next(each for each in ways.ids[:-1] if each not in ways.other_ids)
    place = ways.ids.index(end)
    assert two.context.loaded is not None
    two.context.loaded.tokens.eos_ids = frozenset((end,))
    ended = two.one(protocol.PartWays(node(two), tokens=6), WaysParted)
    assert (ended.ids, ended.other_ids) == (ways.ids[: place + 1], ways.other_ids)
    assert "".join(part.text for part in ended.parts) == two.session.tokens.join(list(ways.ids[:place]))


@pytest.mark.parametrize(
    ("ids", "other_ids", "parted"),
    [
        (("ab", "c"), ("a", "bc"), None),
        (("ab", "c"), ("x", "bc"), 0),
        (("ab", "cd"), ("a", "bxd"), 1),
        (("ab", "c"), ("a", "bcd"), 2),
        (("ab", "cd"), ("abc",), 1),
    ],
)
def test_they_part_at_the_token_with_the_first_byte_that_differs(
    ids: tuple[str, ...], other_ids: tuple[str, ...], parted: int | None
) -> None:
    mine, theirs = (
        SimpleNamespace(ids=each, tokens=SimpleNamespace(raw=str.encode)) for each in (ids, other_ids)
    )
    assert _diverged(mine, theirs) == parted  # type: ignore[arg-type]


def test_ways_meet_where_several_words_are_the_same_again() -> None:
    parts = compared(" a big red dog ran to the park and was happy", " a small cat ran to the park and sad")
    assert [(part.text, part.other_text, part.same) for part in parts] == [
        (" a", " a", True),
        (" big red dog", " small cat", False),
        (" ran to the park and", " ran to the park and", True),
        (" was happy", " sad", False),
    ]
    assert [part.same for part in compared("x y", "x y")] == [True]
    assert [part.same for part in compared("x", "y z")] == [False]


def test_another_tokenizer_follows_the_text(tmp_path: Path) -> None:
    other = LoadSettings(model=str(coarse_tokenizer(synthetic.write(tmp_path / "coarse", CONFIGS["llama"]))))
    two = opened(Two(), other)
    held = two.do(protocol.ReadLockstep(node(two), candidates=0))
    for _ in range(4):
        two.do(protocol.TakeStep())
        held += two.do(protocol.ReadLockstep(node(two), candidates=0))
    assert_alike(told(held), fresh(two))
    assert "other tokens" in two.one(protocol.FollowSecond(node(two)), protocol.Failure).message
    ways = two.one(protocol.PartWays(node(two), tokens=4), WaysParted)
    assert len(ways.ids) == len(ways.other_ids) == 4


def test_a_path_beyond_the_seconds_positions_is_refused(zoo: Zoo) -> None:
    two = Two(LoadSettings(model=str(zoo.path("llama"))))
    opened(two, LoadSettings(model=str(zoo.path("gpt2"))))
    two.do(protocol.Insert(node(two), " a" * 250))
    told = two.one(protocol.ReadLockstep(node(two)), protocol.Failure).message
    assert told.startswith(f"The path has {two.session.tree[node(two)].depth} tokens, and ")
    assert told.endswith(" has 256 positions.")


def test_marks_alone_are_no_text_to_compare(tmp_path: Path) -> None:
    other = LoadSettings(model=str(coarse_tokenizer(synthetic.write(tmp_path / "coarse", CONFIGS["llama"]))))
    two = opened(Two(), other, prompt="<|im_start|>")
    assert (
        two.one(protocol.ReadLockstep(node(two)), protocol.Failure).message
        == "There is no text to compare yet."
    )


def test_a_tokenizer_that_changes_texts_is_refused(tmp_path: Path) -> None:
    path = coarse_tokenizer(synthetic.write(tmp_path / "coarse", CONFIGS["llama"]))
    lowers = Tokenizer.from_file(str(path / "tokenizer.json"))
    lowers.normalizer = normalizers.Lowercase()
    lowers.save(str(path / "tokenizer.json"))
    two = opened(Two(), LoadSettings(model=str(path)))
    for command in (protocol.ReadLockstep(node(two)), protocol.DiffText(PROMPT)):
        assert "changes this text, so its tokens can't be" in two.one(command, protocol.Failure).message


def test_another_system_prompt_is_compared_behind_it() -> None:
    two = Two()
    settings = LoadSettings()
    found = two.one(protocol.OpenLockstep(settings, system="Tell of a dog."), protocol.LockstepOpened)
    assert found.title == "pocket, another system prompt"
    two.do(protocol.Prefill("Once upon a time", True, system="Tell of a cat."))
    two.do(protocol.TakeStep())
    spans = told(two.do(protocol.ReadLockstep(node(two), candidates=0)))
    assert spans[-1].node == node(two)
    assert spans[-1].kl_nats is not None
    assert spans[-1].kl_nats > 0
    text = "".join(span.text for span in spans)
    assert "cat" not in text
    assert "Once upon a time" in text
    two.do(protocol.Prefill("Once upon a time", False))
    failure = two.one(protocol.ReadLockstep(node(two)), protocol.Failure)
    assert "no place for the second model's system prompt" in failure.message


@pytest.mark.parametrize("system", [None, "Tell of a cat."])
def test_the_second_model_gets_its_system_prompt_and_the_rest_of_the_conversation(system: str | None) -> None:
    """Each model's logprobs are those that a session of that system prompt has by itself."""
    second = "Tell of a dog."
    two = Two()
    two.one(protocol.OpenLockstep(LoadSettings(), system=second), protocol.LockstepOpened)
    two.do(protocol.Prefill("Once upon a time", True, system=system))
    before = node(two)
    for _ in range(3):
        two.do(protocol.TakeStep())
    spans = told(two.do(protocol.ReadLockstep(node(two), candidates=0)))[-3:]
    taken = two.session.tree.tokens(node(two))[-3:]
    assert two.session.tree[before].depth == two.session.tree[node(two)].depth - 3
    for given, logprobs in (
        (system, [span.logprob for span in spans]),
        (second, [span.other_logprob for span in spans]),
    ):
        alone = Two()
        alone.do(protocol.Prefill("Once upon a time", True, system=given))
        found = alone.do(protocol.Take(node(alone), tuple(taken)))
        steps = [each for each in found if isinstance(each, protocol.Step)]
        assert logprobs == pytest.approx([step.logprob for step in steps], abs=1e-4)


def test_what_was_read_of_another_tree_is_read_again() -> None:
    two = opened(Two(), LoadSettings())
    first = told(two.do(protocol.ReadLockstep(node(two), candidates=0)))
    two.do(protocol.Prefill(PROMPT + " to", False))
    second = told(two.do(protocol.ReadLockstep(node(two), candidates=0)))
    assert [span.position for span in second] == list(range(len(first) + 1))
