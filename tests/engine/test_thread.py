"""The engine's thread: commands in, records out, failures as records, and an end that never aborts."""

from __future__ import annotations

import json
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from engine import protocol
from engine.child import EngineProcess
from engine.protocol import Received, Record, Sent
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread, Inbox
from tests.engine.unthreaded import kinds
from tests.system import python


class Engine:
    """An engine thread whose records are gathered command by command."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Received] = SimpleQueue()
        self.hand_out: Callable[[Received], None] = self.queue.put
        self.thread = self.backend = EngineThread(lambda received: self.hand_out(received))
        self.thread.start()

    sent = 0
    """Commands; the last one has this number as its id."""
    backend: EngineThread | EngineProcess
    ids: tuple[int, ...] = ()
    """Of the commands of the records that `until` and `until_ended` gave last."""

    def send(self, command: protocol.Command, id: int | None = None) -> int:
        """Send a command; returns its id."""
        self.sent += 1
        self.backend.send(Sent(command, self.sent if id is None else id))
        return self.sent if id is None else id

    def cancel(self, id: int) -> None:
        self.backend.send(Sent(protocol.Cancel(id), 0))

    def get(self) -> Record:
        return self.queue.get(timeout=60).record

    def until(self, kind: type[Record], count: int = 1) -> list[Record]:
        """The records up to so many of one kind."""
        found: list[Received] = []
        while sum(isinstance(each.record, kind) for each in found) < count:
            found.append(self.queue.get(timeout=60))
        self.ids = tuple(each.id for each in found)
        return [each.record for each in found]

    def until_ended(self, id: int | None = None) -> list[Record]:
        """The records up to the end of a command, or of any."""
        found, ids = self.until(protocol.Ended), self.ids
        while id is not None and ids[-1] != id:
            found += self.until(protocol.Ended)
            ids += self.ids
        self.ids = ids
        return found

    def do(self, command: protocol.Command) -> list[Record]:
        return self.until_ended(self.send(command))


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    assert engine.thread.close(10)


@pytest.fixture
def ready(engine: Engine) -> Engine:
    engine.do(protocol.Load(LoadSettings()))
    engine.do(protocol.Configure(Settings(max_tokens=1000, min_tokens=1000)))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    return engine


def test_idle_time_is_used_until_a_task_waits_and_then_no_more() -> None:
    inbox, used = Inbox(), list[int]()

    class Idle:
        def use_idle_time(self) -> bool:
            used.append(len(used))
            if len(used) == 3:
                inbox.put(7)
            return len(used) < 9

    assert inbox.get([Idle()]) == 7  # type: ignore[list-item]
    assert used == [0, 1, 2]
    inbox.put(8)
    assert inbox.get([Idle()]) == 8  # type: ignore[list-item]
    assert used == [0, 1, 2]


def test_a_session_from_load_to_step(engine: Engine) -> None:
    loaded = kinds(engine.do(protocol.Load(LoadSettings())))
    assert loaded[0] == "Loading"
    assert loaded[-2:] == ["ModelFacts", "Ended"]
    assert kinds(engine.do(protocol.Configure(Settings()))) == ["Ended"]
    assert kinds(engine.do(protocol.Prefill("Once upon a time", chat=False))) == [
        "PromptOpened", "PrefillChunk", "Prefilled", "PromptReadings", "Ended",
    ]  # fmt: skip
    assert kinds(engine.do(protocol.TakeStep())) == ["Step", "Ended"]
    assert kinds(engine.do(protocol.Configure(Settings(temp=1.0)))) == ["Resampled", "Ended"]
    assert kinds(engine.do(protocol.Reroll())) == ["Resampled", "Ended"]
    assert kinds(engine.do(protocol.Choose(2, 300))) == ["Moved", "Step", "Ended"]
    assert kinds(engine.do(protocol.MoveTo(5))) == ["Moved", "Ended"]
    assert kinds(engine.do(protocol.Insert(5, " big dog"))) == ["Step", "Step", "Ended"]
    verified = engine.do(protocol.Verify())[0]
    assert verified.largest_difference <= verified.rounding  # read in chunks what ran token by token
    assert verified.same_order


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (protocol.Choose(4, 4096), "Token id 4096 is outside the model's vocabulary of 4096."),
        (protocol.MoveTo(99), "There is no token number 99 to go to."),
        (protocol.MoveTo(0), "There is no token number 0 to go to."),
        (protocol.Prefill("", chat=False), "The prompt is empty."),
        (protocol.Prefill("long " * 600, chat=False), "The prompt has 6"),
        (protocol.Load(LoadSettings(model="./nowhere")), "No such directory: ./nowhere."),
        (protocol.Configure(Settings(top_p=1.5)), "top-p must be a number above 0 and at most 1, not 1.5."),
    ],
)
def test_a_failure_is_a_record_and_the_session_stands_where_it_stood(
    ready: Engine, command: protocol.Command, message: str
) -> None:
    failure, ended = ready.do(command)[-2:]
    assert failure.message.startswith(message)
    assert failure.expected
    assert isinstance(ended, protocol.Ended)
    after = ready.do(protocol.TakeStep())[0]
    if isinstance(command, protocol.Load):
        assert isinstance(after, protocol.Failure)  # the old model is gone before the new one takes memory
    else:
        assert isinstance(after, protocol.Step)


def test_commands_without_a_model_or_a_prompt_are_refused(engine: Engine) -> None:
    refused = engine.do(protocol.TakeStep())
    assert kinds(refused)[-2:] == ["Failure", "Ended"]
    engine.do(protocol.Load(LoadSettings()))
    refused = engine.do(protocol.Run())
    assert isinstance(refused[0], protocol.Failure)


def test_a_run_stops_soon_after_a_cancel_and_can_go_on(ready: Engine) -> None:
    run = ready.send(protocol.Run())
    for _ in range(5):
        ready.queue.get(timeout=10)
    ready.cancel(run)
    cancelled = time.perf_counter()
    rest = ready.until_ended()
    assert time.perf_counter() - cancelled < 5
    assert rest[-1] == protocol.Ended("Run", cancelled=True)
    steps = [record for record in rest if isinstance(record, protocol.Step)]
    following = ready.do(protocol.TakeStep())[0]
    assert isinstance(following, protocol.Step)
    if steps:
        assert following.parent == steps[-1].node


def ids(engine: Engine, found: list[Record]) -> list[int]:
    """Of the ends and failures among the records that an engine gave last."""
    pairs = zip(engine.ids, found, strict=True)
    return [id for id, record in pairs if isinstance(record, protocol.Ended | protocol.Failure)]


def test_a_late_cancel_hits_nobody_else(ready: Engine) -> None:
    step = ready.send(protocol.TakeStep())
    ready.until_ended(step)
    ready.cancel(step)
    assert kinds(ready.do(protocol.TakeStep())) == ["Step", "Ended"]
    run = ready.send(protocol.Run())
    ready.until(protocol.Step)
    ready.cancel(step)
    ready.cancel(0)
    assert kinds(ready.until(protocol.Step, 20)) == ["Step"] * 20
    ready.cancel(run)
    assert ready.until_ended()[-1] == protocol.Ended("Run", cancelled=True)


def test_a_cancel_is_answered_by_nothing(ready: Engine) -> None:
    ready.cancel(99)
    assert kinds(ready.do(protocol.TakeStep())) == ["Step", "Ended"]


def test_a_cancelled_command_that_waits_is_not_begun(ready: Engine) -> None:
    run, one, two = map(ready.send, (protocol.Run(), protocol.TakeStep(), protocol.TakeStep()))
    ready.until(protocol.Step)
    ready.cancel(one)  # it waits behind the run
    ready.cancel(run)
    ready.until_ended(run)
    assert ready.until_ended(one) == [protocol.Ended("TakeStep", cancelled=True)]
    assert kinds(ready.until_ended(two)) == ["Step", "Ended"]


def test_a_cancel_may_come_from_where_records_are_handed_out(ready: Engine) -> None:
    def cancel(received: Received) -> None:
        ready.queue.put(received)
        if isinstance(received.record, protocol.Step):
            ready.cancel(received.id)

    ready.hand_out = cancel
    assert ready.do(protocol.Run())[-1] == protocol.Ended("Run", cancelled=True)


def test_a_session_beside_has_a_tree_of_its_own_and_the_same_weights(
    ready: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def text(found: list[Record]) -> str:
        return "".join(record.text for record in found if isinstance(record, protocol.Step))

    before = text(ready.do(protocol.TakeStep()))
    came: SimpleQueue[Received] = SimpleQueue()
    beside = ready.thread.side_session(came.put)

    def do(command: protocol.Command) -> list[Record]:
        ready.sent += 1
        beside.send(Sent(command, ready.sent))
        records = [came.get(timeout=60).record]
        while not isinstance(records[-1], protocol.Ended):
            records.append(came.get(timeout=60).record)
        return records

    loaded = do(protocol.Load(LoadSettings()))
    assert kinds(loaded) == ["ModelFacts", "Ended"], "nothing is read again"
    do(protocol.Prefill("The big dog", chat=False))
    between = text(do(protocol.TakeStep()))
    after = text(ready.do(protocol.TakeStep()))
    assert (before, between, after) == (",", " was", " there")
    (verified,) = (each for each in ready.do(protocol.Verify()) if isinstance(each, protocol.Verified))
    assert verified.largest_difference <= 1e-3 + verified.rounding
    left: list[bool] = []
    monkeypatch.setattr("engine.worker.Worker.leave", lambda worker, last: left.append(last))
    assert beside.close()
    while 1 in ready.thread._receivers:  # it is dropped behind what was sent before
        ready.do(protocol.TakeStep())
    ready.do(protocol.TakeStep())
    assert came.empty()
    assert left == [False]


def test_an_id_is_in_use_until_its_command_has_ended(ready: Engine) -> None:
    run = ready.send(protocol.Run())
    with pytest.raises(ValueError, match=f"TakeStep can't be sent: command {run} has not ended"):
        ready.send(protocol.TakeStep(), run)
    ready.cancel(run)
    ready.until_ended(run)
    ready.send(protocol.TakeStep(), run)
    assert ids(ready, ready.until_ended(run)) == [run]
    assert not ready.thread._tasks


def test_every_end_and_failure_has_the_id_of_its_command_in_the_middle_of_a_run_too(ready: Engine) -> None:
    run, told, failed = map(ready.send, (protocol.Run(), protocol.Explain(4), protocol.Explain(9999)))
    found = ready.until(protocol.Ended, 2)
    assert kinds(found)[-1] == "Ended"
    assert ids(ready, found) == [told, failed, failed]
    assert any(isinstance(record, protocol.Explained) for record in found)
    ready.cancel(told)
    ready.until(protocol.Step, 3)  # the run continues, after the failure and after the late cancel
    ready.cancel(run)
    assert ids(ready, ready.until_ended()) == [run]
    refused = ready.send(protocol.MoveTo(9999))
    assert ids(ready, ready.until_ended(refused)) == [refused, refused]


@pytest.mark.slow
def test_where_mlx_cannot_be_imported_every_command_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    engine = Engine()
    for command in (protocol.Load(LoadSettings()), protocol.Configure(Settings()), protocol.TakeStep()):
        failure, ended = engine.do(command)[-2:]
        assert failure.message.startswith("MLX can't be started: ")
        assert "`inspector replay` and `inspector learn` need no MLX" in failure.hint
        assert ended == protocol.Ended(command.kind)
        assert failure.command == command.kind
        assert engine.ids[-2:] == (engine.sent, engine.sent)
    assert engine.thread.close(10)


class Panic(BaseException):
    """What a panic in a library written in Rust is raised as, in the eyes of Python."""


def fails(*given: object) -> None:
    raise Panic("at the disco")


def test_a_text_at_which_the_tokenizer_panics_is_refused_and_the_engine_goes_on(
    engine: Engine, panicking_model: str
) -> None:
    engine.do(protocol.Load(LoadSettings(model=panicking_model)))
    failure, _ = engine.do(protocol.Prefill("a" * 60 + "c", chat=False))
    assert failure.message.startswith("The tokenizer can't cut this text (Onig: ")
    assert (failure.expected, failure.error) == (True, "PromptError")
    assert kinds(engine.do(protocol.Prefill("Once", chat=False)))[-1] == "Ended"
    assert kinds(engine.do(protocol.TakeStep())) == ["Step", "Ended"]


@pytest.fixture
def panicking_model(tmp_path: Path) -> str:
    """The bundled model with a pattern whose search gives up at some texts."""
    from engine import pocket

    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(pocket.directory() / name)
    tokenizer = json.loads((pocket.directory() / "tokenizer.json").read_bytes())
    split = {
        "type": "Split",
        "pattern": {"Regex": "(a|a)*b|(a|aa)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    apart = tokenizer["pre_tokenizer"] | {"use_regex": False}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, apart]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    return str(tmp_path)


def test_what_is_no_exception_is_a_failure_too_in_a_command_and_between_commands(
    ready: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.session.handlers.with_stop", fails)
    failure, ended = ready.do(protocol.TakeStep())
    assert failure.message == "TakeStep failed: Panic: at the disco."
    assert (failure.expected, kinds([ended])) == (False, ["Ended"])
    monkeypatch.undo()
    monkeypatch.setattr("engine.session.prefill.Unread.read", fails)
    monkeypatch.setattr("engine.session.context.Context.prompt_readings", lambda *given: ())
    ready.do(protocol.Prefill("The big dog", chat=False))
    assert ready.until(protocol.Failure)[-1].message == "Prefill failed: Panic: at the disco."
    monkeypatch.undo()
    assert kinds(ready.do(protocol.TakeStep())) == ["Step", "Ended"]


def test_a_receiver_that_raises_ends_its_own_command_alone(ready: Engine) -> None:
    beside = ready.thread.side_session(fails)
    beside.send(Sent(protocol.Load(LoadSettings()), 99))
    assert kinds(ready.do(protocol.TakeStep())) == ["Step", "Ended"]
    assert not ready.thread._tasks


def test_while_mlx_is_imported_a_panic_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.patches.imports.import_mlx_lm", fails)
    engine = Engine()
    failure, ended = engine.do(protocol.TakeStep())[-2:]
    assert failure.message == "MLX can't be started: at the disco."
    assert ended == protocol.Ended("TakeStep")
    assert engine.thread.close(10)


def test_whoever_waits_is_woken_where_the_thread_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.do(protocol.Load(LoadSettings()))
    monkeypatch.setattr("engine.thread.Inbox.get", fails)
    # the thread waits inside the real one: it takes the first
    waiting = [engine.send(protocol.TakeStep()) for _ in range(3)]
    told = engine.until(protocol.Ended, 3)
    assert [*engine.ids[1::2]] == waiting
    assert [each.message for each in told if isinstance(each, protocol.Failure)][1:] == [
        "The engine failed: Panic: at the disco."
    ] * 2
    engine.thread._thread.join(10)
    failure, ended = engine.do(protocol.TakeStep())
    assert (failure.message, failure.expected) == ("The engine has ended.", False)
    assert ended == protocol.Ended("TakeStep")
    assert engine.thread.close(10)


def test_a_pace_is_kept(ready: Engine) -> None:
    begun = time.perf_counter()
    run = ready.send(protocol.Run(pace=20))
    for _ in range(5):
        ready.queue.get(timeout=10)
    assert time.perf_counter() - begun > 4 / 20
    ready.cancel(run)
    ready.until_ended()


def test_a_model_without_a_template_says_that_the_prompt_is_raw(
    engine: Engine, zoo_without_template: str
) -> None:
    engine.do(protocol.Load(LoadSettings(model=zoo_without_template)))
    opened = engine.do(protocol.Prefill("Once", chat=True, system="Be brief."))[0]
    assert isinstance(opened, protocol.PromptOpened)
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
    ready.send(protocol.Run())
    ready.queue.get(timeout=10)
    begun = time.perf_counter()
    assert ready.thread.close(5)
    assert time.perf_counter() - begun < 5


def test_closing_before_the_start_is_fine() -> None:
    assert EngineThread(lambda _: None).close()


def contract(name: str, field: str) -> set[str]:
    """A list of modules of a contract in pyproject.toml, by how the contract's name begins."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    (found,) = (each[field] for each in contracts if each["name"].startswith(name))
    return {name for name in found if name.startswith("engine")}


FACE = contract("The engine's commands, records and settings", "source_modules") | {
    "engine.child",
    "engine.thread",
}
"""What a screen may import of the engine, without what it imports once something failed or was asked."""


def test_importing_the_engines_face_loads_no_library_but_msgspec() -> None:
    code = f"""
import sys
before = set(sys.modules)
import {", ".join(sorted(FACE))}
added = {{name.split(".")[0] for name in set(sys.modules) - before}}
print(sorted(added - set(sys.stdlib_module_names) - {{"engine", "__mp_main__", "typing_extensions"}}))
"""
    done = python(code)  # multiprocessing brings the second of these, msgspec the third if it is installed
    assert (done.returncode, done.stdout) == (0, "['msgspec']\n"), done.stderr


def test_the_contracts_name_the_same_face() -> None:
    more = {"engine.tokenizers", "engine.logits.recorded", "engine.model.download", "engine.models_on_disk"}
    assert contract("The screen imports the engine's face", "allowed_modules") == FACE | more


def test_the_engine_imports_no_screen() -> None:
    code = (
        "import sys\n"
        "from engine.protocol import COMMANDS, Cancel\n"
        "from engine.worker import handler_of\n"
        "assert [handler_of(each) for each in COMMANDS.values() if each is not Cancel]\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('inspector', 'textual')])"
    )
    done = python(code)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_first_distribution_waits_for_no_import_that_it_does_not_need() -> None:
    code = """
import sys
from engine.patches.imports import import_mlx_lm
import_mlx_lm()
from engine import protocol
from engine.settings import LoadSettings
from engine.worker import HANDLERS
from tests.engine.unthreaded import Unthreaded
engine = Unthreaded()
engine.do(protocol.Load(LoadSettings()))
assert any(isinstance(each, protocol.Prefilled) for each in engine.do(protocol.Prefill("Once upon", chat=False)))
print(len(engine.do(protocol.TakeStep())) > 1)
late = HANDLERS.keys() - {"engine.session.handlers"}
print(sorted({"regex", "llguidance", "transformers", *late} & set(sys.modules)))
"""
    done = python(code)
    assert (done.returncode, done.stdout) == (0, "True\n[]\n"), done.stderr


EXIT = """
import sys, threading
from engine import protocol
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
seen, reached = [], threading.Event()
def emit(received):
    seen.append(received)
    if type(received.record).__name__ == sys.argv[1]:
        reached.set()
engine = EngineThread(emit)
engine.start()
for id, command in enumerate((
    protocol.Load(LoadSettings()),
    protocol.Configure(Settings(temp=1.0, max_tokens=10**6, min_tokens=10**6)),
    protocol.Prefill("Once upon a time " * 40, chat=False),
    protocol.Run(),
)):
    engine.send(protocol.Sent(command, id))
reached.wait(30)
sys.exit(0 if engine.close(10) else 3)
"""


@pytest.mark.wide(1)
@pytest.mark.parametrize("phase", ["Loading", "ModelFacts", "PrefillChunk", "Step"])
def test_a_process_that_closes_in_any_phase_exits_cleanly(phase: str) -> None:
    done = python(EXIT, phase)
    assert (done.returncode, done.stderr) == (0, "")


FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from queue import SimpleQueue
from engine.protocol import Load, Sent
from engine.settings import LoadSettings
from engine.thread import EngineThread
told = SimpleQueue()
engine = EngineThread(told.put)
engine.start()
engine.send(Sent(Load(LoadSettings()), 1))
print(next(each.record for each in iter(told.get, None) if hasattr(each.record, "hint")))
engine.close(10)
"""


def test_a_low_limit_of_open_files_is_called_what_it_is() -> None:
    told = python(FEW_FILES).stdout
    assert "mlx_lm needs to be allowed 4,096 open files, and the hard limit here is 64." in told
    assert "ulimit -Hn 4096" in told


def test_a_bias_beyond_the_vocabulary_given_before_the_model_is_called_what_it_is(engine: Engine) -> None:
    assert kinds(engine.do(protocol.Configure(Settings(logit_bias=((9999, 1.0),)))))[-1:] == ["Ended"]
    engine.do(protocol.Load(LoadSettings()))
    for _ in range(2):
        failure = engine.do(protocol.Prefill("Once upon a time", chat=False))[-2]
        assert failure.message == "logit bias: token id 9999 is outside the model's vocabulary of 4096."
        assert failure.expected
    engine.do(protocol.Configure(Settings()))
    done = kinds(engine.do(protocol.Prefill("Once upon a time", chat=False)))
    assert done[-1] == "Ended"
    assert "Prefilled" in done
