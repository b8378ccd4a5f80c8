"""The lines that a paint is of are made, and no others."""

from __future__ import annotations

from random import Random

from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from inspector.widgets.painting import PartCompositor
from tests.inspector.painting import Terminal, painting


class Letters(Widget):
    """Lines of one letter."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.letter, self.made = id[0], list[int]()
        """Its letter, and the lines that were made of it."""

    def render_lines(self, crop: Region) -> list[Strip]:
        self.made += crop.line_range
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        return Strip([Segment(self.letter * self.size.width)], self.size.width)


class Parts(Screen[None]):
    def __init__(self) -> None:
        super().__init__()
        self._compositor = PartCompositor()

    def compose(self) -> ComposeResult:
        for id in ("above", "beside", "middle", "over", "low"):
            yield Letters(id)


class Application(App[None]):
    CSS = """
    Screen { layers: base top; }
    #above { height: 4; } #middle { height: 5; } #low { height: 3; }
    #beside { height: 9; width: 10; dock: right; }
    #over { layer: top; width: 7; height: 5; offset: 20 2; }
    """

    def get_default_screen(self) -> Screen[None]:
        return Parts()


async def test_lines_between_two_that_changed_are_not_made() -> None:
    app = Application()
    with painting():
        async with app.run_test(size=(40, 12)) as pilot:
            widgets = {each.id: each for each in app.screen.query(Letters)}
            while not all(each.made for each in widgets.values()):
                await pilot.pause(0.01)  # until all was painted
            await pilot.pause()
            for each in widgets.values():
                each.made.clear()
            for id in ("above", "low"):
                widgets[id].refresh(Region(0, 1, 5, 1))
            await pilot.pause()
            assert {id: each.made for id, each in widgets.items() if each.made} == {"above": [1], "low": [1]}


async def test_a_terminal_has_what_a_whole_paint_brings() -> None:
    app, draw = Application(), Random(1)
    with painting():
        async with app.run_test(size=(40, 12)) as pilot:
            terminal = Terminal(app)
            app.screen.refresh()
            await pilot.pause()
            for number in range(60):
                for _ in range(draw.randrange(1, 4)):
                    each = draw.choice([*app.screen.query(Letters)])
                    each.letter = "abcdefgh"[number % 8]
                    if draw.randrange(4) == 0:
                        each.styles.offset = (draw.randrange(12), draw.randrange(3))
                    each.refresh()
                await pilot.pause()
                whole = "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())
                assert terminal.text == whole
