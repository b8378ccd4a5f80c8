"""The base of the views that look inside the model at one token: its text, the answer, its checks, and their keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, getters, on
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message

from engine.protocol import (
    Candidate,
    CaptureFacts,
    Check,
    Command,
    Failure,
    HoldInterventions,
    LockstepOpened,
    ModelFacts,
    Record,
    Scope,
)
from inspector.blocks.blocks import Drawn
from inspector.blocks.paint import ENDLESS, Painter
from inspector.display import (
    first_fitting,
    token_lines,
    truncate_words,
    visible,
)
from inspector.keys import bare_key_for, key_for, with_keys
from inspector.main.tool import OfferedHeat
from inspector.main.view import View
from inspector.scales import counted, step_of
from inspector.session.requests import Replies
from inspector.state.inside import CHECKS, checked, interventions_words
from inspector.state.second_model import SecondModelSoFar
from inspector.state.session_tree import Item, numbered, quoted_label
from inspector.state.timeline import Phase
from inspector.widgets.actions import HELP, Action, ActionTable, both, note, screen_table
from inspector.widgets.canvas import (
    Canvas,
    PageView,
    PanelCanvas,
    Row,
    centred,
    paragraph,
)
from inspector.widgets.charts import progress_bar
from inspector.widgets.token_lines import Wrap, WrappedLine, heat_style, link_of

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

Answer = TypeVar("Answer", bound=Record)
Asked = Replies[Answer]
"""Asks the engine about a model, and keeps its answers."""
Notice = list[tuple[str, Style]]
LOW, TALL = 16, 30
"""Rows of the view from which there is room for one line of text, and for two."""
TITLED = 6
"""Cells of a frame's line beside its title."""
TOLD = 0.01
"""The smallest share with a number under its token."""
GAP = "⋮ "
"""Mark of a line if the lines before it are left out."""


# ---- sentences: checks and costs, and why there is nothing to show ------------------------------


def label_at(path: Sequence[Item], place: int = -1) -> str:
    """The token of a path in quotation marks."""
    return quoted_label(path[place])


def predicting(selected: Item | None) -> str:
    """The purpose of a forward pass: to predict the selected token, or the next one; printable."""
    return f"Predicting {label_at([selected]) if selected is not None else 'the next token'}"


def attention_from(head: str, path: Sequence[Item], selected: Item | None, width: int) -> str:
    """The title of a head's attention weights over a path: from which token, to predict which.

    Args:
        head: Name of the head.
        path: Ends with the token that the head looks from.
        selected: See `place_of`.
        width: Cells.
    """
    label = label_at(path)
    long = f"{predicting(selected)}: {head} looks from {label} (%)"
    return first_fitting(width, long, f"{head}: attention from {label} (%)", f"{head} from {label} (%)")


def place_of(path: Sequence[Item], selected: Item | None, width: int) -> str:
    """The longest sentence that fits about the token whose forward pass is shown.

    Args:
        path: Ends with that token.
        selected: The token that is predicted from it; None for the next one.
        width: Cells.
    """
    if not path:
        return "The model reads nothing before the first token"
    label, what = label_at(path), predicting(selected)
    long = f"{what}: the model reads {label}"
    return first_fitting(width, f"{long}, {numbered(path[-1])}", long, f"{what} from {label}", label)


def under_way(answers: Asked[Any]) -> str:
    """The progress of the awaited answer; empty without one."""
    if (waiting := answers.waiting) is None:
        return ""
    if waiting.request is None or (now := waiting.request.progress) is None:
        return "Computing"
    return f"{progress_bar(now.done, now.total)} {visible(now.detail)} {now.done}/{now.total}. esc stops it"


def told(answers: Asked[Any], key: Hashable, width: int) -> str:
    """The checks of an answer and its costs; or the error instead of it, or its progress.

    Args:
        answers: The answers to look in.
        key: Key of the answer.
        width: Cells of the line.
    """
    if (answer := answers.get(key)) is not None:
        return checked(answer.facts, width)
    failure = answers.failure(key)
    return visible(failure.message) if failure is not None else under_way(answers)


def noticed(notice: Notice, middle: bool = False) -> Drawn:
    """A notice as a block of a document: as lines, or in the middle of the space of what it replaces."""

    def draw(painter: Painter, width: int, height: int) -> list[Row]:
        if middle:
            return centred(notice, width, height)
        return [row for text, style in notice for row in paragraph(style, width, text)]

    return Drawn(draw, (len(notice), ENDLESS if middle else len(notice)))


def why_missing(on: Canvas, facts: CaptureFacts | None, failure: Failure | None) -> Notice:
    """Why an answer isn't shown: the check that it failed, or the error instead of it; empty without either."""
    bad, muted = on.ink("bad"), on.ink("muted")
    if facts is not None and (failed := facts.failed) is not None:
        where = f" ({visible(failed.where)})" if failed.where else ""
        name, family = CHECKS.get(failed.name, failed.name), visible(facts.family)
        return [
            (f"The check “{name}” failed for the architecture {family}{where}:", bad),
            (f"off by {failed.error:.2g}, where {failed.bound:.2g} is allowed.", bad),
            ("So this view is not shown. Other views may be right: tab goes on to the next.", muted),
        ]
    if failure is not None:
        return [(visible(failure.message), bad), (visible(failure.hint), muted)]
    return []


def instead_of(on: Canvas, answers: Asked[Any], key: Hashable, waiting: str) -> Notice:
    """Why an answer isn't shown; empty if it can be.

    Args:
        on: The canvas with the styles.
        answers: The answers to look in.
        key: Key of the answer.
        waiting: The sentence until there is one; printable.
    """
    answer = answers.get(key)
    said = why_missing(on, answer.facts if answer is not None else None, answers.failure(key))
    return said if said or answer is not None else [(waiting, on.ink("muted"))]


def not_recorded(on: Canvas) -> Notice:
    """The notice that a recording doesn't contain the answer."""
    return [
        ("This view of this token was not recorded.", on.rich_style),
        (
            f"Press esc, then {key_for('go_live')} to continue live, and open this view again.",
            on.ink("muted"),
        ),
    ]


# ---- the text up to a token ---------------------------------------------------------------------


class TokenHeat(PanelCanvas):
    """Tokens colored by their shares, which are also written under the text if there is room."""

    class Clicked(Message):
        """A token was clicked.

        Args:
            place: Place in the path, from 0.
        """

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    _items: Sequence[Item] = ()
    _shares: Sequence[float] = ()
    _marked: Collection[int] = ()
    _named: str = ""
    _signed: bool = False
    """True if a share is below 0."""

    def put(
        self, title: str, items: Sequence[Item], shares: Sequence[float] = (), marked: Collection[int] = ()
    ) -> None:
        """Show tokens.

        Args:
            title: Printable.
            items: The path up to the token whose forward pass is shown, which is drawn as the cursor.
            shares: A number from -1 to 1 for each token, with other colours below 0; empty for no colours.
            marked: Places of tokens to draw in reverse; their lines are kept first if there is no room for all.
        """
        self._items, self._named, self._marked = items, title, marked
        self._shares = (*shares, *repeat(0.0, len(items) - len(shares))) if shares else ()
        self._signed = min(shares, default=0.0) < 0
        self.title(Content(title), Content(counted(len(items), "token")) if items else None)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if self.frameless:
            return [[Segment(truncate_words(self._named, width), self.ink("muted"))]]
        numbered = bool(self._shares) and height >= 2
        room = max(1, height // (2 if numbered else 1))
        lines = self.wrapped(self._items, width, numbered)
        if cut := len(lines) > room:
            lines = self.wrapped(self._items, width - len(GAP), numbered)
        rows: list[Row] = []
        before, muted, base = -1, self.ink("muted"), self.ink("base")
        dark, colours = self.dark, self.colorful
        for place in self._places(lines, room) if cut else range(len(lines)):
            row = [Segment(GAP if place != before + 1 else " " * len(GAP), muted)] if cut else []
            under = [Segment(" " * len(GAP))] if cut else []
            for piece in lines[place].pieces:
                link, share = link_of(piece), self._shares[piece.slot] if self._shares else 0.0
                step = step_of(abs(share)) * (-1 if share < 0 else 1)
                style = base + heat_style(step, dark, colours, self._signed)
                if piece.slot == len(self._items) - 1:
                    style = self.ink("cursor")
                elif piece.slot in self._marked:
                    style += Style(reverse=True)
                blank = " " * (piece.cells - cell_len(piece.text))
                row += [Segment(piece.text, style + link), Segment(blank, base)]
                under.append(Segment(f"{piece.under:<{piece.cells}}"[: piece.cells], muted + link))
            rows += [row, under] if numbered else [row]
            before = place
        return rows

    def on_click(self, event: events.Click) -> None:
        """Say which token was clicked."""
        if isinstance(place := event.style.meta.get("slot"), int):
            self.post_message(self.Clicked(place))

    def _places(self, lines: Sequence[WrappedLine], room: int) -> Sequence[int]:
        """The lines on show: the last, with the token that is looked at, and the others with the largest shares."""

        def hottest(place: int) -> tuple[float, int]:
            slots = [piece.slot for piece in lines[place].pieces]
            largest = max((abs(self._shares[slot]) for slot in slots), default=0.0) if self._shares else 0.0
            return largest + any(slot in self._marked for slot in slots), place

        last = len(lines) - 1
        return sorted([*sorted(range(last), key=hottest)[-(room - 1) :], last] if room > 1 else [last])

    def wrapped(self, items: Sequence[Item], width: int, numbered: bool = True) -> Sequence[WrappedLine]:
        """Tokens in lines, without empty ones.

        Args:
            items: The path.
            width: Cells of a row.
            numbered: Whether each line has a row for numbers under it.
        """
        wrap = Wrap(width - 1, numbered)
        shares = chain(self._shares if numbered else (), repeat(0.0))
        for item, share in zip(items, shares, strict=False):
            number = f"{share * 100:.0f}".replace("-", "−") if abs(share) >= TOLD else ""
            wrap.append(token_lines(item.text, item.raw), "", number)
        return [line for line in wrap.lines if line.pieces]


# ---- keys ---------------------------------------------------------------------------------------

SCROLLS = note("pageup pagedown", "Scroll.")


def page(id: str, hint: str | Callable[[Any], str], worth: int = 7) -> Action:
    """The key of another page of the view, or of another view of the tab, for the line of keys.

    Args:
        id: Id of the action of the main screen.
        hint: Its word in the line of keys.
        worth: Its worth in that line.
    """
    return Action(id, run=lambda own: own.host.press(id), hint=hint, worth=worth, place=80, listed=False)


def walking(help: str = "Look at another token.") -> tuple[Action, ...]:
    """The actions that move along the text, as on the main screen.

    Args:
        help: The sentence about them.
    """
    return (
        *both(("earlier", "later"), ("Previous token", "Next token"), help, lambda own, by: own.walk(by), hint="token",
              worth=8, place=81),
        Action("first", "First token", help, lambda own: own.look_at(1)),
        Action("tip", "Last token", help, lambda own: own.look_at(None)),
    )  # fmt: skip


def look_table(
    title: str,
    *actions: Action,
    text: str = "",
    leave: str = "Go back; a computation stops.",
    shared: bool = True,
    told: bool = True,
) -> ActionTable:
    """The table of a view that looks inside the model.

    Args:
        title: Title of its section in the help.
        actions: The view's own actions.
        text: Further text for the help.
        leave: The sentence about the key that leaves.
        shared: Whether the section has rows for the actions that all these views have.
        told: Whether the help has a section for it.
    """
    return screen_table(
        title,
        *actions,
        Action("other_model", "Other model",
               "While there is a second model: look at the same token in the other one of the two.",
               lambda own: own.other_model(), hint=attrgetter("other_word"), worth=7, place=83, listed=shared),
        replace(HELP, worth=3),
        Action("inside.leave", "Back", leave, lambda own: own.back(), hint="back", worth=9, place=93, listed=shared),
        text=text, told=told,
    )  # fmt: skip


# ---- the view -----------------------------------------------------------------------------------


class InsideView(View, Generic[Answer]):
    """Shows the forward pass that predicted the selected token. The subclasses differ in what they ask and draw.

    Args:
        host: The main screen.
        answers: Asks the engine, and keeps its answers.
    """

    AUTO_FOCUS = "#inside-view"
    HEATS: ClassVar[bool] = False
    """True if the text above the view has numbers and colours of its own, which take more rows."""
    ASKS: ClassVar[bool] = True
    """True if the view is about a token; one of the whole model has no text above it."""
    OF_BOTH: ClassVar[bool] = True
    """True if the view can show the second model, too; one that changes a forward pass shows the session's alone."""
    text = getters.query_one("#inside-text", TokenHeat)
    view = getters.query_one("#inside-view", PageView)

    def __init__(self, host: MainScreen, answers: Asked[Answer]) -> None:
        super().__init__(host)
        self.answers = answers
        self.node = self.timeline.before
        """The token whose forward pass is shown: the candidates on the main screen come from it. `look` sets this and
        the attributes below."""
        self.path: Sequence[Item] = ()
        """The tokens up to that one."""
        self.looked: LockstepOpened | None = None
        """The second model, if that is the one that is looked at."""
        self.candidates: Sequence[Candidate] = ()
        """Predictions after the token by the model that is looked at; empty if they aren't known."""
        self.wanted: tuple[Hashable, Command] | None = None
        """The question about the token; None if there is none."""
        self.answer: Answer | None = None
        self.failure: Failure | None = None
        """Why there is no answer."""
        self.checks: CaptureFacts | None = None
        """Checks and times of the answer, if it has any."""
        self.failed: Check | None = None
        """The check that the answer failed."""
        self.other_word = ""
        """The hint of the key that switches between two models; empty if this view can't."""

    # ---- what a view provides -------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command] | None:
        """The key of the question about the present token, and the command; None if nothing can be asked."""
        raise NotImplementedError

    def draw(self, answer: Answer, on: Canvas, width: int, height: int) -> list[Row]:
        """The view of an answer whose checks passed."""
        raise NotImplementedError

    def heat(self, answer: Answer) -> tuple[str, Sequence[float], Collection[int]]:
        """The meaning of the text's colours, a share for each token (empty for no colours), and the places of the
        marked tokens."""
        return "", (), ()

    def newest(self) -> tuple[Answer, Sequence[Item]] | None:
        """The answer about the selected token, or else the latest one, and the path to its token."""
        read: Any = self.answers.newest(self.timeline.before)
        tree = self.timeline.tree
        return (read, tree.path(read.node)) if read is not None and read.node in tree.nodes else None

    def heat_of_text(self) -> OfferedHeat | None:
        newest = self.newest()
        return self.offered(*newest) if newest is not None else None

    def offered(self, answer: Answer, path: Sequence[Item]) -> OfferedHeat | None:
        """The token shares of an answer about the last token of a path: see `View.heat_of_text`."""

    def heading(self, answer: Answer | None) -> str:
        """The title of the view's frame; printable."""
        raise NotImplementedError

    def text_rows(self, needed: int) -> int:
        """Rows of the text above the view, its frame included; 0 for none.

        Args:
            needed: Rows of the whole text with its numbers; 0 if it has no colours and numbers of its own.
        """
        if self.area.height < LOW or not self.ASKS:
            return 0
        if self.area.width < self.app.size.width:
            return 1  # the same text is beside it: the line only names the token
        return 3 if self.area.height < TALL else 4

    def continue_under(self, command: HoldInterventions, scope: Scope = "token") -> None:
        """Leave, and let the session continue under interventions, from its last token on.

        Args:
            command: The command with the interventions.
            scope: The scope that they were tried with.
        """
        host, live = self.host, self.live
        self.leave()
        if not live:
            host.answer(
                f"A recording computes nothing: {key_for('go_live')} continues live, then {key_for(self.TOOL)} and "
                f"{bare_key_for(f'{self.TOOL}.hold')} keep it"
            )
            return
        host.controller.timeline.select(None)
        host.controller.client.do(command)
        host.answer(
            "It holds from this token on: the KV of the context stays as it was" if scope == "context" else ""
        )

    @property
    def intervened(self) -> bool:
        """True if the token that is looked at was computed under interventions."""
        return self.ASKS and bool(self.path) and self.timeline.tree.under(self.path[-1]) is not None

    def _not_intervened(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The rows of advice at a token that was computed under interventions."""
        units = self.timeline.tree.under(self.path[-1]) or ()
        words = interventions_words(units) or "interventions that were not recorded"
        tool = "steering" if any(each.direction is not None for each in units) else "interventions"
        here = any(each.id.endswith(".release") for each in self.ACTIONS.actions)
        before = "" if here else f"{key_for(tool)}, then "
        ends = f"{before}{bare_key_for(f'{tool}.release')} ends the change, and goes to the token where it begins."
        notice = [
            (f"This token was computed with {words}.", on.rich_style),
            ("This view is of the model's own tokens: ← goes to those before this branch.", on.ink("muted")),
            *([(ends, on.ink("muted"))] if self.live else []),
        ]
        return centred(notice, width, height)

    def release(self) -> None:
        """Return to the model's own token at which the branch under interventions begins."""
        if self.timeline.under:
            self.continue_under(HoldInterventions(self.timeline.tip))

    # ---- what is looked at ------------------------------------------------------------------------

    def look(self) -> None:
        """Update the attributes about the token that is looked at; called first for each redraw, key and click."""
        timeline = self.timeline
        second = timeline.of(SecondModelSoFar)
        self.node, self.path = timeline.before, timeline.items[: timeline.slot]
        self.looked = second.looked if self.OF_BOTH else None
        self.candidates = timeline.candidates
        if self.looked is not None:
            span = second.at(timeline.items, timeline.slot)
            self.candidates = span.other_candidates if span is not None else ()
        self.wanted = self.question() if self.path or not self.ASKS else None
        if self.wanted is None:
            self.found(None, None)
        else:
            self.found(self.answers.get(self.wanted[0]), self.answers.failure(self.wanted[0]))

    def found(self, answer: Answer | None, failure: Failure | None) -> None:
        """Set the answer with its checks, or the reason why there is none."""
        self.answer, self.failure = answer, failure
        facts = getattr(answer, "facts", None)
        self.checks = facts if isinstance(facts, CaptureFacts) else None
        self.failed = self.checks.failed if self.checks is not None else None

    @property
    def live(self) -> bool:
        """True if there is an engine: a recording computes nothing."""
        return not self.host.controller.transport.recorded

    @property
    def facts(self) -> ModelFacts | None:
        """Facts about the model that is looked at."""
        return self.looked.facts if self.looked is not None else self.timeline.facts

    # ---- showing ----------------------------------------------------------------------------------

    def body(self) -> ComposeResult:
        yield TokenHeat(id="inside-text")
        yield PageView(id="inside-view")

    def show(self) -> None:
        """Show everything, now; ask for what isn't known."""
        self.look()
        running = self.timeline.phase is Phase.RUNNING  # asked once the run rests, so as not to delay it
        if self.live and not running and not self.intervened and (self.path or not self.ASKS):
            self.ask()
        needed = 2 * len(self.text.wrapped(self.path, self.area.width - 4)) + 2 if self.HEATS else 0
        if rows := self.text_rows(needed):
            self.text.styles.height = rows
        self.text.display = rows > 0
        self.text.set_class(rows == 1, "-line")
        answer = self.answer if self.failed is None else None
        meaning, shares, marked = self.heat(answer) if answer is not None else ("", (), ())
        place = place_of(self.path, self.timeline.selected, self.area.width - TITLED)
        self.text.put(meaning or place, self.path, shares, marked)
        second = self.timeline.of(SecondModelSoFar)
        model = second.prefix(self.timeline.facts, self.looked is not None)
        self.other_word = second.other_word if self.OF_BOTH else ""
        draw = self._not_intervened if self.intervened else self._draw
        self.view.put(visible(model + self.heading(self.answer)), draw)
        self.write(failed=self.failed is not None or self.failure is not None)
        self.host.colour()

    def ask(self) -> None:
        """Ask for what isn't known about the present token."""
        if self.wanted is not None:
            self.answers.want(*self.wanted)

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        if self.answer is not None and self.failed is None:
            return self.draw(self.answer, on, width, height)
        return centred(self._instead(on), width, height)

    def _instead(self, on: Canvas) -> Notice:
        """The reason why there is nothing to show, with advice."""
        if self.ASKS and not self.path:
            return [
                ("The model reads nothing before the first token: there is nothing to show.", on.rich_style),
                ("Press → for the next token.", on.ink("muted")),
            ]
        if said := why_missing(on, self.checks, self.failure):
            return said
        if not self.live:
            return not_recorded(on)
        return [("The model computes this token again, on a copy of the KV cache.", on.rich_style)]

    def situation(self) -> str:
        """The checks and costs of the answer; or the error instead of it, or its progress."""
        if self.checks is not None:
            return checked(self.checks, self.app.size.width - 2)
        return visible(self.failure.message) if self.failure is not None else under_way(self.answers)

    # ---- keys ---------------------------------------------------------------------------------------

    async def perform(self, action: Action) -> None:
        """Do an action on the token that is looked at now."""
        self.look()
        await super().perform(action)

    def walk(self, by: int) -> None:
        """Look at another token."""
        self.timeline.walk(by)
        self.host.changed()

    def look_at(self, slot: int | None) -> None:
        """Look at the token in a slot of the timeline; None for the last token."""
        self.timeline.select(slot)
        self.host.changed()

    @on(TokenHeat.Clicked)
    def _token_clicked(self, message: TokenHeat.Clicked) -> None:
        """Choose a token that was clicked."""
        self.look()
        self.choose_token(message.place)
        self.changed()

    def choose_token(self, place: int) -> None:
        """Look at a token that was clicked: the text then ends with it.

        Args:
            place: Place in the path, from 0.
        """
        self.look_at(place + 1)

    def other_model(self) -> None:
        """Switch between the session's model and the second one."""
        if not self.OF_BOTH:
            self.say(with_keys("Changes here apply only to the session's model. {next_view} shows another"))
        elif self.timeline.of(SecondModelSoFar).switch():
            self.drop()
            self.host.changed()
        else:
            self.say(with_keys("No second model is open: {second_model} opens one"))

    def leave(self) -> None:
        """Leave; a computation under way stops."""
        self.drop()
        self.dismiss()

    def drop(self) -> None:
        """Stop a computation under way."""
        self.answers.drop()
