"""All keys of a main screen: the tables of the tools as one, what an action waits for, and the help on keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from inspector.keys import key_for, with_keys
from inspector.main.actions import BRANCHING, LOOKING, SETTING_UP, TRANSPORT, screen_tool
from inspector.main.arrangement import PanelPlace, Place
from inspector.main.tool import GROUPS, LOOK, Tool, ToolActions
from inspector.session.controller import Controller
from inspector.session.replay_backend import REFUSED
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.actions import Action, ActionTable, Needs, Offered, refuse_doubles, section

_ASKING = Needs.ENGINE | Needs.SESSION
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
    "`tab` goes from field to field, `{dialog.apply}` applies, `{dialog.leave}` leaves. A prompt that was typed is "
    "kept.",
)
OWN = ActionTable(
    "Keys of your own",
    (),
    "`keys.toml` in the configuration directory, which `inspector keys --help` names, gives actions other keys: "
    '`step = "n"`, `run = ["r", "f5"]`, `"race.again" = "ctrl+n"`. `inspector keys` lists all actions and their keys. '
    "Arrows, `⏎`, `esc`, `tab`, `home`, `end` and those for pages keep their meaning beside yours. The file is read at "
    "the start; what is wrong in it is told then, and the rest holds.",
)
EVERYWHERE = ActionTable(
    "Everywhere",
    (),
    "`{finder}` finds anything by a word, in a dialog `ctrl+p` does: actions, settings, lessons, pages of the help, "
    "models, sessions. `{help}` shows the keys of the screen, `ctrl+q` quits.",
)


PANELS = (
    PanelPlace("text", "Text", Place.TEXT, "Text", "the text", "output, completion, generated text"),
    PanelPlace("candidates", "Next token", Place.UPPER, "Candidates", "the candidates",
               "top candidates, probabilities, distribution, next token probabilities, top tokens"),
    PanelPlace("steps", "Steps", Place.LOWER, "Steps", "the steps", "list of tokens, logprobs, log"),
    PanelPlace("kv", "KV cache", Place.LOWER, "KV cache", "the KV cache", "memory, cache size, bytes of the cache"),
    PanelPlace("timing", "Time", Place.LOWER, "Time", "the timings", "timings, tokens per second, milliseconds"),
)  # fmt: skip
"""The panels of every session, in the order of the number keys; those of the tools follow."""


def key_table(tools: Sequence[Tool]) -> KeyTable:
    """All keys of a main screen with some tools."""
    return KeyTable((TRANSPORT, BRANCHING, LOOKING, SETTING_UP, *tools, screen_tool(panels_with(tools))))


def panels_with(tools: Sequence[Tool]) -> tuple[PanelPlace, ...]:
    """All panels of a main screen with some tools."""
    specs = [(tool.id, tool.panel) for tool in tools if tool.panel is not None]
    return (*PANELS, *(PanelPlace(id, each.name, each.place, each.label, each.called) for id, each in specs))


class KeyTable:
    """The actions of a main screen.

    Args:
        tools: Theirs.

    Raises:
        ValueError: Two of them claim one key, or one id.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tools
        refuse_doubles("of the main screen", ((tool.id, each) for tool in tools for each in tool.actions))
        self._by_id = {each.id: (tool, each) for tool in tools for each in tool.actions}
        self._by_key = {key: each for _, each in self._by_id.values() for key in each.names}

    def __getitem__(self, id: str) -> Action:
        return self._by_id[id][1]

    def __contains__(self, id: str) -> bool:
        return id in self._by_id

    def get(self, id: str, otherwise: Action) -> Action:
        """An action of the main screen's own; another one where there is none of the id."""
        return self._by_id[id][1] if id in self._by_id else otherwise

    @property
    def actions(self) -> list[Action]:
        """In the order of the help: by group, then as the tools come."""
        return sorted((each for _, each in self._by_id.values()), key=lambda each: GROUPS.index(each.group))

    @property
    def tables(self) -> Iterator[ActionTable]:
        """Those of the tools' contexts, screens and dialogs."""
        return (table for tool in self.tools for table in (*tool.contexts, *tool.owners))

    @property
    def places(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Places where actions hold together, as the end of a sentence, and their usual keys by their ids."""
        yield "on the main screen", {each.id: each.usual for each in self.actions}
        for table in self.tables:
            where = f"{table.title[0].lower()}{table.title[1:]}"
            yield where, {each.id: each.usual for each in table.actions if each.id}

    def tool(self, id: str) -> Tool:
        """The tool that an action belongs to."""
        return self._by_id[id][0]

    def titled(self, id: str) -> str:
        """The label of the action that opens a tool.

        Args:
            id: Of the tool.
        """
        return next((tool.actions[0].label for tool in self.tools if tool.id == id), "")

    def at(self, key: str, owners: Mapping[str, ToolActions]) -> Action | None:
        """The action of a key now.

        Args:
            key: As Textual names it.
            owners: The tools' actions.
        """
        found = (
            each for level in self._contexts(owners) for _, each in level if each.run and key in each.names
        )
        return next(found, self._by_key.get(key))

    def now(self, id: str, owners: Mapping[str, ToolActions]) -> tuple[Offered, Offered]:
        """The meaning of an action now, and its usual one, which says what it needs: each with its owner.

        Args:
            id: Of the action.
            owners: The tools' actions.
        """
        usual = (owners[self._by_id[id][0].id], self._by_id[id][1]) if id in self else None
        found = (
            each for level in self._contexts(owners) for each in level if each[1].run and each[1].id == id
        )
        now = next(found, usual)
        if now is None:
            raise KeyError(id)
        return now, usual or now

    def levels(self, owners: Mapping[str, ToolActions]) -> Iterator[list[Offered]]:
        """The actions that hold now, the topmost first: the contexts, and under them the main screen's own."""
        yield from self._contexts(owners)
        yield [(owners[tool.id], each) for tool in self.tools for each in tool.actions]

    def _contexts(self, owners: Mapping[str, ToolActions]) -> Iterator[list[Offered]]:
        for tool in reversed(self.tools):
            for table in tool.contexts:
                if table.when(own := owners[tool.id]):
                    yield [(own, each) for each in table.actions]


# ---- refusals ---------------------------------------------------------------------------------


def available(action: Action, controller: Controller) -> bool:
    """Whether an action is not to be greyed."""
    if action.needs and controller.opening:
        return False
    if Needs.MODEL in action.needs and controller.timeline.facts is None and not action.refusal:
        return False
    return _has_distribution(action, controller)


def refusal(action: Action, controller: Controller, own: ToolActions) -> str:
    """The reason that an action can do nothing now, with advice; printable, empty where it can.

    Args:
        action: That is wanted.
        controller: The session on the screen.
        own: The actions of its tool.
    """
    if action.needs and controller.opening:
        return OPENING
    if controller.away and (action.needs & _ASKING or action.moves) and not controller.transport.recorded:
        return controller.away
    if Needs.ENGINE in action.needs and controller.transport.recorded and not action.recorded(own):
        return controller.transport.bound or with_keys(REFUSED)
    if Needs.MODEL in action.needs and controller.timeline.facts is None:
        return action.refusal or _not_yet(action, controller.timeline)
    return "" if _has_distribution(action, controller) else _not_yet(action, controller.timeline)


def _has_distribution(action: Action, controller: Controller) -> bool:
    """Whether a distribution is on show, where an action needs one."""
    if Needs.DISTRIBUTION not in action.needs or controller.stepping:
        return True
    if controller.timeline.phase is Phase.RETURNING:
        return action.group == LOOK
    return action.moves in controller.transport.ready


def _not_yet(action: Action, timeline: Timeline) -> str:
    """The event that an action waits for, in a sentence."""
    match timeline.phase:
        case Phase.RETURNING:
            return f"{action.shown} works once the session is live. Esc stops going live"
        case _ if timeline.recorded:
            return (
                f"{action.shown} works once the recording shows a token. {key_for('step').capitalize()} "
                "shows what comes next"
            )
        case Phase.LOADING:
            return f"The model is still loading: {action.shown} works once the prompt went through it"
        case Phase.FAILED:
            return f"No model is loaded. Press {key_for('open')} to open one"
        case Phase.EMPTY if timeline.prompts.failure is not None:
            return f"The prompt was refused. Press {key_for('prompt')} to change it"
        case Phase.EMPTY:
            return f"There is no prompt yet. Press {key_for('prompt')} to give one"
        case _:
            return f"The prompt is still going through the model: {action.shown} works after it"


# ---- the help on keys -------------------------------------------------------------------------


def keys_markdown(table: KeyTable, first: Sequence[ActionTable] = ()) -> str:
    """The page of keys: a table for each group, then what the tools have to say of their own.

    `inspector/help/keys.md` is that of the tools that come with the program.

    Args:
        table: All keys.
        first: The tables that it begins with.
    """
    others = (each for each in table.tables if each not in first)
    return _page((*first, *_groups(table), MOUSE, *others, DIALOGS, OWN, EVERYWHERE))


def screen_markdown(tool: Tool, first: Sequence[ActionTable] = ()) -> str:
    """The page of keys of a screen that a tool opens, after the tables that it begins with."""
    return _page((*first, *tool.contexts, *tool.owners, EVERYWHERE))


def _page(tables: Iterable[ActionTable | str]) -> str:
    parts = (each if isinstance(each, str) else "\n".join(section(each)) for each in tables
             if isinstance(each, str) or each.told)  # fmt: skip
    return "\n".join(("# Keys", *parts)) + "\n"


def _groups(table: KeyTable) -> Iterator[str]:
    """The sections of the main screen: a row for each action."""
    for group, actions in groupby(table.actions, key=lambda each: each.group):
        rows = (f"| `{each.shown}` | **{each.label}.** {each.told} |" for each in actions)
        yield "\n".join(("", f"## {group}", "", "| key | what it does |", "|---|---|", *rows))
