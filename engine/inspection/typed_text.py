"""Typed text: its tokens, and whether the context has room for them."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import PromptError, StepError
from engine.model.tokens import Tokens
from engine.protocol import Piece, PreviewPrompt, PromptPreview, Tokenized
from engine.session import conversation
from engine.session.session import Session
from engine.tree import ROOT, common_prefix

ANCHOR = "\n"
"""Prefix for tokenizers that would begin a text with an additional space."""


def tokenize(tokens: Tokens, text: str) -> Tokenized:
    """Show the tokens of a text that is to be inserted.

    Args:
        tokens: The model's tokenizer.
        text: Any; an empty one has no pieces.

    Raises:
        PromptError: The text isn't Unicode, or gives an id beyond the model's embedding.
    """
    return Tokenized(text, pieces(tokens, cut(tokens, text) if text else []))


def preview(session: Session, command: PreviewPrompt) -> PromptPreview:
    """Show the tokens of a prompt that is to be prefilled.

    Raises:
        PromptError: As `conversation.encoded`.
    """
    made = conversation.encoded(session, command)
    cut, most = pieces(session.tokens, made.ids), max(2, command.most)
    whole = len(cut) <= most
    return PromptPreview(
        len(cut),
        sum(piece.special for piece in cut),
        common_prefix(made.ids, session.tree.tokens(session.node)),
        cut if whole else cut[: most // 2],
        () if whole else cut[most // 2 - most :],
        made.notes,
    )


def pieces(tokens: Tokens, ids: Sequence[int]) -> tuple[Piece, ...]:
    """What each token of a text adds to it."""
    made, pending = [], b""
    for token in ids:
        shown, pending = tokens.text(token, pending)
        made.append(Piece(token, shown, tokens.raw(token), tokens.is_special(token)))
    return tuple(made)


def cut(tokens: Tokens, text: str) -> list[int]:
    """Token ids of a text that continues another; special tokens written out in it become these tokens.

    Some tokenizers put a space before any text. In the middle of a text that would add a space that was not typed, so
    the text is encoded behind a newline, whose tokens are then left out.

    Raises:
        PromptError: The text is empty, isn't Unicode, or gives an id beyond the model's embedding.
    """
    if not text:
        raise PromptError("Nothing was typed.", "Type some text.")
    ids = tokens.encode(text, bare=True)
    if _bytes(tokens, ids) != b" " + text.encode():
        return ids
    anchor, anchored = tokens.encode(ANCHOR, bare=True), tokens.encode(ANCHOR + text, bare=True)
    rest = anchored[len(anchor) :]
    fits = anchored[: len(anchor)] == anchor and _bytes(tokens, rest) == text.encode()
    return rest if fits else ids


def check_room(session: Session, node: int, ids: Sequence[int]) -> None:
    """Refuse tokens that can't all be taken after a node, before the first is.

    Raises:
        StepError: There is no such node, it is the root, or the context window has no room for all of them.
        PromptError: The model has no embedding for one of them.
    """
    if node not in session.tree:
        raise StepError(f"There is no token number {node}.", "Begin with a prompt.")
    if node == ROOT:
        raise StepError("Nothing can be put before the first token.", "Give another prompt.")
    session.tokens.check(ids)
    window, depth = session.facts.context_window, session.tree[node].depth
    if window is not None and depth + len(ids) > window:
        refusal = f"{len(ids):,} tokens don't fit" if len(ids) > 1 else "Another token doesn't fit"
        raise StepError(
            f"{refusal}: {depth:,} of the context window's {window:,} are taken there.",
            "Type less, or go further back.",
        )


def _bytes(tokens: Tokens, ids: Sequence[int]) -> bytes:
    return b"".join(map(tokens.raw, ids))
