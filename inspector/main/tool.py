"""A tool is a value that the main screen takes its keys, panel, help and refusals from.

A tool is one line in `inspector.tools.registry` (or in the tuple that an application is given). The main screen makes
its actions once, with itself as their host, and knows no tool by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol, TypeVar

from msgspec import Struct
from textual.geometry import Region
from textual.message import Message
from textual.widget import Widget

from engine.protocol import Candidate, Record
from inspector.main.clipboard import Clipboard
from inspector.main.evidence import ExportPart
from inspector.main.finder import Findable
from inspector.main.layout import Arrangement
from inspector.main.narration import NarrationCard, Narrator
from inspector.session.client import Severity
from inspector.session.controller import Controller
from inspector.session.playback import Playback
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, ActionTable

Result = TypeVar("Result")
Given = TypeVar("Given", contravariant=True)
Panel = TypeVar("Panel", bound=Widget)


class Opened(Protocol[Given]):
    """A view or a dialog."""

    def dismiss(self, result: Given | None = None) -> object:
        """Close it.

        Args:
            result: For the caller of `Host.open`.
        """


# ---- what the main screen does for it -----------------------------------------------------------


class Host(Protocol):
    """The services of the main screen to the tools."""

    @property
    def controller(self) -> Controller:
        """The session on the screen."""

    @property
    def playback(self) -> Playback | None:
        """Recordings in the place of the engine; None where an application has no files."""

    @property
    def arrangement(self) -> Arrangement:
        """The arrangement of the panels."""

    @property
    def tools(self) -> Sequence[Tool]:
        """All tools, in the order of their keys."""

    @property
    def clipboard(self) -> Clipboard:
        """The terminal's clipboard."""

    @property
    def shown(self) -> frozenset[str]:
        """Ids of the panels on screen."""

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted candidate."""

    @property
    def caption(self) -> str:
        """The caption for an audience now, on every screen; printable, empty for none."""

    @property
    def stages(self) -> Sequence[tuple[str, str]]:
        """Places for a caption now: ids and titles of the panels, and of tools whose screen has something."""

    def answer(self, answer: str = "") -> None:
        """Answer the last key, or take the answer back, and have everything shown again."""

    def expect(self) -> None:
        """Take the answer to the last key back, and have everything shown again with what the engine tells soon."""

    def changed(self) -> None:
        """Have everything shown again, also what the tool itself says of its keys (`Action.hint`, `Action.offered`,
        `ActionTable.when`): once, however often this is called before."""

    def open(
        self, screen: Opened[Result], then: Callable[[Result | None], None] | None = None
    ) -> Opened[Result]:
        """Show a view in the place of the answer, or a dialog over the screen.

        Args:
            screen: Dismissed with its result.
            then: Called with the result.

        Returns:
            The one that is shown: another of its class, if that was kept.
        """

    def panel(self, kind: type[Panel]) -> Panel:
        """The panel of a class."""

    def go_to(self, panel: str) -> None:
        """Make a panel the current one."""

    async def open_tab(self, tab: str) -> None:
        """Open a tab with the answer that was shown there last.

        Args:
            tab: Its key.
        """

    async def turn_view(self, by: int) -> None:
        """Show the answer so many places further in the open tab."""

    @property
    def area(self) -> Region:
        """The place of the answer on the terminal, for a tool's own screen."""

    def close(self, view: Widget, result: object) -> None:
        """Close a tool's view, and give its result to whoever opened it."""

    def tell(self, said: str, alert: bool) -> None:
        """Show what the open view says in the status line; printable."""

    def show_keys(self) -> None:
        """Show the line of keys again, if there are other keys."""

    @property
    def over(self) -> str:
        """Id of the tool whose own screen is on top; empty for the main screen and dialogs."""

    def to_main(self) -> None:
        """Leave the tool's own screen that is on top."""

    def point(self, tool: str, *place: int) -> None:
        """Choose what a tool's own screen shows, before it is opened: see `ToolActions.point`."""

    def heat(self) -> OfferedHeat | None:
        """What the tool that was looked at last, of those that have it, says of each token of the text."""

    def colour(self) -> None:
        """Colour the text anew, where it is coloured by that."""

    def help(self, tool: str = "", page: str = "keys") -> None:
        """Show the keys and what is shown.

        Args:
            tool: Id of the one whose own screen is open; empty for the keys of the main screen.
            page: The page to begin with, by its place in `help` without the ending.
        """

    def has(self, action: str) -> bool:
        """True if the main screen has an action.

        Args:
            action: Its id.
        """

    def find_anything(self, typed: str = "") -> None:
        """Find anything by a word.

        Args:
            typed: What the field begins with.
        """

    def press(self, key: str) -> None:
        """Do what an action of the main screen does, by its id, once this one is on top."""

    async def do(self, id: str) -> None:
        """Do at once what an action of the main screen does, where that is on top, or say why it can't be done."""

    def switch_theme(self) -> None:
        """Switch between dark and light."""

    def announce(self, text: str, title: str, severity: Severity = "information") -> None:
        """Tell the person something that is no answer to a key; printable."""

    def in_background(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do what takes long in a thread of its own.

        Args:
            work: Must not touch the screen.
            then: Called with what it returned, in the screen's thread.
        """

    @property
    def card(self) -> NarrationCard | None:
        """The narrator's card on the screen on top; None where it has none."""

    @property
    def narrator(self) -> Narrator | None:
        """Whoever tells something beside the panels."""

    def narrate(self, narrator: Narrator | None) -> None:
        """Have somebody tell something beside the panels, on all screens, and be asked first about each key.

        Args:
            narrator: None for nobody.
        """

    def screenshot(self, title: str, then: Callable[[str], None]) -> None:
        """Take a picture of the screen without the dialog that is about to close.

        Args:
            title: Of the picture's frame.
            then: Called with the SVG.
        """


# ---- a tool -------------------------------------------------------------------------------------


class OfferedHeat(Struct, frozen=True):
    """What a view says of each token, for the text to be coloured by."""

    title: str
    """What it is, and from which token; printable."""
    shares: Mapping[int, float]
    """By node, 0 to 1, or -1 to 1; a token without one stays plain."""
    signed: bool = False
    """True if some can be below 0."""


class PanelSpec(Struct, frozen=True):
    """A panel that a tool brings to the main screen."""

    make: Callable[[], Widget]
    """Makes the widget; its id becomes the tool's."""
    name: str
    """For the end of the status line, where one panel is shown at a time."""
    label: str
    """As a message names it."""


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

    def __init__(self, host: Host) -> None:
        self.awake = False
        """True if it hears of each change though no panel of its own is on screen."""
        self.host = host
        self.controller = host.controller
        """The session on the screen."""

    @property
    def timeline(self) -> Timeline:
        """The timeline on show."""
        return self.controller.timeline

    def open_screen(
        self, screen: Opened[Result], then: Callable[[Result | None], None] | None = None
    ) -> None:
        """Open the tool's own screen; a run pauses.

        Args:
            screen: The screen.
            then: Called with its result.
        """
        self.controller.client.pause()
        self.host.answer()
        self.host.open(screen, then)

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
        """What a finder has of it beside its actions."""
        return ()

    def on_disk(self) -> Iterator[Findable]:
        """The same, of what has to be read from the disk first; called in a thread."""
        yield from ()

    def heat(self) -> OfferedHeat | None:
        """What its last view says of each token of the text; None while it has none. Asked with each showing while the
        text is coloured by it: the same one while nothing changed."""
        return None

    def point(self, *place: int) -> None:
        """Choose what its own screen shows: a layer, or a layer and a head, counted from 1; a strength; a step."""

    def pressed(self, id: str) -> None:
        """An action of the main screen that it heeds is about to be done.

        Args:
            id: Of the action.
        """

    def hear(self, message: ToolMessage) -> None:
        """Take in what the tool's panel says."""


class Tool(Struct, frozen=True):
    """One thing that a person opens."""

    id: str
    title: str
    """As the finder and the layout name it."""
    make: Callable[[Host], ToolActions] = ToolActions
    actions: tuple[Action, ...] = ()
    """Those of the main screen."""
    panel: PanelSpec | None = None
    contexts: tuple[ActionTable, ...] = ()
    """Meanings of keys of the main screen for a while, the first before the others: given the tool's actions."""
    owners: tuple[ActionTable, ...] = ()
    """The actions of its own screens and dialogs, which are imported once they are opened. The first action opens the
    first screen, the second one the second."""
    situation: str = ""
    """The status line while the tool's panel is the current one; `{step}` in it is the key of that action."""
    screen: bool = False
    """True if the actions with `recorded` open a screen of its own: a caption in a recording may have that opened."""

    exports: Callable[[], tuple[ExportPart, ...]] = tuple
    """What it contributes to an export; its making is imported once something is exported."""

    @property
    def opener(self) -> str:
        """Id of the action that shows its panel or its screen; empty for none."""
        return next((each.id for each in self.actions if each.view and not each.view.endswith("…")), "")


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


class CandidateChosen(ToolMessage):
    """The highlighted candidate was clicked: take it."""

    tool = "branching"

    def __init__(self, id: int) -> None:
        self.id = id
        super().__init__()


class CandidateClicked(ToolMessage):
    """Another candidate was clicked: highlight it."""

    tool = "branching"

    def __init__(self, id: int) -> None:
        self.id = id
        super().__init__()


class SlotSelected(ToolMessage):
    """A token was clicked: look at it."""

    tool = "looking"

    def __init__(self, slot: int) -> None:
        self.slot = slot
        super().__init__()
