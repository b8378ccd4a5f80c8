"""The views of what is inside a model for one token: their commands, and their tables."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine import protocol
from engine.errors import PromptError
from engine.protocol import (
    AttentionRead,
    AttributionRead,
    CaptureFacts,
    Command,
    DirectionMade,
    Failure,
    GradientsRead,
    Intervention,
    PatchPair,
    Record,
    SteeredStrength,
    StrengthsSwept,
)
from inspector.cli.arguments import CliRequest
from inspector.cli.inputs import unescaped
from inspector.cli.writers.generation import PlainText
from inspector.cli.writers.json_lines import EndFigures
from inspector.config.directions import name_of, write_direction
from inspector.display import pad, token_label, truncate, visible
from inspector.scales import amount, bits, count, left_over, milliseconds, percent, size
from inspector.state.attribution import (
    MEANINGS,
    ROLES,
    asked_words,
    baseline_of,
    best_of,
    by_weight,
    compared,
    compared_to,
    complete_words,
    found_words,
    head_name,
    head_rows,
    in_words,
    key_shares,
    largest,
    measured_on,
    method_words,
    notes_of,
    pair_shares,
    part_rows,
    query_shares,
    shares_of,
)
from inspector.state.inside import interventions_words, sides, steered_words
from inspector.state.patching import after, facing_words, pair
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.modules.lines import chosen_words, experts_summary, states_summary, times
from inspector.tools.modules.lines import lines as module_lines
from inspector.tools.positions.trials import LATER, OFFSETS, facts_line, trial_of, trials

TOP = 3
"""Tokens that a head's line names."""
CELL = 16
MODULE = 34
"""Cells of a module's name, with the stream before it."""
STRONGEST = 12
"""Units in a table."""
SHARES = 8
"""Writers in a table of scores."""
UNIT_CELL = 14
LACKED: Mapping[str, type[Record]] = {
    protocol.TryPosition.kind: protocol.PositionTried, protocol.ReadExperts.kind: protocol.ExpertsRead,
    protocol.ScoreHeads.kind: protocol.HeadsScored,
}  # fmt: skip
"""Record of the answer to each command that a model may have no answer to."""


class Known(EndFigures):
    """The answers so far, for the commands that depend on them."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.nodes: list[int] = []
        """Nodes of the path's tokens."""
        self.labels: dict[int, str] = {}
        """Labels of the tokens, by node."""
        self.compared: tuple[int | None, int | None] = None, None
        """The keys of a head that are compared, by their places in the path: None for the heaviest, and for the
        mean."""
        self.pieces: Sequence[protocol.Piece] = ()
        """Tokens of the text that was cut last."""
        self.direction: protocol.Direction | None = None
        """The direction that was made last."""
        self.failed: list[str] = []
        """The views that are not shown, because one of their checks failed."""

    def take(self, record: Record) -> None:
        """Add one record."""
        self.timeline.apply(record)
        if isinstance(record, protocol.PromptOpened | protocol.Step):
            for token in record.tokens if isinstance(record, protocol.PromptOpened) else (record,):
                self.nodes.append(token.node)
                self.labels[token.node] = token_label(token.text, token.raw)
        if isinstance(record, protocol.Tokenized):
            self.pieces = record.pieces
        elif not checks_hold(record):
            self.failed.append(TABLES[type(record)][0])
        elif isinstance(record, DirectionMade):
            self.direction = record.direction

    def path(self, node: int) -> list[str]:
        """The labels of the path's tokens up to a node."""
        return [self.labels[each] for each in self.nodes[: self.nodes.index(node) + 1]]


def place_of(flag: str, place: int, tokens: int) -> int:
    """The place of a token in a path, counted from 0.

    Args:
        flag: That it was given with.
        place: Negative counts from the end.
        tokens: Length of the path.

    Raises:
        PromptError: The path has no such token.
    """
    if not -tokens <= place < tokens:
        hint = f"Give one from {-tokens} to {tokens - 1}."
        raise PromptError(f"{flag} {place} is not a token of the path, which has {tokens}.", hint)
    return place % tokens


def checks_hold(record: Record) -> bool:
    """False if a record is a view of which a check failed: it isn't shown."""
    facts = getattr(record, "facts", None)
    return not isinstance(facts, CaptureFacts) or facts.failed is None


def refused(failure: Failure) -> bool:
    """True for a failure after which the next command is sent all the same."""
    return failure.expected and failure.command in LACKED


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
        "interventions": lambda node: [protocol.SweepHeads(node, _next(known, node), scope=args.scope)],
        "patching": lambda node: _patching(args, known, request, pairs, node),
        "steering": lambda node: _steering(args, known, node),
        "scores": lambda node: [_score(args, known, node)],
        "modules": lambda node: [protocol.ReadModules()],
        "experts": lambda node: [protocol.ReadExperts(node)],
        "positions": lambda node: _positions(known, node),
    }


def _next(known: Known, node: int) -> int | None:
    """The token of the path after a node; None at its end."""
    later = known.nodes[known.nodes.index(node) + 1 :]
    return known.timeline.tree.nodes[later[0]].id if later else None


def _score(args: Namespace, known: Known, node: int) -> Command:
    """The command that divides the scores of a head.

    Raises:
        PromptError: The path up to the node has no such token.
    """
    tokens, given = known.nodes.index(node) + 1, {"--key": args.key, "--versus": args.versus}
    key, versus = (None if at is None else place_of(flag, at, tokens) for flag, at in given.items())
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
    """The commands that put what another prompt computes into that of a node, and those of a set of pairs.

    Raises:
        PromptError: There is no other prompt; what was given is no single token; or nothing tells both apart.
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
    yield protocol.Prefill(text, request.chat, request.system, echo=False, options=request.options)
    source = known.nodes[-1]
    telling = pair(own, after(known.timeline, source))
    if None in (token, against) and telling is None:
        message = "Both texts predict the same: no two tokens tell them apart."
        raise PromptError(message, "Give --token and --against.")
    first, last = telling or (0, 0)
    answers = first if token is None else token, last if against is None else against
    yield protocol.PatchActivations(node, source, *answers, args.part, args.facing)


def _contributions(args: Namespace, known: Known, node: int) -> Iterator[Command]:
    """The commands that take a logit after a node apart, and before them those that find the tokens."""
    yield protocol.Attribute(node, (yield from _compared(args, known, node)))


def _gradients(args: Namespace, known: Known, node: int) -> Iterator[Command]:
    """The commands that take the gradient of a logit after a node, and before them those that find the tokens."""
    token, other = (*(yield from _compared(args, known, node)), None, None)[:2]
    baseline, text = baseline_of(unescaped(args.baseline))
    yield protocol.ReadGradients(
        node, token, other, args.method, baseline, text, args.gradient_steps, args.hold_experts
    )


def _compared(args: Namespace, known: Known, node: int) -> Generator[Command, None, tuple[int, ...]]:
    """The one or two tokens that are asked about.

    Raises:
        PromptError: What was given is no single token.
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
    """The commands that make a direction, if there is none yet, and that add it.

    Raises:
        EngineError: The direction can't be saved, or a token is none.
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
        unit = Intervention("direction", layer, None, strength, direction)
        yield protocol.Intervene(node, (unit,), args.scope, begin=args.begin)


def _token(known: Known, text: str | None) -> Generator[Command, None, int | None]:
    """The id of a token: of the candidate with its text, spaces at its edges aside, or as the tokenizer cuts it."""
    if text is None or (text.isascii() and text.isdigit()):
        return None if text is None else int(text)
    wanted = unescaped(text)
    best = sorted(known.timeline.candidates, key=lambda each: (each.text != wanted, each.rank))
    found = next((each.id for each in best if wanted in (each.text, each.text.strip())), None)
    if found is not None:
        return found
    yield protocol.Tokenize(wanted)
    if len(known.pieces) != 1:
        hint = "Give one of them by its id: `inspector tokens` lists them."
        raise PromptError(f"{text!r} is {len(known.pieces)} tokens, not one.", hint)
    return known.pieces[0].id


# ---- tables -----------------------------------------------------------------------------------


class InsideTables(PlainText[Known]):
    """Writes a table for each view."""

    def _take(self, record: Record) -> None:
        facts = getattr(record, "facts", None)
        match record:
            case Failure():
                said = f"{visible(record.message)} {visible(record.hint)}"
                self._write([TABLES[LACKED[record.command]][0], f"  Not shown: {said}", ""])
            case _ if type(record) in TABLES:
                title, table = TABLES[type(record)]
                lines = table(record, self._figures) if checks_hold(record) else ()
                proof = [f"  {checked(facts)}"] if isinstance(facts, CaptureFacts) else []
                self._write([title, *(f"  {line.rstrip()}" for line in lines), *proof, ""])
                if isinstance(record, AttentionRead):
                    self._write(f"  {line}" for line in record.missing)
            case _:
                super()._take(record)


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


def attention_table(read: AttentionRead, path: Sequence[str]) -> Iterator[str]:
    """A line a head: the tokens that it looks at most."""
    for layer in read.layers:
        for head in range(layer.heads):
            weights = layer.over(head, read.tokens)
            best = sorted(range(len(weights)), key=lambda place, row=weights: -row[place])[:TOP]  # type: ignore[misc]
            named = "".join(
                f"{pad(truncate(path[place], CELL), CELL)} {percent(weights[place]):>8}  " for place in best
            )
            yield f"L{layer.layer + 1} h{head + 1}".ljust(9) + named


def heads_table(scored: protocol.HeadsScored) -> Iterator[str]:
    """A sentence for each thing that heads are known to do, and the heads that do it most, a line each."""
    yield f"over {measured_on(scored)}"
    yield from found_words(scored)
    if not scored.heads:
        return
    best = dict.fromkeys(each for role in ROLES for _, each in best_of(role, scored.heads)[:TOP])
    yield f"{'':9}" + "".join(f"{role.name:>17}" for role in ROLES) + f"{'first':>10}{'entropy bits':>14}"
    for each in sorted(best, key=lambda score: (score.layer, score.head)):
        shares = (role.score(each) for role in ROLES)
        cells = "".join(f"{'' if share is None else percent(share):>17}" for share in shares)
        name = f"L{each.layer + 1} h{each.head + 1}"
        yield f"{name:<9}{cells}{percent(each.first):>10}{bits(each.entropy_bits):>14}"


def lens_table(read: protocol.LensRead, labels: dict[int, str]) -> Iterator[str]:
    """Layers upwards, positions to the right; a star where the final token leads."""
    yield " " * 7 + "".join(f"{pad(truncate(labels[column.node], CELL), CELL)}  " for column in read.columns)
    depth = len(read.columns[0].cells) if read.columns else 0
    for layer in range(depth - 1, -1, -1):
        line = f"{layer or 'embed':>5}  "
        for cell in (column.cells[layer] for column in read.columns):
            text = truncate(token_label(cell.top[0].text, b""), CELL - 9)
            line += (
                f"{'*' if cell.final_rank == 1 else ' '}{pad(text, CELL - 9)}{percent(cell.top[0].prob):>8}  "
            )
        yield line


def contributions_table(read: AttributionRead) -> Iterator[str]:
    """A line a part, in the order in which they write: what it adds, the sum so far, and its heads."""
    names = [truncate(token_label(token.text), CELL) for token in read.tokens]
    yield " less ".join(
        f"{name} (id {token.id}, {percent(token.prob)}, logit {token.logit:.2f})"
        for name, token in zip(names, read.tokens, strict=True)
    )
    yield f"{'part':<18}{'logits':>8}{'so far':>9}   heads"
    for row in part_rows(read):
        heads = "  ".join(f"{head.name.partition(' ')[2]} {head.value:+.2f}" for head in head_rows(read, row))
        yield f"{pad(row.name, 18)}{row.value:>+8.2f}{row.after or 0.0:>9.2f}   {heads}"
    what = "difference" if len(read.tokens) > 1 else "logit"
    yield f"sums to {read.total:.2f}, the {what}{' before the softcap' if read.softcap else ''} is {read.reached:.2f}"
    yield from map(visible, read.notes)
    yield "direct effect alone: what a part does through later layers is in their lines"


def gradients_table(read: GradientsRead, path: Sequence[Item]) -> Iterator[str]:
    """A line for each of the largest shares, then what they are, and what they leave over."""
    yield f"{asked_words(read)}: {method_words(read)}"
    yield f"{'token':<{CELL}}{'place':>7}{'share':>9}{'logits':>9}"
    for each in largest(shares_of(read, path))[:STRONGEST]:
        yield f"{pad(each.label, CELL)}{each.place:>7}{each.share:>+9.1%}{each.value:>+9.2f}"
    if left := largest(shares_of(read, path))[STRONGEST:]:
        share, value = sum(each.share for each in left), sum(each.value for each in left)
        yield f"{pad(f'{count(len(left))} others', CELL)}{'':>7}{share:>+9.1%}{value:>+9.2f}"
    yield complete_words(read)
    yield from notes_of(read)
    yield MEANINGS[read.method]


def scores_table(
    read: protocol.ScoreRead, path: Sequence[str], key: int | None, versus: int | None
) -> Iterator[str]:
    """Why a head looks at one key: a sentence, then the largest shares of the key's writers, the query's, and pairs."""
    place = key if key is not None else next(iter(by_weight(read)), None)
    if place is None:
        return
    yield in_words(read, path, place, versus)
    whole = compared_to(read, read.scores.row(), place, versus)
    base = f"the mean of {count(len(read.keys))} keys" if versus is None else f"token {versus}"
    yield f"{head_name(read)}, token {place}: its score is {whole:+.2f} against {base}"
    lists = [shares(read, place, versus) for shares in (key_shares, query_shares, pair_shares)]
    yield f"{'in the key':<26}{'in the query':<26}query x key"
    for line in range(SHARES):
        found = (shares[line : line + 1] for shares in lists)
        yield "".join(pad("".join(_share(each.name, each.value) for each in cell), 26) for cell in found)
    left = [shares[SHARES:] for shares in lists]
    if any(left):
        sums = [_share(f"{count(len(each))} others", sum(share.value for share in each)) for each in left[:2]]
        cells = [*sums, f"{count(len(left[2]))} more"]  # of pairs, only the largest are known
        yield "".join(pad(cell if each else "", 26) for cell, each in zip(cells, left, strict=True))
    yield from map(visible, read.notes)


def _share(name: str, value: float) -> str:
    return f"{pad(name, 16)}{value:>+7.2f}"


def sweep_table(read: protocol.HeadsSwept) -> Iterator[str]:
    """The units that move the probabilities most, a line each."""
    name = pad(token_label(read.text), UNIT_CELL)
    scope = ", in the whole context" if read.scope == "context" else ""
    followed = f"followed: {token_label(read.text)} ({percent(read.prob)})"
    yield f"{followed}; the strongest of {len(read.units)} units{scope}"
    yield f"{'off':<15}{'KL bits':>8}{'logit':>8}  {name}  then first"
    for unit in read.by_kl[:STRONGEST]:
        changes = f"{unit.intervention.label:<15}{unit.kl_bits:>8.3f}{unit.logit_change:>+8.2f}"
        first = f"{pad(token_label(unit.top_text), UNIT_CELL)} {percent(unit.top_prob):>8}"
        yield f"{changes}  {percent(unit.prob):<{UNIT_CELL}}  {first}"
    yield from read.missing


def patching_table(read: protocol.ActivationsPatched) -> Iterator[str]:
    """The cells that go most of the way to the source, a line each, and the tokens that face each other."""
    what = f"logit of {token_label(read.text)} less that of {token_label(read.other_text)}"
    yield f"{what}: {read.difference:+.2f} here, {read.source_difference:+.2f} in the source"
    places = [(each.position, each.source_position) for each in read.columns]
    faced = facing_words([(own, own if source is None else source) for own, source in places])
    yield f"facing each other, from 0: {faced}"
    if read.floor is not None:
        yield f"the places alone: behind {abs(read.shift)} more tokens this text's difference moves by {read.floor:.2f}"
    rows = [(layer, read.shares.row(row)) for row, layer in enumerate(read.layers)]
    cells = [
        (share, layer, each) for layer, row in rows for share, each in zip(row, read.columns, strict=True)
    ]
    if len(cells) > STRONGEST:
        yield f"the strongest {STRONGEST} of {count(len(cells))} places"
    yield f"{'layer':<7}{'token':>6}  {pad('here', CELL)}  {pad('source', CELL)}{'share':>8}"
    for share, layer, column in sorted(cells, key=lambda cell: -abs(cell[0]))[:STRONGEST]:
        own, given = (truncate(token_label(text), CELL) for text in (column.text, column.source_text))
        yield f"L{layer + 1:<6}{column.position:>6}  {pad(own, CELL)}  {pad(given, CELL)}{share:>8.2f}"
    if read.note:
        yield read.note


def pairs_table(read: protocol.PairsPatched) -> Iterator[str]:
    """The mean share and its spread, a line a layer and a column a class of positions; then the pairs left out."""
    done = [each for each in read.pairs if not each.failure]
    yield f"{len(done)} of {len(read.pairs)} pairs; mean share restored and standard deviation over the pairs"
    yield f"{'':7}" + "".join(f"{f'{each.place} ({each.pairs})':>20}" for each in read.places)
    for row, layer in enumerate(read.layers):
        cells = (f"{each.means[row]:.2f} ± {each.spreads[row]:.2f}" for each in read.places)
        yield f"L{layer + 1:<6}" + "".join(f"{cell:>20}" for cell in cells)
    for place, each in enumerate(read.pairs, 1):
        if each.failure:
            yield f"left out: pair {place}: {visible(each.failure)}"


def intervened_table(read: protocol.Intervened) -> Iterator[str]:
    """The candidates as the model has them, and under the interventions."""
    scope = steered_words(read.scope, read.begin)
    yield (
        f"{interventions_words(read.interventions)}, {scope}: KL {read.kl_bits:.3f} bits, model entropy "
        f"{bits(read.entropy_before_bits)} to {bits(read.entropy_after_bits)} bits, "
        f"largest logit change {read.largest_change:.2f} ({token_label(read.largest_change_text)})"
    )
    own, changed = sides(read.interventions)
    yield f"{'':{UNIT_CELL}}{own:>10}{'rank':>7}{changed:>12}{'rank':>7}{'logit':>8}"
    for each in read.candidates:
        yield (
            f"{pad(token_label(each.before.text, each.before.raw), UNIT_CELL)}{percent(each.before.prob):>10}"
            f"{each.before.rank:>7}{percent(each.after.prob):>12}{each.after.rank:>7}{each.logit_change:>+8.2f}"
        )
    left = left_over(each.before.prob for each in read.candidates)
    left_then = left_over(each.after.prob for each in read.candidates)
    yield f"{pad('others', UNIT_CELL)}{percent(left):>10}{'':>7}{percent(left_then):>12}"
    if read.note:
        yield read.note


def direction_table(read: DirectionMade) -> Iterator[str]:
    """A direction, in two lines."""
    made = read.direction
    yield (
        f"{visible(made.label)} #{made.digest}: the stream after L{made.layer + 1} at the last token, "
        f"the mean of {len(read.toward)} texts less that of {len(read.away)}"
    )
    yield f"length {read.norm:.2f}, {read.norm / read.stream_norm if read.stream_norm else 0:.2f} of the streams'"


def strengths_table(read: StrengthsSwept) -> Iterator[str]:
    """A line a strength: what the direction does, and between what most random directions of its length do."""
    name, other = (token_label(text) for text in (read.text, read.other_text))
    unit = Intervention("direction", read.layer, None, 1.0, read.direction)
    yield (
        f"{visible(unit.label)}, {steered_words(read.scope, read.begin)} ({read.steered} of the path's positions); "
        f"length {read.norm:.2f}, {read.share:.2f} of the stream's"
    )
    yield f"followed: the logit of {name} ({percent(read.prob)}) less that of {other} ({percent(read.other_prob)})"
    yield f"{'strength':>8}{'KL bits':>9}{'random':>16}{'logits':>9}{'random':>18}   then first"
    yield from map(_strength_line, read.strengths)
    band = f"{read.random} random directions of the same length (seed {read.seed})"
    yield f"random: the 5th to the 95th percentile of {band}; * where the logits change by more"
    if read.note:
        yield visible(read.note)


def _strength_line(each: SteeredStrength) -> str:
    if not each.strength:
        return f"{'x0':>8}{0:>9.3f}{'':>16}{0:>+9.2f}"
    kl, change = f"{each.kl_low:.3f}..{each.kl_high:.3f}", f"{each.change_low:+.2f}..{each.change_high:+.2f}"
    mark = "*" if each.beyond else " "
    return (
        f"{f'x{each.strength:g}':>8}{each.kl_bits:>9.3f}{kl:>16}{each.change:>+9.2f}{mark}{change:>17}   "
        f"{pad(token_label(each.top_text), UNIT_CELL)}{percent(each.top_prob):>8}"
    )


def modules_table(read: protocol.ModelModules) -> Iterator[str]:
    """A line a module, as a token meets them, beside the residual stream; layers that are alike in one."""
    yield f"{count(read.parameters)} parameters, {size(read.bytes)} of weights, {read.depth} layers"
    yield f"{pad('', MODULE)}{'params':>8}{'bytes':>10}  what it is"
    for line in module_lines(read):
        numbers = f"{amount(line.parameters) if line.parameters else '':>8}{size(line.bytes) if line.bytes else '':>10}"
        said = " · ".join(filter(None, (line.says, line.shape, line.hooks)))
        yield f"{pad(line.gutter + line.label, MODULE)}{numbers}  {said}"


def experts_table(read: protocol.ExpertsRead) -> Iterator[str]:
    """A line a layer of experts, and one a state."""
    for words in (experts_summary(read.layers), states_summary(read.states)):
        if words:
            yield words
    for layer in read.layers:
        yield f"L{layer.layer + 1}".ljust(6) + f"experts {chosen_words(layer)}"
    for state in read.states:
        changed = "was empty" if state.changed is None else f"changed by {100 * state.changed:.0f} %"
        whole = f"L{state.layer + 1}".ljust(6) + f"state {times(state.shape):<17}{size(state.bytes):>9}"
        yield f"{whole}  norm {state.before:.3g} to {state.norm:.3g}, {changed}"
    yield from map(visible, read.missing)


def position_table(read: protocol.PositionTried) -> Iterator[str]:
    """The change, what it does to all, and the candidates before and after."""
    yield f"What if {trial_of(read).label(False)}? {facts_line(read.use, True)}"
    most = f"{read.largest_change:.2f} ({token_label(read.largest_text)})"
    yield f"KL {read.kl_bits:.3f} bits, largest logit change {most}"
    for token in read.tokens:
        yield f"{pad(token_label(token.text), CELL)}{percent(token.before):>10} to {percent(token.after):>8}"
    left, then = left_over(each.before for each in read.tokens), left_over(each.after for each in read.tokens)
    yield f"{pad('others', CELL)}{percent(left):>10} to {percent(then):>8}"


Table = Callable[[Any, Known], Iterable[str]]


def _alone(table: Callable[[Any], Iterable[str]]) -> Table:
    """A table that needs its record alone."""
    return lambda read, known: table(read)


TABLES: Mapping[type[Record], tuple[str, Table]] = {
    AttentionRead: ("Attention", lambda read, known: attention_table(read, known.path(read.node))),
    protocol.HeadsScored: ("Heads by what they do", _alone(heads_table)),
    protocol.LensRead: ("Logit lens", lambda read, known: lens_table(read, known.labels)),
    AttributionRead: ("Contributions", _alone(contributions_table)),
    protocol.HeadsSwept: ("Switched off one at a time", _alone(sweep_table)),
    protocol.Intervened: ("Changed", _alone(intervened_table)),
    protocol.ActivationsPatched: ("Activation patching", _alone(patching_table)),
    protocol.PairsPatched: ("Activation patching over pairs", _alone(pairs_table)),
    DirectionMade: ("Direction", _alone(direction_table)),
    StrengthsSwept: ("Steering", _alone(strengths_table)),
    GradientsRead: (
        "Gradients",
        lambda read, known: gradients_table(read, known.timeline.tree.path(read.node)),
    ),
    protocol.ScoreRead: (
        "Why it looks there",
        lambda read, known: scores_table(read, known.path(read.node), *known.compared),
    ),
    protocol.ExpertsRead: ("Experts and states", _alone(experts_table)),
    protocol.PositionTried: ("Another position", _alone(position_table)),
    protocol.ModelModules: ("Modules", _alone(modules_table)),
}
"""Title and table of each view."""
