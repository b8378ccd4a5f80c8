"""Chat templates: what one gets, as mlx_lm and transformers make it, and filling it within limits.

A template is a program in jinja2 that came with the model. It runs in a process of its own, which the kernel limits:
one expression, `'x' * 10**10`, is a single call of C that no check within this process could interrupt, and jinja2 even
computes it while it compiles. jinja2's sandbox bounds `range` and what can be reached, neither time nor memory. It
costs 0.15 to 0.2 s of processor time and 20 MB for as long, once a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from engine.errors import PromptError, first_line
from engine.files import TEXT_LIMIT
from engine.processes import limited
from engine.protocol import ChatOptions, Message

TAG = "CONTINUE_FINAL_MESSAGE_TAG "
"""Marks the end of a message that is left open; that of transformers, so that a template can't tell the two apart."""
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of the same key; transformers fills the first two from whichever is there."""
ARGUMENTS = (
    "conversation",
    "messages",
    "tokenize",
    "add_generation_prompt",
    "continue_final_message",
    "return_dict",
)
"""Arguments of the function that fills the template, which mlx_lm sets itself: no variables of the template."""


class Filling(Struct, frozen=True):
    """The values that fill a template."""

    conversation: list[dict[str, Any]]
    tools: list[Any] | None
    documents: list[Any] | None
    template: str | None
    """A template of the request's own, or the name of one of the model's."""
    config: dict[str, Any]
    """The template's variables besides those."""
    opened: bool
    """True if the last message is left open, instead of beginning an answer."""

    @property
    def last(self) -> str:
        """The content of the last message."""
        return str(self.conversation[-1]["content"])

    def marked(self) -> list[dict[str, Any]]:
        """The conversation, with `TAG` after a message that is left open."""
        *before, last = self.conversation
        return [*before, {**last, "content": self.last + TAG}] if self.opened else self.conversation


def filling(messages: Sequence[Message], options: ChatOptions) -> Filling:
    """The values that fill a template.

    Args:
        messages: The conversation.
        options: The other values that the template gets.

    Raises:
        PromptError: The options are no JSON of the right kind, or set what can't be set.
    """
    if options.response is not None:
        messages = (*messages, Message("assistant", options.response))
    config = _parsed("The template's configuration", options.config, dict) or {}
    tools = _parsed("The list of tools", options.tools, list)
    for name in config:
        if name in ARGUMENTS or (name == "tools" and tools is not None):
            message = f"The template's configuration can't set {name}, which the program sets itself."
            raise PromptError(message, "Leave it out.")
    return Filling(
        conversation=[_values(message) for message in messages],
        tools=config.pop("tools", tools),
        documents=config.pop("documents", None),
        template=config.pop("chat_template", None),
        config=config,
        opened=options.response is not None,
    )


def given_tools(options: ChatOptions) -> list[Any] | None:
    """The tools that a template got; None for none."""
    try:
        given = filling((), replace(options, response=None))
    except PromptError:  # of a session that was restored
        return None
    return given.tools


def left_open(text: str | None, content: str) -> str | None:
    """A filled template up to the end of its last message, cut as transformers cuts it.

    Args:
        text: The text, with `TAG` after that message's content.
        content: The content.

    Returns:
        None if there is no text, or the template doesn't write the message.
    """
    mark = TAG.strip()
    if text is None or content.strip() not in text or mark not in text:
        return None
    end = text.rindex(mark)
    return text[:end] if text.startswith(TAG, end) else text[:end].rstrip()


def _values(message: Message) -> dict[str, Any]:
    """A message as a template gets it: without keys that hold nothing, and its reasoning under each name."""
    more = _parsed("A message", message.more, dict) or {}
    values = {"role": message.role, "content": message.content, **more}
    values = {name: value for name, value in values.items() if value is not None}
    reasoning = next((values[name] for name in REASONING if name in values), None)
    if reasoning is not None:
        values = {"thinking": reasoning, **values, "reasoning_content": reasoning}
    return values


def _parsed(what: str, content: str, kind: type) -> Any:
    """A JSON value of a request, None if it is empty."""
    if not content:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise PromptError(f"{what} is not valid JSON: {why}.", "Correct it.") from None
    if not isinstance(value, kind):
        raise PromptError(f"{what} must be a JSON {'object' if kind is dict else 'list'}.", "Correct it.")
    return value


# ---- filling -----------------------------------------------------------------------------------

MEMORY = 512 * 2**20
"""Bytes of address space of the process; 40 MB are its own. Not bounded on macOS, whose kernel has no such limit."""
SECONDS = 2
"""Seconds of processor time. Templates that models come with take milliseconds."""
CHARACTERS = 2 * TEXT_LIMIT
"""Maximum number of characters of the result."""
_RAW = "Use it as raw text."


def render(
    template: str, values: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()
) -> list[str | None]:
    """Fill a template as transformers does.

    Args:
        template: jinja2 source.
        values: Its variables, `messages` and the like, of values that JSON has.
        others: Values that replace some of these: it is filled with them, too, while that takes no time.

    Returns:
        The text, and those with the other values, None if there is none.

    Raises:
        PromptError: The template is wrong, refuses the messages, or takes too much time or memory.
    """
    given: dict[str, Any] = {"template": template, "values": dict(values), "others": list(others)}
    given |= {"seconds": SECONDS, "characters": CHARACTERS}
    try:
        answer = limited("engine.model.chat_template_process:fill", given, MEMORY, SECONDS)
    except OSError as error:
        raise PromptError(f"The chat template can't be filled: {error.strerror}.", _RAW) from error
    if "text" not in answer:
        raise refusal(answer.get("error", f"it takes more than {SECONDS} s of processor time"))
    return [str(answer["text"]), *answer["others"]]


def refusal(why: object) -> PromptError:
    """The error that a template, or its model's own code, refuses a prompt."""
    first = first_line(why, nothing="no reason given")
    return PromptError(f"The chat template refuses this prompt: {first}.", _RAW)
