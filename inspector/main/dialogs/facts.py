"""The dialog with what is known of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.widget import Widget
from textual.widgets import Static

from engine.protocol import ModelFacts, RankFacts, RanksLoaded
from inspector.display import visible
from inspector.main.dialogs.special_tokens import ids_of, template_parts, token_rows, uses
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.dialog import Dialog
from inspector.widgets.overlay import Overlay

_ROLES = (("begin (BOS)", "BOS"), ("end (EOS)", "EOS"), ("padding (PAD)", "PAD"))


def rows(facts: ModelFacts, ranks: RanksLoaded | None = None) -> Iterator[tuple[str, str]]:
    """Name and value of each fact; printable.

    Args:
        facts: Of the model.
        ranks: How it is divided over processes; None where it isn't.
    """
    yield "name", visible(facts.name)
    yield "path", visible(facts.path)
    yield "family", f"{visible(facts.family)}, {facts.layers} layers"
    yield "parameters", f"{facts.parameters:,}"
    yield (
        "weights",
        f"{facts.weight_bytes / 2**20:,.1f} MiB, {visible(facts.quantization or 'not quantized')}",
    )
    if ranks is not None:
        yield "ranks", f"{len(ranks.ranks)}, {ranks.sharding}: " + ", ".join(map(_rank, ranks.ranks))
    by = f", float32 matrices by {visible(facts.blas)}" if facts.blas else ""
    held = f" ({visible(facts.stored)} in the files)" if facts.stored else ""
    yield "computed in", f"{visible(facts.dtype)}{held} on the {visible(facts.backend)}{by}"
    yield "heads", _heads(facts)
    yield "hidden size", _or_unknown(facts.hidden_size)
    yield "vocabulary", f"{facts.vocabulary:,} ids"
    yield "context window", _window(facts)
    yield "caches", ", ".join(f"{count} {kind}" for kind, count in Counter(facts.cache_kinds).items())
    yield "KV of a token", _per_token(facts)
    if facts.special:
        for name, role in _ROLES:
            yield name, ids_of(facts, role)
        yield "special tokens", f"{facts.special_count:,}"
    else:
        yield "end of sequence", ", ".join(map(str, facts.eos_ids)) or "none stated"
    yield "chat template", "yes" if facts.has_chat_template else "no: prompts are raw"
    yield "loaded in", f"{facts.load_ms:,.0f} ms"


def _rank(rank: RankFacts) -> str:
    layers = f"layers {rank.first_layer + 1} to {rank.first_layer + rank.layers}"
    return f"{rank.rank} on {visible(rank.host)} ({layers}, {rank.weight_bytes / 2**20:,.1f} MiB)"


def _number(line: int) -> str:
    return f"{line:3} "


def _or_unknown(value: int | None) -> str:
    return "not stated" if value is None else f"{value:,}"


def _heads(facts: ModelFacts) -> str:
    if facts.heads is None:
        return "none stated"
    kv = "" if facts.kv_heads is None else f", {facts.kv_heads} for keys and values"
    size = "" if facts.head_size is None else f", {facts.head_size} wide"
    return f"{facts.heads}{kv}{size}"


def _window(facts: ModelFacts) -> str:
    if facts.context_window is None:
        return "not stated"
    return f"{facts.context_window:,} tokens" + (", and no further" if facts.hard_window else "")


def _per_token(facts: ModelFacts) -> str:
    if facts.kv_bytes_per_token is None:
        return "does not grow with the text"
    return f"{facts.kv_bytes_per_token / 1024:,.2f} KiB in all caches together"


class FactsDialog(Dialog[None]):
    """Shows the facts and the notes of a model.

    Args:
        facts: Of the model.
        ranks: How it is divided over processes; None where it isn't.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "Among the facts", note("up down", hint="scroll", worth=5), told=False
    )
    KEPT: ClassVar[tuple[str, ...]] = ("facts",)
    HEADING: ClassVar[str] = "Model"
    LEAVE: ClassVar[str] = "Close"

    def __init__(self, facts: ModelFacts, ranks: RanksLoaded | None = None) -> None:
        super().__init__()
        self.facts, self.ranks = facts, ranks

    def serves(self, made: Overlay[None]) -> bool:
        """Whether it is the same model."""
        return isinstance(made, FactsDialog) and (made.facts, made.ranks) == (self.facts, self.ranks)

    def body(self) -> Iterable[Widget]:
        table = Table.grid(padding=(0, 2))
        for name, value in rows(self.facts, self.ranks):
            table.add_row(Text(name, style="dim"), Text(value, overflow="fold"))
        yield Static(table, id="facts-table")
        for remark in self.facts.notes:
            yield Static(Text(f"• {visible(remark)}"), classes="fact-note")
        if self.facts.special:
            yield Static(self._special(), id="facts-special", classes="fact-part")
        if self.facts.chat_template:
            yield Static(self._template(), id="facts-template", classes="fact-part")

    def _special(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_row(Text("id", style="dim"), Text("special token", style="dim"), "")
        for row in token_rows(self.facts):
            table.add_row(Text(row.ids), Text(row.text, style="italic", overflow="fold"), Text(row.about))
        return table

    def _template(self) -> Text:
        """The special tokens in the order of their use, and the source with them in sight."""
        parts = template_parts(self.facts)
        text = Text.assemble(
            ("chat template", "dim"), ", its special tokens in order: ", (uses(parts), "italic")
        )
        text.append("\n\n")
        line = 1
        text.append(_number(line), "dim")
        for part in parts:
            for place, written in enumerate(part.text.split("\n")):
                if place:
                    line += 1
                    text.append("\n" + _number(line), "dim")
                text.append(written, "italic reverse" if part.marks else "")
        return text
