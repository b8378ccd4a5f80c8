"""The base of all dialogs: a framed box over the screen, a body that scrolls, buttons, Escape and ctrl+s; left once.

Building the widgets of a form takes most of the time of opening it. A form that names in `KEPT` what an opening sets is
built once: each opening makes a new one, as of any other dialog, but the first one is shown, with the values of the new
one. Its `begin` fills the widgets, the first time and each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.messages import Prune
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Input, Static
from textual.widgets.button import ButtonVariant

from inspector.display import visible
from inspector.keys import PRINTABLE, key_for, names_of, shown
from inspector.widgets.actions import Action, ActionTable, KeyedScreen, KeyLine, dialog_table, note

Result = TypeVar("Result")
_UNUSED = {key: [Binding(key, f"nothing('{key}')", show=False)] for key in PRINTABLE}
"""Bindings of the keys that type a sign, where they do nothing else: no key is silent."""
STYLES = str(Path(__file__).absolute().parents[1] / "overlays.tcss")
"""The style sheet of all dialogs. The first screen needs none of it, and to parse it takes 14 ms."""


def read_styles(app: App[Any]) -> None:
    """Have the application know the style sheet of dialogs."""
    if not app.stylesheet.has_source(STYLES):
        app.stylesheet.read(STYLES)


class Entered(Message):
    """Enter was pressed in an editor, or on a choice."""


class Dialog(ModalScreen[Result], KeyedScreen[Result]):
    """A dialog: subclasses give a title and a body, and define what applying does."""

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "In a dialog", note("tab", hint="next field", worth=5), told=False
    )
    HEADING: ClassVar[str] = ""
    APPLY: ClassVar[str] = ""
    """Label of the button that applies; empty if there is nothing to apply."""
    LEAVE: ClassVar[str] = "Cancel"
    EXTRA: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    """Buttons between the one that applies and the one that leaves: the action of each, its label, and its id."""
    KEPT: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that an opening sets; none if each opening builds new widgets."""
    FIRST: ClassVar[str] = ""
    """Selector of the widget that has the focus first; empty for the first that can have it."""
    REMARK: ClassVar[str] = ".remark"
    """Selector of the remark that `say` sets."""
    _begun: bool = False
    """True if its widgets were filled since it was opened."""
    _dismissed: bool = False
    _held: tuple[Result | None] | None = None
    """The result of a dismissal that waits until what lies over this one has gone."""

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name, id, classes)
        read_styles(self.app)
        self._bindings.key_to_bindings.update(_UNUSED)
        for action in self.ACTIONS.actions:  # instead of what was bound to their keys before
            for name in names_of(action.id, action.keys) if action.id else ():
                own = Binding(name, f"press('{name}')", priority=self.ACTIONS.priority or action.priority)
                self._bindings.key_to_bindings[name] = [own]
        self.fit(self.app.size, update=False)

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as box:
            box.border_title = self.HEADING
            with VerticalScroll(id="dialog-body", can_focus=not self.APPLY):
                yield from self.body()
            with Horizontal(id="dialog-buttons"):
                if self.APPLY:
                    yield ActionButton("dialog.apply", self.APPLY, id="apply", variant="primary")
                for action, label, id in self.EXTRA:
                    yield ActionButton(action, label, id)
                yield ActionButton("dialog.leave", self.LEAVE, id="leave")
        yield KeyLine(classes="-dialog")

    def body(self) -> Iterable[Widget]:
        """The widgets between the title and the buttons."""
        return ()

    def begin(self) -> None:
        """Fill the widgets with what an opening set, and begin at the top: called once with each opening."""
        self.query_one("#dialog-body").scroll_home(animate=False)
        if self.FIRST:
            self.set_focus(self.query_one(self.FIRST))

    def say(self, text: str, wrong: bool = False) -> None:
        """Show a remark: help while all is well, what is wrong otherwise."""
        self.query_one(self.REMARK, Remark).say(visible(text), wrong)

    def leave(self) -> None:
        """Leave without a change."""
        self.dismiss(None)

    def apply(self) -> None:
        """Apply and leave; without anything to apply, leave."""
        self.leave()

    @on(Entered)
    @on(Input.Submitted)
    def _submitted(self) -> None:
        """Enter in a field, an editor or a choice applies."""
        self.apply()

    @on(Button.Pressed)
    async def _pressed(self, message: Button.Pressed) -> None:
        """A button does what the action does that it stands for."""
        if isinstance(message.button, ActionButton) and (action := self.meaning(message.button.key)):
            await self.perform(action)

    # ---- kept -------------------------------------------------------------------------------

    def serves(self, made: Dialog[Result]) -> bool:
        """True if this one's widgets are those that a new one of the same class would build.

        Args:
            made: The new one.
        """
        return True

    def again(self, made: Dialog[Result]) -> None:
        """Get ready to be shown again.

        Args:
            made: A new one of the same class, to be shown in its place.
        """
        for name in self.KEPT:
            setattr(self, name, getattr(made, name))
        self._begun, self._dismissed, self._held, self.takes_keys = False, False, None, False
        self._resized()
        if self.is_mounted:  # before Textual, which focuses the first field if none is focused, pushes it
            self._begun = True
            self.begin()

    def set_timer(self, delay: float, callback: Callable[[], object] | None = None, **options: Any) -> Timer:
        """Call something later, unless the screen was left by then: its answer would be too late."""
        return super().set_timer(delay, callback and (lambda: None if self.left else callback()), **options)

    @property
    def left(self) -> bool:
        """True if it was dismissed, or the program ends: its widgets are going, and nothing may be asked of them."""
        if self._dismissed or not (self.is_attached and self.app.is_running):
            return True
        return self not in self.app.screen_stack

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Leave, once, and only this one: under another screen, as soon as that has gone.

        Args:
            result: For its opener.
        """
        if self.left:
            return AwaitComplete()
        if self.app.screen is not self:
            self._held = (result,)
            return AwaitComplete()
        self._dismissed = True
        self.let_go()
        if self.KEPT:
            self.set_focus(None)  # the next opening focuses the first field, and no cursor blinks meanwhile
        return super().dismiss(result)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Begin, or leave if that was asked for under another screen."""
        if not (self._begun or self.left):
            self._begun = True
            self.begin()
        # behind this event, with which Textual sets the focus
        self.call_later(setattr, self, "takes_keys", True)
        if self._held is not None:
            self.dismiss(self._held[0])

    async def on_prune(self, event: Prune) -> None:
        """The widgets go next: nothing may work for them any more. Let go, where nothing was dismissed."""
        self.workers.cancel_node(self)
        if not self._dismissed:
            self.let_go()

    # ---- keys -------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys mean something while the widgets are there."""
        return self.is_mounted and not self.left

    def action_nothing(self, key: str) -> None:
        """Say that a key does nothing here."""
        self.query_one(KeyLine).say(f"{shown(key)} does nothing here")

    async def perform(self, action: Action) -> None:
        """Do something."""
        if action.run is not None and (done := action.run(self)) is not None:
            await done


class ActionButton(Button):
    """A button that stands for an action, and names its key.

    Args:
        action: Id of the action.
        label: What it is called.
        id: Of the widget.
        variant: As Textual has it.
    """

    def __init__(self, action: str, label: str, id: str, variant: ButtonVariant = "default") -> None:
        super().__init__(variant=variant, id=id, compact=True)
        self.action_id = action
        self.name_it(label)

    @property
    def key(self) -> str:
        """The key of the action, as Textual names it."""
        return names_of(self.action_id)[0]

    def name_it(self, label: str) -> None:
        """Call it something else."""
        shown = Content(f"{label}  {key_for(self.action_id)}")
        if self.label != shown:
            self.label = shown
            self.refresh(layout=True)


class Remark(Static):
    """One remark under or next to a field: help while all is well, what is wrong otherwise."""

    def __init__(self, text: str = "", id: str | None = None) -> None:
        super().__init__(Content(text), id=id, classes="remark")
        self._text = text

    def say(self, text: str, wrong: bool = False) -> None:
        """Show a text that was made printable."""
        self.set_class(wrong, "-wrong")
        if text != self._text:  # the same one again would have the whole form laid out
            self._text = text
            self.update(Content(text))
