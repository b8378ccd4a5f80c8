"""Text to token ids, and the bytes and text of each token, with UTF-8 characters that span tokens.

mlx_lm's streaming detokenizers drop a leading space and hold text back. A debugger must do neither, so this module
finds the bytes of every token; the joined bytes of a path are its text.

A tokenizer that its files describe completely is run by the `tokenizers` library directly. transformers'
`PreTrainedTokenizerFast` also passes texts to that library, but applies fixes that some files or families need. For
files that need no fix the ids are the same, and not importing transformers saves 1.7 s at the start.
`plain_tokenizer` checks the conditions; in case of doubt it returns None, and mlx_lm loads the tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tokenizers import AddedToken, Tokenizer

from engine.errors import LoadError, PromptError, cutting, not_unicode_at
from engine.model import chat_template
from engine.model.chat_template import ChatText, Filling, chat_text, filling, left_open, reply_format
from engine.protocol import ChatOptions, Message, ReplyFormat
from engine.token_texts import alphabet, decode

# ---- plain tokenizers -----------------------------------------------------------------------------

CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTS = ("additional_special_tokens", "extra_special_tokens")
_FIELDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*NAMED, "tokenizer_class", "chat_template", "backend", "name_or_path"), (str,)),
    **dict.fromkeys(LISTS, (list,)),
    **dict.fromkeys(("clean_up_tokenization_spaces", "add_bos_token", "add_eos_token"), (bool,)),
    **dict.fromkeys(("is_local", "local_files_only"), (bool,)),
    "model_max_length": (int, float),
}
"""Fields of tokenizer_config.json that need no fix by transformers, and their types if they are not null."""
_OTHERS = (
    "added_tokens.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json",
    "additional_chat_templates", "tokenizer.model", "vocab.json", "merges.txt", "tiktoken.model",
)  # fmt: skip
"""Further files that transformers would read."""
_FAMILIES = frozenset(
    {"llama", "qwen3", "gemma3_text", "gpt2", "phi3", "mixtral", "gpt_oss", "mamba2", "lfm2", "qwen3_next",
     "deepseek_v2"}
)  # fmt: skip
"""Model types without tokenizer defaults in mlx_lm for which transformers uses the class named in the file; qwen2, for
example, isn't one of them."""
_LARGEST = 100_000
"""Maximum entries of the vocabulary. transformers checks larger ones for Mistral's tokenizers, to fix them."""


class PlainTokenizer:
    """A tokenizer with the attributes of both a transformers tokenizer and mlx_lm's `TokenizerWrapper`.

    Args:
        backend: The tokenizer from `tokenizer.json`.
        config: Content of `tokenizer_config.json`.
        eos_ids: End-of-sequence ids from the model's config.
    """

    _chat_template: None = None
    """The renderer of mlx_lm's own for some families' prompts."""

    def __init__(self, backend: Tokenizer, config: Mapping[str, Any], eos_ids: Sequence[int] = ()) -> None:
        from mlx_lm.tokenizer_utils import _infer_thinking

        self._tokenizer, self.backend_tokenizer = self, backend
        self.special_tokens_map = {name: config[name] for name in NAMED if config.get(name)}
        self.bos_token: str | None = config.get("bos_token")
        self.chat_template: str | None = config.get("chat_template")
        self.has_chat_template = self.chat_template is not None
        special = [*self.special_tokens_map.values(), *_listed(config)]
        self.all_special_ids = list(dict.fromkeys(backend.token_to_id(token) for token in special))
        eos = config.get("eos_token")
        self.eos_token_ids = {*eos_ids, *([backend.token_to_id(eos)] if eos else [])}
        self.convert_ids_to_tokens: Callable[[int], str | None] = backend.id_to_token
        """Returns the piece of an id."""
        self.think_start, self.think_end, *_ = _infer_thinking(self)
        self.has_thinking = self.think_start is not None

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """The added tokens by id."""
        found: dict[int, AddedToken] = self.backend_tokenizer.get_added_tokens_decoder()
        return found

    def get_vocab(self) -> dict[str, int]:
        """Ids by piece."""
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def get_chat_template(self, chat_template: str | None = None, tools: object = None) -> str | None:
        """Source of the given template; if None, of the tokenizer's only template."""
        return chat_template or self.chat_template

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return list(self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)


def plain_tokenizer(path: Path, config: Mapping[str, Any]) -> PlainTokenizer | None:
    """Load the tokenizer of a model directory if its files describe it completely.

    Args:
        path: The directory; its files have been checked.
        config: Content of its `config.json`.

    Returns:
        The tokenizer. None if transformers might apply a fix, or if the files are invalid: mlx_lm then loads it, and
        reports what is wrong.
    """
    if config.get("model_type") not in _FAMILIES or any((path / name).exists() for name in _OTHERS):
        return None
    try:
        given = json.loads((path / "tokenizer_config.json").read_bytes())
        known = (value is None or type(value) in _FIELDS.get(name, ()) for name, value in given.items())
        adds = given.get("add_bos_token") or given.get("add_eos_token")
        if not all(known) or given.get("tokenizer_class") not in CLASSES or adds:
            return None  # before reading tokenizer.json, since 30 MB of it take a second
        file = json.loads((path / "tokenizer.json").read_bytes())
        if any(file.get(name) for name in ("truncation", "padding", "post_processor")):
            return None
        if (file.get("decoder") or {}).get("type") != "ByteLevel" or len(file["model"]["vocab"]) > _LARGEST:
            return None
        marks = {str(each["content"]) for each in file["added_tokens"] if each["special"]}
        named = [given[name] for name in NAMED if given.get(name) is not None]
        if not all(isinstance(each, str) and each in marks for each in [*named, *_listed(given)]):
            return None
        eos: Any = config.get("eos_token_id")
        eos_ids = [int(each) for each in (eos if isinstance(eos, list) else [eos]) if eos is not None]
        return PlainTokenizer(Tokenizer.from_file(str(path / "tokenizer.json")), given, eos_ids)
    except Exception:  # tokenizers raises plain `Exception`
        return None


def _listed(config: Mapping[str, Any]) -> list[Any]:
    return [token for name in LISTS for token in config.get(name) or ()]


# ---- the tokens of a model ---------------------------------------------------------------------

BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""Sentencepiece's name for a byte that no piece covers; some tokenizers list these as added tokens."""


class Tokens:
    """A model's tokenizer, as mlx_lm loads it.

    Args:
        wrapper: `mlx_lm.tokenizer_utils.TokenizerWrapper`, or a `PlainTokenizer`.
        vocabulary: Number of rows of the model's embedding; larger ids never reach the model.
    """

    def __init__(self, wrapper: Any, vocabulary: int) -> None:
        self._wrapper = wrapper
        self._fast = wrapper._tokenizer
        self.vocabulary = vocabulary
        self.eos_ids: tuple[int, ...] = tuple(sorted(i for i in wrapper.eos_token_ids if 0 <= i < vocabulary))
        self.has_chat_template = bool(wrapper.has_chat_template)
        added = getattr(self._fast, "added_tokens_decoder", {})
        self._added = {int(i): str(token.content) for i, token in added.items()}
        special = {int(i) for i, token in added.items() if token.special} | {*self._fast.all_special_ids}
        self.special_ids = special - {None}
        """Ids of the tokens that are markup of the format."""
        self._decoded = self._decoder()
        self._raw: dict[int, bytes] = {}
        self._texts: dict[int, tuple[str, bytes]] = {}
        self.known: dict[int, tuple[str, bytes, bool]] = {}
        self._formats: dict[str, ReplyFormat] = {}
        """Reply format for the last chat template, by its source."""

    @property
    def backend(self) -> Tokenizer:
        """The `tokenizers` library's tokenizer; callers must not change it.

        Raises:
            LoadError: The tokenizer doesn't use that library.
        """
        backend = getattr(self._fast, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            message = "This model's tokenizer is code: no file says in which steps it cuts."
            raise LoadError(message, "Give the tokenizer.json of a model that has one.")
        return backend

    @cached_property
    def spared(self) -> tuple[int, ...]:
        """Ids that XTC never excludes, as in mlx_lm.generate: end-of-sequence and newline."""
        newline = [int(i) for i in self._fast.encode("\n")]
        return tuple(sorted({*self.eos_ids, *(i for i in newline if 0 <= i < self.vocabulary)}))

    def add_eos(self, text: str) -> None:
        """Add an end-of-sequence token, like mlx_lm's `add_eos_token`. Call it before the first use of `spared`.

        Args:
            text: The token's text, its piece as spelled in the tokenizer's file, or its id.

        Raises:
            LoadError: It is not a token of this model.
        """
        token = int(text[:12]) if text.isdecimal() else self._token_of(text)
        if token is None or token >= self.vocabulary:
            if (beyond := next((id for id, each in self._added.items() if each == text), None)) is not None:
                last = f"the model has no tokens beyond {self.vocabulary - 1}"
                message = f"--extra-eos-token: {text} is token {beyond}, and {last}."
                raise LoadError(message, "It can't generate that token: leave it out.")
            near = get_close_matches(text, self._added.values(), 1)
            mend = "It must be one token. To stop at a text of several, use --stop of `inspector generate` or `batch`."
            mend = f"Did you mean {near[0]}?" if near else mend
            mend = f"Ids go from 0 to {self.vocabulary - 1}." if text.isdecimal() else mend
            raise LoadError(f"--extra-eos-token: {text!r} is not a token of this model.", mend)
        self.eos_ids = tuple(sorted({*self.eos_ids, token}))

    def _token_of(self, text: str) -> int | None:
        """The token with this text or piece; if several have the text, the one that the tokenizer encodes it as."""
        cut = [int(i) for i in self._fast.encode(text, add_special_tokens=False)]
        raw, whole = text.encode(), range(self.vocabulary)
        if len(cut) == 1 and self.raw(cut[0]) == raw:
            return cut[0]
        pieces = (token for token in whole if self._piece(token) == text)
        return next(pieces, next((token for token in whole if self.raw(token) == raw), None))

    @cached_property
    def template(self) -> str:
        """Source of the chat template; empty if the model has none, or has code instead."""
        try:
            source = "" if self._has_own_renderer else self._fast.get_chat_template()
        except Exception:  # there is no template, or no default among several
            return ""
        return source if isinstance(source, str) else ""

    @property
    def named_ids(self) -> dict[str, int]:
        """Ids of the tokens that the tokenizer names: `bos_token`, `eos_token`, `pad_token` and the like."""
        ids = {text: token for token, text in self._added.items()}
        named = self._fast.special_tokens_map.items()
        return {
            name: ids[str(text)] for name, text in named if not isinstance(text, list) and str(text) in ids
        }

    def is_special(self, token: int) -> bool:
        """True if a token is markup of the format instead of text."""
        return token in self.special_ids

    def raw(self, token: int) -> bytes:
        """The bytes of a token; empty for an id that the tokenizer has no entry for."""
        if (raw := self._raw.get(token)) is not None:
            return raw
        raw = self._raw[token] = self._bytes_of(token)
        return raw

    def text(self, token: int, pending: bytes = b"") -> tuple[str, bytes]:
        """The characters that a token completes after the pending bytes, and the bytes that are still pending."""
        if pending:
            return decode(pending, self.raw(token))
        decoded = self._texts.get(token)
        if decoded is None:
            decoded = self._texts[token] = decode(b"", self.raw(token))
        return decoded

    def join(self, tokens: list[int]) -> str:
        """The text of consecutive tokens; an unfinished character at the end becomes U+FFFD."""
        return b"".join(map(self.raw, tokens)).decode("utf-8", "replace")

    def encode(self, text: str, *, bare: bool = False) -> list[int]:
        """Token ids of a text.

        Args:
            text: The text; special tokens written in it are encoded as such, as in mlx_lm.
            bare: True to omit the beginning-of-sequence token, for a text that continues another or a filled template.

        Returns:
            Ids below the vocabulary size.

        Raises:
            PromptError: The text is empty, isn't valid Unicode, can't be tokenized, or gives an id beyond the model's
                embedding.
        """
        _check_unicode(text)
        bos = self._fast.bos_token
        special = not bare and (bos is None or not text.startswith(bos))
        with cutting():
            ids = [int(i) for i in self._fast.encode(text, add_special_tokens=special)]
        if not ids:
            raise PromptError("The prompt is empty.", "Give some text.")
        self.check(ids)
        return ids

    def takes_chat(self, options: ChatOptions) -> bool:
        """True if there is a chat template: the model's, or the default of its tokenizer if the options allow that."""
        return self.has_chat_template or (options.default_template and self._default_template is not None)

    def chat(self, messages: Sequence[Message], options: ChatOptions) -> str:
        """Fill the model's chat template, up to the point where the answer begins or continues.

        Args:
            messages: The conversation.
            options: The other values that the template gets.

        Raises:
            PromptError: Neither the model nor the options have a template, or the template rejects the messages or
                takes too long.
        """
        return str(self._filled([self._filling(messages, options)])[0])

    def chat_text(self, messages: Sequence[Message], options: ChatOptions) -> ChatText:
        """Fill the template like `chat`, and find each message in the text.

        Raises:
            PromptError: See `chat`.
        """
        given = self._filling(messages, options)
        return chat_text(self._filled, given, self.reply_format(self._source(given) or ""))

    def raw_text(self, text: str) -> ChatText:
        """A raw prompt, without messages: the model's reply begins as an answer."""
        return ChatText(text, reply=replace(self.reply_format(), begin="answer"))

    def reply_format(self, template: str | None = None) -> ReplyFormat:
        """The format of replies.

        Args:
            template: Source of the template that was filled for the prompt; None for the model's own.
        """
        source = self.template if template is None else template
        if (known := self._formats.get(source)) is None:
            known = reply_format(source, self._wrapper, self._fast.get_vocab)
            self._formats = {source: known}
        return known

    def _filling(self, messages: Sequence[Message], options: ChatOptions) -> Filling:
        _check_unicode("".join((*(message.content for message in messages), options.response or "")))
        given = filling(messages, options)
        if given.template is None and not self.takes_chat(options):
            raise PromptError("This model has no chat template.", "Use the prompt as raw text.")
        return given

    def _source(self, given: Filling) -> str | None:
        """Source of the template to fill; None if the prompts are written by code.

        Raises:
            PromptError: There is no template.
        """
        if self._has_own_renderer:
            return None
        try:
            default = None if self.has_chat_template else self._default_template
            template = self._fast.get_chat_template(given.template or default, given.tools)
            if not isinstance(template, str):
                raise TypeError("it is no text")
        except Exception as error:  # no default among several templates; code may raise anything
            raise chat_template.refusal(error) from error
        return template

    def _filled(self, every: Sequence[Filling]) -> list[str | None]:
        """Fill the template with each of several sets of values; None for any but the first that it rejects."""
        given, *others = every
        if (template := self._source(given)) is None:
            return self._rendered(every)
        values = {
            **self._fast.special_tokens_map,
            "enable_thinking": self._wrapper.has_thinking,
            **given.config,
            "messages": given.marked(),
            "tools": given.tools,
            "documents": given.documents,
            "add_generation_prompt": not given.opened,
        }
        instead = [{"messages": each.marked(), "tools": each.tools} for each in others]
        texts = chat_template.render(template, values, instead)
        if given.opened:
            texts = [left_open(text, each.last) for text, each in zip(texts, every, strict=True)]
            if texts[0] is None:
                raise chat_template.refusal("it does not write out the message that is to be continued")
        return texts

    def _rendered(self, every: Sequence[Filling]) -> list[str | None]:
        """See `_filled`; for prompts that are written by code instead of a template."""
        texts: list[str | None] = []
        for each in every:
            opened = each.opened
            how: dict[str, Any] = {"continue_final_message": opened, "add_generation_prompt": not opened}
            how |= {"tools": each.tools, "tokenize": False, **each.config}
            try:
                texts.append(str(self._wrapper.apply_chat_template(each.conversation, **how)))
            except Exception as error:  # code may raise anything
                if not texts:
                    raise chat_template.refusal(error) from error
                texts.append(None)
        return texts

    @property
    def _default_template(self) -> str | None:
        """The default template of the tokenizer's class; classes of transformers have none since version 4.44."""
        default = getattr(self._fast, "default_chat_template", None)
        return default if isinstance(default, str) else None

    @property
    def _has_own_renderer(self) -> bool:
        """True if code in mlx_lm or transformers writes the prompts, instead of a template in the model's files."""
        return self._wrapper._chat_template is not None or self._overrides("apply_chat_template")

    def _overrides(self, method: str) -> bool:
        """True if the tokenizer's class overrides a method of transformers' base class."""
        if isinstance(self._fast, PlainTokenizer):
            return False
        from transformers import PreTrainedTokenizerBase  # already imported, since it made the tokenizer

        return getattr(type(self._fast), method) is not getattr(PreTrainedTokenizerBase, method)

    def check(self, tokens: Sequence[int]) -> None:
        """Check that the embedding has a row for each id; otherwise MLX would end the process or read garbage.

        Raises:
            PromptError: An id has no row; the message names the first.
        """
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise PromptError(
                    f"Token id {token} is outside the model's vocabulary of {self.vocabulary}.",
                    "The tokenizer does not belong to this model, or the text holds a token it was not made for.",
                )

    def _piece(self, token: int) -> str | bytes | None:
        """A token as spelled in the tokenizer's files; None if they have no such id."""
        if token < 0:
            return None
        try:
            piece: str | bytes | None = self._fast.convert_ids_to_tokens(token)
        except (IndexError, KeyError, OverflowError):  # of a tokenizer that is code; an id beyond 32 bits
            return None
        return piece

    def _bytes_of(self, token: int) -> bytes:
        piece = self._piece(token)
        if piece is None or isinstance(piece, bytes):
            return piece or b""
        text = self._decoded(token, piece)
        if "�" in text:  # an unfinished character; decoders don't return its bytes
            if BYTE_PIECE.fullmatch(piece):
                return bytes([int(piece[3:5], 16)])
            if all(char in _BYTE_OF for char in piece):
                return bytes(map(_BYTE_OF.__getitem__, piece))
        return text.encode("utf-8", "replace")

    def _decoder(self) -> Callable[[int, str], str]:
        """Make a function that returns a token's text as in the middle of a text; decoders drop spaces at the ends."""
        backend = getattr(self._fast, "backend_tokenizer", None)
        decode: Callable[[list[Any]], str]
        if by_piece := isinstance(backend, Tokenizer) and not self._overrides("decode"):
            decode = " ".join if backend.decoder is None else backend.decoder.decode
            around: list[Any] = ["\0"]
        else:
            decode, around = self._fast.decode, self._fast.encode("a", add_special_tokens=False)
        begin = len(decode(around))
        end = begin - len(decode([*around, *around]))

        def between(token: int, piece: str) -> str:
            own: Any = piece if by_piece else token
            return decode([*around, own, *around])[begin:end]

        return between


_BYTE_OF = alphabet()


def _check_unicode(text: str) -> None:
    if (place := not_unicode_at(text)) is not None:
        message = f"The prompt is not valid Unicode at character {place}."
        raise PromptError(message, "Save it as UTF-8 and try again.")
