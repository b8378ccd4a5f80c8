"""Views of other packages: the shipped lens as a package outside this repository, and plug-ins that fail."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.cli.main import main
from inspector.views import plugins
from tests.inspector.rig import Rig, run
from tests.inspector.views.lens.test_screen import answer

ROOT = Path(__file__).resolve().parents[2]
ENTRY = """

Lens.ENTRY = Tool(
    "outside",
    "Outside",
    actions=(Action("outside", "Outside lens", "Show the lens of another package.", keys="}", view="outside",
                    needs=Needs.DISTRIBUTION | Needs.ENGINE, opens="outside_lens:Lens"),),
    exports=("outside_document:LENS_PART",),
    tab="3",
)
"""
RAISES = """
from inspector.main.tool import Tool
from inspector.main.view import View
from inspector.widgets.actions import Action, back, screen_table

KEYS = screen_table("In a view that raises", Action("raises.go", "Go", "Raise.", lambda own: 1 / 0, keys="k"),
                    back("inside.leave", "Go back."))

class Raises(View):
    TOOL = "raises"
    ACTIONS = KEYS
    ENTRY = Tool("raises", "Raises", tab="3", actions=(
        Action("raises", "Raises", "Open a view that raises.", keys="{", view="raises", opens="raises_view:Raises"),))

    def show(self) -> None:
        self.write("Nothing yet")
        if self.said == "now":
            raise ValueError("no [b]such[/b] thing")
"""


def install(folder: Path, name: str, target: str, **modules: str) -> None:
    """Put a package with an entry point into a folder, as an installer does."""
    about = folder / f"{name}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[mlx_inspector.views]\n{name} = {target}\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    from inspector import keys

    before, tabs = dict(keys.KEYS), dict(keys.TABS_OF)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    for known, earlier in ((keys.KEYS, before), (keys.TABS_OF, tabs)):
        known.clear()
        known.update(earlier)
    for name in ("outside_lens", "outside_document", "raises_view"):
        sys.modules.pop(name, None)


def outside_lens(folder: Path) -> None:
    """The shipped lens and its document, moved: their imports of each other and the entry are all that is new."""
    view = (ROOT / "inspector/views/lens.py").read_text()
    document = (ROOT / "inspector/documents/lens.py").read_text()
    view = view.replace("inspector.documents.lens", "outside_document")
    view = view.replace("from inspector.main.tool import ", "from inspector.main.tool import Tool, ")
    view = view.replace(
        "from inspector.widgets.actions import ", "from inspector.widgets.actions import Needs, "
    )
    view = view.replace('TOOL: ClassVar[str] = "lens"', 'TOOL: ClassVar[str] = "outside"')
    install(folder, "outside", "outside_lens:Lens", outside_lens=view + ENTRY, outside_document=document)


def test_the_shipped_lens_works_as_a_package_of_its_own(folder: Path) -> None:
    outside_lens(folder)

    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("3", "}")
        assert type(rig.app.top).__module__ == "outside_lens"
        await rig.push([answer(rig)])
        await rig.end("ReadLens")
        assert "What each layer would predict" in rig.screen_text()
        assert "} outside" in rig.screen_text()
        await rig.press("down")
        assert "After layer" in rig.screen_text()
        await rig.press("escape")
        await rig.do("export")
        assert rig.screen_text().count("✓ lens") == 2, "the shipped one's, and its own"

    run(test, (98, 40))


def test_a_plug_in_that_raises_is_closed_with_a_notice(folder: Path) -> None:
    install(folder, "raises", "raises_view:Raises", raises_view=RAISES)

    async def test(rig: Rig) -> None:
        await rig.ready()
        for key, says in (("k", "ZeroDivisionError"), ("", "no [b]such[/b] thing")):
            await rig.press("3", "{")
            view = rig.app.top
            assert type(view).__name__ == "Raises"
            if key:
                await rig.press(key)
            else:
                view.say("now")
            await rig.until(lambda: rig.app.top is rig.app.main)
            assert says in " ".join(each.message for each in rig.app._notifications)
            rig.app.clear_notifications()
        await rig.press("1", "space")  # the program continues

    run(test)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("class Raises: pass", "no attribute 'ENTRY'"),
        (RAISES.replace('keys="{"', 'keys="space"'), "both claim the key space"),
    ],
)
def test_one_that_cannot_be_used_says_why(folder: Path, text: str, problem: str) -> None:
    install(folder, "raises", "raises_view:Raises", raises_view=text)
    [found] = plugins()
    assert (found.tool, found.name, found.package) == (None, "raises", "raises 1.2")
    assert problem in found.problem

    async def test(rig: Rig) -> None:
        await rig.ready()
        assert problem in " ".join(each.message for each in rig.app._notifications)

    run(test)


def test_they_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plugins"]) == 0
    assert capsys.readouterr().out == "No package brings a view.\n"
    outside_lens(folder)
    install(folder, "raises", "raises_view:Raises", raises_view="1 / 0")
    assert main(["--plugins"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(
        re.match(r"outside +outside 1.2 +3 } +Show the lens of another package", line) for line in lines
    )
    assert any(re.match(r"raises +raises 1.2 +ZeroDivisionError: ", line) for line in lines)


def test_there_are_none_here() -> None:
    assert plugins() == []
