"""The tour: the text, then a stop at each tab with its first answer, and the card that goes through them."""

from __future__ import annotations

from engine.frozen import frozen
from inspector.keys import TABS, go_to, with_keys
from inspector.main.tabs import QUESTIONS
from inspector.main.tool import Host, Tool, ToolActions
from inspector.tools.tour import TOUR_KEYS
from inspector.widgets.actions import Action
from inspector.widgets.overlay import Overlay


@frozen
class Stop:
    """One stop."""

    panel: str
    """Id of the panel, or of the tool with a screen of its own, that is shown."""
    text: str
    """`{step}` in it is the key of that action."""
    tab: str = ""
    """Key of the tab that it is about; empty for none."""
    title: str = ""
    """Of one that is about no tab."""

    @property
    def heading(self) -> str:
        """What it is about: the tab and its question."""
        return f"{self.tab} {TABS[self.tab]}: {QUESTIONS[self.tab]}" if self.tab else self.title


STOPS = (
    Stop("text", "The prompt is grey, with a bar at its left; what the model wrote comes after it, and coloured tokens "
         "are those that the model did not expect. ← → walk from token to token, and the six tabs answer questions "
         "about the selected one.",
         title="What has been said?"),
    Stop("candidates", "The most probable tokens, by the model and after the sampler: model entropy and sampler "
         "entropy say how undecided each is, and {step} takes the one at ▶. Also here: {look_ahead} looks ahead, "
         "{draws} draws many times, {find} finds any token, {grammar} constrains the text.", "1"),
    Stop("sampler", "The sampler stage by stage: what each kept and cut, and where the draw fell, which is why this "
         "token came. Also here: {sampling} tries other settings, {sampler.cooler} and {sampler.warmer} another "
         "temperature, and both show at once what the same draw would have picked.", "2"),
    Stop("modules", "The token's way through the model, module by module. Also here: {attention} shows where its heads "
         "look, {lens} what each layer would predict, {attribution} what each part adds, {positions} positions, "
         "{experts} experts.", "3"),
    Stop("tree", "Every branch that was taken; nothing is lost, and {previous_branch} and {next_branch} go from one to "
         "the next. Also here: {compare} compares two, {beams} searches with beams, {interventions} switches parts "
         "off, {lockstep} sets a second model beside this one.", "4"),
    Stop("kv", "Keys and values of every token, kept so that a step computes one token alone. Also here: {timing} "
         "shows the time, {race} is a race without that cache, {profile} takes a step apart, {speculation} takes "
         "several tokens at once.", "5"),
    Stop("learn", "{lessons} begins lessons, which ask before they show, and {present} shows them to a class. Also "
         "here: {export} makes a page of the session, {sessions} goes back to another one, {theme} switches between "
         "dark and light.", "6"),
    Stop("text", "{Step} takes a step, {run} runs, {prompt} gives another prompt. {tab_1} to {tab_6} open the tabs, "
         "{finder} finds anything by a word, and {help} explains what is on show.", title="Now you"),
)  # fmt: skip


class TourActions(ToolActions):
    """Shows a stranger around."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._stops: list[Stop] = []
        self._place = 0
        """Of the present stop."""
        self._before: tuple[str, str, bool, frozenset[str], bool] = (
            "candidates",
            "text",
            False,
            frozenset(),
            False,
        )

    async def begin(self) -> None:
        """Go from stop to stop; everything is as it was afterwards."""
        arrangement = self.host.arrangement
        self._before = (
            arrangement.answer,
            arrangement.current,
            arrangement.alone,
            arrangement.hidden,
            arrangement.enlarged,
        )
        arrangement.enlarged = False
        panels = {panel.id for panel in arrangement.panels}
        self._stops = [stop for stop in STOPS if stop.panel in panels or self.host.has(stop.panel)]
        await self._show(0)

    async def _show(self, place: int) -> None:
        """Show a stop, under a card of its own: a tool's own screen would lie over the one before."""
        from inspector.tools.tour.dialog import TourDialog

        self._place, stop = place, self._stops[place]
        self.host.to_main()
        on_main = any(panel.id == stop.panel for panel in self.host.arrangement.panels)
        if on_main:
            self.host.go_to(stop.panel)
        else:
            await self.host.do(stop.panel)
        if stop.tab:
            go_to(stop.tab)  # as the screen will have it, once it shows that answer
        columns = self.host.area.x
        below = stop.panel == self.host.arrangement.text or not on_main
        where = "-beside" if columns else "-under" if below else "-above"
        title = f"Tour {place + 1}/{len(self._stops)} · {stop.heading}"
        self.host.open(TourDialog(title, with_keys(stop.text), where, columns, self._turn, self._end))

    async def _turn(self, card: Overlay[None], by: int) -> None:
        if self._place + by >= 0:
            card.dismiss()
            if self._place + by < len(self._stops):
                await self._show(self._place + by)
            else:
                self._end()

    def _end(self) -> None:
        self.host.to_main()
        arrangement = self.host.arrangement
        answer, current, alone, arrangement.hidden, arrangement.enlarged = self._before
        self.host.go_to(answer)
        arrangement.look_at(current)
        arrangement.set_alone(alone)
        self.host.answer()


TOUR = Tool(
    "tour",
    "Tour",
    TourActions,
    actions=(
        Action(
            "tour",
            "Tour",
            "Show a newcomer around, with a stop at each tab.",
            TourActions.begin,
            synonyms="guide, introduction, welcome, getting started, show me around",
            view="tour…",
        ),
    ),
    owners=(TOUR_KEYS,),
)
