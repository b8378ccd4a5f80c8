"""All keys of a main screen: the combined tables of the tools, the reasons for refusals, and the help on keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, repeat

from engine.protocol import Prefill
from inspector.keys import KEYS, TABS, key_for, with_keys
from inspector.main.actions import BRANCHING, LOOKING, SCREEN_TOOL, SETTING_UP, TRANSPORT
from inspector.main.layout import PanelPlace, Place
from inspector.main.tool import Tool, ToolActions
from inspector.session.controller import Controller
from inspector.session.transport import REFUSED
from inspector.state.second_model import SecondModelSoFar
from inspector.state.timeline import Phase
from inspector.widgets.actions import Action, ActionTable, Needs, Offered, refuse_doubles, section

Context = tuple[str, ActionTable]
"""Id of a tool, and a table of its actions that apply for a while."""
OPENING = "A recording is being opened. Wait a moment"
MOUSE = ActionTable(
    "Mouse",
    (),
    "Click a token in the text or in the steps to look at it; click a candidate to highlight it, and once more to "
    "choose it.",
)
DIALOGS = ActionTable(
    "In dialogs",
    (),
    "`tab` goes from field to field, `{dialog.apply}` applies, `{dialog.leave}` leaves. A prompt that you typed is "
    "kept.",
)
OWN = ActionTable(
    "Keys of your own",
    (),
    "`keys.toml` in the configuration directory, which `inspector --help` names, gives actions other keys: "
    '`step = "n"`, `run = ["r", "f5"]`, `"race.again" = "ctrl+n"`. `inspector --keys` lists all actions and their keys.'
    " Arrows, `⏎`, `esc`, `tab`, `home`, `end` and the paging keys always keep their meaning, too. The program reads "
    "the file at the start, reports the entries that are wrong, and applies the rest.",
)
EVERYWHERE = ActionTable(
    "Everywhere",
    (),
    "`{finder}` finds anything by a word, in a dialog `ctrl+p` does: actions, settings, lessons, pages of the help, "
    "models, sessions. `{help}` shows the keys of the screen, `ctrl+q` quits.",
)


PANELS = (
    PanelPlace("text", "Text", Place.TEXT),
    PanelPlace("candidates", "Next token", Place.UPPER, "candidates"),
    PanelPlace("steps", "Steps", Place.STEPS, "steps"),
    PanelPlace("kv", "KV cache", Place.LOWER, "kv"),
    PanelPlace("timing", "Time", Place.LOWER, "timing"),
)
"""The panels of every session; those of the tools follow."""


def key_table(tools: Sequence[Tool]) -> KeyTable:
    """All keys of a main screen with some tools."""
    return KeyTable((TRANSPORT, BRANCHING, LOOKING, SETTING_UP, *tools, SCREEN_TOOL))


def panels_of(tools: Sequence[Tool]) -> Iterator[PanelPlace]:
    for tool in tools:
        if tool.panel is not None:
            yield PanelPlace(tool.id, tool.title, Place.ANSWER, tool.opener)


class KeyTable:
    """The actions of a main screen.

    Args:
        tools: The tools with these actions.

    Raises:
        ValueError: Two actions claim the same key, or the same id.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools: Sequence[Tool] = tuple(tools)
        self.named = {tool.id: tool for tool in tools}
        """The tools by their ids."""
        self.contexts = [(tool.id, table) for tool in reversed(self.tools) for table in tool.contexts]
        """All contexts, the topmost first."""
        self._holding = {
            tab: [(tool.id, each) for tool in tools for each in tool.actions if each.holds(tab)]
            for tab in TABS
        }
        """The actions that apply in a tab, by the tab's key, each with the id of its tool."""
        for tab, name in TABS.items():
            refuse_doubles(f"in the tab {name}", self._holding[tab])
        self._by_id = {each.id: (tool, each) for tool in tools for each in tool.actions}
        self._by_key = {
            tab: {key: each for _, each in held for key in each.names} for tab, held in self._holding.items()
        }
        order = {id: place for place, id in enumerate(KEYS)}
        every = sorted(
            (each for _, each in self._by_id.values()),
            # actions of a tab come before those of all tabs
            key=lambda each: (not each.tabs, order[each.id]),
        )
        self.views: Mapping[str, Sequence[Action]] = {
            tab: [each for each in every if each.view and self._tab(each) == tab] for tab in TABS
        }
        """The actions that show an answer, by the key of their tab, in the order of `inspector.keys`; those that apply
        in every tab come last."""

    def __getitem__(self, id: str) -> Action:
        return self._by_id[id][1]

    def __contains__(self, id: str) -> bool:
        return id in self._by_id

    def get(self, id: str, otherwise: Action) -> Action:
        """An action of the main screen by its id, or a default."""
        return self._by_id[id][1] if id in self._by_id else otherwise

    @property
    def actions(self) -> list[Action]:
        """The actions in the order of the help: those of every tab, then tab by tab, in the order of the tools."""
        return sorted((each for _, each in self._by_id.values()), key=lambda each: each.tabs[:1])

    @property
    def tables(self) -> Iterator[ActionTable]:
        """The tables of the tools' contexts, views and dialogs; imports the views and dialogs."""
        return (table for tool in self.tools for table in (*tool.contexts, *tool.tables))

    def places(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """The places that share a set of keys: the place as the end of a sentence, and the default keys by action
        id."""
        yield "in every tab", {each.id: KEYS[each.id] for each in self.actions if not each.tabs}
        for tab, name in TABS.items():
            yield f"in the tab {name}", {each.id: KEYS[each.id] for each in self.actions if each.holds(tab)}
        for table in self.tables:
            where = f"{table.title[0].lower()}{table.title[1:]}"
            yield where, {each.id: KEYS[each.id] for each in table.actions if each.id}

    def _tab(self, action: Action) -> str:
        """Key of the tab with an action's answer; for an action of every tab, that of its tool's opener."""
        tool = self.tool(action.id)
        return action.tabs or (self[tool.opener].tabs if tool.opener else tool.tab)

    def answers(self, tab: str) -> list[str]:
        """Ids of a tab's actions that show an answer at once, without those that ask first or switch something in a
        panel.

        Args:
            tab: The tab's key.
        """
        panels = {panel.view for panel in (*PANELS, *panels_of(self.tools))}
        views = (each for each in self.views[tab] if not each.view.endswith("…"))
        return [each.id for each in views if each.opens or each.id in panels]

    def on_row(self, id: str) -> str:
        """Id of the action that stands for an answer in the line under the tabs: the one that shows it, or the one of
        the view of which it is a page.

        Args:
            id: Id of the action that shows the answer.
        """
        if id not in self or self[id].view or not self[id].opens:
            return id
        return self[id].page_of or self.tool(id).opener

    def tool(self, id: str) -> Tool:
        """The tool that an action belongs to."""
        return self._by_id[id][0]

    def titled(self, id: str) -> str:
        """The label of the action that opens a tool.

        Args:
            id: Id of the tool.
        """
        return self.named[id].actions[0].label if id in self.named else ""

    def at(self, key: str, tab: str, contexts: Iterable[Context]) -> Action | None:
        """The action of a key now; None if it has none.

        Args:
            key: As Textual names it.
            tab: Key of the open tab.
            contexts: The contexts that apply, the topmost first.
        """
        for _, table in contexts:
            for each in table.actions:
                if each.run and key in each.names:
                    return each
        return self._by_key[tab].get(key)

    def elsewhere(self, key: str) -> str:
        """The use of a key in other tabs, as a sentence: `Press 3 A for Attention`; empty if it does nothing there.

        Args:
            key: As Textual names it.
        """
        found = [f"{each.way} for {each.label}" for each in self.actions if each.tabs and key in each.names]
        return f"Press {', '.join(found)}" if found else ""

    def now(self, id: str, contexts: Iterable[Context]) -> tuple[tuple[str, Action], tuple[str, Action]]:
        """An action as it works now, and as it works outside all contexts, which has its needs; each with the id
        of its tool.

        Args:
            id: Id of the action.
            contexts: The contexts that apply, the topmost first.

        Raises:
            KeyError: There is no such action.
        """
        usual = (self._by_id[id][0].id, self._by_id[id][1]) if id in self._by_id else None
        for tool, table in contexts:
            for each in table.actions:
                if each.run and each.id == id:
                    return (tool, each), usual or (tool, each)
        if usual is None:
            raise KeyError(id)
        return usual, usual

    def levels(
        self, tab: str, contexts: Iterable[Context], owners: Mapping[str, ToolActions]
    ) -> Iterator[Iterable[Offered]]:
        """The actions that apply now, the topmost first: those of the contexts, then those of the main screen.

        Args:
            tab: Key of the open tab.
            contexts: The contexts that apply, the topmost first.
            owners: The tools' actions, by the ids of the tools.
        """
        for tool, table in contexts:
            yield zip(repeat(owners[tool]), table.actions, strict=False)
        yield [(owners[tool], each) for tool, each in self._holding[tab]]


# ---- refusals ---------------------------------------------------------------------------------


def available(action: Action, controller: Controller) -> bool:
    """True if an action isn't greyed."""
    if action.needs and controller.opening:
        return False
    if Needs.MODEL in action.needs and controller.timeline.facts is None and not action.refusal:
        return False
    lacks = action.lacks is not None and lacking(action, controller)
    return not lacks and _has_distribution(action, controller)


def lacking(action: Action, controller: Controller) -> str:
    """Why an action has nothing to show for the current model, with advice; empty if it may have something."""
    if action.lacks is None:
        return ""
    timeline = controller.timeline
    looked = timeline.of(SecondModelSoFar).looked
    facts = timeline.facts if looked is None else looked.facts
    return "" if facts is None or getattr(facts, action.lacks.fact) else with_keys(action.lacks.why)


def refusal(action: Action, controller: Controller, own: ToolActions) -> str:
    """The reason why an action can't be done now, with advice; printable, empty if it can.

    Args:
        action: The action.
        controller: The session on the screen.
        own: The actions of its tool.
    """
    if action.needs and controller.opening:
        return OPENING
    if action.lacks is not None and (lacks := lacking(action, controller)):
        return lacks
    if Needs.ENGINE in action.needs and controller.transport.recorded and not action.recorded(own):
        return controller.transport.bound or with_keys(REFUSED)
    if Needs.MODEL in action.needs and controller.timeline.facts is None:
        return action.refusal or _not_yet(action, controller)
    return "" if _has_distribution(action, controller) else _not_yet(action, controller)


def _has_distribution(action: Action, controller: Controller) -> bool:
    """True if a distribution is on show, or the action needs none."""
    if Needs.DISTRIBUTION not in action.needs or controller.stepping:
        return True
    if controller.timeline.phase is Phase.RETURNING:
        return action.looks
    return action.moves in controller.transport.ready


def _not_yet(action: Action, controller: Controller) -> str:
    """A sentence with the event that an action waits for."""
    timeline = controller.timeline
    match timeline.phase:
        case Phase.RETURNING:
            return f"{action.shown} works once the session is live. Esc stops that"
        case _ if timeline.recorded:
            return (
                f"{action.shown} works once the recording shows a token. {key_for('step').capitalize()} "
                "shows what comes next"
            )
        case Phase.LOADING:
            return f"The model is still loading: {action.shown} works once the prompt has gone through it"
        case Phase.FAILED:
            return f"No model is loaded. Press {key_for('open')} to open one"
        case Phase.EMPTY if timeline.prompts.failure is not None:
            return f"The prompt was refused. Press {key_for('prompt')} to change it"
        case Phase.EMPTY if not controller.client.under_way(Prefill):
            return f"There is no prompt yet. Press {key_for('prompt')} to give one"
        case _:
            return f"The prompt is still going through the model: {action.shown} works after it"


# ---- the help on keys -------------------------------------------------------------------------


def keys_markdown(
    table: KeyTable, first: Sequence[ActionTable] = (), tab: str = "", view: Action | None = None
) -> str:
    """The help page of keys: the answer on show and its keys, a table for each tab, then the tools' other tables.

    `inspector/help/keys.md` is this page for the built-in tools.

    Args:
        table: All keys.
        first: Tables to begin with.
        tab: Key of the open tab, whose table comes before the others; empty for the keys of every tab.
        view: The action of the answer on show, if any.
    """
    if view is not None:
        tool = table.tool(view.id)
        own = (*tool.contexts, *tool.tables) if view.opens or tool.panel is not None else ()
        first = (*first, ActionTable(f"On show: {view.label}", (), view.help), *own)
    others = (each for each in table.tables if each not in first)
    groups = sorted(_groups(table), key=lambda group: group[0] != tab)
    parts = ["# Keys", *_sections(first), *(section for _, section in groups)]
    return "\n".join((*parts, *_sections((MOUSE, *others, DIALOGS, OWN, EVERYWHERE)))) + "\n"


def _sections(tables: Iterable[ActionTable]) -> Iterator[str]:
    return ("\n".join(section(each)) for each in tables if each.told)


def _groups(table: KeyTable) -> Iterator[tuple[str, str]]:
    """The digit and the section of each tab, with a row for each action; first the keys of every tab, without digit."""
    order, way = {id: place for place, id in enumerate(KEYS)}, key_for("next_view")
    ordered = sorted(table.actions, key=lambda each: (each.tabs[:1], order.get(each.id, len(order))))
    for tabs, actions in groupby(ordered, key=lambda each: each.tabs[:1]):
        # an answer without a key is reached with `next_view`
        rows = (f"| `{each.shown or way}` | {_named(each)} |" for each in actions)
        title = f"{tabs} {TABS[tabs]}" if tabs else "In every tab"
        yield tabs, "\n".join(("", f"## {title}", "", "| key | what it does |", "|---|---|", *rows))


def _named(action: Action) -> str:
    """An action's sentence after its name in bold, which is not repeated if the sentence begins with it."""
    name, rest = action.label, action.told[len(action.label) :]
    begins = action.told.casefold().startswith(name.casefold()) and rest[:1] == " "
    return f"**{name}**{rest}" if begins else f"**{name}.** {action.told}"
