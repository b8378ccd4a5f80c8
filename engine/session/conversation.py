"""Prompts as a person gives them: raw text, or a conversation through the chat template, turn after turn.

A turn is added behind the model's own tokens, whose KV stays. What a template writes between two turns is the same for
every conversation where the template is additive; where it isn't (one that drops the thinking of earlier answers, or
strips them), the path is no longer what the template gives, and the person is asked which of both to continue with.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from engine.errors import PromptError
from engine.model.prompt_fields import ChatText
from engine.protocol import (
    AddTurn,
    ChatOptions,
    Message,
    Prefill,
    PreviewPrompt,
    TurnDiffers,
    conversation,
    through_template,
)
from engine.session.prefill import PromptRecord
from engine.session.session import Session
from engine.task import Stopped
from engine.tree import ROOT, common_prefix

ANSWER = "(the answer of mlx-inspector)"
"""Put in the place of the model's last answer, to find what a template writes after it."""
OTHER_CUT = "Encoded as a whole, the conversation would be cut into other tokens; the path keeps its own."


class EncodedPrompt(Struct, frozen=True):
    """A prompt as it goes through the model."""

    text: str
    """The template filled, or the raw text."""
    ids: list[int]
    chat: bool
    """True if a chat template was filled."""
    notes: tuple[str, ...]
    """Requests that could not be met."""
    messages: tuple[Message, ...]
    """The conversation that the template got."""
    options: ChatOptions
    """What else it got."""
    filled: ChatText
    """The text, with whose each part is."""


class Turn(Struct, frozen=True):
    """The tokens that a turn adds to a path."""

    text: str
    ids: list[int]
    notes: tuple[str, ...] = ()
    differs: TurnDiffers | None = None
    """Where the template's text is another one than that of the path with the turn."""
    whole: tuple[str, list[int]] = ("", [])
    """The whole conversation as the template gives it, where it differs."""
    filled: ChatText = ChatText("")
    """The whole conversation as the template gives it."""


def encoded(session: Session, command: Prefill | PreviewPrompt) -> EncodedPrompt:
    """A prompt as it goes through the model: what a preview shows is what a prefill takes.

    Raises:
        PromptError: The prompt can't be encoded, or the template refuses the conversation.
    """
    notes = []
    options = command.options
    wanted = through_template(session.facts, command.chat, command.system, options)
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
        PromptError: As `encoded` and `Session.prefill`.
        Cancelled: `stopped` returned True.
    """
    made = encoded(session, command)
    return session.prefill(
        made.text,
        made.ids,
        chat=made.chat,
        echo=command.echo,
        notes=made.notes,
        messages=made.messages,
        options=made.options,
        filled=made.filled,
        step_size=command.step_size,
        stopped=stopped,
    )


def add_turn(session: Session, command: AddTurn, stopped: Stopped) -> Iterator[PromptRecord | TurnDiffers]:
    """Add a user's turn after the current node.

    Yields:
        As `Session.prefill`; or a `TurnDiffers` alone, where the command asks and the template is not additive.

    Raises:
        StepError: There is no prompt.
        PromptError: As `Session.prefill`, or the conversation is not one of a chat.
        Cancelled: `stopped` returned True.
    """
    _ = session.position
    if not command.history:
        raise PromptError(
            "This prompt is raw text: only a conversation has turns.",
            "Give a prompt through the chat template.",
        )
    last, options = answer(session, command.options), replace(command.options, response=None)
    messages = (*command.history, Message("assistant", last), Message("user", command.text))
    turn = next_turn(session, messages, options)
    if turn.differs is not None and command.differing == "ask":
        yield turn.differs
        return
    anew = turn.differs is not None and command.differing == "template"
    text, ids = turn.whole if anew else (turn.text, turn.ids)
    yield from session.prefill(
        text,
        ids,
        parent=ROOT if anew else session.node,
        chat=True,
        echo=command.echo,
        notes=turn.notes,
        messages=messages,
        options=options,
        filled=turn.filled.ending(text),
        stopped=stopped,
    )


def _as_written(text: str, response: str) -> str:
    """The answer's given beginning as it ends a filled template, which may have stripped it."""
    forms = (response, response.rstrip(), response.lstrip(), response.strip())
    return next((form for form in forms if text.endswith(form)), response)


def answer(session: Session, options: ChatOptions) -> str:
    """The text of the answer at the end of the path, with its given beginning, without the token that ended it."""
    at = session.tree[session.node]
    ids = session.tree.tail(session.node, at.depth - at.start)
    if ids and ids[-1] in session.tokens.eos_ids:
        ids.pop()
    return (options.response or "") + session.tokens.join(ids)


def next_turn(session: Session, messages: tuple[Message, ...], options: ChatOptions) -> Turn:
    """What the last message of a conversation adds to the current path.

    Args:
        session: Its path holds the conversation but for the last message.
        messages: The whole conversation.
        options: What else the template gets.

    Raises:
        PromptError: The template refuses the conversation, or has no place for an answer before a message.
    """
    tokens, path = session.tokens, session.tree.tokens(session.node)
    filled = tokens.chat_text(messages, options)
    whole = filled.text
    ids = session.encode(whole, bare=True)
    if ids[: len(path)] == path and len(ids) > len(path):
        added = ids[len(path) :]
        return Turn(tokens.join(added), added, filled=filled)
    added = _after_answer(session, messages, options)
    text = tokens.join([*path, *added])
    if text == whole:
        return Turn(tokens.join(added), added, (OTHER_CUT,), filled=filled)
    at, kept = common_prefix(text, whole), common_prefix(path, ids)
    differs = TurnDiffers(at, text[at:], whole[at:], kept, len(ids))
    return Turn(tokens.join(added), added, differs=differs, whole=(whole, ids), filled=filled)


def _after_answer(session: Session, messages: tuple[Message, ...], options: ChatOptions) -> list[int]:
    """Token ids of what the template writes after the last answer; its end is left out where the path has it."""
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
