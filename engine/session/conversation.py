"""Prompts as the user gives them: raw text, or a conversation through the chat template, one turn after another.

A turn is added after the model's own tokens, so that their KV stays. An additive template always writes the same text
between two turns. With other templates (some drop the thinking of earlier answers, or strip the answers), the path no
longer equals the template's text, and the user is asked which of the two to continue with.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import asdict, replace

from engine import protocol
from engine.errors import PromptError
from engine.model.chat_template import ChatText
from engine.protocol import AddTurn, ChatOptions, Message, Prefill, PreviewPrompt, TurnDiffers, conversation
from engine.session.prefill import PromptRecord
from engine.session.session import Session
from engine.task import Stopped
from engine.tree import ROOT, common_prefix

ANSWER = "(the answer of mlx-inspector)"
"""Placeholder for the model's last answer, used to find the text that a template writes after it."""
OTHER_CUT = "Encoded as a whole, the conversation would be cut into other tokens; the path keeps its own."


class EncodedPrompt(Struct, frozen=True):
    """An encoded prompt; the fields are arguments of `Session.prefill`."""

    text: str
    """The filled template, or the raw text."""
    ids: list[int]
    chat: bool
    """True if a chat template was filled."""
    notes: tuple[str, ...]
    """Notes about requests that could not be met."""
    messages: tuple[Message, ...]
    options: ChatOptions
    filled: ChatText
    """The text, with the role of each of its parts."""


def encoded(session: Session, command: Prefill | PreviewPrompt) -> EncodedPrompt:
    """Encode a prompt for a prefill or its preview, with the same tokens for both.

    Raises:
        PromptError: The prompt can't be encoded, or the template rejects the conversation.
    """
    notes = []
    options = command.options
    wanted = protocol.through_template(session.facts, command.chat, command.system, options)
    chat = (wanted or bool(command.messages)) and session.tokens.takes_chat(options)
    if command.messages and not chat:
        raise PromptError("This model has no chat template, which a conversation needs.", "Give raw text.")
    if wanted and not chat:
        neither = " and its tokenizer no default one" if options.default_template else ""
        notes.append(f"This model has no chat template{neither}: the prompt is used as raw text.")
    if command.system is not None and not chat:
        notes.append("The system prompt is not used: only a chat template has a place for it.")
    if options.response is not None and not chat:
        notes.append("The answer's given beginning is not used: only a chat template has a place for it.")
    messages = (command.messages or conversation(command.text, command.system)) if chat else ()
    tokens = session.tokens
    made = tokens.chat_text(messages, options) if chat else tokens.raw_text(command.text)
    text = made.text
    response = _as_written(text, options.response) if chat and options.response is not None else None
    ids, options = session.encode(text, bare=chat), replace(options, response=response)
    return EncodedPrompt(text, ids, chat, tuple(notes), messages, options, made)


def prompt(session: Session, command: Prefill, stopped: Stopped) -> Iterator[PromptRecord]:
    """Prefill raw text, or a conversation.

    Raises:
        PromptError: See `encoded` and `Session.prefill`.
        Cancelled: `stopped` returned True.
    """
    made = encoded(session, command)
    return session.prefill(**asdict(made), echo=command.echo, step_size=command.step_size, stopped=stopped)


def add_turn(session: Session, command: AddTurn, stopped: Stopped) -> Iterator[PromptRecord | TurnDiffers]:
    """Add a user's turn after the current node.

    Yields:
        The records of `Session.prefill`; or only a `TurnDiffers`, if the command asks and the template is not additive.

    Raises:
        StepError: There is no prompt.
        PromptError: See `Session.prefill`; or the prompt is raw text, or the template rejects the conversation or
            can't add a message after an answer.
        Cancelled: `stopped` returned True.
    """
    _ = session.position
    if not command.history:
        raise PromptError(
            "This prompt is raw text: only a conversation has turns.",
            "Give a prompt through the chat template.",
        )
    options, tokens = replace(command.options, response=None), session.tokens
    last = Message("assistant", answer(session, command.options))
    messages = (*command.history, last, Message("user", command.text))
    filled, path = tokens.chat_text(messages, options), session.tree.tokens(session.node)
    whole, ids = filled.text, session.encode(filled.text, bare=True)
    parent, notes = session.node, tuple[str, ...]()
    if ids[: len(path)] == path and len(ids) > len(path):
        ids = ids[len(path) :]
        text = tokens.join(ids)
    else:
        added = _after_answer(session, messages, options)
        continued = tokens.join([*path, *added])
        if continued == whole:
            notes = (OTHER_CUT,)
        elif command.differing == "ask":
            at, kept = common_prefix(continued, whole), common_prefix(path, ids)
            yield TurnDiffers(at, continued[at:], whole[at:], kept, len(ids))
            return
        if continued != whole and command.differing == "template":
            parent, text = ROOT, whole
        else:
            ids, text = added, tokens.join(added)
    yield from session.prefill(
        text,
        ids,
        parent=parent,
        chat=True,
        echo=command.echo,
        notes=notes,
        messages=messages,
        options=options,
        filled=filled.ending(text),
        stopped=stopped,
    )


def _as_written(text: str, response: str) -> str:
    """The given beginning of the answer in the form that the filled template ends with, possibly stripped."""
    forms = (response, response.rstrip(), response.lstrip(), response.strip())
    return next((form for form in forms if text.endswith(form)), response)


def answer(session: Session, options: ChatOptions) -> str:
    """Text of the answer at the end of the path, including its given beginning, without its end-of-sequence token."""
    at = session.tree[session.node]
    ids = session.tree.tail(session.node, at.depth - at.start)
    if ids and ids[-1] in session.tokens.eos_ids:
        ids.pop()
    return (options.response or "") + session.tokens.join(ids)


def _after_answer(session: Session, messages: tuple[Message, ...], options: ChatOptions) -> list[int]:
    """Token ids of the template's text after the last answer, without a special token that ends the path."""
    *before, _, last = messages
    mark = ANSWER
    while any(mark in message.content for message in messages):
        mark += "'"
    text = session.tokens.chat((*before, Message("assistant", mark), last), options)
    _, found, after = text.rpartition(mark)
    if not found:
        raise PromptError("The chat template can't add a message after this answer.", "Give a new prompt.")
    ids = session.encode(after, bare=True)
    ends = session.tree.tail(session.node, 1) == ids[:1] and session.tokens.is_special(ids[0])
    return ids[ends:]
