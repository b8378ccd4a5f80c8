"""Replies of a server, in the forms in which servers write them: texts, tokens and their logprobs.

Known forms: OpenAI's chat and completions, whole and streamed, as mlx_lm.server, vLLM and llama.cpp write them too;
llama.cpp's own, SGLang's, TGI's and ollama's. Standard library alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from engine.token_texts import alphabet
from inspector.served.exchange import Reply

UNKNOWN = -9000.0
"""A logprob below it is what vLLM and OpenAI write (-9999) for one that isn't known."""
_MLX_LM = r"\d+\.\d+\.\d+\S*-\d+\.\d+\.\d+\S*-"
"""How mlx_lm.server's `system_fingerprint` begins: its own version, and MLX's."""
_ALPHABET = alphabet()
MOST_TOKENS = 200_000
"""Of a reply that are read."""
MOST_LISTED = 200
"""Alternatives of a token that are read."""


class ServedToken(Struct, frozen=True):
    """A token of a reply, or an alternative to one."""

    raw: bytes | None
    """Its bytes; None where the reply doesn't say."""
    id: int | None
    logprob: float | None
    """Natural; None where it isn't known."""
    top: tuple[ServedToken, ...] = ()
    """The alternatives that were listed, as they were, the token itself among them or not."""


class ServedReply(Struct, frozen=True):
    """The reply of a server, read."""

    form: str
    """Whose it is: `mlx_lm`, `OpenAI chat`, ..."""
    text: str
    """The answer."""
    reasoning: str
    """The thinking, where the server kept it apart."""
    calls: tuple[str, ...]
    """Calls of tools, each `name(arguments)`."""
    tokens: tuple[ServedToken, ...]
    """Empty where the reply has none."""
    finish: str
    """Its `finish_reason`; empty where it has none."""
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    """Of the prompt, that the server had in its KV cache."""
    error: str = ""
    """What the server refused, in its own words."""
    cut: bool = False
    """True if it broke off."""
    choices: int = 1
    """How many answers it has; the others than the first one are not read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not read of it: one sentence each."""
        if self.choices < 2:
            return ()
        return (f"The reply has {self.choices:,} choices: only the first one is read here.",)

    @property
    def by_mlx_lm(self) -> bool:
        """True if it is one of mlx_lm.server's."""
        return self.form.startswith("mlx_lm")

    @property
    def exact_ids(self) -> tuple[int, ...]:
        """The ids of its tokens, where it names all of them truly; empty where it doesn't.

        Beside `top_logprobs` mlx_lm.server 0.32.2 names one of the list in the place of the token.
        """
        ids = [each.id for each in self.tokens]
        if (self.by_mlx_lm and any(each.top for each in self.tokens)) or None in ids:
            return ()
        return tuple(each for each in ids if each is not None)


def read_reply(reply: Reply) -> ServedReply:
    """Read a reply in any of the known forms; of what is unknown nothing is made up.

    Args:
        reply: As it was recorded.
    """
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
        read = replace(read, completion_tokens=None)  # of all of them together
    if any(each.raw is None and each.id is None for each in read.tokens):
        return replace(read, tokens=())  # of a form that isn't known
    return read if read.by_mlx_lm else _as_text(read)


def _index(choice: Mapping[str, Any]) -> int:
    return _count(choice.get("index")) or 0


def _mended(text: str) -> str:
    """A text without halves of characters, which JSON can have and UTF-8 can't: pairs are joined, others replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _refused(reply: Reply) -> str:
    """What the server refused, in its own words, after the status if that is known."""
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


def _read(body: Mapping[str, Any], first: int = 0) -> ServedReply:
    """What a reply says, by its form; nothing of one that is unknown.

    Args:
        body: Of the reply, or of a part of a stream.
        first: Index of the choice that is read.
    """
    if choice := next((each for each in _dicts(body.get("choices")) if _index(each) == first), None):
        return _usage(_openai(body, choice), body.get("usage"))
    part = isinstance(body.get("content"), str) and isinstance(body.get("stop"), bool)
    if part or "completion_probabilities" in body or "tokens_predicted" in body:
        return _llama_cpp(body)
    if isinstance(body.get("meta_info"), dict):
        return _sglang(body, body["meta_info"])
    if isinstance(body.get("generated_text"), str):
        return _tgi(body)
    if "response" in body or isinstance(body.get("message"), dict):
        return _ollama(body)
    return _usage(_made("?", ""), body.get("usage"))


def _made(form: str, text: Any, tokens: Iterable[ServedToken] = (), **more: Any) -> ServedReply:
    values: dict[str, Any] = {
        "reasoning": "", "calls": (), "finish": "", "prompt_tokens": None, "completion_tokens": None,
        "cached_tokens": None, **more,
    }  # fmt: skip
    return ServedReply(form, text if isinstance(text, str) else "", tokens=tuple(tokens), **values)


def _usage(read: ServedReply, usage: Any) -> ServedReply:
    if not isinstance(usage, dict):
        return read
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return replace(
        read,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(cached),
    )


def _openai(body: Mapping[str, Any], choice: Mapping[str, Any]) -> ServedReply:
    named = choice.get("logprobs")
    named = named if isinstance(named, dict) else {}
    by_mlx_lm = bool(re.match(_MLX_LM, str(body.get("system_fingerprint", ""))))
    # vLLM's: a stop string, or one of `stop_token_ids`
    stopped = choice.get("stop_reason")
    stopped = isinstance(stopped, str | int) and not isinstance(stopped, bool)
    finish = "stop_sequence" if stopped else choice.get("finish_reason")
    more = {"finish": finish if isinstance(finish, str) else ""}
    if isinstance(named.get("tokens"), list):
        return _made("OpenAI completions", choice.get("text"), _completion_tokens(named), **more)
    listed = _dicts(named.get("content")) or _dicts(named.get("refusal"))
    by_mlx_lm |= bool(listed) and "bytes" not in listed[0] and "id" in listed[0]
    pieces = _pieces_of(listed) if by_mlx_lm else None
    tokens = [_token(each, pieces) for each in listed]
    form = "mlx_lm" if by_mlx_lm else "OpenAI completions" if "text" in choice else "OpenAI chat"
    message = choice.get("message") or choice.get("delta") or {}
    if "text" in choice or not isinstance(message, dict):
        return _made(form, choice.get("text"), tokens, **more)
    reasoning = message.get("reasoning") or message.get("reasoning_content") or message.get("thinking")
    return _made(
        form, message.get("content") or message.get("refusal"), tokens,
        reasoning=reasoning if isinstance(reasoning, str) else "",
        calls=tuple(_call(each) for each in _dicts(message.get("tool_calls"))), **more,
    )  # fmt: skip


def _completion_tokens(named: Mapping[str, Any]) -> Iterable[ServedToken]:
    """Those of OpenAI's completions: lists beside each other."""
    logprobs, tops = _list(named.get("token_logprobs")), _list(named.get("top_logprobs"))
    for place, text in enumerate(_list(named["tokens"])[:MOST_TOKENS]):
        top = tops[place] if place < len(tops) and isinstance(tops[place], dict) else {}
        logprob = logprobs[place] if place < len(logprobs) else None
        listed = [{"token": token, "logprob": each} for token, each in list(top.items())[:MOST_LISTED]]
        yield _token({"token": text, "logprob": logprob, "top_logprobs": listed}, None)


def _llama_cpp(body: Mapping[str, Any]) -> ServedReply:
    tokens = [_token(_of_2024(each), None) for each in _dicts(body.get("completion_probabilities"))]
    return _made(
        "llama.cpp", body.get("content"), tokens, prompt_tokens=_count(body.get("tokens_evaluated")),
        completion_tokens=_count(body.get("tokens_predicted")),
        finish=str(body.get("stop_type", "eos" if body.get("stopped_eos") is True else "")),
    )  # fmt: skip


def _of_2024(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """An entry of llama.cpp's from before December 2024, `{"content": ..., "probs": [...]}`, in its later form."""
    if "content" not in entry or "probs" not in entry:
        return entry
    listed = _dicts(entry["probs"])
    own = next((each for each in listed if each.get("tok_str") == entry["content"]), {})
    return {"token": entry["content"], "prob": own.get("prob"), "top_probs": listed}


def _sglang(body: Mapping[str, Any], meta: Mapping[str, Any]) -> ServedReply:
    def entry(value: Any) -> dict[str, Any]:
        triple = [*value, None, None, None] if isinstance(value, list) else [None] * 3
        return {"logprob": triple[0], "id": triple[1], "token": triple[2]}

    tops = _list(meta.get("output_top_logprobs"))
    tokens = [
        _token({**entry(each), "top_logprobs": [entry(one) for one in _list(tops[place])]}, None)
        if place < len(tops) else _token(entry(each), None)
        for place, each in enumerate(_list(meta.get("output_token_logprobs"))[:MOST_TOKENS])
    ]  # fmt: skip
    finish = meta.get("finish_reason")
    finish = finish if isinstance(finish, dict) else {}
    return _made(
        "SGLang", body.get("text"), tokens,
        finish="stop_sequence" if isinstance(finish.get("matched"), str) else str(finish.get("type", "")),
        prompt_tokens=_count(meta.get("prompt_tokens")),
        completion_tokens=_count(meta.get("completion_tokens")), cached_tokens=_count(meta.get("cached_tokens")),
    )  # fmt: skip


def _tgi(body: Mapping[str, Any]) -> ServedReply:
    details = body.get("details")
    details = details if isinstance(details, dict) else {}
    tops = _list(details.get("top_tokens"))
    tokens = [
        _token({**each, "top_logprobs": _list(tops[place]) if place < len(tops) else []}, None)
        for place, each in enumerate(_dicts(details.get("tokens")))
    ]
    return _made("TGI", body["generated_text"], tokens, finish=str(details.get("finish_reason", "")))


def _ollama(body: Mapping[str, Any]) -> ServedReply:
    message = body.get("message")
    message = message if isinstance(message, dict) else {}
    tokens = [_token(each, None) for each in _dicts(body.get("logprobs"))]
    return _made(
        "ollama", body.get("response", message.get("content")), tokens, finish=str(body.get("done_reason", "")),
        prompt_tokens=_count(body.get("prompt_eval_count")), completion_tokens=_count(body.get("eval_count")),
    )  # fmt: skip


def _joined(parts: Sequence[ServedReply]) -> ServedReply:
    """The parts of a stream as one reply."""
    if not parts:
        return _made("?", "")
    forms = [each.form for each in parts if each.form != "?"] or ["?"]
    form = next((each for each in forms if each.startswith("mlx_lm")), forms[0])

    def last(name: str) -> Any:
        return next((value for each in reversed(parts) if (value := getattr(each, name)) is not None), None)

    return ServedReply(
        form=form,
        text="".join(each.text for each in parts),
        reasoning="".join(each.reasoning for each in parts),
        calls=tuple(call for each in parts for call in each.calls),
        tokens=tuple(token for each in parts for token in each.tokens)[:MOST_TOKENS],
        finish=next((each.finish for each in reversed(parts) if each.finish), ""),
        prompt_tokens=last("prompt_tokens"),
        completion_tokens=last("completion_tokens"),
        cached_tokens=last("cached_tokens"),
        error=next((each.error for each in parts if each.error), ""),
    )


# ---- one token ------------------------------------------------------------------------------------


def _token(entry: Mapping[str, Any], pieces: str | None) -> ServedToken:
    """An entry of a list of logprobs.

    Args:
        entry: As JSON.
        pieces: How its `token` spells bytes, `bytes` or `sentencepiece`; None where it is text.
    """
    listed = entry.get("top_logprobs") or entry.get("top_probs") or ()
    top = tuple(_token({**each, "top_logprobs": ()}, pieces) for each in _dicts(listed)[:MOST_LISTED])
    return ServedToken(_raw(entry, pieces), _id(entry), _logprob(entry), top)


def _raw(entry: Mapping[str, Any], pieces: str | None) -> bytes | None:
    text = next((value for name in ("token", "text", "tok_str", "decoded_token")
                 if isinstance(value := entry.get(name), str)), None)  # fmt: skip
    if text is not None and text.startswith("token_id:"):
        return None  # vLLM; `bytes` are then those of these words
    given = entry.get("bytes")
    if isinstance(given, list) and all(isinstance(each, int) and 0 <= each < 256 for each in given):
        return bytes(given)
    if text is None:
        return None
    # OpenAI's completions; llama.cpp until 2024
    if (escaped := re.fullmatch(r"bytes?: ?((?:\\x[0-9a-fA-F]{2})+)", text)) is not None:
        return bytes.fromhex(escaped[1].replace("\\x", ""))
    return _of_piece(_mended(text), pieces or "")


def _id(entry: Mapping[str, Any]) -> int | None:
    token = entry.get("token")
    if isinstance(token, str) and re.fullmatch(r"token_id:\d{1,9}", token):
        return int(token[9:])
    return _count(entry.get("id"))


def _logprob(entry: Mapping[str, Any]) -> float | None:
    value, prob = entry.get("logprob"), entry.get("prob")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if UNKNOWN < value <= 0.01 else None
    if isinstance(prob, int | float) and 0 < prob <= 1:  # llama.cpp after its sampler
        return math.log(prob)
    return None


def _pieces_of(listed: Sequence[Mapping[str, Any]]) -> str:
    """How mlx_lm.server's `token` spells bytes: it is the vocabulary's piece, with sentencepiece's bar or in GPT-2's
    alphabet."""
    entries = [one for each in listed for one in (each, *_dicts(each.get("top_logprobs")))]
    return "sentencepiece" if any("▁" in str(each.get("token", "")) for each in entries) else "bytes"


def _as_text(read: ServedReply) -> ServedReply:
    """A reply whose tokens are the vocabulary's pieces, as vLLM may name them, with the bytes that these stand for."""
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
        return piece.replace("▁", " ").encode("utf-8", "replace")
    if pieces == "bytes" and all(sign in _ALPHABET for sign in piece):
        return bytes(_ALPHABET[sign] for sign in piece)
    return piece.encode("utf-8", "replace")


def _call(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", "")
    return f"{function.get('name', '')}({arguments if isinstance(arguments, str) else json.dumps(arguments)})"


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if whole else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in _list(value)[:MOST_TOKENS] if isinstance(each, dict)]


# ---- what the tokens spell ------------------------------------------------------------------------

_MOST_BYTES = 16
"""Of a token that isn't known."""
_STATES = 32
"""Ways to spell the text so far that are followed, those with the fewest unknown tokens first: of 963 tokens of
mlx_lm.server 32 and 128 find 838 that are those of the tokenizer's own cut, 8 find 774."""
_MOST_REPAIRED, _MOST_FORMS = 8192, 32
"""Tokens of a reply, and alternatives of each, that are tried."""
_MARK = rb"<[^<>]{1,40}>"
"""A special token's text, such as `<|im_end|>`, which no served text has."""


def spelled(tokens: Sequence[ServedToken]) -> bytes:
    """The bytes of tokens, one after another; unknown ones are left out."""
    return b"".join(each.raw or b"" for each in tokens)


def spells(reply: ServedReply) -> bool:
    """Tell whether the tokens that a reply names spell its text: then they are the ones that were served.

    White space at the ends, and special tokens, which no text has, make no difference.
    """
    made = re.sub(_MARK, b"", spelled(reply.tokens)).decode("utf-8", "replace")
    return "".join(made.split()) == "".join((reply.reasoning + reply.text).split())


_Spelling = tuple[int, float, int, ServedToken | None]
"""A way to spell a beginning of a text: unknown tokens, minus the sum of the logprobs, bytes of the text before its
last token, and that token; None for an unknown one."""


def repaired(reply: ServedReply) -> tuple[ServedToken, ...]:
    """The tokens of a reply by its text and its lists, where it names others than were served.

    At each place the served token is one of its list whose bytes continue the text, or, drawn from beyond the list,
    some bytes of the text. Of all ways to spell the text the one with the fewest unknown tokens is taken, then the most
    probable one.

    Args:
        reply: With tokens.

    Returns:
        As many tokens; those that are unknown have no id and no logprob. Empty where the text can't be spelled so.
    """
    text = reply.text.encode("utf-8", "replace")
    ways: list[dict[int, _Spelling]] = [{0: (0, 0.0, 0, None)}]
    if len(reply.tokens) > _MOST_REPAIRED:
        return ()
    for place, token in enumerate(reply.tokens):
        after = _after(ways[-1], text, _forms(token, place))
        ways.append(dict(sorted(after.items(), key=lambda each: each[1][:2])[:_STATES]))
    if len(text) not in ways[-1]:
        return ()
    found: list[ServedToken] = []
    at = len(text)
    for token, reached in zip(reversed(reply.tokens), reversed(ways[1:]), strict=True):
        _, _, before, entry = reached[at]
        unknown = ServedToken(text[before:at], None, None, token.top)
        found.append(unknown if entry is None else replace(entry, top=token.top))
        at = before
    return tuple(reversed(found))


def _forms(token: ServedToken, place: int) -> list[tuple[bytes, ServedToken]]:
    """The bytes that the entries of a list may have in the text; none for a special token, which ends it."""
    forms = []
    for each in token.top[:_MOST_FORMS]:
        raw = each.raw
        if raw is None:
            continue
        forms.append((b"" if re.fullmatch(_MARK, raw) else raw, each))
        if place == 0 and raw.startswith(b" "):  # a detokenizer drops a completion's first blank
            forms.append((raw.lstrip(b" "), each))
    return forms


def _after(
    ways: Mapping[int, _Spelling], text: bytes, forms: Sequence[tuple[bytes, ServedToken]]
) -> dict[int, _Spelling]:
    """The ways with one more token, the best to each place of the text."""
    after: dict[int, _Spelling] = {}

    def keep(to: int, way: _Spelling) -> None:
        if to not in after or way[:2] < after[to][:2]:
            after[to] = way

    for at, (unknown, cost, _, _) in ways.items():
        for form, entry in forms:
            if text.startswith(form, at) and (form or at == len(text)):
                keep(at + len(form), (unknown, cost - (entry.logprob or 0.0), at, entry))
        for length in range(min(_MOST_BYTES, len(text) - at) + 1):
            keep(at + length, (unknown + 1, cost + (20.0 if length else 30.0), at, None))
    return after
