"""The actions of every session, as built-in tools of the main screen: step, branch, look around, set up, the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine import protocol
from engine.memory import Room
from engine.protocol import Command, Ended, Prefill, Record, Run, TakeStep
from engine.settings import LoadSettings
from inspector.config.preferences import VIEWS
from inspector.display import visible
from inspector.keys import TABS, key_for, with_keys
from inspector.main.dialogs import Downloads
from inspector.main.finder import Findable
from inspector.main.help_pages import TOPICS
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import QUESTIONS
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import BORDERS, BYTES, IDS, OFF, TextPanel
from inspector.main.tool import (
    CandidateChosen,
    CandidateClicked,
    SlotSelected,
    Tool,
    ToolActions,
    ToolMessage,
    live,
)
from inspector.recordings.sessions import recent_models
from inspector.scales import INSIDE, METRICS
from inspector.session.prompts import Draft, given, on_show
from inspector.session.requests import Latest
from inspector.state.measured import Measured
from inspector.state.timeline import Phase
from inspector.widgets.actions import Action, ActionTable, Needs, both

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

NO_CANDIDATES = "No candidates were recorded here. End returns to the last token"
VIEW_WORDS = {
    OFF: "Plain text",
    BORDERS: "Token borders. {tokens}: ids",
    IDS: "Token ids. {tokens}: bytes",
    BYTES: "Token bytes. {tokens}: plain text",
}
_CHANGES = (protocol.Choose, protocol.Configure, protocol.HoldInterventions, protocol.Insert, protocol.MoveTo,
            protocol.Reroll, protocol.Take)  # fmt: skip
_MOST_KEPT = 100
"""Number of prompts that are kept in addition to those of the tree."""


def _once_ended(host: MainScreen, act: Callable[[], str], *kinds: type[Command]) -> None:
    """Do something once the steps under way, and a run that is being paused, have ended.

    Args:
        host: Shows the answer to the key.
        act: Does it, and returns the answer to the key.
        kinds: Classes of other commands to wait for.
    """
    client = host.controller.client

    def ended(_: Record | None = None) -> None:
        waits = client.of(Run, TakeStep, *kinds)
        if not any(each.cancelled or not isinstance(each.command, Run) for each in waits):
            client.ignore(ended)
            host.answer(act())

    client.listen(ended, Ended)
    ended()


# ---- stepping and running: the same for a live engine and for a recording -----------------------


class TransportActions(ToolActions):
    """Steps, runs and goes back."""

    def step(self) -> None:
        """Step, walk forward or pause."""
        answer = self.controller.transport.step()
        if answer or not self.controller.client.of(TakeStep):
            self.host.answer(answer)
        else:
            self.host.expect()

    def take_back(self) -> None:
        """Take back the last token; a run pauses first."""
        client = self.controller.client
        client.cancel(*client.of(Run))
        _once_ended(self.host, self.controller.transport.back)

    def pace(self, by: int) -> None:
        """Run faster, or slower."""
        self.host.answer(self.controller.transport.change_pace(by))


TRANSPORT = Tool(
    "transport",
    "Step and run",
    TransportActions,
    actions=(
        Action("step", "Step",
            "Take the token that the sampler picked; at an earlier token, go one forward; during a run, "
            "pause.", TransportActions.step, Needs.DISTRIBUTION, moves="on",
            synonyms="next token, generate one token, one forward, next step", hint="step", worth=12, place=10),
        Action("run", "Run", "Take steps until something stops the run; again to pause.",
            lambda own: own.host.answer(own.controller.transport.run()), Needs.DISTRIBUTION, moves="on",
            synonyms="generate, play, continue, go on, start, pause, resume generation", hint="run",
            worth=11, place=20),
        Action("faster", "Faster",
            "Run at a faster pace: 1, 2, 5, 10, 20 steps a second or as fast as possible; in a prefill, take larger "
            "chunks.", lambda own: own.pace(1), Needs.SESSION,
            synonyms="speed up, pace, run speed, quicker"),
        Action("slower", "Slower", "Run at a slower pace; in a prefill, take smaller chunks.",
            lambda own: own.pace(-1), Needs.SESSION,
            synonyms="slow down, pace, run speed"),
        Action("take_back", "Take back", "Take back the last token of the completion; its branch stays in the tree.",
            TransportActions.take_back, Needs.DISTRIBUTION, moves="back",
            synonyms="step back, go back, delete last token, remove last token, backspace, rewind", hint="take back",
            worth=6, place=55),
    ),
    contexts=(
        ActionTable("While it runs", (
            Action("step", hint="pause", worth=12, place=10),
            Action("slower", run=lambda own: own.pace(-1), hint="pace", worth=11, place=20),
            Action("faster", run=lambda own: own.pace(1), hint="pace", worth=11, place=20),
        ), when=lambda own: own.timeline.phase is Phase.RUNNING, told=False),
        ActionTable("While a recording is shown", (
            Action("step", hint="next", worth=12, place=10), Action("run", hint="play", worth=11, place=20),
            Action("take_back", hint="back", worth=9, place=55),
        ), when=attrgetter("timeline.recorded"), told=False),
    ),
)  # fmt: skip


# ---- branching: other paths through the tree ----------------------------------------------------


class BranchActions(ToolActions):
    """Takes other tokens, and moves between branches."""

    def hear(self, message: ToolMessage) -> None:
        """Highlight the candidate that was clicked, or take it."""
        if isinstance(message, CandidateChosen):
            if self.controller.stepping:
                narrator = self.host.narrator  # a click waits as the key does
                waits = narrator.refuses(self.host.table["choose"]) if narrator is not None else ""
                self.host.answer(waits or self.controller.navigation.choose(message.id))
        elif isinstance(message, CandidateClicked):
            self.host.panel(CandidatesPanel).highlight(message.id)

    def choose(self) -> None:
        """Take the highlighted candidate at the selected token."""
        candidate = self.host.candidate
        chosen = NO_CANDIDATES if candidate is None else self.controller.navigation.choose(candidate.id)
        self.host.answer(chosen)


BRANCHING = Tool(
    "branching",
    "Branch",
    BranchActions,
    actions=(
        Action("above", "Candidate above", "Highlight the candidate above.",
            lambda own: own.host.panel(CandidatesPanel).move(-1), Needs.DISTRIBUTION, hint="candidate",
            worth=3, place=40),
        Action("below", "Candidate below", "Highlight the candidate below.",
            lambda own: own.host.panel(CandidatesPanel).move(1), Needs.DISTRIBUTION, hint="candidate",
            worth=3, place=40),
        Action("choose", "Choose",
            "Take the highlighted candidate at the selected token: the text continues with it, on a new branch.",
            BranchActions.choose, Needs.DISTRIBUTION,
            synonyms="take candidate, pick another token, force token, fork, new branch", hint="choose",
            worth=10, place=50),
        Action("previous_branch", "Previous branch", "Go to the previous branch at this token.",
            lambda own: own.host.answer(own.controller.navigation.branch(-1)), Needs.DISTRIBUTION),
        Action("next_branch", "Next branch", "Go to the next branch at this token.",
            lambda own: own.host.answer(own.controller.navigation.branch(1)), Needs.DISTRIBUTION),
        Action("reroll", "Draw again",
            "Draw again with the next random number: for the next token, or at an earlier step for another "
            "token in its place.",
            lambda own: own.host.answer(own.controller.navigation.reroll()), Needs.DISTRIBUTION | Needs.ENGINE,
            synonyms="resample, redraw, regenerate, draw again, roll again, another sample",
            hint="redraw", worth=5, place=60),
        Action("undo", "Undo",
            "Undo the last deletion, mark, inserted or taken-back token, prompt, draw, hold of interventions, change "
            "of settings or breakpoints; again for the change before.",
            lambda own: _once_ended(own.host, own.controller.history.undo, *_CHANGES), Needs.DISTRIBUTION,
            synonyms="revert, take back a change"),
        Action("redo", "Redo", "Redo the change that was undone last.",
            lambda own: _once_ended(own.host, own.controller.history.redo, *_CHANGES), Needs.DISTRIBUTION,
            synonyms="undo the undo, again"),
        Action("verify", "Verify", "Recompute the path without the cache and compare both.",
            lambda own: own.host.answer(own.controller.navigation.verify()), Needs.DISTRIBUTION | Needs.ENGINE,
            synonyms="check the cache, recompute, correctness, is the cache right", hint="verify", worth=4, place=64),
    ),
)  # fmt: skip


# ---- looking around: the engine is asked for dropped logits at most -----------------------------


class LookActions(ToolActions):
    """Selects tokens, and changes how the text is shown."""

    def walk(self, by: int) -> None:
        """Look at a token further back or ahead."""
        self.timeline.walk(by)
        self.host.answer()

    def hear(self, message: ToolMessage) -> None:
        """Look at the token that was clicked."""
        if isinstance(message, SlotSelected):
            self.timeline.select(message.slot)
            self.host.answer()

    def first(self) -> None:
        """Look at the first token of the completion; from there, at the first of the prompt."""
        self.controller.navigation.first()
        self.host.answer()

    def tip(self) -> None:
        """Follow the last token."""
        self.controller.navigation.tip()
        self.host.answer(self.controller.transport.to_end())

    def jump(self) -> None:
        """Ask for the number of a step, and look at it."""
        from inspector.main.dialogs.field import JumpDialog

        steps = self.controller.navigation.steps_range()
        if steps is None:
            self.host.answer(f"Nothing generated yet. Press {key_for('step')} to take a step")
        else:
            self.host.open(JumpDialog(*steps), self._jump)

    def _jump(self, number: int | None) -> None:
        if number is not None:
            self.controller.navigation.jump(number)
            self.host.answer()

    def metric(self, by: int) -> None:
        """Colour text and steps by another metric. "inside", which only colours the text, is skipped if no view has
        token shares."""
        text, steps, inside = self.host.panel(TextPanel), self.host.panel(StepsPanel), self.host.heat()
        metrics = [name for name in METRICS if name != INSIDE or inside is not None or text.metric == INSIDE]
        metric = metrics[(metrics.index(text.metric) + by) % len(metrics)]
        text.metric = steps.metric = metric
        by_inside = f"inside: {inside.title}" if metric == INSIDE and inside is not None else metric
        self.host.answer("Colour off" if metric == "off" else f"Colour by {by_inside}")

    def view(self) -> None:
        """Show tokens in the text in another way."""
        text = self.host.panel(TextPanel)
        text.lent = False
        text.view = VIEWS[(VIEWS.index(text.view) + 1) % len(VIEWS)]
        self.host.answer(with_keys(VIEW_WORDS[text.view]))


LOOKING = Tool(
    "looking",
    "Look around",
    LookActions,
    actions=(
        Action("earlier", "Earlier", "Look at the previous token.", lambda own: own.walk(-1), Needs.DISTRIBUTION,
            looks=True, hint="walk", worth=7, place=30),
        Action("later", "Later", "Look at the next token.", lambda own: own.walk(1), Needs.DISTRIBUTION,
            looks=True, hint="walk", worth=7, place=30),
        Action("ten_earlier", "Ten earlier", "Look at the token ten places back.", lambda own: own.walk(-10),
            Needs.DISTRIBUTION, looks=True),
        Action("ten_later", "Ten later", "Look at the token ten places ahead.", lambda own: own.walk(10),
            Needs.DISTRIBUTION, looks=True),
        Action("first", "First", "Look at the first token of the completion; again for the first of the prompt.",
            LookActions.first, Needs.DISTRIBUTION, looks=True),
        Action("tip", "Last token", "Return to the last token and follow it; when you watch another session, follow "
            "that one.",
            LookActions.tip, Needs.DISTRIBUTION, looks=True),
        Action("jump", "Jump", "Jump to a step by its number.", LookActions.jump, Needs.DISTRIBUTION, looks=True,
            synonyms="go to step, go to token number", hint="jump", worth=4, place=70),
        Action("recall", "Recompute logits",
            "Compute dropped logits again, if the sampler's stages need them.",
            lambda own: own.host.answer(own.controller.setup.recall()),
            Needs.DISTRIBUTION | Needs.ENGINE, looks=True, hint="recompute", worth=2, place=66),
        Action("metric", "Colour",
            "Colour the text by the next metric: probability, surprisal, entropy, rank, segment; or off.",
            lambda own: own.metric(1), looks=True,
            synonyms="colors, colour the text, heat map, highlight, surprisal, entropy, probability colours, rank, "
            "metric", hint="colour", worth=4,
            place=120),
        Action("metric_back", "Previous colour", "Colour the text by the previous metric.", lambda own: own.metric(-1),
            looks=True),
        Action("tokens", "Tokens",
            "Show each token's borders in the text; again for ids under the tokens, for bytes, and for plain text.",
            LookActions.view, looks=True,
            synonyms="tokenizer, tokenization, token ids, token bytes, token borders, how is the text cut",
            hint="tokens", worth=2, place=121),
    ),
)  # fmt: skip


# ---- setting up: a prompt, a model, and its facts -----------------------------------------------


class SetupActions(ToolActions):
    """Opens the dialogs for a prompt, for a model and for its facts."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.draft = host.controller.setup.prompt
        """The prompt in the dialog when it is opened; replaced by the session's latest one unless it was left unsent.
        """
        self._given = self.draft
        self._typed: list[Prefill] = []
        """The prompts that were sent from the dialog or left in it, oldest first."""
        self._downloads = Downloads(host)
        self._lookup = Latest(host.controller.client)

    def prompt(self) -> None:
        from inspector.main.dialogs.prompt import PromptDialog

        before = [*given(self.timeline), *self._typed]
        if unchanged := self.draft == self._given:
            latest = on_show(self.timeline) or self.controller.setup.prompt
            self.draft = self._given = replace(latest, echo=self.draft.echo)
        dialog = PromptDialog(self.draft, lambda: self.timeline.facts, self._lookup, before, unchanged)
        self.host.open(dialog, self._prompted)

    def _prompted(self, draft: Draft | None) -> None:
        if draft is None:
            return
        self.draft = draft.prompt
        self._typed = [*self._typed[1 - _MOST_KEPT :], draft.prompt]
        if draft.submitted:
            self._given = draft.prompt
            self.controller.setup.give(draft.prompt)
            self.host.answer()

    def on_disk(self) -> Iterator[Findable]:
        """The models on the engine's disk: each opens the model dialog with its facts, where enter opens it."""
        from engine.models_on_disk.models import all_places

        keys = key_for("open")
        for each in all_places(recent=recent_models()):
            about = f"A model on the disk ({visible(each.source)}): shows its facts, and opens it."
            yield Findable(f"model {each.name}", visible(each.name), about, "Open model", keys, "model", "open",
                           partial(self.open, each.name), foreign=True)  # fmt: skip

    def open(self, name: str = "") -> None:
        """Ask for a model; in a replay, for the one to continue live with.

        Args:
            name: Initial text of the field.
        """
        from inspector.main.dialogs.model import ModelDialog

        if why := self.controller.transport.bound:
            self.host.answer(why)
            return
        present = room = None
        if (facts := self.timeline.facts) is not None and not self.timeline.recorded:
            present = Path(facts.path)
            if facts.free_bytes is not None:  # the open model is freed before the next one is loaded
                room = Room(facts.free_bytes + facts.weight_bytes, facts.memory_of)
        load = self.controller.setup.load
        dialog = ModelDialog(load, present, recent_models, self._downloads, room, name)
        self.host.open(dialog, self._open)

    def _open(self, load: LoadSettings | None) -> None:
        if load is not None:
            self.host.answer(self.controller.open_model(load))

    def facts(self) -> None:
        from inspector.main.dialogs.facts import FactsDialog

        if (facts := self.timeline.facts) is not None:
            self.host.open(FactsDialog(facts, self.timeline.of(Measured).loaded))


SETTING_UP = Tool(
    "setup",
    "Set up",
    SetupActions,
    actions=(
        Action("prompt", "Prompt",
            "Give another prompt, raw or through the chat template. The present text stays in the tree.",
            SetupActions.prompt, Needs.ENGINE,
            synonyms="system prompt, chat template, new prompt, question, input, system message",
            hint=live("prompt"), worth=9, place=140),
        Action("open", "Open model", "Open another model: one of those on the disk, a directory or a hub id.",
            lambda own: own.open(), Needs.SESSION,
            synonyms="load model, change model, switch model, download, checkpoint, hub, hugging face",
            hint="open model", worth=4, place=63),
        Action("facts", "Model facts", "Show the facts about the model.", SetupActions.facts, Needs.MODEL,
            synonyms="model info, device, gpu, parameters, model details, config, number of parameters, "
            "context length, about the model", hint="model facts", worth=4, place=62),
    ),
    dialogs=("inspector.main.dialogs:PROMPT_KEYS", "inspector.main.dialogs:MODEL_KEYS"),
)  # fmt: skip


# ---- the screen itself: panels, stop, help and leaving ------------------------------------------


HELP_PAGES = (
    ("concepts", "What is shown", "the screen, its tabs, and what every number means",
     "panels explained, concepts, glossary"),
    ("walks", "Walks",
     "seven walks key by key: the first minute, temperature, the KV cache, a head switched off, a lesson",
     "first steps, getting started, quick start, walkthrough, new here, key by key"),
    *((name, title, about, "explained, what is it") for name, title, about in TOPICS),
)  # fmt: skip
"""Place, title, contents and synonyms of each page of the help except the one of the keys."""


class ScreenActions(ToolActions):
    """Offers the pages of the help; the actions call the host."""

    def findable(self) -> Iterator[Findable]:
        """The pages of the help."""
        keys = key_for("help")
        for page, label, about, synonyms in HELP_PAGES:
            yield Findable(f"help {page.rpartition('/')[2]}", label, f"{about[0].upper()}{about[1:]}.", "Help", keys,
                           synonyms, "help", partial(self.host.help, page=page))  # fmt: skip


def _tab(digit: str, name: str) -> Action:
    return Action(f"tab_{digit}", name, f"Open the tab {name}: {QUESTIONS[digit]}",
                  lambda own: own.host.open_tab(digit), hint="tabs", worth=1, place=150)  # fmt: skip


def _panel(id: str, label: str, help: str, view: str, synonyms: str) -> Action:
    return Action(id, label, help, lambda own: own.host.go_to(id), looks=True, synonyms=synonyms, view=view)


SCREEN_TOOL = Tool("screen", "Screen", ScreenActions, dialogs=("inspector.main.dialogs:HELP_KEYS",), actions=(
    *(_tab(digit, name) for digit, name in TABS.items()),
    _panel("candidates", "Candidates", "Show the candidates: the most probable next tokens.", "candidates",
           "top candidates, probabilities, distribution, next token probabilities, top tokens"),
    _panel("steps", "Steps", "Show the steps: a row for each token that was generated.", "steps",
           "list of tokens, logprobs, log"),
    _panel("kv", "KV cache", "Show the KV cache as it grows.", "cache",
           "kv, memory, ram, cache size, bytes of the cache"),
    _panel("timing", "Time", "Show where the time went.", "time", "timings, tokens per second, tok/s, slow, "
           "milliseconds, time to first token, time per token, ttft, tpot"),
    *both(("next_view", "view_before"), ("Next view", "Previous view"), "Next view in this tab, or the previous one.",
          lambda own, by: own.host.turn_view(by), by=(1, -1), one=True,
          hint=lambda own: own.host.turn_word, worth=4, place=155),
    Action("stop", "Stop",
            "Pause the run, stop the prefill or a look-ahead, leave the enlarged panel, or go back to the candidates; "
            "this also closes notices.",
            lambda own: own.host.stop(), synonyms="cancel, abort, interrupt"),
    Action("alone", "Text and answer",
            "Text and one panel, for projectors; again for all panels.",
            lambda own: own.host.show_alone(), synonyms="only the text, hide panels, hide all panels"),
    Action("left_narrower", "Divider left",
            "Move the divider between the columns to the left.",
            lambda own: own.host.resize(-1, 0)),
    Action("left_wider", "Divider right", "Move the divider between the columns to the right.",
            lambda own: own.host.resize(1, 0)),
    Action("divider_up", "Divider up", "Move the line over the panels below up.",
            lambda own: own.host.resize(0, -1)),
    Action("divider_down", "Divider down", "Move the line over the panels below down.",
            lambda own: own.host.resize(0, 1)),
    Action("usual_room", "Usual layout", "Show all panels again, at their usual sizes.",
            lambda own: own.host.usual_layout(), synonyms="reset layout, show all panels"),
    Action("enlarge", "Enlarge", "Enlarge the current panel to the whole screen, or restore it.",
            lambda own: own.host.enlarge(), synonyms="full screen, zoom, maximize, bigger",
            hint="enlarge", worth=1, place=160),
    Action("theme", "Dark or light", "Switch between the dark and the light theme.",
            lambda own: own.host.switch_theme(),
            synonyms="dark mode, light mode, dark theme, light theme, appearance"),
    Action("finder", "Find anything",
            "Find a tool, a setting, a lesson, a page of the help, a model or a session by a word.",
            lambda own: own.host.find_anything(), synonyms="command palette, search, commands",
            hint="find", worth=12, place=165),
    Action("help", "Help", "Show the keys, and explain what is on show.", lambda own: own.host.help(),
            synonyms="keyboard shortcuts, keys, key bindings, manual, documentation, shortcuts", hint="help",
            worth=13, place=170),
    Action("quit", "Quit", "Leave; ctrl+q does so from everywhere.", lambda own: own.host.app.action_quit(),
            synonyms="exit, leave, close the program, end", hint="quit", worth=8, place=180),
))  # fmt: skip
