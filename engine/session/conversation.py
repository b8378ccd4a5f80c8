"""Prompts as the user gives them: raw text, or a conversation through the chat template, one turn after another.

A turn is added after the model's own tokens, so that their KV stays. An additive template writes the same between two
turns in every conversation. With other templates (some drop the thinking of earlier answers, or strip the answers), the
path no longer equals the template's text, and the user is asked which of the two to continue with.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import asdict, replace

from engine.errors import PromptError
from engine.model.chat_template import ChatText
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
"""Placeholder for the model's last answer, used to find the text that a template writes after it."""
OTHER_CUT = "Encoded as a whole, the conversation would be cut into other tokens; the path keeps its own."


class EncodedPrompt(Struct, frozen=True):
    """A prompt as it is sent through the model; the fields are arguments of `Session.prefill`."""

    text: str
    """The filled template, or the raw text."""
    ids: list[int]
    chat: bool
    """True if a chat template was filled."""
    notes: tuple[str, ...]
    """Notes about requests that could not be met."""
    messages: tuple[Message, ...]
    """Messages given to the template."""
    options: ChatOptions
    """Options given to the template."""
    filled: ChatText
    """The text, with the role of each of its parts."""


class Turn(Struct, frozen=True):
    """The tokens that a turn adds to a path."""

    text: str
    ids: list[int]
    notes: tuple[str, ...] = ()
    differs: TurnDiffers | None = None
    """Difference between the template's text and the path with the turn; None if they are equal."""
    whole: tuple[str, list[int]] = ("", [])
    """Text and token ids of the complete conversation as the template writes it, if `differs` is set."""
    filled: ChatText = ChatText("")
    """The complete conversation as the template writes it."""


def encoded(session: Session, command: Prefill | PreviewPrompt) -> EncodedPrompt:
    """Encode a prompt as it is sent through the model; a preview shows the same tokens as a prefill.

    Raises:
        PromptError: The prompt can't be encoded, or the template rejects the conversation.
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
        PromptError: See `Session.prefill`; or the conversation's prompt was not filled by a chat template.
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
    """The given beginning of the answer as the filled template ends with it, possibly stripped of white space."""
    forms = (response, response.rstrip(), response.lstrip(), response.strip())
    return next((form for form in forms if text.endswith(form)), response)


def answer(session: Session, options: ChatOptions) -> str:
    """Text of the answer at the end of the path, including its given beginning, without its end-of-sequence token."""
    at = session.tree[session.node]
    ids = session.tree.tail(session.node, at.depth - at.start)
    if ids and ids[-1] in session.tokens.eos_ids:
        ids.pop()
    return (options.response or "") + session.tokens.join(ids)


def next_turn(session: Session, messages: tuple[Message, ...], options: ChatOptions) -> Turn:
    """The tokens that the last message of a conversation adds to the current path.

    Args:
        session: The session; its path contains the conversation without the last message.
        messages: The complete conversation.
        options: Options given to the template.

    Raises:
        PromptError: The template rejects the conversation, or can't add a message after an answer.
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
