"""A screen that looks inside the model at one token: its place in the text, the view, its checks, the other views."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Generic, TypeVar

from rich.style import Style
from textual import events, getters, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from engine.protocol import CaptureFacts, Command, Failure, Record
from inspector.display import visible
from inspector.main.inside.notices import nothing_before, place_of, refused, tabs, under_way, waiting
from inspector.main.inside.token_heat import TokenHeat
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.session.requests import Replies
from inspector.state.inside import checked
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.widgets.actions import KeyLine
from inspector.widgets.canvas import Canvas, PageView, Row, centred

Answer = TypeVar("Answer", bound=Record)
LOW, TALL = 16, 30
"""Rows of a screen from which on there is room for one line of text, and for two."""


class InsideScreen(ToolScreen[None], Generic[Answer]):
    """Looks at the forward that made the candidates of the selected token. The views differ in what they ask and draw.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
    """

    AUTO_FOCUS = "#inside-view"
    ASKS: ClassVar[bool] = True
    """Whether the view is about a token; one of the whole model has no text above it."""
    text = getters.query_one("#inside-text", TokenHeat)
    view = getters.query_one("#inside-view", PageView)

    def __init__(self, host: Host, answers: Replies[Answer]) -> None:
        super().__init__(host)
        self.answers = answers

    # ---- what a view says -----------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        """What is asked about the present token, and its key."""
        raise NotImplementedError

    def draw(self, answer: Answer, on: Canvas, width: int, height: int) -> list[Row]:
        """The view of an answer whose checks passed."""
        raise NotImplementedError

    def facts_of(self, answer: Answer) -> CaptureFacts | None:
        """Checks and times of an answer; None where it has none."""
        facts = getattr(answer, "facts", None)
        return facts if isinstance(facts, CaptureFacts) else None

    def heat(self, answer: Answer) -> tuple[str, Sequence[float]]:
        """What the colours of the text mean, and a share for each of its tokens; none for no colours."""
        return "", ()

    def heading(self, answer: Answer | None) -> str:
        """Of the view's frame; printable."""
        raise NotImplementedError

    def text_rows(self) -> int:
        """Rows of the text above the view, its frame included; 0 for none."""
        if self.size.height < LOW or not self.ASKS:
            return 0
        return 3 if self.size.height < TALL else 4

    # ---- the token --------------------------------------------------------------------------------

    @property
    def timeline(self) -> Timeline:
        """What is on show."""
        return self.host.controller.timeline

    @property
    def node(self) -> int:
        """The token whose forward is looked at: the candidates on the main screen come from it."""
        return self.timeline.before

    @property
    def path(self) -> Sequence[Item]:
        """The tokens up to that one."""
        return self.timeline.items[: self.timeline.slot]

    @property
    def answer(self) -> Answer | None:
        """The answer about the present token."""
        return self.answers.get(self.question()[0]) if self.path or not self.ASKS else None

    # ---- showing ----------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(id="inside-tabs")
        yield TokenHeat(id="inside-text")
        yield PageView(id="inside-view")
        yield Static(id="inside-status")
        yield KeyLine(id="inside-keys")

    def show(self) -> None:
        """Show everything, now; ask for what isn't known."""
        self._want()
        answer = self.answer
        self.query_one("#inside-tabs", Static).update(
            tabs(self.host.family(self.TOOL), self.TOOL, self.size.width - 2)
        )
        if rows := self.text_rows():
            self.text.styles.height = rows
        self.text.display = rows > 0
        shown = answer if answer is not None and not self._failed(answer) else None
        meaning, shares = self.heat(shown) if shown is not None else ("", ())
        self.text.put(meaning or place_of(self.path), self.path, shares)
        self.view.put(visible(self.heading(answer)), self._draw)
        status = self.query_one("#inside-status", Static)
        status.update(Content(self.situation()))
        status.set_class(self._trouble(answer), "-answer")

    def _want(self) -> None:
        if self.host.controller.transport.recorded or (self.ASKS and not self.path):
            return
        self.ask()

    def ask(self) -> None:
        """Ask for what isn't known about the present token."""
        self.answers.want(*self.question())

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        answer = self.answer
        if answer is not None and not self._failed(answer):
            return self.draw(answer, on, width, height)
        return centred(self._instead(on, answer), width, height)

    def _instead(self, on: Canvas, answer: Answer | None) -> list[tuple[str, Style]]:
        """Why there is nothing to show, and what to do."""
        facts = self.facts_of(answer) if answer is not None else None
        if facts is not None and facts.failed is not None:
            return refused(on, facts.failed, facts.family)
        if self.ASKS and not self.path:
            return nothing_before(on)
        failure = self._failure
        if failure is not None:
            return [(visible(failure.message), on.ink("bad")), (visible(failure.hint), on.ink("muted"))]
        return waiting(on, self.host.controller.transport.recorded)

    @property
    def _failure(self) -> Failure | None:
        return self.answers.failure(self.question()[0]) if self.path or not self.ASKS else None

    def _failed(self, answer: Answer) -> bool:
        facts = self.facts_of(answer)
        return facts is not None and facts.failed is not None

    def _trouble(self, answer: Answer | None) -> bool:
        return self._failure is not None or (answer is not None and self._failed(answer))

    @property
    def status_room(self) -> int:
        """Cells of the line of the situation."""
        return self.size.width - 2

    def situation(self) -> str:
        """The checks of what is shown, and what it cost; or what is going on."""
        answer = self.answer
        facts = self.facts_of(answer) if answer is not None else None
        if facts is not None:
            return checked(facts, self.status_room)
        if (failure := self._failure) is not None:
            return visible(failure.message)
        return under_way(self.answers.progress) if self.answers.waiting else ""

    # ---- keys ---------------------------------------------------------------------------------------

    def walk(self, by: int) -> None:
        """Look at another token."""
        self.timeline.walk(by)
        self.host.changed()

    def look_at(self, slot: int | None) -> None:
        """Look at a token: the second slot for the first one, since nothing went through the model before it."""
        self.timeline.select(slot)
        self.host.changed()

    @on(TokenHeat.Clicked)
    def _token_clicked(self, message: TokenHeat.Clicked) -> None:
        """Look at the token that was clicked: the text then ends with it."""
        self.look_at(message.place + 1)
        self.changed()

    def turn(self, by: int) -> None:
        """Show a neighbouring view of the same token."""
        family = self.host.family(self.TOOL)
        at = next(index for index, tool in enumerate(family) if tool.id == self.TOOL)
        self.leave_for(family[(at + by) % len(family)].actions[0].id)

    def leave_for(self, action: str) -> None:
        """Close this screen, and do what an action of the main screen does."""
        self.drop()
        self.dismiss(None)
        self.host.press(action)

    def on_key(self, event: events.Key) -> None:
        """The keys that open the other views on the main screen do so from here, too."""
        openers = (tool.actions[0] for tool in self.host.family(self.TOOL))
        if (opener := next((each for each in openers if event.key in each.names), None)) is not None:
            event.stop()
            self.leave_for(opener.id)

    def leave(self) -> None:
        """Go back; what is computed stops."""
        self.drop()
        self.dismiss(None)
        self.host.changed()

    def drop(self) -> None:
        """Have what is computed stop."""
        self.answers.drop()
