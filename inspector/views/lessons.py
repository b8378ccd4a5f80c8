"""Lessons: the list of all, the running lesson with its card and its keys, and presenting to a class."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import StringIO
from string import ascii_letters
from typing import TYPE_CHECKING, Any, ClassVar, cast

from msgspec.structs import replace
from rich.console import Console
from rich.segment import Segment
from textual import getters, on
from textual.app import ComposeResult
from textual.content import Content
from textual.renderables.digits import Digits
from textual.widget import Widget

from engine.errors import PathError
from engine.protocol import MoveTo, Prefill
from engine.settings import Settings, for_model
from inspector.display import first_fitting, pad, truncate, truncate_start, visible
from inspector.keys import bare_key_for, key_for, names_of
from inspector.lessons.catalogue import LessonProgress, Listed, Progress, shipped
from inspector.lessons.courses import Course, CoursePlace, shipped_courses
from inspector.lessons.lesson import MOST_OPTIONS, PLAYED, LessonPhase
from inspector.main.finder import Findable
from inspector.main.narration import Narration
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.text import BORDERS, OFF, TextPanel
from inspector.main.tool import ToolActions
from inspector.main.view import View
from inspector.scales import clock, counted
from inspector.session.playback import Opening, checked
from inspector.state.timeline import TO_PREDICT, Phase
from inspector.widgets.actions import (
    Action,
    ActionTable,
    Hint,
    Needs,
    back,
    dialog_table,
    hints_of,
    list_table,
    picking,
    screen_table,
)
from inspector.widgets.canvas import Row, paragraph
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeInput
from inspector.widgets.inks import panel_css
from inspector.widgets.lists import LinesDialog, PickList, SafeOptionList

if TYPE_CHECKING:
    from inspector.lessons.play import LessonPlay
    from inspector.main.screen import MainScreen

SHOWN = (LessonPhase.ASKING, LessonPhase.ACTING, LessonPhase.REVEALED)
"""Phases in which the beat's panel is shown."""
SPOKEN_OF: Mapping[str, tuple[str, int]] = {
    "attention": ("head", 2),
    "lens": ("lens", 1),
    "interventions": ("without", 2),
    "steering": ("steered", 1),
    "training": ("learned", 1),
}
"""The function of lessons with arguments that select what a view shows, and the number of these, by tool."""
KEPT = (LessonPhase.PREPARING, LessonPhase.REVEALED)
"""Phases that save the progress when they begin: a learner who leaves continues with the current beat."""
UNTIL = (LessonPhase.PREPARING, LessonPhase.ASKING)
"""Phases before the prediction is made."""
TELLS = Needs.MODEL | Needs.DISTRIBUTION | Needs.ENGINE
"""Needs of keys that may show or generate what the learner has yet to predict."""
HARMLESS = frozenset(
    ("earlier", "later", "ten_earlier", "ten_later", "first", "tip", "jump", "above", "below", "why", "tree")
)
"""Keys with such a need that show only what is there already: each panel hides what the learner has yet to predict."""
UNANSWERED = (*UNTIL, LessonPhase.ACTING)
"""Phases in which a beat's answer depends on the state of the session."""
MOVING = frozenset(
    (
        "step", "run", "take_back", "choose", "take_ahead", "own_text", "reroll", "undo", "redo", "previous_branch",
        "next_branch", "prompt", "sampling", "grammar",
    )
)  # fmt: skip
"""Keys that change the path or the sampler."""
TASKS: Mapping[str, tuple[str, ...]] = {
    "run": ("run", "step"),
    "back": ("take_back",),
    "start": ("take_back",),
    "type": ("own_text",),
    "set": ("sampling",),
}
"""The keys that do an action of a card, by the action's name, if the key's name is a different one."""
Keys = dict[str, Callable[[], object]]
"""The effects of keys, by the ids of their actions."""


class LessonActions(ToolActions):
    """Begins lessons, and shows them beside the panels.

    Args:
        host: The main screen.
        first: The lesson to begin with, as soon as its model or its recording is open; None for no lesson.
        present: Whether to present it.
        beat: The beat to begin with, from 0; None to continue the lesson, or for the first beat when presenting.
        course: The lesson's place in the course in which it is taken; None for a lesson alone.
    """

    def __init__(
        self,
        host: MainScreen,
        first: Listed | None = None,
        present: bool = False,
        beat: int | None = None,
        course: CoursePlace | None = None,
    ) -> None:
        super().__init__(host)
        begin = 0 if present and beat is None else beat
        self._wanted: tuple[Listed, int | None] | None = (first, begin) if first is not None else None
        """A lesson that waits for its model or its recording, and the beat to begin with."""
        self.awake = first is not None
        self.play: LessonPlay | None = None
        self._listed: Listed | None = None
        """The lesson under way, or the last one."""
        self.course = course
        """The running lesson's place in the course in which it is taken; None for a lesson alone."""
        self.exploring = False
        self.hinted = False
        """True if the learner asked for the hint."""
        self._before: tuple[Settings, int, Prefill, int | None, int] | None = None
        """Settings, tip, prompt, selected slot and number of changes of the session as the lesson found it."""
        self._opening: Opening | None = None
        """The recording that was on show before that of the lesson, and its place; None for none."""
        self._asked = False
        """True if the last key was the first of two that leave."""
        self._progress = Progress()
        self.presenting = Presenting(self)
        self._present = present

    # ---- the lesson under way ---------------------------------------------------------------

    def show(self) -> None:
        """Continue the lesson as far as it can."""
        if self.play is not None and self.play.stage.recorded != self._recorded:
            self._restart(self.play)  # the recording was left for its model
        if self._wanted is not None and self._ready(self._wanted[0]):
            (listed, beat), self._wanted = self._wanted, None
            self._start(listed, beat)
        elif self._wanted is not None and self.host.narrator is not self:
            self.changed()
        if self.play is not None and not (self.exploring and self.play.phase in UNANSWERED):
            slot = self.timeline.slot
            self.play.tick()
            if self.timeline.slot != slot:  # the lesson went to the path's end: the panels show another token
                self.host.changed()

    def _ready(self, listed: Listed) -> bool:
        """True if the lesson's recording is open, or its model is loaded and idle."""
        if self._recorded:
            return self.host.playback is not None and self.host.playback.path == listed.trace
        loaded = self.timeline.facts is not None and self.controller.setup.load.model == listed.lesson.model
        return loaded and not self._under_way

    @property
    def _under_way(self) -> bool:
        """True while a model or a recording is being opened, or the engine works."""
        loading = self.controller.opening or self.timeline.phase is Phase.LOADING
        return loading or bool(self.controller.client.outstanding)

    @property
    def _recorded(self) -> bool:
        return self.controller.transport.recorded

    def begin(self, listed: Listed, beat: int | None = None, course: CoursePlace | None = None) -> None:
        """Begin a lesson, once its model or its recording is open.

        Args:
            listed: The lesson.
            beat: The beat to begin with, from 0; None to continue a lesson that was left.
            course: Its place in the course in which it is taken; None for a lesson alone.
        """
        before, self._opening, first = self._opening, None, not self.awake
        self.leave()
        self._wanted, self.course, self.awake = (listed, beat), course, True
        setup, playback = self.controller.setup, self.host.playback
        if playback is not None and (replay := playback.replay) is not None:
            place = None if replay.player.at_end else replay.player.position
            self._opening = replace(replay.opening, play=False, place=place) if first else before
            if playback.path != listed.trace:
                playback.open(Opening(checked(listed.trace), play=True))
        elif setup.load.model != listed.lesson.model:
            setup.open(for_model(setup.load, listed.lesson.model))
        self.host.changed()

    def _start(self, listed: Listed, beat: int | None) -> None:
        from inspector.lessons.play import LessonPlay  # slow to import
        from inspector.lessons.stages import LiveStage, RecordedStage

        known = self._progress.read().get(listed.lesson.id, LessonProgress())
        setup = self.controller.setup
        changes = self.controller.history.count()
        self._before = setup.settings, self.timeline.tip, setup.prompt, self.timeline.slot, changes
        player = self.host.playback.player if self.host.playback is not None else None
        self._listed, lesson = listed, listed.lesson
        stage = RecordedStage(lesson, player) if player is not None else LiveStage(lesson, self.controller)
        self.play = LessonPlay(lesson, stage, self.controller, self._moved_on)
        begin = known.beat if beat is None else beat
        if beat is None and begin:
            self.play.know(known, begin)
            self.host.answer(f"The lesson continues at card {begin + 1}; {key_for('lesson.back')} goes back")
        self.exploring = False
        self.host.to_main()
        self.host.go_to("candidates")
        self.changed()
        self.play.begin(begin)
        if self._present:
            self._present = False
            self.present()

    def _restart(self, play: LessonPlay) -> None:
        """Begin the card again in a session with the lesson's own model."""
        if self._listed is not None:
            self.begin(self._listed, play.beat_number, self.course)

    def leave(self) -> None:
        """End the lesson: the session returns to where the lesson found it, and the lesson's nodes stay in the tree."""
        self._wanted, self.course, self.awake = None, None, False
        if self.play is None:
            return
        self.play.close()
        self.play = None
        self._draw_borders(False)
        self.changed()
        self.host.answer(f"You left the lesson. {key_for('lessons')} lists all of them")
        if self._recorded and self._opening is not None and self.host.playback is not None:
            self.host.playback.open(self._opening)
        if self._recorded or self._before is None:
            return
        settings, tip, prompt, slot, changes = self._before
        client, setup = self.controller.client, self.controller.setup
        client.leave()
        self.controller.history.put_back(changes, settings, tip)
        if settings != setup.settings:
            setup.configure(settings)
        if tip in self.timeline.tree.nodes:
            setup.prompt = prompt
            client.request(MoveTo(tip), lambda _: self.timeline.select(slot))

    def _moved_on(self) -> None:
        """Show, after a change of the lesson, the panel and the token that the beat is about."""
        if (play := self.play) is None:
            return
        if play.phase is LessonPhase.PREPARING:
            if not self._recorded and self.controller.setup.load.model != play.lesson.model:
                self._restart(play)
                return
            self.hinted = False
            self.host.to_main()  # an open view would show what is to be predicted, and so would look-ahead
            if (ahead := self.host.panel(CandidatesPanel).ahead) is not None and ahead.on:
                ahead.switch()
        presented = self._present or self.presenting.on
        if play.phase is LessonPhase.ENDED or (play.phase in KEPT and not presented):
            try:
                self._progress.keep(play.lesson.id, play.progress)
            except PathError as error:  # no reason to stop teaching
                self.host.answer(visible(f"Progress isn't kept: {error}"))
        self._show_subject()
        if play.phase in SHOWN and not self.exploring:
            self._look(play)
        self.changed()

    def changed(self) -> None:
        """Show the card again."""
        self.presenting.follow()
        tells = self.play is not None or self.presenting.on or self._wanted is not None
        self.host.narrate(self if tells else None)

    def _show_subject(self) -> None:
        """Show the panel that the beat is about, or its view once there is something in it."""
        if (play := self.play) is None or self.exploring or play.phase not in SHOWN or not play.beat.show:
            return
        show, arrangement = play.beat.show, self.host.arrangement
        if any(each.id == show for each in arrangement.panels):
            self.host.to_main()
            if show != arrangement.current:
                self.host.go_to(show)
            self._draw_borders(any(each.show == arrangement.text for each in play.lesson.beats))
        else:
            if show != self.host.over:
                self.host.to_main()
            if play.phase is LessonPhase.REVEALED:
                self._open_view(play)

    def _open_view(self, play: LessonPlay) -> None:
        """Open the view that a beat is about, if any, at the first thing that the beat reads there: a head or several,
        a layer, a strength, a step of a training."""
        show = play.beat.show
        if not show or any(each.id == show for each in self.host.arrangement.panels):
            return
        function, arguments = SPOKEN_OF.get(show, ("", 1))
        places = (each for each in play.beat.calls(function) if each and len(each) % arguments == 0)
        if (place := next(places, None)) is not None:
            self.host.point(show, *((0, *place) if show == "steering" else place))
        if show != self.host.over:
            self.host.press(show)
        elif place is not None and self.host.open_view is not None:
            self.host.open_view.changed()

    def _draw_borders(self, wanted: bool) -> None:
        """Draw the borders of the tokens while a beat is about the text, unless the user chose another view of it."""
        text = self.host.panel(TextPanel)
        if wanted and text.view == OFF:
            text.view, text.lent = BORDERS, True
        elif not wanted and text.lent:
            text.view, text.lent = OFF, False

    def _look(self, play: LessonPlay) -> None:
        """Select the token that the beat is about: before the reveal only if that gives nothing away."""
        if play.phase is LessonPhase.REVEALED or not (play.beat.hide or play.beat.act):
            self.timeline.select(play.beat.slot(self.timeline))
        elif play.guess is None:
            self.timeline.select(None)

    # ---- narration --------------------------------------------------------------------------

    def narration(self) -> Narration | None:
        """The current card."""
        shown = card(self, self.play) if self.play is not None else None
        shown = self.presenting.narration(shown) if self.presenting.on else shown
        help = (*[PRESENTING_KEYS] * self.presenting.on, *[LESSON_KEYS] * (self.play is not None))
        return replace(shown, keys=frozenset(self._keys()), help=help) if shown is not None else None

    def takes(self, key: str) -> bool:
        """Do what a key means to the lesson; returns False if it means nothing."""
        does, asked = self._keys().get(key), self._asked
        self._asked = False
        if does is None:
            return False
        if does == self.ask_to_leave and asked:
            does = self.presenting.toggle if self.presenting.on else self.leave
        self.host.answer()
        does()
        self.changed()
        return True

    def refuses(self, action: Action) -> str:
        """The reason to refuse a key, as a sentence; empty to accept it.

        Refused are, before the prediction, keys that would show the answer; then keys that would leave the place of
        the actions; and keys that need the session while it is being made ready.
        """
        if self._wanted is not None and self._under_way and action.needs and not action.looks:
            return f"The lesson begins in a moment: {action.shown} works then"
        if (play := self.play) is None or self.exploring or play.problem is not None:
            return ""
        if action.id == "go_live" and not self._recorded:
            now = _situation(play, self.following).partition(". ")[0]
            return f"The lesson is live already. {now}".rstrip()
        if play.phase is LessonPhase.ACTING and play.stage.left and action.id in MOVING:
            name = play.stage.left[0].name
            if action.id in TASKS.get(name, (name,)) and (not self._recorded or name in PLAYED):
                return ""
            keys = visible(play.stage.keys)
            return f"Press {keys}. {action.shown} is locked until then. {EXPLORE.shown} explores freely"
        if not play.options:
            return ""
        tells = action.needs & TELLS or action.id == play.beat.show
        if play.phase not in UNTIL or action.id in HARMLESS or not tells:
            return ""
        return self._waits(action.shown, play)

    def _waits(self, key: str, play: LessonPlay) -> str:
        """A sentence on what to do before a key that would show the answer."""
        explore = f"{EXPLORE.shown} explores freely"
        if self.presenting.on:
            on = key_for("presenting.on")
            return f"The class predicts first: {on} continues, {key} is locked. {explore}"
        return f"Predict first: press {numbers(play)}. {key} is locked until then. {explore}"

    def _keys(self) -> Keys:
        """The current effects of keys, by Textual's names; those of presenting come before those of the lesson."""
        means = self._taken(self.play) if self.play is not None else {}
        means |= self.presenting.keys() if self.presenting.on else {}
        opened, enlarged = self.host.open_view, self.host.arrangement.enlarged and not self.presenting.on
        if opened is not None or self.timeline.phase is Phase.RUNNING or enlarged:  # these go first
            means.pop("lesson.leave", None)
        listing = LESSONS_KEYS.actions if self.host.over == "lessons" else ()
        own = {name for each in listing for name in each.names}  # the list takes these
        return {name: does for id, does in means.items() for name in names_of(id) if name not in own}

    def _taken(self, play: LessonPlay) -> Keys:
        """The effects of keys beside the card."""
        keys: Keys = {
            "lesson.explore": self.explore,
            "lesson.again": self._again,
            "lesson.leave": self.ask_to_leave,
        }
        if self.exploring:
            return keys
        if (card := self.host.card) is not None and card.overflows:
            keys |= {"lesson.read_back": partial(card.page, -1), "lesson.read_on": partial(card.page, 1)}
        keys |= {
            "lesson.back": lambda: play.begin(play.beat_number - 1),
            "lesson.on": lambda: play.begin(play.beat_number + 1),
            "lesson.help": lambda: self._help(play),
        }
        if play.phase in UNTIL:  # afterwards the digits open tabs
            predicts = PREDICTS[: len(play.options)]
            keys |= {each.id: partial(play.predict, at) for at, each in enumerate(predicts)}
        if play.phase is LessonPhase.REVEALED:
            keys["lesson.go_on"] = play.go_on
        elif play.phase is LessonPhase.ENDED:
            keys["lesson.go_on"] = self.to_next
        elif play.phase is LessonPhase.ACTING and play.stage.left:
            verb = play.stage.left[0].verb
            if verb.action:
                keys[verb.action] = play.do_it
            if verb.opens and not self._recorded and key_for(verb.opens) == bare_key_for(verb.opens):
                # the key that begins it is the program's, as its tab is open
                own = {*names_of(verb.opens)}
                keys = {id: does for id, does in keys.items() if own.isdisjoint(names_of(id))}
        return keys

    def to_next(self) -> None:
        """Begin the next lesson of the course; leave the lesson if there is none."""
        if self.following is None:
            self.leave()
        else:
            self.take(self.following)

    def take(self, place: CoursePlace) -> None:
        """Begin a lesson of a course: where it was left, or at its first beat when presenting."""
        self.begin(place.listed, 0 if self.presenting.on else None, place)

    def ask_to_leave(self) -> None:
        """Ask before leaving; at the end of a lesson, leave at once."""
        if self.phase is LessonPhase.ENDED and not self.presenting.on:
            self.leave()
            return
        self._asked, what = True, "end presenting" if self.presenting.on else "leave the lesson"
        self.host.answer(f"Press {key_for('lesson.leave')} once more to {what}. Your session stays as it is")

    def _again(self) -> None:
        """Begin the beat again, also while exploring."""
        self.exploring = False
        if self.play is not None:
            self.play.begin(self.play.beat_number)

    def _help(self, play: LessonPlay) -> None:
        """Show the hint, or do the actions if it is already shown; in other phases, say what to press."""
        if play.phase is not LessonPhase.ACTING:
            asks = play.phase in UNTIL and play.options
            idle = f"Done. {key_for('lesson.go_on')} continues"
            self.host.answer(self._waits(key_for("lesson.help"), play) if asks else idle)
            return
        if self.hint and not self.hinted:
            self.hinted = True
            return
        self._open_view(play)
        play.do_it()

    def present(self) -> None:
        """Begin presenting, with the beat's panel from whichever tab, or end it."""
        self.presenting.toggle()
        if self.presenting.on:
            self._show_subject()

    def explore(self) -> None:
        """Leave the card to look around, or come back to it; after a lesson, list all lessons."""
        if self.over:
            self.host.press("lessons")
            return
        self.exploring = not self.exploring
        if self.play is not None and not self.exploring and self.play.phase in UNANSWERED:
            self.play.put_back()
        self._show_subject()  # a view that was opened may show the answer
        self.changed()

    def findable(self) -> Iterator[Findable]:
        """The entry that leaves the running lesson."""
        if self.play is not None:
            stays = "What it added stays in the tree; the session is where the lesson found it."
            yield Findable("leave lesson", "Leave", f"Leave the lesson. {stays}", "The lesson under way",
                           key_for("lesson.leave"), "leave the lesson, exit, quit, end the lesson, stop the lesson",
                           run=self.leave)  # fmt: skip

    def on_disk(self) -> Iterator[Findable]:
        """The lessons that come with the program."""
        for each in shipped():
            lesson, called = each.lesson, each.lesson.id.replace("-", " ")
            yield Findable(f"lesson {lesson.id}", visible(lesson.title), visible(lesson.about), "Lessons",
                           key_for("lessons"), f"lesson, lesson {each.number}, lesson {called}, learn", "lessons",
                           partial(self.begin, each), minor=True)  # fmt: skip

    # ---- words for the keys of the card -----------------------------------------------------

    @property
    def phase(self) -> LessonPhase | None:
        """The phase of the beat; None if there is no lesson, a problem, or the card was left."""
        play = self.play
        return None if self.exploring or play is None or play.problem is not None else play.phase

    @property
    def hint(self) -> str:
        """The hint of the card; none in a recording, where the key itself does the task."""
        return self.play.beat.hint if self.play is not None and not self._recorded else ""

    @property
    def over(self) -> bool:
        """True if the lesson has ended, or can't continue with this card."""
        problem = self.play is not None and self.play.problem is not None
        return not self.exploring and (problem or self.phase is LessonPhase.ENDED)

    @property
    def following(self) -> CoursePlace | None:
        """The next lesson of the course; None if there is none."""
        return self.course.following if self.course is not None else None


# ---- the card: its text in each phase, and its keys ---------------------------------------------


def _continues(own: Any) -> str:
    if own.phase is LessonPhase.ENDED:
        return "next lesson" if own.following is not None else "end"
    return "next" if own.phase is LessonPhase.REVEALED else ""


_BEATS, _READ = "Go to the previous or the next card.", "Scroll a card that is longer than the screen."


def _predicts(place: int) -> Action:
    """The action that predicts one of the options."""

    def word(own: Any) -> str:
        return "predict" if own.phase is LessonPhase.ASKING and place < len(own.play.options) else ""

    text = "Predict; until then, keys that would show the answer are locked."
    return Action(f"lesson.predict_{place + 1}", f"Option {place + 1}", text, hint=word, worth=9)


PREDICTS = tuple(map(_predicts, range(MOST_OPTIONS)))

EXPLORE = Action("lesson.explore", "Explore", "Explore freely, and come back; after a lesson, list all lessons.",
                 worth=5, hint=lambda own: "" if own.play is None else "back to the lesson" if own.exploring else
                 "lessons" if own.over else "explore")  # fmt: skip
LESSON_KEYS = ActionTable(
    "In a lesson",
    (
        *PREDICTS,
        Action("lesson.go_on", "Continue", "Continue, once the answer is shown.", worth=9, hint=_continues),
        Action("lesson.help", "Hint", "Show a hint; press it again to have the step done for you.", worth=6,
               hint=lambda own: "" if own.phase is not LessonPhase.ACTING else
               "do it for me" if own.hinted or not own.hint else "hint"),
        Action("lesson.back", "Previous card", _BEATS, worth=2,
               hint=lambda own: "back" if own.play.beat_number and not (own.over or own.exploring) else ""),
        Action("lesson.on", "Next card", _BEATS, worth=3,
               hint=lambda own: "next card" if own.over and own.play.problem is not None else ""),
        Action("lesson.again", "Restart card", "Begin this card again.", worth=1,
               hint=lambda own: "" if own.phase is LessonPhase.ENDED else "restart card"),
        EXPLORE,
        Action("lesson.read_back", "Read back", _READ),
        Action("lesson.read_on", "Read on", _READ),
        Action("lesson.leave", "Leave", "Leave the lesson; it asks once. The session stays as it is.", hint="leave",
               worth=4),
    ),
)  # fmt: skip
"""The keys beside the card, which come before all others; the owner is the `LessonActions`."""


def card(own: LessonActions, play: LessonPlay) -> Narration:
    """The card of the lesson under way."""
    beat = play.beat
    over = play.phase is LessonPhase.ENDED
    title = _title(own, play, over)
    takes = own._keys()  # a list of lessons or a view may take some of them
    hints = tuple(hints_of([[(own, each) for each in LESSON_KEYS.actions if takes.keys() & {*each.names}]]))
    if own.exploring:
        again = key_for("lesson.again")
        words = f"Explore freely. {EXPLORE.shown} goes back to the lesson, {again} restarts this card."
        return Narration(title, Content(words), hints)
    body = Content("\n").join(_lines(own, play))
    hidden = frozenset() if over or play.phase is LessonPhase.REVEALED else frozenset(beat.hide)
    why = TO_PREDICT if play.phase in UNTIL else "hidden until it is done"
    return Narration(title, body, hints, beat.show, hidden, why, situation=_situation(play, own.following))


def _title(own: LessonActions, play: LessonPlay, over: bool) -> str:
    """The longest title of the card that fits; the check of lessons ensures that the last one does."""
    course, lesson, beat = own.course, visible(play.lesson.title), visible(play.beat.title)
    place = f"{course.named} · " if course is not None else ""
    before = f"{visible(course.course.title)}, lesson {place}" if course is not None else ""
    number, of = play.beat_number + 1, len(play.lesson.beats)
    long, short = f"{lesson}, card {number} of {of} · {beat}", f"{lesson} {number}/{of} · {beat}"
    room = own.host.app.size.width - 6 - CLOCK * own.presenting.on
    if over:
        return first_fitting(room, before + lesson, place + lesson)
    shortest = [f"{number}/{of} · {beat}"] * own.presenting.on
    return first_fitting(room, before + long, place + long, place + short, short, *shortest)


def numbers(play: LessonPlay) -> str:
    """The keys that predict, as a sentence names them."""
    return Hint(PREDICTS[: len(play.options)], "", 0).keys


def _situation(play: LessonPlay, following: CoursePlace | None) -> str:
    """The status line: the keys to press now, also while a dialog covers the card."""
    explore, on, all = f"{EXPLORE.shown} explores freely", key_for("lesson.go_on"), key_for("lessons")
    if play.problem is not None:
        return f"{key_for('lesson.on')} goes to the next card, {key_for('lesson.again')} restarts this one"
    match play.phase:
        case LessonPhase.ASKING:
            return f"Predict: press {numbers(play)}. Keys that would show the answer are locked"
        case LessonPhase.ACTING if play.stage.left:
            return f"Press {visible(play.stage.keys)}"
        case LessonPhase.REVEALED:
            last = play.beat_number + 1 == len(play.lesson.beats)
            return f"{on} ends the lesson" if last else f"{on} goes to the next card, {explore}"
        case LessonPhase.ENDED if following is not None:
            return f"{on} begins {visible(following.listed.lesson.title)}, {all} lists all lessons"
        case LessonPhase.ENDED:
            return f"{on} leaves the lesson, {all} lists all of them"
    return ""


def _lines(own: LessonActions, play: LessonPlay) -> Iterator[Content]:
    if play.problem is not None:
        yield Content.styled(visible(str(play.problem)), "$text-error")
        yield Content(
            f"{key_for('lesson.again')} restarts this card: the lesson goes back to where it begins."
        )
        return
    options = Content("   ").join(_option(play, place) for place in range(len(play.options)))
    match play.phase:
        case LessonPhase.PREPARING:
            left = play.stage.pending
            first = f": {counted(left, 'task')} of the cards before this one" if left else ""
            yield Content.styled(f"Getting ready{first}", "$ink-muted")
        case LessonPhase.ENDED:
            yield from _ended(play, own.course)
        case LessonPhase.REVEALED:
            yield from [options] if play.options else ()
            yield from map(Content, play.card.why)
        case _:
            yield from map(Content, play.card.text)
            if play.card.question:
                yield Content.styled(play.card.question, "bold")
            yield from [options] if play.options else ()
            if play.phase is LessonPhase.ACTING and play.stage.left:
                keys = Content(f"Press {visible(play.stage.keys)}.")
                yield Content.styled("▶ ", "bold $text-warning") + keys
                if play.stage.missed:
                    yield Content.styled(visible(play.stage.missed), "$text-warning")
            elif play.phase is LessonPhase.ACTING:
                yield Content.styled("Wait a moment", "$ink-muted")
            if own.hinted:
                yield Content.styled(visible(own.hint), "$ink-muted")


def _option(play: LessonPlay, place: int) -> Content:
    """An option: before the reveal with the guess marked, after it with the right one marked, too."""
    text = visible(play.options[place].text)
    revealed = play.phase is LessonPhase.REVEALED
    if revealed and place == play.card.right:
        return Content.styled(f"✓ {text}", "bold $text-success")
    if place == play.guess:
        return Content.styled(f"✗ {text}", "$text-error") if revealed else Content.styled(f"▸ {text}", "bold")
    if revealed or play.guess is not None:
        return Content.styled(f"  {text}", "$ink-muted")
    return Content.styled(f" {place + 1} ", "bold reverse $primary") + Content(f" {text}")


def _ended(play: LessonPlay, course: CoursePlace | None) -> Iterator[Content]:
    """The lines of a lesson that has ended: its result, and the next lesson of the course."""
    yield from map(Content, filter(None, (visible(play.lesson.about), play.result)))
    if course is None:
        return
    title = visible(course.course.title)
    if course.following is None:
        yield Content(f"{title} is at its end.")
    else:
        after = course.following.listed.lesson
        following = f"next comes {visible(after.title)}, {after.minutes:g} minutes."
        yield Content(f"{title}, {course.named}; {following}")


# ---- presenting to a class ----------------------------------------------------------------------

COLUMNS = 60
"""Columns that are enough for presenting, so that the terminal's font may be twice as large on a projector."""
FONT = f"Enlarge the terminal's font, with ctrl and + in most terminals: {COLUMNS} columns are enough"
LARGE = 80
"""Most columns of a terminal with a font that counts as large."""
CLOCK = 26
"""Cells of the time in the frame of the card."""
HIDES = (frozenset[str](), frozenset({"probabilities"}), frozenset({"candidates"}))
"""The things that the key hides, one after another: nothing, the candidates' numbers, the candidates."""
HIDDEN = ("Everything is shown", "Probabilities are hidden", "Candidates are hidden")
BAR = 20
_ON = {LessonPhase.ASKING: "continue", LessonPhase.ACTING: "do it"}
END_PRESENTING = Action("present", "End", "End it.", hint="end", worth=2, place=7)
"""Its key works in every tab while presenting, as the line of tabs isn't shown."""
PRESENTING_KEYS = ActionTable(
    "While presenting",
    (
        Action("presenting.on", "On", "Continue: scroll a long card, end the votes, do the step, show the next card.",
               worth=9, place=1, hint=lambda own: _ON.get(own.phase) or _continues(own)),
        Action("presenting.back", "Previous card", "Go to the previous card."),
        Action("presenting.votes", "Votes", "Type how many of the class chose each option.", worth=6, place=2,
               hint=lambda own: "votes" if own.phase in SHOWN and own.play.options else ""),
        Action("presenting.hide", "Hide", "Hide the probabilities, then the candidates, then nothing.", hint="hide",
               worth=4, place=6),
        Action("presenting.blank", "Blank", "Blank the screen; again, or {stop}, to show it.", hint="blank", worth=3,
               place=5),
        Action("presenting.jump", "Jump", "Jump to a card.", hint=lambda own: "jump" if own.phase else "", worth=1,
               place=3),
        END_PRESENTING,
        Action("lesson.explore", hint=EXPLORE.hint, worth=1, place=4),
    ),
)  # fmt: skip
"""The keys while something is presented, which come before all others; the owner is the `LessonActions`."""


class Presenting:
    """Presents a lesson, or a session without one, to a class: one panel, the end of the text, block digits, votes, a
    blank screen, timers.

    Args:
        own: Has the lesson under way, if any.
    """

    def __init__(self, own: LessonActions) -> None:
        self._own, self._host = own, own.host
        self.on = False
        self._blank = False
        self._hiding = 0
        """Place in `HIDES`."""
        self._votes: dict[int, tuple[int, ...]] = {}
        """Number of votes for each option, by beat."""
        self._began = self._beat_began = time.monotonic()
        self._beat = -1
        self._play: LessonPlay | None = None
        """The lesson to which the times and votes belong."""
        self._enlarged = False

    def toggle(self) -> None:
        """Begin to present, or end it."""
        arrangement = self._host.arrangement
        if self.on:
            self.on = self._blank = False
            arrangement.enlarged = self._enlarged
        else:
            self.on, self._blank, self._hiding = True, False, 0
            self._began = self._beat_began = time.monotonic()
            self._enlarged, arrangement.enlarged = arrangement.enlarged, True
        self._host.answer()
        self._own.changed()

    # ---- keys -------------------------------------------------------------------------------

    def keys(self) -> Keys:
        """The effects of keys while presenting."""
        play = None if self._own.exploring else self._own.play
        own: Keys = {
            END_PRESENTING.id: self.toggle,
            "lesson.leave": self._own.ask_to_leave,
            "presenting.blank": self._turn_blank,
            "presenting.hide": self._hide,
        }
        if self._blank:  # others than the presenter look for the key that leaves
            own["stop"] = self._turn_blank
        if play is None:
            return own
        if play.options and play.phase is not LessonPhase.ENDED:
            own["presenting.votes"] = lambda: self._ask_votes(play)
        return own | {
            "presenting.on": lambda: self._on(play),
            "presenting.back": lambda: play.begin(play.beat_number - 1),
            "presenting.jump": lambda: self._ask_beat(play),
        }

    def _on(self, play: LessonPlay) -> None:
        """Scroll to the rest of the card, or else end the votes, do the step, show the next beat, or end the lesson."""
        if (card := self._host.card) is not None and card.scroll_offset.y < card.max_scroll_y:
            card.page(1)
        elif play.phase is LessonPhase.ASKING:
            play.skip_question()
        elif play.phase is LessonPhase.ACTING:
            play.do_it()
        elif play.phase is LessonPhase.REVEALED:
            play.go_on()
        elif play.phase is LessonPhase.ENDED:
            self._own.to_next()

    def _turn_blank(self) -> None:
        self._blank = not self._blank

    def _hide(self) -> None:
        """Hide the next of `HIDES`."""
        self._hiding = (self._hiding + 1) % len(HIDES)
        self._host.answer(HIDDEN[self._hiding])

    def _ask_votes(self, play: LessonPlay) -> None:
        beat = play.beat_number

        def take(votes: tuple[int, ...] | None) -> None:
            if votes is not None:
                self._votes[beat] = votes
            self._own.changed()

        self._host.open(VotesDialog([each.text for each in play.options], self._votes.get(beat, ())), take)

    def _ask_beat(self, play: LessonPlay) -> None:
        dialog = BeatsDialog([each.title for each in play.lesson.beats], play.beat_number)
        self._host.open(dialog, lambda beat: play.begin(beat) if beat is not None else None)

    def follow(self) -> None:
        """Restart the time of a beat when it begins, and the time and the votes of a lesson; while there is a card,
        show one panel, even after exploring."""
        if self.on and self._own.phase is not None:
            self._host.arrangement.enlarged = True
        if (play := self._own.play) is not None and play is not self._play:
            self._play, self._beat, self._votes = play, -1, {}
            self._began = time.monotonic()
        if play is not None and play.beat_number != self._beat:
            self._beat, self._beat_began = play.beat_number, time.monotonic()

    # ---- showing ----------------------------------------------------------------------------

    def narration(self, own: Narration | None) -> Narration:
        """The card for a class.

        Args:
            own: The card for a single learner; None for a session without a lesson.
        """
        play, shown_time = self._own.play, None
        if play is None or own is None:
            body = (
                f"The whole class sees one panel. {key_for('tab_1')}-{key_for('tab_7')} open the tabs, "
                f"{key_for('next_view')} shows the next view, {END_PRESENTING.shown} ends it. {FONT}."
            )
            hint = [] if self._own.timeline.completion else [Content(body)]
            sentence = self._sentence(self._host.arrangement.current)
            own = Narration("Presenting", Content("\n").join([*sentence, *hint]), ())
        else:
            below = (*self._votes_lines(play), *self._font(play), *self._notes(play))
            lines = [*self._sentence(play.beat.show), own.body, *below]
            if play.phase is LessonPhase.REVEALED and play.card.number is not None:
                lines.insert(0, Content("\n".join(block_digits(play.card.number.written()))))
            own = replace(own, body=Content("\n").join(lines))
            shown_time = partial(self._time, play)
        return replace(
            own,
            hints=tuple(hints_of([[(self._own, each) for each in PRESENTING_KEYS.actions]])),
            hidden=own.hidden | HIDES[self._hiding],
            hidden_as=own.hidden_as if own.hidden else f"hidden with {key_for('presenting.hide')}",
            projected=True,
            blank=self._blank,
            clock=shown_time,
        )

    def _sentence(self, shown: str) -> list[Content]:
        """The end of the text, unless the text's own panel is shown or the text is hidden."""
        timeline = self._own.timeline
        if shown == self._host.arrangement.text or timeline.conceals("text"):
            return []
        text = visible("".join(item.text for item in timeline.items[-COLUMNS:]))
        return [Content.styled(truncate_start(text, COLUMNS - 4), "bold")] if text else []

    def _font(self, play: LessonPlay) -> list[Content]:
        """The advice on the font, on the first card, unless the font is large already."""
        begins = play.phase in UNTIL and not play.beat_number
        return [Content.styled(FONT, "$ink-muted")] if begins and self._host.app.size.width > LARGE else []

    def _votes_lines(self, play: LessonPlay) -> Iterator[Content]:
        votes = self._votes.get(play.beat_number)
        if not votes or not play.options or play.phase is LessonPhase.ENDED:
            return
        for place, (option, count) in enumerate(zip(play.options, votes, strict=False)):
            right = play.phase is LessonPhase.REVEALED and place == play.card.right
            bar = "█" * math.ceil(BAR * count / max(1, *votes))
            mark = Content.styled("✓ ", "bold $text-success") if right else Content("  ")
            drawn = Content.styled(bar, "$success" if right else "$primary")
            yield mark + drawn + Content(f" {count} {visible(option.text)}")

    def _time(self, play: LessonPlay) -> Content:
        """The times of the beat and of the lesson, colored when late. A beat without its own time has an equal share of
        what the others leave."""
        now, minutes, course = (
            time.monotonic(),
            [beat.minutes for beat in play.lesson.beats],
            self._own.course,
        )
        share = max(0.5, (play.lesson.minutes - sum(minutes)) / max(1, minutes.count(0)))
        whole = play.lesson.minutes if course is None else course.course.parts[course.place].minutes
        times = (
            (now - self._beat_began, 60 * (play.beat.minutes or share)),
            (now - self._began, 60 * whole),
        )
        return Content(" · ").join(
            Content.styled(f"{clock(taken)}/{clock(due)}", "bold $warning" if taken > due else "")
            for taken, due in times
        )

    def _notes(self, play: LessonPlay) -> list[Content]:
        """Notes for the teacher: the course's before and after the lesson, and the beat's once its answer is shown, as
        they may give it away."""
        course = self._own.course
        part = course.course.parts[course.place] if course is not None else None
        if play.phase is LessonPhase.ENDED:
            notes = part.discuss if part is not None else ()
        else:
            notes = part.say if part is not None and not play.beat_number else ()
            notes += play.beat.notes if play.phase is LessonPhase.REVEALED else ()
        return [Content(), *(Content.styled(visible(each), "$ink-muted") for each in notes)] if notes else []


def block_digits(text: str) -> list[str]:
    """A number in characters of three lines, its unit on the last of them."""
    number = text.rstrip(f"{ascii_letters} ")
    console = Console(file=StringIO(), width=COLUMNS, legacy_windows=False, color_system=None)
    lines = console.render_lines(
        Digits(number.replace("−", "-")), console.options.update(width=COLUMNS), pad=False
    )
    rows = ["".join(segment.text for segment in line).rstrip() for line in lines[:3]]
    return [*rows[:-1], rows[-1] + text.removeprefix(number)]


# ---- the list ------------------------------------------------------------------------------------

TITLE = 27
"""Cells of a title in a list."""
ABOUT = 4
"""Most lines of the text about the highlighted row."""
LESSONS_KEYS = screen_table(
    "In the list of lessons",
    *picking("Go through lessons and courses.", "choose"),
    Action("lessons.begin", "Begin", "Begin the lesson, or list those of the course.", lambda own: own.take(),
           hint=lambda own: "open" if isinstance(own.picked, Course) else "begin", worth=9),
    Action("present", hint="present", worth=4),
    back("lessons.leave", "Go back: from a course to all lessons."),
)  # fmt: skip


class LessonList(PickList, can_focus=True):
    """A line for each lesson or course, and below them what the highlighted one is about."""

    DEFAULT_CSS = panel_css("LessonList")

    def __init__(self, own: LessonsView) -> None:
        super().__init__(id="lessons-list")
        self._own = own

    def head(self, width: int) -> Row:
        return [Segment(pad("", 4) + pad("lesson", TITLE) + pad("minutes", 7, True), self.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        sign, title, minutes, far = self._own.facts(place)
        head = f"{sign:>2} {pad(truncate(visible(title), TITLE), TITLE)}{pad(f'{minutes:g}', 7, True)}"
        return [Segment(head), Segment(f"  {far}", self.ink("muted"))]

    def draw(self, width: int, height: int) -> list[Row]:
        about = self._own.about
        lines = [] if height < 2 * ABOUT else paragraph(self.ink("base"), width, visible(about))[:ABOUT]
        rows = super().draw(width, height - len(lines) - bool(lines))
        return [*rows, *[[]] * (height - len(rows) - len(lines)), *lines]


class LessonsView(View):
    """Lists courses and lessons with the user's progress, and begins one."""

    TOOL: ClassVar[str] = "lessons"
    ACTIONS: ClassVar[ActionTable] = LESSONS_KEYS
    AUTO_FOCUS = "#lessons-list"
    PAUSES: ClassVar[bool] = False

    picks = getters.query_one("#lessons-list", LessonList)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.course: Course | None = None
        """The course whose lessons are listed; None for all courses and lessons."""
        self._choices: Sequence[Course | CoursePlace | Listed] = ()
        self._progress: Mapping[str, LessonProgress] = {}

    def body(self) -> ComposeResult:
        yield LessonList(self)

    def begin(self) -> None:
        """List all courses and lessons, with the current progress."""
        self._progress = Progress().read()
        self._list(None)

    def _list(self, course: Course | None) -> None:
        """List the lessons of a course with the next one highlighted, or everything with the previous course
        highlighted."""
        before, self.course = self.course, course
        if course is not None:
            self._choices = [CoursePlace(course, place) for place in range(len(course.parts))]
            at = course.next(self._progress)
        else:
            self._choices = [*shipped_courses(), *shipped()]
            at = 0 if before is None else self._choices.index(before)
        self.picks.lay(len(self._choices), at)
        self.changed()

    @property
    def picked(self) -> Course | CoursePlace | Listed | None:
        """The highlighted course or lesson."""
        return self._choices[self.picks.highlighted] if self._choices else None

    @property
    def about(self) -> str:
        """The subject of the highlighted lesson or course."""
        if (each := self.picked) is None:
            return ""
        if isinstance(each, Course):
            return f"{each.about} With a class: {each.minutes:g} minutes."
        return _listed(each).lesson.about

    def facts(self, place: int) -> tuple[str, str, float, str]:
        """The sign, the title, the minutes and the progress of a row."""
        each = self._choices[place]
        if isinstance(each, Course):
            done, parts = each.done(self._progress), len(each.parts)
            return (
                "≡",
                each.title,
                each.lesson_minutes,
                f"{'✓ ' * (done == parts)}{done}/{parts}" if done else "",
            )
        lesson = _listed(each).lesson
        number = each.place + 1 if isinstance(each, CoursePlace) else each.number
        reached = self._progress.get(lesson.id, LessonProgress())
        far = f"{reached.beat + 1}/{len(lesson.beats)}" if reached.beat else ""
        return str(number), lesson.title, lesson.minutes, f"{'✓' * reached.done} {far}".strip()

    def show(self) -> None:
        title, course = "Lessons", self.course
        if course is not None:
            title = f"{course.title} · {course.done(self._progress)} of {len(course.parts)} done"
        place = f"{self.picks.highlighted + 1} of {self.picks.count}"
        self.picks.title(Content(visible(title)), Content(place))
        self.picks.redraw()
        self.write()

    def situation(self) -> str:
        return "Lessons ask you to predict first. ≡ is a course. Your session stays as it is"

    @on(PickList.RowHighlighted)
    def _moved(self) -> None:
        self.changed()

    @on(PickList.RowPicked)
    def take(self) -> None:
        """Begin the highlighted lesson, or list the lessons of the highlighted course."""
        actions = cast("LessonActions", self.host.own("lessons"))
        match self.picked:
            case Course() as course:
                self._list(course)
            case CoursePlace() as place:
                actions.take(place)
            case Listed() as listed:
                actions.begin(listed)

    def back(self) -> None:
        if self.course is not None:
            self._list(None)
        else:
            super().back()


def _listed(each: CoursePlace | Listed) -> Listed:
    return each.listed if isinstance(each, CoursePlace) else each


# ---- the dialogs --------------------------------------------------------------------------------


class BeatsDialog(LinesDialog[int]):
    """Lists the beats of a lesson; returns the one to jump to, from 0.

    Args:
        titles: Titles of the beats.
        present: The current beat, from 0.
    """

    ACTIONS: ClassVar[ActionTable] = list_table("In the list of cards", "jump")
    HEADING: ClassVar[str] = "Jump to a card"
    LEAVE: ClassVar[str] = "Cancel"

    def __init__(self, titles: Sequence[str], present: int) -> None:
        super().__init__(range(len(titles)), present)
        self._titles = titles

    def line(self, choice: int, width: int) -> Content:
        return Content(f"{choice + 1:>2} {visible(self._titles[choice])}")

    def action_nothing(self, key: str) -> None:
        """Highlight the card with the typed number."""
        if key.isdecimal() and 1 <= int(key) <= len(self._titles):
            self.query_one(SafeOptionList).highlighted = int(key) - 1
        else:
            super().action_nothing(key)


# ---- the votes of a class ---------------------------------------------------------------------


MOST_VOTES = 100_000


def read_votes(text: str, options: int) -> tuple[int, ...] | None:
    """The votes as typed: a whole number for each option, with spaces or commas between; None for anything else."""
    words = text.replace(",", " ").split()
    if len(words) != options or not all(word.isdecimal() and len(word) < 7 for word in words):
        return None
    return tuple(min(MOST_VOTES, int(word)) for word in words)


class VotesDialog(Dialog[tuple[int, ...]]):
    """Asks for the votes of a class.

    Args:
        options: Options of the question.
        votes: Votes that were entered before; empty if there are none.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table("Among the votes", told=False)
    HEADING: ClassVar[str] = "Votes of the class"
    APPLY: ClassVar[str] = "Show"

    def __init__(self, options: Sequence[str], votes: Sequence[int]) -> None:
        super().__init__()
        self._options, self._votes = tuple(options), tuple(votes)
        self._example = " ".join(("12", "5", "1", "3")[: len(options)])

    def body(self) -> Iterable[Widget]:
        yield SafeInput(" ".join(map(str, self._votes)), self._example, id="votes")
        names = ", ".join(visible(each) for each in self._options)
        yield Remark(f"Count hands, then type a number for each, in this order: {names}", id="votes-remark")

    def apply(self) -> None:
        """Take the numbers, or ask for them again."""
        votes = read_votes(self.query_one("#votes", SafeInput).value, len(self._options))
        if votes is None:
            advice = f"Enter {len(self._options)} counts, for example {self._example}."
            self.query_one("#votes-remark", Remark).say(advice, wrong=True)
        else:
            self.dismiss(votes)
