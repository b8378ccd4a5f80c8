"""Requests to a server: the conversation, and each parameter as the equivalent setting or a remark.

The parameters are those of mlx_lm.server 0.32.2 (`APIHandler.do_POST`), and others of OpenAI's API and other servers,
which mlx_lm.server doesn't read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import replace

from engine.errors import PromptError, SettingsError
from engine.grammar_settings import Grammar
from engine.protocol import NO_OPTIONS, ChatOptions, Message, Prefill
from engine.setting import check
from engine.settings import BY_NAME, MOST, Settings, changed

CONVERSATION = 'A conversation is a list such as [{"role": "user", "content": "Hello"}].'
MAX_TOKENS = 512
"""Default of mlx_lm.server."""


# ---- parameters -----------------------------------------------------------------------------------


class Parameter(Struct, frozen=True):
    """A parameter of a request and its equivalent here."""

    name: str
    setting: str = ""
    """The equivalent setting; empty if there is none."""
    says: str = ""
    """A remark if there is no equivalent setting, or if some values differ."""
    noted: bool = False
    """True if each request that has it gets the remark as a note."""


_LOAD = "set it when you load the model: "
_UNREAD = "mlx_lm.server doesn't read it"
_ROWS: tuple[tuple[str, str, str, bool], ...] = (
    ("messages", "", "the conversation, through the chat template", False),
    ("prompt", "", "the prompt, as raw text", False),
    ("tools", "", "the template gets them", False),
    ("chat_template_kwargs", "", "the template's variables", False),
    ("temperature", "temp", "", False),
    ("top_p top_k min_p repetition_penalty presence_penalty frequency_penalty xtc_probability", "=", "", False),
    ("xtc_threshold", "=", "above 0.5 XTC is off: two tokens can't both reach it", False),
    ("repetition_context_size presence_context_size frequency_context_size", "=", "0 is the whole context", False),
    ("max_tokens", "=", "", False),
    ("max_completion_tokens", "max_tokens", "goes before max_tokens", False),
    ("stop", "=", "ends the text wherever the token borders are; mlx_lm.server stops only at exactly its own tokens",
     False),
    ("seed", "=", "of MLX's random numbers, which repeat its reply; a step's own draw is another one", False),
    ("logit_bias", "=", "", False),
    ("response_format", "", "a grammar, unless mlx_lm.server answered, which ignores it", False),
    ("stream stream_options", "", "how the reply was sent", False),
    ("logprobs top_logprobs", "", "what the reply names", False),
    ("model", "", f"{_LOAD}--model", False),
    ("adapters", "", f"{_LOAD}--adapter-path", True),
    ("draft_model", "", "changes no text; --draft-model drafts here", True),
    ("num_draft_tokens", "", "changes no text; --num-draft-tokens sets it here", True),
    ("role_mapping", "", "mlx_lm.server reads it only for models without a chat template, whose conversations can't be "
     "opened here", True),
    ("n best_of", "", f"{_UNREAD}: it answers once", True),
    ("echo suffix tool_choice parallel_tool_calls reasoning_effort min_tokens ignore_eos stop_token_ids guided_json "
     "guided_regex guided_choice guided_grammar grammar json_schema typical_p top_a mirostat mirostat_tau mirostat_eta "
     "dry_multiplier length_penalty use_beam_search skip_special_tokens add_generation_prompt continue_final_message "
     "cache_prompt repeat_penalty n_predict functions function_call modalities prediction", "", _UNREAD, True),
    ("user metadata store service_tier safety_identifier prompt_cache_key verbosity", "", "changes no token", False),
)  # fmt: skip
"""Names of parameters, the equivalent setting (`=`: of the same name), the remark, and True if it is noted."""
PARAMETERS = tuple(
    Parameter(name, name if setting == "=" else setting, says, noted)
    for names, setting, says, noted in _ROWS
    for name in names.split()
)
"""Every parameter of mlx_lm.server's API, and common ones of other servers."""
_BY_NAME: Mapping[str, Parameter] = {each.name: each for each in PARAMETERS}


# ---- a request ------------------------------------------------------------------------------------


class ServedRequest(Struct, frozen=True):
    """A request in the form that a session needs."""

    chat: bool
    """True for a conversation, False for raw text."""
    prompt: str
    """The raw text, or the last user message."""
    messages: tuple[Message, ...]
    options: ChatOptions
    settings: Settings
    seed: int | None
    """Seed of the server's draws."""
    model: str
    """The requested model; empty for the server's default."""
    notes: tuple[str, ...]
    """Sentences on parameters without an equivalent, or with one that differs."""

    def within(self, vocabulary: int) -> ServedRequest:
        """The request without biases of token ids that a model doesn't have."""
        biases = self.settings.logit_bias
        kept = tuple((token, bias) for token, bias in biases if token < vocabulary)
        if kept == biases:
            return self
        left = ", ".join(str(token) for token, _ in biases if token >= vocabulary)
        said = f"logit_bias: the model has no tokens with these ids: {left[:80]}."
        return replace(self, settings=changed(self.settings, logit_bias=kept), notes=(*self.notes, said))

    def prompted(self, echo: bool | None = None) -> Prefill:
        """The command that gives its prompt, with only its own variables of the chat template.

        Args:
            echo: As in `Prefill`.
        """
        options = ChatOptions(config="{}") if self.options == NO_OPTIONS else self.options
        return Prefill(self.prompt, self.chat, echo=echo, messages=self.messages, options=options)


def asks_for_text(body: Any) -> bool:
    """True if a body requests text from a model; others request embeddings and the like."""
    return isinstance(body, dict) and ("messages" in body or "prompt" in body)


def served_request(body: Any, source: str, by_mlx_lm: bool = True) -> ServedRequest:
    """Read a request's body.

    Args:
        body: The body as a JSON value.
        source: Name of the request in messages.
        by_mlx_lm: Whether mlx_lm.server answered it or that isn't known; mlx_lm.server ignores `response_format`.

    Raises:
        PromptError: It isn't a request for text.
    """
    if not asks_for_text(body):
        hint = "Give the body of a request for text."
        raise PromptError(f"{source} has neither messages nor a prompt.", hint)
    chat = "messages" in body
    messages, tools = conversation_of(source, body) if chat else ((), "")
    variables = body.get("chat_template_kwargs")
    if variables is not None and not isinstance(variables, dict):
        raise PromptError(f"{source}: chat_template_kwargs must be an object.", "Correct it.")
    prompt = _raw_prompt(source, body["prompt"]) if not chat else last_of(messages)
    settings, notes = _settings(body, by_mlx_lm)
    seed, model = body.get("seed"), body.get("model")
    return ServedRequest(
        chat=chat,
        prompt=prompt,
        messages=messages,
        options=ChatOptions(config=json.dumps(variables) if variables else "", tools=tools),
        settings=settings,
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 else None,
        model=model if isinstance(model, str) and model != "default_model" else "",
        notes=notes,
    )


def last_of(messages: Sequence[Message]) -> str:
    """The last user message, which stands for the conversation if only one text is shown."""
    return next((each.content for each in reversed(messages) if each.role == "user"), "")


def _raw_prompt(source: str, prompt: Any) -> str:
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if prompt and isinstance(prompt, list) and all(type(each) in (int, list) for each in prompt):
        raise PromptError(
            f"{source}: the prompt is a list of token ids, which can't be opened.",
            "Have the client send the text, as lm-eval does with tokenized_requests=False.",
        )
    if not isinstance(prompt, str) or not prompt:
        kind = "an empty text" if prompt == "" else _kind(prompt)
        raise PromptError(f"{source}: the prompt must be one text, not {kind}.", "Open its texts one by one.")
    _check_size(f"{source}: the prompt", prompt)
    return prompt


# ---- its settings ---------------------------------------------------------------------------------


def _settings(body: Mapping[str, Any], by_mlx_lm: bool) -> tuple[Settings, tuple[str, ...]]:
    """The equivalent settings, and sentences on the rest."""
    settings, notes = changed(Settings(), max_tokens=MAX_TOKENS), []
    for name, value in sorted(body.items(), key=lambda each: each[0] == "max_completion_tokens"):
        known = _BY_NAME.get(name)
        if value is None:
            continue
        if known is None:
            notes.append(f"{name[:40]} is not known here, and has no effect.")
        elif name == "response_format":
            grammar, said = _grammar(value, by_mlx_lm)
            settings = changed(settings, grammar=grammar)
            notes += said
        elif known.setting:
            settings, said = _set(settings, known, value)
            notes += said
        elif known.noted:
            other = known.says.startswith(_UNREAD) and not by_mlx_lm
            notes.append(
                f"{name} has no counterpart and no effect here." if other else f"{name}: {known.says}."
            )
    if settings.temp and body.get("seed") is None:
        notes.append(
            "It has no seed, so its draws can't be repeated: its tokens are taken as they were sent."
        )
    return settings, tuple(notes)


_TYPES: Mapping[str, Any] = {"float": float, "int": int, "texts": str | list[str], "biases": dict[int, float]}
"""Type of a parameter's value by the kind of its setting."""


def _set(settings: Settings, parameter: Parameter, value: Any) -> tuple[Settings, list[str]]:
    """The settings with one changed, and a sentence if the value can't be used or means something else."""
    field = BY_NAME[parameter.setting]
    try:
        made = convert(value, _TYPES[field.kind], str_keys=True)
        if parameter.name == "xtc_threshold" and made > field.high:
            return changed(settings, xtc_probability=0.0), []
        if parameter.name == "top_p" and made == 0:
            return settings, ["top_p 0 is off for mlx_lm.server, as 1 is."]
        if parameter.name.endswith("_context_size") and made == 0:
            made = MOST
        elif field.kind == "texts":
            made = tuple(filter(None, [made] if isinstance(made, str) else made))
        elif field.kind == "biases":
            made = tuple(made.items())
        return changed(settings, **{parameter.setting: made}), []
    except (SettingsError, ValueError, OverflowError) as error:
        why = error.message if isinstance(error, SettingsError) else f"it must be {field.bounds}."
        return settings, [f"{parameter.name} was not taken: {why}"]


def _grammar(form: Any, by_mlx_lm: bool) -> tuple[Grammar | None, list[str]]:
    """The grammar that a `response_format` requests; None with a sentence if it can't be used."""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return None, []
    if by_mlx_lm:
        return None, ["response_format: mlx_lm.server ignores it, so that no grammar holds here either."]
    schema = {"type": "object"} if kind == "json_object" else None
    if kind == "json_schema" and isinstance(given := form.get("json_schema"), dict):
        schema = given.get("schema")
    if not isinstance(schema, dict):
        return None, [f"response_format was not taken: its type is {str(kind)[:40]}."]
    grammar = Grammar("json-schema", json.dumps(schema))
    try:
        check(grammar)
    except SettingsError as error:
        return None, [f"response_format was not taken: {error.message}"]
    return grammar, []


# ---- a conversation as JSON -----------------------------------------------------------------------


def conversation_of(source: str, fields: Mapping[str, Any]) -> tuple[tuple[Message, ...], str]:
    """Read the messages of a request, and its tools.

    Args:
        source: Name of the request in messages.
        fields: Fields of its body.

    Returns:
        The messages, and the tools as a JSON list; empty if there are none.

    Raises:
        PromptError: They aren't a conversation.
    """
    found, tools = fields.get("messages"), fields.get("tools")
    if not isinstance(found, list) or not found:
        what = "an empty" if found == [] else "no"
        raise PromptError(f"{source} has {what} list of messages.", CONVERSATION)
    messages = tuple(_message(f"{source}, message {number}", each) for number, each in enumerate(found, 1))
    listed = [] if tools is None else _objects(f"{source}: tools", tools)
    dumped = json.dumps(listed) if listed else ""
    _check_size(f"{source}: the list of tools", dumped)
    return messages, dumped


def _objects(what: str, value: Any) -> list[Any]:
    """Check that a value is a list of objects.

    Raises:
        PromptError: It isn't.
    """
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise PromptError(f"{what} must be a list of objects.", "Write them as OpenAI's API takes them.")
    return value


def _message(where: str, value: Any) -> Message:
    """Read one message, with its content joined to a text as in mlx_lm.server.

    Raises:
        PromptError: It isn't a message.
    """
    if not isinstance(value, dict):
        raise PromptError(f"{where} must be an object, not {_kind(value)}.", CONVERSATION)
    role = value.get("role")
    if not (isinstance(role, str) and role):
        raise PromptError(f"{where} has no role.", "A role is user, assistant, system or tool.")
    if "content" not in value and "tool_calls" not in value:
        raise PromptError(f"{where} has no content.", CONVERSATION)
    content = _text(where, value.get("content"))
    rest = ((name, each) for name, each in value.items() if name not in ("role", "content"))
    more = {name: each for name, each in rest if each is not None}
    if "tool_calls" in more:
        more["tool_calls"] = _calls(where, more["tool_calls"])
    made = Message(role, content, json.dumps(more) if more else "")
    _check_size(where, made.role, made.content, made.more)
    return made


LONGEST = 4 * 2**20
"""Maximum number of characters of one text of a message."""


def _check_size(where: str, *texts: str) -> None:
    """Refuse texts that a trace of the session couldn't contain."""
    if max(map(len, texts)) > LONGEST:
        raise PromptError(f"{where} has more than {LONGEST >> 20} MiB in one text.", "Shorten it.")


def _text(where: str, content: Any) -> str:
    """The text of a message's content: a string, nothing, or a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise PromptError(f"{where}: content must be text, not {_kind(content)}.", CONVERSATION)
    for part in content:
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            kind = part.get("type") if isinstance(part, dict) else _kind(part)
            message = f"{where}: its content has a part that is not text ({str(kind)[:40]})."
            raise PromptError(message, "Only text can be read here.")
    return "".join(part["text"] for part in content)


def _calls(where: str, calls: Any) -> list[dict[str, Any]]:
    """Tool calls with their arguments as values, as templates need them; OpenAI's API has them as JSON in a text."""
    made = []
    for call in _objects(f"{where}: tool_calls", calls):
        function = call.get("function")
        text = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(text, str) and text:
            arguments = parsed_json(f"{where}: the arguments of a tool call", text)
            call = {**call, "function": {**function, "arguments": arguments}}
        made.append(call)
    return made


def parsed_json(source: str, text: str) -> Any:
    """Read JSON.

    Args:
        source: Name of the text in messages.
        text: The JSON.

    Raises:
        PromptError: It isn't valid JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        where = "it is nested too deeply"
    except ValueError:
        where = "it has a number of too many digits"
    raise PromptError(f"{source} is not valid JSON ({where}).", "Correct it.")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
