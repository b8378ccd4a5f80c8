"""The border of the Python interface: whatever is given to it is used, or refused in words with nothing changed."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from msgspec.structs import fields, replace

import mlx_inspector
from engine import protocol
from engine.errors import EngineError
from engine.protocol.inside import Inside
from engine.recording.file import FrameWriter
from engine.settings import LoadSettings, Settings, TrainingSettings
from inspector import api
from mlx_inspector import Session, compare, open

BOUND = 60.0
"""Seconds in which all odd values of one parameter are answered, on whatever machine."""


VOCABULARY = 4096
"""Of the bundled model."""


class Rude:
    """An object that nothing can be asked of."""

    def _refuse(self, *given: object) -> Any:
        raise RuntimeError("not now")

    __index__ = __float__ = __len__ = __iter__ = __repr__ = __eq__ = __fspath__ = __bool__ = _refuse
    shape = property(_refuse)
    __hash__ = None  # type: ignore[assignment]


class Here:
    """Sessions, and what comes of them, that all calls share: it takes most of a second to make."""

    def __init__(self) -> None:
        self.session = open("pocket", prompt="Once upon a time", temp=0.8, seed=7, stop=["."])
        self.session.run(8).wait()
        self.other = open("pocket", prompt="The dog", temp=0.9, seed=1)
        self.other.run(6).wait()
        self.run = self.session.at(4).take(" cat").run(3).wait()
        self.branch = self.session.at(5)
        self.direction = self.session.direction([("happy", "sad")], 3)
        made = [
            self.session, self.branch, self.run, self.direction, self.session.steps[2], self.branch.sampler(),
            self.branch.attention(), self.branch.gradients(integrated=False), self.session.merges("a cat"),
            self.branch.scores(4, 2), self.branch.moved(), self.session.map(),
            self.branch.lens(), self.branch.contributions(),
            compare(self.session, self.branch), self.session.tree, self.session.what_if(),
            self.session.heads(texts=1, length=2),
            mlx_inspector.Experts(SimpleNamespace(layers=(), states=())),  # type: ignore[arg-type]
        ]  # fmt: skip
        self.of = {type(each).__name__: each for each in made}
        """An object of each public class."""
        self.writer, self.written = FrameWriter("tests"), 0
        """What writes its recording, and how many of its entries it has tried."""

    @property
    def state(self) -> tuple[object, ...]:
        """What a call that is refused leaves as it was."""
        line = self.session._line
        return [*line.timeline.tree.nodes], self.session.node, line.settings, line.held

    def odd(self) -> list[object]:
        """What a caller may give by mistake."""
        return [
            None, True, -1, 0, 1, 3, 10**9, 2**31, 2**63, 2**64, -(10**20), 10**5000, 1.5, 1e300, float("nan"),
            float("inf"), "", "x", "3", " cat", "token", "\ud800", "\0", "~", "a" * 5000, b"x", [], [1], ["x"],
            [[]], (1, 2), [("a", "b")], [("a", "b", "c")], [("", "")], {}, {5: -100}, {"x": "y"}, {1, 2},
            range(3), iter([1]), object(), Rude(), [Rude()], int, Fraction(1, 3), Path("x"), np.int64(3),
            np.float32(0.5), np.float64("nan"), np.bool_(True), np.str_("x"), np.zeros(3), np.ones((2, 2)),
            [{"role": "user", "content": 5}], self.session, self.other, self.run, self.session.steps[3],
            self.other.steps[3], self.direction, EngineError("no"),
        ]  # fmt: skip


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    """Shared by all calls; a question that many odd values come to is answered once, and so is that for other ids."""
    made, known, do = Here(), {}, api._Line.do

    def once(line: api._Line, command: protocol.Command) -> Any:
        if not isinstance(command, Inside):
            return do(line, command)
        ids = {each: getattr(command, each, None) for each in ("token", "other")}
        key = line, replace(command, **{name: 0 for name, id in ids.items() if 1 < (id or 0) < VOCABULARY})
        if key not in known:
            known[key] = do(line, command)
        return known[key]

    with made.session, made.other, patch.object(api._Line, "do", once):
        yield made
        path = made.session.save(tmp_path_factory.mktemp("kept") / "x.trace")
        assert open(path).ids == made.session.ids


# ---- all public functions, as they are found ----------------------------------------------------


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions and methods of the interface, by what one writes."""
    for name in mlx_inspector.__all__:
        found = getattr(mlx_inspector, name)
        if inspect.isfunction(found):
            yield name, found
        elif not issubclass(found, Exception):
            for method, function in vars(found).items():
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{name}.{method}", function


FUNCTIONS = dict(public())
USUAL: dict[str, Any] = {
    "against": " dog", "count": 1, "directory": None, "layer": 1, "offset": 1, "pairs": [("happy", "sad")],
    "place": 2, "text": "a cat", "token": " cat", "units": "L6 h1", "word": 0, "key": 0,
}  # fmt: skip
"""For parameters without a default: a new one needs an entry."""
CHEAP = {
    "gradients": {"integrated": False},
    "heads": {"texts": 1, "length": 2},
    "strengths": {"strengths": (1.0,)},
    "scores": {"layer": 1, "head": 1},
}
"""What makes the answer of some come soon."""


def parameters() -> Iterator[tuple[str, str]]:
    for name, function in FUNCTIONS.items():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                yield name, parameter.name


def call(here: Here, name: str, tmp_path: Path, given: dict[str, object]) -> object:
    """Call a public function with usual values for all that isn't given."""
    function, owner = FUNCTIONS[name], name.partition(".")[0]
    usual = {**USUAL, "path": tmp_path / "file", "direction": here.direction, "source": here.run}
    usual |= {"left": here.session, "right": here.run}
    arguments: list[object] = [here.of[owner]] if "." in name else []
    named: dict[str, object] = {k: v for k, v in CHEAP.get(function.__name__, {}).items() if k not in given}
    for each in inspect.signature(function).parameters.values():
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            arguments += [given[each.name]] if each.name in given else []
        elif each.name in given:
            named[each.name] = given[each.name]
        elif each.kind is inspect.Parameter.VAR_KEYWORD:
            named |= {name: value for name, value in given.items() if name not in named}
        elif each.default is inspect.Parameter.empty and each.name != "self":
            named[each.name] = usual[each.name]
    return function(*arguments, **named)


def within(seconds: float, calls: Callable[[], None]) -> None:
    """Make calls, in a thread that is left where one hangs."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            calls()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    assert not thread.is_alive(), "a call hangs"


def answered(here: Here, what: str, made: Callable[[], object]) -> None:
    """Make a call: it succeeds, or it is refused in words and changes nothing."""
    before = here.state
    try:
        result = made()
        if isinstance(result, api.Run):
            result.wait()
        elif isinstance(result, Session) and result not in (here.session, here.other):
            result.close()
    except EngineError as error:
        refused(error, what)
        assert here.state == before, f"{what} was refused, and changed the session"
    except BaseException as error:
        raise AssertionError(f"{what} ended as {type(error).__name__}: {error}") from error


def refused(error: EngineError, what: str) -> None:
    """See that an error is a refusal, in a sentence that can be read."""
    said = str(error)
    assert not isinstance(error, api.Fault), f"{what}: {said}"
    assert "fault of the program" not in said, f"{what}: {said}"
    assert len(said) < 500, f"{what}: {said}"


def sound(here: Here) -> None:
    """The session runs and is read, and what it keeps can be written."""
    begun = here.session.at(3)
    assert len(begun.run(2).wait().steps) == 4
    assert begun.sampler().picked == here.session.steps[2].id
    entries = here.session._line.entries
    for entry in entries[here.written :]:
        here.writer.entry(entry)
    here.written = len(entries)


@pytest.mark.parametrize(("name", "parameter"), parameters())
def test_whatever_is_given_is_used_or_refused_in_words(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, parameter: str
) -> None:
    monkeypatch.chdir(tmp_path)

    def calls() -> None:
        for place, value in enumerate(here.odd()):
            what = f"{name}({parameter}={type(value).__name__} {place})"
            given = {parameter: value}
            if name == "train":
                answered(here, what, lambda given=given: train_begun(here, tmp_path, given))
            else:
                answered(here, what, lambda given=given: call(here, name, tmp_path, given))
        sound(here)

    within(BOUND, calls)


def train_begun(here: Here, tmp_path: Path, given: dict[str, object]) -> None:
    """Check what a training is given, without beginning it."""
    with patch.object(api._Line, "do", side_effect=EngineError("It would begin.")):
        call(here, "train", tmp_path, given)


# ---- settings -----------------------------------------------------------------------------------


def opened(here: Here, **settings: object) -> None:
    """Check what a session is opened with, without loading its model another time for each."""
    with patch.object(api._Line, "connect"):
        open("pocket", **settings)


def configured(here: Here, **settings: object) -> None:
    """Use settings, and those from before again."""
    before = here.session.settings
    here.session.set(**settings)
    assert here.session.at(3).run(1).steps[-1].record.node in here.session._line.timeline.tree.nodes
    here.session._line.configure(before)


NAMES = [field.name for field in fields(Settings)]
OF_SETTINGS: dict[str, tuple[list[str], Callable[..., object]]] = {
    "set": (NAMES, configured),
    "sampler": (NAMES, lambda here, **given: here.branch.sampler(**given)),
    "what_if": (NAMES, lambda here, **given: here.branch.what_if(**given)),
    "open": ([*NAMES, *(field.name for field in fields(LoadSettings) if field.name != "model")], opened),
    "train": (
        [field.name for field in fields(TrainingSettings) if field.name != "texts"],
        lambda here, **given: train_begun(here, Path(), given),
    ),
}


@pytest.mark.parametrize("function", OF_SETTINGS)
def test_whatever_a_setting_is_given_is_used_or_refused_in_words(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names, made = OF_SETTINGS[function]

    def calls() -> None:
        for name in [*names, "tempp"]:
            for place, value in enumerate(here.odd()):
                what = f"{function}({name}={type(value).__name__} {place})"
                answered(here, what, lambda name=name, value=value: made(here, **{name: value}))
        sound(here)

    within(BOUND, calls)
