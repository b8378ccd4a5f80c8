"""An engine behind a socket answers as one beside the caller; clients come, go, come back and are refused."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import protocol
from engine.errors import EngineError
from engine.protocol import Command, Record
from engine.remote import server
from engine.remote.link import ProcessLink
from engine.settings import LoadSettings, Settings
from tests.engine.remote.far import PROGRAM, Far, Host, hosted
from tests.engine.test_thread import Engine
from tests.engine.test_wire import lived, timeless
from tests.engine.unthreaded import kinds

SAMPLED = Settings(temp=0.8, seed=3, candidates=5, max_tokens=25, min_tokens=25)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with hosted() as host:
        yield host


def test_the_walk_of_the_live_suite_passes_through_a_socket_and_a_process(host: Host) -> None:
    direct = Engine()
    expected = [[timeless(record) for record in part] for part in lived(direct)]
    assert direct.thread.close(10)
    for link in (host.link(), ProcessLink(PROGRAM)):
        far = Far(link, joins=True)
        found = lived(far)
        far.close()
        assert [[timeless(record) for record in part] for part in found] == expected
        steps = [record for record in found[-1] if isinstance(record, protocol.Step)]
        assert len(steps) == 12


# ---- who is let in ----------------------------------------------------------------------------


def test_a_second_client_is_refused_and_the_first_is_not_disturbed(host: Host) -> None:
    first = Far(host.link())
    first.do(protocol.Load(LoadSettings()))
    with pytest.raises(EngineError, match=r"Another client is connected, .* leave that one first\.$"):
        Far(host.link())
    assert kinds(first.do(protocol.Prefill("Once", chat=False)))[-1] == "Ended"
    first.close()
    again = Far(host.link(), joins=True)  # its place is free again
    assert again.remote.has_session
    again.close()


def test_a_wrong_token_and_another_version_are_refused(host: Host) -> None:
    with pytest.raises(EngineError, match=r"the token is wrong or missing"):
        Far(host.link("a tokem"))
    with pytest.raises(EngineError, match=r"version 1\.2\.3, the client of '1\.2\.4': install the same one"):
        Far(host.link(), program="1.2.4")


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"[]\n", b'{"hello":1}\n', b'{"token":5,"hello":1}\n', b'{"token":"a token"}\n', b"\xff\n"],
)
def test_nobody_learns_anything_without_the_token(host: Host, line: bytes) -> None:
    with host.address.connect() as stranger:
        stranger.sendall(line)
        stranger.shutdown(socket.SHUT_WR)
        answer = stranger.makefile("rb").read()
    assert answer.startswith(b'{"refused":"This is an engine of mlx-inspector, and the token is wrong')
    assert PROGRAM.encode() not in answer


def test_who_says_nothing_is_sent_away(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HELLO_SECONDS", 0.1)
    with host.address.connect() as stranger:
        assert b"token is wrong" in stranger.makefile("rb").read()


# ---- coming back ------------------------------------------------------------------------------


def test_who_joins_sees_the_whole_session(host: Host) -> None:
    first = Far(host.link())
    told = first.do(protocol.Load(LoadSettings()))
    told += first.do(protocol.Configure(SAMPLED))
    told += first.do(protocol.Prefill("Once upon a time", chat=False))
    told += first.do(protocol.Choose(4, 4096))  # a failure of somebody else is nobody's business
    told += first.do(protocol.Choose(4, 300))
    first.close()
    second = Far(host.link(), joins=True)
    seen = [record for record in told if not isinstance(record, protocol.Failure)]
    found = [second.get() for _ in seen]
    assert [timeless(record) for record in found] == [timeless(record) for record in seen]
    assert {record.request for record in found} == {0}, "the joining client asked for none of it"
    adopted = second.adopted
    assert adopted == [
        protocol.Load(LoadSettings()),
        protocol.Configure(SAMPLED),
        protocol.Prefill("Once upon a time", chat=False),
    ]
    command = protocol.TakeStep()
    step, *_, ended = second.do(command)  # and goes on with it
    assert isinstance(step, protocol.Step)
    assert (step.request, ended.request) == (command.id, command.id)
    assert step.parent == seen[-2].node  # type: ignore[union-attr]
    second.close()


def cut(far: Far) -> None:
    """Have the connection end as a network does: without a word."""
    far.remote._lines.hang_up()


def lived_through(engine: Engine, disturb: Callable[[str], None]) -> dict[int, Any]:
    """A session with a prefill in chunks, a run and a branch; returns every node of its tree with its readings."""
    told: list[Record] = []

    def do(command: Command, name: str = "", at: type[Record] = protocol.Ended, count: int = 0) -> bool:
        """Do a command, disturbed after some records; returns whether that cancelled it."""
        engine.send(command)
        if count:
            told.extend(engine.until(at, count))
            disturb(name)
        told.extend(engine.until_ended(command))
        ended = told[-1]
        return ended.cancelled

    do(protocol.Load(LoadSettings()))
    do(protocol.Configure(SAMPLED))
    prompt = protocol.Prefill("Once upon a time there was a dog. " * 9, chat=False, echo=False, step_size=4)
    if do(prompt, "prefill", protocol.PrefillChunk, 3):
        assert not do(protocol.GoOnPrefill())
    if do(protocol.Run(), "run", protocol.Step, 4):
        assert not do(protocol.Run())
    last = [record for record in told if isinstance(record, protocol.Step)][-1]
    do(protocol.Choose(last.parent, 300))
    disturb("branch")
    do(protocol.TakeStep())
    assert not any(isinstance(record, protocol.Failure) for record in told)
    opened = next(record for record in told if isinstance(record, protocol.PromptOpened))
    tree: dict[int, Any] = {token.node: token.id for token in opened.tokens}
    for record in told:
        if isinstance(record, protocol.Step):
            tree[record.node] = (record.parent, record.id, record.origin, record.logprob, record.next)
    return tree


@pytest.fixture(scope="module")
def undisturbed() -> dict[int, Any]:
    """The tree of a session beside the caller."""
    engine = Engine()
    tree = lived_through(engine, lambda now: None)
    assert engine.thread.close(10)
    return tree


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["prefill", "run", "branch"])
def test_who_comes_back_finds_the_tree_of_an_undisturbed_session(
    host: Host, name: str, undisturbed: dict[int, Any]
) -> None:
    far = Far(host.link())

    def disturb(now: str) -> None:
        if now == name:
            cut(far)
            far.wait(lambda connection: connection.stage == "away")
            far.remote.retry()
            far.wait(lambda connection: connection.stage == "connected")

    assert lived_through(far, disturb) == undisturbed
    assert len(undisturbed) > 40 + SAMPLED.max_tokens
    far.close()


class Hole:
    """In the place of what is to be sent: the connection is lost before the first command is on its way."""

    def __init__(self, far: Far) -> None:
        self.far = far

    def put(self, command: Command) -> None:
        cut(self.far)


def test_what_was_sent_into_a_lost_connection_or_while_it_was_away_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Far(host.link())
    far.do(protocol.Load(LoadSettings()))
    lost = protocol.Prefill("Once", chat=False)
    monkeypatch.setattr(far.remote, "_sending", Hole(far))
    far.send(lost)
    far.wait(lambda connection: connection.stage == "away")
    step = protocol.TakeStep()
    far.send(step)
    refused, ended = far.until_ended(step)
    assert refused.message == "The engine is away: the connection was lost."
    assert ended == protocol.Ended("Step", cancelled=True)
    load = protocol.Load(LoadSettings())
    far.send(load)
    refused, _ = far.until_ended(load)
    assert refused.command != "Load"  # which would say that the model is gone
    failure, ended = far.until_ended(lost)
    assert failure.message == "The connection was lost before it reached the engine."
    assert ended == protocol.Ended("Prefill", cancelled=True)
    assert isinstance(far.do(protocol.Prefill("Once", chat=False))[0], protocol.PromptOpened)
    far.close()
