"""A screen that looks inside the model at one token: its place in the text, the view, its checks, the other views."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from rich.style import Style
from textual import events, getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from engine.commands import Command
from engine.records import CaptureFacts, Failure, Record
from inspector.display import quoted, token_label, visible
from inspector.main.inside.token_heat import TokenHeat
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import milliseconds
from inspector.session.answers import Answers
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import Canvas, Row, centred
from inspector.widgets.charts import bar
from inspector.widgets.key_hints import KeyHint
from inspector.widgets.page_view import PageView


class Answered(Protocol):
    """An answer about a token, accompanied by its checks."""

    @property
    def facts(self) -> CaptureFacts:
        """Checks and times."""


Answer = TypeVar("Answer", bound=Record)
CHECKS = {
    "forward": "logits unchanged", "attention": "attention", "rows": "rows sum to 1", "lens": "lens = logits",
    "parts": "parts sum to logits",
}  # fmt: skip
"""What each check says, for the status line."""
TEXT_ROWS = 8
"""Rows of the text at most, its frame included; a third of the screen where that is less."""


class InsideScreen(ToolScreen[None], Generic[Answer]):
    """Looks at the forward that made the candidates of the selected token. The views differ in what they ask and draw.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
    """

    KEYS: ClassVar[str] = "#inside-keys"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "walk(-1)", "Token before", tooltip="Look at the token before.", priority=True),
        Binding("right", "walk(1)", "Next token", tooltip="Look at the next token.", priority=True),
        Binding("home", "first", "First token", tooltip="Look at the first token.", priority=True),
        Binding("end", "last", "Last token", tooltip="Look at the last token.", priority=True),
        Binding("tab", "turn(1)", "Next view", tooltip="Show the next view of this token.", priority=True),
        Binding("shift+tab", "turn(-1)", "View before", tooltip="Show the view before.", priority=True),
        Binding("pageup", "scroll(-10)", "Page up", tooltip="Scroll up by ten lines.", priority=True),
        Binding("pagedown", "scroll(10)", "Page down", tooltip="Scroll down by ten lines.", priority=True),
        Binding("escape,q", "leave", "Back", tooltip="Go back; what is computed stops."),
    ]
    AUTO_FOCUS = "#inside-view"
    ASKS: ClassVar[bool] = True
    """Whether the view is about a token; one of the whole model has no text above it."""
    text = getters.query_one("#inside-text", TokenHeat)
    view = getters.query_one("#inside-view", PageView)

    def __init__(self, host: Host, answers: Answers[Answer]) -> None:
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
        return max(3, min(TEXT_ROWS, self.size.height // 3)) if self.ASKS else 0

    def hints(self) -> Sequence[KeyHint]:
        """The view's own keys."""
        return ()

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
        yield Static(id="inside-keys")

    def show(self) -> None:
        """Show everything, now; ask for what isn't known."""
        self._want()
        answer = self.answer
        self.query_one("#inside-tabs", Static).update(self._tabs())
        if rows := self.text_rows():
            self.text.styles.height = rows
        self.text.display = rows > 0
        shown = answer if answer is not None and not self._failed(answer) else None
        meaning, shares = self.heat(shown) if shown is not None else ("", ())
        self.text.put(meaning or self._place(), self.path, shares)
        self.view.put(visible(self.heading(answer)), self._draw)
        status = self.query_one("#inside-status", Static)
        status.update(Content(self.situation()))
        status.set_class(self._trouble(answer), "-answer")
        self.show_keys(
            [
                *self.hints(), *([("←→", "token", 8)] if self.ASKS else []), ("⇥", "next view", 6), ("T", "theme", 1),
                ("?", "help", 3), ("esc", "back", 9),
            ]
        )  # fmt: skip

    def _want(self) -> None:
        if self.host.controller.transport.recorded or (self.ASKS and not self.path):
            return
        self.ask()

    def ask(self) -> None:
        """Ask for what isn't known about the present token."""
        self.answers.want(*self.question())

    def drop(self) -> None:
        """Nobody waits for what is computed any more."""
        self.answers.drop()

    def _tabs(self) -> Content:
        """The views of a token, the present one reversed."""
        family = self.host.family(self.TOOL)
        room = self.size.width - 2
        long = sum(len(tool.title) + len(tool.keys[0].shown) + 4 for tool in family) <= room
        parts = []
        for tool in family:
            name = tool.title if long else tool.keys[0].label
            parts.append(
                Content.styled(
                    f" {tool.keys[0].shown} {name} ", "reverse bold" if tool.id == self.TOOL else ""
                )
            )
        return Content(" ").join(parts)

    def _place(self) -> str:
        """Which token is looked at."""
        if not self.path:
            return "Nothing was read before the first token"
        item = self.path[-1]
        return f"Token {len(self.path)} of the path: {quoted(token_label(item.text, item.raw))} goes through the model"

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        answer = self.answer
        if answer is not None and not self._failed(answer):
            return self.draw(answer, on, width, height)
        return centred(self._instead(on, answer), width, height)

    def _instead(self, on: Canvas, answer: Answer | None) -> list[tuple[str, Style]]:
        """Why there is nothing to show, and what to do."""
        plain, muted, bad = on.rich_style, on.ink("muted"), on.ink("bad")
        if answer is not None and (facts := self.facts_of(answer)) is not None and facts.failed:
            return failed_check(on, facts)
        if self.ASKS and not self.path:
            return [
                ("Nothing went through the model before the first token.", plain),
                ("Press → for the next one.", muted),
            ]
        failure = self._failure
        if failure is not None:
            return [(visible(failure.message), bad), (visible(failure.hint), muted)]
        if self.host.controller.transport.recorded:
            return [
                ("This view of this token was not recorded.", plain),
                ("Press esc, then G: the session goes on live, and the model can be looked into.", muted),
            ]
        return [("The token runs again, on a copy of the KV cache.", plain)]

    @property
    def _failure(self) -> Failure | None:
        return self.answers.failure(self.question()[0]) if self.path or not self.ASKS else None

    def _failed(self, answer: Answer) -> bool:
        facts = self.facts_of(answer)
        return facts is not None and facts.failed is not None

    def _trouble(self, answer: Answer | None) -> bool:
        return self._failure is not None or (answer is not None and self._failed(answer))

    def situation(self) -> str:
        """The checks of what is shown, and what it cost; or what is going on."""
        return self.told(self.answers, self.question()[0])

    def told(self, answers: Answers[Any], key: Hashable) -> str:
        """The checks of an answer and what it cost; or what is going on about it.

        Args:
            answers: That it is among.
            key: What it is about.
        """
        answer, asks = answers.get(key), self.path or not self.ASKS
        facts = self.facts_of(answer) if answer is not None and asks else None
        if facts is not None:
            checks = ", ".join(f"{CHECKS[check.name]} ({check.error:.1g})" for check in facts.checks)
            times = facts.ms / facts.step_ms if facts.step_ms else 0.0
            cost = f"{milliseconds(facts.ms)}, {times:.1f} plain steps"
            state = "Checked" if facts.failed is None else "Not shown"
            return f"{state}: {visible(checks)} · {cost}" + (
                f" · {visible(facts.note)}" if facts.note else ""
            )
        if asks and (failure := answers.failure(key)) is not None:
            return visible(failure.message)
        if (now := answers.progress) is not None and answers.waiting:
            filled = bar(now.done / now.total if now.total else 0.0, 16).replace(" ", "·")
            return f"{filled} {visible(now.detail)} {now.done}/{now.total}. esc stops it"
        return "Computing" if answers.waiting else ""

    # ---- keys ---------------------------------------------------------------------------------------

    def action_walk(self, by: int) -> None:
        """Look at another token."""
        self.timeline.walk(by)
        self._moved()

    def action_first(self) -> None:
        """Look at the first token: the second slot, since nothing went through the model before the first."""
        self.timeline.select(1)
        self._moved()

    def action_last(self) -> None:
        """Look at the last token."""
        self.timeline.select(None)
        self._moved()

    def _moved(self) -> None:
        self.host.changed()
        self.changed()

    def action_scroll(self, by: int) -> None:
        """Scroll the view."""
        self.view.move(by)

    def action_turn(self, by: int) -> None:
        """Show a neighbouring view of the same token."""
        family = self.host.family(self.TOOL)
        at = next(index for index, tool in enumerate(family) if tool.id == self.TOOL)
        self.leave_for(family[(at + by) % len(family)].keys[0].id)

    def leave_for(self, key: str) -> None:
        """Close this screen, and do what a key of the main screen does."""
        self.drop()
        self.dismiss(None)
        self.host.press(key)

    def on_key(self, event: events.Key) -> None:
        """The keys that open the other views on the main screen do so from here, too."""
        opener = next(
            (
                tool.keys[0]
                for tool in self.host.family(self.TOOL)
                if event.character in tool.keys[0].keys.split(",")
            ),
            None,
        )
        if opener is not None and event.character is not None:
            event.stop()
            self.leave_for(opener.id)

    def action_leave(self) -> None:
        """Go back; what is computed stops."""
        self.drop()
        self.dismiss(None)
        self.host.changed()


def failed_check(on: Canvas, facts: CaptureFacts) -> list[tuple[str, Style]]:
    """Which check failed, and what that means, instead of what it is about.

    Args:
        on: Has the inks.
        facts: With a check that failed.
    """
    failed, bad = facts.failed, on.ink("bad")
    assert failed is not None
    where = f" ({visible(failed.where)})" if failed.where else ""
    return [
        (
            f"The check “{CHECKS[failed.name]}” failed for the architecture {visible(facts.family)}{where}:",
            bad,
        ),
        (f"off by {failed.error:.2g}, where {failed.bound:.2g} is allowed.", bad),
        ("So this view is not shown. The others may hold: press tab.", on.ink("muted")),
    ]
