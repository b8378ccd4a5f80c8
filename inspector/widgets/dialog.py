"""The base of all dialogs: a framed box over the screen, a body that scrolls, buttons, Escape and ctrl+s.

Building the widgets of a form takes most of the time of opening it. A dialog with attribute names in `KEPT` is built
once: to open it again, the caller creates a new object as for any other dialog, but the first one is shown, with these
attributes of the new one. Its `begin` fills the widgets each time it is opened.
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
"""Bindings for keys that type a character and do nothing else: the dialog says so."""
STYLES = str(Path(__file__).absolute().parents[1] / "overlays.tcss")
"""The style sheet of all dialogs. The first screen doesn't need it, and parsing it takes 14 ms."""


def read_styles(app: App[Any]) -> None:
    """Add the style sheet of dialogs to the application, if it isn't there yet."""
    if not app.stylesheet.has_source(STYLES):
        app.stylesheet.read(STYLES)


class Entered(Message):
    """Enter was pressed in an editor, or on a choice."""


class Dialog(ModalScreen[Result], KeyedScreen[Result]):
    """A dialog: subclasses set a title and a body, and define what applying does."""

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
    """Names of the attributes that it takes from the new dialog when it is opened again; empty to build new widgets."""
    FIRST: ClassVar[str] = ""
    """Selector of the widget that gets the focus first; empty for the first one that can."""
    REMARK: ClassVar[str] = ".remark"
    """Selector of the remark that `say` sets."""
    _begun: bool = False
    """True if its widgets were filled since it was opened."""
    _dismissed: bool = False
    _held: tuple[Result | None] | None = None
    """The result of a dismissal that waits until another screen on top has been left."""

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name, id, classes)
        read_styles(self.app)
        self._bindings.key_to_bindings.update(_UNUSED)
        for action in self.ACTIONS.actions:  # they replace the keys' other bindings
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
        """Fill the widgets, and scroll to the top: called once each time the dialog is opened."""
        self.query_one("#dialog-body").scroll_home(animate=False)
        if self.FIRST:
            self.set_focus(self.query_one(self.FIRST))

    def say(self, text: str, wrong: bool = False) -> None:
        """Show a remark: help, or what is wrong."""
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
        """Apply on enter in a field, an editor or a choice."""
        self.apply()

    @on(Button.Pressed)
    async def _pressed(self, message: Button.Pressed) -> None:
        if isinstance(message.button, ActionButton) and (action := self.meaning(message.button.key)):
            await self.perform(action)

    # ---- kept -------------------------------------------------------------------------------

    def serves(self, made: Dialog[Result]) -> bool:
        """True if this dialog has the same widgets as a new one of its class would build.

        Args:
            made: The new dialog.
        """
        return True

    def again(self, made: Dialog[Result]) -> None:
        """Prepare to be shown again.

        Args:
            made: The new dialog of the same class, instead of which this one is shown.
        """
        for name in self.KEPT:
            setattr(self, name, getattr(made, name))
        self._begun, self._dismissed, self._held, self.takes_keys = False, False, None, False
        self._resized()
        if self.is_mounted:  # before it is pushed: Textual would then focus the first field
            self._begun = True
            self.begin()

    def set_timer(self, delay: float, callback: Callable[[], object] | None = None, **options: Any) -> Timer:
        """Call a function later, unless the dialog was left by then."""
        return super().set_timer(delay, callback and (lambda: None if self.left else callback()), **options)

    @property
    def left(self) -> bool:
        """True if it was dismissed, or the program ends: its widgets must not be used."""
        if self._dismissed or not (self.is_attached and self.app.is_running):
            return True
        return self not in self.app.screen_stack

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Leave this dialog, once; if another screen is on top, as soon as that has been left.

        Args:
            result: The result for the caller that opened it.
        """
        if self.left:
            return AwaitComplete()
        if self.app.screen is not self:
            self._held = (result,)
            return AwaitComplete()
        self._dismissed = True
        self.let_go()
        if self.KEPT:
            self.set_focus(None)  # so that no cursor blinks until `begin` focuses the first field again
        return super().dismiss(result)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Begin, or leave if it was dismissed under another screen."""
        if not (self._begun or self.left):
            self._begun = True
            self.begin()
        # after this event, with which Textual sets the focus
        self.call_later(setattr, self, "takes_keys", True)
        if self._held is not None:
            self.dismiss(self._held[0])

    async def on_prune(self, event: Prune) -> None:
        """Cancel the workers before the widgets are removed; call `let_go` if the dialog was not dismissed."""
        self.workers.cancel_node(self)
        if not self._dismissed:
            self.let_go()

    # ---- keys -------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """True while the widgets are there."""
        return self.is_mounted and not self.left

    def action_nothing(self, key: str) -> None:
        """Say that a key does nothing here."""
        self.query_one(KeyLine).say(f"{shown(key)} does nothing here")

    async def perform(self, action: Action) -> None:
        if action.run is not None and (done := action.run(self)) is not None:
            await done


class ActionButton(Button):
    """A button for an action, with the action's key.

    Args:
        action: Id of the action.
        label: Text of the button.
        id: Id of the widget.
        variant: Textual's variant of the button.
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
        """Set the text before the key."""
        shown = Content(f"{label}  {key_for(self.action_id)}")
        if self.label != shown:
            self.label = shown
            self.refresh(layout=True)


class Remark(Static):
    """A remark under or next to a field: help, or what is wrong."""

    def __init__(self, text: str = "", id: str | None = None) -> None:
        super().__init__(Content(text), id=id, classes="remark")
        self._text = text

    def say(self, text: str, wrong: bool = False) -> None:
        """Show a printable text."""
        self.set_class(wrong, "-wrong")
        if text != self._text:  # an update lays the whole form out again
            self._text = text
            self.update(Content(text))
