"""The rules that no other tool checks: bases and names of classes, circles of modules, and what styles name.

Which folder may import which: pyproject.toml.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from textual.css.model import SelectorType
from textual.css.parse import parse_selectors
from textual.dom import DOMNode

from inspector.documents.exports import EXPORTS
from inspector.main.tool import found
from inspector.views import TOOLS

TOP = Path(__file__).parents[1]


@dataclass(frozen=True)
class Class:
    """One class of ours."""

    name: str
    place: str
    bases: tuple[str, ...]


@cache
def sources() -> dict[Path, str]:
    """The text of every module, by its path from the top."""
    found = [path for package in ("engine", "inspector") for path in sorted((TOP / package).rglob("*.py"))]
    return {path.relative_to(TOP): path.read_text(encoding="utf-8") for path in found}


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a module, which nobody changes."""
    return ast.parse(sources()[path])


@cache
def classes() -> tuple[Class, ...]:
    """Every class, also those inside others."""
    return tuple(
        Class(node.name, f"{path}:{node.lineno}", tuple(map(_base, node.bases)))
        for path in sources()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )


def _base(node: ast.expr) -> str:
    """The last name of a base: `Screen` of `screen.Screen[None]`."""
    return ast.unparse(node).partition("[")[0].rpartition(".")[2]


# ---- classes ----------------------------------------------------------------------------------


def test_classes_are_composed() -> None:
    """No class has more than one base of ours; errors may."""
    own = {each.name for each in classes() if not each.name.endswith("Error")}
    mixed = {each.place: each.bases for each in classes() if len(own.intersection(each.bases)) > 1}
    assert mixed == {}


def test_a_class_name_is_used_once() -> None:
    """Also for messages inside their widgets: whoever reads a name need not ask whose it is. The Python interface has
    names of its own: those that its users expect."""
    places = defaultdict(list)
    for each in classes():
        if not each.place.startswith(("inspector/api.py", "inspector/results.py")):
            places[each.name].append(each.place)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


# ---- imports ----------------------------------------------------------------------------------


def imported(path: Path, tree: ast.Module, modules: frozenset[str]) -> Iterator[str]:
    """The modules of ours that a module imports, also inside a function, but for what only its types name."""
    own = _module(path)
    typed = {id(each) for node in ast.walk(tree) if isinstance(node, ast.If)
             and ast.unparse(node.test) == "TYPE_CHECKING" for each in node.body}  # fmt: skip
    for node in ast.walk(tree):
        if id(node) in typed:
            continue
        if isinstance(node, ast.Import):
            yield from {each.name for each in node.names} & modules - {own}
        elif isinstance(node, ast.ImportFrom):
            within = (f"{node.module}.{each.name}" for each in node.names)
            yield from {each if each in modules else str(node.module) for each in within} & modules - {own}


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def circles(imports: dict[str, set[str]]) -> set[frozenset[str]]:
    """The groups of modules of which each reaches all others by what it imports."""
    reached: dict[str, set[str]] = {}
    for start in imports:
        waiting, seen = [start], set[str]()
        while waiting:
            new = imports[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[start] = seen
    groups = (frozenset(other for other in reached[each] if each in reached[other]) for each in imports)
    return {group for group in groups if len(group) > 1}


def test_modules_import_each_other_in_no_circle() -> None:
    """A circle can be read in no order; one that a function closes is one for the reader too."""
    modules = frozenset(map(_module, sources()))
    imports = {_module(path): set(imported(path, parsed(path), modules)) for path in sources()}
    assert circles(imports) == set()


def test_the_exporter_knows_no_tool() -> None:
    """Not at the beginning, not inside functions, and by no name: each tool hands its own part out."""
    here = "inspector/export/"
    own = {path: text for path, text in sources().items() if path.as_posix().startswith(here)}
    named = {
        (path.name, name)
        for path, text in own.items()
        for name in re.findall(r"inspector\.(?:tools|views|documents)\.(\w+)", text)
        if name != "parts"
    }
    assert (named, len(own) > 4) == (set(), True)


def test_the_parts_without_a_screen_are_those_of_the_tools() -> None:
    assert [part for tool in TOOLS for part in map(found, tool.exports)] == list(EXPORTS)
    names = [part.name for part in EXPORTS]
    assert len(names) == len(set(names))


def test_a_circle_is_found_and_a_chain_is_none() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {frozenset({"b", "c"})}
    text = "from inspector.cli import exit\ndef f():\n    from inspector import app\nimport inspector.keys\n"
    known = frozenset({"inspector.cli", "inspector.cli.exit", "inspector.app", "inspector.keys"})
    found = set(imported(Path("inspector/cli/main.py"), ast.parse(text), known))
    assert found == {"inspector.cli.exit", "inspector.app", "inspector.keys"}


# ---- fields -----------------------------------------------------------------------------------


def test_what_is_typed_into_is_shown_and_not_obeyed() -> None:
    """Textual's own fields draw what was pasted as it is, and take other cells for it than a terminal does."""
    calls = {
        f"{path}: {node.func.id}"
        for path in sources()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("Input", "TextArea")
    }
    assert calls == set()


# ---- styles -----------------------------------------------------------------------------------


@cache
def nodes() -> tuple[type[DOMNode], ...]:
    """Every class that a style can name, ours and the toolkit's, once all of ours are imported."""
    for path in sources():
        if path.parts[0] == "inspector" and path.name != "__main__.py":
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    return tuple(_below(DOMNode))


def _below(kind: type[DOMNode]) -> Iterator[type[DOMNode]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _below(each)


def type_selectors(css: str) -> set[str]:
    """The class names in the selectors of a style sheet."""
    plain = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    heads = re.findall(r"([^{};]+)\{", plain)
    return {
        selector.name
        for head in heads
        for selectors in parse_selectors(head.strip())
        for selector in selectors.selectors
        if selector.type is SelectorType.TYPE
    }


def styles() -> Iterator[tuple[str, str]]:
    """Every style sheet of ours, and where it is."""
    for name in ("inspector.tcss", "overlays.tcss"):
        yield name, (TOP / "inspector" / name).read_text(encoding="utf-8")
    for kind in nodes():
        if kind.__module__.startswith("inspector."):
            for name in ("DEFAULT_CSS", "CSS", "AUTO_FOCUS"):
                css = vars(kind).get(name)
                if isinstance(css, str) and css:
                    yield f"{kind.__name__}.{name}", css if name != "AUTO_FOCUS" else css + "{}"


def test_styles_name_classes_that_exist() -> None:
    """The toolkit takes an unknown name for a widget that isn't there: the look is gone, and nothing says so."""
    known = {name for kind in nodes() for name in kind._css_type_names}
    assert {"MainScreen", "SafeInput", "Toast", "MarkdownTableContent"} <= known
    unknown = {where: names for where, css in styles() if (names := type_selectors(css) - known)}
    assert unknown == {}


@pytest.mark.parametrize(
    ("css", "names"),
    [
        ("/* Line { } */ .row Line.-wrong:focus > Label { width: 1; }", {"Line", "Label"}),
        ("A, #b C { x: y } .d, E { color: $a 1%; }", {"A", "C", "E"}),
    ],
)
def test_the_names_in_styles_are_read(css: str, names: set[str]) -> None:
    assert type_selectors(css) == names


# ---- private names of Textual -------------------------------------------------------------------

PRIVATE = {
    "_bindings": "a screen's keys follow from the user's file; Textual binds those of a class alone (`BINDINGS`)",
    "_compositor_refresh": "a step records how long painting delayed it; no message tells when Textual paints",
    "_handle_exception": "an error of the machine ends with one line; no hook comes before Textual's traceback (#1582)",
}
"""Private names of Textual that the program uses, and the reason for each."""


def _private(tree: ast.AST) -> set[str]:
    """Names with one underscore that a class, or each class of a module, defines."""
    names = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(each.name)
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            names |= {each.attr} if isinstance(each.value, ast.Name) and each.value.id == "self" else set()
        elif isinstance(each, ast.ClassDef):
            fields = (field for field in each.body if isinstance(field, ast.Assign | ast.AnnAssign))
            targets = (
                target for field in fields for target in ast.walk(field) if isinstance(target, ast.Name)
            )
            names |= {target.id for target in targets if isinstance(target.ctx, ast.Store)}
    return {name for name in names if re.match("_[^_]", name)}


def test_no_other_private_name_of_textual_is_overridden_or_read() -> None:
    theirs: dict[tuple[str, str], set[str]] = {}
    for library in ("textual", "rich"):
        package = Path(importlib.import_module(library).__file__ or "").parent
        for path in package.rglob("*.py"):
            module = ".".join((library, *path.relative_to(package).with_suffix("").parts))
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    theirs[module.removesuffix(".__init__"), node.name] = _private(node)
    every = set[str]().union(*theirs.values())
    ours = set[str]().union(*(_private(parsed(path)) for path in sources()))
    used = set()
    for path in sources():
        if path.parts[0] != "inspector" or path.name == "__main__.py":
            continue
        names = {node.attr for node in ast.walk(parsed(path)) if isinstance(node, ast.Attribute)}
        used |= (names & every) - ours
        module = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        for node in ast.walk(parsed(path)):
            made = getattr(module, node.name, None) if isinstance(node, ast.ClassDef) else None
            for base in made.__mro__[1:] if isinstance(made, type) else ():
                used |= _private(node) & theirs.get((base.__module__, base.__name__), set())
    assert used == {*PRIVATE}
