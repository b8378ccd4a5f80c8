"""The application: start, drain, quit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NoReturn

import pytest
from textual.dom import NoScreen
from textual.events import Key, MouseDown, MouseUp
from textual.screen import Screen
from textual.widgets._toast import Toast

from engine import protocol
from engine.protocol import Ended, Prefill, Received
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.driver import ControlFilter
from inspector.main.dialogs.help import HelpDialog
from inspector.main.panels.text import TextPanel
from tests.inspector.painting import Terminal, painting
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig, run
from tests.system import python


def test_the_engine_starts_after_the_first_paint_and_loads():
    async def test(rig: Rig) -> None:
        assert rig.engine.started
        assert rig.engine.sent == [protocol.Load(LoadSettings("other"))]

    app = run(test, load=LoadSettings("other"))
    assert app.engine.closed


@pytest.mark.screen(prompt="Hello", settings=Settings(temp=0.4))
async def test_the_model_is_followed_by_settings_and_prompt(rig: Rig) -> None:
    await rig.push(rig.session.load())
    assert rig.engine.sent[1:] == [
        protocol.Configure(Settings(temp=0.4)),
        protocol.Prefill("Hello", False),
    ]


async def test_records_of_the_engine_are_drained_by_the_clock(rig: Rig) -> None:
    for record in rig.session.load():
        rig.app.inbox.emit(Received(record))
    await rig.until(lambda: rig.timeline.facts is not None)


async def test_many_records_of_one_frame_are_shown_once(rig: Rig) -> None:
    await rig.ready()
    shows = []
    rig.app.main.panel(TextPanel).show = shows.append  # type: ignore[method-assign]
    for record in rig.session.steps(9):
        rig.app.inbox.emit(Received(record))
    for _ in range(3):
        rig.app.inbox._due = 0
        rig.app._tick()
    assert len(shows) == 1


async def test_a_dear_frame_is_followed_by_a_rest_for_the_engine(rig: Rig, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr("inspector.session.client.perf_counter", lambda: now[0])

    def slow() -> None:
        now[0] += 0.010

    rig.app.main.show = slow  # type: ignore[method-assign]
    rig.app.inbox._due, shown = 0.0, []
    for later in (0.0, 0.030, 0.040):
        now[0] += later
        rig.app.inbox.emit(Received(Ended("Configure")))
        rig.app._tick()
        shown.append(not rig.app.inbox.waiting)
    assert shown == [True, False, True]


async def test_every_line_passes_the_filter_of_control_characters_last(rig: Rig) -> None:
    for _ in range(2):
        assert isinstance(rig.app.get_line_filters()[-1], ControlFilter)
        await rig.do("theme")


def test_what_there_is_to_say_of_the_flags_is_said_at_the_start():
    async def told() -> list[str]:
        notes = ("--top-p [/b] has no effect.", "--kv-group-size neither.")
        app = InspectorApp(LoadSettings(), Settings(), engine=FakeEngine(), notes=notes)
        async with app.run_test() as pilot, asyncio.timeout(60):
            while not app._notifications:
                await pilot.pause(0.01)
            return [toast.message for toast in app._notifications]

    assert asyncio.run(told()) == ["--top-p [/b] has no effect.\n--kv-group-size neither."]


def test_q_ends_with_code_0_and_closes_the_engine():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("q")

    app = run(test)
    assert (app.return_code, app.engine.closed, app.closed_in_time) == (0, True, True)


def test_ctrl_q_ends_from_inside_a_dialog():
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("p", "ctrl+q")

    assert run(test).return_code == 0


async def test_ctrl_c_ends_nothing_and_says_what_does(rig: Rig) -> None:
    await rig.ready()
    await rig.press("ctrl+c")
    assert "q quits" in next(iter(rig.app._notifications)).message


def test_leaving_without_a_model_that_could_be_loaded_is_code_2(capfd):
    async def test(rig: Rig) -> None:
        await rig.fail_to_load("No such [/] model.\x1b", "Check the name.")
        await rig.press("q")

    app = run(test)
    assert app.return_code == 2
    assert capfd.readouterr().err.strip() == "No such [/] model.␛ Check the name."


async def test_after_a_failed_load_another_model_can_be_opened(rig: Rig) -> None:
    await rig.fail_to_load("No such model.", "Check the name.")
    rig.engine.sent.clear()
    await rig.do("open")
    await rig.press("enter")
    assert rig.engine.names == ["Load"]
    await rig.push(rig.session.load())
    assert rig.engine.names == ["Load", "Configure", "Prefill"]
    await rig.push([Ended("Configure"), *rig.session.open()])
    assert rig.app.controller.stepping


def test_an_application_that_never_started_closes_nothing():
    engine = FakeEngine()
    InspectorApp(LoadSettings(), Settings(), Prefill("x", None), engine=engine).on_unmount()
    assert not engine.closed


def test_the_screen_is_imported_without_mlx():
    code = "import sys, inspector.app; print({'mlx', 'mlx_lm', 'transformers', 'numpy'} & {*sys.modules})"
    assert python(code).stdout.strip() == "set()"


def test_a_key_that_is_pressed_after_the_one_that_leaves_opens_nothing():
    app = InspectorApp(LoadSettings(), Settings(), Prefill("x", False), engine=FakeEngine())
    opened = []

    async def test() -> None:
        async with app.run_test() as pilot:
            await pilot.pause()
            app.push_screen = lambda screen, *_, **__: opened.append(screen)  # type: ignore
            for key in ("ctrl+q", "p", "ctrl+p", "question_mark"):
                app.post_message(Key(key, None))
            await pilot.pause()

    run_quickly(test())
    assert app.return_code == 0
    assert opened == []


async def until(condition: Callable[[], object]) -> None:
    """Let the application run until something holds."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("size", "over"), [((120, 40), "steps"), ((80, 24), "opening"), ((100, 16), "opening")]
)
def test_a_notice_leaves_the_answer_in_sight(size: tuple[int, int], over: str):
    app = InspectorApp(LoadSettings(), Settings(), Prefill("x", False), engine=FakeEngine())

    async def test() -> None:
        async with app.run_test(size=size, notifications=True):
            app.announce("Something happened.", "Notice")
            await until(lambda: any(toast.region for toast in app.screen.query(Toast)))
            toast = app.screen.query_one(Toast).region
            assert not toast.overlaps(app.main.query_one("#candidates").region)
            assert toast.overlaps(app.main.query_one(f"#{over}").region)

    asyncio.run(test())


def without_screen(*_: object) -> NoReturn:
    raise NoScreen("node has no screen")


def test_a_second_press_on_a_notification_that_the_first_took_away_ends_nothing():
    """It is gone, and still where the screen looks for what is under the mouse, until the next paint."""
    app = InspectorApp(LoadSettings(), Settings(), Prefill("x", False), engine=FakeEngine())

    async def test() -> None:
        async with app.run_test(notifications=True) as pilot:

            def press() -> None:
                for kind in (MouseDown, MouseUp):
                    app.post_message(kind(None, *place, 0, 0, 1, False, False, False, *place))

            app.announce("Something happened.", "Notice")
            await until(lambda: any(toast.region for toast in app.screen.query(Toast)))
            place = app.top.query_one(Toast).content_region.offset
            with app.batch_update():  # nothing is painted
                press()
                await until(lambda: not app.screen.query(Toast))
                gone = app.screen.get_widget_at(*place)[0]
                assert isinstance(gone, Toast)
                assert not gone.is_attached
                app.screen.get_widget_and_offset_at = without_screen  # it draws, which some can't any more
                press()
                await pilot._wait_for_screen()
            await pilot.press("question_mark")
            assert isinstance(app.top, HelpDialog)

    asyncio.run(test())


@pytest.mark.parametrize("key", ["", "question_mark"])  # on the main screen, and over a dialog
def test_a_notice_that_the_next_one_pushes_away_is_painted_at_its_new_place(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    laid_out = Screen._refresh_layout

    def read_before(screen: Screen[object], *args: object, **kwargs: object) -> None:
        """As if somebody had asked where a widget is, between a notice's mounting and the layout."""
        screen._compositor._full_map_invalidated = True
        assert screen._compositor.full_map is not None
        laid_out(screen, *args, **kwargs)

    app = InspectorApp(LoadSettings(), Settings(), Prefill("x", False), engine=FakeEngine())

    async def test() -> None:
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await pilot.press(*filter(None, [key]))
            await pilot.pause()
            terminal = Terminal(app)
            app.refresh()
            await pilot.pause()
            monkeypatch.setattr(Screen, "_refresh_layout", read_before)
            for number, text in enumerate(("older\n" * 5, "newer\n" * 3), start=1):
                app.notify(text, title="Notice", timeout=60)
                await until(lambda: sum(bool(toast.region) for toast in app.screen.query(Toast)) == number)  # noqa: B023
                await pilot.pause()
                await pilot.pause()
            drawn = [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
            assert sum("older" in line for line in drawn) == 5
            assert terminal.text.splitlines() == drawn

    with painting():
        asyncio.run(test())
