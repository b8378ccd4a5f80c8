"""The commands of speculation, as the engine answers them: runs, stages, drafts that stay loaded, and the proof."""

from __future__ import annotations

import pytest

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.decoding import speculation
from engine.protocol import (
    Choose,
    Configure,
    DraftReady,
    DraftRound,
    Load,
    LoadDraft,
    MoveTo,
    Prefill,
    Record,
    Run,
    RunRounds,
    SpeculationVerified,
    Step,
    TakeRound,
    TakeStep,
    VerifySpeculation,
)
from engine.settings import LoadSettings, Settings, SpeculationSettings
from tests.engine.unthreaded import Unthreaded
from tests.zoo import Zoo

TEXT = "Once upon a time there was a dog. The dog was a big dog. The dog was"
SETTINGS = Settings(temp=0.9, seed=4, max_tokens=20, min_tokens=20)


class Bench(Unthreaded):
    """A worker on one model, with a prompt read.

    Args:
        model: Of the session.
    """

    def __init__(self, model: str) -> None:
        super().__init__(LoadSettings(model=model), SETTINGS, TEXT)
        self.begin = self.of(protocol.Prefilled)[-1].next.node

    def again(self) -> None:
        """Go back to the end of the prompt, and forget what was told."""
        self.do(MoveTo(self.begin))
        self.records.clear()


@pytest.fixture(scope="module")
def bench(zoo: Zoo) -> Bench:
    return Bench(str(zoo.path("llama")))


def ids(found: list[Record]) -> list[int]:
    return [record.id for record in found if isinstance(record, Step)]


def ended(found: list[Record]) -> protocol.Ended:
    assert isinstance(found[-1], protocol.Ended)
    return found[-1]


def test_a_run_of_rounds_is_a_run_and_is_proved(bench: Bench) -> None:
    bench.again()
    plain = ids(bench.do(Run()))
    for settings in (SpeculationSettings(), SpeculationSettings("self-4bit", num_draft_tokens=2)):
        bench.again()
        found = bench.do(RunRounds(settings, plain=3))
        assert ids(found) == plain
        assert len(bench.of(protocol.Finished)) == 1
        rounds = bench.of(DraftRound)
        assert sum(each.taken for each in rounds) == 17
        assert rounds[-1].end == bench.of(Step)[-1].node
        [proof] = [
            each for each in bench.do(VerifySpeculation(bench.begin)) if isinstance(each, SpeculationVerified)
        ]
        assert (proof.tokens, proof.differs, proof.plain, proof.chosen) == (20, None, None, 0)
        assert proof.difference < 1e-4
        assert proof.plain_ms > 0


def test_the_proof_finds_another_token_and_leaves_out_what_a_person_chose(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.again()
    [first, *_] = ids(bench.do(TakeStep()))
    tip = bench.of(Step)[-1]
    other = next(each.id for each in tip.next.candidates if each.id != tip.next.picked)
    bench.do(Choose(tip.node, other))
    bench.do(TakeStep())
    [proof] = [
        each for each in bench.do(VerifySpeculation(bench.begin)) if isinstance(each, SpeculationVerified)
    ]
    assert (proof.tokens, proof.chosen, proof.differs) == (3, 1, None)
    monkeypatch.setattr(speculation, "NOT_SAMPLED", ("prompt",))
    [proof] = [
        each for each in bench.do(VerifySpeculation(bench.begin)) if isinstance(each, SpeculationVerified)
    ]
    assert (proof.differs, proof.plain) == (bench.of(Step)[1].node, tip.next.picked)
    assert first == tip.id


def test_a_draft_stays_loaded_until_another_is_asked_for_or_the_model_goes(zoo: Zoo) -> None:
    bench = Bench(str(zoo.path("llama")))
    for number in (1, 2):
        bench.do(TakeRound(SpeculationSettings("self-4bit", num_draft_tokens=number)))
    bench.do(LoadDraft(SpeculationSettings("self-4bit")))
    assert len(bench.of(DraftReady)) == 1
    bench.do(LoadDraft(SpeculationSettings()))
    bench.do(LoadDraft(SpeculationSettings("self-4bit")))
    assert [each.settings.draft for each in bench.of(DraftReady)] == ["self-4bit", "lookup", "self-4bit"]
    assert len(bench.of(protocol.ModelFacts)) == 1  # a draft's model is not the session's
    bench.do(Load(LoadSettings(model=str(zoo.path("llama")))))
    bench.do(Prefill(TEXT, chat=False))
    bench.do(TakeRound(SpeculationSettings("self-4bit")))
    assert len(bench.of(DraftReady)) == 4


def test_a_breakpoint_and_a_cancel_stop_a_run_where_they_hold(bench: Bench) -> None:
    bench.again()
    plain = ids(bench.do(Run()))
    bench.again()
    found = bench.do(RunRounds(SpeculationSettings("self-4bit"), Breakpoints(tokens=5)))
    assert ids(found) == plain[:5]
    assert [each for each in found if isinstance(each, protocol.BreakpointHit)]
    bench.cancel_when = lambda record: isinstance(record, Step) and record.index == 8
    found = bench.do(RunRounds(SpeculationSettings("self-4bit")))
    bench.cancel_when = lambda record: False
    assert ids(found) == plain[5:9]
    assert ended(found).cancelled
    assert ids(bench.do(RunRounds(SpeculationSettings()))) == plain[9:]


def test_the_stages_of_a_round_go_on_until_something_else_is_done(bench: Bench) -> None:
    bench.again()
    plain = ids(bench.do(Run()))
    bench.again()
    inside = TakeRound(SpeculationSettings("self-4bit"), inside=True)
    for _ in range(3):
        bench.do(inside)
    assert [each.stage for each in bench.of(DraftRound)] == ["proposed", "verified", "taken"]
    assert ids(bench.records) == plain[: len(ids(bench.records))] != []
    bench.again()
    bench.do(inside)
    bench.do(TakeStep())
    bench.do(inside)  # a new round
    bench.do(TakeRound(SpeculationSettings("self-4bit")))
    assert [each.stage for each in bench.of(DraftRound)] == ["proposed", "proposed", "taken"]
    assert ids(bench.records) == plain[: len(ids(bench.records))]
    bench.again()
    bench.do(inside)
    bench.do(Configure(Settings(temp=0.0)))
    bench.do(inside)
    bench.do(Configure(SETTINGS))
    assert [each.stage for each in bench.of(DraftRound)] == ["proposed", "proposed"]


def test_a_draft_that_is_not_there_is_a_failure_in_words(bench: Bench) -> None:
    bench.again()
    found = bench.do(LoadDraft(SpeculationSettings("model", "nowhere/at-all")))
    [failure] = [each for each in found if isinstance(each, protocol.Failure)]
    assert failure.expected
    assert ids(bench.do(TakeStep()))


def test_a_round_over_tokens_of_an_earlier_completion_counts_from_its_own_prompt() -> None:
    """min-tokens bars the end until a second token, which the tree knows as the earlier completion's fourth."""
    bench = Bench("pocket")
    prompt = bench.of(protocol.PromptOpened)[-1].tokens
    bench.do(Configure(Settings(temp=0)))
    first = [each for each in bench.do(Run(until=Breakpoints(tokens=4))) if isinstance(each, Step)]
    eos = bench.context.session.tokens.eos_ids[0]
    ending = Settings(temp=0, min_tokens=2, logit_bias=((first[2].id, 50.0), (eos, 60.0)))
    longer = Prefill(TEXT + "".join(each.text for each in first[:2]), False)
    found = []
    for take in (RunRounds(SpeculationSettings("self-4bit", num_draft_tokens=2)), Run()):
        bench.do(Configure(ending))
        opened = bench.do(longer)[0]
        assert isinstance(opened, protocol.PromptOpened)
        assert [each.id for each in opened.tokens] == [each.id for each in (*prompt, *first[:2])]
        found.append([(each.index, each.id) for each in bench.do(take) if isinstance(each, Step)])
    assert found[0] == found[1]
    assert found[0][-1] == (2, eos)
