"""Tools as values: each gives the main screen its keys, panel, help and refusals.

The built-in tools are listed in `inspector.views`; an application may be given others. The main screen creates their
actions and views once, with itself as their host, and knows none of them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from msgspec import Struct
from textual.message import Message
from textual.widget import Widget

from engine.protocol import Record
from inspector.main.finder import Findable
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, ActionTable, Lack

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


Host: TypeAlias = "MainScreen"
"""The main screen, for its tools and their views."""


class OfferedHeat(Struct, frozen=True):
    """Token shares that a view offers for coloring the text."""

    title: str
    """Meaning of the shares, and the token that they are about; printable."""
    shares: Mapping[int, float]
    """Share by node, 0 to 1, or -1 to 1; a token without one stays plain."""
    signed: bool = False
    """True if shares can be negative."""


class ToolActions:
    """State and actions of a tool in one application. A tool without hooks of its own uses this class itself.

    `show` and `shown` are called while the tool's panel is on screen or the tool is awake, once when the panel has left
    the screen, and for every tool after a change of the session state, such as the branches, the model or the phase.
    `takes_alone` is called while the tool is awake.

    Args:
        host: The main screen.
    """

    HEEDS: ClassVar[tuple[str, ...]] = ()
    """Ids of the actions of the main screen before which `pressed` is called."""

    def __init__(self, host: MainScreen) -> None:
        self.awake = False
        """True if `show` and `shown` are called with each change even if the tool has no panel on screen."""
        self.host = host
        self.controller = host.controller
        """The session on the screen."""

    @property
    def timeline(self) -> Timeline:
        """The timeline on show."""
        return self.controller.timeline

    def show(self) -> None:
        """Called during each redraw of the main screen: show the tool's panel, if it has one."""

    def shown(self) -> None:
        """Called at the end of each redraw, when the panels are laid out."""

    def takes_alone(self, records: Sequence[Record]) -> bool:
        """If records change nothing but this tool's panel, show them; returns whether that was done."""
        return False

    def stop(self) -> bool:
        """Handle escape when the session has no work to stop; returns whether this tool stopped something."""
        return False

    def findable(self) -> Iterable[Findable]:
        """Things of the tool for the finder, in addition to its actions."""
        return ()

    def on_disk(self) -> Iterator[Findable]:
        """Things for the finder that have to be read from the disk; called in a thread."""
        yield from ()

    def pressed(self, id: str) -> None:
        """Called before an action of `HEEDS` is done.

        Args:
            id: Id of the action.
        """

    def hear(self, message: ToolMessage) -> None:
        """Handle a message of the tool's panel."""


def found(place: str) -> Any:
    """Import an object by a place such as `inspector.views.lens:Lens`.

    Args:
        place: Module and name.
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class Tool(Struct, frozen=True):
    """A tool: its actions on the main screen, and the panel, views and dialogs that they open."""

    id: str
    title: str
    """Its name in the finder, the layout and messages."""
    make: Callable[[MainScreen], ToolActions] | str = ToolActions
    """Creates its actions at the start; or the place of their class, which is imported on first use."""
    actions: tuple[Action, ...] = ()
    """Actions of the main screen."""
    panel: Callable[[], Widget] | None = None
    """Creates its panel on the main screen, which gets the tool's id and title."""
    contexts: tuple[ActionTable, ...] = ()
    """Meanings that keys of the main screen have for a while; the first table has priority. Their functions get the
    tool's actions."""
    dialogs: tuple[str, ...] = ()
    """Places of the key tables of its dialogs, which are imported for the help."""
    tab: str = ""
    """Key of the tab of a plug-in's actions, or, without an `opener`, of the answers of actions that apply in every
    tab; other actions have their tabs in `inspector.keys`."""
    situation: str = ""
    """The status line while the tool's panel is the current one; `{step}` in it is the key of that action."""
    exports: tuple[str, ...] = ()
    """Places of the parts that it contributes to an export: see `ExportPart`."""

    @property
    def opener(self) -> str:
        """Id of the action that shows its panel or its view; empty for none."""
        return next((each.id for each in self.actions if each.view and not each.view.endswith("…")), "")

    @property
    def opening(self) -> list[Action]:
        """The actions that open its views."""
        return [each for each in self.actions if each.opens]

    @property
    def tables(self) -> Iterator[ActionTable]:
        """The keys of its views and dialogs; imports them."""
        for view in dict.fromkeys(found(each.opens) for each in self.opening):
            yield view.ACTIONS
            yield from view.DIALOGS
        yield from map(found, self.dialogs)

    @property
    def modules(self) -> Iterator[str]:
        """The modules that are imported when it is first opened."""
        places = (*(each.opens for each in self.actions), *self.dialogs, self.make)
        return (each.partition(":")[0] for each in places if isinstance(each, str) and each)


NO_ATTENTION = Lack("attends", "This model has no attention: it keeps states. {Experts} shows them")


def live(word: str) -> Callable[[ToolActions], str]:
    """A word for the line of keys that is left out while a recording is shown."""
    return lambda own: "" if own.timeline.recorded else word


def replayed(word: str) -> Callable[[ToolActions], str]:
    """A word for the line of keys that appears only while a recording is shown."""
    return lambda own: word if own.timeline.recorded else ""


# ---- messages from panels to a tool's actions ---------------------------------------------------


class ToolMessage(Message):
    """Base of the messages from a panel to a tool's actions."""

    tool: ClassVar[str]
    """Id of the tool."""


class CandidateClicked(ToolMessage):
    """Another candidate was clicked: highlight it."""

    tool = "branching"

    def __init__(self, id: int) -> None:
        self.id = id
        super().__init__()


class CandidateChosen(CandidateClicked):
    """The highlighted candidate was clicked: take it."""


class SlotSelected(ToolMessage):
    """A token was clicked: look at it."""

    tool = "looking"

    def __init__(self, slot: int) -> None:
        self.slot = slot
        super().__init__()
