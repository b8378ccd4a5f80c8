"""A dialog's screen: it is left once, and maybe kept.

Building the widgets of a form takes most of the time of opening it. A form that names in `KEPT` what an opening sets is
built once: whoever opens it makes a new one, as of any other, but what is shown is the first one, with what the new one
was made with. Its `begin` fills the widgets, the first time and each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from textual import events, on
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.geometry import Size
from textual.messages import Prune
from textual.timer import Timer

from inspector.keys import names_of
from inspector.widgets.actions import Action, ActionTable, Hint, KeyedScreen, Offered, hints_of

Result = TypeVar("Result")
STYLES = str(Path(__file__).absolute().parents[1] / "overlays.tcss")
"""The style sheet of all overlays. The first screen needs none of it, and to parse it takes 14 ms."""


def read_styles(app: App[Any]) -> None:
    """Have the application know the style sheet of overlays."""
    if not app.stylesheet.has_source(STYLES):
        app.stylesheet.read(STYLES)


def size_classes(app: App[Any], room: Size) -> dict[str, bool]:
    """The classes of a size, by the breakpoints of the application.

    Args:
        room: Cells of the screen, or of the view, that has the classes.
    """
    classes: dict[str, bool] = {}
    sides = (app.HORIZONTAL_BREAKPOINTS or [], app.VERTICAL_BREAKPOINTS or [])
    for cells, breakpoints in zip(room, sides, strict=True):
        _, held = max(each for each in breakpoints if each[0] <= cells)
        classes |= {name: name == held for _, name in breakpoints}
    return classes


class Overlay(KeyedScreen[Result]):
    """A screen or a dialog over the main screen."""

    ACTIONS: ClassVar[ActionTable] = ActionTable("Over the main screen", (), told=False)
    KEPT: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that an opening sets; none where all is built anew each time."""
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = []  # noqa: RUF012 (as Textual declares them)
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = []  # noqa: RUF012
    """None: Textual sets these classes after the first layout, which would be a second one."""
    _begun: bool = False
    """True if its widgets were filled since it was opened."""
    _dismissed: bool = False
    takes_keys: bool = False
    """True if its widgets are there and the first one has the focus: keys that come before that wait."""
    _styled: str = ""
    """The theme that its widgets were styled in."""
    _held: tuple[Result | None] | None = None
    """The result of a dismissal that waits until what lies over this one has gone."""

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name, id, classes)
        read_styles(self.app)
        for table in reversed(self.tables):
            self.bind(table.actions, table.priority)
        self.update_classes(size_classes(self.app, self.app.size), update=False)

    @on(events.Resize)
    def _resized(self) -> None:
        """Another size has other classes."""
        self.update_classes(size_classes(self.app, self.app.size), animate=False)

    # ---- kept -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Fill the widgets with what an opening set: called once with each opening, when they are there."""

    def serves(self, made: Overlay[Result]) -> bool:
        """True if this one's widgets are those that a new one of the same class would build.

        Args:
            made: The new one.
        """
        return True

    def again(self, made: Overlay[Result]) -> None:
        """Get ready to be shown again.

        Args:
            made: A new one of the same class, to be shown in its place.
        """
        for name in self.KEPT:
            setattr(self, name, getattr(made, name))
        self._begun, self._dismissed, self._held, self.takes_keys = False, False, None, False
        if self.is_mounted:  # before the toolkit, which focuses the first field where none is, pushes it
            self._begun = True
            self.begin()

    def after_paint(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> bool:
        """Call something after the next paint, unless the screen was left by then: its widgets may have gone."""
        return self.call_after_refresh(lambda: None if self.left else callback(*args, **kwargs))

    def set_timer(
        self,
        delay: float,
        callback: Callable[[], object] | None = None,
        *,
        name: str | None = None,
        pause: bool = False,
    ) -> Timer:
        """Call something later, unless the screen was left by then: nobody would wait for what that asks."""
        return super().set_timer(
            delay, callback and (lambda: None if self.left else callback()), name=name, pause=pause
        )

    @property
    def left(self) -> bool:
        """True if it was dismissed, or the program ends: its widgets are going, and nothing may be asked of them."""
        if self._dismissed or not (self.is_attached and self.app.is_running):
            return True
        return self not in self.app.screen_stack

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Leave, once, and only this one: where something lies over it, as soon as that has gone.

        Args:
            result: For whoever opened it.
        """
        if self.left:
            return AwaitComplete()
        if self.app.screen is not self:
            self._held = (result,)
            return AwaitComplete()
        self._dismissed = True
        self.let_go()
        if self.KEPT:
            self.set_focus(None)  # the first field takes it anew, and no cursor blinks meanwhile
        return super().dismiss(result)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Paint, and leave where that was asked for under another screen. The toolkit would style everything anew."""
        event.refresh_styles, self._styled = self._styled not in ("", self.app.theme), self.app.theme
        if not (self._begun or self.left):
            self._begun = True
            self.begin()
        # behind this event, with which Textual sets the focus
        self.call_later(setattr, self, "takes_keys", True)
        if self._held is not None:
            self.dismiss(self._held[0])

    def from_thread(self, callback: Callable[..., object], *args: object) -> None:
        """Have the screen's thread call something, unless this is left by then; called in another thread."""
        self.app.call_from_thread(lambda: None if self.left else callback(*args))

    async def on_prune(self, event: Prune) -> None:
        """The widgets go next: nothing may work for them any more. Let go, where nothing was dismissed."""
        self.workers.cancel_node(self)
        if not self._dismissed:
            self.let_go()

    def let_go(self) -> None:
        """Wait for nothing any more: called once, when this is left."""

    # ---- keys -------------------------------------------------------------------------------

    @property
    def tables(self) -> Sequence[ActionTable]:
        """The tables of its actions, the topmost first."""
        return (self.ACTIONS,)

    def meaning(self, key: str) -> Action | None:
        """What a key does now; None where it does nothing here."""
        for table in self.tables:
            if table.when is None or table.when(self):
                for action in table.actions:
                    if action.run is not None and action.id and key in names_of(action.id, action.keys):
                        return action
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys mean something while the widgets are there."""
        return self.is_mounted and not self.left

    def offers(self, action: Action) -> bool:
        """True if an action is offered now, in the line of keys and in the finder."""
        return True

    def hints(self) -> Sequence[Hint]:
        """What the line of keys would have now."""
        levels: list[Iterable[Offered]] = [
            zip(repeat(self), table.actions, strict=False)
            for table in self.tables
            if table.when is None or table.when(self)
        ]
        return hints_of(levels, self.offers)

    async def perform(self, action: Action) -> None:
        """Do something."""
        if action.run is not None and (done := action.run(self)) is not None:
            await done
