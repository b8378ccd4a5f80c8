"""Activation patching: activations of another path, put in position by position, and the map of what they restore."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import asdict
from rich.segment import Segment
from textual import on
from textual.geometry import clamp
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import TextArea

from engine.errors import EngineError
from engine.protocol import (
    ActivationsPatched,
    Command,
    Facing,
    Intervention,
    MoveTo,
    PairsPatched,
    PatchActivations,
    PatchKind,
    PatchPair,
    PatchPairs,
    Prefill,
    Prefilled,
    PreviewPrompt,
    PromptOpened,
    PromptPreview,
    Step,
)
from engine.recording import as_json
from engine.tree import aligned, facing
from inspector.blocks.blocks import sentence, sentences
from inspector.blocks.heat_map import LABEL, SHARES, HeatMap
from inspector.blocks.paint import Painter
from inspector.display import first_fitting, pad, quoted, token_label, truncate, visible
from inspector.documents.patching import NAMES, alignment, difference, over_pairs
from inspector.keys import with_keys
from inspector.main.dialogs.prompt import CUTTING, LATER, SHORT
from inspector.main.inside_view import TITLED, InsideView, Notice, instead_of, look_table, told, walking
from inspector.main.tool import OfferedHeat
from inspector.scales import count, counted, signed
from inspector.session.client import Request
from inspector.session.requests import Latest, Replies, failure_words
from inspector.state.patching import after, alignment_words, faced_with, pair, pairs_from, partner_of
from inspector.state.session_tree import Item, quoted_label
from inspector.state.timeline import Timeline
from inspector.texts import read_text_file
from inspector.widgets.actions import NEW_LINE, Action, ActionTable, applies, both, dialog_table, note
from inspector.widgets.canvas import Canvas, Row, centred
from inspector.widgets.charts import in_sight
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import MOST_TYPED, SafeTextArea
from inspector.widgets.pieces import PieceList

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

NARROW, CELL, WIDEST = 2, 5, 9
"""Cells of a position without a number, and minimum and maximum cells of one with a number."""
SKIPS = "┆"
"""The mark of a column before which unaligned tokens are left out."""
TOO_LONG = "The text is too long to be edited. Give another prompt on the main screen: it is a source."
WORDS = (
    "In each cell, one layer at one position computes what it did in the source; all else runs as here. "
    "A share near 1 means that the difference is carried there; near 0, that it isn't, or that it is elsewhere, too. "
    "Below 0, the effect is the opposite."
)

_MOVE = "Look at another layer, or at another position."
PATCHING_KEYS = look_table(
    "In activation patching",
    *both(("patching.later_layer", "patching.earlier_layer"), ("Later layer", "Earlier layer"), _MOVE,
          lambda own, by: own.move_cursor(by, 0), by=(1, -1), hint=lambda own: own.words[0], worth=8),
    *both(("patching.position_before", "patching.next_position"), ("Previous position", "Next position"), _MOVE,
          lambda own, by: own.move_cursor(0, by), hint=lambda own: own.words[1], worth=8),
    Action("patching.source", "Source",
           "Take the activations from another prompt or branch; of another length, common blocks face each other.",
           lambda own: own.change_source(), hint=lambda own: "source" if len(own.sources) > 1 and own.mapping else "",
           worth=7),
    Action("patching.edit", "Edit",
           "Edit the text on show as the counterfactual prompt, whose activations are put in.",
           lambda own: own.edit(), hint=lambda own: "edit" if own.live and own.mapping else "", worth=8),
    Action("patching.part", "Part",
           "Patch whole layers (the stream after each), or the outputs of their attention or MLP.",
           lambda own: own.change_part(), worth=6,
           hint=lambda own: f"put in: {own.part}" if own.over_pairs or own.following else ""),
    *both(("patching.next_token", "patching.token_before"), ("Next token", "Previous token"),
          "Follow the logit of another token, which the source should favour.",
          lambda own, by: own.follow_other(0, by), by=(1, -1), worth=7, one=True,
          hint=lambda own: "follow" if own.following else ""),
    *both(("patching.compare", "patching.compare_back"), ("Against the next", "Against the previous"),
          "Subtract the logit of another token, which this text should favour.",
          lambda own, by: own.follow_other(1, by), by=(1, -1), hint=lambda own: "against" if own.following else "",
          worth=7, one=True),
    Action("patching.facing", "Alignment",
           "Show which token faces which of the source; there `{patching.position_before}` `{patching.next_position}` "
           "change it, and this key puts it in force.",
           lambda own: own.turn_facing(), worth=6,
           hint=lambda own: "use it" if own.faced is not None else "alignment" if own.live and own.following else ""),
    Action("patching.unface", "Face none", "In the alignment: let this token face none, so that its activations stay.",
           lambda own: own.unface(), hint=lambda own: "none" if own.faced is not None else "", worth=6),
    Action("patching.usual", "Common blocks", "Align by common blocks again, and follow the tokens that differ most.",
           lambda own: own.usual(), worth=4,
           hint=lambda own: "usual" if (own.followed or own.facing) and not own.over_pairs else ""),
    Action("patching.pairs", "Pairs",
           "Patch a set of pairs of texts, from a file or as they are typed: means and spread by layer and kind of "
           "position. Again: back to the single path.",
           lambda own: own.turn_pairs(), worth=5,
           hint=lambda own: "one path" if own.over_pairs else "" if own.faced is not None else "set of pairs"),
    *walking(""),
    shared=False,
)  # fmt: skip
PAIRS_KEYS = dialog_table(
    "While a set of pairs is given",
    note("tab", hint="next field", worth=3),
    NEW_LINE,
    applies("Patch each pair, and show the means."),
)
COUNTERFACTUAL_KEYS = dialog_table(
    "While a counterfactual prompt is edited",
    note("tab", hint="next field", worth=3),
    NEW_LINE,
    applies("Read it, and put what it computes into the path on show."),
)


class Patching(InsideView[ActivationsPatched]):
    """Activations of another path, put into this one."""

    TOOL: ClassVar[str] = "interventions"
    OF_BOTH: ClassVar[bool] = False
    ACTIONS: ClassVar[ActionTable] = PATCHING_KEYS
    DIALOGS: ClassVar[tuple[ActionTable, ...]] = (COUNTERFACTUAL_KEYS, PAIRS_KEYS)

    def __init__(self, host: MainScreen) -> None:
        client = host.controller.client
        super().__init__(host, Replies(client, ActivationsPatched))
        self.pairs = Replies(client, PairsPatched)
        self.given: tuple[PatchPair, ...] = ()
        """The pairs that were given last."""
        self.over_pairs = False
        """True if the means over these pairs are on show."""
        self.part: PatchKind = "layer"
        self.cursor: tuple[int, int] | None = None
        """Row and column of the map that are looked at; None for the largest share."""
        self.followed: tuple[int, int] | None = None
        """The two tokens that the user chose; None for those that tell both paths apart."""
        self.facing: Facing | None = None
        """The chosen alignment of both paths; None for common blocks."""
        self.faced: Facing | None = None
        """The alignment that is being changed; None while the map is on show."""
        self._place = 0
        """Index in the path of the token whose partner is being changed."""
        self._chosen: int | None = None
        """The last token of the chosen source; None for the first path that can be one."""
        self._chosen_at: tuple[int, int | None] = (-1, -1)
        """Last tokens of the two paths for which tokens and alignment were chosen."""
        self._reading = False
        """True while a counterfactual prompt is read: the session is at that prompt instead of the path on show."""
        self._sources_at: tuple[int, int] = (-1, -1)
        """The node and the size of the tree for which the sources were found."""
        self._adopted = -1
        """The token of a recording for which the recorded source and part were chosen."""
        self.sources: list[int] = []
        """The last tokens of the paths whose activations can be taken. `look` sets this and the next three."""
        self.source: int | None = None
        """The last token of the source."""
        self.source_path: Sequence[Item] = ()
        self.telling: tuple[int, int] | None = None
        """The two tokens that are followed: the chosen ones, or else those that tell both paths apart."""

    def begin(self) -> None:
        """Begin with the map of one path, at its largest share."""
        self.cursor = self.faced = None
        self.over_pairs, self._adopted = False, -1

    def offered(self, answer: ActivationsPatched, path: Sequence[Item]) -> OfferedHeat:
        """The share that each token of the map restores, at the layer that was looked at last."""
        return restored(answer, self._at(answer)[0], quoted_label(path[-1]))

    def _at(self, read: ActivationsPatched) -> tuple[int, int]:
        """Row and column of the cursor in a map: at first the largest share of all positions but the last, where every
        difference arrives."""
        layers, columns = len(read.layers), len(read.columns)
        if self.cursor is None:
            places = [(row, at) for row in range(layers) for at in range(max(1, columns - 1))]
            return max(places, key=lambda place: read.shares.row(place[0])[place[1]])
        return clamp(self.cursor[0], 0, layers - 1), clamp(self.cursor[1], 0, columns - 1)

    # ---- asking ---------------------------------------------------------------------------------

    def look(self) -> None:
        """See `InsideView`; find the source and the tokens that are followed. In a recording, begin with a source and
        a part that were recorded for the token."""
        timeline, tree, node = self.timeline, self.timeline.tree, self.timeline.before
        if not self.live and self._adopted != node:
            self._adopted = node
            recorded = self.answers.about(node)
            if recorded and not any(key[1:3] == (self._chosen, self.part) for key in recorded):
                self._chosen, self.part = recorded[-1][1:3]
        if self._sources_at != (node, len(tree.nodes)):
            self._sources_at = node, len(tree.nodes)
            self.sources = sources(timeline, node) if timeline.slot else []
        self.source = self._chosen if self._chosen in self.sources else next(iter(self.sources), None)
        self.source_path = tree.path(self.source) if self.source is not None else ()
        if self._chosen_at != (node, self.source):  # what was chosen for other paths is forgotten
            self._chosen_at, self.followed, self.facing = (node, self.source), None, None
        self.telling = self.followed
        if self.source is not None and self.telling is None:
            self.telling = pair(after(timeline, node), after(timeline, self.source))
        super().look()

    def question(self) -> tuple[Hashable, Command]:
        end, both = self.node if self.source is None else self.source, self.telling or (0, 0)
        command = PatchActivations(self.node, end, *both, self.part, self.facing)
        key = self.node, end, self.part, both, self.facing
        if not self.live and self.answers.get(key) is None:
            key = next(reversed(self.answers.about(*key[:3])), key)
        return key, command

    def ask(self) -> None:
        """See `InsideView`; ask only if there is a source, and two tokens to follow."""
        if self.over_pairs:
            self.pairs.want(self._pairs_key, PatchPairs(self.given, self.part))
        elif not self._reading and self.faced is None and self.telling is not None:
            super().ask()

    @property
    def _pairs_key(self) -> Hashable:
        return self.part, self.given

    def drop(self) -> None:
        self.pairs.drop()
        super().drop()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: ActivationsPatched | None) -> str:
        if self.over_pairs:
            return f"Patching over {count(len(self.given))} pairs: {NAMES[self.part]}"
        if self.source is None:
            return "Patching"
        what, room = f"Patching: {NAMES[self.part]}", self.area.width - TITLED
        long = f"{what} put in from another prompt or branch"
        return first_fitting(room, long, f"{what} from the source", what)

    def situation(self) -> str:
        if self.over_pairs:
            return told(self.pairs, self._pairs_key, self.app.size.width - 2)
        return super().situation()

    def _source_words(self, source: int) -> str:
        found, path = self.sources, self.timeline.tree.path(source)
        place = f" ({found.index(source) + 1} of {len(found)})" if len(found) > 1 else ""
        return f"Source: {counted(len(path), 'token')}{place}, “{difference(self.path, path)}”"

    def draw(self, answer: ActivationsPatched, on: Canvas, width: int, height: int) -> list[Row]:
        painter, cell = Painter(on), self._cell_words(answer)
        token, other = (quoted(token_label(text)) for text in (answer.text, answer.other_text))
        sides = f"{signed(answer.difference)} here, {signed(answer.source_difference)} in the source."
        source = f"Source: node {answer.source}" if self.source is None else self._source_words(self.source)
        followed = sentence(f"Logit of {token} minus {other}: {sides}", f"{token} − {other}: {sides}")
        aligned_so = sentences([alignment_words(answer)], "")
        top = painter.draw([sentence(truncate(source, width)), followed, *aligned_so], width, height)
        below = painter.draw((sentence(*cell, tone="strong"), sentence(WORDS, tone="muted")), width, height)
        if height < 9:
            return [*self._map(answer, on, width, max(3, height - 2)), below[0], *top, *below[1:]]
        room = min(height - len(top) - 2, len(answer.layers) + 3)
        says = "Share of the difference restored: ", "Share: "
        legend = SHARES.legend(on, self._cells(answer, width), width, *says)
        return [*top, *self._map(answer, on, width, max(3, room)), legend, *below]

    def _cells(self, answer: ActivationsPatched, width: int) -> int:
        """Cells of a position: enough for a number, unless most positions would then be out of sight."""
        each = (width - LABEL) // len(answer.columns)
        return clamp(each, CELL, WIDEST) if each >= NARROW else NARROW

    def _map(self, answer: ActivationsPatched, on: Canvas, width: int, height: int) -> list[Row]:
        """As many layers as fit, below the tokens of this path and the source's tokens that differ."""
        at, columns, cell = self._at(answer), answer.columns, self._cells(answer, width)
        shown = in_sight(len(columns), max(1, (width - LABEL) // cell), at[1])
        heads: list[Row] = [[Segment(pad(name, LABEL), on.ink("muted"))] for name in ("here", "src")]
        for place in shown:
            each, before = columns[place], columns[max(0, place - 1)]
            skips = each.position > before.position + 1
            skips = skips or partner_of(answer, each) > partner_of(answer, before) + 1
            labels = (
                token_label(each.text),
                "" if each.id == each.source_id else token_label(each.source_text),
            )
            own, other = (pad(truncate(label, cell - 1), cell, right=True) for label in labels)
            for row, text in zip(heads, (f"{SKIPS}{own[1:]}" if skips else own, other), strict=True):
                row.append(Segment(text, on.ink("strong" if place == at[1] else "muted")))
        shares = cache(answer.shares.row)
        mapped = HeatMap(SHARES, answer.layers, lambda layer, column: shares(layer)[column], at)
        part = "columns", shown, len(columns)
        return mapped.draw(on, heads, dict.fromkeys(shown, cell), part, width, height)

    def _cell_words(self, answer: ActivationsPatched) -> tuple[str, str]:
        """The cell under the cursor in a sentence, and in a shorter one."""
        layer, column = self._at(answer)
        each, share = answer.columns[column], answer.shares.row(layer)[column]
        token, there = token_label(each.text), token_label(each.source_text)
        source = quoted(there) if there != token else "the same token"
        if (partner := partner_of(answer, each)) != each.position:
            source += f", its token {partner + 1}"
        at, place = f"L{answer.layers[layer] + 1}", f"token {each.position + 1}"
        return (
            f"{at} at {place}, {quoted(token)} (source: {source}): {signed(share)} of the difference is restored.",
            f"{at}, {place} {quoted(token)}: {signed(share)} restored.",
        )

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        """See `InsideView`; draw the pairs, or the alignment while it is changed, instead of the answer."""
        if self.over_pairs:
            answer = self.pairs.get(self._pairs_key)
            waiting = "The pairs are run through the model, one after another."
            why = instead_of(on, self.pairs, self._pairs_key, waiting)
            if answer is None or why:
                return centred(why, width, height)
            return Painter(on).draw(over_pairs(answer), width, height)
        if self.faced is None or self.source is None:
            return super()._draw(on, width, height)
        blocks = alignment(self.path, self.source_path, self.faced, self._place)
        return Painter(on).draw(blocks, width, height)

    def _instead(self, on: Canvas) -> Notice:
        if self._reading:
            return [("The counterfactual prompt is being read.", on.rich_style)]
        if self.answer is None and self.path and self.live and self.telling is None:
            why = "Patching puts what the model computed for another prompt into this one, place by place."
            advice = (
                "There is no other prompt or branch without interventions yet: {patching.edit} edits this text; change "
                "a word of it."
            )
            if self.source is not None:
                why = "It isn't known what one of the two paths predicts here."
                advice = "Choose another token with ← →, or another source with {patching.source}."
            return [(why, on.rich_style), (with_keys(advice), on.ink("muted"))]
        source = [] if self.source is None else [(self._source_words(self.source), on.ink("muted"))]
        return [*super()._instead(on), *source]

    # ---- keys -----------------------------------------------------------------------------------

    @property
    def mapping(self) -> bool:
        """True if the map of the two paths is on show, or the reason that there is none."""
        return not self.over_pairs and self.faced is None

    @property
    def following(self) -> bool:
        """True if the map of the two paths is on show, or will be."""
        return self.mapping and self.telling is not None

    @property
    def words(self) -> tuple[str, str]:
        """The words for the up and down keys, and for the left and right keys."""
        if self.over_pairs:
            return "scroll", ""
        if self.faced is not None:
            return "token", "partner"
        return ("layer", "position") if self.answer is not None and self.failed is None else ("", "")

    def move_cursor(self, layers: int, columns: int) -> None:
        """Look at another layer or position; in the alignment, at another token, or change its partner."""
        if self.over_pairs:
            self.view.action_move(-layers)
        elif self.faced is not None:
            self._place = place = clamp(self._place - layers, 0, len(self.path) - 1)
            if columns:  # an unaligned token begins with the place after the last partner before it
                before = max((partner for own, partner in self.faced if own < place), default=-1)
                now = dict(self.faced).get(place)
                wanted = before + 1 if now is None else now + columns
                self.faced = faced_with(self.faced, place, clamp(wanted, 0, len(self.source_path) - 1))
        elif (answer := self.answer) is not None and self.failed is None:
            layer, column = self._at(answer)
            self.cursor = layer + layers, column + columns
            self.cursor = self._at(answer)

    def change_source(self) -> None:
        if self.source is not None:
            self._chosen = self.sources[(self.sources.index(self.source) + 1) % len(self.sources)]
            self.faced = self.cursor = None

    def change_part(self) -> None:
        """Patch the next kind of part."""
        parts = [*NAMES]
        self.part = parts[(parts.index(self.part) + 1) % len(parts)]

    def follow_other(self, side: int, by: int) -> None:
        """Change one of the two tokens: side 0 is the one whose logit is followed, side 1 the subtracted one."""
        both = self.telling
        if self.source is None or both is None or not self.live:
            return
        known = [*after(self.timeline, self.source), *after(self.timeline, self.node)]
        ids = dict.fromkeys(each.id for each in sorted(known, key=lambda each: each.rank))
        if others := [id for id in ids if id != both[1 - side]]:
            new = others[(others.index(both[side]) + by) % len(others) if both[side] in others else 0]
            self.followed = (both[0], new) if side else (new, both[1])

    def turn_facing(self) -> None:
        """Show the alignment to change it; if it is on show, put it in force."""
        if self.source is None or not self.live:
            return
        own, other = ([item.id for item in path] for path in (self.path, self.source_path))
        usual = tuple(aligned(own, other))
        if self.faced is None:
            first, _ = facing(own, other)
            self.faced, self._place = self.facing or usual, min(first, len(self.path) - 1)
        else:
            self.facing = None if self.faced == usual else self.faced
            self.faced = self.cursor = None

    def unface(self) -> None:
        """Leave the token at the cursor unaligned."""
        if self.faced is not None:
            self.faced = faced_with(self.faced, self._place, None)

    def usual(self) -> None:
        """Align by common blocks, and follow the tokens that tell both paths apart."""
        self.faced = self.facing = self.followed = None

    def turn_pairs(self) -> None:
        """Ask for a set of pairs and patch them, or go back to the one path. A recording shows the last set it has."""
        if self.over_pairs:
            self.over_pairs = False
            self.pairs.drop()
        elif self.live:
            self.drop()
            self.host.open(PairsDialog(self.given), self._take_pairs)
        elif known := self.pairs.about():
            self.part, self.given = known[-1]
            self.over_pairs = True
        else:
            self.say("No set of pairs was recorded")

    def _take_pairs(self, pairs: tuple[PatchPair, ...] | None) -> None:
        if pairs is not None:
            self.given, self.over_pairs, self.faced = pairs, True, None
        self.changed()

    def back(self) -> None:
        """Go back: from the alignment or the pairs to the map of one path."""
        if self.faced is not None:
            self.faced = None
        elif self.over_pairs:
            self.turn_pairs()
        else:
            super().back()

    def edit(self) -> None:
        """Edit the text on show as the prompt whose activations are put in."""
        if not self.live or self._reading or not self.path:
            return
        opened, first = self.timeline.prompts.opened, self.path[0]
        # a special token that the tokenizer puts before every text is not typed
        added = opened is not None and first.special and not opened.text.startswith(first.text)
        text = "".join(item.text for item in self.path[added:])
        if len(text) > MOST_TYPED:
            self.say(TOO_LONG)
            return
        lookup = Latest(self.host.controller.client)
        self.host.open(CounterfactualDialog(text, [item.id for item in self.path], lookup), self._read)

    def _read(self, text: str | None) -> None:
        """Have the edited prompt read, and come back to the path on show."""
        if text is None:
            return
        client, timeline = self.host.controller.client, self.timeline
        tip, slot = timeline.tip, None if timeline.following else timeline.slot
        self._reading = True
        self.drop()

        def read(request: Request[Prefill]) -> None:
            opened = request.reply(PromptOpened)
            if request.failure is not None:
                self.said = failure_words(request.failure)
            elif opened is not None and request.reply(Prefilled) is not None:
                self._chosen, self.cursor = opened.tokens[-1].node, None
            if opened is None:
                came_back()
                return
            if slot is not None:
                timeline.expect(slot)
            client.request(MoveTo(tip), came_back)

        def came_back(request: Request[MoveTo] | None = None) -> None:
            self._reading = False
            self.host.changed()
            self.changed()

        client.do(Prefill(text, False, echo=False), read)


@lru_cache(maxsize=1)  # the same object as long as nothing changes
def restored(read: ActivationsPatched, layer: int, token: str) -> OfferedHeat:
    """The share that each token restores at a layer.

    Args:
        read: All shares.
        layer: Index of the layer in the map.
        token: The last token, quoted.
    """
    what = Intervention(read.part, read.layers[layer]).label
    shares = {
        column.node: clamp(share, -1.0, 1.0)
        for column, share in zip(read.columns, read.shares.row(layer), strict=True)
        if math.isfinite(share)
    }
    return OfferedHeat(f"what {what} restores after {token}", shares, signed=True)


def sources(timeline: Timeline, node: int) -> list[int]:
    """The last tokens of paths that can be sources: first those at the node's position, then other prompts and leaves.

    Args:
        timeline: Provides the tree and the prompts.
        node: The end of the path that is patched.
    """
    tree, position = timeline.tree, timeline.tree.nodes[node].position
    own = {item.node for item in (*tree.path(node), *timeline.items)}
    ends = {read.opened.tokens[-1].node for read in timeline.prompts.by_end.values() if read.opened.tokens}
    found = [
        each
        for each, item in tree.nodes.items()
        if (item.position == position or each in ends or not tree.children.get(each))
        and each not in own
        and not (isinstance(item, Step) and item.origin == "intervened")
    ]
    return sorted(found, key=lambda each: (tree.nodes[each].position != position, each))


# ---- the counterfactual prompt ------------------------------------------------------------------

MOST_CUT = 4096
"""Maximum number of tokens of an edited prompt that are compared with the path's while it is typed."""


class CounterfactualDialog(Dialog[str]):
    """Asks for a text to patch from.

    Args:
        text: The text of the path, to be edited.
        ids: The tokens of the path.
        lookup: Asks the engine how the text is tokenized.
    """

    ACTIONS: ClassVar[ActionTable] = COUNTERFACTUAL_KEYS
    HEADING: ClassVar[str] = "Counterfactual prompt: change what should make the difference"
    APPLY: ClassVar[str] = "Patch from it"

    def __init__(self, text: str, ids: Sequence[int], lookup: Latest) -> None:
        super().__init__()
        self._text, self._ids, self._lookup = text, ids, lookup
        self._timer: Timer | None = None

    def body(self) -> Iterable[Widget]:
        yield SafeTextArea(id="counterfactual-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(CUTTING, id="counterfactual-remark")
        yield PieceList(both_ends=True, id="counterfactual-pieces")

    def begin(self) -> None:
        """Begin at the end of the text: most prompts differ near it."""
        super().begin()
        editor = self.query_one("#counterfactual-text", SafeTextArea)
        editor.load_text(self._text)
        editor.move_cursor(editor.document.end)

    def let_go(self) -> None:
        self._lookup.drop()

    @property
    def typed(self) -> str:
        return self.query_one("#counterfactual-text", SafeTextArea).text

    @on(TextArea.Changed)
    def _changed(self) -> None:
        """Have the text tokenized again; a long one only after a moment without a key press."""
        if self._timer is not None:
            self._timer.stop()
        if len(self.typed) > SHORT:
            self._timer = self.set_timer(LATER, self._ask)
        else:
            self._ask()

    def _ask(self) -> None:
        if not self.left and self.typed:
            self._lookup.ask(PreviewPrompt(self.typed, False, most=MOST_CUT), self._answered)

    def _answered(self, request: Request[PreviewPrompt]) -> None:
        remark = self.query_one("#counterfactual-remark", Remark)
        if (failure := request.failure) is not None:
            remark.say(failure_words(failure), wrong=True)
        elif (answer := request.reply(PromptPreview)) is not None:
            faced = "" if answer.last else facing_words(self._ids, [piece.id for piece in answer.first])
            remark.say(f"{_tokens(answer.tokens)}, {len(self._ids):,} here. {faced}".rstrip())
            between = answer.tokens - len(answer.first) - len(answer.last)
            self.query_one("#counterfactual-pieces", PieceList).put_ends(answer.first, answer.last, between)

    def apply(self) -> None:
        """Read what was typed, or say what is wrong with it."""
        if self.typed and self.typed != self._text:
            self.dismiss(self.typed)
        else:
            why = "This is still the text on show. Change a word of it." if self.typed else "It is empty."
            self.query_one("#counterfactual-remark", Remark).say(why, wrong=True)


def facing_words(own: Sequence[int], source: Sequence[int]) -> str:
    """The alignment of two paths in a sentence or two.

    Args:
        own: Token ids of the path that is patched.
        source: Token ids of the source.
    """
    first, _ = facing(own, source)
    if first == len(own) == len(source):
        return "Both have the same tokens."
    if len(own) == len(source):
        return f"Equal lengths: each token faces the one in the same place. They differ from token {first + 1:,} on."
    faced = len(aligned(own, source))
    here, there = _tokens(len(own) - faced), _tokens(len(source) - faced)
    return (
        f"{_tokens(faced).capitalize()} face each other, by common blocks. "
        f"{here.capitalize()} here and {there} of the source face none."
    )


def _tokens(number: int) -> str:
    return counted(number, "token") if number else "no token"


# ---- pairs of texts -------------------------------------------------------------------------------

EXAMPLE = (
    PatchPair("Lily lost her ball. She felt very", "Lily found her ball. She felt very", " happy", " sad"),
    PatchPair("Tom broke his toy. He was so", "Tom got a new toy. He was so"),
    PatchPair("Max was sick. He felt very", "Max won the big race. He felt very"),
)
"""The initial text of the field, which shows the format."""
SHAPE = (
    "A pair on each line, or the name of a file of such lines. What the model computes for source "
    "is put into text. Compared is the logit of token, which source should favour, minus that of other; without these "
    "two, of the tokens that tell both texts apart."
)


class PairsDialog(Dialog[tuple[PatchPair, ...]]):
    """Asks for a set of pairs.

    Args:
        given: The pairs that were given last; empty for the example.
    """

    ACTIONS: ClassVar[ActionTable] = PAIRS_KEYS
    HEADING: ClassVar[str] = "Patch a set of pairs"
    APPLY: ClassVar[str] = "Patch"

    def __init__(self, given: Sequence[PatchPair] = ()) -> None:
        super().__init__()
        self._given = given or EXAMPLE

    def body(self) -> Iterable[Widget]:
        yield SafeTextArea(id="pairs-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(SHAPE, id="pairs-remark")

    def begin(self) -> None:
        super().begin()
        editor = self.query_one("#pairs-text", SafeTextArea)
        lines = ({name: text for name, text in asdict(each).items() if text} for each in self._given)
        editor.load_text("\n".join(as_json(line).decode() for line in lines))

    def apply(self) -> None:
        """Take the pairs, or say what is wrong with them."""
        text, name = self.query_one("#pairs-text", SafeTextArea).text.strip(), "What you typed"
        try:
            if text and not text.startswith("{"):
                name = text
                text = read_text_file(
                    name, "file of pairs", "Check the path's spelling.", "Give a regular file."
                )
            pairs = pairs_from(text, name)
        except EngineError as error:
            self.query_one("#pairs-remark", Remark).say(visible(str(error)), wrong=True)
        else:
            self.dismiss(pairs)
