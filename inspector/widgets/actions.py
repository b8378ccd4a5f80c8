"""Keys as data: an action, and the table of all actions of one owner.

An owner is the main screen with the actions of all tools, a view, a dialog, or a narrator. Its table determines the
bindings, the line of keys, the section of the help, the finder's entries, refusals and tooltips. The keys themselves
are in `inspector.keys`, where the user's own file may change them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from enum import Flag, auto
from itertools import groupby, zip_longest
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Literal, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from textual import events, on
from textual.actions import SkipAction
from textual.content import Content
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget

from inspector.keys import KEYS, TABS_OF, names_of, shown, typed, with_keys

Result = TypeVar("Result")
Run = Callable[[Any], Awaitable[None] | None]


class Needs(Flag):
    """Requirements of an action."""

    NOTHING = 0
    MODEL = auto()
    """The facts of a model, loaded or recorded."""
    DISTRIBUTION = auto()
    """A distribution on show: a prompt was prefilled or recorded."""
    ENGINE = auto()
    """A live engine: in a replay the action is refused, with how to continue live, unless its result was recorded."""
    SESSION = auto()
    """The session on show: the action is refused while a recording is being opened in its place."""


class Lack(Struct, frozen=True):
    """A part that some models lack."""

    fact: Literal["attends", "chooses_or_keeps"]
    """The fact of a model that says whether it may have the part."""
    why: str
    """The sentence if the model lacks the part, with advice; `{modules}` in it is the key of that action."""


class Action(Struct, frozen=True):
    """The action of a key at one place. Its functions get the owner: a tool's actions, a view or a dialog."""

    id: str
    """One of `inspector.keys.KEYS`; empty for a `note`."""
    label: str = ""
    """One or two words, for the finder."""
    help: str = ""
    """One sentence, for help, finder and tooltip; `{step}` in it is the key of that action. Neighbouring actions with
    the same sentence share a row of the help."""
    run: Run | None = None
    """The function of the key. None leaves that to the tables below, or to the widget that has the focus."""
    needs: Needs = Needs.NOTHING
    hint: str | Callable[[Any], str] = ""
    """Its word in the line of keys; empty for none. Neighbouring actions with the same word share it."""
    worth: int = 0
    """Importance: if the line has no room for all hints, those with the least worth are left out first."""
    place: int = 0
    """Place in the line. Of actions with the same place, unless it is 0, only those of the topmost table are shown."""
    looks: bool = False
    """True if it changes nothing, so that it can be done while a session goes live."""
    synonyms: str = ""
    """Other words for it, separated by commas, for the finder."""
    moves: Literal["", "on", "back"] = ""
    """Direction of its move, for which a transport may be ready even if no distribution is on show."""
    refusal: str = ""
    """The answer while there is no model; empty to grey the action."""
    recorded: Callable[[Any], bool] = lambda own: False
    """True if its result is in the recording: then it needs no engine."""
    view: str = ""
    """Word in the line under the tabs, if it shows an answer to the tab's question; with `…` at the end if it asks for
    something first."""
    page_of: str = ""
    """Id of another tool's action, if its view is a page of that action's answer."""
    opens: str = ""
    """The view that it opens instead of `run`, as `module:Class`: imported when it is first opened."""
    offered: Callable[[Any], object] | None = None
    """Truthy if the line under the tabs contains it now; gets the owner. None if it always does."""
    lacks: Lack | None = None
    """The part without which there is nothing to show. None if every model has it."""
    keys: str = ""
    """Keys of a note, in the form of those in `KEYS`."""
    written: str = ""
    """Its keys in the help, if more has to be written than the keys."""
    priority: bool = False
    """True if it has priority over the widget that has the focus."""
    listed: bool = True
    """True if the help has a row for it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its keys, as Textual names them; the first is the one that is shown."""
        return names_of(self.id, self.keys)

    @property
    def tabs(self) -> str:
        """Keys of the tabs in which it applies; empty for all of them."""
        return TABS_OF.get(self.id, "")

    def holds(self, tab: str) -> bool:
        """True if it applies in a tab."""
        return not self.tabs or tab in self.tabs

    @property
    def way(self) -> str:
        """Its key as the user reads it, after that of its tab."""
        return f"{self.tabs[0]} {self.shown}" if self.tabs else self.shown

    @property
    def shown(self) -> str:
        """Its key as the user reads it; empty if it has none."""
        return shown(next(iter(names_of(self.id, self.keys)), ""))

    @property
    def told(self) -> str:
        """The sentence about it."""
        return with_keys(self.help)


def note(
    keys: str,
    help: str = "",
    hint: str | Callable[[Any], str] = "",
    worth: int = 0,
    written: str = "",
    place: int = 0,
) -> Action:
    """A note about keys that a widget handles itself, for the help and the line of keys.

    Args:
        keys: Names of the keys, with blanks between them.
        help: The sentence in the help.
        hint: The word in the line of keys.
        worth: Worth in that line.
        written: The keys as the help writes them.
        place: Place in that line.
    """
    return Action("", help=help, hint=hint, worth=worth, place=place, keys=keys, written=written)


def both(
    ids: tuple[str, str],
    labels: tuple[str, str],
    help: str,
    run: Callable[[Any, int], Awaitable[None] | None],
    by: tuple[int, int] = (-1, 1),
    one: bool = False,
    **more: Any,
) -> tuple[Action, Action]:
    """Two actions that do the same in opposite directions.

    Args:
        ids: Their ids.
        labels: Their labels.
        help: The sentence about both.
        run: Gets the owner, and the action's number of `by`.
        by: A number for each action.
        one: Whether only the first has a hint in the line of keys.
        more: Further arguments of `Action`.
    """

    def made(place: int) -> Action:
        return Action(ids[place], labels[place], help, lambda own: run(own, by[place]), **more)

    return made(0), replace(made(1), hint="") if one else made(1)


class ActionTable(Struct, frozen=True):
    """The actions of one owner, or those that apply there for a while, with priority over the others.

    No two of them may claim the same key or id: a test checks all tables with `refuse_doubles`.
    """

    title: str
    """Title of its section in the help."""
    actions: tuple[Action, ...]
    text: str = ""
    """Further text for the help."""
    when: Callable[[Any], bool] | None = None
    """True if they apply now; gets the owner. None if they always do."""
    panel: str = ""
    """Id of the panel that must be the answer for them to apply; empty for any."""
    priority: bool = False
    """True if all of them have priority over the widget that has the focus."""
    told: bool = True
    """True if the help has a section for it."""


def refuse_doubles(where: str, actions: Iterable[tuple[str, Action]]) -> None:
    """Raise if two actions of one place claim the same key or id: the second would displace the first.

    Args:
        where: The place, as the end of a sentence.
        actions: All actions there, each after its owner's name.

    Raises:
        ValueError: Two actions claim the same key or id, or one has no key.
    """
    owners: dict[str, str] = {}
    for owner, action in actions:
        if not action.id:
            continue
        if not action.keys and action.id not in KEYS:
            raise ValueError(f"{action.id} has no key: give it one (inspector/keys.py).")
        keys = map(shown, names_of(action.id, action.keys, {}))
        for claimed in (f"the id {action.id}", *(f"the key {key}" for key in keys)):
            if claimed in owners:
                raise ValueError(
                    f"{owners[claimed]} and {owner} both claim {claimed} {where}: the second would displace the first. "
                    "Give one of them another (inspector/keys.py)."
                )
            owners[claimed] = owner


# ---- actions of many owners -------------------------------------------------------------------


def screen_table(
    title: str, *actions: Action, text: str = "", priority: bool = True, told: bool = True
) -> ActionTable:
    """The table of a view, with the actions that every view has.

    Args:
        title: Title of its section in the help.
        actions: Its own actions; the last one leaves it.
        text: Further text for the help.
        priority: Whether they have priority over the widget that has the focus.
        told: Whether the help has a section for it.
    """
    *own, leave = actions
    given = {each.id for each in actions}
    shared = (each for each in (FINDER, HELP) if each.id not in given)
    return ActionTable(title, (*own, *shared, leave), text, priority=priority, told=told)


FINDER = Action(
    "finder", "Find anything", "Find anything by a word.", lambda own: own.app.action_command_palette(), hint="find",
    worth=3, place=91, listed=False,
)  # fmt: skip
HELP = Action(
    "help", "Help", "Show the keys, and explain what is shown.", lambda own: own.host.help(), hint="help",
    worth=2, place=92, listed=False,
)  # fmt: skip


def back(id: str, help: str, worth: int = 8) -> Action:
    """The action that goes back in a view, or out of it.

    Args:
        id: Id of the action.
        help: The sentence about it.
        worth: Worth in the line of keys.
    """
    return Action(id, "Back", help, lambda own: own.back(), hint="back", worth=worth, place=93)


def dialog_table(title: str, *actions: Action, told: bool = True) -> ActionTable:
    """The table of a dialog, with the actions that every dialog has.

    Args:
        title: Title of its section in the help.
        actions: Its own actions, and `applies` or `leaves` if the help has a sentence about them.
        told: Whether the help has a section for it.
    """
    given = {each.id for each in actions}
    enters = any(each.hint and "enter" in each.names for each in actions)
    # enter applies it, too: one hint is enough
    own = (*actions, *(each for each in (applies(), leaves()) if each.id not in given))
    own = tuple(replace(each, hint="") if enters and each.id == "dialog.apply" else each for each in own)
    return ActionTable(title, (*own, replace(FINDER, hint=""), ANYWHERE), told=told)


ANYWHERE = note("ctrl+p", hint="find", worth=1, place=93)
"""The key of the finder in a dialog, whose fields take the usual one."""


NEW_LINE = note("ctrl+j", "Begin a new line; so does `alt+⏎`.", "new line", 5)
"""The keys that begin a new line in an editor, where enter applies the dialog."""


def list_table(title: str, word: str) -> ActionTable:
    """The table of a dialog with one list, which handles its keys itself.

    Args:
        title: Title of the table.
        word: The word for enter in the line of keys.
    """
    return dialog_table(
        title, note("up down", hint="choose", worth=5), note("enter", hint=word, worth=6), told=False
    )


def applies(help: str = "", written: str = "") -> Action:
    """The action that applies a dialog.

    Args:
        help: The sentence about it.
        written: Its keys as the help writes them.
    """
    return Action("dialog.apply", "Apply", help, lambda own: own.apply(), hint=lambda own: own.APPLY.lower(), worth=7,
                  place=91, written=written, priority=True)  # fmt: skip


def leaves(help: str = "", hint: str = "") -> Action:
    """The action that leaves a dialog.

    Args:
        help: The sentence about it.
        hint: Its word in the line of keys; empty for the text of the dialog's button.
    """
    word = hint or (lambda own: own.LEAVE.lower())
    return Action("dialog.leave", "Leave", help, lambda own: own.leave(), hint=word, worth=8, place=92)


def fields(help: str = "") -> tuple[Action, Action]:
    """The actions that move from field to field of a form."""
    return (
        Action("dialog.field_above", "Field above", help, lambda own: own.app.action_focus_previous(), hint="field",
               worth=6, priority=True),
        Action("dialog.field_below", "Field below", help, lambda own: own.app.action_focus_next(), hint="field",
               worth=6, priority=True),
    )  # fmt: skip


def picking(help: str, hint: str, worth: int = 5, pages: str | None = None) -> tuple[Action, ...]:
    """The actions that move in the list of a dialog.

    Args:
        help: The sentence about them.
        hint: Their word in the line of keys.
        worth: Worth in that line.
        pages: The sentence about paging; None for `help`.
    """
    paging = help if pages is None else pages
    return (
        *both(("list.above", "list.below"), ("Above", "Below"), help, lambda own, by: own.picks.move(by), hint=hint,
              worth=worth, priority=True),
        *both(("list.page_up", "list.page_down"), ("Page up", "Page down"), paging,
              lambda own, by: own.picks.move(by * own.picks.page), priority=True),
    )  # fmt: skip


def taking(help: str = "", hint: str = "", worth: int = 6, written: str = "") -> Action:
    """The action that takes the highlighted row of a dialog's list."""
    return Action(
        "list.take", "Take it", help, lambda own: own.apply(), hint=hint, worth=worth, written=written
    )


# ---- the line of keys -------------------------------------------------------------------------

GAP = "  "
ANSWERED = 3.0
"""Seconds for which the line of keys shows an answer."""
_META = "press"
_JOINED = frozenset("↑↓←→+-")
"""Characters that are joined without a blank."""


class Hint(Struct, frozen=True):
    """Actions in the line of keys that share a word."""

    actions: tuple[Action, ...]
    word: str
    worth: int
    enabled: bool = True

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """Its keys as they are written, each with Textual's name; the text between keys has an empty name."""
        names = _firsts(self.actions)
        if len(names) > 1 and all(map(str.isdecimal, names)):
            return [(names[0], names[0]), ("-", ""), (names[-1], names[-1])]
        pieces: list[tuple[str, str]] = []
        for before, name in zip(("", *names), names, strict=False):
            text = "⇥" if name == "tab" else shown(name)
            modifiers, plus, last = text.rpartition("+")
            if plus and last and before.startswith(f"{modifiers}+"):
                text = last  # shift+↑↓
            if pieces and not (pieces[-1][0][-1] in _JOINED and text[0] in _JOINED):
                pieces.append((" ", ""))
            pieces.append((text, name))
        return pieces

    @property
    def keys(self) -> str:
        """Its keys as they are written."""
        return "".join(text for text, _ in self.pieces)


def _firsts(actions: Iterable[Action]) -> list[str]:
    """The first key of each action, and all keys of notes."""
    names: list[str] = []
    for each in actions:
        names += each.names[:1] if each.id else each.names
    return names


Offered = tuple[Any, Action]
"""An action, and its owner."""


def hints_of(
    levels: Iterable[Iterable[Offered]],
    offers: Callable[[Action], bool] | None = None,
    enabled: Callable[[Action], bool] | None = None,
) -> list[Hint]:
    """The hints for the line of keys, in its order.

    Args:
        levels: The actions of the tables that apply now, the topmost table first.
        offers: Whether an action is offered now; None if all are.
        enabled: Whether an action can be done now; if not, its hint is grey. None if all can.
    """
    found: list[tuple[str, Action]] = []
    for level in levels:
        taken = {each.place for _, each in found} - {0}
        for owner, each in level:
            if not each.hint or each.place in taken or not (offers is None or offers(each)):
                continue
            if word := each.hint if isinstance(each.hint, str) else each.hint(owner):
                found.append((word, each))
    found.sort(key=lambda hinted: hinted[1].place)
    hints = []
    for word, group in groupby(found, key=itemgetter(0)):
        same = tuple(each for _, each in group)
        can = enabled is None or all(map(enabled, same))
        hints.append(Hint(same, word, max(each.worth for each in same), can))
    return hints


def fitting(hints: Iterable[Hint], width: int) -> list[Hint]:
    """The hints that fit into a number of cells, in their order."""
    kept, cells = list(hints), -len(GAP)
    for hint in kept:
        cells += cell_len(f"{GAP}{hint.keys} {hint.word}")
    while kept and cells > width:
        least = min(kept, key=attrgetter("worth"))
        kept.remove(least)
        cells -= cell_len(f"{GAP}{least.keys} {least.word}")
    return kept


def line(hints: Iterable[Hint], width: int) -> Content:
    """The hints that fit into a number of cells. A click on a key, or on the word of a single key, presses it."""
    shown = []
    for hint in fitting(hints, width):
        style, plain = ("bold $footer-key-foreground", "") if hint.enabled else ("$ink-faint", "$ink-faint")
        names = [name for _, name in hint.pieces if name]
        pieces = [(text, name, style) for text, name in hint.pieces]
        pieces.append((f" {hint.word}", names[0] if len(names) == 1 else "", plain))
        parts = (
            Content.styled(text, ink).stylize(pressing(name) if name else "") for text, name, ink in pieces
        )
        shown.append(Content("").join(parts))
    return Content(GAP).join(shown)


def pressing(key: str) -> Style:
    """The style of text that presses a key when it is clicked.

    Args:
        key: As Textual names it.
    """
    return Style.from_meta({_META: key})


def pressed(event: events.MouseEvent) -> str:
    """The key that a click at the mouse's position presses, as Textual names it; empty for none."""
    return str(event.style.meta.get(_META, ""))


def key_event(key: str) -> events.Key:
    """A key as if it were typed.

    Args:
        key: As Textual names it.
    """
    return events.Key(key, typed(key))


class Keyed(Widget):
    """A screen, a view or a dialog with tables of actions for its keys; the last one among several base classes."""

    ACTIONS: ClassVar[ActionTable]
    """Its own actions."""
    takes_keys: bool = False
    """True once its widgets are mounted and the first one has the focus: keys wait until then."""

    def fit(self, room: Size, update: bool = True) -> None:
        """Set the classes for a size, by the breakpoints of the application.

        Args:
            room: Cells of the screen, or of the view.
            update: Whether to update the styles.
        """
        classes: dict[str, bool] = {}
        sides = (self.app.HORIZONTAL_BREAKPOINTS or [], self.app.VERTICAL_BREAKPOINTS or [])
        for cells, breakpoints in zip(room, sides, strict=True):
            _, held = max(each for each in breakpoints if each[0] <= cells)
            classes |= {name: name == held for _, name in breakpoints}
        self.update_classes(classes, update, animate=False)

    @property
    def left(self) -> bool:
        """True if it is closed, or the program ends: its widgets must not be used."""
        return False

    def let_go(self) -> None:
        """Cancel what it waits for: called once each time it is closed."""

    def after_paint(self, callback: Callable[..., object], *args: object, **kwargs: object) -> bool:
        """Call a function after the next paint, unless this has been left by then."""
        return self.call_after_refresh(lambda: None if self.left else callback(*args, **kwargs))

    def from_thread(self, callback: Callable[..., object], *args: object) -> None:
        """Call a function in the app's thread, unless this has been left by then; called in another thread."""
        self.app.call_from_thread(lambda: None if self.left else callback(*args))

    @property
    def tables(self) -> Sequence[ActionTable]:
        """The tables of its actions, the topmost first."""
        return (self.ACTIONS,)

    def meanings(self, key: str) -> Iterator[tuple[Action, bool]]:
        """The actions of a key now, and whether each has priority over the widget that has the focus."""
        for table in self._holding():
            for action in table.actions:
                if action.run is not None and action.id and key in action.names:
                    yield action, table.priority or action.priority

    def meaning(self, key: str) -> Action | None:
        """The action of a key now; None if it has none here.

        Args:
            key: As Textual names it.
        """
        return next((action for action, _ in self.meanings(key)), None)

    def offers(self, action: Action) -> bool:
        """True if an action is offered now, in the line of keys and in the finder."""
        return True

    def hints(self) -> Sequence[Hint]:
        """The hints for the line of keys now."""
        return hints_of((((self, each) for each in table.actions) for table in self._holding()), self.offers)

    def _holding(self) -> Iterator[ActionTable]:
        return (table for table in self.tables if table.when is None or table.when(self))


class KeyedScreen(Screen[Result], Keyed):
    """A screen whose keys are bound to its actions."""

    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = []  # noqa: RUF012 (as Textual declares them)
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = []  # noqa: RUF012
    """Empty: Textual would set these classes after the first layout, and need a second one. See `fit`."""
    _styled = ""
    """The theme that its widgets were styled in."""
    _notices: Sequence[Region] = ()
    """The places of the notices on it."""

    def on_mount(self) -> None:
        """Hear of each layout."""
        self.screen_layout_refresh_signal.subscribe(self, self._repaint_moved_notices)

    def _repaint_moved_notices(self, _: Screen[Any]) -> None:
        """Repaint if a notice has another place.

        Textual does not paint a widget that only moved if its map was read after a new one was mounted
        (`Compositor.full_map`): a notice stayed painted where the next one had pushed it away from.
        """
        if (notices := [notice.region for notice in self.query("Toast")]) != self._notices:
            self._notices = notices
            self.refresh()

    @on(events.Resize)
    def _resized(self) -> None:
        """Set the classes for the new size."""
        self.fit(self.app.size)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Restyle the screen only if the theme has changed: Textual would do so each time."""
        event.refresh_styles, self._styled = self._styled not in ("", self.app.theme), self.app.theme

    async def perform(self, action: Action) -> None:
        """Do an action, or say why it can't be done."""
        raise NotImplementedError

    async def action_press(self, key: str) -> None:
        """Do what a key does now.

        Raises:
            SkipAction: The key does nothing here, and another binding may handle it.
        """
        if (action := self.meaning(key)) is None:
            raise SkipAction
        await self.perform(action)

    def on_click(self, event: events.Click) -> None:
        """Press a key whose name on the screen was clicked."""
        if key := pressed(event):
            sent = key_event(key)
            sent.set_sender(self.app)  # with this screen as the sender it would not come back here
            self.app.post_message(sent)


class KeyLine(Widget):
    """The last line of a screen: the keys that matter most, as many as fit. They can be clicked."""

    DEFAULT_CSS = """
    KeyLine { height: 1; padding: 0 1; background: $panel; color: $text-muted; }
    KeyLine.-dialog { dock: bottom; layer: below; }
    """

    _hints: Sequence[Hint] | None = None
    _said = ""

    def say(self, answer: str) -> None:
        """Answer a key for a moment, on a screen without a status line.

        Args:
            answer: Printable.
        """
        self._said = answer
        self.refresh()
        if answer:
            self.set_timer(ANSWERED, lambda: self.say(""))

    def show(self) -> None:
        """Show the keys again, if they have changed."""
        if (hints := cast(KeyedScreen[Any], self.screen).hints()) != self._hints:
            self._hints = hints
            self.refresh()

    def render(self) -> Content:
        if self._hints is None:
            self._hints = cast(KeyedScreen[Any], self.screen).hints()
        said = Content.styled(f"{self._said}{GAP}", "$text-warning") if self._said else Content("")
        return said + line(self._hints, self.content_size.width - said.cell_length)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Explain the key under the mouse."""
        key = pressed(event)
        action = cast(KeyedScreen[Any], self.screen).meaning(key) if key else None
        self.tooltip = action.told if action is not None and action.help else None


# ---- the help ---------------------------------------------------------------------------------


def section(table: ActionTable) -> Iterator[str]:
    """The lines of a table's section in the help, in Markdown."""
    yield from ("", f"## {table.title}", "")
    if table.text:
        yield with_keys(table.text)
    rows = [each for each in table.actions if each.help and each.listed]
    if rows:
        yield from ("| key | what it does |", "|---|---|")
    for help, same in groupby(rows, key=lambda each: each.told):
        yield f"| {written(tuple(same))} | {help} |"


def written(actions: Sequence[Action]) -> str:
    """The keys of actions that share a row, in Markdown: the first of each, then the second ones."""
    if own := actions[0].written:
        return with_keys(own)
    others = zip_longest(*(each.names[1:] for each in actions if each.id))
    every = [*_firsts(actions), *(name for some in others for name in some if name)]
    names = [name for name in dict.fromkeys(every) if name != "equals_sign"]  # plus, without shift
    digits = [name for name in names if name.isdecimal()]
    if len(digits) > 2:
        rest = [name for name in names if name not in digits]
        return " ".join((f"`{digits[0]}` to `{digits[-1]}`", *(f"`{shown(name)}`" for name in rest)))
    return " ".join(f"`{shown(name)}`" for name in names)
