"""Plug-ins as they are installed: found by their entry points, used, and left out with the reason where they fail."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import textwrap
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.text import Text

from engine.errors import EngineError
from inspector import keys, plugins
from inspector.cli import screen
from inspector.cli.main import main
from inspector.lessons import catalogue
from inspector.lessons.catalogue import listed
from inspector.main.key_table import key_table
from inspector.plugins import EXPORTERS, LESSONS, TOOLS, ExportPlugin, PanelPlugin, Plugin, load_all
from inspector.tools.plugins.tool import admit, rows_of
from inspector.tools.registry import TOOLS as OWN_TOOLS
from tests.inspector.rig import Rig

SAMPLE = Path(__file__).parents[1] / "plugin"
STORY = Path(__file__).with_name("story.jsonl.gz")
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package as pip does: a module, and its entry points in the directory beside it."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(plugins, "_loaded", [])
    names: list[str] = []

    def put(module: str, text: str, entries: dict[str, dict[str, str]]) -> None:
        """A package of one module."""
        names.append(module)
        (site / f"{module}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        folder = site / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [
            line
            for group, own in entries.items()
            for line in (f"[{group}]", *(f"{name} = {value}" for name, value in own.items()))
        ]
        (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")

    yield put
    for name in names:
        sys.modules.pop(name, None)
    keys.use({})


@pytest.fixture
def sample(install: Install) -> None:
    """The plug-in of this repository."""
    described = tomllib.loads((SAMPLE / "pyproject.toml").read_text())
    text = (SAMPLE / "first_choices.py").read_text()
    install("first_choices", text, described["project"]["entry-points"])


def panel(draw: str, key: str = "y", **more: str) -> str:
    """A module with a panel."""
    own = "".join(f", {name}={value!r}" for name, value in more.items())
    text = textwrap.dedent(draw)
    return (
        f"from mlx_inspector import PanelPlugin\n{text}\nPANEL = PanelPlugin('A panel', draw, {key!r}{own})\n"
    )


DRAWS = """
def draw(shown, width, height):
    return f"{len(shown.steps)} steps of {shown.model}, {width}x{height}"
"""


def problems(found: list[Plugin]) -> dict[str, str]:
    return {each.name: each.problem for each in found}


def notices(rig: Rig) -> str:
    return "\n".join(f"{each.title}: {each.message}" for each in rig.app._notifications)


# ---- the one of this repository ---------------------------------------------------------------


def test_the_sample_is_short_and_its_key_is_written_once() -> None:
    text = (SAMPLE / "first_choices.py").read_text()
    assert len(text.splitlines()) < 40
    assert text.count('"y"') == 1


def test_it_is_the_one_of_the_help() -> None:
    page = Path("inspector/help/python.md").read_text("utf-8")
    assert f"```python\n{(SAMPLE / 'first_choices.py').read_text()}```" in page
    [toml] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert toml in (SAMPLE / "pyproject.toml").read_text()


@pytest.mark.usefixtures("sample")
@pytest.mark.screen(plugins=True)
async def test_a_panel_is_one_more_answer_of_its_tab(rig: Rig) -> None:
    await rig.ready(6)
    await rig.until(lambda: "plugin.first_choices" in rig.app.main.table)
    await rig.until(lambda: "y first choices" in rig.screen_text().splitlines()[2])
    await rig.press("y")
    others = sum(
        step.rank != 1 for step in rig.timeline.items if hasattr(step, "rank") and hasattr(step, "ms")
    )
    await rig.until(lambda: f"{others} of 6 were other choices" in rig.answer_text())
    assert "First choices" in rig.answer_text().splitlines()[0]
    await rig.push(rig.session.steps(1))
    await rig.until(lambda: "of 7 were other choices" in rig.answer_text())
    await rig.press("y")
    assert "First choices" not in rig.answer_text()
    await rig.from_finder("first ch", "First choices")
    await rig.until(lambda: "of 7 were other choices" in rig.answer_text())
    await rig.press("question_mark", "slash", *"firstchoice"[:5])
    await rig.until(lambda: "Show which tokens were not the model's first choice." in rig.screen_text())


@pytest.mark.slow
@pytest.mark.screen(plugins=True)
async def test_a_hostile_help_is_text(install: Install, rig: Rig) -> None:
    hostile = "[/b] [@click=app.quit]no[/] <b> & \\ ↵ %s {{ #1"
    text = (
        panel(DRAWS)
        .replace("'A panel'", "'[red]A[/]'")
        .replace("'y'", f"'y', help={hostile.replace('{{', '')!r}")
    )
    install("odd", text, {TOOLS: {"odd": "odd:PANEL"}})
    await rig.ready(6)
    await rig.until(lambda: "plugin.odd" in rig.app.main.table)
    await rig.press("y")
    await rig.until(lambda: "[red]A[/]" in rig.answer_text())
    await rig.press("question_mark", "slash", *"click")
    await rig.until(lambda: "[@click=app.quit]no[/] <b> &" in rig.screen_text())
    await rig.press("escape", "escape")
    await rig.from_finder("[red]", "[red]A[/]")


@pytest.mark.usefixtures("sample")
async def test_who_asks_for_none_gets_none(rig: Rig) -> None:
    await rig.ready(2)
    await rig.until(lambda: rig.app._ahead.done)
    assert "plugin.first_choices" not in rig.app.main.table
    assert "first_choices" not in sys.modules


@pytest.mark.usefixtures("sample")
@pytest.mark.parametrize(("flags", "wanted"), [([], True), (["--no-plugins"], False)])
@pytest.mark.parametrize("command", [[], ["replay"]], ids=["inspector", "replay"])
def test_the_screen_looks_for_them_unless_told_not_to(
    command: list[str], flags: list[str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    class App:
        def __init__(self, *args: object, with_plugins: bool, **rest: object) -> None:
            given.append(with_plugins)

    monkeypatch.setattr("inspector.app.InspectorApp", App)
    monkeypatch.setattr(screen, "check_terminal", lambda *args, **rest: None)
    monkeypatch.setattr(screen, "run_app", lambda app: 0)
    assert main([*command, *flags]) == 0
    assert given == [wanted]


@pytest.mark.usefixtures("sample")
def test_an_exporter_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(STORY), "--to", "ranks", "-o", "-"]) == 0
    ranks = capsys.readouterr().out.split()
    assert main(["export", str(STORY), "--to", "csv", "-o", "-"]) == 0
    rows = csv.DictReader(capsys.readouterr().out.splitlines())
    assert ranks == [row["rank"] for row in rows if row["step"]]
    assert len(ranks) > 5
    assert main(["export", "--to", "rank", "-o", "-"]) == 2
    assert "There is no format rank. Add --to: html, md, csv, txt, svg, ranks." in capsys.readouterr().err


@pytest.mark.usefixtures("sample")
@pytest.mark.screen(plugins=True)
async def test_an_exporter_in_the_dialog(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await rig.ready(6)
    await rig.until(lambda: "plugin.first_choices" in rig.app.main.table)
    await rig.do("export")
    await rig.press("right", "right", "right", "right")
    await rig.until(lambda: "the rank of each token, a line each" in rig.screen_text())
    await rig.press("ctrl+s")
    await rig.until(lambda: list(tmp_path.glob("*.ranks")))
    [written] = tmp_path.glob("*.ranks")
    await rig.until(lambda: len(written.read_text().split()) == 6)


@pytest.mark.usefixtures("sample")
def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].split() == ["first_choices", "panel", "first_choices", "1.0", "1", "y", "First", "choices"]
    assert main(["plugins", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["kind"], first["key"], first["problem"]) == ("panel", "1 y", None)
    assert (second["kind"], second["key"]) == ("exporter", None)


def test_the_list_of_nothing(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    assert capsys.readouterr().out.startswith("No plug-in is installed.")


# ---- what is left out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("PANEL = 5", "bad:PANEL must be a PanelPlugin, not a value of type int"),
        ("", "AttributeError: module 'bad' has no attribute 'PANEL'"),
        (panel(DRAWS, "space bar"), "no terminal sends its key"),
        (panel(DRAWS, "enter"), "its key enter has a fixed meaning everywhere"),
        (panel(DRAWS, "ctrl+q"), "its key ctrl+q has a fixed meaning everywhere"),
        (panel(DRAWS, tab="7"), "its tab must be one of 1, 2, 3, 4, 5, 6"),
        (panel(DRAWS, help="a\x1b[2J"), "its help must be 1 to 300 printable characters"),
        (
            panel(DRAWS, help="Press {nothing}."),
            "its help must be 1 to 300 printable characters, without { } | ` and *",
        ),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "E"),
        ("raise ValueError('\\x1b[2J' + 'x' * 5000)", "ValueError: ␛[2Jxxx"),
    ],
)
def test_a_broken_one_is_named(install: Install, text: str, why: str) -> None:
    install("bad", text, {TOOLS: {"bad": "bad:PANEL"}})
    install("good", panel(DRAWS), {TOOLS: {"good": "good:PANEL"}})
    bad, good = load_all(listed)
    assert bad.problem.startswith(why)
    assert len(bad.sentence) < 300
    assert bad.sentence.startswith("Plug-in bad (bad 1.0) is left out: ")
    assert good.problem == ""


def test_a_slow_one_is_left_out(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "LOAD_SECONDS", 0.05)
    released = threading.Event()
    monkeypatch.setattr(threading, "released", released, raising=False)
    install("slow", "import threading\nthreading.released.wait()", {TOOLS: {"slow": "slow:PANEL"}})
    try:
        assert problems(load_all(listed)) == {"slow": "importing it takes longer than 0.05 s"}
    finally:
        released.set()


@pytest.mark.parametrize("name", ["Loud", "my-panel", "ä", "1st", "class name"])
def test_a_name_that_no_file_of_keys_can_have(install: Install, name: str) -> None:
    install("odd", panel(DRAWS), {TOOLS: {name: "odd:PANEL"}})
    [found] = load_all(listed)
    assert "its name must be lower-case letters" in found.problem


def test_of_two_of_one_name_the_first_is_used(install: Install) -> None:
    install("one", panel(DRAWS), {TOOLS: {"same": "one:PANEL"}})
    install("two", panel(DRAWS, "Y"), {TOOLS: {"same": "two:PANEL"}})
    first, second = load_all(listed)
    assert (first.package, first.problem) == ("one 1.0", "")
    assert (second.package, second.problem) == ("two 1.0", "another plug-in has its name")


@pytest.mark.parametrize(
    ("key", "holder"),
    [("t", "Steps in the tab Next"), ("space", "Step in the tab Next"), ("?", "Help in the tab Next")],
)
def test_one_that_takes_a_key_is_left_out(install: Install, key: str, holder: str) -> None:
    install("thief", panel(DRAWS, key), {TOOLS: {"thief": "thief:PANEL"}})
    [plugin], tools, _ = admit(load_all(listed), key_table(OWN_TOOLS))
    assert tools == []
    told = f"its key {key} is that of {holder}; another one can be given in keys.toml: "
    assert plugin.problem == f'{told}"plugin.thief" = "f2"'


def test_of_two_with_one_key_the_first_has_it(install: Install) -> None:
    install("one", panel(DRAWS), {TOOLS: {"one": "one:PANEL"}})
    install("two", panel(DRAWS), {TOOLS: {"two": "two:PANEL"}})
    found, tools, _ = admit(load_all(listed), key_table(OWN_TOOLS))
    assert [tool.id for tool in tools] == ["plugin-one"]
    assert "its key y is that of A panel" in problems(found)["two"]


def test_the_same_key_in_another_tab(install: Install) -> None:
    install("one", panel(DRAWS), {TOOLS: {"one": "one:PANEL"}})
    install("two", panel(DRAWS, tab="6"), {TOOLS: {"two": "two:PANEL"}})
    found, tools, _ = admit(load_all(listed), key_table(OWN_TOOLS))
    assert [tool.actions[0].way for tool in tools] == ["1 y", "6 y"]
    assert set(problems(found).values()) == {""}


@pytest.mark.screen(plugins=True)
async def test_an_own_key_of_a_plug_in(install: Install, config: Path, rig: Rig) -> None:
    install("thief", panel(DRAWS, "t"), {TOOLS: {"thief": "thief:PANEL"}})
    config.mkdir()
    (config / "keys.toml").write_text('"plugin.thief" = "f2"\n"plugin.gone" = "f3"\n')
    assert notices(rig) == ""
    await rig.ready(6)
    await rig.until(lambda: "plugin.thief" in rig.app.main.table)
    await rig.press("f2")
    await rig.until(lambda: "6 steps of" in rig.answer_text())
    assert "keys.toml: there is no action plugin.gone." in notices(rig)


@pytest.mark.screen(plugins=True)
async def test_what_is_left_out_is_told_in_a_line_each(install: Install, rig: Rig) -> None:
    install("broken", "1 / 0", {TOOLS: {"broken": "broken:PANEL"}})
    install("thief", panel(DRAWS, "t"), {TOOLS: {"thief": "thief:PANEL"}})
    await rig.ready(2)
    await rig.until(lambda: notices(rig))
    first, second = notices(rig).splitlines()
    assert first == "Plug-ins: Plug-in broken (broken 1.0) is left out: ZeroDivisionError: division by zero."
    assert second.startswith(
        "Plug-in thief (thief 1.0) is left out: its key t is that of Steps in the tab Next"
    )
    assert "plugin.thief" not in rig.app.main.table


# ---- what fails later ---------------------------------------------------------------------------


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise ZeroDivisionError('in draw')", "ZeroDivisionError: in draw."),
        ("raise SystemExit", "SystemExit."),
        ("return 5", "TypeError: draw returned int, no str or rich.text.Text."),
        ("return shown.nothing", "AttributeError: 'Shown' object has no attribute 'nothing'."),
    ],
)
@pytest.mark.screen(plugins=True)
async def test_a_panel_that_fails_is_switched_off(install: Install, rig: Rig, body: str, why: str) -> None:
    text = f"def draw(shown, width, height):\n    {body}\n"
    install("bad", panel(text), {TOOLS: {"bad": "bad:PANEL"}})
    await rig.ready(6)
    await rig.until(lambda: "plugin.bad" in rig.app.main.table)
    await rig.press("y")
    await rig.until(lambda: "This plug-in is switched off:" in rig.answer_text())
    assert f"Plug-in bad is switched off: {why}" in notices(rig)
    await rig.press("space")
    assert rig.engine.names == ["Step"]
    await rig.push(rig.session.steps(1))
    assert len(notices(rig).splitlines()) == 1


HANGS = """
import threading
release = threading.Event()
def draw(shown, width, height):
    release.wait()
    return "late"
"""


@pytest.mark.screen(plugins=True)
async def test_a_panel_that_hangs_holds_nothing_up(
    install: Install, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "DRAW_SECONDS", 0.1)
    install("stuck", panel(HANGS), {TOOLS: {"stuck": "stuck:PANEL"}})
    await rig.ready(6)
    await rig.until(lambda: "plugin.stuck" in rig.app.main.table)
    try:
        await rig.press("y")
        await rig.press("space")
        assert rig.engine.names == ["Step"]
        await rig.push(rig.session.steps(1))
        await rig.until(lambda: "drawing takes longer than 0.1 s" in rig.answer_text())
        assert "Plug-in stuck is switched off" in notices(rig)
    finally:
        sys.modules["stuck"].release.set()
    await rig.until(lambda: all(each.name != "plug-in" for each in threading.enumerate()))
    assert "late" not in rig.answer_text()


def test_what_is_drawn_is_not_obeyed() -> None:
    text = Text("a\x1b[2Jb\u202e\n", "bold link https://example.org")
    text.append("c" * 500)
    text.stylize("no such style at all")
    text.stylize(Text.from_markup("[@click=app.quit]x[/]").spans[0].style)
    rows = rows_of(text, 20, 5)
    assert "".join(each.text for each in rows[0]) == "a␛[2Jb‹202E›"
    assert rows[0][0].style.bold
    assert all(each.style.link is None and not each.style.meta for row in rows for each in row)
    assert len("".join(each.text for each in rows[1])) <= 80
    assert [len(row) for row in rows_of("[bold]\n" * 9, 20, 3)] == [1, 1, 1]
    assert rows_of("[/b]", 20, 3)[0][0].text == "[/b]"


def test_an_exporter_that_fails(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(
        "bad",
        """
        from mlx_inspector import ExportPlugin
        FAILS = ExportPlugin("a", "b", lambda passage: 1 / 0)
        NONE = ExportPlugin("a", "b", lambda passage: None)
        """,
        {EXPORTERS: {"fails": "bad:FAILS", "none": "bad:NONE", "html": "bad:NONE"}},
    )
    assert main(["export", "--to", "fails", "-o", "-"]) == 2
    told = capsys.readouterr().err
    assert "The plug-in fails made no document: ZeroDivisionError: division by zero." in told
    assert "Plug-in html (bad 1.0) is left out: a document of the program has its name." in told
    assert main(["export", "--to", "other", "-o", "-"]) == 2
    assert "svg, fails, none." in capsys.readouterr().err
    assert main(["export", "--to", "none", "-o", "-"]) == 2
    assert "The plug-in none made no text, but NoneType." in capsys.readouterr().err


# ---- lessons ------------------------------------------------------------------------------------


def test_one_that_is_left_out_is_named_once(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("bad", "1 / 0", {EXPORTERS: {"bad": "bad:NONE"}})
    assert main(["export", "--to", "other", "-o", "-"]) == 2
    assert capsys.readouterr().err.count("Plug-in bad") == 1


def test_a_lesson(install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site" / "mine.md").write_text(catalogue.new_lesson("A lesson of mine"))
    (tmp_path / "site" / "wrong.md").write_text("no lesson")
    text = "from pathlib import Path\nhere = Path(__file__).parent\nA, B = here / 'mine.md', str(here / 'wrong.md')\n"
    install("teach", text, {LESSONS: {"mine": "teach:A", "wrong": "teach:B", "none": "teach:here"}})
    found = {each.name: each for each in load_all(listed)}
    assert found["mine"].problem == ""
    assert "+++" in found["wrong"].problem
    assert found["none"].problem
    assert main(["learn"]) == 0
    listing, number = capsys.readouterr(), len(catalogue.ORDER) + 1
    assert f"{number}  A lesson of mine" in listing.out
    assert "Plug-in wrong (teach 1.0) is left out" in listing.err
    assert catalogue.find(str(number)).lesson.title == catalogue.find("a lesson of mine").lesson.title
    with pytest.raises(EngineError, match=f"There is no lesson {number + 1}"):
        catalogue.find(str(number + 1))


# ---- the start pays nothing ---------------------------------------------------------------------


@pytest.mark.slow
def test_the_start_imports_nothing_of_it() -> None:
    ask = "import sys, inspector.app; print([n for n in ('importlib.metadata', 'inspector.api') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=60, check=True)
    assert "inspector.api" not in done.stdout


def test_the_public_names_are_what_a_plug_in_is_checked_against() -> None:
    import mlx_inspector

    assert mlx_inspector.PanelPlugin is PanelPlugin
    assert mlx_inspector.ExportPlugin is ExportPlugin
