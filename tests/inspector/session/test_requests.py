"""Requests: who asks gets its own answer, the latest question of an owner, replies that are kept, and work that is
started and stopped; by hand first, then two askers of one kind at once: live, in a child, and in a recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from engine.child import EngineProcess
from engine.protocol import (
    AttentionLayer,
    AttentionRead,
    CaptureFacts,
    Command,
    Ended,
    Explain,
    Explained,
    Failure,
    FindTokens,
    LensRead,
    Loading,
    LookAhead,
    Measuring,
    ModelFacts,
    MoveTo,
    Prefill,
    PromptOpened,
    Race,
    RaceStep,
    ReadAttention,
    ReadLens,
    Record,
    Run,
    TakeStep,
    Tokenize,
    Tokenized,
    TokensFound,
    WhatIf,
    WhatIfAnswered,
    floats,
)
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from inspector.lessons.catalogue import shipped
from inspector.lessons.headless import HeadlessSession, engine_session, recorded_session, recording
from inspector.lessons.quantities import Scope
from inspector.session.client import EngineClient, Request
from inspector.session.requests import Job, Latest, Replies
from inspector.state import inside
from inspector.state.inside import KEPT
from tests.inspector.fakes import Session
from tests.inspector.rig import FakeEngine

FACTS = CaptureFacts((), 1.0, 1.0, "llama")


def found(query: str) -> TokensFound:
    return TokensFound(5, query, (), 0, 0.0)


class Asking:
    """A client whose commands are gathered, and answered by hand."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.client = EngineClient(self.engine)
        self.told: list[Request[Any]] = []
        """Requests that have ended, as their askers were called."""

    def tell(self, command: Command, *records: Record, end: bool = True, cancelled: bool = False) -> None:
        """Emit records for a command, and its end."""
        for record in (*records, *([Ended(command.kind, cancelled)] if end else [])):
            self.client.receive(record, self.engine.id(command))


@pytest.fixture
def asking() -> Asking:
    return Asking()


# ---- one request ------------------------------------------------------------------------------


def test_a_request_gets_the_records_of_its_own_command_and_no_others() -> None:
    for order in ((0, 1), (1, 0)):
        asking = Asking()
        sent = [asking.client.request(FindTokens(5, query), asking.told.append) for query in ("t", "x")]
        for place in order:
            asking.tell(sent[place].command, found(sent[place].command.query))
        asking.client.receive(found("of a recording"))
        assert asking.told == [sent[place] for place in order]
        for request in sent:
            assert request.records == [found(request.command.query)]
            assert request.answer(TokensFound).query == request.command.query
            assert request.done


def test_a_request_tells_why_it_has_no_answer(asking: Asking) -> None:
    failed, unanswered = (asking.client.request(Tokenize("t"), asking.told.append) for _ in range(2))
    asking.tell(failed.command, Failure("Tokenize", "It is too long.", "Type less."))
    asking.tell(unanswered.command, cancelled=True)
    with pytest.raises(LookupError, match=r"^It is too long$"):
        failed.answer(Tokenized)
    with pytest.raises(LookupError, match=r"^Tokenize was not answered$"):
        unanswered.answer(Tokenized)
    assert unanswered.cancelled
    assert unanswered.reply(Tokenized) is None


def test_each_record_is_told_as_it_comes_after_the_timeline_took_it_in() -> None:
    asking, made = Asking(), Session()
    for record in [*made.load(), *made.open()]:
        asking.client.receive(record)
    seen: list[tuple[str, int, bool]] = []

    def each(record: Record) -> None:
        seen.append((type(record).__name__, asking.client.timeline.tip, bool(asking.client.outstanding)))

    def then(request: Request[TakeStep]) -> None:
        seen.append(("then", asking.client.timeline.tip, bool(asking.client.outstanding)))

    asking.client.listen(lambda record: seen.append(("listener", 0, False)))
    request = asking.client.request(TakeStep(), then, each)
    step = made.step()
    asking.tell(request.command, Measuring("TakeStep", 1, 2, "x"), step)
    tip = step.node
    assert seen == [
        ("Measuring", step.parent, True), ("listener", 0, False), ("Step", tip, True), ("listener", 0, False),
        ("then", tip, False), ("listener", 0, False),
    ]  # fmt: skip
    assert request.progress == Measuring("TakeStep", 1, 2, "x")


def test_a_listener_gets_the_classes_of_records_and_of_commands_that_it_named(asking: Asking) -> None:
    client, heard = (
        asking.client,
        {name: list[Record]() for name in ("all", "found", "lookups", "failed lookups")},
    )
    client.listen(heard["all"].append)
    client.listen(heard["found"].append, TokensFound)
    client.listen(heard["lookups"].append, of=(FindTokens,))
    client.listen(heard["failed lookups"].append, Failure, of=(FindTokens, Tokenize))
    lookup, other = client.request(FindTokens(5, "t")), client.request(ReadLens(3))
    failed = Failure("FindTokens", "No.", "")
    asking.tell(lookup.command, found("t"), failed)
    asking.tell(other.command, Failure("ReadLens", "No.", ""), end=False)
    client.receive(found("of a recording"))
    ended = Ended("FindTokens")
    assert heard == {
        "all": [found("t"), failed, ended, Failure("ReadLens", "No.", ""), found("of a recording")],
        "found": [found("t"), found("of a recording")],
        "lookups": [found("t"), failed, ended],
        "failed lookups": [failed],
    }
    client.ignore(heard["all"].append)
    client.receive(found("more"))
    assert (len(heard["all"]), len(heard["found"])) == (5, 3)


def test_of_two_equal_commands_the_one_that_has_ended_is_not_outstanding(asking: Asking) -> None:
    first, second = (asking.client.request(TakeStep()) for _ in range(2))
    assert asking.client.outstanding[0] is first.command
    asking.tell(second.command, cancelled=True)
    assert [each is first.command for each in asking.client.outstanding] == [True]
    asking.client.forget()
    assert (asking.client.outstanding, asking.client.of(TakeStep)) == ([], [])


def test_who_left_is_not_called_and_who_cancels_is(asking: Asking) -> None:
    left, cancelled = (asking.client.request(Race(1, 2), asking.told.append) for _ in range(2))
    left.leave()
    cancelled.cancel()
    cancelled.cancel()
    for request in (left, cancelled):
        assert asking.engine.cancelled(request.command)
        assert not asking.client.under_way(Race)
        assert request in asking.client.of(Race)
        asking.tell(request.command, cancelled=True)
    assert asking.told == [cancelled]
    assert asking.client.outstanding == []


def test_what_a_request_hides_reaches_nobody_but_its_asker() -> None:
    asking, made = Asking(), Session()
    for record in [*made.load(), *made.open()]:
        asking.client.receive(record)
    timeline, heard, told = asking.client.timeline, [], []
    asking.client.listen(heard.append)
    request = asking.client.request(MoveTo(1), each=told.append, hides=(Loading, Failure, ModelFacts))
    hidden = (Loading("weights", 0, 0, ""), Failure("Load", "No.", ""), timeline.facts)
    asking.tell(request.command, *hidden, end=False)
    assert told == [*hidden]
    assert heard == []
    assert asking.client.timeline is timeline, "another model is nothing to what is on show"
    asking.client.receive(Failure("Load", "No.", ""))
    assert asking.client.timeline is not timeline


def test_a_question_that_can_be_answered_meanwhile_stops_no_run_and_nothing_waits_for_it(
    asking: Asking,
) -> None:
    run, ahead = asking.client.request(Run()), asking.client.request(LookAhead(3, (4,), 8))
    asking.client.do(Tokenize("t"))
    assert asking.client.outstanding == [run.command, ahead.command]
    assert not run.cancelled
    assert not ahead.cancelled
    asking.client.do(ReadLens(3))
    assert run.cancelled
    assert ahead.cancelled


# ---- the latest question ----------------------------------------------------------------------


class Typing(Asking):
    """An owner that asks as somebody types."""

    def __init__(self) -> None:
        super().__init__()
        self.latest = Latest(self.client)

    def ask(self, query: str) -> None:
        self.latest.ask(FindTokens(5, query), self.told.append)

    def answer(self, query: str) -> None:
        """Answer the last question of some words."""
        asked = next(each for each in reversed(self.asked) if each.query == query)
        self.tell(asked, found(query))

    @property
    def asked(self) -> list[FindTokens]:
        return [command for command in self.engine.asked if isinstance(command, FindTokens)]

    @property
    def queries(self) -> list[str]:
        return [command.query for command in self.asked]

    @property
    def answers(self) -> list[str]:
        return [request.answer(TokensFound).query for request in self.told]


@pytest.fixture
def typing() -> Typing:
    return Typing()


def test_while_a_question_is_out_the_others_wait_and_only_the_last_is_asked(typing: Typing) -> None:
    for query in ("t", "to", "toy"):
        typing.ask(query)
    assert typing.queries == ["t"]
    assert typing.engine.cancelled(typing.asked[0])
    typing.answer("t")
    assert typing.told == []
    assert typing.queries == ["t", "toy"]
    assert typing.latest.waiting
    typing.answer("toy")
    assert typing.answers == ["toy"]
    assert not typing.latest.waiting
    typing.answer("toy")
    assert typing.answers == ["toy"]


def test_a_question_that_is_wanted_again_is_asked_again_if_it_was_cancelled(typing: Typing) -> None:
    for query in ("t", "to", "t"):
        typing.ask(query)
    typing.tell(typing.asked[0], cancelled=True)
    assert typing.queries == ["t", "t"]
    assert not typing.engine.cancelled(typing.asked[1])
    typing.answer("t")
    assert typing.answers == ["t"]


def test_the_same_question_is_not_cancelled_by_itself_and_answers_who_asked_last(typing: Typing) -> None:
    typing.latest.ask(FindTokens(5, "t"), lambda request: pytest.fail("somebody else asks now"))
    typing.ask("t")
    assert typing.queries == ["t"]
    assert not typing.engine.cancelled(typing.asked[0])
    typing.answer("t")
    assert typing.answers == ["t"]


def test_a_late_answer_to_a_dialog_that_was_left_reaches_no_other(typing: Typing) -> None:
    typing.ask("t")
    assert typing.latest.drop()
    assert not typing.latest.drop()
    typing.ask("x")
    typing.answer("t")
    assert typing.told == []
    assert typing.queries == ["t", "x"]
    typing.answer("x")
    assert typing.answers == ["x"]


# ---- replies that are kept --------------------------------------------------------------------


class Looking(Asking):
    """A view that keeps what it was told about tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.replies = Replies(self.client, LensRead)

    def want(self, node: int) -> None:
        self.replies.want(node, ReadLens(node))

    @property
    def sent(self) -> list[ReadLens]:
        return [command for command in self.engine.sent if isinstance(command, ReadLens)]

    def recorded(self, node: int) -> LensRead:
        """A recording tells of a token."""
        self.client.receive(lens(node))
        return lens(node)


@pytest.fixture
def looking() -> Looking:
    return Looking()


def lens(node: int) -> LensRead:
    return LensRead(node, (), (), FACTS)


def test_a_question_is_asked_once_and_its_reply_kept(looking: Looking) -> None:
    looking.want(3)
    looking.want(3)
    assert [command.node for command in looking.sent] == [3]
    assert looking.replies.waiting
    looking.tell(looking.sent[0], Measuring("ReadLens", 1, 2, ""), end=False)
    assert looking.replies.waiting.request.progress == Measuring("ReadLens", 1, 2, "")
    looking.tell(looking.sent[0], lens(3))
    assert not looking.replies.waiting
    looking.want(3)
    assert len(looking.sent) == 1
    assert looking.replies.get(3) == lens(3)
    looking.recorded(4)
    assert looking.replies.keys == (3, 4)
    looking.replies.get(3)
    assert looking.replies.keys == (4, 3), "the one looked at last comes last"


def test_the_answer_to_a_question_of_another_is_shared_and_replaced_by_the_next(looking: Looking) -> None:
    other = looking.client.request(ReadLens(3))
    looking.want(3)
    mine = looking.sent[-1]
    looking.tell(other.command, LensRead(3, (), (7,), FACTS))
    assert looking.replies.get(3) == Replies(looking.client, LensRead).get(3) == LensRead(3, (), (7,), FACTS)
    looking.tell(mine, lens(3))
    assert looking.replies.get(3) == lens(3)
    looking.want(3)
    assert looking.sent[-1] is mine


def test_while_one_is_out_the_latest_waits_for_its_end(looking: Looking) -> None:
    for node in (3, 4, 5):
        looking.want(node)
    assert [command.node for command in looking.sent] == [3]
    assert looking.engine.cancelled(looking.sent[0])
    looking.tell(looking.sent[0], cancelled=True)
    assert [command.node for command in looking.sent] == [3, 5]


def test_who_goes_back_to_what_is_known_has_the_question_dropped(looking: Looking) -> None:
    looking.want(3)
    looking.tell(looking.sent[0], lens(3))
    looking.want(4)
    looking.want(3)
    assert looking.engine.cancelled(looking.sent[-1])
    looking.tell(looking.sent[-1], cancelled=True)
    assert not looking.replies.waiting


def test_a_failure_is_that_of_its_question_and_isnt_asked_for_again(looking: Looking) -> None:
    looking.want(3)
    told = Failure("ReadLens", "No room.", "Close something.")
    looking.tell(looking.sent[0], told)
    assert looking.replies.failure(3) == told
    looking.want(3)
    assert len(looking.sent) == 1
    looking.replies.again(3, ReadLens(3))
    assert len(looking.sent) == 2


def test_nodes_of_another_tree_are_others(looking: Looking) -> None:
    looking.recorded(3)
    looking.client.receive(PromptOpened("a", False, (), False, new_tree=True))
    assert looking.replies.get(3) is None


def test_the_least_recently_used_goes_first(looking: Looking) -> None:
    for node in range(1, KEPT + 1):
        looking.recorded(node)
    assert looking.replies.get(1) is not None
    looking.recorded(KEPT + 1)
    assert looking.replies.get(1) is not None
    assert looking.replies.get(2) is None


def test_large_replies_are_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "KEPT_BYTES", 100)
    client = EngineClient(FakeEngine())
    replies = Replies(client, AttentionRead)
    layer = AttentionLayer(0, "fused", 1, floats([0.1] * 10, (1, 10)), 10)
    for node in (1, 2, 3, 4):
        client.receive(AttentionRead(node, 10, (layer,), 1, (), FACTS))
    assert [node for node in (1, 2, 3, 4) if replies.get(node)] == [3, 4]
    client.receive(AttentionRead(5, 10, (layer, layer, layer), 1, (), FACTS))
    assert replies.get(5) is not None, "one is kept, however large"


# ---- work that a screen starts ----------------------------------------------------------------


def test_a_job_fails_by_its_own_commands_and_stops_those_of_others_too(asking: Asking) -> None:
    job = Job(asking.client, Race, ReadAttention)
    other = asking.client.request(Race(1, 9))
    assert job.running
    asking.tell(other.command, Measuring("Race", 3, 9, ""), end=False)
    assert job.progress == Measuring("Race", 3, 9, "")
    assert job.stop()
    assert not job.running
    asking.tell(other.command, Failure("Race", "Not here.", ""))
    assert job.failure is None, "who started it is told"

    steps: list[Record] = []
    job.start(Race(1, 2), each=steps.append)
    race = asking.engine.sent[-1]
    step = RaceStep(*[0] * len(fields(RaceStep)))
    asking.tell(race, step, Failure("Race", "No room.", "Close something."), cancelled=True)
    assert steps[0] == step
    assert job.failure == Failure("Race", "No room.", "Close something.")
    assert job.cancelled
    job.start(ReadAttention(3))
    assert job.failure is not None
    job.start(Race(1, 2))
    assert job.failure is None
    assert not job.cancelled


# ---- two askers of one kind -------------------------------------------------------------------

USED, TRIED = Settings(temp=1.0, seed=3), Settings(temp=5.0, seed=3)
LESSON = shipped()[2].lesson
ORDERS = [("panel", "lesson"), ("lesson", "panel")]


@contextmanager
def live(in_child: bool) -> Iterator[HeadlessSession]:
    """A session of three steps, with the engine in this process or in a child process."""
    with engine_session(LoadSettings("pocket"), USED, EngineProcess if in_child else EngineThread) as session:
        yield session


def begun(session: HeadlessSession) -> Scope:
    """Three steps after a prompt, with the sampler on show; what a lesson looks at."""
    controller = session.controller
    controller.setup.give(Prefill("Once upon a time", False))
    session.until(lambda: controller.resting)
    for _ in range(3):
        controller.transport.step()
        session.until(lambda: controller.resting)
    controller.queries.watching = True
    return Scope(controller)


def ask_both(session: HeadlessSession, scope: Scope, order: tuple[str, str], tried: Settings = TRIED) -> None:
    """The panel asks why this token, the lesson how it would be under other settings, before either is answered."""
    controller = session.controller
    timeline = controller.timeline
    timeline.last_explanation = None
    asks = {
        "panel": lambda: controller.queries.ask(timeline),
        "lesson": lambda: scope.ask(Explain(timeline.tip, tried)),
    }
    for name in order:
        asks[name]()
    session.until(lambda: not scope.waiting and timeline.explanation() is not None)


def bits(explained: Explained | None) -> float:
    assert explained is not None
    return explained.next.sampler_entropy_bits


@pytest.mark.parametrize("in_child", [False, True])
def test_the_panel_and_a_lesson_get_the_answers_to_their_own_questions(in_child: bool) -> None:
    with live(in_child) as session:
        scope = begun(session)
        timeline, queries = session.controller.timeline, session.controller.queries
        for order in ORDERS:
            scope.forget()
            ask_both(session, scope, order)
            told = timeline.explanation()
            assert told is not None
            assert bits(told.explained) == timeline.next.sampler_entropy_bits
            assert told.explained.used
            answer = scope.answer(Explain(timeline.tip, TRIED), Explained)
            assert answer.next.sampler_entropy_bits > timeline.next.sampler_entropy_bits + 5

            # steps under settings that are tried, and under those of a lesson
            queries.try_out(timeline, TRIED)
            asks = [lambda: queries.ask(timeline), lambda: scope.ask(WhatIf(USED, timeline.tip))]
            for ask in asks[:: 1 if order is ORDERS[0] else -1]:
                ask()
            session.until(lambda: not scope.waiting and timeline.trial.answered is not None)
            same = scope.answer(WhatIf(USED, timeline.tip), WhatIfAnswered)
            assert all(step.same for step in same.steps)
            assert not all(step.same for step in timeline.trial.answers.values())
            queries.try_out(timeline, None)
        scope.close()


@pytest.mark.parametrize("in_child", [False, True])
def test_the_prompt_dialog_and_a_lesson_get_their_own_texts(in_child: bool) -> None:
    with live(in_child) as session:
        scope = begun(session)
        for order in (1, -1):
            scope.forget()
            told: list[Request[Tokenize]] = []
            latest = Latest(session.controller.client)
            asks = [
                lambda latest=latest, told=told: latest.ask(Tokenize("a dog"), told.append),
                lambda: scope.ask(Tokenize("two cats")),
            ]
            for ask in asks[::order]:
                ask()
            session.until(lambda told=told: bool(told) and not scope.waiting)
            assert [request.answer(Tokenized).text for request in told] == ["a dog"]
            assert scope.answer(Tokenize("two cats"), Tokenized).text == "two cats"


def test_a_recording_answers_each_with_what_answered_it(tmp_path: Path) -> None:
    """Recorded while both were out, and asked again while both are out, in both orders."""
    for recorded in ORDERS:
        path = tmp_path / f"{recorded[0]}.trace"
        with live(in_child=False) as session, recording(session, path, "pocket"):
            scope = begun(session)
            ask_both(session, scope, recorded)
            timeline = session.controller.timeline
            used = timeline.next.sampler_entropy_bits
            tried = bits(scope.answer(Explain(timeline.tip, TRIED), Explained))
        for asked in ORDERS:
            with recorded_session(path, LESSON) as (session, player):
                player.end()
                session.until(lambda player=player: player.settled)
                session.controller.queries.watching = True
                scope = Scope(session.controller)
                ask_both(session, scope, asked)
                timeline = session.controller.timeline
                told = timeline.explanation()
                assert told is not None
                assert bits(told.explained) == timeline.next.sampler_entropy_bits == pytest.approx(used)
                assert bits(scope.answer(Explain(timeline.tip, TRIED), Explained)) == pytest.approx(tried)


def test_a_lesson_that_goes_on_waits_for_no_answer_of_the_beat_before() -> None:
    """`J` and then `j` while an answer is on its way."""
    with live(in_child=False) as session:
        scope = begun(session)
        question = Explain(session.controller.timeline.tip, TRIED)
        scope.ask(question)
        scope.forget()
        assert not scope.waiting
        scope.ask(Explain(session.controller.timeline.tip, TRIED))
        session.until(lambda: not scope.waiting)
        session.until(lambda: not session.controller.client.outstanding)
        assert bits(scope.answer(question, Explained)) > 5
        assert not [record for record in scope.since if isinstance(record, Explained)]
