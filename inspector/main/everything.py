"""Everything that the finder can find over the screen on top, and how it is done from there.

Actions of that screen leave it open; for anything else, the dialogs and views over the main screen are left first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from textual.app import App

from engine.protocol import HookPart, named_part
from inspector.display import visible
from inspector.keys import FIXED, TABS, key_for
from inspector.main.actions import SCREEN_TOOL
from inspector.main.dialogs.finder import FinderDialog
from inspector.main.finder import Findable, Index
from inspector.main.key_table import available
from inspector.main.tool import Tool, found
from inspector.main.view import View
from inspector.widgets.actions import Action, ActionTable
from inspector.widgets.dialog import Dialog

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

FIRST = (
    "step", "run", "look_ahead", "draws", "find", "why", "sampling", "modules", "attention", "lens", "attribution",
    "scores", "interventions", "patching", "tree", "compare", "beams", "second_model", "batch", "profile", "race",
    "compare_kv", "speculation", "grammar", "prompt", "open", "sessions", "save_as", "export", "lessons",
    "help",
)  # fmt: skip
"""Ids of the actions that are offered before anything was typed, in this order."""
MOVES = FIXED - {"enter"}
"""Keys that move about in a view: the finder does not list them."""
SCREEN = "Screen"
SHOWS: Mapping[HookPart, str] = {
    "queries": "attention", "keys": "attention", "values": "attention", "rope": "attention", "scores": "attention",
    "pattern": "attention", "head": "attention", "attention": "attribution", "mlp": "attribution",
    "layer": "attribution", "stream before": "lens", "stream after": "lens", "experts": "experts",
    "recurrence": "experts",
}  # fmt: skip
"""Ids of the actions that show a part of the model that was named; the map of the modules shows other parts."""


class Everything:
    """All that can be found over the screen on top.

    Args:
        main: The main screen.
    """

    def __init__(self, main: MainScreen) -> None:
        self._main = main
        self._top = main.top

    def find(self, typed: str = "") -> None:
        """Show the finder.

        Args:
            typed: Initial text of its field.
        """
        things = list(self._things())
        first = sorted(things, key=self._place)
        dialog = FinderDialog(Index(things, self._parts), first, self._on_disk, self._possible, typed)
        self._main.open(dialog, self._chosen)

    def _place(self, thing: Findable) -> int:
        """The rank of a thing before anything was typed: actions of the screen on top come first."""
        if thing.stays and thing.keys:
            return -1
        return FIRST.index(thing.id) if thing.id in FIRST else len(FIRST)

    def _possible(self, thing: Findable) -> bool:
        """True if it can be done now."""
        return not thing.action or available(self._main.table[thing.action], self._main.controller)

    # ---- what there is ----------------------------------------------------------------------

    def _things(self) -> Iterator[Findable]:
        main = self._main
        here = list(self._here(self._top)) if isinstance(self._top, Dialog | View) else []
        yield from here
        told = {each.id for each in here} | {"finder"}
        for action in main.table.actions:
            if action.id not in told and action.label:
                yield _findable(action, TABS[action.tabs[0]] if action.tabs else "Everywhere", action.way)
        for tool in main.table.tools:
            yield from main.own(tool.id).findable()
        for tool in main.table.tools:
            yield from self._inside(tool)
        yield from beyond_keys(self._main.app)

    def _here(self, top: Dialog[Any] | View) -> Iterator[Findable]:
        """The actions of the dialog or view on top that have a key."""
        where = self._main.table.titled(top.TOOL) if isinstance(top, View) else top.HEADING
        for table in top.tables:
            for action in table.actions if table.when is None or table.when(top) else ():
                if action.label and action.run and top.offers(action) and action.id != "finder":
                    yield _findable(action, where, action.shown, partial(top.perform, action), stays=True)

    def _inside(self, tool: Tool) -> Iterator[Findable]:
        """The actions of the views that a tool opens, without those that only move about there."""
        views = {found(each.opens): each for each in reversed(tool.opening)}
        for view, opening in reversed(views.items()):
            table = view.ACTIONS
            if isinstance(self._top, View) and table in self._top.tables:
                continue
            for action in table.actions[:-1]:
                own = action.id not in self._main.table and not MOVES & {*action.names[:1]}
                if own and action.label and action.run:
                    keys = f"{opening.shown} {action.shown}"
                    run = partial(self._open_and_do, opening, table, action)
                    yield _findable(action, opening.label, keys, run, opening.id)

    def _parts(self, query: str) -> Iterator[Findable]:
        """The view that shows a part of the model, if the query names one: `L6 h1`, `blocks.5.attn.hook_z[0]`."""
        try:
            named = named_part(query)
        except ValueError:
            return
        id, table = SHOWS.get(named.hook.part, "modules"), self._main.table
        if id not in table:
            return
        view = table[id]
        where = "" if named.layer is None else f" of layer {named.layer + 1}"
        where = where if named.head is None else f" of head {named.head + 1}{where}"
        help = f"{named.hook.what[0].upper()}{named.hook.what[1:]}{where}, counted from 1."
        place = named.place if id in SHOWS.values() else ()
        run = partial(self._open_at, id, place)
        yield Findable("part", query.strip(), help, view.label, view.way, action=id, run=run)

    def _on_disk(self) -> Iterator[Findable]:
        """The things that have to be read from the disk; called in a thread."""
        for actions in self._main.actions.values():
            yield from actions.on_disk()

    # ---- doing it -------------------------------------------------------------------------------

    def _chosen(self, thing: Findable | None) -> None:
        if thing is None:
            return
        if not thing.stays:
            # an action of the screen around a view leaves the view open
            beside = thing.action and self._main.table.tool(thing.action).id == SCREEN_TOOL.id
            kinds = Dialog if beside else Dialog | View
            while isinstance(top := self._main.top, kinds):
                top.leave()
                if self._main.top is top:  # it didn't close, for example to ask something first
                    break
        self._main.call_later(self._do, thing)

    async def _do(self, thing: Findable) -> None:
        if not thing.stays and thing.action:
            await self._main.do(thing.action, thing.run)
        elif thing.run is not None and (done := thing.run()) is not None:
            await done

    async def _open_at(self, id: str, place: Sequence[int]) -> None:
        if place:
            self._main.point(id, *place)
        await self._main.do(id)

    async def _open_and_do(self, opening: Action, table: ActionTable, action: Action) -> None:
        await self._main.do(opening.id)
        top = self._main.open_view
        if top is not None and table in top.tables and top.offers(action):
            top.after_paint(partial(top.perform, action))


def beyond_keys(app: App[Any]) -> Iterator[Findable]:
    """The things without a key: a picture of the screen, and the themes."""
    yield Findable("screenshot", "Screenshot", "Save a picture of the screen as SVG.", SCREEN,
                   synonyms="picture, image, capture, svg, print screen", stays=True,
                   run=partial(save_picture, app))  # fmt: skip
    for name in app.available_themes:
        yield Findable(f"theme {name}", f"Theme {name}", "Show the screen in these colours.", SCREEN,
                       synonyms="colours, color scheme, appearance", stays=True, minor=True,
                       run=partial(setattr, app, "theme", name))  # fmt: skip


def _findable(
    action: Action, where: str, keys: str, run: Any = None, opening: str = "", stays: bool = False
) -> Findable:
    needs = "" if stays else opening or action.id
    return Findable(
        action.id, action.label, action.told, where, keys, action.synonyms, needs, run, stays, bool(opening)
    )


def save_picture(app: App[Any]) -> None:
    """Save a picture of the screen as SVG, in the folder for downloads or else in the current one, and say where."""
    downloads = platformdirs.user_downloads_path()
    try:
        path = app.save_screenshot(path=str(downloads if downloads.is_dir() else Path.cwd()))
    except OSError as error:
        text = f"{error.strerror or error}. {key_for('export')} writes a picture where you choose."
        app.notify(visible(text), title="No picture was saved", severity="error", markup=False)
    else:
        app.notify(visible(path), title="Saved a picture of the screen", markup=False)
