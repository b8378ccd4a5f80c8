"""Lessons as a tool: the list, the lesson under way, and its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from textual.content import Content

from engine.errors import PathError
from engine.protocol import MoveTo, Prefill
from engine.settings import Settings, for_model
from inspector.display import visible
from inspector.keys import bare_key_for, key_for, names_of
from inspector.lessons.catalogue import END, LessonProgress, Listed, Progress, shipped
from inspector.lessons.lesson import MOST_OPTIONS, LessonPhase
from inspector.main.finder import Findable
from inspector.main.narration import Narration
from inspector.main.panels.text import BORDERS, OFF, TextPanel
from inspector.main.tool import Host, Tool, ToolActions
from inspector.session.playback import Opening, checked
from inspector.tools.lessons.presenter import PRESENTING_KEYS, Keys, Presenting
from inspector.widgets.actions import Action, ActionTable, Hint, Needs, hints_of

if TYPE_CHECKING:
    from inspector.lessons.courses import Course, CoursePlace
    from inspector.lessons.play import LessonPlay
    from inspector.lessons.stages import LessonStage

SHOWN = (LessonPhase.ASKING, LessonPhase.ACTING, LessonPhase.REVEALED)
"""Phases in which the beat's panel is gone to."""
SPOKEN_OF: Mapping[str, tuple[str, int]] = {
    "attention": ("head", 2),
    "lens": ("lens", 1),
    "interventions": ("without", 2),
    "steering": ("steered", 1),
    "training": ("learned", 1),
}
"""By tool: the function of lessons whose numbers, so many, say what is looked at on its screen."""
KEPT = (LessonPhase.PREPARING, LessonPhase.REVEALED, LessonPhase.ENDED)
"""Phases at whose beginning it is kept how far the lesson is: whoever leaves goes on with the beat on show."""
UNTIL = (LessonPhase.PREPARING, LessonPhase.ASKING)
"""Phases before the prediction is locked."""
TELLS = Needs.MODEL | Needs.DISTRIBUTION | Needs.ENGINE
"""What a key may need that shows, or brings about, what is to be predicted."""
HARMLESS = frozenset(
    ("earlier", "later", "ten_earlier", "ten_later", "first", "tip", "jump", "above", "below", "why", "tree")
)
"""Keys that need some of that, and show what is there already: each panel conceals what is to be predicted."""


class LessonActions(ToolActions):
    """Begins lessons, and shows them beside the panels.

    Args:
        host: The main screen.
        first: The lesson to begin with, as soon as its model or its recording is there; None for none.
        present: Whether to present it.
        beat: The one to begin with, from 0; None for where it was left, or for the first one before a class.
        course: The course that the lesson is taken in; None for none.
    """

    def __init__(
        self,
        host: Host,
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
        self.course = course
        """The place of the lesson under way in the course that it is taken in; None for a lesson alone."""
        self.exploring = False
        self._hint = False
        self._before: tuple[Settings, int, Prefill] | None = None
        """Settings, tip and prompt of the session as the lesson found it."""
        self._progress = Progress()
        self.presenting = Presenting(host, self._changed)
        self._present = present

    # ---- the lesson under way ---------------------------------------------------------------

    def show(self) -> None:
        """Everything is shown again: go on with the lesson as far as it can."""
        if self._wanted is not None and self._ready(self._wanted[0]):
            (listed, beat), self._wanted = self._wanted, None
            self._start(listed, beat)
        if self.play is not None:
            slot = self.timeline.slot
            self.play.tick()
            if self.timeline.slot != slot:  # the lesson went to the path's end: the panels show another token
                self.host.changed()

    def _ready(self, listed: Listed) -> bool:
        """True if the recording is on show, or the model loaded and idle."""
        if self._recorded:
            return self.host.playback is not None and self.host.playback.path == listed.trace
        waits = self.controller.opening or bool(self.controller.client.outstanding)
        loaded = self.timeline.facts is not None and self.controller.setup.load.model == listed.lesson.model
        return loaded and not waits

    @property
    def _recorded(self) -> bool:
        return self.controller.transport.recorded

    def begin(self, listed: Listed, beat: int | None = None, course: CoursePlace | None = None) -> None:
        """Begin a lesson, once its model or its recording is there.

        Args:
            listed: The lesson.
            beat: From 0; None for where it was left, if it was.
            course: Its place in the course that it is taken in; None for a lesson alone.
        """
        self.leave()
        self._wanted, self.course, self.awake = (listed, beat), course, True
        setup, playback = self.controller.setup, self.host.playback
        if self._recorded and playback is not None:
            if playback.path != listed.trace:
                playback.open(Opening(checked(listed.trace), play=True))
        elif setup.load.model != listed.lesson.model:
            said = f"The session until now is saved: {key_for('sessions')} goes back to it."
            self.host.announce(said, f"Loading {visible(listed.lesson.model)} for the lesson")
            setup.open(for_model(setup.load, listed.lesson.model))
        self.host.changed()

    def _start(self, listed: Listed, beat: int | None) -> None:
        from inspector.lessons.play import LessonPlay  # with what reads values: for a lesson that begins

        known = self._progress.read().get(listed.lesson.id, LessonProgress())
        setup = self.controller.setup
        self._before = setup.settings, self.timeline.tip, setup.prompt
        self.play = LessonPlay(listed.lesson, self._stage(listed), self.controller, self._moved_on)
        begin = known.beat if beat is None else beat
        if beat is None and begin:
            self.play.know(known, begin)
            self.host.answer(f"The lesson continues at beat {begin + 1}; {key_for('lesson.back')} goes back")
        self.exploring = False
        self._changed()
        self.play.begin(begin)
        if self._present:
            self._present = False
            self.present()

    def _stage(self, listed: Listed) -> LessonStage:
        from inspector.lessons.stages import LiveStage, RecordedStage

        playback = self.host.playback
        if playback is not None and playback.player is not None:
            return RecordedStage(listed.lesson, playback.player)
        return LiveStage(listed.lesson, self.controller)

    def leave(self) -> None:
        """End the lesson: the session is where the lesson found it, and what the lesson added stays in the tree."""
        self._wanted, self.course, self.awake = None, None, False
        if self.play is None:
            return
        self.play.close()
        self.play = None
        self._draw_borders(False)
        self._changed()
        self._return()
        self.host.answer(f"You left the lesson; {key_for('all_lessons')} lists all of them")

    def _return(self) -> None:
        if self._recorded or self._before is None:
            return
        settings, tip, prompt = self._before
        client, setup = self.controller.client, self.controller.setup
        client.leave()
        if settings != setup.settings:
            setup.configure(settings)
        if tip in self.timeline.tree.nodes:
            setup.prompt = prompt
            if tip != self.timeline.tip:
                client.request(MoveTo(tip))

    def _keep(self, play: LessonPlay) -> None:
        """Keep how far it is; a file that can't be written is no reason to stop teaching."""
        try:
            self._progress.keep(play.lesson.id, play.progress)
        except PathError as error:
            self.host.answer(visible(f"Progress isn't kept: {error}"))

    def _moved_on(self) -> None:
        """The lesson went on: show the panel that matters and the token that it speaks of."""
        play = self.play
        if play is None:
            return
        if play.phase is LessonPhase.PREPARING:
            self._hint = False
            self.host.to_main()  # a tool's own screen would show what is to be predicted
        if play.phase in KEPT:
            self._keep(play)
        if play.phase in SHOWN and not self.exploring:
            self._go_to(play.beat.show, play.phase)
            self._look(play)
        self._changed()

    def _changed(self) -> None:
        """Have the card shown again."""
        self.presenting.follow(self.play)
        self.host.narrate(self if self.play is not None or self.presenting.on else None)

    def _go_to(self, panel: str, phase: LessonPhase) -> None:
        """Show the panel that matters; a tool's own screen once there is something on it."""
        if not panel:
            return
        if any(each.id == panel for each in self.host.arrangement.panels):
            self.host.to_main()
            if panel != self.host.arrangement.current:
                self.host.go_to(panel)
            self._draw_borders(panel == self.host.arrangement.text)
        elif panel != self.host.over:
            self.host.to_main()
            if phase is LessonPhase.REVEALED:
                self._open_screen(panel)

    def _open_screen(self, show: str) -> None:
        """Open the tool's own screen that a beat is about, if it is one."""
        if show and show != self.host.over and all(each.id != show for each in self.host.arrangement.panels):
            self._point(show)
            self.host.press(show)

    def _point(self, tool: str) -> None:
        """Choose what the beat speaks of first: a head, a layer, a strength, a step of a training."""
        function, arguments = SPOKEN_OF.get(tool, ("", 0))
        calls = self.play.beat.calls(function) if self.play is not None else []
        if (place := next((each for each in calls if len(each) == arguments), None)) is not None:
            self.host.point(tool, *((0, *place) if tool == "steering" else place))

    def _draw_borders(self, wanted: bool) -> None:
        """Draw the borders of the tokens while the text is what matters, where it is plain otherwise."""
        text = self.host.panel(TextPanel)
        if wanted and text.view == OFF:
            text.view, text.lent = BORDERS, True
        elif not wanted and text.lent:
            text.view, text.lent = OFF, False

    def _look(self, play: LessonPlay) -> None:
        """Select the token that the beat speaks of: before its reveal only where that tells nothing."""
        revealed = play.phase is LessonPhase.REVEALED
        if not revealed and (play.beat.hide or play.beat.act):
            if play.guess is None:
                self.timeline.select(None)
            return
        self.timeline.select(play.beat.slot(self.timeline))

    # ---- narration --------------------------------------------------------------------------

    def narration(self) -> Narration | None:
        """The card now."""
        shown = card(self.play, self._hint, self.exploring, self.course) if self.play is not None else None
        shown = self.presenting.narration(self.play, shown, self.course) if self.presenting.on else shown
        help = (*[PRESENTING_KEYS] * self.presenting.on, *[LESSON_KEYS] * (self.play is not None))
        return replace(shown, keys=frozenset(self._keys()), help=help) if shown is not None else None

    def takes(self, key: str) -> bool:
        """Do what a key means to the lesson."""
        does = self._keys().get(key)
        if does is None:
            return False
        self.host.answer()
        does()
        self._changed()
        return True

    def refuses(self, action: Action) -> str:
        """Refuse a key that would show what is to be predicted, until the prediction."""
        play = self.play
        if play is None or self.exploring or play.problem is not None or not play.options:
            return ""
        tells = action.needs & TELLS or action.id == play.beat.show
        if play.phase not in UNTIL or action.id in HARMLESS or not tells:
            return ""
        return self._waits(action.shown, play)

    def _waits(self, key: str, play: LessonPlay) -> str:
        """A sentence on what to do before a key that would show the answer."""
        explore = f"{EXPLORE.shown} explores freely"
        if self.presenting.on:
            return f"The class predicts first: {key_for('presenting.on')} continues, {key} waits. {explore}"
        return f"Predict with {numbers(play)} first: {key} waits until then. {explore}"

    def _keys(self) -> Keys:
        """The meanings of keys now, as Textual names them: to the presenter, or else to the lesson."""
        play = self.play
        presents = self.presenting.keys(None if self.exploring else play) if self.presenting.on else {}
        means = {**(self._taken(play) if play is not None else {}), **presents}
        return {name: does for id, does in means.items() for name in names_of(id)}

    def _taken(self, play: LessonPlay) -> Keys:
        """By the id of an action what it does beside the card."""
        if self.exploring:
            return {"lessons": self.explore, "lesson.again": lambda: self._again(play)}
        keys: Keys = {
            "lessons": self.explore,
            **self._paging(),
            "lesson.back": lambda: play.begin(play.beat_number - 1),
            "lesson.on": lambda: play.begin(play.beat_number + 1),
            "lesson.again": lambda: play.begin(play.beat_number),
            "lesson.help": lambda: self._help(play),
        }
        if play.phase in UNTIL:  # afterwards the digits open tabs
            keys |= {
                each.id: partial(play.predict, at) for at, each in enumerate(PREDICTS[: len(play.options)])
            }
        match play.phase:
            case LessonPhase.ACTING:
                keys = self._acting(play, keys)
            case LessonPhase.REVEALED:
                keys["lesson.go_on"] = play.go_on
            case LessonPhase.ENDED:
                keys["lesson.go_on"] = self._after
        return keys

    def _after(self) -> None:
        """After a lesson: the next one of its course, or nothing."""
        following = self.course.following if self.course is not None else None
        if following is None:
            self.leave()
        else:
            self._take(following)

    def _take(self, place: CoursePlace) -> None:
        """Begin a lesson of a course: where it was left, or before a class at its first beat."""
        self.begin(place.listed, 0 if self.presenting.on else None, place)

    def _acting(self, play: LessonPlay, keys: Keys) -> Keys:
        """The keys while something is to be done: the one that begins it is the program's, where its tab is open."""
        if not play.stage.left:
            return keys
        verb = play.stage.left[0].verb
        if verb.action:
            keys[verb.action] = play.do_it
        if verb.opens and not self._recorded and key_for(verb.opens) == bare_key_for(verb.opens):
            own = {*names_of(verb.opens)}
            return {id: does for id, does in keys.items() if own.isdisjoint(names_of(id))}
        return keys

    def _again(self, play: LessonPlay) -> None:
        """Come back from exploring to the beginning of the beat."""
        self.exploring = False
        play.begin(play.beat_number)

    def _paging(self) -> dict[str, Callable[[], object]]:
        """Keys of a card that is longer than its room."""
        card = self.host.card
        if card is None or not card.overflows:
            return {}
        return {"lesson.read_back": lambda: card.page(-1), "lesson.read_on": lambda: card.page(1)}

    def _help(self, play: LessonPlay) -> None:
        """The hint; and after it, have it done. Before and after that time, say what to press."""
        if play.phase is not LessonPhase.ACTING:
            asks = play.phase in UNTIL and play.options
            idle = f"There is nothing to do here: {key_for('lesson.go_on')} continues"
            self.host.answer(self._waits(key_for("lesson.help"), play) if asks else idle)
            return
        if play.beat.hint and not self._hint:
            self._hint = True
            return
        self._open_screen(play.beat.show)
        play.do_it()

    def present(self) -> None:
        """Begin to present what the beat is about, whichever tab has the key, or end it."""
        self.presenting.toggle()
        if self.presenting.on and self.play is not None and self.play.phase in SHOWN and not self.exploring:
            self._go_to(self.play.beat.show, self.play.phase)

    def explore(self) -> None:
        """Leave the card to look around, or come back to it; without a lesson, the list."""
        if self.play is None:
            self.list()
            return
        self.exploring = not self.exploring
        if not self.exploring and self.play.phase in SHOWN:
            self._go_to(self.play.beat.show, self.play.phase)  # a screen that was opened may show the answer
        self._changed()

    def on_disk(self) -> Iterator[Findable]:
        """The lessons, where no other session's are on show."""
        for each in shipped():
            lesson = each.lesson
            yield Findable(f"lesson {lesson.id}", visible(lesson.title), visible(lesson.about), "Lessons",
                           key_for("all_lessons"), f"lesson, lesson {each.number}, learn", "all_lessons",
                           partial(self.begin, each))  # fmt: skip

    def list(self) -> None:
        """Show all lessons."""
        from inspector.tools.lessons.dialogs import LessonsDialog

        self.host.open(LessonsDialog(self._progress.read(), self.play is not None), self._chosen)

    def _chosen(self, chosen: Listed | Course | str | None) -> None:
        if chosen == END:
            self.leave()
        elif isinstance(chosen, Listed):
            self.begin(chosen)
        elif chosen is not None and not isinstance(chosen, str):
            self.list_parts(chosen)

    def list_parts(self, course: Course) -> None:
        """Show the lessons of a course, with what is done of it."""
        from inspector.tools.lessons.dialogs import CourseDialog

        self.host.open(
            CourseDialog(course, self._progress.read()), lambda place: self._take(place) if place else None
        )


# ---- the card: what it says in each phase, and its keys -----------------------------------------


class CardState(Struct, frozen=True):
    """The lesson as its card shows it.

    Args:
        play: The lesson.
        hint: Whether the learner asked for one.
        exploring: Whether the learner left the card for a while.
        following: The lesson that comes after it in its course; None for none.
    """

    play: LessonPlay
    hint: bool = False
    exploring: bool = False
    following: CoursePlace | None = None

    @property
    def phase(self) -> LessonPhase | None:
        """Of the beat; None where there is a problem, or the card was left."""
        return None if self.exploring or self.play.problem is not None else self.play.phase

    @property
    def over(self) -> bool:
        """True if there is nothing but to leave, or to go past a problem."""
        return not self.exploring and (self.play.problem is not None or self.phase is LessonPhase.ENDED)


def _helps(own: CardState) -> str:
    if own.phase is not LessonPhase.ACTING:
        return ""
    return "have it done" if own.hint or not own.play.beat.hint else "hint"


def _explores(own: CardState) -> str:
    return "back to the lesson" if own.exploring else "" if own.over else "explore"


def _continues(own: CardState) -> str:
    if own.phase is LessonPhase.ENDED:
        return "next lesson" if own.following is not None else "end"
    return "next" if own.phase is LessonPhase.REVEALED else ""


_BEATS, _READ = "Go to the previous or the next beat.", "Scroll a card that is longer than the screen."


def _predicts(place: int) -> Action:
    """The action that predicts one of the options."""

    def word(own: CardState) -> str:
        return "predict" if own.phase is LessonPhase.ASKING and place < len(own.play.options) else ""

    text = "Predict; until then, keys that would show the answer are blocked."
    return Action(f"lesson.predict_{place + 1}", f"Option {place + 1}", text, hint=word, worth=9)


PREDICTS = tuple(map(_predicts, range(MOST_OPTIONS)))
EXPLORE = Action("lessons", "Explore", "Explore freely, and come back.", hint=_explores, worth=5)
"""The card takes its key in every tab."""
LESSON_KEYS = ActionTable(
    "In a lesson",
    (
        *PREDICTS,
        Action("lesson.go_on", "Continue", "Continue, once the answer is shown.", worth=9, hint=_continues),
        Action("lesson.help", "Hint", "Show a hint; press it again to have the step done for you.",
               hint=_helps, worth=6),
        Action("lesson.back", "Previous beat", _BEATS, hint=lambda own: "" if own.over or own.exploring else "back",
               worth=2),
        Action("lesson.on", "Next beat", _BEATS, worth=3,
               hint=lambda own: "next beat" if own.over and own.play.problem is not None else ""),
        Action("lesson.again", "Again", "Begin this beat again.", worth=1,
               hint=lambda own: "" if own.phase is LessonPhase.ENDED else "again"),
        EXPLORE,
        Action("lesson.read_back", "Read back", _READ),
        Action("lesson.read_on", "Read on", _READ),
        Action("all_lessons", hint=lambda own: "lessons" if own.over else "", worth=5),
    ),
)  # fmt: skip
"""What keys mean beside the card, before they mean anything else; the owner is a `CardState`."""


def card(
    play: LessonPlay, hint: bool = False, exploring: bool = False, course: CoursePlace | None = None
) -> Narration:
    """The card of a lesson.

    Args:
        play: The lesson.
        hint: Whether the learner asked for one.
        exploring: Whether the learner left the card for a while.
        course: Its place in the course that it is taken in; None for a lesson alone.
    """
    following = course.following if course is not None else None
    title, state = _title(play, course), CardState(play, hint, exploring, following)
    hints = tuple(hints_of([[(state, each) for each in LESSON_KEYS.actions]]))
    if exploring:
        again = key_for("lesson.again")
        words = f"Explore freely. {EXPLORE.shown} goes back to the lesson, {again} begins this beat again."
        return Narration(title, Content(words), hints)
    body = Content("\n").join(_lines(play, hint, course))
    veiled = (
        frozenset() if play.phase in (LessonPhase.REVEALED, LessonPhase.ENDED) else frozenset(play.beat.hide)
    )
    return Narration(title, body, hints, play.beat.show, veiled, situation=_situation(play, following))


def numbers(play: LessonPlay) -> str:
    """The keys that predict, as a sentence names them."""
    return Hint(PREDICTS[: len(play.options)], "", 0).keys


def _situation(play: LessonPlay, following: CoursePlace | None) -> str:
    """The status line: what to press now, also where a dialog lies over the card."""
    explore = f"{EXPLORE.shown} explores freely"
    if play.problem is not None:
        return (
            f"{key_for('lesson.on')} goes to the next beat, {key_for('lesson.again')} begins this one again"
        )
    match play.phase:
        case LessonPhase.ASKING:
            return f"Predict with {numbers(play)}: keys that would show it wait. {explore}"
        case LessonPhase.ACTING if play.stage.left:
            return f"Press {visible(play.stage.left[0].keys)}"
        case LessonPhase.REVEALED:
            last = play.beat_number + 1 == len(play.lesson.beats)
            on = key_for("lesson.go_on")
            return f"{on} ends the lesson" if last else f"{on} goes to the next beat, {explore}"
        case LessonPhase.ENDED:
            on, all = key_for("lesson.go_on"), key_for("all_lessons")
            if following is not None:
                title = visible(following.listed.lesson.title)
                return f"{on} begins {title}, {all} lists all lessons"
            return f"{on} leaves the lesson, {all} lists all of them"
    return ""


def _title(play: LessonPlay, course: CoursePlace | None) -> str:
    beats = len(play.lesson.beats)
    part = f"{course.named}: " if course is not None else ""
    if play.phase is LessonPhase.ENDED:
        return visible(f"{part}{play.lesson.title}")
    return visible(f"{part}{play.lesson.title} {play.beat_number + 1}/{beats} · {play.beat.title}")


def _lines(play: LessonPlay, hint: bool, course: CoursePlace | None) -> Iterator[Content]:
    if play.problem is not None:
        yield Content.styled(visible(str(play.problem)), "$text-error")
        return
    match play.phase:
        case LessonPhase.PREPARING:
            yield Content.styled("Getting ready", "$ink-muted")
        case LessonPhase.ENDED:
            yield from _ended(play)
            yield from _in_course(course) if course is not None else ()
        case LessonPhase.REVEALED:
            yield from _options(play)
            yield from map(Content, play.card.why)
        case _:
            yield from map(Content, play.card.text)
            yield from _asked(play)
            if play.phase is LessonPhase.ACTING:
                yield _to_do(play)
            if hint and play.beat.hint:
                yield Content.styled(visible(play.beat.hint), "$ink-muted")


def _asked(play: LessonPlay) -> Iterator[Content]:
    if play.card.question:
        yield Content.styled(play.card.question, "bold")
    yield from _options(play)


def _options(play: LessonPlay) -> Iterator[Content]:
    """The options in a line: before the reveal with the guess marked, after it with what is right."""
    if not play.options:
        return
    yield Content("   ").join(_option(play, place) for place in range(len(play.options)))


def _option(play: LessonPlay, place: int) -> Content:
    text = visible(play.options[place].text)
    revealed = play.phase is LessonPhase.REVEALED
    if revealed and place == play.card.right:
        return Content.styled(f"✓ {text}", "bold $text-success")
    if place == play.guess:
        return Content.styled(f"✗ {text}", "$text-error") if revealed else Content.styled(f"▸ {text}", "bold")
    if revealed or play.guess is not None:
        return Content.styled(f"  {text}", "$ink-muted")
    return Content.styled(f" {place + 1} ", "bold reverse $primary") + Content(f" {text}")


def _to_do(play: LessonPlay) -> Content:
    left = play.stage.left
    if not left:
        return Content.styled("Wait a moment", "$ink-muted")
    return Content.styled("▶ ", "bold $text-warning") + Content(f"Press {visible(left[0].keys)}.")


def _ended(play: LessonPlay) -> Iterator[Content]:
    asked = sum(beat.question is not None for beat in play.lesson.beats)
    if play.lesson.about:
        yield Content(visible(play.lesson.about))
    if asked:
        yield Content(f"{sum(play.right.values())} of {asked} predictions were right.")


def _in_course(place: CoursePlace) -> Iterator[Content]:
    """What comes next in the course."""
    title, following = visible(place.course.title), place.following
    if following is not None:
        lesson = following.listed.lesson
        next_one = f"next comes {visible(lesson.title)}, {lesson.minutes:g} minutes."
        yield Content(f"{title}, {place.named}; {next_one}")
        return
    yield Content(f"{title} is at its end.")


# ---- the tool -----------------------------------------------------------------------------------


def lessons(
    first: Listed | None = None,
    present: bool = False,
    beat: int | None = None,
    course: CoursePlace | None = None,
) -> Tool:
    """The tool.

    Args:
        first: The lesson to begin with; None for none.
        present: Whether to present it.
        beat: The one to begin with, from 0; None for where it was left, or for the first one before a class.
        course: The course that the lesson is taken in; None for none.
    """
    return Tool(
        "lessons",
        "Lessons",
        lambda host: LessonActions(host, first, present, beat, course),
        actions=(
            Action("lessons", "Learn",
            "Lessons: predict, do it, and see. In a lesson: explore freely, and come back.",
            LessonActions.explore,
            synonyms="tutorial, course, learning, lesson, how does it work, explain", view="lessons…"),
            Action("all_lessons", "All lessons", "Show all lessons and courses, with what you did; begin another one.",
            LessonActions.list, synonyms="lessons, list of lessons, exercises, courses, curriculum, progress"),
            Action("present", "Present",
            "Present to a class: one panel of 60 columns, large numbers, votes, and your notes.",
            LessonActions.present,
            synonyms="class, teacher, projector, slides, audience, presentation"),
        ),
        owners=(LESSON_KEYS, PRESENTING_KEYS),
    )  # fmt: skip


LESSONS = lessons()
