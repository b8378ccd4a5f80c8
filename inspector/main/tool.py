"""A tool is a value that the main screen takes its keys, panel, help and refusals from.

The tools that come with the program are listed in `inspector.views`; an application may be given others. The main
screen makes their actions and views once, with itself as their host, and knows none of them by name.
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
"""The main screen, as its tools and their views know it."""


class OfferedHeat(Struct, frozen=True):
    """Shares of the tokens by a view, which can colour the text."""

    title: str
    """Meaning of the shares, and the token they are of; printable."""
    shares: Mapping[int, float]
    """Share by node, 0 to 1, or -1 to 1; a token without one stays plain."""
    signed: bool = False
    """True if some can be below 0."""


class ToolActions:
    """State and actions of a tool in one application. A tool without hooks of its own needs no more than this.

    `show`, `shown` and `takes_alone` are called while its panel is on screen or the tool is awake; the first two also
    whenever something else of the session than the readings has changed, the path, the model, the phase, and when its
    panel has left the screen.

    Args:
        host: The main screen.
    """

    HEEDS: ClassVar[tuple[str, ...]] = ()
    """Ids of the actions of the main screen before which `pressed` is called."""

    def __init__(self, host: MainScreen) -> None:
        self.awake = False
        """True if it hears of each change though no panel of its own is on screen."""
        self.host = host
        self.controller = host.controller
        """The session on the screen."""

    @property
    def timeline(self) -> Timeline:
        """The timeline on show."""
        return self.controller.timeline

    def show(self) -> None:
        """Everything is shown again: show the tool's panel, where it has one."""

    def shown(self) -> None:
        """Everything is shown and in its place."""

    def takes_alone(self, records: Sequence[Record]) -> bool:
        """True if the tool alone has something to show of records; it shows it then."""
        return False

    def stop(self) -> bool:
        """Escape, where nothing else was to be stopped; returns whether this tool stopped something."""
        return False

    def findable(self) -> Iterable[Findable]:
        """Things of the tool to find beside its actions."""
        return ()

    def on_disk(self) -> Iterator[Findable]:
        """The same, of what has to be read from the disk first; called in a thread."""
        yield from ()

    def pressed(self, id: str) -> None:
        """An action of the main screen that it heeds is about to be done.

        Args:
            id: Of the action.
        """

    def hear(self, message: ToolMessage) -> None:
        """Take in what the tool's panel says."""


def found(place: str) -> Any:
    """Import what has a place such as `inspector.views.lens:Lens`.

    Args:
        place: Module and name.
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class Tool(Struct, frozen=True):
    """One thing that the user opens, and what opens it."""

    id: str
    title: str
    """As the finder, the layout and messages name it."""
    make: Callable[[MainScreen], ToolActions] | str = ToolActions
    """Makes its actions at the start; or the place of their class, which is imported when they are first needed."""
    actions: tuple[Action, ...] = ()
    """Actions of the main screen."""
    panel: Callable[[], Widget] | None = None
    """Makes the panel that it brings to the main screen: its id becomes the tool's, its name is the title."""
    contexts: tuple[ActionTable, ...] = ()
    """Meanings of keys of the main screen for a while, the first before the others: given the tool's actions."""
    dialogs: tuple[str, ...] = ()
    """Places of the keys of its dialogs, which are imported for the help."""
    tab: str = ""
    """Key of the tab of a plug-in's actions, and of those that hold everywhere and have no view; the others are in
    `inspector.keys`."""
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
    """A word for the line of keys, but while a recording is shown."""
    return lambda own: "" if own.timeline.recorded else word


def replayed(word: str) -> Callable[[ToolActions], str]:
    """A word for the line of keys while a recording is shown."""
    return lambda own: word if own.timeline.recorded else ""


# ---- what panels say to its actions -------------------------------------------------------------


class ToolMessage(Message):
    """Base of what a panel says to a tool's actions."""

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
