"""The views of what is inside a model for one token: what each asks, and what it is as a table or as a JSON line."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from engine import protocol
from engine.errors import PromptError
from engine.protocol import (
    ActivationsPatched,
    AttentionRead,
    Attribute,
    AttributionRead,
    CaptureFacts,
    Command,
    Direction,
    DirectionMade,
    ExpertsRead,
    Failure,
    GradientsRead,
    HeadsScored,
    HeadsSwept,
    Intervene,
    Intervened,
    Intervention,
    LensRead,
    MakeDirection,
    ModelModules,
    PairsPatched,
    PatchActivations,
    PatchPair,
    PatchPairs,
    Piece,
    PositionTried,
    Prefill,
    PromptToken,
    ReadAttention,
    ReadExperts,
    ReadGradients,
    ReadLens,
    ReadModules,
    ReadScore,
    RepeatedTexts,
    ScoreHeads,
    ScoreRead,
    Step,
    StrengthsSwept,
    SweepHeads,
    SweepStrengths,
    Tokenize,
    Tokenized,
    TryPosition,
)
from inspector.blocks.blocks import Block, sentence
from inspector.blocks.paint import plain_lines
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary, Writer
from inspector.cli.inputs import unescaped
from inspector.cli.writers.generation import PlainText, figures
from inspector.cli.writers.json_lines import JsonLines
from inspector.config.directions import name_of, write_direction
from inspector.display import pad, token_label, truncate, visible
from inspector.documents import attention, attribution, gradients, interventions, positions, scores, steering
from inspector.scales import amount, count, milliseconds, percent, size
from inspector.state.contributions import compared, rows_of
from inspector.state.gradients import baseline_of
from inspector.state.patching import after, pair
from inspector.state.positions import LATER, OFFSETS, trials
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.modules.lines import chosen_words, experts_summary, states_summary, times
from inspector.tools.modules.lines import lines as module_lines

FIGURES = ("model",)
TOP = 3
"""Tokens that a head's line names."""
CELL = 16
MODULE = 34
"""Cells of a module's name, with the stream before it."""
STRONGEST = 12
"""Units in a table."""
UNIT_CELL = 14
View = (
    AttentionRead
    | HeadsScored
    | LensRead
    | AttributionRead
    | HeadsSwept
    | Intervened
    | ActivationsPatched
    | PairsPatched
    | DirectionMade
    | StrengthsSwept
    | GradientsRead
    | ScoreRead
    | ExpertsRead
    | PositionTried
)
TITLES: Mapping[type[View], str] = {
    AttentionRead: "Attention", HeadsScored: "Heads by what they do", LensRead: "Logit lens",
    AttributionRead: "Contributions", HeadsSwept: "Switched off one at a time", Intervened: "Changed",
    ActivationsPatched: "Activation patching", PairsPatched: "Activation patching over pairs",
    DirectionMade: "Direction", StrengthsSwept: "Steering", GradientsRead: "Gradients",
    ScoreRead: "Why it looks there", ExpertsRead: "Experts and states", PositionTried: "Another position",
}  # fmt: skip
"""What the view of each record is called."""
LACKED: Mapping[str, type[View]] = {
    TryPosition.kind: PositionTried, ReadExperts.kind: ExpertsRead, ScoreHeads.kind: HeadsScored,
}  # fmt: skip
"""What a model may have nothing of, or can't be asked: by the command's kind the record of its answer."""


@dataclass
class Known:
    """The answers so far, for the commands that depend on them."""

    timeline: Timeline = field(default_factory=Timeline)
    nodes: list[int] = field(default_factory=list)
    """Of the path's tokens."""
    compared: tuple[int | None, int | None] = None, None
    """The keys of a head that are compared, by their places in the path: None for the heaviest, and for the mean."""
    pieces: Sequence[Piece] = ()
    """Of the text that was cut last."""
    direction: Direction | None = None
    """That was made last."""
    failed: list[str] = field(default_factory=list)
    """The views that are not shown, because one of their checks failed."""

    def take(self, record: protocol.Record) -> None:
        """Take in one record."""
        self.timeline.apply(record)
        self.nodes += [token.node for token in path_of(record)]
        match record:
            case Tokenized():
                self.pieces = record.pieces
            case (
                AttentionRead() | HeadsScored() | LensRead() | AttributionRead() | HeadsSwept() | Intervened()
                | DirectionMade() | StrengthsSwept() | GradientsRead() | ScoreRead()
                | ExpertsRead() | PositionTried()
            ):  # fmt: skip
                if record.facts.failed is not None:
                    self.failed.append(TITLES[type(record)])
                elif isinstance(record, DirectionMade):
                    self.direction = record.direction

    def end(self, summary: Summary) -> None:
        """No figures: each view is whole."""


def writer(request: CliRequest, known: Known, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for; `known` takes in what it writes."""
    return JsonLines(out, request, known) if request.jsonl else InsideTables(out, err, request, known)


def refused(out: Writer, failure: Failure) -> bool:
    """Write a failure after which the next command is sent all the same; returns whether it is one."""
    if lacked := failure.expected and failure.command in LACKED:
        out.take(failure, "")
    return lacked


def path_of(record: protocol.Record) -> Sequence[PromptToken | Step]:
    """The tokens that a record adds to the path."""
    if isinstance(record, protocol.PromptOpened):
        return record.tokens
    return (record,) if isinstance(record, Step) else ()


# ---- what is asked for each view -------------------------------------------------------------------


def questions(
    args: Namespace, known: Known, request: CliRequest, pairs: tuple[PatchPair, ...]
) -> Mapping[str, Callable[[int], Iterable[Command]]]:
    """By view, the commands about a node."""
    return {
        "attention": lambda node: [ReadAttention(node)],
        "heads": lambda node: [ScoreHeads(node, RepeatedTexts(*args.texts)), ScoreHeads(node)],
        "lens": lambda node: [ReadLens(node, args.positions)],
        "contributions": lambda node: _contributions(args, known, node),
        "gradients": lambda node: _gradients(args, known, node),
        "interventions": lambda node: [SweepHeads(node, _next(known, node), scope=args.scope)],
        "patching": lambda node: _patching(args, known, request, pairs, node),
        "steering": lambda node: _steering(args, known, node),
        "scores": lambda node: [_score(args, known, node)],
        "modules": lambda node: [ReadModules()],
        "experts": lambda node: [ReadExperts(node)],
        "positions": lambda node: _positions(known, node),
    }


def _next(known: Known, node: int) -> int | None:
    """The token of the path after a node; None at its end."""
    later = known.nodes[known.nodes.index(node) + 1 :]
    return known.timeline.tree.nodes[later[0]].id if later else None


def _score(args: Namespace, known: Known, node: int) -> ReadScore:
    """The command that divides the scores of a head.

    Raises:
        PromptError: The path up to the node has no such token.
    """
    tokens = known.nodes.index(node) + 1
    key, versus = (_key(flag, getattr(args, flag), tokens) for flag in ("key", "versus"))
    known.compared = key, versus
    layer, head = (args.head.layer, args.head.head) if args.head is not None else (None, None)
    return ReadScore(node, layer, head, tuple(place for place in known.compared if place is not None))


def _key(flag: str, place: int | None, tokens: int) -> int | None:
    if place is None or -tokens <= place < tokens:
        return place if place is None else place % tokens
    raise PromptError(
        f"--{flag} {place} is not a token of the path, which has {tokens}.",
        f"Give one from {-tokens} to {tokens - 1}.",
    )


def _positions(known: Known, node: int) -> Iterator[Command]:
    """What the screen tries of a token's position."""
    place = known.nodes.index(node)
    later = known.nodes[place + 1 :][:LATER]
    for trial in trials(place, OFFSETS, len(later), later[-1] if later else None):
        yield trial.question(node)[1]


def _patching(
    args: Namespace, known: Known, request: CliRequest, pairs: tuple[PatchPair, ...], node: int
) -> Iterator[Command]:
    """The commands that put what another prompt computes into that of a node, and those of a set of pairs.

    Raises:
        PromptError: There is no other prompt; what was given is no single token; or nothing tells both apart.
    """
    if pairs:
        yield PatchPairs(pairs, args.part)
    if args.source is None:
        if not pairs:
            hint = "Give another text as --source, or pairs of texts as --patch-pairs FILE."
            raise PromptError("Activations come from another text.", hint)
        return
    timeline = known.timeline
    timeline.select(known.nodes.index(node) + 1)
    token = yield from _token(known, args.token)
    against = yield from _token(known, args.against)
    own = after(timeline, node)
    yield Prefill(unescaped(args.source), request.chat, request.system, echo=False, options=request.options)
    source = known.nodes[-1]
    telling = pair(own, after(timeline, source))
    if None in (token, against) and telling is None:
        raise PromptError(
            "Both texts predict the same: no two tokens tell them apart.", "Give --token and --against."
        )
    first, last = telling or (0, 0)
    answers = first if token is None else token, last if against is None else against
    yield PatchActivations(node, source, *answers, args.part, args.facing)


def _contributions(args: Namespace, known: Known, node: int) -> Iterator[Command]:
    """The commands that take a logit after a node apart, and before them those that find the tokens."""
    tokens = yield from _compared(args, known, node)
    yield Attribute(node, tokens)


def _gradients(args: Namespace, known: Known, node: int) -> Iterator[Command]:
    """The commands that take the gradient of a logit after a node, and before them those that find the tokens."""
    token, other = (*(yield from _compared(args, known, node)), None, None)[:2]
    baseline, text = baseline_of(unescaped(args.baseline))
    yield ReadGradients(
        node, token, other, args.method, baseline, text, args.gradient_steps, args.hold_experts
    )


def _compared(args: Namespace, known: Known, node: int) -> Generator[Command, None, tuple[int, ...]]:
    """The one or two tokens that are asked about.

    Raises:
        PromptError: What was given is no single token.
    """
    timeline = known.timeline
    timeline.select(known.nodes.index(node) + 1)
    token = yield from _token(known, args.token)
    against = yield from _token(known, args.against)
    return compared(timeline, token, against)[: 1 if args.alone else 2]


def _steering(args: Namespace, known: Known, node: int) -> Iterator[Command]:
    """The commands that make a direction, if there is none yet, and that add it.

    Raises:
        EngineError: The direction can't be saved, or a token is none.
    """
    timeline, strength = known.timeline, None
    if args.pairs is not None:
        depth = timeline.facts.layers if timeline.facts is not None else 1
        layer = depth // 2 if args.layer is None else args.layer - 1
        toward, away = args.said
        yield MakeDirection(layer, toward, away, name=name_of(toward, away))
        if (direction := known.direction) is None:  # its check failed
            return
        if args.save_direction is not None:
            write_direction(args.saved_as, direction)
    else:
        direction, layer = args.steering.direction, args.steering.layer
        strength = args.steering.strength if ":" in args.steer else None
    token = yield from _token(known, args.token)
    other = yield from _token(known, args.against)
    yield SweepStrengths(node, direction, layer, args.scope, args.begin, token, other)
    if strength is not None:
        unit = Intervention("direction", layer, None, strength, direction)
        yield Intervene(node, (unit,), args.scope, begin=args.begin)


def _token(known: Known, text: str | None) -> Generator[Command, None, int | None]:
    """The id of a token: of the candidate with its text, spaces at its edges aside, or as the tokenizer cuts it."""
    if text is None or (text.isascii() and text.isdigit()):
        return None if text is None else int(text)
    wanted = unescaped(text)
    best = sorted(known.timeline.candidates, key=lambda each: each.rank)
    same = [each.id for each in best if each.text == wanted]
    alike = [each.id for each in best if each.text.strip() == wanted]
    if same or alike:
        return (same or alike)[0]
    yield Tokenize(wanted)
    if len(known.pieces) != 1:
        hint = "Give one of them by its id: `inspector tokens` lists them."
        raise PromptError(f"{text!r} is {len(known.pieces)} tokens, not one.", hint)
    return known.pieces[0].id


# ---- tables -----------------------------------------------------------------------------------


class InsideTables(PlainText):
    """Writes a table for each view."""

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest, known: Known) -> None:
        super().__init__(out, err, request)
        self._known = known
        self._labels: dict[int, str] = {}

    def take(self, record: protocol.Record, text: str) -> None:
        """Write what a record shows."""
        self._known.take(record)
        for token in path_of(record):
            self._labels[token.node] = token_label(token.text, token.raw)
        match record:
            case AttentionRead():
                self._document(record, attention.strongest(record, self._items(record.node), None))
            case HeadsScored():
                self._document(record, attention.roles(record))
            case LensRead():
                self._table(record, lens_table(record, self._labels))
            case AttributionRead():
                self._document(record, attribution.bars(record, rows_of(record, range(len(record.parts)))))
            case GradientsRead():
                self._document(record, gradients.document(record, self._items(record.node)))
            case ScoreRead():
                self._document(
                    record, scores.document(record, self._items(record.node), *self._known.compared)
                )
            case HeadsSwept():
                self._document(record, interventions.strongest(record))
            case Intervened():
                words = sentence(f"{interventions.heading(record)}.")
                self._document(record, [words, *interventions.candidates(record)])
            case DirectionMade():
                self._document(record, interventions.direction(record))
            case StrengthsSwept():
                self._document(record, steering.document(record))
            case ModelModules():
                self._show("")
                self._out.write("Modules\n")
                self._out.writelines(f"  {line.rstrip()}\n" for line in modules_table(record))
                self._out.write("\n")
            case ExpertsRead():
                self._table(record, experts_table(record))
            case PositionTried():
                self._document(record, positions.document(record))
            case ActivationsPatched():
                self._document(record, interventions.patched(record))
            case PairsPatched():
                self._document(record, interventions.over_pairs(record))
            case Failure():
                self._show("")
                said = f"{visible(record.message)} {visible(record.hint)}"
                self._out.write(f"{TITLES[LACKED[record.command]]}\n  Not shown: {said}\n\n")
            case Step():
                pass
            case _:
                super().take(record, "")

    def end(self, summary: Summary) -> None:
        """Say which model it was."""
        self._show("")
        self._sum_up(figures(summary, self._request, FIGURES))

    def _items(self, node: int) -> Sequence[Item]:
        tree = self._known.timeline.tree
        return tree.path(node) if node in tree.nodes else ()

    def _document(self, read: View, blocks: Iterable[Block]) -> None:
        self._table(read, plain_lines(blocks))

    def _table(self, read: View, lines: Iterator[str]) -> None:
        self._show("")
        self._out.write(f"{TITLES[type(read)]}\n")
        if read.facts.failed is None:
            self._out.writelines(f"  {line.rstrip()}\n" for line in lines)
        self._out.write(f"  {checked(read.facts)}\n\n")
        self._out.flush()


def checked(known: CaptureFacts) -> str:
    """The checks in a line; where one failed, why nothing is shown."""
    if (failed := known.failed) is not None:
        where = f" ({visible(failed.where)})" if failed.where else ""
        return (
            f"Not shown: the check {failed.name} failed for the architecture {visible(known.family)}{where}: off by "
            f"{failed.error:.2g}, where {failed.bound:.2g} is allowed."
        )
    checks = ", ".join(f"{check.name} {check.error:.1g}" for check in known.checks)
    return f"checked: {checks}; {milliseconds(known.ms)}, a plain step takes {milliseconds(known.step_ms)}"


def lens_table(read: LensRead, labels: dict[int, str]) -> Iterator[str]:
    """Layers upwards, positions to the right; a star where the final token leads."""
    yield " " * 7 + "".join(f"{pad(truncate(labels[column.node], CELL), CELL)}  " for column in read.columns)
    depth = len(read.columns[0].cells) if read.columns else 0
    for layer in range(depth - 1, -1, -1):
        cells = [column.cells[layer] for column in read.columns]
        texts = [
            f"{'*' if cell.final_rank == 1 else ' '}{truncate(token_label(cell.top[0].text, b''), CELL - 9)}"
            for cell in cells
        ]
        shares = [percent(cell.top[0].prob) for cell in cells]
        yield f"{layer or 'embed':>5}  " + "".join(
            f"{pad(text, CELL - 8)}{share:>8}  " for text, share in zip(texts, shares, strict=True)
        )


def modules_table(read: ModelModules) -> Iterator[str]:
    """A line a module, as a token meets them, beside the residual stream; layers that are alike in one."""
    yield f"{count(read.parameters)} parameters, {size(read.bytes)} of weights, {read.depth} layers"
    yield f"{pad('', MODULE)}{'params':>8}{'bytes':>10}  what it is"
    for line in module_lines(read):
        numbers = f"{amount(line.parameters) if line.parameters else '':>8}{size(line.bytes) if line.bytes else '':>10}"
        said = " · ".join(filter(None, (line.says, line.shape, line.hooks)))
        yield f"{pad(line.gutter + line.label, MODULE)}{numbers}  {said}"


def experts_table(read: ExpertsRead) -> Iterator[str]:
    """A line a layer of experts, and one a state."""
    for words in (experts_summary(read.layers), states_summary(read.states)):
        if words:
            yield words
    for layer in read.layers:
        yield f"L{layer.layer + 1}".ljust(6) + f"experts {chosen_words(layer)}"
    for state in read.states:
        changed = "was empty" if state.changed is None else f"changed by {100 * state.changed:.0f} %"
        whole = f"state {times(state.shape):<17}{size(state.bytes):>9}"
        yield (
            f"L{state.layer + 1}".ljust(6)
            + f"{whole}  norm {state.before:.3g} to {state.norm:.3g}, {changed}"
        )
    yield from map(visible, read.missing)
