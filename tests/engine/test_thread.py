"""The engine's thread: commands in, records out, failures as records, and an end that never aborts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Event

import pytest

from engine import commands, records
from engine.records import Record
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread


class Engine:
    """An engine thread whose records are gathered command by command."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Record] = SimpleQueue()
        self.thread = EngineThread(self.queue.put)
        self.thread.start()

    def send(self, command: commands.Command) -> None:
        self.thread.send(command)

    def until_ended(self) -> list[Record]:
        found: list[Record] = []
        while not (found and isinstance(found[-1], records.Ended)):
            found.append(self.queue.get(timeout=60))
        return found

    def do(self, command: commands.Command) -> list[Record]:
        self.send(command)
        return self.until_ended()


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    assert engine.thread.close(10)


@pytest.fixture
def ready(engine: Engine) -> Engine:
    engine.do(commands.Load(LoadSettings()))
    engine.do(commands.Configure(Settings(max_tokens=1000, min_tokens=1000)))
    engine.do(commands.Prefill("Once upon a time", chat=False))
    return engine


def kinds(found: list[Record]) -> list[str]:
    return [type(record).__name__ for record in found]


def test_a_session_from_load_to_step(engine: Engine) -> None:
    loaded = kinds(engine.do(commands.Load(LoadSettings())))
    assert loaded[0] == "Loading"
    assert loaded[-2:] == ["ModelFacts", "Ended"]
    assert kinds(engine.do(commands.Configure(Settings()))) == ["Ended"]
    assert kinds(engine.do(commands.Prefill("Once upon a time", chat=False))) == [
        "PromptOpened", "PrefillChunk", "Prefilled", "Ended",
    ]  # fmt: skip
    assert kinds(engine.do(commands.TakeStep())) == ["Step", "Ended"]
    assert kinds(engine.do(commands.Configure(Settings(temp=1.0)))) == ["Resampled", "Ended"]
    assert kinds(engine.do(commands.Reroll())) == ["Resampled", "Ended"]
    assert kinds(engine.do(commands.Choose(2, 300))) == ["Moved", "Step", "Ended"]
    assert kinds(engine.do(commands.MoveTo(5))) == ["Moved", "Ended"]
    assert kinds(engine.do(commands.Insert(5, " big dog"))) == ["Step", "Step", "Ended"]
    verified = engine.do(commands.Verify())[0]
    assert isinstance(verified, records.Verified)
    assert verified.largest_difference == 0
    assert verified.same_order


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (commands.Choose(4, 4096), "Token id 4096 is outside the model's vocabulary of 4096."),
        (commands.MoveTo(99), "There is no token number 99 to go to."),
        (commands.MoveTo(0), "There is no token number 0 to go to."),
        (commands.Prefill("", chat=False), "The prompt is empty."),
        (commands.Prefill("long " * 600, chat=False), "The prompt has 6"),
        (commands.Load(LoadSettings(model="./nowhere")), "No such directory: ./nowhere."),
        (commands.Configure(Settings(top_p=1.5)), "top-p must be a number above 0 to 1, not 1.5."),
    ],
)
def test_a_failure_is_a_record_and_the_session_stands_where_it_stood(
    ready: Engine, command: commands.Command, message: str
) -> None:
    failure, ended = ready.do(command)[-2:]
    assert isinstance(failure, records.Failure)
    assert failure.message.startswith(message)
    assert failure.expected
    assert isinstance(ended, records.Ended)
    after = ready.do(commands.TakeStep())[0]
    if isinstance(command, commands.Load):
        assert isinstance(after, records.Failure)  # the old model is gone before the new one takes memory
    else:
        assert isinstance(after, records.Step)


def test_commands_without_a_model_or_a_prompt_are_refused(engine: Engine) -> None:
    refused = engine.do(commands.TakeStep())
    assert kinds(refused)[-2:] == ["Failure", "Ended"]
    engine.do(commands.Load(LoadSettings()))
    refused = engine.do(commands.Run())
    assert isinstance(refused[0], records.Failure)


def test_a_run_stops_soon_after_a_cancel_and_can_go_on(ready: Engine) -> None:
    run = commands.Run()
    ready.send(run)
    for _ in range(5):
        ready.queue.get(timeout=10)
    run.cancel.set()
    cancelled = time.perf_counter()
    rest = ready.until_ended()
    assert time.perf_counter() - cancelled < 5
    assert rest[-1] == records.Ended("Run", cancelled=True)
    steps = [record for record in rest if isinstance(record, records.Step)]
    following = ready.do(commands.TakeStep())[0]
    assert isinstance(following, records.Step)
    if steps:
        assert following.parent == steps[-1].node


def test_a_late_cancel_hits_nobody_else(ready: Engine) -> None:
    step = commands.TakeStep()
    ready.do(step)
    step.cancel.set()
    assert kinds(ready.do(commands.TakeStep())) == ["Step", "Ended"]


def test_a_cancelled_command_that_waits_is_not_begun(ready: Engine) -> None:
    step = commands.TakeStep()
    step.cancel.set()
    assert ready.do(step) == [records.Ended("Step", cancelled=True)]


def test_a_pace_is_kept(ready: Engine) -> None:
    run = commands.Run(pace=20)
    begun = time.perf_counter()
    ready.send(run)
    for _ in range(5):
        ready.queue.get(timeout=10)
    assert time.perf_counter() - begun > 4 / 20
    run.cancel.set()
    ready.until_ended()


def test_a_model_without_a_template_says_that_the_prompt_is_raw(
    engine: Engine, zoo_without_template: str
) -> None:
    engine.do(commands.Load(LoadSettings(model=zoo_without_template)))
    opened = engine.do(commands.Prefill("Once", chat=True, system="Be brief."))[0]
    assert isinstance(opened, records.PromptOpened)
    assert not opened.chat
    assert opened.notes == (
        "This model has no chat template: the prompt is used as raw text.",
        "The system prompt is not used: only a chat template has a place for it.",
    )


@pytest.fixture
def zoo_without_template(tmp_path_factory: pytest.TempPathFactory) -> str:
    import shutil

    from engine import pocket

    directory = tmp_path_factory.mktemp("bare")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(pocket.directory() / name, directory)
    return str(directory)


def test_closing_during_a_run_ends_it(ready: Engine) -> None:
    ready.send(commands.Run())
    ready.queue.get(timeout=10)
    begun = time.perf_counter()
    assert ready.thread.close(5)
    assert time.perf_counter() - begun < 5


def test_closing_before_the_start_is_fine() -> None:
    assert EngineThread(lambda _: None).close()


def test_importing_the_thread_imports_no_mlx() -> None:
    code = (
        "import sys, engine.thread, engine.commands, engine.records\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('mlx', 'mlx_lm', 'numpy', 'textual', 'rich')])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_the_engine_imports_no_screen() -> None:
    code = (
        "import sys, engine.worker, engine.measuring.bench\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('inspector', 'textual')])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


EXIT = """
import sys, threading
from engine import commands, records
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
seen, reached = [], threading.Event()
def emit(record):
    seen.append(record)
    if type(record).__name__ == sys.argv[1]:
        reached.set()
engine = EngineThread(emit)
engine.start()
engine.send(commands.Load(LoadSettings()))
engine.send(commands.Configure(Settings(temp=1.0, max_tokens=10**6, min_tokens=10**6)))
engine.send(commands.Prefill("Once upon a time " * 40, chat=False))
engine.send(commands.Run())
reached.wait(30)
sys.exit(0 if engine.close(10) else 3)
"""


@pytest.mark.parametrize("phase", ["Loading", "ModelFacts", "PrefillChunk", "Step"])
def test_a_process_that_closes_in_any_phase_exits_cleanly(phase: str) -> None:
    done = subprocess.run([sys.executable, "-c", EXIT, phase], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_event_of_its_own_for_every_command() -> None:
    assert isinstance(commands.TakeStep().cancel, Event)
    assert commands.TakeStep().cancel is not commands.TakeStep().cancel
