"""The actions of a lesson: a fixed list. The program does some before a beat, the learner does some in it.

An action is one word and its argument, as in `step 3` or `set temp=1.5`. Each knows the commands that do it, the keys
with which a learner does it, and the records that show that it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from engine import protocol
from engine.errors import SettingsError
from engine.grammar_settings import KINDS, Grammar
from engine.protocol import (
    AttentionRead,
    BatchCompared,
    BatchEnded,
    BatchOpened,
    BeamEnded,
    BeamOpened,
    Command,
    Direction,
    DirectionMade,
    DraftRound,
    Ended,
    HeadsSwept,
    LanePrompt,
    LensRead,
    LockstepOpened,
    Prefilled,
    QuestionAsked,
    RaceEnded,
    RaceStep,
    ReadLens,
    Record,
    Resampled,
    SpeculationVerified,
    TakenApart,
    WaysParted,
)
from engine.setting import check
from engine.settings import BY_NAME, BeamSettings, Settings, SpeculationSettings, differences
from inspector.config.directions import name_of
from inspector.documents.grammar import EXAMPLES
from inspector.documents.steering import EXAMPLE, Contrast
from inspector.keys import key_for
from inspector.lessons.errors import LessonError
from inspector.scales import counted
from inspector.session.controller import Controller
from inspector.state import batch
from inspector.state.merges import around
from inspector.state.second_model import SecondModelSoFar
from inspector.state.speculation import Speculation
from inspector.state.timeline import Timeline

Number = TypeVar("Number", int, float)
Told = TypeVar("Told", bound=Record)
MOST_STEPS = 1000
"""The most steps of one action: a lesson's trace contains each of them."""
LENS_TOP, LENS_FOLLOWED = 10, 4
"""Number of tokens to read at each layer, and of candidates to follow through all layers."""
LANES = 8
"""Lanes of a batch at once, unless the action names a number."""


class Before(Struct, frozen=True):
    """The session as an action found it, and what has happened since."""

    tip: int
    steps: int
    settings: Settings
    reroll: int = 0
    """Number of times that the next token was drawn again."""
    since: list[Record] = field(default_factory=list)
    """Records since then; the list grows."""


class LessonAction(Struct, frozen=True):
    """One action of a lesson's file."""

    name: str
    given: str
    """The text after the name."""
    line: int

    @property
    def verb(self) -> Verb:
        """Its entry in the list."""
        return VERBS[self.name]

    def commands(self, controller: Controller) -> list[Command]:
        """The commands that do it from here.

        Raises:
            LessonError: It can't be done here.
        """
        try:
            return self.verb.commands(self.given, controller)
        except LookupError as error:
            hint = "Change the action, or let the card begin where it is possible."
            raise LessonError(self.line, f"{self}: {error.args[0]}.", hint, "action") from error

    def done(self, controller: Controller, before: Before) -> bool:
        """True if the action was done since `before`."""
        return self.verb.done(self.given, controller, before)

    def left(self, controller: Controller, before: Before) -> LessonAction:
        """The rest of the action, if a part of it was done."""
        count = _COUNTS.get(self.name)
        done = count(controller, before) if count is not None else 0
        return replace(self, given=str(max(1, _times(self.given) - done))) if done else self

    def missed(self, controller: Controller, before: Before) -> str:
        """A sentence on what was done instead; empty if nothing, or only a part of the action, was done."""
        if controller.timeline.tip != before.tip and self.name not in MOVING:
            return "That changed the text. It was undone: do what the line above says."
        return self.verb.missed(self.given, controller, before)

    @property
    def keys(self) -> str:
        """The keys that do it, as the end of a sentence that begins with `Press`."""
        return self.verb.keys(self.given)

    def __str__(self) -> str:
        return f"{self.name} {self.given}".rstrip()


class Verb(Struct, frozen=True):
    """One kind of action."""

    usage: str
    help: str
    commands: Callable[[str, Controller], list[Command]]
    done: Callable[[str, Controller, Before], bool]
    keys: Callable[[str], str]
    check: Callable[[str], object] = str
    """Raises ValueError, with a sentence, if the argument is wrong."""
    action: str = ""
    """Id of the screen action whose key does all of it, even in a recording; empty if there is no such key."""
    opens: str = ""
    """Id of the screen action whose key begins it, if the card of a lesson would take that key otherwise."""
    missed: Callable[[str, Controller, Before], str] = lambda given, on, before: ""
    """See `LessonAction.missed`."""


# ---- steps ------------------------------------------------------------------------------------


def _number(kind: Callable[[str], Number], text: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"{text} is not {what}" if text else f"It needs {what}") from None


def _some(given: str) -> None:
    if not given.strip():
        raise ValueError("It needs a text")


def _times(given: str) -> int:
    number = _number(int, given or "1")
    if not 1 <= number <= MOST_STEPS:
        raise ValueError(f"It must be from 1 to {MOST_STEPS:,}")
    return number


def _plural(number: int, what: str, once: str) -> str:
    return f"{what} {number} times" if number > 1 else once


def _back(given: str, controller: Controller) -> list[Command]:
    steps, times = controller.timeline.completion, _times(given)
    if times > len(steps):
        raise LookupError(f"the completion has {counted(len(steps), 'token')}")
    return [protocol.MoveTo(steps[-times].parent)]


def _start(given: str, controller: Controller) -> list[Command]:
    steps = controller.timeline.completion
    return [protocol.MoveTo(steps[0].parent)] if steps else [protocol.Reroll(0)]


def _choose(given: str, controller: Controller) -> list[Command]:
    timeline = controller.timeline
    candidates = timeline.next.candidates if timeline.next is not None else ()
    found = next((each for each in candidates if each.text in (given, f" {given}")), None)
    if found is None:
        raise LookupError(f"{given} is not among the candidates")
    return [protocol.Choose(timeline.tip, found.id)]


def _moved(controller: Controller, before: Before) -> int:
    """Number of tokens added, or taken back."""
    return abs(len(controller.timeline.completion) - before.steps)


def _redrawn(controller: Controller, before: Before) -> int:
    return sum(isinstance(each, Resampled) for each in before.since)


MOVING = ("step", "run", "back", "start", "choose", "type", "prompt", "round", "rounds")
"""Names of the actions that change the text."""
_COUNTS = {"step": _moved, "back": _moved, "reroll": _redrawn}
"""Functions that count the presses so far, for the actions that take several, by name."""


def _stepped(given: str, controller: Controller, before: Before) -> bool:
    return len(controller.timeline.completion) == before.steps + _times(given)


def _too_far(given: str, controller: Controller, before: Before) -> str:
    """The sentence for more steps taken, or more tokens taken back, than the card asks for."""
    moved, asked = _moved(controller, before), _times(given)
    return (
        f"That was {counted(moved, 'token')}, not {asked}. It was undone: do it again."
        if moved > asked
        else ""
    )


def _added(controller: Controller, before: Before) -> str:
    return "".join(each.text for each in controller.timeline.completion[before.steps :])


def _chosen(text: str, controller: Controller, before: Before) -> bool:
    return _added(controller, before) in (text, f" {text}")


def _typed(text: str, controller: Controller, before: Before) -> bool:
    return _added(controller, before) == f" {text}"


def _other_text(wanted: str, controller: Controller, before: Before) -> str:
    """The sentence for a different text than the card asks for."""
    added = _added(controller, before)
    return f"That was “{added}”, not “{wanted}”. It was undone: do it again." if added else ""


# ---- settings, prompts ------------------------------------------------------------------------


def settings_given(given: str) -> dict[str, object]:
    """Parse settings, such as `temp=1.5 top_p=0.9`.

    Raises:
        ValueError: One of them is not a setting, or is out of range.
    """
    values: dict[str, object] = {}
    for word in given.split():
        name, equals, text = word.partition("=")
        if not equals or name not in BY_NAME:
            raise ValueError(f"{name} is not a setting of the sampler")
        try:
            values[name] = BY_NAME[name].parse(text)
        except SettingsError as error:
            raise ValueError(error.message.rstrip(".")) from error
    if not values:
        raise ValueError("It names no setting")
    return values


def _configured(given: str, controller: Controller) -> list[Command]:
    return [protocol.Configure(check(replace(controller.setup.settings, **settings_given(given))))]


def _holds(given: str, controller: Controller, before: Before) -> bool:
    return controller.queries.in_force == replace(before.settings, **settings_given(given))


def _other_settings(wanted: Mapping[str, object], controller: Controller, before: Before) -> str:
    """The sentence for settings that were changed, but not to those that the card asks for."""
    in_force = controller.queries.in_force
    if in_force == before.settings:
        return ""
    differs = differences(in_force, replace(before.settings, **wanted))
    name, (now, asked) = next(iter(differs.items()))
    label, key = (BY_NAME[name].label, "sampling") if name in BY_NAME else ("the grammar", "grammar")
    if (found := _setting_text(name, now)) == (expected := _setting_text(name, asked)):
        return OTHER  # they differ in what a summary leaves out
    return f"Now {label} is {found} instead of {expected}. Press {key_for(key)} to change that."


def _setting_text(name: str, value: Any) -> str:
    if isinstance(value, Grammar):
        return value.summary
    return (BY_NAME[name].format(value) if name in BY_NAME else "") or "not set"


def _set_keys(given: str) -> str:
    names = " and ".join(
        f"{BY_NAME[name].label} to {given_text(given, name)}" for name in settings_given(given)
    )
    return f"{key_for('sampling')}, set {names}, then {key_for('dialog.apply')}"


def given_text(given: str, name: str) -> str:
    """The value of a setting, as written in the action."""
    return next(word.partition("=")[2] for word in given.split() if word.partition("=")[0] == name)


def _grammar(given: str) -> Grammar | None:
    """Parse a grammar: its kind and its text, `example` and a name, or `off`.

    Raises:
        ValueError: It is not a valid grammar.
    """
    kind, _, text = given.partition(" ")
    if given == "off":
        return None
    if kind == "example":
        found = next(((own, words) for name, own, words in EXAMPLES if name == text), None)
        if found is None:
            raise ValueError(
                f"There is no example {text}; there are {', '.join(name for name, _, _ in EXAMPLES)}"
            )
        return Grammar(*found)
    known = next((each for each in KINDS if each == kind), None)
    if known is None:
        raise ValueError(f"“{kind}” is not a kind of grammar; there are {', '.join(KINDS)}")
    try:
        check(made := Grammar(known, text))
    except SettingsError as error:
        raise ValueError(error.message) from error
    return made


def _grammar_keys(given: str) -> str:
    kind, _, text = given.partition(" ")
    opens, applies = key_for("grammar"), key_for("dialog.apply")
    if given == "off":
        return f"{opens}, then {key_for('grammar.take_off')}"
    if kind == "example":
        return f"{opens}, ← → on the examples until {text}, then {applies}"
    return f"{opens}, choose {kind}, type “{text}”, then {applies}"


def _prompted(given: str, controller: Controller, before: Before) -> bool:
    prompt = controller.setup.prompt
    return _happened(Prefilled)(given, controller, before) and prompt.text == given and not prompt.chat


def _other_prompt(given: str, controller: Controller, before: Before) -> str:
    """The sentence for a different prompt than the card asks for."""
    if not _happened(Prefilled)(given, controller, before):
        return ""
    prompt = controller.setup.prompt
    how = " through the chat template" if prompt.chat else ""
    return f"That was “{prompt.text}”{how}, not “{given}” as raw text. Give it again."


def _happened(kind: type[Record]) -> Callable[[str, Controller, Before], bool]:
    """A test of whether a record of a kind came since `before`."""
    return lambda given, controller, before: any(isinstance(each, kind) for each in before.since)


OTHER = "That was not what the line above asks for. Compare, and do it again."


def _other(kind: type[Record]) -> Callable[[str, Controller, Before], str]:
    """A function with the sentence for something that was done, but not as the card asks for it."""
    happened = _happened(kind)
    return lambda given, controller, before: OTHER if happened(given, controller, before) else ""


# ---- tools ------------------------------------------------------------------------------------


def beam_settings(given: str) -> BeamSettings:
    """Parse settings of a beam search, such as `width=4 max_tokens=16`.

    Raises:
        ValueError: One of them is not a setting, or is out of range.
    """
    kinds: Mapping[str, type[int] | type[float]] = {"width": int, "max_tokens": int, "length_penalty": float}
    values: dict[str, float] = {}
    for word in given.split():
        name, _, text = word.partition("=")
        if name not in kinds:
            raise ValueError(f"{name} is not a setting of a beam search")
        values[name] = _number(kinds[name], text)
    try:
        return check(BeamSettings(**values))  # type: ignore[arg-type]
    except SettingsError as error:
        raise ValueError(error.message.rstrip(".")) from error


def _searched(given: str, controller: Controller, before: Before) -> bool:
    """True if a search with exactly these settings ended."""
    wanted, right = beam_settings(given), False
    for record in before.since:
        if isinstance(record, BeamOpened):
            found = record.width, record.max_tokens, record.length_penalty
            right = found == (wanted.width, wanted.max_tokens, wanted.length_penalty)
        elif isinstance(record, BeamEnded) and right:
            return True
    return False


def _beam_keys(given: str) -> str:
    words = given.replace("_", " ").replace("=", " ").split()
    new, run = key_for("beams.new"), key_for("beams.run")
    return f"{key_for('beams')} ({new}, if a search is there), ⏎, {' '.join(words)}, then ⏎ and {run}"


def lens_of(timeline: Timeline) -> ReadLens:
    """The command that reads what the layers would predict after the last token; the lens's screen can show it, too."""
    best = timeline.next.candidates[:LENS_FOLLOWED] if timeline.next is not None else ()
    return ReadLens(timeline.tip, top=LENS_TOP, followed=tuple(each.id for each in best))


class LessonView(Struct, Generic[Told], frozen=True):
    """A view of the model's internals that a lesson opens or reads numbers from."""

    question: Callable[[Timeline], Command]
    """Makes the command, which asks about the last token."""
    answer: type[Told]


ATTENTION = LessonView(lambda timeline: protocol.ReadAttention(timeline.tip), AttentionRead)
EACH_OFF = LessonView(lambda timeline: protocol.SweepHeads(timeline.tip), HeadsSwept)
LENS = LessonView(lens_of, LensRead)


def _answered(kind: type[Record]) -> Callable[[str, Controller, Before], bool]:
    """A test of whether a record of a kind came since, other than the answers to the lesson's own questions."""

    def answered(given: str, controller: Controller, before: Before) -> bool:
        asked = False  # the first answer after a question is the lesson's own
        for record in before.since:
            if isinstance(record, kind) and not asked:
                return True
            asked = isinstance(record, QuestionAsked) or (asked and not isinstance(record, kind | Ended))
        return False

    return answered


def _opened(name: str, help: str, view: LessonView[Told]) -> Verb:
    """The action that opens a view with the key of its own name."""
    return Verb(
        name, help, lambda given, on: [view.question(on.timeline)], _answered(view.answer),
        lambda given: key_for(name), action=name,
    )  # fmt: skip


def _apart(given: str, controller: Controller) -> list[Command]:
    """The command that traces the merges of the last word, as the screen sends it."""
    items = controller.timeline.items
    if (place := around(items, len(items))) is None:
        raise LookupError("the text has no word")
    return [protocol.TakeApart(place.text, None, place.begin, place.end, items[-1].node)]


def _bits(given: str) -> int:
    if (bits := _number(int, given)) not in (4, 8):
        raise ValueError("It must be 4 or 8")
    return bits


def _compared(given: str, controller: Controller, before: Before) -> bool:
    """True if a second model with this many bits was opened and has read the path."""
    timeline, quantized = controller.timeline, ""
    for record in before.since:
        if isinstance(record, LockstepOpened):
            quantized = record.facts.quantization or ""
    return quantized.startswith(f"{_bits(given)}-bit") and timeline.tip in timeline.of(SecondModelSoFar).ahead


def _batch_given(given: str) -> tuple[bool, int]:
    """Parse a batch, such as `static` or `continuous 2`: True for static, and the number of lanes at once.

    Raises:
        ValueError: It is neither kind.
    """
    kind, _, size = given.partition(" ")
    if kind not in ("static", "continuous"):
        raise ValueError("A batch is static or continuous")
    return kind == "static", _number(int, size) if size else LANES


def _batch(given: str, controller: Controller) -> list[Command]:
    """A batch of the session's own prompt and of the form's example prompts."""
    static, size = _batch_given(given)
    own = controller.setup.prompt
    prompts = (LanePrompt(own.text, own.chat, own.system, own.options), *map(LanePrompt, batch.EXAMPLES))
    return [protocol.StartBatch(prompts, size, static)]


def _batched(given: str, controller: Controller, before: Before) -> bool:
    """True if a batch of this kind has ended."""
    wanted, right = _batch_given(given), False
    for record in before.since:
        if isinstance(record, BatchOpened):
            right = (record.static, record.size) == wanted
        elif isinstance(record, BatchEnded) and right:
            return True
    return False


def _batch_keys(given: str) -> str:
    static, size = _batch_given(given)
    kind = f"{key_for('batch.static')} until {'static' if static else 'continuous'}"
    new, applies, runs = key_for("batch.new"), key_for("dialog.apply"), key_for("batch.run")
    return f"{key_for('batch')}, {kind}, ← → until {size} at once, {new}, {applies}, then {runs}"


def _draft(given: str) -> SpeculationSettings:
    """Parse a draft and the number of drafted tokens, such as `self-4bit 3`.

    Raises:
        ValueError: One of them is not valid.
    """
    draft, _, number = given.partition(" ")
    try:
        return check(SpeculationSettings(draft, num_draft_tokens=_number(int, number)))  # type: ignore[arg-type]
    except SettingsError as error:
        raise ValueError(error.message.rstrip(".")) from error


def _rounds(given: str, controller: Controller, before: Before) -> list[DraftRound]:
    """The rounds that were taken with this draft since `before`."""
    wanted, rounds = _draft(given), [each for each in before.since if isinstance(each, DraftRound)]
    return [each for each in rounds if each.stage == "taken" and each.settings == wanted]


def _other_draft(given: str, controller: Controller, before: Before) -> str:
    """The sentence for a round with a different draft than the card asks for."""
    taken = any(isinstance(each, DraftRound) and each.stage == "taken" for each in before.since)
    return OTHER if taken and not _rounds(given, controller, before) else ""


def _draft_keys(given: str, last: str) -> str:
    wanted = _draft(given)
    number = f"← → until {wanted.num_draft_tokens} tokens"
    return (
        f"{key_for('speculation')}, {key_for('speculation.draft')} until {wanted.name}, {number}, then {last}"
    )


def _verify(controller: Controller) -> list[Command]:
    begin = controller.timeline.of(Speculation).begin
    if begin is None:
        raise LookupError("no round was taken")
    return [protocol.VerifySpeculation(begin)]


def contrast(toward: str = "", away: str = "") -> Contrast:
    """The contrast that gives a direction: two texts, or without them the example of the form."""
    if not toward:
        return EXAMPLE
    return Contrast(name_of((toward,), (away,)), (toward,), (away,))


def making(of: Contrast, timeline: Timeline) -> protocol.MakeDirection:
    """The command that makes a direction in the middle of the model, as the screen sends it."""
    layers = timeline.facts.layers if timeline.facts is not None else 1
    return protocol.MakeDirection(layers // 2, of.toward, of.away, name=of.name)


def sweeping(direction: Direction, timeline: Timeline) -> protocol.SweepStrengths:
    """The command that measures what a direction does at the last token, as the screen sends it."""
    best = timeline.next.candidates if timeline.next is not None else ()
    places = protocol.named_places(direction.name, [each.text for each in best])
    token, other = (best[at].id if at < len(best) else None for at in places)
    return protocol.SweepStrengths(timeline.tip, direction, direction.layer, token=token, other=other)


def _texts(given: str) -> Contrast:
    """Parse the texts of a direction: `example`, or two with a slash between them.

    Raises:
        ValueError: It is neither.
    """
    if given == "example":
        return EXAMPLE
    toward, _, away = (part.strip() for part in given.partition(" / "))
    if not (toward and away):
        raise ValueError("It needs two texts with / between them, or example")
    return contrast(toward, away)


def _steering_keys(given: str) -> str:
    opens, make, applies = key_for("steering"), key_for("steering.make"), key_for("dialog.apply")
    if given == "example":
        return f"{opens}, {make} for a direction (an example is filled in), then {applies}"
    of = _texts(given)
    return f"{opens}, {make}, toward “{of.toward[0]}”, away from “{of.away[0]}”, then {applies}"


def _made(given: str, controller: Controller, before: Before) -> bool:
    """True if a direction was made from these texts."""
    of = _texts(given)
    made = (each for each in before.since if isinstance(each, DirectionMade))
    return any((each.toward, each.away) == (of.toward, of.away) for each in made)


def _race_length(given: str) -> int:
    length = _number(int, given)
    if not 32 <= length <= 4096:
        raise ValueError("It must be from 32 to 4,096")
    return length


def _race_keys(given: str) -> str:
    return f"{key_for('race')} for the race, ← → until its end is {given} tokens, then {key_for('race.go')}"


def _raced(given: str, controller: Controller, before: Before) -> bool:
    longest = max((each.tokens for each in before.since if isinstance(each, RaceStep)), default=0)
    return longest == _race_length(given) and _happened(RaceEnded)(given, controller, before)


VERBS: dict[str, Verb] = {
    "step": Verb(
        "step 3", "Take steps; without a number, one.",
        lambda given, on: [protocol.TakeStep() for _ in range(_times(given))],
        _stepped, lambda given: _plural(_times(given), key_for("step"), key_for("step")), _times, missed=_too_far,
    ),
    "run": Verb(
        "run", "Run until a stop, or until max_tokens.",
        lambda given, on: [protocol.Run()],
        lambda given, on, before: on.timeline.tip in on.timeline.finished,
        lambda given: f"{key_for('run')}, and wait for its end",
    ),
    "back": Verb(
        "back 3", "Take tokens back; without a number, one.", _back,
        lambda given, on, before: len(on.timeline.completion) == before.steps - _times(given),
        lambda given: _plural(_times(given), key_for("take_back"), key_for("take_back")), _times, missed=_too_far,
    ),
    "start": Verb(
        "start", "Go back to the end of the prompt, and there to its first draw.", _start,
        lambda given, on, before: not on.timeline.completion,
        lambda given: f"{key_for('take_back')} until the completion is empty",
    ),
    "choose": Verb(
        "choose girl", "Take a candidate by its text.", _choose, _chosen,
        lambda given: f"↓ until {given} is highlighted, then ⏎", _some, missed=_other_text,
    ),
    "type": Verb(
        "type and then", "Put a text of your own into the completion.",
        lambda given, on: [protocol.Insert(on.timeline.tip, f" {given}")],
        _typed,
        lambda given: f"{key_for('own_text')}, type “{given}” after a space, then {key_for('dialog.apply')}", _some,
        missed=lambda given, on, before: _other_text(f" {given}", on, before),
    ),
    "reroll": Verb(
        "reroll 12", "Draw again; without a number, once.",
        lambda given, on: [protocol.Reroll() for _ in range(_times(given))],
        lambda given, on, before: _redrawn(on, before) >= _times(given),
        lambda given: _plural(_times(given), key_for("reroll"), key_for("reroll")), _times,
    ),
    "set": Verb("set temp=1.5", "Change the sampler's settings.", _configured, _holds, _set_keys, settings_given,
                missed=lambda given, on, before: _other_settings(settings_given(given), on, before)),
    "grammar": Verb(
        "grammar regex [0-9]+", "Make the text match a grammar: its kind and text, `example JSON`, or `off`.",
        lambda given, on: [protocol.Configure(replace(on.setup.settings, grammar=_grammar(given)))],
        lambda given, on, before: on.queries.in_force == replace(before.settings, grammar=_grammar(given)),
        _grammar_keys, _grammar, opens="grammar",
        missed=lambda given, on, before: _other_settings({"grammar": _grammar(given)}, on, before),
    ),
    "prompt": Verb(
        "prompt Tom was sad.", "Read another prompt, as raw text.",
        lambda given, on: [protocol.Prefill(given, chat=False)],
        _prompted,
        lambda given: f"{key_for('prompt')}, ctrl+a, give “{given}” as raw text, then {key_for('dialog.apply')}", _some,
        missed=_other_prompt,
    ),
    "race": Verb(
        "race 128", "Race with the KV cache against without it, up to this many tokens.",
        lambda given, on: [protocol.Race(16, _race_length(given))], _raced,
        _race_keys, _race_length, missed=_other(RaceEnded),
    ),
    "beams": Verb(
        "beams width=4 max_tokens=16", "Search with beams from here.",
        lambda given, on: [protocol.SearchBeams(beam_settings(given))],
        _searched, _beam_keys, beam_settings, missed=_other(BeamEnded),
    ),
    "attention": _opened("attention", "Show where each head looks from the last token.", ATTENTION),
    "interventions": _opened("interventions", "Switch off each head, part and layer, one at a time.", EACH_OFF),
    "merges": Verb(
        "merges", "Show how the tokenizer made the last word.", _apart, _answered(TakenApart),
        lambda given: key_for("merges"), action="merges",
    ),
    "second_model": Verb(
        "second_model 4", "Compare with the same model in this many bits.",
        lambda given, on: [protocol.OpenLockstep(on.setup.load, bits=_bits(given)),
                           protocol.ReadLockstep(on.timeline.tip)],
        _compared,
        lambda given: f"{key_for('second_model')}, {key_for('second_model.open')}, choose {given} bits, then ⏎",
        _bits, opens="second_model", missed=_other(LockstepOpened),
    ),
    "ways": Verb(
        "ways", "Let both models continue from here, each with its own tokens.",
        lambda given, on: [protocol.PartWays(on.timeline.tip)],
        _happened(WaysParted),
        lambda given: f"{key_for('second_model')}, then {key_for('second_model.ways')}", opens="second_model",
    ),
    "batch": Verb(
        "batch static", "Run a batch to its end, of the prompt and two more: `static`, or `continuous 2` with two "
        "lanes at once.",
        _batch, _batched, _batch_keys, _batch_given, opens="batch", missed=_other(BatchEnded),
    ),
    "alone": Verb(
        "alone", "Run each prompt of the batch alone.",
        lambda given, on: [protocol.CompareBatch()],
        _happened(BatchCompared),
        lambda given: f"{key_for('batch')}, then {key_for('batch.alone')}", opens="batch",
    ),
    "round": Verb(
        "round self-4bit 3", "Take a round of speculation: the draft, and its tokens.",
        lambda given, on: [protocol.TakeRound(_draft(given))],
        lambda given, on, before: bool(_rounds(given, on, before)),
        lambda given: _draft_keys(given, key_for("speculation.round")), _draft, opens="speculation",
        missed=_other_draft,
    ),
    "rounds": Verb(
        "rounds self-4bit 3", "Take rounds of speculation until a stop, or until max_tokens.",
        lambda given, on: [protocol.RunRounds(_draft(given))],
        lambda given, on, before: bool(_rounds(given, on, before)) and on.timeline.tip in on.timeline.finished,
        lambda given: _draft_keys(given, key_for("speculation.run")), _draft, opens="speculation",
        missed=_other_draft,
    ),
    "verify": Verb(
        "verify", "Decode what was speculated again by plain steps.",
        lambda given, on: _verify(on),
        _happened(SpeculationVerified),
        lambda given: f"{key_for('speculation')}, then {key_for('speculation.verify')}", opens="speculation",
    ),
    "steering": Verb(
        "steering example", "Make a direction: of the example's texts, or of two, as `She saw a cat. / She saw a dog.`",
        lambda given, on: [making(_texts(given), on.timeline)], _made, _steering_keys, _texts, opens="steering",
        missed=_other(DirectionMade),
    ),
    "training": Verb(
        "training", "Look at the training that comes with the program.",
        lambda given, on: [], lambda given, on, before: False, lambda given: key_for("training"), action="training",
    ),
    "lens": _opened("lens", "Show what each layer would predict after the last token.", LENS),
}  # fmt: skip
"""The actions, by name."""


def action(source: str, line: int) -> LessonAction:
    """Read an action.

    Raises:
        LessonError: It isn't listed, or its argument is wrong.
    """
    name, _, given = source.partition(" ")
    if name not in VERBS:
        raise LessonError(line, f"There is no action {name}.", f"There are {', '.join(VERBS)}.", "action")
    try:
        VERBS[name].check(given)
    except ValueError as error:
        message = f"{source}: {str(error).rstrip('.')}."
        raise LessonError(line, message, f"Example: {VERBS[name].usage}", "action") from error
    return LessonAction(name, given, line)
