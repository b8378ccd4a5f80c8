"""The functions that expressions may call: each reads records of the run, and asks the engine where it has to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine import protocol
from engine.frozen import frozen
from engine.protocol import (
    AttentionRead,
    BeamEnded,
    Distribution,
    Explained,
    LensRead,
    Prefilled,
    PromptToken,
    RaceStep,
    Resampled,
    Step,
    Tokenized,
)
from engine.settings import BY_NAME, check
from inspector.lessons import kinds
from inspector.lessons.actions import lens_of
from inspector.lessons.expressions import Argument, Function, Subject, SubjectKind
from inspector.lessons.inside_kinds import BEAMS, HEAD, LENS, HeadRow, LensLayer, Searched
from inspector.lessons.kinds import Generated, Pieces, Raced
from inspector.lessons.margins import NEAREST_DRAW
from inspector.lessons.scope import Scope
from inspector.lessons.values import Value
from inspector.state.beams import BeamHistory
from inspector.state.session_tree import Item

# ---- what is on show --------------------------------------------------------------------------


def _next(scope: Scope) -> Subject:
    if scope.timeline.next is None:
        raise LookupError("no prompt was read")
    return Subject(kinds.DISTRIBUTION, scope.timeline.next)


def _step(scope: Scope, number: int) -> Subject:
    steps = scope.timeline.completion
    if not 1 <= number <= len(steps):
        raise LookupError(f"the completion has {len(steps)} steps")
    return Subject(kinds.STEP, steps[number - 1])


def _last(scope: Scope) -> Subject:
    return _step(scope, len(scope.timeline.completion))


def _least_sure(scope: Scope) -> Subject:
    if not (steps := scope.timeline.completion):
        raise LookupError("nothing was generated")
    return Subject(kinds.STEP, max(steps, key=lambda each: each.choice.entropy_bits))


def _candidate(scope: Scope, text: str) -> Subject:
    """A candidate by its text, with or without the space before it."""
    distribution = scope.timeline.next
    candidates = distribution.candidates if distribution is not None else ()
    found = next((each for each in candidates if each.text in (text, f" {text}")), None)
    if found is None:
        raise LookupError(f"{text} is not among the candidates")
    return Subject(kinds.CANDIDATE, found)


def _prompt(scope: Scope) -> Subject:
    return Subject(
        kinds.PIECES, Pieces(tuple(each for each in scope.timeline.items if isinstance(each, PromptToken)))
    )


def _completion(scope: Scope, text: str = "") -> Subject:
    timeline = scope.timeline
    steps = tuple(timeline.completion)
    finished = timeline.finished.get(timeline.tip)
    occurrences = "".join(each.text for each in steps).count(text) if text else 0
    reason, detail = (finished.reason, finished.detail) if finished is not None else ("", "")
    return Subject(kinds.COMPLETION, Generated(steps, occurrences, reason, detail))


def _setting(scope: Scope, name: str) -> Subject:
    if name not in BY_NAME:
        raise LookupError(f"the sampler has no setting {name}")
    return Subject(SETTING, getattr(scope.settings, name))


def _added(scope: Scope) -> Subject:
    steps = tuple(each for each in scope.since if isinstance(each, Step))
    return Subject(kinds.COMPLETION, Generated(steps, 0, "", ""))


def _kv(scope: Scope) -> Subject:
    if scope.timeline.kv is None:
        raise LookupError("nothing is held yet")
    return Subject(kinds.KV, scope.timeline.kv)


# ---- what the engine is asked -----------------------------------------------------------------


def _tokens(scope: Scope, text: str) -> Subject:
    return Subject(kinds.PIECES, Pieces(scope.answer(protocol.Tokenize(text), Tokenized).pieces))


def _whatif(scope: Scope, step: int = 0, **values: Argument) -> Subject:
    return Subject(kinds.TRIED, _tried(scope, step, values))


def _stage(scope: Scope, name: str, step: int = 0, **values: Argument) -> Subject:
    explained = _tried(scope, step, values)
    if all(each.name != name for each in explained.columns):
        raise LookupError(f"the stage {name} didn't run")
    return Subject(STAGE, (explained, name))


def _tried(scope: Scope, step: int, values: Mapping[str, Argument]) -> Explained:
    """The distribution before a step, or the next one, under other settings; with the same draw."""
    unknown = next((name for name in values if name not in BY_NAME), None)
    if unknown is not None:
        raise LookupError(f"the sampler has no setting {unknown}")
    typed = {name: BY_NAME[name].parse(str(value)) for name, value in values.items()}
    settings = check(replace(scope.settings, **typed))
    node = scope.timeline.completion[step - 1].parent if step else scope.timeline.tip
    return scope.answer(protocol.Explain(node, settings), Explained)


def _lens(scope: Scope, layer: int = 0) -> Subject:
    read = scope.answer(lens_of(scope.timeline), LensRead)
    if not read.columns:
        raise LookupError("the lens can't read this model")
    return Subject(LENS, LensLayer(read, layer or len(read.columns[-1].cells) - 1))


def _head(scope: Scope, layer: int, head: int) -> Subject:
    read = scope.answer(protocol.ReadAttention(scope.timeline.tip), AttentionRead)
    found = next((each for each in read.layers if each.layer == layer - 1), None)
    if found is None or not 1 <= head <= found.heads:
        raise LookupError(f"the model has no head {head} in layer {layer} that can be read")
    return Subject(HEAD, HeadRow(found, head - 1, read.tokens, tuple(_path(scope))))


def _path(scope: Scope) -> Sequence[Item]:
    return scope.timeline.items


# ---- what was done in this beat ---------------------------------------------------------------


def _race(scope: Scope) -> Subject:
    steps = tuple(each for each in scope.since if isinstance(each, RaceStep))
    if not steps:
        raise LookupError("no race was run in this beat")
    return Subject(kinds.RACE, Raced(steps))


def _beams(scope: Scope, place: int = 1) -> Subject:
    ended = next((each for each in reversed(scope.since) if isinstance(each, BeamEnded)), None)
    if ended is None or not 1 <= place <= len(ended.ranking):
        raise LookupError("no beam search with so many continuations was run in this beat")
    return Subject(
        BEAMS, Searched(ended.ranking[place - 1], ended.greedy, scope.timeline.of(BeamHistory).nodes)
    )


def _rerolls(scope: Scope, text: str = "") -> Subject:
    draws = [each.next for each in scope.since if isinstance(each, Resampled) and each.next.reroll]
    if not draws:
        raise LookupError("nothing was drawn again in this beat")
    return Subject(REROLLS, Redrawn(tuple(draws), text))


def _first_token(scope: Scope) -> Subject:
    read = next((each for each in reversed(scope.since) if isinstance(each, Prefilled)), None)
    if read is None:
        raise LookupError("no prompt was read in this beat")
    return Subject(PREFILL, read)


def _written(of: object) -> Value:
    """A number as it is, lists with commas."""
    if isinstance(of, int | float):
        return kinds.count(of) if isinstance(of, int) else Value("number", of)
    return Value("text", ", ".join(map(str, of)) if isinstance(of, tuple) else str(of))


SETTING = SubjectKind("a setting", "value", {"value": ("its value", _written)})
STAGE = SubjectKind(
    "a stage of the sampler",
    "kept",
    {
        "kept": ("tokens that it left in", lambda of: kinds.count(kinds.stage_column(*of))),
        "removed": ("the probability of what it cut",
                    lambda of: kinds.measured("probability", _removed(*of))),
    },
)  # fmt: skip


def _removed(explained: Explained, name: str) -> float:
    return next(each.removed_mass for each in explained.columns if each.name == name)


@frozen
class Redrawn:
    """Draws of one distribution."""

    draws: tuple[Distribution, ...]
    text: str
    """The token in question, with or without the space before it."""

    @property
    def texts(self) -> list[str]:
        """The token of each."""
        return [str(kinds.picked(each).raw) for each in self.draws]

    @property
    def most(self) -> tuple[str, int]:
        """The token that was drawn most often, and how often."""
        return Counter(self.texts).most_common(1)[0]

    @property
    def times(self) -> Value:
        """How often the token in question was drawn."""
        own = [each for each in self.draws if kinds.picked(each).raw in (self.text, f" {self.text}")]
        borders = [border for each in own[:1] for border in (each.draw_from, each.draw_to) if border]
        near = any(
            abs((each.draw or 0.0) - border) < NEAREST_DRAW for each in self.draws for border in borders
        )
        return kinds.count(len(own), f"a draw is within {NEAREST_DRAW} of its border" if near else "")


REROLLS = SubjectKind(
    "draws that were repeated",
    "most",
    {
        "most": ("the token that was drawn most often", lambda of: kinds.token(of.most[0])),
        "times": ("how often", lambda of: kinds.count(of.most[1])),
        "drawn": ("how often the token in question was drawn", lambda of: of.times),
        "count": ("how many draws", lambda of: kinds.count(len(of.draws))),
        "different": ("how many different tokens", lambda of: kinds.count(len(set(of.texts)))),
    },
)
PREFILL = SubjectKind(
    "the reading of a prompt",
    "tokens",
    {
        "tokens": ("of the prompt", lambda of: kinds.count(len(of.tokens))),
        "kept": ("tokens of it that the cache held already", lambda of: kinds.count(of.kept)),
        "ms": ("the time to the first token", lambda of: Value("ms", of.ttft_ms, timed=True)),
    },
)


def _listed(*found: Function) -> Mapping[str, Function]:
    return {each.name: each for each in found}


FUNCTIONS = _listed(
    Function("next", kinds.DISTRIBUTION, _next, "What follows the last token.", "next"),
    Function("step", kinds.STEP, _step, "A token of the completion, counted from 1.", "step(3)"),
    Function("last", kinds.STEP, _last, "The last token of the completion.", "last"),
    Function("least_sure", kinds.STEP, _least_sure, "The step with the highest entropy.", "least_sure"),
    Function("candidate", kinds.CANDIDATE, _candidate, "A candidate for the next token, by its text.",
             "candidate('girl')"),
    Function("prompt", kinds.PIECES, _prompt, "The prompt in tokens.", "prompt"),
    Function("completion", kinds.COMPLETION, _completion, "All that was generated; and how often a text occurs in it.",
             "completion('ball')"),
    Function("added", kinds.COMPLETION, _added, "What was generated since this beat began.", "added.perplexity"),
    Function("setting", SETTING, _setting, "A setting of the sampler that is in force, by its name.",
             "setting('temp')"),
    Function("kv", kinds.KV, _kv, "The KV cache.", "kv"),
    Function("tokens", kinds.PIECES, _tokens, "A text cut into tokens.", "tokens('strawberry')"),
    Function("whatif", kinds.TRIED, _whatif,
             "The next token under other settings with the same draw; `step=3` for that of a step.",
             "whatif(temp=1.5)"),
    Function("stage", STAGE, _stage, "What a stage of the sampler does, under these settings or others.",
             "stage('top-p', top_p=0.9)"),
    Function("lens", LENS, _lens, "What a layer would predict next, counted from 1; the last without a number.",
             "lens(7)"),
    Function("head", HEAD, _head, "Where a head looks from the last token: layer and head from 1.", "head(6, 1)"),
    Function("race", kinds.RACE, _race, "The race of this beat.", "race"),
    Function("beams", BEAMS, _beams, "The beam search of this beat: its best, or the second, and so on.",
             "beams(2)"),
    Function("rerolls", REROLLS, _rerolls, "The draws of this beat; and how often one token was drawn.",
             "rerolls('girl')"),
    Function("prefill", PREFILL, _first_token, "The reading of the prompt of this beat.", "prefill"),
)  # fmt: skip
