"""MLX, mlx_lm, llguidance and Textual as the program uses them: private names, what another version lacks, imports.

What the program uses of them in public is read from its own source once something has failed in them, so that no list
of it can be out of date: half a second, and nothing at the start. What it touches that is private is in one list, which
is checked at the start: where such a name means something else, wrong keys and values would be silent.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from inspect import isfunction
from itertools import filterfalse
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from engine.frozen import frozen

LIBRARIES = {"mlx": "mlx", "mlx_lm": "mlx-lm", "llguidance": "llguidance", "textual": "textual"}
"""By the package that is imported: the name under which it is installed."""


@frozen
class PrivateName:
    """A name of a library that is none of its interface, and that the program touches all the same."""

    name: str
    """Dotted: of a module, or of a class in one."""
    why: str
    seen: str
    """Version of the library that it was seen in."""


PRIVATE = (
    PrivateName(
        "mlx_lm.models.cache.RotatingKVCache._idx",
        "where the ring writes next: snapshots, undoing a token, and which key is whose",
        "0.32.2",
    ),
    PrivateName("mlx_lm.models.cache.BatchKVCache._idx", "columns of padded rows that are written", "0.32.2"),
    PrivateName("mlx_lm.models.cache.BatchRotatingKVCache._offset", "the same in a ring", "0.32.2"),
    PrivateName(
        "mlx_lm.tokenizer_utils.TokenizerWrapper._tokenizer",
        "the tokenizer itself, which has the bytes of each token",
        "0.32.2",
    ),
    PrivateName(
        "mlx_lm.tokenizer_utils.TokenizerWrapper._chat_template",
        "whether code of mlx_lm writes the prompts of a family",
        "0.32.2",
    ),
    PrivateName("mlx_lm.tokenizer_utils._infer_thinking", "what templates get as enable_thinking", "0.32.2"),
    PrivateName(
        "mlx_lm.tokenizer_utils._infer_tool_parser",
        "what parses the tool calls of a reply to a prompt that a template of its own filled",
        "0.32.2",
    ),
    PrivateName(
        "mlx_lm.utils._get_classes", "the class of a family, for a model of random weights", "0.32.2"
    ),
    PrivateName(
        "llguidance._tokenizer.TokenizerWrapper", "a vocabulary made of the tokens' bytes alone", "1.9.1"
    ),
    PrivateName(
        "rich.console._is_jupyter", "a picture is the same where a notebook runs the program", "15.0.0"
    ),
    PrivateName("textual._compositor.CompositorMap", "the type of where everything was laid out", "8.2.8"),
    PrivateName(
        "textual._compositor.Compositor._full_map",
        "what the last layout placed: what went since is painted over",
        "8.2.8",
    ),
    PrivateName("textual._compositor.Compositor._dirty_regions", "what is painted next", "8.2.8"),
    PrivateName("textual._types.CallbackType", "the type of what a message calls", "8.2.8"),
    PrivateName(
        "textual._xterm_parser.XTermParser",
        "what a terminal sends, as keys: bytes that are no text are dropped",
        "8.2.8",
    ),
    PrivateName(
        "textual.app.App._background_screens",
        "what changed on the screens below is painted with the one on top",
        "8.2.8",
    ),
    PrivateName("textual.app.App._batch_count", "whether paints reach the terminal", "8.2.8"),
    PrivateName("textual.app.App._exit", "whether the program is being left", "8.2.8"),
    PrivateName(
        "textual.app.App._handle_exception",
        "an error of the screen is shown in a few lines, and where its trace is",
        "8.2.8",
    ),
    PrivateName(
        "textual.css.stylesheet.Stylesheet._EXCLUDE_PSEUDO_CLASSES_FROM_CACHE",
        "rules are found once for all widgets of a path",
        "8.2.8",
    ),
    PrivateName("textual.dom.DOMNode._id", "part of such a path", "8.2.8"),
    PrivateName("textual.dom.DOMNode._selector_names", "part of such a path", "8.2.8"),
    PrivateName(
        "textual.css.styles.RenderStyles._updates", "changes of a style since it was computed", "8.2.8"
    ),
    PrivateName("textual.driver.Driver._debug", "a driver is made as Textual makes it", "8.2.8"),
    PrivateName(
        "textual.drivers.linux_driver.LinuxDriver._writer_thread",
        "writes to the terminal until it has gone",
        "8.2.8",
    ),
    PrivateName(
        "textual.message_pump.MessagePump._dispatch_message",
        "messages that ask for a layout that there was are dropped",
        "8.2.8",
    ),
    PrivateName("textual.message_pump.MessagePump._parent", "the path of a widget", "8.2.8"),
    PrivateName("textual.screen.Screen._compositor", "where widgets are, and what is painted", "8.2.8"),
    PrivateName(
        "textual.screen.Screen._compositor_refresh", "painting is timed: steps record what it took", "8.2.8"
    ),
    PrivateName("textual.screen.Screen._dirty_widgets", "those that are painted next", "8.2.8"),
    PrivateName(
        "textual.screen.Screen._forward_event", "the mouse is at what is there, not at what has gone", "8.2.8"
    ),
    PrivateName(
        "textual.screen.Screen._get_breakpoint_classes",
        "classes by the size, before the first layout",
        "8.2.8",
    ),
    PrivateName(
        "textual.screen.Screen._layout_widgets", "whether something besides the scrolling changed", "8.2.8"
    ),
    PrivateName(
        "textual.screen.Screen._maybe_clear_tooltip",
        "a tooltip is hidden behind the layout, not within it",
        "8.2.8",
    ),
    PrivateName("textual.screen.Screen._on_timer_update", "when a screen is painted", "8.2.8"),
    PrivateName(
        "textual.screen.Screen._refresh_layout", "a screen is laid out once for all that asked", "8.2.8"
    ),
    PrivateName("textual.screen.Screen._screen_resized", "a screen is laid out once for its size", "8.2.8"),
    PrivateName(
        "textual.widget.Widget._clear_arrangement_cache",
        "a layout has what was asked for just before",
        "8.2.8",
    ),
    PrivateName("textual.widget.Widget._layout_required", "whether a widget asks for a layout", "8.2.8"),
    PrivateName(
        "textual.widget.Widget._layout_updates", "a layout has what was asked for just before", "8.2.8"
    ),
    PrivateName("textual.widget.Widget._pruning", "whether a widget is going", "8.2.8"),
    PrivateName("textual.widget.Widget._styles_cache", "rows that are drawn as they are painted", "8.2.8"),
    PrivateName("textual.widget.Widget._repaint_required", "whether a widget is to be painted", "8.2.8"),
    PrivateName(
        "textual.widgets._option_list.OptionList._index_to_line", "whether a list was laid out", "8.2.8"
    ),
    PrivateName(
        "textual.widgets._option_list.OptionList._move_page",
        "the highlight moves by a page where the list was laid out",
        "8.2.8",
    ),
    PrivateName(
        "textual.widgets._option_list.OptionList._on_click",
        "an option is selected if it is still there",
        "8.2.8",
    ),
    PrivateName(
        "textual.widgets._option_list.OptionList._update_lines",
        "options are laid out where there is room",
        "8.2.8",
    ),
    PrivateName(
        "textual.widgets._text_area.TextArea._on_key",
        "keys of a dialog come before those of its text",
        "8.2.8",
    ),
)
"""All that engine and screen touch."""
_SUSPECT = (ImportError, AttributeError, TypeError)
"""What a name raises that is gone or means something else."""


def unsupported(error: BaseException) -> tuple[str, str] | None:
    """Why a failure is that of another version of a library, and what to do; None where it isn't, or can't be said.

    Args:
        error: What was raised; its causes are looked at, too.
    """
    while not isinstance(error, _SUSPECT):
        if error.__cause__ is None:
            return None
        error = error.__cause__
    for package, name in LIBRARIES.items():
        named = isinstance(error, ImportError) and (error.name or "").partition(".")[0] == package
        if not (named or package in sys.modules) or (wanted := _wanted(name)) is None:
            continue
        version, requirement, fits = wanted
        gone = missing(package)
        if gone or not fits:
            why = f": {gone[0]} is missing in it" if gone else f" ({error})"
            return (
                f"{name} {version} is not supported{why}.",
                f"Install {requirement}, or a newer mlx-inspector.",
            )
    return None


def _wanted(name: str) -> tuple[str, str, bool] | None:
    """The version of a library that is installed, the requirement of it, and whether the one fits the other."""
    from importlib import metadata  # slow to import, and only wanted here

    try:
        from packaging.requirements import Requirement

        version = metadata.version(name)
        requirements = map(Requirement, metadata.requires("mlx-inspector") or ())
    except (ImportError, metadata.PackageNotFoundError):
        return None
    for each in requirements:
        if each.name == name and (each.marker is None or each.marker.evaluate({"extra": ""})):
            return version, f"{name}{each.specifier}", each.specifier.contains(version, prereleases=True)
    return None


def check_private() -> None:
    """Hold `PRIVATE` against the libraries that are imported; takes half a millisecond.

    Raises:
        AttributeError: One of them isn't there: `unsupported` says so.
    """
    for each in PRIVATE:
        if each.name.partition(".")[0] in sys.modules and not _is_there(each.name):
            raise AttributeError(f"{each.name} is missing")


def _is_there(name: str) -> bool:
    """True if a private name is in a library, if its module is imported: an instance's, where a method has it."""
    module, _, rest = name.rpartition(".")
    while (found := sys.modules.get(module)) is None and "." in module:
        module, _, before = module.rpartition(".")
        rest = f"{before}.{rest}"
    *holders, last = rest.split(".")
    holder: object = found
    for part in holders:
        if not hasattr(holder, part):
            return isinstance(holder, ModuleType) and f"{module}.{part}" not in sys.modules
        holder = getattr(holder, part)
    methods = vars(holder).values() if isinstance(holder, type) else ()
    return hasattr(holder, last) or any(
        last in each.__code__.co_names for each in methods if isfunction(each)
    )


@cache
def missing(package: str) -> tuple[str, ...]:
    """The names that the program uses of a library and that it doesn't have."""
    sources = [sys.modules[name].__file__ for name in ("engine", "inspector") if name in sys.modules]
    folders = [Path(source).parent for source in sources if source]
    used = {name for folder in folders for path in folder.rglob("*.py") for name in _used(path, package)}
    private = {each.name for each in PRIVATE if each.name.startswith(f"{package}.")}
    return (*sorted(name for name in used if not _exists(name)), *sorted(filterfalse(_is_there, private)))


def _used(path: Path, package: str) -> Iterator[str]:
    """The dotted names of a library that a file of ours uses, as far as it names them through a module."""
    text = path.read_text(encoding="utf-8")
    if f"import {package}" not in text and f"from {package}" not in text:
        return
    nodes = list(ast.walk(ast.parse(text)))
    homes: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names = {each.asname or each.name.partition(".")[0]: each for each in node.names}
            homes |= {local: each.name if each.asname else local for local, each in names.items()}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            homes |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    homes = {local: home for local, home in homes.items() if home.partition(".")[0] == package}
    for node in nodes:  # a name that also means something else says nothing
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            homes.pop(node.id, None)
        elif isinstance(node, ast.arg):
            homes.pop(node.arg, None)
    yield from homes.values()
    for node in nodes:
        if isinstance(node, ast.Attribute) and (dotted := _dotted(node)):
            local, _, rest = dotted.partition(".")
            if local in homes:
                yield f"{homes[local]}.{rest}"


def _dotted(node: ast.expr) -> str:
    """A chain of attributes of a name, empty where it begins elsewhere."""
    if isinstance(node, ast.Name):
        return node.id
    before = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if before and isinstance(node, ast.Attribute) else ""


def _exists(name: str) -> bool:
    """True if a name can be reached: through modules alone, since what an object has is known once it runs."""
    package, *rest = name.split(".")
    found: object = importlib.import_module(package)
    for place, part in enumerate(rest, 2):
        if not isinstance(found, ModuleType):
            return True
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(name.split(".")[:place]))
            except ModuleNotFoundError as error:
                return error.name is None or error.name.partition(".")[0] != package
            except Exception:  # it is there, and something else keeps it from being imported
                return True
        found = getattr(found, part, None)
    return True


# ---- mlx_lm without transformers and huggingface_hub -------------------------------------------

# mlx_lm's package imports both, which takes three quarters of a start (measured: 2.2 s of 2.6 s; without them 0.6 s),
# and neither is needed for a model that lies in a directory and whose tokenizer is a plain `tokenizer.json`. While
# mlx_lm is imported, placeholders stand in their place: five names, four of them classes. What needs the real ones gets
# them: the first use of a placeholder fills them in, in every module of mlx_lm that has one. Nothing is changed where
# either was imported before, and both are imported as usual by whoever asks for them afterwards.

_registered: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
"""Arguments of each `AutoTokenizer.register` while mlx_lm was imported."""


class _Placeholder:
    """Stands for a class of transformers."""

    HOME: ClassVar[str] = "transformers"


class _AutoTokenizer(_Placeholder):
    @staticmethod
    def register(*given: Any, **named: Any) -> None:
        _registered.append((given, named))

    @staticmethod
    def from_pretrained(*given: Any, **named: Any) -> Any:
        fill_in()
        return importlib.import_module("transformers").AutoTokenizer.from_pretrained(*given, **named)


class _TokenizerBase(_Placeholder):
    HOME: ClassVar[str] = "transformers.tokenization_utils_base"


class _SlowTokenizer(_Placeholder):
    pass


class _FastTokenizer(_Placeholder):
    """mlx_lm derives a tokenizer of its own from it."""


def _snapshot_download(*given: Any, **named: Any) -> Any:
    return importlib.import_module("huggingface_hub").snapshot_download(*given, **named)


_CLASSES: dict[str, type[_Placeholder]] = {
    "AutoTokenizer": _AutoTokenizer,
    "PreTrainedTokenizer": _SlowTokenizer,
    "PreTrainedTokenizerBase": _TokenizerBase,
    "PreTrainedTokenizerFast": _FastTokenizer,
}


def import_mlx_lm() -> None:
    """Import `mlx_lm`, without transformers if neither has been imported yet."""
    absent = not {"mlx_lm", "transformers", "huggingface_hub"} & sys.modules.keys()
    if absent and "MLXLM_USE_MODELSCOPE" not in os.environ:
        placeholders = _modules()
        sys.modules.update(placeholders)
        try:
            importlib.import_module("mlx_lm.utils")
            return
        except (ImportError, AttributeError, TypeError):  # another mlx_lm, which needs more of them
            for name in [name for name in sys.modules if name.partition(".")[0] == "mlx_lm"]:
                del sys.modules[name]
        finally:
            for name, module in placeholders.items():
                if sys.modules.get(name) is module:
                    del sys.modules[name]
    importlib.import_module("mlx_lm.utils")


def _modules() -> dict[str, ModuleType]:
    modules = {name: ModuleType(name) for name in ("transformers", _TokenizerBase.HOME, "huggingface_hub")}
    for name, placeholder in _CLASSES.items():
        setattr(modules[placeholder.HOME], name, placeholder)
    modules["huggingface_hub"].snapshot_download = _snapshot_download  # type: ignore[attr-defined]
    modules["transformers"].__path__ = []  # a package: it has the other one in it
    return modules


def fill_in() -> None:
    """Give mlx_lm's modules the real classes, if they have placeholders; it imports transformers."""
    real = {
        placeholder: getattr(importlib.import_module(placeholder.HOME), name)
        for name, placeholder in _CLASSES.items()
    }
    for module in [each for name, each in sys.modules.items() if name.partition(".")[0] == "mlx_lm"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in real:
                setattr(module, name, real[value])
    for derived in _FastTokenizer.__subclasses__():
        derived.__bases__ = (real[_FastTokenizer],)
    while _registered:
        given, named = _registered.pop()
        real[_AutoTokenizer].register(*given, **named)
