"""The special tokens of a model as rows, and where its chat template has them. Pure; what is returned is printable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from engine.frozen import frozen
from engine.protocol import ModelFacts, SpecialToken
from inspector.display import visible, visible_lines

ROWS = 200
"""Rows of tokens at most."""
CHARACTERS = 16_000
"""Of a template's source that are shown."""
USES = 80
"""Uses that are listed at most."""
_FOLDED = 4
"""Numbered tokens in a row from which they share one row."""
_NAMES = {"bos_token": "BOS", "eos_token": "EOS", "pad_token": "PAD", "unk_token": "UNK"}
"""How a template writes a token by its role."""


@frozen
class TemplatePart:
    """A piece of a template's source, printable."""

    text: str
    marks: bool
    """Whether it is a special token, or the name of one."""


@frozen
class TokenRow:
    """One special token, or a run of those that differ by a number alone."""

    ids: str
    text: str
    about: str


def ids_of(facts: ModelFacts, role: str) -> str:
    """The tokens that have a role: `2 <|im_end|>`."""
    tokens = [f"{each.id} {visible(each.text)}" for each in facts.special if role in each.roles]
    return ", ".join(tokens) or "none"


def token_rows(facts: ModelFacts) -> list[TokenRow]:
    """The special tokens by id, with roles and the template's lines that have them."""
    lines = _lines(facts)
    rows = [row for _, run in groupby(_numbered(facts.special, lines), lambda each: each[0])
            for row in _rows([token for _, token in run], lines)]  # fmt: skip
    left = facts.special_count - sum(_size(row) for row in rows[:ROWS])
    return [*rows[:ROWS], *([TokenRow("", f"and {left:,} more", "")] if left > 0 else [])]


def template_parts(facts: ModelFacts) -> list[TemplatePart]:
    """The template's source, cut at its special tokens; of a long one the beginning."""
    source = facts.chat_template
    parts = [_part(text, mark) for text, mark in _cut(source[:CHARACTERS], facts.special)]
    left = len(source) - CHARACTERS
    return [*parts, *([TemplatePart(f"\n… {left:,} characters more", False)] if left > 0 else [])]


def uses(parts: Iterable[TemplatePart]) -> str:
    """The special tokens of a template in the order in which its source has them."""
    found = [part.text for part in parts if part.marks]
    return " ".join(found[:USES]) + (f" … {len(found) - USES} more" if len(found) > USES else "")


def _part(text: str, mark: bool) -> TemplatePart:
    return TemplatePart(visible(text) if mark else visible_lines(text), mark)


def _cut(source: str, special: Sequence[SpecialToken]) -> Iterator[tuple[str, bool]]:
    """A source in pieces, and whether each is a special token; the longest that fits is taken."""
    texts = sorted({each.text for each in special if each.text}, key=len, reverse=True)
    names = [rf"\b{name}\b" for name in _NAMES]
    pieces = re.split("(" + "|".join([*map(re.escape, texts), *names]) + ")", source)
    return ((text, bool(place % 2)) for place, text in enumerate(pieces) if text)


def _lines(facts: ModelFacts) -> dict[str, list[int]]:
    """Lines of the template, from 1, by the special token's text or the name of its role."""
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
    """Each token with what those of a run have in common: the text but for its numbers, and no gap in the ids."""
    for place, token in enumerate(special):
        plain = not token.roles and token.text not in lines
        yield ((re.sub(r"\d+", "#", token.text), token.id - place) if plain else token.id), token


def _rows(run: Sequence[SpecialToken], lines: dict[str, list[int]]) -> Iterator[TokenRow]:
    if len(run) >= _FOLDED:
        first, last = run[0], run[-1]
        texts = f"{visible(first.text)} to {visible(last.text)}"
        yield TokenRow(f"{first.id}-{last.id}", texts, f"{len(run)} tokens")
        return
    for token in run:
        names = [name for name, role in _NAMES.items() if role in token.roles]
        found = sorted({line for key in (token.text, *names) for line in lines.get(key, ())})
        shown = ", ".join(map(str, found[:8])) + (" …" if len(found) > 8 else "")
        where = f"template line {shown}" if found else ""
        yield TokenRow(str(token.id), visible(token.text), "  ".join([*token.roles, where]).strip())


def _size(row: TokenRow) -> int:
    first, _, last = row.ids.partition("-")
    return int(last) - int(first) + 1 if last else 1
