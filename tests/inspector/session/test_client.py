"""The inbox between the engine's thread and the screen, without either."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from engine.protocol import Ended, Loading, Received, Record
from inspector.session import client as module
from inspector.session.client import SHARE, RecordInbox

LOADING = Loading("import", 0, 0, "mlx")


class Shown:
    """A screen that notes what it is given."""

    def __init__(self) -> None:
        self.received: list[Record] = []
        self.frames: list[list[Record]] = []
        self.open = True
        self.soon: list[Callable[[], None]] = []
        self.inbox = RecordInbox(self.take, self.show, lambda: self.open, self.soon.append)

    def take(self, record: Record, id: int) -> None:
        self.received.append(record)

    def show(self, taken: Sequence[Record]) -> None:
        assert self.received[-len(taken) :] == list(taken), "all of them are taken in before they are shown"
        self.frames.append(list(taken))


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_the_records_of_a_frame_are_shown_together_and_in_order(shown: Shown) -> None:
    given = [LOADING, LOADING, Ended("Load")]
    for record in given:
        shown.inbox.emit(Received(record))
    assert not shown.received, "the engine's thread touches nothing of the screen"
    shown.inbox.tick()
    shown.inbox.tick()
    assert (shown.frames, shown.received) == ([given], given)


def test_what_came_while_others_were_taken_in_is_in_the_same_frame() -> None:
    shown = Shown()

    def answer(record: Record, id: int) -> None:
        shown.received.append(record)
        if len(shown.received) == 1:
            inbox.emit(Received(Ended("Load")))

    inbox = RecordInbox(answer, shown.show, lambda: True, shown.soon.append)
    inbox.emit(Received(LOADING))
    inbox.drain()
    assert shown.frames == [[LOADING, Ended("Load")]]


def test_an_end_is_hurried_and_nothing_else(shown: Shown) -> None:
    shown.inbox.emit(Received(LOADING))
    assert not shown.soon
    shown.inbox.emit(Received(Ended("Load")))
    (hurry,) = shown.soon
    hurry()
    hurry()
    assert shown.frames == [[LOADING, Ended("Load")]]


def test_nothing_is_hurried_to_a_screen_that_is_being_left(shown: Shown) -> None:
    shown.inbox.emit(Received(Ended("Load")))
    shown.open = False
    shown.soon[0]()
    assert not shown.frames
    assert shown.inbox.waiting


def test_a_dear_frame_is_followed_by_a_rest(monkeypatch: pytest.MonkeyPatch, shown: Shown) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    show = shown.show

    def slow(taken: Sequence[Record]) -> None:
        show(taken)
        now[0] += 0.010

    inbox = RecordInbox(shown.take, slow, lambda: True, shown.soon.append)
    frames = []
    for later in (0.0, 0.010 * (SHARE - 1) - 0.001, 0.002):
        now[0] += later
        inbox.emit(Received(LOADING))
        inbox.tick()
        frames.append(len(shown.frames))
    assert frames == [1, 1, 2]
