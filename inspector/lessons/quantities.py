"""The functions that expressions call: each reads the run's records, or asks the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.protocol import (
    Candidate,
    Command,
    Distribution,
    Explained,
    Piece,
    Prefilled,
    PromptToken,
    QuestionAsked,
    RaceStep,
    Record,
    Step,
)
from engine.recording import question
from engine.setting import check
from engine.settings import BY_NAME, Settings
from inspector.lessons import kinds
from inspector.lessons.actions import ATTENTION, EACH_OFF, LENS, LessonView, Told, contrast, making, sweeping
from inspector.lessons.kinds import SubjectKind
from inspector.lessons.values import Value
from inspector.scales import counted
from inspector.session.client import Request
from inspector.session.controller import Controller
from inspector.state.beams import BeamHistory
from inspector.state.candidates import compared
from inspector.state.second_model import SecondModelSoFar
from inspector.state.speculation import Speculation, SpeculationTotals
from inspector.state.timeline import Timeline
from inspector.state.training import RECENT, whole_training

Argument = str | float | bool
Call = TypeVar("Call", bound=Callable[..., Any])
Found = TypeVar("Found")


# ---- the records that they read -----------------------------------------------------------------


class Unanswered(Exception):
    """An expression needs an answer from the engine.

    Args:
        command: The question.
    """

    def __init__(self, command: Command) -> None:
        super().__init__(command)
        self.command = command


class Scope:
    """The records of one run of a lesson.

    Args:
        controller: The session's controller.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.kept: dict[str, Value] = {}
        """The kept values by their names in the lesson."""
        self.since: list[Record] = []
        """The records since the beat began."""
        self._asked: dict[Command, Request[Command]] = {}
        """The questions of the beat."""
        self._ids: set[int] = set()
        """Ids of all questions, also of the beats before: their answers are not events of the beat."""
        self._told: set[int] = set()
        """Ids of the questions that were answered."""
        controller.client.listen(self._receive)

    def close(self) -> None:
        """Stop listening, and cancel the questions."""
        self.forget()
        self.controller.client.ignore(self._receive)

    @property
    def timeline(self) -> Timeline:
        """The session's timeline."""
        return self.controller.timeline

    @property
    def settings(self) -> Settings:
        """The sampler's settings in force."""
        return self.controller.queries.in_force

    @property
    def answers(self) -> list[Record]:
        """The answers to the questions of the beat."""
        return [record for request in self._asked.values() for record in request.records]

    @property
    def waiting(self) -> bool:
        """True if an answer is on its way."""
        return not all(request.done for request in self._asked.values())

    def answer(self, command: Command, kind: type[Told]) -> Told:
        """The engine's answer to a question.

        Raises:
            Unanswered: The question was not asked yet.
            LookupError: There is no answer; the message says why.
        """
        if command not in self._asked:
            raise Unanswered(command)
        return self._asked[command].answer(kind)

    def view(self, view: LessonView[Told]) -> Told:
        """The answer to the question of a view; raises what `answer` raises."""
        return self.answer(view.question(self.timeline), view.answer)

    def ask(self, command: Command) -> None:
        """Send a question to the engine."""
        request = self.controller.client.request(command, each=partial(self._tell, command))
        self._ids.add(request.id)
        self._asked[command] = request

    def forget(self) -> None:
        """Forget the records and the questions, when a beat begins: the answers may be different now."""
        for request in self._asked.values():
            request.cancel()
        self.since, self._asked = [], {}

    def _tell(self, command: Command, record: Record) -> None:
        """Report the question right before the first record that answers it, so that a trace has the two together even
        if other records came meanwhile."""
        client = self.controller.client
        if client.answering not in self._told:
            self._told.add(client.answering)
            client.receive(QuestionAsked(question(command)))

    def _receive(self, record: Record) -> None:
        if self.controller.client.answering not in self._ids and not isinstance(record, QuestionAsked):
            self.since.append(record)


# ---- the list -----------------------------------------------------------------------------------


class Function(Struct, frozen=True):
    """One function of the list."""

    name: str
    gives: SubjectKind
    call: Callable[..., Any]
    """Given the scope and the arguments; returns what the fields of `gives` are read from."""
    help: str
    """Its description, in a sentence."""
    usage: str
    """An example of its use: `step(3)`."""


FUNCTIONS: dict[str, Function] = {}
"""The functions, by name."""


def _known(found: Found | None, missing: str) -> Found:
    """Return a result; raise a LookupError, which says what is missing, if it is None."""
    if found is None:
        raise LookupError(missing)
    return found


def _since(scope: Scope, kind: type[Told], missing: str) -> list[Told]:
    """Return the records of a kind since the beat began; raise a LookupError if there are none."""
    return _known([each for each in scope.since if isinstance(each, kind)] or None, missing)


def _listed(usage: str, gives: SubjectKind, help: str) -> Callable[[Call], Call]:
    """Add a function to the list."""

    def listed(call: Call) -> Call:
        name = usage.partition("(")[0].partition(".")[0]
        FUNCTIONS[name] = Function(name, gives, call, help, usage)
        return call

    return listed


@_listed("next", kinds.DISTRIBUTION, "The distribution after the last token.")
def _next(scope: Scope) -> Distribution:
    return _known(scope.timeline.next, "no prompt was read")


@_listed("step(3)", kinds.STEP, "A token of the completion, counted from 1.")
def _step(scope: Scope, number: int) -> Step:
    steps = scope.timeline.completion
    if not 1 <= number <= len(steps):
        raise LookupError(f"the completion has {counted(len(steps), 'step')}")
    return steps[number - 1]


@_listed("last", kinds.STEP, "The last token of the completion.")
def _last(scope: Scope) -> Step:
    return _step(scope, len(scope.timeline.completion))


@_listed("least_sure", kinds.STEP, "The step with the highest entropy.")
def _least_sure(scope: Scope) -> Step:
    if not (steps := scope.timeline.completion):
        raise LookupError("nothing was generated")
    return max(steps, key=lambda each: each.choice.entropy_bits)


@_listed("least_allowed", kinds.STEP, "The step at which a grammar allowed the least probability.")
def _least_allowed(scope: Scope) -> Step:
    if not (steps := scope.timeline.completion):
        raise LookupError("nothing was generated")
    return min(steps, key=lambda each: kinds.grammar_of(each.choice).mass)


@_listed("grammar", kinds.GRAMMAR, "What the grammar in force allows after the last token.")
def _grammar(scope: Scope) -> protocol.GrammarReading:
    return kinds.grammar_of(_next(scope))


@_listed("candidate('girl')", kinds.CANDIDATE, "A candidate for the next token, by its text.")
def _candidate(scope: Scope, text: str) -> Candidate:
    """A candidate by its text, with or without the space before it."""
    distribution = scope.timeline.next
    candidates = distribution.candidates if distribution is not None else ()
    found = next((each for each in candidates if each.text in (text, f" {text}")), None)
    return _known(found, f"{text} is not among the candidates")


@_listed("prompt", kinds.PIECES, "The prompt in tokens.")
def _prompt(scope: Scope) -> tuple[PromptToken, ...]:
    return tuple(each for each in scope.timeline.items if isinstance(each, PromptToken))


@_listed(
    "completion('ball')", kinds.COMPLETION, "All generated tokens; with a text, how often it occurs in them."
)
def _completion(scope: Scope, text: str = "") -> kinds.Generated:
    steps, finished = tuple(scope.timeline.completion), scope.timeline.finished.get(scope.timeline.tip)
    occurrences = "".join(each.text for each in steps).count(text) if text else 0
    reason, detail = (finished.reason, finished.detail) if finished is not None else ("", "")
    return kinds.Generated(steps, occurrences, reason, detail)


@_listed("added.perplexity", kinds.COMPLETION, "The tokens generated since this card began.")
def _added(scope: Scope) -> kinds.Generated:
    return kinds.Generated(tuple(each for each in scope.since if isinstance(each, Step)))


@_listed("setting('temp')", kinds.SETTING, "The present value of a setting of the sampler, by its name.")
def _setting(scope: Scope, name: str) -> object:
    if name not in BY_NAME:
        raise LookupError(f"the sampler has no setting {name}")
    return getattr(scope.settings, name)


@_listed("kv", kinds.KV, "The KV cache.")
def _kv(scope: Scope) -> protocol.KVReading:
    return _known(scope.timeline.kv, "the cache holds nothing yet")


@_listed("tokens('strawberry')", kinds.PIECES, "A text cut into tokens.")
def _tokens(scope: Scope, text: str) -> tuple[Piece, ...]:
    return scope.answer(protocol.Tokenize(text), protocol.Tokenized).pieces


@_listed("merged('strawberry', 1)", kinds.MERGED,
         "A word after this many merges of the tokenizer; without a number, after all of them.")  # fmt: skip
def _merged(scope: Scope, word: str, merges: int | None = None) -> kinds.Merged:
    words = scope.answer(protocol.TakeApart(word), protocol.TakenApart).words
    if len(words) != 1:
        raise LookupError(f"the tokenizer takes it as {len(words)} words")
    made = len(words[0].borders) if merges is None else merges
    if not 0 <= made <= len(words[0].borders):
        raise LookupError(f"it takes {len(words[0].borders)} merges")
    return kinds.Merged(words[0], made)


@_listed("whatif(temp=1.5)", kinds.TRIED,
         "The next token under other settings with the same draw; with `step=3`, the token of that step.")  # fmt: skip
def _whatif(scope: Scope, step: int = 0, **values: Argument) -> Explained:
    return _tried(scope, step, values)


@_listed("stage('top-p', top_p=0.9)", kinds.STAGE,
         "The effect of a stage of the sampler, under these settings or others.")  # fmt: skip
def _stage(scope: Scope, name: str, step: int = 0, **values: Argument) -> protocol.StageColumn:
    columns = _tried(scope, step, values).columns
    return _known(next((each for each in columns if each.name == name), None), f"the stage {name} didn't run")


def _tried(scope: Scope, step: int, values: Mapping[str, Argument]) -> Explained:
    """The distribution before a step, or the next one, under other settings; with the same draw."""
    unknown = next((name for name in values if name not in BY_NAME), None)
    if unknown is not None:
        raise LookupError(f"the sampler has no setting {unknown}")
    typed = {name: BY_NAME[name].parse(str(value)) for name, value in values.items()}
    settings = check(replace(scope.settings, **typed))
    timeline = scope.timeline
    of = timeline.completion[step - 1].choice if step else timeline.next
    node, reroll = (of.node, of.reroll) if of is not None else (timeline.tip, 0)
    return scope.answer(protocol.Explain(node, settings, reroll), Explained)


@_listed(
    "lens(7)", kinds.LENS,
    "The prediction of a layer, counted from 1, or 'blocks.6.hook_resid_post'; without a number, of the last one.",
)  # fmt: skip
def _lens(scope: Scope, layer: int | str = 0) -> kinds.LensLayer:
    columns = scope.view(LENS).columns
    if not columns:
        raise LookupError("the lens can't read this model")
    if isinstance(layer, str):
        return kinds.LensLayer(columns[-1], *_named(layer, ("stream before", "stream after", "layer"), 1))
    return kinds.LensLayer(columns[-1], layer or len(columns[-1].cells) - 1)


@_listed(
    "head(6, 1)", kinds.HEAD,
    "Where a head looks from the last token: layer and head from 1, or 'blocks.5.attn.hook_pattern[0]'.",
)  # fmt: skip
def _head(scope: Scope, layer: int | str, head: int | None = None) -> kinds.HeadRow:
    if isinstance(layer, str):
        layer, head = _named(layer, ("pattern", "scores", "head"), 2)
    if head is None:
        raise TypeError("a layer alone names no head")
    read = scope.view(ATTENTION)
    found = next((each for each in read.layers if each.layer == layer - 1), None)
    if found is None or not 1 <= head <= found.heads:
        raise LookupError(f"the model has no head {head} in layer {layer} that can be read")
    return kinds.HeadRow(found.over(head - 1, read.tokens), tuple(scope.timeline.items))


def _named(text: str, parts: Collection[str], count: int) -> tuple[int, ...]:
    """The layer, or the layer and head, of a part that is named.

    Args:
        text: A name, as for `named_part`.
        parts: The kinds of parts that it may name.
        count: 1 for a layer, 2 for a layer and a head.

    Raises:
        LookupError: It names no such part.
    """
    try:
        named = protocol.named_part(text)
    except ValueError as error:
        raise LookupError(str(error)) from error
    if named.hook.part not in parts or len(named.place) != count:
        wanted = "blocks.5.attn.hook_pattern[0]" if count == 2 else "blocks.6.hook_resid_post"
        raise LookupError(f"{text!r} names no such part; {wanted} does")
    return named.place


@_listed("without('L6 h1')", kinds.WITHOUT,
         "The prediction with parts of the model switched off: `L6 h1, L3 mlp, L4`.")  # fmt: skip
def _without(scope: Scope, units: str) -> protocol.Intervened:
    try:
        parts = protocol.units_from(units)
    except ValueError as error:
        raise LookupError(str(error)) from error
    return scope.answer(protocol.Intervene(scope.timeline.tip, parts), protocol.Intervened)


@_listed(
    "strongest", kinds.STRONGEST, "The part that changes the prediction most when it alone is switched off."
)
def _strongest(scope: Scope) -> Record:
    return scope.view(EACH_OFF)


@_listed(
    "contribution('L7 h2')", kinds.CONTRIBUTION,
    "What a part adds to the logit of the picked token, minus that of the best other one; without a name the "
    "part that adds most.",
)  # fmt: skip
def _contribution(scope: Scope, part: str = "") -> kinds.Written:
    pair = compared(scope.timeline)
    if len(pair) < 2:
        raise LookupError("no two candidates are known")
    read = scope.answer(protocol.Attribute(scope.timeline.tip, pair), protocol.AttributionRead)
    parts = list(_writers(read))
    if not part:
        return max(parts, key=lambda each: each.logits)
    found = next((each for each in parts if each.label.casefold() == part.casefold()), None)
    return _known(found, f"no part is called {part}")


def _writers(read: protocol.AttributionRead) -> Iterator[kinds.Written]:
    """The writers, with heads instead of their attention if these are known one by one."""
    for part in read.parts:
        where = f"L{part.layer + 1} " if part.layer is not None else ""
        heads, _ = part.heads.shape
        if not heads:
            name = "MLP" if part.kind == "mlp" else part.kind
            yield kinds.Written(f"{where}{name}", part.kind, read.bar(part.logits), read)
        for head in range(heads):
            yield kinds.Written(f"{where}h{head + 1}", "head", read.bar(part.head(head)), read)


@_listed(
    "patched('a girl named', 'a dog named')", kinds.PATCHED,
    "The layer from which a text answers as another one: the other text's last token is patched in, layer after layer.",
)  # fmt: skip
def _patched(scope: Scope, text: str, source: str) -> kinds.AnswerMoved:
    command = protocol.PatchPairs((protocol.PatchPair(text, source),))
    read = scope.answer(command, protocol.PairsPatched)
    (pair,) = read.pairs
    last = next((each.means for each in read.places if each.place == "last"), None)
    if pair.failure or last is None:
        raise LookupError(pair.failure.rstrip(".") or "the texts differ at their last token")
    return kinds.AnswerMoved(pair, read.layers, last)


@_listed(
    "doing('induction')", kinds.DOES,
    "The head with the highest score over random tokens, repeated once: previous, induction or duplicate.",
)  # fmt: skip
def _doing(scope: Scope, what: str) -> kinds.Does:
    if what not in ("previous", "induction", "duplicate"):
        raise LookupError(f"{what} is not previous, induction or duplicate")
    command = protocol.ScoreHeads(scope.timeline.tip, protocol.RepeatedTexts())
    heads = scope.answer(command, protocol.HeadsScored).heads
    scored = [(getattr(each, what), each) for each in heads if getattr(each, what) is not None]
    if not scored:
        raise LookupError("no head of this model can be scored")
    score, head = max(scored, key=lambda each: each[0])
    return kinds.Does(f"L{head.layer + 1} h{head.head + 1}", head.layer + 1, score)


@_listed("second_model", kinds.SECOND_MODEL, "The completion as the model and the second one read it.")
def _second_model(scope: Scope) -> list[protocol.LockstepSpan]:
    spans = scope.timeline.of(SecondModelSoFar).spans
    read = [spans[each.node] for each in scope.timeline.completion if each.node in spans]
    if not read or any(each.kl_nats is None or not each.whole for each in read):
        raise LookupError("no second model with the same tokens has read the completion")
    return read


@_listed("ways", kinds.WAYS, "The continuations of both models, in this card.")
def _ways(scope: Scope) -> protocol.WaysParted:
    missing = "both models did not diverge in this card"
    found = _since(scope, protocol.WaysParted, missing)[-1]
    _known(found.parted, missing)
    return found


@_listed("race", kinds.RACE, "The race of this card.")
def _race(scope: Scope) -> list[RaceStep]:
    return _since(scope, RaceStep, "no race was run in this card")


@_listed(
    "beams(2)",
    kinds.BEAMS,
    "A continuation of this card's beam search: the best, or with a number the second, and so on.",
)
def _beams(scope: Scope, place: int = 1) -> kinds.Searched:
    missing = "no beam search with so many continuations was run in this card"
    ended = _since(scope, protocol.BeamEnded, missing)[-1]
    if not 1 <= place <= len(ended.ranking):
        raise LookupError(missing)
    return kinds.Searched(ended.ranking[place - 1], ended.greedy, scope.timeline.of(BeamHistory).nodes)


@_listed("batch", kinds.BATCH, "The batch of this card.")
def _batch(scope: Scope) -> kinds.RunBatch:
    missing = "no batch was run in this card"
    totals = _since(scope, protocol.BatchEnded, missing)[-1].totals
    compared = (each for each in scope.since if isinstance(each, protocol.LaneCompared))
    return kinds.RunBatch(_since(scope, protocol.BatchOpened, missing)[-1], totals, tuple(compared))


@_listed("round", kinds.ROUND, "The last round of speculation of this card.")
def _round(scope: Scope) -> protocol.DraftRound:
    rounds = [each for each in scope.since if isinstance(each, protocol.DraftRound) and each.stage == "taken"]
    if not rounds:
        raise LookupError("no round was taken in this card")
    return rounds[-1]


@_listed("speculation", kinds.SPECULATION, "All rounds since the draft was chosen.")
def _speculation(scope: Scope) -> SpeculationTotals:
    totals = scope.timeline.of(Speculation).totals
    if not totals.rounds:
        raise LookupError("no round was taken")
    return totals


@_listed("verified", kinds.VERIFIED, "The speculated tokens, decoded again by plain steps in this card.")
def _verified(scope: Scope) -> protocol.SpeculationVerified:
    return _since(scope, protocol.SpeculationVerified, "nothing was verified in this card")[-1]


@_listed(
    "steered(2, 'She saw a cat.', 'She saw a dog.')", kinds.STEERED,
    "The prediction with a direction added at the last token, this many times: toward one text and away from another; "
    "without texts toward happy and away from sad.",
)  # fmt: skip
def _steered(scope: Scope, strength: float, toward: str = "", away: str = "") -> kinds.Steered:
    made = scope.answer(making(contrast(toward, away), scope.timeline), protocol.DirectionMade)
    swept = scope.answer(sweeping(made.direction, scope.timeline), protocol.StrengthsSwept)
    if (found := swept.at(strength)) is None:
        tried = ", ".join(f"{each.strength:g}" for each in swept.strengths)
        raise LookupError(f"{strength:g} is not tried; tried are {tried}")
    added = protocol.Intervention("direction", swept.layer, None, found.strength, made.direction)
    scope.answer(protocol.Intervene(swept.node, (added,)), protocol.Intervened)  # its screen shows that, too
    return kinds.Steered(swept, found)


@_listed(
    "learned(100)",
    kinds.LEARNED,
    "The training that comes with the program, after a step: the first, or a multiple of 50 up to 4,000.",
)
def _learned(scope: Scope, step: int) -> kinds.Learned:
    training = whole_training()
    begun, look = training.begun, next((each.look for each in training.looks if each.step == step), None)
    if begun is None or look is None:
        raise LookupError(f"it was not looked at after {step} steps")
    until = [each for each in training.steps if each.step <= step]
    return kinds.Learned(tuple(until[-RECENT:]), look, begun.parts, begun.parameters, begun.vocabulary)


@_listed("rerolls('girl')", kinds.REROLLS, "The draws of this card; with a token, how often it was drawn.")
def _rerolls(scope: Scope, text: str = "") -> kinds.Redrawn:
    drawn = [each.next for each in scope.since if isinstance(each, protocol.Resampled) and each.next.reroll]
    if not drawn:
        raise LookupError("nothing was drawn again in this card")
    return kinds.Redrawn(tuple(drawn), text)


@_listed("prefill", kinds.PREFILL, "The reading of the prompt of this card.")
def _prefill(scope: Scope) -> Prefilled:
    return _since(scope, Prefilled, "no prompt was read in this card")[-1]
