"""The views of a model's internals for one token: their commands and their tables."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from engine import protocol
from engine.errors import PromptError
from engine.protocol import CaptureFacts, Command, Failure, PatchPair, Record
from inspector.blocks.blocks import Block, sentence
from inspector.cli.arguments import CliRequest
from inspector.cli.flags import unescaped
from inspector.cli.writers.generation import Report
from inspector.config.directions import name_of, write_direction
from inspector.display import visible
from inspector.documents import (
    attention,
    attribution,
    experts,
    gradients,
    interventions,
    lens,
    modules,
    patching,
    positions,
    scores,
    steering,
)
from inspector.documents.attribution import rows_of
from inspector.documents.gradients import baseline_of
from inspector.documents.positions import LATER, OFFSETS, trials
from inspector.state.candidates import compared
from inspector.state.inside import checked
from inspector.state.patching import after, pair
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline

ANSWERS: Mapping[str, type[Record]] = {
    protocol.TryPosition.kind: protocol.PositionTried, protocol.ReadExperts.kind: protocol.ExpertsRead,
    protocol.ScoreHeads.kind: protocol.HeadsScored, protocol.ReadAttention.kind: protocol.AttentionRead,
    protocol.ReadLens.kind: protocol.LensRead, protocol.Attribute.kind: protocol.AttributionRead,
    protocol.ReadGradients.kind: protocol.GradientsRead, protocol.ReadScore.kind: protocol.ScoreRead,
    protocol.SweepHeads.kind: protocol.HeadsSwept,
}  # fmt: skip
"""The record that answers each command that may be refused while other views are shown."""
LACKED = protocol.TryPosition.kind, protocol.ReadExperts.kind, protocol.ScoreHeads.kind
"""Kinds of the commands that some models can't answer."""
OF_CHANGES = protocol.Intervened | protocol.HeadsSwept | protocol.DirectionMade | protocol.StrengthsSwept
"""Records of the views that show the effect of a change."""


class Known(Report):
    """Writes a table for each view, and keeps the answers for the commands that depend on them."""

    names = ("model", "sampling", "seed")

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.nodes: list[int] = []
        """Nodes of the path's tokens."""
        self.steps = 0
        """Number of generated tokens in the path."""
        self.compared: tuple[int | None, int | None] = None, None
        """The two keys of a head that are compared, by their places in the path; None for the heaviest, and for the
        mean of all."""
        self.pieces: Sequence[protocol.Piece] = ()
        """Tokens of the text that was tokenized last."""
        self.direction: protocol.Direction | None = None
        """The direction that was made last."""
        self.failed: list[str] = []
        """The views that are not shown, because one of their checks failed."""
        self.refused: list[str] = []
        """The views that the engine refused, although the model has what they show."""
        self.changed = False
        """True if parts are switched off, or a direction is added; most views still show the unchanged model."""

    def take(self, record: Record) -> None:
        self.timeline.apply(record)
        if isinstance(record, protocol.PromptOpened | protocol.Step):
            tokens = record.tokens if isinstance(record, protocol.PromptOpened) else (record,)
            self.nodes += (token.node for token in tokens)
            self.steps += isinstance(record, protocol.Step)
        if isinstance(record, protocol.Tokenized):
            self.pieces = record.pieces
        elif isinstance(record, Failure):
            self.refused += [] if record.command in LACKED else [TABLES[ANSWERS[record.command]][0]]
        elif not checks_hold(record):
            self.failed.append(TABLES[type(record)][0])
        elif isinstance(record, protocol.DirectionMade):
            self.direction = record.direction

    def before(self, place: tuple[bool, int] | None) -> int:
        """The node before a token.

        Args:
            place: True for a prompt token, and its number or that of a step, from 1, negative from the end; None for
                the token that comes next.

        Raises:
            PromptError: There is no such token, or none before it.
        """
        if place in (None, (False, self.steps + 1)):
            return self.nodes[-1]
        if not (index := self.index("--at", place)):
            hint = "Give a later one, or leave --at out for the next token."
            raise PromptError("--at: there is no token before the first one.", hint)
        return self.nodes[index - 1]

    def index(self, flag: str, place: tuple[bool, int]) -> int:
        """The index of a token in the path.

        Args:
            flag: The flag that names it.
            place: See `before`.

        Raises:
            PromptError: There is no such token.
        """
        in_prompt, number = place
        begin, count, what, p = 0, len(self.nodes) - self.steps, "prompt token", "p"
        if not in_prompt:
            begin, count, what, p = count, self.steps, "step", ""
        if not 0 < abs(number) <= count:
            hint = f"Give one from {p}1 to {p}{count}."
            hint = hint if count else "Add --steps, or name a prompt token, such as p2."
            raise PromptError(f"{flag} {p}{number}: there is no {what} {number}.", hint)
        return begin + (number - 1 if number > 0 else count + number)

    def lines(self, record: Record) -> Iterable[str]:
        """The table of a view."""
        facts = getattr(record, "facts", None)
        match record:
            case Failure():
                title = TABLES[ANSWERS[record.command]][0]
                said = f"Not shown: {visible(record.message)} {visible(record.hint)}"
                shown: Iterable[Block] = [sentence(said)]
            case _ if type(record) in TABLES:
                title, document = TABLES[type(record)]
                if self.changed and not isinstance(record, OF_CHANGES):
                    title = f"{title}: of the unchanged model"
                shown = document(record, self) if checks_hold(record) else ()
            case _:
                return
        proof = [f"  {checked(facts, self.width)}"] if isinstance(facts, CaptureFacts) else []
        yield from (title, *(f"  {line}" for line in self.drawn(shown)), *proof, "")

    def path(self, node: int) -> Sequence[Item]:
        """The path's tokens up to a node; empty if its prompt wasn't opened."""
        tree = self.timeline.tree
        return tree.path(node) if node in tree.nodes else ()


def checks_hold(record: Record) -> bool:
    """False if a record is a view that isn't shown, because one of its checks failed."""
    facts = getattr(record, "facts", None)
    return not isinstance(facts, CaptureFacts) or facts.failed is None


def refused(failure: Failure, alone: bool = True) -> bool:
    """True if the next command is sent despite a failure.

    Args:
        failure: The failure.
        alone: Whether only one view is asked for: then only a view that models may lack is forgiven.
    """
    return failure.expected and failure.command in (LACKED if alone else ANSWERS)


# ---- the commands of each view -------------------------------------------------------------------


def questions(
    args: Namespace, known: Known, request: CliRequest, pairs: tuple[PatchPair, ...]
) -> Mapping[str, Callable[[int], Iterable[Command]]]:
    """The commands about a node, by view."""
    texts = protocol.RepeatedTexts(*args.texts)
    return {
        "attention": lambda node: [protocol.ReadAttention(node)],
        "heads": lambda node: [protocol.ScoreHeads(node, texts), protocol.ScoreHeads(node)],
        "lens": lambda node: [protocol.ReadLens(node, args.positions)],
        "contributions": lambda node: _contributions(args, known, node),
        "gradients": lambda node: _gradients(args, known, node),
        "switch-off": lambda node: [protocol.SweepHeads(node, _next(known, node), scope=args.scope)],
        "patching": lambda node: _patching(args, known, request, pairs, node),
        "steering": lambda node: _steering(args, known, node),
        "scores": lambda node: [_score(args, known, node)],
        "map": lambda node: [protocol.ReadModules()],
        "experts": lambda node: [protocol.ReadExperts(node)],
        "positions": lambda node: _positions(known, node),
    }


def _next(known: Known, node: int) -> int | None:
    """The id of the path's next token after a node; None at the path's end."""
    later = known.nodes[known.nodes.index(node) + 1 :]
    return known.timeline.tree.nodes[later[0]].id if later else None


def _score(args: Namespace, known: Known, node: int) -> Command:
    """The command that decomposes the scores of a head.

    Raises:
        PromptError: The path up to the node has no such token.
    """
    given = {"--key": args.key, "--versus": args.versus}
    key, versus = (None if at is None else known.index(flag, at) for flag, at in given.items())
    if max(key or 0, versus or 0) > known.nodes.index(node):
        raise PromptError("A head looks at no later token.", "Give --key and --versus earlier ones.")
    known.compared = key, versus
    layer, head = (args.head.layer, args.head.head) if args.head is not None else (None, None)
    return protocol.ReadScore(node, layer, head, tuple(place for place in (key, versus) if place is not None))


def _positions(known: Known, node: int) -> Iterator[Command]:
    """The commands that try another position of a token, as on the screen."""
    place = known.nodes.index(node)
    later = known.nodes[place + 1 :][:LATER]
    for trial in trials(place, OFFSETS, len(later), later[-1] if later else None):
        yield trial.question(node)[1]


def _patching(
    args: Namespace, known: Known, request: CliRequest, pairs: tuple[PatchPair, ...], node: int
) -> Iterator[Command]:
    """The commands that patch activations of another prompt into a node, and those for a set of pairs.

    Raises:
        PromptError: There is no other prompt, a text is not a single token, or both prompts predict the same.
    """
    if pairs:
        yield protocol.PatchPairs(pairs, args.part)
    if args.source is None:
        if pairs:
            return
        hint = "Give another text as --source, or pairs of texts as --patch-pairs FILE."
        raise PromptError("Activations come from another text.", hint)
    token, against = yield from _given_tokens(args, known, node)
    own, text = after(known.timeline, node), unescaped(args.source)
    yield replace(request.prefill, text=text, echo=False, messages=())
    source = known.nodes[-1]
    telling = pair(own, after(known.timeline, source))
    if None in (token, against) and telling is None:
        message = "Both texts predict the same: no two tokens tell them apart."
        raise PromptError(message, "Give --token and --against.")
    first, last = telling or (0, 0)
    answers = first if token is None else token, last if against is None else against
    yield protocol.PatchActivations(node, source, *answers, args.part, args.facing)


def _contributions(args: Namespace, known: Known, node: int) -> Iterator[Command]:
    """The commands that attribute a logit after a node to its parts; first those that look up the tokens."""
    yield protocol.Attribute(node, (yield from _compared(args, known, node)))


def _gradients(args: Namespace, known: Known, node: int) -> Iterator[Command]:
    """The commands that take the gradient of a logit after a node; first those that look up the tokens."""
    token, other = (*(yield from _compared(args, known, node)), None, None)[:2]
    line = args.baseline, args.gradient_steps, args.hold_experts
    method: protocol.GradientMethod = args.method or ("integrated" if any(line) else "input")
    baseline, text = baseline_of(unescaped(args.baseline or "mean"))
    yield protocol.ReadGradients(
        node, token, other, method, baseline, text, args.gradient_steps or 32, args.hold_experts
    )


def _compared(args: Namespace, known: Known, node: int) -> Generator[Command, None, tuple[int, ...]]:
    """The one or two tokens whose logits are explained.

    Raises:
        PromptError: A text is not a single token.
    """
    token, against = yield from _given_tokens(args, known, node)
    return compared(known.timeline, token, against)[: 1 if args.alone else 2]


def _given_tokens(
    args: Namespace, known: Known, node: int
) -> Generator[Command, None, tuple[int | None, int | None]]:
    """The ids of --token and --against, from the candidates after a node; None for one that isn't given."""
    known.timeline.select(known.nodes.index(node) + 1)
    return (yield from _token(known, args.token)), (yield from _token(known, args.against))


def _steering(args: Namespace, known: Known, node: int) -> Iterator[Command]:
    """The commands that make a direction, if none was given, and that steer by it.

    Raises:
        EngineError: The direction can't be saved, or a text is not a single token.
    """
    timeline, strength = known.timeline, None
    if args.pairs is not None:
        depth = timeline.facts.layers if timeline.facts is not None else 1
        layer = depth // 2 if args.layer is None else args.layer - 1
        toward, away = args.said
        yield protocol.MakeDirection(layer, toward, away, name=name_of(toward, away))
        if (direction := known.direction) is None:  # its check failed
            return
        if args.save_direction is not None:
            write_direction(args.saved_as, direction)
    else:
        direction, layer = args.steering.direction, args.steering.layer
        strength = args.steering.strength if ":" in args.steer else None
    token = yield from _token(known, args.token)
    other = yield from _token(known, args.against)
    yield protocol.SweepStrengths(node, direction, layer, args.scope, args.begin, token, other)
    if strength is not None:
        unit = protocol.Intervention("direction", layer, None, strength, direction)
        yield protocol.Intervene(node, (unit,), args.scope, begin=args.begin)


def _token(known: Known, text: str | None) -> Generator[Command, None, int | None]:
    """The id of a token: typed as a number, of the candidate with this text (outer spaces ignored), or tokenized."""
    if text is None or (text.isascii() and text.isdigit()):
        return None if text is None else int(text)
    wanted = unescaped(text)
    best = sorted(known.timeline.candidates, key=lambda each: (each.text != wanted, each.rank))
    found = next((each.id for each in best if wanted in (each.text, each.text.strip())), None)
    if found is not None:
        return found
    yield protocol.Tokenize(wanted)
    if len(known.pieces) != 1:
        hint = 'Inside a text a word begins with a space: " cat". Or give an id, as `inspector tokens` lists them.'
        raise PromptError(f"{text!r} is {len(known.pieces)} tokens, not one.", hint)
    return known.pieces[0].id


# ---- tables -----------------------------------------------------------------------------------


TABLES: Mapping[type[Record], tuple[str, Callable[[Any, Known], Iterable[Block]]]] = {
    protocol.AttentionRead: (
        "Attention", lambda read, known: attention.strongest(read, known.path(read.node), None),
    ),
    protocol.HeadsScored: ("Heads by what they do", lambda read, known: attention.roles(read)),
    protocol.LensRead: ("Lens", lambda read, known: lens.document(
        read, known.path(read.node), known.width if known.on_terminal else None,
    )),
    protocol.AttributionRead: (
        "Contributions",
        lambda read, known: attribution.bars(read, rows_of(read, range(len(read.parts)))),
    ),
    protocol.HeadsSwept: ("Switched off one at a time", lambda read, known: interventions.strongest(read)),
    protocol.Intervened: (
        "Changed",
        lambda read, known: (sentence(f"{interventions.heading(read)}."), *interventions.candidates(read)),
    ),
    protocol.ActivationsPatched: ("Activation patching", lambda read, known: patching.patched(read)),
    protocol.PairsPatched: ("Activation patching over pairs", lambda read, known: patching.over_pairs(read)),
    protocol.DirectionMade: ("Direction", lambda read, known: steering.direction(read)),
    protocol.StrengthsSwept: ("Steering", lambda read, known: steering.document(read)),
    protocol.GradientsRead: ("Gradients", lambda read, known: gradients.document(read, known.path(read.node))),
    protocol.ScoreRead: (
        "Why a head looks there",
        lambda read, known: scores.document(read, known.path(read.node), *known.compared),
    ),
    protocol.ExpertsRead: ("Experts and states", lambda read, known: experts.document(read)),
    protocol.PositionTried: ("Positions", lambda read, known: positions.document(read)),
    protocol.ModelModules: ("Map", lambda read, known: modules.document(read)),
}  # fmt: skip
"""Title and document of each view."""
