"""What fails because MLX, mlx_lm or Textual is another one is said so, by name, and blames no file of a model."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue

import mlx.core as mx
import pytest
from mlx_lm import tokenizer_utils, utils
from mlx_lm.models import cache

from engine import libraries, protocol
from engine.errors import LoadError
from engine.model.load import cannot_run, load
from engine.settings import LoadSettings
from engine.thread import EngineThread
from engine.worker import unexpected
from tests.zoo import Zoo


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    libraries.missing.cache_clear()
    yield
    libraries.missing.cache_clear()


@pytest.mark.parametrize("package", libraries.LIBRARIES)
def test_nothing_is_missing_in_the_libraries_that_are_installed(package: str) -> None:
    importlib.import_module(package)
    assert libraries.missing(package) == ()


def test_what_is_used_is_read_from_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mx.fast, "scaled_dot_product_attention")
    monkeypatch.delattr(utils, "load_adapters")
    assert libraries.missing("mlx") == ("mlx.core.fast.scaled_dot_product_attention",)
    assert libraries.missing("mlx_lm") == ("mlx_lm.utils.load_adapters",)


# ---- private names ------------------------------------------------------------------------------

TOP = Path(libraries.__file__).parents[1]
STANDARD = {"_exit", "_asdict", "_ActionsContainer", "_ArgumentGroup", "_option_string_actions"}
"""Names of the standard library that begin so, to keep them apart from fields."""


def product() -> list[Path]:
    return [path for folder in ("engine", "inspector") for path in (TOP / folder).rglob("*.py")]


def private_names(sources: Sequence[str]) -> dict[str, str]:
    """Private names that some modules use and that none of them defines, each with a place that uses it."""
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    own, used = set(STANDARD), dict[str, str]()
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                own.add(name)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=names)):
                own |= {each.value for each in names if isinstance(each, ast.Constant)}
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) if name.startswith("_") and name[1:2] != "_" and name not in own:
                used[name] = ast.unparse(node)
            case ast.ImportFrom(module=str(module), names=names) if module != "__future__":
                used |= dict.fromkeys((*module.split("."), *(each.name for each in names)), module)
    return {name: place for name, place in used.items() if name.startswith("_")}


def test_every_private_name_of_a_library_is_in_the_list() -> None:
    found = private_names([path.read_text("utf-8") for path in product()])
    listed = {part for each in libraries.PRIVATE for part in each.name.split(".") if part.startswith("_")}
    assert {name: place for name, place in found.items() if name not in listed} == {}
    # a field of ours may have the same name as one of theirs
    text = "".join(path.read_text("utf-8") for path in product() if path.name != "libraries.py")
    assert {each.name for each in libraries.PRIVATE if each.name.rpartition(".")[2] not in text} == set()
    assert all(each.why and each.seen for each in libraries.PRIVATE)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def f(cache):\n    return cache._secret", "_secret"),
        ("from textual._types import Callback", "_types"),
        ("from mlx_lm.utils import _get", "_get"),
        ("def f(cache):\n    cache._written = 1", "_written"),
    ],
)
def test_such_a_name_is_found(source: str, name: str) -> None:
    assert name in private_names([source, "class Own:\n    def __init__(self):\n        self._mine = 1"])
    assert "_mine" not in private_names(
        [source, "class Own:\n    def __init__(self):\n        self._mine = 1"]
    )


def test_a_private_name_that_is_gone_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.check_private()
    monkeypatch.delattr(tokenizer_utils, "_infer_thinking")
    with pytest.raises(AttributeError) as failed:
        libraries.check_private()
    found = libraries.unsupported(failed.value)
    assert found[0].endswith("is not supported: mlx_lm.tokenizer_utils._infer_thinking is missing in it.")
    queue: SimpleQueue[protocol.Record] = SimpleQueue()
    engine = EngineThread(queue.put)
    engine.start()
    engine.send(protocol.Load(LoadSettings()))
    told = [queue.get(timeout=30) for _ in range(3)]
    assert engine.close(10)
    assert [type(each) for each in told] == [protocol.Loading, protocol.Failure, protocol.Ended]
    assert told[1].message == found[0]  # type: ignore[union-attr]


def test_a_field_that_only_instances_have_is_looked_for_in_the_methods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ring:
        """A cache that has no such field any more."""

    monkeypatch.setattr(cache, "RotatingKVCache", Ring)
    with pytest.raises(AttributeError, match=r"RotatingKVCache\._idx is missing"):
        libraries.check_private()


# ---- failures -----------------------------------------------------------------------------------


def test_a_changed_mlx_lm_is_named_and_no_file_blamed(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(utils, "load_model")
    with pytest.raises(LoadError) as failed:
        load(LoadSettings(model=str(zoo.path("llama"))))
    assert failed.value.message.startswith("mlx-lm ")
    assert failed.value.message.endswith("is not supported: mlx_lm.utils.load_model is missing in it.")
    assert failed.value.hint.startswith("Install mlx-lm<0.33,>=0.32.2")
    failure = unexpected(protocol.TakeStep(), AttributeError("module has no attribute load_model"))
    assert (failure.message, failure.hint) == (failed.value.message, failed.value.hint)
    assert failure.expected


def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.40.1" if name == "mlx-lm" else version(name))
    found = libraries.unsupported(TypeError("step() takes 2 positional arguments"))
    assert found[0] == "mlx-lm 0.40.1 is not supported (step() takes 2 positional arguments)."
    assert libraries.unsupported(ValueError("a shape")) is None


def test_a_fault_of_our_own_is_none_of_a_library() -> None:
    assert libraries.unsupported(AttributeError("'NoneType' object has no attribute 'x'")) is None


CHANGED = """
import importlib.abc, importlib.util, sys
class Changed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "mlx_lm.models.cache":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            del module.RotatingKVCache
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Changed())
"""


@pytest.mark.slow
def test_the_command_says_so_when_mlx_lm_can_not_even_be_imported(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CHANGED, encoding="utf-8")
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "inspector", "generate", "-p", "Once", "--max-tokens", "2"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
    )
    assert done.returncode == 2, done.stderr
    assert "is not supported: mlx_lm.models.cache.RotatingKVCache is missing in it." in done.stderr
    assert "Install mlx-lm<0.33,>=0.32.2" in done.stderr


@pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="other backends multiply them")
def test_experts_in_bfloat16_on_the_cpu_blame_the_machine(zoo: Zoo) -> None:
    folder = zoo.path("mixtral")
    with pytest.raises(LoadError) as failed:
        load(LoadSettings(model=str(folder), dtype="bfloat16"))
    assert (
        "can't run on the CPU here ([GatherMM::eval] Currently only supports float32)" in failed.value.message
    )
    assert failed.value.hint == "Load it with --dtype float32."


def test_a_kernel_of_metal_alone_blames_the_machine(tmp_path: Path) -> None:
    said = cannot_run(RuntimeError("[metal_kernel] No Metal back-end."), tmp_path, "auto")
    assert "config.json" not in said.message
    assert said.hint == "It needs an Apple GPU: run it on a Mac, or use another model."
