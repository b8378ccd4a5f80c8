"""A tokenizer whose files say all of it, run by the `tokenizers` library as transformers' own class would run it.

transformers' `PreTrainedTokenizerFast` hands texts to that library and mends what its files or its model's family need.
For files that need nothing mended the ids are the same, and 1.7 s of a start (importing transformers) are saved. The
conditions are in `_plain` and `_says_all`; any doubt gives None, and the tokenizer is loaded by mlx_lm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTS = ("additional_special_tokens", "extra_special_tokens")
_FIELDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*NAMED, "tokenizer_class", "chat_template", "backend", "name_or_path"), (str,)),
    **dict.fromkeys(LISTS, (list,)),
    **dict.fromkeys(
        ("clean_up_tokenization_spaces", "add_bos_token", "add_eos_token", "is_local", "local_files_only"),
        (bool,),
    ),
    "model_max_length": (int, float),
}
"""Of tokenizer_config.json, that are known to change nothing else, and what they are where they are not null."""
_OTHERS = (
    "added_tokens.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json",
    "additional_chat_templates", "tokenizer.model", "vocab.json", "merges.txt", "tiktoken.model",
)  # fmt: skip
"""Files that transformers would read, too."""
_FAMILIES = frozenset(
    {"llama", "qwen3", "gemma3_text", "gpt2", "phi3", "mixtral", "gpt_oss", "mamba2", "lfm2", "qwen3_next",
     "deepseek_v2"}
)  # fmt: skip
"""Model types for which mlx_lm has no defaults of the tokenizer, and transformers takes the class that the file names:
not so for qwen2."""
_LARGEST = 100_000
"""Entries of a vocabulary, from which on transformers looks whether it is one of Mistral's, to mend it."""


class PlainTokenizer:
    """What `Tokens` needs of a tokenizer, by the names that transformers has for it.

    Args:
        backend: From `tokenizer.json`.
        config: `tokenizer_config.json`.
    """

    def __init__(self, backend: Tokenizer, config: Mapping[str, Any]) -> None:
        self.backend_tokenizer = backend
        self.special_tokens_map = {name: config[name] for name in NAMED if config.get(name)}
        self.bos_token: str | None = config.get("bos_token")
        self.chat_template: str | None = config.get("chat_template")
        special = [*self.special_tokens_map.values(), *_listed(config)]
        self.all_special_ids = list(dict.fromkeys(backend.token_to_id(token) for token in special))
        eos = config.get("eos_token")
        self.eos_token_id: int | None = backend.token_to_id(eos) if eos else None

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Tokens beside the vocabulary, by id."""
        found: dict[int, AddedToken] = self.backend_tokenizer.get_added_tokens_decoder()
        return found

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def get_vocab(self) -> dict[str, int]:
        """Ids by piece."""
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def get_chat_template(self, chat_template: str | None = None, tools: object = None) -> str | None:
        """The source of the given template, else of the only one that such a tokenizer has."""
        return chat_template or self.chat_template

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return list(self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def convert_ids_to_tokens(self, token: int) -> str | None:
        """The piece of an id."""
        piece: str | None = self.backend_tokenizer.id_to_token(token)
        return piece


class PlainWrapper:
    """What `Tokens` needs of mlx_lm's `TokenizerWrapper`.

    Args:
        tokenizer: The tokenizer.
        eos_ids: That the model's config names.
    """

    _chat_template: None = None
    """mlx_lm's own renderer of some families' prompts."""

    def __init__(self, tokenizer: PlainTokenizer, eos_ids: list[int]) -> None:
        from mlx_lm import tokenizer_utils

        self._tokenizer = tokenizer
        own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        self.eos_token_ids = {*eos_ids, *own}
        self.has_chat_template = tokenizer.chat_template is not None
        self.has_thinking = tokenizer_utils._infer_thinking(tokenizer)[0] is not None


def plain_tokenizer(path: Path, config: Mapping[str, Any]) -> PlainWrapper | None:
    """The tokenizer of a model directory, where its files say all of it.

    Args:
        path: The directory, whose files have been checked.
        config: Its `config.json`.

    Returns:
        None where transformers might do more than its files say, or where they are wrong: then mlx_lm loads it, and
        says what is wrong.
    """
    if config.get("model_type") not in _FAMILIES or any((path / name).exists() for name in _OTHERS):
        return None
    try:
        given = json.loads((path / "tokenizer_config.json").read_bytes())
        if not _plain(given):
            return None  # before the other file, which takes a second where it has 30 MB
        file = json.loads((path / "tokenizer.json").read_bytes())
        if not _says_all(given, file):
            return None
        backend = Tokenizer.from_file(str(path / "tokenizer.json"))
        eos = config.get("eos_token_id")
        return PlainWrapper(PlainTokenizer(backend, given), _ids(eos))
    except Exception:  # tokenizers raises Exception itself
        return None


def _plain(config: Mapping[str, Any]) -> bool:
    """Whether tokenizer_config.json asks for nothing beyond `tokenizer.json`."""
    if not all(value is None or type(value) in _FIELDS.get(name, ()) for name, value in config.items()):
        return False
    if config.get("tokenizer_class") not in CLASSES:
        return False
    return not (config.get("add_bos_token") or config.get("add_eos_token"))


def _says_all(config: Mapping[str, Any], file: Mapping[str, Any]) -> bool:
    """Whether `tokenizer.json` is all else that transformers would heed."""
    if file.get("truncation") or file.get("padding") or file.get("post_processor"):
        return False
    if (file.get("decoder") or {}).get("type") != "ByteLevel" or len(file["model"]["vocab"]) > _LARGEST:
        return False
    marks = {str(each["content"]) for each in file["added_tokens"] if each["special"]}
    named = [config[name] for name in NAMED if config.get(name) is not None]
    return all(isinstance(each, str) and each in marks for each in [*named, *_listed(config)])


def _listed(config: Mapping[str, Any]) -> list[Any]:
    return [token for name in LISTS for token in config.get(name) or ()]


def _ids(eos: Any) -> list[int]:
    if eos is None:
        return []
    return [int(each) for each in (eos if isinstance(eos, list) else [eos])]
