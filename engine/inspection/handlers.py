"""The commands that inspect: a distribution, the vocabulary, and typed text before it is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from msgspec.structs import replace

from engine import protocol
from engine.context import Capability, EngineContext, Handler
from engine.errors import Cancelled, PromptError, StepError
from engine.files import typed
from engine.logits.questions import Vocabulary, expected, explain, find, kept_row, what_if
from engine.model.load import load_tokenizer
from engine.model.prompt_fields import ChatText
from engine.model.reply_marks import CallError, parse_call
from engine.model.tokens import Tokens
from engine.protocol import (
    NO_SEGMENTS,
    Command,
    Piece,
    PreviewPrompt,
    PromptPreview,
    Tokenized,
    ToolCallChecked,
    conversation,
)
from engine.segments import last_call
from engine.session.conversation import encoded
from engine.session.session import Session
from engine.settings import LoadSettings
from engine.task import Task
from engine.tokenizers.tracer import TokenizerTracer, opened
from engine.tree import ROOT, common_prefix

# ---- typed text: its tokens, and whether the context has room for them -------------------------

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
    made = encoded(session, command)
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


# ---- tool calls --------------------------------------------------------------------------------

CALL_LIMIT = 2**15
"""Characters of a call that is parsed at most: parsers go over some texts again and again."""


def check_call(session: Session, node: int) -> ToolCallChecked:
    """Parse the last tool call of a reply.

    Args:
        session: It has the reply.
        node: Up to which the reply goes.

    Raises:
        StepError: There is no such node, or no tool call before it.
    """
    if node not in session.tree:
        raise StepError(f"There is no token number {node}.", "Begin with a prompt.")
    format, nodes = session.reply(node)
    tokens = [session.reply_token(each) for each in nodes]
    if (call := last_call(format, tokens)) is None:
        raise StepError("The reply has no tool call up to this token.", "Look at a token after one.")
    text, begin = call
    if not format.parser or len(text) > CALL_LIMIT:
        return ToolCallChecked(node, (), "", 0, "")
    try:
        return ToolCallChecked(node, parse_call(format.parser, text, session.tools), "", 0, format.parser)
    except CallError as error:
        at = begin + min(error.place, len(text) - 1)
        ends = accumulate(0 if token.ends else len(token.text) for token in tokens)
        wrong = next((each for each, end in zip(nodes, ends, strict=True) if end > at), node)
        return ToolCallChecked(node, (), str(error), wrong, format.parser)


# ---- the commands ------------------------------------------------------------------------------


class InspectionCommands(Capability):
    """Handlers that compute no forward, and the one that takes typed text into the path."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._vocabulary: Vocabulary | None = None
        """The model's, made at the first search."""
        self._apart: dict[LoadSettings | None, TokenizerTracer] = {}
        """The tokenizers that were taken apart last, by what `TakeApart` names; opening one takes up to a second."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.Explain: self._explain,
            protocol.WhatIf: self._what_if,
            protocol.FindTokens: self._find,
            protocol.ReadGrammar: self._read_grammar,
            protocol.ReadLogits: self._read_logits,
            protocol.Tokenize: self._tokenize,
            protocol.PreviewPrompt: self._preview,
            protocol.CutText: self._cut_text,
            protocol.TakeApart: self._take_apart,
            protocol.CheckToolCall: self._check_call,
            protocol.Insert: self._insert,
        }

    def forget(self, model: bool) -> None:
        """Drop the vocabulary and the tokenizer with their model."""
        if model:
            self._vocabulary = None
            self._apart.pop(None, None)

    def _explain(self, command: protocol.Explain, task: Task) -> None:
        session, how = self._context.session, (command.settings, command.reroll, command.also)
        self._context.emit(explain(session, command.node, *how))

    def _what_if(self, command: protocol.WhatIf, task: Task) -> None:
        self._context.emit(what_if(self._context.session, command.settings, command.tip, task.cancel.is_set))

    def _find(self, command: protocol.FindTokens, task: Task) -> None:
        session = self._context.session
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(session.tokens)
        found = find(session, self._vocabulary, command, task.cancel.is_set)
        self._context.emit(replace(found, note=session.cut_note(command.node)))

    def _read_grammar(self, command: protocol.ReadGrammar, task: Task) -> None:
        self._context.emit(expected(self._context.session, command.node, command.grammar))

    def _read_logits(self, command: protocol.ReadLogits, task: Task) -> None:
        session = self._context.session
        for node in command.nodes or session.kept_logits.nodes:
            if task.cancel.is_set():
                raise Cancelled
            self._context.emit_row(node, kept_row(session, node))

    def _tokenize(self, command: protocol.Tokenize, task: Task) -> None:
        self._context.emit(tokenize(self._context.session.tokens, command.text))

    def _preview(self, command: protocol.PreviewPrompt, task: Task) -> None:
        self._context.emit(preview(self._context.session, command))

    def _cut_text(self, command: protocol.CutText, task: Task) -> None:
        tokens = load_tokenizer(command.settings, self._context.emit, task.cancel)
        messages = command.messages or conversation(command.text, command.system)
        made = tokens.chat_text(messages, command.options) if command.chat else ChatText(command.text)
        cut_text = pieces(tokens, tokens.encode(made.text, bare=command.chat))
        segments = made.segments([piece.text for piece in cut_text]) if command.chat else NO_SEGMENTS
        self._context.emit(Tokenized(made.text, cut_text, segments))

    def _take_apart(self, command: protocol.TakeApart, task: Task) -> None:
        settings = command.settings
        apart = self._apart.pop(settings, None) or self._open_apart(settings, task)
        self._apart = {**dict([*self._apart.items()][-1:]), settings: apart}
        self._context.emit(
            apart.trace(command.text, command.begin, command.end, command.node, task.cancel.is_set)
        )

    def _open_apart(self, settings: LoadSettings | None, task: Task) -> TokenizerTracer:
        """The tokenizer of the loaded model, of another one, or of a file."""
        if settings is None:
            return TokenizerTracer(self._context.session.tokens.backend)
        if settings.model.endswith(".json"):
            return opened(typed(settings.model), settings.model)
        return TokenizerTracer(
            load_tokenizer(settings, self._context.emit, task.cancel).backend, settings.model
        )

    def _check_call(self, command: protocol.CheckToolCall, task: Task) -> None:
        self._context.emit(check_call(self._context.session, command.node))

    def _insert(self, command: protocol.Insert, task: Task) -> None:
        session = self._context.session
        ids = cut(session.tokens, command.text)
        check_room(session, command.node, ids)
        self._context.take_tokens(command.node, ids, "inserted", task, command.leave_grammar)
