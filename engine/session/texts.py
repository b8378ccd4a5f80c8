"""Texts typed by the user: their tokens before insertion; tool calls in replies; and traces of tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from engine import protocol
from engine.errors import PromptError, StepError
from engine.files import typed
from engine.model.chat_template import CallError, ChatText, given_tools, parse_call
from engine.model.load import load_tokenizer
from engine.model.tokens import Tokens
from engine.protocol import NO_SEGMENTS, Piece, PromptPreview, Record, Tokenized, ToolCallChecked
from engine.segments import last_call
from engine.session.context import Context, take_tokens
from engine.session.conversation import encoded
from engine.session.session import Session
from engine.settings import LoadSettings
from engine.task import Task
from engine.tokenizers.tracer import TokenizerTracer, opened
from engine.tree import ROOT, common_prefix

# ---- typed text: its tokens, and the check that the context has room for them ------------------

ANCHOR = "\n"
"""Text to encode in front, for tokenizers that add a space at the beginning of a text."""


def pieces(tokens: Tokens, ids: Sequence[int]) -> tuple[Piece, ...]:
    """The given tokens, with the text that each adds."""
    made, pending = [], b""
    for token in ids:
        shown, pending = tokens.text(token, pending)
        made.append(Piece(token, shown, tokens.raw(token), tokens.is_special(token)))
    return tuple(made)


def cut(tokens: Tokens, text: str) -> list[int]:
    """Token ids of a text that continues another; special tokens written in it become these tokens.

    Some tokenizers add a space before any text. In the middle of a text this space would be wrong, so the text is
    encoded after a newline, and the newline's tokens are removed.

    Raises:
        PromptError: The text is empty, isn't valid Unicode, or gives an id beyond the model's embedding.
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


def tokenized(tokens: Tokens, text: str) -> Tokenized:
    """The tokens of a text to insert; an empty text has none. Raises the same errors as `cut`."""
    return Tokenized(text, pieces(tokens, cut(tokens, text) if text else []))


def check_room(session: Session, node: int, ids: Sequence[int]) -> None:
    """Check that all given tokens fit after a node, before the first is taken.

    Raises:
        StepError: There is no such node, it is the root, or the context window has no room for all tokens.
        PromptError: The model has no embedding for a token.
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


# ---- tool calls --------------------------------------------------------------------------------

CALL_LIMIT = 2**15
"""Maximum number of characters of a tool call to parse, since parsers scan some texts many times."""


# ---- the commands ------------------------------------------------------------------------------


def tokenize(context: Context, command: protocol.Tokenize, task: Task) -> Iterator[Record]:
    """Show the tokens of a text to insert."""
    yield tokenized(context.session.tokens, command.text)


def preview_prompt(context: Context, command: protocol.PreviewPrompt, task: Task) -> Iterator[Record]:
    """Show the tokens of a prompt to prefill."""
    session = context.session
    made = encoded(session, command)
    found, most = pieces(session.tokens, made.ids), max(2, command.most)
    whole = len(found) <= most
    yield PromptPreview(
        len(found),
        sum(piece.special for piece in found),
        common_prefix(made.ids, session.tree.tokens(session.node)),
        found if whole else found[: most // 2],
        () if whole else found[most // 2 - most :],
        made.notes,
    )


def cut_text(context: Context, command: protocol.CutText, task: Task) -> Iterator[Record]:
    """Show the tokens of a text in another model's tokenizer."""
    tokens = load_tokenizer(command.settings, context.emit, task.cancel)
    messages = command.messages or protocol.conversation(command.text, command.system)
    made = tokens.chat_text(messages, command.options) if command.chat else ChatText(command.text)
    found = pieces(tokens, tokens.encode(made.text, bare=command.chat))
    segments = made.segments([piece.text for piece in found]) if command.chat else NO_SEGMENTS
    yield Tokenized(made.text, found, segments)


def insert(context: Context, command: protocol.Insert, task: Task) -> Iterator[Record]:
    """Insert a typed text after a node."""
    session = context.session
    ids = cut(session.tokens, command.text)
    check_room(session, command.node, ids)
    yield from take_tokens(session, command.node, ids, "inserted", task.cancel.is_set, command.leave_grammar)


def check_tool_call(context: Context, command: protocol.CheckToolCall, task: Task) -> Iterator[Record]:
    """Parse the last tool call of a reply, up to one of its nodes.

    Raises:
        StepError: There is no such node, or no tool call before it.
    """
    session, node = context.session, command.node
    if node not in session.tree:
        raise StepError(f"There is no token number {node}.", "Begin with a prompt.")
    format, nodes = session.reply(node)
    tokens = [session.reply_token(each) for each in nodes]
    if (call := last_call(format, tokens)) is None:
        raise StepError("The reply has no tool call up to this token.", "Look at a token after one.")
    text, begin = call
    if not format.parser or len(text) > CALL_LIMIT:
        yield ToolCallChecked(node, (), "", 0, "")
        return
    try:
        names = parse_call(format.parser, text, given_tools(session.conversation[1]))
        yield ToolCallChecked(node, names, "", 0, format.parser)
    except CallError as error:
        at = begin + min(error.place, len(text) - 1)
        ends = accumulate(0 if token.ends else len(token.text) for token in tokens)
        wrong = next((each for each, end in zip(nodes, ends, strict=True) if end > at), node)
        yield ToolCallChecked(node, (), str(error), wrong, format.parser)


# ---- a tokenizer's merges, step by step ---------------------------------------------------------


_others: dict[LoadSettings, TokenizerTracer] = {}
"""The last used tracer of a tokenizer other than the session's, since opening one takes up to a second."""


def take_apart(context: Context, command: protocol.TakeApart, task: Task) -> Iterator[Record]:
    """Trace how a tokenizer splits a text."""
    settings = command.settings
    tracer: TokenizerTracer | None
    if settings is None:
        tracer = context.of_model.get(TokenizerTracer) or TokenizerTracer(context.session.tokens.backend)
        context.of_model[TokenizerTracer] = tracer
    else:
        if (tracer := _others.get(settings)) is None:
            if settings.model.endswith(".json"):
                tracer = opened(typed(settings.model), settings.model)
            else:
                tokens = load_tokenizer(settings, context.emit, task.cancel)
                tracer = TokenizerTracer(tokens.backend, settings.model)
        _others.clear()
        _others[settings] = tracer
    yield tracer.trace(command.text, command.begin, command.end, command.node, task.cancel.is_set)
