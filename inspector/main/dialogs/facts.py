"""The dialog with the facts about the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.widget import Widget
from textual.widgets import Static

from engine.protocol import ModelFacts, RankFacts, RanksLoaded, SpecialToken
from inspector.display import visible, visible_lines
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.dialog import Dialog

_ROLES = (("begin (BOS)", "BOS"), ("end (EOS)", "EOS"), ("padding (PAD)", "PAD"))


def rows(facts: ModelFacts, ranks: RanksLoaded | None = None) -> Iterator[tuple[str, str]]:
    """Name and value of each fact; printable.

    Args:
        facts: Facts about the model.
        ranks: How the model is divided among processes; None if it isn't.
    """
    yield "name", visible(facts.name)
    if not facts.ran:
        yield "model", "none: a server's reply is shown"
        return
    yield "path", visible(facts.path)
    yield "family", f"{visible(facts.family)}, {facts.layers} layers"
    yield "parameters", f"{facts.parameters:,}"
    unpacked = f"unpacked from {facts.quantized}" if facts.quantized else "not quantized"
    yield "weights", f"{facts.weight_bytes / 2**20:,.1f} MiB, {visible(facts.quantization or unpacked)}"
    if ranks is not None:
        yield "ranks", f"{len(ranks.ranks)}, {ranks.sharding}: " + ", ".join(map(_rank, ranks.ranks))
    by = f", float32 matrices by {visible(facts.blas)}" if facts.blas else ""
    held = f" ({visible(facts.stored)} in the files)" if facts.stored else ""
    yield "computed in", f"{visible(facts.dtype)}{held} on the {visible(facts.backend)}{by}"
    yield "heads", _heads(facts)
    yield "hidden size", "not stated" if facts.hidden_size is None else f"{facts.hidden_size:,}"
    yield "vocabulary", f"{facts.vocabulary:,} ids"
    end = ", and no further" if facts.hard_window else ""
    window = facts.context_window
    yield "context window", "not stated" if window is None else f"{window:,} tokens{end}"
    yield "caches", ", ".join(f"{count} {kind}" for kind, count in Counter(facts.cache_kinds).items())
    if (per_token := facts.kv_bytes_per_token) is None:
        yield "KV of a token", "does not grow with the text"
    else:
        yield "KV of a token", f"{per_token / 1024:,.2f} KiB in all caches together"
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


def _heads(facts: ModelFacts) -> str:
    if facts.heads is None:
        return "none stated"
    kv = "" if facts.kv_heads is None else f", {facts.kv_heads} for keys and values"
    size = "" if facts.head_size is None else f", {facts.head_size} wide"
    return f"{facts.heads}{kv}{size}"


class FactsDialog(Dialog[None]):
    """Shows the facts and the notes about a model.

    Args:
        facts: Facts about the model.
        ranks: How the model is divided among processes; None if it isn't.
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

    def serves(self, made: Dialog[None]) -> bool:
        """True if the new dialog is for the same model."""
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
        for ids, text, about in token_rows(self.facts):
            table.add_row(Text(ids), Text(text, style="italic", overflow="fold"), Text(about))
        return table

    def _template(self) -> Text:
        """The special tokens in the order of their use, and the template's source with them marked."""
        parts = template_parts(self.facts)
        head = ("chat template", "dim"), ", its special tokens in order: ", (uses(parts), "italic"), "\n\n"
        line = 1
        text = Text.assemble(*head, (f"{line:3} ", "dim"))
        for part, special in parts:
            for place, written in enumerate(part.split("\n")):
                if place:
                    line += 1
                    text.append(f"\n{line:3} ", "dim")
                text.append(written, "italic reverse" if special else "")
        return text


# ---- the special tokens, and their places in the chat template: pure functions, printable results ---

ROWS = 200
"""Maximum rows of tokens."""
CHARACTERS = 16_000
"""Maximum characters shown of a template's source."""
USES = 80
"""Maximum number of uses that are listed."""
_FOLDED = 4
"""Number of consecutive numbered tokens from which they share one row."""
_NAMES = {"bos_token": "BOS", "eos_token": "EOS", "pad_token": "PAD", "unk_token": "UNK"}
"""Names by which a template refers to tokens, and their roles."""


TemplatePart = tuple[str, bool]
"""A piece of a template's source, printable, and whether it is a special token, or the name of one."""


def ids_of(facts: ModelFacts, role: str) -> str:
    """The tokens that have a role: `2 <|im_end|>`."""
    tokens = [f"{each.id} {visible(each.text)}" for each in facts.special if role in each.roles]
    return ", ".join(tokens) or "none"


def token_rows(facts: ModelFacts) -> list[tuple[str, str, str]]:
    """The rows of special tokens in the order of their ids: ids, text, and roles with the template's lines that use
    them. A run of tokens that differ only by a number shares a row."""
    lines = _lines(facts)
    rows: list[tuple[str, str, str]] = []
    left = facts.special_count
    for _, numbered in groupby(_numbered(facts.special, lines), lambda each: each[0]):
        run = [token for _, token in numbered]
        if len(run) >= _FOLDED:
            first, last = run[0], run[-1]
            texts = f"{visible(first.text)} to {visible(last.text)}"
            found = [(f"{first.id}-{last.id}", texts, f"{len(run)} tokens")]
        else:
            found = [_row(token, lines) for token in run]
        found = found[: ROWS - len(rows)]
        rows += found
        left -= len(run) if len(run) >= _FOLDED and found else len(found)
    return [*rows, *([("", f"and {left:,} more", "")] if left > 0 else [])]


def template_parts(facts: ModelFacts) -> list[TemplatePart]:
    """The template's source, split at its special tokens; only the beginning of a long one."""
    source = facts.chat_template
    cut = _cut(source[:CHARACTERS], facts.special)
    parts = [(visible(text) if special else visible_lines(text), special) for text, special in cut]
    left = len(source) - CHARACTERS
    return [*parts, *([(f"\n… {left:,} characters more", False)] if left > 0 else [])]


def uses(parts: Iterable[TemplatePart]) -> str:
    """The special tokens of a template in the order of its source."""
    found = [text for text, special in parts if special]
    return " ".join(found[:USES]) + (f" … {len(found) - USES} more" if len(found) > USES else "")


def _cut(source: str, special: Sequence[SpecialToken]) -> Iterator[tuple[str, bool]]:
    """A source in pieces, and whether each is a special token: the longest one that matches."""
    texts = sorted({each.text for each in special if each.text}, key=len, reverse=True)
    names = [rf"\b{name}\b" for name in _NAMES]
    pieces = re.split("(" + "|".join([*map(re.escape, texts), *names]) + ")", source)
    return ((text, bool(place % 2)) for place, text in enumerate(pieces) if text)


def _lines(facts: ModelFacts) -> dict[str, list[int]]:
    """Lines of the template, counted from 1, by a special token's text or the name of its role."""
    lines: dict[str, list[int]] = {}
    line = 1
    for text, mark in _cut(facts.chat_template, facts.special):
        if mark and line not in lines.setdefault(text, []):
            lines[text].append(line)
        line += text.count("\n")
    return lines


def _numbered(
    special: Iterable[SpecialToken], lines: dict[str, list[int]]
) -> Iterator[tuple[object, SpecialToken]]:
    """Each token after a key that is the same within a run: the text without its numbers, and consecutive ids."""
    for place, token in enumerate(special):
        plain = not token.roles and token.text not in lines
        yield ((re.sub(r"\d+", "#", token.text), token.id - place) if plain else token.id), token


def _row(token: SpecialToken, lines: dict[str, list[int]]) -> tuple[str, str, str]:
    names = [name for name, role in _NAMES.items() if role in token.roles]
    found = sorted({line for key in (token.text, *names) for line in lines.get(key, ())})
    shown = ", ".join(map(str, found[:8])) + (" …" if len(found) > 8 else "")
    where = f"template line {shown}" if found else ""
    return str(token.id), visible(token.text), "  ".join([*token.roles, where]).strip()
