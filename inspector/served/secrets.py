"""What a recording of a server never stores: keys in headers, in the path and in the fields that are for them.

Of headers those of a list are recorded, and no others. What a request shows of a key is remembered, and masked wherever
it comes again, as an error's message may repeat it. Standard library alone.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from inspector.served.exchange import Headers

MASK = "(not stored)"
LEAST = 5
"""Characters of a secret: a shorter one is none, and would be found inside words."""
MOST_KNOWN, LONGEST = 32, 8192
"""Secrets that are remembered, the last ones, and characters of each."""
PLACEHOLDERS = frozenset(
    {"dummy", "empty", "ollama", "no-key", "nokey", "local", "not-needed", "unused", "token", "api-key", "apikey",
     "lm-studio", "sk-no-key-required", "bearer", "basic"}
)  # fmt: skip
"""What clients of local servers give for a key, which needs none: words that prompts have, too."""
RECORDED_HEADERS = frozenset(
    {"accept", "cache-control", "connection", "content-encoding", "content-length", "content-type", "date", "expect",
     "host", "openai-processing-ms", "retry-after", "server", "transfer-encoding", "user-agent", "x-request-id"}
)  # fmt: skip
_SECRET_HEADER = re.compile(r"auth|key|token|secret|passw|cookie|credential|signature", re.I)
_SECRET_FIELD = re.compile(
    r"(?<!prompt_cache)(?:^|[^a-z])(?:key|passwd|pwd|auth|sig)$|(?:api|access|secret|private)key$"
    r"|(?:secret|password|authorization|cookie|credentials?|signature)$"
    r"|(?:^|(?:api|auth|authorization|access|bearer|hf|id|refresh|security|session)[_-]?)token$",
    re.I,
)
"""Not `stop_token` and its like, which are texts of a tokenizer."""
_SECRET_IN_REPLY = re.compile(
    r"(?:api|access|private)_?key$|(?:access|refresh|session)_?token$|secret$|password$|authorization$", re.I
)
"""Not `token`, which is what some servers call a piece of their answer."""
_IN_TEXT = re.compile(
    r"""(?<![\w-])(["']?[\w-]{0,40}?(?:key|token|secret|password|authorization|cookie)["']?\s{0,9}[:=]\s{0,9})"""
    r"""("(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"',;&}]+)""",
    re.I,
)
"""A field for a key and its value, in a text that is no JSON."""
_USER = re.compile(r"//[^/?#@\s]*@")


class Secrets:
    """The secrets of one recording: what they are is learned from requests, and masked from then on."""

    def __init__(self) -> None:
        self.masked = 0
        """How often something was masked inside a body."""
        self._known: dict[str, None] = {}
        self._forms: list[str] = []
        """In which they may be written, the longest first."""

    # ---- what is learned --------------------------------------------------------------------

    def learn(self, text: str) -> None:
        """Remember a secret, unless it is too short to be one or stands for none."""
        text = text.strip().strip("\"'")
        if not LEAST <= len(text) <= LONGEST or text.lower() in PLACEHOLDERS or text in self._known:
            return
        self._known[text] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._forms = sorted({form for each in self._known for form in _forms(each)}, key=len, reverse=True)

    def learn_headers(self, headers: Iterable[tuple[str, str]]) -> None:
        """Remember what the headers of a message have of keys."""
        for name, value in headers:
            if _SECRET_HEADER.search(name):
                for text in _in_cookie(value) if "cookie" in name.lower() else _in_authorization(value):
                    self.learn(text)

    def _learn_value(self, value: Any) -> None:
        """Remember what the texts of a JSON value have of keys."""
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, str):
                for text in _in_authorization(each):
                    self.learn(text)
            elif isinstance(each, dict | list):
                waiting += each.values() if isinstance(each, dict) else each

    # ---- what is masked ---------------------------------------------------------------------

    def headers(self, headers: Iterable[tuple[str, str]]) -> Headers:
        """The headers that are recorded."""
        return tuple((name, self.text(value)) for name, value in headers if name.lower() in RECORDED_HEADERS)

    def path(self, target: str) -> str:
        """A request's path, or another URL, without the keys in its query and without its user."""
        target, mark, query = target.partition("?")
        pairs = [pair.partition("=") for pair in query.split("&")]
        for name, _, value in pairs:
            if _in_query(name):
                self.learn(unquote_plus(value))
        kept = (
            f"{name}={MASK}" if equals and _in_query(name) else self.text(name + equals + value)
            for name, equals, value in pairs
        )
        return self.text(_USER.sub("//", target)) + mark + "&".join(kept)

    def request(self, value: Any) -> Any:
        """A request's JSON body: its own fields for keys are masked, and those of MCP tools.

        A parameter of a function may be called `password`, too: that belongs to the prompt, and stays.
        """
        if not isinstance(value, dict):
            return self.value(value)
        kept = self._without_keys(value)
        for name in ("tools", "mcp_servers"):
            if isinstance(tools := value.get(name), list):
                kept[name] = [self._tool(tool, name == "mcp_servers") for tool in tools]
        return self.value(kept)

    def reply(self, value: Any) -> Any:
        """A reply's JSON body, or an event: its own fields for keys are masked, as where a server gives one."""
        if isinstance(value, dict):
            value = {
                name: MASK if isinstance(each, str | dict) and _SECRET_IN_REPLY.search(name) else each
                for name, each in value.items()
            }
        return self.value(value)

    def _tool(self, tool: Any, is_server: bool) -> Any:
        if not isinstance(tool, dict) or not (is_server or tool.get("type") == "mcp"):
            return tool
        urls = {
            name: self.path(each) for name, each in tool.items() if isinstance(each, str) and "://" in each
        }
        return self._without_keys({**tool, **urls})

    def _without_keys(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        kept = dict(fields)
        for name, value in fields.items():
            if isinstance(value, dict) and name.lower() in ("headers", "extra_headers"):
                of_keys = {
                    each: content for each, content in value.items() if each.lower() not in RECORDED_HEADERS
                }
                kept[name] = {**value, **dict.fromkeys(of_keys, MASK)}
                self._learn_value(of_keys)
            elif isinstance(value, str | dict | list) and _SECRET_FIELD.search(name):
                kept[name] = MASK
                self._learn_value(value)
        return kept

    def value(self, value: Any) -> Any:
        """A JSON value in which known secrets are masked."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {self.text(name): self.value(each) for name, each in value.items()}
        return value

    def text(self, text: str) -> str:
        """A text in which known secrets are masked."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
                self.masked += 1
        return text

    def no_json(self, text: str) -> str:
        """A body that is not valid JSON: fields for keys are masked wherever they seem to be."""

        def masked(found: re.Match[str]) -> str:
            self._learn_value(found[2])
            return found[1] + MASK

        return self.text(_IN_TEXT.sub(masked, text))


def _in_query(name: str) -> bool:
    """Tell whether a field of a query is for a key."""
    name = unquote_plus(name)
    return name.lower().endswith("token") or _SECRET_FIELD.search(name) is not None


def _in_authorization(value: str) -> Iterator[str]:
    """The secrets in `KEY`, `Bearer KEY` or `Basic BASE64`."""
    yield value
    scheme, _, rest = value.strip().partition(" ")
    yield rest
    if scheme.lower() == "basic":
        try:
            pair = b64decode(rest).decode()
        except ValueError:
            return
        yield from (pair, pair.partition(":")[2])


def _in_cookie(value: str) -> Iterator[str]:
    """The secrets in `a=KEY; b=KEY`."""
    yield value
    for part in value.split(";"):
        yield part.partition("=")[2]


def _forms(secret: str) -> Iterator[str]:
    """How a secret may be written: as it is, encoded for a URL, escaped for JSON."""
    for form in (secret, unquote(secret)):
        yield from (form, form.replace("/", "\\/"), json.dumps(form)[1:-1])
        for coded in (quote(form, safe=""), quote(form), quote_plus(form)):
            yield from (coded, re.sub("%..", lambda found: found[0].lower(), coded))
