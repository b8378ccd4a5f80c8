"""Requests to servers, and their replies in the forms of different servers: texts, tokens and logprobs.

Known forms: OpenAI's chat and completions, whole and streamed, which mlx_lm.server, vLLM and llama.cpp write too;
llama.cpp's own, SGLang's, TGI's and ollama's. Of third-party packages only msgspec is used.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from engine.token_texts import alphabet


class Reply(Struct, frozen=True):
    """The reply of a server."""

    status: int
    """HTTP status; 0 if unknown."""
    cut: bool
    """True if it broke off."""
    body: Any
    """A JSON value, or the text if it isn't JSON; None for a stream."""
    events: tuple[Any, ...]
    """Events of the stream: each a JSON value or a text such as `[DONE]`."""


class Exchange(Struct, frozen=True):
    """A request to a server, and the reply to it."""

    number: int
    """Number in its file, from 1."""
    at: float
    """Beginning in seconds since 1970; 0 if unknown."""
    body: Any
    """The request as a JSON value; None if only the reply is known."""
    reply: Reply | None
    note: str = ""
    """Why the reply can't be read; empty if it can."""


def json_of(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: The text isn't JSON, or is nested too deeply.
    """
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("too deep") from None


def json_lines(text: str) -> Iterator[Any]:
    """The values of all lines of a text that are JSON."""
    for line in text.split("\n"):
        with suppress(ValueError):
            yield json_of(line)


def reply_with(value: Any, status: int = 200, cut: bool = False) -> Reply:
    """Make a reply from its JSON value; a list contains the parts of a stream."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return Reply(status, cut, None, tuple(value))
    return Reply(status, cut, value, ())


def events_of(text: str) -> tuple[Any, ...]:
    """The events of a stream, each a JSON value or a text; empty if the text is not a stream."""
    datas = (each.strip() for each in re.findall(r"(?:^|[\r\n])data:([^\r\n]*)", text))
    return tuple(next(json_lines(data), data) for data in datas)


# ---- a reply, read ------------------------------------------------------------------------------

UNKNOWN = -9000.0
"""Logprobs up to this bound are unknown: vLLM and OpenAI write -9999."""
_MLX_LM = r"\d+\.\d+\.\d+\S*-\d+\.\d+\.\d+\S*-"
"""Beginning of mlx_lm.server's `system_fingerprint`: its own version, and MLX's."""
_ALPHABET = alphabet()
MOST_TOKENS = 200_000
"""Maximum number of tokens of a reply that are read."""
MOST_LISTED = 200
"""Maximum number of alternatives of a token that are read."""


class ServedToken(Struct, frozen=True):
    """A token of a reply, or an alternative to one."""

    raw: bytes | None
    """Its bytes; None if the reply doesn't name them."""
    id: int | None
    logprob: float | None
    """Natural logarithm; None if unknown."""
    top: tuple[ServedToken, ...] = ()
    """The alternatives as they were listed, with or without the token itself."""

    @property
    def shown(self) -> bytes:
        """Its bytes, or its id in brackets if they are unknown."""
        return f"⟨{self.id}⟩".encode() if self.raw is None else self.raw


class ServedReply(Struct, frozen=True):
    """The reply of a server, read."""

    form: str
    """Name of its form: `mlx_lm`, `OpenAI chat`, ..."""
    text: str = ""
    """The answer."""
    reasoning: str = ""
    """The thinking, if the server sent it separately."""
    calls: tuple[str, ...] = ()
    """Tool calls, each `name(arguments)`."""
    tokens: tuple[ServedToken, ...] = ()
    finish: str = ""
    """Its `finish_reason`; empty if it has none."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    """Number of the prompt's tokens that the server had in its KV cache."""
    error: str = ""
    """The reason of a refusal, in the server's own words."""
    cut: bool = False
    """True if it broke off."""
    choices: int = 1
    """Number of its answers, of which only the first is read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the parts that are not read."""
        if self.choices < 2:
            return ()
        return (f"The reply has {self.choices:,} choices: only the first one is read here.",)

    @property
    def by_mlx_lm(self) -> bool:
        """True for a reply of mlx_lm.server."""
        return self.form.startswith("mlx_lm")

    @property
    def exact_ids(self) -> tuple[int, ...]:
        """The ids of its tokens; empty unless it names all of them correctly.

        With `top_logprobs`, mlx_lm.server 0.32.2 names one of the alternatives instead of the token.
        """
        ids = [each.id for each in self.tokens]
        if (self.by_mlx_lm and any(each.top for each in self.tokens)) or None in ids:
            return ()
        return tuple(each for each in ids if each is not None)


def read_reply(reply: Reply) -> ServedReply:
    """Read a reply in any of the known forms; unknown values stay unknown."""
    bodies = [each for each in reply.events or (reply.body,) if isinstance(each, dict)]
    numbers = [_index(choice) for body in bodies for choice in _dicts(body.get("choices"))]
    first = min(numbers, default=0)
    read = _joined([_read(body, first) for body in bodies])
    ended = not reply.events or "[DONE]" in reply.events or bool(read.finish)
    read = replace(
        read, cut=reply.cut or not ended, error=_mended(_refused(reply)), choices=max(1, len(set(numbers))),
        text=_mended(read.text), reasoning=_mended(read.reasoning), calls=tuple(map(_mended, read.calls)),
    )  # fmt: skip
    if read.choices > 1:
        read = replace(read, completion_tokens=None)  # it counts all choices together
    if any(each.raw is None and each.id is None for each in read.tokens):
        return replace(read, tokens=())  # in an unknown form
    return read if read.by_mlx_lm else _as_text(read)


def _mended(text: str) -> str:
    """A text without surrogates, which JSON can have and UTF-8 can't: pairs are joined, lone ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _refused(reply: Reply) -> str:
    """The reason of a refusal in the server's own words, after the status if that is known."""
    said = _error(reply.body) or next(filter(None, map(_error, reply.events)), None)
    if reply.status >= 400:
        body = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
        said = f"{reply.status} {said or body}".strip()
    return (said or "")[:1000]


def _error(body: Any) -> str | None:
    """The words of an error; None if there is none."""
    error = body.get("error") if isinstance(body, dict) and "choices" not in body else None
    if isinstance(error, dict):
        error = error.get("message") or error
    if not error:
        return None
    return error if isinstance(error, str) else json.dumps(error)


# ---- one reply, or one part of a stream -----------------------------------------------------------


class Form(Struct, frozen=True):
    """The paths of a reply's parts in the JSON of one kind of server: names with dots between them."""

    name: str
    text: str = ""
    tokens: str = ""
    tops: str = ""
    """Lists of alternatives, if they are not in the tokens' entries."""
    finish: str = ""
    prompt_tokens: str = "usage.prompt_tokens"
    completion_tokens: str = "usage.completion_tokens"
    cached_tokens: str = "usage.prompt_tokens_details.cached_tokens"


_OPENAI = Form("?")
_LLAMA_CPP = Form("llama.cpp", "content", "completion_probabilities", "", "stop_type", "tokens_evaluated",
                  "tokens_predicted")  # fmt: skip
_SGLANG = Form("SGLang", "text", "meta_info.output_token_logprobs", "meta_info.output_top_logprobs",
               "meta_info.finish_reason", "meta_info.prompt_tokens", "meta_info.completion_tokens",
               "meta_info.cached_tokens")  # fmt: skip
_TGI = Form("TGI", "generated_text", "details.tokens", "details.top_tokens", "details.finish_reason")
_OLLAMA = Form("ollama", "message.content", "logprobs", "", "done_reason", "prompt_eval_count", "eval_count")
_OLLAMA_GENERATE = replace(_OLLAMA, text="response")


def _read(body: Mapping[str, Any], first: int) -> ServedReply:
    """Read a reply, or a part of a stream, by its form; an unknown form gives an empty reply.

    Args:
        body: The JSON object.
        first: Index of the choice that is read.
    """
    if choice := next((each for each in _dicts(body.get("choices")) if _index(each) == first), None):
        return _openai(body, choice)
    match body:
        case {"content": str(), "stop": bool()} | {"completion_probabilities": _} | {"tokens_predicted": _}:
            form = _LLAMA_CPP
        case {"meta_info": dict()}:
            form = _SGLANG
        case {"generated_text": str()}:
            form = _TGI
        case {"response": _}:
            form = _OLLAMA_GENERATE
        case {"message": dict()}:
            form = _OLLAMA
        case _:
            form = _OPENAI

    def entries(value: Any) -> list[Mapping[str, Any]]:
        found = _list(value)[:MOST_TOKENS]
        return [_entry(each) for each in found if isinstance(each, dict) or form is _SGLANG]

    listed, tops = entries(_at(body, form.tokens)), _list(_at(body, form.tops))
    if form.tops:
        lists = map(entries, chain(tops, repeat(())))
        listed = [{**each, "top_logprobs": top} for each, top in zip(listed, lists, strict=False)]
    finish = _at(body, form.finish)
    if isinstance(finish, dict):
        finish = "stop_sequence" if isinstance(finish.get("matched"), str) else finish.get("type")
    elif finish is None and form is _LLAMA_CPP and body.get("stopped_eos") is True:
        finish = "eos"
    text, tokens = _str(_at(body, form.text)), tuple(map(_token, listed))
    return ServedReply(form.name, text, tokens=tokens, finish=str(finish or ""), **_counts(body, form))


def _entry(value: Any) -> Mapping[str, Any]:
    """An entry of a list of logprobs as an object; empty if it isn't an entry."""
    match value:
        case list():  # SGLang
            return dict(zip(("logprob", "id", "token"), value, strict=False))
        case {"content": text, "probs": probs}:  # llama.cpp until December 2024
            own = next((each for each in _dicts(probs) if each.get("tok_str") == text), {})
            return {"token": text, "prob": own.get("prob"), "top_probs": probs}
        case dict():
            return value
    return {}


def _openai(body: Mapping[str, Any], choice: Mapping[str, Any]) -> ServedReply:
    named = _dict(choice.get("logprobs"))
    message = {} if "text" in choice else _dict(choice.get("message") or choice.get("delta"))
    pieces, form = None, "OpenAI completions" if "text" in choice else "OpenAI chat"
    if isinstance(named.get("tokens"), list):
        message, form = {}, "OpenAI completions"
        listed = list(_completion_entries(named))
    else:
        listed = _dicts(named.get("content")) or _dicts(named.get("refusal"))
        own = bool(listed) and "bytes" not in listed[0] and "id" in listed[0]
        if own or re.match(_MLX_LM, str(body.get("system_fingerprint", ""))):
            pieces, form = _pieces_of(listed), "mlx_lm"
    # vLLM's: a stop string, or one of `stop_token_ids`
    stopped = choice.get("stop_reason")
    stopped = isinstance(stopped, str | int) and not isinstance(stopped, bool)
    return ServedReply(
        form,
        _str(choice.get("text") if "text" in choice else message.get("content") or message.get("refusal")),
        _str(message.get("reasoning") or message.get("reasoning_content") or message.get("thinking")),
        tuple(_call(_dict(each.get("function"))) for each in _dicts(message.get("tool_calls"))),
        tuple(_token(each, pieces) for each in listed),
        "stop_sequence" if stopped else _str(choice.get("finish_reason")),
        **_counts(body, _OPENAI),
    )


def _completion_entries(named: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries of OpenAI's completions, which has tokens, logprobs and alternatives in three lists."""
    logprobs, tops = _list(named.get("token_logprobs")), _list(named.get("top_logprobs"))
    tokens = _list(named["tokens"])[:MOST_TOKENS]
    for text, logprob, top in zip(
        tokens, chain(logprobs, repeat(None)), chain(tops, repeat(None)), strict=False
    ):
        listed = [{"token": token, "logprob": each} for token, each in list(_dict(top).items())[:MOST_LISTED]]
        yield {"token": text, "logprob": logprob, "top_logprobs": listed}


def _call(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments", "")
    return f"{function.get('name', '')}({arguments if isinstance(arguments, str) else json.dumps(arguments)})"


def _counts(body: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """The numbers of tokens, as fields of a reply."""
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    return {name: _count(_at(body, getattr(form, name))) for name in names}


def _joined(parts: Sequence[ServedReply]) -> ServedReply:
    """The parts of a stream as one reply."""
    forms = [each.form for each in parts if each.form != "?"] or ["?"]

    def last(name: str) -> Any:
        values = (getattr(each, name) for each in reversed(parts))
        return next((value for value in values if value not in (None, "")), None)

    return ServedReply(
        form=next((each for each in forms if each.startswith("mlx_lm")), forms[0]),
        text="".join(each.text for each in parts),
        reasoning="".join(each.reasoning for each in parts),
        calls=tuple(call for each in parts for call in each.calls),
        tokens=tuple(token for each in parts for token in each.tokens)[:MOST_TOKENS],
        finish=last("finish") or "",
        prompt_tokens=last("prompt_tokens"),
        completion_tokens=last("completion_tokens"),
        cached_tokens=last("cached_tokens"),
    )


# ---- values of any JSON ---------------------------------------------------------------------------


def _at(value: Any, path: str) -> Any:
    """The value at a path of names with dots between them; None if there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _index(choice: Mapping[str, Any]) -> int:
    return _count(choice.get("index")) or 0


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if whole else None


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in _list(value)[:MOST_TOKENS] if isinstance(each, dict)]


# ---- one token ------------------------------------------------------------------------------------


def _token(entry: Mapping[str, Any], pieces: str | None = None) -> ServedToken:
    """Read an entry of a list of logprobs.

    Args:
        entry: The JSON object.
        pieces: How its `token` spells bytes, `bytes` or `sentencepiece`; None if it is text.
    """
    listed = entry.get("top_logprobs") or entry.get("top_probs") or ()
    top = tuple(_token({**each, "top_logprobs": ()}, pieces) for each in _dicts(listed)[:MOST_LISTED])
    name, id = entry.get("token"), _count(entry.get("id"))
    if isinstance(name, str) and re.fullmatch(r"token_id:\d{1,9}", name):
        id = int(name[9:])
    return ServedToken(_raw(entry, pieces), id, _logprob(entry), top)


def _raw(entry: Mapping[str, Any], pieces: str | None) -> bytes | None:
    names = (entry.get(name) for name in ("token", "text", "tok_str", "decoded_token"))
    text = next((each for each in names if isinstance(each, str)), None)
    if text is not None and text.startswith("token_id:"):
        return None  # vLLM; `bytes` then spell this placeholder
    given = entry.get("bytes")
    if isinstance(given, list) and all(isinstance(each, int) and 0 <= each < 256 for each in given):
        return bytes(given)
    if text is None:
        return None
    # OpenAI's completions; llama.cpp until 2024
    if (escaped := re.fullmatch(r"bytes?: ?((?:\\x[0-9a-fA-F]{2})+)", text)) is not None:
        return bytes.fromhex(escaped[1].replace("\\x", ""))
    return _of_piece(_mended(text), pieces or "")


def _logprob(entry: Mapping[str, Any]) -> float | None:
    value, prob = entry.get("logprob"), entry.get("prob")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if UNKNOWN < value <= 0.01 else None
    if isinstance(prob, int | float) and 0 < prob <= 1:  # llama.cpp after its sampler
        return math.log(prob)
    return None


def _pieces_of(listed: Sequence[Mapping[str, Any]]) -> str:
    """The spelling in mlx_lm.server of `token`, which is the vocabulary's piece: with sentencepiece's bar or in GPT-2's
    alphabet."""
    entries = [one for each in listed for one in (each, *_dicts(each.get("top_logprobs")))]
    return "sentencepiece" if any("▁" in str(each.get("token", "")) for each in entries) else "bytes"


def _as_text(read: ServedReply) -> ServedReply:
    """A reply with the bytes of its tokens, if it names the vocabulary's pieces instead, as vLLM may do."""
    for pieces in ("bytes", "sentencepiece") if read.tokens and not spells(read) else ():
        tried = replace(read, tokens=tuple(_of_pieces(each, pieces) for each in read.tokens))
        if spells(tried):
            return tried
    return read


def _of_pieces(token: ServedToken, pieces: str) -> ServedToken:
    raw = None if token.raw is None else _of_piece(token.raw.decode("utf-8", "replace"), pieces)
    return replace(token, raw=raw, top=tuple(_of_pieces(each, pieces) for each in token.top))


def _of_piece(piece: str, pieces: str) -> bytes:
    if pieces == "sentencepiece":
        if re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", piece):
            return bytes.fromhex(piece[3:5])
        piece = piece.replace("▁", " ")
    elif pieces == "bytes" and all(sign in _ALPHABET for sign in piece):
        return bytes(_ALPHABET[sign] for sign in piece)
    return piece.encode("utf-8", "replace")


# ---- the text that the tokens spell ---------------------------------------------------------------

_MOST_BYTES = 16
"""Maximum size of an unknown token."""
_STATES = 32
"""Maximum number of spellings of the text so far that are followed, those with the fewest unknown tokens first: for 963
tokens of mlx_lm.server, 32 and 128 find 838 of the tokenizer's own, 8 find 774."""
_MOST_REPAIRED, _MOST_FORMS = 8192, 32
"""Maximum numbers of tokens of a reply, and of alternatives of each, that are tried."""
_MARK = rb"<[^<>]{1,40}>"
"""A special token's text, such as `<|im_end|>`, which no served text has."""


def spelled(tokens: Sequence[ServedToken]) -> bytes:
    """The bytes of tokens, one after another; unknown ones are left out."""
    return b"".join(each.raw or b"" for each in tokens)


def spells(reply: ServedReply) -> bool:
    """True if the tokens that a reply names spell its text: then they are the ones that were served.

    White space, and special tokens, which no text has, make no difference.
    """
    made = re.sub(_MARK, b"", spelled(reply.tokens)).decode("utf-8", "replace")
    return "".join(made.split()) == "".join((reply.reasoning + reply.text).split())


_Spelling = tuple[int, float, int, ServedToken | None]
"""A spelling of the beginning of a text: number of unknown tokens, minus the sum of the logprobs, bytes of the text
before its last token, and that token; None for an unknown one."""


def repaired(reply: ServedReply) -> tuple[ServedToken, ...]:
    """Find the tokens of a reply by its text and its lists, if it names others than were served.

    At each place the served token is an alternative in the list that continues the text, or, if it was drawn from
    beyond the list, some bytes of the text. Of all spellings of the text the one with the fewest unknown tokens is
    taken, and among those the most probable one.

    Returns:
        The same number of tokens; unknown ones have no id and no logprob. Empty if no spelling fits.
    """
    text = reply.text.encode("utf-8", "replace")
    spellings: list[dict[int, _Spelling]] = [{0: (0, 0.0, 0, None)}]
    if len(reply.tokens) > _MOST_REPAIRED:
        return ()
    for place, token in enumerate(reply.tokens):
        after = _after(spellings[-1], text, _forms(token, place))
        spellings.append(dict(sorted(after.items(), key=lambda each: each[1][:2])[:_STATES]))
    if len(text) not in spellings[-1]:
        return ()
    found: list[ServedToken] = []
    at = len(text)
    for token, reached in zip(reversed(reply.tokens), reversed(spellings[1:]), strict=True):
        _, _, before, entry = reached[at]
        found.append(replace(entry or ServedToken(text[before:at], None, None), top=token.top))
        at = before
    return tuple(reversed(found))


def _forms(token: ServedToken, place: int) -> list[tuple[bytes, ServedToken]]:
    """The bytes that each alternative may have in the text; no bytes for a special token, which ends it."""
    forms = []
    for each in token.top[:_MOST_FORMS]:
        if each.raw is None:
            continue
        forms.append((b"" if re.fullmatch(_MARK, each.raw) else each.raw, each))
        if place == 0 and each.raw.startswith(b" "):  # a detokenizer drops a completion's first space
            forms.append((each.raw.lstrip(b" "), each))
    return forms


def _after(
    spellings: Mapping[int, _Spelling], text: bytes, forms: Sequence[tuple[bytes, ServedToken]]
) -> dict[int, _Spelling]:
    """The spellings with one more token, the best to each place of the text."""
    after: dict[int, _Spelling] = {}

    def keep(to: int, spelling: _Spelling) -> None:
        if to not in after or spelling[:2] < after[to][:2]:
            after[to] = spelling

    for at, (unknown, cost, _, _) in spellings.items():
        for form, entry in forms:
            if text.startswith(form, at) and (form or at == len(text)):
                keep(at + len(form), (unknown, cost - (entry.logprob or 0.0), at, entry))
        for length in range(min(_MOST_BYTES, len(text) - at) + 1):
            keep(at + length, (unknown + 1, cost + (20.0 if length else 30.0), at, None))
    return after
